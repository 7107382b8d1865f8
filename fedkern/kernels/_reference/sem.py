"""Defines the kernels of the cyclic structural equation model, one chain at a time: sparse.md, sections 9 and 10.

Numba compiles the same text (`_numba/sem.py`). One chain is

* data: Y (p, n), the sums of squares of its rows, theta, tau^2, the power of the likelihood;
* state: deviations d, lambda^2, b, logarithms of steps; theta + d are the coefficients, and no diagonal is read;
* work, which follows from the state: the coefficients T with the diagonal 0, the inverse W of I - T, residuals and their sums.
"""

import numpy as np

from fedkern._core.rng import streams

from . import rng
from .shrinkage import LEAST, MOST, copied, local_variance, quiet

ROW_GIBBS, ELEMENT, ROW = range(3)  # update
LAMBDA, COEFFICIENTS, SCALE, OTHER = 0, 1, 2, 7  # quantities in a fault
CLIPPED, ACCEPTED, PROPOSED, SWAPS, REFACTORISED, FAULT = range(6)  # events
RESULTS = ("deviation", "lambda_sq", "b", "log_step", "loglik", "events")
LEAST_RATIO, REFACTORISE_BELOW = 1e-12, 1e-3  # of determinants
TARGET = 0.44  # acceptance of one-dimensional moves
LEAST_RESIDUAL = 1e-150  # beside b
STREAMS = streams()
SCALES, NORMALS, VARIANCES, PROPOSALS, AUGMENTATION = (
    STREAMS[name] for name in ("scales", "coefficients", "variances", "proposals", "augmentation")
)


# What follows from the coefficients --------------------


def without(row, j):
    """Returns a copy of a row with 0 on the diagonal."""
    copy = row.copy()
    copy[j] = 0.0
    return copy


def combined(e, delta, Y):
    """Returns e - delta' Y. It is a sum of rows, since Numba compiles a product of matrices for seconds."""
    left = e.copy()
    for h in range(len(Y)):
        left -= delta[h] * Y[h]
    return left


def size_of(e):
    return np.abs(e).sum()


def invert(W):
    """Replaces a matrix by its inverse (Gauss and Jordan). Returns log|det|; -inf or NaN if there is no inverse."""
    p, log_det = len(W), 0.0
    pivots = np.empty(p, np.int64)
    for k in range(p):
        best = k
        for i in range(k + 1, p):
            if abs(W[i, k]) > abs(W[best, k]):
                best = i
        pivots[k] = best
        for i in range(p):
            W[k, i], W[best, i] = W[best, i], W[k, i]
        pivot = W[k, k]
        if not abs(pivot) > 0.0:
            return -np.inf if pivot == 0.0 else np.nan
        log_det += np.log(abs(pivot))
        W[k, k] = 1.0
        for i in range(p):
            W[k, i] /= pivot
        for r in range(p):
            if r != k:
                factor = W[r, k]
                W[r, k] = 0.0
                for i in range(p):
                    W[r, i] -= factor * W[k, i]
    for k in range(p - 1, -1, -1):
        for i in range(p):
            W[i, k], W[i, pivots[k]] = W[i, pivots[k]], W[i, k]
    return log_det


def factorise(T, W):
    """Fills W with the inverse of I - T. Returns log|det|."""
    for j in range(len(T)):
        for h in range(len(T)):
            W[j, h] = -T[j, h]
        W[j, j] += 1.0
    return invert(W)


def start(Y, theta, d, work):
    """Computes the work from the coefficients. Returns log|det|."""
    T, W, e, sums = work
    for j in range(len(T)):
        for h in range(len(T)):
            T[j, h] = 0.0 if h == j else theta[j, h] + d[j, h]
        e[j] = combined(Y[j], T[j], Y)
        sums[j] = size_of(e[j])
    return factorise(T, W)


