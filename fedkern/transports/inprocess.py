"""Runs all parties in one process. Every message goes through the codec, so the bytes are those of the wire."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar

from ..algorithms.core.messages import Protocol, Start
from .codec import Codec, Frame
from .driver import ClientSide, Hooks, Offers, ServerSide, Signals, at_server

S = TypeVar("S")
C = TypeVar("C")


@dataclass
class InProcess:
    """Runs a job in one process, which is the server's place and every client's. `order` shuffles arrivals (tests)."""

    order: random.Random | None = None
    rank: int = 0
    size: int = 1
    is_server: bool = True
    n_threads: int | None = None  # whatever the machine has
    hooks: Hooks | None = None
    names: tuple[str, ...] = ()  # of the clients
    signals: Signals = field(default_factory=Signals)  # of a command; they say something only inside `with place.signals`

    @property
    def gathering(self) -> InProcess:
        """The transport without a server.

        In one process it is the same: one replica of the server's machine serves all clients.
        """
        return self

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
        """Does nothing, since no other place could disagree."""

    def settle(self, mine: bytes, rule: Callable[[list[bytes]], bytes]) -> bytes:
        """Returns the result of the server's `rule` for the bytes of all places, of which this is the only one."""
        return rule([mine])

    def choose(self, mine: Offers, rule: Callable[[Offers], int | None]) -> int | None:
        """Returns the result of the server's `rule` for the numbers that all parties offer."""
        return rule(mine)

    def run_protocol(
        self, protocol: Protocol[S, C], start: Start[S] | None, clients: Mapping[int, C], codec: Codec, hooks: Hooks | None = None
    ) -> tuple[S | None, dict[int, C]]:
        """Runs a protocol to its end, as the function `run_protocol` does, while signals are held."""
        with self.signals.held():
            return run_protocol(protocol, at_server(start), clients, codec, hooks, self.order, self.signals)


def run_protocol(
    protocol: Protocol[S, C],
    start: Start[S],
    clients: Mapping[int, C],
    codec: Codec,
    hooks: Hooks | None = None,
    order: random.Random | None = None,
    signals: Signals | None = None,
) -> tuple[S, dict[int, C]]:
    """Runs a protocol to its end.

    Parameters
    ----------
    protocol
        The machines.
    start
        The server's first state, and its first effects.
    clients
        Client number -> its first state, for all of them.
    codec
        The frames of this job.
    hooks
        Budget, ledger, checkpoints, signals.
    order
        Shuffles which of the frames in flight arrives next. Between one client and the server they stay in order, as on any wire.
    signals
        One of these ends the run with a checkpoint.

    Returns
    -------
    server, clients
        The last states.

    Raises
    ------
    LostPeer
        Stopped by a signal; the hooks hold a checkpoint.
    RemoteFault
        A machine refused a message of another.
    """
    hooks = hooks or Hooks()
    server, side = ServerSide(protocol, start, codec, hooks), ClientSide(protocol, clients, codec, hooks)
    flying: deque[tuple[bool, int, Frame]] = deque()  # whether to a client, which, frame
    while flying or not server.done:  # what flies is of a question that is open
        # The server sends when it has something to send, or when all its questions are answered.
        if server.held or not server.n_open:
            server.stopping = server.stopping or (signals.pending if signals else None)
            flying += [(True, client, frame) for client, frame in server.outgoing()]
        if not flying:
            continue
        if order:
            _forward(flying, order)
        to_client, client, frame = flying.popleft()
        if to_client:
            hooks.waiting((client,))
            flying += [(False, client, answer) for answer in side.receive(frame)[1]]
        else:
            server.arrive(frame, side.clients)
    return server.state, side.clients


def _forward(flying: deque[tuple[bool, int, Frame]], order: random.Random) -> None:
    """Puts the first frame of a lane, chosen at random, before all others."""
    lane = flying[order.randrange(len(flying))][:2]
    place = next(i for i, item in enumerate(flying) if item[:2] == lane)
    frame = flying[place]
    del flying[place]
    flying.appendleft(frame)
