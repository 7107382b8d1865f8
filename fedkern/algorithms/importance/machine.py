"""Defines importance sampling of the exact posterior of xi, which all clients share; each client is a log-likelihood L_j(xi).

log p(xi | y) = log p(xi) + sum_j L_j(xi) + a constant; a client's own unknowns (effects of its groups) are integrated out at
home. The server first looks for the mode, with Newton steps in a trust region (`newton`): a round asks each client for L_j, its
gradient and its Hessian at one point. Then it draws a thousand points from a t distribution around the mode (`proposals`) and
asks for L_j there; a draw's weight is the posterior's density over the draws'. Weights say themselves whether they can be trusted
(k-hat, how many draws of equal weights they are worth, and by how much nets differ). While they don't, a further round draws as
many again around the weighted draws, and all together are weighted against the mixture that they come from. Few rounds do, for no
step waits for a random walk.

Each client compares its quadrature with one of more nodes, at the mode and at draws; while the sum of the differences is too
large, the number of nodes is doubled for all. A value that is no number has weight 0.

Where the job gives no prior, the one that is taken decides nothing that rows decide (`widening`).

Clients of `Settings.summaries` are asked two questions or more and none about draws: quadratics stand in their place
(`summaries`).

Another sampler may go on from the mode: with `Settings.rounds` = 0 and `Coordinates` without scales the job ends there (with one
round the quadrature is also looked at away from the mode), and `read_result(state)` has the mode and the precision of xi.
Hamiltonian Monte Carlo (`algorithms.hmc`) then takes `hmc.Metric.of(mode, precision)`, coordinates in which the posterior is
nearly standard normal; a client's model there is `WithoutLocal(model, nodes)`, which has no local unknowns, and the prior
`GradientOf(prior)`; `telling` tells the clients its draws. Source: docs/spec/likelihood.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays import Array
from ...errors import NumericalError
from ...models.expfam import packed, unpacked
from ..core.kept import PersistentMap, PersistentSet, load, save
from ..core.messages import Event, Message, Protocol, RemoteFault, ServerEffects, evolve
from ..core.rounds import needs_all, summed, to_each
from .client import Client, GradientOf, Model, WithoutLocal, client, client_receive
from .draws import (
    BESIDE,
    ENDLESS,
    FARTHER,
    MODE,
    RIGHT,
    Found,
    Server,
    answered,
    answers_of,
    ask_values,
    asking,
    end,
    first_source,
    grid_of,
    modes_of,
    offset,
    questions_about,
    read_result,
    take_draws,
    unresolved,
    with_draws,
)
from .newton import RELATIVE, Climb, Metric, Prior, Priors, moving, spelled
from .proposals import Coordinates, Derivatives, held, name_flagged
from .settings import (
    AT_MODE,
    LOST,
    OF_FEW,
    QUESTIONS,
    REFUSED,
    SUMS,
    WIDTH,
    WITHOUT_FEW,
    AskCurvature,
    AskNormal,
    AskValues,
    Curvature,
    MaskedCurvature,
    MaskedValues,
    Posterior,
    Settings,
    SummedCurvature,
    SummedValues,
    Values,
    of_derivatives,
)
from .summaries import MOVED, Quadratics, merged

__all__ = [
    "SUMS", "WIDTH", "AskCurvature", "AskNormal", "AskValues", "Client", "Coordinates", "Curvature", "Found", "GradientOf",
    "MaskedCurvature", "MaskedValues", "Model", "Posterior", "Prior", "Priors", "Server", "Settings", "Values", "WithoutLocal",
    "client", "client_receive", "finished", "go_on", "load", "offset", "protocol", "read_result", "save", "server_receive",
    "start", "unresolved",
]  # fmt: skip


ROOM = 4.0  # posterior sds from a mode to the border of the box
BACK = 5  # questions that are left for the way back to the mode with the job's prior


def start(
    settings: Settings,
    prior: Prior | Priors,
    names: tuple[str, ...],
    coordinates: Coordinates,
    starts: Array,
    *,
    keeps_first: bool = False,
    widened: int | None = None,
) -> tuple[Server, ServerEffects]:
    """Returns the server's first state and its first question.

    Parameters
    ----------
    starts : (settings.starts, P) xi from which the mode is looked for
    keeps_first : whether the clients' derivatives at the first of them are kept
    widened : the number of the prior where that is known; None: the first that decides nothing which rows decide
    """
    starts = np.asarray(starts, np.float64)
    if starts.shape != (settings.starts, coordinates.size):
        raise ValueError(f"importance: starts must have the shape {(settings.starts, coordinates.size)}, got {starts.shape}")
    if not np.isfinite(starts).all():
        raise ValueError("importance: starts must be finite")
    if settings.summaries and (coordinates.scales or coordinates.fold or coordinates.learnt is not None):
        raise ValueError("importance: summaries need coordinates without scales")
    units = coordinates.units(starts[0])
    empty = np.empty((0, coordinates.size))
    climb = Climb.begin(coordinates.of(starts))
    none = np.zeros(len(names))
    P, alone = coordinates.size, (settings.starts, len(names))
    empty_own = np.zeros((*alone, P)), np.zeros((*alone, P * (P + 1) // 2))
    kept = len(names) if keeps_first else 0
    no_question = np.zeros(coordinates.size), empty, np.zeros((kept, P)), np.zeros((kept, P * (P + 1) // 2))
    quadratics = Quadratics.none(len(settings.summaries), P)
    begun = climb, *empty_own, settings.nodes, np.zeros(2), none, *no_question, quadratics
    priors = prior if isinstance(prior, Priors) else Priors((prior,))
    decided = int(not priors.most or widened is not None)
    state = Server(settings, priors, names, coordinates, units, *begun, widened=widened or 0, decided=decided)
    return _ask_curvature(state)


def go_on(state: Server | None, settings: Settings) -> tuple[Server, ServerEffects]:
    """Goes on from a mode that was wanted alone (`Settings.rounds` = 0) with the draws of these settings."""
    assert state is not None  # this is the server's place
    state = evolve(state, settings=settings, halted="")
    return ask_values(state, first_source(state))


def finished(state: Server) -> bool:
    return state.stop is not None and not state.waiting


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """Takes one answer; after the last it asks the next question. A lost client ends the run: the model needs all of them."""
    if state.summing:
        needs_all(event, state.names, state.round)
        return _summed(state, sender, event)
    state = received(state, sender, event)
    return (state, []) if state.waiting else _answered(state)


def received(state: Server, sender: int, event: Event) -> Server:
    """Takes one answer; it waits for nobody after the last."""
    needs_all(event, state.names, state.round)
    before = state.answers.get(sender, ())
    # All that is asked at once is answered in the order of the questions, each of which is a round of its own.
    round, of_one = state.round + len(before), state.open[len(before)] if sender in state.waiting else None
    if of_one is None or not isinstance(event, of_one) or event.round != round:
        raise RemoteFault(f"{type(event).__name__} is no answer to round {round}", sender)
    if np.min(event.rule) < 0:
        raise RemoteFault(f"{type(event).__name__}.rule is negative", sender)
    if isinstance(event, Values) and len(event.drops) != WIDTH * state.settings.per_question:
        raise RemoteFault(f"Values.drops of {len(event.drops)} bytes are not one for each draw", sender)
    state = evolve(state, answers=state.answers.plus(sender, (*before, event)))
    if len(before) + 1 < len(state.open):
        return state
    return evolve(state, waiting=state.waiting.minus(sender))


def _answered(state: Server) -> tuple[Server, ServerEffects]:
    """Goes on when all have answered."""
    of_mode, state = state.open[0] is Curvature, answered(state)
    return _climbed(state) if of_mode else take_draws(state)


# The mode --------------------


def _ask_curvature(state: Server) -> tuple[Server, ServerEffects]:
    """Asks for a step of each climb, and takes those that no client is asked about."""
    state, effects = _asked(state)
    return _climbed(state) if effects is None else (state, effects)


def _asked(state: Server, *, ahead: bool = False) -> tuple[Server, ServerEffects | None]:
    """Asks for a step of each climb; None where no client is asked, as all take part by summaries, and the answer is known.

    With `ahead`, where the mode is expected there, the first draws are asked with it.
    """
    expected = state.climb.arriving if ahead else None
    question = AskCurvature(state.round, state.nodes, _sent(state, state.climb.trial), state.widened)
    questions: list[AskCurvature | AskValues] = [question]
    if expected is not None:
        state = with_draws(evolve(state, ahead=1), first_source(evolve(state, climb=expected)))
        questions += questions_about(state, state.round + 1)
    state, effects = asking(state, questions)
    return (state, effects) if state.exact else (answered(state), None)


def _sent(state: Server, trial: Array) -> Array:
    """Returns xi of points of z."""
    return state.coordinates.sent(state.coordinates.safe(trial, state.units), state.units)


def _climbed(state: Server) -> tuple[Server, ServerEffects]:
    """Takes steps of each climb until clients are asked, or makes the first draws."""
    effects: ServerEffects | None = None
    while effects is None:
        state, effects = _step(state)
    return state, effects


def _step(state: Server) -> tuple[Server, ServerEffects | None]:
    """Takes a step of each climb, or makes the first draws."""
    (answers,), s = answers_of(state, Curvature), state.settings
    if any((answer.value <= REFUSED).any() for answer in answers):
        state = evolve(state, refused=1)
        if state.tries:
            return _asked(_without_draws(_returned(evolve(state, newton=state.newton + 1), BESIDE)))
    of_summaries = state.quadratics.curvatures(state.round, _sent(state, state.climb.trial))
    answers = merged(answers, of_summaries, s.summaries)
    first = not np.isfinite(state.climb.value).any()
    if first:
        values = np.array([answer.value for answer in answers])
        _defined(state, values)
        if not state.newton:  # and not where a climb begins again with more nodes
            state = evolve(state, began=float(values[:, 0].sum()))
            if len(state.first_gradient):
                gradient, hessian = (
                    np.stack([getattr(answer, name)[0] for answer in answers]) for name in ("gradient", "hessian")
                )
                state = evolve(state, first_gradient=gradient, first_hessian=hessian)
    z, before = state.climb.trial, state.climb.done
    with np.errstate(all="ignore"):
        even, exponents = [group[0] for group in state.coordinates.fold if len(group) == 1], state.coordinates.exponents
        climb = state.climb.climbed(*_posterior(state, answers), state.coordinates.ends, state.limits, even, exponents)
    rule = summed([answer.rule for answer in answers])
    new = climb.done & ~before
    # Of a climb that has ended the rule counts where its mode is: the last point that was asked.
    at_mode = max(float(state.rule[0]), float(rule[new & (climb.at == z).all(axis=1)].max(initial=0.0)))
    taken = ((climb.at == z).all(axis=1) & ~before)[:, np.newaxis, np.newaxis]
    state = evolve(
        state,
        climb=climb,
        own_gradient=np.where(taken, np.stack([answer.gradient for answer in answers], axis=1), state.own_gradient),
        own_hessian=np.where(taken, np.stack([answer.hessian for answer in answers], axis=1), state.own_hessian),
        newton=state.newton + 1,
        rule=np.array([at_mode, 0.0]),
    )
    if state.tries and (climb.flat.any() or _stuck(state)):
        why = BESIDE if state.newton < s.newton - BACK else ENDLESS
        return _asked(_without_draws(_given_up(state, why)))
    if climb.ended and climb.done.any() and at_mode > AT_MODE and state.nodes < s.most_nodes:
        state = evolve(state, climb=climb.again(), nodes=s.doubled(state.nodes), rule=np.zeros(2))
        return _asked(_without_draws(state))
    # Where all take part by summaries steps are no questions, and each of many climbs may have as many.
    climbs = 1 if state.exact else 1 + int(state.quadratics.answered.sum())
    if not climb.ended and state.newton < s.newton * climbs:
        # Once in a job: values that are given up have been told. A source around a learnt scale is not made before its mode.
        once = s.rounds > 1 and not state.drawn and not state.ahead and state.coordinates.learnt is None
        once = once and s.ahead < s.most_questions and not _due(state) and (bool(state.decided) or _right(state, climb.trial))
        return _asked(_without_draws(state), ahead=once and float(rule.max()) <= AT_MODE)
    if not climb.done.any():
        _no_mode(state)
    if not state.looked:
        state = _told(state)
        if not state.climb.ended:
            return _asked(_without_draws(state))
    if not state.decided:
        state = _judged(state)
        if not state.climb.ended:
            return _asked(_without_draws(state))
    if state.coordinates.learnt is not None and state.newton < s.newton // 2:  # so that steps are left for the last climb
        place = grid_of(state).nearer(state.climb.at[modes_of(state)[0]])
        if place is not None:
            return _asked(_without_draws(evolve(state, climb=Climb.begin(place[np.newaxis]), rule=np.zeros(2))))
    if s.rounded:
        state = evolve(state, climb=climb.arrived())
    if _due(state):
        return _ask_summaries(state)
    if s.rounds == 0:
        return end(state, MODE)
    return take_draws(evolve(state, ahead=0)) if state.ahead else ask_values(state, first_source(state))


def _told(state: Server) -> Server:
    """Takes the numbers of which rows say nothing as 0, and goes on to the mode of the others."""
    state = evolve(state, looked=1)
    mode = state.climb.at
    if not state.priors.ties:
        return state
    alone = unpacked(state.own_hessian[0], state.coordinates.size)
    xi, s = _sent(state, mode)[0], state.settings
    variances = (RELATIVE * alone) ** 2
    if s.rounded:
        prior = state.priors.each[0].curvature(xi)[2]
        # Of masked sums the unit is the question's alone, and the errors of all clients are in the sum.
        known, clients = (alone, 1) if s.box is None else (np.zeros_like(alone), s.clients)
        variances += clients / 6 * np.array([of_derivatives(answer, prior, s.clients)[1] for answer in known]) ** 2
    untold = state.priors.untold(xi, state.climb.hessian[0], alone, variances)
    if not untold:
        return state
    return evolve(state, untold=untold, climb=Climb.begin(mode), rule=np.zeros(2))


def _right(state: Server, z: Array) -> bool:
    """Whether the prior decides nothing that rows decide, where its mode is (1, P)."""
    hessian = state.climb.hessian[0]
    before = state.before if state.widened else hessian
    return state.priors.right(state.widened, _sent(state, z)[0], hessian, before) and not _kept(state, z)


def _kept(state: Server, z: Array) -> bool:
    """Whether the job's prior decides nothing, as the mode (1, P) with the first wider one says."""
    if state.widened != 1:
        return False
    return state.priors.kept(z[0] - state.default, _sent(state, z)[0], state.climb.hessian[0], state.before)


