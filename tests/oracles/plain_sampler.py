"""The sparse regression sampled in the plainest way: all sites' rows in one place, one number after the other.

Written from sparse.md, sections 1 to 4 and 7. It shares only the random numbers (streams and counters) with the library,
so a federated run must give the same draws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedkern.kernels import rng

SERVER = 2**32 - 1


@dataclass(frozen=True)
class Settings:
    c0: float = 0.01
    a_rho: float = 1.0
    b_rho: float = 1.0
    a_eta: float = 2.0
    b_eta: float = 1.0
    a_sigma: float = 2.0
    b_sigma: float = 1.0
    s_lambda: float = 1.0
    s_tau: float = 1.0
    local_sweeps: int = 1
    server_sweeps: int = 5


class Numbers:
    """The random numbers of one party (a client, or the server) in one sweep."""

    def __init__(self, seed, chain, client, step):
        self.seed, self.chain, self.where = seed, chain, {"client": client, "step": step}

    def key(self, stream):
        return rng.key(self.seed, stream, self.chain)

    def uniforms(self, stream, item, block=0):
        return rng.uniform(2, key=self.key(stream), first_item=item, draw=block, **self.where)

    def normals(self, stream, n):
        return rng.normal(n, key=self.key(stream), **self.where)

    def normal(self, stream, item):
        return rng.normal(1, key=self.key(stream), first_item=item, **self.where)[0]

    def gamma(self, stream, item, shape):
        return rng.gamma(shape, size=1, key=self.key(stream), first_item=item, **self.where)[0]


def draw_zeta(m, numbers, stream, item):
    """p(zeta) ~ exp(-m zeta) / (1 + zeta)."""
    m = max(m, 1e-290)
    attempt = 0
    while True:
        first, second = numbers.uniforms(stream, item, attempt)
        if m >= 1:
            zeta = -math.log(first) / m
            if second < 1 / (1 + zeta):
                return zeta
        else:
            edge = -math.log(m)
            share = math.exp(-1) / (edge + math.exp(-1))
            if first < share:
                beyond = -math.log(first / share)
                u = edge + beyond
                accept = math.exp(-m * math.exp(u) + 1 + beyond)
            else:
                u = edge * ((first - share) / (1 - share))
                accept = math.exp(-m * math.exp(u))
            if second < accept:
                return math.expm1(u)
        attempt += 1


def draw_tau_sq(m, sites, s, numbers, item):
    """p(z) ~ z^((M-1)/2) exp(-m z) / (1 + s^2 z), tau^2 = 1/z."""
    m = m / s**2
    if sites == 1:
        return s**2 / draw_zeta(m, numbers, "global_scales", item)
    attempt = 0
    while True:
        u, _ = numbers.uniforms("global_scales", item, 3 * attempt + 2)
        large = m >= (sites - 1) / 2
        value = gamma_attempt((sites + 1) / 2 if large else (sites - 1) / 2, numbers, item, 3 * attempt)
        if value is not None:
            z = value / m
            if u < (1 / (1 + z) if large else z / (1 + z)):
                return s**2 / z
        attempt += 1


def gamma_attempt(shape, numbers, item, block):
    """One attempt of Marsaglia and Tsang, with the boost below shape 1; None is a rejection."""
    key = numbers.key("global_scales")
    x = rng.normal(1, key=key, first_item=item, draw=block, **numbers.where)[0]
    u, boost = numbers.uniforms("global_scales", item, block + 1)
    d = (shape + 1 if shape < 1 else shape) - 1 / 3
    v = (1 + x / math.sqrt(9 * d)) ** 3
    if v <= 0 or math.log(u) >= x * x / 2 + d - d * v + d * math.log(v):
        return None
    return d * v * (boost ** (1 / shape) if shape < 1 else 1)


@dataclass
class Site:
    X: np.ndarray
    y: np.ndarray
    d: np.ndarray
    lambda_sq: np.ndarray
    sigma_sq: float

    def sweep(self, theta, tau_sq, s, numbers):
        p = len(theta)
        for j in range(p):
            zeta = draw_zeta(self.d[j] ** 2 / (2 * tau_sq[j] * s.s_lambda**2), numbers, "scales", j)
            self.lambda_sq[j] = s.s_lambda**2 / zeta
        scale = np.sqrt(self.lambda_sq * tau_sq)
        S = np.diag(scale / math.sqrt(self.sigma_sq))
        A = np.eye(p) + S @ self.X.T @ self.X @ S
        rhs = S @ self.X.T @ (self.y - self.X @ theta) / math.sqrt(self.sigma_sq)
        L = np.linalg.cholesky(A)
        u = np.linalg.solve(A, rhs) + np.linalg.solve(L.T, numbers.normals("coefficients", p))
        self.d = scale * u
        residual = self.y - self.X @ (theta + self.d)
        shape = s.a_sigma + (len(self.y) - 1) / 2
        self.sigma_sq = (s.b_sigma + residual @ residual / 2) / numbers.gamma("variances", 0, shape)


def sample(X, y, s, *, rounds, seed, chain=0, start):
    """Draws after each round. X, y: lists with an entry a site; `start`: theta, tau_sq, eta, rho, d, lambda_sq, sigma_sq."""
    theta, tau_sq = start["theta"].copy(), start["tau_sq"].copy()
    eta, rho = start["eta"], start["rho"]
    sites = [
        Site(X_k - X_k.mean(axis=0), y_k - y_k.mean(), start["d"][k].copy(), start["lambda_sq"][k].copy(), start["sigma_sq"][k])
        for k, (X_k, y_k) in enumerate(zip(X, y))
    ]
    p, M = len(theta), len(sites)
    out = {name: [] for name in ("theta", "tau_sq", "q", "eta", "rho", "d", "sigma_sq")}
    for number in range(rounds):
        for k, site in enumerate(sites):
            for sweep in range(s.local_sweeps):
                site.sweep(theta, tau_sq, s, Numbers(seed, chain, k, number * s.local_sweeps + sweep))
        included = np.zeros(p)
        for sweep in range(s.server_sweeps):
            numbers = Numbers(seed, chain, SERVER, number * s.server_sweeps + sweep)
            for k, site in enumerate(sites if sweep else []):
                for j in range(p):
                    zeta = draw_zeta(site.d[j] ** 2 / (2 * tau_sq[j] * s.s_lambda**2), numbers, "scales", k * p + j)
                    site.lambda_sq[j] = s.s_lambda**2 / zeta
            gamma, old = np.zeros(p), theta.copy()
            for j in range(p):
                precision = np.array([1 / site.lambda_sq[j] for site in sites])
                d = np.array([site.d[j] for site in sites])
                tau_sq[j] = draw_tau_sq(float(precision @ d**2) / 2, M, s.s_tau, numbers, j)
                W = precision.sum() / tau_sq[j]
                mhat = theta[j] + precision @ d / precision.sum()
                wide, narrow = eta + 1 / W, s.c0 * eta + 1 / W
                logit = math.log(rho / (1 - rho)) - (math.log(wide / narrow) + mhat**2 / wide - mhat**2 / narrow) / 2
                included[j] += 1 / (1 + math.exp(-logit)) / s.server_sweeps
                u, _ = numbers.uniforms("indicators", j)
                gamma[j] = math.log(u / (1 - u)) < logit
                v = eta if gamma[j] else s.c0 * eta
                theta[j] = W * mhat / (W + 1 / v) + numbers.normal("effects", j) / math.sqrt(W + 1 / v)
            total = (theta**2 / s.c0 ** (1 - gamma)).sum()
            eta = (s.b_eta + total / 2) / numbers.gamma("variances", 0, s.a_eta + p / 2)
            inside = numbers.gamma("rates", 0, s.a_rho + gamma.sum())
            rho = inside / (inside + numbers.gamma("rates", 1, s.b_rho + p - gamma.sum()))
            for site in sites:
                site.d = site.d + (old - theta)
        state = (theta.copy(), tau_sq.copy(), included, eta, rho, [site.d for site in sites], [site.sigma_sq for site in sites])
        for values, value in zip(out.values(), state):
            values.append(value)
    return {name: np.array(values) for name, values in out.items()}
