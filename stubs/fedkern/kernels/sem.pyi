# Written by `python tools/stubs.py` from the module and its kernels' records; a test holds it to them.
"""Cyclic structural equation model of one site, y = Theta y + e with Laplace errors: sweeps of its sampler, and its
likelihood."""
from typing import Any, Literal
from typing import Any, TypeAlias
import numpy as np
from numpy.typing import NDArray
from ..errors import NumericalError
from ._checks import AT_LEAST_1, GAMMA_SHAPE, POSITIVE, SEED, SWITCH, WORD, Domain, Together, choice_of
from ._record import BACKENDS, F64, Array, Kernel, Out, Scalar, here, home, masked, on_host
UPDATES: tuple[Any, ...]
SCALES: tuple[Any, ...]
ROW_GIBBS_ROWS: int
ROW_GIBBS_VARIABLES: int
QUANTITIES: dict[str, Any]
LIMIT: int
Floats: TypeAlias = NDArray[np.float64]
SWEEPS: Kernel
LOG_DENSITY: Kernel
def log_density(Y: Floats, coefficients: Floats, b: Floats, *, out: Floats | None=None, n_threads: int=1, backend: Literal['cpp', 'numba', 'cuda', 'reference'] | None=None) -> Floats:
    """Returns the log-likelihood of y = Theta y + e, e_j Laplace of scale b_j, for each chain.

    Parameters
    ----------
    Y : (c, p, n) float64 array
        Or (p, n): the same for all chains. Row j holds the n values of variable j.
    coefficients : (c, p, p) float64 array
        Theta: [j, h] is the effect of h on j. The diagonal is not read.
    b : (c, p) float64 array
        Scales of the Laplace errors, > 0.
    out : (c,) float64 array, optional
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "numba" or "cuda" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    loglik : (c,) float64 array
        n log|det(I - Theta)| - sum_j (n log(2 b_j) + sum_i |e_ij| / b_j); -inf where the determinant is 0.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.

    Source: docs/spec/sparse.md, section 9.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import sem
    >>> Y = np.array([[0.5, -1.0, 0.2], [1.0, -0.5, 0.3]])  # two variables, three rows
    >>> coefficients = np.array([[[0.0, 0.4], [0.3, 0.0]]])  # of one chain: [0, 1] is the effect of variable 1 on variable 0
    >>> sem.log_density(Y, coefficients, np.ones((1, 2))).round(3)
    array([-6.812])"""
    ...
