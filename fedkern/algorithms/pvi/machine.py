"""Defines partitioned variational inference: the server and the clients as state machines without I/O.

q = prior x t_1 x ... x t_M, all Gaussians in natural parameters. The server sends q; a client improves it on its own rows with
everything else (the cavity q / t_m) as its prior, and answers with the damped change of its site. Both sides change t_m only when
the server says by how much (`SiteApplied`), and q is recomputed from the sites in an order that the clients' numbers alone
decide, so the order of arrival can't change a bit of it. Asynchronous clients wait for nobody: a round has ended once the
slowest has answered again, however often the others have, and an answer counts however old it is. Source: docs/spec/pvi.md,
sections 1, 2, 7-9.

| event at the client | its work | its answer |
|---|---|---|
| QUpdate, not private | optimises | SiteDelta |
| QUpdate, private | reads no row yet | Charge (to its own budget) |
| Charged | optimises | SiteDelta |
| ChargeFailed | nothing, for good | Refused |
| SiteApplied | adds alpha x delta to its site | |
| Readmitted, after it was lost | compares its stored site with the server's, which it takes | Stored |
| AskSlope, `rounds = "until"` | its gradient and X'WX at that q | Slope |
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, final
from typing import Protocol as Shape

import numpy as np

from ...arrays import Vector
from ...errors import NumericalError
from ...models.expfam import Gaussian, floored, keeps_proper, pack, packed_size, unpack
from ..core.kept import GIVEN, PersistentMap, load, save
from ..core.messages import (
    Charge,
    Charged,
    ChargeFailed,
    ClientBack,
    ClientEffects,
    ClientLost,
    Event,
    Message,
    Protocol,
    Refused,
    RemoteFault,
    Saved,
    ServerEffects,
    evolve,
)
from ..core.rounds import to_each
from ..core.schedule import KINDS, Schedule, Scheduled
from ..core.windows import Trajectory
from ..exchanges.arrival import AskSlope, Slope, answer, newton, possible
from . import local, scale
from .messages import (
    LARGEST,
    SHARDED,
    SUMS,
    QUpdate,
    Readmitted,
    ScaledQUpdate,
    ScaledSiteDelta,
    Settings,
    SiteApplied,
    SiteDelta,
    Stored,
)
from .noise_aware import Sums

__all__ = ["SUMS", "QUpdate", "Refused", "SiteApplied", "SiteDelta", "load", "save"]  # what stands elsewhere

# Sites --------------------
# Keeps the sites of all clients, and their product with the prior, at a cost of one update that does not grow with the clients.
#
# Sites lie in blocks of `BLOCK` clients, and the sum of each block is kept: an update copies one block and adds up that block and
# the sums. The order of the additions is fixed by the clients' numbers alone, so q is a function of the sites, whatever came
# first: the prior and the first block client by client, then the sums of the other blocks. Up to `BLOCK` clients that is client
# order.


BLOCK = 128


@dataclass(frozen=True)
class Sites:
    """Holds the sites; it is immutable."""

    prior: Vector = field(metadata=GIVEN)  # (d + p,) h and packed P
    d: int = field(metadata=GIVEN)  # coefficients
    blocks: tuple[Vector, ...]  # (clients of the block, d + p) their sites; a precision may be negative
    sums: Vector = field(metadata=GIVEN)  # (blocks, d + p) of each block, the first with the prior
    # the residual variance of a job that learns it, else 1. Blocks and sums are in units of 1 / variance: a linear likelihood's
    # site is then the same whatever the variance, and only the prior moves against it
    variance: float = 1.0

    @classmethod
    def of(cls, prior: Gaussian, site_h: Vector, site_P: Vector, variance: float = 1.0) -> Sites:
        """Returns the sites of (M, d) and (M, p) numbers, in units of 1 / variance."""
        of_prior = np.concatenate([prior.h, pack(prior.P)])
        all_of_them, edges = np.concatenate([site_h, site_P], axis=1), range(BLOCK, len(site_h), BLOCK)
        blocks = np.split(all_of_them, edges)
        new = cls(of_prior, prior.d, tuple(blocks), np.empty((len(blocks), len(of_prior))), variance)
        for i, block in enumerate(blocks):
            new.sums[i] = new._sum(i, block)
        return new

    def restored(self, saved: Saved) -> Sites:
        """Returns the sites with the sums of the blocks."""
        return replace(self, sums=np.array([self._sum(i, block) for i, block in enumerate(self.blocks)]))

    @property
    def h(self) -> Vector:
        """(M, d) The shifts."""
        return np.concatenate(self.blocks)[:, : self.d] / self.variance

    @property
    def P(self) -> Vector:
        """(M, p) The packed precisions."""
        return np.concatenate(self.blocks)[:, self.d :] / self.variance

    def product(self) -> Gaussian:
        """Returns the prior times all sites."""
        sums = self.sums[0] if len(self.sums) == 1 else _added(self.sums)
        total = sums / self.variance
        return Gaussian(total[: self.d], unpack(total[self.d :], self.d))

    def at(self, variance: float) -> Sites:
        """Returns the sites with another residual variance."""
        moved = replace(self, variance=variance, sums=self.sums.copy())
        moved.sums[0] = moved._sum(0, moved.blocks[0])
        return moved

    def moved(self, deltas: Mapping[int, tuple[Vector, Vector]], alpha: float) -> Sites:
        """Returns the sites with alpha times these changes added."""
        blocks, sums = list(self.blocks), self.sums.copy()
        touched = sorted({k // BLOCK for k in deltas})
        for i in touched:
            blocks[i] = blocks[i].copy()
        for k, (dh, dP) in deltas.items():
            site = blocks[k // BLOCK][k % BLOCK]
            site[: self.d] += alpha * dh
            site[self.d :] += alpha * dP
        for i in touched:
            sums[i] = self._sum(i, blocks[i])
        return replace(self, blocks=tuple(blocks), sums=sums)

    def _sum(self, i: int, block: Vector) -> Vector:
        return _added(np.concatenate([self.prior[None] * self.variance, block])) if i == 0 else _added(block)


def _added(rows: Vector) -> Vector:
    """Adds one row after the other; `sum` may add a single column pairwise."""
    total: Vector = np.add.accumulate(rows, axis=0)[-1]
    return total


# Client --------------------


CAVITY_FLOOR = 0.01  # of the prior's precision
OMEGA_CAP = 0.2  # largest damped change of log sigma in one update


@final
@dataclass(frozen=True)
class Client:
    """Is a client's state."""

    # name, local, prior_P: its name; rows, settings, mechanism and noise source; (d,) precisions of the prior, for the cavity's
    # floor
    name: str = field(metadata=GIVEN)
    local: local.Local = field(metadata=GIVEN)
    prior_P: Vector = field(metadata=GIVEN)
    # site_h, site_P: (d,) and (p,) its own site, where the scale is learnt in units of 1 / variance
    site_h: Vector
    site_P: Vector
    optimiser: Vector | None = None  # the local optimiser's state; None before the first update
    shards: scale.Shards | None = None  # of local averaging and virtual clients; None otherwise
    step: int = 0  # its own count of local steps since the job began, never reset
    updates: int = 0  # deltas sent
    question: QUpdate | None = field(default=None, metadata=GIVEN)  # the one whose charge is being made
    # (dh, dP, shards as they will be if the delta is applied whole) until SiteApplied
    outstanding: tuple[Vector, Vector, Vector | None] | None = None
    refused: bool = False  # its budget is spent
    floors: int = 0  # cavity coordinates that were floored, over all updates
    failed: int = 0  # optimisers (its own, or its shards') that failed where that must not show, over all updates
    sums: Sums | None = None  # of its noisy gradients, where the posterior is to contain the noise; None otherwise


