"""Jobs whose patients are seen late, one by one: against long chains, of which all effects are unknowns, and bad input."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.errors import FedkernError, JobError
from fedkern.methods import load
from support.found import ids

ROOT = Path(__file__).parents[3]
WANTED = json.loads((ROOT / "benchmarks" / "results" / "late_entry.json").read_text())
MADE = runpy.run_path(str(ROOT / "benchmarks" / "late_entry.py"))
federation, job, off = MADE["federation"], MADE["job"], MADE["off"]


def allowed(kind: str, result: fedkern.Result) -> dict[str, float]:
    """.03 and three Monte-Carlo errors of both."""
    return {name: 0.03 + 3 * (1 / row["ess"] + 1 / result.summary["ess"]) ** 0.5 for name, row in WANTED[kind].items()}


@pytest.mark.parametrize("kind", list(MADE["KINDS"]))
def test_the_posterior_is_that_of_long_chains_over_the_pooled_rows(kind: str, tmp_path: Path) -> None:
    """With wards, and with an effect of each hospital. Of what clients tell nothing says that the model were wrong."""
    frames = federation(kind)
    result = fedkern.run(job(kind), data=frames, out=tmp_path / "out")
    assert result.converged is True, result.summary["verdict"]
    found = MADE["standard"](result, frames)
    assert set(found) == set(WANTED[kind])
    means, sds = off(found, WANTED[kind])
    for name, most in allowed(kind, result).items():
        assert abs(means[name]) < most, (name, means[name])
        assert abs(sds[name]) < most, (name, sds[name])
    (curve,) = result.summary["survival"]
    assert abs(curve["mean"] - MADE["truth"](kind, frames)) < 3 * curve["sd"]
    assert max(one["share"] for one in result.summary["predictive"]["tenths"]) < 0.13
    assert abs(result.summary["shape_of_hazard"]["z"]) < 4
    assert not ids(result) & {"times-uneven", "times-uneven-together"}
    if kind == "wards":
        groups = pd.read_csv(tmp_path / "out" / "client-ada" / "groups.csv")
        assert groups.rows.sum() == len(frames["ada"])
        assert 0.1 < groups.intercept_sd.mean() < 0.4
    if kind == "hospitals":
        each = [pd.read_csv(tmp_path / "out" / f"client-{name}" / "client.csv").intercept[0] for name in frames]
        assert np.std(each) == pytest.approx(WANTED[kind]["client_sd"]["mean"], rel=0.3)


def test_a_ratio_of_integrals_is_another_posterior() -> None:
    """The control: as if wards were there because none of their patients had the event before."""
    frames = federation("wards")
    result = fedkern.run(job("wards", entered_together=True), data=frames)
    means, _ = off(MADE["standard"](result, frames), WANTED["wards"])
    assert abs(means["intercept"]) > 1
    (curve,) = result.summary["survival"]
    assert curve["mean"] < MADE["truth"]("wards", frames) / 2
    assert "times-uneven-together" in ids(result)


def test_a_constant_hazard_is_a_result_where_it_is_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    """What rows that were seen late tell of its shape is of their own wards' effects: who is seen later is of a better ward, so
    that with effects of new wards hazards would seem to fall."""
    one = job("wards")
    one["model"]["family"] = "exponential"
    for shape, z in ((1.3, (4, 15)), (1.0, (-3, 3))):
        monkeypatch.setitem(federation.__globals__, "SHAPE", shape)
        result = fedkern.run(one, data=federation("wards"))
        assert z[0] < result.summary["shape_of_hazard"]["z"] < z[1]
        assert result.converged is (shape == 1), result.summary["verdict"]
        assert ("hazard-not-constant" in ids(result)) is (shape != 1)


def test_without_effects_there_is_one_likelihood() -> None:
    """Rows that are seen from 0 on are those without entries."""
    frames = {name: frame.assign(since=0.0) for name, frame in federation("hospitals").items()}
    late, plain = job("hospitals"), job("hospitals")
    for one in (late, plain):
        del one["model"]["random"], one["model"]["priors"]
        one["output"] = {"draws": 200}
    del plain["data"]["entry"]
    plain["data"]["ignore"] = ["since"]
    both = [fedkern.run(one, data=frames).parameters for one in (late, plain)]
    for name in ("intercept", "theta[age]", "shape"):
        assert both[0][name]["mean"] == pytest.approx(both[1][name]["mean"], rel=1e-9)


# Keys and bad input --------------------

TEXT = """
[job]
method = "likelihood"
[data]
clients = ["rows/*.csv"]
time = "months"
event = "died"
entry = "since"
[model]
family = "{family}"
{model}
"""


def written(folder: Path, family: str, model: str, more: str = "") -> Path:
    (folder / "job.toml").write_text(TEXT.format(family=family, model=model) + more)
    return folder / "job.toml"


@pytest.mark.parametrize("random", ['group = "ward"', "client = true", 'group = "ward"\nclient = true\nclient_slopes = ["dose"]'])
def test_rows_that_came_one_by_one_are_the_default(random: str, tmp_path: Path) -> None:
    load(written(tmp_path, "weibull", f"[model.random]\n{random}"))


NAMED = {
    "families in hospitals": ('group = "ward"\nclient = true', "or remove entered_together if rows came one by one"),
    "nothing to enter together": ("client = true", "is of groups of one column, whose rows have data.entry"),
}


@pytest.mark.parametrize("what", list(NAMED))
def test_keys_that_do_not_go_together(what: str, tmp_path: Path) -> None:
    random, said = NAMED[what]
    with pytest.raises(JobError, match=said):
        load(written(tmp_path, "weibull", f"[model.random]\n{random}\nentered_together = true"))


def rows(folder: Path, frames: dict[str, pd.DataFrame]) -> None:
    (folder / "rows").mkdir()
    for name, frame in frames.items():
        frame.to_csv(folder / "rows" / f"{name}.csv", index=False)


def faulty(frames: dict[str, pd.DataFrame], folder: Path, one: dict[str, Any]) -> str:
    """What the holder of ada's rows reads, of what others were told."""
    with pytest.raises(FedkernError) as caught:
        fedkern.run(one, data=frames, out=folder / "out")
    assert not [*(folder / "out").glob("ledger/*")]
    return str(caught.value)