def update_inverse(W, j, image, ratio):
    """Updates W after row j of I - T has moved by -delta: image is delta' W, ratio = 1 - delta' W[:, j]."""
    for i in range(len(W)):
        factor = W[i, j] / ratio
        W[i] += factor * image


def is_contraction(T):
    """Tells whether the spectral radius is below 1."""
    return bool(np.isfinite(T).all() and np.abs(np.linalg.eigvals(T.astype(np.complex128))).max() < 1.0)


def is_stable_with(T, j, delta, ratio):
    """Tells whether the spectral radius is below 1 after a move, where it was below 1 before: then the determinant keeps its
    sign."""
    moved = T.copy()
    moved[j] += delta
    return ratio > 0.0 and is_contraction(moved)


def take_row(j, delta, ratio, shifted, d, work, log_det, events):
    """Takes theta_j += delta, whose determinant ratio and residuals are known. Returns the new log|det|."""
    T, W, e, sums = work
    d[j] += delta
    T[j] += delta
    e[j] = shifted
    sums[j] = size_of(shifted)
    if abs(ratio) < REFACTORISE_BELOW:
        events[REFACTORISED] += 1
        return factorise(T, W)
    update_inverse(W, j, delta @ W, ratio)
    return log_det + np.log(abs(ratio))


# Moves by Metropolis --------------------


def step_sd(variance, square, b, power):
    """Returns the standard deviation of a proposal. Neither it nor what it depends on moves with the coefficients."""
    return np.sqrt(variance / (1.0 + variance * (power * square / (b * b))))


def log_prior_loss(d, delta, variance):
    """Returns by how much the log-density of N(0, variance) falls from d to d + delta."""
    return delta * (2.0 * d + delta) / (2.0 * variance)


def try_row(j, delta, prior, ratio, shifted, u, data, state, work, log_det, stable, events):
    """Proposes theta_j += delta, whose loss of prior density, determinant ratio and residuals are known. Returns whether it is
    taken, and log|det|."""
    power, (d, _, b, _) = data[4], state
    T, _, _, sums = work
    events[PROPOSED] += 1
    if not abs(ratio) >= LEAST_RATIO:
        return False, log_det
    fit = shifted.size * np.log(abs(ratio)) - (size_of(shifted) - sums[j]) / b[j]
    if not rng.metropolis_accept(power * fit - prior, u) or (stable and not is_stable_with(T, j, delta, ratio)):
        return False, log_det
    events[ACCEPTED] += 1
    return True, take_row(j, delta, ratio, shifted, d, work, log_det, events)


def elements(data, state, work, log_det, gain, stable, client, step, key, events):
    """Proposes a move of each element. Block 0 is the proposal's normal, block 1 the acceptance."""
    Y, square, _, tau_sq, power = data
    d, lambda_sq, b, log_step = state
    _, W, e, _ = work
    p = len(Y)
    delta = np.zeros(p)
    for j in range(p):
        for h in range(p):
            if h == j:
                continue
            normal, _ = rng.normal_pair(j * p + h, 0, client, step, key)
            u, _ = rng.uniform_pair(j * p + h, 1, client, step, key)
            variance = lambda_sq[j, h] * tau_sq[j, h]
            move = np.exp(log_step[j, h]) * step_sd(variance, square[h], b[j], power) * normal
            prior = log_prior_loss(d[j, h], move, variance)
            delta[h] = move
            ratio, shifted = 1.0 - move * W[h, j], e[j] - move * Y[h]
            taken, log_det = try_row(j, delta, prior, ratio, shifted, u, data, state, work, log_det, stable, events)
            delta[h] = 0.0
            log_step[j, h] += gain * (taken - TARGET)
    return log_det