def client(name: str, context: local.Local, prior: Gaussian) -> Client:
    """Returns a client that has seen nothing yet: its site is 1."""
    P = prior.P if prior.diagonal else np.diag(prior.P).copy()
    p = packed_size(prior.d, context.settings.covariance)
    first_shards = scale.start(context, prior.d) if context.settings.variant in SHARDED else None
    if context.settings.by_client and not (good := context.rows.finite).all():
        context = replace(context, rows=context.rows.take(np.flatnonzero(good)))
    sums = None if context.design is None else Sums.zero(prior.d)
    return Client(name, context, P, np.zeros(prior.d), np.zeros(p), shards=first_shards, sums=sums)


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Answers each event by the table at the head of `machine`."""
    if isinstance(event, QUpdate):
        if state.refused or state.question or state.outstanding:
            raise RemoteFault(f"server: QUpdate of round {event.round}, but this client {_busy(state)}")
        if state.local.box is not None:
            state.local.box.check_q(event.h, event.P, type(event).__name__)
        if state.local.mechanism is None:
            return _update(state, event, state.local.settings.local_steps)
        # A private client reads no row before its budget has answered.
        return replace(state, question=event), [Charge(_charge(state), event.round)]
    if isinstance(event, AskSlope) and state.local.settings.until and not state.outstanding:
        if state.local.box is not None:
            state.local.box.check_q(event.h, event.P, type(event).__name__)
        slope = state.local.slope if state.local.tells else None
        return state, [answer(event, slope)]
    if isinstance(event, Charged) and state.question:
        return _update(replace(state, question=None), state.question, event.steps)
    if isinstance(event, ChargeFailed) and state.question:
        refused = Refused(state.question.round, event.spent)
        return replace(state, question=None, refused=True), [refused]
    if isinstance(event, SiteApplied):
        return _applied(state, event), []
    if isinstance(event, Readmitted) and state.local.mechanism is None:
        return _readmitted(state, event)
    raise RemoteFault(f"server: {type(event).__name__} was not expected: this client {_busy(state)}")


def _busy(state: Client) -> str:
    """Returns the reason why a client cannot take this event."""
    if state.refused:
        return "has spent its budget"
    if state.question:
        return "still makes a charge"
    return "waits for SiteApplied" if state.outstanding else "waits for a question"


def _charge(state: Client) -> int:
    """Returns the accounted steps of one update: shards answer once, however many steps they take (docs/spec/pvi.md, section
    12)."""
    return 1 if state.shards else state.local.settings.local_steps


def _update(state: Client, event: QUpdate, steps: int) -> tuple[Client, ClientEffects]:
    """Improves q on the client's rows, and answers with the damped change of its site."""
    # The residual variance that the server learns comes with its question.
    context, variance = scale.at(state.local, event)
    s, d = context.settings, len(event.h)
    q = Gaussian(event.h, unpack(event.P, d))
    if state.local.source is not None:
        state.local.source.rekey()
    if state.shards:
        dh, dP, moved = scale.update(
            state.local, state.shards, q, unpack(state.site_P, d), state.site_h, state.prior_P, state.step
        )
        divided = replace(state.shards, optimiser=moved.optimiser)
        state = replace(state, shards=divided, step=state.step + s.local_steps, failed=state.failed + moved.failed)
        after: Vector | None = moved.deltas
    else:
        # The cavity is q without this client's site; an optimiser needs it proper.
        Pc, floors = floored(unpack(event.P - state.site_P / variance, d), CAVITY_FLOOR * state.prior_P)
        cavity = Gaussian(event.h - state.site_h / variance, Pc)
        seen: local.Seen | None = [] if state.sums is not None else None
        try:
            if s.by_client:
                new, optimiser = local.attempt(context, q, cavity, state.optimiser, steps, state.step)
            else:
                new, optimiser = local.optimise(context, q, cavity, state.optimiser, steps, state.step, seen)
        except NumericalError as error:
            if not s.bounded:
                raise NumericalError(f"client {state.name!r}: round {event.round}: {error}") from None
            new, optimiser = Gaussian(np.full(d, np.nan), np.full_like(q.P, np.nan)), state.optimiser  # has no place in a sum
        dh, dP = (change * variance for change in damped(q, new, s.damping, s.damping_form))
        watched = state.local.mechanism is None and not (s.by_client or s.bounded)
        if watched and not max(np.abs(dh).max(), np.abs(dP).max()) <= LARGEST:
            why = local.extreme(s) if s.optimiser == "exact" else local.diverges(s)
            what = f"client {state.name!r}: round {event.round}: its change of the site has numbers beyond {LARGEST:g}"
            raise NumericalError(f"{what}: {why}")
        if state.sums is not None and state.local.design is not None and seen:
            state = replace(state, sums=state.local.design.add(state.sums, seen, state.step))
        # The site itself changes only when the server says by how much (SiteApplied).
        floors, failed = state.floors + floors, state.failed + (new is q)
        state = replace(state, optimiser=optimiser, step=state.step + steps, floors=floors, failed=failed)
        after = None
    # Sums that the server learns it from go with the answer.
    delta = scale.answered(SiteDelta(event.round, event.version, state.updates, dh, dP), event, context)
    return replace(state, updates=state.updates + 1, outstanding=(dh, dP, after)), [delta]


