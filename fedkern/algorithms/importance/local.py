"""Offers the same log-likelihoods and prior to Hamiltonian Monte Carlo, as a client without local unknowns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .client import Model
from .units import told
from .widening import Prior

Array = NDArray[np.float64]


@dataclass(frozen=True)
class WithoutLocal:
    """Is a client's term of the log joint density, after all its local unknowns have been integrated out.

    Its values are rounded as those for importance sampling; its gradients to eighths, for finer ones tell more of rows than the
    values do. Only the acceptance rate depends on gradients: a leapfrog step whose force is any function of the place can be
    reversed, and keeps volumes.

    Attributes
    ----------
    model : its log-likelihood
    nodes : quadrature nodes a dimension
    units : of values and of gradients, powers of two; None: nothing is rounded
    """

    model: Model
    nodes: int
    units: tuple[float, float] | None = None
    size: int = 0

    @property
    def n_global(self) -> int:
        """P, the number of global unknowns."""
        return self.model.size

    def log_joint_grad(self, xi: Array, u: Array) -> tuple[float, Array, Array]:
        """Returns log p(y | xi) at one point (P,), its gradient, and an empty array."""
        value, gradient, nothing = self.log_joint_grads(xi[np.newaxis], u[np.newaxis])
        return float(value[0]), gradient[0], nothing[0]

    def log_joint_grads(self, xi: Array, u: Array) -> tuple[Array, Array, Array]:
        """Returns the same for all chains (c, P) at once."""
        value, gradient, _ = self.model.curvature(xi, self.nodes)
        if self.units is not None:
            value, gradient = told(value, self.units[0]), told(gradient, self.units[1])
        return value, gradient, np.zeros((len(xi), 0))


@dataclass(frozen=True)
class GradientOf:
    """Offers a prior of importance sampling in the form that Hamiltonian Monte Carlo needs."""

    prior: Prior
    size: int

    def log_prior_grad(self, xi: Array) -> tuple[float, Array]:
        """Returns log p(xi) and its gradient."""
        value, gradient, _ = self.prior.curvature(xi)
        return value, gradient
