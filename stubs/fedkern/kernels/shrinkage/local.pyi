# Written by `python tools/stubs.py` from the module and its kernels' records; a test holds it to them.
"""Computes a site's part: its coefficients, their scales and its error variance, given the global theta and tau."""
from typing import Any, Literal
from collections.abc import Callable
from typing import Any
import numpy as np
from numpy.typing import NDArray
from fedkern.errors import NumericalError
from .._checks import ABOVE_0, AT_LEAST_1, GAMMA_SHAPE, NOT_NEGATIVE, POSITIVE, SEED, WORD, choice_of, require
from .._record import BACKENDS, F64, Array, Kernel, Out, Scalar, here, home, masked, on_host
__all__ = ['Sweeps', 'bind_local_sweeps', 'bind_local_sweeps_batched', 'factor_of_moments', 'gaussian_posterior_draw', 'local_sweeps', 'local_sweeps_batched', 'local_sweeps_gram', 'nothing_happened', 'raise_fault']
Floats = NDArray[np.float64]
Swept = tuple[Floats, Floats, Floats, NDArray[np.int64]]
Sweeps = Callable[..., Swept]
SCALES: dict[str, Any]
FORMS: dict[str, Any]
QUANTITIES: tuple[Any, ...]
NAMES: tuple[Any, ...]
N_SWEEPS: Scalar
EXPANDED: Scalar
SCALE_LAMBDA: Scalar
SLAB: Scalar
VARIANCE: tuple[Any, ...]
WORDS: dict[str, Any]
LOCAL_SWEEPS: Kernel
LOCAL_SWEEPS_BATCHED: Kernel
GAUSSIAN_POSTERIOR_DRAW: Kernel
def local_sweeps(R: Floats, q: Floats, rss: Floats | float, n: float, theta: Floats, tau_sq: Floats, deviation: Floats, lambda_sq: Floats, sigma_sq: Floats, *, seed: int, chain: int=0, client: int=0, step: int=0, n_sweeps: int=1, scales: Literal['exact', 'expanded']='exact', draw: Literal['auto', 'gram', 'data']='auto', scale_lambda: float=1.0, shape: float=2.0, rate: float=1.0, slab: float=np.inf, gram: Floats | None=None, out: Out=None, n_threads: int=1, backend: Literal['cpp', 'numba', 'cuda', 'reference'] | None=None) -> Swept:
    """Makes Gibbs sweeps of one site's regression y = X theta_k + e, theta_k = theta + deviation, given the global theta and tau.

    A sweep draws, in this order, lambda^2 (half-Cauchy lambda; the deviations have variances lambda^2 tau^2), the deviations, and
    sigma^2 ~ IG(shape + n / 2, rate + RSS / 2). Chains are independent: several in one call give the bits of each alone.

    Parameters
    ----------
    R : (r, p) float64 array
        Upper triangular (trapezoidal) factor of the centred X = Q R, r <= p; numbers below the diagonal are not read.
    q : (c, r) float64 array
        Q'y: of each chain, or (r,): the same for all.
    rss : (c,) float64 array, or float
        |y|^2 - |q|^2, the residual sum of squares of the least-squares fit; it is not negative.
    n : float, >= 0 and finite
        Degrees of freedom of the rows: their number, less 1 if X and y are centred.
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
    seed : int, in [0, 2^64)
        Names the random numbers.
    chain : int, in [0, 2^64)
        Names the random numbers: chain i of the call has number chain + i.
    client : int, in [0, 2^32)
        Names the random numbers.
    step : int, in [0, 2^32)
        Names the random numbers: sweep t of the call has number step + t.
    n_sweeps : int, >= 1 and below 2^32
        How many sweeps. They give the bits of as many calls of one sweep.
    scales : str, "exact" or "expanded"
        How lambda^2 is drawn: "exact" without auxiliary variables, "expanded" through nu.
    draw : str, "auto" or "gram" or "data"
        "gram": p x p systems; "data": r x r systems, where lambda tau / sigma < 1e4; "auto": the cheaper of the two.
    scale_lambda : float, > 0 and finite
        Scale of the half-Cauchy prior of lambda.
    shape : float, > 0 and at most 1e300
        Shape of the prior of sigma^2, IG(shape, rate).
    rate : float, > 0 and finite
        Rate of the prior of sigma^2, IG(shape, rate).
    slab : float, > 0
        Standard deviation of the regularised horseshoe's second factor N(deviation; 0, slab^2); inf: none.
    gram : (p, p) float64 array, optional
        R'R, where it is at hand: saves r p^2 operations a call.
    out : tuple of 4 arrays
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "numba" or "cuda" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    deviation : (c, p) float64 array
        The site's deviations from theta.
    lambda_sq : (c, p) float64 array
        The squared local scales of the deviations.
    sigma_sq : (c,) float64 array
        The site's error variances.
    events : (c, 4) int64 array
        How many scales were clipped to [1e-60, 1e60], systems factorised again by QR, coefficients drawn in data space; -1.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.
    NumericalError
        A draw is not finite: chain, client, sweep and quantity are named.

    Source: docs/spec/sparse.md, sections 2, 3 and 11 (slab).

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import shrinkage
    >>> R, q = np.array([[2.0, 0.5], [0.0, 1.5]]), np.array([1.0, -0.6])  # X = Q R, and Q'y
    >>> theta, ones, deviation = np.zeros((1, 2)), np.ones((1, 2)), np.full((1, 2), 0.1)  # of one chain
    >>> deviation, lambda_sq, sigma_sq, events = shrinkage.local_sweeps(
    ...     R, q, 0.8, 5.0, theta, ones, deviation, ones, np.ones(1), seed=7, n_sweeps=3
    ... )
    >>> deviation.round(3), sigma_sq.round(3)
    (array([[0.083, 0.084]]), array([0.474]))"""
    ...
