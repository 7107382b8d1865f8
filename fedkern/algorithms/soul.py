"""Defines stochastic optimisation by unadjusted Langevin (SOUL) for vertically split data: z is maximised, theta_j sampled given
z.

In each round client j takes M Langevin steps of theta_j given z_j, from where its chain was left,

    theta <- theta + h [ H'((z - g)/rho^2 + own) + grad log p(theta) ] + sqrt(2 h) xi,   own: AV 0, PL rho_j(theta),

and its mean g over these steps (PL: its mean rho_j too) moves z by a Robbins-Monro step,

    z_j <- z_j + c_k [ message_j - (z_j - gbar_j)/rho^2 ] / (1/rho^2 + J kappa),   c_k = min(1, (50/k)^0.6),

message_j: AV r(Z), PL the sum of the other clients' rhobar; PL has (J - 1)^2/J in the place of J. b and log sigma are maximised
with z, by steps of their own. Three forms:

| response | server to client | client to server | who keeps z |
|---|---|---|---|
| AV, at the server | z_j | gbar_j | server |
| AV, shared | Z, b, log sigma | z_j | client |
| PL (shared) | z_j, Z, b, log sigma | gbar_j, rhobar_j, its slope in log sigma | server |

The two forms of AV give the same bits. h is 0.2 over the largest curvature, so chains are 5 % too wide at most; z is averaged
over the second half of the rounds. The result is a mode of z and draws from p(theta | zhat, y). These are **not** the posterior
of theta: they are labelled "conditional", and are much narrower. Source: docs/spec/vertical.md, section 10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, final

import numpy as np
from numpy.typing import NDArray

from ..arrays import Matrix, Vector
from ..errors import NumericalError
from ..kernels import rng
from ..models.likelihood import Likelihood
from ..models.split.predictors import Linear, Predictor
from .core import tells
from .core.kept import GIVEN, PersistentMap, PersistentSet, load, save
from .core.messages import NO_PREDICTOR, ClientEffects, Event, Message, Protocol, RemoteFault, ServerEffects, evolve
from .core.rounds import AllRounds, all_of, ask_all, summed, with_answer
from .core.trace import Trace

# Messages --------------------


Rows = Annotated[NDArray[np.float64], "n"]
Dispersion = Annotated[NDArray[np.float64], "gamma"]


@dataclass(frozen=True)
class Auxiliary(Message, kind=80):
    """Server to client (AV, y at the server): z_j."""

    round: int
    z: Rows


@dataclass(frozen=True)
class Predicted(Message, kind=81, tells=tells.PerRow(computed=tells.SPAN)):
    """Client to server (AV, y at the server): the mean of g_j over its steps."""

    round: int
    g: Rows


@dataclass(frozen=True)
class Total(Message, kind=82):
    """Server to client (AV, y shared): Z = offset + sum_j z_j, b and log sigma."""

    round: int
    Z: Rows
    b: float
    log_scale: Dispersion


@dataclass(frozen=True)
class Moved(Message, kind=83, tells=tells.PerRow()):
    """Client to server (AV, y shared): z_j after its step."""

    round: int
    z: Rows


@dataclass(frozen=True)
class AuxiliaryTotal(Message, kind=84):
    """Server to client (PL): z_j and Z, b and log sigma."""

    round: int
    z: Rows
    Z: Rows
    b: float
    log_scale: Dispersion


@dataclass(frozen=True)
class Slopes(Message, kind=85, tells=tells.PerRow(computed=tells.SPAN)):
    """Client to server (PL): means over its steps of g_j, of rho_j, and of its part of the slope in log sigma."""

    round: int
    g: Rows
    rho: Rows
    scales: Dispersion


Question = Auxiliary | AuxiliaryTotal | Total


# Settings --------------------


@dataclass(frozen=True)
class Settings:
    """Holds numbers that all parties of a job have in common."""

    seed: int
    rounds: int  # of which the second half is averaged
    n_rows: int
    n_clients: int
    rho: float  # standard deviation of z about g
    model: str  # "augmented" (AV) or "power" (PL)
    response: str  # where y is: "server", or "shared" with all clients (PL: always)
    langevin_steps: int  # M, of each client in each round
    keep: int  # draws of theta that each client keeps, at most
    dispersed: bool  # whether log sigma is maximised with z

    def __post_init__(self) -> None:
        def refuse(what: str, wanted: str) -> None:
            raise ValueError(f"soul: {what} must be {wanted}, got {getattr(self, what)!r}")

        for name, least in (("rounds", 2), ("n_rows", 1), ("n_clients", 1), ("langevin_steps", 1), ("keep", 1)):
            if getattr(self, name) < least:
                refuse(name, f"at least {least}")
        if not 1e-6 < self.rho < 1e6:
            refuse("rho", "in (1e-6, 1e6): it is a standard deviation")
        if self.model not in ("augmented", "power"):
            refuse("model", "'augmented' or 'power'")
        if self.response not in ("server", "shared"):
            refuse("response", "'server' or 'shared'")
        if self.model == "power" and self.response != "shared":
            refuse("response", "'shared' with model = 'power', whose clients need y")

    @property
    def power(self) -> bool:
        """Whether the model is the power likelihood."""
        return self.model == "power"

    @property
    def kinds(self) -> tuple[type[Question], type[Message]]:
        """The one question and the one answer of the whole job: the model and the place of the response leave no other."""
        if self.power:
            return AuxiliaryTotal, Slopes
        if self.response == "shared":
            return Total, Moved
        return Auxiliary, Predicted

    def dims(self) -> dict[str, int]:
        """Returns the sizes of the messages."""
        return {"n": self.n_rows, "gamma": int(self.dispersed)}

    def decay(self, round: int) -> float:
        """Returns c_k, k = round + 1."""
        return float(min(1.0, (50 / (round + 1)) ** 0.6))

    @property
    def first(self) -> int:
        """The first round of the second half, which is averaged."""
        return (self.rounds + 1) // 2

    @property
    def thin(self) -> int:
        """The number of rounds between two draws that are kept."""
        return -(-(self.rounds - self.first) // self.keep)

    @property
    def crowd(self) -> float:
        """The number of times that kappa stands in the curvature of z."""
        J = self.n_clients
        return (J - 1) ** 2 / J if self.power else J

    def moved(self, z: Vector, message: Vector, g: Vector, kappa: Vector | float, round: int) -> Vector:
        """Returns z after its Robbins-Monro step.

        With a kappa of each row (counts), rows of all clients together move by 1 at most.
        """
        pull = 1 / self.rho**2
        step = self.decay(round) / (pull + self.crowd * kappa) * (message - pull * (z - g))
        if isinstance(kappa, np.ndarray):
            step = np.clip(step, -1 / self.n_clients, 1 / self.n_clients)
        out: Vector = z + step
        return out


# Client --------------------


LABEL = "conditional"  # of the draws, wherever they are shown
SHARE = 0.2  # of 1 / (largest curvature): the Langevin step


@final
@dataclass(frozen=True)
class Client:
    """Is a client's state."""

    name: str = field(metadata=GIVEN)
    index: int = field(metadata=GIVEN)
    settings: Settings = field(metadata=GIVEN)
    predictor: Linear = field(metadata=GIVEN)  # g = H theta; no message can carry its content
    # y, likelihood: its copy of the response, and the family of it; None if only the server has it
    y: Vector | None = field(metadata=GIVEN)
    likelihood: Likelihood | None = field(metadata=GIVEN)
    # gram, largest: H'H, and its largest eigenvalue
    gram: Matrix = field(metadata=GIVEN)
    largest: float = field(metadata=GIVEN)
    theta: Vector  # (p,) the place of its chain
    z: Vector  # (N,) its auxiliary variables, if it keeps them itself (AV, y shared)
    # total, squares: (p,), (p, p) sums over the draws of these rounds
    total: Vector
    squares: Matrix
    trace: Trace  # the draws that are kept, by the name "theta"
    # round, step: rounds answered; its own count of Langevin steps, the last word of its random counters
    round: int = 0
    step: int = 0
    count: int = 0

    def langevin_step(self, kappa: float) -> float:
        """Returns h = 0.2 / (largest eigenvalue of the gradient's linear part)."""
        s = self.settings
        power = kappa / s.n_clients if s.power else 0.0
        weight = 1 / s.rho**2 + power
        return SHARE / (self.predictor.prior_sd**-2 + self.largest * weight)


