"""Writes what only a client gets: its own description, exact."""

from __future__ import annotations

from dataclasses import dataclass

from ...jobs.run import Run
from .counts import Client
from .keys import Config
from .model import DescribeModel


@dataclass(frozen=True)
class Own:
    """Holds a client's number and its rows."""

    index: int
    client: Client


def write(run: Run[Config], model: DescribeModel, rows: Own) -> None:
    """Writes described.json to the client's folder: of each column its own counts of all cells, as they are."""
    client = rows.client
    content: dict[str, object] = {}
    for table in model.single:
        counts = client.counts(table)[:, 0].tolist()
        content[table.first] = {"cells": client.names_of(table.first), "counts": counts[:-1], "missing": counts[-1]}
    run.hooks.write_own(rows.index, "described.json", {"rows": client.rows.n, "columns": content})
