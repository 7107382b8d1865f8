"""Aligns the rows of a vertical job: each party tells digests of its row ids, and the order of rows is then agreed.

A digest is BLAKE2b-128 of the id's text under a key from the job's seed: it keeps ids out of casual sight, not from somebody who
can guess them and knows the job file. All parties must have the same set of ids; each puts its rows in the order of the digests,
so files may be in any order. When they differ, every client is told which of its OWN digests others lack, and names these ids;
or, where the job leaves out rows that lack a cell (`common`), all go on with the rows that everybody has. A party leaves out its
own such rows before it tells any digest: an incomplete row looks like an absent one, and clients do not learn at which party.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from ...errors import JobError, OwnFault
from ...plain import Record
from ..core import legs, once, pieces, tells
from ..core.legs import Leg, not_agreed
from ..core.messages import ClientEffects, Event, Message, RemoteFault, ServerEffects

DIMS = pieces.DIMS
WIDTH = 32  # hexadecimal digits of a digest
SHOWN = 5  # parties in an error
LISTED = 1000  # ids that their own party is told
DIGESTS = "digests of its row ids"


@dataclass(frozen=True)
class AskIds(Message, kind=60):
    """Server to client."""

    round: int


@dataclass(frozen=True)
class Ids(pieces.Piece, kind=61, tells=tells.PerRow(DIGESTS, "which of all ids that are guessed it has", private=DIGESTS)):
    """Client to server: digests of its row ids, sorted; whether it has the response; where all use it, one digest of it."""


@dataclass(frozen=True)
class Places(Ids, kind=315, tells=tells.Fact("whether it has the response, and a digest of it where all clients use it")):
    """Client to server, instead, where all have the same rows already: digests of the rows' places, 0, 1, ..."""


@dataclass(frozen=True)
class Aligned(pieces.Piece, kind=62):
    """Server to client: which of the rows have no response; and which of this client's digests others lack."""


