"""Defines the kernels of the sparse models in plain NumPy: docs/spec/sparse.md."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from fedkern._core.rng import streams

from . import rng

# Draws of the horseshoe's scales, local and global, for arrays: section 2 --------------------

LEAST, MOST, LEAST_RATE = 1e-60, 1e60, 1e-290
quiet = np.errstate(divide="ignore", over="ignore", under="ignore", invalid="ignore")


def copied(array):
    """Returns a C-contiguous copy."""
    return np.array(array, order="C")


def clipped(variance):
    """Returns lambda^2 or tau^2 within [1e-60, 1e60], and which were outside; NaN stays."""
    return np.clip(variance, LEAST, MOST), (variance < LEAST) | (variance > MOST)


def until_taken(propose, *arguments):
    """Calls propose(attempt, *arguments) -> (values, taken), attempt by attempt for all that have no value yet."""
    arguments = np.broadcast_arrays(*arguments)
    shape, arguments = arguments[0].shape, [np.ravel(a) for a in arguments]
    values, todo, attempt = np.empty(arguments[0].size), np.arange(arguments[0].size), 0
    while todo.size:
        proposed, taken = propose(attempt, *(a[todo] for a in arguments))
        values[todo] = proposed
        todo = todo[~taken]
        attempt += 1
    return values.reshape(shape)


@quiet
def half_cauchy_precision(m, item, client, step, key):
    """Draws zeta = 1/lambda^2 of density ~ exp(-m zeta) / (1 + zeta); NaN where m is."""

    def propose(attempt, rate, item):
        u, v = rng.uniforms(item, attempt, client, step, key)
        steep = rate >= 1
        u0 = -np.log(np.minimum(rate, 1))
        r = u * (1 + np.e * u0)  # below 1 with probability 1/e / (u0 + 1/e), which is 1 where rate >= 1
        exponential = -np.log(np.minimum(r, 1))
        zeta = np.where(steep, exponential / rate, np.expm1(np.where(r < 1, u0 + exponential, (r - 1) / np.e)))
        bound = np.where(r < 1, 1 + exponential, 0) - rate * (1 + zeta)
        taken = np.where(steep, v * (1 + zeta) < 1, rng.metropolis_accept(bound, v)) | ~(rate >= 0)
        return np.where(rate >= 0, zeta, np.nan), taken

    return until_taken(propose, np.maximum(np.where(m >= 0, m, np.nan), LEAST_RATE), item)


@quiet
def local_variance(m, lambda_sq, scale, expanded, item, client, step, key):
    """Draws lambda^2 given m = d^2 / (2 tau^2), not clipped."""
    if not expanded:
        return scale**2 / half_cauchy_precision(m / scale**2, item, client, step, key)
    first, second = -np.log(rng.uniforms(item, 0, client, step, key))
    nu_inverse = first / (1 / scale**2 + 1 / lambda_sq)
    return (nu_inverse + m) / second


def gamma_proposal(shape, item, attempt, client, step, key):
    """Returns Marsaglia and Tsang's proposal from blocks 0 and 1 of three, and whether it is taken."""
    x, _ = rng.normals(*rng.uniforms(item, 3 * attempt, client, step, key))
    u, boost = rng.uniforms(item, 3 * attempt + 1, client, step, key)
    d = np.where(shape < 1, shape + 1, shape) - 1 / 3
    t = x / (3 * np.sqrt(d))
    log1p = np.log1p(np.where(t > -1, t, 0))
    taken = (t > -1) & rng.metropolis_accept(3 * d * (log1p - t * (1 - t * (0.5 - t / 3))), u)
    return d * (1 + t) ** 3 * np.where(shape < 1, np.exp(np.log(boost) / np.minimum(shape, 1)), 1), taken


