"""Gibbs sampling of a sparse hierarchical model over sites: the server and the clients as state machines without I/O.

Each round the server sends theta and tau^2; a client sweeps over its own scales, coefficients and error variance, and answers
with its deviations and scales (or only with their sums). The server moves, sweeps, keeps the draw, and asks again. Answers are
used in client order, whenever they come. Source: docs/methods/sparse.md, section 5.

| event at the client | what it does | what it sends |
|---|---|---|
| Globals | shifts its deviations, sweeps | Locals, or Sums |
| GlobalsTempered | the same at other temperatures | Locals and Loglik |
| GlobalsMoved | the same, after the server's move | Locals and MoveTerms |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...errors import LostPeer
from ...kernels import shrinkage
from ..core.messages import ClientEffects, ClientLost, Effect, Message, Protocol, RemoteFault, Saved, ServerEffects
from ..core.trace import Trace
from . import sweeps as update
from . import tempering as tempering
from .settings import Settings
from .sites import Site, State, moved
from .sweeps import Terms, Values

Array = NDArray[np.float64]
Coefficients = Annotated[NDArray[np.float64], "c n"]
Judge = Callable[[Any], bool]
M = TypeVar("M", bound=Message)

FIRST_JUDGED = 250  # kept rounds after which convergence is judged first; then each time they have doubled
LARGEST = 1e12  # of any deviation, in the units of the standardised data


@dataclass(frozen=True)
class Globals(Message, kind=30):
    """Server to client: theta and tau^2 of all chains. `since`: the round in which this burn-in began."""

    round: int
    since: int
    theta: Coefficients
    tau_sq: Coefficients


@dataclass(frozen=True)
class GlobalsMoved(Message, kind=31):
    """Server to client: the same after a move. The client's d becomes t w, and then follows theta from `moved` to `theta`."""

    round: int
    since: int
    moved: Coefficients
    t: Coefficients
    theta: Coefficients
    tau_sq: Coefficients


@dataclass(frozen=True)
class Locals(Message, kind=32):
    """Client to server: its deviations and lambda^2."""

    round: int
    deviation: Coefficients
    lambda_sq: Coefficients


@dataclass(frozen=True)
class MoveTerms(Message, kind=33):
    """Client to server, with `Locals`, if the job has a move: its terms of the move's gradient and precision."""

    round: int
    gradient: Annotated[NDArray[np.float64], "c w"]
    precision: Annotated[NDArray[np.float64], "c w w"]


@dataclass(frozen=True)
class GlobalsTempered(Message, kind=37):
    """Server to client: theta and tau^2, and the power of each chain's likelihood from now on."""

    round: int
    since: int
    theta: Coefficients
    tau_sq: Coefficients
    temperature: Annotated[NDArray[np.float64], "c"]


@dataclass(frozen=True)
class Loglik(Message, kind=38):
    """Client to server, with `Locals`, if chains exchange temperatures: its log-likelihood, one number for each chain."""

    round: int
    loglik: Annotated[NDArray[np.float64], "c"]


@dataclass(frozen=True)
class Sums(Message, kind=34):
    """Client to server, instead of `Locals`: 1 / lambda^2, d / lambda^2, d^2 / lambda^2 (and d, with a slab), to be added."""

    round: int
    sums: Annotated[NDArray[np.float64], "s c n"]


# The server --------------------


@dataclass(frozen=True)
class Server:
    """The server's state.

    Attributes
    ----------
    values : the last draws of all global quantities
    deviation, lambda_sq : (M, c, g, p) of all clients as they are now; None before the first round, and with sums
    round, since, step : rounds finished; the round in which burn-in began; the server's own sweeps so far
    waiting : clients that have yet to answer
    answers : client -> what it has answered in this round
    lost : clients that are out of the model
    updates : (M,) rounds in which each client took part
    events : counts of clipped scales, QR fall-backs, data-space draws
    trace : kept draws
    judge : kept draws -> whether they suffice
    converged : the judge's last word
    ladder : of temperatures, if chains exchange them
    """

    settings: Settings
    values: Values
    updates: NDArray[np.int64]
    trace: Any
    judge: Judge | None = None
    deviation: Array | None = None
    lambda_sq: Array | None = None
    round: int = 0
    since: int = 0
    step: int = 0
    waiting: frozenset[int] = frozenset()
    answers: Mapping[int, Mapping[str, Message]] = field(default_factory=dict)
    lost: frozenset[int] = frozenset()
    events: NDArray[np.int64] = field(default_factory=lambda: np.zeros(3, np.int64))
    converged: bool = False
    ladder: tempering.Ladder | None = None

    @property
    def n_clients(self) -> int:
        return len(self.updates)

    @property
    def active(self) -> list[int]:
        return [k for k in range(self.n_clients) if k not in self.lost]

    @property
    def stop(self) -> str | None:
        """Why no more is asked: "converged", "rounds", "lost"; None while the job runs."""
        if self.converged:
            return "converged"
        if not self.active:
            return "lost"
        return "rounds" if self.round - self.since >= self.settings.rounds else None


