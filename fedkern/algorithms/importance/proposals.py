"""Draws from mixtures of multivariate t distributions, by points that fill the space evenly.

Points are Sobol's in P + 1 dimensions: P normal numbers and a chi-square. They are several nets, each scrambled by a generator of
its own that the seed, the round, the component and the net key: by how much these differ is how well a round's sums are known.
That generator also chooses which dimension is which, for some pairs of dimensions are filled badly, and would be in all rounds.
The server alone makes the points. If the posterior is symmetric in the sign of some coordinates, every draw is turned to the side
where the first of them is positive, and the density there is that of all its mirror images. Source: docs/spec/likelihood.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import chdtri, gammaln, logsumexp, ndtri

from ...arrays import Array
from ..core.box import Box
from ..core.messages import evolve
from ..core.nets import NETS, sobol
from .newton import Ends

# Coordinates --------------------
# Chooses the coordinates z in which the server steps and draws, if xi, as it is sent, has logarithms of scales.
#
# A scale tau whose posterior reaches down to 0 has in log tau a density with a long left tail, which neither a normal nor a t
# distribution around its mode follows. As a signed number t, tau = |t|, it has none: the likelihood is a smooth and even function
# of t (an effect is tau u with u symmetric), and so is the posterior. With a column of a triangular factor T its entries below
# the diagonal change their signs with t. So z has the column of T itself, and draws are folded to t > 0 (see `proposals`).


SMALL = 1e-3  # of its unit: a smaller t has the derivatives that an even function has there, for those in log t are rounded away
FEW_COORDINATES = 6  # coordinates, of which all may have heavy tails where nothing is said of them
LOOSE = 0.5  # standard deviation of an exponent: ten rows of a level leave a third, none leave .8 and more
MOST_EXPONENT = 300.0  # so that the square of an exponential is a number
SMALLEST_SCALE = 1e-9  # of its unit: the smallest scale that is sent
BORDER = 1e-5  # of a box's width: as far from its border draws are moved, for they travel as 32-bit steps


class Derivatives(NamedTuple):
    """Holds a log-density at c points: (c,), its gradient (c, P), minus its Hessian (c, P, P)."""

    value: Array
    gradient: Array
    hessian: Array


@dataclass(frozen=True)
class Coordinates:
    """Describes the coordinates of xi.

    Attributes
    ----------
    names : (P,)
    fold : sets of coordinates that change their signs together without a change of the posterior
    scales : for each logarithm of a scale its coordinate, and those of the entries below it in its column of T
    loose : those whose posteriors may have heavy tails, as scales of few effects and the coefficients that these shift have
    learnt : that of the logarithm of a scale of others' prior, near 0 of which the density is unbounded (`learnt_scale`)
    exponents : those that people read as their exponentials, in sums with others (gaps between thresholds)
    box : where xi may be asked for; None: everywhere
    anchored : the first threshold, and the gaps above it as far as a level that rows have: z has the threshold there in its
        place, for one beside a level that nobody has is that less a gap of which the prior alone tells, a curve that no t follows
    """

    names: tuple[str, ...]
    fold: tuple[tuple[int, ...], ...] = ()
    scales: tuple[tuple[int, ...], ...] = ()
    loose: tuple[int, ...] = ()
    learnt: int | None = None
    exponents: tuple[int, ...] = ()
    box: Box | None = None
    anchored: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """P, the number of coordinates."""
        return len(self.names)

    @property
    def wide(self) -> tuple[int, ...]:
        """The coordinates in which draws are also made from a wider distribution."""
        return self.loose or (tuple(range(self.size)) if self.size <= FEW_COORDINATES else ())

    @property
    def mirrored(self) -> tuple[tuple[int, ...], ...]:
        """The sets of coordinates of z that change their signs together."""
        return (*self.fold, *self.scales)

    def flat(self, z: Array, weights: Array) -> tuple[int, ...]:
        """Returns the exponents that weighted points (n, P) leave so wide that their exponentials have heavy tails.

        A gap whose logarithm has a standard deviation of 1.5 has most of its variance from logarithms that are three standard
        deviations above their mean, where the posterior has next to no draws.
        """
        off = [z[:, k] - weights @ z[:, k] for k in self.exponents]
        return tuple(k for k, deviations in zip(self.exponents, off) if weights @ deviations**2 > LOOSE**2)

    def read(self, z: Array, flat: tuple[int, ...]) -> Array:
        """Returns (n, P + flat) the points, and beside them the exponentials of flat exponents."""
        return np.concatenate([z, np.exp(np.minimum(z[:, list(flat)], MOST_EXPONENT))], axis=1) if flat else z

    def sent(self, z: Array, units: Array) -> Array:
        """Returns xi (n, P); `units` (scales,) is a large value for each t."""
        xi = np.array(z, np.float64)
        for unit, (k, *below) in zip(units, self.scales, strict=True):
            t = z[:, k]
            xi[:, k] = np.log(np.maximum(np.abs(t), SMALLEST_SCALE * unit))
            xi[:, below] *= np.where(t < 0, -1.0, 1.0)[:, np.newaxis]
        xi[:, self.anchored[:1]] -= self._between(z)
        return xi if self.box is None else self.box.nearest(xi)

    def drawn(self, z: Array, units: Array) -> Array:
        """Returns xi (n, P) of draws, those outside of the box moved to its border."""
        xi = self.sent(z, units)
        return xi if self.box is None else self.box.nearest(xi, self._border / 2)

    @property
    def _border(self) -> float:
        """The part of the box's width within which a draw is taken to have been moved."""
        return BORDER if self.box is None else max(BORDER, 2 * self.box.border)

    @property
    def ends(self) -> Ends | None:
        """The ends of z in the box; a scale may be as near to 0 as it likes."""
        if self.box is None:
            return None
        low, high = self.box.ends()
        places = [places for places, *_ in self.scales]
        high[places] = np.exp(high[places])
        low[places] = -high[places]
        return Ends(low, high, self.box.sums)

    def beyond(self, xi: Array) -> NDArray[np.bool_]:
        """Tells which points (n, P), as they were sent, are those of z at the border of the box, or beyond it."""
        if self.box is None:
            return np.zeros(len(xi), np.bool_)
        sums, (low, high) = self.box.sums(xi), self.box.ends(self._border)
        low[[k for k, *_ in self.scales]] = -np.inf
        return np.asarray(((sums <= low) | (sums >= high)).any(axis=1))

    def of(self, xi: Array) -> Array:
        """Returns z (n, P) with t > 0."""
        z = np.array(xi, np.float64)
        for k, *_ in self.scales:
            z[:, k] = np.exp(z[:, k])
        z[:, self.anchored[:1]] += self._between(xi)
        return z

    def _between(self, points: Array) -> Array:
        """(n, 1) the gaps between the first threshold and that which stands in its place."""
        return np.asarray(np.exp(points[:, self.anchored[1:]]).sum(axis=1, keepdims=True))

    def units(self, xi: Array) -> Array:
        """Returns the units (scales,) of a start value (P,)."""
        return np.exp(xi[[k for k, *_ in self.scales]])

    def log_jacobian(self, xi: Array) -> Array:
        """Returns log |dxi / dz| (n,)."""
        return np.asarray(-xi[:, [k for k, *_ in self.scales]].sum(axis=1))

    def safe(self, z: Array, units: Array) -> Array:
        """Returns the points (n, P) at which derivatives are asked for."""
        out = np.array(z, np.float64)
        for unit, (k, *_) in zip(units, self.scales, strict=True):
            small = np.abs(z[:, k]) < SMALL * unit
            out[small, k] = np.where(z[small, k] < 0, -1.0, 1.0) * SMALL * unit
        return out

    def derivatives(self, z: Array, units: Array, of_xi: Derivatives) -> Derivatives:
        """Returns the derivatives in z of the density of z, from those in xi, at the safe points, of the density of xi."""
        safe = self.safe(z, units)
        xi = self.sent(safe, units)
        value, gradient, hessian = of_xi.value + self.log_jacobian(xi), of_xi.gradient.copy(), of_xi.hessian.copy()
        slope = np.ones(z.shape)  # dxi_k / dz_k
        bent = np.zeros(z.shape)
        for k, *below in self.scales:
            t = safe[:, k]
            gradient[:, k] -= 1.0  # of the Jacobian
            slope[:, k] = 1 / t
            bent[:, k] = gradient[:, k] / t**2
            slope[:, below] = np.sign(t)[:, np.newaxis]
        gradient = gradient * slope
        hessian = hessian * slope[:, :, np.newaxis] * slope[:, np.newaxis, :]
        diagonal = np.arange(self.size)
        hessian[:, diagonal, diagonal] += bent
        if self.anchored:
            first, *gaps = self.anchored
            J = np.tile(np.eye(self.size), (len(z), 1, 1))
            J[:, first, gaps] = -np.exp(z[:, gaps])
            hessian = J.swapaxes(1, 2) @ hessian @ J
            hessian[:, gaps, gaps] -= gradient[:, [first]] * J[:, first, gaps]
            gradient = np.einsum("cji,cj->ci", J, gradient)
        for k, *_ in self.scales:
            inner = np.abs(z[:, k]) < np.abs(safe[:, k])
            if not inner.any():
                continue
            share = np.where(inner, z[:, k] / safe[:, k], 1.0)
            value = value + np.where(inner, gradient[:, k] * (z[:, k] * share - safe[:, k]) / 2, 0.0)
            gradient[:, k] *= share
            curvature = hessian[:, k, k].copy()
            hessian[:, k, :] *= share[:, np.newaxis]
            hessian[:, :, k] *= share[:, np.newaxis]
            hessian[:, k, k] = curvature
        return Derivatives(value, gradient, hessian)


