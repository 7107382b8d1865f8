"""Defines a nested Laplace approximation of the unknowns that clients share, deterministic, with weights that say whether it is
right.

xi = (h, u): h the few hyperparameters on which linear predictors depend in another way (phi, sigma_theta, sigma), u all else
(z_G, b, beta), whose prior is Gaussian. A client integrates its areas out given xi; F_j(xi) is its log-likelihood. The server
works in v, coordinates of h in which their prior is standard normal.

1. At several values of v at once it takes Newton steps to the mode u*(v) of p(u | v, y): each client answers with F_j, its
   gradient in u and minus its Hessian. Then log p(v | y) = log p(v) + log p(u*) + sum F_j - log|H| / 2 but for a constant, H
   minus the Hessian of all terms (Laplace).
2. Central differences of that, on stencils, lead to its mode.
3. From there a lattice grows along the axes of the Hessian, until the density all around it is negligible (`design`).
4. Draws of (v, u) come from the values at these points, as functions between the points (`proposals`). Each client answers with
   log p(y_j | xi), and a draw's weight is the posterior's density over that of the draws: Laplace's error is gone, and k-hat, the
   draws of equal weight and the differences between scrambled nets say how well all means and standard deviations are known.

It takes 20 to 150 questions where steps of an optimiser take thousands, and has no learning rate. Source: docs/spec/sigma.md,
section 6.8; Rue, Martino and Chopin (2009).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, final
from typing import Protocol as Shape

import numpy as np
from numpy.typing import NDArray

from ...arrays import Array, Indices
from ...errors import NumericalError
from ...kernels import rng
from ...models.psis import UNRELIABLE
from ...models.weighted import Weighted
from ..core import tells
from ..core.kept import GIVEN, PersistentMap, PersistentSet, load, save
from ..core.messages import SERVER, ClientEffects, Event, Message, Protocol, RemoteFault, ServerEffects, evolve
from ..core.nets import NETS, largest
from ..core.rounds import all_of, ask_all, summed, tell_all, with_answer
from . import design
from .design import HALF_LOG_TAU, Lattice, Search, Source

__all__ = ["load", "save"]  # what stands elsewhere

# Messages --------------------


Places = Annotated[NDArray[np.float64], "c xi"]
PerPlace = Annotated[NDArray[np.float64], "c"]
Slopes = Annotated[NDArray[np.float64], "c u"]
Packed = Annotated[NDArray[np.float64], "c tri"]
Draws = Annotated[NDArray[np.float64], "s xi"]
PerDraw = Annotated[NDArray[np.float64], "s"]
Told = Annotated[NDArray[np.float64], "t xi"]

LOST = -1e300  # a log-likelihood that is not finite: a message holds finite numbers alone


@dataclass(frozen=True)
class AskCurvatures(Message, kind=219):
    """Server to client: places of xi where F_j and its derivatives in u are wanted; the first `count` of them."""

    round: int
    count: int
    points: Places


@dataclass(frozen=True)
class Curvatures(Message, kind=220, tells=tells.AreaSums()):
    """Client to server: F_j at each place, its gradient in u, and minus its Hessian in u (lower triangle, row by row)."""

    round: int
    value: PerPlace
    gradient: Slopes
    hessian: Packed


@dataclass(frozen=True)
class AskMarginals(Message, kind=221):
    """Server to client: draws of xi at which the log-likelihood is wanted."""

    round: int
    points: Draws


@dataclass(frozen=True)
class Marginals(Message, kind=222, tells=tells.AreaSums()):
    """Client to server: log p(y_j | xi) at each draw, and the standard deviation over these of the error that integrating by
    draws has."""

    round: int
    value: PerDraw
    spread: float


@dataclass(frozen=True)
class Mixture(Message, kind=223):
    """Server to client, at the end: draws of the posterior of xi, with which the client knows its own areas."""

    round: int
    draws: Told


# Settings --------------------


PLACES = 16  # of a question for curvatures
POINTS = 1000  # draws of a question for their weights
QUESTIONS, MOST = 4, 16  # questions for weights, and how many where the error of the draws says that so many are enough
EFFECTIVE = 400.0  # draws of equal weight that the weighted ones must be worth
TOLD = 1000  # draws of the posterior that clients are told
ROUNDS = 1000  # some 20 to 150 are needed
INNER = 64  # draws of theta by which a client integrates it out
ERROR = 0.05  # posterior sds by which a mean may be off, and parts of it by which an sd may
SPREAD = 0.5  # nats, of all clients together, by which integrating theta out by draws may be off from one xi to another


@dataclass(frozen=True)
class Settings:
    """Holds settings that every party of a job knows."""

    seed: int  # of all draws
    rounds: int = ROUNDS  # questions, at most
    places: int = PLACES  # of a question for curvatures
    # points, questions: draws of a question for weights, and how many of these there are at most, but for
    points: int = POINTS
    questions: int = QUESTIONS
    most: int = MOST  # questions for weights, where the error of the draws so far says that so many are enough
    effective: float = EFFECTIVE  # draws of equal weight that the weighted ones must be worth
    told: int = TOLD  # draws of the posterior that clients are told at the end
    inner: int = INNER  # draws of theta by which a client integrates it out, where the response is not Gaussian; an even number

    def __post_init__(self) -> None:
        for name, least in (("rounds", 1), ("places", 1), ("points", 16), ("questions", 1), ("told", 1), ("inner", 4)):
            if getattr(self, name) < least:
                raise ValueError(f"nested: {name} must be at least {least}, got {getattr(self, name)!r}")
        if self.most < self.questions:
            raise ValueError(f"nested: most must be at least questions, {self.questions}, got {self.most!r}")
        if self.inner % 4:
            raise ValueError(f"nested: inner must be a multiple of 4, got {self.inner!r}")

    def sizes(self, n_global: int, n_linear: int) -> dict[str, int]:
        """Returns the lengths of the messages' arrays."""
        lower = n_linear * (n_linear + 1) // 2
        return {"c": self.places, "xi": n_global, "u": n_linear, "tri": lower, "s": self.points, "t": self.told}


