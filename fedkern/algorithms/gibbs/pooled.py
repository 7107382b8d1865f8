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

from ...arrays import Array
from ...kernels import rng
from ..core import once
from ..core.messages import ClientEffects, Event, RemoteFault, ServerEffects
from ..core.rounds import needed
from . import machine as gibbs
from .settings import AskStatistics, Globals, GlobalsMoved, Layout, Settings, Statistics
from .sites import Factor, MarkovRandomField, Regression, translation
from .sweeps import Values

# Exchange --------------------
# Exchanges two collinear covariates in one step, with a refit. Source: docs/spec/sparse.md, section 6.
#
# For a pair s = (j, h) the indicators, tau, the sites' lambda (and eta, if each has its own) are swapped, and (theta_s, all
# theta_ks) are drawn anew from their joint Gaussian given the rest. Its prior is symmetric, so that the swap is accepted by the
# ratio of the likelihoods with these integrated out:
#
#     site k, H and g its curvature and gradient at 0 in theta_ks, D = diag of the prior variances of d_ks, A = I + D H:
#         the integral over theta_ks is, in theta_s, exp(const + lin' theta_s - theta_s' P theta_s / 2) with
#         P = H A^-1,  lin = A^-T g,  const = (g' A^-1 D g - log det A) / 2
#     theta_s, prior variances V:  Q = sum P + V^-1,  L = sum lin,
#         log m = sum const + (L' Q^-1 L - log det Q - log det V) / 2
#
# All 2 x 2 inverses are written out. Pairs are fixed by the data's second moments before the first round.


COLLINEAR = 0.5  # correlation within sites from which a pair is tried
TRIES = 10  # pairs of a round, in turn
DRAWS = 1 << 63  # chain numbers of the streams here, beside those of the other moves


@dataclass(frozen=True)
class Held:
    """Holds second moments of all sites at one place: `gram` (m, p, p), `score` (m, c or 1, g, p), X'y of each regression."""

    gram: Array
    score: Array

    @classmethod
    def of(cls, factors: Sequence[Factor], layout: Layout) -> Held:
        """Returns the moments of these factors. A random field's regressions take their responses from the same columns."""
        gram = np.stack([factor.gram for factor in factors])
        if layout.shape[0] > 1:
            return cls(gram, gram[:, None])
        return cls(gram, np.stack([factor.R.T @ factor.q for factor in factors])[:, None, None])

    def pairs(self, layout: Layout) -> list[tuple[int, int]]:
        """Returns columns whose correlation within sites is above `COLLINEAR`, and which some regression can exchange."""
        total = self.gram.sum(axis=0)
        size = np.sqrt(np.diag(total))
        correlation = total / np.where(size > 0, size, 1.0) / np.where(size > 0, size, 1.0)[:, None]
        able = layout.exchangeable
        first, second = np.nonzero(np.triu(np.abs(correlation) > COLLINEAR, 1))
        return [(j, h) for j, h in zip(first.tolist(), second.tolist()) if (able[:, j] & able[:, h]).any()]


@dataclass(frozen=True)
class State:
    """Holds all that a swap changes, for all chains: the server's values, and of m sites d, lambda^2 (m, c, g, p), sigma^2 (m, c,
    g).
    """

    values: Values
    deviation: Array
    lambda_sq: Array
    sigma_sq: Array


@dataclass(frozen=True)
class Scales:
    """Holds prior variances of a pair: V (c, g, 2) of theta, D (m, c, g, 2) of the sites' deviations."""

    V: Array
    D: Array

    def swapped(self) -> Scales:
        return Scales(self.V[..., ::-1], self.D[..., ::-1])


@dataclass(frozen=True)
class Gaussian:
    """Describes the pair's coefficients given all else: section 6's quantities with 2 x 2 matrices as (11, 12, 22)."""

    log_m: Array  # (c, g)
    Q: tuple[Array, Array, Array]
    L: Array  # (c, g, 2)
    C: tuple[Array, Array, Array]  # (m, c, g): covariance of d_ks given theta_s
    root: Array  # (m, c, g): sqrt(det C / C11)


