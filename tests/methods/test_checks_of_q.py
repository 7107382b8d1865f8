"""What clients of open jobs say of a posterior after the rounds: k-hat of q, and leave-one-out sums; equal to pooled ones."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import norm, t

import fedkern
from fedkern.algorithms.core.messages import ClientLost, RemoteFault
from fedkern.algorithms.exchanges import terms
from fedkern.algorithms.exchanges.sums import LooSums
from fedkern.errors import JobError
from fedkern.methods import parse
from fedkern.methods.sparse import own
from fedkern.models import psis
from fedkern.results import loo
from fedkern.results.gaussian import Posterior
from fedkern.results.result import Result
from support import arviz_groups
from support.priors import plain
from support.wires import checked_and_run

N = 300
FEW = 35 - 9  # answers of a default job with two columns, less the points on one line


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


@pytest.mark.parametrize(
    ("rows", "columns", "draws"), [(20, 1, 39), (20, 2, 59), (40, 9, 399), (41, 9, 400), (5, 4, 0), (1, 0, 0), (0, 3, 0)]
)
def test_fewer_draws_than_a_least_client_has_cells(rows: int, columns: int, draws: int) -> None:
    assert terms.allowed(rows, columns) == draws
    assert draws < max(rows * (columns + 1), 1)


def test_values_leave_in_thousandths_and_their_number_is_the_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a client's rows are; and what weights say is within its own errors what exact values say."""
    sent, kept = list[np.ndarray](), terms.OF_Q.client_receive

    def receive(state: Any, event: Any) -> Any:
        state, effects = kept(state, event)
        sent.append(effects[0].values)
        return state, effects

    monkeypatch.setattr(terms, "OF_Q", replace(terms.OF_Q, client_receive=receive))
    frame = rows("bernoulli", correlation=0.9)
    tables = job(tmp_path, frame, model={"covariance": "diagonal"}, data={"least_rows": 40})
    near = fedkern.run(tables).summary["weights"]
    assert [len(values) for values in sent] == [119] * 3
    for values in sent:
        np.testing.assert_array_equal(values, np.round(values, 3))
        assert np.ptp(values) > 0.1
    monkeypatch.setattr(terms, "rounded", np.asarray)
    exact = fedkern.run(tables).summary["weights"]
    assert any((values != np.round(values, 3)).any() for values in sent[3:])
    assert near["k_hat"] == pytest.approx(exact["k_hat"], abs=0.02)
    for name, row in exact["moves"].items():
        for key in ("mean", "sd"):
            assert near["moves"][name][key] == pytest.approx(row[key], abs=0.05 * row[f"{key}_error"] + 1e-9)


def test_where_few_rows_allow_no_weights_nobody_tells_a_number(tmp_path: Path) -> None:
    few = {"data": {"least_rows": 8}}
    for output in ({}, {"loo": True}):
        result = fedkern.run(job(tmp_path, rows("bernoulli"), **few, output=output), out=tmp_path / f"out{len(output)}")
        assert "weights" not in result.summary
        assert ("loo" in result.summary) == bool(output)
        assert any("no k-hat: clients may have as few as 8 rows" in note for note in result.summary["notes"])
        checked_and_run(job(tmp_path, rows("bernoulli"), **few, output=output), tmp_path / f"checked{len(output)}")


@pytest.mark.parametrize(("draws", "limit"), [(4000, 0.7), (400, 0.616), (79, 0.473), (39, 0.371), (5, 0.0)])
def test_few_draws_have_a_lower_limit(draws: int, limit: float) -> None:
    assert psis.limit(draws) == pytest.approx(limit, abs=1e-3)


def on_data(posterior: Posterior, draws: np.ndarray) -> np.ndarray:
    return draws if posterior.affine is None else draws @ posterior.affine.T


@pytest.mark.parametrize("family", ["bernoulli", "poisson", "gaussian"])
def test_k_hat_is_that_of_the_pooled_rows(family: str, tmp_path: Path) -> None:
    frame = rows(family)
    model = {"family": family, "covariance": "full", **plain(family, frame["y"])}
    result = fedkern.run(job(tmp_path, frame, model=model))
    assert isinstance(result.posterior, Posterior)
    q = result.posterior.q
    draws = result.posterior.draws(FEW, seed=4, chain=1001)
    pooled = log_likelihood(frame, family, on_data(result.posterior, draws)).sum(axis=1)
    centred = draws - q.mean
    log_q = -0.5 * np.einsum("mi,ij,mj->m", centred, np.linalg.inv(q.covariance), centred)
    ratios = pooled - 0.5 * (draws**2).sum(axis=1) - log_q
    found = result.summary["weights"]
    if family == "gaussian":  # q is the posterior: what is left of the ratios is rounding
        assert np.ptp(ratios) < 1e-8
        assert found["k_hat"] < psis.limit(FEW)
        assert max(abs(row["mean"]) for row in found["moves"].values()) < 1e-3
        return
    assert found["k_hat"] == pytest.approx(psis.smoothed(ratios)[1], abs=0.04)  # thousandths of a nat from three clients
    assert found["k_hat"] < psis.GOOD
    assert found["moves"].keys() == {"theta_std[a]", "theta_std[b]", "intercept_std"}
    weights = np.exp(psis.smoothed(ratios)[0])
    move = (weights @ draws[:, 1] - draws[:, 1].mean()) / draws[:, 1].std()
    assert found["moves"]["theta_std[a]"]["mean"] == pytest.approx(move, abs=1e-3)


