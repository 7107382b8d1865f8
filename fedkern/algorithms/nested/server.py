"""Runs the server of the nested Laplace approximation: the mode, the lattice, the draws and their weights (see `machine`).

Source: docs/spec/sigma.md, section 6.8.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol as Shape
from typing import final

import numpy as np
from numpy.typing import NDArray

from ...errors import NumericalError
from ...kernels import rng
from ...models.weighted import Weighted
from ..core.kept import GIVEN
from ..core.messages import SERVER, Event, RemoteFault, ServerEffects, evolve
from ..core.nets import NETS, largest
from ..core.persistent import PersistentMap, PersistentSet
from ..core.rounds import all_of, ask_all, summed, tell_all, with_answer
from . import design
from .design import Lattice
from .messages import LOST, AskCurvatures, AskMarginals, Curvatures, Marginals
from .messages import Mixture as Told
from .proposals import HALF_LOG_TAU, Mixture
from .search import Search
from .settings import ERROR, Settings

Array = NDArray[np.float64]
Index = NDArray[np.int64]

MODE, LATTICE, DRAWS = "mode", "lattice", "draws"  # what is being done
ENOUGH, ROUNDS = "enough", "rounds"  # why no more is asked
MOST_STENCILS = 15
LOWER = 0.01  # nats by which the middle of a stencil may be below the best point
UNSURE = 2.0  # by how much the number of draws that would do may be too large
NOT_FINITE = 0.01  # the part of the draws at which a client's value may be no number


class Prior(Shape):
    """Is the log-density log p(xi), xi = (h(v), u), where p(v) is near to standard normal and p(u) Gaussian."""

    @property
    def n_hyper(self) -> int: ...
    @property
    def n_linear(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def precision(self) -> Array:
        """(U,) The precision of u."""

    def xi(self, v: Array, u: Array) -> Array:
        """Returns xi (m, P)."""

    def log_jacobian(self, v: Array) -> Array:
        """Returns log |dh / dv| (m,)."""

    def values(self, xi: Array) -> tuple[Array, Array]:
        """Returns log p(xi) (m,), and its gradient in u (m, U)."""


@final
@dataclass(frozen=True)
class Server:
    """Is the server's state.

    Attributes
    ----------
    prior, names : of xi; of the clients
    phase : "mode", "lattice" or "draws"
    search : the open places
    steps : (n,) of the last stencil
    cells : (k, n) of the lattice's open places
    v, mode, hessian, log_density : (K, n), (K, U), (K, U, U), (K,) at ended places, of v | y but for a constant
    good : (K,) whether the steps there came to their end
    known : (K, n) cells of the lattice; of points of the last stencil none
    first : of v, the number of the lattice's middle
    origin, axes : of the lattice
    asked : of the open question, the numbers of its places
    drawn : questions for weights that were asked
    points_v, points_u, log_q, nets, values : (N, n), (N, U), (N,), (N,), (N, J) draws, and each client's log-likelihood there
    spread : (J,) the error of these that is not the same everywhere
    round, stencils : questions answered; stencils looked at
    halted : why no more is asked; "" before
    waiting, answers : clients that have yet to answer; client -> its answer
    """

    settings: Settings = field(metadata=GIVEN)
    prior: Prior = field(metadata=GIVEN)
    names: tuple[str, ...] = field(metadata=GIVEN)
    search: Search
    steps: Array
    cells: Array
    v: Array
    mode: Array
    hessian: Array
    log_density: Array
    good: Array
    known: Array
    origin: Array
    axes: Array
    asked: Array
    points_v: Array
    points_u: Array
    log_q: Array
    nets: Array
    values: Array
    spread: Array
    phase: str = MODE
    first: int = 0
    drawn: int = 0
    round: int = 0
    stencils: int = 0
    halted: str = ""
    waiting: PersistentSet[int] = field(default_factory=PersistentSet)
    answers: PersistentMap[int, Curvatures | Marginals] = field(default_factory=PersistentMap, metadata=GIVEN)

    @property
    def stop(self) -> str | None:
        """The reason why no more is asked; None while the job runs."""
        return self.halted or None

    @property
    def n_clients(self) -> int:
        """The number of clients."""
        return len(self.names)

    @property
    def updates(self) -> Index:
        """(J,) The number of rounds in which each client took part: all of them."""
        return np.full(len(self.names), self.round)

    @property
    def lattice(self) -> Lattice:
        """The lattice of places."""
        return Lattice(self.origin, self.axes)

    @property
    def mixture(self) -> Mixture:
        """The distribution of draws."""
        return Mixture(self.lattice, self.v, self.mode, self.hessian, self.log_density)


def start(settings: Settings, prior: Prior, names: tuple[str, ...]) -> tuple[Server, ServerEffects]:
    """Returns the server's first state and its first question."""
    n, size, J = prior.n_hyper, prior.n_linear, len(names)
    steps = np.full(n, design.FIRST)
    v = design.stencil(np.zeros(n), steps)
    search = Search.begin(v, np.zeros((len(v), size)))
    none, no_v, no_u = np.zeros(0), np.zeros((0, n)), np.zeros((0, size))
    state = Server(
        settings, prior, names, search, steps, no_v, no_v, no_u, np.zeros((0, size, size)), none, none, no_v, np.zeros(n),
        np.eye(n), none, no_v, no_u, none, none, np.zeros((0, J)), np.zeros(J),
    )  # fmt: skip
    return _ask_curvatures(state)


