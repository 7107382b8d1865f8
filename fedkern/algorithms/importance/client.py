"""Runs a client of importance sampling: its log-likelihood at the points that the server asks for (see `machine`).

Source: docs/spec/likelihood.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol as Shape
from typing import cast, final

import numpy as np
from numpy.typing import NDArray

from ...arrays import Array
from ...errors import OwnFault
from ...models.expfam import packed, unpacked
from ...models.saturated import Saturated
from ...models.weighing import Least, Weighed, few
from ..core.kept import GIVEN
from ..core.messages import ClientEffects, Event, Message, RemoteFault, evolve
from .newton import Prior, Priors
from .settings import (
    CHECKED,
    LOST,
    OF_FEW,
    OF_QUADRATICS,
    OF_WORDS,
    QUESTIONS,
    REFUSED,
    WITHOUT_FEW,
    AskCurvature,
    AskNormal,
    AskValues,
    Curvature,
    Posterior,
    Settings,
    SummedCurvature,
    SummedValues,
    Values,
    excess,
    of_derivatives,
    of_draws,
    power,
    told,
)
from .summaries import average

REFUSALS = 2  # questions about few rows, after which a client answers none


class Model(Shape):
    """Is the log-likelihood of a client's rows as a function of xi; NaN where it is no number."""

    @property
    def size(self) -> int:
        """P, the length of xi."""

    def values(self, points: Array, nodes: int) -> Array:
        """Returns the log-likelihood (n,) at points (n, P), with `nodes` quadrature nodes a dimension."""

    def curvature(self, points: Array, nodes: int) -> tuple[Array, Array, Array]:
        """Returns the log-likelihood (c,), its gradients (c, P), and minus its Hessians (c, P, P)."""

    def rule(self, points: Array, nodes: int) -> Array:
        """Returns the values (n,) with more nodes less those with these."""


@final
@dataclass(frozen=True)
class Client:
    """Is a client's state."""

    # name, index: its name and number
    name: str = field(metadata=GIVEN)
    index: int = field(metadata=GIVEN)
    settings: Settings = field(metadata=GIVEN)
    model: Model = field(metadata=GIVEN)  # of its own rows
    # of which one stands beside the answers' units; None: the prior is the server's alone, and nothing is taken for it
    priors: Priors | None = field(metadata=GIVEN)
    # what is asked of its rows at each point of a question for derivatives; None: nothing
    least: Least | None = field(default=None, metadata=GIVEN)
    # round, drawn: questions answered; those of them about draws
    round: int = 0
    drawn: int = 0
    refused: int = 0  # those of them that were about few of its rows
    widened: int = 0  # the number of the prior, as the server has told it last
    told: Array | None = None  # (t, P) draws of the posterior, which the server tells at the end
    # nodes, converged: of the quadrature when it was last asked; whether the server's checks are passed
    nodes: int = 0
    converged: bool = False
    values: Array | None = None  # (drawn, s) what it has answered at draws, where it is to tell that once more; else None

    @property
    def prior(self) -> Prior | None:
        """The prior beside which it answers."""
        return None if self.priors is None else self.priors.each[self.widened]


