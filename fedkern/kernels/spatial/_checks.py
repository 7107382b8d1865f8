"""What the kernels of the family check."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

INT64 = (np.dtype("int64"),)


def require(kernel: str, holds: Any, name: str, what: str, value: Any) -> None:
    if not holds:
        raise ValueError(f"{kernel}: {name} {what}, got {value}")


def choice(kernel: str, name: str, value: Any, choices: dict[str, int]) -> int:
    require(kernel, value in choices, name, f"must be {' or '.join(map(repr, choices))}", repr(value))
    return choices[value]


def counter(kernel: str, seed: int, chain: int, step: int, normals: int, client: int = 0) -> tuple[Any, ...]:
    """The names of the random numbers, checked: seed and chain, unsigned."""
    for name, value, bits in (("seed", seed, 64), ("chain", chain, 64), ("client", client, 32), ("step", step, 32)):
        require(kernel, 0 <= operator.index(value) < 2**bits, name, f"must be in [0, 2^{bits})", value)
    require(kernel, normals <= 2**33, "the number of normals", "of a call must be at most 2^33", normals)
    return np.uint64(seed), np.uint64(chain)


def check_indptr(kernel: str, indptr: Indices, nnz: int) -> None:
    """Row (or column) boundaries that begin at 0, never fall and end at nnz."""
    fine = indptr.size >= 1 and indptr[0] == 0 and indptr[-1] == nnz and bool((indptr[1:] >= indptr[:-1]).all())
    require(kernel, fine, "indptr", f"must rise from 0 to {nnz}", indptr)


def check_triangle(kernel: str, indptr: Indices, indices: Indices, order: Indices) -> None:
    """Columns of a lower triangle, each with its diagonal first and its rows ascending; `order` a permutation."""
    n = len(order)
    check_indptr(kernel, indptr, len(indices))
    columns = np.arange(n)
    first = indptr[:-1]
    fine = bool((indptr[1:] > first).all()) and (not n or (indices.max() < n and bool((indices[first] == columns).all())))
    if fine:
        rising = np.diff(indices) > 0
        rising[first[1:] - 1] = True
        fine = bool(rising.all())
    require(kernel, fine, "indices", "must be the rows of a lower triangle, by columns: the diagonal first, then rising", indices)
    fine = bool((np.sort(order) == columns).all())
    require(kernel, fine, "order", f"must be a permutation of 0 .. {n - 1}", order)
