"""Expectations over normal numbers of functions that are quadratic in them, exactly: averages over signs.

The columns of a Hadamard matrix but the first have mean 0, are orthogonal, and their squares are 1: what a quadratic function's
expectation takes. Those of a Gaussian model's ELBO and gradients are such functions as long as z is linear in the noise.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import linalg, stats
from scipy.optimize import minimize

from support import vertical_cases as cases


def with_noise(c, values):
    """The case with these numbers in the place of its normal ones."""
    ends = np.cumsum([*map(len, c.eps), *map(len, c.tau)])
    parts = np.split(values, ends)
    return replace(c, eps=parts[: c.J], tau=parts[c.J : 2 * c.J], eps_server=parts[-1])


def n_noise(c):
    return sum(map(len, c.eps)) + sum(map(len, c.tau)) + len(c.eps_server)


def signs(c):
    """(rows, n_noise)."""
    n = n_noise(c)
    return linalg.hadamard(1 << n.bit_length())[:, 1 : n + 1].astype(float)


def moved(c, values):
    """The case with all parameters replaced: the clients' in order, then the server's."""
    *clients, server = np.split(values, np.cumsum([len(p) for p in c.parameters]))
    return replace(c, parameters=clients, server=server)


def expected(c, noise):
    """(ELBO, its gradient in all parameters)."""
    value, gradient = 0.0, 0.0
    for row in noise:
        at = with_noise(c, row)
        clients, server = cases.federated(at)
        value += cases.value(at)
        gradient = gradient + np.concatenate([*clients, server])
    return value / len(noise), gradient / len(noise)


def maximised(c, held=None):
    """The case at the optimum of its expected ELBO, by federated gradients alone; and that ELBO. held: what stays as it is."""
    noise = signs(c)
    start = np.concatenate([*c.parameters, c.server])
    free = 1.0 if held is None else 1.0 - held

    def negative(v):
        value, gradient = expected(moved(c, v), noise)
        return -value, -gradient * free

    best = minimize(
        negative,
        start,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 3000, "maxfun": 4000, "ftol": 0, "gtol": 1e-9, "maxcor": 60},
    )
    return moved(c, best.x), -best.fun


def estimated(c, exponent=12, seed=0):
    """ELBO of any family by quasi-random draws."""
    points = stats.qmc.Sobol(n_noise(c), rng=np.random.default_rng(seed)).random_base2(exponent)
    noise = stats.norm.ppf(np.clip(points, 1e-12, 1 - 1e-12))
    return np.mean([cases.value(with_noise(c, row)) for row in noise])
