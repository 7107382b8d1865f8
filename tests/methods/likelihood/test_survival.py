"""Jobs of survival times: Cox's model, stratified by client, against the pooled rows; who is refused, and what a client keeps."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.cli.__main__ import main
from fedkern.errors import FedkernError, JobError
from fedkern.methods import load
from fedkern.models import survival
from fedkern.models.mixed import Layout
from support.found import ids, said
from support.refusal import refusal

JOB = """
[job]
method = "likelihood"
seed = 4
[data]
clients = ["rows/*.csv"]
time = "months"
event = "died"
[model]
family = "cox"
"""
STRICT = '[disclosure]\nlevel = "strict"\n'
SMALL = "[algorithm]\npoints = 1024\neffective = 300\n[output]\ndraws = 100\nchains = 2\n"
CLIENTS = {"ada": 0.02, "bo": 0.06, "cy": 0.03}  # baseline hazards
EFFECTS = np.array([0.6, -0.5])


ROLES = {"entry": "since", "strata": "ward"}


def federation(
    rows: int = 120,
    seed: int = 1,
    *,
    entry: bool = False,
    strata: bool = False,
    unit: float = 0.5,
    study: float = 60.0,
    effects: np.ndarray = EFFECTS,
) -> dict[str, pd.DataFrame]:
    """Patients of three hospitals, months rounded up to a unit, so that times are tied; `study`: the mean of when it ends."""
    rng, found = np.random.default_rng(seed), {}
    for name, rate in CLIENTS.items():
        x = rng.standard_normal((rows, 2))
        life = rng.exponential(size=rows) / (rate * np.exp(x @ effects))
        seen = rng.exponential(study, rows)
        months = unit * np.ceil(np.minimum(life, seen) / unit)
        frame = pd.DataFrame({"age": 60 + 10 * x[:, 0], "dose": x[:, 1], "months": months, "died": (life <= seen).astype(int)})
        if entry:
            frame["since"] = (months * rng.random(rows) * 0.6 - 0.5).round(3)
        if strata:
            frame["ward"] = rng.choice(["north", "south"], rows)
        found[name] = frame
    return found


def written(folder: Path, frames: Mapping[str, pd.DataFrame], job: str = JOB + SMALL) -> Path:
    (folder / "rows").mkdir(parents=True, exist_ok=True)
    for name, frame in frames.items():
        frame.to_csv(folder / "rows" / f"{name}.csv", index=False)
    (folder / "job.toml").write_text(job)
    return folder / "job.toml"


def pooled(frames: Mapping[str, pd.DataFrame]) -> tuple[survival.Rows, np.ndarray]:
    """All rows, each client's a stratum (and its wards each), columns standardised; and standard deviations of the columns."""
    whole = pd.concat([frame.assign(client=name) for name, frame in frames.items()])
    X = whole[["age", "dose"]].to_numpy()
    sd = X.std(axis=0)
    strata = whole.client + whole.get("ward", pd.Series("", whole.index))
    entry = whole.since.to_numpy() if "since" in whole else None
    codes = np.unique(strata, return_inverse=True)[1]
    layout = Layout(("age", "dose"), "cox")
    times = (whole.months.to_numpy(), whole.died.to_numpy() > 0, entry, codes)
    return survival.Rows.of(layout, (X - X.mean(axis=0)) / sd, *times), sd


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("cox"), federation())


@pytest.fixture(scope="module")
def whole(files: Path) -> fedkern.Result:
    return fedkern.run(files, out=files.parent / "out")


@pytest.mark.parametrize("more", [{}, {"entry": True, "strata": True}])
def test_clients_add_up_to_the_pooled_stratified_model(more: dict[str, bool]) -> None:
    frames = federation(**more)
    (rows, sd), points = pooled(frames), 0.7 * np.random.default_rng(0).standard_normal((20, 2))
    mean = pd.concat([*frames.values()])[["age", "dose"]].to_numpy().mean(axis=0)
    alone = []
    for frame in frames.values():
        X = (frame[["age", "dose"]].to_numpy() - mean) / sd
        entry = frame.since.to_numpy() if "since" in frame else None
        ward = np.unique(frame.ward, return_inverse=True)[1] if "ward" in frame else None
        own = survival.Rows.of(rows.layout, X, frame.months.to_numpy(), frame.died.to_numpy() > 0, entry, ward)
        alone.append((own.values(points, 1), *own.curvature(points, 1)))
    together = (rows.values(points, 1), *rows.curvature(points, 1))
    for one, each in zip(together, zip(*alone)):
        np.testing.assert_allclose(sum(each), one, rtol=1e-12, atol=1e-11)


