"""Runs a client of the nested Laplace approximation: its log-likelihood where the server asks (see `machine`).

Source: docs/spec/sigma.md, section 6.8.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol as Shape
from typing import final

import numpy as np
from numpy.typing import NDArray

from ...errors import NumericalError
from ...kernels import rng
from ..core.kept import GIVEN
from ..core.messages import ClientEffects, Event, RemoteFault, evolve
from .messages import LOST, AskCurvatures, AskMarginals, Curvatures, Marginals, Mixture
from .settings import Settings

Array = NDArray[np.float64]

INNER = 1003  # chain of the stream "posterior": released draws have the first 1,000
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
    """Is a client's state.

    Attributes
    ----------
    name, index : its name and number
    model : of its own rows
    n_linear : U, the length of u
    round : questions answered
    told : (t, P) draws of the posterior, which the server tells at the end
    """

    name: str = field(metadata=GIVEN)
    index: int = field(metadata=GIVEN)
    settings: Settings = field(metadata=GIVEN)
    model: Model = field(metadata=GIVEN)
    n_linear: int = field(metadata=GIVEN)
    round: int = 0
    told: Array | None = None


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


def _curvatures(state: Client, asked: AskCurvatures) -> Curvatures:
    """Returns the curvatures at the places of a question, and zeros for places that are not asked for."""
    c, n, at = len(asked.points), asked.count, np.tril_indices(state.n_linear)
    size = state.n_linear
    own, slope, curvature = _each(state.model.curvatures, asked.points[:n], ((), (size,), (size, size)))
    good = np.isfinite(own) & np.isfinite(slope).all(axis=1) & np.isfinite(curvature).all(axis=(1, 2))
    value, gradient, hessian = np.zeros(c), np.zeros((c, state.n_linear)), np.zeros((c, len(at[0])))
    value[:n], gradient[:n][good], hessian[:n][good] = np.where(good, own, LOST), slope[good], curvature[good][:, *at]
    return Curvatures(asked.round, value, gradient, hessian)


def _marginals(state: Client, asked: AskMarginals) -> Marginals:
    """Returns log-likelihoods at draws of xi, with the error of integrating by draws.

    All draws of xi have the same draws of theta, which come in pairs of opposite sign. Two halves of these differ by a constant
    and the error, from which the error of their mean follows.
    """
    s, half = state.settings, state.settings.inner // 2
    e = rng.normal(half * state.model.n_areas, key=rng.key(s.seed, "posterior", INNER), client=state.index).reshape(half, -1)
    normals = np.concatenate([e[: half // 2], -e[: half // 2], e[half // 2 :], -e[half // 2 :]])

    def ratios_at(points: Array) -> tuple[Array]:
        return (state.model.log_ratios(points, normals),)

    # In parts, so that memory is bounded.
    parts = np.array_split(asked.points, CHUNKS)
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
        return Marginals(asked.round, value, 0.0)
    return Marginals(asked.round, value, float(differ.std() / 2) if np.isfinite(differ).all() else APART)


def _each(asked: Callable[[Array], tuple[Array, ...]], points: Array, shapes: tuple[tuple[int, ...], ...]) -> tuple[Array, ...]:
    """Computes a function of all points together, or of each alone if that fails; NaN for points where it still fails."""
    try:
        return asked(points)
    except NumericalError:
        several = tuple(np.full((len(points), *shape), np.nan) for shape in shapes)
        for k in range(len(points)):
            with suppress(NumericalError):
                for whole, one in zip(several, asked(points[k : k + 1]), strict=True):
                    whole[k] = one[0]
        return several
