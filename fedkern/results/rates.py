"""Says at which clients a positive response, or a count by its exposure, is in another unit, from sums that clients tell anyway.

Each tells the sum of its responses and how many rows it has, or their exposure (`exchanges.level`); where the server gets sums
alone, each client compares its own with all others' (`exchanges.odd_response`). A gamma response has the same shape in any unit,
and an effect of clients or areas takes the factor up: no check of the model sees it.

Source: docs/concepts/convergence.md, "A response in another unit", "Exposures in another unit".
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..algorithms.exchanges.apart import describe_levels, in_words, is_another_level
from ..algorithms.exchanges.odd_response import Compared
from ..finding import Finding

DISPERSED = 2.0  # the squared coefficient of variation that a row has at most


def of_exposures(response: str, names: Sequence[str], answers: Sequence[tuple[float, float]]) -> list[Finding]:
    """Returns findings on the clients' counts by their exposure.

    Parameters
    ----------
    response : the column of the counts
    names : of the clients
    answers : of each the sum of its counts, and of its exposures
    """
    rates = [(name, math.log(y / e), y**-0.5) for name, (y, e) in zip(names, answers, strict=True) if min(y, e) > 0]
    whose, logs, errors = zip(*rates) if rates else ((), (), ())
    return describe_levels(whose, logs, errors, "rate-apart", "exposures-in-another-unit", column=response)


def of_means(column: str, names: Sequence[str], answers: Sequence[tuple[float, float]], rows: Sequence[float]) -> list[Finding]:
    """Returns findings on the clients' responses.

    Parameters
    ----------
    column : of the response, with quotes
    names : of the clients
    answers : of each the sum of its responses, and the number of its rows or their exposure
    rows : how many rows each has at least
    """
    rates = [(name, math.log(y / n), _error(y, r)) for name, (y, n), r in zip(names, answers, rows, strict=True) if min(y, n) > 0]
    whose, logs, errors = zip(*rates) if rates else ((), (), ())
    return describe_levels(whose, logs, errors, "response-apart", "response-in-another-unit", column=column)


def of_client(column: str, of_client_alone: tuple[float, float], y: float, n: float, rows: float, *, several: bool) -> Compared:
    """Compares a client's response with that of all others together, where the server gets sums alone.

    Parameters
    ----------
    of_client_alone, rows : its own sums, and how many rows it has
    y, n : the sums of all clients
    several : whether the others are more than one client
    """
    others = y - of_client_alone[0], n - of_client_alone[1]
    if not min(*of_client_alone, *others) > 0:
        return Compared()
    off = math.log(of_client_alone[0] / of_client_alone[1] * others[1] / others[0])
    noted, doubt = is_another_level(off, _error(of_client_alone[0], rows), several=several)
    if not noted:
        return Compared()
    note = Finding.of("response-apart-here", column=column, times=in_words(math.exp(off)))
    return Compared((note,), doubt, doubt and off > 0)


def _error(y: float, rows: float) -> float:
    """Returns the standard error of the logarithm of a mean, at most: that of a count, and of what varies beside it."""
    return math.sqrt(1 / max(y, 1.0) + DISPERSED / max(rows, 1.0))
