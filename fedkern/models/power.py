"""Raises a client's likelihood to a power: of w in (0, 1] its rows count as w of themselves, and the posterior is wider.

Nothing is a density of the rows then: their normaliser is missing, so that no evidence is known, nor what a new row would be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import Array


@dataclass(frozen=True)
class Power:
    """Is the log-likelihood of a client's rows times `weight`; `inner` is the log-likelihood itself.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.models.power import Power
    >>> class Rows:
    ...     size = 1
    ...     def values(self, points, nodes):
    ...         return -points[:, 0] ** 2
    >>> Power(Rows(), 0.5).values(np.array([[2.0]]), 1)
    array([-2.])
    """

    inner: Any  # any log-likelihood that a client's machine takes
    weight: float

    @property
    def size(self) -> int:
        """P, the length of xi."""
        size: int = self.inner.size
        return size

    @property
    def X(self) -> Array:
        """(n, p) The columns of the coefficients."""
        columns: Array = self.inner.X
        return columns

    def weighed(self, point: Array) -> Array:
        """Returns (k, n) the rows' weights at a point (P,)."""
        return self.weight * np.asarray(self.inner.weighed(point))

    def values(self, points: Array, nodes: int) -> Array:
        """Returns the log-likelihood (n,) at points (n, P)."""
        return self.weight * np.asarray(self.inner.values(points, nodes))

    def curvature(self, points: Array, nodes: int) -> tuple[Array, Array, Array]:
        """Returns the log-likelihood (c,), its gradients (c, P), and minus its Hessians (c, P, P)."""
        value, gradient, hessian = self.inner.curvature(points, nodes)
        return self.weight * value, self.weight * gradient, self.weight * hessian

    def rule(self, points: Array, nodes: int) -> Array:
        """Returns the values (n,) with more nodes less those with these."""
        return self.weight * np.asarray(self.inner.rule(points, nodes))
