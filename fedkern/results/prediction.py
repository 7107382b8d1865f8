"""Defines a posterior's predictions of new rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Vector
from ..errors import JobError
from ..kernels import rng
from ..kernels.families import FAMILIES, MOST
from ..models.mixed.predictive import Keyed
from .frames import Rows, to_frame

if TYPE_CHECKING:
    from .frames import PredictionFrame

BEYOND = "beyond"  # column that says why a row has no prediction
SDS = 4.0  # of the linear predictor, within which all of its posterior is
ANEW = 8  # chain of the stream "posterior" by which new responses are drawn: those before it draw maps
WHOLE = "inverted_cdf"  # how quantiles of counts are taken: the least count at which the distribution function is there


@dataclass(frozen=True)
class Prediction:
    """Holds the predictions of n rows.

    Attributes
    ----------
    mean : (n,) posterior predictive mean of the response: a probability, a rate, or a number in its units
    quantiles : name ("q025", ..) -> (n,) of the response's mean given the row, over the posterior; not of a single new response
    linear_mean, linear_sd : (n,) of the linear predictor
    scores : as the server's test metrics, of the rows that have a response; empty where none has
    ids : name of the column of the rows' ids -> these, where rows of several parties were joined by them
    scored : how many rows have a response
    used : name of a column -> the parts from which each row's prediction is made, where that differs
    more : further columns of numbers: of a map the level without exposure, and the ends within which a new count lies
    notes : sentences to be printed beside them
    sampler : makes `draws` and `responses`, where the method can
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
    sampler: Callable[[], tuple[Vector, Vector]] | None = field(default=None, compare=False, repr=False)

    @property
    def draws(self) -> Vector:
        """(m, n) the mean of the response in each draw of the posterior; of a response of K levels (m, n, K) their chances.

        A row that has no prediction has nan.

        Raises
        ------
        JobError
            The method's predictions have no draws.
        """
        return self._sampled[0]

    @property
    def responses(self) -> Vector:
        """(m, n) a new response of each row in each draw, of a new client and group; of levels their numbers, from 0."""
        return self._sampled[1]

    def interval(self, level: float = 0.95) -> Vector:
        """Returns (n, 2) the ends between which a new response of each row lies with this probability."""
        counted = float(np.nanmax(self.responses % 1, initial=0.0)) == 0
        ends = (1 - level) / 2, (1 + level) / 2
        if counted:
            return np.quantile(self.responses, ends, axis=0, method="inverted_cdf").T
        return np.quantile(self.responses, ends, axis=0).T

    @cached_property
    def _sampled(self) -> tuple[Vector, Vector]:
        if self.sampler is None:
            raise JobError(
                'these predictions have no draws: those of likelihood and pvi have them, and of vertical by its rule "posterior" '
                "where all parties' folders are here"
            )
        lacking = np.isnan(self.mean).any(axis=tuple(range(1, self.mean.ndim)))
        draws, responses = self.sampler()
        draws[:, lacking], responses[:, lacking] = np.nan, np.nan
        return draws, responses

    @property
    def columns(self) -> dict[str, Sequence[Any]]:
        """The columns of the table: name -> n values."""
        numbers = {"mean": self.mean, **self.quantiles, "linear_mean": self.linear_mean, "linear_sd": self.linear_sd, **self.more}
        return {**self.ids, **{name: column.tolist() for name, column in numbers.items()}, **self.used}

    @property
    def beyond(self) -> list[int]:
        """The rows, from 0, that have no prediction."""
        return [row for row, word in enumerate(self.used.get(BEYOND, ())) if word]

    def rows(self) -> Rows[dict[str, Any]]:
        """Returns the rows of `table`, each a dictionary."""
        columns = self.columns
        return Rows(dict(zip(columns, row)) for row in zip(*columns.values()))

    def table(self) -> PredictionFrame:
        """Returns a pandas DataFrame, or rows where pandas is not installed."""
        frame: PredictionFrame = to_frame(self.rows())
        return frame

    def _repr_html_(self) -> str:
        """Returns the first rows, for notebooks."""
        return self.rows()._repr_html_()


