"""Looks for all that ends an open job in a client's file, before anything of it leaves, so that its holder mends all at once."""

from __future__ import annotations

from collections.abc import Callable

from ..data.design import Identifies, describe
from ..data.faults import Refusals
from ..data.formula import check
from ..data.table import Table
from ..errors import OwnFault
from ..models.encoding import Spec
from .requirement import Requirement

Look = Callable[[Table, Spec, str], None]  # OwnFault where a table does not do


def find_refusals(asked: Requirement, look: Look | None, table: Table, spec: Spec, client: str) -> Refusals:
    """Returns the faults of a client's cells and columns; what counts rows looks at those without a fault (`usable`).

    `look`: the method's own, beside those of columns; None where clients have columns apart, of which few rows count.
    """
    found = Refusals(table.n_rows)
    # Too few is all that is said of no rows.
    if not table.n_rows or look is None or not asked.looks_at_values:
        return found
    with found.collecting():
        # Rows of each level are counted by the job's rules, where these ask for any.
        describe(table, spec, client, least_of_level=None if asked.level == "none" else 0)
    for each in (check, look):
        with found.collecting():
            each(found.usable(table), spec, client)
    return found


def say_the_same(found: Refusals, told: str) -> None:
    """Has others read `told`, of few rows, in the place of rare levels: which of the two it is would tell them how many rows."""
    found.errors = [OwnFault(told, error.own) if isinstance(error, Identifies) else error for error in found.errors]
