"""Computes priors of which a scale is learnt: numbers b in a row of xi with D b ~ N(0, s^2), and log s last in xi.

Rows do not depend on log s: `BesidePrior` is a client's log-likelihood as a function of all of xi. Near s = 0 the density is
unbounded, so that there is no joint mode. Source: docs/spec/likelihood.md, section 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import Vector
from ...kernels.families import HALF_LOG_TAU
from .layout import Layout, Prior


@dataclass(frozen=True)
class Learnt:
    """Holds the prior of a layout with such numbers.

    Attributes
    ----------
    base : of everything else, and of log s
    """

    base: Prior

    @property
    def layout(self) -> Layout:
        """The layout of xi."""
        return self.base.layout

    @property
    def numbers_at(self) -> slice:
        """The place of the numbers."""
        raise NotImplementedError

    @property
    def root(self) -> Vector:
        """D (m, m), of determinant 1."""
        raise NotImplementedError

    def values(self, points: Vector) -> Vector:
        """Returns (S,) log-densities of the points (S, P)."""
        return self.base.values(points) + self.given_scale(points)

    def without_jacobian(self, points: Vector) -> Vector:
        """Returns (S,) log-densities of what the coordinates are logarithms of."""
        return self.base.without_jacobian(points) + self.given_scale(points)

    def given_scale(self, points: Vector) -> Vector:
        """Returns (S,) log-densities of the numbers, given s."""
        scaled, log_s = points[:, self.numbers_at] @ self.root.T, points[:, -1]
        with np.errstate(over="ignore"):
            square = (scaled**2).sum(axis=1) * np.exp(-2 * log_s)
        return np.asarray(-0.5 * square - scaled.shape[1] * (log_s + HALF_LOG_TAU))

    def curvature(self, xi: Vector) -> tuple[float, Vector, Vector]:
        """Returns the log-density at xi (P,), its gradient (P,), and minus its Hessian (P, P)."""
        _, gradient, curved = self.base.curvature(xi)
        gradient, curved, places = gradient.copy(), curved.copy(), self.numbers_at
        precision, b = self.root.T @ self.root * np.exp(-2 * xi[-1]), xi[places]
        gradient[places] -= precision @ b
        curved[places, places] += precision
        square = float(b @ precision @ b)
        gradient[-1] += square - len(b)
        curved[-1, -1] += 2 * square
        across = -2 * precision @ b
        curved[places, -1] += across
        curved[-1, places] += across
        return float(self.values(xi[np.newaxis])[0]), gradient, curved

    @property
    def held(self) -> Held:
        """The same given log s."""
        return Held(self)


@dataclass(frozen=True)
class Held:
    """Holds such a prior whose log s is known: with derivatives by which no step moves it."""

    free: Learnt

    def curvature(self, xi: Vector) -> tuple[float, Vector, Vector]:
        """Returns the log-density at xi (P,), its gradient (P,), and minus its Hessian (P, P)."""
        value, gradient, curved = self.free.curvature(xi)
        gradient[-1] = 0.0
        curved[-1, :] = curved[:, -1] = 0.0
        curved[-1, -1] = 1.0
        return value, gradient, curved


class OfShared(Learnt):
    """Is the prior of a layout whose clients have groups in common: their effects are independent."""

    @property
    def numbers_at(self) -> slice:
        """The place of the effects."""
        return self.layout.shared_at

    @property
    def root(self) -> Vector:
        """The unit matrix."""
        return np.eye(len(self.layout.shared))

    def without_jacobian(self, points: Vector) -> Vector:
        """Returns (S,) log-densities without the effects, which are part of the model and no choice of a prior."""
        return self.base.without_jacobian(points)


@dataclass(frozen=True)
class BesidePrior:
    """Is a client's log-likelihood as a function of xi, which ends with numbers of a prior alone.

    Attributes
    ----------
    rows : a log-likelihood of the numbers before these
    size : P, the length of xi
    """

    rows: Any  # any log-likelihood that a client's machine takes
    size: int

    @property
    def X(self) -> Vector:
        """(n, p) the columns of the coefficients."""
        return np.asarray(self.rows.X)

    @property
    def together(self) -> bool:
        """Whether all rows of the client have an effect in common."""
        return bool(self.rows.together)

    @property
    def units(self) -> NDArray[np.int64]:
        """(u + 1,) where each row or group begins."""
        return np.asarray(self.rows.units)

    def of_units(self, part: slice) -> BesidePrior:
        """Returns some rows or groups that follow each other."""
        return BesidePrior(self.rows.of_units(part), self.size)

    def weighed(self, point: Vector) -> Vector:
        """Returns (k, n) the rows' weights at a point (P,)."""
        return np.asarray(self.rows.weighed(point[: self.rows.size]))

    def values(self, points: Vector, nodes: int) -> Vector:
        """Returns log-likelihoods (S,) at points (S, P)."""
        return np.asarray(self.rows.values(points[:, : self.rows.size], nodes))

    def curvature(self, points: Vector, nodes: int) -> tuple[Vector, Vector, Vector]:
        """Returns log-likelihoods (c,), gradients (c, P) and minus Hessians (c, P, P): 0 of numbers of a prior alone."""
        value, slope, bent = self.rows.curvature(points[:, : self.rows.size], nodes)
        more = (0, self.size - self.rows.size)
        return value, np.pad(slope, ((0, 0), more)), np.pad(bent, ((0, 0), more, more))

    def rule(self, points: Vector, nodes: int) -> Vector:
        """Returns (S,) the change of the values with more nodes."""
        return np.asarray(self.rows.rule(points[:, : self.rows.size], nodes))