def local_sweeps_gram(gram: Floats, xty: Floats, yy: float, n: float, theta: Floats, tau_sq: Floats, deviation: Floats, lambda_sq: Floats, sigma_sq: Floats, **options: Any) -> Swept:
    """Makes the sweeps of `local_sweeps` where only second moments are known.

    Parameters
    ----------
    gram : (p, p) float64 array
        X'X of the centred columns.
    xty : (p,) float64 array
        X'y.
    yy : float
        y'y. The residual sum of squares loses its digits where it is far below y'y: use a triangular factor of the rows there.
    n, theta, tau_sq, deviation, lambda_sq, sigma_sq, options
        As those of `local_sweeps`.

    Returns
    -------
    deviation, lambda_sq, sigma_sq, events
        As those of `local_sweeps`.

    Raises
    ------
    ValueError
        The moments are those of no columns [X y].

    Source: docs/spec/sparse.md, section 3.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import shrinkage
    >>> X, y = np.array([[1.0, 0.5], [-1.0, 0.0], [0.5, -1.0], [-0.5, 0.5]]), np.array([1.0, -0.4, -0.6, 0.0])
    >>> theta, ones, deviation = np.zeros((1, 2)), np.ones((1, 2)), np.full((1, 2), 0.1)  # of one chain
    >>> swept = shrinkage.local_sweeps_gram(X.T @ X, X.T @ y, y @ y, 3.0, theta, ones, deviation, ones, np.ones(1), seed=7)
    >>> swept[0].shape
    (1, 2)"""
    ...
def factor_of_moments(gram: Floats, xty: Floats, yy: float) -> tuple[Floats, Floats, float]:
    """Returns (R, q, rss) of `local_sweeps` from second moments.

    Parameters
    ----------
    gram : (p, p) float64 array
        X'X.
    xty : (p,) float64 array
        X'y.
    yy : float
        y'y.

    Returns
    -------
    R : (p, p) float64 array
    q : (p,) float64 array
    rss : float

    Raises
    ------
    ValueError
        The matrix of moments of [X y] has a negative eigenvalue.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import shrinkage
    >>> X, y = np.array([[1.0, 0.5], [-1.0, 0.0], [0.5, -1.0], [-0.5, 0.5]]), np.array([1.0, -0.4, -0.6, 0.0])
    >>> R, q, rss = shrinkage.factor_of_moments(X.T @ X, X.T @ y, y @ y)
    >>> R.round(3), q.round(3), round(rss, 3)
    (array([[ 1.581, -0.158],
           [ 0.   ,  1.214]]), array([0.696, 0.996]), 0.043)"""
    ...