def start(
    settings: Settings, n_clients: int, judge: Judge | None = None, trace: Any = None, without: frozenset[int] = frozenset()
) -> tuple[Server, ServerEffects]:
    """The server's first state, and its first questions. `without`: clients that the model leaves out."""
    values = update.first(settings)
    trace = Trace() if trace is None else trace
    steps = tempering.ladder(settings.chains, settings.tempering) if settings.tempering > 1 else None
    state = Server(settings, values, np.zeros(n_clients, np.int64), trace, judge, lost=without, ladder=steps)
    return _ask(state, _question(state, None))


def _question(state: Server, before_sweep: tuple[Array, Array] | None) -> Message:
    """theta and tau^2 for the next round, with what a move or a ladder adds."""
    flat = state.settings.layout.flat
    theta, tau_sq = flat(state.values.theta), flat(state.values.tau_sq)
    if state.ladder is not None:
        return GlobalsTempered(state.round, state.since, theta, tau_sq, state.ladder.temperature)
    if before_sweep is None:
        return Globals(state.round, state.since, theta, tau_sq)
    at, t = (flat(value) for value in before_sweep)
    return GlobalsMoved(state.round, state.since, at, t, theta, tau_sq)


def finished(state: Server) -> bool:
    return state.stop is not None and not state.waiting


def _ask(state: Server, question: Effect) -> tuple[Server, ServerEffects]:
    """The round's question to those that take part."""
    chosen = state.settings.takes_part(state.round, state.n_clients)
    here = [k for k in state.active if chosen[k]] or [state.active[state.round % len(state.active)]]
    return replace(state, waiting=frozenset(here), answers={}), [(k, question) for k in here]


def server_receive(state: Server, sender: int, event: Any) -> tuple[Server, ServerEffects]:
    """One answer, or the loss of a client. When the last answer of a round is here: the server's draws, and the next question."""
    if isinstance(event, ClientLost):
        return _lose(state, event)
    names = _expected(state.settings)
    name = type(event).__name__
    have = state.answers.get(sender, {})
    if sender not in state.waiting or event.round != state.round or name not in names or name in have:
        raise RemoteFault(f"client {sender}: {name} of round {getattr(event, 'round', None)} is no answer to round {state.round}")
    _check(sender, event)
    have = {**have, name: event}
    waiting = state.waiting - {sender} if len(have) == len(names) else state.waiting
    state = replace(state, answers={**state.answers, sender: have}, waiting=waiting)
    return (state, []) if state.waiting else _next(state)


def _expected(settings: Settings) -> tuple[str, ...]:
    if settings.aggregate == "sums":
        return ("Sums",)
    if settings.tempering > 1:
        return ("Locals", "Loglik")
    return ("Locals", "MoveTerms") if settings.moves else ("Locals",)


KINDS: dict[str, type[Message]] = {"Locals": Locals, "MoveTerms": MoveTerms, "Sums": Sums, "Loglik": Loglik}


def _check(sender: int, event: Any) -> None:
    """Whether a client's numbers can be what they are called."""
    if isinstance(event, Locals):
        size = float(np.abs(event.deviation).max(initial=0))
        if size > LARGEST:
            raise RemoteFault(f"client {sender}: Locals.deviation has a number of size {size:.3g}, allowed {LARGEST:.0g}")
        if not (event.lambda_sq > 0).all():
            raise RemoteFault(f"client {sender}: Locals.lambda_sq must be > 0; round {event.round}")
    if isinstance(event, Sums) and not (event.sums[0] > 0).all():
        raise RemoteFault(f"client {sender}: Sums.sums[0] must be > 0; round {event.round}")


