"""Draws scales of the horseshoe, and makes the server's sweeps: docs/spec/sparse.md, sections 2, 4 and 11. `sweep_row` is public,
and callable from other people's nopython code."""

import numpy as np

from fedkern._core.rng import streams

from .._jit import copied, loop_ieee, prepares, scalar, scalar_ieee
from ..rng import exponential_pair, gamma_one, metropolis_accept, normal_pair, stream_key, uniform_pair

__all__ = [
    "clipped",
    "global_sweep",
    "global_sweep_sums",
    "global_variance",
    "half_cauchy_precision",
    "local_sums",
    "local_variance",
    "local_variances",
    "sweep_row",
]

LEAST, MOST, LEAST_RATE = 1e-60, 1e60, 1e-290


@scalar
def clipped(variance):
    """Returns lambda^2 or tau^2 within [1e-60, 1e60]; NaN stays."""
    if variance < LEAST:
        return LEAST
    return MOST if variance > MOST else variance


@scalar
def half_cauchy_precision(m, item, client, step, key):
    """Draws zeta = 1/lambda^2 of density ~ exp(-m zeta) / (1 + zeta); NaN where m is."""
    if not m >= 0.0:
        return np.nan
    rate = max(m, LEAST_RATE)
    u0 = -np.log(min(rate, 1.0))
    attempt = 0
    while True:
        u, v = uniform_pair(item, attempt, client, step, key)
        r = u * (1.0 + np.e * u0)
        if rate >= 1.0:
            zeta = -np.log(u) / rate
            if v * (1.0 + zeta) < 1.0:
                return zeta
        elif r < 1.0:
            zeta = np.expm1(u0 - np.log(r))
            if metropolis_accept(1.0 - np.log(r) - rate * (1.0 + zeta), v):
                return zeta
        else:
            zeta = np.expm1((r - 1.0) / np.e)
            if metropolis_accept(-rate * (1.0 + zeta), v):
                return zeta
        attempt += 1


@scalar
def inverse(x):
    return 1.0 / x if x != 0.0 else np.inf


@scalar
def local_variance(m, lambda_sq, scale, expanded, item, client, step, key):
    """Draws lambda^2 given m = d^2 / (2 tau^2), not clipped."""
    s2 = scale * scale
    if not expanded:
        return s2 * inverse(half_cauchy_precision(m / s2, item, client, step, key))
    first, second = exponential_pair(item, 0, client, step, key)
    return (first / (1.0 / s2 + 1.0 / lambda_sq) + m) / second


@scalar
def local_variances(m, lambda_sq, scale, expanded, items, client, step, key):
    """Draws an array of them."""
    drawn = np.empty(m.size)
    for i in range(m.size):
        drawn[i] = local_variance(m[i], lambda_sq[i], scale, expanded, items[i], client, step, key)
    return drawn


@scalar
def gamma_proposal(shape, item, attempt, client, step, key):
    """Returns Marsaglia and Tsang's proposal from blocks 0 and 1 of three; -1: rejected."""
    x, _ = normal_pair(item, 3 * attempt, client, step, key)
    u, boost = uniform_pair(item, 3 * attempt + 1, client, step, key)
    large = shape + 1.0 if shape < 1.0 else shape
    d = large - 1.0 / 3.0
    t = x / (3.0 * np.sqrt(d))
    if t <= -1.0 or not metropolis_accept(3.0 * d * (np.log1p(t) - t * (1.0 - t * (0.5 - t / 3.0))), u):
        return -1.0
    boosted = np.exp(np.log(boost) / shape) if shape < 1.0 else 1.0
    return d * (1.0 + t) ** 3 * boosted


