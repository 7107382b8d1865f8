"""Finds methods and places that other packages bring, by their entry points, and asks a holder's policies before any is imported.

A package names what it brings in its pyproject.toml. Nothing of it runs until the caller asks for a place, or a job for a method,
and every policy here allows it:

    [project.entry-points."fedkern.methods"]
    mine = "mypackage.method:METHOD"

    [project.entry-points."fedkern.places"]
    mine = "mypackage.place:place"
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from ..data.table import files_of
from ..errors import JobError, OwnFault
from ..jobs import loose
from ..jobs.holding.binding import bind
from ..jobs.holding.policy import DataSet, PolicyFile
from ..jobs.keys import Raw
from ..jobs.site import Sites
from ..transports.place import Place

UNKNOWN = (
    'job.method = "{}" has the holder run a method of another package, and sends what that says of rows; ask the holder to allow '
    "it (methods)"
)
METHODS_GROUP, PLACES_GROUP = "fedkern.methods", "fedkern.places"


def names(group: str) -> tuple[str, ...]:
    """Returns the names that installed packages bring, in the alphabet's order."""
    return tuple(sorted({entry.name for entry in _entries(group, Path.cwd())}))


def _entries(group: str, folder: Path) -> Iterator[EntryPoint]:
    """Yields the entry points of installed packages, for a job in this folder."""
    for package in loose.installed(folder):
        if group in (package.read_text("entry_points.txt") or ""):  # nearly none has it: the others are not parsed
            yield from package.entry_points.select(group=group)


def entry(group: str, name: str, own: Sequence[str], folder: Path | None = None) -> EntryPoint | None:
    """Returns the entry point of a name; None where no package brings it. What only lies in the job's folder, or the current one,
    is no installed package. Raises JobError: several packages bring it, or one brings a name of this package's own."""
    found = {
        (found_entry.value, _package(found_entry)): found_entry
        for found_entry in _entries(group, folder or Path.cwd())
        if found_entry.name == name
    }
    packages = sorted({_package(found_entry) for found_entry in found.values()})
    if found and name in own:
        raise JobError(f"{group}: {', '.join(packages)} brings {name!r}, which is fedkern's own; uninstall it")
    if len(found) > 1:
        raise JobError(f"{group}: {' and '.join(packages)} bring {name!r}; uninstall all but one")
    return next(iter(found.values()), None)


def loaded(found: EntryPoint, folder: Path | None = None) -> Any:
    """Imports what an entry point names, from where packages are installed; JobError, with its name, where that fails."""
    try:
        with loose.without(loose.barred(folder or Path.cwd())):
            return found.load()
    except Exception as error:  # whatever its code does; others may read this, so the error's own text is left out
        what = f"{found.group}: {found.name!r} of {_package(found)} cannot be loaded ({type(error).__name__})"
        raise JobError(f"{what}; import {found.module} in Python to see why") from error


def place(name: str, tables: Raw, folder: Path) -> Place:
    """Returns a place that a package brings: its entry point is the place, or makes it. `name`: of the entry point, as the caller
    gave it; `tables`, `folder`: of the job, whose data's policies are asked before anything is imported. Raises JobError: no
    package brings it, several do, a policy does not allow the package, or it cannot be loaded."""
    found = entry(PLACES_GROUP, name, (), folder)
    if found is None:
        known = names(PLACES_GROUP)
        others = f"; there are {', '.join(known)}" if known else ""
        raise JobError(f"place = {name!r}: no installed package brings it{others}")
    _permit(
        tables,
        folder,
        lambda file: file.knows_package(found.module),
        f"place = {name!r} has another package carry the messages of this job; ask the holder to allow its class (places)",
        f"no class of {found.module.partition('.')[0]} is among its places",
    )
    brought = loaded(found, folder)
    if isinstance(brought, type) or not hasattr(brought, "run_protocol"):
        try:
            brought = brought()
        except Exception as error:
            raise JobError(f"{PLACES_GROUP}: {name!r} of {_package(found)} made no place ({type(error).__name__})") from error
    if not hasattr(brought, "run_protocol"):
        raise JobError(f"{PLACES_GROUP}: {name!r} is {found.value}, which is and makes no fedkern.places.Place")
    made: Place = brought
    return made


def permit_method(name: str, tables: Raw, folder: Path, files: Iterable[Path] = ()) -> None:
    """Asks every policy that may bind the data of a job for a method of another package; nothing of it has been imported yet.

    `files`: others that the caller is going to read for the job (`check --local FILE`), whose policies are asked too.

    Its keys are not known either. So all texts of the job count as paths, and all site files that parties of this place could
    find are read. A policy that lists the method for other data lets it be imported: whether it may have these is asked as for
    every job. Where no policy is, and none is required, nothing is refused. Raises OwnFault: a policy does not list the method,
    or cannot be read.
    """
    ask, detail = UNKNOWN.format(name), f"{name} is not among its methods"
    _permit(tables, folder, lambda file: file.knows_method(name), ask, detail, files)


def _permit(
    tables: Raw, folder: Path, allows: Callable[[PolicyFile], bool], ask: str, detail: str, files: Iterable[Path] = ()
) -> None:
    """Raises OwnFault unless all policies that may bind the data of a job, or these files, allow something."""
    paths, policies = list(_paths(tables, folder)), list[Path | None]([None])
    for path in files:
        paths += files_of(path)
    try:
        for site in Sites(folder, ()).everyone():
            paths += [] if site.path is None else files_of(site.path)
            policies += [] if site.policy is None else [site.policy]
        bindings = [bind("", DataSet((), tuple(dict.fromkeys(paths)), policy), must="asked") for policy in policies]
    except JobError as fault:
        raise OwnFault("a site file or a policy file here cannot be used; ask its holder to mend it", str(fault)) from None
    for binding in bindings:
        for _, file in binding.files:
            if not allows(file):
                raise OwnFault(ask, f"{file.path}: does not allow the job: {detail}")
        if binding.required and not binding.files:
            raise OwnFault(ask, f"{binding.required}, and no policy is here")


def _paths(tables: Raw, folder: Path) -> Iterator[Path]:
    """Yields all files that texts of a job may name, with the arrays that belong to them."""
    for text in _texts(tables):
        if "\0" in text:
            continue
        yield from files_of(folder / text)
        plain = Path(text)
        if any(mark in text for mark in "*?["):
            root, pattern = (Path(plain.anchor), plain.relative_to(plain.anchor)) if plain.is_absolute() else (folder, plain)
            with suppress(ValueError, NotImplementedError, OSError, re.error):  # no pattern, or nothing that can be looked at
                for path in root.glob(str(pattern)):
                    yield from files_of(path)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, Iterable) and not isinstance(value, bytes):
        for part in value:
            yield from _texts(part)


def _package(found: EntryPoint) -> str:
    return "an unknown package" if found.dist is None else found.dist.name
