"""Defines federated Hamiltonian Monte Carlo for the exact posterior: global unknowns xi at the server, local u_j at the clients.

The state is (xi, u_1, .. u_J), with log-density log p(xi) + sum_j F_j, F_j = log p(y_j, u_j | xi). The server holds xi and its
momentum, client j holds u_j and its momentum, and all take the steps of one leapfrog trajectory together. For each step the
server sends the new xi and a client answers with dF_j/dxi at its own new u_j. With the last answer of a trajectory comes one
number: the client's change of F_j less its kinetic energy. The server adds its own, accepts or rejects, and says so with the
first question of the next trajectory. Neither u_j nor its momentum nor F_j has a message.

The number of steps is fixed, one exchange each; one step is MALA. (A trajectory that turns back by itself, as that of NUTS, would
ask all parties for its stopping rule, 2^depth exchanges for a draw.) Several chains share the exchanges. In the warm-up the
server adapts the step of each chain to the acceptance rate, and each party the standard deviations of its own coordinates to its
own draws; then all is fixed. Source: docs/spec/sigma.md, section 7.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from ...arrays import Array, Matrix, Vector
from ...errors import NumericalError
from ...models.hierarchical import GlobalPrior, LocalModel
from ...privacy.masks import WIDE
from ..core import tells
from ..core.kept import GIVEN, PersistentMap, PersistentSet, load, save
from ..core.masked import Masked, MaskedGradient, MaskedGradientMore, Sum
from ..core.messages import SERVER, ClientEffects, Event, Message, Protocol, RemoteFault, ServerEffects, evolve
from ..core.rounds import AllRounds, all_of, ask_all, in_order, tell_all, with_answer
from ..core.trace import Trace
from .moves import ACCEPT, DIVERGENT, JITTER, LONGEST, LOST, Settings, Step, Walk, evaluate, finite, placed

__all__ = ["Settings", "load", "save"]  # what stands elsewhere

# Messages --------------------


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
class Slope(Message, kind=94, tells=tells.AreaSums()):
    """Client to server: dF_j/dxi, and nothing else."""

    gradient: Positions

    @classmethod
    def count(cls, dims: Mapping[str, int]) -> int:
        """Returns how many numbers are added."""
        return dims["s"] * dims["xi"]

    def numbers(self) -> NDArray[np.float64]:
        """Returns the gradient. Clipped it is a force that depends on the place alone, which leaves a trajectory valid."""
        return self.gradient.ravel()

    @classmethod
    def of_sum(cls, round: int, numbers: NDArray[np.float64], dims: Mapping[str, int]) -> Slope:
        """Returns the answer of all clients together."""
        return cls(numbers.reshape(dims["s"], dims["xi"]))


@dataclass(frozen=True)
class SlopeChange(Message, kind=95, tells=tells.AreaSums()):
    """Client to server, at the end of a trajectory: dF_j/dxi, and the change of F_j less that of the kinetic energy."""

    gradient: Positions
    change: Chains

    @classmethod
    def count(cls, dims: Mapping[str, int]) -> int:
        """Returns how many numbers are added."""
        return dims["s"] * (dims["xi"] + 1)

    def numbers(self) -> NDArray[np.float64]:
        """Returns the gradient, as `Slope` does, and changes."""
        return np.concatenate([self.gradient.ravel(), self.change])

    @classmethod
    def of_sum(cls, round: int, numbers: NDArray[np.float64], dims: Mapping[str, int]) -> SlopeChange:
        """Returns the answer of all clients together; a trajectory that one of them has lost is lost."""
        s = dims["s"]
        return cls(numbers[:-s].reshape(s, dims["xi"]), numbers[-s:])


@dataclass(frozen=True)
class LikelihoodSlope(Slope, kind=212, tells=tells.WeightedSums()):
    """Client to server, of a client without local unknowns: the same, of its log-likelihood."""


@dataclass(frozen=True)
class LikelihoodChange(SlopeChange, kind=213, tells=tells.WeightedSums()):
    """Client to server, of a client without local unknowns: the same, of its log-likelihood, which is all that changes."""


@dataclass(frozen=True)
class MaskedSlope(Masked, Message, kind=246, tells=tells.WeightedSums().masked):
    """Client to server: a `LikelihoodSlope`, masked."""

    words: Annotated[bytes, "masked_slope"]


@dataclass(frozen=True)
class MaskedChange(Masked, Message, kind=247, tells=tells.WeightedSums().masked):
    """Client to server: a `LikelihoodChange`, masked."""

    words: Annotated[bytes, "masked_change"]


SUMS = (
    Sum(LikelihoodSlope, MaskedSlope, WIDE),
    Sum(LikelihoodChange, MaskedChange, WIDE),
    Sum(Slope, MaskedGradient, WIDE),
    Sum(SlopeChange, MaskedGradientMore, WIDE),
)


# Metric --------------------


# Standard deviations from the mode: a trajectory that goes further is rejected, and nobody is asked there. While steps adapt
# chains went thousands away, where a log-likelihood is a sum over the few rows next to a plane, and told all rows; the posterior
# has next to nothing beyond, of log scales near 0 neither (e^-14, where a standard deviation is .7).
FAR = 20.0


@dataclass(frozen=True)
class Metric:
    """Holds the map xi = centre + B z."""

    # centre, factor: (P,), (P, P) B
    centre: Array
    factor: Array

    @classmethod
    def of(cls, mode: Array, precision: Array) -> Metric:
        """Returns the metric from the mode and minus the Hessian of the log-density there, positive definite."""
        L = np.linalg.cholesky(precision)
        return cls(mode, solve_triangular(L, np.eye(len(mode)), lower=True).T)

    def sent(self, z: Array) -> Array:
        """Returns xi (.., P), which is sent."""
        return np.asarray(self.centre + z @ self.factor.T)

    def of_xi(self, xi: Array) -> Array:
        """Returns z (c, P)."""
        return np.asarray(np.linalg.solve(self.factor, (xi - self.centre).T).T)

    def slope(self, gradient: Array) -> Array:
        """Returns a gradient in xi as one in z (c, P)."""
        return np.asarray(gradient @ self.factor)


# Client --------------------


@final
@dataclass(frozen=True)
class Client:
    """Is a client's state."""

    # name, index: its name and number
    name: str = field(metadata=GIVEN)
    index: int = field(metadata=GIVEN)
    settings: Settings = field(metadata=GIVEN)
    model: LocalModel = field(metadata=GIVEN)  # of its own rows
    walk: Walk  # u of all chains; value and slope are those of F_j
    h: Vector  # the steps of this trajectory
    # xi, trial: (c, P) xi of this state, and of the trajectory's present end, as they came
    xi: Matrix
    trial: Matrix
    # round, inner: number of the trajectory (-1 before the first), steps taken of it
    round: int = -1
    inner: int = 0
    trace: Trace = field(default_factory=Trace)  # draws of u, and of the xi that belong to them
    seed: int = 0  # of its own momenta: that of all streams, or one that nobody else has


