"""Draws and places at the ends of what a posterior of shared unknowns is looked at."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import qmc

from fedkern.algorithms.core.directions import DIMENSIONS
from fedkern.algorithms.core.nets import HALF, NETS, largest, sobol
from fedkern.algorithms.nested.design import Lattice, Source


@pytest.mark.parametrize("dimensions", [1, 2, 9, 40, DIMENSIONS, DIMENSIONS + 1])
@pytest.mark.parametrize("n", [1, 2, 3, 1024])
def test_points_are_those_of_scipy_to_the_last_bit(dimensions: int, n: int) -> None:
    key = (dimensions, n, 2**64 - 1)
    generator = np.random.default_rng(list(key))
    points = qmc.Sobol(dimensions, scramble=True, bits=30, rng=generator).random_base2((n - 1).bit_length())
    np.testing.assert_array_equal(sobol(n, dimensions, key), points[:n, generator.permutation(dimensions)] + HALF)


def test_points_without_weight_may_be_as_far_as_numbers_go() -> None:
    random = np.random.default_rng(0)
    points, weights, nets = random.normal(size=(80, 2)), random.random(80), np.arange(80) % NETS
    weights[::9] = 0
    weights /= weights.sum()
    want = largest(points, weights, nets)
    points[::9] = [1e200, -1e308]
    assert largest(points, weights, nets) == want


def test_a_place_that_came_twice_is_one() -> None:
    """A stencil whose middle is held where nothing farther is looked at comes again."""
    v = np.array([[4.0], [3.7], [4.3], [3.2], [2.9]])
    H, density = np.broadcast_to(np.eye(1), (5, 1, 1)), -((v[:, 0] - 3) ** 2)
    once = Source(Lattice(np.zeros(1), np.eye(1)), v, np.sin(v), H, density)
    again = [*range(5), 0, 1, 2]
    twice = Source(once.lattice, v[again], np.sin(v[again]), H[again], density[again])
    at = np.array([[3.0], [4.1]])
    np.testing.assert_array_equal(twice.modes(at), once.modes(at))
    np.testing.assert_allclose(once.modes(v), np.sin(v), atol=1e-9)