def damped(q: Gaussian, new: Gaussian, damping: float, form: str) -> tuple[Vector, Vector]:
    """Returns the packed site change that moves q a part of the way to `new`.

    Both forms have the same fixed points (docs/spec/pvi.md, section 8).
    """
    if form == "natural" or not q.diagonal:
        return damping * (new.h - q.h), damping * (pack(new.P) - pack(q.P))
    omega, new_omega = -0.5 * np.log(q.P), -0.5 * np.log(new.P)
    mean = q.mean + damping * (new.mean - q.mean)
    P = np.exp(-2 * (omega + np.clip(damping * (new_omega - omega), -OMEGA_CAP, OMEGA_CAP)))
    return P * mean - q.h, P - q.P


def _applied(state: Client, event: SiteApplied) -> Client:
    """Returns the client with the part of its change that the server has applied."""
    if state.outstanding is None:
        raise RemoteFault(f"server: SiteApplied of delta {event.delta_id}, but this client {_busy(state)}")
    if event.delta_id != state.updates - 1:
        raise RemoteFault(f"server: SiteApplied of delta {event.delta_id}, but this client waits for that of {state.updates - 1}")
    if not 0 <= event.alpha <= 1:
        raise RemoteFault(f"server: SiteApplied.alpha is {event.alpha}, expected 0 to 1")
    dh, dP, after = state.outstanding
    divided = state.shards
    if divided is not None and after is not None:
        divided = replace(divided, sites=divided.sites + event.alpha * after)
    site_h, site_P = state.site_h + event.alpha * dh, state.site_P + event.alpha * dP
    return replace(state, site_h=site_h, site_P=site_P, shards=divided, outstanding=None)


