"""One job a folder: the server's and every client's own are locked for as long as the run lasts.

The lock is the operating system's: it ends with the process, however that ends. The file `.lock` stays; it says who holds it.
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

from ..errors import JobError
from .files import writing

NAME = ".lock"
PATIENCE = 1.0  # seconds in which a job that was killed may still be ending
BUSY = (errno.EAGAIN, errno.EACCES)


class Locks:
    """The folders that this process has locked."""

    def __init__(self) -> None:
        self._held: list[int] = []

    def take(self, folder: Path, whose: str) -> None:
        """Locks a folder, which is made if need be; JobError if another job has it."""
        path, until = folder / NAME, time.monotonic() + PATIENCE
        with writing(path):
            folder.mkdir(parents=True, exist_ok=True)
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            with suppress(OSError):
                os.fchmod(file, 0o600)  # whatever the umask
        self._held.append(file)
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if error.errno not in BUSY:
                    raise JobError(
                        f"{path}: cannot be locked ({error.strerror}), and without it two jobs could spoil each other; choose "
                        "--out on a disk that has locks"
                    ) from None
                if time.monotonic() > until:
                    raise JobError(
                        f"{folder}: another job is running in this folder, of {whose} ({_holder(file)}); wait until it has "
                        "ended, or choose another --out"
                    ) from None
                time.sleep(0.02)
        with writing(path):
            os.ftruncate(file, 0)
            os.pwrite(file, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)

    def release(self) -> None:
        """Ends all of them."""
        for file in self._held:
            os.close(file)
        self._held.clear()


def running(folder: Path) -> bool:
    """Whether a job has a folder locked now; nothing is changed."""
    try:
        file = os.open(folder / NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except OSError as error:
        return error.errno in BUSY
    finally:
        os.close(file)


@contextmanager
def one_job(folder: Path, whose: str) -> Iterator[None]:
    """With a folder locked."""
    locks = Locks()
    try:
        locks.take(folder, whose)
        yield
    finally:
        locks.release()


def _holder(file: int) -> str:
    return os.pread(file, 200, 0).decode(errors="replace").strip() or "it does not say which"
