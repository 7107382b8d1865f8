"""Carries a job over the wire of another program, such as a federated engine: the server is a `Hub`, every site a `Spoke`.

Such a wire brings a request to one site and its reply back. A request holds all that the hub has for the site: control messages
and frames of the codec, as over MPI. The reply holds all that the site says until it waits for the hub again; a site that still
computes says so, and is asked again. Requests to a site are numbered, and at most one is under way. A lost reply is asked for
again by the same request, and the site gives the same bytes, so nothing is computed, paid or drawn twice.

The wire keeps sites apart and knows who they are. It is trusted with no row: it carries what the ledger lists.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ..algorithms.core.messages import RemoteFault
from ..errors import JobError
from ..printing import printable
from . import tags
from .codec import Frame
from .driver import Signals, Timeouts
from .ending import Say, end, outcome
from .link import CONTROL
from .patience import Patience
from .place import Place, Transport
from .ranks import CODE, Ranks

ENVELOPE = struct.Struct("<4sHH16s32sQI")  # magic, version, state of the site, run, digest, number of the request, items
ITEM = struct.Struct("<IQ")  # tag with the number of its protocol, bytes
MAGIC, VERSION = b"fdrl", 1
# What a site does: it waits for the hub; it computes; it has left; it has lost the job; it refuses the job, by its one item;
# somebody there has to decide first, so the same request has to come again.
WAITING, BUSY, ENDED, ANEW, REFUSED, ASIDE = range(6)
LONGEST_REASON = 1000  # bytes of a refusal's text

Item = tuple[int, bytes]  # tag with the number of its protocol, content


class Lost(NamedTuple):
    """Tells that the wire has lost a site for good, and why."""

    site: str
    why: str


class Wire(Protocol):
    """Carries requests from the hub to sites, and replies back.

    It may lose, delay, double or reorder replies. What comes as a site's must be that site's: the wire knows who is who.
    """

    def send(self, site: str, data: bytes) -> None:
        """Starts a request to a site, and does not wait."""

    def receive(self, seconds: float) -> tuple[str, bytes] | Lost | None:
        """Returns the next reply of any site, or the loss of one; None if nothing has come within these seconds."""


class Letter(NamedTuple):
    """Holds the content of a request or a reply.

    Attributes
    ----------
    state : of the site, in a reply
    job : 16 bytes that this run of the hub has drawn
    number : of the request, from 1
    digest : 32 bytes, of the job that the hub means: a site looks among its own jobs for it; zeros where it was given none
    """

    state: int
    job: bytes
    number: int
    items: list[Item]
    digest: bytes = bytes(32)

    def pack(self) -> bytes:
        """Returns the bytes."""
        parts = [ENVELOPE.pack(MAGIC, VERSION, self.state, self.job, self.digest, self.number, len(self.items))]
        for tag, data in self.items:
            parts += ITEM.pack(tag, len(data)), data
        return b"".join(parts)

    @classmethod
    def unpack(cls, data: bytes) -> Letter:
        """Reads the bytes; RemoteFault where they are no letter, or not a whole one."""
        if len(data) < ENVELOPE.size:
            raise RemoteFault(f"a relayed message of {len(data)} bytes is none of fedkern's")
        magic, version, state, job, digest, number, count = ENVELOPE.unpack_from(data)
        if (magic, version) != (MAGIC, VERSION) or state > ASIDE:
            raise RemoteFault("a relayed message is none of this version of fedkern")
        items, at = list[Item](), ENVELOPE.size
        for _ in range(count):
            if at + ITEM.size > len(data):
                raise RemoteFault("a relayed message is cut short")
            tag, length = ITEM.unpack_from(data, at)
            at += ITEM.size
            if at + length > len(data):
                raise RemoteFault("a relayed message is cut short")
            items.append((tag, data[at : at + length]))
            at += length
        if at != len(data):
            raise RemoteFault(f"a relayed message has {len(data) - at} bytes more than it says")
        return cls(state, job, number, items, digest)


def refuse(request: bytes, why: str) -> bytes:
    """Returns the reply of a site that takes no part in the job of this request, for a reason that the server may read."""
    asked = Letter.unpack(request)
    return Letter(REFUSED, asked.job, asked.number, [(tags.FAULT, why.encode()[:LONGEST_REASON])]).pack()


def put_aside(request: bytes) -> bytes:
    """Returns the reply of a site at which somebody has to decide first; the hub will send the request again."""
    asked = Letter.unpack(request)
    return Letter(ASIDE, asked.job, asked.number, []).pack()


@dataclass
class _Line:
    """Knows what is under way between the hub and one site."""

    todo: list[Item] = field(default_factory=list)
    asked: bytes = b""  # the request under way; empty if none is
    number: int = 0
    since: float = 0.0  # when it was sent last
    state: int = BUSY  # of the site, as its latest reply says; at first it has to be asked


class _Waiting(Patience):
    """Waits as its end of the relay does."""

    def __init__(self, wait: Callable[[], None]) -> None:
        super().__init__(0.0)
        self.wait = wait

    def pause(self) -> bool:
        """Waits for the other end, a fraction of a second."""
        self.wait()
        return True


class _End:
    """Holds what both ends of a relay have."""

    def __init__(self, rank: int, size: int, wait: Callable[[], None]) -> None:
        self.rank, self.size, self.run = rank, size, 0
        self.patience: Patience = _Waiting(wait)
        self.gone: set[int] = set()
        self.clock = [time.monotonic()] * size

    def wake(self, job: str, near: Iterable[int]) -> bool:
        """Returns False: the other end cannot be woken."""
        return False

    def _is_due(self, sender: str, number: int, data: bytes, longest: int) -> bool:
        """Tells whether a message is not late, of a protocol that has ended; RemoteFault where it is too long."""
        tag = number % tags.RUN
        if len(data) > (allowed := longest if tag == tags.FRAME else CONTROL):
            raise RemoteFault(f"{sender}: a message of {len(data)} bytes, at most {allowed} expected")
        return tag != tags.FRAME or number // tags.RUN == self.run


class HubLink(_End):
    """Sends and receives the server's messages.

    Parameters
    ----------
    wire : to the sites
    sites : their names, in the order of the clients
    again : seconds after which a request without a reply is sent again
    digest : 32 bytes, of the job
    """

    def __init__(self, wire: Wire, sites: Sequence[str], again: float = 30.0, digest: bytes = bytes(32)) -> None:
        super().__init__(0, 1 + len(sites), lambda: self.take(0.05))
        self.wire, self.sites, self.again, self.digest = wire, tuple(sites), again, digest
        self._job = os.urandom(16)
        self._lines = {rank: _Line() for rank in range(1, self.size)}
        self._ranks = {site: rank for rank, site in enumerate(self.sites, 1)}
        self._came: deque[tuple[int, int, bytes]] = deque()
        if len(self._ranks) < len(self.sites):
            raise JobError(f"two sites have one name: {', '.join(sorted(self.sites))}")

    def send(self, rank: int, tag: int, data: Frame = b"") -> None:
        """Puts a message into the next request to a site."""
        line = self._lines[rank]
        # A request that is under way is a sign of life, and the site says as much by its reply.
        if rank in self.gone or line.state == ENDED or (tag == tags.PING and (line.asked or line.todo)):
            return
        line.todo.append((tags.numbered(tag, self.run), bytes(data)))

    def receive(self, longest: int, only: int | None = None) -> tuple[int, int, Frame] | None:
        """Returns the next message (rank, tag, content), or None if none has come."""
        self.take(0.0)
        for _ in range(len(self._came)):
            rank, number, data = self._came.popleft()
            tag = number % tags.RUN
            if only is not None and tag != only:
                self._came.append((rank, number, data))
                continue
            if self._is_due(f"site {self.sites[rank - 1]!r}", number, data, longest):
                return rank, tag, data
        return None

    def take(self, seconds: float) -> None:
        """Takes what has come; waits up to `seconds` for the first."""
        self._ask()
        while (news := self.wire.receive(seconds)) is not None:
            seconds = 0.0
            if isinstance(news, Lost):
                self._lose(news.site)
            else:
                self._read(*news)
            self._ask()

    def drain(self) -> None:
        """Drops what sites have said."""
        self._came.clear()

    def flush(self, seconds: float) -> bool:
        """Waits until every message has come to its site."""
        until = time.monotonic() + seconds
        while any(line.todo or line.asked for rank, line in self._lines.items() if rank not in self.gone):
            if time.monotonic() > until:
                return False
            self.take(0.05)
        return True

    def abort(self, code: int) -> None:
        """Tells the sites that can hear it to end."""
        for rank in self._lines:
            self.send(rank, tags.EXIT, CODE.pack(code))
        self._ask()

    def _ask(self) -> None:
        """Sends a request to each site that has something to hear or still computes, and again those without a reply."""
        now = time.monotonic()
        for rank, line in self._lines.items():
            if rank in self.gone or line.state == ENDED:
                line.todo.clear()
            elif line.asked:
                if now - line.since > self.again:
                    line.since = now
                    self.wire.send(self.sites[rank - 1], line.asked)
            elif line.todo or line.state == BUSY:
                line.number += 1
                line.asked = Letter(WAITING, self._job, line.number, line.todo, self.digest).pack()
                line.todo, line.since = [], now
                self.wire.send(self.sites[rank - 1], line.asked)

    def _read(self, site: str, data: bytes) -> None:
        """Takes a reply; one that comes twice, late or for another job changes nothing."""
        if site not in self._ranks:
            raise RemoteFault(f"site {site!r} is not in this job; its sites are {', '.join(self.sites)}")
        rank = self._ranks[site]
        line = self._lines[rank]
        try:
            letter = Letter.unpack(data)
        except RemoteFault as fault:
            raise RemoteFault(f"site {site!r}: {fault}") from None
        if letter.job != self._job or letter.number != line.number or not line.asked or rank in self.gone:
            return
        self.clock[rank] = self.patience.reset()
        if letter.state == ASIDE:
            return
        line.asked, line.state = b"", letter.state
        if letter.state == REFUSED:
            self._lose(site)  # nobody waits for its end
            why = b"".join(data for _, data in letter.items)[:LONGEST_REASON].decode(errors="replace")
            raise JobError(f"site {site!r} takes no part: {printable(why)}")
        if letter.state == ANEW:
            self._lose(site)
        self._came += ((rank, tag, content) for tag, content in letter.items)

    def _lose(self, site: str) -> None:
        if site in self._ranks:
            self.gone.add(self._ranks[site])
            self._lines[self._ranks[site]].asked = b""


class SpokeLink(_End):
    """Sends and receives the messages of one site: `answer` is called by the wire, all else by the job, in a thread of its own.

    Parameters
    ----------
    rank, size : the site's number, from 1, and the number of sites and the server
    busy : seconds after which a reply leaves although the site still computes
    """

    def __init__(self, rank: int, size: int, busy: float = 10.0) -> None:
        super().__init__(rank, size, lambda: self.wait(0.1))
        self.busy = busy
        self._news = threading.Condition()
        self._inbox: deque[Item] = deque()
        self._outbox: list[Item] = []
        self._job, self._number, self._reply = b"", 0, b""
        self._waits = self._ended = False

    def answer(self, data: bytes) -> bytes:
        """Returns the reply to a request of the hub; the same bytes for the same request.

        Raises
        ------
        RemoteFault
            The request is none, or of another job.
        """
        asked = Letter.unpack(data)
        with self._news:
            if self._job and asked.job != self._job:
                raise RemoteFault("a request of another job came to a site that has one already")
            # The site has begun anew, or was asked out of order: what it would say is no answer to this.
            if asked.number > self._number + 1:
                return Letter(ANEW, asked.job, asked.number, []).pack()
            if asked.number <= self._number:
                self._news.wait_for(lambda: self._reply or asked.number < self._number, self.busy + 1)
                return self._reply if asked.number == self._number else b""
            self._job, self._number, self._reply = asked.job, asked.number, b""
            self.clock[0] = self.patience.reset()
            self._inbox += asked.items
            self._news.notify_all()
            self._news.wait_for(lambda: self._ended or (self._waits and not self._inbox), self.busy)
            state = ENDED if self._ended else WAITING if self._waits and not self._inbox else BUSY
            self._reply, self._outbox = Letter(state, self._job, self._number, self._outbox).pack(), []
            self._news.notify_all()
            return self._reply

    def send(self, rank: int, tag: int, data: Frame = b"") -> None:
        """Puts a message into the next reply."""
        if rank:
            raise JobError("sites of a relay speak to the server alone")
        with self._news:
            self._outbox.append((tags.numbered(tag, self.run), bytes(data)))

    def receive(self, longest: int, only: int | None = None) -> tuple[int, int, Frame] | None:
        """Returns the next message (0, tag, content), or None if none has come: then the site waits."""
        with self._news:
            while self._inbox:
                self._waits = False
                number, data = self._inbox.popleft()
                tag = number % tags.RUN
                if only is not None and tag != only:
                    continue
                if self._is_due("the server", number, data, longest):
                    return 0, tag, data
            self._waits = True
            self._news.notify_all()
            return None

    def wait(self, seconds: float) -> None:
        """Waits for a request."""
        with self._news:
            self._news.wait_for(lambda: self._inbox, seconds)

    def drain(self) -> None:
        """Drops what the hub has said."""
        with self._news:
            self._inbox.clear()

    def flush(self, seconds: float) -> bool:
        """Ends the site's part, and waits until its last words have left."""
        self.abort(0)
        with self._news:
            return self._news.wait_for(lambda: not self._outbox, seconds)

    def abort(self, code: int) -> None:
        """Ends the site's part; the hub sees it by the next reply."""
        with self._news:
            self._ended = True
            self._news.notify_all()


