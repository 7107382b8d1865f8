"""Lets all clients and the server agree, before the first round, on the columns and on their encoding.

A client sends the following as JSON in pieces of a fixed size (`pieces`), and writes it to its ledger:

* names and kinds of its columns, in its own order; in a private job nothing else (kinds are then the job file's, not seen in the
  rows);
* in a job that is not private, once all have the same columns: the levels of its categorical columns and the labels of its
  response, where the job file does not declare them. A binary response of 0 and 1 has no labels; of two others the labels of all
  clients decide which one counts as 1 (`event_of`);
* with standardise = "exchange" (never in a private job): its number of rows and the sum of each numeric column; then, when the
  server has told the pooled means, the sums of the deviations from them and of their squares. Two legs, because
  sum(x^2) - n mean^2 loses all digits where the mean is large against the spread; the deviations' own sums also correct the
  rounding of the first ones' means. From a client with one or two rows these sums are the values.

A column of labels of which some are numbers (0, 1, 2, 3+) is one of categories at all clients: a client all of whose cells are
numbers is told so with the second question, and tells its numbers as levels.

A file with other columns than the others' is refused before any number of its rows is sent. Columns are matched by name: those of
the job stand in the order that most clients have.

In these answers the server sees slips that nothing else shows (`compare`).

The server collects answers and computes from them in client order, so that the order of arrival can't change a bit. A client
accepts the agreed encoding only if its job file and its columns can lead to it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import labels
from ...errors import JobError, OwnFault, mark_party
from ...labels import event_of
from ...models.encoding import Column, Encoding, Kind, Spec
from ...plain import Record
from ..core import legs, pieces, tells
from ..core.kept import GIVEN, PersistentMap
from ..core.legs import Leg, not_agreed
from ..core.messages import ClientEffects, Event, RemoteFault, ServerEffects
from ..core.rounds import in_order
from .compare import Facts, spellings

# Lacking --------------------
# Handles covariates that some clients lack: if the model draws missing values, a whole column may be missing from a file.
#
# The columns are then those that any client has, in the order of the client with most of them. A client that lacks a numeric one
# has no value of it (`data.lacking`). A model of Gaussian values can draw no categorical one, so that its absence stays a fault.


Replies = Mapping[int, Record]


def with_lacking(replies: Replies) -> dict[int, dict[str, Any]]:
    """Returns every client's answer with `names` and `kinds` of the columns that others have."""
    most = sorted(replies, key=lambda k: (-len(replies[k]["names"]), k))
    order = list(dict.fromkeys(name for k in most for name in replies[k]["names"]))
    kinds = {name: kind for k in reversed(most) for name, kind in zip(replies[k]["names"], replies[k]["kinds"])}
    return {k: _filled(reply, order, kinds) for k, reply in replies.items()}


def _filled(reply: Record, order: Sequence[str], kinds: Mapping[str, str]) -> dict[str, object]:
    """Returns one client's answer with the numeric columns that it lacks."""
    kind_of = dict(zip(reply["names"], reply["kinds"]))
    names = [name for name in order if name in kind_of or kinds[name] == "numeric"]
    return {**reply, "names": names, "kinds": [kind_of.get(name, kinds[name]) for name in names]}


def _changed(names: Sequence[str], kinds: Sequence[str], changed: Collection[str], kind: str) -> list[str]:
    """Returns the kinds of columns, where some of them are of another kind."""
    return [kind if name in changed else before for name, before in zip(names, kinds)]


def may_lack(names: Sequence[str], kinds: Sequence[str], agreed: Encoding) -> bool:
    """Tells whether the agreed columns are a client's columns and others that it may lack."""
    kinds_here, kind_of = dict(zip(names, kinds)), {column.name: column.kind for column in agreed.columns}
    return kinds_here.items() <= kind_of.items() and all(
        kind_of[name] == "numeric" for name in kind_of.keys() - kinds_here.keys()
    )


# Columns --------------------


DIMS = pieces.DIMS

COLUMNS, ROWS, DEVIATIONS, DONE = 0, 1, 2, 3  # the legs
MIXED = "mixed"  # in the first answer: a category, of which some labels are numbers
KINDS = ("numeric", "categorical", MIXED)

NAMES = tells.Fact(
    "names, levels and labels of its columns", private="names of its columns"
)  # where standardise is not "exchange"
SUMS = tells.Sums(
    "names, levels and labels, and sums over this client's rows", "each column's values", tells.ONE_OR_TWO, NAMES.private
)