def client(
    name: str, index: int, settings: Settings, predictor: Predictor, y: Vector | None = None, likelihood: Likelihood | None = None
) -> Client:
    """Returns a client before the first round; `y` and `likelihood` if the response is shared. Raises ValueError: a model that
    SOUL has no step size for; the response is needed here and is not here; rows do not fit."""
    if not isinstance(predictor, Linear):
        raise ValueError(
            f"client {name!r}: algorithm 'soul' needs a linear predictor: the largest curvature, and with it the Langevin step, "
            f"of a {type(predictor).__name__.lower()} one has no bound"
        )
    if settings.response == "shared":
        if y is None or likelihood is None:
            raise ValueError(f"client {name!r}: the {settings.model} model with response = 'shared' needs y here")
        if settings.power and not likelihood.record.bounded:
            raise ValueError(
                f"client {name!r}: algorithm 'soul' has no Langevin step for model = 'power' with counts: the curvature of their "
                "likelihood, which is the client's here, has no bound. Take model = 'augmented'"
            )
    if predictor.n_rows != settings.n_rows or (y is not None and len(y) != settings.n_rows):
        raise ValueError(f"client {name!r}: {predictor.n_rows} rows, the job has {settings.n_rows}")
    p, n = predictor.n_theta, settings.n_rows
    # The step needs the largest curvature; rows never change, so it is computed once.
    gram = predictor.H.T @ predictor.H
    largest = float(np.linalg.eigvalsh(gram)[-1]) if p else 0.0
    theta, none = np.full(p, predictor.prior_mean), np.zeros(p)
    return Client(
        name, index, settings, predictor, y, likelihood, gram, largest, theta, np.zeros(n), none, np.zeros((p, p)), Trace()
    )


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Answers one question. Raises NumericalError: the chain left the finite numbers. Raises RemoteFault: an event that this job
    does not have, or of another round."""
    s = state.settings
    expected, _ = s.kinds
    if not isinstance(event, expected) or event.round != state.round:
        came = f"{type(event).__name__} of round {getattr(event, 'round', None)}"
        raise RemoteFault(f"server: {came}, expected {expected.__name__} of round {state.round}")
    answer: Message
    if isinstance(event, Auxiliary):
        state, g, _, _ = _sampled(state, event.z)
        answer = Predicted(event.round, g)
    elif isinstance(event, Total):
        y, likelihood = _response(state)
        state, g, _, _ = _sampled(state, state.z)
        eta = event.b + event.Z
        w = float(event.log_scale[0]) if s.dispersed else 0.0
        z = s.moved(state.z, likelihood.slope(y, eta, w), g, likelihood.curvature(y, eta, w), event.round)
        state, answer = evolve(state, z=z), Moved(event.round, z)
    else:
        state, g, slopes, scales = _sampled(state, event.z, event)
        answer = Slopes(event.round, g, slopes, scales)
    if event.round >= s.first and (event.round - s.first) % s.thin == 0:
        state.trace.add({"theta": state.theta[np.newaxis]})
    return evolve(state, round=event.round + 1), [answer]


def _sampled(state: Client, z: Vector, event: AuxiliaryTotal | None = None) -> tuple[Client, Vector, Vector, Vector]:
    """Takes M Langevin steps given z.

    Returns the state after them, and means of g, of rho_j and of the slope in log sigma (PL).
    """
    s, predictor, H = state.settings, state.predictor, state.predictor.H
    M, p = s.langevin_steps, predictor.n_theta
    normals = rng.normal(M * p, key=rng.key(s.seed, "draws"), client=state.index, step=state.step).reshape(M, p)
    draws, mean_slopes, scales = np.empty((M, p)), np.zeros(s.n_rows), np.zeros(int(s.dispersed))
    theta, pull = state.theta, s.rho**-2
    precision = pull * state.gram + predictor.prior_sd**-2 * np.eye(p)
    shift = pull * (H.T @ z) + predictor.prior_mean * predictor.prior_sd**-2
    # Without the likelihood here the target is Gaussian: a step is one matrix product.
    if event is None:
        h = state.langevin_step(0.0)
        noise = np.sqrt(2 * h) * normals
        step, drift = np.eye(p) - h * precision, h * shift
        for m in range(M):
            theta = draws[m] = step @ theta + drift + noise[m]
    else:
        rest = event.b + (event.Z - z)
        w = float(event.log_scale[0]) if s.dispersed else 0.0
        y, likelihood = _response(state)
        h = state.langevin_step(float(likelihood.curvature(y, rest, w)))
        slopes, scale = _own(state, rest + H @ theta, w)
        for m in range(M):
            theta = theta + h * (shift - precision @ theta + H.T @ slopes) + np.sqrt(2 * h) * normals[m]
            draws[m] = theta
            slopes, scale = _own(state, rest + H @ theta, w)
            mean_slopes += slopes / M
            scales += scale / M
    if not np.isfinite(theta).all():
        raise NumericalError(
            f"client {state.name!r}: round {state.round}: theta is not finite; is a column of a very large size?"
        )
    after = evolve(state, theta=theta, step=state.step + M)
    if state.round >= s.first:
        # Moments are of the rounds after burn-in alone.
        total, squares = state.total + draws.sum(axis=0), state.squares + draws.T @ draws
        after = evolve(after, total=total, squares=squares, count=state.count + M)
    return after, H @ draws.mean(axis=0), mean_slopes, scales


def _own(state: Client, eta: Vector, log_scale: float) -> tuple[Vector, float]:
    """Returns rho_j and this client's part of the slope in log sigma."""
    y, likelihood = _response(state)
    share = 1 / state.settings.n_clients
    slope: Vector = share * likelihood.slope(y, eta, log_scale)
    by_scale = share * float(likelihood.slope_scale(y, eta, log_scale).sum()) if state.settings.dispersed else 0.0
    return slope, by_scale


