"""Chooses the units of a response: the zero of the linear predictor of a spatial model, and the length of one of its units.

Priors and starts are numbers of order one; data come as millimetres of mercury, or as deaths and person-years. So a model is
fitted on a scale of its own, and results are on the data's:

    eta = level + scale eta_model

level is the pooled level of the responses on the link scale, scale the standard deviation of a Gaussian response (1 for all
others, whose link has no unit). On the model's scale intercept and coefficients are N(0, sd^2), sigma_theta and sigma are
HalfNormal(1): on the data's the intercept is N(level, (scale sd)^2), and so on. Exposures or units of measurement then move level
and scale, and nothing else: the rest of their rounding is rounded away, so that a fit has the same bits in every unit (a Markov
chain would multiply a difference in the last digit until its path is another one).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.special import expit

from ...arrays import Array
from ...kernels.families import FAMILIES, QUANTILES
from ..likelihood import Likelihood
from .site import Rows

LEAST_SHARE = 1e-15  # of events, which has a level by every link
HALF = 0.5  # of a response, where there is none of its kind at all
TINY = 1e-14  # of a mean: a standard deviation that rounding leaves of a constant response
FINE = -20  # responses are rounded to 2^FINE standard deviations (of their error, where the job gives it)
FINER = -30  # offsets are rounded to 2^FINER, and known scales to so much of themselves


@dataclass(frozen=True)
class Units:
    """Holds eta = level + scale eta_model.

    `pooled`: the pooled level, which a model without an intercept has no place for; `n`: the number of responses that `scale` is
    the unit of, if it is known (at the server); `counts`: client -> its number of these, if the server was told each one's.
    """

    level: float = 0.0
    scale: float = 1.0
    pooled: float = 0.0
    n: float = 0.0
    counts: Mapping[str, float] = field(default_factory=dict, compare=False)

    @property
    def log_volume(self) -> float:
        """By how much log p(y) is larger on the model's scale than on the data's."""
        return self.n * math.log(self.scale)

    def log_volume_of(self, client: str) -> float | None:
        """The same of one client's rows; None where their number is not known."""
        if self.scale == 1:
            return 0.0
        return self.counts[client] * math.log(self.scale) if client in self.counts else None

    def rows(self, rows: Rows, family: str, sd: float | None = None) -> Rows:
        """Returns a client's rows on the model's scale: the level goes into the offset; a Gaussian response is standardised.

        `sd` : the error standard deviation, on the model's scale, if it is known
        """
        if FAMILIES[family].link != "identity":
            return replace(rows, offset=_rounded(rows.offset + self.level, FINER))
        y, errors = (rows.y - rows.offset - self.level) / self.scale, rows.sd
        if errors is not None:
            errors = np.array([self.known(float(error)) for error in errors])
            sd = float(errors.min(initial=1.0))
        y = _rounded(y, FINE + min(0, _power(sd or 1.0)))
        return replace(rows, y=y, offset=np.zeros_like(rows.offset), sd=errors)

    def known(self, value: float) -> float:
        """Returns a known standard deviation of the data's scale, on the model's."""
        value /= self.scale
        return float(_rounded(np.array(value), FINER + _power(value)))

    def natural(self, eta: Array) -> Array:
        """Returns linear predictors, without offsets, on the data's scale."""
        return np.asarray(self.level + self.scale * eta)


def _power(value: float) -> int:
    """Returns the power of two below a positive number."""
    return int(np.frexp(value)[1]) - 1


def _rounded(values: Array, power: int) -> Array:
    """Rounds to multiples of 2^power."""
    return np.asarray(np.ldexp(np.rint(np.ldexp(values, -power)), power))


def sums(family: str, rows: Rows, centre: float | None = None, weights: Array | None = None) -> tuple[float, float]:
    """Returns the two numbers of a client's responses from which all parties know the level.

    ========== ===================== ===========================
    link       first                 second
    ========== ===================== ===========================
    log        sum y                 sum e^offset
    logit      sum y                 sum (trials - y) e^offset
    identity   number of responses   sum (y - offset)
    ========== ===================== ===========================

    For a Gaussian response whose `centre` is known they are sum and sum of squares of y - offset - centre: from the squares
    themselves a large mean would take all digits. Case `weights` (n,) multiply every term, and a 1 in the number. A count of
    which an interval is known is its middle (`fill_intervals`: its mean at a level). A count with noise is itself, for noise
    has mean 0: the sums may be below 0.
    """
    offset, link = rows.offset, FAMILIES[family].link
    y = (rows.y + rows.last) / 2 if isinstance(rows.last, np.ndarray) else rows.y
    w = 1.0 if weights is None else weights
    with np.errstate(over="ignore", invalid="ignore"):
        if link == "log":
            return float((w * y).sum()), float((w * np.exp(offset)).sum())
        if link == "identity":
            about = y - offset - (centre or 0.0)
            n = float(len(y)) if weights is None else float(weights.sum())
            first, second = float((w * about).sum()), float((w * about**2).sum())
            return (n, first) if centre is None else (first, second)
        trials = 1.0 if rows.trials is None else rows.trials
        failures = trials - y
        return float((w * y).sum()), float((w * failures * np.exp(offset))[failures != 0].sum())


def fill_intervals(rows: Rows, likelihood: Likelihood, level: float) -> Rows:
    """Returns the rows with the mean of each count of which an interval is known, given that it lies there, at this pooled
    level."""
    if not isinstance(rows.last, np.ndarray):
        return rows
    y = likelihood.expected(rows.y, rows.offset + level, 0.0, rows.trials, rows.last)
    return replace(rows, y=y, last=None)


def pooled_level(family: str, sums_of_clients: Sequence[tuple[float, float]]) -> float | None:
    """Returns the level of all clients' responses, from `sums`, or None without a response.

    log(sum y / sum e^offset) of counts. For successes log(sum y / sum (trials - y) e^offset), which is the logit without offsets,
    and consistent with them: E y = e^(level + offset) E (trials - y). The mean of a Gaussian response. Sums that are not above 0,
    which noise can make of small counts, are those of half a response.
    """
    first, second = (float(np.sum(column)) for column in np.transpose(sums_of_clients))
    link = FAMILIES[family].link
    if link == "identity":
        return second / first if first else None
    if not second and (link == "log" or not first):
        return None
    if link == "log":
        events = first if first > 0 else HALF
        return float(np.log(events) - np.log(second))
    more = HALF * (first <= 0 or second <= 0)
    logit = float(np.log(max(first, 0.0) + more) - np.log(max(second, 0.0) + more))
    # Of another link offsets count as those of a logit do: a level is where a prior has its centre.
    return logit if link == "logit" else float(QUANTILES[link](np.clip(expit(logit), LEAST_SHARE, 1 - LEAST_SHARE)))


def spread(sums_of_clients: Sequence[tuple[float, float]], centre: float, n: float) -> tuple[float, float]:
    """Returns mean and standard deviation of a Gaussian response, from the sums about `centre`; 0 if it is constant."""
    first, second = (float(np.sum(column)) for column in np.transpose(sums_of_clients))
    shift = first / n
    mean, variance = centre + shift, max(second / n - shift * shift, 0.0)
    sd = float(np.sqrt(variance)) if variance > (TINY * mean) ** 2 else 0.0
    return mean, sd
