"""Holds what both ends of a relay have: the server's (`relay_hub`) and a site's (`relay_spoke`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from ..algorithms.core.messages import RemoteFault
from . import tags
from .link import CONTROL
from .patience import Patience


class Waiting(Patience):
    """Waits as its end of the relay does."""

    def __init__(self, wait: Callable[[], None]) -> None:
        super().__init__(0.0)
        self.wait = wait

    def pause(self) -> bool:
        """Waits for the other end, a fraction of a second."""
        self.wait()
        return True


class End:
    """Holds what both ends of a relay have."""

    def __init__(self, rank: int, size: int, wait: Callable[[], None]) -> None:
        self.rank, self.size, self.run = rank, size, 0
        self.over = -1  # the latest protocol, once its frames are late
        self.parted = -1  # the latest protocol whose end has travelled with its question
        self.patience: Patience = Waiting(wait)
        self.gone: set[int] = set()
        self.clock = [time.monotonic()] * size

    def wake(self, job: str, near: Iterable[int]) -> bool:
        """Returns False: the other end cannot be woken."""
        return False

    def is_due(self, sender: str, number: int, data: bytes, longest: int) -> bool:
        """Tells whether a message is not late, of a protocol that has ended; RemoteFault where it is too long."""
        tag, run = number % tags.RUN, number // tags.RUN
        if tag == tags.FRAME and (run != self.run or run == self.over):
            return False
        if len(data) > (allowed := longest if tag == tags.FRAME else CONTROL):
            raise RemoteFault(f"{sender}: a message of {len(data)} bytes, at most {allowed} expected")
        return True
