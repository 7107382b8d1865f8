"""Models one client of a Cox model whose groups have effects (frailties): its partial log-likelihood, these integrated out.

    L(beta, s) = log of the integral of exp(l(beta, s u) - u'u / 2) over u, one number of each group, over (2 pi)^(G / 2)

l is the partial log-likelihood, with ties by Efron's rule, of predictors x'beta + s u_g. Who is at risk with whom ties all groups
together: they are integrated together, as groups that cross are (`mixed.joint`).

Source: docs/spec/likelihood.md, section 9; Ripatti and Palmgren (2000) have the same integral by Laplace's approximation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from ..arrays import Indices, Vector
from ..kernels import survival as kernels
from . import survival
from .expfam import unpacked
from .mixed.effects import Effects, summarised
from .mixed.joint import Factor, Given, Together
from .mixed.layout import Layout
from .own import differences


@dataclass(frozen=True)
class Rows:
    """Holds a client's rows and their groups; it is the field of no message.

    Attributes
    ----------
    layout : of the points
    plain : the rows without groups
    codes : (n,) the number of each row's group, in the order of `plain`
    n_groups : some of which may have no rows
    key : of the numbers by which effects are integrated
    """

    layout: Layout
    plain: survival.Rows
    codes: Indices
    n_groups: int
    key: int

    @classmethod
    def of(cls, layout: Layout, plain: survival.Rows, codes: Indices, weights: Vector | None, key: int) -> Self:
        """Makes it of rows, with the group of each, and its weight, as they were before they were put into an order."""
        kept = codes if weights is None else codes[weights != 0]
        return cls(layout, plain, kept[plain.sets.order], int(codes.max(initial=-1)) + 1, key)

    def __len__(self) -> int:
        return len(self.plain)

    @property
    def size(self) -> int:
        """P, the length of a point."""
        return self.layout.size

    @property
    def X(self) -> Vector:
        """(n, p) the columns of the coefficients."""
        return self.plain.X

    together = True

    @property
    def units(self) -> Indices:
        """(2,) the client's rows, which are one."""
        return self.plain.units

    def of_units(self, part: slice) -> Self:
        """Returns all rows."""
        return self

    def weighed(self, point: Vector) -> Vector:
        """Returns (1, n) the rows' weights at a point (P,), without effects."""
        return self.plain.weighed(point[: self.layout.p])

    @cached_property
    def integral(self) -> Integral:
        """The integral over all effects."""
        return Integral(self)

    def values(self, points: Vector, nodes: int) -> Vector:
        """Returns (S,) log-likelihoods at points (S, P), by so many draws."""
        return self.integral.values(points, nodes)

    def curvature(self, points: Vector, nodes: int) -> tuple[Vector, Vector, Vector]:
        """Returns (c,) log-likelihoods, gradients (c, P) and minus Hessians (c, P, P)."""
        if not self.plain.events:  # of what says nothing differences have no step
            return np.zeros(len(points)), np.zeros(points.shape), np.zeros((*points.shape, self.size))
        return differences.curvature(lambda some: self.values(some, nodes), points)

    def rule(self, points: Vector, nodes: int) -> Vector:
        """Returns (S,) how far the errors of values, by the halves of the draws, are from their mean."""
        found = self.integral.halves(points, nodes)
        return np.asarray(found - found.mean())

    @property
    def Z(self) -> Vector:
        """(n, G) which group each row is of."""
        return np.eye(self.n_groups)[self.codes]

    def completed(self, draws: Vector, uniform: Vector) -> Completed:
        """Returns the rows with effects drawn given them at draws (S, P), which `uniform` (S, R) choose."""
        effect = self.integral.sample(draws, uniform)["group"]
        beta, mean = draws[:, : self.layout.p], self.Z.mean(axis=0)
        points = np.hstack([beta, effect[:, 0, :, 0]])
        layout = Layout((*self.layout.coefficients, *(f"group {g}" for g in range(self.n_groups))), "cox")
        X, centre = np.hstack([self.X, self.Z - mean]), np.append(self.plain.centre, mean)
        offset = effect[..., 0].mean(axis=(0, 1))[self.codes]
        fixed = replace(self.plain, offset=offset if self.plain.offset is None else self.plain.offset + offset)
        with_effects = replace(self.plain, layout=layout, X=np.ascontiguousarray(X), centre=centre)
        return Completed(summarised(effect), with_effects, points, fixed)


@dataclass(frozen=True)
class Completed:
    """Holds a client's rows with their groups' effects.

    Attributes
    ----------
    effects : of the groups
    rows, points : with effects as coefficients, and draws of all of these
    fixed : with the effects' means in the offset
    """

    effects: Effects
    rows: survival.Rows
    points: Vector
    fixed: survival.Rows


class Integral(Together):
    """Integrates the effects of one client's groups."""

    def __init__(self, rows: Rows):
        super().__init__(rows, [Factor("group", np.ones((len(rows), 1)), rows.codes, rows.n_groups)], exact=False)
        self.rows, self.Z = rows, rows.Z

    def given(self, point: Vector) -> Given:
        """Returns the partial log-likelihood at a point (1, P)."""
        plain, scale = self.rows.plain, self.layout.factor(point, "group")[0, 0, 0]
        sets, eta = plain.sets, plain.predictor(point[:, : self.layout.p])[0]
        arrays = (self.Z, plain.weights, eta, sets.first, sets.ends, sets.deaths, sets.until)

        def values(u: Vector) -> Vector:
            return kernels.cox_values(scale * u.T, *arrays, n_threads=plain.n_threads)

        def derivatives(u: Vector) -> tuple[Vector, Vector]:
            _, slope, lower = kernels.cox_curvature(scale * u[np.newaxis], *arrays, n_threads=plain.n_threads)
            return scale * slope[0], scale**2 * unpacked(lower, self.q)[0]

        return Given(lambda u: float(values(u[:, np.newaxis])[0]), derivatives, values)