@dataclass(frozen=True)
class AskSchema(pieces.Piece, kind=1):
    """Server to client: a question about columns, one for each leg.

    Leg 0: which columns have you? Leg 1: which levels, labels and sums have your rows? Leg 2: `text` holds the pooled means;
    which are the sums of your deviations?
    """


@dataclass(frozen=True)
class SchemaReply(pieces.Piece, kind=2, tells=SUMS):
    """Client to server: the answer to one leg."""


@dataclass(frozen=True)
class Agreed(pieces.Piece, kind=3):
    """Server to client: the agreed encoding."""


TWO_LABELS = (
    "a response has the same two labels in all files, one of them positive: correct the cells of the file that differs, or "
    "[data] positive; of three or more make a column of two, or name causes of an event of survival times in [data] events"
)

TIMES = {AskSchema: 3, SchemaReply: 3}  # at most: names, levels and sums, deviations


@dataclass(frozen=True)
class Abreast:
    """Holds columns (n,) that are read side by side, as (n, p), some rows at a time: of many rows a copy would be as large."""

    columns: tuple[NDArray[Any], ...]
    n: int

    @property
    def shape(self) -> tuple[int, int]:
        """(n, p)."""
        return self.n, len(self.columns)

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        parts = [column[rows] for column in self.columns]
        return np.stack(parts, axis=1) if parts else np.empty((len(range(*rows.indices(self.n))), 0))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype)


@dataclass(frozen=True)
class Summary:
    """Holds the part of a table that a client may tell.

    `numeric` (n, p) and `counts` (n,) are rows, and no field of a message: the values of the numeric columns, and how many rows
    each stands for in sums (its trials where the response is a number of successes, and 0 if it weighs nothing). `mixed`: columns
    of labels of which some are numbers. `levels_of` gives the levels of a numeric column that is one of categories elsewhere, or
    raises OwnFault; `numbers` are those columns.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    numeric: np.ndarray | Abreast | None = None
    counts: NDArray[np.float64] | None = None
    mixed: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()
    levels_of: Callable[[str], tuple[str, ...]] = field(default=lambda name: (), compare=False)

    def with_categories(self, names: Collection[str]) -> Summary:
        """Returns the same where some of its numeric columns are of categories; without their levels."""
        numeric = [name for name, kind in zip(self.names, self.kinds) if kind == "numeric"]
        converted = [j for j, name in enumerate(numeric) if name in names]
        if not converted:
            return self
        kinds = tuple(_changed(self.names, self.kinds, names, "categorical"))
        left = None if self.numeric is None else np.delete(np.asarray(self.numeric), converted, axis=1)
        return replace(self, kinds=kinds, numeric=left, numbers=self.numbers.union(numeric[j] for j in converted))

    @property
    def n_rows(self) -> int:
        """The number of rows in its sums."""
        assert self.numeric is not None
        return self.numeric.shape[0] if self.counts is None else int(self.counts.sum())


@dataclass(frozen=True)
class Client:
    """Is a client's state.

    After `Agreed`, `encoding` is the answer and the rows are let go. `name` is for the texts of errors.
    """

    spec: Spec = field(metadata=GIVEN)
    summary: Summary = field(metadata=GIVEN)
    encoding: Encoding | None = None
    pieces: tuple[bytes, ...] = field(default=(), metadata=GIVEN)
    name: str = field(default="", metadata=GIVEN)


@dataclass(frozen=True)
class Server(Leg[Record], answers=(SchemaReply,), needs=not_agreed("the columns are")):
    """Is the server's state.

    `order[k]` are the places of the agreed numeric columns among client k's own, where it has another order; `sizes[k]` its
    number of rows; `facts` are those that are compared between clients.
    """

    spec: Spec = field(metadata=GIVEN)
    order: PersistentMap[int, tuple[int, ...]] = field(default_factory=PersistentMap)
    columns: tuple[Column, ...] = ()
    positive: str | None = None
    labels: tuple[str, ...] = ()
    rows: int = 0
    means: tuple[float, ...] = ()
    encoding: Encoding | None = None
    sizes: tuple[int, ...] = ()
    facts: Facts = field(default=Facts(()), metadata=GIVEN)

    @property
    def done(self) -> bool:
        """Whether the encoding is agreed."""
        return self.encoding is not None

    def checked(self, sender: int, content: dict[str, Any]) -> Record:
        """Returns a client's answer with its sums in the agreed order of the columns."""
        return _in_agreed_order(self, sender, _checked("SchemaReply", content, self))

    def combined(self, answers: list[Record]) -> tuple[Server, ServerEffects]:
        """Sends the next question, or the agreed encoding. Raises JobError: the clients' columns, kinds or labels do not fit
        together, or something needed is not public."""
        if self.leg == COLUMNS:
            return _columns_known(self)
        if self.leg == ROWS:
            return _rows_known(self)
        # The last leg: the clients' sums are still apart.
        return _agree(replace(self, facts=_facts(self)), _deviations_known(self))


