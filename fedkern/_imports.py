"""Imports parts of the package when they are first needed."""

from __future__ import annotations

import gc
from importlib import import_module
from types import ModuleType


def imported(name: str) -> ModuleType:
    """Returns a module. Meanwhile nothing looks for garbage: what an import makes stays, and would be gone through again and
    again."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return import_module(name)
    finally:
        if collects:
            gc.enable()
