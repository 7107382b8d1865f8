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

from ..api import run as run_job

Array = NDArray[np.float64]

REFERENCES = Path(__file__).parent / "references"  # summaries of long NUTS runs, which tools/references/*.py have made


@cache
def references(name: str) -> dict[str, Any]:
    """Summaries of long NUTS runs of another program, by the name of their file."""
    found: dict[str, Any] = json.loads((REFERENCES / f"{name}.json").read_text(encoding="utf-8"))
    return found


def kept(folder: Path, job: Mapping[str, Any]) -> dict[str, Any]:
    """summary.json of a job in its own folder; one that has been run there is only read: an interrupted reproduction goes on."""
    text = json.dumps(job, sort_keys=True)
    told, path = folder / "asked.json", folder / "summary.json"
    if not (told.exists() and path.exists() and told.read_text(encoding="utf-8") == text):
        folder.mkdir(parents=True, exist_ok=True)
        run_job(job, out=folder)
        told.write_text(text, encoding="utf-8")
    summary: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return summary


def stored(path: Path) -> dict[str, dict[str, Any]]:
    """Lines of a file of results, by their key."""
    if not path.exists():
        return {}
    return {line["key"]: line for line in map(json.loads, path.read_text(encoding="utf-8").splitlines())}


def append(path: Path, line: Mapping[str, Any]) -> None:
    """One more line."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, separators=(",", ":")) + "\n")


def write_csv(path: Path, columns: Mapping[str, Iterable[Any]]) -> str:
    """A csv file, whose numbers are read back as they are; missing ones are empty cells. Its path, absolute."""
    cells = ([*map(_cell, values)] for values in columns.values())
    lines = [",".join(columns), *(",".join(row) for row in zip(*cells))]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path.resolve())


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if math.isnan(value) else repr(value.item() if isinstance(value, np.generic) else value)


def shown(values: Iterable[float], digits: int) -> str:
    """Mean ± standard deviation."""
    found = np.fromiter(values, dtype=np.float64)
    if not len(found):
        return ""
    spread = f" ± {found.std(ddof=1):.{digits}f}" if len(found) > 1 else ""
    return f"{found.mean():.{digits}f}{spread}"


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table; numbers with three decimals. "None." without rows."""

    def cell(value: Any) -> str:
        if isinstance(value, float):
            return "" if math.isnan(value) else f"{value:.3f}"
        return str(value)

    found = ["| " + " | ".join(map(cell, row)) + " |" for row in rows]
    if not found:
        return "None.\n"
    return "\n".join(["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads), *found]) + "\n"
