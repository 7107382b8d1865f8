"""Makes the server's sweeps of the sparse models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedkern.errors import NumericalError

from .._checks import ABOVE_0, AT_LEAST_1, FRACTION, GAMMA_SHAPE, KEY, MADE, NOT_NEGATIVE, POSITIVE, SWITCH, WORD, choice_of
from .._docs import Given, binds, documented
from .._record import BACKENDS, F64, Array, Kernel, Scalar, here, names
from .local import nothing_happened

__all__ = ["ServerSweeps", "bind_global_sweep", "global_sweep", "global_sweep_sums", "local_sums", "move", "move_terms"]

INTEGER = (np.dtype("int64"),)
ROW = ("c", "g", "p")
STATE = (*(Array(name, ROW, F64) for name in ("theta", "tau_sq", "gamma", "eta")), Array("rho", ("c", "g"), F64))
NEW_STATE = (
    *(Array(f"new_{name}", ROW, F64) for name in ("theta", "tau_sq", "gamma", "eta")),
    Array("new_rho", ("c", "g"), F64),
    Array("inclusion", ROW, F64),
)
LOCALS = (Array("deviation", ("m", *ROW), F64), Array("lambda_sq", ("m", *ROW), F64))
EVENTS = Array("events", ("c", "g", "4"), INTEGER)
STREAMS = ("global_scales", "indicators", "effects", "variances", "rates")

# `_check` says what is wrong with the numbers of clients, passes and random numbers.
_COUNTER = (Scalar("seed", KEY), Scalar("chain", KEY, 0), Scalar("step", WORD, 0))
_SLAB = Scalar("slab", ABOVE_0, np.inf, binds=("s",))  # three sums over clients, or four with a slab


def _options(scale_lambda: Scalar) -> tuple[Scalar, ...]:
    return (
        Scalar("expanded", choice_of({"exact": False, "expanded": True}), "exact", of="scales"),
        Scalar("blocked", choice_of({"blocked": True, "printed": False}), "blocked", of="order"),
        Scalar("common", choice_of({"common": True, "coordinate": False}), "common", of="eta_form"),
        Scalar("shared_rho", SWITCH, False),
        Scalar("c0", FRACTION, 0.01),
        Scalar("spike_variance", NOT_NEGATIVE, 0.0),
        Scalar("scale_tau", POSITIVE, 1.0),
        scale_lambda,
        Scalar("shape_eta", GAMMA_SHAPE, 2.0),
        Scalar("rate_eta", POSITIVE, 1.0),
        Scalar("rho_a", GAMMA_SHAPE, 1.0),
        Scalar("rho_b", GAMMA_SHAPE, 1.0),
        _SLAB,
    )


_WORDS = {
    "deviation": "theta_k - theta of each client, for c chains and g regressions.",
    "lambda_sq": "The squared local scales of each client.",
    "sums": "The results of `local_sums`, added over the clients in their order: s = 3, or 4 with a slab.",
    "n_clients": "How many clients the sums are of.",
    "indicators": "-2: no such coefficient. -1: always included. i in [0, p): the number of its indicator in its regression; "
    "coefficients with the same number share it.",
    "theta": "The last global coefficients.",
    "tau_sq": "The last squared global scales.",
    "gamma": "The last indicators, 0 or 1; 1 of a coefficient that is always included.",
    "eta": "The last slab variances; a common one is the same number in a whole row.",
    "rho": "The last inclusion rates.",
    "seed": "Seed of the job.",
    "chain": "Number of the first chain.",
    "step": "Number of the first pass among all sweeps of the server; pass t is sweep step + t.",
    "n_passes": "Each pass after the first draws the clients' lambda from the numbers that the server has.",
    "scales": 'How lambda and tau are drawn; "expanded" allows one pass.',
    "order": '"blocked": gamma with theta integrated out; "printed": given theta and after eta.',
    "eta_form": '"common": one slab variance for each regression; "coordinate": one for each coefficient.',
    "c0": "Spike variance over slab variance.",
    "spike_variance": "A fixed variance of the spike in place of c0 eta; 0: none.",
    "scale_tau": "Scale of the half-Cauchy prior of tau.",
    "scale_lambda": "Scale of the half-Cauchy prior of lambda.",
    "shape_eta": "Shape of eta's inverse gamma prior.",
    "rate_eta": "Rate of eta's inverse gamma prior.",
    "rho_a": "First number of rho's beta prior.",
    "rho_b": "Second number of rho's beta prior.",
    "shared_rho": "One rho for all regressions of a chain.",
    "slab": "Standard deviation of the regularised horseshoe's slab for the deviations; inf: none.",
    "new_theta": "Global coefficients.",
    "new_tau_sq": "Squared global scales.",
    "new_gamma": "Indicators.",
    "new_eta": "Slab variances.",
    "new_rho": "Inclusion rates.",
    "inclusion": "Mean over the passes of P(gamma = 1 | the rest): 1 where always included, 0 where there is no coefficient.",
    "moved_deviation": "Deviations of the same clients' coefficients from the new theta.",
    "new_lambda_sq": "The squared local scales of each client, as drawn in the last pass.",
    "events": "Scales clipped to [1e-60, 1e60]; 0; 0; -1.",
}
GLOBAL_SWEEP = Kernel(
    "shrinkage.global_sweep",
    __name__,
    purpose="Sweeps of the server: global scales, indicators, global coefficients, slab variance, inclusion rate.",
    source="docs/spec/sparse.md, sections 2 and 4",
    inputs=(*LOCALS, Array("indicators", ("g", "p"), INTEGER), *STATE),
    outputs=(*NEW_STATE, Array("moved_deviation", ("m", *ROW), F64), Array("new_lambda_sq", ("m", *ROW), F64), EVENTS),
    scalars=(*_COUNTER, Scalar("n_passes", AT_LEAST_1, 1), *_options(Scalar("scale_lambda", POSITIVE, 1.0))),
    streams=("scales", *STREAMS),
    host="the server's own: p^2 numbers a round",
    tied=("indicators",),
    words=_WORDS,
    example="""
        >>> deviation, lambda_sq = np.full((2, 1, 1, 2), 0.3), np.ones((2, 1, 1, 2))  # of two clients, one chain, one regression
        >>> indicators, theta, tau_sq = np.array([[0, 1]]), np.zeros((1, 1, 2)), np.ones((1, 1, 2))
        >>> gamma, eta, rho = np.ones((1, 1, 2)), np.ones((1, 1, 2)), np.full((1, 1), 0.5)
        >>> swept = shrinkage.global_sweep(deviation, lambda_sq, indicators, theta, tau_sq, gamma, eta, rho, seed=7)
        >>> swept[0].round(3)
        array([[[0.106, 0.088]]])
    """,
)
GLOBAL_SWEEP_SUMS = Kernel(
    "shrinkage.global_sweep_sums",
    __name__,
    purpose="One sweep of the server from sums over the clients.",
    source="docs/spec/sparse.md, sections 4 and 5",
    inputs=(Array("sums", ("s", *ROW), F64), Array("indicators", ("g", "p"), INTEGER), *STATE),
    outputs=(*NEW_STATE, EVENTS),
    scalars=(Scalar("n_clients", AT_LEAST_1), *_COUNTER, *_options(Scalar("scale_lambda", MADE))),
    order=(
        *("sums", "n_clients", "indicators"),
        *names(*STATE, *_COUNTER, *_options(Scalar("scale_lambda")), *NEW_STATE, EVENTS),
        "n_threads",
    ),
    streams=STREAMS,
    host="the server's own: p^2 numbers a round",
    tied=("indicators",),
    words=_WORDS
    | {
        "step": "Number of the sweep.",
        "scales": "How tau is drawn.",
        "inclusion": "P(gamma = 1 | the rest).",
        "events": f"{_WORDS['events']} A client's deviation is then d + old theta - new theta.",
    },
    example="""
        >>> deviation, lambda_sq = np.full((2, 1, 1, 2), 0.3), np.ones((2, 1, 1, 2))  # of two clients, one chain, one regression
        >>> indicators, theta, tau_sq = np.array([[0, 1]]), np.zeros((1, 1, 2)), np.ones((1, 1, 2))
        >>> gamma, eta, rho = np.ones((1, 1, 2)), np.ones((1, 1, 2)), np.full((1, 1), 0.5)
        >>> sums = sum(shrinkage.local_sums(d, l) for d, l in zip(deviation, lambda_sq))
        >>> swept = shrinkage.global_sweep_sums(sums, 2, indicators, theta, tau_sq, gamma, eta, rho, seed=7)
        >>> swept[0].round(3)
        array([[[0.106, 0.088]]])
    """,
)
LOCAL_SUMS = Kernel(
    "shrinkage.local_sums",
    __name__,
    purpose="One client's terms of the sums that are sufficient for a sweep of the server.",
    source="docs/spec/sparse.md, section 5",
    inputs=tuple(Array(name, ROW, F64) for name in ("deviation", "lambda_sq")),
    outputs=(Array("sums", ("s", *ROW), F64),),
    scalars=(_SLAB,),
    backends=BACKENDS,
    words=_WORDS
    | {
        "deviation": "Deviations of one client.",
        "lambda_sq": "Squared local scales of one client.",
        "sums": "1/lambda^2, d/lambda^2, d^2/lambda^2 and, with a slab, d: s = 3, or 4. Added in the order of the clients, they "
        "give the bits that `global_sweep` works with.",
    },
    example="""
        >>> deviation, lambda_sq = np.array([[[0.5, -1.0]]]), np.array([[[1.0, 4.0]]])  # of one chain and one regression
        >>> shrinkage.local_sums(deviation, lambda_sq)[:, 0, 0]
        array([[ 1.  ,  0.25],
               [ 0.5 , -0.25],
               [ 0.25,  0.25]])
    """,
)

Result = tuple[np.ndarray, ...]
ServerSweeps = Callable[..., Result]


@documented(GLOBAL_SWEEP)
def global_sweep(
    deviation: NDArray[np.float64],
    lambda_sq: NDArray[np.float64],
    indicators: NDArray[np.int64],
    theta: NDArray[np.float64],
    tau_sq: NDArray[np.float64],
    gamma: NDArray[np.float64],
    eta: NDArray[np.float64],
    rho: NDArray[np.float64],
    *,
    seed: int,
    chain: int = 0,
    step: int = 0,
    n_passes: int = 1,
    scales: Literal["exact", "expanded"] = "exact",
    order: Literal["blocked", "printed"] = "blocked",
    eta_form: Literal["common", "coordinate"] = "common",
    c0: float = 0.01,
    spike_variance: float = 0.0,
    scale_tau: float = 1.0,
    scale_lambda: float = 1.0,
    shape_eta: float = 2.0,
    rate_eta: float = 1.0,
    rho_a: float = 1.0,
    rho_b: float = 1.0,
    shared_rho: bool = False,
    slab: float = np.inf,
    out: Result | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> Result:
    """Makes sweeps of the server that holds the deviations and local scales of all m clients.

    Raises
    ------
    TypeError, ValueError
        Wrong types or shapes, no client, a number outside its range.
    NumericalError
        A draw that is not finite: chain, regression, sweep and quantity.
    """
    _check_passes(n_passes, scales)
    # Any other array is refused by the record, with its shape.
    if _shaped(held := here(deviation), 4):
        m, _, g, p = held.shape
        _check(GLOBAL_SWEEP, m, g, p, here(indicators), seed, chain, step, n_passes)
    swept: Result = GLOBAL_SWEEP.compute(
        (deviation, lambda_sq, indicators, theta, tau_sq, gamma, eta, rho), out, n_threads, backend, seed=seed, chain=chain,
        step=step, n_passes=n_passes, scales=scales, order=order, eta_form=eta_form, shared_rho=shared_rho, c0=c0,
        spike_variance=spike_variance, scale_tau=scale_tau, scale_lambda=scale_lambda, shape_eta=shape_eta, rate_eta=rate_eta,
        rho_a=rho_a, rho_b=rho_b, slab=slab,
    )  # fmt: skip
    if not nothing_happened(swept[-1]):
        _raise_faults(GLOBAL_SWEEP, swept[-1], chain, step)
    return swept


_VARYING = ("deviation", "lambda_sq", "theta", "tau_sq", "gamma", "eta", "rho", "step")


@binds(global_sweep, GLOBAL_SWEEP, varying=_VARYING, without=())
def bind_global_sweep(given: Given) -> ServerSweeps:
    """Binds `global_sweep` for many calls with equal sizes: (deviation, lambda_sq, theta, tau_sq, gamma, eta, rho, step) -> its
    results.

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
    (1, 1, 2)
    """
    kernel, chain, n_passes = GLOBAL_SWEEP, given["chain"], given["n_passes"]
    if _shaped(held := here(given["deviation"]), 4):
        m, _, g, p = held.shape
        _check(kernel, m, g, p, here(given["indicators"]), given["seed"], chain, 0, n_passes)
    _check_passes(n_passes, given["scales"])
    bound = kernel.bind_given(given, _VARYING, last=2**32 - n_passes)

    def sweeps(*now: Any) -> Result:
        swept: Result = bound(*now)
        if not nothing_happened(swept[-1]):
            _raise_faults(kernel, swept[-1], chain, now[-1])
        return swept

    return sweeps


@documented(GLOBAL_SWEEP_SUMS)
def global_sweep_sums(
    sums: NDArray[np.float64],
    n_clients: int,
    indicators: NDArray[np.int64],
    theta: NDArray[np.float64],
    tau_sq: NDArray[np.float64],
    gamma: NDArray[np.float64],
    eta: NDArray[np.float64],
    rho: NDArray[np.float64],
    *,
    seed: int,
    chain: int = 0,
    step: int = 0,
    scales: Literal["exact", "expanded"] = "exact",
    order: Literal["blocked", "printed"] = "blocked",
    eta_form: Literal["common", "coordinate"] = "common",
    c0: float = 0.01,
    spike_variance: float = 0.0,
    scale_tau: float = 1.0,
    shape_eta: float = 2.0,
    rate_eta: float = 1.0,
    rho_a: float = 1.0,
    rho_b: float = 1.0,
    shared_rho: bool = False,
    slab: float = np.inf,
    out: Result | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> Result:
    """Makes one sweep of the server that knows only sums over its clients: the bits of `global_sweep` with one pass.

    Raises
    ------
    TypeError, ValueError
        Wrong types or shapes, no client, a number outside its range.
    NumericalError
        A draw that is not finite: chain, regression, sweep and quantity.
    """
    GLOBAL_SWEEP_SUMS.check_kinds(slab=slab)
    if _shaped(held := here(sums), 4):
        n_sums, _, g, p = held.shape
        if n_sums != _n_sums(slab):
            raise ValueError(f"shrinkage.global_sweep_sums: sums must be {_n_sums(slab)} with slab = {slab}, got {n_sums}")
        AT_LEAST_1.check(GLOBAL_SWEEP_SUMS.name, "n_clients", n_clients)
        _check(GLOBAL_SWEEP_SUMS, n_clients, g, p, here(indicators), seed, chain, step, 1)
    swept: Result = GLOBAL_SWEEP_SUMS.compute(
        (sums, indicators, theta, tau_sq, gamma, eta, rho), out, n_threads, backend, n_clients=n_clients, seed=seed, chain=chain,
        step=step, scales=scales, order=order, eta_form=eta_form, shared_rho=shared_rho, c0=c0, spike_variance=spike_variance,
        scale_tau=scale_tau, scale_lambda=1.0, shape_eta=shape_eta, rate_eta=rate_eta, rho_a=rho_a, rho_b=rho_b, slab=slab,
    )  # fmt: skip
    if not nothing_happened(swept[-1]):
        _raise_faults(GLOBAL_SWEEP_SUMS, swept[-1], chain, step)
    return swept


@documented(LOCAL_SUMS)
def local_sums(
    deviation: NDArray[np.float64],
    lambda_sq: NDArray[np.float64],
    *,
    slab: float = np.inf,
    out: NDArray[np.float64] | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> NDArray[np.float64]:
    """Returns one client's terms of the sums that are sufficient for a sweep of the server.

    Raises
    ------
    TypeError, ValueError
        Wrong types or shapes, a slab that is not positive.
    """
    LOCAL_SUMS.check_kinds(slab=slab)
    sums: NDArray[np.float64]
    (sums,) = LOCAL_SUMS.compute((deviation, lambda_sq), out, n_threads, backend, {"s": _n_sums(slab)}, slab=slab)
    return sums


def _n_sums(slab: float) -> int:
    return 4 if slab < np.inf else 3


def _check_passes(n_passes: int, scales: str) -> None:
    GLOBAL_SWEEP.check_kinds(n_passes=n_passes, scales=scales)
    if not 1 <= n_passes < 2**32 or (scales == "expanded" and n_passes > 1):
        wanted = ">= 1 and below 2^32, and 1 with expanded scales"
        raise ValueError(f"shrinkage.global_sweep: n_passes must be {wanted}, got {n_passes}")


def _check(
    kernel: Kernel, m: int, g: int, p: int, indicators: NDArray[np.int64], seed: int, chain: int, step: int, n_passes: int
) -> None:
    kernel.check_kinds(seed=seed, chain=chain, step=step)
    if m < 1:
        raise ValueError(f"{kernel.name}: needs at least one client")
    if _shaped(indicators, 2) and indicators.size and not (indicators.min() >= -2 and indicators.max() < p):
        raise ValueError(f"{kernel.name}: indicators must be -2, -1 or in [0, p) with p = {p}")
    if not (0 <= seed < 2**64 and 0 <= chain < 2**64):
        raise ValueError(f"{kernel.name}: seed and chain must be in [0, 2^64), got {seed} and {chain}")
    # Items of the counter are numbered by client, regression and coefficient together.
    if not (0 <= step <= 2**32 - n_passes and m * g * p < 2**32 and 2 * g < 2**32):
        raise ValueError(
            f"{kernel.name}: the counter is exhausted: step = {step} with {n_passes} passes, {m} clients, {g} regressions and "
            f"{p} coefficients; take another seed"
        )


QUANTITIES = ("lambda^2", "a coefficient", "sigma^2", "tau^2", "theta", "eta", "rho", "an inclusion probability")


def _shaped(array: object, ndim: int) -> bool:
    """Tells whether a value is an array of that many dimensions; the record refuses any other object."""
    return isinstance(array, np.ndarray) and array.ndim == ndim


def _raise_faults(kernel: Kernel, events: NDArray[np.int64], chain: int, step: int) -> None:
    faulty = np.argwhere(events[..., 3] >= 0)
    if len(faulty):
        i, r = faulty[0]
        sweep, quantity = divmod(int(events[i, r, 3]), 8)
        raise NumericalError(
            f"{kernel.name}: chain {chain + int(i)}, regression {r}: {QUANTITIES[quantity]} of the server's sweep {step + sweep} "
            "is not finite; a client sent deviations or scales that are not, or the last state is not"
        )


# Moves global and local coefficients of the sparse models together --------------------

CHAINS = ("c", "p")
BLOCK = Array("block", ("w",), INTEGER)
TERMS = (Array("gradient", ("c", "w"), F64), Array("precision", ("c", "w", "w"), F64))

_MOVE_WORDS = {
    "block": "Different numbers in [0, 2p): j is theta_j, p + j is t_j. arange(p) is a translation, arange(2p) a whole "
    "interweaving.",
    "theta": "Global coefficients, of c chains.",
    "tau_sq": "Squared global scales.",
}
MOVE_TERMS = Kernel(
    "shrinkage.move_terms",
    __name__,
    purpose="One client's second-moment terms of a translation or an interweaving move.",
    source="docs/spec/sparse.md, sections 6 and 11",
    inputs=(
        Array("R", ("r", "p"), F64),
        Array("q", ("c", "r"), F64),
        BLOCK,
        *(Array(name, CHAINS, F64) for name in ("theta", "deviation", "tau_sq")),
        Array("sigma_sq", ("c",), F64),
    ),
    outputs=TERMS,
    scalars=(Scalar("slab", ABOVE_0, np.inf),),
    host="the server's own: p^2 numbers a round",
    words=_MOVE_WORDS
    | {
        "R": "Upper triangular or trapezoidal factor of the client's centred covariates.",
        "q": "Q'y: of each chain, or (r,): the same for all.",
        "deviation": "The client's deviations: theta_k = theta + deviation.",
        "sigma_sq": "The client's noise variance.",
        "slab": "Standard deviation of the regularised horseshoe's slab; its terms are in the t coordinates. inf: none.",
        "gradient": "Z'h, to be added over the clients.",
        "precision": "Z'HZ, to be added over the clients.",
    },
    example="""
        >>> R, q, block = np.array([[2.0, 0.5], [0.0, 1.5]]), np.array([1.0, -0.6]), np.arange(2)  # a translation
        >>> theta, deviation, tau_sq = np.zeros((1, 2)), np.zeros((1, 2)), np.ones((1, 2))
        >>> gradient, precision = shrinkage.move_terms(R, q, block, theta, deviation, tau_sq, np.ones(1))
        >>> gradient, precision
        (array([[ 2. , -0.4]]), array([[[4. , 1. ],
                [1. , 2.5]]]))
    """,
)
MOVE = Kernel(
    "shrinkage.move",
    __name__,
    purpose="A joint draw of a block of global coefficients and signed scales that carries the local coefficients along.",
    source="docs/spec/sparse.md, section 6",
    inputs=(*TERMS, BLOCK, *(Array(name, CHAINS, F64) for name in ("theta", "tau_sq", "gamma", "eta"))),
    outputs=(Array("new_theta", CHAINS, F64), Array("t", CHAINS, F64)),
    scalars=(
        Scalar("seed", KEY),
        Scalar("chain", KEY, 0),
        Scalar("step", WORD, 0),
        Scalar("scale_tau", POSITIVE, 1.0),
        Scalar("c0", FRACTION, 0.01),
        Scalar("spike_variance", NOT_NEGATIVE, 0.0),
    ),
    streams=("moves",),
    blas=True,
    host="the server's own: p^2 numbers a round",
    words=_MOVE_WORDS
    | {
        "gradient": "The gradient of `move_terms`, added over all clients.",
        "precision": "The precision of `move_terms`, added over all clients.",
        "block": "The block of these terms.",
        "gamma": "Indicators; of an always included coefficient 1.",
        "eta": "Slab variances.",
        "seed": "Seed of the job.",
        "chain": "Number of the first chain.",
        "step": "Number of the move.",
        "scale_tau": "Scale of tau's half-Cauchy prior.",
        "c0": "Spike variance over slab variance: as for `global_sweep`.",
        "spike_variance": "A fixed variance of the spike in place of c0 eta, 0: none; as for `global_sweep`.",
        "new_theta": "Global coefficients.",
        "t": "tau with a sign; outside the block tau itself. A client then has d = (t / old tau) d, and tau^2 = t^2.",
    },
    example="""
        >>> R, q, block = np.array([[2.0, 0.5], [0.0, 1.5]]), np.array([1.0, -0.6]), np.arange(2)  # a translation
        >>> theta, deviation, tau_sq = np.zeros((1, 2)), np.zeros((1, 2)), np.ones((1, 2))
        >>> gradient, precision = shrinkage.move_terms(R, q, block, theta, deviation, tau_sq, np.ones(1))
        >>> new_theta, t = shrinkage.move(gradient, precision, block, theta, tau_sq, np.ones((1, 2)), np.ones((1, 2)), seed=7)
        >>> new_theta.round(3), t
        (array([[ 0.236, -0.125]]), array([[1., 1.]]))
    """,
)

Pair = tuple[NDArray[np.float64], NDArray[np.float64]]


@documented(MOVE_TERMS)
def move_terms(
    R: NDArray[np.float64],
    q: NDArray[np.float64],
    block: NDArray[np.int64],
    theta: NDArray[np.float64],
    deviation: NDArray[np.float64],
    tau_sq: NDArray[np.float64],
    sigma_sq: NDArray[np.float64],
    *,
    slab: float = np.inf,
    out: Pair | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> Pair:
    """Returns one client's Z'h and Z'HZ, Z = [I, diag(d / tau)], for a block of the coordinates x = (theta, t).

    Raises
    ------
    TypeError, ValueError
        Wrong types or shapes, a block with numbers outside [0, 2p) or with one twice.
    """
    numbers = MOVE_TERMS.numbers(slab=slab)
    # One q for all chains, as a view: the kernel takes a row for each chain.
    q, theta = here(q), here(theta)
    if type(q) is np.ndarray and q.ndim == 1 and isinstance(theta, np.ndarray):
        q = np.broadcast_to(q, (len(theta), len(q)))
    inputs = {"R": R, "q": q, "block": block, "theta": theta, "deviation": deviation, "tau_sq": tau_sq, "sigma_sq": sigma_sq}
    arrays = MOVE_TERMS.prepare(inputs, out)
    _check_block(MOVE_TERMS, here(block), theta.shape[1])
    MOVE_TERMS.call(backend, arrays, numbers, n_threads)
    return arrays[-2], arrays[-1]


@documented(MOVE)
def move(
    gradient: NDArray[np.float64],
    precision: NDArray[np.float64],
    block: NDArray[np.int64],
    theta: NDArray[np.float64],
    tau_sq: NDArray[np.float64],
    gamma: NDArray[np.float64],
    eta: NDArray[np.float64],
    *,
    seed: int,
    chain: int = 0,
    step: int = 0,
    scale_tau: float = 1.0,
    c0: float = 0.01,
    spike_variance: float = 0.0,
    out: Pair | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> Pair:
    """Returns a draw of a block of x = (theta, t) with all d / tau held fixed.

    Raises
    ------
    NumericalError
        Terms that are not finite, or whose sum with the prior's is not positive definite: the chain is named.
    """
    numbers = MOVE.numbers(seed=seed, chain=chain, step=step, scale_tau=scale_tau, c0=c0, spike_variance=spike_variance)
    state = {"theta": theta, "tau_sq": tau_sq, "gamma": gamma, "eta": eta}
    arrays = MOVE.prepare({"gradient": gradient, "precision": precision, "block": block} | state, out)
    _check_block(MOVE, here(block), here(theta).shape[1])
    if not (0 <= seed < 2**64 and 0 <= chain < 2**64 and 0 <= step < 2**32):
        raise ValueError(f"shrinkage.move: the counter is exhausted: seed = {seed}, chain = {chain}, step = {step}")
    MOVE.call(backend, arrays, numbers, n_threads)
    moved, t = arrays[-2:]
    # The compiled draw leaves NaN where its Cholesky factor failed.
    bad = np.flatnonzero(~(np.isfinite(moved).all(axis=1) & np.isfinite(t).all(axis=1)))
    if bad.size:
        raise NumericalError(
            f"shrinkage.move: chain {chain + bad[0]}, move {step}: the draw is not finite; the clients' terms are not finite, or "
            "their sum is not positive definite"
        )
    return moved, t


def _check_block(kernel: Kernel, block: NDArray[np.int64], p: int) -> None:
    if block.size and not (block.min() >= 0 and block.max() < 2 * p and len(np.unique(block)) == len(block)):
        raise ValueError(f"{kernel.name}: block must hold different numbers in [0, 2p) with p = {p}")