# Client --------------------


INNER_CHAIN = 1003  # chain of the stream "posterior": released draws have the first 1,000
CHUNKS = 20  # parts of a question's draws that are computed together: memory
APART = 1e3  # nats, where one half of the draws of theta has no weight


class Model(Shape):
    """Is the log-likelihood of a client's rows, theta integrated out; raises NumericalError where it cannot be."""

    @property
    def n_areas(self) -> int:
        """d, the length of theta."""

    def curvatures(self, xi: Array) -> tuple[Array, Array, Array]:
        """Returns F at xi (m, P), its gradients in u (m, U), and minus its Hessians in u (m, U, U)."""

    def log_ratios(self, xi: Array, normals: Array) -> Array:
        """Returns log p(y, theta | xi) / q(theta | xi) (s, m) at each xi, for draws of theta that `normals` (m, d) give."""


@final
@dataclass(frozen=True)
class Client:
    """Is a client's state."""

    # name, index: its name and number
    name: str = field(metadata=GIVEN)
    index: int = field(metadata=GIVEN)
    settings: Settings = field(metadata=GIVEN)
    model: Model = field(metadata=GIVEN)  # of its own rows
    n_linear: int = field(metadata=GIVEN)  # U, the length of u
    round: int = 0  # questions answered
    told: Array | None = None  # (t, P) draws of the posterior, which the server tells at the end


