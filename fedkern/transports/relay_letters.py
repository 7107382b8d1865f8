"""Defines the bytes of a relay, and what both of its ends have: the server's (`relay_hub`) and a site's (`relay_spoke`).

A request holds all that the hub has for the site, and a reply all that the site says until it waits again. Both name the run, the
site and the request, so that a reply that comes late, twice or from elsewhere is known for what it is.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ..algorithms.core.messages import RemoteFault
from . import tags
from .link import CONTROL, Patience

# magic, version, state of the site, number of the site, run, digest of the job, mark of the site's start, number of the request,
# items
ENVELOPE = struct.Struct("<4sHHI16s32s8sQI")
ITEM = struct.Struct("<IQ")  # tag with the number of its protocol, bytes
MAGIC, VERSION = b"fdrl", 2
# What a site does: it waits for the hub; it computes; it has left; it has lost the job; it refuses the job, by its one item;
# somebody there has to decide first, so the same request has to come again; its job has not begun.
WAITING, BUSY, ENDED, ANEW, REFUSED, ASIDE, UNBEGUN = range(7)
LONGEST_REASON = 1000  # bytes of a refusal's text
UNMARKED = bytes(8)
MOST_ITEMS = 1 << 16  # of a letter: each costs memory beyond its bytes

Item = tuple[int, bytes]  # tag with the number of its protocol, content


class Letter(NamedTuple):
    """Holds the content of a request or a reply."""

    state: int  # of the site, in a reply
    job: bytes  # 16 bytes that this run of the hub has drawn
    number: int  # of the request, from 1
    items: list[Item]
    # 32 bytes, of the job that the hub means: a site looks among its own jobs for it; zeros where it was given none
    digest: bytes = bytes(32)
    site: int = 0  # the number of the site, from 1; 0 where it is not said
    # 8 bytes that a site draws when it starts, by which two sites of one name are told apart; zeros in requests
    mark: bytes = UNMARKED

    def pack(self) -> bytes:
        """Returns the bytes."""
        head = ENVELOPE.pack(
            MAGIC, VERSION, self.state, self.site, self.job, self.digest, self.mark, self.number, len(self.items)
        )
        parts = [head]
        for tag, data in self.items:
            parts += ITEM.pack(tag, len(data)), data
        return b"".join(parts)

    @classmethod
    def unpack(cls, data: bytes) -> Letter:
        """Reads the bytes; RemoteFault where they are no letter, or not a whole one."""
        if len(data) < ENVELOPE.size or data[: len(MAGIC)] != MAGIC:
            raise RemoteFault(f"a relayed message of {len(data)} bytes is none of fedkern's")
        _, version, state, site, job, digest, mark, number, count = ENVELOPE.unpack_from(data)
        if version != VERSION:
            raise RemoteFault(f"a relayed message is of version {version}, wanted {VERSION}: install the same fedkern everywhere")
        if state > UNBEGUN:
            raise RemoteFault(f"a relayed message tells the unknown state {state}")
        if count > MOST_ITEMS:
            raise RemoteFault(f"a relayed message has {count} items, at most {MOST_ITEMS} expected")
        items, offset = list[Item](), ENVELOPE.size
        for _ in range(count):
            if offset + ITEM.size > len(data):
                raise RemoteFault("a relayed message is cut short")
            tag, length = ITEM.unpack_from(data, offset)
            offset += ITEM.size
            if offset + length > len(data):
                raise RemoteFault("a relayed message is cut short")
            items.append((tag, data[offset : offset + length]))
            offset += length
        if offset != len(data):
            raise RemoteFault(f"a relayed message has {len(data) - offset} bytes more than it says")
        return cls(state, job, number, items, digest, site, mark)


def refuse(request: bytes, why: str) -> bytes:
    """Returns the reply of a site that takes no part in the job of this request, for a reason that the server may read."""
    letter = Letter.unpack(request)
    return Letter(
        REFUSED, letter.job, letter.number, [(tags.FAULT, why.encode()[:LONGEST_REASON])], letter.digest, letter.site
    ).pack()


def run_of(request: bytes) -> bytes:
    """Returns the run of a request; empty where it is none."""
    return ENVELOPE.unpack_from(request)[4] if len(request) >= ENVELOPE.size else b""


def put_aside(request: bytes) -> bytes:
    """Returns the reply of a site at which somebody has to decide first; the hub will send the request again."""
    letter = Letter.unpack(request)
    return Letter(ASIDE, letter.job, letter.number, [], letter.digest, letter.site).pack()


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