def _lose(state: Server, event: ClientLost) -> tuple[Server, ServerEffects]:
    """Stop, or go on as the model without this client: its draws so far are another posterior's and are forgotten (section 5)."""
    if state.settings.on_loss == "stop":
        raise LostPeer(
            f"the model needs all its clients in round {state.round}; --resume goes on from the last checkpoint when it is back; "
            'algorithm.on_loss = "drop" goes on without it, as another model'
        )
    lost = state.lost | {event.client}
    state.trace.clear()
    answers = {k: v for k, v in state.answers.items() if k not in lost}
    state = replace(state, lost=lost, since=state.round, waiting=state.waiting - lost, answers=answers)
    if state.waiting or not state.active:
        return state, []
    return _next(state)


def _next(state: Server) -> tuple[Server, ServerEffects]:
    """The server's draws of this round, the kept draw, and the next question."""
    updates = state.updates.copy()
    updates[sorted(state.answers)] += 1
    state, before_sweep = drawn(replace(state, updates=updates))
    state = replace(state, round=state.round + 1, waiting=frozenset(), answers={})
    _keep(state)
    if _to_be_judged(state):
        assert state.judge is not None
        state = replace(state, converged=bool(state.judge(state.trace)))
    if state.stop:
        return state, []
    return _ask(state, _question(state, before_sweep))


def drawn(state: Server) -> tuple[Server, tuple[Array, Array] | None]:
    """The server's move and sweeps with the round's answers; theta and t after the move, if there was one."""
    settings, layout = state.settings, state.settings.layout
    if settings.aggregate == "sums":
        sums = {k: layout.full(_of(answer, Sums).sums, 0.0) for k, answer in state.answers.items()}
        for told in () if layout.whole else sums.values():
            told[0][..., ~layout.there] = 1.0
        values, events = update.swept_sums(settings, state.values, sums, state.step)
        return replace(state, values=values, step=state.step + 1, events=_counted(state.events, events)), None
    shape = (state.n_clients, settings.chains, *layout.shape)
    deviation = np.zeros(shape) if state.deviation is None else state.deviation.copy()
    lambda_sq = np.ones(shape) if state.lambda_sq is None else state.lambda_sq.copy()
    for k, answer in state.answers.items():
        own = _of(answer, Locals)
        deviation[k], lambda_sq[k] = layout.full(own.deviation, 0.0), layout.full(own.lambda_sq, 1.0)
    values, before_sweep, steps = state.values, None, state.ladder
    if steps is not None:
        loglik = np.sum([_of(state.answers[k], Loglik).loglik for k in sorted(state.answers)], axis=0)
        adapt = state.round - state.since < settings.burn_in
        steps = tempering.exchanged(steps, loglik, seed=settings.seed, round=state.round, adapt=adapt)
    if settings.moves:
        parts = [_of(state.answers[k], MoveTerms) for k in sorted(state.answers)]
        terms = Terms(sum(p.gradient for p in parts), sum(p.precision for p in parts))  # type: ignore[arg-type]
        tau = np.sqrt(values.tau_sq)
        values, t = update.moved(settings, values, terms, state.round, state.step)
        deviation = t * (deviation / tau)
        before_sweep = values.theta, t
    here = state.active
    values, deviation[here], lambda_sq[here], events = update.swept(
        settings, values, deviation[here], lambda_sq[here], state.step
    )
    step, counted = state.step + settings.server_sweeps, _counted(state.events, events)
    state = replace(state, values=values, deviation=deviation, lambda_sq=lambda_sq, step=step, events=counted, ladder=steps)
    return state, before_sweep


def _of(answer: Mapping[str, Message], kind: type[M]) -> M:
    message = answer[kind.__name__]
    assert isinstance(message, kind)
    return message


def _counted(before: NDArray[np.int64], events: NDArray[Any]) -> NDArray[np.int64]:
    counts = events[..., :3]
    if not counts.any():  # as nearly always
        return before
    counted: NDArray[np.int64] = before + counts.reshape(-1, 3).sum(axis=0)
    return counted


