"""Finds the row ids that all parties have, without a list of ids: private set intersection by points of a curve.

Each party has a secret key of its own. An id becomes a point of P-256, by SHA-256 of a counter, the job's seed and the id, at the
first counter whose digest is the x-coordinate of a point. In each leg every party holds one list: it multiplies the points by its
key and sorts them. After as many legs as there are parties each list has passed through all keys, and the points of an id that
all have are the same in all lists; whoever lacks one key cannot tell a point from a random one. The server finds the common
points. Marks of these then go back through the same parties, each of whom undoes its own sorting, until each list's owner reads
which of its rows they are.

Only x-coordinates travel: that of a multiple is the same for a point and its negative. All points of P-256 have the group's
prime order, so that no key shows in a small subgroup. Every list is filled up to the same length with points of texts that nobody
else can make: how many ids a party has is in no message. The server counts the points that any lists have in common, which tells
sizes and no id.
Parties follow the protocol, and are curious (semi-honest): one that puts in ids that it guesses learns which of them all have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from importlib import import_module
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from ...errors import JobError
from ..core import legs, once, tells
from ..core.kept import GIVEN
from ..core.legs import Leg, not_agreed
from ..core.messages import ClientEffects, Event, Message, Protocol, RemoteFault, ServerEffects

POINT = 32  # bytes of an x-coordinate

Order = NDArray[np.int64]
Marks = NDArray[np.bool_]


@dataclass(frozen=True)
class AskPoints(Message, kind=310):
    """Server to client."""

    round: int


@dataclass(frozen=True)
class Points(Message, kind=311):
    """Server to client: the list of another party, under the keys through which it has passed."""

    round: int
    points: Annotated[bytes, "points"]


@dataclass(frozen=True)
class Blinded(Message, kind=312, tells=tells.Fact("points of a curve for its row ids, under keys of several parties")):
    """Client to server: that list, or at first its own, under its key too, sorted; and the rows that it needs at least."""

    round: int
    least: int
    points: Annotated[bytes, "points"]


@dataclass(frozen=True)
class Common(Message, kind=313):
    """Server to client: how many ids all have, and which points of a list that it has sent are these."""

    round: int
    size: int
    marks: Annotated[bytes, "marks"]


@dataclass(frozen=True)
class Marked(
    Message,
    kind=314,
    tells=tells.Fact("which points, under keys of several parties, are of rows that all have", "how many of its rows all have"),
):
    """Client to server: which of the points that it was sent these are."""

    round: int
    marks: Annotated[bytes, "marks"]


def dims(most: int) -> dict[str, int]:
    """Returns the sizes of the messages where each party has at most so many ids."""
    return {"points": POINT * most, "marks": -(-most // 8)}


@cache
def _curve() -> Any:
    """Returns the module of curves, which is no part of a plain installation."""
    try:
        return import_module("cryptography.hazmat.primitives.asymmetric.ec")
    except ImportError as fault:
        raise JobError(f"data.most_ids needs the package cryptography ({fault}): pip install 'fedkern[secure]'") from None


def _new_key() -> Any:
    return _curve().generate_private_key(_curve().SECP256R1())


@dataclass(frozen=True)
class Member:
    """Is a party of the intersection: the state of a client, and a part of the server's where that has ids."""

    name: str  # of the party
    ids: tuple[str, ...] = field(repr=False)  # of its rows
    seed: int  # of the job, which makes points of another job others
    most: int  # the length of every list
    least: int = 1  # rows that all must have, or nobody is told which they are
    key: Any = field(default_factory=_new_key, repr=False, metadata=GIVEN)  # its secret
    orders: tuple[Order, ...] = field(default=(), repr=False)  # by leg, the place from which each point of the sorted list came
    kept: Order | None = None  # which of its rows all parties have, at the end

    def __post_init__(self) -> None:
        if len(self.ids) > self.most:
            raise JobError(f"{self.name}: it has more row ids than data.most_ids = {self.most}, the length of every list")

    def blinded(self, points: bytes | None = None) -> tuple[Member, bytes]:
        """Returns the party after one more leg, and the points of a list (by default its own) under its key, sorted."""
        curve = _curve()
        if points is None:
            opened = self._own()
        else:
            opened = [*map(_point, cut(points))]
            if len(opened) != self.most or None in opened:
                raise RemoteFault(f"a list must have {self.most} points of the curve")
        multiples = [self.key.exchange(curve.ECDH(), point) for point in opened]
        order = sorted(range(len(multiples)), key=multiples.__getitem__)
        member = replace(self, orders=(*self.orders, np.array(order, np.int64)))
        return member, b"".join(multiples[place] for place in order)

    def before(self, leg: int, marks: Marks) -> Marks:
        """Returns marks of the list that it sorted in a leg, by the places that points had before."""
        out = np.zeros(self.most, bool)
        out[self.orders[leg]] = marks
        return out

    def told(self, marks: Marks) -> Member:
        """Returns the party that knows which of its own rows are common, from marks of its list as it was first sorted."""
        common = np.flatnonzero(self.before(0, marks))
        if len(common) and common[-1] >= len(self.ids):
            raise RemoteFault("points are said to be common that are of no id")
        return replace(self, kept=common)

    def _own(self) -> list[Any]:
        """Returns the points of its ids, and of texts that only its key can make, up to the length of a list."""
        seed = self.seed.to_bytes(8, "little")
        texts = [b"\0" + text.encode("utf-8", "surrogatepass") for text in self.ids]
        secret = self.key.private_numbers().private_value.to_bytes(POINT, "little")
        texts += [b"\1" + sha256(secret + place.to_bytes(8, "little")).digest() for place in range(len(texts), self.most)]
        return [_hashed(seed, text) for text in texts]


