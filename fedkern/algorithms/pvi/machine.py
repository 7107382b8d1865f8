"""Partitioned variational inference: the server and the clients as state machines without I/O.

q = prior x t_1 x ... x t_M, all Gaussians in natural parameters. The server sends q; a client improves it on its own rows
with everything else (the cavity q / t_m) as its prior, and answers with the damped change of its site. Both sides change
t_m only when the server says by how much (`SiteApplied`), and q is recomputed from the sites in client order, so the order
of arrival can't change a bit of it. Source: docs/methods/pvi.md, sections 1, 2, 7-9.

| event at the client | what it does | what it sends |
|---|---|---|
| QUpdate, not private | optimises | SiteDelta |
| QUpdate, private | reads no row yet | Charge (to its own budget) |
| Charged | optimises | SiteDelta |
| ChargeFailed | nothing, for good | Refused |
| SiteApplied | adds alpha x delta to its site | |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from ...errors import NumericalError
from ...kernels import rng
from ...models.expfam import Gaussian, floored, keeps_proper, pack, packed_size, unpack
from ..core.averaging import Trajectory
from ..core.messages import (
    SERVER,
    Charge,
    Charged,
    ChargeFailed,
    ClientEffects,
    ClientLost,
    Message,
    Protocol,
    RemoteFault,
    Saved,
    ServerEffects,
)
from . import local, shards
from .settings import SHARDED, Settings

Vector = NDArray[np.float64]
Shift = Annotated[NDArray[np.float64], "d"]
Precision = Annotated[NDArray[np.float64], "p"]

SMALLEST_ALPHA = 2.0**-10
CAVITY_FLOOR = 0.01  # of the prior's precision
OMEGA_CAP = 0.2  # largest damped change of log sigma in one update
LARGEST = 1e12  # of any number in a delta; far beyond what a posterior of standardised columns can need


@dataclass(frozen=True)
class QUpdate(Message, kind=10):
    """Server to client: q. `version` counts the updates that are in it."""

    round: int
    version: int
    h: Shift
    P: Precision


@dataclass(frozen=True)
class SiteDelta(Message, kind=11):
    """Client to server: damped change of its site, computed from q of that version; `delta_id` counts the client's own
    updates.
    """

    round: int
    version: int
    delta_id: int
    dh: Shift
    dP: Precision


@dataclass(frozen=True)
class SiteApplied(Message, kind=12):
    """Server to client: your site has changed by alpha times that delta (0: refused, it would have made q improper)."""

    delta_id: int
    alpha: float


@dataclass(frozen=True)
class Refused(Message, kind=13):
    """Client to server: what was asked would exceed my budget. Final. `spent`: steps of this job; how many more the holder would
    allow is its own affair, for it tells what was spent in other jobs."""

    round: int
    spent: int


# The server --------------------


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
    trajectory : of (mu, omega), for the averaged posterior
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
        out = self.refused | self.capped | self.lost
        return [k for k in range(self.n_clients) if k not in out]

    @property
    def stop(self) -> str | None:
        """Why no more is asked: "rounds", "budget" (or the public cap), "lost"; None while the job runs."""
        if self.settings.rounds is not None and self.round >= self.settings.rounds:
            return "rounds"
        if self.active:
            return None
        return "budget" if self.refused | self.capped else "lost"


def start(settings: Settings, prior: Gaussian, n_clients: int) -> tuple[Server, ServerEffects]:
    """The server's first state (all sites zero, q = prior) and its first questions."""
    d, p = prior.d, packed_size(prior.d, settings.covariance)
    width = 2 * d if settings.covariance == "diagonal" else d + p
    sites = np.zeros((n_clients, d)), np.zeros((n_clients, p))
    state = Server(settings, prior, *sites, prior, np.zeros(n_clients, np.int64), Trajectory(np.zeros(width)))
    return _ask(state)


def finished(state: Server) -> bool:
    return state.stop is not None and not state.waiting


def released(state: Server) -> Gaussian:
    """The posterior that the job publishes: averaged over the second half of all updates, or the last."""
    if state.settings.average != "half" or not state.trajectory.count:
        return state.q
    d, point = state.prior.d, state.trajectory.half_mean()
    if state.q.diagonal:
        P = np.exp(-2 * point[d:])
        return Gaussian(P * point[:d], P)
    return Gaussian(point[:d], unpack(point[d:], d))  # natural parameters: their mean is that of a proper Gaussian


def _point(q: Gaussian) -> Vector:
    """What is averaged: (mu, omega), or (h, P) for a full covariance."""
    return np.concatenate([q.mean, -0.5 * np.log(q.P)] if q.diagonal else [q.h, pack(q.P)])


def server_receive(state: Server, sender: int, event: Any) -> tuple[Server, ServerEffects]:
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
    for name, array in (("dh", event.dh), ("dP", event.dP)):
        largest = np.abs(array).max(initial=0)
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
    trajectory = state.trajectory.add(_point(q)) if state.settings.average == "half" else state.trajectory
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
    return replace(state, waiting=waiting), [(k, QUpdate(state.round, state.version, h / share, P / share)) for k in clients]


