"""Describes a transport as a job sees it: one of its places. A process is all places at once, an MPI rank is one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn, Protocol, TypeVar

from ..algorithms.core import messages
from .codec import Codec
from .driver import Hooks, Offers, Signals

S = TypeVar("S")
C = TypeVar("C")
RELAYED = "fedkern.places:Spoke"  # as a policy names it


class Transport(Protocol):
    """Runs a protocol to its end, with a server or without one."""

    is_server: bool
    signals: Signals

    def run_protocol(
        self,
        protocol: messages.Protocol[S, C],
        start: messages.Start[S] | None,
        clients: Mapping[int, C],
        codec: Codec,
        hooks: Hooks | None = None,
    ) -> tuple[S | None, dict[int, C]]:
        """Returns the server's last state, where it lives, and those of the clients that live here."""


class Place(Transport, Protocol):
    """Stands for one place of a job: a whole process, or one rank.

    Attributes
    ----------
    rank, size, is_server : its number, the number of places, whether the server lives here
    n_threads : its share of the cores; None for all that the machine has
    names : of the clients, as soon as they are known
    hooks : of the latest protocol: they decide how much others read of a fault
    signals : that ask the job to end
    """

    rank: int
    size: int
    n_threads: int | None
    names: tuple[str, ...]
    hooks: Hooks | None

    @property
    def gathering(self) -> Transport:
        """The same places for protocols in which every place runs a copy of the server's part (allgather)."""

    def mine(self, n_clients: int) -> list[int]:
        """Returns the numbers of the clients that live here."""

    def leave_out(self, numbers: Sequence[int], names: tuple[str, ...]) -> None:
        """Goes on with the clients of these numbers, in this order, under the numbers 0, 1, .. where they live."""

    def stand_by(self) -> NoReturn:
        """Listens, at a place without a client, until the job ends, and then ends as all places do."""

    def agree(self, configuration: bytes) -> None:
        """Checks that all places have the same configuration, and sets the same level of instructions at all."""

    def settle(self, told: bytes, rule: Callable[[list[bytes]], bytes]) -> bytes:
        """Returns the result of the server's `rule` for what all places tell, in their order."""

    def choose(self, offers: Offers, rule: Callable[[Offers], int | None]) -> int | None:
        """Returns the result of the server's `rule` for the checkpoints that all parties offer, by number.

        Each place gives the numbers of its parties.
        """


def carrier(place: Place) -> str | None:
    """Returns "package.module:Class" of a place whose messages another package carries; None where fedkern does it.

    The site of a relay is fedkern's own, and its bytes go where the caller takes them: it counts as carried by others.

    Examples
    --------
    >>> from fedkern.transports.inprocess import InProcess
    >>> from fedkern.transports.place import carrier
    >>> carrier(InProcess()) is None
    True
    """
    kind = type(place)
    if kind.__module__.partition(".")[0] != "fedkern":
        return f"{kind.__module__}:{kind.__qualname__}"
    return RELAYED if kind.__module__ == "fedkern.transports.relay" else None
