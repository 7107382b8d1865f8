"""Deals rows that are all in one place (built-in data, experiments) to clients: one array of indices for each.

All depend on their arguments alone, so that each rank can build its own client's part and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import JobError

Parts = list[NDArray[np.int64]]


def train_test(n: int, test: float, seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns train and test rows by one legacy permutation of n rows: the first ceil((1 - test) n) train, the others test.

    See docs/spec/pvi.md, section 13.
    """
    order = np.random.RandomState(seed).permutation(n).astype(np.int64)  # the published experiments' generator
    n_train = math.ceil((1 - test) * n)
    return order[:n_train], order[n_train:]


def imbalanced(
    positive: ArrayLike, n_clients: int, *, rho: float = 0.0, kappa: float = 0.0, seed: int = 0, deal_rest: bool = False
) -> Parts:
    """Deals half of the clients few rows, half many, with different shares of the two classes (docs/spec/pvi.md, section 13).

    Small clients have floor((1 - rho) n / M) rows, of which floor(size (c + (1 - c) kappa)) are negative, c being the share of
    negatives in all rows; they take theirs in order from the list of each class. The rest is pooled, shuffled, and dealt to the
    large clients, floor((1 + rho) n / M) rows each. Raises JobError: the small clients need more rows of a class than there are,
    or there are fewer rows than clients.

    Parameters
    ----------
    positive : (n,) truth values
    n_clients : M; the first M // 2 are small
    rho : in [0, 1), the sizes' factor
    kappa : at most 1, the classes' factor
    seed : of the one legacy generator that shuffles each small client's rows and then the pool
    deal_rest : whether the fewer than M rows that the large clients' sizes leave over are dealt too, one each (published: not)

    Returns
    -------
    list of M index arrays (int64), disjoint
    """
    label = np.asarray(positive, dtype=bool)
    n, n_small = len(label), n_clients // 2
    c = 1.0 - label.mean() if n else 0.0
    small, large = math.floor((1 - rho) * n / n_clients), math.floor((1 + rho) * n / n_clients)
    n_negative = math.floor(small * (c + (1 - c) * kappa))
    take = {True: small - n_negative, False: n_negative}
    # Small clients take their rows by class; a class that runs out is refused before any row is dealt.
    lists = {side: np.flatnonzero(label == side) for side in (True, False)}
    for side, rows in lists.items():
        if take[side] < 0 or n_small * take[side] > len(rows):
            name = "positive" if side else "negative"
            raise JobError(
                f"[data] split: {n_small} small clients of {small} rows need {n_small * take[side]} {name} rows, there are "
                f"{len(rows)}; bring rho ({rho}) or kappa ({kappa}) nearer to 0"
            )
    n_large = n_clients - n_small
    if min(small if n_small else large, large) < 1 or n_large * large > n - n_small * small:
        raise JobError(
            f"[data] split: {n} rows can't be dealt to {n_clients} clients with rho = {rho}; use fewer, or an even number"
        )
    generator = np.random.RandomState(seed)  # the published experiments' generator
    parts = []
    for j in range(n_small):
        rows = np.concatenate([lists[side][j * take[side] : (j + 1) * take[side]] for side in (True, False)])
        parts.append(rows[generator.permutation(len(rows))])
    # The order of shuffles is that of the published experiments: each small client's rows, then the pool.
    pool = np.concatenate([lists[side][n_small * take[side] :] for side in (True, False)])
    pool = pool[generator.permutation(len(pool))]
    parts += [pool[j * large : (j + 1) * large] for j in range(n_large)]
    if deal_rest:
        for k, row in enumerate(pool[n_large * large :]):
            client = n_small + k % n_large
            parts[client] = np.append(parts[client], row)
    return [part.astype(np.int64) for part in parts]


def equal(n: int, n_clients: int, seed: int = 0) -> Parts:
    """Deals all rows at random, in sizes that differ by at most one."""
    _enough(n, n_clients)
    order = np.random.default_rng(seed).permutation(n)
    return [part.astype(np.int64) for part in np.array_split(order, n_clients)]


def folds(n: int, k: int, seed: int = 0) -> Parts:
    """Returns the test rows of a k-fold cross-validation: each row once, sizes differing by at most one, sorted within a fold."""
    return [np.sort(part) for part in equal(n, k, seed)]


def by_column(values: Sequence[object] | NDArray[np.generic]) -> dict[str, NDArray[np.int64]]:
    """Returns one client for each value of a column (a hospital, a state): name -> rows, sorted by name."""
    rows: dict[str, list[int]] = {}
    for row, value in enumerate(values):
        rows.setdefault(str(value), []).append(row)
    return {name: np.array(rows[name], dtype=np.int64) for name in sorted(rows)}


def dirichlet(labels: ArrayLike, n_clients: int, concentration: float, seed: int = 0) -> Parts:
    """Deals all rows, each class by Dirichlet(concentration) shares of its own: small values make clients with few classes.

    A client may get no rows at all, as in the experiments that use this scheme.
    """
    y = np.asarray(labels)
    _enough(len(y), n_clients)
    if not concentration > 0:
        raise ValueError(f"split.dirichlet: concentration must be > 0, got {concentration}")
    generator = np.random.default_rng(seed)
    parts: list[list[NDArray[np.int64]]] = [[] for _ in range(n_clients)]
    for label in np.unique(y):
        rows = generator.permutation(np.flatnonzero(y == label))
        shares = generator.dirichlet(np.full(n_clients, concentration))
        cuts = np.round(np.cumsum(shares)[:-1] * len(rows)).astype(np.int64)
        for part, piece in zip(parts, np.split(rows, cuts)):
            part.append(piece)
    return [np.concatenate(part).astype(np.int64) for part in parts]


def _enough(n: int, n_clients: int) -> None:
    if not 1 <= n_clients <= n:
        raise JobError(f"[data] split: {n} rows can't be dealt to {n_clients} clients; use 1 to {n}")
