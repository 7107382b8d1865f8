"""Evaluates a client's part of a trained prior: thetahat_j as a function of the latent variables, and products with its
derivatives.

z_Lj = m0_j(z_G, t) + sqrt(v0_j(z_G, t)) u_j, u_j ~ N(0, I), and thetahat_j = scale * mu_j(z_Lj, z_G, t), where t(phi) is the
condition as the networks take it. Source: docs/spec/sigma.md, sections 1, 4 and 8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...arrays import Matrix, Vector
from ...kernels.mlp import Architecture

LOG_VARIANCES = (-12.0, 6.0)  # to which heads are clamped


@dataclass(frozen=True)
class Layer:
    """Maps x to W x + b for rows x."""

    W: Matrix
    b: Vector

    def __call__(self, x: Matrix) -> Matrix:
        return x @ self.W.T + self.b


def _layers(flat: Vector, sizes: list[tuple[int, int]]) -> list[Layer]:
    """Returns layers of (out, in) numbers: W row by row, then b."""
    layers, begin = [], 0
    for out, into in sizes:
        W = flat[begin : begin + out * into].reshape(out, into)
        layers.append(Layer(W, flat[begin + out * into : begin + out * (into + 1)]))
        begin += out * (into + 1)
    if begin != len(flat):
        raise ValueError(f"decoder: a part has {len(flat)} parameters instead of {begin}")
    return layers


@dataclass(frozen=True)
class Hat:
    """Holds thetahat (m, d) of m draws, and the arrays that `Decoder.pull` needs."""

    theta: Matrix
    kept: tuple[Matrix, ...]


class Decoder:
    """Computes thetahat of one client.

    Parameters
    ----------
    architecture : of the networks, with this client's group alone
    parts : flat parameters by name: "global_decoder" (or "decoder_weights"), "prior", "decoder"
    scale : (d,) by which the networks' values are multiplied
    """

    def __init__(self, architecture: Architecture, parts: Mapping[str, Vector], scale: Vector) -> None:
        a, d = architecture, len(scale)
        if len(a.groups) != 1 or a.groups[0] != d:
            raise ValueError(f"decoder: the architecture is of groups {a.groups}, and the scale of {d} coordinates")
        self.variant, self.n_conditions, self.n_global, self.n_local = a.variant, a.n_conditions, a.n_global, a.n_local[0]
        self.scale = scale
        hidden, local_hidden, width, rank = a.hidden, a.local_hidden, a.width, a.rank
        n_conditions, n_local = self.n_conditions, self.n_local
        into, latents = self.n_global + n_conditions, self.n_global + n_local
        if self.variant == "multiplicative":
            self._weights = _layers(parts["decoder_weights"], [(width, n_conditions), (rank, width)])
            if len(parts["decoder"]) != d * rank * latents:
                raise ValueError(f"decoder: {len(parts['decoder'])} parameters instead of {d * rank * latents}")
            self._matrix = parts["decoder"].reshape(d, rank * latents)
            return
        self._global = _layers(parts["global_decoder"], [(hidden, into), (hidden, hidden)])
        self._prior = _layers(parts["prior"], [(local_hidden, into), (local_hidden, local_hidden), (2 * n_local, local_hidden)])
        last = hidden + n_local + n_conditions
        sizes = [(d, last)] if self.variant == "printed" else [(local_hidden, last), (d, local_hidden)]
        self._local = _layers(parts["decoder"], sizes)

    @property
    def size(self) -> int:
        """d, the number of coordinates of theta."""
        return len(self.scale)

    def hat(self, z: Matrix, u: Matrix, t: Matrix) -> Hat:
        """Returns thetahat at m draws.

        Parameters
        ----------
        z : (m, p_G) global latent variables
        u : (m, p_L) standardised local ones
        t : (m, c) conditions
        """
        if self.variant == "multiplicative":
            first, second = self._weights
            a = np.tanh(first(t))
            s, x = second(a), np.concatenate([z, u], axis=1)
            mixed = (s[:, :, np.newaxis] * x[:, np.newaxis, :]).reshape(len(x), -1)
            return Hat(self.scale * (mixed @ self._matrix.T), (a, s, x))
        zt = np.concatenate([z, t], axis=1)
        g = self._global[0](zt)
        p = self._prior[0](zt)
        h = self._global[1](np.maximum(g, 0.0))
        heads = self._prior[2](self._prior[1](np.maximum(p, 0.0)))
        raw = heads[:, self.n_local :]
        sd = np.exp(0.5 * np.clip(raw, *LOG_VARIANCES))
        x = np.concatenate([h, heads[:, : self.n_local] + sd * u, t], axis=1)
        a = self._local[0](x)
        out = a if self.variant == "printed" else self._local[1](np.maximum(a, 0.0))
        return Hat(self.scale * out, (g, p, raw, sd * u, sd, a))

    def pull(self, hat: Hat, cotangent: Matrix) -> tuple[Matrix, Matrix, Matrix]:
        """Returns derivatives in z (m, p_G), u (m, p_L) and t (m, c) from those in thetahat (m, d)."""
        d = cotangent * self.scale
        if self.variant == "multiplicative":
            a, s, x = hat.kept
            mixed = (d @ self._matrix).reshape(len(d), s.shape[1], x.shape[1])
            to_x = np.einsum("mr,mri->mi", s, mixed)
            first, second = self._weights
            to_a = np.einsum("mi,mri->mr", x, mixed) @ second.W
            return to_x[:, : self.n_global], to_x[:, self.n_global :], (to_a * (1 - a * a)) @ first.W
        g, p, raw, deviation, sd, a = hat.kept
        if self.variant != "printed":
            d = (d @ self._local[1].W) * (a > 0)
        to_x = d @ self._local[0].W
        n_hidden = self._global[1].W.shape[0]
        to_local, to_t = to_x[:, n_hidden : n_hidden + self.n_local], to_x[:, n_hidden + self.n_local :]
        inside = (raw > LOG_VARIANCES[0]) & (raw < LOG_VARIANCES[1])
        heads = np.concatenate([to_local, 0.5 * to_local * deviation * inside], axis=1)
        to_p = ((heads @ self._prior[2].W) @ self._prior[1].W) * (p > 0)
        to_g = (to_x[:, :n_hidden] @ self._global[1].W) * (g > 0)
        to_zt = to_p @ self._prior[0].W + to_g @ self._global[0].W
        return to_zt[:, : self.n_global], to_local * sd, to_zt[:, self.n_global :] + to_t
