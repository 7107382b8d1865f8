"""Densities of single rows, each given the others of its group: what leave-one-out sums over a client's rows are made of.

At a draw xi (the client's effect in it, `effects.completed`) a row without the others of its group has an effect that they tell:
p(y_i | y of the rest, xi) = 1 / E[1 / p(y_i | u)] over the effect's density given all rows, by the nodes of the group's rule.
Where a row has much of what is known of the effect the rule would be around the wrong place: such rows, at most a few in a group,
have p(all) / p(all but the row), each integral by a rule of its own.

Source: Vehtari, Mononen, Tolvanen, Sivula and Winther (2016).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from .conditional import MOST, density, group_pieces, located, nodes_of, pieces, predictor
from .quadrature import log_sum
from .rows import Rows

Vector = NDArray[np.float64]

LARGE = 0.4  # of what is known of a group's effect
ROWS = 2_000  # at once


def row_densities(rows: Rows, inner: Vector, nodes: int) -> Iterator[Vector]:
    """Of rows that follow each other (S, n of them): the logarithms of their densities, given the others of their group, at
    draws (S, P_inner)."""
    if not rows.layout.group:
        for part in pieces(len(rows), ROWS):
            some = rows.take(np.arange(part.start, part.stop), np.array([0, part.stop - part.start]))
            yield density(some, predictor(some, inner), inner)
        return
    for part in group_pieces(rows, ROWS, ROWS):
        some = rows.take_groups(part)
        found = np.empty((len(inner), len(some)))
        for draws in pieces(len(inner), MOST // (len(some) * nodes_of(some, nodes))):
            found[draws] = _given_others(some, inner[draws], nodes)
        yield found


def _given_others(rows: Rows, inner: Vector, nodes: int) -> Vector:
    at = located(rows, inner)
    log, of_rows = (np.stack(one, axis=-1) for one in zip(*at.terms(nodes), strict=True))
    total = log_sum(log)
    sizes = np.diff(rows.starts)
    share = np.repeat(log - total[..., np.newaxis], sizes, axis=1)
    found = -log_sum(share - of_rows)
    for i in np.flatnonzero(at.leverages(share, of_rows).max(axis=0) > LARGE):
        g = int(np.searchsorted(rows.starts, i, side="right")) - 1
        rest = np.setdiff1d(np.arange(rows.starts[g], rows.starts[g + 1]), [i])
        others = rows.take(rest, np.array([0, len(rest)]))
        found[:, i] = total[:, g] - (located(others, inner).integrals(nodes)[:, 0] if len(rest) else 0.0)
    return found