# A client --------------------


@dataclass(frozen=True)
class Client:
    """A client's state.

    Attributes
    ----------
    name, local, prior_P : its name; rows, settings, mechanism and noise source; (d,) precisions of the prior, for the
        cavity's floor
    site_h, site_P : (d,) and (p,) its own site
    optimiser : the local optimiser's state; None before the first update
    shards : of local averaging and virtual clients; None otherwise
    step : its own count of local steps since the job began, never reset
    updates : deltas sent
    asked : the question whose charge is being made
    outstanding : (dh, dP, shards as they will be if the delta is applied whole) until SiteApplied
    refused : its budget is spent
    floors : cavity coordinates that were floored, over all updates
    failed : optimisers (its own, or its shards') that failed where that must not show, over all updates
    """

    name: str
    local: local.Local
    prior_P: Vector
    site_h: Vector
    site_P: Vector
    optimiser: Vector | None = None
    shards: shards.Shards | None = None
    step: int = 0
    updates: int = 0
    asked: QUpdate | None = None
    outstanding: tuple[Vector, Vector, Vector | None] | None = None
    refused: bool = False
    floors: int = 0
    failed: int = 0


def client(name: str, context: local.Local, prior: Gaussian) -> Client:
    """A client that has seen nothing yet: its site is 1."""
    P = prior.P if prior.diagonal else np.diag(prior.P).copy()
    p = packed_size(prior.d, context.settings.covariance)
    own = shards.start(context, prior.d) if context.settings.variant in SHARDED else None
    if context.settings.by_client and not (good := context.rows.finite).all():
        context = replace(context, rows=context.rows.take(np.flatnonzero(good)))
    return Client(name, context, P, np.zeros(prior.d), np.zeros(p), shards=own)


def client_receive(state: Client, event: Any) -> tuple[Client, ClientEffects]:
    """See the table at the head of this module."""
    if isinstance(event, QUpdate):
        if state.refused or state.asked or state.outstanding:
            raise RemoteFault(f"server: QUpdate of round {event.round}, but this client {_busy(state)}")
        if state.local.mechanism is None:
            return _update(state, event, state.local.settings.local_steps)
        return replace(state, asked=event), [Charge(_charge(state), event.round)]
    if isinstance(event, Charged) and state.asked:
        return _update(replace(state, asked=None), state.asked, event.steps)
    if isinstance(event, ChargeFailed) and state.asked:
        refused = Refused(state.asked.round, event.spent)
        return replace(state, asked=None, refused=True), [refused]
    if isinstance(event, SiteApplied):
        return _applied(state, event), []
    raise RemoteFault(f"server: {type(event).__name__} was not expected: this client {_busy(state)}")


def _busy(state: Client) -> str:
    if state.refused:
        return "has spent its budget"
    return "still makes a charge" if state.asked else "waits for SiteApplied" if state.outstanding else "waits for a question"


def _charge(state: Client) -> int:
    """Accounted steps of one update: shards answer once, however many steps they take (docs/methods/pvi.md, section 12)."""
    return 1 if state.shards else state.local.settings.local_steps


def _update(state: Client, event: QUpdate, steps: int) -> tuple[Client, ClientEffects]:
    s, d = state.local.settings, len(event.h)
    q = Gaussian(event.h, unpack(event.P, d))
    if state.local.source is not None:
        state.local.source.rekey()
    if state.shards:
        dh, dP, moved = shards.update(
            state.local, state.shards, q, unpack(state.site_P, d), state.site_h, state.prior_P, state.step
        )
        own = replace(state.shards, optimiser=moved.optimiser)
        state = replace(state, shards=own, step=state.step + s.local_steps, failed=state.failed + moved.failed)
        after: Vector | None = moved.deltas
    else:
        Pc, floors = floored(unpack(event.P - state.site_P, d), CAVITY_FLOOR * state.prior_P)
        kept = state.optimiser if s.optimiser_state == "keep" else None
        cavity = Gaussian(event.h - state.site_h, Pc)
        try:
            new, optimiser = (local.attempt if s.by_client else local.optimise)(state.local, q, cavity, kept, steps, state.step)
        except NumericalError as error:
            raise NumericalError(f"client {state.name!r}: round {event.round}: {error}") from None
        dh, dP = damped(q, new, s.damping, s.damping_form)
        floors, failed = state.floors + floors, state.failed + (new is q)
        state = replace(state, optimiser=optimiser, step=state.step + steps, floors=floors, failed=failed)
        after = None
    delta = SiteDelta(event.round, event.version, state.updates, dh, dP)
    return replace(state, updates=state.updates + 1, outstanding=(dh, dP, after)), [delta]


