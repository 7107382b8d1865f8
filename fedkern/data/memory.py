"""Reads rows that lie in memory, as the table that a file with the same cells would be.

Data frames (pandas, polars, pyarrow) come through narwhals; a dictionary has a column under each name. Arrays are a matrix X with
one response for each row, or X alone, from NumPy or any library that offers `__dlpack__` on the CPU. No text of an error shows a
cell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import JobError, OwnFault
from . import mark as marks
from .cells import Cells, Text, days, missing, ordered, truths, typed, worded
from .plain_text import LOST, canonical
from .table import Table

__all__ = ["files", "header", "mark", "table"]

WANTED = "give a data frame (pandas, polars or pyarrow), a dictionary of columns, or arrays (X, y)"
PAIR = "give one data frame that has y as a column, or arrays: (X.to_numpy(), y.to_numpy())"
CPU = 1  # kDLCPU


Used = Callable[[str], bool]


def table(
    held: object, source: str, *, text: frozenset[str] = frozenset(), response: str = "y", used: Used = lambda name: True
) -> Table:
    """Returns rows in memory as a table.

    Parameters
    ----------
    held : a data frame; a dictionary, name -> array or list of its cells; (X, y), arrays of (n, p) and (n,) whose columns are x1,
        x2, ... and `response`; or X alone
    source : its name in errors
    text : columns that are kept as texts even where all look like numbers
    response : the name that y gets
    used : whether a column's cells may be read; one of lists, or of another odd type, is left out of the table where they are not

    Raises
    ------
    JobError
        It is no table, a used column has a type that none can be made of, a column no name or that of another, or arrays differ
        in length.
    """
    if (frame := _frame(held, source)) is not None:
        names = _names(frame.columns, source)
        series = {name: frame[:, column] for name, column in names.items()}
        columns = _readable(series, used, lambda name, values: _column(values, name, source, name in text))
        dates = frozenset(name for name, values in series.items() if _dates(values)) & columns.keys()
        texts = frozenset(name for name, values in series.items() if not _numbers(values)) & columns.keys() - dates
        return Table(source, tuple(columns), columns, len(frame), broken=_lost(columns), texts=texts, dates=dates)
    if isinstance(held, Mapping):
        return _of_columns(held, source, text, used)
    X, y = _arrays(held, source)
    columns = dict(zip(_numbered(X), (_array_column(X[:, j], f"x{j + 1}" in text) for j in range(X.shape[1]))))
    if y is not None:
        columns[response] = _array_column(y, response in text)
    return Table(source, tuple(columns), columns, len(X))


def header(held: object, source: str, *, response: str = "y") -> tuple[str, ...]:
    """Returns the names of the columns; raises JobError as `table` does."""
    if (frame := _frame(held, source)) is not None:
        return tuple(_names(frame.columns, source))
    if isinstance(held, Mapping):
        return tuple(_names(held, source))
    X, y = _arrays(held, source)
    return (*_numbered(X), *([] if y is None else [response]))


def mark(held: object) -> str | None:
    """Returns the fingerprint of rows in memory (`mark.of_rows`), whatever a job says of them; None if they are no table."""
    try:
        if (frame := _frame(held, "")) is None:
            return marks.of_rows(table(held, "", response=marks.RESPONSE, used=lambda name: False))
        series = {name: frame[:, column] for name, column in _names(frame.columns, "").items()}
        columns = _readable(series, lambda name: False, lambda name, values: _column(values, name, "", keep=False))
        return marks.of_rows(Table("", tuple(columns), columns, len(frame)))
    except JobError:  # reading the rows says so
        return None


def files(held: object) -> tuple[Path, ...]:
    """Returns the files of which rows in memory are maps, be they parts of one or in a frame; none for rows that were copied."""
    return tuple(dict.fromkeys(path for array in _parts(held) if (path := _mapped(array)) is not None))


def _parts(held: object) -> Iterator[Any]:
    """Yields the arrays of which rows in memory are made, as far as they can be had without a copy."""
    if isinstance(held, tuple | np.ndarray) or _is_plain(held):
        yield from held if isinstance(held, tuple) else held.values() if isinstance(held, Mapping) else (held,)
        return
    try:
        frame = _frame(held, "")
        for series in () if frame is None else frame.iter_columns():
            yield series.to_numpy() if series.dtype.is_numeric() else None
    except JobError:  # reading the rows says so
        return


def _mapped(array: object) -> Path | None:
    """Returns the file of a memory map, through all arrays that were made of it without a copy."""
    while array is not None:
        if isinstance(array, np.memmap) and array.filename is not None:
            return Path(array.filename)
        array = array.obj if isinstance(array, memoryview) else getattr(array, "base", None)
    return None


def kind(held: object) -> str:
    """Describes an object by its type alone."""
    form = type(held)
    return f"a value of type {form.__qualname__ if form.__module__ == 'builtins' else f'{form.__module__}.{form.__qualname__}'}"


# Data frames


def _frame(held: object, source: str) -> Any:
    """Returns an object as narwhals has it, or None if it is no data frame."""
    if isinstance(held, tuple | np.ndarray) or _is_plain(held):
        return None
    import narwhals as nw

    try:
        return nw.from_native(held, eager_only=True)
    except TypeError:
        if hasattr(held, "collect"):
            raise JobError(f"{source}: {kind(held)} has not been computed yet; give what its .collect() returns") from None
        return None
    except Exception:  # narwhals' words on what it cannot read: of names that are there twice, say
        names = [str(name) for name in getattr(held, "columns", ())]
        if twice := next((name for k, name in enumerate(names) if name in names[:k]), None):
            raise JobError(f"{source}: two columns are called {twice!r}; rename one") from None
        raise JobError(f"{source}: {kind(held)} that cannot be read; {WANTED}") from None


def _is_plain(held: object) -> bool:
    return held is None or isinstance(held, str | bytes | bool | int | float | list | dict | set | Mapping)


def _series(raw: object) -> Any:
    """Returns a column of a data frame as narwhals has it, or None if it is none; narwhals is imported where it may be one."""
    if isinstance(raw, list | np.ndarray):
        return None
    import narwhals as nw

    series = nw.from_native(raw, series_only=True, pass_through=True)
    return series if isinstance(series, nw.Series) else None


def _of_columns(held: Mapping[Any, object], source: str, text: frozenset[str], used: Used) -> Table:
    """Returns the table of a dictionary of columns."""
    given, texts, dates = [*held.values()], set[str](), set[str]()

    def column(name: str, raw: object) -> Cells:
        if (series := _series(raw)) is not None:
            cells = _column(series, name, source, name in text)
            if not _numbers(series) and isinstance(cells, Text):
                texts.add(name)
            if _dates(series):
                dates.add(name)
            return cells
        values = _array(np.array(raw) if isinstance(raw, list) else raw, f"{source}: column {name!r}", "OUfiub")
        if values.ndim != 1:
            raise JobError(f"{source}: column {name!r} has {values.ndim} dimensions; a column is one row of cells")
        if values.dtype.kind == "O" and name not in text and _are_dates(values.tolist()):
            dates.add(name)
            return days(values.tolist())
        if values.dtype.kind in "OU":
            texts.add(name)
        if values.dtype.kind == "O":
            return _objects(values.tolist(), name, source, name in text)
        return truths(values.tolist()) if values.dtype.kind == "b" else _array_column(values, name in text)

    columns = _readable({name: given[k] for name, k in _names(held, source).items()}, used, column)
    sizes = {len(cells.codes if isinstance(cells, Text) else cells) for cells in columns.values()}
    if len(sizes) > 1:
        text_of_all = f"{source}: columns have different lengths; every column needs a cell for every row"
        raise OwnFault(text_of_all, f"{text_of_all}; there are columns of {', '.join(map(str, sorted(sizes)))} cells")
    return Table(
        source,
        tuple(columns),
        columns,
        sizes.pop(),
        broken=_lost(columns),
        texts=frozenset(texts & columns.keys()),
        dates=frozenset(dates & columns.keys()),
    )


def _readable(given: Mapping[str, Any], used: Used, read: Callable[[str, Any], Cells]) -> dict[str, Cells]:
    """Returns the columns that can be read; raises what is wrong with another one only if it is used."""
    columns: dict[str, Cells] = {}
    for name, cells in given.items():
        try:
            columns[name] = read(name, cells)
        except (JobError, OwnFault):
            if used(name):
                raise
    return columns


def _names(columns: Iterable[object], source: str) -> dict[str, int]:
    """Returns name -> place, with names in the one way in which they are written: a number as a name would be taken for a
    row's.
    """
    names: dict[str, int] = {}
    for column, given in enumerate(columns):
        if isinstance(given, bool) or not isinstance(given, str | int):
            raise JobError(f"{source}: column {column + 1} is named by {kind(given)}; name columns by texts")
        if not (name := canonical(str(given))) or "\0" in name:
            raise JobError(f"{source}: column {column + 1} has no name; name it")
        if name in names:
            raise JobError(f"{source}: two columns are called {name!r}; rename one")
        names[name] = column
    if not names:
        raise JobError(f"{source}: has no columns; {WANTED}")
    return names


def _numbers(series: Any) -> bool:
    """Tells whether a column's type is of numbers or truth values."""
    return bool(series.dtype.is_numeric()) or str(series.dtype) == "Boolean"


