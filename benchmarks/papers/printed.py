"""The paper's Algorithms 2 and 3, with its two printed slips or without them: a plain sampler that holds all sites' rows.

No job can ask for the slips; they are here to show how much they change (docs/spec/sparse.md, sections 2 and 14).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedkern.results.samples import Samples

Array = NDArray[np.float64]

LOW, HIGH = 1e-60, 1e60


def sample(
    sites: Sequence[tuple[Array, Array]],
    names: tuple[str, ...],
    *,
    rounds: int,
    burn_in: int,
    printed: bool,
    chains: int = 4,
    seed: int = 1,
    c0: float = 0.01,
) -> Samples:
    """Draws of the regression model with the paper's own order of updates.

    Parameters
    ----------
    sites : (X, y) of each, standardised alike; each is centred here
    printed : the sums in tau's and eta's lines without their 1/2, as Algorithm 3 has them

    Returns
    -------
    the kept draws, on the scale of `sites`
    """
    random = np.random.default_rng(seed)
    half = 1.0 if printed else 0.5
    rows = [(x - x.mean(axis=0), y - y.mean()) for x, y in sites]
    gram = [(x.T @ x, x.T @ y) for x, y in rows]
    m, c, p = len(rows), chains, len(names)
    theta, tau_sq, gamma = np.zeros((c, p)), np.ones((c, p)), np.ones((c, p))
    d, lambda_sq, sigma_sq = np.zeros((m, c, p)), np.ones((m, c, p)), np.ones((m, c))
    eta, rho = np.ones((c, 1)), np.full((c, 1), 0.5)
    draws: dict[str, list[Array]] = {name: [] for name in ("theta", "tau_sq", "inclusion", "average", "eta", "rho")}

    def inverse_gamma(shape: float, rate: Array) -> Array:
        return np.asarray(rate / random.gamma(shape, size=rate.shape))

    for number in range(rounds):
        for k, ((x, y), (g, xty)) in enumerate(zip(rows, gram)):
            nu = inverse_gamma(1.0, 1 + 1 / lambda_sq[k])
            lambda_sq[k] = np.clip(inverse_gamma(1.0, 1 / nu + d[k] ** 2 / (2 * tau_sq)), LOW, HIGH)
            scale = np.sqrt(lambda_sq[k] * tau_sq / sigma_sq[k][:, None])
            a = np.eye(p) + scale[:, :, None] * g * scale[:, None, :]
            lower = np.linalg.cholesky(a)
            right = scale * (xty - theta @ g) / np.sqrt(sigma_sq[k])[:, None]
            half_way = np.linalg.solve(lower, right[..., None]) + random.normal(size=(c, p, 1))
            u = np.linalg.solve(np.swapaxes(lower, 1, 2), half_way)[..., 0]
            d[k] = np.sqrt(lambda_sq[k] * tau_sq) * u
            rss = np.sum((y - (theta + d[k]) @ x.T) ** 2, axis=1)
            sigma_sq[k] = inverse_gamma(2 + (len(y) - 1) / 2, 1 + rss / 2)
        xi = inverse_gamma(1.0, 1 + 1 / tau_sq)
        tau_sq = np.clip(inverse_gamma((m + 1) / 2, 1 / xi + half * np.sum(d**2 / lambda_sq, axis=0)), LOW, HIGH)
        precision = np.sum(1 / (lambda_sq * tau_sq), axis=0)
        mean = theta + np.sum(d / (lambda_sq * tau_sq), axis=0) / precision
        total = precision + 1 / (c0 ** (1 - gamma) * eta)
        new = precision * mean / total + random.normal(size=(c, p)) / np.sqrt(total)
        d += theta - new
        theta = new
        eta = inverse_gamma(2 + p / 2, 1 + half * np.sum(theta**2 / c0 ** (1 - gamma), axis=1, keepdims=True))
        logit = np.log(rho) - np.log1p(-rho) + 0.5 * np.log(c0) + theta**2 * (1 / c0 - 1) / (2 * eta)
        inclusion = 1 / (1 + np.exp(-np.clip(logit, -700, 700)))
        gamma = (random.uniform(size=(c, p)) < inclusion).astype(np.float64)
        count = gamma.sum(axis=1, keepdims=True)
        rho = np.clip(random.beta(1 + count, 1 + p - count), 1e-12, 1 - 1e-12)
        if number >= burn_in:
            state = (theta, tau_sq, inclusion, theta + d.mean(axis=0), eta, rho)
            for name, value in zip(draws, state):
                draws[name].append(value.copy())
    theta, tau_sq, inclusion, average, eta, rho = (np.stack(values, axis=1) for values in draws.values())
    return Samples(names, theta, tau_sq, inclusion, average, eta, rho, np.ones(p), c0=c0)
