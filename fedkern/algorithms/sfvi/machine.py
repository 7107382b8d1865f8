"""Defines structured federated variational inference: global unknowns xi at the server, local unknowns u_j at the clients.

q(xi) = N(mu, L L') at the server; q(u_j | xi) = N(a_j + B_j (xi - c_j), L_j L_j') at client j, of which nothing is ever sent. In
each round the server draws xi and sends it; a client draws u_j, steps a_j, B_j and L_j, and answers with the gradient of its term
of the bound in xi,

    G_j = dF_j/dxi + B_j' dF_j/du_j = h_xi + B_j' h_u,     h: gradients of log p(y_j, u_j | xi).

(F_j has also -log q(u_j | xi) with frozen parameters, whose derivatives -B_j' L_j^-T e and B_j' L_j^-T e cancel here.) The sum of
the G_j and the prior's gradient is all that the server needs: the gradient equals that of all data in one place.

c_j is a constant. It is moved every `centre_every` steps to the mean of the xi that came since, with a_j shifted by B_j times the
move, so that a_j and B_j stay nearly uncorrelated, mu never has to travel, and dF/dmu is the sum of the G_j exactly.

SFVI-Avg (`local_steps` > 0) sends q(xi) itself; each client takes that many steps of its own, with log p(xi) - log q(xi) + F_j /
w_j, w_j its public weight, and the server takes the Wasserstein barycentre of their results. It is not exact. Source:
docs/spec/sigma.md, section 6; Hassan, Salomone and Mengersen (2023).
"""

from __future__ import annotations

from ..core import until
from ..core.kept import load, save
from ..core.messages import Message, Protocol
from .client import Client, client, client_receive, local_posterior
from .families import Family, barycentre
from .messages import SUMS, Fitted, Global, GlobalGradient, GlobalGradientBound, Reached, Start
from .server import Server, finished, posterior_moments, server_receive, start
from .settings import Settings

__all__ = [
    "SUMS", "Client", "Family", "Fitted", "Global", "GlobalGradient", "GlobalGradientBound", "Reached", "Server", "Settings",
    "Start", "barycentre", "client", "client_receive", "finished", "load", "local_posterior", "posterior_moments", "protocol",
    "save", "server_receive", "start",
]  # fmt: skip


def protocol(settings: Settings) -> Protocol[Server, Client]:
    """Returns the protocol with only the messages that a job of these settings can send."""
    down: tuple[type[Message], ...] = (Start, Fitted)
    up: tuple[type[Message], ...] = (Reached,)
    if not settings.local_steps:
        down, up = (Global, Fitted), (GlobalGradientBound if settings.bound else GlobalGradient,)
    if settings.rounds < settings.most:
        down, up = (*down, *until.DOWN), (*up, *until.UP)
    return Protocol("sfvi", down, up, server_receive, client_receive, finished, save, load)
