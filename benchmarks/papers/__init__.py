"""Tables and figures of the papers, by name: a module with `run(out, fast) -> path of the table`, whose first line says what.

`fedkern reproduce NAME` runs them in a checkout; the names are listed in fedkern/cli/papers.py.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from fedkern.errors import JobError

PRINTED = ("sparse-regression",)  # those with `printed`: what the paper's slips change


def run(name: str, *, fast: bool, out: Path, printed: bool = False) -> None:
    """Makes one reproduction, says where it is and prints its table.

    Raises
    ------
    JobError
        `printed` for a reproduction that has no slips to show, or missing data.
    """
    if printed and name not in PRINTED:
        raise JobError(f"reproduce {name}: has no --printed; that is for {', '.join(PRINTED)}")
    module = import_module(f"{__name__}.{name.replace('-', '_')}")
    table: Path = module.run(out, fast, **({"printed": True} if printed else {}))
    print(f"{table}\n\n{table.read_text(encoding='utf-8')}")
