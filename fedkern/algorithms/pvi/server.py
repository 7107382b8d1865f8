"""The server of partitioned variational inference: q, its sites, and the schedule of questions (see `machine`).

Source: docs/methods/pvi.md, sections 1, 8 and 9.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, final

import numpy as np
from numpy.typing import NDArray

from ...kernels import rng
from ...models.expfam import Gaussian, keeps_proper, pack, packed_size, unpack
from ..core.averaging import Trajectory
from ..core.messages import SERVER, ClientLost, Event, Refused, RemoteFault, Saved, ServerEffects, array, evolve
from ..core.rounds import active, flags, members, to_each
from .messages import QUpdate, SiteApplied, SiteDelta
from .settings import Settings

Vector = NDArray[np.float64]

LEAST_ROUNDS = 7  # in which 75 and 90 % of the updates have a whole round between them
SMALLEST_ALPHA = 2.0**-10
LARGEST = 1e12  # of any number in a delta; far beyond what a posterior of standardised columns can need


@final
@dataclass(frozen=True)
class Server:
    """The server's state.

    Attributes
    ----------
    prior : of the model
    site_h, site_P : (M, d) and (M, p) sites; a precision may be negative
    q : prior times all sites, recomputed after each change
    round, version : rounds finished; updates applied
    updates : (M,) applied updates of each client
    waiting : client -> version of the q that it was asked to improve
    queue : clients still to be asked in this round (sequential schedule)
    pending : client -> its delta, until all of a synchronous round have come
    in_round : updates and refusals of deltas since the round began
    drawn : clients drawn by the random schedule since the job began
    refused, capped, lost : clients that will not be asked again, and why
    halvings, rejected : how often the guard on q halved alpha; deltas it refused altogether
    trajectory : see `point_of`
    """

    settings: Settings
    prior: Gaussian
    site_h: Vector
    site_P: Vector
    q: Gaussian
    updates: NDArray[np.int64]
    trajectory: Trajectory
    round: int = 0
    version: int = 0
    waiting: Mapping[int, int] = field(default_factory=dict)
    queue: tuple[int, ...] = ()
    pending: Mapping[int, tuple[Vector, Vector]] = field(default_factory=dict)
    in_round: int = 0
    drawn: int = 0
    refused: frozenset[int] = frozenset()
    capped: frozenset[int] = frozenset()
    lost: frozenset[int] = frozenset()
    halvings: int = 0
    rejected: int = 0

    @property
    def n_clients(self) -> int:
        return len(self.site_h)

    @property
    def active(self) -> list[int]:
        return active(self.n_clients, self.refused, self.capped, self.lost)

    @property
    def stop(self) -> str | None:
        """See `Settings.stop`: without any client that could be asked."""
        nobody = not self.active
        return self.settings.stop(self.round, budget=nobody and bool(self.refused | self.capped), lost=nobody)


def start(settings: Settings, prior: Gaussian, n_clients: int) -> tuple[Server, ServerEffects]:
    """The server's first state (all sites zero, q = prior) and its first questions."""
    d, p = prior.d, packed_size(prior.d, settings.covariance)
    width = d + p if settings.covariance == "full" and settings.average == "half" else 2 * d
    sites = np.zeros((n_clients, d)), np.zeros((n_clients, p))
    state = Server(settings, prior, *sites, prior, np.zeros(n_clients, np.int64), Trajectory(np.zeros(width)))
    return _ask(state)


def finished(state: Server) -> bool:
    return state.stop is not None and not state.waiting


class Averaged(Protocol):
    """What the servers of all variants have: the last q, and the trajectory of its points."""

    @property
    def settings(self) -> Settings: ...
    @property
    def q(self) -> Gaussian: ...
    @property
    def trajectory(self) -> Trajectory: ...


def released(state: Averaged) -> Gaussian:
    """The posterior that the job publishes: averaged over the second half of all updates, or the last."""
    if state.settings.average != "half" or not state.trajectory.count:
        return state.q
    point = state.trajectory.half_mean()
    if state.q.diagonal:
        return of_point(point)
    d = state.q.d
    return Gaussian(point[:d], unpack(point[d:], d))  # natural parameters: their mean is that of a proper Gaussian


def point_of(q: Gaussian, averaged: bool = True) -> Vector:
    """What is averaged: (mu, omega), or (h, P) for a full covariance; where it only shows how q moves, always (mu, omega)."""
    if q.diagonal:
        return np.concatenate([q.mean, -0.5 * np.log(q.P)])
    return np.concatenate([q.h, pack(q.P)] if averaged else [q.mean, np.log(q.sd)])


