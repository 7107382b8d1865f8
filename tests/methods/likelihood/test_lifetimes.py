"""Jobs of survival times whose baseline hazard all share: against long chains, and who is refused."""

from __future__ import annotations

import json
import runpy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.cli.__main__ import main
from fedkern.errors import FedkernError, JobError
from fedkern.kernels.families import ACCELERATED
from fedkern.methods import load
from fedkern.methods.likelihood import show
from support.found import clients, ids
from support.interrupted import Crash, run
from support.refusal import refusal

ROOT = Path(__file__).parents[3]
REFERENCE = ROOT / "benchmarks" / "results" / "survival_reference.json"
MADE = runpy.run_path(str(ROOT / "benchmarks" / "survival_reference.py"))
federation = MADE["federation"]
JOB = """
[job]
method = "likelihood"
seed = 4
[data]
clients = ["rows/*.csv"]
time = "months"
event = "died"
{data}
[model]
family = "{family}"
{model}
"""
SMALL = "[algorithm]\npoints = 1024\neffective = 300\n[output]\ndraws = 100\nchains = 2\n"
STRICT = '[disclosure]\nlevel = "strict"\n'
BY_WARD = '[model.random]\ngroup = "ward"'
OF_CHAINS = '\n[model.priors."group_sd[intercept]"]\nkind = "half-normal"\nsd = 1.0'  # the prior of the stored posteriors
KEYS = {
    "weibull": {"data": 'time_upper = "until"', "model": BY_WARD + OF_CHAINS},
    "exponential": {"model": BY_WARD + OF_CHAINS},
    "piecewise": {"model": "cuts = [6, 12, 24, 48]"},
    "cox": {},
    "lognormal-aft": {"data": 'time_upper = "until"', "model": BY_WARD + OF_CHAINS},
    "loglogistic-aft": {"model": BY_WARD + OF_CHAINS},
}


TOGETHER = '[model.random]\ngroup = "ward"\nentered_together = true'


def text(family: str, more: str = "", **keys: str) -> str:
    return JOB.format(family=family, **({"data": "", "model": ""} | KEYS[family] | keys)) + more


def written(folder: Path, frames: Mapping[str, pd.DataFrame], job: str) -> Path:
    (folder / "rows").mkdir(parents=True, exist_ok=True)
    for name, frame in frames.items():
        frame.to_csv(folder / "rows" / f"{name}.csv", index=False)
    (folder / "job.toml").write_text(job)
    return folder / "job.toml"


STORED = json.loads(REFERENCE.read_text())
ALL = [pytest.param(*name.split(), marks=[] if name.endswith(" 1") else pytest.mark.nightly) for name in STORED]


@pytest.mark.parametrize(("kind", "seed"), ALL)
def test_the_posterior_is_that_of_long_chains_over_the_pooled_rows(kind: str, seed: str, tmp_path: Path) -> None:
    """Means within .03 sd and sds within 3 %, and Monte-Carlo errors of both."""
    frames = federation(kind, int(seed))
    more = "[output]\ndraws = 8000\nchains = 2\n"
    result = fedkern.run(written(tmp_path, frames, text(kind, more)))
    assert result.converged is True, result.summary["verdict"]
    wanted, found = STORED[f"{kind} {seed}"], MADE["standard"](result, kind, frames)
    assert set(found) == set(wanted)
    for name, row in wanted.items():
        mean, sd = found[name].mean(), found[name].std()
        error = (1 / row["ess"] + 1 / result.summary["ess"]) ** 0.5
        assert abs(mean - row["mean"]) < (0.03 + 3 * error) * row["sd"], (name, (mean - row["mean"]) / row["sd"])
        assert abs(sd / row["sd"] - 1) < 0.03 + 3 * error, (name, sd / row["sd"])


# What is published --------------------

ASKED = SMALL + "survival_at = [12, 36]\nrestricted_mean = 48\n"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("weibull"), federation("weibull", 1), text("weibull", ASKED))


@pytest.fixture(scope="module")
def whole(files: Path) -> fedkern.Result:
    return fedkern.run(files, out=files.parent / "out")