def _readmitted(state: Client, event: Readmitted) -> tuple[Client, ClientEffects]:
    """Returns the client with the server's site, which may have a change of which the client was not told.

    Its optimiser begins anew in any case, so that what it answers follows from its site alone.
    """
    same = bool(np.array_equal(state.site_h, event.h) and np.array_equal(state.site_P, event.P))
    step = event.answers * state.local.settings.local_steps
    state = replace(state, site_h=event.h, site_P=event.P, optimiser=None, step=step, updates=event.answers, outstanding=None)
    return state, [Stored(int(same))]


# Server --------------------


TO_TELL, TOLD, OTHER, SAME = range(4)  # of a client that has come back: its site, and then what it had stored
STILL = 0.01  # of an sd, by which q's means may be away, and its sds in parts, where asynchronous clients with exact sites stop
LEAST_ROUNDS = 7  # in which 75 and 90 % of the updates have a whole round between them
SMALLEST_ALPHA = 2.0**-10


@final
@dataclass(frozen=True)
class Server(Scheduled):
    """Is the server's state."""

    settings: Settings = field(metadata=GIVEN)
    prior: Gaussian = field(metadata=GIVEN)  # of the model
    sites: Sites  # of all clients
    q: Gaussian = field(metadata=GIVEN)  # prior times all sites, recomputed after each change
    schedule: Schedule  # who is asked, and what came of it. An answer that the guard on q refused altogether is in no q
    trajectory: Trajectory  # see `point_of`
    # into which "bcm-split" divides the prior: the clients that fit, also where the server knows their sum as one client's
    parts: int = field(default=1, metadata=GIVEN)
    # client -> its delta, until all answers to a question have come
    pending: PersistentMap[int, tuple[Vector, Vector]] = field(default_factory=PersistentMap, metadata=GIVEN)
    halvings: int = 0  # how often the guard on q halved alpha
    paths: tuple[Trajectory, ...] = ()  # the trajectory of each client's site, where each is averaged by itself; none elsewhere
    # client -> how far q is from the posterior of all rows, until all have said it
    slopes: PersistentMap[int, Slope] = field(default_factory=PersistentMap, metadata=GIVEN)
    # client -> its last sums of residuals, in a job that learns its scale
    residuals: PersistentMap[int, scale.Residuals] = field(default_factory=PersistentMap)
    rescaled: float = 1.0  # the factor by which the last round has multiplied that scale
    # whether lost clients take part again, as they do where a run is resumed
    returns: bool = field(default=False, metadata=GIVEN)
    back: PersistentMap[int, int] = field(default_factory=PersistentMap)  # those that have come back -> `TO_TELL` .. `SAME`

    def restored(self, saved: Saved) -> Server:
        """Returns the state with the values that follow from the sites and from the clients that are gone.

        A lost client that may come back is here again, for all ranks are.
        """
        return evolve(self, q=self.sites.product()).with_back(self.lost if self.returns else ())

    def with_back(self, clients: Collection[int]) -> Server:
        """Returns the state in which these lost clients are here again, each with the site that stands here: 1 if it has never
        answered."""
        back = self.back
        for k in clients:
            back = back.plus(k, TO_TELL)
        return evolve(self, schedule=self.schedule.resumed(clients), back=back)

    @property
    def site_h(self) -> Vector:
        """(M, d) The shifts of the sites."""
        return self.sites.h

    @property
    def site_P(self) -> Vector:
        """(M, p) The packed precisions of the sites."""
        return self.sites.P