def client(
    name: str, index: int, settings: Settings, model: Model, prior: Prior | Priors | None = None, least: Least | None = None
) -> Client:
    """Returns a client that has seen nothing yet; with `Settings.box` the model is a `Saturated` one, and nothing is asked of
    rows: what the server gets is of all clients' rows."""
    priors = prior if prior is None or isinstance(prior, Priors) else Priors((prior,))
    return Client(name, index, settings, model, priors, least if settings.box is None else None)


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Answers one question; at the end it takes the draws of the posterior."""
    if not isinstance(event, AskCurvature | AskNormal | AskValues | Posterior) or state.told is not None:
        raise RemoteFault(f"server: {type(event).__name__} was not expected")
    if not isinstance(event, Posterior):
        _may_be_asked(state, event)
    if event.round != state.round or not state.settings.nodes <= event.nodes <= state.settings.most_nodes:
        raise RemoteFault(
            f"server: {type(event).__name__} of round {event.round} with {event.nodes} nodes was not expected in round "
            f"{state.round}"
        )
    if state.settings.box is not None:
        state.settings.box.check(event.draws if isinstance(event, Posterior) else _points(event, state), type(event).__name__)
    if isinstance(event, Posterior):
        return evolve(state, told=np.array(event.draws), nodes=event.nodes, converged=event.converged == 1), []
    points = _points(event, state)
    if isinstance(event, AskCurvature):
        if not 0 <= event.prior <= (0 if state.priors is None else state.priors.most):
            raise RemoteFault(f"server: AskCurvature.prior = {event.prior} is none of the job's priors")
        state = evolve(state, widened=event.prior)
    state, refused = (state, np.zeros(0, bool)) if isinstance(event, AskValues) else _looked_at(state, points)
    state = evolve(state, round=state.round + 1, nodes=event.nodes)
    with np.errstate(all="ignore"):
        if not isinstance(event, AskValues):
            return state, [_summed_curvature(state, event) if state.settings.box else _curvature(state, event, refused)]
        values, answer = _summed_values(state, event) if state.settings.box else _values(state, event)
    state = evolve(state, drawn=state.drawn + 1)
    if state.settings.singly:
        before = [] if state.values is None else [*state.values]
        state = evolve(state, values=np.array([*before, values]))
    return state, [answer]


def _may_be_asked(state: Client, query: AskCurvature | AskNormal | AskValues) -> None:
    """Refuses a question that this client does not answer: of one by a summary all but its point and its normals."""
    most, normals = state.settings.questions, "one normal distribution"
    if most > QUESTIONS:
        normals = f"at most {most - 1} normal distributions"
    if not state.settings.has_summary(state.index):
        if isinstance(query, AskNormal):
            raise RemoteFault("server: AskNormal was not expected: this client takes part by values at draws")
    elif state.round >= most or not isinstance(query, AskNormal if state.round else AskCurvature):
        raise RemoteFault(
            f"server: {type(query).__name__} was not expected after {state.round} questions: this client takes part by a "
            f"summary, and answers one point and {normals}, each once"
        )


def _looked_at(state: Client, points: Array) -> tuple[Client, NDArray[np.bool_]]:
    """Returns the state, and (c,) whether derivatives at points (c, P) would be those of few of the client's rows. Raises
    OwnFault: it is the second such question."""
    with np.errstate(all="ignore"):
        refused = np.array([few_rows(state, point) for point in points])
    state = evolve(state, refused=state.refused + int(refused.any()))
    if state.refused >= REFUSALS:
        text = f"client {state.name!r} answers no more: {REFUSALS} questions were about points {OF_FEW}"
        raise OwnFault(f"{text}: {WITHOUT_FEW}", f"{text}, the last in round {state.round}: {WITHOUT_FEW}")
    return state, refused


def few_rows(state: Client, point: Array) -> bool:
    """Tells whether derivatives at a point would be those of few of the client's rows."""
    if state.least is None:
        return False
    prior = np.zeros((len(point), len(point))) if state.prior is None else state.prior.curvature(point)[2]
    return few(cast(Weighed, state.model), point, prior, state.least)


def _rounded(
    state: Client, query: AskCurvature | AskNormal, value: Array, gradient: Array, hessian: Array
) -> tuple[Array, Array, Array]:
    """Returns values (c,), gradients (c, P) and minus Hessians (c, P, P) at the points of a question, as a client tells them."""
    s, none = state.settings, np.zeros_like(hessian[0])
    if not s.rounded:
        return value, gradient, hessian
    prior = [none if state.prior is None else state.prior.curvature(xi)[2] for xi in _points(query, state)]
    if s.box is not None and isinstance(query, AskNormal):
        prior = [np.linalg.inv(unpacked(query.covariance[np.newaxis], len(query.mean))[0])]
    known = hessian if s.box is None else [none for _ in prior]
    units = [of_derivatives(curvature, of_prior, s.clients) for curvature, of_prior in zip(known, prior, strict=True)]
    of_gradient, of_hessian = (np.array(unit) for unit in zip(*units, strict=True))
    coarser = OF_QUADRATICS if s.has_summary(state.index) else 1.0
    return told(value, power(s.needed(coarser))), told(gradient, coarser * of_gradient), told(hessian, coarser * of_hessian)


def told_values(state: Client, points: Array, values: Array) -> Array:
    """Returns values at draws as a client tells them, of which nothing else is made. Their exponentials are right in the mean."""
    s = state.settings
    if not s.rounded:
        return told(values, OF_WORDS)
    prior = 0.0 if state.prior is None else state.prior.values(points)
    alike = s.clients * np.where(np.isfinite(values), values, LOST) + prior
    unit = power(s.needed_at_draws(state.drawn) * of_draws(points, alike))
    return told(values, unit) - excess(unit)


def _points(query: AskCurvature | AskNormal | AskValues, state: Client) -> Array:
    """Returns the points of a question; refuses draws that are none."""
    if isinstance(query, AskNormal):
        return query.mean[np.newaxis]
    if isinstance(query, AskValues):
        size = state.settings.sizes(state.model.size)["steps"]
        if len(query.steps) != size or not np.isfinite(query.points).all():
            raise RemoteFault(f"server: AskValues.steps of round {query.round} are no draws")
    return query.points


