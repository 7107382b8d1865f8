"""Draws from a finite set of priors, to train a network that stands in for a prior (docs/spec/sigma.md, section 3)."""

from __future__ import annotations

import operator
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arrays import Floats, Indices
from .. import rng
from .._checks import AT_LEAST_0, AT_LEAST_1, SEED, WORD, choice, choice_of, require
from .._docs import documented
from .._record import F64, WITHOUT_NUMBA, Array, Kernel, Out, Scalar, on_host
from ..homes import Home
from .car import car_factor
from .eigen import car_eigen, icar_scale
from .gp import gp_factor
from .graph import INT64, car_analyse, check_normals, check_triangle, components

__all__ = ["DrawTable", "stratified", "table_sample"]

KINDS = {"stored": 0, "dense": 1, "sparse": 2}

TABLE = (Scalar("kind", choice_of(KINDS)), Scalar("rank", AT_LEAST_0, 0), Scalar("group", AT_LEAST_1, 1))

WORDS = {
    "scale": "Multiplies every draw.",
    "indptr": '"sparse": where the columns of L begin, and their end f.',
    "indices": '"sparse": the rows of the entries of L: in each column the diagonal first, then rising.',
    "order": '"sparse": L is the factor of Q[order][:, order].',
    "kind": "The kind of the entries: see `values`.",
    "rank": '"dense": columns of a factor.',
    "group": "How many neighbours in the batch share an entry; eight are drawn in the time of one or two.",
    "seed": "Names the random numbers.",
    "chain": "Names the random numbers.",
}
TABLE_SAMPLE = Kernel(
    "spatial.table_sample",
    __name__,
    purpose="Draws from a table of priors, each from an entry that is drawn first.",
    source="docs/spec/sigma.md, section 3",
    inputs=(
        Array("values", ("t", "f"), F64),
        Array("scale", ("n",), F64),
        Array("indptr", ("n+1",), INT64, optional=True),
        Array("indices", ("f",), INT64, optional=True),
        Array("order", ("n",), INT64, optional=True),
    ),
    outputs=(Array("theta", ("batch", "n"), F64), Array("entry", ("batch",), INT64)),
    scalars=(*TABLE, Scalar("seed", SEED), Scalar("chain", SEED, 0), Scalar("step", WORD, 0)),
    streams=("prior_entries", "prior_draws"),
    backends=WITHOUT_NUMBA,
    words=WORDS
    | {
        "values": 'The entries, t >= 1. "stored": f = n, each is a draw. "dense": f = n rank, a factor F (n, rank) row by '
        'row; the draw is F e. "sparse": the columns of a Cholesky factor L one after the other; the draw x solves L\'x = e, '
        "and theta[order] = x.",
        "batch": "How many draws.",
        "step": "Names the random numbers.",
        "theta": "The draws.",
        "entry": "From which entry.",
    },
    example="""
        >>> values = np.array([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]])  # two stored draws
        >>> theta, entry = spatial.table_sample(values, np.ones(3), kind="stored", batch=3, seed=7)
        >>> entry
        array([1, 1, 0])
        >>> theta
        array([[10., 20., 30.],
               [10., 20., 30.],
               [ 1.,  2.,  3.]])
    """,
)