def _hashed(seed: bytes, text: bytes) -> Any:
    """Returns the point of a text: at the first counter whose digest is the x-coordinate of one, every other time."""
    counter = 0
    while (point := _point(sha256(counter.to_bytes(4, "little") + seed + text).digest())) is None:
        counter += 1
    return point


def _point(x: bytes) -> Any:
    """Returns the point of the curve with this x-coordinate, and an even y; None where there is none."""
    curve = _curve()
    try:
        return curve.EllipticCurvePublicKey.from_encoded_point(curve.SECP256R1(), b"\2" + x)
    except ValueError:
        return None


@dataclass(frozen=True)
class Server(Leg[bytes], answers=(Blinded, Marked), needs=not_agreed("the common rows are")):
    """Is the server's state."""

    # most, least: see `Member`; `least` is the largest that any party has said
    most: int
    least: int
    own: Member | None = None  # the server as the last party, where it has ids
    lists: tuple[bytes, ...] = ()  # of each party, under all keys so far; later the marks of its common points
    size: int = 0  # how many ids all have

    @property
    def n_parties(self) -> int:
        """The number of parties with ids."""
        return len(self.clients) + (self.own is not None)

    @property
    def expected(self) -> type[Any]:
        """The kind of answer that this leg has."""
        return Blinded if self.leg < self.n_parties else Marked

    def checked(self, sender: int, content: Blinded | Marked) -> bytes:
        """Returns the points, or the marks, of an answer."""
        if isinstance(content, Marked):
            return bytes(content.marks)
        points = bytes(content.points)
        if len(points) != POINT * self.most or len({*cut(points)}) != self.most or not 1 <= content.least <= self.most:
            raise RemoteFault(f"Blinded must have {self.most} different points, and a number of rows that it needs")
        return points

    def receive(self, sender: int, event: Event) -> tuple[Server, ServerEffects]:
        """Takes one answer; what a client needs at least holds for all."""
        state = replace(self, least=max(self.least, event.least)) if isinstance(event, Blinded) else self
        return super(Server, state).receive(sender, event)

    def combined(self, answers: list[bytes]) -> tuple[Server, ServerEffects]:
        """Sends every list to the next party, or its marks to the one before; finds the common points in between."""
        K, leg = self.n_parties, self.leg
        if leg < K:
            # In a leg each party has turned the list of the party that many places before it.
            held, own = list(answers), self.own
            if own is not None:
                own, points = own.blinded(None if leg == 0 else self.lists[(K - 1 - leg) % K])
                held.append(points)
            lists = tuple(held[(party + leg) % K] for party in range(K))
            state = replace(self, own=own, lists=lists)
            if leg + 1 == K:
                return state._found()
            state, _ = state.ask(AskPoints(0))
            return state, [(k, Points(leg + 1, lists[(k - leg - 1) % K])) for k in range(len(self.clients))]
        return replace(self, lists=self._back(answers, 2 * K - 1 - leg))._tell(2 * K - 2 - leg)

    def _back(self, answers: list[bytes], turn: int) -> tuple[bytes, ...]:
        """Returns the marks of each list, by the places that its points had before the parties sorted them in a leg `turn`."""
        K, held = self.n_parties, list(answers)
        if self.own is not None:
            held.append(packed(self.own.before(turn, unpacked(self.lists[(K - 1 - turn) % K], self.most))))
        return tuple(held[(party + turn) % K] for party in range(K))

    def _found(self) -> tuple[Server, ServerEffects]:
        """Finds the points that all lists have; refuses where they are fewer than some party needs."""
        lists = [*map(cut, self.lists)]
        common = frozenset.intersection(*map(frozenset, lists))
        if len(common) < self.least:
            raise JobError(too_few("fewer rows are in all parties' files"))
        marks = tuple(packed(np.array([point in common for point in points], bool)) for points in lists)
        return replace(self, lists=marks, size=len(common))._tell(self.n_parties - 1)

    def _tell(self, turn: int) -> tuple[Server, ServerEffects]:
        """Sends the marks of each list to the party that turned it in the leg `turn`; the owner, at 0, has nothing to answer."""
        leg, K = 2 * self.n_parties - 1 - turn, self.n_parties
        effects: ServerEffects = [(k, Common(leg, self.size, self.lists[(k - turn) % K])) for k in range(len(self.clients))]
        if turn:
            return self.ask(AskPoints(0), leg=leg)[0], effects
        own = None if self.own is None else self.own.told(unpacked(self.lists[-1], self.most))
        return replace(self, own=own), effects


