"""Computes priors of parameters by name, and the coordinates in which the server steps and draws.

A coordinate runs over all real numbers. A parameter with a normal or Student prior is its own coordinate; a positive one
(half-normal, half-student, gamma) has its logarithm. A correlation matrix R with prior det(R)^(eta - 1) has the hyperbolic
arctangents of its canonical partial correlations, row by row below the diagonal. These are independent under that prior: in
column k (from 0) of a d x d matrix (r + 1) / 2 ~ Beta(b, b), b = eta + (d - 2 - k) / 2 (Lewandowski, Kurowicka and Joe 2009). So
a prior is a product of densities of one coordinate each, and its Hessian is a diagonal. Jacobians are part of `values`, and of
nothing else.

Source: docs/how-to/own-model.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from ...arrays import Array
from ...kernels.families import HALF_LOG_TAU

Kind = Literal["normal", "student", "half-normal", "half-student", "gamma", "lkj"]

POSITIVE = ("half-normal", "half-student", "gamma")
LEAST, MOST = 1e-12, 1 - 1e-12  # of a uniform number that a draw is made of
NEXT = 1e-3  # by which derivatives of a correlation matrix's are told apart
STENCIL = ((-2, 1 / 12), (-1, -8 / 12), (1, 8 / 12), (2, -1 / 12))


class Densities(NamedTuple):
    """Holds (S, n) log-densities of coordinates at points, those of the parameters, slopes, and minus second derivatives."""

    value: Array
    bare: Array
    slope: Array
    curved: Array


@dataclass(frozen=True)
class Block:
    """Describes parameters with one prior: a single one, several alike, or a correlation matrix."""

    # name, kind: of the parameter; of its prior
    name: str
    kind: Kind
    size: int = 1  # the number of parameters; for "lkj" the rows of the matrix
    several: bool = False  # whether they are numbered (`name[1]`, ..)
    # mean, sd: normal; sd: half-normal
    # df, mean, scale: student; df, scale: half-student
    mean: float = 0.0
    sd: float = 1.0
    df: float = 1.0
    scale: float = 1.0
    # shape, rate: gamma
    shape: float = 1.0
    rate: float = 1.0
    eta: float = 1.0  # lkj

    def over(self, unit: float, zero: float = 0.0) -> Block:
        """Returns the prior of the parameter less `zero` in another unit."""
        mean, sd, scale, rate = (self.mean - zero) / unit, self.sd / unit, self.scale / unit, self.rate * unit
        return replace(self, mean=mean, sd=sd, scale=scale, rate=rate)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Row and column of each entry of a correlation matrix below the diagonal, row by row."""
        return [(i, k) for i in range(self.size) for k in range(i)]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters."""
        if self.kind == "lkj":
            return tuple(f"{self.name}[{i + 1},{k + 1}]" for i, k in self.pairs)
        return tuple(f"{self.name}[{i + 1}]" for i in range(self.size)) if self.several else (self.name,)

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The names of the coordinates."""
        if self.kind == "lkj":
            return tuple(f"atanh of the partial correlation {name}" for name in self.names)
        return tuple(f"log {name}" for name in self.names) if self.kind in POSITIVE else self.names

    @cached_property
    def _b(self) -> Array:
        """b of each partial correlation's beta distribution."""
        return np.array([self.eta + (self.size - 2 - k) / 2 for _, k in self.pairs])

    def densities(self, y: Array) -> Densities:
        """Returns the densities at (S, n) coordinates."""
        if self.kind == "normal":
            z = (y - self.mean) / self.sd
            value = -0.5 * z**2 - HALF_LOG_TAU - math.log(self.sd)
            return Densities(value, value, -z / self.sd, np.full(y.shape, self.sd**-2.0))
        if self.kind == "student":
            value, slope, curved = self._student(y - self.mean)
            return Densities(value, value, slope, curved)
        if self.kind == "lkj":
            b, t = self._b, np.tanh(y)
            log = 2 * (math.log(2) - np.abs(y) - np.log1p(np.exp(-2 * np.abs(y))))  # of 1 - tanh^2
            value = b * log - (2 * b - 1) * math.log(2) - special.betaln(b, b)
            return Densities(value, (self.eta - 1) * log, -2 * b * t, 2 * b * (1 - t**2))
        x = np.exp(y)
        if self.kind == "gamma":
            a, rate = self.shape, self.rate
            value = a * math.log(rate) - special.gammaln(a) + a * y - rate * x
            return Densities(value, value - y, a - rate * x, rate * x)
        if self.kind == "half-normal":
            z = (x / self.sd) ** 2
            value = 0.5 * math.log(2 / math.pi) - math.log(self.sd) - 0.5 * z + y
            return Densities(value, value - y, 1 - z, 2 * z)
        value, slope, curved = self._student(x)
        value = value + math.log(2)
        return Densities(value + y, value, slope * x + 1, curved * x**2 - slope * x)

    def _student(self, z: Array) -> tuple[Array, Array, Array]:
        """Log-density of a difference z from the mean, slope, and minus the second derivative."""
        nu, s = self.df, self.scale
        u = (z / s) ** 2
        constant = special.gammaln((nu + 1) / 2) - special.gammaln(nu / 2) - 0.5 * math.log(nu * math.pi) - math.log(s)
        value = constant - 0.5 * (nu + 1) * np.log1p(u / nu)
        return value, -(nu + 1) * z / (s**2 * (nu + u)), (nu + 1) * (nu - u) / (s * (nu + u)) ** 2

    def drawn(self, u: Array) -> Array:
        """Returns (S, n) coordinates at the quantiles (S, n); at 0.5 their medians."""
        u = np.clip(u, LEAST, MOST)
        match self.kind:
            case "normal":
                return np.asarray(self.mean + self.sd * special.ndtri(u))
            case "student":
                return np.asarray(self.mean + self.scale * special.stdtrit(self.df, u))
            case "half-normal":
                return np.asarray(np.log(self.sd * special.ndtri((1 + u) / 2)))
            case "half-student":
                return np.asarray(np.log(self.scale * special.stdtrit(self.df, (1 + u) / 2)))
            case "gamma":
                x = np.maximum(special.gammaincinv(self.shape, u), np.finfo(float).tiny)
                return np.asarray(np.log(x / self.rate))
            case "lkj":
                r = 2 * special.betaincinv(self._b, self._b, u) - 1
                return np.asarray(np.arctanh(np.clip(r, -MOST, MOST)))

    def natural(self, y: NDArray[np.inexact]) -> NDArray[np.inexact]:
        """Returns (S, n) the parameters at coordinates (S, n), which may be complex, for derivatives."""
        if self.kind in POSITIVE:
            return np.asarray(np.exp(y))
        if self.kind != "lkj":
            return y
        r, L = np.tanh(y), np.zeros((len(y), self.size, self.size), y.dtype)
        L[:, 0, 0] = 1.0
        for e, (i, k) in enumerate(self.pairs):
            rest = 1 - (L[:, i, :k] ** 2).sum(axis=1)
            L[:, i, k] = r[:, e] * np.sqrt(rest)
            if k == i - 1:
                L[:, i, i] = np.sqrt(rest - L[:, i, k] ** 2)
        R = L @ L.swapaxes(1, 2)
        return np.stack([R[:, i, k] for i, k in self.pairs], axis=1) if self.pairs else y[:, :0]


