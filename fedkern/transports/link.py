"""Describes how bytes travel between the ranks of a job: `mpi.MpiLink` and `relay` do it, and wait without using a core.

Nothing here blocks for long, so that silence can be noticed.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol

from .codec import Frame

# Offers the core to others; the shortest sleep does it where Python has no such call.
YIELD = getattr(os, "sched_yield", lambda: time.sleep(0))
CONTROL = 1 << 20  # longest control message, bytes
DRAINED = 1 << 26  # longest frame that is still taken when a job ends


class Bell:
    """Wakes ranks of the same host from their sleep, by a datagram socket without a file for each.

    It is a help, not a need: a rank that is not woken looks by itself after some milliseconds. A ring carries no information.
    OSError where the system has no such sockets.
    """

    def __init__(self, job: str, rank: int) -> None:
        self.job = job
        if sys.platform != "linux":  # no other system has sockets without a file
            raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(self._name(rank))

    def ring(self, rank: int) -> None:
        """Wakes a rank."""
        with suppress(OSError):  # it has ended, or has been rung often enough
            self._socket.sendto(b"!", self._name(rank))

    def wait(self, seconds: float) -> bool:
        """Waits for a ring; returns whether one came within this time."""
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
    """Waits: looks again and again for `spin` seconds, then sleeps between two looks.

    A sleep lasts an eighth of the time waited so far, or half of it with a bell: a rank that is rung for may sleep long, and
    every look costs. A sleep is at most `longest`; a ring ends it, and looking begins anew.
    """

    LOOKS = 16  # between two offers of the core to others (Open MPI makes its own where ranks outnumber cores)

    def __init__(self, spin: float) -> None:
        self.spin, self.longest, self.since, self.looks = spin, 2e-3, time.monotonic(), 0
        self.bell: Bell | None = None

    def reset(self) -> float:
        """Begins to wait now; returns the time."""
        self.since, self.looks = time.monotonic(), 0
        return self.since

    @property
    def waited(self) -> float:
        """The seconds waited so far."""
        return time.monotonic() - self.since

    def pause(self) -> bool:
        """Spins or sleeps between two looks; returns True when time has passed."""
        self.looks += 1
        if self.looks % self.LOOKS:
            return False
        waited = self.waited
        if waited < self.spin:
            YIELD()
        else:
            share = 8 if self.bell is None else 2
            seconds = min(waited / share, self.longest)
            self.looks = -1  # after one look it sleeps again
            if self.bell is None:
                time.sleep(seconds)
            elif self.bell.wait(seconds):
                self.reset()
        return True


class Link(Protocol):
    """Sends and receives the messages of one rank."""

    # rank, size: its number, the number of ranks
    rank: int
    size: int
    patience: Patience  # how it waits between two looks
    run: int  # the number of the protocol that runs; frames of an earlier one are dropped
    gone: set[int]  # ranks that are known to be dead: nothing is sent to them or expected from them
    clock: list[float]  # when each rank was last spoken to or heard

    def wake(self, job: str, near: Iterable[int]) -> bool:
        """Lets this rank be woken, and wakes the ranks `near` that may be asleep; returns False where that is not possible."""

    def send(self, rank: int, tag: int, data: Frame = b"") -> None:
        """Starts a message; it leaves while this rank goes on."""

    def receive(self, longest: int, only: int | None = None) -> tuple[int, int, Frame] | None:
        """Returns the next message (rank, tag, content), or None if none has come.

        Frames longer than `longest` are refused unread.
        """

    def drain(self) -> None:
        """Takes and drops the messages that others sent before they ended."""

    def flush(self, seconds: float) -> bool:
        """Waits until every message has left; returns False if that takes longer than `seconds`."""

    def abort(self, code: int) -> None:
        """Ends all ranks at once, as far as the link can."""
