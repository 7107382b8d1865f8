"""Runs a client of SOUL: Langevin steps of theta_j given z_j, and its answer (see `machine`). Source: vertical.md, section 10."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import NDArray

from ...errors import NumericalError
from ...kernels import rng
from ...models.likelihood import Likelihood
from ...models.split.predictors import Linear, Predictor
from ..core.kept import GIVEN
from ..core.messages import ClientEffects, Event, Message, RemoteFault, evolve
from ..core.trace import Trace
from .messages import Auxiliary, AuxiliaryTotal, Moved, Predicted, Slopes, Total
from .settings import Settings

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

LABEL = "conditional"  # of the draws, wherever they are shown
SHARE = 0.2  # of 1 / (largest curvature): the Langevin step


@final
@dataclass(frozen=True)
class Client:
    """Is a client's state.

    Attributes
    ----------
    predictor : g = H theta; no message can carry its content
    y, likelihood : its copy of the response, and the family of it; None if only the server has it
    gram, largest : H'H, and its largest eigenvalue
    theta : (p,) the place of its chain
    z : (N,) its auxiliary variables, if it keeps them itself (AV, y shared)
    total, squares : (p,), (p, p) sums over the draws of these rounds
    trace : the draws that are kept, by the name "theta"
    round, step : rounds answered; its own count of Langevin steps, the last word of its random counters
    """

    name: str = field(metadata=GIVEN)
    index: int = field(metadata=GIVEN)
    settings: Settings = field(metadata=GIVEN)
    predictor: Linear = field(metadata=GIVEN)
    y: Vector | None = field(metadata=GIVEN)
    likelihood: Likelihood | None = field(metadata=GIVEN)
    gram: Matrix = field(metadata=GIVEN)
    largest: float = field(metadata=GIVEN)
    theta: Vector
    z: Vector
    total: Vector
    squares: Matrix
    trace: Trace
    round: int = 0
    step: int = 0
    count: int = 0

    def langevin_step(self, kappa: float) -> float:
        """Returns h = 0.2 / (largest eigenvalue of the gradient's linear part)."""
        s = self.settings
        weight = 1 / s.rho**2 + (kappa / s.n_clients if s.power else 0.0)
        return SHARE / (self.predictor.prior_sd**-2 + self.largest * weight)


def client(
    name: str, index: int, settings: Settings, predictor: Predictor, y: Vector | None = None, likelihood: Likelihood | None = None
) -> Client:
    """Returns a client before the first round; `y` and `likelihood` if the response is shared.

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
    # The step needs the largest curvature; rows never change, so it is computed once.
    gram = predictor.H.T @ predictor.H
    largest = float(np.linalg.eigvalsh(gram)[-1]) if p else 0.0
    theta, none = np.full(p, predictor.prior_mean), np.zeros(p)
    return Client(
        name, index, settings, predictor, y, likelihood, gram, largest, theta, np.zeros(n), none, np.zeros((p, p)), Trace()
    )


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Answers one question.

    Raises
    ------
    NumericalError
        The chain left the finite numbers.
    RemoteFault
        An event that this job does not have, or of another round.
    """
    s = state.settings
    # The model and the place of the response leave one kind of question for the whole job.
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
        w, rest = float(event.log_scale[0]) if s.dispersed else 0.0, event.b + (event.Z - z)
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
    return slope, share * float(likelihood.slope_scale(y, eta, log_scale).sum()) if state.settings.dispersed else 0.0


def _response(state: Client) -> tuple[Vector, Likelihood]:
    """Returns the response and its likelihood, which this client has."""
    assert state.y is not None  # `client` has seen to it
    assert state.likelihood is not None
    return state.y, state.likelihood


@dataclass(frozen=True)
class Conditional:
    """Holds draws of theta_j given zhat. They are not its posterior.

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
    """Returns the draws of a client; raises ValueError before the second half of the run."""
    if not state.count:
        raise ValueError(f"client {state.name!r}: round {state.round} is before the second half of the run: nothing is kept yet")
    mean = state.total / state.count
    return Conditional(mean, state.squares / state.count - np.outer(mean, mean), state.trace["theta"][0])