def _response(state: Client) -> tuple[Vector, Likelihood]:
    """Returns the response and its likelihood, which this client has."""
    assert state.y is not None  # `client` has seen to it
    assert state.likelihood is not None
    return state.y, state.likelihood


@dataclass(frozen=True)
class Conditional:
    """Holds draws of theta_j given zhat. They are not its posterior."""

    # mean, covariance: (p,), (p, p) over all Langevin steps of the second half
    mean: Vector
    covariance: Matrix
    draws: Matrix  # (t, p) one of every few rounds
    label: str = LABEL  # "conditional"


def conditional(state: Client) -> Conditional:
    """Returns the draws of a client; raises ValueError before the second half of the run."""
    if not state.count:
        raise ValueError(f"client {state.name!r}: round {state.round} is before the second half of the run: nothing is kept yet")
    mean = state.total / state.count
    return Conditional(mean, state.squares / state.count - np.outer(mean, mean), state.trace["theta"][0])


# Server --------------------


LARGEST_MOVE = 0.2  # of log sigma in one round


@final
@dataclass(frozen=True)
class Server(AllRounds):
    """Is the server's state."""

    settings: Settings = field(metadata=GIVEN)
    # likelihood, y, offset: of the response; (N,) or None
    likelihood: Likelihood = field(metadata=GIVEN)
    y: Vector | None = field(metadata=GIVEN)
    offset: Vector | None = field(metadata=GIVEN)
    names: tuple[str, ...] = field(metadata=GIVEN)
    # intercept, prior_sd: whether the model has b ~ N(0, prior_sd^2)
    intercept: bool = field(metadata=GIVEN)
    prior_sd: float = field(metadata=GIVEN)
    # z, z_total: (J, N) auxiliary variables, and their sum over the rounds that are averaged
    z: Matrix
    z_total: Matrix
    # b, log_scale, total: the maximised b and log sigma, and (2,) the sum of these over the rounds that are averaged
    b: float = 0.0
    log_scale: float = 0.0
    total: Vector = field(default_factory=lambda: np.zeros(2))
    round: int = 0
    # waiting, answers: clients that have yet to answer; client -> its answer
    waiting: PersistentSet[int] = field(default_factory=PersistentSet, metadata=GIVEN)
    answers: PersistentMap[int, Predicted | Slopes | Moved] = field(default_factory=PersistentMap, metadata=GIVEN)

    @property
    def Z(self) -> Vector:
        """offset + sum_j z_j, in client order."""
        out = np.zeros(self.settings.n_rows) if self.offset is None else self.offset.copy()
        for z in self.z:
            out += z
        return out

    @property
    def averaged(self) -> tuple[Matrix, float, float]:
        """(J, N) The means of z over the second half of the rounds (after their steps), and of b and log sigma."""
        count = self.round - self.settings.first
        if count <= 0:
            return self.z, self.b, self.log_scale
        return self.z_total / count, float(self.total[0] / count), float(self.total[1] / count)


