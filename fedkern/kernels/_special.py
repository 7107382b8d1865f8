"""Loads functions of SciPy when they are first used: a caller of kernels alone does not wait for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any


@cache
def special(name: str) -> Callable[..., Any]:
    """Returns one function of `scipy.special`."""
    function: Callable[..., Any] = getattr(import_module("scipy.special"), name)
    return function
