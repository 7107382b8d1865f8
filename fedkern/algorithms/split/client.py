"""Runs a client of the vertical protocols: joint draws, gradient steps, and its part of the likelihood if the response is shared.

A client sends z_j and, in PL, rho_j with its sums (and, if the job asks, its terms of the ELBO): never theta, a variational
parameter, a network's weight or a row. Source: docs/spec/vertical.md, sections 5 to 8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Self, TypeVar

import numpy as np

from ...arrays import Indices, Vector
from ...errors import NumericalError
from ...kernels import rng
from ...kernels.ranges import finite
from ...models.likelihood import Likelihood
from ...models.split.site import Drawn, Site
from ...printing import listed
from ..core import until
from ..core.kept import GIVEN, only
from ..core.messages import ClientEffects, Event, RemoteFault, Saved, evolve, number
from ..core.optim import OPTIMISERS
from ..core.windows import Trajectory, Windows
from .messages import (
    Begin,
    BoundShare,
    LikelihoodShare,
    LikelihoodSum,
    PredictorSum,
    Residual,
    Settings,
    ZShare,
    batch_of,
    of_batch,
    stacked,
)


@lru_cache(maxsize=8)
def nothing(n_rows: int) -> Vector:
    """Returns (N, 0): no inputs."""
    return np.empty((n_rows, 0))


LOOKS = (until.AskMoving, until.Length)
REMEDY = "lower algorithm.learning_rate, or raise model.rho"


@dataclass(frozen=True)
class Client:
    """Is a client's state."""

    name: str = field(metadata=GIVEN)
    index: int = field(metadata=GIVEN)
    settings: Settings = field(metadata=only("rounds", "most"))
    site: Site = field(metadata=GIVEN)  # its model; no message can carry its content
    # y, likelihood: (N,) its copy of the response, and the family of it; None if only the server has it
    y: Vector | None = field(metadata=GIVEN)
    likelihood: Likelihood | None = field(metadata=GIVEN)
    # parameters, optimiser, trajectory: of all its variational parameters, of its networks
    parameters: Vector
    optimiser: Vector
    trajectory: Trajectory
    residual: Vector  # (N,) average of dL/dz_j in others' messages: AV r; PL R - rho_j
    windows: Windows  # mean and sd of q(theta) over two stretches of the rounds
    round: int = 0
    step: int = 0  # its own count of draws, the last word of its random counters
    drawn: tuple[Drawn, ...] = field(default=(), metadata=GIVEN)  # the joint draws of this round, one for each of S
    own: tuple[Vector, ...] = ()  # PL, between the two exchanges: rho_j of each draw
    fused: bool = field(default=False, metadata=GIVEN)  # whether an iteration is one compiled call, `_iterated`

    def beside(self) -> Saved:
        """Returns whether this round's draws are made: they are made again from their counters."""
        return {"begun": int(bool(self.drawn))}

    def restored(self, saved: Saved) -> Self:
        """Returns the client with this round's draws."""
        if not number(saved, "begun") or self.round >= self.settings.rounds:
            return evolve(self, own=())
        return evolve(_drawn(evolve(self, step=self.step - self.settings.draws))[0], own=self.own)

    @property
    def released(self) -> Vector:
        """The averaged or the last parameters."""
        return self.trajectory.released(self.settings.average, self.parameters)

    @property
    def extra(self) -> Vector:
        """(N, e) The inputs of an amortised family beside g, now."""
        inputs = self.site.auxiliary.inputs
        centre = self.site.mean_g(self.parameters) if "centre" in inputs else None
        return self.inputs_with(self.residual, centre)

    def inputs_with(self, residual: Vector, centre: Vector | None) -> Vector:
        """Returns the same (N, e), with this average of the messages and this centre."""
        inputs = self.site.auxiliary.inputs
        if not inputs:
            return nothing(self.settings.n_rows)
        known = {"response": self.y, "residual": residual, "centre": centre}
        columns = [column for name in inputs if (column := known[name]) is not None]
        if not columns:
            return nothing(self.settings.n_rows)
        return columns[0][:, None] if len(columns) == 1 else np.array(columns).T


State = TypeVar("State", bound=Client)  # of an open or a private job


