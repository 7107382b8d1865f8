"""Reads lists of neighbours: a table whose first two columns name them, GeoDa's .gal, and the graph files of R-INLA.

A table's first line is its header, unless both of its names are areas: then it is a pair like the others. A third column of
numbers is a weight, of which only 0 means something: that two areas are no neighbours.

Programs write areas by their names, or by their positions in their own data: R's `write.nb.gal` from 1, libpysal from 0. A list
whose ids could be both, and mean different pairs, is refused until the prior file says which they are (`data.adjacency_ids`).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from ..arrays import Array, Indices
from ..errors import JobError
from . import cells
from .dialect import SEPARATORS, suffix
from .places import counts, listed, numbers_of, whole, zeros
from .table import PLAIN, Table, load

Ids = Literal["names", "positions", "positions from 0"]
Named = list[tuple[str, str]]

GAL, GRAPH = (".gal",), (".graph", ".inla")
WEIGHTS = ("weight", "weights", "freq", "value")  # libpysal's, spdep's, and those of R's and pandas' tables of a matrix
BLANKS = "; mend it (where names have blanks, this format cannot have them: write a table of pairs)"
TRUTH = {"true": 1.0, "false": 0.0}
SQUARE = 4  # rows and columns, at least, of what is taken for a matrix


class Neighbours(NamedTuple):
    """Holds pairs (m, 2) of numbers of areas, in the order and the directions of the file.

    `first`: the position of the first area, where the file has positions; None where it has names. `notes`: for people.
    """

    pairs: Indices
    first: int | None = None
    notes: tuple[str, ...] = ()


def read(path: str | Path, names: Sequence[str], ids: Ids | None = None, column: str = "area") -> Neighbours:
    """Reads a list of neighbours. Raises JobError: an area that is not among them, ids that may be names or positions, or a file
    that is no such list.

    Parameters
    ----------
    path : by its name's end .gal (GeoDa), .graph or .inla (R-INLA), else a table (csv, parquet, npz)
    names : of all areas
    ids : how the file calls areas: by names, or by their positions among `names`. None: a graph file by positions, which begin at
        0 where it has a 0, and all others by names
    column : of the table of areas, which has the names
    """
    kind, notes = Path(path).suffix.lower(), list[str]()
    if kind in GRAPH:
        if ids == "names":
            raise JobError(f"{path}: a graph file of R-INLA has positions; remove [data] adjacency_ids")
        pairs, of_file = _of_graph(path, len(names))
        ids = ids or of_file
    elif kind in GAL:
        pairs = _of_gal(path, names, ids, column)
    else:
        pairs, notes = _of_table(path, names, by_name=ids in (None, "names"))
        if ids is None:
            commands = f"s <- listw2sn(w); write.csv(data.frame(from = areas${column}[s$from], to = areas${column}[s$to]), "
            commands += f'"{Path(path).name}", row.names = FALSE)'
            _refuse_doubtful(path, names, list(zip(*pairs)), commands)
    if ids in (None, "names"):
        return Neighbours(_by_name(path, names, pairs), None, tuple(notes))
    first = 1 if ids == "positions" else 0
    n, last = len(names), len(names) - 1 + first
    known = {str(k + first) for k in range(n)}
    outside = list(dict.fromkeys(word for pair in pairs for word in pair if word not in known))
    if outside:
        raise JobError(f"{path}: {listed(outside)} is no area's number; wanted {first} to {last} ([data] adjacency_ids)")
    notes.append(
        f"neighbours are given by position: {first} is {names[0]!r}, the first of the {n:,} areas in their table, and {last} is "
        f"{names[-1]!r}, the last"
    )
    numbers = np.array([[int(a) - first, int(b) - first] for a, b in pairs], dtype=np.int64)
    return Neighbours(numbers.reshape(-1, 2), first, tuple(notes))


def _by_name(path: str | Path, names: Sequence[str], pairs: Named) -> Indices:
    """Returns pairs of names as numbers of areas."""
    place = {name: k for k, name in enumerate(names)}
    unknown = list(dict.fromkeys(name for pair in pairs for name in pair if name not in place))
    if unknown:
        why = f"no such area in the table of areas{zeros(unknown, names)}"
        remedy = _counted(pairs, len(names)) or "add it there or remove its pairs"
        raise JobError(f"{path}: {listed(unknown)}: {why}; {remedy}")
    return np.array([[place[a], place[b]] for a, b in pairs], dtype=np.int64).reshape(-1, 2)


def _counted(pairs: Named, n: int) -> str:
    """Returns a remedy if the ids are numbers that no list of names of `n` areas has, but one of positions; "" else."""
    ids = {word for pair in pairs for word in pair}
    if not all(word.isdecimal() for word in ids):
        return ""
    low, high = min(map(int, ids)), max(map(int, ids))
    if high > n or high - low < n // 2 or (low == 0 and high == n):
        return ""
    wanted = "positions from 0" if low == 0 else "positions"
    return f"if these are row numbers, which count the lines of the table of areas, say so: [data] adjacency_ids = {wanted!r}"


def _of_table(path: str | Path, names: Sequence[str], *, by_name: bool) -> tuple[Named, list[str]]:
    """Returns the pairs of a table, and notes on their weights."""
    _refuse_matrix(path)
    header = load(path)
    if len(header.names) < 2:
        raise JobError(f"{path}: has one column; the first two must name neighbouring areas")
    table = load(path, text=header.names[:2])
    whole(table)
    first, second, *others = table.names
    pairs = list(zip(table.cells(first), table.cells(second)))
    name = others[0] if len(others) == 1 else next((name for name in others if name.casefold() in WEIGHTS), None)
    weights = None if name is None else _weights(table, name)
    if {first, second} <= set(names) if by_name else first.isdecimal() and second.isdecimal():
        pairs = [(first, second), *pairs]
        weights = None if weights is None else np.append(cells.number(str(name)), weights)
    if weights is None:
        return pairs, []
    away = np.nan_to_num(weights, nan=1.0)
    notes = list[str]()
    if zero := int((away == 0).sum()):
        notes.append(
            f"{zero:,} pairs whose weight ({name!r}) is 0 are no neighbours, and are left out; remove the column if it is no "
            "weight"
        )
        if zero == len(pairs):
            raise JobError(f"{path}: every pair has the weight 0 ({name!r}); remove the column if it is no weight")
    kept = away[away != 0]
    if (kept != 1).any():
        notes.append(f"weights ({name!r}, {kept.min():g} to {kept.max():g}) count as 1: areas are neighbours, or they are not")
    return [pair for pair, weight in zip(pairs, away) if weight != 0], notes


def _weights(table: Table, name: str) -> Array | None:
    """Returns the numbers of a column; None if it has other cells. JobError where it lacks one."""
    written = [cell.casefold() for cell in table.cells(name)]
    if written and set(written) <= set(TRUTH):
        return np.array([TRUTH[cell] for cell in written])
    values = cells.floats(table.columns[name])
    if not np.isfinite(values).any() or any(cell and not np.isfinite(value) for cell, value in zip(written, values)):
        return None
    return numbers_of(table, name)


def _refuse_matrix(path: str | Path) -> None:
    """Raises JobError if a text file is a square of numbers that says of each two areas whether they are neighbours."""
    kind = suffix(Path(path))
    if kind.removesuffix(".gz") not in SEPARATORS or not Path(path).is_file():
        return
    text = io.StringIO(PLAIN.bytes_of(Path(path)).decode(errors="replace"), newline="")
    lines = csv.reader(text, delimiter=PLAIN.between(Path(path)))
    try:
        head = next(lines, [])
        if len(head) < SQUARE:
            return
        rows = [head, *(row for row in lines if row)]
    except csv.Error:
        return
    # With a line of names above it and without, with a name before each row and without.
    for body in (rows, rows[1:]):
        n = len(body)
        if n < SQUARE or any(len(row) not in (n, n + 1) for row in body):
            continue
        try:
            adjacent = np.array([[float(cell) for cell in row[-n:]] for row in body]) != 0
        except ValueError:
            continue
        if not adjacent.diagonal().any() and np.array_equal(adjacent, adjacent.T):
            raise JobError(
                f"{path}: is a matrix of {n:,} areas by {n:,}, not a list of pairs; write its pairs, in R: "
                "w <- which(M != 0, arr.ind = TRUE); write.csv(data.frame(from = name[w[, 1]], to = name[w[, 2]]), "
                '"edges.csv", row.names = FALSE), where `name` has the areas\' names in the order of the matrix'
            )


def _lines(path: str | Path) -> Iterator[tuple[int, list[str]]]:
    """Yields the words of every line, with its number."""
    try:
        text = Path(path).read_text("utf-8-sig")
    except OSError as error:
        raise JobError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise JobError(f"{path}: is no text; wanted a list of neighbours") from None
    for number, line in enumerate(text.splitlines(), 1):
        yield number, line.split()


def _count(path: str | Path, number: int, word: str) -> int:
    if not word.isdecimal():
        raise JobError(f"{path}, line {number}: {word[:40]!r} is no count of neighbours; mend it")
    return int(word)


def _of_gal(path: str | Path, names: Sequence[str], ids: Ids | None, column: str) -> Named:
    """Reads a .gal file: a first line, then for each area its name and the number of its neighbours, and a line of their
    names."""
    lines = list(_lines(path))
    areas, pairs, line = list[str](), list[tuple[str, str]](), 1
    while line < len(lines):
        number, words = lines[line]
        line += 1
        if not words:
            continue
        if len(words) != 2:
            wanted = f"wanted an area and the number of its neighbours{BLANKS}"
            raise JobError(f"{path}, line {number}: has {len(words)} words; {wanted}")
        count, near = _count(path, number, words[1]), list[str]()
        if count and line < len(lines):
            near, line = lines[line][1], line + 1
        if len(near) != count:
            raise JobError(f"{path}, line {number}: {words[0]} has {count} neighbours, and {len(near)} are named{BLANKS}")
        areas.append(words[0])
        pairs += [(words[0], name) for name in near]
    head = lines[0][1] if lines else []
    # Where its first line says that ids are those of the table's column, they are names.
    if ids is None and not (len(head) == 4 and head[3].casefold() == column.casefold()):
        commands = (
            f'attr(nb, "region.id") <- as.character(areas${column}); write.nb.gal(nb, "{Path(path).name}", oldstyle = FALSE, '
            f'ind = "{column}")'
        )
        _refuse_doubtful(path, names, [areas], commands)
    return pairs


def _refuse_doubtful(path: str | Path, names: Sequence[str], columns: Sequence[Sequence[str]], commands: str) -> None:
    """Raises JobError if the ids of a file may be names or positions, and are not the same areas as both.

    `commands` of R write names.
    """
    first = counts(columns, names)
    if first is None:
        return
    numbers = sorted({int(name) for column in columns for name in column})
    position = next(number for number in numbers if names[number - first] != str(number))
    raise JobError(
        f"{path}: its ids are {numbers[0]} to {numbers[-1]} in this order, as R's write.nb.gal and listw2sn and libpysal write "
        f"positions, but areas have such names, too, in another order: {position} is the name of one area and the position of "
        f"{names[position - first]!r}; say which they are: "
        f'[data] adjacency_ids = "{"positions" if first else "positions from 0"}" or "names", if it is one of both, '
        f"or write names, in R: {commands}"
    )


def _of_graph(path: str | Path, n: int) -> tuple[Named, Ids]:
    """Reads the number of areas, and for each its number, that of its neighbours, and theirs; lines may break anywhere.

    The format counts from 0 or from 1; a 0 decides, though it may be that of an area without neighbours.
    """
    words = [(number, word) for number, line in _lines(path) for word in line]
    if not words or _count(path, *words[0]) != n:
        has = words[0][1][:40] if words else "no"
        raise JobError(f"{path}: is of {has} areas, the table of areas has {n}; its numbers are their places there")
    numbers = [_count(path, *word) for word in words]
    pairs, zero, k = list[tuple[str, str]](), False, 1
    while k < len(numbers):
        zero |= numbers[k] == 0
        count = numbers[k + 1] if k + 1 < len(numbers) else 0
        near = numbers[k + 2 : k + 2 + count]
        if k + 1 >= len(numbers) or len(near) != count:
            raise JobError(f"{path}, line {words[k][0]}: ends before all neighbours of {numbers[k]} are named; mend it")
        zero |= 0 in near
        pairs += [(str(numbers[k]), str(other)) for other in near]
        k += 2 + count
    return pairs, "positions from 0" if zero else "positions"
