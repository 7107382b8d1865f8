"""Integrates all effects of a client's groups together, where groups cross, or lie in each other in more than two tiers.

l(u) = sum_i log p(y_i | eta_i(u)) - u'u / 2 has one mode, with -l'' = C C' there (Laplace's approximation, exact of gaussian
rows). It is corrected by importance weights: with z_m of a standard normal, u_m = mode + C^-T z_m,

    log integral = -log|C| + log mean_m exp(l(u_m) + z_m'z_m / 2).

The z are the same at every point: their error is nearly the same there too, and a constant of the log-likelihood says nothing.
They are Sobol's points and their mirror images. Derivatives in xi are differences of these values (`models.own.differences`).
Rows that are tied by no group are integrated apart (`Blocks`): the matrix of second derivatives has a block for each such part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from scipy.linalg import LinAlgError, cho_solve, cholesky, solve_triangular
from scipy.special import ndtri

from ...arrays import Indices, Vector
from ...kernels.families import FAMILIES, HAZARDS
from ..own import differences
from .conditional import density, effect_variance, predictor, slopes
from .grouping import MOST_NESTED
from .layout import DRAWS, MOST_DRAWS, Layout, Level
from .quadrature import log_sum
from .rows import Rows

MOST_EFFECTS = 1500  # numbers of effects whose matrix of second derivatives is dense
STEPS, HALVINGS, NEAR = 100, 40, 1e-7  # of the search for a mode


class Factor(NamedTuple):
    """Holds the groups of one kind: the effect's name, its columns (n, d), the group of each row (n,), and how many there are."""

    level: Level
    Z: Vector
    codes: Indices
    n_groups: int


class Mode(NamedTuple):
    """Holds a mode (q,), C there (q, q), and l at the mode."""

    u: Vector
    root: Vector
    value: float


class Given(NamedTuple):
    """Holds the log-likelihood of a client's rows at one point, as a function of the effects u.

    Attributes
    ----------
    value : (q,) -> the log-likelihood
    derivatives : (q,) -> gradient (q,), and minus the Hessian (q, q)
    values : (q, M) -> (M,)
    """

    value: Callable[[Vector], float]
    derivatives: Callable[[Vector], tuple[Vector, Vector]]
    values: Callable[[Vector], Vector]


class Grouped(Protocol):
    """Is a client's rows with groups."""

    @property
    def layout(self) -> Layout: ...
    @property
    def key(self) -> int: ...


def added(rows: Rows, eta: Vector, effects: Mapping[Level, Vector]) -> Vector:
    """Returns predictors (S, n) with effects T u of groups, (S, G, d) of each kind."""
    for factor in factors(rows):
        if factor.level in effects:
            eta = eta + np.einsum("ni,sni->sn", factor.Z, effects[factor.level][:, factor.codes])
    return eta


def anew(rows: Rows, points: Vector, normal: Callable[[int], Vector]) -> dict[Level, Vector]:
    """Returns effects T u of new groups, (S, G, d) of each kind; `normal` draws so many numbers."""
    S, new = len(points), dict[Level, Vector]()
    for factor in factors(rows):
        d = factor.Z.shape[1]
        u = normal(S * factor.n_groups * d).reshape(S, factor.n_groups, d)
        new[factor.level] = np.einsum("sik,sgk->sgi", rows.layout.factor(points, factor.level), u)
    return new


def variance_of_new(rows: Rows, points: Vector) -> Vector:
    """Returns (S, n) the variance of predictors over effects of new groups."""
    variances = [effect_variance(factor.Z, rows.layout.factor(points, factor.level)) for factor in factors(rows)]
    return np.asarray(np.sum(variances, axis=0) if variances else np.zeros((len(points), len(rows))))


def factors(rows: Rows) -> list[Factor]:
    """Returns all kinds of groups that have effects, in the order of `Layout.effects`."""
    layout, names = rows.layout, [*rows.layout.effects]
    found = []
    if layout.group:
        codes = np.repeat(np.arange(rows.n_groups), np.diff(rows.starts))
        found.append(Factor(names[0], rows.Z, codes, rows.n_groups))
    for effect, name, codes in zip(layout.outer, names[1:], rows.codes, strict=False):
        found.append(Factor(name, rows.columns(effect.terms), codes, int(codes.max(initial=-1)) + 1))
    if layout.client:
        found.append(Factor(names[-1], rows.columns(layout.client), np.zeros(len(rows), np.int64), 1))
    return found


