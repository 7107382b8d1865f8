"""Optimises at one client: maximises F_m(q) = sum_i E_q[l_i] - KL(q || cavity) over its own rows.

Only here do rows meet the variational parameters. Coordinates are lambda = (mu, omega), omega = log sigma; under privacy only the
likelihood part is clipped and noised, and the KL part, a function of released numbers, is added outside. Source:
docs/spec/pvi.md, sections 2-5.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import Vector
from ...errors import NumericalError
from ...kernels import glm, homes, rng
from ...kernels.bound import Bound
from ...kernels.families import FAMILIES
from ...kernels.homes import on_host
from ...models import expfam
from ...models.expfam import Gaussian, unpack
from ...models.glm import Rows
from ...privacy.accountant import LEAST_CLIP, Mechanism
from ...privacy.noise import Source
from ..core.optim import OPTIMISERS
from ..exchanges.arrival import AskSlope
from .messages import SHARDED, BoxOfQ, Settings
from .noise_aware import Design

OMEGA_BOUND = 20.0
FALL = 10.0  # times the bound before an update, which it may lose in it
LARGEST = 1e100  # of h, P and mean where a failure must not show: products of two, and sums of their squares, are finite


@dataclass(frozen=True)
class Local:
    """Holds the part of a client that stays the same over its life."""

    # rows, settings: the data and the job's numbers
    rows: Rows
    settings: Settings
    index: int  # the client's number, the third word of its random counters
    # mechanism, source: sampler, clip and noise of a private job; None without privacy
    mechanism: Mechanism | None = None
    source: Source | None = None
    row_ids: NDArray[np.uint64] | None = None  # (n,) 64-bit hashes of the rows' ids, for shards
    n_threads: int = 1  # of the kernels; no result depends on it
    design: Design | None = None  # of a job whose posterior is to contain the noise: the meaning of the noisy gradients
    tells: bool = False  # whether the client has rows enough to tell X'WX
    box: BoxOfQ | None = None  # where the server may ask, where it gets sums alone; None: everywhere
    # the seed by which rows enter a batch that is not private, if no other party may know which; None: the job's
    coins: int | None = field(default=None, repr=False)
    # the kernel's call over these rows, with this clip, which all steps share
    sums: Bound[glm.ClippedSums] = field(default_factory=Bound, init=False, repr=False, compare=False)

    def slope(self, question: AskSlope) -> tuple[Vector, Vector, int]:
        """Returns gradient and curvature at a q, and how many rows are cut off: see `slope`."""
        return slope(self.rows, self.settings, Gaussian(question.h, unpack(question.P, len(question.h))), self.n_threads)

    def __post_init__(self) -> None:
        """Refuses settings that would read rows without the clip and the noise that are being paid for."""
        if (self.mechanism is None) != (self.source is None):
            raise ValueError(f"client {self.index}: a mechanism and a noise source go together; give both, or neither")
        s = self.settings
        if self.mechanism is None or s.variant in SHARDED:  # shards clip and noise their answers themselves
            return
        if s.optimiser == "exact" or s.estimator not in ("analytic", "weight-mc", "activation-mc") or s.covariance != "diagonal":
            what = f"optimiser {s.optimiser!r}, estimator {s.estimator!r}, {s.covariance} covariance"
            raise ValueError(f"client {self.index}: {what}: has no private form; see `fedkern check`")
        if (clip := self.mechanism.clip) < LEAST_CLIP:
            raise ValueError(f"client {self.index}: a clip of {clip:g} on rows cannot be kept; at least {LEAST_CLIP:g}")


def diverges(s: Settings) -> str:
    """Returns the remedy for a local optimiser that goes astray."""
    exact = "" if s.variant == "global-vi" else ', or take optimiser = "exact"'
    remedy = f"lower algorithm.learning_rate = {s.learning_rate:g}{exact}; otherwise"
    return f"the optimiser diverges ({remedy} a response, column, offset or weight is extreme: correct it)"


WIDE = 1e3  # times the curvature where the model fits: with more, q is no place to begin an exact optimum
Seen = list[Vector]  # of each step (mu, omega, gradient of the likelihood), (4d,)


def optimise(
    local: Local,
    q: Gaussian,
    cavity: Gaussian,
    state: Vector | None,
    steps: int,
    first_step: int,
    seen: Seen | None = None,
    wide: float | None = WIDE,
) -> tuple[Gaussian, Vector | None]:
    """Returns the new q of one update, and the optimiser's state.

    Parameters
    ----------
    q : where to start
    cavity : the prior of this client's problem
    state : the optimiser's, None to begin with a fresh one
    steps, first_step : how many, and this client's own count of steps before
    seen : gets the point and gradient of every step, if it is wanted; not with a full covariance
    wide : see `exact`
    """
    if local.settings.optimiser == "exact":
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                return exact(local.rows, local.settings, q, cavity, local.n_threads, wide=wide), None
        except (np.linalg.LinAlgError, ValueError):  # ValueError is also what linear algebra says of numbers that are not finite
            raise NumericalError(f"the exact local optimum cannot be computed: {EXTREME}") from None
    if q.diagonal:
        return _diagonal_steps(local, q, cavity, state, range(first_step, first_step + steps), seen)
    return _full_steps(local, q, cavity, state, steps, first_step)


def attempt(
    local: Local, q: Gaussian, cavity: Gaussian, state: Vector | None, steps: int, first_step: int
) -> tuple[Gaussian, Vector | None]:
    """Optimises like `optimise` for rows that are seen without a clip, and shows no failure.

    It returns q itself, and the state as it was, if the optimiser fails or goes beyond all bounds, without a warning. The failure
    depends on rows, so nobody else may see it.
    """
    with np.errstate(all="ignore"):
        try:
            new, after = optimise(local, q, cavity, state, steps, first_step, wide=None)
            bounded = all(np.abs(numbers).max(initial=0) <= LARGEST for numbers in (new.h, new.P, new.mean))  # NaN is not
        except (NumericalError, ArithmeticError, ValueError):  # ValueError is also what linear algebra raises
            return q, state
    return (new, after) if bounded else (q, state)


def _diagonal_steps(
    local: Local, q: Gaussian, cavity: Gaussian, state: Vector | None, steps: range, seen: Seen | None
) -> tuple[Gaussian, Vector | None]:
    d = q.d
    optimiser = OPTIMISERS[local.settings.optimiser](local.settings.learning_rate)
    state = optimiser.init(2 * d) if state is None else state
    update = optimiser.updates(2 * d)
    gradient = gradient_of(local, cavity, seen)
    low, high = np.full(d, -OMEGA_BOUND), np.full(d, OMEGA_BOUND)  # arrays: NumPy takes its time to make one of a number
    lam = np.concatenate([q.mean, -0.5 * np.log(q.P)])
    mu, omega = lam[:d], lam[d:]
    for step in steps:
        state, change = update(state, gradient(mu, omega, step))
        lam += change
        np.maximum(omega, low, out=omega)
        np.minimum(omega, high, out=omega)
    if not np.isfinite(lam).all():
        raise NumericalError(f"local step {steps[-1]} left the finite numbers: lower learning_rate or damping")
    P = np.exp(-2 * omega)
    new = Gaussian(P * mu, P)
    if _watched(local):
        _check_ascent(local, q, new, cavity)
    return new, state


def _watched(local: Local) -> bool:
    """Tells whether steps have no bound of their own, and it may be seen that they went astray."""
    s = local.settings
    return s.optimiser == "sgd" and local.mechanism is None and not (s.by_client or s.bounded)


def _check_ascent(local: Local, q: Gaussian, new: Gaussian, cavity: Gaussian) -> None:
    """Raises NumericalError if an update has made F worse by more than all of it: no batch's noise does that."""

    def bound(q: Gaussian) -> float:
        return _expectations(local.rows, local.settings, q.mean, q.P, local.n_threads)[0] - _cross(q.mean, q.P, cavity)

    try:
        with np.errstate(all="ignore"):
            before, after = bound(q), bound(new)
    except np.linalg.LinAlgError:  # no proper Gaussian is left
        before, after = 0.0, -np.inf
    if not after >= before - FALL * (1 + abs(before)):
        raise NumericalError(f"an update made the fit much worse: {diverges(local.settings)}")


