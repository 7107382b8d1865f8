"""Makes rules for one effect a group whose density, given the rows, may have several modes. No mode is looked for.

Knots stand over all that the effect's prior allows, and where each of some rows is likeliest; more are put where the root of the
density has its mass between them, again and again, so that a peak of any width is met that shows in its surroundings. Panels then
hold equal parts of that mass, with Gauss-Legendre nodes in each.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ...kernels.families import FAMILIES
from .rows import Rows

Vector = NDArray[np.float64]

FAR = 40.0  # of an effect in its standard deviations: the outermost knots
KNOTS, STEP, WIDTH = 41, 0.21, 1.19  # of which the middle ones are a quarter apart
OF_ROWS = 12  # knots where rows of a group are likeliest, at most
TIMES, MORE = 4, 12  # how often knots are added, and how many
# The part of the mass below each end of a panel, and the nodes of a panel.
_ENDS = np.array([0, 1e-4, 1e-3, 0.005, 0.02, 0.05])
BELOW = np.concatenate([_ENDS, np.linspace(0.08, 0.92, 13), 1 - _ENDS[::-1]])
NODES = 4


@lru_cache(maxsize=1)
def _legendre() -> tuple[Vector, Vector]:
    t, w = np.polynomial.legendre.leggauss(NODES)
    return 0.5 * (1 + t), 0.5 * w


def size() -> int:
    """Returns the number of nodes of a rule."""
    return NODES * (len(BELOW) - 1)


def rule(rows: Rows, fixed: Vector, T: Vector, joint: Callable[[Vector], Vector]) -> tuple[Vector, Vector]:
    """Returns nodes u (S, G, K), and the logarithms of the weights with which exp(`joint`) at them adds up to its integral.

    Parameters
    ----------
    rows : of the groups, Z of one column
    fixed : (S, n) predictors without the groups' effects
    T : (S, 1, 1)
    joint : u (S, G) -> (S, G) logarithms of the integrand, up to a constant
    """
    S, G = len(fixed), rows.n_groups
    u = np.concatenate([np.broadcast_to(_everywhere(), (S, G, KNOTS)), _of_rows(rows, fixed, T)], axis=2)
    log = _at(joint, u)
    for _ in range(TIMES):
        u, log = _sorted(u, log)
        more = _quantiles(u, log, (0.5 + np.arange(MORE)) / MORE)
        u, log = np.concatenate([u, more], axis=2), np.concatenate([log, _at(joint, more)], axis=2)
    ends = _quantiles(*_sorted(u, log), BELOW)
    t, w = _legendre()
    length = np.diff(ends, axis=2)[..., np.newaxis]
    nodes = (ends[:, :, :-1, np.newaxis] + length * t).reshape(S, G, -1)
    with np.errstate(divide="ignore"):
        return nodes, np.log(length * w).reshape(S, G, -1)


def _everywhere() -> Vector:
    at = np.arange(KNOTS) - KNOTS // 2
    return np.asarray(np.clip(WIDTH * np.sinh(STEP * at), -FAR, FAR))


def _of_rows(rows: Rows, fixed: Vector, T: Vector) -> Vector:
    """(S, G, k) effects at which some rows of each group, evenly chosen among them, are likeliest."""
    record, y = FAMILIES[rows.layout.family], rows.y
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        place = y if record.measured else np.log(y) - np.log1p(-y) if record.link == "logit" else np.log(np.maximum(y, 0.5))
        u = np.clip(np.nan_to_num((place - fixed) / (T[:, 0] * rows.Z[:, 0])), -FAR, FAR)
    group = np.repeat(np.arange(rows.n_groups), np.diff(rows.starts))
    order = np.lexsort((u.mean(axis=0), group))  # rows stay in their groups
    sizes = np.diff(rows.starts)
    share = np.linspace(0, 1, min(OF_ROWS, int(sizes.max(initial=1))))
    which = rows.starts[:-1, np.newaxis] + np.rint(share * (sizes[:, np.newaxis] - 1)).astype(np.int64)
    return np.asarray(u[:, order[which]])


def _at(joint: Callable[[Vector], Vector], u: Vector) -> Vector:
    return np.stack([joint(u[:, :, k]) for k in range(u.shape[2])], axis=2)


def _sorted(u: Vector, log: Vector) -> tuple[Vector, Vector]:
    order = np.argsort(u, axis=2)
    return np.take_along_axis(u, order, axis=2), np.take_along_axis(log, order, axis=2)


def _quantiles(u: Vector, log: Vector, share: Vector) -> Vector:
    """(S, G, k) where parts of the mass of exp(log / 2) lie below, which is linear between knots u in their order."""
    root = np.exp(0.5 * (log - log.max(axis=2, keepdims=True)))
    gaps = np.diff(u, axis=2)
    mass = np.cumsum(0.5 * (root[:, :, 1:] + root[:, :, :-1]) * gaps, axis=2)
    below = np.concatenate([np.zeros_like(mass[:, :, :1]), mass / mass[:, :, -1:]], axis=2)
    wanted = np.broadcast_to(share, (*u.shape[:2], len(share)))
    at = np.clip((below[:, :, np.newaxis] < wanted[..., np.newaxis]).sum(axis=3) - 1, 0, u.shape[2] - 2)
    low, part = np.take_along_axis(u, at, axis=2), np.take_along_axis(below, at, axis=2)
    width = np.take_along_axis(gaps, at, axis=2)
    rise = np.take_along_axis(np.diff(below, axis=2), at, axis=2)
    inside = np.clip((wanted - part) / np.where(rise > 0, rise, 1.0), 0.0, 1.0)
    return np.asarray(low + width * inside)
