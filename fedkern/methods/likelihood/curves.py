"""Survival curves and restricted means at the server: of a hazard that all share from draws, of Cox models from clients' curves.

Source: docs/methods/likelihood.md, section 9.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...algorithms.exchanges.hazard_curves import CumulativeHazards
from ...models import survival_curves
from ...models.mixed.layout import LEVELS
from ...models.survival_parametric import Baseline
from ...results.weighted import summarised
from .model import Model

Array = NDArray[np.float64]


def of_draws(model: Model, points: Array) -> dict[str, Any]:
    """`survival` and `restricted_mean` of summary.json, where the job asks for them, from draws (N, P) of equal weight: of a row
    whose numeric covariates are 0 on the scale of the encoding (their means, where columns are standardised) and all others at
    their reference, of a new group and a new client."""
    at, tau = model.survival_at, model.output.restricted_mean
    if not (at or tau) or not model.lifetimes:
        return {}
    unit, layout = float(np.exp(model.log_unit)), model.layout
    base = Baseline.of(layout, points, np.array(model.cuts) / unit)
    variance = np.zeros(len(points))
    for level in LEVELS:
        if layout.terms(level):
            variance += layout.factor(points, level)[:, 0, 0] ** 2
    eta, variance = (points[:, : layout.p] @ model.reference_row)[:, np.newaxis], variance[:, np.newaxis]
    found: dict[str, Any] = {}
    equal = np.full(len(points), 1 / len(points))
    if at:
        values = survival_curves.survival(base, eta, variance, np.array(at) / unit)[:, :, 0]
        found["survival"] = [{"time": t, **summarised(one, equal)} for t, one in zip(at, values.T)]
    if tau is not None:
        mean = unit * survival_curves.restricted_mean(base, eta, variance, tau / unit)[:, 0]
        found["restricted_mean"] = {"until": tau, **summarised(mean, equal)}
    return found


def of_clients(model: Model, told: Sequence[CumulativeHazards]) -> dict[str, Any]:
    """`survival` of summary.json, of a Cox model: the average over the clients' rows, each with its own client's baseline hazard
    and covariates as above."""
    rows = np.array([one.rows for one in told], np.float64)
    if not rows.sum():
        return {}
    share = rows / rows.sum()
    values = np.einsum("j,jst->st", share, [np.exp(-one.hazards) for one in told])
    equal = np.full(len(values), 1 / len(values))
    return {"survival": [{"time": t, **summarised(one, equal)} for t, one in zip(model.survival_at, values.T)]}
