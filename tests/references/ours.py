"""What fedkern computes of the rows of lung.csv: each function is a row of conventions.toml."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import optimize

import fedkern
from fedkern.algorithms.exchanges.sums import PearsonSums
from fedkern.arrays import Vector
from fedkern.data.rounded import join_rounded
from fedkern.kernels import mixed, multinomial, sem, spatial, survival
from fedkern.kernels.families import FAMILIES
from fedkern.labels import in_order
from fedkern.models import glm, psis
from fedkern.models.formula.factors import b_spline, natural, polynomial, quantiles
from fedkern.models.likelihood import Likelihood
from fedkern.models.mixed.layout import Layout
from fedkern.models.spatial.checks import Moran, moran
from fedkern.models.split import predictive
from fedkern.models.survival import Rows, concordance, cumulative
from fedkern.privacy.accountant import Mechanism
from fedkern.privacy.moments import rdp_epsilon
from fedkern.results import diagnostics
from fedkern.results.dispersion import pool
from fedkern.results.weighted import Draws

FOLDER = Path(__file__).parent
ROWS = pd.read_csv(FOLDER / "lung.csv")
CHAINS = pd.read_csv(FOLDER / "chains.csv")
BETA = np.array([0.3, -0.5])
OURS: dict[str, Callable[[], float]] = {}
PAIRS = np.array([(1, 2), (2, 3), (3, 4), (4, 1), (2, 4), (5, 6), (6, 7), (7, 8), (8, 5), (4, 5)]) - 1


def row(function: Callable[[], float]) -> Callable[[], float]:
    """Registers a function under its name, with hyphens."""
    OURS[function.__name__.replace("_", "-")] = function
    return function


def column(name: str) -> Vector:
    return ROWS[name].to_numpy(np.float64)


A, FEMALE = (column("age") - 60) / 10, column("female")
X, DESIGN = np.column_stack([A, FEMALE]), np.column_stack([np.ones(60), A, FEMALE])
EVENT, MONTH = column("event") == 1, column("month")
LEVEL = np.minimum(column("ecog"), 2)
SUCCESSES, TRIALS = column("karno") / 10, column("trials")


# --- Cox


def cox(X: Vector, beta: Vector, time: Vector = MONTH, entry: Vector | None = None, **options: Vector) -> float:
    """Returns the partial log-likelihood at `beta`."""
    strata = options.get("strata")
    rows = survival.arranged(time, EVENT, entry, strata)
    weights, offset = (options[name][rows.order] if name in options else None for name in ("weights", "offset"))
    return float(survival.cox_values(beta[np.newaxis], X[rows.order], weights, offset, *rows[1:])[0])


@row
def cox_ties() -> float:
    return cox(X, BETA)


@row
def cox_entry() -> float:
    return cox(X, BETA, entry=column("entry"))


@row
def cox_weights() -> float:
    return cox(X, BETA, weights=column("weight"))


@row
def cox_strata() -> float:
    return cox(X, BETA, strata=np.unique(ROWS.ward, return_inverse=True)[1])


@row
def cox_offset() -> float:
    return cox(X[:, :1], BETA[:1], offset=0.1 * column("ecog"))


@row
def cox_timefix() -> float:
    nearly = np.where(np.arange(1, 61) % 2 == 0, (MONTH + 0.3) / 10 - 0.03, MONTH / 10)
    return cox(X, BETA, join_rounded((), nearly)[0])


def cox_rows(entry: Vector | None = None) -> Rows:
    return Rows.of(Layout(("a", "female"), "cox"), X, MONTH, EVENT, entry)


@row
def cox_baseline() -> float:
    rows, share = cox_rows(), (np.arange(20_000) + 0.5) / 20_000
    uniform = np.repeat(share[:, np.newaxis], len(rows.sets.ends), axis=1)  # what each increment is drawn by
    drawn = cumulative(rows, np.repeat(BETA[np.newaxis], len(share), axis=0), uniform, np.array([MONTH.max()]))
    return float(drawn.mean())


@row
def cox_concordance() -> float:
    pairs, right = concordance(cox_rows(), BETA)
    return right / pairs


@row
def cox_concordance_entry() -> float:
    pairs, right = concordance(cox_rows(column("entry")), BETA)
    return right / pairs


@row
def cox_ridge() -> float:
    age = column("age")[:, np.newaxis]
    penalised = lambda b: -cox(age, np.array([b])) + b**2 / 2  # noqa: E731
    return float(optimize.minimize_scalar(penalised, bracket=(0.0, 0.01), tol=1e-12).x)


# --- families


def best(
    family: str,
    y: Vector,
    start: Vector,
    rows: Vector = DESIGN,
    trials: Vector | None = None,
    upper: Vector | None = None,
    entry: Vector | None = None,
    groups: Vector | None = None,
    cuts: Vector | None = None,
) -> tuple[Vector, float]:
    """Returns the mode of a likelihood, and its logarithm there."""
    order = np.arange(len(y)) if groups is None else np.argsort(groups, kind="stable")
    Z = np.empty((len(y), 0)) if groups is None else np.ones((len(y), 1))
    starts = np.array([0, len(y)])
    if groups is not None:
        starts = np.concatenate([[0], np.cumsum(np.unique(groups, return_counts=True)[1])])
    trials, upper, entry = (None if v is None else v[order] for v in (trials, upper, entry))

    def minus(points: Vector) -> Vector:
        return -mixed.values(
            np.atleast_2d(points), rows[order], Z, y[order], trials, None, starts, upper, cuts, entry, family=family, nodes=25
        )

    def slope(point: Vector) -> Vector:
        steps = 1e-5 * np.eye(len(point))
        ahead, behind = minus(point + steps), minus(point - steps)
        return np.asarray((ahead - behind) / 2e-5)

    found = optimize.minimize(lambda point: float(minus(point)[0]), start, jac=slope, method="BFGS", options={"gtol": 1e-7})
    return found.x, -float(found.fun)


def weibull() -> tuple[Vector, float]:
    return best("weibull", MONTH, np.array([-3.0, 0, 0, 0]), upper=np.where(EVENT, MONTH, np.inf))


@row
def weibull_shape() -> float:
    return float(np.exp(weibull()[0][3]))


@row
def weibull_slope() -> float:
    return float(weibull()[0][1])


@row
def weibull_loglik() -> float:
    return weibull()[1]


@row
def weibull_entry_loglik() -> float:
    return best("weibull", MONTH, np.array([-3.0, 0, 0, 0]), upper=np.where(EVENT, MONTH, np.inf), entry=column("entry"))[1]


@row
def interval_loglik() -> float:
    return best("weibull", MONTH, np.array([-3.0, 0, 0, 0]), upper=np.where(EVENT, MONTH + 1, np.inf))[1]


@row
def piecewise_loglik() -> float:
    upper = np.where(EVENT, MONTH, np.inf)
    return best("piecewise", MONTH, np.array([0.0, 0, -3, -3, -3]), X, upper=upper, cuts=np.array([6.0, 12.0]))[1]


@row
def gaussian_loglik() -> float:
    return best("gaussian", column("meal") / 100, np.array([9.0, 0, 0, 1.0]))[1] - 60 * np.log(100)


@row
def gaussian_sigma() -> float:
    return float(np.exp(best("gaussian", column("meal") / 100, np.array([9.0, 0, 0, 1.0]))[0][3]) * 100)


@row
def bernoulli_loglik() -> float:
    return best("bernoulli", EVENT.astype(float), np.zeros(3))[1]


@row
def binomial_loglik() -> float:
    return best("binomial", SUCCESSES, np.zeros(3), trials=TRIALS)[1]


@row
def poisson_loglik() -> float:
    return best("poisson", column("loss"), np.array([2.0, 0, 0]))[1]


@row
def dispersion() -> float:
    point = best("poisson", column("loss"), np.array([2.0, 0, 0]))[0]
    rows = glm.Rows(DESIGN, column("loss"), np.zeros(60))
    sums = PearsonSums(0, *glm.pearson_sums(rows, point, "poisson", 1.0, np.inf))
    pooled = pool("poisson", 1.0, [sums], used=3)
    assert pooled is not None
    return pooled.ratio


def gamma() -> tuple[Vector, float]:
    return best("gamma", column("meal") / 100, np.array([2.0, 0, 0, 1.0]))


@row
def gamma_shape() -> float:
    return float(np.exp(gamma()[0][3]))


@row
def gamma_loglik() -> float:
    return gamma()[1] - 60 * np.log(100)


def negative_binomial() -> tuple[Vector, float]:
    return best("negative-binomial", column("loss"), np.array([2.0, 0, 0, 1.0]))


@row
def negative_binomial_r() -> float:
    return float(negative_binomial()[0][3] ** -2)


@row
def negative_binomial_loglik() -> float:
    return negative_binomial()[1]


@row
def negative_binomial_limit() -> float:
    return float(FAMILIES["negative-binomial"].value(np.array([3.0]), np.array([np.log(2.0)]), 1e15, None)[0])


@row
def beta_loglik() -> float:
    return best("beta", (column("karno") - 1) / 100, np.array([1.0, 0, 0, 2.0]))[1]


def ordinal(family: str = "ordinal") -> tuple[Vector, float]:
    return best(family, LEVEL, np.array([0.0, 0, -0.5, 0.5]), X)


@row
def ordinal_slope() -> float:
    return float(ordinal()[0][0])


@row
def ordinal_threshold() -> float:
    return float(ordinal()[0][2])


@row
def ordinal_gap() -> float:
    return float(ordinal()[0][3])


@row
def ordinal_loglik() -> float:
    return ordinal()[1]


@row
def ordinal_probit_loglik() -> float:
    return ordinal("ordinal-probit")[1]


def several() -> tuple[Vector, float]:
    def minus(point: Vector) -> float:
        return -float(multinomial.values(point[np.newaxis], DESIGN, LEVEL, levels=3)[0])

    def slope(point: Vector) -> Vector:
        steps = 1e-5 * np.eye(6)
        ahead, behind = (multinomial.values(point + step, DESIGN, LEVEL, levels=3) for step in (steps, -steps))
        return np.asarray((behind - ahead) / 2e-5)

    found = optimize.minimize(minus, np.zeros(6), jac=slope, method="BFGS", options={"gtol": 1e-7})
    return found.x, -float(found.fun)


@row
def multinomial_slope() -> float:
    return float(several()[0][1])


@row
def multinomial_loglik() -> float:
    return several()[1]


def zero_inflated() -> tuple[Vector, float]:
    return best("zero-inflated-poisson", column("loss"), np.array([2.0, 0, 0, -1.0]))


@row
def zero_inflated_loglik() -> float:
    return zero_inflated()[1]


@row
def zero_inflated_share() -> float:
    return float(1 / (1 + np.exp(-zero_inflated()[0][3])))


@row
def zero_inflated_nb_loglik() -> float:
    return best("zero-inflated-negative-binomial", column("loss"), np.array([2.0, 0, 0, 1.0, -1.0]))[1]


@row
def mixed_quadrature() -> float:
    wards = np.unique(ROWS.ward, return_inverse=True)[1]
    point, _ = best("binomial", SUCCESSES, np.array([1.0, 0, -1.0]), DESIGN[:, :2], TRIALS, groups=wards)
    return float(np.exp(point[2]))


@row
def agq_loglik() -> float:
    wards = np.unique(ROWS.ward, return_inverse=True)[1]
    return best("binomial", SUCCESSES, np.array([1.0, 0, -1.0]), DESIGN[:, :2], TRIALS, groups=wards)[1]


@row
def lmer_loglik() -> float:
    wards = np.unique(ROWS.ward, return_inverse=True)[1]
    _, value = best("gaussian", column("meal") / 100, np.array([9.0, 0, 0.5, 1.0]), DESIGN[:, :2], groups=wards)
    return value - 60 * np.log(100)


# --- columns


@row
def scale_divisor() -> float:
    job = {"job": {"method": "likelihood"}, "model": {"family": "gaussian", "formula": "meal ~ age"}}
    result = fedkern.run(job, data={"a": ROWS[:30], "b": ROWS[30:]})
    (age,) = result.summary["encoding"]["columns"]
    return float(age["scale"])


def fit(columns: Vector) -> Vector:
    """Returns least-squares coefficients of meal, of an intercept and these columns."""
    return np.linalg.lstsq(np.column_stack([np.ones(60), columns]), column("meal"), rcond=None)[0]


def fitted(columns: Vector) -> float:
    return float(np.concatenate([[1.0], columns[0]]) @ fit(columns))


@row
def poly() -> float:
    age = column("age")
    return fitted(polynomial(age, 2, age.mean(), age.std()))


@row
def poly_slope() -> float:
    age = column("age")
    return float(fit(polynomial(age, 2, age.mean(), age.std()))[1])


@row
def ns_knots() -> float:
    return fitted(natural(column("age"), (58.0, 66.0), (45.0, 80.0), anchored=True))


@row
def bs_knots() -> float:
    return float(fit(b_spline(column("age"), (58.0, 66.0), (45.0, 80.0), 3, whole=False))[1])


@row
def ns_df() -> float:
    age = column("age")
    return float(quantiles(2, age.mean(), age.std(), None)[0])


@row
def factor_order() -> float:
    return 1.0 + in_order(["b", "A", "a", "B"]).index("a")


@row
def quantile() -> float:
    return Draws({"draw": chains()}).parameters()["draw"]["q05"]


# --- diagnostics


def chains() -> Vector:
    return CHAINS.draw.to_numpy().reshape(4, 50)


@row
def rhat() -> float:
    return float(diagnostics.rhat_ess(chains())[0])


@row
def ess_bulk() -> float:
    return float(diagnostics.rhat_ess(chains())[1])


@row
def ess_short() -> float:
    return float(diagnostics.rhat_ess(chains()[:, :8])[1])


@row
def mcse_mean() -> float:
    return float(diagnostics.mean_error(chains()))


@row
def psis_k() -> float:
    return psis.smoothed(CHAINS.ratio.to_numpy())[1]


# --- maps and privacy


def ages() -> Moran:
    found = moran(column("age")[:8], PAIRS)
    assert found is not None
    return found


def _index() -> float:
    return ages().index


OURS["moran"] = _index


@row
def moran_sd() -> float:
    return ages().sd


@row
def icar_scale() -> float:
    """The geometric mean of variances in a row of three areas, beside a pair: what the weights make 1."""
    indptr, indices = np.array([0, 1, 3, 4, 5, 6]), np.array([1, 0, 2, 1, 4, 3])
    eigen = spatial.car_eigen(indptr, indices, form="icar")
    return float(spatial.icar_scale(eigen.values, eigen.vectors, spatial.components(indptr, indices))[0] ** -2)


def neighbours() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    both = np.concatenate([PAIRS, PAIRS[:, ::-1]])
    both = both[np.lexsort((both[:, 1], both[:, 0]))]
    return np.searchsorted(both[:, 0], np.arange(9)), np.ascontiguousarray(both[:, 1])


def density_of_map(form: str) -> float:
    """The log density of eight areas' values at phi = 0.6."""
    indptr, indices = neighbours()
    logdet = spatial.logdet_table(spatial.car_eigen(indptr, indices, form=form).values, indptr, form=form)
    theta, phi = A[np.newaxis, :8], np.array([0.6])
    return float(spatial.car_logdensity(theta, phi, indptr, indices, logdet.coefficients, **logdet.options)[0][0])


