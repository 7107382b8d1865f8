"""Chooses the hyperparameters whose posterior is looked at: stencils around what may be its mode, then a lattice around the mode.

The lattice has the axes of the Hessian and steps of about one standard deviation, as R-INLA's grid, and grows from its middle:
for each point whose density is not negligible all neighbours are looked at, on both sides of every axis. So a skew or a bent
posterior takes the points that it needs, and all around the border the density is known to be negligible. Source: Rue, Martino
and Chopin (2009), Approximate Bayesian inference for latent Gaussian models by using integrated nested Laplace approximations.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import RBFInterpolator
from scipy.spatial import cKDTree
from scipy.special import ndtri

from ...arrays import Array, Indices
from ..core.messages import evolve
from ..core.nets import NETS, sobol

STEPS = (0.75, 0.75, 1.2, 1.5, 1.8)  # of the lattice in sds, for 0, 1, 2, .. hyperparameters
NEGLIGIBLE = (6.0, 6.0, 5.5, 5.5, 4.5)  # nats below the mode
MOST = 300  # points of the lattice
FARTHEST = 5.4  # prior sds of a hyperparameter: the prior has 7e-8 of its mass beyond
FLAT = 0.5  # the least curvature: of the prior it is 1
FIRST, LEAST, LARGEST = 0.3, 1e-3, 0.5  # steps of stencils
OF_SD = 0.5  # the same in sds
FAR = 1.5  # a step to the mode, at most
NEAR = 0.3  # sds of the mode from the middle of a stencil that is near enough


def stencil(middle: Array, steps: Array) -> Array:
    """Returns (1 + 2 n + n (n - 1), n) the middle, both sides of each axis, and for each pair of axes both together."""
    E, n = np.diag(steps), len(middle)
    pairs = [sign * (E[i] + E[j]) for i in range(n) for j in range(i) for sign in (1, -1)]
    return np.asarray(middle + np.array([np.zeros(n), *E, *-E, *pairs]))


def derivatives(values: Array, steps: Array) -> tuple[Array, Array]:
    """Returns the gradient (n,) and minus the Hessian (n, n) in the middle, from the values (1 + 2 n + ..,) at a stencil."""
    n = len(steps)
    middle, up, down, pairs = values[0], values[1 : n + 1], values[n + 1 : 2 * n + 1], values[2 * n + 1 :].reshape(-1, 2)
    gradient, hessian = (up - down) / (2 * steps), np.diag((2 * middle - up - down) / steps**2)
    pair = 0
    for i in range(n):
        for j in range(i):
            mixed = pairs[pair].sum() + 2 * middle - up[i] - down[i] - up[j] - down[j]
            hessian[i, j] = hessian[j, i] = -mixed / (2 * steps[i] * steps[j])
            pair += 1
    return gradient, hessian


def axes(hessian: Array) -> Array:
    """Returns the eigenvectors of the Hessian as columns (n, n), each as long as the posterior's sd along it."""
    size, directions = np.linalg.eigh(hessian)
    return np.asarray(directions / np.sqrt(np.maximum(size, FLAT)))


def toward(gradient: Array, hessian: Array) -> tuple[Array, float]:
    """Returns Newton's step to the mode, at most `FAR` along each axis, and its length in sds before that."""
    A = axes(hessian)
    sds = A.T @ gradient
    step = A @ sds
    return step * min(1.0, FAR / max(float(np.abs(step).max(initial=0.0)), 1e-300)), float(np.sqrt(sds @ sds))


