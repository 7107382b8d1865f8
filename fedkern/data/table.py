"""Reads a data holder's file into named columns: csv (or csv.gz), parquet, npz, or a pair of npy files (memory-mapped).

A fault of the file as a whole (no such file, no header, a column twice) is a `JobError`; the text with its place in the file is
an `OwnFault`, for the first line of a file that lacks its header is a row. A fault of a row is only noted here: whether it ends
the job depends on the job (`data.design`).
"""

from __future__ import annotations

import csv
import os
import re
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import JobError, OwnFault
from . import plain_text
from .cells import PADDED, Cells, Text, as_text, days, labels, ordered, plain, truths, typed, worded
from .dialect import Dialect, stem, suffix
from .dialect import read as read_number

__all__ = ["Table", "Text", "files_of", "find", "header", "load"]

PLAIN = Dialect()
BESIDE = "fedkern-policy.toml"  # a holder's policy for the data of the folder that it lies in: no data itself
LONGEST_HEADER = 1 << 24  # bytes
INDEX = re.compile("__index_level_[0-9]+__")  # as pandas calls the numbers of rows, which are no column in memory either
NUMBERS = ("int", "uint", "float", "half", "double", "decimal", "bool", "null")  # types in parquet files; null: no value at all
READABLE = "see whether it is a file of text, and may be read"
ENCODED = "see whether it is what its name says, and in the encoding that [data.dialect] says"


class Uneven(str):
    """Says that a line has more cells, or fewer, than the header."""

    __slots__ = ("cells", "header")
    cells: int
    header: int

    def __new__(cls, cells: int, header: int) -> Uneven:
        text = super().__new__(cls, f"has {cells} cells, the header {header}")
        text.cells, text.header = cells, header
        return text

    def __reduce__(self) -> tuple[type[Uneven], tuple[int, int]]:
        return Uneven, (self.cells, self.header)


@dataclass(frozen=True)
class Table:
    """Holds named columns of equal length.

    `columns`: name -> values (n,), or `Text`. `matrix`: if all covariates are one array (npy, npz), that array, whose columns
    `matrix_names` names; `columns` then holds views of it. `broken`: row -> the fault of the whole row. `texts`: columns whose
    type in the file is not a number (csv files have no types). `dates`: those whose type is of dates, in days. `incomplete`: rows
    that lack a cell, if that was asked. `whole`: (n,) of a part of a table, the number of each row in the whole.
    """

    source: str
    names: tuple[str, ...]
    columns: Mapping[str, Cells]
    n_rows: int
    matrix: np.ndarray | None = None
    matrix_names: tuple[str, ...] = ()
    broken: Mapping[int, str] = field(default_factory=dict)
    lines: Sequence[int] | None = None  # csv: line of each row in the file
    texts: frozenset[str] = frozenset()
    dates: frozenset[str] = frozenset()
    incomplete: int | None = None
    whole: NDArray[np.int64] | None = None

    def place(self, row: int) -> str:
        """Returns where a person finds this row."""
        if self.lines is not None:
            return f"line {self.lines[row]}"
        return f"row {(row if self.whole is None else self.whole[row]) + 1}"

    def text(self, name: str, row: int) -> str:
        """Returns the cell as a person would write it, for the holder."""
        column = self.columns[name]
        return column.shown(row) if isinstance(column, Text) else plain(column[row].item()) or "nan"

    def cells(self, name: str) -> list[str]:
        """Returns a column as labels, row by row; a missing number is empty."""
        column = labels(self.columns[name])
        return [column.levels[code] for code in column.codes]

    def select(self, rows: NDArray[np.int64], source: str | None = None) -> Table:
        """Returns these rows only, in this order (a copy)."""
        rows = np.asarray(rows, dtype=np.int64)
        columns: dict[str, Cells] = {}
        for name, column in self.columns.items():
            columns[name] = column.select(rows) if isinstance(column, Text) else column[rows]
        place = {int(row): i for i, row in enumerate(rows)} if self.broken else {}
        broken = {place[row]: reason for row, reason in self.broken.items() if row in place}
        lines = None if self.lines is None else [self.lines[row] for row in rows]
        whole = rows if self.whole is None else self.whole[rows]
        return Table(
            source or self.source, self.names, columns, len(rows), broken=broken, lines=lines, dates=self.dates, whole=whole
        )


