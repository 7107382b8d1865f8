"""Draws where the prior of some coordinates has a learnt scale s: the density is unbounded at s -> 0, and has no joint mode.

The mode of the rest is sought at the value of log s at which the climb begins (`held`). There the log-likelihood is nearly
quadratic, and the prior given s is so exactly: for every s of a grid the rest given s is a normal distribution, and the integral
over it is p(log s | y). A draw is log s, uniform in a cell of the grid that is drawn first, and the rest from a mixture of t
distributions around that normal one. Later rounds have the same form: moments of weighted draws are taken in the coordinates in
which the rest given s is standard. Source: docs/spec/likelihood.md, section 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

from ..core.messages import evolve
from ..core.nets import sobol
from .coordinates import Derivatives
from .proposals import Fold, Proposal, folded, mirrors, nets_of

Array = NDArray[np.float64]

LOW, HIGH, STEP = -9.0, 3.0, 0.1  # the grid of log s
FREE = 20.0  # log s at which its prior says nothing
POWER, LEAST = 0.8, 2e-3  # density^.8, and this part of its maximum, is what log s is drawn from
FLAT = 1e-3  # of the curvature where the mode was found: the least that is left of it without the prior of the scale
Prior = Callable[[float], tuple[float, Array, Array]]  # at the mode with this log s: log-density, gradient, minus the Hessian


def held(free: Derivatives, at: int) -> Derivatives:
    """Returns derivatives by which no step moves this coordinate."""
    gradient, hessian = free.gradient.copy(), free.hessian.copy()
    gradient[:, at] = 0.0
    hessian[:, at, :] = hessian[:, :, at] = 0.0
    hessian[:, at, at] = 1.0
    return Derivatives(free.value, gradient, hessian)


@dataclass(frozen=True)
class Scaled:
    """Draws log s, and the rest given it.

    Attributes
    ----------
    at : the coordinate of log s
    order : (P - 1,) the others, those whose posterior may have heavy tails first
    log_mass : (G,) logarithms of the probabilities of the cells
    mean, root : (G, P - 1), (G, P - 1, P - 1) centre and lower root of the scale matrix of each cell, in that order
    inner : of the rest, in the coordinates in which these are 0 and 1
    """

    at: int
    order: NDArray[np.int64]
    log_mass: Array
    mean: Array
    root: Array
    inner: Proposal

    @classmethod
    def around(
        cls, mode: Array, gradient: Array, hessian: Array, prior: Prior, at: int, loose: Sequence[int], points: int
    ) -> Scaled:
        """Returns the draws around the mode of the rest at log s = mode[at].

        Parameters
        ----------
        mode : (P,)
        gradient, hessian : of the log-posterior there; minus its second derivatives
        prior : in whatever coordinates, if those whose prior depends on s are the same in them
        loose : coordinates of which a fifth of the points are more widely spread
        points : how many
        """
        first = [k for k in loose if k != at]
        order = np.array([*first, *(k for k in range(len(mode)) if k != at and k not in first)], np.int64)
        square = np.ix_(order, order)
        before, slope_before, curved_before = prior(float(mode[at]))
        A, P = hessian[square], len(order)
        # What is left of the curvature without the prior given s: of a density that is not concave it may be below 0.
        C = np.linalg.cholesky(A)
        without = prior(FREE)[2][square]
        left = A - (curved_before[square] - without)
        left = solve_triangular(C, solve_triangular(C, left, lower=True).T, lower=True)
        w, V = np.linalg.eigh((left + left.T) / 2)
        rest = C @ (V * np.maximum(w, FLAT)) @ V.T @ C.T
        cells = np.arange(LOW + STEP / 2, HIGH, STEP)
        log, means, roots = np.empty(len(cells)), np.empty((len(cells), P)), np.empty((len(cells), P, P))
        for g, log_s in enumerate(cells):
            value, slope, curved = prior(float(log_s))
            B = np.linalg.cholesky(rest + curved[square] - without)
            linear = (gradient + slope - slope_before)[order]
            half = solve_triangular(B, linear, lower=True)
            means[g] = mode[order] + solve_triangular(B, half, lower=True, trans="T")
            # a lower root of the inverse, in the same order
            inverse = solve_triangular(B, np.eye(P), lower=True)
            roots[g] = np.linalg.cholesky(inverse.T @ inverse)
            log[g] = value - before + 0.5 * half @ half - np.log(np.diagonal(B)).sum()
        density = np.exp(POWER * (log - log.max())) + LEAST
        inner = Proposal.of(np.zeros((1, P)), np.eye(P)[np.newaxis], np.ones(1), points).with_wide(range(len(first)))
        return cls(at, order, np.log(density / density.sum()), means, roots, inner)

    @property
    def counts(self) -> Array:
        """(K,) The number of points from each component of the rest."""
        return self.inner.counts

    @property
    def nets(self) -> NDArray[np.int64]:
        """(n,) The net of each point."""
        return self.inner.nets

    def points(self, fold: Fold, seed: int, round: int) -> Array:
        """Returns the points (n, P)."""
        several, below = [], np.concatenate([[0.0], np.cumsum(np.exp(self.log_mass))])
        D = len(self.order) + 2
        for k, count in enumerate(self.counts.astype(int)):
            u = np.concatenate([sobol(n, D, (seed, round, k, b)) for b, n in enumerate(nets_of(int(count)))])
            x, rest = u[:, 0] * below[-1], self.inner.placed(k, u[:, 1:])
            g = np.clip(np.searchsorted(below, x, side="right") - 1, 0, len(self.log_mass) - 1)
            share = np.clip((x - below[g]) / (below[g + 1] - below[g]), 1e-6, 1 - 1e-6)
            z = np.empty((count, D - 1))
            z[:, self.at] = LOW + STEP * (g + share)
            z[:, self.order] = self.mean[g] + np.einsum("nij,nj->ni", self.root[g], rest)
            several.append(z)
        return folded(np.concatenate(several), fold)

    def log_density(self, points: Array, fold: Fold) -> Array:
        """Returns the log-density (n,) of folded points, mirror images counted."""
        return np.asarray(logsumexp([self._plain(points * signs) for signs in mirrors(fold, points.shape[1])], axis=0))

    def _plain(self, points: Array) -> Array:
        g, inside = self._cells(points)
        log_det = np.log(np.diagonal(self.root, axis1=1, axis2=2)).sum(axis=1)
        log_density = self.log_mass[g] - np.log(STEP) - log_det[g] + self.inner.plain(self._standard(points, g))
        return np.where(inside, log_density, -np.inf)

    def _cells(self, points: Array) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Returns the cell (n,) of each point, and whether it is in any."""
        g = np.floor((points[:, self.at] - LOW) / STEP).astype(np.int64)
        last = len(self.log_mass) - 1
        return np.clip(g, 0, last), (g >= 0) & (g <= last)

    def _standard(self, points: Array, g: NDArray[np.int64]) -> Array:
        """Returns the rest (n, P - 1), in the coordinates of `inner`."""
        off, standard = points[:, self.order] - self.mean[g], np.empty((len(points), len(self.order)))
        for one in np.unique(g):
            there = g == one
            standard[there] = solve_triangular(self.root[one], off[there].T, lower=True).T
        return standard

    def adapted(self, points: Array, weights: Array, loose: Sequence[int]) -> Scaled:
        """Returns draws nearer to the weighted ones: log s by their worth over the cells' number, the rest as `Proposal` does."""
        g, _ = self._cells(points)
        first = len([k for k in loose if k != self.at])
        inner = self.inner.adapted(self._standard(points, g), weights, range(first))
        seen = np.bincount(g, weights, len(self.log_mass))
        seen = np.convolve(np.pad(seen, 2, mode="edge"), np.full(5, 0.2), mode="valid")
        density = (seen / seen.max()) ** POWER + LEAST
        worth = 1 / float((weights**2).sum())
        share = worth / (worth + len(seen))
        mass = share * density / density.sum() + (1 - share) * np.exp(self.log_mass)
        return evolve(self, log_mass=np.log(mass / mass.sum()), inner=inner)