def integrated(H: tuple[Array, Array, Array], g: Array, scales: Scales) -> Gaussian:
    """Integrates the pair's coefficients out, from the sites' H (m, c, g) each and g (m, c, g, 2) in theta_ks."""
    (h11, h12, h22), (d1, d2), (g1, g2) = H, np.moveaxis(scales.D, -1, 0), np.moveaxis(g, -1, 0)
    det_h = np.maximum(h11 * h22 - h12 * h12, 0.0)
    a1, a2 = 1 + d1 * h11, 1 + d2 * h22
    det = 1 + d1 * h11 + d2 * h22 + d1 * d2 * det_h
    c11, c12, c22 = d1 * a2 / det, -d1 * d2 * h12 / det, d2 * a1 / det
    const = 0.5 * (c11 * g1 * g1 + 2 * c12 * g1 * g2 + c22 * g2 * g2 - np.log(det))
    lin = np.stack([a2 * g1 - d2 * h12 * g2, a1 * g2 - d1 * h12 * g1], axis=-1) / det[..., None]
    q11 = ((h11 + d2 * det_h) / det).sum(axis=0) + 1 / scales.V[..., 0]
    q22 = ((h22 + d1 * det_h) / det).sum(axis=0) + 1 / scales.V[..., 1]
    q12, L = (h12 / det).sum(axis=0), lin.sum(axis=0)
    det_q = q11 * q22 - q12 * q12
    fit = (q22 * L[..., 0] ** 2 - 2 * q12 * L[..., 0] * L[..., 1] + q11 * L[..., 1] ** 2) / det_q
    log_m = const.sum(axis=0) + 0.5 * (fit - np.log(det_q) - np.log(scales.V).sum(axis=-1))
    return Gaussian(log_m, (q11, q12, q22), L, (c11, c12, c22), np.sqrt(d1 * d2 / det / c11))


def drawn(of: Gaussian, H: tuple[Array, Array, Array], g: Array, normal: Array) -> tuple[Array, Array]:
    """Draws theta_s (c, g, 2), then d_ks (m, c, g, 2); `normal` (c, g, 2 + 2 m)."""
    q11, q12, q22 = of.Q
    l11 = np.sqrt(q11)
    l21 = q12 / l11
    l22 = np.sqrt(q22 - l21 * l21)
    y1 = of.L[..., 0] / l11
    y2 = (of.L[..., 1] - l21 * y1) / l22 + normal[..., 1]
    second = y2 / l22
    first = (y1 + normal[..., 0] - l21 * second) / l11
    g1 = g[..., 0] - H[0] * first - H[1] * second
    g2 = g[..., 1] - H[1] * first - H[2] * second
    z = np.moveaxis(normal[..., 2:].reshape(*normal.shape[:-1], -1, 2), -2, 0)
    c11, c12, c22 = of.C
    root = np.sqrt(c11)
    d1 = c11 * g1 + c12 * g2 + root * z[..., 0]
    d2 = c12 * g1 + c22 * g2 + c12 / root * z[..., 0] + of.root * z[..., 1]
    return np.stack([first, second], axis=-1), np.stack([d1, d2], axis=-1)


def exchange_pairs(settings: Settings, held: Held, pairs: Sequence[tuple[int, int]], state: State, round: int) -> State:
    """Tries the pairs of a round, one after the other, in all chains and regressions at once."""
    able, names = settings.layout.exchangeable, ("theta", "tau_sq", "gamma", "eta")
    values = state.values._replace(**{name: getattr(state.values, name).copy() for name in names})
    state = State(values, state.deviation.copy(), state.lambda_sq.copy(), state.sigma_sq)
    local = values.theta + state.deviation
    for turn in range(min(TRIES, len(pairs))):
        pair = pairs[(round * TRIES + turn) % len(pairs)] if len(pairs) > TRIES else pairs[turn]
        _try(settings, held, state, local, np.array(pair), (round, turn), able[:, pair[0]] & able[:, pair[1]])
    return state


