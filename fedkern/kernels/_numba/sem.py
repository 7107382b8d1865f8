"""Computes the cyclic structural equation model for Numba, one chain at a time. Public: `invert`, `is_contraction`,
`update_inverse`."""

import numpy as np

from fedkern._core.rng import streams

from ._jit import copied, loop, prepares, scalar
from .rng import gamma_one, inverse_gaussian_one, metropolis_accept, normal_pair, stream_key, uniform_pair
from .shrinkage.server import clipped, local_variance

__all__ = ["ELEMENT", "ROW", "ROW_GIBBS", "invert", "is_contraction", "log_density", "sweeps", "update_inverse"]

ROW_GIBBS, ELEMENT, ROW = range(3)  # update
LAMBDA, COEFFICIENTS, SCALE, OTHER = 0, 1, 2, 7  # quantities in a fault
CLIPPED, ACCEPTED, PROPOSED, SWAPS, REFACTORISED, FAULT = range(6)  # events
LEAST_RATIO, REFACTORISE_BELOW = 1e-12, 1e-3  # of determinants
TARGET = 0.44  # acceptance of one-dimensional moves
LEAST_RESIDUAL = 1e-150  # beside b
STREAMS = streams()
SCALES, COEFFICIENT_NORMALS, VARIANCES, PROPOSALS, AUGMENTATION = (
    STREAMS[name] for name in ("scales", "coefficients", "variances", "proposals", "augmentation")
)


@scalar
def invert(W):
    """Replaces a matrix by its inverse (Gauss-Jordan). Returns log|det|; -inf or NaN if there is no inverse."""
    p = W.shape[0]
    pivots = np.empty(p, np.int64)
    log_det = 0.0
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


@scalar
def update_inverse(W, j, image, ratio):
    """Updates W after row j of I - Theta has moved by -delta: image is delta' W, ratio = 1 - delta' W[:, j]."""
    p = W.shape[0]
    for i in range(p):
        factor = W[i, j] / ratio
        for k in range(p):
            W[i, k] += factor * image[k]


@scalar
def is_contraction(matrix):
    """Tells whether the spectral radius is below 1, from the powers T^(2^k), their traces and their row and column sums."""
    p = matrix.shape[0]
    T, square, columns = matrix.copy(), np.empty((p, p)), np.empty(p)
    for _ in range(64):
        trace, rows = 0.0, 0.0
        columns[:] = 0.0
        for i in range(p):
            trace += T[i, i]
            row = 0.0
            for k in range(p):
                row += abs(T[i, k])
                columns[k] += abs(T[i, k])
            rows = max(rows, row)
        most = 0.0
        for k in range(p):
            most = max(most, columns[k])
        bound = min(rows, most)
        if not (abs(trace) <= p and bound < 1e150):
            return False
        if bound < 1.0:
            return True
        square[:] = 0.0
        for i in range(p):
            for k in range(p):
                for h in range(p):
                    square[i, h] += T[i, k] * T[k, h]
        T, square = square, T
    return False


@loop
def log_densities(Y, coefficients, b):
    p, n = Y.shape[1], Y.shape[2]
    loglik = np.empty(Y.shape[0])
    for c in range(loglik.size):
        B = np.empty((p, p))
        value = 0.0
        for j in range(p):
            for h in range(p):
                B[j, h] = 1.0 if h == j else -coefficients[c, j, h]
            total = 0.0
            for i in range(n):
                e = 0.0
                for h in range(p):
                    e += B[j, h] * Y[c, h, i]
                total += abs(e)
            value -= n * np.log(2.0 * b[c, j]) + total / b[c, j]
        loglik[c] = value + n * invert(B) if n > 0 else value
    return loglik


@scalar
def combine(e, delta, Y, out):
    """Computes out = e - sum_h delta_h y_h. Returns sum |out|."""
    for i in range(e.size):
        out[i] = e[i]
    for h in range(delta.size):
        for i in range(e.size):
            out[i] -= delta[h] * Y[h, i]
    total = 0.0
    for i in range(e.size):
        total += abs(out[i])
    return total


