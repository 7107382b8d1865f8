"""Computes mixed models: a thread a point and a share of the groups."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.polynomial.hermite_e import hermegauss

from .device import MATRIX, VECTOR, blocks, current, matrix, structure, vector

THREADS = 128
SPREAD = 1 << 18  # threads that few points are spread over, by shares of the groups
MOST_PIECES = 1024
WORKSPACE = 1 << 30  # bytes of rows' predictors, a number a row and point: more points come one after the other
FAMILIES = ("binomial", "poisson", "gaussian", "negative_binomial")  # as MixedFamily has them
MOST_NODES = 128

_ROWS = np.dtype(
    [
        ("X", MATRIX), ("Z", MATRIX), ("y", VECTOR), ("trials", VECTOR), ("offset", VECTOR), ("starts", VECTOR),
        ("family", "i4"), ("nodes", "i4"),
    ],
    align=True,
)  # fmt: skip
_RULE = np.dtype([("t", "f8", (MOST_NODES,)), ("weight", "f8", (MOST_NODES,))], align=True)


@cache
def _rule(nodes: int) -> Any:
    """Returns a MixedRule: log w + t^2 / 2 beside t."""
    t, w = hermegauss(nodes)
    room = np.zeros((2, MOST_NODES))
    room[:, :nodes] = t, np.log(w / w.sum()) + 0.5 * t * t
    return structure(_RULE, *room)


def _rows(X: Any, Z: Any, y: Any, trials: Any, offset: Any, starts: Any, family: int, nodes: int) -> Any:
    columns = ((0, 0, 1) if a is None else vector(a).item() for a in (y, trials, offset, starts))
    return structure(_ROWS, matrix(X).item(), matrix(Z).item(), *columns, family, nodes)


def values(
    points: Any, X: Any, Z: Any, y: Any, trials: Any, offset: Any, starts: Any, upper: Any, cuts: Any, entry: Any, family: int,
    nodes: int, value: Any, n_threads: int,
) -> None:  # fmt: skip
    if family not in range(len(FAMILIES)):
        raise ValueError("family: no likelihood of the kernels of a device has this number")
    device, n, d, S = current(), len(X), Z.shape[1], len(points)
    if S == 0:
        return
    nodes = 1 if FAMILIES[family] == "gaussian" else nodes
    name = FAMILIES[family]
    rows, rule = _rows(X, Z, y, trials, offset, starts, family, nodes), _rule(nodes)
    grid = blocks(n, 8 * THREADS, 256)
    constant = device.xp.empty(grid)
    device.launch("mixed", f"constants<MixedFamily::{name}>", (grid,), THREADS, (rows, constant))
    most = max(1, WORKSPACE // (8 * max(n, 1)))
    tasks = len(starts) - 1 if d else n
    pieces = blocks(tasks, 1, min(MOST_PIECES, -(-SPREAD // S)))
    base, partial = device.xp.empty(n * min(S, most)), device.xp.empty(pieces * min(S, most))
    for first in range(0, S, most):
        some = points[first : first + most]
        points_of_some, s = matrix(some), len(some)
        device.launch("mixed", "predictors", (blocks(n * s, THREADS),), THREADS, (points_of_some, rows, base))
        kernel = f"group_integrals<MixedFamily::{name}, {d}>"
        device.launch("mixed", kernel, (-(-s // THREADS), pieces), THREADS, (points_of_some, rows, rule, base, partial))
        arguments = (points_of_some, rows, partial, pieces, constant, grid, vector(value[first : first + most]))
        device.launch("mixed", "totals", (blocks(s, THREADS),), THREADS, arguments)