def load(path: str | Path, *, text: Collection[str] = (), response: str = "y", dialect: Dialect = PLAIN) -> Table:
    """Reads one file. Raises JobError: no such file, an unknown type, no header, a column without a name or twice, arrays of
    different lengths, or an optional package is missing.

    Parameters
    ----------
    path
        `x.csv` (or .tsv, and either with .gz), `x.parquet`, `x.npz` (members of one dimension are columns; a matrix `X` is one
        column for each of its own, named by a member `columns`, else x1, x2, ...), `x.X.npy` with `x.y.npy` beside it, or a
        folder with `X.npy` and `y.npy` (names of X's columns may stand in `x.columns.txt` or `columns.txt`, one a line). npy
        files are mapped, not read.
    text
        Columns whose cells are kept as they are written even where all look like numbers (categories, row ids).
    response
        The name that y gets in npy pairs.
    dialect
        Of text files.
    """
    path = Path(path)
    read: Callable[[Path, frozenset[str], str, Dialect], Table] = _READERS[_type(path)][1]
    return read(path, frozenset(text), response, dialect)


def as_written(table: Table) -> list[bytes] | None:
    """Returns the line of each row as it stands in the file, or None for a table that was read from no text."""
    path = Path(table.source)
    if table.lines is None or not path.is_file():
        return None
    with _reading(path, "can't be read", READABLE):
        lines = _lines_of(PLAIN.bytes_of(path)).split(b"\n")
    return [lines[line - 1] if line <= len(lines) else b"" for line in table.lines]


def header(path: str | Path, *, response: str = "y", dialect: Dialect = PLAIN) -> tuple[str, ...]:
    """Returns the names of the columns without reading a row."""
    path = Path(path)
    names: Callable[[Path, str, Dialect], tuple[str, ...]] = _READERS[_type(path)][0]
    return names(path, response, dialect)


def find(patterns: Sequence[str], folder: str | Path = ".") -> dict[str, Path]:
    """Returns client name -> file, sorted by name, for the files that match the patterns.

    A client's name is the part of its file's name before the first type suffix. Raises JobError: a pattern matches nothing, or
    two files have one name.
    """
    folder, file_of = Path(folder), dict[str, Path]()
    for pattern in patterns:
        plain = Path(pattern)
        root, relative = (Path(plain.anchor), plain.relative_to(plain.anchor)) if plain.is_absolute() else (folder, plain)
        try:
            paths = sorted(path for path in root.glob(str(relative)) if not path.name.endswith((".y.npy", ".columns.txt")))
        except (ValueError, NotImplementedError, re.error) as error:
            raise JobError(f"[data] clients: {pattern!r} is no pattern of files ({error})") from None
        paths = [path for path in paths if not path.name.startswith(".") and path.name != BESIDE]
        if not paths:
            raise JobError(f"[data] clients: no file matches {pattern!r} in {folder.resolve()}; check the pattern")
        for path in paths:
            name = path.name.removesuffix(".X.npy") if path.name.endswith(".X.npy") else stem(path)
            if name in file_of and file_of[name] != path:
                raise JobError(f"[data] clients: {file_of[name]} and {path} would both be client {name!r}; rename one")
            file_of[name] = path
    return dict(sorted(file_of.items()))


def files_of(path: Path) -> tuple[Path, ...]:
    """Returns all files that are read with a data file: itself, and the other arrays of an npy pair or a folder."""
    if os.path.isdir(path) or path.name == "X.npy" or path.name.endswith(".X.npy"):
        return tuple(dict.fromkeys((path, *_npy_paths(path)[:2])))
    return (path,)


def _type(path: Path) -> str:
    """Returns the type of a file; raises JobError if it does not exist or its type is unknown."""
    if not plain_text.is_there(path):
        raise JobError(f"{path}: no such file on this machine; every client's rank needs its own client's file")
    kind = "folder" if path.is_dir() else suffix(path)
    if kind not in _READERS:
        raise JobError(f"{path}: unknown type {kind!r}; there are csv, tsv (both also .gz), parquet, npz, and X.npy with y.npy")
    return kind


