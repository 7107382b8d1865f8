"""Jobs whose prior is exact inside each client: from a map to areas.csv, what is refused, and the same bits everywhere."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.api import perform
from fedkern.cli import report
from fedkern.data.artifact import WithinFile, read_client, read_own, read_server
from fedkern.errors import JobError, LostPeer
from fedkern.jobs import memory
from fedkern.jobs.run import Output
from fedkern.methods import load, parse
from fedkern.methods.sigma import model as of_model
from fedkern.methods.sigma import publish
from fedkern.methods.sigma.model import SigmaModel
from fedkern.methods.sigma.prior import build
from fedkern.methods.sigma.prior.keys import parse as parse_prior
from fedkern.models.encoding import Encoding
from fedkern.transports.inprocess import InProcess
from support import built_priors
from support import sigma_artifacts as artifacts
from support.command import StopsAt, mpirun
from support.refusal import refusal
from support.wires import checked_and_run

BASE: dict[str, Any] = {
    "job": {"method": "sigma", "rounds": 20, "seed": 3},
    "data": {"clients": "rows/*.csv", "area": "district", "response": "cases", "exposure": "expected"},
    "model": {"prior": "prior"},
}


def job(folder: Path, **changes: Any) -> Path:
    built_priors.written(folder)
    artifacts.counts(folder / "rows")
    tables = {name: {**BASE.get(name, {}), **changes.get(name, {})} for name in {**BASE, **changes}}
    if tables["model"].get("family") == "gaussian":
        tables["data"] |= {"ignore": ["expected"]}
        del tables["data"]["exposure"]
    sections = (f"[{name}]\n" + "\n".join(f"{k} = {json.dumps(v)}" for k, v in table.items()) for name, table in tables.items())
    (folder / "job.toml").write_text("\n".join(sections))
    return folder / "job.toml"


def areas(folder: Path, client: str) -> list[dict[str, str]]:
    with (folder / f"client-{client}" / "areas.csv").open(newline="") as file:
        return list(csv.DictReader(file))


VARIANTS: list[Any] = [
    {},
    {"model": {"kind": "within", "family": "gaussian"}, "output": {"bound": True}},
    {"algorithm": {"inference": "nested"}, "model": {"family": "gaussian", "phi": 0.9}},
    {"algorithm": {"inference": "hmc", "leapfrog_steps": 3}, "job": {"rounds": 12}, "output": {"chains": 2}},
    pytest.param(
        {"model": {"phi": 0.9, "spatial_scale": 0.5, "intercept": False}, "algorithm": {"inference": "sfvi"}},
        marks=pytest.mark.nightly,
    ),
    {"model": {"phi": 0.9, "spatial_scale": 0.5, "intercept": False}},
]


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_a_job_sends_what_is_listed_and_writes_the_areas(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = job(tmp_path, **changes)
    result = checked_and_run(path, tmp_path / "out")
    assert result.summary["sigma"]["kind"] == "within"
    stated = json.loads((tmp_path / "prior" / "fit.json").read_text())["error"]
    assert result.summary["sigma"]["prior"]["error"] == stated
    assert 0 < stated[0]["error"] < 1e-3  # as many numbers as areas on borders
    assert ("phi" in result.parameters) == ("phi" not in changes.get("model", {}))
    for name, size in zip(artifacts.NAMES, artifacts.SIZES):
        rows = areas(tmp_path / "out", name)
        assert [row["area"] for row in rows] == [f"{name}-{i}" for i in range(size)]
        assert rows[1]["observed"] == ""
        assert all(float(row["theta_sd"]) > 0 for row in rows)
        kept = json.loads((tmp_path / "out" / f"client-{name}" / "areas.json").read_text())
        how = kept.get("given_the_rest", "")  # of a chain there is nothing to say
        family = changes.get("model", {}).get("family", "poisson")
        if changes.get("algorithm", {}).get("inference") == "hmc":
            assert not how
        else:
            assert how.startswith("areas are normal" if family == "gaussian" else "draws of each area follow its own likelihood")
            assert how[1:] in report.write(tmp_path / "out" / f"client-{name}").read_text()


@pytest.mark.digits
@pytest.mark.parametrize("latents", ["auto", 1])
def test_the_error_of_the_prior_is_a_check_of_the_verdict(tmp_path: Path, latents: Any) -> None:
    """The job itself is the same, and weights of its draws agree with either prior."""
    path = job(tmp_path)
    if latents != "auto":
        shutil.rmtree(tmp_path / "prior")
        built_priors.written(tmp_path, latents=latents)
    result = fedkern.run(path)
    off = max(one["error"] for one in result.summary["sigma"]["prior"]["error"])
    assert (off > 0.05) == (latents == 1)
    assert ("what it misses between clients" in "\n".join(result.summary["notes"])) == (latents == 1)
    assert result.summary["sigma"]["nested"]["k_hat"] <= 0.7
    if latents == "auto":
        assert result.summary["converged"] is True
    else:
        assert result.summary["converged"] is False
        words = "not converged: the prior itself leaves posterior means of areas off by "
        assert result.summary["verdict"].startswith(words)
        assert "of what independent areas have (wanted 0.05): more shared numbers" in result.summary["verdict"]


@pytest.mark.parametrize(
    ("phi", "doubted"), [(0.3, False), (0.5, False), (0.9, True), ([0.2, 0.5, 0.6], False), ([0.5, 0.9, 0.95], True)], ids=str
)
def test_the_error_of_a_prior_is_that_where_phi_is(phi: Any, doubted: bool) -> None:
    """A job may fix phi, or draw it; the errors are known at three values."""
    free = isinstance(phi, list)
    condition = SimpleNamespace(name="phi", fixed=None if free else phi)
    common = SimpleNamespace(condition=condition, within=True)
    model: Any = SimpleNamespace(common=common, condition=condition, layout=SimpleNamespace(free=free))
    released: Any = SimpleNamespace(values={"phi": np.array([phi])} if free else {})
    prior: Any = SimpleNamespace(errors=((0.33, 0.01), (0.66, 0.03), (0.99, 0.28)))
    assert bool(publish._of_prior(model, released, prior)) == doubted
    prior.errors = ()
    assert publish._of_prior(model, released, prior) == []


@pytest.mark.digits
@pytest.mark.nightly
@pytest.mark.parametrize("inference", ["nested", "sfvi", "hmc"])
def test_one_process_several_ranks_and_a_resumed_run_give_the_same_bits(tmp_path: Path, inference: str) -> None:
    few = {"inference": inference, "leapfrog_steps": 2} if inference == "hmc" else {"inference": inference}
    path = job(tmp_path, job={"rounds": 20}, algorithm=few, output={"metrics_every": 5, "chains": 2})
    config, folder = load(path)
    want = perform(InProcess(), config, folder, Output(tmp_path / "whole", quiet=True))
    out = tmp_path / "out"
    with refusal(LostPeer, "--resume"):
        perform(InProcess(signals=StopsAt(out / "metrics.jsonl", 2)), config, folder, Output(out, quiet=True))
    resumed = perform(InProcess(), config, folder, Output(out, resume=True, quiet=True))
    ended = mpirun(3, "run", path, "--out", tmp_path / "mpi", "--quiet")
    assert ended.code == 0, ended.err
    assert want is not None
    assert resumed is not None
    assert resumed.digest == want.digest == json.loads((tmp_path / "mpi" / "summary.json").read_text())["digest"]
    for name in artifacts.NAMES:
        assert areas(out, name) == areas(tmp_path / "whole", name) == areas(tmp_path / "mpi", name)


def test_a_nested_approximation_has_limits_that_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each client half of the squares of what is unknown, at 16 places from each."""
    path = job(tmp_path)
    config, _ = load(path, ())
    whole = SigmaModel(config, artifacts.NAMES, Encoding((), None), read_server(tmp_path / "prior").common)
    assert (whole.inference, whole.by_default) == ("nested", "the default with at most 400 latents")
    n = len(artifacts.NAMES)
    answered = 4 * 16 * n * whole.layout.size**2
    monkeypatch.setattr(of_model, "MOST_ANSWERED", answered)
    assert whole.inference == "nested"
    monkeypatch.setattr(of_model, "MOST_ANSWERED", answered - 1)
    assert whole.inference == "sfvi"
    latents = f"{whole.common.n_global} latents"
    assert whole.by_default.startswith(f"the default: curvatures in {latents} at 16 places, of {n} clients, are 0.0 GiB")
    monkeypatch.undo()
    monkeypatch.setattr(of_model, "MOST_LATENTS", whole.common.n_global - 1)
    assert whole.by_default.startswith(f"the default: the prior has {latents}, and nested takes at most")
    with refusal(JobError, "nested", "sfvi"):
        fedkern.run(path, algorithm={"inference": "nested"})