def rows(data, state, work, log_det, gain, stable, client, step, key, events):
    """Proposes moves of all elements of a row at once. Block 2 of each is its normal; block 1 of the diagonal is the
    acceptance."""
    Y, square, _, tau_sq, power = data
    d, lambda_sq, b, log_step = state
    _, W, e, _ = work
    p = len(Y)
    for j in range(p):
        delta, prior = np.zeros(p), 0.0
        for h in range(p):
            if h != j:
                normal, _ = rng.normal_pair(j * p + h, 2, client, step, key)
                variance = lambda_sq[j, h] * tau_sq[j, h]
                delta[h] = np.exp(log_step[j, j]) * step_sd(variance, square[h], b[j], power) * normal
                prior += log_prior_loss(d[j, h], delta[h], variance)
        u, _ = rng.uniform_pair(j * p + j, 1, client, step, key)
        ratio, shifted = 1.0 - (delta * W[:, j]).sum(), combined(e[j], delta, Y)
        taken, log_det = try_row(j, delta, prior, ratio, shifted, u, data, state, work, log_det, stable, events)
        log_step[j, j] += gain * (taken - TARGET)
    return log_det


# A row by augmented Gibbs: section 9, steps 1 to 4 --------------------


def cholesky(A):
    """Fills U with A = U'U in the upper triangle. A - I must be positive semidefinite: a pivot that rounding made less than 1 is
    1."""
    for k in range(len(A)):
        A[k, k] = np.sqrt(max(A[k, k], 1.0))
        A[k, k + 1 :] /= A[k, k]
        for i in range(k + 1, len(A)):
            A[i, i:] -= A[k, i] * A[k, i:]


def solve_lower(U, x):
    for k in range(x.size):
        x[k] /= U[k, k]
        x[k + 1 :] -= x[k] * U[k, k + 1 :]


def solve_upper(U, x):
    for k in range(x.size - 1, -1, -1):
        x[k] = (x[k] - (U[k, k + 1 :] * x[k + 1 :]).sum()) / U[k, k]


def gibbs_row(j, data, state, work, log_det, stable, client, step, keys, events):
    """Draws a row. With S_jj = 0 row and column j of A are those of the identity."""
    normals_key, proposals_key, weights_key = keys
    Y, _, theta, tau_sq, power = data
    d, lambda_sq, b, _ = state
    T, W, e, _ = work
    p, n = Y.shape
    # 1. The errors are normal with variances s, exponential of mean 2 (b / power)^2.
    scale, weight = b[j] / power, np.empty(n)
    mean = 1.0 / (scale * np.maximum(np.abs(e[j]), LEAST_RESIDUAL * scale))
    rng.inverse_gaussian(mean, np.full(n, 1.0 / (scale * scale)), weights_key, client, step, j * n, weight, 1)
    # 2. The row is normal: d = S u, u ~ N(A^-1 r, A^-1), A = I + S G S.
    S, before = without(np.sqrt(lambda_sq[j] * tau_sq[j]), j), without(d[j], j)
    A = np.eye(p) + S.reshape(p, 1) * S * ((Y * weight) @ Y.T)
    centre = S * (Y @ (weight * combined(Y[j], without(theta[j], j), Y)))
    direction, noise = S * W[:, j], np.empty(p)
    cholesky(A)
    solve_lower(A, centre)
    solve_lower(A, direction)
    rng.normal(normals_key, client, step, 0, j * p, noise, 1)
    noise[j] = 0.0
    # 3. The determinant's ratio is 1 + r x, and under the normal x ~ N(a, 1).
    variance = (direction * direction).sum()
    if variance >= 1e-200:
        r = np.sqrt(variance)
        direction /= r
        a = (before * W[:, j]).sum() / r - direction @ centre
        x = draw_ratio(j * p + j, r, a, power * n, client, step, proposals_key)
        # 4. The normal draw, moved along the direction so that its linear form is x.
        noise += direction * (a - direction @ noise - x)
    noise += centre
    solve_upper(A, noise)
    delta = without(S * noise - before, j)
    ratio = 1.0 - (delta * W[:, j]).sum()
    if stable and not is_stable_with(T, j, delta, ratio):
        return log_det
    return take_row(j, delta, ratio, combined(e[j], delta, Y), d, work, log_det, events)


