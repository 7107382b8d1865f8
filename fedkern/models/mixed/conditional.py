"""Computes densities of a client's rows, modes of its groups' effects, and each group's integral, given points xi.

A client needs them for its own groups and rows, at hundreds of draws; kernels take thousands of points. A point here has no
T_c: the client's effect is in its coefficients (`Rows.shifted`). Groups have rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ...arrays import Vector
from ...kernels.families import FAMILIES, HALF_LOG_TAU, HAZARDS
from .quadrature import log_sum, rule
from .rows import Rows

MOST = 2_000_000  # numbers of an array: rows times points
STEPS, HALVINGS, NEAR = 100, 40, 1e-7


def pieces(n: int, most: int) -> Iterator[slice]:
    """Yields 0 .. n in slices of at most `most`, and of at least 1."""
    size = max(1, most)
    return (slice(begin, min(begin + size, n)) for begin in range(0, n, size))


def group_pieces(rows: Rows, most: int, most_groups: int) -> Iterator[slice]:
    """Yields the groups in slices of at most `most` rows and `most_groups` groups, and of at least one group."""
    start = 0
    while start < rows.n_groups:
        stop = int(np.searchsorted(rows.starts, rows.starts[start] + most, side="right")) - 1
        stop = max(start + 1, min(stop, start + most_groups))
        yield slice(start, stop)
        start = stop


def predictor(rows: Rows, points: Vector) -> Vector:
    """Returns (S, n) predictors without the groups' effects."""
    eta: Vector = points[:, : rows.layout.p] @ rows.X.T
    return eta if rows.offset is None else eta + rows.offset


def with_effects(rows: Rows, fixed: Vector, T: Vector, u: Vector) -> Vector:
    """Returns (S, n) predictors with the groups' effects T u, u (S, G, d)."""
    effects = np.repeat(np.einsum("sik,sgk->sgi", T, u), np.diff(rows.starts), axis=1)
    return np.asarray(fixed + np.einsum("ni,sni->sn", rows.Z, effects))


def effect_variance(columns: Vector, T: Vector) -> Vector:
    """Returns (S, n) the variance of z' T u, for columns z (n, d) and T (S, d, d)."""
    return np.asarray((np.einsum("ni,sik->snk", columns, T) ** 2).sum(axis=2))


def density(rows: Rows, eta: Vector, points: Vector) -> Vector:
    """Returns (S, n) log p(y | eta), normalised in y."""
    if rows.layout.family in HAZARDS:
        return rows.density(eta, points)
    record = FAMILIES[rows.layout.family]
    return record.value(rows.y, record.kept(eta), rows.scale(points), rows.trials) + rows.log_roots


def slopes(rows: Rows, eta: Vector, points: Vector) -> tuple[Vector, Vector]:
    """(S, n) the derivative of `density` in eta, and minus the second one, or about it where it may be below 0."""
    if rows.layout.family in HAZARDS:
        return rows.slopes(eta, points)
    family, record = rows.layout.family, FAMILIES[rows.layout.family]
    scale = rows.scale(points)
    eta = record.kept(eta)
    slope = record.slope(rows.y, eta, scale, rows.trials)
    if family == "negative-binomial":
        mean = record.mean(eta)
        return slope, mean / (1 + mean / scale) * ((1 + rows.y / scale) / (1 + mean / scale))
    curve = record.observed if record.concave else record.information
    return slope, curve(rows.y, eta, scale, rows.trials)


def by_group(rows: Rows, values: Vector) -> Vector:
    """Returns (S, G, ..) sums of values (S, n, ..) over the rows of each group."""
    return np.add.reduceat(values, rows.starts[:-1], axis=1)


