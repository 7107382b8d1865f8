"""Says at which clients counts, by their exposure, are a multiple of the others': exposures, or counts, in another unit.

An effect of areas takes such a factor up, so that no check of the model sees it. Clients tell the sums of both before the first
round (`exchanges.level`).

Source: docs/concepts/convergence.md, "Exposures in another unit".
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..algorithms.exchanges.multiples import in_words, name_multiples
from ..finding import Finding
from .verdict import Said


def compare(response: str, names: Sequence[str], answers: Sequence[tuple[float, float]]) -> Said:
    """Returns what is to be said of the clients' counts by their exposure.

    Parameters
    ----------
    response : the column of the counts
    names : of the clients
    answers : of each the sum of its counts, and of its exposures
    """
    told = [(name, math.log(y / e), y**-0.5) for name, (y, e) in zip(names, answers, strict=True) if min(y, e) > 0]
    found = name_multiples([one[0] for one in told], [one[1] for one in told], [one[2] for one in told])
    of = {"column": response, "others": found.others}
    notes = tuple(Finding.of("rate-apart", client=name, times=in_words(off), **of) for name, off in found.odd)
    if not found.unit:
        return Said(notes)
    return Said(notes, (Finding.of("exposures-in-another-unit", where=found.where, times=found.times, **of),))
