"""Allows one job a folder: the server's and every client's own are locked for as long as the run lasts.

The lock is the operating system's: it ends with the process, however that ends. The file `.lock` stays; it says who holds it.

A lock needs an open file. If a process has more than `MOST` folders, the later ones are held by its first: their `.lock` says so,
with a text that only that process has written into the first one's. Whoever wants such a folder looks whether that one is locked
and has this text. Each is looked at and written while it is locked itself, so that one of two processes comes first.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from ..errors import JobError
from ..ground import OPEN_FOLDER, OWN, Ground, on
from ..transports import parent
from .files import writing

NAME = ".lock"
PATIENCE = 1.0  # seconds in which a job that was killed may still be ending
BUSY = (errno.EAGAIN, errno.EACCES)
MOST = 64  # folders that a process holds by open files of their own
LONGEST = 8192  # of what a `.lock` says: two paths and a few words


class Locks:
    """Holds the folders that this process has locked."""

    def __init__(self) -> None:
        self._held: list[int] = []
        self._first, self._token = Path(), uuid4().hex

    def take(self, folder: Path, whose: str, ground: Ground | None = None) -> None:
        """Locks a folder, which is made if need be; JobError if another job has it. `ground`: below which it lies."""
        path, until = folder / NAME, time.monotonic() + PATIENCE
        with writing(path), on(ground, folder) as ground_of_lock:
            file = ground_of_lock.open(path, os.O_RDWR | os.O_CREAT, OWN, make=OPEN_FOLDER)
            with suppress(OSError):
                os.fchmod(file, OWN)  # whatever the umask
        self._held.append(file)
        while not self._taken(file, path):
            if time.monotonic() > until:
                raise JobError(
                    f"{folder}: another job is running in this folder, of {whose} ({_holder(file)}); wait until it has "
                    f"ended, or choose another --out{parent.beside_others()}"
                )
            time.sleep(0.02)
        holder = f"process {os.getpid()} on {socket.gethostname()}\n{self._token}\n"
        if len(self._held) == 1:
            self._first = folder.resolve()
        elif len(self._held) > MOST:
            holder += f"{os.path.relpath(self._first, folder.resolve())}\n"
        with writing(path):
            os.ftruncate(file, 0)
            os.pwrite(file, os.fsencode(holder), 0)
        if len(self._held) > MOST:
            os.close(self._held.pop())

    def _taken(self, file: int, path: Path) -> bool:
        """Tells whether a folder is this process's now; it stays unlocked where another job holds it by its first."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in BUSY:
                return False
            raise JobError(
                f"{path}: cannot be locked ({error.strerror}), and without it two jobs could spoil each other; choose "
                "--out on a disk that has locks"
            ) from None
        token, first = _by_first(file, path.parent)
        if first is None or token == self._token or not _locked(first / NAME, token):
            return True
        fcntl.flock(file, fcntl.LOCK_UN)
        return False

    def release(self) -> None:
        """Ends all locks of this object."""
        for file in reversed(self._held):  # the first one last: others may be held by it
            os.close(file)
        self._held.clear()


def running(folder: Path) -> bool:
    """Tells whether a job has a folder locked now; nothing is changed."""
    if _locked(folder / NAME):
        return True
    try:
        file = os.open(folder / NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        token, first = _by_first(file, folder)
    finally:
        os.close(file)
    return first is not None and _locked(first / NAME, token)


def _locked(path: Path, token: str = "") -> bool:
    """Tells whether somebody has locked a file, whose second line is `token` if one is given."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except OSError as error:
        return error.errno in BUSY and (not token or token == _said(file)[1])
    finally:
        os.close(file)


def _by_first(file: int, folder: Path) -> tuple[str, Path | None]:
    """Returns the text that stands in both locks, and the other folder of its process by which this one is held, if it is."""
    _, token, first = _said(file)
    return token, folder.resolve() / first if token and first else None


@contextmanager
def one_job(folder: Path, whose: str, ground: Ground | None = None) -> Iterator[None]:
    """Keeps a folder locked inside. `ground`: below which it lies."""
    locks = Locks()
    try:
        locks.take(folder, whose, ground)
        yield
    finally:
        locks.release()


def _said(file: int) -> tuple[str, str, str]:
    """Returns the process, its text, and the folder by which it holds this one, as far as the file has them."""
    lines = os.fsdecode(os.pread(file, LONGEST, 0)).split("\n", 2)
    process, token, first = (*lines, "", "", "")[:3]
    return process, token, first.rstrip("\n")


def _holder(file: int) -> str:
    return _said(file)[0].strip() or "it does not say which"
