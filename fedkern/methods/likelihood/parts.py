"""Refuses clients of whose rows a few are of a kind whose terms stand alone in the messages.

The log-likelihood of a row that is seen until a time, and of a count above 0, is linear in exp(eta) and in eta. So gradient plus
minus the Hessian, in the intercept and each coefficient, is a constant of all such rows: the difference of two messages has the
terms of all *other* rows alone. Those are events in an interval, and zeros of zero-inflated Poisson counts. They count as a
client's rows do: none, or more than may be told of the coefficients.

Source: docs/spec/likelihood.md, section 6.
"""

from __future__ import annotations

import numpy as np

from ...data.table import Table
from ...finding import RuleRefusal, Value
from ...models.encoding import Spec
from .times import Times


def check_parts(family: str, wanted: int, table: Table, spec: Spec, client: str, times: Times | None = None) -> None:
    """Refuses a client of whose rows few, and not none, have an interval (`times`) or are zeros of a zero-inflated response, or
    are above 0 in a hurdle's, which has coefficients of these alone. `family`: of the response; `wanted`: the number of such rows
    that the job asks for, where there are some. Raises RuleRefusal: there are few."""
    if times is not None:
        n, kind, remedy = int(times.between.sum()), "events-in-intervals", "no-intervals"
    elif family == "zero-inflated-poisson" and spec.response in table.columns:
        n, kind = int((np.asarray(table.columns[str(spec.response)]) == 0).sum()), "zeros-of-response"
        # Whose zeros do not stand alone, and which no check sends on to another family: a Poisson job would lead here again.
        remedy = "other-zeros"
    elif family.startswith("hurdle") and spec.response in table.columns:
        n, kind, remedy = int((np.asarray(table.columns[str(spec.response)]) > 0).sum()), "counts-above-0", "other-zeros"
    else:
        return
    if 0 < n < wanted:
        values: dict[str, Value] = {"rows": n, "wanted": wanted, "facts": (kind,), "remedies": (remedy, "fewer-columns", "pool")}
        raise RuleRefusal("few-of-a-kind", client, "disclosure.rows_per_coefficient", where=table.source, **values)
