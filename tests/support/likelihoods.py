"""Clients that are functions of xi, with posteriors that are known: for the tests of importance sampling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.special import gammaln

from fedkern.algorithms.importance import machine as importance
from fedkern.arrays import Array
from support import chosen
from support.federations import play


@dataclass(frozen=True)
class Normal:
    """A quadratic log-density: of a client, or a prior."""

    mean: Array
    precision: Array
    constant: float = 0.0

    @classmethod
    def prior(cls, sd: Array | float, size: int) -> Normal:
        precision = np.diag(np.full(size, 1.0) / np.square(sd))
        return cls(np.zeros(size), precision, 0.5 * np.linalg.slogdet(precision)[1] - 0.5 * size * np.log(2 * np.pi))

    @property
    def size(self) -> int:
        return len(self.mean)

    def values(self, points: Array, nodes: int = 1) -> Array:
        off = points - self.mean
        return self.constant - 0.5 * ((off @ self.precision) * off).sum(axis=1)

    def derivatives(self, points: Array) -> tuple[Array, Array, Array]:
        return self.values(points), -(points - self.mean) @ self.precision, np.repeat(self.precision[np.newaxis], len(points), 0)

    def curvature(self, points: Array, nodes: int = 1):
        if points.ndim == 1:  # as a prior is asked
            return tuple(one[0] for one in self.derivatives(points[np.newaxis]))
        return self.derivatives(points)

    def rule(self, points: Array, nodes: int) -> Array:
        return np.zeros(len(points))


@dataclass(frozen=True)
class Function:
    """Any function of points, with derivatives by differences; as a client, or as a prior."""

    size: int
    function: Callable[[Array], Array]
    error: Callable[[Array, int], Array] = field(default=lambda points, nodes: np.zeros(len(points)))
    step: float = 1e-3

    def values(self, points: Array, nodes: int = 1) -> Array:
        return self.function(points) + self.error(points, nodes)

    def rule(self, points: Array, nodes: int) -> Array:
        return self.values(points, nodes + 6) - self.values(points, nodes)

    units, together = np.array([0, 1]), False  # it is that of one row

    def curvature(self, points: Array, nodes: int = 1):
        if points.ndim == 1:
            return self._at(points, nodes)
        return tuple(np.array(part) for part in zip(*(self._at(one, nodes) for one in points), strict=True))

    def _at(self, x: Array, nodes: int) -> tuple[float, Array, Array]:
        h, P = self.step, self.size
        unit = h * np.eye(P)
        near = [x, *(x + s * unit[i] for i in range(P) for s in (1, -1))]
        near += [x + a * unit[i] + b * unit[k] for i in range(P) for k in range(i) for a in (1, -1) for b in (1, -1)]
        v = self.values(np.array(near), nodes)
        up, down = v[1 : 2 * P + 1 : 2], v[2 : 2 * P + 1 : 2]
        H = np.diag((2 * v[0] - up - down) / h**2)
        pairs = iter(v[2 * P + 1 :].reshape(-1, 4))
        for i in range(P):
            for k in range(i):
                pp, pm, mp, mm = next(pairs)
                H[i, k] = H[k, i] = -(pp - pm - mp + mm) / (4 * h * h)
        return v[0], (up - down) / (2 * h), H


def counts(y: Array) -> Function:
    """Poisson counts, xi the logarithm of their mean."""
    return Function(1, lambda points: (y * points[:, :1] - np.exp(points[:, :1]) - gammaln(y + 1)).sum(axis=1))


@dataclass(frozen=True)
class Logistic:
    """Binary responses, without random effects."""

    X: Array
    y: Array

    @property
    def size(self) -> int:
        return self.X.shape[1]

    def values(self, points: Array, nodes: int = 1) -> Array:
        eta = points @ self.X.T
        return (self.y * eta - np.logaddexp(0, eta)).sum(axis=1)

    def curvature(self, points: Array, nodes: int = 1):
        eta = points @ self.X.T
        mean, other = 1 / (1 + np.exp(-eta)), 1 / (1 + np.exp(eta))
        slope = np.where(self.y > 0, other, -mean)
        return self.values(points), slope @ self.X, np.einsum("ci,ij,ik->cjk", mean * other, self.X, self.X)

    def rule(self, points: Array, nodes: int) -> Array:
        return np.zeros(len(points))


def machines(models, prior, start=None, coordinates=None, **settings):
    """The server's start and the clients."""
    s = chosen.importance(**settings)
    P = models[0].size
    coordinates = coordinates or importance.Coordinates(tuple(f"x{k}" for k in range(P)))
    start = np.zeros((s.starts, P)) if start is None else np.atleast_2d(start)
    clients = {k: importance.client(f"c{k}", k, s, model) for k, model in enumerate(models)}
    return importance.start(s, prior, tuple(f"c{k}" for k in range(len(models))), coordinates, start), clients


def run(models, prior, start=None, coordinates=None, order=None, **settings):
    """The server's last state and the clients'."""
    started, clients = machines(models, prior, start, coordinates, **settings)
    return play(importance, started, clients, order)


def found(models, prior, start=None, coordinates=None, **settings):
    """What the server has found."""
    return importance.read_result(run(models, prior, start, coordinates, **settings)[0])
