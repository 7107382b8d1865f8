"""The true models, which do not factorise over clients: theta has its CAR, Leroux or Gaussian-process prior, in one place.

    phi ~ p(phi),  theta | phi ~ N(0, C(phi)),  y ~ p(y | eta),  eta = o + b + x' beta + sigma_theta theta_i,  i the row's area

What a model with a trained prior is judged by: `CarModel` for samplers and variational inference, and, where y is Gaussian and
eta = theta_i, the exact posterior (`exact_areas`, `exact_process`), with phi and an unknown error standard deviation integrated
out by quadrature. Source: docs/spec/sigma.md, sections 3, 4 and 7.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.sparse.linalg import splu
from scipy.special import expit, logit, ndtr

from fedkern.errors import NumericalError
from fedkern.kernels import spatial
from fedkern.models.likelihood import HALF_LOG_TAU, Likelihood, half_normal
from fedkern.models.spatial.condition import Condition
from fedkern.models.spatial.site import Layout, Rows

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Index = NDArray[np.int64]
Form = Literal["car", "leroux"]

NEGLIGIBLE = 36.0  # nats below its maximum where a density is not integrated
PROBE = 21  # places at a time where it is looked at first
LOG_SD = (-12.0, 4.0)  # range of an unknown error standard deviation's logarithm
WIDE = 8.5  # standard deviations of the prior of logit phi that are integrated over


@dataclass(frozen=True, eq=False)
class Areas:
    """The precision Q(phi) of theta on a map: D - phi W ("car"), or (1 - phi) I + phi (D - W) ("leroux").

    Attributes
    ----------
    indptr, indices : symmetric adjacency W in CSR form, without a diagonal: see `kernels.spatial`, also on areas that are alone
    form : "car" or "leroux"
    eigenvalues : `kernels.spatial.car_eigen(..).values`, where they are known already
    """

    indptr: Index
    indices: Index
    form: Form = "car"
    eigenvalues: Vector | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        spatial.check_graph(self.indptr, self.indices, name="Areas")

    @property
    def n(self) -> int:
        return len(self.indptr) - 1

    def precision(self, phi: float) -> Any:
        """Q, sparse."""
        return sparse.csc_array(spatial.car_precision(self.indptr, self.indices, phi, form=self.form))

    @cached_property
    def spectrum(self) -> Vector:
        """(n,) eigenvalues of D^-1/2 W D^-1/2, or of D - W; without the eigenvectors, which take five times as long."""
        if self.eigenvalues is not None:
            return self.eigenvalues
        W, d = spatial.adjacency(self.indptr, self.indices).toarray(), spatial.diagonal(self.indptr)
        if self.form == "car":
            return np.minimum(np.linalg.eigvalsh(W / np.sqrt(d[:, np.newaxis] * d)), 1.0)
        return np.maximum(np.linalg.eigvalsh(np.diag(d) - W), 0.0)

    def log_det(self, lo: float, hi: float) -> spatial.LogDet:
        """log det Q for phi in [lo, hi]."""
        return spatial.logdet_table(self.spectrum, self.indptr, form=self.form, lo=lo, hi=hi)

    def log_density(self, theta: Matrix, phi: Vector, log_det: spatial.LogDet) -> tuple[Vector, Matrix, Vector]:
        """log p(theta | phi) of m draws (m, n), and its derivatives in theta (m, n) and phi (m,)."""
        phi = np.clip(phi, log_det.lo, log_det.hi)  # rounding apart it is there
        table = log_det.coefficients
        return spatial.car_logdensity(np.ascontiguousarray(theta), phi, self.indptr, self.indices, table, **log_det.options)


@dataclass(frozen=True)
class CarModel:
    """log p(y, theta | xi) of all rows, u = theta: a `models.hierarchical.LocalModel` for one party that holds everything.

    xi is laid out as in `models.spatial.site` without latent variables (`layout.n_global` is 0), and has the prior `SigmaPrior`.

    Attributes
    ----------
    areas, condition, layout, likelihood, rows
    """

    areas: Areas
    condition: Condition
    layout: Layout
    likelihood: Likelihood
    rows: Rows

    def __post_init__(self) -> None:
        if self.layout.n_global or self.layout.mixing:
            raise ValueError("car: the true model has no latent variables and no mixing; lay out xi with n_global = 0")

    @cached_property
    def log_det(self) -> spatial.LogDet:
        """log det Q over the range of phi."""
        return self.areas.log_det(self.condition.lo, self.condition.hi)

    @cached_property
    def _of_area(self) -> Any:
        """(n, rows) sums over the rows of each area."""
        area = self.rows.area
        return sparse.csr_array((np.ones(len(area)), (area, np.arange(len(area)))), shape=(self.areas.n, len(area)))

    @property
    def n_global(self) -> int:
        return self.layout.size

    @property
    def size(self) -> int:
        return self.areas.n

    def log_joint_grad(self, xi: Vector, u: Vector) -> tuple[float, Vector, Vector]:
        value, g_xi, g_u = self.log_joint_grads(xi[np.newaxis], u[np.newaxis])
        return float(value[0]), g_xi[0], g_u[0]

    def log_joint_grads(self, xi: Matrix, u: Matrix) -> tuple[Vector, Matrix, Matrix]:
        """The same of m draws: xi (m, P), u (m, n)."""
        parts, rows, like = self.layout.parts, self.rows, self.likelihood
        phi, dphi = self.condition.at(xi[:, 0] if self.layout.free else np.zeros(len(xi)))
        value, g_u, by_phi = self.areas.log_density(u, phi, self.log_det)
        scale, theta = self.layout.scale(xi), u[:, rows.area]
        g_xi = np.zeros(xi.shape)
        if self.layout.free:
            g_xi[:, 0] = by_phi * dphi
        eta = rows.offset + xi[:, parts["beta"]] @ rows.X.T + scale[:, np.newaxis] * theta
        if self.layout.intercept:
            eta = eta + xi[:, parts["intercept"]]
        log_sd = xi[:, -1:] if self.layout.dispersed else np.zeros((len(xi), 1))
        value += like.value(rows.y, eta, log_sd, rows.trials).sum(axis=1)
        slope = like.slope(rows.y, eta, log_sd, rows.trials)
        if self.layout.dispersed:
            g_xi[:, -1] = like.slope_scale(rows.y, eta, log_sd).sum(axis=1)
        g_u += scale[:, np.newaxis] * (self._of_area @ slope.T).T
        g_xi[:, parts["beta"]] = slope @ rows.X
        g_xi[:, parts["intercept"]] = slope.sum(axis=1, keepdims=True)
        g_xi[:, parts["log_scale"]] = (scale * np.einsum("mi,mi->m", slope, theta))[:, np.newaxis]
        return value, g_xi, g_u


# The exact posterior of theta + Gaussian noise --------------------


@dataclass(frozen=True)
class Exact:
    """A posterior that is a mixture of normals over nodes of (phi, sd); phi = lo + (hi - lo) sigmoid(x).

    Attributes
    ----------
    x, phi, sd, weight : (g,) nodes, and their posterior weights
    means, variances : (g, n) of theta at each node; no variances where none were asked for
    log_evidence : log p(y)
    """

    x: Vector
    phi: Vector
    sd: Vector
    weight: Vector
    means: Matrix = field(repr=False)
    variances: Matrix | None = field(repr=False)
    log_evidence: float

    @property
    def mean(self) -> Vector:
        """(n,) E[theta | y]."""
        return self.weight @ self.means

    @property
    def variance(self) -> Vector:
        """(n,) Var[theta | y]."""
        if self.variances is None:
            raise ValueError("exact: computed without variances")
        return self.weight @ (self.variances + (self.means - self.mean) ** 2)

    def quantile(self, p: float) -> Vector:
        """(n,) quantiles of theta."""
        if self.variances is None:
            raise ValueError("exact: computed without variances")
        sd = np.sqrt(self.variances)
        low, high = (self.means - 10 * sd).min(axis=0), (self.means + 10 * sd).max(axis=0)
        for _ in range(60):
            middle = 0.5 * (low + high)
            above = self.weight @ ndtr((middle - self.means) / sd) > p
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        out: Vector = 0.5 * (low + high)
        return out


@dataclass(frozen=True)
class _Hyper:
    """phi as quadrature sees it: logit phi, or phi itself where its prior is uniform; densities are smooth over `span`."""

    condition: Condition

    @property
    def logit(self) -> bool:
        return self.condition.hyperprior.kind == "logit-normal"

    @property
    def span(self) -> tuple[float, float]:
        c, h = self.condition, self.condition.hyperprior
        if not self.logit:
            return c.lo, c.hi
        wide = WIDE * float(np.sqrt(h.variance))
        low = max(float(logit(c.lo)), h.mean - wide) if c.lo > 0 else h.mean - wide
        return low, min(float(logit(c.hi)), h.mean + wide)

    def phi(self, v: float) -> float:
        return float(expit(v)) if self.logit else v

    def log_prior(self, v: float) -> float:
        c, h = self.condition, self.condition.hyperprior
        if not self.logit:
            return -float(np.log(c.hi - c.lo))
        return -0.5 * (v - h.mean) ** 2 / h.variance - float(HALF_LOG_TAU + 0.5 * np.log(h.variance) + np.log(c.inside))

    def nodes(self, density: Callable[[float], float], n: int) -> tuple[Vector, Vector]:
        """(k,) values of phi, and logarithms of (weight times prior density), where `density(phi)` is of the rest."""
        if not self.condition.free:
            return self.condition.at(np.zeros(1))[0], np.zeros(1)
        v, weight = _nodes(lambda at: self.log_prior(at) + density(self.phi(at)), n, self.span)
        return np.array([self.phi(at) for at in v]), np.log(weight) + np.array([self.log_prior(at) for at in v])


def _nodes(density: Callable[[float], float], n: int, span: tuple[float, float]) -> tuple[Vector, Vector]:
    """Gauss-Legendre nodes and weights where a log-density is not negligible: looked for in narrower and narrower ranges."""
    low, high = span
    for _ in range(12):
        grid = np.linspace(low, high, PROBE)
        values = np.array([density(float(at)) for at in grid])
        seen = np.flatnonzero(values > values.max() - NEGLIGIBLE)
        first, last = grid[max(seen[0] - 1, 0)], grid[min(seen[-1] + 1, PROBE - 1)]
        done = last - first > 0.6 * (high - low)
        low, high = float(first), float(last)
        if done:
            break
    at, weight = np.polynomial.legendre.leggauss(n)
    return low + (high - low) * (at + 1) / 2, (high - low) / 2 * weight


def _sums(rows: tuple[Vector, Index], n: int) -> tuple[Vector, Vector, float]:
    """Number, sum and sum of squares of the y of each area: (n,), (n,), all areas together."""
    y, area = rows
    count, total = (np.asarray(np.bincount(area, weights=w, minlength=n), np.float64) for w in (np.ones_like(y), y))
    return count, total, float(y @ y)


def _lu(A: Any) -> Any:
    """Factors P A P' = L U of a symmetric positive definite sparse matrix, U = D L' with D its diagonal."""
    lu = splu(A, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    if not np.array_equal(lu.perm_r, lu.perm_c) or not (lu.U.diagonal() > 0).all():
        raise NumericalError("car: the precision of theta is not positive definite")
    return lu


def _inverse_diagonal(lu: Any, Z: Matrix) -> Vector:
    """Diagonal of A^-1, by Takahashi's recursion over the pattern of L from its last column to its first; `Z` (n, n) is for its
    use, and nothing is read there before it is written."""
    L, D = lu.L.tocsc(), lu.U.diagonal()
    for j in range(len(D) - 1, -1, -1):
        here = slice(L.indptr[j], L.indptr[j + 1])
        rows, values = L.indices[here], L.data[here]
        below = rows > j
        rows, values = rows[below], values[below]
        column = -(Z[rows[:, np.newaxis], rows] @ values)
        Z[rows, j] = Z[j, rows] = column
        Z[j, j] = 1 / D[j] - values @ column
    out: Vector = Z.diagonal()[lu.perm_c]  # of area i: row perm_c[i]
    return out


def exact_areas(
    areas: Areas, condition: Condition, y: Vector, area: Index, sd: float, *, n_nodes: int = 161, variances: bool = True
) -> Exact:
    """The posterior of theta and phi where y = theta[area] + N(0, sd^2).

    Parameters
    ----------
    areas, condition : the prior of theta given phi, and of phi
    y, area : (r,) rows, and the area of each; areas may have several rows, or none
    sd : error standard deviation
    n_nodes : of the quadrature over logit phi, or over phi where its prior is uniform
    variances : whether to compute them: some 30 ms a node for 2,000 areas, and n^2 numbers of memory

    Returns
    -------
    Exact
        A = Q(phi) + diag(rows of each area) / sd^2, E[theta | y, phi] = A^-1 s / sd^2, s the sums of y by area.
    """
    count, total, square = _sums((y, area), areas.n)
    b = total / sd**2

    def at(phi: float) -> tuple[float, Any, Vector]:
        """log p(y | phi), the factor of A, and E[theta | y, phi]."""
        Q = areas.precision(phi)
        lu = _lu(sparse.csc_array(Q + sparse.diags_array(count / sd**2)))
        mean = lu.solve(b)
        value = 0.5 * float(np.log(_lu(Q).U.diagonal()).sum() - np.log(lu.U.diagonal()).sum())
        value += 0.5 * float(b @ mean) - 0.5 * square / sd**2 - len(y) * float(HALF_LOG_TAU + np.log(sd))
        return value, lu, mean

    phi, log_weight = _Hyper(condition).nodes(lambda value: at(value)[0], n_nodes)
    values, means, spreads = np.empty(len(phi)), np.empty((len(phi), areas.n)), np.empty((len(phi), areas.n))
    Z = np.empty((areas.n, areas.n) if variances else (0, 0))
    for k, node in enumerate(phi):
        values[k], lu, means[k] = at(float(node))
        if variances:
            spreads[k] = _inverse_diagonal(lu, Z)
    return _mixture(condition, phi, np.full(len(phi), sd), values + log_weight, means, spreads if variances else None)


def exact_process(
    covariance: Callable[[float], Matrix],
    condition: Condition,
    y: Vector,
    area: Index,
    sd: float | None = None,
    *,
    n_nodes: int = 61,
    n_sd_nodes: int = 61,
) -> Exact:
    """The same for a dense covariance, such as that of a Gaussian process; `area` counts its points.

    Parameters
    ----------
    covariance : (n, n) of theta at a value of phi
    condition, y, area : see `exact_areas`
    sd : error standard deviation; None: sd ~ HalfNormal(1), integrated out as well
    n_nodes, n_sd_nodes : of the quadratures over phi (or its logit) and log sd
    """
    n = len(covariance(float(condition.at(np.zeros(1))[0][0])))
    count, total, square = _sums((y, area), n)
    seen = np.flatnonzero(count)
    count, mean_y = count[seen], total[seen] / count[seen]
    within = square - float(count @ mean_y**2)

    def at(K: Matrix, log_sd: float) -> tuple[float, Matrix, Vector]:
        """log p(y | phi, sd), the factor of the covariance of the areas' means, and what is left of them."""
        noise = float(np.exp(2 * log_sd))
        factor, _ = cho_factor(K[np.ix_(seen, seen)] + np.diag(noise / count), lower=True)
        z = solve_triangular(factor, mean_y, lower=True)
        value = -0.5 * float(z @ z) - float(np.log(np.diag(factor)).sum()) - 0.5 * within / noise
        value -= len(y) * float(HALF_LOG_TAU) + 0.5 * float(np.log(count).sum()) + (len(y) - len(seen)) * log_sd
        return value, factor, cho_solve((factor, True), mean_y)

    def over_sd(phi: float) -> float:
        """The largest density over a few values of sd."""
        K, grid = covariance(phi), np.linspace(-6, 3, PROBE) if sd is None else [np.log(sd)]
        return max(at(K, float(w))[0] for w in grid)

    phi, log_weight = _Hyper(condition).nodes(over_sd, n_nodes)
    covariances = [covariance(float(node)) for node in phi]
    log_sd, log_sd_weight = np.array([np.log(sd or 1.0)]), np.zeros(1)
    if sd is None:
        few = covariances[:: max(len(phi) // 9, 1)]
        log_sd, weight = _nodes(lambda w: max(at(K, w)[0] for K in few) + half_normal(w)[0], n_sd_nodes, LOG_SD)
        log_sd_weight = np.log(weight) + np.array([half_normal(float(w))[0] for w in log_sd])
    values, means, spreads = [], [], []
    for more, K in zip(log_weight, covariances):
        to_seen = K[:, seen]
        for w, own in zip(log_sd, log_sd_weight):
            value, factor, solved = at(K, float(w))
            half = solve_triangular(factor, to_seen.T, lower=True)
            values.append(value + more + own)
            means.append(to_seen @ solved)
            spreads.append(np.maximum(K.diagonal() - (half**2).sum(axis=0), 1e-300))
    again, sds = np.repeat(phi, len(log_sd)), np.tile(np.exp(log_sd), len(phi))
    return _mixture(condition, again, sds, np.array(values), np.array(means), np.array(spreads))


def _mixture(condition: Condition, phi: Vector, sd: Vector, log_weight: Vector, means: Matrix, variances: Matrix | None) -> Exact:
    most = float(log_weight.max())
    weight = np.exp(log_weight - most)
    x = logit((phi - condition.lo) / (condition.hi - condition.lo)) if condition.free else np.zeros(len(phi))
    return Exact(x, phi, sd, weight / weight.sum(), means, variances, most + float(np.log(weight.sum())))