Gradient = Callable[[Vector, Vector, int], Vector]  # (mu, omega, step) -> (2d,)


def gradient_of(local: Local, cavity: Gaussian | None, seen: Seen | None = None) -> Gradient:
    """Returns a function that estimates the gradient of F: privately, from a mini-batch, or from all rows.

    Without a cavity it is the gradient of sum_i E[l_i] alone.
    """
    s, rows = local.settings, local.rows
    common = {"family": s.family, "scale": s.scale, "n_threads": local.n_threads}
    # These two draw from the whole of F; the others know the divergence from the cavity in closed form.
    if s.estimator in ("stl", "total"):
        return _sampled_gradient(local, cavity, common)
    fixed = common | {"estimator": s.estimator, "draws": s.draws, "seed": s.seed, "client": local.index}
    fixed |= {"offset": rows.offset, "weights": rows.weights}
    likelihood = _open_sums(local, fixed) if local.mechanism is None else _private_sums(local, local.mechanism, fixed)
    if cavity is None:
        return likelihood
    add_kl = _KlGradient(cavity)

    def gradient(mu: Vector, omega: Vector, step: int) -> Vector:
        g = likelihood(mu, omega, step)
        if seen is not None:
            seen.append(np.concatenate([mu, omega, g]))
        add_kl(g, mu, omega)
        return g

    return gradient


