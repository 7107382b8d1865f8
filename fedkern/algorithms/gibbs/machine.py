"""Defines Gibbs sampling of a sparse hierarchical model over sites: server and clients as state machines without I/O.

Each round the server sends theta and tau^2; a client sweeps over its own scales, coefficients and error variance, and answers
with its deviations and scales (or only with their sums). The server moves, sweeps, keeps the draw, and asks again. Answers are
used in client order, whenever they come. Source: docs/spec/sparse.md, section 5.

| event at the client | its work | its answer |
|---|---|---|
| Globals | shifts its deviations, sweeps | Locals, or Sums |
| GlobalsTempered | the same at other temperatures | Locals and Loglik |
| GlobalsMoved | the same, after the server's move | Locals and MoveTerms, or SecondMoveTerms |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from ...arrays import Array
from ...errors import NumericalError
from ...kernels import shrinkage
from ...kernels.bound import Bound
from ...kernels.ranges import within
from ..core.kept import GIVEN, load, save
from ..core.messages import ClientEffects, ClientLost, Event, Message, Protocol, RemoteFault, Saved, ServerEffects, evolve
from ..core.rounds import active, in_order, needed, to_each
from ..core.trace import Trace
from . import sweeps
from .settings import (
    MOVES,
    Globals,
    GlobalsMoved,
    GlobalsTempered,
    Locals,
    Loglik,
    MoveTerms,
    SecondMoveTerms,
    Settings,
    Sums,
    expected,
    sent,
)
from .sites import Counter, Movable, Moving, Site, State, moved
from .sweeps import Terms, Values, add_events, first

__all__ = ["load", "save"]  # what stands elsewhere

# Client --------------------


QUESTIONS = (Globals, GlobalsMoved, GlobalsTempered)
# Of theta, and of tau^2, where sums are masked: with them no sum leaves its word, and draws of a posterior beyond them come once
# in 1e14 at most (sparse.md, section 5).
LARGEST, TAU_SQ = 1e12, (1e-40, 1e40)


@final
@dataclass(frozen=True)
class Client:
    """Is a client's state.

    Attributes
    ----------
    name, index, site : of the client; its rows are in `site`
    seed : of its own random numbers: that of all streams, or one that nobody else has
    state : of the site, see `sites`
    theta, tau_sq : (c, g, p) as it was last told
    step : its own sweeps so far
    since : the burn-in that it knows of
    trace : kept draws of theta_k and of the unknowns that it never sends
    events : counts of clipped scales, QR fall-backs, data-space draws
    """

    name: str = field(metadata=GIVEN)
    index: int = field(metadata=GIVEN)
    settings: Settings = field(metadata=GIVEN)
    site: Site = field(metadata=GIVEN)
    state: State
    theta: Array
    tau_sq: Array
    trace: Any
    seed: int
    step: int = 0
    since: int = 0
    events: NDArray[np.int64] = field(default_factory=lambda: np.zeros(3, np.int64))


def client(name: str, index: int, settings: Settings, site: Site, trace: object = None, seed: int | None = None) -> Client:
    """Returns a client before the first round; without a seed of its own it has that of all parties."""
    values = first(settings)
    trace = Trace() if trace is None else trace
    seed = settings.seed if seed is None else seed
    return Client(name, index, settings, site, site.start(settings), values.theta, values.tau_sq, trace, seed)


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Takes theta and tau^2, sweeps, and answers with the deviations (or their sums)."""
    if not isinstance(event, QUESTIONS):
        raise RemoteFault(f"server: {type(event).__name__} was not expected")
    if not state.settings.masked:
        state = updated(state, event)
        return state, answers(state, event.round)
    _check(state, event)
    try:
        state = updated(state, event)
    except NumericalError:  # of rows that cannot be: no number, which ends the job at all clients
        step = state.step + state.settings.local_sweeps
        c, n = event.theta.shape
        return evolve(state, step=step), [Sums(event.round, np.full((state.settings.sums, c, n), np.nan))]
    return state, answers(state, event.round)


def _check(state: Client, event: Globals | GlobalsMoved | GlobalsTempered) -> None:
    """Raises RemoteFault for a question that no server of a job with masked sums asks: all clients know so alike."""
    settings, low, high = state.settings, *TAU_SQ
    known = event.round * settings.local_sweeps == state.step and event.since == 0 and event.round < settings.rounds
    if not (known and within(event.theta, -LARGEST, LARGEST) and within(event.tau_sq, low, high)):
        raise RemoteFault(
            "server: it asks for another round than the next, or for coefficients or scales out of this job's bounds"
        )


