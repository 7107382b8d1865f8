"""UCI Heart Disease, four hospitals: Janosi, Steinbrunn, Pfisterer and Detrano, 1989, doi 10.24432/C52P4X, CC BY 4.0.

920 patients: a federation by itself, in which hospitals lack columns and values. "?" is missing, and so is 0 where it cannot be a
measurement: cholesterol (all rows of Switzerland, 49 of VA) and one resting pressure (VA).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ...arrays import Array
from .published import cells_of, folder_of, numbers, text_of

RESPONSE = "thalach"  # the largest heart rate that was reached
SITES = {"cleveland": 303, "hungarian": 294, "switzerland": 123, "va": 200}  # rows
FIELDS = (
    *("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak", "slope", "ca", "thal", "num"),
)
CHEST_PAIN = {"cp=typical": 1, "cp=atypical": 2, "cp=non-anginal": 3}  # asymptomatic (4) is the reference
COVARIATES = ("age", "male", "trestbps", "chol", "fbs", "exang", "oldpeak", *CHEST_PAIN)


def read(folder: str | Path | None = None) -> dict[str, dict[str, Array]]:
    """Reads the four hospitals. Raises JobError: no folder, no file, or another number of rows than published.

    Parameters
    ----------
    folder : where processed.cleveland.data and so on lie; by default `$FEDKERN_DATA/uci-heart-disease`

    Returns
    -------
    hospital -> column (ten covariates, truth values as 0 and 1, and thalach) -> values, NaN where missing
    """
    return _read(folder_of("heart-disease", "uci-heart-disease", "processed.cleveland.data") if folder is None else Path(folder))


@cache
def _read(folder: Path) -> dict[str, dict[str, Array]]:
    return {site: _site(folder, site, rows) for site, rows in SITES.items()}


def _site(folder: Path, site: str, rows: int) -> dict[str, Array]:
    name = f"processed.{site}.data"
    lines = cells_of(text_of(folder, name, "UCI Heart Disease (doi 10.24432/C52P4X)"), folder / name, rows, len(FIELDS))
    cell: dict[str, Any] = dict(zip(FIELDS, map(numbers, zip(*lines))))
    for measured in ("chol", "trestbps"):
        cell[measured][cell[measured] == 0] = np.nan
    pain = np.where(np.isnan(cell["cp"]), np.nan, 1.0)
    dummies = {label: pain * (cell["cp"] == code) for label, code in CHEST_PAIN.items()}
    columns = cell | {"male": cell["sex"]} | dummies
    return {column: columns[column] for column in (*COVARIATES, RESPONSE)}
