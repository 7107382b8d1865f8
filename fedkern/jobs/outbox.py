"""Stores a client's answers since its last checkpoint, in a private job or one that runs the holders' own packages.

A private client may not draw noise twice for one release, and a holder's own code may answer otherwise when it is asked again. So
each answer is stored, with the client's state after it, before it leaves. After a crash the server asks again from its checkpoint
on, and gets the stored answers, byte for byte, until they end.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from ..algorithms.core.messages import Saved, Value
from ..algorithms.core.trace import Grown
from ..errors import JobError
from ..ground import Ground
from ..transports.codec import HEADER, Frame, pack, unpack
from ..transports.driver import Received
from . import stamp as stamping
from .files import DIGEST, deleted, remove_old, spare, write_atomically, writing
from .handles import Handle
from .stamp import Stamp

RECORD = struct.Struct(f"<Q{DIGEST}s")  # bytes that follow, their digest


class Answer(NamedTuple):
    """Holds the answer to a question, and the client's state after it."""

    question: bytes  # digest
    frames: list[Frame]
    saved: Saved  # without draws
    begin: int = 0  # draws that were there before
    grown: Mapping[str, Value] = MappingProxyType({})  # those since then


class Outbox:
    """Stores the answers of one client in one protocol: a file for each checkpoint that it keeps, of the answers after it.

    Every record has the client's `stamp`, and is refused by `check` if that is another. `waiting` are answers from before a
    crash that the server has not asked for again. Draws only grow, so a record has those since the one before: all of them in
    each would be n^2 bytes. `saved` is the state with which the client begins.
    """

    def __init__(
        self,
        folder: Path,
        protocol: str,
        number: int,
        stamp: Callable[[], Stamp] = Stamp,
        check: Callable[[Path, Stamp], None] = lambda path, stamp: None,
        ground: Ground | None = None,
        saved: Saved | None = None,
    ) -> None:
        self._draws, self._epoch, self._rows = _split(saved or {})[1], -1, 0
        self.folder, self.protocol, self.number, self.stamp, self.check = folder, protocol, number, stamp, check
        self.ground = ground or Ground(folder)
        self.waiting = deque(_answer(body) for n in self._numbers() if n >= number for body in self._bodies(n))
        self._handle = self._begin()

    def recall(self, question: Frame) -> tuple[list[Frame], Saved] | None:
        """Returns the stored answer to this question, from before the crash; the first other question ends the past."""
        if self.waiting and self.waiting[0].question == _digest(question):
            answer = self.waiting.popleft()
            before = {name: self._draws[name][: answer.begin] for name in answer.grown if answer.begin}
            self._draws = {n: np.concatenate([before[n], new]) if n in before else new for n, new in _arrays(answer.grown)}
            self._epoch, self._rows = 0, max(map(len, self._draws.values()), default=0)  # of the state that is made of it
            return answer.frames, {**answer.saved, **self._draws}
        self.waiting.clear()
        return None

    def remember(self, question: Frame, frames: list[Frame], saved: Saved) -> None:
        """Stores an answer: it is on the disk when this returns, unless it is a mere receipt."""
        rest, draws = _split(saved)
        epoch, rows = next(((value.epoch, len(value)) for value in saved.values() if isinstance(value, Grown)), (-1, 0))
        begin = self._rows if epoch == self._epoch and rows >= self._rows else 0
        self._epoch, self._rows = epoch, rows
        answer = Answer(_digest(question), frames, rest, begin, {name: value[begin:] for name, value in draws.items()})
        with writing(self._path(self.number)):
            record = _record(self.stamp().at(self._path(self.number)), answer)
            try:
                self._handle.append(record)
            except FileNotFoundError:
                raise deleted(self._path(self.number)) from None
            if any(HEADER.unpack_from(frame)[2] != Received.kind for frame in frames):
                os.fsync(self._handle.file)

    def next(self, number: int) -> None:
        """Begins a new file after a checkpoint, with the answers that still wait."""
        before, self.number = self._handle, number
        self._handle = self._begin()
        before.close()

    def close(self) -> None:
        """Closes the file."""
        self._handle.close()

    def _begin(self) -> Handle:
        path = self._path(self.number)
        stamp = self.stamp().at(path) if self.waiting else Stamp()
        waiting = b"".join(_record(stamp, answer) for answer in self.waiting)
        write_atomically(path, waiting, secret=True, ground=self.ground)
        for other in self._numbers():
            if not self.number - spare(0) <= other <= self.number:
                remove_old(self._path(other), self.ground)
        with writing(path):
            self.ground.sync(self.folder)
            return Handle(path, os.O_WRONLY | os.O_APPEND, self.ground)

    def _bodies(self, number: int) -> Iterable[bytes]:
        """Yields the whole records of a file. A crash may have cut the last one: then it had not been sent. Raises JobError: a
        record is not whole though others follow it, or is another's."""
        data, position = self._path(number).read_bytes(), 0
        while position + RECORD.size <= len(data):
            if not data[position:].strip(b"\0"):  # the disk had got no more than the file's length: it had not been sent either
                return
            length, digest = RECORD.unpack_from(data, position)
            body = data[position + RECORD.size : position + RECORD.size + length]
            if hashlib.blake2b(body, digest_size=DIGEST).digest() != digest:
                # Only the last record can be torn: a fault before it is an alteration.
                if position + RECORD.size + length < len(data):
                    raise JobError(
                        f"{self._path(number)} was altered, and noise would be drawn again, or an answer computed, for what has "
                        "left the client; put it back as the run left it, or start anew (--out)"
                    )
                return
            try:
                stamp = Stamp.read(body)
            except ValueError:
                text = "was written by another version of fedkern: go on with that version, or start anew (--out)"
                raise JobError(f"{self._path(number)} {text}") from None
            self.check(self._path(number), stamp)
            yield body[stamping.LENGTH :]
            position += RECORD.size + length

    def _numbers(self) -> list[int]:
        return sorted(int(path.stem.rpartition("-")[2]) for path in self.folder.glob(f"{self.protocol}-*.log"))

    def _path(self, number: int) -> Path:
        return self.folder / f"{self.protocol}-{number:06d}.log"