def _private_sums(local: Local, mechanism: Mechanism, fixed: dict[str, Any]) -> Gradient:
    """Returns the private gradient: secret batch, clip, exact integer sum, noise (docs/spec/pvi.md, section 4, steps 1 to 5)."""
    source, n_rows, inverse_rate = local.source, len(local.rows), np.full(mechanism.dimension, mechanism.inverse_rate)
    assert source is not None
    sums = _sums(local, clip=mechanism.clip, grid=mechanism.grid, **fixed)

    def gradient(mu: Vector, omega: Vector, step: int) -> Vector:
        batch = mechanism.draw(source, n_rows, step)  # of secret words, on the host as the noise
        g = mechanism.release(source, sums(mu, omega, batch, step), step)
        g *= inverse_rate
        return g

    return gradient


def _open_sums(local: Local, fixed: dict[str, Any]) -> Gradient:
    """Returns the gradient of all rows, or of a mini-batch scaled to all rows, with neither clip nor noise.

    Rows are finite: a row whose gradient is not has met extreme coefficients, or is extreme itself, and left out it would be
    missing from the result without a word.
    """
    s = local.settings
    seen = not (s.by_client or s.bounded)  # where whole clients are protected, or sums are all that leaves, that may not show
    batches, sums = _batches(local), _sums(local, whole=seen, clip=s.most_of_row, **fixed)

    def gradient(mu: Vector, omega: Vector, step: int) -> Vector:
        batch, inverse_rate = batches(step)
        g: Vector = sums(mu, omega, batch, step)
        g *= inverse_rate
        return g

    return gradient


