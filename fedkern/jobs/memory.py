"""Tells the memory of a job that has a number for every pair of its columns: `check` says it before the job takes it.

Squares of p columns make a job too large for a machine. The factors were measured on small jobs (tests/jobs/test_memory.py) and
hold to about a half; memory that grows with rows alone is in no job more than some copies of the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from .said import Line

NUMBER = 8  # bytes
TOO_MUCH = "more than this machine has"
SILENT = 1 << 24  # bytes that are not worth a line
EIGEN = 4  # arrays that the decomposition of a map needs at once


def eigenvectors(areas: int) -> float:
    """Returns the bytes of a map's eigenvectors, while they are computed."""
    return float(NUMBER * EIGEN * areas * areas)


def describe_memory(server: float, client: float, what: str = "a number for every two columns") -> Iterator[str]:
    """Yields the lines that `check` prints; none where the memory is little."""
    more = f"{TOO_MUCH} ({size(available())})" if server + client > available() else ""
    if more or max(server, client) >= SILENT:
        yield Line("memory", f"about {size(server)} at the server and {size(client)} at each client: {what}", more)
    if more:
        yield f"         {more}"


def available() -> float:
    """Returns the bytes of memory of this machine."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (ValueError, OSError, AttributeError):
        return float("inf")


def size(n: float) -> str:
    """Returns bytes as people read them."""
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000:
            return f"{n:.3g} {unit}"
        n /= 1000
    return f"{n:,.3g} TB"
