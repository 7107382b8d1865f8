"""Columns that nothing can be learnt from: clients name theirs in a job that is not private, in the run and in `check`."""

from __future__ import annotations

from collections.abc import Mapping

from ..algorithms.exchanges import column_notes
from ..data.degenerate import Degenerate
from ..transports.codec import Codec
from ..transports.place import Place
from .hooks import RunHooks


def exchanged(
    place: Place, names: tuple[str, ...], own: Mapping[int, Degenerate], hooks: RunHooks | None = None, *, split: bool = False
) -> list[str]:
    """Notes on what all clients' columns have in common (or, `split`, on each client's own), at the server; none elsewhere."""
    clients = {k: column_notes.Client(found) for k, found in own.items()}
    start = column_notes.start(names, split) if place.is_server else None
    codec = Codec(column_notes.DIMS, len(names))
    if hooks is None:
        ended = place.run(column_notes.PROTOCOL, start, clients, codec)
    else:
        ended = hooks.run(place, column_notes.PROTOCOL, start, clients, codec)
    server = ended[0]
    return [] if server is None else server.notes
