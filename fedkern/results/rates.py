"""Says at which clients counts, by their exposure, are a multiple of the others': exposures, or counts, in another unit.

An effect of areas takes such a factor up, so that no check of the model sees it. Clients tell the sums of both before the first
round (`exchanges.level`).

Source: docs/concepts/convergence.md, "Exposures in another unit".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..algorithms.exchanges.multiples import compare_multiples, in_words

FIRST = "Look at this first, for no setting of the job mends another unit: correct the file"
QUESTION = "are exposures in another unit there (months for years, per 1,000), or counts, or are rates so different?"


class Said(NamedTuple):
    """Notes for the reader of a result, and why it cannot stand."""

    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


def compare(response: str, names: Sequence[str], answers: Sequence[tuple[float, float]]) -> Said:
    """Returns what is to be said of the clients' counts by their exposure.

    Parameters
    ----------
    response : the column of the counts
    names : of the clients
    answers : of each the sum of its counts, and of its exposures
    """
    told = [(name, math.log(y / e), y) for name, (y, e) in zip(names, answers, strict=True) if min(y, e) > 0]
    found = compare_multiples(np.array([one[1] for one in told]), np.array([y**-0.5 for _, _, y in told]))
    others = f" or at {', '.join(repr(told[k][0]) for k in np.flatnonzero(~found.odd).tolist())}" if found.torn else ""
    what = f"column {response!r}"
    notes = tuple(
        f"{told[k][0]}: {what} by its exposure is {in_words(found.off[k])} that of the others: {QUESTION}{others} {FIRST}"
        for k in np.flatnonzero(found.odd).tolist()
    )
    if not found.unit.any():
        return Said(notes)
    k = int(np.abs(np.where(found.unit, found.off, 0.0)).argmax())
    where = ", ".join(told[j][0] for j in np.flatnonzero(found.unit).tolist())
    by = f"{what} by its exposure is {in_words(found.off[k])} that of the others"
    return Said(notes, (f"exposures, or counts, are in another unit at {where}{others}: {by} (a note says what to do)",))