KINDS: dict[str, dict[str, Any]] = {
    "plain": {"seed": 8},
    "another": {"seed": 9},
    "entry and strata": {"seed": 8, "entry": True, "strata": True},
    "years": {"seed": 10, "unit": 12.0},  # nearly all times are tied
    "few events": {"seed": 11, "rows": 200, "study": 12.0},
    "nobody censored": {"seed": 12, "study": 1e6},
    "strong": {"seed": 13, "effects": 3 * EFFECTS},
    "strata": {"seed": 14, "strata": True, "unit": 3.0},
}


@pytest.mark.parametrize("kind", [pytest.param(k, marks=[] if k == "plain" else pytest.mark.nightly) for k in KINDS])
def test_the_posterior_is_that_of_quadrature_over_the_pooled_rows(kind: str, tmp_path: Path) -> None:
    """A grid over two coefficients, whose density is the pooled partial likelihood, times N(0, 2.5^2) of each."""
    frames = federation(**KINDS[kind])
    keys = "".join(f'{key} = "{column}"\n' for key, column in ROLES.items() if KINDS[kind].get(key)) + "[model]"
    result = fedkern.run(written(tmp_path, frames, JOB.replace("[model]", keys)))
    rows, sd = pooled(frames)
    mean, root = np.zeros(2), np.eye(2)
    for _ in range(8):
        _, gradient, H = rows.curvature(mean[np.newaxis], 1)
        mean = mean + np.linalg.solve(H[0] + np.eye(2) / 2.5**2, gradient[0] - mean / 2.5**2)
    root = np.linalg.inv(np.linalg.cholesky(H[0] + np.eye(2) / 2.5**2)).T
    z = np.linspace(-7, 7, 141)
    grid = mean + np.stack(np.meshgrid(z, z), axis=-1).reshape(-1, 2) @ root.T
    log = rows.values(grid, 1) - 0.5 * (grid**2).sum(axis=1) / 2.5**2
    weight = np.exp(log - log.max())
    evidence = log.max() + np.log(weight.sum() * (z[1] - z[0]) ** 2 * abs(np.linalg.det(root)) / (2 * np.pi * 2.5**2))
    weight /= weight.sum()
    exact = weight @ grid
    spread = np.sqrt(weight @ (grid - exact) ** 2)
    assert result.converged is True
    for j, name in enumerate(("age", "dose")):
        found = result.parameters[f"theta_std[{name}]"]
        assert abs(found["mean"] - exact[j]) < 0.03 * spread[j]
        assert abs(found["sd"] - spread[j]) < 0.03 * spread[j]
        assert result.parameters[f"theta[{name}]"]["mean"] == pytest.approx(found["mean"] / sd[j], rel=1e-9)
    told = result.summary["log_evidence"]
    assert abs(told["value"] - evidence) < max(4 * told["error"], 0.01)


def test_what_is_published_and_what_a_client_keeps(
    files: Path, whole: fedkern.Result, capsys: pytest.CaptureFixture[str]
) -> None:
    out = files.parent / "out"
    ratios = {row["parameter"]: row for row in whole.rows(exp=True)}
    found = whole.parameters["theta[dose]"]
    assert ratios["theta[dose]"]["hazard_ratio"] == pytest.approx(np.exp(found["q50"]))
    assert ratios["theta[dose]"]["q975"] == pytest.approx(np.exp(found["q975"]))
    summary = whole.summary
    frames = federation()
    assert summary["events"] == sum(frame.died.sum() for frame in frames.values())
    assert 0.6 < summary["concordance"] < 0.8
    assert set(summary["proportional_hazards"]) == {"age", "dose"}
    assert "predictive" not in summary  # no response is drawn without a baseline hazard
    assert "intercept" not in whole.parameters
    assert "hazard ratio" in str(whole)
    assert main(["report", str(out)]) == 0
    page = (out / "report.html").read_text()
    assert "Proportional hazards" in page
    assert "Concordance" in page
    own = pd.read_csv(out / "client-ada" / "baseline.csv")
    ada = frames["ada"]
    assert own.time.tolist() == sorted(set(ada.months[ada.died == 1]))
    assert own.events.sum() == ada.died.sum()
    assert own.at_risk.tolist() == [int((ada.months >= t).sum()) for t in own.time]
    assert (own.survival_q025 <= own.survival).all()
    assert not (out / "client-ada" / "effects.bin").exists()
    with pytest.raises(JobError, match=r"no times without a baseline hazard.*baseline\.csv"):
        whole.prediction(files.parent / "rows" / "ada.csv")
    for told in (out / "ledger").glob("*.jsonl"):  # the curve has no message
        kinds = {json.loads(line).get("message") for line in told.read_text().splitlines()}
        assert not {kind for kind in kinds if kind and "Baseline" in kind}


