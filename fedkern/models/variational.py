"""Defines a Gaussian variational block: its parameters in one flat vector, reparameterised draws, and gradients of the ELBO.

q(theta) = N(mu, L L'). A draw is theta = mu + L eps, and the gradient of an objective F(theta) - log q(theta) is a function of
c = dF/dtheta at that draw. Two estimators: *path* (sticking the landing: -log q enters through theta alone, its parameters
frozen), and the closed-form entropy. They have one mean. Source: vertical.md, sections 4 and 5; sigma.md, section 6.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from ..arrays import Vector
from ..kernels import augmented

LEAST = np.log(1e-8)  # of a log standard deviation, or of the logarithm of a diagonal element of L
FURTHEST, WIDEST = 1024.0, 12.0  # of a parameter, and of the logarithm of a diagonal element, that is limited
LARGEST = 64  # coordinates up to which a step of all numbers of L moves L by little


@dataclass(frozen=True)
class Block:
    """Represents q(theta) = N(mu, L L') of `size` coordinates.

    L is diagonal, or (`full`) lower triangular with a positive diagonal.

    The flat parameters are mu (d,) and then the logarithms of the standard deviations (d,); or the lower triangle of L row by
    row, (d (d + 1) / 2,): diagonal elements by their logarithms, the others relative to their row's diagonal element. So a step
    of an optimiser that is the same for all numbers moves L by parts of its size, however small the posterior is. Such a step is
    nearly a matrix of rank 1, whose norm grows with d, and so does that of the noise which many steps leave in L, a share of L
    of about the rate times d: above LARGEST the others count in units of (LARGEST / d)^2, and neither grows.
    """

    size: int
    full: bool = False

    @property
    def n_parameters(self) -> int:
        """The length of the flat parameters."""
        d = self.size
        of_scale = d * (d + 1) // 2 if self.full else d
        return d + of_scale

    @cached_property
    def _triangle(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        return np.tril_indices(self.size)

    @cached_property
    def _places(self) -> NDArray[np.intp]:
        """The places of the flat triangle's elements in L, row by row."""
        rows, columns = self._triangle
        return rows * self.size + columns

    @cached_property
    def _diagonal(self) -> NDArray[np.intp]:
        """The places of L's diagonal in its flat triangle."""
        rows, columns = self._triangle
        return np.flatnonzero(rows == columns)

    @cached_property
    def unit(self) -> float:
        """The unit of L's elements off its diagonal."""
        return min(1.0, LARGEST / self.size) ** 2 if self.size else 1.0

    def initial(self, mean: Vector | float = 0.0, sd: float = 0.1) -> Vector:
        """Returns the parameters of N(mean, sd^2 I)."""
        parameters = np.zeros(self.n_parameters)
        parameters[: self.size] = mean
        scale = parameters[self.size :]
        where = self._diagonal if self.full else slice(None)
        scale[where] = np.log(sd)
        return parameters

    def at(self, mean: Vector, spread: Vector) -> Vector:
        """Returns the parameters of N(mean, spread): (d,) standard deviations, or a covariance (d, d)."""
        if not self.full:
            return np.concatenate([mean, np.log(spread)])
        return self.by_factor(mean, np.asarray(np.linalg.cholesky(spread), np.float64))

    def by_factor(self, mean: Vector, L: Vector) -> Vector:
        """Returns the parameters of N(mean, L L') for a triangular L: (d, d), its diagonal positive."""
        sizes = np.diag(L)
        flat = (L / sizes[:, np.newaxis])[self._triangle] / self.unit
        flat[self._diagonal] = np.log(sizes)
        return np.concatenate([mean, flat])

    def scale(self, parameters: Vector) -> Vector:
        """Returns (d,) standard deviations, or (d, d) L."""
        flat = parameters[self.size :]
        if not self.full:
            return np.exp(np.maximum(flat, LEAST))
        L = np.zeros((self.size, self.size))
        whole = L.reshape(-1)
        whole[self._places] = self.unit * flat
        whole[:: self.size + 1] = 1.0
        L *= np.exp(np.maximum(flat[self._diagonal], LEAST))[:, np.newaxis]
        return L

    def _sizes(self, parameters: Vector) -> Vector:
        """Returns (d,) the diagonal of L, or the standard deviations."""
        flat = parameters[self.size :]
        scale_entries = flat[self._diagonal] if self.full else flat
        sizes: Vector = np.exp(np.maximum(scale_entries, LEAST))
        return sizes

    def limited(self, parameters: Vector) -> Vector:
        """Returns the nearest parameters that are within bounds: of means, and of L."""
        out = np.clip(parameters, -FURTHEST, FURTHEST)
        where = self._diagonal if self.full else np.arange(self.size)
        sizes = self.size + where
        out[sizes] = np.minimum(out[sizes], WIDEST)
        return out

    def sample(self, parameters: Vector, eps: Vector) -> Vector:
        """Returns theta = mu + L eps."""
        d = self.size
        return augmented.coefficients(parameters[:d], parameters[d:], eps, full=self.full)

    def gradient(self, parameters: Vector, eps: Vector, c: Vector, *, path: bool = True) -> Vector:
        """Returns the gradient of F(theta) - log q(theta) in the flat parameters, for the draw of `eps`.

        Parameters
        ----------
        parameters : (n_parameters,)
        eps : (d,) standard normals of the draw
        c : (d,) dF/dtheta at the draw, without q's term
        path : sticking the landing, or the closed-form entropy

        Returns
        -------
        (n_parameters,)
        """
        d, scale = self.size, self.scale(parameters)
        out = np.empty(self.n_parameters)
        if not self.full:
            total = np.add(c, eps / scale, out=out[:d]) if path else c
            out[:d] = total
            np.multiply(total, eps, out=out[d:])
            out[d:] *= scale
            if not path:
                out[d:] += 1
            return out
        total = c + solve_triangular(scale, eps, lower=True, trans="T", check_finite=False) if path and d else c
        out[:d] = total
        rows, columns = self._triangle
        flat = self.unit * (total * np.diag(scale))[rows] * eps[columns]
        entropy = 0 if path else 1
        flat[self._diagonal] = total * (scale @ eps) + entropy
        out[d:] = flat
        return out

    def chained(self, parameters: Vector, c: Vector, C: Vector) -> Vector:
        """Returns the gradient of F(theta) from the means (d,) of dF/dtheta and (d, d) of dF/dtheta eps'."""
        scale = self.scale(parameters)
        if not self.full:
            return np.concatenate([c, np.diag(C) * scale])
        flat = self.unit * (C * np.diag(scale)[:, np.newaxis])[self._triangle]
        flat[self._diagonal] = np.einsum("ij,ij->i", C, scale)
        return np.concatenate([c, flat])

    def moments(self, parameters: Vector) -> tuple[Vector, Vector]:
        """Returns the mean (d,), and standard deviations (d,) or the covariance (d, d)."""
        scale = self.scale(parameters)
        spread = scale @ scale.T if self.full else scale
        return parameters[: self.size].copy(), spread

    def sd(self, parameters: Vector) -> Vector:
        """Returns (d,) marginal standard deviations."""
        scale = self.scale(parameters)
        return np.sqrt(np.einsum("ij,ij->i", scale, scale)) if self.full else scale

    def log_density(self, parameters: Vector, eps: Vector) -> float:
        """Returns log q at the draw of `eps`."""
        log_det = np.log(self._sizes(parameters)).sum()
        return float(-0.5 * (eps @ eps) - log_det - 0.5 * self.size * np.log(2 * np.pi))

    def entropy(self, parameters: Vector) -> float:
        """Returns -E log q."""
        log_det = np.log(self._sizes(parameters)).sum()
        return float(log_det + 0.5 * self.size * (1 + np.log(2 * np.pi)))
