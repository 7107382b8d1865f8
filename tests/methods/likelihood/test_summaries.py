"""Clients too small for values at draws take part by a summary: the posterior is that of all rows, or said to be near it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import gammaln, log_expit
from scipy.stats import multivariate_t
from sklearn.datasets import load_breast_cancer, load_diabetes

import fedkern
from fedkern.algorithms.exchanges import verdicts
from fedkern.algorithms.importance import machine as importance
from fedkern.api import find_ending
from fedkern.arrays import Array
from fedkern.cli.show import describe_result
from fedkern.errors import JobError, NumericalError, OwnFault
from fedkern.finding import Finding
from fedkern.jobs import admitted, holders
from fedkern.jobs.hooks import RunHooks
from fedkern.methods.likelihood import summaries
from fedkern.results.verdict import HEADS, Verdict
from support.found import ids
from support.signing import Signing

Data = dict[str, tuple[Array, Array]]
JOB: dict[str, Any] = {"job": {"method": "likelihood", "seed": 3}, "data": {"response": "y"}, "model": {"family": "bernoulli"}}
SIZES = (49, 106, 216)


@pytest.fixture
def by_a_summary(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Has these clients take part by a summary, whatever rules count of their rows; where all are such, with so many numbers."""
    kept = admitted.kept
    monkeypatch.setattr(admitted, "find_few", lambda *args, **more: None)

    def choose(*clients: int, numbers: int = 0) -> None:
        summaries = dict.fromkeys(clients, numbers)
        monkeypatch.setattr(admitted, "kept", lambda *args, **more: kept(*args, **more)._replace(summaries=summaries))

    return choose


def dealt(X: Array, y: Array, seed: int) -> Data:
    order = np.random.default_rng(seed).permutation(len(y))[: sum(SIZES)]
    parts = np.split(order, np.cumsum(SIZES)[:-1])
    return {name: (X[part], y[part]) for name, part in zip("abc", parts, strict=True)}


def cancer(seed: int = 0) -> Data:
    read = load_breast_cancer()
    return dealt(read.data[:, [1, 4, 8, 9]], read.target.astype(float), seed)


def progression(seed: int = 0) -> Data:
    """Counts: a measure of disease, in steps of 25."""
    read = load_diabetes(scaled=False)
    return dealt(read.data[:, [0, 2, 3, 8]], np.floor(read.target / 25), seed)


def exact(data: Data, family: str) -> tuple[Array, Array]:
    """Means and sds of the coefficients of standardised columns, the intercept first: by many draws about the mode."""
    X, y = (np.concatenate(parts) for parts in zip(*data.values(), strict=True))
    X = np.column_stack([np.ones(len(X)), (X - X.mean(axis=0)) / X.std(axis=0)])
    level = y.mean() if family == "poisson" else y.mean() / (1 - y.mean())
    centre, weight = np.array([np.log(level), 0, 0, 0, 0]), np.array([5.0, 2.5, 2.5, 2.5, 2.5]) ** -2.0
    at = centre.copy()
    for _ in range(100):
        mean = np.exp(X @ at) if family == "poisson" else np.exp(log_expit(X @ at))
        H = (X.T * (mean if family == "poisson" else mean * (1 - mean))) @ X + np.diag(weight)
        at = at + np.linalg.solve(H, X.T @ (y - mean) - weight * (at - centre))
    q = multivariate_t(at, 1.1 * np.linalg.inv(H), df=7, seed=1)
    draws = q.rvs(20_000)
    eta = draws @ X.T
    rows = y * eta - np.exp(eta) - gammaln(y + 1) if family == "poisson" else y * log_expit(eta) + (1 - y) * log_expit(-eta)
    log_w = rows.sum(axis=1) - 0.5 * ((draws - centre) ** 2 @ weight) - q.logpdf(draws)
    w = np.exp(log_w - log_w.max())
    w /= w.sum()
    mean = w @ draws
    return mean, np.sqrt(w @ (draws - mean) ** 2)


def off(result: fedkern.Result, data: Data, family: str) -> tuple[float, float]:
    """By how many sds the worst mean is off, and by what part the worst sd."""
    mean, sd = exact(data, family)
    rows = [result.parameters[name] for name in ("intercept_std", *(f"theta_std[x{k}]" for k in range(1, 5)))]
    means, sds = (np.array([row[key] for row in rows]) for key in ("mean", "sd"))
    return float(np.abs((means - mean) / sd).max()), float(np.abs(sds / sd - 1).max())


