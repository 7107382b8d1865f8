"""Tells which cores this process may use. Imports nothing heavy: the process beside mpirun asks too."""

from __future__ import annotations

import os


def usable_cores() -> list[int]:
    """Returns the sorted numbers of the cores that this process may use.

    A system that binds no process to cores (macOS) lets it use all of them.
    """
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))
