"""Structured federated variational inference: global unknowns xi at the server, local unknowns u_j at the clients.

q(xi) = N(mu, L L') at the server; q(u_j | xi) = N(a_j + B_j (xi - c_j), L_j L_j') at client j, of which nothing is ever sent. In
each round the server draws xi and sends it; a client draws u_j, steps a_j, B_j and L_j, and answers with the gradient of its term
of the bound in xi,

    G_j = dF_j/dxi + B_j' dF_j/du_j = h_xi + B_j' h_u,     h: gradients of log p(y_j, u_j | xi).

(F_j has also -log q(u_j | xi) with frozen parameters, whose derivatives -B_j' L_j^-T e and B_j' L_j^-T e cancel here.) The sum of
the G_j and the prior's gradient is all that the server needs: the gradient equals that of all data in one place.

c_j is a constant. It is moved every `centre_every` steps to the mean of the xi that came since, with a_j shifted by B_j times the
move, so that a_j and B_j stay nearly uncorrelated, mu never has to travel, and dF/dmu is the sum of the G_j exactly.

SFVI-Avg (`local_steps` > 0) sends q(xi) itself; each client takes that many steps of its own, with log p(xi) - log q(xi) +
F_j / w_j, w_j its public weight, and the server takes the Wasserstein barycentre of what comes back. It is not exact.
Source: docs/methods/sigma.md, section 6; Hassan, Salomone and Mengersen (2023).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from ...errors import NumericalError
from ...kernels import rng
from ...models.hierarchical import GlobalPrior, LocalModel
from ...models.variational import Block
from ..core.messages import ClientEffects, ClientLost, Message, Protocol, RemoteFault, Saved, ServerEffects, evolve, lost
from ..core.optim import OPTIMISERS
from .families import Family, Settings, barycentre
from .nested import NestedFamily

__all__ = [
    "Client", "Family", "Fitted", "Global", "GlobalGradient", "GlobalGradientBound", "Reached", "Server", "Settings", "Start",
    "barycentre", "client", "client_receive", "finished", "load", "local_posterior", "posterior", "protocol", "save",
    "server_receive", "start",
]  # fmt: skip

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Draws = Annotated[NDArray[np.float64], "s xi"]
Parameters = Annotated[NDArray[np.float64], "k"]

TRACED = 100  # rounds whose bounds are averaged into one number of the trace


@dataclass(frozen=True)
class Global(Message, kind=70):
    """Server to client: draws of xi."""

    round: int
    xi: Draws


@dataclass(frozen=True)
class GlobalGradient(Message, kind=71):
    """Client to server: G_j of each draw, and nothing else. (A client has one open question, so no round is needed.)"""

    gradient: Draws


@dataclass(frozen=True)
class GlobalGradientBound(Message, kind=72):
    """Client to server, instead, in a job with a trace: also F_j, its term of the bound at these draws, on average."""

    gradient: Draws
    bound: float


@dataclass(frozen=True)
class Fitted(Message, kind=73):
    """Server to client, at the end: the flat parameters of q(xi), with which the client knows q(u_j)."""

    round: int
    parameters: Parameters


@dataclass(frozen=True)
class Start(Message, kind=74):
    """Server to client, SFVI-Avg: q(xi), from which the client takes its own steps."""

    round: int
    parameters: Parameters


@dataclass(frozen=True)
class Reached(Message, kind=75):
    """Client to server, SFVI-Avg: where its steps have led q(xi)."""

    round: int
    parameters: Parameters


# The server --------------------


@dataclass(frozen=True)
class Server:
    """The server's state.

    Attributes
    ----------
    prior : of xi
    block, parameters, optimiser : q(xi), its flat parameters, and the state of its optimiser
    names, round : of the clients; rounds finished
    waiting, answers : clients that have yet to answer; client -> its answer
    trace, recent : bounds, each the mean of 100 rounds; the sum of the bounds since
    """

    settings: Settings
    prior: GlobalPrior
    block: Block
    parameters: Vector
    optimiser: Matrix
    names: tuple[str, ...]
    round: int = 0
    waiting: frozenset[int] = frozenset()
    answers: Mapping[int, Any] = field(default_factory=dict)
    trace: tuple[float, ...] = ()
    recent: float = 0.0

    @property
    def n_clients(self) -> int:
        return len(self.names)

    @property
    def stop(self) -> str | None:
        """Why no more is asked: "rounds"; None while the job runs."""
        return "rounds" if self.round >= self.settings.rounds else None

    @property
    def updates(self) -> NDArray[np.int64]:
        """(J,) rounds in which each client took part: all of them."""
        return np.full(self.n_clients, self.round)


def start(
    settings: Settings, prior: GlobalPrior, names: tuple[str, ...], mean: Vector | float = 0.0
) -> tuple[Server, ServerEffects]:
    """The server's first state, q(xi) narrow about `mean`, and its first questions."""
    if settings.weights and len(settings.weights) != len(names):
        raise ValueError(f"sfvi: weights must have one number for each of {len(names)} clients, got {len(settings.weights)}")
    block = settings.block(prior.size)
    optimiser = OPTIMISERS[settings.optimiser](1.0).init(block.n_parameters)
    return _ask(Server(settings, prior, block, block.initial(mean, settings.initial_sd), optimiser, names))


