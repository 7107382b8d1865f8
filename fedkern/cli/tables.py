"""Runs `fedkern report DIR --table`, `--graph` or `--reference`, and `fedkern predict`: tables of a finished run."""

from __future__ import annotations

import argparse
import csv
import os
import re
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ..api import files_among, finished, load
from ..errors import JobError
from ..jobs import opened
from ..jobs.files import write_atomically, writing
from ..jobs.load import tables_of, written_once
from ..jobs.record import NAME, Reader
from ..kernels.families import MOST
from ..methods import of_record
from ..methods.likelihood import predict as likelihood
from ..methods.sigma import predict as sigma
from ..methods.vertical import predict as vertical
from ..printing import digits_of, printable, printable_lines
from ..results import against as comparison
from ..results import selection, stored, table
from ..results.plain import Record
from ..results.prediction import BEYOND, Prediction
from ..results.released import Drawing

AT_HOLDER = {"likelihood": likelihood.at_holder, "sigma": sigma.at_holder}  # method -> predictions from a client's folder
LINE = "{:<{width}}"
SHOWN = 8  # rows in a line
FORMULA = re.compile(r"[=+\-@\t\r\n]")  # a cell that begins so is a formula to a spreadsheet
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def parameters(options: argparse.Namespace) -> int:
    """Prints the table of parameters: as csv, or in columns for people."""
    pairs = [text.partition("=") for text in options.levels]
    for column, equals, level in pairs:
        if not (column and equals and level):
            raise JobError(f"--level {column}{equals}{level}: wanted COLUMN=LEVEL")
    result = load(options.folder)
    reference = {column: level for column, _, level in pairs}
    # For programs all; for people contrasts in the place of levels' own coefficients, as everywhere.
    all_levels = options.table == "csv"
    rows: list[dict[str, Any]] = [dict(row) for row in result.rows(exp=options.exp, reference=reference, levels=all_levels)]
    if not rows:
        what = "ratios" if options.exp else "parameters"
        where = "; its coefficients are at the clients, each in its own folder" if result.summary["method"] == "vertical" else ""
        raise JobError(f"{options.folder}: this result has no table of {what}{where}")
    rows = table.tidy(rows) if options.tidy else rows
    head = list(rows[0]) if rows else []
    body = [[row[key] for key in head] for row in rows]
    if options.table == "csv":
        return _print_csv(head, body, options)
    _print([head, *(_shown(row, head) for row in rows)])
    return 0


def _shown(row: dict[str, Any], head: Sequence[str]) -> list[str]:
    """Returns the cells of a row, with as many digits as its interval needs."""
    digits = digits_of(row)
    return [f"{row[key]:.{digits}g}" if isinstance(row[key], float) else str(row[key]) for key in head]


def against(options: argparse.Namespace) -> int:
    """Prints the differences from a reference, the worst first, and writes a page with a plot for each parameter."""
    result = load(options.folder)
    path = Path(options.reference)
    groups = stored.open_groups(path)
    if "posterior" not in groups:
        raise JobError(f"{path}: has no group `posterior`; wanted a netCDF file as ArviZ writes it")
    names = None if options.names is None else _names(Path(options.names))
    drawing = Drawing(result.seed, result.chains, result.n_draws)
    compared = comparison.compare(result.posterior, drawing, groups["posterior"], names, path.name)
    rows = [list(row.values()) for row in comparison.rows(compared)]
    content = comparison.document(Path(options.folder).resolve().name, result.summary["verdict"], compared, path.name)
    page = Path(options.folder) / "reference.html"
    write_atomically(page, content.encode("utf-8", "backslashreplace"))
    if options.table == "csv":
        return _print_csv(comparison.HEAD, rows, options)
    _print([comparison.HEAD, *([cell if isinstance(cell, str) else f"{cell:.4g}" for cell in row] for row in rows)])
    print(printable_lines(f"{result.summary['verdict']}\n{page}"))
    return 0


def graph(options: argparse.Namespace) -> int:
    """Prints the chosen edges of a graph: as GraphML, or as csv."""
    summary = load(options.folder).summary
    if options.graph == "csv":
        return _print_csv(selection.HEAD, selection.edges(summary), options)
    print(selection.graphml(summary).decode(), end="")
    return 0


def _names(path: Path) -> dict[str, str]:
    """Reads the file of names: our name -> theirs."""
    tables = written_once(tables_of(path, "names"), None, str(path))
    for name, other in tables.items():
        if not isinstance(other, str):
            raise JobError(f'{path}: {name} is no text; wanted lines "OUR NAME" = "THEIR NAME", with both names in quotes')
    return tables


def _print(cells: Iterable[Sequence[str]]) -> None:
    """Prints cells in columns."""
    cells = list(cells)
    widths = [max(map(len, column)) for column in zip(*cells)]
    for row in cells:
        print(printable_lines("  ".join(LINE.format(cell, width=width) for cell, width in zip(row, widths)).rstrip()))


def predictions(options: argparse.Namespace) -> int:
    """Writes or prints a row of numbers for each of the rows; scores, of rows with the response, go beside it."""
    if options.client is not None:
        return _part(options)
    folder = Path(options.folder)
    if (record := _of_client(folder)) is not None and record["job"]["method"] not in AT_HOLDER:
        raise JobError(
            f"{folder}: is the own folder of client {record['run']['party']!r}, from which only {' and '.join(AT_HOLDER)} "
            "predict; give the run's folder (of a vertical run a client makes its part by --client)"
        )
    if not options.party and (of_client := _at_holder(Path(options.folder))) is not None:
        return _predicted(*AT_HOLDER[of_client[1]["job"]["method"]](*of_client, _rows(options)), options)
    rows = _rows(options)
    result = finished(options.folder, files_among(rows))
    if options.party and (method := result.summary["method"]) != "vertical":
        raise JobError(f'--party: a part of each party is asked of runs with method = "vertical", not "{method}"; give ROWS')
    return _predicted(result.prediction(rows), True, options)