def local_sweeps_batched(R: Floats, n: float, theta: Floats, tau_sq: Floats, deviation: Floats, lambda_sq: Floats, sigma_sq: Floats, *, seed: int, chain: int=0, client: int=0, step: int=0, n_sweeps: int=1, scales: Literal['exact', 'expanded']='exact', draw: Literal['auto', 'gram', 'data']='auto', scale_lambda: float=1.0, shape: float=2.0, rate: float=1.0, slab: float=np.inf, gram: Floats | None=None, out: Out=None, n_threads: int=1, backend: Literal['cpp', 'numba', 'cuda', 'reference'] | None=None) -> Swept:
    """Makes Gibbs sweeps of the p regressions of every column of Y on the others (a Markov random field), all on one factor of Y.

    Each regression has the result of `local_sweeps` with the response's column left out, and its random numbers. Nothing p x p
    is copied for a regression. With `n_threads` > 1, limit the BLAS library to one thread.

    Parameters
    ----------
    R : (r, p) float64 array
        Upper triangular (trapezoidal) factor of the centred Y = Q R, r <= p; numbers below the diagonal are not read.
    n : float, >= 0 and finite
        Degrees of freedom of the rows: their number, less 1 if Y is centred.
    theta : (c, p, p) float64 array
        Global coefficients: [chain, response, column]. The diagonal is not read.
    tau_sq : (c, p, p) float64 array
        Squared global scales, > 0. The diagonal is not read.
    deviation : (c, p, p) float64 array
        The site's deviations from theta. The diagonal becomes 0.
    lambda_sq : (c, p, p) float64 array
        The squared local scales of the deviations. The diagonal becomes 1.
    sigma_sq : (c, p) float64 array
        The site's error variances.
    seed : int, in [0, 2^64)
        Names the random numbers.
    chain : int, in [0, 2^64)
        Names the random numbers: chain i of the call has number chain + i.
    client : int, in [0, 2^32)
        Names the random numbers.
    step : int, in [0, 2^32)
        Names the random numbers: sweep t of the call has number step + t.
    n_sweeps : int, >= 1 and below 2^32
        How many sweeps. They give the bits of as many calls of one sweep.
    scales : str, "exact" or "expanded"
        How lambda^2 is drawn: "exact" without auxiliary variables, "expanded" through nu.
    draw : str, "auto" or "gram" or "data"
        "gram": p x p systems; "data": r x r systems, where lambda tau / sigma < 1e4; "auto": the cheaper of the two.
    scale_lambda : float, > 0 and finite
        Scale of the half-Cauchy prior of lambda.
    shape : float, > 0 and at most 1e300
        Shape of the prior of sigma^2, IG(shape, rate).
    rate : float, > 0 and finite
        Rate of the prior of sigma^2, IG(shape, rate).
    slab : float, > 0
        Standard deviation of the regularised horseshoe's second factor N(deviation; 0, slab^2); inf: none.
    gram : (p, p) float64 array, optional
        R'R, where it is at hand: saves r p^2 operations a call.
    out : tuple of 4 arrays
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "numba" or "cuda" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    deviation : (c, p, p) float64 array
        The site's deviations from theta. The diagonal becomes 0.
    lambda_sq : (c, p, p) float64 array
        The squared local scales of the deviations. The diagonal becomes 1.
    sigma_sq : (c, p) float64 array
        The site's error variances.
    events : (c, p, 4) int64 array
        How many scales were clipped to [1e-60, 1e60], systems factorised again by QR, coefficients drawn in data space; -1.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.
    NumericalError
        A draw is not finite: chain, regression, client, sweep and quantity are named.

    Source: docs/spec/sparse.md, section 8.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import shrinkage
    >>> R = np.array([[2.0, 0.5], [0.0, 1.5]])  # Y = Q R
    >>> theta, ones, deviation = np.zeros((1, 2, 2)), np.ones((1, 2, 2)), np.full((1, 2, 2), 0.1)  # of one chain
    >>> deviation, lambda_sq, sigma_sq, events = shrinkage.local_sweeps_batched(
    ...     R, 5.0, theta, ones, deviation, ones, np.ones((1, 2)), seed=7
    ... )
    >>> deviation.round(3), sigma_sq.round(3)
    (array([[[ 0.   , -0.012],
            [-0.111,  0.   ]]]), array([[0.695, 3.089]]))"""
    ...
