"""Jobs with a trained prior, from files to a result: what people read, what is refused, and what the wire carries."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.algorithms.sfvi import machine as sfvi
from fedkern.api import check_job, perform
from fedkern.errors import JobError, LostPeer, NumericalError, OwnFault
from fedkern.jobs.run import Output
from fedkern.methods import load, parse
from fedkern.models.spatial.condition import Condition
from fedkern.transports.inprocess import InProcess
from support import sigma_artifacts as artifacts
from support.command import StopsAt, mpirun, mpirun_jobs
from support.refusal import refusal
from support.wires import checked_and_run

BASE: dict[str, Any] = {
    "job": {"method": "sigma", "rounds": 60, "seed": 3},
    "data": {"clients": "rows/*.csv", "area": "district", "response": "cases", "exposure": "expected"},
    "model": {"prior": "prior"},
}


def toml(tables: dict[str, Any]) -> str:
    return "\n".join(
        line for name, table in tables.items() for line in (f"[{name}]", *(f"{k} = {json.dumps(v)}" for k, v in table.items()))
    )


def merged(changes: dict[str, Any]) -> dict[str, Any]:
    return {name: {**BASE.get(name, {}), **changes.get(name, {})} for name in {**BASE, **changes}}


def job(folder: Path, variant: str = "multiplicative", **changes: Any) -> Path:
    artifacts.written(folder / "prior", variant)
    artifacts.counts(folder / "rows")
    path = folder / "job.toml"
    path.write_text(toml(merged(changes)))
    return path


def areas(folder: Path, client: str) -> list[dict[str, str]]:
    with (folder / f"client-{client}" / "areas.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"privacy": {"epsilon": 1.0, "delta": 1e-5, "clip": 1.0}}, "unknown key privacy.clip"),
        ({"algorithm": {"inference": "nuts"}}, "2^depth exchanges for one draw"),
        ({"algorithm": {"inference": "hmc", "burn_in": 60}}, "leaves no draw"),
        ({"algorithm": {"inference": "hmc"}, "output": {"bound": True}}, "output.bound is for"),
        ({"data": BASE["data"] | {"location": ["x"]}}, "wanted either area"),
        ({"data": {k: v for k, v in BASE["data"].items() if k != "area"}}, "wanted either area"),
        ({"model": {"prior": "p", "family": "binomial"}}, "data.exposure: only family"),
        (
            {"model": {"prior": "p", "family": "binomial"}, "data": BASE["data"] | {"trials": "cases"}},
            "must be different columns",
        ),
        ({"model": {"prior": "p", "scale": -1.0}}, 'a number > 0, or "unknown"'),
        ({"model": {}}, "model.prior is missing"),
        ({"model": {"prior": "p", "kind": "determinist"}}, 'did you mean "deterministic"?'),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(JobError) as caught:
        parse({**BASE, **changes})
    assert text in str(caught.value)


def test_a_chain_too_short_for_diagnostics_says_so(tmp_path: Path, fedkern: Any) -> None:
    tables = merged({"algorithm": {"inference": "hmc", "leapfrog_steps": 2, "burn_in": 6}, "job": {"rounds": 8}})
    path = job(tmp_path)
    path.write_text(toml(tables))
    ended = fedkern("run", path, "--out", tmp_path / "out")
    assert ended.code == 0, ended.err
    assert "no R-hat: draws are too few" in ended.out


VARIANTS: list[dict[str, Any]] = [
    {},
    {"model": {"kind": "deterministic"}, "algorithm": {"structured": False, "covariance": "diagonal"}},
    {"algorithm": {"inference": "sfvi-avg", "local_steps": 3}, "job": {"rounds": 20}},
    {"algorithm": {"estimator": "entropy"}, "output": {"bound": True}},
    {"algorithm": {"inference": "hmc", "leapfrog_steps": 3}, "job": {"rounds": 12}, "output": {"chains": 2}},
    {"algorithm": {"inference": "mala"}, "job": {"rounds": 20}, "output": {"chains": 2}},
    {"model": {"family": "gaussian"}, "data": {"exposure": None}},
    {"model": {"phi": 0.9, "spatial_scale": 0.5, "intercept": False}},
]
SENT = {"SchemaReply", "ColumnNotes", "Holds", "LevelSums", "Received", "Kept"}
SENT |= {"GlobalGradient", "GlobalGradientBound", "Reached", "Slope", "SlopeChange", "Settled", "VerdictHeard"}


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_variants_run_and_send_only_what_the_specification_names(tmp_path: Path, changes: dict[str, Any]) -> None:
    tables = merged(changes)
    if "exposure" in changes.get("data", {}):
        tables["data"].pop("exposure")
        tables["data"]["ignore"] = ["expected"]
    path = job(tmp_path)
    path.write_text(toml(tables))
    result = checked_and_run(path, tmp_path / "out")
    names = set(result.parameters)
    assert ("phi" in names) == ("phi" not in tables["model"])
    assert {"theta[poverty]", "theta_std[poverty]"} <= names
    # Without an intercept a column that is centred would bring a level of its own into the model.
    centres = [column["center"] for column in result.summary["encoding"]["columns"]]
    assert all(centre == 0 for centre in centres) == (tables["model"].get("intercept") is False)
    for name, size in zip(artifacts.NAMES, artifacts.SIZES):
        sent = [json.loads(line) for line in (tmp_path / "out" / "ledger" / f"{name}.jsonl").read_text().splitlines()]
        assert {message["kind"] for message in sent} <= SENT
        assert sum(m["bytes"] for m in sent) == result.summary["wire"][name]["to_server"]["bytes"]
        rows = areas(tmp_path / "out", name)
        assert [row["area"] for row in rows] == [f"{name}-{i}" for i in range(size)]
        assert rows[1]["observed"] == ""
        assert rows[1]["rows"] == "0"
        assert all(float(row["theta_sd"]) > 0 for row in rows)
    assert not (tmp_path / "out" / "areas.csv").exists()


@pytest.fixture(scope="module")
def by_ranks(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """The folder of two jobs, by both kinds of inference, that one mpirun of so many ranks has run."""

    @cache
    def of(ranks: int) -> Path:
        folder = tmp_path_factory.mktemp("ranks")
        runs: dict[str, list[str | Path]] = {}
        for inference in ("sfvi", "hmc"):
            few = {"inference": inference, "leapfrog_steps": 2}
            path = job(folder / inference, job={"rounds": 10}, algorithm=few, output={"chains": 2})
            runs[inference] = ["run", path, "--out", folder / inference / "mpi", "--quiet"]
        codes, err = mpirun_jobs(ranks, folder / "commands", runs)
        assert codes == {"sfvi": 0, "hmc": 0}, err
        return folder

    return of


@pytest.mark.digits  # ranks are processes of their own
@pytest.mark.parametrize(("inference", "ranks"), [("sfvi", 3), pytest.param("sfvi", 4, marks=pytest.mark.nightly), ("hmc", 3)])
def test_one_process_and_several_ranks_give_the_same_bits(
    by_ranks: Callable[[int], Path], tmp_path: Path, inference: str, ranks: int
) -> None:
    folder = by_ranks(ranks) / inference
    here = fedkern.run(folder / "job.toml", out=tmp_path / "here")
    assert json.loads((folder / "mpi" / "summary.json").read_text())["digest"] == here.digest
    for name in artifacts.NAMES:
        assert areas(folder / "mpi", name) == areas(tmp_path / "here", name)


@pytest.mark.parametrize("inference", ["sfvi", "hmc"])
def test_an_interrupted_run_goes_on_with_the_same_bits(tmp_path: Path, inference: str) -> None:
    few = {"inference": inference, "leapfrog_steps": 2}
    path = job(tmp_path, job={"rounds": 30}, algorithm=few, output={"metrics_every": 5, "chains": 2})
    config, folder = load(path)
    want = perform(InProcess(), config, folder, Output(tmp_path / "whole", quiet=True))
    out = tmp_path / "out"
    with refusal(LostPeer, "--resume"):
        perform(InProcess(signals=StopsAt(out / "metrics.jsonl", 2)), config, folder, Output(out, quiet=True))
    result = perform(InProcess(), config, folder, Output(out, resume=True, quiet=True))
    assert want is not None
    assert result is not None
    assert result.digest == want.digest
    for name in artifacts.NAMES:
        assert areas(out, name) == areas(tmp_path / "whole", name)


def test_no_frame_holds_a_response_or_a_local_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every number on the wire against every number that must stay."""
    sent: list[Any] = []
    states: dict[str, Any] = {}
    receive = sfvi.client_receive

    def spied(state: Any, event: Any) -> Any:
        new, answers = receive(state, event)
        sent.extend(answers)
        states[state.name] = new
        return new, answers

    monkeypatch.setattr(sfvi, "client_receive", spied)
    path = job(tmp_path, job={"rounds": 5})
    fedkern.run(path, out=tmp_path / "out")
    wire = np.concatenate([answer.gradient.ravel() for answer in sent])
    for state in states.values():
        rows = state.model.rows
        own = [rows.y, rows.offset, rows.X.ravel(), state.parameters, state.model.decoder.scale]
        assert len(wire) == 5 * 3 * state.model.n_global
        assert not np.isin(np.concatenate(own), wire).any()


