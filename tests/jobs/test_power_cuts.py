"""What a machine that goes down leaves of logs that were not synced: recognised, said, and judged by what surely was there."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fedkern.cli.__main__ import main
from fedkern.errors import JobError
from fedkern.jobs import ledger, opened, outbox
from fedkern.jobs.holding.budget import Ledger as Budget
from fedkern.jobs.identity import Identity
from support.interrupted import Crash, job, run

NAME = "a"


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main([*map(str, arguments)])
    return code, *capsys.readouterr()


@pytest.fixture
def crashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path, bytes, int]:
    """A private job that died before its first checkpoint, on a machine that was then started again: the job file, its folder,
    client a's ledger, and how many bytes of that were synced, at its first answer."""
    monkeypatch.setattr(ledger, "SHARE", 1e-9)
    path, out = job(tmp_path, "private"), tmp_path / "out"
    with pytest.raises(Crash):
        run(path, out, crash=20)
    monkeypatch.setattr(ledger, "boot", lambda: bytes(range(16)))
    stamps = [stamp for _, stamp in outbox.stamps(out / f"client-{NAME}" / "outbox")]
    content = (out / "ledger" / f"{NAME}.jsonl").read_bytes()
    (synced,) = {stamp.synced.length for stamp in stamps}
    assert 0 < synced < len(content) - 400
    return path, out, content, synced


def zeros(data: bytes, first: int, last: int) -> bytes:
    return data[:first] + bytes(last - first) + data[last:]


# What the disk has of the bytes that were not synced.
LOST: dict[str, Callable[[bytes, int], bytes]] = {
    "nothing": lambda data, synced: data[:synced],
    "zeros": lambda data, synced: zeros(data, synced, len(data)),
    "a part, then zeros": lambda data, synced: zeros(data, synced + 200, len(data)),
    "zeros, then a part": lambda data, synced: zeros(data, synced, len(data) - 250),
    "zeros in the middle": lambda data, synced: zeros(data, synced + 150, len(data) - 100),
    "half a line": lambda data, synced: data[:-30],
    "half a line, and zeros": lambda data, synced: data[:-30] + bytes(30),
    "all but the last byte": lambda data, synced: data[:-1],
}


