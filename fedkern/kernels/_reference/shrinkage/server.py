"""Defines the server's sweeps of the sparse models: docs/spec/sparse.md, sections 2, 4 and 11."""

from dataclasses import dataclass

import numpy as np

from fedkern._core.rng import streams

from .. import rng
from .scales import clipped, global_variance, local_variance, quiet

SERVER = 2**32 - 1
LEAST_RATE = 1e-12
TAU, THETA, ETA, RHO, OTHER = 3, 4, 5, 6, 7  # quantities in a fault


@dataclass
class Options:
    """Holds the options of a server sweep, in their order in the arguments of its kernels."""

    expanded: bool
    blocked: bool
    common: bool
    shared_rho: bool
    c0: float
    spike_variance: float
    scale_tau: float
    scale_lambda: float
    shape_eta: float
    rate_eta: float
    rho_a: float
    rho_b: float
    slab: float


def key(seed, stream, chain):
    return rng.key(seed, streams()[stream], chain)


def gamma(shape, item, step, key):
    value = np.empty(len(item))
    for e, i in enumerate(item):
        rng.gamma(shape[e : e + 1], key, SERVER, step, int(i), value[e : e + 1], 1)
    return value


# ---- One sweep of one regression.


def local_sums_of(deviation, lambda_sq, slab):
    """Returns S0, S1, S2 and, with a slab, S3 of one client."""
    precision = 1 / lambda_sq
    first = deviation * precision
    return np.stack([precision, first, deviation * first] + [deviation] * int(slab < np.inf))


class Row:
    """Holds the state of one regression at the server. `active` are the coefficients that exist; all arrays hold these only."""

    def __init__(self, number, kinds, theta, tau_sq, gamma, eta):
        self.number, self.first_item = number, number * len(kinds)
        self.active = np.flatnonzero(kinds > -2)
        self.kinds = kinds[self.active]
        self.item = (self.first_item + self.active).astype(np.uint64)
        self.theta, self.tau_sq, self.gamma, self.eta = (a[self.active] for a in (theta, tau_sq, gamma, eta))
        self.gamma = np.where(self.kinds == -1, 1.0, self.gamma)
        self.numbers = np.unique(self.kinds[self.kinds >= 0])  # of the indicators
        self.clips = 0

    def spike(self, o):
        return o.spike_variance if o.spike_variance > 0 else o.c0 * self.eta

    def draw_tau(self, S2, n_clients, o, step, keys):
        square = global_variance(
            0.5 * S2, n_clients, self.tau_sq, o.scale_tau, o.expanded, self.item, SERVER, step, keys["global_scales"]
        )
        self.tau_sq, outside = clipped(square)
        self.clips += outside.sum()

    def sum_up(self, sums, n_clients, o):
        """Computes W and W mhat of section 4, with the tau just drawn."""
        self.W = sums[0] / self.tau_sq
        shift = sums[1] / self.tau_sq
        if np.isfinite(o.slab):
            self.W = self.W + n_clients / o.slab**2
            shift = shift + sums[3] / o.slab**2
        self.mhat = self.theta + shift / self.W

    def draw_gamma(self, rho, log_ratio, step, keys):
        """Draws each indicator from the sum of its coefficients' log ratios. Returns the probabilities."""
        inclusion = np.ones(self.kinds.shape)
        for number in self.numbers:
            members = self.kinds == number
            logit = np.log(rho) - np.log1p(-rho) + log_ratio[members].sum()
            if not np.isfinite(logit):
                inclusion[members] = np.nan
                continue
            u, _ = rng.uniforms(self.first_item + int(number), 0, SERVER, step, keys["indicators"])
            self.gamma[members] = float(np.log(u) - np.log(1 - u) < logit)
            inclusion[members] = np.exp(-np.logaddexp(0, -logit))
        return inclusion

    def marginal_ratio(self, o):
        """Returns log N(mhat; 0, eta + 1/W) - log N(mhat; 0, spike + 1/W)."""
        wide, narrow = self.eta + 1 / self.W, self.spike(o) + 1 / self.W
        return 0.5 * (np.log(narrow / wide) + (self.mhat / wide) * (self.mhat / narrow) * (self.eta - self.spike(o)))

    def conditional_ratio(self, o):
        """Returns log N(theta; 0, eta) - log N(theta; 0, spike)."""
        wide, narrow = self.eta, self.spike(o)
        return 0.5 * (np.log(narrow / wide) + (self.theta / wide) * (self.theta / narrow) * (wide - narrow))

    def draw_theta(self, o, step, keys):
        v = np.where(self.gamma == 1, self.eta, self.spike(o))
        normal, _ = rng.normals(*rng.uniforms(self.item, 0, SERVER, step, keys["effects"]))
        spread = 1 + self.W * v
        self.theta = self.mhat * (self.W * v / spread) + np.sqrt(v / spread) * normal

    def draw_eta(self, o, step, keys):
        """Draws eta from the IG of the coefficients of the slab and, where the spike is c0 eta, of the spike."""
        fixed = o.spike_variance > 0
        weight = np.where(self.gamma == 1, 1.0, 0.0 if fixed else 1 / o.c0)
        square, count = 0.5 * weight * self.theta**2, 0.5 * (weight > 0)
        if o.common:
            item = np.array([self.number], np.uint64)
            (self.common_eta,) = (o.rate_eta + square.sum()) / gamma(
                np.array([o.shape_eta + count.sum()]), item, step, keys["variances"]
            )
            self.eta = np.full(self.theta.shape, self.common_eta)
        else:
            self.eta = (o.rate_eta + square) / gamma(o.shape_eta + count, self.item, step, keys["variances"])

    def included(self):
        return sum(self.gamma[self.kinds == number][0] for number in self.numbers)


