"""Answers the server's requests at a site, for a job that runs in a thread of its own."""

from __future__ import annotations

import os
import threading
from collections import deque

from ..errors import JobError
from . import tags
from .codec import Frame
from .relay_letters import ANEW, ASIDE, BUSY, ENDED, UNBEGUN, UNMARKED, WAITING, End, Item, Letter, refuse


class SpokeLink(End):
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
        self._mark = os.urandom(len(UNMARKED))
        self._thread: threading.Thread | None = None  # of the job, once it has begun
        self._waits = self._ended = False

    def heed_deadline(self, seconds: float) -> None:
        """Says in time that the site computes."""
        self.busy = min(self.busy, seconds / 4)

    def begin(self) -> None:
        """Says that the job begins here, in this thread."""
        self._thread = threading.current_thread()

    def answer(self, data: bytes) -> bytes:
        """Returns the reply to a request of the hub; the same bytes for the same request. Raises RemoteFault: the request is
        none."""
        letter = Letter.unpack(data)
        with self._news:
            if letter.site not in (0, self.rank):
                return refuse(data, f"it is client number {self.rank} of its job, and was asked for number {letter.site}")
            if self._job and letter.job != self._job:
                return refuse(data, "an earlier run of the server has not been ended there; start the site again")
            # The site has begun anew, or was asked out of order: what it would say is no answer to this.
            if letter.number > self._number + 1:
                return self._write(ANEW, letter, [])
            if letter.number <= self._number:
                self._news.wait_for(lambda: self._reply or letter.number < self._number, self.busy + 1)
                if letter.number == self._number and self._reply:
                    return self._reply
                state = BUSY if letter.number < self._number else ASIDE
                return self._write(state, letter, [])
            self._job, self._number, self._reply = letter.job, letter.number, b""
            self.clock[0] = self.patience.reset()
            self._inbox += letter.items
            self._news.notify_all()
            self._news.wait_for(lambda: self._number > letter.number or self._is_over() or self._is_waiting(), self.busy)
            if self._number > letter.number:  # the hub has not waited for this reply
                return self._write(BUSY, letter, [])
            self._reply, self._outbox = self._write(self._state(), letter, self._outbox), []
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
                if self.is_due("the server", number, data, longest):
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

    def lose(self) -> None:
        """Takes the server for gone: nothing will come any more."""
        with self._news:
            self.gone.add(0)
            self._news.notify_all()

    def describe(self, rank: int) -> str:
        """Returns the name of a party for texts of errors."""
        return f"client number {rank}" if rank else "the server"

    def doing(self, rank: int, seconds: float) -> str:
        """Returns what a party has done that was silent for so long."""
        return f"has been silent for {seconds:.0f} s"

    def _is_over(self) -> bool:
        return self._ended or (self._thread is not None and not self._thread.is_alive())

    def _is_waiting(self) -> bool:
        return self._waits and not self._inbox

    def _state(self) -> int:
        """Returns what the site does, for a reply."""
        if self._is_over():
            return ENDED
        if self._thread is None:
            return UNBEGUN
        return WAITING if self._is_waiting() else BUSY

    def _write(self, state: int, letter: Letter, items: list[Item]) -> bytes:
        return Letter(state, letter.job, letter.number, items, letter.digest, self.rank, self._mark).pack()
