"""Shears the global unknowns, so that q(xi) need not learn a ridge that is known beforehand (see `server`).

If one unknown b can make up for others the posterior is a narrow ridge, and if it makes up for a product of unknowns the ridge is
bent: no normal q holds it. q is normal in xi',

    b = b' + s(xi),  the rest as it is,

s a known function of the rest; the data tell b', which hardly depends on it. The Jacobian is 1, and the gradient in xi' is that
in xi with the share of b times the slopes of s added. Messages of rounds carry xi. Source: docs/spec/sigma.md, section 6.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ...models.variational import Block

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


class Ridge(Protocol):
    """Says where b stands in xi, and for which function it makes up."""

    @property
    def row(self) -> int:
        """The place of b."""

    @property
    def numbers(self) -> Vector:
        """The numbers that a party needs beside public ones to know s."""

    def beside(self, xi: Matrix) -> Vector:
        """Returns s (m,) at xi (m, P), whatever their b."""

    def slopes(self, xi: Vector) -> Vector:
        """Returns its derivatives (P,) at xi; that in b is 0."""


@dataclass(frozen=True)
class Shear:
    """Maps xi' to xi; without a ridge they are the same."""

    ridge: Ridge | None = None

    def out(self, inner: Matrix) -> Matrix:
        """Returns xi (m, P) of xi' (m, P)."""
        if self.ridge is None:
            return inner
        xi = inner.copy()
        xi[:, self.ridge.row] += self.ridge.beside(inner)
        return xi

    def pulled(self, inner: Vector, gradient: Vector) -> Vector:
        """Returns a gradient in xi, at the xi of xi' `inner`, as that in xi'."""
        if self.ridge is None:
            return gradient
        return np.asarray(gradient + self.ridge.slopes(inner) * gradient[self.ridge.row])

    def moments(self, block: Block, parameters: Vector) -> tuple[Vector, Vector]:
        """Returns mean and covariance of xi, from the parameters of q(xi').

        They are standard deviations if q is diagonal and nothing is sheared. If s is not linear, they are those of its tangent at
        the mean.
        """
        if self.ridge is None:
            return block.moments(parameters)
        factor = self._factor(block, parameters)
        return self._mean(block, parameters), factor @ factor.T

    def mean_sd(self, block: Block, parameters: Vector) -> tuple[Vector, Vector]:
        """Returns means and standard deviations of xi, likewise."""
        if self.ridge is None:
            return parameters[: block.size], block.sd(parameters)
        row, sd = self.ridge.row, block.sd(parameters)
        sd[row] = np.linalg.norm(self._row(block, parameters))
        return self._mean(block, parameters), sd

    def _mean(self, block: Block, parameters: Vector) -> Vector:
        return np.asarray(self.out(parameters[np.newaxis, : block.size])[0])

    def _row(self, block: Block, parameters: Vector) -> Vector:
        """Returns the row of b of a factor of the covariance."""
        assert self.ridge is not None
        scale, slopes = block.scale(parameters), self.ridge.slopes(parameters[: block.size])
        slopes[self.ridge.row] = 1.0
        return np.asarray(slopes @ scale if block.full else slopes * scale)

    def _factor(self, block: Block, parameters: Vector) -> Matrix:
        assert self.ridge is not None
        scale = block.scale(parameters)
        factor = scale.copy() if block.full else np.diag(scale)
        factor[self.ridge.row] = self._row(block, parameters)
        return factor