@pytest.mark.parametrize("family", ["bernoulli", "poisson"])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_posterior_is_that_of_all_rows(by_a_summary: Callable[..., None], family: str, seed: int) -> None:
    data = cancer(seed) if family == "bernoulli" else progression(seed)
    by_a_summary(0)
    result = fedkern.run({**JOB, "model": {"family": family}}, data=data)
    assert result.converged is True
    mean, sd = off(result, data, family)
    assert mean < 0.1
    assert sd < 0.05
    told = result.summary["summaries"]
    assert told["clients"] == {"a": {"rows": 49}}
    assert told["moved"] <= 0.1
    assert 0 <= told["remains"] <= 0.25
    assert 0 < told["share"] < 1
    assert "summaries-moved" in ids(result)
    assert find_ending(result, 0) == (0, None)
    # Nothing of its rows is in the checks of the model.
    assert result.summary["predictive"]["rows"] == 322


@pytest.mark.parametrize("family", ["cox", "weibull"])
def test_times_have_the_posterior_of_all_values(by_a_summary: Callable[..., None], family: str) -> None:
    rng = np.random.default_rng(4)
    data = {}
    for name, n in zip("abc", SIZES, strict=True):
        x, group, end = rng.normal(size=n), rng.integers(0, 2, n), rng.exponential(2.0, n)
        time = rng.weibull(1.3, n) * np.exp(-0.6 * x + 0.4 * group)
        data[name] = {"x": x, "group": group, "t": np.minimum(time, end), "d": (time <= end).astype(int)}
    job: dict[str, Any] = {"job": JOB["job"], "data": {"time": "t", "event": "d"}, "model": {"family": family}}
    by_a_summary(0, 1, 2)
    assert fedkern.run({**job, "algorithm": {"approximate": True}}, data=data).converged == "approximate"
    by_a_summary()
    whole = fedkern.run(job, data=data)
    by_a_summary(0)
    result = fedkern.run(job, data=data)
    assert result.converged is whole.converged is True
    for name, numbers in whole.parameters.items():
        assert result.parameters[name]["mean"] == pytest.approx(numbers["mean"], abs=0.02 * numbers["sd"]), name
        assert result.parameters[name]["sd"] == pytest.approx(numbers["sd"], rel=0.02), name
    # Nothing of its rows is in the checks of the model.
    assert whole.summary["events"] - result.summary["events"] == data["a"]["d"].sum()


def test_a_result_in_which_summaries_weigh_much_is_approximate(by_a_summary: Callable[..., None]) -> None:
    data = cancer()
    by_a_summary(0, 1)
    result = fedkern.run(JOB, data=data)
    assert result.converged == "approximate"
    assert "summaries-moved" in ids(result)
    assert find_ending(result, 0) == (6, "the result is approximate, as its verdict says")
    mean, sd = off(result, data, "bernoulli")
    assert mean < 0.1
    assert sd < 0.05
    named = "by a summary, and in no check of the model but differences between clients: a (49 rows), b (106 rows)"
    assert repr(result).splitlines()[1:3] == ["371 rows, 3 clients, federated", named]
    assert [*describe_result(result)][: len(repr(result).splitlines())] == repr(result).splitlines()


def test_the_word_is_known_to_clients_and_readers() -> None:
    assert HEADS["approximate"] == "approximate"
    assert verdicts.read_verdict(verdicts.make_question("approximate", "approximate: so", ""))["converged"] == "approximate"


def test_a_job_of_summaries_alone_goes_on_unless_it_forbids_that(by_a_summary: Callable[..., None]) -> None:
    by_a_summary(0, 1, 2)
    with pytest.raises(JobError, match=r"clients 'a' and 'b' and 'c' have too few rows .* remove algorithm\.approximate = false"):
        fedkern.run({**JOB, "algorithm": {"approximate": False}}, data=cancer())
    far = fedkern.run(JOB, data=cancer())
    assert far.converged is False
    by_a_summary(0, 1, 2, numbers=200)
    near = fedkern.run(JOB, data=cancer())
    assert near.converged in (True, "approximate")
    mean, sd = off(near, cancer(), "bernoulli")
    assert mean < 0.3
    assert sd < 0.15
    assert "predictive" not in near.summary


