"""Computes a site's part: its coefficients, their scales and its error variance, given the global theta and tau."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkern.errors import NumericalError

from ...arrays import Floats
from .._checks import ABOVE_0, AT_LEAST_1, GAMMA_SHAPE, NOT_NEGATIVE, POSITIVE, SEED, WORD, choice_of, require
from .._docs import Given, binds, documented
from .._record import BACKENDS, F64, Array, Kernel, Out, Scalar, here, home, masked, on_host

__all__ = [
    "Sweeps",
    "bind_local_sweeps",
    "bind_local_sweeps_batched",
    "factor_of_moments",
    "gaussian_posterior_draw",
    "local_sweeps",
    "local_sweeps_batched",
    "local_sweeps_gram",
    "nothing_happened",
    "raise_fault",
]

Swept = tuple[Floats, Floats, Floats, NDArray[np.int64]]
Sweeps = Callable[..., Swept]  # (theta, tau_sq, deviation, lambda_sq, sigma_sq, step)

SCALES = {"exact": False, "expanded": True}
FORMS = {"auto": 0, "gram": 1, "data": 2}
QUANTITIES = ("lambda^2", "the coefficients", "sigma^2", "tau^2", "theta", "eta", "rho", "a quantity")

_INT64 = (np.dtype("int64"),)
_R = Array("R", ("r", "p"), F64)
_GRAM = Array("gram", ("p", "p"), F64, optional=True)


def _state(*batch: str) -> tuple[Array, ...]:
    names = ("theta", "tau_sq", "deviation", "lambda_sq")
    return (*(Array(name, (*batch, "p"), F64) for name in names), Array("sigma_sq", batch, F64))


def _new_state(*batch: str) -> tuple[Array, ...]:
    return (*_state(*batch)[2:], Array("events", (*batch, "4"), _INT64))


NAMES = (Scalar("seed", SEED), Scalar("chain", SEED, 0), Scalar("client", WORD, 0), Scalar("step", WORD, 0))
N_SWEEPS = Scalar("n_sweeps", AT_LEAST_1, 1)
EXPANDED = Scalar("expanded", choice_of(SCALES), "exact", of="scales")
SCALE_LAMBDA, SLAB = Scalar("scale_lambda", POSITIVE, 1.0), Scalar("slab", ABOVE_0, np.inf)
VARIANCE = (Scalar("shape", GAMMA_SHAPE, 2.0), Scalar("rate", POSITIVE, 1.0))  # of sigma^2 a priori
_FORM = Scalar("form", choice_of(FORMS), "auto", of="draw")
_SWEEPS = (Scalar("n", NOT_NEGATIVE), *NAMES, N_SWEEPS, EXPANDED, _FORM, SCALE_LAMBDA, *VARIANCE, SLAB)

WORDS = {
    "R": "Upper triangular (trapezoidal) factor of the centred X = Q R, r <= p; numbers below the diagonal are not read.",
    "q": "Q'y: of each chain, or (r,): the same for all.",
    "rss": "|y|^2 - |q|^2, the residual sum of squares of the least-squares fit; it is not negative.",
    "n": "Degrees of freedom of the rows: their number, less 1 if X and y are centred.",
    "theta": "Global coefficients.",
    "tau_sq": "Squared global scales, > 0.",
    "deviation": "The site's deviations from theta.",
    "lambda_sq": "The squared local scales of the deviations.",
    "sigma_sq": "The site's error variances.",
    "seed": "Names the random numbers.",
    "chain": "Names the random numbers: chain i of the call has number chain + i.",
    "client": "Names the random numbers.",
    "step": "Names the random numbers: sweep t of the call has number step + t.",
    "n_sweeps": "How many sweeps. They give the bits of as many calls of one sweep.",
    "scales": 'How lambda^2 is drawn: "exact" without auxiliary variables, "expanded" through nu.',
    "draw": '"gram": p x p systems; "data": r x r systems, where lambda tau / sigma < 1e4; "auto": the cheaper of the two.',
    "scale_lambda": "Scale of the half-Cauchy prior of lambda.",
    "shape": "Shape of the prior of sigma^2, IG(shape, rate).",
    "rate": "Rate of the prior of sigma^2, IG(shape, rate).",
    "slab": "Standard deviation of the regularised horseshoe's second factor N(deviation; 0, slab^2); inf: none.",
    "gram": "R'R, where it is at hand: saves r p^2 operations a call.",
    "events": "How many scales were clipped to [1e-60, 1e60], systems factorised again by QR, coefficients drawn in data space; "
    "-1.",
}
LOCAL_SWEEPS = Kernel(
    "shrinkage.local_sweeps",
    __name__,
    purpose="Gibbs sweeps of one site's regression: scales, coefficients, error variance.",
    source="docs/spec/sparse.md, sections 2, 3 and 11 (slab)",
    inputs=(_R, *_state("c"), Array("q", ("c", "r"), F64), Array("rss", ("c",), F64), _GRAM),
    outputs=_new_state("c"),
    scalars=_SWEEPS,
    streams=("scales", "coefficients", "variances"),
    backends=BACKENDS,
    blas=True,
    tied=("rss",),
    words=WORDS,
    example="""
        >>> R, q = np.array([[2.0, 0.5], [0.0, 1.5]]), np.array([1.0, -0.6])  # X = Q R, and Q'y
        >>> theta, ones, deviation = np.zeros((1, 2)), np.ones((1, 2)), np.full((1, 2), 0.1)  # of one chain
        >>> deviation, lambda_sq, sigma_sq, events = shrinkage.local_sweeps(
        ...     R, q, 0.8, 5.0, theta, ones, deviation, ones, np.ones(1), seed=7, n_sweeps=3
        ... )
        >>> deviation.round(3), sigma_sq.round(3)
        (array([[0.083, 0.084]]), array([0.474]))
    """,
)
LOCAL_SWEEPS_BATCHED = Kernel(
    "shrinkage.local_sweeps_batched",
    __name__,
    purpose="Gibbs sweeps of the regressions of every column on the others, all on one factor.",
    source="docs/spec/sparse.md, section 8",
    inputs=(_R, *_state("c", "p"), _GRAM),
    outputs=_new_state("c", "p"),
    scalars=_SWEEPS,
    streams=("scales", "coefficients", "variances"),
    backends=BACKENDS,
    blas=True,
    words=WORDS
    | {
        "R": "Upper triangular (trapezoidal) factor of the centred Y = Q R, r <= p; numbers below the diagonal are not read.",
        "n": "Degrees of freedom of the rows: their number, less 1 if Y is centred.",
        "theta": "Global coefficients: [chain, response, column]. The diagonal is not read.",
        "tau_sq": "Squared global scales, > 0. The diagonal is not read.",
        "deviation": "The site's deviations from theta. The diagonal becomes 0.",
        "lambda_sq": "The squared local scales of the deviations. The diagonal becomes 1.",
    },
    example="""
        >>> R = np.array([[2.0, 0.5], [0.0, 1.5]])  # Y = Q R
        >>> theta, ones, deviation = np.zeros((1, 2, 2)), np.ones((1, 2, 2)), np.full((1, 2, 2), 0.1)  # of one chain
        >>> deviation, lambda_sq, sigma_sq, events = shrinkage.local_sweeps_batched(
        ...     R, 5.0, theta, ones, deviation, ones, np.ones((1, 2)), seed=7
        ... )
        >>> deviation.round(3), sigma_sq.round(3)
        (array([[[ 0.   , -0.012],
                [-0.111,  0.   ]]]), array([[0.695, 3.089]]))
    """,
)
GAUSSIAN_POSTERIOR_DRAW = Kernel(
    "shrinkage.gaussian_posterior_draw",
    __name__,
    purpose="Draws of a linear regression's coefficients under independent normal priors.",
    source='docs/spec/sparse.md, section 3; Bhattacharya, Chakraborty and Mallick (2016) for "data"',
    inputs=(
        _R,
        Array("mean", ("c", "p"), F64),
        Array("scale", ("c", "p"), F64),
        Array("sigma_sq", ("c",), F64),
        Array("q", ("c", "r"), F64),
        _GRAM,
    ),
    outputs=(Array("deviation", ("c", "p"), F64),),
    scalars=(*NAMES, _FORM, SLAB),
    streams=("coefficients",),
    backends=BACKENDS,
    blas=True,
    words=WORDS
    | {
        "R": "Upper triangular (trapezoidal) factor of X = Q R, r <= p; numbers below the diagonal are not read.",
        "q": "Q'y: of each draw, or (r,): the same for all.",
        "mean": "Means of the prior.",
        "scale": "Standard deviations of the prior.",
        "sigma_sq": "Error variances.",
        "chain": "Names the random numbers: draw i of the call has chain number chain + i.",
        "step": "Names the random numbers.",
        "draw": '"gram": p x p systems; "data": r x r systems, where scale / sigma < 1e4; "auto": the cheaper of the two.',
        "slab": "Standard deviation of a second prior factor N(beta; mean, slab^2); inf: none.",
        "gram": "R'R, where it is at hand.",
        "deviation": "beta - mean, which stays accurate where it is small.",
    },
    example="""
        >>> R, q = np.array([[2.0, 0.5], [0.0, 1.5]]), np.array([1.0, -0.6])  # X = Q R, and Q'y
        >>> mean, scale = np.zeros((1, 2)), np.ones((1, 2))  # of the prior, of one draw
        >>> shrinkage.gaussian_posterior_draw(R, q, mean, scale, np.ones(1), seed=7).round(3)
        array([[ 1.193, -0.362]])
    """,
)


@documented(LOCAL_SWEEPS)
def local_sweeps(
    R: Floats,
    q: Floats,
    rss: Floats | float,
    n: float,
    theta: Floats,
    tau_sq: Floats,
    deviation: Floats,
    lambda_sq: Floats,
    sigma_sq: Floats,
    *,
    seed: int,
    chain: int = 0,
    client: int = 0,
    step: int = 0,
    n_sweeps: int = 1,
    scales: str = "exact",
    draw: str = "auto",
    scale_lambda: float = 1.0,
    shape: float = 2.0,
    rate: float = 1.0,
    slab: float = np.inf,
    gram: Floats | None = None,
    out: Out = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> Swept:
    """Makes Gibbs sweeps of one site's regression y = X theta_k + e, theta_k = theta + deviation, given the global theta and tau.

    A sweep draws, in this order, lambda^2 (half-Cauchy lambda; the deviations have variances lambda^2 tau^2), the deviations, and
    sigma^2 ~ IG(shape + n / 2, rate + RSS / 2). Chains are independent: several in one call give the bits of each alone.

    Raises
    ------
    NumericalError
        A draw is not finite: chain, client, sweep and quantity are named.
    """
    # A word of the counter would run over, and repeat the numbers of an early sweep.
    check_steps(LOCAL_SWEEPS, step, n_sweeps)
    _check_factor(LOCAL_SWEEPS, R)
    _check_rss(rss)
    inputs = R, theta, tau_sq, deviation, lambda_sq, sigma_sq, per_chain(q, theta, 1), per_chain(rss, theta, 0), gram
    swept: Swept = LOCAL_SWEEPS.compute(
        inputs, out, n_threads, backend, n=n, seed=seed, chain=chain, client=client, step=step, n_sweeps=n_sweeps, scales=scales,
        draw=draw, scale_lambda=scale_lambda, shape=shape, rate=rate, slab=slab,
    )  # fmt: skip
    raise_fault(LOCAL_SWEEPS.name, swept[-1], chain, client, step)
    return swept


def local_sweeps_gram(
    gram: Floats,
    xty: Floats,
    yy: float,
    n: float,
    theta: Floats,
    tau_sq: Floats,
    deviation: Floats,
    lambda_sq: Floats,
    sigma_sq: Floats,
    **options: Any,
) -> Swept:
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
    (1, 2)
    """
    R, q, rss = factor_of_moments(gram, xty, yy)
    return local_sweeps(R, q, rss, n, theta, tau_sq, deviation, lambda_sq, sigma_sq, gram=gram, **options)


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
           [ 0.   ,  1.214]]), array([0.696, 0.996]), 0.043)
    """
    p = len(gram)
    moments = np.block([[gram, xty[:, None]], [xty[None, :], np.full((1, 1), yy)]])
    # The factor of the moments of [X y] holds all three: R, then q and the root of rss in its last column.
    try:
        triangle = np.linalg.cholesky(moments).T
    except np.linalg.LinAlgError:  # singular, as with a column of zeros; or no moments at all
        values, vectors = np.linalg.eigh(moments)
        if not values[0] >= -1e-12 * values[-1]:
            raise ValueError(
                f"shrinkage.local_sweeps_gram: gram, xty, yy must be moments of columns [X y], have eigenvalue {values[0]}"
            ) from None
        triangle = np.asarray(np.linalg.qr(np.sqrt(np.maximum(values, 0))[:, None] * vectors.T, mode="r"))
    return np.ascontiguousarray(triangle[:p, :p]), triangle[:p, p].copy(), float(triangle[p, p] ** 2)


@documented(LOCAL_SWEEPS_BATCHED)
def local_sweeps_batched(
    R: Floats,
    n: float,
    theta: Floats,
    tau_sq: Floats,
    deviation: Floats,
    lambda_sq: Floats,
    sigma_sq: Floats,
    *,
    seed: int,
    chain: int = 0,
    client: int = 0,
    step: int = 0,
    n_sweeps: int = 1,
    scales: str = "exact",
    draw: str = "auto",
    scale_lambda: float = 1.0,
    shape: float = 2.0,
    rate: float = 1.0,
    slab: float = np.inf,
    gram: Floats | None = None,
    out: Out = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> Swept:
    """Makes Gibbs sweeps of the p regressions of every column of Y on the others (a Markov random field), all on one factor of Y.

    Each regression has the result of `local_sweeps` with the response's column left out, and its random numbers. Nothing p x p
    is copied for a regression. With `n_threads` > 1, limit the BLAS library to one thread.

    Raises
    ------
    NumericalError
        A draw is not finite: chain, regression, client, sweep and quantity are named.
    """
    check_steps(LOCAL_SWEEPS_BATCHED, step, n_sweeps)
    _check_factor(LOCAL_SWEEPS_BATCHED, R)
    inputs = R, theta, tau_sq, deviation, lambda_sq, sigma_sq, gram
    swept: Swept = LOCAL_SWEEPS_BATCHED.compute(
        inputs, out, n_threads, backend, n=n, seed=seed, chain=chain, client=client, step=step, n_sweeps=n_sweeps, scales=scales,
        draw=draw, scale_lambda=scale_lambda, shape=shape, rate=rate, slab=slab,
    )  # fmt: skip
    raise_fault(LOCAL_SWEEPS_BATCHED.name, swept[-1], chain, client, step)
    return swept


_VARYING = ("theta", "tau_sq", "deviation", "lambda_sq", "sigma_sq", "step")


@binds(local_sweeps, LOCAL_SWEEPS, varying=_VARYING, without=())
def bind_local_sweeps(given: Given) -> Sweeps:
    """Binds `local_sweeps` for many calls of equal sizes: (theta, tau_sq, deviation, lambda_sq, sigma_sq, step) -> its results.

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
    array([0.474])
    """
    of = given["theta"]
    _check_rss(given["rss"])
    return _bind(LOCAL_SWEEPS, given | {"q": per_chain(given["q"], of, 1), "rss": per_chain(given["rss"], of, 0)})


@binds(local_sweeps_batched, LOCAL_SWEEPS_BATCHED, varying=_VARYING, without=())
def bind_local_sweeps_batched(given: Given) -> Sweeps:
    """Binds `local_sweeps_batched` for many calls with equal sizes, as `bind_local_sweeps` does.

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
    (1, 2)
    """
    return _bind(LOCAL_SWEEPS_BATCHED, given)


def _bind(kernel: Kernel, given: Given) -> Sweeps:
    # The largest step is not known yet: each call is held to it by `last`.
    check_steps(kernel, 0, given["n_sweeps"])
    _check_factor(kernel, given["R"])
    bound = kernel.bind_given(given, _VARYING, last=2**32 - given["n_sweeps"])

    def sweeps(*now: Any) -> Swept:
        swept: Swept = bound(*now)
        if not nothing_happened(swept[-1]):
            raise_fault(kernel.name, swept[-1], given["chain"], given["client"], now[-1])
        return swept

    return sweeps


@documented(GAUSSIAN_POSTERIOR_DRAW)
def gaussian_posterior_draw(
    R: Floats,
    q: Floats,
    mean: Floats,
    scale: Floats,
    sigma_sq: Floats,
    *,
    seed: int,
    chain: int = 0,
    client: int = 0,
    step: int = 0,
    draw: str = "auto",
    slab: float = np.inf,
    gram: Floats | None = None,
    out: Out = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> Floats:
    """Returns draws of beta - mean, y = X beta + e, e ~ N(0, sigma_sq), beta ~ N(mean, diag(scale^2)).

    Raises
    ------
    NumericalError
        A draw is not finite: chain and client are named.
    """
    kernel = GAUSSIAN_POSTERIOR_DRAW
    numbers = kernel.numbers(seed=seed, chain=chain, client=client, step=step, draw=draw, slab=slab)
    q = per_chain(q, mean, 1)
    inputs = {"R": R, "mean": mean, "scale": scale, "sigma_sq": sigma_sq, "q": q, "gram": gram}
    arrays = kernel.prepare(inputs, out)
    _check_factor(kernel, R)
    kernel.call(backend, arrays, numbers, n_threads)
    deviation: Floats = arrays[-1]
    finite = on_host(np.isfinite(deviation).all(axis=1))
    if not finite.all():
        first = int(np.argmin(finite))
        raise NumericalError(f"{kernel.name}: chain {chain + first}, client {client}: the draw is not finite")
    return deviation


# --- The checks of all kernels of the family.


def check_steps(kernel: Kernel, step: int, n_sweeps: int) -> None:
    """Refuses numbers of sweeps that run over."""
    kernel.check_kinds(step=step, n_sweeps=n_sweeps)
    require(kernel.name, step + n_sweeps <= 2**32, "step + n_sweeps", "must be at most 2^32", step + n_sweeps)


def per_chain(value: Any, of: Any, ndim: int) -> Any:
    """Returns a value that is the same for all chains as a view with a row for each row of `of`."""
    # Masked arrays go to the record unchanged, which refuses them by name.
    value, of = here(value), here(of)
    if (type(value) is np.ndarray and value.ndim > ndim) or masked(value):  # of each chain already; refused by the record
        return value
    chains = len(of) if home(of) and of.ndim else 1
    if isinstance(value, int | float):
        # One number, where the chains live. (To CuPy's full_like, shape=() is no shape.)
        value = np.full_like(of, value, np.float64, shape=(1,)).reshape(()) if home(of) else np.float64(value)
    if (home(value) or isinstance(value, np.float64)) and value.ndim == ndim:
        return np.broadcast_to(value, (chains, *value.shape))
    return value


def _check_rss(rss: Any) -> None:
    """Refuses negative sums of squares. To look at those of a device would wait for it, and other objects the record refuses."""
    rss = here(rss)
    plain = type(rss) is np.ndarray and rss.dtype.kind in "fi" and rss.size
    least = rss.min() if plain else rss if isinstance(rss, int | float) else 0
    require(LOCAL_SWEEPS.name, not least < 0, "rss", "must not be negative", least)


def _check_factor(kernel: Kernel, R: Any) -> None:
    R = here(R)
    if home(R) is None or R.ndim != 2:
        return  # refused by the record
    r, p = R.shape
    require(kernel.name, r <= p, "R", "must have at most as many rows as columns", R.shape)
    require(kernel.name, p * p < 2**32, "R", "must have fewer than 65,536 columns", R.shape)


_NOTHING = np.array([0, 0, 0, -1]).tobytes()


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
    False
    """
    return type(events) is np.ndarray and events.tobytes() == _NOTHING * (events.size >> 2)


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
    my_sweeps: chain 0, client 3, sweep 105: sigma^2 is not finite
    """
    faults = on_host(events[..., -1])
    if faults.max(initial=-1) < 0:
        return
    # The first faulty chain is named; the others may have faults of the same cause.
    place = np.argwhere(faults >= 0)[0]
    first, *regression = (int(i) for i in place)
    sweep, quantity = divmod(int(faults[tuple(place)]), 8)
    where = "".join(f", regression {j}" for j in regression)
    raise NumericalError(
        f"{kernel}: chain {chain + first}{where}, client {client}, sweep {step + sweep}: {QUANTITIES[quantity]} is not finite"
    )