def change(folder: Path, client: str, line: int, cells: dict[int, str]) -> None:
    path = folder / "rows" / f"{client}.csv"
    lines = path.read_text().splitlines()
    row = lines[line].split(",")
    for at, text in cells.items():
        row[at] = text
    path.write_text("\n".join([*lines[:line], ",".join(row), *lines[line + 1 :]]) + "\n")


@pytest.mark.parametrize(
    ("cells", "text"),
    [
        ({0: "atlantis"}, "line 3, column 'district': 'atlantis' is no area of this client in the prior; correct it"),
        ({1: "-1"}, "column 'cases': '-1' is no count"),
        ({1: "1.5"}, "is no count"),
        ({1: "many"}, "column 'cases': 'many' is no number"),
        ({1: "3", 2: "0"}, "column 'expected': '0' is no exposure > 0"),
        ({1: "3", 2: ""}, "is no finite number"),
        ({3: "x"}, "column 'poverty'"),
    ],
)
def test_a_bad_cell_ends_the_job_and_only_its_holder_is_told_which(tmp_path: Path, cells: dict[int, str], text: str) -> None:
    path = job(tmp_path)
    change(tmp_path, "north", 2, cells)
    with refusal(OwnFault, "north", "north.csv") as caught:
        fedkern.run(path, out=tmp_path / "out")
    assert text in (tmp_path / "out" / "client-north" / "holder.txt").read_text()
    assert "atlantis" not in str(caught.value)
    assert "line" not in str(caught.value)
    assert not re.search(r"\d rows?\b", str(caught.value)), "nor how many"


