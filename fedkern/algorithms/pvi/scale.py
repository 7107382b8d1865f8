"""Learns the residual variance of a linear job at the server, while q is fitted (docs/spec/pvi.md, section 2.1).

With each change of its site a client sends three numbers of its residuals under the q that it was asked to improve: the weighted
sum of squares about q's mean, the addition of q's own spread to it in units of the variance (the number of coefficients that its
rows determine), and the sum of the rows' weights. After a round the server sets

    variance = sum misfit / (sum weight - sum used)

and moves q to it: sites are kept in units of 1 / variance, and stay; only the prior moves against them. After the last round all
are told the variance, in an exchange of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import Vector
from ...kernels.homes import on_host
from ...models.expfam import Gaussian, floored, unpack
from ...models.glm import BLOCK, Rows
from ...privacy.accountant import Mechanism
from ...privacy.masks import MOST_OF_ROW
from ..core import once
from ..core.kept import GIVEN, PersistentMap
from ..core.messages import ClientEffects, Event, Protocol, RemoteFault, ServerEffects
from .local import Local, attempt
from .messages import LearntVariance, QUpdate, ScaledQUpdate, ScaledSiteDelta, Settings, SiteDelta

MOST = 1e30  # of a sum; q may begin at a wide prior
LEAST = 1e-12  # of the response's variance, about: what is below is rounding
STILL = 0.01  # of itself, by which an undamped round may move a learnt standard deviation that has settled
DIMS: dict[str, int] = {}


class Residuals(NamedTuple):
    """Holds a client's last sums of residuals."""

    misfit: float
    used: float
    weight: float


def at(local: Local, event: QUpdate) -> tuple[Local, float]:
    """Returns a client's context at the variance of a question, and that variance; 1 if none is learnt."""
    if not isinstance(event, ScaledQUpdate):
        return local, 1.0
    if not LEAST <= event.variance < math.inf:
        raise RemoteFault(f"server: ScaledQUpdate.variance is {event.variance}, expected a number from {LEAST:g} on")
    return replace(local, settings=replace(local.settings, scale=math.sqrt(event.variance))), event.variance


def with_variance(question: QUpdate, s: Settings, variance: float) -> QUpdate:
    """Returns the question, with the variance if it is learnt."""
    if not s.learn_scale:
        return question
    return ScaledQUpdate(question.round, question.version, question.h, question.P, variance)


def answered(delta: SiteDelta, question: QUpdate, local: Local) -> SiteDelta:
    """Returns the answer, with sums of the residuals if the variance is learnt."""
    if not isinstance(question, ScaledQUpdate):
        return delta
    q = Gaussian(question.h, unpack(question.P, len(question.h)))
    most = MOST_OF_ROW if local.settings.bounded else math.inf
    sums = residual_sums(local.rows, q, question.variance, most)
    return ScaledSiteDelta(delta.round, delta.version, delta.delta_id, delta.dh, delta.dP, *sums)


def residual_sums(rows: Rows, q: Gaussian, variance: float, most: float = math.inf) -> tuple[float, float, float]:
    """Returns sum w (y - x'mu - offset)^2, sum w x'Cov x / variance, sum w; of each row at most `most`, or all of it."""
    home, misfit, spread, weight = rows.home, 0.0, 0.0, 0.0
    xp = home.xp
    width = q.sd**2 if q.diagonal else q.scale_tril
    mean, factor = home.all(q.mean, width)
    for begin in range(0, len(rows), BLOCK):
        part = slice(begin, begin + BLOCK)
        X = xp.asarray(rows.X[part], np.float64)
        offset = 0.0 if rows.offset is None else rows.offset[part]
        residual = rows.y[part] - X @ mean - offset
        w = xp.ones(len(X)) if rows.weights is None else rows.weights[part]
        spreads = (X * X) @ factor if q.diagonal else ((X @ factor) ** 2).sum(axis=1)
        totals = [w @ residual**2, w @ spreads, w.sum()]
        if most < math.inf:
            totals = [xp.fmin(part, most).sum() for part in (w * residual**2, w * spreads, w)]
        of_block = (float(on_host(total)) for total in totals)
        misfit, spread, weight = (before + more for before, more in zip((misfit, spread, weight), of_block))
    return misfit, spread / variance, weight


