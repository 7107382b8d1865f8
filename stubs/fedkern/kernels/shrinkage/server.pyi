# Written by `python tools/stubs.py` from the module and its kernels' records; a test holds it to them.
"""Makes the server's sweeps of the sparse models."""
from typing import Any, Literal
from collections.abc import Callable
from typing import Any, Literal
import numpy as np
from numpy.typing import NDArray
from fedkern.errors import NumericalError
from .._checks import ABOVE_0, AT_LEAST_1, FRACTION, GAMMA_SHAPE, KEY, MADE, NOT_NEGATIVE, POSITIVE, SWITCH, WORD, choice_of
from .._record import BACKENDS, F64, Array, Kernel, Scalar, here, names
from .local import nothing_happened
__all__ = ['ServerSweeps', 'bind_global_sweep', 'global_sweep', 'global_sweep_sums', 'local_sums', 'move', 'move_terms']
INTEGER: tuple[Any, ...]
ROW: tuple[Any, ...]
STATE: tuple[Any, ...]
NEW_STATE: tuple[Any, ...]
LOCALS: tuple[Any, ...]
EVENTS: Array
STREAMS: tuple[Any, ...]
GLOBAL_SWEEP: Kernel
GLOBAL_SWEEP_SUMS: Kernel
LOCAL_SUMS: Kernel
Result = tuple[np.ndarray, ...]
ServerSweeps = Callable[..., Result]
def global_sweep(deviation: NDArray[np.float64], lambda_sq: NDArray[np.float64], indicators: NDArray[np.int64], theta: NDArray[np.float64], tau_sq: NDArray[np.float64], gamma: NDArray[np.float64], eta: NDArray[np.float64], rho: NDArray[np.float64], *, seed: int, chain: int=0, step: int=0, n_passes: int=1, scales: Literal['exact', 'expanded']='exact', order: Literal['blocked', 'printed']='blocked', eta_form: Literal['common', 'coordinate']='common', c0: float=0.01, spike_variance: float=0.0, scale_tau: float=1.0, scale_lambda: float=1.0, shape_eta: float=2.0, rate_eta: float=1.0, rho_a: float=1.0, rho_b: float=1.0, shared_rho: bool=False, slab: float=np.inf, out: Result | None=None, n_threads: int=1, backend: Literal['cpp', 'numba', 'reference'] | None=None) -> Result:
    """Makes sweeps of the server that holds the deviations and local scales of all m clients.

    Parameters
    ----------
    deviation : (m, c, g, p) float64 array
        theta_k - theta of each client, for c chains and g regressions.
    lambda_sq : (m, c, g, p) float64 array
        The squared local scales of each client.
    indicators : (g, p) int64 array
        -2: no such coefficient. -1: always included. i in [0, p): the number of its indicator in its regression; coefficients
        with the same number share it.
    theta : (c, g, p) float64 array
        The last global coefficients.
    tau_sq : (c, g, p) float64 array
        The last squared global scales.
    gamma : (c, g, p) float64 array
        The last indicators, 0 or 1; 1 of a coefficient that is always included.
    eta : (c, g, p) float64 array
        The last slab variances; a common one is the same number in a whole row.
    rho : (c, g) float64 array
        The last inclusion rates.
    seed : int, in [0, 2^64)
        Seed of the job.
    chain : int, in [0, 2^64)
        Number of the first chain.
    step : int, in [0, 2^32)
        Number of the first pass among all sweeps of the server; pass t is sweep step + t.
    n_passes : int, >= 1 and below 2^32
        Each pass after the first draws the clients' lambda from the numbers that the server has.
    scales : str, "exact" or "expanded"
        How lambda and tau are drawn; "expanded" allows one pass.
    order : str, "blocked" or "printed"
        "blocked": gamma with theta integrated out; "printed": given theta and after eta.
    eta_form : str, "common" or "coordinate"
        "common": one slab variance for each regression; "coordinate": one for each coefficient.
    c0 : float, in (0, 1)
        Spike variance over slab variance.
    spike_variance : float, >= 0 and finite
        A fixed variance of the spike in place of c0 eta; 0: none.
    scale_tau : float, > 0 and finite
        Scale of the half-Cauchy prior of tau.
    scale_lambda : float, > 0 and finite
        Scale of the half-Cauchy prior of lambda.
    shape_eta : float, > 0 and at most 1e300
        Shape of eta's inverse gamma prior.
    rate_eta : float, > 0 and finite
        Rate of eta's inverse gamma prior.
    rho_a : float, > 0 and at most 1e300
        First number of rho's beta prior.
    rho_b : float, > 0 and at most 1e300
        Second number of rho's beta prior.
    shared_rho : bool
        One rho for all regressions of a chain.
    slab : float, > 0
        Standard deviation of the regularised horseshoe's slab for the deviations; inf: none.
    out : tuple of 9 arrays, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "numba" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    new_theta : (c, g, p) float64 array
        Global coefficients.
    new_tau_sq : (c, g, p) float64 array
        Squared global scales.
    new_gamma : (c, g, p) float64 array
        Indicators.
    new_eta : (c, g, p) float64 array
        Slab variances.
    new_rho : (c, g) float64 array
        Inclusion rates.
    inclusion : (c, g, p) float64 array
        Mean over the passes of P(gamma = 1 | the rest): 1 where always included, 0 where there is no coefficient.
    moved_deviation : (m, c, g, p) float64 array
        Deviations of the same clients' coefficients from the new theta.
    new_lambda_sq : (m, c, g, p) float64 array
        The squared local scales of each client, as drawn in the last pass.
    events : (c, g, 4) int64 array
        Scales clipped to [1e-60, 1e60]; 0; 0; -1.

    Raises
    ------
    TypeError, ValueError
        Wrong types or shapes, no client, a number outside its range.
    NumericalError
        A draw that is not finite: chain, regression, sweep and quantity.

    Source: docs/spec/sparse.md, sections 2 and 4.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import shrinkage
    >>> deviation, lambda_sq = np.full((2, 1, 1, 2), 0.3), np.ones((2, 1, 1, 2))  # of two clients, one chain, one regression
    >>> indicators, theta, tau_sq = np.array([[0, 1]]), np.zeros((1, 1, 2)), np.ones((1, 1, 2))
    >>> gamma, eta, rho = np.ones((1, 1, 2)), np.ones((1, 1, 2)), np.full((1, 1), 0.5)
    >>> swept = shrinkage.global_sweep(deviation, lambda_sq, indicators, theta, tau_sq, gamma, eta, rho, seed=7)
    >>> swept[0].round(3)
    array([[[0.106, 0.088]]])"""
    ...
