"""privacy.discrete_gaussian: every backend against the reference, word for word."""

from __future__ import annotations

import numpy as np
import pytest

from fedkern.kernels import privacy

BACKENDS = ("cpp", "numba", "reference")


def words(n, seed=0):
    return np.random.default_rng(seed).integers(0, 2**32, n, dtype=np.uint32)


@pytest.mark.parametrize("sigma", [1, 2, 3, 7, 1000, 5 << 20, 2**28, 2**31 - 1])
def test_backends_agree_on_draws_and_words(sigma):
    given = words(1500)
    results = [privacy.discrete_gaussian(given, sigma, 100, backend=b) for b in BACKENDS]
    for draws, used in results[1:]:
        np.testing.assert_array_equal(draws, results[0][0])
        assert used == results[0][1]
