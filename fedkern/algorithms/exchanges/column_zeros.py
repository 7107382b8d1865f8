"""Compares the clients' shares of zeros in a column: zeros at all of them are measured, and at some alone they may be a code.

Client k says that its zeros stand apart from its other cells, and are p_k of these at least. Client j lacks them if it has less
than a twentieth of that part where 12 cells or more would be zeros with that part. They are also lacking where no other client
has any, though all together would have 8, or where k's zeros are so few that they may be slips.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

EXPECTED, OF_ALL = 12.0, 8.0  # zeros, of one other client and of all: shares differ between hospitals
LESS = 20  # times as small a share is nearly none
FEWER = 2  # says that zeros that stand apart are few
TENTH = 10  # percent
ASSUMED = 40  # rows of a client that has not told their number


def in_tenths(zeros: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Returns the shares as a client tells them where its own numbers are not the server's to know: a tenth, or less."""
    return {name: (TENTH if percent >= TENTH else 1, apart) for name, (percent, apart) in zeros.items()}


def lacking(shares: Mapping[int, tuple[int, int]], sizes: Sequence[int]) -> list[int]:
    """Returns the clients whose zeros of one column stand apart and are missing elsewhere.

    Parameters
    ----------
    shares : client -> percent of its cells that are zeros, and whether they stand apart (2: and are few); others have none
    sizes : (m,) the clients' numbers of rows; 0 of those that have not told it
    """
    rows = [size or ASSUMED for size in sizes]
    found = []
    for k in (k for k, one in shares.items() if one[1]):
        share, others = shares[k][0] / 100, [j for j in range(len(rows)) if j != k]
        fewer = [j for j in others if LESS * (shares[j][0] if j in shares else 0) < shares[k][0]]
        alone = not any(j in shares for j in others) and (shares[k][1] == FEWER or share * sum(rows[j] for j in others) >= OF_ALL)
        if alone or any(share * rows[j] >= EXPECTED for j in fewer):
            found.append(k)
    return sorted(found)
