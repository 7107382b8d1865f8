# Written by `python tools/stubs.py` from the module and its kernels' records; a test holds it to them.
"""Draws from a finite set of priors, to train a network that stands in for a prior (docs/spec/sigma.md, section 3)."""
from typing import Any, Literal
import operator
from copy import copy
from dataclasses import dataclass
from typing import Any
import numpy as np
from .. import rng
from .._checks import AT_LEAST_0, AT_LEAST_1, SEED, WORD, choice, choice_of, require
from .._record import F64, WITHOUT_NUMBA, Array, Kernel, Out, Scalar, on_host
from ..homes import Home
from .car import car_factor
from .eigen import car_eigen, icar_scale
from .gp import gp_factor
from .graph import INT64, Floats, Indices, car_analyse, check_normals, check_triangle, components
__all__ = ['DrawTable', 'stratified', 'table_sample']
KINDS: dict[str, Any]
TABLE: tuple[Any, ...]
WORDS: dict[str, Any]
TABLE_SAMPLE: Kernel
def table_sample(values: Floats, scale: Floats, indptr: Indices | None=None, indices: Indices | None=None, order: Indices | None=None, *, kind: Literal['stored', 'dense', 'sparse'], batch: int, seed: int, chain: int=0, step: int=0, rank: int=0, group: int=1, out: Out=None, n_threads: int=1, backend: Literal['cpp', 'cuda', 'reference'] | None=None) -> tuple[Floats, Indices]:
    """Returns draws scale * N(0, C_t) (or stored draws), t drawn for each group of rows.

    Rows of one group come from one entry: number t = floor(u T), u uniform number g (that of the group) of stream
    `prior_entries`. The normals e of row b are numbers b L .. b L + L - 1 of stream `prior_draws`, L = 0, rank or n.

    Parameters
    ----------
    values : (t, f) float64 array
        The entries, t >= 1. "stored": f = n, each is a draw. "dense": f = n rank, a factor F (n, rank) row by row; the draw is
        F e. "sparse": the columns of a Cholesky factor L one after the other; the draw x solves L'x = e, and theta[order] = x.
    scale : (n,) float64 array
        Multiplies every draw.
    indptr : (n+1,) int64 array, optional
        "sparse": where the columns of L begin, and their end f.
    indices : (f,) int64 array, optional
        "sparse": the rows of the entries of L: in each column the diagonal first, then rising.
    order : (n,) int64 array, optional
        "sparse": L is the factor of Q[order][:, order].
    kind : str, "stored" or "dense" or "sparse"
        The kind of the entries: see `values`.
    batch : int
        How many draws.
    seed : int, in [0, 2^64)
        Names the random numbers.
    chain : int, in [0, 2^64)
        Names the random numbers.
    step : int, in [0, 2^32)
        Names the random numbers.
    rank : int, >= 0 and below 2^32
        "dense": columns of a factor.
    group : int, >= 1 and below 2^32
        How many neighbours in the batch share an entry; eight are drawn in the time of one or two.
    out : tuple of 2 arrays
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "cuda" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    theta : (batch, n) float64 array
        The draws.
    entry : (batch,) int64 array
        From which entry.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, an empty table, a pattern that is no lower triangle, a number outside its range, a wrong `out`.

    Source: docs/spec/sigma.md, section 3.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import spatial
    >>> values = np.array([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]])  # two stored draws
    >>> theta, entry = spatial.table_sample(values, np.ones(3), kind="stored", batch=3, seed=7)
    >>> entry
    array([1, 1, 0])
    >>> theta
    array([[10., 20., 30.],
           [10., 20., 30.],
           [ 1.,  2.,  3.]])"""
    ...
def check_table(name: str, kind: str, shape: tuple[int, int], n: int, rank: int, indptr: Indices | None, indices: Indices | None, order: Indices | None) -> None:
    """Refuses parts of a table that contradict each other."""
    ...
