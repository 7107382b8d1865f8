"""Predicts times of new rows: the probability to be without event at the job's times, and the mean time without event until
`output.restricted_mean`.

Source: docs/methods/likelihood.md, section 9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...data.design import encode
from ...errors import JobError
from ...jobs import new_rows
from ...models import survival_curves
from ...models.encoding import INTERCEPT, Encoding
from ...models.mixed.conditional import pieces
from ...models.survival_parametric import Baseline
from ...results.plain import Record
from ...results.prediction import Prediction
from ...results.released import Group
from ...results.table import ENDS
from .predictive import Predictive

Array = NDArray[np.float64]

MOST = 4_000_000  # numbers at once


def predict_times(job: Record, posterior: Group, encoding: Encoding, terms: Mapping[str, Sequence[str]], rows: Any) -> Prediction:
    """Returns the prediction of rows, which need no times; its `mean` is the restricted mean.

    Raises
    ------
    JobError
        The job names no time.
    """
    at, tau = [float(t) for t in job["output"].get("survival_at") or ()], job["output"].get("restricted_mean")
    if not at and tau is None:
        raise JobError(
            "predict: of survival times a prediction is for the times that the job names, and it names none: run it with "
            "output.survival_at = [..] (the probability to be without event then), or output.restricted_mean = .. (the mean time "
            "without event until then)"
        )
    read = new_rows.read(job, encoding, rows)
    design = encode(read, replace(encoding, response=None, positive=None, labels=(), row_id=None))
    X, offset = np.asarray(design.X, np.float64), design.offset
    family = str(job["model"]["family"])
    drawn = Predictive.of(posterior, encoding, family, terms)
    base = _baseline(posterior, family, [float(cut) for cut in job["model"].get("cuts") or ()], len(drawn.theta))
    n, m = len(X), len(drawn.theta)
    summaries = np.full((1 + len(ENDS), len(at) + 1, n), np.nan)
    linear = np.empty((2, n))
    for part in pieces(n, MOST // (m * (len(at) + 1))):
        eta, variance = drawn.linear(X[part], None if offset is None else offset[part])
        linear[:, part] = eta.mean(axis=0), np.sqrt(eta.var(axis=0) + variance.mean(axis=0))
        if at:
            summaries[:, : len(at), part] = _summary(survival_curves.survival(base, eta, variance, np.array(at)))
        if tau is not None:
            summaries[:, -1, part] = _summary(survival_curves.restricted_mean(base, eta, variance, float(tau)))
    more = dict[str, Array]()
    for k, t in enumerate(at):
        name, (mean, low, *_, high) = f"survival[{t:g}]", summaries[:, k]
        more |= {name: mean, f"{name}_q025": low, f"{name}_q975": high}
    notes = () if tau is not None else ("mean: the job has no output.restricted_mean, until which a mean time is taken",)
    return Prediction(summaries[0, -1], dict(zip(ENDS, summaries[1:, -1])), linear[0], linear[1], more=more, notes=notes)


def _summary(values: Array) -> Array:
    """(5, ..) mean and `ENDS` over draws (S, ..)."""
    return np.stack([values.mean(axis=0), *np.quantile(values, list(ENDS.values()), axis=0)])


def _baseline(posterior: Group, family: str, cuts: Sequence[float], m: int) -> Baseline:
    """The baseline hazard at the m draws that `Predictive.of` takes."""
    flat = {name: np.asarray(values).ravel() for name, (axes, values) in posterior.variables.items() if len(axes) == 2}
    every = len(next(iter(flat.values())))
    some = np.unique(np.linspace(0, every - 1, m).astype(int))
    if family == "weibull":
        return Baseline(family, np.log(flat["shape"][some])[:, np.newaxis])
    later = [flat[name][some] - flat[INTERCEPT][some] for name in flat if name.startswith("log_hazard[")]
    return Baseline(family, np.reshape(later, (len(later), m)).T, np.array(cuts))
