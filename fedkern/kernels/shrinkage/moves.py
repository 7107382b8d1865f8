"""Moves global and local coefficients of the sparse models together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedkern.errors import NumericalError

from .._checks import ABOVE_0, FRACTION, KEY, NOT_NEGATIVE, POSITIVE, WORD
from .._docs import documented
from .._record import F64, Array, Kernel, Scalar, here
from .server import INTEGER

__all__ = ["move", "move_terms"]

CHAINS = ("c", "p")
BLOCK = Array("block", ("w",), INTEGER)
TERMS = (Array("gradient", ("c", "w"), F64), Array("precision", ("c", "w", "w"), F64))

_WORDS = {
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
    words=_WORDS
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
    words=_WORDS
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
