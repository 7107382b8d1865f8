"""Rows of mixed models by SciPy's densities, and the integrals of groups by the trapezoid rule on a grid."""

from itertools import pairwise

import numpy as np
from scipy import stats
from scipy.special import expit, logsumexp

from fedkern.kernels import mixed

LEVELS = 4  # of ordinal examples
CUTS = np.array([0.4, 1.5])


def own(family):
    """Shape numbers of the examples."""
    return {
        "gaussian": [-0.4], "negative-binomial": [-0.4], "student": [-0.6, 1.1], "gamma": [0.7], "beta": [1.6],
        "zero-inflated-poisson": [-0.8], "zero-inflated-negative-binomial": [0.6, -0.5], "ordinal": [-0.8, 0.2, -0.3],
        "ordinal-probit": [-0.8, 0.2, -0.3], "weibull": [0.35], "piecewise": [-0.3, 0.4, 0.1], "beta-binomial": [1.4],
        "lognormal": [-0.4], "inverse-gaussian": [1.1], "hurdle-poisson": [-0.8], "hurdle-negative-binomial": [0.6, -0.5],
        "poisson-lognormal": [-0.5], "lognormal-aft": [-0.2], "loglogistic-aft": [-0.7],
    }.get(family, [])  # fmt: skip


def chance(family, eta):
    """The probability of an event."""
    if family.endswith("probit"):
        return stats.norm.cdf(eta)
    return -np.expm1(-np.exp(eta)) if family.endswith("cloglog") else expit(eta)


def response(family, eta, trials, rng):
    """y and `upper` of the predictors."""
    n = len(eta)
    if family == "gaussian":
        return eta + 0.7 * rng.standard_normal(n), None
    if family == "student":
        return eta + 0.6 * rng.standard_t(3, n), None
    if family.startswith(("bernoulli", "binomial", "beta-binomial")):
        return rng.binomial(1 if trials is None else trials.astype(int), chance(family, eta)).astype(float), None
    if family in ("gamma", "lognormal", "inverse-gaussian"):
        return rng.gamma(2.0, np.exp(eta) / 2.0), None
    if family == "beta":
        return np.clip(rng.beta(5 * expit(eta), 5 * expit(-eta)), 1e-6, 1 - 1e-6), None
    if family in mixed.ORDERED:
        return np.digitize(eta + rng.logistic(size=n), np.cumsum([-0.8, 1.2, 0.7])).astype(float), None
    if family in mixed.TIMES:
        y = rng.exponential(np.exp(eta if family.endswith("aft") else -eta)) + 1e-3
        kind = np.arange(n) % 4  # event, censored on the right, in an interval, censored on the left
        return np.where(kind == 3, 0.0, y), np.select([kind == 0, kind == 1, kind == 2], [y, np.inf, 1.7 * y], y)
    y = rng.poisson(np.exp(np.minimum(eta, 3.0))).astype(float)
    return np.where(rng.random(n) < 0.3 * family.startswith(("zero", "hurdle")), 0.0, y), None


