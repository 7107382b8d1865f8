"""Tells code that is installed from code that merely lies in a folder: a job's folder and the current one choose no code.

Python looks for modules, and for what packages say of themselves, in the current folder too. Somebody who sends a job could lay
code beside it. So nothing is looked for there, unless the holder has installed a project from there by itself
(`pip install --editable`).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import Distribution, distributions
from pathlib import Path
from urllib.parse import unquote, urlparse


def installed(job: Path) -> Iterator[Distribution]:
    """Yields the distributions that are installed: none that only lies in the current folder or the job's."""
    folders, lies = _folders(job), dict[str, bool]()  # most distributions share one place, which is followed once
    for distribution in distributions():
        place = str(distribution.locate_file(""))
        if place not in lies:
            lies[place] = os.path.realpath(place) in folders
        if not lies[place]:
            yield distribution


def barred(job: Path) -> tuple[str, ...]:
    """Returns the entries of sys.path where no code is looked for: the current folder and the job's, if not installed from."""
    projects = [root for distribution in distributions() if (root := project(distribution)) is not None]
    folders = _folders(job)
    return tuple(
        entry
        for entry in sys.path
        if (real := os.path.realpath(entry or os.curdir)) in folders and not any(below(root, real) for root in projects)
    )


@contextmanager
def without(barred: tuple[str, ...]) -> Iterator[None]:
    """Keeps Python from finding modules at these entries of sys.path, and the process's folder as it is."""
    before, folder = [*sys.path], _current()
    if barred:
        sys.path[:] = [entry for entry in before if entry not in barred]
    try:
        yield
    finally:
        if barred:
            sys.path[:] = before
        if folder is not None and _current() != folder:
            os.chdir(folder)  # relative paths of the job stay where they were


def project(distribution: Distribution) -> str | None:
    """Returns the folder from which a distribution is installed as editable; None for all others."""
    text = distribution.read_text("direct_url.json")
    if text is None:
        return None
    try:
        record = json.loads(text)
        if not record.get("dir_info", {}).get("editable"):
            return None
        return os.path.realpath(unquote(urlparse(record["url"]).path))
    except (ValueError, KeyError, AttributeError):
        return None


def below(folder: str, path: str) -> bool:
    """Tells whether a path is a folder, or lies in it."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _folders(job: Path) -> list[str]:
    return [os.path.realpath(folder) for folder in (os.curdir, job)]


def _current() -> str | None:
    """Returns the current folder; None where it is gone."""
    try:
        return os.getcwd()
    except OSError:
        return None
