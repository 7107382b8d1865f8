"""Stochastic optimisation by unadjusted Langevin (SOUL) for vertically split data: z is maximised, theta_j sampled given z.

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
over the second half of the rounds. What comes of it is a mode of z and draws from p(theta | zhat, y). These are **not** the
posterior of theta: they are labelled "conditional", and are much narrower. Source: docs/methods/vertical.md, section 10.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import NumericalError
from ...kernels import rng
from ...models.likelihood import Likelihood
from ...models.split.predictors import Linear, Predictor
from ..core.messages import ClientEffects, ClientLost, Message, Protocol, RemoteFault, Saved, ServerEffects, evolve
from ..core.trace import Trace
from ..split.messages import lost
from .messages import Auxiliary, AuxiliaryTotal, Moved, Predicted, Settings, Slopes, Total

__all__ = [
    "Auxiliary", "AuxiliaryTotal", "Client", "Conditional", "Moved", "Predicted", "Server", "Settings", "Slopes", "Total",
    "client", "client_receive", "conditional", "finished", "load", "protocol", "save", "server_receive", "start",
]  # fmt: skip

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

LABEL = "conditional"  # of the draws, wherever they are shown
SHARE = 0.2  # of 1 / (largest curvature): the Langevin step
LARGEST_MOVE = 0.2  # of log sigma in one round


# A client --------------------


@dataclass(frozen=True)
class Client:
    """One client.

    Attributes
    ----------
    predictor : g = H theta; no message can carry what is in it
    y, likelihood : its copy of the response, and what it is a response of; None where only the server has it
    gram, largest : H'H, and its largest eigenvalue
    theta : (p,) where its chain is
    z : (N,) its auxiliary variables, where it keeps them itself (AV, y shared)
    total, squares : (p,), (p, p) sums over the draws of these rounds
    trace : the draws that are kept, by the name "theta"
    round, step : rounds answered; its own count of Langevin steps, the last word of its random counters
    """

    name: str
    index: int
    settings: Settings
    predictor: Linear
    y: Vector | None
    likelihood: Likelihood | None
    gram: Matrix
    largest: float
    theta: Vector
    z: Vector
    total: Vector
    squares: Matrix
    trace: Trace
    round: int = 0
    step: int = 0
    count: int = 0

    def langevin_step(self, kappa: float) -> float:
        """h = 0.2 / (largest eigenvalue of the gradient's linear part)."""
        s = self.settings
        weight = 1 / s.rho**2 + (kappa / s.n_clients if s.power else 0.0)
        return SHARE / (self.predictor.prior_sd**-2 + self.largest * weight)


def client(
    name: str, index: int, settings: Settings, predictor: Predictor, y: Vector | None = None, likelihood: Likelihood | None = None
) -> Client:
    """A client before the first round; `y` and `likelihood` where the response is shared.

    Raises
    ------
    ValueError
        A model that SOUL has no step size for; the response is needed here and is not here; rows do not fit.
    """
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
    gram = predictor.H.T @ predictor.H
    largest = float(np.linalg.eigvalsh(gram)[-1]) if p else 0.0
    theta, none = np.full(p, predictor.prior_mean), np.zeros(p)
    return Client(
        name, index, settings, predictor, y, likelihood, gram, largest, theta, np.zeros(n), none, np.zeros((p, p)), Trace()
    )


def client_receive(state: Client, event: Any) -> tuple[Client, ClientEffects]:
    """One question in, one answer out.

    Raises
    ------
    NumericalError
        The chain left the finite numbers.
    RemoteFault
        An event that this job does not have, or of another round.
    """
    s = state.settings
    expected = AuxiliaryTotal if s.power else Total if s.response == "shared" else Auxiliary
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
        eta, w = event.b + event.Z, float(event.log_scale[0]) if s.dispersed else 0.0
        z = s.moved(state.z, likelihood.slope(y, eta, w), g, likelihood.curvature(y, eta, w), event.round)
        state, answer = evolve(state, z=z), Moved(event.round, z)
    else:
        state, g, rho, scales = _sampled(state, event.z, event)
        answer = Slopes(event.round, g, rho, scales)
    if event.round >= s.first and (event.round - s.first) % s.thin == 0:
        state.trace.add({"theta": state.theta[np.newaxis]})
    return evolve(state, round=event.round + 1), [answer]


def _sampled(state: Client, z: Vector, event: AuxiliaryTotal | None = None) -> tuple[Client, Vector, Vector, Vector]:
    """M Langevin steps given z: the state after them, and means of g, of rho_j and of the slope in log sigma (PL)."""
    s, predictor, H = state.settings, state.predictor, state.predictor.H
    M, p = s.langevin_steps, predictor.n_theta
    normals = rng.normal(M * p, key=rng.key(s.seed, "draws"), client=state.index, step=state.step).reshape(M, p)
    draws, rho, scales = np.empty((M, p)), np.zeros(s.n_rows), np.zeros(int(s.dispersed))
    theta, pull = state.theta, s.rho**-2
    precision = pull * state.gram + predictor.prior_sd**-2 * np.eye(p)
    shift = pull * (H.T @ z) + predictor.prior_mean * predictor.prior_sd**-2
    if event is None:
        h = state.langevin_step(0.0)
        noise = np.sqrt(2 * h) * normals
        step, drift = np.eye(p) - h * precision, h * shift
        for m in range(M):
            theta = draws[m] = step @ theta + drift + noise[m]
    else:
        w, rest = float(event.log_scale[0]) if s.dispersed else 0.0, event.b + (event.Z - z)
        y, likelihood = _response(state)
        h = state.langevin_step(float(likelihood.curvature(y, rest, w)))
        own, scale = _own(state, rest + H @ theta, w)
        for m in range(M):
            theta = theta + h * (shift - precision @ theta + H.T @ own) + np.sqrt(2 * h) * normals[m]
            draws[m] = theta
            own, scale = _own(state, rest + H @ theta, w)
            rho += own / M
            scales += scale / M
    if not np.isfinite(theta).all():
        raise NumericalError(
            f"client {state.name!r}: round {state.round}: theta is not finite; is a column of a very large size?"
        )
    after = evolve(state, theta=theta, step=state.step + M)
    if state.round >= s.first:
        total, squares = state.total + draws.sum(axis=0), state.squares + draws.T @ draws
        after = evolve(after, total=total, squares=squares, count=state.count + M)
    return after, H @ draws.mean(axis=0), rho, scales


def _own(state: Client, eta: Vector, log_scale: float) -> tuple[Vector, float]:
    """rho_j and this client's part of the slope in log sigma."""
    y, likelihood = _response(state)
    share = 1 / state.settings.n_clients
    slope: Vector = share * likelihood.slope(y, eta, log_scale)
    return slope, share * float(likelihood.slope_scale(y, eta, log_scale).sum()) if state.settings.dispersed else 0.0


def _response(state: Client) -> tuple[Vector, Likelihood]:
    assert state.y is not None  # `client` has seen to it
    assert state.likelihood is not None
    return state.y, state.likelihood


@dataclass(frozen=True)
class Conditional:
    """Draws of theta_j given zhat. They are not its posterior.

    Attributes
    ----------
    mean, covariance : (p,), (p, p) over all Langevin steps of the second half
    draws : (t, p) one of every few rounds
    label : "conditional"
    """

    mean: Vector
    covariance: Matrix
    draws: Matrix
    label: str = LABEL


def conditional(state: Client) -> Conditional:
    """What a client has drawn."""
    if not state.count:
        raise ValueError(f"client {state.name!r}: round {state.round} is before the second half of the run: nothing is kept yet")
    mean = state.total / state.count
    return Conditional(mean, state.squares / state.count - np.outer(mean, mean), state.trace["theta"][0])


# The server --------------------


@dataclass(frozen=True)
class Server:
    """The server.

    Attributes
    ----------
    likelihood, y, offset : of the response; (N,) or None
    intercept, prior_sd : whether there is b ~ N(0, prior_sd^2)
    z, z_total : (J, N) auxiliary variables, and their sum over the rounds that are averaged
    b, log_scale, total : the maximised b and log sigma, and (2,) the sum of these over the rounds that are averaged
    answers : what has come of this round
    """

    settings: Settings
    likelihood: Likelihood
    y: Vector | None
    offset: Vector | None
    names: tuple[str, ...]
    intercept: bool
    prior_sd: float
    z: Matrix
    z_total: Matrix
    b: float = 0.0
    log_scale: float = 0.0
    total: Vector = field(default_factory=lambda: np.zeros(2))
    round: int = 0
    answers: Mapping[int, Any] = field(default_factory=dict)

    @property
    def stop(self) -> str | None:
        """Why the rounds ended."""
        return "rounds" if self.round >= self.settings.rounds else None

    @property
    def updates(self) -> NDArray[np.int64]:
        """(J,) rounds in which each client took part: all of them."""
        return np.full(self.settings.n_clients, self.round)

    @property
    def Z(self) -> Vector:
        """offset + sum_j z_j, in client order."""
        out = np.zeros(self.settings.n_rows) if self.offset is None else self.offset.copy()
        for z in self.z:
            out += z
        return out

    @property
    def averaged(self) -> tuple[Matrix, float, float]:
        """(J, N) means of z over the second half of the rounds (after their steps), and of b and log sigma."""
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
    """The server's first state (z = 0), and its first questions."""
    if y is None and not settings.power:
        raise ValueError("soul: the server needs y in the augmented model")
    if settings.dispersed != likelihood.dispersed:
        raise ValueError(f"soul: dispersed must be {likelihood.dispersed} with {likelihood}, got {settings.dispersed}")
    zero = np.zeros((settings.n_clients, settings.n_rows))
    return _ask(Server(settings, likelihood, y, offset, names, intercept, prior_sd, zero, zero))


def finished(state: Server) -> bool:
    """Whether all rounds are done."""
    return state.stop is not None


def _ask(state: Server) -> tuple[Server, ServerEffects]:
    s = state.settings
    state = evolve(state, answers={})
    if state.stop:
        return state, []
    everyone, k = range(s.n_clients), state.round
    if not s.power and s.response == "server":
        return state, [(j, Auxiliary(k, state.z[j])) for j in everyone]
    Z, w = state.Z, np.full(int(s.dispersed), state.log_scale)
    if s.power:
        return state, [(j, AuxiliaryTotal(k, state.z[j], Z, state.b, w)) for j in everyone]
    question = Total(k, Z, state.b, w)
    return state, [(j, question) for j in everyone]


def server_receive(state: Server, sender: int, event: Any) -> tuple[Server, ServerEffects]:
    """One answer; when all clients have answered, a step of z, b and log sigma, and the next questions.

    Raises
    ------
    LostPeer
        A client is gone: without its part there is no predictor.
    RemoteFault
        A stale, repeated or unexpected message.
    """
    if isinstance(event, ClientLost):
        raise lost(state.names[event.client], state.round)
    expected = Slopes if state.settings.power else Moved if state.settings.response == "shared" else Predicted
    if not isinstance(event, expected) or event.round != state.round or sender in state.answers:
        raise RemoteFault(f"client {sender}: {type(event).__name__} is no answer to round {state.round}")
    state = evolve(state, answers={**state.answers, sender: event})
    return (state, []) if len(state.answers) < state.settings.n_clients else _ask(_step(state))


def _step(state: Server) -> Server:
    """z, b and log sigma after this round. All use the slopes at the z, b and log sigma that the clients were asked with."""
    s, k = state.settings, state.round
    answers = [state.answers[j] for j in range(s.n_clients)]
    eta = state.b + state.Z
    kappa = state.likelihood.curvature(state.y, eta, state.log_scale)
    if s.power:
        R = answers[0].rho.copy()
        for answer in answers[1:]:
            R += answer.rho
        z = np.array([s.moved(state.z[j], R - a.rho, a.g, kappa, k) for j, a in enumerate(answers)])
        slopes, scales = float(R.sum()), float(sum(a.scales.sum() for a in answers))
    else:
        assert state.y is not None
        r = state.likelihood.slope(state.y, eta, state.log_scale)
        if s.response == "server":
            z = np.array([s.moved(state.z[j], r, a.g, kappa, k) for j, a in enumerate(answers)])
        else:
            z = np.array([a.z for a in answers])
        slopes = float(r.sum())
        scales = float(state.likelihood.slope_scale(state.y, eta, state.log_scale).sum()) if s.dispersed else 0.0
    b, log_scale, c = state.b, state.log_scale, s.decay(k)
    if state.intercept:
        steepest = 2 * float(np.sum(kappa) if isinstance(kappa, np.ndarray) else s.n_rows * kappa)
        step = c * (slopes - b / state.prior_sd**2) / (1 / state.prior_sd**2 + steepest)
        b += float(np.clip(step, -1, 1))
    if s.dispersed:
        # A mode of sigma ~ HalfNormal(1): its density has no Jacobian, d log p(sigma) / d log sigma = -sigma^2.
        step = c * (scales - float(np.exp(2 * log_scale))) / (2 * s.n_rows + 2)
        log_scale += float(np.clip(step, -LARGEST_MOVE, LARGEST_MOVE))
    state = _checked(evolve(state, z=z, b=b, log_scale=log_scale, round=k + 1))
    if k < s.first:
        return state
    return evolve(state, z_total=state.z_total + z, total=state.total + np.array([b, log_scale]))


def _checked(state: Server) -> Server:
    s = state.settings
    if not (np.isfinite(state.z).all() and np.isfinite(state.b)):
        raise NumericalError(f"server: round {state.round - 1} left the finite numbers")
    if s.dispersed and np.exp(state.log_scale) < 0.1 * np.sqrt(s.n_clients) * s.rho:
        raise NumericalError(
            f"server: sigma fell to {np.exp(state.log_scale):.2g} in round {state.round - 1}: z is maximised, and where rho is "
            "not small beside sigma it fits y exactly. Give model.scale, lower model.rho, or take another algorithm"
        )
    return state


# Checkpoints --------------------


def save(state: Server | Client) -> Saved:
    """The state as named arrays and numbers; rows are never among them."""
    own: tuple[str, ...] = ("z", "z_total", "b", "log_scale", "total", "round")
    if isinstance(state, Client):
        own = ("theta", "z", "total", "squares", "round", "step", "count")
    saved: Saved = {name: getattr(state, name) for name in own}
    return saved | state.trace.save() if isinstance(state, Client) else saved


def load(fresh: Any, saved: Mapping[str, Any]) -> Any:
    """A fresh state as it was when it was saved."""
    own = {name: value for name, value in saved.items() if not name.startswith("trace.")}
    return evolve(fresh, **own) if isinstance(fresh, Server) else evolve(fresh, **own, trace=Trace.load(saved))


def protocol(settings: Settings) -> Protocol:
    """The protocol with only the messages that a job of these settings can send."""
    pair: tuple[type[Message], type[Message]] = (Auxiliary, Predicted)
    if settings.power:
        pair = (AuxiliaryTotal, Slopes)
    elif settings.response == "shared":
        pair = (Total, Moved)
    return Protocol("soul", pair[:1], pair[1:], server_receive, client_receive, finished, save, load)
