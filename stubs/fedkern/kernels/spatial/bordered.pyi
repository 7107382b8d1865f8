# Written by `python tools/stubs.py` from the module and its kernels' records; a test holds it to them.
"""Factorises precisions that are sparse but for a last block: a client's areas, its border last (sigma.md, section 13)."""
from typing import Any, Literal
from dataclasses import dataclass
import numpy as np
from fedkern.errors import NumericalError
from .._checks import SWITCH
from .._record import COMPILED, F64, Array, Kernel, Out, Scalar
from ._checks import INT64, Floats, Indices
from .graph import columns_of, minimum_degree
__all__ = ['Bordered', 'bordered_analyse', 'bordered_factor', 'bordered_inverse', 'bordered_solve']
BORDERED_FACTOR: Kernel
BORDERED_INVERSE: Kernel
BORDERED_SOLVE: Kernel
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
    array([0, 2, 1])"""
    ...
def bordered_factor(values: Floats, indptr: Indices, indices: Indices, block: Floats, *, out: Out=None, n_threads: int=1, backend: Literal['cpp', 'reference'] | None=None) -> tuple[Floats, Floats]:
    """Returns the sparse columns of a Cholesky factor, and the Schur complement of the dense block.

    Parameters
    ----------
    values : (f,) float64 array
        Entries of the precision in the pattern; 0 where there are none.
    indptr : (c,) int64 array
        `bordered_analyse` of the graph: where the c - 1 sparse columns begin.
    indices : (f,) int64 array
        `bordered_analyse` of the graph: rows of the entries. That it has a place for all that elimination fills is not checked.
    block : (b, b) float64 array
        The precision's dense block, of which the lower triangle is read.
    out : tuple of 2 arrays
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    factor : (f,) float64 array
        Entries of L in the pattern.
    rest : (b, b) float64 array
        The block less the part that the sparse columns take from it: its Cholesky factor completes L.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, no pattern, a wrong `out`.
    NumericalError
        A pivot is not greater than zero: its place in the order of elimination is named.

    Source: docs/spec/sigma.md, section 13; columns from the left, as George and Liu (1981).

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import spatial
    >>> indptr, indices = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])  # areas 0, 1, 2 in a row; the border is area 1
    >>> pattern = spatial.bordered_analyse(indptr, indices, border=np.array([1]))
    >>> values, block = np.array([4.0, -1.0, 4.0, -1.0]), np.array([[2.0]])  # of the precision: areas 0 and 2; area 1
    >>> factor, rest = spatial.bordered_factor(values, pattern.indptr, pattern.indices, block)
    >>> factor.round(3), rest.round(3)
    (array([ 2. , -0.5,  2. , -0.5]), array([[1.5]]))"""
    ...
def bordered_inverse(factor: Floats, indptr: Indices, indices: Indices, block: Floats, *, out: Floats | None=None, n_threads: int=1, backend: Literal['cpp', 'reference'] | None=None) -> Floats:
    """Returns the entries of the inverse in the pattern, without computing the others.

    Parameters
    ----------
    factor : (f,) float64 array
        Entries of L in the pattern, from `bordered_factor`.
    indptr : (c,) int64 array
        `bordered_analyse` of the graph: where the c - 1 sparse columns begin.
    indices : (f,) int64 array
        `bordered_analyse` of the graph: rows of the entries. That it has a place for all that elimination fills is not checked.
    block : (b, b) float64 array
        The inverse of the rest from `bordered_factor`: the dense block of the inverse.
    out : (f,) float64 array, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    inverse : (f,) float64 array
        Entries of the inverse.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.

    Source: docs/spec/sigma.md, section 13; Takahashi, Fagan and Chin (1973).

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import spatial
    >>> indptr, indices = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])  # areas 0, 1, 2 in a row; the border is area 1
    >>> pattern = spatial.bordered_analyse(indptr, indices, border=np.array([1]))
    >>> values, block = np.array([4.0, -1.0, 4.0, -1.0]), np.array([[2.0]])  # of the precision: areas 0 and 2; area 1
    >>> factor, rest = spatial.bordered_factor(values, pattern.indptr, pattern.indices, block)
    >>> spatial.bordered_inverse(factor, pattern.indptr, pattern.indices, 1 / rest).round(3)
    array([0.292, 0.167, 0.292, 0.167])"""
    ...
def bordered_solve(right: Floats, factor: Floats, indptr: Indices, indices: Indices, *, back: bool=False, out: Floats | None=None, n_threads: int=1, backend: Literal['cpp', 'reference'] | None=None) -> Floats:
    """Returns solutions of L x = right before the dense block's own factor, or of L' x = right after it.

    Parameters
    ----------
    right : (m, n) float64 array
        Right sides, one a row, in the order of elimination. With `back` their last part is the solution's already.
    factor : (f,) float64 array
        Entries of L in the pattern, from `bordered_factor`.
    indptr : (c,) int64 array
        `bordered_analyse` of the graph: where the c - 1 sparse columns begin.
    indices : (f,) int64 array
        `bordered_analyse` of the graph: rows of the entries. That it has a place for all that elimination fills is not checked.
    back : bool
        Whether with L' instead of L.
    out : (m, n) float64 array, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    solved : (m, n) float64 array
        Solutions; without `back` the last part remains for the factor of the dense block.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.

    Source: docs/spec/sigma.md, section 13.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import spatial
    >>> indptr, indices = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])  # areas 0, 1, 2 in a row; the border is area 1
    >>> pattern = spatial.bordered_analyse(indptr, indices, border=np.array([1]))
    >>> values, block = np.array([4.0, -1.0, 4.0, -1.0]), np.array([[2.0]])  # of the precision: areas 0 and 2; area 1
    >>> factor, rest = spatial.bordered_factor(values, pattern.indptr, pattern.indices, block)
    >>> spatial.bordered_solve(np.array([[1.0, 0.0, 0.0]]), factor, pattern.indptr, pattern.indices).round(3)
    array([[0.5 , 0.  , 0.25]])"""
    ...
