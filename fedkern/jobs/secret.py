"""Keeps a holder's secret, and makes keyed digests of rows: a plain hash of a small table could be guessed, row by row."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..data.table import Table, Text
from ..errors import JobError
from ..ground import Ground, on
from .files import writing

SECRET = "secret"
LENGTH = 32
BLOCK = 1 << 24  # bytes of rows that are hashed at a time


def secret(home: Path, *, sync: bool = True, ground: Ground | None = None) -> bytes:
    """Returns a holder's 32 random bytes, made when they are first asked for, in a file of its folder that only it can read.

    The bytes are on the disk then. Without `sync` the file's name is not yet: the caller syncs the folder for another file.
    `ground`: below which the folder lies.
    """
    path = home / SECRET
    with on(ground, home) as folder:
        if not os.path.lexists(path):
            with writing(path):
                folder.first(path, os.urandom(LENGTH), sync=sync)
        try:
            with open(folder.open(path, os.O_RDONLY), "rb") as file:
                key = file.read()
        except OSError as error:
            raise JobError(f"{path} cannot be read ({error.strerror}); make it readable for its owner") from None
    if len(key) != LENGTH:
        raise JobError(f"{path} has {len(key)} bytes, not {LENGTH}: put it back, or remove it and start runs anew")
    return key


def mark_of(key: bytes) -> str:
    """Returns a mark that tells one secret from another, and nothing else of it."""
    return hashlib.blake2b(key, digest_size=8, person=b"fedkern secret").hexdigest()


def fingerprint(table: Table, key: bytes, ignored: Collection[str] = ()) -> str:
    """Returns a keyed digest of a table's cells: without the key it tells nothing, even if few tables are possible."""
    state = hashlib.blake2b(key=key, digest_size=32, person=b"fedkern rows")
    ignored, in_matrix = frozenset(ignored), frozenset(table.matrix_names)
    names = [name for name in table.names if name not in ignored or name in in_matrix]
    state.update(json.dumps([names, table.n_rows, sorted(table.broken.items())]).encode())
    if table.matrix is not None:
        _add(state, table.matrix)
    for name in names:
        column = table.columns[name]
        if isinstance(column, Text) and not column.truths:
            state.update(json.dumps(column.levels).encode())
            _add(state, column.codes)
        elif name not in in_matrix:
            _add(state, column.numbers() if isinstance(column, Text) else np.asarray(column))
    return state.hexdigest()


def _add(state: Any, array: np.ndarray) -> None:
    """Adds type, shape and values, some rows at a time: the array may be larger than memory."""
    state.update(json.dumps([array.dtype.str, array.shape]).encode())
    for rows in _blocks(array):
        state.update(np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data)


def _blocks(array: np.ndarray) -> Iterator[np.ndarray]:
    step = max(1, BLOCK // max(1, array.nbytes // max(1, len(array))))
    for begin in range(0, len(array), step):
        yield array[begin : begin + step]
