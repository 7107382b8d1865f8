"""After the rounds of an open job: do responses vary as the model says? Each client sends Pearson sums of its rows.

At a predictor mean mu the family says a variance V of y. Of 1 = E (y - mu)^2 / V a client tells the sum over its rows, how much
this sum varies where the model is right, and how fast it answers to a dispersion; with its events, and the sum of its weights. A
sum is of at least five rows, whatever the job's least number: a client with fewer answers with zeros. Sums are in thousandths.
Source: docs/concepts/convergence.md, "Counts that vary more".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ..core import once
from ..core.messages import SUM, ClientEffects, ClientLost, Event, Message, RemoteFault, ServerEffects, Tells
from ..core.persistent import PersistentMap, PersistentSet
from .loo_sums import LEAST, MOST_ROWS
from .rounding import LARGEST, bounded, rounded

Array = NDArray[np.float64]
SUMS = ("events", "misfit", "noise", "slope")


@dataclass(frozen=True)
class AskPearson(Message, kind=194):
    """Server to client: at these coefficients."""

    round: int
    mean: Annotated[Array, "d"]


@dataclass(frozen=True)
class PearsonSums(Message, kind=195, tells=Tells(SUM)):
    """Client to server: number of rows, their mean weight (of six digits), and sums over them: of y where it is a count; with
    weights of mean 1 of (y - mu)^2 / V, of the variance that this has where the model is right, with squared weights, and of
    mu^2 / V where y is a count. Of successes of trials the first is of the rarer kind, and the last is 0."""

    round: int
    rows: int
    weight: float
    events: float
    misfit: float
    noise: float
    slope: float


NOBODY = PearsonSums(0, 0, 0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Client:
    """`sums` computes them at the coefficients that it is asked at."""

    sums: Callable[[Array], PearsonSums]


@dataclass(frozen=True)
class Server:
    """`lost`: clients that will send none; `dropped`: client -> why its sums are nobody's; `asks` is False where there is nothing
    to be asked."""

    n_clients: int
    asks: bool
    replies: PersistentMap[int, PearsonSums] = field(default_factory=PersistentMap)
    lost: PersistentSet[int] = field(default_factory=PersistentSet)
    dropped: PersistentMap[int, str] = field(default_factory=PersistentMap)


def start(n_clients: int, mean: Array | None) -> tuple[Server, ServerEffects]:
    """Asks everybody at these coefficients, or nobody."""
    return Server(n_clients, mean is not None), [] if mean is None else once.ask(n_clients, AskPearson(0, mean))


def finished(state: Server) -> bool:
    """Whether everybody who still lives has answered."""
    return not state.asks or once.heard_of_all(state.replies, state.lost, state.n_clients, state.dropped)


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """The sums, or zeros where they would be of too few rows."""
    if not isinstance(event, AskPearson):
        raise RemoteFault(f"server: {type(event).__name__} was not expected")
    sums = state.sums(event.mean)
    if sums.rows < LEAST:
        return state, [NOBODY]
    told = dict(zip(SUMS, rounded([getattr(sums, name) for name in SUMS]).tolist()))
    return state, [replace(sums, weight=float(f"{min(sums.weight, LARGEST):.6g}"), **told)]


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """One client's sums, or its loss; of sums that cannot be only why."""
    if isinstance(event, ClientLost):
        return replace(state, lost=state.lost | {event.client}), []
    if not isinstance(event, PearsonSums) or sender in state.replies or sender in state.dropped:
        raise RemoteFault(f"client {sender}: {type(event).__name__} was not expected")
    if why := _wrong(event):
        return replace(state, dropped=state.dropped.plus(sender, why)), []
    return once.with_reply(state, sender, event), []


def _wrong(sums: PearsonSums) -> str:
    """Why these are no client's sums; "" where they can be."""
    if not (sums.rows == 0 or LEAST <= sums.rows <= MOST_ROWS):
        return f"its PearsonSums are of {sums.rows} rows"
    numbers = [sums.weight, *(getattr(sums, name) for name in SUMS)]
    if not bounded(numbers):
        return "its PearsonSums are too large to be any"
    if min(numbers) < 0:
        return "its PearsonSums are of squares, and one is below 0"
    return ""


PROTOCOL = once.protocol("pearson-sums", (AskPearson,), (PearsonSums,), server_receive, client_receive, finished)
