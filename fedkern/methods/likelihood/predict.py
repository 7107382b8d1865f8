"""What the released posterior says of new rows, of clients and groups that it has not seen: no client is asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...data.design import encode
from ...data.faults import NO_VALUE
from ...errors import JobError, OwnFault
from ...jobs import new_rows
from ...models.encoding import INTERCEPT, Encoding
from ...results.prediction import Prediction
from ...results.released import Drawing
from ...results.result import Result
from ...results.table import ENDS
from .predictive import Predictive, one_row


def predicted(result: Result, rows: Any) -> Prediction:
    """Of a path, a data frame, or arrays.

    Raises
    ------
    JobError
        The run left no posterior to predict with, or a fault of the rows.
    """
    try:
        return _predicted(result, rows)
    except OwnFault as fault:  # whoever predicts holds the rows, and the job is over
        raise JobError(fault.own.replace(f" ({NO_VALUE})", "")) from None


def _predicted(result: Result, rows: Any) -> Prediction:
    posterior = result.posterior.groups(Drawing(result.seed, result.chains, result.n_draws))["posterior"]
    encoding, model = Encoding.from_dict(result.summary["encoding"]), result.job["model"]
    random = model.get("random") or {}
    terms = {
        "group": (INTERCEPT, *random.get("slopes", ())) if random.get("group") else (),
        "client": (INTERCEPT, *random.get("client_slopes", ())) if random.get("client") else (),
    }
    predictive = Predictive.of(posterior, encoding, one_row(str(model["family"])), terms)
    read = new_rows.read(result, encoding, rows)
    whole, trials = replace(encoding, row_id=None), encoding.trials
    known = encoding.response in read.names and (trials is None or trials in read.names)
    scored = np.array(new_rows.responded(read, whole) if known else [], np.bool_)
    bare = replace(encoding, response=None, positive=None, labels=(), trials=None, row_id=None)
    design = encode(read, bare)
    found = predictive.of_rows(np.asarray(design.X, np.float64), design.offset, None, ENDS)
    scores: dict[str, float] = {}
    if scored.any():
        some = read if scored.all() else read.select(np.flatnonzero(scored))
        scores = predictive.scores(encode(some, whole))[0]
    return Prediction(found.mean, found.quantiles, found.linear_mean, found.linear_sd, scores, scored=int(scored.sum()))
