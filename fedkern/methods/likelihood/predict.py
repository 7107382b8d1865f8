"""Predicts new rows, without asking anybody: of new clients and groups, from the files that the server released.

At a holder it predicts from the client's own folder, and rows of its groups by the effects of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import Array, Indices
from ...data.design import encode
from ...data.table import Table
from ...errors import JobError
from ...jobs import new_rows
from ...kernels.families import HAZARDS, LIFETIMES, NOMINAL
from ...models.encoding import Encoding
from ...models.mixed.grouping import terms_of
from ...results.plain import Record
from ...results.prediction import OfLevels, Prediction, within, without_lacking
from ...results.released import Drawing
from ...results.result import Result
from ...results.table import ENDS
from . import foreseen, known
from .level_predictive import family_of, predictive_of
from .predictive import Foreseen, Predictive

UNKNOWN = (
    "column {}: none of its labels is known to this client, so that all rows are foreseen as those of new groups: are its labels "
    "written as in the file of the job (01 is another label than 1)?"
)
# Rows X of the encoding, offset, response where it is known, names of quantiles -> probabilities, and the table's row of each
Foresee = Callable[[Array, Array | None, Array | None, Mapping[str, float], Indices], Foreseen]


def predicted(result: Result, rows: Any) -> Prediction:
    """Returns the prediction of rows: a path, a data frame, or arrays. Raises JobError: the run left no posterior to predict
    with, or a fault of the rows."""
    _refuse(result.job)
    with new_rows.own():
        posterior = result.posterior.groups(Drawing(result.seed, result.chains, result.n_draws))["posterior"]
        # A coefficient of which rows say nothing adds nothing, as R's NA.
        known = {name: (axes, np.nan_to_num(values, nan=0.0)) for name, (axes, values) in posterior.variables.items()}
        posterior = posterior._replace(variables=known)
        encoding, model = Encoding.from_dict(result.summary["encoding"]), result.job["model"]
        terms = terms_of(model.get("random") or {})
        if str(model["family"]) in LIFETIMES:
            return foreseen.predict_times(result.job, posterior, encoding, terms, rows, result.seed)
        family = family_of(model)
        predictive = predictive_of(family).of(posterior, encoding, family, terms, model.get("nu"))

        def foresee(X: Array, offset: Array | None, y: Array | None, at: Mapping[str, float], which: Indices) -> Foreseen:
            return predictive.of_rows(X, offset, y, at)

        read, lacking = new_rows.read(result.job, encoding, rows)
        return _prediction(read, lacking, encoding, predictive, foresee, result.job, result.seed)


def at_holder(folder: Path, record: Record, rows: Any) -> tuple[Prediction, bool]:
    """Returns the prediction at a client's own place, with its own effect, and those of its groups where a row's label is theirs.

    Parameters
    ----------
    folder, record : the client's own folder, and its job.json

    Returns
    -------
    the prediction, which says of each row whether its group was known; whether the server's checks of the run passed

    Raises
    ------
    JobError
        The run left nothing there to predict with, the rows lack the column of groups, or a fault of the rows.
    """
    _refuse(record)
    if record["model"].get("sigma"):
        raise JobError(
            "model.sigma: a client of such a job has no effects of its own, and keeps nothing: take the released posterior (the "
            "run's folder at the server)"
        )
    known_effects = known.read(folder, record["run"]["id"], record["run"]["party"])
    about, encoding = known_effects.about, known_effects.new.encoding
    with new_rows.own():
        read, lacking = new_rows.read(record, encoding, rows, *about.columns)
        if gone := [name for name in about.columns if name not in read.names]:
            remedy = "add it; where it is empty, or a label that this client has not, a row is of a new group"
            raise JobError(f"{read.source}: column {gone[0]!r} (model.random.group) is missing; {remedy}")
        labels = [read.cells(name) for name in about.columns]
        groups = known_effects.numbers(labels, read.n_rows)

        def foresee(X: Array, offset: Array | None, y: Array | None, at: Mapping[str, float], which: Indices) -> Foreseen:
            return known_effects.foreseen(X, offset, y, groups[which], at)

        if known_effects.baseline is not None:
            prediction = without_lacking(foreseen.at_holder(record, known_effects, read, groups), lacking)
        else:
            prediction = _prediction(read, lacking, encoding, known_effects.new, foresee, record)
    used, notes = dict[str, list[str]](), prediction.notes
    for column, cells, numbers in zip(about.columns, labels, groups.T):
        name = f"group_effect[{column}]" if about.columns[1:] else "group_effect"
        used[name] = ["new" if group == known.NEW else "known" for group in numbers.tolist()]
        if any(cells) and not (numbers != known.NEW).any():
            notes = (UNKNOWN.format(repr(column)), *notes)
    return replace(prediction, used={**used, **prediction.used}, notes=notes), about.converged


def _refuse(job: Record) -> None:
    """Refuses rows with survival times, or with a likelihood that only a holder's package knows, with a JobError."""
    if job["model"].get("kind") == "own":
        raise JobError(
            'model.kind = "own": the factory says how probable a client\'s rows are, and not what is expected of new ones; take '
            "the draws (posterior.nc, or result.to_arviz()), and foresee rows by the package itself"
        )
    if (family := str(job["model"]["family"])) in HAZARDS and family not in LIFETIMES:
        raise JobError(
            f'model.family = "{family}": new rows have no times without a baseline hazard, and these stay with the clients, each '
            "of which has its own in baseline.csv of its folder; hazard ratios are in the table (fedkern report DIR --table csv "
            "--exp)"
        )


