"""Writes and checks `ledger/<client>.jsonl`: everything that left a client.

A ledger that has grown to `MOST` bytes goes on in a new file; the full one is called `<client>.jsonl.000001`, and so on. All of
them in this order, and the one without a number last, are one log, which every reader reads as such (`parts`).

A running hash of it stands in the stamp of every checkpoint and answer: a resumed run sees that a line was altered, that a tail
was cut, or that a file was deleted or put back from a copy. The hash is kept in memory, which takes half a microsecond a line.
To sync each line would take milliseconds; so the last lines may be lost when the whole machine goes down (never when a process
dies), and a stamp also says how much was surely on the disk.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..errors import JobError
from ..ground import Ground
from ..results.plain import Record
from .files import Lines
from .holding.chain import SIZE, START, Mark
from .stamp import Stamp, boot

CHUNK = 1 << 20
MOST = 1 << 26  # bytes of a file
CHARGE = re.compile(rb'"charge": (\d+)}\n$')
SHARE = 0.01  # of the time, at most, goes into syncs beside those of checkpoints


class Ledger(Lines):
    """Writes the log of one client's messages.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fedkern.jobs.ledger import Ledger
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = Ledger(Path(folder) / "north.jsonl")
    ...     ledger.append({"round": 0, "kind": "SchemaReply"})
    ...     ledger.size
    ...     ledger.close()
    ...
    36
    """

    def __init__(self, path: Path, ground: Ground | None = None) -> None:
        self._hash, self._length, self._here = hashlib.blake2b(digest_size=SIZE), 0, 0
        super().__init__(path, ground, secret=True)
        self._hash, self._length, self._here = hashlib.blake2b(digest_size=SIZE), size(path), path.stat().st_size
        for data in _content(path):
            self._hash.update(data)
        self._synced, self._next = Mark(), 0.0

    @property
    def size(self) -> int:
        """The number of bytes so far, in all files."""
        return self._length

    @property
    def mark(self) -> Mark:
        """The number of bytes so far, and their hash."""
        return Mark(self._length, self._hash.digest()) if self._length else Mark()

    def synced(self, *, surely: bool) -> Mark:
        """Returns the mark of the lines that stay on the disk whatever happens to the machine.

        These are all so far if `surely`; otherwise it syncs only as often as a share of the time allows.
        """
        began = time.monotonic()
        if surely or began >= self._next:
            self.sync()
            ended = time.monotonic()
            self._synced, self._next = self.mark, ended + (ended - began) / SHARE
        return self._synced

    def _write(self, data: bytes) -> None:
        size = len(data)
        if self._here + size > MOST and self._here:
            self._begin_file()
        self._handle.append(data)
        self._hash.update(data)
        self._length += size
        self._here += size

    def _begin_file(self) -> None:
        """Begins the next file, once the full one is on the disk under its own name."""
        os.fsync(self._handle.file)
        self.ground.rename(self.path, _part(self.path, len(_full(self.path)) + 1))
        self._handle.close()
        self._handle, self._here = self._opened(), 0
        self.ground.sync(self.path.parent)


def control_line(what: str, n_bytes: int) -> Record:
    """Returns the line of a control message, which belongs to no protocol."""
    return {"protocol": None, "round": None, "kind": what, "fields": {}, "shapes": {}, "bytes": n_bytes, "charge": 0}


def write_early(path: Path, messages: Iterable[tuple[str, int]]) -> bool:
    """Writes the ledger of a job that has ended before its run began; returns whether it did.

    It does not where the run's folder is not there, or has ledgers of an earlier start: these may be sealed. `messages`: kind and
    bytes of each control message.
    """
    messages = list(messages)
    if not messages or path.parent.exists() or not path.parent.parent.is_dir():
        return False
    with Ground(path.parent.parent) as ground:
        log = Lines(path, ground, secret=True)
        try:
            for what, n_bytes in messages:
                log.append(control_line(what, n_bytes))
        finally:
            log.close()
    return True


def parts(path: Path) -> list[Path]:
    """Returns the files of a ledger, oldest first; none where it has no file."""
    return [*_full(path), *([path] if path.exists() else [])]


def size(path: Path) -> int:
    """Returns the number of bytes of a ledger."""
    return sum(part.stat().st_size for part in parts(path))


def read_lines(path: Path) -> Iterator[bytes]:
    """Yields all lines of a ledger, with their ends."""
    for part in parts(path):
        with open(part, "rb") as file:
            yield from file


def torn(line: bytes) -> bool:
    """Tells whether a line was cut when a process or a machine went down.

    Its beginning is left then, or zeros where the disk had the file's length and not yet its content.
    """
    return b"\0" in line or (line.lstrip().startswith(b"{") and line.count(b"{") > line.count(b"}"))


def _full(path: Path) -> list[Path]:
    files: list[Path] = []
    while (part := _part(path, len(files) + 1)).exists():
        files.append(part)
    return files


def _part(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number:06d}")


def _content(path: Path, most: float = math.inf) -> Iterator[bytes]:
    """Yields the first bytes of a ledger, in pieces."""
    for part in parts(path):
        with open(part, "rb") as file:
            while most > 0 and (data := file.read(int(min(CHUNK, most)))):
                yield data
                most -= len(data)


def check(path: Path, stamps: Iterable[Stamp]) -> str | None:
    """Checks whether a ledger still begins as it was at each of these stamps; returns a note where the machine's end has cut it.
    Raises JobError: it was altered, cut, deleted, or put back from an older copy."""
    stamps = list(stamps)
    wanted = {mark for stamp in stamps for mark in (stamp.ledger, stamp.synced)}
    heads = _heads(path, {mark.length for mark in wanted})
    note, here = None, boot()
    for stamp in stamps:
        mark = stamp.ledger
        if heads.get(mark.length) == mark.head:
            continue
        # Since then the machine has started anew, and the part that was surely on the disk is whole: the machine lost the tail.
        if stamp.boot != here and heads.get(stamp.synced.length) == stamp.synced.head:
            note = f"{path}: its last lines were lost when a machine went down"
            continue
        length = size(path) if parts(path) else None
        if length is None:
            what = "is gone"
        elif length < mark.length:
            what = f"has {length} bytes and had {mark.length}: its end was cut off, or an older copy put back"
        else:
            what = f"was altered: its first {mark.length} bytes are not what this run has written"
        raise JobError(f"{path}: {what}. It says what left the client; put it back as the run left it, or start anew (--out)")
    return note


def mark_of(path: Path) -> Mark:
    """Returns the mark of a whole log."""
    length = size(path)
    return Mark(length, _heads(path, [length])[length])


def charged(path: Path, begin: int = 0) -> int:
    """Returns the local steps paid for messages after a ledger's first `begin` bytes: a budget must know of them all."""
    steps = place = 0
    for line in read_lines(path):
        steps += int(match[1]) if place >= begin and (match := CHARGE.search(line)) else 0
        place += len(line)
    return steps


def _heads(path: Path, lengths: Iterable[int]) -> dict[int, bytes]:
    """Returns, for those lengths that the file has, the hash of so many bytes."""
    heads, state, place = {0: START}, hashlib.blake2b(digest_size=SIZE), 0
    wanted = sorted(length for length in set(lengths) if length)
    for data in _content(path, max(wanted, default=0)):
        rest = memoryview(data)
        while wanted and place + len(rest) >= wanted[0]:
            piece, rest = rest[: wanted[0] - place], rest[wanted[0] - place :]
            state.update(piece)
            place = wanted.pop(0)
            heads[place] = state.digest()
        state.update(rest)
        place += len(rest)
    return heads
