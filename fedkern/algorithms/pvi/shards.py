"""Runs local averaging and virtual clients: a client's rows in n shards, each of which answers with one clipped change.

A row is in one shard: to add it, to remove it or to replace its values under the same id moves one clipped change by at most 2 C.
(One that is replaced by a row with another id may move two: these are no neighbours.) The update is charged once, whatever its
number of local steps. No rule may know a shard's row count or a mean over rows, or every shard would depend on every row. Source:
docs/spec/pvi.md, section 12 b and c.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...models.expfam import Gaussian, floored
from ...models.glm import Rows
from ...privacy.accountant import Mechanism
from ..core.kept import GIVEN
from .local import Local, attempt

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Shards:
    """Is the state of a client's shards.

    Attributes
    ----------
    members : row indices of each shard; rows with a number that is not finite are in none
    sites : (n, 2d) noise-free virtual sites (h, P); stays zero under local averaging
    optimiser : each shard's own optimiser state, or None
    """

    members: tuple[NDArray[np.int64], ...] = field(metadata=GIVEN)
    sites: Vector
    optimiser: tuple[Vector | None, ...]


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
    n = len(state.members)
    averaging = s.variant == "local-averaging"
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
        shard = Local(_weighted(local.rows.take(members), float(n) if averaging else 1.0), s, local.index)
        new, optimiser = attempt(shard, q, Gaussian(q.h - own_h, Pc), state.optimiser[i], s.local_steps, first_step)
        # Each shard's change is clipped by itself, before the sum: a row changes one shard alone.
        integer, _ = clipped(np.concatenate([new.h - q.h, new.P - q.P]), mechanism)
        total += integer
        optimisers.append(optimiser)
        failed += new is q
        if not averaging:
            sites[i] = s.damping * mechanism.grid * integer
    change = s.damping * mechanism.release(source, total, first_step) / (n if averaging else 1)
    return change[:d], change[d:], Moved(tuple(optimisers), sites, failed)


def _weighted(rows: Rows, weight: float) -> Rows:
    if weight == 1:
        return rows
    weights = rows.home.xp.full(len(rows), weight) if rows.weights is None else weight * rows.weights
    return Rows(rows.X, rows.y, rows.offset, weights)
