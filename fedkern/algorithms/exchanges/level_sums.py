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
from ...privacy.masks import ONCE
from ..core import once, tells
from ..core.masked import Masked, Sum
from ..core.messages import ClientEffects, Event, Message, RemoteFault, ServerEffects
from ..core.persistent import PersistentMap
from ..core.rounds import in_order, needed
from .added import Added
from .loo_sums import LEAST, MOST_ROWS
from .rounding import LARGEST, bounded

Array = NDArray[np.float64]

DIGITS = 4  # significant, of sums of columns


@dataclass(frozen=True)
class AskLevels(Message, kind=236):
    """Server to client: how many rows of each level have you; and then (round 1), these are their shares."""

    round: int
    shares: Annotated[Array, "levels"]


@dataclass(frozen=True)
class LevelNumbers(Added, Message, kind=237, tells=tells.ResponseSums()):
    """Client to server: the number of rows of each level, and of these rows the sums of columns; of some draws the same of
    responses that were drawn anew."""

    round: int
    seen: Annotated[Array, "levels sums"]
    again: Annotated[Array, "draws levels sums"]


@dataclass(frozen=True)
class MaskedLevelNumbers(Masked, Message, kind=289, tells=tells.ResponseSums().masked):
    """Client to server: `LevelNumbers`, masked."""

    words: Annotated[bytes, "masked_levels"]


SUMS = (Sum(LevelNumbers, MaskedLevelNumbers, ONCE),)


def dims(levels: int, columns: int = 0, draws: int = 0) -> dict[str, int]:
    """Returns the sizes of the messages' arrays."""
    return {"levels": levels, "sums": 1 + columns, "draws": draws}


# Before the rounds --------------------


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
    if why := _wrong(event):
        raise RemoteFault(f"{why}", sender)
    state = replace(state, replies=state.replies.plus(sender, event.seen[:, 0]))
    if len(state.replies) < len(state.clients):
        return state, []
    numbers = np.sum(in_order(state.replies), axis=0)
    shares = shares_of(numbers)
    state = replace(state, numbers=numbers, shares=shares)
    return state, once.ask(len(state.clients), AskLevels(1, shares))


PROTOCOL = once.protocol("levels", (AskLevels,), (LevelNumbers,), server_receive, client_receive, finished)

# After them --------------------


def make_reply(seen: Array, again: Array) -> LevelNumbers:
    """Returns the sums, or zeros if they are of too few rows."""
    if seen[:, 0].sum() < LEAST:
        return LevelNumbers(0, np.zeros_like(seen), np.zeros_like(again))
    return LevelNumbers(0, _rounded(seen), _rounded(again))


def _rounded(values: Array) -> Array:
    """Returns the counts as they are, and sums of columns with four digits."""
    short = values.copy()
    short[..., 1:] = np.reshape([float(f"{value:.{DIGITS}g}") for value in values[..., 1:].ravel()], values[..., 1:].shape)
    return short


def _wrong(sums: LevelNumbers) -> str:
    """Returns the reason why these are no client's sums, or "" if they can be."""
    for one in (sums.seen, sums.again):
        numbers = one[..., 0]
        if not (bounded(one, LARGEST) and (numbers >= 0).all() and (numbers % 1 == 0).all() and (numbers <= MOST_ROWS).all()):
            return "its LevelNumbers count rows that are not there"
    if not np.array_equal(sums.again[..., 0].sum(axis=1), np.full(len(sums.again), sums.seen[:, 0].sum())):
        return "its LevelNumbers are of other numbers of rows"
    return ""


QUESTION = once.Question("level-sums", AskLevels, LevelNumbers, _wrong, drops=True)