def finite(*quantities):
    """Returns the number of the first quantity that is not finite, or None."""
    return next((number for number, value in quantities if not np.all(np.isfinite(value))), None)


@quiet
def sweep(row, sums, rho, n_clients, o, step, keys):
    """Makes one sweep but for rho. Returns the probabilities of inclusion, and the faulty quantity or None."""
    sums = sums[:, row.active]
    row.draw_tau(sums[2], n_clients, o, step, keys)
    row.sum_up(sums, n_clients, o)
    if o.blocked:
        inclusion = row.draw_gamma(rho, row.marginal_ratio(o), step, keys)
        row.draw_theta(o, step, keys)
        row.draw_eta(o, step, keys)
    else:
        row.draw_theta(o, step, keys)
        row.draw_eta(o, step, keys)
        inclusion = row.draw_gamma(rho, row.conditional_ratio(o), step, keys)
    return inclusion, finite((TAU, row.tau_sq), (THETA, row.theta), (ETA, row.eta), (OTHER, inclusion))


def draw_rho(included, n_indicators, o, first, step, keys):
    """Draws Beta(a + sum gamma, b + number - sum gamma) from two gamma numbers."""
    shapes = np.array([o.rho_a + included, o.rho_b + n_indicators - included])
    x, y = gamma(shapes, np.array([2 * first, 2 * first + 1], np.uint64), step, keys["rates"])
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(np.clip(x / (x + y), LEAST_RATE, 1 - LEAST_RATE))


def draw_lambda(deviation, lambda_sq, row, o, step, key):
    """Draws the clients' lambda^2 at the server, deviation and lambda_sq (m, g, p)."""
    m, g, p = deviation.shape
    for k in range(m):
        d, last = deviation[k, row.number, row.active], lambda_sq[k, row.number, row.active]
        item = row.item + np.uint64(k * g * p)
        drawn = local_variance(0.5 * d * d / row.tau_sq, last, o.scale_lambda, o.expanded, item, SERVER, step, key)
        lambda_sq[k, row.number, row.active], outside = clipped(drawn)
        row.clips += outside.sum()


STREAMS = ("scales", "variances", "global_scales", "indicators", "effects", "rates")


