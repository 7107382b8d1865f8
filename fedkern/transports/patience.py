"""Waiting without using a core, and being woken."""

from __future__ import annotations

import os
import select
import socket
import time
from contextlib import suppress


class Bell:
    """Wakes ranks of the same host from their sleep: a datagram socket without a file for each.

    It is a help, not a need: who is not woken looks by itself after some milliseconds. A ring says nothing but itself.
    """

    def __init__(self, job: str, rank: int) -> None:
        self.job = job
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(self._name(rank))

    def ring(self, rank: int) -> None:
        with suppress(OSError):  # it has ended, or has been rung often enough
            self._socket.sendto(b"!", self._name(rank))

    def wait(self, seconds: float) -> bool:
        """Whether somebody rings within this time."""
        if not select.select([self._socket], [], [], seconds)[0]:
            return False
        with suppress(OSError):
            while True:
                self._socket.recv(1)
        return True

    def close(self) -> None:
        self._socket.close()

    def _name(self, rank: int) -> bytes:
        return f"\0fedkern-{self.job}-{rank}".encode()


class Patience:
    """How to wait: look again and again for `spin` seconds, then sleep for an eighth of the time waited so far, or for half of it
    where there is a bell: who is rung for may sleep long, and every look costs.

    A sleep is at most `longest`; a ring ends it, and looking begins anew.
    """

    LOOKS = 16  # between two offers of the core to others (Open MPI makes its own where ranks outnumber cores)

    def __init__(self, spin: float) -> None:
        self.spin, self.longest, self.since, self.looks = spin, 2e-3, time.monotonic(), 0
        self.bell: Bell | None = None

    def reset(self) -> float:
        """Waiting begins now."""
        self.since, self.looks = time.monotonic(), 0
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
            seconds = min(waited / (8 if self.bell is None else 2), self.longest)
            self.looks = -1  # after one look it sleeps again
            if self.bell is None:
                time.sleep(seconds)
            elif self.bell.wait(seconds):
                self.reset()
        return True
