"""Says where events are few: clients without any, and models with more coefficients than their events carry.

Both are read from the sums that clients tell for the checks of the model; nothing more is asked.

Source: Vittinghoff and McCulloch (2007), Relaxing the rule of ten events per variable in logistic and Cox regression: with fewer
than five events a coefficient, estimates and intervals are often off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...algorithms.exchanges.sums import Replicated
from ...finding import Finding
from ...kernels.families import FAMILIES
from ...models.encoding import Encoding

ENOUGH = 5  # events a coefficient


def describe_events(family: str, encoding: Encoding, names: Sequence[str], replies: Mapping[int, Replicated]) -> list[str]:
    """Returns notes for the reader of a result; none of a response without events.

    Parameters
    ----------
    names : of those who have told sums: one where sums are secure, of which nobody knows whose events they are
    replies : number of a client -> its sums; zeros from one with fewer rows than such sums are of
    """
    record = FAMILIES[family]
    if not (record.binary or record.counted):
        return []
    findings = list[str]()
    known = {names[k]: reply.observed.tolist() for k, reply in sorted(replies.items()) if reply.observed[0] > 0}
    if len(known) > 1:
        none = [(name, int(rows)) for name, (rows, events, *_) in known.items() if events == 0]
        only_events = [(name, int(rows)) for name, (rows, events, *_) in known.items() if record.binary and events == rows]
        findings += [Finding.of("no-event-at", clients=none, column=encoding.response)] if none else []
        findings += [Finding.of("only-events-at", clients=only_events, column=encoding.response)] if only_events else []
    if len(known) < len(names):  # of the others events are not known
        return findings
    rows, events = (sum(counts[j] for counts in known.values()) for j in range(2))
    fewer = min(events, rows - events) if record.binary else events
    slopes = sum(1 if column.levels is None else max(len(column.levels) - 1, 1) for column in encoding.columns)
    if 0 < fewer < ENOUGH * slopes:
        which = "events" if fewer == events else "rows without the event"
        findings.append(Finding.of("few-events", events=fewer, which=which, slopes=slopes, least=ENOUGH))
    return findings
