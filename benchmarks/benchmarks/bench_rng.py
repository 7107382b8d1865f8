"""Random numbers: fedkern beside NumPy and JAX, and beside the floor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedkern.kernels import rng

from . import common, floors, peers

KEY = rng.key(1)
SIZES = [1, 10_000, 1_000_000]
DISTRIBUTIONS = ["uniform", "normal", "exponential", "gamma", "inverse_gaussian"]
SHAPE, MEAN = 2.5, 1.5


def by_fedkern(name: str, n: int, backend: str = "cpp", n_threads: int = 1) -> Callable[[], Any]:
    options: dict[str, Any] = {"key": KEY, "out": np.zeros(n), "backend": backend, "n_threads": n_threads}
    if name == "gamma":
        return lambda: rng.gamma(SHAPE, size=n, **options)
    if name == "inverse_gaussian":
        return lambda: rng.inverse_gaussian(MEAN, SHAPE, size=n, **options)
    function = getattr(rng, name)
    return lambda: function(n, **options)


def by_numpy(name: str, n: int) -> Callable[[], Any]:
    generator, out = np.random.default_rng(1), np.zeros(n)
    calls: dict[str, Callable[[], Any]] = {
        "uniform": lambda: generator.random(out=out),
        "normal": lambda: generator.standard_normal(out=out),
        "exponential": lambda: generator.standard_exponential(out=out),
        "gamma": lambda: generator.standard_gamma(SHAPE, out=out),
        "inverse_gaussian": lambda: generator.wald(MEAN, SHAPE, n),
    }
    return calls[name]


def by_numba(name: str, n: int) -> Callable[[], Any]:
    """Numba's own generator, in a loop."""
    loop, out = peers.fill(name), np.zeros(n)
    more = {"gamma": (SHAPE,), "inverse_gaussian": (MEAN, SHAPE)}.get(name, ())
    return lambda: loop(out, *more)


def by_jax(name: str, n: int) -> Callable[[], Any]:
    jax = common.jax()
    if name == "inverse_gaussian":
        raise common.absent("an inverse Gaussian in JAX")
    draws: dict[str, Callable[[Any], Any]] = {
        "uniform": lambda key: jax.random.uniform(key, (n,), "float64"),
        "normal": lambda key: jax.random.normal(key, (n,), "float64"),
        "exponential": lambda key: jax.random.exponential(key, (n,), "float64"),
        "gamma": lambda key: jax.random.gamma(key, SHAPE, (n,), "float64"),
    }
    draw, key = jax.jit(draws[name]), jax.random.key(1)
    return lambda: draw(key).block_until_ready()


def poisson() -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Poisson counts of means about 1.5 by inversion, as responses are drawn anew: ours, and a loop by hand."""
    n = 65_536
    u, mean, counts = rng.uniform(n, key=KEY), np.exp(0.3 + 0.5 * rng.normal(n, key=KEY, draw=1)), np.empty(n)
    first, loop = np.exp(-mean), peers.poisson_counts()
    return lambda: rng.counts(u, np.inf, first, 0.0, mean, terms=200), lambda: loop(u, mean, first, counts)


PEERS = {
    "fedkern": by_fedkern,
    "fedkern, 2 threads": lambda name, n: by_fedkern(name, n, n_threads=2),
    "numba": by_numba,
    "numpy": by_numpy,
    "jax": by_jax,
}


class Fill(common.Timed):
    """Seconds for n numbers."""

    params = (DISTRIBUTIONS, list(PEERS), SIZES)
    param_names = ("distribution", "peer", "n")

    def make(self, distribution: str, peer: str, n: int) -> common.Call:
        return PEERS[peer](distribution, n)

    def time_fill(self, distribution: str, peer: str, n: int) -> None:
        self.call()


class AgainstNumPy:
    """Times as fast as NumPy's generator."""

    params = (DISTRIBUTIONS, SIZES[1:])
    param_names = ("distribution", "n")
    unit = "times as fast"

    def track_numpy(self, distribution: str, n: int) -> float:
        return common.ratio(by_fedkern(distribution, n), by_numpy(distribution, n))


class AgainstFloor:
    """Normals against the random words that they are made of, and against writing the memory once."""

    params = ([10_000, 1_000_000],)
    param_names = ("n",)
    unit = "x floor"

    def track_normal_over_words(self, n: int) -> float:
        return common.ratio(by_fedkern("uniform", n), by_fedkern("normal", n))

    def track_normal_over_write(self, n: int) -> float:
        return common.ratio(floors.write(np.zeros(n)), by_fedkern("normal", n))


class Overhead:
    """Microseconds of one call for one number: what checks and the crossing into C++ cost."""

    unit = "us"

    def track_call(self) -> float:
        return 1e6 * common.medians(by_fedkern("normal", 1))[0]
