"""Predicts times of new rows: the probability to be without event at the job's times, and the mean time without event until
`output.restricted_mean`; by the released posterior, and at a holder with the effects that it kept.

Source: docs/spec/likelihood.md, section 9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ...arrays import Array, Indices
from ...data.design import encode
from ...data.table import Table
from ...errors import JobError
from ...jobs import new_rows
from ...kernels import rng
from ...models import survival_parametric
from ...models.encoding import INTERCEPT, Encoding
from ...models.mixed.conditional import pieces
from ...models.mixed.layout import SHAPES
from ...models.mixed.predictive import Keyed
from ...models.survival_parametric import Baseline
from ...results.plain import Record
from ...results.prediction import ANEW, Prediction, without_lacking
from ...results.released import Group
from ...results.table import ENDS
from .known import Known
from .predictive import Predictive

MOST = 4_000_000  # numbers at once


def predict_times(
    job: Record, posterior: Group, encoding: Encoding, terms: Mapping[str, Sequence[str]], rows: Any, seed: int
) -> Prediction:
    """Returns the prediction of rows, which need no times; its `mean` is the restricted mean. `seed`: of new times. Raises
    JobError: the job names no time."""
    times = Times.of(job)
    read, lacking = new_rows.read(job, encoding, rows)
    X, offset = columns(read, encoding)
    notes = new_rows.notes(job["data"].get("columns"), encoding, X)
    family = str(job["model"]["family"])
    drawn = Predictive.of(posterior, encoding, family, terms)
    base = _baseline(posterior, family, [float(cut) for cut in job["model"].get("cuts") or ()], len(drawn.theta))
    made = times.prediction(*_curves(times, drawn, base, X, offset), notes)
    return without_lacking(replace(made, sampler=partial(_sampled, times, drawn, base, X, offset, seed)), lacking)


def at_holder(job: Record, own: Known, read: Table, groups: Indices) -> Prediction:
    """Returns the same of a client's own rows: each with the client's effect, those of its groups with these groups' effects.
    Raises JobError: the job names no time.

    Parameters
    ----------
    own : what the client kept of its effects
    read : the rows, as the job's files were read
    groups : (n,) the group of each row, `known.NEW` of another one
    """
    times = Times.of(job)
    X, offset = columns(read, own.new.encoding)
    assert own.baseline is not None
    values, linear = np.full((1 + len(ENDS), len(times.at) + 1, len(X)), np.nan), np.empty((2, len(X)))
    for known, (some, drawn, shift) in own.parts(X, offset, groups):
        base = own.baseline
        if known:  # a draw of the baseline for each of the effects that were drawn beside it
            base = replace(base, own=np.repeat(base.own, len(drawn.theta) // len(base.own), axis=0))
        values[:, :, some], linear[:, some] = _curves(times, drawn, base, X[some], shift)
    return times.prediction(values, linear, new_rows.notes(job["data"].get("columns"), own.new.encoding, X))


def columns(read: Table, encoding: Encoding) -> tuple[Array, Array | None]:
    """Returns (n, p) columns of rows without times, and their offset."""
    design = encode(read, replace(encoding, response=None, positive=None, labels=(), row_id=None))
    return np.asarray(design.X, np.float64), design.offset


@dataclass(frozen=True)
class Times:
    """The times of which a job asks: to be without event at each of `at`, and the mean time until `tau`."""

    at: tuple[float, ...]
    tau: float | None

    @classmethod
    def of(cls, job: Record) -> Times:
        """Returns those of a job's record; JobError where it names none."""
        at, tau = tuple(float(t) for t in job["output"].get("survival_at") or ()), job["output"].get("restricted_mean")
        if not at and tau is None:
            raise JobError(
                "predict: of survival times a prediction is for the times that the job names, and it names none: run it with "
                "output.survival_at = [..] (the probability to be without event then), or output.restricted_mean = .. (the mean "
                "time without event until then)"
            )
        return cls(at, None if tau is None else float(tau))

    def prediction(self, summary: Array, linear: Array, far: tuple[str, ...] = ()) -> Prediction:
        """Returns the columns that `fedkern predict` writes.

        Parameters
        ----------
        summary : (5, T + 1, n) mean and ends of the probabilities at the times, and of the mean time
        linear : (2, n) mean and sd of the predictor
        far : notes on rows that are far from the job's
        """
        more = dict[str, Array]()
        for k, t in enumerate(self.at):
            name, (mean, low, *_, high) = f"survival[{t:g}]", summary[:, k]
            more |= {name: mean, f"{name}_q025": low, f"{name}_q975": high}
        notes = ("mean: the job has no output.restricted_mean, until which a mean time is taken",) if self.tau is None else ()
        return Prediction(summary[0, -1], dict(zip(ENDS, summary[1:, -1])), linear[0], linear[1], more=more, notes=(*notes, *far))