def bind_local_sweeps(R: Floats, q: Floats, rss: Floats | float, n: float, theta: Floats, tau_sq: Floats, deviation: Floats, lambda_sq: Floats, sigma_sq: Floats, *, seed: int, chain: int=0, client: int=0, n_sweeps: int=1, scales: Literal['exact', 'expanded']='exact', draw: Literal['auto', 'gram', 'data']='auto', scale_lambda: float=1.0, shape: float=2.0, rate: float=1.0, slab: float=np.inf, gram: Floats | None=None, n_threads: int=1, backend: Literal['cpp', 'numba', 'cuda', 'reference'] | None=None) -> Sweeps:
    """Binds `local_sweeps` for many calls of equal sizes: (theta, tau_sq, deviation, lambda_sq, sigma_sq, step) -> its results.

    Parameters
    ----------
    R : (r, p) float64 array
        Upper triangular (trapezoidal) factor of the centred X = Q R, r <= p; numbers below the diagonal are not read. It is
        read in every call, and must stay where it is.
    q : (c, r) float64 array
        Q'y: of each chain, or (r,): the same for all. It is read in every call, and must stay where it is.
    rss : (c,) float64 array, or float
        |y|^2 - |q|^2, the residual sum of squares of the least-squares fit; it is not negative. It is read in every call, and
        must stay where it is.
    n : float, >= 0 and finite
        Degrees of freedom of the rows: their number, less 1 if X and y are centred.
    theta : (c, p) float64 array
        Of any call: all have its sizes.
    tau_sq : (c, p) float64 array
        Of any call: all have its sizes.
    deviation : (c, p) float64 array
        Of any call: all have its sizes.
    lambda_sq : (c, p) float64 array
        Of any call: all have its sizes.
    sigma_sq : (c,) float64 array
        Of any call: all have its sizes.
    seed : int, in [0, 2^64)
        Names the random numbers.
    chain : int, in [0, 2^64)
        Names the random numbers: chain i of the call has number chain + i.
    client : int, in [0, 2^32)
        Names the random numbers.
    n_sweeps : int, >= 1 and below 2^32
        How many sweeps. They give the bits of as many calls of one sweep.
    scales : str, "exact" or "expanded"
        How lambda^2 is drawn: "exact" without auxiliary variables, "expanded" through nu.
    draw : str, "auto" or "gram" or "data"
        "gram": p x p systems; "data": r x r systems, where lambda tau / sigma < 1e4; "auto": the cheaper of the two.
    scale_lambda : float, > 0 and finite
        Scale of the half-Cauchy prior of lambda.
    shape : float, > 0 and at most 1e300
        Shape of the prior of sigma^2, IG(shape, rate).
    rate : float, > 0 and finite
        Rate of the prior of sigma^2, IG(shape, rate).
    slab : float, > 0
        Standard deviation of the regularised horseshoe's second factor N(deviation; 0, slab^2); inf: none.
    gram : (p, p) float64 array, optional
        R'R, where it is at hand: saves r p^2 operations a call. It is read in every call, and must stay where it is.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "numba" or "cuda" or "reference", optional
        By default the one at home where the arrays live.

    Raises
    ------
    TypeError, ValueError
        Here, what `local_sweeps` refuses; in a call, an array of another type or shape, or a bound array that has changed.

    Source: docs/spec/sparse.md, sections 2, 3 and 11 (slab).

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import shrinkage
    >>> R, q = np.array([[2.0, 0.5], [0.0, 1.5]]), np.array([1.0, -0.6])  # X = Q R, and Q'y
    >>> theta, ones, deviation = np.zeros((1, 2)), np.ones((1, 2)), np.full((1, 2), 0.1)  # of one chain
    >>> sweep = shrinkage.bind_local_sweeps(R, q, 0.8, 5.0, theta, ones, deviation, ones, np.ones(1), seed=7)
    >>> state = deviation, ones, np.ones(1)
    >>> for step in range(3):
    ...     *state, events = sweep(theta, ones, *state, step)
    ...
    >>> state[2].round(3)  # the same as `local_sweeps` with n_sweeps=3
    array([0.474])"""
    ...
