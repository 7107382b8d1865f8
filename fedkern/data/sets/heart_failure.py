"""Heart disease of 918 patients, split by column: fedesoriano's Heart Failure Prediction set of 2021 (ODbL), a merge of the UCI
Heart Disease files of Janosi, Steinbrunn, Pfisterer and Detrano, 1989.

The first five covariates are one client's, the other six another's (vertical.md, section 9.3). Its compiler has filled the
values in that UCI lacks, and cholesterol of 0 means "not measured": both are left as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...arrays import Array
from ...errors import JobError
from ..cells import Cells, as_text
from ..columns import Columns, write
from ..table import Table
from .published import cells_of, folder_of, numbers, text_of

RESPONSE, N_ROWS = "HeartDisease", 918
CLIENTS = {
    "client-1": ("Age", "Sex", "ChestPainType", "RestingBP", "Cholesterol"),
    "client-2": ("FastingBS", "RestingECG", "MaxHR", "ExerciseAngina", "Oldpeak", "ST_Slope"),
}
PARTIES: dict[str, tuple[str, ...]] = {**CLIENTS, "server": (RESPONSE,)}
IDS = [f"patient-{row + 1:03}" for row in range(N_ROWS)]
LEVELS = {
    "Sex": ("F", "M"),
    "ChestPainType": ("ASY", "ATA", "NAP", "TA"),
    "RestingECG": ("LVH", "Normal", "ST"),
    "ExerciseAngina": ("N", "Y"),
    "ST_Slope": ("Down", "Flat", "Up"),
}
BINARY = ("FastingBS",)  # kept as 0 and 1


@dataclass(frozen=True)
class Patients:
    """Holds all cells as they stand in the file, column by column."""

    cells: dict[str, tuple[str, ...]]

    def response(self) -> Array:
        """Returns 1 for heart disease (918,)."""
        return numbers(self.cells[RESPONSE])

    def columns(self, train: NDArray[np.int64]) -> Columns:
        """Returns both clients' covariates, encoded: 9 and 11 columns of all 918 rows.

        Parameters
        ----------
        train : rows whose means and standard deviations (divisor n) scale the continuous columns

        Returns
        -------
        continuous covariates standardised, categorical ones one-hot with all their levels
        """
        parts = {client: [self._encoded(name, train) for name in names] for client, names in CLIENTS.items()}
        X = tuple(np.column_stack([x for x, _ in part]) for part in parts.values())
        names = tuple(tuple(name for _, columns_of_source in part for name in columns_of_source) for part in parts.values())
        return Columns(X, names, self.response())

    def _encoded(self, name: str, train: NDArray[np.int64]) -> tuple[Array, tuple[str, ...]]:
        cells = self.cells[name]
        if name in LEVELS:
            is_level = np.array(cells)[:, None] == np.array(LEVELS[name])
            return is_level.astype(np.float64), tuple(f"{name}={level}" for level in LEVELS[name])
        values = numbers(cells)
        if name not in BINARY:
            spread = values[train].std()
            if not spread > 0:
                raise JobError(f"heart data: {name} is the same in all {len(train)} training rows")
            values = (values - values[train].mean()) / spread
        return values[:, None], (name,)

    def table(self, party: str) -> Table:
        """Returns the columns of a client, or of "server", with the patients' ids: as its file would have them."""
        names = PARTIES[party]
        columns: dict[str, Cells] = {"id": as_text(IDS)}
        for name in names:
            columns[name] = as_text(self.cells[name]) if name in LEVELS else numbers(self.cells[name])
        return Table(f"heart-failure, {party}", ("id", *names), columns, N_ROWS)

    def write(self, folder: Path, seed: int = 1) -> list[Path]:
        """Writes the federation as files: a csv file for each client and server.csv with the response.

        They share nothing but patient ids, and each has its own order of rows.

        Parameters
        ----------
        folder : is made where it does not exist
        seed : of the orders

        Returns
        -------
        the paths, the server's last
        """
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        for k, (party, names) in enumerate(PARTIES.items()):
            order = np.random.default_rng([seed, k]).permutation(N_ROWS)
            columns = [IDS, *(self.cells[name] for name in names)]
            paths.append(folder / f"{party}.csv")
            write(paths[-1], ("id", *names), [[column[row] for row in order] for column in columns])
        return paths


def read(folder: str | Path | None = None) -> Patients:
    """Reads the patients. `folder`: where heart.csv lies (.gz or not); by default `$FEDKERN_DATA/heart-failure-prediction`.
    Raises JobError: no folder, no file, or another table than published."""
    return _read(folder_of("heart-failure", "heart-failure-prediction", "heart.csv") if folder is None else Path(folder))


@cache
def _read(folder: Path) -> Patients:
    text = text_of(folder, "heart.csv", "Heart Failure Prediction (fedesoriano, Kaggle, September 2021)")
    head, _, body = text.partition("\n")
    names = head.split(",")
    needs = (*CLIENTS["client-1"], *CLIENTS["client-2"], RESPONSE)
    if tuple(names) != needs:
        raise JobError(f"{folder / 'heart.csv'}: columns {head}; needs {', '.join(needs)}")
    cells = dict(zip(names, zip(*cells_of(body, folder / "heart.csv", N_ROWS, len(names)))))
    for name, levels in LEVELS.items():
        if unknown := set(cells[name]) - set(levels):
            raise JobError(f"{folder / 'heart.csv'}: {name} has {', '.join(sorted(unknown))}; needs {', '.join(levels)}")
    return Patients(cells)