def test_small_clients_whose_rows_do_for_more_questions_end_in_the_posterior_as_signed_sums_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(holders, "refuses_near", lambda policies: True)
    rng = np.random.default_rng(1)
    X = {name: rng.normal(size=(55, 4)) for name in "abc"}
    data = {name: (x, (rng.random(55) < 1 / (1 + np.exp(-x[:, 0] + 0.5 * x[:, 1]))) * 1.0) for name, x in X.items()}
    apart = {**JOB, "disclosure": {"level": "standard"}}
    every = fedkern.run(JOB, data=data).rows()
    alone = fedkern.run(apart, data=data)
    assert {*alone.summary["summaries"]["clients"]} == {*"abc"}
    for result in (alone, fedkern.run({**apart, "job": {**JOB["job"], "sums": "secure"}}, data=data, place=Signing(data))):
        assert result.converged is True
        for own, whole in zip(result.rows(), every, strict=True):
            assert abs(own["mean"] - whole["mean"]) < 0.1 * whole["sd"]
            assert abs(own["sd"] / whole["sd"] - 1) < 0.1


def test_a_posterior_that_is_far_from_normal_is_not_taken_for_one(by_a_summary: Callable[..., None]) -> None:
    """Of each client 4 rows of 60 have the event, of which one number says little: the mode moves no more, and the sd is off."""
    rng = np.random.default_rng(5)
    data = {}
    for name in "abc":
        X = np.column_stack([np.exp(rng.normal(size=(60, 2))), rng.permutation(np.arange(60) < 9)])
        data[name] = (X, rng.permutation(np.arange(60) < 4).astype(float))
    by_a_summary(0, 1, 2)
    result = fedkern.run(JOB, data=data)
    assert result.summary["summaries"]["remains"] > 0.25
    assert result.converged == "approximate"


@pytest.mark.parametrize(
    ("sections", "what"),
    [
        ({"algorithm": {"sampler": "hmc"}}, r"algorithm\.sampler = \"hmc\""),
        ({"model": {"family": "bernoulli", "random": {"client": True}}}, r"\[model\.random\]"),
        ({"job": {**JOB["job"], "sums": "secure"}, "disclosure": {"level": "strict"}}, r"job\.sums = \"secure\""),
        ({"model": {"family": "negative-binomial"}}, r"model\.family = \"negative-binomial\""),
    ],
)
def test_jobs_without_summaries_say_so(by_a_summary: Callable[..., None], sections: dict[str, Any], what: str) -> None:
    by_a_summary(0)
    wanted = f"client 'a' has too few rows for values of the likelihood at draws, and no client takes part by a summary .* {what}"
    with pytest.raises(JobError, match=wanted):
        fedkern.run({**JOB, **sections}, data=cancer())
    with pytest.raises(JobError, match=wanted):
        fedkern.check({**JOB, **sections}, data=cancer())


def test_no_summary_is_asked_for_where_a_hazard_walks() -> None:
    """Refused by its rows, and not in the middle of the job."""
    rng = np.random.default_rng(1)
    data = {name: pd.DataFrame({"x": rng.normal(size=40), "t": rng.exponential(size=40), "e": 1}) for name in "abc"}
    model = {"family": "piecewise", "formula": "Surv(t, e) ~ x", "cuts": [0.5, 1.5]}
    with pytest.raises(JobError, match=r"and 2 numbers of the family; more than 48 rows are asked for"):
        fedkern.run({"job": {"method": "likelihood"}, "model": model, "disclosure": {"level": "standard"}}, data=data)


def test_a_summary_tells_fewer_numbers_than_a_client_has_cells(by_a_summary: Callable[..., None]) -> None:
    """Of 5 columns 42 numbers, and one of what remains, which are more than .8 of 9 rows of 5, and not of 11."""
    by_a_summary(0)
    whole = cancer()
    for n in (9, 11):
        data = whole | {"a": (whole["a"][0][:n], whole["a"][1][:n])}
        if n == 11:
            assert fedkern.run(JOB, data=data).converged is True
            continue
        with pytest.raises(
            JobError, match=r"9 rows of 5 columns may tell 36 numbers, and a summary is of 43: take fewer columns"
        ):
            fedkern.run(JOB, data=data)
    with pytest.raises(OwnFault, match=r"^client 'a': refused by a disclosure rule") as fault:
        summaries.check_rows(9, 5, 5, 2, "a", "a.csv")
    assert "client 'a', a.csv: 9 rows" in fault.value.own


