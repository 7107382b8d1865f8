"""Spends the budget of a private spatial job: noise is added to every area's count, once, and all else uses the noisy table.

Source: docs/spec/sigma.md, section 14.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...data.artifact import OwnFile
from ...jobs import tables
from ...jobs.keys import CountsPrivacySection
from ...jobs.run import Run
from ...models.likelihood import Noisy
from ...privacy.noise import GRID
from ...privacy.plan import Plan
from .areas import names_of
from .keys import Config
from .rows import AreaRows


def plan(privacy: CountsPrivacySection, n_areas: int = 0) -> Plan:
    """Returns the plan of one client: all of epsilon is spent when the noise is drawn, whatever the number of areas."""
    return tables.plan(*privacy.cap(""), privacy.cases_per_person, n_areas)


def key(privacy: CountsPrivacySection, client: str, response: str, areas: Sequence[str]) -> tables.Key:
    """Returns the key that identifies a client's noisy table."""
    return tables.Key(client, privacy.table, response, tuple(areas))


def add_noise(
    run: Run[Config], privacy: CountsPrivacySection, response: str, client: int, rows: AreaRows, file: OwnFile
) -> AreaRows:
    """Returns a client's rows with noisy counts, and without the exact ones: all later steps spend nothing."""
    assert rows.counts is not None
    named = key(privacy, run.names[client], response, names_of(file))
    # The charge is on the disk before the noise is drawn, and a table that exists is read again and costs nothing.
    table = run.hooks.noisy_table(client, plan(privacy, file.d), named, rows.counts, rows.unread)
    run.hooks.write_own(
        client, "noisy.json", {"table": str(table.path), "drawn": table.drawn, "noise": table.mechanism.as_dict()}, sync=False
    )
    unread = sorted({*table.unread, *rows.unread})
    return rows.noisy(np.array(table.counts, float), Noisy(table.mechanism.decay * GRID), unread)