def start(spec: Spec, clients: tuple[str, ...]) -> tuple[Server, ServerEffects]:
    """Returns the server's first state and its questions. `clients`: their names, in order."""
    return _to_all(Server(clients, spec), AskSchema, COLUMNS, {})


def _to_all(
    state: Server,
    kind: type[AskSchema | Agreed],
    leg: int,
    content: Mapping[str, object],
    by_client: Mapping[int, Mapping[str, object]] = MappingProxyType({}),
) -> tuple[Server, ServerEffects]:
    """Returns a message to every client, in pieces. `by_client`: the content for clients that get another one."""
    cuts = dict.fromkeys(range(len(state.clients)), pieces.cut(content))
    cuts |= {k: pieces.cut(contents) for k, contents in by_client.items()}
    return state, [(k, kind(leg, *piece)) for k, pieces_of_it in cuts.items() for piece in pieces_of_it]


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Answers a question about columns, or keeps the agreed encoding. Raises RemoteFault: a malformed question; or an encoding
    that cannot come from this client's job file and columns."""
    if not isinstance(event, AskSchema | Agreed) or state.encoding is not None:
        raise RemoteFault(f"server: {type(event).__name__} came after the columns were agreed")
    have, content = pieces.add(f"server: {type(event).__name__}", state.pieces, event)
    state = replace(state, pieces=have)
    if content is None:
        return state, []
    if isinstance(event, Agreed):
        try:
            encoding = Encoding.from_dict(content)
        except ValueError as fault:
            raise RemoteFault(f"server: Agreed.text: {fault}") from fault
        _compare(state.spec, state.summary, encoding)
        _check_numbers(state, encoding)
        return replace(state, encoding=encoding, summary=replace(state.summary, numeric=None, counts=None)), []
    if event.round == ROWS and (categories := _categories(state, content)):
        levels = {name: state.summary.levels_of(name) for name in categories}
        summary = state.summary.with_categories(categories)
        state = replace(state, summary=replace(summary, levels={**summary.levels, **levels}))
    summary = state.summary
    # The client's own job file decides what is answered, never the question alone.
    wanted = _wanted(state.spec, summary.names, summary.kinds)
    if event.round == COLUMNS:
        kinds = _changed(summary.names, summary.kinds, summary.mixed, MIXED)
        answer: dict[str, object] = {"names": list(summary.names), "kinds": kinds}
    elif event.round == ROWS and wanted:
        answer = _description(state, wanted)
    elif event.round == DEVIATIONS and "sums" in wanted:
        answer = _deviations(state, content)
    else:
        raise RemoteFault(f"server: AskSchema.round is {event.round}, of which this client's job file says nothing")
    return state, [SchemaReply(event.round, *piece) for piece in pieces.cut(answer)]


def _categories(state: Client, content: Mapping[str, object]) -> list[str]:
    """Returns which of the columns that are of categories at others are of numbers here; RemoteFault where the job says more."""
    categories = pieces.texts("server: AskSchema", "categories", content.get("categories", []))
    if categories and (state.spec.private or {*categories} & state.spec.columns.keys()):
        raise RemoteFault("server: AskSchema.categories are no columns whose kind this client's job file leaves open")
    return [name for name, kind in zip(state.summary.names, state.summary.kinds) if kind == "numeric" and name in categories]


