"""Lists the five methods, and loads a method's doors by its name; docs/develop/architecture.md explains the doors.

They are keys, rows, model, budget (of private jobs), stages, run, publish, own, show, report, predict, and doors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from ..errors import JobError
from ..jobs.keys import JobConfig, Raw
from ..jobs.load import config_of, merged, overridden, table, tables_of, written_once
from ..jobs.method import Method
from ..sections import describe_choice, validate_file

METHODS = ("pvi", "likelihood", "vertical", "sigma", "sparse")  # the first is that of a job file which names none


def load_method(name: str) -> Method[Any]:
    """Loads a method by its name in a job file, when it is first asked for.

    Raises
    ------
    ModuleNotFoundError
        No method has this name, or a door is missing.
    """
    method: Method[Any] = import_module(f".{name}.doors", __name__).METHOD
    return method


def load(
    job: str | Path | Raw,
    sets: Sequence[str] = (),
    sections: Mapping[str, Mapping[str, object]] | None = None,
    defaults: Mapping[str, Mapping[str, object]] | None = None,
) -> tuple[JobConfig, Path]:
    """Reads and checks a job.

    Parameters
    ----------
    job : path of a TOML file, or its tables
    sets : "section.key=value" overrides, values in TOML notation (a bare word is a text)
    sections : tables whose keys override the job's
    defaults : tables whose keys the job's override

    Returns
    -------
    the job, and the folder that its paths are relative to

    Raises
    ------
    JobError
        Names every faulty key, its value, what was wanted, and the remedy.
    """
    if isinstance(job, Mapping):
        return parse(merged(merged(defaults or {}, job), sections or {}), sets=sets), Path.cwd()
    if not isinstance(job, str | Path):
        raise JobError(f"job: wanted the path of a job file, or its tables, not {job!r}")
    path = Path(job)
    tables = merged(defaults or {}, tables_of(path, "job"))
    return parse(merged(tables, sections or {}), name=str(path), sets=sets), path.resolve().parent


def of_record(tables: Raw) -> JobConfig:
    """Restores a job from the tables of job.json: with all defaults, and infinite numbers as texts.

    Raises
    ------
    JobError
        This version could not have written it.
    """
    method = table(tables, "job").get("method")
    if method not in METHODS:
        raise JobError(f"job.json: {describe_choice('job.method', method, METHODS)}")
    kind = load_method(str(method)).keys.Config
    config: JobConfig = validate_file(kind, _revived(tables), lambda _: iter(()), "job.json")
    return config


def _revived(value: object) -> Any:
    """Turns the text "inf" back into the number."""
    if isinstance(value, Mapping):
        return {name: _revived(inner) for name, inner in value.items()}
    return math.inf if value == "inf" else value


def parse(raw: Raw, *, name: str = "job", sets: Sequence[str] = ()) -> JobConfig:
    """Checks the tables of a job and fills in its method's defaults; `name` begins the error text."""
    method = table(overridden(raw, sets), "job").get("method", METHODS[0])
    if method not in METHODS:
        raise JobError(f"{name}: {describe_choice('job.method', method, METHODS)}")
    keys = load_method(method).keys
    tables = overridden(written_once(raw, keys.Config, name), sets, keys.Config)
    config: JobConfig = config_of(keys, tables, name=name)
    return config
