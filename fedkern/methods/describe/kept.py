"""Keeps, in a holder's account, what was last told of each column, so that the next description tells no finer cells of it.

Bins with other ends, or levels that join others, would tell, subtracted, the few rows between (`disclosure.cells.once`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...disclosure import cells
from ...disclosure.cells import Parts
from ...errors import JobError
from ...ground import on
from ...jobs import tables
from ...jobs.files import writing
from ...jobs.holding.binding import Account

FILE = "told.json"
Told = Mapping[str, Any]  # "cells" (inner ends of bins, or levels; of two columns both), "parts", "counts"; of a column "most"


def read(account: Account | None) -> dict[str, Told]:
    """Returns what was told of these data by their columns; nothing without an account that outlives a run.

    Raises
    ------
    JobError
        The account's file cannot be read.
    """
    if account is None:
        return {}
    path = account.folder / FILE
    try:
        found: dict[str, Told] = json.loads(path.read_bytes()).get(account.data, {}) if path.exists() else {}
    except (OSError, ValueError, AttributeError) as fault:
        raise JobError(f"{path}: cannot be read ({fault}); put it back as it was") from None
    return found


def keep(account: Account | None, told: Mapping[str, Told]) -> None:
    """Writes what is about to be told into the account, beside what it has of other columns.

    What says no more than the account has already is not written: a coarser table once is none for good.
    """
    if account is None:
        return
    path = account.folder / FILE
    with tables.alone(account), writing(path), on(account.ground, account.folder) as ground:
        content = json.loads(path.read_bytes()) if path.exists() else {}
        content[account.data] = {**content.get(account.data, {}), **told}
        ground.put(path, json.dumps(content).encode(), secret=True)


def name_of(table: Sequence[str]) -> str:
    """Returns the name of a table of two columns, or of survival times, which no column has."""
    return json.dumps([*table])


def may_be_told(before: Told | None, now: Told, least: int) -> bool:
    """Tells whether a table may be told: once more only in the same parts, in each of which enough rows have changed, or none."""
    if before is None:
        return True
    now = json.loads(json.dumps(now))
    if any(before[key] != now[key] for key in ("cells", "parts")):
        return False
    change = np.abs(np.array(now["counts"], np.float64) - np.array(before["counts"], np.float64))
    return not ((change > 0) & (change < least)).any()


def as_now(of: Sequence[Any], before: Told) -> tuple[Parts, NDArray[np.int64]]:
    """Returns what was told of a column before, as parts of its cells of now, and their counts.

    `of`: the inner ends of bins, or the levels; of a column that was of another kind then, all cells are one part.
    """
    earlier, told = tuple(map(tuple, before["parts"])), np.array(before["counts"], np.int64)
    if before["cells"] == [*of]:
        return earlier, told
    if isinstance(next(iter(of), 0.0), str) or isinstance(next(iter(before["cells"]), 0.0), str):
        place: dict[Any, int] = {name: k for k, name in enumerate((*of, None))}
        names = (*before["cells"], None)
        known = {tuple(place[names[k]] for k in part if names[k] in place): n for part, n in zip(earlier, told.tolist())}
        new: dict[tuple[int, ...], int] = {(k,): 0 for name, k in place.items() if name not in names}
        both = sorted((part, n) for part, n in [*known.items(), *new.items()] if part)
        return tuple(part for part, _ in both), np.array([n for _, n in both], np.int64)
    return cells.in_bins(of, before["cells"], earlier, told)
