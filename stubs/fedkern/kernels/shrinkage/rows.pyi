# Written by `python tools/stubs.py` from the module and its kernels' records; a test holds it to them.
"""Computes a site's part where every sweep touches its rows: a logistic response, or covariates that are missing."""
from typing import Any, Literal
from typing import NamedTuple
import numpy as np
from numpy.typing import NDArray
from .._checks import POSITIVE, SWITCH, Domain, require
from .._record import F64, Array, Kernel, Out, Scalar, here, names
from .local import EXPANDED, N_SWEEPS, NAMES, SCALE_LAMBDA, SLAB, VARIANCE, WORDS, Floats, check_steps, per_chain, raise_fault
__all__ = ['Patterns', 'imputed_sweeps', 'logistic_sweeps', 'missing_patterns']
LOGISTIC_SWEEPS: Kernel
IMPUTED_SWEEPS: Kernel
Swept = tuple[np.ndarray, ...]
class Patterns(NamedTuple):
    """Groups rows by the columns that they lack.

    Attributes
    ----------
    of_row : (n,) number of each row's pattern, -1: nothing is missing
    K : (k, p, p) regression of the missing columns on the others
    L : (k, p, p) Cholesky factor of their covariance given the others
    shift : (k, p) their mean where the others are 0

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import shrinkage
    >>> X, psi = np.array([[0.5, -1.0], [-1.0, np.nan], [np.nan, 1.0]]), np.array([[1.0, 0.5], [0.5, 1.0]])
    >>> patterns = shrinkage.missing_patterns(X, psi)
    >>> isinstance(patterns, shrinkage.Patterns), patterns.K.shape
    (True, (2, 2, 2))
    """
    of_row: NDArray[np.int64]
    K: Floats
    L: Floats
    shift: Floats
def logistic_sweeps(X: Floats, y: Floats, theta: Floats, tau_sq: Floats, deviation: Floats, lambda_sq: Floats, alpha: Floats, *, seed: int, chain: int=0, client: int=0, step: int=0, n_sweeps: int=1, scales: Literal['exact', 'expanded']='exact', scale_lambda: float=1.0, scale_intercept: float=10.0, intercept: bool=True, slab: float=np.inf, out: Out=None, n_threads: int=1, backend: Literal['cpp', 'numba', 'reference'] | None=None) -> Swept:
    """Makes Gibbs sweeps of one site's P(y = 1) = 1 / (1 + exp(-x'theta_k - alpha)), theta_k = theta + deviation.

    Parameters
    ----------
    X : (n, p) float64 array
        The site's covariates.
    y : (c, n) float64 array
        0 or 1: of each chain, or (n,): the same for all.
    theta : (c, p) float64 array
        Global coefficients.
    tau_sq : (c, p) float64 array
        Squared global scales, > 0.
    deviation : (c, p) float64 array
        The site's deviations from theta.
    lambda_sq : (c, p) float64 array
        The squared local scales of the deviations.
    alpha : (c,) float64 array
        The site's intercepts.
    seed : int, in [0, 2^64)
        Names the random numbers.
    chain : int, in [0, 2^64)
        Names the random numbers: chain i of the call has number chain + i.
    client : int, in [0, 2^32)
        Names the random numbers.
    step : int, in [0, 2^32)
        Names the random numbers: sweep t of the call has number step + t.
    n_sweeps : int, >= 1 and below 2^32
        How many sweeps.
    scales : str, "exact" or "expanded"
        How lambda^2 is drawn: "exact" without auxiliary variables, "expanded" through nu.
    scale_lambda : float, > 0 and finite
        Scale of the half-Cauchy prior of lambda.
    scale_intercept : float, > 0 and finite
        Standard deviation of the intercept's normal prior.
    intercept : bool
        False: there is none, and alpha comes back as 0.
    slab : float, > 0
        Standard deviation of the regularised horseshoe's second factor N(deviation; 0, slab^2); inf: none.
    out : tuple of 4 arrays
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "numba" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    new_deviation : (c, p) float64 array
        The site's deviations from theta, after the sweeps.
    new_lambda_sq : (c, p) float64 array
        The squared local scales of the deviations, after the sweeps.
    new_alpha : (c,) float64 array
        The site's intercepts, after the sweeps.
    events : (c, 4) int64 array
        Scales clipped to [1e-60, 1e60], systems factorised again by QR, 0, -1.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, a response that is neither 0 nor 1.
    NumericalError
        A draw is not finite: chain, client, sweep and quantity are named.

    Source: docs/spec/sparse.md, section 11; Polson, Scott and Windle (2013).

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import shrinkage
    >>> X, y = np.array([[0.5, -1.0], [-1.0, 0.0], [2.0, 1.0]]), np.array([1.0, 0.0, 1.0])
    >>> theta, ones, deviation = np.zeros((1, 2)), np.ones((1, 2)), np.full((1, 2), 0.1)  # of one chain
    >>> deviation, lambda_sq, alpha, events = shrinkage.logistic_sweeps(
    ...     X, y, theta, ones, deviation, ones, np.zeros(1), seed=7
    ... )
    >>> deviation.round(3), alpha.round(3)
    (array([[ 0.235, -0.031]]), array([2.363]))"""
    ...
