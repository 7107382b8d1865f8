"""Defines Gibbs sampling of a sparse hierarchical model over sites: server and clients as state machines without I/O.

Each round the server sends theta and tau^2; a client sweeps over its own scales, coefficients and error variance, and answers
with its deviations and scales (or only with their sums). The server moves, sweeps, keeps the draw, and asks again. Answers are
used in client order, whenever they come. Source: docs/spec/sparse.md, section 5.

| event at the client | its work | its answer |
|---|---|---|
| Globals | shifts its deviations, sweeps | Locals, or Sums |
| GlobalsTempered | the same at other temperatures | Locals and Loglik |
| GlobalsMoved | the same, after the server's move | Locals and MoveTerms, or SecondMoveTerms |
"""

from __future__ import annotations

from ..core.kept import load, save
from ..core.messages import Message, Protocol
from .client import Client, client, client_receive
from .messages import Globals, GlobalsMoved, GlobalsTempered, Locals, Loglik, MoveTerms, SecondMoveTerms, Sums, sent
from .server import Judge, Server, finished, server_receive, start
from .settings import Settings

__all__ = [
    "Client", "Globals", "GlobalsMoved", "GlobalsTempered", "Judge", "Locals", "Loglik", "MoveTerms", "SecondMoveTerms", "Server",
    "Settings", "Sums", "client", "client_receive", "finished", "load", "protocol", "save", "server_receive", "start",
]  # fmt: skip


def protocol(settings: Settings) -> Protocol[Server, Client]:
    """Returns the protocol of a job, with only the messages that it sends."""
    down: tuple[type[Message], ...] = (Globals, GlobalsMoved) if settings.moves else (Globals,)
    if settings.tempering > 1:
        down = (GlobalsTempered,)
    return Protocol("gibbs", down, sent(settings), server_receive, client_receive, finished, save, load)
