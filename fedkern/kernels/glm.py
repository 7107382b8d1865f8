"""Generalised linear models: log-likelihood, ELBO, expectations under a Gaussian posterior, clipped sums, predictions.

One row (x, y) has a = x'theta + offset and log p(y | a), normalised in y:

=========== ================== ==========================================
family      y                  E[y | a]
=========== ================== ==========================================
"bernoulli" 0 or 1             1 / (1 + exp(-a))
"poisson"   0, 1, 2, ..        exp(a)
"gaussian"  real               a, with standard deviation `scale`
=========== ================== ==========================================

The posterior is q = N(mu, diag(exp(2 log_sigma))) or, where `log_sigma` is a (d, d) matrix, N(mu, L L') with L its lower triangle. X may
have any strides and may be a memory map larger than the memory: it is read once, in blocks of rows, and never copied. Weights multiply
a row's log-likelihood.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._registry import F64, FLOATS, Array, Kernel

Real = NDArray[np.float64] | NDArray[np.float32]
Vector = NDArray[np.float64]

FAMILIES = {"bernoulli": 0, "poisson": 1, "gaussian": 2}
METHODS = {"probit": 0, "quadrature": 1}
CLIPPED_ESTIMATORS = {"analytic": 0}
ELBO_ESTIMATORS = {"analytic": 2}

_RESPONSES = (*FLOATS, *map(np.dtype, ("int64", "int32", "int8", "uint8", "bool")))
_X = Array("X", ("n", "d"))
_Y = Array("y", ("n",), _RESPONSES)
_MU = Array("mu", ("d",), F64)
_LOG_SIGMA = Array("log_sigma", ("d",), F64)
_FACTOR = Array("log_sigma", ("d", "d"), F64)
_COLUMNS = (Array("offset", ("n",), FLOATS, optional=True), Array("weights", ("n",), FLOATS, optional=True))
_ROWS = Array("rows", ("b",), (np.dtype("int64"),), optional=True)

LOGLIK_GRAD = Kernel(
    "glm.loglik_grad",
    purpose="Log-likelihood of all rows and its gradient in theta.",
    source="dp-pvi.md, section 1",
    inputs=(_X, _Y, Array("theta", ("d",), F64), *_COLUMNS),
    outputs=(Array("grad", ("d",), F64),),
    backends=("cpp", "reference"),
)
ELBO_GRAD = Kernel(
    "glm.elbo_grad",
    purpose="Evidence lower bound of a mean-field posterior and its gradient in (mu, log sigma).",
    source="dp-pvi.md, sections 2 and 3",
    inputs=(_X, _Y, _MU, _LOG_SIGMA, Array("prior_shift", ("d",), F64), Array("prior_precision", ("d",), F64), *_COLUMNS),
    outputs=(Array("grad_mu", ("d",), F64), Array("grad_log_sigma", ("d",), F64)),
    backends=("cpp", "reference"),
)
EXPECTATIONS = Kernel(
    "glm.expectations",
    purpose="E log p(y | a) of every row and of its first two derivatives in a, under a mean-field posterior.",
    source="dp-pvi.md, section 3.1",
    inputs=(_X, _Y, _MU, _LOG_SIGMA, *_COLUMNS),
    outputs=(Array("value", ("n",), F64), Array("slope", ("n",), F64), Array("curvature", ("n",), F64)),
    backends=("cpp", "reference"),
)
EXPECTATIONS_FULL = Kernel(
    "glm.expectations_full",
    purpose="The same under a full-rank posterior.",
    source="dp-pvi.md, sections 3.1 and 3.5",
    inputs=(_X, _Y, _MU, _FACTOR, *_COLUMNS),
    outputs=EXPECTATIONS.outputs,
    backends=("cpp", "reference"),
    function="expectations",
)
CLIPPED_GRAD_SUM = Kernel(
    "glm.clipped_grad_sum",
    purpose="Sum over rows of the clipped gradients of E log p(y_i | x_i'theta) in (mu, log sigma).",
    source="dp-pvi.md, sections 3.1 and 4",
    inputs=(_X, _Y, _MU, _LOG_SIGMA, _ROWS, *_COLUMNS),
    outputs=(Array("total", ("2*d",), (np.dtype("float64"), np.dtype("int64"))),),
    backends=("cpp", "reference"),
)
PREDICT = Kernel(
    "glm.predict",
    purpose="Predictive mean of every row under a mean-field posterior.",
    source="dp-pvi.md, section 13",
    inputs=(_X, _MU, _LOG_SIGMA, _COLUMNS[0]),
    outputs=(Array("mean", ("n",), F64),),
    backends=("cpp", "reference"),
)
PREDICT_FULL = Kernel(
    "glm.predict_full",
    purpose="Predictive mean of every row under a full-rank posterior.",
    source="dp-pvi.md, section 13",
    inputs=(_X, _MU, _FACTOR, _COLUMNS[0]),
    outputs=PREDICT.outputs,
    backends=("cpp", "reference"),
    function="predict",
)


def _choice(kernel: str, name: str, value: str, choices: dict[str, int]) -> int:
    if value not in choices:
        raise ValueError(f"{kernel}: {name} must be {' or '.join(map(repr, choices))}, got {value!r}")
    return choices[value]


def _family(kernel: str, family: str, scale: float) -> tuple[int, float]:
    code = _choice(kernel, "family", family, FAMILIES)
    if not 0 < scale < np.inf:
        raise ValueError(f"{kernel}: scale must be positive and finite, got {scale}")
    if scale != 1 and family != "gaussian":
        raise ValueError(f"{kernel}: scale is the standard deviation of the gaussian family; {family} has none, got {scale}")
    return code, float(scale)


def _full(log_sigma: Any) -> bool:
    return getattr(log_sigma, "ndim", 1) == 2


def loglik_grad(
    X: Real,
    y: NDArray[Any],
    theta: Vector,
    *,
    family: str,
    offset: Real | None = None,
    weights: Real | None = None,
    scale: float = 1.0,
    out: Vector | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> tuple[float, Vector]:
    """Log-likelihood of all rows and its gradient.

    Parameters
    ----------
    X : (n, d) array, float32 or float64
    y : (n,) array of any plain type
        See the module; a value that the family does not have makes the result NaN, as does NaN anywhere else.
    theta : (d,) float64 array
    family : "bernoulli", "poisson" or "gaussian"
    offset, weights : (n,) arrays, optional
    scale : float
        Standard deviation of the gaussian family.
    out : (d,) float64 array, optional
        Receives the gradient.

    Returns
    -------
    loglik : float
        sum_i weights_i log p(y_i | x_i'theta + offset_i), constants included.
    grad : (d,) float64 array
        With X in float32, theta is rounded to float32, and sums of at most 64 rows are in float32: relative errors are below 1e-6.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, an unknown family, a `scale` that is not positive or that the family does not have.
    """
    code, scale = _family("glm.loglik_grad", family, scale)
    *arrays, grad = LOGLIK_GRAD.prepare({"X": X, "y": y, "theta": theta, "offset": offset, "weights": weights}, out)
    loglik = LOGLIK_GRAD.implementation(backend, arrays)(*arrays, code, scale, grad, n_threads)
    return float(loglik), grad


def elbo_grad(
    X: Real,
    y: NDArray[Any],
    mu: Vector,
    log_sigma: Vector,
    *,
    family: str,
    key: int | None = None,
    prior_shift: float | Vector = 0.0,
    prior_precision: float | Vector = 1.0,
    draws: int = 1,
    estimator: str = "analytic",
    offset: Real | None = None,
    weights: Real | None = None,
    scale: float = 1.0,
    client: int = 0,
    step: int = 0,
    out: tuple[Vector, Vector] | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> tuple[float, Vector, Vector]:
    """Evidence lower bound of the posterior, and its gradient."""
    name = "glm.elbo_grad"
    code, scale = _family(name, family, scale)
    kind = _choice(name, "estimator", estimator, ELBO_ESTIMATORS)
    d = len(mu)
    inputs = {
        "X": X,
        "y": y,
        "mu": mu,
        "log_sigma": log_sigma,
        "prior_shift": _per_coordinate(prior_shift, d),
        "prior_precision": _per_coordinate(prior_precision, d),
        "offset": offset,
        "weights": weights,
    }
    *arrays, grad_mu, grad_log_sigma = ELBO_GRAD.prepare(inputs, out)
    elbo = ELBO_GRAD.implementation(backend, arrays)(
        *arrays, code, scale, kind, draws, key or 0, client, step, grad_mu, grad_log_sigma, n_threads
    )
    return float(elbo), grad_mu, grad_log_sigma


def _per_coordinate(value: float | Vector, d: int) -> Any:
    return value if isinstance(value, np.ndarray) and value.ndim else np.full(d, value, np.float64)


def expectations(
    X: Real,
    y: NDArray[Any],
    mu: Vector,
    log_sigma: Vector,
    *,
    family: str,
    offset: Real | None = None,
    weights: Real | None = None,
    scale: float = 1.0,
    out: tuple[Vector, Vector, Vector] | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> tuple[Vector, Vector, Vector]:
    """Expectations of a row's log-likelihood and of its first two derivatives in a, under the posterior.

    Parameters
    ----------
    X : (n, d) array, float32 or float64
    y : (n,) array of any plain type
    mu : (d,) float64 array
    log_sigma : (d,) float64 array, or (d, d) lower Cholesky factor of the covariance
    family, offset, weights, scale : as in `loglik_grad`
    out : tuple of three (n,) float64 arrays, optional

    Returns
    -------
    value, slope, curvature : (n,) float64 arrays
        weights_i E l_i, weights_i E l_i', weights_i E l_i'' with l_i(a) = log p(y_i | a), a ~ N(x_i'mu + offset_i, x_i' Cov x_i). Exact for poisson
        and gaussian; for bernoulli a trapezoid rule with 64 nodes up to a standard deviation of 5 (errors at most 2e-9, 6e-9, 4e-8), beyond it a mixture
        over 96 steps (slope 2e-9, curvature 2e-10). NaN in a row, or a y outside the family's domain, gives NaN in that row.

    Raises
    ------
    TypeError, ValueError
        As `loglik_grad`.
    """
    record = EXPECTATIONS_FULL if _full(log_sigma) else EXPECTATIONS
    code, scale = _family("glm.expectations", family, scale)
    inputs = {"X": X, "y": y, "mu": mu, "log_sigma": log_sigma, "offset": offset, "weights": weights}
    *arrays, value, slope, curvature = record.prepare(inputs, out)
    record.implementation(backend, arrays)(*arrays, code, scale, value, slope, curvature, n_threads)
    return value, slope, curvature


def clipped_grad_sum(
    X: Real,
    y: NDArray[Any],
    mu: Vector,
    log_sigma: Vector,
    *,
    clip: float,
    family: str,
    rows: NDArray[np.int64] | None = None,
    estimator: str = "analytic",
    draws: int = 1,
    key: int | None = None,
    client: int = 0,
    step: int = 0,
    offset: Real | None = None,
    weights: Real | None = None,
    scale: float = 1.0,
    grid: float | None = None,
    noise_multiplier: float = 0.0,
    out: NDArray[Any] | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> tuple[NDArray[Any], int]:
    """Sum over rows of clipped gradients, the private step of DP-PVI."""
    name = "glm.clipped_grad_sum"
    code, scale = _family(name, family, scale)
    kind = _choice(name, "estimator", estimator, CLIPPED_ESTIMATORS)
    if not clip >= 1e-100:
        raise ValueError(f"{name}: clip must be at least 1e-100 (inf: no clipping), got {clip}")
    if grid is not None:
        if not (grid > 0 and clip / grid <= 2**40):
            raise ValueError(f"{name}: grid must be > 0 and at least clip / 2^40, got {grid} with clip = {clip}")
        if out is None:
            out = np.empty(2 * len(mu), np.int64)
    if out is not None and out.dtype != (np.int64 if grid else np.float64):
        raise TypeError(f"{name}: total must be {'int64 with' if grid else 'float64 without'} a grid, got {out.dtype}")
    inputs = {"X": X, "y": y, "mu": mu, "log_sigma": log_sigma, "rows": rows, "offset": offset, "weights": weights}
    *arrays, total = CLIPPED_GRAD_SUM.prepare(inputs, out)
    function = CLIPPED_GRAD_SUM.implementation(backend, arrays)
    skipped = function(
        *arrays, code, scale, float(clip), kind, draws, key or 0, client, step, noise_multiplier, grid or 0.0, total, n_threads
    )
    return total, skipped


def predict(
    X: Real,
    mu: Vector,
    log_sigma: Vector,
    *,
    family: str,
    method: str = "probit",
    offset: Real | None = None,
    scale: float = 1.0,
    out: Vector | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> Vector:
    """Predictive mean E[y | x] under the posterior.

    Parameters
    ----------
    X : (n, d) array, float32 or float64
    mu : (d,) float64 array
    log_sigma : (d,) float64 array, or (d, d) lower Cholesky factor of the covariance
    family, offset : as in `loglik_grad`
    method : "probit" or "quadrature"
        For bernoulli: sigmoid(m / sqrt(1 + pi s^2 / 8)), or the quadrature of `expectations`. The other families have closed forms.
    scale : float
        Checked; the mean does not depend on it.

    Returns
    -------
    (n,) float64 array

    Raises
    ------
    TypeError, ValueError
        As `loglik_grad`; an unknown method.
    """
    record = PREDICT_FULL if _full(log_sigma) else PREDICT
    code, _ = _family("glm.predict", family, scale)
    how = _choice("glm.predict", "method", method, METHODS)
    *arrays, mean = record.prepare({"X": X, "mu": mu, "log_sigma": log_sigma, "offset": offset}, out)
    record.implementation(backend, arrays)(*arrays, code, how, mean, n_threads)
    return mean
