"""Runs a job without a server: every client rank sends its clients' messages to all others, and makes the server's draws itself.

Each rank has a replica of the server's machine. It is a function of messages and keyed random streams, so all replicas make the
same draws, those that a server would make, and nothing is sent back. Rank 0, which holds no client, sees no message of a client:
at the end it gets the last state of one replica, and the digests of all, which must be equal.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from hashlib import blake2b
from typing import TypeVar

from ..algorithms.core.messages import Message, Protocol, RemoteFault, ServerEffects, Start
from ..errors import FedkernError
from . import tags
from .codec import Codec, Frame, pack, unpack
from .driver import Ended, Hooks, at_server
from .link import Peers

S = TypeVar("S")
C = TypeVar("C")

PING = 5.0  # seconds between two signs of life to rank 0
LARGEST = 1 << 31  # bytes of a replica's last state


class Gathering:
    """Runs protocols like `Ranks`, but with a replica of the server at every rank, so `start` must be given at every rank."""

    def __init__(self, ranks: Peers) -> None:
        self.ranks, self.signals = ranks, ranks.signals
        self.is_server = ranks.is_server

    def run_protocol(
        self, protocol: Protocol[S, C], start: Start[S] | None, clients: Mapping[int, C], codec: Codec, hooks: Hooks | None = None
    ) -> tuple[S | None, dict[int, C]]:
        """Runs a protocol: rank 0 gets the server's last state, the others their clients'."""
        ranks = self.ranks
        ranks.hooks = hooks = hooks or Hooks()
        ranks.link.run += 1
        with ranks.signals.held():
            if self.is_server:
                ranks.exchange("gather", b"", lambda told: [b""] * len(told))
                return self._wait(protocol, at_server(start)[0]), {}
            return None, self._gather(protocol, at_server(start), dict(clients), codec, hooks)

    def _all_here(self, what: str, mine: bytes, longest: int) -> list[Frame]:
        """Tells rank 0 something and waits until all ranks have; returns the frames of ranks that are ahead."""
        ranks, early = self.ranks, list[Frame]()
        ranks.tell(what, tags.GATHER, mine)
        while True:
            item = ranks.next(longest, tags.SPREAD, tags.FRAME)
            if item is None:
                ranks.check(0)
            elif item[1] == tags.SPREAD:
                return early
            else:
                early.append(item[2])

    def _wait(self, protocol: Protocol[S, C], fresh: S) -> S:
        """Waits at rank 0 until every client rank has sent its replica's digest, and the first one the replica itself."""
        ranks = self.ranks
        digests: dict[int, bytes] = {}
        content: bytes | None = None
        here = [rank for rank in range(1, ranks.size) if rank not in ranks.idle]
        while len(digests) < len(here) or content is None:
            item = ranks.next(LARGEST, tags.FRAME, tags.GATHER)
            ranks.attend()
            if item is None:
                for rank in here:
                    if rank not in digests:
                        ranks.check(rank)
            elif item[1] == tags.GATHER:
                digests[item[0]] = bytes(item[2])
            else:
                content = bytes(item[2])
        for rank in set(ranks.others()) - ranks.idle:  # nobody leaves before all have what they need
            ranks.link.send(rank, tags.SPREAD)
        if set(digests.values()) != {_digest(content)}:
            raise FedkernError(
                "the ranks of a job without a server came to different results: they have different software or hardware"
            )
        return protocol.load(fresh, unpack(content))

    def _gather(
        self, protocol: Protocol[S, C], start: Start[S], clients: dict[int, C], codec: Codec, hooks: Hooks
    ) -> dict[int, C]:
        """Runs a replica of the server's machine and this rank's clients until the replica has finished; returns the clients'
        last states.
        """
        ranks, (server, effects) = self.ranks, start
        here = [rank for rank in range(1, ranks.size) if rank not in ranks.idle]
        others = [rank for rank in here if rank != ranks.rank]
        longest, alive = codec.longest(protocol.to_server), time.monotonic()
        early = [codec.decode(frame, protocol.to_server) for frame in self._all_here("gather", b"", longest)]  # not yet my round
        while not protocol.finished(server):
            asked, effects = effects, []
            for client, message in self._answers(protocol, asked, clients, codec, hooks, others):
                server, more = protocol.server_receive(server, client, message)
                effects += more
            # Answers that came before their round are taken now.
            held, early = early, []
            for client, message in held:
                server, more = protocol.server_receive(server, client, message)
                effects += more
            while not effects and not protocol.finished(server):
                if time.monotonic() - alive > PING:
                    alive = time.monotonic()
                    ranks.link.send(0, tags.PING)
                if ranks.signals.pending:
                    raise Ended(3, f"stopped by {ranks.signals.pending} at rank {ranks.rank}")
                item = ranks.next(longest, tags.FRAME)
                if item is None:
                    for rank in others:
                        ranks.check(rank)
                    continue
                client, message = codec.decode(item[2], protocol.to_server)
                if ranks.home(client) != item[0]:
                    raise RemoteFault(f"rank {item[0]}: {type(message).__name__} of client {client}, which does not live there")
                if message.round > server.round:  # type: ignore[attr-defined]
                    early.append((client, message))
                    continue
                server, more = protocol.server_receive(server, client, message)
                effects += more
        # All replicas must have reached the same state: the first sends it to rank 0, all compare digests.
        content = pack(protocol.save(server))
        if ranks.rank == here[0]:
            hooks.control(ranks.rank, "result", len(content))
            ranks.link.send(0, tags.FRAME, content)
        self._all_here("gathered", _digest(content), longest)
        return clients

    def _answers(
        self,
        protocol: Protocol[S, C],
        asked: ServerEffects,
        clients: dict[int, C],
        codec: Codec,
        hooks: Hooks,
        others: list[int],
    ) -> list[tuple[int, Message]]:
        """Returns the answers of this rank's clients to the questions of its replica, and sends them to all other ranks."""
        said: list[tuple[int, Message]] = []
        for client, question in asked:
            if client not in clients:
                continue
            assert isinstance(question, Message)  # nothing is charged in a job without a server
            clients[client], answers = protocol.client_receive(clients[client], question)
            for answer in answers:
                assert isinstance(answer, Message)
                frame: Frame = codec.encode(client, answer)
                hooks.sending(client, answer, len(frame), 0)
                hooks.delivered("to_server", client, len(frame))
                for rank in others:
                    self.ranks.link.send(rank, tags.FRAME, frame)
                said.append((client, answer))
        return said


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=32).digest()
