"""Takes what a client's site file says of its rows alone: an intercept of groups, or weights, of which the job has nothing.

The client's answers are its log-likelihood with that, at the same points and of the same length: only the numbers are others.
Source: docs/spec/likelihood.md, section 13.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...data.cells import labels, number
from ...data.table import Table
from ...jobs.parties import unusable_structure
from ...jobs.site import Structure
from ...models.encoding import INTERCEPT
from ...models.mixed import Prior
from ...models.mixed.secret import Secret
from ...models.survey import Pseudo
from .model import Model
from .rows import Held


def with_structure(model: Model, rows: Held, table: Table, structure: Structure, client: str, likelihood: Any) -> Any:
    """Returns a client's log-likelihood with the structure that its site file gives to its rows. Raises OwnFault: its column is
    no grouping of the rows, or has weights that make the answer improper; others read neither which it is nor that there is
    one."""
    order = np.arange(table.n_rows) if rows.order is None else rows.order
    if structure.weight is not None:
        weights = np.array([number(cell) for cell in table.cells(structure.weight)])
        if not (np.isfinite(weights).all() and weights.min() >= 0 and weights.any()):
            raise unusable_structure(client, f"weight = {structure.weight!r}: wanted finite numbers, 0 or more, and not all 0")
        return Pseudo.of(likelihood, weights[order])
    assert structure.group is not None
    cells = labels(table.columns[structure.group])
    codes = np.unique(cells.codes[order], return_inverse=True)[1].astype(np.int64)
    groups = int(codes.max()) + 1
    if "" in {cells.levels[k] for k in np.unique(cells.codes).tolist()}:
        raise unusable_structure(client, f"group = {structure.group!r}: it is empty in some rows; give each row its group")
    if not 1 < groups < len(codes):
        what = f"{groups} groups of {len(codes)} rows; wanted several, of several rows"
        raise unusable_structure(client, f"group = {structure.group!r}: {what}")
    prior = model.prior_of(replace(model.layout, group=(INTERCEPT,)))
    assert isinstance(prior, Prior)
    return Secret.of(likelihood, codes, prior)
