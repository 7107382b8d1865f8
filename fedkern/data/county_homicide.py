"""Homicides in 3,085 US counties, split by column: Messner et al., An Atlas of the Spatial Patterning of County-Level Homicide,
1960-1990 (National Consortium on Violence Research, 2000).

Counts of three years, the population as exposure, and states as groups: the real twin of the simulated areas of vertical.md,
section 9.2. One client holds economic covariates, the other one the structure of the population.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from ..errors import JobError
from .columns import Columns
from .published import cells_of, folder_of, numbers, text_of

N_ROWS, N_FIELDS, YEARS = 3_085, 70, (60, 70, 80, 90)
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


@cache
def _read(folder: Path, year: int) -> Columns:
    text = text_of(folder, "counties.csv", 'the data set "ncovr" of the GeoDa Center')
    head, _, body = text.partition("\n")
    names = head.split(",")
    rows = cells_of(body, folder / "counties.csv", N_ROWS, len(names) if len(names) == N_FIELDS else N_FIELDS)
    cell = dict(zip(names, zip(*rows)))
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
