"""Reads new rows as the job's files were read, for the methods whose server can predict by a released posterior."""

from __future__ import annotations

from pathlib import Path

from ..data import incomplete, memory, table
from ..data.cells import MISSING
from ..data.table import Table
from ..models.encoding import Column, Encoding
from ..plain import Record
from .keys import DialectSection


def responded(table: Table, encoding: Encoding) -> list[bool]:
    """Tells for each row whether it has a response: an empty one, as of patients to be predicted, is unknown."""
    labels = {*encoding.labels, encoding.positive}
    cells = (cell.strip() for cell in table.cells(str(encoding.response)))
    return [cell in labels or cell.lower() not in MISSING for cell in cells]


def read(job: Record, encoding: Encoding, rows: object, *labels: str | None) -> Table:
    """Reads the rows as the job's files were read; `labels`: columns of texts that are looked at beside the encoding's."""
    texts = encoding.texts | {name for name in labels if name}
    response = encoding.response or "y"
    if not isinstance(rows, str | Path):
        loaded = memory.table(rows, "rows", text=texts, response=response)
    else:
        dialect = DialectSection.model_validate(job["data"].get("dialect") or {}).dialect
        loaded = table.load(rows, text=texts, response=response, dialect=dialect)
    centers = _centers(job, encoding)
    return incomplete.fill_cells(loaded, centers) if centers else loaded


def _centers(job: Record, encoding: Encoding) -> dict[str, float]:
    """Returns the columns whose empty cells were filled and marked (`model.missing = "indicator"`), each with its filling."""
    centers, names = {}, {column.name for column in encoding.columns}
    for name, keys in (job["data"].get("columns") or {}).items():
        if incomplete.marked(name) in names:
            said = {key: value for key, value in keys.items() if value is not None and key not in ("reference", "shape")}
            centers[name] = Column.declared(name, said).center or 0.0
    return centers
