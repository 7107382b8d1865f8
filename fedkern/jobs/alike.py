"""Values that few rows of a client share, in open jobs: decided where it lives, before anything of its rows leaves.

What a client tells are sums over its rows of functions of them. A column that is 0 but in a few rows makes sums over these few
alone, however many others there are: of one row the row. So rows that a column singles out count as a client of their own.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..data.design import column_of
from ..data.faults import told
from ..data.incomplete import MARK
from ..data.rare import Rare, rare
from ..data.table import Table
from ..kernels.families import FAMILIES, REAL
from ..models.encoding import Column, Spec
from ..privacy.disclosure import LEAST_OF_LEVEL, SHARE_OF_LEVEL
from .keys import DataSection, JobConfig


def asked(config: JobConfig, family: str, least: int) -> int:
    """The rows that must share a value of a covariate where a client needs `least` rows; 0 where it is not asked."""
    if config.privacy is not None or not isinstance(config.data, DataSection):  # a vertical client tells a number for every row
        return 0
    # Linear sums have the same weights in every round: of two rows or more they are never more than their sums.
    wanted = math.ceil(least // SHARE_OF_LEVEL / config.batch)
    return min(LEAST_OF_LEVEL, wanted) if FAMILIES[family].domain is REAL else wanted


def found(
    config: JobConfig, table: Table, spec: Spec, least: int, there: NDArray[np.bool_], *, covariates: bool = True
) -> tuple[str, str] | None:
    """What others read, and the holder, of a value that too few of a client's rows have.

    Parameters
    ----------
    least : rows that the client must have, by the job and its holder's policies
    there : (n,) rows that count
    covariates : whether they are looked at, or the response alone
    """
    wanted = asked(config, spec.family, least)
    columns = [column_of(spec, table, name) for name in spec.covariates(table.names) if covariates]
    one = rare(table, columns, wanted, there)
    if one is None and spec.response in table.columns and wanted:
        assert spec.response is not None
        wanted = min(LEAST_OF_LEVEL, least // SHARE_OF_LEVEL)  # a server has the sum of x over the rows with this response
        response = Column(spec.response, "numeric" if spec.positive is None else "categorical")
        one = rare(table, [response], wanted, there)
    return None if one is None else _words(one, table, spec, wanted)


def _words(one: Rare, table: Table, spec: Spec, wanted: int) -> tuple[str, str]:
    both = " and ".join(told(name, table.names, spec.known) for name in one.columns)
    own = " and ".join(map(repr, one.columns))
    if one.columns == (spec.response,):
        remedy = "what is sent of them may tell these rows: pool them with another site's"
    elif any(name.endswith(MARK) for name in one.columns):
        remedy = 'set model.missing = "drop", fill these cells in, or put the column into data.ignore'
    else:
        remedy = "join it with another value in all files, put the column into data.ignore, or pool the rows with another site's"
    has = "has a value" if len(one.columns) == 1 else "have values together"
    text = f"{has} in fewer than {wanted} of its rows, and what is sent tells these; {remedy}"
    return f"{both} {text}", f"{own} {has} that {one.n_rows} rows have and all others lack; {wanted} are asked for: {remedy}"
