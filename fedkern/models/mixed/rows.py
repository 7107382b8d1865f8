"""Computes one client of a mixed regression: the log-likelihood of points xi, its own and its groups' effects integrated out.

The groups' effects are integrated by the kernels. The client's own effect shifts coefficients of beta by T_c v: an outer rule of
the same kind, around its mode, has the kernels' values as integrands. All nodes of a block of points are one call of them.

Sources: docs/spec/likelihood.md, section 2; Louis (1982), for the curvature.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Protocol, Self

import numpy as np

from ...arrays import Indices, Vector
from ...kernels import mixed as kernels
from ...kernels.families import FAMILIES
from ..encoding import INTERCEPT
from ..expfam import unpacked
from .fewer import LOG_ROOT, Fewer, fewer
from .layout import NODES, Layout, entries
from .quadrature import log_sum, rule

MORE = 6  # nodes a dimension that the check of a rule has beside the rule's own
BLOCK = 1 << 16  # points of the kernels at once
# The search for the mode of a client's effect. Widths of differences and `NEAR` are in standard deviations, about FIRST at
# first; they are known where curvatures in that unit are within SETTLED of 1.
SEARCH_NODES, SEARCH_STEPS, HALVINGS, NEAR = 5, 60, 40, 0.1
FIRST, WIDTH, LEAST, SETTLED = 0.5, 0.1, 1e-3, 4.0
OF_SLOPES = 1e-4  # of a predictor: half the width of a slope's difference


@dataclass(frozen=True)
class Rows:
    """Holds a client's rows; it is the field of no message.

    Attributes
    ----------
    layout : of the points
    X : (n, p) columns of the coefficients, rows sorted by group
    y : (n,) response
    starts : (G + 1,) where each group begins, and n; of a model without groups not looked at
    trials : (n,) of a binomial response; of a gamma one of how many such numbers it is the mean; None: 1
    offset : (n,) known part of the predictor, or None
    n_threads : of the kernels
    root : (n,) roots of precisions, by which X, y and offset are multiplied here: a row's density is that of y; None: 1
    codes : (n,) the number of each row's group, for each effect of `layout.outer`
    key : of the numbers by which effects are integrated together
    whole : whether no fewer rows are looked for that have the same log-likelihood (`fewer`)
    """

    layout: Layout
    X: Vector
    y: Vector
    starts: Indices
    trials: Vector | None = None
    offset: Vector | None = None
    n_threads: int = 1
    root: Vector | None = field(default=None, kw_only=True)
    codes: tuple[Indices, ...] = field(default=(), kw_only=True)
    key: int = field(default=0, kw_only=True)
    whole: bool = field(default=False, kw_only=True)

    @classmethod
    def grouped(
        cls,
        layout: Layout,
        X: Vector,
        y: Vector,
        group: Sequence[Hashable] | None,
        trials: Vector | None = None,
        offset: Vector | None = None,
        n_threads: int = 1,
    ) -> tuple[Rows, list[Hashable], Indices]:
        """Makes rows of any order, with the group of each; None: all are one group. Returns rows, sorted by group; the groups, in
        the order in which they first appear; the given row that each row is."""
        numbers: dict[Hashable, int] = {}
        which = np.array([numbers.setdefault(values, len(numbers)) for values in group or [""] * len(y)], dtype=np.int64)
        order = np.argsort(which, kind="stable")
        starts = np.searchsorted(which[order], np.arange(len(numbers) + 1))
        X, y = np.ascontiguousarray(X[order], dtype=np.float64), np.ascontiguousarray(y[order], dtype=np.float64)
        trials, offset = (
            None if values is None else np.ascontiguousarray(values[order], dtype=np.float64) for values in (trials, offset)
        )
        return cls(layout, X, y, starts.astype(np.int64), trials, offset, n_threads), list(numbers), order

    def __len__(self) -> int:
        return len(self.X)

    @property
    def size(self) -> int:
        """P, the length of a point."""
        return self.layout.size

    @property
    def n_groups(self) -> int:
        """The number of groups."""
        return len(self.starts) - 1

    @cached_property
    def Z(self) -> Vector:
        """(n, d) the columns that a group's effect is multiplied by."""
        return self.columns(self.layout.group)

    def columns(self, terms: Sequence[str]) -> Vector:
        """Returns (n, d) the columns that an effect with these terms is multiplied by."""
        names = self.layout.coefficients
        ones = np.ones(len(self)) if self.root is None else self.root
        parts = [ones if name == INTERCEPT else self.X[:, names.index(name)] for name in terms]
        return np.ascontiguousarray(np.reshape(parts, (len(parts), len(self))).T)

    def take(self, index: Indices, starts: Indices) -> Self:
        """Returns some rows, as these groups."""
        given = (self.trials, self.offset, self.root)
        trials, offset, root = (None if values is None else values[index] for values in given)
        codes = tuple(values[index] for values in self.codes)
        some = replace(
            self, X=self.X[index], y=self.y[index], starts=starts, trials=trials, offset=offset, root=root, codes=codes
        )
        return replace(some, whole=True)  # a part is asked too seldom to look for fewer rows

    def take_groups(self, part: slice) -> Self:
        """Returns some groups that follow each other."""
        first, last = int(self.starts[part.start]), int(self.starts[part.stop])
        return self.take(np.arange(first, last), self.starts[part.start : part.stop + 1] - first)

    @property
    def together(self) -> bool:
        """Whether all rows of the client have an effect in common, or are not looked at apart."""
        return bool(self.layout.client or self.layout.outer)

    @property
    def units(self) -> Indices:
        """(u + 1,) where each row begins, or what rows with an effect in common are together: a group, or all of the client's."""
        if self.together:
            return np.array([0, len(self)])
        return self.starts if self.layout.group else np.arange(len(self) + 1)

    def of_units(self, part: slice) -> Self:
        """Returns some rows or groups that follow each other."""
        units = self.units[part.start : part.stop + 1]
        return self.take(np.arange(units[0], units[-1]), units - units[0])

    def of_rows(self, index: Indices, *, whole: bool) -> Self:
        """Returns some rows without groups; `whole`: as above."""
        return replace(self.take(index, np.array([0, len(index)])), whole=whole)

    def density(self, eta: Vector, points: Vector) -> Vector:
        """Returns (S, n) log p(y | eta) of a family that has no record (`kernels.families`)."""
        raise NotImplementedError(self.layout.family)

    def slopes(self, eta: Vector, points: Vector) -> tuple[Vector, Vector]:
        """Returns (S, n) the derivative of `density` in eta, and minus the second one."""
        raise NotImplementedError(self.layout.family)

    @cached_property
    def log_roots(self) -> Vector | float:
        """(n,) what the density of y has beside that of its product with `root`."""
        return 0.0 if self.root is None else np.log(self.root)

    @property
    def own_y(self) -> Vector:
        """(n,) the response in its own unit."""
        return self.y if self.root is None else self.y / self.root

    @property
    def scaled(self) -> bool:
        """Whether rows have scales of their own."""
        return self.trials is not None and self.layout.family == "gamma"

    def scale(self, points: Vector) -> Vector:
        """Returns (.., S, 1) the families' scales at points, or (.., S, n) where rows have scales of their own."""
        scale = self.layout.scale(points)[..., np.newaxis]
        return scale if self.trials is None or not self.scaled else scale * self.trials

    def weighed(self, point: Vector) -> Vector:
        """Returns (1, n) the sizes of the second derivatives of rows' log-densities in their predictors, without effects."""
        record = FAMILIES[self.layout.family]
        eta, scale = self.fixed(point), self.scale(point[np.newaxis])
        below, above = (record.slope(self.y, record.kept(eta + step), scale, self.trials) for step in (-OF_SLOPES, OF_SLOPES))
        return np.abs(below - above) / (2 * OF_SLOPES)

    def fixed(self, point: Vector) -> Vector:
        """Returns (1, n) predictors at a point (P,), without effects."""
        eta = self.X @ point[: self.layout.p]
        whole = eta if self.offset is None else eta + self.offset
        return np.asarray(whole)[np.newaxis]

    @property
    def as_group(self) -> Rows:
        """Where the client's effect is an intercept and groups have none: the same rows and points, all of them one group."""
        layout = replace(self.layout, group=self.layout.client, client=())
        return replace(self, layout=layout, starts=np.array([0, len(self)]))

    @property
    def nested(self) -> bool:
        """Whether the client's effect needs an outer rule, which looks for a mode. Where rows are not concave the client is taken
        as one group in its place."""
        return bool(self.layout.client) and self.layout.concave

    # What a client is asked --------------------

    def values(self, points: Vector, nodes: int) -> Vector:
        """Returns (S,) log-likelihoods of the points (S, P), normalised in y; NaN where one is not finite."""
        if self.layout.within:
            return np.asarray(np.sum([part.values(points, nodes) for part in self.parts], axis=0))
        if not self.nested:
            rows = self.as_group if self.layout.client else self
            return rows.inner_values(points, nodes)
        outer = rule(self.client_nodes(nodes), len(self.layout.client))
        size = max(1, BLOCK // len(outer[1]))
        parts = [points[begin : begin + size] for begin in range(0, len(points), size)]
        return np.concatenate([np.empty(0), *(self._integrals(part, nodes, outer) for part in parts)])

    def curvature(self, points: Vector, nodes: int) -> tuple[Vector, Vector, Vector]:
        """Returns (c,) log-likelihoods of points (c, P), gradients (c, P) and minus Hessians (c, P, P), all by the same nodes."""
        if self.layout.within:
            value, gradient, curved = (
                np.sum(numbers, axis=0) for numbers in zip(*(p.curvature(points, nodes) for p in self.parts))
            )
            return value, gradient, curved
        if not self.nested:
            rows = self.as_group if self.layout.client else self
            return rows.inner_curvature(points, nodes)
        c, P = points.shape
        value, gradient, curved = np.empty(c), np.empty((c, P)), np.empty((c, P, P))
        for i in range(c):
            value[i], gradient[i], curved[i] = self._curvature_of(points[i : i + 1], nodes)
        return value, gradient, curved

    def rule(self, points: Vector, nodes: int) -> Vector:
        """Returns (S,) the change of the values with six more nodes a dimension: about the error of the rule."""
        if not (self.layout.client or self.layout.group):
            return np.zeros(len(points))
        return self.values(points, nodes + MORE) - self.values(points, nodes)

    def client_nodes(self, nodes: int) -> int:
        """Returns the nodes a dimension for the client's effect, where groups have `nodes`: in the proportion of `NODES`."""
        d, d_client = len(self.layout.group), len(self.layout.client)
        return nodes if d in (0, d_client) else -(-nodes * NODES[d_client] // NODES[d])

    @cached_property
    def parts(self) -> list[Self]:
        """The rows of each group in which the others lie, whose effect is one of all these rows, as a client's is."""
        layout = self.layout
        inside = replace(layout, client=layout.outer[0].terms, around=layout.outer[0], outer=(), within=False)
        edges = np.flatnonzero(np.diff(self.codes[0], prepend=-1, append=-1))
        parts = []
        for first, last in pairwise(edges.tolist()):
            starts = self.starts[(self.starts >= first) & (self.starts <= last)] - first
            parts.append(replace(self.take(np.arange(first, last), starts), layout=inside, codes=()))
        return parts

    # The groups' integrals --------------------

    def inner_values(self, points: Vector, nodes: int) -> Vector:
        """Returns `values` of points without T_c."""
        if self.fewer is not None:
            rows, few = self.fewer
            value = rows.inner_values(points, nodes)
            return np.asarray(value + few.constant + self._log_of_roots - few.more * (self._log_sd(points) + LOG_ROOT))
        arrays = (self.X, self.Z, self.y, self.trials, self.offset, self.starts)
        family, points = self.layout.family, self._with_given(self._with_all(points))
        value = kernels.values(points, *arrays, family=family, nodes=self._group_nodes(nodes), n_threads=self.n_threads)
        return value + self._log_of_roots

    def inner_curvature(self, points: Vector, nodes: int) -> tuple[Vector, Vector, Vector]:
        if self.fewer is not None:
            rows, few = self.fewer
            value, gradient, hessian = rows.inner_curvature(points, nodes)
            if few.more and not self.layout.given:
                gradient[:, -1] -= few.more
            value = value + few.constant + self._log_of_roots - few.more * (self._log_sd(points) + LOG_ROOT)
            return np.asarray(value), gradient, hessian
        arrays = (self.X, self.Z, self.y, self.trials, self.offset, self.starts)
        value, gradient, lower = kernels.curvature(
            self._with_given(self._with_all(points)),
            *arrays,
            family=self.layout.family,
            nodes=self._group_nodes(nodes),
            n_threads=self.n_threads,
        )
        size = points.shape[1] + len(self._independent)
        # Without the numbers that the job gives, which come last.
        return self._of_all(
            points, value + self._log_of_roots, gradient[:, :size], unpacked(lower[:, : size * (size + 1) // 2], size)
        )

    @cached_property
    def fewer(self) -> tuple[Rows, Fewer] | None:
        """Fewer rows with the same log-likelihood, but for a constant."""
        if self.whole or self.layout.group or self.scaled:
            return None
        few = fewer(self.layout.family, self.X, self.y, self.offset, self.trials)
        if few is None:
            return None
        layout, starts = replace(self.layout, family=few.family), np.array([0, len(few.y)])
        columns = {"X": few.X, "y": few.y, "offset": few.offset, "trials": few.trials, "root": None}
        return replace(self, layout=layout, starts=starts, whole=True, **columns), few  # type: ignore[arg-type]

    @property
    def _log_of_roots(self) -> float:
        return float(np.sum(self.log_roots))

    def _log_sd(self, points: Vector) -> Vector | float:
        """(S,) The logarithm of the sd of a gaussian response, the last number of points; 0 of another."""
        if self.layout.family != "gaussian":
            return 0.0
        return self.layout.given[0] if self.layout.given else points[:, -1]

    def _with_given(self, points: Vector) -> Vector:
        """The points as kernels take them."""
        if not self.layout.given:
            return points
        return np.hstack([points, np.tile(self.layout.given, (len(points), 1))])

    @property
    def _independent(self) -> list[tuple[int, int]]:
        """Entries of T, below its diagonal, that are no coordinates, as those of a group's effect are independent."""
        if self.layout.inner.shifts is None:
            return []
        return [(i, k) for i, k in entries(len(self.layout.group)) if i != k]

    def _with_all(self, points: Vector) -> Vector:
        """The points with all entries of T, which kernels take."""
        if not self._independent:
            return points
        at, T = self.layout.group_at, self.layout.factor(points, "group")
        triangle = [np.log(T[:, i, k]) if i == k else T[:, i, k] for i, k in entries(len(self.layout.group))]
        return np.hstack([points[:, : at.start], np.transpose(triangle), points[:, at.stop :]])

    def _of_all(self, points: Vector, value: Vector, slope: Vector, curved: Vector) -> tuple[Vector, Vector, Vector]:
        """Derivatives in the coordinates, from those of `_with_all`."""
        if not self._independent:
            return value, slope, curved
        at, extra, all_entries = self.layout.group_at, len(self._independent), entries(len(self.layout.group))
        gradient, hessian = np.empty(points.shape), np.empty((*points.shape, points.shape[1]))
        for s in range(len(points)):
            J = np.zeros((points.shape[1], slope.shape[1]))
            J[range(at.start), range(at.start)] = 1.0
            J[range(at.stop, len(J)), range(at.stop + extra, slope.shape[1])] = 1.0
            bent = np.zeros(len(J))
            for e, i, k, derivative in self.layout.derivatives("group", self.layout.factor(points[s : s + 1], "group")[0]):
                j = at.start + all_entries.index((i, k))
                J[e, j] = 1.0 if i == k else derivative
                bent[e] += 0.0 if i == k else derivative * slope[s, j]
            gradient[s], hessian[s] = J @ slope[s], J @ curved[s] @ J.T - np.diag(bent)
        return value, gradient, hessian

    def _group_nodes(self, nodes: int) -> int:
        return nodes if self.layout.group else 1

    # The client's own effect --------------------

    def shifted(self, points: Vector, v: Vector) -> Vector:
        """Returns (S, K, P_inner) the points (S, P) as the groups see them, where the client's effect is v (S, K, d)."""
        inner = np.repeat(points[:, np.newaxis, self.layout.kernel_at], v.shape[1], axis=1)
        shift = np.einsum("sik,sak->sai", self.layout.factor(points, "client"), v)
        inner[:, :, list(self.layout.client_columns)] += shift * self.layout.client_signs
        return inner

    def client_mode(self, points: Vector, nodes: int) -> tuple[Vector, Vector]:
        """Returns (S, d) the client's effect v near its mode at each of the points, and a root B (S, d, d) there.

        B B' is the inverse of minus the second derivative. Both are NaN where no mode is found.

        Newton steps with differences of values, which cost the kernels far less than derivatives, halved until the density does
        not fall. The differences are along the last root's columns, so that all directions are seen in their own unit. Values
        are of few nodes: the rule is right around any point near the mode.
        """
        d, S = len(self.layout.client), len(points)
        nodes = min(nodes, SEARCH_NODES)
        stencil = WIDTH * _stencil(d)

        def at(some: Indices, v: Vector) -> Vector:
            """(s, K) log-densities at v (s, K, d)."""
            inner = self.shifted(points[some], v)
            value = self.inner_values(inner.reshape(-1, inner.shape[2]), nodes).reshape(v.shape[:2])
            return np.asarray(value - 0.5 * (v**2).sum(axis=2))

        mode, root = np.full((S, d), np.nan), np.full((S, d, d), np.nan)
        left, v, B = np.arange(S), np.zeros((S, d)), np.tile(FIRST * np.eye(d), (S, 1, 1))
        level = at(left, v[:, np.newaxis])[:, 0]
        for _ in range(SEARCH_STEPS):
            around = at(left, v[:, np.newaxis] + np.einsum("sik,ck->sci", B, stencil))
            good = np.isfinite(level) & np.isfinite(around).all(axis=1)
            left, v, level, B = left[good], v[good], level[good], B[good]
            slope, H = _differences(level, around[good], WIDTH, d)
            curved, axes = np.linalg.eigh(H)
            seen = (curved > 1 / SETTLED) & (curved < SETTLED)
            scale = np.maximum(curved, LEAST) ** -0.5
            t = scale * np.einsum("sik,si->sk", axes, slope)
            B = np.einsum("sij,sjk,sk->sik", B, axes, scale)
            step = np.einsum("sik,sk->si", B, t)
            near = seen.all(axis=1) & ((t**2).sum(axis=1) < NEAR**2)
            mode[left[near]], root[left[near]] = (v + step)[near], B[near]
            left, v, level, step, B = left[~near], v[~near], level[~near], step[~near], B[~near]
            if not len(left):
                break
            new = at(left, (v + step)[:, np.newaxis])[:, 0]
            for _ in range(HALVINGS):
                worse = ~(new >= level)
                if not worse.any():
                    break
                step[worse] /= 2
                new[worse] = at(left[worse], (v + step)[worse, np.newaxis])[:, 0]
            step[~(new >= level)] = 0.0
            v, level = v + step, np.where(new >= level, new, level)
        return mode, root

    def client_nodes_at(self, points: Vector, nodes: int, outer: tuple[Vector, Vector]) -> tuple[Vector, Vector, Vector]:
        """Returns the nodes of the client's effect at the points, with their terms and the kernels' points. Returns (S, K, d)
        nodes; (S, K) the part of their terms beside the groups' integrals: the value is the logarithm of the sum of the terms'
        exponentials; (S K, P_inner) points of the kernels."""
        t, log_w = outer
        mode, root = self.client_mode(points, nodes)
        v = mode[:, np.newaxis] + np.einsum("sab,kb->ska", root, t)
        with np.errstate(invalid="ignore"):  # NaN where the mode is not found
            log_det = np.log(np.abs(np.linalg.det(root)))
        log_weights = log_w + 0.5 * (t**2).sum(axis=1) - 0.5 * (v**2).sum(axis=2) + log_det[:, np.newaxis]
        inner = self.shifted(points, v)
        return v, log_weights, inner.reshape(-1, inner.shape[2])

    def _integrals(self, points: Vector, nodes: int, outer: tuple[Vector, Vector]) -> Vector:
        _, log_weights, inner = self.client_nodes_at(points, nodes, outer)
        return log_sum(log_weights + self.inner_values(inner, nodes).reshape(log_weights.shape))

    def _curvature_of(self, point: Vector, nodes: int) -> tuple[float, Vector, Vector]:
        """The curvature at one point, by Louis (1982), with the client's effect as missing data: d log p(y, v | xi) / d xi is the
        kernels' gradient, carried through the shift."""
        layout = self.layout
        v, log_weights, inner = self.client_nodes_at(point, nodes, rule(self.client_nodes(nodes), len(layout.client)))
        f, g, H = self.inner_curvature(inner, nodes)
        terms = log_weights[0] + f
        value = float(log_sum(terms))
        weight = np.exp(terms - value)
        factor, columns, signs = layout.factor(point, "client")[0], layout.client_columns, layout.client_signs
        J = np.zeros((len(f), layout.size, inner.shape[1]))
        J[:, layout.kernel_at, np.arange(inner.shape[1])] = 1.0
        for e, i, k, derivative in layout.derivatives("client", factor):
            J[:, e, columns[i]] = signs[i] * v[0, :, k] * derivative
        D = np.einsum("kij,kj->ki", J, g)
        M = np.einsum("kia,kab,kjb->kij", J, H, J)
        logs = [e for e in layout.diagonal if e >= layout.client_at.start]
        M[:, logs, logs] -= D[:, logs]
        mean = weight @ D
        around = D - mean
        return value, mean, np.einsum("k,kij->ij", weight, M) - (around.T * weight) @ around


def _pairs(d: int) -> list[tuple[int, int]]:
    return [(i, k) for i in range(d) for k in range(i)]


def _stencil(d: int) -> Vector:
    """(2 d + d (d - 1) / 2, d) where values are wanted for differences: up and down each axis, and up two at once."""
    axes = np.eye(d)
    pairs = [axes[i] + axes[k] for i, k in _pairs(d)]
    return np.concatenate([axes, -axes, np.reshape(pairs, (len(pairs), d))])


def _differences(level: Vector, around: Vector, width: float, d: int) -> tuple[Vector, Vector]:
    """The gradient (s, d) and minus the Hessian (s, d, d) of a function, by differences.

    It is known at 0 (s,), and around it at the stencil times `width`.
    """
    up, down, both = around[:, :d], around[:, d : 2 * d], around[:, 2 * d :]
    H = np.zeros((len(level), d, d))
    H[:, range(d), range(d)] = 2 * level[:, np.newaxis] - up - down
    for e, (i, k) in enumerate(_pairs(d)):
        H[:, i, k] = H[:, k, i] = up[:, i] + up[:, k] - both[:, e] - level
    return (up - down) / (2 * width), H / width**2


# Finds the mode of one client's own posterior: of its log-likelihood and a prior, and no other client --------------------


STEPS, MODE_HALVINGS = 100, 30
SURE = 0.1  # of a step: values by a rule are no longer exact enough to judge it
MODE_NEAR = 1e-4  # of a step, in standard deviations: the mode is missed by half its square, in nats


def alone(rows: Rows) -> Rows:
    """Returns the same rows without an effect of the client: its differences from others are then in its coefficients."""
    return replace(rows, layout=replace(rows.layout, client=()))


class Likelihood(Protocol):
    """Describes a client's log-likelihood."""

    def curvature(self, points: Vector, nodes: int) -> tuple[Vector, Vector, Vector]:
        """Returns (c,) log-likelihoods at points (c, P), gradients (c, P) and minus Hessians (c, P, P)."""


class Density(Protocol):
    """Describes a prior."""

    def curvature(self, xi: Vector) -> tuple[float, Vector, Vector]:
        """Returns the log-density at xi (P,), its gradient (P,), and minus its Hessian (P, P)."""


def find_mode(rows: Likelihood, prior: Density, start: Vector, nodes: int) -> tuple[Vector, Vector] | None:
    """Returns the mode (P,) and the inverse of minus the Hessian there (P, P), by Newton's steps; None where none is found."""

    def at(xi: Vector) -> tuple[float, Vector, Vector]:
        value, gradient, curved = rows.curvature(xi[np.newaxis], nodes)
        log_prior, slope, more = prior.curvature(xi)
        return float(value[0]) + log_prior, gradient[0] + slope, curved[0] + more

    xi = start
    value, gradient, curved = at(xi)
    for _ in range(STEPS):
        if not np.isfinite(value):
            return None
        # In units of its own curvature each coordinate counts alike; directions of negative curvature are climbed as if positive.
        scale = 1 / np.sqrt(np.maximum(np.abs(np.diagonal(curved)), 1e-12))
        w, V = np.linalg.eigh(curved * scale * scale[:, np.newaxis])
        along = V.T @ (scale * gradient)
        size = np.maximum(np.abs(w), 1e-6)
        length = float(np.sqrt((along**2 / size).sum()))
        if w[0] > 0 and length < MODE_NEAR:
            return xi, (scale[:, np.newaxis] * V / w) @ (V.T * scale)
        step = scale * (V @ (along / size))
        for _ in range(MODE_HALVINGS):
            new = at(xi + step)
            if length < SURE or new[0] >= value - 1e-9 * (1 + abs(value)):
                break
            step = step / 2
        else:
            return None
        xi, (value, gradient, curved) = xi + step, new
    return None