@scalar
def global_variance(m, clients, tau_sq, scale, expanded, item, client, step, key):
    """Draws tau^2 given m = (1/2) sum_k d_k^2 / lambda_k^2 over the clients, not clipped."""
    if not m >= 0.0:
        return np.nan
    s2 = scale * scale
    attempt = 0
    if expanded:
        e, _ = exponential_pair(item, 2, client, step, key)
        while True:
            g = gamma_proposal((clients + 1.0) / 2.0, item, attempt, client, step, key)
            if g >= 0.0:
                return (e / (1.0 / s2 + 1.0 / tau_sq) + m) * inverse(g)
            attempt += 1
    if not m / s2 >= 0.0:
        return np.nan  # 0 / 0: no attempt would be taken
    rate = max(m / s2, LEAST_RATE)
    if clients == 1:
        return s2 * inverse(half_cauchy_precision(rate, item, client, step, key))
    steep = rate >= (clients - 1.0) / 2.0
    shape = (clients + 1.0) / 2.0 if steep else (clients - 1.0) / 2.0
    while True:
        g = gamma_proposal(shape, item, attempt, client, step, key)
        if g >= 0.0:
            z = g / rate
            accept, _ = uniform_pair(item, 3 * attempt + 2, client, step, key)
            most = 1.0 if steep else z
            if accept * (1.0 + z) < most:
                return s2 * inverse(z)
        attempt += 1


SERVER = 2**32 - 1
IDS = streams()
SCALES, VARIANCES, GLOBAL_SCALES, INDICATORS, EFFECTS, RATES = (
    IDS[name] for name in ("scales", "variances", "global_scales", "indicators", "effects", "rates")
)
LEAST_RHO = 1e-12
TAU, THETA, ETA, RHO, OTHER = 3, 4, 5, 6, 7  # quantities in a fault


@scalar_ieee
def log_ratio(x, wide, narrow):
    """Returns log N(x; 0, wide) - log N(x; 0, narrow)."""
    return 0.5 * (np.log(narrow / wide) + (x / wide) * (x / narrow) * (wide - narrow))


@scalar_ieee
def draw_gamma(kind, ratio, rho, weight, first, gamma, inclusion, step, key):
    """Draws each indicator from the sum of its coefficients' log ratios. Returns the number of those that are 1, and of all."""
    p = kind.size
    logit = np.full(p, np.log(rho) - np.log1p(-rho))
    used = np.zeros(p, np.bool_)
    for j in range(p):
        if kind[j] >= 0:
            used[kind[j]] = True
            logit[kind[j]] += ratio[j]
    chosen, included, number = np.zeros(p), 0.0, 0
    for i in range(p):
        if used[i]:
            u, _ = uniform_pair(first + i, 0, SERVER, step, key)
            finite = np.isfinite(logit[i])
            chosen[i] = (1.0 if np.log(u) - np.log(1.0 - u) < logit[i] else 0.0) if finite else np.nan
            t = np.exp(-abs(logit[i]))
            logit[i] = (t if logit[i] < 0.0 else 1.0) / (1.0 + t) if finite else np.nan
            included += chosen[i]
            number += 1
    for j in range(p):
        if kind[j] >= 0:
            gamma[j] = chosen[kind[j]]
            inclusion[j] += weight * logit[kind[j]]
        elif kind[j] == -1:
            inclusion[j] += weight
    return included, number


