"""Looks for all that ends an open job in a client's file, before anything of it leaves, so that its holder mends all at once."""

from __future__ import annotations

from functools import partial

from ..data.design import Identifies, describe
from ..data.faults import Refusals
from ..data.formula import check
from ..data.table import Table
from ..errors import OwnFault
from ..models.encoding import Spec
from .keys import JobConfig
from .parties import Parties


def find_refusals(config: JobConfig, parties: Parties, table: Table, spec: Spec, client: str) -> Refusals:
    """Returns the faults of a client's cells and columns; what counts rows looks at those without a fault (`usable`)."""
    found = Refusals(table.n_rows)
    # Too few is all that is said of no rows; of columns apart few rows count.
    if not table.n_rows or parties.specs is not None or not config.looks_at_values:
        return found
    with found.collecting():
        # Rows of each level are counted by the job's rules, where these ask for any.
        describe(table, spec, client, least_of_level=None if config.least_of_level is None else 0)
    for look in (check, partial(parties.check, config)):
        with found.collecting():
            look(found.usable(table), spec, client)
    return found


def say_the_same(found: Refusals, told: str) -> None:
    """Has others read `told`, of few rows, in the place of rare levels: which of the two it is would tell them how many rows."""
    found.errors = [OwnFault(told, error.own) if isinstance(error, Identifies) else error for error in found.errors]
