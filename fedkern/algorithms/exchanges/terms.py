"""After an open spatial fit that has settled: each client's log-likelihood at draws of the global unknowns from q.

The draws are made of the job's seed and of q(xi), which every client has been told, so only the answers travel: one number for
each draw. With them the server weights its draws (`results.reweighed`). Where something still moves nobody is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ..core import once
from ..core.messages import ClientEffects, Event, Message, RemoteFault, ServerEffects
from ..core.rounds import needed

DRAWS = 400
DIMS = {"draws": DRAWS}

Terms = Annotated[NDArray[np.float64], "draws"]


@dataclass(frozen=True)
class AskTerms(Message, kind=165):
    """Server to client: at the draws that all know."""

    round: int


@dataclass(frozen=True)
class LogTerms(Message, kind=166):
    """Client to server: estimates of log p(y_j | xi), and nothing of its own unknowns."""

    round: int
    values: Terms


@dataclass(frozen=True)
class Client:
    """`terms` computes the answer, if it is asked for."""

    terms: Callable[[], NDArray[np.float64]]


@dataclass(frozen=True)
class Server:
    """`asks` is False where the fit still moves."""

    n_clients: int
    asks: bool
    replies: Mapping[int, NDArray[np.float64]] = field(default_factory=dict)


def start(n_clients: int, asks: bool) -> tuple[Server, ServerEffects]:
    """Asks everybody, or nobody."""
    return Server(n_clients, asks), once.ask(n_clients, AskTerms(0)) if asks else []


def finished(state: Server) -> bool:
    return not state.asks or len(state.replies) == state.n_clients


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Answers."""
    if not isinstance(event, AskTerms):
        raise RemoteFault(f"server: {type(event).__name__} was not expected")
    return state, [LogTerms(event.round, state.terms())]


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """One client's numbers."""
    needed(event, "its log-likelihoods had not come; --resume goes on from the last checkpoint")
    if not isinstance(event, LogTerms) or sender in state.replies:
        raise RemoteFault(f"client {sender}: {type(event).__name__} was not expected")
    return once.with_reply(state, sender, event.values), []


PROTOCOL = once.protocol("terms", (AskTerms,), (LogTerms,), server_receive, client_receive, finished)
