"""Lists the changes whose marginal effects a job asks for, and the message that they cost.

Source: docs/spec/likelihood.md, section 5.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...algorithms.exchanges.sums import MarginalSums
from ...jobs.stage import Stage
from ...models.formula.expansion import Formula
from ...models.mixed.marginal import Contrast, Slope
from .model import TOLD, Model
from .moved import Of

SHOWN = ("mean", "sd", "q025", "q975")
SLOPE = "slope per unit"  # of a numeric column: an average derivative


@dataclass(frozen=True)
class Change:
    """Describes one change of a covariate, whose effect on the mean of the response is asked for: a slope or a difference."""

    # name, words: the effect's name in the result, and the change in words
    name: str
    words: str
    effect: Slope | Contrast | Of  # the change, as the model computes it
    # number of the numeric column, where the change holds for columns with other values than 0 and 1; else None
    numeric: int | None = None
    binary: int | None = None  # number of the numeric column, where the change holds for columns of 0 and 1 alone; else None


def changes(model: Model) -> list[Change]:
    """Lists the changes of each covariate.

    Of a numeric one there are its slope, and the change from 0 to 1; a level changes against the reference, by default the first.
    """
    if model.encoding.formula is not None:
        return of_formula(model.encoding.formula)
    listed: list[Change] = []
    place, numeric = int(model.encoding.intercept), 0
    declared = model.declared
    for column in model.encoding.columns:
        if column.levels is None:
            center, scale = column.constants
            ends = tuple(((value - center) / scale,) for value in (0.0, 1.0))
            listed.append(Change(column.name, SLOPE, Slope(place, 1 / scale), numeric=numeric))
            listed.append(Change(column.name, "1 against 0", Contrast((place,), *ends), binary=numeric))
            place, numeric = place + 1, numeric + 1
            continue
        base = (declared[column.name].reference if column.name in declared else None) or column.levels[0]
        columns, indicators = tuple(range(place, place + len(column.levels))), np.eye(len(column.levels))
        low = tuple(indicators[column.levels.index(base)].tolist())
        for level, row in zip(column.levels, indicators.tolist()):
            if level != base:
                listed.append(Change(f"{column.name}={level}", f"{level} against {base}", Contrast(columns, low, tuple(row))))
        place += len(column.levels)
    return listed


def numbers(model: Model) -> int:
    """The number of things that each change is of: the response's mean, or the probabilities of its levels."""
    return len(model.levels) or 1


def of_formula(formula: Formula) -> list[Change]:
    """Lists the changes of each column that a formula reads, in all of its terms: of numbers and labels as in `changes`."""
    listed: list[Change] = []
    numeric = 0
    for name in formula.variables:
        levels = formula.known[name].levels
        if levels is None:
            listed.append(Change(name, SLOPE, Of(name), numeric=numeric))
            listed.append(Change(name, "1 against 0", Of(name, (0.0, 1.0)), binary=numeric))
            numeric += 1
            continue
        base = min(formula.compared(name), default=levels[0])
        others = (level for level in levels if level != base)
        listed += [Change(f"{name}={level}", f"{level} against {base}", Of(name, (base, level))) for level in others]
    return listed


def stages(model: Model) -> list[Stage]:
    """Returns the exchange of marginal effects; nothing where the job asks for none, or has no covariate."""
    of = changes(model) if model.output.marginal else []
    numeric = sum(effect.numeric is not None for effect in of)
    dims = {"draws": TOLD, "numeric": numeric, "effects": len(of) * numbers(model)}
    dims |= {"d": model.layout.p}  # coefficients, by which `check` counts rows
    return [Stage.asking(MarginalSums, dims, secure=model.secure)] if of else []
