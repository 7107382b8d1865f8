# Written by `python tools/stubs.py` from the module and its kernels' records; a test holds it to them.
"""Moves global and local coefficients of the sparse models together."""
from typing import Any, Literal
import numpy as np
from numpy.typing import NDArray
from fedkern.errors import NumericalError
from .._checks import ABOVE_0, FRACTION, KEY, NOT_NEGATIVE, POSITIVE, WORD
from .._record import F64, Array, Kernel, Scalar, here
from .server import INTEGER
__all__ = ['move', 'move_terms']
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