def _kept(settings: Settings, finished_rounds: int) -> bool:
    """Whether the draw of a round is kept: after the burn-in, every `thin`-th."""
    after = finished_rounds - settings.burn_in
    return after > 0 and after % settings.thin == 0


def _keep(state: Server) -> None:
    settings, flat = state.settings, state.settings.layout.flat
    if not _kept(settings, state.round - state.since):
        return
    values, cold = state.values, slice(None) if state.ladder is None else state.ladder.cold
    draw = {name: flat(getattr(values, name)[cold]) for name in ("theta", "tau_sq", "inclusion")}
    eta = values.eta[cold]
    draw |= {"eta": flat(eta) if settings.prior.eta_form == "coordinate" else eta[..., 0], "rho": values.rho[cold]}
    if state.deviation is not None:
        here = state.deviation[state.active][:, cold]
        draw["average"] = flat(values.theta[cold] + here.mean(axis=0))
        if settings.share_local:
            draw["sites"] = np.moveaxis(flat(values.theta[cold] + here), 0, 1)  # (c, m, n)
    state.trace.add(draw)


def _to_be_judged(state: Server) -> bool:
    if state.judge is None or not _kept(state.settings, state.round - state.since):
        return False
    doublings, rest = divmod(state.trace.count, FIRST_JUDGED)
    return bool(rest == 0 and doublings.bit_count() == 1)


# The client --------------------


@dataclass(frozen=True)
class Client:
    """A client's state.

    Attributes
    ----------
    name, index, site : of the client; its rows are in `site`
    state : of the site, see `gibbs_sites`
    theta, tau_sq : (c, g, p) as it was last told
    step : its own sweeps so far
    since : the burn-in that it knows of
    trace : kept draws of theta_k and of what it never sends
    events : counts of clipped scales, QR fall-backs, data-space draws
    """

    name: str
    index: int
    settings: Settings
    site: Site
    state: State
    theta: Array
    tau_sq: Array
    trace: Any
    step: int = 0
    since: int = 0
    events: NDArray[np.int64] = field(default_factory=lambda: np.zeros(3, np.int64))


def client(name: str, index: int, settings: Settings, site: Site, trace: Any = None) -> Client:
    """A client before the first round."""
    values = update.first(settings)
    return Client(
        name, index, settings, site, site.start(settings), values.theta, values.tau_sq, Trace() if trace is None else trace
    )


def client_receive(state: Client, event: Any) -> tuple[Client, ClientEffects]:
    """theta and tau^2 in; local sweeps; the deviations (or their sums) out."""
    if not isinstance(event, Globals | GlobalsMoved | GlobalsTempered):
        raise RemoteFault(f"server: {type(event).__name__} was not expected")
    layout = state.settings.layout
    theta, tau_sq = layout.full(event.theta, 0.0), layout.full(event.tau_sq, 1.0)
    local = state.state
    if isinstance(event, GlobalsMoved):
        t = layout.full(event.t, 1.0)
        local = {**local, "deviation": t * (local["deviation"] / np.sqrt(state.tau_sq))}
        local = moved(local, layout.full(event.moved, 0.0) - theta)
    else:
        local = moved(local, state.theta - theta)
    if isinstance(event, GlobalsTempered):
        local["temperature"] = event.temperature.copy()
    state = swept(state, local, theta, tau_sq, event)
    return state, answers(state, event.round)


def swept(state: Client, before: State, theta: Array, tau_sq: Array, event: Globals | GlobalsMoved | GlobalsTempered) -> Client:
    """The local sweeps of a round, from the site's state as the server's draws have left it."""
    settings, since = state.settings, event.since
    counter = {"seed": settings.seed, "client": state.index, "step": state.step}
    local = state.site.sweeps(settings, before, theta, tau_sq, **counter)
    events = _counted(state.events, local.pop("events"))
    if since != state.since:
        state.trace.clear()
    if _kept(settings, event.round + 1 - since):
        flat, cold = settings.layout.flat, _cold(settings, before)
        draw = {"theta": flat((theta + local["deviation"])[cold]), "deviation": flat(local["deviation"][cold])}
        state.trace.add(draw | {name: local[name][cold] for name in state.site.own})
    step = state.step + settings.local_sweeps
    return replace(state, state=before | local, theta=theta, tau_sq=tau_sq, step=step, since=since, events=events)