def _judged(state: Server) -> Server:
    """Takes the prior of this mode if it decides nothing that rows decide, and else goes to the next wider one, or back."""
    if state.widened and not _has_room(state):
        return _given_up(state, BESIDE)
    if _right(state, state.climb.at):
        return evolve(state, decided=RIGHT)
    if _kept(state, state.climb.at):
        return _returned(state, RIGHT)
    if state.refused:
        return _returned(state, BESIDE)
    if state.widened == state.priors.most:
        return _returned(state, ENDLESS)
    if state.newton >= state.settings.newton - BACK:
        return _given_up(state, ENDLESS)
    mode, number = state.climb.at, state.widened + 1
    default = state.default if state.widened else mode[0]
    # Where curvatures fall with every step the mode before is no place to end, however near it is in the new prior's sds.
    climb = evolve(Climb.begin(mode), changed=np.full(mode.shape, np.inf if state.priors.bent else 0.0))
    return evolve(state, widened=number, default=default, before=state.climb.hessian[0], climb=climb, rule=np.zeros(2))


def _given_up(state: Server, why: int) -> Server:
    """Goes back where a wider prior's mode is not to be had: rows that set an end have it farther than can be asked."""
    xi, hessian = _sent(state, state.climb.at)[0], state.climb.hessian[0]
    grows = state.widened > 0 and state.priors.grows(state.widened, xi, hessian, state.before)
    return _returned(state, why if grows else FARTHER)


