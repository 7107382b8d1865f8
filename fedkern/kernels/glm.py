"""Generalised linear models: log-likelihood, ELBO, expectations under a Gaussian posterior, clipped sums, predictions.

One row (x, y) has a = x'theta + offset and log p(y | a), normalised in y; the families are those of `kernels.families` that have
a code. Weights multiply a row's log-likelihood. The posterior is q = N(mu, diag(exp(2 log_sigma))) or, where `log_sigma` is a
(d, d) matrix, N(mu, L L') with L its lower triangle (the numbers above are not read).

X may have any strides and may be a memory map larger than the memory: it is read once, in blocks of rows, and never copied. Sums
are taken in a fixed order that depends on the number of rows alone: results do not depend on `n_threads`.

Draws come from counters: draw s of the weights is theta_s = mu + sigma e_s with e_s = rng.normal(d, key=key, client=client,
step=step, draw=s) and key = rng.key(seed, "draws", chain), in every backend.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._deprecate import arguments
from ..arrays import Vector
from . import families, rng
from ._checks import MADE, WORD, Domain, Together, choice_of
from ._docs import Given, binds, documented
from ._record import BACKENDS, F64, FLOATS, Array, Kernel, Scalar, here, home, on_host

__all__ = ["bind_clipped_grad_sum", "clipped_grad_sum", "elbo_grad", "expectations", "loglik", "loglik_grad", "predict"]

Real = NDArray[np.float64] | NDArray[np.float32]
Response = np.ndarray  # of any plain type
# (mu, log_sigma, rows if there are any, step) -> (total, skipped).
ClippedSums = Callable[..., tuple[Any, ...]]

# The names of estimators and methods, and their numbers in the compiled code. "analytic" draws nothing: its expectations are
# closed forms, or a quadrature. "stl" is "sticking the landing" (Roeder, Wu, Duvenaud 2017).
METHODS = {"probit": 0, "quadrature": 1}
CLIPPED_ESTIMATORS = {"analytic": 0, "weight-mc": 1, "activation-mc": 2}
ELBO_ESTIMATORS = {"stl": 0, "total": 1, "analytic": 2}

# Records are made of these. An `Array` has a name, a shape and types; a `Scalar` a name, a `Domain` (words for a refusal, a test
# in x, a conversion) and a default. WORD is [0, 2^32), MADE not given by callers.
# `Together` groups scalars that are refused in one sentence.
_INTEGERS: tuple[np.dtype[Any], ...] = tuple(np.dtype(t) for t in ("int64", "int32", "int8", "uint8", "bool"))
_X = Array("X", ("n", "d"))
_Y = Array("y", ("n",), FLOATS + _INTEGERS)
_MU = Array("mu", ("d",), F64)
_LOG_SIGMA = Array("log_sigma", ("d",), F64)
_FACTOR = Array("log_sigma", ("d", "d"), F64)  # the factor L, under the same name: its shape decides which record is used
_COLUMNS = (Array("offset", ("n",), FLOATS, optional=True), Array("weights", ("n",), FLOATS, optional=True))
_PRIOR = (Array("prior_shift", ("d",), F64), Array("prior_precision", ("d",), F64))
_PRIOR_FULL = (_PRIOR[0], Array("prior_precision", ("d", "d"), F64))
_ROWS = Array("rows", ("b",), (np.dtype("int64"),), optional=True)

_FAMILY = (
    Scalar("family", choice_of(families.CODES)),
    Scalar("scale", Domain("must be positive and finite", "0 < x < inf", "float(x)"), 1.0),
)
_DRAWS = (
    # Draw 2^32 - 1 is the noise of `clipped_grad_sum`; no draw of the posterior can have that number.
    Scalar("draws", Domain("must be in [1, 2^31)", "1 <= x < 2**31", "index(x)"), 1),
    rng.MADE_KEY,
    Scalar("client", WORD, 0),
    Scalar("step", WORD, 0),
)
_COUNTER = (Together(("draws", "client", "step"), "1 <= draws < 2^31, 0 <= client < 2^32, 0 <= step < 2^32"),)
_ELBO = (*_FAMILY, Scalar("estimator", choice_of(ELBO_ESTIMATORS), "stl"), *_DRAWS)
# An empty test is made by `_check_clipped`, since it needs other arguments too.
_CLIPPED = (
    *_FAMILY,
    Scalar("clip", Domain("must be at least 1e-50 (inf: no clipping)", "x >= 1e-50", "float(x)")),
    Scalar("estimator", choice_of(CLIPPED_ESTIMATORS), "analytic"),
    *_DRAWS,
    Scalar("noise_multiplier", Domain("must be >= 0, and needs a finite clip and no grid", "", "float(x)"), 0.0),
    Scalar("grid", Domain("must be > 0 and at least clip / 2^40", "", "float(x or 0.0)"), None),
)
_PREDICT = (*_FAMILY, Scalar("method", choice_of(METHODS), "probit"))
_WORDS = {
    "X": "Covariates, a row for each observation.",
    "y": "The response. A value that the family does not have makes the result NaN, as does NaN anywhere else.",
    "mu": "Mean of the posterior.",
    "log_sigma": "Logarithms of the posterior's standard deviations; or its (d, d) lower Cholesky factor L of the covariance, "
    "with a positive diagonal.",
    "offset": "Added to x'theta.",
    "weights": "Multiply each row's log-likelihood.",
    "family": "The likelihood.",
    "scale": "Dispersion of the families that have one: of the gaussian its standard deviation, in [1e-150, 1e150] (with X in "
    "float32 [1e-15, 1e15]); of the negative-binomial r, with variance mu + mu^2 / r (`mixed` takes phi: mu + phi^2 mu^2).",
    "draws": "Number S of draws that are averaged.",
    "seed": "Names the draws, in [0, 2^64). None where nothing is drawn.",
    "chain": "Names the draws: see the module.",
    "client": "Names the draws: see the module.",
    "step": "Names the draws: see the module.",
    "loglik": "sum_i weights_i log p(y_i | x_i'theta + offset_i), constants included.",
    "elbo": "The bound.",
    "value": "weights_i E l_i with l_i(a) = log p(y_i | a), a ~ N(x_i'mu + offset_i, x_i' Cov x_i). Exact for poisson and "
    "gaussian; where a log(1 + e^a) is averaged (bernoulli), a trapezoid rule with 64 nodes up to a standard deviation of 5 "
    "(errors at most 2e-9; of the slope 6e-9, of the curvature 4e-8), beyond it a mixture over 96 steps (1e-9, 2e-10, 5e-11). "
    "NaN in a row, or a y that the family does not have, gives NaN in that row.",
    "slope": "weights_i E l_i'.",
    "curvature": "weights_i E l_i''.",
}
_ELBO_WORDS = _WORDS | {
    "prior_shift": "Shift in the prior exp(prior_shift'theta - theta' P theta / 2).",
    "prior_precision": "P of the same prior: symmetric, or its diagonal.",
    "estimator": '"stl": the path gradient, with (mu, sigma) in log q held fixed, whose variance goes to 0 where q is exact; '
    '"total": the gradient of the same average; "analytic": no draws, the quadrature of `expectations`, and KL(q || prior) in '
    "closed form.",
    "seed": "Names the draws, in [0, 2^64). Needed unless the estimator is analytic.",
    "grad_mu": "Gradient in mu.",
    "grad_log_sigma": "Gradient in log sigma; for a full-rank posterior in L, zero above the diagonal.",
}
_CLIPPED_WORDS = _WORDS | {
    "X": "Covariates, a row for each observation. Everything is computed in float64, but for float32 rows with one draw of the "
    "weights and no grid.",
    "y": "The response.",
    "log_sigma": f"{_WORDS['log_sigma'][:-1]} (analytic only).",
    "clip": "The bound; inf for none. No w_i v_i is longer, whatever the rows, where no standard deviation of q is above "
    "1e100. Below 1e-50, which is refused, squares that are lost as 0 would count.",
    "rows": "The batch, by numbers of rows; default all. A row that is named twice counts twice.",
    "estimator": "The expectation by the quadrature of `expectations`; by draws of theta, the same for all rows; or by draws z_s "
    "of the standardised activation, the same for all rows: rng.normal(draws, key=key, client=client, step=step), with that key.",
    "seed": "Names the draws and the noise, in [0, 2^64); needed where there are any.",
    "grid": "Every w_i v_i is rounded toward zero to whole multiples of it, and the sum is exact: it does not depend on the "
    "order of the rows. None: no rounding.",
    "noise_multiplier": "Adds noise_multiplier x clip x rng.normal(2 d, key=key, client=client, step=step, draw=2^32 - 1): "
    "predictable noise, for experiments.",
    "out": "float64 or, with a grid, int64. Filled and returned; never converted.",
    "total": "float64, or int64 in units of the grid: [block of mu, block of log sigma]; for a full-rank posterior [block of mu, "
    "the lower triangle of the block of L, row by row (np.tril_indices)].",
    "skipped": "How many rows counted as nothing. It is not private: it must not leave the data's holder.",
}
_PREDICT_WORDS = _WORDS | {
    "scale": "As in `loglik_grad`; the mean does not depend on it.",
    "method": "For bernoulli: sigmoid(m / sqrt(1 + pi s^2 / 8)), or the quadrature of `expectations`. The others have closed "
    "forms.",
    "mean": "E[y | x] of every row.",
}
_PREDICT_ORDER = ("X", "mu", "log_sigma", "offset", "family", "method", "mean", "n_threads")  # a mean depends on no scale

LOGLIK_GRAD = Kernel(
    "glm.loglik_grad",
    __name__,
    purpose="Log-likelihood of all rows and its gradient in theta.",
    source="docs/spec/pvi.md, section 1",
    inputs=(_X, _Y, Array("theta", ("d",), F64), *_COLUMNS),
    outputs=(Array("grad", ("d",), F64),),
    scalars=_FAMILY,
    returns=True,
    backends=BACKENDS,
    words=_WORDS
    | {
        "theta": "Coefficients.",
        "grad": "With X in float32, theta is rounded to float32 too, and each product and the sums of at most 64 rows are in "
        "float32.",
    },
    results=("loglik : float", "grad"),
    example="""
        >>> X, y = np.array([[1.0, 0.5], [1.0, -1.0], [1.0, 2.0]]), np.array([1.0, 0.0, 1.0])
        >>> loglik, grad = glm.loglik_grad(X, y, np.zeros(2), family="bernoulli")
        >>> round(loglik, 3), grad
        (-2.079, array([0.5 , 1.75]))
    """,
)
ELBO_GRAD = Kernel(
    "glm.elbo_grad",
    __name__,
    purpose="Evidence lower bound of a mean-field posterior and its gradient in (mu, log sigma).",
    source='docs/spec/pvi.md, sections 2, 3.1 and 3.4; Roeder, Wu, Duvenaud (2017) for "stl"',
    inputs=(_X, _Y, _MU, _LOG_SIGMA, *_PRIOR, *_COLUMNS),
    outputs=(Array("grad_mu", ("d",), F64), Array("grad_log_sigma", ("d",), F64)),
    streams=("draws",),
    scalars=_ELBO,
    together=_COUNTER,
    returns=True,
    backends=BACKENDS,
    words=_ELBO_WORDS,
    results=("elbo : float", "grad_mu", "grad_log_sigma"),
    example="""
        >>> X, y = np.array([[1.0, 0.5], [1.0, -1.0], [1.0, 2.0]]), np.array([1.0, 0.0, 1.0])
        >>> mu, log_sigma = np.zeros(2), np.zeros(2)
        >>> elbo, grad_mu, grad_log_sigma = glm.elbo_grad(X, y, mu, log_sigma, family="bernoulli", estimator="analytic")
        >>> round(elbo, 3), grad_mu.round(3), grad_log_sigma.round(3)
        (-2.875, array([0.5 , 1.75]), array([-0.522, -0.796]))
    """,
)
ELBO_GRAD_FULL = Kernel(
    "glm.elbo_grad_full",
    __name__,
    purpose="Evidence lower bound of a full-rank posterior and its gradient in (mu, L).",
    source="docs/spec/pvi.md, sections 2, 3.4 and 3.5",
    inputs=(_X, _Y, _MU, _FACTOR, *_PRIOR_FULL, *_COLUMNS),
    outputs=(Array("grad_mu", ("d",), F64), Array("grad_log_sigma", ("d", "d"), F64)),
    streams=("draws",),
    function="elbo_grad",
    tied=("log_sigma", "prior_shift", "prior_precision"),  # of the normaliser, and of its own check
    scalars=(Scalar("normaliser", MADE), *_ELBO),  # made by `elbo_grad`; the mean-field kernel computes its own
    together=_COUNTER,
    returns=True,
    backends=BACKENDS,
    words=_ELBO_WORDS,
    results=("elbo : float", "grad_mu", "grad_log_sigma"),
    example="""
        >>> X, y = np.array([[1.0, 0.5], [1.0, -1.0], [1.0, 2.0]]), np.array([1.0, 0.0, 1.0])
        >>> L = np.array([[0.5, 0.0], [0.2, 0.5]])  # the posterior's covariance is L L'
        >>> elbo, grad_mu, grad_L = glm.elbo_grad(X, y, np.zeros(2), L, family="bernoulli", estimator="analytic")
        >>> round(elbo, 3), grad_L.round(3)
        (-3.019, array([[ 1.127,  0.   ],
               [-0.533,  0.985]]))
    """,
)
EXPECTATIONS = Kernel(
    "glm.expectations",
    __name__,
    purpose="E log p(y | a) of every row and of its first two derivatives in a, under a mean-field posterior.",
    source="docs/spec/pvi.md, section 3.1",
    inputs=(_X, _Y, _MU, _LOG_SIGMA, *_COLUMNS),
    outputs=(Array("value", ("n",), F64), Array("slope", ("n",), F64), Array("curvature", ("n",), F64)),
    scalars=_FAMILY,
    backends=BACKENDS,
    words=_WORDS,
    example="""
        >>> X, y = np.array([[1.0, 0.5], [1.0, -1.0], [1.0, 2.0]]), np.array([1.0, 0.0, 1.0])
        >>> value, slope, curvature = glm.expectations(X, y, np.zeros(2), np.log([0.5, 0.5]), family="poisson")
        >>> value.round(3), slope.round(3)
        (array([-1.169, -1.284, -1.868]), array([-0.169, -1.284, -0.868]))
    """,
)
EXPECTATIONS_FULL = Kernel(
    "glm.expectations_full",
    __name__,
    purpose="E log p(y | a) of every row and of its first two derivatives in a, under a full-rank posterior.",
    source="docs/spec/pvi.md, sections 3.1 and 3.5",
    inputs=(_X, _Y, _MU, _FACTOR, *_COLUMNS),
    outputs=EXPECTATIONS.outputs,
    function="expectations",
    scalars=_FAMILY,
    backends=BACKENDS,
    words=_WORDS,
    example="""
        >>> X, y = np.array([[1.0, 0.5], [1.0, -1.0], [1.0, 2.0]]), np.array([1.0, 0.0, 1.0])
        >>> L = np.array([[0.5, 0.0], [0.2, 0.5]])
        >>> glm.expectations(X, y, np.zeros(2), L, family="poisson")[0].round(3)
        array([-1.235, -1.185, -2.472])
    """,
)
CLIPPED_GRAD_SUM = Kernel(
    "glm.clipped_grad_sum",
    __name__,
    purpose="Sum over rows of the clipped gradients of E log p(y_i | x_i'theta) in (mu, log sigma).",
    source="docs/spec/pvi.md, sections 3.1 to 3.3 and 4",
    inputs=(_X, _Y, _MU, _LOG_SIGMA, _ROWS, *_COLUMNS),
    outputs=(Array("total", ("2*d",), (np.dtype("float64"), np.dtype("int64")), second="grid"),),
    streams=("draws", "noise"),
    scalars=_CLIPPED,
    returns=True,
    together=_COUNTER,
    backends=BACKENDS,
    words=_CLIPPED_WORDS,
    results=("total", "skipped : int"),
    example="""
        >>> X, y = np.array([[1.0, 0.5], [1.0, -1.0], [1.0, 2.0]]), np.array([1.0, 0.0, 1.0])
        >>> mu, log_sigma = np.zeros(2), np.log([0.5, 0.5])
        >>> total, skipped = glm.clipped_grad_sum(X, y, mu, log_sigma, family="bernoulli", clip=0.5)
        >>> total.round(3), skipped
        (array([ 0.313,  1.014, -0.113, -0.14 ]), 0)
        >>> glm.clipped_grad_sum(X, y, mu, log_sigma, family="bernoulli", clip=0.5, grid=2**-10)[0]
        array([ 321, 1036, -115, -142])
    """,
)
CLIPPED_GRAD_SUM_FULL = Kernel(
    "glm.clipped_grad_sum_full",
    __name__,
    purpose="Sum over rows of the clipped gradients of E log p(y_i | x_i'theta) in (mu, L).",
    source="docs/spec/pvi.md, sections 3.5 and 4",
    inputs=(_X, _Y, _MU, _FACTOR, _ROWS, *_COLUMNS),
    outputs=(Array("total", ("d*(d+3)/2",), (np.dtype("float64"), np.dtype("int64")), second="grid"),),
    streams=("noise",),
    function="clipped_grad_sum",
    scalars=_CLIPPED,
    returns=True,
    together=_COUNTER,
    backends=BACKENDS,
    words=_CLIPPED_WORDS,
    results=("total", "skipped : int"),
    example="""
        >>> X, y = np.array([[1.0, 0.5], [1.0, -1.0], [1.0, 2.0]]), np.array([1.0, 0.0, 1.0])
        >>> L = np.array([[0.5, 0.0], [0.2, 0.5]])
        >>> total, skipped = glm.clipped_grad_sum(X, y, np.zeros(2), L, family="bernoulli", clip=0.5)
        >>> total.round(3)
        array([ 0.287,  0.966, -0.233, -0.146, -0.255])
    """,
)
PREDICT = Kernel(
    "glm.predict",
    __name__,
    purpose="Predictive mean of every row under a mean-field posterior.",
    source="docs/spec/pvi.md, section 13",
    inputs=(_X, _MU, _LOG_SIGMA, _COLUMNS[0]),
    outputs=(Array("mean", ("n",), F64),),
    scalars=_PREDICT,
    order=_PREDICT_ORDER,
    backends=BACKENDS,
    words=_PREDICT_WORDS,
    example="""
        >>> X, mu, log_sigma = np.array([[1.0, 0.5], [1.0, -1.0]]), np.array([0.2, 1.0]), np.log([0.5, 0.5])
        >>> glm.predict(X, mu, log_sigma, family="bernoulli").round(3)
        array([0.659, 0.325])
        >>> glm.predict(X, mu, log_sigma, family="poisson").round(3)
        array([2.354, 0.577])
    """,
)
PREDICT_FULL = Kernel(
    "glm.predict_full",
    __name__,
    purpose="Predictive mean of every row under a full-rank posterior.",
    source="docs/spec/pvi.md, section 13",
    inputs=(_X, _MU, _FACTOR, _COLUMNS[0]),
    outputs=PREDICT.outputs,
    function="predict",
    scalars=_PREDICT,
    order=_PREDICT_ORDER,
    backends=BACKENDS,
    words=_PREDICT_WORDS,
    example="""
        >>> X, mu, L = np.array([[1.0, 0.5], [1.0, -1.0]]), np.array([0.2, 1.0]), np.array([[0.5, 0.0], [0.2, 0.5]])
        >>> glm.predict(X, mu, L, family="bernoulli").round(3)
        array([0.657, 0.321])
    """,
)


def _check_scale(kernel: Kernel, X: Real, family: str, scale: float) -> None:
    """Refuses a scale other than 1 for a family that has none, and a standard deviation whose square rows can't be divided by."""
    kernel.check_kinds(family=family, scale=scale)
    if family == "gaussian" and (0 < scale < 1e-15 or 1e15 < scale < np.inf):
        single = getattr(X, "dtype", None) == np.float32
        most, which = (1e15, " with X in float32") if single else (1e150, "")
        if not 1 / most <= scale <= most:
            raise ValueError(f"{kernel.public}: scale of gaussian{which} must be in [{1 / most:g}, {most:g}], got {scale}")
    if scale != 1 and family in families.CODES and families.FAMILIES[family].dispersion is None:
        has = [(f.dispersion.words, f.name) for f in families.RECORDS if f.dispersion is not None and f.code is not None]
        what = " or ".join(f"{words} of the {name} family" for words, name in has)
        raise ValueError(f"{kernel.public}: scale is {what}; {family} has none, got {scale}")


