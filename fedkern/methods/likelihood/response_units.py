"""Says at which clients a positive response, or a count, is in another unit, from sums that clients tell anyway.

Each tells the sum of its responses and how many rows it has, or their exposure (`exchanges.level`); where the server gets sums
alone, each client compares its own with all others' (`exchanges.odd_response`). A gamma response has the same shape in any unit,
and a random effect of clients takes the factor up: no check of the model sees it.

Source: docs/concepts/convergence.md, "A response in another unit".
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...algorithms.exchanges.multiples import in_words, is_another, name_multiples
from ...algorithms.exchanges.odd_response import Compared, Words
from ...finding import Finding
from ...results.verdict import Said

DISPERSED = 2.0  # the squared coefficient of variation that a row has at most


def of_means(column: str, names: Sequence[str], answers: Sequence[tuple[float, float]], rows: Sequence[float]) -> Said:
    """Returns what is to be said of the clients' responses.

    Parameters
    ----------
    column : of the response, with quotes
    names : of the clients
    answers : of each the sum of its responses, and the number of its rows or their exposure
    rows : how many rows each has at least
    """
    told = [(name, math.log(y / n), _error(y, r)) for name, (y, n), r in zip(names, answers, rows, strict=True) if min(y, n) > 0]
    found = name_multiples([one[0] for one in told], [one[1] for one in told], [one[2] for one in told])
    of = {"column": column, "others": found.others}
    notes = tuple(Finding.of("response-apart", client=name, times=in_words(off), **of) for name, off in found.odd)
    if not found.unit:
        return Said(notes)
    return Said(notes, (Finding.of("response-in-another-unit", where=found.where, times=found.times, **of),))


def of_client(column: str, own: tuple[float, float], y: float, n: float, rows: float, *, several: bool) -> Compared:
    """Compares a client's response with that of all others together, where the server gets sums alone.

    Parameters
    ----------
    own, rows : its own sums, and how many rows it has
    y, n : the sums of all clients
    several : whether the others are more than one client
    """
    others = y - own[0], n - own[1]
    if not min(*own, *others) > 0:
        return Compared()
    off = math.log(own[0] / own[1] * others[1] / others[0])
    noted, doubt = is_another(off, _error(own[0], rows), several=several)
    if not noted:
        return Compared()
    note = Finding.of("response-apart-here", column=column, times=in_words(off))
    return Compared((note,), doubt, doubt and off > 0)


def words_alone(column: str) -> Words:
    """Returns the server's texts on clients that compare themselves."""
    return Words(
        f"column {column}: at {{}} clients its mean is not that of all others together: is it in another unit somewhere, or are "
        "patients so different? rows.json in each client's own folder says how far",
        f"column {column} is in another unit at one client: rows.json in that client's own folder says how far its mean is from "
        "all others', and the server cannot know which it is",
    )


def _error(y: float, rows: float) -> float:
    """Returns the standard error of the logarithm of a mean, at most: that of a count, and of what varies beside it."""
    return math.sqrt(1 / max(y, 1.0) + DISPERSED / max(rows, 1.0))