def test_a_separated_summary_takes_part(by_a_summary: Callable[..., None]) -> None:
    """All its responses are 1."""
    by_a_summary(0)
    data = cancer()
    data["a"] = (data["a"][0], np.ones(49))
    result = fedkern.run(JOB, data=data)
    assert result.converged in (True, "approximate")
    if result.converged is True:
        mean, sd = off(result, data, "bernoulli")
        assert mean < 0.1
        assert sd < 0.1


@pytest.mark.parametrize("family", ["ordinal", "multinomial"])
def test_ordered_and_nominal_levels(by_a_summary: Callable[..., None], family: str) -> None:
    by_a_summary(0)
    read = load_diabetes(scaled=False)
    data = dealt(read.data[:, [0, 2, 3, 8]], np.digitize(read.target, [100.0, 180.0]).astype(float), 0)
    job = {**JOB, "model": {"family": family}, "data": {"response": "y", "levels": ["0", "1", "2"]}}
    result = fedkern.run(job, data=data)
    by_a_summary()  # nobody
    whole = fedkern.run(job, data=data)
    assert result.converged in (True, "approximate")
    for name, row in whole.parameters.items():
        assert abs(result.parameters[name]["mean"] - row["mean"]) < 0.1 * row["sd"]
        assert abs(result.parameters[name]["sd"] / row["sd"] - 1) < 0.06


def test_measured_responses(by_a_summary: Callable[..., None]) -> None:
    """Any log-likelihood of rows without effects can be averaged: with numbers beside its coefficients, too."""
    by_a_summary(0)
    read = load_diabetes(scaled=False)
    data = dealt(read.data[:, [0, 2, 3, 8]], read.target, 0)
    for family in ("gaussian", "student"):
        job = {**JOB, "model": {"family": family}}
        result = fedkern.run(job, data=data)
        by_a_summary()  # nobody
        whole = fedkern.run(job, data=data)
        by_a_summary(0)
        assert result.converged is True
        for name, row in whole.parameters.items():
            if name != "nu":  # of which the rows say little
                assert abs(result.parameters[name]["mean"] - row["mean"]) < 0.1 * row["sd"]
                assert abs(result.parameters[name]["sd"] / row["sd"] - 1) < 0.06


def test_checks_and_sites_are_those_of_the_others(by_a_summary: Callable[..., None]) -> None:
    by_a_summary(0)
    job = {**JOB, "output": {"loo": True, "marginal": True, "sites": True, "without": True}}
    result = fedkern.run(job, data=cancer())
    assert result.summary["loo"]["rows"] == result.summary["marginal"]["rows"] == 322
    assert sorted(result.summary["sites"]) == ["b", "c"]
    assert sorted(result.summary["without"]) == ["a", "b", "c"]
    assert not any("'a'" in note for note in result.notes)


def test_events_that_are_not_known_are_not_called_few(by_a_summary: Callable[..., None]) -> None:
    """Of a client by a summary no events are counted: those of the others are not all."""
    rng = np.random.default_rng(2)
    data = {
        name: (rng.normal(size=(n, 3)), (np.arange(n) % 8 == 0).astype(float)) for name, n in (("a", 300), ("b", 50), ("c", 50))
    }
    by_a_summary(0)
    assert "few-events" not in ids(fedkern.run(JOB, data=data))
    by_a_summary()  # nobody
    assert "few-events" in ids(fedkern.run(JOB, data={name: data[name] for name in "bc"}))


def test_rows_that_lack_a_cell_are_counted_of_all(by_a_summary: Callable[..., None]) -> None:
    """It is before the rounds, as the summary."""
    data = cancer()
    data["a"][0][:3, 0] = np.nan
    by_a_summary(0)
    result = fedkern.run({**JOB, "model": {"family": "bernoulli", "missing": "drop"}}, data=data)
    assert any("a 3 of 49" in note for note in result.summary["notes"])


