"""Spatial priors: fedkern beside SciPy by hand, JAX and NumPy, and the two routes to draws beside each other.

`python -m benchmarks.bench_spatial [vi|routes|gp]`, from the folder above, prints the rows of a table; asv runs the same cases.
BLAS has one thread; JAX is not told how many to use. The maps are triangulations of random points, six neighbours on average.

A step of mean-field variational inference for the proper autoregressive prior draws theta and logit phi, evaluates log density
and gradient with a Gaussian likelihood, and updates 2 (n + 1) parameters by Adam. `scipy` and `jax` add up logarithms of n
eigenvalues for the log-determinant, as one would by hand; `jax` is one compiled function; `fedkern` is a call each of
`rng.normal`, `car_logdensity` and `optim.adam`, beside NumPy.

Draws for changing phi: `spectral` is a product of the n x n eigenvectors with the batch, after a decomposition of O(n^3);
`sparse` solves with factors of a table of 64 phi, `group` rows of the batch with one of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import eigvalsh
from scipy.spatial import Delaunay

from fedkern import _core
from fedkern.kernels import optim, rng, spatial

from . import common

SIZES = (100, 500, 1000, 2221, 5000)
BATCH = 128
SD = 0.5
AHEAD = 16  # steps whose normals are made in one call


@lru_cache(maxsize=8)
def planar(n: int) -> tuple[np.ndarray, np.ndarray]:
    triangles = Delaunay(np.random.default_rng(0).random((n, 2))).simplices
    one = np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [2, 0]]])
    pairs = np.unique(np.concatenate([one, one[:, ::-1]]), axis=0)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(pairs[:, 0], minlength=n))]).astype(np.int64)
    return indptr, np.ascontiguousarray(pairs[:, 1], np.int64)


@lru_cache(maxsize=2)
def eigenvalues(n: int) -> np.ndarray:
    """Of D^-1/2 W D^-1/2, without vectors."""
    indptr, indices = planar(n)
    root = np.sqrt(spatial.diagonal(indptr))
    values = eigvalsh(spatial.adjacency(indptr, indices).toarray() / root / root[:, None])
    values[-1] = 1.0
    return values


# A step of mean-field variational inference --------------------


def response(n: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(n)


def start(n: int) -> np.ndarray:
    """Means of theta and logit phi, then the logs of their standard deviations."""
    return np.concatenate([np.zeros(n + 1), np.full(n + 1, -1.0)])


def logistic_prior(x: float) -> tuple[float, float, float, float]:
    """phi = 0.99 sigmoid(x), its slope; log density N(x; 0, 2) and its slope."""
    s = 1 / (1 + np.exp(-x))
    return 0.99 * s, 0.99 * s * (1 - s), -(x**2) / 4, -x / 2


def step_by_fedkern(n: int) -> Callable[[], Any]:
    indptr, indices = planar(n)
    table, y, key = spatial.logdet_table(eigenvalues(n), indptr), response(n), rng.key(1)
    options, series = table.options, table.coefficients
    parameters, state, count = start(n), np.zeros((3, 2 * n + 2)), -1
    mean, log_sd = parameters[: n + 1], parameters[n + 1 :]
    gradient, spread, draw, left, phi = np.empty(2 * n + 2), np.empty(n + 1), np.empty(n + 1), np.empty(n), np.empty(1)
    upper, lower, theta, row = gradient[: n + 1], gradient[n + 1 :], draw[:n], draw[None, :n]
    normals = np.empty((AHEAD, n + 1))

    def call() -> Any:
        nonlocal state, count
        count += 1
        if count % AHEAD == 0:
            rng.normal(normals.size, key=key, step=count // AHEAD, out=normals.reshape(-1))
        np.exp(log_sd, out=spread)
        np.multiply(spread, normals[count % AHEAD], out=spread)
        np.add(mean, spread, out=draw)
        phi[0], slope, value, prior = logistic_prior(draw[n])
        density, grad, grad_phi = spatial.car_logdensity(row, phi, indptr, indices, series, **options)
        np.subtract(y, theta, out=left)
        np.multiply(left, 1 / SD**2, out=upper[:n])
        upper[:n] += grad[0]
        upper[n] = grad_phi[0] * slope + prior
        np.multiply(upper, spread, out=lower)
        np.add(lower, 1, out=lower)
        state, step = optim.adam(state, gradient, learning_rate=1e-3)
        np.add(parameters, step, out=parameters)
        return density[0] + value - left @ left / (2 * SD**2), gradient

    return call


def step_by_scipy(n: int, normals: Callable[[], np.ndarray] | None = None) -> Callable[[], Any]:
    indptr, indices = planar(n)
    W, d, y, lam = spatial.adjacency(indptr, indices), np.diff(indptr).astype(float), response(n), eigenvalues(n)
    constant = 0.5 * np.log(d).sum() - 0.5 * n * np.log(2 * np.pi)
    generator = np.random.default_rng(1)
    parameters, m, v, count = start(n), np.zeros(2 * n + 2), np.zeros(2 * n + 2), 0

    def call() -> Any:
        nonlocal parameters, m, v, count
        e = normals() if normals else generator.standard_normal(n + 1)
        sd = np.exp(parameters[n + 1 :])
        draw = parameters[: n + 1] + sd * e
        theta = draw[:n]
        phi, slope, value, prior = logistic_prior(draw[n])
        around, own = W @ theta, d * theta
        q = 1 - phi * lam
        cross = theta @ around
        density = constant + 0.5 * np.log(q).sum() - 0.5 * (theta @ own - phi * cross)
        left = y - theta
        upper = np.empty(n + 1)
        upper[:n] = phi * around - own + left / SD**2
        upper[n] = (0.5 * cross - 0.5 * (lam / q).sum()) * slope + prior
        gradient = np.concatenate([upper, upper * e * sd + 1])
        count += 1
        m = 0.9 * m + 0.1 * gradient
        v = 0.999 * v + 0.001 * gradient * gradient
        parameters = parameters + 1e-3 * (m / (1 - 0.9**count)) / (np.sqrt(v / (1 - 0.999**count)) + 1e-8)
        return density + value - left @ left / (2 * SD**2), gradient

    return call


def step_by_jax(n: int) -> Callable[[], Any]:
    jax = common.jax()
    jnp = jax.numpy
    indptr, indices = planar(n)
    rows, columns = jnp.asarray(np.repeat(np.arange(n), np.diff(indptr))), jnp.asarray(indices)
    d, y, lam = jnp.asarray(np.diff(indptr).astype(float)), jnp.asarray(response(n)), jnp.asarray(eigenvalues(n))

    def target(draw: Any) -> Any:
        theta, x = draw[:n], draw[n]
        phi = 0.99 * jax.nn.sigmoid(x)
        around = jax.ops.segment_sum(theta[columns], rows, n, indices_are_sorted=True)
        density = 0.5 * jnp.log1p(-phi * lam).sum() - 0.5 * (theta @ (d * theta) - phi * theta @ around)
        return density - x**2 / 4 - ((y - theta) ** 2).sum() / (2 * SD**2)

    @jax.jit
    def update(parameters: Any, state: Any, key: Any) -> Any:
        key, own = jax.random.split(key)
        e = jax.random.normal(own, (n + 1,))
        sd = jnp.exp(parameters[n + 1 :])
        value, upper = jax.value_and_grad(target)(parameters[: n + 1] + sd * e)
        gradient = jnp.concatenate([upper, upper * e * sd + 1])
        m, v, t = 0.9 * state[0] + 0.1 * gradient, 0.999 * state[1] + 0.001 * gradient**2, state[2] + 1
        step = 1e-3 * (m / (1 - 0.9 ** t[0])) / (jnp.sqrt(v / (1 - 0.999 ** t[0])) + 1e-8)
        return parameters + step, jnp.stack([m, v, t]), key, value

    carry = [jnp.asarray(start(n)), jnp.zeros((3, 2 * n + 2)), jax.random.PRNGKey(1)]

    def call() -> Any:
        *carry[:], value = update(*carry)
        return jax.block_until_ready(value)

    return call


STEPS: dict[str, Callable[[int], Callable[[], Any]]] = {"fedkern": step_by_fedkern, "scipy": step_by_scipy, "jax": step_by_jax}


def agree(n: int = 500) -> None:
    """The two that can be given the same normals compute the same numbers."""
    normals = iter(rng.normal(AHEAD * (n + 1), key=rng.key(1)).reshape(AHEAD, n + 1))
    ours, theirs = step_by_fedkern(n), step_by_scipy(n, lambda: next(normals))
    for _ in range(5):
        (a, f), (b, g) = ours(), theirs()
        assert abs(a - b) < 1e-8 * abs(b)
        assert np.linalg.norm(f - g) < 1e-9 * np.linalg.norm(g)


class Step(common.Timed):
    """Time of a step of mean-field variational inference, 2,221 areas."""

    params = (list(STEPS),)
    param_names = ("peer",)

    def make(self, peer: str) -> common.Call:
        return STEPS[peer](2221)

    def time_step(self, peer: str) -> None:
        self.call()


# Draws for changing phi --------------------


def spectral(n: int) -> Callable[[], Any]:
    """The decomposition takes its time from 2,000 areas on: any matrix of the same size costs the same product."""
    vectors = np.random.default_rng(2).standard_normal((n, n))
    values, weights, phi = np.linspace(-0.5, 1, n), np.ones(n), np.random.default_rng(3).uniform(0, 0.99, BATCH)
    counter = iter(range(2**31))
    return lambda: spatial.car_sample(vectors, values, weights, phi, seed=1, step=next(counter))


def sparse_draws(n: int, group: int = 8) -> Callable[[], Any]:
    table = spatial.DrawTable.car(*planar(n), 0.99 * spatial.stratified(64, seed=1), group=group)
    counter = iter(range(2**31))
    return lambda: table.sample(1, next(counter), BATCH)


def factor(n: int) -> Callable[[], Any]:
    """64 factors."""
    graph = planar(n)
    p, phi = spatial.car_analyse(*graph), 0.99 * spatial.stratified(64, seed=1)
    return lambda: spatial.car_factor(phi, p.order, p.indptr, p.indices, *graph)


def factor_by_scipy(n: int) -> Callable[[], Any]:
    """One factor by SuperLU, its order found anew as SciPy has it."""
    Q = sparse.csc_array(spatial.car_precision(*planar(n), 0.9))
    return lambda: sparse.linalg.splu(Q, "MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})


ROUTES: dict[str, Callable[[int], Callable[[], Any]]] = {
    "spectral": spectral,
    "sparse, groups of 8": sparse_draws,
    "sparse, each its own": lambda n: sparse_draws(n, 1),
}


class Draws(common.Timed):
    """Time of 128 draws."""

    params = (list(SIZES), list(ROUTES))
    param_names = ("areas", "route")

    def make(self, areas: int, route: str) -> common.Call:
        return ROUTES[route](areas)

    def time_draws(self, areas: int, route: str) -> None:
        self.call()


# Gaussian processes --------------------

X = np.linspace(0, 1, 100)[:, None]


def process_by_fedkern(batch: int = 32) -> Callable[[], Any]:
    lengthscale, counter = np.random.default_rng(4).uniform(0.2, 1, batch), iter(range(2**31))
    return lambda: spatial.gp_sample(X, lengthscale, seed=1, step=next(counter))


def process_by_table(batch: int = 32) -> Callable[[], Any]:
    table = spatial.DrawTable.gp(X, 0.2 + 0.8 * spatial.stratified(512, seed=1))
    counter = iter(range(2**31))
    return lambda: table.sample(1, next(counter), batch)


def process_by_numpy(batch: int = 32) -> Callable[[], Any]:
    generator, squares = np.random.default_rng(5), (X - X.T) ** 2
    lengthscale = np.random.default_rng(4).uniform(0.2, 1, batch)

    def call() -> Any:
        K = np.exp(-0.5 * squares / lengthscale[:, None, None] ** 2)
        return np.einsum("bij,bj->bi", np.linalg.cholesky(K + 1e-6 * np.eye(100)), generator.standard_normal((batch, 100)))

    return call


PROCESSES: dict[str, Callable[[], Callable[[], Any]]] = {
    "table": process_by_table,
    "fedkern": process_by_fedkern,
    "numpy": process_by_numpy,
}


class Process(common.Timed):
    """Time of 32 draws at 100 places, each with its own lengthscale (of a table: groups of 8 with one of 512)."""

    params = (list(PROCESSES),)
    param_names = ("peer",)

    def make(self, peer: str) -> common.Call:
        return PROCESSES[peer]()

    def time_draws(self, peer: str) -> None:
        self.call()


def show(name: str, calls: dict[str, Callable[[], Any]], unit: float, suffix: str) -> None:
    print(f"{name}, {suffix}: {common.cells(common.times(calls, seconds=2), '.4g', unit)}", flush=True)


if __name__ == "__main__":
    parts = sys.argv[1:] or ["vi", "routes", "gp"]
    print(f"level {_core.isa()}; {common.machine()}")
    with common.alone():
        if "vi" in parts:
            agree()
            show("step of mean-field inference, 2,221 areas", common.available(STEPS, 2221), 1e6, "us")
        for size in SIZES if "routes" in parts else ():
            show(f"{BATCH} draws, {size} areas", common.available(ROUTES, size), 1e3, "ms")
            factors = {"fedkern": factor(size), "scipy": factor_by_scipy(size)}
            show(f"64 factors, one by SuperLU, {size} areas", factors, 1e3, "ms")
        if "gp" in parts:
            show("32 draws at 100 places", common.available(PROCESSES), 1e6, "us")
