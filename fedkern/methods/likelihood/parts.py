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
from ...errors import OwnFault
from ...models.encoding import Spec
from .times import Times


def check_parts(family: str, wanted: int, table: Table, spec: Spec, begin: str, times: Times | None = None) -> None:
    """Refuses a client of whose rows few, and not none, have an interval (`times`) or are zeros of a zero-inflated response.

    Parameters
    ----------
    family : of the response
    wanted : the number of such rows that the job asks for, where there are some
    begin : the beginning of the sentence, which names the client

    Raises
    ------
    OwnFault
        There are few; numbers are for the holder.
    """
    if times is not None:
        n, kind = int(times.between.sum()), "events in an interval (data.time_upper)"
        remedy = "give their times, or leave out data.time_upper and these rows"
    elif family == "zero-inflated-poisson" and spec.response in table.columns:
        n, kind = int((np.asarray(table.columns[str(spec.response)]) == 0).sum()), "zeros in the response"
        # Whose zeros do not stand alone, and which no check sends on to another family: a Poisson job would lead here again.
        remedy = 'take model.family = "zero-inflated-negative-binomial"'
    else:
        return
    if not 0 < n < wanted:
        return
    advice = f"{remedy}, take fewer columns, or pool it with another site's rows"
    why = "terms of the others cancel in messages, so that these few are told"
    raise OwnFault(
        f"{begin}: few rows with {kind}, and not none: {why}: {advice}",
        f"{begin}: {n} rows with {kind}, and none or {wanted} are asked for: {why}: {advice}",
    )
