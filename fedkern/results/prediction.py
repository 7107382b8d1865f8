"""What a posterior says of new rows."""

from __future__ import annotations

from collections.abc import Mapping
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
    scores : as the server's test metrics, where the rows have the response; else empty
    """

    mean: Vector
    quantiles: Mapping[str, Vector]
    linear_mean: Vector
    linear_sd: Vector
    scores: Mapping[str, float] = field(default_factory=dict)

    @property
    def columns(self) -> dict[str, Vector]:
        """Name -> (n,)."""
        return {"mean": self.mean, **self.quantiles, "linear_mean": self.linear_mean, "linear_sd": self.linear_sd}

    def table(self) -> Any:
        """A pandas DataFrame, or rows where pandas is not installed."""
        names, values = list(self.columns), [column.tolist() for column in self.columns.values()]
        return table.framed([dict(zip(names, row)) for row in zip(*values)])