def finished(state: Server) -> bool:
    return state.stop is not None and not state.waiting


def _ask(state: Server) -> tuple[Server, ServerEffects]:
    everyone = range(state.n_clients)
    if state.stop:
        fitted = Fitted(state.round, state.parameters)
        return evolve(state, waiting=frozenset(), answers={}), [(k, fitted) for k in everyone]
    question: Message
    if state.settings.local_steps:
        question = Start(state.round, state.parameters)
    else:
        xi = np.array([state.block.sample(state.parameters, e) for e in _normals(state)])
        if not np.isfinite(xi).all():
            raise NumericalError(f"server: round {state.round}: draws of xi left the finite numbers: lower learning_rate")
        question = Global(state.round, xi)
    return evolve(state, waiting=frozenset(everyone), answers={}), [(k, question) for k in everyone]


def _normals(state: Server) -> Matrix:
    return state.settings.normals(state.round, 0, state.block.size)


def server_receive(state: Server, sender: int, event: Any) -> tuple[Server, ServerEffects]:
    """One answer; the step is taken when all have answered. A lost client ends the run: the model needs all its clients."""
    if isinstance(event, ClientLost):
        raise lost(state.names[event.client], state.round)
    expected = Reached if state.settings.local_steps else GlobalGradientBound if state.settings.bound else GlobalGradient
    late = isinstance(event, Reached) and event.round != state.round
    if not isinstance(event, expected) or late or sender not in state.waiting:
        raise RemoteFault(f"client {sender}: {type(event).__name__} is no answer to round {state.round}")
    state = evolve(state, answers={**state.answers, sender: event}, waiting=state.waiting - {sender})
    if state.waiting:
        return state, []
    with np.errstate(all="ignore"):  # what leaves the finite numbers is found in both
        return _ask(_averaged(state) if state.settings.local_steps else _step(state))


def _step(state: Server) -> Server:
    """One step of q(xi), with the answers in client order."""
    s, answers = state.settings, [state.answers[k] for k in sorted(state.answers)]
    total = np.zeros((s.draws, state.block.size))
    for answer in answers:
        total += answer.gradient
    g, bound = np.zeros(state.block.n_parameters), 0.0
    for e, share in zip(_normals(state), total):
        value, slope = state.prior.log_prior_grad(state.block.sample(state.parameters, e))
        g += state.block.gradient(state.parameters, e, share + slope, path=s.path)
        if s.bound:
            bound += (value - state.block.log_density(state.parameters, e)) / s.draws
    optimiser, move = OPTIMISERS[s.optimiser](1.0).update(state.optimiser, g / s.draws)
    parameters = state.parameters + s.rate(state.round) * move
    if not np.isfinite(parameters).all():
        raise NumericalError(f"server: round {state.round} left the finite numbers: lower learning_rate")
    state = evolve(state, parameters=parameters, optimiser=optimiser, round=state.round + 1)
    if not s.bound:
        return state
    recent = state.recent + bound + sum(answer.bound for answer in answers)
    if state.round % TRACED:
        return evolve(state, recent=recent)
    return evolve(state, recent=0.0, trace=(*state.trace, recent / TRACED))


def _averaged(state: Server) -> Server:
    weights = np.array([state.settings.weight(k, state.n_clients) for k in range(state.n_clients)])
    reached = np.array([state.answers[k].parameters for k in range(state.n_clients)])
    with np.errstate(over="ignore", invalid="ignore"):
        wide = [k for k, row in enumerate(reached) if not np.isfinite(state.block.moments(row)[1]).all()]
    if wide:
        raise NumericalError(
            f"server: round {state.round}: q(xi) of client {state.names[wide[0]]!r} is not finite: lower learning_rate"
        )
    return evolve(state, parameters=barycentre(state.block, reached, weights), round=state.round + 1)


