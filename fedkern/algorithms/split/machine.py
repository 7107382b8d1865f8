"""Defines variational inference for vertically split data: one exchange an iteration (AV, split network), or two (PL).

Because the predictor is a sum, nobody ever needs the z_k of somebody else. AV: clients send z_j, the server answers with the
slopes r_i = l'(y_i, eta_i), and each client takes its own gradient step. PL: the server answers with the sum Z, clients with
their part rho_j of the likelihood's slopes, the server with the sum R of these. All share one joint draw in an iteration: the
theta_j, eps_j and tau_j that made z_j also make the gradient.

A client sends z_j and, in PL, rho_j with its sums (and, if the job asks, its terms of the ELBO): never theta, a variational
parameter, a network's weight or a row. Rows of a mini-batch follow from the public seed and the round, so no index is sent.
Source: docs/spec/vertical.md, sections 5 to 8.
"""

from __future__ import annotations

from typing import TypeVar

from ..core import until
from ..core.kept import load, save
from ..core.messages import ClientEffects, Event, Message, Protocol, Refused
from . import client as client_side
from . import private as private_side
from .client import Client, client
from .messages import Begin, BoundShare, LikelihoodShare, LikelihoodSum, PredictorSum, Residual, ZShare
from .private import PrivateClient
from .server import Server, finished, server_receive, start
from .settings import Settings, batch_of

__all__ = [
    "Begin",
    "BoundShare",
    "Client",
    "LikelihoodShare",
    "LikelihoodSum",
    "PredictorSum",
    "Residual",
    "Server",
    "Settings",
    "ZShare",
    "batch_of",
    "client",
    "client_receive",
    "finished",
    "protocol",
    "server_receive",
    "start",
]


Party = TypeVar("Party", Server, Client)


def protocol(settings: Settings) -> Protocol[Server, Client]:
    """Returns the protocol with only the messages that a job of these settings can send."""
    power, shared = settings.model == "power", settings.response == "shared"
    down = (Begin, PredictorSum, LikelihoodSum) if power else (Begin, PredictorSum) if shared else (Begin, Residual)
    up: tuple[type[Message], ...] = (ZShare, LikelihoodShare) if power else (ZShare,)
    up = (*up, *([BoundShare] if settings.bound else []), *([Refused] if settings.private else []))
    if settings.rounds < settings.most:
        down, up = (*down, *until.DOWN), (*up, *until.UP)
    return Protocol("vertical", down, up, server_receive, client_receive, finished, save, load)


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Answers as `client` or `private` does, by the kind of client."""
    if isinstance(state, PrivateClient):
        return private_side.client_receive(state, event)
    return client_side.client_receive(state, event)
