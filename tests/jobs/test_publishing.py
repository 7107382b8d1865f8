"""What a job has paid for is published, whatever becomes of its draws."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import h5netcdf
import numpy as np
import pytest

from fedkern.errors import JobError
from fedkern.jobs import files, ledger, publish
from fedkern.methods import load
from fedkern.results import diagnostics
from support.interrupted import job, run

SHORT = ("job.rounds=1", "output.draws=10")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (JobError("draws need xarray"), "draws need xarray"),
        (MemoryError(), "there is not enough memory for the draws; ask for fewer"),
        (ValueError("rng: too many"), "ValueError: rng: too many"),
    ],
)
def test_without_its_draws_a_private_job_has_a_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    def fails(*_: Any, **__: Any) -> bytes:
        raise error

    monkeypatch.setattr(publish, "netcdf", fails)
    result = run(job(tmp_path, "private"), tmp_path / "out", *SHORT)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert f"no posterior.nc: {said}" in summary["notes"]
    assert summary["privacy"].keys() == {"a", "b"}
    assert result.stop == "rounds"
    assert not (tmp_path / "out" / "posterior.nc").exists()


def test_a_full_disk_leaves_no_torn_file_and_a_run_that_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, out, sync = job(tmp_path, "private"), tmp_path / "out", os.fsync

    def full(file: int) -> None:
        if "posterior.nc" in os.readlink(f"/proc/self/fd/{file}"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(file)

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", full)
        with pytest.raises(JobError, match="No space left") as caught:
            run(path, out, *SHORT)
    assert caught.value.exit_code == 2
    assert not [file for file in out.iterdir() if "posterior" in file.name or file.name == "summary.json"]
    paid = [ledger.charged(out / "ledger" / f"{name}.jsonl", 0) for name in "ab"]
    result = run(path, out, "job.rounds=1", "output.draws=20", "output.chains=2", resume=True)
    assert (result.n_draws, result.chains) == (20, 2)
    assert (out / "posterior.nc").exists()
    assert paid == [ledger.charged(out / "ledger" / f"{name}.jsonl", 0) for name in "ab"] != [0, 0]


@pytest.mark.parametrize(
    ("kind", "key"),
    [(k, f"output.{n}") for k in ("pvi", "vertical", "sigma") for n in ("draws", "chains")] + [("sparse", "algorithm.chains")],
)
def test_more_draws_than_a_machine_can_hold(tmp_path: Path, kind: str, key: str) -> None:
    with pytest.raises(JobError, match=rf"{key} = 10{{11}}: wanted a number of at most "):
        load(job(tmp_path, kind), [f"{key}=100000000000"])


@pytest.mark.parametrize("kind", ["sparse", "hmc"])
@pytest.mark.parametrize("fault", [MemoryError(), JobError("no judge"), KeyError("x")], ids=["memory", "refused", "bug"])
def test_a_fault_while_chains_are_judged_leaves_their_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, fault: Exception
) -> None:
    """The draws are on the disk before R-hat is computed; without it the result is the same, and not judged."""
    path, out = job(tmp_path, kind), tmp_path / "out"
    draws = out / "posterior.nc"

    def fails(*_: object) -> Any:
        assert draws.exists()
        raise fault

    with monkeypatch.context() as broken:
        broken.setattr(diagnostics, "_both", fails)
        result = run(path, out)
    assert "not judged" in result.summary["verdict"]
    assert result.digest == run(path, tmp_path / "other").digest
    with h5netcdf.File(draws, "r") as file:
        before = {name: np.asarray(values) for name, values in file["posterior"].variables.items()}
    with h5netcdf.File(tmp_path / "other" / "posterior.nc", "r") as file:
        for name, values in before.items():
            np.testing.assert_array_equal(np.asarray(file["posterior"].variables[name]), values)
