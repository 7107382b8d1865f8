"""Chooses what a person is shown of a result, by one rule for the terminal, Python's prompt, notebooks and pages.

*Rows.* A level says what it is compared with: its contrast with the reference stands in the place of its coefficient
(`table`). Of many slopes and contrasts those furthest from zero, in standard deviations, are shown. Each has a 95 % interval, and
a ratio where the link gives one.

*Notes.* Those on data and model come before those on the run's own doings, and of many the first are shown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from ..finding import Finding
from ..printing import align_numbers
from .gaussian import comparable
from .plain import Record, real

SLOPES = 12  # slopes and contrasts
OTHERS = 24  # intercepts, standard deviations, thresholds and the like
NOTES = 6  # on pages
PRINTED = 3
NOT_ESTIMATED = "not estimated"
INTERVAL = ("mean", "sd", "q025", "q975")
Row = TypeVar("Row", bound=Mapping[str, Any])


def event(summary: Record) -> str:
    """Returns the clause on the label of a response that counts as 1; "" where no label does."""
    encoding = summary["encoding"]
    if encoding.get("positive") is None:
        return ""
    return f"; event: {encoding['response']} = {encoding['positive']}"


def family(summary: Record) -> str:
    """Returns the clause on the family that the evidence has chosen, and by how much; "" where a job names its family."""
    nats = {name: row["log_evidence"] for name, row in summary.get("families", {}).items()}
    if not nats:
        return ""
    (_, second), (chosen, first) = sorted(nats.items(), key=lambda item: item[1])[-2:]
    return f"; family: {chosen}, by {first - second:.1f} nats of evidence"


def blocks(summary: Record) -> list[str]:
    """Returns the beginnings of coefficients' names: "mild:" for each level or cause that has coefficients, else one empty
    text."""
    return [f"{level}:" for level in summary.get("nominal", summary.get("causes", ()))] or [""]


def own_levels(summary: Record) -> dict[str, str]:
    """Returns the name of each level's own coefficient -> its column, as names of contrasts begin: `theta[sex=F]` -> `sex`."""
    columns = [column for column in summary["encoding"].get("columns", ()) if "levels" in column]
    return {
        f"theta[{before}{column['name']}={level}]": f"{before}{column['name']}"
        for column in columns
        for before in blocks(summary)
        for level in column["levels"]
    }


def contrasts_of(summary: Record) -> dict[str, Any]:
    """Returns the contrasts of levels with their references that a summary has: by name, or as coefficients of the levels."""
    return {
        **summary.get("contrasts", {}),
        **{shown_name: summary["parameters"][name] for name, shown_name in _coded(summary).items()},
    }


def _coded(summary: Record) -> dict[str, str]:
    """Returns the names of levels' coefficients that are contrasts, for the reference has none -> how they are shown."""
    parameters, found = summary.get("parameters", {}), dict[str, str]()
    for column in (column_of for column_of in summary.get("encoding", {}).get("columns", ()) if "levels" in column_of):
        for before in blocks(summary):
            names = {level: f"theta[{before}{column['name']}={level}]" for level in column["levels"]}
            lacking = [level for level, name in names.items() if name not in parameters]
            contrasted = {name: level for level, name in names.items() if name in parameters} if len(lacking) == 1 else {}
            found |= {name: f"{before}{column['name']}[{level} vs {lacking[0]}]" for name, level in contrasted.items()}
    return found


def beside_each_other(summary: Record) -> dict[str, Any]:
    """Returns coefficients by name that a figure shows beside each other: standardised ones, contrasts for levels."""
    parameters, contrasts = summary.get("parameters", {}), contrasts_of(summary)
    hidden = own_levels(summary) if contrasts else {}
    return {name: row for name, row in comparable(parameters).items() if name not in hidden} | contrasts


def slopes_begin(summary: Record) -> tuple[str, ...]:
    """Returns how the names of slopes and contrasts begin, for `str.startswith`."""
    return ("theta[", *(f"{column}[" for column in dict.fromkeys(own_levels(summary).values())))


def choose(rows: Sequence[Row], summary: Record) -> list[Row]:
    """Returns the rows that are shown, in their order: all, where they are few.

    Of a result with coefficients of all sites together and of each, those of all together.
    """
    common = [row for row in rows if not row.get("site")] or list(rows)
    begin = slopes_begin(summary)
    slopes = [k for k, row in enumerate(common) if str(row["parameter"]).startswith(begin)]
    among = set(slopes)
    others = [k for k in range(len(common)) if k not in among]
    clearest = sorted(slopes, key=lambda k: -_distance(common[k]))[:SLOPES]
    shown = {*clearest, *others[:OTHERS]}
    return [row for k, row in enumerate(common) if k in shown]


def not_estimated(summary: Record, row: Mapping[str, Any]) -> bool:
    """Returns whether a row is of a coefficient of which rows say nothing, as R's NA."""
    return row["parameter"] in summary.get("not_estimated", ())


def _distance(row: Mapping[str, Any]) -> float:
    """Returns how many standard deviations a number is from zero; nothing known comes last."""
    mean, sd = real(row.get("mean")), real(row.get("sd"))
    return -1.0 if math.isnan(mean) or math.isnan(sd) else abs(mean) / max(sd, 1e-300)


def table_lines(
    rows: Sequence[Mapping[str, Any]], ratios: Mapping[tuple[str, str], Sequence[float]], word: str, head: str = ""
) -> list[str]:
    """Returns rows in columns: mean, sd, the 95 % interval, and the ratio of a slope with its interval.

    Parameters
    ----------
    rows : with `parameter`, `site`, and the numbers
    ratios : parameter and site -> ratio and the ends of its interval
    word, head : what the ratio is called; what stands above the names
    """
    names = ["@".join(filter(None, (row["parameter"], row["site"]))) for row in rows]
    width = max(map(len, (head, *names)))
    of_ratio = f"   {word} (2.5 %, 97.5 %)" if ratios else ""
    lines = [f"{head:<{width}}     mean       sd     2.5 %    97.5 %{of_ratio}"]
    for name, row in zip(names, rows):
        if math.isnan(real(row.get("mean"))):
            lines.append(f"{name:<{width}} {NOT_ESTIMATED:>38}")
            continue
        mean, sd, low, high = align_numbers(*(real(row.get(key)) for key in INTERVAL))
        line = f"{name:<{width}} {mean} {sd}  {low}  {high}"
        if ratio := ratios.get((row["parameter"], row["site"])):
            line += "   {} ({}, {})".format(*align_numbers(*ratio, width=0))
        lines.append(line)
    return lines


def findings(summary: Record) -> list[Finding]:
    """Returns what a summary says, where it says it by an id: doubts and notes."""
    return [Finding.read(content) for content in summary.get("findings", ())]


def notes(summary: Record) -> list[str]:
    """Returns a summary's notes with those on data and model first."""
    last = {finding for finding in findings(summary) if finding.routine}
    return sorted(summary.get("notes", ()), key=last.__contains__)


def first_notes(summary: Record) -> tuple[list[str], int]:
    """Returns the notes that are shown, and the number of others."""
    ordered = notes(summary)
    return ordered[:NOTES], max(len(ordered) - NOTES, 0)