# A client --------------------


@dataclass(frozen=True)
class Client:
    """A client's state.

    Attributes
    ----------
    name, index, n_clients : its name and number, and J
    model : of its own rows
    family, parameters, optimiser : q(u | xi), its flat parameters, and the state of its optimiser
    prior, block, global_optimiser : of xi, for the steps of SFVI-Avg; None in SFVI
    centre, recent, count : c; sum and number of the xi that came since it was moved; None before the first
    step : its own count of steps
    fitted : the flat parameters of q(xi), at the end
    """

    name: str
    index: int
    n_clients: int
    settings: Settings
    model: LocalModel
    family: Family | NestedFamily
    parameters: Vector
    optimiser: Matrix
    prior: GlobalPrior | None = None
    block: Block | None = None
    global_optimiser: Matrix | None = None
    centre: Vector | None = None
    recent: Vector | None = None
    count: int = 0
    step: int = 0
    fitted: Vector | None = None


def client(
    name: str,
    index: int,
    settings: Settings,
    model: LocalModel,
    n_clients: int,
    prior: GlobalPrior | None = None,
    family: Family | NestedFamily | None = None,
) -> Client:
    """A client that has seen nothing yet.

    Parameters
    ----------
    name, index, settings, model, n_clients : see `Client`
    prior : of xi: SFVI-Avg takes its steps with it
    family : of q(u | xi), instead of the one that the settings give
    """
    family = family or settings.family(model)
    parameters = family.initial(settings.local_sd)
    optimiser = OPTIMISERS[settings.optimiser](1.0)
    state = Client(name, index, n_clients, settings, model, family, parameters, optimiser.init(family.n_parameters))
    if not settings.local_steps:
        return state
    if prior is None:
        raise ValueError(f"sfvi: client {name!r} needs the prior of xi: with local_steps > 0 it takes steps of q(xi) itself")
    block = settings.block(model.n_global)
    return evolve(state, prior=prior, block=block, global_optimiser=optimiser.init(block.n_parameters))


def client_receive(state: Client, event: Any) -> tuple[Client, ClientEffects]:
    """A question in, one answer out; at the end the fitted q(xi)."""
    if isinstance(event, Global) and not state.settings.local_steps:
        state, G, bound = _local_step(state, event.xi, event.round)
        answer: Message = GlobalGradientBound(G, bound) if state.settings.bound else GlobalGradient(G)
        return state, [answer]
    if isinstance(event, Start) and state.settings.local_steps:
        return _local_steps(state, event)
    if isinstance(event, Fitted):
        return evolve(state, fitted=np.array(event.parameters)), []
    raise RemoteFault(f"server: {type(event).__name__} was not expected")


def _local_step(state: Client, xi: Matrix, round: int) -> tuple[Client, Matrix, float]:
    """One step of q(u | xi) with the given draws of xi: G_j of each, and F_j on average."""
    s, family = state.settings, state.family
    state = _centred(state, xi)
    assert state.centre is not None
    d = family.n_normals
    eps = rng.normal(s.draws * d, key=rng.key(s.seed, "draws"), client=state.index, step=state.step).reshape(s.draws, d)
    G, g, bound = np.empty(xi.shape), np.zeros(family.n_parameters), 0.0
    for i in range(s.draws):
        with np.errstate(all="ignore"):  # what leaves the finite numbers is found below
            value, G[i], flat = family.gradient(
                state.model, state.parameters, xi[i], state.centre, eps[i], path=s.path, bound=s.bound
            )
        g += flat
        bound += value / s.draws
    for what, array in (("G", G), ("q(u)", g)):
        if not np.isfinite(array).all():
            raise NumericalError(
                f"client {state.name!r}: round {round}: the gradient of {what} is not finite: lower learning_rate"
            )
    optimiser, move = OPTIMISERS[s.optimiser](1.0).update(state.optimiser, g / s.draws)
    parameters = state.parameters + s.rate(round) * move
    return evolve(state, parameters=parameters, optimiser=optimiser, step=state.step + 1), G, bound


def _centred(state: Client, xi: Matrix) -> Client:
    """The state after these draws of xi have been counted, and c perhaps moved to the mean of those since the last move."""
    if state.centre is None or state.recent is None:
        return evolve(state, centre=xi[0].copy(), recent=xi.sum(axis=0), count=1)
    if state.count < state.settings.centre_every:
        return evolve(state, recent=state.recent + xi.sum(axis=0), count=state.count + 1)
    centre = state.recent / (state.count * state.settings.draws)
    parameters = state.family.moved(state.parameters, centre - state.centre)
    return evolve(state, centre=centre, parameters=parameters, recent=xi.sum(axis=0), count=1)