def client(name: str, index: int, settings: Settings, model: Model, n_linear: int) -> Client:
    """Returns a client that has seen nothing yet."""
    return Client(name, index, settings, model, n_linear)


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Answers one question; at the end it takes the draws of the posterior."""
    if not isinstance(event, AskCurvatures | AskMarginals | Mixture) or state.told is not None or event.round != state.round:
        raise RemoteFault(f"server: {type(event).__name__} was not expected in round {state.round}")
    if isinstance(event, Mixture):
        return evolve(state, told=np.array(event.draws)), []
    state = evolve(state, round=state.round + 1)
    with np.errstate(all="ignore"):
        if isinstance(event, AskMarginals):
            return state, [_marginals(state, event)]
        if not 1 <= event.count <= len(event.points):
            raise RemoteFault(f"server: AskCurvatures of {event.count} places was not expected")
        return state, [_curvatures(state, event)]


def _curvatures(state: Client, question: AskCurvatures) -> Curvatures:
    """Returns the curvatures at the places of a question, and zeros for places that are not asked for."""
    c, n, lower = len(question.points), question.count, np.tril_indices(state.n_linear)
    size = state.n_linear
    log_likelihood, slope, curvature = _each(state.model.curvatures, question.points[:n], ((), (size,), (size, size)))
    good = np.isfinite(log_likelihood) & np.isfinite(slope).all(axis=1) & np.isfinite(curvature).all(axis=(1, 2))
    value, gradient, hessian = np.zeros(c), np.zeros((c, state.n_linear)), np.zeros((c, len(lower[0])))
    value[:n], gradient[:n][good], hessian[:n][good] = (
        np.where(good, log_likelihood, LOST),
        slope[good],
        curvature[good][:, *lower],
    )
    return Curvatures(question.round, value, gradient, hessian)


def _marginals(state: Client, question: AskMarginals) -> Marginals:
    """Returns log-likelihoods at draws of xi, with the error of integrating by draws.

    All draws of xi have the same draws of theta, which come in pairs of opposite sign. Two halves of these differ by a constant
    and the error, from which the error of their mean follows.
    """
    s, half = state.settings, state.settings.inner // 2
    key = rng.key(s.seed, "posterior", INNER_CHAIN)
    e = rng.normal(half * state.model.n_areas, key=key, client=state.index).reshape(half, -1)
    normals = np.concatenate([e[: half // 2], -e[: half // 2], e[half // 2 :], -e[half // 2 :]])

    def ratios_at(points: Array) -> tuple[Array]:
        return (state.model.log_ratios(points, normals),)

    # In parts, so that memory is bounded.
    parts = np.array_split(question.points, CHUNKS)
    ratios = np.concatenate([_each(ratios_at, part, ((len(normals),),))[0] for part in parts])
    good = np.isfinite(ratios).all(axis=1)
    # The largest ratio is taken out before exp, which would overflow.
    most = ratios[good].max(axis=1, keepdims=True)
    weights = np.exp(ratios[good] - most)
    value = np.full(len(ratios), LOST)
    value[good] = most[:, 0] + np.log(weights.mean(axis=1))
    with np.errstate(divide="ignore"):
        differ = np.log(weights[:, :half].sum(axis=1)) - np.log(weights[:, half:].sum(axis=1))
    if not good.any():
        return Marginals(question.round, value, 0.0)
    spread = float(differ.std() / 2) if np.isfinite(differ).all() else APART
    return Marginals(question.round, value, spread)


def _each(
    function: Callable[[Array], tuple[Array, ...]], points: Array, shapes: tuple[tuple[int, ...], ...]
) -> tuple[Array, ...]:
    """Computes a function of all points together, or of each alone if that fails; NaN for points where it still fails."""
    try:
        return function(points)
    except NumericalError:
        several = tuple(np.full((len(points), *shape), np.nan) for shape in shapes)
        for k in range(len(points)):
            with suppress(NumericalError):
                for whole, values in zip(several, function(points[k : k + 1]), strict=True):
                    whole[k] = values[0]
        return several


# Server --------------------


MODE, LATTICE, DRAWS = "mode", "lattice", "draws"  # what is being done
ENOUGH, ALL_ROUNDS = "enough", "rounds"  # why no more is asked
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
    """Is the server's state."""

    settings: Settings = field(metadata=GIVEN)
    # prior, names: of xi; of the clients
    prior: Prior = field(metadata=GIVEN)
    names: tuple[str, ...] = field(metadata=GIVEN)
    search: Search  # the open places
    steps: Array  # (n,) of the last stencil
    cells: Array  # (k, n) of the lattice's open places
    # v, mode, hessian, log_density: (K, n), (K, U), (K, U, U), (K,) at ended places, of v | y but for a constant
    v: Array
    mode: Array
    hessian: Array
    log_density: Array
    good: Array  # (K,) whether the steps there came to their end
    known: Array  # (K, n) cells of the lattice; of points of the last stencil none
    # origin, axes: of the lattice
    origin: Array
    axes: Array
    asked: Array  # of the open question, the numbers of its places
    # points_v, points_u, log_q, nets, values: (N, n), (N, U), (N,), (N,), (N, J) draws, and each client's log-likelihood there
    points_v: Array
    points_u: Array
    log_q: Array
    nets: Array
    values: Array
    spread: Array  # (J,) the error of these that is not the same everywhere
    phase: str = MODE  # "mode", "lattice" or "draws"
    first: int = 0  # of v, the number of the lattice's middle
    drawn: int = 0  # questions for weights that were asked
    # round, stencils: questions answered; stencils looked at
    round: int = 0
    stencils: int = 0
    halted: str = ""  # why no more is asked; "" before
    # waiting, answers: clients that have yet to answer; client -> its answer
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
    def updates(self) -> Indices:
        """(J,) The number of rounds in which each client took part: all of them."""
        return np.full(len(self.names), self.round)

    @property
    def lattice(self) -> Lattice:
        """The lattice of places."""
        return Lattice(self.origin, self.axes)

    @property
    def mixture(self) -> Source:
        """The distribution of draws."""
        return Source(self.lattice, self.v, self.mode, self.hessian, self.log_density)


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
    answer = Marginals if drawing else Curvatures
    state = with_answer(state, sender, event, answer)
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
    log_likelihoods = np.array([answer.value[:n] for answer in answers])
    if not np.isfinite(state.search.value).any():
        _defined(state, log_likelihoods)
    trial = state.search.trial[which]
    xi = prior.xi(state.search.v[which], trial)
    log_prior, slope = prior.values(xi)
    # The prior is the server's own share; it is added once.
    value = np.where((log_likelihoods <= LOST).any(axis=0), -np.inf, log_prior + summed(log_likelihoods))
    gradient = slope + summed([answer.gradient[:n] for answer in answers])
    lower = summed([answer.hessian[:n] for answer in answers])
    hessian = np.zeros((n, size, size))
    # Clients send the lower triangle alone.
    rows, columns = np.tril_indices(size)
    hessian[:, rows, columns] = hessian[:, columns, rows] = lower
    diagonal = np.arange(size)
    hessian[:, diagonal, diagonal] += prior.precision
    state = evolve(state, search=state.search.answered(which, value, gradient, hessian))
    if len(state.search.open):
        return _ask_curvatures(state)
    return _stencilled(state) if state.phase == MODE else _grown(state)