@pytest.mark.parametrize("how", LOST)
def test_what_was_lost_is_said_and_the_rest_is_relied_on(
    crashed: tuple[Path, Path, bytes, int], how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out, content, synced = crashed
    log = out / "ledger" / f"{NAME}.jsonl"
    log.write_bytes(LOST[how](content, synced))
    torn = how not in ("nothing", "all but the last byte")
    for _ in range(2):  # before it is resumed, and after its end
        code, text, _ = said(capsys, "audit", out)
        assert (code, "do not rely" in text) == (0, False), text
        assert ("lost when a machine went down" in text) or (log.parents[1] / "summary.json").exists()
        assert (f"{log}: line" in text and "cut when a process or a machine went down" in text) == torn, text
        code, text, told = said(capsys, "ledger", out)
        assert code == 0
        assert ("cut when a process or a machine went down" in told) == torn
        rows = json.loads(said(capsys, "ledger", out, "--json")[1])
        whole = [line for line in log.read_bytes().splitlines() if line.endswith(b"}") and b"\0" not in line]
        assert len([row for row in rows if row["who"] == NAME]) == len(whole)
        assert said(capsys, "status", out)[0] == 0
        if not (out / "summary.json").exists():
            assert run(path, out, resume=True).stop == "rounds"


def test_a_ledger_may_be_cut_at_any_byte(crashed: tuple[Path, Path, bytes, int]) -> None:
    _, out, content, synced = crashed
    log = out / "ledger" / f"{NAME}.jsonl"
    stamps = [stamp for _, stamp in outbox.stamps(out / f"client-{NAME}" / "outbox")]
    newest = max(stamp.ledger.length for stamp in stamps)
    ends = [at for at in range(len(content) + 1) if content[:at].endswith(b"\n")]
    for at in range(max(synced, len(content) - 350), len(content)):
        for tail in (b"", bytes(len(content) - at), b"" if content[:at].endswith(b"\n") else b"\n", bytes(40) + b"\n"):
            log.write_bytes(content[:at] + tail)
            assert (ledger.check(log, stamps) is None) == (at >= newest or content[:at] + tail[:1] == content[:newest])
            n = sum(end <= at for end in ends) + (content[at : at + 1] == b"\n" and tail in (b"", b"\n"))
            assert len(list(opened.sent(log))) == n, at


DONE: dict[str, Callable[[bytes, int], bytes]] = {
    "zeros over a synced line": lambda data, synced: zeros(data, synced - 120, synced - 20),
    "a synced line cut": lambda data, synced: data[: synced - 30] + data[synced - 1 :],
    "a synced line edited": lambda data, synced: data[:synced].replace(b'"bytes": ', b'"bytes": 1') + data[synced:],
    "cut below what was synced": lambda data, synced: data[: synced - 1],
    "a line that is none": lambda data, synced: data[:synced] + b'["hello"]\n' + data[synced:],
}


@pytest.mark.parametrize("how", DONE)
def test_what_somebody_did_is_found_all_the_same(
    crashed: tuple[Path, Path, bytes, int], how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out, content, synced = crashed
    log = out / "ledger" / f"{NAME}.jsonl"
    log.write_bytes(DONE[how](content, synced))
    code, text, _ = said(capsys, "audit", out)
    assert code == 2, text
    assert "do not rely" in text
    if how != "a line that is none":
        with pytest.raises(JobError, match="put it back as the run left it"):
            run(path, out, resume=True)


def test_without_a_new_start_of_the_machine_nothing_is_lost(
    crashed: tuple[Path, Path, bytes, int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, out, content, synced = crashed
    monkeypatch.undo()
    (out / "ledger" / f"{NAME}.jsonl").write_bytes(LOST["zeros"](content, synced))
    assert said(capsys, "audit", out)[0] == 2


def test_what_was_sealed_at_the_end_is_on_the_disk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a seal that does not fit is somebody's doing."""
    synced: dict[int, int] = {}
    fsync, end = os.fsync, Identity.end

    def kept(file: int) -> None:
        fsync(file)
        state = os.fstat(file)
        synced[state.st_ino] = state.st_size

    sealed = []

    def ended(identity: Identity, client: int, **logs: object) -> None:
        state = identity.folder.ledger(client).stat()
        sealed.append(synced.get(state.st_ino) == state.st_size)
        end(identity, client, **logs)

    monkeypatch.setattr(os, "fsync", kept)
    monkeypatch.setattr(Identity, "end", ended)
    run(job(tmp_path, "pvi"), out := tmp_path / "out")
    assert sealed == [True, True]
    log = out / "ledger" / f"{NAME}.jsonl"
    log.write_bytes(LOST["half a line, and zeros"](log.read_bytes(), 0))
    assert said(capsys, "audit", out)[0] == 2


def test_a_last_charge_of_which_the_disk_has_zeros_was_not_granted(tmp_path: Path) -> None:
    budget = Budget(tmp_path / "budget.jsonl")
    with budget.locked() as file:
        for job_ in ("x", "y", "z"):
            budget.append(file, {"job": job_, "data": "d", "unaccounted": "open"})
    content = budget.path.read_bytes()
    begin = content.rindex(b"\n", 0, -1) + 1
    for last in (content[begin : begin + 9] + bytes(20) + content[begin + 29 :], bytes(len(content) - begin)):
        budget.path.write_bytes(content[:begin] + last)
        looked = Budget(budget.path)
        looked.look()
        assert len(looked.unaccounted) == 2
        again = Budget(budget.path)
        with again.locked():
            assert len(again.unaccounted) == 2
        assert b"torn" in budget.path.read_bytes().splitlines()[-1]
    budget.path.write_bytes(zeros(content, 10, 30))  # with a line after it: no end of a machine does that
    with pytest.raises(JobError, match="can't read the line"):
        Budget(budget.path).look()


def test_stored_answers_that_end_in_zeros(crashed: tuple[Path, Path, bytes, int]) -> None:
    path, out, _, _ = crashed
    (file,) = (out / f"client-{NAME}" / "outbox").glob("pvi-*.log")
    kept = file.read_bytes()
    file.write_bytes(zeros(kept, 100, 200))
    with pytest.raises(JobError, match="was altered, and noise would be drawn again"):
        run(path, out, resume=True)
    file.write_bytes(kept + bytes(5000))
    assert run(path, out, resume=True).stop == "rounds"
