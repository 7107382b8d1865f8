"""Rates whose variances are known, as of age-standardised ones: the exact posterior by dense algebra, and what is refused."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.data.artifact import read_own
from fedkern.errors import JobError, OwnFault
from fedkern.methods import parse
from support import built_priors
from support import sigma_artifacts as artifacts
from support.wires import checked_and_run

PHI, SCALE = 0.9, 1.3


def job(folder: Path, seed: int = 4, **more: Any) -> dict[str, Any]:
    """Rates in hundreds, each with its own variance; the second area of each client has none."""
    built_priors.written(folder)
    rng = np.random.default_rng(seed)
    (folder / "rows").mkdir(exist_ok=True)
    for name, d in zip(artifacts.NAMES, artifacts.SIZES):
        lines = ["district,rate,var"]
        for i in range(d):
            sd = rng.choice([0.2, 3.0])
            rate = 100 + rng.normal(0, 1) + sd * rng.normal()
            lines.append(f"{name}-{i},,x" if i == 1 else f"{name}-{i},{rate:.6f},{sd**2:.6f}")
        (folder / "rows" / f"{name}.csv").write_text("\n".join(lines) + "\n")
    tables: dict[str, Any] = {
        "job": {"method": "sigma", "rounds": 20, "seed": 3},
        "data": {"clients": [str(folder / "rows" / "*.csv")], "area": "district", "response": "rate", "variance": "var"},
        "model": {"prior": str(folder / "prior"), "family": "gaussian"},
    }
    for name, table in more.items():
        tables[name] = {**tables.get(name, {}), **table}
    return tables


def read(folder: Path) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Names, rates and variances of all clients' rows; NaN where there are none."""
    rows = read_all(folder / "rows" / f"{name}.csv" for name in artifacts.NAMES)
    y = np.array([float(row["rate"] or "nan") for row in rows])
    variance = np.array([float("nan" if row["var"] == "x" else row["var"]) for row in rows])
    return [row["district"] for row in rows], y, variance


