"""Keeps draws of a sampler beside its checkpoints: in a file that only grows; a checkpoint holds its length and digest.

All draws in every checkpoint would be n^2 bytes. So each checkpoint appends those since the one before to `PROTOCOL-NUMBER.draws`
(the number of the checkpoint that began it), and they are on the disk before the checkpoint is. A crash in between leaves a tail
that no checkpoint knows: it is cut off when the run goes on. A sampler that has forgotten its draws begins a new file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..algorithms.core.messages import Saved
from ..algorithms.core.trace import Grown
from ..ground import OWN, OWN_FOLDER, Ground
from ..transports.codec import pack, unpack
from .files import remove_old, writing

LENGTH = struct.Struct("<Q")  # bytes of a block, which `pack` has made of the new rows of all arrays
SIZE = 32


class Reference(NamedTuple):
    """Refers from a checkpoint to its draws."""

    number: int  # the checkpoint with which the file began
    # length, digest: bytes of the file that belong to the checkpoint, and their BLAKE2b, as hexadecimal digits
    length: int
    digest: str

    def pack(self) -> bytes:
        """Returns the reference as a checkpoint holds it."""
        return json.dumps(self).encode()

    @classmethod
    def read(cls, text: bytes) -> Reference:
        """Reads a reference that `pack` made; ValueError."""
        try:
            number, length, digest = json.loads(text)
            return cls(int(number), int(length), str(digest))
        except TypeError as error:
            raise ValueError(f"no reference to draws ({error})") from None


class Draws:
    """Keeps the draws of one party in one protocol.

    Parameters
    ----------
    folder : the folder of the party's checkpoints
    protocol : its name
    ground : below which the folder lies, if that is not itself one
    """

    def __init__(self, folder: Path, protocol: str, ground: Ground | None = None) -> None:
        self.folder, self.protocol, self.ground = folder, protocol, ground or Ground(folder)
        self._number, self._length, self._state = 0, 0, hashlib.blake2b(digest_size=SIZE)
        self._epoch, self._rows = -1, 0  # of the sampler's draws, as far as the file has them
        self._began: dict[int, int] = {}  # checkpoint -> the one that began its file

    def appended(self, number: int, saved: Saved) -> tuple[Saved, Reference | None]:
        """Writes a state's draws to the disk; returns the state without them, and where they are (None without draws)."""
        grown = {name: value for name, value in saved.items() if isinstance(value, Grown)}
        if not grown:
            return saved, None
        ((epoch, rows),) = {(value.epoch, len(value)) for value in grown.values()}
        new = epoch != self._epoch or rows < self._rows
        if new:
            self._number, self._length, self._state, self._rows = number, 0, hashlib.blake2b(digest_size=SIZE), 0
        path = self._path(self._number)
        with writing(path):
            flags = os.O_RDWR | os.O_CREAT | (os.O_TRUNC if new else 0)
            file = self.ground.open(path, flags, OWN, make=OWN_FOLDER)
            try:
                # A tail from before a crash belongs to no checkpoint.
                os.ftruncate(file, self._length)
                if rows > self._rows:
                    block = pack({name: np.asarray(value[self._rows :]) for name, value in grown.items()})
                    self._write(file, LENGTH.pack(len(block)) + block)
                # The draws are on the disk before the checkpoint that refers to them.
                os.fsync(file)
            finally:
                os.close(file)
            if new:
                self.ground.sync(path.parent)
        self._epoch, self._rows = epoch, rows
        self._began[number] = self._number
        rest = {name: value for name, value in saved.items() if name not in grown}
        return rest, Reference(self._number, self._length, self._state.hexdigest())

    def restored(self, number: int, reference: Reference) -> Saved:
        """Returns the draws of a checkpoint, from which the run goes on: later ones are cut off."""
        saved, self._state = self._read(reference)
        self._number, self._length = reference.number, reference.length
        self._epoch, self._rows = 0, max((len(np.asarray(value)) for value in saved.values()), default=0)
        self._began = {number: reference.number}
        return saved

    def check(self, reference: Reference) -> None:
        """Checks that the draws of a checkpoint are on the disk (ValueError)."""
        self._read(reference)

    def clean(self, numbers: Collection[int]) -> None:
        """Removes files that none of these checkpoints refers to."""
        needed = {self._began.get(number, -1) for number in numbers}
        if -1 in needed:  # of a start before: it is not known which
            return
        for path in self.folder.glob(f"{self.protocol}-*.draws"):
            match = re.fullmatch(re.escape(self.protocol) + r"-(\d+)\.draws", path.name)
            if match and int(match[1]) not in needed:
                remove_old(path, self.ground)

    def _write(self, file: int, data: bytes) -> None:
        position, view = self._length, memoryview(data)
        while view:
            done = os.pwrite(file, view, position)
            view, position = view[done:], position + done
        self._state.update(data)
        self._length += len(data)

    def _read(self, reference: Reference) -> tuple[Saved, Any]:
        """Returns the arrays of a file's first bytes, and the state of their hash."""
        path, state = self._path(reference.number), hashlib.blake2b(digest_size=SIZE)
        try:
            with path.open("rb") as file:
                data = file.read(reference.length)
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {error.strerror}") from None
        state.update(data)
        if len(data) < reference.length or state.hexdigest() != reference.digest:
            raise ValueError(f"{path} was cut short or altered")
        parts: dict[str, list[Any]] = {}
        position = 0
        while position < len(data):
            (length,) = LENGTH.unpack_from(data, position)
            for name, rows in unpack(data[position + LENGTH.size : position + LENGTH.size + length]).items():
                parts.setdefault(name, []).append(rows)
            position += LENGTH.size + length
        return {name: np.concatenate(rows) for name, rows in parts.items()}, state

    def _path(self, number: int) -> Path:
        return self.folder / f"{self.protocol}-{number:06d}.draws"