def bind_global_sweep(deviation: NDArray[np.float64], lambda_sq: NDArray[np.float64], indicators: NDArray[np.int64], theta: NDArray[np.float64], tau_sq: NDArray[np.float64], gamma: NDArray[np.float64], eta: NDArray[np.float64], rho: NDArray[np.float64], *, seed: int, chain: int=0, n_passes: int=1, scales: Literal['exact', 'expanded']='exact', order: Literal['blocked', 'printed']='blocked', eta_form: Literal['common', 'coordinate']='common', c0: float=0.01, spike_variance: float=0.0, scale_tau: float=1.0, scale_lambda: float=1.0, shape_eta: float=2.0, rate_eta: float=1.0, rho_a: float=1.0, rho_b: float=1.0, shared_rho: bool=False, slab: float=np.inf, n_threads: int=1, backend: Literal['cpp', 'numba', 'reference'] | None=None) -> ServerSweeps:
    """Binds `global_sweep` for many calls with equal sizes: (deviation, lambda_sq, theta, tau_sq, gamma, eta, rho, step) -> its
    results.

    Parameters
    ----------
    deviation : (m, c, g, p) float64 array
        Of any call: all have its sizes.
    lambda_sq : (m, c, g, p) float64 array
        Of any call: all have its sizes.
    indicators : (g, p) int64 array
        -2: no such coefficient. -1: always included. i in [0, p): the number of its indicator in its regression; coefficients
        with the same number share it. It is read in every call, and must stay where it is.
    theta : (c, g, p) float64 array
        Of any call: all have its sizes.
    tau_sq : (c, g, p) float64 array
        Of any call: all have its sizes.
    gamma : (c, g, p) float64 array
        Of any call: all have its sizes.
    eta : (c, g, p) float64 array
        Of any call: all have its sizes.
    rho : (c, g) float64 array
        Of any call: all have its sizes.
    seed : int, in [0, 2^64)
        Seed of the job.
    chain : int, in [0, 2^64)
        Number of the first chain.
    n_passes : int, >= 1 and below 2^32
        Each pass after the first draws the clients' lambda from the numbers that the server has.
    scales : str, "exact" or "expanded"
        How lambda and tau are drawn; "expanded" allows one pass.
    order : str, "blocked" or "printed"
        "blocked": gamma with theta integrated out; "printed": given theta and after eta.
    eta_form : str, "common" or "coordinate"
        "common": one slab variance for each regression; "coordinate": one for each coefficient.
    c0 : float, in (0, 1)
        Spike variance over slab variance.
    spike_variance : float, >= 0 and finite
        A fixed variance of the spike in place of c0 eta; 0: none.
    scale_tau : float, > 0 and finite
        Scale of the half-Cauchy prior of tau.
    scale_lambda : float, > 0 and finite
        Scale of the half-Cauchy prior of lambda.
    shape_eta : float, > 0 and at most 1e300
        Shape of eta's inverse gamma prior.
    rate_eta : float, > 0 and finite
        Rate of eta's inverse gamma prior.
    rho_a : float, > 0 and at most 1e300
        First number of rho's beta prior.
    rho_b : float, > 0 and at most 1e300
        Second number of rho's beta prior.
    shared_rho : bool
        One rho for all regressions of a chain.
    slab : float, > 0
        Standard deviation of the regularised horseshoe's slab for the deviations; inf: none.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "numba" or "reference", optional
        By default the one at home where the arrays live.

    Raises
    ------
    TypeError, ValueError
        Here, what `global_sweep` refuses; in a call, an array of another type or shape, or a bound array that has changed.

    Source: docs/spec/sparse.md, sections 2 and 4.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import shrinkage
    >>> deviation, lambda_sq = np.full((2, 1, 1, 2), 0.3), np.ones((2, 1, 1, 2))  # of two clients, one chain, one regression
    >>> state = np.zeros((1, 1, 2)), np.ones((1, 1, 2)), np.ones((1, 1, 2)), np.ones((1, 1, 2)), np.full((1, 1), 0.5)
    >>> sweep = shrinkage.bind_global_sweep(deviation, lambda_sq, np.array([[0, 1]]), *state, seed=7)
    >>> for step in range(3):
    ...     *state, inclusion, deviation, lambda_sq, events = sweep(deviation, lambda_sq, *state, step)
    ...
    >>> inclusion.shape
    (1, 1, 2)"""
    ...