@lru_cache(maxsize=8)
def normals(q: int, key: int) -> Vector:
    """Returns (q, `MOST_DRAWS`) standard normal numbers: Sobol's points, each beside its mirror image."""
    from scipy.stats import qmc  # takes a second to import

    half = MOST_DRAWS // 2
    sobol = qmc.Sobol(q, scramble=True, seed=np.random.default_rng(key)).random_base2((half - 1).bit_length())[:half]
    z = ndtri(np.clip(sobol, 1e-12, 1 - 1e-12)).T
    return np.stack([z, -z], axis=2).reshape(q, MOST_DRAWS)


class Together:
    """Integrates the effects of all of a client's groups."""

    def __init__(self, rows: Grouped, of_kinds: list[Factor], *, exact: bool):
        self.layout, self.key, self.factors, self.exact = rows.layout, rows.key, of_kinds, exact
        sizes = [factor.n_groups * factor.Z.shape[1] for factor in of_kinds]
        self.begins, self.q = np.cumsum([0, *sizes]), sum(sizes)

    def given(self, point: Vector) -> Given:
        """Returns the log-likelihood of the rows at a point (1, P)."""
        raise NotImplementedError

    def mode(self, given: Given, start: Vector) -> Mode | None:
        """Returns the mode at a point, by Newton's steps from `start`, halved until l does not fall; None: no mode."""
        u = start

        def level(u: Vector) -> float:
            return given.value(u) - 0.5 * float(u @ u)

        value = level(u)
        for _ in range(STEPS):
            slope, curved = given.derivatives(u)
            g, H = slope - u, curved + np.eye(self.q)
            if not (np.isfinite(value) and np.isfinite(g).all() and np.isfinite(H).all()):
                return None
            try:
                C = cholesky(H.T, lower=False, overwrite_a=True, check_finite=False).T
            except LinAlgError:
                return None
            step = cho_solve((C, True), g, check_finite=False)
            near = float(np.abs(step).max(initial=0.0)) < NEAR
            for _ in range(0 if near else HALVINGS):
                new = level(u + step)
                if new >= value - 1e-10 * (1 + abs(value)):
                    break
                step = step / 2
            u = u + step
            if near:
                return Mode(u, C, level(u))
            value = new
        return None

    def _modes(self, points: Vector) -> Iterator[tuple[Given, Mode | None]]:
        """Yields each point's log-likelihood with its mode, looked for from that at the points' mean."""
        with np.errstate(all="ignore"):
            first = self.mode(self.given(points.mean(axis=0, keepdims=True)), np.zeros(self.q)) if len(points) else None
        start = np.zeros(self.q) if first is None else first.u
        for s in range(len(points)):
            with np.errstate(all="ignore"):  # far points have no numbers
                given = self.given(points[s : s + 1])
                found = self.mode(given, start)
            yield given, found

    @cached_property
    def _normals(self) -> Vector:
        return normals(self.q, self.key)

    def _weighed(self, given: Given, found: Mode, draws: int) -> tuple[Vector, Vector]:
        """(q, M) effects about a mode, and (M,) the logarithms of their weights."""
        z = self._normals[:, :draws]
        u = found.u[:, np.newaxis] + solve_triangular(found.root, z, lower=True, trans=1, check_finite=False)
        return u, given.values(u) - 0.5 * (u**2).sum(axis=0) + 0.5 * (z**2).sum(axis=0)

    def _logs(self, points: Vector, draws: int, parts: int) -> Vector:
        """(S, parts) logarithms of the integral, each by a part of the draws."""
        logs = np.full((len(points), parts), np.nan)
        for s, (given, found) in enumerate(self._modes(points)):
            if found is None:
                continue
            log_det = np.log(np.diagonal(found.root)).sum()
            if self.exact:
                logs[s] = found.value - log_det
                continue
            weights = self._weighed(given, found, draws)[1].reshape(parts, -1)
            logs[s] = log_sum(weights) - np.log(weights.shape[1]) - log_det
        return logs

    def values(self, points: Vector, draws: int) -> Vector:
        """Returns (S,) log-likelihoods at points (S, P)."""
        return self._logs(points, draws, 1)[:, 0]

    def halves(self, points: Vector, draws: int) -> Vector:
        """Returns (S,) the error of values, by the two halves of the draws."""
        first, second = self._logs(points, draws, 2).T
        return np.asarray((first - second) / 2)

    def sample(self, points: Vector, uniform: Vector) -> dict[Level, Vector]:
        """Returns the effects T u of each kind (S, R, G, d), given the rows; `uniform` (S, R) chooses among weighed draws."""
        S, R = uniform.shape
        out = {factor.level: np.full((S, R, factor.n_groups, factor.Z.shape[1]), np.nan) for factor in self.factors}
        T = {factor.level: self.layout.factor(points, factor.level) for factor in self.factors}
        for s, (given, found) in enumerate(self._modes(points)):
            if found is None:
                continue
            u, log = self._weighed(given, found, DRAWS)
            below = np.cumsum(np.exp(log - log_sum(log)))
            chosen = u[:, np.minimum(np.searchsorted(below, uniform[s]), DRAWS - 1)].T
            for begin, end, factor in zip(self.begins, self.begins[1:], self.factors):
                out[factor.level][s] = chosen[:, begin:end].reshape(R, factor.n_groups, -1) @ T[factor.level][s].T
        return out