def damped(q: Gaussian, new: Gaussian, damping: float, form: str) -> tuple[Vector, Vector]:
    """The packed site change that moves q a part of the way to `new`; both forms have the same fixed points (docs/methods/pvi.md,
    section 8).
    """
    if form == "natural" or not q.diagonal:
        return damping * (new.h - q.h), damping * (pack(new.P) - pack(q.P))
    omega, new_omega = -0.5 * np.log(q.P), -0.5 * np.log(new.P)
    mean = q.mean + damping * (new.mean - q.mean)
    P = np.exp(-2 * (omega + np.clip(damping * (new_omega - omega), -OMEGA_CAP, OMEGA_CAP)))
    return P * mean - q.h, P - q.P


def _applied(state: Client, event: SiteApplied) -> Client:
    if state.outstanding is None:
        raise RemoteFault(f"server: SiteApplied of delta {event.delta_id}, but this client {_busy(state)}")
    if not 0 <= event.alpha <= 1:
        raise RemoteFault(f"server: SiteApplied.alpha is {event.alpha}, expected 0 to 1")
    dh, dP, after = state.outstanding
    own = state.shards
    if own is not None and after is not None:
        own = replace(own, sites=own.sites + event.alpha * after)
    site_h, site_P = state.site_h + event.alpha * dh, state.site_P + event.alpha * dP
    return replace(state, site_h=site_h, site_P=site_P, shards=own, outstanding=None)


# Keeping states --------------------

_COUNTS = ("round", "version", "in_round", "drawn", "halvings", "rejected")


def save(state: Server | Client) -> Saved:
    """The state as named arrays and numbers, taken when every question has been answered or not yet left; rows are never
    among them.
    """
    if isinstance(state, Client):
        return _save_client(state)
    M = state.n_clients
    flags = [[k in s for k in range(M)] for s in (state.refused, state.capped, state.lost, state.queue)]
    saved: Saved = {name: getattr(state, name) for name in _COUNTS}
    saved["waiting"] = np.array([state.waiting.get(k, -1) for k in range(M)], float)
    saved |= {
        "site_h": state.site_h,
        "site_P": state.site_P,
        "updates": state.updates.astype(float),
        "flags": np.array(flags, float),
    }
    return saved | state.trajectory.save()


def load(state: Server | Client, saved: Mapping[str, Any]) -> Server | Client:
    """A fresh state as it was when it was saved."""
    if isinstance(state, Client):
        return _load_client(state, saved)
    refused, capped, lost, queue = (np.flatnonzero(row).tolist() for row in saved["flags"])
    site_h, site_P = saved["site_h"], saved["site_P"]
    return replace(
        state,
        **{name: saved[name] for name in _COUNTS},
        site_h=site_h,
        site_P=site_P,
        q=product(state.prior, site_h, site_P),
        updates=saved["updates"].astype(np.int64),
        refused=frozenset(refused),
        capped=frozenset(capped),
        lost=frozenset(lost),
        queue=tuple(queue),
        trajectory=Trajectory.load(saved),
        waiting={k: int(v) for k, v in enumerate(saved["waiting"]) if v >= 0},
        pending={},
    )


def _save_client(state: Client) -> Saved:
    empty = np.zeros((0, 0))
    saved: Saved = {name: int(getattr(state, name)) for name in ("step", "updates", "refused", "floors", "failed")}
    saved |= {"site_h": state.site_h, "site_P": state.site_P, "optimiser": empty if state.optimiser is None else state.optimiser}
    if state.outstanding:
        dh, dP, after = state.outstanding
        saved |= {"outstanding.dh": dh, "outstanding.dP": dP, "outstanding.after": empty if after is None else after}
    if state.shards:
        saved["shards.sites"] = state.shards.sites
        saved |= {f"shards.{i}": empty if o is None else o for i, o in enumerate(state.shards.optimiser)}
    return saved


def _load_client(state: Client, saved: Mapping[str, Any]) -> Client:
    def array(name: str) -> Vector | None:
        return saved[name] if name in saved and saved[name].size else None

    dh, dP = array("outstanding.dh"), array("outstanding.dP")
    own = state.shards
    if own:
        own = replace(own, sites=saved["shards.sites"], optimiser=tuple(array(f"shards.{i}") for i in range(len(own.members))))
    return replace(
        state,
        step=saved["step"],
        updates=saved["updates"],
        refused=bool(saved["refused"]),
        floors=saved["floors"],
        failed=saved["failed"],
        site_h=saved["site_h"],
        site_P=saved["site_P"],
        optimiser=array("optimiser"),
        shards=own,
        outstanding=None if dh is None or dP is None else (dh, dP, array("outstanding.after")),
    )


PROTOCOL = Protocol("pvi", (QUpdate, SiteApplied), (SiteDelta, Refused), server_receive, client_receive, finished, save, load)


def protocol(*, private: bool) -> Protocol:
    """The protocol with only the messages that a job can send: without a budget nobody refuses."""
    return PROTOCOL if private else replace(PROTOCOL, to_server=(SiteDelta,))