@row
def car_logdensity() -> float:
    return density_of_map("car")


@row
def leroux_logdensity() -> float:
    return density_of_map("leroux")


@row
def matern_covariance() -> float:
    return float(spatial.gp_covariance(np.array([[0.0], [1.0]]), np.array([0.7]), kind="matern32")[0, 0, 1])


@row
def sem_loglik() -> float:
    Y = np.ascontiguousarray(X.T)[np.newaxis]
    return float(sem.log_density(Y, np.array([[[0.0, 0.4], [0.3, 0.0]]]), np.array([[0.8, 0.5]]))[0])


@row
def averaged_probability() -> float:
    """The probability of an event where the predictor is normal, as `vertical` foresees a row."""
    likelihood = Likelihood("bernoulli")
    return float(np.exp(predictive.log_density(likelihood, np.array([1.0]), np.array([0.4]), np.array([1.3]))[0]))


@row
def epsilon_sampled() -> float:
    step = Mechanism(sampling="poisson", sampling_rate=0.02, clip=1.0, dimension=4, noise_multiplier=1.0)
    return step.epsilon(500, 1e-5)


@row
def epsilon_rdp() -> float:
    return rdp_epsilon(0.02, 1.0, 500, 1e-5)


@row
def epsilon_gaussian() -> float:
    return Mechanism(sampling="full", clip=1.0, dimension=4, noise_multiplier=2.0).epsilon(1, 1e-5)