def _compare(spec: Spec, summary: Summary, agreed: Encoding) -> None:
    """Raises RemoteFault if this job file, with these columns, cannot lead to that encoding.

    The text says nothing of the client's file.
    """

    def same(what: str, came: object, wanted: object) -> None:
        if came != wanted:
            raise RemoteFault(f"server: Agreed.{what} is {came!r}, this client's job file says {wanted!r}")

    # The roles come from the job file alone, and so must agree exactly.
    for name in ("response", "family", "offset", "weight", "row_id", "intercept", "trials"):
        same(name, getattr(agreed, name), getattr(spec, name))
    same("joined", agreed.joined, {})  # that is agreed on later (`rare_levels`)
    positive = _event(agreed.labels) if spec.undecided else spec.positive
    same("positive", agreed.positive, positive)
    # A client may lack covariates only where values may be missing.
    columns_here = sorted(zip(summary.names, summary.kinds))
    lacks = spec.missing and may_lack(summary.names, summary.kinds, agreed)
    if sorted((c.name, c.kind) for c in agreed.columns) != columns_here and not lacks:
        raise RemoteFault("server: Agreed.columns are not the covariates of this client, by name and kind")
    # Constants and levels are compared as far as this job file declares them.
    for j, column in enumerate(agreed.columns):
        known = spec.columns.get(column.name, Column(column.name, column.kind))
        if column.levels is not None:
            _compare_texts(f"columns[{j}].levels", column.levels, known.levels, summary.levels.get(column.name, ()), spec.private)
        elif spec.standardise == "none":
            same(f"columns[{j}]", column.constants, (0.0, 1.0))
        elif known.center is not None:
            same(f"columns[{j}]", column.constants, known.constants)
        elif spec.standardise == "public":
            raise RemoteFault(f"server: Agreed.columns[{j}] has constants, of which this client's job file knows nothing")
    # Labels that nobody declared must at least hold this client's.
    labels = spec.declared_labels
    if spec.undecided:
        _compare_texts("labels", agreed.labels, None, summary.labels)
    elif labels is not None or spec.private or spec.positive is None:
        same("labels", agreed.labels, labels or ())
    elif agreed.labels or spec.positive in summary.labels:
        _compare_texts("labels", agreed.labels, None, summary.labels)


def _check_numbers(state: Client, agreed: Encoding) -> None:
    """Refuses a column of numbers of which one is two labels at other clients: here nobody can tell which."""
    for column in agreed.columns:
        held = {*state.summary.levels.get(column.name, ())} if column.name in state.summary.numbers else set[str]()
        if same := next((same for same in spellings(column.levels or ()) if held.intersection(same)), None):
            what = f"its cells are numbers here, and at other clients {' and '.join(same)} are two labels; declare its levels"
            raise _fault_of(state, column.name, what)


def _fault_of(state: Client, name: str, what: str) -> OwnFault:
    """Returns the fault of one of a client's columns, whose name others read where the job file has it."""
    who = f"client {state.name!r}: " if state.name else ""
    return OwnFault(f"{who}{name_openly(name, state.summary.names, state.spec)}: {what}", f"{who}column {name!r}: {what}")


def _compare_texts(
    what: str, came: tuple[str, ...], declared: tuple[str, ...] | None, held: tuple[str, ...], private: bool = False
) -> None:
    """Refuses declared levels that were changed, and levels of clients that lack some of this one's."""
    good = came == declared if declared is not None else len(set(came)) == len(came) and set(held) <= set(came)
    if not good or (private and declared is None):
        raise RemoteFault(f"server: Agreed.{what} are not those of this client's job file, or lack some of its own")


def _wanted(spec: Spec, names: Sequence[str], kinds: Sequence[str]) -> set[str]:
    """Returns the names of the facts that clients must tell of their rows; none if the job file says all."""
    if spec.private:
        return set()
    wanted = {"levels"} if any(_open_levels(spec, name, kind) for name, kind in zip(names, kinds)) else set()
    if spec.undecided or (spec.positive is not None and spec.declared_labels is None):
        wanted.add("labels")
    if spec.standardise == "exchange" and any(k == "numeric" and not spec.complete(name) for name, k in zip(names, kinds)):
        wanted |= {"rows", "sums"}
    return wanted


def count_legs(spec: Spec, names: Sequence[str], kinds: Sequence[str]) -> int:
    """Returns how many questions the exchange takes, one after another, where clients have these columns."""
    wanted = _wanted(spec, names, kinds)
    return 1 + bool(wanted) + ("sums" in wanted)


def _open_levels(spec: Spec, name: str, kind: str) -> bool:
    """Tells whether a column's levels come from the clients' rows."""
    return kind == "categorical" and not spec.complete(name)