class Joint(Together):
    """The same of rows whose log-likelihood is a sum over them."""

    def __init__(self, rows: Rows):
        super().__init__(rows, factors(rows), exact=rows.layout.family == "gaussian")
        self.rows = rows
        columns = [
            begin + factor.codes * factor.Z.shape[1] + k
            for begin, factor in zip(self.begins.tolist(), self.factors)
            for k in range(factor.Z.shape[1])
        ]
        self.index = np.stack(columns, axis=1)  # (n, D) the effects of each row, later kinds later
        self.pairs = [(a, b, self.index[:, a] * self.q + self.index[:, b]) for a in range(len(columns)) for b in range(a + 1)]

    def given(self, point: Vector) -> Given:
        """Returns the log-likelihood of the rows at a point (1, P)."""
        rows, fixed = self.rows, predictor(self.rows, point)
        Zt = np.hstack([factor.Z @ rows.layout.factor(point, factor.level)[0] for factor in self.factors])

        def eta(u: Vector) -> Vector:
            return np.asarray(fixed + (Zt * u[self.index]).sum(axis=1))

        def derivatives(u: Vector) -> tuple[Vector, Vector]:
            slope, curved = (numbers[0] for numbers in slopes(rows, eta(u), point))
            H = np.zeros(self.q**2)
            for a, b, entry in self.pairs:
                H += np.bincount(entry, curved * Zt[:, a] * Zt[:, b], self.q**2)
            gradient = np.bincount(self.index.ravel(), (slope[:, np.newaxis] * Zt).ravel(), self.q)
            return np.asarray(gradient, np.float64), np.asarray(H.reshape(self.q, self.q), np.float64)

        def values(u: Vector) -> Vector:
            whole = np.repeat(fixed.T, u.shape[1], axis=1)
            for a in range(Zt.shape[1]):
                whole += Zt[:, a, np.newaxis] * u[self.index[:, a]]
            if rows.layout.family in HAZARDS:
                return np.asarray(rows.density(whole.T, point).sum(axis=1))
            # What does not depend on the predictor is computed once.
            record, scale = FAMILIES[rows.layout.family], rows.scale(point)
            rest = record.normaliser(scale) + record.base(rows.y, scale, rows.trials)
            kept = record.part(rows.y, record.kept(whole.T), scale, rows.trials)
            return np.asarray(kept.sum(axis=1) + np.broadcast_to(rest, (1, len(rows))).sum())

        return Given(lambda u: float(density(rows, eta(u), point).sum()), derivatives, values)


def parts_of(codes: Sequence[Indices]) -> Indices:
    """Returns (n,) the number of each row's part, where rows of two parts have no group in common.

    Parameters
    ----------
    codes : (n,) the number of each row's group, of each kind
    """
    from scipy.sparse import coo_array  # few jobs need them
    from scipy.sparse.csgraph import connected_components

    begins = np.cumsum([0, *(int(of_kind.max(initial=-1)) + 1 for of_kind in codes)])
    places = [of_kind + begin for of_kind, begin in zip(codes, begins.tolist())]
    ends = np.tile(places[0], len(places)), np.concatenate(places)
    part = connected_components(coo_array((np.ones(len(ends[0])), ends), (begins[-1], begins[-1])), directed=False)[1]
    return np.unique(part[places[0]], return_inverse=True)[1].astype(np.int64)


