"""Refuses a client of whose rows a hazard that is constant between times would tell few.

A client's messages hold, for each piece of time, a sum over its rows of how long each was seen in that piece, times a function of
the row's columns; and for each pair of pieces a sum over the rows whose event is in an interval that reaches into both. Sums of
two pieces in which most rows were seen for the same part of the time differ by the other rows alone.

Source: docs/spec/likelihood.md, section 9.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import Array, Indices
from ...finding import RuleRefusal, Value
from .times import Times

LEAST = 10  # rows that share what a sum, or a difference of two sums, is about
ALIKE = 9  # decimal places to which two parts of a time are one


class Few(NamedTuple):
    """Says of which rows there are few: the id of that fact, and the pieces, each with the number of its rows."""

    fact: str
    pieces: list[tuple[str, int]]


def check_pieces(cuts: Sequence[float], rows: Times, client: str, where: str) -> None:
    """Refuses a client of whose rows few, and not none, are those that a sum or a difference of two sums is about.

    Rows are counted that end in one piece; whose event is in an interval from one piece to another; that are seen late, from a
    time in one piece on; that are seen in a piece; and that are not seen for the same parts of two pieces as most rows are.
    Raises RuleRefusal: it has few of one of these.
    """
    for few in _few(np.array(cuts), rows) if cuts else ():
        values: dict[str, Value] = {
            "pieces": few.pieces,
            "least": LEAST,
            "facts": (few.fact,),
            "remedies": ("other-cuts", "pool"),
        }
        raise RuleRefusal("few-in-a-piece", client, "model.cuts", where=where, **values)


def _few(cuts: Array, rows: Times) -> Iterator[Few]:
    """Yields the kinds of rows of which a client has few."""
    between = rows.between
    # Who begins at a cut is seen from the piece on that begins there, and who ends at it in the one before.
    end = np.searchsorted(cuts, np.where(between, rows.upper, rows.time), side="left")
    first = np.where(between, np.searchsorted(cuts, rows.time, side="right"), end)
    m = len(cuts) + 1
    counts = np.bincount(first * m + end, minlength=m * m).reshape(m, m)
    yield from _of_pieces(cuts, np.diag(counts), "piece-ends")
    few = np.argwhere((counts > 0) & (counts < LEAST) & ~np.eye(m, dtype=bool)).tolist()
    if few:
        yield Few("piece-interval", [(f"{_piece(cuts, i)} to {_piece(cuts, j)}", int(counts[i, j])) for i, j in few])
    if rows.entry is not None:
        late = np.searchsorted(cuts, rows.entry[rows.entry > 0], side="right")
        yield from _of_pieces(cuts, np.bincount(late, minlength=m), "piece-begins")
    seen, inside = _seen(cuts, rows, between)
    with_rows = (seen > 0) | inside
    yield from _of_pieces(cuts, with_rows.sum(axis=0), "piece-seen")
    for j in range(m):
        for k in range(j):
            apart = _apart(seen[:, [k, j]], inside[:, k] | inside[:, j])
            if 0 < apart < LEAST:
                yield Few("piece-parts", [(f"{_piece(cuts, k)} and {_piece(cuts, j)}", apart)])
    yield from _beside_one_time(cuts, np.where(np.isfinite(rows.upper), rows.upper, rows.time), end)


def _of_pieces(cuts: Array, counts: Indices, fact: str) -> Iterator[Few]:
    """Yields the pieces that have few rows."""
    few = np.flatnonzero((counts > 0) & (counts < LEAST)).tolist()
    if few:
        yield Few(fact, [(_piece(cuts, k), int(counts[k])) for k in few])


def _beside_one_time(cuts: Array, time: Array, piece: Indices) -> Iterator[Few]:
    """Yields a piece of which few rows end at another time than most, where an earlier piece has no end.

    Sums of pieces, each taken some number of times, are a sum over rows of a function of when each ends: a line in each piece,
    from 0 at 0. It is not 0 in the first piece that is taken, and at one time of each later one at most. So it is about ten rows
    or more if the first piece has an end, and without one if later ones have ten rows, or none, beside their most common time.
    """
    counts = np.bincount(piece, minlength=len(cuts) + 1)
    for j in range(int(np.argmin(counts > 0)) + 1, len(counts)) if (counts == 0).any() else ():
        times = np.unique(time[piece == j], return_counts=True)[1]
        if 0 < (others := int(counts[j]) - int(times.max(initial=0))) < LEAST:
            yield Few("piece-times", [(_piece(cuts, j), others)])


def _seen(cuts: Array, rows: Times, between: NDArray[np.bool_]) -> tuple[Array, NDArray[np.bool_]]:
    """Returns (n, m) how long each row was seen in each piece before its event, and whether an interval of it reaches into it."""
    low, high = np.concatenate([[0.0], cuts]), np.append(cuts, np.inf)
    since = np.zeros(len(rows.time)) if rows.entry is None else np.maximum(rows.entry, 0.0)
    time, upper = rows.time[:, np.newaxis], np.where(between, rows.upper, rows.time)[:, np.newaxis]
    seen = np.maximum(np.minimum(time, high) - np.maximum(since[:, np.newaxis], low), 0.0)
    return seen, np.minimum(upper, high) > np.maximum(time, low)


def _apart(seen: Array, inside: NDArray[np.bool_]) -> int:
    """Returns the number of rows that a difference of two pieces' sums is about, of which one is taken so that most rows cancel.
    `seen`: (n, 2) how long rows were seen in both; `inside`: (n,) whether an interval reaches into one of them: such a row never
    cancels."""
    total = seen.sum(axis=1)
    beside = ~inside & (total > 0)
    part = np.round(seen[beside, 0] / total[beside], ALIKE)
    if len(part) < 2 * LEAST:
        most = int(np.unique(part, return_counts=True)[1].max(initial=0))
    else:  # what nearly all have is also in their middle
        most = int(np.count_nonzero(part == np.partition(part, len(part) // 2)[len(part) // 2]))
    return int(inside.sum()) + len(part) - most


def _piece(cuts: Array, k: int) -> str:
    """In words."""
    ends = [0.0, *cuts.tolist(), math.inf]
    return f"from {ends[k]:g} to {ends[k + 1]:g}"