def finished(state: Server) -> bool:
    return state.stop is not None and not state.waiting


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """Takes one answer; after the last it asks the next question. A lost client ends the run: the model needs all of them."""
    drawing = state.phase == DRAWS
    state = with_answer(state, sender, event, Marginals if drawing else Curvatures)
    if isinstance(event, Marginals) and event.spread < 0:
        raise RemoteFault("Marginals.spread is negative", sender)
    if state.waiting:
        return state, []
    state = evolve(state, round=state.round + 1)
    return _weighted(state) if drawing else _searched(state)


# The modes of u --------------------


def _ask_curvatures(state: Server) -> tuple[Server, ServerEffects]:
    which, s = state.search.open[: state.settings.places], state.settings
    if state.round >= s.rounds:
        raise NumericalError(
            f"the {s.rounds} rounds that a nested Laplace approximation may take ended before the posterior was found: take "
            'algorithm.inference = "hmc", or "sfvi"'
        )
    points = np.zeros((s.places, state.prior.size))
    points[: len(which)] = state.prior.xi(state.search.v[which], state.search.trial[which])
    return ask_all(evolve(state, asked=which.astype(float)), AskCurvatures(state.round, len(which), points))


def _searched(state: Server) -> tuple[Server, ServerEffects]:
    """Takes a step at each open place; when all have ended, it goes on by the phase."""
    answers, which, prior = all_of(state.answers, Curvatures), state.asked.astype(int), state.prior
    n, size = len(which), prior.n_linear
    # Answers are padded to a fixed length; the first n are those of the open places.
    own = np.array([answer.value[:n] for answer in answers])
    if not np.isfinite(state.search.value).any():
        _defined(state, own)
    trial = state.search.trial[which]
    at = prior.xi(state.search.v[which], trial)
    log_prior, slope = prior.values(at)
    # The prior is the server's own share; it is added once.
    value = np.where((own <= LOST).any(axis=0), -np.inf, log_prior + summed(own))
    gradient = slope + summed([answer.gradient[:n] for answer in answers])
    lower = summed([answer.hessian[:n] for answer in answers])
    hessian = np.zeros((n, size, size))
    # Clients send the lower triangle alone.
    rows, columns = np.tril_indices(size)
    hessian[:, rows, columns] = hessian[:, columns, rows] = lower
    every = np.arange(size)
    hessian[:, every, every] += prior.precision
    state = evolve(state, search=state.search.answered(which, value, gradient, hessian))
    if len(state.search.open):
        return _ask_curvatures(state)
    return _stencilled(state) if state.phase == MODE else _grown(state)


def _defined(state: Server, own: Array) -> None:
    """Refuses a start at which a client's value is nowhere a number; `own` (J, c)."""
    if (own <= LOST).any(axis=0).all():
        lost = np.flatnonzero((own <= LOST).all(axis=1))
        who = ", ".join(repr(state.names[k]) for k in lost) or "one or another"
        raise NumericalError(
            f"the log-likelihood of client {who} is not finite where the search begins: its rows don't fit the family of model, "
            "or a covariate is very large"
        )


