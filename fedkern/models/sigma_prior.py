"""The dependent priors p(theta | phi) that networks are trained to stand in for: variances, covariances and tables of draws.

====== =============================================== ===========
kind   covariance of theta                             phi
====== =============================================== ===========
car    (D - phi W)^-1, D the numbers of neighbours     phi
leroux ((1 - phi) I + phi (D - W))^-1                  phi
bym2   s (D - W)^-, per component; s: the geometric    none
       mean of its variances is 1
gp     k(|x - x'| / phi), variance 1                   lengthscale
====== =============================================== ===========

Areas without neighbours: in "car" and "bym2" N(0, 1), independent of all others (sigma.md, section 3); in "leroux" of variance
1 / (1 - phi), as its formula says. All have unit scale: the scale of a map is a parameter of the model, never of the training
(section 9).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..kernels import rng, spatial
from .condition import Condition

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Eigen = tuple[Array, Array]  # values (n,), vectors (n, n)

LEAST_SPACINGS = 0.5  # a lengthscale below so many spacings of the points has draws that no network can follow
TABLE_BYTES = 2**27  # tables of more are made of fewer entries
GROUP = 8  # rows of a batch that share phi where draws are solves: eight cost little more than one
RESIDUAL = 1e-6  # the share of a Gaussian process's variance that low-rank factors leave out


class Prior(ABC):
    """A prior of theta (n,) given one hyperparameter."""

    condition: Condition

    @property
    @abstractmethod
    def kind(self) -> str:
        """As in the table above."""

    @property
    @abstractmethod
    def n(self) -> int:
        """Length of theta."""

    @abstractmethod
    def variances(self, phi: Array) -> Array:
        """(m, n) variances of theta at phi (m,)."""

    @abstractmethod
    def covariance(self, phi: float) -> Array:
        """(n, n) covariance of theta at phi."""

    @abstractmethod
    def table(self, entries: int, seed: int) -> spatial.DrawTable:
        """Draws of theta for phi uniform over the training range, from at most `entries` values of phi."""

    def mean_variance(self) -> Array:
        """(n,) variances of theta under the prior of phi, truncated to the training range (its mean is 0 at every phi)."""
        phi, weight = self.condition.quadrature()
        return np.asarray(weight @ self.variances(phi))

    def training_sd(self) -> Array:
        """(n,) standard deviations of theta over the training range, phi uniform: what standardises the networks' data."""
        if not self.condition.free:
            return np.asarray(np.sqrt(self.variances(np.zeros(1))[0]))
        x, w = np.polynomial.legendre.leggauss(64)
        lo, hi = self.condition.lo, self.condition.hi
        return np.sqrt((w / 2) @ self.variances(lo + (hi - lo) * (x + 1) / 2))

    def warnings(self) -> tuple[str, ...]:
        """What a user should know before the training."""
        outside = 1 - self.condition.inside
        if outside < 1e-9:
            return ()
        lo, hi = self.condition.lo, self.condition.hi
        return (f"the prior of {self.condition.name} is truncated to [{lo:g}, {hi:g}]: {outside:.2g} of its mass lies outside",)