def start(
    settings: Settings,
    likelihood: Likelihood,
    names: tuple[str, ...],
    y: Vector | None,
    offset: Vector | None = None,
    intercept: bool = True,
    prior_sd: float = 1.0,
) -> tuple[Server, ServerEffects]:
    """Returns the server's first state (z = 0), and its first questions."""
    if y is None and not settings.power:
        raise ValueError("soul: the server needs y in the augmented model")
    if settings.dispersed != likelihood.dispersed:
        raise ValueError(f"soul: dispersed must be {likelihood.dispersed} with {likelihood}, got {settings.dispersed}")
    zero = np.zeros((settings.n_clients, settings.n_rows))
    return _ask(Server(settings, likelihood, y, offset, names, intercept, prior_sd, zero, zero))


def finished(state: Server) -> bool:
    """Tells whether all rounds are done."""
    return state.stop is not None


def _ask(state: Server) -> tuple[Server, ServerEffects]:
    s = state.settings
    if state.stop:
        return evolve(state, answers=PersistentMap()), []
    k = state.round
    if not s.power and s.response == "server":
        return _waiting(state, [Auxiliary(k, z) for z in state.z])
    Z, w = state.Z, np.full(int(s.dispersed), state.log_scale)
    if s.power:
        return _waiting(state, [AuxiliaryTotal(k, z, Z, state.b, w) for z in state.z])
    return ask_all(state, Total(k, Z, state.b, w))


