"""Describes a transport as a job sees it: one of its places. A process is all places at once, an MPI rank is one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn, Protocol, TypeVar, runtime_checkable

from ..algorithms.core import messages
from ..algorithms.exchanges.sum_keys import Signer
from .codec import Codec
from .driver import Hooks, Offers, Signals

S = TypeVar("S")
C = TypeVar("C")
RELAYED = "fedkern.places:Spoke"  # as a policy names it


class Transport(Protocol):
    """Runs a protocol to its end, with a server or without one."""

    is_server: bool  # whether the server lives here
    signals: Signals  # that ask the job to end. They are held while a protocol runs: `with signals.held()`

    def run_protocol(
        self,
        protocol: messages.Protocol[S, C],
        start: messages.Start[S] | None,
        clients: Mapping[int, C],
        codec: Codec,
        hooks: Hooks | None = None,
    ) -> tuple[S | None, dict[int, C]]:
        """Runs a protocol; returns the server's last state, where it lives, and those of the clients that live here.

        The job calls it at all places, for the same protocols in the same order. At the server's place `ServerSide` has the
        frames that are to leave, and takes those that come, with the clients that live where they come from; elsewhere
        `ClientSide` answers each frame.

        Between a client and the server every frame arrives exactly once and in order, in either direction; between two clients
        any order will do. A frame that belongs to a protocol which has ended must not arrive in the next one.
        """


class Place(Transport, Protocol):
    """Stands for one place of a job: a whole process, or one rank.

    The job calls its methods from one thread, and at all places in the same order: `agree`, `settle` any number of times before
    and after it, `leave_out` and `stand_by` where clients take no part, `choose` where there are checkpoints, then `run_protocol`
    for one protocol after another.

    Nothing waits for ever. A place that is gone, or silent for too long, is a `LostPeer` at the others, or the loss of its
    clients (`ServerSide.lose`) where the server's machine can go on. Where a place has a method `heed_deadline`, the job calls it
    before `agree` with the seconds of `job.deadline`: how long is too long.

    What ends the job at one place ends it at all of them, with one exit code (`exit_code` of the error); the others read
    `hooks.public(error)`, and not the error's own text.

    Attributes
    ----------
    rank, size, is_server : its number, the number of places, whether the server lives here: at rank 0
    signals : that ask the job to end
    """

    rank: int
    size: int
    n_threads: int | None  # its share of the cores; None for all that the machine has. The job may lower it
    names: tuple[str, ...]  # of the clients, as soon as they are known: the job sets them before `agree`, for texts of errors
    hooks: Hooks | None  # of the latest protocol, or None: they decide how much others read of a fault. The job sets them, too

    def mine(self, n_clients: int) -> list[int]:
        """Returns the numbers of the clients that live here: each client lives at one place, known without a message."""

    def leave_out(self, numbers: Sequence[int], names: tuple[str, ...]) -> None:
        """Goes on with the clients of these numbers, in this order, under the numbers 0, 1, .. where they live.

        From now on `mine` goes by the new numbers, and `names` are the new names.
        """

    def stand_by(self) -> NoReturn:
        """Listens, at a place without a client, until the job ends, and then ends as all places do: it raises `Ended`."""

    def agree(self, configuration: bytes) -> None:
        """Checks that all places have the same configuration, and sets the same level of instructions at all.

        A place with another configuration, or another version of fedkern, ends the job with a JobError that names it. The level
        is the highest that all can use (`usable_levels`, `agree_on_level`, `use_level`): results depend on it.
        """

    def settle(self, told: bytes, rule: Callable[[list[bytes]], bytes]) -> bytes:
        """Returns the result of the server's `rule` for what all places tell, in the order of their ranks.

        It is for facts that all must know before the rounds: how a formula was read, who takes part, where the run's folder is.
        The rule is called once, at the server's place; what it raises ends the job at all of them. Up to a megabyte is told.
        """

    def choose(self, offers: Offers, rule: Callable[[Offers], int | None]) -> int | None:
        """Returns the result of the server's `rule` for the checkpoints that all parties offer, by number.

        Each place gives the numbers of its parties: clients, and `SERVER` at the server's. The rule is called as in `settle`.
        """


@runtime_checkable
class Identified(Protocol):
    """Is a place whose clients may have identities by which others know their keys."""

    def signer(self, client: int) -> Signer | None:
        """Returns the identity of a client that lives here; None where it has none."""


def signers(place: Place, n_clients: int) -> dict[int, Signer]:
    """Returns the identities by which clients that live here sign their keys; those that have none are left out."""
    if not isinstance(place, Identified):
        return {}
    return {k: signer for k in place.mine(n_clients) if (signer := place.signer(k)) is not None}


def may_sign(place: Place, n_clients: int) -> bool:
    """Tells whether clients may sign their keys: those that live here do, or they live elsewhere."""
    here = place.mine(n_clients)
    return isinstance(place, Identified) and len(signers(place, n_clients)) == len(here)


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
