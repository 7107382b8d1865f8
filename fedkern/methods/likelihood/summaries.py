"""Says of which rows clients take part by a summary, and how a result names them.

Such a client is too small for values at draws; which these are all places have agreed on before (`jobs.admitted`). It answers two
questions in the rounds, or a few more where all clients are such, none about the checks of the model, and a quadratic stands in
the place of its log-likelihood (`algorithms.importance.summaries`). Source: docs/spec/likelihood.md, section 1.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...algorithms.importance.machine import Found
from ...algorithms.importance.summaries import CELLS, FAR, MOVED, REMAINS, allowed, told
from ...finding import Finding, RuleRefusal, Value
from ...results.plain import Record
from ...results.verdict import Check, Verdict, Word


def check_rows(rows: int, columns: int, unknowns: int, questions: int, client: str, source: str) -> None:
    """Refuses rows of which a summary of so many questions would tell too much (RuleRefusal)."""
    if allowed(unknowns, rows, columns) >= questions:
        return
    most, wanted = int(CELLS * rows * columns), told(unknowns) + 1  # what remains
    remedies = ("fewer-columns", "pool", "leave-client-out")
    values: dict[str, Value] = {"rows": rows, "columns": columns, "most": most, "wanted": wanted, "remedies": remedies}
    raise RuleRefusal("few-rows-for-a-summary", client, "disclosure.rows_per_coefficient", where=source, **values)


def describe(names: Sequence[str], summaries: Collection[int]) -> list[str]:
    """Returns the line of `fedkern check`."""
    who = ", ".join(names[k] for k in sorted(summaries))
    return [f"summary  gradient and curvature at one point and over one normal, no values at draws: {who}"] if who else []


def content(found: Found, names: Sequence[str], summaries: Collection[int], sizes: Sequence[int]) -> Record:
    """Returns `summaries` of summary.json: who takes part by one, with its rows where the server was told `sizes`, and what the
    verdict is made of; nothing without any.
    """
    if found.summed is None:
        return {}
    moved, share, remains = found.summed
    clients = {names[k]: {"rows": sizes[k]} if sizes else {} for k in sorted(summaries)}
    return {"summaries": {"clients": clients, "moved": moved, "share": share, "remains": remains}}


def judged(verdict: Verdict, found: Found, *, may_sign: bool, unchecked: bool, joined: bool) -> Verdict:
    """Returns the verdict of draws where clients take part by a summary: the posterior, or approximate, or far from it.

    `may_sign`: whether all of them do, and could take part by signed sums; `unchecked`: whether nobody has seen if responses vary
    more than the family makes them, by which intervals would be too narrow; `joined`: whether rare levels have joined, which by
    default they do not where sums are signed.
    """
    if found.summed is None or verdict.converged is not True:
        return verdict
    moved, share, remains = found.summed
    word: Word = moved <= FAR and "approximate"
    if moved <= MOVED and remains <= REMAINS:
        word = "approximate" if unchecked else True
    values: dict[str, Value] = {"share": 100 * share, "moved": moved, "wanted": MOVED, "remains": remains, "most": REMAINS}
    signs = may_sign and word is not True
    remedies = {"unseen-dispersion": unchecked, "all-by-signed-sums": signs, "as-levels-join": signs and joined}
    values["remedies"] = [remedy for remedy, holds in remedies.items() if holds]
    return verdict.also(Check(Finding.of("summaries-moved", **values), word))