def _waiting(state: Server, questions: Sequence[Message]) -> tuple[Server, ServerEffects]:
    """Asks each client a question of its own."""
    asks: ServerEffects = [*enumerate(questions)]
    return evolve(state, waiting=PersistentSet(range(len(asks))), answers=PersistentMap()), asks


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """Takes one answer; after the last it takes a step of z, b and log sigma, and asks the next questions. Raises LostPeer: a
    client is gone: without its part there is no predictor. Raises RemoteFault: a stale, repeated or unexpected message."""
    state = with_answer(state, sender, event, state.settings.kinds[1], NO_PREDICTOR)
    return (state, []) if state.waiting else _ask(_step(state))


def _step(state: Server) -> Server:
    """Takes the step of z, b and log sigma after this round.

    All use the slopes at the z, b and log sigma of the round's questions.
    """
    s, k = state.settings, state.round
    eta = state.b + state.Z
    # Steps of z and b are divided by the curvature, so that they are stable.
    kappa = state.likelihood.curvature(state.y, eta, state.log_scale)
    if s.power:
        parts = all_of(state.answers, Slopes)
        R = summed(part.rho for part in parts)
        z = np.array([s.moved(state.z[j], R - part.rho, part.g, kappa, k) for j, part in enumerate(parts)])
        slopes, scales = float(R.sum()), float(sum(part.scales.sum() for part in parts))
    else:
        assert state.y is not None
        r = state.likelihood.slope(state.y, eta, state.log_scale)
        if s.response == "server":
            predicted = all_of(state.answers, Predicted)
            z = np.array([s.moved(state.z[j], r, answer.g, kappa, k) for j, answer in enumerate(predicted)])
        else:
            z = np.array([answer.z for answer in all_of(state.answers, Moved)])
        slopes = float(r.sum())
        scales = float(state.likelihood.slope_scale(state.y, eta, state.log_scale).sum()) if s.dispersed else 0.0
    b, log_scale, c = state.b, state.log_scale, s.decay(k)
    if state.intercept:
        summed_kappa = np.sum(kappa) if isinstance(kappa, np.ndarray) else s.n_rows * kappa
        steepest = 2 * float(summed_kappa)
        step = c * (slopes - b / state.prior_sd**2) / (1 / state.prior_sd**2 + steepest)
        b += float(np.clip(step, -1, 1))
    if s.dispersed:
        # A mode of sigma ~ HalfNormal(1): its density has no Jacobian, d log p(sigma) / d log sigma = -sigma^2.
        step = c * (scales - float(np.exp(2 * log_scale))) / (2 * s.n_rows + 2)
        log_scale += float(np.clip(step, -LARGEST_MOVE, LARGEST_MOVE))
    state = _checked(evolve(state, z=z, b=b, log_scale=log_scale, round=k + 1))
    # Averages are of the rounds after burn-in alone.
    if k < s.first:
        return state
    return evolve(state, z_total=state.z_total + z, total=state.total + np.array([b, log_scale]))


def _checked(state: Server) -> Server:
    """Returns the state if its numbers are finite, and sigma has not fallen to 0."""
    s = state.settings
    if not (np.isfinite(state.z).all() and np.isfinite(state.b)):
        raise NumericalError(f"server: round {state.round - 1} left the finite numbers")
    if s.dispersed and np.exp(state.log_scale) < 0.1 * np.sqrt(s.n_clients) * s.rho:
        raise NumericalError(
            f"server: sigma fell to {np.exp(state.log_scale):.2g} in round {state.round - 1}: z is maximised, and where rho is "
            "not small beside sigma it fits y exactly. Give model.scale, lower model.rho, or take another algorithm"
        )
    return state


# Protocol --------------------


def protocol(settings: Settings) -> Protocol[Server, Client]:
    """Returns the protocol with only the messages that a job of these settings can send."""
    question, answer = settings.kinds
    return Protocol("soul", (question,), (answer,), server_receive, client_receive, finished, save, load)
