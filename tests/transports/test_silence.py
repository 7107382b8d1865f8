"""Who counts as silent while all tell rank 0 something: nobody whose message lies unread, and nobody who was not listened to."""

from __future__ import annotations

import time
from collections import deque

import pytest

from fedkern.errors import LostPeer
from fedkern.transports import tags
from fedkern.transports.driver import Timeouts
from fedkern.transports.link import Patience
from fedkern.transports.ranks import Ranks


class Lying:
    """A link of rank 0 on which messages lie, and which nobody has looked at for long."""

    def __init__(self, size: int, messages: list[tuple[int, int, bytes]], unheard: float) -> None:
        self.rank, self.size, self.run, self.patience = 0, size, 0, Patience(0.0)
        self.gone: set[int] = set()
        self.clock = [time.monotonic() - unheard] * size
        self.messages, self.sent = deque(messages), list[tuple[int, int]]()

    def wake(self, job: str, near: object) -> bool:
        return False

    def send(self, rank: int, tag: int, data: bytes = b"") -> None:
        self.sent.append((rank, tag))

    def receive(self, longest: int, only: int | None = None) -> tuple[int, int, bytes] | None:
        if not self.messages:
            return None
        rank, tag, data = self.messages.popleft()
        self.clock[rank] = time.monotonic()
        return rank, tag, data

    def drain(self) -> None: ...

    def flush(self, seconds: float) -> bool:
        return True

    def abort(self, code: int) -> None: ...


def test_a_rank_whose_message_lies_unread_is_not_lost() -> None:
    """Rank 0 has computed for an hour, and takes one message at a time."""
    link = Lying(4, [(rank, tags.GATHER, b"%d" % rank) for rank in (2, 1, 3)], unheard=3600.0)
    assert Ranks(link, Timeouts(lost=600.0)).settle(b"0", b"".join) == b"0123"
    assert link.sent == [(rank, tags.SPREAD) for rank in (1, 2, 3)]


def test_a_rank_is_lost_by_the_time_that_rank_0_has_listened() -> None:
    link = Lying(3, [(1, tags.GATHER, b"1")], unheard=3600.0)
    began = time.monotonic()
    with pytest.raises(LostPeer, match="rank 2 has been silent for 0 s"):
        Ranks(link, Timeouts(lost=0.3)).settle(b"0", b"".join)
    assert time.monotonic() - began >= 0.3
