"""Draws from mixtures of multivariate t distributions, by points that fill the space evenly.

Points are Sobol's in P + 1 dimensions: P normal numbers and a chi-square. They are several nets, each scrambled by a generator of
its own that the seed, the round, the component and the net key: by how much these differ is how well a round's sums are known.
That generator also chooses which dimension is which, for some pairs of dimensions are filled badly, and would be in all rounds.
The server alone makes the points. If the posterior is symmetric in the sign of some coordinates, every draw is turned to the side
where the first of them is positive, and the density there is that of all its mirror images. Source: docs/spec/likelihood.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import chdtri, gammaln, logsumexp, ndtri

from ..core.messages import evolve
from ..core.nets import NETS, sobol

Array = NDArray[np.float64]
Fold = Sequence[Sequence[int]]  # coordinates that change their signs together

FEW, MANY, LARGE = 7.0, 15.0, 20  # degrees of freedom, and beyond LARGE dimensions
WIDE, WIDER = 0.2, 3.0  # the part of the points that have a wider component, and how many times as wide that is
LEAST_SHARE = 0.05  # of a component


class Source(Protocol):
    """Is a distribution that draws come from."""

    @property
    def counts(self) -> Array:
        """(K,) The number of points from each component."""

    @property
    def nets(self) -> NDArray[np.int64]:
        """(n,) The net of each point, one of each component."""

    def points(self, fold: Fold, seed: int, round: int) -> Array:
        """Returns the points (n, P)."""

    def log_density(self, points: Array, fold: Fold) -> Array:
        """Returns the log-density (n,) of folded points, mirror images counted."""


@dataclass(frozen=True)
class Proposal:
    """Is a mixture of K multivariate t distributions.

    Attributes
    ----------
    mean, scale : (K, P), (K, P, P) centres, and scale matrices
    counts : (K,) how many points come from each
    df : degrees of freedom
    cores : how many components, the first ones, are those of the modes; the others are wider ones around them
    """

    mean: Array
    scale: Array
    counts: Array
    df: float
    cores: int

    @classmethod
    def of(cls, mean: Array, scale: Array, weights: Array, n: int) -> Proposal:
        """Returns a mixture with n points in proportion to the weights."""
        return cls(mean, scale, _shares(weights, n), MANY if mean.shape[1] > LARGE else FEW, len(mean))

    def with_wide(self, loose: Sequence[int]) -> Proposal:
        """Returns the mixture with a second component to each that is wider in some coordinates, all others as the first has them
        given these.

        A scale that few effects know has a posterior whose right tail is far heavier than its mode's curvature says.
        """
        B = list(loose)
        if not B:
            return self
        several = []
        for one in self.scale:
            across = one[:, B]
            several.append(one + (WIDER**2 - 1) * across @ np.linalg.solve(one[np.ix_(B, B)], across.T))
        weights, n = self.counts / self.counts.sum(), int(self.counts.sum())
        scale = np.concatenate([self.scale, [(one + one.T) / 2 for one in several]])
        both = Proposal.of(np.tile(self.mean, (2, 1)), scale, np.concatenate([(1 - WIDE) * weights, WIDE * weights]), n)
        return evolve(both, cores=self.cores)

    def points(self, fold: Fold, seed: int, round: int) -> Array:
        """Returns the points (n, P)."""
        several = []
        for k, count in enumerate(self.counts.astype(int)):
            D = self.mean.shape[1] + 1
            u = np.concatenate([sobol(n, D, (seed, round, k, b)) for b, n in enumerate(nets_of(int(count)))])
            several.append(self.placed(k, u))
        return folded(np.concatenate(several), fold)

    def placed(self, k: int, u: Array) -> Array:
        """Returns points (n, P) of a component, from uniform numbers (n, P + 1)."""
        g = chdtri(self.df, u[:, -1]) / self.df  # of the upper tail
        z = ndtri(u[:, :-1]) / np.sqrt(g)[:, np.newaxis]
        return np.asarray(self.mean[k] + z @ np.linalg.cholesky(self.scale[k]).T)

    @property
    def nets(self) -> NDArray[np.int64]:
        """(n,) The net of each point, one of each component."""
        return np.concatenate([np.repeat(np.arange(NETS), nets_of(int(count))) for count in self.counts])

    def log_density(self, points: Array, fold: Fold) -> Array:
        """Returns the log-density (n,) of folded points, mirror images counted."""
        each = [self.plain(points * signs) for signs in mirrors(fold, points.shape[1])]
        return np.asarray(logsumexp(each, axis=0))

    def plain(self, points: Array) -> Array:
        """Returns the same (n,) without mirror images."""
        return np.asarray(logsumexp([np.log(w) + self._of(k, points) for k, w in self._weights()], axis=0))

    def _weights(self) -> list[tuple[int, float]]:
        return [(k, n / self.counts.sum()) for k, n in enumerate(self.counts) if n > 0]

    def _of(self, k: int, points: Array) -> Array:
        """Returns the log-density (n,) of one component."""
        P, nu, C = points.shape[1], self.df, np.linalg.cholesky(self.scale[k])
        z = solve_triangular(C, (points - self.mean[k]).T, lower=True)
        constant = gammaln((nu + P) / 2) - gammaln(nu / 2) - 0.5 * P * np.log(nu * np.pi) - np.log(np.diag(C)).sum()
        return np.asarray(constant - 0.5 * (nu + P) * np.log1p((z**2).sum(axis=0) / nu))

    def _shares_of(self, points: Array) -> Array:
        """Returns the probability (n, cores) that a point is of each mode."""
        each = np.full((len(points), self.cores), -np.inf)
        for k, w in self._weights():
            if k < self.cores:
                each[:, k] = np.log(w) + self._of(k, points)
        return np.asarray(np.exp(each - logsumexp(each, axis=1, keepdims=True)))

    def adapted(self, points: Array, weights: Array, loose: Sequence[int]) -> Proposal:
        """Returns a mixture nearer to the weighted draws; with several modes, each component from the draws that are its own.

        Few draws have most of the weight at first, and a covariance of all of them would follow their noise: then its draws are
        worth less, and the evidence of all rounds together is too small. So moments are taken in the coordinates in which the
        component is standard, and drawn towards it by how many numbers they are: P means, P variances, P^2 / 2 correlations.
        """
        of, K = self._shares_of(points), self.cores
        mean, scale, share = self.mean[:K].copy(), self.scale[:K].copy(), np.zeros(K)
        for k in range(K):
            own = weights * of[:, k]
            share[k] = own.sum()
            if share[k] > 0:
                mean[k], scale[k] = _moved(mean[k], scale[k], points, own / share[k])
        return Proposal.of(mean, scale, np.maximum(share, LEAST_SHARE), int(self.counts.sum())).with_wide(loose)


def _moved(mean: Array, scale: Array, points: Array, weights: Array) -> tuple[Array, Array]:
    """Returns a component's centre and scale, nearer to the moments of weighted points."""
    P, worth, C = len(mean), 1 / float((weights**2).sum()), np.linalg.cholesky(scale)
    centre = weights @ points
    z = solve_triangular(C, (points - centre).T, lower=True)
    S = (z * weights) @ z.T
    sd = np.sqrt(np.maximum(np.diag(S), np.finfo(float).tiny ** 0.5))  # one draw may have all the weight
    of_means, of_variances, of_correlations = (worth / (worth + several) for several in (P, 5 * P, 2 * P**2))
    correlations = of_correlations * S / np.outer(sd, sd)
    np.fill_diagonal(correlations, 1.0)
    sd = np.sqrt(1 + of_variances * (sd**2 - 1))
    return mean + of_means * (centre - mean), C @ (correlations * np.outer(sd, sd)) @ C.T


