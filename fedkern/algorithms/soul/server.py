"""Runs the server of SOUL: Robbins-Monro steps of z, b and log sigma (see `machine`).

Source: docs/spec/vertical.md, section 10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import NDArray

from ...errors import NumericalError
from ...models.likelihood import Likelihood
from ..core.kept import GIVEN
from ..core.messages import NO_PREDICTOR, Event, Message, ServerEffects, evolve
from ..core.persistent import PersistentMap, PersistentSet
from ..core.rounds import AllRounds, all_of, ask_all, summed, with_answer
from .messages import Auxiliary, AuxiliaryTotal, Moved, Predicted, Slopes, Total
from .settings import Settings

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

LARGEST_MOVE = 0.2  # of log sigma in one round


@final
@dataclass(frozen=True)
class Server(AllRounds):
    """Is the server's state.

    Attributes
    ----------
    likelihood, y, offset : of the response; (N,) or None
    intercept, prior_sd : whether the model has b ~ N(0, prior_sd^2)
    z, z_total : (J, N) auxiliary variables, and their sum over the rounds that are averaged
    b, log_scale, total : the maximised b and log sigma, and (2,) the sum of these over the rounds that are averaged
    waiting, answers : clients that have yet to answer; client -> its answer
    """

    settings: Settings = field(metadata=GIVEN)
    likelihood: Likelihood = field(metadata=GIVEN)
    y: Vector | None = field(metadata=GIVEN)
    offset: Vector | None = field(metadata=GIVEN)
    names: tuple[str, ...] = field(metadata=GIVEN)
    intercept: bool = field(metadata=GIVEN)
    prior_sd: float = field(metadata=GIVEN)
    z: Matrix
    z_total: Matrix
    b: float = 0.0
    log_scale: float = 0.0
    total: Vector = field(default_factory=lambda: np.zeros(2))
    round: int = 0
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
    asked: ServerEffects = [*enumerate(questions)]
    return evolve(state, waiting=PersistentSet(range(len(asked))), answers=PersistentMap()), asked


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """Takes one answer; after the last it takes a step of z, b and log sigma, and asks the next questions.

    Raises
    ------
    LostPeer
        A client is gone: without its part there is no predictor.
    RemoteFault
        A stale, repeated or unexpected message.
    """
    expected = Slopes if state.settings.power else Moved if state.settings.response == "shared" else Predicted
    state = with_answer(state, sender, event, expected, NO_PREDICTOR)
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
        steepest = 2 * float(np.sum(kappa) if isinstance(kappa, np.ndarray) else s.n_rows * kappa)
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