def _key(kernel: Kernel, seed: int | None, chain: int, random: str) -> int:
    """Returns the key of the draws; refuses a missing seed where something is random, which `random` names."""
    if seed is not None:
        return rng.key_of(kernel, "draws", seed, chain)
    if random:
        raise ValueError(f"{kernel.public}: {random} needs a seed")
    return 0


def _full(log_sigma: Vector) -> bool:
    # Whether it is the factor L of a full-rank posterior.
    return getattr(here(log_sigma), "ndim", 1) == 2


def _number(value: Any) -> float:
    """Returns a float; a number on a device stays there, as an array without dimensions."""
    return value if home(value) == "cuda" else float(value)


# Families of jobs whose rows have no density in x'theta alone, and what computes their log-likelihoods.
OTHERS = {
    **dict.fromkeys(families.LIFETIMES, "rows of times are those of mixed.values"),
    "cox": "a partial likelihood is survival.cox_values",
    "multinomial": "levels without an order are those of multinomial.values",
}
_SEEDED = arguments(key=rng.old_key("draws"))


@documented(LOGLIK_GRAD)
def loglik_grad(
    X: Real,
    y: Response,
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
    """Returns the log-likelihood of all rows and its gradient.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, an unknown family, a `scale` that is not in its range or that the family does not have.
    """
    _check_scale(LOGLIK_GRAD, X, family, scale)
    inputs = (X, y, theta, offset, weights)
    loglik, grad = LOGLIK_GRAD.compute(inputs, out, n_threads, backend, family=family, scale=scale)
    return _number(loglik), grad


def loglik(
    X: Real,
    y: Response,
    theta: Vector,
    *,
    family: str,
    offset: Real | None = None,
    weights: Real | None = None,
    scale: float | Vector = 1.0,
    trials: Vector | None = None,
    n_threads: int = 1,
) -> float:
    """Returns the log-likelihood of all rows, without its gradient, in float64, of any family of `families.FAMILIES`.

    Of a family that `loglik_grad` takes it is that function's value, compiled; of others NumPy computes it from the family's
    record.

    Parameters
    ----------
    X : (n, d) array
        Covariates, a row for each observation.
    y : (n,) array
        The response.
    theta : (d,) array
        Coefficients.
    family : str, a key of `families.FAMILIES`
        The likelihood, such as "student" or "zero-inflated-poisson"; not only those with a code.
    offset, weights : (n,) arrays, optional
        Added to x'theta; multiply each row's log-likelihood.
    scale : float, or (k,) array of a family with several numbers
        Dispersion of the families that have one.
    trials : (n,) array, of a binomial response
        The number of trials of each row.
    n_threads : int
        The result does not depend on it.

    Raises
    ------
    ValueError
        An unknown family, or one of trials without these.

    Source: docs/spec/likelihood.md, section 3.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import glm
    >>> X, y = np.array([[1.0, 0.5], [1.0, -1.0], [1.0, 2.0]]), np.array([1.0, 0.0, 1.0])
    >>> round(glm.loglik(X, y, np.array([0.1, 0.3]), family="bernoulli"), 6)
    -1.577264
    """
    if family not in families.FAMILIES:
        other = OTHERS.get(family) or f"there are {families.quoted(tuple(families.FAMILIES))}"
        meant = f"; do you mean {families.MEANT[family]!r}?" if family in families.MEANT else ""
        raise ValueError(f"glm.loglik: family = {family!r}: {other}{meant}")
    record = families.FAMILIES[family]
    if record.trials and trials is None:
        raise ValueError(f"glm.loglik: a {family} response needs trials, the number of them in each row")
    X, y, theta = (np.ascontiguousarray(a, np.float64) for a in (X, y, theta))
    offset, weights = (None if a is None else np.ascontiguousarray(a, np.float64) for a in (offset, weights))
    if record.code is not None and trials is None:
        value, _ = loglik_grad(
            X, y, theta, family=family, offset=offset, weights=weights, scale=float(scale), n_threads=n_threads
        )
        return value
    eta = X @ theta
    eta = record.kept(eta if offset is None else eta + offset)
    several = np.asarray(scale, np.float64)
    rows = record.value(y, eta, several[:, np.newaxis] if several.ndim else float(several), trials)
    return float(rows.sum() if weights is None else rows @ weights)


@_SEEDED
@documented(ELBO_GRAD, ELBO_GRAD_FULL)
def elbo_grad(
    X: Real,
    y: Response,
    mu: Vector,
    log_sigma: Vector,
    *,
    family: str,
    offset: Real | None = None,
    weights: Real | None = None,
    scale: float = 1.0,
    prior_shift: float | Vector = 0.0,
    prior_precision: float | Vector = 1.0,
    estimator: str = "stl",
    draws: int = 1,
    seed: int | None = None,
    chain: int = 0,
    client: int = 0,
    step: int = 0,
    out: tuple[Vector, Vector] | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> tuple[float, Vector, Vector]:
    """Returns the evidence lower bound of the posterior, and its gradient.

    The bound is E_q[sum_i weights_i log p(y_i | x_i'theta + offset_i) + log prior(theta) - log q(theta)]. The prior (inside PVI:
    the cavity) is exp(prior_shift'theta - theta' P theta / 2) times its normalising constant; a P that is not positive has no
    such constant, and it is left out. With a prior that is a density the bound is a lower bound of the log evidence.

    Raises
    ------
    TypeError, ValueError
        As `loglik_grad`; draws without a seed; a factor whose diagonal is not positive (on a device this is waited for).
    """
    full = _full(log_sigma)
    record = ELBO_GRAD_FULL if full else ELBO_GRAD
    constant = {}
    _check_scale(record, X, family, scale)
    record.check_kinds(estimator=estimator)
    drawn_by = "" if estimator == "analytic" else f"estimator {estimator!r}"
    key = _key(record, seed, chain, drawn_by)
    mu = here(mu)
    shift = _spread_out(prior_shift, mu)
    precision = _as_matrix(prior_precision, mu) if full else _spread_out(prior_precision, mu)
    inputs = (X, y, mu, log_sigma, shift, precision, offset, weights)
    if full:
        # Only for its checks: the normaliser is made from arrays that have the right shapes.
        inputs = (*record.prepare({a.name: value for a, value in zip(record.inputs, inputs)})[: len(inputs)],)
        log_sigma, shift, precision = inputs[3:6]
        if not (np.diagonal(log_sigma) > 0).all():
            raise ValueError(f"{record.public}: log_sigma must be a lower Cholesky factor with a positive diagonal")
        constant["normaliser"] = _log_normaliser(shift, precision)
    elbo, grad_mu, grad_log_sigma = record.compute(
        inputs, out, n_threads, backend, **constant, family=family, scale=scale, estimator=estimator, draws=draws, key=key,
        client=client, step=step,
    )  # fmt: skip
    return _number(elbo), grad_mu, grad_log_sigma


def _spread_out(value: float | Vector, mu: Vector) -> Vector:
    # A number becomes a vector of it; an array stays.
    return np.full_like(mu, value, np.float64) if isinstance(value, (int, float)) else value


def _as_matrix(value: float | Vector, mu: Vector) -> Vector:
    # A number or a diagonal becomes a matrix; a matrix stays.
    value = here(value)
    return np.diag(_spread_out(value, mu)) if isinstance(value, (int, float)) or np.ndim(value) == 1 else value


def _log_normaliser(shift: Vector, precision: Vector) -> float:
    """Returns the logarithm of the constant that makes exp(h'theta - theta' P theta / 2) a density; 0 if P is not positive
    definite."""
    try:
        factor = np.linalg.cholesky(on_host(precision))
    except np.linalg.LinAlgError:
        return 0.0  # the bound leaves the constant out as a whole, also where one entry of a diagonal P is not positive
    whitened = np.linalg.solve(factor, on_host(shift))
    return float((np.log(np.diagonal(factor)) - 0.5 * np.log(2 * np.pi)).sum() - 0.5 * (whitened**2).sum())


@documented(EXPECTATIONS, EXPECTATIONS_FULL)
def expectations(
    X: Real,
    y: Response,
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
    """Returns expectations of each row's log-likelihood and of its first two derivatives in a, under the posterior."""
    record = EXPECTATIONS_FULL if _full(log_sigma) else EXPECTATIONS
    _check_scale(record, X, family, scale)
    inputs = (X, y, mu, log_sigma, offset, weights)
    value, slope, curvature = record.compute(inputs, out, n_threads, backend, family=family, scale=scale)
    return value, slope, curvature


@_SEEDED
@documented(CLIPPED_GRAD_SUM, CLIPPED_GRAD_SUM_FULL)
def clipped_grad_sum(
    X: Real,
    y: Response,
    mu: Vector,
    log_sigma: Vector,
    *,
    clip: float,
    family: str,
    offset: Real | None = None,
    weights: Real | None = None,
    scale: float = 1.0,
    rows: NDArray[np.int64] | None = None,
    estimator: str = "analytic",
    draws: int = 1,
    seed: int | None = None,
    chain: int = 0,
    client: int = 0,
    step: int = 0,
    grid: float | None = None,
    noise_multiplier: float = 0.0,
    out: np.ndarray | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> tuple[np.ndarray, int]:
    """Returns the sum over rows of clipped gradients of the expected log-likelihood, to which DP-PVI adds noise.

    Row i has v_i, the gradient of weights_i E_q log p(y_i | x_i'theta + offset_i) in (mu, log sigma), or in (mu, L). It is
    multiplied by w_i = min(1, clip (1 - 1e-9) / ||v_i||), so that no w_i v_i is longer than `clip`, whatever the rounding. With a
    grid their sum is exact: adding or removing a row (named once in `rows`) moves it by at most `clip`. Without one, only their
    exact sum moves by at most `clip`; the computed one is rounded, and may move by the change of its rounding error, too. So
    noise that protects rows needs a grid. Where X is in float32 and there is no grid, 1 - 2e-5 stands in the place of 1 - 1e-9,
    and one draw of the weights ("weight-mc") is computed in float32: adding up the rows then costs an element at most 9e-7 of
    the sum of its absolute terms.

    ============================ ===================================================================================
    a row with                   counts as
    ============================ ===================================================================================
    ||v_i|| <= clip (1 - 1e-9)   v_i
    a longer v_i                 v_i, shortened to that length
    ||v_i|| = 0                  0
    clip = inf                   v_i: the likelihood's part of the gradient of the ELBO
    anything not finite          nothing (x, y, offset, weight, mean, norm ..); also where squares overflow, from about 1e77 on,
                                 and where a coefficient of x_i in v_i is beyond 1e100
    a y that the family has not  nothing
    ============================ ===================================================================================

    Raises
    ------
    TypeError, ValueError
        As `loglik_grad`; a clip or grid that is not positive, a negative noise, or one that does not go with the others; draws or
        noise without a seed.
    IndexError
        An index in `rows` that is no row of X; on a device this is waited for.
    """
    record = CLIPPED_GRAD_SUM_FULL if _full(log_sigma) else CLIPPED_GRAD_SUM
    key = _check_clipped(record, X, clip, family, scale, estimator, seed, chain, grid, noise_multiplier)
    # `out` must be int64 with a grid, float64 without; types that fit neither are refused by `compute`.
    given = None if out is None else getattr(here(out), "dtype", None)
    if given is not None and given in record.outputs[0].dtypes and (given == np.float64) is not (grid is None):
        kind = "float64 without" if grid is None else "int64 with"
        raise TypeError(f"{record.public}: total must be {kind} a grid, got {given}")
    skipped, total = record.compute(
        (X, y, mu, log_sigma, rows, offset, weights), out, n_threads, backend, family=family, scale=scale, clip=clip,
        estimator=estimator, draws=draws, key=key, client=client, step=step, noise_multiplier=noise_multiplier, grid=grid,
    )  # fmt: skip
    return total, skipped


def _check_clipped(
    record: Kernel,
    X: Real,
    clip: float,
    family: str,
    scale: float,
    estimator: str,
    seed: int | None,
    chain: int,
    grid: float | None,
    noise_multiplier: float,
) -> int:
    """Refuses what does not go together, and returns the key."""
    # One key serves the draws and the noise, which have different counters: see `_CLIPPED_WORDS`.
    name = record.public
    _check_scale(record, X, family, scale)
    record.check_kinds(clip=clip, estimator=estimator, noise_multiplier=noise_multiplier, grid=grid)
    noisy, drawn = noise_multiplier > 0, estimator != "analytic"
    random = f"estimator {estimator!r}" if drawn else ""
    key = _key(record, seed, chain, "noise_multiplier" if noisy else random)
    if noise_multiplier and not (noisy and clip * noise_multiplier < np.inf and grid is None):
        raise ValueError(
            f"{name}: noise_multiplier must be >= 0, and needs a finite clip and no grid; "
            f"got {noise_multiplier} with clip = {clip}, grid = {grid}"
        )
    if grid is not None and not (grid > 0 and clip / grid <= 2**40):
        raise ValueError(f"{name}: grid must be > 0 and at least clip / 2^40, got {grid} with clip = {clip}")
    if drawn and record is CLIPPED_GRAD_SUM_FULL:
        raise ValueError(f"{name}: estimator must be 'analytic' for a full-rank posterior, got {estimator!r}")
    return key


# `binds` gives this function the arguments of `clipped_grad_sum` less those that are left out; `given` has all of them by name,
# those left out with their defaults. Arrays that vary are given once, for their types and shapes (`rows`: whether it is None).
@_SEEDED
@binds(
    *(clipped_grad_sum, CLIPPED_GRAD_SUM, CLIPPED_GRAD_SUM_FULL),
    varying=("mu", "log_sigma", "rows", "step"),
    without=("noise_multiplier", "backend"),
)
def bind_clipped_grad_sum(given: Given) -> ClippedSums:
    """Binds `clipped_grad_sum` of the same data at many points: (mu, log_sigma, rows, step) -> (total, skipped).

    Batches `rows` may differ in size. Where `rows` is None, all rows count in every call, and calls are not given them.

    Raises
    ------
    IndexError
        In a call, as `clipped_grad_sum`.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import glm
    >>> X, y = np.array([[1.0, 0.5], [1.0, -1.0], [1.0, 2.0]]), np.array([1.0, 0.0, 1.0])
    >>> mu, log_sigma, rows = np.zeros(2), np.log([0.5, 0.5]), np.array([0, 2])
    >>> step = glm.bind_clipped_grad_sum(X, y, mu, log_sigma, family="bernoulli", clip=0.5, rows=rows)
    >>> total, skipped = step(mu, log_sigma, np.array([1]), 0)  # the batch is row 1 alone
    >>> total.round(3)
    array([-0.351,  0.351, -0.039, -0.039])
    """
    record = CLIPPED_GRAD_SUM_FULL if _full(given["log_sigma"]) else CLIPPED_GRAD_SUM
    checked = ("X", "clip", "family", "scale", "estimator", "seed", "chain", "grid", "noise_multiplier")
    key = _check_clipped(record, *(given[name] for name in checked))
    rows = ["rows"] if given["rows"] is not None else []
    bound = record.bind_given(given | {"key": key}, ("mu", "log_sigma", *rows, "step"))
    return lambda *varying: bound(*varying)[::-1]  # compiled code has numbers first


@documented(PREDICT, PREDICT_FULL)
def predict(
    X: Real,
    mu: Vector,
    log_sigma: Vector,
    *,
    family: str,
    offset: Real | None = None,
    scale: float = 1.0,
    method: str = "probit",
    out: Vector | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> Vector:
    """Returns the predictive mean E[y | x] under the posterior."""
    record = PREDICT_FULL if _full(log_sigma) else PREDICT
    _check_scale(record, X, family, scale)
    mean: Vector
    (mean,) = record.compute((X, mu, log_sigma, offset), out, n_threads, backend, family=family, scale=scale, method=method)
    return mean
