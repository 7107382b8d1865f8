"""What clients of open jobs say of a posterior after the rounds: leave-one-out sums, equal to pooled ones."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import norm

import fedkern
from fedkern.algorithms.core.messages import ClientLost
from fedkern.algorithms.exchanges.answers import LogTerms
from fedkern.algorithms.exchanges.sums import LooSums
from fedkern.errors import JobError
from fedkern.methods import parse
from fedkern.methods.sparse import own
from fedkern.models import psis
from fedkern.results import loo
from support import arviz_groups
from support.wires import checked_and_run

N = 300


def rows(family: str, correlation: float = 0.0) -> pd.DataFrame:
    random = np.random.default_rng(11)
    a, z = random.normal(size=(2, N))
    b = correlation * a + np.sqrt(1 - correlation**2) * z
    eta = 0.3 + 0.8 * a - 0.5 * b
    y = {"bernoulli": (random.random(N) < expit(eta)) * 1.0, "poisson": random.poisson(np.exp(eta)) * 1.0}
    return pd.DataFrame({"a": a, "b": b, "y": y.get(family, eta + 0.7 * random.normal(size=N))})


def job(folder: Path, frame: pd.DataFrame, **sections: Any) -> dict[str, Any]:
    paths = [folder / f"c{k}.csv" for k in range(3)]
    for path, part in zip(paths, (frame[:150], frame[150:260], frame[260:])):
        part.to_csv(path, index=False)
    tables: dict[str, Any] = {"job": {"rounds": 8, "seed": 4}, "data": {"clients": [str(p) for p in paths], "response": "y"}}
    tables["model"] = {"covariance": "full"}
    return {**tables, **{name: {**tables.get(name, {}), **keys} for name, keys in sections.items()}}


def log_likelihood(frame: pd.DataFrame, family: str, theta: np.ndarray) -> np.ndarray:
    """(m, n) at draws of (intercept, a, b) on the data's scale; written for itself."""
    eta, y = theta @ np.column_stack([np.ones(len(frame)), frame["a"], frame["b"]]).T, frame["y"].to_numpy()
    if family == "bernoulli":
        return np.where(y > 0.5, -np.logaddexp(0, -eta), -np.logaddexp(0, eta))
    if family == "poisson":
        from scipy.stats import poisson

        return poisson.logpmf(y, np.exp(eta))
    return norm.logpdf(y, eta, 1.0)


@pytest.mark.parametrize(("draws", "limit"), [(4000, 0.7), (400, 0.616), (79, 0.473), (39, 0.371), (5, 0.0)])
def test_few_draws_have_a_lower_limit(draws: int, limit: float) -> None:
    assert psis.limit(draws) == pytest.approx(limit, abs=1e-3)


def compare(found: dict[str, Any], pooled: tuple[float, float, float, np.ndarray]) -> None:
    assert found["rows"] == N
    elpd, se, p, k = pooled
    assert found["elpd"] == pytest.approx(elpd, abs=arviz_groups.NEAR)  # thousandths of three clients
    assert found["se"] == pytest.approx(se, abs=arviz_groups.NEAR)
    assert found["p_loo"] == pytest.approx(p, abs=arviz_groups.NEAR)
    counts = np.histogram(k, [-np.inf, 0.5, 0.7, 1, np.inf])[0]
    assert np.abs(np.array([*found["k_hat"].values()]) - counts).max() <= (0 if arviz_groups.OLDER else 0.01 * len(k))
    assert list(found["k_hat"]) == ["<= 0.5", "<= 0.7", "<= 1", "> 1"]


