"""Tables and figures of the papers, by name: a module with `run(out, fast, seed) -> its table`, whose first line says what.

`fedkern reproduce NAME` runs them in a checkout; the names are listed in fedkern/cli/papers.py.
"""

from __future__ import annotations

import json
import subprocess
from importlib import import_module
from pathlib import Path

import fedkern
from fedkern.errors import JobError

PRINTED = ("sparse-regression",)  # those with `printed`: what the paper's slips change


MADE = "made.json"  # of what the parts of a folder were made


def run(name: str, *, fast: bool, out: Path, seed: int = 1, printed: bool = False) -> None:
    """Makes one reproduction, says where it is and prints its table, whose last line says which version has made it.

    Raises
    ------
    JobError
        `printed` for a reproduction that has no slips to show, missing data, or a folder with parts of another seed.
    """
    if printed and name not in PRINTED:
        raise JobError(f"reproduce {name}: has no --printed; that is for {', '.join(PRINTED)}")
    module = import_module(f"{__name__}.{name.replace('-', '_')}")
    made = _noted(out, seed)
    more = {"printed": True} if printed else {}
    table: Path = module.run(out, fast, seed, **more)
    table.write_text(table.read_text(encoding="utf-8") + stamp(name, fast, printed, seed, made), encoding="utf-8")
    print(f"{table}\n\n{table.read_text(encoding='utf-8')}")


def stamp(name: str, fast: bool, printed: bool, seed: int, versions: list[str]) -> str:
    """The last line of a table."""
    options = [f"--seed {seed}", *(["--fast"] if fast else []), *(["--printed"] if printed else [])]
    return f"\nMade by `fedkern reproduce {name} {' '.join(options)}`, fedkern {', then '.join(versions)}.\n"


def version() -> str:
    """The version of this checkout: of the package, and of its commit where git knows it."""
    asked = ["git", "-C", str(Path(__file__).parent), "log", "-1", "--format=commit %h of %cs"]
    try:
        commit = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return fedkern.__version__
    return f"{fedkern.__version__} ({commit})"


def _noted(out: Path, seed: int) -> list[str]:
    """The versions that have made parts of a folder, this one among them; their seed is one."""
    path = out / MADE
    before: list[str] = []
    if path.exists():
        made = json.loads(path.read_text(encoding="utf-8"))
        before = made["versions"]
        if made["seed"] != seed:
            raise JobError(f"{out}: holds parts with seed {made['seed']}; take another folder (--out) for seed {seed}")
    versions = list(dict.fromkeys([*before, version()]))
    out.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"seed": seed, "versions": versions}) + "\n", encoding="utf-8")
    return versions
