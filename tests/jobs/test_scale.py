"""Many clients: what a job costs is linear in them, and its open files are not more."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import fedkern
from fedkern.cli.__main__ import main
from fedkern.errors import JobError, LostPeer
from fedkern.jobs import files, handles, locks, record
from fedkern.jobs.files import Lines
from fedkern.jobs.holding.chain import SIZE
from fedkern.jobs.ledger import Ledger
from fedkern.jobs.outbox import Outbox
from support import few
from support.interrupted import job, people, run
from support.refusal import refusal

MANY = 2 * handles.MOST + 40  # more clients than a process keeps files open for
OPEN = 60  # files of a job beside those of clients


def tables(n_clients: int) -> dict[str, Any]:
    """The same rows at every client, so that all have as much to compute."""
    X = np.random.default_rng(1).normal(size=(6, 2))
    return {f"c{k:04d}": (X, np.array([0.0, 1, 0, 1, 1, 0])) for k in range(n_clients)}


def job_of(folder: Path, n_clients: int, kind: str) -> Path:
    """A job file, and files of all clients, with the same rows."""
    path = job(folder, kind)
    if kind != "private":
        path.write_text(few.lowered(path.read_text()))
    shutil.rmtree(folder / "clients")
    (folder / "clients").mkdir()
    for k in range(n_clients):
        (folder / "clients" / f"c{k:04d}.csv").write_text("\n".join(["age,sex,income", *people(20)]) + "\n")
    return path


class Cost(NamedTuple):
    calls: int  # of functions
    most_open: int
    written: int  # bytes that are there at the end


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that says at once that all is on it: what is counted here are calls."""
    monkeypatch.setattr(os, "fsync", lambda file: None)


def cost(work: Callable[[], Any], out: Path) -> Cost:
    calls = most = 0
    others = len(os.listdir("/proc/self/fd"))  # what tests before have left open is not this job's

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls, most
        if event in ("call", "c_call"):
            calls += 1
            if argument is os.open:
                most = max(most, len(os.listdir("/proc/self/fd")) - others)

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return Cost(calls, most, sum(path.stat().st_size for path in out.rglob("*") if path.is_file()))