def test_the_artifact_is_read_as_it_was_written(tmp_path: Path) -> None:
    built = built_priors.written(tmp_path)
    server = read_server(tmp_path / "prior")
    assert (server.clients, server.sizes, server.n_local) == (artifacts.NAMES, artifacts.SIZES, (0, 0, 0))
    for made, name in zip(built.tied.clients, artifacts.NAMES):
        file = read_own(tmp_path / "prior", name, id=server.common.id)
        assert isinstance(file, WithinFile)
        phi = np.array([0.3, 0.97])
        one, two = made.sloped(phi), file.within.sloped(phi)
        for what in ("U", "W", "K", "G", "log_norm", "dlog_norm"):
            assert np.array_equal(getattr(one, what), getattr(two, what))
        np.testing.assert_array_equal(made.precision(one, 1), file.within.precision(two, 1))
    assert built.tied.errors.max() <= 0.05
    variances = np.concatenate(server.true_variance)
    np.testing.assert_allclose(variances, built.source.prior.mean_variance(), rtol=1e-3)


def test_what_cannot_be_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = job(tmp_path)
    with pytest.raises(JobError, match="holds a finished prior; to start anew"):
        built_priors.built(tmp_path)
    monkeypatch.setattr(memory, "available", lambda: 100.0)
    with refusal(JobError, "16", "leroux"):
        build.perform(parse_prior(built_priors.tables("bym2")), tmp_path, Output(tmp_path / "other", quiet=True))
    monkeypatch.undo()
    with refusal(JobError, "auxiliary", "within"):
        fedkern.run(path, model={"kind": "auxiliary"})
    with pytest.raises(JobError, match="this prior was built, and has no networks"):
        read_client(tmp_path / "prior", "east")
    artifacts.written(tmp_path / "networks")
    with pytest.raises(JobError, match='kind = "within" is for a prior that was built, and networks was trained'):
        fedkern.run(path, model={"kind": "within", "prior": "networks"})