def updated(state: Client, event: Globals | GlobalsMoved | GlobalsTempered) -> Client:
    """Returns a client after its sweeps of a round."""
    layout = state.settings.layout
    theta, tau_sq = layout.full(event.theta, 0.0), layout.full(event.tau_sq, 1.0)
    local = state.state
    if isinstance(event, GlobalsMoved):
        # The server has moved tau: the deviation keeps its standardised value w, so that theta_k follows the move.
        t = layout.full(event.t, 1.0)
        local = {**local, "deviation": t * (local["deviation"] / np.sqrt(state.tau_sq))}
        local = moved(local, layout.full(event.moved, 0.0) - theta)
    else:
        local = moved(local, state.theta - theta)
    if isinstance(event, GlobalsTempered):
        local["temperature"] = event.temperature.copy()
    return swept(state, local, theta, tau_sq, event)


def swept(state: Client, before: State, theta: Array, tau_sq: Array, event: Globals | GlobalsMoved | GlobalsTempered) -> Client:
    """Runs the local sweeps of a round, from the site's state as the server's draws have left it."""
    settings, since = state.settings, event.since
    counter: Counter = {"seed": state.seed, "client": state.index, "step": state.step}
    local, taken = state.site.sweeps(settings, before, theta, tau_sq, **counter)
    events = add_events(state.events, taken)
    if since != state.since:
        state.trace.clear()
    if settings.keeps(event.round + 1 - since):
        draw = {"theta": theta, "deviation": local["deviation"]}
        for name in state.site.traced:
            draw[name] = local[name]
        if settings.tempering > 1:  # the chains whose draws count
            cold = np.flatnonzero(before["temperature"] == 1)
            draw = {name: value[cold] for name, value in draw.items()}
        state.trace.add(draw, settings.layout.of_site)
    step = state.step + settings.local_sweeps
    return evolve(state, state=before | local, theta=theta, tau_sq=tau_sq, step=step, since=since, events=events)


def answers(state: Client, round: int) -> ClientEffects:
    """Returns a client's messages after its sweeps."""
    messages: ClientEffects = [*draws(state, round)]
    if (move := state.settings.move(round)) is not None:
        each = zip(*(move_terms(state, round, j) for j in range(state.settings.layout.shape[0])))
        messages.append(MOVES[move](round, *(np.stack(part, axis=1) for part in each)))
    return messages


def draws(state: Client, round: int) -> list[Message]:
    """Returns its deviations and scales, or their sums, and the log-likelihood if chains exchange temperatures."""
    settings, local = state.settings, state.state
    flat = settings.layout.flat
    if settings.aggregate == "sums":
        sums = shrinkage.local_sums(local["deviation"], local["lambda_sq"], slab=settings.prior.slab)
        return [Sums(round, flat(sums))]
    messages: list[Message] = [Locals(round, flat(local["deviation"]), flat(local["lambda_sq"]))]
    if settings.tempering > 1:
        messages.append(Loglik(round, local["loglik"]))
    return messages


def move_terms(state: Client, round: int, regression: int) -> tuple[Array, Array]:
    """Returns a client's part of the gradient (c, w) and the precision (c, w, w) of a round's move in one regression."""
    site, settings = state.site, state.settings
    assert isinstance(site, Movable)  # the job's keys refuse moves elsewhere
    counter: Counter = {"seed": state.seed, "client": state.index, "step": state.step}
    return site.move_terms(moving(state, settings.coordinates(round), regression), state.state, **counter)


def moving(state: Client, coordinates: NDArray[np.int64], regression: int) -> Moving:
    """Returns a round's move in one regression, with the place of a client's coefficients."""
    settings = state.settings
    block = settings.layout.places(coordinates, regression)
    return Moving(state.theta[:, regression], state.tau_sq[:, regression], regression, block, settings.prior.slab)


# Server --------------------


Judge = Callable[[Any], bool]
M = TypeVar("M", bound=Message)

FIRST_JUDGED = 250  # kept rounds after which convergence is judged first; then each time they have doubled
SMALLEST = float(np.nextafter(0.0, 1.0))
LARGEST_DEVIATION = 1e12  # of any deviation, in the units of the standardised data


