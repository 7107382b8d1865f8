"""Keeps `audit.jsonl` in the folder of a site, for the holder's IT: who asked for which job, and what became of it.

Each line is a JSON object with its time, and ends with a hash of itself and of the line before: one that was changed or removed
shows. A file that has grown to `MOST` bytes is renamed to audit.jsonl.000001, and so on; the new one begins with the hash with
which the old one ended. The ledger of a run has each message that left; the log has its sums.

The hash with which the log ends also stands in the file by which writers wait for each other, `.audit.jsonl.lock`: so lines that
were cut off at the end show too, or a whole file that is gone.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import JobError
from ..jobs.holding.chain import START, following, seal, unseal
from ..plain import Json

NAME = "audit.jsonl"
LOCK = f".{NAME}.lock"
CUT = "cut"  # the event of a line that says that lines before it are gone
MOST = 10_000_000  # bytes of a file
LONGEST = 64_000  # bytes of a line


class Line(NamedTuple):
    """Holds a line of the log."""

    where: str  # the file's name and the line's number in it
    content: dict[str, Any]  # the content, without the hash
    fault: str  # why it is not as it was written; empty where it is
    chain: str = ""  # the hash with which it ends


class Audit:
    """Appends lines to the audit log of a site, and reads them; several processes may do so at the same time.

    Parameters
    ----------
    folder : of the site
    most : bytes after which a new file is begun
    """

    def __init__(self, folder: Path, most: int = MOST) -> None:
        self.folder, self.most = folder, most

    @property
    def path(self) -> Path:
        """The path of the file to which lines are appended."""
        return self.folder / NAME

    def write(self, event: str, guard: Callable[[], None] = lambda: None, **facts: Json) -> str:
        """Appends a line, and returns the hash with which it ends; it is on the disk when this returns. Raises OSError: it is
        not, and the error names the file. Nothing of the line is in it then.

        Parameters
        ----------
        event : what the line is about
        guard : is called before, while nobody else writes; what it raises keeps the line out of the log
        facts : what the line says of it
        """
        entries = [{"time": now(), "event": event, **{name: value for name, value in facts.items() if value not in (None, "")}}]
        with _naming(self.path), self._locked() as (lock, file, head, size):
            guard()
            # Said before the mark is another: what was cut off stays known.
            if lost := self.lost_end():
                entries.insert(0, {"time": now(), "event": CUT, "lost": lost})
            if not size:
                entries[0]["after"] = head.hex()
            data = b""
            for entry in entries:
                line, head = seal(entry, head)
                if len(line) > LONGEST:
                    raise OSError(f"a line of {len(line)} bytes")
                data += line
            try:
                written = os.write(file, data)
                os.fsync(file)
                if written < len(data):
                    raise OSError(errno.ENOSPC, f"only {written} of {len(data)} bytes could be written")
                if not size:
                    with _opened_folder(self.folder) as folder:
                        os.fsync(folder)
                os.pwrite(lock, head.hex().encode(), 0)  # the line is on the disk before: an older mark is right, too
            except OSError:
                os.ftruncate(file, size)
                raise
        return head.hex()

    def lines(self) -> Iterator[Line]:
        """Yields all lines, the oldest first, and says of each whether it is as it was written."""
        head: bytes | None = None
        for path in self.files():
            with path.open("rb") as file:
                for number, data in enumerate(file, 1):
                    line, head = _read(f"{path.name}:{number}", data, head, first=number == 1)
                    yield line

    def files(self) -> list[Path]:
        """Returns the files of the log, the oldest first."""
        older = sorted(path for path in self.folder.glob(f"{NAME}.*") if re.fullmatch(r"\d{6}", path.name[len(NAME) + 1 :]))
        newest = [self.path] if self.path.exists() else []
        return [*older, *newest]

    def lost_end(self) -> str:
        """Returns the hash of a line at the log's end that is not there any more; empty where all are, or nobody has kept it."""
        try:
            mark = (self.folder / LOCK).read_bytes().decode(errors="replace")
        except FileNotFoundError:
            return ""
        if not re.fullmatch("[0-9a-f]{32}", mark) or mark == _last(self.files()).hex():
            return ""
        # A crash between the two leaves the mark of an earlier line.
        return "" if any(mark == line.chain for line in self.lines()) else mark

    def starts(self, job: str, since: str) -> int:
        """Returns how often a job has begun here. Raises JobError: the log is not whole since then, so that nobody can tell.

        Parameters
        ----------
        job : its digest, in hexadecimal digits
        since : the hash of the line after which it counts; empty: from the first
        """
        counts, number = not since, 0
        anew = "so nobody can tell how often the job has begun; put the log's files back, or accept the job anew"
        for line in self.lines():
            counts = counts or line.chain == since
            if counts and line.fault:
                raise JobError(f"{self.folder / line.where}: {line.fault}, {anew}")
            number += counts and (line.content.get("event"), line.content.get("job")) == ("started", job)
        if not counts or self.lost_end():
            what = "has lost lines at its end" if counts else "does not have the line of the acceptance"
            raise JobError(f"{self.path}: the log {what}, {anew}")
        return number

    def runs(self) -> set[str]:
        """Returns the runs that have begun here."""
        return {str(line.content.get("run")) for line in self.lines() if line.content.get("event") == "started"}

    @contextmanager
    def _locked(self) -> Iterator[tuple[int, int, bytes, int]]:
        """Yields the lock and the log, opened, the hash with which the log ends, and its size; nobody else writes meanwhile."""
        with _opened(self.folder / LOCK, os.O_RDWR) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self.path.exists() and self.path.stat().st_size >= self.most:
                self._rotate()
            head = _last(self.files())
            with _opened(self.path, os.O_RDWR | os.O_APPEND) as file:
                size = os.fstat(file).st_size
                if size and os.pread(file, 1, size - 1) != b"\n":  # the machine went down within a line
                    os.write(file, b"\n")
                    size += 1
                yield lock, file, head, size

    def _rotate(self) -> None:
        *_, last = [f"{NAME}.000000", *(path.name for path in self.files() if path != self.path)]
        os.rename(self.path, self.folder / f"{NAME}.{int(last.rpartition('.')[2]) + 1:06}")


