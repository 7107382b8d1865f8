"""Collects, after training, each client's part of the linear predictor at new rows, as mean and variance under its posterior.

The parts are independent under the fitted posterior, so their means and variances add. If the job asks for predictions of rows
that lack a party, clients also send E z_j of the training rows, from which the server keeps a mean (J,) and a covariance (J, J).
Source: docs/spec/vertical.md, section 11.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ...arrays import Vector
from ..core import legs, once, tells
from ..core.kept import PersistentMap
from ..core.legs import Leg
from ..core.messages import ClientEffects, Event, Message, Protocol, RemoteFault, ServerEffects
from ..core.rounds import in_order

NEEDS = "its predictions had not come; --resume goes on from the last checkpoint"

Tested = Annotated[NDArray[np.float64], "t"]
Trained = Annotated[NDArray[np.float64], "n"]


@dataclass(frozen=True)
class AskPrediction(Message, kind=59):
    """Server to client."""

    round: int


@dataclass(frozen=True)
class Prediction(Message, kind=63, tells=tells.PerRow(tells.PREDICTED)):
    """Client to server: mean and variance of g_j at the new rows."""

    round: int
    mean: Tested
    variance: Tested


@dataclass(frozen=True)
class MeanZ(Message, kind=64, tells=tells.PerRow()):
    """Client to server, if the job asks for predictions without a party: E z_j of the training rows."""

    round: int
    z: Trained


@dataclass(frozen=True)
class Client:
    """Holds the numbers that a client has made ready; `z` is None if the job does not ask for it."""

    mean: Vector
    variance: Vector
    z: Vector | None = None


@dataclass(frozen=True)
class Server(
    Leg[Prediction], answers=(Prediction,), needs="its predictions had not come; --resume goes on from the last checkpoint"
):
    """Holds the clients' answers; `z`: client -> E z_j, where `with_z`, which comes first."""

    with_z: bool = False
    z: PersistentMap[int, Vector] = field(default_factory=PersistentMap)

    @property
    def mean(self) -> Vector:
        """(J, t) The means of the clients' parts."""
        return np.stack([reply.mean for reply in in_order(self.replies)])

    @property
    def variance(self) -> Vector:
        """(J, t) The variances of the clients' parts."""
        return np.stack([reply.variance for reply in in_order(self.replies)])

    @property
    def done(self) -> bool:
        """Whether all have told all."""
        return self.complete and (not self.with_z or len(self.z) == len(self.clients))

    def receive(self, sender: int, event: Event) -> tuple[Server, ServerEffects]:
        """Takes E z_j, too, where the job asks for it."""
        if isinstance(event, MeanZ) and self.with_z and sender not in self.z:
            return replace(self, z=self.z.plus(sender, event.z.copy())), []
        return super().receive(sender, event)

    def checked(self, sender: int, answer: Prediction) -> Prediction:
        """Refuses a variance below 0."""
        if answer.variance.min(initial=0) < 0:
            raise RemoteFault("Prediction has a variance below 0")
        return answer

    def moments(self) -> tuple[Vector, Vector]:
        """Returns mean (J,) and covariance (J, J) of E z_j over the training rows."""
        z = np.stack(in_order(self.z))
        return z.mean(axis=1), np.cov(z, bias=True).reshape(len(z), len(z))


def start(clients: tuple[str, ...], with_z: bool) -> tuple[Server, ServerEffects]:
    """Asks everybody."""
    return Server(clients, with_z), once.ask(len(clients), AskPrediction(0))


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    messages: ClientEffects = [] if state.z is None else [MeanZ(0, state.z)]
    return state, [*messages, Prediction(0, state.mean, state.variance)]


def protocol(with_z: bool) -> Protocol[Server, Client]:
    """Returns the protocol with only the messages that the job can send."""
    up: tuple[type[Message], ...] = (Prediction, MeanZ) if with_z else (Prediction,)
    return legs.protocol("prediction", Server, (AskPrediction,), up, client_receive)