@quiet
def global_variance(m, clients, tau_sq, scale, expanded, item, client, step, key):
    """Draws tau^2 given m = (1/2) sum_k d_k^2 / lambda_k^2 over the clients, not clipped."""
    nan = ~(m >= 0)
    if expanded:
        xi_inverse = -np.log(rng.uniforms(item, 2, client, step, key)[0]) / (1 / scale**2 + 1 / tau_sq)
        half = np.full(np.shape(m), (clients + 1) / 2)
        g = until_taken(lambda attempt, shape, item: gamma_proposal(shape, item, attempt, client, step, key), half, item)
        return np.where(nan, np.nan, (xi_inverse + m) / g)
    rate = np.maximum(np.where(nan, np.nan, m / scale**2), LEAST_RATE)
    if clients == 1:
        return scale**2 / half_cauchy_precision(rate, item, client, step, key)

    def propose(attempt, rate, item):
        steep = rate >= (clients - 1) / 2
        g, taken = gamma_proposal(np.where(steep, clients + 1, clients - 1) / 2, item, attempt, client, step, key)
        z = g / rate
        u, _ = rng.uniforms(item, 3 * attempt + 2, client, step, key)
        return z, taken & (u * (1 + z) < np.where(steep, 1, z)) | np.isnan(rate)

    return scale**2 / until_taken(propose, rate, item)


# Local sweeps, a site's scales, coefficients and error variance given theta and tau: sections 2, 3 and 8 --------------------
#
# A regression of a Markov random field is written by its definition: the column of its response is deleted. Its coefficients keep
# their numbers in the row of all columns, which name their random numbers.

AUTO, GRAM, DATA = range(3)
LEAST_FOR_DATA, DATA_ROWS, MOST_DATA_SCALE = 33, 0.6, 1e4
OF_LAMBDA, OF_COEFFICIENTS, OF_SIGMA = range(3)


class Failed(Exception):
    """Reports a draw that is not finite."""


def key(seed, stream, chain):
    return rng.stream_key(int(seed), streams()[stream], int(chain) % 2**64)


def normals(n, first_item, draw, client, step, key):
    out = np.empty(n)
    rng.normal(key, client, step, draw, first_item, out, 1)
    return out


def from_rows(W, a, z, row_normals):
    """Draws u in data space: (I + W W') w = a - v, v = W z + N(0, I), u = z + W'w."""
    w = np.linalg.solve(np.eye(len(W)) + W @ W.T, a - W @ z - row_normals)
    return z + W.T @ w


def from_gram(W, a, z):
    """Draws u = A^-1 rhs + L'^-1 z with L L' = A = I + W'W and rhs = W'a, where W = R S and a = (q - R theta) / sigma."""
    L = np.linalg.cholesky(np.eye(W.shape[1]) + W.T @ W)
    y = solve_triangular(L, W.T @ a, lower=True, check_finite=False)
    return solve_triangular(L.T, y + z, check_finite=False)


def from_orthogonal_factor(W, a, z):
    """Draws the same from the QR factorisation of [W; I] beside [a; 0], whose triangle is L' but for signs."""
    p = W.shape[1]
    rows = np.block([[W, a[:, None]], [np.eye(p), np.zeros((p, 1))]])
    triangle = np.linalg.qr(rows, mode="r")[:p]
    triangle *= np.where(np.diag(triangle) < 0, -1, 1)[:, None]
    return solve_triangular(triangle[:, :p], triangle[:, p] + z, check_finite=False)


def draw_coefficients(R, e, t, sigma, form, columns, width, first_item, client, step, key):
    """Draws d given the prior's standard deviations t and e = q - R theta. Returns also 1 if QR was needed, and 1 if drawn in
    data space."""
    W, a = R * (t / sigma), e / sigma
    z = normals(width, first_item, 0, client, step, key)[columns]
    rows = len(R) and (form == DATA or (form == AUTO and width >= LEAST_FOR_DATA and len(R) < DATA_ROWS * width))
    orthogonal = in_rows = 0
    if rows and np.max(t / sigma, initial=0) < MOST_DATA_SCALE:
        u, in_rows = from_rows(W, a, z, normals(len(R), first_item, 1, client, step, key)), 1
    else:
        try:
            u = from_gram(W, a, z)
        except np.linalg.LinAlgError:
            u, orthogonal = from_orthogonal_factor(W, a, z), 1
    if not np.isfinite(t * u).all():
        raise Failed(OF_COEFFICIENTS)
    return t * u, orthogonal, in_rows


