"""Cells of rows are found in their client's own folder and nowhere else, whatever is wrong with its file."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedkern.errors import OwnFault
from fedkern.transports.codec import Codec
from support import few, planted
from support.command import forking
from support.mpirun import MPIRUN, environment
from support.planted import FAULTY, METHODS, PLANTED, Found, P, T, faults, federation


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """All frames of all parties."""
    frames: list[bytes] = []
    encode = Codec.encode

    def kept(self: Codec, client: int, message: Any, last: bool = True) -> Any:
        frame = encode(self, client, message, last)
        frames.append(bytes(frame))
        return frame

    monkeypatch.setattr(Codec, "encode", kept)
    return frames


def cases(method: str, only: str = "") -> Iterator[tuple[str, planted.Fault]]:
    return ((name, fault) for name, fault in faults(METHODS[method]) if re.search(only, name))


def looked_at(ended: Any, found: Found, what: str) -> None:
    found.look(f"{what}, output", ended.out)
    found.look(f"{what}, errors", ended.err)
    assert ended.code in (0, 2), (what, ended)
    assert "internal" not in ended.err, (what, ended.err)
    assert "Traceback" not in ended.err, (what, ended.err)


def tried(
    fedkern: Any, folder: Path, method: str, name: str, fault: planted.Fault, wire: list[bytes], *sets: str
) -> tuple[Any, Found]:
    """One job in this process: what it printed, sent and wrote."""
    path, found = federation(folder, METHODS[method], fault), Found()
    wire.clear()
    ended = fedkern("run", path, "--out", folder / "out", *sets)
    looked_at(ended, found, name)
    if not fault.named:
        for frame in wire:
            found.look(f"{name}, wire", frame)
    if (folder / "out").exists():
        found.look_in(folder / "out")
    return ended, found


MANY = Path(planted.__file__).with_name("many_jobs.py")
FEW = "short row|enormous|UTF-8|text for a number|unknown level|third label|every cell|one row|parquet, texts|unit"


def searched(fedkern: Any, folder: Path, wire: list[bytes], method: str, only: str = "") -> None:
    """All faults of a method; of those with which a private job goes on, to its end, only some."""
    m, places, refused, said = METHODS[method], [], 0, set()
    for k, (name, fault) in enumerate(cases(method)):
        if m.private and fault.row and not re.search(only, name):
            continue
        ended, found = tried(fedkern, folder / str(k), method, name, fault, wire)
        places += found.places
        if m.private and fault.row and "vertical" not in method:  # there an id that is lost ends the job
            assert ended.code == 0, (name, ended.err)
        if ended.code:
            refused += 1
            said.add(ended.err.replace(str(folder / str(k)), ""))
            kept = list((folder / str(k) / "out").rglob("holder.txt"))
            assert len(kept) == ("holder.txt" in ended.err), (name, ended.err, kept)
    assert places == []
    assert refused > 25
    if m.private:  # one sentence for all that may be wrong with a file, and few others
        assert len(said) <= 12, said  # one for what the file is, not for what it holds


@pytest.mark.parametrize("method", METHODS)
def test_no_cell_is_found_outside_its_client_s_folder(fedkern: Any, tmp_path: Path, wire: list[bytes], method: str) -> None:
    searched(fedkern, tmp_path, wire, method, FEW)


@pytest.mark.nightly
@pytest.mark.parametrize("method", [name for name, m in METHODS.items() if m.private])
def test_no_cell_of_any_row_is_found_outside(fedkern: Any, tmp_path: Path, wire: list[bytes], method: str) -> None:
    searched(fedkern, tmp_path, wire, method)


@pytest.mark.nightly
@pytest.mark.parametrize("method", METHODS)
def test_check_and_report_show_no_cell_and_the_holder_is_shown_them(fedkern: Any, tmp_path: Path, method: str) -> None:
    places, shown = [], 0
    for k, (name, fault) in enumerate(cases(method)):
        folder, found = tmp_path / str(k), Found()
        path = federation(folder, METHODS[method], fault)
        looked_at(fedkern("check", path), found, f"{name}, check")
        ended = fedkern("run", path, "--out", folder / "out", "--quiet")
        if (folder / "out" / "job.json").exists():
            looked_at(fedkern("report", folder / "out"), found, f"{name}, report")
            found.look(f"{name}, page", (folder / "out" / "report.html").read_bytes())
        places += found.places
        own = next(p for p in sorted((folder / "clients").iterdir()) if p.name.startswith(f"{FAULTY}."))
        local = fedkern("check", path, "--local", own)
        assert "Traceback" not in local.err, (name, local)
        kept = folder / "out" / f"client-{FAULTY}" / "holder.txt"
        if kept.exists() and "are not at" not in kept.read_text():  # not of what the file is beside others
            assert (ended.code, local.code) == (2, 2), (name, local)
            shown += bool(PLANTED.search((local.out + local.err).encode()))
    assert places == []
    assert shown > 10


def over_mpi(folder: Path, method: str) -> tuple[list[str], dict[str, int]]:
    """All faults of a method in one MPI job: where cells were found, and the exit codes."""
    jobs, found = [], Found()
    for k, (name, fault) in enumerate(cases(method)):
        path = federation(folder / str(k), METHODS[method], fault)
        jobs.append((name, ["run", str(path), "--out", str(folder / str(k) / "out")]))
    (folder / "jobs.json").write_text(json.dumps(jobs))
    command = [str(MPIRUN), "--oversubscribe", "-n", "3", *forking(), str(MANY), str(folder / "jobs.json")]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    found.look("output", done.stdout)
    found.look("errors", done.stderr)
    for k in range(len(jobs)):
        if (folder / str(k) / "out").exists():
            found.look_in(folder / str(k) / "out")
    assert "Traceback" not in done.stderr
    return found.places, dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith('["'))


@pytest.mark.parametrize("method", ["pvi", *(pytest.param(name, marks=pytest.mark.nightly) for name in METHODS if name != "pvi")])
def test_no_cell_is_found_outside_over_mpi(tmp_path: Path, method: str) -> None:
    places, codes = over_mpi(tmp_path, method)
    assert places == []
    assert len(codes) == len(list(cases(method)))
    assert set(codes.values()) <= {0, 2}


@pytest.mark.parametrize("line", [f"x,{P},f,0,1,no", f"x,{T},f,0,1,no", f"x,40,f,0,1,{T}", f"{T},40,f"])
@pytest.mark.parametrize("header", ["id,age,sex,o,w,income", f"{T},{P}"])
def test_the_server_s_test_rows_are_its_own_too(fedkern: Any, tmp_path: Path, wire: list[bytes], header: str, line: str) -> None:
    good = planted.Fault(lambda folder, m, rows: (folder / "a.csv").write_text("\n".join([m.header, *rows[1:]]) + "\n"))
    path = federation(tmp_path, METHODS["pvi"], good)
    path.write_text(path.read_text().replace("[output]", 'test = "test.csv"\n[output]'))
    (tmp_path / "test.csv").write_text(f"{header}\n{line}\n")
    ended, found = fedkern("run", path, "--out", "out"), Found()
    looked_at(ended, found, "run")
    found.look_in(tmp_path / "out", ("holder.txt",))
    found.look("wire", b"".join(wire))
    assert found.places == []
    if ended.code:
        assert (tmp_path / "out" / "holder.txt").stat().st_mode & 0o777 == 0o600


TELLING = [("pvi", "^text for a number$"), ("pvi, rows", "^no header$"), ("sigma", "unknown area")]


@pytest.mark.parametrize(("method", "only"), TELLING)
def test_a_fault_that_tells_is_found(
    fedkern: Any, tmp_path: Path, wire: list[bytes], monkeypatch: pytest.MonkeyPatch, method: str, only: str
) -> None:
    """The search finds what it looks for, where others are told what is the holder's own."""
    monkeypatch.setattr(OwnFault, "__str__", lambda self: self.own)
    ((name, fault),) = cases(method, only)
    sets = few.SET if method == "pvi" else ()  # the planted row weighs more than all others
    _, found = tried(fedkern, tmp_path, method, name, fault, wire, *sets)
    assert found.places