def _dates(series: Any) -> bool:
    """Tells whether a column's type is of dates, or all of its objects are dates."""
    return str(series.dtype).startswith("Date") or (str(series.dtype) == "Object" and _are_dates(series.to_list()))


def _are_dates(cells: Sequence[object]) -> bool:
    types = {type(cell) for cell in cells if not missing(cell)}
    return bool(types) and all(issubclass(type_of, date) for type_of in types)


def _column(series: Any, name: str, source: str, keep: bool) -> Cells:
    """Returns a column of a data frame. `keep`: as texts."""
    dtype = str(series.dtype)
    if dtype == "Boolean":
        return truths(series.to_list())
    if _numbers(series):
        import narwhals as nw

        if keep:
            return typed(series.to_list(), dtype == "Float32")
        return np.ascontiguousarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64)
    if _dates(series):
        return typed(series.to_list()) if keep else days(series.to_list())
    if dtype == "Object":
        return _objects(series.to_list(), name, source, keep)
    if (order := _order(series)) is not None:
        return ordered(series.to_list(), order)
    if dtype.startswith(("Categorical", "Enum")):
        return replace(typed(series.to_list()), category=True)
    if dtype.startswith(("String", "Date", "Time", "Null")):
        return worded(typed(series.to_list()))
    kind = getattr(series.to_native(), "dtype", dtype) if dtype == "Unknown" else dtype
    remedy = "numbers, truth values and texts can be used; leave others out (their term, or by data.ignore)"
    raise JobError(f"{source}: column {name!r} has type {kind}; {remedy}")


