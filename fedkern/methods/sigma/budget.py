"""What a private spatial job spends: noise is added to every area's count, once, and all else is computed of the noisy table.

Source: docs/methods/sigma.md, section 14.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...data.artifact import OwnFile
from ...jobs import tables
from ...jobs.run import Run
from ...models.likelihood import Noisy
from ...privacy.accountant import Mechanism, calibrate
from ...privacy.noise import GRID
from ...privacy.plan import Plan
from .areas import names_of
from .keys import Config, PrivacySection
from .rows import AreaRows


def plan(privacy: PrivacySection, n_areas: int = 0) -> Plan:
    """What one client spends: all of epsilon, when the noise is drawn. The noise does not depend on the number of areas."""
    epsilon, delta = privacy.cap("")
    mechanism = Mechanism(sampling="counts", clip=float(privacy.cases_per_person), dimension=n_areas, unit="case")
    mechanism = replace(mechanism, noise_multiplier=calibrate(mechanism, epsilon, delta, 1))
    return Plan(mechanism, epsilon, delta, mechanism.max_steps(epsilon, delta, enough=1), 1, 1)


def key(privacy: PrivacySection, response: str, areas: Sequence[str]) -> tables.Key:
    """Which noisy table the job means."""
    return tables.Key(privacy.table, response, tuple(areas))


def released(run: Run[Config], privacy: PrivacySection, response: str, client: int, rows: AreaRows, file: OwnFile) -> AreaRows:
    """A client's rows with noisy counts, and without the others: whatever comes after this spends nothing."""
    assert rows.counts is not None
    areas = names_of(file)
    table = run.hooks.noisy_table(client, plan(privacy, file.d), key(privacy, response, areas), rows.counts, rows.unread)
    run.hooks.write_own(
        client, "noisy.json", {"table": str(table.path), "drawn": table.drawn, "noise": table.mechanism.as_dict()}, sync=False
    )
    unread = sorted({*table.unread, *rows.unread})
    return rows.noisy(np.array(table.counts, float), Noisy(table.mechanism.decay * GRID), unread)
