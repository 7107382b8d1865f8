"""Defines structured federated variational inference: global unknowns xi at the server, local unknowns u_j at the clients.

q(xi) = N(mu, L L') at the server; q(u_j | xi) = N(a_j + B_j (xi - c_j), L_j L_j') at client j, of which nothing is ever sent. In
each round the server draws xi and sends it; a client draws u_j, steps a_j, B_j and L_j, and answers with the gradient of its term
of the bound in xi,

    G_j = dF_j/dxi + B_j' dF_j/du_j = h_xi + B_j' h_u,     h: gradients of log p(y_j, u_j | xi).

(F_j has also -log q(u_j | xi) with frozen parameters, whose derivatives -B_j' L_j^-T e and B_j' L_j^-T e cancel here.) The sum of
the G_j and the prior's gradient is all that the server needs: the gradient equals that of all data in one place.

c_j is a constant. It is moved every `centre_every` steps to the mean of the xi that came since, with a_j shifted by B_j times the
move, so that a_j and B_j stay nearly uncorrelated, mu never has to travel, and dF/dmu is the sum of the G_j exactly.

SFVI-Avg (`local_steps` > 0) sends q(xi) itself; each client takes that many steps of its own, with log p(xi) - log q(xi) + F_j /
w_j, w_j its public weight, and the server takes the Wasserstein barycentre of their results. It is not exact. Source:
docs/spec/sigma.md, section 6; Hassan, Salomone and Mengersen (2023).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from ...arrays import Matrix, Vector
from ...errors import NumericalError
from ...kernels import rng
from ...models.hierarchical import GlobalPrior, LocalModel
from ...models.variational import Block
from ...privacy.masks import WIDE
from ..core import tells, until
from ..core.box import Box
from ..core.kept import GIVEN, PersistentMap, PersistentSet, load, only, save
from ..core.masked import MOVING, MaskedGradient, MaskedGradientMore, Sum
from ..core.messages import SERVER, ClientEffects, Event, Message, Protocol, RemoteFault, Saved, ServerEffects, evolve
from ..core.optim import OPTIMISERS
from ..core.rounds import AllRounds, all_of, ask_all, in_order, needs_all, summed, tell_all, to_each, with_answer
from ..core.schedule import Asynchronous, Rules
from ..core.windows import LastFifth, Windows, reach
from .families import Family, NestedFamily, Ridge, Shear, barycentre

__all__ = ["Family", "barycentre", "load", "save"]  # what stands elsewhere

# Messages --------------------


Draws = Annotated[NDArray[np.float64], "s xi"]
Parameters = Annotated[NDArray[np.float64], "k"]


@dataclass(frozen=True)
class Global(Message, kind=70):
    """Server to client: draws of xi."""

    round: int
    xi: Draws


@dataclass(frozen=True)
class GlobalGradient(Message, kind=71, tells=tells.AreaSums()):
    """Client to server: G_j of each draw, and nothing else. (A client has one open question, so no round is needed.)"""

    gradient: Draws

    @classmethod
    def count(cls, dims: Mapping[str, int]) -> int:
        """Returns how many numbers are added."""
        return dims["s"] * dims["xi"]

    def numbers(self) -> Draws:
        """Returns the gradient."""
        return self.gradient.ravel()

    @classmethod
    def of_sum(cls, round: int, numbers: Draws, dims: Mapping[str, int]) -> GlobalGradient:
        """Returns the answer of all clients together."""
        return cls(numbers.reshape(dims["s"], dims["xi"]))


@dataclass(frozen=True)
class GlobalGradientBound(Message, kind=72, tells=tells.AreaSums()):
    """Client to server, instead, in a job with a trace: also F_j, its term of the bound at these draws, on average."""

    gradient: Draws
    bound: float

    @classmethod
    def count(cls, dims: Mapping[str, int]) -> int:
        """Returns how many numbers are added."""
        return dims["s"] * dims["xi"] + 1

    def numbers(self) -> Draws:
        """Returns the gradient, and the bound."""
        return np.append(self.gradient, self.bound)

    @classmethod
    def of_sum(cls, round: int, numbers: Draws, dims: Mapping[str, int]) -> GlobalGradientBound:
        """Returns the answer of all clients together."""
        return cls(numbers[:-1].reshape(dims["s"], dims["xi"]), float(numbers[-1]))


@dataclass(frozen=True)
class Fitted(Message, kind=73):
    """Server to client, at the end: the flat parameters of q(xi'), and the numbers of the map from xi' to xi (see `shear`).

    With these the client knows q(xi), and so q(u_j).
    """

    round: int
    parameters: Parameters
    ridge: Annotated[NDArray[np.float64], "ridge"]


@dataclass(frozen=True)
class Start(Message, kind=74):
    """Server to client, SFVI-Avg: q(xi), from which the client takes its own steps."""

    round: int
    parameters: Parameters


@dataclass(frozen=True)
class Reached(Message, kind=75, tells=tells.Figure()):
    """Client to server, SFVI-Avg: q(xi) after its steps."""

    round: int
    parameters: Parameters


SUMS = (Sum(GlobalGradient, MaskedGradient, WIDE), Sum(GlobalGradientBound, MaskedGradientMore, WIDE), MOVING)


# Settings --------------------


LARGEST_FULL = 64  # local unknowns up to which L_j is triangular by default


@dataclass(frozen=True)
class Settings:
    """Holds settings that every party of a job knows."""

    rounds: int  # questions of the server; of the length at hand if they go on until all has settled
    most: int  # 0, or the longest length of such a job (`core.until`)
    covariance: str  # of q(xi), "full" or "diagonal"
    local_covariance: str  # of q(u_j | xi), "full", "diagonal" or "auto" (full up to 64 unknowns)
    coupled: bool  # whether q(u_j | xi) has a B_j; without it u_j and xi are independent under q
    draws: int  # of (xi, u) in each step
    path: bool  # sticking-the-landing gradients, or the closed-form entropy
    # optimiser, learning_rate: "adam", "adagrad" or "sgd"
    optimiser: str
    learning_rate: float
    decay: float  # share of the rounds, at the end, over which the rate falls to nothing
    # initial_sd, local_sd: of q(xi), and of q(u_j | xi), at the start
    initial_sd: float
    bound: bool  # whether clients send their term of the bound, one number a round
    sheared: bool  # whether the server may shear xi (see `shear`)
    local_steps: int  # of SFVI-Avg in each round; 0 for SFVI
    seed: int  # of the keyed random streams
    lead: int  # answers by which a client may be ahead of the slowest; 0: all answer in each round
    centre_every: int = 100  # steps between two moves of the centring point
    local_sd: float = 1.0
    weights: tuple[float, ...] = ()  # of SFVI-Avg, public, adding up to 1; empty for equal ones
    box: Box | None = None  # of xi, where clients mask their answers: their own numbers stay within bounds then, too

    def __post_init__(self) -> None:
        def refuse(what: str, wanted: str) -> None:
            raise ValueError(f"sfvi: {what} must be {wanted}, got {getattr(self, what)!r}")

        for name, least in (("rounds", 1), ("draws", 1), ("centre_every", 1), ("local_steps", 0)):
            if getattr(self, name) < least:
                refuse(name, f"at least {least}")
        for name in ("learning_rate", "initial_sd", "local_sd"):
            if not 0 < getattr(self, name) < np.inf:
                refuse(name, "positive and finite")
        if self.covariance not in ("full", "diagonal"):
            refuse("covariance", "'full' or 'diagonal'")
        if self.local_covariance not in ("full", "diagonal", "auto"):
            refuse("local_covariance", "'full', 'diagonal' or 'auto'")
        if self.optimiser not in OPTIMISERS:
            refuse("optimiser", " or ".join(OPTIMISERS))
        if not 0 <= self.decay <= 1:
            refuse("decay", "in [0, 1]")
        if self.most and not 0 < self.decay < 1:
            refuse("decay", "between 0 and 1 where rounds go on until all has settled")
        if self.weights and not (min(self.weights) > 0 and abs(sum(self.weights) - 1) < 1e-9):
            refuse("weights", "positive, adding up to 1")
        if self.bound and self.local_steps:
            refuse("bound", "False with local_steps > 0: clients of SFVI-Avg have no common draw of xi after their first step")
        if self.sheared and self.local_steps:
            refuse("sheared", "False with local_steps > 0: clients of SFVI-Avg take steps of q(xi) itself")

    def block(self, size: int) -> Block:
        """Returns q(xi), or q(xi') if xi is sheared."""
        return Block(size, self.covariance == "full")

    def family(self, model: LocalModel) -> Family:
        """Returns q(u_j | xi)."""
        small = self.local_covariance == "auto" and model.size <= LARGEST_FULL
        return Family(Block(model.size, small or self.local_covariance == "full"), model.n_global, self.coupled)

    def sizes(self, n_global: int, n_ridge: int = 0) -> dict[str, int]:
        """Returns the lengths of the messages' arrays: s draws of xi numbers, k parameters of q, and the `told` numbers of a
        ridge."""
        return {"s": self.draws, "xi": n_global, "k": self.block(n_global).n_parameters, "ridge": n_ridge}

    @property
    def steady(self) -> int:
        """The number of rounds at the full rate."""
        return round((1 - self.decay) * self.rounds)

    def windows(self, size: int) -> Windows:
        """Returns the windows of `size` unknowns before the first round."""
        return Windows.of(self.steady, size, reach(self.optimiser, self.learning_rate, self.steady * max(self.local_steps, 1)))

    @property
    def kinds(self) -> tuple[type[Message], type[Message]]:
        """The question and the answer of a round."""
        if self.local_steps:
            return Start, Reached
        if self.bound:
            return Global, GlobalGradientBound
        return Global, GlobalGradient

    def rate(self, round: int) -> float:
        """Returns the learning rate of a round."""
        falling = self.decay * self.rounds
        share = min(1.0, (self.rounds - round) / falling) if falling else 1.0
        return self.learning_rate * share

    def weight(self, client: int, n_clients: int) -> float:
        """Returns w_j."""
        return self.weights[client] if self.weights else 1 / n_clients

    def normals(self, round: int, step: int, size: int) -> Matrix:
        """Returns the normals (draws, size) of xi, the same for all who need them."""
        count = round * max(self.local_steps, 1) + step
        e = rng.normal(self.draws * size, key=rng.key(self.seed, "draws"), client=SERVER, step=count)
        return e.reshape(self.draws, size)


# Client --------------------


@final
@dataclass(frozen=True)
class Client:
    """Is a client's state."""

    # name, index, n_clients: its name and number, and J
    name: str = field(metadata=GIVEN)
    index: int = field(metadata=GIVEN)
    n_clients: int = field(metadata=GIVEN)
    settings: Settings = field(metadata=only("rounds", "most"))
    model: LocalModel = field(metadata=GIVEN)  # of its own rows
    # family, parameters, optimiser: q(u | xi), its flat parameters, and the state of its optimiser
    family: Family | NestedFamily = field(metadata=GIVEN)
    parameters: Vector
    optimiser: Matrix
    windows: Windows  # mean and sd of q(u | xi) at one xi, `reference`, over two stretches of the rounds
    # prior, block, global_optimiser: of xi, for the steps of SFVI-Avg; None in SFVI
    prior: GlobalPrior | None = field(default=None, metadata=GIVEN)
    block: Block | None = field(default=None, metadata=GIVEN)
    global_optimiser: Matrix | None = None
    reference: Vector | None = None  # c when the first of them began
    # centre, recent, count: c; sum and number of the xi that came since it was moved; None before the first
    centre: Vector | None = None
    recent: Vector | None = None
    count: int = 0
    step: int = 0  # its own count of steps
    fitted: Vector | None = None  # the flat parameters of q(xi'), at the end
    ridge: Vector | None = None  # the numbers of the map from xi' to xi, as the server sent them
    seed: int = 0  # of its own random numbers: that of all streams, or one that nobody else has

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
    seed = settings.seed if seed is None else seed
    state = evolve(state, seed=seed)
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
    reference = state.centre if state.reference is None else state.reference
    mean, sd = state.family.moments(state.parameters, reference, state.centre)
    return evolve(state, reference=reference, windows=state.windows.add(round, mean, sd))


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
    mean, local_spread = family.block.moments(family.given(parameters, mu - state.centre))
    covariance = local_spread if local_spread.ndim == 2 else np.diag(local_spread**2)
    return mean, covariance + B @ cov @ B.T


# Terms --------------------


INNER = 16  # draws of theta for each xi, where clients' areas are integrated out
TOGETHER = 50  # xi whose priors are known at once
SAMPLED = 4  # of u elsewhere, each of which takes as long as a step


def log_terms(state: Client, xi: Matrix, key: int, first: int = 0) -> Vector:
    """Returns estimates (m,) of log p(y | xi) at xi (m, P). `key`: of the draws of u, a stream of the client's own number;
    `first`: number of the first of xi among all that are asked about."""
    from ...models.spatial.within_site import WithinSite  # with SciPy's sparse matrices, which only maps need

    family, model = state.family, state.model
    if isinstance(model, WithinSite) and model.integrated and model.likelihood.record.link == "identity":  # exactly
        parts = np.split(xi, range(TOGETHER, len(xi), TOGETHER))
        return np.concatenate([model.log_joint_grads(part, np.zeros((len(part), 0)))[0] for part in parts])
    if isinstance(model, WithinSite) and model.integrated:
        d = model.n_areas
        return np.array([model.log_marginal(x, _normals_of(key, state.index, first + k, INNER, d)) for k, x in enumerate(xi)])
    assert state.centre is not None
    out = np.empty(len(xi))
    for k, x in enumerate(xi):
        eps = _normals_of(key, state.index, first + k, SAMPLED, family.n_normals)
        ratios = [family.gradient(model, state.parameters, x, state.centre, e, bound=True)[0] for e in eps]
        out[k] = logsumexp(ratios) - np.log(SAMPLED)
    return out


def _normals_of(key: int, client: int, step: int, inner: int, size: int) -> Matrix:
    return rng.normal(inner * size, key=key, client=client, step=step).reshape(inner, size)


# Server --------------------


TRACED = 100  # rounds whose bounds are averaged into one number of the trace


@final
@dataclass(frozen=True)
class Server(AllRounds):
    """Is the server's state."""

    settings: Settings = field(metadata=only("rounds", "most"))
    prior: GlobalPrior = field(metadata=GIVEN)  # of xi
    # block, parameters, optimiser: q(xi'), its flat parameters, and the state of its optimiser
    block: Block = field(metadata=GIVEN)
    parameters: Vector
    optimiser: Matrix
    # names, round: of the clients; rounds finished
    names: tuple[str, ...] = field(metadata=GIVEN)
    windows: Windows  # mean and sd of q(xi) over two stretches of the rounds
    last_fifth: LastFifth  # the bound over the last fifth of them
    ridge: Ridge | None = field(default=None, metadata=GIVEN)  # along which xi is sheared; None if it is not
    round: int = 0
    # waiting, answers: clients that have yet to answer; client -> its answer
    waiting: PersistentSet[int] = field(default_factory=PersistentSet)
    answers: PersistentMap[int, GlobalGradient | GlobalGradientBound | Reached | until.Moving] = field(
        default_factory=PersistentMap, metadata=GIVEN
    )
    # trace, recent: bounds, each the mean of 100 rounds; the sum of the bounds since
    trace: tuple[float, ...] = ()
    recent: float = 0.0
    # whom to ask where clients do not wait for one another; None where they do. A round is as many answers as clients
    schedule: Asynchronous | None = None
    slots: tuple[Vector, ...] = ()  # of each client what its last answer is in the next step; empty before the first
    drawn: tuple[Matrix, ...] = ()  # of each client the xi' of its open question
    # of each client (P, 1 + P) the gradient at the mean, and how it follows the normals of a draw
    linear: tuple[Matrix, ...] = ()

    def restored(self, saved: Saved) -> Server:
        """Returns the state with what follows of the schedule."""
        if self.schedule is None:
            return self
        return _ruled(self)

    @property
    def updates(self) -> NDArray[np.int64]:
        """(J,) The answers of each client."""
        return super().updates if self.schedule is None else self.schedule.updates

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
    state = Server(settings, prior, block, parameters, optimiser, names, windows, last_fifth, ridge)
    if settings.lead:
        J, avg = len(names), bool(settings.local_steps)
        linear = np.zeros((block.size, 0 if avg else block.size + 1))
        state = evolve(state, schedule=Asynchronous.of(Rules(J)), slots=(parameters if avg else np.zeros(0),) * J)
        state = _ruled(evolve(state, drawn=(np.zeros((0, block.size)),) * J, linear=(linear,) * J))
    return _ask(state)


def finished(state: Server) -> bool:
    return state.stop is not None and not state.waiting


def _ruled(state: Server) -> Server:
    """Returns the state with the schedule of the length at hand: all clients come to its end, or to where it is judged."""
    s = state.settings
    assert state.schedule is not None
    rules = Rules(state.n_clients, s.rounds, lead=s.lead, halt=s.steady if s.rounds < s.most else s.rounds)
    return evolve(state, schedule=evolve(state.schedule.resumed(), rules=rules))


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
    state = evolve(state, settings=settings)
    state, questions = _asked(state if state.schedule is None else _ruled(state))
    return state, [*length, *questions]


def _asked(state: Server) -> tuple[Server, ServerEffects]:
    """Asks the question of a round; where clients do not wait for one another, all who may be asked, each its own next one."""
    if state.schedule is None:
        return ask_all(state, _question(state, state.round, _inner(state)))
    schedule, free = state.schedule.next()
    drawn, effects = list(state.drawn), list[tuple[int, Any]]()
    for k in free:
        n = schedule.course(k).answers
        drawn[k] = _inner(state, n * state.n_clients + k)
        effects.append((k, _question(state, n, drawn[k])))
    return evolve(state, schedule=schedule, drawn=tuple(drawn), waiting=PersistentSet()), effects


def _question(state: Server, round: int, inner: Matrix) -> Message:
    """Returns the question of a client's round, about these xi'."""
    if state.settings.local_steps:
        return Start(round, state.parameters)
    xi = _asked_about(state, inner)
    if not np.isfinite(xi).all():
        raise NumericalError(f"server: round {round}: draws of xi left the finite numbers: lower learning_rate")
    return Global(round, xi)


def _asked_about(state: Server, inner: Matrix) -> Matrix:
    """Returns xi (draws, P) of these xi'; with a box the nearest in it, whose sides no posterior comes near."""
    xi = state.shear.out(inner)
    return xi if state.settings.box is None else state.settings.box.nearest(xi)


def _inner(state: Server, round: int | None = None) -> Matrix:
    """Returns xi' (draws, P) of this round, or of a client's."""
    return np.array([state.block.sample(state.parameters, e) for e in _normals(state, round)])


def _normals(state: Server, round: int | None = None) -> Matrix:
    return state.settings.normals(state.round if round is None else round, 0, state.block.size)


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """Takes one answer; after the last it takes the step. A lost client ends the run: the model needs all its clients."""
    if until.judged(state.settings, state.round):
        state = with_answer(state, sender, event, until.Moving)
        if state.waiting:
            return state, []
        bits = [until.bit(k, answer) for k, answer in enumerate(all_of(state.answers, until.Moving))]
        return _lengthened(state, settled=all(bits))
    if state.schedule is not None:
        return _one_answer(state, state.schedule, sender, event)
    state = with_answer(state, sender, event, state.settings.kinds[1])
    if state.waiting:
        return state, []
    with np.errstate(all="ignore"):  # what leaves the finite numbers is found in both
        stepped = _averaged(state) if state.settings.local_steps else _step(state)
        return _ask(stepped)


def _step(state: Server) -> Server:
    """Takes one step of q(xi), with the answers in client order."""
    s, total = state.settings, np.zeros((state.settings.draws, state.block.size))
    # The sum is in client order, for the same bits on every run.
    for answer in in_order(state.answers):
        if isinstance(answer, GlobalGradient | GlobalGradientBound):
            total += answer.gradient
    g, bound = np.zeros(state.block.n_parameters), 0.0
    inner = _inner(state)
    for e, share, inner_xi, xi in zip(_normals(state), total, inner, _asked_about(state, inner)):
        value, slope = state.prior.log_prior_grad(xi)
        # The prior's gradient is added once, here.
        g += state.block.gradient(state.parameters, e, state.shear.pulled(inner_xi, share + slope), path=s.path)
        if s.bound:
            bound += (value - state.block.log_density(state.parameters, e)) / s.draws
    if s.bound:
        bound += sum(answer.bound for answer in all_of(state.answers, GlobalGradientBound))
    return _ended(_moved(state, g / s.draws), bound)


def _moved(state: Server, g: Vector, parts: int = 1) -> Server:
    """Moves q(xi) by the step of a round, or by a part of it."""
    s = state.settings
    optimiser, move = OPTIMISERS[s.optimiser](1.0).update(state.optimiser, g)
    parameters = state.parameters + s.rate(state.round) / parts * move
    if not np.isfinite(parameters).all():
        raise NumericalError(f"server: round {state.round} left the finite numbers: lower learning_rate")
    return evolve(state, parameters=parameters, optimiser=optimiser)


def _ended(state: Server, bound: float) -> Server:
    """Counts a round; `bound` is that of its draws."""
    state = _moved_on(state)
    state = evolve(state, round=state.round + 1)
    if not state.settings.bound:
        return state
    state = evolve(state, last_fifth=state.last_fifth.add(state.round - 1, bound))
    recent = state.recent + bound
    # The trace has means of several rounds: one round's bound is noisy.
    if state.round % TRACED:
        return evolve(state, recent=recent)
    return evolve(state, recent=0.0, trace=(*state.trace, recent / TRACED))


# Where clients do not wait for one another, the server keeps what each client's last answer says of the gradient, and takes a
# J-th of a step whenever one has come. Answers to different draws have noise that does not cancel as that of one draw does. Most
# of it is linear in the draw's normals: the server learns for each client how its gradient follows them, and takes that part's
# mean instead. See docs/spec/sigma.md, section 6.9.

LEARNING = 0.2  # of normalised least mean squares


def _one_answer(state: Server, schedule: Asynchronous, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """Takes the answer of a client that waits for nobody, and the step that follows from it."""
    needs_all(event, state.names, state.round)
    if not isinstance(event, state.settings.kinds[1]) or sender not in schedule.waiting:
        raise RemoteFault(f"{type(event).__name__} was not asked of it in round {state.round}", sender)
    n, J, bound = schedule.course(sender).answers, state.n_clients, np.zeros(1)
    if isinstance(event, Reached) and event.round != n:
        raise RemoteFault(f"Reached.round is {event.round}, asked was {n}", sender)
    with np.errstate(all="ignore"):  # what leaves the finite numbers is found in both
        if isinstance(event, Reached):
            slots = _with(state.slots, sender, event.parameters)
            state = _at_barycentre(evolve(state, slots=slots), slots)
        else:
            assert isinstance(event, GlobalGradient | GlobalGradientBound)
            state = _learnt(state, sender, n, event)
            if all(map(len, state.slots)):  # the first step is of all rows
                g, bound = np.split(summed(state.slots), [-1])
                nothing = np.zeros(state.block.size)
                state = _moved(state, g + state.block.gradient(state.parameters, nothing, nothing, path=False), J)
    schedule = schedule.counted([sender], applied=True).heard(sender)
    state = evolve(state, schedule=schedule)
    return _ask(_ended(state, float(bound[0])) if schedule.version % J == 0 else state)


def _learnt(state: Server, client: int, round: int, answer: GlobalGradient | GlobalGradientBound) -> Server:
    """Puts an answer, with a J-th part of the prior, into its slot, and learns from it how that gradient follows draws."""
    block, inner, J = state.block, state.drawn[client], state.n_clients
    linear, parts = state.linear[client], []
    for e, G, inner_xi, xi in zip(_normals(state, round * J + client), answer.gradient, inner, _asked_about(state, inner)):
        value, slope = state.prior.log_prior_grad(xi)
        gradient = state.shear.pulled(inner_xi, G + slope / J)
        rest, z = gradient - linear[:, 1:] @ e, np.append(1.0, e)
        error = gradient - linear @ z
        flat = block.chained(state.parameters, rest, np.outer(error, e) + linear[:, 1:])
        parts.append(np.append(flat, (value - block.log_density(state.parameters, e)) / J))
        linear = linear + LEARNING * np.outer(error, z) / (z @ z)
    slot = np.mean(parts, axis=0)
    slot[-1] += answer.bound if isinstance(answer, GlobalGradientBound) else 0.0
    return evolve(state, slots=_with(state.slots, client, slot), linear=_with(state.linear, client, linear))


def _with(each: tuple[Vector, ...], client: int, new: Vector) -> tuple[Vector, ...]:
    """Returns the arrays of all clients with another of one."""
    return (*each[:client], new, *each[client + 1 :])


def _averaged(state: Server) -> Server:
    """Takes the barycentre of the clients' q(xi)."""
    return _ended(_at_barycentre(state, [answer.parameters for answer in all_of(state.answers, Reached)]), 0.0)


def _at_barycentre(state: Server, each: Sequence[Vector]) -> Server:
    """Returns the state with q(xi) at the barycentre of those of the clients."""
    weights = np.array([state.settings.weight(k, state.n_clients) for k in range(state.n_clients)])
    reached = np.array(each)
    with np.errstate(over="ignore", invalid="ignore"):
        wide = [k for k, row in enumerate(reached) if not np.isfinite(state.block.moments(row)[1]).all()]
    if wide:
        raise NumericalError(
            f"server: round {state.round}: q(xi) of client {state.names[wide[0]]!r} is not finite: lower learning_rate"
        )
    return evolve(state, parameters=barycentre(state.block, reached, weights))


def _moved_on(state: Server) -> Server:
    """Adds the moments of q(xi) after this round if it is one of the watched."""
    if state.windows.place(state.round) is None:
        return state
    return evolve(state, windows=state.windows.add(state.round, *state.shear.mean_sd(state.block, state.parameters)))


def posterior_moments(state: Server) -> tuple[Vector, Vector]:
    """Returns the mean of q(xi), and its standard deviations (P,) or covariance (P, P); of one that is sheared those at the
    tangent."""
    return state.shear.moments(state.block, state.parameters)


# Protocol --------------------


def protocol(settings: Settings) -> Protocol[Server, Client]:
    """Returns the protocol with only the messages that a job of these settings can send."""
    question, answer = settings.kinds
    down: tuple[type[Message], ...] = (question, Fitted)
    up: tuple[type[Message], ...] = (answer,)
    if settings.rounds < settings.most:
        down, up = (*down, *until.DOWN), (*up, *until.UP)
    return Protocol("sfvi", down, up, server_receive, client_receive, finished, save, load)
