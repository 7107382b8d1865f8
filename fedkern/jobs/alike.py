"""Rows that a client's columns, or its response, single out, in open jobs: decided where it lives, before anything leaves.

What a client tells are sums over its rows of functions of them. A column that is 0 but in a few rows makes sums over these few
alone, however many others there are: of one row the row. So rows that columns single out count as a client of their own.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ..data.cells import MOST_OFF, Text, floats
from ..data.design import column_of
from ..data.faults import told
from ..data.incomplete import MARK
from ..data.rare import Rare, effective, rare, without_faults
from ..data.table import Table
from ..kernels.families import BINARY, FAMILIES, REAL
from ..models.encoding import Column, Spec
from ..privacy.disclosure import LEAST_OF_LEVEL, SHARE_OF_LEVEL
from .keys import DataSection, JobConfig

Array = NDArray[np.float64]

LOWER = "or, where all holders agree that such rows may be known to the server, lower data.least_rows"


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
    if covariates and (one := rare(table, columns, weights, wanted, together)) is not None:
        return _words(one, table, spec, fewest if one.n_rows < fewest and len(one.columns) == 2 else wanted)
    if not wanted or FAMILIES[spec.family].domain is REAL or spec.response not in table.columns:
        return None
    y, trials = _events(table, spec)
    if 0 < (few := _fewest_events(y, trials, spec, weights)) < fewest:
        return _words(Rare((str(spec.response),), few), table, spec, fewest)
    heavy = _heavy(table, spec, y, trials, weights)
    return _words_of_offset(heavy, table, spec, wanted) if heavy < wanted else None


def _events(table: Table, spec: Spec) -> tuple[Array, Array | None]:
    """(n,) events of each row, and of how many trials, where it has them."""
    cells = table.columns[str(spec.response)]
    if spec.positive is not None and isinstance(cells, Text):
        y = np.array([level == spec.positive for level in cells.levels], dtype=np.float64)[cells.codes]
    else:
        y = floats(cells)
    y = np.nan_to_num(np.abs(without_faults(y)))
    return y, None if spec.trials is None else floats(table.columns[spec.trials])


def _fewest_events(y: Array, trials: Array | None, spec: Spec, weights: Array) -> int:
    """The effective number of rows, rounded up, that have all events, or all that are none; 0 where there are none at all.

    With the mean of the others' predictors, which curvatures tell, X'y is the sum of x over them.
    """
    if trials is not None:
        groups = [y, np.maximum(trials - y, 0)]
    else:
        groups = [weights * y] + ([weights * np.maximum(1 - y, 0)] if FAMILIES[spec.family].domain is BINARY else [])
    numbers = [effective(np.where(weights > 0, own, 0.0)) for own in groups]
    return int(np.ceil(min((n for n in numbers if n > 0), default=0) - 1e-9))


def _heavy(table: Table, spec: Spec, y: Array, trials: Array | None, weights: Array) -> float:
    """The effective number of rows where each weighs, in X'WX, what its offset makes of it beside the best intercept.

    Of a log link that is its exposure: with years in place of their logarithms the longest few are all that there is.
    """
    if spec.offset is None or spec.offset not in table.columns:
        return np.inf
    offset = np.clip(np.nan_to_num(floats(table.columns[spec.offset])), -MOST_OFF, MOST_OFF)
    if FAMILIES[spec.family].link == "log":
        return effective(weights * np.exp(offset))
    share = float(y @ np.ones(len(y)) / trials.sum()) if trials is not None else float(weights @ y / weights.sum())
    low, high = -2 * MOST_OFF, 2 * MOST_OFF
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if weights @ expit(offset + middle) < share * weights.sum() else (low, middle)
    chance = expit(offset + low)
    return effective(weights * chance * (1 - chance))


def _words(one: Rare, table: Table, spec: Spec, wanted: int) -> tuple[str, str]:
    both = " and ".join(told(name, table.names, spec.known) for name in one.columns)
    own = " and ".join(map(repr, one.columns))
    if one.columns == (spec.response,):
        remedy = f"pool them with another site's, {LOWER}"
    elif any(name.endswith(MARK) for name in one.columns):
        remedy = f'set model.missing = "drop", fill these cells in, put the column into data.ignore, {LOWER}'
    elif len(one.columns) == 1:
        remedy = f"mend the cells if they are wrong, join rare values in all files, put the column into data.ignore, {LOWER}"
    else:
        remedy = f"put one of these columns into data.ignore, join their rare values in all files, {LOWER}"
    has = "has a value" if len(one.columns) == 1 else "have values together"
    text = f"{has} in fewer of its rows than this job, or its holder, asks for, and what is sent tells these; {remedy}"
    alone = f"{one.n_rows} row{'s have' if one.n_rows > 1 else ' has'}"
    return f"{both} {text}", f"{own} {has} that {alone} and all others lack; {wanted} are asked for: {remedy}"


def _words_of_offset(few: float, table: Table, spec: Spec, wanted: int) -> tuple[str, str]:
    name = told(str(spec.offset), table.names, spec.known)
    remedy = f"take the logarithm of an exposure, mend cells that are wrong, leave data.offset out, {LOWER}"
    begin = "gives nearly all weight to fewer of its rows than this job, or its holder, asks for, and what is sent tells these"
    many = f"to few rows, by their effective number {few:.1f}; {wanted} are asked for"
    return f"{name} {begin}; {remedy}", f"{spec.offset!r} gives nearly all weight {many}: {remedy}"
