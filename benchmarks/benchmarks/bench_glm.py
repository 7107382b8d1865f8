"""Generalised linear models: fedkern beside NumPy, Numba, JAX and Opacus, and beside one read of the rows.

Peers compute the same numbers (checked before they are timed). `python -m benchmarks.bench_glm`, from the folder above, prints
the rows of a table; asv runs the same cases.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from fedkern import _core, kernels
from fedkern.kernels import glm

from . import common, floors, peers

SEED = 1


@dataclass(frozen=True)
class Case:
    """One problem: rows, columns, draws, type, family."""

    n: int
    d: int
    draws: int = 1
    dtype: str = "f8"
    family: str = "bernoulli"

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """X, y, mu and log_sigma; touched, so that they are in memory, and the same for all peers."""
        return _arrays(self)


@lru_cache(maxsize=1)
def _arrays(case: Case) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    X = generator.standard_normal((case.n, case.d), dtype=np.dtype(case.dtype)) / np.sqrt(case.d).astype(case.dtype)
    mu, log_sigma = generator.standard_normal(case.d) * 0.1, np.full(case.d, -2.0)
    y = generator.integers(0, 2, case.n).astype(case.dtype)
    return X, y, mu, log_sigma


# The reparameterised ELBO gradient --------------------


def elbo_by_fedkern(case: Case, n_threads: int = 1) -> Callable[[], Any]:
    X, y, mu, log_sigma = case.arrays()
    return lambda: glm.elbo_grad(
        X, y, mu, log_sigma, seed=SEED, family=case.family, draws=case.draws, estimator="total", n_threads=n_threads
    )


def noise(case: Case) -> np.ndarray:
    """(S, d) the same number of draws for the peers, made beforehand: their generators are not what is timed."""
    return np.random.default_rng(1).standard_normal((case.draws, case.d))


def elbo_by_numpy(case: Case) -> Callable[[], Any]:
    X, y, mu, log_sigma = case.arrays()
    e = noise(case)
    rows = 4096 if case.draws > 1 else 1024  # blocks that stay in the second-level cache

    def call() -> Any:
        sigma = np.exp(log_sigma)
        theta = (mu + sigma * e).T.astype(X.dtype)
        value, gradient = 0.0, np.zeros((case.d, case.draws))
        for i in range(0, case.n, rows):
            block, target = X[i : i + rows], y[i : i + rows, None]
            a = block @ theta
            if case.family == "poisson":
                mean = np.exp(a)
                value += float((target * a - mean).sum())
            else:
                mean = 1 / (1 + np.exp(-a))
                value += float((target * a - np.logaddexp(0, a)).sum())
            gradient += block.T @ (target - mean)
        g = gradient.T
        return value / case.draws, g.mean(axis=0) - mu, (g * e * sigma).mean(axis=0) + 1 - sigma**2

    return call


def elbo_by_numba(case: Case) -> Callable[[], Any]:
    """One pass over the rows for each draw."""
    X, y, mu, log_sigma = case.arrays()
    e = noise(case)
    loop, part = peers.loglik_gradient(case.family), np.empty(case.d, X.dtype)

    def call() -> Any:
        sigma = np.exp(log_sigma)
        value, g = 0.0, np.zeros((case.draws, case.d))
        for s in range(case.draws):
            value += loop(X, y, (mu + sigma * e[s]).astype(X.dtype), part, g[s])
        return value / case.draws, g.mean(axis=0) - mu, (g * e * sigma).mean(axis=0) + 1 - sigma**2

    return call


def elbo_by_jax(case: Case) -> Callable[[], Any]:
    jax = common.jax()
    numpy = jax.numpy
    X, y, mu, log_sigma = map(numpy.asarray, case.arrays())
    e = numpy.asarray(noise(case))

    def elbo(mu: Any, log_sigma: Any) -> Any:
        theta = (mu + numpy.exp(log_sigma) * e).astype(X.dtype)
        a = X @ theta.T
        part = y[:, None] * a - (numpy.exp(a) if case.family == "poisson" else jax.nn.softplus(a))
        return part.sum() / case.draws - 0.5 * (mu**2 + numpy.exp(2 * log_sigma)).sum() + log_sigma.sum()

    both = jax.jit(jax.value_and_grad(elbo, argnums=(0, 1)))
    return lambda: jax.block_until_ready(both(mu, log_sigma))


# The clipped sum of a private step --------------------


OF_A_STEP: dict[str, Any] = {"clip": 0.5, "family": "bernoulli", "estimator": "weight-mc", "seed": SEED, "noise_multiplier": 1.0}


def clipped_by_fedkern(case: Case, n_threads: int = 1) -> Callable[[], Any]:
    X, y, mu, log_sigma = case.arrays()
    return lambda: glm.clipped_grad_sum(X, y, mu, log_sigma, n_threads=n_threads, **OF_A_STEP)


def clipped_by_bound(case: Case) -> Callable[[], Any]:
    X, y, mu, log_sigma = case.arrays()
    data, varying = {"X": X, "y": y, "mu": mu, "log_sigma": log_sigma}, ("mu", "log_sigma", "step")
    bound = kernels.bind("glm.clipped_grad_sum", data, varying, step=0, **OF_A_STEP)
    return lambda: bound(mu, log_sigma, 0)


def clipped_by_numpy(case: Case) -> Callable[[], Any]:
    X, y, mu, log_sigma = case.arrays()
    generator = np.random.default_rng(1)

    def call() -> Any:
        sigma, e = np.exp(log_sigma), generator.standard_normal(case.d)
        r = y - 1 / (1 + np.exp(-(X @ (mu + sigma * e).astype(X.dtype))))
        norms = np.abs(r) * np.sqrt((X * X) @ (1 + (sigma * e) ** 2).astype(X.dtype))
        g = (r * np.minimum(1, 0.5 / norms)) @ X
        return np.concatenate([g, g * sigma * e]) + 0.5 * generator.standard_normal(2 * case.d)

    return call


def clipped_by_numba(case: Case) -> Callable[[], Any]:
    X, y, mu, log_sigma = case.arrays()
    generator = np.random.default_rng(1)
    loop, part = peers.clipped_gradients(), np.empty(case.d, X.dtype)

    def call() -> Any:
        sigma, e = np.exp(log_sigma), generator.standard_normal(case.d)
        g = np.zeros(case.d)
        loop(X, y, (mu + sigma * e).astype(X.dtype), (1 + (sigma * e) ** 2).astype(X.dtype), 0.5, part, g)
        return np.concatenate([g, g * sigma * e]) + 0.5 * generator.standard_normal(2 * case.d)

    return call


def clipped_by_jax(case: Case) -> Callable[[], Any]:
    """Gradients of single examples under vmap, clipped and added: what its users write."""
    jax = common.jax()
    numpy = jax.numpy
    X, y, mu, log_sigma = map(numpy.asarray, case.arrays())

    def loss(parameters: Any, x: Any, target: Any, e: Any) -> Any:
        mu, log_sigma = parameters
        a = x @ (mu + numpy.exp(log_sigma) * e).astype(x.dtype)
        return target * a - jax.nn.softplus(a)

    @jax.jit
    def step(key: Any) -> Any:
        first, second = jax.random.split(key)
        e = jax.random.normal(first, (case.d,))
        g = jax.vmap(jax.grad(loss), in_axes=(None, 0, 0, None))((mu, log_sigma), X, y, e)
        v = numpy.concatenate(g, axis=1)
        w = numpy.minimum(1, 0.5 / numpy.linalg.norm(v, axis=1))
        return w @ v + 0.5 * jax.random.normal(second, (2 * case.d,))

    key = jax.random.key(0)
    return lambda: jax.block_until_ready(step(key))


def clipped_by_opacus(case: Case) -> Callable[[], Any]:
    """Opacus' per-sample gradients of a linear layer with variational weights, its clipping and its noise."""
    torch, opacus = common.need("torch"), common.need("opacus")
    torch.set_num_threads(1)
    X, y, mu, log_sigma = (torch.as_tensor(a, dtype=torch.float32) for a in case.arrays())

    class Variational(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean = torch.nn.Linear(case.d, 1, bias=False)
            self.spread = torch.nn.Linear(case.d, 1, bias=False)
            self.mean.weight.data, self.spread.weight.data = mu[None].clone(), log_sigma[None].clone()

        def forward(self, x: Any) -> Any:
            # The layer of the spread sees x * (sigma e): the gradient of an example is then the reparameterised one.
            log_sigma = self.spread.weight.detach()[0]
            scaled = x * (torch.exp(log_sigma) * torch.randn(case.d))
            return (self.mean(x) + self.spread(scaled))[:, 0] + scaled @ (1 - log_sigma)

    module = opacus.GradSampleModule(Variational())
    optimiser = opacus.optimizers.DPOptimizer(
        torch.optim.SGD(module.parameters(), lr=0.0), noise_multiplier=1.0, max_grad_norm=0.5, expected_batch_size=case.n
    )

    def call() -> None:
        optimiser.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(module(X), y, reduction="sum").backward()
        optimiser.step()

    return call


ELBO = {"fedkern": elbo_by_fedkern, "numpy": elbo_by_numpy, "numba": elbo_by_numba, "jax": elbo_by_jax}
CLIPPED = {
    "fedkern": clipped_by_fedkern,
    "fedkern, bound": clipped_by_bound,
    "numpy": clipped_by_numpy,
    "numba": clipped_by_numba,
    "jax": clipped_by_jax,
    "opacus": clipped_by_opacus,
}
ELBO_CASES = {
    "logistic 1e6 x 100, S=1, f64": Case(1_000_000, 100),
    "logistic 1e6 x 100, S=1, f32": Case(1_000_000, 100, dtype="f4"),
    "logistic 2e5 x 100, S=8, f64": Case(200_000, 100, 8),
    "logistic 2e5 x 100, S=8, f32": Case(200_000, 100, 8, "f4"),
    "poisson 2e5 x 100, S=1, f64": Case(200_000, 100, family="poisson"),
}
CLIPPED_CASES = {
    "1 x 108 f32": Case(1, 108, dtype="f4"),
    "256 x 108 f32": Case(256, 108, dtype="f4"),
    "32768 x 108 f32": Case(32768, 108, dtype="f4"),
    "4096 x 2000 f32": Case(4096, 2000, dtype="f4"),
}


class Elbo(common.Timed):
    """Time of the ELBO and its gradient."""

    params = (list(ELBO_CASES), list(ELBO))
    param_names = ("case", "peer")
    one_thread = False

    def make(self, case: str, peer: str) -> common.Call:
        return ELBO[peer](ELBO_CASES[case])

    def time_elbo_grad(self, case: str, peer: str) -> None:
        self.call()


class Clipped(common.Timed):
    """Time of the clipped and noised sum of a private step."""

    params = (list(CLIPPED_CASES), list(CLIPPED))
    param_names = ("case", "peer")
    one_thread = False

    def make(self, case: str, peer: str) -> common.Call:
        return CLIPPED[peer](CLIPPED_CASES[case])

    def time_clipped_grad_sum(self, case: str, peer: str) -> None:
        self.call()


def agree(case: Case) -> None:
    """Peers that see the same draws agree before they are timed."""
    small = Case(2_000, case.d, case.draws, case.dtype, case.family)
    want = elbo_by_numpy(small)()
    tolerance = 1e-9 if case.dtype == "f8" else 2e-4
    for peer, call in common.available({peer: ELBO[peer] for peer in ("numba", "jax")}, small).items():
        got = call()
        grads = got[1] if peer == "jax" else got[1:]
        for a, b in zip(grads, want[1:]):
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * np.abs(b).max())


