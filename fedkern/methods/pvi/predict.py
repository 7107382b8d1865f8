"""Predicts new rows from the released posterior, without asking any client."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.special import ndtri

from ...arrays import Vector
from ...data.design import encode
from ...errors import JobError
from ...jobs import new_rows
from ...kernels.families import FAMILIES
from ...models.encoding import Encoding
from ...models.glm import Rows, averaged, metrics, predictive_mean
from ...results.gaussian import Posterior
from ...results.prediction import Prediction, anew, within, without_lacking
from ...results.result import Result
from ...results.table import ENDS

DRAWS = 1000  # of the posterior, for predictions


@new_rows.own()
def predicted(result: Result, rows: object) -> Prediction:
    """Predicts rows from a path, a data frame, or arrays. Raises JobError: the run left no posterior to predict with, or the rows
    have a fault."""
    released = result.posterior
    if not isinstance(released, Posterior):
        raise JobError(
            "predict needs the run's posterior.nc, and there is none: run the job where xarray and h5netcdf are installed"
        )
    q = released.q
    encoding, model = Encoding.from_dict(result.summary["encoding"]), result.job["model"]
    read, lacking = new_rows.read(result.job, encoding, rows)
    whole, trials = replace(encoding, row_id=None), encoding.trials
    known = encoding.response in read.names and (trials is None or trials in read.names)
    # Rows with a response are scored; a file may have it for some of its rows, or for none.
    scored = np.array(new_rows.responded(read, whole), np.bool_) & ~lacking if known else np.zeros(0, np.bool_)
    known = bool(scored.any())
    if not known or not scored.all() or trials:  # a row of trials has one mean, and successes and failures to be scored
        encoding = replace(encoding, response=None, positive=None, labels=(), trials=None)
    if not known or encoding.weight not in read.names:  # a mean needs none, and scores are then those of rows that count alike
        encoding = replace(encoding, weight=None)
    # Predict all rows first, without their response.
    design = encode(read, replace(encoding, row_id=None))
    X, offset = np.asarray(design.X, np.float64), design.offset
    notes = new_rows.notes(result.job["data"].get("columns"), encoding, X)
    scale = result.summary.get("scale", model["scale"])  # a learnt one is a result
    design_rows, family, scale = Rows(design.X, design.y, design.offset, design.weights), str(model["family"]), float(scale)
    mean, sd = np.asarray(design.X @ q.mean), np.sqrt(q.variance_of(X))
    mean = mean if design.offset is None else mean + design.offset
    of, predicted_mean = FAMILIES[family].mean, predictive_mean(q, design_rows, family, scale)
    quantiles = {name: np.asarray(of(mean + float(ndtri(p)) * sd), np.float64) for name, p in ENDS.items()}
    # Then encode the scored ones again, with their response.
    if known and (trials is not None or not scored.all()):
        whole = whole if whole.weight in read.names else replace(whole, weight=None)
        design = encode(read if scored.all() else read.select(np.flatnonzero(scored)), whole)
        design_rows = Rows(design.X, design.y, design.offset, design.weights, design.units)
    method = averaged(private=bool(result.job.get("privacy")))  # as `metrics` of the run
    scores = metrics(q, design_rows, family, scale, method) if known else {}

    one_trial = "bernoulli" if family == "binomial" else family

    def sampler() -> tuple[Vector, Vector]:
        eta = released.draws(DRAWS, seed=result.seed) @ X.T
        eta = eta if offset is None else eta + offset
        return np.asarray(of(eta), np.float64), anew(one_trial, eta, scale, result.seed)

    made = Prediction(predicted_mean, quantiles, mean, sd, scores, scored=int(scored.sum()), notes=notes, sampler=sampler)
    return without_lacking(within(made, family), lacking)