@dataclass(frozen=True)
class DrawTable:
    """Holds a table of priors with the condition of each, from which a trainer draws (docs/spec/sigma.md, section 3).

    Attributes
    ----------
    values : (T, f) float64 array
        As in `table_sample`.
    phi : (T, c) float64 array
        The condition of each entry.
    scale : (n,) float64 array
        Multiplies every draw: 1 / prior sd standardises.
    kind : "stored", "dense" or "sparse"
    rank : int
        "dense": columns of a factor.
    group : int
        How many neighbours in a batch share an entry.
    indptr, indices, order : int64 arrays, or None
        "sparse": the pattern of the factors.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import spatial
    >>> indptr, indices = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])  # three areas in a row
    >>> table = spatial.DrawTable.car(indptr, indices, phi=np.array([0.1, 0.5, 0.9]))
    >>> theta, phi = table.sample(seed=7, step=0, batch=16)
    >>> theta.shape, phi.shape
    ((16, 3), (16, 1))
    """
    values: Floats
    phi: Floats
    scale: Floats
    kind: str
    rank: int = 0
    group: int = 1
    indptr: Indices | None = None
    indices: Indices | None = None
    order: Indices | None = None

    def __post_init__(self) -> None:
        ...

    @property
    def n(self) -> int:
        """The length of a draw."""
        ...

    def at(self, home: Home) -> DrawTable:
        """Returns the same table at another home, without checking it again."""
        ...

    def sample(self, seed: int, step: int, batch: int, *, chain: int=0, n_threads: int=1, backend: str | None=None) -> tuple[Floats, Floats]:
        """Returns draws and their conditions.

    Parameters
    ----------
    seed, step : int
        Names of the random numbers.
    batch : int
        How many draws.
    chain, n_threads, backend
        As in `table_sample`.

    Returns
    -------
    theta : (batch, n) float64 array
    phi : (batch, c) float64 array"""
        ...

    @classmethod
    def stored(cls, draws: Floats, phi: Floats, scale: Floats | None=None) -> DrawTable:
        """Makes a table of finished draws.

    Parameters
    ----------
    draws : (T, n) float64 array
    phi : (T,) or (T, c) float64 array
        The condition from which each was drawn.
    scale : (n,) float64 array, optional
        Ones."""
        ...

    @classmethod
    def gp(cls, x: Floats, lengthscale: Floats, *, kind: str='rbf', rank: int | None=None, tolerance: float=1e-06, scale: Floats | None=None, group: int=8, n_threads: int=1) -> DrawTable:
        """Makes a table of Gaussian processes, as low-rank factors.

    Parameters
    ----------
    x : (n, p) float64 array
        Locations.
    lengthscale : (T,) float64 array
        The entries': quantiles of their distribution at `stratified(T, seed=..)`.
    kind, tolerance
        As in `gp_factor`; by default the columns that the tolerance asks for.
    rank : int, optional
        At most so many columns.
    scale : (n,) float64 array, optional
        Ones.
    group, n_threads : int"""
        ...

    @classmethod
    def car(cls, indptr: Indices, indices: Indices, phi: Floats, *, form: str='car', scale: Floats | None=None, group: int=8, n_threads: int=1) -> DrawTable:
        """Makes a table of autoregressive priors, as sparse factors.

    Parameters
    ----------
    indptr, indices : int64 arrays
        The graph: see the module `spatial`.
    phi : (T,) float64 array
        The entries': quantiles of their distribution at `stratified(T, seed=..)`.
    form : "car" or "leroux"
    scale : (n,) float64 array, optional
        Ones.
    group, n_threads : int

    Raises
    ------
    ValueError, NumericalError
        No graph, or a phi beyond the range of the form."""
        ...

    @classmethod
    def icar(cls, indptr: Indices, indices: Indices, *, scale: Floats | None=None, group: int=8) -> DrawTable:
        """Makes a table of one entry: the intrinsic model u* of BYM2, summing to 0 in every component, its variances with a
    geometric mean of 1.

    Parameters
    ----------
    indptr, indices : int64 arrays
        The graph: see the module `spatial`.
    scale : (n,) float64 array, optional
        Multiplies u* once more.
    group : int"""
        ...
def stratified(entries: int, *, seed: int, chain: int=0, step: int=0) -> Floats:
    """Returns one uniform number in each of [0, 1/T), [1/T, 2/T), ..: the quantiles at which a table's conditions are taken.

    Parameters
    ----------
    entries : int
        T.
    seed, chain, step : int
        Names of the random numbers, of stream `prior_entries` and client 2^32 - 1.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import spatial
    >>> spatial.stratified(4, seed=7).round(3)
    array([0.169, 0.478, 0.658, 0.937])"""
    ...
