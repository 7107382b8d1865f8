"""Writes each row of a table as many times as a column of it says, as if its file had so many equal rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..errors import OwnFault
from .design import check_counts
from .faults import Marks, who
from .reading import read_numbers
from .table import Table

MOST = 1 << 22  # rows of a client that are written so


def repeated(table: Table, name: str, client: str = "") -> Table:
    """Returns the table with each row as many times as column `name` says; one of 0 is left out. Raises OwnFault: a number is not
    whole, or below 0; or there would be too many rows. Cells are for the holder."""
    check_counts(table, name, client)
    times = read_numbers(table, name, Marks(table))
    if (times == 1).all():
        return table
    if times.sum() > MOST:
        text = (
            f"{who(client, table.source)}: column {name!r}: its rows stand for more than {MOST:,} rows, which are taken one by "
            "one: give rows of 0 and 1 as successes of trials (data.trials), counts as sums with an exposure (data.offset), or "
            'weights of a survey as such (data.weight_kind = "survey")'
        )
        raise OwnFault(text, f"{text} ({times.sum():,.0f} rows)")
    return replace(table.select(np.repeat(np.arange(table.n_rows), times.astype(np.int64))), incomplete=table.incomplete)