def test_points_keyed_by_area(tmp_path: Path) -> None:
    built_priors.written(tmp_path, "gp")
    artifacts.counts(tmp_path / "rows")
    config = parse(BASE)
    result = perform(InProcess(), config, tmp_path, Output(tmp_path / "out", quiet=True))
    assert result is not None
    assert "lengthscale" in result.parameters
    assert len(areas(tmp_path / "out", "east")) == artifacts.SIZES[0]


@pytest.mark.usefixtures("undrawn")
def test_bym2_mixes_by_the_hyperparameter_of_its_prior(tmp_path: Path) -> None:
    built = built_priors.written(tmp_path, "bym2")
    assert built.as_dict()["condition"] == "rho"
    artifacts.counts(tmp_path / "rows")
    result = perform(InProcess(), parse(BASE), tmp_path, Output(tmp_path / "out", quiet=True))
    assert result is not None
    assert "phi" not in result.parameters
    assert 0 < result.summary["parameters"]["rho"]["mean"] < 0.99
    assert result.summary["sigma"]["range"] == {"name": "rho", "lo": 0.0, "hi": 0.99, "prior_mass": 1.0}
    assert result.summary["sigma"]["prior_of"]["rho"]["q95"] == pytest.approx(0.95 * 0.99)
    assert len(areas(tmp_path / "out", "east")) == artifacts.SIZES[0]
    report.write(tmp_path / "out")


def test_a_large_build_says_before_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory, time, and what a client sends; nothing of a small one, and an error where a machine has not the memory."""
    assert list(build.ahead(110, 40, 17)) == []
    takes, sends = build.ahead(2888, 1200, 17)
    assert takes.startswith("1,200 numbers tie 2,888 areas on borders: building takes about 1.55 GB of memory and ")
    assert takes.endswith(" of a core")
    assert sends == "in a job each client sends at least 1,203 numbers a round (9.62 kB)"
    monkeypatch.setattr(memory, "available", lambda: 1e9)
    with pytest.raises(JobError, match=r"1,200 numbers .*within.latents"):
        list(build.ahead(2888, 1200, 17))


@pytest.mark.parametrize("given", ["many", 0, 2.5])
def test_latents_are_a_number_or_auto(given: object) -> None:
    raw = built_priors.tables()
    with pytest.raises(JobError, match=r"within.latents.*auto"):
        parse_prior(raw | {"within": {"latents": given}})
    assert parse_prior(raw | {"within": {"latents": "auto"}}).within.latents == "auto"
