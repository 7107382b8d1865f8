"""A client's page and the server's have the same numbers of what all share."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.algorithms.core.messages import RemoteFault
from fedkern.algorithms.exchanges import verdicts
from fedkern.algorithms.exchanges.verdicts import FIGURES_OF, figures_of, figures_question, figures_reply, verdict_of
from fedkern.cli.report import write as write_report
from fedkern.methods.sigma import own, publish
from support import built_priors
from support import sigma_artifacts as artifacts

WAYS: dict[str, dict[str, Any]] = {
    "nested": {},
    "sfvi": {"rounds": 20},
    "hmc": {"rounds": 30, "leapfrog_steps": 2, "burn_in": 10},
}


@pytest.mark.parametrize("inference", WAYS)
def test_clients_have_the_servers_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inference: str) -> None:
    """Digit by digit, though their draws of areas are fewer, or others."""
    monkeypatch.setattr(own, "DRAWS", 20)
    built_priors.written(tmp_path)
    rows = artifacts.counts(tmp_path / "rows")
    more = dict(WAYS[inference])
    job = {"method": "sigma", "seed": 3} | ({"rounds": more.pop("rounds")} if "rounds" in more else {})
    result = fedkern.run(
        {
            "job": job,
            "data": {"clients": [rows], "area": "district", "response": "cases", "exposure": "expected"},
            "model": {"prior": str(tmp_path / "prior")},
            "algorithm": {"inference": inference, **more},
            "output": {"reweigh": False} if inference == "sfvi" else {},
        },
        out=tmp_path / "run",
    )
    want = {name: row for name, row in result.summary["parameters"].items() if "_std" not in name}
    assert "theta[poverty]" in want
    for name in artifacts.NAMES:
        told = json.loads((tmp_path / "run" / f"client-{name}" / "areas.json").read_text())["parameters"]
        assert told == {key: {which: row[which] for which in FIGURES_OF} for key, row in want.items()}


def test_a_scale_that_has_collapsed_heads_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a fit that settles anywhere, or does not, the verdict names it, and a client's files and page begin with that."""
    monkeypatch.setattr(own, "DRAWS", 20)
    built_priors.written(tmp_path)
    rows = artifacts.counts(tmp_path / "rows", covariate=False)
    job: dict[str, Any] = {
        "job": {"method": "sigma", "seed": 3, "rounds": 20},
        "data": {"clients": [rows], "area": "district", "response": "cases", "exposure": "expected"},
        "model": {"prior": str(tmp_path / "prior")},
        "algorithm": {"inference": "sfvi"},
    }
    assert "collapsed" not in fedkern.run(job).summary["verdict"]
    found = publish.sfvi.posterior_moments

    def collapsed(server: Any) -> Any:
        mean, *rest = found(server)
        return np.append(mean[:-1], -20.0), *rest  # the logarithm of sigma_theta is the last

    monkeypatch.setattr(publish.sfvi, "posterior_moments", collapsed)
    summary = fedkern.run(job, out=tmp_path / "run").summary
    assert summary["worst"] == "sigma_theta"
    words = "not converged: sigma_theta has collapsed to 2e-09, and with it the sds of what it scales: areas are written as if"
    assert summary["verdict"].startswith(words)
    assert words in json.loads((tmp_path / "run" / "client-east" / "areas.json").read_text())["verdict"]
    page = write_report(tmp_path / "run" / "client-east").read_text()
    assert 0 < page.index("sigma_theta has collapsed") < page.index("<table")


def test_figures_that_are_no_numbers_are_not_told() -> None:
    verdict = verdicts.make_question(True, "right", "phi")
    rows = np.array([[0.1 + 0.2, 2.0, 3.0]])
    told = figures_question(verdict, rows)
    assert np.array_equal(figures_of(told), rows)
    assert verdict_of(told) == verdict
    for none in (np.array([[np.nan, 2.0, 3.0]]), np.zeros((0, 3))):
        told = figures_question(verdict, none)
        assert (told.figures.shape, figures_of(told)) == ((1, 3), None)
    with pytest.raises(RemoteFault, match="has the word 9"):
        figures_reply(replace(told, word=9))
