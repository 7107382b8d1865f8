"""Computes the sums that a client sends to the server of a sparse model."""

from __future__ import annotations

import numpy as np

from ..device import Array, blocks, current, structure
from .local import ROWS, rows

_SUMS = np.dtype([(f"s{k}", ROWS) for k in range(4)], align=True)


def local_sums(deviation: Array, lambda_sq: Array, slab: float, sums: Array, n_threads: int) -> None:
    if not deviation.size:
        return
    out = [rows(sums[k], True) for k in range(len(sums))]
    call = structure(_SUMS, *out, *(out[:1] * (4 - len(out))))
    inputs = (structure(ROWS, *rows(deviation, True)), structure(ROWS, *rows(lambda_sq, True)))
    current().launch("shrinkage", "local_terms", (blocks(deviation.size, 256),), 256, (*inputs, np.int32(len(sums)), call))
