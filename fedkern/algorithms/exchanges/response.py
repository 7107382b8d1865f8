"""Sends the response of a vertical job to a server without a file of it, once, from one client that holds it.

`fedkern check` says so beforehand. Where the server alone has the response, each client is told what only the server can know;
nothing is answered.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ..core import legs, tells
from ..core.legs import Conditions, Leg, Told
from ..core.messages import ClientEffects, Event, Message, RemoteFault, ServerEffects


@dataclass(frozen=True)
class AskResponse(Message, kind=57):
    """Server to the client that holds the response."""

    round: int


@dataclass(frozen=True)
class Response(Message, kind=58, tells=tells.PerRow("values of its rows", "the response of every row")):
    """Client to server: y of all rows (PL: of the rows that are kept for testing)."""

    round: int
    y: Annotated[NDArray[np.float64], "n"]


@dataclass(frozen=True)
class Client:
    """Holds `y`, which is None at clients that are not asked."""

    name: str
    y: NDArray[np.float64] | None


@dataclass(frozen=True)
class Server(Leg[Response], answers=(Response,), needs="the server does not have the response yet; start the job again"):
    """Is the server's state, which asks one client alone, the `holder`."""

    holder: int

    @property
    def complete(self) -> bool:
        """Whether the holder has answered."""
        return bool(self.replies)

    @property
    def y(self) -> NDArray[np.float64]:
        """The response, once it is here."""
        return self.replies[self.holder].y

    def checked(self, sender: int, answer: Response) -> Response:
        """Returns a copy of the answer, whose bytes are the transport's."""
        if sender != self.holder:
            raise RemoteFault("Response was not expected")
        return replace(answer, y=answer.y.copy())


def start(holder: int) -> tuple[Server, ServerEffects]:
    """Asks the holder."""
    return Server((), holder), [(holder, AskResponse(0))]


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    if state.y is None:
        raise RemoteFault(f"server: AskResponse came to client {state.name!r}, which has no response to tell")
    return state, [Response(0, state.y)]


PROTOCOL = legs.protocol("response", Server, (AskResponse,), (Response,), client_receive)


@dataclass(frozen=True)
class AuxiliarySd(Told, kind=76, name="auxiliary-sd"):
    """Server to client: rho, the standard deviation of z about g, and the factor of the client's coefficients at the end."""

    round: int
    rho: float
    factor: float

    def honest(self) -> Conditions:
        possible = np.isfinite(self.rho) and self.rho > 0 and 0 < self.factor <= 1
        yield possible, f"AuxiliarySd of {self.rho:g} and {self.factor:g} cannot be"


# The server has the weights of rows, and all that every client has sent of them, hence by how much q is too narrow. With it go
# the means of the slopes that clients of a logistic job were sent (in other jobs none: n is 0).
@dataclass(frozen=True)
class Narrow(Told, kind=77, name="narrow"):
    """Server to client: standard deviations along your part of the predictor over those that the joint posterior has; the mean
    of each row's slopes over the last half of the rounds, 0 where it was never seen."""

    round: int
    ratio: float
    slopes: Annotated[NDArray[np.float64], "n"]

    def honest(self) -> Conditions:
        yield 0 < self.ratio <= 1, f"Narrow of {self.ratio:g} cannot be"
        yield bool((np.abs(self.slopes) <= 1).all()), "Narrow.slopes of a logistic model cannot be beyond 1"