@pytest.mark.usefixtures("undrawn")
def test_what_is_published_and_what_a_client_keeps(
    files: Path, whole: fedkern.Result, capsys: pytest.CaptureFixture[str]
) -> None:
    summary, out = whole.summary, files.parent / "out"
    frames = federation("weibull", 1)
    assert summary["events"] == sum(frame.died.sum() for frame in frames.values())
    assert 0.55 < summary["concordance"] < 0.8
    assert [row["time"] for row in summary["survival"]] == [12, 36]
    first, second = summary["survival"]
    assert 1 > first["q975"] > first["mean"] > first["q025"] > second["mean"] > 0
    assert 12 * first["mean"] < summary["restricted_mean"]["mean"] < 48
    tenths = [one["share"] for one in summary["predictive"]["tenths"]]
    assert sum(tenths) == pytest.approx(1)
    assert max(tenths) < 0.15
    ratios = {row["parameter"]: row for row in whole.rows(exp=True)}
    assert ratios["theta[dose]"]["hazard_ratio"] == pytest.approx(np.exp(whole.parameters["theta[dose]"]["q50"]))
    said = "\n".join(show.describe_run(summary, "done"))
    assert "hazard ratio" in str(whole)
    assert "without event at 12:" in said
    assert "mean time without event until 48:" in said
    assert main(["report", str(out)]) == 0
    page = (out / "report.html").read_text()
    assert "Concordance" in page
    assert "The probability to be without event" in page
    groups = pd.read_csv(out / "client-ada" / "groups.csv")
    assert sorted(groups.group) == [f"w{k}" for k in range(8)]
    capsys.readouterr()


def test_new_rows_are_foreseen_at_the_times_of_the_job(files: Path, whole: fedkern.Result, tmp_path: Path) -> None:
    """At the means of the covariates that is the curve of the result; a higher hazard is an earlier time."""
    frames = pd.concat([*federation("weibull", 1).values()])
    rows = pd.DataFrame({"age": [frames.age.mean(), frames.age.mean() + 20], "dose": [frames.dose.mean()] * 2})
    rows.to_csv(tmp_path / "new.csv", index=False)
    found = whole.prediction(tmp_path / "new.csv").columns
    for row in whole.summary["survival"]:
        name = f"survival[{row['time']:g}]"
        assert found[name][0] == pytest.approx(row["mean"], abs=1e-6)
        assert found[f"{name}_q025"][0] == pytest.approx(row["q025"], abs=0.01)
        assert found[name][1] < found[name][0]
    assert found["mean"][0] == pytest.approx(whole.summary["restricted_mean"]["mean"], rel=1e-6)
    assert found["mean"][1] < found["mean"][0]
    seen = whole.prediction(files.parent / "rows" / "ada.csv").columns  # with times, which say nothing
    assert len(seen["mean"]) == 110


def test_days_and_months_are_one_result(files: Path, whole: fedkern.Result, tmp_path: Path) -> None:
    """Ratios and shapes are the same numbers, but for what clients round; the evidence is of densities, a day's a thirtieth of a
    month's."""
    frames = {name: f.assign(months=30.4375 * f.months, until=30.4375 * f.until) for name, f in federation("weibull", 1).items()}
    days = fedkern.run(written(tmp_path, frames, text("weibull", SMALL)))
    for name in ("theta[age]", "theta[dose]", "group_sd[intercept]", "shape"):
        sd = whole.parameters[name]["sd"]
        assert days.parameters[name]["mean"] == pytest.approx(whole.parameters[name]["mean"], abs=0.01 * sd)
        assert days.parameters[name]["sd"] == pytest.approx(sd, rel=0.01)
    shape = whole.parameters["shape"]["mean"]
    moved = days.parameters["intercept_std"]["mean"] - whole.parameters["intercept_std"]["mean"]
    assert moved == pytest.approx(-shape * np.log(30.4375), rel=1e-3)
    exact = sum(int((f.until == f.months).sum()) for f in federation("weibull", 1).values())
    evidence = days.summary["log_evidence"]["value"] - whole.summary["log_evidence"]["value"]
    assert evidence == pytest.approx(-exact * np.log(30.4375), abs=0.01)
    with refusal(JobError, "data.time"):
        days.compare(whole)
    assert abs(whole.compare(whole)["log_bayes_factor"]) == 0


