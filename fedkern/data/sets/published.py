"""Reads files of published data sets that the user has put into the folder FEDKERN_DATA; nothing is downloaded."""

from __future__ import annotations

import gzip
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...arrays import Array
from ...errors import JobError
from ..cells import number
from ..table import Table


def folder_of(builtin: str, part: str, holds: str) -> Path:
    """Returns `$FEDKERN_DATA/<part>`. Raises JobError: FEDKERN_DATA is not set."""
    root = os.environ.get("FEDKERN_DATA")
    if not root:
        raise JobError(f'[data] builtin = "{builtin}": set FEDKERN_DATA to the folder that holds {part}/{holds}')
    return Path(root) / part


def text_of(folder: Path, name: str, source: str) -> str:
    """Returns the text of a file, which may be gzipped (name.gz). Raises JobError: there is neither."""
    for path, opened in ((folder / name, open), (folder / f"{name}.gz", gzip.open)):
        if path.exists():
            with opened(path, "rb") as file:
                return file.read().decode("utf-8").replace("\r", "")
    raise JobError(f"{folder}: neither {name} nor {name}.gz; get {source}")


def cells_of(text: str, where: Path, rows: int, fields: int) -> list[list[str]]:
    """Returns lines of cells without quotes, as many as were published. Raises JobError: another number of rows or of cells in a
    row."""
    lines = [line.split(",") for line in text.split("\n") if line]
    if len(lines) != rows or any(len(line) != fields for line in lines):
        raise JobError(f"{where}: {len(lines)} rows, needs the {rows} of the published file with {fields} cells each")
    return lines


def numbers(cells: Sequence[str]) -> Array:
    """Returns values (n,), NaN for "?", an empty cell, or any other cell that is no number."""
    return np.array([*map(number, cells)], dtype=np.float64)


def joined(sites: Mapping[str, Mapping[str, Array]], source: str) -> tuple[Table, tuple[NDArray[np.int64], ...]]:
    """Returns the sites' columns (all numeric, the same for all) as one table, and the rows of each site."""
    names = tuple(next(iter(sites.values())))
    columns = {name: np.concatenate([site[name] for site in sites.values()]) for name in names}
    ends = np.cumsum([len(site[names[0]]) for site in sites.values()])
    parts = tuple(np.arange(end - len(site[names[0]]), end, dtype=np.int64) for end, site in zip(ends, sites.values()))
    return Table(source, names, columns, int(ends[-1])), parts
