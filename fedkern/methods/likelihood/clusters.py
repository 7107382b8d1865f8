"""Reads the clusters of a survey's rows, and refuses a file in which they are none.

Source: docs/spec/likelihood.md, section 11.
"""

from __future__ import annotations

import numpy as np

from ...data.cells import labels
from ...data.faults import Marks, who
from ...data.reading import NAMED
from ...data.table import Table
from ...disclosure.rules import Rules
from ...errors import OwnFault
from ...finding import RuleRefusal, Value
from ...models.encoding import Spec
from ...models.survey import Clusters


def clusters_of(table: Table, psu: str | None, stratum: str | None) -> Clusters:
    """Returns the clusters of a client's rows, and their strata."""
    codes = [None if name is None else labels(table.columns[name]).codes.astype(np.int64) for name in (psu, stratum)]
    return Clusters(*codes)


def check_clusters(table: Table, spec: Spec, client: str, unknowns: int, rules: Rules) -> None:
    """Refuses a client's file without the clusters that the job names. `unknowns`, `rules`: of the model, and what the job asks
    of rows. Raises OwnFault: an empty label, a cluster in two strata, or a stratum of one cluster; cells are for the holder.
    Raises RuleRefusal: there are so few, of so few rows, that what is told of their scores is of rows."""
    psu = next(iter(spec.groups), None)
    named, begin = [name for name in (psu, spec.strata) if name is not None], who(client, table.source)
    marks = Marks(table)
    for name in named:
        marks.mark(np.array([not cell.strip() for cell in table.cells(name)], bool), name, "is empty", *NAMED)
    marks.refuse(client, named)
    weight = np.asarray(table.columns[str(spec.weight)], np.float64) > 0
    cluster, stratum = clusters_of(table, psu, spec.strata)
    cluster = np.arange(table.n_rows) if cluster is None else cluster
    rows = np.bincount(cluster[weight])
    if stratum is not None:
        pairs = np.unique(np.column_stack([stratum, cluster])[weight], axis=0)
        within, twice = np.bincount(pairs[:, 0]), len(pairs) - len(np.unique(pairs[:, 1]))
        if twice:
            text = f"{begin}: column {psu!r}: clusters stand in several strata of column {spec.strata!r}"
            remedy = "number clusters through, so that a label is of one stratum"
            raise OwnFault(f"{text}; {remedy}", f"{text} ({twice}); {remedy}")
        if alone := int((within == 1).sum()):
            text = f"{begin}: column {spec.strata!r}: strata with one cluster, of which nothing is known of how clusters differ"
            remedy = "join each with a stratum like it, in one label"
            raise OwnFault(f"{text}; {remedy}", f"{text} ({alone}); {remedy}")
    n = int((rows > 0).sum())
    # Of one column scores of twice its unknowns told up to 2 % of rows, and of one unknown more less than 1 %.
    wanted, least = int(rules.linear * (unknowns + 1)) + 1, rules.rows_per_value
    if rules.of_coefficients and n < wanted and rows[rows > 0].min(initial=least) < least:
        values: dict[str, Value] = {"clusters": n, "wanted": wanted, "least": least, "where": table.source}
        raise RuleRefusal("few-clusters", client, "disclosure.rows_per_coefficient", remedies=("join-clusters", "pool"), **values)