@pytest.fixture
def matrices(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """Each client's log-likelihoods, as the sums are made of them."""
    found: list[np.ndarray] = []
    original = loo.sums

    def sums(n_rows: int, of: Any) -> Any:
        found.append(of(slice(0, n_rows)))
        return original(n_rows, of)

    monkeypatch.setattr(loo, "sums", sums)
    return found


@pytest.mark.parametrize("family", ["bernoulli", "gaussian"])
def test_leave_one_out_of_sparse_is_that_of_the_pooled_rows(
    family: str, tmp_path: Path, matrices: list[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    frame, kept = rows(family), list[Any]()
    original = own.left_out
    monkeypatch.setattr(own, "left_out", lambda model, one: (kept.append((model, one)), original(model, one))[1])
    tables = job(tmp_path, frame, job={"method": "sparse", "rounds": 150}, algorithm={"burn_in": 50, "chains": 2})
    tables |= {"model": {"family": family}, "output": {"loo": True}}
    result = fedkern.run(tables)
    c, t = 2, 100
    compare(result.summary["loo"], arviz_groups.loo(np.concatenate(matrices, axis=1).reshape(c, t, N)))
    for (model, one), got in zip(kept, matrices, strict=True):  # by the client's own coefficients, on the data's scale
        theta = (one.client.trace["theta"] * model.factors(one.scales)).reshape(c * t, 2)
        part = pd.DataFrame(one.columns.values, columns=["a", "b", "y"])
        alpha = own._intercept(model, one).reshape(-1)
        if family == "bernoulli":
            wanted = log_likelihood(part, family, np.column_stack([alpha, theta]))
        else:
            sd = np.sqrt(one.client.trace["sigma_sq"]).reshape(-1, 1) * one.scales[-1]
            wanted = norm.logpdf(part["y"].to_numpy(), alpha[:, None] + theta @ part[["a", "b"]].to_numpy().T, sd)
            assert float(sd.mean()) == pytest.approx(0.7, abs=0.08)
        np.testing.assert_allclose(got, wanted, rtol=1e-9)
    assert "rows without themselves" in "\n".join(fedkern.methods.load_method("sparse").show.describe_run(result.summary, ""))
    for output, text in (({"loo": True, "largest": 1}, "output.loo needs kept draws"),):
        with pytest.raises(JobError, match=text):
            fedkern.run({**tables, "output": output})
    with pytest.raises(JobError, match=r'output.loo needs kind = "regression"'):
        parse({**tables, "model": {"kind": "mrf"}, "data": {"clients": ["x.csv"]}})
    checked_and_run(tables, tmp_path / "checked")


def test_sums_of_few_rows_and_of_lost_clients_are_not_there() -> None:
    few = LooSums(0, 4, -3.0, 3.0, 0.5, np.array([4.0, 0, 0, 0]))
    told = few.leaving()
    assert (told.rows, told.density, told.bins.sum()) == (0, 0.0, 0)
    state, _ = LooSums.question.start(3, LooSums.ask(0))
    enough = LooSums(0, 6, -3.0, 3.0, 0.5, np.array([4.0, 0, 1, 1]))
    state, _ = LooSums.question.server_receive(state, 0, enough)
    state, _ = LooSums.question.server_receive(state, 1, told)
    assert not LooSums.question.finished(state)
    state, _ = LooSums.question.server_receive(state, 2, ClientLost(2))
    assert LooSums.question.finished(state)
    content = loo.summary([state.replies[0], state.replies[1]])
    assert (content["rows"], content["elpd"]) == (6, -3.0)
    text = "; ".join(loo.notes(content, state, ("a", "b", "c")))
    assert "1 clients have fewer than 5 rows" in text
    assert "1 clients were lost" in text
    assert "of 2 rows are not reliable" in text


def test_a_client_that_is_lost_after_the_rounds_ends_a_fit_of_a_map() -> None:
    with pytest.raises(Exception, match="had not come"):
        LogTerms.question.server_receive(LogTerms.question.start(2, LogTerms.ask(0))[0], 1, ClientLost(1))


def test_ratios_that_nearly_all_vanish_have_an_infinite_tail():
    ratios = np.full(1000, -800.0)
    ratios[-1], ratios[-60:-1] = 0.0, -np.linspace(740, 744, 59)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weights, k_hat = psis.smoothed(ratios)
    assert k_hat == np.inf
    assert np.exp(weights).sum() == pytest.approx(1)
