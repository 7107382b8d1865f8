"""Reads public data sets as their authors ship them: of R's packages, statsmodels, scikit-learn, lifelines and UCI.

Rscript writes those of R's packages into a folder, once; the others are read where they are installed, or, of UCI, from
`FEDKERN_DATA`. Names of columns and labels stay; an empty cell is a missing one, and nothing else is.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

ELSEWHERE = ("sklearn", "statsmodels", "lifelines", "uci")  # the other packages are R's
LARGEST = 2000  # rows; of a larger data set some are drawn once
ADULT = (
    "age workclass fnlwgt education education_num marital_status occupation relationship race sex capital_gain capital_loss "
    "hours_per_week native_country income"
)
WRITE = """
args <- commandArgs(TRUE)
for (one in args[-1]) {
  both <- strsplit(one, "::")[[1]]
  place <- new.env()
  suppressWarnings(data(list = both[2], package = both[1], envir = place))
  d <- if (exists(both[2], envir = place, inherits = FALSE)) get(both[2], envir = place) else getExportedValue(both[1], both[2])
  write.csv(as.data.frame(d), file.path(args[1], paste0(both[1], ".", both[2], ".csv")), row.names = FALSE, na = "")
}
"""


def installed(package: str) -> bool:
    """Tells whether a package that is no package of R's is installed; of R's, Rscript tells when they are written."""
    return package not in ELSEWHERE or package == "uci" or find_spec(package) is not None


def write(names: Sequence[str], folder: Path) -> None:
    """Writes those of R's data sets (`PACKAGE::NAME`) into the folder that it has not."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [name for name in names if name.split("::")[0] not in ELSEWHERE and not _path(*name.split("::"), folder).exists()]
    if missing:
        subprocess.run(["Rscript", "-e", WRITE, folder, *missing], check=True)


def read(package: str, name: str, folder: Path) -> pd.DataFrame:
    """Returns all rows and columns of a data set."""
    if package == "sklearn":
        frame: pd.DataFrame = getattr(import_module("sklearn.datasets"), f"load_{name}")(as_frame=True).frame
        return frame
    if package == "statsmodels":
        frame = getattr(import_module("statsmodels.api").datasets, name).load_pandas().data
        return frame.copy()
    if package == "lifelines":
        spec = find_spec(package)
        assert spec is not None, "pip install lifelines"
        return pd.read_csv(Path(str(spec.origin)).parent / "datasets" / f"{name}.csv")
    if package == "uci":
        path = Path(os.environ["FEDKERN_DATA"]) / f"uci-{name}" / f"{name}.data.gz"
        return pd.read_csv(path, names=ADULT.split(), skipinitialspace=True)
    return pd.read_csv(_path(package, name, folder), low_memory=False, keep_default_na=False, na_values=[""])


def _path(package: str, name: str, folder: Path) -> Path:
    return folder / f"{package}.{name}.csv"


def drawn(d: pd.DataFrame, group: str | None) -> pd.DataFrame:
    """Returns rows of a larger data set that are drawn by lot, of a model with groups whole groups; of smaller ones all."""
    if len(d) > LARGEST:
        rng = np.random.default_rng(0)
        if group:
            labels = rng.permutation(d[group].unique())
            sizes = d[group].value_counts()[labels].cumsum()
            d = d[d[group].isin(sizes.index[sizes <= LARGEST])]
        else:
            d = d.iloc[np.sort(rng.choice(len(d), LARGEST, replace=False))]
    return d.reset_index(drop=True)


def deal(d: pd.DataFrame, group: str | None, clients: Sequence[str], seed: int) -> dict[str, pd.DataFrame]:
    """Deals rows, or groups, by lot to clients, to each as many (of a client who is named twice twice as many)."""
    rng = np.random.default_rng(seed)
    units = d[group].to_numpy() if group else np.arange(len(d))
    labels = rng.permutation(pd.unique(units))
    client = dict(zip(labels.tolist(), [clients[k % len(clients)] for k in range(len(labels))]))
    of_row = np.array([client[unit] for unit in units.tolist()])
    return {name: d[of_row == name].reset_index(drop=True) for name in dict.fromkeys(clients)}
