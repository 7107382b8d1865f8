"""What the verdict of a nested job names as its remedy is one: more draws are asked, and else the ways that it names are gone."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import fedkern
from fedkern.algorithms.nested import machine as server
from fedkern.algorithms.nested import machine as verdicts
from support import built_priors
from support import sigma_artifacts as artifacts
from support.wires import checked_and_run


def job(folder: Path) -> dict[str, Any]:
    built_priors.written(folder)
    rows = artifacts.counts(folder / "rows", covariate=False)
    return {
        "job": {"method": "sigma", "seed": 3},
        "data": {"clients": [rows], "area": "district", "response": "cases", "exposure": "expected"},
        "model": {"prior": str(folder / "prior")},
    }


def asked(monkeypatch: pytest.MonkeyPatch, error: float) -> None:
    """Other errors are wanted of means and sds."""
    for module in (server, verdicts):
        monkeypatch.setattr(module, "ERROR", error)


def test_a_job_that_misses_by_little_asks_for_more_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four questions do not reach what is wanted, and up to sixteen do; every message is one that `fedkern check` listed."""
    made = job(tmp_path)
    monkeypatch.setattr("fedkern.methods.sigma.model.NestedSettings", partial(server.Settings, points=250, told=100))
    asked(monkeypatch, 0.052)
    with monkeypatch.context() as patched:
        patched.setattr(server, "UNSURE", 0.0)
        missed = fedkern.run(made).summary
    assert missed["converged"] is False
    (said,) = re.findall(r"about ([\d,]+) draws would do, and at most 4,000 are asked", missed["verdict"])
    assert 1000 < int(said.replace(",", "")) < 4000
    found = checked_and_run(made, tmp_path / "out").summary
    assert found["converged"] is True, found["verdict"]
    assert 1000 < found["sigma"]["nested"]["draws"] <= 4000
    assert max(found["sigma"]["nested"]["monte_carlo_error"].values()) <= 0.052


@pytest.mark.digits
@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_what_draws_do_not_reach_has_a_remedy_that_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = job(tmp_path)
    asked(monkeypatch, 1e-4)
    summary = fedkern.run(made).summary
    assert summary["converged"] is False
    assert summary["sigma"]["nested"]["draws"] == 4000  # more would not have done
    way = re.search(r'take algorithm\.inference = "(\w+)"', summary["verdict"])
    assert way is not None
    other = fedkern.run({**made, "algorithm": {"inference": way[1]}}).summary
    assert other["converged"] is True, other["verdict"]
