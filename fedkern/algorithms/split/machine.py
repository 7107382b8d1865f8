"""Defines variational inference for vertically split data: one exchange an iteration (AV, split network), or two (PL).

Because the predictor is a sum, nobody ever needs the z_k of somebody else. AV: clients send z_j, the server answers with the
slopes r_i = l'(y_i, eta_i), and each client takes its own gradient step. PL: the server answers with the sum Z, clients with
their part rho_j of the likelihood's slopes, the server with the sum R of these. All share one joint draw in an iteration: the
theta_j, eps_j and tau_j that made z_j also make the gradient.

A client sends z_j and, in PL, rho_j with its sums (and, if the job asks, its terms of the ELBO): never theta, a variational
parameter, a network's weight or a row. Rows of a mini-batch follow from the public seed and the round, so no index is sent.
Source: docs/spec/vertical.md, sections 5 to 8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from ...arrays import Indices, Vector
from ...errors import NumericalError
from ...kernels import rng
from ...kernels.ranges import finite
from ...models.split.site import Shared
from ..core import until
from ..core.kept import GIVEN, PersistentSet, load, only, save
from ..core.messages import (
    NO_PREDICTOR,
    SERVER,
    ClientEffects,
    Event,
    Message,
    Protocol,
    Refused,
    RemoteFault,
    Saved,
    ServerEffects,
    evolve,
)
from ..core.optim import OPTIMISERS
from ..core.rounds import all_of, in_order, needs_all, summed, to_each
from ..core.schedule import Asynchronous, Rules
from ..core.windows import LastFifth, Trajectory, Windows
from . import client as client_side
from . import private as private_side
from .client import Client, client
from .messages import (
    Begin,
    BoundShare,
    LikelihoodShare,
    LikelihoodSum,
    PredictorSum,
    Residual,
    Seen,
    Settings,
    ZShare,
    batch_of,
    of_batch,
    stacked,
)
from .private import PrivateClient

__all__ = [
    "Begin",
    "BoundShare",
    "Client",
    "LikelihoodShare",
    "LikelihoodSum",
    "PredictorSum",
    "Residual",
    "Settings",
    "ZShare",
    "batch_of",
    "client",
]  # what stands elsewhere


@final
@dataclass(frozen=True)
class Server:
    """Is the server's state."""

    settings: Settings = field(metadata=only("rounds", "most"))
    shared: Shared = field(metadata=GIVEN)  # its model of b and log sigma
    # y, offset: (N,) the response (None in PL, if it is not here) and known offsets or None
    y: Vector | None = field(metadata=GIVEN)
    offset: Vector | None = field(metadata=GIVEN)
    names: tuple[str, ...] = field(metadata=GIVEN)
    # parameters, optimiser, trajectory: of q(b, log sigma)
    parameters: Vector
    optimiser: Vector
    trajectory: Trajectory
    windows: Windows  # mean and sd of q(b, log sigma) over two stretches of the rounds
    last_fifth: LastFifth  # the bound over the last fifth of them
    seen: Seen  # of each row, over the last half of the rounds of an open job
    round: int = 0
    # the answer that it waits for: "z", in PL "likelihood", or "moving", whether the clients' own unknowns have settled
    phase: str = "z"
    # answers, bounds: the answers of this phase and round so far; they change in place
    answers: dict[int, ZShare | LikelihoodShare] = field(default_factory=dict, metadata=GIVEN)
    bounds: dict[int, float] = field(default_factory=dict, metadata=GIVEN)
    moving: Mapping[int, bool] = field(default_factory=dict, metadata=GIVEN)  # client -> whether they have, as far as it has said
    # (S, n) sums of z with the offset; eps, values: (S, d) normals and draws of (b, log sigma)
    Z: Vector = field(default_factory=lambda: np.zeros((0, 0)))
    eps: Vector = field(default_factory=lambda: np.zeros((0, 0)))
    values: Vector = field(default_factory=lambda: np.zeros((0, 0)))
    # of the ELBO at the last round's draws, if clients sent their terms; loglik: its likelihood part (AV)
    bound: float = field(default=np.nan, metadata=GIVEN)
    loglik: float = field(default=np.nan, metadata=GIVEN)
    lost: frozenset[int] = field(default=frozenset(), metadata=GIVEN)
    refused: frozenset[int] = frozenset()  # private clients whose budget is spent
    # whom to answer where clients do not wait for one another; None where they do. A round is as many answers as clients
    schedule: Asynchronous | None = None
    latest: tuple[Vector, ...] = ()  # of each client (S, N) its last z of each row; `known`: rows of which one has come
    known: tuple[Vector, ...] = ()
    unanswered: PersistentSet[int] = field(default_factory=PersistentSet)

    def restored(self, saved: Saved) -> Server:
        """Returns the state with what follows of the schedule."""
        if self.schedule is None:
            return self
        return _ruled(self)

    @property
    def stop(self) -> str | None:
        """The reason why the rounds ended: all are done, or a client's privacy budget is spent."""
        if self.round >= self.settings.rounds:
            return "rounds"
        return "budget" if self.refused else None

    @property
    def updates(self) -> NDArray[np.int64]:
        """The steps of each client: as many as rounds."""
        return np.full(self.settings.n_clients, self.round) if self.schedule is None else self.schedule.updates

    @property
    def released(self) -> Vector:
        """The averaged or the last parameters of q(b, log sigma)."""
        return self.trajectory.released(self.settings.average, self.parameters)


