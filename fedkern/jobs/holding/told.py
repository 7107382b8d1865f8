"""Keeps, in a holder's account, what descriptions last told of columns: nothing that is told next may tell few rows beside it.

Bins with other ends, or levels that join others, would tell, subtracted, the few rows between; so would a job that has the levels
themselves.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...data.cells import number
from ...disclosure import cells
from ...errors import JobError
from ...ground import on
from ...labels import OTHER
from .binding import Account

FILE = "told.json"
# "cells" (of each of two columns the inner ends of bins, or the levels; of one column the other has none), "parts" of them,
# "counts" (rows, columns), "least": rows that a part has to have.
Told = Mapping[str, Any]
Values = Mapping[str, Sequence[tuple[Sequence[str], int]]]  # column -> values that a job takes for one, and its rows with these


def read(account: Account | None) -> dict[str, Told]:
    """Returns what was told of these data, by the names of columns and tables; nothing without an account that outlives a run.
    Raises JobError: the account's file cannot be read."""
    if account is None:
        return {}
    path = account.folder / FILE
    try:
        found: dict[str, Told] = json.loads(path.read_bytes()).get(_rows(account), {}) if path.exists() else {}
    except (OSError, ValueError, AttributeError) as fault:
        raise JobError(f"{path}: cannot be read ({fault}); put it back as it was") from None
    return found


def keep(account: Account, told: Mapping[str, Told]) -> None:
    """Writes what is about to be told into the account, beside what it has of other columns; while others wait."""
    path = account.folder / FILE
    with on(account.ground, account.folder) as ground:
        content = json.loads(path.read_bytes()) if path.exists() else {}
        content[_rows(account)] = {**content.get(_rows(account), {}), **told}
        ground.put(path, json.dumps(content).encode(), secret=True)


def _rows(account: Account) -> str:
    """Returns the name of a client's rows: several clients may have theirs under one name of data."""
    return json.dumps([account.data, *map(os.path.realpath, account.files)])


def name_of(table: Sequence[str]) -> str:
    """Returns the name of a column, or of a table of two, which no column has."""
    return json.dumps([*table]) if table[1] else table[0]


def near(told: Mapping[str, Told], values: Values) -> list[str]:
    """Returns the columns of which a job would tell few rows beside what was told of their parts."""
    found = []
    for name, value in values.items():
        if (before := told.get(name)) is not None:
            parts, rows = (tuple(map(tuple, before["parts"][0])), [row[0] for row in before["counts"]])
            if not cells.beside(parts, rows, in_cells(before["cells"][0], value), before["least"]).all():
                found.append(name)
    return found


def in_cells(names: Sequence[Any], values: Sequence[tuple[Sequence[str], int]]) -> list[tuple[set[int], int]]:
    """Returns a job's values as cells of a column with these levels, or inner ends of bins: a value that is none as missing."""
    if any(isinstance(name, str) for name in names):
        place = {name: k for k, name in enumerate([*names, ""])}
        return [({place.get(value, place.get(OTHER, len(names))) for value in some}, n) for some, n in values]
    found = [([number(value) for value in some], n) for some, n in values]
    last = len(names) + 1
    return [({last if value != value else int(np.searchsorted(names, value, "right")) for value in some}, n) for some, n in found]