def _local_steps(state: Client, event: Start) -> tuple[Client, ClientEffects]:
    """The steps of SFVI-Avg on log p(xi) - log q(xi) + F_j / w_j."""
    s, block, prior, optimiser = state.settings, state.block, state.prior, state.global_optimiser
    assert block is not None
    assert prior is not None
    assert optimiser is not None
    lam, weight = np.array(event.parameters), s.weight(state.index, state.n_clients)
    for step in range(s.local_steps):
        e = s.normals(event.round, step, block.size)
        xi = np.array([block.sample(lam, row) for row in e])
        state, G, _ = _local_step(state, xi, event.round)
        slopes = [prior.log_prior_grad(x)[1] for x in xi]
        g = np.mean([block.gradient(lam, e[i], G[i] / weight + slopes[i], path=s.path) for i in range(s.draws)], axis=0)
        optimiser, move = OPTIMISERS[s.optimiser](1.0).update(optimiser, g)
        lam = lam + s.rate(event.round) * move
    if not np.isfinite(lam).all():
        raise NumericalError(f"client {state.name!r}: q(xi) left the finite numbers in round {event.round}: lower learning_rate")
    return evolve(state, global_optimiser=optimiser), [Reached(event.round, lam)]


def posterior(state: Server) -> tuple[Vector, Vector]:
    """Mean of q(xi), and its standard deviations (P,) or covariance (P, P)."""
    return state.block.moments(state.parameters)


def local_posterior(state: Client) -> tuple[Vector, Matrix]:
    """Mean (d,) and covariance (d, d) of q(u_j), xi integrated out (of a nested family: of its outer part). ValueError before the
    fitted q(xi) has come."""
    if state.fitted is None or state.centre is None:
        raise ValueError(f"sfvi: client {state.name!r} has not been told the fitted q(xi)")
    mu, spread = state.settings.block(state.model.n_global).moments(state.fitted)
    cov = spread if spread.ndim == 2 else np.diag(spread**2)
    family = state.family.outer if isinstance(state.family, NestedFamily) else state.family
    parameters = state.parameters[: family.n_parameters]
    B = family.coupling(parameters)
    mean, own = family.block.moments(family.given(parameters, mu - state.centre))
    return mean, (own if own.ndim == 2 else np.diag(own**2)) + B @ cov @ B.T


# Keeping states --------------------


def save(state: Server | Client) -> Saved:
    """The state as named arrays and numbers; rows are never among them."""
    saved: Saved = {"parameters": state.parameters, "optimiser": state.optimiser}
    if isinstance(state, Server):
        saved |= {"round": state.round, "trace": np.array(state.trace, float), "recent": state.recent}
        return saved | {"waiting": np.array(sorted(state.waiting), np.int64)}
    saved |= {"count": state.count, "step": state.step}
    optional = {"centre": state.centre, "recent": state.recent, "fitted": state.fitted, "global": state.global_optimiser}
    return saved | {name: array for name, array in optional.items() if array is not None}


def load(state: Server | Client, saved: Mapping[str, Any]) -> Server | Client:
    """A fresh state as it was when it was saved."""
    common: dict[str, Any] = {"parameters": saved["parameters"], "optimiser": saved["optimiser"], "recent": saved.get("recent")}
    if isinstance(state, Server):
        waiting, trace = frozenset(saved["waiting"].tolist()), tuple(saved["trace"].tolist())
        return evolve(state, **common, round=saved["round"], trace=trace, waiting=waiting, answers={})
    return evolve(
        state,
        **common,
        centre=saved.get("centre"),
        count=saved["count"],
        step=saved["step"],
        fitted=saved.get("fitted"),
        global_optimiser=saved.get("global", state.global_optimiser),
    )


def protocol(settings: Settings) -> Protocol:
    """The protocol with only the messages that a job of these settings can send."""
    down: tuple[type[Message], ...] = (Start, Fitted)
    up: tuple[type[Message], ...] = (Reached,)
    if not settings.local_steps:
        down, up = (Global, Fitted), (GlobalGradientBound if settings.bound else GlobalGradient,)
    return Protocol("sfvi", down, up, server_receive, client_receive, finished, save, load)
