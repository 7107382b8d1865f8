"""Rows that a client's columns, or its response, single out, in open jobs: decided where it lives, before anything leaves.

What a client tells are sums over its rows of functions of them. A column that is 0 but in a few rows makes sums over these few
alone, however many others there are: of one row the row. So rows that columns single out count as a client of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..data.cells import Text, floats
from ..data.design import column_of
from ..data.faults import told
from ..data.incomplete import MARK
from ..data.rare import Rare, effective, heavy, rare, without_faults
from ..data.table import Table
from ..kernels.families import BINARY, COUNTS, FAMILIES, REAL
from ..models.encoding import Column, Spec
from ..privacy.disclosure import LEAST_OF_LEVEL, SHARE_OF_LEVEL
from .keys import DataSection, JobConfig

Array = NDArray[np.float64]

LOWER = "or, where all holders agree that such rows may be known to the server, lower data.least_rows"
POOL = "pool its rows with another site's"
MOST_NAMED = 20  # columns, or sets of them, beside the first


def asked(config: JobConfig, family: str, least: int) -> int:
    """The rows that must share a value of a covariate where a client needs `least` rows; 0 where it is not asked."""
    if config.privacy is not None or not isinstance(config.data, DataSection):  # a vertical client tells a number for every row
        return 0
    # Linear sums have the same weights in every round: of two rows or more they are never more than their sums.
    wanted = math.ceil(least // SHARE_OF_LEVEL / config.batch)
    return min(LEAST_OF_LEVEL, wanted) if FAMILIES[family].domain is REAL else wanted


def found(
    config: JobConfig, table: Table, spec: Spec, least: int, weights: Array, *, covariates: bool = True
) -> tuple[str, str] | None:
    """What others read, and the holder, of values that too few of a client's rows have.

    Parameters
    ----------
    least : rows that the client must have, by the job and its holder's policies
    weights : (n,) of the rows, 0 of those that do not count
    covariates : whether they are looked at, or the response alone
    """
    wanted = asked(config, spec.family, least)
    fewest = min(LEAST_OF_LEVEL, wanted)  # of what a server has a sum of, and no more
    together = 0 if FAMILIES[spec.family].domain is REAL else fewest  # of a linear model two columns' product is a number of rows
    columns = [column_of(spec, table, name) for name in spec.covariates(table.names)]
    if FAMILIES[spec.family].domain is REAL and spec.response in table.columns:  # its cross-products are told as columns' are
        columns += [Column(str(spec.response), "numeric", center=0.0, scale=1.0)]
    every = rare(table, columns, weights, wanted, together) if covariates else ()
    few = 0 if every or not wanted or FAMILIES[spec.family].domain is REAL else _events(table, spec, weights)
    if 0 < few < fewest:
        every = (Rare((str(spec.response),), few),)
    elif not every and wanted > 1 and _far(table, spec, weights):
        every, few = (Rare((str(spec.response),), 1, far=True),), 0
    if not every:
        return None
    pair = len(every[0].columns) == 2 and every[0].n_rows < fewest
    return _words(every, table, spec, fewest if few or pair else wanted)


def _events(table: Table, spec: Spec, weights: Array) -> int:
    """The effective number of rows, rounded up, that have all events, or all that are none; 0 where there are none at all.

    With the mean of the others' predictors, which curvatures tell, X'y is the sum of x over them.
    """
    if spec.response not in table.columns:
        return 0
    cells = table.columns[str(spec.response)]
    if spec.positive is not None and isinstance(cells, Text):
        y = np.array([level == spec.positive for level in cells.levels], dtype=np.float64)[cells.codes]
    else:
        y = floats(cells)
    y = np.nan_to_num(np.abs(without_faults(y)))
    trials = None if spec.trials is None else floats(table.columns[spec.trials])
    if trials is not None:
        groups = [y, np.maximum(trials - y, 0)]
    else:
        groups = [weights * y] + ([weights * np.maximum(1 - y, 0)] if FAMILIES[spec.family].domain is BINARY else [])
    numbers = [effective(np.where(weights > 0, own, 0.0)) for own in groups]
    return int(np.ceil(min((n for n in numbers if n > 0), default=0) - 1e-9))


def _far(table: Table, spec: Spec, weights: Array) -> bool:
    """Whether a count is so far from all others that its row is nearly all that a gradient tells."""
    if FAMILIES[spec.family].domain is not COUNTS or spec.trials is not None or spec.response not in table.columns:
        return False
    return heavy(without_faults(floats(table.columns[str(spec.response)])), weights)


def _words(every: tuple[Rare, ...], table: Table, spec: Spec, wanted: int) -> tuple[str, str]:
    """Of the fewest rows, and in what else there are such rows, so that all is mended at once."""
    one, *others = every
    both, own = (_joined(one, name) for name in (lambda name: told(name, table.names, spec.known), repr))
    if one.far:
        without = "leave the row out" if one.columns == (spec.response,) else "put the column into data.ignore"
        remedy = f"mend the cell if it is wrong, cap it or take logarithms in all files, {without}, {LOWER}"
        text = "has a cell so far from all others that what is sent tells its row"
        return f"{both} {text}; {remedy}", f"{own} {text}{_farthest(one, table)}: {remedy}"
    if one.columns == (spec.response,):
        remedy = f"pool them with another site's, {LOWER}"
    elif any(name.endswith(MARK) for name in one.columns):
        remedy = f'set model.missing = "drop", fill these cells in, put the column into data.ignore, {LOWER}'
    elif len(one.columns) == 1:
        mend = f"mend the cells if they are wrong, join rare values in all files, {POOL}"
        remedy = f"{mend}, put the column into data.ignore, {LOWER}"
    else:
        remedy = f"join their rare values in all files, {POOL}, put one of these columns into data.ignore, {LOWER}"
    has = "has a value" if len(one.columns) == 1 else "have values together"
    also = others[:MOST_NAMED]
    more = f", and {len(others) - MOST_NAMED} more" if len(others) > MOST_NAMED else ""
    names = ", ".join(_joined(other, lambda name: told(name, table.names, spec.known)) for other in also)
    numbers = ", ".join(f"{_joined(other, repr)} of {other.n_rows}" for other in also)
    text = f"{has} in fewer of its rows than this job, or its holder, asks for, and what is sent tells these"
    alone = f"{has} that {one.n_rows} row{'s have' if one.n_rows > 1 else ' has'} and all others lack; {wanted} are asked for"
    return (
        f"{both} {text}{f' (the same of {names}{more})' if also else ''}; {remedy}",
        f"{own} {alone}{f' (the same of {numbers}{more})' if also else ''}: {remedy}",
    )


def _farthest(one: Rare, table: Table) -> str:
    cells = table.columns.get(one.columns[0])
    if cells is None or isinstance(cells, Text):
        return ""
    values = without_faults(floats(cells))
    at = int(np.nanargmax(np.abs(values - np.nanmedian(values))))
    return f" ({table.place(at)}: {values[at]:.6g})"


def _joined(one: Rare, name: Callable[[str], str]) -> str:
    return " and ".join(map(name, one.columns))
