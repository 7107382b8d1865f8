"""Defines a posterior as weighted draws: its numbers, and the other posteriors for which the same draws stand.

Draws come from some q, and a draw's log ratio is log p(xi, y) - log q(xi), both normalised in xi: the mean ratio is the evidence.
Weights are the ratios with their largest smoothed (`psis`), as long as k-hat says that smoothing helps, and the ratios themselves
beyond. Sources: Vehtari et al. (2024), Pareto smoothed importance sampling; Kallioinen, Paananen, Buerkner and Vehtari (2023),
Detecting and diagnosing prior and likelihood sensitivity with power-scaling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from ..arrays import Array
from . import psis

# k-hat and effective draws with which a posterior without a client is known: stricter than for the whole one, for which draws are
# made. With worse ones standard deviations of the intercept and of clients' effects were often 6 to 10 % too small.
WITHOUT_K, WITHOUT_ESS = psis.GOOD, 1200.0
POWERS = (0.99, 1.01)  # of the prior, and of the likelihood
SCALED = 4000  # draws of equal weight in which the measure is taken
SENSITIVE = 0.05  # of the measure of sensitivity, from which on it is marked


@dataclass(frozen=True)
class Weighted:
    """Holds draws with weights."""

    draws: Array  # (N, P)
    log_ratios: Array  # (N,) log p(xi, y) - log q(xi); minus infinity where the density is not finite

    @cached_property
    def _smoothed(self) -> tuple[Array, float]:
        if not np.isfinite(self.log_ratios).any():
            return np.full(len(self.log_ratios), -np.log(len(self.log_ratios))), np.inf
        return psis.smoothed(self.log_ratios)

    @property
    def k_hat(self) -> float:
        """The shape of the weights' tail."""
        return self._smoothed[1]

    @property
    def reliable(self) -> bool:
        """Whether k-hat says that the weights can be trusted."""
        return self.k_hat <= psis.UNRELIABLE

    @property
    def smoothed(self) -> Array:
        """The (N,) smoothed weights, whatever k-hat is; they add up to 1."""
        return np.asarray(np.exp(self._smoothed[0]))

    @cached_property
    def weights(self) -> Array:
        """The (N,) weights, which add up to 1."""
        if self.reliable or not np.isfinite(self.log_ratios).any():
            return self.smoothed
        return np.asarray(np.exp(self.log_ratios - logsumexp(self.log_ratios)))

    @cached_property
    def effective(self) -> float:
        """The number of draws of equal weight that these are worth."""
        return float(1 / (self.weights**2).sum())

    @cached_property
    def mean(self) -> Array:
        """The (P,) means."""
        mean: Array = self.weights @ self.draws
        return mean

    @cached_property
    def covariance(self) -> Array:
        """The (P, P) covariance."""
        off = self.draws - self.mean
        covariance: Array = (off * self.weights[:, np.newaxis]).T @ off
        return covariance

    @property
    def sd(self) -> Array:
        """The (P,) standard deviations."""
        return np.sqrt(np.diag(self.covariance))

    def quantiles(self, levels: Array | tuple[float, ...], values: Array | None = None) -> Array:
        """Returns (levels, P) quantiles of the draws, or of other quantities (N, K) at them."""
        of_draws = self.draws if values is None else values
        return quantiles(of_draws, self.weights, levels)

    def resampled(self, n: int, offset: float) -> NDArray[np.int64]:
        """Returns (n,) numbers of draws of equal weight, in a stride by which neighbours are not alike. `offset`: uniform in [0,
        1)."""
        return resampled(self.weights, n, offset)

    @cached_property
    def log_evidence(self) -> tuple[float, float]:
        """The log of the mean ratio, and its standard error as if draws were independent.

        Points that fill the space have a smaller error.
        """
        n = len(self.log_ratios)
        ratios = self.log_ratios
        if self.reliable:  # smoothed weights add up to 1: their sum is that of the ratios, smoothed
            ratios = _smoothed_ratios(self.log_ratios, self._smoothed[0])
        log_mean = float(logsumexp(ratios) - np.log(n))
        spread = np.exp(ratios - log_mean)
        return log_mean, float(np.sqrt(((spread - 1) ** 2).sum() / (n * max(n - 1, 1))))

    def scaled(self, log_factor: Array) -> Weighted:
        """Returns the same draws for a density that is this one times exp(log_factor)."""
        return Weighted(self.draws, self.log_ratios + log_factor)