def name_flagged(flags: NDArray[np.bool_], names: Sequence[str]) -> str:
    """Returns the names of those that are true."""
    return ", ".join(repr(name) for name, flag in zip(names, flags, strict=True) if flag)


# Proposals --------------------


Fold = Sequence[Sequence[int]]  # coordinates that change their signs together

FEW, LARGE = 7.0, 20  # degrees of freedom up to LARGE dimensions; beyond, where a t has no point near its mode, two a dimension
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

    @property
    def order_of_questions(self) -> NDArray[np.int64]:
        """(n,) The numbers of the points in the order in which they are asked."""

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
        P = mean.shape[1]
        return cls(mean, scale, _shares(weights, n), 2.0 * P if P > LARGE else FEW, len(mean))

    def sized(self, n: int) -> Proposal:
        """Returns the mixture with n points."""
        return evolve(self, counts=_shares(self.counts, n))

    def with_wide(self, loose: Sequence[int]) -> Proposal:
        """Returns the mixture with a second component to each that is wider in some coordinates, all others as the first has them
        given these.

        A scale that few effects know has a posterior whose right tail is far heavier than its mode's curvature says.
        """
        B = list(loose)
        if not B:
            return self
        several = []
        for component in self.scale:
            across = component[:, B]
            several.append(component + (WIDER**2 - 1) * across @ np.linalg.solve(component[np.ix_(B, B)], across.T))
        weights, n = self.counts / self.counts.sum(), int(self.counts.sum())
        scale = np.concatenate([self.scale, [(component + component.T) / 2 for component in several]])
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

    @property
    def order_of_questions(self) -> NDArray[np.int64]:
        """(n,) The numbers of the points in the order in which they are asked: net by net, and in each net points of all
        components side by side, for a client compares the draws of a question with each other."""
        along = [(np.arange(n) + 0.5) / n for count in self.counts for n in nets_of(int(count))]
        return np.lexsort((np.concatenate(along), self.nets))

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
            part_weights = weights * of[:, k]
            share[k] = part_weights.sum()
            if share[k] > 0:
                mean[k], scale[k] = _moved(mean[k], scale[k], points, part_weights / share[k])
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
    total = sum(float(proposal.counts.sum()) for proposal in proposals)
    each = [np.log(proposal.counts.sum() / total) + proposal.log_density(points, fold) for proposal in proposals]
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
        image = np.ones(size)
        for sign, group in zip(signs, fold, strict=True):
            image[list(group)] *= sign
        several.append(image)
    return several


