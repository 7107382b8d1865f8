"""Runs the same sampler at the server alone, if a job lets every client's sufficient statistics leave (`statistics = "pooled"`).

One message from each client, and no other: the triangular factor of its centred [X y]. Every draw has the random numbers that it
would have had at its client, so the result is that of the federated run, bit for bit. Source: docs/spec/sparse.md, section 6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core import once
from ..core.messages import ClientEffects, Event, RemoteFault, ServerEffects
from ..core.rounds import needed
from . import client, exchange
from . import machine as gibbs
from .messages import AskStatistics, Statistics
from .settings import Settings
from .sites import Factor, MarkovRandomField, Regression, translation

Array = NDArray[np.float64]
SITES: dict[str, Callable[..., Regression | MarkovRandomField]] = {"regression": Regression, "mrf": MarkovRandomField}


@dataclass(frozen=True)
class Server:
    """Waits for all statistics; then `sampled` is the last state of the sampler's server."""

    settings: Settings
    kind: str
    n_clients: int
    judge: gibbs.Judge | None = None
    trace: Any = None
    without: frozenset[int] = frozenset()
    told: NDArray[np.bool_] | None = None
    received: Mapping[int, Statistics] = field(default_factory=dict)
    sampled: gibbs.Server | None = None
    round: int = 0
    stop: str | None = None


@dataclass(frozen=True)
class Client:
    """Holds a client's factor; the client takes no further part."""

    factor: Factor
    rows: int


def start(server: Server) -> tuple[Server, ServerEffects]:
    """Returns the first questions."""
    return server, once.ask(server.n_clients, AskStatistics(0))


def finished(state: Server) -> bool:
    return state.sampled is not None


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    R, q = state.factor.padded()
    return state, [Statistics(0, R, q, state.factor.rss, state.rows, state.factor.n)]


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """Takes one client's statistics; after the last, it runs the whole sampler."""
    needed(event, "its statistics had not come; start the job again")
    if not isinstance(event, Statistics):
        raise RemoteFault(f"{type(event).__name__} was not expected", sender)
    if sender in state.received or event.rows < 1 or not event.rss >= 0:
        raise RemoteFault(f"Statistics come twice, or of no rows, or with rss = {event.rss:g} below 0", sender)
    state = replace(state, received={**state.received, sender: event})
    if len(state.received) < state.n_clients:
        return state, []
    sampled = sample(state)
    return replace(state, sampled=sampled, round=sampled.round, stop=sampled.stop), []


def _site(state: Server, statistics: Statistics) -> Regression | MarkovRandomField:
    r = min(statistics.rows, len(statistics.q))
    R = np.array(statistics.R[:r])
    return SITES[state.kind](
        Factor(R, np.array(statistics.q[:r]), statistics.rss, statistics.n, R.T @ R), n_threads=state.settings.n_threads
    )


def sample(state: Server) -> gibbs.Server:
    """Runs server and clients in one place, without a wire between them."""
    settings = state.settings
    unkept = replace(settings, burn_in=settings.rounds)  # of clients' draws: nobody reads them here, and a graph's fill a memory
    clients = {k: gibbs.client(str(k), k, unkept, _site(state, statistics)) for k, statistics in sorted(state.received.items())}
    server, effects = gibbs.start(settings, state.n_clients, state.judge, state.trace, state.without)
    rows = tuple(statistics.rows for _, statistics in sorted(state.received.items()))
    server = replace(server, rows=rows, told=state.told)
    held = exchange.Held.of([_site(state, state.received[k]).factor for k in server.active], settings.layout)
    pairs = held.pairs(settings.layout) if settings.exchange else []
    while effects:
        server, effects = advanced(server, clients, held, pairs, effects)
    events = sum((clients[k].events for k in server.active), server.events)
    return replace(server, events=events, at_hand=None)


def advanced(
    server: gibbs.Server,
    clients: dict[int, gibbs.Client],
    held: exchange.Held,
    pairs: Sequence[tuple[int, int]],
    asked: ServerEffects,
) -> tuple[gibbs.Server, ServerEffects]:
    """Runs a round: the clients' sweeps (in `clients`), exchanges of `pairs`, the server's draws; returns the next questions."""
    for k, question in asked:
        assert isinstance(question, gibbs.Globals | gibbs.GlobalsMoved)  # sampling charges nothing
        clients[k] = client.updated(clients[k], question)
    if pairs:
        server = _exchange_pairs(server, clients, held, pairs)
    if server.settings.moves:
        here, round = [clients[k] for k in server.active], server.round
        server = replace(server, at_hand=lambda regression: _terms(here, round, regression))
    effects: ServerEffects = []
    for k, _ in asked:
        for answer in client.draws(clients[k], server.round):
            server, more = gibbs.server_receive(server, k, answer)
            effects += more
    return server, effects


def _terms(here: Sequence[gibbs.Client], round: int, regression: int) -> tuple[Array, Array]:
    """Returns the terms of a move in one regression, added over all clients.

    Those of a graph at once would not fit into memory.
    """
    coordinates = here[0].settings.coordinates(round)
    graphs = [one.site for one in here if isinstance(one.site, MarkovRandomField)]
    if graphs and coordinates.max() < here[0].settings.layout.each:  # none of tau's
        each = [client.moving(one, coordinates, regression) for one in here]
        return translation(graphs, each, [one.state for one in here])
    gradient, precision = (np.zeros(()) + own for own in client.move_terms(here[0], round, regression))
    for one in here[1:]:
        own = client.move_terms(one, round, regression)
        gradient += own[0]
        precision += own[1]
    return gradient, precision


def _exchange_pairs(
    server: gibbs.Server, clients: dict[int, gibbs.Client], held: exchange.Held, pairs: Sequence[tuple[int, int]]
) -> gibbs.Server:
    """Returns the server after a round's exchanges, and changes `clients` in place."""
    settings, here = server.settings, server.active
    deviation, lambda_sq, sigma_sq = (
        np.stack([clients[k].state[name] for k in here]) for name in ("deviation", "lambda_sq", "sigma_sq")
    )
    before = exchange.State(server.values, deviation, lambda_sq, sigma_sq)
    after = exchange.exchange_pairs(settings, held, pairs, before, server.round)
    values = after.values
    for k, d, scales in zip(here, after.deviation, after.lambda_sq):
        own = {**clients[k].state, "deviation": d, "lambda_sq": scales}
        clients[k] = replace(clients[k], state=own, theta=values.theta, tau_sq=values.tau_sq)
    return replace(server, values=values)


PROTOCOL = once.protocol("gibbs-pooled", (AskStatistics,), (Statistics,), server_receive, client_receive, finished)
