"""Reads a client's areas as polygons before the fit, and writes them with the results for any map program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ...data import polygons
from ...data.artifact import OwnFile
from ...data.faults import HINT
from ...data.polygons import Polygons
from ...errors import JobError, OwnFault, owned
from ...jobs.run import At
from .keys import Config
from .rows import drawn


def read(job: At[Config], files: Mapping[int, OwnFile]) -> dict[int, Polygons]:
    """Returns client -> the polygons of its areas; empty where the job has none. Raises JobError: the file cannot be read, is of
    another coordinate system, or lacks areas; their names are told to the client alone."""
    by_client = {}
    for k, file in files.items():
        with owned(k):
            shapes = of(job.config, job.part.folder, file)
        if shapes is not None:
            by_client[k] = shapes
    return by_client


def of(config: Config, folder: Path, file: OwnFile) -> Polygons | None:
    """Returns one client's polygons; None where the job has none."""
    source = drawn(config, folder)
    if source is None:
        return None
    path, written, area, packed = source
    if packed:
        polygons.geopandas("areas.gpkg (output.polygons)")  # before the first round, and not after the last
    shapes = polygons.read(path, area)
    try:
        return shapes.select(file.areas, f"client {file.name!r}: {written}")
    except JobError as error:
        lacking = sum(name not in shapes.parts for name in file.areas)
        text = f"client {file.name!r}: {written}: no polygon for {lacking} of its {file.d} areas in the prior"
        raise OwnFault(text, str(error), look=HINT) from None


def collection(shapes: Polygons, table: Mapping[str, Sequence[object]]) -> dict[str, object]:
    """Returns GeoJSON of the areas with the columns of their table, as numbers where they are."""
    columns = {name: _numbers(values) for name, values in table.items()} | {"area": list(table["area"])}
    rows = (dict(zip(columns, values)) for values in zip(*columns.values()))
    return shapes.collection({str(row["area"]): row for row in rows})


def _numbers(cells: Sequence[object]) -> list[object]:
    """Converts a column for JSON: to numbers, unless a cell is a text such as "0 to 4"; an empty cell becomes None."""
    filled = [None if cell == "" else cell for cell in cells]
    try:
        return [float(cell) if isinstance(cell, str) else cell for cell in filled]
    except ValueError:
        return [cell if cell is None else str(cell) for cell in filled]
