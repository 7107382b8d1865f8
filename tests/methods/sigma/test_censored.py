"""Counts that are suppressed: "<5" is an interval and not a gap, in the fit, in what is written, and in what is said."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.api import check_job
from fedkern.cli.report import write as write_report
from fedkern.errors import JobError, OwnFault
from fedkern.methods import load
from fedkern.transports.inprocess import InProcess
from support import built_priors
from support import sigma_artifacts as artifacts
from support.refusal import refusal
from support.wires import checked_and_run


def job(folder: Path, few: str = "<5", below: int = 5, **more: Any) -> dict[str, Any]:
    """Counts below five are written so."""
    built_priors.written(folder)
    artifacts.counts(folder / "rows", covariate=False)
    for path in sorted((folder / "rows").glob("*.csv")):
        head, *rows = path.read_text().splitlines()
        cells = [row.split(",") for row in rows]
        for k, row in enumerate(cells):
            row[1] = "2" if k == 0 else row[1]
            row[1] = few if row[1] and int(row[1]) < below else row[1]
        path.write_text("\n".join([head, *map(",".join, cells)]) + "\n")
    tables: dict[str, Any] = {
        "job": {"method": "sigma", "rounds": 20, "seed": 3},
        "data": {"clients": [str(folder / "rows" / "*.csv")], "area": "district", "response": "cases", "exposure": "expected"},
        "model": {"prior": str(folder / "prior")},
    }
    tables["data"]["censored"] = {few: [0, below - 1]}
    for name, table in more.items():
        tables[name] = {**tables.get(name, {}), **table}
    return tables


def areas(folder: Path, client: str) -> list[dict[str, str]]:
    with (folder / f"client-{client}" / "areas.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.usefixtures("undrawn")
def test_a_suppressed_count_is_an_interval_and_stays_hidden(tmp_path: Path) -> None:
    result = fedkern.run(job(tmp_path), out=tmp_path / "run")
    row, *others = areas(tmp_path / "run", "east")
    assert row["observed"] == "0 to 4"
    assert row["crude"] == row["pit"] == row["pearson"] == ""
    assert row["rate_mean"] == row["theta_mean"] == row["p_rate_above_1"] == row["elpd"] == row["k_hat"] == ""
    assert all(float(other["rate_mean"]) > 0 for other in others)
    said = json.loads((tmp_path / "run" / "client-east" / "areas.json").read_text())
    assert said["suppressed"] >= 1
    assert 'output.suppressed = "show"' in said["note"]
    page = write_report(tmp_path / "run" / "client-east").read_text()
    assert "with a count that is an interval nothing is shown" in page
    shown = fedkern.run(job(tmp_path / "shown", output={"suppressed": "show"}), out=tmp_path / "shown" / "run")
    assert float(areas(shown.folder, "east")[0]["rate_mean"]) > 0  # the remedy
    assert shown.summary["digest"] == result.summary["digest"]


def test_sums_of_the_fit_leave_out_what_is_hidden(tmp_path: Path) -> None:
    """A client's own (fit.json), and what it sends where the job asks."""
    north: dict[str, Any] = {}
    for suppressed in ("hide", "show"):
        tables = job(tmp_path / suppressed, few="<9", below=9, output={"suppressed": suppressed, "fit": True})
        result = fedkern.run(tables, out=tmp_path / suppressed / "run")
        rows = areas(result.folder, "north")
        fit = json.loads((result.folder / "client-north" / "fit.json").read_text())
        intervals = sum("to" in row["observed"] for row in rows)
        assert 0 < intervals < fit["areas"] + fit.get("left_out", {}).get("areas", 0) == sum(row["rows"] != "0" for row in rows)
        assert fit.get("left_out", {}).get("areas", 0) == (intervals if suppressed == "hide" else 0)
        assert fit["elpd"] == pytest.approx(sum(float(row["elpd"]) for row in rows if row["elpd"]), rel=1e-5)
        noted = "areas with a count that is an interval are not in the sums of the fit (output.suppressed)"
        assert (noted in result.summary["notes"]) == (suppressed == "hide")
        north[suppressed] = result.summary["sigma"].get("fit", {"areas": 0})["areas"]
    assert north["hide"] < north["show"]


