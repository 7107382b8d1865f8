"""Makes the table of a client's areas: the observed numbers with their exact intervals, and the posterior of each area.

Every level (rate, probability, mean) has two parts, draw by draw: that of the intercept and the covariates, and that of the map.
On a log link rate = fixed x spatial, on a logit link odds = fixed x spatial, and otherwise mean = fixed + spatial.
Source: docs/spec/sigma.md, section 9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ...arrays import Array
from ...data.artifact import OwnFile
from ...models.likelihood import Likelihood
from ...results.weighted import QUANTILES
from .rows import AreaRows

PARTS = ("q025", "q50", "q975")  # of the fixed and the spatial part
NEAR = 5.0  # a factor: expected counts add up to about the observed ones


@dataclass(frozen=True)
class Threshold:
    """Holds the level above which an area is high: its name in the job file, and its value."""

    name: str
    value: float


@dataclass(frozen=True)
class Areas:
    """Holds draws of a client's areas."""

    theta: Array  # (m, d) the map's effect, on the prior's scale
    # fixed, spatial: (m, d) parts of the linear predictor, on the data's scale, without exposure and offsets
    fixed: Array
    spatial: Array
    likelihood: Likelihood  # of the response
    threshold: Threshold  # above which a level is high

    def without(self, areas: NDArray[np.bool_]) -> Areas:
        """Replaces the map's part of these areas (d,) by NaN."""
        return replace(self, spatial=np.where(areas, np.nan, self.spatial)) if areas.any() else self

    @property
    def label(self) -> str:
        """The name of the level."""
        return self.likelihood.record.level

    @cached_property
    def level(self) -> Array:
        """The (m, d) rates, probabilities or means."""
        return self.likelihood.mean(self.fixed + self.spatial)

    @property
    def above(self) -> Array:
        """The (d,) probability that a level is above the threshold: (k + 1/2) / (m + 1) for k of m draws.

        Draws that all agree do not make it certain.
        """
        high = (self.level > self.threshold.value).sum(axis=0)
        return np.asarray((high + 0.5) / (len(self.level) + 1))


def table(
    file: OwnFile, rows: AreaRows, areas: Areas, fit: Mapping[str, Sequence[str]], *, hidden: bool = False
) -> dict[str, Sequence[Any]]:
    """Returns the table, column by column, with the columns of how well areas are predicted. `hidden`: whether the posterior is
    left out for areas with a count that is an interval."""
    label, observed, d = areas.label, rows.observed, file.d
    names = names_of(file)
    seen = np.bincount(observed.area, minlength=d)
    total = np.bincount(observed.area, weights=observed.y, minlength=d)
    out: dict[str, Sequence[object]] = {"area": names}
    for axis, place in zip(("x", "y"), _places(file).T):
        out[axis] = [f"{v:.10g}" for v in place]
    out["rows"] = seen.tolist()
    most = total
    if isinstance(observed.last, np.ndarray):
        most = np.bincount(observed.area, weights=observed.last, minlength=d)
    out["observed"] = counts(total, most, seen)
    if label == "rate":
        out["exposure"] = [f"{v:.10g}" for v in np.bincount(rows.area, weights=rows.exposure, minlength=d)]
    elif observed.trials is not None:
        out["trials"] = [f"{v:g}" for v in np.bincount(observed.area, weights=observed.trials, minlength=d)]
    out |= {name: cells(values) for name, values in crude(rows, areas.likelihood, d).items()}
    out["theta_prior_sd"] = cells(np.sqrt(file.true_variance))
    posterior: dict[str, Sequence[str]] = {}
    posterior |= summarise("theta", areas.theta, QUANTILES) | summarise(label, areas.level, QUANTILES)
    posterior[f"p_{label}_above_{areas.threshold.name}"] = cells(areas.above)
    natural = np.exp if areas.likelihood.record.link != "identity" else np.asarray
    for name, part in (("fixed", areas.fixed), ("spatial", areas.spatial)):
        posterior |= summarise(name, natural(part), PARTS)
    return out | blank(posterior | dict(fit), hidden & unknown(rows, d))


def counts(low: np.ndarray, high: np.ndarray, rows: np.ndarray) -> list[str]:
    """Formats observed counts, or the intervals that they are known by; empty without a row."""
    out = []
    for least, most, n in zip(low, high, rows):
        if not n:
            out.append("")
        elif least == most:
            out.append(f"{least:g}")
        else:
            out.append(f"{least:g} to {most:g}")
    return out


def blank(columns: Mapping[str, Sequence[str]], concealed: NDArray[np.bool_]) -> dict[str, list[str]]:
    """Returns the columns with empty cells where they are concealed."""
    return {name: np.where(concealed, "", np.array(cells, object)).tolist() for name, cells in columns.items()}


def unknown(rows: AreaRows, d: int) -> NDArray[np.bool_]:
    """Returns (d,) whether an area has a count that is an interval."""
    return np.asarray(np.bincount(rows.observed.area, weights=rows.observed.censored, minlength=d) > 0)


def crude(rows: AreaRows, likelihood: Likelihood, d: int) -> dict[str, Array]:
    """Returns the observed numbers, without any model: observed / expected (or proportion, or mean), and exact 95 % intervals.

    They are NaN for areas without a response or without such an interval: a Gaussian response of unknown variance; several
    negative binomial rows, or an r that is learnt; a count that is an interval, or has noise.
    """
    seen, record = rows.observed, likelihood.record
    weights = np.exp(seen.offset) if record.link == "log" else seen.trials
    n, y = (np.bincount(seen.area, w, d).astype(float) for w in (None, seen.y))
    base = n if weights is None else np.bincount(seen.area, weights, d).astype(float)
    known = base > 0
    known[np.unique(seen.area[~seen.known])] = False
    out = {name: np.full(d, np.nan) for name in ("crude", "crude_low", "crude_high")}
    out["crude"][known] = y[known] / base[known]
    if seen.sd is not None:
        half = ndtri(QUANTILES["q975"]) * np.sqrt(np.bincount(seen.area, seen.sd**2, d)[known]) / n[known]
        out["crude_low"][known], out["crude_high"][known] = out["crude"][known] - half, out["crude"][known] + half
        return out
    if record.exact is None:
        return {"crude": out["crude"]}
    if record.dispersion is not None:
        if likelihood.dispersed:
            return out
        known &= n == 1  # sums of rows with different means have no simple distribution
    out["crude_low"][known], out["crude_high"][known] = record.exact(y[known], base[known], likelihood.scale or 1.0)
    return out


def summarise(name: str, values: Array, quantiles: Sequence[str] | dict[str, float]) -> dict[str, Sequence[str]]:
    """Returns mean, sd and quantiles of (m, d) draws."""
    columns = {"mean": values.mean(axis=0), "sd": values.std(axis=0)}
    columns |= dict(zip(quantiles, np.quantile(values, [QUANTILES[what] for what in quantiles], axis=0)))
    return {f"{name}_{what}": cells(column) for what, column in columns.items()}


def cells(values: Array) -> list[str]:
    """Formats numbers with nine digits, so that counts stay exact; NaN is empty."""
    return ["" if np.isnan(v) else f"{v:.9g}" for v in values]


def names_of(file: OwnFile) -> list[str]:
    """Returns the names of the areas, or the places of points."""
    return list(file.areas) or [" ".join(f"{x:g}" for x in place) for place in _places(file)]


def _places(file: OwnFile) -> Array:
    """Returns (d, p) grid points, or centres of areas; p = 0 where they are not known."""
    return np.zeros((file.d, 0)) if file.locations is None else file.locations
