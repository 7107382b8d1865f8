"""Published metrics, each against a few lines of NumPy and SciPy on the released posterior and the test rows, for each family.

Nothing of the package but a job's result is used: not its encoding, its families, its quadrature nor its predictions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import expit

import fedkern
from fedkern.results.gaussian import Posterior

Array = np.ndarray[Any, np.dtype[np.float64]]
FAMILIES = ("bernoulli", "poisson", "negative-binomial", "gaussian")
SCALE = {"gaussian": 0.6, "negative-binomial": 2.5}


def drawn(family: str, n: int, seed: int) -> pd.DataFrame:
    """Rows whose columns have means and sds of their own, so that units count."""
    random = np.random.default_rng(seed)
    a, b = 3 + 2 * random.normal(size=n), 50 + 10 * random.normal(size=n)
    eta = 0.4 + 0.5 * (a - 3) - 0.06 * (b - 50)
    size = SCALE.get(family, 1.0)
    y = {
        "bernoulli": lambda: random.random(n) < expit(eta),
        "poisson": lambda: random.poisson(np.exp(eta)),
        "negative-binomial": lambda: random.poisson(np.exp(eta) * random.gamma(size, 1 / size, n)),
        "gaussian": lambda: eta + size * random.normal(size=n),
    }[family]()
    return pd.DataFrame({"a": a, "b": b, "y": np.asarray(y, float)})


def log_density(family: str, y: Array, mean: Array, scale: float) -> Array:
    """log p(y | its mean)."""
    if family == "bernoulli":
        return stats.bernoulli.logpmf(y, mean)
    if family == "poisson":
        return stats.poisson.logpmf(y, mean)
    if family == "negative-binomial":
        return stats.nbinom.logpmf(y, scale, scale / (scale + mean))
    return stats.norm.logpdf(y, mean, scale)


def of_bins(p: Array, y: Array) -> list[dict[str, float]]:
    tenths = pd.DataFrame({"p": p, "y": y}).groupby(np.minimum(np.floor(p * 10), 9))
    return [{"rows": len(of), "probability": of["p"].mean(), "frequency": of["y"].mean()} for _, of in tenths]


def same_bins(told: list[dict[str, float]], wanted: list[dict[str, float]]) -> None:
    assert len(told) == len(wanted) > 3
    for one, other in zip(told, wanted):
        assert one == pytest.approx(other, rel=1e-10)


def guessed(family: str, y: Array, scale: float) -> float:
    """The mean log-density of rows that are all foreseen by their own mean (and variance)."""
    sd = max(y.std(), scale) if family == "gaussian" else scale
    return float(log_density(family, y, np.full(len(y), y.mean()), sd).mean())


@pytest.mark.parametrize("family", FAMILIES)
def test_of_a_partitioned_job(family: str) -> None:
    scale, test = SCALE.get(family, 1.0), drawn(family, 70, 99)
    model = {"family": family, "covariance": "full"} | ({"scale": scale} if family in SCALE else {})
    clients = {f"c{k}": drawn(family, 80, k) for k in range(2)}
    job = {"job": {"rounds": 3, "seed": 1}, "data": {"response": "y"}, "model": model}
    result = fedkern.run(job, data=clients, test=test)
    y, X = test["y"].to_numpy(), np.column_stack([np.ones(len(test)), test["a"], test["b"]])
    released = result.posterior
    assert isinstance(released, Posterior)
    assert released.affine is not None
    assert released.names == ("intercept", "a", "b")
    eta = X @ released.affine @ released.q.mean
    variance = np.sum((X @ released.affine @ released.q.covariance) * (X @ released.affine), axis=1)
    told, more = result.metrics, result.summary["test"]
    if family == "bernoulli":
        p, _ = averaged(family, y, eta, np.sqrt(variance), scale)
        assert told.keys() == {"accuracy", "log_likelihood"}
        assert told["accuracy"] == pytest.approx(np.mean(np.where(p > 0.5, y == 1, y == 0)), rel=1e-12)
        assert told["log_likelihood"] == pytest.approx(stats.bernoulli.logpmf(y, p).mean(), rel=1e-8)
        same_bins(more["reliability"], of_bins(p, y))
    else:
        p = eta if family == "gaussian" else np.exp(eta + variance / 2)
        density = log_density(family, y, p, np.sqrt(variance + scale**2) if family == "gaussian" else scale)
        assert told.keys() == {"rmse", "log_likelihood"}
        assert told["rmse"] == pytest.approx(np.sqrt(np.mean((y - p) ** 2)), rel=1e-10)
        assert told["log_likelihood"] == pytest.approx(density.mean(), rel=1e-10)
    assert more["rows"] == len(test)
    assert more["guess"] == pytest.approx(guessed(family, y, scale), rel=1e-8)


def averaged(family: str, y: Array, m: Array, s: Array, scale: float) -> tuple[Array, Array]:
    """(n,) E[y'] and log E[p(y | eta)] where eta ~ N(m, s^2), by the trapezoidal rule: exact to rounding for such integrands."""
    z = np.linspace(-9, 9, 2001)
    weights = stats.norm.pdf(z) * (z[1] - z[0])
    eta = m[:, None] + s[:, None] * z
    mean = eta if family == "gaussian" else expit(eta) if family == "bernoulli" else np.exp(eta)
    return mean @ weights, np.log(np.exp(log_density(family, y[:, None], mean, scale)) @ weights)


def test_of_a_private_job_probabilities_are_by_the_probit_approximation() -> None:
    """As the published figures; its predictions of new rows are averages over q all the same."""
    test, declared = drawn("bernoulli", 70, 99), {"a": {"center": 3.0, "scale": 2.0}, "b": {"center": 50.0, "scale": 10.0}}
    noise = {"epsilon": 0.5, "delta": 1e-3, "clip": 2.0, "noise_multiplier": 4.0, "sampling_rate": 0.1, "noise_source": "keyed"}
    job = {"job": {"rounds": 2}, "data": {"response": "y", "columns": declared}, "privacy": noise}
    result = fedkern.run(job, data={f"c{k}": drawn("bernoulli", 80, k) for k in range(2)}, test=test)
    rows = result.predict(test)
    y, m, s = (column.to_numpy() for column in (test["y"], rows["linear_mean"], rows["linear_sd"]))
    p = expit(m / np.sqrt(1 + np.pi / 8 * s**2))
    assert result.metrics["log_likelihood"] == pytest.approx(stats.bernoulli.logpmf(y, p).mean(), rel=1e-8)
    assert result.scores(test) == result.metrics
    np.testing.assert_allclose(rows["mean"], averaged("bernoulli", y, m, s, 1.0)[0], rtol=1e-8)


def test_predicted_risks_of_rare_events_are_as_many_as_there_were() -> None:
    random = np.random.default_rng(2)
    clients = {}
    for k in range(2):
        y = np.zeros(20_000)
        y[random.choice(20_000, 5, replace=False)] = 1
        clients[f"c{k}"] = pd.DataFrame({"x": random.normal(size=20_000), "y": y})
    result = fedkern.run({"data": {"response": "y"}}, data=clients)
    rows = pd.concat(list(clients.values()))
    assert result.predict(rows)["mean"].sum() == pytest.approx(10, rel=0.05)


RHO, PARTIES = 0.4, 2


def of_predictions(family: str, y: Array, p: Array, density: Array | None) -> dict[str, float]:
    """What of a vertical job's scores its predictions (and log predictive densities) say."""
    if family != "bernoulli":
        return {"rmse": float(np.sqrt(np.mean((y - p) ** 2)))}
    wrong = np.where(p > 0.5, y == 0, y == 1)
    gaps = [bin["rows"] * abs(bin["frequency"] - bin["probability"]) for bin in of_bins(p, y)]
    found = {"accuracy": 1 - wrong.mean(), "brier": np.mean((p - y) ** 2), "calibration_error": sum(gaps) / len(y)}
    return found if density is None or not wrong.any() else found | {"log_likelihood_wrong": density[wrong].mean()}


@pytest.mark.parametrize("family", FAMILIES)
def test_of_a_vertical_job(family: str, tmp_path: Path) -> None:
    frame = drawn(family, 120, 3).assign(id=[f"r{i}" for i in range(120)])
    model = {"family": family, "rho": RHO} | ({"scale": 2.5} if family == "negative-binomial" else {})
    job = {
        "job": {"method": "vertical", "rounds": 60, "seed": 1},
        "data": {"id": "id", "response": "y", "holdout": 0.4},
        "model": model,
        "output": {"missing_party": True},
    }
    parties = {"left": frame[["id", "a"]], "right": frame[["id", "b"]]}
    result = fedkern.run(job, data=parties, server=frame[["id", "y"]], out=tmp_path / "run")
    rows = pd.read_csv(tmp_path / "run" / "predictions.csv")
    y, mean, sd = (rows[name].to_numpy() for name in ("y", "predictor_mean", "predictor_sd"))
    np.testing.assert_allclose(y, frame.set_index("id").loc[rows["id"], "y"], rtol=1e-5)
    y = frame.set_index("id").loc[rows["id"], "y"].to_numpy()
    scale = float(np.exp(result.parameters["log_sigma"]["mean"])) if family == "gaussian" else 2.5
    told = result.summary["prediction"]
    assert told["rows"] == len(rows) == 48
    assert result.metrics == told["rules"]["posterior"]
    rules = {"posterior": sd**2, "plug-in": 0 * sd, "augmented": sd**2 + PARTIES * RHO**2}
    if family in ("poisson", "negative-binomial"):  # the augmented model has an intercept of its own, which is not published
        del rules["augmented"]
    for rule, variance in rules.items():
        p, density = averaged(family, y, mean, np.sqrt(variance), scale)
        wanted = of_predictions(family, y, p, density) | {"log_likelihood": density.mean()}
        if family == "gaussian":
            wanted["coverage_90"] = np.mean(stats.norm.cdf(np.abs(y - mean) / np.sqrt(variance + scale**2)) < 0.95)
        if rule == "posterior":
            np.testing.assert_allclose(rows["predicted"], p, rtol=1e-6)
        assert told["rules"][rule] == pytest.approx(wanted, rel=1e-4)  # 20 nodes are not exact
    for party in parties:
        p = rows[f"predicted_without_{party}"].to_numpy()
        scores, wanted = told["without"][party]["conditional"], of_predictions(family, y, p, None)
        assert {name: scores[name] for name in wanted} == pytest.approx(wanted, rel=1e-8)
    if family in ("bernoulli", "gaussian"):
        assert told["guess"] == pytest.approx(guessed(family, y, 0.0), rel=1e-6)
    if family == "bernoulli":
        same_bins(told["reliability"], of_bins(rows["predicted"].to_numpy(), y))
