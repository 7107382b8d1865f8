"""A ledger goes on in further files: every reader reads all of them, and finds what was altered in any."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedkern.cli.__main__ import main
from fedkern.errors import JobError, LostPeer
from fedkern.jobs import ledger
from fedkern.jobs.ledger import Ledger
from fedkern.jobs.stamp import Stamp
from support.interrupted import Crash, job, run

FEW = 900  # bytes: some lines


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MOST", FEW)


def line(i: int) -> dict[str, Any]:
    return {"protocol": "pvi", "round": i, "kind": "SiteDelta", "fields": {}, "shapes": {}, "bytes": 100 + i, "charge": i % 3}


def written(path: Path, first: int, last: int) -> Ledger:
    log = Ledger(path)
    for i in range(first, last):
        log.append(line(i))
    return log


def test_files_are_one_log(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    log = written(path, 0, 40)
    files = ledger.parts(path)
    assert len(files) > 4
    assert files == [*(tmp_path / f"a.jsonl.{n:06d}" for n in range(1, len(files))), path]
    assert all(0 < file.stat().st_size <= FEW and file.read_bytes().endswith(b"\n") for file in files)
    assert [json.loads(text)["round"] for text in ledger.read_lines(path)] == list(range(40))
    assert log.size == log.mark.length == ledger.size(path) == sum(file.stat().st_size for file in files)
    assert ledger.mark_of(path) == log.mark == log.synced(surely=True)
    log.close()
    again = written(path, 40, 60)
    assert [json.loads(text)["round"] for text in ledger.read_lines(path)] == list(range(60))
    again.close()
    whole = tmp_path / "whole.jsonl"
    whole.write_bytes(b"".join(ledger.read_lines(path)))
    assert ledger.mark_of(whole) == again.mark
    begin = sum(len(text) for text in list(ledger.read_lines(path))[:25])
    assert ledger.charged(path, begin) == sum(i % 3 for i in range(25, 60))
    assert ledger.charged(path) == sum(i % 3 for i in range(60))


def test_a_crash_between_two_files_loses_nothing(tmp_path: Path) -> None:
    """When the full one has its name, and the next one is not there yet; and in the middle of a line."""
    path = tmp_path / "a.jsonl"
    log = written(path, 0, 40)
    log.close()
    mark, files = log.mark, ledger.parts(path)
    path.rename(tmp_path / f"a.jsonl.{len(files):06d}")
    assert ledger.check(path, [Stamp(ledger=mark, synced=mark)]) is None
    again = Ledger(path)
    assert again.mark == mark
    again.append(line(40))
    again.close()
    with path.open("ab") as file:
        file.write(b'{"protocol": "pvi", "rou')
    last = written(path, 41, 42)
    assert [text for text in ledger.read_lines(path) if not text.endswith(b"}\n")] == [b'{"protocol": "pvi", "rou\n']
    assert last.mark == ledger.mark_of(path)
    last.close()


def test_a_full_file_is_on_the_disk_before_the_next_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[str] = []
    fsync, rename = os.fsync, os.rename
    monkeypatch.setattr(os, "fsync", lambda file: (did.append("sync"), fsync(file))[1])
    monkeypatch.setattr(os, "rename", lambda a, b, **more: (did.append("rename"), rename(a, b, **more))[1])
    log = written(tmp_path / "a.jsonl", 0, 20)
    n = len(ledger.parts(log.path)) - 1
    assert did == ["sync", "rename", "sync"] * n  # the file; its name; the folder
    log.close()


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda files: files[1].write_bytes(files[1].read_bytes().replace(b"SiteDelta", b"SiteDelts")), "altered"),
        (lambda files: files[1].unlink(), "bytes and had|altered"),
        (lambda files: files[0].unlink(), "bytes and had|altered"),
        (lambda files: files[-1].unlink(), "its end was cut off"),
        (lambda files: files[0].write_bytes(b""), "bytes and had|altered"),
        (lambda files: [file.unlink() for file in files], "is gone"),
    ],
    ids=["altered", "the second is gone", "the first is gone", "the last is gone", "emptied", "all are gone"],
)
def test_what_was_done_to_any_file_is_found(tmp_path: Path, damage: Callable[[list[Path]], Any], says: str) -> None:
    path = tmp_path / "a.jsonl"
    log = written(path, 0, 40)
    log.close()
    stamps = [Stamp(ledger=log.mark, synced=log.mark)]
    ledger.check(path, stamps)
    damage(ledger.parts(path))
    with pytest.raises(JobError, match=says):
        ledger.check(path, stamps)


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    capsys.readouterr()
    code = main(arguments)
    return code, capsys.readouterr().out


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("kind", ["private", "vertical"])
def test_commands_read_all_of_it(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they say is what they say of one file, but for digests of what differs from run to run."""
    path, out = job(tmp_path, kind), tmp_path / "out"
    with pytest.raises(Crash):
        run(path, out, "algorithm.checkpoint_every=1e-9", crash=9)
    with pytest.raises(LostPeer):
        run(path, out, "algorithm.checkpoint_every=1e-9", resume=True, stop=4)
    assert run(path, out, resume=True).stop == "rounds"
    names = [file.name.removesuffix(".jsonl") for file in (out / "ledger").glob("*.jsonl") if not file.stem.startswith("rank")]
    assert all(len(ledger.parts(out / "ledger" / f"{name}.jsonl")) > 2 for name in names)
    listed, told = said(capsys, "ledger", str(out)), said(capsys, "status", str(out))
    assert said(capsys, "audit", str(out))[0] == 0
    assert main(["report", str(out)]) == 0
    page = (out / "report.html").read_text()
    for name in names:  # the same as one file each
        whole = out / "ledger" / f"{name}.jsonl"
        content, files = b"".join(ledger.read_lines(whole)), ledger.parts(whole)
        for file in files[:-1]:
            file.unlink()
        whole.write_bytes(content)
    assert said(capsys, "ledger", str(out)) == listed
    assert said(capsys, "status", str(out))[1].splitlines()[0] == told[1].splitlines()[0]
    assert said(capsys, "audit", str(out))[0] == 0
    assert main(["report", str(out)]) == 0
    assert (out / "report.html").read_text() == page
    monkeypatch.setattr(ledger, "MOST", 1 << 26)
    whole.write_bytes(content[: len(content) // 2])
    assert said(capsys, "audit", str(out))[0] == 2