def mixture_log_density(proposals: Sequence[Source], points: Array, fold: Fold) -> Array:
    """Returns the log-density (n,) of all points together, as if each came from all proposals in proportion to their points."""
    total = sum(float(one.counts.sum()) for one in proposals)
    each = [np.log(one.counts.sum() / total) + one.log_density(points, fold) for one in proposals]
    return np.asarray(logsumexp(each, axis=0))


def folded(points: Array, fold: Fold) -> Array:
    """Turns points to the side where the first coordinate of each group is not negative."""
    points = np.array(points, np.float64)
    for group in fold:
        points[:, list(group)] *= np.where(points[:, [group[0]]] < 0, -1.0, 1.0)
    return points


def mirrors(fold: Fold, size: int) -> list[Array]:
    """Returns the signs (size,) of each mirror image."""
    several = []
    for signs in product((1.0, -1.0), repeat=len(fold)):
        one = np.ones(size)
        for sign, group in zip(signs, fold, strict=True):
            one[list(group)] *= sign
        several.append(one)
    return several


def _shares(weights: Array, n: int) -> Array:
    """Returns whole numbers (K,) that add up to n, in proportion to the weights."""
    ends = np.round(np.cumsum(weights) / np.sum(weights) * n)
    return np.asarray(np.diff(ends, prepend=0.0))


def nets_of(count: int) -> list[int]:
    """Returns how many of a component's points each net has (NETS,)."""
    return [int(n) for n in _shares(np.ones(NETS), count)]