def bind_local_sweeps_batched(R: Floats, n: float, theta: Floats, tau_sq: Floats, deviation: Floats, lambda_sq: Floats, sigma_sq: Floats, *, seed: int, chain: int=0, client: int=0, n_sweeps: int=1, scales: Literal['exact', 'expanded']='exact', draw: Literal['auto', 'gram', 'data']='auto', scale_lambda: float=1.0, shape: float=2.0, rate: float=1.0, slab: float=np.inf, gram: Floats | None=None, n_threads: int=1, backend: Literal['cpp', 'numba', 'cuda', 'reference'] | None=None) -> Sweeps:
    """Binds `local_sweeps_batched` for many calls with equal sizes, as `bind_local_sweeps` does.

    Parameters
    ----------
    R : (r, p) float64 array
        Upper triangular (trapezoidal) factor of the centred Y = Q R, r <= p; numbers below the diagonal are not read. It is
        read in every call, and must stay where it is.
    n : float, >= 0 and finite
        Degrees of freedom of the rows: their number, less 1 if Y is centred.
    theta : (c, p, p) float64 array
        Of any call: all have its sizes.
    tau_sq : (c, p, p) float64 array
        Of any call: all have its sizes.
    deviation : (c, p, p) float64 array
        Of any call: all have its sizes.
    lambda_sq : (c, p, p) float64 array
        Of any call: all have its sizes.
    sigma_sq : (c, p) float64 array
        Of any call: all have its sizes.
    seed : int, in [0, 2^64)
        Names the random numbers.
    chain : int, in [0, 2^64)
        Names the random numbers: chain i of the call has number chain + i.
    client : int, in [0, 2^32)
        Names the random numbers.
    n_sweeps : int, >= 1 and below 2^32
        How many sweeps. They give the bits of as many calls of one sweep.
    scales : str, "exact" or "expanded"
        How lambda^2 is drawn: "exact" without auxiliary variables, "expanded" through nu.
    draw : str, "auto" or "gram" or "data"
        "gram": p x p systems; "data": r x r systems, where lambda tau / sigma < 1e4; "auto": the cheaper of the two.
    scale_lambda : float, > 0 and finite
        Scale of the half-Cauchy prior of lambda.
    shape : float, > 0 and at most 1e300
        Shape of the prior of sigma^2, IG(shape, rate).
    rate : float, > 0 and finite
        Rate of the prior of sigma^2, IG(shape, rate).
    slab : float, > 0
        Standard deviation of the regularised horseshoe's second factor N(deviation; 0, slab^2); inf: none.
    gram : (p, p) float64 array, optional
        R'R, where it is at hand: saves r p^2 operations a call. It is read in every call, and must stay where it is.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "numba" or "cuda" or "reference", optional
        By default the one at home where the arrays live.

    Raises
    ------
    TypeError, ValueError
        Here, what `local_sweeps_batched` refuses; in a call, an array of another type or shape, or a bound array that has changed.

    Source: docs/spec/sparse.md, section 8.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import shrinkage
    >>> R = np.array([[2.0, 0.5], [0.0, 1.5]])  # Y = Q R
    >>> theta, ones, deviation = np.zeros((1, 2, 2)), np.ones((1, 2, 2)), np.full((1, 2, 2), 0.1)  # of one chain
    >>> sweep = shrinkage.bind_local_sweeps_batched(R, 5.0, theta, ones, deviation, ones, np.ones((1, 2)), seed=7)
    >>> state = deviation, ones, np.ones((1, 2))
    >>> for step in range(3):
    ...     *state, events = sweep(theta, ones, *state, step)
    ...
    >>> state[2].shape
    (1, 2)"""
    ...
