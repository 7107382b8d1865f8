"""Finds, in a job that is not private, the columns from which nothing can be learnt: each client names those of its rows.

A column may have one value; it may follow from others, so that, if it does in all rows, their separate effects are the prior's;
or its values may differ in their last digits only (10^15 and some noise). A client sends the names of such columns, and no cell;
the server says of which it is true at every client. One client alone may well have one value of a column: that is no fault,
unless the column is the client's alone (of vertically split data).

A client also names the columns in which few cells stand so far from all others that they decide the result. Only its own notes
say which rows these are, and which values they have.

And it says which names of `data.ignore` its file lacks, with those of its columns that are nearly called so: a name that no
client has is misspelt, and the column that it means would stay in the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Annotated, Any

from ..core import once, pieces, tells
from ..core.messages import ClientEffects, Event, Message, RemoteFault, ServerEffects, of_client
from ..core.persistent import PersistentMap
from ..core.rounds import in_order, needed
from . import column_zeros

DIMS = {"schema": pieces.PIECE}
NEAR = 0.7  # of two names' letters that are alike, from which on one may be meant by the other


@dataclass(frozen=True)
class AskNotes(Message, kind=143):
    """Server to client."""

    round: int


TELLS = tells.Fact(
    "names of columns that have one value, follow from others, have a cell far from all others, or are nearly called as one of "
    "data.ignore that is not there; of columns with zeros at one end their share in whole percents (with secure sums whether it "
    "is a tenth)"
)


@dataclass(frozen=True)
class ColumnNotes(Message, kind=144, tells=TELLS):
    """Client to server: names of columns."""

    round: int
    part: int
    parts: int
    text: Annotated[bytes, "schema"]


@dataclass(frozen=True)
class Degenerate:
    """Lists the columns of one party from whose rows nothing, or too much, can be learnt.

    Attributes
    ----------
    constant : columns with one value
    coarse : columns whose values are large and differ in their last digits only
    collinear : column -> others that it follows from
    far : columns, or the response, in which few cells, or cells with one value, are far from all others, and matter
    judged : whether the rows were enough to say which are constant, and which are collinear
    lacking : name of data.ignore that the file lacks -> columns that are nearly called so
    apart : those of `constant` whose value is not the column's centre; no message has it
    zeros : column -> percent of its cells that are 0, nearly all others being on one side, and whether they stand apart from
    these (2: and are few)
    """

    constant: tuple[str, ...] = ()
    coarse: tuple[str, ...] = ()
    collinear: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    judged: tuple[bool, bool] = (True, True)
    far: tuple[str, ...] = ()
    lacking: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    apart: tuple[str, ...] = ()
    zeros: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def describe_columns(self) -> list[str]:
        """Returns notes for the client alone."""
        lines = [f"column {name!r} {_CONSTANT}" for name in self.constant]
        lines += [f"column {name!r} {_FOLLOWS.format(_named(others))}" for name, others in self.collinear.items()]
        return [*lines, *(f"column {name!r} {_COARSE}" for name in self.coarse)]


_OUT = "out (by data.ignore, or as a term of model.formula)"
_FOLLOWS = "follows from {}: where it does in all rows, their separate effects are the prior's; leave one of them " + _OUT
_OF_A_GRAPH = (
    "follows from {}, and edges among them say so and nothing else; where they are shares of a whole, which sum to 1 or 100, "
    "take logarithms of their ratios in all files, as log(a / b), in their place: each goes against all others still if one of "
    "them is left out"
)
_SAME = f"unless they have different ones its effect is the prior's; leave it {_OUT}"
_CONSTANT = (
    "has one value here: by itself this client tells nothing of its effect, and beside the others its level does; if the value "
    "stands for a missing one (0, -9, 999), make these cells empty, and say what becomes of the rows (model.missing)"
)
_COARSE = "has values that differ in their last digits only, and most of them are lost: subtract a constant from it in the file"


def near_names(ignored: Sequence[str], names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Returns each ignored name that is not among a file's `names` -> those of them that are nearly called so."""
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(name.casefold(), []).append(name)
    near = {name: get_close_matches(name.casefold(), alike, cutoff=NEAR) for name in ignored if name not in names}
    return {name: tuple(one for text in texts for one in alike[text]) for name, texts in near.items()}


