"""Defines the kernels of the cyclic structural equation model in plain NumPy: sparse.md, sections 9 and 10. One chain at a
time."""

import numpy as np
from scipy.linalg import solve_triangular

from fedkern._core.rng import streams

from . import rng
from .shrinkage import clipped, local_variance

ROW_GIBBS, ELEMENT, ROW = range(3)  # update
LAMBDA, COEFFICIENTS, SCALE, OTHER = 0, 1, 2, 7  # quantities in a fault
CLIPPED, ACCEPTED, PROPOSED, SWAPS, REFACTORISED, FAULT = range(6)  # events
RESULTS = ("deviation", "lambda_sq", "b", "log_step", "loglik", "events")
LEAST_RATIO, REFACTORISE_BELOW = 1e-12, 1e-3  # of determinants
TARGET = 0.44  # acceptance of one-dimensional moves
LEAST_RESIDUAL = 1e-150  # beside b


def log_density(Y, coefficients, b, loglik, n_threads):
    for c in range(len(loglik)):
        p, n = Y[c].shape
        B = np.eye(p) - coefficients[c] * (1 - np.eye(p))
        sums = np.abs(B @ Y[c]).sum(axis=1)
        loglik[c] = n * (np.linalg.slogdet(B)[1] - np.log(2 * b[c]).sum()) - (sums / b[c]).sum()


def spectral_radius_below_one(coefficients):
    return np.abs(np.linalg.eigvals(coefficients)).max(initial=0) < 1


def swapped(B, b, j, h):
    """Returns B = I - Theta with rows j and h exchanged and divided by their diagonal, and the b that go with them. It undoes
    itself."""
    new_B, new_b = B.copy(), b.copy()
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        new_B[j], new_B[h] = B[h] / B[h, j], B[j] / B[j, h]
        new_b[j], new_b[h] = b[h] / abs(B[h, j]), b[j] / abs(B[j, h])
    new_B[j, j] = new_B[h, h] = 1
    return new_B, new_b


def pair(u, p):
    """Returns the one of the pairs (0, 1), (0, 2), ..., (p - 2, p - 1) that a uniform number chooses."""
    rows, columns = np.triu_indices(p, 1)
    number = min(int(u * len(rows)), len(rows) - 1)
    return rows[number], columns[number]


class Fault(Exception):
    pass


