"""Jobs whose posterior contains the noise: what they send, say and refuse."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.errors import JobError, LostPeer
from fedkern.methods import load
from fedkern.privacy.certificate import WITH_NOISE
from support.interrupted import job, run
from support.refusal import refusal

NOISE_AWARE = 'algorithm.posterior="noise-aware"'
KEYED = 'privacy.noise_source="keyed"'


def test_clients_send_their_sums_once_and_the_certificate_says_what_the_intervals_contain(fedkern: Any, tmp_path: Path) -> None:
    path = job(tmp_path, "private")
    ended = fedkern("run", path, "--set", NOISE_AWARE, "--out", "out")
    assert ended.code == 0
    assert WITH_NOISE in " ".join(ended.out.split())
    out = tmp_path / "out"
    summary = json.loads((out / "summary.json").read_text())
    for name, certificate in summary["privacy"].items():
        lines = [json.loads(line) for line in (out / "ledger" / f"{name}.jsonl").read_text().splitlines()]
        assert [line["kind"] for line in lines if line["protocol"] == "noisy-sums"] == ["NoisySums"]
        assert certificate["posterior"] == WITH_NOISE
        assert certificate["steps"] == 36  # and no more: nothing is charged for the sums


def test_a_resumed_run_is_that_without_an_interruption(tmp_path: Path) -> None:
    path = job(tmp_path, "private")
    whole = run(path, None, NOISE_AWARE, KEYED)
    with refusal(LostPeer, "--resume"):
        run(path, tmp_path / "out", NOISE_AWARE, KEYED, stop=13)
    again = run(path, tmp_path / "out", NOISE_AWARE, KEYED, resume=True)
    assert again.summary["digest"] == whole.summary["digest"]
    assert again.summary["parameters"] == whole.summary["parameters"]
    assert run(path, None, KEYED).summary["digest"] != whole.summary["digest"]


REFUSED = {
    'algorithm.variant="global-vi"': "needs noisy sums of rows at the clients",
    'algorithm.schedule="random"': "needs a schedule that asks every client equally often",
    'algorithm.estimator="weight-mc"': "needs gradients whose only noise is that of the sums",
    'model.family="poisson"': 'is for model.family = "bernoulli" and "gaussian"',
    'data.weight="age"': "does not know what data.weight makes of the sampling of rows",
}


@pytest.mark.parametrize("key", REFUSED)
def test_what_it_cannot_be_made_of_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(JobError, match=REFUSED[key]):
        load(job(tmp_path, "private"), [NOISE_AWARE, key])


def test_open_jobs_have_no_noise(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="is for private jobs: leave it out, or give a"):
        load(job(tmp_path, "pvi"), [NOISE_AWARE])


def test_few_updates_are_refused_by_check_and_run_alike(fedkern: Any, tmp_path: Path) -> None:
    path, says = job(tmp_path, "private"), 'algorithm.posterior = "noise-aware" needs at least 10 updates, and has 9'
    for command in (("check", path), ("run", path, "--out", "out")):
        ended = fedkern(*command, "--set", NOISE_AWARE, "--set", "job.rounds=9")
        assert ended.code == 2
        assert says in ended.out + ended.err


def test_the_certificate_of_q_says_how_far_its_updates_have_gone(tmp_path: Path) -> None:
    result = run(job(tmp_path, "private"), None, KEYED)
    assert {round(c["progress"], 6) for c in result.privacy.values()} == {round(1 - 0.9**12, 6)}


def rows(n: int, seed: int) -> Any:
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, 3))
    return X, (random.random(n) < 1 / (1 + np.exp(-X @ [1.0, -1.0, 0.0]))).astype(float)


@pytest.mark.parametrize(("clip", "judged"), [(0.5, False), (1.1, False), (2.0, False), (2.2, True), (3.0, True)])
def test_a_clip_that_cuts_rows_is_not_judged(clip: float, judged: bool) -> None:
    """Rows of three standard normal columns and the intercept are two long; at 1.1 slopes came out a quarter too large."""
    tables = {
        "job": {"method": "pvi", "rounds": 12},
        "data": {"response": "y", "standardise": "none", "columns": {f"x{j}": {"kind": "numeric"} for j in (1, 2, 3)}},
        "privacy": {"epsilon": 4.0, "delta": 1e-4, "clip": clip, "noise_multiplier": 2.0, "sampling_rate": 0.1},
        "algorithm": {"posterior": "noise-aware", "local_steps": 5},
    }
    result = fedkern.run(tables, data={"a": rows(600, 1), "b": rows(600, 2)})
    assert ("cuts rows" in result.summary["verdict"]) is not judged
    assert judged or result.converged == "not judged"  # for this reason alone: noise may look like correlated columns


def test_the_clip_that_is_wanted_is_enough() -> None:
    """Of two columns 1.905, which rounds to 1.9."""
    data = {name: (X[:, :2], y) for name, (X, y) in {"a": rows(600, 1), "b": rows(600, 2)}.items()}

    def verdict(clip: float) -> str:
        tables = {
            "job": {"method": "pvi", "rounds": 12},
            "data": {"response": "y", "standardise": "none", "columns": {f"x{j}": {"kind": "numeric"} for j in (1, 2)}},
            "privacy": {"epsilon": 4.0, "delta": 1e-4, "clip": clip, "noise_multiplier": 2.0, "sampling_rate": 0.1},
            "algorithm": {"posterior": "noise-aware", "local_steps": 5},
        }
        return str(fedkern.run(tables, data=data).summary["verdict"])

    (wanted,) = re.findall(r"wanted at least (\S+)\)", verdict(1.0))
    assert wanted == "2"
    assert "cuts rows" not in verdict(float(wanted))
