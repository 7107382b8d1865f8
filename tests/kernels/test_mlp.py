"""Networks: gradients against differences and against a chain written by hand, counts of parameters, accuracy of float32, errors.

(mlp.forward and mlp.backward are also in the conformance test of all kernels.)
"""

from __future__ import annotations

import numpy as np
import pytest

from fedkern import testing
from fedkern.kernels import mlp
from fedkern.kernels._record import KERNELS
from fedkern.testing.mlp import gradient_magnitudes, near_a_kink, parameters_of, values
from oracles.differences import four_point, relative

BACKENDS = KERNELS["mlp.forward"].backends
ACTIVATIONS = sorted(mlp.ACTIVATIONS)
DIFFERENCES = 5e-6  # of four-point central differences
SIZES = ((3, 2), (1, 1, 1), (2, 16, 16, 2), (9, 8, 8, 2), (4, 7, 3, 5, 1))


def problem(sizes, n=23, seed=0, dtype="f8"):
    source = testing.Source(lambda options: options[0], np.random.default_rng(seed))
    draw = source.random.standard_normal
    X, upstream = draw((n, sizes[0])), draw((n, sizes[-1]))
    return [a.astype(dtype) for a in (X, parameters_of(source, sizes), upstream)]


# Gradients ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("sizes", SIZES)
def test_gradients_are_differences_of_the_values(sizes, activation, backend):
    X, parameters, upstream = problem(sizes, n=7)
    network = {"sizes": sizes, "activation": activation, "backend": backend}
    f = lambda X, parameters: float((upstream * mlp.forward(X, parameters, **network)).sum())  # noqa: E731
    grad_parameters, grad_X = mlp.backward(X, parameters, upstream, **network)
    step = 1e-6 if activation == "relu" else 1e-3  # linear on this side of the next kink
    assert relative(grad_parameters, four_point(lambda p: f(X, p), parameters, step)) <= DIFFERENCES
    assert relative(grad_X, four_point(lambda x: f(x, parameters), X, step)) <= DIFFERENCES