def _fault(path: Path, what: str, detail: str, remedy: str) -> OwnFault:
    """Returns the error for a faulty file: in words for all parties, and with its content for its owner."""
    return OwnFault(f"{path.name}: {what}; {remedy}", f"{path}: {detail}; {remedy}")


@contextmanager
def _reading(path: Path, what: str, remedy: str) -> Iterator[None]:
    """Turns any error of a library that reads a file into an OwnFault, since its text may quote the file."""
    try:
        yield
    except JobError:
        raise
    except Exception as error:
        raise _fault(path, what, f"{what} ({' '.join(str(error).split())})", remedy) from None


def _checked_names(path: Path, names: Sequence[str]) -> tuple[str, ...]:
    before = set[str]()
    for k, name in enumerate(names):
        if not name:
            title = len(names) > 2 and not any(names[1:])  # a spreadsheet's, with the commas of all columns
            remedy = "name it in the header (or write the file without a row index)"
            remedy = "the first line seems to be a title: remove what stands above the header" if title else remedy
            raise _fault(path, "a column has no name", f"column {k + 1} has no name", remedy)
        if name in before:
            raise _fault(path, "two columns have one name", f"two columns are called {name!r}", "rename one")
        before.add(name)
        if "\0" in name:
            raise _fault(path, "a column's name has a NUL in it", f"column {k + 1} is called {name!r}, with a NUL", "rename it")
    if not names:
        raise _fault(path, "no header", "no header", "the first line must name the columns")
    return tuple(names)


# csv: one line is one row, so that a stray quote spoils its own row and no other. The first line says how lines end: LF, CR LF,
# or CR alone, as old Macs and some exports write them.


def _lines_of(content: bytes) -> bytes:
    """Returns the content with LF for every line end."""
    place = content.find(b"\r")
    if place < 0 or 0 <= content.find(b"\n") <= place + 1:  # CR LF, or a CR inside of lines that end with LF
        return content
    return content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _first_line(path: Path, dialect: Dialect, block: int = 1 << 14) -> bytes:
    """Returns the file up to the first line end; a file of one enormous line is not read to its end."""
    content = b""
    with dialect.reader(path) as file:
        while (more := file.read(block)) and len(content) < LONGEST_HEADER:
            content += more
            if b"\n" in more or b"\r" in more[:-1]:
                break
    return _lines_of(content).partition(b"\n")[0]


def _cells(line: str, delimiter: str) -> list[str]:
    if (fault := plain_text.fault(line)) is not None:
        raise csv.Error(fault)
    if '"' not in line:
        return line.split(delimiter)
    return next(csv.reader([line], delimiter=delimiter, skipinitialspace=True, strict=True), [])


def _csv_names(path: Path, line: bytes, dialect: Dialect) -> tuple[str, ...]:
    plain_text.check_header(path, line, dialect.between(path))
    try:
        cells = _cells(line.decode("utf-8-sig").rstrip("\r\n"), dialect.between(path))
        return _checked_names(path, [plain_text.canonical(cell) for cell in cells])
    except (UnicodeDecodeError, csv.Error) as fault:
        what = "the header can't be read"
        raise _fault(path, what, f"{what} ({fault})", "save the file as UTF-8 text") from None


def _csv_header(path: Path, response: str, dialect: Dialect) -> tuple[str, ...]:
    with _reading(path, "can't be read", READABLE if dialect.encoding is None else ENCODED):
        line = _first_line(path, dialect)
    return _csv_names(path, line, dialect) if line.strip() else _checked_names(path, [])