def _order(series: Any) -> Sequence[object] | None:
    """Returns the levels of a column whose type gives them an order; None of any other."""
    if (levels := getattr(series.dtype, "categories", None)) is not None:
        return tuple(levels)
    native = series.to_native()
    if getattr(getattr(native, "type", None), "ordered", False):  # of pyarrow
        chunks = native.unify_dictionaries().chunks
        return tuple(chunks[0].dictionary.to_pylist()) if chunks else ()
    return None


def _lost(columns: Mapping[str, Cells]) -> dict[int, str]:
    """Returns rows with a character that stands for lost letters: as in a file, two levels might differ in them alone."""
    rows: set[int] = set()
    for column in columns.values():
        if isinstance(column, Text) and any("\ufffd" in level for level in column.levels):
            lost = np.array(["\ufffd" in level for level in column.levels])[column.codes]
            rows |= {*np.flatnonzero(lost).tolist()}
    return dict.fromkeys(sorted(rows), LOST)


def _objects(cells: list[Any], name: str, source: str, keep: bool) -> Cells:
    """Returns a column of Python objects: all numbers or all texts, and missing ones."""
    classes = {type(cell) for cell in cells if not missing(cell)}
    if classes and all(issubclass(class_, bool | np.bool_) for class_ in classes):
        return truths(cells)
    if all(issubclass(class_, int | float | Decimal | np.number | np.bool_) for class_ in classes):
        if not keep:
            return np.array([np.nan if missing(cell) else float(cell) for cell in cells], dtype=np.float64)
    elif not all(issubclass(class_, str) for class_ in classes):
        types = " and ".join(sorted(class_.__name__ for class_ in classes))
        remedy = "make it a column of numbers, or of texts, or leave it out (its term, or by data.ignore)"
        text = f"{source}: column {name!r} holds objects ({types}); {remedy}"
        rarest = min(classes, key=lambda class_: sum(type(cell) is class_ for cell in cells))
        row = next(i for i, cell in enumerate(cells) if type(cell) is rarest)
        raise OwnFault(text, f"{source}, row {row + 1}, column {name!r}: {cells[row]!r} among {types}; {remedy}")
    return worded(typed(cells))


