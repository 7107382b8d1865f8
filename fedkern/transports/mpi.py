"""Rank 0 is the server; client k lives on rank 1 + k mod (size - 1). Buffer calls only, on a duplicated communicator."""

from __future__ import annotations

from typing import Any

from ..algorithms.messages import Protocol
from ..errors import JobError, LostPeer
from .codec import Codec
from .driver import ClientSide, Hooks, ServerSide
from .link import Link, Tag


def home(client: int, size: int) -> int:
    """The rank of a client."""
    return 1 + client % (size - 1)


class Ranks:
    """The transport of an MPI job, as one of its ranks sees it."""

    def __init__(self, comm: Any) -> None:
        if comm.size < 2:
            raise JobError("an MPI job needs a server and at least one client rank, and here is one rank: mpirun -n 2 or more")
        self.link = Link(comm.Dup())
        self.rank, self.size, self.is_server = comm.rank, comm.size, comm.rank == 0
        self.n_threads: int | None = 1

    def mine(self, n_clients: int) -> list[int]:
        """The clients that live here."""
        return [k for k in range(n_clients) if home(k, self.size) == self.rank]

    def run(
        self, protocol: Protocol, start: Any, clients: dict[int, Any], codec: Codec, hooks: Hooks | None = None
    ) -> tuple[Any, Any]:
        """See `run`."""
        hooks = hooks or Hooks()
        self.link.run += 1
        if self.is_server:
            return self._serve(ServerSide(protocol, start, codec, hooks)), {}
        return None, self._answer(ClientSide(protocol, clients, codec, hooks))

    def _serve(self, server: ServerSide) -> Any:
        link, longest = self.link, server.codec.longest(server.expected)
        while not server.done:
            for client, frame in server.outgoing():
                link.send(home(client, self.size), Tag.FRAME, frame)
            item = link.receive(longest)
            if item is None:
                link.patience.pause()
                continue
            source, tag, data = item
            if tag == Tag.FRAME:
                server.arrive(data, lambda client, source=source: home(client, self.size) == source)
        for rank in range(1, self.size):
            link.send(rank, Tag.END)
        return server.state

    def _answer(self, side: ClientSide) -> dict[int, Any]:
        link, longest = self.link, side.codec.longest(side.expected)
        while True:
            item = link.receive(longest)
            if item is None:
                link.patience.pause()
                continue
            _, tag, data = item
            if tag == Tag.END:
                return side.clients
            if tag == Tag.EXIT:
                raise LostPeer("the server ended the job")
            if tag == Tag.FRAME:
                for frame in side.receive(data)[1]:
                    link.send(0, Tag.FRAME, frame)


def run(
    comm: Any, protocol: Protocol, start: Any, clients: dict[int, Any], codec: Codec, hooks: Hooks | None = None
) -> tuple[Any, dict[int, Any]]:
    """Runs a protocol over the ranks of `comm`: rank 0 has `start`, others the `clients` that live there. See `inprocess.run`."""
    return Ranks(comm).run(protocol, start, clients, codec, hooks)
