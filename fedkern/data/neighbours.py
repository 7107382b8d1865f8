"""Reads lists of neighbours: a table whose first two columns name them, GeoDa's .gal, and the graph files of R-INLA.

A table's first line is its header, unless both of its names are areas: then it is a pair like the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import JobError
from .places import listed, whole, zeros
from .table import load

Index = NDArray[np.int64]

GAL, GRAPH = (".gal",), (".graph", ".inla")


def read(path: str | Path, names: Sequence[str]) -> Index:
    """Returns pairs (m, 2) of numbers of areas, in the order and the directions of the file.

    Parameters
    ----------
    path : by its name's end .gal (GeoDa), .graph or .inla (R-INLA), else a table (csv, parquet, npz)
    names : of all areas; the numbers 1 to n of a graph file are their places (0 to n - 1 where it has a 0)

    Raises
    ------
    JobError
        An area that is not among them, or a file that is no such list.
    """
    kind = Path(path).suffix.lower()
    pairs = _of_gal(path) if kind in GAL else _of_graph(path, names) if kind in GRAPH else _of_table(path, names)
    place = {name: k for k, name in enumerate(names)}
    unknown = list(dict.fromkeys(name for pair in pairs for name in pair if name not in place))
    if unknown:
        why = f"no such area in the table of areas{zeros(unknown, names)}"
        raise JobError(f"{path}: {listed(unknown)}: {why}; add it there or remove its pairs")
    return np.array([[place[a], place[b]] for a, b in pairs], dtype=np.int64).reshape(-1, 2)


def _of_table(path: str | Path, names: Sequence[str]) -> list[tuple[str, str]]:
    header = load(path)
    if len(header.names) < 2:
        raise JobError(f"{path}: has one column; the first two must name neighbouring areas")
    table = load(path, text=header.names[:2])
    whole(table)
    first, second = table.names[:2]
    lines = list(zip(table.cells(first), table.cells(second)))
    return [(first, second), *lines] if {first, second} <= set(names) else lines


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


def _of_gal(path: str | Path) -> list[tuple[str, str]]:
    """Reads a .gal file: a first line, then for each area its name and the number of its neighbours, and a line of their
    names.
    """
    lines = list(_lines(path))
    pairs, at = [], 1
    while at < len(lines):
        number, words = lines[at]
        at += 1
        if not words:
            continue
        if len(words) != 2:
            raise JobError(f"{path}, line {number}: has {len(words)} words; wanted an area and the number of its neighbours")
        count, near = _count(path, number, words[1]), list[str]()
        if count and at < len(lines):
            near, at = lines[at][1], at + 1
        if len(near) != count:
            raise JobError(f"{path}, line {number}: {words[0]} has {count} neighbours, and {len(near)} are named; mend it")
        pairs += [(words[0], name) for name in near]
    return pairs


def _of_graph(path: str | Path, names: Sequence[str]) -> list[tuple[str, str]]:
    """Reads the number of areas, and for each its number, that of its neighbours, and theirs; lines may break anywhere."""
    words = [(number, word) for number, line in _lines(path) for word in line]
    if not words or _count(path, *words[0]) != len(names):
        has = words[0][1][:40] if words else "no"
        raise JobError(f"{path}: is of {has} areas, the table of areas has {len(names)}; its numbers are their places there")
    numbers = [_count(path, *word) for word in words]
    pairs, at = list[tuple[int, int]](), 1
    while at < len(numbers):
        count = numbers[at + 1] if at + 1 < len(numbers) else 0
        near = numbers[at + 2 : at + 2 + count]
        if at + 1 >= len(numbers) or len(near) != count:
            raise JobError(f"{path}, line {words[at][0]}: ends before all neighbours of {numbers[at]} are named; mend it")
        pairs += [(numbers[at], other) for other in near]
        at += 2 + count
    # The format counts from 0 or from 1; a 0 decides.
    first = 0 if any(0 in pair for pair in pairs) else 1
    outside = sorted({k for pair in pairs for k in pair if not 0 <= k - first < len(names)})
    if outside:
        raise JobError(f"{path}: {outside[0]} is no area's number; wanted {first} to {len(names) - 1 + first}")
    return [(names[a - first], names[b - first]) for a, b in pairs]
