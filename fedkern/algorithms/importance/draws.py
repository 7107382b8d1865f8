"""Holds the server's state of importance sampling, and makes draws, weighs them, and ends the job (see `machine`).

Source: docs/spec/likelihood.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar, final

import numpy as np
from numpy.typing import NDArray

from ...arrays import Array
from ...errors import NumericalError
from ...kernels import rng
from ...models.expfam import unpacked
from ...models.weighted import Weighted
from ..core.box import REACH, WIDEST
from ..core.kept import GIVEN, PersistentMap, PersistentSet
from ..core.messages import SERVER, Message, ServerEffects, evolve
from ..core.nets import NETS, SURE, largest
from ..core.rounds import in_order, to_each
from .newton import EXACT, ROUNDED, Climb, Limits, Metric, Prior, Priors, modes
from .proposals import LEAST_SHARE, Coordinates, Grid, Proposal, Scaled, folded, mixture_log_density
from .remainder import ANSWER, corrected
from .settings import (
    AT_DRAWS,
    AT_MODE,
    FIRST,
    LOST,
    NOT_FINITE,
    AskCurvature,
    AskValues,
    Curvature,
    Posterior,
    Settings,
    Values,
    drawn,
    shortened,
)
from .summaries import Quadratics

M = TypeVar("M", bound=Message)

STREAM = "posterior"


@dataclass(frozen=True)
class Draws:
    """Holds the draws of one round: n points of z and of xi, and the clients' values there."""

    # z, xi: (n, P)
    z: Array
    xi: Array
    log_prior: Array  # (n,) of z
    values: Array  # (n, J) of each client; minus infinity where it is no number


