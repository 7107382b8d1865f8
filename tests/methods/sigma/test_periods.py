"""Jobs whose rows are areas in periods: what is published, what the client keeps, and what is refused."""

from __future__ import annotations

import csv
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.algorithms.nested.machine import Settings
from fedkern.api import check_job
from fedkern.errors import JobError, OwnFault
from fedkern.methods import load
from fedkern.transports.inprocess import InProcess
from support import sigma_artifacts as artifacts
from support.wires import checked_and_run

YEARS = [2001, 2002, 2003, 2004]
RATIO = {2001: 0.6, 2002: 1.0, 2003: 1.0, 2004: 1.7}


PRIOR: dict[str, str] = {}  # where it lies


@pytest.fixture(autouse=True)
def _fewer_draws(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of areas, and of the last question of a nested fit, whose weights are not what is looked at."""
    monkeypatch.setattr("fedkern.methods.sigma.own.DRAWS", 100)
    monkeypatch.setattr(
        "fedkern.methods.sigma.model.NestedSettings", partial(Settings, points=100, questions=1, most=2, told=100)
    )
    monkeypatch.setitem(PRIOR, "prior", str(built))


def job(folder: Path, rounds: int = 30, **more: Any) -> dict[str, Any]:
    """Each area in each year; the first client has no row of 2003, the second no count in 2002."""
    random = np.random.default_rng(7)
    (folder / "rows").mkdir(parents=True)
    for k, (name, size) in enumerate(zip(artifacts.NAMES, artifacts.SIZES)):
        lines = ["district,year,cases,expected"]
        for i in range(size):
            for year in YEARS:
                cases = "" if k == 1 and year == 2002 else random.poisson(20 * RATIO[year])
                if not (k == 0 and year == 2003):
                    lines.append(f"{name}-{i},{year},{cases},20")
        (folder / "rows" / f"{name}.csv").write_text("\n".join(lines) + "\n")
    tables = {
        "job": {"method": "sigma", "rounds": rounds, "seed": 3},
        "data": {
            "clients": [str(folder / "rows" / "*.csv")], "area": "district", "response": "cases", "exposure": "expected",
            "period": "year", "periods": YEARS,
        },
        "model": {**PRIOR},
    }  # fmt: skip
    for name, table in more.items():
        tables[name] = {**tables.get(name, {}), **table}
    return tables


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_periods_are_published_and_each_area_has_its_rate_in_each(tmp_path: Path) -> None:
    tables = job(tmp_path, rounds=300, algorithm={"learning_rate": 0.03})
    result = checked_and_run(tables, tmp_path / "run")
    names = {f"period[{year}]" for year in YEARS}
    assert names | {"sigma_period"} <= set(result.parameters)
    assert names | {"sigma_period"} <= set(result.summary["sigma"]["prior_of"])
    assert abs(sum(result.parameters[name]["mean"] for name in names)) < 1e-6
    published = table(tmp_path / "run" / "periods.csv")
    assert [row["period"] for row in published] == [str(year) for year in YEARS]
    middle = np.exp(np.mean(np.log([*RATIO.values()])))
    for row, year in zip(published, YEARS):
        assert float(row["rate_ratio_q025"]) < RATIO[year] / middle < float(row["rate_ratio_q975"])
        assert abs(float(row["rate_ratio_q50"]) - RATIO[year] / middle) < 0.1
    assert result.summary["sigma"]["periods"]["is"] == "rate ratio"
    rows = table(tmp_path / "run" / "client-north" / "area_periods.csv")
    assert len(rows) == artifacts.SIZES[1] * len(YEARS)
    assert [row["observed"] == "" for row in rows[:4]] == [False, True, False, False]
    by_year = {year: np.mean([float(row["rate_mean"]) for row in rows if row["period"] == str(year)]) for year in YEARS}
    assert by_year[2001] < 0.75 < by_year[2002] < 1.25 < by_year[2004]
    assert all(float(row["rate_q025"]) < float(row["rate_mean"]) < float(row["rate_q975"]) for row in rows)
    areas = table(tmp_path / "run" / "client-north" / "areas.csv")
    level = np.mean([float(row["rate_mean"]) for row in areas])
    assert abs(level - middle) < 0.15  # at the mean of the periods
    east = table(tmp_path / "run" / "client-east" / "area_periods.csv")
    assert {row["period"] for row in east} == {"2001", "2002", "2004"}


def test_an_area_with_a_suppressed_count_is_hidden_in_every_period(tmp_path: Path) -> None:
    """Rates of one area are proportional over periods, whose ratios are published."""
    tables = job(tmp_path, data={"censored": {"<5": [0, 4]}}, model={"phi": 0.9, "spatial_scale": 0.5})
    path = tmp_path / "rows" / "north.csv"
    lines = path.read_text().splitlines()
    lines[1] = ",".join([*lines[1].split(",")[:2], "<5", "20"])
    path.write_text("\n".join(lines) + "\n")
    checked_and_run(tables, tmp_path / "run")
    rows = table(tmp_path / "run" / "client-north" / "area_periods.csv")
    hidden = {row["area"] for row in rows if row["rate_mean"] == ""}
    assert hidden == {lines[1].split(",")[0]}
    assert all(row["rate_mean"] == "" for row in rows if row["area"] in hidden)


def test_check_and_notes_say_what_there_is(tmp_path: Path) -> None:
    tables = job(tmp_path, model={"overdispersion": True}, algorithm={"inference": "sfvi"})
    lines = check_job(InProcess(), *load(tables)) or []
    assert "periods  4, from 2001 to 2004: a random walk that sums to 0" in lines
    result = fedkern.run({**tables, "job": {**tables["job"], "rounds": 3}}, out=tmp_path / "run")
    assert {"sigma_extra", "sigma_period"} <= set(result.parameters)
    said = (tmp_path / "run" / "client-east" / "rows.json").read_text()
    assert "5 pairs of the 5 areas and 4 periods stand in no row" in said
    assert "1 of 4 periods have no response here" in said


def test_dates_are_periods_and_chains_have_them(tmp_path: Path) -> None:
    tables = job(tmp_path, rounds=8)
    days = [date(year, 1, 1) for year in YEARS]
    for path in (tmp_path / "rows").glob("*.csv"):
        text = path.read_text()
        for day in days:
            text = text.replace(f",{day.year},", f",{day},")
        path.write_text(text)
    tables["data"]["periods"] = days
    tables["algorithm"] = {"inference": "hmc", "leapfrog_steps": 2}
    result = fedkern.run(tables, out=tmp_path / "run")
    assert "period[2001-01-01]" in result.parameters
    assert table(tmp_path / "run" / "client-west" / "area_periods.csv")[0]["period"] == "2001-01-01"


BAD: list[tuple[dict[str, Any], str]] = [
    ({"periods": []}, "data.periods .* go together; give both, or neither"),
    ({"period": None}, "go together; give both, or neither"),
    ({"periods": [2001]}, "one period .'2001'. has no effect of its own; give two or more"),
    ({"periods": [2001, 2002, 2001]}, "'2001' stands there twice"),
    ({"periods": [2001.5]}, "a whole number, a date or a text"),
    ({"period": "district"}, "must be different columns"),
]


@pytest.mark.parametrize(("data", "text"), BAD, ids=str)
def test_what_cannot_be_is_refused(tmp_path: Path, data: dict[str, Any], text: str) -> None:
    with pytest.raises(JobError, match=text):
        fedkern.run(job(tmp_path, data=data))


def test_rows_that_cannot_be_are_refused_and_others_read_no_cell(tmp_path: Path) -> None:
    with pytest.raises(OwnFault, match=r"column 'year' is none of data\.periods.*list it there in all") as caught:
        fedkern.run(job(tmp_path / "one", data={"periods": YEARS[:3]}))
    assert "2004" not in str(caught.value)
    tables = job(tmp_path / "two")
    path = tmp_path / "two" / "rows" / "east.csv"
    path.write_text(path.read_text() + "east-2,2002,9,20\n")
    with pytest.raises(OwnFault, match=r"1 pairs of an area and a period stand in several rows.*rows_per_area = .any.") as caught:
        fedkern.run(tables)
    assert "east-2" not in str(caught.value)
    tables["data"]["rows_per_area"] = "any"  # the remedy
    fedkern.run({**tables, "job": {**tables["job"], "rounds": 3}})
