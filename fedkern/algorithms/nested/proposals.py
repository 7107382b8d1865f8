"""Draws (v, u) from smooth functions between the few values of v that were looked at.

q(v) is proportional to exp of an interpolant of log p(v | y), on fine cells; q(u | v) = N(u*(v), (L L')^-1(v)), whose mean and
whose Cholesky factor L of the precision, with logarithms on its diagonal, are interpolants too. Its density is known at every
draw, so that weights are right whatever was interpolated. A part of the draws is of a wider q(v).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import RBFInterpolator
from scipy.spatial import cKDTree
from scipy.special import ndtri

from ..core.nets import NETS, sobol
from .design import FARTHEST, Lattice

Array = NDArray[np.float64]
Index = NDArray[np.int64]

CELLS = (1, 400, 90, 36, 18)  # fine cells along each of 0, 1, 2, .. axes
SAME = 6  # digits of zeta by which places differ
WIDE = 0.15  # the part of the draws that come of the root of the density
HALF_LOG_TAU = 0.5 * np.log(2 * np.pi)


@dataclass(frozen=True)
class Draws:
    """Holds draws of (v, u).

    Attributes
    ----------
    v, u : (N, n), (N, U)
    log_density : (N,) of (v, u)
    nets : (N,) to which scrambled net each belongs
    """

    v: Array
    u: Array
    log_density: Array
    nets: Index


@dataclass(frozen=True)
class Mixture:
    """Is the distribution of draws of (v, u).

    Attributes
    ----------
    lattice : the coordinates zeta of v
    v, mode, hessian, log_density : (k, n), (k, U), (k, U, U), (k,) at the places, log_density of v | y but for a constant
    """

    lattice: Lattice
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
    def _distinct(self) -> Index:
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
        every = np.arange(L.shape[1])
        L[:, every, every] = np.log(L[:, every, every])
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
        every = np.arange(size)
        log_det = L[:, every, every].sum(axis=1)
        L[:, every, every] = np.exp(L[:, every, every])
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
        chosen: tuple[Index, ...] = ()
        for axis in range(n):
            rest = cells.sum(axis=tuple(range(axis + 1, n))) if axis + 1 < n else cells  # (m,) * (axis + 1)
            share = rest[chosen] if chosen else np.broadcast_to(rest, (N, len(rest)))
            total = share.sum(axis=1, keepdims=True)
            upper = np.cumsum(share / total, axis=1)
            cell = np.minimum((upper < points[:, axis : axis + 1]).sum(axis=1), upper.shape[1] - 1)
            own = np.take_along_axis(share / total, cell[:, np.newaxis], 1)[:, 0]
            below = np.take_along_axis(upper, cell[:, np.newaxis], 1)[:, 0] - own
            inside = np.clip((points[:, axis] - below) / np.maximum(own, np.finfo(float).tiny), 0.0, 1.0)
            zeta[:, axis] = ends[axis][cell] + width[axis] * inside
            log_density += np.log(np.maximum(own, np.finfo(float).tiny))
            chosen = (*chosen, cell)
        return zeta, log_density