@pytest.mark.parametrize("family", ACCELERATED)
def test_accelerated_times(family: str, tmp_path: Path) -> None:
    """exp of a coefficient is a ratio of times, above 1 where events come later; in days the intercept alone moves. Rows are seen
    late, which changes nothing but what is known of them."""
    frames = {name: frame.drop(columns="ward") for name, frame in federation("loglogistic-aft", 1).items()}
    late = {name: frame.assign(since=0.4 * frame.months * (frame.age > 60)) for name, frame in frames.items()}
    asked = text(family, ASKED, data='entry = "since"', model="")
    result = fedkern.run(written(tmp_path / "months", late, asked), out=tmp_path / "out")
    assert result.converged is True
    ratios = {row["parameter"]: row for row in result.rows(exp=True)}
    age = result.parameters["theta[age]"]
    assert ratios["theta[age]"]["time_ratio"] == pytest.approx(np.exp(age["q50"]))
    assert age["mean"] == pytest.approx(0.05, abs=4 * age["sd"])
    assert result.summary["concordance"] > 0.6
    assert "time ratio" in str(result)
    assert max(one["share"] for one in result.summary["predictive"]["tenths"]) < 0.15
    middle = pd.concat(frames.values())[["age", "dose"]].mean()
    new = result.predict(pd.DataFrame([middle, middle + np.array([10.0, 0.0])]))
    for row in result.summary["survival"]:
        first, later = new[f"survival[{row['time']:g}]"]
        assert row["mean"] == pytest.approx(float(first), abs=1e-6)
        assert later > first
    assert result.summary["restricted_mean"]["mean"] == pytest.approx(float(new["mean"][0]), rel=1e-6)
    of_days = {name: 30.4375 * frame[["months", "since"]] for name, frame in late.items()}
    days = fedkern.run(written(tmp_path / "days", {name: late[name].assign(**of_days[name]) for name in late}, asked))
    assert days.parameters["theta[age]"]["mean"] == pytest.approx(age["mean"], abs=0.01 * age["sd"])
    assert days.parameters["sigma"]["mean"] == pytest.approx(result.parameters["sigma"]["mean"], rel=1e-3)
    moved = days.parameters["intercept_std"]["mean"] - result.parameters["intercept_std"]["mean"]
    assert moved == pytest.approx(np.log(30.4375), rel=1e-3)


def test_densities_of_times_are_not_compared_with_probabilities_of_intervals(whole: fedkern.Result, tmp_path: Path) -> None:
    """The usual imputation, an interval's middle for the interval, has as many events and as long a time for each."""
    middle = {}
    for name, frame in federation("weibull", 1).items():
        inside = np.isfinite(frame.until) & (frame.until > frame.months)
        time = np.where(inside, (frame.months + frame.until) / 2, frame.months)
        middle[name] = frame.assign(months=time, until=np.where(inside, time, frame.until))
    imputed = fedkern.run(written(tmp_path / "middle", middle, text("weibull", SMALL)))
    assert imputed.summary["time_per_event"] == pytest.approx(whole.summary["time_per_event"], rel=1e-4)
    with pytest.raises(JobError, match=r"other times: \d+ and \d+ events have a time, and all others an interval"):
        imputed.compare(whole)
    frames = {name: frame.drop(columns="until") for name, frame in middle.items()}
    without = fedkern.run(written(tmp_path / "without", frames, text("weibull", SMALL, data="")))
    exact = replace(whole, summary={**whole.summary, "exact_events": without.summary["exact_events"]})
    with refusal(JobError, "data.time_upper"):
        without.compare(exact)


def test_times_in_no_known_unit_are_compared_by_who_knows_them(whole: fedkern.Result) -> None:
    summary = {name: value for name, value in whole.summary.items() if name != "time_per_event"}
    given = replace(whole, summary=summary)
    with refusal(JobError, "model.intercept_centre", "True"):
        whole.compare(given)
    assert whole.compare(given, same_rows=True)["log_bayes_factor"] == 0


def test_a_constant_hazard_of_times_that_have_none_is_no_result(tmp_path: Path) -> None:
    """Shape 2, as of wear: whoever takes an exponential model reads so in the first line, and a Weibull one stands."""
    rng, frames = np.random.default_rng(3), {}
    for name in ("ada", "bo", "cy"):
        x = rng.standard_normal((130, 2))
        months = 20 * (rng.exponential(size=130) * np.exp(-x @ np.array([0.5, -0.4]))) ** 0.5
        seen = rng.exponential(60, 130)
        died = (months <= seen).astype(int)
        frames[name] = pd.DataFrame({"age": x[:, 0], "dose": x[:, 1], "months": np.minimum(months, seen), "died": died})
    wrong = fedkern.run(written(tmp_path / "wrong", frames, text("exponential", SMALL, model="")))
    assert wrong.converged is False
    assert "hazard-not-constant" in ids(wrong)
    assert wrong.summary["shape_of_hazard"]["log_shape"] > 0.3
    right = fedkern.run(written(tmp_path / "right", frames, text("weibull", SMALL, model="", data="")))
    assert right.converged is True
    assert right.parameters["shape"]["mean"] == pytest.approx(2.0, abs=0.25)
    assert right.compare(wrong)["log_bayes_factor"] > 20


