"""Describes how bytes travel between the ranks of a job: `mpi.MpiLink` and `relay` do it.

Nothing here ever blocks, so that silence can be noticed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from .codec import Frame
from .patience import Patience

CONTROL = 1 << 20  # longest control message, bytes
DRAINED = 1 << 26  # longest frame that is still taken when a job ends


class Link(Protocol):
    """Sends and receives the messages of one rank.

    Attributes
    ----------
    rank, size : its number, the number of ranks
    patience : how it waits between two looks
    run : the number of the protocol that runs; frames of an earlier one are dropped
    gone : ranks that are known to be dead: nothing is sent to them or expected from them
    clock : when each rank was last spoken to or heard
    """

    rank: int
    size: int
    patience: Patience
    run: int
    gone: set[int]
    clock: list[float]

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
