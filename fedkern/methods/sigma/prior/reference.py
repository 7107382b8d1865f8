"""Every key of a prior file with its type, default and meaning, as a commented TOML file.

`python -m fedkern.methods.sigma.prior.reference > docs/reference/prior.toml` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pydantic_core import PydanticUndefined

from ....jobs.defaults import table
from ....jobs.reference import kind_of
from ....jobs.section import Section
from .keys import GridSection, HyperpriorSection, PriorConfig, filled

HEAD = """\
# Every key of a prior file, with its default for a map (... where there is none) and what it may be. Copy those that you need.
# The preset "paper" and the variants have defaults of their own.
"""
TABLES: dict[str, type[Section]] = {"prior.hyperprior": HyperpriorSection, "prior.grid": GridSection}


def text() -> str:
    """The whole file."""
    parts = [HEAD]
    for name, field in PriorConfig.model_fields.items():
        section = field.annotation
        assert isinstance(section, type)
        parts.append("\n".join([f"[{name}]", *_keys(section, name)]) + "\n")
        for path, inner in TABLES.items():
            if path.startswith(f"{name}."):
                parts.append("\n".join([f"[{path}]", *_keys(inner, path)]) + "\n")
    return "\n".join(parts)


def _keys(section: type[Section], path: str) -> Iterator[str]:
    for key, field in section.model_fields.items():
        if f"{path}.{key}" in TABLES:
            continue
        own, process = (_default(field.default, path, key, kind) for kind in ("car", "gp"))
        differs = f'; {process} with kind = "gp"' if process != own and process != "..." else ""
        yield f"# {key} = {own}".ljust(32) + f"# {kind_of(field.annotation)}: {field.description}{differs}"


def _default(value: Any, path: str, key: str, kind: str) -> str:
    if (path, key) == ("prior", "kind"):
        return "..."
    found: Any = filled({"prior": {"kind": kind}})
    for part in path.split("."):
        found = table(found, part)
    value = found.get(key, value)
    return "..." if value in (PydanticUndefined, None) else json.dumps(value)


if __name__ == "__main__":
    print(text(), end="")