def test_the_order_of_times_is_not_compared_with_times(files: Path, whole: fedkern.Result, tmp_path: Path) -> None:
    frames = {name: frame.drop(columns="until") for name, frame in federation("weibull", 1).items()}
    for frame in frames.values():
        frame["months"] = np.maximum(frame.months, 0.01)
    job = text("cox", SMALL, data='ignore = ["ward"]')
    cox = fedkern.run(written(tmp_path, frames, job))
    with pytest.raises(JobError, match="other kind of response"):
        whole.compare(cox)


def test_a_common_curve_of_a_cox_model(tmp_path: Path) -> None:
    """The average over hospitals, with each one's baseline; at the pooled means, near what the rows say without a model."""
    frames = federation("cox", 1)
    # Of 200 draws the mean of a curve varies by .003 (sd .002 at 40); how far rows are from the model is half of what is allowed.
    asked = SMALL.replace("[output]", "[output]\nsurvival_at = [15, 40]\nrestricted_mean = 48").replace(
        "draws = 100", "draws = 1000"
    )
    result = fedkern.run(written(tmp_path, frames, text("cox", asked)), out=tmp_path / "out")
    whole = MADE["pooled"](frames)
    time, event, eta = whole["time"] * whole["unit"], whole["event"], np.zeros(330)
    beta = [result.parameters[f"theta_std[{name}]"]["mean"] for name in ("age", "dose")]
    eta = whole["X"] @ np.array(beta)
    for row in result.summary["survival"]:
        curves = []
        for k in range(3):
            own = whole["client"] == k
            died = [i for i in np.flatnonzero(own & event) if time[i] <= row["time"]]
            curves.append(np.exp(-sum(1 / np.exp(eta[own & (time >= time[i])]).sum() for i in died)))
        assert row["mean"] == pytest.approx(np.mean(curves), abs=0.015)
        assert 0.01 < row["sd"] < 0.06
    own = pd.read_csv(tmp_path / "out" / "client-bo" / "restricted_mean.csv")
    assert own.until.tolist() == [48]
    assert 12 < own.restricted_mean_q025[0] < own.restricted_mean[0] < own.restricted_mean_q975[0] < 40
    curve = pd.read_csv(tmp_path / "out" / "client-bo" / "baseline.csv")
    early = curve[curve.time < 48]
    steps = np.diff([0.0, *early.time, 48.0])
    assert own.restricted_mean[0] == pytest.approx((steps * np.array([1.0, *early.survival])).sum(), rel=1e-9)


@pytest.mark.parametrize("family", ["weibull", "cox"])
def test_curves_are_of_a_patient_at_the_reference_level(family: str, tmp_path: Path) -> None:
    """Of a column of text: not of a patient of no level, whose curve is the prior's."""
    rng = np.random.default_rng(3)
    frames = {}
    for name, frame in federation("cox", 1).items():
        arm = rng.choice(["drug", "none"], len(frame))
        months = np.maximum(np.where(arm == "drug", frame.months * 2.5, frame.months), 0.01)
        frames[name] = frame.assign(arm=arm, months=months)
    asked = SMALL.replace("[output]", '[data.columns.arm]\nreference = "none"\n[output]\nsurvival_at = [15, 40]')
    asked += "restricted_mean = 40\n" if family == "weibull" else ""
    job = text(family, asked) if family == "cox" else text("cox", asked).replace('"cox"', '"weibull"')
    result = fedkern.run(written(tmp_path, frames, job), out=tmp_path / "out")
    assert result.converged is True, result.summary["verdict"]
    found = result.summary["survival"]
    assert all(row["sd"] < 0.06 for row in found)
    whole = pd.concat(frames.values())
    if family == "weibull":
        middle = whole[["age", "dose"]].mean().to_frame().T
        new = result.predict(pd.concat([middle.assign(arm=arm) for arm in ("none", "drug")], ignore_index=True))
        for row, name in zip(found, ("survival[15]", "survival[40]")):
            assert row["mean"] == pytest.approx(float(new[name][0]), abs=0.003)
            assert row["mean"] < float(new[name][1]) - 0.1
        assert result.summary["restricted_mean"]["mean"] == pytest.approx(float(new["mean"][0]), rel=0.01)
        return
    Z = (whole[["age", "dose"]] - whole[["age", "dose"]].mean()) / whole[["age", "dose"]].std(ddof=0)
    beta = [result.parameters[f"theta_std[{name}]"]["mean"] for name in ("age", "dose")]
    eta = Z.to_numpy() @ beta + result.summary["contrasts"]["arm[drug vs none]"]["mean"] * (whole.arm == "drug").to_numpy()
    time, event = whole.months.to_numpy(), whole.died.to_numpy() > 0
    client = np.repeat(np.arange(3), [len(frame) for frame in frames.values()])
    for row in found:
        curves = []
        for k in range(3):
            died = [i for i in np.flatnonzero((client == k) & event) if time[i] <= row["time"]]
            curves.append(np.exp(-sum(1 / np.exp(eta[(client == k) & (time >= time[i])]).sum() for i in died)))
        assert row["mean"] == pytest.approx(np.mean(curves), abs=0.015)