def _sums(
    local: Local, whole: bool = False, **options: object
) -> Callable[[Vector, Vector, NDArray[np.int64] | None, int], np.ndarray]:
    """Returns (mu, omega, batch, step) -> the clipped sum over a client's batch, or all its rows, on the host.

    `whole`: raises NumericalError if it is not of all of them.
    """
    X, y, home = local.rows.X, local.rows.y, local.rows.home
    call: glm.ClippedSums | None = None

    def sums(mu: Vector, omega: Vector, batch: NDArray[np.int64] | None, step: int) -> np.ndarray:
        nonlocal call
        here, spread, index = home.all(mu, omega, batch)
        if call is None:
            # Another mechanism is another call, with its clip.
            call = local.sums.of(
                local.mechanism,
                lambda: glm.bind_clipped_grad_sum(X, y, here, spread, rows=index, **options),
                len(mu),
                batch is None,
            )
        total, skipped = call(here, spread, step) if batch is None else call(here, spread, index, step)
        if whole and skipped:
            raise NumericalError(f"local step {step} meets gradients that are not finite: {diverges(local.settings)}")
        host_total: np.ndarray = on_host(total)
        return host_total

    return sums


class _KlGradient:
    """Adds the gradient of -KL(q || cavity), (hc - Pc mu, 1 - Pc sigma^2): outside the clip and outside the noise."""

    def __init__(self, cavity: Gaussian) -> None:
        d = cavity.d
        self.constant = np.concatenate([cavity.h, np.ones(d)])
        self.precision = np.concatenate([cavity.P, cavity.P])
        self.point = np.empty(2 * d)  # (mu, sigma^2)
        self.mean, self.variance = self.point[:d], self.point[d:]

    def __call__(self, g: Vector, mu: Vector, omega: Vector) -> None:
        self.mean[:] = mu
        np.add(omega, omega, out=self.variance)
        np.exp(self.variance, out=self.variance)
        self.point *= self.precision
        g += self.constant
        g -= self.point


def _batches(local: Local) -> Callable[[int], tuple[NDArray[np.int64] | None, float]]:
    """Returns step -> (row indices or None for all, 1 / sampling rate), by Poisson sampling."""
    rate = local.settings.batch_rate
    if rate >= 1:
        return lambda step: (None, 1.0)
    seed = local.settings.seed if local.coins is None else local.coins
    key = rng.key(seed, "batch")

    def batch(step: int) -> tuple[NDArray[np.int64], float]:
        coins = rng.uniform(len(local.rows), key=key, client=local.index, step=step)
        return np.flatnonzero(coins < rate).astype(np.int64), 1 / rate

    return batch


def _sampled_gradient(local: Local, cavity: Gaussian | None, common: dict[str, Any]) -> Gradient:
    """Returns STL and total reparameterised gradients of the whole of F (not under privacy: docs/spec/pvi.md, section 3.4)."""
    if cavity is None:
        raise ValueError(
            f"estimator {local.settings.estimator!r} mixes likelihood and prior; global VI needs 'analytic' or a '-mc' one"
        )
    batches, s, home = _batches(local), local.settings, local.rows.home

    def gradient(mu: Vector, omega: Vector, step: int) -> Vector:
        index, inverse_rate = batches(step)
        rows = local.rows if index is None else local.rows.take(index)
        weights = home.xp.full(len(rows), inverse_rate) if rows.weights is None else rows.weights * inverse_rate
        here, spread, shift, precision = home.all(mu, omega, cavity.h, cavity.P)
        _, g_mu, g_omega = glm.elbo_grad(
            rows.X,
            rows.y,
            here,
            spread,
            seed=s.seed,
            prior_shift=shift,
            prior_precision=precision,
            draws=s.draws,
            estimator=s.estimator,
            offset=rows.offset,
            weights=weights,
            client=local.index,
            step=step,
            **common,
        )
        return np.concatenate(home.back((g_mu, g_omega)))

    return gradient


