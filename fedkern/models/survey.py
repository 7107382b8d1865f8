"""Weighs the rows of a survey: their pseudo-likelihood, and the covariance of its maximum over samples like this one.

Row i of a sample stands for w_i of a population. sum_i w_i log p(y_i | xi) estimates the population's log-likelihood, and with a
prior makes a pseudo-posterior. Its maximum is right, its width is not: over samples of the design the maximum has the covariance
A^-1 B A^-1, with A minus the second derivatives of the log-posterior there, and B the covariance of the score, by the sums of
w_i d log p / d xi over clusters that were drawn independently (of each stratum about their mean). Draws are moved by the linear
map that gives them this covariance and moves normal ones least.

Sources: Binder (1983), On the variances of asymptotically normal estimators from complex surveys; Savitsky and Toth (2016),
Bayesian estimation under informative sampling; Williams and Savitsky (2021), Uncertainty estimation for pseudo-Bayesian inference
under complex sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

import numpy as np

from ..arrays import Indices, Vector

FEW = 64  # rows of one weight, of which no fewer are looked for that have the same log-likelihood


class Rows(Protocol):
    """Is a client's rows, without effects of groups."""

    @property
    def size(self) -> int: ...
    @property
    def X(self) -> Vector: ...
    def of_rows(self, index: Indices, *, whole: bool) -> Self: ...
    def weighed(self, point: Vector) -> Vector: ...
    def values(self, points: Vector, nodes: int) -> Vector: ...
    def curvature(self, points: Vector, nodes: int) -> tuple[Vector, Vector, Vector]: ...


class Clusters(NamedTuple):
    """Holds the number of each row's cluster, (n,), and of its stratum, which is of one client and has two clusters or more.

    None: clusters are rows, or those of all clients are of one stratum.
    """

    cluster: Indices | None
    stratum: Indices | None


class Scores(NamedTuple):
    """Holds sums over a client's clusters: how many these are, their scores (P,), products of these (P, P), and its curvature.

    Of clusters in strata products are of scores about the stratum's mean, times n / (n - 1) of its n clusters, and `total` is 0.
    """

    clusters: int
    total: Vector
    products: Vector
    curvature: Vector


@dataclass(frozen=True)
class Pseudo:
    """Holds a client's rows with their weights, in parts of rows with one weight; it is the field of no message."""

    rows: Rows
    parts: tuple[Rows, ...]
    weights: tuple[float, ...]
    of_part: tuple[Indices, ...]

    @classmethod
    def of(cls, rows: Rows, weights: Vector) -> Pseudo:
        """Returns rows with weights (n,); one of 0 counts nowhere."""
        distinct, which = np.unique(weights, return_inverse=True)
        order = np.split(np.argsort(which, kind="stable"), np.cumsum(np.bincount(which, minlength=len(distinct)))[:-1])
        kept = [(w, index) for w, index in zip(distinct.tolist(), order) if w > 0]
        parts = tuple(rows.of_rows(index, whole=len(index) < FEW) for _, index in kept)
        return cls(rows, parts, tuple(w for w, _ in kept), tuple(index for _, index in kept))

    @property
    def size(self) -> int:
        """P, the length of a point."""
        return self.rows.size

    @property
    def X(self) -> Vector:
        """(n, p) the columns of the coefficients, part by part."""
        return np.asarray(self.rows.X[np.concatenate([np.empty(0, np.int64), *self.of_part])])

    def weighed(self, point: Vector) -> Vector:
        """Returns (k, n) the rows' weights in the curvature, part by part."""
        return np.concatenate([w * part.weighed(point) for w, part in zip(self.weights, self.parts)], axis=1)

    def values(self, points: Vector, nodes: int) -> Vector:
        """Returns (S,) log-likelihoods of the points (S, P)."""
        value = np.zeros(len(points))
        for w, part in zip(self.weights, self.parts):
            value += w * part.values(points, nodes)
        return value

    def curvature(self, points: Vector, nodes: int) -> tuple[Vector, Vector, Vector]:
        """Returns (c,) log-likelihoods of points (c, P), gradients (c, P) and minus Hessians (c, P, P)."""
        c, P = points.shape
        value, gradient, curved = np.zeros(c), np.zeros((c, P)), np.zeros((c, P, P))
        for w, part in zip(self.weights, self.parts):
            for total, added in zip((value, gradient, curved), part.curvature(points, nodes)):
                total += w * added
        return value, gradient, curved

    def rule(self, points: Vector, nodes: int) -> Vector:
        """Returns (S,) zeros: there is no quadrature."""
        return np.zeros(len(points))

    def scores(self, point: Vector, clusters: Clusters) -> Scores:
        """Returns the sums over clusters of rows at a point (P,)."""
        n, P = len(self.rows.X), self.size
        which = np.arange(n) if clusters.cluster is None else clusters.cluster
        curved = self.curvature(point[np.newaxis], 1)[2][0]
        score, counts = np.zeros((int(which.max(initial=-1)) + 1, P)), np.bincount(which)
        for w, index in zip(self.weights, self.of_part):
            for cluster in np.unique(which[index]):
                of_both = self.rows.of_rows(index[which[index] == cluster], whole=True)
                score[cluster] += w * of_both.curvature(point[np.newaxis], 1)[1][0]
        drawn = counts > 0  # rows of weight 0, of people who were no subject of the question, make a cluster of score 0
        if clusters.stratum is None:
            s = score[drawn]
            return Scores(len(s), s.sum(axis=0), s.T @ s, curved)
        stratum, products = np.zeros(len(score), np.int64), np.zeros((P, P))
        stratum[which] = clusters.stratum
        for h in np.unique(stratum[drawn]):
            s = score[drawn & (stratum == h)]
            off = s - s.mean(axis=0)
            products += len(s) / (len(s) - 1) * (off.T @ off)
        return Scores(int(drawn.sum()), np.zeros(P), products, curved)


