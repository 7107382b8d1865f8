"""Checks graphs of areas, and finds their components and the sparse pattern of a Cholesky factor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from ...arrays import Floats, Indices
from .._checks import SEED, WORD, Domain, require
from .._record import Scalar

__all__ = ["Pattern", "adjacency", "car_analyse", "car_precision", "check_graph", "components", "diagonal", "null_dimension"]

INT64 = (np.dtype("int64"),)


NAMES = (Scalar("seed", SEED), Scalar("chain", SEED, 0), Scalar("client", WORD, 0), Scalar("step", WORD, 0))
_RANGE = Domain("must be in [0, 1), lo <= hi", "", "float(x)")
LOW, HIGH = Scalar("lo", _RANGE, 0.0), Scalar("hi", _RANGE, 0.99)
WIDEST = Scalar("widest", Domain("must be >= 1", "x >= 1", "float(x)"), 2.0)
WORDS = {
    "indptr": "The graph: see the module `spatial`.",
    "indices": "The graph: see the module `spatial`.",
    "logdet": "`logdet_table(..).coefficients`, k >= 1.",
    "lo": "`lo` of the same table.",
    "hi": "`hi` of the same table.",
    "widest": "`widest` of the same table.",
    "seed": "Names the random numbers.",
    "chain": "Names the random numbers.",
    "client": "Names the random numbers.",
    "step": "Names the random numbers: e of row b is numbers b n .. b n + n - 1 of stream `prior_draws`.",
}


def check_normals(kernel: str, normals: int) -> None:
    """Refuses a call that needs more normals than the counter has."""
    require(kernel, normals <= 2**33, "the number of normals", "of a call must be at most 2^33", normals)


def check_indptr(kernel: str, indptr: Indices, nnz: int) -> None:
    """Refuses boundaries of rows (or columns) unless they begin at 0, never fall and end at nnz."""
    fine = indptr.size >= 1 and indptr[0] == 0 and indptr[-1] == nnz and bool((indptr[1:] >= indptr[:-1]).all())
    require(kernel, fine, "indptr", f"must rise from 0 to {nnz}", "others")


def check_triangle(kernel: str, indptr: Indices, indices: Indices, order: Indices) -> None:
    """Refuses anything but columns of a lower triangle, each with its diagonal first and its rows ascending, and a permutation
    `order`."""
    n = len(order)
    # The boundaries first: the checks below slice by them.
    check_indptr(kernel, indptr, len(indices))
    columns = np.arange(n)
    first = indptr[:-1]
    fine = bool((indptr[1:] > first).all()) and (not n or (indices.max() < n and bool((indices[first] == columns).all())))
    if fine:
        # Rows rise within a column; from one column to the next they may fall.
        rising = np.diff(indices) > 0
        rising[first[1:] - 1] = True
        fine = bool(rising.all())
    require(
        kernel, fine, "indices", "must be the rows of a lower triangle, by columns: the diagonal first, then rising", "others"
    )
    fine = bool((np.sort(order) == columns).all())
    require(kernel, fine, "order", f"must be a permutation of 0 .. {n - 1}", "another")


FORMS = {"car": 0, "leroux": 1, "icar": 2}


@dataclass(frozen=True)
class Pattern:
    """Holds the pattern of the Cholesky factors L L' = Q[order][:, order] of all precisions of a graph.

    Attributes
    ----------
    order : (n,) int64 array
        Which area is eliminated when.
    indptr : (n + 1,) int64 array
        Where the columns of L begin.
    indices : (nnz_L,) int64 array
        The rows of the entries: in each column the diagonal first, then rising.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import spatial
    >>> indptr, indices = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])  # three areas in a row
    >>> pattern = spatial.car_analyse(indptr, indices)
    >>> isinstance(pattern, spatial.Pattern), len(pattern.indices)  # of a path nothing is filled in: three and two entries
    (True, 5)
    """

    order: Indices
    indptr: Indices
    indices: Indices


def check_graph(indptr: Indices, indices: Indices, *, name: str = "spatial.check_graph") -> None:
    """Refuses arrays that are not the compressed rows of a symmetric adjacency matrix.

    Parameters
    ----------
    indptr : (n + 1,) int64 array
        Where the rows begin.
    indices : (nnz,) int64 array
        The neighbours of each area, rising.
    name : str
        Who is named by an error.

    Raises
    ------
    TypeError, ValueError
        An area that is its own neighbour, a neighbour twice or not in order, one of no number, or i next to j but not j to i.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import spatial
    >>> spatial.check_graph(np.array([0, 1, 2]), np.array([1, 0]))  # two neighbours
    >>> try:
    ...     spatial.check_graph(np.array([0, 1, 1]), np.array([1]))
    ... except ValueError as error:
    ...     print(error)
    ...
    spatial.check_graph: indices must be symmetric, got a neighbour in one direction only: (0, 1)
    """
    for what, a in (("indptr", indptr), ("indices", indices)):
        if type(a) is not np.ndarray or a.dtype not in INT64 or a.ndim != 1:
            raise TypeError(
                f"{name}: {what} must be an int64 array of one dimension, got {getattr(a, 'dtype', type(a).__name__)}"
            )
    # Ranges first: the checks below index by these numbers.
    check_indptr(name, indptr, len(indices))
    n = len(indptr) - 1
    fine = not len(indices) or (indices.min() >= 0 and indices.max() < n)
    require(name, fine, "indices", f"must be in [0, {n})", "others")
    rows = np.repeat(np.arange(n), np.diff(indptr))
    loops = rows[rows == indices]
    require(name, not loops.size, "indices", "must not hold an area itself", f"area {loops[:1]}")
    # An edge as one number; edges in order are rising numbers.
    place = rows * n + indices
    wrong = rows[1:][np.diff(place) <= 0]
    require(name, not wrong.size, "indices", "must rise within each row", f"area {wrong[:1]}")
    # Turned edges that are not in the list.
    alone = np.setdiff1d(indices * n + rows, place)
    pair = tuple(int(i) for i in divmod(alone[0], n)) if alone.size else ()
    require(name, not alone.size, "indices", "must be symmetric", f"a neighbour in one direction only: {pair[::-1]}")


def adjacency(indptr: Indices, indices: Indices) -> Any:
    """Returns W as a SciPy sparse array.

    Parameters
    ----------
    indptr, indices : int64 arrays
        See the module `spatial`.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import spatial
    >>> indptr, indices = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])  # three areas in a row
    >>> spatial.adjacency(indptr, indices).toarray()
    array([[0., 1., 0.],
           [1., 0., 1.],
           [0., 1., 0.]])
    """
    n = len(indptr) - 1
    return scipy.sparse.csr_array((np.ones(len(indices)), *map(np.ascontiguousarray, (indices, indptr))), shape=(n, n))


def diagonal(indptr: Indices) -> Floats:
    """Returns D, the number of neighbours of each area. An area without neighbours has 1, which makes it independent N(0, 1) in
    every form.

    Parameters
    ----------
    indptr : (n + 1,) int64 array

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import spatial
    >>> spatial.diagonal(np.array([0, 1, 3, 4, 4]))  # the last area has no neighbour
    array([1., 2., 1., 1.])
    """
    return np.maximum(np.diff(indptr), 1).astype(np.float64)


def components(indptr: Indices, indices: Indices) -> NDArray[np.int64]:
    """Returns the number of the connected component of each area, (n,).

    Parameters
    ----------
    indptr, indices : int64 arrays
        See the module `spatial`.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import spatial
    >>> spatial.components(np.array([0, 1, 2, 2]), np.array([1, 0]))  # two neighbours, and one area alone
    array([0, 0, 1])
    """
    if len(indptr) == 1:
        return np.zeros(0, np.int64)
    return np.asarray(scipy.sparse.csgraph.connected_components(adjacency(indptr, indices), directed=False)[1], np.int64)


def null_dimension(indptr: Indices, indices: Indices) -> int:
    """Returns the dimension of the null space of D - W: the number of components of two areas or more.

    Parameters
    ----------
    indptr, indices : int64 arrays
        See the module `spatial`.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import spatial
    >>> spatial.null_dimension(np.array([0, 1, 2, 2]), np.array([1, 0]))  # two neighbours, and one area alone
    1
    """
    return int((np.bincount(components(indptr, indices)) > 1).sum())


def car_precision(indptr: Indices, indices: Indices, phi: float = 1.0, *, form: str = "car") -> Any:
    """Returns the precision matrix as a SciPy sparse array.

    Parameters
    ----------
    indptr, indices : int64 arrays
        See the module `spatial`.
    phi : float
        Not used by "icar".
    form : "car", "leroux" or "icar"
        D - phi W, (1 - phi) I + phi (D - W), D - W.

    Returns
    -------
    (n, n) sparse array

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import spatial
    >>> indptr, indices = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])  # three areas in a row
    >>> spatial.car_precision(indptr, indices, 0.5).toarray()
    array([[ 1. , -0.5,  0. ],
           [-0.5,  2. , -0.5],
           [ 0. , -0.5,  1. ]])
    """
    W, d = adjacency(indptr, indices), diagonal(indptr)
    if form == "leroux":
        d = (1 - phi) + phi * d
    ties = 1.0 if form == "icar" else phi
    return (scipy.sparse.diags_array(d) - ties * W).tocsr()


def car_analyse(indptr: Indices, indices: Indices) -> Pattern:
    """Returns an order of elimination that keeps Cholesky factors sparse, and their pattern.

    Parameters
    ----------
    indptr, indices : int64 arrays
        See the module `spatial`.

    Returns
    -------
    Pattern
        The same for every phi and form.

    Raises
    ------
    ValueError
        No graph: see `check_graph`.

    Source: sigma.md, section 3; multiple minimum degree (Liu, 1985) as SuperLU has it; columns as unions along the elimination
    tree (George and Liu, 1981).

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import spatial
    >>> indptr, indices = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])  # three areas in a row
    >>> np.sort(spatial.car_analyse(indptr, indices).order)
    array([0, 1, 2])
    """
    check_graph(indptr, indices, name="spatial.car_analyse")
    order = minimum_degree(indptr, indices)
    columns = columns_of(order, indptr, indices)
    lengths = [len(c) for c in columns]
    return Pattern(
        order, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), np.concatenate([[], *columns]).astype(np.int64)
    )


def minimum_degree(indptr: Indices, indices: Indices) -> Indices:
    """Returns an order of elimination, (n,).

    Parameters
    ----------
    indptr, indices : int64 arrays
        See the module `spatial`.
    """
    if len(indptr) == 1:
        return np.zeros(0, np.int64)
    # Only the pattern matters; a precision at phi = 0.5 is safely positive definite.
    matrix = car_precision(indptr, indices, 0.5).tocsc()
    options = {"SymmetricMode": True}
    factor = scipy.sparse.linalg.splu(matrix, "MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)
    return np.argsort(factor.perm_c).astype(np.int64)


def columns_of(order: Indices, indptr: Indices, indices: Indices) -> list[NDArray[np.int64]]:
    """Returns the rows of the entries of each column of a Cholesky factor, rising.

    Parameters
    ----------
    order : (n,) int64 array
        Which area is eliminated when.
    indptr, indices : int64 arrays
        See the module `spatial`.
    """
    n = len(order)
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    children: list[list[NDArray[np.int64]]] = [[] for _ in range(n)]
    columns = []
    for j, area in enumerate(order):
        # The union of an area's later neighbours and of what its children in the elimination tree hand on.
        later = place[indices[indptr[area] : indptr[area + 1]]]
        below = np.unique(np.concatenate([later[later > j], *(child[child > j] for child in children[j])]))
        if below.size:
            children[below[0]].append(below)
        # Columns that are used up are let go: the tree would keep them all.
        children[j] = []
        columns.append(np.concatenate([[j], below]))
    return columns