def example(family, d, n=24, groups=5, p=2, points=3, seed=0, tau=0.8):
    """Rows of a few groups, and points around those that made them."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.standard_normal((n, p - 1))])
    Z = np.column_stack([np.ones(n), rng.standard_normal((n, 2))])[:, :d]
    starts = np.concatenate([[0], np.sort(rng.choice(np.arange(1, n), groups - 1, replace=False)), [n]])
    T = 0.4 * tau * np.ones((d, d))
    T[np.diag_indices(d)] = np.log(tau)
    xi = np.concatenate([0.4 * rng.standard_normal(p), T[np.tril_indices(d)], own(family)])
    eta = X @ xi[:p] + rng.standard_normal(n) * (tau if d else 0)
    trials = rng.integers(1, 6, n).astype(float) if family.startswith(("binomial", "beta-binomial")) else None
    y, upper = response(family, eta, trials, rng)
    many = xi + 0.1 * rng.standard_normal((points, len(xi))) * (np.arange(points) > 0)[:, None]
    return {
        "points": many, "X": X, "Z": Z, "y": y, "trials": trials, "offset": 0.2 * rng.standard_normal(n), "starts": starts,
        "upper": upper, "cuts": CUTS if family == "piecewise" else None, "family": family,
    }  # fmt: skip


def factor_of(numbers, d):
    """T, whose diagonal stands there as logarithms."""
    T = np.zeros((d, d))
    T[np.tril_indices(d)] = numbers
    T[np.diag_indices(d)] = np.exp(np.diag(T))
    return T


def thresholds(w):
    return np.concatenate([[-np.inf], np.cumsum([w[0], *np.exp(w[1:])]), [np.inf]])


LAWS = {
    "lognormal-aft": lambda eta, w: stats.lognorm(np.exp(w[0]), scale=np.exp(eta)),
    "loglogistic-aft": lambda eta, w: stats.fisk(np.exp(-w[0]), scale=np.exp(eta)),
}


def log_survival(family, t, eta, w, cuts):
    """log P(time > t)."""
    if family == "weibull":
        return stats.weibull_min.logsf(t, np.exp(w[0]), scale=np.exp(-eta * np.exp(-w[0])))
    if family in LAWS:
        return LAWS[family](eta, w).logsf(t)
    if family == "exponential":
        return stats.expon.logsf(t, scale=np.exp(-eta))
    edges = np.concatenate([[0.0], cuts, [np.inf]])
    pieces = [np.exp(a) * np.clip(t - low, 0, high - low) for a, low, high in zip(w, edges, edges[1:])]
    return -np.exp(eta) * sum(pieces)


def log_hazard(family, t, eta, w, cuts):
    if family in LAWS:
        law = LAWS[family](eta, w)
        return law.logpdf(t) - law.logsf(t)
    if family == "piecewise":
        return eta + w[np.searchsorted(cuts, t)]
    return eta + (w[0] + np.expm1(w[0]) * np.log(t) if family == "weibull" else 0 * t)


def density(family, y, eta, trials, w, upper=None, cuts=None):
    """log p(y | eta), as SciPy has it."""
    mean = np.exp(eta)
    if family == "gaussian":
        return stats.norm.logpdf(y, eta, np.exp(w[0]))
    if family == "student":
        return stats.t.logpdf(y, np.exp(w[1]), eta, np.exp(w[0]))
    if family.startswith(("bernoulli", "binomial")):
        return stats.binom.logpmf(y, 1 if trials is None else trials, chance(family, eta))
    if family == "gamma":
        return stats.gamma.logpdf(y, np.exp(w[0]), scale=mean * np.exp(-w[0]))
    if family == "beta":
        return stats.beta.logpdf(y, np.exp(w[0]) * expit(eta), np.exp(w[0]) * expit(-eta))
    if family == "beta-binomial":
        return stats.betabinom.logpmf(y, 1 if trials is None else trials, np.exp(w[0]) * expit(eta), np.exp(w[0]) * expit(-eta))
    if family == "lognormal":
        return stats.lognorm.logpdf(y, np.exp(w[0]), scale=mean)
    if family == "inverse-gaussian":
        return stats.invgauss.logpdf(y, mean * np.exp(-w[0]), scale=np.exp(w[0]))
    if family == "poisson-lognormal":
        z = np.arange(-9, 9.01, 0.05)
        rows = stats.poisson.logpmf(y[..., None], np.exp(eta[..., None] + np.exp(w[0]) * z)) + stats.norm.logpdf(z)
        return logsumexp(rows, axis=-1) + np.log(0.05)
    if family in mixed.ORDERED:
        F = stats.logistic if family == "ordinal" else stats.norm
        low, high = thresholds(w)[y.astype(int)], thresholds(w)[y.astype(int) + 1]
        with np.errstate(divide="ignore"):
            return np.log(F.cdf(high - eta) - F.cdf(low - eta))
    if family in mixed.TIMES:
        event, until = y == upper, np.where(np.isfinite(upper), upper, y)
        beyond = log_survival(family, y, eta, w, cuts)
        with np.errstate(divide="ignore"):
            within = np.log(np.exp(beyond) - np.exp(log_survival(family, until, eta, w, cuts)))
            exact = beyond + log_hazard(family, np.where(event, y, 1.0), eta, w, cuts)
        return np.where(event, exact, np.where(np.isfinite(upper), within, beyond))
    phi = w[0] if "negative" in family else 0.0
    count = stats.poisson.logpmf(y, mean) if phi == 0 else stats.nbinom.logpmf(y, phi**-2.0, 1 / (1 + phi**2 * mean))
    if family.startswith("hurdle"):
        none = -mean if phi == 0 else -np.log1p(phi**2 * mean) / phi**2
        return np.where(y == 0, -np.logaddexp(0, -w[-1]), count - np.log(-np.expm1(none)) - np.logaddexp(0, w[-1]))
    if family.startswith("zero"):
        with np.errstate(divide="ignore"):
            return np.log(expit(w[-1]) * (y == 0) + expit(-w[-1]) * np.exp(count))
    return count


def of_rows(xi, eta, i, case):
    """Densities of the rows `i`, whose predictors have a column for each node or none."""
    own_at = case["X"].shape[1] + case["Z"].shape[1] * (case["Z"].shape[1] + 1) // 2
    like = (slice(None),) + (None,) * (eta.ndim - 1)
    y, trials, upper = (None if (one := case[name]) is None else one[i][like] for name in ("y", "trials", "upper"))
    found = density(case["family"], y, eta, trials, xi[own_at:], upper, case["cuts"])
    if case.get("entry") is None:
        return found
    return found - log_survival(case["family"], case["entry"][i][like], eta, xi[own_at:], case["cuts"])


def by_grid(case, steps=(0.02, 0.1, 0.25), reach=8):
    """The integral of each group by the trapezoid rule, where densities of rows are multiplied."""
    X, Z = case["X"], case["Z"]
    p, d = X.shape[1], Z.shape[1]
    step = steps[d - 1]
    axis = np.arange(-reach, reach, step)
    u = np.stack(np.meshgrid(*[axis] * d, indexing="ij"), axis=-1).reshape(-1, d)
    results = []
    for xi in case["points"]:
        T, total = factor_of(xi[p : p + d * (d + 1) // 2], d), 0.0
        for begin, end in pairwise(case["starts"]):
            i = slice(begin, end)
            eta = (X[i] @ xi[:p] + case["offset"][i])[:, None] + Z[i] @ T @ u.T
            level = of_rows(xi, eta, i, case).sum(axis=0) + stats.norm.logpdf(u).sum(axis=1)
            total += level.max() + np.log(np.exp(level - level.max()).sum() * step**d)
        results.append(total)
    return np.array(results)


def differences(case, nodes, backend, h=2e-3):
    """Gradient and Hessian of the kernel's value by four-point differences."""
    (xi,) = case["points"]
    k = len(xi)

    def values(at):
        return mixed.values(**case | {"points": np.array(at)}, nodes=nodes, backend=backend)

    weights, steps = np.array([1, -8, 8, -1]) / (12 * h), h * np.array([-2, -1, 1, 2])
    unit = np.eye(k)
    gradient = values([xi + s * unit[i] for i in range(k) for s in steps]).reshape(k, 4) @ weights
    pairs = [(i, j) for i in range(k) for j in range(i + 1)]  # the others are at the same points
    both = values([xi + s * unit[i] + t * unit[j] for i, j in pairs for s in steps for t in steps])
    hessian = np.empty((k, k))
    for (i, j), of_pair in zip(pairs, both.reshape(-1, 4, 4)):
        hessian[i, j] = hessian[j, i] = weights @ of_pair @ weights
    return gradient, hessian