def _csv(path: Path, text: frozenset[str], response: str, dialect: Dialect) -> Table:
    with _reading(path, "can't be read", READABLE if dialect.encoding is None else ENCODED):
        content = dialect.bytes_of(path)
    first, _, body = _lines_of(content).partition(b"\n")
    names = _csv_names(path, first, dialect) if first.strip() else _checked_names(path, [])
    delimiter, width = dialect.between(path), len(names)
    text_body = plain_text.decoded(body)
    written = [(number, line) for number, line in enumerate(text_body.split("\n"), start=2) if line and not line.isspace()]
    lines, texts = [number for number, _ in written], [line for _, line in written]
    # The fast way first: a file of numbers alone needs no cells, unless some may be codes (01).
    cells_needed = bool(text & set(names)) or not dialect.plain or PADDED.search(text_body) is not None
    numbers = None if cells_needed else _all_numbers(texts, delimiter, width)
    if numbers is not None:
        return Table(str(path), names, dict(zip(names, numbers)), len(lines), lines=lines)
    # The careful way keeps broken rows, with their reason, so that all can be named at once.
    rows: list[list[str]] = []
    broken: dict[int, str] = {}
    for line in texts:
        try:
            cells = _cells(line, delimiter)
        except csv.Error as fault:
            broken[len(rows)] = f"can't be read ({fault})"
            cells = _ends(line, delimiter, width)
        if len(cells) != width:
            broken.setdefault(len(rows), Uneven(len(cells), width))
            cells = _outer(cells, width)
        rows.append(cells)
    careful = "_" in text_body
    by_column: Sequence[Sequence[str]] = [*zip(*rows)] if rows else [()] * width
    if not dialect.plain:
        by_column = [*map(dialect.cells, by_column)]
    columns = {name: _column(cells, name in text, careful, dialect.decimal) for name, cells in zip(names, by_column)}
    return Table(str(path), names, columns, len(rows), broken=broken, lines=lines)


# Of a line that cannot be read its ends can, where what names the row mostly stands: in a private job such a row counts as
# nothing, and is the same row as the other parties' all the same.


def _outer(cells: list[str], width: int) -> list[str]:
    """Returns the cells of a line with too many of them, or too few, taken from both ends."""
    kept = min(len(cells), width)
    left = (kept + 1) // 2
    return [*cells[:left], *[""] * (width - kept), *cells[len(cells) - kept + left :]]


def _ends(line: str, delimiter: str, width: int) -> list[str]:
    """Returns the first and the last cell of a line with odd quotes or letters, if these are sound; all others are empty."""
    first, *_, last = [*line.split(delimiter), ""] if delimiter not in line else line.split(delimiter)
    ends = [cell.strip().removeprefix('"').removesuffix('"') for cell in (first, last)]
    first, last = ("" if '"' in cell or plain_text.fault(cell) else cell for cell in ends)
    return [first, *[""] * (width - 2), last][:width]


def _all_numbers(lines: list[str], delimiter: str, width: int) -> NDArray[np.float64] | None:
    """Returns columns (width, n) of a file of nothing but numbers, by NumPy's parser (twice as fast); None for any other file."""
    try:
        rows = np.loadtxt(lines, delimiter=delimiter, comments=None, ndmin=2) if lines else np.empty((0, width))
    except ValueError:
        return None
    return np.ascontiguousarray(rows.T) if rows.shape[1] == width else None


def _column(cells: Sequence[str], keep: bool, careful: bool, decimal: str) -> NDArray[np.float64] | Text:
    if not keep and not (careful and any("_" in cell for cell in cells)):
        try:
            values = map(float, cells) if decimal == "." else (read_number(cell, decimal) for cell in cells)
            numbers = np.array([*values], dtype=np.float64)
        except ValueError:
            return as_text(cells, decimal)
        if not any(map(PADDED.search, cells)) or not (text := as_text(cells, decimal)).coded:
            return numbers
        return text
    return as_text(cells, decimal)


# Arrays with types of their own.


def _typed(path: Path, name: str, values: np.ndarray, keep: bool) -> Cells:
    """Returns a column from a typed array: numbers stay numbers unless they are wanted as text."""
    if values.dtype.kind == "b":
        return truths(values.tolist())
    if values.dtype.kind in "fiu" and not keep:
        return values if values.dtype in (np.float64, np.float32) else values.astype(np.float64)
    if values.dtype.kind in "fiuUOT":
        return worded(typed(values.tolist(), values.dtype.itemsize < 8))
    detail = f"column {name!r} has type {values.dtype}"
    raise _fault(path, "a column has another type", detail, "numbers, truth values and texts can be used")