def test_files_of_the_prior_that_do_not_belong_are_refused(tmp_path: Path) -> None:
    path = job(tmp_path / "a")
    other = job(tmp_path / "b", variant="amended")
    # another client's file
    swapped = tmp_path / "a" / "prior" / "clients"
    shutil.copy(swapped / "east.npz", swapped / "north.npz")
    with pytest.raises(JobError, match=r"north\.npz"):
        fedkern.run(path)
    # a whole prior of another training, at one client
    config, folder = load(other)
    shutil.rmtree(tmp_path / "b" / "rows")
    artifacts.counts(tmp_path / "b" / "rows", names=("east", "north"), sizes=(5, 7))
    with pytest.raises(JobError, match=r"trained for 3 clients, the job has 2 .west on one side only."):
        check_job(InProcess(), config, folder)
    artifacts.counts(tmp_path / "b" / "rows", names=("east", "north", "south"), sizes=(5, 7, 4))
    with pytest.raises(JobError, match="not for a client 'south'"):
        check_job(InProcess(), config, folder)


def test_the_rank_with_the_wrong_file_says_so(tmp_path: Path) -> None:
    """Each party has its own copy of the prior; one client's is of another training."""
    path = job(tmp_path / "job")
    artifacts.written(tmp_path / "other", seed=5)
    text = path.read_text()
    shutil.copytree(tmp_path / "job" / "prior", tmp_path / "job" / "mixed")
    shutil.copy(tmp_path / "other" / "clients" / "west.npz", tmp_path / "job" / "mixed" / "clients" / "west.npz")
    manifest = json.loads((tmp_path / "job" / "mixed" / "manifest.json").read_text())
    manifest["digests"]["clients/west.npz"] = json.loads((tmp_path / "other" / "manifest.json").read_text())["digests"][
        "clients/west.npz"
    ]
    (tmp_path / "job" / "mixed" / "manifest.json").write_text(json.dumps(manifest))
    path.write_text(text.replace('"prior"', '"mixed"'))
    ended = mpirun(4, "run", path, "--out", tmp_path / "out", "--quiet")
    assert ended.code == 2
    assert "client 'west'" in ended.err
    assert "copy this client's file from the folder in which the server's was made" in ended.err


def test_a_value_outside_the_training_range_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"phi = 0.995 is outside of \[0, 0.99\], the range of this prior"):
        fedkern.run(job(tmp_path, model={"phi": 0.995}))


def test_a_posterior_at_the_end_of_the_range_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedkern.methods.sigma.publish.END", 0.9)
    result = fedkern.run(job(tmp_path))
    assert any("lies at 0.99, the end of the range" in note for note in result.summary["notes"])


