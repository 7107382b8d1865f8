"""Runs global variational inference with gradients from the clients: the baseline without sites.

Each round the server sends q = N(mu, exp(2 omega)) to every client, adds up their (clipped, noised) likelihood gradients and the
prior's, and takes one step of its optimiser. Source: docs/spec/pvi.md, section 13.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeVar, final

import numpy as np

from ...arrays import Vector
from ...errors import NumericalError
from ...models.expfam import Gaussian
from ..core.kept import GIVEN, PersistentMap, load, save
from ..core.messages import (
    Charge,
    Charged,
    ChargeFailed,
    ClientEffects,
    ClientLost,
    Event,
    Protocol,
    Refused,
    RemoteFault,
    ServerEffects,
)
from ..core.optim import OPTIMISERS
from ..core.rounds import in_order, to_each
from ..core.schedule import Rules, Schedule, Scheduled, Synchronous
from ..core.windows import Trajectory
from .local import OMEGA_BOUND, Local, gradient_of
from .machine import of_point
from .messages import Gradient, Parameters, Settings


@final
@dataclass(frozen=True)
class Server(Scheduled):
    """Is the server's state.

    `lam` is (mu, omega); `gradients` are this round's answers. The other fields are those of `pvi.Server`. One lost or refusing
    client ends the job: q would forget its rows.
    """

    settings: Settings = field(metadata=GIVEN)
    prior: Gaussian = field(metadata=GIVEN)
    lam: Vector
    optimiser: Vector
    trajectory: Trajectory
    schedule: Schedule
    gradients: PersistentMap[int, Vector] = field(default_factory=PersistentMap, metadata=GIVEN)

    @property
    def q(self) -> Gaussian:
        return of_point(self.lam)


def start(settings: Settings, prior: Gaussian, n_clients: int) -> tuple[Server, ServerEffects]:
    """Returns the first state, with q at the prior, and the first questions."""
    lam = np.concatenate([prior.mean, -0.5 * np.log(prior.P)])
    optimiser = OPTIMISERS[settings.optimiser](settings.learning_rate)
    schedule = Synchronous.of(Rules(n_clients, settings.rounds, cap=settings.updates_per_client, needs_all=True))
    return _ask(Server(settings, prior, lam, optimiser.init(len(lam)), Trajectory(np.zeros(len(lam))), schedule))


def finished(state: Server) -> bool:
    return state.schedule.finished


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """Takes one gradient, a refusal or a loss; the step is taken when all have answered."""
    schedule, gradients = state.schedule, state.gradients
    if isinstance(event, ClientLost):
        return replace(state, schedule=schedule.without(event.client, "lost").heard(event.client)), []
    if not isinstance(event, Gradient | Refused) or sender not in schedule.waiting or event.round != state.round:
        raise RemoteFault(f"{type(event).__name__} is not an answer to round {state.round}", sender)
    if isinstance(event, Refused):
        schedule = schedule.without(sender, "refused")
    else:
        gradients = gradients.plus(sender, np.concatenate([event.mu, event.omega]))
    state = replace(state, schedule=schedule.heard(sender), gradients=gradients)
    return (state, []) if state.schedule.waiting or state.stop else _ask(_step(state))


def _step(state: Server) -> Server:
    s, d = state.settings, state.prior.d
    g = np.zeros(2 * d)
    for gradient in in_order(state.gradients):
        g += gradient
    mu, omega = state.lam[:d], state.lam[d:]
    # The prior's and the entropy's gradients are the server's; clients send the likelihood's alone.
    g[:d] += state.prior.h - state.prior.P * mu
    g[d:] += 1 - state.prior.P * np.exp(2 * omega)
    optimiser, change = OPTIMISERS[s.optimiser](s.learning_rate).update(state.optimiser, g)
    lam = state.lam + change
    # A noisy step must not take exp(2 omega) out of the finite numbers.
    lam[d:] = np.clip(lam[d:], -OMEGA_BOUND, OMEGA_BOUND)
    if not np.isfinite(lam).all():
        raise NumericalError(f"server: round {state.round} left the finite numbers: lower learning_rate")
    trajectory, schedule = state.trajectory.add(lam), state.schedule.counted(range(state.n_clients), applied=True)
    return replace(state, lam=lam, optimiser=optimiser, trajectory=trajectory, schedule=schedule, gradients=PersistentMap())


def _ask(state: Server) -> tuple[Server, ServerEffects]:
    d, (schedule, clients) = state.prior.d, state.schedule.next()
    return replace(state, schedule=schedule), to_each(clients, Parameters(schedule.round, state.lam[:d], state.lam[d:]))


@final
@dataclass(frozen=True)
class Client:
    """Is a client's state: it keeps its count of steps; `question` is the one whose charge is being made."""

    name: str = field(metadata=GIVEN)
    local: Local = field(metadata=GIVEN)
    step: int = 0
    question: Parameters | None = field(default=None, metadata=GIVEN)
    refused: bool = False


def client(name: str, context: Local) -> Client:
    return Client(name, context)


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Takes parameters (and, in a private job, the answer to its charge), and sends one gradient."""
    if isinstance(event, Parameters) and not (state.question or state.refused):
        if state.local.mechanism is None:
            return _gradient(state, event)
        return replace(state, question=event), [Charge(1, event.round)]
    if isinstance(event, Charged) and state.question:
        return _gradient(replace(state, question=None), state.question)
    if isinstance(event, ChargeFailed) and state.question:
        return replace(state, question=None, refused=True), [Refused(state.question.round, event.spent)]
    raise RemoteFault(f"server: {type(event).__name__} was not expected")


def _gradient(state: Client, event: Parameters) -> tuple[Client, ClientEffects]:
    d = len(event.mu)
    if state.local.box is not None:
        state.local.box.check_moments(event.mu, np.exp(event.omega), type(event).__name__)
    if state.local.source is not None:
        state.local.source.rekey()
    try:
        g = gradient_of(state.local, None)(event.mu, event.omega, state.step)
    except NumericalError as error:
        raise NumericalError(f"client {state.name!r}: round {event.round}: {error}") from None
    return replace(state, step=state.step + 1), [Gradient(event.round, g[:d], g[d:])]


Party = TypeVar("Party", Server, Client)


PROTOCOL: Protocol[Server, Client] = Protocol(
    "global-vi", (Parameters,), (Gradient, Refused), server_receive, client_receive, finished, save, load
)


def protocol(*, private: bool) -> Protocol[Server, Client]:
    """Returns the protocol with only the messages that a job can send, as `pvi.protocol`."""
    return PROTOCOL if private else replace(PROTOCOL, to_server=(Gradient,))
