"""Lists the methods, and loads a method's doors by its name; docs/develop/architecture.md explains the doors.

They are keys, rows, model, budget (of private jobs), stages, run, publish, own, show, report, predict, and doors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from .._imports import imported
from ..errors import JobError
from ..jobs.keys import METHODS as METHODS
from ..jobs.keys import JobConfig, Raw
from ..jobs.load import config_of, merged, overridden, table, tables_of, written_once
from ..jobs.method import Method
from ..sections import describe_choice, validate_file
from . import installed


def load_method(name: str, tables: Raw = MappingProxyType({}), files: Iterable[Path] = ()) -> Method[Any]:
    """Loads a method by its name in a job file, when it is first asked for: one of this package, or another's (`installed`).

    Parameters
    ----------
    name : of the method
    tables : of a job or its record, where it was not checked yet: policies beside the files that it names are asked, too
    files : others that the caller is going to read, whose policies are asked, too

    Raises
    ------
    JobError
        No method has this name, several packages bring it, a policy of this machine does not allow it, or it cannot be loaded.
    """
    if name in METHODS:
        own: Method[Any] = imported(f"{__name__}.{name}.doors").METHOD
        return own
    found = installed.entry(installed.METHODS_GROUP, name, METHODS)
    if found is None:
        raise JobError(_unknown("job.method", name))
    # Whatever led here: a name may come from the record of a run that somebody else has written.
    installed.permit_method(name, tables, Path.cwd(), files)
    other = installed.loaded(found)
    if not isinstance(other, Method):
        raise JobError(f"{installed.METHODS_GROUP}: {name!r} is {found.value}, which is no fedkern.jobs.method.Method")
    return other


@cache
def data_keys() -> frozenset[str]:
    """Returns the keys that [data] has with any method of this package. Of the methods only their keys are imported."""
    kinds = [imported(f"{__name__}.{name}.keys").Config for name in METHODS]
    return frozenset(key for kind in kinds for key in kind.model_fields["data"].annotation.model_fields)


def _unknown(key: str, name: object) -> str:
    """Says that no method has a name."""
    return describe_choice(key, name, (*METHODS, *installed.names(installed.METHODS_GROUP)))


def _checked(where: str, name: object, tables: Raw, folder: Path | None, files: Iterable[Path] = ()) -> str:
    """Returns a method's name; JobError where there is no such method, or a policy here does not allow another package's."""
    if name in METHODS:
        installed.entry(installed.METHODS_GROUP, str(name), METHODS, folder)
        return str(name)
    if not isinstance(name, str) or installed.entry(installed.METHODS_GROUP, name, METHODS, folder) is None:
        raise JobError(f"{where}: {_unknown('job.method', name)}")
    installed.permit_method(name, tables, folder or Path.cwd(), files)
    return name


def load(
    job: str | Path | Raw,
    sets: Sequence[str] = (),
    sections: Mapping[str, Mapping[str, object]] | None = None,
    defaults: Mapping[str, Mapping[str, object]] | None = None,
    *,
    completed: Callable[[Raw, Path], Raw] = lambda tables, folder: tables,
    files: Iterable[Path] = (),
) -> tuple[JobConfig, Path]:
    """Reads and checks a job.

    Parameters
    ----------
    job : path of a TOML file, or its tables
    sets : "section.key=value" overrides, values in TOML notation (a bare word is a text)
    sections : tables whose keys override the job's
    defaults : tables whose keys the job's override
    completed : adds what rows in this process say to all of these tables; it is given the folder of their paths, too
    files : others than the job's that the caller is going to read for it. The policies that may bind them are asked, too, before
        the method of another package is imported

    Returns
    -------
    the job, and the folder that its paths are relative to

    Raises
    ------
    JobError
        Names every faulty key, its value, what was wanted, and the remedy.
    """
    if isinstance(job, Mapping):
        tables, folder = merged(merged(defaults or {}, job), sections or {}), Path.cwd()
        return parse(completed(overridden(tables, sets), folder), sets=sets, folder=folder, files=files), folder
    if not isinstance(job, str | Path):
        raise JobError(f"job: wanted the path of a job file, or its tables, not {job!r}")
    path = Path(job)
    tables, folder = merged(merged(defaults or {}, tables_of(path, "job")), sections or {}), path.resolve().parent
    return parse(completed(overridden(tables, sets), folder), name=str(path), sets=sets, folder=folder, files=files), folder


def of_record(tables: Raw, files: Iterable[Path] = ()) -> JobConfig:
    """Restores a job from the tables of job.json: with all defaults, and infinite numbers as texts. `files` as of `load`. Raises
    JobError: this version could not have written it."""
    method = _checked("job.json", table(tables, "job").get("method"), tables, None, files)
    kind = load_method(method).keys.Config
    config: JobConfig = validate_file(kind, _revived(tables), lambda _: iter(()), "job.json")
    return config


def _revived(value: object) -> Any:
    """Turns the text "inf" back into the number."""
    if isinstance(value, Mapping):
        return {name: _revived(inner) for name, inner in value.items()}
    return math.inf if value == "inf" else value


def parse(
    raw: Raw, *, name: str = "job", sets: Sequence[str] = (), folder: Path | None = None, files: Iterable[Path] = ()
) -> JobConfig:
    """Checks the tables of a job and fills in its method's defaults.

    `name` begins an error's text, paths begin at `folder`; `files` as of `load`.
    """
    asked = overridden(raw, sets)
    keys = load_method(_checked(name, table(asked, "job").get("method", METHODS[0]), asked, folder, files)).keys
    tables = overridden(written_once(raw, keys.Config, name), sets, keys.Config)
    config: JobConfig = config_of(keys, tables, name=name)
    return config