def _defined(state: Server, log_likelihoods: Array) -> None:
    """Refuses a start at which a client's value is nowhere a number; `own` (J, c)."""
    if (log_likelihoods <= LOST).any(axis=0).all():
        lost = np.flatnonzero((log_likelihoods <= LOST).all(axis=1))
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
    defined = np.isfinite(density)
    return evolve(
        state,
        v=np.concatenate([state.v, search.v[defined]]),
        mode=np.concatenate([state.mode, search.at[defined]]),
        hessian=np.concatenate([state.hessian, search.hessian[defined]]),
        log_density=np.concatenate([state.log_density, density[defined]]),
        good=np.concatenate([state.good, search.ended[defined].astype(float)]),
        known=np.concatenate([state.known, cells[defined]]),
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
        return _end(state, ALL_ROUNDS, posterior)
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
    draws = posterior.draws[posterior.resampled(state.settings.told, offset(state.settings.seed))]
    return tell_all(evolve(state, halted=why), Mixture(state.round, draws))


# The result --------------------


REMEDY = 'take algorithm.inference = "hmc", or "sfvi"'  # draws are asked as long as they can mend it


@dataclass(frozen=True)
class Found:
    """Holds the result of a job."""

    posterior: Weighted  # draws of xi with their weights
    places: int  # values of the hyperparameters whose conditional posterior is known
    unfinished: int  # how many of these searches did not end
    border: float  # by how many nats the density of the hyperparameters is below its mode where the lattice ends, at least
    wanted: float  # by how many it has to be
    questions: int  # for weights
    error: tuple[float, float]  # by how many posterior sds any mean may be off, and any sd
    spread: float  # nats, of all clients together, by which integrating areas out is off from one draw to another
    # converged, reason: the verdict, and in a sentence why not
    converged: bool
    reason: str


def read_result(state: Server) -> Found:
    """Returns the result of an ended state."""
    if state.stop is None:
        raise ValueError("nested: the job has not ended")
    posterior, s = weighted(state), state.settings
    unfinished, edge, error = int((state.good == 0).sum()), border(state), errors(state, posterior)
    spread, wanted = float(np.sqrt((state.spread**2).sum())), state.lattice.negligible
    against, n, most = [], len(posterior.draws), s.points * s.most
    beyond = f"about {s.points * needed(state, posterior):,.0f} draws would do, and at most {most:,} are asked"
    # Every ground against the result is named, not the first alone.
    if unfinished:
        against.append(f"{unfinished} of {len(state.v)} searches for a mode did not end")
    if edge < wanted:
        against.append(
            f"the density of the hyperparameters is only {edge:.1f} nats below its mode where their lattice ends (wanted "
            f"{wanted:g})"
        )
    if not posterior.reliable:
        against.append(
            f"{n} draws are worth {posterior.effective:.0f} of equal weight (wanted {s.effective:g}), with k-hat "
            f"{posterior.k_hat:.2f} (wanted at most {UNRELIABLE:g}): more draws do not mend it"
        )
    elif posterior.effective < s.effective:
        against.append(f"{n} draws are worth {posterior.effective:.0f} of equal weight (wanted {s.effective:g}): {beyond}")
    elif max(error) > ERROR:
        against.append(
            f"with {n} draws a mean may be {error[0]:.2g} posterior sds off, and an sd {100 * error[1]:.2g} % (wanted {ERROR:g} "
            f"and {100 * ERROR:g} %): {beyond}"
        )
    if spread > SPREAD:
        against.append(
            f"integrating areas out by {s.inner} draws is {spread:.2g} nats off from one value of the unknowns to another "
            f"(wanted at most {SPREAD:g})"
        )
    reason = "; ".join(against)
    if reason:
        reason += f"; {REMEDY}"
    return Found(
        posterior, len(state.v), unfinished, edge, wanted, state.drawn, error, spread, not against, reason
    )  # fmt: skip


# Protocol --------------------


PROTOCOL: Protocol[Server, Client] = Protocol(
    "nested",
    (AskCurvatures, AskMarginals, Mixture),
    (Curvatures, Marginals),
    server_receive,
    client_receive,
    finished,
    save,
    load,
)