class Chain:
    """Holds the state of one chain; `d` are the deviations, theta + d the coefficients. Diagonals are never read."""

    def __init__(self, Y, theta, tau_sq, d, lambda_sq, b, log_step, power, seed, chain, client, stable, events):
        self.Y, self.theta, self.tau_sq = Y, theta, tau_sq
        self.d, self.lambda_sq, self.b, self.log_step = d, lambda_sq, b, log_step
        self.p, self.n = Y.shape
        self.power, self.client, self.stable, self.events = power, client, stable, events
        self.off = ~np.eye(self.p, dtype=bool)
        self.square = (Y**2).sum(axis=1)
        self.keys = {name: rng.stream_key(seed, number, chain) for name, number in streams().items()}

    def uniforms(self, stream, items, draw):
        return rng.uniforms(np.asarray(items, np.uint64), draw, self.client, self.step, self.keys[stream])

    def normals(self, stream, items, draw):
        return rng.normals(*self.uniforms(stream, items, draw))

    def items(self, j=None):
        """Returns the items of all elements, or of those of row j."""
        items = np.arange(self.p**2).reshape(self.p, self.p)
        return items if j is None else items[j]

    # ---- What follows from the coefficients.

    def start(self):
        """Computes B, its inverse and determinant and the residuals from the coefficients, at the start of every sweep."""
        self.B = np.eye(self.p) - np.where(self.off, self.theta + self.d, 0)
        if not np.isfinite(self.B).all():
            raise Fault(OTHER)
        self.factorise()
        self.e = self.B @ self.Y
        self.sums = np.abs(self.e).sum(axis=1)

    def factorise(self):
        self.log_det = np.linalg.slogdet(self.B)[1]
        if not np.isfinite(self.log_det):
            raise Fault(OTHER)
        self.W = np.linalg.inv(self.B)

    def loglik(self):
        return self.n * (self.log_det - np.log(2 * self.b).sum()) - (self.sums / self.b).sum()

    def is_stable(self, B, det_ratio):
        """Tells whether the spectral radius of I - B is below 1, where it was below 1 before: then the determinant keeps its
        sign."""
        return det_ratio > 0 and spectral_radius_below_one(np.eye(self.p) - B)

    def move_row(self, j, delta, ratio, e, sums):
        """Takes theta_j += delta, whose determinant ratio, residuals and their sum are known."""
        self.d[j, self.off[j]] += delta[self.off[j]]
        self.B[j, self.off[j]] -= delta[self.off[j]]
        self.e[j], self.sums[j] = e, sums
        if abs(ratio) < REFACTORISE_BELOW:
            self.events[REFACTORISED] += 1
            self.factorise()
        else:
            self.log_det += np.log(abs(ratio))
            self.W += np.outer(self.W[:, j], delta @ self.W) / ratio

    # ---- Moves.

    def draw_scales(self, expanded, scale_lambda):
        on, items = self.off, self.items()[self.off].astype(np.uint64)
        m = self.d[on] ** 2 / (2 * self.tau_sq[on])
        drawn = local_variance(m, self.lambda_sq[on], scale_lambda, expanded, items, self.client, self.step, self.keys["scales"])
        self.lambda_sq[on], outside = clipped(drawn)
        self.events[CLIPPED] += outside.sum()
        if not (np.isfinite(self.lambda_sq[on]) & (self.tau_sq[on] > 0)).all():
            raise Fault(LAMBDA)

    def steps(self):
        """Returns standard deviations of the proposals. Neither these nor the numbers that they depend on move with the
        coefficients."""
        variance = self.lambda_sq * self.tau_sq
        likelihood = self.power * self.square[None, :] / self.b[:, None] ** 2
        return np.sqrt(variance / (1 + variance * likelihood))

    def try_row(self, j, delta, log_u):
        """Proposes theta_j += delta by Metropolis."""
        on = self.off[j]
        ratio = 1 - delta[on] @ self.W[on, j]
        e = self.e[j] - delta[on] @ self.Y[on]
        sums = np.abs(e).sum()
        self.events[PROPOSED] += 1
        if not abs(ratio) >= LEAST_RATIO:
            return False
        prior = delta * (2 * self.d[j] + delta) / (2 * self.lambda_sq[j] * self.tau_sq[j])
        fit = self.n * np.log(abs(ratio)) - (sums - self.sums[j]) / self.b[j]
        if not log_u < self.power * fit - prior[on].sum():
            return False
        if self.stable:
            B = self.B.copy()
            B[j, on] -= delta[on]
            if not self.is_stable(B, ratio):
                return False
        self.events[ACCEPTED] += 1
        self.move_row(j, delta, ratio, e, sums)
        return True

    def elements(self, gain):
        """Proposes a move of each element. Block 0 is the proposal's normal, block 1 the acceptance."""
        delta = np.exp(self.log_step) * self.steps() * self.normals("proposals", self.items(), 0)[0]
        log_u = np.log(self.uniforms("proposals", self.items(), 1)[0])
        for j, h in zip(*np.nonzero(self.off)):
            accepted = self.try_row(j, np.where(np.arange(self.p) == h, delta[j, h], 0.0), log_u[j, h])
            self.log_step[j, h] += gain * (accepted - TARGET)

    def rows(self, gain):
        """Proposes moves of all elements of a row at once. Block 2 of each is its normal; block 1 of the diagonal is the
        acceptance."""
        delta = np.exp(np.diag(self.log_step))[:, None] * self.steps() * self.normals("proposals", self.items(), 2)[0]
        log_u = np.log(self.uniforms("proposals", np.diag(self.items()), 1)[0])
        for j in range(self.p):
            accepted = self.try_row(j, np.where(self.off[j], delta[j], 0.0), log_u[j])
            self.log_step[j, j] += gain * (accepted - TARGET)

    def gibbs_row(self, j):
        """Draws a row by augmented row Gibbs, section 9, steps 1 to 4."""
        if self.p < 2:
            return
        p, n, on = self.p, self.n, self.off[j]
        # 1. The errors are normal with variances s, exponential of mean 2 (b / power)^2.
        b = self.b[j] / self.power
        mean = 1 / (b * np.maximum(np.abs(self.e[j]), LEAST_RESIDUAL * b))
        weight = np.empty(n)
        rng.inverse_gaussian(mean, np.full(n, b**-2), self.keys["augmentation"], self.client, self.step, j * n, weight, 1)
        # 2. The row is normal: d = S u, u ~ N(A^-1 r, A^-1), A = I + S G S.
        S, Y = np.sqrt(self.lambda_sq[j] * self.tau_sq[j])[on], self.Y[on]
        A = np.eye(p - 1) + S[:, None] * ((Y * weight) @ Y.T) * S
        right = S * (Y @ (weight * (self.Y[j] - self.theta[j, on] @ Y)))
        L = np.linalg.cholesky(A)
        centre = solve_triangular(L, right, lower=True)
        z = np.stack(self.normals("coefficients", j * p + np.arange(p), 0), axis=1).ravel()[:p][on]
        # 3. The determinant's ratio is l = 1 + r x, and x ~ N(a, 1) under the normal: times |l|^(power n).
        c = solve_triangular(L, S * self.W[on, j], lower=True)
        variance = c @ c
        if variance >= 1e-200:
            r = np.sqrt(variance)
            c /= r
            a = (self.d[j, on] @ self.W[on, j]) / r - c @ centre
            x = self.draw_ratio(j, r, a)
            # 4. The normal draw, moved along c so that its linear form is x.
            z += c * (a - c @ z - x)
        delta = np.zeros(p)
        delta[on] = S * solve_triangular(L.T, centre + z) - self.d[j, on]
        ratio = 1 - delta[on] @ self.W[on, j]
        B = self.B.copy()
        B[j, on] -= delta[on]
        if not self.stable or self.is_stable(B, ratio):
            e = self.e[j] - delta[on] @ self.Y[on]
            self.move_row(j, delta, ratio, e, np.abs(e).sum())

    def draw_ratio(self, j, r, a):
        """Makes one independence step of x from 0, density ~ |1 + r x|^N exp(-(x - a)^2 / 2): a normal at each of its two
        modes."""
        N = self.power * self.n
        turn = 1 - a * r  # r x^2 + turn x - (a + N r) = 0
        q = -(turn + np.copysign(np.hypot(1 + a * r, 2 * r * np.sqrt(N)), turn)) / 2
        mode = np.array([q / r, -(a + N * r) / q])
        ratio = 1 + r * mode
        small = np.argmin(np.abs(ratio))
        ratio[small] = -N * r**2 / ratio[1 - small]  # the product of the two
        sd = 1 / np.sqrt(1 + N * (r / ratio) ** 2)

        def log_target(x, ratio):
            return N * np.log(np.abs(ratio)) - (x - a) ** 2 / 2

        mass = log_target(mode, ratio) + np.log(sd)
        with np.errstate(over="ignore"):
            first = np.clip(1 / (1 + np.exp(mass[1] - mass[0])), 0.001, 0.999)
        weight, wide = np.array([first, 1 - first]), 1.3 * sd

        def log_proposal(x):
            parts = np.log(weight / wide) - ((x - mode) / wide) ** 2 / 2
            return np.logaddexp(*parts)

        item = [self.items()[j, j]]
        choice, accept = self.uniforms("proposals", item, 2)
        which = 0 if choice[0] < first else 1
        x = mode[which] + wide[which] * self.normals("proposals", item, 3)[0][0]
        if not abs(1 + r * x) >= LEAST_RATIO:
            return 0.0
        gain = log_target(x, 1 + r * x) - log_target(0, 1) + log_proposal(0) - log_proposal(x)
        return x if np.log(accept[0]) < gain else 0.0

    def swap(self, shape, rate):
        """Proposes a swap. Item p^2, block 0 has the pair and the acceptance."""
        if self.p < 2:
            return
        choice, accept = self.uniforms("proposals", [self.p**2], 0)
        j, h = pair(choice[0], self.p)
        u, w = self.B[j, h], self.B[h, j]
        if u == 0 or w == 0:
            return
        # The likelihood stays; the ratio has the priors and the Jacobian of the exchange.
        B, b = swapped(self.B, self.b, j, h)
        two = [j, h]
        d = -B[two] - self.theta[two]
        with np.errstate(over="ignore"):
            quadratic = ((d**2 - self.d[two] ** 2) / (2 * self.lambda_sq[two] * self.tau_sq[two]))[self.off[two]].sum()
            prior_b = ((shape + 1) * np.log(b[two] / self.b[two]) + rate * (1 / b[two] - 1 / self.b[two])).sum()
            log_ratio = -quadratic - prior_b - (self.p + 1) * np.log(abs(u * w))
        if not np.log(accept[0]) < log_ratio or (self.stable and not self.is_stable(B, -1 / (u * w))):
            return
        # The same exchange in all that is kept beside the coefficients.
        self.events[SWAPS] += 1
        self.d[two] = np.where(self.off[two], d, self.d[two])
        self.B, self.b[:] = B, b
        self.e[two] = self.e[h] / w, self.e[j] / u
        self.sums[two] = self.sums[h] / abs(w), self.sums[j] / abs(u)
        self.W[:, two] = np.stack([self.W[:, h] * w, self.W[:, j] * u], axis=1)
        self.log_det -= np.log(abs(u * w))

    def draw_b(self, shape, rate):
        gamma = np.empty(self.p)
        rng.gamma(np.full(self.p, shape + self.power * self.n), self.keys["variances"], self.client, self.step, 0, gamma, 1)
        self.b[:] = (rate + self.power * self.sums) / gamma
        if not (np.isfinite(self.b) & (self.b > 0)).all():
            raise Fault(SCALE)

    def sweep(self, step, update, swap, adapt, expanded, scale_lambda, shape, rate):
        self.step = step
        gain = (step + 1.0) ** -0.6 if adapt else 0.0
        self.start()
        self.draw_scales(expanded, scale_lambda)
        if not np.isfinite(self.sums).all():
            raise Fault(COEFFICIENTS)
        if update == ROW_GIBBS:
            for j in range(self.p):
                self.gibbs_row(j)
        elif update == ELEMENT:
            self.elements(gain)
        else:
            self.rows(gain)
        if swap:
            self.swap(shape, rate)
        if update == ROW_GIBBS:
            self.elements(gain)
        self.draw_b(shape, rate)


def sweeps(
    Y, theta, tau_sq, deviation, lambda_sq, b, log_step, temperature, seed, chain, client, step, n_sweeps, update, swap, stable,
    adapt, expanded, scale_lambda, shape, rate, deviation_out, lambda_sq_out, b_out, log_step_out, loglik, events, n_threads,
):  # fmt: skip
    for out, start in ((deviation_out, deviation), (lambda_sq_out, lambda_sq), (b_out, b), (log_step_out, log_step)):
        out[...] = start
    events[...] = 0
    for c in range(len(Y)):
        events[c, FAULT] = -1
        state = Chain(
            Y[c], theta[c], tau_sq[c], deviation_out[c], lambda_sq_out[c], b_out[c], log_step_out[c], temperature[c],
            int(seed), chain + c, client, stable, events[c],
        )  # fmt: skip
        try:
            for t in range(n_sweeps):
                state.sweep(step + t, update, swap, adapt, expanded, scale_lambda, shape, rate)
            loglik[c] = state.loglik()
        except Fault as fault:
            events[c, FAULT] = 8 * t + fault.args[0]
            loglik[c] = np.nan
