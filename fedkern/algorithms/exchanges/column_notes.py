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
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from ...finding import NAMES, Finding
from ...printing import listed
from ..core import legs, once, pieces, tells
from ..core.legs import Leg
from ..core.messages import ClientEffects, Event, Message, RemoteFault, ServerEffects
from ..core.rounds import in_order

DIMS = pieces.DIMS
NEAR = 0.7  # of two names' letters that are alike, from which on one may be meant by the other
EXPECTED, OF_ALL = 12.0, 8.0  # zeros, of one other client and of all: shares differ between hospitals
LESS = 20  # times as small a share is nearly none
FEWER = 2  # says that zeros that stand apart are few
TENTH = 10  # percent
ASSUMED = 40  # rows of a client that has not told their number


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
class ColumnNotes(pieces.Piece, kind=144, tells=TELLS):
    """Client to server: names of columns."""


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

    def describe_columns(self) -> list[Finding]:
        """Returns findings for the client alone."""
        lines = [Finding.of("column-constant-here", column=name) for name in self.constant]
        return [*lines, *_collinear(self, HERE, "column-collinear"), *(_coarse(name, HERE) for name in self.coarse)]


EVERY, HERE = "every client", "this client"  # of which a finding is


def near_names(ignored: Sequence[str], names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Returns each ignored name that is not among a file's `names` -> those of them that are nearly called so."""
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(name.casefold(), []).append(name)
    near = {name: get_close_matches(name.casefold(), alike, cutoff=NEAR) for name in ignored if name not in names}
    return {name: tuple(column for text in texts for column in alike[text]) for name, texts in near.items()}


def _collinear(answer: Degenerate, where: str, id: str) -> list[Finding]:
    return [Finding.of(id, column=name, others=others, where=where) for name, others in answer.collinear.items()]


def _coarse(name: str, where: str) -> Finding:
    return Finding.of("column-coarse", column=name, where=where)


def _names(clients: Sequence[str]) -> str:
    return listed([*map(repr, clients)], NAMES)


def of_each(clients: tuple[str, ...], answers: Sequence[Degenerate]) -> list[Finding]:
    """Returns findings on the columns of a job whose clients each have columns of their own."""
    found = list[Finding]()
    for who, answer in zip(map(repr, clients), answers):
        found += [Finding.of("column-constant", column=name, where=who) for name in answer.constant]
        found += [*_collinear(answer, who, "column-collinear"), *(_coarse(name, who) for name in answer.coarse)]
    return found


def of_all(clients: tuple[str, ...], answers: Sequence[Degenerate], *, graph: bool = False) -> list[Finding]:
    """Returns findings on columns that are degenerate at all clients; `graph`: each column is a node, and none a response."""
    # Of few rows a column has one value, or follows from others, by chance: who cannot judge has no say.
    found, (varied, complete) = list[Finding](), ([answer for answer in answers if answer.judged[which]] for which in (0, 1))
    if varied:
        constant = [name for name in varied[0].constant if all(name in answer.constant for answer in varied)]
        found += [Finding.of("column-constant", column=name, where=EVERY) for name in constant]
    if complete:
        id = "nodes-collinear" if graph else "column-collinear"
        for finding in _collinear(complete[0], EVERY, id):
            if all(finding.values["column"] in answer.collinear for answer in complete):
                found.append(finding)
    for name in dict.fromkeys(name for answer in answers for name in answer.coarse):
        where = [client for client, answer in zip(clients, answers) if name in answer.coarse]
        who = EVERY if len(where) == len(clients) else _names(where)
        found.append(_coarse(name, who))
    return found


def in_tenths(zeros: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Returns the shares as a client tells them where its own numbers are not the server's to know: a tenth, or less."""
    return {name: (TENTH if percent >= TENTH else 1, apart) for name, (percent, apart) in zeros.items()}


def lacking_zeros(shares: Mapping[int, tuple[int, int]], sizes: Sequence[int]) -> list[int]:
    """Returns the clients whose zeros of one column stand apart and are missing elsewhere: they may be a code.

    Zeros at all clients are measured. Client k says that its zeros stand apart from its other cells, and are p_k of these at
    least. Client j lacks them if it has less than a twentieth of that part where 12 cells or more would be zeros with that part.
    They are also lacking where no other client has any, though all together would have 8, or where k's zeros are so few that they
    may be slips.

    Parameters
    ----------
    shares : client -> percent of its cells that are zeros, and whether they stand apart (2: and are few); others have none
    sizes : (m,) the clients' numbers of rows; 0 of those that have not told it
    """
    rows = [size or ASSUMED for size in sizes]
    found = []
    for k in (k for k, share in shares.items() if share[1]):
        share, others = shares[k][0] / 100, [j for j in range(len(rows)) if j != k]
        fewer = [j for j in others if LESS * shares.get(j, (0, 0))[0] < shares[k][0]]
        alone = not any(j in shares for j in others) and (shares[k][1] == FEWER or share * sum(rows[j] for j in others) >= OF_ALL)
        if alone or any(share * rows[j] >= EXPECTED for j in fewer):
            found.append(k)
    return sorted(found)


@dataclass(frozen=True)
class Client:
    """Holds a client's degenerate columns."""

    found: Degenerate


@dataclass(frozen=True)
class Server(Leg[Degenerate], answers=(ColumnNotes,)):
    """Holds the answers; `split`: whether each client has columns of its own; `graph`: whether each is a node, and none a
    response."""

    split: bool = False
    graph: bool = False

    @property
    def told(self) -> list[Degenerate]:
        """The clients' answers, in their order."""
        return in_order(self.replies)

    def checked(self, sender: int, content: dict[str, Any]) -> Degenerate:
        return _checked("ColumnNotes", content)

    @property
    def found(self) -> list[Finding]:
        """Findings on columns from which nothing can be learnt, once all have answered."""
        if self.split:
            return of_each(self.clients, self.told)
        return of_all(self.clients, self.told, graph=self.graph)

    @property
    def following(self) -> list[tuple[str, ...] | None]:
        """The columns that follow from others at each client; None where it cannot judge."""
        return [tuple(answer.collinear) if answer.judged[1] else None for answer in self.told]

    @property
    def far(self) -> dict[str, list[str]]:
        """The columns in which few cells decide -> the clients where they do."""
        answers = self.told
        names = dict.fromkeys(name for answer in answers for name in answer.far)
        return {name: [client for client, answer in zip(self.clients, answers) if name in answer.far] for name in names}

    def zeros(self, sizes: Sequence[int]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
        """Returns columns whose zeros stand apart -> the clients where they do: those that others lack, and those of one client
        whom nobody tells apart. Zeros that several have are measured, as a dose of those who got none: nothing is said. `sizes`:
        the clients' numbers of rows; () where they were not told."""
        answers = self.told
        lacking, common = dict[str, list[str]](), dict[str, list[str]]()
        for name in dict.fromkeys(name for answer in answers for name, (_, apart) in answer.zeros.items() if apart):
            shares = {k: answer.zeros[name] for k, answer in enumerate(answers) if name in answer.zeros}
            split = self.split or len(answers) == 1
            found = [] if split else lacking_zeros(shares, sizes or [0] * len(answers))
            where = found or [k for k, (_, apart) in shares.items() if apart]
            if found or len(shares) == 1:
                columns = lacking if found else common
                columns[name] = [self.clients[k] for k in where]
        return lacking, common

    @property
    def misspelt(self) -> dict[str, dict[str, str]]:
        """The names of data.ignore that no client's file has -> columns that are nearly called so -> who has these."""
        answers = self.told
        nowhere = [name for name in answers[0].lacking if all(name in answer.lacking for answer in answers)]
        return {name: self._near(answers, name) for name in nowhere}

    def _near(self, answers: Sequence[Degenerate], name: str) -> dict[str, str]:
        """Returns the columns that are nearly called so -> the clients that have these."""
        columns = dict.fromkeys(column for answer in answers for column in answer.lacking[name])
        having = {
            column: [who for who, answer in zip(self.clients, answers) if column in answer.lacking[name]] for column in columns
        }
        return {column: _names(who) for column, who in having.items()}


def start(clients: tuple[str, ...], split: bool = False, graph: bool = False) -> tuple[Server, ServerEffects]:
    """Returns the first state and the questions."""
    return Server(clients, split, graph), once.ask(len(clients), AskNotes(0))


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Answers the question."""
    if not isinstance(event, AskNotes):
        raise RemoteFault(f"server: {type(event).__name__} was not expected")
    found = state.found
    content = {
        "constant": list(found.constant), "coarse": list(found.coarse), "judged": [int(flag) for flag in found.judged],
        "collinear": {name: list(others) for name, others in found.collinear.items()},
    }  # fmt: skip
    content |= {"far": list(found.far)} if found.far else {}
    content |= {"zeros": {name: list(share) for name, share in found.zeros.items()}} if found.zeros else {}
    content |= {"lacking": {name: list(near) for name, near in found.lacking.items()}} if found.lacking else {}
    return state, [ColumnNotes(0, *piece) for piece in pieces.cut(content)]


def _checked(who: str, content: dict[str, Any]) -> Degenerate:
    content = {"far": [], "lacking": {}, "zeros": {}, **content}
    pieces.fields(who, content, {"constant", "coarse", "collinear", "judged", "far", "lacking", "zeros"})
    constant, coarse, far = (tuple(pieces.texts(who, name, content[name])) for name in ("constant", "coarse", "far"))
    if content["judged"] not in ([0, 0], [0, 1], [1, 0], [1, 1]):
        raise RemoteFault(f"{who}: judged must have two flags")
    judged = bool(content["judged"][0]), bool(content["judged"][1])
    collinear, lacking = (_lists(who, name, content[name]) for name in ("collinear", "lacking"))
    return Degenerate(constant, coarse, collinear, judged, far, lacking, zeros=_shares(who, content["zeros"]))


def _shares(who: str, content: object) -> dict[str, tuple[int, int]]:
    """Returns shares of zeros by name."""
    if not isinstance(content, dict):
        raise RemoteFault(f"{who}: zeros must have shares by column")
    shares = {}
    for name, share in content.items():
        if not (isinstance(share, list) and len(share) == 2 and all(type(part) is int for part in share)):
            raise RemoteFault(f"{who}: zeros of {name} must be two whole numbers")
        if not (1 <= share[0] <= 100 and share[1] in (0, 1, 2)):
            raise RemoteFault(f"{who}: zeros of {name} must be a percentage from 1 to 100, and 0, 1 or 2")
        shares[name] = share[0], share[1]
    return shares


def _lists(who: str, what: str, content: object) -> dict[str, tuple[str, ...]]:
    """Returns lists of names by name."""
    if not isinstance(content, dict):
        raise RemoteFault(f"{who}: {what} must have lists by column")
    return {name: tuple(pieces.texts(who, f"{what} of {name}", names)) for name, names in content.items()}


PROTOCOL = legs.protocol("columns", Server, (AskNotes,), (ColumnNotes,), client_receive)
