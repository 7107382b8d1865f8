"""Runs the server of Hamiltonian Monte Carlo: xi, its momentum, and the decisions (see `machine`).

Source: sigma.md, section 7.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import NDArray

from ...errors import NumericalError
from ...models.hierarchical import GlobalPrior
from ..core.kept import GIVEN
from ..core.messages import SERVER, Event, ServerEffects, evolve
from ..core.persistent import PersistentMap, PersistentSet
from ..core.rounds import AllRounds, all_of, ask_all, in_order, tell_all, with_answer
from ..core.trace import Trace
from .messages import Decided, Launch, Move, Place, Slope, SlopeChange
from .metric import FAR, Metric
from .moves import DIVERGENT, LOST, Step, Walk, finite, placed
from .settings import ACCEPT, JITTER, LONGEST, Settings

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


@final
@dataclass(frozen=True)
class Server(AllRounds):
    """Is the server's state.

    Attributes
    ----------
    prior, names : of xi; of the clients
    walk : xi of all chains, or z if a metric is known; its slope is that of all parties, its value log p(xi)
    step, h : the adapted step; the steps of this trajectory
    round, inner : trajectories finished; steps taken of this one (0: nobody has answered `Place` yet)
    rate, divergences, warmup_divergences : (c,) summed acceptance probabilities, divergences after the warm-up and in it
    waiting, answers : clients that have yet to answer; client -> its answer
    trace : draws of xi
    metric : the coordinates z in which the server walks; None: xi itself
    """

    settings: Settings = field(metadata=GIVEN)
    prior: GlobalPrior = field(metadata=GIVEN)
    names: tuple[str, ...] = field(metadata=GIVEN)
    walk: Walk
    step: Step
    h: Vector
    rate: Vector
    divergences: Vector
    warmup_divergences: Vector
    round: int = 0
    inner: int = 0
    waiting: PersistentSet[int] = field(default_factory=PersistentSet)
    answers: PersistentMap[int, Slope | SlopeChange] = field(default_factory=PersistentMap, metadata=GIVEN)
    trace: Trace = field(default_factory=Trace)
    metric: Metric | None = field(default=None, metadata=GIVEN)

    def sent(self, at: Matrix) -> Matrix:
        """Returns xi (c, P) at the place of the walk."""
        return at if self.metric is None else self.metric.sent(at)

    def slope(self, gradient: Matrix) -> Matrix:
        """Returns a gradient in xi as one in the walk's coordinates (c, P)."""
        return gradient if self.metric is None else self.metric.slope(gradient)

    @property
    def acceptance(self) -> Vector:
        """(c,) The mean probability of acceptance after the warm-up; NaN before its end."""
        kept = self.round - self.settings.warmup
        return self.rate / kept if kept > 0 else np.full(len(self.rate), np.nan)

    @property
    def step_size(self) -> Vector:
        """(c,) h before its jitter."""
        return np.exp(self.step.log_step)


def start(
    settings: Settings,
    prior: GlobalPrior,
    names: tuple[str, ...],
    xi: Vector | float = 0.0,
    metric: Metric | None = None,
) -> tuple[Server, ServerEffects]:
    """Returns the server's first state and its first question.

    Parameters
    ----------
    xi : start values, a number, (P,), or (c, P) with one row for each chain (`Settings.starts` scatters them)
    metric : coordinates in which the posterior is nearly standard normal, where they are known
    """
    at = placed(xi, settings.chains, prior.size, "xi")
    value, slope = _prior(prior, at)
    if not finite(value, slope).all():
        raise NumericalError("hmc: log p(xi) at the start values of xi is not finite: give others")
    none, log_step = np.zeros(settings.chains), np.full(settings.chains, np.log(settings.step))
    walk = Walk.begin(at if metric is None else metric.of_xi(at), value, slope if metric is None else metric.slope(slope))
    state = Server(settings, prior, names, walk, Step.at(log_step), none, none, none, none, metric=metric)
    if settings.warmup == 0:
        state = evolve(state, step=Step(log_step, log_step, log_step, none))
    return ask_all(state, Place(at))