def client(
    name: str, index: int, settings: Settings, model: LocalModel, u: Vector | float = 0.0, seed: int | None = None
) -> Client:
    """Returns a client that has seen nothing yet. `u`: start values, a number, (d,), or (c, d) with one row for each chain;
    `seed`: of its own momenta, if nobody else may know them."""
    place = placed(u, settings.chains, model.size, f"client {name!r}")
    none = np.zeros(settings.chains)
    xi = np.zeros((settings.chains, model.n_global))
    seed = settings.seed if seed is None else seed
    walk = Walk.begin(place, none, np.zeros(place.shape), settings.reach)
    return Client(name, index, settings, model, walk, none, xi, xi, seed=seed)


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Answers one question; at the end it takes the last decision."""
    s = state.settings
    _check(s, event)
    # Before the first round: the start values of all chains must have a density.
    if isinstance(event, Place) and state.round == -1:
        value, gradient, slope = evaluate(state.model, event.xi, state.walk.at)
        good = finite(value, gradient, slope)
        if s.box is None and not good.all():
            raise NumericalError(
                f"client {state.name!r}: the log-density at the start of chain {int(np.argmin(good))} is not finite: "
                "give other start values"
            )
        xi = np.array(event.xi)
        return evolve(state, walk=evolve(state.walk, value=value, slope=slope), xi=xi, trial=xi), [_slope(state, gradient)]
    if isinstance(event, (Launch, Decided)) and event.round == state.round + 1:
        # The decision on the last trajectory comes with the question that begins the next.
        state = _settle(state, event.accepted > 0.5)
        if isinstance(event, Decided):
            return evolve(state, round=event.round), []
        momenta = s.normals(state.index, event.round, state.model.size, seed=state.seed)
        walk = state.walk.launched(momenta, event.step)
        return _visit(evolve(state, walk=walk, h=np.array(event.step), round=event.round, inner=1), event.xi)
    if isinstance(event, Move) and 0 < state.inner < s.leapfrog:
        return _visit(evolve(state, walk=state.walk.moved(state.h), inner=state.inner + 1), event.xi)
    raise RemoteFault(f"server: {type(event).__name__} was not expected")


def _check(s: Settings, event: Event) -> None:
    """Raises RemoteFault for a question that no server of such a job asks: all clients know so alike."""
    if s.box is None or not isinstance(event, (Place, Launch, Move)):
        return
    steps = event.step if isinstance(event, Launch) else np.ones(1)
    if not (s.box.holds(event.xi).all() and (steps > 0).all() and (steps <= LONGEST).all()):
        raise RemoteFault("server: it asks for unknowns, or steps, out of this job's bounds")


def _visit(state: Client, xi: Matrix) -> tuple[Client, ClientEffects]:
    """Returns dF_j/dxi at the new place; for a chain that left the finite numbers, zeros, and the change that is never
    accepted."""
    value, gradient, slope = evaluate(state.model, xi, state.walk.trial)
    good = finite(value, gradient)
    walk = state.walk.visited(np.where(good, value, np.nan), slope)
    gradient = np.where(walk.lost[:, None], 0.0, gradient)
    if state.inner < state.settings.leapfrog:
        return evolve(state, walk=walk), [_slope(state, gradient)]
    walk, change = walk.landed(state.h)
    if state.settings.box is not None:
        change = np.where(walk.lost, np.nan, change)
    changed = LikelihoodChange if state.settings.whole else SlopeChange
    return evolve(state, walk=walk, trial=np.array(xi)), [changed(gradient, change)]


def _slope(state: Client, gradient: Matrix) -> Slope:
    """Returns the message with a gradient."""
    return LikelihoodSlope(gradient) if state.settings.whole else Slope(gradient)


def _settle(state: Client, accepted: NDArray[np.bool_]) -> Client:
    """Applies the decision on the trajectory that has ended."""
    if state.round < 0:
        return state
    walk, xi = state.walk.settled(accepted), np.where(accepted[:, None], state.trial, state.xi)
    if state.round < state.settings.warmup:
        walk = walk.learned(state.settings, state.round)
    if state.settings.keeps(state.round):
        state.trace.add({"u": walk.at, "xi": xi})
    return evolve(state, walk=walk, xi=xi, inner=0)


def local_draws(state: Client) -> NDArray[np.float64]:
    """Returns draws (c, t, d) of u_j, which belong to the same iterations as those of xi."""
    return state.trace["u"]


def global_draws(state: Client) -> NDArray[np.float64]:
    """Returns draws (c, t, P) of xi, as the server has them."""
    return state.trace["xi"]


# Server --------------------


@final
@dataclass(frozen=True)
class Server(AllRounds):
    """Is the server's state."""

    settings: Settings = field(metadata=GIVEN)
    # prior, names: of xi; of the clients
    prior: GlobalPrior = field(metadata=GIVEN)
    names: tuple[str, ...] = field(metadata=GIVEN)
    walk: Walk  # xi of all chains, or z if a metric is known; its slope is that of all parties, its value log p(xi)
    # step, h: the adapted step; the steps of this trajectory
    step: Step
    h: Vector
    # rate, divergences, warmup_divergences: (c,) summed acceptance probabilities, divergences after the warm-up and in it
    rate: Vector
    divergences: Vector
    warmup_divergences: Vector
    # round, inner: trajectories finished; steps taken of this one (0: nobody has answered `Place` yet)
    round: int = 0
    inner: int = 0
    # waiting, answers: clients that have yet to answer; client -> its answer
    waiting: PersistentSet[int] = field(default_factory=PersistentSet)
    answers: PersistentMap[int, Slope | SlopeChange] = field(default_factory=PersistentMap, metadata=GIVEN)
    trace: Trace = field(default_factory=Trace)  # draws of xi
    metric: Metric | None = field(default=None, metadata=GIVEN)  # the coordinates z in which the server walks; None: xi itself

    def sent(self, place: Matrix) -> Matrix:
        """Returns xi (c, P) at the place of the walk."""
        return place if self.metric is None else self.metric.sent(place)

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
    settings: Settings, prior: GlobalPrior, names: tuple[str, ...], xi: Vector | float = 0.0, metric: Metric | None = None
) -> tuple[Server, ServerEffects]:
    """Returns the server's first state and its first question. `xi`: start values, a number, (P,), or (c, P) with one row for
    each chain (`Settings.starts` scatters them); `metric`: coordinates in which the posterior is nearly standard normal, where
    they are known."""
    place = placed(xi, settings.chains, prior.size, "xi")
    value, slope = _prior(prior, place)
    if not finite(value, slope).all():
        raise NumericalError("hmc: log p(xi) at the start values of xi is not finite: give others")
    none, log_step = np.zeros(settings.chains), np.full(settings.chains, np.log(settings.step))
    begin = (place, value, slope) if metric is None else (metric.of_xi(place), value, metric.slope(slope))
    walk = Walk.begin(*begin)
    state = Server(settings, prior, names, walk, Step.at(log_step), none, none, none, none, metric=metric)
    if settings.warmup == 0:
        state = evolve(state, step=Step(log_step, log_step, log_step, none))
    return ask_all(state, Place(place))


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
    answer = SlopeChange if state.inner == state.settings.leapfrog else Slope
    state = with_answer(state, sender, event, answer)
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


# Protocol --------------------


def protocol(settings: Settings) -> Protocol[Server, Client]:
    """Returns the protocol with only the messages that a job of these settings can send."""
    moves: tuple[type[Message], ...] = (Move,) if settings.leapfrog > 1 else ()
    down: tuple[type[Message], ...] = (Place, Launch, *moves, Decided)
    up = (LikelihoodSlope, LikelihoodChange) if settings.whole else (Slope, SlopeChange)
    return Protocol("hmc", down, up, server_receive, client_receive, finished, save, load)
