"""Decides which counts of a client's rows may be told: cells with few rows join others, so that no difference gives one back.

All that is told of a column is a function of one partition of its cells (levels, or bins of a number, and one of missing cells),
each part of which has enough rows. So are differences of what is told. A cell that no row is in is told as empty; one that joined
has any number of rows from none to its part's. What a client sends is told already; what is printed of all clients is a sum over
parts that all of them have.

One function joins everything: levels of a factor, bins of a number, one factor of a cross table (the levels of the other are the
views of its cells), and intervals of survival times (events and censored rows of each group are their views).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Parts = tuple[tuple[int, ...], ...]  # of cells; each cell is in one of them


def join(counts: ArrayLike, least: int, *, ordered: int = 0, start: Parts | None = None) -> Parts:
    """Joins cells until no part has few rows.

    Parameters
    ----------
    counts : (cells,) or (views, cells); a part needs enough rows in each view, unless all of its cells are empty in all
    least : rows of a part (`rows_per_value` of the level; `rows` where sums over a part's rows are told)
    ordered : the number of first cells of which neighbours alone join, as bins do; cells behind them are in no order
    start : parts that are no longer taken apart; None: each cell is one

    Returns
    -------
    the parts, by their first cells. Where even all cells together are too few they are one part, and `enough` says so

    Examples
    --------
    >>> from fedkern.disclosure.cells import join
    >>> join([40, 2, 0, 30], 5), join([9, 8, 1, 9, 2], 5, ordered=4)
    (((0,), (1, 3), (2,)), ((0, 4), (1, 2), (3,)))
    """
    raise NotImplementedError


def enough(counts: ArrayLike, parts: Parts, least: int) -> bool:
    """Tells whether each part has enough rows, in each view, or none in any: if not, none of these counts may be told."""
    raise NotImplementedError


def common(*partitions: Parts) -> Parts:
    """Returns the finest parts that are unions of parts of each partition: what all clients tell can be added over these."""
    raise NotImplementedError


def added(counts: ArrayLike, parts: Parts) -> Ints:
    """Returns (.., parts) the counts (.., cells) of parts."""
    raise NotImplementedError


def once(parts: Parts, counts: ArrayLike, earlier: Parts, told: ArrayLike, least: int, *, ordered: int = 0) -> Parts:
    """Coarsens the parts of a column of which other parts, or of other rows, were told before.

    No part is finer than what was told; and where several that were told are one now, this one has changed by enough rows, or not
    at all. The cells are those of now: bins have the ends that were told (`same_ends`).

    Parameters
    ----------
    parts, counts : (cells,) of now
    earlier, told : (parts,) of the last `describe` on data of this holder, from its account
    """
    raise NotImplementedError


def same_ends(ends: ArrayLike, earlier: ArrayLike) -> Floats:
    """Returns the ends of bins that a column may have now: those that were told before; all if none were."""
    raise NotImplementedError


def cross(counts: ArrayLike, least: int, *, ordered: Sequence[int] = (0, 0)) -> tuple[Parts, Parts] | None:
    """Returns the parts of rows, and of columns, by which a cross table may be told; None if by none.

    The cells of each factor are the parts in which it is told by itself (with its missing cells). One of the two factors joins,
    the other stays as it is: so each cell that is hidden can have as many values as the level asks for.

    Parameters
    ----------
    counts : (rows, columns)
    ordered : of the rows, and of the columns, how many first ones are in order
    """
    raise NotImplementedError


def ring(pairs: Sequence[tuple[str, str]]) -> tuple[str, str] | None:
    """Returns the first pair of factors whose cross table closes a ring of those before it; None if none does.

    Tables without a ring leave open how often each combination of all their factors occurs; three of three factors do not.
    """
    raise NotImplementedError
