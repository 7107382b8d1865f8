"""Jobs whose server shears the intercept against the level of the map: what it changes, and what not."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.api import perform
from fedkern.errors import LostPeer
from fedkern.jobs.run import Output
from fedkern.methods import load
from fedkern.methods.sigma.prior import build
from fedkern.transports.inprocess import InProcess
from support import built_priors
from support import sigma_artifacts as artifacts
from support.command import StopsAt
from support.refusal import refusal
from support.wires import Wire, checked_and_run

from .test_within import areas, job

SHORT: dict[str, Any] = {"job": {"rounds": 60}, "algorithm": {"inference": "sfvi"}}


def test_it_is_the_default_and_a_key_switches_it_off(tmp_path: Path) -> None:
    """It changes the fit, and of the messages the last, which tells clients the ridge; a model without an intercept has none."""
    path = job(tmp_path, **SHORT)
    digest, sizes = {}, {}
    for shear in (None, True, False):
        for intercept in (True, False):
            algorithm = {} if shear is None else {"shear": shear}
            with Wire() as sizes[shear, intercept]:
                digest[shear, intercept] = fedkern.run(path, algorithm=algorithm, model={"intercept": intercept}).digest
    for intercept in (True, False):
        assert digest[None, intercept] == digest[True, intercept]
        assert sizes[None, intercept] == sizes[True, intercept]
        differ = {key for key, size in sizes[True, intercept].items() if size != sizes[False, intercept][key]}
        assert differ == ({("to_client", "Fitted")} if intercept else set())
    assert digest[True, True] != digest[False, True]
    assert digest[True, False] == digest[False, False]


@pytest.mark.parametrize("covariance", [pytest.param("full", marks=pytest.mark.nightly), "diagonal"])
def test_a_resumed_run_has_the_same_bits(tmp_path: Path, covariance: str) -> None:
    """Stopped after T was first found; and of a diagonal family clients are told a triangle, as `check` says."""
    path = job(tmp_path, job={"rounds": 40}, algorithm={"covariance": covariance}, output={"metrics_every": 5})
    want = checked_and_run(path, tmp_path / "whole")
    config, folder = load(path)
    out = tmp_path / "out"
    with refusal(LostPeer, "--resume"):
        perform(InProcess(signals=StopsAt(out / "metrics.jsonl", 3)), config, folder, Output(out, quiet=True))
    resumed = perform(InProcess(), config, folder, Output(out, resume=True, quiet=True))
    assert resumed is not None
    assert resumed.digest == want.digest
    for name in artifacts.NAMES:
        assert areas(out, name) == areas(tmp_path / "whole", name)


def test_a_prior_of_before_its_mean_loadings_were_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "of_within", lambda clients: None)
    path = job(tmp_path, **SHORT)
    shutil.rmtree(tmp_path / "prior")
    built_priors.built(tmp_path)
    default, off = fedkern.run(path), fedkern.run(path, algorithm={"shear": False})
    assert default.digest == off.digest
    note = "does not say how the level of the map follows"
    assert any(note in one for one in default.summary["notes"])
    assert not any(note in one for one in off.summary["notes"])


def test_a_trained_prior_has_them_too(tmp_path: Path) -> None:
    """The published intercept and areas move with the shear, all finite."""
    path = job(tmp_path, **SHORT)
    artifacts.written(tmp_path / "networks")
    runs = [fedkern.run(path, model={"prior": "networks"}, algorithm={"shear": shear}) for shear in (True, False)]
    assert runs[0].digest != runs[1].digest
    sd = [one.summary["parameters"]["intercept"]["sd"] for one in runs]
    assert np.isfinite(sd).all()
    assert sd[0] != sd[1]
