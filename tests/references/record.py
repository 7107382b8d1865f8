"""Runs the programs beside fedkern, and keeps their numbers with versions.

python -m tests.references.record --write [MODEL ..]: R is `Rscript` on the path; of Python it is the interpreter that
FEDKERN_PEERS names, by default this one. A program that is lacking leaves its stored numbers as they were. With names of models
only these run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
STORED, STORED_MODELS = FOLDER / "stored.json", FOLDER / "stored_models.json"
FACTORS = (1.0, 1.15, 0.7)  # of the numbers of a model's `at`: the three points
MODELS: dict[str, dict[str, Any]] = tomllib.loads((FOLDER / "models.toml").read_text(encoding="utf-8"))
Numbers = dict[str, dict[str, Any]]


def interpreters() -> dict[str, str]:
    """Returns language -> its interpreter, of the languages that are here."""
    found = {"Python": os.environ.get("FEDKERN_PEERS", sys.executable)}
    if rscript := shutil.which("Rscript"):
        found["R"] = rscript
    return found


def numbers_of(language: str, interpreter: str) -> Numbers:
    """Returns row of conventions.toml -> program -> its version and number."""
    command = [interpreter, str(FOLDER / {"R": "peers.R", "Python": "peers.py"}[language]), str(FOLDER)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout
    found: Numbers = {}
    for line in printed.splitlines():
        name, program, version, number = line.split("\t")
        found.setdefault(name, {})[program.strip()] = {"version": version, "number": float(number)}
    return found


def file_of(row: Mapping[str, Any]) -> Path:
    """Returns the path of a model's data set."""
    name = f"{row['data']}.csv"
    return FOLDER / name if (FOLDER / name).exists() else FOLDER / "rows" / name


def models_of(language: str, interpreter: str, names: Iterable[str] = MODELS) -> Numbers:
    """Returns row of models.toml -> program -> its version, log-likelihoods at the row's points, and mode."""
    rows = {name: MODELS[name] for name in names if language in MODELS[name]}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "calls"
        path.write_text(CALLS[language](rows), encoding="utf-8")
        command = [interpreter, str(path)] if language == "R" else [interpreter, str(FOLDER / "models_peers.py"), str(path)]
        ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=3000)
    print(ended.stderr, end="", file=sys.stderr)
    found: Numbers = {}
    for line in ended.stdout.splitlines():
        if line.count("\t") < 4:  # some programs say what they do
            continue
        name, program, version, *told = line.split("\t")
        values, mode = ([float(number) for number in part.split()] for part in told)
        found.setdefault(name, {})[program] = {"version": version, "log_likelihoods": values}
        if rows[name].get("mode", "prior") != "none":
            found[name][program]["mode"] = mode
    return found


def _calls_of_r(rows: Numbers) -> str:
    calls = [(FOLDER / "models.R").read_text(encoding="utf-8")]
    for name, row in rows.items():
        named = ", ".join(f"`{key}` = {number!r}" for key, number in row["at"].items())
        made = ", ".join(f"{key} = {json.dumps(text)}" for key, text in row.get("make", {}).items())
        given = (json.dumps(name), json.dumps(str(file_of(row))), f"c({named})", f"c{FACTORS}", f"list({made})")
        calls.append(f'model({", ".join(given)}, "{row.get("mode", "prior")}", function(d) {row["R"]})')
    return "\n".join(calls)


def _calls_of_python(rows: Numbers) -> str:
    usual = {"make": {}, "mode": "prior", "factors": FACTORS}
    return json.dumps({name: {**usual, **row, "file": str(file_of(row))} for name, row in rows.items()})


CALLS = {"R": _calls_of_r, "Python": _calls_of_python}


def merged(stored: Path, found: Iterable[Numbers]) -> Numbers:
    """Returns what is stored with newly found numbers in it."""
    kept: Numbers = json.loads(stored.read_text(encoding="utf-8")) if stored.exists() else {}
    for numbers in found:
        for name, programs in numbers.items():
            kept.setdefault(name, {}).update(programs)
    return kept


if __name__ == "__main__":
    from .ours import OURS

    asked, write = [name for name in sys.argv[1:] if name in MODELS], "--write" in sys.argv
    written = {STORED_MODELS: merged(STORED_MODELS, (models_of(*one, asked or MODELS) for one in interpreters().items()))}
    if not asked:
        ours = {name: {"fedkern": {"number": compute()}} for name, compute in OURS.items()}
        written[STORED] = merged(STORED, (*(numbers_of(*one) for one in interpreters().items()), ours))
    for path, numbers in written.items():
        text = json.dumps(numbers, indent=1, sort_keys=True) + "\n"
        if write:
            path.write_text(text, encoding="utf-8")
        else:
            print(text, end="")
