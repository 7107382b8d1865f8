"""Lets clients say which levels of categorical covariates they cannot keep, for they have them in few rows: these become `OTHER`.

It follows the agreement on columns (`columns`), in which each client has told of an undeclared column only the levels that it
keeps. So a level that no client keeps has joined already, and nobody learns its name. Of each column every level is asked for but
`OTHER`, and then `OTHER` itself: a client that has joined any level there says so. Levels go in blocks of `WIDTH`; each question
tells which levels of the block before join, and the last one asks for none. The server adds, so that the answers can be masked.

An answer tells which levels a client has in some rows, and in few; or, where these are too few for `OTHER` too, the last
ones. A level that it does not have, and one that it has in enough rows, get the same answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ...labels import OTHER
from ...models.encoding import Column
from ..core import legs, once, tells
from ..core.exchange import Added, Ask
from ..core.legs import Leg, not_agreed
from ..core.messages import ClientEffects, Event, Message, RemoteFault, ServerEffects

WIDTH = 64  # levels of a question
DIMS = {"levels": WIDTH}
TELLS = tells.Fact(
    "which levels of its columns join, for it has them in few rows",
    "that it has such a level",
    together="that some client has such a level",
)

Flags = NDArray[np.float64]
Block = Annotated[Flags, "levels"]


@dataclass(frozen=True)
class AskRareLevels(Ask, kind=297):
    """Server to client: which levels of this block can you not keep? `joined`: 1 for those that join of the block before."""

    joined: Block


@dataclass(frozen=True)
class RareLevels(Added, kind=298, tells=TELLS, ask=AskRareLevels, masked=("masked_levels", 299)):
    """Client to server: 1 for each level of the block that it cannot keep, else 0."""

    levels: Block


TIMES: dict[type[Message], int] = {AskRareLevels: 2}  # of a block


@dataclass(frozen=True)
class Client:
    """Is a client's state.

    `rare` (n,) has 1 for the levels that it cannot keep, `joined` for those that any client cannot, as far as that was told;
    `leg` is the block of the next question.
    """

    rare: Flags
    leg: int = 0
    joined: Flags = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True)
class Server(Leg[RareLevels], answers=(RareLevels,), needs=not_agreed("the levels are")):
    """Is the server's state: of `n_levels` levels it knows `joined`. A leg is a block."""

    n_levels: int
    joined: Flags = field(default_factory=lambda: np.zeros(0))

    @property
    def done(self) -> bool:
        """Whether it is known of all levels whether they join."""
        return len(self.joined) == self.n_levels

    def combined(self, answers: list[RareLevels]) -> tuple[Server, ServerEffects]:
        """Ends a block, and asks for the next."""
        joined = np.any([answer.levels > 0 for answer in answers], axis=0).astype(np.float64)
        known = np.concatenate([self.joined, joined])[: self.n_levels]
        return self.ask(AskRareLevels(self.leg + 1, joined), joined=known)


def levels_asked(columns: Sequence[Column]) -> list[tuple[str, str]]:
    """Returns column and level of each flag: all levels of the categorical columns, `OTHER` last in each."""
    categorical = [(column.name, column.levels) for column in columns if column.levels is not None]
    return [(name, level) for name, levels in categorical for level in (*(level for level in levels if level != OTHER), OTHER)]


def blocks(n_levels: int) -> int:
    """Returns in how many blocks so many levels are asked for."""
    return -(-n_levels // WIDTH)


def start(n_levels: int, clients: tuple[str, ...]) -> tuple[Server, ServerEffects]:
    """Returns the server's first state and its question."""
    return Server(clients, n_levels), once.ask(len(clients), AskRareLevels(0, np.zeros(WIDTH)))


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Keeps what is agreed of the block before, and answers for the next, if there is one. Raises RemoteFault: the message cannot
    be, or a level that this client cannot keep is not among those that join."""
    n, done = len(state.rare), len(state.joined)
    if not isinstance(event, AskRareLevels) or event.round != state.leg or state.leg > blocks(n):
        raise RemoteFault(f"server: {type(event).__name__} was not expected")
    if event.round:
        joined = event.joined[: n - done]
        if not np.isin(joined, (0, 1)).all() or (joined < state.rare[done : done + WIDTH]).any():
            raise RemoteFault("server: AskRareLevels.joined has a number that cannot be, or lacks a level that this client told")
        state = replace(state, joined=np.concatenate([state.joined, joined]))
    flags, state = state.rare[event.round * WIDTH :][:WIDTH], replace(state, leg=state.leg + 1)
    if not len(flags):
        return state, []
    return state, [RareLevels(event.round, np.pad(flags, (0, WIDTH - len(flags))))]


def joined_columns(columns: Sequence[Column], ended: Server | Client) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields the columns some of whose levels have joined, with those of them that are known."""
    gone = [pair for pair, flag in zip(levels_asked(columns), ended.joined.tolist()) if flag]
    for name in dict.fromkeys(name for name, _ in gone):
        yield name, tuple(level for of, level in gone if of == name and level != OTHER)


PROTOCOL = legs.protocol("rare-levels", Server, (AskRareLevels,), (RareLevels,), client_receive)
