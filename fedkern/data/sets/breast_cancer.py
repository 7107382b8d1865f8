"""Wisconsin diagnostic breast cancer (Wolberg, Street and Mangasarian, 1993; 569 x 30), as scikit-learn ships it.

The file is read from scikit-learn's folder without importing scikit-learn, which would take longer than a small job.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...errors import JobError
from ...models.encoding import Column
from ..cells import Cells, Text
from ..table import Table

RESPONSE, POSITIVE, LABELS = "diagnosis", "malignant", ("benign", "malignant")
N_ROWS = 569

# Center and scale, two digits: constants of a public data set that come with the package, so that a private job on it can
# standardise without spending budget. For data of your own, give constants that are public there.
PUBLIC = {
    "mean radius": (14.0, 3.5),
    "mean texture": (19.0, 4.3),
    "mean perimeter": (92.0, 24.0),
    "mean area": (650.0, 350.0),
    "mean smoothness": (0.096, 0.014),
    "mean compactness": (0.10, 0.053),
    "mean concavity": (0.089, 0.080),
    "mean concave points": (0.049, 0.039),
    "mean symmetry": (0.18, 0.027),
    "mean fractal dimension": (0.063, 0.0071),
    "radius error": (0.41, 0.28),
    "texture error": (1.2, 0.55),
    "perimeter error": (2.9, 2.0),
    "area error": (40.0, 45.0),
    "smoothness error": (0.0070, 0.0030),
    "compactness error": (0.025, 0.018),
    "concavity error": (0.032, 0.030),
    "concave points error": (0.012, 0.0062),
    "symmetry error": (0.021, 0.0083),
    "fractal dimension error": (0.0038, 0.0026),
    "worst radius": (16.0, 4.8),
    "worst texture": (26.0, 6.1),
    "worst perimeter": (110.0, 34.0),
    "worst area": (880.0, 570.0),
    "worst smoothness": (0.13, 0.023),
    "worst compactness": (0.25, 0.16),
    "worst concavity": (0.27, 0.21),
    "worst concave points": (0.11, 0.066),
    "worst symmetry": (0.29, 0.062),
    "worst fractal dimension": (0.084, 0.018),
}


def columns() -> dict[str, Column]:
    """Returns the public part of the columns, and the response's labels."""
    numeric = {name: Column(name, "numeric", None, *constants) for name, constants in PUBLIC.items()}
    return numeric | {RESPONSE: Column(RESPONSE, "categorical", LABELS)}


@cache
def _cells() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Returns the covariates (569, 30), and 1 for malignant."""
    spec = find_spec("sklearn")
    if spec is None or not spec.submodule_search_locations:
        raise JobError("[data] builtin = \"breast-cancer\" comes with scikit-learn; pip install 'fedkern[demo]'")
    path = Path(spec.submodule_search_locations[0]) / "datasets" / "data" / "breast_cancer.csv"
    if not path.exists():
        raise JobError(f"{path}: this scikit-learn has no such file; install version 1.4 or later")
    with path.open(newline="", encoding="ascii") as file:
        rows = [[float(cell) for cell in row] for row in list(csv.reader(file))[1:]]
    values = np.array(rows)
    if values.shape != (N_ROWS, len(PUBLIC) + 1):
        raise JobError(f"{path}: has shape {values.shape}, needs ({N_ROWS}, {len(PUBLIC) + 1}); install scikit-learn anew")
    return values[:, :-1], 1 - values[:, -1].astype(np.int64)  # the file's 1 is benign


def positive() -> NDArray[np.bool_]:
    """Returns whether the diagnosis (569,) is malignant."""
    return np.asarray(_cells()[1] == 1)


def table(rows: NDArray[np.int64], source: str) -> Table:
    """Returns these rows, in this order: thirty measurements and the diagnosis."""
    values, malignant = _cells()
    columns: dict[str, Cells] = {name: values[rows, j] for j, name in enumerate(PUBLIC)}
    columns[RESPONSE] = Text(malignant[rows], LABELS)
    return Table(source, (*PUBLIC, RESPONSE), columns, len(rows))