def _description(state: Client, wanted: set[str]) -> dict[str, object]:
    """Returns a client's answer to leg 1."""
    spec, summary = state.spec, state.summary
    out: dict[str, object] = {}
    if "levels" in wanted:
        open_ones = [name for name, kind in zip(summary.names, summary.kinds) if _open_levels(spec, name, kind)]
        out["levels"] = {name: list(summary.levels.get(name, ())) for name in open_ones}
    if "labels" in wanted:
        out["labels"] = list(summary.labels)
    if "sums" in wanted:
        if summary.numeric is None:
            raise ValueError("agreement: a client that exchanges statistics needs its numeric columns")
        sums, _ = moments(summary, np.zeros(summary.numeric.shape[1]))
        out |= {"rows": summary.n_rows, "sums": _finite(state, sums)}
    return out


def _deviations(state: Client, content: Mapping[str, object]) -> dict[str, object]:
    """Returns a client's answer to leg 2."""
    summary = state.summary
    means = pieces.floats("server: AskSchema", "means", content.get("means"), summary.kinds.count("numeric"))
    sums, squares = moments(summary, np.array(means))
    return {"sums": _finite(state, sums), "squares": _finite(state, squares)}


def moments(summary: Summary, center: NDArray[np.float64], block: int = 4096) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns sums of x - center and of their squares, (p,) each, in one pass by blocks of rows."""
    x = summary.numeric
    if x is None:
        raise ValueError("agreement: a client that exchanges statistics needs its numeric columns")
    sums, squares = np.zeros_like(center), np.zeros_like(center)
    with np.errstate(over="ignore", invalid="ignore"):
        for begin in range(0, x.shape[0], block):
            part = x[begin : begin + block] - center
            if summary.counts is not None:
                copies = summary.counts[begin : begin + block]
                sums += copies @ part
                squares += np.einsum("i,ij,ij->j", copies, part, part)
                continue
            sums += part.sum(axis=0)
            squares += np.einsum("ij,ij->j", part, part)
    return sums, squares


def _finite(state: Client, sums: NDArray[np.float64]) -> list[float]:
    """Returns sums as a list; raises OwnFault that names a column whose values are too large to be summed."""
    names = state.summary.names
    for j in np.flatnonzero(~np.isfinite(sums)):
        name = [name for name, kind in zip(names, state.summary.kinds) if kind == "numeric"][j]
        raise _fault_of(state, name, "its values are too large to be summed; give them in another unit")
    values: list[float] = sums.tolist()
    return values


def _columns_known(state: Server) -> tuple[Server, ServerEffects]:
    """Compares the columns, which all clients have told, and asks for the facts that only rows can give."""
    mixed = {name for reply in in_order(state.replies) for name, kind in zip(reply["names"], reply["kinds"]) if kind == MIXED}
    content = {"categories": sorted(mixed)} if mixed else {}
    if mixed:
        state = replace(state, replies=PersistentMap({k: _with_kinds(reply, mixed) for k, reply in state.replies.items()}))
    if state.spec.missing:
        state = replace(state, replies=PersistentMap(with_lacking(state.replies)))
    _check_columns(state)
    names, kinds = _most_frequent(state)
    numeric = [name for name, kind in zip(names, kinds) if kind == "numeric"]
    others = {k: reply for k, reply in state.replies.items() if tuple(reply["names"]) != names}
    order = PersistentMap({k: _places(numeric, reply) for k, reply in others.items()})
    columns = tuple(Column(name, kind) for name, kind in zip(names, kinds))
    state = replace(state, columns=columns, order=order, replies=PersistentMap())
    if not _wanted(state.spec, names, kinds):
        return _agree(state, tuple(_joined(state, column, []) for column in state.columns))
    return _to_all(replace(state, leg=ROWS), AskSchema, ROWS, content)


def _with_kinds(reply: Record, categories: Collection[str]) -> Record:
    """Returns a client's answer with the kinds that columns have at all clients."""
    return {**reply, "kinds": _changed(reply["names"], reply["kinds"], categories, "categorical")}