@scalar_ieee
def sweep_row(r, sums, n_clients, kind, theta, tau_sq, gamma, eta, rho, inclusion, weight, seed, chain, step, o):
    """Makes one sweep of regression r but for rho, in place. Returns how many indicators are 1, their number, clips, faulty
    quantity."""
    expanded, blocked, common, c0, fixed, scale_tau, shape_eta, rate_eta, slab = o
    p = kind.size
    first = r * p
    W, mhat, ratio, clips = np.zeros(p), np.zeros(p), np.zeros(p), 0
    # tau^2 first: W and mhat, the clients' evidence about theta, depend on it.
    key = stream_key(seed, GLOBAL_SCALES, chain)
    for j in range(p):
        if kind[j] == -2:
            continue
        drawn = global_variance(0.5 * sums[2, j], n_clients, tau_sq[j], scale_tau, expanded, first + j, SERVER, step, key)
        tau_sq[j] = clipped(drawn)
        clips += tau_sq[j] < drawn or tau_sq[j] > drawn
        W[j], shift = sums[0, j] / tau_sq[j], sums[1, j] / tau_sq[j]
        if slab < np.inf:
            W[j] += n_clients / slab**2
            shift += sums[3, j] / slab**2
        mhat[j] = theta[j] + shift / W[j]

    included, number = 0.0, 0
    # Indicators with theta integrated out; theta is drawn given them.
    if blocked:
        for j in range(p):
            if kind[j] >= 0:
                spike = fixed if fixed > 0.0 else c0 * eta[j]
                ratio[j] = log_ratio(mhat[j], eta[j] + 1.0 / W[j], spike + 1.0 / W[j])
        key = stream_key(seed, INDICATORS, chain)
        included, number = draw_gamma(kind, ratio, rho, weight, first, gamma, inclusion, step, key)

    # theta given its indicator: a product of two normals, in a form without cancellation.
    key = stream_key(seed, EFFECTS, chain)
    for j in range(p):
        if kind[j] > -2:
            v = eta[j] if gamma[j] == 1.0 else (fixed if fixed > 0.0 else c0 * eta[j])
            spread = 1.0 + W[j] * v
            normal, _ = normal_pair(first + j, 0, SERVER, step, key)
            theta[j] = mhat[j] * (W[j] * v / spread) + np.sqrt(v / spread) * normal

    # A coefficient in the spike tells of eta only where the spike is c0 eta.
    key = stream_key(seed, VARIANCES, chain)
    count, total = 0.0, 0.0
    for j in range(p):
        if kind[j] > -2:
            w = 1.0 if gamma[j] == 1.0 else (0.0 if fixed > 0.0 else 1.0 / c0)
            half = 0.5 if w > 0.0 else 0.0
            square = 0.5 * w * theta[j] * theta[j]
            count += half
            total += square
            if not common:
                eta[j] = (rate_eta + square) / gamma_one(shape_eta + half, first + j, SERVER, step, key)
    if common:
        eta[:] = (rate_eta + total) / gamma_one(shape_eta + count, r, SERVER, step, key)

    # The printed order: given theta, and after eta.
    if not blocked:
        for j in range(p):
            if kind[j] >= 0:
                width = fixed if fixed > 0.0 else c0 * eta[j]
                ratio[j] = log_ratio(theta[j], eta[j], width)
        key = stream_key(seed, INDICATORS, chain)
        included, number = draw_gamma(kind, ratio, rho, weight, first, gamma, inclusion, step, key)

    # The quantity that was drawn first is named: it spoils the later ones.
    fault = -1
    for quantity, values in ((OTHER, inclusion), (ETA, eta), (THETA, theta), (TAU, tau_sq)):
        for j in range(p):
            if kind[j] > -2 and not np.isfinite(values[j]):
                fault = quantity
    return included, number, clips, fault


@scalar_ieee
def draw_rho(included, number, prior, first, seed, chain, step):
    key = stream_key(seed, RATES, chain)
    x = gamma_one(prior[0] + included, 2 * first, SERVER, step, key)
    y = gamma_one(prior[1] + number - included, 2 * first + 1, SERVER, step, key)
    return min(max(x / (x + y), LEAST_RHO), 1.0 - LEAST_RHO) if x + y > 0.0 else np.nan


@scalar_ieee
def add_locals(deviation, lambda_sq, sums):
    """Adds the terms of one client; products are stored before they are added."""
    product = np.empty((3, deviation.size))
    for j in range(deviation.size):
        product[0, j] = 1.0 / lambda_sq[j]
        product[1, j] = deviation[j] * product[0, j]
        product[2, j] = deviation[j] * product[1, j]
    sums[:3] += product
    if len(sums) == 4:
        sums[3] += deviation