def _named(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:6])) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def split_notes(clients: tuple[str, ...], answers: Sequence[Degenerate]) -> list[str]:
    """Returns the notes of a job whose clients each have columns of their own."""
    lines = []
    for client, one in zip(clients, answers):
        texts = [(name, "has one value: its effect is the prior's; put it into data.ignore") for name in one.constant]
        texts += [(name, _FOLLOWS.format(_named(others))) for name, others in one.collinear.items()]
        texts += [(name, _COARSE) for name in one.coarse]
        lines += [f"client {client!r}: column {name!r} {text}" for name, text in texts]
    return lines


def follows(answers: Sequence[Degenerate], *, graph: bool = False) -> dict[str, str]:
    """Returns columns that follow from others at all clients, at each by a rule of its own, with notes.

    `graph`: each column is a node, and none a response.
    """
    able = [one.collinear for one in answers if one.judged[1]]
    text = f"column {{!r}} at every client {_OF_A_GRAPH if graph else _FOLLOWS}"
    names = [name for name in able[0] if all(name in one for one in able)] if able else []
    return {name: text.format(name, _named(able[0][name])) for name in names}


def notes(clients: tuple[str, ...], answers: Sequence[Degenerate]) -> list[str]:
    """Returns notes on other columns that are degenerate at all clients."""
    able = [one.constant for one in answers if one.judged[0]]
    names = [name for name in able[0] if all(name in one for one in able)] if able else []
    lines = [f"column {name!r} has one value at every client: {_SAME}" for name in names]
    for name in dict.fromkeys(name for one in answers for name in one.coarse):
        where = [client for client, one in zip(clients, answers) if name in one.coarse]
        lines.append(f"column {name!r} {_COARSE} (at {'every client' if len(where) == len(clients) else _named(where)})")
    return lines


@dataclass(frozen=True)
class Client:
    """Holds a client's degenerate columns."""

    found: Degenerate


@dataclass(frozen=True)
class Server:
    """Holds the answers so far.

    `told[k]` is client k's answer, `pieces[k]` the pieces of an unfinished one; `split`: whether each client has columns of its
    own; `graph`: whether each column is a node, and none a response.
    """

    clients: tuple[str, ...]
    split: bool = False
    graph: bool = False
    told: PersistentMap[int, Degenerate] = field(default_factory=PersistentMap)
    pieces: PersistentMap[int, tuple[bytes, ...]] = field(default_factory=PersistentMap)

    @property
    def notes(self) -> list[str]:
        """The notes, once all have answered."""
        told = in_order(self.told)
        return split_notes(self.clients, told) if self.split else notes(self.clients, told)

    @property
    def follows(self) -> dict[str, str]:
        """Columns that follow from others at all clients, with notes, once all have answered."""
        return {} if self.split else follows(in_order(self.told), graph=self.graph)

    @property
    def far(self) -> dict[str, str]:
        """The columns in which few cells decide -> the clients where they do."""
        told = in_order(self.told)
        names = dict.fromkeys(name for one in told for name in one.far)
        return {name: _named([client for client, one in zip(self.clients, told) if name in one.far]) for name in names}

    def zeros(self, sizes: Sequence[int]) -> tuple[dict[str, str], dict[str, str]]:
        """Returns columns whose zeros stand apart -> the clients where they do: those that others lack, and those of one client
        whom nobody tells apart. Zeros that several have are measured, as a dose of those who got none: nothing is said.

        Parameters
        ----------
        sizes : the clients' numbers of rows; () where they were not told
        """
        told = in_order(self.told)
        lacking, common = dict[str, str](), dict[str, str]()
        for name in dict.fromkeys(name for one in told for name, (_, apart) in one.zeros.items() if apart):
            shares = {k: one.zeros[name] for k, one in enumerate(told) if name in one.zeros}
            split = self.split or len(told) == 1
            found = [] if split else column_zeros.lacking(shares, sizes or [0] * len(told))
            where = found or [k for k, (_, apart) in shares.items() if apart]
            if found or len(shares) == 1:
                (lacking if found else common)[name] = _named([self.clients[k] for k in where])
        return lacking, common

    @property
    def misspelt(self) -> dict[str, dict[str, str]]:
        """The names of data.ignore that no client's file has -> columns that are nearly called so -> who has these."""
        told = in_order(self.told)
        nowhere = [name for name in told[0].lacking if all(name in one.lacking for one in told)]
        return {name: self._near(told, name) for name in nowhere}

    def _near(self, told: Sequence[Degenerate], name: str) -> dict[str, str]:
        """Returns the columns that are nearly called so -> the clients that have these."""
        columns = dict.fromkeys(column for one in told for column in one.lacking[name])
        having = {column: [who for who, one in zip(self.clients, told) if column in one.lacking[name]] for column in columns}
        return {column: _named(who) for column, who in having.items()}


