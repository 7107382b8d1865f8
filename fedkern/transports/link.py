"""Frames between the ranks of a communicator: nothing here ever blocks, so that silence can be noticed.

Every message travels by an upper-case buffer call on a duplicated communicator, with one of the tags below.
"""

from __future__ import annotations

import os
import time
from enum import IntEnum
from typing import Any

from mpi4py import MPI

from ..algorithms.messages import RemoteFault


class Tag(IntEnum):
    """What a message is. The number of the protocol run is added as a multiple of 16, so that nothing stale is taken for news."""

    FRAME = 1  # a frame of the codec, between the server and a client
    END = 2  # server to ranks: this protocol has finished
    PING = 3  # server to ranks: still here
    STOP = 4  # rank to server: a signal asks us to stop
    GATHER = 5  # rank to server: a few fixed bytes
    SPREAD = 6  # the server's reply to them
    FAULT = 7  # rank to server: exit code and text
    BYE = 8  # rank to server: exit code; nothing more will come
    EXIT = 9  # server to ranks: all end now, with this code


RUN = 16
CONTROL = 1 << 16  # longest control message, bytes


class Patience:
    """How to wait: yield the core for `spin` seconds, then sleep for an eighth of the time already waited, at most 10 ms.

    So a wait is at most an eighth too long, and an idle rank uses some thousandths of a core.
    """

    def __init__(self, spin: float) -> None:
        self.spin, self.since = spin, time.monotonic()

    def reset(self) -> None:
        self.since = time.monotonic()

    @property
    def waited(self) -> float:
        return time.monotonic() - self.since

    def pause(self) -> None:
        waited = self.waited
        if waited < self.spin:
            os.sched_yield()
        else:
            time.sleep(min(waited / 8, 0.01))


class Link:
    """The wire of one rank. `gone` are ranks whose death was noticed; nothing is sent to them, nothing expected from them."""

    def __init__(self, comm: Any, spin: float = 2e-4) -> None:
        self.comm, self.patience = comm, Patience(spin)
        self.rank, self.size = comm.rank, comm.size
        self.run = 0
        self.gone: set[int] = set()
        self._sending: list[tuple[Any, bytes]] = []
        self._status = MPI.Status()

    def send(self, rank: int, tag: Tag, data: bytes = b"") -> None:
        """Starts a message; `data` is kept until it has left."""
        if self._sending:
            self._sending = [item for item in self._sending if not item[0].Test()]
        if rank not in self.gone:
            try:
                self._sending.append((self.comm.Isend([data, MPI.BYTE], rank, tag + RUN * self.run), data))
            except MPI.Exception as error:
                self._notice(error)

    def receive(self, longest: int) -> tuple[int, Tag, bytearray] | None:
        """The next message (rank, tag, content), or None if there is none now. Longer ones than `longest` are refused unread."""
        status = self._status
        try:
            if not self.comm.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG, status):
                return None
            source, tag, size = status.Get_source(), status.Get_tag(), status.Get_count(MPI.BYTE)
            if not 0 <= size <= (longest if tag % RUN == Tag.FRAME else CONTROL):
                raise RemoteFault(f"rank {source}: a message of {size} bytes, at most {longest} expected")
            data = bytearray(size)
            request = self.comm.Irecv([data, MPI.BYTE], source, tag)
            wait = Patience(self.patience.spin)
            while not request.Test():
                wait.pause()
        except MPI.Exception as error:
            self._notice(error)
            return None
        self.patience.reset()
        if tag % RUN == Tag.FRAME and tag // RUN != self.run:
            return self.receive(longest)  # late, for a protocol that has ended
        return source, Tag(tag % RUN), data

    def flush(self, seconds: float) -> bool:
        """Waits until everything has left; False if it has not within this time."""
        wait = Patience(self.patience.spin)
        while self._sending:
            self._sending = [item for item in self._sending if not item[0].Test()]
            if wait.waited > seconds:
                return False
            wait.pause()
        return True

    def _notice(self, error: Any) -> None:
        """A peer's death, where the MPI library tells (`mpirun --with-ft ulfm`); any other error goes on up."""
        if error.Get_error_class() not in (MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING):
            raise error
        self.comm.Ack_failed()
        failed = self.comm.Get_failed()
        self.gone |= set(MPI.Group.Translate_ranks(failed, list(range(failed.size)), self.comm.group))
