"""Runs a client of the Gibbs sampler: sweeps over its own unknowns (see `machine`). Source: docs/spec/sparse.md, section 5."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ...errors import NumericalError
from ...kernels import shrinkage
from ...kernels.ranges import within
from ..core.kept import GIVEN
from ..core.messages import ClientEffects, Event, Message, RemoteFault, evolve
from ..core.trace import Trace
from .messages import MOVES, Globals, GlobalsMoved, GlobalsTempered, Locals, Loglik, Sums
from .settings import Settings
from .sites import Counter, Movable, Moving, Site, State, moved
from .sweeps import add_events, first

Array = NDArray[np.float64]
QUESTIONS = (Globals, GlobalsMoved, GlobalsTempered)
# Of theta, and of tau^2, where sums are masked: with them no sum leaves its word, and draws of a posterior beyond them come once
# in 1e14 at most (sparse.md, section 5).
LARGEST, TAU_SQ = 1e12, (1e-40, 1e40)


@final
@dataclass(frozen=True)
class Client:
    """Is a client's state.

    Attributes
    ----------
    name, index, site : of the client; its rows are in `site`
    seed : of its own random numbers: that of all streams, or one that nobody else has
    state : of the site, see `sites`
    theta, tau_sq : (c, g, p) as it was last told
    step : its own sweeps so far
    since : the burn-in that it knows of
    trace : kept draws of theta_k and of the unknowns that it never sends
    events : counts of clipped scales, QR fall-backs, data-space draws
    """

    name: str = field(metadata=GIVEN)
    index: int = field(metadata=GIVEN)
    settings: Settings = field(metadata=GIVEN)
    site: Site = field(metadata=GIVEN)
    state: State
    theta: Array
    tau_sq: Array
    trace: Any
    seed: int
    step: int = 0
    since: int = 0
    events: NDArray[np.int64] = field(default_factory=lambda: np.zeros(3, np.int64))


def client(name: str, index: int, settings: Settings, site: Site, trace: object = None, seed: int | None = None) -> Client:
    """Returns a client before the first round; without a seed of its own it has that of all parties."""
    values, trace = first(settings), Trace() if trace is None else trace
    seed = settings.seed if seed is None else seed
    return Client(name, index, settings, site, site.start(settings), values.theta, values.tau_sq, trace, seed)


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Takes theta and tau^2, sweeps, and answers with the deviations (or their sums)."""
    if not isinstance(event, QUESTIONS):
        raise RemoteFault(f"server: {type(event).__name__} was not expected")
    if not state.settings.masked:
        state = updated(state, event)
        return state, answers(state, event.round)
    _check(state, event)
    try:
        state = updated(state, event)
    except NumericalError:  # of rows that cannot be: no number, which ends the job at all clients
        step = state.step + state.settings.local_sweeps
        c, n = event.theta.shape
        return evolve(state, step=step), [Sums(event.round, np.full((state.settings.sums, c, n), np.nan))]
    return state, answers(state, event.round)


def _check(state: Client, event: Globals | GlobalsMoved | GlobalsTempered) -> None:
    """Raises RemoteFault for a question that no server of a job with masked sums asks: all clients know so alike."""
    settings, low, high = state.settings, *TAU_SQ
    known = event.round * settings.local_sweeps == state.step and event.since == 0 and event.round < settings.rounds
    if not (known and within(event.theta, -LARGEST, LARGEST) and within(event.tau_sq, low, high)):
        raise RemoteFault(
            "server: it asks for another round than the next, or for coefficients or scales out of this job's bounds"
        )


def updated(state: Client, event: Globals | GlobalsMoved | GlobalsTempered) -> Client:
    """Returns a client after its sweeps of a round."""
    layout = state.settings.layout
    theta, tau_sq = layout.full(event.theta, 0.0), layout.full(event.tau_sq, 1.0)
    local = state.state
    if isinstance(event, GlobalsMoved):
        # The server has moved tau: the deviation keeps its standardised value w, so that theta_k follows the move.
        t = layout.full(event.t, 1.0)
        local = {**local, "deviation": t * (local["deviation"] / np.sqrt(state.tau_sq))}
        local = moved(local, layout.full(event.moved, 0.0) - theta)
    else:
        local = moved(local, state.theta - theta)
    if isinstance(event, GlobalsTempered):
        local["temperature"] = event.temperature.copy()
    return swept(state, local, theta, tau_sq, event)


def swept(state: Client, before: State, theta: Array, tau_sq: Array, event: Globals | GlobalsMoved | GlobalsTempered) -> Client:
    """Runs the local sweeps of a round, from the site's state as the server's draws have left it."""
    settings, since = state.settings, event.since
    counter: Counter = {"seed": state.seed, "client": state.index, "step": state.step}
    local, taken = state.site.sweeps(settings, before, theta, tau_sq, **counter)
    events = add_events(state.events, taken)
    if since != state.since:
        state.trace.clear()
    if settings.keeps(event.round + 1 - since):
        draw = {"theta": theta, "deviation": local["deviation"]}
        for name in state.site.own:
            draw[name] = local[name]
        if settings.tempering > 1:  # the chains whose draws count
            cold = np.flatnonzero(before["temperature"] == 1)
            draw = {name: value[cold] for name, value in draw.items()}
        state.trace.add(draw, settings.layout.of_site)
    step = state.step + settings.local_sweeps
    return evolve(state, state=before | local, theta=theta, tau_sq=tau_sq, step=step, since=since, events=events)


def answers(state: Client, round: int) -> ClientEffects:
    """Returns a client's messages after its sweeps."""
    messages: ClientEffects = [*draws(state, round)]
    if (move := state.settings.move(round)) is not None:
        each = zip(*(move_terms(state, round, j) for j in range(state.settings.layout.shape[0])))
        messages.append(MOVES[move](round, *(np.stack(part, axis=1) for part in each)))
    return messages


def draws(state: Client, round: int) -> list[Message]:
    """Returns its deviations and scales, or their sums, and the log-likelihood if chains exchange temperatures."""
    settings, local = state.settings, state.state
    flat = settings.layout.flat
    if settings.aggregate == "sums":
        sums = shrinkage.local_sums(local["deviation"], local["lambda_sq"], slab=settings.prior.slab)
        return [Sums(round, flat(sums))]
    messages: list[Message] = [Locals(round, flat(local["deviation"]), flat(local["lambda_sq"]))]
    if settings.tempering > 1:
        messages.append(Loglik(round, local["loglik"]))
    return messages


def move_terms(state: Client, round: int, regression: int) -> tuple[Array, Array]:
    """Returns a client's part of the gradient (c, w) and the precision (c, w, w) of a round's move in one regression."""
    site, settings = state.site, state.settings
    assert isinstance(site, Movable)  # the job's keys refuse moves elsewhere
    counter: Counter = {"seed": state.seed, "client": state.index, "step": state.step}
    return site.move_terms(moving(state, settings.coordinates(round), regression), state.state, **counter)


def moving(state: Client, coordinates: NDArray[np.int64], regression: int) -> Moving:
    """Returns a round's move in one regression, with the place of a client's coefficients."""
    settings = state.settings
    block = settings.layout.places(coordinates, regression)
    return Moving(state.theta[:, regression], state.tau_sq[:, regression], regression, block, settings.prior.slab)
