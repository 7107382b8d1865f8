"""Runs a job as one of its ranks, over any link. Rank 0 is the server; client k lives on rank 1 + k mod (size - 1).

Nothing waits without looking at the clock. While the server has nothing to do it pings; a rank that owes an answer and is silent
for too long counts as dead, and so does a silent server. How a whole job begins and ends is in `launch` and `ending`.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn, TypeVar

from ..algorithms.core.messages import Protocol, RemoteFault, Start, reading
from ..errors import JobError, LostPeer
from . import tags
from .codec import Codec, Frame
from .cores import usable_cores
from .driver import ClientSide, Ended, Hooks, Offers, ServerSide, Signals, Timeouts, at_server
from .levels import agree_on_level, usable_levels, use_level
from .link import Link

S = TypeVar("S")
C = TypeVar("C")
WELCOME = struct.Struct("<BI??32s")  # level for all, threads per rank, whether ranks outnumber cores, the server's host; a name
CODE = struct.Struct("<i")


def home(client: int, size: int) -> int:
    """Returns the rank of a client."""
    return 1 + client % (size - 1)


class Ranks:
    """Runs a job as one of its ranks; `mpi.ranks_of` and `relay` make them."""

    def __init__(self, link: Link, timeouts: Timeouts | None = None, signals: Signals | None = None) -> None:
        self.timeouts, self.signals = timeouts or Timeouts(), signals or Signals()
        self.link = link
        self.rank, self.size, self.is_server = link.rank, link.size, link.rank == 0
        self.hooks: Hooks | None = None  # of the latest protocol
        self.n_threads: int | None = 1
        self.names: tuple[str, ...] = ()  # of the clients, as soon as they are known
        self.dead: dict[int, str] = {}  # ranks whose death was noticed, or that were silent for too long: what happened
        self.homes: tuple[int, ...] | None = None  # of the clients, once the job goes on without some
        self.idle: frozenset[int] = frozenset()  # ranks without any client then: they only listen
        self.exit: int | None = None  # the code with which the server has told us to exit
        self._looked = self._attended = time.monotonic()
        self._stop: str | None = None
        self.told: dict[str, tuple[int, int]] = {}  # control messages that have left for the server: how many of a kind, bytes
        self.unlogged: list[tuple[str, int]] = []  # those of them that are in no ledger yet, each with its bytes

    def mine(self, n_clients: int) -> list[int]:
        """Returns the numbers of the clients that live here."""
        return [k for k in range(n_clients) if self.rank == self.home(k)]

    def home(self, client: int) -> int:
        """Returns the rank of a client."""
        return home(client, self.size) if self.homes is None else self.homes[client]

    def leave_out(self, numbers: Sequence[int], names: tuple[str, ...]) -> None:
        """Goes on with these clients, under new numbers, each on the rank where it was."""
        self.homes, self.names = tuple(home(k, self.size) for k in numbers), names
        self.idle = frozenset(range(1, self.size)) - set(self.homes)

    def stand_by(self) -> NoReturn:
        """Listens until the server ends the job. The server's silence is no fault here, only its death."""
        self._log()
        announced = False
        with self.signals.held():
            while True:
                if self.next(0, tags.END) is None and 0 in self.link.gone:
                    self.check(0)
                if self.signals.pending and not announced:
                    self.tell("stop", tags.STOP, f"{self.signals.pending} at {self.label(self.rank)}".encode())
                    announced = True

    def attend(self) -> None:
        """Pings, at the server and every few seconds, the ranks that only listen."""
        if self.idle and time.monotonic() - self._attended > 5.0:
            self._attended = time.monotonic()
            for rank in self.idle - self.link.gone:
                self.link.send(rank, tags.PING)

    def agree(self, configuration: bytes) -> None:
        """Sets the highest instruction-set level that all ranks have, and this rank's share of the cores (`n_threads`).

        A rank whose version of fedkern is not that of rank 0, or whose `configuration` is not byte for byte the same, ends the
        job with a JobError that names it.
        """
        from .. import __version__

        digest = hashlib.blake2b(configuration, digest_size=32).digest()
        hello = tags.HELLO.pack(__version__.encode(), usable_levels(), *self.machine(), digest)
        near = [0]

        def answer(hellos: list[bytes]) -> list[bytes]:
            replies = _welcome(hellos, self.label)
            near[:] = [rank for rank, reply in enumerate(replies) if rank and WELCOME.unpack(reply)[3]]
            return replies

        welcome = self.exchange("hello", hello, answer)
        with reading(f"{self.label(0)}: its welcome"):
            level, self.n_threads, crowded, same, name = WELCOME.unpack(welcome)
            job = name.decode("ascii")
        use_level(level)
        patience = self.link.patience
        patience.spin, patience.longest = (1e-3, 2e-3) if crowded else (4e-3, 5e-4)
        wanted = self.size - 1 if self.is_server else 1
        if same and self.link.wake(job, near) and len(near) == wanted:
            patience.longest = 2e-2  # all who may have something to say wake this rank

    def machine(self) -> tuple[bytes, bytes, int]:
        """Returns what the server needs to share out cores: marks of the host and of the cores, and how many may be used here."""
        cores = usable_cores()
        return _short(socket.gethostname()), _short(repr(cores)), len(cores)

    def settle(self, told: bytes, rule: Callable[[list[bytes]], bytes]) -> bytes:
        """Returns the result of rank 0's `rule` for what all ranks tell, in the order of the ranks."""
        return self.exchange("run", told, lambda by_rank: [rule(by_rank)] * len(by_rank))

    def choose(self, offers: Offers, rule: Callable[[Offers], int | None]) -> int | None:
        """Returns the result of the server's `rule` for the checkpoints that all parties offer, by number.

        Each rank gives those of the parties on it.
        """

        def answer(by_rank: list[bytes]) -> list[bytes]:
            everybody: dict[int, set[int]] = {}
            for data in by_rank:
                for party, number in tags.OFFER.iter_unpack(data):
                    everybody.setdefault(party, set()).add(number)
            chosen = rule(everybody)
            number = -1 if chosen is None else chosen
            return [struct.pack("<q", number)] * len(by_rank)

        pairs = [tags.OFFER.pack(party, number) for party in sorted(offers) for number in sorted(offers[party])]
        reply = self.exchange("offers", b"".join(pairs), answer)
        with reading(f"{self.label(0)}: its choice of a checkpoint"):
            (chosen,) = struct.unpack("<q", reply)
        return chosen if chosen >= 0 else None

    def run_protocol(
        self, protocol: Protocol[S, C], start: Start[S] | None, clients: Mapping[int, C], codec: Codec, hooks: Hooks | None = None
    ) -> tuple[S | None, dict[int, C]]:
        """Runs a protocol: rank 0 has `start` and gets the server's last state, the others have and get their clients."""
        self.hooks = hooks = hooks or Hooks()
        self._log()
        self.link.run += 1
        with self.signals.held():
            if self.is_server:
                return self._serve(ServerSide(protocol, at_server(start), codec, hooks)), {}
            return None, self._answer(ClientSide(protocol, clients, codec, hooks), hooks)

    def _serve(self, server: ServerSide[S, C]) -> S:
        """Runs the server's machine until it has finished; returns its last state."""
        link, longest = self.link, server.codec.longest(server.expected)
        homes = [self.home(client) for client in range(server.codec.n_clients)]
        here: dict[int, set[int]] = {rank: set() for rank in range(1, self.size)}
        for client, rank in enumerate(homes):
            here[rank].add(client)
        self._drop(server)
        parted = False  # whether all know already that the protocol ends
        while True:
            if server.unsent or not server.n_open:
                if server.done:
                    break
                # Once the job is to stop, `outgoing` begins a checkpoint instead of a round.
                server.stopping = server.stopping or self._stop or self.signals.pending
                out = server.outgoing()
                for client, frame in out:
                    link.send(homes[client], tags.FRAME, frame)
                if out and self.parts_after(server):
                    parted = True
                    for rank in self.others():
                        link.send(rank, tags.END)
                if self.ends_before(server):
                    break
            item = self.next(longest, tags.FRAME)
            self.attend()
            if item is None:
                self._silence(server)
                continue
            if server.protocol.readmits is not None and item[0] not in link.gone:
                self.dead.pop(item[0], None)
            # Where no client comes back, late words of a rank that was given up change nothing any more.
            if item[0] not in self.dead:
                try:
                    server.arrive(item[2], here[item[0]])
                except RemoteFault as fault:
                    fault.where = f"{self.label(item[0])}: "
                    raise
        if not parted:
            for rank in self.others():
                link.send(rank, tags.END)
        return server.state

    def parts_after(self, server: ServerSide[S, C]) -> bool:
        """Tells whether the end of a protocol travels with the questions that have just left, since no others follow."""
        return False

    def ends_before(self, server: ServerSide[S, C]) -> bool:
        """Tells whether a protocol ends before all clients say that they have received its last words."""
        return False

    def _answer(self, side: ClientSide[S, C], hooks: Hooks) -> dict[int, C]:
        """Answers the server's questions until it ends the protocol; returns the last states of this rank's clients."""
        link, longest, announced = self.link, side.codec.longest(side.expected), False
        while True:
            item = self.next(longest, tags.FRAME, tags.END)
            frames: list[Frame] = []
            if item is None:
                self.check(0)
            elif item[1] == tags.END:
                return side.clients
            else:
                _, frames = side.receive(item[2])
            stopped_by = self.signals.pending or hooks.should_stop()
            # The server learns of the request before the answer, which might be the last.
            if stopped_by and not announced:
                self.tell("stop", tags.STOP, f"{stopped_by} at {self.label(self.rank)}".encode())
                announced = True
            for frame in frames:
                link.send(0, tags.FRAME, frame)

    def next(self, longest: int, *wanted: int) -> tuple[int, int, Frame] | None:
        """Returns the next message of this stage of the job, or None after a pause; raises whatever ends the job."""
        # A pause hands control back, so that the caller can look at its clock and at signals.
        while (item := self.link.receive(longest)) is None:
            if self.link.patience.pause():
                return None
        source, tag, data = item
        # Every other tag either ends the job here or is noted and waited through.
        if tag in wanted:
            return item
        if tag == tags.EXIT:
            self.exit = read_code(data)
            raise Ended(self.exit)
        if tag == tags.FAULT:
            raise Ended(*read_fault(data))
        if tag == tags.BYE:
            raise Ended(1, f"{self.label(source)} has ended while the job was still going on")
        if tag == tags.STOP:
            self._stop = bytes(data).decode(errors="replace")
        elif tag != tags.PING:
            expected = " or ".join(tags.NAMES[t] for t in wanted)
            raise RemoteFault(f"{self.label(source)}: {tags.NAMES.get(tag, tag)}, expected {expected}")
        return None

    def exchange(self, what: str, mine: bytes, answer: Callable[[list[bytes]], list[bytes]]) -> bytes:
        """Collects a few bytes from every living rank at rank 0, which sends a few back to each."""
        with self.signals.held() as may_be_cut:
            act = self.signals.act if may_be_cut else lambda: None
            return self._exchange(what, mine, answer, act)

    def _exchange(self, what: str, mine: bytes, answer: Callable[[list[bytes]], list[bytes]], act: Callable[[], None]) -> bytes:
        """Collects and spreads bytes; `act` is called in every pass, so that a signal can end the wait."""
        if not self.is_server:
            self.tell(what, tags.GATHER, mine)
            while (item := self.next(0, tags.SPREAD)) is None:
                act()
                self.check(0)
            return bytes(item[2])
        # Rank 0 collects from every rank that takes part, and watches those it still waits for.
        gathered, missing = {0: mine}, set(self.others()) - self.idle
        # A rank is silent only as long as it is listened to, and one whose message lies unread is not: rank 0 may have computed
        # for long, and looks at one message at a time.
        since = time.monotonic()
        while missing:
            act()
            item = self.next(0, tags.GATHER)
            if item is not None:
                gathered[item[0]] = bytes(item[2])
                missing.discard(item[0])
                continue
            for rank in missing:
                self.link.clock[rank] = max(self.link.clock[rank], since)
                self.check(rank)
        # Ranks are in order, so that the answers do not depend on who was faster.
        with reading(f"what ranks tell ({what})"):
            replies = dict(zip(sorted(gathered), answer([gathered[rank] for rank in sorted(gathered)])))
        for rank in replies.keys() & set(self.others()):
            self.link.send(rank, tags.SPREAD, replies[rank])
        return replies[0]

    def tell(self, what: str, tag: int, data: bytes) -> None:
        """Sends a control message to the server, and enters it in this rank's ledger as soon as the ledger is open."""
        self.unlogged.append((what, len(data)))
        self._log()
        self.send_control(what, tag, data)

    def send_control(self, what: str, tag: int, data: bytes = b"") -> None:
        """Sends a control message to the server, and counts it."""
        messages, n_bytes = self.told.get(what, (0, 0))
        self.told[what] = messages + 1, n_bytes + len(data)
        self.link.send(0, tag, data)

    def _log(self) -> None:
        """Enters control messages that were sent before the ledger was open."""
        if self.hooks:
            for what, n_bytes in self.unlogged:
                self.hooks.control(self.rank, what, n_bytes)
            self.unlogged.clear()

    def check(self, rank: int) -> None:
        """Raises LostPeer if a rank has died, or has been silent for too long."""
        if self._is_dead(rank):
            raise LostPeer(f"{self.who(rank)} {self.dead[rank]}; --resume goes on where a checkpoint was kept")

    def who(self, rank: int) -> str:
        """Returns the name of a rank with the clients that live on it."""
        here = [repr(name) for client, name in enumerate(self.names) if self.home(client) == rank]
        if rank == 0:
            return "rank 0 (the server)"
        return f"rank {rank} (client{'s' * (len(here) > 1)} {', '.join(here)})" if here else f"rank {rank}"

    def label(self, rank: int) -> str:
        """Returns a short name of a rank."""
        return f"rank {rank}"

    def describe_silence(self, rank: int, seconds: float) -> str:
        """Returns what a rank has done that was silent for so long."""
        return f"has been silent for {seconds:.0f} s"

    def _is_dead(self, rank: int) -> bool:
        """Tells whether a rank is dead or has been silent for too long, and remembers why."""
        silent = time.monotonic() - self.link.clock[rank]
        if rank in self.link.gone:
            self.dead.setdefault(rank, "has died")
        elif silent > self.timeouts.lost:
            self.dead.setdefault(rank, self.describe_silence(rank, silent))
        return rank in self.dead

    def _silence(self, server: ServerSide[S, C]) -> None:
        """Pings all ranks while nothing comes, and notices the dead ones."""
        now = time.monotonic()
        self._drop(server)
        if now - self._looked < min(self.timeouts.lost / 4, 5.0):
            return
        self._looked = now
        for rank in self.others():
            self.link.send(rank, tags.PING)
        for rank in {self.home(client) for client in server.waiting}:
            self._is_dead(rank)
        self._drop(server)
        if server.n_open:
            server.hooks.waiting(server.waiting)

    def _drop(self, server: ServerSide[S, C]) -> None:
        """Tells the server's machine of the clients on dead ranks."""
        for rank in self.link.gone:
            self.dead.setdefault(rank, "has died")
        if self.dead:
            homes = {client: self.home(client) for client in range(server.codec.n_clients)}
            server.lose({client: f"{self.label(rank)} {self.dead[rank]}" for client, rank in homes.items() if rank in self.dead})

    def others(self) -> list[int]:
        """Returns all living ranks but this one."""
        return [rank for rank in range(self.size) if rank != self.rank and rank not in self.dead.keys() | self.link.gone]