def test_a_common_curve_names_who_is_left_out_of_it_with_the_number_of_rows(tmp_path: Path) -> None:
    """Where nobody had the event no baseline hazard is known; such a hospital's patients are not those of the curve."""
    frames = federation("cox", 1)
    asked = text("cox", SMALL.replace("[output]", "[output]\nsurvival_at = [15, 40]"))
    none = {**frames, "bo": frames["bo"].assign(died=0)}
    result = fedkern.run(written(tmp_path / "with", none, asked))
    assert clients(result, "not-in-curve") == [["bo", len(frames["bo"])]]
    both = fedkern.run(written(tmp_path / "two", {name: frames[name] for name in ("ada", "cy")}, asked))
    for one, other in zip(result.summary["survival"], both.summary["survival"]):
        assert one["mean"] == pytest.approx(other["mean"], abs=0.02)
    assert not [note for note in both.summary["notes"] if "leaves out" in note]


def test_few_events_between_two_times_are_refused_before_anything_leaves(tmp_path: Path) -> None:
    asked = SMALL.replace("[output]", '[disclosure]\nlevel = "standard"\n[output]\nsurvival_at = [15, 16]')
    with refusal(FedkernError, "output.survival_at"):
        fedkern.run(written(tmp_path, federation("cox", 1), text("cox", asked)), out=tmp_path / "out")
    assert not [*(tmp_path / "out").glob("ledger/*")]
    faults = [*(tmp_path / "out").glob("client-*/holder.txt")]
    assert any("between 15 and 16, and 10 are asked for" in one.read_text() for one in faults)


@pytest.mark.parametrize(("family", "months"), [("weibull", 1e-30), ("weibull", 1e-7), ("cox", 1e-30), ("cox", 1e6)])
def test_a_holder_is_told_of_a_time_far_from_all_others(family: str, months: float, tmp_path: Path) -> None:
    """One event at next to no time moves the shape of a hazard; only its holder knows that it is there."""
    frames = federation("exponential", 1)
    one = frames["bo"].index[frames["bo"].died == 1][4]
    frames["bo"].loc[one, "months"] = months
    job = text(family, SMALL, model="", data='ignore = ["ward"]')
    result = fedkern.run(written(tmp_path, frames, job), out=tmp_path / "out")
    said = {
        name: [
            note
            for note in json.loads((tmp_path / "out" / f"client-{name}" / "rows.json").read_text())["notes"]
            if "'months'" in note
        ]
        for name in frames
    }
    (note,) = said["bo"]
    assert note.startswith(f"line {one + 2}, column 'months': {months:.6g} is ")
    assert not said["ada"] + said["cy"]
    assert not any("'months'" in note for note in result.summary["notes"])


# Bad input --------------------

CONFLICTS = {
    "cuts missing": (text("piecewise", model=""), "model.cuts is missing"),
    "cuts fall": (text("piecewise", model="cuts = [6, 5]"), "each later than the one before"),
    "cut at 0": (text("piecewise", model="cuts = [0, 5]"), "wanted times above 0"),
    "cuts of another": (text("weibull", model="cuts = [6]"), 'model.cuts are for model.family = "piecewise"'),
    "strata": (text("weibull", data='strata = "ward"'), "have one baseline hazard"),
    "weight": (text("weibull", data='weight = "times"'), "data.weight_kind is missing"),
    "no intercept": (text("weibull", model="intercept = false"), "logarithm of a hazard"),
    "upper of cox": (text("cox", data='time_upper = "until"'), "knows no order"),
    "upper of none": (text("cox", data='time_upper = "until"').replace('"cox"', '"poisson"'), "for survival times"),
    "nobody enters late": (
        text("weibull", data="", model='[model.random]\ngroup = "ward"\nentered_together = true'),
        "entered_together is of groups of one column, whose rows have data.entry",
    ),
    "late in groups": (text("lognormal-aft", data='entry = "since"'), r"data.entry with \[model.random\]: .* several modes"),
    "times fall": (text("cox", "[output]\nsurvival_at = [5, 2]\n"), r"output.survival_at = \[5.0, 2.0\]: wanted"),
    "times of none": (
        '[job]\nmethod = "likelihood"\n[data]\nclients = ["rows/*.csv"]\nresponse = "y"\n[output]\nsurvival_at = [1]\n',
        "output.survival_at: for survival times",
    ),
    "chains": (text("piecewise", '[algorithm]\nsampler = "hmc"\n'), "chains do not enter"),
    "loo": (text("weibull", "[output]\nloo = true\n"), "output.loo"),
    "marginal": (text("weibull", "[output]\nmarginal = true\n"), "output.survival_at or output.restricted_mean"),
    "test": (text("weibull", data='test = "rows/ada.csv"'), "no scores here"),
}