def _log_density(state: Server) -> Array:
    """Returns log p(v | y) (k,) of the places whose search has ended, but for a constant."""
    search, size = state.search, state.prior.n_linear
    log_det = np.array([np.linalg.slogdet(H)[1] if H.any() else np.inf for H in search.hessian])
    density = search.value + state.prior.log_jacobian(search.v) + size * HALF_LOG_TAU - 0.5 * log_det
    return np.where(np.isfinite(density), density, -np.inf)


def _more(state: Server, cells: Array) -> Server:
    """Returns the state with the places whose search has ended; places where nothing is known are left out."""
    density, search = _log_density(state), state.search
    there = np.isfinite(density)
    return evolve(
        state,
        v=np.concatenate([state.v, search.v[there]]),
        mode=np.concatenate([state.mode, search.at[there]]),
        hessian=np.concatenate([state.hessian, search.hessian[there]]),
        log_density=np.concatenate([state.log_density, density[there]]),
        good=np.concatenate([state.good, search.ended[there].astype(float)]),
        known=np.concatenate([state.known, cells[there]]),
    )


def _begin(state: Server, v: Array, cells: Array) -> tuple[Server, ServerEffects]:
    """Looks for the modes at v, from where they seem to be."""
    return _ask_curvatures(evolve(state, search=Search.begin(v, state.mixture.modes(v)), cells=cells))


# The mode of v --------------------


def _stencilled(state: Server) -> tuple[Server, ServerEffects]:
    """Takes another stencil nearer to the mode, or begins the lattice."""
    density, middle, n = _log_density(state), state.search.v[0], state.prior.n_hyper
    if not np.isfinite(density).all():
        raise NumericalError("the posterior of the hyperparameters is not finite near its mode; narrower priors can help")
    best = float(state.log_density.max(initial=-np.inf))
    where = state.v[int(state.log_density.argmax())] if len(state.v) else middle
    state = evolve(state, stencils=state.stencils + 1)
    last = state.stencils >= MOST_STENCILS
    if density[0] < best - LOWER and not last:  # too far
        state = _more(state, np.full(state.search.v.shape, np.nan))
        return _stencil(state, (middle + where) / 2, state.steps)
    gradient, hessian = design.derivatives(density, state.steps)
    step, sds = design.toward(gradient, hessian)
    curved = np.maximum(np.diag(hessian), design.FLAT)
    steps = np.clip(design.OF_SD / np.sqrt(curved), design.LEAST, design.LARGEST)
    right = np.abs(np.log(steps / state.steps)).max(initial=0.0) < np.log(2.0)  # of the size that the curvature asks for
    if n and not last and not (sds < design.NEAR and right):
        state = _more(state, np.full(state.search.v.shape, np.nan))
        return _stencil(state, np.clip(middle + step, -4.0, 4.0), steps)
    # What earlier stencils found is far from the lattice, or beside one of its points.
    size = state.prior.n_linear
    state = evolve(
        state, v=state.v[:0], mode=np.zeros((0, size)), hessian=state.hessian[:0], log_density=state.log_density[:0],
        good=state.good[:0], known=state.known[:0], origin=middle.copy(), axes=design.axes(hessian), phase=LATTICE,
    )  # fmt: skip
    cells = np.full(state.search.v.shape, np.nan)
    cells[0] = 0.0
    return _spread(_more(state, cells))


def _stencil(state: Server, middle: Array, steps: Array) -> tuple[Server, ServerEffects]:
    v = design.stencil(middle, steps)
    return _begin(evolve(state, steps=steps), v, np.zeros((0, len(middle))))


# The lattice --------------------


def _grown(state: Server) -> tuple[Server, ServerEffects]:
    return _spread(_more(state, state.cells))


def _of_lattice(state: Server) -> NDArray[np.bool_]:
    """Returns (K,) which of the points are of the lattice, and not of the stencil."""
    return np.asarray(np.isfinite(state.known).all(axis=1))


def _spread(state: Server) -> tuple[Server, ServerEffects]:
    """Looks at more points of the lattice, or draws."""
    of = _of_lattice(state)
    wanted = state.lattice.wanted(state.known[of].astype(int), state.log_density[of], float(state.log_density.max()))
    wanted = wanted[: max(design.MOST - int(of.sum()), 0)]
    if not len(wanted):
        return _ask_marginals(evolve(state, phase=DRAWS))
    return _begin(state, state.lattice.v(wanted), wanted.astype(float))


