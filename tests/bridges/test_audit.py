"""The audit log of a site: append-only, chained, rotated, and whole where the disk is full."""

import errno
import os
import threading

import pytest

from fedkern.bridges.audit import LOCK, NAME, Audit
from fedkern.cli.__main__ import main
from fedkern.errors import JobError


def faults(folder):
    return [line.fault for line in Audit(folder).lines()]


def test_lines_are_chained_and_their_owners_alone(tmp_path):
    for number in range(5):
        Audit(tmp_path).write("started", run=f"{number}", nothing=None)
    assert [line.content["run"] for line in Audit(tmp_path).lines()] == list("01234")
    assert faults(tmp_path) == [""] * 5
    assert Audit(tmp_path).runs() == set("01234")
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("change", "bad"),
    [
        (lambda lines: lines[:2] + lines[3:], [2]),  # one is removed
        (lambda lines: lines[:1] + lines[3:], [1]),  # two are
        (lambda lines: lines[1:], [0]),  # the first is
        (lambda lines: [*lines[:2], lines[2].replace(b'"run": "2"', b'"run": "7"'), *lines[3:]], [2]),
        (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], [1, 2, 3]),
        (lambda lines: [*lines[:2], b"{}\n", *lines[2:]], [2]),
    ],
)
def test_a_line_that_was_changed_or_removed_shows(tmp_path, capsys, change, bad):
    for number in range(5):
        Audit(tmp_path).write("started", run=f"{number}")
    lines = (tmp_path / NAME).read_bytes().splitlines(keepends=True)
    (tmp_path / NAME).write_bytes(b"".join(change(lines)))
    assert [number for number, fault in enumerate(faults(tmp_path)) if fault] == bad
    assert main(["site", "log", str(tmp_path)]) == 2
    assert "not as they were written" in capsys.readouterr().err


def test_a_full_file_is_numbered_and_the_next_one_goes_on(tmp_path, capsys):
    log = Audit(tmp_path, most=200)
    for number in range(12):
        log.write("refused", why=f"reason {number}")
    names = [path.name for path in log.files()]
    assert names == [*(f"{NAME}.{number:06}" for number in range(1, len(names))), NAME]
    assert len(names) > 3
    assert faults(tmp_path) == [""] * 12
    log.files()[0].unlink()  # the holder keeps them for some years
    assert set(faults(tmp_path)) == {""}
    log.files()[1].unlink()  # and this one was in between
    assert sum(map(bool, faults(tmp_path))) == 1
    assert main(["site", "log", str(tmp_path)]) == 2


def test_a_full_disk_leaves_the_log_as_it_was(tmp_path, monkeypatch):
    log, write = Audit(tmp_path), os.write
    log.write("opened")
    before = log.path.read_bytes()

    def full(file, data):
        if data.startswith(b'{"time"'):
            write(file, data[:10])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        log.write("started")
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:10]))
    with pytest.raises(OSError, match="only 10 of"):
        log.write("started")
    assert log.path.read_bytes() == before
    monkeypatch.undo()
    log.write("started")
    assert faults(tmp_path) == ["", ""]


def test_a_line_that_a_crash_has_cut_shows_and_the_log_goes_on(tmp_path):
    log = Audit(tmp_path)
    log.write("opened")
    mark = (tmp_path / LOCK).read_bytes()
    log.write("started")
    (tmp_path / LOCK).write_bytes(mark)  # it is written once a line is whole
    with log.path.open("r+b") as file:
        file.truncate(log.path.stat().st_size - 9)
    log.write("closed")
    assert [bool(fault) for fault in faults(tmp_path)] == [False, True, False]


def test_several_may_write_at_once(tmp_path):
    work = lambda: [Audit(tmp_path, most=2000).write("refused", why="no") for _ in range(15)]  # noqa: E731
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults(tmp_path) == [""] * 60


def test_the_log_is_no_link(tmp_path):
    (tmp_path / NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r"Too many levels|symbolic"):
        Audit(tmp_path).write("opened")
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_that_is_no_sites_is_named(tmp_path, capsys):
    assert main(["site", "log", str(tmp_path)]) == 2
    assert "neither consent.toml nor site.toml is here; give the folder of a site" in capsys.readouterr().err
    assert main(["site", "log", str(tmp_path / "nowhere")]) == 2
    assert "no such folder" in capsys.readouterr().err


