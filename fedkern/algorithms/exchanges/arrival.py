"""After an open partitioned job: is its q where the posterior of all rows is, with the width that this has?

That q moves no more is no proof: damped rounds of many clients move by little however far they are from the end. Each client
sends the gradient, in the mean, of its expected log-likelihood at the released q, and X'WX, its curvature; with the prior's these
are a Newton step, whose length says how far away q is, and standard deviations. X'WX of few rows is these rows up to a rotation:
a client with no more than twice as many rows as there are coefficients does not tell its own, unless its sites have told it
already, or the job lowers the least number of rows. Source: docs/concepts/convergence.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ..core import once
from ..core.messages import (
    FEWER,
    LIKELIHOOD,
    ROTATED,
    ClientEffects,
    ClientLost,
    Event,
    Message,
    RemoteFault,
    ServerEffects,
    Tells,
)
from ..core.persistent import PersistentMap, PersistentSet
from ..core.rounds import in_order

Array = NDArray[np.float64]

LARGEST = 1e100  # of a number: products of two are finite


@dataclass(frozen=True)
class AskSlope(Message, kind=190):
    """Server to client: at this q, shift and packed precision."""

    round: int
    h: Annotated[Array, "d"]
    P: Annotated[Array, "p"]


@dataclass(frozen=True)
class Slope(Message, kind=191, tells=Tells(LIKELIHOOD, ROTATED, FEWER)):
    """Client to server: gradient of its expected log-likelihood in q's mean, and X'WX, the lower triangle row by row; all numbers
    are 0, and `told` is, where it has too few rows for that."""

    round: int
    told: int
    gradient: Annotated[Array, "d"]
    curvature: Annotated[Array, "t"]


@dataclass(frozen=True)
class Client:
    """`slope` computes gradient and packed curvature at a q; None where it tells nothing."""

    slope: Callable[[AskSlope], tuple[Array, Array]] | None


@dataclass(frozen=True)
class Server:
    """`asks` is False where a client is lost already; `silent`: those that told nothing; `dropped`: client -> why its numbers are
    nobody's."""

    n_clients: int
    asks: bool
    replies: PersistentMap[int, Slope] = field(default_factory=PersistentMap)
    silent: PersistentSet[int] = field(default_factory=PersistentSet)
    lost: PersistentSet[int] = field(default_factory=PersistentSet)
    dropped: PersistentMap[int, str] = field(default_factory=PersistentMap)

    @property
    def complete(self) -> bool:
        """Whether everybody was asked, and has told its numbers."""
        return self.asks and len(self.replies) == self.n_clients

    @property
    def total(self) -> tuple[Array, Array]:
        """Gradient and packed curvature of all rows, added in the clients' order."""
        told = in_order(self.replies)
        return np.sum([one.gradient for one in told], axis=0), np.sum([one.curvature for one in told], axis=0)


def start(n_clients: int, question: AskSlope | None) -> tuple[Server, ServerEffects]:
    """Asks everybody, or nobody."""
    return Server(n_clients, question is not None), [] if question is None else once.ask(n_clients, question)


def finished(state: Server) -> bool:
    """Whether everybody who still lives has answered."""
    return not state.asks or once.heard_of_all({*state.replies, *state.silent}, state.lost, state.n_clients, state.dropped)


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """The numbers, or zeros where nothing may be told."""
    if not isinstance(event, AskSlope):
        raise RemoteFault(f"server: {type(event).__name__} was not expected")
    if state.slope is None:
        d = len(event.h)
        return state, [Slope(event.round, 0, np.zeros(d), np.zeros(d * (d + 1) // 2))]
    gradient, curvature = state.slope(event)
    if not all(np.abs(numbers).max(initial=0) <= LARGEST for numbers in (gradient, curvature)):  # NaN is not
        gradient, curvature = np.full_like(gradient, 2 * LARGEST), curvature * 0.0
    return state, [Slope(event.round, 1, gradient, curvature)]


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """One client's numbers, or its loss. The fit is done: numbers that cannot be end no job, which then judges nothing."""
    if isinstance(event, ClientLost):
        return replace(state, lost=state.lost | {event.client}), []
    known = (state.replies, state.silent, state.dropped)
    if not isinstance(event, Slope) or any(sender in those for those in known):
        raise RemoteFault(f"client {sender}: {type(event).__name__} was not expected")
    if event.told == 0:
        return replace(state, silent=state.silent | {sender}), []
    d = len(event.gradient)
    diagonal = event.curvature[np.arange(d) * (np.arange(d) + 3) // 2]
    large = not all(np.abs(numbers).max(initial=0) <= LARGEST for numbers in (event.gradient, event.curvature))
    if event.told != 1 or large or (diagonal < 0).any():
        return replace(state, dropped=state.dropped.plus(sender, "its gradient or its X'WX is none that rows can have")), []
    return once.with_reply(state, sender, event), []


PROTOCOL = once.protocol("arrival", (AskSlope,), (Slope,), server_receive, client_receive, finished)
