"""Columns that nothing can be learnt from: clients name theirs in a job that is not private, in the run and in `check`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..algorithms.exchanges import column_notes
from ..data.degenerate import Degenerate
from ..transports.codec import Codec
from .hooks import RunHooks

if TYPE_CHECKING:
    from .run import Place


def exchanged(
    place: Place, names: tuple[str, ...], own: Mapping[int, Degenerate], hooks: RunHooks | None = None, *, split: bool = False
) -> list[str]:
    """Notes on what all clients' columns have in common (or, `split`, on each client's own), at the server; none elsewhere."""
    clients = {k: column_notes.Client(found) for k, found in own.items()}
    start = column_notes.start(names, split) if place.is_server else None
    job = (place, column_notes.PROTOCOL, start, clients, Codec(column_notes.DIMS, len(names)))
    server, _ = place.run(*job[1:]) if hooks is None else hooks.run(*job)
    return [] if server is None else server.notes