def gaussian_posterior_draw(R: Floats, q: Floats, mean: Floats, scale: Floats, sigma_sq: Floats, *, seed: int, chain: int=0, client: int=0, step: int=0, draw: Literal['auto', 'gram', 'data']='auto', slab: float=np.inf, gram: Floats | None=None, out: Out=None, n_threads: int=1, backend: Literal['cpp', 'numba', 'cuda', 'reference'] | None=None) -> Floats:
    """Returns draws of beta - mean, y = X beta + e, e ~ N(0, sigma_sq), beta ~ N(mean, diag(scale^2)).

    Parameters
    ----------
    R : (r, p) float64 array
        Upper triangular (trapezoidal) factor of X = Q R, r <= p; numbers below the diagonal are not read.
    q : (c, r) float64 array
        Q'y: of each draw, or (r,): the same for all.
    mean : (c, p) float64 array
        Means of the prior.
    scale : (c, p) float64 array
        Standard deviations of the prior.
    sigma_sq : (c,) float64 array
        Error variances.
    seed : int, in [0, 2^64)
        Names the random numbers.
    chain : int, in [0, 2^64)
        Names the random numbers: draw i of the call has chain number chain + i.
    client : int, in [0, 2^32)
        Names the random numbers.
    step : int, in [0, 2^32)
        Names the random numbers.
    draw : str, "auto" or "gram" or "data"
        "gram": p x p systems; "data": r x r systems, where scale / sigma < 1e4; "auto": the cheaper of the two.
    slab : float, > 0
        Standard deviation of a second prior factor N(beta; mean, slab^2); inf: none.
    gram : (p, p) float64 array, optional
        R'R, where it is at hand.
    out : (c, p) float64 array
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "numba" or "cuda" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    deviation : (c, p) float64 array
        beta - mean, which stays accurate where it is small.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.
    NumericalError
        A draw is not finite: chain and client are named.

    Source: docs/spec/sparse.md, section 3; Bhattacharya, Chakraborty and Mallick (2016) for "data".

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import shrinkage
    >>> R, q = np.array([[2.0, 0.5], [0.0, 1.5]]), np.array([1.0, -0.6])  # X = Q R, and Q'y
    >>> mean, scale = np.zeros((1, 2)), np.ones((1, 2))  # of the prior, of one draw
    >>> shrinkage.gaussian_posterior_draw(R, q, mean, scale, np.ones(1), seed=7).round(3)
    array([[ 1.193, -0.362]])"""
    ...
def check_steps(kernel: Kernel, step: int, n_sweeps: int) -> None:
    """Refuses numbers of sweeps that run over."""
    ...
def per_chain(value: Any, of: Any, ndim: int) -> Any:
    """Returns a value that is the same for all chains as a view with a row for each row of `of`."""
    ...
def nothing_happened(events: NDArray[np.int64]) -> bool:
    """Tells whether a call of sweeps counted nothing and found no fault, as nearly always.

    Parameters
    ----------
    events : (c, .., 4) int64 array
        The last of its results. Where nothing happened it is 0, 0, 0, -1 in every row.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import shrinkage
    >>> shrinkage.nothing_happened(np.array([[0, 0, 0, -1]]))
    True
    >>> shrinkage.nothing_happened(np.array([[1, 0, 0, -1]]))  # a scale was clipped
    False"""
    ...
def raise_fault(kernel: str, events: NDArray[np.int64], chain: int, client: int | str, step: int) -> None:
    """Raises NumericalError for the first row of `events` that holds a fault: 8 x sweep + quantity.

    Parameters
    ----------
    kernel : str
        Who is named.
    events : (c, .., 4) int64 array
        The last column is -1 where nothing happened.
    chain, client, step : int
        Numbers of the first chain, the client and the first sweep.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import shrinkage
    >>> from fedkern.errors import NumericalError
    >>> shrinkage.raise_fault("my_sweeps", np.array([[0, 0, 0, -1]]), chain=0, client=3, step=100)
    >>> try:
    ...     shrinkage.raise_fault("my_sweeps", np.array([[0, 0, 0, 8 * 5 + 2]]), chain=0, client=3, step=100)
    ... except NumericalError as error:
    ...     print(error)
    ...
    my_sweeps: chain 0, client 3, sweep 105: sigma^2 is not finite"""
    ...
