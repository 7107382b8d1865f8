"""Runs a client of structured federated variational inference: q(u_j | xi), of which nothing is sent (see `machine`).

Source: docs/spec/sigma.md, section 6.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import NDArray

from ...errors import NumericalError
from ...kernels import rng
from ...models.hierarchical import GlobalPrior, LocalModel
from ...models.variational import Block
from ..core import until
from ..core.kept import GIVEN, only
from ..core.messages import ClientEffects, Event, Message, RemoteFault, evolve
from ..core.optim import OPTIMISERS
from ..core.windows import Windows
from .families import Family
from .messages import Fitted, Global, GlobalGradient, GlobalGradientBound, Reached, Start
from .nested import NestedFamily
from .settings import Settings

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


@final
@dataclass(frozen=True)
class Client:
    """Is a client's state.

    Attributes
    ----------
    name, index, n_clients : its name and number, and J
    model : of its own rows
    family, parameters, optimiser : q(u | xi), its flat parameters, and the state of its optimiser
    prior, block, global_optimiser : of xi, for the steps of SFVI-Avg; None in SFVI
    windows : mean and sd of q(u | xi) at one xi, `reference`, over two stretches of the rounds
    reference : c when the first of them began
    centre, recent, count : c; sum and number of the xi that came since it was moved; None before the first
    step : its own count of steps
    fitted : the flat parameters of q(xi'), at the end
    ridge : the numbers of the map from xi' to xi, as the server sent them
    seed : of its own random numbers: that of all streams, or one that nobody else has
    """

    name: str = field(metadata=GIVEN)
    index: int = field(metadata=GIVEN)
    n_clients: int = field(metadata=GIVEN)
    settings: Settings = field(metadata=only("rounds", "most"))
    model: LocalModel = field(metadata=GIVEN)
    family: Family | NestedFamily = field(metadata=GIVEN)
    parameters: Vector
    optimiser: Matrix
    windows: Windows
    prior: GlobalPrior | None = field(default=None, metadata=GIVEN)
    block: Block | None = field(default=None, metadata=GIVEN)
    global_optimiser: Matrix | None = None
    reference: Vector | None = None
    centre: Vector | None = None
    recent: Vector | None = None
    count: int = 0
    step: int = 0
    fitted: Vector | None = None
    ridge: Vector | None = None
    seed: int = 0

    @property
    def round(self) -> int:
        """The number of rounds that it took part in."""
        return self.step // max(self.settings.local_steps, 1)


def client(
    name: str,
    index: int,
    settings: Settings,
    model: LocalModel,
    n_clients: int,
    prior: GlobalPrior | None = None,
    family: Family | NestedFamily | None = None,
    seed: int | None = None,
) -> Client:
    """Returns a client that has seen nothing yet.

    Parameters
    ----------
    name, index, settings, model, n_clients : see `Client`
    prior : of xi: SFVI-Avg takes its steps with it
    family : of q(u | xi), instead of the one that the settings give
    seed : of its own random numbers, if nobody else may know them
    """
    family = family or settings.family(model)
    parameters = family.initial(settings.local_sd)
    optimiser = OPTIMISERS[settings.optimiser](1.0)
    windows = settings.windows(family.n_normals)
    state = Client(name, index, n_clients, settings, model, family, parameters, optimiser.init(family.n_parameters), windows)
    state = evolve(state, seed=settings.seed if seed is None else seed)
    if not settings.local_steps:
        return state
    if prior is None:
        raise ValueError(f"sfvi: client {name!r} needs the prior of xi: with local_steps > 0 it takes steps of q(xi) itself")
    block = settings.block(model.n_global)
    return evolve(state, prior=prior, block=block, global_optimiser=optimiser.init(block.n_parameters))


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Answers one question; at the end it takes the fitted q(xi)."""
    if isinstance(event, Global) and not state.settings.local_steps:
        _check(state, event)
        state, G, bound = _local_step(state, event.xi, event.round)
        answer: Message = GlobalGradientBound(G, bound) if state.settings.bound else GlobalGradient(G)
        return _watched(state, event.round), [answer]
    if isinstance(event, Start) and state.settings.local_steps:
        state, out = _local_steps(state, event)
        return _watched(state, event.round), out
    if isinstance(event, until.AskMoving) and until.judged(state.settings, state.round):
        movement = state.windows.movement
        return state, [until.Moving(event.round, int(movement is not None and movement.settled))]
    if isinstance(event, until.Length):
        return _told(state, event), []
    if isinstance(event, Fitted):
        return evolve(state, fitted=np.array(event.parameters), ridge=np.array(event.ridge)), []
    raise RemoteFault(f"server: {type(event).__name__} was not expected")


def _check(state: Client, event: Global) -> None:
    """Raises RemoteFault for a question that no server of such a job asks: all clients know so alike."""
    box = state.settings.box
    if box is not None and not (event.round == state.round and box.holds(event.xi).all()):
        raise RemoteFault(
            f"server: after {state.round} rounds it asks for round {event.round}, or for unknowns out of this job's bounds"
        )


def _told(state: Client, event: until.Length) -> Client:
    """Takes the length of the job; with a new length the stretches begin anew."""
    settings = until.with_length(state.settings, event, state.round)
    if settings.rounds > state.settings.rounds:
        state = evolve(state, windows=settings.windows(state.family.n_normals), reference=None)
    return evolve(state, settings=settings)


def _local_step(state: Client, xi: Matrix, round: int) -> tuple[Client, Matrix, float]:
    """Takes one step of q(u | xi) with the given draws of xi; returns G_j of each, and F_j on average."""
    s, family = state.settings, state.family
    state = _centred(state, xi)
    assert state.centre is not None
    d = family.n_normals
    eps = rng.normal(s.draws * d, key=rng.key(state.seed, "draws"), client=state.index, step=state.step).reshape(s.draws, d)
    G, g, bound = np.empty(xi.shape), np.zeros(family.n_parameters), 0.0
    for i in range(s.draws):
        with np.errstate(all="ignore"):  # what leaves the finite numbers is found below
            try:
                value, G[i], flat = family.gradient(
                    state.model, state.parameters, xi[i], state.centre, eps[i], path=s.path, bound=s.bound
                )
            except NumericalError:
                if s.box is None:
                    raise
                value, G[i], flat = np.nan, np.nan, np.zeros_like(g)
        g += flat
        bound += value / s.draws
    for what, array in (("G", G), ("q(u)", g)):
        if s.box is None and not np.isfinite(array).all():
            raise NumericalError(
                f"client {state.name!r}: round {round}: the gradient of {what} is not finite: lower learning_rate"
            )
    if s.box is not None:
        g = np.nan_to_num(g, posinf=0.0, neginf=0.0)
    optimiser, move = OPTIMISERS[s.optimiser](1.0).update(state.optimiser, g / s.draws)
    parameters = state.parameters + s.rate(round) * move
    if s.box is not None:
        parameters = family.limited(parameters)
    return evolve(state, parameters=parameters, optimiser=optimiser, step=state.step + 1), G, bound


def _watched(state: Client, round: int) -> Client:
    """Adds the moments of this round if it is one of the watched. They are taken at one xi throughout: c itself moves."""
    if state.windows.place(round) is None or state.centre is None:
        return state
    at = state.centre if state.reference is None else state.reference
    mean, sd = state.family.moments(state.parameters, at, state.centre)
    return evolve(state, reference=at, windows=state.windows.add(round, mean, sd))


def _centred(state: Client, xi: Matrix) -> Client:
    """Counts these draws of xi, and moves c, now and then, to the mean of those since the last move."""
    if state.centre is None or state.recent is None:
        return evolve(state, centre=xi[0].copy(), recent=xi.sum(axis=0), count=1)
    if state.count < state.settings.centre_every:
        return evolve(state, recent=state.recent + xi.sum(axis=0), count=state.count + 1)
    centre = state.recent / (state.count * state.settings.draws)
    parameters = state.family.moved(state.parameters, centre - state.centre)
    return evolve(state, centre=centre, parameters=parameters, recent=xi.sum(axis=0), count=1)


def _local_steps(state: Client, event: Start) -> tuple[Client, ClientEffects]:
    """Takes the steps of SFVI-Avg on log p(xi) - log q(xi) + F_j / w_j."""
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


def local_posterior(state: Client) -> tuple[Vector, Matrix]:
    """Returns mean (d,) and covariance (d, d) of q(u_j), xi integrated out; of a nested family its outer part.

    Raises ValueError before the fitted q(xi) has come, and for one that is sheared, which is not normal.
    """
    if state.fitted is None or state.centre is None:
        raise ValueError(f"sfvi: client {state.name!r} has not been told the fitted q(xi)")
    if state.ridge is not None and state.ridge.any():
        raise ValueError(f"sfvi: client {state.name!r}: q(xi) is sheared, and so not normal; take draws of it")
    mu, spread = state.settings.block(state.model.n_global).moments(state.fitted)
    cov = spread if spread.ndim == 2 else np.diag(spread**2)
    family = state.family.outer if isinstance(state.family, NestedFamily) else state.family
    parameters = state.parameters[: family.n_parameters]
    B = family.coupling(parameters)
    mean, own = family.block.moments(family.given(parameters, mu - state.centre))
    return mean, (own if own.ndim == 2 else np.diag(own**2)) + B @ cov @ B.T
