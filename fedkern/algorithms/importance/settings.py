"""Holds the numbers of importance sampling that every party knows. Source: docs/spec/likelihood.md."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from ..core.box import Box
from .messages import CHECKED, OF_WORDS, WIDTH
from .summaries import ASKED_OF_ALL, QUESTIONS
from .units import OF_CHAINS, OF_VALUES, power

# Up to so many values of a round, or of chains, have the same unit. Of N times as many it is larger by sqrt N: what all say of
# rows together goes by their number over its square.
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
    clients : their number
    rounds_messages : whether clients round what they tell to what the answer needs
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
    clients: int = 1
    rounds_messages: bool = True

    def __post_init__(self) -> None:
        def refuse(what: str, wanted: str) -> None:
            raise ValueError(f"importance: {what} must be {wanted}, got {getattr(self, what)!r}")

        least = (("points", CHECKED), ("rounds", 0), ("newton", 1), ("starts", 1), ("nodes", 1), ("told", 0), ("clients", 1))
        for name, fewest in least:
            if getattr(self, name) < fewest:
                refuse(name, f"at least {fewest}")
        if not self.effective > 0:
            refuse("effective", "positive")
        if self.summaries and not (self.starts == 1 and self.rounds):
            raise ValueError("importance: summaries need one start, and rounds of draws")
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

    @property
    def rounded(self) -> bool:
        """Whether a client rounds; of masked sums in units of the question alone, for its own would tell how rows are dealt."""
        return self.rounds_messages and (self.box is None or bool(self.summaries))

    @property
    def questions(self) -> int:
        """How many questions are asked of those that take part by a summary."""
        return QUESTIONS if self.box is None else ASKED_OF_ALL

    def has_summary(self, client: int) -> bool:
        """Tells whether a client takes part by a summary; where sums are masked all do, or none."""
        return client in self.summaries if self.box is None else bool(self.summaries)

    def needed(self, coarser: float = 1.0) -> float:
        """Returns to how many nats a client's values are needed; `coarser`: by how many times fewer digits, for many of them."""
        return max(OF_WORDS, OF_VALUES / math.sqrt(self.clients) * coarser) if self.rounded else OF_WORDS

    @property
    def needed_at_draws(self) -> float:
        """The same at draws of a round."""
        return self.needed(math.sqrt(max(1.0, self.points / FINE)))

    def units_of_chains(self, gradients: int) -> tuple[float, float] | None:
        """Returns the units of values and of gradients of chains that ask for so many gradients; None: they are not rounded."""
        if not self.rounded:
            return None
        coarser = math.sqrt(max(1.0, gradients / FINE_OF_CHAINS))
        return float(power(self.needed(coarser))), float(power(OF_CHAINS * coarser))

    def doubled(self, nodes: int) -> int:
        """Returns the next number of nodes, or the same if it is the largest."""
        return min(2 * nodes, self.most_nodes)
