"""Every key of a job file with its type, default and meaning, as a commented TOML file.

`python -m fedkern.jobs.reference` is that of method "pvi"; `python -m fedkern.jobs.reference sparse` that of the sparse models,
`python -m fedkern.jobs.reference vertical` that of vertically split data,
`python -m fedkern.jobs.reference sigma` that of trained priors.
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ..methods.sigma import keys as sigma
from ..methods.sparse import keys as sparse
from ..methods.vertical import keys as vertical
from . import load as config
from .defaults import filled, table
from .section import Section

HEAD = """\
# Every key of a job file{}, with its default (... where there is none) and what it may be. Copy those that you need.
# Variants and presets have defaults of their own: `fedkern check` tells what a job will do.
"""
SECTIONS: dict[str, dict[str, type[Section]]] = {
    "pvi": {
        "job": config.JobSection,
        "data": config.DataSection,
        "model": config.ModelSection,
        "algorithm": config.AlgorithmSection,
        "privacy": config.PrivacySection,
        "output": config.OutputSection,
    },
    "vertical": {
        "job": config.JobSection,
        "data": config.VerticalDataSection,
        "model": vertical.VerticalModelSection,
        "algorithm": vertical.VerticalAlgorithmSection,
        "privacy": vertical.VerticalPrivacySection,
        "output": vertical.VerticalOutputSection,
    },
    "sigma": {
        "job": config.JobSection,
        "data": config.SigmaDataSection,
        "model": sigma.SigmaModelSection,
        "algorithm": sigma.SigmaAlgorithmSection,
        "output": sigma.SigmaOutputSection,
    },
    "sparse": {
        "job": config.JobSection,
        "data": config.DataSection,
        "model": sparse.SparseModelSection,
        "algorithm": sparse.SparseAlgorithmSection,
        "output": sparse.SparseOutputSection,
    },
}
TABLES: dict[str, type[Section]] = {
    "data.split": config.SplitSection,
    "data.columns.NAME": config.ColumnSection,
    "privacy.clients.NAME": config.Terms,
    "algorithm.until": sparse.UntilSection,
    "model.prior": vertical.PriorSection,
    "model.priors.NAME": vertical.PriorSection,
}
WORDS = {int: "whole number", float: "number", str: "text", bool: "true or false"}


def text(method: str = "pvi") -> str:
    """The whole file of a method."""
    sections = SECTIONS[method]
    parts = [HEAD.format("" if method == "pvi" else f' with method = "{method}"')]
    for name, section in sections.items():
        parts.append("\n".join([f"[{name}]", *_keys(section, name, method)]) + "\n")
        for path, inner in TABLES.items():
            owner, _, key = path.partition(".")
            field = section.model_fields.get(key.partition(".")[0])
            if owner == name and field is not None and kind_of(field.annotation).startswith("table"):
                parts.append("\n".join([f"[{path}]", *_keys(inner, path, method)]) + "\n")
    return "\n".join(parts)


def _keys(section: type[Section], path: str, method: str) -> Iterator[str]:
    tables = {name.removeprefix(f"{path}.").partition(".")[0] for name in TABLES if name.startswith(f"{path}.")}
    inner = {
        key for key in tables if key in section.model_fields and kind_of(section.model_fields[key].annotation).startswith("table")
    }
    job = {} if method == "pvi" else {"job": {"method": method}}
    for key, field in section.model_fields.items():
        if key not in inner:
            default, private = _default(field, path, key, job), _default(field, path, key, job or {"privacy": {}})
            differs = f"; {private} in a private job" if private != default and path != "privacy" else ""
            yield (
                f"# {key} = {private if path == 'privacy' else default}".ljust(32)
                + f"# {kind_of(field.annotation)}: {field.description}{differs}"
            )


def _default(field: FieldInfo, path: str, key: str, job: dict[str, Any]) -> str:
    """The default of a key in a job of this kind, as TOML; dots where there is none."""
    value = table(filled(job), path).get(key, field.default)
    return "..." if value in (PydanticUndefined, None) else json.dumps(value)


def kind_of(annotation: Any) -> str:
    """The type of a key in words."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return kind_of(arguments[0])
    if origin is Literal:
        return " | ".join(json.dumps(value) for value in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(kind_of(a) for a in arguments if a is not type(None)))
    if origin is list:
        return f"list of {kind_of(arguments[0]).removesuffix('s')}s"
    if origin is dict:
        return f"table of {kind_of(arguments[1]).removesuffix('s')}s"
    return WORDS.get(annotation, "table")


if __name__ == "__main__":
    print(text(*sys.argv[1:]), end="")
