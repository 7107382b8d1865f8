"""Draws autoregressive priors through eigenvectors: the library's matrix product between two kernels."""

from __future__ import annotations

import numpy as np

from ..device import Array, blocks, current, structure, vector
from .gp import NAMES, THREADS


def car_sample(
    vectors: Array, values: Array, weights: Array, phi: Array, form: int, seed: int, chain: int, client: int, step: int,
    theta: Array, n_threads: int,
) -> None:  # fmt: skip
    m, n = theta.shape
    if not m or not n:
        return
    xp = current().xp
    e = xp.empty((m, n))
    arguments = (vector(values), vector(phi), np.int32(form), structure(NAMES, seed, chain, client, step), e)
    current().launch("spatial", "eigen_coefficients", (blocks(m * n, THREADS),), THREADS, arguments)
    theta[...] = xp.matmul(e, vectors.T) * weights