def global_sweep_sums(sums: NDArray[np.float64], n_clients: int, indicators: NDArray[np.int64], theta: NDArray[np.float64], tau_sq: NDArray[np.float64], gamma: NDArray[np.float64], eta: NDArray[np.float64], rho: NDArray[np.float64], *, seed: int, chain: int=0, step: int=0, scales: Literal['exact', 'expanded']='exact', order: Literal['blocked', 'printed']='blocked', eta_form: Literal['common', 'coordinate']='common', c0: float=0.01, spike_variance: float=0.0, scale_tau: float=1.0, shape_eta: float=2.0, rate_eta: float=1.0, rho_a: float=1.0, rho_b: float=1.0, shared_rho: bool=False, slab: float=np.inf, out: Result | None=None, n_threads: int=1, backend: Literal['cpp', 'numba', 'reference'] | None=None) -> Result:
    """Makes one sweep of the server that knows only sums over its clients: the bits of `global_sweep` with one pass.

    Parameters
    ----------
    sums : (s, c, g, p) float64 array
        The results of `local_sums`, added over the clients in their order: s = 3, or 4 with a slab.
    n_clients : int, >= 1 and below 2^32
        How many clients the sums are of.
    indicators : (g, p) int64 array
        -2: no such coefficient. -1: always included. i in [0, p): the number of its indicator in its regression; coefficients
        with the same number share it.
    theta : (c, g, p) float64 array
        The last global coefficients.
    tau_sq : (c, g, p) float64 array
        The last squared global scales.
    gamma : (c, g, p) float64 array
        The last indicators, 0 or 1; 1 of a coefficient that is always included.
    eta : (c, g, p) float64 array
        The last slab variances; a common one is the same number in a whole row.
    rho : (c, g) float64 array
        The last inclusion rates.
    seed : int, in [0, 2^64)
        Seed of the job.
    chain : int, in [0, 2^64)
        Number of the first chain.
    step : int, in [0, 2^32)
        Number of the sweep.
    scales : str, "exact" or "expanded"
        How tau is drawn.
    order : str, "blocked" or "printed"
        "blocked": gamma with theta integrated out; "printed": given theta and after eta.
    eta_form : str, "common" or "coordinate"
        "common": one slab variance for each regression; "coordinate": one for each coefficient.
    c0 : float, in (0, 1)
        Spike variance over slab variance.
    spike_variance : float, >= 0 and finite
        A fixed variance of the spike in place of c0 eta; 0: none.
    scale_tau : float, > 0 and finite
        Scale of the half-Cauchy prior of tau.
    shape_eta : float, > 0 and at most 1e300
        Shape of eta's inverse gamma prior.
    rate_eta : float, > 0 and finite
        Rate of eta's inverse gamma prior.
    rho_a : float, > 0 and at most 1e300
        First number of rho's beta prior.
    rho_b : float, > 0 and at most 1e300
        Second number of rho's beta prior.
    shared_rho : bool
        One rho for all regressions of a chain.
    slab : float, > 0
        Standard deviation of the regularised horseshoe's slab for the deviations; inf: none.
    out : tuple of 7 arrays, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "numba" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    new_theta : (c, g, p) float64 array
        Global coefficients.
    new_tau_sq : (c, g, p) float64 array
        Squared global scales.
    new_gamma : (c, g, p) float64 array
        Indicators.
    new_eta : (c, g, p) float64 array
        Slab variances.
    new_rho : (c, g) float64 array
        Inclusion rates.
    inclusion : (c, g, p) float64 array
        P(gamma = 1 | the rest).
    events : (c, g, 4) int64 array
        Scales clipped to [1e-60, 1e60]; 0; 0; -1. A client's deviation is then d + old theta - new theta.

    Raises
    ------
    TypeError, ValueError
        Wrong types or shapes, no client, a number outside its range.
    NumericalError
        A draw that is not finite: chain, regression, sweep and quantity.

    Source: docs/spec/sparse.md, sections 4 and 5.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import shrinkage
    >>> deviation, lambda_sq = np.full((2, 1, 1, 2), 0.3), np.ones((2, 1, 1, 2))  # of two clients, one chain, one regression
    >>> indicators, theta, tau_sq = np.array([[0, 1]]), np.zeros((1, 1, 2)), np.ones((1, 1, 2))
    >>> gamma, eta, rho = np.ones((1, 1, 2)), np.ones((1, 1, 2)), np.full((1, 1), 0.5)
    >>> sums = sum(shrinkage.local_sums(d, l) for d, l in zip(deviation, lambda_sq))
    >>> swept = shrinkage.global_sweep_sums(sums, 2, indicators, theta, tau_sq, gamma, eta, rho, seed=7)
    >>> swept[0].round(3)
    array([[[0.106, 0.088]]])"""
    ...
