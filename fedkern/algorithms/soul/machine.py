"""Defines stochastic optimisation by unadjusted Langevin (SOUL) for vertically split data: z is maximised, theta_j sampled given
z.

In each round client j takes M Langevin steps of theta_j given z_j, from where its chain was left,

    theta <- theta + h [ H'((z - g)/rho^2 + own) + grad log p(theta) ] + sqrt(2 h) xi,   own: AV 0, PL rho_j(theta),

and its mean g over these steps (PL: its mean rho_j too) moves z by a Robbins-Monro step,

    z_j <- z_j + c_k [ message_j - (z_j - gbar_j)/rho^2 ] / (1/rho^2 + J kappa),   c_k = min(1, (50/k)^0.6),

message_j: AV r(Z), PL the sum of the other clients' rhobar; PL has (J - 1)^2/J in the place of J. b and log sigma are maximised
with z, by steps of their own. Three forms:

| response | server to client | client to server | who keeps z |
|---|---|---|---|
| AV, at the server | z_j | gbar_j | server |
| AV, shared | Z, b, log sigma | z_j | client |
| PL (shared) | z_j, Z, b, log sigma | gbar_j, rhobar_j, its slope in log sigma | server |

The two forms of AV give the same bits. h is 0.2 over the largest curvature, so chains are 5 % too wide at most; z is averaged
over the second half of the rounds. The result is a mode of z and draws from p(theta | zhat, y). These are **not** the posterior
of theta: they are labelled "conditional", and are much narrower. Source: docs/spec/vertical.md, section 10.
"""

from __future__ import annotations

from ..core.kept import load, save
from ..core.messages import Message, Protocol
from .client import Client, Conditional, client, client_receive, conditional
from .messages import Auxiliary, AuxiliaryTotal, Moved, Predicted, Slopes, Total
from .server import Server, finished, server_receive, start
from .settings import Settings

__all__ = [
    "Auxiliary", "AuxiliaryTotal", "Client", "Conditional", "Moved", "Predicted", "Server", "Settings", "Slopes", "Total",
    "client", "client_receive", "conditional", "finished", "load", "protocol", "save", "server_receive", "start",
]  # fmt: skip


def protocol(settings: Settings) -> Protocol[Server, Client]:
    """Returns the protocol with only the messages that a job of these settings can send."""
    pair: tuple[type[Message], type[Message]] = (Auxiliary, Predicted)
    if settings.power:
        pair = (AuxiliaryTotal, Slopes)
    elif settings.response == "shared":
        pair = (Total, Moved)
    return Protocol("soul", pair[:1], pair[1:], server_receive, client_receive, finished, save, load)