def too_few(what: str) -> str:
    """Returns the error where rows that are left are fewer than are asked for; it does not say how many."""
    return f"{what} than disclosure.rows, or a holder's policy, asks for; are the ids written the same at all parties?"


def cut(points: bytes) -> list[bytes]:
    """Returns the points of a list, one by one."""
    return [points[begin : begin + POINT] for begin in range(0, len(points), POINT)]


def packed(marks: Marks) -> bytes:
    """Returns marks in bytes of eight."""
    return np.packbits(marks).tobytes()


def unpacked(marks: bytes, most: int) -> Marks:
    """Returns `most` marks; RemoteFault if there are others."""
    if len(marks) != -(-most // 8):
        raise RemoteFault(f"there must be {most} marks")
    return np.unpackbits(np.frombuffer(marks, np.uint8), count=most).astype(bool)


def start(names: Sequence[str], most: int, least: int, own: Member | None = None) -> tuple[Server, ServerEffects]:
    """Asks everybody for its list."""
    needed = least if own is None else max(least, own.least)
    return Server(tuple(names), most, needed, own), once.ask(len(names), AskPoints(0))


def client_receive(state: Member, event: Event) -> tuple[Member, ClientEffects]:
    """Turns a list, or marks of one; at the end it knows which of its rows are common."""
    leg = len(state.orders)
    if isinstance(event, AskPoints) and leg == 0:
        state, points = state.blinded()
        return state, [Blinded(0, state.least, points)]
    if isinstance(event, Points) and event.round == leg > 0:
        state, points = state.blinded(bytes(event.points))
        return state, [Blinded(leg, state.least, points)]
    turn = 2 * leg - 1 - event.round if isinstance(event, Common) else -1
    if not isinstance(event, Common) or not 0 <= turn < leg or state.kept is not None:
        raise RemoteFault(f"server: {type(event).__name__} was not expected")
    marks = unpacked(bytes(event.marks), state.most)
    if event.size < state.least or int(marks.sum()) != event.size:
        raise RemoteFault("server: Common.size must be the number of marks, and at least what each party needs")
    if turn == 0:
        return state.told(marks), []
    return state, [Marked(event.round, packed(state.before(turn, marks)))]


PROTOCOL: Protocol[Server, Member] = legs.protocol(
    "intersection", Server, (AskPoints, Points, Common), (Blinded, Marked), client_receive
)