def block_of(kind: Kind, numbers: Mapping[str, float]) -> Block:
    """Returns the prior of one parameter without a name."""
    return Block("", kind, 1, False, **numbers)


@dataclass(frozen=True)
class Priors:
    """Holds the prior of all parameters, in the coordinates xi."""

    blocks: tuple[Block, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the P parameters."""
        return tuple(name for block in self.blocks for name in block.names)

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The names of the P coordinates."""
        return tuple(name for block in self.blocks for name in block.coordinates)

    @property
    def size(self) -> int:
        """P, the number of parameters."""
        return len(self.names)

    @cached_property
    def _at(self) -> list[tuple[Block, slice]]:
        ends = np.cumsum([len(block.names) for block in self.blocks]).tolist()
        return [(block, slice(end - len(block.names), end)) for block, end in zip(self.blocks, ends)]

    def _densities(self, points: Array) -> Densities:
        with np.errstate(all="ignore"):
            each = [block.densities(points[:, columns]) for block, columns in self._at]
        return Densities(*(np.concatenate(parts, axis=1) for parts in zip(*each)))

    def values(self, points: Array) -> Array:
        """Returns (S,) log-densities of the points (S, P)."""
        return np.asarray(self._densities(points).value.sum(axis=1))

    def without_jacobian(self, points: Array) -> Array:
        """Returns (S,) log-densities of the parameters at the points, up to a constant.

        A power of the prior is a power of these.
        """
        return np.asarray(self._densities(points).bare.sum(axis=1))

    def curvature(self, xi: Array) -> tuple[float, Array, Array]:
        """Returns the log-density at xi (P,), its gradient (P,), and minus its Hessian (P, P)."""
        found = self._densities(xi[np.newaxis])
        return float(found.value.sum()), found.slope[0], np.diag(found.curved[0])

    def log_prior_grad(self, xi: Array) -> tuple[float, Array]:
        """Returns the log-density at xi (P,), and its gradient (P,)."""
        return self.curvature(xi)[:2]

    def drawn(self, u: Array) -> Array:
        """Returns (S, P) draws by uniform numbers (S, P)."""
        return np.concatenate([block.drawn(u[:, columns]) for block, columns in self._at], axis=1)

    def natural(self, points: NDArray[np.inexact]) -> NDArray[np.inexact]:
        """Returns (S, P) the parameters at the points (S, P)."""
        return np.concatenate([block.natural(points[:, columns]) for block, columns in self._at], axis=1)

    @property
    def plain(self) -> bool:
        """Whether coordinates are the parameters."""
        return all(block.kind in ("normal", "student") for block in self.blocks)

    def jacobian(self, xi: Array) -> Array:
        """Returns (P, P) derivatives of the parameters at xi (P,)."""
        J = np.eye(self.size)
        for block, columns in self._at:
            if block.kind not in ("normal", "student"):
                J[columns, columns] = _bent(block, xi[np.newaxis, columns])[0][0]
        return J

    def in_coordinates(self, points: Array, gradient: Array, curved: Array | None) -> tuple[Array, Array]:
        """Returns a function's gradient (c, P) and minus its Hessian (c, P, P) in xi, from those in the parameters.

        With J = dtheta / dxi the Hessian is J' H J plus the gradient times the second derivatives of theta. `curved` may be None.
        """
        c, P = points.shape
        new = gradient.copy()
        inner = np.zeros((c, P, P)) if curved is None else curved.copy()
        for block, columns in self._at:
            if block.kind in ("normal", "student"):
                continue
            J, bent = _bent(block, points[:, columns])
            new[:, columns] = np.einsum("ckj,ck->cj", J, gradient[:, columns])
            inner[:, columns, :] = np.einsum("ckj,ckp->cjp", J, inner[:, columns, :])
            inner[:, :, columns] = np.einsum("cpk,ckj->cpj", inner[:, :, columns], J)
            inner[:, columns, columns] -= np.einsum("ckij,ck->cij", bent, gradient[:, columns])
        return new, inner


def _bent(block: Block, y: Array) -> tuple[Array, Array]:
    """(c, n, n) Derivatives of the parameters in the coordinates, and (c, n, n, n) the second ones."""
    c, n = y.shape
    if block.kind in POSITIVE:
        x, diagonal = np.exp(y), np.arange(n)
        J, bent = np.zeros((c, n, n)), np.zeros((c, n, n, n))
        J[:, diagonal, diagonal] = bent[:, diagonal, diagonal, diagonal] = x
        return J, bent
    bent = np.zeros((c, n, n, n))
    for j in range(n):
        step = np.zeros(n)
        step[j] = NEXT
        bent[..., j] = sum(weight * _slopes(block, y + times * step) for times, weight in STENCIL) / NEXT
    return _slopes(block, y), (bent + bent.swapaxes(2, 3)) / 2


def _slopes(block: Block, y: Array) -> Array:
    """(c, n, n) Derivatives by complex steps, which lose no digits."""
    tiny, n = 1e-30, y.shape[1]
    return np.stack([np.imag(block.natural(y + 1j * tiny * unit)) / tiny for unit in np.eye(n)], axis=2)
