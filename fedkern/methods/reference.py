"""Writes every key of a method's job file, as a commented TOML file.

`python -m fedkern.methods.reference` prints that of the first method; `python -m fedkern.methods.reference sparse` another's.
"""

from __future__ import annotations

import json
import sys

from pydantic.fields import FieldInfo

from ..jobs import reference
from ..jobs.keys import Tables
from ..jobs.load import table
from . import METHODS, load_method

HEAD = """\
# Every key of a job file{}, with its default (... where there is none) and what it may be. Copy those that you need.
# Variants and presets have defaults of their own: `fedkern check` tells what a job will do. Keys that only experiments want
# stand on the page of keys for experts.
"""


def text(method: str = METHODS[0], *, expert: bool = False) -> str:
    """Returns the whole file of a method, without keys for experts; or with `expert` these alone."""
    keys, first = load_method(method).keys, method == METHODS[0]
    job: Tables = {} if first else {"job": {"method": method}}

    def default(field: FieldInfo, path: str, key: str) -> tuple[str, str]:
        tables = (keys.fill_defaults(raw) for raw in (job, job or {"privacy": {}}))
        value, private = (reference.toml(table(filled, path).get(key, field.default)) for filled in tables)
        if path == "privacy":
            return private, ""
        return value, f"; {private} in a private job" if private != value else ""

    head = HEAD.format("" if first else f' with method = "{method}"')
    methods = {"job.method": " | ".join(json.dumps(name) for name in METHODS)}
    return reference.text(head, keys.Config, default, methods, expert=expert)


if __name__ == "__main__":
    print(text(*sys.argv[1:]), end="")
