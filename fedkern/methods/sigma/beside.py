"""Computes numbers that accompany the server's posterior: quantiles of the priors, and coefficients as ratios.

Source: docs/spec/sigma.md, sections 6.3 and 9.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from ...arrays import Array
from ...results import guard
from ...results.gaussian import label
from ...results.weighted import QUANTILES as ENDS
from ...results.weighted import Draws
from .model import SigmaModel

QUANTILES = {"q025": 0.025, "q50": 0.5, "q975": 0.975}  # of a ratio
RATIOS = {"log": "rate ratio", "logit": "odds ratio"}  # link -> the name of e^coefficient


@guard.figure("ratios, and priors beside the posterior", {})
def of(model: SigmaModel, posterior: Draws) -> dict[str, Any]:
    """Returns both as entries of summary.json's table "sigma"."""
    shown, unknowns = ratios(model, posterior), priors(model, posterior)
    if shown:
        return {"prior_of": unknowns} | {"ratios": shown}
    return {"prior_of": unknowns}


def priors(model: SigmaModel, posterior: Draws) -> dict[str, dict[str, float]]:
    """Returns name -> 2.5, 5, 50, 95 and 97.5 % of its prior, for each published number, on the data's scale."""
    levels, units, size = np.array([*ENDS.values()]), model.units, model.encoding.size
    half_normal = units.scale * ndtri((1 + levels) / 2)
    ends = dict.fromkeys(("sigma_theta", "sigma", "sigma_extra", "sigma_period"), half_normal)
    ends |= {"rho": levels, "dispersion": half_normal**2}
    if model.layout.free:
        ends[model.common.condition.name] = model.condition.quantile(levels)
    if model.periods:
        spread = units.scale * np.sqrt((model.layout.walk**2).sum(axis=1))
        ends |= {f"period[{name}]": sd * _product(levels) for name, sd in zip(model.periods, spread)}
    mean, sd = np.zeros(size), np.full(size, units.scale * model.coefficient_sd)
    mean[0], sd[0] = (units.level, sd[0]) if model.layout.intercept else (0.0, 0.0)
    R = model.coding.matrix
    for suffix, A in (("", R @ model.encoding.affine()), ("_std", R)):
        centres, spreads = A @ mean, np.sqrt(A**2 @ sd**2)
        ends |= {label(name, suffix): centres[j] + spreads[j] * ndtri(levels) for j, name in enumerate(model.published)}
    return {name: dict(zip(ENDS, ends[name].tolist())) for name in posterior.values}


def _product(levels: Array) -> Array:
    """Returns quantiles of a half-normal times an independent normal number."""
    x, weight = np.polynomial.legendre.leggauss(200)
    scales = ndtri((3 + x) / 4)  # quantiles of a half-normal number at (1 + x) / 2
    values = np.linspace(-8, 8, 4001)
    return np.asarray(np.interp(levels, ndtr(values[:, np.newaxis] / scales) @ weight / 2, values))


def ratios(model: SigmaModel, posterior: Draws) -> dict[str, Any]:
    """Returns coefficients as rate ratios or odds ratios; empty where the link has none, or the model has no covariates.

    A number has the ratio for one unit and, where it is standardised by another number, for one standard deviation (a column with
    one value has none). A level has the ratio to the column's reference.
    """
    word, covariates = RATIOS.get(model.likelihood.record.link), model.encoding.names[1:]
    if word is None or not covariates:
        return {}
    tables: dict[str, object] = {"is": word, "a level": _levels(model, posterior)}
    covariates = tuple(column.name for column in model.encoding.columns if column.levels is None)
    same = {column.name for column in model.encoding.columns if column.levels is None and column.constants[1] == 1}  # as a unit's
    for title, suffix in (("a unit", ""), ("an sd", "_std")):
        draws = {name: posterior.values.get(label(name, suffix)) for name in covariates}
        shown = {name: values for name, values in draws.items() if values is not None and not (suffix and name in same)}
        tables |= {title: {name: quantiles_of(np.exp(values)) for name, values in shown.items()}}
    return {title: content for title, content in tables.items() if content}


def _levels(model: SigmaModel, posterior: Draws) -> dict[str, dict[str, float]]:
    """Returns each level of a categorical column against its reference, by default the first."""
    against = {}
    for column in model.encoding.columns:
        levels = column.levels or ()
        base = model.references.get(column.name) or next(iter(levels), "")
        for level in levels:
            if level != base:
                # Where no intercept takes up a constant the reference has a coefficient of its own.
                shown_level, other = (posterior.values.get(label(f"{column.name}={name}", ""), 0.0) for name in (level, base))
                against[f"{column.name} {level} against {base}"] = quantiles_of(np.exp(np.asarray(shown_level - other)))
    return against


def quantiles_of(values: Array) -> dict[str, float]:
    """Returns the quantiles of a ratio."""
    return dict(zip(QUANTILES, np.quantile(values, [*QUANTILES.values()]).tolist()))