def start(
    settings: Settings, prior: Gaussian, n_clients: int, *, members: int = 1, private: bool = False
) -> tuple[Server, ServerEffects]:
    """Returns the server's first state (all sites zero, q = prior) and its first questions.

    `members`: clients whose sum is the answer of each that the server knows. `private`: a client's updates are paid for, and a
    lost one stays lost.
    """
    d, p = prior.d, packed_size(prior.d, settings.covariance)
    width = d + p if settings.covariance == "full" and settings.average == "half" else 2 * d
    sites = Sites.of(prior, np.zeros((n_clients, d)), np.zeros((n_clients, p)))
    schedule = KINDS[settings.schedule].of(settings.rules(n_clients))
    state = Server(settings, prior, sites, prior, schedule, Trajectory(np.zeros(width)), n_clients * members, returns=not private)
    if private and schedule.at_once and settings.average == "half":
        state = evolve(state, paths=(Trajectory(np.zeros(d + p)),) * n_clients)
    return _ask(state)


def finished(state: Server) -> bool:
    return state.schedule.finished


class Averaged(Shape):
    """Is a server of any variant: the last q, and the trajectory of its points."""

    @property
    def settings(self) -> Settings: ...
    @property
    def q(self) -> Gaussian: ...
    @property
    def trajectory(self) -> Trajectory: ...


