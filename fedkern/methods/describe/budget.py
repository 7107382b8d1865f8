"""Spends the budget of a private job that describes columns: noise is added to every count, once, as in a spatial job.

A row is in one cell of each table, so that neighbours differ by as many cases as there are tables. Source: docs/spec/sigma.md,
section 14.
"""

from __future__ import annotations

from ...jobs import tables
from ...privacy.plan import Plan
from ..sigma import budget
from .keys import PrivacySection
from .model import DescribeModel


def plan(privacy: PrivacySection, model: DescribeModel) -> Plan:
    """Returns the plan of one client: all of epsilon is spent when the noise is drawn."""
    cases = privacy.cases_per_person * len(model.tables)
    return budget.plan(privacy.model_copy(update={"cases_per_person": cases}), model.dims["cells"])


def key(privacy: PrivacySection, model: DescribeModel) -> tables.Key:
    """Returns the key that identifies the job's noisy counts."""
    return tables.Key(privacy.table, "describe", model.places)
