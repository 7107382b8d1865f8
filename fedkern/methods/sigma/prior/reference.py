"""Writes every key of a prior file with its type, default and meaning, as a commented TOML file.

`python -m fedkern.methods.sigma.prior.reference` prints it.
"""

from __future__ import annotations

from pydantic.fields import FieldInfo

from ....jobs import reference
from ....jobs.keys import Raw
from ....jobs.load import table
from .keys import PriorConfig, fill_defaults

HEAD = """\
# Every key of a prior file, with its default for a map (... where there is none) and what it may be. Copy those that you need.
# The preset "paper" and the variants have defaults of their own.
"""


def text() -> str:
    """Returns the whole file."""
    return reference.text(HEAD, PriorConfig, _default)


def _default(field: FieldInfo, path: str, key: str) -> tuple[str, str]:
    """Returns the default for a map, and a note where a process has another."""
    if (path, key) == ("prior", "kind"):
        return "...", ""
    of_map, of_process = (_of(kind, field, path, key) for kind in ("car", "gp"))
    if of_process not in (of_map, "..."):
        return of_map, f'; {of_process} with kind = "gp"'
    return of_map, ""


def _of(kind: str, field: FieldInfo, path: str, key: str) -> str:
    """Returns the default of a kind of prior."""
    tables: Raw = fill_defaults({"prior": {"kind": kind}})
    for part in path.split("."):
        tables = table(tables, part)
    return reference.toml(tables.get(key, field.default))


if __name__ == "__main__":
    print(text(), end="")
