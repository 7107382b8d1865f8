"""Converts and checks arguments in nopython code as the public functions do: the lines of `_overloads.PUBLIC` call these.

A function that depends on types is an `overload` of a name that Python never calls; the others are compiled as they are.
"""

import numpy as np
from numba import types
from numba.core.errors import TypingError
from numba.extending import overload

from fedkern.errors import NumericalError

from .. import families
from .. import rng as public_rng
from ._jit import EXACT, prepares
from .rng import stream_key
from .shrinkage.rows import cholesky

LIMIT = 2**32
DRAWS, NOISE = (public_rng.STREAMS[name] for name in ("draws", "noise"))
WITH_SCALE = tuple(f.name for f in families.RECORDS if f.dispersion is not None and f.code is not None)


def adapter(typed):
    """Makes the function that is overloaded by `typed`, under its name."""

    def called_in_python_only(*arguments):
        raise NotImplementedError

    called_in_python_only.__name__ = typed.__name__
    overload(called_in_python_only, prefer_literal=True, strict=False, jit_options=EXACT)(typed)
    return called_in_python_only


def is_none(given):
    return given is None or isinstance(given, types.NoneType) or (isinstance(given, types.Omitted) and given.value is None)


# --- random numbers


@prepares
def check_counter(n, key, client, step, draw, first_item, per_block):
    if n < 0:
        raise ValueError("rng: size must be >= 0")
    if key < 0:
        raise ValueError("rng: key must be in [0, 2^64); rng.key() makes one")
    blocks = max((n + per_block - 1) // per_block, 1)
    if not (0 <= client < LIMIT and 0 <= step < LIMIT and 0 <= draw < LIMIT and 0 <= first_item <= LIMIT - blocks):
        raise ValueError("rng: the counter is exhausted: client, step, draw and all items must be in [0, 2^32); take another key")


@adapter
def length_of(n, first, second):
    """How many numbers: the length of the first array, or n."""
    if isinstance(first, types.Array):
        return lambda n, first, second: first.size
    if isinstance(second, types.Array):
        return lambda n, first, second: second.size
    if is_none(n):
        raise TypingError("rng: size must be given where no array says it")
    return lambda n, first, second: np.int64(n)


@adapter
def spread(n, value):
    """A number as an array of n; an array stays."""
    if isinstance(value, types.Number):
        return lambda n, value: np.full(max(n, 0), np.float64(value))
    return lambda n, value: value


def key(seed, stream="user", chain=0):
    """Types `rng.key`, whose stream is a text that is known when it is compiled."""
    name = getattr(stream, "literal_value", getattr(stream, "value", stream))
    if not isinstance(name, str):
        raise TypingError("rng.key: in nopython code stream must be a literal text")
    streams = public_rng.streams()  # with those that are registered by now
    if name not in streams:
        raise TypingError(f"rng.key: no stream {name!r}; there are {', '.join(streams)}")
    number = streams[name]

    def make_key(seed, stream="user", chain=0):
        return key_of(seed, chain, number)

    return make_key


@prepares
def key_of(seed, chain, number):
    if seed < 0 or chain < 0:
        raise ValueError("rng.key: seed and chain must be in [0, 2^64)")
    return stream_key(np.uint64(seed), number, np.uint64(chain))


# --- generalised linear models


@prepares
def check_scale(family, scale):
    if scale != 1.0:
        has = False
        for name in WITH_SCALE:
            has = has or family == name
        if not has:
            raise ValueError("glm: scale must be 1 for a family that has no dispersion")


@adapter
def draws_key(random, seed, chain):
    if not is_none(seed):
        return lambda random, seed, chain: key_of(seed, chain, DRAWS)

    def check(random, seed, chain):
        if random:
            raise ValueError("glm: draws and noise need a seed")
        return np.uint64(0)

    return check


@adapter
def check_clipped(clip, noise_multiplier, grid):
    has_grid = not is_none(grid)

    def check(clip, noise_multiplier, grid):
        if noise_multiplier != 0.0 and (has_grid or not (noise_multiplier > 0.0 and clip * noise_multiplier < np.inf)):
            raise ValueError("glm.clipped_grad_sum: noise_multiplier must be >= 0, and needs a finite clip and no grid")

    def check_grid(clip, noise_multiplier, grid):
        check_noise(clip, noise_multiplier, grid)
        if not (grid > 0.0 and clip / grid <= 2.0**40):
            raise ValueError("glm.clipped_grad_sum: grid must be > 0 and at least clip / 2^40")

    check_noise = prepares(check)
    return check_grid if has_grid else check


@adapter
def check_estimator(estimator, log_sigma):
    if log_sigma.ndim != 2:
        return lambda estimator, log_sigma: None

    def check(estimator, log_sigma):
        if estimator != "analytic":
            raise ValueError("glm.clipped_grad_sum: estimator must be 'analytic' for a full-rank posterior")

    return check


@adapter
def spread_out(value, mu):
    """A number as a vector like mu; an array stays."""
    if isinstance(value, types.Number):
        return lambda value, mu: np.full(mu.size, np.float64(value))
    return lambda value, mu: value


@adapter
def precision_of(value, mu, log_sigma):
    """A number or a diagonal as the prior's precision has it: a vector, or for a factor L a matrix."""
    full = log_sigma.ndim == 2
    if full and isinstance(value, types.Array) and value.ndim == 1:
        return lambda value, mu, log_sigma: np.diag(value)
    if full and isinstance(value, types.Number):
        return lambda value, mu, log_sigma: np.diag(np.full(mu.size, np.float64(value)))
    if isinstance(value, types.Number):
        return lambda value, mu, log_sigma: np.full(mu.size, np.float64(value))
    return lambda value, mu, log_sigma: value


@prepares
def log_normaliser(shift, precision, factor):
    """The logarithm of the constant that makes exp(h'theta - theta' P theta / 2) a density; 0 if P is not positive definite."""
    d = shift.size
    if precision.shape != (d, d) or factor.shape != (d, d):
        raise ValueError("glm.elbo_grad: prior_shift, prior_precision and log_sigma must be of d, (d, d) and (d, d) numbers")
    for j in range(d):
        if not factor[j, j] > 0.0:
            raise ValueError("glm.elbo_grad: log_sigma must be a lower Cholesky factor with a positive diagonal")
    A, total = np.empty((d, d)), 0.0
    A[:, :] = precision
    if not cholesky(A):
        return 0.0
    whitened = np.empty(d)
    for j in range(d):
        whitened[j] = shift[j]
        for k in range(j):
            whitened[j] -= A[j, k] * whitened[k]
        whitened[j] /= A[j, j]
        total += np.log(A[j, j]) - 0.5 * np.log(2.0 * np.pi) - 0.5 * whitened[j] * whitened[j]
    return total


# --- structural equation models


@adapter
def by_chain(Y, state):
    """Rows that all chains share, as an array of stride 0 over chains."""
    if isinstance(Y, types.Array) and Y.ndim == 2:
        return lambda Y, state: np.broadcast_to(Y, (state.shape[0], Y.shape[0], Y.shape[1]))
    return lambda Y, state: Y


@prepares
def check_model(Y, temperature):
    _, p, n = Y.shape
    if p == 0 or n == 0 or p * max(n, p + 1) >= LIMIT:
        raise ValueError("sem.sweeps: Y must have at least one variable and one row, and p n < 2^32")
    for t in temperature:
        if not 0.0 < t < np.inf:
            raise ValueError("sem.sweeps: temperature must be > 0 and finite")


@adapter
def update_of(update, Y):
    """The update that "auto" stands for."""
    from ..sem import ROW_GIBBS_ROWS as MOST_ROWS
    from ..sem import ROW_GIBBS_VARIABLES as MOST_VARIABLES

    if isinstance(update, types.StringLiteral) and update.literal_value != "auto":
        text = update.literal_value
        return lambda update, Y: text

    def choose(update, Y):
        if update != "auto":
            return update
        return "row-gibbs" if Y.shape[2] <= MOST_ROWS and Y.shape[1] <= MOST_VARIABLES else "element"

    return choose


# --- sparse models


@prepares
def check_steps(step, n_sweeps):
    if step + n_sweeps > LIMIT:
        raise ValueError("shrinkage: step + n_sweeps must be at most 2^32")


@prepares
def check_factor(R):
    r, p = R.shape
    if r > p or p * p >= LIMIT:
        raise ValueError("shrinkage: R must have at most as many rows as columns, and fewer than 65,536 columns")


@adapter
def per_chain(value, of):
    """A vector that is the same for all chains, as a view with a row for each."""
    if isinstance(value, types.Array) and value.ndim == 1:
        return lambda value, of: np.broadcast_to(value, (of.shape[0], value.shape[0]))
    return lambda value, of: value


@prepares
def check_passes(n_passes, scales):
    if n_passes < 1 or n_passes >= LIMIT or (scales == "expanded" and n_passes > 1):
        raise ValueError("shrinkage.global_sweep: n_passes must be >= 1 and below 2^32, and 1 with expanded scales")


@prepares
def check_server(m, g, p, indicators, step, n_passes):
    if m < 1:
        raise ValueError("shrinkage: the server's sweep needs at least one client")
    for i in indicators.flat:
        if i < -2 or i >= p:
            raise ValueError("shrinkage: indicators must be -2, -1 or in [0, p)")
    if not (0 <= step <= LIMIT - n_passes and m * g * p < LIMIT and 2 * g < LIMIT):
        raise ValueError("shrinkage: the counter is exhausted: too many passes, clients, regressions or coefficients")


@prepares
def check_sums(sums, slab):
    wanted = 4 if slab < np.inf else 3
    if sums.shape[0] != wanted:
        raise ValueError("shrinkage.global_sweep_sums: sums must be 3, or 4 with a slab")


@prepares
def check_block(block, theta):
    p = theta.shape[1]
    seen = np.zeros(2 * p, np.bool_)
    for j in block:
        if j < 0 or j >= 2 * p or seen[j]:
            raise ValueError("shrinkage: block must hold different numbers in [0, 2p)")
        seen[j] = True


@prepares
def check_binary(y):
    for value in y.flat:
        if value != 0.0 and value != 1.0:
            raise ValueError("shrinkage.logistic_sweeps: y must be 0 or 1")


@adapter
def check_patterns(patterns, X):
    if is_none(patterns):
        raise TypingError(
            "shrinkage.imputed_sweeps: in nopython code patterns must be given: shrinkage.missing_patterns(X, psi), from Python"
        )

    def check(patterns, X):
        n, p = X.shape
        k = patterns.K.shape[0]
        if n == 0 or n * (p // 2 + 1) >= LIMIT:
            raise ValueError("shrinkage.imputed_sweeps: X must have rows, and fewer than 2^32 values")
        if (
            patterns.of_row.size != n
            or patterns.K.shape != (k, p, p)
            or patterns.L.shape != (k, p, p)
            or patterns.shift.shape != (k, p)
        ):
            raise ValueError("shrinkage.imputed_sweeps: patterns must be those of X")
        for i in range(n):
            if patterns.of_row[i] >= k:
                raise ValueError("shrinkage.imputed_sweeps: patterns must be those of X")

    return check


@prepares
def raise_fault(events):
    """Refuses a state with a fault: its quantity and sweep stand in the events of the backend's function."""
    last = events.shape[-1] - 1 if events.shape[-1] == 6 else 3
    for row in events.reshape(-1, events.shape[-1]):
        if row[last] >= 0:
            raise NumericalError("a draw is not finite: an input is not finite, or out of proportion")


@prepares
def raise_unless_finite(draws):
    for value in draws.flat:
        if not np.isfinite(value):
            raise NumericalError("a draw is not finite: an input is not finite, or out of proportion")
