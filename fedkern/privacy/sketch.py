"""Finds two sets that are the same but for a few members, by a sketch of each; neither set can be read from its sketch.

Every member has a number of 64 bits, which a secret key makes. Its first bits say into which of 128 cells it falls; a cell keeps
a sum of 32 bits over its members. Two sets that differ by d members differ in at most d cells, and in d where these fall into
cells of their own: so all sets are found that differ by fewer than a given number, and some that differ by a few more. Members
that are there twice count twice; a changed member is one gone and one new, unless only the number with which it counts has
changed.

A column has such a sketch of the number of each row in it, up to the column's sign, scale and constant: it is 0 in one row and 1
in another. Which two is drawn by the key, four times, for a column that is another in one of them is another everywhere.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CELLS = 128
_BITS = np.uint64(64 - CELLS.bit_length() + 1)  # of a member's number, below those that say in which cell it is
_SUM = 0xFFFFFFFF
_DIGITS = 8  # hexadecimal, of a sum
PAIRS = 4  # of rows, in which a column is 0 and 1
_PRECISE = 2.0**20  # of a column's numbers: six digits
_SHORT = np.uint64(0xFFFF)  # of a column's sums


class Sketch(NamedTuple):
    """Holds the sketch of the rows that count in one job.

    Attributes
    ----------
    key : tells one key from another; sketches with different ones cannot be compared
    sums : of the cells, hexadecimal

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.privacy.sketch import Sketch
    >>> members, ones = np.array([5, 6, 7], np.uint64) << np.uint64(57), np.ones(3, np.uint64)
    >>> mine, less = Sketch.of("k", members, ones), Sketch.of("k", members[:2], ones[:2])
    >>> mine.apart(mine), mine.apart(less), mine.apart(Sketch.of("another", members, ones))
    (0, 1, None)
    """

    key: str
    sums: str

    @classmethod
    def of(cls, key: str, members: NDArray[np.uint64], counts: NDArray[np.uint64]) -> Sketch:
        """Returns the sketch of members' numbers (n,), and the bits of the numbers that each counts with (n,)."""
        sums = np.zeros(CELLS, np.uint64)
        with np.errstate(over="ignore"):
            np.add.at(sums, (members >> _BITS).astype(np.int64), mix_bits(members ^ mix_bits(counts)) & np.uint64(_SUM))
        return cls(key, "".join(f"{int(number) & _SUM:0{_DIGITS}x}" for number in sums))

    def apart(self, other: Sketch) -> int | None:
        """Returns in how many cells two sets differ: they differ by at least that many members. None where that cannot be
        told."""
        if self.key != other.key or len(self.sums) != len(other.sums):
            return None
        parts = range(0, len(self.sums), _DIGITS)
        return sum(self.sums[begin : begin + _DIGITS] != other.sums[begin : begin + _DIGITS] for begin in parts)


class ColumnSketcher:
    """Makes sketches of columns over the same rows.

    Parameters
    ----------
    members : (n,) the rows' numbers, as a secret key makes them; equal rows have one, and equal cells

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.privacy.sketch import ColumnSketcher, nearly_equal
    >>> sketcher = ColumnSketcher(np.random.default_rng(1).integers(0, 2**64, 200, np.uint64))
    >>> age = np.arange(200.0)
    >>> step, next_one = (sketcher.sketch(1.0 * (age > least)) for least in (61, 62))
    >>> nearly_equal(step, np.array([step, next_one]), least=20)
    array([False,  True])
    """

    def __init__(self, members: NDArray[np.uint64]) -> None:
        self._members, self._cells = members, (members >> _BITS).astype(np.int64)
        self._orders = [mix_bits(members ^ mix_bits(np.array([1 + pair], np.uint64))) for pair in range(PAIRS)]

    def sketch(self, values: NDArray[np.float64]) -> NDArray[np.uint16] | None:
        """Returns (PAIRS, CELLS) sums of a column (n,); None where it is the same in all rows."""
        finite, out = np.isfinite(values), np.empty((PAIRS, CELLS), np.uint16)
        for pair, order in enumerate(self._orders):
            zero = _first(order, finite)
            other = None if zero is None else _first(order, finite & (values != values[zero]))
            if other is None:
                return None
            with np.errstate(all="ignore"):
                mantissa, exponent = np.frexp((values - values[zero]) / (values[other] - values[zero]))
                numbers = np.ldexp(np.round(mantissa * _PRECISE), exponent) + 0.0  # one zero
            numbers = np.where(np.isfinite(numbers), numbers, np.nan)
            sums = np.bincount(self._cells, (self._mixed(numbers) & _SHORT).astype(np.float64), CELLS)
            out[pair] = sums.astype(np.uint64) & _SHORT
        return out

    def total(self, values: NDArray[np.float64]) -> int:
        """Returns 64 bits that are another if any number of a column (n,) differs, by however little."""
        return int(np.add.reduce(self._mixed(values + 0.0), initial=np.uint64(0)))

    def _mixed(self, values: NDArray[np.float64]) -> NDArray[np.uint64]:
        return mix_bits(self._members ^ mix_bits(values.view(np.uint64)))


def nearly_equal(column: NDArray[np.uint16], others: NDArray[np.uint16], least: int) -> NDArray[np.bool_]:
    """Tells of which columns (k,) one differs in fewer than `least` rows, and in fewer than it does not, by sketches of all."""
    differ = (others != column).sum(axis=-1)
    same = ((others == column) & (column != 0)).sum(axis=-1)
    return np.asarray(((0 < differ) & (differ < least) & (differ < same)).any(axis=-1))


def _first(order: NDArray[np.uint64], among: NDArray[np.bool_]) -> int | None:
    """Returns the row that comes first in an order, of some."""
    rows = np.flatnonzero(among)
    return int(rows[np.argmin(order[rows])]) if len(rows) else None


def mix_bits(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Returns numbers (n,) whose bits all depend on all bits of those given (the finaliser of SplitMix64, which is one to
    one)."""
    with np.errstate(over="ignore"):
        numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
