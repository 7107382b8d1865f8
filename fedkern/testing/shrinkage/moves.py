"""Makes cases of the moves of the sparse models."""

from __future__ import annotations

import numpy as np

from .. import Arguments, Case, Floats, Source

CHAINS = (0, 1, 2)
SMALL = (1, 2, 3, 8, 17)


def block(source: Source, p: int) -> Floats:
    size = source.choose([p, 2 * p, min(3, 2 * p)])
    return source.array(np.arange(p) if size == p else source.random.permutation(2 * p)[:size], np.int64)


def move_terms(source: Source) -> Case:
    c, p, r = source.choose(CHAINS), source.choose(SMALL), source.choose(SMALL)
    random, r = source.random, min(r, p)
    R, q, theta, d = np.triu(random.standard_normal((r, p))), *(random.standard_normal((c, n)) for n in (r, p, p))
    tau_sq, sigma_sq = np.exp(random.standard_normal((c, p))), np.exp(random.standard_normal(c))
    slab, at = source.choose([np.inf, 0.6]), block(source, p)
    w = np.where(at >= p, (abs(d) / np.sqrt(tau_sq))[:, at % p], 1.0)
    V = abs(R)[:, at % p] * w[:, None, :]
    slab_gradient = w * abs(d)[:, at % p] / slab**2
    gradient = np.einsum("cra,cr->ca", V, abs(q) + (abs(theta) + abs(d)) @ abs(R).T) / sigma_sq[:, None] + slab_gradient
    precision = np.einsum("cra,crb->cab", V, V) / sigma_sq[:, None, None]
    precision += (w / slab)[:, :, None] * (w / slab)[:, None, :]
    arrays = {"R": R, "q": q, "theta": theta, "deviation": d, "tau_sq": tau_sq, "sigma_sq": sigma_sq}
    arguments = {name: source.array(a) for name, a in arrays.items()} | {"block": at, "slab": slab}
    return Case(arguments, magnitude=[gradient, precision])


def move(source: Source) -> Case:
    c, p, random = source.choose(CHAINS), source.choose(SMALL), source.random
    at = block(source, p)
    A = random.standard_normal((c, len(at), len(at) + 3))
    arrays = {
        "gradient": 5 * random.standard_normal((c, len(at))),
        "precision": A @ A.transpose(0, 2, 1),
        "theta": random.standard_normal((c, p)),
        "tau_sq": np.exp(random.standard_normal((c, p))),
        "gamma": random.integers(0, 2, (c, p)),
        "eta": np.exp(random.standard_normal((c, p))),
    }
    options = {
        "spike_variance": source.choose([0.0, 0.02]),
        "scale_tau": source.choose([1.0, 0.3]),
        "c0": source.choose([0.01, 0.2]),
    }
    counter = {"seed": source.choose([3, 2**64 - 1]), "chain": source.choose([0, 9]), "step": source.choose([0, 2**32 - 1])}
    arguments: Arguments = {name: source.array(a) for name, a in arrays.items()}
    return Case(arguments | {"block": at} | options | counter, magnitude=[np.full((c, p), 30.0)] * 2)
