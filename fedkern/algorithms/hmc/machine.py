"""Defines federated Hamiltonian Monte Carlo for the exact posterior: global unknowns xi at the server, local u_j at the clients.

The state is (xi, u_1, .. u_J), with log-density log p(xi) + sum_j F_j, F_j = log p(y_j, u_j | xi). The server holds xi and its
momentum, client j holds u_j and its momentum, and all take the steps of one leapfrog trajectory together. For each step the
server sends the new xi and a client answers with dF_j/dxi at its own new u_j. With the last answer of a trajectory comes one
number: the client's change of F_j less its kinetic energy. The server adds its own, accepts or rejects, and says so with the
first question of the next trajectory. Neither u_j nor its momentum nor F_j has a message.

The number of steps is fixed, one exchange each; one step is MALA. (A trajectory that turns back by itself, as that of NUTS, would
ask all parties for its stopping rule, 2^depth exchanges for a draw.) Several chains share the exchanges. In the warm-up the
server adapts the step of each chain to the acceptance rate, and each party the standard deviations of its own coordinates to its
own draws; then all is fixed. Source: docs/spec/sigma.md, section 7.
"""

from __future__ import annotations

from ..core.kept import load, save
from ..core.messages import Message, Protocol
from .client import Client, client, client_receive, global_draws, local_draws
from .messages import (
    SUMS,
    Decided,
    Launch,
    LikelihoodChange,
    LikelihoodSlope,
    MaskedChange,
    MaskedSlope,
    Move,
    Place,
    Slope,
    SlopeChange,
)
from .metric import Metric
from .server import Server, draws, finished, server_receive, start, summary
from .settings import Settings

__all__ = [
    "SUMS", "Client", "Decided", "Launch", "LikelihoodChange", "LikelihoodSlope", "MaskedChange", "MaskedSlope", "Metric",
    "Move", "Place", "Server", "Settings", "Slope", "SlopeChange", "client", "client_receive", "draws", "finished",
    "global_draws", "load", "local_draws", "protocol", "save", "server_receive", "start", "summary",
]  # fmt: skip


def protocol(settings: Settings) -> Protocol[Server, Client]:
    """Returns the protocol with only the messages that a job of these settings can send."""
    down: tuple[type[Message], ...] = (Place, Launch, *((Move,) if settings.leapfrog > 1 else ()), Decided)
    up = (LikelihoodSlope, LikelihoodChange) if settings.whole else (Slope, SlopeChange)
    return Protocol("hmc", down, up, server_receive, client_receive, finished, save, load)