def log_target(x, ratio, a, N):
    return N * np.log(abs(ratio)) - 0.5 * (x - a) ** 2


def log_proposal(x, first, modes, widths):
    """Returns the log-density, but for a constant, of normals at the two modes, the first with the weight `first`."""
    parts = np.log(np.array([first, 1.0 - first]) / widths) - 0.5 * ((x - modes) / widths) ** 2
    return np.logaddexp(parts[0], parts[1])


def draw_ratio(item, r, a, N, client, step, key):
    """Makes one independence step of x from 0, density ~ |1 + r x|^N exp(-(x - a)^2 / 2): a normal at each of its two modes."""
    turn = 1.0 - a * r  # r x^2 + turn x - (a + N r) = 0
    q = -0.5 * (turn + np.copysign(np.hypot(1.0 + a * r, 2.0 * r * np.sqrt(N)), turn))
    modes = np.array([q / r, -(a + N * r) / q])
    ratios = 1.0 + r * modes
    small = np.argmin(np.abs(ratios))
    ratios[small] = -N * r**2 / ratios[1 - small]  # the product of the two
    sd = 1.0 / np.sqrt(1.0 + N * (r / ratios) ** 2)
    mass = N * np.log(np.abs(ratios)) - 0.5 * (modes - a) ** 2 + np.log(sd)
    first, widths = min(max(1.0 / (1.0 + np.exp(mass[1] - mass[0])), 0.001), 0.999), 1.3 * sd
    choice, accept = rng.uniform_pair(item, 2, client, step, key)
    normal, _ = rng.normal_pair(item, 3, client, step, key)
    which = 0 if choice < first else 1
    x = modes[which] + widths[which] * normal
    if not abs(1.0 + r * x) >= LEAST_RATIO:
        return 0.0
    gain = log_target(x, 1.0 + r * x, a, N) - log_target(0.0, 1.0, a, N)
    gain += log_proposal(0.0, first, modes, widths) - log_proposal(x, first, modes, widths)
    return x if rng.metropolis_accept(gain, accept) else 0.0


# Swaps --------------------


def pair(u, p):
    """Returns the one of the pairs (0, 1), (0, 2), ..., (p - 2, p - 1) that a uniform number chooses."""
    pairs = p * (p - 1) // 2
    j, left = 0, min(int(u * pairs), pairs - 1)
    while left >= p - 1 - j:
        left -= p - 1 - j
        j += 1
    return j, j + 1 + left


def swapped(B, b, j, h):
    """Returns B = I - T with rows j and h exchanged and divided by their diagonal, and the b that go with them. It undoes
    itself."""
    new_B, new_b = B.copy(), b.copy()
    new_B[j], new_B[h] = B[h] / B[h, j], B[j] / B[j, h]
    new_b[j], new_b[h] = b[h] / abs(B[h, j]), b[j] / abs(B[j, h])
    new_B[j, j] = 1.0
    new_B[h, h] = 1.0
    return new_B, new_b