def released(state: Averaged) -> Gaussian:
    """Returns the posterior that the job publishes: averaged over the second half of all updates, or the last."""
    if state.settings.average != "half" or not state.trajectory.count:
        return state.q
    if isinstance(state, Server) and state.paths:
        total = state.sites.prior + sum(path.half_mean() for path in state.paths if path.count)
        d = state.q.d
        P, _ = floored(unpack(total[d:], d), CAVITY_FLOOR * state.prior.P)
        return Gaussian(total[:d], P)
    point = state.trajectory.half_mean()
    if state.q.diagonal:
        return of_point(point)
    d = state.q.d
    return Gaussian(point[:d], unpack(point[d:], d))  # natural parameters: their mean is that of a proper Gaussian


def point_of(q: Gaussian, averaged: bool = True) -> Vector:
    """Returns the point that is averaged: (mu, omega), or (h, P) for a full covariance.

    If it only shows how q moves, it is always (mu, omega).
    """
    if q.diagonal:
        return np.concatenate([q.mean, -0.5 * np.log(q.P)])
    if averaged:
        return np.concatenate([q.h, pack(q.P)])
    return np.concatenate([q.mean, np.log(q.sd)])


class Moved(NamedTuple):
    """Says how far q has moved between two stretches of its updates: (d,) its means in sds, and its sds in parts of them."""

    mean: Vector
    sd: Vector


def moved(state: Averaged, rounds: int) -> Moved | None:
    """Returns the movement from 65-75 to 90-100 % of the updates; None with less than two rounds.

    A job of fewer than seven rounds has no whole round between the two stretches: it is judged by its last round, over the
    damping, since that held it back.
    """
    path, s = state.trajectory, state.settings
    short = rounds < LEAST_ROUNDS
    begin = (rounds - 1) / max(rounds, 1)
    early = path.between(begin, begin) if short else path.between(0.65, 0.75)
    late = path.between(1.0, 1.0) if short else path.between(0.9, 1.0)
    if rounds < 2 or early is None or late is None:
        return None
    (mean, omega), (new, new_omega) = (_moments(state, point) for point in (early, late))
    still = s.damping if short else 1.0
    return Moved(np.abs(new - mean) / np.exp(new_omega) / still, np.abs(np.expm1(new_omega - omega)) / still)


def _moments(state: Averaged, point: Vector) -> tuple[Vector, Vector]:
    """Returns (mu, omega) of a point of the trajectory."""
    d = state.q.d
    if not state.q.diagonal and state.settings.average == "half":
        q = Gaussian(point[:d], unpack(point[d:], d))
        return q.mean, np.log(q.sd)
    return point[:d], point[d:]


def of_point(point: Vector) -> Gaussian:
    """Returns the diagonal Gaussian of (mu, omega)."""
    d = len(point) // 2
    P = np.exp(-2 * point[d:])
    return Gaussian(P * point[:d], P)


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """Takes one answer, or the loss of a client: its last site stays in q for good, and the job goes on without it."""
    if isinstance(event, Slope):
        return _told(state, sender, event)
    if isinstance(event, Stored) and state.back.get(sender) == TOLD:
        return evolve(state, back=state.back.plus(sender, SAME if event.same == 1 else OTHER)), []
    if isinstance(event, ClientBack):
        return _ask(state.with_back([event.client]))
    schedule = state.schedule
    if isinstance(event, ClientLost):
        sender, schedule = event.client, schedule.without(event.client, "lost")
        # A lost client owes no answer any more: what waited for it goes on.
        if sender in schedule.owing:
            return _heard(evolve(state, schedule=schedule), sender)
    else:
        if not isinstance(event, SiteDelta | Refused):
            raise RemoteFault(f"{type(event).__name__} is no answer of a client", sender)
        if sender not in schedule.waiting:
            raise RemoteFault(f"{type(event).__name__} in round {state.round}, but nothing was asked of it", sender)
        if event.round != state.round and not schedule.at_once:
            raise RemoteFault(f"{type(event).__name__}.round is {event.round}, expected {state.round}", sender)
    if isinstance(event, Refused):
        schedule = schedule.without(sender, "refused")
    effects: ServerEffects = []
    state = evolve(state, schedule=schedule)
    if isinstance(event, SiteDelta):
        _check(state, sender, event)
        residuals = scale.add_residuals(state.residuals, sender, event, state.settings)
        state = evolve(state, residuals=residuals, pending=state.pending.plus(sender, (event.dh, event.dP)))
    # Answers to one question are applied together, when the last has come.
    if state.pending and (schedule.at_once or not schedule.heard(sender).waiting):
        state, effects = _apply(state, state.pending)
        state = evolve(state, pending=PersistentMap())
    state = evolve(state, schedule=state.schedule.heard(sender))
    # Most schedules ask nobody before all answers have come; `_ask` knows.
    state, questions = _ask(state)
    return state, effects + questions