def _shares(weights: Array, n: int) -> Array:
    """Returns whole numbers (K,) that add up to n, in proportion to the weights."""
    ends = np.round(np.cumsum(weights) / np.sum(weights) * n)
    return np.asarray(np.diff(ends, prepend=0.0))


def nets_of(count: int) -> list[int]:
    """Returns how many of a component's points each net has (NETS,)."""
    return [int(n) for n in _shares(np.ones(NETS), count)]


# Learnt scale --------------------
# Draws where the prior of some coordinates has a learnt scale s: the density is unbounded at s -> 0, and has no joint mode.
#
# The mode of the rest is sought at the value of log s at which the climb begins (`held`). There the log-likelihood is nearly
# quadratic, and the prior given s is so exactly: for every s of a grid the rest given s is a normal distribution, and the
# integral over it is p(log s | y). A draw is log s, uniform in a cell of the grid that is drawn first, and the rest from a
# mixture of t distributions around that normal one. Later rounds have the same form: moments of weighted draws are taken in the
# coordinates in which the rest given s is standard. Source: docs/spec/likelihood.md, section 1.


LOW, HIGH, STEP = -9.0, 3.0, 0.1  # the grid of log s
FREE = 20.0  # log s at which its prior says nothing
POWER, LEAST = 0.8, 2e-3  # density^.8, and this part of its maximum, is what log s is drawn from
FLAT = 1e-3  # of the curvature where the mode was found: the least that is left of it without the prior of the scale
Prior = Callable[[float], tuple[float, Array, Array]]  # at the mode with this log s: log-density, gradient, minus the Hessian