@final
@dataclass(frozen=True)
class Server:
    """Is the server's state.

    Attributes
    ----------
    values : the last draws of all global quantities
    deviation, lambda_sq : (M, c, g, p) of all clients as they are now; None before the first round, and with sums
    round, since, step : rounds finished; the round in which burn-in began; the server's own sweeps so far
    waiting, answers : clients that have yet to answer; client -> its messages of this round. Like the trace they change
        in place: a copy a message would take as long as all clients' numbers together
    names : of the messages of an answer in this round
    lost : clients that are out of the model
    updates : (M,) rounds in which each client took part
    events : counts of clipped scales, QR fall-backs, data-space draws
    trace : kept draws
    judge : kept draws -> whether they suffice
    converged : the judge's last word
    ladder : of temperatures, if chains exchange them
    at_hand : a move's terms where the clients' statistics are at the server, one regression after the other; None: messages
        have them
    rows : each client's number of rows, where they are known: weights of an average
    told : (M, P) of which coefficients each client's rows tell something; None: of all
    bound : the call of its sweeps
    together : the number of clients that an answer is of: more than one where it is the sum of all
    moments : (M, n, n + 1) sums over all kept draws of each client's coefficients, and of their products; None if they are not
        compared, and before the first
    """

    settings: Settings = field(metadata=GIVEN)
    values: Values
    updates: NDArray[np.int64]
    trace: Any
    judge: Judge | None = field(default=None, metadata=GIVEN)
    deviation: Array | None = None
    lambda_sq: Array | None = None
    round: int = 0
    since: int = 0
    step: int = 0
    waiting: set[int] = field(default_factory=set)
    answers: dict[int, dict[str, Message]] = field(default_factory=dict, metadata=GIVEN)
    names: tuple[str, ...] = field(default=(), metadata=GIVEN)
    lost: frozenset[int] = frozenset()
    events: NDArray[np.int64] = field(default_factory=lambda: np.zeros(3, np.int64))
    converged: bool = False
    ladder: sweeps.Ladder | None = None
    at_hand: Terms | None = field(default=None, metadata=GIVEN)
    rows: tuple[int, ...] = field(default=(), metadata=GIVEN)
    told: NDArray[np.bool_] | None = field(default=None, metadata=GIVEN)
    bound: Bound[shrinkage.ServerSweeps] = field(default_factory=Bound, metadata=GIVEN)
    together: int = field(default=1, metadata=GIVEN)
    moments: Array | None = None

    def restored(self, saved: Saved) -> Server:
        """Returns the state with the messages of an answer in its round."""
        return evolve(self, answers={}, names=expected(self.settings, self.settings.move(self.round)))

    @property
    def n_clients(self) -> int:
        return len(self.updates)

    @property
    def active(self) -> list[int]:
        return active(self.n_clients, self.lost)

    @property
    def stop(self) -> str | None:
        """The reason why no more is asked: "converged", "rounds"; None while the job runs."""
        if self.converged:
            return "converged"
        return "rounds" if self.round - self.since >= self.settings.rounds else None


def start(
    settings: Settings, n_clients: int, judge: Judge | None = None, trace: object = None, without: frozenset[int] = frozenset()
) -> tuple[Server, ServerEffects]:
    """Returns the server's first state, and its first questions. `without`: clients that the model leaves out."""
    values = sweeps.first(settings)
    trace = Trace() if trace is None else trace
    steps = sweeps.ladder(settings.chains, settings.tempering) if settings.tempering > 1 else None
    state = Server(settings, values, np.zeros(n_clients, np.int64), trace, judge, lost=without, ladder=steps)
    return _ask(state, _question(state, None))


def _question(state: Server, before_sweep: tuple[Array, Array] | None) -> Message:
    """Returns theta and tau^2 for the next round, with the values of a move or a ladder."""
    flat = state.settings.layout.flat
    theta, tau_sq = flat(state.values.theta), flat(state.values.tau_sq)
    if state.ladder is not None:
        return GlobalsTempered(state.round, state.since, theta, tau_sq, state.ladder.temperature)
    if before_sweep is None:
        return Globals(state.round, state.since, theta, tau_sq)
    theta_moved, t = (flat(value) for value in before_sweep)
    return GlobalsMoved(state.round, state.since, theta_moved, t, theta, tau_sq)