def test_a_run_that_died_goes_on_to_the_same_result(
    by_a_summary: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_a_summary(0, 1)
    job = {**JOB, "algorithm": {"checkpoint_every": 1e-6}}
    whole = fedkern.run(job, data=cancer())

    class Crash(Exception):
        pass

    deaths: list[Callable[[importance.Server], bool]] = [
        lambda server: bool(server.summing and len(server.answers) == 1),  # one of two has answered
        lambda server: not server.summing and server.quadratics.answered.sum() == 2,
        lambda server: bool(server.summing and server.quadratics.answered.sum() == 2 and len(server.answers) == 1),
        lambda server: server.quadratics.answered.sum() == 4,
    ]
    for i, death in enumerate(deaths):
        out = tmp_path / str(i)

        def observe(self: RunHooks, state: object, event: object, death: Any = death) -> None:
            if isinstance(state, importance.Server) and death(state):
                raise Crash

        with monkeypatch.context() as patched:
            patched.setattr(RunHooks, "observe", observe)
            with pytest.raises(Crash):
                fedkern.run(job, data=cancer(), out=out)
        assert fedkern.run(job, data=cancer(), out=out, resume=True).digest == whole.digest


def test_counts_that_nobody_can_check_are_approximate_by_summaries_alone(by_a_summary: Callable[..., None]) -> None:
    """Of such counts Poisson's intervals are three times too narrow, and no client has rows enough to see it."""
    random = np.random.default_rng(4)
    data: Data = {}
    for name in "ab":
        X = random.normal(size=(75, 2))
        data[name] = (X, random.poisson(8 * random.gamma(1.0, 1.0, 75) * np.exp(0.3 * X[:, 0])).astype(float))
    by_a_summary(0, 1)
    poisson: dict[str, Any] = {**JOB, "model": {"family": "poisson"}}
    result = fedkern.run(poisson, data=data)
    assert result.converged == "approximate"
    assert "whether responses vary more than this family makes them" in result.summary["verdict"]
    assert "sites-differ" not in ids(result)


@pytest.mark.parametrize("family", ["lognormal", "student"])
def test_summaries_that_lead_to_no_mode_end_with_what_does(by_a_summary: Callable[..., None], family: str) -> None:
    """A residual scale a tenth of what the prior expects: quadratics about the prior's mode have none."""
    random = np.random.default_rng(5)
    data: Data = {}
    for name in "abcdefgh":
        X = random.normal(size=(60, 2))
        data[name] = (X, np.exp(2 + X @ [0.5, 0.3] + random.normal(0, 0.05, 60)))
    job: dict[str, Any] = {**JOB, "model": {"family": family}}
    by_a_summary(*range(8))
    with pytest.raises(NumericalError, match=r"lower disclosure\.rows_per_coefficient until none takes part by a summary"):
        fedkern.run(job, data=data)
    by_a_summary()
    assert fedkern.run(job, data=data).converged is True


@pytest.mark.parametrize("joined", [True, False])
def test_signed_sums_are_proposed_with_the_levels_that_have_joined(joined: bool) -> None:
    """By default no level joins there, and a job whose levels have joined would be refused for these."""
    found = SimpleNamespace(summed=(0.5, 0.5, 0.1))
    verdict = Verdict.of(True, Finding.of("k-hat", k_hat=0.1, wanted=0.7))
    said = str(summaries.judged(verdict, found, may_sign=True, unchecked=False, joined=joined))  # type: ignore[arg-type]
    assert 'set job.sums = "secure"' in said
    assert ('disclosure.rare = "join"' in said) == joined


def test_of_ordered_levels_all_clients_may_take_part_by_summaries() -> None:
    """Nobody was asked where coefficients are 0: whether a client has its levels the other way round is not looked at."""
    random, data = np.random.default_rng(2), {}
    for name in ("ada", "bo"):
        x = random.normal(size=(50, 2))
        y = np.digitize(x[:, 0] + random.logistic(size=50), (-0.8, 0.8))
        data[name] = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": np.array(["low", "middle", "high"])[y]})
    job: dict[str, Any] = {"job": {"method": "likelihood"}, "data": {"response": "y", "levels": ["low", "middle", "high"]}}
    result = fedkern.run({**job, "model": {"family": "ordinal"}, "disclosure": {"level": "standard"}}, data=data)
    assert set(result.summary["summaries"]["clients"]) == set(data)
    assert "failed" not in str(result.summary["verdict"])
