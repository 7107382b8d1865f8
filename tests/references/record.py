"""Runs the programs beside fedkern, and keeps their numbers with versions in stored.json.

python -m tests.references.record --write: R is `Rscript` on the path; of Python it is the interpreter that FEDKERN_PEERS names,
by default this one. A program that is lacking leaves its stored numbers as they were.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
STORED = FOLDER / "stored.json"
Numbers = dict[str, dict[str, Any]]


def interpreters() -> dict[str, list[str]]:
    """Returns language -> the command that prints the numbers of its programs, of the languages that are here."""
    found = {"Python": [os.environ.get("FEDKERN_PEERS", sys.executable), str(FOLDER / "peers.py"), str(FOLDER)]}
    if rscript := shutil.which("Rscript"):
        found["R"] = [rscript, str(FOLDER / "peers.R"), str(FOLDER)]
    return found


def numbers_of(command: list[str]) -> Numbers:
    """Returns row -> program -> its version and number."""
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout
    found: Numbers = {}
    for line in printed.splitlines():
        name, program, version, number = line.split("\t")
        found.setdefault(name, {})[program.strip()] = {"version": version, "number": float(number)}
    return found


if __name__ == "__main__":
    from .ours import OURS

    stored: Numbers = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    for command in interpreters().values():
        for name, programs in numbers_of(command).items():
            stored.setdefault(name, {}).update(programs)
    for name, compute in OURS.items():
        stored.setdefault(name, {})["fedkern"] = {"number": compute()}
    if "--write" in sys.argv:
        STORED.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    else:
        print(json.dumps(stored, indent=1, sort_keys=True))
