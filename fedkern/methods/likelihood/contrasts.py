"""Compares levels of categorical columns with a reference: a level's own coefficient has no meaning alone.

Each level has a coefficient, so that the prior treats all alike; a constant that is added to all of them (and taken from the
intercept, where there is one) changes no probability. So the rows say nothing of a level alone, and all of its difference from
another.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ...results import guard
from .model import Model

Array = NDArray[np.float64]


@guard.figure("contrasts", ({}, frozenset()))
def of_levels(model: Model, values: Mapping[str, Array]) -> tuple[dict[str, Array], frozenset[str]]:
    """Returns name -> (N,) each level less the reference of its column, and the names of the levels' own coefficients.

    Parameters
    ----------
    values : name -> (N,) coefficients on the data's scale, at draws
    """
    contrasts, names_of_levels = dict[str, Array](), set[str]()
    for column in model.encoding.columns:
        if column.levels is None:
            continue
        base = model.reference(column.name, column.levels)
        for before in model.blocks:
            names = {level: f"theta[{before}{column.name}={level}]" for level in column.levels}
            if not set(names.values()) <= values.keys():
                continue
            names_of_levels |= set(names.values())
            against = values[names[base]]
            of = {f"{before}{column.name}[{level} vs {base}]": values[name] for level, name in names.items() if level != base}
            contrasts |= {name: np.asarray(each - against) for name, each in of.items()}
    return contrasts, frozenset(names_of_levels)
