"""Maps in the units that people have: the unit of an exposure or of a response moves the level, the scale, and nothing else."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.results import rates
from support import sigma_artifacts as artifacts
from support.found import ids, said

FITS: dict[str, dict[str, Any]] = {
    "sfvi": {"job": {"rounds": 150}},
    "sfvi-avg": {"job": {"rounds": 40}, "algorithm": {"inference": "sfvi-avg", "local_steps": 3}},
    "hmc": {"job": {"rounds": 60}, "algorithm": {"inference": "hmc", "leapfrog_steps": 4}, "output": {"chains": 2}},
    "mala": {"job": {"rounds": 120}, "algorithm": {"inference": "mala"}, "output": {"chains": 2}},
}
# sfvi-avg converts what sfvi does, and mala is hmc of one leapfrog step: by day the others stand for them.
SOME_BY_NIGHT = [fit if fit in ("sfvi", "hmc") else pytest.param(fit, marks=pytest.mark.nightly) for fit in FITS]
DATA: dict[str, dict[str, Any]] = {
    "poisson": {"response": "cases", "exposure": "expected"},
    "binomial": {"response": "cases", "trials": "trials", "offset": "shift"},
    "bernoulli": {"response": "cases", "offset": "shift"},
    "gaussian": {"response": "cases", "offset": "shift"},
}


def column(name: str, rng: np.random.Generator, n: int) -> list[float]:
    if name == "trials":
        return rng.integers(5, 30, n).astype(float).tolist()
    return np.round(rng.uniform(2, 20, n) if name == "expected" else rng.normal(0, 0.3, n), 3).tolist()


def job(folder: Path, family: str, fit: str, change: Any = None, **model: Any) -> dict[str, Any]:
    """A map of 16 areas at 3 clients, one of them to be predicted at each; `change` maps a row's cells, by column."""
    if not (folder / "prior").exists():
        artifacts.written(folder / "prior")
    rng, roles = np.random.default_rng(5), DATA[family]
    rows = folder / "rows"
    rows.mkdir(exist_ok=True)
    for name, d in zip(artifacts.NAMES, artifacts.SIZES):
        cells: dict[str, list[float]] = {what: column(named, rng, d) for what, named in roles.items() if what != "response"}
        x = np.round(rng.normal(3, 2, d), 3)
        eta = 0.7 * rng.normal(size=d) + 0.2 * (x - 3) + np.array(cells.get("offset", [0.0] * d))
        y = {
            "poisson": lambda eta=eta, cells=cells: rng.poisson(np.array(cells["exposure"]) * np.exp(eta)),
            "binomial": lambda eta=eta, cells=cells: rng.binomial(np.array(cells["trials"], int), 1 / (1 + np.exp(1 - eta))),
            "bernoulli": lambda eta=eta: rng.binomial(1, 1 / (1 + np.exp(-eta))),
            "gaussian": lambda eta=eta: np.round(eta + 0.3 * rng.normal(size=len(eta)), 3),
        }[family]()
        cells |= {"response": y.astype(float).tolist(), "poverty": x.tolist()}
        table = [dict(zip(cells, values)) for values in zip(*cells.values())]
        table = [row if change is None else {**row, **change(row)} for row in table]
        lines = [["district", *(roles.get(what, what) for what in cells)]]
        for i, row in enumerate(table):
            lines.append([f"{name}-{i}", *("" if i == 1 and what == "response" else repr(row[what]) for what in row)])
        with (rows / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(lines)
    tables: dict[str, Any] = {
        "job": {"method": "sigma", "seed": 3},
        "data": {"clients": str(rows / "*.csv"), "area": "district", **roles},
        "model": {"prior": str(folder / "prior"), "family": family, **model},
    }
    for section, changes in FITS[fit].items():
        tables[section] = {**tables.get(section, {}), **changes}
    return tables


def areas(folder: Path) -> dict[str, np.ndarray]:
    """The numeric columns of all clients' tables."""
    rows = []
    for name in artifacts.NAMES:
        with (folder / f"client-{name}" / "areas.csv").open(newline="") as file:
            rows += list(csv.DictReader(file))
    numeric = [key for key in rows[0] if key.startswith(("theta", "rate", "prob", "mean"))]
    return {key: np.array([float(row[key]) for row in rows]) for key in numeric}


def fitted(folder: Path, *arguments: Any, **model: Any) -> tuple[Any, dict[str, np.ndarray]]:
    out = folder / f"out-{len(list(folder.glob('out-*')))}"
    result = fedkern.run(job(folder, *arguments, **model), out=out)
    return result, areas(out)


def responses(folder: Path) -> int:
    """Rows with a response: all but one of each client."""
    return sum(len(path.read_text().splitlines()) - 2 for path in (folder / "rows").glob("*.csv"))


def same(one: Any, other: Any, shift: dict[str, float], factor: dict[str, float]) -> None:
    """other = shift + factor one, of every parameter's mean, sd and quantiles, to 1e-6 of its posterior standard deviation. What
    was fitted has the same bits, so that a Markov chain takes the same path."""
    assert one.parameters.keys() == other.parameters.keys()
    for name, row in one.parameters.items():
        a, s = shift.get(name, 0.0), factor.get(name, 1.0)
        for what in ("mean", "sd", "q05", "q95"):
            value, want = other.parameters[name][what], s * row[what] + a * (what != "sd")
            assert abs(value - want) < 1e-6 * s * row["sd"], (name, what, value, want)
    assert one.digest == other.digest


@pytest.mark.parametrize("fit", SOME_BY_NIGHT)
def test_the_unit_of_an_exposure_moves_the_intercept_alone(tmp_path: Path, fit: str) -> None:
    found, table = fitted(tmp_path, "poisson", fit)
    for c in (1e-3, 1e5):
        other, rates = fitted(tmp_path, "poisson", fit, lambda row, c=c: {"exposure": row["exposure"] * c})
        same(found, other, {"intercept": -np.log(c), "intercept_std": -np.log(c)}, {})
        for name in table:
            factor = 1 / c if name.startswith("rate") else 1.0
            np.testing.assert_allclose(rates[name], table[name] * factor, rtol=2e-5, err_msg=name)


@pytest.mark.parametrize("fit", SOME_BY_NIGHT)
@pytest.mark.parametrize("family", ["binomial", "bernoulli"])
def test_an_offset_moves_the_intercept_alone(tmp_path: Path, family: str, fit: str) -> None:
    found, table = fitted(tmp_path, family, fit)
    other, moved = fitted(tmp_path, family, fit, lambda row: {"offset": row["offset"] + 4.0})
    same(found, other, {"intercept": -4.0, "intercept_std": -4.0}, {})
    np.testing.assert_allclose(moved["theta_mean"], table["theta_mean"], rtol=1e-4, atol=2e-6)


SCALED = ("intercept", "intercept_std", "theta[poverty]", "theta_std[poverty]", "sigma", "sigma_theta")


@pytest.mark.parametrize("fit", SOME_BY_NIGHT)
def test_the_unit_of_a_response_moves_level_and_scale_alone(tmp_path: Path, fit: str) -> None:
    """a + s y, the offset s times as large."""
    found, table = fitted(tmp_path, "gaussian", fit)
    for a, s in ((125.0, 5.0), (1e4, 0.01), (0.0, 1e6)):
        change = lambda row, a=a, s=s: {"response": a + s * row["response"], "offset": s * row["offset"]}  # noqa: E731
        other, moved = fitted(tmp_path, "gaussian", fit, change)
        same(found, other, {"intercept": a, "intercept_std": a}, dict.fromkeys(SCALED, s))
        for name in ("theta_mean", "theta_sd"):
            np.testing.assert_allclose(moved[name], table[name], rtol=1e-4, atol=2e-6, err_msg=name)
        np.testing.assert_allclose(moved["mean_mean"], a + s * table["mean_mean"], rtol=2e-5, atol=2e-6 * s)
        np.testing.assert_allclose(moved["mean_sd"], s * table["mean_sd"], rtol=2e-5)
        if fit == "sfvi":  # a density of responses: n log s less
            bounds = [one.summary["sigma"]["elbo"] for one in (found, other)]
            assert bounds[1] - bounds[0] == pytest.approx(-responses(tmp_path) * np.log(s), abs=1e-6)


def test_scales_that_the_job_gives_are_in_the_datas_units(tmp_path: Path) -> None:
    found, _ = fitted(tmp_path, "gaussian", "sfvi", scale=0.3, spatial_scale=0.7)
    change = lambda row: {"response": 125 + 5 * row["response"], "offset": 5 * row["offset"]}  # noqa: E731
    other, _ = fitted(tmp_path, "gaussian", "sfvi", change, scale=1.5, spatial_scale=3.5)
    same(found, other, {"intercept": 125.0, "intercept_std": 125.0}, dict.fromkeys(SCALED, 5.0))


def test_without_an_intercept_the_model_is_about_zero(tmp_path: Path) -> None:
    found, _ = fitted(tmp_path, "gaussian", "sfvi", intercept=False)
    change = lambda row: {"response": 5 * row["response"], "offset": 5 * row["offset"]}  # noqa: E731
    other, _ = fitted(tmp_path, "gaussian", "sfvi", change, intercept=False)
    same(found, other, {}, dict.fromkeys(SCALED, 5.0))


def test_draws_of_the_posterior_are_in_the_datas_units(tmp_path: Path) -> None:
    import xarray

    change = lambda row: {"response": 125 + 5 * row["response"]}  # noqa: E731
    result = fedkern.run(job(tmp_path, "gaussian", "sfvi", change), out=tmp_path / "out")
    with xarray.open_dataset(tmp_path / "out" / "posterior.nc", group="posterior", engine="h5netcdf") as draws:
        for name in ("intercept", "sigma", "sigma_theta"):
            assert float(draws[name].mean()) == pytest.approx(result.parameters[name]["mean"])
    assert result.parameters["intercept_std"]["mean"] == pytest.approx(125, abs=10)
    last = json.loads((tmp_path / "out" / "metrics.jsonl").read_text().splitlines()[-1])["metrics"]
    assert last["sigma"] == pytest.approx(result.parameters["sigma"]["mean"], rel=0.5)
    told = json.loads((tmp_path / "out" / "summary.json").read_text())["sigma"]["response"]
    assert told["level"] == pytest.approx(125, abs=10)
    assert 1 < told["scale"] < 25


def test_a_level_that_the_prior_does_not_foresee_gets_an_intercept(tmp_path: Path) -> None:
    """The note's remedy: with an intercept the map has no level to make up for."""

    def change(row: dict[str, float]) -> dict[str, float]:
        return {"exposure": row["exposure"] * 1e-3}

    without, _ = fitted(tmp_path, "poisson", "hmc", change, intercept=False)
    (note,) = (text for text in without.summary["notes"] if "the model has no intercept" in text)
    assert note.endswith("take model.intercept = true")
    found, rates = fitted(tmp_path, "poisson", "hmc", change, intercept=True)
    assert not [text for text in found.summary["notes"] if "the model has no intercept" in text]
    plain, usual = fitted(tmp_path, "poisson", "hmc", intercept=True)
    np.testing.assert_allclose(rates["rate_mean"], 1e3 * usual["rate_mean"], rtol=1e-4)
    assert found.parameters["intercept"]["mean"] == pytest.approx(plain.parameters["intercept"]["mean"] + np.log(1e3), abs=1e-4)


def test_exposures_in_another_unit_at_one_client_are_a_doubt(tmp_path: Path) -> None:
    tables = job(tmp_path, "poisson", "sfvi")
    assert "exposures-in-another-unit" not in ids(fedkern.run(tables))
    name = artifacts.NAMES[1]
    path = tmp_path / "rows" / f"{name}.csv"
    with path.open(newline="") as file:
        lines = list(csv.reader(file))
    at = lines[0].index("expected")
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([lines[0], *([*row[:at], repr(float(row[at]) * 1000), *row[at + 1 :]] for row in lines[1:])])
    wrong = fedkern.run(tables)
    assert wrong.converged is False
    assert [list(one["where"]) for one in said(wrong, "exposures-in-another-unit")] == [[name]]


def test_rates_are_compared_by_how_the_others_differ() -> None:
    names = ("a", "b", "c")
    assert rates.of_exposures("y", names, [(100.0, 90.0), (250.0, 100.0), (80.0, 130.0)]) == []
    ten = rates.of_exposures("y", names, [(100.0, 90.0), (110.0, 1000.0), (80.0, 100.0)])
    assert "in another unit at b: column 'y' by its exposure is 1/" in ten[-1]
    assert not rates.of_exposures("y", names, [(100.0, 90.0), (0.0, 1000.0), (80.0, 100.0)]), "no case tells no rate"
    few = rates.of_exposures("y", names, [(2.0, 0.2), (110.0, 100.0), (80.0, 100.0)])
    assert not any(one.doubt for one in few), "two cases tell little"


def test_a_count_of_999_on_a_map_lets_no_result_stand_and_the_remedy_ends_it(tmp_path: Path) -> None:
    sizes = (20, 15, 12)
    artifacts.written(tmp_path / "prior", sizes=sizes)
    tables: dict[str, Any] = {
        "job": {"method": "sigma", "seed": 3, "rounds": 150},
        "data": {"clients": artifacts.counts(tmp_path / "rows", sizes=sizes), "area": "district", **DATA["poisson"]},
        "model": {"prior": str(tmp_path / "prior"), "family": "poisson"},
    }
    said = "column 'cases' has counts that look like a code for a missing value (99, 999) at 'north': see rows.json there"
    assert said not in fedkern.run(tables).summary["verdict"]
    path = tmp_path / "rows" / "north.csv"
    right = path.read_text().splitlines()
    cells = right[5].split(",")
    path.write_text("\n".join([*right[:5], ",".join([cells[0], "999", *cells[2:]]), *right[6:]]) + "\n")
    wrong = fedkern.run(tables, out=tmp_path / "out").summary
    assert wrong["converged"] is False
    assert said in wrong["verdict"]
    own = json.loads((tmp_path / "out" / "client-north" / "rows.json").read_text())["notes"]
    assert any("column 'cases': 999 stands in 1 row, far from all other cells" in note for note in own)
    path.write_text("\n".join([*right[:5], ",".join([cells[0], "", *cells[2:]]), *right[6:]]) + "\n")
    assert said not in fedkern.run(tables).summary["verdict"]