# Arrays


def _numbered(X: np.ndarray) -> tuple[str, ...]:
    return tuple(f"x{j + 1}" for j in range(X.shape[1]))


def _arrays(held: object, source: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns X (n, p) and y (n,), or None."""
    parts = held if isinstance(held, tuple) else (held, None)
    if len(parts) != 2:
        raise JobError(f"{source}: a tuple of {len(parts)} is no table; {WANTED}")
    X = _array(parts[0], f"{source}: X" if isinstance(held, tuple) else source)
    y = None if parts[1] is None else _array(parts[1], f"{source}: y")
    if X.ndim != 2:
        text = f"{source}: X has {X.ndim} dimensions; it needs two, a row for each person and a column for each covariate"
        raise OwnFault(
            text, f"{source}: X has shape {X.shape}; it needs (n, p), a row for each person and a column for each covariate"
        )
    if not X.shape[1]:
        raise JobError(f"{source}: X has no columns; {WANTED}")
    if y is not None and y.shape != X.shape[:1]:
        text = f"{source}: y has not one value for each row of X"  # how many rows there are is nobody else's business
        raise OwnFault(text, f"{source}: y has shape {y.shape}; it needs ({len(X)},), one value for each row of X")
    return X, y


def _array(values: object, who: str, kinds: str = "fiubU") -> np.ndarray:
    if not isinstance(values, np.ndarray):
        if not hasattr(values, "__dlpack__"):
            if hasattr(values, "to_numpy"):  # a data frame in a pair, or a column
                raise JobError(f"{who}: {kind(values)}; {PAIR}")
            raise JobError(f"{who}: {kind(values)} is no table; {WANTED}")
        values = _from_dlpack(values, who)
    if values.dtype.kind not in kinds:
        raise JobError(f"{who}: has type {values.dtype}; it needs numbers")
    if isinstance(values, np.ma.MaskedArray):
        if values.dtype.kind == "U":
            raise JobError(f"{who}: a masked array of texts; give a data frame, in which a missing cell is null")
        return np.asarray(np.ma.filled(values.astype(np.float64), np.nan))  # what is masked is missing
    return np.asarray(values)


def _from_dlpack(values: Any, who: str) -> np.ndarray:
    """Returns the array, without a copy."""
    try:
        if hasattr(values, "is_neg") and values.is_neg():  # torch 2.13 exports the memory, which holds minus the values
            values = values.resolve_neg()
        device = values.__dlpack_device__()[0]
        if device == CPU:
            return np.from_dlpack(values)
    except Exception as error:
        why = " ".join(str(error).split())
        text = f"{who}: {kind(values)} gives no array{{}}; give a NumPy array"
        raise OwnFault(text.format(""), text.format(f" ({why})")) from None
    raise JobError(f"{who}: {kind(values)} lies on another device than the CPU; move it to this machine's memory first")


def _array_column(values: np.ndarray, keep: bool) -> Cells:
    if values.dtype.kind == "U" or keep:
        return typed(values.tolist(), values.dtype.itemsize < 8)
    return np.ascontiguousarray(values, dtype=np.float64)
