"""Jobs of files: the same bits over ranks and after a stop, keys that are refused, and rows that no such job can have."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm, poisson

import fedkern
from fedkern.cli import report
from fedkern.cli.__main__ import main
from fedkern.errors import FedkernError, JobError, OwnFault
from fedkern.methods import load
from fedkern.methods.likelihood import show
from support.command import mpirun
from support.found import clients, ids
from support.interrupted import Crash, run
from support.wards import write_wards

JOB = """
[job]
method = "likelihood"
seed = 2
[data]
clients = ["rows/*.csv"]
response = "y"
[model]
family = "poisson"
[model.random]
group = "ward"
[algorithm]
points = 256
effective = 100
[output]
draws = 50
chains = 2
"""
CLIENTS = ("ada", "bo", "cy")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job of three clients with eight wards each."""
    folder = tmp_path_factory.mktemp("job")
    write_wards(folder, CLIENTS)
    (folder / "job.toml").write_text(JOB)
    return folder


@pytest.fixture(scope="module")
def whole(files: Path) -> fedkern.Result:
    return fedkern.run(files / "job.toml")


@pytest.mark.parametrize("after", [1, 13, 21])
@pytest.mark.parametrize("how", ["stop", "crash"])
def test_a_job_that_goes_on_ends_with_the_same_bits(
    how: str, after: int, files: Path, whole: fedkern.Result, tmp_path: Path
) -> None:
    with pytest.raises((FedkernError, Crash)):
        run(files / "job.toml", tmp_path / "out", **{how: after})
    resumed = run(files / "job.toml", tmp_path / "out", resume=True)
    assert resumed is not None
    assert resumed.digest == whole.digest
    assert resumed.parameters == whole.parameters


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.nightly)])
def test_ranks_have_the_bits_of_one_process(ranks: int, files: Path, whole: fedkern.Result, tmp_path: Path) -> None:
    ended = mpirun(ranks, "run", files / "job.toml", "--out", tmp_path / "out", "--quiet")
    assert ended.code == 0, ended.err
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["digest"] == whole.digest