def client(
    name: str,
    index: int,
    settings: Settings,
    site: Site,
    y: Vector | None = None,
    likelihood: Likelihood | None = None,
    sd: float = 0.1,
) -> Client:
    """Returns a client before the first round.

    `y` and `likelihood` are given if the response is shared; `sd` is that of q(theta) at the start. Raises ValueError: the
    response is needed here and is not here, or rows or numbers do not fit.
    """
    shared = settings.model == "power" or settings.response == "shared" or "response" in site.auxiliary.inputs
    if shared and (y is None or likelihood is None):
        raise ValueError(f"client {name!r}: the {settings.model} model with response = {settings.response!r} needs y here")
    if site.predictor.n_rows != settings.n_rows or (y is not None and len(y) != settings.n_rows):
        raise ValueError(f"client {name!r}: {site.predictor.n_rows} rows, the job has {settings.n_rows}")
    key = rng.key(settings.seed, "initial")
    parameters = site.initial(rng.uniform(site.n_uniforms, key=key, client=index), sd)
    optimiser = OPTIMISERS[settings.optimiser](settings.learning_rate).init(len(parameters))
    trajectory, residual = Trajectory(np.zeros(len(parameters))), np.zeros(settings.n_rows)
    fused = _fusible(settings, site)
    size = 0 if site.point else site.block.size
    windows = settings.windows(size)
    return Client(name, index, settings, site, y, likelihood, parameters, optimiser, trajectory, residual, windows, fused=fused)


def _fusible(s: Settings, site: Site) -> bool:
    """Tells whether a round is one gradient, one step of Adam and one draw."""
    once = s.draws == 1 and s.local_steps == 1 and s.batch is None
    return s.model == "augmented" and s.optimiser == "adam" and once and not s.private and site.plain


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Answers the server: a draw, a part of the likelihood, or after a step the next draw. Raises NumericalError: a gradient is
    not finite: client, round and part of the parameters are named. Raises RemoteFault: an event that this job does not have, or
    of another round."""
    s = state.settings
    # The commonest case first: it is passed in each round.
    if isinstance(event, Residual) and state.fused and event.round == state.round and state.drawn and s.response == "server":
        return _next(state, (event.r[0],))
    if isinstance(event, Begin) and not state.drawn:
        return _drawn(state)
    if isinstance(event, LOOKS) and until.judged(s, state.round):
        return _waiting(state, event)
    if getattr(event, "round", None) != state.round or not state.drawn or isinstance(event, Begin):
        raise RemoteFault(
            f"server: {type(event).__name__} of round {getattr(event, 'round', None)}, expected round {state.round}"
        )
    if isinstance(event, PredictorSum):
        if s.model == "power":
            return _likelihood(state, event)
        if s.response == "shared":
            return _next(state, _slopes(state, event))
    elif isinstance(event, Residual) and s.response == "server" and s.model != "power":
        return _next(state, tuple(event.r))
    elif isinstance(event, LikelihoodSum) and state.own:
        return _stepped(state, tuple(event.R), state.own)
    raise RemoteFault(f"server: {type(event).__name__} was not expected of a {s.model} model")


def _waiting(state: Client, event: until.AskMoving | until.Length) -> tuple[Client, ClientEffects]:
    """Says whether its unknowns have settled, and then takes the length of the job."""
    if isinstance(event, until.AskMoving):
        movement = state.windows.movement
        return state, [until.Moving(state.round, int(movement is not None and movement.settled))]
    settings = until.with_length(state.settings, event, state.round)
    if settings.rounds > state.settings.rounds:
        size = 0 if state.site.point else state.site.block.size
        state = evolve(state, windows=settings.windows(size))
    return _drawn(evolve(state, settings=settings))


def _drawn(state: State) -> tuple[State, ClientEffects]:
    """Makes the joint draws of this round, and sends z."""
    s, site = state.settings, state.site
    index = batch_of(s, state.round)
    d = site.predictor.n_theta
    n = s.n_rows if index is None else len(index)
    extra = state.extra if index is None else state.extra[index]
    key, draws = s.key, []
    for i in range(s.draws):
        normals = rng.normal(d + n, key=key, client=state.index, step=state.step + i)
        drawn = site.draw(state.parameters, normals[:d], normals[d:], extra, index)
        if not math.isfinite(drawn.z @ drawn.z):
            raise NumericalError(f"client {state.name!r}, round {state.round}: z is not finite; {REMEDY}")
        draws.append(drawn)
    return _sent(evolve(state, drawn=tuple(draws), step=state.step + s.draws, own=()))


def _sent(state: State) -> tuple[State, ClientEffects]:
    """Returns the messages after a draw."""
    out: ClientEffects = [ZShare(state.round, stacked([drawn.z for drawn in state.drawn]))]
    if state.settings.bounded(state.round) and state.settings.model != "power":
        out.insert(0, BoundShare(state.round, _bound(state)))
    return state, out


def _bound(state: Client) -> float:
    """Returns the client's terms of the ELBO, on average over the draws."""
    s = state.settings
    return float(np.mean([state.site.bound(state.parameters, drawn, s.factor) for drawn in state.drawn]))


