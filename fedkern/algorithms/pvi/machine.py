"""Defines partitioned variational inference: the server and the clients as state machines without I/O.

q = prior x t_1 x ... x t_M, all Gaussians in natural parameters. The server sends q; a client improves it on its own rows with
everything else (the cavity q / t_m) as its prior, and answers with the damped change of its site. Both sides change t_m only when
the server says by how much (`SiteApplied`), and q is recomputed from the sites in an order that the clients' numbers alone
decide, so the order of arrival can't change a bit of it. Source: docs/spec/pvi.md, sections 1, 2, 7-9.

| event at the client | its work | its answer |
|---|---|---|
| QUpdate, not private | optimises | SiteDelta |
| QUpdate, private | reads no row yet | Charge (to its own budget) |
| Charged | optimises | SiteDelta |
| ChargeFailed | nothing, for good | Refused |
| SiteApplied | adds alpha x delta to its site | |
| AskSlope, `rounds = "until"` | its gradient and X'WX at that q | Slope |
"""

from __future__ import annotations

from dataclasses import replace

from ..core.kept import load, save
from ..core.messages import Protocol, Refused
from ..exchanges.arrival import AskSlope, Slope
from .client import Client, client, client_receive
from .messages import (
    SUMS,
    QUpdate,
    ScaledQUpdate,
    ScaledSiteDelta,
    SiteApplied,
    SiteDelta,
)
from .server import Server, finished, moved, released, server_receive, start
from .settings import Settings

__all__ = [
    "PROTOCOL", "SCALED", "SUMS", "Client", "QUpdate",
    "Refused", "Server", "Settings", "SiteApplied", "SiteDelta", "client", "client_receive",
    "finished", "load", "moved", "protocol", "released", "save", "server_receive", "start",
]  # fmt: skip


PROTOCOL: Protocol[Server, Client] = Protocol(
    "pvi", (QUpdate, SiteApplied), (SiteDelta, Refused), server_receive, client_receive, finished, save, load
)


# Of a job that learns its scale.
SCALED: Protocol[Server, Client] = replace(PROTOCOL, to_client=(ScaledQUpdate, SiteApplied), to_server=(ScaledSiteDelta,))


def protocol(*, private: bool, until: bool = False, learns: bool = False) -> Protocol[Server, Client]:
    """Returns the protocol with only the messages that a job can send: without a budget nobody refuses.

    `learns`: the residual variance.
    """
    if private:
        return PROTOCOL
    rounds = SCALED if learns else replace(PROTOCOL, to_server=(SiteDelta,))
    if not until:
        return rounds
    return replace(rounds, to_client=(*rounds.to_client, AskSlope), to_server=(*rounds.to_server, Slope))