def _full_steps(
    local: Local, q: Gaussian, cavity: Gaussian, state: Vector | None, steps: int, first_step: int
) -> tuple[Gaussian, Vector | None]:
    """Takes the steps of a full covariance.

    The parameters are mu and the Cholesky factor L of the covariance, with the logarithm of its diagonal.
    """
    d, s = q.d, local.settings
    optimiser = OPTIMISERS[s.optimiser](s.learning_rate)
    rows_, columns = np.tril_indices(d)
    on_diagonal = rows_ == columns
    state = optimiser.init(d + len(rows_)) if state is None else state
    batches = _batches(local)
    estimator = s.estimator if s.estimator in ("stl", "total") else "analytic"
    mu, L, home = q.mean, q.scale_tril, local.rows.home
    shift, precision = home.all(cavity.h, cavity.P)
    for step in range(first_step, first_step + steps):
        index, inverse_rate = batches(step)
        rows = local.rows if index is None else local.rows.take(index)
        weights = home.xp.full(len(rows), inverse_rate) if rows.weights is None else rows.weights * inverse_rate
        here, factor = home.all(mu, L)
        if s.bounded:
            g_mu, g_L = _bounded_gradient(replace(rows, weights=weights), s, mu, L, cavity, local.n_threads)
        else:
            _, *gradients = glm.elbo_grad(
                rows.X,
                rows.y,
                here,
                factor,
                seed=s.seed,
                family=s.family,
                scale=s.scale,
                prior_shift=shift,
                prior_precision=precision,
                draws=s.draws,
                estimator=estimator,
                offset=rows.offset,
                weights=weights,
                client=local.index,
                step=step,
                n_threads=local.n_threads,
            )
            g_mu, g_L = home.back(gradients)
        # The free parameters are the lower triangle of L, with the logarithm of its diagonal: it stays positive.
        g = g_L[rows_, columns]
        g[on_diagonal] *= np.diag(L)  # to log L_jj
        state, change = optimiser.update(state, np.concatenate([g_mu, g]))
        mu = mu + change[:d]
        lower = L[rows_, columns]
        lower[on_diagonal] = np.exp(np.clip(np.log(lower[on_diagonal]) + change[d:][on_diagonal], -OMEGA_BOUND, OMEGA_BOUND))
        lower[~on_diagonal] += change[d:][~on_diagonal]
        L = np.zeros((d, d))
        L[rows_, columns] = lower
        if not (np.isfinite(mu).all() and np.isfinite(L).all()):
            raise NumericalError(f"local step {step} left the finite numbers: {diverges(s)}")
    P = expfam.solve(L, np.eye(d))
    new = Gaussian(P @ mu, P)
    if _watched(local):
        _check_ascent(local, q, new, cavity)
    return new, state


def _bounded_gradient(rows: Rows, s: Settings, mu: Vector, L: Vector, cavity: Gaussian, n_threads: int) -> tuple[Vector, Vector]:
    """Returns the gradient of F in mu and L, where what each row adds has a limit."""
    _, r, k = _expectations_at(rows, s, mu, L, n_threads)
    g_mu = _transposed(rows.X, r) + cavity.h - cavity.P @ mu
    return g_mu, (_curvature(rows.X, k) - cavity.P) @ L + np.diag(1 / np.diag(L))


# The exact optimum --------------------

NEAR = 1e-4  # posterior sds, and relative precision: an optimum that is not reached to this is none
PATIENCE = 5  # steps without one that ends nearer: what is left is rounding
EXTREME = "responses, columns (are they standardised?), weights, model.prior_sd or model.scale are extreme; correct them"


def extreme(s: Settings) -> str:
    """Returns the remedy for a site whose numbers are larger than any that are sent: the sum of a client's counts is one of
    them."""
    if not FAMILIES[s.family].counted:
        return EXTREME
    return f'{EXTREME}; counts that are so many and right are measurements: write their logarithms, with family = "gaussian"'


