"""What a posterior says of new rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import table

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Prediction:
    """Of n rows.

    Attributes
    ----------
    mean : (n,) posterior predictive mean of the response: a probability, a rate, or a number in its units
    quantiles : name ("q025", ..) -> (n,) of the response's mean given the row, over the posterior; not of a single new response
    linear_mean, linear_sd : (n,) of the linear predictor
    scores : as the server's test metrics, of the rows that have a response; empty where none has
    ids : name of the column of the rows' ids -> these, where rows of several parties were joined by them
    scored : how many rows have a response
    used : name of a column -> what each row's prediction is made of, where that differs
    more : further columns of numbers: of a map the level without exposure, and the ends within which a new count lies
    """

    mean: Vector
    quantiles: Mapping[str, Vector]
    linear_mean: Vector
    linear_sd: Vector
    scores: Mapping[str, float] = field(default_factory=dict)
    ids: Mapping[str, Sequence[str]] = field(default_factory=dict)
    scored: int = 0
    used: Mapping[str, Sequence[str]] = field(default_factory=dict)
    more: Mapping[str, Vector] = field(default_factory=dict)

    @property
    def columns(self) -> dict[str, Sequence[Any]]:
        """Name -> n of them."""
        numbers = {"mean": self.mean, **self.quantiles, "linear_mean": self.linear_mean, "linear_sd": self.linear_sd, **self.more}
        return {**self.ids, **{name: column.tolist() for name, column in numbers.items()}, **self.used}

    def table(self) -> Any:
        """A pandas DataFrame, or rows where pandas is not installed."""
        columns = self.columns
        return table.framed([dict(zip(columns, row)) for row in zip(*columns.values())])
