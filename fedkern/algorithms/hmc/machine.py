"""Federated Hamiltonian Monte Carlo: global unknowns xi at the server, local unknowns u_j at the clients, the exact posterior.

The state is (xi, u_1, .. u_J), with log-density log p(xi) + sum_j F_j, F_j = log p(y_j, u_j | xi). The server holds xi and its
momentum, client j holds u_j and its momentum, and all take the steps of one leapfrog trajectory together. For each step the
server sends the new xi and a client answers with dF_j/dxi at its own new u_j. With the last answer of a trajectory comes one
number: the client's change of F_j less its kinetic energy. The server adds its own, accepts or rejects, and says so with the
first question of the next trajectory. Neither u_j nor its momentum nor F_j has a message.

The number of steps is fixed, one exchange each; one step is MALA. (A trajectory that turns back by itself, as that of NUTS,
would ask all parties for its stopping rule, 2^depth exchanges for a draw.) Several chains share the exchanges. In the warm-up
the server adapts the step of each chain to the acceptance rate, and each party the standard deviations of its own coordinates to
its own draws; then all is fixed. Source: docs/methods/sigma.md, section 7.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from ...errors import NumericalError
from ...models.hierarchical import GlobalPrior, LocalModel
from ..core.messages import SERVER, ClientEffects, ClientLost, Message, Protocol, RemoteFault, Saved, ServerEffects, evolve, lost
from ..core.trace import Trace
from .moves import ACCEPT, DIVERGENT, JITTER, LOST, Settings, Step, Walk, evaluate, finite

__all__ = [
    "Client", "Decided", "Launch", "Move", "Place", "Server", "Settings", "Slope", "SlopeChange", "client", "client_receive",
    "draws", "finished", "load", "local_draws", "protocol", "save", "server_receive", "start",
]  # fmt: skip

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Positions = Annotated[NDArray[np.float64], "s xi"]
Chains = Annotated[NDArray[np.float64], "s"]


@dataclass(frozen=True)
class Place(Message, kind=90):
    """Server to client, once: where xi starts. The answer is `Slope`."""

    xi: Positions


@dataclass(frozen=True)
class Launch(Message, kind=91):
    """Server to client: which chains accept the last trajectory (1 or 0), the steps of a new one, and xi after its first."""

    round: int
    accepted: Chains
    step: Chains
    xi: Positions


@dataclass(frozen=True)
class Move(Message, kind=92):
    """Server to client: xi after the next step of this trajectory."""

    xi: Positions


@dataclass(frozen=True)
class Decided(Message, kind=93):
    """Server to client, at the end: which chains accept the last trajectory."""

    round: int
    accepted: Chains


@dataclass(frozen=True)
class Slope(Message, kind=94):
    """Client to server: dF_j/dxi, and nothing else."""

    gradient: Positions


@dataclass(frozen=True)
class SlopeChange(Message, kind=95):
    """Client to server, at the end of a trajectory: dF_j/dxi, and the change of F_j less that of the kinetic energy."""

    gradient: Positions
    change: Chains


# The server --------------------


@dataclass(frozen=True)
class Server:
    """The server's state.

    Attributes
    ----------
    prior, names : of xi; of the clients
    walk : xi of all chains; its slope is that of all parties, its value log p(xi)
    step, h : what is adapted; the steps of this trajectory
    round, inner : trajectories finished; steps taken of this one (0: nobody has answered `Place` yet)
    rate, divergences, warmup_divergences : (c,) summed acceptance probabilities, divergences after the warm-up and in it
    waiting, answers : clients that have yet to answer; client -> its answer
    trace : draws of xi
    """

    settings: Settings
    prior: GlobalPrior
    names: tuple[str, ...]
    walk: Walk
    step: Step
    h: Vector
    rate: Vector
    divergences: Vector
    warmup_divergences: Vector
    round: int = 0
    inner: int = 0
    waiting: frozenset[int] = frozenset()
    answers: Mapping[int, Any] = field(default_factory=dict)
    trace: Trace = field(default_factory=Trace)

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

    @property
    def acceptance(self) -> Vector:
        """(c,) Mean probability of acceptance after the warm-up; NaN before its end."""
        kept = self.round - self.settings.warmup
        return self.rate / kept if kept > 0 else np.full(len(self.rate), np.nan)

    @property
    def step_size(self) -> Vector:
        """(c,) h before its jitter."""
        return np.exp(self.step.log_step)


def start(
    settings: Settings, prior: GlobalPrior, names: tuple[str, ...], xi: Vector | float = 0.0
) -> tuple[Server, ServerEffects]:
    """The server's first state and its first question.

    Parameters
    ----------
    xi : start values, a number, (P,), or (c, P) with one row for each chain (`Settings.starts` scatters them)
    """
    at = _placed(xi, settings.chains, prior.size, "xi")
    value, slope = _prior(prior, at)
    if not finite(value, slope).all():
        raise NumericalError("hmc: log p(xi) at the start values of xi is not finite: give others")
    none, log_step = np.zeros(settings.chains), np.full(settings.chains, np.log(settings.step))
    walk = Walk.begin(at, value, slope)
    state = Server(settings, prior, names, walk, Step.at(log_step), none, none, none, none)
    if settings.warmup == 0:
        state = evolve(state, step=Step(log_step, log_step, log_step, none))
    return _ask(state, Place(at))


def _placed(values: Vector | float, chains: int, size: int, what: str) -> Matrix:
    values = np.asarray(values, np.float64)
    if values.shape not in ((), (size,), (chains, size)):
        raise ValueError(f"hmc: start values of {what} must have the shape ({size},) or ({chains}, {size}), got {values.shape}")
    return np.broadcast_to(values, (chains, size)).copy()


def _prior(prior: GlobalPrior, xi: Matrix) -> tuple[Vector, Matrix]:
    value, slope = np.empty(len(xi)), np.empty(xi.shape)
    with np.errstate(all="ignore"):
        for c, row in enumerate(xi):
            value[c], slope[c] = prior.log_prior_grad(row)
    return value, slope


def finished(state: Server) -> bool:
    return state.stop is not None and not state.waiting


def _ask(state: Server, question: Message) -> tuple[Server, ServerEffects]:
    everyone = range(state.n_clients)
    waiting = frozenset() if isinstance(question, Decided) else frozenset(everyone)
    return evolve(state, waiting=waiting, answers={}), [(k, question) for k in everyone]


def server_receive(state: Server, sender: int, event: Any) -> tuple[Server, ServerEffects]:
    """One answer; the next step is taken when all have answered. A lost client ends the run: the model needs all its clients."""
    if isinstance(event, ClientLost):
        raise lost(state.names[event.client], state.round)
    expected = SlopeChange if state.inner == state.settings.leapfrog else Slope
    if not isinstance(event, expected) or sender not in state.waiting:
        raise RemoteFault(f"client {sender}: {type(event).__name__} is no answer to round {state.round}")
    state = evolve(state, answers={**state.answers, sender: event}, waiting=state.waiting - {sender})
    if state.waiting:
        return state, []
    answers = [state.answers[k] for k in sorted(state.answers)]
    if state.inner == 0:
        slope = state.walk.slope + _total(answers)
        return _launch(evolve(state, walk=evolve(state.walk, slope=slope)), np.zeros(state.settings.chains))
    value, slope = _prior(state.prior, state.walk.trial)
    with np.errstate(all="ignore"):
        walk = state.walk.visited(value, slope + _total(answers))
    if state.inner < state.settings.leapfrog:
        walk = walk.moved(state.h)
        return _ask(evolve(state, walk=walk, inner=state.inner + 1), Move(walk.trial))
    walk, change = walk.landed(state.h)
    return _decide(evolve(state, walk=walk), [change, *(answer.change for answer in answers)])


def _total(answers: list[Any]) -> Matrix:
    """The sum of the clients' gradients, in their order."""
    total: Matrix = np.zeros(answers[0].gradient.shape)
    for answer in answers:
        total += answer.gradient
    return total