def covariance_of_score(of_clients: Sequence[Scores], *, strata: bool) -> Vector:
    """Returns B (P, P) by all clients' sums; without strata all clusters are of scores."""
    products = np.sum([scores.products for scores in of_clients], axis=0)
    if strata:
        return np.asarray(products)
    n, total = sum(scores.clusters for scores in of_clients), np.sum([scores.total for scores in of_clients], axis=0)
    return np.asarray(n / (n - 1) * (products - np.outer(total, total) / n))


def sandwich(of_clients: Sequence[Scores], prior: Vector, *, strata: bool) -> Vector:
    """Returns A^-1 B A^-1 by all clients' sums; `prior`: minus the second derivatives (P, P) of its logarithm."""
    A = prior + np.sum([scores.curvature for scores in of_clients], axis=0)
    half = np.linalg.solve(A, covariance_of_score(of_clients, strata=strata))
    return np.asarray(np.linalg.solve(A, half.T))


def moved(draws: Vector, weights: Vector, covariance: Vector) -> Vector:
    """Returns weighted draws (N, P) with the same mean and another covariance, by the map between normals that moves them least.

    From covariance S to V it is V^1/2 Q S^-1/2, with the orthogonal factor Q of V^1/2 S^1/2: optimal transport (Knott and Smith
    1984), with roots of no product, which would lose levels that only the prior tells apart.
    """
    mean = weights @ draws
    off = draws - mean
    S = (off * weights[:, np.newaxis]).T @ off
    unit = np.sqrt(np.diag(S))  # in sds of the draws, so that units decide nothing
    of_draws, of_design = (_decomposed(C / np.outer(unit, unit)) for C in (S, covariance))
    root, inverse = (_assembled(of_draws, power) for power in (0.5, -0.5))
    wanted = _assembled(of_design, 0.5)
    left, _, right = np.linalg.svd(wanted @ root)
    return np.asarray(mean + (off / unit) @ (wanted @ left @ right @ inverse).T * unit)


def _decomposed(S: Vector) -> tuple[Vector, Vector]:
    """Returns eigenvalues of a covariance, none below 0, and eigenvectors."""
    sizes, vectors = np.linalg.eigh((S + S.T) / 2)
    return np.maximum(sizes, 0.0), vectors


def _assembled(decomposed: tuple[Vector, Vector], power: float) -> Vector:
    sizes, vectors = decomposed
    return np.asarray((vectors * sizes**power) @ vectors.T)
