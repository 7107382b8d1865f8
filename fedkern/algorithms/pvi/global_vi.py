"""Runs global variational inference with gradients from the clients: the baseline without sites.

Each round the server sends q = N(mu, exp(2 omega)) to every client, adds up their (clipped, noised) likelihood gradients and the
prior's, and takes one step of its optimiser. Source: docs/spec/pvi.md, section 13.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeVar, final

import numpy as np
from numpy.typing import NDArray

from ...errors import NumericalError
from ...models.expfam import Gaussian
from ..core.kept import GIVEN, PersistentMap, PersistentSet, load, save
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
from ..core.windows import Trajectory
from .local import OMEGA_BOUND, Local, gradient_of
from .machine import of_point
from .messages import Gradient, Parameters, Settings

Vector = NDArray[np.float64]


@final
@dataclass(frozen=True)
class Server:
    """Is the server's state.

    `lam` is (mu, omega); `gradients` are this round's answers. The other fields are those of `pvi.Server`.
    """

    settings: Settings = field(metadata=GIVEN)
    prior: Gaussian = field(metadata=GIVEN)
    lam: Vector
    optimiser: Vector
    trajectory: Trajectory
    updates: NDArray[np.int64]
    round: int = 0
    waiting: PersistentSet[int] = field(default_factory=PersistentSet)
    gradients: PersistentMap[int, Vector] = field(default_factory=PersistentMap, metadata=GIVEN)
    refused: PersistentSet[int] = field(default_factory=PersistentSet)
    capped: PersistentSet[int] = field(default_factory=PersistentSet)
    lost: PersistentSet[int] = field(default_factory=PersistentSet)

    @property
    def n_clients(self) -> int:
        return len(self.updates)

    @property
    def q(self) -> Gaussian:
        return of_point(self.lam)

    @property
    def stop(self) -> str | None:
        """The reason why no more is asked; see `Settings.stop`.

        One lost or refusing client ends the job: q would forget its rows.
        """
        return self.settings.stop(self.round, budget=bool(self.refused | self.capped), lost=bool(self.lost))


def start(settings: Settings, prior: Gaussian, n_clients: int) -> tuple[Server, ServerEffects]:
    """Returns the first state, with q at the prior, and the first questions."""
    lam = np.concatenate([prior.mean, -0.5 * np.log(prior.P)])
    optimiser = OPTIMISERS[settings.optimiser](settings.learning_rate)
    state = Server(settings, prior, lam, optimiser.init(len(lam)), Trajectory(np.zeros(len(lam))), np.zeros(n_clients, np.int64))
    return _ask(state)


def finished(state: Server) -> bool:
    return state.stop is not None and not state.waiting


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """Takes one gradient, a refusal or a loss; the step is taken when all have answered."""
    if isinstance(event, ClientLost):
        state = replace(state, lost=state.lost | {event.client}, waiting=state.waiting - {event.client})
        return state, []
    if not isinstance(event, Gradient | Refused) or sender not in state.waiting or event.round != state.round:
        raise RemoteFault(f"{type(event).__name__} is not an answer to round {state.round}", sender)
    state = replace(state, waiting=state.waiting - {sender})
    if isinstance(event, Refused):
        state = replace(state, refused=state.refused | {sender})
    else:
        state = replace(state, gradients=state.gradients.plus(sender, np.concatenate([event.mu, event.omega])))
    if state.waiting or state.stop:
        return state, []
    return _ask(_step(state))


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
    trajectory = state.trajectory.add(lam)
    updates = state.updates + 1
    # All clients take part in each round, and so reach their limit together.
    cap = s.updates_per_client
    capped = PersistentSet(range(state.n_clients)) if cap is not None and updates.max() >= cap else state.capped
    return replace(
        state,
        lam=lam,
        optimiser=optimiser,
        trajectory=trajectory,
        updates=updates,
        round=state.round + 1,
        gradients=PersistentMap(),
        capped=capped,
    )


def _ask(state: Server) -> tuple[Server, ServerEffects]:
    if state.stop:
        return state, []
    d, everyone = state.prior.d, range(state.n_clients)
    question = Parameters(state.round, state.lam[:d], state.lam[d:])
    return replace(state, waiting=PersistentSet(everyone)), to_each(everyone, question)


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