def test_what_is_sent_is_what_check_says(tmp_path: Path) -> None:
    tables = job(tmp_path)
    checked_and_run(tables, tmp_path / "out")
    lines = check_job(InProcess(), *load(tables)) or []
    assert 'counts   some may be known by an interval: "<5" is 0 to 4; the likelihood is that of the interval' in lines


@pytest.mark.parametrize("family", ["binomial", "negative-binomial"])
def test_other_counts_have_intervals_too(tmp_path: Path, family: str) -> None:
    tables = job(tmp_path, model={"family": family} | ({"scale": 2.0} if family != "binomial" else {}))
    if family == "binomial":
        for path in (tmp_path / "rows").glob("*.csv"):
            head, *rows = path.read_text().splitlines()
            path.write_text("\n".join([head, *(row.rsplit(",", 1)[0] + ",60" for row in rows)]) + "\n")
        tables["data"]["trials"] = tables["data"].pop("exposure")
    assert fedkern.run(tables, out=tmp_path / "run", algorithm={"inference": "sfvi"}).summary["rounds"] == 20
    assert areas(tmp_path / "run", "east")[0]["observed"] == "0 to 4"


BAD: list[tuple[Any, str]] = [
    ([4, 0], "the least and the largest count"),
    ([0, 5000], "at most 1000 apart; a count of which less is known is missing: leave its cell empty"),
    ([0.5, 4], "two whole numbers"),
    ([-1, 4], "two whole numbers"),
    ([0], "two whole numbers"),
    (4, "two whole numbers"),
]


@pytest.mark.parametrize(("limits", "text"), BAD, ids=str)
def test_limits_that_cannot_be_are_refused(tmp_path: Path, limits: Any, text: str) -> None:
    tables = job(tmp_path, data={"censored": {"<5": limits}})
    with pytest.raises(JobError, match=rf"data\.censored.*{text}"):
        fedkern.run(tables)


def test_a_cell_without_an_interval_says_how_to_give_one(tmp_path: Path) -> None:
    tables = job(tmp_path, data={"censored": {}})
    with refusal(OwnFault, "data.censored", "<5", "0", "4"):
        fedkern.run(tables)
    with refusal(JobError, "data.censored"):
        fedkern.run(job(tmp_path / "gauss", model={"family": "gaussian"}, data={"exposure": None, "ignore": ["expected"]}))


def level(tables: dict[str, Any]) -> float:
    summary = fedkern.run(tables).summary
    return float(summary["parameters"]["intercept"]["mean"])


def test_the_level_is_not_that_of_the_counts_that_are_shown(tmp_path: Path) -> None:
    """Half of the counts are below five. As gaps they would raise the level, by a quarter; as intervals they don't."""
    folder = tmp_path / "map"
    tables = job(folder, job={"rounds": 1500})
    random = np.random.default_rng(8)
    every, shown, gaps = (dict[str, str]() for _ in range(3))
    for path in sorted((folder / "rows").glob("*.csv")):
        _, *rows = path.read_text().splitlines()
        lines: dict[str, list[str]] = {"every": [], "shown": [], "gaps": []}
        for row in rows:
            area, expected = row.split(",")[0], 5.0
            y = random.poisson(expected * np.exp(random.normal(0, 0.3)))
            lines["every"].append(f"{area},{y},{expected}")
            lines["shown"].append(f"{area},{y if y >= 5 else '<5'},{expected}")
            lines["gaps"].append(f"{area},{y if y >= 5 else ''},{expected}")
        for kind, files in zip(lines, (every, shown, gaps)):
            files[path.name] = "\n".join(["district,cases,expected", *lines[kind]]) + "\n"
    found = []
    for files in (every, shown, gaps):
        for name, text in files.items():
            (folder / "rows" / name).write_text(text)
        found.append(level(tables))
    assert abs(found[1] - found[0]) < 0.08  # the posterior of this map: .061
    assert found[2] - found[0] > 0.15