def local_sums(deviation: NDArray[np.float64], lambda_sq: NDArray[np.float64], *, slab: float=np.inf, out: NDArray[np.float64] | None=None, n_threads: int=1, backend: Literal['cpp', 'numba', 'cuda', 'reference'] | None=None) -> NDArray[np.float64]:
    """Returns one client's terms of the sums that are sufficient for a sweep of the server.

    Parameters
    ----------
    deviation : (c, g, p) float64 array
        Deviations of one client.
    lambda_sq : (c, g, p) float64 array
        Squared local scales of one client.
    slab : float, > 0
        Standard deviation of the regularised horseshoe's slab for the deviations; inf: none.
    out : (s, c, g, p) float64 array, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "numba" or "cuda" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    sums : (s, c, g, p) float64 array
        1/lambda^2, d/lambda^2, d^2/lambda^2 and, with a slab, d: s = 3, or 4. Added in the order of the clients, they give the
        bits that `global_sweep` works with.

    Raises
    ------
    TypeError, ValueError
        Wrong types or shapes, a slab that is not positive.

    Source: docs/spec/sparse.md, section 5.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import shrinkage
    >>> deviation, lambda_sq = np.array([[[0.5, -1.0]]]), np.array([[[1.0, 4.0]]])  # of one chain and one regression
    >>> shrinkage.local_sums(deviation, lambda_sq)[:, 0, 0]
    array([[ 1.  ,  0.25],
           [ 0.5 , -0.25],
           [ 0.25,  0.25]])"""
    ...
