"""Clients that come to a run or go: against runs of the same clients, who is asked, what is refused, and what is kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.algorithms.importance import draws, extension
from fedkern.cli.__main__ import main
from fedkern.errors import HolderError, JobError, OwnFault
from fedkern.jobs.hooks import RunHooks
from fedkern.transports.codec import unpack
from support import found
from support.command import mpirun

JOB: dict[str, Any] = {"job": {"method": "likelihood"}, "data": {"response": "y"}}
GAUSSIAN: dict[str, Any] = {**JOB, "model": {"family": "gaussian"}}
KEPT = {"extendable": True, "without": True}


def rows(seed: int, n: int, *, shift: float = 0.0, family: str = "bernoulli") -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    X = 10 + 4 * (rng.normal(size=(n, 2)) + shift)
    eta = 0.3 + (X - 10) @ [0.15, -0.1]
    if family == "bernoulli":
        y = (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(int)
    elif family == "ordinal":
        y = np.digitize(eta + rng.logistic(size=n), [-1, 0.8])
    else:
        y = 100 + 20 * (eta + rng.normal(size=n))
    sex = rng.choice(["f", "m"], n)
    ward = rng.integers(0, 8, n)
    return pd.DataFrame({"age": X[:, 0], "bmi": X[:, 1], "sex": sex, "y": y, "ward": [f"w{k}" for k in ward]})


def client(seed: int, n: int, **more: Any) -> pd.DataFrame:
    return rows(seed, n, **more).drop(columns="ward")


DATA = {name: client(k, 250) for k, name in enumerate("abc")}
SMALL, LARGE = {"e": client(9, 25)}, {"e": client(9, 600, shift=0.6)}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return fedkern.run(JOB, data=DATA, output=KEPT, out=tmp_path_factory.mktemp("runs") / "first")


def compare(result: Any, full: Any) -> None:
    """Both results are one, as far as two of them can be: means to .05 sd, sds to 5 %, and the draws of both scatter."""
    for name, row in full.parameters.items():
        if "_std" not in name:  # columns have the constants of the earlier run
            own = result.parameters[name]
            assert abs(own["mean"] - row["mean"]) < 0.08 * row["sd"], name
            assert abs(own["sd"] / row["sd"] - 1) < 0.07, name


def senders(folder: Path) -> set[str]:
    return {row["who"] for row in fedkern.ledger(folder).rows()}


@pytest.mark.digits
def test_a_small_client_comes_alone(first: Any, tmp_path: Path) -> None:
    result = fedkern.add(first, SMALL, out=tmp_path / "plus")
    assert result.converged is True
    assert result.summary["extends"]["stage"] == "alone"
    compare(result, fedkern.run(JOB, data={**DATA, **SMALL}))
    assert senders(tmp_path / "plus") == {"e"}, "no message of the others"
    (values,) = found.said(result, "points-reach")
    assert values["k_hat"] <= extension.K_HAT
    assert "extends-a-run" in found.ids(result)
    assert {*result.summary["clients"]} == {*"abce"}
    assert fedkern.load(tmp_path / "plus").digest == result.digest
    assert "log_evidence" not in result.summary


@pytest.mark.digits
def test_a_large_client_needs_all(first: Any, tmp_path: Path) -> None:
    alone = fedkern.add(first, LARGE)
    assert alone.converged is False
    assert "points-do-not-reach" in found.ids(alone)
    result = fedkern.add(first, LARGE, data=DATA, out=tmp_path / "plus")
    assert (result.converged, result.summary["extends"]["stage"]) == (True, "together")
    compare(result, fedkern.run(JOB, data={**DATA, **LARGE}))
    folder = tmp_path / "plus-together"
    kinds = {(row["who"], row["what"]) for row in fedkern.ledger(folder).rows()}
    assert {who for who, what in kinds if what == "Curvature"} == {"e"}, "steps are asked of the newcomer alone"
    assert {who for who, what in kinds if what == "Values"} == {*"abce"}


@pytest.mark.digits
def test_a_client_goes_and_nobody_is_asked(first: Any, tmp_path: Path) -> None:
    data = {**DATA, "d": client(7, 40)}
    run = fedkern.run(JOB, data=data, output=KEPT, out=tmp_path / "first")
    result = fedkern.drop(run, "d", out=tmp_path / "less")
    assert (result.converged, result.summary["extends"]["stage"]) == (True, "without")
    compare(result, fedkern.run(JOB, data=DATA))
    assert {*result.summary["clients"]} == {*"abc"}
    assert not (tmp_path / "less" / "ledger").exists()
    assert fedkern.drop(first, "b").converged is False, "a third of the rows is more than weights can take away"


@pytest.mark.digits
def test_a_run_that_is_extended_may_be_extended_again(first: Any, tmp_path: Path) -> None:
    second = fedkern.add(first, SMALL, output={"extendable": True}, out=tmp_path / "second")
    more = {"f": client(11, 12)}
    third = fedkern.add(second, more)
    assert third.converged is True
    assert {*third.summary["clients"]} == {*"abcef"}
    compare(third, fedkern.run(JOB, data={**DATA, **SMALL, **more}))


@pytest.mark.digits
@pytest.mark.parametrize("kind", ["gaussian", "groups", "ordinal"])
def test_units_effects_and_levels_are_the_runs(kind: str, tmp_path: Path) -> None:
    family = {"groups": "bernoulli"}.get(kind, kind)
    job: dict[str, Any] = {**JOB, "model": {"family": family}}
    make = client
    if kind == "ordinal":
        job["data"] = {"response": "y", "levels": ["0", "1", "2"]}
    if kind == "groups":
        job["model"]["random"] = {"group": "ward"}
        make = rows
    data = {name: make(k, 300, family=family) for k, name in enumerate("abc")}
    new = {"e": make(9, 25, family=family)}
    run = fedkern.run(job, data=data, output=KEPT, out=tmp_path / "first")
    result = fedkern.add(run, new, data=data)
    assert result.converged is True
    compare(result, fedkern.run(job, data={**data, **new}))


def test_the_newcomer_reads_what_it_tells_before_it_answers(
    first: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    usual = RunHooks.sending

    def sending(hooks: RunHooks, *arguments: Any) -> None:
        read.append(capsys.readouterr().err)
        usual(hooks, *arguments)

    monkeypatch.setattr(RunHooks, "sending", sending)
    fedkern.add(first, SMALL)
    assert "the result less that run's tells their likelihood alone" in read[0]


def test_points_are_kept_to_the_last_bit_and_without_clients_where_none_is_asked_for(first: Any, tmp_path: Path) -> None:
    def values(folder: Path) -> np.ndarray:
        saved = unpack((folder / "points.bin").read_bytes())
        return np.concatenate([saved[name] for name in sorted(saved) if name.endswith("values")])

    sums = fedkern.run(JOB, data=DATA, output={"extendable": True}, out=tmp_path / "sums")
    assert sums.digest == first.digest
    apart, together = values(first.folder), values(tmp_path / "sums")
    np.testing.assert_array_equal(apart.sum(axis=-1), together[..., 0])
    assert (apart.shape[-1], together.shape[-1]) == (3, 1)
    with pytest.raises(JobError, match=r"the run has the sum of all clients' values alone; run it again with output\.without"):
        fedkern.drop(sums, "a")


def test_weights_that_few_draws_or_a_tail_decide_are_not_settled(monkeypatch: pytest.MonkeyPatch, first: Any) -> None:
    monkeypatch.setattr(extension, "errors", lambda state, posterior: (0.0, 1.0))
    assert fedkern.add(first, SMALL).converged is False, "its standard deviations may be off"
    monkeypatch.undo()
    monkeypatch.setattr(draws.Weighted, "k_hat", 0.6)
    assert fedkern.add(first, SMALL).converged is False, "its weights have a tail"


@pytest.mark.parametrize(
    ("newcomers", "why"),
    [
        ({"a": client(9, 60)}, "'a' is in the run already"),
        ({"e": client(9, 60).assign(extra=1.0)}, "columns that the earlier run has not"),
        ({"e": client(9, 60).drop(columns="bmi")}, "column 'bmi' is missing"),
        ({"e": client(9, 60).assign(sex="x")}, "unknown level|not among|level"),
        ({"e": client(9, 60).assign(age=lambda frame: frame["age"] * 100)}, "another unit than the earlier run"),
        ({"e": client(9, 200).assign(y=lambda frame: 1 - frame["y"])}, "outcome seems to be coded the other way round"),
        ({"e": DATA["a"].sample(frac=1, random_state=1)}, "clients 'a', 'e' have as many rows"),
    ],
)
def test_newcomers_that_do_not_fit_the_run(first: Any, newcomers: dict[str, pd.DataFrame], why: str) -> None:
    with pytest.raises((JobError, OwnFault), match=why):
        fedkern.add(first, newcomers)


def test_a_response_in_another_unit_is_refused(tmp_path: Path) -> None:
    data = {name: client(k, 100, family="gaussian") for k, name in enumerate("abc")}
    run = fedkern.run(GAUSSIAN, data=data, output=KEPT, out=tmp_path / "first")
    new = client(9, 60, family="gaussian")
    with pytest.raises(JobError, match="another unit than the earlier run"):
        fedkern.add(run, {"e": new.assign(y=new["y"] * 1000)})


def lifetimes(seed: int, n: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age, dose = rng.normal(size=(2, n))
    times, ends = rng.exponential(size=(2, n)) * [[300.0], [150.0]] * np.exp([-0.8 * age + 0.6 * dose, 0 * age])
    return pd.DataFrame({"age": age, "dose": dose, "days": np.minimum(times, ends), "died": (times < ends).astype(int)})


@pytest.mark.parametrize(
    ("family", "change", "why"),
    [
        ("weibull", {"days": lambda frame: frame["days"] / 365.25}, "years for days would be 365.25"),
        ("weibull", {"died": lambda frame: 1 - frame["died"]}, "outcome seems to be coded the other way round"),
        ("cox", {"died": lambda frame: 1 - frame["died"]}, "outcome seems to be coded the other way round"),
        ("cox", {"days": lambda frame: frame["days"] / 365.25}, ""),  # whose ratios do not depend on units of time
    ],
)
def test_times_and_events_are_compared_with_the_runs(family: str, change: dict[str, Any], why: str, tmp_path: Path) -> None:
    formula, data = "Surv(days, died) ~ age + dose", {name: lifetimes(k, 200) for k, name in enumerate("abc")}
    run = fedkern.fit(formula, data, family, output={"extendable": True}, out=tmp_path / "first")
    new = lifetimes(9, 150)
    fedkern.add(run, {"e": new})
    if why:
        with pytest.raises(JobError, match=why):
            fedkern.add(run, {"e": new.assign(**change)})
    else:
        fedkern.add(run, {"e": new.assign(**change)})


def test_levels_of_a_scale_that_runs_the_other_way_are_compared_with_the_runs(tmp_path: Path) -> None:
    job: dict[str, Any] = {**JOB, "model": {"family": "ordinal"}, "data": {"response": "y", "levels": ["0", "1", "2"]}}
    data = {name: client(k, 300, family="ordinal") for k, name in enumerate("abc")}
    run = fedkern.run(job, data=data, output={"extendable": True}, out=tmp_path / "first")
    new = client(9, 200, family="ordinal")
    fedkern.add(run, {"e": new})
    with pytest.raises(JobError, match="does '2' of column 'y' mean there what '0' means elsewhere"):
        fedkern.add(run, {"e": new.assign(y=2 - new["y"])})


def test_clients_that_repeat_one_design_are_no_twins(tmp_path: Path) -> None:
    """All have seen their patients on the same days: that they are alike says nothing of a newcomer who has, too."""

    def visits(seed: int) -> pd.DataFrame:
        days = np.tile(np.arange(10.0), 12)
        return pd.DataFrame({"day": days, "y": 5 + 0.3 * days + np.random.default_rng(seed).normal(size=120)})

    run = fedkern.run(GAUSSIAN, data={"a": visits(1), "b": visits(2)}, output=KEPT, out=tmp_path / "first")
    assert {*fedkern.add(run, {"e": visits(3)}).summary["clients"]} == {*"abe"}


def test_a_newcomer_to_an_extended_run_is_compared_with_the_first_clients(first: Any, tmp_path: Path) -> None:
    second = fedkern.add(first, SMALL, output={"extendable": True}, out=tmp_path / "second")
    with pytest.raises(JobError, match="clients 'a', 'f' have as many rows"):
        fedkern.add(second, {"f": DATA["a"]})


def test_runs_that_cannot_be_extended(first: Any, tmp_path: Path) -> None:
    plain = fedkern.run(JOB, data=DATA, out=tmp_path / "plain")
    with pytest.raises(JobError, match=r"the run has kept no points; run it again with output\.extendable = true"):
        fedkern.add(plain, SMALL)
    with pytest.raises(JobError, match="the run has no folder"):
        fedkern.add(fedkern.run(JOB, data=DATA, output=KEPT), SMALL)
    with pytest.raises(JobError, match=r"model\.prior_sd is None there and 1\.0 here; take the run's"):
        fedkern.add(first, SMALL, model={"prior_sd": 1.0})
    with pytest.raises(JobError, match="clients are a, b, c; name one of them"):
        fedkern.drop(first, "z")
    with pytest.raises(JobError, match="give them as tables, too"):
        fedkern.add(first, "e.csv", data=DATA)
    with pytest.raises(JobError, match="'b' of the run is missing"):
        fedkern.add(first, LARGE, data={name: DATA[name] for name in "ac"})
    summary = json.loads((first.folder / "summary.json").read_text())
    (tmp_path / "other").mkdir()
    for name in ("job.json", "posterior.nc"):
        (tmp_path / "other" / name).write_bytes((first.folder / name).read_bytes())
    (tmp_path / "other" / "summary.json").write_text(json.dumps({**summary, "converged": False}))
    with pytest.raises(JobError, match="the run has not converged"):
        fedkern.add(tmp_path / "other", SMALL)


@pytest.mark.parametrize(
    ("sections", "why"),
    [
        ({"algorithm": {"sampler": "hmc"}}, "is not for own models, chains and sfvi"),
        ({"algorithm": {"client_weights": {"a": 0.5}}}, "powers are of the clients"),
        ({"job": {"drops": "a"}}, r"job\.drops names a client of job\.extends"),
    ],
)
def test_jobs_that_keep_no_points(sections: dict[str, Any], why: str) -> None:
    with pytest.raises(JobError, match=why):
        fedkern.run(JOB, data=DATA, output={"extendable": True}, **sections)


def with_policy(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder / "home"))
    (folder / "home" / ".fedkern").mkdir(parents=True)
    (folder / "home" / ".fedkern" / "policy.toml").write_text(f"open = true\nvalues = true\n{text}\n")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[data.b]", r"to allow that on these data \(extendable = true\)"),
        ('extendable = true\n[data.b.disclosure]\ndifferencing = "refuse"', "refuses jobs that differ by little"),
        ("extendable = true\n[data.b]", None),
        ("[data.b]\nextendable = true", None),
    ],
)
def test_a_holder_allows_it_in_the_run_to_which_others_come(
    text: str, why: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_policy(tmp_path, text, monkeypatch)
    if why is None:
        assert fedkern.run(JOB, data=DATA, output={"extendable": True}) is not None
        return
    with pytest.raises(HolderError, match=why):
        fedkern.run(JOB, data=DATA, output={"extendable": True})


def test_a_policy_says_at_once_all_that_it_does_not_allow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_policy(tmp_path, "[data.b]\nvalues = false", monkeypatch)
    with pytest.raises(HolderError, match=r"\(values = true\).*\(extendable = true\)"):
        fedkern.run(JOB, data=DATA, output=KEPT)


def test_a_newcomer_that_refuses_differences_is_not_asked(first: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_policy(tmp_path, '[disclosure]\ndifferencing = "refuse"\n[data.e]', monkeypatch)
    with pytest.raises(HolderError, match="refuses jobs that differ by little"):
        fedkern.add(first, SMALL, out=tmp_path / "plus")
    assert not (tmp_path / "plus" / "ledger").exists()


def test_with_secure_sums_the_sum_alone_is_kept(tmp_path: Path) -> None:
    run = fedkern.run(JOB, data=DATA, job={"sums": "secure"}, output={"extendable": True}, out=tmp_path / "first")
    assert run.summary["extendable"]["values"] == ["all"]
    result = fedkern.add(run, SMALL)
    assert result.converged is True
    with pytest.raises(JobError, match="one newcomer cannot hide in a sum; run all clients in one job"):
        fedkern.add(run, LARGE, data=DATA)
    with pytest.raises(JobError, match=r'output\.without = true and job\.sums_except = "without"'):
        fedkern.drop(run, "a")


def test_the_commands_do_the_same_with_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, frame in {**DATA, **SMALL, "g": LARGE["e"]}.items():
        frame.to_csv(f"{name}.csv", index=False)
    Path("job.toml").write_text(
        '[job]\nmethod = "likelihood"\n[data]\nclients = ["a.csv", "b.csv", "c.csv"]\nresponse = "y"\n'
        "[output]\nextendable = true\nwithout = true\n"
    )
    assert main(["run", "job.toml", "--out", "first", "--quiet"]) == 0
    assert main(["add", "first", "--client", "e.csv"]) == 0
    assert "results in first-with-e" in capsys.readouterr().out
    assert main(["add", "first", "--client", "g.csv"]) == 0
    assert json.loads(Path("first-with-g-together/summary.json").read_text())["extends"]["stage"] == "together"
    assert main(["drop", "first", "--client", "c"]) == 0
    assert Path("first-without-c/summary.json").exists()


def test_check_lists_what_a_newcomer_is_asked(first: Any) -> None:
    job = {**JOB, "job": {"method": "likelihood", "extends": str(first.folder)}}
    lines = fedkern.check(job, data=SMALL, verbose=True)
    kinds = {word for line in lines for word in line.split() if word[:1].isupper()}
    assert "Values" in kinds
    assert not {"Curvature", "AskCurvature"} & kinds, "steps are asked only where the others take part"
    assert "RareLevels" not in kinds, "columns are those of the run"


@pytest.mark.nightly
def test_ranks_do_the_same(tmp_path: Path) -> None:
    new = {"e": client(12, 60)}
    for name, frame in {**DATA, **new}.items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    head = '[job]\nmethod = "likelihood"\n{}[data]\nclients = {}\nresponse = "y"\n{}'
    jobs = {"first": ("", [*"abc"], "[output]\nextendable = true\n"), "alone": ('extends = "first"\n', ["e"], "")}
    jobs["together"] = ('extends = "first"\n', [*"eabc"], "")
    for name, (extends, clients, output) in jobs.items():
        path = tmp_path / f"{name}.toml"
        path.write_text(head.format(extends, json.dumps([f"{one}.csv" for one in clients]), output))
        ended = mpirun(1 + len(clients), "run", path, "--out", tmp_path / name)
        assert ended.code == 0, ended.err
    result = fedkern.add(tmp_path / "first", [str(tmp_path / "e.csv")])
    assert json.loads((tmp_path / "alone" / "summary.json").read_text())["digest"] == result.digest
    summary = json.loads((tmp_path / "together" / "summary.json").read_text())
    assert (summary["converged"], summary["extends"]["stage"]) == (True, "together")