def sweeps(Y: Floats, theta: Floats, tau_sq: Floats, deviation: Floats, lambda_sq: Floats, b: Floats, log_step: Floats, temperature: Floats, *, seed: int, chain: int=0, client: int=0, step: int=0, n_sweeps: int=1, update: Literal['auto', 'row-gibbs', 'element', 'row']='auto', swap: bool=True, stable: bool=False, adapt: bool=False, scales: Literal['exact', 'expanded']='exact', scale_lambda: float=1.0, shape: float=2.0, rate: float=1.0, out: Out=None, n_threads: int=1, backend: Literal['cpp', 'numba', 'cuda', 'reference'] | None=None) -> tuple[Floats, Floats, Floats, Floats, Floats, NDArray[np.int64]]:
    """Makes sweeps over the variables of one site: scales lambda^2, coefficients theta + deviation, scales b of the Laplace
    errors.

    A sweep is: lambda^2; the coefficients by `update`; a swap of two rows; after "row-gibbs" all elements once more; b. The
    inverse of I - Theta and the residuals are made anew for every sweep, so that two calls give the bits of one.

    Parameters
    ----------
    Y : (c, p, n) float64 array
        Or (p, n): the same for all chains. Row j holds the n values of variable j, centred.
    theta : (c, p, p) float64 array
        Global coefficients: [j, h] is the effect of h on j. The diagonal is not read, here and below.
    tau_sq : (c, p, p) float64 array
        The global coefficients' squared scales.
    deviation : (c, p, p) float64 array
        The site's coefficients less the global ones.
    lambda_sq : (c, p, p) float64 array
        The squared local scales of the deviations.
    b : (c, p) float64 array
        Scales of the Laplace errors, > 0.
    log_step : (c, p, p) float64 array
        Logarithms of the step sizes of the element moves, in units of a coefficient's approximate conditional standard
        deviation; the diagonal belongs to the row moves. 0 everywhere is a good start.
    temperature : (c,) float64 array
        The power of the likelihood, > 0 and finite: 1 for the posterior.
    seed : int, in [0, 2^64)
        Names the random numbers.
    chain : int, in [0, 2^63)
        Names the random numbers: chain i of the call has number chain + i.
    client : int, in [0, 2^32)
        Names the random numbers.
    step : int, in [0, 2^32)
        Names the random numbers: sweep t has the step word step + t.
    n_sweeps : int, >= 1 and below 2^32
        How many sweeps.
    update : str, one of auto, row-gibbs, element, row
        "element": Metropolis, one coefficient at a time. "row": Metropolis, a row at a time. "row-gibbs": a row at a time from
        its conditional given the augmented errors, then "element". "auto": "row-gibbs" for at most 50 rows and 16 variables,
        otherwise "element".
    swap : bool
        Whether to propose the exchange of two equations, which leaves the likelihood as it is.
    stable : bool
        Refuses coefficients whose spectral radius is not below 1. The given ones must be stable.
    adapt : bool
        Moves log_step towards an acceptance of 0.44, by (step + 1)^-0.6 times the difference: in burn-in only.
    scales : str, one of exact, expanded
        How lambda^2 is drawn.
    scale_lambda : float, > 0 and finite
        lambda ~ C+(0, scale_lambda).
    shape : float, > 0 and at most 1e300
        b ~ IG(shape, rate).
    rate : float, > 0 and finite
        b ~ IG(shape, rate).
    out : tuple of 6 arrays
        Filled and returned; never converted.
    n_threads : int
        The result does not depend on it.
    backend : "cpp" or "numba" or "cuda" or "reference", optional
        By default the one at home where the arrays live.

    Returns
    -------
    deviation : (c, p, p) float64 array
        The site's coefficients less the global ones.
    lambda_sq : (c, p, p) float64 array
        The squared local scales of the deviations.
    b : (c, p) float64 array
        Scales of the Laplace errors, > 0.
    log_step : (c, p, p) float64 array
        Logarithms of the step sizes of the element moves, in units of a coefficient's approximate conditional standard
        deviation; the diagonal belongs to the row moves. 0 everywhere is a good start.
    loglik : (c,) float64 array
        Log-likelihood at the new state, not tempered.
    events : (c, 6) int64 array
        Scales clipped, moves accepted and proposed (elements or rows), swaps accepted, inverses made anew because a
        determinant fell to less than a thousandth, and -1.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a number outside its range, an `out` that is wrong, read-only or overlaps an input.
    NumericalError
        A draw that is not finite, or det(I - Theta) = 0 at the start of a sweep: chain, client, sweep and quantity are named.

    Source: docs/spec/sparse.md, sections 2, 9 and 10.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import sem
    >>> Y = np.array([[0.5, -1.0, 0.5], [1.0, -0.5, -0.5]])  # two variables, three rows, centred
    >>> zeros, ones, deviation = np.zeros((1, 2, 2)), np.ones((1, 2, 2)), np.full((1, 2, 2), 0.1)  # of one chain
    >>> deviation, lambda_sq, b, log_step, loglik, events = sem.sweeps(
    ...     Y, zeros, ones, deviation, ones, np.ones((1, 2)), zeros, np.ones(1), seed=7, n_sweeps=3
    ... )
    >>> deviation.shape, b.round(3)
    ((1, 2, 2), array([[0.573, 0.615]]))"""
    ...