@final
@dataclass(frozen=True)
class Server:
    """Is the server's state."""

    settings: Settings = field(metadata=GIVEN)
    # priors, names, coordinates: of xi; of the clients; the meaning of xi's numbers
    priors: Priors = field(metadata=GIVEN)
    names: tuple[str, ...] = field(metadata=GIVEN)
    coordinates: Coordinates = field(metadata=GIVEN)
    units: Array  # (scales,) a large value for each of the scales among the coordinates
    climb: Climb  # the steps to the mode, in z
    # own_gradient, own_hessian: (c, J, P), (c, J, P(P+1)/2) of each client's log-likelihood in xi at the climbs' best points
    own_gradient: Array
    own_hessian: Array
    nodes: int  # quadrature nodes a dimension
    rule: Array  # (2,) by how much the clients' values are others with more nodes: at the mode, and at draws
    not_finite: Array  # (J,) draws at which a client's value was no number
    # centre, asked: (P,) and (n, P) of the open questions: their draws of xi are the centre and these steps
    centre: Array
    asked: Array
    # first_gradient, first_hessian: (J, P), (J, P(P+1)/2) of each client's log-likelihood there, where they are kept; else empty
    first_gradient: Array
    first_hessian: Array
    quadratics: Quadratics  # of the clients that take part by a summary
    summing: int = 0  # 1 while such clients are asked, else 0
    # round, newton, drawn: questions answered; those of them that asked for a curvature, and for values
    round: int = 0
    newton: int = 0
    drawn: int = 0
    ahead: int = 0  # 1 where draws were asked with the step that is expected to end at the mode, else 0
    # widened, decided: the number of the prior, and why no other one is tried; 0 before
    widened: int = 0
    decided: int = 0
    # looked, untold: 1 once it was asked of which numbers rows say nothing; these
    looked: int = 0
    untold: tuple[int, ...] = ()
    # default, before: (P,) the mode with the job's prior, and (P, P) minus the Hessian at that with the prior before; empty while
    # no wider one is tried
    default: Array = field(default_factory=lambda: np.empty(0))
    before: Array = field(default_factory=lambda: np.empty(0))
    refused: int = 0  # 1 where a client has answered nothing about a point, for it was about few of its rows
    began: float = 0.0  # log-likelihood of all clients at the first start
    # the standard error of a mean, in posterior sds, where quadratics took the clients' places at draws; else 0
    unsure: float = 0.0
    # proposals, scaled, draws: of the rounds whose values count: their sources, `scaled` if a prior's scale is learnt, and draws
    proposals: tuple[Proposal, ...] = ()
    scaled: tuple[Scaled, ...] = ()
    draws: tuple[Draws, ...] = ()
    halted: str = ""  # why no more is asked; "" before
    # waiting, answers: clients that have yet to answer; client -> its answers to the open questions
    waiting: PersistentSet[int] = field(default_factory=PersistentSet)
    answers: PersistentMap[int, tuple[Curvature | Values, ...]] = field(default_factory=PersistentMap, metadata=GIVEN)

    @property
    def stop(self) -> str | None:
        """The reason why no more is asked; None while the job runs."""
        return self.halted or None

    @property
    def prior(self) -> Prior:
        """The prior of xi."""
        return self.priors.tied(self.widened, self.untold)

    @property
    def tries(self) -> bool:
        """Whether a prior is tried that is wider than the job's."""
        return self.widened > 0 and not self.decided

    @property
    def n_clients(self) -> int:
        """The number of clients."""
        return len(self.names)

    @property
    def exact(self) -> list[int]:
        """The clients that are asked for values at draws."""
        return [k for k in range(len(self.names)) if k not in self.settings.summaries]

    @property
    def sources(self) -> tuple[Proposal | Scaled, ...]:
        """The distribution of draws of each round whose values count."""
        return self.proposals if self.coordinates.learnt is None else self.scaled

    @property
    def open(self) -> tuple[type[Curvature] | type[Values], ...]:
        """The kinds of answers to the questions that each client was asked at once."""
        of_draws = (Values,) * (len(self.asked) // self.settings.per_question)
        return (Curvature, *of_draws) if self.ahead or not of_draws else of_draws

    @property
    def limits(self) -> Limits:
        """How well the log-posterior is known on the way to the mode."""
        return ROUNDED if self.settings.rounded else EXACT

    def drawing(self, source: Proposal | Scaled) -> Server:
        """Returns the state with the source of one round more."""
        if isinstance(source, Scaled):
            return evolve(self, scaled=(*self.scaled, source))
        return evolve(self, proposals=(*self.proposals, source))

    @property
    def updates(self) -> NDArray[np.int64]:
        """(J,) The number of rounds in which each client took part: all of them."""
        return np.full(len(self.names), self.round)


# Of a prior: it decides nothing; sds grow as it does, without end; a wider one is not to be had; its mode is too far.
RIGHT, ENDLESS, BESIDE, FARTHER = 1, 2, 3, 4
ENOUGH, ROUNDS, MODE = "enough", "rounds", "mode"  # why no more is asked


@dataclass(frozen=True)
class Found:
    """Holds the result of a job."""

    posterior: Weighted | None  # draws of xi, folded, with their weights; None if only the mode was wanted
    # values, log_prior: (N, J), (N,) log-likelihood of each client, and log p(xi) with its Jacobians, at the draws
    values: Array
    log_prior: Array
    log_evidence: tuple[float, float] | None  # log p(y), if the prior is a proper one, and its standard error
    # mode, precision: (P,) of xi, and (P, P) minus the Hessian of the log-posterior of z there (of xi where no scale is folded)
    mode: Array
    precision: Array
    # own_gradient, own_hessian: (J, P), (J, P, P) of each client's log-likelihood in xi at the mode
    own_gradient: Array
    own_hessian: Array
    # modes, starts: the number of modes, and of the points from which they were sought
    modes: int
    starts: int
    # newton, rounds: rounds of steps, and those of draws whose values count
    newton: int
    rounds: int
    # nodes, rule: quadrature nodes a dimension, and by how much more of them change the clients' values: at the mode, at draws
    nodes: int
    rule: tuple[float, float]
    not_finite: NDArray[np.int64]  # (J,) draws at which a client's value was no number
    began: float  # log-likelihood of all clients at the first start
    # by how many posterior sds any mean may be off, and any sd; not a number if only the mode was wanted
    error: tuple[float, float]
    # converged, reason: the verdict, and in a sentence why not
    converged: bool
    reason: str
    # gradient (J, P) and minus second derivatives (J, P, P) of each client's log-likelihood there; None where not kept
    first: tuple[Array, Array] | None = None
    # of clients that take part by a summary, by how many posterior sds averages have moved any number of the mode, their share of
    # the information, and the nats that remain; None where none does
    summed: tuple[float, float, float] | None = None
    decided: int = 0  # of a default prior: why no other one was tried (`RIGHT`, `ENDLESS`, `BESIDE`, `FARTHER`)
    untold: tuple[int, ...] = ()  # numbers of which rows say nothing, and which are 0


def asking(state: Server, questions: Sequence[AskCurvature | AskValues]) -> tuple[Server, ServerEffects]:
    """Asks every client all of these questions at once, but those that take part by a summary."""
    state = evolve(state, waiting=PersistentSet(state.exact), answers=PersistentMap())
    return state, [effect for question in questions for effect in to_each(state.exact, question)]


def answered(state: Server) -> Server:
    """Returns the state once all have answered what was asked at once."""
    return evolve(state, round=state.round + len(state.open))


def answers_of(state: Server, kind: type[M], several: int = 1) -> list[list[M]]:
    """Returns the answers to each of several open questions of this kind, in the order of the clients that were asked."""
    of_kind = [[answer for answer in answers if isinstance(answer, kind)] for answers in in_order(state.answers)]
    return [[answers[i] for answers in of_kind] for i in range(several)]


# The draws --------------------


def modes_of(state: Server) -> NDArray[np.int64]:
    """Returns the climbs that are at a mode each, the highest first."""
    return modes(state.climb, folded(state.climb.at, state.coordinates.mirrored))


def first_source(state: Server) -> Proposal | Scaled:
    """Returns the first source of draws, around the modes; draws that were given up have left room for so many fewer."""
    climb, c, s = state.climb, state.coordinates, state.settings
    which, n = modes_of(state), min(s.first, s.per_question * (s.most_questions - state.drawn))
    if c.learnt is not None:
        return Scaled.around(grid_of(state), n)
    factors = [Metric.of(climb.hessian[i]).factor for i in which]
    scale = np.array([B @ B.T for B in factors])
    log_size = np.array([climb.value[i] + np.linalg.slogdet(B)[1] for i, B in zip(which, factors, strict=True)])
    weights = np.exp(log_size - log_size.max())
    q = Proposal.of(climb.at[which], scale, np.maximum(weights / weights.sum(), LEAST_SHARE), n)
    return q.with_wide(state.coordinates.wide)


def grid_of(state: Server) -> Grid:
    """Returns the distribution of all else given a learnt scale, by derivatives at the highest mode."""
    climb, c = state.climb, state.coordinates
    assert c.learnt is not None
    i = modes_of(state)[0]
    mode, place = c.sent(climb.at[i : i + 1], state.units)[0], c.learnt

    def prior(log_s: float) -> tuple[float, Array, Array]:
        mode[place] = log_s
        return state.prior.curvature(mode)

    return Grid.about(climb.at[i], climb.gradient[i], climb.hessian[i], prior, place, c.wide)


def ask_values(state: Server, source: Proposal | Scaled) -> tuple[Server, ServerEffects]:
    """Asks for the values of a round of new draws."""
    state = with_draws(state, source)
    state, questions = asking(state, questions_about(state, state.round))
    if not state.exact:  # quadratics stand for all, and nobody is asked
        return take_draws(answered(state))
    return state, questions


def with_draws(state: Server, source: Proposal | Scaled) -> Server:
    """Returns the state with the draws of a round that are to be asked; of the first round one net alone, where that is one."""
    xi = _points(state, source, state.drawn)
    alone = not state.draws and state.settings.net < FIRST
    centre, steps = shortened(xi[: state.settings.per_question] if alone else xi)
    return evolve(state.drawing(source), centre=centre, asked=steps)


def _points(state: Server, source: Proposal | Scaled, key: int) -> Array:
    """Returns the draws (n, P) of a source in the order in which they are asked."""
    z = source.points(state.coordinates.mirrored, state.settings.seed, key)
    return state.coordinates.drawn(z[source.order_of_questions], state.units)


def _ask_rest(state: Server) -> tuple[Server, ServerEffects]:
    """Asks for the values of the first round's other draws."""
    n_last = len(state.draws[-1].xi)
    xi = _points(state, state.sources[-1], state.drawn - n_last // state.settings.per_question)
    centre, steps = shortened(xi[n_last:])
    state = evolve(state, centre=centre, asked=steps)
    return asking(state, questions_about(state, state.round))


def questions_about(state: Server, round: int) -> list[AskValues]:
    """Returns the questions for the draws of the state, from this round on."""
    several = np.split(state.asked, len(state.asked) // state.settings.per_question)
    return [AskValues.of(round + i, state.nodes, state.centre, steps) for i, steps in enumerate(several)]


def take_draws(state: Server) -> tuple[Server, ServerEffects]:
    """Takes the values of draws, and ends, draws more, or begins anew with more nodes."""
    s = state.settings
    several = answers_of(state, Values, len(state.asked) // s.per_question)
    at_draws = max(sum(answer.rule for answer in answers) for answers in several)
    if at_draws > AT_DRAWS and state.nodes < s.most_nodes:
        # What was found before is as uncertain: draws begin anew from the last source. Values that are given up have been told,
        # and count.
        given_up = state.drawn + len(several) - s.first // s.per_question
        anew = evolve(state, nodes=s.doubled(state.nodes), draws=(), proposals=(), scaled=(), drawn=given_up)
        return ask_values(anew, state.sources[-1].sized(s.first))
    xi = drawn(state.centre, state.asked)
    parts = zip(several, np.split(xi, len(several)), strict=True)
    values = np.concatenate([_values(state, answers, draws) for answers, draws in parts])
    lost = values <= LOST
    draws, known = _draws_of(state, xi, np.where(lost, -np.inf, values)), state.draws
    if len(known) == len(state.sources):  # the first round's one net is there
        draws, known = Draws(*(np.concatenate(both) for both in zip(vars(known[-1]).values(), vars(draws).values()))), known[:-1]
    state = evolve(
        state,
        draws=(*known, draws),
        drawn=state.drawn + len(several),
        not_finite=state.not_finite + lost.sum(axis=0),
        rule=np.array([state.rule[0], max(float(state.rule[1]), at_draws)]),
    )
    if len(state.draws) == 1 and len(draws.xi) < len(state.sources[0].order_of_questions):
        return _ask_rest(state) if (ended := _quadratic(state)) is None else end(ended, ENOUGH, weighted(ended))
    finite_enough(state, ~np.isfinite(draws.values))
    _inside_enough(state)
    posterior = weighted(state)
    if enough(state, posterior):
        return end(state, ENOUGH, posterior)
    # As many again as there are: a source follows the draws that it is made from, and the last one's draws are most of all.
    normals = np.concatenate([draw.z for draw in state.draws])
    n = min(len(normals), s.per_question * (s.most_questions - state.drawn))
    if n <= 0:
        return end(state, ROUNDS, posterior)
    source = state.sources[-1].adapted(normals, posterior.smoothed, state.coordinates.wide)
    if isinstance(source, Proposal):  # beyond the widest draws of all coordinates at once few are where the others' mass is
        source = source.with_wide(state.coordinates.flat(normals, posterior.smoothed))
    return ask_values(state, source.sized(n))


def _quadratic(state: Server) -> Server | None:
    """Returns the state with draws of corrected quadratics, about which nobody is asked; None if more than a little remains."""
    c, which, climb = state.coordinates, modes_of(state), state.climb
    if c.mirrored or c.anchored or c.learnt is not None or len(which) > 1 or state.settings.of_values:
        return None
    i, (source,), (net,) = which[0], state.proposals, state.draws
    mode, derivatives = (climb.at[i], climb.gradient[i], climb.hessian[i]), (state.own_gradient[i], state.own_hessian[i])
    quadratics = corrected(mode, derivatives, source, (net.xi, net.values), state.settings)
    if quadratics is None:
        return None
    source = source.sized(ANSWER)
    xi = _points(state, source, state.drawn)
    answer = _draws_of(state, xi, quadratics.values(xi))
    state = evolve(state, proposals=(source,), draws=(answer,), unsure=quadratics.error)
    return state if enough(state, weighted(state)) else None


def _values(state: Server, answers: list[Values], xi: Array) -> Array:
    """Returns the values (n, J) of all clients at draws; those by a summary have their quadratics'."""
    values = np.empty((len(xi), len(state.names)))
    values[:, list(state.settings.summaries)] = state.quadratics.values(xi).T
    for k, answer in zip(state.exact, answers, strict=True):
        values[:, k] = answer.values
    return values


def _draws_of(state: Server, xi: Array, values: Array) -> Draws:
    """Returns draws xi (n, P) with the clients' values (n, J) there."""
    with np.errstate(all="ignore"):
        log_prior = state.prior.values(xi) + state.coordinates.log_jacobian(xi)
    return Draws(folded(state.coordinates.of(xi), state.coordinates.mirrored), xi, log_prior, values)


def _inside_enough(state: Server) -> None:
    """Refuses a posterior of which more than a little seems to be beyond the box: by the draws that were moved to its border."""
    if state.coordinates.box is None:
        return
    xi, ratios = _ratios(state)
    weights = np.exp(ratios - ratios.max(initial=-np.inf)) if np.isfinite(ratios).any() else np.zeros(len(xi))
    share = weights[state.coordinates.beyond(xi)].sum() / max(float(weights.sum()), 1e-300)
    if share > NOT_FINITE:
        raise NumericalError(
            f"{100 * share:.0f} % of the posterior seem to be more than {REACH:g} prior standard deviations from its prior's "
            f"mean (of a standardised column at most {WIDEST:g} each), where no client with secure sums answers: "
            f"{state.settings.advice.flat}, or run the job without job.sums"
        )


def finite_enough(state: Server, lost: NDArray[np.bool_]) -> None:
    """Refuses more than a few draws without a value; `lost` (n, J)."""
    share = lost.mean(axis=0)
    if (share > NOT_FINITE).any():
        k = int(np.argmax(share))
        raise NumericalError(
            f"the log-likelihood of client {state.names[k]!r} is not finite at {100 * share[k]:.0f} % of the draws (at most "
            f"{100 * NOT_FINITE:.0f} %): {state.settings.advice.lost}"
        )


def weighted(state: Server, since: int = 0) -> Weighted:
    """Returns the posterior of xi by the draws so far, or by those of the last rounds; draws beyond the box have no weight."""
    xi, ratios = _ratios(state, since)
    return Weighted(xi, np.where(state.coordinates.beyond(xi), -np.inf, ratios))


def _ratios(state: Server, since: int = 0) -> tuple[Array, Array]:
    """Returns draws (n, P), and the logarithms (n,) of their densities over the draws'."""
    draws = state.draws[since:]
    z = np.concatenate([draw.z for draw in draws])
    q = mixture_log_density(state.sources[since:], z, state.coordinates.mirrored)
    log_density = np.concatenate([draw.log_prior + draw.values.sum(axis=1) for draw in draws])
    ratios = np.where(np.isfinite(log_density), log_density - q, -np.inf)
    return np.concatenate([draw.xi for draw in draws]), ratios


def errors(state: Server, posterior: Weighted) -> tuple[float, float]:
    """Returns by how many posterior sds any mean, and any standard deviation, may be off.

    They are those of z, and of exponentials that have heavy tails.
    """
    nets = [NETS * r + q.nets[q.order_of_questions] for r, q in enumerate(state.sources[: len(state.draws)])]
    z = np.concatenate([draw.z for draw in state.draws])
    read = state.coordinates.read(z, state.coordinates.flat(z, posterior.weights))
    mean, sd = largest(read, posterior.weights, np.concatenate(nets))
    return float(np.hypot(mean, SURE * state.unsure)), float(np.hypot(sd, SURE * state.unsure / np.sqrt(2)))


def enough(state: Server, posterior: Weighted) -> bool:
    """Tells whether the draws so far suffice."""
    s = state.settings
    return posterior.effective >= s.counted and posterior.reliable and max(errors(state, posterior)) <= s.error


# The end --------------------


def end(state: Server, why: str, posterior: Weighted | None = None) -> tuple[Server, ServerEffects]:
    """Ends the job, and sends the clients draws if they are to have some."""
    state = evolve(state, halted=why, asked=np.empty((0, state.coordinates.size)))
    s = state.settings
    if posterior is None or not s.told:
        return tell_nobody(state)
    told_draws = posterior.draws[posterior.resampled(s.told, offset(s.seed))]
    rounds = dict.fromkeys(range(len(state.names)), state.round)
    rounds |= {k: int(n) for k, n in zip(s.summaries, state.quadratics.answered)}
    right = int(not _against(state, posterior))
    state, _ = tell_nobody(state)
    return state, [(k, Posterior(round, state.nodes, right, told_draws)) for k, round in rounds.items()]


def tell_nobody(state: Server) -> tuple[Server, ServerEffects]:
    """Asks nothing more."""
    return evolve(state, waiting=PersistentSet(), answers=PersistentMap()), []


def offset(seed: int) -> float:
    """Returns the offset of systematic resampling, in [0, 1)."""
    return float(rng.uniform(1, key=rng.key(seed, STREAM, 0), client=SERVER, step=0, draw=0)[0])


def _against(state: Server, posterior: Weighted | None) -> str:
    """Returns the reason to doubt the result, or "". `posterior`: None if only the mode was wanted."""
    s, findings = state.settings, []
    if posterior is None:
        return unresolved(state)
    # Chains do not enter where a learnt scale is near 0.
    chains = 'chains (algorithm.sampler = "hmc"), ' if state.coordinates.learnt is None else ""
    n = len(posterior.draws)
    if not (posterior.reliable and posterior.effective >= s.counted):
        findings.append(
            f"after {len(state.draws)} rounds {n} draws are worth {posterior.effective:.0f} of equal weight (wanted "
            f"{s.counted:g}), with k-hat {posterior.k_hat:.2f} (wanted at most 0.7): no t distribution is near this "
            f"posterior: take {chains}more draws (algorithm.points, job.rounds), or narrower priors"
        )
    elif max(errors(state, posterior)) > SURE * s.error:  # rounds go on for better, but a standard error is enough
        of_means, of_sds = np.array(errors(state, posterior)) / SURE
        findings.append(
            f"after {len(state.draws)} rounds of {n} draws the largest standard error of a mean is {of_means:.2g} posterior "
            f"standard deviations, and of one of these {100 * of_sds:.2g} % (wanted {s.error:.2g} and {100 * s.error:.2g} %): "
            "take more rounds of draws (job.rounds) or more draws (algorithm.points)"
        )
    return "; ".join(filter(None, [*findings, unresolved(state)]))


def unresolved(state: Server) -> str:
    """Returns the reason to doubt the quadrature, or ""."""
    at_mode, at_draws = state.rule
    if at_mode <= AT_MODE and at_draws <= AT_DRAWS:
        return ""
    return (
        f"the quadrature over effects is {at_mode:.2g} nats off at the mode and {at_draws:.2g} at draws with {state.nodes} "
        f"nodes, the most (wanted at most {AT_MODE:g} and {AT_DRAWS:g}): effects vary more than a normal distribution's, or "
        "a group has very many rows"
    )


def read_result(state: Server) -> Found:
    """Returns the result of an ended state."""
    if state.stop is None:
        raise ValueError("importance: the job has not ended")
    climb, c = state.climb, state.coordinates
    which = modes_of(state)
    z = folded(climb.at[which[:1]], c.mirrored)
    mode = c.sent(z, state.units)
    several = state.draws
    posterior = weighted(state) if several else None
    summed = state.quadratics.judged(z[0], climb.hessian[which[0]]) if state.settings.summaries else None
    why = _against(state, posterior)
    error = (np.nan, np.nan) if posterior is None else errors(state, posterior)
    # A proposal follows the draws that it was made from, and their mean ratio is too small: the last draws are free of that.
    last = weighted(state, len(several) - 1) if len(several) > 1 else posterior
    evidence = None if last is None else last.log_evidence
    values = np.concatenate([draws.values for draws in several]) if several else np.empty((0, len(state.names)))
    log_prior = np.concatenate([draws.log_prior - c.log_jacobian(draws.xi) for draws in several]) if several else np.empty(0)
    first = (state.first_gradient, unpacked(state.first_hessian, len(mode[0]))) if len(state.first_gradient) else None
    return Found(
        posterior, values, log_prior, evidence, mode[0], climb.hessian[which[0]], state.own_gradient[which[0]],
        unpacked(state.own_hessian[which[0]], len(mode[0])), len(which), state.settings.starts, state.newton, len(state.draws),
        state.nodes, (float(state.rule[0]), float(state.rule[1])), state.not_finite.astype(np.int64), state.began,
        error, not why, why, first, summed, state.decided, state.untold,
    )  # fmt: skip
