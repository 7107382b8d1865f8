"""Finds the mode of one client's own posterior: of its log-likelihood and a prior, and no other client."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .rows import Rows

Vector = NDArray[np.float64]

STEPS, HALVINGS = 100, 30
SURE = 0.1  # of a step: values by a rule are no longer exact enough to judge it
NEAR = 1e-4  # of a step, in standard deviations: the mode is missed by half its square, in nats


def alone(rows: Rows) -> Rows:
    """Returns the same rows without an effect of the client: its differences from others are then in its coefficients."""
    return replace(rows, layout=replace(rows.layout, client=()))


class Likelihood(Protocol):
    """Describes a client's log-likelihood."""

    def curvature(self, points: Vector, nodes: int) -> tuple[Vector, Vector, Vector]:
        """Returns (c,) log-likelihoods at points (c, P), gradients (c, P) and minus Hessians (c, P, P)."""


class Density(Protocol):
    """Describes a prior."""

    def curvature(self, xi: Vector) -> tuple[float, Vector, Vector]:
        """Returns the log-density at xi (P,), its gradient (P,), and minus its Hessian (P, P)."""


def find_mode(rows: Likelihood, prior: Density, start: Vector, nodes: int) -> tuple[Vector, Vector] | None:
    """Returns the mode (P,) and the inverse of minus the Hessian there (P, P), by Newton's steps; None where none is found."""

    def at(xi: Vector) -> tuple[float, Vector, Vector]:
        value, gradient, curved = rows.curvature(xi[np.newaxis], nodes)
        log_prior, slope, more = prior.curvature(xi)
        return float(value[0]) + log_prior, gradient[0] + slope, curved[0] + more

    xi = start
    value, gradient, curved = at(xi)
    for _ in range(STEPS):
        if not np.isfinite(value):
            return None
        # In units of its own curvature each coordinate counts alike; directions of negative curvature are climbed as if positive.
        scale = 1 / np.sqrt(np.maximum(np.abs(np.diagonal(curved)), 1e-12))
        w, V = np.linalg.eigh(curved * scale * scale[:, np.newaxis])
        along = V.T @ (scale * gradient)
        size = np.maximum(np.abs(w), 1e-6)
        length = float(np.sqrt((along**2 / size).sum()))
        if w[0] > 0 and length < NEAR:
            return xi, (scale[:, np.newaxis] * V / w) @ (V.T * scale)
        step = scale * (V @ (along / size))
        for _ in range(HALVINGS):
            new = at(xi + step)
            if length < SURE or new[0] >= value - 1e-9 * (1 + abs(value)):
                break
            step = step / 2
        else:
            return None
        xi, (value, gradient, curved) = xi + step, new
    return None
