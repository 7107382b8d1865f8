"""After an open variational job: each client's log-likelihood at draws of the global unknowns from q.

The draws are made of the job's seed and of q, so only the answers travel: one number for each draw, in thousandths of a nat. Of a
spatial fit every client has been told q(xi), and where something still moves nobody is asked; of a partitioned job the question
has the released q. With the answers the server weights its draws (`results.reweighed`).

Log-likelihoods at known points are equations for the rows. A partitioned job has fewer of them than a client of the least size
has unknown cells (`allowed`), by numbers that stand in the job file and in the agreed columns: how many a client answers says
nothing of its own number of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ..core import once
from ..core.messages import ClientEffects, ClientLost, Event, Message, RemoteFault, ServerEffects, evolve
from ..core.persistent import PersistentMap, PersistentSet
from ..core.rounds import needed
from .rounding import bounded, rounded

DRAWS = 400  # at most
FEWEST = 25  # of fewer no weights have a tail
DIMS = {"draws": DRAWS}


def allowed(least_rows: int, columns: int) -> int:
    """How many draws the clients of an open job are asked about: fewer than the cells of the smallest client, or none.

    Parameters
    ----------
    least_rows : that every client has
    columns : covariates; the response is one column more
    """
    most = min(DRAWS, least_rows * (columns + 1) - 1)
    return most if most >= FEWEST else 0


Terms = Annotated[NDArray[np.float64], "draws"]


@dataclass(frozen=True)
class AskTerms(Message, kind=165):
    """Server to client: at the draws that all know."""

    round: int


@dataclass(frozen=True)
class AskTermsOf(Message, kind=149):
    """Server to client: at draws from this q, shift and packed precision."""

    round: int
    h: Annotated[NDArray[np.float64], "d"]
    P: Annotated[NDArray[np.float64], "p"]


@dataclass(frozen=True)
class LogTerms(Message, kind=166):
    """Client to server: estimates of log p(y_j | xi), and nothing of its own unknowns."""

    round: int
    values: Terms


@dataclass(frozen=True)
class LogTermsOf(Message, kind=150):
    """Client to server: log p(y_j | theta) at draws of q."""

    round: int
    values: Terms


@dataclass(frozen=True)
class Client:
    """`terms` computes the answer, if it is asked for; `asked`: by what question it was."""

    terms: Callable[[AskTerms | AskTermsOf], NDArray[np.float64]]
    asked: AskTerms | AskTermsOf | None = None


@dataclass(frozen=True)
class Server:
    """`asks` is False where the fit still moves; `spared`: the job goes on without the `lost` clients' numbers; `dropped`:
    client -> why its numbers are nobody's."""

    n_clients: int
    asks: bool
    replies: PersistentMap[int, NDArray[np.float64]] = field(default_factory=PersistentMap)
    spared: bool = False
    lost: PersistentSet[int] = field(default_factory=PersistentSet)
    dropped: PersistentMap[int, str] = field(default_factory=PersistentMap)

    @property
    def complete(self) -> bool:
        """Whether everybody was asked, and has answered."""
        return self.asks and len(self.replies) == self.n_clients


def start(n_clients: int, asks: bool) -> tuple[Server, ServerEffects]:
    """Asks everybody, or nobody."""
    return Server(n_clients, asks), once.ask(n_clients, AskTerms(0)) if asks else []


def start_of(n_clients: int, question: AskTermsOf | None) -> tuple[Server, ServerEffects]:
    """Asks everybody at draws from a q, or nobody; a job that has done its work does not end with a client that is lost now."""
    effects = [] if question is None else once.ask(n_clients, question)
    return Server(n_clients, question is not None, spared=True), effects


def finished(state: Server) -> bool:
    return not state.asks or once.heard_of_all(state.replies, state.lost, state.n_clients, state.dropped)


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Answers, in thousandths of a nat."""
    if not isinstance(event, AskTerms | AskTermsOf):
        raise RemoteFault(f"server: {type(event).__name__} was not expected")
    answer = LogTermsOf if isinstance(event, AskTermsOf) else LogTerms
    return evolve(state, asked=event), [answer(event.round, rounded(state.terms(event)))]


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """One client's numbers, or its loss. The fit is done: numbers that cannot be end no job, which goes on without them."""
    if isinstance(event, ClientLost) and state.spared:
        return replace(state, lost=state.lost | {event.client}), []
    needed(event, "its log-likelihoods had not come; --resume goes on from the last checkpoint")
    if not isinstance(event, LogTerms | LogTermsOf) or sender in state.replies or sender in state.dropped:
        raise RemoteFault(f"client {sender}: {type(event).__name__} was not expected")
    if not bounded(event.values):
        return evolve(state, dropped=state.dropped.plus(sender, "its log-likelihoods are too large to be any")), []
    return once.with_reply(state, sender, event.values), []


PROTOCOL = once.protocol("terms", (AskTerms,), (LogTerms,), server_receive, client_receive, finished)
OF_Q = once.protocol("terms-of-q", (AskTermsOf,), (LogTermsOf,), server_receive, client_receive, finished)