def _told(state: Server, sender: int, event: Slope) -> tuple[Server, ServerEffects]:
    """Takes one client's part of the answer to how far q is."""
    if sender not in state.schedule.owing or event.round != state.round:
        raise RemoteFault(f"Slope in round {state.round}, but it was not asked of it", sender)
    if not possible(event):
        return _heard(state, sender)
    return _heard(evolve(state, slopes=state.slopes.plus(sender, event)), sender)


def _heard(state: Server, sender: int) -> tuple[Server, ServerEffects]:
    """Asks the next questions, once everybody has said how far q is; none if q has arrived.

    If a client has not said it, it is not known.
    """
    owing = state.schedule.owing.minus(sender)
    state = evolve(state, schedule=evolve(state.schedule, owing=owing))
    if owing:
        return state, []
    slopes = {k: _at_variance(slope, state.sites.variance) for k, slope in state.slopes.items()}
    step = newton(state.prior, released(state), slopes) if len(slopes) == state.n_clients else None
    s = state.settings
    arrived = step is not None and step.is_close and scale.still(state.rescaled, s)
    # Other schedules stop on the way of one fixed contraction; here the last answers to arrive may have moved q by anything. Of a
    # full covariance the sds by the curvature are those of the fixed point.
    if step is not None and arrived and state.schedule.at_once and s.optimiser == "exact":
        far = step.most if s.covariance == "full" else step.away.max()
        arrived = bool(far <= STILL)
    return _ask(evolve(state, slopes=PersistentMap(), schedule=evolve(state.schedule, arrived=arrived)))


def _at_variance(slope: Slope, variance: float) -> Slope:
    """Returns a client's gradient and curvature at a learnt variance; the client has sent them at 1."""
    if variance == 1:
        return slope
    return replace(slope, gradient=slope.gradient / variance, curvature=slope.curvature / variance)


def _check(state: Server, sender: int, event: SiteDelta) -> None:
    """Refuses a change of another version, or with numbers that are too large."""
    if event.version != (asked := state.schedule.waiting[sender]):
        raise RemoteFault(f"SiteDelta.version is {event.version}, asked was {asked}", sender)
    for name, change in (("dh", event.dh), ("dP", event.dP)):
        largest = np.abs(change).max(initial=0)
        if not largest <= LARGEST:  # also NaN
            size = f"a number of size {largest:.3g}, allowed {LARGEST:.0g}"
            raise RemoteFault(f"SiteDelta.{name} has {size}; round {event.round}", sender)


