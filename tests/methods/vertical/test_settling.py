"""A vertical job says whether its fit still moves: by the server's own numbers, and in one bit of each client."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fedkern
from fedkern.data.columns import Columns
from papers import vertical, vertical_poisson
from support.found import ids


def counts(n_rows):
    """Columns of two clients, and counts that vary more than Poisson ones."""
    random = np.random.default_rng(5)
    X = (random.normal(size=(n_rows, 3)), random.normal(size=(n_rows, 2)))
    mean = np.exp(0.7 + np.hstack(X) @ np.array([0.5, -0.4, 0.3, 0.6, -0.5]))
    return Columns(X, (("a", "b", "c"), ("d", "e")), random.negative_binomial(3, 3 / (3 + mean)).astype(float))


def job(folder, rounds, rho=0.05, algorithm=None, **sections):
    model = {"family": "negative-binomial", "rho": rho, "scale": 3.0}
    algorithm = {"auxiliary": "mean-field"} if algorithm is None else algorithm
    tables = vertical.job(folder, counts(60), 1, rounds, model=model, algorithm=algorithm, **sections)
    return fedkern.run(tables, out=folder / "run")


def own(folder):
    return [json.loads((folder / "run" / f"client-client-{k}" / "posterior.json").read_text()) for k in (1, 2)]


def test_small_rho_and_mean_field_have_not_converged(tmp_path):
    """Coefficients crawl by steps that are small beside their distance, and by many of the sds that mean-field gives them."""
    result = job(tmp_path, 3000)
    assert result.converged is False
    assert result.summary["verdict"].startswith("not converged: ")
    for client in own(tmp_path):
        assert client["verdict"] == result.summary["verdict"]
        assert client["own"]["converged"] is False
        assert client["own"]["worst"].startswith("theta_std[")


def test_what_moves_no_more_has_settled_and_the_bound_is_known(tmp_path):
    result = job(tmp_path, 5000, rho=0.5, algorithm={"learning_rate": 0.004})
    judged = [client["own"] for client in own(tmp_path)]
    for content in (result.summary, *judged):  # though a product over parties may be too narrow
        assert "movement" in [check["id"] for check in content["checks"] if check["is"] == "settled"]
    assert -1000 < result.summary["elbo"] < 0
    assert 0 < result.summary["elbo_error"] < 3
    sent = [json.loads(line)["kind"] for line in (tmp_path / "run" / "ledger" / "client-1.jsonl").read_text().splitlines()]
    assert sent.count("Settled") == 1
    assert sent.count("BoundShare") == 500


def test_terms_of_the_bound_stay_at_home_where_the_job_says_so(tmp_path):
    result = job(tmp_path, 20, output={"bound": False})
    assert "elbo" not in result.summary
    assert result.converged is False  # too few rounds
    ledger = (tmp_path / "run" / "ledger" / "client-1.jsonl").read_text()
    assert "BoundShare" not in ledger
    assert '"Settled"' in ledger


@pytest.mark.nightly
@pytest.mark.parametrize("rho", vertical_poisson.RHOS["areas"])
def test_3000_rounds_of_the_areas_have_not_converged(tmp_path, rho):
    """Of rho = 2 slopes' sds are then many times those of the end."""
    tables = vertical.job(
        tmp_path, vertical_poisson.example("areas"), 1, 3000, model={"kind": "multilevel", "family": "poisson", "rho": rho},
        algorithm={"learning_rate": vertical_poisson.RATE, "cool_down": 0.7, "average": "none"},
    )  # fmt: skip
    assert fedkern.run(tables).converged is False


def test_parties_with_correlated_columns_are_told_that_standard_deviations_are_too_small(tmp_path):
    """By the optima of section 3: a product over clients against the exact posterior of the augmented model, three columns of
    correlation .7 at three clients."""
    random = np.random.default_rng(2)
    X = random.multivariate_normal(np.zeros(3), 0.3 * np.eye(3) + 0.7, 200)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    for rho in (0.1, 0.5):
        exact = np.sqrt(np.diag(np.linalg.inv(np.eye(3) + X.T @ X / (1 + 3 * rho**2))))
        product = 1 / np.sqrt(1 + (X**2).sum(axis=0) / (1 + rho**2))
        assert (product / exact > 0.5).all()
        assert (product / exact < 0.75).all()
    y = X.sum(axis=1) + random.standard_normal(200)
    columns = Columns(tuple(X[:, [j]] for j in range(3)), (("a",), ("b",), ("c",)), y)
    tables = vertical.job(tmp_path, columns, 1, 400, model={"family": "gaussian", "rho": 0.5})
    result = fedkern.run(tables, out=tmp_path / "run")
    assert "narrow-where-correlated" in ids(result)
    for k in (1, 2, 3):
        own = json.loads((tmp_path / "run" / f"client-client-{k}" / "posterior.json").read_text())
        assert "product over clients" in own["note"]


@pytest.mark.parametrize("intercept", [True, False])
def test_without_an_intercept_columns_are_not_centred(tmp_path, intercept):
    """Centred ones would bring a level of their own into the model."""
    model = {"family": "gaussian", "intercept": intercept}
    tables = vertical.job(tmp_path, counts(60), 1, 5, model=model, algorithm={"auxiliary": "mean-field"})
    del tables["data"]["standardise"]
    fedkern.run(tables, out=tmp_path / "run")
    centres = [column["center"] for read in own(tmp_path) for column in read["encoding"]["columns"]]
    assert centres
    assert all(centre == 0 for centre in centres) == (not intercept)