def test_negative_control_a_gradient_that_is_off_by_a_hundred_thousandth_is_noticed():
    X, parameters, upstream = problem((2, 16, 16, 2), n=7)
    f = lambda p: float((upstream * mlp.forward(X, p, sizes=(2, 16, 16, 2))).sum())  # noqa: E731
    gradient, _ = mlp.backward(X, parameters, upstream, sizes=(2, 16, 16, 2))
    assert relative(gradient * (1 + 1e-5), four_point(f, parameters)) > DIFFERENCES


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("n", [1, 65])
def test_a_chain_written_by_hand(n, backend):
    X, parameters, upstream = problem((3, 5, 2), n)
    W1, b1, W2, b2 = parameters[:15].reshape(5, 3), parameters[15:20], parameters[20:30].reshape(2, 5), parameters[30:]
    h = np.tanh(X @ W1.T + b1)
    below = (upstream @ W2) * (1 - h**2)
    want = np.concatenate([(below.T @ X).ravel(), below.sum(axis=0), (upstream.T @ h).ravel(), upstream.sum(axis=0)])
    np.testing.assert_allclose(
        mlp.forward(X, parameters, sizes=(3, 5, 2), backend=backend), h @ W2.T + b2, rtol=1e-12, atol=1e-13
    )
    grad_parameters, grad_X = mlp.backward(X, parameters, upstream, sizes=(3, 5, 2), backend=backend)
    np.testing.assert_allclose(grad_parameters, want, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(grad_X, below @ W1, rtol=1e-11, atol=1e-12)
    assert relative(grad_parameters, want * np.r_[np.ones(15), np.zeros(5), np.ones(12)]) > 1e-3  # negative control


@pytest.mark.parametrize("backend", BACKENDS)
def test_identity_is_a_product_of_matrices(backend):
    X, parameters, upstream = problem((3, 5, 4, 2))
    (W1, b1), (W2, b2), (W3, b3) = (
        (parameters[i : i + a * b].reshape(b, a), parameters[i + a * b : i + a * b + b])
        for i, a, b in ((0, 3, 5), (20, 5, 4), (44, 4, 2))
    )
    network = {"sizes": (3, 5, 4, 2), "activation": "identity", "backend": backend}
    W, b = W3 @ W2 @ W1, W3 @ (W2 @ b1 + b2) + b3
    np.testing.assert_allclose(mlp.forward(X, parameters, **network), X @ W.T + b, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(mlp.backward(X, parameters, upstream, **network)[1], upstream @ W, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_relu_has_no_slope_at_its_kink(backend):
    parameters = np.array([1.0, 0.0, 2.0, 0.0])  # y = 2 relu(x)
    X = np.array([[-1.0], [-0.0], [0.0], [1e-300], [1.0]])
    network = {"sizes": (1, 1, 1), "activation": "relu", "backend": backend}
    np.testing.assert_array_equal(mlp.forward(X, parameters, **network)[:, 0], [0, 0, 0, 2e-300, 2])
    np.testing.assert_array_equal(mlp.backward(X, parameters, np.ones((5, 1)), **network)[1][:, 0], [0, 0, 0, 2, 2])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_tanh_far_out_and_near_zero(backend, dtype):
    parameters = np.array([1.0, 0.0, 1.0, 0.0], dtype)
    X = np.array([[-1e30], [-30.0], [-1e-30], [0.0], [1e-5], [1.0], [1e30]], dtype)
    network = {"sizes": (1, 1, 1), "backend": backend}
    rtol = 1e-15 if dtype == "f8" else 3e-7
    np.testing.assert_allclose(mlp.forward(X, parameters, **network), np.tanh(X), rtol=rtol, atol=0)
    slope = mlp.backward(X, parameters, np.ones_like(X), **network)[1]
    np.testing.assert_allclose(slope, 1 - np.tanh(X.astype("f8")) ** 2, atol=4e-16 if dtype == "f8" else 2e-7)


# Sizes, rows, threads ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "k"), [((2, 16, 16, 2), 354), ((1, 16, 16, 2), 338), ((9, 8, 8, 2), 170), ((3, 1), 4), ((1, 1, 1), 4)]
)
def test_number_of_parameters(sizes, k):
    assert mlp.n_parameters(sizes) == k
    assert mlp.n_parameters(list(sizes)) == k


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_are_independent_and_gradients_add_up(backend):
    sizes, (X, parameters, upstream) = (4, 7, 3, 2), problem((4, 7, 3, 2), n=300)
    whole = mlp.forward(X, parameters, sizes=sizes, backend=backend)
    grad, grad_X = mlp.backward(X, parameters, upstream, sizes=sizes, backend=backend)
    total = np.zeros_like(grad)
    for rows in (slice(0, 1), slice(1, 70), slice(70, 300)):
        np.testing.assert_allclose(
            mlp.forward(X[rows], parameters, sizes=sizes, backend=backend), whole[rows], rtol=1e-13, atol=1e-14
        )
        part, part_X = mlp.backward(X[rows], parameters, upstream[rows], sizes=sizes, backend=backend)
        np.testing.assert_allclose(part_X, grad_X[rows], rtol=1e-12, atol=1e-14)
        total += part
    np.testing.assert_allclose(total, grad, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("n", [1, 257])
def test_large_layers(n, dtype, backend):
    sizes = (300, 400, 260, 10)
    for activation in ("tanh", "relu"):
        X, parameters, upstream = problem(sizes, n, dtype=dtype)
        if activation == "relu" and near_a_kink(X, parameters, sizes):
            continue
        call = {"X": X, "parameters": parameters, "sizes": sizes, "activation": activation}
        precision = str(X.dtype)
        testing.assert_conforms(
            "mlp.forward",
            backend,
            testing.Case(call, "reduction", precision, [values(X, abs(X), parameters, sizes, activation)[1][-1]]),
        )
        magnitude = gradient_magnitudes(X, abs(X), parameters, upstream, sizes, activation)
        testing.assert_conforms(
            "mlp.backward", backend, testing.Case(call | {"upstream": upstream}, "reduction", precision, magnitude)
        )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("sizes", [(2, 3), (2, 16, 16, 2), (2, 300, 2)])
def test_sums_over_rows_of_float32_are_right_to_a_millionth(sizes, backend):
    """A plain float32 sum of so many rows is off by 1e-4."""
    n = 20_000
    X, parameters, _ = problem(sizes, n, dtype="f4")
    X, upstream = abs(X), np.full((n, sizes[-1]), 0.1, np.float32)
    found, _ = mlp.backward(X, parameters, upstream, sizes=sizes, backend=backend, n_threads=2)
    want, _ = mlp.backward(
        X.astype("f8"), parameters.astype("f8"), upstream.astype("f8"), sizes=sizes, backend=backend, n_threads=2
    )
    assert relative(found, want) <= 1e-6
    bias = np.add.accumulate(upstream[:, 0])[-1]
    assert abs(bias / (n * np.float64(np.float32(0.1))) - 1) > 1e-6  # negative control


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_row_that_is_not_a_number_stays_one(backend, activation):
    X, parameters, _ = problem((3, 5, 2))
    X[4, 1] = np.nan
    found = mlp.forward(X, parameters, sizes=(3, 5, 2), activation=activation, backend=backend)
    np.testing.assert_array_equal(np.isnan(found), (np.arange(23) == 4)[:, None] & np.ones(2, bool))


# Errors ------------------------------------------------------------------------------------------------------------------------


ERRORS = [
    ({"activation": "gelu"}, ValueError, "activation must be one of tanh, relu, identity, got 'gelu'"),
    ({"sizes": (3,)}, ValueError, r"sizes must be at least two positive integers below 2\^31, got \(3,\)"),
    ({"sizes": (3, -5, 2)}, ValueError, r"sizes must be .*, got \(3, -5, 2\)"),
    ({"sizes": (3, 5.0, 2)}, TypeError, r"sizes must be integers, got \("),
    ({"sizes": (3, 6, 2)}, ValueError, r"parameters must have shape \(k\) with k = 38, got \(32,\)"),
    ({"upstream": np.zeros((23, 2), "f4")}, TypeError, "upstream must be float64 as X is, got float32"),
    ({"out": np.zeros(32)}, TypeError, "out must be a tuple of grad_parameters, grad_X"),
]


@pytest.mark.parametrize(("change", "error", "message"), ERRORS)
def test_errors_say_what_was_wanted_and_what_came(change, error, message):
    X, parameters, upstream = problem((3, 5, 2))
    call = {"X": X, "parameters": parameters, "upstream": upstream, "sizes": (3, 5, 2)} | change
    with pytest.raises(error, match=message):
        mlp.backward(**call)


def test_one_of_two_outputs_may_be_given():
    X, parameters, upstream = problem((3, 5, 2))
    grad_X = np.zeros_like(X)
    found = mlp.backward(X, parameters, upstream, sizes=(3, 5, 2), out=(None, grad_X))
    assert found[1] is grad_X
    want = mlp.backward(X, parameters, upstream, sizes=(3, 5, 2))
    assert all(a.tobytes() == b.tobytes() for a, b in zip(found, want))


# Large layers ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "tolerance"), [("f8", 1e-13), ("f4", 2e-6)])
@pytest.mark.parametrize("activation", ["tanh", "identity"])
def test_large_layers_through_blas(activation, dtype, tolerance):
    """More than 512 rows and 32768 weights in a layer: the compiled kernel calls BLAS, a block of rows at a time."""
    sizes = (3, 210, 170, 2)
    X, parameters, upstream = problem(sizes, n=1100, dtype=dtype)
    network = {"sizes": sizes, "activation": activation}
    got = mlp.forward(X, parameters, **network), *mlp.backward(X, parameters, upstream, **network)
    want = (
        mlp.forward(X, parameters, **network, backend="reference"),
        *mlp.backward(X, parameters, upstream, **network, backend="reference"),
    )
    for a, b in zip(got, want, strict=True):
        assert relative(a.astype("f8"), b.astype("f8")) <= tolerance
    for a, b in zip(got[1:], mlp.backward(X, parameters, upstream, **network, n_threads=2), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("dtype", "tolerance"), [("f8", 1e-13), ("f4", 2e-6)])
@pytest.mark.parametrize("n", [1, 37, 128])
def test_few_rows_and_large_layers(n, dtype, tolerance):
    """131072 weights or more in a layer: all rows are one tile, and the gradient is written where it belongs."""
    sizes = (311, 453, 301, 3)
    X, parameters, upstream = problem(sizes, n=n, dtype=dtype)
    network = {"sizes": sizes, "activation": "tanh"}
    want = (
        mlp.forward(X, parameters, **network, backend="reference"),
        *mlp.backward(X, parameters, upstream, **network, backend="reference"),
    )
    spread = np.empty(2 * parameters.size, dtype), np.empty((n, 2 * sizes[0]), dtype)
    into = spread[0][::2], spread[1][:, ::2]
    twice = np.repeat(parameters, 2)[::2]
    for out, p in ((None, parameters), (into, twice)):
        got = mlp.forward(X, p, **network), *mlp.backward(X, p, upstream, **network, out=out)
        for a, b in zip(got, want, strict=True):
            assert relative(a.astype("f8"), b.astype("f8")) <= tolerance
