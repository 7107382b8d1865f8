"""Cyclic structural equation model of one site, y = Theta y + e with Laplace errors: sweeps of its sampler, and its
likelihood."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Floats
from ..errors import NumericalError
from ._checks import AT_LEAST_1, GAMMA_SHAPE, POSITIVE, SEED, SWITCH, WORD, Domain, Together, choice_of
from ._docs import documented
from ._record import BACKENDS, F64, Array, Kernel, Out, Scalar, here, home, masked, on_host

__all__ = ["log_density", "sweeps"]

UPDATES = ("row-gibbs", "element", "row")
SCALES = ("exact", "expanded")
# update = "auto" takes row Gibbs up to so many rows and variables, element moves beyond. Row Gibbs gives 1.5 to 3 times as many
# effective draws a sweep, at 4 to 7 times the price: 0.8, 0.8, 0.5, 0.6 times as many a second at p = 4, 11, 30, 50 and n = 227,
# 0.3 at n = 1000, but 1.3 and 2.4 at p = 4, 11 and n = 40 (0.7 at p = 30). Measured by benchmarks/benchmarks/bench_sem.py.
ROW_GIBBS_ROWS, ROW_GIBBS_VARIABLES = 50, 16
QUANTITIES = {
    0: "lambda^2 is not finite",
    1: "a coefficient is not finite",
    2: "b is not finite",
    7: "det(I - Theta) is 0 or not finite",
}
LIMIT = 2**32

_MATRIX = ("c", "p", "p")
_STATE = (
    Array("deviation", _MATRIX, F64),
    Array("lambda_sq", _MATRIX, F64),
    Array("b", ("c", "p"), F64),
    Array("log_step", _MATRIX, F64),
)


_WORDS = {
    "Y": "Or (p, n): the same for all chains. Row j holds the n values of variable j.",
    "b": "Scales of the Laplace errors, > 0.",
}


def _one_of(*names: str) -> str:
    return f"must be one of {', '.join(names)}"


_UPDATE = choice_of({name: code for code, name in enumerate(UPDATES)}, _one_of("auto", *UPDATES))  # "auto" is one of the others

SWEEPS = Kernel(
    "sem.sweeps",
    __name__,
    purpose="Sweeps of the sampler of one site of a cyclic structural equation model, for several chains.",
    source="docs/spec/sparse.md, sections 2, 9 and 10",
    inputs=(
        Array("Y", ("c", "p", "n"), F64),
        Array("theta", _MATRIX, F64),
        Array("tau_sq", _MATRIX, F64),
        *_STATE,
        Array("temperature", ("c",), F64),
    ),
    outputs=(*_STATE, Array("loglik", ("c",), F64), Array("events", ("c", "6"), (np.dtype("int64"),))),
    scalars=(
        Scalar("seed", SEED),
        Scalar("chain", Domain("must be in [0, 2^63)", "0 <= x < 2**63", "index(x)"), 0),
        Scalar("client", WORD, 0),
        Scalar("step", WORD, 0),
        Scalar("n_sweeps", AT_LEAST_1, 1),
        Scalar("update", _UPDATE, "auto"),
        Scalar("swap", SWITCH, True),
        Scalar("stable", SWITCH, False),
        Scalar("adapt", SWITCH, False),
        Scalar("expanded", choice_of({"exact": False, "expanded": True}, _one_of(*SCALES)), "exact", of="scales"),
        Scalar("scale_lambda", POSITIVE, 1.0),
        Scalar("shape", GAMMA_SHAPE, 2.0),
        Scalar("rate", POSITIVE, 1.0),
    ),
    together=(
        Together(
            ("n_sweeps", "step", "client", "seed", "chain"),
            "n_sweeps >= 1, 0 <= step <= 2^32 - n_sweeps, 0 <= client < 2^32, 0 <= seed < 2^64 and chain >= 0",
            "step + n_sweeps <= 2**32",
        ),
    ),
    streams=("scales", "coefficients", "variances", "proposals", "augmentation"),
    backends=BACKENDS,
    words=_WORDS
    | {
        "Y": f"{_WORDS['Y'][:-1]}, centred.",
        "theta": "Global coefficients: [j, h] is the effect of h on j. The diagonal is not read, here and below.",
        "tau_sq": "The global coefficients' squared scales.",
        "deviation": "The site's coefficients less the global ones.",
        "lambda_sq": "The squared local scales of the deviations.",
        "log_step": "Logarithms of the step sizes of the element moves, in units of a coefficient's approximate conditional "
        "standard deviation; the diagonal belongs to the row moves. 0 everywhere is a good start.",
        "temperature": "The power of the likelihood, > 0 and finite: 1 for the posterior.",
        "seed": "Names the random numbers.",
        "chain": "Names the random numbers: chain i of the call has number chain + i.",
        "client": "Names the random numbers.",
        "step": "Names the random numbers: sweep t has the step word step + t.",
        "n_sweeps": "How many sweeps.",
        "update": '"element": Metropolis, one coefficient at a time. "row": Metropolis, a row at a time. "row-gibbs": a row at a '
        'time from its conditional given the augmented errors, then "element". "auto": "row-gibbs" for at most 50 rows and 16 '
        'variables, otherwise "element".',
        "swap": "Whether to propose the exchange of two equations, which leaves the likelihood as it is.",
        "stable": "Refuses coefficients whose spectral radius is not below 1. The given ones must be stable.",
        "adapt": "Moves log_step towards an acceptance of 0.44, by (step + 1)^-0.6 times the difference: in burn-in only.",
        "scales": "How lambda^2 is drawn.",
        "scale_lambda": "lambda ~ C+(0, scale_lambda).",
        "shape": "b ~ IG(shape, rate).",
        "rate": "b ~ IG(shape, rate).",
        "loglik": "Log-likelihood at the new state, not tempered.",
        "events": "Scales clipped, moves accepted and proposed (elements or rows), swaps accepted, inverses made anew because a "
        "determinant fell to less than a thousandth, and -1.",
    },
    example="""
        >>> Y = np.array([[0.5, -1.0, 0.5], [1.0, -0.5, -0.5]])  # two variables, three rows, centred
        >>> zeros, ones, deviation = np.zeros((1, 2, 2)), np.ones((1, 2, 2)), np.full((1, 2, 2), 0.1)  # of one chain
        >>> deviation, lambda_sq, b, log_step, loglik, events = sem.sweeps(
        ...     Y, zeros, ones, deviation, ones, np.ones((1, 2)), zeros, np.ones(1), seed=7, n_sweeps=3
        ... )
        >>> deviation.shape, b.round(3)
        ((1, 2, 2), array([[0.573, 0.615]]))
    """,
)

LOG_DENSITY = Kernel(
    "sem.log_density",
    __name__,
    purpose="Log-likelihood of a cyclic structural equation model with Laplace errors.",
    source="docs/spec/sparse.md, section 9",
    inputs=(Array("Y", ("c", "p", "n"), F64), Array("coefficients", _MATRIX, F64), Array("b", ("c", "p"), F64)),
    outputs=(Array("loglik", ("c",), F64),),
    backends=BACKENDS,
    words=_WORDS
    | {
        "coefficients": "Theta: [j, h] is the effect of h on j. The diagonal is not read.",
        "loglik": "n log|det(I - Theta)| - sum_j (n log(2 b_j) + sum_i |e_ij| / b_j); -inf where the determinant is 0.",
    },
    example="""
        >>> Y = np.array([[0.5, -1.0, 0.2], [1.0, -0.5, 0.3]])  # two variables, three rows
        >>> coefficients = np.array([[[0.0, 0.4], [0.3, 0.0]]])  # of one chain: [0, 1] is the effect of variable 1 on variable 0
        >>> sem.log_density(Y, coefficients, np.ones((1, 2))).round(3)
        array([-6.812])
    """,
)


@documented(LOG_DENSITY)
def log_density(
    Y: Floats, coefficients: Floats, b: Floats, *, out: Floats | None = None, n_threads: int = 1, backend: str | None = None
) -> Floats:
    """Returns the log-likelihood of y = Theta y + e, e_j Laplace of scale b_j, for each chain."""
    loglik: Floats
    (loglik,) = LOG_DENSITY.compute((_by_chain(Y, coefficients), coefficients, b), out, n_threads, backend)
    return loglik


@documented(SWEEPS)
def sweeps(
    Y: Floats,
    theta: Floats,
    tau_sq: Floats,
    deviation: Floats,
    lambda_sq: Floats,
    b: Floats,
    log_step: Floats,
    temperature: Floats,
    *,
    seed: int,
    chain: int = 0,
    client: int = 0,
    step: int = 0,
    n_sweeps: int = 1,
    update: str = "auto",
    swap: bool = True,
    stable: bool = False,
    adapt: bool = False,
    scales: str = "exact",
    scale_lambda: float = 1.0,
    shape: float = 2.0,
    rate: float = 1.0,
    out: Out = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> tuple[Floats, Floats, Floats, Floats, Floats, NDArray[np.int64]]:
    """Makes sweeps over the variables of one site: scales lambda^2, coefficients theta + deviation, scales b of the Laplace
    errors.

    A sweep is: lambda^2; the coefficients by `update`; a swap of two rows; after "row-gibbs" all elements once more; b. The
    inverse of I - Theta and the residuals are made anew for every sweep, so that two calls give the bits of one.

    Raises
    ------
    NumericalError
        A draw that is not finite, or det(I - Theta) = 0 at the start of a sweep: chain, client, sweep and quantity are named.
    """
    arrays = SWEEPS.prepare(
        {
            "Y": _by_chain(Y, deviation), "theta": theta, "tau_sq": tau_sq, "deviation": deviation, "lambda_sq": lambda_sq,
            "b": b, "log_step": log_step, "temperature": temperature,
        },
        out,
    )  # fmt: skip
    # The counter of random numbers has 32 bits for items: variables times rows, or pairs of variables.
    _, p, n = arrays[0].shape
    if p == 0 or n == 0 or p * max(n, p + 1) >= LIMIT:
        raise ValueError(f"sem.sweeps: Y must have at least one variable and one row, and p n < 2^32; got p = {p}, n = {n}")
    if not (0 < on_host(arrays[7]).min(initial=1) and on_host(arrays[7]).max(initial=1) < np.inf):
        raise ValueError("sem.sweeps: temperature must be > 0 and finite")
    SWEEPS.check_kinds(update=update)
    chosen = _chosen(p, n) if update == "auto" else update
    numbers = SWEEPS.numbers(
        seed=seed, chain=chain, client=client, step=step, n_sweeps=n_sweeps,
        update=chosen, swap=swap, stable=stable, adapt=adapt, scales=scales,
        scale_lambda=scale_lambda, shape=shape, rate=rate,
    )  # fmt: skip
    SWEEPS.call(backend, arrays, numbers, n_threads)
    results = arrays[8:]
    # The kernel ends a chain at its first fault and notes it in the events.
    _raise_faults(results[5], chain, client, step)
    return tuple(results)


def _chosen(p: int, n: int) -> str:
    return "row-gibbs" if n <= ROW_GIBBS_ROWS and p <= ROW_GIBBS_VARIABLES else "element"


def _by_chain(Y: Any, state: Any) -> Any:
    """Returns rows that all chains share, as an array of stride 0 over chains."""
    Y, state = here(Y), here(state)
    shared = home(Y) and not masked(Y) and Y.ndim == 2 and home(state) and state.ndim == 3
    return np.broadcast_to(Y, (len(state), *Y.shape)) if shared else Y


def _raise_faults(events: NDArray[np.int64], chain: int, client: int, step: int) -> None:
    events = on_host(events)
    for i in np.flatnonzero(events[:, 5] >= 0):
        sweep, quantity = divmod(int(events[i, 5]), 8)
        where = f"chain {chain + i}, client {client}, sweep {step + sweep}"
        raise NumericalError(f"sem.sweeps: {where}: {QUANTITIES[quantity]}")