@pytest.mark.parametrize("what", list(CONFLICTS))
def test_keys_that_do_not_go_together(what: str, tmp_path: Path) -> None:
    job, said = CONFLICTS[what]
    (tmp_path / "job.toml").write_text(job)
    with pytest.raises(JobError, match=said):
        load(tmp_path / "job.toml")


BAD: dict[str, tuple[str, Any, str]] = {
    "time 0": ("months", 0.0, "column 'months' is not above 0"),
    "event 2": ("died", 2, "column 'died' is not 0 or 1"),
    "entry late": ("since", 1e6, "column 'since' is not before 'months'"),
    "interval backwards": ("until", 0.001, "column 'until' is before 'months'"),
    "event without end": ("until", "", "column 'until' is empty in a row that has its event"),
    "end without event": ("died", 0, "column 'until' is given in a row without event"),
    "no number": ("until", "?", "column 'until' is not a number"),
}


@pytest.mark.parametrize("what", list(BAD))
def test_a_bad_cell_is_told_to_its_holder_and_only_named_to_others(what: str, tmp_path: Path) -> None:
    column, value, told = BAD[what]
    frames = {name: frame.assign(since=-1.0) for name, frame in federation("weibull", 1).items()}
    bo = frames["bo"].astype({column: object})
    at = int(np.flatnonzero((bo.died == 1) & (bo.until == bo.months))[0])
    bo.loc[at, column] = value
    if what == "time 0":
        bo.loc[at, "until"] = 0.0
    frames["bo"] = bo
    job = text("weibull", SMALL, data='time_upper = "until"\nentry = "since"', model=f'missing = "error"\n{TOGETHER}')
    with pytest.raises(FedkernError) as caught:
        fedkern.run(written(tmp_path, frames, job), out=tmp_path / "out")
    assert told in str(caught.value)
    assert "line" not in str(caught.value).replace("likelihood", "")
    assert not [*(tmp_path / "out").glob("ledger/bo*")]
    assert f"line {at + 2}" in (tmp_path / "out" / "client-bo" / "holder.txt").read_text()


def many(kind: str) -> dict[str, pd.DataFrame]:
    """Three federations' rows together, of which each client has 330."""
    parts = [federation(kind, seed) for seed in (1, 2, 3)]
    return {name: pd.concat([part[name] for part in parts], ignore_index=True) for name in parts[0]}


def test_few_rows_that_end_in_a_piece_are_refused_before_anything_leaves(tmp_path: Path) -> None:
    """The difference of two neighbouring pieces' exposures is about them, and one alone is read off it."""
    frames = many("piecewise")
    first = sorted(frames["ada"].months)
    cut = (first[2] + first[3]) / 2
    job = text("piecewise", SMALL, model=f"cuts = [{cut}, 12, 24]") + STRICT
    with refusal(FedkernError, "ada", "model.cuts"):
        fedkern.run(written(tmp_path, frames, job), out=tmp_path / "out")
    assert not [*(tmp_path / "out").glob("ledger/*")]
    assert (
        f"end, with their event or without: 'from 0 to {cut:g}' (3 rows); none or 10"
        in (tmp_path / "out" / "client-ada" / "holder.txt").read_text()
    )


def test_pieces_count_as_coefficients(tmp_path: Path) -> None:
    frames = {name: frame.assign(died=0) for name, frame in many("piecewise").items()}
    for frame in frames.values():  # 65 events: more than fifteen for each of four coefficients, and for no more
        frame.loc[frame.sample(65, random_state=1).index, "died"] = 1
    for cuts, taken in (("[20]", True), ("[10, 20]", False)):
        job = text("piecewise", SMALL, model=f"cuts = {cuts}") + STRICT
        path = written(tmp_path, frames, job)
        if taken:
            fedkern.run(path)
        else:
            with refusal(FedkernError, "disclosure.rows_per_coefficient"):
                fedkern.run(path)