class Blocks:
    """Integrates the effects of a client's groups, part by part of its rows."""

    def __init__(self, rows: Rows):
        kinds = factors(rows)
        self.shapes = {factor.level: (factor.n_groups, factor.Z.shape[1]) for factor in kinds}
        part = parts_of([factor.codes for factor in kinds])
        self.parts = list[tuple[Joint, list[Indices]]]()
        for k in range(int(part.max(initial=-1)) + 1):
            index = np.flatnonzero(part == k)
            groups, codes = zip(*(np.unique(factor.codes[index], return_inverse=True) for factor in kinds))
            starts = np.flatnonzero(np.diff(codes[0], prepend=-1, append=-1))
            some = replace(rows.take(index, starts), codes=tuple(codes[1:][: len(rows.codes)]), key=rows.key + k)
            self.parts.append((Joint(some), list(groups)))

    def values(self, points: Vector, draws: int) -> Vector:
        """Returns (S,) log-likelihoods at points (S, P)."""
        return np.asarray(np.sum([part.values(points, draws) for part, _ in self.parts], axis=0))

    def halves(self, points: Vector, draws: int) -> Vector:
        """Returns (S,) the error of values, by the two halves of the draws."""
        return np.asarray(np.sum([part.halves(points, draws) for part, _ in self.parts], axis=0))

    def sample(self, points: Vector, uniform: Vector) -> dict[Level, Vector]:
        """Returns the effects T u of each kind (S, R, G, d), given the rows; `uniform` (S, R) chooses among weighed draws."""
        out = {level: np.full((*uniform.shape, *shape), np.nan) for level, shape in self.shapes.items()}
        for k, (part, groups) in enumerate(self.parts):
            numbers = uniform  # of other parts others, as secret as these are
            if k:
                numbers = np.random.default_rng([int(uniform.flat[0] * 2.0**53), k]).uniform(size=uniform.shape)
            for of_kind, (level, found) in zip(groups, part.sample(points, numbers).items(), strict=True):
                out[level][:, :, of_kind] = found
        return out


class Tiers(NamedTuple):
    """Holds rows of which each group lies in one of another kind, and the places of their coordinates in a point."""

    rows: Rows
    at: Indices

    def nodes(self, draws: int) -> int:
        """Returns the nodes a dimension in the place of so many draws."""
        return min(self.rows.layout.most_nodes, self.rows.layout.nodes * draws // DRAWS)


class OfAll(Rows):
    """Rows whose groups' effects are integrated together."""

    @cached_property
    def tiers(self) -> Tiers | None:
        """The same where each group of one of two kinds lies in one of the other in these rows, so that rules are nested; None:
        they cross, or the integral is exact."""
        layout, found = self.layout, factors(self)
        few = all(factor.Z.shape[1] <= MOST_NESTED for factor in found)
        if layout.family == "gaussian" or layout.client or len(found) != 2 or not few:
            return None
        pairs = len(np.unique(found[0].codes * found[1].n_groups + found[1].codes))
        if pairs > max(factor.n_groups for factor in found):
            return None
        inner, outer = found if pairs == found[0].n_groups else found[::-1]
        order = np.lexsort((inner.codes, outer.codes))
        within, around = (layout.effects[factor.level] for factor in (inner, outer))
        nested = replace(layout, group=within.terms, inner=within, outer=(around,), within=True)
        starts = np.flatnonzero(np.diff(inner.codes[order], prepend=-1, append=-1))
        rows = replace(self.take(order, starts), layout=nested, codes=(outer.codes[order],), whole=self.whole)
        places = [*range(layout.p), *(k for factor in (inner, outer) for k in range(self.size)[layout.at(factor.level)])]
        return Tiers(rows, np.array([*places, *range(len(places), self.size)]))

    @cached_property
    def integral(self) -> Blocks:
        """The integral over all effects."""
        return Blocks(self)

    def values(self, points: Vector, nodes: int) -> Vector:
        if not self.layout.joint:
            return super().values(points, nodes)
        if self.tiers is not None:
            return self.tiers.rows.values(points[:, self.tiers.at], self.tiers.nodes(nodes))
        return self.integral.values(points, nodes)

    def curvature(self, points: Vector, nodes: int) -> tuple[Vector, Vector, Vector]:
        if not self.layout.joint:
            return super().curvature(points, nodes)
        if self.tiers is not None:
            back = np.argsort(self.tiers.at)
            value, slope, bent = self.tiers.rows.curvature(points[:, self.tiers.at], self.tiers.nodes(nodes))
            return value, slope[:, back], bent[:, back[:, np.newaxis], back]
        return differences.curvature(lambda some: self.integral.values(some, nodes), points)

    def rule(self, points: Vector, nodes: int) -> Vector:
        """Returns (S,) how far the errors of values, by the halves of the draws, are from their mean: a constant says nothing."""
        if not self.layout.joint:
            return super().rule(points, nodes)
        if self.tiers is not None:
            return self.tiers.rows.rule(points[:, self.tiers.at], self.tiers.nodes(nodes))
        found = self.integral.halves(points, nodes)
        return np.asarray(found - found.mean())
