"""Areas of a spatial job: clients whose responses are all empty, areas that stand in several rows or in none."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.algorithms.sfvi.families import Family, NestedFamily
from fedkern.cli.__main__ import main
from fedkern.data.artifact import read_client
from fedkern.errors import JobError, OwnFault
from fedkern.models.spatial.site import Rows, Site
from fedkern.models.variational import Block
from support import sigma_artifacts as artifacts
from support import sigma_cases as cases
from support.command import mpirun, mpirun_jobs
from support.mpirun import launcher_removed
from support.refusal import refusal

FAMILIES = {
    "poisson": {"data": {"exposure": "expected"}},
    "binomial": {"data": {"trials": "expected"}, "model": {"family": "binomial"}},
    "bernoulli": {"data": {"positive": "1", "ignore": ["expected"]}, "model": {"family": "bernoulli"}},
    "gaussian": {"data": {"ignore": ["expected"]}, "model": {"family": "gaussian"}},
}


def job(folder: Path, family: str = "poisson", rounds: int = 20, **more: dict[str, Any]) -> Path:
    artifacts.written(folder / "prior")
    artifacts.counts(folder / "rows")
    for name in artifacts.NAMES if family in ("binomial", "bernoulli") else ():
        change(folder, name, "expected", lambda row, cell: "40")
        if family == "bernoulli":
            change(folder, name, "cases", lambda row, cell: cell and str(row % 2))
    tables: dict[str, dict[str, Any]] = {
        "job": {"method": "sigma", "rounds": rounds},
        "data": {"clients": "rows/*.csv", "area": "district", "response": "cases"},
        "model": {"prior": "prior"},
    }
    for changes in (FAMILIES[family], more):
        for name, table in changes.items():
            tables[name] = tables.get(name, {}) | table
    lines = [
        line for name, table in tables.items() for line in (f"[{name}]", *(f"{k} = {json.dumps(v)}" for k, v in table.items()))
    ]
    (folder / "job.toml").write_text("\n".join(lines) + "\n")
    return folder / "job.toml"


def change(folder: Path, client: str, column: str, to: Any) -> None:
    path = folder / "rows" / f"{client}.csv"
    head, *rows = (line.split(",") for line in path.read_text().splitlines())
    at = head.index(column)
    for i, row in enumerate(rows):
        row[at] = to(i, row[at])
    path.write_text("\n".join(map(",".join, [head, *rows])) + "\n")


def emptied(folder: Path, *clients: str) -> None:
    for name in clients:
        change(folder, name, "cases", lambda row, cell: "")


def lines(folder: Path, client: str, to: Any) -> None:
    path = folder / "rows" / f"{client}.csv"
    path.write_text("\n".join(to(path.read_text().splitlines())) + "\n")


def areas(folder: Path, client: str) -> list[dict[str, str]]:
    with (folder / f"client-{client}" / "areas.csv").open(newline="") as file:
        return list(csv.DictReader(file))


RUNS = [("poisson", "auxiliary", "sfvi"), ("poisson", "deterministic", "sfvi"), ("gaussian", "auxiliary", "sfvi")]
RUNS += [("binomial", "auxiliary", "sfvi"), ("poisson", "auxiliary", "hmc"), ("poisson", "auxiliary", "sfvi-avg")]
NIGHT = [(f, k, i) for f in FAMILIES for k in ("auxiliary", "deterministic") for i in ("sfvi", "sfvi-avg", "hmc", "mala")]
NIGHT = [run for run in NIGHT if run not in RUNS]


@pytest.mark.parametrize(
    ("family", "kind", "inference"), [*RUNS, *(pytest.param(*run, marks=pytest.mark.nightly) for run in NIGHT)]
)
def test_clients_without_responses_are_predicted(tmp_path: Path, family: str, kind: str, inference: str) -> None:
    path = job(tmp_path, family, model={"kind": kind}, algorithm={"inference": inference}, output={"chains": 2})
    whole = fedkern.run(path, out=tmp_path / "whole")
    for empty in (("east",), ("east", "west")):
        emptied(tmp_path, *empty)
        out = tmp_path / "-".join(empty)
        result = fedkern.run(path, out=out)
        assert result.digest != whole.digest
        assert all(np.isfinite(value["mean"]) for value in result.summary["parameters"].values())
        for name, size in zip(artifacts.NAMES, artifacts.SIZES):
            rows = areas(out, name)
            assert [row["area"] for row in rows] == [f"{name}-{i}" for i in range(size)]
            assert all(float(row["theta_sd"]) > 0 for row in rows)
            assert {row["rows"] for row in rows} == ({"0"} if name in empty else {"0", "1"})
    told = json.loads((out / "client-west" / "rows.json").read_text())["notes"]
    assert "no row has a response: this client adds nothing, and all its areas are predicted" in told


@pytest.mark.parametrize("family", FAMILIES)
def test_where_all_are_empty_there_is_nothing_to_learn_from(tmp_path: Path, family: str) -> None:
    path = job(tmp_path, family)
    emptied(tmp_path, *artifacts.NAMES)
    with pytest.raises(JobError, match="column 'cases': no client has a response; there is nothing to learn from"):
        fedkern.run(path, out=tmp_path / "out")


@pytest.mark.digits  # ranks are processes of their own
def test_over_mpi_it_is_the_same(tmp_path: Path) -> None:
    path = job(tmp_path)
    emptied(tmp_path, "east", "west")
    here = fedkern.run(path, out=tmp_path / "here")
    shutil.copytree(path.parent, tmp_path / "again", ignore=shutil.ignore_patterns("here", "again"))
    emptied(tmp_path / "again", "north")
    codes, err = mpirun_jobs(
        3,
        tmp_path / "commands",
        {
            "two": ["run", path, "--out", tmp_path / "mpi", "--quiet"],
            "all": ["run", tmp_path / "again" / path.name, "--out", tmp_path / "none", "--quiet"],
        },
    )
    assert codes == {"two": 0, "all": 2}
    assert launcher_removed(err) == "fedkern: column 'cases': no client has a response; there is nothing to learn from\n"
    assert json.loads((tmp_path / "mpi" / "summary.json").read_text())["digest"] == here.digest
    assert areas(tmp_path / "mpi", "west") == areas(tmp_path / "here", "west")


@pytest.mark.parametrize("p", [0, 2])
def test_without_rows_q_of_theta_is_the_prior(p: int) -> None:
    """The step of a client without responses is that of the family of its u_L alone, bit by bit."""
    rng = np.random.default_rng(4)
    some = cases.site(rng, tau="constant")
    rows = Rows(np.zeros(0), np.zeros(0, np.int64), np.zeros((0, p)), np.zeros(0))
    layout = type(some.layout)(True, cases.P_G, False, True, p, True, False)
    site = Site(some.decoder, some.condition, layout, some.likelihood, rows, some.auxiliary)
    alone = Site(some.decoder, some.condition, layout, some.likelihood, rows)
    outer = Family(Block(site.decoder.n_local, True), site.n_global)
    nested = NestedFamily(outer, site)
    start = nested.initial(0.1)
    assert len(start) == outer.n_parameters == nested.n_parameters
    xi, centre, eps = rng.normal(size=site.n_global), rng.normal(size=site.n_global), rng.normal(size=outer.n_normals)
    for got, want in zip(nested.gradient(site, start, xi, centre, eps), outer.gradient(alone, start, xi, centre, eps)):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-13)
    u = nested.sample(start, xi, centre, eps)
    np.testing.assert_array_equal(u, [*outer.sample(start, xi, centre, eps), *np.zeros(site.decoder.size)])


TWICE = {
    "the same line": lambda t: [*t, t[2]],
    "other numbers": lambda t: [*t, "east-1,3,4.5,1.0"],
    "one of them empty": lambda t: [*t, "east-1,,4.5,1.0"],
}


@pytest.mark.parametrize("what", TWICE)
def test_an_area_that_stands_there_twice_is_refused(tmp_path: Path, what: str) -> None:
    path = job(tmp_path)
    lines(tmp_path, "east", TWICE[what])
    with pytest.raises(OwnFault) as caught:
        fedkern.run(path, out=tmp_path / "out")
    text = str(caught.value)
    assert "client 'east', east.csv: column 'district': 1 of its 5 areas in the prior stand in several rows" in text
    assert 'data.rows_per_area = "any"' in text
    assert "east-1" not in text, "a cell is for its holder alone"
    assert "in several rows: 'east-1' (line 3, line 7)" in (tmp_path / "out" / "client-east" / "holder.txt").read_text()


def test_an_area_that_stands_nowhere_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = job(tmp_path)
    lines(tmp_path, "north", lambda t: [*t[:3], *t[5:], t[1]])
    with pytest.raises(OwnFault) as caught:
        fedkern.run(path, out=tmp_path / "out")
    text = str(caught.value)
    assert "client 'north', north.csv: column 'district': 1 of its 7 areas in the prior stand in several rows and 2 of" in text
    assert "2 of its 7 areas in the prior stand in none; give each one row" in text
    assert "north-2" not in text
    kept = (tmp_path / "out" / "client-north" / "holder.txt").read_text()
    assert "in none: 'north-2', 'north-3'" in kept
    assert main(["check", str(path), "--local", str(tmp_path / "rows" / "north.csv")]) == 2
    assert "in none: 'north-2', 'north-3'" in capsys.readouterr().err


def test_any_rows_are_observations_of_their_own(tmp_path: Path) -> None:
    """A Poisson row that is cut in two, with its exposure, says the same; areas without a row are predicted."""
    path = job(tmp_path, data={"rows_per_area": "any"}, algorithm={"inference": "hmc"}, output={"chains": 2})

    def cut(text: list[str]) -> list[str]:
        name, cases_, expected, poverty = text[1].split(",")
        half = int(cases_) // 2
        parts = [(half, float(expected) * 0.25), (int(cases_) - half, float(expected) * 0.75)]
        return [text[0], *text[2:], *(f"{name},{y},{e:.17g},{poverty}" for y, e in parts)]

    # Exchanged constants would count the cut row twice: these are given.
    text = path.read_text().replace("[model]", "[data.columns.poverty]\ncenter = 3\nscale = 2\n[model]")
    path.write_text(text)
    whole = fedkern.run(path, out=tmp_path / "whole")
    lines(tmp_path, "east", cut)
    parts = fedkern.run(path, out=tmp_path / "parts")
    for name, value in whole.summary["parameters"].items():
        assert value["mean"] == pytest.approx(parts.summary["parameters"][name]["mean"], rel=1e-3, abs=1e-3)
    one, two = (areas(tmp_path / out, "east")[0] for out in ("whole", "parts"))
    assert (one["rows"], two["rows"]) == ("1", "2")
    assert one["observed"] == two["observed"]
    assert float(one["exposure"]) == pytest.approx(float(two["exposure"]))
    lines(tmp_path, "west", lambda t: [*t[:2], *t[3:]])
    fedkern.run(path, out=tmp_path / "fewer")
    assert [row["rows"] for row in areas(tmp_path / "fewer", "west")] == ["1", "0", "1", "1"]
    notes = json.loads((tmp_path / "fewer" / "client-west" / "rows.json").read_text())["notes"]
    assert "1 of 4 areas stand in no row: they are predicted at the covariates' means" in notes


def test_an_area_of_another_client_is_no_area_of_this_one(tmp_path: Path) -> None:
    path = job(tmp_path)
    row = (tmp_path / "rows" / "north.csv").read_text().splitlines()[1]
    lines(tmp_path, "east", lambda t: [*t, row])
    with refusal(OwnFault, "east", "east.csv", "district"):
        fedkern.run(path, out=tmp_path / "out")


def test_a_file_without_rows_says_what_it_needs(tmp_path: Path) -> None:
    path = job(tmp_path)
    lines(tmp_path, "east", lambda t: t[:1])
    with refusal(JobError, "east", "east.csv"):
        fedkern.run(path, out=tmp_path / "out")


def test_a_prior_with_an_area_twice_is_no_prior(tmp_path: Path) -> None:
    job(tmp_path)
    file = read_client(tmp_path / "prior", "east")
    with pytest.raises(ValueError, match="wanted different names of areas"):
        type(file)(**{**vars(file), "areas": ("a", "a", *file.areas[2:])})


def test_one_clear_error_over_mpi(tmp_path: Path) -> None:
    path = job(tmp_path)
    lines(tmp_path, "west", TWICE["the same line"])
    ended = mpirun(4, "run", path, "--out", tmp_path / "out", "--quiet")
    assert ended.code == 2
    assert launcher_removed(ended.err).count("\n") == 1
    assert "client 'west', west.csv: column 'district': 1 of its 4 areas in the prior stand in several rows" in ended.err
