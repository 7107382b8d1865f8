"""`fedkern report DIR --table`, `--graph` or `--reference`, and `fedkern predict`: tables of a finished run."""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..api import load
from ..errors import JobError
from ..jobs.files import write_atomically
from ..jobs.load import tables_of
from ..printing import several
from ..results import against as comparison
from ..results import graph_files, stored
from ..results.released import Drawing

LINE = "{:<{width}}"


def parameters(options: argparse.Namespace) -> int:
    """Prints the table of parameters: as csv, or in columns for people."""
    pairs = [text.partition("=") for text in options.levels]
    for column, equals, level in pairs:
        if not (column and equals and level):
            raise JobError(f"--level {column}{equals}{level}: wanted COLUMN=LEVEL")
    rows = load(options.folder).rows(exp=options.exp, reference={column: level for column, _, level in pairs})
    head = list(rows[0]) if rows else []
    body = [[row[key] for key in head] for row in rows]
    if options.table == "csv":
        print(_csv(head, body), end="")
        return 0
    _print([head, *([f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row] for row in body)])
    return 0


def against(options: argparse.Namespace) -> int:
    """Prints the differences from a reference, the worst first, and writes a page with a plot for each parameter."""
    result = load(options.folder)
    path = Path(options.reference)
    groups = stored.opened(path)
    if "posterior" not in groups:
        raise JobError(f"{path}: has no group `posterior`; wanted a netCDF file as ArviZ writes it")
    names = None if options.names is None else _names(Path(options.names))
    drawing = Drawing(result.seed, result.chains, result.n_draws)
    found = comparison.compare(result.posterior, drawing, groups["posterior"], names, path.name)
    rows = [list(row.values()) for row in comparison.rows(found)]
    content = comparison.document(Path(options.folder).resolve().name, result.summary["verdict"], found, path.name)
    page = Path(options.folder) / "reference.html"
    write_atomically(page, content.encode("utf-8", "backslashreplace"))
    if options.table == "csv":
        print(_csv(comparison.HEAD, rows), end="")
        return 0
    _print([comparison.HEAD, *([cell if isinstance(cell, str) else f"{cell:.4g}" for cell in row] for row in rows)])
    print(several(f"{result.summary['verdict']}\n{page}"))
    return 0


def graph(options: argparse.Namespace) -> int:
    """Prints the chosen edges of a graph: as GraphML, or as csv."""
    summary = load(options.folder).summary
    if options.graph == "csv":
        print(_csv(graph_files.HEAD, graph_files.edges(summary)), end="")
        return 0
    print(graph_files.graphml(summary).decode(), end="")
    return 0


def _names(path: Path) -> dict[str, str]:
    """Our name -> theirs."""
    tables = tables_of(path, "names")
    for name, other in tables.items():
        if not isinstance(other, str):
            raise JobError(f'{path}: {name} is no text; wanted lines "OUR NAME" = "THEIR NAME", with both names in quotes')
    return tables


def _print(cells: Iterable[Sequence[str]]) -> None:
    """In columns."""
    cells = list(cells)
    widths = [max(map(len, column)) for column in zip(*cells)]
    for row in cells:
        print(several("  ".join(LINE.format(cell, width=width) for cell, width in zip(row, widths)).rstrip()))


def predictions(options: argparse.Namespace) -> int:
    """Writes or prints a row of numbers for each of the rows; scores, where these have the response, go beside it."""
    found = load(options.folder).prediction(options.rows)
    columns = found.columns
    text = _csv(list(columns), zip(*(column.tolist() for column in columns.values())))
    if options.out:
        write_atomically(Path(options.out), text.encode())
        print(several(str(options.out)))
    else:
        print(text, end="")
    if found.scores:
        scores = ", ".join(f"{name.replace('_', '-')} {value:.4f}" for name, value in found.scores.items())
        print(f"these rows: {scores}", file=sys.stdout if options.out else sys.stderr)
    return 0


def _csv(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Exact numbers; what is not known is empty."""
    text = io.StringIO(newline="")
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(head)
    lines.writerows([["" if cell != cell else cell for cell in row] for row in rows])
    return text.getvalue()
