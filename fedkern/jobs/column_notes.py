"""Columns that nothing can be learnt from: clients name theirs in a job that is not private, in the run and in `check`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..algorithms.exchanges import column_notes
from ..data.degenerate import Degenerate
from .run import At
from .stage import Stage


def exchanged(at: At[Any], degenerate: Mapping[int, Degenerate], *, split: bool = False) -> list[str]:
    """Notes on what all clients' columns have in common (or, `split`, on each client's own), at the server; none elsewhere."""
    clients = {k: column_notes.Client(columns) for k, columns in degenerate.items()}
    server, _ = at.exchange(Stage.of(column_notes), lambda: column_notes.start(at.names, split), clients)
    return [] if server is None else server.notes
