"""Spends the budget of a private job that describes columns: noise is added to every count, once, as in a spatial job.

A row is in one cell of each table, so that neighbours differ by as many cases as there are tables. Source: docs/spec/sigma.md,
section 14.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ...algorithms.exchanges.described import Cells
from ...jobs import tables
from ...jobs.run import Run
from ...privacy.binned import Noise
from ...privacy.plan import Plan
from ...results.plain import Record, real
from .keys import Config, PrivacySection
from .model import DescribeModel


def plan(privacy: PrivacySection, model: DescribeModel) -> Plan:
    """Returns the plan of one client: all of epsilon is spent when the noise is drawn."""
    each = len(model.tables) + bool(model.entry)  # a time with an entry is in two cells of its table
    return tables.plan(*privacy.cap(""), privacy.cases_per_person * each, model.dims["cells"])


def key(privacy: PrivacySection, model: DescribeModel, client: str) -> tables.Key:
    """Returns the key that identifies a client's noisy counts."""
    return tables.Key(client, privacy.table, "describe", model.places)


def add_noise(run: Run[Config], privacy: PrivacySection, model: DescribeModel, client: int, counts: NDArray[np.float64]) -> Cells:
    """Returns a client's counts with noise: as they were drawn once, or drawn now and charged."""
    named = key(privacy, model, run.names[client])
    table = run.hooks.noisy_table(client, plan(privacy, model), named, counts.astype(np.int64))
    about = {"table": str(table.path), "drawn": table.drawn, "noise": table.mechanism.as_dict()}
    run.hooks.write_own(client, "noisy.json", about, sync=False)
    return Cells(0, np.array(table.counts, np.float64))


def noise(certificates: Mapping[str, Record]) -> Noise | None:
    """Returns the noise of one client's counts, by what clients have drawn; None where they have none."""
    sds = [real(certificate["noise_multiplier"]) * real(certificate["clip"]) for certificate in certificates.values()]
    return Noise(2 * math.asinh(1 / (math.sqrt(2) * max(sds)))) if sds else None