def test_few_rows_that_begin_in_a_piece_are_refused_before_anything_leaves(tmp_path: Path) -> None:
    """Exposures of neighbouring pieces differ by them, as by those that end."""
    frames, one = federation("pieces"), {**job("pieces"), "disclosure": {"level": "strict"}}
    ada = frames["ada"]
    ada.loc[ada.since >= 12, "since"] = 11.9
    ada.loc[ada.index[ada.months > 20][:4], "since"] = 15.0
    assert "few rows begin: 'from 12 to 24' (4 rows); none or 10" in faulty(frames, tmp_path, one)
    ada.loc[ada.since == 15.0, "since"] = 3.0
    fedkern.run(one, data=frames)


def test_an_exposure_that_is_most_of_all_is_refused(tmp_path: Path) -> None:
    """All but one row were seen for a month: the sum of how long is about that one, whose time is like others'."""
    frames = federation("wards")
    ada = frames["ada"]
    ada["since"] = np.maximum(ada.months - np.linspace(0.9, 1.1, len(ada)), 0.0)
    ada.loc[3, "since"], ada.loc[3, "months"] = 0.0, ada.months.max()
    said = faulty(frames, tmp_path, {**job("wards"), "disclosure": {"level": "strict"}})
    assert "cells of 'months' and 'since' so far from all others" in said


def test_times_counted_from_another_day_are_compared_as_each_row_is_seen_as_long() -> None:
    """A constant hazard knows no origin of time: both jobs have one evidence. Without its entry a row is seen for longer."""
    rng, frames, late = np.random.default_rng(3), {}, {}
    for name in ("ada", "bo"):
        age, x = rng.uniform(30, 60, 80), rng.normal(size=80)
        seen = np.minimum(rng.exponential(8 * np.exp(-0.4 * x)), 10.0)
        frames[name] = pd.DataFrame({"x": x, "t": seen, "died": (seen < 10).astype(int)})
        late[name] = frames[name].assign(t=seen + age, age=age)
    data = {"time": "t", "event": "died", "least_rows": 1}
    tables = {"job": {"method": "likelihood", "seed": 1}, "data": data, "model": {"family": "exponential"}}
    since = fedkern.run(tables, data=frames)
    aged = fedkern.run({**tables, "data": {**data, "entry": "age"}}, data=late)
    assert abs(since.compare(aged)["log_bayes_factor"]) < 1e-6
    whole = fedkern.run({**tables, "data": {**data, "ignore": ["age"]}}, data=late)
    with pytest.raises(JobError, match=r"are of other times: rows were seen for"):
        since.compare(whole)