def _cold(settings: Settings, state: State) -> Any:
    """The chains whose draws count."""
    return np.flatnonzero(state["temperature"] == 1) if settings.tempering > 1 else slice(None)


def answers(state: Client, round: int) -> ClientEffects:
    """What a client says after its sweeps."""
    settings, local = state.settings, state.state
    flat = settings.layout.flat
    if settings.aggregate == "sums":
        sums = shrinkage.local_sums(local["deviation"], local["lambda_sq"], slab=settings.prior.slab)
        return [Sums(round, flat(sums))]
    told: ClientEffects = [Locals(round, flat(local["deviation"]), flat(local["lambda_sq"]))]
    if settings.tempering > 1:
        told.append(Loglik(round, local["loglik"]))
    if settings.moves:
        block = settings.coordinates(round)
        told.append(MoveTerms(round, *state.site.move_terms(settings, local, state.theta, state.tau_sq, block)))  # type: ignore[attr-defined]
    return told


# Checkpoints --------------------


def save(state: Server | Client) -> Saved:
    """The state as named arrays and numbers; rows are never among them."""
    if isinstance(state, Client):
        kept: Saved = {"theta": state.theta, "tau_sq": state.tau_sq, "step": state.step, "since": state.since}
        kept |= {"events": state.events.astype(float)} | {f"state.{name}": value for name, value in state.state.items()}
        return kept | state.trace.save()  # type: ignore[no-any-return]
    saved: Saved = {"round": state.round, "since": state.since, "step": state.step, "converged": int(state.converged)}
    saved |= {f"values.{name}": value for name, value in vars(state.values).items()}
    if state.deviation is not None and state.lambda_sq is not None:
        saved |= {"deviation": state.deviation, "lambda_sq": state.lambda_sq}
    if state.ladder is not None:
        saved |= {f"ladder.{name}": np.asarray(value, float) for name, value in vars(state.ladder).items()}
    lost, waiting = (np.array([k in s for k in range(state.n_clients)], float) for s in (state.lost, state.waiting))
    saved |= {"lost": lost, "waiting": waiting, "updates": state.updates.astype(float), "events": state.events.astype(float)}
    return saved | state.trace.save()  # type: ignore[no-any-return]


def load(state: Server | Client, saved: Mapping[str, Any]) -> Server | Client:
    """A fresh state as it was when it was saved."""
    trace = state.trace.load(saved)
    events = saved["events"].astype(np.int64)
    if isinstance(state, Client):
        local = {name.removeprefix("state."): value for name, value in saved.items() if name.startswith("state.")}
        same = {name: saved[name] for name in ("theta", "tau_sq", "step", "since")}
        return replace(state, **same, state=local, trace=trace, events=events)
    values = Values(**{name.removeprefix("values."): value for name, value in saved.items() if name.startswith("values.")})
    ladder = None
    if state.ladder is not None:
        steps = {name: saved[f"ladder.{name}"] for name in vars(state.ladder)}
        ladder = tempering.Ladder(steps.pop("log_gap"), **{name: value.astype(np.int64) for name, value in steps.items()})
    lost, waiting = (frozenset(np.flatnonzero(saved[name]).tolist()) for name in ("lost", "waiting"))
    same = {name: saved[name] for name in ("round", "since", "step")} | {
        name: saved.get(name) for name in ("deviation", "lambda_sq")
    }
    return replace(
        state, **same, values=values, trace=trace, events=events, converged=bool(saved["converged"]),
        updates=saved["updates"].astype(np.int64), lost=lost, waiting=waiting, answers={}, ladder=ladder,
    )  # fmt: skip


def protocol(settings: Settings) -> Protocol:
    """The protocol of a job: nothing that it does not send has a message."""
    down: tuple[type[Message], ...] = (Globals, GlobalsMoved) if settings.moves else (Globals,)
    if settings.tempering > 1:
        down = (GlobalsTempered,)
    up = tuple(KINDS[name] for name in _expected(settings))
    return Protocol("gibbs", down, up, server_receive, client_receive, finished, save, load)
