"""Finds the levels of a response in rows that all lie in this process, in memory or in files, where a job names none.

Where parties are apart the job file names them: labels of a response are the holders' to tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from ..data.cells import Text, number
from ..data.cells import labels as in_cells
from ..data.incomplete import NO_LABEL
from ..data.table import Table
from ..errors import JobError
from ..kernels.families import LEVELED, NOMINAL
from ..labels import in_order
from .formula import laid
from .keys import Raw
from .load import merged, table


def with_levels(raw: Raw, read: Callable[[str], Iterable[Table]]) -> Raw:
    """Returns a job's tables with `data.levels` as its rows have them, where a multinomial or ordinal job names none.

    Numbers stand in their order and categories that have an order in theirs; other labels are sorted, which gives a multinomial
    model its reference, and an ordinal one no order: its levels stay to be named.

    Parameters
    ----------
    raw : the job's tables
    read : the name of the response -> the tables of all clients
    """
    family = table(raw, "model").get("family")
    if family not in LEVELED or "levels" in table(raw, "data"):
        return raw
    try:
        response = str(table(laid.laid(raw), "data").get("response"))
        cells = [one.columns[response] for one in read(response) if response in one.columns]
    except JobError:  # a fault that is told where it is looked for
        return raw
    none = NO_LABEL.union(table(table(raw, "data"), "dialect").get("missing", ()))
    texts = [column for column in cells if isinstance(column, Text)]
    if not cells or len(texts) < len(cells):  # numbers of a type that a response of levels does not have
        return raw
    labels = dict.fromkeys(level for column in texts for level in in_cells(column).levels if level and level not in none)
    orders = {column.levels for column in texts if column.ordered}
    if all(column.ordered for column in texts):
        if len(orders) > 1:
            return raw
        found = [*labels]
    elif family in NOMINAL or not any(math.isnan(number(label)) for label in labels):
        found = in_order(labels)
    else:
        return raw
    return merged(raw, {"data": {"levels": found}})
