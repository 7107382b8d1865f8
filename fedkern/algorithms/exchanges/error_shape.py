"""After the last round of structural equations: are the errors Laplace, as the model says? Source: sparse.md, section 9.

The law of the errors alone tells which way an effect goes, so a client sends, of each equation, the mean size of its residuals
over their root mean square: 1/sqrt(2) of Laplace errors, sqrt(2/pi) of normal ones, sqrt(3)/2 of uniform ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ..core import once
from ..core.messages import ClientEffects, ClientLost, Event, Message, RemoteFault, ServerEffects, Tells
from ..core.persistent import PersistentMap, PersistentSet

Array = NDArray[np.float64]

LAPLACE = float(np.sqrt(0.5))
SPREAD = float(np.sqrt(0.125))  # of the ratio of n Laplace errors, times sqrt(n), by the delta method
SURE, APART = 4.0, 0.03  # standard errors, and the least difference, from which errors are said to have another law


@dataclass(frozen=True)
class AskShape(Message, kind=133):
    """Server to client: how are your residuals distributed?"""

    round: int


@dataclass(frozen=True)
class ErrorShape(Message, kind=134, tells=Tells("of each equation a ratio of moments of its residuals, and its number of rows")):
    """Client to server: mean size over root mean square of each equation's residuals, at its posterior means."""

    round: int
    rows: int
    ratio: Annotated[NDArray[np.float64], "w"]


@dataclass(frozen=True)
class Client:
    """What it tells."""

    rows: int
    ratio: Array


@dataclass(frozen=True)
class Server:
    """Answers that have come, and clients that will send none."""

    n_clients: int
    replies: PersistentMap[int, ErrorShape] = field(default_factory=PersistentMap)
    lost: PersistentSet[int] = field(default_factory=PersistentSet)


def ratio(residuals: Array) -> Array:
    """(...) of residuals (..., n); that of Laplace errors where all are zero."""
    square = np.mean(residuals**2, axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(square > 0, np.mean(np.abs(residuals), axis=-1) / np.sqrt(square), LAPLACE)


def departures(replies: Sequence[ErrorShape]) -> list[tuple[int, float]]:
    """Equations whose errors, over all clients, are surely not Laplace, each with its ratio."""
    rows = np.array([reply.rows for reply in replies], float)
    if not rows.sum() > 0:
        return []
    mean = np.average([reply.ratio for reply in replies], axis=0, weights=rows)
    away = np.abs(mean - LAPLACE)
    which = np.flatnonzero((away > APART) & (away * np.sqrt(rows.sum()) > SURE * SPREAD))
    return [(int(j), float(mean[j])) for j in which]


def start(n_clients: int) -> tuple[Server, ServerEffects]:
    """Asks everybody."""
    return Server(n_clients), once.ask(n_clients, AskShape(0))


def finished(state: Server) -> bool:
    """Whether everybody who still lives has answered."""
    return once.heard_of_all(state.replies, state.lost, state.n_clients)


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Answers."""
    if not isinstance(event, AskShape):
        raise RemoteFault(f"server: {type(event).__name__} was not expected")
    return state, [ErrorShape(0, state.rows, state.ratio)]


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """One client's answer, or its loss: the draws are made, and the note lacks its residuals alone."""
    if isinstance(event, ClientLost):
        return replace(state, lost=state.lost | {event.client}), []
    if not isinstance(event, ErrorShape) or sender in state.replies or event.rows < 0:
        raise RemoteFault(f"client {sender}: {type(event).__name__} comes twice, or has a count below 0")
    if not ((event.ratio >= 0) & (event.ratio <= 1 + 1e-12)).all():
        raise RemoteFault(f"client {sender}: ErrorShape.ratio must be from 0 to 1, as a mean size over a root mean square is")
    return once.with_reply(state, sender, event), []


PROTOCOL = once.protocol("error-shape", (AskShape,), (ErrorShape,), server_receive, client_receive, finished)
