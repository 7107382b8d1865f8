"""Speaks to the sites of a job over a wire, for the server.

At most one request a site is under way. A reply is taken once, whatever the wire does with it; one that can be no reply of the
site ends the job by the site's name.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ..algorithms.core.messages import RemoteFault
from ..errors import JobError, LostPeer
from ..printing import printable
from . import relay_letters, tags
from .codec import Frame
from .ending import Say
from .ranks import CODE
from .relay_letters import ANEW, ASIDE, BUSY, ENDED, LONGEST_REASON, REFUSED, UNBEGUN, UNMARKED, WAITING, End, Item, Letter

EVERY = 5.0  # seconds of silence after which a site that waits is asked whether it has something to say
GONE = 0  # in the queue of what has come, behind the last words of a site: it is gone
COMPUTING = (BUSY, UNBEGUN)


class Lost(NamedTuple):
    """Tells that the wire has lost a site for good, and why."""

    site: str
    why: str


class Wire(Protocol):
    """Carries requests from the hub to sites, and replies back.

    It may lose, delay, double or reorder replies. What comes as a site's must be that site's: the wire knows who is who. At most
    one request to a site is under way, but for the last of a job that fails. What the wire raises ends the job with code 3; if
    it has lost one site, it brings `Lost` instead.
    It is called by one thread at a time, which is not always the same.
    A wire on which a request is dear says by an attribute `every` after how many seconds a site that waits is asked for a sign
    of life.
    """

    def send(self, site: str, data: bytes) -> None:
        """Starts a request to a site, and does not wait."""

    def receive(self, seconds: float) -> tuple[str, bytes] | Lost | None:
        """Returns the next reply of any site, or the loss of one; None if nothing has come within these seconds."""


@dataclass
class _Line:
    """Knows what is under way between the hub and one site."""

    todo: list[Item] = field(default_factory=list)
    asked: bytes = b""  # the request under way; empty if none is
    number: int = 0
    since: float = 0.0  # when it was sent last
    state: int = BUSY  # of the site, as its latest reply says; at first it has to be asked
    heard: bool = False  # whether the site has ever said something
    mark: bytes = b""  # of the site's start; empty until it has replied


class HubLink(End):
    """Sends and receives the server's messages.

    Parameters
    ----------
    wire : to the sites
    sites : their names, in the order of the clients
    again : seconds after which a request without a reply is sent again
    digest : 32 bytes, of the job
    every : seconds without a word after which a site that waits is asked
    """

    def __init__(
        self, wire: Wire, sites: Sequence[str], again: float = 30.0, digest: bytes = bytes(32), every: float = EVERY
    ) -> None:
        super().__init__(0, 1 + len(sites), lambda: self.take(0.05))
        self.wire, self.sites, self.again, self.digest, self.every = wire, tuple(sites), again, digest, every
        self.say: Say = lambda text: None  # tells the server's operator what no other party reads
        self._job = os.urandom(16)
        self._lines = {rank: _Line() for rank in range(1, self.size)}
        self._ranks = {site: rank for rank, site in enumerate(self.sites, 1)}
        self._came: deque[tuple[int, int, bytes]] = deque()
        self._broken = self._deaf = False  # whether the wire has failed; whether it brings nothing any more
        self._is_ending = False  # whether sites are told to end
        self._looked = time.monotonic()
        self._lock = threading.RLock()  # of all this: `sign` is called by a thread of its own
        self._fault: Exception | None = None  # that `sign` has met
        if len(self._ranks) < len(self.sites):
            raise JobError(f"two sites have one name: {', '.join(sorted(self.sites))}")

    def send(self, rank: int, tag: int, data: Frame = b"") -> None:
        """Puts a message into the next request to a site."""
        with self._lock:
            line = self._lines[rank]
            # Every request is a sign of life, and a site that waits is asked now and then.
            if rank in self.gone or line.state == ENDED or tag == tags.PING:
                return
            line.todo.append((tags.numbered(tag, self.run), bytes(data)))
            self._is_ending = self._is_ending or tag == tags.EXIT
            self.clock[rank] = self.patience.reset()

    def receive(self, longest: int, only: int | None = None) -> tuple[int, int, Frame] | None:
        """Returns the next message (rank, tag, content), or None if none has come."""
        with self._lock:
            if self._fault is not None:
                fault, self._fault = self._fault, None
                raise fault
            self.take(0.0)
            return self._next(longest, only)

    def _next(self, longest: int, only: int | None) -> tuple[int, int, Frame] | None:
        """Returns the first message of what has come that is wanted now."""
        for _ in range(len(self._came)):
            rank, number, data = self._came.popleft()
            tag = number % tags.RUN
            if number == GONE:
                self.gone.add(rank)
            elif (only is not None and tag != only) or (self._is_ahead(tag) and only is None):
                self._came.append((rank, number, data))
            elif self.is_due(self.describe(rank), number, data, longest):
                return rank, tag, data
        return None

    def _is_ahead(self, tag: int) -> bool:
        """Tells whether a message is of what follows the protocol that runs, whose end its site knows already."""
        return self.parted == self.run != self.over and tag in (tags.GATHER, tags.BYE)

    def take(self, seconds: float) -> None:
        """Takes what has come; waits up to `seconds` for the first."""
        with self._lock:
            self._take_all(seconds)

    def sign(self) -> None:
        """Shows the sites that the server lives, while it computes between two exchanges or after the last: for another thread.

        What is wrong is raised where the server looks next. In an exchange nothing is shown, so that a machine that hangs is
        noticed.
        """
        with self._lock:
            if self.over != self.run or time.monotonic() - self._looked < self.every:
                return
            try:
                self._take_all(0.0)
            except Exception as error:
                self._fault = self._fault or error
            self.clock = [time.monotonic()] * self.size  # nobody is asked for anything

    def heed_deadline(self, seconds: float) -> None:
        """Asks a site that waits more often than sites end by themselves."""
        self.every = min(self.every, seconds / 4)

    def _take_all(self, seconds: float) -> None:
        # A site is silent only as long as it is listened to: what the server has computed since counts for nobody.
        now = time.monotonic()
        if (away := now - self._looked) > self.every:
            self.clock = [min(now, heard + away) for heard in self.clock]
        self._ask()
        for _ in range(100 + 10 * self.size):  # a wire that repeats itself for ever does not keep the server from its clock
            if (news := self._receive(seconds)) is None:
                break
            seconds = 0.0
            try:
                self._read(news)
            except (RemoteFault, JobError):
                if not self._is_ending:  # else the job ends for the first reason, and by no second one
                    raise
            self._ask()
        self._looked = time.monotonic()

    def drain(self) -> None:
        """Drops what sites have said."""
        with self._lock:
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
        """Tells the sites that can hear it to end, also those whose reply is still awaited."""
        with self._lock:
            self._deaf = True
            for rank in self._lines:
                self.send(rank, tags.EXIT, CODE.pack(code))
            self._ask()

    def describe(self, rank: int) -> str:
        """Returns the name of a party for texts of errors."""
        return f"site {self.sites[rank - 1]!r}" if rank else "the server"

    def doing(self, rank: int, seconds: float) -> str:
        """Returns what a site has done that was silent for so long."""
        match self._lines[rank].state:
            case relay_letters.UNBEGUN:
                return f"answers, and its job has not begun there within {seconds:.0f} s"
            case relay_letters.BUSY if self._lines[rank].heard:
                return f"answers that it computes, and has said nothing else for {seconds:.0f} s"
        return f"has been silent for {seconds:.0f} s"

    def _ask(self) -> None:
        """Sends a request to each site that has something to hear, still computes or was not asked for long.

        A request without a reply is sent again.
        """
        now = time.monotonic()
        for rank, line in self._lines.items():
            if rank in self.gone or line.state == ENDED:
                line.todo.clear()
            elif line.asked and not (self._deaf and line.todo):
                if now - line.since > self.again:
                    line.since = now
                    self._send(rank, line.asked)
            elif line.todo or line.state in COMPUTING or now - line.since > self.every:
                line.number += 1
                line.asked = Letter(WAITING, self._job, line.number, line.todo, self.digest, rank).pack()
                line.todo, line.since = [], now
                self._send(rank, line.asked)

    def _send(self, rank: int, data: bytes) -> None:
        """Gives a request to the wire; a site to which the wire cannot send is gone."""
        try:
            self.wire.send(self.sites[rank - 1], data)
        except Exception as error:
            self._drop(rank)
            self._fail(f"cannot send to {self.describe(rank)}", error)

    def _receive(self, seconds: float) -> object:
        """Returns what the wire brings; after its first failure in this, it is no longer listened to."""
        if self._deaf:
            time.sleep(seconds)
            return None
        try:
            return self.wire.receive(seconds)
        except Exception as error:
            self._deaf = True
            owing = [self.describe(rank) for rank, line in self._lines.items() if line.asked and rank not in self.gone]
            self._fail(f"brings no replies any more (awaited: {', '.join(owing) or 'none'})", error)
        return None

    def _fail(self, what: str, error: Exception) -> None:
        """Ends the job at the first failure of the wire; later ones, and those of its end, change nothing."""
        first, self._broken = not (self._broken or self._is_ending), True
        if first:
            # The text may name hosts and paths: the operator reads it, and sites are told an exit code.
            raise LostPeer(
                f"the wire {type(self.wire).__name__} {what} ({type(error).__name__}{_reason(str(error))}); "
                "--resume goes on where a checkpoint was kept"
            ) from None

    def _read(self, news: object) -> None:
        """Takes a reply, or the loss of a site; a reply that comes twice, late or for another run changes nothing."""
        if not (isinstance(news, tuple) and len(news) == 2 and isinstance(news[0], str)):
            raise RemoteFault(
                f"the wire {type(self.wire).__name__} brings a {type(news).__name__}: wanted (site, bytes), Lost or None"
            )
        site, data = news
        if site not in self._ranks:
            raise RemoteFault(f"site {printable(site)!r} is not in this job; its sites are {', '.join(self.sites)}")
        rank = self._ranks[site]
        if isinstance(news, Lost):
            self._lose(rank, f"the wire has lost it{_reason(str(news.why))}")
            return
        if not isinstance(data, bytes | bytearray | memoryview):
            raise RemoteFault(f"{self.describe(rank)}: the wire brings a {type(data).__name__} as its reply, wanted bytes")
        try:
            letter = Letter.unpack(bytes(data))
        except RemoteFault as fault:
            fault.where = f"{self.describe(rank)}: "
            raise
        line = self._lines[rank]
        if letter.job != self._job or rank in self.gone:
            return
        if letter.site != rank:
            whose = self.describe(letter.site) if letter.site in self._lines else "no site"
            raise RemoteFault(f"{self.describe(rank)}: the wire brings as its reply one of {whose}")
        if letter.mark != UNMARKED and letter.state != ANEW:
            line.mark = line.mark or letter.mark
            if letter.mark != line.mark:
                raise RemoteFault(f"{self.describe(rank)}: two sites answer to this name, or it was started twice")
        if letter.number != line.number or not line.asked:
            return
        self._take(rank, line, letter)

    def _take(self, rank: int, line: _Line, letter: Letter) -> None:
        """Takes the reply to the request that is under way."""
        # Only words, and time to decide, are signs of life: a site that computes for too long is lost, as over MPI.
        if letter.items or letter.state == ASIDE:
            self.clock[rank] = self.patience.reset()
        if letter.state == ASIDE:
            return
        line.asked, line.state, line.heard = b"", letter.state, line.heard or bool(letter.items)
        if letter.state == REFUSED:
            self._drop(rank)  # nobody waits for its end
            why = b"".join(data for _, data in letter.items)[:LONGEST_REASON].decode(errors="replace")
            raise JobError(f"{self.describe(rank)} takes no part: {printable(why)}")
        self._came += ((rank, tag, content) for tag, content in letter.items if tag != GONE)
        if letter.state == ANEW:
            self._lose(rank, "it was started anew, and knows nothing of this run")
        elif letter.state == ENDED and not self._is_ending:
            # Its last words come before it is missed: a fault, perhaps.
            self._came.append((rank, GONE, b""))

    def _lose(self, rank: int, why: str) -> None:
        """Tells the operator why a site is gone; other parties read only that it is."""
        if rank not in self.gone:
            self.say(f"{self.describe(rank)}: {why}")
            self._drop(rank)

    def _drop(self, rank: int) -> None:
        self.gone.add(rank)
        self._lines[rank].asked = b""


def _reason(text: str) -> str:
    """Returns the reason that a wire gives, to be put behind a sentence; one line."""
    line = printable(" ".join(text.split()))[:LONGEST_REASON]
    return f": {line}" if line else ""
