"""Factorises precisions that are sparse but for a last block: a client's areas, its border last (sigma.md, section 13)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedkern.errors import NumericalError

from .._checks import SWITCH
from .._docs import documented
from .._record import COMPILED, F64, Array, Kernel, Out, Scalar
from ._checks import INT64, Floats, Indices
from .graph import columns_of, minimum_degree

__all__ = ["Bordered", "bordered_analyse", "bordered_factor", "bordered_inverse", "bordered_solve"]

_INDPTR = Array("indptr", ("c",), INT64)
_INDICES = Array("indices", ("f",), INT64)
_FACTOR = Array("factor", ("f",), F64)
_BLOCK = Array("block", ("b", "b"), F64)
_WORDS = {
    "indptr": "`bordered_analyse` of the graph: where the c - 1 sparse columns begin.",
    "indices": "`bordered_analyse` of the graph: rows of the entries. That it has a place for all that elimination fills is not "
    "checked.",
    "factor": "Entries of L in the pattern, from `bordered_factor`.",
}
_HOST = "some 100 us on a CPU, and each column waits for others"
BORDERED_FACTOR = Kernel(
    "spatial.bordered_factor",
    __name__,
    purpose="The sparse columns of the Cholesky factor of a precision whose last block is dense, and the rest of that block.",
    source="docs/spec/sigma.md, section 13; columns from the left, as George and Liu (1981)",
    inputs=(Array("values", ("f",), F64), _INDPTR, _INDICES, _BLOCK),
    outputs=(_FACTOR, Array("rest", ("b", "b"), F64)),
    host=_HOST,
    backends=COMPILED,
    words=_WORDS
    | {
        "values": "Entries of the precision in the pattern; 0 where there are none.",
        "block": "The precision's dense block, of which the lower triangle is read.",
        "factor": "Entries of L in the pattern.",
        "rest": "The block less the part that the sparse columns take from it: its Cholesky factor completes L.",
    },
    example="""
        >>> indptr, indices = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])  # areas 0, 1, 2 in a row; the border is area 1
        >>> pattern = spatial.bordered_analyse(indptr, indices, border=np.array([1]))
        >>> values, block = np.array([4.0, -1.0, 4.0, -1.0]), np.array([[2.0]])  # of the precision: areas 0 and 2; area 1
        >>> factor, rest = spatial.bordered_factor(values, pattern.indptr, pattern.indices, block)
        >>> factor.round(3), rest.round(3)
        (array([ 2. , -0.5,  2. , -0.5]), array([[1.5]]))
    """,
)
BORDERED_INVERSE = Kernel(
    "spatial.bordered_inverse",
    __name__,
    purpose="The entries of the inverse of a factored precision in the pattern of its factor, the diagonal among them.",
    source="docs/spec/sigma.md, section 13; Takahashi, Fagan and Chin (1973)",
    inputs=(_FACTOR, _INDPTR, _INDICES, _BLOCK),
    outputs=(Array("inverse", ("f",), F64),),
    host=_HOST,
    backends=COMPILED,
    words=_WORDS
    | {
        "block": "The inverse of the rest from `bordered_factor`: the dense block of the inverse.",
        "inverse": "Entries of the inverse.",
    },
    example="""
        >>> indptr, indices = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])  # areas 0, 1, 2 in a row; the border is area 1
        >>> pattern = spatial.bordered_analyse(indptr, indices, border=np.array([1]))
        >>> values, block = np.array([4.0, -1.0, 4.0, -1.0]), np.array([[2.0]])  # of the precision: areas 0 and 2; area 1
        >>> factor, rest = spatial.bordered_factor(values, pattern.indptr, pattern.indices, block)
        >>> spatial.bordered_inverse(factor, pattern.indptr, pattern.indices, 1 / rest).round(3)
        array([0.292, 0.167, 0.292, 0.167])
    """,
)
BORDERED_SOLVE = Kernel(
    "spatial.bordered_solve",
    __name__,
    purpose="Half of a solution with the sparse columns of a Cholesky factor.",
    source="docs/spec/sigma.md, section 13",
    inputs=(Array("right", ("m", "n"), F64), _FACTOR, _INDPTR, _INDICES),
    outputs=(Array("solved", ("m", "n"), F64),),
    scalars=(Scalar("back", SWITCH, False),),
    host=_HOST,
    backends=COMPILED,
    words=_WORDS
    | {
        "right": "Right sides, one a row, in the order of elimination. With `back` their last part is the solution's already.",
        "back": "Whether with L' instead of L.",
        "solved": "Solutions; without `back` the last part remains for the factor of the dense block.",
    },
    example="""
        >>> indptr, indices = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])  # areas 0, 1, 2 in a row; the border is area 1
        >>> pattern = spatial.bordered_analyse(indptr, indices, border=np.array([1]))
        >>> values, block = np.array([4.0, -1.0, 4.0, -1.0]), np.array([[2.0]])  # of the precision: areas 0 and 2; area 1
        >>> factor, rest = spatial.bordered_factor(values, pattern.indptr, pattern.indices, block)
        >>> spatial.bordered_solve(np.array([[1.0, 0.0, 0.0]]), factor, pattern.indptr, pattern.indices).round(3)
        array([[0.5 , 0.  , 0.25]])
    """,
)


@dataclass(frozen=True)
class Bordered:
    """Holds the pattern of the Cholesky factors of all precisions of a graph whose last areas are dense among each other.

    Attributes
    ----------
    order : (n,) int64 array
        Which area is eliminated when; the dense ones last, in their order.
    indptr, indices : int64 arrays
        Columns of L left of the dense block: in each the diagonal first, then rising rows.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import spatial
    >>> indptr, indices = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])  # three areas in a row
    >>> pattern = spatial.bordered_analyse(indptr, indices, border=np.array([1]))
    >>> isinstance(pattern, spatial.Bordered), pattern.indptr, pattern.indices
    (True, array([0, 2, 4]), array([0, 2, 1, 2]))
    """

    order: Indices
    indptr: Indices
    indices: Indices


def bordered_analyse(indptr: Indices, indices: Indices, border: Indices) -> Bordered:
    """Returns an order of elimination that keeps the factor sparse, with the dense areas last, and the factor's pattern.

    Parameters
    ----------
    indptr, indices : int64 arrays
        The graph: see the module `spatial`. Edges between areas of the border do not matter.
    border : (b,) int64 array
        The areas that are dense among each other, rising.

    Returns
    -------
    Bordered

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import spatial
    >>> indptr, indices = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])  # three areas in a row
    >>> spatial.bordered_analyse(indptr, indices, border=np.array([1])).order  # the border is eliminated last
    array([0, 2, 1])
    """
    n = len(indptr) - 1
    # The border is dense whatever comes before it: only the other areas need an order.
    inner = np.setdiff1d(np.arange(n), border)
    place = np.full(n, -1)
    place[inner] = np.arange(len(inner))
    rows = np.repeat(np.arange(n), np.diff(indptr))
    # The graph of the other areas alone, in their numbers.
    kept = (place[rows] >= 0) & (place[indices] >= 0)
    starts = np.searchsorted(place[rows[kept]], np.arange(len(inner) + 1))
    order = np.concatenate([inner[minimum_degree(starts.astype(np.int64), place[indices[kept]])], border]).astype(np.int64)
    # The whole order, with the border last, gives the rows of each sparse column.
    columns = columns_of(order, indptr, indices)[: len(inner)]
    ends = np.cumsum([0, *map(len, columns)], dtype=np.int64)
    return Bordered(order, ends, np.concatenate([[], *columns]).astype(np.int64))


@documented(BORDERED_FACTOR)
def bordered_factor(
    values: Floats,
    indptr: Indices,
    indices: Indices,
    block: Floats,
    *,
    out: Out = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> tuple[Floats, Floats]:
    """Returns the sparse columns of a Cholesky factor, and the Schur complement of the dense block.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, no pattern, a wrong `out`.
    NumericalError
        A pivot is not greater than zero: its place in the order of elimination is named.
    """
    arrays = BORDERED_FACTOR.prepare({"values": values, "indptr": indptr, "indices": indices, "block": block}, out)
    failed = BORDERED_FACTOR.call(backend, arrays, (), n_threads)
    # The kernel stops at the first bad pivot and returns its place, else -1.
    if failed >= 0:
        raise NumericalError(
            f"{BORDERED_FACTOR.name}: pivot {failed} is not greater than zero: the matrix is not positive definite"
        )
    return arrays[4], arrays[5]


@documented(BORDERED_INVERSE)
def bordered_inverse(
    factor: Floats,
    indptr: Indices,
    indices: Indices,
    block: Floats,
    *,
    out: Floats | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> Floats:
    """Returns the entries of the inverse in the pattern, without computing the others."""
    inverse: Floats
    (inverse,) = BORDERED_INVERSE.compute((factor, indptr, indices, block), out, n_threads, backend)
    return inverse


@documented(BORDERED_SOLVE)
def bordered_solve(
    right: Floats,
    factor: Floats,
    indptr: Indices,
    indices: Indices,
    *,
    back: bool = False,
    out: Floats | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> Floats:
    """Returns solutions of L x = right before the dense block's own factor, or of L' x = right after it."""
    solved: Floats
    (solved,) = BORDERED_SOLVE.compute((right, factor, indptr, indices), out, n_threads, backend, back=back)
    return solved