@scalar
def dot(x, y):
    total = 0.0
    for i in range(x.size):
        total += x[i] * y[i]
    return total


@scalar
def start(Y, theta, d, T, W, e, sums):
    """Computes Theta, residuals and the inverse of I - Theta. Returns log|det|."""
    p = Y.shape[0]
    for j in range(p):
        for h in range(p):
            T[j, h] = 0.0 if h == j else theta[j, h] + d[j, h]
        sums[j] = combine(Y[j], T[j], Y, e[j])
    return refactorise(T, W)


@scalar
def refactorise(T, W):
    for j in range(T.shape[0]):
        for h in range(T.shape[0]):
            W[j, h] = (1.0 if h == j else 0.0) - T[j, h]
    return invert(W)


@scalar
def draw_scales(d, tau_sq, lambda_sq, scale, expanded, client, step, key):
    """Returns how many were clipped, and whether all is well."""
    p = d.shape[0]
    outside, good = 0, True
    for j in range(p):
        for h in range(p):
            if h != j:
                m = 0.5 * d[j, h] * d[j, h] / tau_sq[j, h]
                drawn = local_variance(m, lambda_sq[j, h], scale, expanded, j * p + h, client, step, key)
                lambda_sq[j, h] = clipped(drawn)
                outside += drawn < lambda_sq[j, h] or drawn > lambda_sq[j, h]
                variance = lambda_sq[j, h] * tau_sq[j, h]
                good = good and variance > 0.0 and variance < np.inf
    return outside, good


@scalar
def proposal_sd(variance, square, b, power):
    return np.sqrt(variance / (1.0 + variance * (power * square / (b * b))))


@scalar
def take_row(j, delta, ratio, total, shifted, d, work, log_det, events):
    """Takes theta_j += delta, whose determinant ratio and residuals are known. Returns the new log|det|."""
    T, W, e, sums = work
    p = T.shape[0]
    image = np.zeros(p)
    for h in range(p):
        if h != j and delta[h] != 0.0:
            d[j, h] += delta[h]
            T[j, h] += delta[h]
            for k in range(p):
                image[k] += delta[h] * W[h, k]
    for i in range(shifted.size):
        e[j, i] = shifted[i]
    sums[j] = total
    if abs(ratio) < REFACTORISE_BELOW:
        events[REFACTORISED] += 1
        return refactorise(T, W)
    update_inverse(W, j, image, ratio)
    return log_det + np.log(abs(ratio))


@scalar
def is_stable_with(T, j, delta, ratio):
    if not ratio > 0.0:
        return False
    T = T.copy()
    for h in range(delta.size):
        T[j, h] += delta[h]
    return is_contraction(T)


@scalar
def shift(e, y, delta, out):
    total = 0.0
    for i in range(e.size):
        out[i] = e[i] - delta * y[i]
        total += abs(out[i])
    return total


@scalar
def elements(data, state, work, log_det, gain, stable, client, step, key, events):
    Y, square, _, tau_sq, power = data
    d, lambda_sq, b, log_step = state
    T, W, e, sums = work
    p, n = Y.shape
    shifted, delta_row = np.empty(n), np.zeros(p)
    for j in range(p):
        for h in range(p):
            if h == j:
                continue
            variance = lambda_sq[j, h] * tau_sq[j, h]
            normal, _ = normal_pair(j * p + h, 0, client, step, key)
            u, _ = uniform_pair(j * p + h, 1, client, step, key)
            delta = np.exp(log_step[j, h]) * proposal_sd(variance, square[h], b[j], power) * normal
            ratio = 1.0 - delta * W[h, j]
            total = shift(e[j], Y[h], delta, shifted)
            fit = n * np.log(abs(ratio)) - (total - sums[j]) / b[j] if ratio != 0.0 else -np.inf
            prior = delta * (2.0 * d[j, h] + delta) * 0.5 / variance
            taken = metropolis_accept(power * fit - prior, u) and abs(ratio) >= LEAST_RATIO
            if taken:
                delta_row[h] = delta
                taken = not stable or is_stable_with(T, j, delta_row, ratio)
                if taken:
                    log_det = take_row(j, delta_row, ratio, total, shifted, d, work, log_det, events)
                delta_row[h] = 0.0
            events[ACCEPTED] += taken
            events[PROPOSED] += 1
            moved = 1.0 if taken else 0.0
            log_step[j, h] += gain * (moved - TARGET)
    return log_det