def held(free: Derivatives, k: int) -> Derivatives:
    """Returns derivatives by which no step moves this coordinate."""
    gradient, hessian = free.gradient.copy(), free.hessian.copy()
    gradient[:, k] = 0.0
    hessian[:, k, :] = hessian[:, :, k] = 0.0
    hessian[:, k, k] = 1.0
    return Derivatives(free.value, gradient, hessian)


class Grid(NamedTuple):
    """Holds the normal distribution of the rest given each log s, by a quadratic of the log-likelihood.

    Attributes
    ----------
    at : the coordinate of log s
    order : (P - 1,) the others, those whose posterior may have heavy tails first
    loose : how many these are
    log : (G,) logarithms of the density of log s in the middle of each cell
    mean, root : (G, P - 1), (G, P - 1, P - 1) of the rest, and a lower root of its covariance, in that order
    """

    at: int
    order: NDArray[np.int64]
    loose: int
    log: Array
    mean: Array
    root: Array

    @classmethod
    def about(cls, mode: Array, gradient: Array, hessian: Array, prior: Prior, at: int, loose: Sequence[int]) -> Grid:
        """Returns it by derivatives at the mode of the rest at log s = mode[at].

        Parameters
        ----------
        mode : (P,)
        gradient, hessian : of the log-posterior there; minus its second derivatives
        prior : in whatever coordinates, if those whose prior depends on s are the same in them
        loose : coordinates whose posterior may have heavy tails
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
        cells = middles()
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
        return cls(at, order, len(first), log, means, roots)

    def nearer(self, mode: Array) -> Array | None:
        """Returns where to climb from where log s = mode[at] is farther from its mean than its standard deviation: a quadratic
        about a mode given another s is no longer that of the log-likelihood. None where it is not."""
        mass = np.exp(self.log - self.log.max())
        mass, cells = mass / mass.sum(), middles()
        mean = float(mass @ cells)
        if (float(mode[self.at]) - mean) ** 2 <= float(mass @ (cells - mean) ** 2):
            return None
        place = mode.copy()
        place[self.at], place[self.order] = mean, self.mean[int(np.abs(cells - mean).argmin())]
        return place


def middles() -> Array:
    """Returns (G,) the middles of the cells of log s."""
    return np.arange(LOW + STEP / 2, HIGH, STEP)


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
    def around(cls, grid: Grid, points: int) -> Scaled:
        """Returns so many draws, of which a fifth are more widely spread in the coordinates that may have heavy tails."""
        density, P = np.exp(POWER * (grid.log - grid.log.max())) + LEAST, len(grid.order)
        inner = Proposal.of(np.zeros((1, P)), np.eye(P)[np.newaxis], np.ones(1), points).with_wide(range(grid.loose))
        return cls(grid.at, grid.order, np.log(density / density.sum()), grid.mean, grid.root, inner)

    @property
    def counts(self) -> Array:
        """(K,) The number of points from each component of the rest."""
        return self.inner.counts

    def sized(self, n: int) -> Scaled:
        """Returns the same with n points."""
        return evolve(self, inner=self.inner.sized(n))

    @property
    def nets(self) -> NDArray[np.int64]:
        """(n,) The net of each point."""
        return self.inner.nets

    @property
    def order_of_questions(self) -> NDArray[np.int64]:
        """(n,) The numbers of the points in the order in which they are asked."""
        return self.inner.order_of_questions

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
        for component in np.unique(g):
            rows = g == component
            standard[rows] = solve_triangular(self.root[component], off[rows].T, lower=True).T
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
