"""`fedkern predict` at a client: other rows of its areas, against the table of areas and another computation."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import fedkern
from fedkern.cli.__main__ import main
from methods.sigma.test_areas import areas, change, job


def predict(folder: Path, rows: list[str], client: str = "north") -> list[dict[str, str]]:
    (folder / "new.csv").write_text("\n".join(rows) + "\n")
    out = folder / "predicted.csv"
    assert main(["predict", str(folder / "out" / f"client-{client}"), str(folder / "new.csv"), "--out", str(out)]) == 0
    return list(csv.DictReader(out.read_text().splitlines()))


def column(rows: list[dict[str, str]], name: str) -> np.ndarray:
    return np.array([float(row[name]) for row in rows])


def test_the_rows_of_the_job_have_the_levels_of_its_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chains = {"inference": "hmc", "leapfrog_steps": 2, "burn_in": 20}
    result = fedkern.run(job(tmp_path, rounds=220, output={"chains": 2}, algorithm=chains), out=tmp_path / "out")
    rows = (tmp_path / "rows" / "north.csv").read_text().splitlines()
    found, table = predict(tmp_path, rows), areas(tmp_path / "out", "north")
    assert "the run has not converged, as its server says" in capsys.readouterr().err
    assert [row["district"] for row in found] == [row["area"] for row in table]
    for ours, theirs in (("rate", "rate_mean"), ("rate_q025", "rate_q025"), ("rate_q975", "rate_q975")):
        np.testing.assert_allclose(column(found, ours), column(table, theirs), rtol=1e-5)
    expected = column(list(csv.DictReader(rows)), "expected")
    np.testing.assert_allclose(column(found, "mean"), column(table, "rate_mean") * expected, rtol=1e-5)
    np.testing.assert_allclose(column(found, "q975"), column(table, "rate_q975") * expected, rtol=1e-5)
    area, _, _, poverty = rows[1].split(",")
    # another year: twice the population, less poverty, without a response, in another order of columns, an area twice
    lines = [f"{float(poverty) + shift},{area},{n}" for shift, n in ((0.0, 10), (0.0, 20), (-1.5, 10))]
    found = predict(tmp_path, ["poverty,district,expected", *lines])
    mean, low, high, linear = (column(found, name) for name in ("mean", "new_q025", "new_q975", "linear_mean"))
    assert mean[1] == pytest.approx(2 * mean[0])
    slope = result.posterior.values["theta[poverty]"].mean()
    assert linear[2] - linear[0] == pytest.approx(-1.5 * slope, rel=1e-5)
    # a new count is a Poisson one about a rate of which the posterior is known: its tails, from quantiles of the rate
    row, draws = table[0], np.array([float(table[0][f"rate_{q}"]) for q in ("q025", "q05", "q50", "q95", "q975")])
    rates = np.exp(np.interp(np.linspace(0.005, 0.995, 400), [0.025, 0.05, 0.5, 0.95, 0.975], np.log(draws)))
    below, above = (np.mean(stats.poisson.cdf(k, 10 * rates)) for k in (low[0] - 1, high[0]))
    assert below < 0.05
    assert above > 0.95
    assert low[0] < 10 * float(row["rate_q025"]) < 10 * float(row["rate_q975"]) < high[0]


def test_a_binomial_area_has_a_probability_and_new_successes(tmp_path: Path) -> None:
    fedkern.run(job(tmp_path, "binomial", output={"chains": 2}), out=tmp_path / "out")
    rows = (tmp_path / "rows" / "north.csv").read_text().splitlines()
    found, table = predict(tmp_path, rows), areas(tmp_path / "out", "north")
    np.testing.assert_allclose(column(found, "probability"), column(table, "probability_mean"), rtol=1e-5)
    assert ((column(found, "new_q025") >= 0) & (column(found, "new_q975") <= 40)).all()
    head = rows[0].split(",")
    without = [",".join(cell for name, cell in zip(head, line.split(",")) if name not in ("expected", "cases")) for line in rows]
    assert "new_q025" not in predict(tmp_path, without)[0]


def test_ends_of_counts_are_whole_and_a_rate_that_is_cut_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A count is within the two ends with a probability of at least 95 %; beyond e^30 rates are cut, and nothing is said."""
    fedkern.run(job(tmp_path, output={"chains": 2}), out=tmp_path / "out")
    rows = ["district,expected,poverty", "north-0,2,3", "north-2,3e20,3", "north-3,7,3", "north-1,2,400"]
    first, far, other, covariate = predict(tmp_path, rows)
    for row in (first, other):
        assert all(float(row[f"new_{end}"]).is_integer() for end in ("q025", "q975"))
        assert row["beyond"] == ""
    for row in (far, covariate):
        assert row["beyond"] == "rate above e^30"
        assert {row[name] for name in row if not name.startswith("linear")} == {row["district"], "rate above e^30", ""}
    assert float(far["linear_mean"]) > 30
    assert "rows 2, 4: the posterior has rates above e^30, of which nothing is said" in capsys.readouterr().err
    assert "beyond" not in predict(tmp_path, rows[:2])[0]


FAULTS: list[tuple[list[str], str]] = [
    (["district,expected,poverty", "west-0,2,3"], "line 2, column 'district': 'west-0' is no area of this client in the prior"),
    (["district,expected,poverty", "north-0,0,3"], "line 2, column 'expected': '0' is no exposure > 0"),
    (["district,expected,poverty", "north-0,many,3"], "'many' is no finite number"),
    (["district,poverty", "north-0,3"], r"column 'expected' is missing; give it \(an exposure of 1 for rates\)"),
    (["expected,poverty", "2,3"], "column 'district' is missing"),
    (["district,expected", "north-0,2"], "poverty"),
]


def test_rows_that_cannot_be_foreseen_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fedkern.run(job(tmp_path, output={"chains": 2}), out=tmp_path / "out")
    own = tmp_path / "out" / "client-north"
    assert (own / "areas.bin").stat().st_mode & 0o077 == 0
    for rows, text in FAULTS:
        (tmp_path / "new.csv").write_text("\n".join(rows) + "\n")
        assert main(["predict", str(own), str(tmp_path / "new.csv")]) == 2
        said = capsys.readouterr().err
        assert re.search(text, said), said
    assert main(["predict", str(tmp_path / "out"), str(tmp_path / "new.csv")]) == 2
    assert "fedkern predict RUN/client-NAME ROWS" in capsys.readouterr().err
    content = bytearray((own / "areas.bin").read_bytes())
    content[-1] ^= 1
    (own / "areas.bin").write_bytes(content)
    assert main(["predict", str(own), str(tmp_path / "new.csv")]) == 2
    assert "areas.bin: was altered" in capsys.readouterr().err
    (own / "areas.bin").unlink()
    assert main(["predict", str(own), str(tmp_path / "new.csv")]) == 2
    assert "holds no areas.bin" in capsys.readouterr().err


def test_nothing_is_kept_of_areas_of_which_nothing_is_said(tmp_path: Path) -> None:
    path = job(tmp_path, output={"chains": 2})
    change(tmp_path, "north", "cases", lambda row, cell: "few" if row == 0 else cell)
    fedkern.run(path, out=tmp_path / "out", data={"censored": {"few": [0, 4]}})
    rows = ["district,expected,poverty", "north-0,2,3", "north-2,2,3"]
    hidden, shown = predict(tmp_path, rows)
    assert {hidden[name] for name in hidden if name != "district"} == {""}
    assert float(shown["mean"]) > 0
    assert json.loads((tmp_path / "out" / "client-north" / "areas.json").read_text())["suppressed"] == 1
