"""A shear of the global unknowns, so that q(xi) need not learn a ridge that is known beforehand (see `server`).

Where one unknown b can nearly make up for others z, the posterior is a narrow ridge in (b, z): variational steps find it slowly.
With xi = T xi', T unit lower triangular with row b alone off the identity,

    b = b' + s'z,  the rest as it is,

b' is what the data tell, and hardly depends on z. The Jacobian is 1, the gradient in xi' is T' times that in xi. Only the server
knows of it: what is sent and what is released is in xi. Source: docs/methods/sigma.md, section 6.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ...models.variational import Block

Vector = NDArray[np.float64]


class Ridge(Protocol):
    """Where b and z stand in xi, and how b makes up for z."""

    @property
    def row(self) -> int:
        """The place of b, after those of z."""

    @property
    def columns(self) -> slice:
        """The places of z."""

    def slopes(self, xi: Vector) -> Vector:
        """s near xi: b + s'z is what stays the same to the data."""


@dataclass(frozen=True)
class Shear:
    """T.

    Attributes
    ----------
    row, columns : the places of b and z in xi
    slopes : (z,) s; zeros are T = I
    """

    row: int
    columns: slice
    slopes: Vector

    @classmethod
    def along(cls, ridge: Ridge | None) -> Shear:
        """T = I of this ridge; without one it stays so."""
        row, columns = (0, slice(0, 0)) if ridge is None else (ridge.row, ridge.columns)
        return cls(row, columns, np.zeros(columns.stop - columns.start))

    @property
    def still(self) -> bool:
        """Whether T = I."""
        return not self.slopes.any()

    def out(self, inner: Vector) -> Vector:
        """xi = T xi'."""
        xi = inner.copy()
        xi[self.row] += self.slopes @ inner[self.columns]
        return xi

    def pulled(self, gradient: Vector) -> Vector:
        """T' times a gradient in xi: that in xi'."""
        inner = gradient.copy()
        inner[self.columns] += self.slopes * gradient[self.row]
        return inner

    def released(self, block: Block, parameters: Vector) -> Vector:
        """The parameters of q(xi), whose factor is triangular, from those of q(xi') in `block`."""
        scale = block.scale(parameters)
        return Block(block.size, full=True).by_factor(*self._moved(parameters, scale if block.full else np.diag(scale)))

    def renewed(self, block: Block, parameters: Vector, slopes: Vector) -> tuple[Shear, Vector]:
        """T with other slopes, and the parameters of q(xi') then: a full one stays the same q(xi); a diagonal one, which cannot,
        keeps the means of xi and the standard deviations of xi'."""
        back = Shear(self.row, self.columns, self.slopes - slopes)
        scale, d = block.scale(parameters), block.size
        if block.full:
            return Shear(self.row, self.columns, slopes), block.by_factor(*back._moved(parameters, scale))
        return Shear(self.row, self.columns, slopes), np.concatenate([back.out(parameters[:d]), parameters[d:]])

    def _moved(self, parameters: Vector, factor: Vector) -> tuple[Vector, Vector]:
        """The mean and the factor of T times a draw."""
        moved = factor.copy()
        moved[self.row] += self.slopes @ factor[self.columns]
        return self.out(parameters[: len(factor)]), moved