def add_residuals(
    residuals: PersistentMap[int, Residuals], sender: int, event: SiteDelta, s: Settings
) -> PersistentMap[int, Residuals]:
    """Adds the sums of residuals that a client has sent."""
    if isinstance(event, ScaledSiteDelta) != s.learn_scale:
        raise RemoteFault(f"{type(event).__name__} is no answer in this job", sender)
    if not isinstance(event, ScaledSiteDelta):
        return residuals
    sums = (event.misfit, event.used, event.weight)
    if not (min(sums) >= 0 and max(sums) <= MOST):
        numbers = ", ".join(f"{number:g}" for number in sums)
        raise RemoteFault(f"ScaledSiteDelta: sums of squares and weights of {numbers} cannot be", sender)
    return residuals.plus(sender, Residuals(event.misfit, event.used, event.weight))


def learnt(residuals: Mapping[int, Residuals], variance: float) -> float:
    """Returns the next variance.

    If coefficients use more than half of the rows it is the plain step of EM, which has the same fixed point, needs no more rows
    than they have, and goes slowly.
    """
    misfit, used, n = (sum(residuals[k][i] for k in sorted(residuals)) for i in range(3))
    if not n:
        return variance
    new = misfit / (n - used) if 2 * used < n else (misfit + variance * used) / n
    return max(new, LEAST)


def still(rescaled: float, s: Settings) -> bool:
    """Tells whether a learnt standard deviation moves no more, by the factor of the last round."""
    return not s.learn_scale or abs(rescaled - 1) <= STILL * s.damping


# After the rounds --------------------


@dataclass(frozen=True)
class Told:
    """Holds the learnt variance, if it is known: at the server from the start, at a client once it is told."""

    value: float | None = None


def tell(n_clients: int, variance: float) -> tuple[Told, ServerEffects]:
    """Sends the learnt variance to every client; nobody answers."""
    return Told(variance), once.ask(n_clients, LearntVariance(variance))


def client_receive(state: Told, event: Event) -> tuple[Told, ClientEffects]:
    """Keeps the learnt variance."""
    if not isinstance(event, LearntVariance) or not 0 < event.variance < math.inf:
        raise RemoteFault(f"server: {type(event).__name__} was not expected")
    return Told(event.variance), []


def server_receive(state: Told, sender: int, event: Event) -> tuple[Told, ServerEffects]:
    """Does nothing: nothing is asked, and a client that is lost by now needs to know nothing."""
    return state, []


def finished(state: Told) -> bool:
    return state.value is not None


PROTOCOL: Protocol[Told, Told] = once.protocol("variance", (LearntVariance,), (), server_receive, client_receive, finished)


# Shards --------------------
# Runs local averaging and virtual clients: a client's rows in n shards, each of which answers with one clipped change.
#
# A row is in one shard: to add it, to remove it or to replace its values under the same id moves one clipped change by at most 2
# C. (One that is replaced by a row with another id may move two: these are no neighbours.) The update is charged once, whatever
# its number of local steps. No rule may know a shard's row count or a mean over rows, or every shard would depend on every row.
# Source: docs/spec/pvi.md, section 12 b and c.


@dataclass(frozen=True)
class Shards:
    """Is the state of a client's shards."""

    # row indices of each shard; rows with a number that is not finite are in none
    members: tuple[NDArray[np.int64], ...] = field(metadata=GIVEN)
    sites: Vector  # (n, 2d) noise-free virtual sites (h, P); stays zero under local averaging
    optimiser: tuple[Vector | None, ...]  # each shard's own optimiser state, or None