def test_what_a_run_writes_is_read_again(files: Path, whole: fedkern.Result, tmp_path: Path) -> None:
    made = fedkern.run(files / "job.toml", out=tmp_path / "out")
    read = fedkern.load(tmp_path / "out")
    assert read.parameters == made.parameters == whole.parameters
    assert read.rows(exp=True) == made.rows(exp=True)
    (slope,) = read.rows(exp=True)
    found = made.parameters["theta[time]"]
    assert slope["rate_ratio"] == pytest.approx(np.exp(found["q50"]))
    assert (slope["q025"], slope["q975"]) == pytest.approx((np.exp(found["q025"]), np.exp(found["q975"])))
    rows = files / "rows" / "ada.csv"
    np.testing.assert_allclose(read.prediction(rows).mean, made.prediction(rows).mean, rtol=1e-12)
    draws = made.posterior.groups(None)["posterior"].variables
    assert draws["theta"][1].shape == (2, 50, 1)
    theta, intercept, sd = (draws[name][1].reshape(-1, 1) for name in ("theta", "intercept", "group_sd[intercept]"))
    frame = pd.read_csv(rows)
    means = np.exp(intercept + theta * frame.time.to_numpy() + sd**2 / 2)  # over a new ward's effect
    np.testing.assert_allclose(read.prediction(rows).mean, means.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(read.prediction(rows).quantiles["q975"], np.quantile(means, 0.975, axis=0), rtol=1e-6)
    u = np.linspace(-9, 9, 801)
    eta = (intercept + theta * frame.time[0])[:, :, np.newaxis] + sd[:, :, np.newaxis] * u
    density = (poisson.pmf(frame.y[0], np.exp(eta)) * norm.pdf(u)).sum(axis=2).mean() * (u[1] - u[0])
    assert read.scores(frame[:1])["log_likelihood"] == pytest.approx(np.log(density), abs=1e-3)
    assert set(made.summary["sensitivity"]) == {"intercept", "theta[time]", "group_sd[intercept]"}


@pytest.mark.usefixtures("undrawn")
def test_a_tidy_table_has_the_names_of_r(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = fedkern.run(files / "job.toml", out=tmp_path / "out")
    for options, low in (([], made.parameters["theta[time]"]["q025"]), (["--exp"], made.rows(exp=True)[0]["q025"])):
        capsys.readouterr()
        assert main(["report", str(tmp_path / "out"), "--table", "csv", "--tidy", *options]) == 0
        found = pd.read_csv(io.StringIO(capsys.readouterr().out)).set_index("term")
        assert list(found.columns) == ["estimate", *([] if options else ["std.error"]), "conf.low", "conf.high"]
        assert found.loc["theta[time]", "conf.low"] == pytest.approx(low)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("privacy", {"privacy": {"epsilon": 1.0}}, 'method = "likelihood" has no private form.*take method = "pvi"'),
    ("precision", {"model": {"prior_precision": 4.0}}, r"give model\.prior_sd = 1 / sqrt\(prior_precision\)"),
    ("scale", {"model": {"scale": 2.0}}, "here the numbers of each family"),
    ("weight", {"data": {"weight": "w"}}, "data.weight_kind is missing: say what data.weight is"),
    ("points", {"algorithm": {"points": 1000}}, "wanted a power of two, such as 512 or 1024"),
    ("trials", {"data": {"trials": "n"}}, 'successes of trials are of model.family = "binomial" or "beta-binomial", not'),
    ("no trials", {"model": {"family": "binomial"}}, "data.trials is missing"),
    ("nothing random", {"model": {"random": {"group": None}}}, "has neither a group nor client = true"),
    ("slopes of nobody", {"model": {"random": {"client_slopes": ["time"]}}}, "client_slopes need model.random.client = true"),
    ("many slopes", {"model": {"random": {"slopes": ["a", "b", "c"]}}}, "wanted at most 2 different columns"),
    ("a slope that is ignored", {"data": {"ignore": ["time"]}, "model": {"random": {"slopes": ["time"]}}}, "no covariate"),
    ("the response", {"model": {"random": {"group": "y"}}}, 'model.random.group = "y" is also data.response'),
    ("no intercept", {"model": {"intercept": False, "random": {"client": True}}}, "deviation from an intercept"),
    ("cuda", {"job": {"device": "cuda"}}, "run on the host"),
]


def merged(tables: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(tables)
    for key, value in more.items():
        found[key] = merged(found.get(key, {}), value) if isinstance(value, Mapping) else value
        if value is None:
            del found[key]
    return found


@pytest.mark.parametrize(("more", "words"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_keys_that_contradict_each_other_are_refused(more: dict[str, Any], words: str, files: Path) -> None:
    load(files / "job.toml")
    tables = {
        "job": {"method": "likelihood"},
        "data": {"clients": ["rows/*.csv"], "response": "y"},
        "model": {"family": "poisson", "random": {"group": "ward"}},
    }
    with pytest.raises(JobError, match=words):
        load(merged(tables, more))


def _labels(label: Callable[[int], str]) -> Callable[[list[str]], list[str]]:
    def change(lines: list[str]) -> list[str]:
        cells = [line.split(",") for line in lines[1:]]
        return [lines[0], *(",".join([time, label(i), y]) for i, (time, _, y) in enumerate(cells))]

    return change


def _times(lines: list[str]) -> list[str]:
    cells = [line.split(",") for line in lines[1:]]
    return [lines[0], *(f"{int(ward[1:]) + 0.5},{ward},{y}" for _, ward, y in cells)]


ROWS: list[tuple[str, Callable[[list[str]], list[str]], dict[str, Any], str, str]] = [
    ("few groups", _labels(lambda i: f"r{i % 4}"), {}, "refused by disclosure.groups;", "4 groups"),
    ("a label a row", _labels(lambda i: f"r{i}"), {}, "another label in every row", "56 labels of 56 rows"),
    ("an empty label", _labels(lambda i: "" if i == 7 else f"r{i % 8}"), {}, "empty in some rows", "1 rows, first in line 9"),
    ("no column", lambda lines: [line.replace("ward", "room") for line in lines], {}, "column 'ward' is missing", "room"),
    ("no variation", _times, {"slopes": ["time"]}, "one value in every group", "8 groups"),
    ("no covariate", lambda lines: lines, {"slopes": ["age"]}, "column 'age' is no covariate", ""),
]


@pytest.mark.parametrize(("change", "random", "told", "own"), [case[1:] for case in ROWS], ids=[case[0] for case in ROWS])
def test_groups_that_no_such_job_can_have_are_told_without_a_cell(
    change: Callable[[list[str]], list[str]], random: dict[str, Any], told: str, own: str, files: Path, tmp_path: Path
) -> None:
    shutil.copytree(files, tmp_path / "job")
    path = tmp_path / "job" / "rows" / "bo.csv"
    path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")
    family = "negative-binomial" if "every row" in told else "poisson"  # poisson counts may have an effect of each row
    model = {"family": family, "missing": "error", "random": {"group": "ward", **random}}
    with pytest.raises(OwnFault, match=told) as raised:
        fedkern.run(
            tmp_path / "job" / "job.toml", model=model, disclosure={"level": "standard", "rows": 5, "rows_per_coefficient": 0}
        )
    assert own in raised.value.own
    assert not own or own not in str(raised.value)
    assert raised.value.args[0].startswith("client ")


def test_effects_of_clients_need_several(files: Path) -> None:
    with pytest.raises(JobError, match="an effect of each client needs at least two, and there is one"):
        fedkern.run(files / "job.toml", data={"clients": ["rows/ada.csv"]}, model={"random": {"client": True}})


def test_check_shows_a_holder_its_groups(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(files, tmp_path / "job")
    path = tmp_path / "job" / "rows" / "bo.csv"
    path.write_text("\n".join(_labels(lambda i: f"r{i % 4}")(path.read_text().splitlines())) + "\n")
    assert main(["check", str(tmp_path / "job" / "job.toml"), "--local", str(path)]) == 2
    assert "4 groups in column 'ward'; 5 are asked for" in capsys.readouterr().out


def test_check_says_to_a_holder_that_a_round_would_be_too_long(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = str(files / "rows" / "bo.csv")
    for deadline, long in (("1e9", False), ("1e-6", True)):
        assert main(["check", str(files / "job.toml"), "--set", f"job.deadline={deadline}", "--local", rows]) == 0
        said = capsys.readouterr().out
        assert ("a round of draws takes about " in said) == long
        assert ("(job.deadline) counts as lost; let job.deadline be at least " in said) == long


@pytest.mark.parametrize(
    ("table", "keys", "words"),
    [
        ("groups = 8", {}, ""),
        ("groups = 9", {}, "client 'bo': refused by a disclosure rule"),
        ("lower = false", {"groups": 4}, "refused by the holder's policy: numbers of [disclosure] lower what a client must have"),
        ('lower = false\nlevel = "standard"', {"groups": 5}, ""),
        ("", {"groups": 9}, "client 'ada': refused by disclosure.groups;"),
        ("groups = 9", {"small": "leave-out"}, ""),
    ],
)
def test_a_policy_raises_the_number_of_groups(
    table: str, keys: dict[str, Any], words: str, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".fedkern").mkdir()
    (tmp_path / ".fedkern" / "policy.toml").write_text(f"open = true\n[disclosure]\n{table}\n[data.bo]\n")
    job, sets = files / "job.toml", [f"--set=disclosure.{key}={value}" for key, value in keys.items()]
    assert main(["check", "--verbose", str(job), *sets]) == (2 if words else 0)
    said = capfd.readouterr()
    assert words in said.err
    assert "= 9" not in said.err + said.out
    assert ("client 'bo' is left out: " in said.out) == (keys.get("small") is not None)
    own = main(["check", str(job), *sets, "--local", str(files / "rows" / "bo.csv")])
    said = capfd.readouterr()
    assert own == (2 if words or keys.get("small") else 0), said
    if table == "groups = 9":
        assert "8 groups in column 'ward'; 9 are asked for" in said.out
        assert "lower groups in [disclosure] of its policy to 8" in said.out
        with pytest.raises(FedkernError, match="refused by a disclosure rule") if not keys else nullcontext():
            made = fedkern.run(job, disclosure=keys)
            assert [*made.summary["clients"]] == ["ada", "cy"]


@pytest.mark.usefixtures("undrawn")
def test_effects_of_groups_are_in_their_holders_folder_alone(files: Path, tmp_path: Path) -> None:
    made = fedkern.run(files / "job.toml", out=tmp_path / "out", output={"loo": True}, model={"random": {"client": True}})
    for name in CLIENTS:
        found = pd.read_csv(tmp_path / "out" / f"client-{name}" / "groups.csv")
        assert list(found.columns[:5]) == ["converged", "factor", "group", "rows", "intercept"]
        assert found.converged.all() == made.converged
        assert sorted(found.group) == [f"w{g}" for g in range(8)]
        assert (found["rows"] == 7).all()
        assert (found.intercept_q05 < found.intercept).all()
        own = pd.read_csv(files / "rows" / f"{name}.csv").groupby("ward").y.mean()
        assert np.corrcoef(found.set_index("group").intercept, own.loc[found.group])[0, 1] > 0.7
        assert found.sort_values("rank").intercept.is_monotonic_decreasing or found["rank"].corr(found.intercept) < -0.9
        assert len(pd.read_csv(tmp_path / "out" / f"client-{name}" / "client.csv")) == 1
    told = (tmp_path / "out" / "summary.json").read_text() + (tmp_path / "out" / "metrics.jsonl").read_text()
    assert '"w3' not in told
    predictive = made.summary["predictive"]
    assert 0.01 < predictive["p"]["zeros"] < 0.99
    assert sum(one["share"] for one in predictive["tenths"]) == pytest.approx(1)
    assert made.summary["loo"]["rows"] == 168
    page = report.write(tmp_path / "out").read_text()
    for title in ("Coefficients", "Variation", "Sensitivity to the prior", "Does the model fit?"):
        assert title in page
    elpd = f"elpd {made.summary['loo']['elpd']:.1f}"
    assert elpd in page
    assert f"rows without themselves: {elpd} (standard error" in "\n".join(show.describe_run(made.summary, made.stop))


def wards(seed: int, rows: int, *, r: float | None) -> pd.DataFrame:
    """Counts of twelve wards of sd .8, which in a ward are negative binomial with r, or Poisson."""
    rng = np.random.default_rng(seed)
    ward, x, time = rng.integers(0, 12, rows), rng.normal(size=rows).round(4), rng.uniform(0.2, 3, rows).round(3)
    mean = time * np.exp(1.5 + 0.4 * x + rng.normal(0, 0.8, 12)[ward])
    y = rng.poisson(mean) if r is None else rng.negative_binomial(r, r / (r + mean))
    return pd.DataFrame({"ward": [f"w{one}" for one in ward], "x": x, "logt": np.log(time).round(5), "y": y})


def test_wards_do_not_hide_that_counts_vary_inside_of_them() -> None:
    """Replications with new effects of wards vary so much that nothing is seen; and the remedy is followed to its end."""
    data = {"response": "y", "offset": "logt"}
    job = {"job": {"method": "likelihood"}, "data": data, "algorithm": {"points": 1024, "effective": 300}}
    frames = {name: wards(k, 150, r=2.0) for k, name in enumerate(CLIENTS)}
    poor = fedkern.run(job, data=frames, model={"family": "poisson", "random": {"group": "ward"}})
    assert poor.converged is False
    first = re.search(r"about ([\d.]+) times too narrow; set model.family = \"negative-binomial\"$", str(poor.summary["verdict"]))
    assert first is not None
    better = fedkern.run(job, data=frames, model={"family": "negative-binomial", "random": {"group": "ward"}})
    assert better.converged is True
    sds = [result.parameters["theta[x]"]["sd"] for result in (poor, better)]
    assert 0.6 * float(first[1]) < sds[1] / sds[0] < 1.6 * float(first[1])
    assert abs(better.parameters["theta[x]"]["mean"] - 0.4) < 3 * sds[1]
    right = fedkern.run(
        job, data={name: wards(k, 150, r=None) for k, name in enumerate(CLIENTS)},
        model={"family": "poisson", "random": {"group": "ward"}},
    )  # fmt: skip
    assert right.converged is True


def test_a_file_that_stands_in_two_places_is_no_second_client() -> None:
    frames = {name: wards(k, 60, r=None) for k, name in enumerate(CLIENTS)}
    job = {"job": {"method": "likelihood"}, "data": {"response": "y", "ignore": ["ward"]}, "model": {"family": "poisson"}}
    first, *_ = CLIENTS
    twice = fedkern.run(job, data={**frames, "copy": frames[first]})
    assert twice.converged is False
    assert {*clients(twice, "one-file-twice")} == {first, "copy"}
    assert "one-file-twice" not in ids(fedkern.run(job, data=frames))


def test_what_the_holder_alone_reads_of_its_rows(tmp_path: Path) -> None:
    """A ward that is written in two ways makes two groups; a file that was pasted into itself."""
    frames = {name: wards(k, 60, r=None) for k, name in enumerate(CLIENTS)}
    first, second, *_ = CLIENTS
    frames[first].loc[::2, "ward"] = frames[first].loc[::2, "ward"].str.upper()
    frames[second] = pd.concat([frames[second]] * 2)
    data = {"response": "y", "offset": "logt"}
    job = {"job": {"method": "likelihood"}, "data": data, "algorithm": {"points": 256, "effective": 50}}
    fedkern.run(job, data=frames, model={"family": "poisson", "random": {"group": "ward"}}, out=tmp_path / "out")
    notes = [json.loads((tmp_path / "out" / f"client-{name}" / "rows.json").read_text())["notes"] for name in CLIENTS]
    assert any("'W1', 'w1' differ in capitals or blanks alone, and are 2 groups" in note for note in notes[0])
    assert not any("groups" in note for other in notes[1:] for note in other)
    assert [any("stands in the file 2 times" in note for note in one) for one in notes] == [k == 1 for k in range(len(CLIENTS))]


def test_an_exposure_that_is_no_logarithm_is_named() -> None:
    frames = {name: wards(k, 100, r=None).assign(years=lambda one: 4 * np.exp(one["logt"])) for k, name in enumerate(CLIENTS)}
    data = {"response": "y", "offset": "years", "ignore": ["ward", "logt"]}
    wrong = fedkern.run({"job": {"method": "likelihood"}, "data": data, "model": {"family": "poisson"}}, data=frames).summary
    assert wrong["converged"] is False
    assert "see that it is the logarithm of the exposure (log 3, not 3)" in wrong["verdict"]
    last = max(frames)
    logged = {name: one.assign(days=one["logt"] + np.log(365) * (name == last)) for name, one in frames.items()}
    data = {"response": "y", "offset": "days", "ignore": ["ward", "logt", "years"]}
    other = fedkern.run({"job": {"method": "likelihood"}, "data": data, "model": {"family": "poisson"}}, data=logged).summary
    assert other["converged"] is False
    assert "of an exposure take the logarithm" not in other["verdict"]


def test_a_model_that_does_not_fit_is_said(files: Path) -> None:
    """Counts that vary more than Poisson ones, in a job without their groups."""
    wide = {}
    for k, name in enumerate(CLIENTS):
        rng = np.random.default_rng(k)
        time = rng.normal(size=60).round(4)
        wide[name] = pd.DataFrame({"time": time, "y": rng.negative_binomial(0.5, 0.5 / (0.5 + np.exp(1 + 0.2 * time)))})
    job = {"job": {"method": "likelihood"}, "data": {"response": "y"}, "algorithm": {"points": 256, "effective": 100.0}}
    poor = fedkern.run(job, data=wide, model={"family": "poisson"})
    assert poor.summary["predictive"]["p"]["variance"] < 0.01
    assert any("unlike those that were seen" in note for note in poor.summary["notes"])
    assert poor.summary["converged"] is False
    words = r"intervals are about ([\d.]+) times too narrow; set model.family = (\"[a-z-]+\"), or each row an effect of its own"
    first = re.search(words, str(poor.summary["verdict"]))
    assert first is not None
    assert (float(first[1]) > 1.5, first[2]) == (True, '"negative-binomial"')
    better = fedkern.run(job, data=wide, model={"family": "negative-binomial"})
    assert better.summary["converged"] is True
    assert 0.02 < better.summary["predictive"]["p"]["variance"] < 0.98
    compared = better.compare(poor)
    assert compared["log_bayes_factor"] > 20 > compared["error"]
    assert poor.compare(better)["log_bayes_factor"] == -compared["log_bayes_factor"]
    with pytest.raises(JobError, match="the two results have other clients"):
        better.compare(fedkern.run(job, data={"ada": wide["ada"], "bo": wide["bo"]}, model={"family": "poisson"}))


def test_a_gaussian_job_with_groups_asks_for_rows_of_each_combination() -> None:
    """As docs/how-to/files.md says: without groups what is sent are cross-products, which tell no combination."""
    rng = np.random.default_rng(4)
    frames = {}
    for name in CLIENTS:
        x, ward = rng.permutation(np.arange(120) % 60) + 20.0, np.arange(120) % 10
        frames[name] = pd.DataFrame({"age": x, "ward": [f"w{k}" for k in ward], "y": rng.normal(size=120)})
    job: dict[str, Any] = {"job": {"method": "likelihood"}, "data": {"response": "y"}, "disclosure": {"level": "strict"}}
    fedkern.check(job | {"data": {"response": "y", "ignore": ["ward"]}, "model": {"family": "gaussian"}}, data=frames)
    with pytest.raises(JobError, match="can take 60 combinations of values"):
        fedkern.check(job | {"model": {"family": "gaussian", "random": {"group": "ward"}}}, data=frames)


@pytest.mark.parametrize("family", ["bernoulli", "poisson", "gaussian"])
def test_jobs_on_other_responses_are_not_compared(family: str) -> None:
    """As many rows of the same name at the same clients, of another export: one event more in 90 rows, or one measurement."""
    rng = np.random.default_rng(6)
    draw = {"bernoulli": lambda n: rng.integers(0, 2, n), "poisson": lambda n: rng.poisson(2, n), "gaussian": rng.normal}[family]
    sizes: dict[str, Any] = {"size": 60} if family == "gaussian" else {"n": 60}
    frames = {name: pd.DataFrame({"x": rng.normal(size=60), "z": rng.normal(size=60), "y": draw(**sizes)}) for name in CLIENTS}
    other = {name: one.copy() for name, one in frames.items()}
    other["bo"].loc[3, "y"] = 1 - other["bo"].y[3] if family == "bernoulli" else other["bo"].y[3] + 1
    job: dict[str, Any] = {"job": {"method": "likelihood"}, "data": {"response": "y"}, "model": {"family": family}}
    job["algorithm"] = {"points": 256, "effective": 100}
    mine, theirs = (fedkern.run(job, data=one) for one in (frames, other))
    with pytest.raises(JobError, match=r"compare: 'y' has a mean of .*: the responses are not the same, .* on the same files"):
        mine.compare(theirs)
    fewer = fedkern.run(job, data={name: one.drop(columns="z") for name, one in frames.items()})
    assert abs(mine.compare(fewer)["log_bayes_factor"]) < 20


def test_a_number_is_no_column_of_many_levels() -> None:
    rows = pd.DataFrame({"x": np.arange(40) / 7, "y": np.arange(40) % 2})
    job = {"job": {"method": "likelihood"}, "data": {"response": "y"}, "disclosure": {"level": "strict"}}
    with pytest.raises(
        JobError, match=r"25 rows that count and 2 coefficients by its columns and levels; .*: take fewer columns;"
    ):
        fedkern.check(job, data={"a": rows.head(25)})


def test_columns_are_standardised_by_trials() -> None:
    """Successes out of trials have the prior of the same trials in rows of 0 and 1 (docs/spec/likelihood.md, section 4)."""
    rng, rows = np.random.default_rng(8), {}
    for name in CLIENTS:
        n = rng.integers(3, 12, 60)
        rows[name] = pd.DataFrame({"x": n / 3 + rng.normal(size=60).round(3), "y": rng.binomial(n, 0.4), "n": n})
    job: dict[str, Any] = {
        "job": {"method": "likelihood"},
        "data": {"response": "y"},
        "algorithm": {"points": 256, "effective": 100},
    }
    grouped = fedkern.run(job | {"data": {"response": "y", "trials": "n"}}, data=rows, model={"family": "binomial"})
    single = {}
    for name, one in rows.items():
        x = one.x.repeat(one.n).to_numpy()
        single[name] = pd.DataFrame({"x": x, "y": np.concatenate([np.arange(n) < y for y, n in zip(one.y, one.n)]).astype(int)})
    apart = fedkern.run(job, data=single, model={"family": "bernoulli"})
    (mine,), (theirs,) = grouped.summary["encoding"]["columns"], apart.summary["encoding"]["columns"]
    assert mine == {"name": "x", "center": pytest.approx(theirs["center"]), "scale": pytest.approx(theirs["scale"])}
    pooled = pd.concat(rows.values())
    assert abs(mine["scale"] - pooled.x.std()) > 0.01
    assert grouped.parameters["theta[x]"]["mean"] == pytest.approx(apart.parameters["theta[x]"]["mean"], rel=0.02)


def test_a_start_removes_the_fault_of_the_one_before(tmp_path):
    """A client that reads `too few rows` beside a finished job would not know what to believe."""
    job = {"job": {"method": "likelihood"}, "data": {"response": "y"}, "disclosure": {"level": "strict"}}
    rng = np.random.default_rng(4)

    def rows(n):
        return pd.DataFrame({"x": rng.normal(size=n), "y": rng.integers(0, 2, n)})

    with pytest.raises(JobError):
        fedkern.run(job, data={"a": rows(10), "b": rows(60)}, out=tmp_path / "run")
    assert (tmp_path / "run" / "client-a" / "holder.txt").exists()
    fedkern.run(job, data={"a": rows(60), "b": rows(60)}, out=tmp_path / "run")
    assert not (tmp_path / "run" / "client-a" / "holder.txt").exists()


def test_sites_that_repeat_one_design_are_no_file_twice_where_responses_are_their_own_or_the_job_says_so() -> None:
    x = np.linspace(0.0, 4.0, 60)
    design = np.column_stack([x, np.sin(3 * x)])
    data = {name: (design, 1 + design @ [2.0, -1.0] + wave(31 * x)) for name, wave in (("lab1", np.sin), ("lab2", np.cos))}
    job: dict[str, Any] = {"job": {"method": "likelihood"}, "model": {"family": "gaussian"}}
    assert fedkern.run(job, data=data).converged is True
    data["lab2"] = data["lab1"]
    doubted = fedkern.run(job, data=data)
    assert doubted.converged is False
    assert "every numeric covariate" in doubted.summary["verdict"]
    given = {"columns": {"x1": {"center": 2, "scale": 1}, "x2": {"center": 0, "scale": 1}}}
    assert fedkern.run({**job, "data": given}, data=data).converged is True