def swap(data, state, work, log_det, stable, shape, rate, client, step, key, events):
    """Proposes a swap. Item p^2, block 0 has the pair and the acceptance."""
    _, _, theta, tau_sq, _ = data
    d, lambda_sq, b, _ = state
    T, W, e, sums = work
    p = len(T)
    if p < 2:
        return log_det
    choice, accept = rng.uniform_pair(p * p, 0, client, step, key)
    j, h = pair(choice, p)
    u, w = -T[j, h], -T[h, j]
    if u == 0.0 or w == 0.0:
        return log_det
    # The likelihood stays; the ratio has the priors and the Jacobian of the exchange.
    B, new_b = swapped(np.eye(p) - T, b, j, h)
    new = np.eye(p) - B
    quadratic, prior_b = 0.0, 0.0
    for row in (j, h):
        for i in range(p):
            if i != row:
                moved = new[row, i] - theta[row, i]
                quadratic += (moved**2 - d[row, i] ** 2) / (2.0 * lambda_sq[row, i] * tau_sq[row, i])
        prior_b += (shape + 1.0) * np.log(new_b[row] / b[row]) + rate * (1.0 / new_b[row] - 1.0 / b[row])
    log_scale = np.log(abs(u * w))
    log_ratio = -quadratic - prior_b - (p + 1) * log_scale
    if not rng.metropolis_accept(log_ratio, accept) or (stable and not (u * w < 0.0 and is_contraction(new))):
        return log_det
    # The same exchange in all that is kept beside the coefficients.
    events[SWAPS] += 1
    for row in (j, h):
        T[row] = new[row]
        diagonal = d[row, row]
        d[row] = new[row] - theta[row]
        d[row, row] = diagonal
    W[:, j], W[:, h] = W[:, h] * w, W[:, j] * u
    e[j], e[h] = e[h] / w, e[j] / u
    sums[j], sums[h] = sums[h] / abs(w), sums[j] / abs(u)
    b[:] = new_b
    return log_det - log_scale


# A sweep --------------------


def draw_scales(d, tau_sq, lambda_sq, scale, expanded, client, step, key):
    """Draws lambda^2 of all elements. Returns how many were clipped, and whether all is well."""
    p, outside, good = len(d), 0, True
    m = 0.5 * d * d / tau_sq
    drawn = local_variance(m.ravel(), lambda_sq.ravel(), scale, expanded, np.arange(p * p), client, step, key)
    for j in range(p):
        for h in range(p):
            if h == j:
                continue
            variance = drawn[j * p + h]
            if variance < LEAST or variance > MOST:
                outside += 1
                variance = LEAST if variance < LEAST else MOST
            lambda_sq[j, h] = variance
            good = good and 0.0 < variance * tau_sq[j, h] < np.inf
    return outside, good


def draw_b(b, sums, power, n, shape, rate, client, step, key):
    """Returns the fault, or -1."""
    gamma, fault = np.empty(b.size), -1
    rng.gamma(np.full(b.size, shape + power * n), key, client, step, 0, gamma, 1)
    b[:] = (rate + power * sums) / gamma
    for j in range(b.size):
        if not (b[j] > 0.0 and b[j] < np.inf):
            fault = SCALE if abs(sums[j]) < np.inf else COEFFICIENTS
    return fault


def sweep_chain(data, state, work, counts, seed, chain, client, step, n_sweeps, options):
    """Makes the sweeps of one chain in place. Returns log|det|, and the fault or -1."""
    update, use_swap, stable, adapt, expanded, scale_lambda, shape, rate = options
    Y, _, theta, tau_sq, power = data
    d, lambda_sq, b, _ = state
    scales_key, variances_key = rng.stream_key(seed, SCALES, chain), rng.stream_key(seed, VARIANCES, chain)
    proposals_key = rng.stream_key(seed, PROPOSALS, chain)
    row_keys = (rng.stream_key(seed, NORMALS, chain), proposals_key, rng.stream_key(seed, AUGMENTATION, chain))
    log_det = 0.0
    for t in range(n_sweeps):
        now = step + t
        gain = (now + 1.0) ** -0.6 if adapt else 0.0
        # Made anew in every sweep, so that two calls give the bits of one and rounding does not add up.
        log_det = start(Y, theta, d, work)
        if not abs(log_det) < np.inf:
            return log_det, 8 * t + OTHER
        outside, good = draw_scales(d, tau_sq, lambda_sq, scale_lambda, expanded, client, now, scales_key)
        counts[CLIPPED] += outside
        if not good:
            return log_det, 8 * t + LAMBDA
        if update == ROW_GIBBS and len(Y) > 1:
            for j in range(len(Y)):
                log_det = gibbs_row(j, data, state, work, log_det, stable, client, now, row_keys, counts)
        if update == ROW:
            log_det = rows(data, state, work, log_det, gain, stable, client, now, proposals_key, counts)
        for turn in (ELEMENT, ROW_GIBBS):  # elements before the swap, or after it
            if update == turn:
                log_det = elements(data, state, work, log_det, gain, stable, client, now, proposals_key, counts)
            if use_swap and turn == ELEMENT:
                log_det = swap(data, state, work, log_det, stable, shape, rate, client, now, proposals_key, counts)
        fault = draw_b(b, work[3], power, Y.shape[1], shape, rate, client, now, variances_key)
        if fault < 0 and not abs(log_det) < np.inf:
            fault = OTHER
        if fault >= 0:
            return log_det, 8 * t + fault
    return log_det, -1