def sweep_chain(chain, locals_, given, n_clients, indicators, state, o, seed, step, n_passes, events):
    """Sweeps all regressions of one chain, in place. `locals_`: deviation, lambda_sq (m, g, p), or None and `given` sums (s, g,
    p)."""
    theta, tau_sq, gamma_, eta, rho, inclusion = state
    keys = {name: key(seed, name, chain) for name in STREAMS}
    rows = [Row(i, indicators[i], theta[i], tau_sq[i], gamma_[i], eta[i]) for i in range(len(theta))]
    total = sum(len(row.numbers) for row in rows)
    inclusion[:] = 0
    events[:] = 0
    events[:, 3] = -1
    stopped = set()  # regressions; with a shared rho all of them
    for t in range(n_passes):
        for i, row in enumerate(rows):
            if i in stopped:
                continue
            # In the first pass the clients have just drawn their scales.
            if t > 0:
                draw_lambda(*locals_, row, o, step + t, keys["scales"])
            sums = given[:, i] if locals_ is None else sum(local_sums_of(d[i], s[i], o.slab) for d, s in zip(*locals_))
            old = row.theta
            q, fault = sweep(row, sums, rho[i], n_clients, o, step + t, keys)
            inclusion[i, row.active] += q / n_passes
            # The coefficients theta + d stay; theta has moved, so the deviations move against it.
            if locals_ is not None:
                locals_[0][:, i, row.active] += old - row.theta
            if fault is None and not o.shared_rho:
                rho[i] = draw_rho(row.included(), len(row.numbers), o, i, step + t, keys)
                fault = finite((RHO, rho[i]))
            if fault is not None:
                events[i, 3] = 8 * t + fault
                stopped |= set(range(len(rows))) if o.shared_rho else {i}
        # A shared rate needs the counts of all regressions, so that it is drawn last.
        if o.shared_rho and not stopped:
            rho[:] = draw_rho(sum(row.included() for row in rows), total, o, 0, step + t, keys)
            if finite((RHO, rho)) is not None:
                events[0, 3] = 8 * t + RHO
                stopped = set(range(len(rows)))
    for i, row in enumerate(rows):
        theta[i, row.active], tau_sq[i, row.active], gamma_[i, row.active] = row.theta, row.tau_sq, row.gamma
        eta[i, slice(None) if o.common else row.active] = row.common_eta if o.common else row.eta
        events[i, 0] = row.clips


def global_sweep(
    deviation, lambda_sq, indicators, theta, tau_sq, gamma, eta, rho,
    seed, chain, step, n_passes, expanded, blocked, common, shared_rho, c0, spike_variance, scale_tau,
    scale_lambda, shape_eta, rate_eta, rho_a, rho_b, slab,
    new_theta, new_tau_sq, new_gamma, new_eta, new_rho, inclusion, moved_deviation, new_lambda_sq, events, n_threads,
):  # fmt: skip
    options = Options(
        expanded, blocked, common, shared_rho, c0, spike_variance, scale_tau, scale_lambda, shape_eta, rate_eta, rho_a, rho_b,
        slab,
    )  # fmt: skip
    state = (new_theta, new_tau_sq, new_gamma, new_eta, new_rho, inclusion)
    initial, results = (theta, tau_sq, gamma, eta, rho, deviation, lambda_sq), (*state[:5], moved_deviation, new_lambda_sq)
    for value, result in zip(initial, results):
        result[...] = value
    for i in range(len(theta)):
        locals_, at = (moved_deviation[:, i], new_lambda_sq[:, i]), [a[i] for a in state]
        sweep_chain(chain + i, locals_, None, len(deviation), indicators, at, options, seed, step, n_passes, events[i])


def global_sweep_sums(
    sums, n_clients, indicators, theta, tau_sq, gamma, eta, rho,
    seed, chain, step, expanded, blocked, common, shared_rho, c0, spike_variance, scale_tau,
    scale_lambda, shape_eta, rate_eta, rho_a, rho_b, slab,
    new_theta, new_tau_sq, new_gamma, new_eta, new_rho, inclusion, events, n_threads,
):  # fmt: skip
    options = Options(
        expanded, blocked, common, shared_rho, c0, spike_variance, scale_tau, scale_lambda, shape_eta, rate_eta, rho_a, rho_b,
        slab,
    )  # fmt: skip
    state = (new_theta, new_tau_sq, new_gamma, new_eta, new_rho, inclusion)
    for value, result in zip((theta, tau_sq, gamma, eta, rho), state):
        result[...] = value
    for i in range(len(theta)):
        at = [a[i] for a in state]
        sweep_chain(chain + i, None, sums[:, i], n_clients, indicators, at, options, seed, step, 1, events[i])


def local_sums(deviation, lambda_sq, slab, sums, n_threads):
    sums[...] = local_sums_of(deviation, lambda_sq, slab)