def now() -> str:
    """Returns the time of this machine's clock, in UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Gives errors of the machine inside the name of a file: those of a file that is open already have none."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:
            error.filename = error.filename or str(path)
        raise


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    """Opens a file that is its owner's alone, and no link."""
    file = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        yield file
    finally:
        os.close(file)


@contextmanager
def _opened_folder(path: Path) -> Iterator[int]:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield folder
    finally:
        os.close(folder)


def _last(files: list[Path]) -> bytes:
    """Returns the hash with which the log ends."""
    for path in reversed(files):
        with path.open("rb") as file:
            file.seek(-min(2 * LONGEST, os.fstat(file.fileno()).st_size), os.SEEK_END)
            for data in reversed(file.read().splitlines()):
                if (chain := unseal(data)[1]) is not None:
                    return bytes.fromhex(chain)
    return START


def _read(where: str, data: bytes, head: bytes | None, *, first: bool) -> tuple[Line, bytes | None]:
    """Returns a line, and the hash with which it ends; `head` is that of the line before, None where there is none."""
    text, chain = unseal(data)
    hash_of_line = None if chain is None else bytes.fromhex(chain)
    try:
        content = json.loads(text)
        if hash_of_line is None or not isinstance(content, dict):
            raise ValueError
    except (ValueError, RecursionError):
        return Line(
            where, {}, "the line is cut, or none of this log"
        ), hash_of_line or head  # the next line follows on what stands here
    # The log's first file, or the first that is still here, says with which hash the one before it ended.
    if head is None and first:
        head = bytes.fromhex(after) if re.fullmatch("[0-9a-f]{32}", after := str(content.get("after"))) else START
    fault = ""
    if head is None or following(head, text) != hash_of_line:
        fault = "this line, or the one before it, was changed or removed"
    elif content.get("event") == CUT:
        fault = "lines that stood before this one were cut off"
    return Line(where, content, fault, hash_of_line.hex()), hash_of_line