def prior_deviation(t, slab):
    """Returns the standard deviation of N(0, t^2) N(0, slab^2)."""
    return t / np.sqrt(1 + (t / slab) ** 2)


def local_sweep(R, e, rss, n, tau_sq, d, lambda_sq, sigma_sq, model, regression, columns, width, client, step, keys, events):
    """Makes one sweep: lambda, d, sigma^2."""
    expanded, form, scale_lambda, shape, rate, slab = model
    first_item = regression * width
    drawn = local_variance(
        d * d / (2 * tau_sq), lambda_sq, scale_lambda, expanded, first_item + columns, client, step, keys["scales"]
    )
    lambda_sq, outside = clipped(drawn)
    events[0] += outside.sum()
    if np.isnan(lambda_sq).any():
        raise Failed(OF_LAMBDA)
    t = prior_deviation(np.sqrt(lambda_sq * tau_sq), slab)
    d, orthogonal, in_rows = draw_coefficients(
        R, e, t, np.sqrt(sigma_sq), form, columns, width, first_item, client, step, keys["coefficients"]
    )
    events[1] += orthogonal
    events[2] += in_rows
    residual = e - R @ d
    gamma = np.empty(1)
    rng.gamma(np.array([shape + n / 2]), keys["variances"], client, step, regression, gamma, 1)
    sigma_sq = (rate + (rss + residual @ residual) / 2) / gamma[0]
    if not 0 < sigma_sq < np.inf:
        raise Failed(OF_SIGMA)
    return d, lambda_sq, sigma_sq


def sweeps_of(R, e, rss, n, tau_sq, state, model, regression, columns, width, counter, chain, events):
    """Makes all sweeps of one chain of one regression; a draw that is not finite ends them."""
    seed, client, step, n_sweeps = counter
    keys = {name: key(seed, name, chain) for name in ("scales", "coefficients", "variances")}
    events[:] = 0, 0, 0, -1
    for i in range(n_sweeps):
        try:
            state = local_sweep(R, e, rss, n, tau_sq, *state, model, regression, columns, width, client, step + i, keys, events)
        except Failed as failed:
            events[3] = 8 * i + failed.args[0]
            break
    return state


@quiet
def local_sweeps(
    R, theta, tau_sq, deviation, lambda_sq, sigma_sq, q, rss, gram, n, seed, chain, client, step, n_sweeps, expanded, form,
    scale_lambda, shape, rate, slab, new_deviation, new_lambda_sq, new_sigma_sq, events, n_threads,
):  # fmt: skip
    model, counter = (expanded, form, scale_lambda, shape, rate, slab), (seed, client, step, n_sweeps)
    R, p = np.triu(R), R.shape[1]
    for i in range(len(theta)):
        new_deviation[i], new_lambda_sq[i], new_sigma_sq[i] = sweeps_of(
            R, q[i] - R @ theta[i], rss[i], n, tau_sq[i], (deviation[i], lambda_sq[i], sigma_sq[i]), model,
            0, np.arange(p), p, counter, int(chain) + i, events[i],
        )  # fmt: skip


@quiet
def local_sweeps_batched(
    R, theta, tau_sq, deviation, lambda_sq, sigma_sq, gram, n, seed, chain, client, step, n_sweeps, expanded, form, scale_lambda,
    shape, rate, slab, new_deviation, new_lambda_sq, new_sigma_sq, events, n_threads,
):  # fmt: skip
    model, counter = (expanded, form, scale_lambda, shape, rate, slab), (seed, client, step, n_sweeps)
    R, p = np.triu(R), R.shape[1]
    new_deviation[...], new_lambda_sq[...] = 0, 1
    for i in range(len(theta)):
        for j in range(p):
            others = np.delete(np.arange(p), j)
            X, which = R[:, others], (i, j, others)
            new_deviation[which], new_lambda_sq[which], new_sigma_sq[i, j] = sweeps_of(
                X, R[:, j] - X @ theta[which], 0.0, n, tau_sq[which], (deviation[which], lambda_sq[which], sigma_sq[i, j]), model,
                j, others, p, counter, int(chain) + i, events[i, j],
            )  # fmt: skip


