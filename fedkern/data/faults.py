"""Collects the faults of a file: all of them for the party that holds the rows, and the part that other parties may read.

Cells, counts of rows, and names that the job file lacks, are the holder's own (`OwnFault.own`). The text for everybody names the
columns that the job file names, and points to the others by their place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import HolderError, JobError, OwnFault
from . import plain_text
from .table import Table

LISTED = 1000  # faults that are kept one by one; the others are only counted
NO_VALUE = 'or set model.missing = "impute" (sparse, but not "sem"), "drop" or "indicator" (likelihood, pvi, vertical)'
LEFT_OUT = 'or set model.missing = "drop" (likelihood, pvi, vertical)'
COMMA = 'if numbers have decimal commas set [data.dialect] decimal = ",", and if commas part thousands (1,234) remove them'
LABEL = (
    "or write 0 and 1, or the same two labels, in all files (of three labels make a column of two), "
    "or name the label that counts as 1 (data.positive), or set model.family for a response that is measured or counted"
)
NAMED = 6  # rows of each fault
HINT = "`fedkern check --local` shows the holder of the file where"


@dataclass(frozen=True)
class Fault:
    """Describes a cell, or a whole row (`column` is None), that can't be used."""

    place: str  # "line 17" of a csv file, "row 16" of an array
    column: str | None
    value: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        if self.column is None:
            return f"{self.place}: {self.reason}; {self.remedy}"
        return f"{self.place}, column {self.column!r}: {self.value!r} {self.reason}; {self.remedy}"


@dataclass(frozen=True)
class Faults:
    """Counts faults for the client's own side: rows that count as nothing, their number for each "column: reason", and the first
    ones."""

    rows: int = 0
    counts: tuple[tuple[str, int], ...] = ()
    first: tuple[Fault, ...] = ()


def of_new_rows(fault: OwnFault) -> str:
    """Returns a fault's text without the keys of a job that would change what a cell is: new rows have no job."""
    return fault.of_new_rows if isinstance(fault, RowFault) else fault.own


def who(client: str, source: str = "") -> str:
    """Returns the beginning of a sentence on a party's file: the name of the file, not its folder."""
    return ", ".join([*([f"client {client!r}"] if client else []), *([Path(source).name] if source else [])])


def name_column(name: str, names: Sequence[str], known: Collection[str]) -> str:
    """Names a column as every party may read it: by its name if the job file has it, else by its place in the header."""
    return f"column {name!r}" if name in known else f"column no. {names.index(name) + 1}"


class Marked(NamedTuple):
    """Holds rows that are bad for one reason: what mends them, and the keys of a job that would."""

    rows: NDArray[np.int64]
    column: str | None
    reason: str
    remedy: str
    keys: tuple[str, ...] = ()

    def remedies(self, new: bool) -> str:
        """Returns all that mends them; of `new` rows, which have no job, without its keys."""
        return f"{self.remedy} ({'; '.join(self.keys)})" if self.keys and not new else self.remedy