def exact(
    rows: Rows,
    s: Settings,
    q: Gaussian,
    cavity: Gaussian,
    n_threads: int = 1,
    tolerance: float = 1e-12,
    max_iterations: int = 200,
    wide: float | None = WIDE,
) -> Gaussian:
    """Returns the full-batch optimum of F, to a Newton decrement of `tolerance` (in posterior sds) and as close in precision.

    Newton steps in mu, and for the precision the fixed point P = Pc - sum_i E[l''_i] x_i x_i' (its diagonal under mean-field),
    relaxed by Aitken's rule: coordinates that separate the classes would otherwise swing between two values for ever. A step that
    lowers F is halved. F is concave in (mu, Cholesky factor) for log-concave likelihoods, so the fixed point is the optimum. A
    conjugate model takes one Cholesky factor. If rounding keeps it from the tolerance (an intercept beside all levels of a
    category, which only a weak prior tells apart), the result is the nearest point of all. It begins at q, but with the rows'
    information added if q's curvature is beyond `wide` times that; None: beyond all numbers.
    """
    mu, P = q.mean, q.P
    diagonal = cavity.diagonal
    value, r, k = _expectations(rows, s, mu, P, n_threads)
    F = value - _cross(mu, P, cavity)
    information = FAMILIES[s.family].information(on_host(rows.y), on_host(rows.y) * 0.0, s.scale, None)
    information = information if rows.weights is None else information * on_host(rows.weights)
    most = LARGEST if wide is None else wide * information.max(initial=0.0)
    if not (np.isfinite(F) and (not len(k) or float(np.abs(k).max()) <= most)):  # NaN is not
        # q is a wide prior: E exp(a) is no number there, or one whose curvature leaves nothing of the other directions.
        more = _curvature(rows.X, rows.home.put(information))
        P = P + np.diag(more) if diagonal else P + more
        value, r, k = _expectations(rows, s, mu, P, n_threads)
        F = value - _cross(mu, P, cavity)
    relaxation, before = 1.0, None
    nearest, best, since = np.inf, (mu, P, np.inf, np.inf), 0
    for _ in range(max_iterations):
        if diagonal:
            pull, H = cavity.P * mu, _curvature(rows.X, -k) + np.diag(cavity.P)
            gap, size = np.log(np.diag(H) / P), 1.0
        else:
            pull, H = cavity.P @ mu, _curvature(rows.X, -k) + cavity.P
            gap, size = H - P, np.abs(P).max()
        gradient = cavity.h - pull + _transposed(rows.X, r)
        step = expfam.solve(expfam.factor(H), gradient)
        decrement = float(np.sqrt(abs(gradient @ step)))
        away = float(np.abs(gap).max() / size)
        if max(decrement, away) < nearest:
            nearest, best, since = max(decrement, away), (mu, P, decrement, away), 0
        elif (since := since + 1) >= PATIENCE and nearest < NEAR:
            mu, P, decrement, away = best
            break
        if before is not None:
            turn = float((gap * before).sum() / (before * before).sum()) if before.any() else 0.0
            relaxation = float(np.clip(relaxation / (1 - turn), 0.2, 1.0)) if turn < 0.9 else 1.0
        before, fraction = gap, 1.0
        while True:
            new_mu = mu + fraction * step
            new_P = P * np.exp(fraction * relaxation * gap) if diagonal else P + fraction * relaxation * gap
            new_value, r, k = _expectations(rows, s, new_mu, new_P, n_threads)
            new_F = new_value - _cross(new_mu, new_P, cavity)
            # Near the optimum the values of F differ by rounding alone: there the full step is taken.
            # A tiny one is taken though it does, unless it leaps off (counts of 1e9 ask for steps of 1e9).
            leaps = not new_F >= F - (1 + abs(F)) and fraction * decrement > 1e-6
            if new_F >= F - 1e-9 * (1 + abs(F)) or (fraction < 1e-6 and not leaps):
                break
            fraction /= 2
        mu, P, F = new_mu, new_P, new_F
        if decrement < tolerance and away < tolerance:
            break
    if s.bounded and max(decrement, away) > NEAR:  # its rows decide that, so it may not show: the verdict judges the result
        mu, P, *_ = best
    elif not (np.isfinite(mu).all() and np.isfinite(P).all()):
        raise NumericalError(f"the exact local optimiser left the finite numbers: {EXTREME}")
    elif decrement > NEAR or away > NEAR:
        raise NumericalError(f"the exact local optimiser has not converged in {max_iterations} steps: {EXTREME}")
    h = P * mu if P.ndim == 1 else P @ mu
    return Gaussian(h, P)