class Moved(NamedTuple):
    """How far q has moved between two stretches of its updates: (d,) its means in sds, and its sds in parts of them."""

    mean: Vector
    sd: Vector


def moved(state: Averaged, rounds: int) -> Moved | None:
    """From 65-75 to 90-100 % of the updates; None where there are not two rounds.

    Of fewer than seven rounds, which have none between the two stretches, over the last one: over its damping, since that held
    it back.
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
    """(mu, omega) of a point of the trajectory."""
    d = state.q.d
    if not state.q.diagonal and state.settings.average == "half":
        q = Gaussian(point[:d], unpack(point[d:], d))
        return q.mean, np.log(q.sd)
    return point[:d], point[d:]


def of_point(point: Vector) -> Gaussian:
    """The diagonal Gaussian of (mu, omega)."""
    d = len(point) // 2
    P = np.exp(-2 * point[d:])
    return Gaussian(P * point[:d], P)


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """One answer, or the loss of a client: its last site stays in q for good, and the job goes on without it."""
    if isinstance(event, ClientLost):
        state = replace(state, lost=state.lost | {event.client})
        sender = event.client
    else:
        if not isinstance(event, SiteDelta | Refused):
            raise RemoteFault(f"client {sender}: {type(event).__name__} is no answer of a client")
        if sender not in state.waiting:
            raise RemoteFault(f"client {sender}: {type(event).__name__} in round {state.round}, but nothing was asked of it")
        if event.round != state.round and state.settings.schedule != "asynchronous":
            raise RemoteFault(f"client {sender}: {type(event).__name__}.round is {event.round}, expected {state.round}")
    if isinstance(event, Refused):
        state = replace(state, refused=state.refused | {sender})
    effects: ServerEffects = []
    if isinstance(event, SiteDelta):
        _check(state, sender, event)
        state, effects = _take(state, sender, event)
    state = replace(state, waiting={k: v for k, v in state.waiting.items() if k != sender})
    if state.settings.schedule == "synchronous" and not state.waiting and state.pending:
        state, applied = _apply(state, dict(state.pending))
        state = replace(state, pending={})
        effects += applied
    state, asked = _ask(state)
    return state, effects + asked


def _check(state: Server, sender: int, event: SiteDelta) -> None:
    if event.version != state.waiting[sender]:
        raise RemoteFault(f"client {sender}: SiteDelta.version is {event.version}, asked was {state.waiting[sender]}")
    for name, change in (("dh", event.dh), ("dP", event.dP)):
        largest = np.abs(change).max(initial=0)
        if not largest <= LARGEST:  # also NaN
            size = f"a number of size {largest:.3g}, allowed {LARGEST:.0g}"
            raise RemoteFault(f"client {sender}: SiteDelta.{name} has {size}; round {event.round}")


def _take(state: Server, sender: int, event: SiteDelta) -> tuple[Server, ServerEffects]:
    """Applies one delta, or keeps it until all of its synchronous round have come."""
    s = state.settings
    delta = (event.dh, event.dP)
    if s.schedule == "synchronous":
        return replace(state, pending={**state.pending, sender: delta}), []
    stale = state.version - event.version > (s.max_staleness or 4 * state.n_clients)
    if s.schedule == "asynchronous" and stale:
        rejected = replace(state, rejected=state.rejected + 1, in_round=state.in_round + 1)
        return rejected, [(sender, SiteApplied(int(state.updates[sender]), 0.0))]
    return _apply(state, {sender: delta})


def _apply(state: Server, deltas: dict[int, tuple[Vector, Vector]]) -> tuple[Server, ServerEffects]:
    """Adds alpha times the deltas to their sites, with the largest alpha in 1, 1/2, ... that keeps q proper (docs/methods/pvi.md,
    section 9).
    """
    clients = sorted(deltas)
    d = state.prior.d
    dP = unpack(np.sum([deltas[k][1] for k in clients], axis=0), d)
    alpha = 1.0
    while alpha >= SMALLEST_ALPHA and not keeps_proper(state.q.P, dP, alpha):
        alpha /= 2
    state = replace(state, in_round=state.in_round + len(clients), halvings=state.halvings + int(-np.log2(alpha)))
    applied: ServerEffects = [(k, SiteApplied(int(state.updates[k]), alpha if alpha >= SMALLEST_ALPHA else 0.0)) for k in clients]
    if alpha < SMALLEST_ALPHA:
        return replace(state, rejected=state.rejected + len(clients)), applied
    site_h, site_P, updates = state.site_h.copy(), state.site_P.copy(), state.updates.copy()
    for k in clients:
        site_h[k] += alpha * deltas[k][0]
        site_P[k] += alpha * deltas[k][1]
        updates[k] += 1
    q = product(state.prior, site_h, site_P)
    trajectory = state.trajectory.add(point_of(q, averaged=state.settings.average == "half"))
    cap = state.settings.updates_per_client
    capped = state.capped | {k for k in clients if cap is not None and updates[k] >= cap}
    version = state.version + len(clients)
    return replace(
        state, site_h=site_h, site_P=site_P, q=q, updates=updates, trajectory=trajectory, capped=capped, version=version
    ), applied


def product(prior: Gaussian, site_h: Vector, site_P: Vector) -> Gaussian:
    """prior x t_1 x ... x t_M, multiplied in client order."""
    h, P = prior.h.copy(), pack(prior.P).copy()
    for dh, dP in zip(site_h, site_P):
        h += dh
        P += dP
    return Gaussian(h, unpack(P, prior.d))


def _ask(state: Server) -> tuple[Server, ServerEffects]:
    """The next questions of the schedule; none while an answer is awaited (but asynchronous clients don't wait for each
    other).
    """
    schedule = state.settings.schedule
    if state.waiting and schedule != "asynchronous":
        return state, []
    if schedule == "sequential":
        if not any(k in state.queue for k in state.active):
            state = replace(state, round=state.round + (state.in_round > 0), in_round=0, queue=tuple(state.active))
    elif state.in_round >= (1 if schedule == "synchronous" else state.n_clients):
        state = replace(state, round=state.round + 1, in_round=0)
    if state.stop:
        return state, []
    if schedule == "sequential":
        client, *rest = (k for k in state.queue if k in state.active)
        return _question(replace(state, queue=tuple(rest)), [client])
    if schedule == "random":
        state, client = _draw(state)
        return _question(state, [client])
    return _question(state, [k for k in state.active if k not in state.waiting])


def _draw(state: Server) -> tuple[Server, int]:
    """One active client, with the job's public weights."""
    weights = np.asarray(state.settings.client_weights or (1.0,) * state.n_clients)[state.active]
    u = rng.uniform(1, key=rng.key(state.settings.seed, "schedule"), client=SERVER, step=state.drawn)[0]
    edges = np.cumsum(weights)
    client = state.active[min(int(np.searchsorted(edges, u * edges[-1], side="right")), len(edges) - 1)]
    return replace(state, drawn=state.drawn + 1), client