def _curved(
    state: Client, query: AskCurvature | AskNormal, of: Callable[[Array], tuple[Array, ...]], rule: Callable[..., Array]
) -> tuple[Array, ...]:
    """Returns what a function of points is at those of a question, or over its normal; and by how much values are others with
    more nodes, or than those of a quadratic, in the unit of values."""
    if isinstance(query, AskNormal):
        *curved, remains = average(of, query, state.settings.seed)
        return *curved, told(remains, power(state.settings.needed())) if state.settings.rounded else remains
    return *of(query.points), rule(query.points, query.nodes)


def _curvature(state: Client, query: AskCurvature | AskNormal, refused: NDArray[np.bool_]) -> Curvature:
    """Returns an answer, in which nothing stands for numbers that are none, or that are refused."""
    model, nodes = state.model, query.nodes
    value, gradient, hessian, rule = _curved(state, query, lambda points: model.curvature(points, nodes), model.rule)
    good = np.isfinite(value) & np.isfinite(gradient).all(axis=1) & np.isfinite(hessian).all(axis=(1, 2))
    good &= (value > LOST) & ~refused
    gradient, hessian = np.where(good[:, np.newaxis], gradient, 0.0), np.where(good[:, np.newaxis, np.newaxis], hessian, 0.0)
    value, gradient, hessian = _rounded(state, query, np.where(good, value, 0.0), gradient, hessian)
    value = np.where(refused, REFUSED, np.where(good, value, LOST))
    return Curvature(query.round, value, gradient, packed(hessian), np.where(good, _finite(np.abs(rule)), 0.0))


def _summed_curvature(state: Client, query: AskCurvature | AskNormal) -> Message:
    rows = cast(Saturated, state.model)
    *curved, cut, rule = _curved(state, query, lambda points: rows.curved(points, query.nodes), rows.rule)
    value, gradient, hessian = _rounded(state, query, *curved)
    rule = 0.0 * rule if isinstance(query, AskNormal) else rule  # sums do not tell what remains
    return cast(Message, SummedCurvature(query.round, value, gradient, packed(hessian), rule, cut))


def _values(state: Client, query: AskValues) -> tuple[Array, Message]:
    points = query.points
    values = state.model.values(points, query.nodes)
    rule = np.abs(state.model.rule(points[:CHECKED], query.nodes))
    rule = rule[np.isfinite(values[:CHECKED])]
    values = np.where(np.isfinite(values) & (values > LOST), told_values(state, points, values), LOST)
    answer = Values.of(query.round, values, float(_finite(rule).max(initial=0.0)))
    return answer.values, answer


def _summed_values(state: Client, query: AskValues) -> tuple[Array, Message]:
    rows, points = cast(Saturated, state.model), query.points
    values, cut = rows.counted(points, query.nodes)
    rule = rows.rule(points[:CHECKED], query.nodes)
    return np.where(cut > 0, LOST, told(values, OF_WORDS)), cast(Message, SummedValues(query.round, values, cut, rule))


def _finite(rule: Array) -> Array:
    """Returns differences, each as large as a number can be if one of both values is no number."""
    return np.where(np.isfinite(rule), rule, -LOST)


# Local --------------------
# Offers the same log-likelihoods and prior to Hamiltonian Monte Carlo, as a client without local unknowns.


@dataclass(frozen=True)
class WithoutLocal:
    """Is a client's term of the log joint density, after all its local unknowns have been integrated out.

    Its values are rounded as those for importance sampling; its gradients to eighths, for finer ones tell more of rows than the
    values do. Only the acceptance rate depends on gradients: a leapfrog step whose force is any function of the place can be
    reversed, and keeps volumes.
    """

    model: Model  # its log-likelihood
    nodes: int  # quadrature nodes a dimension
    units: tuple[float, float] | None = None  # of values and of gradients, powers of two; None: nothing is rounded
    size: int = 0

    @property
    def n_global(self) -> int:
        """P, the number of global unknowns."""
        return self.model.size

    def log_joint_grad(self, xi: Array, u: Array) -> tuple[float, Array, Array]:
        """Returns log p(y | xi) at one point (P,), its gradient, and an empty array."""
        value, gradient, nothing = self.log_joint_grads(xi[np.newaxis], u[np.newaxis])
        return float(value[0]), gradient[0], nothing[0]

    def log_joint_grads(self, xi: Array, u: Array) -> tuple[Array, Array, Array]:
        """Returns the same for all chains (c, P) at once."""
        value, gradient, _ = self.model.curvature(xi, self.nodes)
        if self.units is not None:
            value, gradient = told(value, self.units[0]), told(gradient, self.units[1])
        return value, gradient, np.zeros((len(xi), 0))


@dataclass(frozen=True)
class GradientOf:
    """Offers a prior of importance sampling in the form that Hamiltonian Monte Carlo needs."""

    prior: Prior
    size: int

    def log_prior_grad(self, xi: Array) -> tuple[float, Array]:
        """Returns log p(xi) and its gradient."""
        value, gradient, _ = self.prior.curvature(xi)
        return value, gradient