def imputed_sweeps(X: Floats, y: Floats, psi: Floats, theta: Floats, tau_sq: Floats, deviation: Floats, lambda_sq: Floats, sigma_sq: Floats, alpha: Floats, completed: Floats, *, seed: int, chain: int=0, client: int=0, step: int=0, n_sweeps: int=1, scales: Literal['exact', 'expanded']='exact', scale_lambda: float=1.0, shape: float=2.0, rate: float=1.0, slab: float=np.inf, intercept: bool=True, patterns: Patterns | None=None, out: Out=None, n_threads: int=1, backend: Literal['cpp', 'numba', 'reference'] | None=None) -> Swept:
    """Makes Gibbs sweeps of one site's y = alpha + X theta_k + e, where values of X are missing: its rows are N(0, psi).

    Parameters
    ----------
    X : (n, p) float64 array
        The site's covariates about the centre, NaN where missing.
    y : (c, n) float64 array
        The response: of each chain, or (n,): the same for all. Rows without one have been dropped.
    psi : (p, p) float64 array
        Covariance of the covariates, positive definite.
    theta : (c, p) float64 array
        Global coefficients.
    tau_sq : (c, p) float64 array
        Squared global scales, > 0.
    deviation : (c, p) float64 array
        The site's deviations from theta.
    lambda_sq : (c, p) float64 array
        The squared local scales of the deviations.
    sigma_sq : (c,) float64 array
        The site's error variances.
    alpha : (c,) float64 array
        The site's intercepts, which have a flat prior.
    completed : (c, n, p) float64 array
        X with its missing values filled by the sweep before; at first by anything finite.
    seed : int, in [0, 2^64)
        Names the random numbers.
    chain : int, in [0, 2^64)
        Names the random numbers: chain i of the call has number chain + i.
    client : int, in [0, 2^32)
        Names the random numbers.
    step : int, in [0, 2^32)
        Names the random numbers: sweep t of the call has number step + t.
    n_sweeps : int, >= 1 and below 2^32
        How many sweeps.
    scales : str, "exact" or "expanded"
        How lambda^2 is drawn: "exact" without auxiliary variables, "expanded" through nu.
    scale_lambda : float, > 0 and finite
        Scale of the half-Cauchy prior of lambda.
    shape : float, > 0 and at most 1e300
        Shape of the prior of sigma^2, IG(shape, rate); it is drawn with n degrees of freedom: the intercept is drawn, too.
    rate : float, > 0 and finite
        Rate of the prior of sigma^2, IG(shape, rate).
    slab : float, > 0
        Standard deviation of the regularised horseshoe's second factor N(deviation; 0, slab^2); inf: none.
    intercept : bool
        False: there is none, and alpha comes back as 0.
    patterns : Patterns, `missing_patterns(X, psi)`, optional
        The result of `missing_patterns(X, psi)`: saves its work in every call but the first. Then psi and completed are not
        checked. With `missing_patterns(X, psi, mean)` rows are N(mean, psi).
    out : tuple of 6 arrays
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "numba" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    new_deviation : (c, p) float64 array
        The site's deviations from theta, after the sweeps.
    new_lambda_sq : (c, p) float64 array
        The squared local scales of the deviations, after the sweeps.
    new_sigma_sq : (c,) float64 array
        The site's error variances, after the sweeps.
    new_alpha : (c,) float64 array
        The site's intercepts, after the sweeps.
    new_completed : (c, n, p) float64 array
        X with its missing values as drawn last.
    events : (c, 4) int64 array
        Scales clipped to [1e-60, 1e60], systems factorised again by QR, 0, -1.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, no row, a psi that is not positive definite, a completed matrix that
        differs from X where X is known.
    NumericalError
        A draw is not finite: chain, client, sweep and quantity are named.

    Source: docs/spec/sparse.md, section 11.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import shrinkage
    >>> X, y = np.array([[0.5, -1.0], [-1.0, np.nan], [0.5, 1.0]]), np.array([1.0, 0.2, -0.4])
    >>> theta, ones, deviation = np.zeros((1, 2)), np.ones((1, 2)), np.full((1, 2), 0.1)  # of one chain
    >>> deviation, lambda_sq, sigma_sq, alpha, completed, events = shrinkage.imputed_sweeps(
    ...     X, y, np.eye(2), theta, ones, deviation, ones, np.ones(1), np.zeros(1), np.nan_to_num(X)[np.newaxis], seed=7
    ... )
    >>> completed[0].round(3)
    array([[ 0.5  , -1.   ],
           [-1.   ,  0.621],
           [ 0.5  ,  1.   ]])"""
    ...
def missing_patterns(X: Floats, psi: Floats, mean: Floats | None=None) -> Patterns:
    """Returns which rows lack the same columns, and the regression of these columns on the others under psi.

    Parameters
    ----------
    X : (n, p) array
        NaN where a value is missing.
    psi : (p, p) array
        Covariance of the columns, positive definite.
    mean : (p,) array
        Their mean, by default 0.

    Returns
    -------
    Patterns

    Raises
    ------
    ValueError
        A psi that is not symmetric and positive definite.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import shrinkage
    >>> X, psi = np.array([[0.5, -1.0], [-1.0, np.nan], [np.nan, 1.0]]), np.array([[1.0, 0.5], [0.5, 1.0]])
    >>> patterns = shrinkage.missing_patterns(X, psi)
    >>> patterns.of_row  # row 0 lacks nothing
    array([-1,  0,  1])"""
    ...
