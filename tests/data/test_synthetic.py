"""Simulated federations: their files hold what the truth says, and depend on the settings alone."""

import json
import tomllib

import numpy as np
import pytest
from scipy.optimize import minimize

from fedkern.data import synthetic, table
from fedkern.data.design import Spec, encode
from fedkern.data.synthetic import Settings, simulate
from fedkern.errors import JobError
from fedkern.models.encoding import Column

NEGATIVE_LOGLIK = {
    "logistic": lambda a, y: np.logaddexp(0, a).sum() - y @ a,
    "poisson": lambda a, y: np.exp(a).sum() - y @ a,
    "regression": lambda a, y: ((y - a) ** 2).sum() / 2,
}


def load(folder, kind):
    """X with a column of ones, y, and the truth's coefficients, from the files."""
    job = tomllib.loads((folder / "job.toml").read_text())
    truth = json.loads((folder / "truth.json").read_text())["parameters"]
    paths = table.find(job["data"]["clients"], folder)
    names = table.header(next(iter(paths.values())))[:-1]
    columns = tuple(Column(name, center=0.0, scale=1.0) for name in names)
    encoding = Spec(job["data"]["response"], family=job["model"]["family"]).encoding(columns)
    parts = [encode(table.load(path), encoding, client=name) for name, path in paths.items()]
    theta = np.array([truth["intercept"], *(truth[f"theta[{name}]"] for name in names)])
    return np.vstack([part.X for part in parts]), np.concatenate([part.y for part in parts]), theta, list(paths)


@pytest.mark.parametrize("kind", synthetic.KINDS)
def test_the_truth_is_that_of_the_rows(tmp_path, kind):
    simulate(kind, tmp_path, Settings(clients=3, rows=1500, columns=3, seed=4))
    X, y, theta, names = load(tmp_path, kind)
    assert names == ["client-01", "client-02", "client-03"]
    assert X.shape == (4500, 4)
    Z, scale = X.copy(), np.r_[1.0, X[:, 1:].std(axis=0)]
    Z[:, 1:] = (X[:, 1:] - X[:, 1:].mean(axis=0)) / scale[1:]
    true = theta * scale
    true[0] += X[:, 1:].mean(axis=0) @ theta[1:]
    fit = minimize(lambda t: NEGATIVE_LOGLIK[kind](Z @ t, y), true, method="BFGS")
    assert abs((fit.x - true) / np.sqrt(np.diag(fit.hess_inv))).max() < 4.5
    wrong = NEGATIVE_LOGLIK[kind](X @ (theta * [1, 1.3, 1, 1]), y)
    assert NEGATIVE_LOGLIK[kind](X @ theta, y) < wrong - 5  # and another truth would be noticed


def test_a_client_s_rows_do_not_depend_on_the_others(tmp_path):
    for name, clients, seed in (("few", 2, 1), ("many", 5, 1), ("other", 2, 2)):
        simulate("logistic", tmp_path / name, Settings(clients=clients, rows=20, seed=seed))
    read = {name: (tmp_path / name / "clients" / "client-02.csv").read_bytes() for name in ("few", "many", "other")}
    assert read["few"] == read["many"] != read["other"]
    assert (tmp_path / "few" / "clients" / "client-01.csv").read_bytes() != read["few"]


def test_poisson_counts_are_poisson():
    draws = synthetic.Draws(3, 0)
    mean = 2.5
    made = synthetic.poisson(Settings(clients=1, rows=50, columns=1))
    assert (made.clients[0][:, -1] == np.floor(made.clients[0][:, -1])).all()
    counts = synthetic.poisson_counts(np.full(20_000, mean), draws)
    expected = 20_000 * np.exp(-mean) * mean ** np.arange(9) / np.cumprod([1, *range(1, 9)])
    observed = np.bincount(counts.astype(int), minlength=9)[:9]
    assert (((observed - expected) ** 2) / expected).sum() < 40  # chi-square on 8 degrees of freedom: 1e-5 at 40
    shifted = np.bincount(counts.astype(int) + 1, minlength=9)[:9]
    assert (((shifted - expected) ** 2) / expected).sum() > 1000


@pytest.mark.parametrize("kind", synthetic.KINDS)
def test_the_job_and_the_test_rows(tmp_path, kind):
    path = simulate(kind, tmp_path, Settings(clients=2, rows=10, columns=2))
    job = tomllib.loads(path.read_text())
    assert (path, job["job"]["seed"]) == (tmp_path / "job.toml", 1)
    assert table.load(tmp_path / job["data"]["test"]).n_rows == 100
    assert table.header(tmp_path / job["data"]["test"]) == ("x1", "x2", "y")


def test_faults(tmp_path):
    with pytest.raises(JobError, match="simulate mrf: no such kind; there are logistic, poisson, regression"):
        simulate("mrf", tmp_path)
    simulate("logistic", tmp_path, Settings(rows=1))
    with pytest.raises(JobError, match="clients: already holds files; choose another --out, or remove them"):
        simulate("logistic", tmp_path)
    with pytest.raises(JobError, match="--rows: needs at least 1, got 0"):
        Settings(rows=0)
    with pytest.raises(JobError, match="--seed: needs a number of 64 bits"):
        Settings(seed=-1)