def border(state: Server) -> float:
    """Returns by how many nats the density is below its mode where the lattice ends, at least; infinite if there is no v."""
    of = _of_lattice(state)
    best = float(state.log_density.max())
    cells, lattice = state.known[of].astype(int), state.lattice
    open_ = [
        best - density
        for cell, density in zip(cells, state.log_density[of])
        if len(lattice.wanted(cells, np.where((cells == cell).all(axis=1), best, -np.inf), best))
    ]
    return float(min(open_, default=np.inf))


# The draws --------------------


def _ask_marginals(state: Server) -> tuple[Server, ServerEffects]:
    s = state.settings
    draws = state.mixture.draws(s.points, (s.seed, state.drawn))
    state = evolve(
        state,
        points_v=np.concatenate([state.points_v, draws.v]),
        points_u=np.concatenate([state.points_u, draws.u]),
        log_q=np.concatenate([state.log_q, draws.log_density]),
        nets=np.concatenate([state.nets, draws.nets + NETS * state.drawn]),
        drawn=state.drawn + 1,
    )
    return ask_all(state, AskMarginals(state.round, state.prior.xi(draws.v, draws.u)))


def _weighted(state: Server) -> tuple[Server, ServerEffects]:
    """Takes the values of draws; ends, or draws more."""
    answers, s = all_of(state.answers, Marginals), state.settings
    values = np.array([answer.value for answer in answers]).T
    lost = values <= LOST
    if (lost.mean(axis=0) > NOT_FINITE).any():
        k = int(np.argmax(lost.mean(axis=0)))
        raise NumericalError(
            f"the log-likelihood of client {state.names[k]!r} is not finite at {100 * lost.mean(axis=0)[k]:.0f} % of the draws "
            f"(at most {100 * NOT_FINITE:.0f} %): its rows don't fit the family of model, or a covariate is very large"
        )
    # The largest error of each client so far is the one reported.
    spread = np.maximum(state.spread, [answer.spread for answer in answers])
    state = evolve(state, values=np.concatenate([state.values, np.where(lost, -np.inf, values)]), spread=spread)
    posterior = weighted(state)
    if enough(state, posterior):
        return _end(state, ENOUGH, posterior)
    # Past the usual number of questions it goes on only if the number needed is within reach.
    near = needed(state, posterior) <= UNSURE * s.most
    more = state.drawn < s.questions or (near and state.drawn < s.most)
    if not more or state.round >= s.rounds:
        return _end(state, ROUNDS, posterior)
    return _ask_marginals(state)


def weighted(state: Server) -> Weighted:
    """Returns the posterior of xi by the draws so far."""
    xi = state.prior.xi(state.points_v, state.points_u)
    with np.errstate(all="ignore"):
        density = state.prior.values(xi)[0] + state.prior.log_jacobian(state.points_v) + state.values.sum(axis=1)
    return Weighted(xi, np.where(np.isfinite(density), density - state.log_q, -np.inf))


def errors(state: Server, posterior: Weighted) -> tuple[float, float]:
    """Returns by how many posterior sds any mean, and any standard deviation, of (v, u) may be off."""
    points = np.concatenate([state.points_v, state.points_u], axis=1)
    return largest(points, posterior.weights, state.nets.astype(np.int64))


def enough(state: Server, posterior: Weighted) -> bool:
    """Tells whether the draws so far suffice."""
    good = posterior.effective >= state.settings.effective and posterior.reliable
    return good and max(errors(state, posterior)) <= ERROR


def needed(state: Server, posterior: Weighted) -> float:
    """Returns how many questions for weights in all would be enough, in whole numbers.

    The worth of draws grows as their number does, and the square of their error falls as it. The result is infinite if k-hat says
    that no number is enough: q is too narrow there.
    """
    if not posterior.reliable:
        return float("inf")
    worth = state.settings.effective / posterior.effective
    return float(np.ceil(state.drawn * max(worth, (max(errors(state, posterior)) / ERROR) ** 2)))


def offset(seed: int) -> float:
    """Returns the offset of systematic resampling, in [0, 1)."""
    return float(rng.uniform(1, key=rng.key(seed, "posterior", 0), client=SERVER, step=0, draw=0)[0])


def _end(state: Server, why: str, posterior: Weighted) -> tuple[Server, ServerEffects]:
    """Ends the job, and sends the clients draws of the posterior."""
    told = posterior.draws[posterior.resampled(state.settings.told, offset(state.settings.seed))]
    return tell_all(evolve(state, halted=why), Told(state.round, told))
