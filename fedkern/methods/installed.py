"""Finds methods and places that other packages bring, by their entry points, and asks a holder's policies before any is imported.

A package names what it brings in its pyproject.toml; nothing of it runs until the caller asks for a place, or a job that every
policy here allows asks for a method:

    [project.entry-points."fedkern.methods"]
    mine = "mypackage.method:METHOD"

    [project.entry-points."fedkern.places"]
    mine = "mypackage.place:place"
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from ..data.table import BESIDE
from ..errors import JobError, OwnFault
from ..jobs.holding.binding import known_policies
from ..jobs.holding.policy import PolicyFile, read_policies
from ..jobs.keys import Raw
from ..transports.place import Place

UNKNOWN = (
    'job.method = "{}" has the holder run a method of another package, and sends what that says of rows; ask the holder to allow '
    "it (methods)"
)
METHODS_GROUP, PLACES_GROUP = "fedkern.methods", "fedkern.places"


def names(group: str) -> tuple[str, ...]:
    """Returns the names that installed packages bring, in the alphabet's order."""
    return tuple(sorted({entry.name for entry in entry_points(group=group)}))


def entry(group: str, name: str, own: Sequence[str]) -> EntryPoint | None:
    """Returns the entry point of a name; None where no package brings it.

    Raises
    ------
    JobError
        Several packages bring it, or one brings a name of this package's own.
    """
    found = {(one.value, _package(one)): one for one in entry_points(group=group, name=name)}
    packages = sorted({_package(one) for one in found.values()})
    if found and name in own:
        raise JobError(f"{group}: {', '.join(packages)} brings {name!r}, which is fedkern's own; uninstall it")
    if len(found) > 1:
        raise JobError(f"{group}: {' and '.join(packages)} bring {name!r}; uninstall all but one")
    return next(iter(found.values()), None)


def loaded(found: EntryPoint) -> Any:
    """Imports what an entry point names; JobError where that fails, which names the package."""
    try:
        return found.load()
    except Exception as error:  # whatever its code does; others may read this, so the error's own text is left out
        what = f"{found.group}: {found.name!r} of {_package(found)} cannot be loaded ({type(error).__name__})"
        raise JobError(f"{what}; import {found.module} in Python to see why") from error


def place(name: str) -> Place:
    """Returns a place that a package brings: its entry point is the place, or makes it.

    Raises
    ------
    JobError
        No package brings it, several do, or it cannot be loaded.
    """
    found = entry(PLACES_GROUP, name, ())
    if found is None:
        known = names(PLACES_GROUP)
        there = f"; there are {', '.join(known)}" if known else ""
        raise JobError(f"place = {name!r}: no installed package brings it{there}")
    brought = loaded(found)
    made: Place = brought if hasattr(brought, "run_protocol") and not isinstance(brought, type) else brought()
    return made


def permit_method(name: str, tables: Raw, folder: Path) -> None:
    """Asks the policies of this machine, and those beside the files that a job's [data] names, for a method of another package.

    The method itself is not known yet, so any text of [data] counts as a path, and a policy that lists the method for other data
    lets it be imported: whether it may have these is asked as for every job. Where no policy is, nothing is refused.

    Raises
    ------
    OwnFault
        A policy does not list the method.
    """
    for file in (*known_policies(), *_beside(tables.get("data", {}), folder)):
        if not file.knows_method(name):
            raise OwnFault(UNKNOWN.format(name), f"{file.path}: does not allow the job: {name} is not among its methods")


def _beside(value: object, folder: Path) -> Iterator[PolicyFile]:
    """Yields the policies in the folders of all files that texts may name."""
    seen = set[Path]()
    for text in _texts(value):
        try:
            folders = {path.resolve().parent for path in (folder.glob(text) if _relative(text) else Path("/").glob(text[1:]))}
        except (ValueError, OSError, IndexError, NotImplementedError):  # no path, or none that can be looked at
            continue
        for at in folders - seen:
            seen.add(at)
            if (at / BESIDE).exists():
                yield read_policies(at / BESIDE)


def _relative(text: str) -> bool:
    return not text.startswith("/")


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


def _package(found: EntryPoint) -> str:
    return "an unknown package" if found.dist is None else found.dist.name