def test_a_mean_field_q_of_correlated_columns_is_told_apart(tmp_path: Path) -> None:
    frame = rows("bernoulli", correlation=0.97)
    many = {"job": {"rounds": 30}, "data": {"least_rows": 40}}
    near = fedkern.run(job(tmp_path, frame, **many))
    far = fedkern.run(job(tmp_path, frame, **many, model={"covariance": "diagonal"}))
    assert near.summary["weights"]["k_hat"] < psis.GOOD
    assert far.summary["weights"]["k_hat"] > psis.limit(94) or not far.summary["weights"]["agrees"]
    assert far.summary["weights"]["k_hat"] > near.summary["weights"]["k_hat"]


def test_the_numbers_can_be_left_out_and_change_nothing(tmp_path: Path) -> None:
    frame = rows("bernoulli")
    silent = fedkern.run(job(tmp_path, frame, output={"reweigh": False}), out=tmp_path / "silent")
    told = fedkern.run(job(tmp_path, frame, output={"loo": True}), out=tmp_path / "told")
    assert silent.digest == told.digest
    assert "weights" not in silent.summary
    assert "loo" not in silent.summary

    def kinds(folder: str) -> list[str]:
        lines = (tmp_path / folder / "ledger" / "c0.jsonl").read_text().splitlines()
        return [json.loads(line)["kind"] for line in lines]

    assert not {"LogTermsOf", "LooSums"} & set(kinds("silent"))
    assert [kind for kind in kinds("told") if kind in ("LogTermsOf", "LooSums")] == ["LogTermsOf", "LooSums"]
    checked_and_run(job(tmp_path, frame, output={"loo": True}), tmp_path / "checked")


def test_private_jobs_send_neither() -> None:
    private = {"epsilon": 1.0, "delta": 1e-5, "clip": 1.0, "noise_multiplier": 2.0, "sampling_rate": 0.1}
    tables: dict[str, Any] = {"data": {"builtin": "breast-cancer"}, "privacy": private}
    assert parse(tables).output.reweigh is False  # type: ignore[attr-defined]
    for name in ("reweigh", "loo"):
        with pytest.raises(JobError, match=rf"output.{name} has clients send numbers of their rows without noise"):
            parse({**tables, "output": {name: True}})
    with pytest.raises(JobError, match=r"output\.loo needs output\.reweigh"):
        parse({"data": {"builtin": "breast-cancer"}, "output": {"loo": True, "reweigh": False}})


def compare(found: dict[str, Any], pooled: tuple[float, float, float, np.ndarray]) -> None:
    assert found["rows"] == N
    elpd, se, p, k = pooled
    assert found["elpd"] == pytest.approx(elpd, abs=arviz_groups.NEAR)  # thousandths of three clients
    assert found["se"] == pytest.approx(se, abs=arviz_groups.NEAR)
    assert found["p_loo"] == pytest.approx(p, abs=arviz_groups.NEAR)
    counts = np.histogram(k, [-np.inf, 0.5, 0.7, 1, np.inf])[0]
    assert np.abs(np.array([*found["k_hat"].values()]) - counts).max() <= (0 if arviz_groups.OLDER else 0.01 * len(k))
    assert list(found["k_hat"]) == ["<= 0.5", "<= 0.7", "<= 1", "> 1"]


