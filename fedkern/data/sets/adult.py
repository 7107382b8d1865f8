"""UCI Adult (census income): Becker and Kohavi, 1996, doi 10.24432/C5XW20, CC BY 4.0.

Reads the raw files as the repository publishes them (`adult.data`, `adult.test`, gzipped or not); nothing is downloaded. "?" is a
level like any other, the trailing dot of the test labels is removed, and the two files are joined: 48,842 rows.
"""

from __future__ import annotations

import gzip
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ...errors import JobError
from ...models.encoding import Column
from ..cells import Cells, as_text
from ..table import Table

Preprocess = Literal["public", "paper"]

RESPONSE, POSITIVE, LABELS = "income", ">50K", ("<=50K", ">50K")
FILES = {"adult.data": 32_561, "adult.test": 16_281}  # rows
FIELDS = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship", "race", "sex"),
    *("capital-gain", "capital-loss", "hours-per-week", "native-country", RESPONSE),
)

# Center and scale for jobs that must not compute them from rows: round numbers of the kind that is published about this census
# extract. They are constants of the package. Only the prior's scale depends on them, so that they need not be exact.
PUBLIC = {
    "age": (40.0, 14.0),
    "fnlwgt": (190_000.0, 100_000.0),
    "education-num": (10.0, 2.5),
    "capital-gain": (1_000.0, 7_500.0),
    "capital-loss": (90.0, 400.0),
    "hours-per-week": (40.0, 12.0),
}

# Mean and standard deviation (divisor n) over all 48,842 rows: what the published experiments use (pvi.md, section 13).
# Neither private nor blind to the test rows. Stored so that a rank need not parse all rows; a test recomputes them.
PAPER = {
    "age": (38.64358543876172, 13.71036957798689),
    "fnlwgt": (189664.13459727284, 105602.94433960247),
    "education-num": (10.078088530363212, 2.5709464361754084),
    "capital-gain": (1079.0676262233324, 7451.942770267475),
    "capital-loss": (87.50231358257237, 403.0004265089569),
    "hours-per-week": (40.422382375824085, 12.391317171262553),
}

# The code book's levels, and "?" where it occurs.
LEVELS = {
    "workclass": "? Federal-gov Local-gov Never-worked Private Self-emp-inc Self-emp-not-inc State-gov Without-pay",
    "education": (
        "10th 11th 12th 1st-4th 5th-6th 7th-8th 9th Assoc-acdm Assoc-voc Bachelors Doctorate HS-grad Masters Preschool "
        "Prof-school Some-college"
    ),
    "marital-status": "Divorced Married-AF-spouse Married-civ-spouse Married-spouse-absent Never-married Separated Widowed",
    "occupation": (
        "? Adm-clerical Armed-Forces Craft-repair Exec-managerial Farming-fishing Handlers-cleaners Machine-op-inspct "
        "Other-service Priv-house-serv Prof-specialty Protective-serv Sales Tech-support Transport-moving"
    ),
    "relationship": "Husband Not-in-family Other-relative Own-child Unmarried Wife",
    "race": "Amer-Indian-Eskimo Asian-Pac-Islander Black Other White",
    "sex": "Female Male",
    "native-country": (
        "? Cambodia Canada China Columbia Cuba Dominican-Republic Ecuador El-Salvador England France Germany Greece Guatemala "
        "Haiti Holand-Netherlands Honduras Hong Hungary India Iran Ireland Italy Jamaica Japan Laos Mexico Nicaragua "
        "Outlying-US(Guam-USVI-etc) Peru Philippines Poland Portugal Puerto-Rico Scotland South Taiwan Thailand Trinadad&Tobago "
        "United-States Vietnam Yugoslavia"
    ),
}

COVARIATES = (*PUBLIC, *LEVELS)  # numeric columns first


def columns(preprocess: Preprocess = "public") -> dict[str, Column]:
    """Returns the public part of the columns: levels, and center and scale; and the response's labels."""
    constants = PAPER if preprocess == "paper" else PUBLIC
    numeric = {name: Column(name, "numeric", None, *constants[name]) for name in constants}
    categorical = {name: Column(name, "categorical", tuple(levels.split())) for name, levels in LEVELS.items()}
    return numeric | categorical | {RESPONSE: Column(RESPONSE, "categorical", LABELS)}


@dataclass(frozen=True)
class Rows:
    """Holds all rows as they stand in the files; a row is parsed when it is wanted."""

    lines: tuple[str, ...]
    source: str

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(self.lines)

    def positive(self) -> NDArray[np.bool_]:
        """Returns whether the label (n,) is ">50K"."""
        return np.fromiter((line.endswith(POSITIVE) for line in self.lines), dtype=bool, count=len(self.lines))

    def table(self, rows: NDArray[np.int64], source: str | None = None) -> Table:
        """Returns these rows, in this order: six numeric columns, eight categorical ones, and the response."""
        cells = zip(*(self.lines[row].split(", ") for row in rows)) if len(rows) else ((),) * len(FIELDS)
        read = dict(zip(FIELDS, cells))
        columns: dict[str, Cells] = {name: np.array([*map(float, read[name])]) for name in PUBLIC}
        columns |= {name: as_text(read[name]) for name in (*LEVELS, RESPONSE)}
        return Table(source or self.source, (*COVARIATES, RESPONSE), columns, len(rows))


def read(folder: str | Path | None = None) -> Rows:
    """Reads both files and joins them. `folder`: where adult.data and adult.test lie (.gz or not); by default
    `$FEDKERN_DATA/uci-adult`. Raises JobError: no folder, no file, or another number of rows than published."""
    if folder is None:
        root = os.environ.get("FEDKERN_DATA")
        if not root:
            raise JobError(
                '[data] builtin = "adult": set FEDKERN_DATA to the folder that holds uci-adult/adult.data and adult.test'
            )
        folder = Path(root) / "uci-adult"
    return _read(Path(folder))


@cache
def _read(folder: Path) -> Rows:
    lines: list[str] = []
    for name, rows in FILES.items():
        text = _text(folder, name)
        records = [line.removesuffix(".") for line in text.split("\n") if line and not line.startswith("|")]
        if len(records) != rows or any(line.count(", ") != len(FIELDS) - 1 for line in records):
            raise JobError(
                f"{folder / name}: {len(records)} rows, needs the {rows} of the published file with {len(FIELDS)} fields each"
            )
        lines += records
    return Rows(tuple(lines), str(folder))


def _text(folder: Path, name: str) -> str:
    for path, opened in ((folder / name, open), (folder / f"{name}.gz", gzip.open)):
        if path.exists():
            with opened(path, "rb") as file:
                return file.read().decode("ascii").replace("\r", "")
    raise JobError(f"{folder}: neither {name} nor {name}.gz; get both files of UCI Adult (doi 10.24432/C5XW20)")
