"""`fedkern report DIR`: from a run's folder, finished or not, to report.html."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import JobError
from ..results.report import Run, page


def write(folder: Path) -> Path:
    """Writes the page into the folder.

    Raises
    ------
    JobError
        The folder holds no run, or a file of it cannot be read.
    """
    if not (folder / "job.json").exists():
        raise JobError(f"{folder}: holds no run of fedkern (no job.json); give the --out of a run")
    ledgers = {path.stem: list(_lines(path)) for path in sorted((folder / "ledger").glob("*.jsonl"))}
    job = _json(folder / "job.json")
    summary = _json(folder / "summary.json") if (folder / "summary.json").exists() else {}
    lines = list(_lines(folder / "metrics.jsonl"))
    areas = {path.parent.name.removeprefix("client-"): _rows(path) for path in sorted(folder.glob("client-*/areas.csv"))}
    path = folder / "report.html"
    path.write_text(page(Run(folder.resolve().name, summary, job, lines, ledgers, areas)), encoding="utf-8")
    return path


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise JobError(f"{path}: cannot be read ({error})") from None


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Lines of a jsonl file. A run that was killed may have left the beginning of one at the end, which counts as nothing."""
    if not path.exists():
        return
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        try:
            yield json.loads(line)
        except ValueError:
            if number < len(lines):
                raise JobError(f"{path}, line {number}: is no JSON; the file was altered") from None
