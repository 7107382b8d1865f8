"""Describes how a program writes tables as text: the separators of cells and numbers, the letters, and the marks of a missing
cell.

A file's dialect is never guessed: a semicolon that is read as a comma, or a comma as a point, would be another table. A text only
says which dialect a file seems to have, with the key to set. A fault that depends on a row spoils that row alone
(`plain_text.fault`).
"""

from __future__ import annotations

import codecs
import gzip
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ..labels import whole
from .plain_text import canonical

SEPARATORS = {".csv": ",", ".tsv": "\t"}
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+(e[+-]?\d+)?", re.IGNORECASE)


@dataclass(frozen=True)
class Dialect:
    """Describes one party's text files."""

    delimiter: str | None = None  # between cells; None: a comma, in .tsv files a tab
    decimal: str = "."  # "." or ","
    encoding: str | None = None  # a name that Python knows; None: UTF-8
    missing: tuple[str, ...] = ()  # cells that count as empty, as they are written but for zeros after a whole number's point

    @property
    def plain(self) -> bool:
        """Whether cells are as they are written."""
        return self.decimal == "." and not self.missing

    def between(self, path: Path) -> str:
        """Returns the separator of a file's cells."""
        return self.delimiter or SEPARATORS[suffix(path).removesuffix(".gz")]

    def bytes_of(self, path: Path) -> bytes:
        """Returns a whole file, in UTF-8."""
        with _open(path) as file:
            content: bytes = file.read()
        if self.encoding is None:
            return content
        return content.decode(self.encoding, errors="replace").encode("utf-8", errors="replace")

    def reader(self, path: Path) -> IO[Any]:
        """Opens a file to read it in UTF-8 piece by piece; a context manager."""
        file = _open(path)
        return file if self.encoding is None else codecs.EncodedFile(file, "utf-8", self.encoding, "replace")

    def cells(self, cells: Sequence[str]) -> Sequence[str]:
        """Returns a column's cells as a file with empty cells would have them."""
        missing = {self._word(word) for word in self.missing}
        return ["" if self._word(cell) in missing else cell for cell in cells] if missing else cells

    def _word(self, cell: str) -> str:
        """Returns a cell as words for missing values are compared: -9.0, as a column with an empty cell is often written, is
        -9."""
        return whole(canonical(cell), self.decimal)


def _open(path: Path) -> IO[Any]:
    packed = path.name.lower().endswith(".gz")
    return gzip.open(path, "rb") if packed else path.open("rb")  # type: ignore[return-value]


def read(cell: str, decimal: str = ".") -> float:
    """Returns the number that a cell holds.

    Raises ValueError if it holds none, or a point among decimal commas, perhaps of thousands.
    """
    if decimal == ".":
        return float(cell)
    if "." in cell:
        raise ValueError("a point, where decimals have commas")
    return float(cell.replace(decimal, ".", 1))


def has_decimal_comma(cell: str) -> bool:
    """Tells whether a cell looks like a number with a decimal comma."""
    return "," in cell and _DECIMAL_COMMA.fullmatch(cell.strip()) is not None


def suffix(path: Path) -> str:
    """Returns the type that a file's name gives: ".csv", or ".csv.gz"."""
    name = path.name.lower()
    return Path(name.removesuffix(".gz")).suffix + ".gz" if name.endswith(".gz") else Path(name).suffix


def stem(path: Path) -> str:
    """Returns the name of a client whose file this is."""
    return (Path(path.name[:-3]) if path.name.lower().endswith(".gz") else path).stem.removesuffix(".X")
