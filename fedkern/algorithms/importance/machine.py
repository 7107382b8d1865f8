"""Defines importance sampling of the exact posterior of xi, which all clients share; each client is a log-likelihood L_j(xi).

log p(xi | y) = log p(xi) + sum_j L_j(xi) + a constant; a client's own unknowns (effects of its groups) are integrated out at
home. The server first looks for the mode, with Newton steps in a trust region (`newton`): a round asks each client for L_j, its
gradient and its Hessian at one point. Then it draws thousands of points from a t distribution around the mode (`proposals`) and
asks for L_j there; a draw's weight is the posterior's density over the draws'. Weights say themselves whether they can be trusted
(k-hat, and how many draws of equal weights they are worth). If they can't, a second round draws around the weighted draws of the
first, and all draws together are weighted against the mixture that they come from. Few rounds do, for no step waits for a random
walk.

Each client compares its quadrature with one of more nodes, at the mode and at draws; while the sum of the differences is too
large, the number of nodes is doubled for all. A value that is no number has weight 0.

Where the job gives no prior, the one that is taken decides nothing that rows decide (`widening`).

Clients of `Settings.summaries` are asked two questions and none about draws: quadratics stand in their place (`summaries`).

Another sampler may go on from the mode: with `Settings.rounds` = 0 and `Coordinates` without scales the job ends there (with one
round the quadrature is also looked at away from the mode), and `read_result(state)` has the mode and the precision of xi.
Hamiltonian Monte Carlo (`algorithms.hmc`) then takes `hmc.Metric.of(mode, precision)`, coordinates in which the posterior is
nearly standard normal; a client's model there is `WithoutLocal(model, nodes)`, which has no local unknowns, and the prior
`GradientOf(prior)`; `telling` tells the clients its draws. Source: docs/spec/likelihood.md.
"""

from __future__ import annotations

from typing import Any

from ..core.kept import load, save
from ..core.messages import Message, Protocol
from .client import Client, GradientOf, Model, WithoutLocal, client, client_receive
from .newton import Prior, Priors
from .proposals import Coordinates
from .server import Found, Server, finished, go_on, offset, read_result, server_receive, start, unresolved
from .settings import (
    SUMS,
    WIDTH,
    AskCurvature,
    AskNormal,
    AskValues,
    Curvature,
    MaskedCurvature,
    MaskedValues,
    Posterior,
    Settings,
    SummedCurvature,
    SummedValues,
    Values,
)

__all__ = [
    "SUMS", "WIDTH", "AskCurvature", "AskNormal", "AskValues", "Client", "Coordinates", "Curvature", "Found", "GradientOf",
    "MaskedCurvature", "MaskedValues", "Model", "Posterior", "Prior", "Priors", "Server", "Settings", "Values", "WithoutLocal",
    "client", "client_receive", "finished", "go_on", "load", "offset", "protocol", "read_result", "save", "server_receive",
    "start", "unresolved",
]  # fmt: skip


def protocol(settings: Settings) -> Protocol[Server, Client]:
    """Returns the protocol with only the messages that a job of these settings can send."""
    of_curvature, of_values = (Curvature, Values) if settings.box is None else (SummedCurvature, SummedValues)
    down: tuple[type[Message], ...] = (AskCurvature,)
    up: tuple[type[Any], ...] = (of_curvature,)
    if settings.summaries:
        down = (*down, AskNormal)
    if settings.rounds:
        down, up = (*down, AskValues, *((Posterior,) if settings.told else ())), (*up, of_values)
    return Protocol("importance", down, up, server_receive, client_receive, finished, save, load)