class Marks:
    """Collects the bad rows of one table, by reason.

    The holder reads each row once, by its first fault. Others read of each column whether it has one, whatever the row's other
    columns have: else the job, which says which cells are faults, would ask for the content of the one row's other columns.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.bad = np.zeros(table.n_rows, dtype=bool)
        self.by_reason: list[Marked] = []
        self._told: list[Marked] = []
        for reason in dict.fromkeys(table.broken.values()):
            rows = np.array([row for row, why in table.broken.items() if why == reason], dtype=np.int64)
            marked = Marked(rows, None, reason, "correct or remove the line")
            self._add(marked)
            self._told.append(marked)
        self._broken, self._of_column = self.bad.copy(), dict[str, NDArray[np.bool_]]()

    def mark(self, bad: NDArray[np.bool_], column: str, reason: str, remedy: str, *keys: str) -> None:
        """Marks rows as bad for one reason, which every party may read; the remedy may hold levels, `keys` are those of a job."""
        before = self._of_column.get(column, self._broken)
        if (bad & ~before).any():
            self._of_column[column] = before | bad
            self._told.append(Marked(np.flatnonzero(bad & ~before), column, reason, remedy, keys))
        rows = np.flatnonzero(bad & ~self.bad)  # a row is named once, by its first fault
        if rows.size:
            self._add(Marked(rows, column, reason, remedy, keys))

    def _add(self, marked: Marked) -> None:
        self.bad[marked.rows] = True
        self.by_reason.append(marked)

    def faults(self, *, new: bool = False) -> Faults:
        """Returns the faults so far, for the holder; `new`: of rows that are of no job."""
        counts = Counter[str]()
        for marked in self.by_reason:
            counts[f"{marked.column or 'row'}: {marked.reason}"] += len(marked.rows)
        first = sorted((int(row), m.column, m.reason, m.remedies(new)) for m in self.by_reason for row in m.rows[:LISTED])
        listed = tuple(
            Fault(self.table.place(row), column, "" if column is None else self.table.text(column, row), reason, remedy)
            for row, column, reason, remedy in first[:LISTED]
        )
        return Faults(int(self.bad.sum()), tuple(sorted(counts.items())), listed)

    def refuse(self, client: str, known: Collection[str]) -> None:
        """Ends a job that is not private if a row is bad. `known`: names of columns that every party may read."""
        if not self.bad.any():
            return
        public_texts = set[str]()
        for _, column, reason, *_ in self._told:
            where = "the row" if column is None else name_column(column, self.table.names, known)
            public_texts.add(f"{where} {plain_text.public_reason(reason) if column is None else reason}")
        listed = ", ".join(sorted(public_texts))
        ways = [way for way in (NO_VALUE, LEFT_OUT, COMMA, LABEL) if any(way in marked.keys for marked in self._told)]
        way = f" ({'; '.join(ways)})" if ways else ""
        what = f"rows cannot be used ({listed}); correct or remove what is wrong{way}"
        begin = f"client {client!r}, {self.table.source}" if client else self.table.source
        owns, rows = [], []
        for new in (False, True):
            owns.append("\n".join(f"{begin}, {self._described(mark, new=new)}" for mark in self._told))
            rows.append([str(fault) for fault in self.faults(new=new).first] if int(self.bad.sum()) > 1 else [])
        new_rows = "\n  ".join([owns[1], *rows[1]])
        raise RowFault(who(client, self.table.source), what, owns[0], rows[0], self.bad, new_rows)

    def _described(self, marked: Marked, *, new: bool) -> str:
        """Returns one fault of a column for the holder: its first cell, and the places of the others."""
        rows, column, reason, *_ = marked
        places = [self.table.place(row) for row in rows[:NAMED].tolist()]
        value = "" if column is None else self.table.text(column, int(rows[0]))
        first = str(Fault(places[0], column, value, reason, marked.remedies(new)))
        more = ", ..." if len(rows) > NAMED else ""
        return first if len(rows) == 1 else f"{first} ({len(rows)} rows: {', '.join(places)}{more})"


class RowFault(OwnFault):
    """Reports faults of rows.

    Attributes
    ----------
    where, what : whose they are, and what is wrong
    bad : (n,) which rows have one
    of_new_rows : the holder's text where they are of no job
    """

    def __init__(self, where: str, what: str, own: str, rows: Sequence[str], bad: NDArray[np.bool_], of_new_rows: str) -> None:
        super().__init__(f"{where}: {what}", own, rows, HINT)
        self.where, self.what, self.bad, self.of_new_rows = where, what, bad, of_new_rows


class Refusals:
    """Collects the reasons why one party's rows end a job, so that its holder mends all at once: they are raised together.

    Parameters
    ----------
    n_rows : of the party's table, where faults of rows are collected

    Examples
    --------
    >>> from fedkern.data.faults import Refusals
    >>> from fedkern.errors import OwnFault
    >>> refusals = Refusals()
    >>> for column in ("age", "sex"):
    ...     with refusals.collecting():
    ...         raise OwnFault(f"a cell of {column} is empty", own=f"{column}: row 7 is empty")
    ...
    >>> try:
    ...     refusals.refuse()
    ... except OwnFault as error:
    ...     print(error, error.own, sep="\\n")
    ...
    a cell of age is empty; also: a cell of sex is empty
    age: row 7 is empty
    sex: row 7 is empty
    """

    def __init__(self, n_rows: int = 0) -> None:
        self.errors: list[JobError] = []
        self.bad = np.zeros(n_rows, dtype=bool)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Keeps a refusal of the block, after which others are looked for; a holder's own (HolderError) ends the job at once.

        The block may look at all rows, or at those that are `usable`.
        """
        good = np.flatnonzero(~self.bad)
        try:
            yield
        except HolderError:
            raise
        except JobError as error:
            if hasattr(error, "party"):  # of several clients each has its own
                self.errors.append(error)
                return
            for fault in error.errors if isinstance(error, Refused) else [error]:
                self.errors.append(fault)
                if isinstance(fault, RowFault):
                    self.bad[good if len(fault.bad) == len(good) else slice(None)] |= fault.bad

    def usable(self, table: Table) -> Table:
        """Returns the table without its faulty rows, as the holder will have it; the table itself where all are."""
        if not self.bad.any() or self.bad.all():
            return table
        return table.select(np.flatnonzero(~self.bad))

    def refuse(self) -> None:
        """Raises the refusals: one as it is, several together."""
        if len(self.errors) > 1:
            raise Refused(self.errors)
        for error in self.errors:
            raise error


def own_text(error: BaseException) -> str:
    """Returns the text of an error for the party whose rows it is about."""
    return error.own if isinstance(error, OwnFault) else str(error)


def brief_text(error: BaseException) -> str:
    """Returns the same without single rows."""
    return error.brief if isinstance(error, OwnFault) else str(error)


class Refused(OwnFault):
    """Reports several refusals at once, of one party or of several that live here."""

    def __init__(self, errors: Sequence[JobError]) -> None:
        self.errors = [*errors]
        super().__init__("; also: ".join(_texts(errors)), _lines(map(brief_text, errors)))

    @property
    def own(self) -> str:
        """The whole text for the holder: of each refusal its rows below it."""
        return _lines(map(own_text, self.errors))

    def forget_look(self) -> None:
        """Leaves out how the holder looks into its file: there is none."""
        for error in self.errors:
            if isinstance(error, OwnFault):
                error.forget_look()
        self.args = Refused(self.errors).args


def _texts(errors: Iterable[JobError]) -> Iterator[str]:
    """Yields the texts of refusals for all parties, each once: clients whose rows have the same faults stand together."""
    alike = dict[tuple[str, str], list[str]]()
    for error in errors:
        if isinstance(error, RowFault):
            alike.setdefault((error.what, error.look), []).append(error.where)
        else:
            alike[str(error), ""] = []
    for (what, look), where in alike.items():
        text = f"{'; '.join(dict.fromkeys(where))}: {what}" if where else what
        yield f"{text}; {look}" if look else text


def _lines(texts: Iterable[str]) -> str:
    """Returns the lines of texts, each once."""
    return "\n".join(dict.fromkeys(line for text in texts for line in text.splitlines()))
