"""Says whether case weights are those of the rows, or make many rows of each, from the clients' mean weights.

Weights of a survey say how many persons a row stands for. As case weights they make intervals of so many persons, narrower by the
root of their mean. Nothing in the numbers tells them from counts of equal rows, which may be whole numbers as well: so a job says
that weights are counts (`data.weight_kind`), or has weights with a mean of about 1.

Source: docs/concepts/convergence.md, "Weights that make many rows of each".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from .verdict import Said

WHOLE = 1.2  # a mean weight of all rows, or its inverse, with which intervals are off by a tenth
HEAVY = 2.0  # a mean weight of one client's rows that makes many of each
FAR = 10.0  # times the others' mean weight, at one client


class Weighed(NamedTuple):
    """Holds how many rows of a client have a weight, and the mean of these weights."""

    rows: float
    weight: float


def mean(weighed: Mapping[str, Weighed]) -> float:
    """Returns the mean weight of all rows; 1 where there are none."""
    rows = sum(client.rows for client in weighed.values())
    return sum(client.rows * client.weight for client in weighed.values()) / rows if rows else 1.0


def compare(column: str, weighed: Mapping[str, Weighed], *, counts: bool = False, precisions: bool = False) -> Said:
    """Returns what is to be said of the clients' weights.

    Parameters
    ----------
    column : of the weights
    weighed : of each client; of all together where the server has sums alone
    counts : whether the job says that each row stands for so many equal ones
    precisions : whether weights may be the inverse variances of errors, which may differ between clients
    """
    weighed = {name: client for name, client in weighed.items() if client.rows and client.weight > 0}
    if not weighed:
        return Said()
    whole = mean(weighed)
    far = [] if precisions else _far(weighed)
    if counts:
        return Said(tuple(f"weights of column {column!r} are counts by data.weight_kind: {_each(far, weighed)}" for _ in far[:1]))
    if far:
        return Said(
            doubts=(
                f"weights of column {column!r} are not those of the other clients: {_each(far, weighed)}. Correct the file where "
                f"it has another column there or weights in another unit, or divide {column!r} by its mean at each client; "
                f"{COUNTS}",
            )
        )
    if not 1 / WHOLE <= whole <= WHOLE:
        wide = "narrow" if whole > 1 else "wide"
        return Said(
            doubts=(
                f"rows count {whole:.3g} times each, by weights of column {column!r}, so that intervals are about "
                f"{max(whole, 1 / whole) ** 0.5:.2g} times too {wide} where a row is one: divide {column!r} by its mean, "
                f"{whole:.4g}, at all clients; {COUNTS}",
            )
        )
    heavy = {name: client.weight for name, client in weighed.items() if client.weight > HEAVY}
    if heavy and not precisions:
        those = ", ".join(f"{name} {by:.3g} times" for name, by in heavy.items())
        return Said(
            (
                f"weights of column {column!r} sum to far more than the rows: {those}. Intervals are those of so many more rows, "
                f"which is right where a row stands for so many equal ones; else divide {column!r} by its mean, {_by(heavy)}",
            )
        )
    return Said()


COUNTS = 'where each row stands for so many equal rows, set data.weight_kind = "frequency"'


def _far(weighed: Mapping[str, Weighed]) -> list[str]:
    """Returns the clients whose mean weight is far from the middle one's; where half are on each side the larger ones."""
    logs = {name: float(np.log(client.weight)) for name, client in weighed.items()}
    order, gap = sorted(logs.values()), float(np.log(FAR))
    low, high = order[(len(order) - 1) // 2], order[len(order) // 2]
    if high - low >= gap:
        return [name for name, log_weight in logs.items() if log_weight >= high]
    return [name for name, log_weight in logs.items() if log_weight <= high - gap or log_weight >= low + gap]


def _each(far: list[str], weighed: Mapping[str, Weighed]) -> str:
    """Says the mean weights of those that are far, and of the others."""
    others = [client.weight for name, client in weighed.items() if name not in far]
    those = ", ".join(f"{weighed[name].weight:.3g} at {name}" for name in far)
    return f"their mean is {those}, and {np.median(others):.3g} at the others"


def _by(heavy: Mapping[str, float]) -> str:
    """Says by which factors weights are too large."""
    least, most = min(heavy.values()), max(heavy.values())
    return f"about {most:.3g}" if most < 1.1 * least else f"{least:.3g} to {most:.3g} by client"
