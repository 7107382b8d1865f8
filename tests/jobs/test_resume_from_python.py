"""`fedkern.run(.., resume=True)` goes on with a run, with the guards of `--resume`: also over rows in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.errors import JobError
from fedkern.jobs.hooks import RunHooks
from support.refusal import refusal

JOB = {
    "job": {"method": "pvi", "rounds": 12},
    "model": {"family": "gaussian"},
    "algorithm": {"local_steps": 3, "checkpoint_every": 1e-6, "damping": 0.5},
}


class Crash(Exception):
    pass


def rows(client: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.linspace(-1, 1, 60)
    X = np.column_stack([x, np.sin(7 * x + client)])
    return X, 1 + X @ [2.0, -1.0] + 0.1 * np.cos(31 * x + client)


DATA = {name: rows(k) for k, name in enumerate(("ada", "bo"))}


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run that died in the middle, after a checkpoint."""
    seen = 0

    def observe(self: RunHooks, state: object, event: object) -> None:
        nonlocal seen
        seen += 1
        if seen == 14:
            raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(RunHooks, "observe", observe)
        with pytest.raises(Crash):
            fedkern.run(JOB, data=DATA, out=tmp_path / "out")
    assert list((tmp_path / "out").rglob("checkpoint/*"))
    return tmp_path / "out"


def test_a_run_that_died_goes_on_to_the_result_that_it_would_have_had(left: Path) -> None:
    with refusal(JobError, "--resume"):
        fedkern.run(JOB, data=DATA, out=left)
    result = fedkern.run(JOB, data=DATA, out=left, resume=True)
    assert result.digest == fedkern.run(JOB, data=DATA).digest
    with pytest.raises(JobError, match="the run in this folder has finished and has nothing to resume"):
        fedkern.run(JOB, data=DATA, out=left, resume=True)


def test_it_goes_on_with_its_own_rows_and_its_own_job_alone(left: Path) -> None:
    X, y = rows(0)
    changed: dict[str, Any] = {**DATA, "ada": (X, y + 1e-9)}
    with pytest.raises(JobError, match="client 'ada': its rows are not those with which this run began"):
        fedkern.run(JOB, data=changed, out=left, resume=True)
    with refusal(JobError, "algorithm.damping", "0.5"):
        fedkern.run(JOB, data=DATA, out=left, resume=True, algorithm={"damping": 0.4})
    assert fedkern.run(JOB, data=DATA, out=left, resume=True).stop == "rounds"


def test_nothing_is_resumed_where_nothing_was_kept(tmp_path: Path) -> None:
    with refusal(JobError, "True", "None"):
        fedkern.run(JOB, data=DATA, resume=True)
    with pytest.raises(JobError, match="no run to resume"):
        fedkern.run(JOB, data=DATA, out=tmp_path / "none", resume=True)
    with refusal(JobError, "runs/study", "True", "False"):
        fedkern.run(JOB, data=DATA, out=tmp_path / "none", resume="runs/study")  # type: ignore[call-overload]
