"""Agrees on the scale of a survey's weights, and collects what the sandwich is made of.

Weights are multiplied by sum w / sum w^2 of all clients' rows, so that they add up to the effective number (sum w)^2 / sum w^2 of
these. After the draws each client tells sums over its clusters of their scores at the mode, and of products of these.

Source: docs/spec/likelihood.md, section 11.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from ...arrays import Array
from ...errors import JobError
from ..core import legs, once, tells
from ..core.exchange import LARGEST, MOST_ROWS, Answer, Ask, Conditions, digits, small
from ..core.legs import Leg, not_agreed
from ..core.messages import ClientEffects, Event, Message, RemoteFault, ServerEffects

DIMS: dict[str, int] = {}  # no message of the scale has an array


@dataclass(frozen=True)
class AskWeights(Message, kind=360):
    """Server to client: what do the weights of your rows add up to, and their squares?"""

    round: int


@dataclass(frozen=True)
class WeightSums(Message, kind=361, tells=tells.Sums("the sum of its rows' weights, and of their squares")):
    """Client to server: these two sums."""

    round: int
    total: float
    squares: float


@dataclass(frozen=True)
class WeightScale(Message, kind=362):
    """Server to client: the sums over all clients' rows."""

    round: int
    total: float
    squares: float


@dataclass(frozen=True)
class Client:
    """Holds a client's sums; in the end those of all."""

    total: float
    squares: float
    agreed: tuple[float, float] | None = None


@dataclass(frozen=True)
class Server(Leg[WeightSums], answers=(WeightSums,), needs=not_agreed("the scale of the weights is")):
    """Holds the answers, the weights' column, and the sums of all."""

    column: str
    agreed: tuple[float, float] | None = None

    @property
    def done(self) -> bool:
        """Whether all have the sums."""
        return self.agreed is not None

    def checked(self, sender: int, answer: WeightSums) -> WeightSums:
        """Refuses sums that cannot be."""
        if not (0 <= answer.squares <= (1 + 1e-9) * answer.total**2 <= LARGEST and answer.total >= 0):
            raise RemoteFault(f"WeightSums of {answer.total:g} and {answer.squares:g} cannot be")
        return answer

    def combined(self, answers: list[WeightSums]) -> tuple[Server, ServerEffects]:
        """Tells the sums of all; JobError where no row weighs anything."""
        total, squares = (float(sum(values)) for values in zip(*((answer.total, answer.squares) for answer in answers)))
        if not squares > 0:
            raise JobError(f"column {self.column!r}: the weights of all clients' rows are 0; name another column")
        return self.ask(WeightScale(self.leg, total, squares), leg=self.leg, agreed=(total, squares))


def start(column: str, clients: Sequence[str]) -> tuple[Server, ServerEffects]:
    """Returns the first state and the first questions."""
    return Server(tuple(clients), column), once.ask(len(clients), AskWeights(0))


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Answers with the sums, or takes those of all."""
    if isinstance(event, WeightScale) and state.agreed is None and 0 < event.squares <= (1 + 1e-9) * event.total**2:
        return replace(state, agreed=(event.total, event.squares)), []
    if not isinstance(event, AskWeights):
        raise RemoteFault(f"server: {type(event).__name__} was not expected")
    return state, [WeightSums(event.round, state.total, state.squares)]


PROTOCOL = legs.protocol("weights", Server, (AskWeights, WeightScale), (WeightSums,), client_receive)


@dataclass(frozen=True)
class AskScores(Ask, kind=363):
    """Server to client: at this point, the mode."""

    xi: Annotated[Array, "xi"]


@dataclass(frozen=True)
class ClusterScores(
    Answer,
    kind=364,
    tells=tells.ClusterProducts(),
    name="cluster-scores",
    ask=AskScores,
    rounding=dict.fromkeys(("total", "products", "curvature"), digits(9)),
    needs="the covariance of the scores had not come; --resume goes on from the last checkpoint",
):
    """Client to server: the number of its clusters, sums of their scores and of products of these (a lower triangle), and minus
    the second derivatives of its pseudo-log-likelihood, by more digits than on the way to the mode: levels that only the prior
    tells apart want them."""

    clusters: int
    total: Annotated[Array, "xi"]
    products: Annotated[Array, "lower"]
    curvature: Annotated[Array, "lower"]

    def honest(self) -> Conditions:
        yield 1 <= self.clusters <= MOST_ROWS, f"are of {self.clusters} clusters"
        yield small(self.total, self.products, self.curvature), "are too large to be any"
        squares = self.products[np.cumsum(np.arange(1, len(self.total) + 1)) - 1]
        yield (squares >= 0).all(), "have a sum of squares below 0"
