# Written by `python tools/stubs.py` from the module and its kernels' records; a test holds it to them.
"""Multinomial models: a response that is one of K levels without an order, each but the first with coefficients of its own.

A row of level y, with the predictors eta_0 = 0 of the first level and eta_k = X_i beta_k of the others, adds
eta_y - log sum_k e^eta_k. A point holds the blocks beta_1, .., beta_(K-1), one after the other. Results that are
not finite at a point are NaN, and no others.
"""
from typing import Any, Literal
from typing import Any
import numpy as np
from numpy.typing import NDArray
from ._checks import Domain
from ._record import COMPILED, F64, Array, Kernel, Out, Scalar
Floats = NDArray[np.float64]
VALUES: Kernel
CURVATURE: Kernel
def values(points: Floats, X: Floats, y: Floats, *, levels: int, out: Floats | None=None, n_threads: int=1, backend: Literal['cpp', 'reference'] | None=None) -> Floats:
    """Returns the log-likelihood of a multinomial logistic model at many points.

    Parameters
    ----------
    points : (s, k) float64 array
        Points at which the log-likelihood is wanted: the coefficients of the second level, of the third, ..
    X : (n, p) float64 array
        Rows.
    y : (n,) float64 array
        The number of each row's level, 0 of the first, which is the reference. A value that is none makes all results NaN.
    levels : int, a whole number of at least 2, below 2^31
        How many levels there are.
    out : (s,) float64 array, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    value : (s,) float64 array
        The log-likelihood.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.

    Source: McFadden (1974).

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import multinomial
    >>> X, y = np.array([[1.0, 0.5], [1.0, -1.0], [1.0, 2.0]]), np.array([0.0, 2.0, 1.0])
    >>> points = np.array([[0.0, 0.0, 0.0, 0.0], [0.5, 1.0, 0.0, -1.0]])  # two coefficients of level 1, then two of level 2
    >>> multinomial.values(points, X, y, levels=3).round(3)
    array([-3.296, -2.018])"""
    ...
def curvature(points: Floats, X: Floats, y: Floats, *, levels: int, out: Out=None, n_threads: int=1, backend: Literal['cpp', 'reference'] | None=None) -> tuple[Floats, Floats, Floats]:
    """Returns the log-likelihood with its gradient and minus its Hessian.

    Parameters
    ----------
    points : (s, k) float64 array
        Points at which the log-likelihood is wanted: the coefficients of the second level, of the third, ..
    X : (n, p) float64 array
        Rows.
    y : (n,) float64 array
        The number of each row's level, 0 of the first, which is the reference. A value that is none makes all results NaN.
    levels : int, a whole number of at least 2, below 2^31
        How many levels there are.
    out : tuple of 3 arrays
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    value : (s,) float64 array
        The log-likelihood.
    gradient : (s, k) float64 array
        Its gradient.
    minus_hessian : (s, k*(k+1)/2) float64 array
        Minus its matrix of second derivatives: the lower triangle, row by row.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.

    Source: McFadden (1974).

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import multinomial
    >>> X, y = np.array([[1.0, 0.5], [1.0, -1.0], [1.0, 2.0]]), np.array([0.0, 2.0, 1.0])
    >>> value, gradient, minus_hessian = multinomial.curvature(np.zeros((1, 4)), X, y, levels=3)
    >>> value.round(3), gradient.round(3), minus_hessian.shape
    (array([-3.296]), array([[ 0. ,  1.5,  0. , -1.5]]), (1, 10))"""
    ...
