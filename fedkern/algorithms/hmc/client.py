"""Runs a client of Hamiltonian Monte Carlo: u_j, its momentum and F_j (see `machine`).

Source: docs/spec/sigma.md, section 7.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import NDArray

from ...errors import NumericalError
from ...models.hierarchical import LocalModel
from ..core.kept import GIVEN
from ..core.messages import ClientEffects, Event, RemoteFault, evolve
from ..core.trace import Trace
from .messages import Decided, Launch, LikelihoodChange, LikelihoodSlope, Move, Place, Slope, SlopeChange
from .moves import Walk, evaluate, finite, placed
from .settings import LONGEST, Settings

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


@final
@dataclass(frozen=True)
class Client:
    """Is a client's state.

    Attributes
    ----------
    name, index : its name and number
    model : of its own rows
    walk : u of all chains; value and slope are those of F_j
    h : the steps of this trajectory
    round, inner : number of the trajectory (-1 before the first), steps taken of it
    xi, trial : (c, P) xi of this state, and of the trajectory's present end, as they came
    trace : draws of u, and of the xi that belong to them
    seed : of its own momenta: that of all streams, or one that nobody else has
    """

    name: str = field(metadata=GIVEN)
    index: int = field(metadata=GIVEN)
    settings: Settings = field(metadata=GIVEN)
    model: LocalModel = field(metadata=GIVEN)
    walk: Walk
    h: Vector
    xi: Matrix
    trial: Matrix
    round: int = -1
    inner: int = 0
    trace: Trace = field(default_factory=Trace)
    seed: int = 0


def client(
    name: str, index: int, settings: Settings, model: LocalModel, u: Vector | float = 0.0, seed: int | None = None
) -> Client:
    """Returns a client that has seen nothing yet.

    Parameters
    ----------
    u : start values, a number, (d,), or (c, d) with one row for each chain
    seed : of its own momenta, if nobody else may know them
    """
    at = placed(u, settings.chains, model.size, f"client {name!r}")
    none = np.zeros(settings.chains)
    xi = np.zeros((settings.chains, model.n_global))
    seed = settings.seed if seed is None else seed
    walk = Walk.begin(at, none, np.zeros(at.shape), settings.reach)
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
    accepted.
    """
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