def test_a_client_without_events_adds_nothing_and_is_named(tmp_path: Path, files: Path, whole: fedkern.Result) -> None:
    frames = federation()
    none = frames["bo"].assign(died=0)
    with_it = fedkern.run(written(tmp_path / "with", {**frames, "bo": none}), out=tmp_path / "out")
    rows, _ = pooled({name: frame for name, frame in frames.items() if name != "bo"})
    assert rows.events == with_it.summary["events"]
    assert any("'bo'" in note and "no events" in note for note in with_it.summary["notes"])
    said = json.loads((tmp_path / "out" / "client-bo" / "rows.json").read_text())
    assert any("no row has its event" in note for note in said["notes"])


def test_a_stratum_that_is_a_term_may_have_a_reference() -> None:
    rng = np.random.default_rng(5)
    rows = pd.DataFrame({"age": rng.normal(60, 9, 300), "sx": rng.choice(["f", "m"], 300), "site": np.arange(300) % 3})
    rows = rows.assign(days=rng.exponential(np.exp(-0.03 * (rows.age - 60) * (rows.sx == "m"))), died=1)
    formula, columns = "Surv(days, died) ~ age * sx + strata(sx)", {"sx": {"reference": "m"}}
    usual, other = (fedkern.fit(formula, rows, by="site", columns=own) for own in ({}, columns))
    one, same = usual.parameters["theta[age:sx[T.m]]"], other.parameters["theta[age:sx[T.f]]"]
    assert one["mean"] == pytest.approx(-same["mean"], abs=0.05 * one["sd"])


# survival's ovarian: days, whether she died, age, treatment.
OVARIAN = """
59 1 72.3315 1 115 1 74.4932 1 156 1 66.4658 1 421 0 53.3644 2 431 1 50.3397 1 448 0 56.4301 1 464 1 56.937 2 475 1 59.8548 2
477 0 64.1753 1 563 1 55.1781 2 638 1 56.7562 1 744 0 50.1096 2 769 0 59.6301 2 770 0 57.0521 2 803 0 39.2712 1 855 0 43.1233 1
1040 0 38.8932 1 1106 0 44.6 1 1129 0 53.9068 2 1206 0 44.2055 2 1227 0 59.589 2 268 1 74.5041 1 329 1 43.137 1 353 1 63.2192 2
365 1 64.4247 2 377 0 58.3096 2
"""
OVARIAN_IN_R = {"theta[age]": (0.16416, 0.06313), "theta[rx]": (-2.39520, 1.13415)}  # coxph(.. + strata(0:25 %/% 8)), 12 events


