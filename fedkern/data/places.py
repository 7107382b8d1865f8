"""Checks tables of areas, of their neighbours and of points."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from .. import printing
from ..arrays import Array
from ..errors import JobError
from .cells import floats
from .table import Table

SHOWN = 5  # names in a message


def whole(table: Table) -> None:
    """Raises JobError if a line cannot be read."""
    for row, reason in table.broken.items():
        raise JobError(f"{table.source}, {table.place(row)}: {reason}; mend it")


def numbers_of(table: Table, name: str) -> Array:
    """Returns a column of coordinates; raises JobError if a cell is no finite number."""
    column = table.columns[name]
    values = floats(column)
    for row in np.flatnonzero(~np.isfinite(values)):
        raise JobError(f"{table.source}, {table.place(int(row))}: {name} is no finite number; fill it in")
    return values


def listed(names: Sequence[str]) -> str:
    """Returns the first few names, and how many more."""
    return printing.listed([*dict.fromkeys(names)], SHOWN)


def counts(columns: Sequence[Sequence[str]], names: Sequence[str]) -> int | None:
    """Returns the first position (0 or 1) if ids may be names of areas or their positions, and mean other areas; else None.

    `columns` of ids count upwards, one of them at least, as programs write the positions of areas in their own data.
    """
    ids = {label for column in columns for label in column}
    if not ids or not ids <= set(names) or not all(label.isdecimal() and str(int(label)) == label for label in ids):
        return None
    first = 0 if "0" in ids else 1
    rising = any((np.diff([*map(int, column)]) >= 0).all() for column in columns)
    if not rising or max(map(int, ids)) - first >= len(names):
        return None
    return first if any(names[int(label) - first] != label for label in ids) else None


def zeros(unknown: Sequence[str], known: Collection[str]) -> str:
    """Returns a clause if names are others' but for zeros in front of them, as a spreadsheet leaves codes; "" else."""
    short: dict[str, list[str]] = {}
    for name in known:
        short.setdefault(name.lstrip("0"), []).append(name)
    meant = [(name, short[name.lstrip("0")][0]) for name in unknown if len(short.get(name.lstrip("0"), ())) == 1]
    if not meant:
        return ""
    name, other = meant[0]
    return f" ({len(meant)} of them are there with other leading zeros, as {other} for {name}: a spreadsheet drops them)"