def _apply(state: Server, deltas: Mapping[int, tuple[Vector, Vector]]) -> tuple[Server, ServerEffects]:
    """Adds alpha times the deltas to their sites, with the largest alpha in 1, 1/2, ... that keeps q proper.

    See docs/spec/pvi.md, section 9.
    """
    clients = sorted(deltas)
    d = state.prior.d
    dP = unpack(np.sum([deltas[k][1] for k in clients], axis=0), d)
    alpha = 1.0
    # Deltas of clients that did not know of each other can be too much together.
    while alpha >= SMALLEST_ALPHA and not keeps_proper(state.q.P, dP / state.sites.variance, alpha):
        alpha /= 2
    taken = alpha >= SMALLEST_ALPHA
    # A client counts all of its deltas, those that are in no q too, and hears of a rejection: its site must not move then.
    applied: ServerEffects = [(k, SiteApplied(state.schedule.course(k).answers, alpha if taken else 0.0)) for k in clients]
    schedule = state.schedule.counted(clients, applied=taken)
    state = evolve(state, schedule=schedule, halvings=state.halvings + int(-np.log2(alpha)))
    if not taken:
        return state, applied
    sites = state.sites.moved(deltas, alpha)
    q = sites.product()
    trajectory = state.trajectory.add(point_of(q, averaged=state.settings.average == "half"))
    state = evolve(state, sites=sites, q=q, trajectory=trajectory)
    if state.paths:
        paths = list(state.paths)
        for k in clients:
            paths[k] = paths[k].add(sites.blocks[k // BLOCK][k % BLOCK])
        state = evolve(state, paths=tuple(paths))
    return state, applied


def _ask(state: Server) -> tuple[Server, ServerEffects]:
    """Asks the next questions of the schedule."""
    schedule, clients = state.schedule.next()
    # After the first round the residuals may still be of the prior.
    rescales = schedule.round > max(state.round, 1) and state.residuals
    state = evolve(state, schedule=schedule)
    if rescales:
        state = _rescaled(state)
    # Before more rounds: is q already where the posterior of all rows is?
    if clients and schedule.owing:
        q = released(state)
        question: Message = AskSlope(state.round, q.h, pack(q.P))
    else:
        question = _question(state)
    state, effects = _readmit(state, clients)
    return state, effects + to_each(clients, question)


def _readmit(state: Server, clients: Iterable[int]) -> tuple[Server, ServerEffects]:
    """Tells those of these clients that have come back their sites."""
    told: ServerEffects = []
    for k in clients if state.back else ():
        if state.back.get(k) == TO_TELL:
            h, P = np.split(state.sites.blocks[k // BLOCK][k % BLOCK], [state.prior.d])
            told.append((k, Readmitted(state.schedule.course(k).answers, h, P)))
            state = evolve(state, back=state.back.plus(k, TOLD))
    return state, told


def _rescaled(state: Server) -> Server:
    """Returns the state after a round with the learnt residual variance (docs/spec/pvi.md, section 2.1)."""
    before = state.sites.variance
    sites = state.sites.at(scale.learnt(state.residuals, before))
    return evolve(state, sites=sites, q=sites.product(), rescaled=float(np.sqrt(sites.variance / before)))


def _question(state: Server) -> Message:
    """Returns the question to improve q."""
    h, P = state.q.h, pack(state.q.P)
    split = state.settings.variant == "bcm-split"  # every client then fits with the prior's M-th part (pvi.md, section 13)
    share = state.parts if split else 1
    question = QUpdate(state.round, state.schedule.version, h / share, P / share)
    return scale.with_variance(question, state.settings, state.sites.variance)


# Protocol --------------------


PROTOCOL: Protocol[Server, Client] = Protocol(
    "pvi", (QUpdate, SiteApplied), (SiteDelta, Refused), server_receive, client_receive, finished, save, load
)


# Of a job that learns its scale.
SCALED: Protocol[Server, Client] = replace(PROTOCOL, to_client=(ScaledQUpdate, SiteApplied), to_server=(ScaledSiteDelta,))


def protocol(*, private: bool, until: bool = False, learns: bool = False, readmits: bool = False) -> Protocol[Server, Client]:
    """Returns the protocol with only the messages that a job can send: without a budget nobody refuses.

    `learns`: the residual variance. `readmits`: clients that were lost.
    """
    if private:
        return PROTOCOL
    rounds = SCALED if learns else replace(PROTOCOL, to_server=(SiteDelta,))
    if readmits:
        down, up = (*rounds.to_client, Readmitted), (*rounds.to_server, Stored)
        rounds = replace(rounds, to_client=down, to_server=up, readmits=Readmitted)
    if not until:
        return rounds
    return replace(rounds, to_client=(*rounds.to_client, AskSlope), to_server=(*rounds.to_server, Slope))
