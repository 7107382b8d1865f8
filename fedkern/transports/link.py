"""Frames between the ranks of a communicator: nothing here ever blocks, so that silence can be noticed.

Every message travels by an upper-case buffer call on a duplicated communicator, with a tag of `tags`.
"""

from __future__ import annotations

import os
import time
from typing import Any

from mpi4py import MPI

from ..algorithms.messages import RemoteFault
from . import tags
from .codec import Frame

CONTROL = 1 << 20  # longest control message, bytes
DRAINED = 1 << 26  # longest frame that is still taken when a job ends


class Patience:
    """How to wait: look again and again for `spin` seconds, then sleep for an eighth of the time already waited, at most 10 ms.

    So a wait is at most an eighth too long, and an idle rank uses some thousandths of a core.
    """

    LOOKS = 16  # between two offers of the core to others (Open MPI makes its own where ranks outnumber cores)

    def __init__(self, spin: float) -> None:
        self.spin, self.since, self.looks = spin, time.monotonic(), 0

    def reset(self) -> float:
        """Waiting begins now."""
        self.since = time.monotonic()
        return self.since

    @property
    def waited(self) -> float:
        return time.monotonic() - self.since

    def pause(self) -> bool:
        """Between two looks; True when time has passed."""
        self.looks += 1
        if self.looks % self.LOOKS:
            return False
        waited = self.waited
        if waited < self.spin:
            os.sched_yield()
        else:
            self.looks = -1  # the next look is followed by a longer sleep
            time.sleep(min(waited / 8, 0.01))
        return True


class Link:
    """The wire of one rank. `gone` are ranks whose death was noticed; nothing is sent to them, nothing expected from them."""

    def __init__(self, comm: Any, spin: float = 2e-4) -> None:
        self.comm, self.patience = comm, Patience(spin)
        self.rank, self.size = comm.rank, comm.size
        self.run = 0
        self.gone: set[int] = set()
        self._sending: list[tuple[int, Any, Any]] = []  # rank, request, content: kept until it has left
        self._status = MPI.Status()

    def send(self, rank: int, tag: int, data: Frame = b"") -> None:
        """Starts a message; it leaves while this rank goes on."""
        if rank in self.gone:
            return
        number = tag + tags.RUN * self.run if tag == tags.FRAME else tag
        try:
            request = self.comm.Isend([data, MPI.BYTE], rank, number)
            if self._sending or not request.Test():
                self._sending.append((rank, request, data))
                self._progress()
        except MPI.Exception as error:
            self._notice(error)

    def receive(self, longest: int, only: int | None = None) -> tuple[int, int, bytearray] | None:
        """The next message (rank, tag, content), or None if there is none. Frames longer than `longest` are refused unread."""
        status = self._status
        try:
            if not self.comm.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG if only is None else only, status):
                return None
            source, number, size = status.Get_source(), status.Get_tag(), status.Get_count(MPI.BYTE)
            tag = number % tags.RUN
            allowed = longest if tag == tags.FRAME else CONTROL
            if size > allowed:
                raise RemoteFault(f"rank {source}: a message of {size} bytes, at most {allowed} expected")
            data = bytearray(size)
            request = self.comm.Irecv([data, MPI.BYTE], source, number)
            if not request.Test():
                wait = Patience(self.patience.spin)
                while not request.Test():
                    wait.pause()
        except MPI.Exception as error:
            self._notice(error)
            return None
        if tag == tags.FRAME and number // tags.RUN != self.run:
            return self.receive(longest, only)  # late, for a protocol that has ended
        return source, tag, data

    def drain(self) -> None:
        """Takes and drops what others sent before they ended: a long message leaves its sender only when it is taken."""
        while self.receive(DRAINED) is not None:
            pass

    def flush(self, seconds: float) -> bool:
        """Waits until everything has left; False if it has not within this time."""
        wait = Patience(self.patience.spin)
        while self._progress():
            if wait.waited > seconds:
                return False
            wait.pause()
        return True

    def _progress(self) -> bool:
        """Forgets what has left; whether something has not."""
        left = []
        for item in self._sending:
            try:
                if item[0] not in self.gone and not item[1].Test():
                    left.append(item)
            except MPI.Exception as error:
                self._notice(error)
        self._sending = left
        return bool(left)

    def _notice(self, error: Any) -> None:
        """A peer's death, where the MPI library tells (`mpirun --with-ft ulfm`); any other error goes on up."""
        if error.Get_error_class() not in (MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING):
            raise error
        self.comm.Ack_failed()
        failed = self.comm.Get_failed()
        self.gone |= set(MPI.Group.Translate_ranks(failed, list(range(failed.size)), self.comm.group))