def _at_holder(folder: Path) -> tuple[Path, Record] | None:
    """Returns the folder and its record, where it is a client's of a job whose holders can predict; else None."""
    record = _of_client(folder)
    return (folder, record) if record is not None and record["job"]["method"] in AT_HOLDER else None


def _of_client(folder: Path) -> Record | None:
    """Returns the record of a folder, where it is a client's own; else None."""
    record = opened.read(folder / NAME, Reader())
    about = record.get("run") if isinstance(record, dict) else None
    if not isinstance(record, dict) or not isinstance(about, dict) or about.get("party") is None or "id" not in about:
        return None
    job = record.get("job")
    return record if isinstance(job, dict) and "method" in job else None


def _predicted(prediction: Prediction, converged: bool, options: argparse.Namespace) -> int:
    """Writes or prints predictions."""
    columns = prediction.columns
    head, rows = list(columns), zip(*columns.values())
    # Numbers go to the output, and words about them to stderr, unless a file takes the numbers.
    out = None if options.out == "-" else options.out
    if out is None:
        _print_csv(head, rows, options)
    else:
        _write(Path(out), _csv(head, rows, raw=options.raw).encode())
        print(printable(out))
    if prediction.scores:
        scores = ", ".join(f"{name.replace('_', '-')} {value:.4f}" for name, value in prediction.scores.items())
        which = (
            "these rows"
            if prediction.scored == len(prediction.mean)
            else f"{prediction.scored} of these rows, which have a response"
        )
        out_stream = sys.stderr if out is None else sys.stdout
        print(f"{which}: {scores}", file=out_stream)
    if beyond := prediction.beyond:
        more = f", .. ({len(beyond)} in all)" if len(beyond) > SHOWN else ""
        which = ", ".join(str(row + 1) for row in beyond[:SHOWN]) + more
        print(
            f"rows {which}: the posterior has rates above e^{MOST:g}, of which nothing is said (column {BEYOND!r}): is an "
            "exposure, an offset or a covariate in another unit than the job's rows have?",
            file=sys.stderr,
        )
    for note in prediction.notes:
        print(printable(note), file=sys.stderr)
    if not converged:
        print("the run has not converged, as its server says: these predictions are as wrong as its result", file=sys.stderr)
    return 0


def _rows(options: argparse.Namespace) -> Any:
    """Returns the rows of a prediction: one file, or one of each party."""
    pairs = [text.partition("=") for text in options.party]
    for name, equals, file in pairs:
        if not (name and equals and file):
            raise JobError(f"--party {name}{equals}{file}: wanted NAME=FILE")
    if (options.rows is None) == (not pairs):
        raise JobError("wanted ROWS, one file with the columns of all, or --party NAME=FILE of each party")
    files = {name: file for name, _, file in pairs}
    if len(files) < len(pairs):
        raise JobError("--party: a party is named twice")
    return files or options.rows


def _part(options: argparse.Namespace) -> int:
    """Writes a file with one client's part of its rows, from its folder: whoever adds the parts sees no column."""
    if options.rows is None or options.out is None or options.party:
        raise JobError("--client NAME makes a file of the client's part of ROWS: give ROWS and --out FILE, and no --party")
    head, rows, notes = vertical.part(
        opened.opened(Path(options.folder), partial(of_record, files=files_among(options.rows))), options.client, options.rows
    )
    _write(Path(options.out), _csv(head, rows, raw=True).encode())  # ids are compared as they are
    print(printable(f"{options.out}: {len(rows)} rows; it tells its reader {options.client}'s part of each row's predictor"))
    for note in notes:
        print(printable(note), file=sys.stderr)
    return 0


def _write(path: Path, content: bytes) -> None:
    """Writes a file anew, through a link if it is one; into a target that is no file (/dev/stdout, a pipe) it writes directly."""
    if path.exists() and not path.is_file():
        with writing(path), path.open("wb") as file:
            file.write(content)
    else:
        write_atomically(Path(os.path.realpath(path)), content)


def _print_csv(head: Sequence[str], rows: Iterable[Sequence[object]], options: argparse.Namespace) -> int:
    """Prints to a file or a pipe unchanged, to a terminal without characters that would turn or hide its lines."""
    print(_csv(head, rows, raw=options.raw, shown=sys.stdout.isatty()), end="")
    return 0


def _csv(head: Sequence[str], rows: Iterable[Sequence[object]], *, raw: bool, shown: bool = False) -> str:
    """Formats rows as csv, with exact numbers; an unknown number is empty.

    Parameters
    ----------
    raw : texts stay unchanged; else one that a spreadsheet would take for a formula begins with an apostrophe
    shown : control characters of texts become escapes
    """

    def cell(value: object) -> Any:
        if not isinstance(value, str):
            return "" if value != value else value
        text = value if raw or NUMBER.fullmatch(value) or not FORMULA.match(value) else f"'{value}"
        return printable(text) if shown else text

    lines: list[str] = []
    file = SimpleNamespace(write=lines.append)
    csv.writer(file, lineterminator="\r\n").writerows([cell(value) for value in row] for row in (head, *rows))
    return "".join(line.removesuffix("\r\n") + "\n" for line in lines)  # with another end a \r alone would have no quotes