def _prediction(
    read: Table,
    lacking: NDArray[np.bool_],
    encoding: Encoding,
    predictive: Predictive,
    foresee: Foresee,
    job: Record,
    seed: int | None = None,
) -> Prediction:
    """The prediction of rows that were read, with scores of those that have a response; `seed`: of its draws, if any."""
    whole, trials = replace(encoding, row_id=None), encoding.trials
    known_response = encoding.response in read.names and (trials is None or trials in read.names)
    scored = np.array(new_rows.responded(read, whole), np.bool_) & ~lacking if known_response else np.zeros(0, np.bool_)
    bare = replace(encoding, response=None, positive=None, labels=(), trials=None, row_id=None)
    design = encode(read, bare)
    X = np.asarray(design.X, np.float64)
    drawn = foresee(X, design.offset, None, ENDS, np.arange(len(X)))
    sampler = None if seed is None else partial(predictive.sampled, X, design.offset, seed)
    notes = new_rows.notes(job["data"].get("columns"), encoding, np.asarray(design.X, np.float64))
    scores: dict[str, float] = {}
    if scored.any():
        which = np.flatnonzero(scored)
        encoded = encode(read if scored.all() else read.select(which), whole)
        which = which if encoded.units is None else which[encoded.units]
        scores = predictive.scores(encoded, foresee(np.asarray(encoded.X, np.float64), encoded.offset, encoded.y, {}, which))[0]
    if predictive.width > 1:
        linear = predictive.family not in NOMINAL
        made = of_levels(encoding.labels, drawn, scores, scored=int(scored.sum()), linear=linear)
        return without_lacking(replace(made, notes=notes, sampler=sampler), lacking)
    made = Prediction(
        drawn.mean, drawn.quantiles, drawn.linear_mean, drawn.linear_sd, scores, scored=int(scored.sum()), notes=notes
    )
    return without_lacking(within(replace(made, sampler=sampler), predictive.family), lacking)


def of_levels(levels: Sequence[str], drawn: Foreseen, scores: Mapping[str, float], *, scored: int, linear: bool) -> Prediction:
    """Returns the prediction of the chances of all levels, a column each."""
    none = np.zeros(0)
    ends = (drawn.linear_mean, drawn.linear_sd) if linear else (none, none)
    quantiles = {name: values.T for name, values in drawn.quantiles.items()}
    return OfLevels(drawn.mean.T, quantiles, *ends, scores, scored=scored, levels=tuple(levels))
