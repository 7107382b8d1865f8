"""`fedkern check` says what memory a job with squares of its columns takes, before it is taken."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.api import check_job
from fedkern.jobs import memory
from fedkern.methods import load
from fedkern.transports.inprocess import InProcess
from support import few

CLIENTS = 2


def tables(folder: Path, p: int, rows: int, kind: str) -> dict[str, Any]:
    random = np.random.default_rng(0)
    files = []
    for k in range(CLIENTS):
        values = random.normal(size=(rows, p + 1))
        if kind == "full":
            values[:, -1] = values[:, -1] > 0
        path = folder / f"c{k}.csv"
        np.savetxt(path, values, fmt="%.4g", delimiter=",", header=",".join([*(f"x{j}" for j in range(p)), "y"]), comments="")
        files.append(str(path))
    data: dict[str, Any] = {"clients": files, "response": "y", **few.ANY}
    if kind == "full":
        del data["least_rows"]  # with which rows are searched, in memory of its own
        asked = {"rows": 1, "rows_per_coefficient": 0, "rows_per_value": 1, "leverage": 1.0}
        return {"job": {"rounds": 2}, "data": data, "model": {"covariance": "full"}, "disclosure": asked}
    if kind in ("mrf", "sem"):
        del data["response"]
    job = {"job": {"method": "sparse", "rounds": 6}, "data": data, "algorithm": {"burn_in": 2, "chains": 1}}
    more = {"mrf": {"model": {"kind": "mrf"}}, "sem": {"model": {"kind": "sem"}}, "impute": {"model": {"missing": "impute"}}}
    if kind == "pooled":
        job["algorithm"] |= {"statistics": "pooled"}  # type: ignore[operator]
    return job | more.get(kind, {})


def said(job: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> float:
    """Bytes of the server and all clients."""
    monkeypatch.setattr(memory, "SILENT", 0)
    lines = check_job(InProcess(), *load(job)) or []
    line = next(line for line in lines if line.startswith("memory"))
    units = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}
    server, client = (float(n) * units[u] for n, u in re.findall(r"([\d.]+(?:e\+\d+)?) (k?B|MB|GB)", line))
    return server + CLIENTS * client


def taken(job: dict[str, Any]) -> float:
    fedkern.run(job)  # what is imported and cached is no part of it
    tracemalloc.start()
    try:
        fedkern.run(job)
        return float(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("kind", "p"), [("full", 150), ("pooled", 150), ("impute", 150), ("mrf", 50), ("sem", 50)])
def test_what_is_said_is_about_what_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, p: int) -> None:
    job = tables(tmp_path, p, p + 20 if kind == "impute" else 40, kind)
    expected, found = said(job, monkeypatch), taken(job)
    assert 0.4 < expected / found < 2.5, f"said {expected / 1e6:.3g} MB, taken {found / 1e6:.3g} MB"


def test_a_job_that_no_machine_holds_is_said_without_taking_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda: 1e8)
    job = tables(tmp_path, 600, 3, "mrf")
    tracemalloc.start()
    lines = "\n".join(check_job(InProcess(), *load(job)) or [])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "memory   about" in lines
    assert "more than this machine has (100 MB)" in lines
    assert peak < 1e8


def test_a_small_job_says_nothing_of_it(tmp_path: Path) -> None:
    assert "memory" not in "\n".join(check_job(InProcess(), *load(tables(tmp_path, 5, 40, "full"))) or [])


def test_sizes() -> None:
    assert [memory.size(n) for n in (12, 1.5e6, 2.34e9, 5e13)] == ["12 B", "1.5 MB", "2.34 GB", "50 TB"]
    assert memory.eigenvectors(6000) == 8 * 4 * 6000**2