def exact(folder: Path, level: float, unit: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sd of each area's level: theta ~ N(0, (D - phi W)^-1) of the whole map, intercept ~ N(level, (5 unit)^2)."""
    names, y, variance = read(folder)
    place = {name: i for i, name in enumerate(names)}
    W = np.zeros((len(names), len(names)))
    for one, other in list(csv.reader((folder / "edges.csv").read_text().splitlines()))[1:]:
        W[place[one], place[other]] = W[place[other], place[one]] = 1
    prior = SCALE**2 * np.linalg.inv(np.diag(W.sum(axis=1)) - PHI * W) + (5 * unit) ** 2
    seen = np.isfinite(y)
    gain = prior[:, seen] @ np.linalg.inv(prior[np.ix_(seen, seen)] + np.diag(variance[seen]))
    return level + gain @ (y[seen] - level), np.sqrt(np.diag(prior - gain @ prior[seen]))


def found(folder: Path) -> list[dict[str, str]]:
    return read_all(folder / f"client-{name}" / "areas.csv" for name in artifacts.NAMES)


def read_all(paths: Iterable[Path]) -> list[dict[str, str]]:
    return [row for path in paths for row in csv.DictReader(path.read_text().splitlines())]


@pytest.mark.digits
def test_areas_have_the_exact_posterior_of_the_whole_map(tmp_path: Path) -> None:
    tables = job(tmp_path, job={"rounds": 1500}, model={"phi": PHI, "spatial_scale": SCALE})
    tables["algorithm"] = {"learning_rate": 0.02}
    result = fedkern.run(tables, out=tmp_path / "run")
    about = result.summary["sigma"]["response"]
    assert "sigma" not in result.parameters
    mean, sd = exact(tmp_path, about["level"], about["scale"])
    rows = found(tmp_path / "run")
    apart = (np.array([float(row["mean_mean"]) for row in rows]) - mean) / sd
    assert np.sqrt(np.mean(apart**2)) < 0.1  # with one variance for all it is 2
    np.testing.assert_allclose([float(row["mean_sd"]) for row in rows], sd, rtol=0.12)
    _, y, variance = read(tmp_path)
    seen = np.isfinite(y)
    ends = np.array([[float(row[name] or "nan") for name in ("crude_low", "crude_high")] for row in rows])
    np.testing.assert_allclose(ends[seen], (y + np.array([[-1.959964], [1.959964]]) * np.sqrt(variance)).T[seen], rtol=1e-5)
    assert np.isnan(ends[~seen]).all()
    pearson = np.array([float(row["pearson"] or "nan") for row in rows])
    fitted = np.array([float(row["mean_mean"]) for row in rows])
    np.testing.assert_allclose(pearson[seen], ((y - fitted) / np.sqrt(variance))[seen], atol=5e-3)  # of six digits
    assert all(0 < float(row["pit"]) < 1 for row, there in zip(rows, seen) if there)


def test_what_is_sent_is_what_check_says(tmp_path: Path) -> None:
    checked_and_run(job(tmp_path), tmp_path / "out")


def test_a_unit_changes_nothing_else(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    runs = []
    for folder, unit in ((one, 1.0), (other, 1024.0)):
        tables = job(folder)
        for path in (folder / "rows").glob("*.csv"):
            head, *rows = (line.split(",") for line in path.read_text().splitlines())
            cells = [[a, y and repr(unit * float(y)), v if v == "x" else repr(unit**2 * float(v))] for a, y, v in rows]
            path.write_text("\n".join(map(",".join, [head, *cells])) + "\n")
        runs.append(fedkern.run(tables, out=folder / "run"))
    assert runs[0].digest == runs[1].digest
    first, second = (np.array([float(row["mean_sd"]) for row in found(folder / "run")]) for folder in (one, other))
    np.testing.assert_allclose(1024 * first, second, rtol=1e-4)


@pytest.mark.parametrize("cell", ["0", "-1", "", "nan", "1e-300", "some"])
def test_other_variances_are_refused_and_told_to_their_holder_alone(tmp_path: Path, cell: str) -> None:
    tables = job(tmp_path)
    path = tmp_path / "rows" / "north.csv"
    head, first, *rows = path.read_text().splitlines()
    path.write_text("\n".join([head, first.rpartition(",")[0] + f",{cell}", *rows]) + "\n")
    with pytest.raises(OwnFault, match=r"column 'var' is no (variance > 0|finite number)") as caught:
        fedkern.run(tables)
    assert "line 2" in caught.value.own
    assert "line 2" not in str(caught.value)


def test_what_does_not_go_with_variances_is_refused(tmp_path: Path) -> None:
    tables = job(tmp_path)
    for change, text in (
        ({"family": "poisson"}, r'data\.variance: only family = "gaussian" has known variances, not "poisson"; remove it'),
        ({"scale": 2.0}, r"data\.variance and model\.scale both say how large the errors are; give one of them"),
    ):
        with pytest.raises(JobError, match=text):
            parse({**tables, "model": {**tables["model"], **change}})


@pytest.mark.parametrize("inference", ["sfvi", "hmc"])
@pytest.mark.parametrize("kind", ["auxiliary", "deterministic"])
def test_with_a_trained_prior_variances_that_are_all_one_are_a_known_scale(tmp_path: Path, kind: str, inference: str) -> None:
    artifacts.written(tmp_path / "networks")
    few = {"leapfrog_steps": 2, "burn_in": 4} if inference == "hmc" else {}
    chosen = {"job": {"rounds": 12}, "algorithm": {"inference": inference, **few}, "output": {"draws": 40, "chains": 2}}
    tables = job(tmp_path, model={"prior": str(tmp_path / "networks"), "kind": kind}, **chosen)
    for path in (tmp_path / "rows").glob("*.csv"):
        head, *rows = path.read_text().splitlines()
        path.write_text("\n".join([head, *(row.rpartition(",")[0] + ",2.25" for row in rows)]) + "\n")
    known = fedkern.run(tables, out=tmp_path / "known")
    data = {name: value for name, value in tables["data"].items() if name != "variance"} | {"ignore": ["var"]}
    given = fedkern.run({**tables, "data": data, "model": {**tables["model"], "scale": 1.5}}, out=tmp_path / "given")
    for name, row in given.parameters.items():
        assert known.parameters[name]["mean"] == pytest.approx(row["mean"], rel=1e-7), name
        assert known.parameters[name]["sd"] == pytest.approx(row["sd"], rel=1e-7), name
    for one, other in zip(found(tmp_path / "known"), found(tmp_path / "given")):
        for name in ("theta_mean", "theta_sd", "mean_q975", "elpd", "pit", "pearson"):
            assert float(one[name] or "nan") == pytest.approx(float(other[name] or "nan"), rel=2e-5, nan_ok=True), name


@pytest.mark.parametrize(("counts", "text"), [("0", "every count is 0"), ("1", "there is one event in all: other clients' rows")])
def test_a_client_with_next_to_no_cases_is_told_so_and_nobody_else_is(tmp_path: Path, counts: str, text: str) -> None:
    built_priors.written(tmp_path)
    artifacts.counts(tmp_path / "rows", covariate=False)
    assert read_own(tmp_path / "prior", "west").d == 4
    (tmp_path / "rows" / "west.csv").write_text(
        f"district,cases,expected\nwest-0,{counts},3\nwest-1,0,3\nwest-2,0,3\nwest-3,,3\n"
    )
    data = {"clients": [str(tmp_path / "rows" / "*.csv")], "area": "district", "response": "cases", "exposure": "expected"}
    tables = {"job": {"method": "sigma", "rounds": 20}, "data": data, "model": {"prior": str(tmp_path / "prior")}}
    result = fedkern.run(tables, out=tmp_path / "run")
    notes = json.loads((tmp_path / "run" / "client-west" / "rows.json").read_text())["notes"]
    assert any(note.startswith(text) for note in notes)
    everywhere = json.dumps(result.summary) + (tmp_path / "run" / "client-east" / "rows.json").read_text()
    assert text not in everywhere
