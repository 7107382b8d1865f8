"""What all reproductions share: runs and numbers that are kept, stored references, and tables."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkern.api import run as run_job

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Json = dict[str, Any]  # a line of results, a job's summary.json
Tables = Mapping[str, Mapping[str, Any]]  # of a job file, or of a prior file
Value = str | float  # of a csv file, or of a table
Column = Iterable[Value] | NDArray[Any]

REFERENCES = Path(__file__).parent / "references"  # summaries of long NUTS runs, which tools/references/*.py have made


@cache
def references(name: str) -> Json:
    """Summaries of long NUTS runs of another program, by the name of their file."""
    summaries: Json = json.loads((REFERENCES / f"{name}.json").read_text(encoding="utf-8"))
    return summaries


def run_once(folder: Path, job: Tables) -> Json:
    """summary.json of a job in its own folder; one that has been run there is only read: an interrupted reproduction goes on."""
    text = json.dumps(job, sort_keys=True)
    asked, path = folder / "asked.json", folder / "summary.json"
    if not (asked.exists() and path.exists() and asked.read_text(encoding="utf-8") == text):
        folder.mkdir(parents=True, exist_ok=True)
        run_job(job, out=folder)
        asked.write_text(text, encoding="utf-8")
    summary: Json = json.loads(path.read_text(encoding="utf-8"))
    return summary


def stored(path: Path) -> dict[str, Any]:
    """Lines of a file of results, by their key."""
    if not path.exists():
        return {}
    return {line["key"]: line for line in map(json.loads, path.read_text(encoding="utf-8").splitlines())}


def append(path: Path, line: Mapping[str, Any]) -> None:
    """One more line."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, separators=(",", ":")) + "\n")


def write_csv(path: Path, columns: Mapping[str, Column]) -> str:
    """A csv file, whose numbers are read back as they are; missing ones are empty cells. Its path, absolute."""
    cells = ([*map(_cell, values)] for values in columns.values())
    lines = [",".join(columns), *(",".join(row) for row in zip(*cells))]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path.resolve())


def _cell(value: Value) -> str:
    if isinstance(value, str):
        return value
    return "" if math.isnan(value) else repr(value.item() if isinstance(value, np.generic) else value)


UNKNOWN = "convergence not judged: run by an older version"


def verdicts(runs: Mapping[str, str]) -> str:
    """What a table begins with: whether its runs have converged, line by line."""
    return "\n".join(f"* {name}: {verdict}" for name, verdict in runs.items()) + "\n"


def shown(values: Iterable[float], digits: int) -> str:
    """Mean ± standard deviation."""
    numbers = np.fromiter(values, dtype=np.float64)
    if not len(numbers):
        return ""
    spread = f" ± {numbers.std(ddof=1):.{digits}f}" if len(numbers) > 1 else ""
    return f"{numbers.mean():.{digits}f}{spread}"


def table(heads: Sequence[str], rows: Iterable[Sequence[Value]]) -> str:
    """A Markdown table; numbers with three decimals. "None." without rows."""

    def cell(value: Value) -> str:
        if isinstance(value, float):
            return "" if math.isnan(value) else f"{value:.3f}"
        return str(value)

    lines = ["| " + " | ".join(map(cell, row)) + " |" for row in rows]
    if not lines:
        return "None.\n"
    return "\n".join(["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads), *lines]) + "\n"