@scalar
def row_ratio(j, delta, W):
    ratio = 1.0
    for h in range(delta.size):
        ratio -= delta[h] * W[h, j]
    return ratio


@scalar
def rows(data, state, work, log_det, gain, stable, client, step, key, events):
    Y, square, _, tau_sq, power = data
    d, lambda_sq, b, log_step = state
    T, W, e, sums = work
    p, n = Y.shape
    shifted, delta = np.empty(n), np.zeros(p)
    for j in range(p):
        prior = 0.0
        for h in range(p):
            delta[h] = 0.0
            if h != j:
                variance = lambda_sq[j, h] * tau_sq[j, h]
                normal, _ = normal_pair(j * p + h, 2, client, step, key)
                delta[h] = np.exp(log_step[j, j]) * proposal_sd(variance, square[h], b[j], power) * normal
                prior += delta[h] * (2.0 * d[j, h] + delta[h]) * 0.5 / variance
        u, _ = uniform_pair(j * p + j, 1, client, step, key)
        ratio = row_ratio(j, delta, W)
        total = combine(e[j], delta, Y, shifted)
        fit = n * np.log(abs(ratio)) - (total - sums[j]) / b[j] if ratio != 0.0 else -np.inf
        taken = metropolis_accept(power * fit - prior, u) and abs(ratio) >= LEAST_RATIO
        taken = taken and (not stable or is_stable_with(T, j, delta, ratio))
        if taken:
            log_det = take_row(j, delta, ratio, total, shifted, d, work, log_det, events)
        events[ACCEPTED] += taken
        events[PROPOSED] += 1
        moved = 1.0 if taken else 0.0
        log_step[j, j] += gain * (moved - TARGET)
    return log_det


@scalar
def factorise(A):
    """Fills U with A = U'U in the upper triangle. A - I must be positive semidefinite: a pivot that rounding made less than 1 is
    1."""
    p = A.shape[0]
    for k in range(p):
        root = np.sqrt(max(A[k, k], 1.0))
        A[k, k] = root
        for i in range(k + 1, p):
            A[k, i] /= root
        for i in range(k + 1, p):
            for h in range(i, p):
                A[i, h] -= A[k, i] * A[k, h]


@scalar
def solve_lower(U, x):
    for k in range(x.size):
        x[k] /= U[k, k]
        for i in range(k + 1, x.size):
            x[i] -= x[k] * U[k, i]


@scalar
def solve_upper(U, x):
    for k in range(x.size - 1, -1, -1):
        for i in range(k + 1, x.size):
            x[k] -= U[k, i] * x[i]
        x[k] /= U[k, k]