@dataclass(frozen=True, eq=False)
class AreaPrior(Prior):
    """CAR, Leroux or the spatial part of BYM2 on a map.

    Attributes
    ----------
    indptr, indices : symmetric adjacency without a diagonal
    condition : of phi; "none" for bym2
    form : "car", "leroux" or "bym2"
    known : eigenvalues and eigenvectors from an earlier run, of the areas that have neighbours (leroux: of all)
    """

    indptr: Index
    indices: Index
    condition: Condition
    form: Literal["car", "leroux", "bym2"] = "car"
    known: Eigen | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if (self.form == "bym2") == self.condition.free:
            raise ValueError(
                f"{self.form} has {'no' if self.form == 'bym2' else 'a'} hyperparameter; its condition is {self.condition.name}"
            )

    @property
    def kind(self) -> str:
        return self.form

    @property
    def n(self) -> int:
        return len(self.indptr) - 1

    @cached_property
    def linked(self) -> Index:
        """The areas that the eigenvectors are about."""
        degrees = np.diff(self.indptr)
        return np.arange(self.n, dtype=np.int64) if self.form == "leroux" else np.flatnonzero(degrees > 0)

    @cached_property
    def graph(self) -> tuple[Index, Index]:
        """indptr and indices of the linked areas."""
        place = np.full(self.n, -1, dtype=np.int64)
        place[self.linked] = np.arange(len(self.linked))
        degrees = np.diff(self.indptr)[self.linked]
        return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(degrees)]), place[self.indices]

    @cached_property
    def degrees(self) -> Array:
        """(k,) numbers of neighbours of the linked areas."""
        return np.diff(self.graph[0]).astype(np.float64)

    @cached_property
    def eigen(self) -> Eigen:
        """Eigenvalues and eigenvectors of D^-1/2 W D^-1/2 (car) or D - W (leroux, bym2); what costs most, and is kept."""
        if self.known is not None:
            return self.known
        return car_eigen(*self.graph, form="icar" if self.form == "bym2" else self.form)

    @cached_property
    def components(self) -> Index:
        """(k,) connected component of each linked area."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import connected_components

        indptr, indices = self.graph
        k = len(self.linked)
        found = connected_components(csr_array((np.ones(len(indices)), indices, indptr), shape=(k, k)), directed=False)
        return np.asarray(found[1], dtype=np.int64)

    def spectrum(self, phi: Array) -> Array:
        """(m, k) variances of the eigenvectors' coefficients."""
        values = self.eigen[0]
        if self.form == "car":
            return np.asarray(1 / (1 - phi[:, None] * values))
        if self.form == "leroux":
            return np.asarray(1 / (1 - phi[:, None] + phi[:, None] * values))
        null = int(self.components.max(initial=-1)) + 1  # the smallest ones: constants of each component
        inverse = np.zeros(len(values))
        order = np.argsort(values)
        inverse[order[null:]] = 1 / values[order[null:]]
        return np.broadcast_to(inverse, (len(phi), len(values)))

    @cached_property
    def areal_scale(self) -> Array:
        """(k,) what multiplies the draws from the spectrum: D^-1/2 (car), 1 (leroux), of BYM2 the scale of each component."""
        if self.form == "car":
            return 1 / np.sqrt(self.degrees)
        if self.form == "leroux":
            return np.ones(len(self.linked))
        vectors = self.eigen[1]
        log_variance = np.log((vectors * vectors) @ self.spectrum(np.zeros(1))[0])
        counts = np.bincount(self.components)
        mean = np.bincount(self.components, weights=log_variance) / counts
        return np.exp(-mean / 2)[self.components]

    def variances(self, phi: Array) -> Array:
        vectors = self.eigen[1]
        found = np.ones((len(phi), self.n))
        found[:, self.linked] = self.spectrum(phi) @ (vectors * vectors).T * self.areal_scale**2
        return found

    def covariance(self, phi: float) -> Array:
        vectors = self.eigen[1] * self.areal_scale[:, None]
        found = np.eye(self.n)
        found[np.ix_(self.linked, self.linked)] = (vectors * self.spectrum(np.array([phi]))[0]) @ vectors.T
        return found

    def with_eigen(self, known: Eigen) -> AreaPrior:
        """The same prior with eigenvectors from an earlier run.

        Raises
        ------
        ValueError
            They are not of this size.
        """
        k = len(self.linked)
        if known[0].shape != (k,) or known[1].shape != (k, k):
            raise ValueError(f"eigenvectors of {len(known[0])} areas, wanted {k}")
        return replace(self, known=known)

    @cached_property
    def precision(self) -> tuple[Array, Index, Index]:
        """The two parts of Q = a + phi b on one pattern (CSC): data (2, nnz), rows, and where columns begin."""
        from scipy.sparse import coo_array

        indptr = self.indptr
        degrees = np.diff(indptr).astype(np.float64)
        rows, diagonal = np.repeat(np.arange(self.n), np.diff(indptr)), np.arange(self.n)
        if self.form == "car":  # D - phi W; D is 1 where there are no neighbours
            parts = (np.maximum(degrees, 1.0), np.zeros(self.n), 0.0, -1.0)
        else:  # (1 - phi) I + phi (D - W)
            parts = (np.ones(self.n), degrees - 1.0, 0.0, -1.0)
        i, j = np.concatenate([diagonal, rows]), np.concatenate([diagonal, self.indices])
        place = coo_array((np.arange(1, len(i) + 1), (i, j)), shape=(self.n, self.n)).tocsc()
        place.sort_indices()
        data = np.concatenate([np.stack(parts[:2]), np.outer(parts[2:], np.ones(len(rows)))], axis=1)
        return data[:, place.data - 1], place.indices.astype(np.int64), place.indptr.astype(np.int64)

    def factors(self, phi: Array) -> tuple[Array, Index, Index, Index]:
        """Cholesky factors L of Q[order][:, order] at phi (T,): values (T, nnz), column starts, rows, order."""
        from scipy.sparse import csc_array
        from scipy.sparse.linalg import splu

        data, rows, starts = self.precision
        options = {"SymmetricMode": True, "Equil": False}
        found: list[tuple[Index, Array]] = []
        orders = []
        for value in phi:
            Q = csc_array((data[0] + value * data[1], rows, starts), shape=(self.n, self.n))
            lu = splu(Q, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)
            diagonal = lu.U.diagonal()
            if not np.array_equal(lu.perm_r, lu.perm_c) or not (diagonal > 0).all():
                raise ValueError(f"{self.form}: the precision at phi = {value:g} is not positive definite")
            L = lu.L.tocsc()
            L.sort_indices()
            column = np.repeat(np.arange(self.n), np.diff(L.indptr))
            found.append((column * self.n + L.indices, L.data * np.sqrt(diagonal)[column]))
            orders.append(lu.perm_c)
        code = np.unique(np.concatenate([codes for codes, _ in found]))
        if any(not np.array_equal(order, orders[0]) for order in orders):
            raise ValueError(f"{self.form}: the ordering of the areas changes with phi")
        values = np.zeros((len(phi), len(code)))
        for t, (codes, entries) in enumerate(found):
            values[t, np.searchsorted(code, codes)] = entries
        ends = np.searchsorted(code, np.arange(self.n + 1) * self.n)
        return values, ends.astype(np.int64), code % self.n, np.argsort(orders[0]).astype(np.int64)

    def table(self, entries: int, seed: int) -> spatial.DrawTable:
        if not self.condition.free:
            vectors = self.eigen[1] * self.areal_scale[:, None] * np.sqrt(self.spectrum(np.zeros(1))[0])
            moving = vectors[:, self.spectrum(np.zeros(1))[0] > 0]
            alone = np.setdiff1d(np.arange(self.n), self.linked)
            factor = np.zeros((self.n, moving.shape[1] + len(alone)))
            factor[self.linked, : moving.shape[1]] = moving
            factor[alone, moving.shape[1] + np.arange(len(alone))] = 1.0
            return spatial.DrawTable(factor.reshape(1, -1), np.zeros((1, 1)), np.ones(self.n), "dense", rank=factor.shape[1])
        few = self.factors(np.array([(self.condition.lo + self.condition.hi) / 2]))
        entries = min(entries, max(TABLE_BYTES // (8 * few[0].shape[1]), GROUP))
        phi = stratified(self.condition, entries, seed)
        values, indptr, indices, order = self.factors(phi)
        return spatial.DrawTable(values, phi[:, None], np.ones(self.n), "sparse", 0, GROUP, indptr, indices, order)


def stratified(condition: Condition, n: int, seed: int) -> Array:
    """(n,) values of phi, one at a uniform place in each of n equal parts of the training range."""
    u = rng.uniform(n, key=rng.key(seed, "prior_entries", 1))
    return np.asarray(condition.lo + (condition.hi - condition.lo) * (np.arange(n) + u) / n)


@dataclass(frozen=True, eq=False)
class GpPrior(Prior):
    """A Gaussian process of variance 1 at given points.

    Attributes
    ----------
    x : (n, p) the points
    condition : of the lengthscale
    kernel : "rbf", "matern12", "matern32" or "matern52"
    """

    x: Array
    condition: Condition
    kernel: str = "rbf"

    def __post_init__(self) -> None:
        if self.x.ndim != 2 or not len(self.x) or not np.isfinite(self.x).all():
            raise ValueError(f"a Gaussian process needs points (n, p), finite; got shape {self.x.shape}")
        if len(np.unique(self.x, axis=0)) < len(self.x):
            raise ValueError("a Gaussian process needs different points; two are the same")
        if self.condition.name != "lengthscale":
            raise ValueError(f"a Gaussian process has a lengthscale; its condition is {self.condition.name}")

    @property
    def kind(self) -> str:
        return "gp"

    @property
    def n(self) -> int:
        return len(self.x)

    def variances(self, phi: Array) -> Array:
        return np.ones((len(phi), self.n))

    def covariance(self, phi: float) -> Array:
        return gp_covariance(self.x, phi, kind=self.kernel)

    @cached_property
    def spacing(self) -> float:
        """The median distance from a point to its nearest neighbour."""
        from scipy.spatial import KDTree

        return float(np.median(np.asarray(KDTree(self.x).query(self.x, k=2)[0])[:, 1])) if self.n > 1 else 0.0

    def warnings(self) -> tuple[str, ...]:
        lo, found = self.condition.lo, super().warnings()
        if lo >= LEAST_SPACINGS * self.spacing:
            return found
        text = (
            f"lengthscales from {lo:g} are far below the spacing of the points ({self.spacing:.3g}): there theta is noise from "
            "point to point, which no network of few latents can follow; raise the lower end of prior.lengthscale"
        )
        return (*found, text)

    def table(self, entries: int, seed: int) -> spatial.DrawTable:
        phi = stratified(self.condition, entries, seed)
        vectors, rank = [], 1
        for value in phi:
            values, U = np.linalg.eigh(self.covariance(float(value)))
            values = np.maximum(values[::-1], 0.0)
            left = 1 - np.cumsum(values) / values.sum()
            rank = max(rank, int(np.argmax(left <= RESIDUAL)) + 1)
            vectors.append(U[:, ::-1] * np.sqrt(values))
        factors = np.stack([F[:, :rank] for F in vectors])
        return spatial.DrawTable(factors.reshape(len(phi), -1), phi[:, None], np.ones(self.n), "dense", rank)


def car_eigen(indptr: Index, indices: Index, *, form: str) -> Eigen:
    """Eigenvalues and eigenvectors of D^-1/2 W D^-1/2 (car; at most 1) or of D - W (leroux, icar; at least 0)."""
    from scipy.linalg import eigh

    degrees = np.diff(indptr).astype(np.float64)
    n = len(degrees)
    W = np.zeros((n, n))
    W[np.repeat(np.arange(n), np.diff(indptr)), indices] = 1.0
    if form == "car":
        values, vectors = eigh(W / np.sqrt(np.outer(degrees, degrees)), overwrite_a=True)
        return np.minimum(values, 1.0), vectors
    values, vectors = eigh(np.diag(degrees) - W, overwrite_a=True)
    return np.maximum(values, 0.0), vectors


def gp_covariance(x: Array, lengthscale: float, *, kind: str) -> Array:
    """(n, n) covariance of a Gaussian process of variance 1."""
    r = np.sqrt(np.sum((x[:, None] - x[None]) ** 2, axis=2)) / lengthscale
    if kind == "rbf":
        return np.asarray(np.exp(-(r**2) / 2))
    s = {"matern12": 1.0, "matern32": 3**0.5, "matern52": 5**0.5}[kind] * r
    more = {"matern12": 0.0, "matern32": s, "matern52": s + s**2 / 3}[kind]
    return np.asarray((1 + more) * np.exp(-s))
