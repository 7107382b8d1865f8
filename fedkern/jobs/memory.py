"""What a job takes that has a number for every pair of its columns: said by `check`, before it is taken.

Squares of p columns are what makes a job too large for a machine. The factors were measured on small jobs
(tests/cli/test_memory.py) and hold to about a half; what grows with rows alone is in no job more than some copies of the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..methods.pvi.model import Model
    from ..methods.sparse.model import SparseModel

NUMBER = 8  # bytes
SILENT = 1 << 24  # bytes that are not worth a line
STREAMED = 900, 150  # numbers for each chain and coefficient of a graph, at the server and at a client: what its streams keep
EIGEN = 4  # arrays that the decomposition of a map needs at once


def pvi(model: Model) -> tuple[float, float]:
    """Bytes at the server and at a client, of a model's precision matrices."""
    if model.config.model.covariance != "full":
        return 0.0, 0.0
    d2 = float(model.encoding.size) ** 2
    return NUMBER * d2 * (8 + 2 * len(model.names)), NUMBER * d2 * 8


def sparse(job: SparseModel) -> tuple[float, float]:
    """Bytes at the server and at a client, of a graph's coefficients, or of the second moments of a regression's columns."""
    config, n = job.config, len(job.names)
    a = config.algorithm
    p = len(job.nodes) if job.is_graph else job.coefficients.size
    server, client = 0.0, 6.0
    if job.is_graph:
        kept = (config.job.rounds - a.burn_in) // a.thin if isinstance(config.job.rounds, int) else 0
        streamed = p * (p - 1) > config.output.largest
        server, client = (a.chains * (one if streamed else min(one, 40 + 8 * kept)) for one in STREAMED)
        server += 2 * n * a.chains * 8
    if job.second_moments:
        server += 4 * n
    if a.statistics == "pooled":
        server, client = server + 4 * n, client + 4
    return NUMBER * p * p * server, NUMBER * p * p * client


def vertical(covariance: str) -> Iterator[str]:
    """Of full covariances: only a client knows how many columns it has."""
    if covariance == "full":
        yield f"memory   each client: about {size(NUMBER * 8 * 1000**2)} for every (1,000 coefficients)^2, for their covariances"


def sigma(d: int, covariance: str) -> tuple[float, float]:
    """Bytes at the server and at a client, of the global unknowns' covariance."""
    return (NUMBER * 8.0 * d * d, NUMBER * 4.0 * d * d) if covariance == "full" else (0.0, 0.0)


def eigenvectors(areas: int) -> float:
    """Bytes of a map's eigenvectors, while they are found."""
    return float(NUMBER * EIGEN * areas * areas)


def lines(server: float, client: float, what: str = "a number for every two columns") -> Iterator[str]:
    """What `check` prints; nothing where it is little."""
    if max(server, client) >= SILENT:
        yield f"memory   about {size(server)} at the server and {size(client)} at each client: {what}"
    if server + client > available():
        yield f"         more than this machine has ({size(available())})"


def available() -> float:
    """Bytes of memory of this machine."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (ValueError, OSError, AttributeError):
        return float("inf")


def size(n: float) -> str:
    """Bytes as people read them."""
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000:
            return f"{n:.3g} {unit}"
        n /= 1000
    return f"{n:,.3g} TB"
