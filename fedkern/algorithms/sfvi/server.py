"""Runs the server of structured federated variational inference: q(xi) (see `machine`). Source: docs/spec/sigma.md, section 6.

Its steps are of q(xi'), from which a known shear leads to xi (see `shear`). Messages of rounds and verdicts are about xi; at the
end clients get q(xi') and the shear.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import NDArray

from ...errors import NumericalError
from ...models.hierarchical import GlobalPrior
from ...models.variational import Block
from ..core import until
from ..core.kept import GIVEN, only
from ..core.messages import Event, Message, ServerEffects, evolve
from ..core.optim import OPTIMISERS
from ..core.persistent import PersistentMap, PersistentSet
from ..core.rounds import AllRounds, all_of, ask_all, in_order, tell_all, to_each, with_answer
from ..core.windows import LastFifth, Windows
from .families import barycentre
from .messages import Fitted, Global, GlobalGradient, GlobalGradientBound, Reached, Start
from .settings import Settings
from .shear import Ridge, Shear

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

TRACED = 100  # rounds whose bounds are averaged into one number of the trace


@final
@dataclass(frozen=True)
class Server(AllRounds):
    """Is the server's state.

    Attributes
    ----------
    prior : of xi
    block, parameters, optimiser : q(xi'), its flat parameters, and the state of its optimiser
    ridge : along which xi is sheared; None if it is not
    names, round : of the clients; rounds finished
    waiting, answers : clients that have yet to answer; client -> its answer
    windows : mean and sd of q(xi) over two stretches of the rounds
    last_fifth : the bound over the last fifth of them
    trace, recent : bounds, each the mean of 100 rounds; the sum of the bounds since
    """

    settings: Settings = field(metadata=only("rounds", "most"))
    prior: GlobalPrior = field(metadata=GIVEN)
    block: Block = field(metadata=GIVEN)
    parameters: Vector
    optimiser: Matrix
    names: tuple[str, ...] = field(metadata=GIVEN)
    windows: Windows
    last_fifth: LastFifth
    ridge: Ridge | None = field(default=None, metadata=GIVEN)
    round: int = 0
    waiting: PersistentSet[int] = field(default_factory=PersistentSet)
    answers: PersistentMap[int, GlobalGradient | GlobalGradientBound | Reached | until.Moving] = field(
        default_factory=PersistentMap, metadata=GIVEN
    )
    trace: tuple[float, ...] = ()
    recent: float = 0.0

    @property
    def shear(self) -> Shear:
        """The shear from xi' to xi."""
        return Shear(self.ridge)

    @property
    def ridge_numbers(self) -> Vector:
        """The numbers of the shear that clients are sent."""
        return np.zeros(0) if self.ridge is None else self.ridge.numbers

    @property
    def q(self) -> tuple[Block, Vector]:
        """q(xi') and its flat parameters."""
        return self.block, self.parameters


def start(
    settings: Settings, prior: GlobalPrior, names: tuple[str, ...], mean: Vector | float = 0.0, ridge: Ridge | None = None
) -> tuple[Server, ServerEffects]:
    """Returns the server's first state, q(xi) narrow about `mean`, and its first questions.

    `ridge`: if the settings shear xi and the model has one.
    """
    if settings.weights and len(settings.weights) != len(names):
        raise ValueError(f"sfvi: weights must have one number for each of {len(names)} clients, got {len(settings.weights)}")
    if ridge is not None and not settings.sheared:
        raise ValueError("sfvi: a ridge is for settings with sheared = True")
    block = settings.block(prior.size)
    optimiser = OPTIMISERS[settings.optimiser](1.0).init(block.n_parameters)
    windows, last_fifth = settings.windows(block.size), LastFifth.of(settings.rounds)
    parameters = block.initial(mean, settings.initial_sd)
    return _ask(Server(settings, prior, block, parameters, optimiser, names, windows, last_fifth, ridge))


def finished(state: Server) -> bool:
    return state.stop is not None and not state.waiting


def _ask(state: Server) -> tuple[Server, ServerEffects]:
    if state.stop:
        return tell_all(state, Fitted(state.round, state.parameters, state.ridge_numbers))
    if until.judged(state.settings, state.round):
        movement = state.windows.movement
        if movement is not None and movement.settled:
            return ask_all(state, until.AskMoving(state.round))
        return _lengthened(state, settled=False)
    return _asked(state)


def _lengthened(state: Server, *, settled: bool) -> tuple[Server, ServerEffects]:
    """Sends the length of the job, now that the server knows whether all has settled, and goes on."""
    settings = until.following(state.settings, settled=settled)
    if not settled:
        state = evolve(state, windows=settings.windows(state.block.size), last_fifth=LastFifth.of(settings.rounds))
    length = to_each(range(state.n_clients), until.Length(state.round, settings.rounds))
    state, questions = _asked(evolve(state, settings=settings))
    return state, [*length, *questions]


def _asked(state: Server) -> tuple[Server, ServerEffects]:
    """Asks the question of a round."""
    question: Message
    if state.settings.local_steps:
        question = Start(state.round, state.parameters)
    else:
        xi = _asked_about(state, _inner(state))
        if not np.isfinite(xi).all():
            raise NumericalError(f"server: round {state.round}: draws of xi left the finite numbers: lower learning_rate")
        question = Global(state.round, xi)
    return ask_all(state, question)


def _asked_about(state: Server, inner: Matrix) -> Matrix:
    """Returns xi (draws, P) of these xi'; with a box the nearest in it, whose sides no posterior comes near."""
    xi = state.shear.out(inner)
    return xi if state.settings.box is None else state.settings.box.nearest(xi)


def _inner(state: Server) -> Matrix:
    """Returns xi' (draws, P) of this round."""
    return np.array([state.block.sample(state.parameters, e) for e in _normals(state)])


def _normals(state: Server) -> Matrix:
    return state.settings.normals(state.round, 0, state.block.size)


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """Takes one answer; after the last it takes the step. A lost client ends the run: the model needs all its clients."""
    expected: type[Message]
    if until.judged(state.settings, state.round):
        state = with_answer(state, sender, event, until.Moving)
        if state.waiting:
            return state, []
        bits = [until.bit(k, answer) for k, answer in enumerate(all_of(state.answers, until.Moving))]
        return _lengthened(state, settled=all(bits))
    expected = Reached if state.settings.local_steps else GlobalGradientBound if state.settings.bound else GlobalGradient
    state = with_answer(state, sender, event, expected)
    if state.waiting:
        return state, []
    with np.errstate(all="ignore"):  # what leaves the finite numbers is found in both
        return _ask(_averaged(state) if state.settings.local_steps else _step(state))


def _step(state: Server) -> Server:
    """Takes one step of q(xi), with the answers in client order."""
    s, total = state.settings, np.zeros((state.settings.draws, state.block.size))
    # The sum is in client order, for the same bits on every run.
    for answer in in_order(state.answers):
        if isinstance(answer, GlobalGradient | GlobalGradientBound):
            total += answer.gradient
    g, bound = np.zeros(state.block.n_parameters), 0.0
    inner = _inner(state)
    for e, share, own, xi in zip(_normals(state), total, inner, _asked_about(state, inner)):
        value, slope = state.prior.log_prior_grad(xi)
        # The prior's gradient is added once, here.
        g += state.block.gradient(state.parameters, e, state.shear.pulled(own, share + slope), path=s.path)
        if s.bound:
            bound += (value - state.block.log_density(state.parameters, e)) / s.draws
    optimiser, move = OPTIMISERS[s.optimiser](1.0).update(state.optimiser, g / s.draws)
    parameters = state.parameters + s.rate(state.round) * move
    if not np.isfinite(parameters).all():
        raise NumericalError(f"server: round {state.round} left the finite numbers: lower learning_rate")
    state = _watched(evolve(state, parameters=parameters, optimiser=optimiser))
    state = evolve(state, round=state.round + 1)
    if not s.bound:
        return state
    bound += sum(answer.bound for answer in all_of(state.answers, GlobalGradientBound))
    state = evolve(state, last_fifth=state.last_fifth.add(state.round - 1, bound))
    recent = state.recent + bound
    # The trace has means of several rounds: one round's bound is noisy.
    if state.round % TRACED:
        return evolve(state, recent=recent)
    return evolve(state, recent=0.0, trace=(*state.trace, recent / TRACED))


def _averaged(state: Server) -> Server:
    """Takes the barycentre of the clients' q(xi)."""
    weights = np.array([state.settings.weight(k, state.n_clients) for k in range(state.n_clients)])
    reached = np.array([answer.parameters for answer in all_of(state.answers, Reached)])
    with np.errstate(over="ignore", invalid="ignore"):
        wide = [k for k, row in enumerate(reached) if not np.isfinite(state.block.moments(row)[1]).all()]
    if wide:
        raise NumericalError(
            f"server: round {state.round}: q(xi) of client {state.names[wide[0]]!r} is not finite: lower learning_rate"
        )
    parameters = barycentre(state.block, reached, weights)
    state = _watched(evolve(state, parameters=parameters))
    return evolve(state, round=state.round + 1)


def _watched(state: Server) -> Server:
    """Adds the moments of q(xi) after this round if it is one of the watched."""
    if state.windows.place(state.round) is None:
        return state
    return evolve(state, windows=state.windows.add(state.round, *state.shear.mean_sd(state.block, state.parameters)))


def posterior_moments(state: Server) -> tuple[Vector, Vector]:
    """Returns the mean of q(xi), and its standard deviations (P,) or covariance (P, P); of one that is sheared those at the
    tangent.
    """
    return state.shear.moments(state.block, state.parameters)
