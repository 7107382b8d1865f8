"""Small rows of mixed regressions, and derivatives by differences of many points at once."""

import numpy as np
from scipy import stats
from scipy.special import expit

from fedkern.models.mixed import Layout, Rows
from oracles.mixed_rows import chance


def rows(family, group=(), client=(), sizes=(4, 1, 3, 5), seed=0):
    """Of three coefficients, drawn; groups of these sizes."""
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    X = np.column_stack([np.ones(n), rng.normal(size=n), rng.integers(0, 2, n)])
    eta = X @ [0.2, 0.4, -0.3] + np.repeat(rng.normal(0, 0.8, len(sizes)), sizes)
    p = chance(family, eta)
    y = {
        "gaussian": lambda: rng.normal(eta, 0.7),
        "bernoulli": lambda: rng.binomial(1, p),
        "binomial": lambda: rng.binomial(6, p),
        "poisson": lambda: rng.poisson(np.exp(eta)),
        "negative-binomial": lambda: rng.negative_binomial(2.0, 2 / (2 + np.exp(eta))),
        "student": lambda: eta + 0.7 * rng.standard_t(2.5, n),
        "gamma": lambda: rng.gamma(1.7, np.exp(eta) / 1.7),
        "beta": lambda: np.clip(rng.beta(3 * p, 3 * (1 - p)), 1e-3, 1 - 1e-3),
        "zero-inflated-poisson": lambda: rng.binomial(1, 0.6, n) * rng.poisson(np.exp(eta + 1)),
        "zero-inflated-negative-binomial": lambda: (
            rng.binomial(1, 0.6, n) * rng.negative_binomial(2.0, 2 / (2 + np.exp(eta + 1)))
        ),
        "hurdle-poisson": lambda: rng.binomial(1, 0.6, n) * (1 + rng.poisson(np.exp(eta))),
        "hurdle-negative-binomial": lambda: rng.binomial(1, 0.6, n) * (1 + rng.negative_binomial(2.0, 2 / (2 + np.exp(eta)))),
        "poisson-lognormal": lambda: rng.poisson(np.exp(eta + 0.6 * rng.normal(size=n))),
        "beta-binomial": lambda: rng.binomial(6, rng.beta(3 * p, 3 * (1 - p))),
        "lognormal": lambda: np.exp(rng.normal(eta, 0.7)),
        "inverse-gaussian": lambda: rng.wald(np.exp(eta), 3.0),
    }[family.removesuffix("-probit").removesuffix("-cloglog")]()
    layout = Layout(("intercept", "a", "b"), family, tuple(group), tuple(client))
    trials = np.full(n, 6.0) if family.startswith(("binomial", "beta-binomial")) else None
    return Rows.grouped(layout, X, y, list(np.repeat(np.arange(len(sizes)), sizes)), trials, rng.normal(0, 0.2, n))[0]


def point(layout, seed=1):
    """Near where such rows come from."""
    return np.random.default_rng(seed).normal(0, 0.3, layout.size)


def differences(f, xi, step=1e-3):
    """The derivatives (P, ..) at xi (P,) of f: (S, P) -> (S, ..), to fourth order, from one call."""
    shifts = np.array([1.0, -1.0, 2.0, -2.0]) * step
    points = xi + np.einsum("k,ij->ikj", shifts, np.eye(len(xi)))
    found = np.asarray(f(points.reshape(-1, len(xi)))).reshape(len(xi), 4, -1)
    return (8 * (found[:, 0] - found[:, 1]) - (found[:, 2] - found[:, 3])) / (12 * step)


def log_density(mine, eta, xi):
    """(.., n) by SciPy."""
    y, last = mine.y, xi[-1]
    if mine.layout.family == "student":
        return stats.t.logpdf(y, np.exp(last), eta, np.exp(xi[-2]))
    if mine.layout.family == "gamma":
        return stats.gamma.logpdf(y, np.exp(last), scale=np.exp(eta - last))
    if mine.layout.family == "beta":
        return stats.beta.logpdf(y, np.exp(last) * expit(eta), np.exp(last) * expit(-eta))
    if mine.layout.family.startswith("zero-inflated"):
        count = stats.poisson.logpmf(y, np.exp(eta))
        if mine.layout.family.endswith("binomial"):
            r = xi[-2] ** -2
            count = stats.nbinom.logpmf(y, r, r / (r + np.exp(eta)))
        return np.where(y == 0, np.log(expit(last) + expit(-last) * np.exp(count)), count + np.log(expit(-last)))
    if mine.layout.family == "gaussian":
        return stats.norm.logpdf(y, eta, np.exp(last))
    if mine.layout.family == "poisson":
        return stats.poisson.logpmf(y, np.exp(eta))
    if mine.layout.family == "negative-binomial":
        r = last**-2
        return stats.nbinom.logpmf(y, r, r / (r + np.exp(eta)))
    return stats.binom.logpmf(y, 1 if mine.trials is None else mine.trials, chance(mine.layout.family, eta))