def digests(ids: Sequence[str], seed: int) -> list[str]:
    """Returns the digest of each id."""
    key = seed.to_bytes(8, "little")
    return [blake2b(text.encode("utf-8", "replace"), digest_size=WIDTH // 2, key=key).hexdigest() for text in ids]


def labels_of(y: NDArray[np.float64], seed: int) -> str:
    """Returns a digest of the response, in the agreed order of rows."""
    return blake2b(y.astype("<f8").tobytes(), digest_size=WIDTH // 2, key=seed.to_bytes(8, "little")).hexdigest()


def order(
    ids: Sequence[str], seed: int, who: str, places: Sequence[str], where: str = "", *, counted: bool = True
) -> NDArray[np.int64]:
    """Returns the agreed order of a party's rows.

    `where`: how a text for the party itself begins; `counted`: whether others may read how many rows are at fault. Raises
    OwnFault: an id stands in two rows, or is empty; the party itself is told which.
    """
    seen: dict[str, int] = {}
    alone, twice = [], []
    for row, text in enumerate(ids):
        if not text:
            alone.append(f"{places[row]}: the row has no id")
        elif text in seen:
            twice.append(f"id {text!r} stands in {places[seen[text]]} and in {places[row]}")
        else:
            seen[text] = row
    for bad, what, remedy in (
        (alone, "rows without an id", "every row needs one, the same at all parties"),
        (twice, "ids that stand in two rows", "an id names one row: remove one of them"),
    ):
        if bad:
            places_named = "\n  ".join(bad[:LISTED])
            fault = f"{len(bad)} {what}" if counted else what
            raise OwnFault(f"{who}: {fault}; {remedy}", f"{where or who}, {places_named}\n{remedy}")
    keys = digests(ids, seed)
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)


@dataclass(frozen=True)
class Client:
    """Is a client's state.

    `ids` are in the order of their digests; `response`: whether it has that column; `labels`: a digest of the response, if all
    clients use it; `counted`: whether others may read how many of its rows they lack; `common`: whether rows that others lack are
    left out; `placed`: whether ids are the rows' places. At the end `kept` are the numbers of the rows that stay.
    """

    name: str
    ids: tuple[str, ...]
    seed: int
    response: bool = False
    labels: str = ""
    counted: bool = True
    common: bool = False
    placed: bool = False
    pieces: tuple[bytes, ...] = ()
    aligned: bool = False
    kept: tuple[int, ...] = ()
    holder: int | None = None  # the client that tells the server the response, if one has to
    new: tuple[int, ...] = ()  # rows whose response is not known: they are predicted


@dataclass(frozen=True)
class Server(Leg[Record], answers=(Ids,), needs=not_agreed("the rows are")):
    """Is the server's state.

    `own`: the ids of its file in the agreed order, or None if it has no file; `new`: rows of it whose response is empty, at the
    end those among the rows that all have; `common`: see `Client`, and `kept` of its own rows.
    """

    seed: int
    own: tuple[str, ...] | None = None
    new: tuple[int, ...] = ()
    labels: str = ""
    counted: bool = True
    common: bool = False
    n_rows: int = 0
    kept: tuple[int, ...] = ()

    @property
    def holders(self) -> list[int]:
        """The clients that have the response."""
        return [k for k in sorted(self.replies) if self.replies[k]["response"]]

    def checked(self, sender: int, content: Record) -> Record:
        """Returns an answer with its digests apart."""
        pieces.fields("Ids", content, {"ids", "response", "labels"})
        texts = isinstance(content["ids"], str) and isinstance(content["labels"], str)
        if not texts or not isinstance(content["response"], bool) or len(content["ids"]) % WIDTH:
            raise RemoteFault("Ids must be digests and a truth value")
        return {**content, "ids": _split(content["ids"])}

    def combined(self, answers: list[Record]) -> tuple[Server, ServerEffects]:
        """Compares the parties' rows, and tells those with others which they are."""
        return _compared(self)


def start(
    names: tuple[str, ...],
    seed: int,
    ids: tuple[str, ...] | None,
    new: tuple[int, ...] = (),
    labels: str = "",
    *,
    counted: bool = True,
    common: bool = False,
) -> tuple[Server, ServerEffects]:
    """Asks everybody."""
    return Server(names, seed, ids, new, labels, counted, common), once.ask(len(names), AskIds(0))


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Sends the digests; then accepts the answer, or refuses with the names of its own rows."""
    if isinstance(event, AskIds):
        content = {"ids": "".join(digests(state.ids, state.seed)), "response": state.response, "labels": state.labels}
        return state, [(Places if state.placed else Ids)(0, *piece) for piece in pieces.cut(content)]
    if not isinstance(event, Aligned):
        raise RemoteFault(f"server: {type(event).__name__} was not expected")
    have, answer = pieces.add("server: Aligned", state.pieces, event)
    if answer is None:
        return replace(state, pieces=have), []
    _checked(state, answer)
    alone, known = set(_split(answer["alone"])), digests(state.ids, state.seed)
    if alone and not state.common:
        mine = [text for text, digest in zip(state.ids, known) if digest in alone]
        raise _alone(f"client {state.name!r}", mine, len(state.ids), answer["without"], state.counted)
    kept = tuple(row for row, digest in enumerate(known) if digest not in alone)
    return replace(state, pieces=(), aligned=True, kept=kept, holder=answer["holder"], new=tuple(answer["new"])), []


def _checked(state: Client, answer: Record) -> None:
    """Refuses a server's answer that cannot be: fields, types, ranges, and digests that this client has."""
    pieces.fields("server: Aligned", answer, {"alone", "without", "holder", "new"})
    alone, without, holder, new = (answer[name] for name in ("alone", "without", "holder", "new"))
    known = set(digests(state.ids, state.seed))
    if not isinstance(alone, str) or len(alone) % WIDTH or not set(_split(alone)) <= known:
        raise RemoteFault("server: Aligned.alone must be digests of this client's own rows")
    if not isinstance(without, str):
        raise RemoteFault("server: Aligned.without must be a text")
    if holder is not None and (not isinstance(holder, int) or isinstance(holder, bool) or holder < 0):
        raise RemoteFault("server: Aligned.holder must be the number of a client, or nothing")
    numbers = isinstance(new, list) and all(isinstance(row, int) and not isinstance(row, bool) for row in new)
    n_rows = len(state.ids) - len(set(_split(alone)))
    if not numbers or not all(a < b for a, b in itertools.pairwise([-1, *new, n_rows])):
        raise RemoteFault("server: Aligned.new must be numbers of rows, each once and in order")


def _compared(state: Server) -> tuple[Server, ServerEffects]:
    """Compares the parties' rows, and tells those with others which they are."""
    sets = {name: frozenset(state.replies[k]["ids"]) for k, name in enumerate(state.clients)}
    if state.own is not None:
        sets["the server"] = frozenset(digests(state.own, state.seed))
    # A row is used only if every party, and the server's file if it has one, has its id.
    common = frozenset.intersection(*sets.values())
    holder = state.holders[0] if state.holders else None
    effects: ServerEffects = []
    # Rows keep their order; the new ones are counted anew among those that are left.
    kept = tuple(row for row, digest in enumerate(digests(state.own or (), state.seed)) if digest in common)
    place = {row: k for k, row in enumerate(kept)}
    new = tuple(place[row] for row in state.new if row in place) if state.common else state.new
    called = {name: repr(name) for name in state.clients} | {"the server": "the server"}
    for k, name in enumerate(state.clients):
        alone = sorted(sets[name] - common)
        without = [called[other] for other in sets if sets[name] - sets[other]]
        names_told = "" if state.common else _some(without)
        content = {"alone": "".join(alone), "without": names_told, "holder": holder, "new": list(new)}
        effects += [(k, Aligned(0, *piece)) for piece in pieces.cut(content)]
    if state.common:
        return replace(state, n_rows=len(common), kept=kept, new=new), effects
    if state.own is not None and sets["the server"] - common:
        id_of = dict(zip(digests(state.own, state.seed), state.own))
        mine = [id_of[digest] for digest in sorted(sets["the server"] - common)]
        without = [repr(other) for other in sets if sets["the server"] - sets[other]]
        raise _alone("the server's file", mine, len(state.own), _some(without), state.counted)
    # Responses can be compared only where all parties have the same rows.
    if not any(sets[name] - common for name in state.clients):
        _same_response(state)
    return replace(state, n_rows=len(common), kept=kept), effects


def _same_response(state: Server) -> None:
    """Refuses parties that use the response and do not have the same one."""
    digest_of = {"the server": state.labels} | {repr(name): state.replies[k]["labels"] for k, name in enumerate(state.clients)}
    labelled = {who: labels for who, labels in digest_of.items() if labels}
    first = next(iter(labelled), "")
    for who, labels in labelled.items():
        if labels != labelled[first]:
            raise JobError(f"the response at {first} and at {who} is not the same, row for row; correct one of the files")


def _alone(who: str, mine: Sequence[str], n_rows: int, without: str, counted: bool = True) -> OwnFault:
    """Returns the error for rows of one party that others lack. Others read how many, and the party itself reads which."""
    remedy = "all parties of a vertical job need the same rows: remove these, or add them there"
    what = f"{len(mine)} of its {n_rows} rows are" if counted else "some of its rows are"
    ids = ", ".join(map(repr, mine[:LISTED]))
    return OwnFault(f"{who}: {what} not at {without}; {remedy}", f"{who}: {what} not at {without}: ids {ids}; {remedy}")


def _split(text: str) -> list[str]:
    return [text[begin : begin + WIDTH] for begin in range(0, len(text), WIDTH)]


def _some(texts: Sequence[str]) -> str:
    shown = ", ".join(texts[:SHOWN])
    return f"{shown}, ... ({len(texts)} in all)" if len(texts) > SHOWN else shown


PROTOCOL = legs.protocol("alignment", Server, (AskIds, Aligned), (Ids,), client_receive)