@dataclass(frozen=True)
class OfLevels(Prediction):
    """Holds the predictions of n rows whose response is one of K levels.

    `mean` and quantiles are (n, K): the posterior predictive chance of each level, and its quantiles over the posterior. Levels
    without an order have no linear predictor for a row, but one for each level.

    Attributes
    ----------
    levels : in their order
    """

    levels: tuple[str, ...] = ()

    @property
    def columns(self) -> dict[str, Sequence[Any]]:
        """The columns of the table, "probability[mild]", "q025[mild]", ..: name -> n values."""
        columns: dict[str, Sequence[Any]] = dict(self.ids)
        for k, level in enumerate(self.levels):
            columns[f"probability[{level}]"] = self.mean[:, k].tolist()
        for k, level in enumerate(self.levels):
            columns |= {f"{name}[{level}]": values[:, k].tolist() for name, values in self.quantiles.items()}
        if len(self.linear_mean) == len(self.mean):
            columns |= {"linear_mean": self.linear_mean.tolist(), "linear_sd": self.linear_sd.tolist()}
        return {**columns, **self.used}


def anew(family: str, eta: Vector, scale: float | Vector, seed: int) -> Vector:
    """Returns (m, n) new responses at predictors (m, n) of draws of the posterior.

    `scale` broadcasts to (m, n), of several numbers to (k, m, n).
    """
    record, (m, n) = FAMILIES[family], eta.shape
    each = np.broadcast_to(scale, (*np.shape(scale)[:-2], m, n)).reshape(*np.shape(scale)[:-2], m * n)
    drawn = record.draw(Keyed(rng.key(seed, "posterior", ANEW), 0), record.mean(record.kept(eta)).ravel(), each, None)
    return np.asarray(drawn, np.float64).reshape(m, n)


def within(prediction: Prediction, family: str, more: NDArray[np.bool_] | None = None) -> Prediction:
    """Removes the numbers of rows whose rate may be above e^30, where the logarithm of a rate is cut; a column names them.

    The mean of such a row would be that of the part below the cut.

    Parameters
    ----------
    more : (n,) further rows to remove
    """
    if not FAMILIES[family].whole:
        return prediction
    with np.errstate(invalid="ignore"):
        cut = prediction.linear_mean + SDS * prediction.linear_sd > MOST
    cut = cut if more is None else cut | more
    if not cut.any():
        return prediction
    used = {**prediction.used, BEYOND: np.where(cut, f"rate above e^{MOST:g}", "").tolist()}
    return replace(_without(prediction, cut), used=used)


def without_lacking(prediction: Prediction, lacking: NDArray[np.bool_]) -> Prediction:
    """Removes the numbers of rows (n,) that lack a cell, as R's `predict` does, and says how many they are."""
    if not lacking.any():
        return prediction
    made = _without(prediction, lacking)
    linear = [np.where(lacking, np.nan, moment) if len(moment) else moment for moment in (made.linear_mean, made.linear_sd)]
    note = f"{int(lacking.sum())} of {len(lacking)} rows lack a cell that the model needs, and have no prediction"
    return replace(made, linear_mean=linear[0], linear_sd=linear[1], notes=(*made.notes, note))


def _without(prediction: Prediction, rows: NDArray[np.bool_]) -> Prediction:
    """Returns the prediction without the numbers of the response of rows (n,)."""

    def left(values: Vector) -> Vector:
        return np.where(rows if values.ndim == 1 else rows[:, np.newaxis], np.nan, values)

    return replace(
        prediction,
        mean=left(prediction.mean),
        quantiles={name: left(values) for name, values in prediction.quantiles.items()},
        more={name: left(values) for name, values in prediction.more.items()},
    )


def without_means(prediction: Prediction, family: str, rows: NDArray[np.bool_], note: str) -> Prediction:
    """Removes the mean of rows for which the mean of the response is infinite, under a logarithmic link.

    Parameters
    ----------
    rows : (n,) the rows
    note : a sentence to be printed beside the predictions
    """
    record = FAMILIES[family]
    if record.link != "log" or not rows.any():
        return prediction
    more = {**prediction.more}
    if record.level in more:
        more[record.level] = np.where(rows, np.nan, more[record.level])
    return replace(prediction, mean=np.where(rows, np.nan, prediction.mean), more=more, notes=(*prediction.notes, note))
