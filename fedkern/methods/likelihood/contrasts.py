"""Names levels of categorical columns by what they are compared with."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...arrays import Array
from ...results import guard
from .model import Model


@guard.figure("contrasts", ({}, frozenset()))
def of_levels(model: Model, values: Mapping[str, Array]) -> tuple[dict[str, Array], frozenset[str]]:
    """Returns name -> (N,) each level less the reference of its column, and the names of the levels' own coefficients. `values`:
    name -> (N,) published coefficients on the data's scale, at draws: without those of references, or with all."""
    contrasts, names_of_levels = dict[str, Array](), set[str]()
    for column in model.encoding.columns:
        if column.levels is None:
            continue
        base = model.reference(column.name, column.levels)
        for before in model.blocks:
            names = {level: f"theta[{before}{column.name}={level}]" for level in column.levels}
            names_of_levels |= {*names.values()} & values.keys()
            against = values.get(names[base])
            of = {f"{before}{column.name}[{level} vs {base}]": values[name] for level, name in names.items() if level != base}
            contrasts |= {name: each if against is None else np.asarray(each - against) for name, each in of.items()}
    return contrasts, frozenset(names_of_levels)
