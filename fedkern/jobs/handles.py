"""Open files of logs: at most `MOST` at a time in a process, however many clients it has.

A log is written in short pieces. Where there are more of them than open files, the one that was opened first is closed, and
opened again when it is written to: the same file then, or it is as if it had been deleted.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

from .._core import files

MOST = 128


class Handle:
    """A file that is open whenever `file` is asked for.

    Parameters
    ----------
    path, flags : as `os.open` takes them
    mode : of one that the flags make
    """

    __slots__ = ("_file", "_flags", "_same", "path")
    _open: ClassVar[dict[Handle, None]] = {}  # in the order in which they were opened

    def __init__(self, path: Path, flags: int, mode: int = 0o666) -> None:
        self.path, self._flags = path, (flags | os.O_CLOEXEC) & ~(os.O_CREAT | os.O_TRUNC)
        self._file: int | None = self._taken_in(os.open(path, flags | os.O_CLOEXEC, mode))
        state = os.fstat(self._file)
        self._same = state.st_dev, state.st_ino

    @property
    def file(self) -> int:
        """Its number.

        Raises
        ------
        FileNotFoundError
            It was deleted, or replaced.
        """
        return self._again() if self._file is None else self._file

    def append(self, data: bytes) -> None:
        """Writes all of it, at the end where the flags say so.

        Raises
        ------
        OSError
            It does not fit; FileNotFoundError where the file was deleted or replaced.
        """
        files.append(self.file, data)

    def close(self) -> None:
        """For good, or until it is needed again."""
        if self._file is not None:
            file, self._file = self._file, None
            del Handle._open[self]
            os.close(file)

    def _again(self) -> int:
        file = os.open(self.path, self._flags)
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