def _returned(state: Server, decided: int) -> Server:
    """Goes back to the mode with the job's prior."""
    if not state.widened:
        return evolve(state, decided=decided)
    climb = Climb.begin(state.default[np.newaxis])
    return evolve(state, widened=0, decided=decided, climb=climb, rule=np.zeros(2))


def _has_room(state: Server) -> bool:
    """Whether the posterior is within the box."""
    if (ends := state.coordinates.ends) is None:
        return True
    sums, B = ends.sums(state.climb.at[0]), ends.sums(Metric.of(state.climb.hessian[0]).factor.T)
    sd = np.sqrt((B**2).sum(axis=0))
    return bool(((sums - ROOM * sd > ends.low) & (sums + ROOM * sd < ends.high)).all())


def _stuck(state: Server) -> bool:
    """Whether a wider prior's mode is not to be had: it is beyond the box, or farther than there are questions."""
    if state.climb.ended:
        return False
    climb = state.climb
    return bool(climb.cut[0] and climb.length[0] < state.limits.near) or state.newton >= state.settings.newton - BACK


def _ask_summaries(state: Server) -> tuple[Server, ServerEffects]:
    """Asks clients that take part by a summary about the mode that is known without their next answers.

    Where nobody else is asked, it is one after another, each about the mode by those before it.
    """
    climb, quadratics = state.climb, state.quadratics
    mode, due = climb.at[0], _due(state) if state.exact else _due(state)[:1]
    round = int(quadratics.answered[due[0]])
    if round == 0:
        question: Message = AskCurvature(round, state.nodes, climb.at[:1])
    else:
        B = Metric.of(climb.hessian[0]).factor
        question = AskNormal(round, state.nodes, mode, packed((B @ B.T)[np.newaxis])[0])
    if quadratics.answered.max() == round:  # the first of these questions
        quadratics = evolve(quadratics, before=mode)
    who = [state.settings.summaries[i] for i in due]
    state = evolve(state, summing=1, quadratics=quadratics, waiting=PersistentSet(who), answers=PersistentMap())
    return state, to_each(who, question)