def test_a_fit_that_diverged_is_no_result(tmp_path: Path) -> None:
    """Finite numbers that are no posterior: every party ends, and no area is written."""
    path = job(tmp_path, algorithm={"learning_rate": 10.0, "optimiser": "adam", "cool_down": 0.0})
    with pytest.raises(NumericalError, match=r"the fit has diverged|not finite|left the finite numbers"):
        fedkern.run(path, out=tmp_path / "out")
    assert not list((tmp_path / "out").glob("client-*/areas.csv"))
    assert not (tmp_path / "out" / "summary.json").exists()


def test_binomial_counts_and_grid_points(tmp_path: Path) -> None:
    condition = Condition("lengthscale", 0.2, 1.0, "log-unit")
    artifacts.written(tmp_path / "prior", kind="gp", condition=condition)
    rng, rows = np.random.default_rng(1), tmp_path / "rows"
    rows.mkdir()
    for k, (name, d) in enumerate(zip(artifacts.NAMES, artifacts.SIZES)):
        grid = np.linspace(k, k + 1, d, endpoint=False)
        lines = [f"{x + 0.3 / d:.6f},{rng.binomial(9, 0.4)},9" for x in np.repeat(grid, 2)]
        (rows / f"{name}.csv").write_text("\n".join(["x,sick,seen", *lines]) + "\n")
    data = {"clients": "rows/*.csv", "location": "x", "response": "sick", "trials": "seen"}
    path = tmp_path / "job.toml"
    tables = {"job": BASE["job"], "data": data, "model": {"prior": "prior", "family": "binomial"}}
    path.write_text(toml(tables))
    result = fedkern.run(path, out=tmp_path / "out")
    assert result.parameters.keys() == {"lengthscale", "intercept", "sigma_theta"}
    table = areas(tmp_path / "out", "east")
    assert [row["rows"] for row in table] == ["2"] * artifacts.SIZES[0]
    assert all(0 < float(row["probability_mean"]) < 1 for row in table)
    (rows / "east.csv").write_text("x,sick,seen\n7.0,1,9\n")
    with pytest.raises(JobError, match="is farther than half a step from every grid point"):
        fedkern.run(path)
    (rows / "east.csv").write_text("x,sick,seen\n0.2,10,9\n")
    with pytest.raises(JobError, match="is more than seen, the number of trials"):
        fedkern.run(path)


def _has_a_table_for_print(home: Path) -> None:
    """A client's own page: each area with exact and posterior interval, the highest first, and what the numbers mean."""
    from fedkern.cli.report import write

    page = write(home).read_text().replace("\N{NO-BREAK SPACE}", " ").replace("&gt;", ">").replace("&lt;", "<")
    with (home / "areas.csv").open(newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: -float(row["p_rate_above_1"]))
    where = []
    for row in rows:
        exact = [float(row[name] or "nan") for name in ("crude", "crude_low", "crude_high")]
        rate = [float(row[f"rate_{what}"]) for what in ("mean", "q025", "q975")]
        cells = ["{:#.3g} ({:#.3g} to {:#.3g})".format(*three) if np.isfinite(three).all() else "" for three in (exact, rate)]
        line = f"<td>{cells[0]}</td><td>{cells[1]}</td><td>{float(row['p_rate_above_1']):.3f}</td></tr>"
        assert line in page, line
        where.append(page.index(line))
    assert where == sorted(where)
    said = json.loads((home / "areas.json").read_text())["parameters"]["sigma_theta"]
    assert "{mean:.3g} ({q025:.3g} to {q975:.3g}): how much areas differ".format(**said) in page
    assert "1 is as many cases as expected" in page
    assert "the probability, given all clients' data, that the area's rate is above 1" in page.replace("&#39;", "'")


def test_the_report_shows_the_areas_that_are_here(tmp_path: Path) -> None:
    from fedkern.cli.report import write

    path = job(tmp_path, output={"metrics_every": 5})
    fedkern.run(path, out=tmp_path / "out")
    page = write(tmp_path / "out").read_text()
    for text in ("Areas, the highest first", "Smoothing", "Map", "sigma_theta", "16 areas are in this folder", "P(rate &gt; 1)"):
        assert text in page
    assert ">2.5 %<" in page
    assert "prior, 2.5 % to 97.5 %" in page
    assert ">5 %<" not in page
    assert ">95 %<" not in page
    assert (tmp_path / "out" / "report.html").stat().st_mode & 0o077 == 0, "it holds what the clients' own folders hold"
    _has_a_table_for_print(tmp_path / "out" / "client-north")
    for name in artifacts.NAMES:
        shutil.rmtree(tmp_path / "out" / f"client-{name}")
    assert "Areas, the highest first" not in write(tmp_path / "out").read_text()
