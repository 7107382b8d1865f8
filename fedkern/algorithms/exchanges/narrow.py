"""Tells each client, after the rounds of an open vertical job, by how much q's standard deviations are too small.

The server alone knows it: it has the response, hence the weights of rows, and all that every client has sent of them. With it go
the means of the slopes that clients of a logistic job were sent (in other jobs none: n is 0). Nothing is answered. Source:
docs/spec/vertical.md, section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ..core import once
from ..core.messages import ClientEffects, Event, Message, RemoteFault, ServerEffects

Slopes = Annotated[NDArray[np.float64], "n"]


@dataclass(frozen=True)
class Narrow(Message, kind=77):
    """Server to client: standard deviations along your part of the predictor over those that the joint posterior has; the mean
    of each row's slopes over the last half of the rounds, 0 where it was never seen."""

    round: int
    ratio: float
    slopes: Slopes


@dataclass(frozen=True)
class Client:
    """Holds `ratio` and `slopes` once they are known."""

    ratio: float | None = None
    slopes: NDArray[np.float64] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Server:
    """Is the server's state, which has nothing left to do."""

    @property
    def round(self) -> int:
        return 0


def start(ratios: Sequence[float], slopes: NDArray[np.float64]) -> tuple[Server, ServerEffects]:
    """Tells each client its ratio."""
    return Server(), [(k, Narrow(0, ratio, slopes)) for k, ratio in enumerate(ratios)]


def finished(state: Server) -> bool:
    return True


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    raise RemoteFault(f"{type(event).__name__} was not expected", sender)


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    if not isinstance(event, Narrow) or state.ratio is not None:
        raise RemoteFault(f"server: {type(event).__name__} was not expected")
    if not 0 < event.ratio <= 1:
        raise RemoteFault(f"server: Narrow of {event.ratio:g} cannot be")
    if not (np.abs(event.slopes) <= 1).all():
        raise RemoteFault("server: Narrow.slopes of a logistic model cannot be beyond 1")
    return replace(state, ratio=event.ratio, slopes=event.slopes.copy()), []


PROTOCOL = once.protocol("narrow", (Narrow,), (), server_receive, client_receive, finished)