def finished(state: Server) -> bool:
    return not state.waiting and state.stop is not None


def _ask(state: Server, question: Message) -> tuple[Server, ServerEffects]:
    """Sends the round's question to those that take part."""
    here = active = state.active
    if state.settings.participation < 1:
        chosen = state.settings.takes_part(state.round, state.n_clients)
        here = [k for k in active if chosen[k]] or [active[state.round % len(active)]]
    names = expected(state.settings, state.settings.move(state.round))
    return evolve(state, waiting=set(here), answers={}, names=names), to_each(here, question)


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """Takes one answer, or the loss of a client. After the last answer of a round it draws, and asks the next question."""
    if isinstance(event, ClientLost):
        return _lose(state, event)
    settings = state.settings
    names = state.names if state.at_hand is None else ("Locals",)
    name = type(event).__name__
    round, have = getattr(event, "round", None), state.answers.get(sender, {})
    if not isinstance(event, Message) or sender not in state.waiting or round != state.round or name not in names or name in have:
        raise RemoteFault(f"{name} of round {round} is no answer to round {state.round}", sender)
    if settings.aggregate == "sums" and not (_of({name: event}, Sums).sums[0] > 0).all():
        raise RemoteFault(f"Sums.sums[0] must be > 0; round {round}", sender)
    have[name] = event
    state.answers[sender] = have
    if len(have) == len(names):
        state.waiting.remove(sender)
    return (state, []) if state.waiting else _next(state)


def _check_locals(state: Server, deviation: Array, lambda_sq: Array) -> None:
    """Raises RemoteFault if a number of a round cannot be; looks at all clients at once."""
    if not (within(deviation, -LARGEST_DEVIATION, LARGEST_DEVIATION) and within(lambda_sq, SMALLEST, np.inf)):
        for sender in sorted(state.answers):
            size = float(np.abs(deviation[sender]).max())
            if not size <= LARGEST_DEVIATION:
                raise RemoteFault(f"Locals.deviation has a number of size {size:.3g}, allowed {LARGEST_DEVIATION:.0g}", sender)
            if not (lambda_sq[sender] > 0).all():
                raise RemoteFault(f"Locals.lambda_sq must be > 0; round {state.round}", sender)


def _lose(state: Server, event: ClientLost) -> tuple[Server, ServerEffects]:
    """Stops, or goes on as the model without this client: its draws so far are another posterior's and are forgotten
    (section 5).
    """
    if state.settings.on_loss == "stop":
        needed(
            event,
            f"the model needs all its clients in round {state.round}; --resume goes on from the last checkpoint when it is back; "
            'algorithm.on_loss = "drop" goes on without it, as another model',
        )
    lost = state.lost | {event.client}
    if len(lost) == state.n_clients:
        needed(event, f"no client is left in round {state.round}; --resume goes on from the last checkpoint when one is back")
    state.trace.clear()
    answers = {k: v for k, v in state.answers.items() if k not in lost}
    state = evolve(state, lost=lost, since=state.round, waiting=state.waiting - lost, answers=answers, moments=None)
    return (state, []) if state.waiting else _next(state)


def _next(state: Server) -> tuple[Server, ServerEffects]:
    """Draws, keeps the draw, and asks the next question."""
    if len(state.answers) == state.n_clients:
        updates = state.updates + 1
    else:
        updates = state.updates.copy()
        updates[sorted(state.answers)] += 1
    state, before_sweep = drawn(state)
    state = evolve(state, updates=updates, round=state.round + 1)
    _keep(state)
    if state.settings.compares:
        state = evolve(state, moments=_added(state))
    if _to_be_judged(state):
        assert state.judge is not None
        state = evolve(state, converged=bool(state.judge(state.trace)))
    if state.stop:
        return evolve(state, answers={}), []
    return _ask(state, _question(state, before_sweep))


