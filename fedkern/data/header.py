"""Compares a file's header with the columns that the job file describes.

No row is looked at here, but a file without a header has one in its place. So other parties read only the names of columns that
the job file names. In an open job the others are counted; in a private one nothing is said of them, for if line ends are not
recognised even the count tells something of the rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..algorithms.exchanges.column_notes import near_names
from ..errors import JobError, OwnFault
from ..models.encoding import Encoding, Spec
from ..models.formula.factors import read
from .cells import number
from .faults import HINT, who

IDS = re.compile(r"(.*_)?(id|ids|pid|mrn|patient|key)")  # names of columns that name their rows, in small letters
TEXT_FILES = (".csv", ".tsv")  # whose first line may be a row


def check_header(names: Sequence[str], wanted: Spec | Encoding, source: str, client: str = "") -> None:
    """Refuses a file without the columns that the job names: a fault of the file, not of a row. Raises JobError: a column is
    missing, one is there that a private job does not know, or nothing is left to learn from."""
    spec = wanted if isinstance(wanted, Spec) else None
    needed = wanted.needed
    in_file = frozenset(names)
    begin, holder_begin = who(client, source), f"client {client!r}, {source}" if client else source
    for name in needed:
        if name not in in_file:
            name = _of_file(name, wanted)
            what, remedy = f"column {name!r} is missing", "correct the file, or [data]"
            if spec is None and not client:
                remedy = "new rows need the columns of the job's, with the same names: correct the file"
            text = f"{begin}: {what}; the header names {len(names)} others; {remedy}"
            look = HINT
            # A private text names no column: the header may tell of the client's file.
            if spec is not None and spec.private:
                text, look = f"{who(client)}: {unfit(spec)}", UNFIT
            raise OwnFault(text, f"{holder_begin}: {what}{list_columns(name, names, needed)}; {remedy}", look=look)
    if spec is None:
        return
    known = spec.known
    # Without a header the first row is taken for one, and is lost.
    numbers = [name for name in names if number(name) == number(name) and name not in known]
    if not needed and numbers and Path(source).suffix.lower() in TEXT_FILES:
        remedy = "write a header, or declare these columns in [data.columns] if they are really called so"
        what = f"{len(numbers)} of the {len(names)} names in the header are numbers, as if it were a row"
        raise OwnFault(f"{begin}: {what}; {remedy}", f"{holder_begin}: {what} ({', '.join(numbers)}); {remedy}", look=HINT)
    if spec.private:
        _check_declared(names, spec, begin, holder_begin)
    if not spec.covariates(tuple(names)) and not spec.intercept:
        raise JobError(f"{begin}: no covariate is left beside {', '.join(needed)}; add columns, or an intercept")


def _of_file(name: str, wanted: Spec | Encoding) -> str:
    """Returns the column of the file that a missing one is calculated from, as Holders for offset(log(Holders)); else itself."""
    if wanted.formula is None or name != wanted.offset:
        return name
    try:
        variables = read(name).variables
    except JobError:  # no expression
        return name
    return variables[0] if len(variables) == 1 else name


def list_columns(missing: str, names: Sequence[str], needed: Iterable[str]) -> str:
    """Returns the words, for the holder, on the columns that there are, the nearest of those that no other role has first."""
    near = near_names([missing], [name for name in names if name not in {*needed}])[missing]
    meant = f": did you mean {' or '.join(map(repr, near))}? There are" if near else "; there are"
    return f"{meant} {', '.join(names)}"


def not_there(ignored: Sequence[str], names: Sequence[str]) -> list[str]:
    """Returns notes, for the holder of a file with all columns, on names that are to be ignored and may be mistyped."""
    return [f"data.ignore names {name!r}, and this file has no such column" for name in ignored if name not in names]


def naming_rows(names: Iterable[str]) -> list[str]:
    """Returns notes, for the reader of a result, on covariates whose names say that they name rows."""
    return [
        f"column {name!r} is taken for a covariate, and is called as what names rows: if it does, put it into data.ignore; if "
        f"not, say what it is in [data.columns.{name}]"
        for name in names
        if IDS.fullmatch(name.lower())
    ]


UNFIT = f"{HINT} it is not"


def unfit(spec: Spec) -> str:
    """Returns the text that other parties read of any fault of a private job's file as a whole: the job file's own words."""
    columns = f"whose header names {', '.join(map(repr, spec.needed))}" if spec.needed else "with a header"
    return f"the file is not what [data] describes, a table {columns}"


def _check_declared(names: Sequence[str], spec: Spec, begin: str, own: str) -> None:
    """Refuses covariates that the job file does not declare."""
    lacking = [name for name in spec.covariates(tuple(names)) if not spec.complete(name)]
    if lacking:
        given = 'kind = "numeric"' + ("" if spec.standardise == "none" else ", center = .., scale = ..")
        lines = [f'{name!r} = {{{given}}}  or  {{kind = "categorical", levels = [..]}}' for name in lacking]
        text = f"{own}: {spec.undeclared}; of this file:"
        raise OwnFault(f"{begin}: {spec.undeclared}", text, lines, f"{HINT} it does not")
