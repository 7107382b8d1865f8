"""Looks for all that ends an open job in a client's file, before anything of it leaves, so that its holder mends all at once."""

from __future__ import annotations

from ..data.design import Identifies, describe
from ..data.faults import Refusals
from ..data.formula import check
from ..data.table import Table
from ..errors import OwnFault
from ..models.encoding import Spec
from .parties import Parties


def find_refusals(parties: Parties, table: Table, spec: Spec, client: str) -> Refusals:
    """Returns the faults of a client's cells and columns; what counts rows looks at those without a fault (`usable`)."""
    found = Refusals(table.n_rows)
    if not table.n_rows or parties.specs is not None:  # too few is all that is said of none; of columns apart few rows count
        return found
    with found.collecting():
        describe(table, spec, client)
    for look in (check, parties.check):
        with found.collecting():
            look(found.usable(table), spec, client)
    return found


def say_the_same(found: Refusals, told: str) -> None:
    """Has others read `told`, of few rows, in the place of rare levels: which of the two it is would tell them how many rows."""
    found.errors = [OwnFault(told, error.own) if isinstance(error, Identifies) else error for error in found.errors]