def rows(cases: dict[str, Case], makers: dict[str, Callable[..., Any]]) -> None:
    """A line for each case: every time as a multiple of one read of X, and the best peer as a multiple of ours."""
    for name, case in cases.items():
        calls = common.available(makers, case) | {"2 threads": makers["fedkern"](case, n_threads=2)}
        side, work = 1024, 4.0 * case.n * case.d * case.draws
        bounds = {"read": floors.read(case.arrays()[0])}
        if case.draws > 1:
            bounds |= {"multiply": floors.multiply(side, case.dtype), "exp": floors.exponentials(case.n * case.draws, case.dtype)}
        seconds = common.times(bounds | calls, seconds=1.5)
        read = seconds.pop("read")
        if case.draws > 1:  # the products hide the read, or the other way round; exponentials want the units of the products
            bound = max(read, seconds.pop("multiply") * work / (2 * side**3)) + seconds.pop("exp")
            print(f"    bound {bound * 1e3:.3f} ms, ours / bound {seconds['fedkern'] / bound:.2f}")
        print(f"{name}: read {read * 1e3:.3f} ms  {common.cells(seconds, '.4f', 1e3, ' ms')}")
        print(common.against(seconds, read, "read"), flush=True)


if __name__ == "__main__":
    print(f"level {_core.isa()}; {common.machine()}")
    peers.agree()
    for case in ELBO_CASES.values():
        agree(case)
    rows(ELBO_CASES, ELBO)
    rows(CLIPPED_CASES, CLIPPED)