def _question(state: Server, clients: list[int]) -> tuple[Server, ServerEffects]:
    h, P = state.q.h, pack(state.q.P)
    split = state.settings.variant == "bcm-split"  # every client then fits with the prior's M-th part (pvi.md, section 13)
    share = state.n_clients if split else 1
    waiting = {**state.waiting, **dict.fromkeys(clients, state.version)}
    return replace(state, waiting=waiting), to_each(clients, QUpdate(state.round, state.version, h / share, P / share))


_COUNTS = ("round", "version", "in_round", "drawn", "halvings", "rejected")


def save(state: Server) -> Saved:
    """As named arrays and numbers, taken when every question has been answered or not yet left."""
    saved: Saved = {name: getattr(state, name) for name in _COUNTS}
    saved["waiting"] = np.array([state.waiting.get(k, -1) for k in range(state.n_clients)], float)
    saved |= {
        "site_h": state.site_h,
        "site_P": state.site_P,
        "updates": state.updates.astype(float),
        "flags": flags(state.n_clients, state.refused, state.capped, state.lost, state.queue),
    }
    return saved | state.trajectory.save()


def load(fresh: Server, saved: Saved) -> Server:
    """A fresh state as it was when it was saved."""
    refused, capped, lost, queue = members(array(saved, "flags"))
    site_h, site_P = array(saved, "site_h"), array(saved, "site_P")
    return evolve(
        fresh,
        **{name: saved[name] for name in _COUNTS},
        site_h=site_h,
        site_P=site_P,
        q=product(fresh.prior, site_h, site_P),
        updates=array(saved, "updates").astype(np.int64),
        refused=refused,
        capped=capped,
        lost=lost,
        queue=tuple(sorted(queue)),
        trajectory=Trajectory.load(saved),
        waiting={k: int(v) for k, v in enumerate(array(saved, "waiting")) if v >= 0},
        pending={},
    )
