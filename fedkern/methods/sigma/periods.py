"""Makes the published numbers of periods: their effects, and at a client each of its areas in each of them.

Source: docs/spec/sigma.md, section 9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...data.artifact import OwnFile
from ...results import guard
from ...results.weighted import QUANTILES, Draws
from .areas import PARTS, Areas, blank, cells, counts, names_of, summarise, unknown
from .beside import RATIOS, quantiles_of
from .fitness import Drawn
from .model import SigmaModel
from .rows import AreaRows


def name_effect(period: str) -> str:
    """Returns the name of a period's effect among the parameters."""
    return f"period[{period}]"


@guard.figure("effects of periods", {})
def about(model: SigmaModel, posterior: Draws) -> dict[str, Any]:
    """Returns the entry of summary.json's table "sigma": ratios to the level of all periods, or differences from it.

    Differences are given where the link has no ratios.
    """
    if not model.periods:
        return {}
    word = RATIOS.get(model.likelihood.record.link)
    effects = {period: posterior.values[name_effect(period)] for period in model.periods}
    natural = np.exp if word else np.asarray
    ends = {period: quantiles_of(natural(effect)) for period, effect in effects.items()}
    return {"periods": {"is": word or "difference", "of": ends}}


@guard.figure("the table of periods", {})
def table(model: SigmaModel, posterior: Draws) -> dict[str, Mapping[str, Sequence[Any]]]:
    """Returns periods.csv: each period's effect on the link scale, and its ratio (or difference) with the 95 % interval."""
    if not model.periods:
        return {}
    ratios = about(model, posterior)["periods"]
    effects = [posterior.values[name_effect(period)] for period in model.periods]
    columns: dict[str, Sequence[Any]] = {
        "period": list(model.periods),
        "effect_mean": cells(np.array([effect.mean() for effect in effects])),
        "effect_sd": cells(np.array([effect.std() for effect in effects])),
    }
    name = ratios["is"].replace(" ", "_")
    for what in PARTS:
        columns[f"{name}_{what}"] = cells(np.array([ratios["of"][period][what] for period in model.periods]))
    return {"periods.csv": columns}


@guard.figure("the table of areas and periods", None)
def of_pairs(
    model: SigmaModel, file: OwnFile, rows: AreaRows, areas: Areas, drawn: Drawn, *, hidden: bool
) -> dict[str, Sequence[Any]] | None:
    """Returns area_periods.csv: the level of each area in each period that occurs, at the means of its rows' covariates.

    Effects of single rows are not in it. `hidden`: whether the posterior is left out for areas with a count that is an interval.
    """
    assert rows.period is not None
    T, layout, observed = len(model.periods), model.layout, rows.observed
    pairs, pair_of_row = np.unique(rows.area * T + rows.period, return_inverse=True)
    area, period = np.divmod(pairs, T)
    n = np.bincount(pair_of_row)
    mean_X = np.column_stack([np.bincount(pair_of_row, column) / n for column in rows.X.T] or [np.zeros((len(n), 0))])
    fixed = drawn.xi[:, layout.parts["beta"]] @ mean_X.T + layout.periods(drawn.xi)[:, period]
    if layout.intercept:
        fixed += drawn.xi[:, layout.parts["intercept"]]
    level = model.likelihood.mean(model.units.natural(fixed) + areas.spatial[:, area])
    seen = pair_of_row[rows.response]
    count, total = (np.bincount(seen, weights, len(pairs)) for weights in (None, observed.y))
    last = observed.last if isinstance(observed.last, np.ndarray) else observed.y
    most = np.bincount(seen, last, len(pairs))
    names = names_of(file)
    out: dict[str, Sequence[Any]] = {
        "area": [names[i] for i in area],
        "period": [model.periods[t] for t in period],
        "rows": count.astype(int).tolist(),
        "observed": counts(total, most, count),
    }
    if areas.label == "rate":
        out["exposure"] = cells(np.bincount(pair_of_row, rows.exposure).astype(float))
    elif observed.trials is not None:
        out["trials"] = cells(np.bincount(seen, observed.trials, len(pairs)).astype(float))
    above = ((level > areas.threshold.value).sum(axis=0) + 0.5) / (len(level) + 1)
    posterior = {**summarise(areas.label, level, QUANTILES), f"p_{areas.label}_above_{areas.threshold.name}": cells(above)}
    concealed = hidden & unknown(rows, file.d)[area]  # in no period: rates of one area are proportional
    return out | blank(posterior, concealed)
