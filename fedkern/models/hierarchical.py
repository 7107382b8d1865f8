"""Defines hierarchical models for clients that hold rows: global unknowns xi, and local unknowns u_j that never leave client j.

log p(y, u, xi) = log p(xi) + sum_j log p(y_j, u_j | xi). The server knows the first term (`GlobalPrior`), client j its
term of the sum (`LocalModel`).
"""

from __future__ import annotations

from typing import Protocol

from ..arrays import Vector


class LocalModel(Protocol):
    """Is implemented by a client's term of the log joint density."""

    @property
    def n_global(self) -> int:
        """The length P of xi."""

    @property
    def size(self) -> int:
        """The length of u."""

    def log_joint_grad(self, xi: Vector, u: Vector) -> tuple[float, Vector, Vector]:
        """Returns log p(y, u | xi), and its gradients in xi (P,) and in u (size,)."""


class GlobalPrior(Protocol):
    """Is implemented by the server's term."""

    @property
    def size(self) -> int:
        """The length P of xi."""

    def log_prior_grad(self, xi: Vector) -> tuple[float, Vector]:
        """Returns log p(xi), Jacobians of transforms included once, and its gradient."""