def drawn(state: Server) -> tuple[Server, tuple[Array, Array] | None]:
    """Runs the server's move and sweeps with the round's answers; returns theta and t after the move, if it made one."""
    settings, layout = state.settings, state.settings.layout
    if settings.aggregate == "sums":
        sums = {k: layout.full(_of(answer, Sums).sums, 0.0) for k, answer in state.answers.items()}
        for sums_of_client in () if layout.whole else sums.values():
            sums_of_client[0][..., ~layout.has_coefficient] = float(state.together)
        n = len(sums) * state.together
        values, events = sweeps.swept_sums(settings, state.values, sums, n, state.step)
        return evolve(state, values=values, step=state.step + 1, events=add_events(state.events, events)), None
    deviation, lambda_sq = _collected(state)
    _check_locals(state, deviation, lambda_sq)
    values, before_sweep, steps = state.values, None, state.ladder
    if steps is not None:
        loglik = np.sum([_of(answer, Loglik).loglik for answer in in_order(state.answers)], axis=0)
        adapt = state.round - state.since < settings.burn_in
        # Chains exchange temperatures before the sweeps: the ladder's next question already has the new ones.
        steps = sweeps.exchange_temperatures(steps, loglik, seed=settings.seed, round=state.round, adapt=adapt)
    if settings.moves:
        terms = _terms(state) if state.at_hand is None else state.at_hand
        tau = np.sqrt(values.tau_sq)
        # The clients' deviations follow the move (d becomes t w), here as at the clients.
        values, t = sweeps.moved(settings, values, terms, state.round, state.step)
        deviation /= tau
        deviation *= t
        before_sweep = values.theta, t
    here = state.active
    if len(here) == state.n_clients:
        values, deviation, lambda_sq, events = sweeps.swept(settings, values, deviation, lambda_sq, state.step, state.bound)
    else:
        values, deviation[here], lambda_sq[here], events = sweeps.swept(
            settings, values, deviation[here], lambda_sq[here], state.step, state.bound
        )
    step, events = state.step + settings.server_sweeps, add_events(state.events, events)
    state = evolve(state, values=values, deviation=deviation, lambda_sq=lambda_sq, step=step, events=events, ladder=steps)
    return state, before_sweep


def _collected(state: Server) -> tuple[Array, Array]:
    """Returns d and lambda^2 (M, c, g, p) of all clients, with this round's answers."""
    settings, answered = state.settings, sorted(state.answers)
    layout, shape = settings.layout, (len(answered), settings.chains, settings.layout.size)
    now, scales = np.empty(shape), np.empty(shape)
    for place, k in enumerate(answered):
        answer = _of(state.answers[k], Locals)
        now[place], scales[place] = answer.deviation, answer.lambda_sq
    now, scales = layout.full(now, 0.0), layout.full(scales, 1.0)
    if len(answered) == state.n_clients:
        return now, scales
    whole_shape = (state.n_clients, *now.shape[1:])
    deviation = np.zeros(whole_shape) if state.deviation is None else state.deviation.copy()
    lambda_sq = np.ones(whole_shape) if state.lambda_sq is None else state.lambda_sq.copy()
    deviation[answered], lambda_sq[answered] = now, scales
    return deviation, lambda_sq


def _terms(state: Server) -> Terms:
    """Returns the terms of this round's move, as the clients have sent them."""
    move = state.settings.move(state.round)
    assert move is not None
    parts = [answer[MOVES[move].__name__] for answer in in_order(state.answers)]

    def of(regression: int) -> tuple[Array, Array]:
        gradient, precision = np.zeros(()), np.zeros(())
        for part in parts:
            assert isinstance(part, MoveTerms | SecondMoveTerms)
            gradient, precision = gradient + part.gradient[:, regression], precision + part.precision[:, regression]
        return gradient, precision

    return of


def _of(answer: Mapping[str, Message], kind: type[M]) -> M:
    message = answer[kind.__name__]
    assert isinstance(message, kind)
    return message


@lru_cache(maxsize=4)
def _weights(rows: tuple[int, ...], lost: frozenset[int]) -> Array:
    """Returns the share (1, m) of each client that is left in all their rows."""
    here = np.array([n for k, n in enumerate(rows) if k not in lost], float)
    return np.asarray(here / here.sum())[None]


def _keep(state: Server) -> None:
    if not state.settings.keeps(state.round - state.since):
        return
    draw, ladder = state.values.kept(), state.ladder
    if ladder is not None:
        draw = {name: value[ladder.cold] for name, value in draw.items()}
    if state.deviation is not None:
        deviation = state.deviation[state.active] if state.lost else state.deviation
        draw["deviation"] = deviation if ladder is None else deviation[:, ladder.cold]
    state.trace.add(draw, partial(_kept, state))