@dataclass(frozen=True)
class Moved:
    """Holds the changes of one update.

    Optimiser states change at once, virtual sites (times alpha) when the server applies the delta; `failed` counts the optimisers
    that failed.
    """

    optimiser: tuple[Vector | None, ...]
    deltas: Vector
    failed: int


def partition(row_ids: NDArray[np.uint64], n: int) -> tuple[NDArray[np.int64], ...]:
    """Returns the row indices of n shards, by the hash of the row's id: adding a row moves no other."""
    shard = row_ids % np.uint64(n)
    return tuple(np.flatnonzero(shard == np.uint64(s)) for s in range(n))


def start(local: Local, d: int) -> Shards:
    """Returns shards with all virtual sites at 1."""
    if local.row_ids is None:
        raise ValueError("local averaging and virtual clients need [data] row_id: shards are made by a hash of the row's id")
    n, good = local.settings.shards, local.rows.finite
    members = tuple(rows[good[rows]] for rows in partition(local.row_ids, n))
    return Shards(members, np.zeros((n, 2 * d)), (None,) * n)


def clipped(change: Vector, mechanism: Mechanism) -> tuple[NDArray[np.int64], float]:
    """Returns a change scaled to a norm of at most the clip and rounded toward zero to the integer grid, and the factor.

    It is zero if the change is not finite.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # a norm that overflows counts as not finite
        norm = float(np.linalg.norm(change))
    if not np.isfinite(norm):
        return np.zeros(len(change), np.int64), 0.0
    factor = min(1.0, mechanism.clip * (1 - 1e-9) / norm) if norm > 0 else 1.0
    return np.trunc(change * (factor / mechanism.grid)).astype(np.int64), factor


def update(
    local: Local, state: Shards, q: Gaussian, site_P: Vector, site_h: Vector, prior_P: Vector, first_step: int
) -> tuple[Vector, Vector, Moved]:
    """Returns the damped (dh, dP) of one private update, and its changes in the client.

    Local averaging starts every shard at q, with weight n on its rows and the client's cavity; virtual clients use their own
    cavity q / t_s and weight 1. Empty shards answer like all others; one whose optimiser fails answers with no change.
    """
    s, d = local.settings, q.d
    averaging = s.variant == "local-averaging"
    weight = len(state.members) if averaging else 1
    mechanism, source = local.mechanism, local.source
    if mechanism is None or source is None:
        raise ValueError(f"variant {s.variant!r} needs [privacy]: without it use variant = 'pvi'")
    total = np.zeros(2 * d, np.int64)
    sites = np.zeros_like(state.sites)
    optimisers: list[Vector | None] = []
    failed = 0
    for i, members in enumerate(state.members):
        own_h, own_P = (site_h, site_P) if averaging else (state.sites[i, :d], state.sites[i, d:])
        # The cavity's precision is kept away from 0: noise may have left it indefinite.
        Pc, _ = floored(q.P - own_P, 0.01 * prior_P)
        shard = Local(_weighted(local.rows.take(members), float(weight)), s, local.index)
        new, optimiser = attempt(shard, q, Gaussian(q.h - own_h, Pc), state.optimiser[i], s.local_steps, first_step)
        # Each shard's change is clipped by itself, before the sum: a row changes one shard alone.
        integer, _ = clipped(np.concatenate([new.h - q.h, new.P - q.P]), mechanism)
        total += integer
        optimisers.append(optimiser)
        failed += new is q
        if not averaging:
            sites[i] = s.damping * mechanism.grid * integer
    change = s.damping * mechanism.release(source, total, first_step) / weight
    return change[:d], change[d:], Moved(tuple(optimisers), sites, failed)


def _weighted(rows: Rows, weight: float) -> Rows:
    if weight == 1:
        return rows
    weights = rows.home.xp.full(len(rows), weight) if rows.weights is None else weight * rows.weights
    return Rows(rows.X, rows.y, rows.offset, weights)