def _due(state: Server) -> list[int]:
    """Returns the summaries that are asked next; where nobody else is asked, none once the mode moves no more."""
    most, quadratics = state.settings.questions, state.quadratics
    answered = quadratics.answered
    if QUESTIONS <= answered.min(initial=most) == answered.max(initial=0) < most and state.climb.ended:
        most = QUESTIONS if quadratics.judged(state.climb.at[0], state.climb.hessian[0])[0] <= MOVED else most
    return quadratics.due(most)


def _summed(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """Takes a summary; after the last of these questions the mode is looked for with them."""
    summaries, q = state.settings.summaries, state.quadratics
    i = summaries.index(sender) if sender in summaries else -1
    if sender not in state.waiting or not isinstance(event, Curvature) or event.round != int(q.answered[i]):
        raise RemoteFault(f"{type(event).__name__} is no answer to the question for its summary", sender)
    if event.value[0] <= LOST:
        _refused(event.value, (state.names[sender],))
        raise NumericalError(
            f"the log-likelihood of client {state.names[sender]!r}, which takes part by a summary, is not finite about the "
            f"others' mode: {state.settings.advice.lost}"
        )
    state = evolve(state, waiting=state.waiting.minus(sender), answers=state.answers.plus(sender, (event,)))
    if state.waiting:
        return state, []
    for k, answers in sorted(state.answers.items()):
        (answer,) = answers
        assert isinstance(answer, Curvature)
        q = q.with_answer(summaries.index(k), state.climb.at[0], answer)
    return _ask_curvature(evolve(state, summing=0, quadratics=q, climb=state.climb.again()))


def _without_draws(state: Server) -> Server:
    """Returns the state without draws that were asked for around a point that is no mode; they count."""
    if not state.ahead:
        return state
    return evolve(
        state,
        ahead=0,
        asked=np.empty((0, state.coordinates.size)),
        proposals=(),
        drawn=state.drawn + len(state.asked) // state.settings.per_question,
    )


def _posterior(state: Server, answers: list[Curvature]) -> Derivatives:
    """Returns derivatives of the log-posterior of z at the trial points; NaN if a client's value is no number."""
    of_xi = state.prior  # made anew at each look, where numbers are 0
    prior = [of_xi.curvature(xi) for xi in _sent(state, state.climb.trial)]
    lost = np.any([answer.value <= LOST for answer in answers], axis=0)
    value = np.array([terms[0] for terms in prior]) + summed([answer.value for answer in answers])
    gradient = np.array([terms[1] for terms in prior]) + summed([answer.gradient for answer in answers])
    hessian = np.array([terms[2] for terms in prior]) + unpacked(
        summed([answer.hessian for answer in answers]), state.coordinates.size
    )
    value = np.where(lost, np.nan, value)
    of_z = state.coordinates.derivatives(state.climb.trial, state.units, Derivatives(value, gradient, hessian))
    return of_z if state.coordinates.learnt is None else held(of_z, state.coordinates.learnt)


def _defined(state: Server, values: Array) -> None:
    """Refuses starts at which nothing is known; `values` (J, c)."""
    lost = values <= LOST
    if lost.any(axis=0).all():
        _refused(values, state.names)
        who = name_flagged(np.asarray(lost.any(axis=1)), state.names)
        raise NumericalError(
            f"the log-likelihood of client {who} is not finite where the search for the mode begins: {state.settings.advice.lost}"
        )


def _refused(values: Array, names: tuple[str, ...]) -> None:
    """Raises an error where clients have refused a point without which there is no mode; `values` (J, ..)."""
    refused = np.asarray((values <= REFUSED).reshape(len(names), -1).any(axis=1))
    if refused.any():
        raise NumericalError(
            f"client {name_flagged(refused, names)} answers no question about a point {OF_FEW}, without which there is no way to "
            f"the mode: {WITHOUT_FEW}"
        )


def _no_mode(state: Server) -> None:
    """Raises an error that names the coordinates without a mode."""
    climb, names = state.climb, state.coordinates.names
    if climb.flat.any():
        i = int(np.argmax(climb.flat))
        direction = spelled(Metric.of(climb.hessian[i]).flattest, names)
        raise NumericalError(
            f"the posterior is flat along {direction}: neither rows nor prior say anything of it; {state.settings.advice.flat}"
        )
    i = int(np.argmax(climb.value))
    where = state.coordinates.sent(climb.at[i : i + 1], state.units)[0]
    which = ", ".join(f"{names[k]!r} (now {where[k]:.4g})" for k in moving(climb, i, state.limits)[:5]) or "none, at a saddle"
    raise NumericalError(
        f"no mode of the posterior was found in {state.newton} rounds; still moving: {which}. {state.settings.advice.moving}"
    )


# Protocol --------------------


def protocol(settings: Settings) -> Protocol[Server, Client]:
    """Returns the protocol with only the messages that a job of these settings can send."""
    of_curvature, of_values = (Curvature, Values) if settings.box is None else (SummedCurvature, SummedValues)
    down: tuple[type[Message], ...] = (AskCurvature,)
    up: tuple[type[Any], ...] = (of_curvature,)
    if settings.summaries:
        down = (*down, AskNormal)
    if settings.rounds:
        down, up = (*down, AskValues, *((Posterior,) if settings.told else ())), (*up, of_values)
    return Protocol("importance", down, up, server_receive, client_receive, finished, save, load)
