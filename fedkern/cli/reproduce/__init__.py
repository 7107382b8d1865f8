"""Tables and figures of the papers, by name. A module here has `run(out, fast) -> path of the table`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

NAMES = {
    "dp-pvi-adult": "DP-PVI on UCI Adult: accuracy, log-likelihood and epsilon on three splits, and the learning curves",
}


def run(name: str, *, fast: bool, out: Path) -> None:
    """Makes one reproduction, says where it is and prints its table."""
    table: Path = import_module(f"{__name__}.{name.replace('-', '_')}").run(out, fast)
    print(f"{table}\n\n{table.read_text(encoding='utf-8')}")