@scalar_ieee
def draw_lambda(deviation, lambda_sq, kind, tau_sq, scale, expanded, first, step, key):
    """Draws one client's lambda^2 at the server. Returns how many were clipped."""
    clips = 0
    for j in range(kind.size):
        if kind[j] > -2:
            m = 0.5 * deviation[j] ** 2 / tau_sq[j]
            drawn = local_variance(m, lambda_sq[j], scale, expanded, first + j, SERVER, step, key)
            lambda_sq[j] = clipped(drawn)
            clips += lambda_sq[j] < drawn or lambda_sq[j] > drawn
    return clips


@loop_ieee
def sweep_chains(
    deviation, lambda_sq, given, m, kinds, state, seed, chain, step, n_passes, shared, scale_lambda, rate, o, events
):
    """Sweeps all chains in place: `deviation` and `lambda_sq` (m, c, g, p), or of no client and the `given` sums."""
    theta, tau_sq, gamma, eta, rho, inclusion = state
    c, g, p = theta.shape
    known = deviation.shape[0] > 0
    inclusion[:] = 0.0
    events[:] = 0
    events[:, :, 3] = -1
    weight = 1.0 / n_passes
    for i in range(c):
        stopped = np.zeros(g, np.bool_)
        # A coefficient that is always included has the indicator 1, whatever came.
        for r in range(g):
            for j in range(p):
                if kinds[r, j] == -1:
                    gamma[i, r, j] = 1.0
        for t in range(n_passes):
            total, numbers = 0.0, 0
            for r in range(g):
                if stopped[r]:
                    continue
                sums = np.zeros((len(given), p)) if known else given[:, i, r]
                for k in range(len(deviation)):
                    d, scales = deviation[k, i, r], lambda_sq[k, i, r]
                    # In the first pass the clients have just drawn their scales.
                    if t > 0:
                        first, key = (k * g + r) * p, stream_key(seed, SCALES, chain + np.uint64(i))
                        events[i, r, 0] += draw_lambda(
                            d, scales, kinds[r], tau_sq[i, r], scale_lambda, o[0], first, step + t, key
                        )
                    add_locals(d, scales, sums)
                old = theta[i, r].copy()
                included, number, clips, fault = sweep_row(
                    r, sums, m, kinds[r], theta[i, r], tau_sq[i, r], gamma[i, r], eta[i, r], rho[i, r], inclusion[i, r], weight,
                    seed, chain + np.uint64(i), step + t, o
                )  # fmt: skip
                events[i, r, 0] += clips
                # The coefficients theta + d stay; theta has moved, so the deviations move against it.
                if known:
                    deviation[:, i, r] += old - theta[i, r]
                total += included
                numbers += number
                if fault < 0 and not shared:
                    rho[i, r] = draw_rho(included, number, rate, r, seed, chain + np.uint64(i), step + t)
                    fault = RHO if np.isnan(rho[i, r]) else -1
                if fault >= 0:
                    events[i, r, 3] = 8 * t + fault
                    if shared:
                        stopped[:] = True
                    stopped[r] = True
            # A shared rate needs the counts of all regressions, so that it is drawn last.
            if shared and g > 0 and not stopped[0]:
                rho[i] = draw_rho(total, numbers, rate, 0, seed, chain + np.uint64(i), step + t)
                if np.isnan(rho[i, 0]):
                    events[i, 0, 3] = 8 * t + RHO
                    stopped[:] = True


