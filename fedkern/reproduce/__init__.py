"""Tables and figures of the papers, by name: a module with `run(out, fast) -> path of the table`, whose first line says what."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

from ..errors import JobError

NAMES = (
    "dp-pvi-adult",
    "sparse-regression",
    "sparse-mrf",
    "sparse-sem",
    "sparse-simulation",
    "vertical-logistic",
    "vertical-poisson",
    "sigma-gp",
    "sigma-car",
    "sigma-homicide",
    "vertical-heart",
)
PRINTED = ("sparse-regression",)  # those with `printed`: what the paper's slips change


def about(name: str) -> str:
    """What a reproduction is of: the first line of its module, which is not imported for that."""
    source = Path(__file__).with_name(f"{_module(name)}.py").read_text(encoding="utf-8")
    head = ast.get_docstring(ast.parse(source)) or ""
    return head.partition("\n")[0].removesuffix(".")


def _module(name: str) -> str:
    return name.replace("-", "_")


def run(name: str, *, fast: bool, out: Path, printed: bool = False) -> None:
    """Makes one reproduction, says where it is and prints its table.

    Raises
    ------
    JobError
        `printed` for a reproduction that has no slips to show, or missing data.
    """
    if printed and name not in PRINTED:
        raise JobError(f"reproduce {name}: has no --printed; that is for {', '.join(PRINTED)}")
    module = import_module(f"{__name__}.{_module(name)}")
    table: Path = module.run(out, fast, **({"printed": True} if printed else {}))
    print(f"{table}\n\n{table.read_text(encoding='utf-8')}")
