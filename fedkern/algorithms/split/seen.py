"""Keeps a server's view of each row over the last half of the rounds: the mean of each client's z, and of the slopes.

At the optimum z_ij has, given g_ij, the mean g_ij + rho^2 times the slope of row i, so both together tell g_ij.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core.messages import evolve
from .settings import Index, Vector

NAMES = ("z", "slopes", "counts")


@dataclass(frozen=True)
class Seen:
    """Holds sums by row.

    Attributes
    ----------
    z : (J, N) of each client's z
    slopes : (N,) of the slopes of the log-likelihood in the predictor
    counts : (N,) how many draws are in them
    """

    z: Vector
    slopes: Vector
    counts: Vector

    @classmethod
    def of(cls, n_clients: int, n_rows: int) -> Seen:
        """Returns the sums before the first round."""
        return cls(np.zeros((n_clients, n_rows)), np.zeros(n_rows), np.zeros(n_rows))

    def with_z(self, sent: list[Vector], index: Index | None) -> Seen:
        """Returns the sums with (S, n) of each client, for the rows of a round."""
        z, counts, at = self.z.copy(), self.counts.copy(), slice(None) if index is None else index
        for k, one in enumerate(sent):
            z[k, at] += one.sum(axis=0)
        counts[at] += len(sent[0])
        return evolve(self, z=z, counts=counts)

    def with_slopes(self, slopes: Vector, index: Index | None) -> Seen:
        """Returns the sums with (S, n) slopes of the rows of a round."""
        out = self.slopes.copy()
        out[slice(None) if index is None else index] += slopes.sum(axis=0)
        return evolve(self, slopes=out)

    def parts(self, variance: float) -> Vector | None:
        """Returns the clients' parts of the predictor (J, N); None if a row was never seen.

        `variance`: by which a slope moves z.
        """
        if not (self.counts > 0).all():
            return None
        return np.asarray((self.z - variance * self.slopes) / self.counts)

    @property
    def mean_slopes(self) -> Vector:
        """(N,) The mean slopes; 0 for a row that was never seen."""
        return np.asarray(self.slopes / np.maximum(self.counts, 1))
