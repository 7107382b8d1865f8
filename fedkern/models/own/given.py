"""Computes the prior that a model of the holders' own package has itself, at the server, with derivatives by differences."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import JobError
from . import differences
from .supplied import Own

Array = NDArray[np.float64]

SLOPE = "log_prior_gradient"
WIDE = 2.0  # starts beside the first are uniform up to this, as Stan's
# By which the first is off 0: programs have corners there (a logit that NumPyro clips), at which their derivatives are wrong.
AWAY = 0.01


@dataclass(frozen=True)
class Given:
    """Holds `log_prior` of a model whose parameters are coordinates themselves: Jacobians of its constraints are part of it.

    Attributes
    ----------
    own : the model, which has no rows
    names : of the parameters
    """

    own: Own
    names: tuple[str, ...]

    @property
    def size(self) -> int:
        """P, the number of parameters."""
        return len(self.names)

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The names of the coordinates."""
        return self.names

    def values(self, points: Array) -> Array:
        """Returns (S,) log-densities of the points (S, P)."""
        return self.own.answer("log_prior", self.own.taken(points), (len(points),))

    def without_jacobian(self, points: Array) -> Array:
        """Returns (S,) the same: its Jacobians cannot be told from it."""
        return self.values(points)

    def curvature(self, xi: Array) -> tuple[float, Array, Array]:
        """Returns the log-density at xi (P,), its gradient (P,), and minus its Hessian (P, P)."""
        point = xi[np.newaxis]
        if self.own.has(SLOPE):
            value, gradient, curved = differences.of_gradients(self.values, self._slopes, point)
        else:
            value, gradient, curved = differences.curvature(self.values, point)
        return float(value[0]), gradient[0], curved[0]

    def log_prior_grad(self, xi: Array) -> tuple[float, Array]:
        """Returns the log-density at xi (P,), and its gradient (P,)."""
        point = xi[np.newaxis]
        if self.own.has(SLOPE):
            return float(self.values(point)[0]), self._slopes(point)[0]
        value, slope = differences.gradient(self.values, point)
        return float(value[0]), slope[0]

    def _slopes(self, points: Array) -> Array:
        """(S, P) Gradients, of a model that has them."""
        return self.own.answer(SLOPE, self.own.taken(points), points.shape)[:, np.argsort(self.own.order)]

    def drawn(self, u: Array) -> Array:
        """Returns (S, P) starts by uniform numbers (S, P): the model's own as far as it has some."""
        points = 2 * WIDE * (np.array(u) - 0.5)
        starts = getattr(self.own.supplied, "starts", None)
        if starts is None:
            corner = points[0] == 0
            points[0, corner] = AWAY * np.sqrt(2.0 + np.arange(self.size))[corner]
            return points
        own = np.asarray(starts, np.float64)
        if own.ndim != 2 or own.shape[1] != self.size or not np.isfinite(own).all():
            raise JobError(f"{self.own.who}: starts must be finite numbers of the shape (k, {self.size})")
        n = min(len(own), len(points))
        points[:n] = own[:n, np.argsort(self.own.order)]
        return points

    def natural(self, points: Array) -> Array:
        """Returns (S, P) the published numbers at the points (S, P)."""
        if not self.own.has("natural"):
            return points
        return self.own.answer("natural", self.own.taken(points), points.shape)[:, np.argsort(self.own.order)]