def _rows_known(state: Server) -> tuple[Server, ServerEffects]:
    """Joins levels and labels, and asks for deviations if constants are to be exchanged."""
    replies = in_order(state.replies)
    columns = tuple(_joined(state, column, replies) for column in state.columns)
    open_ones = [column for column in columns if column.levels is not None and not state.spec.complete(column.name)]
    levels = tuple(
        (column, tuple(tuple(reply.get("levels", {}).get(column.name, ())) for reply in replies)) for column in open_ones
    )
    labels = _labels(state, replies)
    positive = _event(labels) if state.spec.undecided else state.spec.positive
    state = replace(state, columns=columns, positive=positive, labels=labels, facts=Facts(state.clients, levels=levels))
    if not any(column.center is None for column in columns if column.kind == "numeric"):
        return _agree(state, columns)
    rows = sum(reply["rows"] for reply in replies)
    means = tuple(math.fsum(sums) / rows for sums in zip(*(reply["sums"] for reply in replies)))
    sizes = tuple(reply["rows"] for reply in replies)
    state = replace(state, leg=DEVIATIONS, rows=rows, means=means, sizes=sizes, replies=PersistentMap())
    contents = {k: {"means": [means[j] for j in np.argsort(places)]} for k, places in state.order.items()}
    return _to_all(state, AskSchema, DEVIATIONS, {"means": means}, contents)


def _facts(state: Server) -> Facts:
    """Returns the facts with the sums that clients have told of their numeric columns."""
    replies = in_order(state.replies)
    columns = tuple(column for column in state.columns if column.kind == "numeric")
    sums, squares = (np.array([reply[name] for reply in replies], np.float64) for name in ("sums", "squares"))
    sizes, centre = np.array(state.sizes, np.float64), np.array(state.means)
    return Facts(state.clients, columns, sizes, centre, sums, squares, state.spec.derived, state.facts.levels)


def _places(numeric: Sequence[str], reply: Record) -> tuple[int, ...]:
    """Returns the places of the agreed numeric columns among a client's own."""
    numeric_here = [name for name, kind in zip(reply["names"], reply["kinds"]) if kind == "numeric"]
    place = {name: i for i, name in enumerate(numeric_here)}
    return tuple(place[name] for name in numeric)


def _in_agreed_order(state: Server, client: int, content: dict[str, Any]) -> dict[str, object]:
    """Returns a client's sums, in the agreed order of the columns."""
    places = state.order.get(client)
    if places is None:
        return content
    ordered = ("sums", "squares")
    return content | {name: [content[name][i] for i in places] for name in ordered if name in content}


def name_openly(name: str, names: Sequence[str], spec: Spec) -> str:
    """Names a covariate as every party may read it: by its name if the job file has it, else by its place."""
    return f"column {name!r}" if name in spec.known else f"covariate no. {list(names).index(name) + 1}"


def _most_frequent(state: Server) -> tuple[tuple[str, ...], tuple[Kind, ...]]:
    """Returns names and kinds as most clients have them; between equally frequent ones, those that came first."""
    counts = Counter((tuple(state.replies[k]["names"]), tuple(state.replies[k]["kinds"])) for k in range(len(state.clients)))
    return max(counts, key=counts.__getitem__)


def _check_columns(state: Server) -> None:
    """Refuses columns that are not, in any order, those that most clients have."""
    # The most frequent header is taken as right: the text is to blame the client that differs.
    shapes = [(tuple(state.replies[k]["names"]), tuple(state.replies[k]["kinds"])) for k in range(len(state.clients))]
    names, kinds = _most_frequent(state)
    wanted = dict(zip(names, kinds))
    example = state.clients[shapes.index((names, kinds))]
    for client, (others, other_kinds) in zip(state.clients, shapes):
        if (others, other_kinds) == (names, kinds):
            continue
        having = frozenset(others)
        lacks, has = [name for name in names if name not in having], [name for name in others if name not in wanted]
        if lacks or has:
            raise _of_other_names(state, client, lacks, has, (example, names, others))
        for name, kind in zip(others, other_kinds):
            if kind != wanted[name]:
                what = f"{name_openly(name, names, state.spec)} is {kind}"
                raise JobError(
                    f"client {client!r}: {what}, at client {example!r} it is {wanted[name]}; "
                    "write it alike in all files: numbers, or the same labels (numbers that are codes are labels: kind = "
                    '"categorical" in [data.columns.NAME])'
                )