def start(clients: tuple[str, ...], split: bool = False, graph: bool = False) -> tuple[Server, ServerEffects]:
    """Returns the first state and the questions."""
    return Server(clients, split, graph), once.ask(len(clients), AskNotes(0))


def finished(state: Server) -> bool:
    return len(state.told) == len(state.clients)


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Answers the question."""
    if not isinstance(event, AskNotes):
        raise RemoteFault(f"server: {type(event).__name__} was not expected")
    one = state.found
    content = {
        "constant": list(one.constant), "coarse": list(one.coarse), "judged": [int(flag) for flag in one.judged],
        "collinear": {name: list(others) for name, others in one.collinear.items()},
    }  # fmt: skip
    content |= {"far": list(one.far)} if one.far else {}
    content |= {"zeros": {name: list(share) for name, share in one.zeros.items()}} if one.zeros else {}
    content |= {"lacking": {name: list(near) for name, near in one.lacking.items()}} if one.lacking else {}
    return state, [ColumnNotes(0, *piece) for piece in pieces.cut(content)]


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """Takes one client's answer, or a piece of it."""
    needed(event, "client {client} is gone before the first round; start again when it is back", state.clients)
    if not isinstance(event, ColumnNotes) or sender in state.told:
        raise RemoteFault(f"{type(event).__name__} was not expected", sender)
    with of_client(sender):
        have, content = pieces.add("ColumnNotes", state.pieces.get(sender, ()), event)
        if content is None:
            return replace(state, pieces=state.pieces.plus(sender, have)), []
        return replace(state, told=state.told.plus(sender, _checked("ColumnNotes", content))), []


def _checked(who: str, content: dict[str, Any]) -> Degenerate:
    content = {"far": [], "lacking": {}, "zeros": {}, **content}
    pieces.fields(who, content, {"constant", "coarse", "collinear", "judged", "far", "lacking", "zeros"})
    constant, coarse, far = (tuple(pieces.texts(who, name, content[name])) for name in ("constant", "coarse", "far"))
    if content["judged"] not in ([0, 0], [0, 1], [1, 0], [1, 1]):
        raise RemoteFault(f"{who}: judged must have two flags")
    judged = bool(content["judged"][0]), bool(content["judged"][1])
    collinear, lacking = (_lists(who, name, content[name]) for name in ("collinear", "lacking"))
    return Degenerate(constant, coarse, collinear, judged, far, lacking, zeros=_shares(who, content["zeros"]))


def _shares(who: str, told: object) -> dict[str, tuple[int, int]]:
    """Returns shares of zeros by name."""
    if not isinstance(told, dict):
        raise RemoteFault(f"{who}: zeros must have shares by column")
    shares = {}
    for name, one in told.items():
        if not (isinstance(one, list) and len(one) == 2 and all(type(part) is int for part in one)):
            raise RemoteFault(f"{who}: zeros of {name} must be two whole numbers")
        if not (1 <= one[0] <= 100 and one[1] in (0, 1, 2)):
            raise RemoteFault(f"{who}: zeros of {name} must be a percentage from 1 to 100, and 0, 1 or 2")
        shares[name] = one[0], one[1]
    return shares


def _lists(who: str, what: str, told: object) -> dict[str, tuple[str, ...]]:
    """Returns lists of names by name."""
    if not isinstance(told, dict):
        raise RemoteFault(f"{who}: {what} must have lists by column")
    return {name: tuple(pieces.texts(who, f"{what} of {name}", names)) for name, names in told.items()}


PROTOCOL = once.protocol("columns", (AskNotes,), (ColumnNotes,), server_receive, client_receive, finished)
