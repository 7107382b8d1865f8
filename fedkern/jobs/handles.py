"""Keeps files of logs open: at most `MOST` at a time in a process, however many clients it has.

A log is written in short pieces. Where a process has more logs than open files, the one that was opened first is closed, and
opened again when it is written to. It must be the same file then; otherwise it counts as deleted.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

from .._core import files
from ..ground import OPEN, OPEN_FOLDER, Ground

MOST = 128


class Handle:
    """Holds a file that is open whenever `file` is asked for.

    Parameters
    ----------
    path, flags : as `os.open` takes them
    ground : below which the file lies
    mode, folders : the permissions of a file that the flags make, and of folders on the way to it
    """

    __slots__ = ("_file", "_flags", "_ground", "_same", "path")
    _open: ClassVar[dict[Handle, None]] = {}  # in the order in which they were opened

    def __init__(self, path: Path, flags: int, ground: Ground, mode: int = OPEN, folders: int = OPEN_FOLDER) -> None:
        self.path, self._flags, self._ground = path, flags & ~(os.O_CREAT | os.O_TRUNC), ground
        self._file: int | None = self._taken_in(ground.open(path, flags, mode, make=folders))
        state = os.fstat(self._file)
        self._same = state.st_dev, state.st_ino

    @property
    def file(self) -> int:
        """The number of the open file. Raises FileNotFoundError: it was deleted, or replaced."""
        return self._again() if self._file is None else self._file

    def append(self, data: bytes) -> None:
        """Writes all of it, at the end where the flags say so. Raises OSError: it does not fit; FileNotFoundError where the file
        was deleted or replaced."""
        files.append(self.file, data)

    def close(self) -> None:
        """Closes the file, for good or until it is needed again."""
        if self._file is not None:
            file, self._file = self._file, None
            del Handle._open[self]
            os.close(file)

    def _again(self) -> int:
        file = self._ground.open(self.path, self._flags)
        state = os.fstat(file)
        if (state.st_dev, state.st_ino) != self._same:
            os.close(file)
            raise FileNotFoundError(f"{self.path} is another file")
        self._file = self._taken_in(file)
        return file

    def _taken_in(self, file: int) -> int:
        if len(Handle._open) >= MOST:
            next(iter(Handle._open)).close()
        Handle._open[self] = None
        return file