def _try(
    settings: Settings,
    held: Held,
    state: State,
    local: Array,
    s: NDArray[np.int64],
    counter: tuple[int, int],
    able: NDArray[np.bool_],
) -> None:
    """Tries one pair, in place; `local` (m, c, g, p): the sites' coefficients; `able` (g,): in which regressions."""
    values, prior = state.values, settings.prior
    c, g, m = *values.theta.shape[:2], len(state.deviation)
    gram = held.gram[:, s]  # (m, 2, p)
    fitted = np.matmul(local.reshape(m, c * g, -1), gram.swapaxes(1, 2)).reshape(m, c, g, 2)
    precision = 1 / state.sigma_sq
    h11, h12, h22 = (gram[:, i, s[j], None, None] * precision for i, j in ((0, 0), (0, 1), (1, 1)))
    score: Array = (held.score[..., s] - fitted) * precision[..., None]
    b1, b2 = np.moveaxis(local[..., s], -1, 0)
    # From the gradient at the present coefficients to that at 0 in theta_ks.
    score = score + np.stack([h11 * b1 + h12 * b2, h12 * b1 + h22 * b2], axis=-1)
    spike = prior.spike_variance or prior.c0 * values.eta[..., s]
    variance = 1 / (1 / (state.lambda_sq[..., s] * values.tau_sq[..., s]) + prior.slab**-2)
    scales = Scales(np.where(values.gamma[..., s] == 1, values.eta[..., s], spike), variance)
    new = integrated((h11, h12, h22), score, scales.swapped())
    # Accepted by the ratio of the integrated likelihoods, with the scales swapped and as they are.
    log_ratio = new.log_m - integrated((h11, h12, h22), score, scales).log_m
    key, coin = (rng.key(settings.seed, "moves", DRAWS + number) for number in (0, 1))
    u = rng.uniform(c * g, key=coin, client=counter[1], step=counter[0]).reshape(c, g)
    normal = rng.normal(c * g * (2 + 2 * m), key=key, client=counter[1], step=counter[0]).reshape(c, g, -1)
    theta_s, d_s = drawn(new, (h11, h12, h22), score, normal)
    taken = (np.log(u) < log_ratio) & able & np.isfinite(theta_s).all(axis=-1) & np.isfinite(d_s).all(axis=(0, -1))

    taken = taken[..., None]
    for a in (values.tau_sq, values.gamma, values.eta, state.lambda_sq):
        a[..., s] = np.where(taken, a[..., s[::-1]], a[..., s])
    values.theta[..., s] = np.where(taken, theta_s, values.theta[..., s])
    state.deviation[..., s] = np.where(taken, d_s, state.deviation[..., s])
    local[..., s] = values.theta[..., s] + state.deviation[..., s]


# Pooled --------------------


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
    held = Held.of([_site(state, state.received[k]).factor for k in server.active], settings.layout)
    pairs = held.pairs(settings.layout) if settings.exchange else []
    while effects:
        server, effects = advanced(server, clients, held, pairs, effects)
    events = sum((clients[k].events for k in server.active), server.events)
    return replace(server, events=events, at_hand=None)


def advanced(
    server: gibbs.Server,
    clients: dict[int, gibbs.Client],
    held: Held,
    pairs: Sequence[tuple[int, int]],
    questions: ServerEffects,
) -> tuple[gibbs.Server, ServerEffects]:
    """Runs a round: the clients' sweeps (in `clients`), exchanges of `pairs`, the server's draws; returns the next questions."""
    for k, question in questions:
        assert isinstance(question, Globals | GlobalsMoved)  # sampling charges nothing
        clients[k] = gibbs.updated(clients[k], question)
    if pairs:
        server = _exchange_pairs(server, clients, held, pairs)
    if server.settings.moves:
        here, round = [clients[k] for k in server.active], server.round
        server = replace(server, at_hand=lambda regression: _terms(here, round, regression))
    effects: ServerEffects = []
    for k, _ in questions:
        for answer in gibbs.draws(clients[k], server.round):
            server, more = gibbs.server_receive(server, k, answer)
            effects += more
    return server, effects


def _terms(here: Sequence[gibbs.Client], round: int, regression: int) -> tuple[Array, Array]:
    """Returns the terms of a move in one regression, added over all clients.

    Those of a graph at once would not fit into memory.
    """
    coordinates = here[0].settings.coordinates(round)
    graphs = [client.site for client in here if isinstance(client.site, MarkovRandomField)]
    if graphs and coordinates.max() < here[0].settings.layout.each:  # none of tau's
        each = [gibbs.moving(client, coordinates, regression) for client in here]
        return translation(graphs, each, [client.state for client in here])
    gradient, precision = (np.zeros(()) + term for term in gibbs.move_terms(here[0], round, regression))
    for client in here[1:]:
        terms = gibbs.move_terms(client, round, regression)
        gradient += terms[0]
        precision += terms[1]
    return gradient, precision


def _exchange_pairs(
    server: gibbs.Server, clients: dict[int, gibbs.Client], held: Held, pairs: Sequence[tuple[int, int]]
) -> gibbs.Server:
    """Returns the server after a round's exchanges, and changes `clients` in place."""
    settings, here = server.settings, server.active
    deviation, lambda_sq, sigma_sq = (
        np.stack([clients[k].state[name] for k in here]) for name in ("deviation", "lambda_sq", "sigma_sq")
    )
    before = State(server.values, deviation, lambda_sq, sigma_sq)
    after = exchange_pairs(settings, held, pairs, before, server.round)
    values = after.values
    for k, d, scales in zip(here, after.deviation, after.lambda_sq):
        changed = {**clients[k].state, "deviation": d, "lambda_sq": scales}
        clients[k] = replace(clients[k], state=changed, theta=values.theta, tau_sq=values.tau_sq)
    return replace(server, values=values)


PROTOCOL = once.protocol("gibbs-pooled", (AskStatistics,), (Statistics,), server_receive, client_receive, finished)