def _slopes(state: Client, event: PredictorSum) -> tuple[Vector, ...]:
    """Returns r of each draw: AV with the response at the clients."""
    assert state.y is not None  # `client` has seen to it
    assert state.likelihood is not None
    likelihood, y = state.likelihood, of_batch(state.y, state.drawn[0].index)
    scales = event.log_scale if state.settings.dispersed else np.zeros((len(event.b), 1))
    return tuple(likelihood.slope(y, b + Z, float(w[0])) for Z, b, w in zip(event.Z, event.b, scales))


def watched(state: Client, parameters: Vector) -> Windows:
    """Returns the windows with the moments of q(theta) after this round if it is one of the watched."""
    windows, site = state.windows, state.site
    if site.point or windows.place(state.round) is None:
        return windows
    part = parameters[site.parts["theta"]]
    return windows.add(state.round, part[: site.block.size], site.block.sd(part))


def _likelihood(state: Client, event: PredictorSum) -> tuple[Client, ClientEffects]:
    """Answers with this client's part of the likelihood's slopes, with g_j in the place of z_j (PL)."""
    assert state.y is not None
    assert state.likelihood is not None
    s, likelihood = state.settings, state.likelihood
    y, share = of_batch(state.y, state.drawn[0].index), 1 / s.n_clients
    slopes, scales, values = [], np.zeros((s.draws, int(s.dispersed))), []
    for i, drawn in enumerate(state.drawn):
        # In the sum over all clients this client's z_j gives way to its g_j.
        eta = float(event.b[i]) + drawn.g + (event.Z[i] - drawn.z)
        w = float(event.log_scale[i, 0]) if s.dispersed else 0.0
        slopes.append(share * likelihood.slope(y, eta, w))
        if s.dispersed:
            scales[i] = share * likelihood.slope_scale(y, eta, w).sum()
        if s.bounded(state.round):
            values.append(share * float(likelihood.value(y, eta, w).sum()))
    part = stacked(slopes)
    out: ClientEffects = [LikelihoodShare(state.round, part, part.sum(axis=1), scales)]
    if s.bounded(state.round):
        out.insert(0, BoundShare(state.round, s.factor * float(np.mean(values)) + _bound(state)))
    return evolve(state, own=tuple(slopes)), out


def _next(state: Client, messages: tuple[Vector, ...]) -> tuple[Client, ClientEffects]:
    """Takes a step (AV), and the next draw if the job goes on; if a number is not finite, by the path that names it."""
    s, last = state.settings, state.round + 1
    after = _iterated(state, messages[0]) if state.fused else None
    if after is None:
        return _stepped(state, messages, ())
    # A step has the same bits whatever follows it: a job that ends here is one that might have gone on. The draw is dropped.
    if until.judged(s, last):
        return evolve(after, drawn=(), step=state.step), []
    return _sent(after) if last < s.rounds else (evolve(after, drawn=state.drawn, step=state.step), [])


def _iterated(state: Client, message: Vector) -> Client | None:
    """Does the work of `_stepped` and `_drawn` in one compiled call; returns None if some of its numbers are not finite."""
    s, site = state.settings, state.site
    residual = _remembered(state, message)
    # The compiled call makes the centre itself, where there is one: any column keeps its place.
    extra, rate = state.inputs_with(residual, residual), s.rate(state.round)
    parameters, optimiser, drawn = site.iterated(
        state.parameters, state.optimiser, state.drawn[0], message, extra, rate, seed=s.seed, client=state.index, step=state.step
    )
    # The averages of the squared gradients keep what was not finite.
    if not (finite(optimiser[1]) and finite(drawn.z)):
        return None
    trajectory = state.trajectory.add(parameters) if s.average == "half" else state.trajectory
    return evolve(
        state,
        residual=residual,
        parameters=parameters,
        optimiser=optimiser,
        trajectory=trajectory,
        windows=watched(state, parameters),
        round=state.round + 1,
        step=state.step + 1,
        drawn=(drawn,),
    )