def modes(rows: Rows, points: Vector, fixed: Vector) -> tuple[Vector, Vector]:
    """Returns (S, G, d) the most probable effects u, and C^-1 (S, G, d, d) there, where C C' is minus the second derivative."""
    d, T = len(rows.layout.group), rows.layout.factor(points, "group")
    ZZ = np.einsum("ni,nk->nik", rows.Z, rows.Z)

    def level(u: Vector) -> Vector:
        eta = with_effects(rows, fixed, T, u)
        return np.asarray(by_group(rows, density(rows, eta, points)) - 0.5 * (u**2).sum(axis=2))

    u = np.zeros((len(points), rows.n_groups, d))
    if len(points) > 1:  # from where they are at the points' mean, a few steps are enough
        middle = points.mean(axis=0, keepdims=True)
        u += modes(rows, middle, predictor(rows, middle))[0]
    value = level(u)
    for _ in range(STEPS):  # Newton's steps, each halved until the density does not fall
        slope, curved = slopes(rows, with_effects(rows, fixed, T, u), points)
        g = np.einsum("sik,sgi->sgk", T, by_group(rows, slope[:, :, np.newaxis] * rows.Z)) - u
        H = np.einsum("sia,sgik,skb->sgab", T, by_group(rows, curved[:, :, np.newaxis, np.newaxis] * ZZ), T) + np.eye(d)
        step = g / H[..., 0] if d == 1 else np.linalg.solve(H, g[..., np.newaxis])[..., 0]
        if np.abs(step).max(initial=0.0) < NEAR:
            break
        for _ in range(HALVINGS):
            new = level(u + step)
            worse = ~(new >= value - 1e-9 * (1 + np.abs(value)))
            if not worse.any():
                break
            step[worse] /= 2
        u, value = u + step, new
    return u, np.linalg.inv(np.linalg.cholesky(H))


def placed(mode: Vector, back: Vector, t: Vector) -> Vector:
    """Returns mode + C^-T t, for C^-1 `back` and t (.., d) of the shape of modes, or a single one (d,)."""
    product = "...ba,b->...a" if t.ndim == 1 else "...ba,...b->...a"
    return np.asarray(mode + np.einsum(product, back, t))


@dataclass(frozen=True)
class Located:
    """Holds groups at points (S, P), and the modes of their effects."""

    # rows, points: the client's, and (S, P)
    rows: Rows
    points: Vector
    fixed: Vector  # (S, n) `predictor`
    T: Vector  # (S, d, d)
    # mode, back: see `modes`
    mode: Vector
    back: Vector

    @classmethod
    def of(cls, rows: Rows, points: Vector) -> Located:
        fixed = predictor(rows, points)
        return cls(rows, points, fixed, rows.layout.factor(points, "group"), *modes(rows, points, fixed))

    def terms(self, nodes: int) -> Iterator[tuple[Vector, Vector]]:
        """Yields (S, G) logarithms of the terms of the groups' integrals, and (S, n) of the rows' densities, at each node."""
        log_det = -np.log(np.diagonal(self.back, axis1=2, axis2=3)).sum(axis=2)
        t, log_w = rule(nodes, self.mode.shape[2])
        for t_k, log_w_k in zip(t, log_w, strict=True):
            u = placed(self.mode, self.back, t_k)
            of_rows = density(self.rows, with_effects(self.rows, self.fixed, self.T, u), self.points)
            of_prior = 0.5 * t_k @ t_k + log_w_k - 0.5 * (u**2).sum(axis=2) - log_det
            yield by_group(self.rows, of_rows) + of_prior, of_rows

    def integrals(self, nodes: int) -> Vector:
        """Returns (S, G) log-likelihoods of the groups."""
        return log_sum(np.stack([log for log, _ in self.terms(nodes)], axis=-1))

    def leverages(self, share: Vector, of_rows: Vector) -> Vector:
        """Returns (S, n) each row's share of the information on its group's effect: in every group they add up to less than d."""
        _, curved = slopes(self.rows, with_effects(self.rows, self.fixed, self.T, self.mode), self.points)
        back = np.repeat(self.back, np.diff(self.rows.starts), axis=1)
        seen = np.einsum("snab,scb,nc->sna", back, self.T, self.rows.Z)
        return np.asarray(curved * (seen**2).sum(axis=2))


