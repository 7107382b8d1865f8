"""The compiled autoencoder at sizes where it takes other ways: batches of several tiles, layers that BLAS multiplies, threads.

(What it computes is in test_vae.py and in the conformance test of all kernels.)
"""

from __future__ import annotations

import numpy as np
import pytest

from fedkern.kernels import mlp, spatial
from fedkern.testing.mlp import vae_near_a_kink as near_a_kink

VARIANTS = ("printed", "amended", "multiplicative")
TOLERANCE = {"f8": 1e-12, "f4": 3e-6}

SMALL = {"groups": (34, 1, 33), "n_local": (5, 1, 4)}
# 24576 weights or more in some layers, in others less.
LARGE = {
    "groups": (190, 7, 120),
    "n_conditions": 2,
    "n_global": 19,
    "n_local": (12, 3, 40),
    "hidden": 170,
    "local_hidden": 150,
    "rank": 9,
}

# More clients than are computed at a time.
MANY = {"groups": (60, 9, 40) * 4, "n_global": 8, "n_local": (4, 2, 6) * 4, "hidden": 120, "local_hidden": 70}


def problem(a, rows, dtype, seed=0):
    """parameters, theta, t, noise; no relu so near its kink that rounding decides about it."""
    for attempt in range(200):
        draw = np.random.default_rng([seed, attempt]).standard_normal
        parameters = a.initial(seed) + 0.02 * draw(a.n_parameters)
        arrays = (parameters, draw((rows, a.n_values)), draw((rows, a.n_conditions)), draw((rows, a.n_latents)))
        exact = tuple(array.astype(dtype).astype("f8") for array in arrays)
        if not near_a_kink(exact, a, 1e-6 if dtype == "f4" else 1e-12):
            return [array.astype(dtype) for array in exact]
    raise AssertionError("a kink in every problem")


def agrees(a, rows, dtype):
    """Largest error of every part of the gradient, relative to its largest number, and of the terms."""
    arrays = problem(a, rows, dtype)
    given = {"architecture": a, "gamma": 0.4, "kl_weight": 0.7}
    gradient, terms = mlp.vae_gradient(*arrays, **given, backend="cpp")
    want, want_terms = mlp.vae_gradient(*(array.astype("f8") for array in arrays), **given, backend="reference")
    errors = [abs(gradient[p.where] - want[p.where]).max() / abs(want[p.where]).max() for p in a.parts.values()]
    return max(*errors, *abs(terms / want_terms - 1))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("rows", [1, 16, 31, 64, 65, 150])
@pytest.mark.parametrize("variant", VARIANTS)
def test_batches_of_one_tile_and_of_several(variant, rows, dtype):
    assert agrees(mlp.Architecture(variant, **SMALL), rows, dtype) <= TOLERANCE[dtype] * 10


@pytest.mark.parametrize(("dtype", "rows"), [("f8", 40), ("f8", 1100), ("f4", 3), ("f4", 40)])
@pytest.mark.parametrize("variant", VARIANTS)
def test_large_layers(variant, rows, dtype):
    assert agrees(mlp.Architecture(variant, **LARGE), rows, dtype) <= TOLERANCE[dtype] * 10


@pytest.mark.parametrize(("dtype", "rows"), [("f8", 128), ("f4", 128), ("f8", 9)])
@pytest.mark.parametrize("variant", ["printed", "amended"])
def test_many_large_clients(variant, rows, dtype):
    assert agrees(mlp.Architecture(variant, **MANY), rows, dtype) <= TOLERANCE[dtype] * 10


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("sizes", [SMALL, LARGE, MANY])
@pytest.mark.parametrize("variant", VARIANTS)
def test_threads_do_not_change_a_bit(variant, sizes, dtype):
    a = mlp.Architecture(variant, **sizes)
    random = np.random.default_rng(1)
    table = random.standard_normal((40, a.n_values * 12)), random.random((40, a.n_conditions)), np.ones(a.n_values)
    start = a.initial(2).astype(dtype), np.zeros((2, a.n_parameters), dtype)
    arrays = problem(a, 130, dtype)

    def both(n_threads):
        given = {"architecture": a, "gamma": 0.5, "n_threads": n_threads, "backend": "cpp"}
        steps = {"rates": np.full(3, 1e-3), "kl_weights": np.ones(3), "kind": "dense", "rank": 12, "batch": 130, "seed": 1}
        return *mlp.vae_gradient(*arrays, **given), *mlp.vae_step(*start, *table, **steps, **given)

    one = both(1)
    assert np.isfinite(one[-1]).all()
    assert not np.array_equal(one[2], start[0])
    for n_threads in (2, 5):
        assert all(x.tobytes() == y.tobytes() for x, y in zip(both(n_threads), one))


def test_large_networks_in_steps_are_those_of_the_reference():
    a = mlp.Architecture("amended", **LARGE)
    random = np.random.default_rng(3)
    table = (
        0.3 * random.standard_normal((30, a.n_values * 5)),
        random.random((30, a.n_conditions)),
        random.random(a.n_values) + 0.5,
    )
    start = a.initial(2), np.zeros((2, a.n_parameters))
    steps = {"rates": np.full(3, 1e-3), "kl_weights": np.ones(3), "kind": "dense", "rank": 5, "batch": 40, "seed": 1}
    found, want = (
        mlp.vae_step(*start, *table, **steps, architecture=a, gamma=0.5, clip=1.0, backend=backend)
        for backend in ("cpp", "reference")
    )
    np.testing.assert_allclose(found[2], want[2], rtol=1e-9)
    for row in range(2):
        assert abs(found[1][row] - want[1][row]).max() <= 1e-9 * abs(want[1][row]).max()
    moved = abs(want[0] - start[0]).max()
    assert np.quantile(abs(found[0] - want[0]), 0.999) <= 1e-6 * moved  # where a gradient is all but zero its sign is rounding


@pytest.mark.parametrize("rank", [1, 7, 8, 13, 40])
@pytest.mark.parametrize("n", [3, 8, 21])
def test_dense_draws_of_single_rows_are_products(n, rank):
    random = np.random.default_rng(n + rank)
    values, scale = random.standard_normal((6, n * rank)), random.random(n)
    values[3] = np.nan  # of one entry alone
    given = {"kind": "dense", "rank": rank, "batch": 50, "seed": 4, "step": 2}
    theta, entry = spatial.table_sample(values, scale, **given, backend="cpp")
    want, same = spatial.table_sample(values, scale, **given, backend="reference")
    np.testing.assert_array_equal(entry, same)
    np.testing.assert_array_equal(np.isnan(theta), np.repeat((entry == 3)[:, None], n, axis=1))
    np.testing.assert_allclose(theta, want, rtol=1e-12, atol=1e-13)
