"""Holds the scalars that kernels of the family share, and checks graphs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .._checks import SEED, WORD, Domain, require
from .._record import Scalar

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

INT64 = (np.dtype("int64"),)


NAMES = (Scalar("seed", SEED), Scalar("chain", SEED, 0), Scalar("client", WORD, 0), Scalar("step", WORD, 0))
_RANGE = Domain("must be in [0, 1), lo <= hi", "", "float(x)")
LOW, HIGH = Scalar("lo", _RANGE, 0.0), Scalar("hi", _RANGE, 0.99)
WIDEST = Scalar("widest", Domain("must be >= 1", "x >= 1", "float(x)"), 2.0)
WORDS = {
    "indptr": "The graph: see the module `spatial`.",
    "indices": "The graph: see the module `spatial`.",
    "logdet": "`logdet_table(..).coefficients`, k >= 1.",
    "lo": "`lo` of the same table.",
    "hi": "`hi` of the same table.",
    "widest": "`widest` of the same table.",
    "seed": "Names the random numbers.",
    "chain": "Names the random numbers.",
    "client": "Names the random numbers.",
    "step": "Names the random numbers: e of row b is numbers b n .. b n + n - 1 of stream `prior_draws`.",
}


def check_normals(kernel: str, normals: int) -> None:
    """Refuses a call that needs more normals than the counter has."""
    require(kernel, normals <= 2**33, "the number of normals", "of a call must be at most 2^33", normals)


def check_indptr(kernel: str, indptr: Indices, nnz: int) -> None:
    """Refuses boundaries of rows (or columns) unless they begin at 0, never fall and end at nnz."""
    fine = indptr.size >= 1 and indptr[0] == 0 and indptr[-1] == nnz and bool((indptr[1:] >= indptr[:-1]).all())
    require(kernel, fine, "indptr", f"must rise from 0 to {nnz}", "others")


def check_triangle(kernel: str, indptr: Indices, indices: Indices, order: Indices) -> None:
    """Refuses anything but columns of a lower triangle, each with its diagonal first and its rows ascending, and a permutation
    `order`."""
    n = len(order)
    # The boundaries first: the checks below slice by them.
    check_indptr(kernel, indptr, len(indices))
    columns = np.arange(n)
    first = indptr[:-1]
    fine = bool((indptr[1:] > first).all()) and (not n or (indices.max() < n and bool((indices[first] == columns).all())))
    if fine:
        # Rows rise within a column; from one column to the next they may fall.
        rising = np.diff(indices) > 0
        rising[first[1:] - 1] = True
        fine = bool(rising.all())
    require(
        kernel, fine, "indices", "must be the rows of a lower triangle, by columns: the diagonal first, then rising", "others"
    )
    fine = bool((np.sort(order) == columns).all())
    require(kernel, fine, "order", f"must be a permutation of 0 .. {n - 1}", "another")
