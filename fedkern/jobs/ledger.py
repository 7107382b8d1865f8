"""`ledger/<client>.jsonl`: everything that left a client.

A running hash of it stands in the stamp of every checkpoint and answer: a resumed run finds a line that was altered, a tail that
was cut, and a file that was deleted or put back from a copy. The hash is kept in memory, which takes half a microsecond a line.
To sync each line would take milliseconds; so the last lines may be lost when the whole machine goes down (never when a process
dies), and a stamp also says what was surely on the disk.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

from ..errors import JobError
from ..privacy.chain import SIZE, START, Mark
from .files import Lines, writing
from .stamp import Stamp, boot

CHUNK = 1 << 20
CHARGE = re.compile(rb'"charge": (\d+)}\n$')
SHARE = 0.01  # of the time, at most, goes into syncs beside those of checkpoints


class Ledger(Lines):
    """The log of one client's messages."""

    def __init__(self, path: Path) -> None:
        self._hash, self._length = hashlib.blake2b(digest_size=SIZE), 0
        super().__init__(path)
        self._hash, self._length = hashlib.blake2b(digest_size=SIZE), self.size
        with open(path, "rb") as file:
            while data := file.read(CHUNK):
                self._hash.update(data)
        self._synced, self._next = Mark(), 0.0

    @property
    def mark(self) -> Mark:
        """Bytes so far, and their hash."""
        return Mark(self._length, self._hash.digest()) if self._length else Mark()

    def synced(self, *, surely: bool) -> Mark:
        """What is on the disk whatever happens to the machine: all so far if `surely`, else what a share of the time allows."""
        began = time.monotonic()
        if surely or began >= self._next:
            with writing(self.path):
                os.fsync(self._handle.file)
            ended = time.monotonic()
            self._synced, self._next = self.mark, ended + (ended - began) / SHARE
        return self._synced

    def _write(self, data: bytes) -> None:
        super()._write(data)
        self._hash.update(data)
        self._length += len(data)


def check(path: Path, stamps: Iterable[Stamp]) -> str | None:
    """Whether a ledger still begins with what it held at each of these stamps; a note where the machine's end has cut it.

    Raises
    ------
    JobError
        It was altered, cut, deleted, or put back from an older copy.
    """
    stamps = list(stamps)
    wanted = {mark for stamp in stamps for mark in (stamp.ledger, stamp.synced)}
    heads = _heads(path, {mark.length for mark in wanted})
    note, here = None, boot()
    for stamp in stamps:
        mark = stamp.ledger
        if heads.get(mark.length) == mark.head:
            continue
        if stamp.boot != here and heads.get(stamp.synced.length) == stamp.synced.head:
            note = f"{path}: its last lines were lost when a machine went down"
            continue
        size = path.stat().st_size if path.exists() else None
        if size is None:
            what = "is gone"
        elif size < mark.length:
            what = f"has {size} bytes and had {mark.length}: its end was cut off, or an older copy put back"
        else:
            what = f"was altered: its first {mark.length} bytes are not what this run has written"
        raise JobError(f"{path}: {what}. It says what left the client; put it back as the run left it, or start anew (--out)")
    return note


def mark_of(path: Path) -> Mark:
    """Of a log as it stands."""
    length = path.stat().st_size
    return Mark(length, _heads(path, [length])[length])


def charged(path: Path, begin: int = 0) -> int:
    """Local steps that were paid for what a ledger says after its first `begin` bytes: a budget must know of them all."""
    if not path.exists():
        return 0
    with open(path, "rb") as file:
        file.seek(begin)
        return sum(int(found[1]) for line in file if (found := CHARGE.search(line)))


def _heads(path: Path, lengths: Iterable[int]) -> dict[int, bytes]:
    """Length -> the hash of so many bytes, for those lengths that the file has."""
    found, state, at = {0: START}, hashlib.blake2b(digest_size=SIZE), 0
    if not path.exists():
        return found
    with open(path, "rb") as file:
        for length in sorted(lengths):
            while at < length and (data := file.read(min(CHUNK, length - at))):
                state.update(data)
                at += len(data)
            if at == length and length:
                found[length] = state.digest()
    return found
