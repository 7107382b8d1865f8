"""With secure sums each client compares its response, or times, with those of all others; the server learns no client's name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.api import check_job
from fedkern.methods import load
from fedkern.methods.likelihood import time_units
from fedkern.transports.inprocess import InProcess
from methods.likelihood.test_lifetimes import text, written
from methods.likelihood.test_time_units import PLAIN, scaled, studies
from support import wires
from support.found import ids, said

JOB = """
[job]
method = "likelihood"
sums = "secure"
[data]
clients = ["rows/*.csv"]
response = "bp"
least_rows = 10
[model]
family = "gaussian"
[algorithm]
points = 256
effective = 100
[output]
draws = 50
chains = 2
"""
NAMES = ("ada", "bo", "cy", "di")


def pressures(seed: int, moved: float = 0.0, m: int = 3, rows: int = 120) -> dict[str, pd.DataFrame]:
    """Blood pressures in mmHg by age; `moved`: by how many standard deviations of rows the clients' means differ."""
    rng, found = np.random.default_rng(seed), {}
    for name in NAMES[:m]:
        age = rng.normal(60, 10, rows)
        bp = 130 + 18 * moved * rng.normal() + 0.5 * (age - 60) + rng.normal(0, 17, rows)
        found[name] = pd.DataFrame({"age": age.round(1), "bp": bp.round(1)})
    return found


SOMEWHERE = "column-in-another-unit-somewhere"


def times(frames: dict[str, pd.DataFrame], name: str, factor: float) -> dict[str, pd.DataFrame]:
    return {k: frame.assign(bp=frame.bp * factor) if k == name else frame for k, frame in frames.items()}


def run(folder: Path, frames: dict[str, pd.DataFrame], job: str = JOB) -> tuple[fedkern.Result, dict[str, list[str]]]:
    (folder / "rows").mkdir(parents=True)
    for name, frame in frames.items():
        frame.to_csv(folder / "rows" / f"{name}.csv", index=False)
    (folder / "job.toml").write_text(job)
    result = fedkern.run(folder / "job.toml", out=folder / "out")
    return result, {name: notes_of(folder / "out", name) for name in frames}


def notes_of(out: Path, name: str) -> list[str]:
    notes: list[str] = json.loads((out / f"client-{name}" / "rows.json").read_text())["notes"]
    return notes


@pytest.mark.parametrize("family", ["gaussian", "student"])
@pytest.mark.parametrize("factor", [1 / 7.5, 7.5, 1 / 30])
def test_a_response_in_another_unit_is_seen_by_its_holder_and_ends_in_a_doubt(factor: float, family: str, tmp_path: Path) -> None:
    result, notes = run(tmp_path, times(pressures(1), "bo", factor), JOB.replace("gaussian", family))
    assert any("column 'bp'" in note and "standard deviation" in note for note in notes["bo"])
    if family == "gaussian":
        assert result.converged is False
        assert SOMEWHERE in ids(result)
    else:  # of which a wide spread is no doubt, for a wrong cell moves it little
        assert ids(result) & {SOMEWHERE, "column-odd-somewhere"}
    # The server knows of no client.
    told = json.dumps([result.summary["notes"], result.summary["verdict"]])
    assert not any(f"'{name}'" in told or f"{name}:" in told for name in NAMES)


@pytest.mark.parametrize("seed", range(3))
def test_a_unit_that_also_moves_the_zero_is_a_doubt_with_few_clients(seed: int, tmp_path: Path) -> None:
    """Degrees Celsius at one client, Fahrenheit at two, each of which finds that all others together vary far more."""
    rng, frames = np.random.default_rng(seed), pressures(seed, rows=200)
    for name, frame in frames.items():
        warm = 37 + 0.3 * rng.normal() * 0.6 + rng.normal(0, 0.6, len(frame))
        frame["bp"] = (warm if name == "bo" else 32 + 1.8 * warm).round(2)
    result, _ = run(tmp_path, frames)
    assert result.converged is False
    assert SOMEWHERE in ids(result)


def test_the_answer_travels_masked_and_check_lists_it(tmp_path: Path) -> None:
    run(tmp_path, pressures(1))
    kinds = {kind for _, kind in wires.ledgers(tmp_path / "out")}
    assert "MaskedOddResponse" in kinds
    assert "OddResponse" not in kinds
    wires.checked_and_run(tmp_path / "job.toml", tmp_path / "again", wanted=("MaskedOddResponse",))
    said = "\n".join(check_job(InProcess(), *load(tmp_path / "job.toml")) or [])
    assert "each client compares its columns and its response with all others' together" in said


@pytest.mark.parametrize("m", [3, 4])
@pytest.mark.parametrize("moved", [0.0, 0.5])
def test_hospitals_that_differ_are_not(moved: float, m: int, tmp_path: Path) -> None:
    for seed in range(3):
        result, notes = run(tmp_path / str(seed), pressures(seed, moved, m))
        assert result.converged is True
        assert not any("'bp'" in note for own in notes.values() for note in own)
        assert not any("'bp'" in note for note in result.summary["notes"])


def test_without_masks_the_server_names_the_client(tmp_path: Path) -> None:
    """The control: the same slip, found by the same rules."""
    result, _ = run(tmp_path, times(pressures(1), "bo", 1 / 7.5), JOB.replace('sums = "secure"\n', ""))
    doubts = [one for id in ("column-in-another-unit", "column-in-a-far-unit", "response-or-errors") for one in said(result, id)]
    assert [(one["column"], list(one["clients"])) for one in doubts] == [("column 'bp'", ["bo"])]


@pytest.mark.parametrize(("client", "factor"), [("ada", 30.4), ("cy", 1 / 30.4)])
def test_times_in_another_unit_are_seen_by_their_holder_and_end_in_a_doubt(client: str, factor: float, tmp_path: Path) -> None:
    job = text("weibull", PLAIN, data="", model="").replace("[job]", '[job]\nsums = "secure"')
    out = tmp_path / "out"
    result = fedkern.run(written(tmp_path, scaled(studies(), client, factor), job), out=out)
    assert result.converged is False
    assert "times-in-another-unit-somewhere" in ids(result)
    (note,) = [note for note in notes_of(out, client) if "time per event here" in note]
    assert ("days for months" if factor > 1 else "months for days") in note
    assert f"'{client}'" not in result.summary["verdict"]


def test_hospitals_whose_hazards_differ_are_not(tmp_path: Path) -> None:
    job = text("weibull", PLAIN, data="", model="").replace("[job]", '[job]\nsums = "secure"')
    result = fedkern.run(written(tmp_path, studies(harder=3.0), job), out=tmp_path / "out")
    assert result.converged is True
    assert not any("per event" in note for note in result.summary["notes"])
    assert not any("per event" in note for name in NAMES[:3] for note in notes_of(tmp_path / "out", name))


def test_few_events_are_no_other_unit() -> None:
    assert not time_units.of_client((1.0, 10.0), 301.0, 310.0).notes  # ten times as long, by chance
    assert not time_units.of_client((0.0, 10.0), 300.0, 310.0).notes
    said = time_units.of_client((100.0, 3000.0), 300.0, 3200.0)
    assert said.doubt
    assert said.larger
    assert not time_units.of_client((100.0, 1.0), 300.0, 2001.0).larger
