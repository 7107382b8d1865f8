"""Functions of SciPy, which who only calls kernels need not load."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any


@cache
def special(name: str) -> Callable[..., Any]:
    """One of them."""
    function: Callable[..., Any] = getattr(import_module("scipy.special"), name)
    return function
