"""The four methods, each with the same doors: keys, rows, model, run, stages, publish, show, report."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..jobs.method import Method


def named(name: str) -> Method:
    """A method by its name in a job file; it is loaded when it is asked for.

    Raises
    ------
    ModuleNotFoundError
        A door is missing.
    """
    from ..jobs.method import Method

    return Method(*(import_module(f".{name}.{door}", __name__) for door in Method._fields))
