"""Keeps, in a holder's account, sketches of the columns that an open job makes of its rows: another job may have nearly the same.

A job with a step at age 61.5 and another with one at 62.5 differ by the one patient between: what both tell, subtracted, is that
patient's row. So columns are compared as they are used, and not as they stand in the file. The sketches stand in the account
under the holder's secret: of few rows they would tell, without it, which columns are equal where.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...disclosure.rules import NEAR_ROWS
from ...privacy.sketch import CELLS, PAIRS, ColumnSketcher, Sketch, nearly_equal
from .told import Values

_NONCE = 16  # bytes


@dataclass(frozen=True)
class Columns:
    """Holds sketches of the columns that a job makes of its rows."""

    names: tuple[str, ...]  # of the columns
    sums: NDArray[np.uint16]  # (columns, PAIRS, CELLS)
    total: str  # of all of their numbers, in hexadecimal digits: jobs with one total have made the same columns
    # column of the file -> its levels that count as `OTHER` in the job
    joined: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # column of the file, of levels or of few values -> those that are one in the job, and its rows with them
    values: Values = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        members: NDArray[np.uint64],
        columns: Iterable[tuple[str, NDArray[np.float64]]],
        joined: Mapping[str, Sequence[str]] = MappingProxyType({}),
        values: Values = MappingProxyType({}),
    ) -> Columns:
        """Returns the sketches of columns (n,) with their names, but of those that are the same in all rows, or as another."""
        sketcher, sketches, totals = ColumnSketcher(members), dict[bytes, tuple[str, NDArray[np.uint16]]](), list[int]()
        for name, numbers in columns:
            if (sketch := sketcher.sketch(numbers)) is not None:
                sketches.setdefault(sketch.tobytes(), (name, sketch))
                totals.append(sketcher.total(numbers))
        total = hashlib.blake2b(repr(sorted(totals)).encode(), digest_size=8).hexdigest()
        sums = np.array([sketch for _, sketch in sketches.values()], np.uint16).reshape(-1, PAIRS, CELLS)
        return cls(tuple(name for name, _ in sketches.values()), sums, total, joined, values)

    def near(self, earlier: Columns) -> list[tuple[str, str]]:
        """Returns pairs of names: a column of this job alone, and one of an earlier job alone that is nearly the same."""
        mine, theirs = ({sums.tobytes() for sums in columns.sums} for columns in (self, earlier))
        gone = [k for k, sums in enumerate(earlier.sums) if sums.tobytes() not in mine]
        new = [k for k, sums in enumerate(self.sums) if sums.tobytes() not in theirs]
        pairs = [(k, np.flatnonzero(nearly_equal(self.sums[k], earlier.sums[gone], NEAR_ROWS))) for k in new]
        return [(self.names[k], earlier.names[gone[found[0]]]) for k, found in pairs if len(found)]

    def sealed(self, key: bytes) -> str:
        """Returns a text that nobody reads without the key."""
        head = json.dumps([self.names, self.total, self.joined, self.values]).encode() + b"\n"
        nonce = os.urandom(_NONCE)
        return base64.b64encode(nonce + _hidden(head + self.sums.astype("<u2").tobytes(), key, nonce)).decode()

    @classmethod
    def unsealed(cls, text: str, key: bytes) -> Columns:
        """Restores the result of `sealed`; ValueError where it is none."""
        content = base64.b64decode(text)
        head, _, sums = _hidden(content[_NONCE:], key, content[:_NONCE]).partition(b"\n")
        names, total, *values = json.loads(head)
        return cls(tuple(names), np.frombuffer(sums, "<u2").reshape(len(names), PAIRS, CELLS).astype(np.uint16), total, *values)


class Rows(NamedTuple):
    """Holds what an account is told of a client's rows in an open job: which count, the columns, and the secret for both."""

    sketch: Sketch
    columns: Columns
    key: bytes


def _hidden(content: bytes, key: bytes, nonce: bytes) -> bytes:
    """Returns bytes under a stream of the key, or the bytes that were under it."""
    stream = hashlib.shake_256(b"fedkern columns" + key + nonce).digest(len(content))
    return (np.frombuffer(content, np.uint8) ^ np.frombuffer(stream, np.uint8)).tobytes()