def _prior(prior: GlobalPrior, xi: Matrix) -> tuple[Vector, Matrix]:
    """Returns log p(xi) and its gradient for each chain."""
    value, slope = np.empty(len(xi)), np.empty(xi.shape)
    with np.errstate(all="ignore"):
        for c, row in enumerate(xi):
            value[c], slope[c] = prior.log_prior_grad(row)
    return value, slope


def finished(state: Server) -> bool:
    return state.stop is not None and not state.waiting


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """Takes one answer; after the last it takes the next step. A lost client ends the run: the model needs all its clients."""
    state = with_answer(state, sender, event, SlopeChange if state.inner == state.settings.leapfrog else Slope)
    if state.waiting:
        return state, []
    answers = in_order(state.answers)
    if state.inner == 0:
        slope = state.walk.slope + state.slope(_total(answers))
        return _launch(evolve(state, walk=evolve(state.walk, slope=slope)), np.zeros(state.settings.chains))
    value, slope = _prior(state.prior, state.sent(state.walk.trial))
    with np.errstate(all="ignore"):
        walk = state.walk.visited(value, state.slope(slope + _total(answers)))
    if state.inner < state.settings.leapfrog:
        walk = _near(state, walk.moved(state.h))
        return ask_all(evolve(state, walk=walk, inner=state.inner + 1), Move(state.sent(walk.trial)))
    walk, change = walk.landed(state.h)
    return _decide(evolve(state, walk=walk), [change, *(answer.change for answer in all_of(state.answers, SlopeChange))])


def _near(state: Server, walk: Walk) -> Walk:
    """Returns the walk without trajectories that go too far, which a metric measures in its coordinates z, or leave the box.

    Such a trajectory is rejected, as the one that comes back on its way would be: the target is the posterior within the box.
    """
    if state.metric is not None:
        walk = walk.guarded(np.asarray((walk.trial**2).sum(axis=1) <= FAR**2))
    box = state.settings.box
    return walk if box is None else walk.guarded(box.holds(state.sent(walk.trial)))


def _total(answers: list[Slope | SlopeChange]) -> Matrix:
    """Returns the sum of the clients' gradients, in their order."""
    total: Matrix = np.zeros(answers[0].gradient.shape)
    for answer in answers:
        total += answer.gradient
    return total


def _launch(state: Server, accepted: Vector) -> tuple[Server, ServerEffects]:
    """Takes the first step of a new trajectory; after the last one it sends the decision alone."""
    s = state.settings
    if state.stop:
        return tell_all(state, Decided(state.round, accepted))
    h = state.step_size * (1 + s.jitter * (2 * s.uniforms(state.round, JITTER) - 1))
    if s.box is not None:
        h = np.minimum(h, LONGEST)
    walk = _near(state, state.walk.launched(s.normals(SERVER, state.round, state.prior.size), h))
    return ask_all(evolve(state, walk=walk, h=h, inner=1), Launch(state.round, accepted, h, state.sent(walk.trial)))


def _decide(state: Server, changes: list[Vector]) -> tuple[Server, ServerEffects]:
    """Decides by Metropolis: each party's change of (log-density - kinetic energy) is added up, in the order of the clients."""
    s, round = state.settings, state.round
    # A trajectory that one party has lost is rejected for all.
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
        # The step of the sampling rounds is the average of warm-up; after each window of warm-up the search begins anew.
        if round + 1 == s.warmup:
            step = evolve(step, log_step=step.log_mean)
        elif round in s.windows()[1]:
            step = Step.at(step.log_step)
        state = evolve(state, warmup_divergences=state.warmup_divergences + divergent)
    else:
        state = evolve(state, rate=state.rate + rate, divergences=state.divergences + divergent)
    # The draw is kept after the decision, for a rejected one counts again.
    if s.keeps(round):
        state.trace.add({"xi": state.sent(walk.at)})
    return _launch(evolve(state, walk=walk, step=step, round=round + 1), accepted.astype(float))


def draws(state: Server) -> NDArray[np.float64]:
    """Returns draws (c, t, P) of xi."""
    return state.trace["xi"]


def summary(state: Server) -> dict[str, object]:
    """Returns how the chains went, as summary.json has it."""
    s = state.settings
    rates: dict[str, object] = {"acceptance": state.acceptance.tolist(), "step_size": state.step_size.tolist()}
    return rates | {"divergences": int(state.divergences.sum()), "warmup": s.warmup, "leapfrog_steps": s.leapfrog}