@pytest.mark.usefixtures("unsynced")
@pytest.mark.parametrize("kind", ["pvi", "private"])
def test_a_job_costs_what_its_clients_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    for limited in (record, handles, locks):  # a quarter of the clients beside a quarter of the limits
        monkeypatch.setattr(limited, "MOST", limited.MOST // 4)

    def costs(n_clients: int) -> Cost:
        path, out = job_of(tmp_path / str(n_clients), n_clients, kind), tmp_path / f"out-{n_clients}"
        return cost(lambda: run(path, out, "job.rounds=2"), out)

    costs(3)  # what is imported and made once
    n = record.MOST + 6
    first, second, third = (costs(m) for m in (n, 2 * n, 4 * n))
    assert 4 * n > handles.MOST
    assert third.calls - second.calls < 2.2 * (second.calls - first.calls)
    assert third.written - second.written < 2.2 * (second.written - first.written)
    assert third.most_open < OPEN + locks.MOST + handles.MOST


def test_rows_in_memory_too(tmp_path: Path) -> None:
    given = {"job": {"method": "pvi", "rounds": 2}, "data": {"response": "y", **few.ANY}, "model": {"family": "bernoulli"}}
    fedkern.run(given, data=tables(3))
    first, second, third = (cost(lambda d=d: fedkern.run(given, data=d), tmp_path).calls for d in map(tables, (20, 40, 80)))
    assert third - second < 2.2 * (second - first)


@pytest.mark.usefixtures("unsynced")
def test_a_job_of_many_clients_is_told_resumed_and_audited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The job and the names stand once beside the clients' folders, and every command finds them."""
    path, out = job_of(tmp_path, record.MOST + 1, "pvi"), tmp_path / "out"
    with refusal(LostPeer, "--resume"):
        run(path, out, "job.rounds=2", stop=80)
    (shared,) = out.glob("job-*.json")
    own = json.loads((out / "client-c0003" / "job.json").read_text())
    assert own.keys() == {"run"}
    assert own["run"]["job"] == shared.name
    content = shared.read_text()
    shared.write_text(content.replace("c0003", "c9999"))
    with pytest.raises(JobError, match=r"client-c0000/job.json cannot be read \(.*job-.*\.json was altered\)"):
        run(path, out, "job.rounds=2", resume=True)
    shared.write_text(content)
    (out / "job.json").rename(out / "away")
    whole = json.loads((out / "away").read_text())
    whole["job"]["seed"] = 4
    (out / "job.json").write_text(json.dumps(whole))
    with refusal(JobError, "job.seed", "0"):
        run(path, out, "job.rounds=2", "job.seed=4", resume=True)
    (out / "away").replace(out / "job.json")
    assert run(path, out, "job.rounds=2", resume=True).stop == "rounds"
    for folder in (out, out / "client-c0003"):
        capsys.readouterr()
        assert main(["ledger", str(folder)]) == 0
        assert "c0003" in capsys.readouterr().out
        assert main(["audit", str(folder)]) == 0, capsys.readouterr()
        assert main(["status", str(folder)]) == 0


def test_logs_are_few_open_files_and_lose_nothing(tmp_path: Path) -> None:
    logs = [Lines(tmp_path / f"{k}.jsonl") for k in range(MANY)]
    ledgers = [Ledger(tmp_path / f"ledger-{k}.jsonl") for k in range(3)]
    before = len(os.listdir("/proc/self/fd"))
    for number in range(3):
        for log in (*logs, *ledgers):
            log.append({"n": number})
        assert len(os.listdir("/proc/self/fd")) <= before
    assert len(handles.Handle._open) <= handles.MOST
    for log in (*logs, *ledgers):
        assert [json.loads(line)["n"] for line in log.path.read_text().splitlines()] == [0, 1, 2]
        assert log.size == log.path.stat().st_size
    for ledger in ledgers:
        assert ledger.mark.length == ledger.synced(surely=True).length == ledger.size
        assert len(ledger.mark.head) == SIZE
        again = Ledger(ledger.path)
        assert again.mark == ledger.mark
        again.close()
    for log in (*logs, *ledgers):
        log.close()
    assert not [handle for handle in handles.Handle._open if handle.path.parent == tmp_path]


@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_a_log_that_goes_while_it_is_closed_is_said(tmp_path: Path, how: str) -> None:
    log, box = Lines(tmp_path / "a.jsonl"), Outbox(tmp_path / "outbox", "pvi", 0)
    log.append({"n": 0})
    others = [Lines(tmp_path / f"other-{k}.jsonl") for k in range(handles.MOST)]
    for path in (log.path, *(tmp_path / "outbox").iterdir()):
        path.rename(path.with_suffix(".away"))
        if how == "replaced":
            path.write_text("")
    with refusal(JobError, "a.jsonl"):
        log.append({"n": 1})
    with refusal(JobError, "pvi-000000.log"):
        box.remember(b"", [], {})
    assert (tmp_path / "a.away").read_text() == '{"n": 0}\n'
    for one in (log, *others):
        one.close()
    box.close()


def test_locks_of_many_folders_are_few_open_files(tmp_path: Path) -> None:
    folders = [tmp_path / f"client-{k}" for k in range(locks.MOST + 20)]
    before = len(os.listdir("/proc/self/fd"))
    held, other = locks.Locks(), locks.Locks()
    for folder in folders:
        held.take(folder, folder.name)
    assert len(os.listdir("/proc/self/fd")) - before == locks.MOST
    assert all(map(locks.running, folders))
    for folder in (folders[0], folders[locks.MOST - 1], folders[-1]):
        with pytest.raises(JobError, match=rf"another job is running in this folder, of x \(process {os.getpid()} on "):
            other.take(folder, "x")
    held.release()
    other.release()
    assert not any(map(locks.running, folders))
    other.take(folders[0], "x")  # of another job, which holds none of the rest
    assert [k for k, folder in enumerate(folders) if locks.running(folder)] == [0]
    other.take(folders[-1], "y")
    other.release()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_lock_by_the_first_folder_ends_with_its_process(tmp_path: Path) -> None:
    """Also through a link to the folder, and where its first folder is gone."""
    late, first = tmp_path / "run" / "client-z", tmp_path / "run"
    between = [tmp_path / f"{k}" for k in range(locks.MOST - 1)]
    program = (
        "import sys, pathlib; from fedkern.jobs import locks; mine = locks.Locks()\n"
        "for folder in map(pathlib.Path, sys.argv[1:]): mine.take(folder, 'x')\n"
        "print((folder / '.lock').read_text().splitlines()[2])"
    )
    command = [sys.executable, "-c", program, *map(str, (first, *between, late))]
    env = os.environ | {"PYTHONPATH": str(Path(fedkern.__file__).parents[1])}
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.split() == [".."]
    assert not locks.running(late)
    (tmp_path / "link").symlink_to(late)
    mine = locks.Locks()
    for folder in (first, *between, tmp_path / "link"):
        mine.take(folder, "x")
    assert locks.running(late)
    with pytest.raises(JobError, match="another job is running"):
        locks.Locks().take(late, "x")
    (first / ".lock").unlink()
    assert not locks.running(late)
    mine.release()


def test_equal_names_are_found_by_counting(tmp_path: Path) -> None:
    assert files.RunFolder(tmp_path, ["a b", "a_b", "c"])._safe == ["a_b-0", "a_b-1", "c"]
    assert max(Counter(files.RunFolder(tmp_path, ["ä/b", "ä?b"])._safe).values()) == 1
