"""A run's folder: everything that a run leaves on a disk, so that a crash at any instant leaves something that can be read.

Whole files are written beside their place, synced and renamed; logs grow by whole lines. A full disk, or one that cannot be
written, is a JobError that names the file and the remedy.
"""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..algorithms.messages import SERVER
from ..errors import JobError
from ..results.plain import plain
from ..transports.codec import pack, unpack

MAGIC = b"fedkern checkpoint 1\n"
DIGEST = 32


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns what an operating system says about a file that cannot be written into a JobError with a remedy."""
    try:
        yield
    except OSError as error:
        raise unwritable(path, error) from None


def unwritable(path: Path, error: OSError) -> JobError:
    """What to say of a file that cannot be written."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    remedy = "free some space there" if full else "make it writable"
    return JobError(
        f"cannot write {path}: {error.strerror or error}; {remedy} or choose another folder with --out. "
        "Files written before are whole; --resume goes on from the last checkpoint"
    )


def write_atomically(path: Path, data: bytes) -> None:
    """The file is the old one or the new one, whatever happens in between."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    with writing(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(beside, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path)
            sync_folder(path.parent)
        finally:
            beside.unlink(missing_ok=True)


def sync_folder(path: Path) -> None:
    """Makes the names in a folder survive a crash."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class Lines:
    """A log of JSON lines. A line is with the operating system when `append` returns: a crash of the process can't lose it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            if self.size and os.pread(self._file, 1, self.size - 1) != b"\n":  # a crash cut the last line
                self._write(b"\n")

    def append(self, record: Mapping[str, Any]) -> None:
        self.write(json.dumps(plain(record), allow_nan=False))

    def write(self, line: str) -> None:
        """A line that is JSON already."""
        try:  # `writing`, which takes longer than the writing
            self._write(line.encode() + b"\n")
        except OSError as error:
            raise unwritable(self.path, error) from None

    @property
    def size(self) -> int:
        """Bytes so far."""
        return os.fstat(self._file).st_size

    def cut(self, size: int) -> None:
        """Forgets what was written after the first `size` bytes."""
        with writing(self.path):
            os.ftruncate(self._file, min(size, self.size))

    def close(self) -> None:
        os.close(self._file)

    def _write(self, data: bytes) -> None:
        if os.write(self._file, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def spare(party: int) -> int:
    """How many older checkpoints a party keeps: the server one. A client two, for the server may not have reached its newest."""
    return 1 if party == SERVER else 2


class RunFolder:
    """The files of one run, as one party or several in the same place see them.

    Parameters
    ----------
    path
        The folder; made when something is written.
    names
        Of all clients, by number.
    job
        Bytes that identify the job: a checkpoint of another job is refused.
    """

    def __init__(self, path: str | os.PathLike[str], names: Sequence[str], job: bytes = b"") -> None:
        self.path, self.names = Path(path), tuple(names)
        self.job = hashlib.blake2b(job, digest_size=DIGEST).digest()
        safe = [re.sub(r"[^\w.-]", "_", name) or "_" for name in self.names]
        self._safe = [name if safe.count(name) == 1 else f"{name}-{k}" for k, name in enumerate(safe)]

    def home(self, party: int) -> Path:
        """Where a party's own files lie: the run's folder for the server, `client-<name>` in it for a client."""
        return self.path if party == SERVER else self.path / f"client-{self._safe[party]}"

    def ledger(self, client: int) -> Path:
        """What left a client."""
        return self.path / "ledger" / f"{self._safe[client]}.jsonl"

    def claim(self, parties: Iterable[int], *, resume: bool) -> None:
        """JobError if another run's files of these parties would be overwritten, or if there is nothing to resume."""
        for party in parties:
            finished = self.path / "summary.json"
            if party == SERVER and finished.exists():
                what = "has nothing to resume" if resume else "would be overwritten"
                raise JobError(f"{finished} is there: the run in this folder has finished and {what}; choose another --out")
            begun = [p for p in (self.home(party) / "checkpoint", self.home(party) / "outbox") if p.is_dir() and any(p.iterdir())]
            if begun and not resume:
                raise JobError(
                    f"{begun[0]} holds an interrupted run: --resume goes on with it; to start anew choose another --out"
                )

    def write_json(self, name: str, content: Any) -> Path:
        """A file of the run's folder."""
        path = self.path / name
        write_atomically(path, json.dumps(plain(content), indent=1, allow_nan=False).encode() + b"\n")
        return path

    def write_csv(self, name: str, columns: Mapping[str, Sequence[Any]]) -> Path:
        """A table of the run's folder."""
        text = io.StringIO(newline="")
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(columns)
        lines.writerows(zip(*columns.values()))
        path = self.path / name
        write_atomically(path, text.getvalue().encode())
        return path

    def keep(self, party: int, protocol: str, number: int, content: Mapping[str, Any]) -> None:
        """Writes a checkpoint, and removes those that are no longer needed."""
        path = self._checkpoint(party, protocol, number)
        body = self.job + pack(content)
        write_atomically(path, MAGIC + hashlib.blake2b(body, digest_size=DIGEST).digest() + body)
        for other in self.numbers(party, protocol):
            if not number - spare(party) <= other <= number:
                self._checkpoint(party, protocol, other).unlink(missing_ok=True)

    def numbers(self, party: int, protocol: str) -> list[int]:
        """Of the checkpoints that are there, readable or not."""
        folder = self.home(party) / "checkpoint"
        names = [p.name for p in folder.iterdir()] if folder.is_dir() else []
        found = [re.fullmatch(re.escape(protocol) + r"-(\d+)\.ckpt", name) for name in names]
        return sorted(int(match[1]) for match in found if match)

    def kept(self, party: int, protocol: str, number: int) -> dict[str, Any]:
        """A checkpoint's content. ValueError if it is not whole; JobError if it is another job's."""
        path = self._checkpoint(party, protocol, number)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {error.strerror}") from None
        body = data[len(MAGIC) + DIGEST :]
        if data[: len(MAGIC)] != MAGIC or data[len(MAGIC) :][:DIGEST] != hashlib.blake2b(body, digest_size=DIGEST).digest():
            raise ValueError(f"{path} was cut short or altered")
        if body[:DIGEST] != self.job:
            raise JobError(
                f"{path} belongs to another job: the job file, its options or its data have changed since it was written"
            )
        return unpack(body[DIGEST:])

    def forget_after(self, party: int, protocol: str, number: int) -> None:
        """Removes checkpoints that came after the one from which a run goes on."""
        for other in self.numbers(party, protocol):
            if other > number:
                self._checkpoint(party, protocol, other).unlink(missing_ok=True)

    def _checkpoint(self, party: int, protocol: str, number: int) -> Path:
        return self.home(party) / "checkpoint" / f"{protocol}-{number:06d}.ckpt"
