"""Computes the level of a map, which can stand in for the intercept, as a function of the latent numbers that all clients share.

Given z_G the mean of theta over all areas has the expectation abar(phi)'z_G, times the root of rho with BYM2. Thus responses tell
b + sigma_theta abar'z_G, and of b alone only the prior of z_G tells more: a ridge. abar, the mean of the areas' loadings, follows
from the map alone. Source: docs/spec/sigma.md, section 6.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.sparse import csc_array
from scipy.sparse.linalg import splu
from scipy.special import expit

from ...arrays import Matrix, Vector
from .condition import Condition
from .decoder import Decoder
from .site import Layout
from .within import Within

VALUES = 17  # of phi
DRAWS = 1024  # of the latents, over which slopes of a decoder that is not linear in them are averaged


@dataclass(frozen=True, eq=False)
class MeanLoadings:
    """Holds abar at some values of phi."""

    phi: Vector  # (g,) rising
    values: Matrix  # (g, r) abar there; linear in the networks' input in between

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or len(self.values) != len(self.phi) or not np.isfinite(self.values).all():
            raise ValueError(f"mean loadings: values have shape {self.values.shape}; wanted ({len(self.phi)}, latents), finite")

    def at(self, phi: Vector, condition: Condition) -> tuple[Matrix, Matrix]:
        """Returns abar (m, r) at phi (m,), and its derivatives in phi."""
        if len(self.phi) == 1:
            return np.repeat(self.values, len(phi), axis=0), np.zeros((len(phi), self.values.shape[1]))
        place, places = condition.network(phi), condition.network(self.phi)
        k = np.clip(np.searchsorted(places, place, side="right") - 1, 0, len(places) - 2)
        width = (places[k + 1] - places[k])[:, np.newaxis]
        share = np.clip((place - places[k])[:, np.newaxis] / width, 0.0, 1.0)
        rise = (self.values[k + 1] - self.values[k]) / width
        return self.values[k] + share * width * rise, rise * condition.slope(phi)[:, np.newaxis]


@dataclass(frozen=True)
class LevelRidge:
    """Is the ridge of the intercept against z_G (`algorithms.sfvi.shear.Ridge`): b = b' - sigma_theta sqrt(rho) abar(phi)'z_G."""

    layout: Layout  # of xi, with an intercept
    condition: Condition  # of phi, as the job has it
    mean: MeanLoadings  # loadings of the map

    @property
    def row(self) -> int:
        """The place of b."""
        return int(self.layout.parts["intercept"].start)

    @property
    def numbers(self) -> Vector:
        """The loadings."""
        return self.mean.values.ravel()

    def beside(self, xi: Matrix) -> Vector:
        """Returns -sigma_theta sqrt(rho) abar'z (m,)."""
        return np.asarray(-self._size(xi) * np.einsum("mr,mr->m", self._abar(xi)[0], xi[:, self.layout.parts["z"]]))

    def slopes(self, xi: Vector) -> Vector:
        """Returns its derivatives (P,) in xi."""
        parts, points, out = self.layout.parts, xi[np.newaxis], np.zeros(self.layout.size)
        (abar,), (by_x,) = self._abar(points)
        size, z = float(self._size(points)[0]), xi[parts["z"]]
        level = -size * float(abar @ z)
        out[parts["z"]] = -size * abar
        out[parts["log_scale"]] = level
        if self.layout.free:
            out[0] = -size * float(by_x @ z)
        if self.layout.mixing:
            out[parts["rho"]] = 0.5 * level * float(expit(-xi[parts["rho"].start]))
        return out

    def _size(self, xi: Matrix) -> Vector:
        """Returns sigma_theta sqrt(rho) (m,)."""
        root = np.sqrt(expit(xi[:, self.layout.parts["rho"].start])) if self.layout.mixing else 1.0
        return np.asarray(self.layout.scale(xi) * root)

    def _abar(self, xi: Matrix) -> tuple[Matrix, Matrix]:
        """Returns abar (m, r), and its derivatives in x_phi."""
        level = xi[:, 0] if self.layout.free else np.zeros(len(xi))
        phi, dphi = self.condition.at(level)
        abar, slopes = self.mean.at(phi, self.condition)
        return abar, slopes * dphi[:, np.newaxis]


def of_within(clients: Sequence[Within]) -> MeanLoadings:
    """Returns the mean loadings of a prior that is exact inside each client."""
    condition = clients[0].condition
    phi = values_of(condition)
    total = np.zeros((len(phi), clients[0].n_latents))
    for client in clients:
        total += _summed(client, phi)
    return MeanLoadings(phi, total / sum(client.size for client in clients))


def _summed(client: Within, phi: Vector) -> Matrix:
    """Returns sums (g, r) of the loadings of a client's areas: 1'A = (1_b - Q_bi Q_ii^-1 1_i)' U^-1 W."""
    ties, border = client.ties(phi), client.border
    inner = np.setdiff1d(np.arange(client.size), border)
    T = csc_array(client.T)
    inside, across = T[inner][:, inner], T[border][:, inner]
    out = np.empty((len(phi), client.n_latents))
    for k, value in enumerate(ties.phi):
        weights = np.ones(len(border))
        if len(inner):
            Q = csc_array(value * inside)
            Q.setdiag(Q.diagonal() + client.diagonal[inner])
            weights -= value * (across @ splu(Q, permc_spec="MMD_AT_PLUS_A").solve(np.ones(len(inner))))
        out[k] = weights @ solve_triangular(ties.U[k], ties.W[k], lower=True) if len(border) else 0.0
    return out


def of_decoders(decoders: Sequence[Decoder], condition: Condition) -> MeanLoadings:
    """Returns the mean loadings of a prior that was trained.

    They are slopes of thetahat in z_G, averaged over the latents' prior if they vary with them.
    """
    phi, rng, linear = values_of(condition), np.random.default_rng(0), decoders[0].variant == "multiplicative"
    z = np.zeros((1, decoders[0].n_global)) if linear else rng.standard_normal((DRAWS, decoders[0].n_global))
    total = np.zeros((len(phi), z.shape[1]))
    for decoder in decoders:
        u = np.zeros((1, decoder.n_local)) if linear else rng.standard_normal((DRAWS, decoder.n_local))
        for k, seen in enumerate(condition.network(phi)):
            hat = decoder.hat(z, u, np.full((len(z), 1), seen))
            total[k] += decoder.pull(hat, np.ones_like(hat.theta))[0].mean(axis=0)
    return MeanLoadings(phi, total / sum(decoder.size for decoder in decoders))


def values_of(condition: Condition) -> Vector:
    """Returns phi (g,) at which mean loadings are kept."""
    return condition.along(np.linspace(0, 1, VALUES)) if condition.free else np.full(1, condition.fixed or 0.0)
