"""Carries a job over the wire of another program, such as a federated engine: the server is a `Hub`, every site a `Spoke`.

Such a wire brings a request to one site and its reply back. A request holds all that the hub has for the site: control messages
and frames of the codec, as over MPI. The reply holds all that the site says until it waits for the hub again; a site that still
computes says so, and is asked again. Requests to a site are numbered, and at most one is under way. A lost reply is asked for
again by the same request, and the site gives the same bytes, so nothing is computed, paid or drawn twice.

The wire keeps sites apart and knows who they are. It is trusted with no row: it carries what the ledger lists.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from ..algorithms.exchanges.sum_keys import Signer
from ..errors import JobError
from .driver import ServerSide, Signals, Timeouts
from .ending import Say, end, outcome
from .place import Place
from .ranks import Ranks
from .relay_hub import EVERY, HubLink
from .relay_hub import Lost as Lost
from .relay_hub import Wire as Wire
from .relay_letters import Letter as Letter
from .relay_letters import put_aside as put_aside
from .relay_letters import refuse as refuse
from .relay_spoke import SpokeLink

S = TypeVar("S")
C = TypeVar("C")


class _Relayed(Ranks):
    """Runs the part of one site, or of the server, in a job over a relay."""

    link: HubLink | SpokeLink
    identity: Signer | None = None  # of the client that lives here

    def __init__(self, link: HubLink | SpokeLink, timeouts: Timeouts | None) -> None:
        super().__init__(link, timeouts)
        self._is_given = timeouts is not None

    def heed_deadline(self, seconds: float) -> None:
        """Lets silence last as long as the job says, where the caller has not said how long."""
        if not self._is_given:
            self.timeouts = replace(self.timeouts, lost=seconds)
            self.link.heed_deadline(seconds)

    def machine(self) -> tuple[bytes, bytes, int]:
        """Returns marks that tell nothing of the machine: a site has all of its own cores."""
        return os.urandom(16), os.urandom(16), 1 << 16

    def agree(self, configuration: bytes) -> None:
        """Checks that server and sites have the same job, and sets the same level of instructions at all."""
        super().agree(configuration)
        self.n_threads = None

    def signer(self, client: int) -> Signer | None:
        """Returns the identity of the client that lives here."""
        return self.identity

    def ends_before(self, server: ServerSide[S, C]) -> bool:
        """Ends a protocol with its last words, which travel with what comes next: a trip of each protocol less."""
        if server.leave_last():
            self.link.over = self.link.run
            return True
        return False

    def parts_after(self, server: ServerSide[S, C]) -> bool:
        """Lets a protocol of one question end with it: a site's reply then holds what it says next, too."""
        if server.protocol.once and server.keeping is None:
            self.link.parted = self.link.run
            return True
        return False

    def _serve(self, server: ServerSide[S, C]) -> S:
        state = super()._serve(server)
        self.link.over = self.link.run  # what sites have said beyond it is news from here on
        return state

    def label(self, rank: int) -> str:
        """Returns a site's name, or "the server"."""
        here = [name for client, name in enumerate(self.names) if self.home(client) == rank]
        return f"client {here[0]!r}" if here and not self.is_server else self.link.describe(rank)

    def who(self, rank: int) -> str:
        """Returns a site's name, or "the server"."""
        return self.label(rank)

    def describe_silence(self, rank: int, seconds: float) -> str:
        """Returns what a party has done that was silent for so long."""
        return self.link.doing(rank, seconds)


class Hub:
    """Runs the server's part of a job whose sites are reached over a wire.

    Parameters
    ----------
    wire : to the sites
    sites : the names by which the wire knows them, in the order of the job's clients
    timeouts : how long silence may last; by default as `job.deadline` of the job that runs there
    again : seconds after which a request without a reply is sent again
    digest : 32 bytes of the job, by which a site that has several finds its own copy of it
    """

    def __init__(
        self, wire: Wire, sites: Sequence[str], timeouts: Timeouts | None = None, again: float = 30.0, digest: bytes = bytes(32)
    ) -> None:
        longest = min((timeouts or Timeouts()).lost / 4, getattr(wire, "every", EVERY))
        self.link = HubLink(wire, sites, again, digest, longest)
        self.ranks = _Relayed(self.link, timeouts)

    def run(self, main: Callable[[Place], int], say: Say, signals: Signals | None = None) -> int:
        """Runs `main` at the server's place and brings all sites to one end; returns the job's exit code."""
        self.ranks.signals = signals or self.ranks.signals
        self.link.say = say
        over = threading.Event()
        threading.Thread(target=self._sign, args=(over,), daemon=True).start()
        try:
            code, text = outcome(main, self.ranks, say)
        finally:
            over.set()
        return end(self.ranks, code, text, say)

    def _sign(self, over: threading.Event) -> None:
        """Keeps the sites from taking the server for gone while `main` computes and no exchange runs."""
        while not over.wait(self.link.every / 2):
            self.link.sign()


class Spoke:
    """Runs the part of one site: `run` in a thread of its own, while the wire calls `answer` for each request.

    Parameters
    ----------
    client : the number of the job's client that lives here, from 0
    n_clients : of the job
    timeouts : how long silence may last; by default as `job.deadline` of the job that runs there
    busy : seconds after which a reply leaves although the site still computes; at most a quarter of `timeouts.lost`
    signer : signs the site's keys of secure sums, and knows the other sites'; None: nobody signs here

    Raises
    ------
    JobError
        The job has no client of this number.
    """

    def __init__(
        self, client: int, n_clients: int, timeouts: Timeouts | None = None, busy: float = 10.0, signer: Signer | None = None
    ) -> None:
        if not 0 <= client < n_clients:
            raise JobError(f"client = {client}: wanted a number from 0 to {n_clients - 1}, for the job has {n_clients} clients")
        self.link = SpokeLink(1 + client, 1 + n_clients, min(busy, (timeouts or Timeouts()).lost / 4))
        self.ranks = _Relayed(self.link, timeouts)
        self.ranks.identity = signer
        self._has_run = False

    def answer(self, request: bytes) -> bytes:
        """Returns the reply to a request of the hub."""
        return self.link.answer(request)

    def run(self, main: Callable[[Place], int], say: Say) -> int:
        """Runs `main` at the site's place until the hub ends the job; returns the job's exit code. Raises JobError: it has run a
        job before: each job needs a spoke of its own."""
        if self._has_run:
            raise JobError("this Spoke has run a job; make one for each job")
        self._has_run = True
        self.link.begin()
        try:
            return end(self.ranks, *outcome(main, self.ranks, say), say)
        finally:
            self.link.abort(0)

    @property
    def is_told(self) -> bool:
        """Whether the server has told the site to end."""
        return self.ranks.exit is not None

    def lose(self) -> None:
        """Takes the server for gone, where the wire has said so: the job ends here with code 3."""
        self.link.lose()
