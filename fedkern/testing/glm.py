"""Makes cases of the glm kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedkern.kernels import rng
from fedkern.kernels._reference import glm as _reference
from fedkern.kernels.families import CODES, FAMILIES

from . import SIZES, Arguments, Case, Floats, Source

reference: Any = _reference

SMALL = (0, 1, 2, 3, 7, 8, 9, 17, 33)  # columns
ROWS = (1.0, 0.0, 1e-200, 1e30, 1e200, -1e308, np.inf, np.nan)  # what a row of a private sum may hold
PLAIN = (1.0, 0.0, np.nan)
STEP = 1e-3  # of a, for a curvature


def regression(source: Source, extremes: tuple[float, ...] = PLAIN, dtype: str = "") -> Arguments:
    """Returns X, y, family, scale and, sometimes, offset and weights."""
    n, d = source.size(), source.size()
    d = min(d, 40) if source.sizes is SIZES else d  # wide rows where they are asked for
    family = source.choose(sorted(CODES))
    record = FAMILIES[family]
    spread = source.choose([0.1, 1.0, 4.0]) / np.sqrt(max(d, 1)) / (4 if record.link == "log" else 1)
    X = source.array(
        spread * source.random.standard_normal((n, d)), dtype or source.choose(["f8", "f4"]), source.choose([(), (), extremes])
    )
    whole = record.binary or record.counted
    y = source.random.integers(0, 2, n) if whole else source.random.standard_normal(n)
    if record.counted:
        y = y * source.random.integers(0, 400, n)
    columns = {
        "offset": source.array(source.random.standard_normal(n), X.dtype) if source.choose([True, False]) else None,
        "weights": source.array(source.random.exponential(size=n), X.dtype) if source.choose([True, False]) else None,
    }
    response = source.choose(["f8", "i8", "i4"] if whole else ["f8", "f4"])
    scale = 1.0 if record.dispersion is None else 0.7
    return {"X": X, "y": source.array(y, response), "family": family, "scale": scale, **columns}


def draw_posterior(source: Source, d: int, full: bool) -> Arguments:
    """Returns a posterior, mean-field or full-rank."""
    if full:
        spread = np.tril(0.3 * source.random.standard_normal((d, d))) + np.eye(d)
        spread[np.triu_indices(d, 1)] = 77  # must not be read
        np.fill_diagonal(spread, abs(np.diag(spread)) + 0.1)
    else:
        spread = 0.5 * source.random.standard_normal(d) - source.choose([0.0, 3.0])
    return {"mu": source.normal(d), "log_sigma": source.array(spread)}


def draws(source: Source) -> Arguments:
    """Returns the names of a call's draws."""
    return {
        "draws": source.choose([1, 2, 5, 8, 13]),
        "seed": 7,
        "chain": source.choose([0, 2]),
        "client": source.choose([0, 2**32 - 1]),
        "step": source.choose([0, 12]),
    }


def absolute_terms(
    X: Floats, y: Floats, theta: Floats, family: str, offset: Floats, weights: Floats, scale: float
) -> tuple[float, Any]:
    """Returns sums of the absolute terms of a log-likelihood and of its gradient, with the effect of the rounding of x'theta on
    them."""
    n = len(X)
    X, w = np.nan_to_num(abs(X.astype(np.float64))), abs(reference.column(weights, n, 1.0))
    shift, code = reference.column(offset, n, 0.0), CODES[family]
    a = X @ abs(theta) + abs(shift)
    (_, slope), (_, beyond) = (
        reference.log_likelihood(X @ theta + shift + step, abs(y.astype(np.float64)), code, scale) for step in (0.0, STEP)
    )
    most = abs(slope) + abs(beyond - slope) / STEP * (1 + a)
    return float((w * (most * (1 + a) + abs(y) * (1 + a))).sum()), (w * most) @ X


def loglik_grad(source: Source) -> Case:
    data = regression(source)
    theta = source.normal(data["X"].shape[1])
    magnitude = absolute_terms(theta=theta, **data)
    return Case({"theta": theta, **data}, precision=str(data["X"].dtype), magnitude=magnitude)


