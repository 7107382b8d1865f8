"""Loads a factory of models, "package.module:function", from the distributions that are installed where it is asked for.

Nothing that was sent chooses code: the text is that of the holder's own copy of the job file, which all parties compare, and the
code is what the holder has installed. A module that belongs to no installed distribution is refused, wherever Python would find
it; the current folder and the job's are no places to look in, unless the holder has installed a project there by itself
(`pip install --editable`).
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution, distributions
from pathlib import Path

import numpy as np

from ...data.cells import Text, floats
from ...data.faults import HINT
from ...data.table import Table
from ...errors import JobError, OwnFault
from ...jobs import loose
from ...models.own.supplied import contained, silent
from . import own_exits

REMEDY = "install it where this party runs: pip install PACKAGE"


@dataclass(frozen=True)
class Factory:
    """Holds a function of an installed package."""

    name: str  # as the job file has it
    # of a table (None at the server) and the job's options
    function: Callable[[Mapping[str, np.ndarray] | None, Mapping[str, object]], object]
    # distribution, version: of the package
    distribution: str
    version: str
    editable: bool  # whether it is installed from a folder that may change, so that the version says nothing of its code
    barred: tuple[str, ...] = ()  # entries of sys.path where nothing is looked for

    def apart(self) -> AbstractContextManager[None]:
        """Returns a context for the package's code.

        What it imports there does not come from where factories are not looked for, and it cannot end the process.
        """
        return _without(self.barred)

    def made(self, who: str, table: Table | None, ignored: tuple[str, ...], options: Mapping[str, object]) -> object:
        """Returns the model that the function makes of a client's table, or of None at the server. Raises OwnFault: it fails; its
        message is for the holder alone."""
        columns = None if table is None else _columns(who, table, ignored)
        with contained(f"{who}: the factory"), self.apart(), silent():
            return self.function(columns, json.loads(json.dumps(options)))


def _columns(who: str, table: Table, ignored: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Name -> (n,) numbers, where empty cells are NaN, or texts."""
    if table.broken:
        row, why = next(iter(table.broken.items()))
        text = f"{who}: rows of the file cannot be read"
        detail = f"{text}: {len(table.broken)}, first {table.place(row)}: {why}; correct them, or remove the rows"
        raise OwnFault(f"{text}; correct them, or remove the rows", detail, look=HINT)
    columns: dict[str, np.ndarray] = {}
    for name in table.names:
        column = table.columns[name]
        if name not in ignored:
            texts = isinstance(column, Text) and not column.truths
            columns[name] = np.array(table.cells(name), object) if texts else np.array(floats(column), np.float64)
    return columns


def load_factory(text: str, job: Path) -> Factory:
    """Returns the factory, imported where this process runs; `job`: the folder of the job, which is no place to look in. Raises
    JobError: it is not installed, belongs to no distribution, cannot be imported, or is no function."""
    module, _, function = text.partition(":")
    who = f'model.factory = "{text}"'
    barred = loose.barred(job)
    with _without(barred):
        importlib.invalidate_caches()
        specs = _specs(module)
        if specs is None:
            raise JobError(f"{who}: there is no module {module!r} here; {REMEDY}")
        owner = _owner(specs, job)
        if owner is None:
            raise JobError(
                f"{who}: the module {module!r} belongs to no installed distribution, and what lies in a folder is not imported; "
                f"{REMEDY} (or pip install --editable FOLDER)"
            )
        try:
            loaded = importlib.import_module(module)
        except KeyboardInterrupt:
            raise KeyboardInterrupt from None
        except BaseException as error:
            lacks = f" without {error.name!r}" if isinstance(error, ModuleNotFoundError) else ""
            text = f"{who}: importing it failed{lacks} ({type(error).__name__}); mend the package, or install what it needs"
            raise OwnFault(text, f"{text}: {error}") from error
        if (
            (origin := getattr(loaded, "__file__", None)) is None
            or specs[-1].origin is None
            or not _same(origin, specs[-1].origin)
        ):
            raise JobError(f"{who}: another module {module!r} is loaded in this process; start fedkern by its own command")
    made = getattr(loaded, function, None)
    if not callable(made):
        raise JobError(f"{who}: the module has no function {function!r}; correct model.factory")
    name = str(owner.metadata["Name"])
    return Factory(text, made, name, owner.version, loose.project(owner) is not None, barred)


@contextmanager
def _without(barred: tuple[str, ...]) -> Iterator[None]:
    """Keeps Python from finding modules at these entries of sys.path, and the process and its folder as they are."""
    with loose.without(barred), own_exits.refused():
        yield


def _specs(module: str) -> list[ModuleSpec] | None:
    """The specs of the module and of the packages that it is in, without importing any; None where it does not exist."""
    specs: list[ModuleSpec] = []
    path, parts = None, module.split(".")
    for k in range(1, len(parts) + 1):
        name = ".".join(parts[:k])
        spec = None
        for finder in sys.meta_path:
            if (look := getattr(finder, "find_spec", None)) is not None and (spec := look(name, path)) is not None:
                break
        if spec is None:
            return None
        specs.append(spec)
        path = None if spec.submodule_search_locations is None else [*spec.submodule_search_locations]
        if path is None and k < len(parts):
            return None
    return specs


def _owner(specs: list[ModuleSpec], job: Path) -> Distribution | None:
    """The installed distribution that all of the files belong to. One that only lies in a barred folder is none."""
    files = [os.path.realpath(spec.origin) for spec in specs if spec.origin is not None and os.path.isfile(spec.origin)]
    if not files or specs[-1].origin is None:
        return None
    barred = [os.path.realpath(folder) for folder in (os.curdir, job)]
    for distribution in distributions():
        home, project = os.path.realpath(str(distribution.locate_file(""))), loose.project(distribution)
        if project is not None and all(loose.below(project, file) for file in files):
            return distribution
        if (
            home not in barred
            and all(loose.below(home, file) for file in files)
            and _lists(distribution, [file[len(home) + 1 :] for file in files])
        ):
            return distribution
    return None


def _lists(distribution: Distribution, files: list[str]) -> bool:
    """Whether a distribution says that these files, relative to where it lies, are its own."""
    names = [file.replace(os.sep, "/") for file in files]
    record = distribution.read_text("RECORD")
    if record is not None and not all(name in record for name in names):  # before thousands of lines are taken apart
        return False
    return set(names) <= {str(file) for file in distribution.files or ()}


def _same(name: str, other: str) -> bool:
    return os.path.realpath(name) == os.path.realpath(other)