def _added(state: Server) -> Array | None:
    """Returns the sums of clients' coefficients and of their products, with those of a kept round."""
    settings, ladder = state.settings, state.ladder
    if state.deviation is None or not settings.keeps(state.round - state.since):
        return state.moments
    coefficients = settings.layout.flat(state.values.kept()["theta"] + state.deviation)  # (M, c, n)
    coefficients = coefficients if ladder is None else coefficients[:, ladder.cold]
    sums = np.concatenate(
        [coefficients.sum(axis=1)[:, :, np.newaxis], np.einsum("mci,mcj->mij", coefficients, coefficients)], axis=2
    )
    return sums if state.moments is None else state.moments + sums


def _kept(state: Server, draws: Mapping[str, Array]) -> dict[str, Array]:
    """Returns the kept numbers of the draws (t, c, ...) of several rounds and the sites' deviations (t, m, c, g, p)."""
    settings, flat, theta = state.settings, state.settings.layout.flat, draws["theta"]
    kept = {"theta": flat(theta), "tau_sq": flat(draws["tau_sq"]), "inclusion": flat(draws["inclusion"])}
    kept["eta"] = flat(draws["eta"]) if settings.prior.eta_form == "coordinate" else draws["eta"][..., 0]
    kept["rho"] = draws["rho"]
    here = draws.get("deviation")
    if here is None:
        return kept
    whole = isinstance(state.trace, Trace)  # streams have no place for these
    if state.told is not None and not state.told[state.active].all():
        kept |= _of_those_that_tell(state, flat(theta), flat(here), whole)
        if settings.share_local:
            kept["sites"] = np.moveaxis(flat(theta[:, np.newaxis] + here), 1, 2)  # (t, c, m, n)
        return kept
    t, m = here.shape[:2]
    mean = np.add.reduce(here, axis=1) / m
    kept["average"] = flat(theta + mean)
    if whole and m > 1:
        away = here - mean[:, np.newaxis]
        away *= away
        kept["between"] = flat(np.sqrt(np.add.reduce(away, axis=1) / (m - 1)))
    if whole and state.rows:
        weights = _weights(state.rows, state.lost)
        by_rows = np.matmul(weights, here.reshape(t, m, -1))
        kept["by_rows"] = flat(theta + by_rows.reshape(mean.shape))
    if settings.share_local:
        kept["sites"] = np.moveaxis(flat(theta[:, np.newaxis] + here), 1, 2)  # (t, c, m, n)
    return kept


def _of_those_that_tell(state: Server, theta: Array, here: Array, whole: bool) -> dict[str, Array]:
    """Returns the kept numbers of several sites, for each coefficient from those alone whose rows tell something of it.

    The others' coefficients have their prior, whose tails have no mean: neither would an average with them. If no client tells
    anything, all of them count.

    Parameters
    ----------
    theta, here : (t, c, n), and the deviations (t, m, c, n)
    """
    assert state.told is not None
    tells = state.told[state.active]
    tells = np.where(tells.any(axis=0), tells, True)[:, np.newaxis]  # (m, 1, n)
    count = tells.sum(axis=0)
    mean = np.where(tells, here, 0.0).sum(axis=1) / count
    kept = {"average": theta + mean}
    if whole and len(tells) > 1:
        away = np.where(tells, here - mean[:, np.newaxis], 0.0)
        alone = count < 2
        between = np.sqrt((away * away).sum(axis=1) / np.where(alone, 1, count - 1))
        kept["between"] = np.where(alone, np.nan, between)
    if whole and state.rows:
        rows = np.array([state.rows[k] for k in state.active], float)[:, np.newaxis, np.newaxis]
        weights = np.where(tells, rows, 0.0)
        kept["by_rows"] = theta + (np.where(tells, here, 0.0) * weights).sum(axis=1) / weights.sum(axis=0)
    return kept


def _to_be_judged(state: Server) -> bool:
    if state.judge is None or not state.settings.keeps(state.round - state.since):
        return False
    doublings, rest = divmod(state.trace.count, FIRST_JUDGED)
    return bool(rest == 0 and doublings.bit_count() == 1)


# Protocol --------------------


def protocol(settings: Settings) -> Protocol[Server, Client]:
    """Returns the protocol of a job, with only the messages that it sends."""
    down: tuple[type[Message], ...] = (Globals, GlobalsMoved) if settings.moves else (Globals,)
    if settings.tempering > 1:
        down = (GlobalsTempered,)
    return Protocol("gibbs", down, sent(settings), server_receive, client_receive, finished, save, load)
