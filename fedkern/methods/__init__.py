"""The four methods, each with the same doors: keys, rows, model, run, stages, publish, show, report."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def door(method: str, name: str) -> Any:
    """One of the files that every method has, loaded when it is needed."""
    return import_module(f".{method}.{name}", __name__)
