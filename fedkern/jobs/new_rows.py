"""Rows that a released posterior is asked of, read as the job's files were: for the methods whose server can predict."""

from __future__ import annotations

from pathlib import Path

from ..data import incomplete, memory, table
from ..data.cells import MISSING
from ..data.table import Table
from ..models.encoding import Column, Encoding
from ..plain import Record
from .keys import DialectSection


def responded(table: Table, encoding: Encoding) -> list[bool]:
    """Whether each row has a response: where it is empty, as in an export of patients to be predicted, it is unknown."""
    labels = {*encoding.labels, encoding.positive}
    cells = (cell.strip() for cell in table.cells(str(encoding.response)))
    return [cell in labels or cell.lower() not in MISSING for cell in cells]


def read(job: Record, encoding: Encoding, rows: object, *labels: str | None) -> Table:
    """The rows as the job's files were read; `labels`: columns of texts that are looked at beside the encoding's."""
    texts = encoding.texts | {name for name in labels if name}
    response = encoding.response or "y"
    if not isinstance(rows, str | Path):
        found = memory.table(rows, "rows", text=texts, response=response)
    else:
        dialect = DialectSection.model_validate(job["data"].get("dialect") or {}).dialect
        found = table.load(rows, text=texts, response=response, dialect=dialect)
    centers = _centers(job, encoding)
    return incomplete.fill_cells(found, centers) if centers else found


def _centers(job: Record, encoding: Encoding) -> dict[str, float]:
    """The columns whose empty cells were filled and marked (`model.missing = "indicator"`), and with what."""
    found, names = {}, {column.name for column in encoding.columns}
    for name, keys in (job["data"].get("columns") or {}).items():
        if incomplete.marked(name) in names:
            said = {key: value for key, value in keys.items() if value is not None and key not in ("reference", "shape")}
            found[name] = Column.declared(name, said).center or 0.0
    return found