def log_density_of(b, n, log_det, work):
    """Returns the log-density of a chain's rows."""
    total = n * log_det if n else 0.0
    for j in range(b.size):
        total -= n * np.log(2.0 * b[j]) + work[3][j] / b[j]
    return total


def all_sweeps(Y, theta, tau_sq, temperature, state, loglik, events, seed, chain, client, step, n_sweeps, options):
    d, lambda_sq, b, log_step = state
    _, p, n = Y.shape
    square = np.empty(p)
    for c in range(len(Y)):
        work = (np.empty((p, p)), np.empty((p, p)), np.empty((p, n)), np.empty(p))
        for j in range(p):
            square[j] = (Y[c, j] * Y[c, j]).sum()
        data, chain_state = (Y[c], square, theta[c], tau_sq[c], temperature[c]), (d[c], lambda_sq[c], b[c], log_step[c])
        log_det, fault = sweep_chain(data, chain_state, work, events[c], seed, chain + c, client, step, n_sweeps, options)
        # A chain with a fault has no log-likelihood; its state is not to be used.
        events[c, FAULT] = fault
        loglik[c] = np.nan if fault >= 0 else log_density_of(b[c], n, log_det, work)


def log_densities(Y, coefficients, b, loglik):
    _, p, n = Y.shape
    W = np.empty((p, p))
    for c in range(len(Y)):
        total = 0.0
        for j in range(p):
            for h in range(p):
                W[j, h] = 1.0 if h == j else -coefficients[c, j, h]
            residual = combined(Y[c, j], without(coefficients[c, j], j), Y[c])
            total -= n * np.log(2.0 * b[c, j]) + size_of(residual) / b[c, j]
        log_det = invert(W)
        loglik[c] = total + n * log_det if n else total


# The kernels: on contiguous copies, so that one compilation serves every layout --------------------


@quiet
def log_density(Y, coefficients, b, loglik, n_threads):
    values = np.empty(loglik.size)
    log_densities(copied(Y), copied(coefficients), copied(b), values)
    loglik[...] = values


@quiet
def sweeps(
    Y, theta, tau_sq, deviation, lambda_sq, b, log_step, temperature, seed, chain, client, step, n_sweeps, update, swap, stable,
    adapt, expanded, scale_lambda, shape, rate, deviation_out, lambda_sq_out, b_out, log_step_out, loglik, events, n_threads,
):  # fmt: skip
    state = copied(deviation), copied(lambda_sq), copied(b), copied(log_step)
    values, counts = np.empty(loglik.size), np.zeros(events.shape, np.int64)
    options = update, swap, stable, adapt, expanded, scale_lambda, shape, rate
    all_sweeps(
        copied(Y), copied(theta), copied(tau_sq), copied(temperature), state, values, counts, np.uint64(seed), np.int64(chain),
        client, step, n_sweeps, options,
    )  # fmt: skip
    deviation_out[...], lambda_sq_out[...], b_out[...], log_step_out[...] = state
    loglik[...], events[...] = values, counts
