"""Holds rows that all parties share, split by column (docs/spec/vertical.md, section 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array


@dataclass(frozen=True)
class Columns:
    """Holds one matrix a client, all with the same rows in the same order, and the columns of the server or of everybody.

    `offset`: the known part of the linear predictor. `group`: of each row, 0 to len(groups) - 1. `truth`: of simulated data, name
    -> value.
    """

    X: tuple[Array, ...]
    names: tuple[tuple[str, ...], ...]
    y: Array
    offset: Array | None = None
    group: NDArray[np.int64] | None = None
    groups: tuple[str, ...] = ()
    truth: Mapping[str, float] = field(default_factory=dict)

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(self.y)

    def pooled(self) -> Array:
        """Returns all clients' columns (n, p) side by side, which no party of a federation holds."""
        return np.column_stack(self.X)

    def rows(self, index: NDArray[np.int64]) -> Columns:
        """Returns these rows only, in this order."""
        X = tuple(x[index] for x in self.X)
        offset = None if self.offset is None else self.offset[index]
        group = None if self.group is None else self.group[index]
        return Columns(X, self.names, self.y[index], offset, group, self.groups, self.truth)


def write(path: Path, header: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    """Writes a csv file from columns of cells without commas."""
    lines = [",".join(header), *(",".join(row) for row in zip(*cells))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
