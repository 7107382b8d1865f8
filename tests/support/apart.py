"""Calls in processes of their own, which may end as they like: by a signal, by a limit of memory, or never."""

from __future__ import annotations

import os
import select
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Ended:
    """How a call ended."""

    what: str  # that it was
    how: str  # "returned VALUE", "raised ERROR: words", "signal 6", or "hung"

    @property
    def well(self) -> bool:
        return self.how.startswith(("returned", "raised"))


Call = tuple[str, Callable[[], Any]]  # what it is, and the call


def fork() -> int:
    """As `os.fork`, for a child that ends by `os._exit` and does not use JAX.

    JAX warns of every fork of a process that has loaded it, as one that has run its oracles has."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
        return os.fork()


def each_apart(calls: Sequence[Call], seconds: float, before: Callable[[], None] = lambda: None) -> Iterator[Ended]:
    """Makes the calls one after the other in a forked process; after one that ends it or takes longer, in another. `seconds`:
    that one call may take; `before`: done first by each process."""
    at = 0
    while at < len(calls):
        read, write = os.pipe()
        pid = fork()
        if pid == 0:
            os.close(read)
            _work(calls, at, write, before)
        os.close(write)
        try:
            for how in _lines(read, seconds):
                yield Ended(calls[at][0], how)
                at += 1
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            yield Ended(calls[at][0], "hung")
            at += 1
            os.waitpid(pid, 0)
            continue
        finally:
            os.close(read)
        _, status = os.waitpid(pid, 0)
        if at < len(calls):
            yield Ended(calls[at][0], f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit {status >> 8}")
            at += 1


def _work(calls: Sequence[Call], at: int, write: int, before: Callable[[], None]) -> None:
    """In the child: a line for each call, and no way back."""
    try:
        before()
        for _, call in calls[at:]:
            try:
                how = f"returned {call()}"
            except Exception as error:  # of any kind: it is the caller who judges
                how = f"raised {type(error).__name__}: {error}"
            os.write(write, how.replace("\n", " ")[:1000].encode() + b"\n")
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def _lines(read: int, seconds: float) -> Iterator[str]:
    """The lines as they come; TimeoutError where the next takes longer."""
    rest = b""
    end = time.monotonic() + seconds
    while True:
        ready, _, _ = select.select([read], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            raise TimeoutError
        more = os.read(read, 1 << 16)
        if not more:
            return
        *lines, rest = (rest + more).split(b"\n")
        for line in lines:
            yield line.decode()
        if lines:
            end = time.monotonic() + seconds


def threads() -> int:
    """How many this process has."""
    return len(os.listdir("/proc/self/task"))


def address_space() -> int:
    """Bytes of this process's."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