def _smoothed_ratios(log_ratios: Array, log_weights: Array) -> Array:
    """Returns smoothed weights on the scale of the ratios: the smallest of both are the same."""
    low = np.flatnonzero(np.isfinite(log_ratios))
    low = low[np.argsort(log_ratios[low], kind="stable")]
    middle = low[len(low) // 4]  # below any tail
    shifted: Array = log_weights + (log_ratios[middle] - log_weights[middle])
    return shifted


def quantiles(values: Array, weights: Array, levels: Array | tuple[float, ...]) -> Array:
    """Returns (levels, K) quantiles of values (N, K) with weights (N,), linear between the middles of neighbours' weights."""
    out = np.empty((len(levels), values.shape[1]))
    for k, column in enumerate(values.T):
        order = np.argsort(column, kind="stable")
        w = weights[order]
        out[:, k] = np.interp(levels, np.cumsum(w) - w / 2, column[order])
    return out


def resampled(weights: Array, n: int, offset: float) -> NDArray[np.int64]:
    """Returns (n,) draws' numbers by systematic resampling: each comes floor or ceiling of n times its weight times."""
    if not 0 <= offset < 1:
        raise ValueError(f"resampled: offset must be in [0, 1), got {offset}")
    ends = np.cumsum(weights)
    chosen = np.searchsorted(ends / ends[-1], (np.arange(n) + offset) / n, side="right")
    return np.minimum(chosen, len(weights) - 1).astype(np.int64)


@dataclass(frozen=True)
class Without:
    """Holds the posterior without one client."""

    posterior: Weighted  # the same draws, with other weights
    shift: Array  # (P,) its means less those with the client, in their sds

    @property
    def known(self) -> bool:
        """Whether its weights can be trusted; else it is not shown."""
        return self.posterior.k_hat <= WITHOUT_K and self.posterior.effective >= WITHOUT_ESS


def without(posterior: Weighted, values: Array) -> tuple[Without, ...]:
    """Returns the posterior without each client in turn. `values`: (N, J) the clients' log-likelihoods at the draws."""
    posteriors = []
    for column in values.T:
        divided = posterior.scaled(-column)
        with np.errstate(divide="ignore", invalid="ignore"):
            posteriors.append(Without(divided, (divided.mean - posterior.mean) / posterior.sd))
    return tuple(posteriors)


def sensitivity(posterior: Weighted, log_densities: Sequence[Array], quantities: Array) -> tuple[Array, Array]:
    """Measures how much the posterior of each quantity moves with the power of a component, such as the prior or the likelihood.

    Parameters
    ----------
    log_densities : (N,) of each component, without Jacobians
    quantities : (N, K)

    Returns
    -------
    measure : (C, K) of each component: gradient of the cumulative Jensen-Shannon distance in log2 of the power, as priorsense's
    k_hat : (C, 2) of the weights at both powers
    """
    # The distance is relative to the range of the draws: of equal ones, as those of the paper are, it is the posterior's.
    chosen = posterior.resampled(SCALED, 0.5)
    changed = [psis.smoothed((power - 1) * density[chosen]) for density in log_densities for power in POWERS]
    weights = [np.exp(log_weights) for log_weights, _ in changed]
    moved = np.array([_distances(column, weights) for column in quantities[chosen].T])
    steps = moved.T.reshape(len(log_densities), len(POWERS), -1) / abs(np.log2(POWERS))[:, np.newaxis]
    return steps.mean(axis=1), np.array([k_hat for _, k_hat in changed]).reshape(-1, len(POWERS))


def _distances(x: Array, weightings: Sequence[Array]) -> list[float]:
    """Returns the symmetric cumulative Jensen-Shannon distance, in [0, 1], of each weighting of values from equal weights.

    Source: Nguyen and Vreeken (2015); the larger of both directions of the values, the root of the bounded divergence.
    """
    both = [(np.argsort(values, kind="stable"), values) for values in (x, -x)]
    ways = [(order, np.diff(values[order])) for order, values in both]
    return [max(_one_way(bins, weights[order]) for order, bins in ways) for weights in weightings]


def _one_way(bins: Array, q: Array) -> float:
    """Returns this distance in one direction: of weights in the values' order, between which there are these bins."""
    P, Q = (np.cumsum(weights)[:-1] for weights in (np.full(len(q), 1 / len(q)), q))
    middle = 0.5 * (P + Q)
    with np.errstate(divide="ignore", invalid="ignore"):  # 0 log 0 = 0
        divergences = [
            np.nan_to_num(values * np.log2(values / middle)) + (other - values) / (2 * np.log(2))
            for values, other in ((P, Q), (Q, P))
        ]
    whole = float(bins @ (P + Q))
    return float(np.sqrt(sum(max(float(bins @ values), 0.0) for values in divergences) / whole)) if whole > 0 else 0.0
