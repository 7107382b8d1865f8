"""Computes densities of single rows, each given the others of its group, for leave-one-out sums over a client's rows.

At a draw xi (the client's effect in it, `effects.complete_draws`) a row without the others of its group has an effect that they
tell: p(y_i | y of the rest, xi) = 1 / E[1 / p(y_i | u)] over the effect's density given all rows, by the nodes of the group's
rule. Where a row has much of the information on the effect, the rule would be around the wrong place: such rows, at most a few in
a group, have p(all) / p(all but the row), each integral by a rule of its own.

Source: Vehtari, Mononen, Tolvanen, Sivula and Winther (2016).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from .conditional import MOST, density, group_pieces, locate, nodes_of, pieces, predictor
from .quadrature import log_sum
from .rows import Rows

Vector = NDArray[np.float64]

LARGE = 0.4  # of the information on a group's effect
ROWS = 2_000  # at once


def row_densities(rows: Rows, inner: Vector, nodes: int) -> Iterator[Vector]:
    """Yields (S, n) logarithms of the densities of n rows that follow each other, given the others of their group.

    Parameters
    ----------
    inner : (S, P_inner) draws that `effects.complete_draws` has made
    nodes : a dimension of the groups' rule
    """
    if not rows.layout.group:
        for part in pieces(len(rows), ROWS):
            some = rows.take(np.arange(part.start, part.stop), np.array([0, part.stop - part.start]))
            yield density(some, predictor(some, inner), inner)
        return
    for part in group_pieces(rows, ROWS, ROWS):
        some = rows.take_groups(part)
        log = np.empty((len(inner), len(some)))
        for draws in pieces(len(inner), MOST // (len(some) * nodes_of(some, nodes))):
            log[draws] = _given_others(some, inner[draws], nodes)
        yield log


def _given_others(rows: Rows, inner: Vector, nodes: int) -> Vector:
    at = locate(rows, inner)
    log, of_rows = (np.stack(one, axis=-1) for one in zip(*at.terms(nodes), strict=True))
    total = log_sum(log)
    sizes = np.diff(rows.starts)
    share = np.repeat(log - total[..., np.newaxis], sizes, axis=1)
    left_out = -log_sum(share - of_rows)
    for i in np.flatnonzero(at.leverages(share, of_rows).max(axis=0) > LARGE):
        g = int(np.searchsorted(rows.starts, i, side="right")) - 1
        rest = np.setdiff1d(np.arange(rows.starts[g], rows.starts[g + 1]), [i])
        others = rows.take(rest, np.array([0, len(rest)]))
        left_out[:, i] = total[:, g] - (locate(others, inner).integrals(nodes)[:, 0] if len(rest) else 0.0)
    return left_out
