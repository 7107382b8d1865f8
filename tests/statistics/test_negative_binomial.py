"""Jobs with counts that vary more than Poisson ones, against sums over scipy's density: one small job of each method."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import nbinom

import fedkern
from fedkern.errors import JobError
from oracles.differences import four_point
from support import sigma_artifacts as artifacts
from support.priors import PLAIN
from support.refusal import refusal

R, SEED = 1.5, 4


def toml(tables: dict[str, Any]) -> str:
    return "\n".join(
        line for name, table in tables.items() for line in (f"[{name}]", *(f"{k} = {json.dumps(v)}" for k, v in table.items()))
    )


def written(path: Path, names: str, columns: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join([names, *(",".join(f"{v:.17g}" for v in row) for row in np.column_stack(columns))]) + "\n")


def data(n: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(SEED)
    X = random.normal(size=(n, 2))
    mean = np.exp(0.4 + X @ np.array([0.5, -0.3]))
    return X, random.negative_binomial(R, R / (R + mean)).astype(float)


def log_likelihood(y: np.ndarray, eta: np.ndarray) -> np.ndarray:
    """Of all rows; eta (.., n)."""
    return nbinom.logpmf(y, R, R / (R + np.exp(eta))).sum(axis=-1)


def job(method: str, folder: Path, n: int = 60, **model: Any) -> dict[str, Any]:
    X, y = data(n)
    given = {"family": "negative-binomial", **model}
    if method == "pvi":
        for k in range(2):
            written(folder / "rows" / f"{k}.csv", "x,z,y", (X[k::2], y[k::2]))
        return {
            "job": {"method": "pvi", "rounds": 40, "seed": 1},
            "data": {"clients": "rows/*.csv", "response": "y", "standardise": "none"},
            "model": {"covariance": "full", **given},
            "algorithm": {"optimiser": "exact"},
        }
    if method == "vertical":
        ids = np.arange(n)
        for k, name in enumerate("xz"):
            written(folder / "rows" / f"{name}.csv", f"id,{name}", (ids, X[:, k]))
        written(folder / "server.csv", "id,y", (ids, y))
        return {
            "job": {"method": "vertical", "rounds": 6000, "seed": 1},
            "data": {"clients": "rows/*.csv", "server": "server.csv", "id": "id", "response": "y", "standardise": "none"},
            "model": {"rho": 0.3, **given},
            "algorithm": {"learning_rate": 0.02, "cool_down": 0.5},
        }
    artifacts.written(folder / "prior", "multiplicative")
    artifacts.counts(folder / "rows")
    return {
        "job": {"method": "sigma", "rounds": 300, "seed": 3},
        "data": {"clients": "rows/*.csv", "area": "district", "response": "cases", "exposure": "expected"},
        "model": {"prior": "prior", **given},
    }


def ran(method: str, folder: Path, **model: Any) -> fedkern.Result:
    path = folder / "job.toml"
    path.write_text(toml(job(method, folder, **model)))
    return fedkern.run(path)


def test_pvi_ends_where_the_evidence_lower_bound_has_its_optimum(tmp_path: Path) -> None:
    """There E_q of the gradient is 0, and E_q of the negative Hessian is the precision: sums over a grid of 12^3 nodes."""
    q = ran("pvi", tmp_path, scale=R, **PLAIN).posterior.q
    X, y = data(60)
    X = np.column_stack([np.ones(60), X])
    mean, L = q.mean, q.scale_tril
    nodes, weights = np.polynomial.hermite_e.hermegauss(12)
    weights = weights / weights.sum()
    Z = np.stack(np.meshgrid(nodes, nodes, nodes, indexing="ij"), -1).reshape(-1, 3)
    W = np.einsum("i,j,k->ijk", weights, weights, weights).ravel()

    def value(m: np.ndarray) -> float:
        theta = m + Z @ L.T
        return float(W @ (log_likelihood(y, theta @ X.T) - 0.5 * (theta**2).sum(axis=1)))

    sd = q.sd
    gradient = four_point(value, mean)
    assert np.abs(gradient * sd).max() < 1e-3
    eta = (mean + Z @ L.T) @ X.T
    curvature = (y + R) * R * np.exp(eta) / (R + np.exp(eta)) ** 2
    precision = (X.T * (W @ curvature)) @ X + np.eye(3)
    np.testing.assert_allclose(precision @ q.covariance, np.eye(3), atol=2e-3)


def test_vertical_is_near_the_exact_posterior(tmp_path: Path) -> None:
    """theta on a grid, of the model without auxiliary variables, whose intercept is published."""
    found = ran("vertical", tmp_path, scale=R).parameters
    X, y = data(60)
    X = np.column_stack([np.ones(60), X])
    axis = [np.linspace(c - 1.1, c + 1.1, 27) for c in (0.4, 0.5, -0.3)]
    theta = np.stack(np.meshgrid(*axis, indexing="ij"), -1).reshape(-1, 3)
    log_post = np.zeros(len(theta))
    for at in range(0, len(theta), 2000):
        eta = theta[at : at + 2000] @ X.T
        log_post[at : at + 2000] = nbinom.logpmf(y, R, R / (R + np.exp(eta))).sum(axis=1)
    log_post -= 0.5 * (theta**2).sum(axis=1)
    w = np.exp(log_post - log_post.max())
    w /= w.sum()
    mean = w @ theta
    sd = np.sqrt(w @ (theta - mean) ** 2)
    b = found["intercept"]
    assert abs(b["mean"] - mean[0]) < 0.3 * sd[0]
    assert 0.7 < b["sd"] / sd[0] < 1.2


@pytest.mark.parametrize("method", ["sigma"])
def test_with_a_large_r_it_is_a_poisson_response(method: str, tmp_path: Path) -> None:
    poisson = ran(method, tmp_path, family="poisson").parameters
    near = ran(method, tmp_path, scale=1e7).parameters
    far = ran(method, tmp_path, scale=0.5).parameters
    assert near.keys() == poisson.keys()
    for name, one in poisson.items():
        assert near[name]["mean"] == pytest.approx(one["mean"], abs=1e-3 * one["sd"])
        assert near[name]["sd"] == pytest.approx(one["sd"], rel=1e-3)
    assert far["intercept"]["sd"] > 1.1 * poisson["intercept"]["sd"]


def test_r_has_to_be_given(tmp_path: Path) -> None:
    with refusal(JobError, "model.scale", "negative-binomial"):
        ran("vertical", tmp_path)


@pytest.mark.parametrize("method", ["pvi", "vertical", "sigma"])
@pytest.mark.parametrize("value", ["0.5", "-1"])
def test_a_response_that_is_no_count_is_refused(method: str, value: str, tmp_path: Path) -> None:
    tables = job(method, tmp_path, scale=R)
    path, file = tmp_path / "job.toml", tmp_path / "server.csv"
    path.write_text(toml(tables))
    file = file if method == "vertical" else sorted((tmp_path / "rows").glob("*.csv"))[0]
    head, first, *rest = file.read_text().splitlines()
    cells, at = first.split(","), head.split(",").index(tables["data"]["response"])
    cells[at] = value
    file.write_text("\n".join([head, ",".join(cells), *rest]) + "\n")
    with pytest.raises(JobError, match="count"):
        fedkern.run(path)
