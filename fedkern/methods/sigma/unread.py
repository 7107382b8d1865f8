"""Replaces lines of a private job's file that cannot be read: they weigh nothing, and no message shows that they exist.

Whether a line can be read may depend on its count (1,234 without quotes is two cells), so that it ends no private job, as bad
rows end none (`data.design`). An area that is in no other line gets a row in the place of the lost one, so that the
number of rows and the sums of public columns are what they would be: numbers in the middle of the client's others, the most
frequent of levels, no exposure. Its count is 0, to which noise is added as to all, and the likelihood leaves it out: to others it
is an area whose exposure is 0. Source: docs/spec/sigma.md, section 14.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...data.cells import Cells, Text, as_text, plain
from ...data.faults import Faults, Marks
from ...data.table import Table
from .keys import DataSection

SHOWN = 20  # names in a note


@dataclass(frozen=True)
class Unread:
    """Holds the lost lines, for the holder alone: faults of the lines, and the areas that have no other line."""

    faults: Faults = field(default_factory=Faults)
    areas: tuple[str, ...] = ()

    def describe_lost(self, table: str) -> list[str]:
        """Returns notes on them; `table` is that of noisy counts."""
        if not self.faults.rows:
            return []
        places = ", ".join(fault.place for fault in self.faults.first[:SHOWN])
        text = f"{self.faults.rows} lines cannot be read, and count as nothing ({places})"
        if not self.areas:
            return [text]
        more = f", .. ({len(self.areas)} in all)" if len(self.areas) > SHOWN else ""
        return [
            f"{text}: areas {', '.join(map(repr, self.areas[:SHOWN]))}{more} stand in no other line and are predicted as if they "
            f"had no exposure. If noise is drawn now it is added to 0 in the place of their counts, and they stay without one in "
            f"the noisy table {table!r}: mend the lines first, or take another privacy.table then, which is paid for"
        ]


def restore_table(table: Table, data: DataSection, texts: Collection[str], areas: Sequence[str]) -> tuple[Table, Unread]:
    """Returns a private client's table without lines that cannot be read, and with a row for each area of only such lines.

    Parameters
    ----------
    data : which columns the job has
    texts : columns that are read as text
    areas : of the client in the prior

    Returns
    -------
    the table, and the lost lines
    """
    if not table.broken or data.area is None:
        return table, Unread()
    rows = np.array([row for row in range(table.n_rows) if row not in table.broken], np.int64)
    readable = set(table.select(rows).cells(data.area))
    lost = tuple(area for area in areas if area not in readable)
    none = {data.response, data.exposure, data.trials}
    columns: dict[str, Cells] = {}
    for name in table.names:
        if name == data.area:
            columns[name] = as_text([*(table.text(name, int(row)) for row in rows), *lost])
            continue
        section = data.columns.get(name)
        levels = () if section is None or section.levels is None else tuple(section.levels)
        filled = [] if name in none else levels[:1]
        columns[name] = _with(table.columns[name], rows, len(lost), filled, zero=name in none, text=name in texts)
    places = [table.lines[row] for row in sorted(table.broken)] if table.lines is not None else []
    lines = None if table.lines is None else [*(table.lines[row] for row in rows), *(places + [0] * len(lost))[: len(lost)]]
    whole = Table(table.source, table.names, columns, len(rows) + len(lost), lines=lines, texts=table.texts)
    return whole, Unread(Marks(table).faults(), lost)


def _with(cells: Cells, rows: NDArray[np.int64], more: int, levels: Sequence[str], *, zero: bool, text: bool) -> Cells:
    """Returns a column's cells in some rows, and `more` cells after them: 0, the middle, or the most frequent level.

    Without any level among the cells it is the first of `levels`.
    """
    all_numbers = cells.numbers() if isinstance(cells, Text) else np.asarray(cells, np.float64)
    numbers = all_numbers[rows]
    known = numbers[np.isfinite(numbers)]
    if len(known) == len(numbers) and not text:
        middle = 0.0 if zero or not len(known) else float(np.median(known))
        return np.concatenate([numbers, np.full(more, middle)])
    texts = cells if isinstance(cells, Text) else as_text([*map(plain, np.asarray(cells).tolist())])
    written = [texts.levels[code] for code in texts.codes[rows]]
    most = Counter(written).most_common(1)
    if zero:
        fill = "0"
    elif most:
        fill = most[0][0]
    else:
        fill = next(iter(levels), "")
    if not zero and not text and texts.kind() == "numeric" and len(known):
        fill = plain(float(np.median(known)))
        fill = fill.replace(".", texts.decimal)
    return as_text([*written, *[fill] * more], texts.decimal)
