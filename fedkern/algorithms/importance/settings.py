"""Holds the numbers of importance sampling that every party knows. Source: docs/spec/likelihood.md."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.box import Box
from .messages import CHECKED, WIDTH

OF_GRADIENTS = 1  # and of its gradients for chains
# Up to so many values, or gradients, they have these digits. Of N times as many the unit is larger by sqrt N: what all say of
# rows together goes by their number over its square. Eight rounds with all digits determined all rows of some clients.
FINE, FINE_OF_CHAINS = 4096, 8000
AT_MODE, AT_DRAWS = 0.01, 0.05  # nats, of all clients together, by which it may differ there
ERROR, DRAWS = 0.03, 2000.0  # posterior sds by which a mean or an sd may be off, where draws are to be worth so many
NOT_FINITE = 0.01  # the part of the draws of a round at which a client's value may be no number


class Advice(NamedTuple):
    """Gives remedies in words of the model, for values that are no numbers, for a flat posterior, and for a missing mode."""

    lost: str
    flat: str
    moving: str


OF_REGRESSIONS = Advice(
    "its rows don't fit the family of model, or a covariate is very large",
    "give it a proper prior (model.prior_sd), or leave a column out",
    "Where a level or a covariate separates the responses its coefficient has no end: give it a narrower prior (model.prior_sd)",
)

OF_SUMS = OF_REGRESSIONS._replace(
    lost=f"{OF_REGRESSIONS.lost}; with secure sums no row may have a log-likelihood below -1e9, as counts of 1e9 and more have",
    moving=f"{OF_REGRESSIONS.moving}. With secure sums coefficients of standardised columns are looked for within 50 of 0, and a "
    "residual scale within a factor of 8,000 of the response's: where they are beyond that run the job without job.sums",
)


@dataclass(frozen=True)
class Settings:
    """Holds settings that every party of a job knows.

    Attributes
    ----------
    points : draws of a round
    effective : draws of equal weights that the weighted ones must be worth
    rounds : of draws, at most; 0: only the mode is wanted, for another sampler begins there
    newton : rounds of steps to the mode, at most
    starts : points from which the mode is looked for
    nodes, most_nodes : quadrature nodes a dimension, at first and at most
    told : draws of the posterior that clients are told at the end; 0: none
    seed : of the points
    advice : the remedies in errors
    singly : whether clients keep the values that they have told at draws, to tell them once more without masks
    box : where clients answer, if the server gets sums alone; None: it gets each client's answers
    summaries : the clients that take part by a summary
    """

    points: int
    effective: float
    rounds: int
    starts: int
    nodes: int
    most_nodes: int
    told: int
    seed: int
    newton: int = 40
    advice: Advice = OF_REGRESSIONS
    singly: bool = False
    box: Box | None = None
    summaries: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        def refuse(what: str, wanted: str) -> None:
            raise ValueError(f"importance: {what} must be {wanted}, got {getattr(self, what)!r}")

        least = (("points", CHECKED), ("rounds", 0), ("newton", 1), ("starts", 1), ("nodes", 1), ("told", 0))
        for name, fewest in least:
            if getattr(self, name) < fewest:
                refuse(name, f"at least {fewest}")
        if not self.effective > 0:
            refuse("effective", "positive")
        if self.summaries and not (self.starts == 1 and self.rounds and self.box is None):
            raise ValueError("importance: summaries need one start, rounds of draws, and each client's answers")
        if self.most_nodes < self.nodes:
            refuse("most_nodes", f"at least nodes, {self.nodes}")

    @property
    def error(self) -> float:
        """The number of posterior standard deviations by which a mean or a standard deviation may be off."""
        return float(ERROR * (DRAWS / self.effective) ** 0.5)

    def sizes(self, n_global: int) -> dict[str, int]:
        """Returns the lengths of the messages' arrays."""
        triangle = n_global * (n_global + 1) // 2
        values = {"steps": WIDTH * self.points * n_global, "drops": WIDTH * self.points}
        return {"c": self.starts, "t": self.told, "xi": n_global, "tri": triangle, **values}

    def coarser(self, drawn: int) -> float:
        """Returns by how much the digits of a round of draws are coarser, after `drawn` rounds of draws.

        Later rounds reach farther, where each value says more.
        """
        return math.sqrt(max(1.0, self.points / FINE)) * (max(1.0, 8.0 * (self.rounds - 1)) if drawn else 1.0)

    def doubled(self, nodes: int) -> int:
        """Returns the next number of nodes, or the same if it is the largest."""
        return min(2 * nodes, self.most_nodes)


def rounded(values: NDArray[np.float64], decimals: int, coarser: float) -> NDArray[np.float64]:
    """Rounds to so many decimals, or to units that are coarser."""
    if coarser <= 1:
        return np.round(values, decimals)
    unit = coarser * 10.0**-decimals
    return np.asarray(np.round(values / unit) * unit)