def _remembered(state: Client, mean: Vector, index: Indices | None = None) -> Vector:
    """Returns the average of the messages, with the mean of this round's, if the network of z takes it."""
    s, residual = state.settings, state.residual
    if "residual" not in state.site.auxiliary.inputs:
        return residual
    memory = s.memory_weight(state.round)
    blended = memory * of_batch(residual, index) + (1 - memory) * mean
    return blended if index is None else _replaced(residual, index, blended)


def _stepped(state: Client, messages: tuple[Vector, ...], own_parts: tuple[Vector, ...]) -> tuple[Client, ClientEffects]:
    """Takes a step of the optimiser (K of them), and the next draw unless this was the last round."""
    s, index = state.settings, state.drawn[0].index
    parts = tuple(m - o for m, o in zip(messages, own_parts)) if own_parts else messages
    parameters, optimiser = state.parameters, state.optimiser
    columns = state.site.columns(index)
    update = OPTIMISERS[s.optimiser](s.rate(state.round)).update
    for k in range(s.local_steps):
        g = _gradient(state, parameters, parts, own_parts, first=k == 0)
        if columns is None:
            optimiser, change = update(optimiser, g)
            parameters = parameters + change
        else:
            moved, change = update(optimiser[:, columns], g)
            optimiser = _replaced(optimiser, (slice(None), columns), moved)
            parameters = _replaced(parameters, columns, parameters[columns] + change)
    message = parts[0] if s.draws == 1 else np.mean(parts, axis=0)
    residual = _remembered(state, message, index)
    trajectory = state.trajectory.add(parameters) if s.average == "half" else state.trajectory
    round, windows = state.round + 1, watched(state, parameters)
    state = evolve(state, parameters=parameters, optimiser=optimiser, residual=residual, trajectory=trajectory, windows=windows)
    state = evolve(state, round=round, own=())
    if until.judged(s, round):
        return evolve(state, drawn=()), []  # until it has been told the length
    return _drawn(state) if round < s.rounds else (state, [])


def _replaced(values: Vector, where: Indices | tuple[slice, Indices], new: Vector) -> Vector:
    """Returns a copy with some elements replaced."""
    values = values.copy()
    values[where] = new
    return values


def _gradient(
    state: Client, parameters: Vector, parts: tuple[Vector, ...], own_parts: tuple[Vector, ...], *, first: bool
) -> Vector:
    """Returns the mean gradient over the draws.

    After the first local step the messages are those of the separable minorant of the likelihood about the point that was sent
    (section 8).
    """
    s, site, total = state.settings, state.site, None
    for i, drawn in enumerate(state.drawn):
        message = parts[i]
        if not first:
            assert s.curvature is not None
            anew = site.draw(parameters, drawn.eps, drawn.tau, drawn.extra, drawn.index)
            message = message - (s.n_clients + 1) * s.curvature * (anew.z - drawn.z)
            drawn = anew
        own_part = own_parts[i] if own_parts else None
        g = site.gradient(parameters, drawn, message, own_part, s.factor)
        total = g if total is None else total + g
    assert total is not None
    if s.draws > 1:
        total = total / s.draws
    # One product tells whether any entry is not finite.
    if not math.isfinite(total @ total):
        raise NumericalError(_not_finite(state, total))
    return total


def _not_finite(state: Client, g: Vector) -> str:
    """Returns a text that names the part of the parameters that left the finite numbers."""
    columns = state.site.columns(state.drawn[0].index)
    bad = ~np.isfinite(g)
    if not bad.any():  # the sum of their squares is not
        bad = np.abs(g) == np.abs(g).max()
    where = np.flatnonzero(bad) if columns is None else columns[bad]
    parts = list(dict.fromkeys(state.site.place(int(j)) for j in where))
    named = listed(parts, 4)
    return f"client {state.name!r}, round {state.round}: the gradient of {named} is not finite; {REMEDY}"