@dataclass(frozen=True)
class Spread:
    """Holds groups at points (S, P) whose effects may have several modes (`Layout.concave`), with nodes wherever these can be."""

    # rows, points, fixed, T: see `Located`
    rows: Rows
    points: Vector
    fixed: Vector
    T: Vector
    # u, log_w: (S, G, K) nodes, and the logarithms of their weights
    u: Vector
    log_w: Vector

    @classmethod
    def of(cls, rows: Rows, points: Vector) -> Spread:
        fixed, T = predictor(rows, points), rows.layout.factor(points, "group")

        def joint(u: Vector) -> Vector:
            return by_group(rows, density(rows, with_effects(rows, fixed, T, u[..., np.newaxis]), points)) - 0.5 * u**2

        return cls(rows, points, fixed, T, *wide_rule(rows, fixed, T, joint))

    def terms(self, nodes: int) -> Iterator[tuple[Vector, Vector]]:
        """Yields the same as `Located.terms`; the rule has as many nodes as it needs."""
        for k in range(self.u.shape[2]):
            u = self.u[:, :, k]
            of_rows = density(self.rows, with_effects(self.rows, self.fixed, self.T, u[..., np.newaxis]), self.points)
            yield by_group(self.rows, of_rows) + self.log_w[:, :, k] - 0.5 * u**2 - HALF_LOG_TAU, of_rows

    def integrals(self, nodes: int) -> Vector:
        """Returns (S, G) log-likelihoods of the groups."""
        return log_sum(np.stack([log for log, _ in self.terms(nodes)], axis=-1))

    def leverages(self, share: Vector, of_rows: Vector) -> Vector:
        """Returns the same as `Located.leverages`: with l the sum of all log-densities, E l' l_i' is -E l_i''. `share`: (S, n, K)
        logarithms of each node's part of the integral of the row's group; `of_rows`: (S, n, K) log-densities of rows at the
        nodes."""
        gaps = self.u[:, :, 2:] - self.u[:, :, :-2]
        slope = (of_rows[:, :, 2:] - of_rows[:, :, :-2]) / np.repeat(gaps, np.diff(self.rows.starts), axis=1)
        whole = np.repeat(by_group(self.rows, slope) - self.u[:, :, 1:-1], np.diff(self.rows.starts), axis=1)
        weight = np.exp(share[:, :, 1:-1])
        return np.asarray((weight * whole * slope).sum(axis=2) / np.maximum((weight * whole**2).sum(axis=2), 1e-300))


def nodes_of(rows: Rows, nodes: int) -> int:
    """Returns the number of nodes of the rule of `locate`; `nodes`: a dimension of a rule around a mode."""
    return nodes ** len(rows.layout.group) if rows.layout.concave else size()


def locate(rows: Rows, points: Vector) -> Located | Spread:
    """Returns the groups at points (S, P), around modes or everywhere, as the family needs it."""
    return Located.of(rows, points) if rows.layout.concave else Spread.of(rows, points)


# --------------------
# Makes rules for one effect a group whose density, given the rows, may have several modes. No mode is looked for.
#
# Knots stand over all that the effect's prior allows, and where each of some rows is likeliest; more are put where the root of
# the density has its mass between them, again and again, so that a peak of any width is met that shows in its surroundings.
# Panels then hold equal parts of that mass, with Gauss-Legendre nodes in each.


FAR = 40.0  # of an effect in its standard deviations: the outermost knots
KNOTS, STEP, WIDTH = 41, 0.21, 1.19  # of which the middle ones are a quarter apart
OF_ROWS = 12  # knots where rows of a group are likeliest, at most
TIMES, MORE = 4, 12  # how often knots are added, and how many
# The part of the mass below each end of a panel, and the nodes of a panel.
_ENDS = np.array([0, 1e-4, 1e-3, 0.005, 0.02, 0.05])
BELOW = np.concatenate([_ENDS, np.linspace(0.08, 0.92, 13), 1 - _ENDS[::-1]])
NODES = 4


@lru_cache(maxsize=1)
def _legendre() -> tuple[Vector, Vector]:
    t, w = np.polynomial.legendre.leggauss(NODES)
    return 0.5 * (1 + t), 0.5 * w


def size() -> int:
    """Returns the number of nodes of a rule."""
    return NODES * (len(BELOW) - 1)