@pytest.mark.parametrize("family", ["bernoulli", "poisson", "gaussian"])
def test_leave_one_out_of_pvi_is_that_of_the_pooled_rows(family: str, tmp_path: Path) -> None:
    frame = rows(family)
    model = {"family": family, **plain(family, frame["y"])}
    result = fedkern.run(job(tmp_path, frame, model=model, output={"loo": True, "draws": 300, "chains": 3}))
    draws = result.to_arviz()["posterior"]
    theta = np.concatenate([draws["intercept"].values[..., None], draws["theta"].values], axis=-1)
    pooled = log_likelihood(frame, family, theta.reshape(-1, 3)).reshape(3, 300, N)
    compare(result.summary["loo"], arviz_groups.loo(pooled))


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
    for wrong in (
        LooSums(0, 6, -3.0, 3.0, 0.5, np.array([4.0, 0, 1, 0])),
        LooSums(0, 4, -3.0, 3.0, 0.5, np.array([4.0, 0, 0, 0])),
        LooSums(0, 6, -3.0, -3.0, 0.5, np.array([6.0, 0, 0, 0])),
    ):
        state, _ = LooSums.question.server_receive(LooSums.question.start(1, LooSums.ask(0))[0], 0, wrong)
        assert LooSums.question.finished(state)
        assert not state.replies
        assert "client 'a' is not in the leave-one-out sums, for its LooSums" in "; ".join(loo.notes({}, state, ("a",)))
        with pytest.raises(RemoteFault, match="came twice"):
            LooSums.question.server_receive(state, 0, wrong)


def test_a_client_that_is_lost_after_the_rounds_costs_the_numbers_and_not_the_result() -> None:
    state, effects = terms.QUESTION_OF.start(2, terms.AskTermsOf(0, np.zeros(2), np.ones(2)))
    assert len(effects) == 2
    state, _ = terms.QUESTION_OF.server_receive(state, 0, terms.LogTermsOf(0, np.zeros(terms.DRAWS)))
    state, _ = terms.QUESTION_OF.server_receive(state, 1, ClientLost(1))
    assert terms.QUESTION_OF.finished(state)
    assert state.lost == {1}
    with pytest.raises(Exception, match="had not come"):
        terms.QUESTION.server_receive(terms.QUESTION.start(2, terms.AskTerms(0))[0], 1, ClientLost(1))


def test_the_terminal_says_it(tmp_path: Path) -> None:
    result: Result = fedkern.run(job(tmp_path, rows("bernoulli")))
    lines = list(fedkern.methods.load_method("pvi").show.describe_run(result.summary, "why"))
    assert any(line.startswith("q against the pooled posterior: k-hat ") for line in lines)


def test_ratios_that_nearly_all_vanish_have_an_infinite_tail():
    ratios = np.full(1000, -800.0)
    ratios[-1], ratios[-60:-1] = 0.0, -np.linspace(740, 744, 59)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weights, k_hat = psis.smoothed(ratios)
    assert k_hat == np.inf
    assert np.exp(weights).sum() == pytest.approx(1)


@pytest.mark.parametrize("few", [0, 1, 12])
def test_a_posterior_that_is_no_normal_one_is_not_called_settled(few: int) -> None:
    """A yes/no column whose rows have no event, one, or many: against importance sampling of the pooled posterior."""
    import pandas as pd

    random, data = np.random.default_rng(4), {}
    for name in "abc":
        x, z = random.normal(size=300), np.repeat([1.0, 0.0], [14, 286])
        y = (random.random(300) < 1 / (1 + np.exp(3 - 0.5 * x))) * (1 - z)
        y[:few] = y[:few] + (few > 1 or name == "a")
        data[name] = pd.DataFrame({"x": x, "z": z, "y": y.astype(int)})
    result = fedkern.run({"job": {"method": "pvi"}, "data": {"response": "y"}}, data=data)
    every = pd.concat(data.values())
    X = np.column_stack([np.ones(len(every)), *((every[k] - every[k].mean()) / every[k].std(ddof=0) for k in "xz")])
    y, rate = every["y"].to_numpy(), every["y"].mean()
    q = result.posterior.q
    theta = q.mean + t(4).rvs((20_000, 3), random_state=1) @ (1.5 * q.scale_tril.T)
    z = np.linalg.solve(1.5 * q.scale_tril, (theta - q.mean).T).T
    eta, centre = theta @ X.T, np.array([np.log(rate / (1 - rate)), 0, 0])
    weight = (y * eta - np.logaddexp(0, eta)).sum(axis=1) - 0.5 * (((theta - centre) / [5, 1, 1]) ** 2).sum(axis=1)
    weight = np.exp((weight := weight - t(4).logpdf(z).sum(axis=1)) - weight.max())
    weight /= weight.sum()
    mean = weight @ theta[:, 2]
    sd = np.sqrt(weight @ (theta[:, 2] - mean) ** 2)
    wrong = sd / q.sd[2] > 1.1
    assert result.summary["verdict"].startswith("not converged: the posterior of theta_std[z]" if wrong else "settled")
    assert wrong == (few < 12)
    if wrong:
        order = np.argsort(theta[:, 2])
        quantiles = theta[order, 2][np.searchsorted(np.cumsum(weight[order]), [0.05, 0.95])]
        own = result.summary["lines"]["theta_std[z]"]
        assert own["sd"] == pytest.approx(sd, rel=0.06)
        np.testing.assert_allclose([own["q05"], own["q95"]], quantiles, atol=0.1 * sd)
