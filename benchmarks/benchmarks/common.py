"""Peers, and times measured side by side."""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable
from typing import Any

Call = Callable[[], Any]


def absent(peer: str) -> Exception:
    """What asv takes as "n/a": to be raised in `setup`."""
    return NotImplementedError(f"there is no {peer} here")


def need(module: str) -> Any:
    """An optional peer's module."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise absent(module) from None


def jax() -> Any:
    """JAX in float64, as it must be for a fair comparison."""
    module = need("jax")
    module.config.update("jax_enable_x64", True)
    return module


def medians(*calls: Call, seconds: float = 0.3, rounds: int = 15) -> list[float]:
    """Median time of each call. They take turns, so that a drift of the machine's speed meets all of them."""
    inner = []
    for call in calls:
        call()
        start = time.perf_counter()
        call()
        once = time.perf_counter() - start
        inner.append(max(1, int(seconds / rounds / len(calls) / max(once, 1e-7))))
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, repeat, measured in zip(calls, inner, times):
            start = time.perf_counter()
            for _ in range(repeat):
                call()
            measured.append((time.perf_counter() - start) / repeat)
    return [statistics.median(measured) for measured in times]


def ratio(call: Call, other: Call) -> float:
    """How many times as long the other takes."""
    mine, theirs = medians(call, other)
    return theirs / mine
