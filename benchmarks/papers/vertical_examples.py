"""The simulated data of docs/spec/vertical.md, sections 9.1 and 9.2: the same for everybody who has the seed."""

from __future__ import annotations

import numpy as np

from fedkern.data.columns import Columns
from fedkern.data.simulate.federations import Draws
from fedkern.kernels.families import BERNOULLI, POISSON

LOGISTIC = (500, 20)  # rows and columns
AREAS, LEVELS = 2000, ("major cities", "inner regional", "outer regional", "remote", "very remote")
SPREAD = 0.2  # of the areas' slopes about their mean, on the log scale


def logistic(clients: int = 2, seed: int = 1) -> Columns:
    """500 rows, 20 covariates dealt evenly to clients: logit P(y = 1) = b + x beta + e, e standard normal (section 9.1).

    The noise e is in the truth only; the models that are fitted do not have it. b and beta are standard normal, as their prior
    says. Only how the columns are dealt depends on the number of clients.
    """
    n, p = LOGISTIC
    if p % clients:
        raise ValueError(f"vertical.logistic: {p} columns can't be dealt evenly to {clients} clients")
    draws = Draws(seed, 0)
    b, beta, x, e = draws.normal(1), draws.normal(p), draws.normal(n, p), draws.normal(n)
    y = BERNOULLI.draw(draws, BERNOULLI.mean(b + x @ beta + e), 1.0, None)
    names = tuple(f"x{j + 1}" for j in range(p))
    truth = {"intercept": float(b[0])} | {f"theta[{name}]": float(value) for name, value in zip(names, beta)}
    X = tuple(np.ascontiguousarray(part) for part in np.split(x, clients, axis=1))
    own = tuple(tuple(part) for part in np.split(np.array(names, dtype=object), clients))
    return Columns(X, own, y, truth=truth)


def areas(seed: int = 1, *, n: int = AREAS) -> Columns:
    """Counts in areas of five levels of remoteness: log mean = b + log population + x beta of the level (section 9.2).

    Two clients of two covariates each. Mean slopes are 0.3 times standard normals, those of a level differ from them with
    standard deviation 0.2, and b = 0: slopes as wide as the prior's would make counts of millions.
    """
    draws = Draws(seed, 0)
    population = np.floor(250 + 101 * draws.uniform(n))
    level = np.floor(len(LEVELS) * draws.uniform(n)).astype(np.int64)
    x, mu, own = draws.normal(n, 4), 0.3 * draws.normal(4), draws.normal(len(LEVELS), 4)
    beta = mu + SPREAD * own
    eta = np.log(population) + np.sum(x * beta[level], axis=1)
    y = POISSON.draw(draws, POISSON.mean(eta), 1.0, None)
    names = ("x1", "x2", "x3", "x4")
    truth = {"intercept": 0.0} | {f"mu[{name}]": float(value) for name, value in zip(names, mu)}
    truth |= {f"sigma[{name}]": SPREAD for name in names}
    truth |= {f"beta[{name},{at}]": float(beta[i, k]) for k, name in enumerate(names) for i, at in enumerate(LEVELS)}
    X = tuple(np.ascontiguousarray(part) for part in np.split(x, 2, axis=1))
    return Columns(X, (names[:2], names[2:]), y, np.log(population), level, LEVELS, truth)
