"""Runs a client of partitioned variational inference: its site, and its answer to each event (see the table in `machine`).

Source: docs/spec/pvi.md, sections 1, 2, 8 and 12.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from ...errors import NumericalError
from ...models.expfam import Gaussian, floored, pack, packed_size, unpack
from ..core.kept import GIVEN
from ..core.messages import Charge, Charged, ChargeFailed, ClientEffects, Event, Refused, RemoteFault
from ..exchanges.arrival import AskSlope, answer
from . import local, scale, shards
from .messages import LARGEST, QUpdate, SiteApplied, SiteDelta
from .noise_aware import Sums
from .settings import SHARDED

Vector = NDArray[np.float64]

CAVITY_FLOOR = 0.01  # of the prior's precision
OMEGA_CAP = 0.2  # largest damped change of log sigma in one update


@final
@dataclass(frozen=True)
class Client:
    """Is a client's state.

    Attributes
    ----------
    name, local, prior_P : its name; rows, settings, mechanism and noise source; (d,) precisions of the prior, for the
        cavity's floor
    site_h, site_P : (d,) and (p,) its own site, where the scale is learnt in units of 1 / variance
    optimiser : the local optimiser's state; None before the first update
    shards : of local averaging and virtual clients; None otherwise
    step : its own count of local steps since the job began, never reset
    updates : deltas sent
    asked : the question whose charge is being made
    outstanding : (dh, dP, shards as they will be if the delta is applied whole) until SiteApplied
    refused : its budget is spent
    floors : cavity coordinates that were floored, over all updates
    failed : optimisers (its own, or its shards') that failed where that must not show, over all updates
    sums : of its noisy gradients, where the posterior is to contain the noise; None otherwise
    """

    name: str = field(metadata=GIVEN)
    local: local.Local = field(metadata=GIVEN)
    prior_P: Vector = field(metadata=GIVEN)
    site_h: Vector
    site_P: Vector
    optimiser: Vector | None = None
    shards: shards.Shards | None = None
    step: int = 0
    updates: int = 0
    asked: QUpdate | None = field(default=None, metadata=GIVEN)
    outstanding: tuple[Vector, Vector, Vector | None] | None = None
    refused: bool = False
    floors: int = 0
    failed: int = 0
    sums: Sums | None = None


def client(name: str, context: local.Local, prior: Gaussian) -> Client:
    """Returns a client that has seen nothing yet: its site is 1."""
    P = prior.P if prior.diagonal else np.diag(prior.P).copy()
    p = packed_size(prior.d, context.settings.covariance)
    own = shards.start(context, prior.d) if context.settings.variant in SHARDED else None
    if context.settings.by_client and not (good := context.rows.finite).all():
        context = replace(context, rows=context.rows.take(np.flatnonzero(good)))
    sums = None if context.design is None else Sums.zero(prior.d)
    return Client(name, context, P, np.zeros(prior.d), np.zeros(p), shards=own, sums=sums)


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Answers each event by the table at the head of `machine`."""
    if isinstance(event, QUpdate):
        if state.refused or state.asked or state.outstanding:
            raise RemoteFault(f"server: QUpdate of round {event.round}, but this client {_busy(state)}")
        if state.local.box is not None:
            state.local.box.check_q(event.h, event.P, type(event).__name__)
        if state.local.mechanism is None:
            return _update(state, event, state.local.settings.local_steps)
        # A private client reads no row before its budget has answered.
        return replace(state, asked=event), [Charge(_charge(state), event.round)]
    if isinstance(event, AskSlope) and state.local.settings.until and not state.outstanding:
        if state.local.box is not None:
            state.local.box.check_q(event.h, event.P, type(event).__name__)
        return state, [answer(event, state.local.slope if state.local.tells else None)]
    if isinstance(event, Charged) and state.asked:
        return _update(replace(state, asked=None), state.asked, event.steps)
    if isinstance(event, ChargeFailed) and state.asked:
        refused = Refused(state.asked.round, event.spent)
        return replace(state, asked=None, refused=True), [refused]
    if isinstance(event, SiteApplied):
        return _applied(state, event), []
    raise RemoteFault(f"server: {type(event).__name__} was not expected: this client {_busy(state)}")


def _busy(state: Client) -> str:
    """Returns the reason why a client cannot take this event."""
    if state.refused:
        return "has spent its budget"
    return "still makes a charge" if state.asked else "waits for SiteApplied" if state.outstanding else "waits for a question"


def _charge(state: Client) -> int:
    """Returns the accounted steps of one update: shards answer once, however many steps they take (docs/spec/pvi.md, section
    12).
    """
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
        dh, dP, moved = shards.update(
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
    if not 0 <= event.alpha <= 1:
        raise RemoteFault(f"server: SiteApplied.alpha is {event.alpha}, expected 0 to 1")
    dh, dP, after = state.outstanding
    divided = state.shards
    if divided is not None and after is not None:
        divided = replace(divided, sites=divided.sites + event.alpha * after)
    site_h, site_P = state.site_h + event.alpha * dh, state.site_P + event.alpha * dP
    return replace(state, site_h=site_h, site_P=site_P, shards=divided, outstanding=None)