@prepares
def run_sweeps(deviation, lambda_sq, given, m, kinds, state, seed, chain, step, n_passes, options, out_state, events):
    """Copies to arrays of one layout, so that one compilation serves all, makes the sweeps, and copies back."""
    expanded, blocked, common, shared, c0, fixed, scale_tau, scale_lambda, shape_eta, rate_eta, a, b, slab = options
    theta, tau_sq, gamma, eta, rho = state
    theta_now, tau_now, gamma_now, eta_now, rho_now = copied(theta), copied(tau_sq), copied(gamma), copied(eta), copied(rho)
    inclusion, happened = np.empty(theta.shape), np.empty(events.shape, np.int64)
    o = (bool(expanded), bool(blocked), bool(common), c0, fixed, scale_tau, shape_eta, rate_eta, slab)
    new = (theta_now, tau_now, gamma_now, eta_now, rho_now, inclusion)
    sweep_chains(
        deviation, lambda_sq, given, m, copied(kinds), new, np.uint64(seed), np.uint64(chain), step, n_passes,
        bool(shared), scale_lambda, (a, b), o, happened
    )  # fmt: skip
    out_theta, out_tau_sq, out_gamma, out_eta, out_rho, out_inclusion = out_state
    out_theta[...], out_tau_sq[...], out_gamma[...] = theta_now, tau_now, gamma_now
    out_eta[...], out_rho[...], out_inclusion[...] = eta_now, rho_now, inclusion
    events[...] = happened


@prepares
def global_sweep(
    deviation, lambda_sq, indicators, theta, tau_sq, gamma, eta, rho,
    seed, chain, step, n_passes, expanded, blocked, common, shared_rho, c0, spike_variance, scale_tau,
    scale_lambda, shape_eta, rate_eta, rho_a, rho_b, slab,
    new_theta, new_tau_sq, new_gamma, new_eta, new_rho, inclusion, moved_deviation, new_lambda_sq, events, n_threads,
):  # fmt: skip
    options = (
        expanded, blocked, common, shared_rho, c0, spike_variance, scale_tau, scale_lambda, shape_eta, rate_eta, rho_a, rho_b,
        slab,
    )  # fmt: skip
    out_state = (new_theta, new_tau_sq, new_gamma, new_eta, new_rho, inclusion)
    state = (theta, tau_sq, gamma, eta, rho)
    moved, drawn = copied(deviation), copied(lambda_sq)
    n_sums = 4 if slab < np.inf else 3
    m, given = deviation.shape[0], np.empty((n_sums, 0, 0, 0))
    run_sweeps(moved, drawn, given, m, indicators, state, seed, chain, step, n_passes, options, out_state, events)
    moved_deviation[...], new_lambda_sq[...] = moved, drawn


@prepares
def global_sweep_sums(
    sums, n_clients, indicators, theta, tau_sq, gamma, eta, rho,
    seed, chain, step, expanded, blocked, common, shared_rho, c0, spike_variance, scale_tau,
    scale_lambda, shape_eta, rate_eta, rho_a, rho_b, slab,
    new_theta, new_tau_sq, new_gamma, new_eta, new_rho, inclusion, events, n_threads,
):  # fmt: skip
    options = (
        expanded, blocked, common, shared_rho, c0, spike_variance, scale_tau, scale_lambda, shape_eta, rate_eta, rho_a, rho_b,
        slab,
    )  # fmt: skip
    out_state = (new_theta, new_tau_sq, new_gamma, new_eta, new_rho, inclusion)
    state = (theta, tau_sq, gamma, eta, rho)
    none, given = np.empty((0,) + theta.shape), copied(sums)  # noqa: RUF005 (Numba unpacks no tuple here)
    run_sweeps(none, none, given, n_clients, indicators, state, seed, chain, step, 1, options, out_state, events)


@loop_ieee
def sum_rows(deviation, lambda_sq, sums):
    for i in range(deviation.shape[0]):
        add_locals(deviation[i], lambda_sq[i], sums[:, i])


@prepares
def local_sums(deviation, lambda_sq, slab, sums, n_threads):
    c, g, p = deviation.shape
    rows = np.zeros((sums.shape[0], c * g, p))
    sum_rows(copied(deviation).reshape(c * g, p), copied(lambda_sq).reshape(c * g, p), rows)
    sums[...] = rows.reshape(sums.shape)