def test_a_time_that_is_most_of_all_times_is_refused(tmp_path: Path) -> None:
    """How long rows were seen is told in sum, which then is that time."""
    frames = many("exponential")
    frames["bo"].loc[3, ["months", "died"]] = 1e6, 0
    job = text("exponential", SMALL, data='ignore = ["ward"]', model="") + STRICT
    with refusal(FedkernError, "disclosure.rows_per_value"):
        fedkern.run(written(tmp_path, frames, job))


@pytest.mark.parametrize("begin", [12.0, 0.0])
def test_an_end_of_an_interval_that_is_most_of_all_times_is_refused(begin: float, tmp_path: Path) -> None:
    """An event in an interval counts at its middle in the sum of times that is told."""
    frames = federation("weibull", 1)
    one = frames["bo"].index[frames["bo"].died == 1][4]
    frames["bo"].loc[one, ["months", "until"]] = begin, 1e6
    job = text("weibull", SMALL, data='time_upper = "until"\nignore = ["ward"]', model="") + STRICT
    with refusal(FedkernError, "disclosure.rows_per_value"):
        fedkern.run(written(tmp_path, frames, job), out=tmp_path / "out")
    assert not [*(tmp_path / "out").glob("ledger/*")]
    assert f"line {one + 2}" in (tmp_path / "out" / "client-bo" / "holder.txt").read_text()


def test_a_client_without_events_adds_its_exposure_and_is_named(tmp_path: Path) -> None:
    frames = federation("exponential", 1)
    frames["bo"] = frames["bo"].assign(died=0)
    job = text("exponential", SMALL, model="", data='ignore = ["ward"]')
    result = fedkern.run(written(tmp_path, frames, job), out=tmp_path / "out")
    assert clients(result, "no-event-at-in-hazard") == ["bo"]
    said = json.loads((tmp_path / "out" / "client-bo" / "rows.json").read_text())
    assert any("adds how long its rows were seen" in note for note in said["notes"])
    both = fedkern.run(written(tmp_path / "two", {k: frames[k] for k in ("ada", "cy")}, job))
    assert result.parameters["intercept_std"]["mean"] < both.parameters["intercept_std"]["mean"] - 0.1


def test_a_piece_without_events_is_said_and_carried_by_the_walk(tmp_path: Path) -> None:
    frames = federation("piecewise", 1)
    result = fedkern.run(written(tmp_path, frames, text("piecewise", SMALL, model="cuts = [6, 24, 79.5, 200]")))
    (note,) = [note for note in result.summary["notes"] if "no event" in note]
    assert "from 200 on" in note
    own, before = (result.parameters[f"log_hazard[{one}]"] for one in ("200 on", "79.5 to 200"))
    assert own["sd"] > before["sd"]
    assert result.converged is True


@pytest.mark.parametrize("after", [4, pytest.param(9, marks=pytest.mark.nightly)])
def test_a_job_that_was_stopped_goes_on_to_the_same_bits(after: int, tmp_path: Path) -> None:
    job = written(tmp_path, federation("piecewise", 1), text("piecewise", SMALL))
    whole = fedkern.run(job, out=tmp_path / "whole")
    with pytest.raises((FedkernError, Crash)):
        run(job, tmp_path / "out", crash=after)
    resumed = run(job, tmp_path / "out", resume=True)
    assert resumed is not None
    assert resumed.digest == whole.digest


def test_sites_of_a_walk_are_given_its_sd(tmp_path: Path) -> None:
    asked = SMALL.replace("[output]", "[output]\nsites = true")
    result = fedkern.run(written(tmp_path, federation("piecewise", 1), text("piecewise", asked)))
    assert set(result.summary["sites"]) == {"ada", "bo", "cy"}
    counts = result.summary["site_counts"]
    assert sum(one["events"] for one in counts.values()) == result.summary["events"]
    assert sum(one["rows"] for one in counts.values()) == result.summary["predictive"]["rows"]
    modes = [one["theta_std[age]"] for one in result.summary["sites"].values()]
    pooled = sum(one["mode"] / one["sd"] ** 2 for one in modes) / sum(one["sd"] ** -2 for one in modes)
    assert pooled == pytest.approx(result.parameters["theta_std[age]"]["mean"], abs=0.05)


