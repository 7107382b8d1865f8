"""Runs `fedkern report DIR`: makes report.html of a run's folder, finished or not, or of a client's."""

from __future__ import annotations

import json
import os
import sys
import webbrowser
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

from ..api import load
from ..errors import JobError
from ..jobs import ledger
from ..jobs.files import write_atomically
from ..jobs.load import merged
from ..jobs.progress import in_notebook
from ..methods import load_method
from ..methods.sigma.maps import areas_of, client_of, homes_of
from ..printing import listed
from ..results import guard
from ..results.plain import Record
from ..results.report import RunFiles, page

NAMED = 3  # lines of a log that can't be read and are named


def write(folder: Path) -> Path:
    """Writes the page into the folder. Raises JobError: the folder holds no run, or a file of it cannot be read, or the page
    cannot be written."""
    if not os.path.exists(folder / "job.json"):
        raise JobError(f"{folder}: holds no run of fedkern (no job.json); give the --out of a run")
    notes: list[str] = []
    of_client = (folder / "areas.csv").exists()  # a client's own folder
    areas, shapes = areas_of(folder)
    ledgers = {path.stem: _lines(path, notes) for path in sorted((folder / "ledger").glob("*.jsonl"))}
    job = _json(folder / "job.json")
    summary = _json(folder / "summary.json") if (folder / "summary.json").exists() else {}
    job = merged(job, summary.get("chosen", {}))
    lines = _lines(folder / "metrics.jsonl", notes)
    homes = {client_of(home): home for home in homes_of(folder)}
    fits = {name: _json(homes[name] / "fit.json") for name in areas if (homes[name] / "fit.json").exists()}
    path = folder / "report.html"
    method = load_method(str(job["job"]["method"]), job).report if summary or of_client else None
    pooled = _json(folder / "pooled" / "summary.json") if (folder / "pooled" / "summary.json").exists() else {}
    dated = "areas.csv" if of_client else "summary.json"
    verdict = _json(folder / "areas.json") if of_client and (folder / "areas.json").exists() else {}
    name = client_of(folder) if of_client else ""
    run = RunFiles(
        folder.resolve().name,
        summary,
        job,
        lines,
        ledgers,
        areas,
        shapes,
        fits,
        name,
        verdict,
        _day(folder / dated),
        lambda ratios: _table(folder, ratios) if summary else (),
        notes,
        pooled,
    )
    content = page(run, method)
    pictures = getattr(method, "pictures", None)  # a method may have figures that stand for themselves
    with guard.collecting():  # the page is whole without them
        drawn = {} if pictures is None else pictures(run)
    for name, picture in drawn.items():
        (folder / name).parent.mkdir(mode=0o700, exist_ok=True)
        write_atomically(folder / name, picture, secret=bool(areas))
    write_atomically(path, content.encode("utf-8", "backslashreplace"), secret=bool(areas))  # areas are their clients' own
    return path


def show(page: Path) -> None:
    """Shows a page where the user is: in the notebook that asks, else in a browser."""
    if in_notebook():
        notebook = import_module("IPython.display")

        # The page may have no script, whatever should get into it: `sandbox` says so to the browser once more.
        inside = escape(page.read_text(encoding="utf-8"))
        frame = f'<iframe sandbox srcdoc="{inside}" style="width: 100%; height: 40em; border: 0"></iframe>'
        notebook.display(notebook.HTML(frame))
    elif "JPY_PARENT_PID" in os.environ:  # a line of a notebook that begins with !, whose machine may have no screen
        # A notebook shows files at their places below its own folder.
        print(f"in the notebook: from IPython.display import IFrame; IFrame({os.path.relpath(page)!r}, '100%', 640)")
    elif not webbrowser.open(page.resolve().as_uri()):
        print("no browser is known here: open that file in one", file=sys.stderr)


def _table(folder: Path, ratios: bool) -> Sequence[Record]:
    """Returns the rows of the result's table; none where it has no such table, or its draws cannot be read."""
    try:
        return load(folder).rows(exp=ratios, levels=False)
    except JobError:
        return ()


def _day(path: Path) -> str:
    """Returns the day on which this file was written."""
    return datetime.fromtimestamp(path.stat().st_mtime, UTC).date().isoformat() if path.exists() else ""


def _json(path: Path) -> Any:
    """Reads a JSON file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise JobError(f"{path}: cannot be read ({error})") from None


def _lines(path: Path, notes: list[str]) -> list[dict[str, Any]]:
    """Reads records of a jsonl file. A line that is none is noted: a crash may cut a line, and a resumed run goes on after it."""
    try:
        content = b"".join(ledger.read_lines(path))
    except (FileNotFoundError, PermissionError):  # of another user: what is not ours to read is left out
        return []
    records, torn = [], []
    for number, line in enumerate(content.splitlines(), 1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict):
            records.append(record)
        elif line.strip():
            torn.append(str(number))
    if torn:
        which = listed(torn, NAMED)
        name = path.name if path.parent.name != "ledger" else f"ledger/{path.name}"
        notes.append(f"{name}: line {which} cannot be read and is not counted here; a crash cuts the line that is being written")
    return records
