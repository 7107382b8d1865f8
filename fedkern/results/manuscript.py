"""Writes the table of a result as a paper has it: for LaTeX, Markdown and Word, with what a reader has to know below it."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..errors import JobError
from ..printing import align_numbers, printable
from .plain import Record, real
from .table import RATIOS, Row

INTERVAL = "95 % interval"
DASH = "–"
TOTALS = "Counts are of all sites together: those of one site say something of its rows, and are told where a job asks for it."
LATEX = {c: f"\\{c}" for c in "&%$#_{}"} | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
LATEX |= {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", DASH: "--", "²": r"\textsuperscript{2}", "−": "$-$"}
MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~$])")


@dataclass(frozen=True)
class Manuscript:
    """Holds a table for a paper.

    Attributes
    ----------
    head : names of the columns
    body : rows of texts
    notes : sentences below the table
    """

    head: Sequence[str]
    body: Sequence[Sequence[str]]
    notes: Sequence[str]


def manuscript(rows: Sequence[Row], summary: Record) -> Manuscript:
    """Makes the table: parameter, its mean and sd (or a ratio), the 95 % interval, and PIP where there is one.

    Parameters
    ----------
    rows : of `Result.rows`
    summary : the content of `summary.json`
    """
    ratio = next((name for name in RATIOS.values() if rows and name in rows[0]), "")
    sites, pips = any(row["site"] for row in rows), any("pip" in row for row in rows)
    head = ["Parameter", *(["Site"] if sites else []), *([ratio.replace("_", " ").capitalize()] if ratio else ["Mean", "SD"])]
    head += [INTERVAL, *(["PIP"] if pips else [])]
    body = []
    for row in rows:
        numbers = [row[ratio]] if ratio else [row["mean"], row["sd"]]
        shown = [_shown(text) for text in align_numbers(*numbers, row["q025"], row["q975"], width=0)]
        cells = [str(row["parameter"]), *([str(row["site"])] if sites else []), *shown[:-2], f"{shown[-2]} to {shown[-1]}"]
        body.append([*cells, *([_shown(f"{real(row.get('pip', math.nan)):.3f}")] if pips else [])])
    return Manuscript(head, body, _notes(summary, ratio))


def _shown(number: str) -> str:
    """Returns a formatted number; a dash where nothing is known."""
    return DASH if number == "nan" else number


def _notes(summary: Record, ratio: str) -> list[str]:
    """Returns what stands below the table."""
    clients: Mapping[str, Record] = summary["clients"]
    lost = [name for name, client in clients.items() if client["status"] == "lost"]
    late = [name for name in lost if clients[name].get("in_result")]
    what = "posterior median" if ratio else "posterior mean and standard deviation (SD)"
    notes = [f"{what[0].upper()}{what[1:]}; intervals are equal-tailed, of the posterior."]
    rows, events = summary.get("predictive", {}).get("rows"), summary.get("events")
    totals = {name: count for name, count in (("rows", rows), ("events", events)) if count is not None}
    notes.append(f"{len(clients)} sites ({', '.join(clients)}){_counts(totals)}.")
    if of_sites := summary.get("site_counts"):
        notes.append(f"By site: {'; '.join(name + (_counts(of_sites.get(name, {})) or ', not told') for name in clients)}.")
    elif totals:
        notes.append(TOTALS)
    if without := [name for name in lost if name not in late]:
        notes.append(f"Without {', '.join(without)}, which was lost.")
    notes += [f"{name} was lost after {clients[name]['updates']:,} updates, which are in this result." for name in late]
    if summary["privacy"]:
        epsilon, delta = (max(real(one.get(key)) for one in summary["privacy"].values()) for key in ("epsilon", "delta"))
        of = f"a site (of {', '.join(lost)} none was told)" if lost else "a site"
        notes.append(f"The weakest certificate of {of}: ({epsilon:.4g}, {delta:.4g})-differential privacy.")
    verdict = str(summary["verdict"])
    return [*notes, f"{verdict[0].upper()}{verdict[1:]}."]


def _counts(counts: Mapping[str, int]) -> str:
    """Returns ", 40 rows, 12 events"."""
    return "".join(f", {count:,} {name}" for name, count in counts.items())


def latex(made: Manuscript) -> str:
    """Returns a table for the package booktabs."""
    texts = sum(name in ("Parameter", "Site") for name in made.head)
    lines = ["% \\usepackage{booktabs}", f"\\begin{{tabular}}{{{'l' * texts}{'r' * (len(made.head) - texts)}}}", "\\toprule"]
    # {}: a name in brackets, or with a star, would be an argument of the command before it.
    rows = ["{}" + " & ".join(map(_latex, row)) + r" \\" for row in (made.head, *made.body)]
    lines += [rows[0], "\\midrule", *rows[1:], "\\bottomrule", "\\end{tabular}"]
    return "\n".join([*lines, "", *(f"{_latex(note)}\\par" for note in made.notes), ""])


def _latex(text: str) -> str:
    return "".join(LATEX.get(c, c) for c in printable(text))


def markdown(made: Manuscript) -> str:
    """Returns a table as GitHub and pandoc read it."""
    texts = sum(name in ("Parameter", "Site") for name in made.head)
    rows = ["| " + " | ".join(map(_markdown, row)) + " |" for row in (made.head, *made.body)]
    rule = "| " + " | ".join(["---"] * texts + ["--:"] * (len(made.head) - texts)) + " |"
    return "\n".join([rows[0], rule, *rows[1:], "", *(f"{_markdown(note)}  " for note in made.notes), ""])


def _markdown(text: str) -> str:
    return MARKDOWN.sub(r"\\\1", printable(text))


def docx(made: Manuscript) -> bytes:
    """Returns a Word file with the table.

    Raises
    ------
    JobError
        python-docx is not installed.
    """
    try:
        from docx import Document
    except ImportError:
        raise JobError("--table docx needs python-docx: pip install 'fedkern[docx]'") from None
    document = Document()
    table = document.add_table(rows=0, cols=len(made.head), style="Light List")
    for row in (made.head, *made.body):
        for cell, text in zip(table.add_row().cells, row):
            cell.text = printable(text)
    for note in made.notes:
        document.add_paragraph(printable(note))
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


TEXTS: Mapping[str, Callable[[Manuscript], str]] = {"latex": latex, "markdown": markdown}
