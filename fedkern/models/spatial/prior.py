"""Defines the dependent priors p(theta | phi) that networks stand in for: variances, covariances and tables of draws.

====== =============================================== ===========
kind   covariance of theta                             phi
====== =============================================== ===========
car    (D - phi W)^-1, D the numbers of neighbours     phi
leroux ((1 - phi) I + phi (D - W))^-1                  phi
bym2   s (D - W)^-, per component; s: the geometric    none
       mean of its variances is 1
bym2   (1 - rho) I + rho times that (`MixedPrior`)     rho
gp     k(|x - x'| / phi), variance 1                   lengthscale
====== =============================================== ===========

Areas without neighbours are N(0, 1), independent of all others (sigma.md, section 3). All have unit scale: that of a map is a
parameter of the model, never of the training (section 9).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np

from ...arrays import Array, Indices
from ...kernels import spatial
from .condition import Condition

Eigen = tuple[Array, Array]  # values (n,), vectors (n, n)

LEAST_SPACINGS = 0.5  # a lengthscale below so many spacings of the points has draws that no network can follow
TABLE_BYTES = 2**27  # tables of more are made of fewer entries
GROUP = 8  # rows of a batch that share phi where draws are solves: eight cost little more than one
MIXING = Condition("rho", 0.0, 0.99, "log-rest")  # of BYM2, uniform; at 1 it has no density
RESIDUAL = 1e-6  # of a Gaussian process's variance, what low-rank factors may leave out


class Prior(ABC):
    """Is a prior of theta (n,) given one hyperparameter."""

    condition: Condition

    @property
    @abstractmethod
    def kind(self) -> str:
        """The name in the table above."""

    @property
    @abstractmethod
    def n(self) -> int:
        """The length of theta."""

    @abstractmethod
    def variances(self, phi: Array) -> Array:
        """Returns variances (m, n) of theta at phi (m,)."""

    @abstractmethod
    def covariance(self, phi: float) -> Array:
        """Returns the covariance (n, n) of theta at phi."""

    @abstractmethod
    def table(self, entries: int, seed: int) -> spatial.DrawTable:
        """Returns draws of theta for phi uniform over the training range, from at most `entries` values of phi."""

    def mean_variance(self) -> Array:
        """Returns variances (n,) of theta under the prior of phi, truncated to the training range (its mean is 0 at every
        phi)."""
        phi, weight = self.condition.quadrature()
        return np.asarray(weight @ self.variances(phi))

    def training_sd(self) -> Array:
        """Returns standard deviations (n,) of theta over the training range, phi uniform, which standardise the networks'
        data."""
        if not self.condition.free:
            return np.asarray(np.sqrt(self.variances(np.zeros(1))[0]))
        x, w = np.polynomial.legendre.leggauss(64)
        lo, hi = self.condition.lo, self.condition.hi
        return np.sqrt((w / 2) @ self.variances(lo + (hi - lo) * (x + 1) / 2))

    def warnings(self) -> tuple[str, ...]:
        """Returns warnings for a user before the training."""
        outside = 1 - self.condition.inside
        if outside < 1e-9:
            return ()
        lo, hi = self.condition.lo, self.condition.hi
        return (f"the prior of {self.condition.name} is truncated to [{lo:g}, {hi:g}]: {outside:.2g} of its mass lies outside",)


@dataclass(frozen=True, eq=False)
class AreaPrior(Prior):
    """Is CAR, Leroux or the spatial part of BYM2 on a map."""

    # indptr, indices: symmetric adjacency without a diagonal
    indptr: Indices
    indices: Indices
    condition: Condition  # of phi; "none" for bym2
    form: Literal["car", "leroux", "bym2"] = "car"  # "car", "leroux" or "bym2"
    known: Eigen | None = field(default=None, repr=False)  # eigenvalues and eigenvectors from an earlier run

    def __post_init__(self) -> None:
        if (self.form == "bym2") == self.condition.free:
            has = "no" if self.form == "bym2" else "a"
            raise ValueError(f"{self.form} has {has} hyperparameter; its condition is {self.condition.name}")

    @property
    def kind(self) -> str:
        return self.form

    @property
    def n(self) -> int:
        return len(self.indptr) - 1

    @property
    def _form(self) -> str:
        """The kernels' name of the form."""
        return "icar" if self.form == "bym2" else self.form

    @cached_property
    def eigen(self) -> Eigen:
        """Eigenvalues and eigenvectors (`spatial.car_eigen`), which cost most, and are kept."""
        if self.known is not None:
            return self.known
        eigen = spatial.car_eigen(self.indptr, self.indices, form=self._form)
        return eigen.values, eigen.vectors

    @cached_property
    def weights(self) -> Array:
        """(n,) The factors of draws from the spectrum."""
        if self.form == "bym2":
            return spatial.icar_scale(*self.eigen, spatial.components(self.indptr, self.indices))
        return spatial.car_weights(self.indptr, form=self.form)

    def variances(self, phi: Array) -> Array:
        return spatial.car_variance(*self.eigen, self.weights, phi, form=self._form)

    def covariance(self, phi: float) -> Array:
        root = self._root(phi)
        return np.asarray(root @ root.T)

    def _root(self, phi: float) -> Array:
        """Returns a factor (n, n) of the covariance, in the eigenvectors' coordinates; columns of zeros for the null space."""
        values, vectors = self.eigen
        precision = spatial.precisions(values, np.array([phi]), self._form)[0]
        sd = np.divide(1.0, np.sqrt(precision), out=np.zeros(self.n), where=precision > 0)
        return np.asarray(self.weights[:, None] * vectors * sd)

    def with_eigen(self, known: Eigen) -> AreaPrior:
        """Returns the same prior with eigenvectors from an earlier run. Raises ValueError: they are not of this size."""
        if known[0].shape != (self.n,) or known[1].shape != (self.n, self.n):
            raise ValueError(f"eigenvectors of {len(known[0])} areas, wanted {self.n}")
        return replace(self, known=known)

    def table(self, entries: int, seed: int) -> spatial.DrawTable:
        ones = np.ones(self.n)
        if not self.condition.free:
            root = self._root(0.0)
            moving = np.ascontiguousarray(root[:, np.any(root != 0, axis=0)])
            return spatial.DrawTable(moving.reshape(1, -1), np.zeros((1, 1)), ones, "dense", moving.shape[1])
        per_entry = 8 * len(spatial.car_analyse(self.indptr, self.indices).indices)
        phi = stratified(self.condition, min(entries, max(TABLE_BYTES // per_entry, GROUP)), seed)
        return spatial.DrawTable.car(self.indptr, self.indices, phi, form=self.form, group=GROUP)


@dataclass(frozen=True, eq=False)
class MixedPrior(Prior):
    """Is BYM2 as a whole: sqrt(1 - rho) v + sqrt(rho) u*, v ~ N(0, I).

    u* is the intrinsic CAR whose variances have geometric mean 1 in each component, and that sums to 0 there; an area alone has
    N(0, 1).
    """

    structured: AreaPrior  # u*
    condition: Condition = MIXING  # of rho

    def __post_init__(self) -> None:
        if self.structured.form != "bym2" or self.condition.name != "rho":
            raise ValueError(f"BYM2 mixes by rho, got {self.structured.form} and {self.condition.name}")

    @property
    def kind(self) -> str:
        return "bym2"

    @property
    def n(self) -> int:
        return self.structured.n

    @cached_property
    def _of_structured(self) -> Array:
        """(n, n) The covariance of u*."""
        return self.structured.covariance(0.0)

    def variances(self, phi: Array) -> Array:
        return np.asarray(1 + phi[:, np.newaxis] * (self._of_structured.diagonal() - 1))

    def covariance(self, phi: float) -> Array:
        out = phi * self._of_structured
        out.flat[:: self.n + 1] += 1 - phi
        return out

    def table(self, entries: int, seed: int) -> spatial.DrawTable:
        rho = stratified(self.condition, min(entries, max(TABLE_BYTES // (8 * self.n**2), 1)), seed)
        roots = np.array([np.linalg.cholesky(self.covariance(float(share))) for share in rho])
        return spatial.DrawTable(roots.reshape(len(rho), -1), rho[:, np.newaxis], np.ones(self.n), "dense", self.n)


def stratified(condition: Condition, n: int, seed: int) -> Array:
    """Returns values (n,) of phi, one at a uniform place in each of n equal parts of the training range."""
    return np.asarray(condition.lo + (condition.hi - condition.lo) * spatial.stratified(n, seed=seed))


@dataclass(frozen=True, eq=False)
class GpPrior(Prior):
    """Is a Gaussian process of variance 1 at given points."""

    x: Array  # (n, p) the points
    condition: Condition  # of the lengthscale
    kernel: str = "rbf"  # "rbf", "matern12", "matern32" or "matern52"

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
        return np.asarray(spatial.gp_covariance(self.x, np.array([phi]), kind=self.kernel)[0])

    @cached_property
    def spacing(self) -> float:
        """The median distance from a point to its nearest neighbour."""
        from scipy.spatial import KDTree

        return float(np.median(np.asarray(KDTree(self.x).query(self.x, k=2)[0])[:, 1])) if self.n > 1 else 0.0

    def warnings(self) -> tuple[str, ...]:
        lo, texts = self.condition.lo, super().warnings()
        if lo >= LEAST_SPACINGS * self.spacing:
            return texts
        text = (
            f"lengthscales from {lo:g} are far below the spacing of the points ({self.spacing:.3g}): there theta is noise from "
            "point to point, which no network of few latents can follow; raise the lower end of prior.lengthscale"
        )
        return (*texts, text)

    def table(self, entries: int, seed: int) -> spatial.DrawTable:
        phi = stratified(self.condition, entries, seed)
        return spatial.DrawTable.gp(self.x, phi, kind=self.kernel, tolerance=RESIDUAL, group=1)