@quiet
def gaussian_posterior_draw(R, mean, scale, sigma_sq, q, gram, seed, chain, client, step, form, slab, deviation, n_threads):
    R, p = np.triu(R), R.shape[1]
    for i in range(len(mean)):
        normal_key = key(seed, "coefficients", int(chain) + i)
        t = prior_deviation(scale[i], slab)
        try:
            deviation[i], *_ = draw_coefficients(
                R, q[i] - R @ mean[i], t, np.sqrt(sigma_sq[i]), form, np.arange(p), p, 0, client, step, normal_key
            )
        except Failed:
            deviation[i] = np.nan


# Local sweeps that touch rows, for a logistic response and for missing covariates: section 11 --------------------

OF_OTHERS = 7


def posterior_draw(W, a, prior, z):
    """Returns u = A^-1 W'a + L'^-1 z, L L' = A = diag(prior) + W'W; 1 if QR was needed."""
    try:
        L = np.linalg.cholesky(np.diag(prior) + W.T @ W)
        y = solve_triangular(L, W.T @ a, lower=True, check_finite=False)
        return solve_triangular(L.T, y + z, check_finite=False), 0
    except np.linalg.LinAlgError:
        rows = np.block([[W, a[:, None]], [np.diag(np.sqrt(prior)), np.zeros((len(prior), 1))]])
        triangle = np.linalg.qr(rows, mode="r")[: len(prior)]
        sign = np.where(np.diag(triangle) < 0, -1, 1)
        return solve_triangular(triangle[:, :-1], triangle[:, -1] + sign * z, check_finite=False), 1


def draw_scales(d, tau_sq, lambda_sq, model, client, step, keys, events):
    expanded, scale, slab = model
    drawn = local_variance(0.5 * d * d / tau_sq, lambda_sq, scale, expanded, np.arange(len(d)), client, step, keys["scales"])
    lambda_sq, outside = clipped(drawn)
    events[0] += outside.sum()
    if np.isnan(lambda_sq).any():
        raise Failed(OF_LAMBDA)
    return lambda_sq, prior_deviation(np.sqrt(lambda_sq * tau_sq), slab)


def check(quantity, *values):
    if not all(np.isfinite(v).all() for v in values):
        raise Failed(quantity)


def run_sweeps(sweep, state, n_sweeps, events):
    """Makes the sweeps of one chain; a draw that is not finite ends them."""
    events[:] = 0, 0, 0, -1
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        for i in range(n_sweeps):
            try:
                state = sweep(i, *state)
            except Failed as failed:
                events[3] = 8 * i + failed.args[0]
                break
    return state


def keys_of(seed, chain, *streams):
    return {name: key(seed, name, chain) for name in streams}


def logistic_sweeps(
    X, y, theta, tau_sq, deviation, lambda_sq, alpha, seed, chain, client, step, n_sweeps, expanded, scale_lambda,
    scale_intercept, intercept, slab, new_deviation, new_lambda_sq, new_alpha, events, n_threads,
):  # fmt: skip
    n, p = X.shape
    for c in range(len(theta)):
        keys = keys_of(seed, int(chain) + c, "scales", "coefficients", "augmentation")
        base = X @ theta[c]

        def sweep(i, d, lambda_sq, alpha, c=c, keys=keys, base=base):
            counter = client, step + i
            lambda_sq, t = draw_scales(d, tau_sq[c], lambda_sq, (expanded, scale_lambda, slab), *counter, keys, events[c])
            omega = np.empty(n)
            rng.polya_gamma(base + alpha + X @ d, keys["augmentation"], *counter, 0, omega, 1)
            root = np.sqrt(omega)
            Z, s = np.column_stack([X, np.ones(n)])[:, : p + intercept], np.append(t, scale_intercept)[: p + intercept]
            W, a = root[:, None] * Z * s, (y[c] - 0.5) / root - root * base
            z = normals(p + intercept, 0, 0, *counter, keys["coefficients"])
            check(OF_COEFFICIENTS, W, a)
            u, again = posterior_draw(W, a, np.ones(len(z)), z)
            events[c, 1] += again
            intercept_drawn = s[p] * u[p] if intercept else 0.0
            d, alpha = t * u[:p], intercept_drawn
            check(OF_COEFFICIENTS, d, alpha)
            return d, lambda_sq, alpha

        intercept_before = alpha[c] if intercept else 0.0
        state = deviation[c], lambda_sq[c], intercept_before
        new_deviation[c], new_lambda_sq[c], new_alpha[c] = run_sweeps(sweep, state, n_sweeps, events[c])