class _Relayed(Ranks):
    """Runs the part of one site, or of the server, in a job over a relay."""

    @property
    def gathering(self) -> Transport:
        """Raises JobError: sites cannot speak to each other."""
        raise JobError(
            "this job has no server between its clients (allgather), and the sites of a relay speak to the server alone: "
            "choose the job's other exchange, which needs a server"
        )

    def machine(self) -> tuple[bytes, bytes, int]:
        """Returns marks that tell nothing of the machine: a site has all of its own cores."""
        return os.urandom(16), os.urandom(16), 1 << 16

    def agree(self, configuration: bytes) -> None:
        """Checks that server and sites have the same job, and sets the same level of instructions at all."""
        super().agree(configuration)
        self.n_threads = None


class Hub:
    """Runs the server's part of a job whose sites are reached over a wire.

    Parameters
    ----------
    wire : to the sites
    sites : the names by which the wire knows them, in the order of the job's clients
    timeouts : how long silence may last
    again : seconds after which a request without a reply is sent again
    digest : 32 bytes of the job, by which a site that has several finds its own copy of it
    """

    def __init__(
        self,
        wire: Wire,
        sites: Sequence[str],
        timeouts: Timeouts | None = None,
        again: float = 30.0,
        digest: bytes = bytes(32),
    ) -> None:
        self.ranks = _Relayed(HubLink(wire, sites, again, digest), timeouts)

    def run(self, main: Callable[[Place], int], say: Say, signals: Signals | None = None) -> int:
        """Runs `main` at the server's place and brings all sites to one end; returns the job's exit code."""
        self.ranks.signals = signals or self.ranks.signals
        return end(self.ranks, *outcome(main, self.ranks, say), say)


class Spoke:
    """Runs the part of one site: `run` in a thread of its own, while the wire calls `answer` for each request.

    Parameters
    ----------
    client : the number of the job's client that lives here, from 0
    n_clients : of the job
    timeouts : how long silence may last
    busy : seconds after which a reply leaves although the site still computes
    """

    def __init__(self, client: int, n_clients: int, timeouts: Timeouts | None = None, busy: float = 10.0) -> None:
        self.link = SpokeLink(1 + client, 1 + n_clients, busy)
        self.ranks = _Relayed(self.link, timeouts)

    def answer(self, request: bytes) -> bytes:
        """Returns the reply to a request of the hub."""
        return self.link.answer(request)

    def run(self, main: Callable[[Place], int], say: Say) -> int:
        """Runs `main` at the site's place until the hub ends the job; returns the job's exit code."""
        try:
            return end(self.ranks, *outcome(main, self.ranks, say), say)
        finally:
            self.link.abort(0)