@dataclass(frozen=True)
class Lattice:
    """Is a lattice in coordinates zeta, v = origin + axes zeta."""

    # origin, axes: (n,), (n, n)
    origin: Array
    axes: Array

    @property
    def step(self) -> float:
        """The step in sds."""
        return STEPS[min(len(self.origin), len(STEPS) - 1)]

    @property
    def negligible(self) -> float:
        """The nats below the largest density, from which on a point needs no neighbours."""
        return NEGLIGIBLE[min(len(self.origin), len(NEGLIGIBLE) - 1)]

    def v(self, cells: Indices) -> Array:
        """Returns v (k, n) of cells (k, n), whole numbers."""
        return np.asarray(self.origin + self.step * cells @ self.axes.T)

    def zeta(self, v: Array) -> Array:
        """Returns zeta (k, n), in sds from the origin."""
        return np.asarray(np.linalg.solve(self.axes, (v - self.origin).T).T)

    def wanted(self, cells: Indices, log_density: Array, best: float) -> Indices:
        """Returns neighbours (m, n), not yet among `cells` (k, n), of those whose density is not negligible."""
        n, known = len(self.origin), {tuple(cell) for cell in cells.tolist()}
        if not n:
            return np.zeros((0, 0), np.int64)
        neighbours: dict[tuple[int, ...], None] = {}
        for cell, density in zip(cells.tolist(), log_density):
            if best - density >= self.negligible:
                continue
            for axis in range(n):
                for side in (1, -1):
                    beside = tuple(c + side * (axis == k) for k, c in enumerate(cell))
                    if beside not in known:
                        neighbours[beside] = None
        out = np.array(list(neighbours), np.int64).reshape(-1, n)
        return out[(np.abs(self.v(out)) <= FARTHEST).all(axis=1)]


# Search --------------------
# Seeks modes of u at several values of v at once, by damped Newton steps: a question asks for all that have not ended.
#
# The objective log p(u) + sum F_j(u, h) is concave in u but for rounding and for the error of integrating theta out, so a full
# step is the rule, and a third of one the exception.


CLOSE = 1e-4  # nats that a further step would gain, where the steps end
MOST_STEPS = 25
SHORTER = 0.3
ROUNDING = 1e-10  # of a value


@dataclass(frozen=True)
class Search:
    """Holds the searches at k places."""

    v: Array  # (k, n)
    trial: Array  # (k, U) the point of the next answer
    # at, value: (k, U), (k,) the best u so far, and the log posterior there; minus infinity before the first answer
    at: Array
    value: Array
    # step, hessian: (k, U), (k, U, U) Newton's step from there, and minus the Hessian
    step: Array
    hessian: Array
    gain: Array  # (k,) the gain of a full step, as the Hessian foresees it; of an ended search it is among the value
    share: Array  # (k,) of the step that is tried
    asked: Array  # (k,) answers

    @classmethod
    def begin(cls, v: Array, u: Array) -> Search:
        """Returns searches from u (k, U) at v (k, n)."""
        k, size = u.shape
        endless, zero = np.full(k, np.inf), np.zeros(k)
        return cls(v, u, u.copy(), -endless, np.zeros(u.shape), np.zeros((k, size, size)), endless, np.ones(k), zero)

    @property
    def ended(self) -> NDArray[np.bool_]:
        """(k,) Whether the steps have come to their end."""
        return np.asarray(self.gain <= CLOSE)

    @property
    def open(self) -> Indices:
        """The places where more is to be asked."""
        return np.flatnonzero(~self.ended & (self.asked < MOST_STEPS))

    def answered(self, which: Indices, value: Array, gradient: Array, hessian: Array) -> Search:
        """Returns the searches with answers at the trial points of `which`; minus infinity is no answer."""
        new = evolve(self, **{name: getattr(self, name).copy() for name in self.__dataclass_fields__})
        new.asked[which] += 1
        for i, k in enumerate(which):
            enough = value[i] >= self.value[k] - ROUNDING * abs(self.value[k]) and np.isfinite(value[i])
            step = _step(gradient[i], hessian[i]) if enough else None
            if step is None:  # too far: back, and less far. Before any answer: nearer to 0, the prior's mean
                new.share[k] *= SHORTER
                new.trial[k] = self.at[k] + new.share[k] * self.step[k] if np.isfinite(self.value[k]) else SHORTER * self.trial[k]
                continue
            new.at[k], new.value[k], new.hessian[k], new.step[k], new.share[k] = self.trial[k], value[i], hessian[i], step, 1.0
            new.gain[k] = 0.5 * float(gradient[i] @ step)
            new.trial[k] = new.at[k] + step
            if new.gain[k] <= CLOSE:
                new.at[k] = new.trial[k]
                new.value[k] += new.gain[k]
        return new


