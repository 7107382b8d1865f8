"""Finds two sets that are the same but for a few members, by a sketch of each; neither set can be read from its sketch.

Every member has a number of 64 bits, which a secret key makes. Its first bits say into which of 128 cells it falls; a cell keeps
a sum of 32 bits over its members. Two sets that differ by d members differ in at most d cells, and in d where these fall into
cells of their own: so all sets are found that differ by fewer than a given number, and some that differ by a few more. Members
that are there twice count twice; a changed member is one gone and one new, unless only the number with which it counts has
changed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CELLS = 128
_BITS = np.uint64(64 - CELLS.bit_length() + 1)  # of a member's number, below those that say in which cell it is
_SUM = 0xFFFFFFFF
_DIGITS = 8  # hexadecimal, of a sum


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
        return cls(key, "".join(f"{int(one) & _SUM:0{_DIGITS}x}" for one in sums))

    def apart(self, other: Sketch) -> int | None:
        """Returns in how many cells two sets differ: they differ by at least that many members. None where that cannot be
        told."""
        if self.key != other.key or len(self.sums) != len(other.sums):
            return None
        parts = range(0, len(self.sums), _DIGITS)
        return sum(self.sums[at : at + _DIGITS] != other.sums[at : at + _DIGITS] for at in parts)


def mix_bits(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Returns numbers (n,) whose bits all depend on all bits of those given (the finaliser of SplitMix64, which is one to
    one)."""
    with np.errstate(over="ignore"):
        numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
