"""What a posterior says of new rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.families import FAMILIES, MOST
from . import table

Vector = NDArray[np.float64]

BEYOND = "beyond"  # column of the rows of which nothing is said
SDS = 4.0  # of the linear predictor, within which all of its posterior is
WHOLE = "inverted_cdf"  # how quantiles of counts are taken: the least count at which the distribution function is there


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
    notes : what is to be said beside them, in sentences
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
    notes: tuple[str, ...] = ()

    @property
    def columns(self) -> dict[str, Sequence[Any]]:
        """Name -> n of them."""
        numbers = {"mean": self.mean, **self.quantiles, "linear_mean": self.linear_mean, "linear_sd": self.linear_sd, **self.more}
        return {**self.ids, **{name: column.tolist() for name, column in numbers.items()}, **self.used}

    @property
    def beyond(self) -> list[int]:
        """The rows, from 0, of which nothing is said."""
        return [row for row, word in enumerate(self.used.get(BEYOND, ())) if word]

    def table(self) -> Any:
        """A pandas DataFrame, or rows where pandas is not installed."""
        columns = self.columns
        return table.framed([dict(zip(columns, row)) for row in zip(*columns.values())])


@dataclass(frozen=True)
class OfLevels(Prediction):
    """Of n rows whose response is one of K levels: `mean` and quantiles are (n, K), the posterior predictive chance of each level
    and its quantiles over the posterior; of levels without an order there is no linear predictor, but one a level.

    Attributes
    ----------
    levels : in their order
    """

    levels: tuple[str, ...] = ()

    @property
    def columns(self) -> dict[str, Sequence[Any]]:
        """Name -> n of them: "probability[mild]", "q025[mild]", .."""
        found: dict[str, Sequence[Any]] = dict(self.ids)
        for k, level in enumerate(self.levels):
            found[f"probability[{level}]"] = self.mean[:, k].tolist()
        for k, level in enumerate(self.levels):
            found |= {f"{name}[{level}]": values[:, k].tolist() for name, values in self.quantiles.items()}
        if len(self.linear_mean) == len(self.mean):
            found |= {"linear_mean": self.linear_mean.tolist(), "linear_sd": self.linear_sd.tolist()}
        return {**found, **self.used}


def within(found: Prediction, family: str, more: NDArray[np.bool_] | None = None) -> Prediction:
    """Without numbers of the rows whose rate may be above e^30, where the logarithm of a rate is cut: a mean would be that of
    what is left. A column says which these are.

    Parameters
    ----------
    more : (n,) rows of which other rates are
    """
    if not FAMILIES[family].whole:
        return found
    with np.errstate(invalid="ignore"):
        cut = found.linear_mean + SDS * found.linear_sd > MOST
    cut = cut if more is None else cut | more
    if not cut.any():
        return found

    def left(values: Vector) -> Vector:
        return np.where(cut, np.nan, values)

    return replace(
        found,
        mean=left(found.mean),
        quantiles={name: left(values) for name, values in found.quantiles.items()},
        more={name: left(values) for name, values in found.more.items()},
        used={**found.used, BEYOND: [f"rate above e^{MOST:g}" if one else "" for one in cut.tolist()]},
    )


def without_means(found: Prediction, family: str, rows: NDArray[np.bool_], note: str) -> Prediction:
    """Without means of rows of which a mean of the response is infinite; what has another link than a logarithm has one.

    Parameters
    ----------
    rows : (n,) which these are
    note : what is said of them
    """
    record = FAMILIES[family]
    if record.link != "log" or not rows.any():
        return found
    more = {name: np.where(rows, np.nan, values) if name == record.level else values for name, values in found.more.items()}
    return replace(found, mean=np.where(rows, np.nan, found.mean), more=more, notes=(*found.notes, note))
