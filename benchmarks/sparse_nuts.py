"""Effective draws per second of the sparse regression beside NumPyro's NUTS, on one federation of tests/references.

    pip install numpyro jax; python benchmarks/sparse_nuts.py

NUTS samples the same posterior with everything integrated out that can be (the deviations, the indicators); compilation and
warm-up are not counted for either. Ours runs as a federated job does: machines, messages, server and clients in one process.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import arviz as az
import numpy as np

from fedkern.algorithms import gibbs
from fedkern.algorithms.gibbs_settings import Layout, Settings
from fedkern.algorithms.gibbs_sites import Factor, Regression
from fedkern.transports.codec import Codec
from fedkern.transports.inprocess import run

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "references"))


def ess(theta) -> float:
    """Of the slowest coefficient; theta (chain, draw, p)."""
    return float(az.ess({"x": np.asarray(theta)})["x"].min())


def ours(X, y, rounds: int = 6000) -> tuple[float, float]:
    """Effective draws, and seconds of the kept rounds."""
    s = Settings(Layout(np.arange(X[0].shape[1])[None]), seed=1, rounds=rounds, burn_in=rounds // 6)
    sites = [Regression(Factor.of(X_k, y_k)) for X_k, y_k in zip(X, y)]
    clients = {k: gibbs.client(str(k), k, s, site) for k, site in enumerate(sites)}
    begin = time.perf_counter()
    server, _ = run(gibbs.protocol(s), gibbs.start(s, len(sites)), clients, Codec(s.dims(), len(sites)))
    return ess(server.trace["theta"]), (time.perf_counter() - begin) * 5 / 6


def nuts(X, y, draws: int = 1000) -> tuple[float, float]:
    """The same of one chain of NUTS, warmed up."""
    import jax
    import sparse as references
    from numpyro.infer import MCMC, NUTS

    jax.config.update("jax_enable_x64", True)
    kernel = NUTS(references.model, target_accept_prob=0.95)
    sampler = MCMC(kernel, num_warmup=1000, num_samples=draws, num_chains=1, progress_bar=False)
    given = references.moments(X, y)
    sampler.warmup(jax.random.key(1), *given)
    sampler.run(jax.random.key(2), *given)  # compiles
    begin = time.perf_counter()
    sampler.run(jax.random.key(3), *given)
    theta = np.asarray(sampler.get_samples(group_by_chain=True)["theta"])
    return ess(theta), time.perf_counter() - begin


if __name__ == "__main__":
    import sparse as references

    name, made = next(iter(references.DATA.items()))
    X, y = references.federation(**made)
    rates = {}
    for sampler, measure in (("fedkern, federated", ours), ("NumPyro NUTS", nuts)):
        draws, seconds = measure(X, y)
        rates[sampler] = draws / seconds
        rate = f"{draws / seconds:.0f} a second"
        print(f"{sampler:<20}{draws:8.0f} effective draws of the slowest coefficient in {seconds:6.2f} s: {rate}")
    first, second = rates.values()
    print(f"{name}, p = {X[0].shape[1]}, {len(X)} sites: {first / second:.0f} times as many")
