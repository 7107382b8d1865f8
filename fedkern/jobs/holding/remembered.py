"""Keeps a holder's marks of its budgets, away from them: how long each file was, and the hash of all its content.

The chain of a budget shows a line that was altered. A lost tail, an older copy that was put back, or a deleted file show only to
whoever kept a mark of the budget elsewhere. Runs keep their marks; and for all jobs, of every budget that a policy caps, a mark
lies in another folder of the holder's (`binding.marks`). A budget that does not begin as its mark says is charged nothing.

A line is on the disk before the mark is written, and both happen with the budget locked. So a crash between the two, or a machine
that goes down before the mark is on its disk, leaves a mark that is older than the file, which is right: the file may have grown.
A mark that cannot be read or written counts as none, and costs no charge.

A holder that has put back a copy, or begun anew, on purpose, adds a line {"adopt": N} after the N lines that count. It ends the
earlier marks, once: a later adoption must be another line, and so it has the time.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path

from ...ground import Ground

DIGEST = 16


@dataclass(frozen=True)
class Kept:
    """Holds a mark of a budget."""

    # path, host: the file's path, links resolved, and its machine
    path: str
    host: str
    first: str  # the hash after its first line that is of a job, hexadecimal, as all hashes: no other file has it
    # length, head: lines, and the hash after the last
    length: int
    head: str
    adopted: tuple[str, ...] = ()  # hashes after all lines with which the holder has adopted something

    def fits(self, heads: Sequence[bytes], adoptions: Sequence[bytes]) -> bool:
        """Tells whether a file with these hashes after its lines still begins as marked, or its holder has adopted it since."""
        if self.length <= len(heads) and heads[self.length - 1].hex() == self.head:
            return True
        return bool(adoptions) and adoptions[-1].hex() not in self.adopted


class Remembered:
    """Holds the marks of one budget.

    Parameters
    ----------
    folders : where marks lie; they are written into the first that can be
    path : the path of the budget
    """

    def __init__(self, folders: Sequence[Path], path: Path) -> None:
        self.folders, self.path, self.host = tuple(folders), os.path.realpath(path), socket.gethostname()

    def find_marks(self, first: bytes) -> list[tuple[Path, Kept]]:
        """Returns the marks of a file that begins so (wherever it was used), and of any other in its place on this machine."""
        everything = (mark for folder in self.folders for mark in _marks(folder))
        here = [(path, kept) for path, kept in everything if kept.path == self.path]
        return [(path, kept) for path, kept in here if kept.first == first.hex() or kept.host == self.host]

    def keep(self, first: bytes, heads: Sequence[bytes], adopted: Sequence[str], *, sync: bool) -> str | None:
        """Writes the mark of a file, in the place of the one before; returns the reason where that fails, and None otherwise."""
        kept = Kept(self.path, self.host, first.hex(), len(heads), heads[-1].hex(), tuple(dict.fromkeys(adopted)))
        text = json.dumps(asdict(kept)).encode()
        name = blake2b(f"{self.host}\0{self.path}".encode(errors="surrogateescape"), digest_size=DIGEST).hexdigest() + ".json"
        why = "there is no folder for it"
        for folder in self.folders:
            try:
                with Ground(folder) as ground:
                    ground.put(folder / name, text + b"\n" + _check(text) + b"\n", secret=True, sync=sync)
                return None
            except OSError as fault:
                why = f"{folder}: {fault.strerror or fault}"
        return why


def again(n_lines: int) -> str:
    """Returns the advice for a holder where `n_lines` lines are all that counts."""
    line = json.dumps({"adopt": n_lines, "time": datetime.now(UTC).isoformat(timespec="seconds")})
    if not n_lines:
        return f"if nothing was spent, write the line {line} into it"
    return f"if its {n_lines} lines are all that was spent, add the line {line} at its end"


def _marks(folder: Path) -> Iterator[tuple[Path, Kept]]:
    """Yields all marks of a folder that can be read."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        if name.endswith(".json") and (kept := _read(folder / name)) is not None:
            yield folder / name, kept


def _read(path: Path) -> Kept | None:
    try:
        text, check, rest = path.read_bytes().split(b"\n")
        if check != _check(text) or rest:
            return None
        content = json.loads(text)
        return Kept(**{**content, "adopted": tuple(content["adopted"])})
    except (OSError, ValueError, KeyError, TypeError):  # a machine that went down may have left less than was written
        return None


def _check(text: bytes) -> bytes:
    return blake2b(text, digest_size=DIGEST).hexdigest().encode()
