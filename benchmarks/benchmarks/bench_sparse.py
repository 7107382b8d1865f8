"""Effective draws per second of the sparse regression beside NumPyro's NUTS, on one federation of tools/references.

    pip install numpyro jax; python -m benchmarks.bench_sparse

NUTS samples the same posterior with everything integrated out that can be (the deviations, the indicators); compilation and
warm-up are not counted for either. Ours runs as a federated job does: machines, messages, server and clients in one process.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from fedkern.algorithms.gibbs import machine as gibbs
from fedkern.algorithms.gibbs.settings import Layout
from fedkern.algorithms.gibbs.sites import Factor, Regression
from fedkern.transports.codec import Codec
from fedkern.transports.inprocess import run_protocol

from .common import need

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from support import chosen

REFERENCES = Path(__file__).parents[2] / "tools" / "references"


def references():
    """The module with the federations and NumPyro's model."""
    need("numpyro")
    sys.path.insert(0, str(REFERENCES))
    try:
        return need("sparse")
    finally:
        sys.path.remove(str(REFERENCES))


def ess(theta) -> float:
    """Of the slowest coefficient; theta (chain, draw, p)."""
    import arviz

    return float(arviz.ess({"x": np.asarray(theta)})["x"].min())


def ours(X, y, rounds: int = 6000) -> tuple[float, float]:
    """Effective draws, and seconds of the kept rounds."""
    s = chosen.gibbs(Layout(np.arange(X[0].shape[1])[None]), seed=1, rounds=rounds, burn_in=rounds // 6)
    sites = [Regression(Factor.of(X_k, y_k)) for X_k, y_k in zip(X, y)]
    clients = {k: gibbs.client(str(k), k, s, site) for k, site in enumerate(sites)}
    begin = time.perf_counter()
    server, _ = run_protocol(gibbs.protocol(s), gibbs.start(s, len(sites)), clients, Codec(s.dims(), len(sites)))
    return ess(server.trace["theta"]), (time.perf_counter() - begin) * 5 / 6


def nuts(X, y, draws: int = 1000) -> tuple[float, float]:
    """The same of one chain of NUTS, warmed up."""
    import jax
    from numpyro.infer import MCMC, NUTS

    jax.config.update("jax_enable_x64", True)
    kernel = NUTS(references().model, target_accept_prob=0.95)
    sampler = MCMC(kernel, num_warmup=1000, num_samples=draws, num_chains=1, progress_bar=False)
    moments = references().moments(X, y)
    sampler.warmup(jax.random.key(1), *moments)
    sampler.run(jax.random.key(2), *moments)  # compiles
    begin = time.perf_counter()
    sampler.run(jax.random.key(3), *moments)
    theta = np.asarray(sampler.get_samples(group_by_chain=True)["theta"])
    return ess(theta), time.perf_counter() - begin


SAMPLERS = {"fedkern, federated": ours, "NumPyro NUTS": nuts}


class EffectiveDraws:
    """Per second, of the slowest coefficient."""

    params = tuple(SAMPLERS)
    param_names = ("sampler",)
    unit = "effective draws per second"
    timeout = 300

    def setup(self, sampler: str) -> None:
        data = references()
        self.X, self.y = data.federation(**next(iter(data.DATA.values())))

    def track_theta(self, sampler: str) -> float:
        draws, seconds = SAMPLERS[sampler](self.X, self.y)
        return draws / seconds


if __name__ == "__main__":
    data = references()
    name, options = next(iter(data.DATA.items()))
    X, y = data.federation(**options)
    rates = []
    for sampler, measure in SAMPLERS.items():
        draws, seconds = measure(X, y)
        rates.append(draws / seconds)
        print(f"{sampler:<20}{draws:8.0f} effective draws (slowest coefficient) in {seconds:6.2f} s: {rates[-1]:.0f} a second")
    print(f"{name}, p = {X[0].shape[1]}, {len(X)} sites: {rates[0] / rates[1]:.0f} times as many")
