"""Homicides in 3,085 US counties, split by column: Messner et al., An Atlas of the Spatial Patterning of County-Level Homicide,
1960-1990 (National Consortium on Violence Research, 2000).

Counts of three years, the population as exposure, and states as groups: the real twin of the simulated areas of vertical.md,
section 9.2. One client holds economic covariates, the other one the structure of the population.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedkern.data.columns import Columns
from fedkern.data.graph import Islands, Map, check_pairs, make_map
from fedkern.data.sets.published import cells_of, folder_of, numbers, text_of
from fedkern.errors import JobError

N_ROWS, N_FIELDS, N_PAIRS, YEARS = 3_085, 70, 9_084, (60, 70, 80, 90)
SOURCE = 'the data set "ncovr" of the GeoDa Center'
# Deprivation and unemployment; density of population, divorced men and median age: the covariates of the atlas's regressions.
CLIENTS = {"economy": ("RD", "UE"), "population": ("PS", "DV", "MA")}


def read(folder: str | Path | None = None, *, year: int = 90) -> Columns:
    """Counts, exposures, states and covariates of one census year.

    Parameters
    ----------
    folder : where counties.csv lies (.gz or not); by default `$FEDKERN_DATA/us-county-homicide`
    year : 60, 70, 80 or 90

    Returns
    -------
    covariates standardised over all counties; `y` the homicides of three years; `offset` the logarithm of those expected at the
    rate of the whole country, so that the intercept is near 0; `group` the state

    Raises
    ------
    JobError
        No folder, no file, or another table than published.
    """
    if year not in YEARS:
        raise JobError(f"county homicides: year {year}; there are {', '.join(map(str, YEARS))}")
    return _read(folder_of("county-homicide", "us-county-homicide", "counties.csv") if folder is None else Path(folder), year)


def read_map(folder: str | Path | None = None, *, islands: Islands = "link") -> tuple[Map, NDArray[np.int64]]:
    """The counties' neighbours, states as clients.

    Returns
    -------
    the map, areas named by their FIPS codes, and rows (n,): the row of `read` that each area of the map has
    """
    source = folder_of("county-homicide", "us-county-homicide", "counties.csv") if folder is None else Path(folder)
    cell = _cells(source)
    names, states = cell["FIPS"], cell["STATE_NAME"]
    text = text_of(source, "edges.csv", SOURCE).partition("\n")[2]
    pairs = [(int(i), int(j)) for i, j, *_ in cells_of(text, source / "edges.csv", N_PAIRS, 4)]
    graph = check_pairs(names, np.array(pairs, dtype=np.int64), str(source / "edges.csv"))
    regions = make_map(graph, states, islands=islands)
    place = {name: row for row, name in enumerate(names)}
    return regions, np.array([place[name] for name in regions.graph.names], dtype=np.int64)


@cache
def _read(folder: Path, year: int) -> Columns:
    cell = _cells(folder)
    y = np.round(3 * numbers(cell[f"HC{year}"]))  # the file has the mean of three years
    exposure = 3 * numbers(cell[f"PO{year}"])
    states, group = np.unique(np.array(cell["STATE_NAME"]), return_inverse=True)
    X, shown = [], []
    for covariates in CLIENTS.values():
        values = np.column_stack([numbers(cell[f"{name}{year}"]) for name in covariates])
        X.append((values - values.mean(axis=0)) / values.std(axis=0))
        shown.append(tuple(f"{name}{year}" for name in covariates))
    offset = np.log(exposure * (y.sum() / exposure.sum()))
    return Columns(tuple(X), tuple(shown), y, offset, group.astype(np.int64), tuple(map(str, states)))


def _cells(folder: Path) -> dict[str, tuple[str, ...]]:
    """Name of a column -> its cells."""
    head, _, body = text_of(folder, "counties.csv", SOURCE).partition("\n")
    names = head.split(",")
    return dict(zip(names, zip(*cells_of(body, folder / "counties.csv", N_ROWS, N_FIELDS))))