def _of_other_names(
    state: Server, client: str, lacks: Sequence[str], has: Sequence[str], about: tuple[str, Sequence[str], Sequence[str]]
) -> OwnFault:
    """Returns the fault of a client that lacks covariates of most others, or has more; its own folder gets its own names.

    A header may be a row, in a file without one: others read of it no name that the job file does not have. `about`: the client
    whose columns most have, these columns, and the columns of `client`.
    """
    example, names, others = about
    listed = ", ".join(f"{name!r} (covariate no. {list(others).index(name) + 1})" for name in has)
    if lacks and has:
        near = max(has, key=lambda name: SequenceMatcher(None, name.lower(), lacks[0].lower()).ratio())
        reason = (
            f"{name_openly(lacks[0], names, state.spec)} of client {example!r} is missing, while its own "
            f"{name_openly(near, others, state.spec)} is not at client {example!r}: where these are one column, give it one name "
            "in all files (capitals count); where they are not, add the one and remove the other, or ignore both in [data]"
        )
    elif lacks:
        reason = f"{name_openly(lacks[0], names, state.spec)} of client {example!r} is missing; add it, or ignore it in [data]"
    else:
        reason = f"{name_openly(has[0], others, state.spec)} is not at client {example!r}; remove it, or ignore it in [data]"
    begin = f"client {client!r}: {reason}"
    fault = OwnFault(begin, f"{begin}; its covariates that client {example!r} lacks: {listed or 'none'}")
    mark_party(fault, state.clients.index(client))
    return fault


def _joined(state: Server, column: Column, replies: list[Record]) -> Column:
    """Returns a column with all that is known of it but exchanged constants."""
    spec, name, declared = state.spec, column.name, state.spec.columns.get(column.name, Column(column.name))
    if column.kind == "categorical":
        if declared.levels is not None:
            return declared
        if spec.private:
            raise JobError(spec.undeclared)
        return Column(name, "categorical", join_levels([reply["levels"].get(name, ()) for reply in replies]))
    if spec.standardise == "none":
        return Column(name, "numeric", None, 0.0, 1.0)
    if spec.standardise == "public" and declared.center is None:  # a client has seen to it before
        raise JobError(
            'a covariate has no constants: standardise = "public" needs center and scale (or lower and upper) of each in '
            '[data.columns.NAME], levels = [...] if it is categorical, or set [data] standardise = "none"'
        )
    return Column(name, "numeric", None, declared.center, declared.scale)