def _step(gradient: Array, hessian: Array) -> Array | None:
    """Returns Newton's step, or None if the Hessian is not positive definite."""
    try:
        np.linalg.cholesky(hessian)
    except np.linalg.LinAlgError:
        return None
    return np.asarray(np.linalg.solve(hessian, gradient))


# Proposals --------------------
# Draws (v, u) from smooth functions between the few values of v that were looked at.
#
# q(v) is proportional to exp of an interpolant of log p(v | y), on fine cells; q(u | v) = N(u*(v), (L L')^-1(v)), whose mean and
# whose Cholesky factor L of the precision, with logarithms on its diagonal, are interpolants too. Its density is known at every
# draw, so that weights are right whatever was interpolated. A part of the draws is of a wider q(v).


CELLS = (1, 400, 90, 36, 18)  # fine cells along each of 0, 1, 2, .. axes
SAME = 6  # digits of zeta by which places differ
WIDE = 0.15  # the part of the draws that come of the root of the density
HALF_LOG_TAU = 0.5 * np.log(2 * np.pi)


@dataclass(frozen=True)
class Draws:
    """Holds draws of (v, u)."""

    # v, u: (N, n), (N, U)
    v: Array
    u: Array
    log_density: Array  # (N,) of (v, u)
    nets: Indices  # (N,) to which scrambled net each belongs