def read_code(data: Frame) -> int:
    """Returns the exit code of an EXIT message."""
    with reading("an exit code"):
        return int(CODE.unpack(data)[0])


def read_fault(data: Frame) -> tuple[int, str]:
    """Returns the exit code and the text of a FAULT message."""
    return read_code(data[: CODE.size]), bytes(data[CODE.size :]).decode(errors="replace")


def _short(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _version(hello: bytes) -> str:
    """Returns the version of fedkern that a rank's hello names; a hello of another length is of another version."""
    text = hello[: tags.VERSION.size].rstrip(b"\0")
    if len(hello) >= tags.VERSION.size and re.fullmatch(rb"[0-9][0-9A-Za-z.+!_-]*", text):
        known = text.decode()
        return f"fedkern {known}" if len(hello) == tags.HELLO.size else f"fedkern {known} with a hello of {len(hello)} bytes"
    return f"a version of fedkern that does not say which (its hello has {len(hello)} bytes)"


def _welcome(hellos: list[bytes], label: Callable[[int], str] = "rank {}".format) -> list[bytes]:
    """Returns the reply to each rank's hello: level, threads, whether cores are shared, whether the host is the server's, and a
    name. `label` names a rank in the text of an error."""
    ours, *theirs = map(_version, hellos)
    others = [f"{label(rank)} has {version}" for rank, version in enumerate(theirs, 1) if version != ours]
    if others:
        raise JobError(f"{', '.join(others)}, and {label(0)} has {ours}: install the same version for all ranks")
    greetings = [tags.HELLO.unpack(data) for data in hellos]
    # Ranks with other job files would compute other models: end here, before anything is sent.
    for rank, (*_, digest) in enumerate(greetings):
        if digest != greetings[0][-1]:
            raise JobError(
                f"{label(rank)} has another configuration than {label(0)} "
                f"(digest {digest.hex()[:12]}, not {greetings[0][-1].hex()[:12]}): "
                "give all ranks the same job file and options"
            )
    level = agree_on_level([levels for _, levels, *_ in greetings], label)
    sharing = Counter((host, cores) for _, _, host, cores, _, _ in greetings)  # ranks that may use the same cores
    replies, name = [], os.urandom(16).hex().encode()
    for _, _, host, cores, n_cores, _ in greetings:
        n_sharing = sharing[host, cores]
        replies.append(WELCOME.pack(level, max(1, n_cores // n_sharing), n_sharing > n_cores, host == greetings[0][2], name))
    return replies
