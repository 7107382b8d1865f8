# Written by `python tools/stubs.py` from the module and its kernels' records; a test holds it to them.
"""Computes conditional autoregressive priors: densities, factors and draws for many phi at once (sigma.md, sections 3 and 9)."""
from typing import Any, Literal
from dataclasses import dataclass
import numpy as np
from fedkern.errors import NumericalError
from .._checks import SWITCH, Domain, choice_of, require
from .._record import COMPILED, F64, WITHOUT_NUMBA, Array, Kernel, Out, Scalar
from .graph import FORMS, HIGH, INT64, LOW, NAMES, WIDEST, WORDS, Floats, Indices, check_graph, check_normals, check_triangle, columns_of, minimum_degree
__all__ = ['Bordered', 'bordered_analyse', 'bordered_factor', 'bordered_inverse', 'bordered_solve', 'car_factor', 'car_logdensity', 'car_sample']
PROPER: Scalar
CAR_LOGDENSITY: Kernel
CAR_FACTOR: Kernel
CAR_SAMPLE: Kernel
def car_logdensity(theta: Floats, phi: Floats, indptr: Indices, indices: Indices, logdet: Floats, *, form: Literal['car', 'leroux', 'icar']='car', lo: float=0.0, hi: float=0.99, widest: float=2.0, rank: int | None=None, out: Out=None, n_threads: int=1, backend: Literal['cpp', 'reference'] | None=None) -> tuple[Floats, Floats, Floats]:
    """Returns log N(theta; 0, Q(phi)^-1) of every row, normalised, and its gradients.

    Parameters
    ----------
    theta : (m, n) float64 array
        Values of the areas, one set a row.
    phi : (m,) float64 array
        In [lo, hi]; beyond it all results of the row are NaN. Not used by "icar".
    indptr : (n+1,) int64 array
        The graph: see the module `spatial`.
    indices : (e,) int64 array
        The graph: see the module `spatial`. That it is symmetric is not checked here, but by `check_graph`.
    logdet : (k,) float64 array
        `logdet_table(..).coefficients`, k >= 1.
    form : str, "car" or "leroux" or "icar"
        Q = D - phi W ("car"), (1 - phi) I + phi (D - W) ("leroux"), or D - W ("icar").
    lo : float, in [0, 1), lo <= hi
        `lo` of the same table.
    hi : float, in [0, 1), lo <= hi
        `hi` of the same table.
    widest : float, >= 1
        `widest` of the same table.
    rank : int, None or in [0, 2^31), optional
        Of Q; None: n. With lo, hi and widest it is in `LogDet.options`.
    out : tuple of 3 arrays
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    value : (m,) float64 array
        Log densities.
    grad_theta : (m, n) float64 array
        Gradients in theta.
    grad_phi : (m,) float64 array
        Derivatives in phi; zero for "icar".

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, an index outside the graph, a number outside its range, a wrong `out`.

    Source: docs/spec/sigma.md, sections 3 and 9.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import spatial
    >>> indptr, indices = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])  # three areas in a row
    >>> eigen = spatial.car_eigen(indptr, indices)
    >>> logdet = spatial.logdet_table(eigen.values, indptr)
    >>> theta, phi = np.array([[0.5, 0.2, -0.3]]), np.array([0.9])
    >>> value, grad_theta, grad_phi = spatial.car_logdensity(
    ...     theta, phi, indptr, indices, logdet.coefficients, **logdet.options
    ... )
    >>> value.round(3), grad_theta.round(3), grad_phi.round(3)
    (array([-3.415]), array([[-0.32, -0.22,  0.48]]), array([-4.697]))"""
    ...
def car_factor(phi: Floats, order: Indices, factor_indptr: Indices, factor_indices: Indices, indptr: Indices, indices: Indices, *, form: Literal['car', 'leroux']='car', out: Out=None, n_threads: int=1, backend: Literal['cpp', 'reference'] | None=None) -> tuple[Floats, Floats]:
    """Returns Cholesky factors L L' = Q(phi)[order][:, order], one for each phi.

    Parameters
    ----------
    phi : (m,) float64 array
        One for each factor.
    order : (n,) int64 array
        `car_analyse` of the graph: order.
    factor_indptr : (n+1,) int64 array
        `car_analyse` of the graph: indptr.
    factor_indices : (f,) int64 array
        `car_analyse` of the graph: indices.
    indptr : (n+1,) int64 array
        The graph: see the module `spatial`.
    indices : (e,) int64 array
        The graph: see the module `spatial`.
    form : str, "car" or "leroux"
        Q = D - phi W ("car"), (1 - phi) I + phi (D - W) ("leroux"). An intrinsic model has no factor: see `car_eigen`.
    out : tuple of 2 arrays
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    values : (m, f) float64 array
        The entries of L in the pattern's order.
    logdet : (m,) float64 array
        log det Q.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a graph that `check_graph` refuses, a pattern of another graph, a wrong `out`.
    NumericalError
        A pivot is not greater than zero: phi and area are named.

    Source: docs/spec/sigma.md, section 3; columns from the left, as George and Liu (1981).

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import spatial
    >>> indptr, indices = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])  # three areas in a row
    >>> pattern = spatial.car_analyse(indptr, indices)
    >>> parts = pattern.order, pattern.indptr, pattern.indices
    >>> values, logdet = spatial.car_factor(np.array([0.0, 0.9]), *parts, indptr, indices)
    >>> logdet.round(3)
    array([ 0.693, -0.968])"""
    ...
def car_sample(vectors: Floats, values: Floats, weights: Floats, phi: Floats, *, form: Literal['car', 'leroux', 'icar']='car', seed: int, chain: int=0, client: int=0, step: int=0, out: Floats | None=None, n_threads: int=1, backend: Literal['cpp', 'cuda', 'reference'] | None=None) -> Floats:
    """Returns draws weights * U (e / sqrt(precisions)), one for each phi, without the null space of an intrinsic model.

    Costs n^2 operations a draw after the decomposition's n^3: for streams of draws a table of sparse factors (`DrawTable.car`) is
    faster at every size from 100 areas on, thirty times at 2,221.

    Parameters
    ----------
    vectors : (n, n) float64 array
        `car_eigen(.., form=form)`.
    values : (n,) float64 array
        `car_eigen(.., form=form)`.
    weights : (n,) float64 array
        `car_weights`, or `icar_scale`.
    phi : (m,) float64 array
        Not used by "icar".
    form : str, "car" or "leroux" or "icar"
        Q = D - phi W ("car"), (1 - phi) I + phi (D - W) ("leroux"), or D - W ("icar").
    seed : int, in [0, 2^64)
        Names the random numbers.
    chain : int, in [0, 2^64)
        Names the random numbers.
    client : int, in [0, 2^32)
        Names the random numbers.
    step : int, in [0, 2^32)
        Names the random numbers: e of row b is numbers b n .. b n + n - 1 of stream `prior_draws`.
    out : (m, n) float64 array, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "cuda" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    theta : (m, n) float64 array
        The draws. NaN where a phi leaves a precision below zero.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.

    Source: docs/spec/sigma.md, sections 3 and 9.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import spatial
    >>> indptr, indices = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])  # three areas in a row
    >>> eigen, weights = spatial.car_eigen(indptr, indices), spatial.car_weights(indptr)
    >>> theta = spatial.car_sample(eigen.vectors, eigen.values, weights, np.array([0.1, 0.9]), seed=7)
    >>> theta.shape
    (2, 3)"""
    ...
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