def _curves(times: Times, drawn: Predictive, base: Baseline, X: Array, offset: Array | None) -> tuple[Array, Array]:
    """(5, T + 1, n) summaries at the times, and (2, n) of the predictor; offset (n,), or (m, n) at each draw."""
    n, m = len(X), len(drawn.theta)
    summary, linear = np.full((1 + len(ENDS), len(times.at) + 1, n), np.nan), np.empty((2, n))
    for part in pieces(n, MOST // (m * (len(times.at) + 1))):
        eta, variance = drawn.linear(X[part], None if offset is None else offset[..., part])
        linear[:, part] = eta.mean(axis=0), np.sqrt(eta.var(axis=0) + variance.mean(axis=0))
        if times.at:
            summary[:, : len(times.at), part] = _summary(survival_parametric.survival(base, eta, variance, np.array(times.at)))
        if times.tau is not None:
            summary[:, -1, part] = _summary(survival_parametric.restricted_mean(base, eta, variance, times.tau))
    return summary, linear


def _sampled(wanted: Times, drawn: Predictive, base: Baseline, X: Array, offset: Array | None, seed: int) -> tuple[Array, Array]:
    """Returns (m, n) restricted means in each draw, and new times, of a new client and group."""
    if wanted.tau is None:
        raise JobError("draws of times are of their mean until output.restricted_mean = .., and the job has none; give one")
    means, times = list[Array](), list[Array]()
    for part in pieces(len(X), MOST // len(drawn.theta)):
        eta, variance = drawn.linear(X[part], None if offset is None else offset[..., part])
        means.append(survival_parametric.restricted_mean(base, eta, variance, wanted.tau))
        source = Keyed(rng.key(seed, "posterior", ANEW), part.start)
        shifted = eta + np.sqrt(variance) * source.normal(eta.size).reshape(eta.shape)
        times.append(base.when(-np.log(source.uniform(eta.size)).reshape(eta.shape), shifted))
    return np.concatenate(means, axis=1), np.concatenate(times, axis=1)


def _summary(values: Array) -> Array:
    """(5, ..) mean and `ENDS` over draws (S, ..)."""
    return np.stack([values.mean(axis=0), *np.quantile(values, list(ENDS.values()), axis=0)])


def _baseline(posterior: Group, family: str, cuts: Sequence[float], m: int) -> Baseline:
    """The baseline hazard at the m draws that `Predictive.of` takes."""
    flat = {name: np.asarray(values).ravel() for name, (axes, values) in posterior.variables.items() if len(axes) == 2}
    n_draws = len(next(iter(flat.values())))
    some = np.unique(np.linspace(0, n_draws - 1, m).astype(int))
    if family in SHAPES:
        return Baseline.of_family(family, np.log(flat[SHAPES[family][0].label][some])[:, np.newaxis], np.zeros(0))
    later = [flat[name][some] - flat[INTERCEPT][some] for name in flat if name.startswith("log_hazard[")]
    return Baseline(family, np.reshape(later, (len(later), m)).T, np.array(cuts))