QUANTITIES: tuple[Any, ...]
CHAINS: tuple[Any, ...]
BLOCK: Array
TERMS: tuple[Any, ...]
MOVE_TERMS: Kernel
MOVE: Kernel
Pair = tuple[NDArray[np.float64], NDArray[np.float64]]
def move_terms(R: NDArray[np.float64], q: NDArray[np.float64], block: NDArray[np.int64], theta: NDArray[np.float64], deviation: NDArray[np.float64], tau_sq: NDArray[np.float64], sigma_sq: NDArray[np.float64], *, slab: float=np.inf, out: Pair | None=None, n_threads: int=1, backend: Literal['cpp', 'numba', 'reference'] | None=None) -> Pair:
    """Returns one client's Z'h and Z'HZ, Z = [I, diag(d / tau)], for a block of the coordinates x = (theta, t).

    Parameters
    ----------
    R : (r, p) float64 array
        Upper triangular or trapezoidal factor of the client's centred covariates.
    q : (c, r) float64 array
        Q'y: of each chain, or (r,): the same for all.
    block : (w,) int64 array
        Different numbers in [0, 2p): j is theta_j, p + j is t_j. arange(p) is a translation, arange(2p) a whole interweaving.
    theta : (c, p) float64 array
        Global coefficients, of c chains.
    deviation : (c, p) float64 array
        The client's deviations: theta_k = theta + deviation.
    tau_sq : (c, p) float64 array
        Squared global scales.
    sigma_sq : (c,) float64 array
        The client's noise variance.
    slab : float, > 0
        Standard deviation of the regularised horseshoe's slab; its terms are in the t coordinates. inf: none.
    out : tuple of 2 arrays, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "numba" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    gradient : (c, w) float64 array
        Z'h, to be added over the clients.
    precision : (c, w, w) float64 array
        Z'HZ, to be added over the clients.

    Raises
    ------
    TypeError, ValueError
        Wrong types or shapes, a block with numbers outside [0, 2p) or with one twice.

    Source: docs/spec/sparse.md, sections 6 and 11.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import shrinkage
    >>> R, q, block = np.array([[2.0, 0.5], [0.0, 1.5]]), np.array([1.0, -0.6]), np.arange(2)  # a translation
    >>> theta, deviation, tau_sq = np.zeros((1, 2)), np.zeros((1, 2)), np.ones((1, 2))
    >>> gradient, precision = shrinkage.move_terms(R, q, block, theta, deviation, tau_sq, np.ones(1))
    >>> gradient, precision
    (array([[ 2. , -0.4]]), array([[[4. , 1. ],
            [1. , 2.5]]]))"""
    ...
def move(gradient: NDArray[np.float64], precision: NDArray[np.float64], block: NDArray[np.int64], theta: NDArray[np.float64], tau_sq: NDArray[np.float64], gamma: NDArray[np.float64], eta: NDArray[np.float64], *, seed: int, chain: int=0, step: int=0, scale_tau: float=1.0, c0: float=0.01, spike_variance: float=0.0, out: Pair | None=None, n_threads: int=1, backend: Literal['cpp', 'numba', 'reference'] | None=None) -> Pair:
    """Returns a draw of a block of x = (theta, t) with all d / tau held fixed.

    Parameters
    ----------
    gradient : (c, w) float64 array
        The gradient of `move_terms`, added over all clients.
    precision : (c, w, w) float64 array
        The precision of `move_terms`, added over all clients.
    block : (w,) int64 array
        The block of these terms.
    theta : (c, p) float64 array
        Global coefficients, of c chains.
    tau_sq : (c, p) float64 array
        Squared global scales.
    gamma : (c, p) float64 array
        Indicators; of an always included coefficient 1.
    eta : (c, p) float64 array
        Slab variances.
    seed : int, in [0, 2^64)
        Seed of the job.
    chain : int, in [0, 2^64)
        Number of the first chain.
    step : int, in [0, 2^32)
        Number of the move.
    scale_tau : float, > 0 and finite
        Scale of tau's half-Cauchy prior.
    c0 : float, in (0, 1)
        Spike variance over slab variance: as for `global_sweep`.
    spike_variance : float, >= 0 and finite
        A fixed variance of the spike in place of c0 eta, 0: none; as for `global_sweep`.
    out : tuple of 2 arrays, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "numba" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    new_theta : (c, p) float64 array
        Global coefficients.
    t : (c, p) float64 array
        tau with a sign; outside the block tau itself. A client then has d = (t / old tau) d, and tau^2 = t^2.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.
    NumericalError
        Terms that are not finite, or whose sum with the prior's is not positive definite: the chain is named.

    Source: docs/spec/sparse.md, section 6.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import shrinkage
    >>> R, q, block = np.array([[2.0, 0.5], [0.0, 1.5]]), np.array([1.0, -0.6]), np.arange(2)  # a translation
    >>> theta, deviation, tau_sq = np.zeros((1, 2)), np.zeros((1, 2)), np.ones((1, 2))
    >>> gradient, precision = shrinkage.move_terms(R, q, block, theta, deviation, tau_sq, np.ones(1))
    >>> new_theta, t = shrinkage.move(gradient, precision, block, theta, tau_sq, np.ones((1, 2)), np.ones((1, 2)), seed=7)
    >>> new_theta.round(3), t
    (array([[ 0.236, -0.125]]), array([[1., 1.]]))"""
    ...
