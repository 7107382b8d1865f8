"""Runs all parties in one process. Every message goes through the codec, so the bytes are those of the wire.

A place is a process in which parties live; here one place has the server and all clients.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn, TypeVar

from ..algorithms.core.messages import Protocol, Start
from .codec import Codec, Frame
from .driver import ClientSide, Hooks, Offers, ServerSide, Signals, at_server

S = TypeVar("S")
C = TypeVar("C")


@dataclass
class InProcess:
    """Runs a job in one process, which is the server's place and every client's."""

    order: random.Random | None = None  # shuffles arrivals, in tests
    # rank, size, is_server: its number, the number of places, whether the server lives here
    rank: int = 0
    size: int = 1
    is_server: bool = True
    n_threads: int | None = None  # of kernels; None for all that the machine has
    hooks: Hooks | None = None  # of the latest protocol
    names: tuple[str, ...] = ()  # of the clients, as soon as they are known
    # that ask the job to end. A command catches them inside `with place.signals`, and none elsewhere
    signals: Signals = field(default_factory=Signals)

    def mine(self, n_clients: int) -> list[int]:
        """Returns the numbers of the clients that live here: all."""
        return list(range(n_clients))

    def leave_out(self, numbers: Sequence[int], names: tuple[str, ...]) -> None:
        """Goes on with the clients of these names; all of them live here."""
        self.names = names

    def stand_by(self) -> NoReturn:
        """Raises an error, since the server's place always has something to do."""
        raise RuntimeError("the process of a job without ranks is the server's place")

    def agree(self, configuration: bytes) -> None:
        """Checks nothing: no other place could have another configuration."""

    def settle(self, told: bytes, rule: Callable[[list[bytes]], bytes]) -> bytes:
        """Returns the result of the server's `rule` for what all places tell, of which this is the only one."""
        return rule([told])

    def choose(self, offers: Offers, rule: Callable[[Offers], int | None]) -> int | None:
        """Returns the result of the server's `rule` for the checkpoints that all parties offer, by number."""
        return rule(offers)

    def run_protocol(
        self, protocol: Protocol[S, C], start: Start[S] | None, clients: Mapping[int, C], codec: Codec, hooks: Hooks | None = None
    ) -> tuple[S | None, dict[int, C]]:
        """Runs a protocol to its end, as the function `run_protocol` does; a signal waits until the server's next question."""
        self.hooks = hooks = hooks or Hooks()
        with self.signals.held():
            return run_protocol(protocol, at_server(start), clients, codec, hooks, self.order, self.signals)


class InFlight(NamedTuple):
    """Holds a frame on its way between the server and a client."""

    to_client: bool  # or from it
    client: int
    frame: Frame


def run_protocol(
    protocol: Protocol[S, C],
    start: Start[S],
    clients: Mapping[int, C],
    codec: Codec,
    hooks: Hooks | None = None,
    order: random.Random | None = None,
    signals: Signals | None = None,
) -> tuple[S, dict[int, C]]:
    """Runs a protocol to its end. Raises LostPeer: a signal has stopped the run, and the hooks have a checkpoint; it has the exit
    code of a lost peer. Raises RemoteFault: a machine refused a message of another.

    Parameters
    ----------
    protocol
        The state machines of server and client.
    start
        The server's first state, and its first effects.
    clients
        Client number -> its first state, for all of them.
    codec
        Makes frames of messages, and messages of frames.
    hooks
        Budget, ledger, checkpoints, signals.
    order
        Shuffles which of the frames in flight arrives next. Between one client and the server they stay in order, as on any wire.
    signals
        If one is pending, the run ends with a checkpoint instead of the next question.

    Returns
    -------
    server, clients
        The last states.
    """
    hooks = hooks or Hooks()
    server, side = ServerSide(protocol, start, codec, hooks), ClientSide(protocol, clients, codec, hooks)
    flying: deque[InFlight] = deque()
    # A frame in flight belongs to an open question, so the server is not done then.
    while flying or not server.done:
        # The server sends when it has something to send, or when all its questions are answered.
        if server.unsent or not server.n_open:
            pending = signals.pending if signals else None
            server.stopping = server.stopping or pending
            flying += [InFlight(True, client, frame) for client, frame in server.outgoing()]
        # Nothing was sent: the server has finished, or a checkpoint without clients ends at the next turn.
        if not flying:
            continue
        if order:
            _bring_to_front(flying, order)
        to_client, client, frame = flying.popleft()
        if to_client:
            # Progress shows which client computes now.
            hooks.waiting((client,))
            _, answers = side.receive(frame)
            flying += [InFlight(False, client, answer) for answer in answers]
        else:
            # The server is told which clients live here, and nothing of their states.
            server.arrive(frame, side.clients.keys())
    return server.state, side.clients


def _bring_to_front(flying: deque[InFlight], order: random.Random) -> None:
    """Puts a frame before all others: the first of a lane (one direction of one client), which is chosen at random."""
    lane = flying[order.randrange(len(flying))][:2]
    index = next(i for i, item in enumerate(flying) if item[:2] == lane)
    item = flying[index]
    del flying[index]
    flying.appendleft(item)