@scalar
def gibbs_row(j, data, state, work, log_det, stable, client, step, keys, events):
    """Draws a row: section 9, steps 1 to 4. With S_jj = 0 row and column j of A are those of the identity."""
    normals_key, proposals_key, weights_key = keys
    Y, _, theta, tau_sq, power = data
    d, lambda_sq, b, _ = state
    T, W, e, _ = work
    p, n = Y.shape
    # 1. The errors are normal with variances s, exponential of mean 2 (b / power)^2.
    scale = b[j] / power
    weight = np.empty(n)
    for i in range(n):
        mean = 1.0 / (scale * max(abs(e[j, i]), LEAST_RESIDUAL * scale))
        weight[i] = inverse_gaussian_one(mean, 1.0 / (scale * scale), j * n + i, client, step, weights_key)
    # 2. The row is normal: d = S u, u ~ N(A^-1 r, A^-1), A = I + S G S.
    S, delta, rest, weighted = np.empty(p), np.empty(p), np.empty(n), np.empty(n)
    for h in range(p):
        S[h] = 0.0 if h == j else np.sqrt(lambda_sq[j, h] * tau_sq[j, h])
        delta[h] = 0.0 if h == j else theta[j, h]
    combine(Y[j], delta, Y, rest)
    A, centre, direction, noise = np.empty((p, p)), np.empty(p), np.empty(p), np.empty(p)
    for a in range(p):
        for i in range(n):
            weighted[i] = weight[i] * Y[a, i]
        for h in range(a, p):
            A[a, h] = (1.0 if h == a else 0.0) + S[a] * S[h] * dot(weighted, Y[h])
        centre[a] = S[a] * dot(weighted, rest)
        direction[a] = S[a] * W[a, j]
    factorise(A)
    solve_lower(A, centre)
    solve_lower(A, direction)
    for h in range(0, p, 2):
        first, second = normal_pair(j * p + h // 2, 0, client, step, normals_key)
        noise[h] = first
        if h + 1 < p:
            noise[h + 1] = second
    noise[j] = 0.0
    # 3. The determinant's ratio is 1 + r x, and under the normal x ~ N(a, 1).
    variance = dot(direction, direction)
    if variance >= 1e-200:
        r = np.sqrt(variance)
        along = 0.0
        for h in range(p):
            direction[h] /= r
            if h != j:
                along += d[j, h] * W[h, j]
        a = along / r - dot(direction, centre)
        x = draw_ratio(j * p + j, r, a, power * n, client, step, proposals_key)
        # 4. The normal draw, moved along the direction so that its linear form is x.
        shortfall = a - dot(direction, noise) - x
        for h in range(p):
            noise[h] += direction[h] * shortfall
    for h in range(p):
        noise[h] += centre[h]
    solve_upper(A, noise)
    for h in range(p):
        delta[h] = 0.0 if h == j else S[h] * noise[h] - d[j, h]
    ratio = row_ratio(j, delta, W)
    if stable and not is_stable_with(T, j, delta, ratio):
        return log_det
    total = combine(e[j], delta, Y, rest)
    return take_row(j, delta, ratio, total, rest, d, work, log_det, events)


@scalar
def log_target(x, ratio, a, N):
    of_ratio = N * np.log(abs(ratio)) if ratio != 0.0 else -np.inf
    return of_ratio - 0.5 * (x - a) * (x - a)


@scalar
def log_normal(x, weight, mode, wide):
    return np.log(weight / wide) - 0.5 * ((x - mode) / wide) ** 2


@scalar
def log_sum(x, y):
    """Returns log(e^x + e^y)."""
    return max(x, y) + np.log1p(np.exp(-abs(x - y)))


@scalar
def draw_ratio(item, r, a, N, client, step, key):
    """Makes one independence step of x from 0, density ~ |1 + r x|^N exp(-(x - a)^2 / 2): a normal at each of its two modes."""
    turn = 1.0 - a * r  # r x^2 + turn x - (a + N r) = 0
    root = np.sqrt((1.0 + a * r) ** 2 + 4.0 * N * (r * r))
    further = turn - root if turn < 0.0 else turn + root
    q = -0.5 * further
    mode0, mode1 = q / r, -(a + N * r) / q
    ratio0, ratio1 = 1.0 + r * mode0, 1.0 + r * mode1
    if abs(ratio1) < abs(ratio0):  # the smaller from the product of the two
        ratio1 = -N * (r * r) / ratio0
    else:
        ratio0 = -N * (r * r) / ratio1
    sd0, sd1 = 1.0 / np.sqrt(1.0 + N * (r / ratio0) ** 2), 1.0 / np.sqrt(1.0 + N * (r / ratio1) ** 2)
    mass0, mass1 = log_target(mode0, ratio0, a, N) + np.log(sd0), log_target(mode1, ratio1, a, N) + np.log(sd1)
    first = min(max(1.0 / (1.0 + np.exp(mass1 - mass0)), 0.001), 0.999)
    wide0, wide1 = 1.3 * sd0, 1.3 * sd1
    choice, accept = uniform_pair(item, 2, client, step, key)
    normal, _ = normal_pair(item, 3, client, step, key)
    x = mode0 + wide0 * normal if choice < first else mode1 + wide1 * normal
    if not abs(1.0 + r * x) >= LEAST_RATIO:
        return 0.0
    gain = log_target(x, 1.0 + r * x, a, N) - log_target(0.0, 1.0, a, N)
    gain += log_sum(log_normal(0.0, first, mode0, wide0), log_normal(0.0, 1.0 - first, mode1, wide1))
    gain -= log_sum(log_normal(x, first, mode0, wide0), log_normal(x, 1.0 - first, mode1, wide1))
    return x if metropolis_accept(gain, accept) else 0.0


@scalar
def swap(data, state, work, log_det, stable, shape, rate, client, step, key, events):
    _, _, theta, tau_sq, _ = data
    d, lambda_sq, b, _ = state
    T, W, e, sums = work
    p = T.shape[0]
    if p < 2:
        return log_det
    # The pair (j, h), j < h, that the uniform number chooses.
    choice, accept = uniform_pair(p * p, 0, client, step, key)
    pairs = p * (p - 1) // 2
    j, rest = 0, min(int(choice * pairs), pairs - 1)
    while rest >= p - 1 - j:
        rest -= p - 1 - j
        j += 1
    h = j + 1 + rest
    u, w = -T[j, h], -T[h, j]
    # The exchanged rows are divided by these numbers.
    if u == 0.0 or w == 0.0:
        return log_det
    new = T.copy()
    quadratic = 0.0
    for i in range(p):
        new[j, i] = 0.0 if i == j else (T[h, i] - (1.0 if i == h else 0.0)) / w
        new[h, i] = 0.0 if i == h else (T[j, i] - (1.0 if i == j else 0.0)) / u
        for row in (j, h):
            if i != row:
                moved = new[row, i] - theta[row, i]
                quadratic += (moved * moved - d[row, i] * d[row, i]) / (2.0 * lambda_sq[row, i] * tau_sq[row, i])
    # The likelihood stays; the ratio has the priors and the Jacobian of the exchange.
    b_j, b_h = b[h] / abs(w), b[j] / abs(u)
    log_scale = np.log(abs(u * w)) if u * w != 0.0 else -np.inf
    log_ratio = -quadratic - (p + 1) * log_scale - (shape + 1.0) * (np.log(b_j / b[j]) + np.log(b_h / b[h]))
    log_ratio -= rate * (1.0 / b_j - 1.0 / b[j] + 1.0 / b_h - 1.0 / b[h])
    if not metropolis_accept(log_ratio, accept) or (stable and not (u * w < 0.0 and is_contraction(new))):
        return log_det
    events[SWAPS] += 1
    for i in range(p):
        T[j, i], T[h, i] = new[j, i], new[h, i]
        if i != j:
            d[j, i] = T[j, i] - theta[j, i]
        if i != h:
            d[h, i] = T[h, i] - theta[h, i]
        W[i, j], W[i, h] = W[i, h] * w, W[i, j] * u
    # The same exchange in all that is kept beside the coefficients.
    for i in range(e.shape[1]):
        e[j, i], e[h, i] = e[h, i] / w, e[j, i] / u
    sums[j], sums[h] = sums[h] / abs(w), sums[j] / abs(u)
    b[j], b[h] = b_j, b_h
    return log_det - log_scale


@scalar
def draw_b(b, sums, power, n, shape, rate, client, step, key):
    """Returns the fault, or -1."""
    fault = -1
    for j in range(b.size):
        b[j] = (rate + power * sums[j]) / gamma_one(shape + power * n, j, client, step, key)
        if not (b[j] > 0.0 and b[j] < np.inf):
            fault = SCALE if abs(sums[j]) < np.inf else COEFFICIENTS
    return fault


@prepares
def log_density(Y, coefficients, b, loglik, n_threads):
    loglik[:] = log_densities(copied(Y), copied(coefficients), copied(b))


@prepares
def sweeps(
    Y, theta, tau_sq, deviation, lambda_sq, b, log_step, temperature, seed, chain, client, step, n_sweeps, update, swap, stable,
    adapt, expanded, scale_lambda, shape, rate, deviation_out, lambda_sq_out, b_out, log_step_out, loglik, events, n_threads,
):  # fmt: skip
    """Makes the sweeps on contiguous copies: one compilation for every layout."""
    d, scales, b_new, steps = copied(deviation), copied(lambda_sq), copied(b), copied(log_step)
    values, counts = np.empty(loglik.size), np.zeros(events.shape, np.int64)
    all_sweeps(
        copied(Y), copied(theta), copied(tau_sq), copied(temperature), d, scales, b_new, steps, values, counts, np.uint64(seed),
        np.int64(chain), client, step, n_sweeps, update, swap, stable, adapt, expanded, scale_lambda, shape, rate,
    )  # fmt: skip
    deviation_out[...], lambda_sq_out[...], b_out[...], log_step_out[...] = d, scales, b_new, steps
    loglik[...], events[...] = values, counts


@loop
def all_sweeps(
    Y, theta, tau_sq, temperature, deviation, lambda_sq, b, log_step, loglik, events, seed, chain, client, step, n_sweeps, update,
    use_swap, stable, adapt, expanded, scale_lambda, shape, rate,
):  # fmt: skip
    """Makes all sweeps in place."""
    p, n = Y.shape[1], Y.shape[2]
    T, W, e = np.empty((p, p)), np.empty((p, p)), np.empty((p, n))
    sums, square = np.empty(p), np.empty(p)
    work = (T, W, e, sums)
    for c in range(Y.shape[0]):
        scales_key, normals_key = stream_key(seed, SCALES, chain + c), stream_key(seed, COEFFICIENT_NORMALS, chain + c)
        variances_key, proposals_key = stream_key(seed, VARIANCES, chain + c), stream_key(seed, PROPOSALS, chain + c)
        row_keys = (normals_key, proposals_key, stream_key(seed, AUGMENTATION, chain + c))
        y = Y[c]
        for j in range(p):
            square[j] = dot(y[j], y[j])
        data = (y, square, theta[c], tau_sq[c], temperature[c])
        state = (deviation[c], lambda_sq[c], b[c], log_step[c])
        counts, fault, log_det = events[c], -1, 0.0
        for t in range(n_sweeps):
            now = step + t
            gain = (now + 1.0) ** -0.6 if adapt else 0.0
            # Made anew in every sweep, so that two calls give the bits of one and rounding does not add up.
            log_det = start(y, theta[c], deviation[c], T, W, e, sums)
            if not abs(log_det) < np.inf:
                fault = 8 * t + OTHER
                break
            outside, good = draw_scales(deviation[c], tau_sq[c], lambda_sq[c], scale_lambda, expanded, client, now, scales_key)
            counts[CLIPPED] += outside
            if not good:
                fault = 8 * t + LAMBDA
                break
            if update == ROW_GIBBS and p > 1:
                for j in range(p):
                    log_det = gibbs_row(j, data, state, work, log_det, stable, client, now, row_keys, counts)
            if update == ROW:
                log_det = rows(data, state, work, log_det, gain, stable, client, now, proposals_key, counts)
            for turn in (ELEMENT, ROW_GIBBS):  # elements before the swap, or after it
                if update == turn:
                    log_det = elements(data, state, work, log_det, gain, stable, client, now, proposals_key, counts)
                if use_swap and turn == ELEMENT:
                    log_det = swap(data, state, work, log_det, stable, shape, rate, client, now, proposals_key, counts)
            fault = draw_b(b[c], sums, temperature[c], n, shape, rate, client, now, variances_key)
            if fault < 0 and not abs(log_det) < np.inf:
                fault = OTHER
            if fault >= 0:
                fault += 8 * t
                break
        # A chain with a fault has no log-likelihood; its state is not to be used.
        counts[FAULT] = fault
        loglik[c] = np.nan
        if fault < 0:
            value = n * log_det
            for j in range(p):
                value -= n * np.log(2.0 * b[c, j]) + sums[j] / b[c, j]
            loglik[c] = value