def test_events_of_clients_that_tell_none_are_not_counted_as_none() -> None:
    """Clients of 6, 2, 3 and 1 events: fewer than 5 are told to nobody, and no word is said of them."""
    cells = np.array([float(x) for x in OVARIAN.split()]).reshape(-1, 4)
    rows = pd.DataFrame(cells, columns=["days", "died", "age", "rx"]).assign(site=np.arange(26) // 8)
    found = fedkern.fit("Surv(days, died) ~ age + rx", rows, by="site")
    assert "26 rows, at least 6 events, 4 clients" in str(found)
    for name, (mean, sd) in OVARIAN_IN_R.items():
        assert found.parameters[name]["mean"] == pytest.approx(mean, abs=0.2 * sd)
        assert found.parameters[name]["sd"] == pytest.approx(sd, rel=0.05)
    assert {"events-reversed", "events-reversed-by-risk"}.isdisjoint(ids(found))
    (note,) = (one for one in found.notes if getattr(one, "id", "") == "next-to-no-events")
    assert note.startswith("fewer than 5 events, or no events, at '1', '2', '3'")


def test_a_column_that_is_the_same_for_all_rows_of_a_client_is_named(tmp_path: Path) -> None:
    """A baseline hazard has its effect, as an intercept would."""
    frames = federation()
    frames["bo"]["dose"] = 1.5
    fedkern.run(written(tmp_path, frames), out=tmp_path / "out")
    said = json.loads((tmp_path / "out" / "client-bo" / "rows.json").read_text())
    assert any("dose" in note and "one value" in note for note in said["notes"]), said["notes"]


def test_sites_whose_ratios_differ_are_told_what_can_be_done(tmp_path: Path) -> None:
    frames = federation()
    frames["bo"]["dose"] = -frames["bo"].dose
    result = fedkern.run(written(tmp_path, frames))
    (note,) = [note for note in result.summary["notes"] if "dose" in note and "differ" in note]
    assert "in jobs of their own" in note
    assert "model.random" not in note


def test_sites_and_hazards_that_are_not_proportional(tmp_path: Path) -> None:
    """The dose helps at first and harms later."""
    frames = federation()
    rng = np.random.default_rng(5)
    for frame in frames.values():
        late = 20 + rng.exponential(10 * np.exp(-1.5 * frame.dose))
        early = rng.exponential(25 * np.exp(1.5 * frame.dose))
        frame["months"] = np.where(early < 20, early, late)
        frame["died"] = 1
    job = JOB + SMALL.replace("chains = 2", "chains = 2\nsites = true")
    result = fedkern.run(written(tmp_path, frames, job))
    assert result.summary["proportional_hazards"]["dose"]["p"] < 1e-4
    assert [one["columns"][0][0] for one in said(result, "hazards-not-proportional")] == ["dose"]
    assert set(result.summary["sites"]) == set(CLIENTS)
    assert result.summary["site_counts"] == {name: {"events": len(frame)} for name, frame in frames.items()}


def test_levels_are_told_against_a_reference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A level is told against its reference, which has no coefficient, and is not called sensitive to the prior."""
    rng, frames = np.random.default_rng(7), federation(300)
    frames = {name: frame.assign(stage=rng.choice(["I", "II", "III"], len(frame))) for name, frame in frames.items()}
    result = fedkern.run(written(tmp_path, frames), out=tmp_path / "out")
    found = result.summary["contrasts"]
    assert list(found) == ["stage[II vs I]", "stage[III vs I]"]
    table = {row["parameter"]: row for row in result.rows()}
    for name, row in found.items():
        assert row["mean"] == pytest.approx(table[name]["mean"], abs=0.3 * row["sd"])
        assert row["sd"] == pytest.approx(table[name]["sd"], rel=0.2)
        assert 0.05 < row["sd"] < 0.3
    assert not any("sensitive" in note for note in result.summary["notes"])
    assert not any("stage=" in name for name in result.summary["sensitivity"])
    said = str(result)
    assert "stage[II vs I]" in said
    assert "stage=I" not in said
    frames = {name: frame.rename(columns={"stage": "grade"}) for name, frame in frames.items()}
    job = JOB.replace("[model]", '[data.columns.grade]\nreference = "III"\n[model]') + SMALL
    other = fedkern.run(written(tmp_path / "other", frames, job))
    assert list(other.summary["contrasts"]) == ["grade[I vs III]", "grade[II vs III]"]
    assert other.summary["contrasts"]["grade[I vs III]"]["mean"] == pytest.approx(-found["stage[III vs I]"]["mean"], abs=1e-6)


def test_hazards_that_are_not_proportional_in_opposite_ways_do_not_cancel(tmp_path: Path) -> None:
    """A dose that helps at first and harms later at one hospital, and the other way round at another."""
    frames, rng = federation(300), np.random.default_rng(6)
    for name, sign in (("ada", 1.5), ("bo", -1.5)):
        dose = frames[name].dose
        early, late = rng.exponential(25 * np.exp(sign * dose)), 20 + rng.exponential(10 * np.exp(-sign * dose))
        frames[name] = frames[name].assign(months=np.where(early < 20, early, late), died=1)
    result = fedkern.run(written(tmp_path, {name: frames[name] for name in ("ada", "bo")}))
    found = result.summary["proportional_hazards"]["dose"]
    assert found["p"] > 0.01 > 1e-6 > found["p_of_clients"]
    assert [one["columns"][0][0] for one in said(result, "hazards-not-proportional-within")] == ["dose"]
    plain = fedkern.run(written(tmp_path / "plain", federation(300)))
    assert all(one["p_of_clients"] > 0.001 for one in plain.summary["proportional_hazards"].values())
    assert not ids(plain) & {"hazards-not-proportional", "hazards-not-proportional-within"}


CONFLICTS = {
    'time = "months"': ("", "data.time is missing"),
    'event = "died"': ("", "data.event is missing"),
    "[data]\n": ('[data]\nresponse = "died"\n', "data.response = .* remove it"),
    'family = "cox"': ('family = "bernoulli"', "data.time, data.event: for survival times"),
    "[model]\n": ("[model]\nintercept = true\n", "baseline hazard is in its place"),
    "seed = 4\n[data]\n": ("seed = 4\n[model.random]\nclient = true\n[data]\n", "takes up all that an effect of the client"),
    "[model]": ('test = "rows/ada.csv"\n[model]', "data.test: a Cox model foresees no time"),
    "[algorithm]": ("[output]\nloo = true\n[algorithm]", "output.loo"),
    "died": ("months", 'data.time and data.event are both "months"'),
}


@pytest.mark.parametrize("what", list(CONFLICTS))
def test_keys_that_do_not_go_together(what: str, tmp_path: Path) -> None:
    after, said = CONFLICTS[what]
    text = (JOB + "[algorithm]\npoints = 1024\n").replace(what, after, 1)
    (tmp_path / "job.toml").write_text(text)
    with pytest.raises(JobError, match=said):
        load(tmp_path / "job.toml")


def spoilt(frame: pd.DataFrame, column: str, value: object) -> pd.DataFrame:
    frame = frame.astype({column: object})
    frame.loc[3, column] = value
    return frame


def test_evidence_compares_models_of_the_same_events_among_the_same_rows(tmp_path: Path) -> None:
    """A prior may differ, and covariates; who is at risk at whose event may not: a stratum, an entry, a row that is missing."""
    frames = federation(entry=True, strata=True)
    plain = 'ignore = ["ward", "since"]\n[model]'

    def made(name: str, data: str, rows: dict[str, pd.DataFrame] = frames, more: str = "") -> fedkern.Result:
        text = JOB.replace("[model]", data) + more + SMALL
        return fedkern.run(written(tmp_path / name, rows, text), out=tmp_path / name / "out")

    whole = made("whole", plain)
    factor = whole.compare(made("prior", plain, more="prior_sd = 1.0\n"))
    assert abs(factor["log_bayes_factor"]) < 3
    assert whole.compare(made("less", plain.replace('["', '["dose", "')))["log_bayes_factor"] > 0
    fewer = frames | {"bo": frames["bo"].drop(index=frames["bo"].index[frames["bo"].died == 0][:1])}
    assert len(fewer["bo"]) == len(frames["bo"]) - 1
    later = frames | {"bo": frames["bo"].assign(months=frames["bo"].months.to_numpy()[::-1])}
    for name, data, rows in (
        ("strata", 'strata = "ward"\nignore = ["since"]\n[model]', frames),
        ("entry", 'entry = "since"\nignore = ["ward"]\n[model]', frames),
        ("fewer", plain, fewer),
        ("later", plain, later),
    ):
        with pytest.raises(JobError, match="other partial likelihoods"):
            whole.compare(made(name, data, rows))


def test_events_that_are_coded_1_and_2_are_2(tmp_path: Path) -> None:
    """As R's Surv reads them."""
    plain = fedkern.run(written(tmp_path, federation()), out=tmp_path / "plain")
    frames = {name: frame.assign(died=1 + frame.died) for name, frame in federation().items()}
    result = fedkern.run(written(tmp_path, frames), out=tmp_path / "out")
    assert result.digest == plain.digest
    assert repr(result).splitlines()[0].endswith("event: died = 2")


@pytest.mark.parametrize("more", [{}, {"job": {"rounds": 20}, "algorithm": {"sampler": "hmc"}}], ids=["draws", "chains"])
def test_a_study_without_events_is_no_answer(tmp_path: Path, more: dict[str, Any]) -> None:
    frames = {name: frame.assign(died=0) for name, frame in federation().items()}
    result = fedkern.run(written(tmp_path, frames), out=tmp_path / "out", **more)
    assert result.summary["converged"] is False
    assert "no client has an event while others are at risk" in result.summary["verdict"]
    assert "data.positive" in result.summary["verdict"]


BAD: dict[str, tuple[str, Any, str, str]] = {
    "time below 0": ("months", -1.0, "column 'months' is below 0", "is below 0; a row is at risk from 0 on"),
    "no time": ("months", "", "column 'months' is empty", "'' is empty; fill in the value"),
    "a date": ("months", "2024-05-06", "column 'months' is not a number", "and no dates"),
    "event 2": ("died", 2, "column 'died' is not 0 or 1", "'2' is not 0 or 1"),
    "entry late": ("since", 1e6, "column 'since' is not before 'months'", "is not before 'months'; a row is seen from 'since'"),
    "no stratum": ("ward", "", "column 'ward' is empty", "line 5"),
}


@pytest.mark.parametrize("what", list(BAD))
def test_a_bad_cell_is_told_to_its_holder_and_only_named_to_others(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    column, value, told, own = BAD[what]
    frames = federation(entry=True, strata=True)
    frames["bo"] = spoilt(frames["bo"], column, value)
    job = JOB.replace("[model]", 'entry = "since"\nstrata = "ward"\n[model]\nmissing = "error"') + SMALL
    with pytest.raises(FedkernError) as caught:
        fedkern.run(written(tmp_path, frames, job), out=tmp_path / "out")
    assert told in str(caught.value)
    assert not [*(tmp_path / "out").glob("ledger/bo*")]  # before anything of its rows leaves
    assert main(["check", str(tmp_path / "job.toml"), "--local", str(tmp_path / "rows" / "bo.csv")]) != 0
    said = capsys.readouterr()
    assert own in said.out + said.err
    assert "line 5" not in str(caught.value)
    fault = (tmp_path / "out" / "client-bo" / "holder.txt").read_text()
    assert own in fault
    assert "line 5" in fault


def test_rows_that_end_by_their_entry_had_as_well_never_been_there(tmp_path: Path) -> None:
    """As in R's Surv, which leaves them out with a warning; where model.missing = "error" they are faults, above."""
    frames, job = federation(entry=True), JOB.replace("[model]", 'entry = "since"\n[model]') + SMALL
    odd = dict(frames)
    late = frames["bo"].iloc[:4].copy()
    late["since"] = late["months"] + [0.0, 0.0, 1.0, 50.0]
    odd["bo"] = pd.concat([frames["bo"], late], ignore_index=True)
    plain = fedkern.run(written(tmp_path / "plain", frames, job))
    result = fedkern.run(written(tmp_path / "odd", odd, job), out=tmp_path / "out")
    assert result.digest == plain.digest
    n = len(odd["bo"])
    said = "a cell, or whose months is not after their since"
    assert f"rows that lack {said}, left out: bo 4 of {n}" in result.notes
    own = json.loads((tmp_path / "out" / "client-bo" / "rows.json").read_text())
    assert f"4 rows lack {said}: left out" in own["notes"]


def test_too_few_events_are_refused_before_anything_leaves_however_many_rows_there_are(tmp_path: Path) -> None:
    """Two coefficients: more than 36 events of each client."""
    frames = federation()
    died = frames["bo"].died.to_numpy().copy()
    died[np.flatnonzero(died)[30:]] = 0
    frames["bo"]["died"] = died
    with refusal(FedkernError, "bo", "disclosure.rows_per_coefficient") as caught:
        fedkern.run(written(tmp_path, frames, JOB + SMALL + STRICT), out=tmp_path / "out")
    assert "30" not in str(caught.value)
    fault = (tmp_path / "out" / "client-bo" / "holder.txt").read_text()
    assert "30 events, 30 of them" in fault
    assert "or 37 such ones" in fault
    assert not (tmp_path / "out" / "ledger").exists() or not [*(tmp_path / "out" / "ledger").glob("bo*")]


@pytest.mark.nightly
def test_chains_agree_with_weights(files: Path, whole: fedkern.Result, tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    text = files.read_text().replace("rows/*.csv", f"{files.parent}/rows/*.csv")
    job.write_text(text.replace("[algorithm]\npoints = 1024\neffective = 300", '[algorithm]\nsampler = "hmc"'))
    chains = fedkern.run(job)
    assert chains.converged is True
    for name in ("theta_std[age]", "theta_std[dose]"):
        one, other = chains.parameters[name], whole.parameters[name]
        assert abs(one["mean"] - other["mean"]) < 0.15 * other["sd"]
        assert one["sd"] == pytest.approx(other["sd"], rel=0.15)


def test_a_holder_is_told_that_all_events_are_at_one_time(tmp_path: Path) -> None:
    """Then the likelihood still says who of them had it: Efron's rule makes it a draw without order."""
    frames = {name: frame.assign(months=5.0) for name, frame in federation().items()}
    result = fedkern.run(written(tmp_path, frames), out=tmp_path / "out")
    assert np.isfinite(result.parameters["theta[dose]"]["mean"])
    said = json.loads((tmp_path / "out" / "client-bo" / "rows.json").read_text())
    assert any("events are at one time" in note for note in said["notes"])


def test_events_of_matched_pairs_do_not_count_for_each_is_a_function_of_one_difference(tmp_path: Path) -> None:
    frames = federation()
    for frame in frames.values():
        frame["pair"] = np.arange(len(frame)) // 2
    job = JOB.replace("[model]", 'strata = "pair"\n[model]') + SMALL + STRICT
    with refusal(FedkernError, "disclosure.rows_per_coefficient"):
        fedkern.run(written(tmp_path, frames, job), out=tmp_path / "out")
    assert re.search(r"\d\d events, 0 of them while", (tmp_path / "out" / "client-ada" / "holder.txt").read_text())


def weighed(frames: Mapping[str, pd.DataFrame], **data: Any) -> fedkern.Result:
    tables: dict[str, Any] = {
        "job": {"method": "likelihood", "seed": 4},
        "data": {"time": "months", "event": "died", "weight": "w", **data},
        "model": {"family": "cox"},
        "algorithm": {"points": 1024, "effective": 300},
    }
    tables["job"] |= {"sums": "secure"} if data.pop("secure", False) else {}
    tables["data"].pop("secure", None)
    return fedkern.run(tables, data=dict(frames))


def test_weights_of_a_population_are_a_doubt_whose_remedy_ends_well() -> None:
    random = np.random.default_rng(3)
    frames = {name: frame.assign(w=random.choice([150, 250, 400], len(frame))) for name, frame in federation().items()}
    first = weighed(frames)
    assert first.converged is False
    (mean,) = re.findall(
        r"rows count 2\d\d times .* too narrow where a row is one: divide 'w' by its mean, (\S+), at", str(first)
    )
    again = weighed({name: frame.assign(w=frame["w"] / float(mean)) for name, frame in frames.items()})
    assert again.converged is True
    (note,) = (line for line in again.summary["notes"] if "weights" in line)
    assert note.startswith("intervals are of the likelihood of rows that count by column 'w'")
    assert "+ strata(client)" in str(again).splitlines()[0], "baseline hazards are each client's"
    wider = again.parameters["theta[dose]"]["sd"] / first.parameters["theta[dose]"]["sd"]
    assert wider == pytest.approx(float(mean) ** 0.5, rel=0.1)
    counted = weighed(frames, weight_kind="frequency")
    assert counted.converged is True
    assert not any("R's coxph" in line for line in counted.summary["notes"])
    assert counted.parameters["theta[dose]"]["sd"] == pytest.approx(first.parameters["theta[dose]"]["sd"], rel=1e-9)
    assert "rows count 2" in str(weighed(frames, secure=True)), "the server has the sum of all weights alone"


def test_a_client_whose_weights_are_another_column_is_a_doubt() -> None:
    frames = {name: frame.assign(w=1.0 + (np.arange(len(frame)) % 3 - 1) / 2) for name, frame in federation().items()}
    assert weighed(frames).converged is True
    frames["bo"]["w"] *= 1000
    said = weighed(frames)
    assert said.converged is False
    assert "weights of column 'w' are not those of the other clients: their mean is 1e+03 at bo, and 1 at the others" in str(said)


@pytest.mark.parametrize("weight", [0.0, 1e-9, 1e-3])
def test_rows_of_next_to_no_weight_are_neither_at_risk_nor_events(weight: float, tmp_path: Path) -> None:
    """Pairs with three more rows that weigh nothing are pairs; nine of ten events that weigh nothing are one."""
    rng, frames = np.random.default_rng(4), {}
    for name in ("ada", "bo", "cy"):
        n = 5 * 70
        heavy = np.tile([True, True, False, False, False], 70)
        age = rng.normal(60, 10, n).round(3)
        months = np.where(heavy, rng.exponential(10, n).round(3) + 0.001, 40.0)
        frame = {"age": age, "months": months, "died": heavy.astype(int), "pair": np.repeat([f"p{k}" for k in range(70)], 5)}
        frames[name] = pd.DataFrame(frame | {"w": np.where(heavy, 1.0, weight)})
    job: dict[str, Any] = {
        "job": {"method": "likelihood"},
        "data": {"time": "months", "event": "died", "weight": "w", "strata": "pair"},
        "model": {"family": "cox"},
        "disclosure": {"level": "strict"},
    }
    with pytest.raises(JobError, match="0 of them while at least 5 rows are at risk"):
        fedkern.run(job, data=frames)
    job["data"] = {"time": "months", "event": "died", "weight": "w", "ignore": ["pair"]}
    job["output"] = {"survival_at": [5.0]}
    early = {name: frame.assign(w=1.0, months=frame.months.clip(6.0)) for name, frame in frames.items()}
    for frame in early.values():
        frame.loc[:11, ["months", "died"]] = 5.0, 1  # the hazard until 5 has them
    fedkern.run(job, data=early)
    early["bo"].loc[1:11, "w"] = weight
    with pytest.raises(JobError, match="1 events between 0 and 5, and 10 are asked for"):
        fedkern.run(job, data=early)


@pytest.mark.parametrize(
    ("rows", "events", "together", "low", "high"),
    [(36, 18, 2, 0.2, 0.7), (31, 31, 0, 0.0, 0.0), (62, 31, 0, 0.0, 0.0), (62, 31, 2, 0.0, 0.1)],
)
def test_what_events_determine(rows: int, events: int, together: int, low: float, high: float) -> None:
    """Two columns: matched pairs with nine events a column tell a third of the rows, fifteen hardly one."""
    path = Path(__file__).parents[3] / "benchmarks" / "survival_disclosure.py"
    told = runpy.run_path(str(path))["told"]
    assert low <= told(np.random.default_rng([7, 2, 0, rows, events]), rows, events, 2, 0.5, together) <= high


def test_case_weights_and_a_label_of_the_event(tmp_path: Path, whole: fedkern.Result) -> None:
    """Weights of two are rows written twice, but for Efron's ties, of which there are none here."""
    frames = {name: frame.assign(months=frame.months + 1e-3 * np.arange(len(frame))) for name, frame in federation().items()}
    job = JOB.replace("[model]", 'positive = "dead"\nweight = "times"\n[model]') + SMALL
    labelled = {name: f.assign(died=f.died.map({1: "dead", 0: "alive"}), times=2) for name, f in frames.items()}
    result = fedkern.run(written(tmp_path, labelled, job))
    rows, _ = pooled(frames)
    mean = np.array([result.parameters[f"theta_std[{name}]"]["mean"] for name in ("age", "dose")])
    _, gradient, H = rows.curvature(mean[np.newaxis], 1)
    step = np.linalg.solve(2 * H[0] + np.eye(2) / 2.5**2, 2 * gradient[0] - mean / 2.5**2)
    assert np.abs(step).max() < 0.3 * np.sqrt(np.diag(np.linalg.inv(2 * H[0]))).max()
    single = whole.parameters["theta_std[dose]"]["sd"]
    assert result.parameters["theta_std[dose]"]["sd"] == pytest.approx(single / 2**0.5, rel=0.1)