def _launch(state: Server, accepted: Vector) -> tuple[Server, ServerEffects]:
    """The first step of a new trajectory; after the last one the decision alone."""
    s = state.settings
    if state.stop:
        return _ask(state, Decided(state.round, accepted))
    h = state.step_size * (1 + s.jitter * (2 * s.uniforms(state.round, JITTER) - 1))
    walk = state.walk.launched(s.normals(SERVER, state.round, state.prior.size), h)
    return _ask(evolve(state, walk=walk, h=h, inner=1), Launch(state.round, accepted, h, walk.trial))


def _decide(state: Server, changes: list[Vector]) -> tuple[Server, ServerEffects]:
    """Metropolis: each party's change of (log-density - kinetic energy) is added up, in the order of the clients."""
    s, round = state.settings, state.round
    lost = np.any([change <= LOST for change in changes], axis=0)
    total = np.zeros(s.chains)
    with np.errstate(all="ignore"):
        for change in changes:
            total += np.where(lost, 0.0, change)
        total = np.where(lost, LOST, total)
        rate = np.exp(np.minimum(total, 0.0))
        accepted = np.log(s.uniforms(round, ACCEPT)) < total
    walk, step, divergent = state.walk.settled(accepted), state.step, (total < DIVERGENT).astype(float)
    if round < s.warmup:
        walk = walk.learned(s, round)
        step = step.learned(rate, s.wanted)
        if round + 1 == s.warmup:
            step = evolve(step, log_step=step.log_mean)
        elif round in s.windows()[1]:
            step = Step.at(step.log_step)
        state = evolve(state, warmup_divergences=state.warmup_divergences + divergent)
    else:
        state = evolve(state, rate=state.rate + rate, divergences=state.divergences + divergent)
    if s.keeps(round):
        state.trace.add({"xi": walk.at})
    return _launch(evolve(state, walk=walk, step=step, round=round + 1), accepted.astype(float))