def test_sites_of_a_weibull_model_know_their_intercepts_as_runs_of_their_own_do(tmp_path: Path) -> None:
    """On the data's scale of time an intercept is also of the shape, whose uncertainty it has."""
    asked = SMALL.replace("[output]", "[output]\nsites = true")
    frames = {name: frame.drop(columns="until") for name, frame in federation("weibull", 1).items()}
    frames = {name: frame.assign(months=np.maximum(frame.months, 0.01)) for name, frame in frames.items()}
    job = text("weibull", asked, model="intercept_centre = -3.5", data='ignore = ["ward"]')
    site = fedkern.run(written(tmp_path, frames, job)).summary["sites"]["bo"]
    alone = fedkern.run(written(tmp_path / "alone", {"bo": frames["bo"]}, job.replace("sites = true", ""))).parameters
    assert site["intercept_std"]["sd"] > 1.5 * site["theta_std[age]"]["sd"]
    for name in ("intercept", "theta[age]"):
        assert site[name]["mode"] == pytest.approx(alone[name]["mean"], abs=0.35 * alone[name]["sd"])
        assert site[name]["sd"] == pytest.approx(alone[name]["sd"], rel=0.08)


def test_an_event_before_the_first_visit_is_one_in_an_interval_from_0(tmp_path: Path) -> None:
    """Also where a column says that its row was seen from 0 on; its event counts among those that a client must have."""
    frames = {name: frame.assign(since=0.0) for name, frame in federation("weibull", 1).items()}
    assert any(((f.months == 0) & (f.until > 0)).any() for f in frames.values())
    late = fedkern.run(
        written(
            tmp_path / "late",
            frames,
            text("weibull", SMALL, data='time_upper = "until"\nentry = "since"', model=TOGETHER + OF_CHAINS),
        )
    )
    plain = fedkern.run(written(tmp_path / "plain", federation("weibull", 1), text("weibull", SMALL)))
    assert late.parameters["shape"]["mean"] == pytest.approx(plain.parameters["shape"]["mean"], rel=1e-6)
    few = {name: frame.copy() for name, frame in frames.items()}
    gone = few["bo"].index[few["bo"].died == 1][6:]
    few["bo"].loc[gone, "died"], few["bo"].loc[gone, "until"] = 0, np.nan
    few["bo"].loc[gone, "months"] = np.maximum(few["bo"].months[gone], 0.01)
    first = few["bo"].index[few["bo"].died == 1][0]
    few["bo"].loc[first, "months"], few["bo"].loc[first, "until"] = 0.0, 6.0
    with refusal(FedkernError, "bo", "disclosure.rows"):
        fedkern.run(
            written(
                tmp_path / "few",
                few,
                text("weibull", f"{SMALL}{STRICT}groups = 5\n", data='time_upper = "until"\nentry = "since"', model=TOGETHER),
            )
        )


def families(seed: int) -> dict[str, pd.DataFrame]:
    """Families of three, who are in the study if all of them are without event until they are seen."""
    rng, found = np.random.default_rng([9, seed]), {}
    for name in ("ada", "bo", "cy"):
        rows: list[dict[str, object]] = []
        for family in range(10_000):
            if len(rows) == 300:
                break
            x, entry = rng.standard_normal((3, 2)), rng.uniform(0, 25, 3)
            eta = x @ MADE["EFFECTS"] + 0.7 * rng.standard_normal() - 1.5 * np.log(30)
            life, seen = (rng.exponential(size=3) * np.exp(-eta)) ** (1 / 1.5), entry + rng.exponential(60, 3)
            if (life > entry).all():
                each = zip(60 + 10 * x[:, 0], x[:, 1], np.minimum(life, seen), life <= seen, entry)
                names = ("age", "dose", "months", "died", "since")
                rows += [{**dict(zip(names, one)), "died": int(one[3]), "ward": f"family {family}"} for one in each]
        found[name] = pd.DataFrame(rows)
    return found


@pytest.mark.nightly
def test_late_entry_of_families_that_were_chosen_by_it(tmp_path: Path) -> None:
    """Over ten federations errors are as large as posteriors say; without the entries the shape is far off."""
    job = text("weibull", SMALL, data='entry = "since"', model='[model.random]\ngroup = "ward"\nentered_together = true')
    truth = {
        "shape": 1.5,
        "group_sd[intercept]": 0.7,
        "theta[age]": 0.05,
        "theta[dose]": -0.4,
        "intercept": -1.5 * np.log(30) - 3,
    }
    z = []
    for seed in range(10):
        found = fedkern.run(written(tmp_path / str(seed), families(seed), job)).parameters
        z.append([(found[name]["mean"] - value) / found[name]["sd"] for name, value in truth.items()])
    assert (np.abs(np.mean(z, axis=0)) < 1.2).all(), np.mean(z, axis=0)  # 4 of its standard errors
    assert (np.std(z, axis=0) < 1.8).all()
    without = text("weibull", SMALL, data='ignore = ["since"]', model='[model.random]\ngroup = "ward"')
    shape = fedkern.run(written(tmp_path / "without", families(0), without)).parameters["shape"]
    assert shape["mean"] > 1.5 + 4 * shape["sd"]
