"""Tells the clients of importance sampling the draws of another sampler at the end, which they take as their own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..core import once
from ..core.messages import Event, Protocol, RemoteFault, ServerEffects
from .client import Client, client_receive
from .settings import Posterior


@dataclass(frozen=True)
class Teller:
    """Is a server that waits for nobody."""

    round: int = 0


def start(n_clients: int, round: int, nodes: int, draws: NDArray[np.float64], *, converged: bool) -> tuple[Teller, ServerEffects]:
    """Tells everybody.

    Parameters
    ----------
    round, nodes : questions that the clients have answered on the way to the mode; their quadrature's
    draws : (t, P)
    converged : whether the server's checks are passed
    """
    return Teller(), once.ask(n_clients, Posterior(round, nodes, int(converged), draws))


def finished(state: Teller) -> bool:
    return True


def server_receive(state: Teller, sender: int, event: Event) -> tuple[Teller, ServerEffects]:
    """Refuses any message, since nothing is asked."""
    raise RemoteFault(f"{type(event).__name__} was not expected", sender)


PROTOCOL: Protocol[Teller, Client] = once.protocol("posterior", (Posterior,), (), server_receive, client_receive, finished)