def _same_length(path: Path, columns: Mapping[str, Cells]) -> int:
    lengths = {name: len(column.codes if isinstance(column, Text) else column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {n}" for name, n in lengths.items())
        what = "columns of different lengths"
        raise _fault(path, what, f"{what}: {listed}", "every column needs a value for every row")
    return next(iter(lengths.values()))


def _parquet_module(path: Path) -> Any:
    try:
        import pyarrow.parquet as parquet
    except ImportError as fault:
        raise JobError(f"{path}: parquet files need pyarrow; pip install 'fedkern[parquet]', or save the file as csv") from fault
    return parquet


def _parquet_header(path: Path, response: str, dialect: Dialect) -> tuple[str, ...]:
    parquet = _parquet_module(path)
    with _reading(path, "not a parquet file", "write it anew"):
        names = parquet.read_schema(path).names
        return _checked_names(path, [name for name in names if not INDEX.fullmatch(name)])


def _parquet(path: Path, text: frozenset[str], response: str, dialect: Dialect) -> Table:
    names = _parquet_header(path, response, dialect)
    columns: dict[str, Cells] = {}
    texts, dates = set(), set()
    with _reading(path, "not a parquet file that can be read", "write it anew"):
        data = _parquet_module(path).read_table(path)
        for name in names:
            column = data.column(name)
            kind = str(column.type)
            number, dated = kind.startswith(NUMBERS), kind.startswith(("date", "timestamp"))
            if not number and not dated:
                texts.add(name)
            if kind == "bool":
                columns[name] = truths(column.to_pylist())
            elif number and name not in text:
                columns[name] = column.cast("float64", safe=False).to_numpy()
            elif dated and name not in text:
                columns[name] = days(column.to_pylist())
                dates.add(name)
            elif kind.startswith("dictionary") and column.type.ordered:
                chunks = column.unify_dictionaries().chunks
                columns[name] = ordered(column.to_pylist(), chunks[0].dictionary.to_pylist() if chunks else ())
            else:
                cells = typed(column.to_pylist(), kind in ("float", "halffloat"))
                columns[name] = replace(cells, category=True) if kind.startswith("dictionary") else worded(cells)
    return Table(str(path), names, columns, data.num_rows, texts=frozenset(texts), dates=frozenset(dates))


def _npz(path: Path, text: frozenset[str], response: str, dialect: Dialect) -> Table:
    columns: dict[str, Cells] = {}
    matrix: np.ndarray | None = None
    matrix_names: tuple[str, ...] = ()
    members = _npz_members(path)
    for member, values in members.items():
        if values.ndim == 2 and member == "X":
            matrix, matrix_names = values, _matrix_names(path, values.shape[1], members.get("columns"))
            columns |= _matrix_columns(path, matrix, matrix_names, text)
        elif values.ndim == 1 and not (member == "columns" and "X" in members):
            columns[member] = _typed(path, member, values, member in text)
        elif values.ndim != 1:
            detail = f"member {member!r} has shape {values.shape}"
            raise _fault(path, "a member has another shape", detail, "a column needs (n,), and only X may be (n, p)")
    names = _checked_names(path, list(columns))
    texts = frozenset(name for name, values in members.items() if values.ndim == 1 and values.dtype.kind not in "fiub")
    return Table(str(path), names, columns, _same_length(path, columns), matrix, matrix_names, texts=texts & set(names))


def _npz_members(path: Path) -> dict[str, np.ndarray]:
    with (
        _reading(path, "not a npz file of plain arrays", "write it with numpy.savez"),
        path.open("rb") as file,
        np.load(file, allow_pickle=False) as archive,
    ):
        return {name: archive[name] for name in archive.files}


def _npz_header(path: Path, response: str, dialect: Dialect) -> tuple[str, ...]:
    names: list[str] = []
    with (
        _reading(path, "not a npz file of plain arrays", "write it with numpy.savez"),
        zipfile.ZipFile(path) as archive,
        path.open("rb") as whole,
        np.load(whole, allow_pickle=False) as arrays,
    ):
        for member in arrays.files:
            if member == "X":
                with archive.open("X.npy") as file:
                    shape = _npy_shape(file)
                names += _matrix_names(path, shape[-1], arrays["columns"] if "columns" in arrays.files else None)
            elif not (member == "columns" and "X" in arrays.files):
                names.append(member)
    return _checked_names(path, names)


def _npy_shape(file: Any) -> tuple[int, ...]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return read(file)[0]


def _matrix_names(path: Path, p: int, given: Any = None) -> tuple[str, ...]:
    names = [f"x{j + 1}" for j in range(p)] if given is None else [str(name).strip() for name in given]
    if len(names) != p:
        detail = f"{len(names)} column names for an X of {p} columns"
        raise _fault(path, "not as many column names as X has columns", detail, "give each column its name")
    return _checked_names(path, names)


def _matrix_columns(path: Path, matrix: np.ndarray, names: tuple[str, ...], text: frozenset[str]) -> dict[str, Cells]:
    whole = matrix.view(np.uint8) if matrix.dtype.kind == "b" else matrix  # a matrix is of numbers
    return {name: _typed(path, name, whole[:, j], name in text) for j, name in enumerate(names)}


def _npy_paths(path: Path) -> tuple[Path, Path, Path]:
    """Returns the paths of X, y, and the names of X's columns."""
    if path.is_dir():
        return path / "X.npy", path / "y.npy", path / "columns.txt"
    if not path.name.endswith(".X.npy") and path.name != "X.npy":
        raise JobError(f"{path}: needs a name that ends in .X.npy, with .y.npy beside it")
    stem = path.name.removesuffix("X.npy")
    return path, path.with_name(f"{stem}y.npy"), path.with_name(f"{stem}columns.txt")


def _npy_map(path: Path) -> np.ndarray:
    if not plain_text.is_there(path):
        raise JobError(f"{path}: no such file on this machine; X.npy and y.npy belong together")
    with _reading(path, "not a npy file of a plain array", "write it with numpy.save"):
        return np.load(path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]


def _npy_parts(path: Path, response: str) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    x_path, y_path, names_path = _npy_paths(path)
    matrix, y = _npy_map(x_path), _npy_map(y_path)
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiub":
        detail = f"needs numbers of shape (n, p), got {matrix.dtype} {matrix.shape}"
        raise _fault(x_path, "needs numbers of shape (n, p)", detail, "write X anew")
    if y.shape != matrix.shape[:1]:
        detail = f"needs shape ({len(matrix)},) as X has {len(matrix)} rows, got {y.shape}"
        raise _fault(y_path, "needs one value for each row of X", detail, "write both anew")
    with _reading(names_path, "can't be read", "save the names as UTF-8 text"):
        given = names_path.read_text("utf-8").split("\n") if names_path.exists() else None
    names = _matrix_names(x_path, matrix.shape[1], None if given is None else [line for line in given if line.strip()])
    _checked_names(path, [*names, response])
    return matrix, y, names


def _npy_header(path: Path, response: str, dialect: Dialect) -> tuple[str, ...]:
    return (*_npy_parts(path, response)[2], response)


def _npy(path: Path, text: frozenset[str], response: str, dialect: Dialect) -> Table:
    matrix, y, names = _npy_parts(path, response)
    columns = _matrix_columns(path, matrix, names, text) | {response: _typed(path, response, y, response in text)}
    return Table(str(path), (*names, response), columns, len(matrix), matrix, names)


_READERS: dict[str, tuple[Any, Any]] = {
    ".csv": (_csv_header, _csv),
    ".tsv": (_csv_header, _csv),
    ".csv.gz": (_csv_header, _csv),
    ".tsv.gz": (_csv_header, _csv),
    ".parquet": (_parquet_header, _parquet),
    ".npz": (_npz_header, _npz),
    ".npy": (_npy_header, _npy),
    "folder": (_npy_header, _npy),
}