def wide_rule(rows: Rows, fixed: Vector, T: Vector, joint: Callable[[Vector], Vector]) -> tuple[Vector, Vector]:
    """Returns nodes u (S, G, K), and the logarithms of the weights with which exp(`joint`) at them adds up to its integral.

    Parameters
    ----------
    rows : of the groups, Z of one column
    fixed : (S, n) predictors without the groups' effects
    T : (S, 1, 1)
    joint : u (S, G) -> (S, G) logarithms of the integrand, up to a constant
    """
    S, G = len(fixed), rows.n_groups
    u = np.concatenate([np.broadcast_to(_everywhere(), (S, G, KNOTS)), _of_rows(rows, fixed, T)], axis=2)
    log = _at(joint, u)
    for _ in range(TIMES):
        u, log = _sorted(u, log)
        more = _quantiles(u, log, (0.5 + np.arange(MORE)) / MORE)
        u, log = np.concatenate([u, more], axis=2), np.concatenate([log, _at(joint, more)], axis=2)
    ends = _quantiles(*_sorted(u, log), BELOW)
    t, w = _legendre()
    length = np.diff(ends, axis=2)[..., np.newaxis]
    nodes = (ends[:, :, :-1, np.newaxis] + length * t).reshape(S, G, -1)
    with np.errstate(divide="ignore"):
        return nodes, np.log(length * w).reshape(S, G, -1)


def _everywhere() -> Vector:
    steps = np.arange(KNOTS) - KNOTS // 2
    return np.asarray(np.clip(WIDTH * np.sinh(STEP * steps), -FAR, FAR))


def _of_rows(rows: Rows, fixed: Vector, T: Vector) -> Vector:
    """(S, G, k) effects at which some rows of each group, evenly chosen among them, are likeliest."""
    record, y = FAMILIES[rows.layout.family], rows.y
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if record.measured:
            place = y
        elif record.link == "logit":
            place = np.log(y) - np.log1p(-y)
        else:
            place = np.log(np.maximum(y, 0.5))
        u = np.clip(np.nan_to_num((place - fixed) / (T[:, 0] * rows.Z[:, 0])), -FAR, FAR)
    group = np.repeat(np.arange(rows.n_groups), np.diff(rows.starts))
    order = np.lexsort((u.mean(axis=0), group))  # rows stay in their groups
    sizes = np.diff(rows.starts)
    share = np.linspace(0, 1, min(OF_ROWS, int(sizes.max(initial=1))))
    which = rows.starts[:-1, np.newaxis] + np.rint(share * (sizes[:, np.newaxis] - 1)).astype(np.int64)
    return np.asarray(u[:, order[which]])


def _at(joint: Callable[[Vector], Vector], u: Vector) -> Vector:
    return np.stack([joint(u[:, :, k]) for k in range(u.shape[2])], axis=2)


def _sorted(u: Vector, log: Vector) -> tuple[Vector, Vector]:
    order = np.argsort(u, axis=2)
    return np.take_along_axis(u, order, axis=2), np.take_along_axis(log, order, axis=2)


def _quantiles(u: Vector, log: Vector, share: Vector) -> Vector:
    """(S, G, k) where parts of the mass of exp(log / 2) lie below, which is linear between knots u in their order."""
    root = np.exp(0.5 * (log - log.max(axis=2, keepdims=True)))
    gaps = np.diff(u, axis=2)
    mass = np.cumsum(0.5 * (root[:, :, 1:] + root[:, :, :-1]) * gaps, axis=2)
    below = np.concatenate([np.zeros_like(mass[:, :, :1]), mass / mass[:, :, -1:]], axis=2)
    wanted = np.broadcast_to(share, (*u.shape[:2], len(share)))
    cell = np.clip((below[:, :, np.newaxis] < wanted[..., np.newaxis]).sum(axis=3) - 1, 0, u.shape[2] - 2)
    low, part = np.take_along_axis(u, cell, axis=2), np.take_along_axis(below, cell, axis=2)
    width = np.take_along_axis(gaps, cell, axis=2)
    rise = np.take_along_axis(np.diff(below, axis=2), cell, axis=2)
    inside = np.clip((wanted - part) / np.where(rise > 0, rise, 1.0), 0.0, 1.0)
    return np.asarray(low + width * inside)