def slope(rows: Rows, s: Settings, q: Gaussian, n_threads: int = 1, unit: float = 1.0) -> tuple[Vector, Vector, int]:
    """Returns the gradient in the mean of q of sum_i E[l_i], (d,), and X'WX, its curvature, packed, W of -E[l''_i].

    The third number counts rows that would add more than they may. `unit`: of the response in the model's numbers, in those of
    `rows`.
    """
    _, r, k = _expectations(rows, replace(s, bounded=False), q.mean, q.P, n_threads)
    less, flatter = _limited(rows, s.most_of_row, r, k, unit)
    cut = int(((less != r) | (flatter != k)).sum())
    return _transposed(rows.X, less), _curvature(rows.X, -flatter)[np.tril_indices(q.d)], cut


CHUNK = 1 << 14  # rows at a time, so that a memory map is never copied whole


def _expectations(rows: Rows, s: Settings, mu: Vector, P: Vector, n_threads: int) -> tuple[float, Vector, Vector]:
    """Returns sum_i E l_i, and E l'_i and E l''_i of every row."""
    spread = -0.5 * np.log(P) if P.ndim == 1 else expfam.scale_of(P)
    return _expectations_at(rows, s, mu, spread, n_threads)


def _expectations_at(rows: Rows, s: Settings, mu: Vector, spread: Vector, n_threads: int) -> tuple[float, Vector, Vector]:
    """Returns the same, of log standard deviations or a factor of the covariance."""
    here, spread = rows.home.all(mu, spread)
    e, r, k = glm.expectations(
        rows.X, rows.y, here, spread, family=s.family, scale=s.scale, offset=rows.offset, weights=rows.weights,
        n_threads=n_threads,
    )  # fmt: skip
    return float(e.sum()), *_limited(rows, s.most_of_row, r, k)


def _limited(rows: Rows, most: float, r: Vector, k: Vector, unit: float = 1.0) -> tuple[Vector, Vector]:
    """Returns derivatives of rows, less where a row would add more than `most` to a number; 0 where there is none."""
    if most == np.inf:
        return r, k
    xp, largest = rows.home.xp, rows.largest
    with np.errstate(divide="ignore"):
        by_row, by_square = most * unit / largest, most / largest**2
    return xp.clip(xp.nan_to_num(r), -by_row, by_row), xp.clip(xp.nan_to_num(k), -by_square, by_square)


def _cross(mu: Vector, P: Vector, cavity: Gaussian) -> float:
    """Returns KL(q || cavity) up to a constant; the cavity need only be positive."""
    if P.ndim == 1:
        return float((0.5 * cavity.P * (1 / P + mu * mu) - cavity.h * mu + 0.5 * np.log(P)).sum())
    factor = np.asarray(np.linalg.cholesky(P), np.float64)
    trace = float(expfam.solve(factor, cavity.P).trace())
    return 0.5 * trace + 0.5 * float(mu @ cavity.P @ mu) - float(cavity.h @ mu) + float(np.log(np.diag(factor)).sum())


def _transposed(X: Vector, r: Vector) -> Vector:
    xp, total = homes.of(X).xp, np.zeros(X.shape[1])
    for i in range(0, len(X), CHUNK):
        total += on_host(r[i : i + CHUNK] @ xp.asarray(X[i : i + CHUNK], np.float64))
    return total


def _curvature(X: Vector, w: Vector) -> Vector:
    """Returns X' diag(w) X."""
    xp, total = homes.of(X).xp, np.zeros((X.shape[1], X.shape[1]))
    for i in range(0, len(X), CHUNK):
        part = xp.asarray(X[i : i + CHUNK], np.float64)
        total += on_host(part.T @ (w[i : i + CHUNK, None] * part))
    return total
