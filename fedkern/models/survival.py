"""One client of a Cox model: its partial log-likelihood, and what only it may know, its own baseline hazards.

Strata of clients are never at risk together, so that the partial likelihood of all is the product of the clients'. With a normal
prior of the coefficients it makes a posterior: the limit of that of a gamma process of the baseline hazard whose prior loses all
weight (Kalbfleisch 1978; Sinha, Ibrahim and Chen 2003). There the hazard's increments at the times of events, given the
coefficients, are gamma variables: of one row that has its event Gamma(1, sum over who is at risk).

Source: docs/methods/likelihood.md, section 9.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv

from ..kernels import survival as kernels
from .mixed.layout import Layout

Vector = NDArray[np.float64]
Indices = NDArray[np.int64]

BLOCK = 4_000_000  # numbers of rows and draws at once


@dataclass(frozen=True)
class Rows:
    """What a client holds, in the order of `kernels.arranged`; it is the field of no message.

    Attributes
    ----------
    layout : of the points, which are coefficients alone
    X : (n, p) columns of the coefficients
    time, event : (n,) when each row ends, and whether that is by its event
    strata : (n,) numbers of the client's own strata
    sets : what kernels take beside the rows
    weights, offset : (n,) or None
    n_threads : of the kernels
    """

    layout: Layout
    X: Vector
    time: Vector
    event: NDArray[np.bool_]
    strata: Indices
    sets: kernels.Arranged
    weights: Vector | None = None
    offset: Vector | None = None
    n_threads: int = 1

    @classmethod
    def of(
        cls,
        layout: Layout,
        X: Vector,
        time: Vector,
        event: NDArray[np.bool_],
        entry: Vector | None = None,
        strata: Indices | None = None,
        weights: Vector | None = None,
        offset: Vector | None = None,
        n_threads: int = 1,
    ) -> Rows:
        """Rows in any order; one that weighs nothing is left out."""
        if weights is not None and (weights == 0).any():
            there = weights != 0
            entry, strata, weights, offset = (None if one is None else one[there] for one in (entry, strata, weights, offset))
            X, time, event = X[there], time[there], event[there]
        sets = kernels.arranged(time, event, entry, strata)
        order = sets.order
        strata = np.zeros(len(time), np.int64) if strata is None else strata
        if weights is not None and (weights == 1).all():
            weights = None
        weights, offset = (None if one is None else np.ascontiguousarray(one[order]) for one in (weights, offset))
        X = np.ascontiguousarray(X[order], np.float64)
        return cls(layout, X, time[order], event[order], strata[order], sets, weights, offset, n_threads)

    def __len__(self) -> int:
        return len(self.X)

    @property
    def size(self) -> int:
        """P, the length of a point."""
        return self.layout.size

    @property
    def events(self) -> int:
        """How many rows have their event."""
        return int(self.sets.deaths.sum())

    def values(self, points: Vector, nodes: int) -> Vector:
        """(S,) partial log-likelihoods of the points (S, P); nothing is integrated out, so that `nodes` say nothing."""
        return kernels.cox_values(points, *self._rows, n_threads=self.n_threads)

    def curvature(self, points: Vector, nodes: int) -> tuple[Vector, Vector, Vector]:
        """(c,) the same, gradients (c, P) and minus Hessians (c, P, P)."""
        value, gradient, lower = kernels.cox_curvature(points, *self._rows, n_threads=self.n_threads)
        p = self.size
        curved = np.empty((len(points), p, p))
        i, k = np.tril_indices(p)
        curved[:, i, k] = curved[:, k, i] = lower
        return value, gradient, curved

    def rule(self, points: Vector, nodes: int) -> Vector:
        """(S,) zeros: there is no quadrature."""
        return np.zeros(len(points))

    @property
    def _rows(self) -> tuple[Vector, Vector | None, Vector | None, Indices, Indices, Indices, Indices | None]:
        sets = self.sets
        return self.X, self.weights, self.offset, sets.first, sets.ends, sets.deaths, sets.until

    def at_risk(self, k: int) -> Indices:
        """Rows at risk at set k."""
        found = np.arange(self.sets.first[k], self.sets.ends[k])
        return found if self.sets.until is None else found[self.sets.until[found] > k]

    def predictor(self, points: Vector) -> Vector:
        """(S, n) at points (S, P)."""
        eta: Vector = points @ self.X.T
        return eta if self.offset is None else eta + self.offset

    @property
    def mean_row(self) -> tuple[Vector, float]:
        """(p,) the client's average covariates, and the average of its offset."""
        w = np.ones(len(self)) if self.weights is None else self.weights
        mean = np.asarray(w @ self.X / w.sum())
        return mean, 0.0 if self.offset is None else float(w @ self.offset / w.sum())


class Baseline(NamedTuple):
    """Of each time of an event: its stratum, how many events and rows at risk there are, and of the cumulative hazard of a row
    with the client's average covariates, and of the probability to be without event for longer, mean and 95 % interval over the
    posterior.

    Attributes
    ----------
    stratum, events, at_risk : (k,)
    time : (k,) rising within a stratum
    hazard, survival : (3, k) mean, 2.5 % and 97.5 %
    """

    stratum: Indices
    time: Vector
    events: Indices
    at_risk: Indices
    hazard: Vector
    survival: Vector


def baseline(rows: Rows, draws: Vector, uniform: Vector) -> Baseline:
    """The client's own baseline hazards, given draws (S, P) of the posterior.

    At each draw the increments of all events of a time are Gamma(mean weight, the sum over who is at risk) variables, ties by
    Efron's rule, whose means are Breslow's. `uniform` (S, k): what they are drawn by.
    """
    sets, (mean, offset) = rows.sets, rows.mean_row
    k = len(sets.ends)
    weight = np.ones(len(rows)) if rows.weights is None else rows.weights
    increments = np.empty((len(draws), k))
    for part in _pieces(len(draws), BLOCK // max(len(rows), 1)):
        eta = rows.predictor(draws[part]) - (draws[part] @ mean + offset)[:, np.newaxis]
        e = weight * np.exp(eta)
        for at in range(k):
            dying = slice(int(sets.ends[at] - sets.deaths[at]), int(sets.ends[at]))
            total, own = e[:, rows.at_risk(at)].sum(axis=1), e[:, dying].sum(axis=1)
            d = int(sets.deaths[at])
            each = float(weight[dying].mean())
            rates = total[:, np.newaxis] - np.arange(d) / d * own[:, np.newaxis]
            means = each * (1 / rates).sum(axis=1)
            shape = each * d
            increments[part, at] = means / shape * gammaincinv(shape, uniform[part, at])
    order = np.lexsort((rows.time[sets.ends - 1], rows.strata[sets.ends - 1]))
    stratum, time = rows.strata[sets.ends - 1][order], rows.time[sets.ends - 1][order]
    hazard = increments[:, order]
    for one in np.unique(stratum):
        hazard[:, stratum == one] = np.cumsum(hazard[:, stratum == one], axis=1)
    at_risk = np.array([len(rows.at_risk(at)) for at in order], np.int64)
    return Baseline(stratum, time, sets.deaths[order], at_risk, _summary(hazard), _summary(np.exp(-hazard)))


def _summary(values: Vector) -> Vector:
    return np.stack([values.mean(axis=0), *np.quantile(values, (0.025, 0.975), axis=0)])


def _pieces(n: int, most: int) -> Iterator[slice]:
    size = max(1, most)
    return (slice(at, min(at + size, n)) for at in range(0, n, size))
