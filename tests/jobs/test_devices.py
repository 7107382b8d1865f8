"""Jobs with device = "cuda", on the grid emulator: the same results as on a processor, what `check` says, and what is refused.

Arrays of the emulated device refuse what CuPy's do (`support.hosted`). Where only a driver could give an answer, a small stand-in
of CuPy gives it: such a test says so.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.api import perform
from fedkern.cli.__main__ import main
from fedkern.errors import JobError
from fedkern.jobs.run import Output
from fedkern.methods import load
from fedkern.results.result import Result
from fedkern.transports.inprocess import InProcess
from support import hosted
from support.refusal import refusal
from support.two_clients import TwoClients

PVI, SPARSE, PRIVATE = "pvi, open", "sparse", "pvi, private"
ADAM = {"optimiser": "adam", "local_steps": 4}
HALF = {"batch": 0.5, "random_source": "keyed"}


@pytest.fixture
def card() -> Iterator[hosted.Card | hosted.Real]:
    with hosted.instead_of_a_card() as card:
        yield card


def numbers(result: Result) -> list[np.ndarray[Any, Any]]:
    """All of a posterior."""
    found = vars(result.posterior)
    found = found | (vars(found["q"]) if "q" in found else {})
    return [value for _, value in sorted(found.items()) if isinstance(value, np.ndarray)]


def assert_alike(path: Path, card: hosted.Card | hosted.Real, *wanted: str, **sections: Any) -> None:
    """That a job gives on a device what it gives without one, and has launched these kernels. A card rounds otherwise, which the
    rounds of a chain make grow."""
    tolerance = 1e-6 if isinstance(card, hosted.Real) else 1e-9
    job = sections.pop("job", {})
    here, there = (fedkern.run(path, job=job | {"device": device}, **sections) for device in ("cpu", "cuda"))
    assert numbers(here)
    for a, b in zip(numbers(here), numbers(there), strict=True):
        np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance / 10)
    for name in wanted:
        assert any(name in kernel for kernel in card.seen), f"{name} is not among {sorted(card.seen)}"
    assert there.summary["versions"]["device"] == card.about()["device"]
    assert "device" not in here.summary["versions"]


def job_of(folder: Path, kind: str) -> Path:
    """A small job on rows without symmetries, which would leave gradients that are nothing but what is rounded."""
    path, random = TwoClients(folder).job(kind), np.random.default_rng(4)
    for name in "ab":
        rows = random.standard_normal((60, 3)) @ np.array([[1, 0.5, 0], [0, 1, 0.8], [0, 0, 1]])
        if kind != SPARSE:
            rows[:, 2] = rows[:, 2] > random.standard_normal(60)
        rows = rows[:, [0, 2]] if "private" in kind or "level" in kind else rows
        head = "id,x,y" if len(rows[0]) == 2 else "id,x,z,y"
        lines = [f"{i},{','.join(f'{x:.4g}' for x in row)}" for i, row in enumerate(rows)]
        (folder / "data" / f"{name}.csv").write_text("\n".join([head, *lines]) + "\n")
    return path


# ---- Partitioned jobs.


@pytest.mark.parametrize(
    ("algorithm", "model", "launched"),
    [
        (ADAM, {"covariance": "diagonal"}, "example_rows"),
        (ADAM | HALF | {"estimator": "weight-mc", "draws": 2}, {}, "example_rows"),
        (ADAM | HALF | {"estimator": "stl"}, {}, "loglik_rows"),
        (ADAM | {"variant": "global-vi"}, {}, "example_rows"),
        ({"optimiser": "exact"}, {"covariance": "diagonal"}, "expectations"),
        ({"optimiser": "exact"}, {"covariance": "full"}, "expectations"),
        (ADAM | HALF | {"estimator": "stl"}, {"covariance": "full"}, "loglik_rows"),
    ],
)
def test_a_partitioned_job_gives_the_same_on_a_device(
    tmp_path: Path, card: hosted.Card | hosted.Real, algorithm: dict[str, Any], model: dict[str, Any], launched: str
) -> None:
    path = job_of(tmp_path, PVI)
    assert_alike(path, card, launched, job={"rounds": 3}, algorithm=algorithm, model=model)
    assert card.taken == [(0, 1)]


@pytest.mark.parametrize("variant", ["pvi", "local-averaging"])
def test_a_private_job_adds_the_same_noise(tmp_path: Path, card: hosted.Card | hosted.Real, variant: str) -> None:
    path = job_of(tmp_path, PRIVATE)
    algorithm: dict[str, Any] = {"variant": variant}
    privacy: dict[str, Any] = {"noise_source": "keyed"}
    data: dict[str, Any] = {}
    if variant == "local-averaging":
        path.write_text(path.read_text().replace("sampling_rate = 0.2", "").replace('ignore = ["id"]', ""))
        algorithm["shards"], data["row_id"] = 3, "id"
    assert_alike(path, card, "example_rows", algorithm=algorithm, privacy=privacy, data=data)


def test_whole_clients_are_protected_on_a_device_too(tmp_path: Path, card: hosted.Card | hosted.Real) -> None:
    path = job_of(tmp_path, "pvi, client-level")
    assert_alike(path, card, privacy={"noise_source": "keyed"})
    assert card.seen


# ---- Sparse jobs.

SCALED = {"chains": 4, "burn_in": 2}  # few rounds: a chain makes what is rounded grow


@pytest.mark.parametrize(
    ("model", "algorithm", "launched"),
    [
        ({"family": "gaussian"}, {}, "sweeps"),
        ({"family": "gaussian"}, {"moves": ["translate", "interweave"], "draw": "data"}, "sweeps"),
        ({"kind": "mrf"}, {}, "sweeps"),
        ({"kind": "mrf"}, {"moves": ["translate"], "aggregate": "locals"}, "sweeps"),
        ({"kind": "sem"}, {"random_source": "keyed"}, "sweeps"),
        ({"kind": "sem", "centre": "sample"}, {"tempering": 2, "random_source": "keyed"}, "sweeps"),
    ],
)
def test_a_sparse_job_gives_the_same_on_a_device(
    tmp_path: Path, card: hosted.Card | hosted.Real, model: dict[str, Any], algorithm: dict[str, Any], launched: str
) -> None:
    path = job_of(tmp_path, SPARSE)
    if model.get("kind"):
        path.write_text(path.read_text().replace('response = "y"', ""))
    assert_alike(path, card, launched, job={"rounds": 6}, model=model, algorithm=SCALED | algorithm)


@pytest.mark.parametrize(
    ("model", "algorithm", "why"),
    [
        ({"family": "bernoulli"}, {}, "the sweeps of a bernoulli regression are the host's"),
        ({"family": "gaussian", "missing": "impute"}, {}, "the sweeps over rows that lack cells are the host's"),
        ({"kind": "mrf", "missing": "impute"}, {}, "the sweeps over rows that lack cells are the host's"),
        ({"family": "gaussian"}, {"statistics": "pooled"}, "clients sample nothing"),
    ],
)
def test_a_sparse_job_without_pairs_is_refused(
    tmp_path: Path, model: dict[str, Any], algorithm: dict[str, Any], why: str
) -> None:
    path = TwoClients(tmp_path).job(SPARSE)
    with pytest.raises(JobError, match=f'job.device = "cuda": .*{why}.*use "cpu"'):
        fedkern.check(path, job={"device": "cuda"}, model=model, algorithm=algorithm)


@pytest.mark.parametrize("kind", ["vertical, open", "sigma"])
def test_a_method_without_pairs_is_refused(tmp_path: Path, kind: str) -> None:
    method = kind.partition(",")[0]
    words = rf'job\.device = "cuda": none of the kernels of a {method} job runs on a device.*use "cpu"'
    with pytest.raises(JobError, match=words):
        fedkern.check(TwoClients(tmp_path).job(kind), job={"device": "cuda"})


# ---- What `check` says.


def said(path: Path, **sections: Any) -> str:
    return "\n".join(fedkern.check(path, job={"device": "cuda"}, **sections, verbose=True))


def test_check_says_where_each_kernel_runs_and_what_a_rank_needs(tmp_path: Path, card: hosted.Card | hosted.Real) -> None:
    diagonal = {"model": {"covariance": "diagonal"}, "data": {"least_rows": 1}}
    text = said(job_of(tmp_path, PVI), algorithm=ADAM | {"batch": 0.25}, **diagonal)
    assert "device   glm.clipped_grad_sum  on the card\n" in text
    assert "\n         optim.adam            on the host: of the posterior's numbers, which are few\n" in text
    # two columns, the intercept, and the response
    assert "memory of a rank with up to 2 clients: 32 bytes for each row of its clients, and room for a call" in text
    assert "pays from batches of about 18,000 rows: clients that have 72,000 or more" in text
    assert "not on this machine" not in text


def test_check_needs_no_card_and_says_that_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    text = said(job_of(tmp_path, PVI))
    assert "not on this machine: backend 'cuda' needs CuPy, and it is not installed: pip install 'fedkern[cuda12]'" in text


def test_a_job_of_the_processor_says_nothing_of_devices(tmp_path: Path) -> None:
    assert not any("device" in line or "card" in line for line in fedkern.check(job_of(tmp_path, PVI), verbose=True))


# ---- Checkpoints.


@contextmanager
def stopped_after(checkpoints: int) -> Iterator[None]:
    """SIGTERM once so many checkpoints have got their place."""
    replace, seen = os.replace, 0

    def counted(source: Any, target: Any, **folders: int) -> None:
        nonlocal seen
        replace(source, target, **folders)
        seen += str(target).endswith(".ckpt")
        if seen == checkpoints and str(target).endswith(".ckpt"):
            signal.raise_signal(signal.SIGTERM)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", counted)
        yield


def test_a_run_goes_on_where_it_began_alone(tmp_path: Path, card: hosted.Card | hosted.Real) -> None:
    """On a device, and with the bits of the run that nothing stopped; elsewhere not at all."""
    path, out = job_of(tmp_path, PVI), tmp_path / "out"
    sets = ["job.rounds=6", "algorithm.checkpoint_every=1e-9", 'algorithm.optimiser="adam"', "algorithm.local_steps=3"]
    run = ["run", str(path), "--out", str(out), "--quiet", *(word for one in sets for word in ("--set", one))]
    with stopped_after(checkpoints=7):
        assert main([*run, "--device", "cuda"]) == 3
    assert main([*run, "--resume"]) == 2
    config, folder = load(path, [*sets, "job.device=cpu"])
    with refusal(JobError, "cuda", "cpu", "Resume"):
        perform(InProcess(), config, folder, Output(out, resume=True, quiet=True))
    assert main([*run, "--resume", "--device", "cuda"]) == 0
    whole = tmp_path / "whole"
    assert main([*run[:3], str(whole), *run[4:], "--device", "cuda"]) == 0
    resumed, straight = (json.loads((folder / "summary.json").read_text())["digest"] for folder in (out, whole))
    assert resumed == straight
