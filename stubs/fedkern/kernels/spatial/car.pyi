# Written by `python tools/stubs.py` from the module and its kernels' records; a test holds it to them.
"""Computes conditional autoregressive priors: densities, factors and draws for many phi at once (sigma.md, sections 3 and 9)."""
from typing import Any, Literal
import numpy as np
from fedkern.errors import NumericalError
from .._checks import Domain, choice_of, require
from .._record import COMPILED, F64, WITHOUT_NUMBA, Array, Kernel, Out, Scalar
from ._checks import HIGH, INT64, LOW, NAMES, WIDEST, WORDS, Floats, Indices, check_normals, check_triangle
from .graph import FORMS, check_graph
__all__ = ['car_factor', 'car_logdensity', 'car_sample']
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
