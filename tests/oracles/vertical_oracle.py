"""Gaussian vertical models in closed form (vertical.md, section 3), their Gibbs sampler, and logistic ones by quadrature.

One model is written three times: as the marginal regression of the specification, as one joint Gaussian of (theta, z) assembled
from its squares, and as conditionals. Nothing here is shared with the package.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy import linalg, stats


def log_gaussian(x, mean, covariance):
    """log N(x; mean, covariance), by a Cholesky factor."""
    L = np.linalg.cholesky(covariance)
    u = linalg.solve_triangular(L, x - mean, lower=True)
    return -0.5 * (u @ u + len(x) * np.log(2 * np.pi)) - np.log(np.diag(L)).sum()


def log_mass(precision, shift, constant):
    """log of the integral of exp(constant - v'Pv/2 + shift'v)."""
    L = np.linalg.cholesky(precision)
    u = linalg.solve_triangular(L, shift, lower=True)
    return constant + 0.5 * (u @ u + len(u) * np.log(2 * np.pi)) - np.log(np.diag(L)).sum()


@dataclass(frozen=True)
class Joint:
    """exp(constant - v'Kv/2 + shift'v) of v = (server's columns, theta_1, ..., theta_J, z_1, ..., z_J)."""

    K: np.ndarray
    shift: np.ndarray
    constant: float
    server: slice
    theta: list[slice]
    z: list[slice]

    @cached_property
    def mean(self):
        return np.linalg.solve(self.K, self.shift)

    @cached_property
    def covariance(self):
        return np.linalg.inv(self.K)

    @property
    def log_normaliser(self):
        return log_mass(self.K, self.shift, self.constant)

    def elbo(self, mean, root):
        """Of v = mean + root e, e standard normal: any Gaussian family, given by its square root."""
        d = mean - self.mean
        sign, log_det = np.linalg.slogdet(root)
        assert sign != 0
        expected = self.constant + 0.5 * self.shift @ self.mean - 0.5 * (d @ self.K @ d + (self.K @ root * root).sum())
        return expected + 0.5 * len(mean) * np.log(2 * np.pi * np.e) + log_det

    def optimum(self, family, full=True):
        """Square root of the best covariance of a family: every family here has the exact mean.

        family: "mean-field" (theta_j a block, every z_ij alone) or "structured" (z given theta_j, of the same client, is Gaussian
        with a mean linear in theta_j and a diagonal covariance); full: theta_j's block is full, or diagonal.
        """
        K, root = self.K, np.zeros_like(self.K)
        blocks = [self.server, *self.theta]
        for block, z in zip(blocks, [None, *self.z]):
            precision = K[block, block]
            if z is not None:
                own = np.diag(K[z, z])
                np.testing.assert_allclose(K[z, z], np.diag(own), atol=1e-12)  # the rows of one client don't meet
                root[z, z] = np.diag(own**-0.5)
                if family == "structured":
                    slope = -K[z, block] / own[:, None]
                    precision = precision + K[block, z] @ slope
            keep = precision if full else np.diag(np.diag(precision))
            L = np.linalg.cholesky(np.linalg.inv(keep))
            root[block, block] = L
            if z is not None and family == "structured":
                root[z, block] = slope @ L
        return root


@dataclass(frozen=True)
class Model:
    """y ~ N(offset + X0 b + sum_j X_j theta_j, sd sigma), augmented ("av") or power-likelihood ("pl").

    X0 are the server's own columns (an intercept is a column of ones): they have no auxiliary variable. Priors are N(m0, P0^-1),
    by default standard.
    """

    kind: str
    X: list
    y: np.ndarray
    sigma: float
    rho: float
    X0: np.ndarray | None = None
    offset: np.ndarray | float = 0.0
    mean0: list | None = None
    precision0: list | None = None
    designs: list = field(init=False)

    def __post_init__(self):
        server = np.zeros((self.n, 0)) if self.X0 is None else self.X0
        object.__setattr__(self, "designs", [server, *self.X])

    @property
    def J(self):
        return len(self.X)

    @property
    def n(self):
        return len(self.y)

    @property
    def s2(self):
        """The noise variance that is left of (sigma, rho)."""
        return self.sigma**2 + (self.J if self.kind == "av" else (self.J - 1) ** 2 / self.J) * self.rho**2

    @property
    def pooled(self):
        return np.hstack(self.designs)

    def prior(self):
        """(mean, precision) of all coefficients, the server's first."""
        sizes = [d.shape[1] for d in self.designs]
        means = self.mean0 or [np.zeros(p) for p in sizes]
        precisions = self.precision0 or [np.eye(p) for p in sizes]
        return np.concatenate(means), linalg.block_diag(*precisions)

    def posterior(self):
        """(mean, precision) of the coefficients: section 3."""
        m0, P0 = self.prior()
        P = P0 + self.pooled.T @ self.pooled / self.s2
        return np.linalg.solve(P, P0 @ m0 + self.pooled.T @ (self.y - self.offset) / self.s2), P

    def log_normaliser(self):
        """Section 3."""
        m0, P0 = self.prior()
        X = self.pooled
        marginal = log_gaussian(self.y - self.offset, X @ m0, self.s2 * np.eye(self.n) + X @ np.linalg.solve(P0, X.T))
        if self.kind == "av":
            return marginal
        return marginal - 0.5 * self.n * (self.J - 1) * np.log1p(self.rho**2 / (self.J * self.sigma**2))

    def joint(self):
        """The joint density as a sum of squares of (A v - c)."""
        sizes = [d.shape[1] for d in self.designs] + [self.n] * self.J
        ends = np.cumsum(sizes)
        at = [slice(end - size, end) for end, size in zip(ends, sizes)]
        server, theta, z = at[0], at[1 : 1 + self.J], at[1 + self.J :]
        m0, P0 = self.prior()
        d, p = ends[-1], len(m0)
        K, shift = np.zeros((d, d)), np.zeros(d)
        K[:p, :p], shift[:p] = P0, P0 @ m0
        constant = 0.5 * np.linalg.slogdet(P0)[1] - 0.5 * p * np.log(2 * np.pi) - 0.5 * m0 @ P0 @ m0

        def add(columns, target, sd, weight=1.0):
            nonlocal K, shift, constant
            A = np.zeros((self.n, d))
            for where, block in columns:
                A[:, where] += block
            K = K + weight * A.T @ A / sd**2
            shift = shift + weight * A.T @ target / sd**2
            constant += weight * (-self.n * np.log(sd) - 0.5 * self.n * np.log(2 * np.pi) - 0.5 * target @ target / sd**2)

        eye, y = np.eye(self.n), self.y - self.offset
        for j in range(self.J):
            add([(z[j], eye), (theta[j], -self.X[j])], np.zeros(self.n), self.rho)
        if self.kind == "av":
            add([(server, self.designs[0]), *((where, eye) for where in z)], y, self.sigma)
        else:
            for j in range(self.J):
                others = [(z[k], eye) for k in range(self.J) if k != j]
                add([(server, self.designs[0]), (theta[j], self.X[j]), *others], y, self.sigma, 1 / self.J)
        return Joint(K, shift, constant, server, theta, z)

    def log_joint(self, v):
        """The density written as the specification writes it (section 2), for brute force; v (..., d)."""
        sizes = np.cumsum([d.shape[1] for d in self.designs] + [self.n] * self.J)[:-1]
        b, *rest = np.split(v, sizes, axis=-1)
        theta, z = rest[: self.J], np.stack(rest[self.J :])
        m0, P0 = self.prior()
        value = stats.multivariate_normal(m0, np.linalg.inv(P0)).logpdf(np.concatenate([b, *theta], axis=-1))
        base = self.offset + b @ self.designs[0].T
        g = np.stack([t @ X.T for t, X in zip(theta, self.X)])
        value = value + stats.norm.logpdf(z, g, self.rho).sum(axis=(0, -1))
        if self.kind == "av":
            return value + stats.norm.logpdf(self.y, base + z.sum(axis=0), self.sigma).sum(axis=-1)
        each = [stats.norm.logpdf(self.y, base + g[j] + np.delete(z, j, axis=0).sum(axis=0), self.sigma) for j in range(self.J)]
        return value + sum(e.sum(axis=-1) for e in each) / self.J


def gibbs(model, chains, sweeps, burn_in, random):
    """Section 3's sampler without the server's columns: theta (sweeps, chains, p) and z (sweeps, chains, J, n)."""
    assert model.X0 is None
    m0, P0 = model.prior()
    J, n, X, pl = model.J, model.n, model.X, model.kind == "pl"
    ends = np.cumsum([x.shape[1] for x in X])
    at = [slice(end - x.shape[1], end) for end, x in zip(ends, X)]
    y, own, prior_z = model.y - model.offset, 1 / (J * model.sigma**2), 1 / model.rho**2
    weight = prior_z + (own if pl else 0.0)
    V = [np.linalg.inv(P0[a, a] + weight * x.T @ x) for a, x in zip(at, X)]
    L = [np.linalg.cholesky(v) for v in V]
    theta, z = np.zeros((chains, len(m0))), np.zeros((chains, J, n))
    kept = []
    for sweep in range(burn_in + sweeps):
        for j, (a, x) in enumerate(zip(at, X)):
            rest = y - z.sum(axis=1) + z[:, j]
            c = P0[a, a] @ m0[a] + (z[:, j] * prior_z + (rest * own if pl else 0.0)) @ x
            theta[:, a] = c @ V[j] + random.standard_normal((chains, x.shape[1])) @ L[j].T
        g = np.stack([theta[:, a] @ x.T for a, x in zip(at, X)], axis=1)
        for j in range(J):
            total = z.sum(axis=1) - z[:, j]
            if pl:
                others = [k for k in range(J) if k != j]
                precision = prior_z + (J - 1) * own
                shift = g[:, j] * prior_z + own * sum((y - g[:, k] - (total - z[:, k]) for k in others), np.zeros((chains, n)))
            else:
                precision = prior_z + 1 / model.sigma**2
                shift = g[:, j] * prior_z + (y - total) / model.sigma**2
            z[:, j] = shift / precision + random.standard_normal((chains, n)) / np.sqrt(precision)
        if sweep >= burn_in:
            kept.append((theta.copy(), z.copy()))
    return tuple(np.array(values) for values in zip(*kept))


def logistic_log_normaliser(kind, X, y, rho, prior_sd=1.0, nodes=61):
    """log of the integral over (theta, z) of a logistic model without intercept and with one column a client.

    AV: sum_j z_ij is N(eta_i, J rho^2). PL with two clients: the two terms of a row see one z each, so they separate.
    """
    J = len(X)
    assert kind == "av" or J == 2
    e, w = np.polynomial.hermite_e.hermegauss(61)
    w = w / w.sum()
    t, u = np.polynomial.hermite_e.hermegauss(nodes)
    u = u / u.sum()
    grid = np.stack(np.meshgrid(*[prior_sd * t] * J, indexing="ij"), axis=-1).reshape(-1, J)
    mass = np.prod(np.stack(np.meshgrid(*[u] * J, indexing="ij"), axis=-1), axis=-1).ravel()
    eta = grid @ np.hstack(X).T
    log_p = np.zeros(len(grid))
    for i, y_i in enumerate(y):
        sign = 2 * y_i - 1
        if kind == "av":
            log_p += np.log((1 / (1 + np.exp(-sign * (eta[:, i, None] + np.sqrt(J) * rho * e)))) @ w)
        else:
            log_p += 2 * np.log(((1 + np.exp(-sign * (eta[:, i, None] + rho * e))) ** -0.5) @ w)
    top = log_p.max()
    return top + np.log(mass @ np.exp(log_p - top))