def elbo_case(source: Source, full: bool) -> Case:
    """Makes a case of the bound, of a mean-field or a full-rank posterior."""
    data = regression(source)
    d = data["X"].shape[1]
    q, random = draw_posterior(source, d, full), draws(source)
    estimator = source.choose(["stl", "total", "analytic"])
    prior: Arguments = {"prior_shift": source.choose([0.0, source.normal(d)]), "prior_precision": 1.0}
    if source.choose([True, False]):
        root = source.random.standard_normal((d, d))
        prior["prior_precision"] = source.array(root @ root.T + np.eye(d) if full else source.random.standard_normal(d))
    e = np.array(
        [
            rng.normal(
                d, key=rng.key(random["seed"], "draws", random["chain"]), client=random["client"], step=random["step"], draw=s
            )
            for s in range(random["draws"])
        ]
    )
    sigma = np.tril(q["log_sigma"]) if full else np.diag(np.exp(q["log_sigma"]))
    # Quadrature looks further than the draws do; a normal's E exp(a) is exp at m + s^2 / 2.
    e = np.vstack([e, np.zeros(d), np.ones(d)]) if estimator != "analytic" else 3 * np.ones((1, d))
    terms = [absolute_terms(theta=abs(q["mu"]) + abs(sigma) @ abs(es), **data) for es in e]
    value, grad = max(t[0] for t in terms), max((t[1].max(initial=0) for t in terms), default=0)
    reach = 1 + abs(q["mu"]).max(initial=0) + abs(sigma).sum() + (1 / np.diag(sigma)).max(initial=0) + abs(e).max(initial=0)
    of_prior = (
        1 + np.sum(abs(prior["prior_precision"]) * np.ones(d)) + np.sum(abs(prior["prior_shift"]) * np.ones(d))
    ) * reach**2
    return Case(
        {**data, **q, **random, **prior, "estimator": estimator},
        precision="float64" if estimator == "analytic" else str(data["X"].dtype),
        magnitude=(value + of_prior, grad + of_prior, (grad + of_prior) * reach**2),
    )


def elbo_grad(source: Source) -> Case:
    return elbo_case(source, full=False)


def elbo_grad_full(source: Source) -> Case:
    return elbo_case(source, full=True)


def expectations_case(source: Source, full: bool) -> Case:
    """Makes a case of expectations, of a mean-field or a full-rank posterior."""
    data = regression(source, extremes=(1.0, 0.0, 1e3, np.nan))
    return Case({**data, **draw_posterior(source, data["X"].shape[1], full)})


def expectations(source: Source) -> Case:
    return expectations_case(source, full=False)


def expectations_full(source: Source) -> Case:
    return expectations_case(source, full=True)


def clipped_case(source: Source, full: bool) -> Case:
    """Makes a case of a clipped sum, of a mean-field or a full-rank posterior."""
    data = regression(source, extremes=ROWS)
    n, d = data["X"].shape
    estimator = "analytic" if full else source.choose(["analytic", "weight-mc", "activation-mc"])
    clip = source.choose([1e-3, 0.5, 2.0, np.inf])
    arguments: Arguments = {**data, **draw_posterior(source, d, full), **draws(source), "estimator": estimator, "clip": clip}
    if source.choose([True, False]):
        arguments["rows"] = source.array(source.random.integers(0, n, n // 2) if n else np.empty(0), "i8")
    if clip < np.inf:
        arguments |= source.choose([{}, {"grid": clip * 2**-20}, {"noise_multiplier": 2.0}])
    # One draw of the weights over float32 rows without a grid is computed in float32.
    single = data["X"].dtype == np.float32 and estimator == "weight-mc" and arguments["draws"] == 1 and "grid" not in arguments
    return Case(arguments, precision="float32" if single else "float64")


def clipped_grad_sum(source: Source) -> Case:
    return clipped_case(source, full=False)


def clipped_grad_sum_full(source: Source) -> Case:
    return clipped_case(source, full=True)


def predict_case(source: Source, full: bool) -> Case:
    """Makes a case of predictions, of a mean-field or a full-rank posterior."""
    data = regression(source)
    arguments = {name: data[name] for name in ("X", "family", "scale", "offset")}
    arguments |= draw_posterior(source, data["X"].shape[1], full)
    return Case({**arguments, "method": source.choose(["probit", "quadrature"])})


def predict(source: Source) -> Case:
    return predict_case(source, full=False)


def predict_full(source: Source) -> Case:
    return predict_case(source, full=True)