def start(
    settings: Settings, shared: Shared, names: tuple[str, ...], y: Vector | None, offset: Vector | None = None, sd: float = 0.1
) -> tuple[Server, ServerEffects]:
    """Returns the server's first state, and its first question."""
    if y is None and settings.model != "power":
        raise ValueError(f"the server needs y in the {settings.model} model")
    parameters = shared.initial(sd)
    optimiser = OPTIMISERS[settings.optimiser](settings.learning_rate).init(len(parameters))
    windows, last_fifth = settings.windows(shared.block.size), LastFifth.of(settings.rounds)
    trajectory = Trajectory(np.zeros(len(parameters)))
    seen = _nothing_seen(settings)
    state = Server(settings, shared, y, offset, names, parameters, optimiser, trajectory, windows, last_fifth, seen)
    if settings.lead:
        J, N = settings.n_clients, settings.n_rows
        state = evolve(state, schedule=Asynchronous.of(Rules(J)), latest=(np.zeros((settings.draws, N)),) * J)
        state = _waiting_for_all(evolve(state, known=(np.zeros(N),) * J))
    return state, to_each(range(settings.n_clients), Begin(0))


def _nothing_seen(s: Settings) -> Seen:
    """Returns empty sums, of no row if z is noise, or a point."""
    n_rows = 0 if s.private or s.model == "none" else s.n_rows
    return Seen.of(s.n_clients, n_rows)


def _sees(state: Server) -> bool:
    """Tells whether this round is one of the last half."""
    return bool(state.seen.counts.size) and 2 * state.round >= state.settings.rounds


def finished(state: Server) -> bool:
    """Tells whether nothing more is asked."""
    return state.stop is not None


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """Takes one answer; when all clients have answered, it asks the next question. Raises LostPeer: a client is gone: without its
    part there is no predictor. Raises RemoteFault: a stale, repeated or unexpected message."""
    needs_all(event, state.names, state.round, NO_PREDICTOR)
    expected = state.round if state.schedule is None else state.schedule.course(sender).answers
    if (round := getattr(event, "round", None)) != expected:
        raise RemoteFault(f"{type(event).__name__} of round {round}, expected round {expected}", sender)
    if isinstance(event, Refused) and state.settings.private and sender not in state.refused | state.answers.keys():
        return evolve(state, refused=state.refused | {sender}), []
    # Where nobody waits for others a client's last term stands until its next.
    once = state.schedule is None and sender in state.bounds
    if isinstance(event, BoundShare) and state.settings.bounded(round) and not once:
        state.bounds[sender] = event.value
        return state, []
    if state.phase == "moving":
        return _told(state, sender, event)
    wanted = ZShare if state.phase == "z" else LikelihoodShare
    if not isinstance(event, wanted) or sender in state.answers:
        raise RemoteFault(f"{type(event).__name__} was not expected in round {state.round}", sender)
    if state.schedule is not None and isinstance(event, ZShare):
        return _one_answer(state, sender, event)
    state.answers[sender] = event
    if len(state.answers) < state.settings.n_clients:  # for ever, if one of them has refused
        return state, []
    return _summed(state) if state.phase == "z" else _combined(state)