@dataclass(frozen=True)
class Source:
    """Is the distribution of draws of (v, u)."""

    lattice: Lattice  # the coordinates zeta of v
    # v, mode, hessian, log_density: (k, n), (k, U), (k, U, U), (k,) at the places, log_density of v | y but for a constant
    v: Array
    mode: Array
    hessian: Array
    log_density: Array

    @property
    def _n(self) -> int:
        return int(self.v.shape[1])

    @cached_property
    def _nodes(self) -> Array:
        return self.lattice.zeta(self.v)

    def _between(self, columns: Array, zeta: Array) -> Array:
        """Returns values (k, c) of the nodes, at other zeta (m, n)."""
        n, distinct = self._n, self._distinct
        nodes, columns = self._nodes[distinct], columns[distinct]
        if len(nodes) <= n + 1 or not n:  # too few for a plane
            nearest = ((zeta[:, np.newaxis] - nodes) ** 2).sum(axis=2).argmin(axis=1)
            return np.asarray(columns[nearest])
        return np.asarray(RBFInterpolator(nodes, columns, kernel="cubic", degree=1)(zeta))

    @cached_property
    def _distinct(self) -> Indices:
        """The nodes that are in no earlier one's place: a stencil at the end of the search may come twice."""
        return np.sort(np.unique(np.round(self._nodes, SAME), axis=0, return_index=True)[1])

    def modes(self, v: Array) -> Array:
        """Returns the modes (m, U) of u, as far as they are known, at v (m, n)."""
        return self._between(self.mode, self.lattice.zeta(v))

    @cached_property
    def _factors(self) -> Array:
        """(k, U + U(U+1)/2) u*, and L with logarithms on its diagonal."""
        L = np.linalg.cholesky(self.hessian)
        rows, columns = np.tril_indices(L.shape[1])
        diagonal = np.arange(L.shape[1])
        L[:, diagonal, diagonal] = np.log(L[:, diagonal, diagonal])
        return np.concatenate([self.mode, L[:, rows, columns]], axis=1)

    @cached_property
    def _cells(self) -> tuple[Array, Array, Array]:
        """(m,) * n The probability of each fine cell; their lower ends (n, m), and widths (n,), in zeta."""
        n, m, step = self._n, CELLS[min(self._n, len(CELLS) - 1)], self.lattice.step
        best = float(self.log_density.max())
        inner = self._nodes[best - self.log_density < self.lattice.negligible]
        low, high = inner.min(axis=0) - step, inner.max(axis=0) + step
        width = (high - low) / m
        ends = low[:, np.newaxis] + width[:, np.newaxis] * np.arange(m)
        middles = np.stack(np.meshgrid(*(ends + width[:, np.newaxis] / 2), indexing="ij"), axis=-1).reshape(-1, n)
        off = self.log_density - best + 0.5 * (self._nodes**2).sum(axis=1)
        log_density = self._between(off[:, np.newaxis], middles)[:, 0] - 0.5 * (middles**2).sum(axis=1)
        near = cKDTree(inner).query(middles)[0] <= step * np.sqrt(n)
        inside = near & (np.abs(self.lattice.origin + middles @ self.lattice.axes.T) <= FARTHEST).all(axis=1)
        log_density = np.where(inside, np.minimum(log_density, 2.0), -np.inf)
        plain, wide = np.exp(log_density), np.exp(0.5 * log_density)
        whole = (1 - WIDE) * plain / plain.sum() + WIDE * wide / wide.sum()
        return whole.reshape((m,) * n), ends, width

    def draws(self, n_draws: int, key: tuple[int, ...]) -> Draws:
        """Returns `n_draws` draws, in `NETS` nets."""
        n, size = self._n, self.mode.shape[1]
        counts = np.diff(np.round(np.linspace(0, n_draws, NETS + 1)).astype(int))
        points = np.concatenate([sobol(int(count), n + size, (*key, b)) for b, count in enumerate(counts)])
        nets = np.repeat(np.arange(NETS), counts)
        zeta, log_density = self._hyper(points[:, :n])
        e = ndtri(points[:, n:])
        values = self._between(self._factors, zeta)
        rows, columns = np.tril_indices(size)
        L = np.zeros((n_draws, size, size))
        L[:, rows, columns] = values[:, size:]
        diagonal = np.arange(size)
        log_det = L[:, diagonal, diagonal].sum(axis=1)
        L[:, diagonal, diagonal] = np.exp(L[:, diagonal, diagonal])
        u = values[:, :size] + np.linalg.solve(L.transpose(0, 2, 1), e[:, :, np.newaxis])[:, :, 0]
        log_density = log_density + log_det - 0.5 * (e * e).sum(axis=1) - size * HALF_LOG_TAU
        return Draws(self.lattice.origin + zeta @ self.lattice.axes.T, u, log_density, nets)

    def _hyper(self, points: Array) -> tuple[Array, Array]:
        """Returns zeta (N, n) for points in the unit cube, one axis given those before it, and the log density of v."""
        N, n = points.shape
        if not n:
            return np.zeros((N, 0)), np.zeros(N)
        cells, ends, width = self._cells
        zeta, log_density = np.empty((N, n)), np.full(N, -np.log(width).sum() - np.linalg.slogdet(self.lattice.axes)[1])
        chosen: tuple[Indices, ...] = ()
        for axis in range(n):
            rest = cells.sum(axis=tuple(range(axis + 1, n))) if axis + 1 < n else cells  # (m,) * (axis + 1)
            share = rest[chosen] if chosen else np.broadcast_to(rest, (N, len(rest)))
            total = share.sum(axis=1, keepdims=True)
            upper = np.cumsum(share / total, axis=1)
            cell = np.minimum((upper < points[:, axis : axis + 1]).sum(axis=1), upper.shape[1] - 1)
            share_of_cell = np.take_along_axis(share / total, cell[:, np.newaxis], 1)[:, 0]
            below = np.take_along_axis(upper, cell[:, np.newaxis], 1)[:, 0] - share_of_cell
            inside = np.clip((points[:, axis] - below) / np.maximum(share_of_cell, np.finfo(float).tiny), 0.0, 1.0)
            zeta[:, axis] = ends[axis][cell] + width[axis] * inside
            log_density += np.log(np.maximum(share_of_cell, np.finfo(float).tiny))
            chosen = (*chosen, cell)
        return zeta, log_density