def impute(row, r, law, b, sigma, normal):
    """Draws x_U | x_O, y by precision C^-1 + b b' / sigma^2: a draw of N(shift + K x_O, C), C = L L', corrected by y."""
    K, L, shift = law
    missing = np.diag(L) > 0
    drawn = np.where(missing, shift + K @ np.where(missing, 0, row) + L @ normal[:-1], row)
    along = L.T @ b
    gain = L @ along / (along @ along + sigma**2)
    return np.where(missing, drawn + gain * (r - b @ drawn - sigma * normal[-1]), row)


def imputed_sweeps(
    y, pattern, K, L, shift, theta, tau_sq, deviation, lambda_sq, sigma_sq, alpha, completed, seed, chain, client, step, n_sweeps,
    expanded, scale_lambda, shape, rate, slab, intercept, new_deviation, new_lambda_sq, new_sigma_sq, new_alpha, new_completed,
    events, n_threads,
):  # fmt: skip
    n, p = completed.shape[1:]
    for c in range(len(theta)):
        keys = keys_of(seed, int(chain) + c, "scales", "coefficients", "variances", "imputation")

        def sweep(i, d, lambda_sq, variance, alpha, X, c=c, keys=keys):
            counter = client, step + i
            lambda_sq, t = draw_scales(d, tau_sq[c], lambda_sq, (expanded, scale_lambda, slab), *counter, keys, events[c])
            sigma = np.sqrt(variance)
            e = y[c] - X @ theta[c]
            W, a = np.column_stack([X * (t / sigma), np.full(n, 1 / np.sqrt(n))])[:, : p + intercept], e / sigma
            check(OF_COEFFICIENTS, W, a)
            z = normals(p + intercept, 0, 0, *counter, keys["coefficients"])
            u, again = posterior_draw(W, a, np.append(np.ones(p), 0)[: p + intercept], z)
            events[c, 1] += again
            intercept_drawn = sigma / np.sqrt(n) * u[p] if intercept else 0.0
            d, alpha = t * u[:p], intercept_drawn
            check(OF_COEFFICIENTS, d, alpha)
            rss, gamma = ((e - X @ d - alpha) ** 2).sum(), np.empty(1)
            rng.gamma(np.array([shape + n / 2]), keys["variances"], *counter, 0, gamma, 1)
            variance = (rate + rss / 2) / gamma[0]
            check(OF_SIGMA, variance)
            X = X.copy()
            for row in np.flatnonzero(pattern >= 0):
                normal = normals(p + 1, row * (p // 2 + 1), 0, *counter, keys["imputation"])
                of = pattern[row]
                law = K[of], L[of], shift[of]
                X[row] = impute(X[row], y[c, row] - alpha, law, theta[c] + d, np.sqrt(variance), normal)
            check(OF_OTHERS, X)
            return d, lambda_sq, variance, alpha, X

        intercept_before = alpha[c] if intercept else 0.0
        state = deviation[c], lambda_sq[c], sigma_sq[c], intercept_before, completed[c]
        new_deviation[c], new_lambda_sq[c], new_sigma_sq[c], new_alpha[c], new_completed[c] = run_sweeps(
            sweep, state, n_sweeps, events[c]
        )


# The server's sweeps: sections 2, 4 and 11 --------------------

SERVER = 2**32 - 1
LEAST_RHO = 1e-12
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


def gamma(shape, item, step, key):
    value = np.empty(len(item))
    for e, i in enumerate(item):
        rng.gamma(shape[e : e + 1], key, SERVER, step, int(i), value[e : e + 1], 1)
    return value


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
        of_spike = 0.0 if fixed else 1 / o.c0
        weight = np.where(self.gamma == 1, 1.0, of_spike)
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
def row_sweep(row, sums, rho, n_clients, o, step, keys):
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
        return float(np.clip(x / (x + y), LEAST_RHO, 1 - LEAST_RHO))


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
            q, fault = row_sweep(row, sums, rho[i], n_clients, o, step + t, keys)
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
        columns = slice(None) if o.common else row.active
        eta[i, columns] = row.common_eta if o.common else row.eta
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
        locals_, states = (moved_deviation[:, i], new_lambda_sq[:, i]), [a[i] for a in state]
        sweep_chain(chain + i, locals_, None, len(deviation), indicators, states, options, seed, step, n_passes, events[i])


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
        states = [a[i] for a in state]
        sweep_chain(chain + i, None, sums[:, i], n_clients, indicators, states, options, seed, step, 1, events[i])


def local_sums(deviation, lambda_sq, slab, sums, n_threads):
    sums[...] = local_sums_of(deviation, lambda_sq, slab)


# Moves: section 6 (and 11 for the slab) --------------------


def move_terms(R, q, block, theta, deviation, tau_sq, sigma_sq, slab, gradient, precision, n_threads):
    """Returns Z'h and Z'HZ of one client with H = R'R / sigma^2, h = R'(q - R theta_k) / sigma^2, Z = [I, diag(w)], w = d /
    tau."""
    p = theta.shape[1]
    column, of_tau = block % max(p, 1), block >= p
    for i in range(len(theta)):
        w = np.where(of_tau, (deviation[i] / np.sqrt(tau_sq[i]))[column], 1.0)
        V = R[:, column] * w
        gradient[i] = V.T @ (q[i] - R @ (theta[i] + deviation[i])) / sigma_sq[i]
        precision[i] = V.T @ V / sigma_sq[i]
        if np.isfinite(slab):
            gradient[i] -= np.where(of_tau, w * deviation[i][column] / slab**2, 0)
            precision[i] += np.diag(np.where(of_tau, (w / slab) ** 2, 0))


def move(
    gradient, precision, block, theta, tau_sq, gamma, eta, seed, chain, step, scale_tau, c0, spike_variance, new_theta, t,
    n_threads,
):  # fmt: skip
    """Makes the draw x += N(Q^-1 g, Q^-1), x = (theta, t) in the block: the clients' sums and the terms of the prior, diag(1/v,
    1/kappa)."""
    p, w = theta.shape[1], len(block)
    for i in range(len(theta)):
        moves = key(seed, "moves", chain + i)
        u, _ = rng.uniforms(rng.items(0, p), 1, SERVER, step, moves)
        kappa = 0.5 * (scale_tau**2 + tau_sq[i]) / -np.log(u)
        spike = spike_variance if spike_variance > 0 else c0 * eta[i]
        v = np.where(gamma[i] == 1, eta[i], spike)
        x = np.concatenate([theta[i], np.sqrt(tau_sq[i])])
        prior = 1 / np.concatenate([v, kappa])[block]
        Q, g = precision[i] + np.diag(prior), gradient[i] - prior * x[block]
        normal = np.empty(w)
        rng.normal(moves, SERVER, step, 0, 0, normal, 1)
        scale = 1 / np.sqrt(np.diag(Q))
        try:
            L = np.linalg.cholesky(scale[:, None] * Q * scale)
            x[block] += scale * np.linalg.solve(L.T, np.linalg.solve(L, scale * g) + normal)
        except np.linalg.LinAlgError:
            x[block] = np.nan
        new_theta[i], t[i] = x[:p], x[p:]