def join_levels(of_clients: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Returns the levels of all clients: in the order of those whose tables give them one, or else sorted.

    A client tells levels in the order that its table gives them, or else sorted. Orders are joined where they agree, and where
    they say of each two levels which comes first.
    """
    in_order = labels.in_order(set().union(*of_clients))
    orders = [levels for levels in of_clients if list(levels) != labels.in_order(levels)]
    joined = [*sorted(orders, key=len)[-1]] if orders else []
    agree = all([level for level in joined if level in order] == list(order) for order in orders)
    order = joined if agree and labels.in_order(joined) == in_order else in_order
    return tuple(order)


def _labels(state: Server, replies: list[Record]) -> tuple[str, ...]:
    """Returns the two labels of a response; none where they are 0 and 1, or where no client has the positive one."""
    spec = state.spec
    if not spec.undecided and (spec.positive is None or spec.declared_labels is not None):
        return ()
    counts = Counter(label for reply in replies for label in reply["labels"])
    positive = spec.positive if spec.positive is not None else max(counts, key=lambda label: (counts[label], label), default=None)
    if len(counts) > 2 or (len(counts) == 2 and positive not in counts):
        rarest = min(counts.keys() - {positive}, key=lambda label: (counts[label], label))
        client = next(name for name, reply in zip(state.clients, replies) if rarest in reply["labels"])
        raise JobError(
            f"client {client!r}: {spec.response!r} has a label too many: all clients together have {len(counts)} labels"
            f"{_positive(spec)}; {TWO_LABELS}"
        )
    silent = [name for name, reply in zip(state.clients, replies) if not reply["labels"]]
    listed = [tuple(reply["labels"]) for reply in replies]
    if spec.undecided and silent and len(counts) == 1 and str(positive).lstrip("-").isdigit():
        # Of 1 and 2 a file of 1 alone says nothing, as one of 0 and 1, which then refuses these labels itself.
        listed, counts = [*listed, ("1",)], counts + Counter("1")
    if spec.undecided and silent and counts and not counts.keys() & {"0", "1"}:
        other = next(name for name in state.clients if name not in silent)
        raise JobError(
            f"client {other!r}: {spec.response!r} has labels, and 0 and 1 at client {silent[0]!r}; write the same two labels, or "
            "0 and 1, in all files"
        )
    if spec.undecided and len(counts) == 1:
        raise JobError(
            f"{spec.response!r} has one label at all clients, {positive!r}, and a binary response has two: see whether it is the "
            "response, or name the label that counts as 1 in [data] positive"
        )
    return join_levels(listed) if positive in counts else ()


def _positive(spec: Spec) -> str:
    return "" if spec.positive is None else f", and positive = {spec.positive!r}"


def _event(labels: Sequence[str]) -> str | None:
    return event_of(labels) if labels else None


def _deviations_known(state: Server) -> tuple[Column, ...]:
    """Returns the columns with their standardising constants.

    These are mean and standard deviation (divisor n) of all rows together.
    """
    replies = in_order(state.replies)
    sums, squares = (map(math.fsum, zip(*(reply[name] for reply in replies))) for name in ("sums", "squares"))
    rest = iter([standardise(*moments_of, state.rows) for moments_of in zip(state.means, sums, squares)])
    return tuple(_with(column, *next(rest)) if column.kind == "numeric" else column for column in state.columns)


def standardise(mean: float, sums: float, squares: float, rows: float) -> tuple[float, float]:
    """Returns mean and standard deviation of a column, by sums over all rows of the deviations from `mean` and of their squares;
    0 where it has one value."""
    shift = sums / rows
    variance = max(squares / rows - shift * shift, 0.0)
    tiny = (1e-14 * abs(mean)) ** 2  # what rounding leaves of a constant column
    return mean + shift, math.sqrt(variance) if variance > tiny else 0.0


def _with(column: Column, mean: float, sd: float) -> Column:
    """Returns the column with exchanged constants, unless the job file gives its own."""
    return column if column.center is not None else column.scaled(mean, sd)


def _agree(state: Server, columns: tuple[Column, ...]) -> tuple[Server, ServerEffects]:
    """Sends the agreed encoding to all."""
    encoding = state.spec.encoding(columns)
    if state.labels:
        encoding = replace(encoding, positive=state.positive, labels=state.labels)
    state = replace(state, leg=DONE, columns=columns, replies=PersistentMap(), encoding=encoding)
    return _to_all(state, Agreed, DONE, encoding.to_dict())


def _checked(who: str, content: dict[str, Any], state: Server) -> dict[str, Any]:
    """Returns a client's answer after a check of every field."""
    # Every leg has fields of its own; nothing else may come with them.
    if state.leg == DEVIATIONS:
        pieces.fields(who, content, {"sums", "squares"})
        out = {name: pieces.floats(who, name, content[name], len(state.means)) for name in ("sums", "squares")}
        if min(out["squares"], default=0.0) < 0:
            raise RemoteFault(f"{who}: squares must be >= 0")
        return out
    if state.leg == COLUMNS:
        pieces.fields(who, content, {"names", "kinds"})
        names, kinds = pieces.texts(who, "names", content["names"]), content["kinds"]
        if not isinstance(kinds, list) or len(kinds) != len(names) or not all(k in KINDS for k in kinds):
            raise RemoteFault(f"{who}: kinds must be {', '.join(KINDS)}, one for each name")
        if any(kind == MIXED and (state.spec.private or name in state.spec.columns) for name, kind in zip(names, kinds)):
            raise RemoteFault(f"{who}: the job file has the kind of a column that is said to be mixed")
        return content
    # The last leg: levels, labels and sums of the columns agreed on.
    known = {column.name: column.kind for column in state.columns}
    pieces.fields(who, content, _wanted(state.spec, tuple(known), tuple(known.values())))
    if "levels" in content:
        levels, open_ones = content["levels"], {name for name, kind in known.items() if _open_levels(state.spec, name, kind)}
        if not isinstance(levels, dict) or levels.keys() != open_ones:
            raise RemoteFault(f"{who}: levels must be those of the categorical columns")
        for name, values in levels.items():
            pieces.texts(who, f"levels of {name}", values)
    if "labels" in content:
        pieces.texts(who, "labels", content["labels"])
    if "sums" in content:
        pieces.count(who, "rows", content["rows"])
        pieces.floats(who, "sums", content["sums"], list(known.values()).count("numeric"))
    return content


PROTOCOL = legs.protocol("agreement", Server, (AskSchema, Agreed), (SchemaReply,), client_receive, keeps=True)