def test_a_site_that_has_accepted_nothing_has_an_empty_log(tmp_path, capsys):
    """As `site list` of it, which is no fault either; but a log that there was once is missed."""
    (tmp_path / "site.toml").write_text('path = "rows.csv"\n')
    for options in ([], ["--json"]):
        assert main(["site", "log", str(tmp_path), *options]) == 0
        assert ("nothing is logged yet: no job was accepted here" in capsys.readouterr().out) != bool(options)
    assert main(["site", "log", str(tmp_path), "--mark", "0" * 32]) == 2
    assert f"audit.jsonl is gone, which had a line with the hash {'0' * 32}" in capsys.readouterr().err
    (tmp_path / NAME).touch()  # as a disk leaves it that was full at the first line
    assert main(["site", "log", str(tmp_path)]) == 0
    assert "nothing is logged yet" in capsys.readouterr().out
    assert main(["site", "log", str(tmp_path), "--mark", "0" * 32]) == 2
    assert f"audit.jsonl is empty, which had a line with the hash {'0' * 32}" in capsys.readouterr().err
    last = Audit(tmp_path).write("opened")
    assert main(["site", "log", str(tmp_path)]) == 0
    assert last in capsys.readouterr().out
    (tmp_path / NAME).unlink()
    assert main(["site", "log", str(tmp_path)]) == 2
    assert f"is gone, which had a line with the hash {last}" in capsys.readouterr().err
    (tmp_path / LOCK).unlink()
    said = f'digest = "{"0" * 64}"\nfile = "job.toml"\nname = "job"\nwho = "ada"\ndate = "2026-01-01"\n'
    (tmp_path / "consent.toml").write_text(f'[[job]]\n{said}line = "{last}"\n')
    assert main(["site", "log", str(tmp_path)]) == 2
    assert f"is gone, which had a line with the hash {last}" in capsys.readouterr().err


def test_a_cut_end_shows_to_those_who_kept_the_last_hash(tmp_path, capsys):
    for number in range(3):
        Audit(tmp_path).write("refused", why=f"{number}")
    assert main(["site", "log", str(tmp_path)]) == 0
    mark = capsys.readouterr().out.split()[-1]
    Audit(tmp_path).write("closed")
    assert main(["site", "log", str(tmp_path), "--mark", mark]) == 0
    lines = (tmp_path / NAME).read_bytes().splitlines(keepends=True)
    (tmp_path / NAME).write_bytes(b"".join(lines[:2]))
    assert main(["site", "log", str(tmp_path)]) == 2
    assert "lines at the end of the log are gone" in capsys.readouterr().err
    (tmp_path / LOCK).unlink()  # who removes both
    assert main(["site", "log", str(tmp_path)]) == 0
    assert main(["site", "log", str(tmp_path), "--mark", mark]) == 2
    assert f"no line of the log ends with the hash {mark}" in capsys.readouterr().err


def test_what_was_cut_off_stays_known_when_the_log_goes_on(tmp_path):
    log = Audit(tmp_path)
    for number in range(4):
        log.write("started", run=f"{number}", job="a")
    lines = log.path.read_bytes().splitlines(keepends=True)
    log.path.write_bytes(b"".join(lines[:2]))
    log.write("opened")
    assert [line.content["event"] for line in log.lines()] == ["started", "started", "cut", "opened"]
    assert [bool(fault) for fault in faults(tmp_path)] == [False, False, True, False]
    assert main(["site", "log", str(tmp_path)]) == 2


def test_starts_are_counted_while_the_log_is_whole(tmp_path):
    log = Audit(tmp_path, most=400)
    log.write("started", job="a")
    since = log.write("accepted", job="a")
    for job in ("a", "b", "a"):
        log.write("started", job=job)
    assert (log.starts("a", since), log.starts("b", since), log.starts("a", "")) == (2, 1, 3)
    assert len(log.files()) > 1
    whole = {path: path.read_bytes() for path in (*log.files(), tmp_path / LOCK)}

    def lost(path):
        """What is said where a file is gone, and after another line was written."""
        for file, data in whole.items():
            file.write_bytes(data)
        path.unlink()
        said = []
        for _ in range(2):
            with pytest.raises(JobError, match="nobody can tell how often the job has begun") as fault:
                log.starts("a", since)
            said.append(str(fault.value))
            log.write("opened")
        return said

    assert all("does not have the line of the acceptance" in one or "removed" in one for one in lost(log.files()[0]))
    before, after = lost(log.path)
    assert "has lost lines at its end" in before
    assert "cut off" in after


@pytest.mark.parametrize("at", [-3, -20, -38, -44, 3])
@pytest.mark.parametrize("byte", [b"x", b"\xff", b"\n", b"'"])
def test_a_damaged_byte_of_the_last_line_shows_and_the_log_goes_on(tmp_path, at, byte):
    """A resident reads the line when it starts, before each job, and whenever it writes."""
    log = Audit(tmp_path)
    for run in ("one", "two"):
        log.write("started", job="a", run=run)
    whole = (tmp_path / NAME).read_bytes()
    at += len(whole) if at < 0 else whole.index(b"\n") + 1
    (tmp_path / NAME).write_bytes(whole[:at] + byte + whole[at + 1 :])
    assert log.runs() >= {"one"}
    with pytest.raises(JobError, match="nobody can tell"):
        log.starts("a", "")
    since = log.write("accepted", job="a")
    assert log.starts("a", since) == 0
    assert sum(bool(fault) for fault in faults(tmp_path)) >= 1