@documented(TABLE_SAMPLE)
def table_sample(
    values: Floats,
    scale: Floats,
    indptr: Indices | None = None,
    indices: Indices | None = None,
    order: Indices | None = None,
    *,
    kind: str,
    batch: int,
    seed: int,
    chain: int = 0,
    step: int = 0,
    rank: int = 0,
    group: int = 1,
    out: Out = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> tuple[Floats, Indices]:
    """Returns draws scale * N(0, C_t) (or stored draws), t drawn for each group of rows.

    Rows of one group come from one entry: number t = floor(u T), u uniform number g (that of the group) of stream
    `prior_entries`. The normals e of row b are numbers b L .. b L + L - 1 of stream `prior_draws`, L = 0, rank or n.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, an empty table, a pattern that is no lower triangle, a number outside its range, a wrong `out`.
    """
    name = TABLE_SAMPLE.name
    AT_LEAST_0.check(name, "rank", rank)
    AT_LEAST_0.check(name, "batch", batch)
    TABLE_SAMPLE.check_kinds(kind=kind)
    rank, batch = operator.index(rank), operator.index(batch)
    columns = rank if kind == "dense" else 0
    numbers = TABLE_SAMPLE.numbers(kind=kind, rank=columns, group=group, seed=seed, chain=chain, step=step)
    inputs = {"values": values, "scale": scale, "indptr": indptr, "indices": indices, "order": order}
    arrays = TABLE_SAMPLE.prepare(inputs, out, {"batch": batch})
    n = len(arrays[1])
    check_table(name, kind, arrays[0].shape, n, rank, *map(on_host, arrays[2:5]))
    check_normals(name, batch * {"stored": 0, "dense": rank, "sparse": n}[kind])
    TABLE_SAMPLE.call(backend, arrays, numbers, n_threads)
    return arrays[5], arrays[6]


def check_table(
    name: str,
    kind: str,
    shape: tuple[int, int],
    n: int,
    rank: int,
    indptr: Indices | None,
    indices: Indices | None,
    order: Indices | None,
) -> None:
    """Refuses parts of a table that contradict each other."""
    entries, f = shape
    require(name, entries >= 1, "values", "must have an entry", shape)
    pattern = {"indptr": indptr, "indices": indices, "order": order}
    if kind == "sparse":
        # A sparse table is nothing without its pattern.
        missing = [part for part, array in pattern.items() if array is None]
        require(name, not missing, "kind", f"'sparse' needs {', '.join(missing)}", "none")
        check_triangle(name, indptr, indices, order)  # type: ignore[arg-type]
        return
    # A pattern beside another kind would be silently ignored.
    given = [part for part, array in pattern.items() if array is not None]
    require(name, not given, " and ".join(given), f"must be None where kind is {kind!r}", "an array")
    want = n if kind == "stored" else n * rank
    require(name, f == want, "values", f"must have {want} columns where kind is {kind!r}, n = {n}, rank = {rank}", f)


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
        name = "spatial.DrawTable"
        choice(name, "kind", self.kind, KINDS)
        require(name, self.group >= 1, "group", "must be >= 1", self.group)
        shape = self.phi.shape
        require(name, len(shape) == 2 and shape[0] == len(self.values), "phi", f"must have {len(self.values)} rows", shape)
        check_table(name, self.kind, self.values.shape, self.n, self.rank, self.indptr, self.indices, self.order)

    @property
    def n(self) -> int:
        """The length of a draw."""
        return len(self.scale)

    def at(self, home: Home) -> DrawTable:
        """Returns the same table at another home, without checking it again."""
        if home.kind == "cpu":
            return self
        # A copy by fields: `__post_init__` would check numbers, and wait for the device.
        moved = copy(self)
        for name in ("values", "phi", "scale", "indptr", "indices", "order"):
            object.__setattr__(moved, name, home.put(getattr(self, name)))
        return moved

    def sample(
        self, seed: int, step: int, batch: int, *, chain: int = 0, n_threads: int = 1, backend: str | None = None
    ) -> tuple[Floats, Floats]:
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
        phi : (batch, c) float64 array
        """
        options: dict[str, Any] = {"kind": self.kind, "rank": self.rank, "group": self.group, "batch": batch}
        counters: dict[str, Any] = {"seed": seed, "chain": chain, "step": step, "n_threads": n_threads, "backend": backend}
        theta, entry = table_sample(self.values, self.scale, self.indptr, self.indices, self.order, **options, **counters)
        return theta, self.phi[entry]

    @classmethod
    def stored(cls, draws: Floats, phi: Floats, scale: Floats | None = None) -> DrawTable:
        """Makes a table of finished draws.

        Parameters
        ----------
        draws : (T, n) float64 array
        phi : (T,) or (T, c) float64 array
            The condition from which each was drawn.
        scale : (n,) float64 array, optional
            Ones.
        """
        scales = np.ones(draws.shape[1]) if scale is None else scale
        return cls(draws, _columns(phi), scales, "stored")

    @classmethod
    def gp(
        cls,
        x: Floats,
        lengthscale: Floats,
        *,
        kind: str = "rbf",
        rank: int | None = None,
        tolerance: float = 1e-6,
        scale: Floats | None = None,
        group: int = 8,
        n_threads: int = 1,
    ) -> DrawTable:
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
        group, n_threads : int
        """
        most = len(x) if rank is None else rank
        shortest = lengthscale[np.argmin(lengthscale) :][:1]  # its factor has the most columns
        # The longest factor decides the columns of all: one table has one width.
        used = gp_factor(x, shortest, kind=kind, rank=min(most, len(x)), tolerance=tolerance)[0].any(axis=(0, 1))
        columns = int(used.sum())
        factors, _ = gp_factor(x, lengthscale, kind=kind, rank=columns, tolerance=tolerance, n_threads=n_threads)
        values = factors.reshape(len(lengthscale), -1)
        scales = np.ones(len(x)) if scale is None else scale
        return cls(values, _columns(lengthscale), scales, "dense", columns, group)

    @classmethod
    def car(
        cls,
        indptr: Indices,
        indices: Indices,
        phi: Floats,
        *,
        form: str = "car",
        scale: Floats | None = None,
        group: int = 8,
        n_threads: int = 1,
    ) -> DrawTable:
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
            No graph, or a phi beyond the range of the form.
        """
        p = car_analyse(indptr, indices)
        values, _ = car_factor(phi, p.order, p.indptr, p.indices, indptr, indices, form=form, n_threads=n_threads)
        ones = np.ones(len(p.order)) if scale is None else scale
        return cls(values, _columns(phi), ones, "sparse", 0, group, p.indptr, p.indices, p.order)

    @classmethod
    def icar(cls, indptr: Indices, indices: Indices, *, scale: Floats | None = None, group: int = 8) -> DrawTable:
        """Makes a table of one entry: the intrinsic model u* of BYM2, summing to 0 in every component, its variances with a
        geometric mean of 1.

        Parameters
        ----------
        indptr, indices : int64 arrays
            The graph: see the module `spatial`.
        scale : (n,) float64 array, optional
            Multiplies u* once more.
        group : int
        """
        eigen = car_eigen(indptr, indices, form="icar")
        weights = icar_scale(eigen.values, eigen.vectors, components(indptr, indices))
        # Without the null space, whose variance is infinite, the draw sums to 0 in every component.
        kept = eigen.values > 0
        factor = weights[:, None] * eigen.vectors[:, kept] / np.sqrt(eigen.values[kept])
        n, rank = factor.shape
        scales = np.ones(n) if scale is None else scale
        return cls(factor.reshape(1, -1), np.zeros((1, 1)), scales, "dense", rank, group)


def stratified(entries: int, *, seed: int, chain: int = 0, step: int = 0) -> Floats:
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
    array([0.169, 0.478, 0.658, 0.937])
    """
    key = rng.key(seed, "prior_entries", chain)
    return (np.arange(entries) + rng.uniform(entries, key=key, client=2**32 - 1, step=step)) / entries


def _columns(phi: Floats) -> Floats:
    return phi[:, None] if phi.ndim == 1 else phi
