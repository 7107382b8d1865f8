"""Reads the points of a Gaussian process, with their holders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..arrays import Array
from ..errors import JobError
from .places import listed, numbers_of, whole
from .table import load


@dataclass(frozen=True, eq=False)
class Points:
    """Holds points in the order of their clients."""

    x: Array  # (n, p)
    clients: tuple[str, ...]  # their names, sorted
    sizes: tuple[int, ...]  # of each client, how many points
    names: tuple[str, ...] = ()  # (n,) of the points, or empty


def line(n: int, lo: float, hi: float, cuts: Sequence[float], names: Sequence[str]) -> Points:
    """Returns n equidistant points of [lo, hi]; client j has those from cuts[j - 1] on and below cuts[j]. Raises JobError: a
    client without points."""
    x = np.linspace(lo, hi, n)
    sizes = np.bincount(np.searchsorted(np.asarray(cuts), x, side="right"), minlength=len(cuts) + 1)
    if not sizes.all():
        raise JobError(
            f"prior.grid.cuts = {list(cuts)}: client {int(np.argmin(sizes)) + 1} gets no point; move the cuts into the line"
        )
    return Points(x[:, None], tuple(names), tuple(sizes.tolist()))


def read_points(path: str | Path, *, client: str, columns: Sequence[str], name: str | None = None) -> Points:
    """Reads points from a table. Raises JobError: a missing column, a cell that is no number, a point without a client, or one at
    two clients.

    Parameters
    ----------
    path : csv, parquet or npz, a line for each point
    client : the column that names the point's client
    columns : of the coordinates
    name : a column that names the point
    """
    header = load(path).names
    for column in (client, *columns, *([] if name is None else [name])):
        if column not in header:
            raise JobError(f"{path}: has no column {column!r}; it has {', '.join(header)}")
    table = load(path, text=(client, *([] if name is None else [name])))
    whole(table)
    owners = table.cells(client)
    for row in [k for k, owner in enumerate(owners) if not owner]:
        raise JobError(f"{path}, {table.place(row)}: a point without a client; fill in the column {client!r}")
    x = np.column_stack([numbers_of(table, column) for column in columns])
    names = [] if name is None else table.cells(name)
    twice = [n for n in names if names.count(n) > 1]
    if twice:
        raise JobError(f"{path}: {listed(twice)}: stands there twice; a point belongs to one client")
    # Two equal points would make the prior's covariance singular.
    _, first, inverse = np.unique(x, axis=0, return_index=True, return_inverse=True)
    for row in np.flatnonzero(first[inverse.ravel()] != np.arange(len(x))).tolist():
        other = int(first[inverse.ravel()[row]])
        raise JobError(
            f"{path}, {table.place(row)}: the same point as {table.place(other)} ({owners[other]}); keep one of them: a point "
            "belongs to one client"
        )
    clients = tuple(sorted(set(owners)))
    number = np.array([clients.index(owner) for owner in owners], dtype=np.int64)
    # Each client's points are one block, in the file's order.
    order = np.argsort(number, kind="stable")
    sizes = tuple(np.bincount(number, minlength=len(clients)).tolist())
    return Points(x[order], clients, sizes, tuple(names[k] for k in order.tolist()) if names else ())