# A client --------------------


@dataclass(frozen=True)
class Client:
    """A client's state.

    Attributes
    ----------
    name, index : its name and number
    model : of its own rows
    walk : u of all chains; value and slope are those of F_j
    h : the steps of this trajectory
    round, inner : number of the trajectory (-1 before the first), steps taken of it
    xi, trial : (c, P) xi of this state, and of the trajectory's present end, as they came
    trace : draws of u, and of the xi that belong to them
    """

    name: str
    index: int
    settings: Settings
    model: LocalModel
    walk: Walk
    h: Vector
    xi: Matrix
    trial: Matrix
    round: int = -1
    inner: int = 0
    trace: Trace = field(default_factory=Trace)


def client(name: str, index: int, settings: Settings, model: LocalModel, u: Vector | float = 0.0) -> Client:
    """A client that has seen nothing yet.

    Parameters
    ----------
    u : start values, a number, (d,), or (c, d) with one row for each chain
    """
    at = _placed(u, settings.chains, model.size, f"client {name!r}")
    none = np.zeros(settings.chains)
    xi = np.zeros((settings.chains, model.n_global))
    return Client(name, index, settings, model, Walk.begin(at, none, np.zeros(at.shape)), none, xi, xi)


def client_receive(state: Client, event: Any) -> tuple[Client, ClientEffects]:
    """A question in, one answer out; at the end the last decision."""
    s = state.settings
    if isinstance(event, Place) and state.round == -1:
        value, gradient, slope = evaluate(state.model, event.xi, state.walk.at)
        good = finite(value, gradient, slope)
        if not good.all():
            raise NumericalError(
                f"client {state.name!r}: the log-density at the start of chain {int(np.argmin(good))} is not finite: "
                "give other start values"
            )
        xi = np.array(event.xi)
        return evolve(state, walk=evolve(state.walk, value=value, slope=slope), xi=xi, trial=xi), [Slope(gradient)]
    if isinstance(event, (Launch, Decided)) and event.round == state.round + 1:
        state = _settle(state, event.accepted > 0.5)
        if isinstance(event, Decided):
            return evolve(state, round=event.round), []
        walk = state.walk.launched(s.normals(state.index, event.round, state.model.size), event.step)
        return _visit(evolve(state, walk=walk, h=np.array(event.step), round=event.round, inner=1), event.xi)
    if isinstance(event, Move) and 0 < state.inner < s.leapfrog:
        return _visit(evolve(state, walk=state.walk.moved(state.h), inner=state.inner + 1), event.xi)
    raise RemoteFault(f"server: {type(event).__name__} was not expected")


