"""Australian Statistical Areas Level 2 (2011) and which of them touch, states and territories as clients: the map of the CAR
reproduction (docs/spec/sigma.md, section 8). Australian Bureau of Statistics, cat. 1270.0.55.001."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

import numpy as np

from fedkern.data.graph import Islands, Map, check_pairs, make_map
from fedkern.data.sets.published import cells_of, folder_of, numbers, text_of
from fedkern.errors import JobError

N_AREAS, N_PAIRS = 2_192, 5_744
SOURCE = "the areas and contiguous pairs of the Australian Statistical Geography Standard, July 2011"


def read(folder: str | Path | None = None, *, islands: Islands = "link") -> Map:
    """The map: 2,192 areas of 8 states and territories, named by their nine digits.

    Parameters
    ----------
    folder : where areas.csv and edges.csv lie (.gz or not); by default `$FEDKERN_DATA/au-sa2-2011`
    islands : what to do with the twelve areas that touch no other

    Raises
    ------
    JobError
        No folder, no file, or another table than published.
    """
    return _read(folder_of("au-sa2", "au-sa2-2011", "areas.csv") if folder is None else Path(folder), islands)


@cache
def _read(folder: Path, islands: Islands) -> Map:
    rows = list(csv.DictReader(text_of(folder, "areas.csv", SOURCE).splitlines()))
    columns = {"sa2_code_2011", "state_name_2011", "cent_lat", "cent_long"}
    if len(rows) != N_AREAS or not columns <= set(rows[0]):
        raise JobError(
            f"{folder / 'areas.csv'}: {len(rows)} rows; needs the {N_AREAS} of the published file, with {sorted(columns)}"
        )
    names = [row["sa2_code_2011"] for row in rows]
    text = text_of(folder, "edges.csv", SOURCE).partition("\n")[2]
    cells = cells_of(text, folder / "edges.csv", N_PAIRS, 4)
    pairs = np.array([(int(i), int(j)) for i, j, *_ in cells], dtype=np.int64)
    latitude, longitude = (numbers([row[name] for row in rows]) for name in ("cent_lat", "cent_long"))
    # degrees of longitude are shorter: on the middle latitude of the country
    centroids = np.column_stack([longitude * np.cos(np.radians(latitude.mean())), latitude])
    graph = check_pairs(names, pairs, str(folder / "edges.csv"))
    return make_map(graph, [row["state_name_2011"] for row in rows], centroids, islands=islands)
