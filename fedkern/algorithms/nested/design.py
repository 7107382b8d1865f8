"""Chooses the hyperparameters whose posterior is looked at: stencils around what may be its mode, then a lattice around the mode.

The lattice has the axes of the Hessian and steps of about one standard deviation, as R-INLA's grid, and grows from its middle:
for each point whose density is not negligible all neighbours are looked at, on both sides of every axis. So a skew or a bent
posterior takes the points that it needs, and all around the border the density is known to be negligible. Source: Rue, Martino
and Chopin (2009), Approximate Bayesian inference for latent Gaussian models by using integrated nested Laplace approximations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.int64]

STEPS = (0.75, 0.75, 1.2, 1.5, 1.8)  # of the lattice in sds, for 0, 1, 2, .. hyperparameters
NEGLIGIBLE = (6.0, 6.0, 5.5, 5.5, 4.5)  # nats below the mode
MOST = 300  # points of the lattice
FARTHEST = 5.4  # prior sds of a hyperparameter: the prior has 7e-8 of its mass beyond
FLAT = 0.5  # the least curvature: of the prior it is 1
FIRST, LEAST, LARGEST = 0.3, 1e-3, 0.5  # steps of stencils
OF_SD = 0.5  # the same in sds
FAR = 1.5  # a step to the mode, at most
NEAR = 0.3  # sds of the mode from the middle of a stencil that is near enough


def stencil(middle: Array, steps: Array) -> Array:
    """Returns (1 + 2 n + n (n - 1), n) the middle, both sides of each axis, and for each pair of axes both together."""
    E, n = np.diag(steps), len(middle)
    pairs = [sign * (E[i] + E[j]) for i in range(n) for j in range(i) for sign in (1, -1)]
    return np.asarray(middle + np.array([np.zeros(n), *E, *-E, *pairs]))


def derivatives(values: Array, steps: Array) -> tuple[Array, Array]:
    """Returns the gradient (n,) and minus the Hessian (n, n) in the middle, from the values (1 + 2 n + ..,) at a stencil."""
    n = len(steps)
    middle, up, down, pairs = values[0], values[1 : n + 1], values[n + 1 : 2 * n + 1], values[2 * n + 1 :].reshape(-1, 2)
    gradient, hessian = (up - down) / (2 * steps), np.diag((2 * middle - up - down) / steps**2)
    at = 0
    for i in range(n):
        for j in range(i):
            mixed = pairs[at].sum() + 2 * middle - up[i] - down[i] - up[j] - down[j]
            hessian[i, j] = hessian[j, i] = -mixed / (2 * steps[i] * steps[j])
            at += 1
    return gradient, hessian


def axes(hessian: Array) -> Array:
    """Returns the eigenvectors of the Hessian as columns (n, n), each as long as the posterior's sd along it."""
    size, directions = np.linalg.eigh(hessian)
    return np.asarray(directions / np.sqrt(np.maximum(size, FLAT)))


def toward(gradient: Array, hessian: Array) -> tuple[Array, float]:
    """Returns Newton's step to the mode, at most `FAR` along each axis, and its length in sds before that."""
    A = axes(hessian)
    sds = A.T @ gradient
    step = A @ sds
    return step * min(1.0, FAR / max(float(np.abs(step).max(initial=0.0)), 1e-300)), float(np.sqrt(sds @ sds))


@dataclass(frozen=True)
class Lattice:
    """Is a lattice in coordinates zeta, v = origin + axes zeta.

    Attributes
    ----------
    origin, axes : (n,), (n, n)
    """

    origin: Array
    axes: Array

    @property
    def step(self) -> float:
        """The step in sds."""
        return STEPS[min(len(self.origin), len(STEPS) - 1)]

    @property
    def negligible(self) -> float:
        """The nats below the largest density, from which on a point needs no neighbours."""
        return NEGLIGIBLE[min(len(self.origin), len(NEGLIGIBLE) - 1)]

    def v(self, cells: Index) -> Array:
        """Returns v (k, n) of cells (k, n), whole numbers."""
        return np.asarray(self.origin + self.step * cells @ self.axes.T)

    def zeta(self, v: Array) -> Array:
        """Returns zeta (k, n), in sds from the origin."""
        return np.asarray(np.linalg.solve(self.axes, (v - self.origin).T).T)

    def wanted(self, cells: Index, log_density: Array, best: float) -> Index:
        """Returns neighbours (m, n), not yet among `cells` (k, n), of those whose density is not negligible."""
        n, known = len(self.origin), {tuple(cell) for cell in cells.tolist()}
        if not n:
            return np.zeros((0, 0), np.int64)
        neighbours: dict[tuple[int, ...], None] = {}
        for cell, density in zip(cells.tolist(), log_density):
            if best - density >= self.negligible:
                continue
            for axis in range(n):
                for side in (1, -1):
                    beside = tuple(c + side * (axis == k) for k, c in enumerate(cell))
                    if beside not in known:
                        neighbours[beside] = None
        out = np.array(list(neighbours), np.int64).reshape(-1, n)
        return out[(np.abs(self.v(out)) <= FARTHEST).all(axis=1)]
