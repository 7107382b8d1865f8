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
from numpy.typing import NDArray

from ...models.levels import shares_of
from ..core import once, tells
from ..core.exchange import MOST_ROWS, Added, Ask, Conditions, small
from ..core.messages import ClientEffects, Event, RemoteFault, ServerEffects
from ..core.persistent import PersistentMap
from ..core.rounding import digits
from ..core.rounds import in_order, needed

Array = NDArray[np.float64]


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
        for one in (self.seen, self.again):
            n = one[..., 0]
            yield small(one) and ((n >= 0) & (n % 1 == 0) & (n <= MOST_ROWS)).all(), "count rows that are not there"
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
class Server:
    """Holds the answers: `replies[k]` are client k's numbers.

    Once all have answered, `shares`, and the `numbers` of all together.
    """

    clients: tuple[str, ...]
    levels: int
    replies: PersistentMap[int, Array] = field(default_factory=PersistentMap)
    numbers: Array | None = None
    shares: Array | None = None

    @property
    def round(self) -> int:
        return 0


def start(clients: tuple[str, ...], levels: int) -> tuple[Server, ServerEffects]:
    """Returns the first state and the first questions."""
    return Server(clients, levels), once.ask(len(clients), AskLevels(0, np.zeros(levels)))


def finished(state: Server) -> bool:
    return state.shares is not None


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Answers with the numbers, or keeps the shares of all."""
    if not isinstance(event, AskLevels):
        raise RemoteFault(f"server: {type(event).__name__} was not expected")
    if event.round:
        return replace(state, shares=event.shares), []
    return state, [LevelNumbers(0, state.numbers[:, np.newaxis], np.zeros((0, len(state.numbers), 1)))]


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """Takes one client's numbers; after the last it sends the shares to all."""
    needed(event, "client {client} is gone before the first round; start again when it is back", state.clients)
    if not isinstance(event, LevelNumbers) or sender in state.replies:
        raise RemoteFault(f"{type(event).__name__} was not expected", sender)
    if why := event.wrong():
        raise RemoteFault(why, sender)
    state = replace(state, replies=state.replies.plus(sender, event.seen[:, 0]))
    if len(state.replies) < len(state.clients):
        return state, []
    numbers = np.sum(in_order(state.replies), axis=0)
    shares = shares_of(numbers)
    state = replace(state, numbers=numbers, shares=shares)
    return state, once.ask(len(state.clients), AskLevels(1, shares))


PROTOCOL = once.protocol("levels", (AskLevels,), (LevelNumbers,), server_receive, client_receive, finished)