def stamps(folder: Path) -> Iterator[tuple[Path, Stamp]]:
    """Yields the stamps of all whole records in a client's outbox."""
    for path in sorted(folder.glob("*.log")):
        with path.open("rb") as file:
            position, size = 0, path.stat().st_size
            while len(head := file.read(RECORD.size + stamping.LENGTH)) == RECORD.size + stamping.LENGTH:
                position += RECORD.size + RECORD.unpack_from(head)[0]
                if position > size:
                    break
                with suppress(ValueError):
                    yield path, Stamp.read(head[RECORD.size :])
                file.seek(position)


def pack_frames(frames: Iterable[Frame]) -> bytes:
    """Packs frames one after the other; each says its own length."""
    return b"".join(frames)


def unpack_frames(data: bytes) -> list[Frame]:
    """Unpacks the frames that `pack_frames` was given."""
    frames: list[Frame] = []
    while data:
        length = HEADER.size + HEADER.unpack_from(data)[5]
        frames.append(data[:length])
        data = data[length:]
    return frames


def _digest(question: Frame) -> bytes:
    return hashlib.blake2b(question, digest_size=DIGEST).digest()


def _split(saved: Saved) -> tuple[Saved, dict[str, np.ndarray]]:
    """Returns a state without its draws, and the draws."""
    draws = {name: np.asarray(value) for name, value in saved.items() if isinstance(value, Grown)}
    return {name: value for name, value in saved.items() if name not in draws}, draws


def _arrays(saved: Mapping[str, Value]) -> list[tuple[str, np.ndarray]]:
    return [(name, np.asarray(value)) for name, value in saved.items()]


def _record(stamp: Stamp, answer: Answer) -> bytes:
    content: Saved = {"question": answer.question, "frames": pack_frames(answer.frames), "state": pack(answer.saved)}
    if answer.grown:
        content |= {"begin": answer.begin, "draws": pack(dict(answer.grown))}
    body = stamp.pack() + pack(content)
    return RECORD.pack(len(body), hashlib.blake2b(body, digest_size=DIGEST).digest()) + body


def _answer(body: bytes) -> Answer:
    content: dict[str, Any] = unpack(body)
    grown = unpack(content["draws"]) if "draws" in content else {}
    return Answer(
        content["question"], unpack_frames(content["frames"]), unpack(content["state"]), int(content.get("begin", 0)), grown
    )
