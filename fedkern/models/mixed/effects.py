"""Draws a client's own effect and those of its groups, given draws of the posterior of xi. They stay in the client's folder.

At each draw an effect's density, given the rows, is met by weighted candidates: around its mode, from t distributions with as
many dimensions, evenly spread (Kronecker sequences); where it may have several modes, by the nodes of a rule (`wide`). Effects
are b = T u, on the scale of the predictor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from ...arrays import Indices, Vector
from ...kernels import rng
from . import conditional
from .conditional import (
    MOST,
    Spread,
    by_group,
    density,
    group_pieces,
    locate,
    modes,
    nodes_of,
    pieces,
    placed,
    predictor,
    with_effects,
)
from .joint import Blocks, factors
from .layout import Level
from .quadrature import log_sum
from .rows import Rows, alone

QUANTILES = (0.05, 0.5, 0.95)
FREEDOM = 5.0  # of the t distributions
OF_GROUP, OF_CLIENT = 16, 32  # candidates a draw
ROWS = 20_000  # of groups at once
DRAWN, MOST_DRAWN = 8, 1 << 24  # effects that are kept at each draw, and numbers of all of them


@dataclass(frozen=True)
class Effects:
    """Summarises k effects with d terms, over the posterior."""

    # mean, sd: (k, d)
    mean: Vector
    sd: Vector
    quantiles: Vector  # (3, k, d) at 5, 50 and 95 %
    above: Vector  # (k, d) probability of being above 0
    rank: Vector  # (k,) expected rank of the first term, 1 the largest
    # (T, R, k, d) R effects at each of the draws `step` apart, drawn given the rows; None where none are
    drawn: NDArray[np.float32] | None = None
    step: int = 1  # see `drawn`


def complete_draws(rows: Rows, draws: Vector, nodes: int, key: int) -> tuple[Vector, Effects | None]:
    """Returns the draws (S, P) as the groups see them, with a client's effect drawn at each, given the rows; and that effect.
    `nodes`: a dimension of the groups' rule; `key`: of the random numbers that choose the effect."""
    layout = rows.layout
    if not layout.client:
        return np.ascontiguousarray(draws[:, layout.kernel_at]), None
    if layout.joint:
        uniform = rng.uniform(len(draws) * DRAWN, key=key, step=len(draws)).reshape(len(draws), DRAWN)
        effect = Blocks(rows).sample(draws, uniform)["client"]
        return _with_client(rows, draws, effect[:, 0, 0]), Effects(
            *_summary(effect, np.full(effect.shape[:3], 1 / DRAWN)), np.ones(1)
        )
    if not rows.nested:
        return _as_group(rows, draws, key)
    mode, root = rows.client_mode(draws, nodes)
    back = root.swapaxes(1, 2)[:, np.newaxis]
    u, log_q = _candidates(mode[:, np.newaxis], back, np.arange(len(draws)), OF_CLIENT)
    v = u[:, :, 0]
    inner = rows.shifted(draws, v)
    value = rows.inner_values(inner.reshape(-1, inner.shape[2]), nodes).reshape(v.shape[:2])
    weight = _normalised(value - 0.5 * (v**2).sum(axis=2) - log_q[:, :, 0])[:, :, np.newaxis]
    effect = np.einsum("sik,sck->sci", layout.factor(draws, "client"), v)[:, :, np.newaxis]
    chosen = _chosen(np.cumsum(weight, axis=1), rng.uniform(len(draws), key=key, step=len(draws))[:, np.newaxis])[:, 0]
    return np.ascontiguousarray(inner[np.arange(len(draws)), chosen]), Effects(*_summary(effect, weight), np.ones(1))


def _with_client(rows: Rows, draws: Vector, effect: Vector) -> Vector:
    """Draws as the groups see them, with a client's effect (S, d)."""
    inner = np.ascontiguousarray(draws[:, rows.layout.kernel_at])
    inner[:, list(rows.layout.client_columns)] += effect * rows.layout.client_signs
    return inner


def _as_group(rows: Rows, draws: Vector, key: int) -> tuple[Vector, Effects]:
    """`complete_draws` where the client is one group."""
    u, weight = _posterior(rows.as_group, draws, rows.layout.factor(draws, "client"))
    effect = rows.layout.factor(draws, "client")[:, np.newaxis] * u
    chosen = _chosen(np.cumsum(weight, axis=1), rng.uniform(len(draws), key=key, step=len(draws))[:, np.newaxis])[:, 0]
    inner = _with_client(rows, draws, effect[np.arange(len(draws)), chosen, 0])
    return inner, Effects(*_summary(effect, weight), np.ones(1))


