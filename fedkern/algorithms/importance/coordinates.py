"""Chooses the coordinates z in which the server steps and draws, if xi, as it is sent, has logarithms of scales.

A scale tau whose posterior reaches down to 0 has in log tau a density with a long left tail, which neither a normal nor a t
distribution around its mode follows. As a signed number t, tau = |t|, it has none: the likelihood is a smooth and even function
of t (an effect is tau u with u symmetric), and so is the posterior. With a column of a triangular factor T its entries below the
diagonal change their signs with t. So z has the column of T itself, and draws are folded to t > 0 (see `proposals`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.box import Box

Array = NDArray[np.float64]

SMALL = 1e-3  # of its unit: a smaller t has the derivatives that an even function has there, for those in log t are rounded away
FEW = 6  # coordinates, of which all may have heavy tails where nothing is said of them
FLAT = 0.5  # standard deviation of an exponent: ten rows of a level leave a third, none leave .8 and more
MOST_EXPONENT = 300.0  # so that the square of an exponential is a number
LEAST = 1e-9  # of its unit: the smallest scale that is sent
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
    """

    names: tuple[str, ...]
    fold: tuple[tuple[int, ...], ...] = ()
    scales: tuple[tuple[int, ...], ...] = ()
    loose: tuple[int, ...] = ()
    learnt: int | None = None
    exponents: tuple[int, ...] = ()
    box: Box | None = None

    @property
    def size(self) -> int:
        """P, the number of coordinates."""
        return len(self.names)

    @property
    def wide(self) -> tuple[int, ...]:
        """The coordinates in which draws are also made from a wider distribution."""
        return self.loose or (tuple(range(self.size)) if self.size <= FEW else ())

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
        return tuple(k for k, one in zip(self.exponents, off) if weights @ one**2 > FLAT**2)

    def read(self, z: Array, flat: tuple[int, ...]) -> Array:
        """Returns (n, P + flat) the points, and beside them the exponentials of flat exponents."""
        return np.concatenate([z, np.exp(np.minimum(z[:, list(flat)], MOST_EXPONENT))], axis=1) if flat else z

    def sent(self, z: Array, units: Array) -> Array:
        """Returns xi (n, P); `units` (scales,) is a large value for each t."""
        xi = np.array(z, np.float64)
        for unit, (at, *below) in zip(units, self.scales, strict=True):
            t = z[:, at]
            xi[:, at] = np.log(np.maximum(np.abs(t), LEAST * unit))
            xi[:, below] *= np.where(t < 0, -1.0, 1.0)[:, np.newaxis]
        return xi if self.box is None else self.box.nearest(xi)

    def drawn(self, z: Array, units: Array) -> Array:
        """Returns xi (n, P) of draws, those outside of the box moved to its border."""
        xi = self.sent(z, units)
        if self.box is None:
            return xi
        low, high = np.array(self.box.low), np.array(self.box.high)
        near = BORDER / 2 * (high - low)
        return np.clip(xi, low + near, high - near)

    @property
    def ends(self) -> tuple[Array, Array] | None:
        """The least and the largest z (P,) in the box; a scale may be as near to 0 as it likes."""
        if self.box is None:
            return None
        low, high = np.array(self.box.low), np.array(self.box.high)
        at = [at for at, *_ in self.scales]
        high[at] = np.exp(high[at])
        low[at] = -high[at]
        return low, high

    def beyond(self, xi: Array) -> NDArray[np.bool_]:
        """Tells which points (n, P), as they were sent, are those of z at the border of the box, or beyond it."""
        if self.box is None:
            return np.zeros(len(xi), np.bool_)
        low, high = np.array(self.box.low), np.array(self.box.high)
        near = BORDER * (high - low)
        low[[at for at, *_ in self.scales]] = -np.inf
        return np.asarray(((xi <= low + near) | (xi >= high - near)).any(axis=1))

    def of(self, xi: Array) -> Array:
        """Returns z (n, P) with t > 0."""
        z = np.array(xi, np.float64)
        for at, *_ in self.scales:
            z[:, at] = np.exp(z[:, at])
        return z

    def units(self, xi: Array) -> Array:
        """Returns the units (scales,) of a start value (P,)."""
        return np.exp(xi[[at for at, *_ in self.scales]])

    def log_jacobian(self, xi: Array) -> Array:
        """Returns log |dxi / dz| (n,)."""
        return np.asarray(-xi[:, [at for at, *_ in self.scales]].sum(axis=1))

    def safe(self, z: Array, units: Array) -> Array:
        """Returns the points (n, P) at which derivatives are asked for."""
        out = np.array(z, np.float64)
        for unit, (at, *_) in zip(units, self.scales, strict=True):
            small = np.abs(z[:, at]) < SMALL * unit
            out[small, at] = np.where(z[small, at] < 0, -1.0, 1.0) * SMALL * unit
        return out

    def derivatives(self, z: Array, units: Array, of_xi: Derivatives) -> Derivatives:
        """Returns the derivatives in z of the density of z, from those in xi, at the safe points, of the density of xi."""
        safe = self.safe(z, units)
        xi = self.sent(safe, units)
        value, gradient, hessian = of_xi.value + self.log_jacobian(xi), of_xi.gradient.copy(), of_xi.hessian.copy()
        slope = np.ones(z.shape)  # dxi_k / dz_k
        bent = np.zeros(z.shape)
        for at, *below in self.scales:
            t = safe[:, at]
            gradient[:, at] -= 1.0  # of the Jacobian
            slope[:, at] = 1 / t
            bent[:, at] = gradient[:, at] / t**2
            slope[:, below] = np.sign(t)[:, np.newaxis]
        gradient = gradient * slope
        hessian = hessian * slope[:, :, np.newaxis] * slope[:, np.newaxis, :]
        every = np.arange(self.size)
        hessian[:, every, every] += bent
        for at, *_ in self.scales:
            inner = np.abs(z[:, at]) < np.abs(safe[:, at])
            if not inner.any():
                continue
            share = np.where(inner, z[:, at] / safe[:, at], 1.0)
            value = value + np.where(inner, gradient[:, at] * (z[:, at] * share - safe[:, at]) / 2, 0.0)
            gradient[:, at] *= share
            own = hessian[:, at, at].copy()
            hessian[:, at, :] *= share[:, np.newaxis]
            hessian[:, :, at] *= share[:, np.newaxis]
            hessian[:, at, at] = own
        return Derivatives(value, gradient, hessian)


def name_flagged(flags: NDArray[np.bool_], names: Sequence[str]) -> str:
    """Returns the names of those that are true."""
    return ", ".join(repr(name) for name, flag in zip(names, flags, strict=True) if flag)