def _told(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """Takes a client's bit; when all have come, it sends the length of the job."""
    if not isinstance(event, until.Moving) or sender in state.moving:
        raise RemoteFault(f"{type(event).__name__} was not expected after round {state.round}", sender)
    state = evolve(state, moving={**state.moving, sender: until.bit(sender, event)})
    if len(state.moving) < state.settings.n_clients:
        return state, []
    return _lengthened(state, settled=all(state.moving.values()))


def _lengthened(state: Server, *, settled: bool) -> tuple[Server, ServerEffects]:
    """Sends the length, now that it is known whether all has settled; the clients answer it as they answer `Begin`."""
    settings = until.following(state.settings, settled=settled)
    if not settled:
        state = evolve(state, windows=settings.windows(state.shared.block.size), last_fifth=LastFifth.of(settings.rounds))
        state = evolve(state, seen=_nothing_seen(settings))
    length = until.Length(state.round, settings.rounds)
    state = evolve(state, settings=settings, phase="z", moving={})
    return _waiting_for_all(state), to_each(range(settings.n_clients), length)


def _ended(state: Server, effects: ServerEffects) -> tuple[Server, ServerEffects]:
    """Ends the round: sends its last answers, and if the job may be long enough the question or the length."""
    if not until.judged(state.settings, state.round):
        return state, effects
    movement = state.windows.movement
    if movement is not None and movement.settled:
        return evolve(state, phase="moving"), [*effects, *to_each(range(state.settings.n_clients), until.AskMoving(state.round))]
    state, length = _lengthened(state, settled=False)
    return state, [*effects, *length]


def _summed(state: Server) -> tuple[Server, ServerEffects]:
    """Sums all z in client order, draws b and log sigma, and answers."""
    s = state.settings
    sent = [answer.z for answer in all_of(state.answers, ZShare)]
    index = batch_of(s, state.round)
    if _sees(state):
        state = evolve(state, seen=state.seen.with_z(dict(enumerate(sent)), index))
    state = evolve(_drawn(state, summed(sent), index, state.round), answers={})
    # Clients that have the response compute slopes from the sum; in the power model the round waits for them.
    if s.model == "power":
        return evolve(state, phase="likelihood"), to_each(range(s.n_clients), _of_sum(state, state.round))
    state, answer, slopes, scales = _sloped(state, index, state.round, _sees(state))
    return _ended(_moved(state, slopes, scales), to_each(range(s.n_clients), answer))


def _drawn(state: Server, Z: Vector, index: Indices | None, step: int) -> Server:
    """Returns the state with this sum of z, whose rows it may change, and the draws of b and log sigma of this step."""
    s, d = state.settings, state.shared.block.size
    if state.offset is not None:
        Z += of_batch(state.offset, index)
    eps = np.zeros((s.draws, d))
    # Draws have a key, so that a job that is resumed has the same ones.
    if d and s.model != "none":  # the split network has point estimates
        eps = rng.normal(s.draws * d, key=s.key, client=SERVER, step=step).reshape(s.draws, d)
    values = np.array([state.shared.block.sample(state.parameters, e) for e in eps]).reshape(s.draws, d)
    return evolve(state, Z=Z, eps=eps, values=values)


def _of_sum(state: Server, round: int) -> PredictorSum:
    """Returns the sum of z with the draws."""
    s, drawn = state.settings, [state.shared.split(v) for v in state.values]
    gamma = np.array([[w] for _, w in drawn]) if s.dispersed else np.zeros((s.draws, 0))
    return PredictorSum(round, state.Z, np.array([b for b, _ in drawn]), gamma)


def _sloped(state: Server, index: Indices | None, round: int, sees: bool) -> tuple[Server, Message, list[float], list[float]]:
    """Returns the answer to a client's round, and the slopes of the server's own step, which it needs too.

    `sees`: whether the slopes are in the sums of each row.
    """
    s, shared = state.settings, state.shared
    assert state.y is not None
    y, drawn = of_batch(state.y, index), [shared.split(v) for v in state.values]
    slopes = [shared.slope(y, b + z, w) for z, (b, w) in zip(state.Z, drawn)]
    r = stacked([slope for slope, _ in slopes])
    if not finite(r):
        raise NumericalError(
            f"server, round {state.round}: a slope of the log-likelihood is not finite; lower algorithm.learning_rate"
        )
    if sees:
        share = 1.0 if state.schedule is None else 1 / s.n_clients
        state = evolve(state, seen=state.seen.with_slopes(r, index, share))
    answer = Residual(round, r) if s.response == "server" else _of_sum(state, round)
    loglik = state.loglik if state.schedule is not None else np.nan
    if s.bounded(round):
        loglik = float(np.mean([shared.likelihood.value(y, b + z, w).sum() for z, (b, w) in zip(state.Z, drawn)])) * s.factor
    return evolve(state, loglik=loglik), answer, r.sum(axis=1).tolist(), [scale for _, scale in slopes]


# Where clients do not wait for one another, the server keeps each client's last z of every row. A client is answered with the
# slopes at its own new z and the others' last ones: these are draws that know nothing of it, so its gradient has the mean that it
# has where all draw at once. See docs/spec/vertical.md, section 6.1.


def _ruled(state: Server) -> Server:
    """Returns the state with the schedule of the length at hand: all clients come to its end, or to where it is judged."""
    s = state.settings
    assert state.schedule is not None
    rules = Rules(s.n_clients, s.rounds, lead=s.lead, halt=s.steady if s.rounds < s.most else s.rounds)
    return evolve(state, schedule=evolve(state.schedule.resumed(), rules=rules))


def _waiting_for_all(state: Server) -> Server:
    """Returns the state once all clients are asked for their next z."""
    if state.schedule is None:
        return state
    ruled = _ruled(state).schedule
    assert ruled is not None
    return evolve(state, schedule=ruled.next()[0])


def _one_answer(state: Server, sender: int, event: ZShare) -> tuple[Server, ServerEffects]:
    """Takes one client's z, and answers all clients that may go on. Raises RemoteFault: it was not asked for it."""
    s, schedule = state.settings, state.schedule
    assert schedule is not None
    if sender not in schedule.waiting or sender in state.unanswered:
        raise RemoteFault(f"ZShare was not expected in round {state.round}", sender)
    index = batch_of(s, event.round)
    rows = slice(None) if index is None else index
    z, known = state.latest[sender].copy(), state.known[sender].copy()
    z[:, rows], known[rows] = event.z, 1.0
    if 2 * event.round >= s.rounds and state.seen.counts.size:
        state = evolve(state, seen=state.seen.with_z({sender: event.z}, index))
    latest = (*state.latest[:sender], z, *state.latest[sender + 1 :])
    state = evolve(state, latest=latest, known=(*state.known[:sender], known, *state.known[sender + 1 :]))
    schedule, _ = schedule.counted([sender], applied=True).heard(sender).next()
    state, effects = evolve(state, schedule=schedule, unanswered=state.unanswered.plus(sender)), list[tuple[int, Any]]()
    # Where the state is to stand still, all are answered once the last z has come.
    still = schedule.round == schedule.rules.halt
    for k in sorted(state.unanswered):
        round = schedule.course(k).answers - 1
        index = batch_of(s, round)
        rows = slice(None) if index is None else index
        if state.refused or not (still or k in schedule.waiting) or not all(of_client[rows].all() for of_client in state.known):
            continue
        answered = schedule.version - len(state.unanswered)
        state = _drawn(state, summed(of_client[:, rows] for of_client in state.latest), index, answered)
        sees = 2 * round >= s.rounds and bool(state.seen.counts.size)
        state, answer, slopes, scales = _sloped(state, index, round, sees)
        state = _moved(state, slopes, scales, parts=s.n_clients, over=(answered + 1) % s.n_clients == 0)
        state = evolve(state, unanswered=state.unanswered.minus(k))
        effects.append((k, answer))
    return _ended(state, effects)


def _combined(state: Server) -> tuple[Server, ServerEffects]:
    """Adds the clients' parts of the likelihood's slopes, which are all here (PL)."""
    s = state.settings
    answers = all_of(state.answers, LikelihoodShare)
    slopes, scales = sum(answer.slopes for answer in answers), sum(answer.scales for answer in answers)
    question = LikelihoodSum(state.round, summed(answer.rho for answer in answers))
    if _sees(state):
        state = evolve(state, seen=state.seen.with_slopes(question.R, batch_of(s, state.round)))
    state = evolve(state, phase="z", answers={})
    sizes = np.asarray(scales)[:, 0].tolist() if s.dispersed else [0.0] * s.draws
    return _ended(_moved(state, np.asarray(slopes).tolist(), sizes), to_each(range(s.n_clients), question))


def _moved(state: Server, slopes: list[float], scales: list[float], *, parts: int = 1, over: bool = True) -> Server:
    """Takes the server's own step on q(b, log sigma), or one of its parts; the round may be over then."""
    s, shared, f = state.settings, state.shared, state.settings.factor
    bound, last_fifth = np.nan, state.last_fifth
    # The bound is of the parameters that the clients drew from, so it comes before the step.
    if over and s.bounded(state.round) and len(state.bounds) == s.n_clients:
        share = (
            0.0
            if s.model == "none"
            else float(np.mean([shared.bound(state.parameters, e, v) for e, v in zip(state.eps, state.values)]))
        )
        loglik = 0.0 if s.model == "power" else state.loglik
        bound = share + sum(in_order(state.bounds)) + loglik
        last_fifth = last_fifth.add(state.round, bound)
    parameters, optimiser = state.parameters, state.optimiser
    if shared.block.size:
        g = np.zeros(len(parameters))
        # The likelihood's slopes come from all rows, or a batch of them; `f` makes up for the rest.
        for e, v, slope, scale in zip(state.eps, state.values, slopes, scales):
            g += shared.gradient(parameters, e, v, f * slope, f * scale)
        optimiser, change = OPTIMISERS[s.optimiser](s.rate(state.round) / parts).update(optimiser, g / s.draws)
        parameters = parameters + change
        if not finite(parameters):
            raise NumericalError(
                f"server, round {state.round}: q(b, log sigma) left the finite numbers; lower algorithm.learning_rate"
            )
    if not over:
        return evolve(state, parameters=parameters, optimiser=optimiser)
    trajectory = state.trajectory.add(parameters) if s.average == "half" else state.trajectory
    windows = state.windows
    if windows.place(state.round) is not None:
        windows = windows.add(state.round, parameters[: shared.block.size], shared.block.sd(parameters))
    return evolve(
        state,
        parameters=parameters,
        optimiser=optimiser,
        trajectory=trajectory,
        windows=windows,
        last_fifth=last_fifth,
        bound=bound,
        round=state.round + 1,
        bounds={} if state.schedule is None else state.bounds,
    )


# Protocol --------------------


Party = TypeVar("Party", Server, Client)


def protocol(settings: Settings) -> Protocol[Server, Client]:
    """Returns the protocol with only the messages that a job of these settings can send."""
    down: list[type[Message]] = [Begin]
    up: list[type[Message]] = [ZShare]
    if settings.model == "power":
        down, up = [*down, PredictorSum, LikelihoodSum], [*up, LikelihoodShare]
    else:
        answer = PredictorSum if settings.response == "shared" else Residual
        down.append(answer)
    if settings.bound:
        up.append(BoundShare)
    if settings.private:
        up.append(Refused)
    if settings.rounds < settings.most:
        down, up = [*down, *until.DOWN], [*up, *until.UP]
    return Protocol("vertical", tuple(down), tuple(up), server_receive, client_receive, finished, save, load)


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Answers as `client` or `private` does, by the kind of client."""
    if isinstance(state, PrivateClient):
        return private_side.client_receive(state, event)
    return client_side.client_receive(state, event)
