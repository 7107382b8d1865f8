"""Adds the covariates that a client's table lacks, as columns without a value."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..models.encoding import Encoding
from .table import Table


def fill_lacking(table: Table, agreed: Encoding) -> tuple[Table, list[str]]:
    """Returns the table with every numeric column that was agreed, and the names of those that it lacked."""
    lacking = [column.name for column in agreed.columns if column.levels is None and column.name not in table.columns]
    if not lacking:
        return table, []
    columns = {**table.columns, **{name: np.full(table.n_rows, np.nan) for name in lacking}}
    return replace(table, names=(*table.names, *lacking), columns=columns), lacking
