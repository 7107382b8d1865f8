"""How a program writes tables as text: what stands between cells and inside numbers, the letters, what a missing cell is.

What a file needs is never guessed: a semicolon that is read as a comma, or a comma as a point, would be another table. What a
file seems to be is only said, with the key to set. Whatever depends on a row spoils that row alone (`plain_text.fault`).
"""

from __future__ import annotations

import codecs
import gzip
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from .plain_text import canonical

SEPARATORS = {".csv": ",", ".tsv": "\t"}
_WHOLE = re.compile(r"[+-]?\d+")
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+(e[+-]?\d+)?", re.IGNORECASE)


@dataclass(frozen=True)
class Dialect:
    """Of one party's text files.

    Attributes
    ----------
    delimiter : between cells; None: a comma, in .tsv files a tab
    decimal : "." or ","
    encoding : a name that Python knows; None: UTF-8
    missing : cells that count as empty, as they are written but for zeros after a whole number's point
    """

    delimiter: str | None = None
    decimal: str = "."
    encoding: str | None = None
    missing: tuple[str, ...] = ()

    @property
    def plain(self) -> bool:
        """Whether cells are as they are written."""
        return self.decimal == "." and not self.missing

    def between(self, path: Path) -> str:
        """What separates the cells of a file."""
        return self.delimiter or SEPARATORS[suffix(path).removesuffix(".gz")]

    def bytes_of(self, path: Path) -> bytes:
        """A whole file, in UTF-8."""
        with _open(path) as file:
            content: bytes = file.read()
        if self.encoding is None:
            return content
        return content.decode(self.encoding, errors="replace").encode("utf-8", errors="replace")

    def reader(self, path: Path) -> IO[Any]:
        """A file, read in UTF-8 piece by piece; a context manager."""
        file = _open(path)
        return file if self.encoding is None else codecs.EncodedFile(file, "utf-8", self.encoding, "replace")

    def cells(self, cells: Sequence[str]) -> Sequence[str]:
        """A column's cells as a file with empty cells would have them."""
        missing = {self._word(word) for word in self.missing}
        return ["" if self._word(cell) in missing else cell for cell in cells] if missing else cells

    def _word(self, cell: str) -> str:
        """As words for what is missing are compared: -9.0, as a column with an empty cell is often written, is -9."""
        word = canonical(cell)
        whole, point, decimals = word.partition(self.decimal)
        return whole if point and not decimals.strip("0") and _WHOLE.fullmatch(whole) else word


def _open(path: Path) -> IO[Any]:
    packed = path.name.lower().endswith(".gz")
    return gzip.open(path, "rb") if packed else path.open("rb")  # type: ignore[return-value]


def read(cell: str, decimal: str = ".") -> float:
    """The number that a cell holds; ValueError where it holds none, or a point among decimal commas, perhaps of thousands."""
    if decimal == ".":
        return float(cell)
    if "." in cell:
        raise ValueError("a point, where decimals have commas")
    return float(cell.replace(decimal, ".", 1))


def has_decimal_comma(cell: str) -> bool:
    """Whether a cell looks like a number with a decimal comma."""
    return "," in cell and _DECIMAL_COMMA.fullmatch(cell.strip()) is not None


def suffix(path: Path) -> str:
    """What a file's name says that it is: ".csv", or ".csv.gz"."""
    name = path.name.lower()
    return Path(name.removesuffix(".gz")).suffix + ".gz" if name.endswith(".gz") else Path(name).suffix


def stem(path: Path) -> str:
    """What a client is called whose file this is."""
    return (Path(path.name[:-3]) if path.name.lower().endswith(".gz") else path).stem.removesuffix(".X")
