"""Sends and receives bytes between the ranks of a communicator. Nothing here ever blocks, so that silence can be noticed.

Every message travels by an upper-case buffer call on a duplicated communicator, with a tag of `tags`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol

from mpi4py import MPI

from .._core.wire import room
from ..algorithms.core.messages import RemoteFault
from . import tags
from .codec import Frame
from .driver import Hooks, Signals
from .patience import Bell, Patience

CONTROL = 1 << 20  # longest control message, bytes
DRAINED = 1 << 26  # longest frame that is still taken when a job ends
OPEN = 64  # messages that may be on their way before it is asked which have left


class Link:
    """Sends and receives the messages of one rank.

    Ranks in `gone` are known to be dead: nothing is sent to them or expected from them.
    """

    def __init__(self, comm: MPI.Intracomm, spin: float = 1e-3) -> None:
        self.comm, self.patience = comm, Patience(spin)
        self.rank, self.size = comm.rank, comm.size
        self.run = 0
        self.gone: set[int] = set()
        self.near: frozenset[int] = frozenset()  # ranks that can be woken
        self.clock = [time.monotonic()] * self.size  # when each rank was last spoken to or heard
        self._sending: list[tuple[int, MPI.Request, Frame]] = []  # rank, request, content: kept until it has left
        self._status = MPI.Status()

    def wake(self, job: str, near: Iterable[int]) -> bool:
        """Lets this rank be woken, and wakes the ranks `near` that may be asleep.

        Returns False where the machine does not allow it.
        """
        with suppress(OSError):
            self.patience.bell, self.near = Bell(job, self.rank), frozenset(near)
        return self.patience.bell is not None

    def send(self, rank: int, tag: int, data: Frame = b"") -> None:
        """Starts a message; it leaves while this rank goes on."""
        if rank in self.gone:
            return
        number = tag + tags.RUN * self.run if tag == tags.FRAME else tag
        try:
            # Whether it has left is asked when there is nothing else to do: to ask may give the core away.
            self._sending.append((rank, self.comm.Isend([data, MPI.BYTE], rank, number), data))
            if len(self._sending) > OPEN:
                self._progress()
        except MPI.Exception as error:
            self._notice(error)
        if tag == tags.PING:
            return
        before, self.clock[rank] = self.clock[rank], self.patience.reset()
        if rank in self.near and self.patience.bell and self.patience.since - before > self.patience.spin / 2:
            self.patience.bell.ring(rank)

    def receive(self, longest: int, only: int | None = None) -> tuple[int, int, Frame] | None:
        """Returns the next message (rank, tag, content), or None if none has come.

        Frames longer than `longest` are refused unread.
        """
        status = self._status
        try:
            if not self.comm.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG if only is None else only, status):
                if self._sending:
                    self._progress()
                return None
            source, number, size = status.Get_source(), status.Get_tag(), status.Get_count(MPI.BYTE)
            tag = number % tags.RUN
            allowed = longest if tag == tags.FRAME else CONTROL
            if size > allowed:
                raise RemoteFault(f"rank {source}: a message of {size} bytes, at most {allowed} expected")
            data = room(size)  # all of it is received, or the frame refused
            request = self.comm.Irecv([data, MPI.BYTE], source, number)
            if not request.Test():
                wait = Patience(self.patience.spin)
                while not request.Test():
                    wait.pause()
        except MPI.Exception as error:
            self._notice(error)
            return None
        self.clock[source] = self.patience.reset()
        if tag == tags.FRAME and number // tags.RUN != self.run:
            return self.receive(longest, only)  # late, for a protocol that has ended
        return source, tag, data

    def drain(self) -> None:
        """Takes and drops the messages that others sent before they ended.

        A long message leaves its sender only when it is taken.
        """
        while self.receive(DRAINED) is not None:
            pass

    def flush(self, seconds: float) -> bool:
        """Waits until every message has left; returns False if that takes longer than `seconds`."""
        wait = Patience(self.patience.spin)
        while self._progress():
            if wait.waited > seconds:
                return False
            wait.pause()
        return True

    def _progress(self) -> bool:
        """Forgets the messages that have left; returns whether some have not."""
        left = []
        for item in self._sending:
            try:
                if item[0] not in self.gone and not item[1].Test():
                    left.append(item)
            except MPI.Exception as error:
                self._notice(error)
        self._sending = left
        return bool(left)

    def _notice(self, error: MPI.Exception) -> None:
        """Records a peer's death, where the MPI library tells of it (`mpirun --with-ft ulfm`), and raises any other error."""
        if error.Get_error_class() not in (MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING):
            raise error
        self.comm.Ack_failed()
        failed = self.comm.Get_failed()
        self.gone |= set(MPI.Group.Translate_ranks(failed, list(range(failed.size)), self.comm.group))


class Peers(Protocol):
    """Lists the attributes of `mpi.Ranks` that a job without a server needs."""

    link: Link
    rank: int
    size: int
    is_server: bool
    signals: Signals
    hooks: Hooks | None
    idle: frozenset[int]

    def home(self, client: int) -> int: ...

    def attend(self) -> None: ...

    def next(self, longest: int, *wanted: int) -> tuple[int, int, Frame] | None: ...

    def exchange(self, what: str, mine: bytes, answer: Callable[[list[bytes]], list[bytes]]) -> bytes: ...

    def tell(self, what: str, tag: int, data: bytes) -> None: ...

    def check(self, rank: int) -> None: ...

    def others(self) -> list[int]: ...
