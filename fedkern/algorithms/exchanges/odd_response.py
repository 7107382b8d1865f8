"""Compares each client's response, or times, with those of all others together, where the server gets sums alone.

It follows the exchange of the response's level (`level`), from which the server knows sums over all rows, and no client's own. It
tells them to all clients. Each takes its own away, compares it with the rest by the rules by which a server compares clients in
a job without masks, and notes for its holder what is odd. The server learns, masked, at how many clients something is.

| response | first | second | third |
|---|---|---|---|
| measured | number of rows | mean | standard deviation |
| times | events | how long rows were seen | 0 |

As with columns (`column_sums`) a client that is far from the others may make all look odd. A doubt is only what is larger at one
client than at all others together, or, where there is none, what is surely odd at one alone; all else is a note.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, NamedTuple, cast

import numpy as np

from ...arrays import Array
from ...finding import Finding
from ..core import legs, once, tells
from ..core.legs import Leg, not_agreed
from ..core.masked import ALL, Masked, Sum
from ..core.messages import ClientEffects, Event, Message, Protocol, RemoteFault, ServerEffects

DIMS = {"block": 1}  # of columns
OTHERS = "all others together"


@dataclass(frozen=True)
class AskOddResponse(Message, kind=282):
    """Server to client: these are the numbers of all rows together (the module says which); is your response odd beside them?"""

    round: int
    first: float
    second: float
    third: float


@dataclass(frozen=True)
class MaskedOddResponse(
    Masked, Message, kind=283, tells=tells.Fact("whether its response, or times, are not as at all others").masked
):
    """Client to server: `Odd`, masked."""

    words: Annotated[bytes, "masked_odd_response"]


@dataclass(frozen=True)
class Odd:
    """Holds the answer, which is no message: no client's own ever travels."""

    round: int
    # notes, doubts, larger: (block,) 1 where anything can be said of a column, where that is a doubt of this client, and where it
    # is a doubt and the column is larger here, or varies more, than at all others together; else 0. Of all clients together their
    # numbers
    notes: Array
    doubts: Array
    larger: Array

    @classmethod
    def count(cls, dims: Mapping[str, int]) -> int:
        """Returns how many numbers are added."""
        return 3 * dims["block"]

    def numbers(self) -> Array:
        """Returns the numbers that are added."""
        return np.concatenate([self.notes, self.doubts, self.larger])

    @classmethod
    def of_sum(cls, round: int, numbers: Array, dims: Mapping[str, int]) -> Message:
        """Returns at how many clients each column is odd."""
        return cast(Message, cls(round, *np.split(numbers, 3)))


SUMS = (Sum(Odd, MaskedOddResponse),)


class Compared(NamedTuple):
    """Holds what a client finds, for its holder, whether that is a doubt of this client, and whether it has the larger."""

    notes: tuple[Finding, ...] = ()
    doubt: bool = False
    larger: bool = False


Compare = Callable[[float, float, float], Compared]


@dataclass(frozen=True)
class Client:
    """Compares by `compare`, which takes the three numbers of all rows; `notes` are for its holder alone."""

    compare: Compare = field(repr=False)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Server(Leg[Odd], answers=(Odd,), needs=not_agreed("the units of the response are")):
    """Holds the ids of a note and a doubt about `column`, in words; after the answer what was `found`."""

    note: str
    doubt: str
    column: str
    n_clients: int
    found: tuple[Finding, ...] = ()

    def combined(self, answers: list[Odd]) -> tuple[Server, ServerEffects]:
        """Judges by the numbers of clients at which the response is odd."""
        (odd,) = answers
        n = int(odd.notes[0])
        if is_doubt(odd.doubts[0], odd.larger[0]):
            return replace(self, found=(Finding.of(self.doubt, column=self.column),)), []
        if not n:
            return self, []
        return replace(self, found=(Finding.of(self.note, column=self.column, n=n, m=self.n_clients),)), []


def is_doubt(sure: float, larger: float) -> bool:
    """Tells whether no result can stand, by the numbers of clients at which a doubt is of the client, and varies more there."""
    return larger == 1 or (larger == 0 and sure == 1)


def start(ids: tuple[str, str], column: str, n_clients: int, numbers: tuple[float, float, float]) -> tuple[Server, ServerEffects]:
    """Returns the server's first state and its question, to all clients as one; `numbers`: of all rows."""
    return Server((ALL,), *ids, column, n_clients), once.ask(1, AskOddResponse(0, *numbers))


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Compares the client's own rows with all others."""
    if not isinstance(event, AskOddResponse):
        raise RemoteFault(f"server: {type(event).__name__} was not expected")
    found = state.compare(event.first, event.second, event.third)
    answer = Odd(event.round, *np.array([[bool(found.notes)], [found.doubt], [found.larger]], np.float64))
    return replace(state, notes=found.notes), [cast(Message, answer)]


def protocol() -> Protocol[Server, Client]:
    """Returns the protocol before it is masked, in which a bare answer travels: a run has it with masks alone."""
    return legs.protocol("odd-response", Server, (AskOddResponse,), (Odd,), client_receive)