def of_all_groups(rows: Rows, inner: Vector, nodes: int, key: int) -> list[Effects]:
    """Returns the effects of each kind of groups, in the order of `Layout.effects`, at draws (S, P_inner) of `complete_draws`."""
    if not rows.layout.group:
        return []
    if not rows.layout.outer:
        return [of_groups(rows, inner, key)]
    size = len(inner) * sum(factor.n_groups * factor.Z.shape[1] for factor in factors(rows))
    uniform = rng.uniform(len(inner) * (R := int(np.clip(MOST_DRAWN // max(size, 1), 1, DRAWN))), key=key).reshape(-1, R)
    found = []
    for effect in drawn_together(rows, inner, uniform, nodes, key).values():
        found.append(summarised(effect))
    return found


def summarised(effect: Vector) -> Effects:
    """Returns the effects of a kind of groups, of which R are drawn at each draw given the rows (S, R, G, d)."""
    summary = _summary(effect, np.full(effect.shape[:3], 1 / effect.shape[1]))
    return Effects(*summary, _ranks(effect[:, 0, :, 0]), effect.astype(np.float32))


def drawn_together(rows: Rows, inner: Vector, uniform: Vector, nodes: int, key: int) -> dict[Level, Vector]:
    """Returns effects T u (S, R, G, d) of each kind of groups, drawn at each draw given the rows, as `uniform` (S, R) and `key`
    choose them."""
    rows, (S, R) = alone(rows), uniform.shape
    layout = rows.layout
    names, of_kinds = [*layout.effects][:-1], factors(rows)
    if layout.joint or not layout.outer:
        found = Blocks(rows).sample(inner, uniform)
        return {name: found[name] for name in names}
    out = [np.empty((S * R, factor.n_groups, factor.Z.shape[1])) for factor in of_kinds]
    repeated, first = np.repeat(inner, R, axis=0), 0
    for j, part in enumerate(rows.parts):
        drawn, _ = complete_draws(part, repeated, nodes, key ^ (2 * j + 1))
        columns = list(part.layout.client_columns)
        out[1][:, j] = (drawn[:, columns] - repeated[:, part.layout.kernel_at][:, columns]) * part.layout.client_signs
        inside = alone(part)
        u = draw_effects(inside, drawn, rng.uniform(S * R * part.n_groups, key=key ^ (2 * j + 2)).reshape(S * R, -1))
        out[0][:, first : first + part.n_groups] = np.einsum("sik,sgk->sgi", inside.layout.factor(drawn, "group"), u)
        first += part.n_groups
    return {name: effect.reshape(S, R, *effect.shape[1:]) for name, effect in zip(names, out, strict=True)}


def of_groups(rows: Rows, inner: Vector, key: int) -> Effects:
    """Returns the effects of all groups of one column, at draws (S, P_inner) that `complete_draws` has made."""
    d, S, G = len(rows.layout.group), len(inner), rows.n_groups
    (mean, sd, above), quantiles, first = np.empty((3, G, d)), np.empty((3, G, d)), np.empty((S, G))
    T = rows.layout.factor(inner, "group")
    # A number of each group and draw chooses its effect: no other group's rows, and no split into parts, change it.
    uniform = np.stack([rng.uniform(G, key=key, step=s) for s in range(S)])
    step = max(1, -(-S * G * d // MOST_DRAWN))
    kept = slice(None, None, step)
    drawn = np.empty((len(range(S)[kept]), int(np.clip(MOST_DRAWN // max(S * G * d, 1), 1, DRAWN)), G, d), np.float32)
    for part in group_pieces(rows, ROWS, MOST // (S * _candidates_of(rows) * d)):
        some = rows.take_groups(part)
        u, weight = _posterior(some, inner, T)
        effect = np.einsum("sik,scgk->scgi", T, u)
        mean[part], sd[part], quantiles[:, part], above[part] = _summary(effect, weight)
        below = np.cumsum(weight, axis=1)
        chosen = _chosen(below, uniform[:, part])
        first[:, part] = np.take_along_axis(effect[..., 0], chosen[:, np.newaxis], axis=1)[:, 0]
        for r in range(drawn.shape[1]):  # evenly spread over the candidates
            chosen = _chosen(below[kept], (uniform[kept, part] + r) / drawn.shape[1])
            choice = chosen[:, np.newaxis, :, np.newaxis]
            drawn[:, r, part] = np.take_along_axis(effect[kept], choice, axis=1)[:, 0]
    return Effects(mean, sd, quantiles, above, _ranks(first), drawn, step)


def _ranks(first: Vector) -> Vector:
    """(G,) ranks of effects (S, G), averaged over draws: those of posterior means would hide how little is known of them."""
    S, G = first.shape
    rank = np.zeros(G)
    for of_draw in first:
        place = np.empty(G)
        place[np.argsort(-of_draw, kind="stable")] = np.arange(1, G + 1)
        rank += place / S
    return rank


def draw_effects(rows: Rows, inner: Vector, uniform: Vector) -> Vector:
    """Returns (S, G, d) one u of every group at each draw, given its rows; `uniform` (S, G): numbers that choose a candidate."""
    d, S, G = len(rows.layout.group), len(inner), rows.n_groups
    T, out = rows.layout.factor(inner, "group"), np.empty((S, G, d))
    for part in group_pieces(rows, ROWS, MOST // (S * _candidates_of(rows) * d)):
        u, weight = _posterior(rows.take_groups(part), inner, T)
        chosen = _chosen(np.cumsum(weight, axis=1), uniform[:, part])[:, np.newaxis, :, np.newaxis]
        out[:, part] = np.take_along_axis(u, chosen, axis=1)[:, 0]
    return out


def _posterior(rows: Rows, inner: Vector, T: Vector) -> tuple[Vector, Vector]:
    """(S, c, G, d) candidates u of some groups, and their weights (S, c, G), which add up to 1 over c."""
    S, G, d, c = len(inner), rows.n_groups, len(rows.layout.group), _candidates_of(rows)
    u, weight = np.empty((S, c, G, d)), np.empty((S, c, G))
    for part in pieces(S, MOST // max(len(rows), 1)):
        if not rows.layout.concave:
            spread = Spread.of(rows, inner[part])
            u[part] = spread.u.swapaxes(1, 2)[..., np.newaxis]
            weight[part] = _normalised(np.stack([log for log, _ in spread.terms(0)], axis=1))
            continue
        fixed = predictor(rows, inner[part])
        candidates, log_q = _candidates(*modes(rows, inner[part], fixed), np.arange(part.start, part.stop), OF_GROUP)
        log = np.empty(log_q.shape)
        for c in range(OF_GROUP):
            of_rows = density(rows, with_effects(rows, fixed, T[part], candidates[:, c]), inner[part])
            log[:, c] = by_group(rows, of_rows) - 0.5 * (candidates[:, c] ** 2).sum(axis=2)
        u[part], weight[part] = candidates, _normalised(log - log_q)
    return u, weight


def _candidates_of(rows: Rows) -> int:
    """The number of candidates of each group and draw: nodes of a rule where an effect may have several modes."""
    return OF_GROUP if rows.layout.concave else conditional.size()


def _candidates(mode: Vector, back: Vector, draws: Indices, count: int) -> tuple[Vector, Vector]:
    """(S, count, G, d) numbers around `modes`, and the logarithms (S, count, G) of their densities, up to a constant."""
    d = mode.shape[2]
    # the root of x^(d+1) = x + 1: Kronecker sequences that fill d dimensions evenly
    root = max(np.roots([1.0, *[0.0] * (d - 1), -1.0, -1.0]).real)
    numbers = draws[:, np.newaxis] * count + np.arange(count)
    share = (0.5 + numbers[..., np.newaxis] * root ** -np.arange(1.0, d + 1)) % 1.0
    t = special.stdtrit(FREEDOM, np.clip(share, 1e-6, 1 - 1e-6))
    log_q = -0.5 * (FREEDOM + 1) * np.log1p(t**2 / FREEDOM).sum(axis=2)
    u = np.stack([placed(mode, back, np.broadcast_to(t[:, c, np.newaxis], mode.shape)) for c in range(count)], axis=1)
    return u, np.broadcast_to(log_q[:, :, np.newaxis], u.shape[:3])


def _normalised(log: Vector) -> Vector:
    """(S, c, ..) weights that add up to 1 over c."""
    weight = np.exp(log - log.max(axis=1, keepdims=True))
    return np.asarray(weight / weight.sum(axis=1, keepdims=True))


def _chosen(below: Vector, uniform: Vector) -> Indices:
    """(S, G) the candidates that uniform numbers choose, where the candidates' weights add up to `below` (S, c, G)."""
    return np.asarray(np.minimum((below < uniform[:, np.newaxis]).sum(axis=1), below.shape[1] - 1))


def _summary(effect: Vector, weight: Vector) -> tuple[Vector, Vector, Vector, Vector]:
    """Means, standard deviations (G, d), quantiles (3, G, d) and probabilities (G, d) of being above 0, of candidates
    (S, c, G, d) with their weights."""
    S, c, G, d = effect.shape
    value, share = effect.reshape(S * c, G, d), weight.reshape(S * c, G, 1) / S
    mean = (share * value).sum(axis=0)
    sd = np.sqrt((share * (value - mean) ** 2).sum(axis=0))
    order = np.argsort(value, axis=0)
    sorted_value = np.take_along_axis(value, order, axis=0)
    below = np.take_along_axis(np.broadcast_to(share, value.shape), order, axis=0)
    below = np.cumsum(below, axis=0) - 0.5 * below
    quantiles = np.empty((len(QUANTILES), G, d))
    for g in range(G):
        for i in range(d):
            quantiles[:, g, i] = np.interp(QUANTILES, below[:, g, i], sorted_value[:, g, i])
    return mean, sd, quantiles, (share * (value > 0)).sum(axis=0)


# --------------------
# Computes densities of single rows, each given the others of its group, for leave-one-out sums over a client's rows.
#
# At a draw xi (the client's effect in it, `effects.complete_draws`) a row without the others of its group has an effect that
# they tell: p(y_i | y of the rest, xi) = 1 / E[1 / p(y_i | u)] over the effect's density given all rows, by the nodes of the
# group's rule. Where a row has much of the information on the effect, the rule would be around the wrong place: such rows, at
# most a few in a group, have p(all) / p(all but the row), each integral by a rule of its own.
#
# Source: Vehtari, Mononen, Tolvanen, Sivula and Winther (2016).


LARGE = 0.4  # of the information on a group's effect
LEFT_OUT_ROWS = 2_000  # at once


def row_densities(rows: Rows, inner: Vector, nodes: int) -> Iterator[Vector]:
    """Yields (S, n) logarithms of the densities of n rows that follow each other, given the others of their group. `inner`: (S,
    P_inner) draws that `effects.complete_draws` has made; `nodes`: a dimension of the groups' rule."""
    if not rows.layout.group:
        for part in pieces(len(rows), LEFT_OUT_ROWS):
            some = rows.take(np.arange(part.start, part.stop), np.array([0, part.stop - part.start]))
            yield density(some, predictor(some, inner), inner)
        return
    for part in group_pieces(rows, LEFT_OUT_ROWS, LEFT_OUT_ROWS):
        some = rows.take_groups(part)
        log = np.empty((len(inner), len(some)))
        for draws in pieces(len(inner), MOST // (len(some) * nodes_of(some, nodes))):
            log[draws] = _given_others(some, inner[draws], nodes)
        yield log


def _given_others(rows: Rows, inner: Vector, nodes: int) -> Vector:
    located = locate(rows, inner)
    log, of_rows = (np.stack(parts, axis=-1) for parts in zip(*located.terms(nodes), strict=True))
    total = log_sum(log)
    sizes = np.diff(rows.starts)
    share = np.repeat(log - total[..., np.newaxis], sizes, axis=1)
    left_out = -log_sum(share - of_rows)
    for i in np.flatnonzero(located.leverages(share, of_rows).max(axis=0) > LARGE):
        g = int(np.searchsorted(rows.starts, i, side="right")) - 1
        rest = np.setdiff1d(np.arange(rows.starts[g], rows.starts[g + 1]), [i])
        others = rows.take(rest, np.array([0, len(rest)]))
        of_others = locate(others, inner).integrals(nodes)[:, 0] if len(rest) else 0.0
        left_out[:, i] = total[:, g] - of_others
    return left_out
