"""Counts the rows of each level of the response before the rounds; afterwards checks whether the model makes such responses.

| leg | a client sends | all get |
|---|---|---|
| before | the number of its rows of each level | the shares of all clients' rows, by which priors have their centre |
| after | numbers and sums of columns, of the rows of each level: as seen, and of responses drawn anew | |

Sums of columns have four digits; a client with fewer than five rows answers the second question with zeros. Responses are drawn
by the client's own random numbers: whoever knew these could compute its rows. Source: docs/spec/likelihood.md, section 10.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np

from ...arrays import Array
from ...models.levels import shares_of
from ..core import legs, once, tells
from ..core.exchange import MOST_ROWS, Added, Ask, Conditions, digits, small
from ..core.legs import Leg
from ..core.messages import ClientEffects, Event, RemoteFault, ServerEffects


@dataclass(frozen=True)
class AskLevels(Ask, kind=236):
    """Server to client: how many rows of each level have you; and then (round 1), these are their shares."""

    shares: Annotated[Array, "levels"]


def _but_counts(values: Array) -> Array:
    """Returns the counts as they are, and sums of columns with four digits."""
    return np.concatenate([values[..., :1], digits(4)(values[..., 1:])], axis=-1)


@dataclass(frozen=True)
class LevelNumbers(
    Added,
    kind=237,
    tells=tells.ResponseSums(),
    name="level-sums",
    ask=AskLevels,
    masked=("masked_levels", 289),
    rounding={"seen": _but_counts, "again": _but_counts},
    drops=True,
):
    """Client to server: the number of rows of each level, and of these rows the sums of columns; of some draws the same of
    responses that were drawn anew."""

    seen: Annotated[Array, "levels sums"]
    again: Annotated[Array, "draws levels sums"]

    @property
    def rows(self) -> float:
        """The number of rows."""
        return float(self.seen[:, 0].sum())

    def honest(self) -> Conditions:
        for numbers in (self.seen, self.again):
            n = numbers[..., 0]
            yield small(numbers) and ((n >= 0) & (n % 1 == 0) & (n <= MOST_ROWS)).all(), "count rows that are not there"
        same = np.array_equal(self.again[..., 0].sum(axis=1), np.full(len(self.again), self.rows))
        yield same, "are of other numbers of rows"


def dims(levels: int, columns: int = 0, draws: int = 0) -> dict[str, int]:
    """Returns the sizes of the messages' arrays."""
    return {"levels": levels, "sums": 1 + columns, "draws": draws}


@dataclass(frozen=True)
class Client:
    """Holds a client's numbers (K,); after the last leg the `shares` of all."""

    numbers: Array = field(repr=False)
    shares: Array | None = None


@dataclass(frozen=True)
class Server(Leg[Array], answers=(LevelNumbers,)):
    """Holds the answers; once all are here, `shares`, the `numbers` of all together, and those `of_each` (m, K)."""

    levels: int
    numbers: Array | None = None
    of_each: Array | None = None
    shares: Array | None = None

    @property
    def done(self) -> bool:
        """Whether all have the shares."""
        return self.shares is not None

    def checked(self, sender: int, answer: LevelNumbers) -> Array:
        """Returns a client's numbers."""
        if why := answer.wrong():
            raise RemoteFault(why)
        return answer.seen[:, 0]

    def combined(self, answers: list[Array]) -> tuple[Server, ServerEffects]:
        """Sends the shares to all."""
        numbers = np.sum(answers, axis=0)
        shares = shares_of(numbers)
        return self.ask(AskLevels(1, shares), numbers=numbers, shares=shares, of_each=np.array(answers))


def start(clients: tuple[str, ...], levels: int) -> tuple[Server, ServerEffects]:
    """Returns the first state and the first questions."""
    return Server(clients, levels), once.ask(len(clients), AskLevels(0, np.zeros(levels)))


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Answers with the numbers, or keeps the shares of all."""
    if not isinstance(event, AskLevels):
        raise RemoteFault(f"server: {type(event).__name__} was not expected")
    if event.round:
        return replace(state, shares=event.shares), []
    return state, [LevelNumbers(0, state.numbers[:, np.newaxis], np.zeros((0, len(state.numbers), 1)))]


PROTOCOL = legs.protocol("levels", Server, (AskLevels,), (LevelNumbers,), client_receive)
