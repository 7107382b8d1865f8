"""Integrates out effects that one client's groups alone have, with their standard deviation: the points lack its place.

    L(xi) = log of the integral of p(y | xi, t) p(t) over t, the logarithm of the standard deviation

The integrand is smooth and falls at both ends, so that equal steps integrate it as fast as any rule (Trefethen and Weideman,
2014): with G groups it is no narrower than 1 / sqrt(2 G), and steps of that length leave an error below 1e-6. Steps without
weight at the middle of a question's points are left out there. Derivatives are those of a mixture, by Louis (1982).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...arrays import Vector
from .layout import MOST_NODES, NODES, Prior
from .quadrature import log_sum
from .rows import MORE, Rows

LOW, HIGH = -7.0, 4.0  # logarithms of the smallest and the largest standard deviation, over the scale of its prior
NOTHING = 30.0  # nats below the largest term, by which a step has no weight
LOOKED, CLOSE = 32, 0.01  # points at which the groups' quadrature is compared with one of more nodes; nats that are close


@dataclass(frozen=True)
class Secret:
    """Is the log-likelihood of a client's rows whose groups have an intercept of their own, of which nobody else knows."""

    # plain, rows: as the job has them, and with the effect
    plain: Rows
    rows: Rows
    # steps, log_weights: (K,) logarithms of the standard deviation, and of their prior weights
    steps: Vector
    log_weights: Vector

    @classmethod
    def of(cls, plain: Rows, codes: NDArray[np.int64], prior: Prior) -> Secret:
        """Returns it of rows and the number (n,) of each one's group; `prior`: of the job's numbers and the effect's."""
        order = np.argsort(codes, kind="stable")
        starts = np.flatnonzero(np.diff(codes[order], prepend=-1, append=-1))
        layout = prior.layout
        step = 1 / math.sqrt(2 * (len(starts) - 1))
        steps = math.log(prior.scale) + np.arange(LOW, HIGH, step)
        points = np.tile(layout.start, (len(steps), 1))
        points[:, layout.group_at.start] = steps
        log_density = prior.values(points)
        rows = plain.take(order, starts)
        with_effect = Rows(
            layout, rows.X, rows.y, starts, rows.trials, rows.offset, rows.n_threads, root=rows.root, key=plain.key, whole=True
        )
        return cls(plain, with_effect, steps, log_density - log_sum(log_density))

    @property
    def size(self) -> int:
        """P, the length of a point."""
        return self.plain.size

    @property
    def X(self) -> Vector:
        """(n, p) The columns of the coefficients."""
        return self.plain.X

    def weighed(self, point: Vector) -> Vector:
        """Returns (1, n) the rows' weights at a point (P,), without effects."""
        return self.plain.weighed(point)

    def values(self, points: Vector, nodes: int) -> Vector:
        """Returns the log-likelihood (n,) at points (n, P)."""
        return self._values(points, *self._looked_at(points, nodes))

    def _values(self, points: Vector, which: NDArray[np.int64], nodes: int) -> Vector:
        terms = [self.log_weights[k] + self.rows.values(self._laid(points, self.steps[k]), nodes) for k in which]
        return log_sum(np.transpose(terms))

    def curvature(self, points: Vector, nodes: int) -> tuple[Vector, Vector, Vector]:
        """Returns the log-likelihood (c,), its gradients (c, P), and minus its Hessians (c, P, P)."""
        c, P = points.shape
        value, gradient, curved = np.empty(c), np.empty((c, P)), np.empty((c, P, P))
        kept = np.delete(np.arange(P + 1), self.rows.layout.group_at.start)
        for i, point in enumerate(points):
            which, n = self._looked_at(point[np.newaxis], nodes)
            f, g, H = self.rows.curvature(self._laid(np.tile(point, (len(which), 1)), self.steps[which]), n)
            terms = self.log_weights[which] + f
            value[i] = log_sum(terms)
            weights = np.exp(terms - value[i])
            gradient[i] = weights @ g[:, kept]
            around = g[:, kept] - gradient[i]
            curved[i] = np.einsum("k,kij->ij", weights, H[:, kept][:, :, kept]) - (around.T * weights) @ around
        return value, gradient, curved

    def rule(self, points: Vector, nodes: int) -> Vector:
        """Returns by how much values are others with more nodes; of a job without effects 0, as of all other clients there."""
        if not self.plain.layout.client:
            return np.zeros(len(points))
        which, n = self._looked_at(points, nodes)
        return self._values(points, which, n + MORE) - self._values(points, which, n)

    def _laid(self, points: Vector, steps: Vector | float) -> Vector:
        """Returns points with the logarithm of the standard deviation in its place."""
        return np.insert(points, self.rows.layout.group_at.start, steps, axis=1)

    def _looked_at(self, points: Vector, nodes: int) -> tuple[NDArray[np.int64], int]:
        """Returns the steps that have weight about these points, and how many nodes a group's integral takes there."""
        middle, n = np.tile(points.mean(axis=0), (len(self.steps), 1)), max(nodes, NODES[1])
        terms = self.log_weights + self.rows.values(self._laid(middle, self.steps), n)
        if not np.isfinite(terms).all():
            return np.arange(len(terms)), n
        some = self._laid(points[:LOOKED], self.steps[int(np.argmax(terms))])
        while n < MOST_NODES[1] and np.abs(self.rows.values(some, n + MORE) - self.rows.values(some, n)).max() > CLOSE:
            n = min(2 * n, MOST_NODES[1])
        return np.flatnonzero(terms > terms.max() - NOTHING), n