def _visit(state: Client, xi: Matrix) -> tuple[Client, ClientEffects]:
    """dF_j/dxi at the new place; of a chain that left the finite numbers, zeros, and the change that is never accepted."""
    value, gradient, slope = evaluate(state.model, xi, state.walk.trial)
    good = finite(value, gradient)
    walk = state.walk.visited(np.where(good, value, np.nan), slope)
    gradient = np.where(walk.lost[:, None], 0.0, gradient)
    if state.inner < state.settings.leapfrog:
        return evolve(state, walk=walk), [Slope(gradient)]
    walk, change = walk.landed(state.h)
    return evolve(state, walk=walk, trial=np.array(xi)), [SlopeChange(gradient, change)]


def _settle(state: Client, accepted: NDArray[np.bool_]) -> Client:
    """The decision of the trajectory that has ended."""
    if state.round < 0:
        return state
    walk, xi = state.walk.settled(accepted), np.where(accepted[:, None], state.trial, state.xi)
    if state.round < state.settings.warmup:
        walk = walk.learned(state.settings, state.round)
    if state.settings.keeps(state.round):
        state.trace.add({"u": walk.at, "xi": xi})
    return evolve(state, walk=walk, xi=xi, inner=0)


def draws(state: Server) -> NDArray[np.float64]:
    """(c, t, P) Draws of xi."""
    return state.trace["xi"]


def local_draws(state: Client) -> NDArray[np.float64]:
    """(c, t, d) Draws of u_j, which belong to the same iterations as those of xi."""
    return state.trace["u"]


# Keeping states --------------------


def save(state: Server | Client) -> Saved:
    """The state as named arrays and numbers; rows are never among them."""
    saved: Saved = {"round": state.round, "inner": state.inner, "h": state.h}
    saved |= state.walk.save() | state.trace.save()
    if isinstance(state, Client):
        return saved | {"xi": state.xi, "trial": state.trial}
    saved |= {name: getattr(state, name) for name in ("rate", "divergences", "warmup_divergences")}
    return saved | state.step.save() | {"waiting": np.array(sorted(state.waiting), np.int64)}


def load(state: Server | Client, saved: Mapping[str, Any]) -> Server | Client:
    """A fresh state as it was when it was saved."""
    common = {"walk": Walk.load(saved), "trace": Trace.load(saved)}
    own = {name: value for name, value in saved.items() if "." not in name}
    if isinstance(state, Client):
        return evolve(state, **own, **common)
    own["waiting"] = frozenset(own["waiting"].tolist())
    return evolve(state, **own, **common, step=Step.load(saved), answers={})


def protocol(settings: Settings) -> Protocol:
    """The protocol with only the messages that a job of these settings can send."""
    down: tuple[type[Message], ...] = (Place, Launch, *((Move,) if settings.leapfrog > 1 else ()), Decided)
    return Protocol("hmc", down, (Slope, SlopeChange), server_receive, client_receive, finished, save, load)
