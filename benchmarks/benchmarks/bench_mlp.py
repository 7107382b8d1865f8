"""Networks and optimisers: fedkern beside NumPy, Numba, JAX and torch, and beside what the machine can do.

`python -m benchmarks.bench_mlp`, from the folder above, prints the rows of a table; asv runs the same cases. Peers compute the
same numbers (checked before they are timed). BLAS and torch have one thread; JAX is not told how many to use, so its times may be
those of all cores: there is a column of two threads of ours too.

A gradient in parameters and input of a network with M = sum_l d_(l-1) d_l weights takes 2 n M flops forward, as many for the
gradient in the weights and as many for that in the inputs of the layers, and n times the hidden units' activations:

=============== ========================== ===== ========= ============== ================================
network         sizes                      n     6 n M     tanh           bytes of parameters and rows
=============== ========================== ===== ========= ============== ================================
heart           9-8-8-2 relu               826   0.75 M    0              0.2 MB
conditional     3-16-16-2 tanh             500   1.01 M    16,000         0.05 MB
                                           826   1.67 M    26,432         0.08 MB
large           2221-2024-2024-100 relu    128   6.76 G    0              35 MB read twice and written once
=============== ========================== ===== ========= ============== ================================

The bound is the flops at the rate of a large matrix product of the same type, and as many exponentials as there are tanh. Adam
reads 4 numbers a parameter and writes 4: its bound is a copy of as many.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from fedkern import _core
from fedkern.kernels import mlp, optim

from . import common, floors


@dataclass(frozen=True)
class Case:
    """A network, its rows and their type."""

    n: int
    sizes: tuple[int, ...]
    activation: str
    dtype: str = "f8"

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """X, parameters, upstream: the same for all peers."""
        return _arrays(self)

    @property
    def weights(self) -> int:
        return sum(a * b for a, b in pairwise(self.sizes))

    @property
    def tanh(self) -> int:
        return self.n * sum(self.sizes[1:-1]) if self.activation == "tanh" else 0


@lru_cache(maxsize=4)
def _arrays(case: Case) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0).standard_normal
    parts = [part for a, b in pairwise(case.sizes) for part in (draw(a * b) / np.sqrt(a), 0.1 * draw(b))]
    arrays = draw((case.n, case.sizes[0])), np.concatenate(parts), draw((case.n, case.sizes[-1]))
    return tuple(a.astype(case.dtype) for a in arrays)


CASES = {
    "heart 9-8-8-2 n=826": Case(826, (9, 8, 8, 2), "relu"),
    "conditional 3-16-16-2 n=500": Case(500, (3, 16, 16, 2), "tanh"),
    "conditional 3-16-16-2 n=826": Case(826, (3, 16, 16, 2), "tanh"),
    "large 2221-2024-2024-100 n=128 f32": Case(128, (2221, 2024, 2024, 100), "relu", "f4"),
}


def layers(parameters: Any, sizes: tuple[int, ...]) -> list[tuple[Any, Any]]:
    """Views of the flat parameters, for any array library."""
    views, at = [], 0
    for a, b in pairwise(sizes):
        views.append((parameters[at : at + a * b].reshape(b, a), parameters[at + a * b : at + a * b + b]))
        at += b * (a + 1)
    return views


# Gradients in parameters and input --------------------


def gradient_by_fedkern(case: Case, backend: str | None = None, n_threads: int = 1) -> Callable[[], Any]:
    X, parameters, upstream = case.arrays()
    options: dict[str, Any] = {"sizes": case.sizes, "activation": case.activation, "backend": backend, "n_threads": n_threads}
    return lambda: mlp.backward(X, parameters, upstream, **options)


def gradient_by_numpy(case: Case) -> Callable[[], Any]:
    X, parameters, upstream = case.arrays()
    tanh = case.activation == "tanh"

    def call() -> Any:
        parts, h = layers(parameters, case.sizes), [X]
        for W, b in parts:
            if len(h) > 1:
                np.tanh(h[-1], out=h[-1]) if tanh else np.maximum(h[-1], 0, out=h[-1])
            a = h[-1] @ W.T
            a += b
            h.append(a)
        grad, delta = np.empty_like(parameters), upstream
        for i in range(len(parts) - 1, -1, -1):
            W, b = layers(grad, case.sizes)[i]
            np.matmul(delta.T, h[i], out=W)
            delta.sum(axis=0, out=b)
            delta = delta @ parts[i][0]
            if i:
                delta *= 1 - h[i] ** 2 if tanh else h[i] > 0
        return grad, delta

    return call


def gradient_by_jax(case: Case) -> Callable[[], Any]:
    jax = common.jax()
    X, parameters, upstream = map(jax.numpy.asarray, case.arrays())
    act = jax.numpy.tanh if case.activation == "tanh" else jax.nn.relu

    def network(X: Any, parameters: Any) -> Any:
        parts = layers(parameters, case.sizes)
        for W, b in parts[:-1]:
            X = act(X @ W.T + b)
        return X @ parts[-1][0].T + parts[-1][1]

    @jax.jit
    def gradient(X: Any, parameters: Any, upstream: Any) -> Any:
        grad_X, grad = jax.vjp(network, X, parameters)[1](upstream)
        return grad, grad_X

    return lambda: jax.block_until_ready(gradient(X, parameters, upstream))


def gradient_by_torch(case: Case) -> Callable[[], Any]:
    torch = common.need("torch")
    torch.set_num_threads(1)
    X, parameters, upstream = map(torch.tensor, case.arrays())
    X.requires_grad_()
    parts = [(W.clone().requires_grad_(), b.clone().requires_grad_()) for W, b in layers(parameters, case.sizes)]
    leaves = [p for part in parts for p in part]
    act, linear = torch.tanh if case.activation == "tanh" else torch.relu, torch.nn.functional.linear

    def call() -> Any:
        h = X
        for W, b in parts[:-1]:
            h = act(linear(h, W, b))
        *grads, grad_X = torch.autograd.grad(linear(h, *parts[-1]), [*leaves, X], upstream)
        return grads, grad_X

    return call


PEERS: dict[str, Callable[[Case], Callable[[], Any]]] = {
    "fedkern": gradient_by_fedkern,
    "numpy": gradient_by_numpy,
    "jax": gradient_by_jax,
    "torch": gradient_by_torch,
}


def agree(case: Case) -> None:
    """All peers compute the same numbers."""
    want = [a.astype("f8") for a in gradient_by_fedkern(case, "reference")()]
    tolerance = 1e-10 if case.dtype == "f8" else 1e-2  # in float32 some inputs of a relu fall on the other side of 0
    for peer, call in common.available(PEERS, case).items():
        grad, grad_X = call()
        flat = np.concatenate([np.asarray(g).ravel() for g in grad]) if isinstance(grad, list) else np.asarray(grad)
        for got, right in ((flat, want[0]), (np.asarray(grad_X), want[1])):
            assert np.linalg.norm(got - right) <= tolerance * np.linalg.norm(right), peer


def bound(case: Case) -> float:
    """Seconds: the flops at the rate of a large product, and the exponentials."""
    size = 1024
    product, exponentials = common.medians(floors.multiply(size, case.dtype), floors.exponentials(max(case.tanh, 1), case.dtype))
    return 6 * case.n * case.weights / (2 * size**3) * product + (exponentials if case.tanh else 0.0)


class Gradient(common.Timed):
    """Time of a gradient in parameters and input."""

    params = (list(CASES), list(PEERS))
    param_names = ("case", "peer")

    def make(self, case: str, peer: str) -> common.Call:
        return PEERS[peer](CASES[case])

    def time_backward(self, case: str, peer: str) -> None:
        self.call()


class GradientRatios:
    params = (list(CASES),)
    param_names = ("case",)
    timeout = 300

    def track_bound(self, case: str) -> float:
        with common.alone():
            return common.medians(gradient_by_fedkern(CASES[case]))[0] / bound(CASES[case])

    def track_jax(self, case: str) -> float:
        with common.alone():
            return common.ratio(gradient_by_fedkern(CASES[case]), gradient_by_jax(CASES[case]))

    track_bound.unit = "x floor"
    track_jax.unit = "times as fast"


# Adam --------------------

LENGTHS = (358, 1004, 100_000, 5_000_000)


def adam_arrays(k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return np.stack([rng.standard_normal(k), rng.exponential(size=k), np.full(k, 7.0)]), rng.standard_normal(k)


def adam_by_fedkern(k: int, backend: str | None = None) -> Callable[[], Any]:
    state, gradient = adam_arrays(k)
    return lambda: optim.adam(state, gradient, learning_rate=1e-3, backend=backend)


def adam_by_numpy(k: int) -> Callable[[], Any]:
    state, g = adam_arrays(k)

    def call() -> Any:
        new = np.empty_like(state)
        m, v, t = new
        np.multiply(state[0], 0.9, out=m)
        m += 0.1 * g
        np.multiply(state[1], 0.999, out=v)
        v += 0.001 * g * g
        np.add(state[2], 1, out=t)
        count = t[0]  # all the same: NumPy is spared the powers
        step = np.sqrt(v * (1 / (1 - 0.999**count)))
        step += 1e-8
        np.divide(m, step, out=step)
        step *= 1e-3 / (1 - 0.9**count)
        return new, step

    return call


def adam_by_jax(k: int) -> Callable[[], Any]:
    jax = common.jax()
    state, gradient = map(jax.numpy.asarray, adam_arrays(k))

    @jax.jit
    def update(state: Any, g: Any) -> Any:
        m, v, t = 0.9 * state[0] + 0.1 * g, 0.999 * state[1] + 0.001 * g * g, state[2] + 1
        step = 1e-3 * (m / (1 - 0.9 ** t[0])) / (jax.numpy.sqrt(v / (1 - 0.999 ** t[0])) + 1e-8)
        return jax.numpy.stack([m, v, t]), step

    return lambda: jax.block_until_ready(update(state, gradient))


def adam_by_torch(k: int) -> Callable[[], Any]:
    """In place, which needs fewer bytes than a pure function."""
    torch = common.need("torch")
    torch.set_num_threads(1)
    parameters = torch.zeros(k, dtype=torch.float64, requires_grad=True)
    parameters.grad = torch.tensor(adam_arrays(k)[1])
    return torch.optim.Adam([parameters], lr=1e-3, fused=True).step


ADAM: dict[str, Callable[[int], Callable[[], Any]]] = {
    "fedkern": adam_by_fedkern,
    "numpy": adam_by_numpy,
    "jax": adam_by_jax,
    "torch": adam_by_torch,
}


class Adam(common.Timed):
    """Time of an iteration over a flat vector."""

    params = (list(LENGTHS), list(ADAM))
    param_names = ("parameters", "peer")

    def make(self, parameters: int, peer: str) -> common.Call:
        return ADAM[peer](parameters)

    def time_adam(self, parameters: int, peer: str) -> None:
        self.call()


if __name__ == "__main__":
    print(f"level {_core.isa()}; {common.machine()}")
    with common.alone():
        for name, case in CASES.items():
            agree(case)
            calls = common.available(PEERS, case) | {"fedkern, 2 threads": gradient_by_fedkern(case, n_threads=2)}
            common.row(f"gradient, {name}", calls, bound(case))
        for k in LENGTHS:
            common.row(f"adam, {k} parameters", common.available(ADAM, k), common.medians(floors.copy(np.ones((4, k))))[0])
