"""Makes cases of the server's kernels of the sparse models."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedkern.kernels import shrinkage

from .. import Arguments, Case, Floats, Results, Source

SMALL = (0, 1, 2)
SERVER = {"seed": 2**64 - 5, "step": 2**32 - 9}


def kinds(source: Source, g: int, p: int) -> Floats:
    """Returns indicators of each kind: one for a coefficient alone, one for a group, always included, absent."""
    index = np.tile(np.arange(p, dtype=np.int64), (g, 1))
    shape = source.choose(["plain", "diagonal", "groups", "mixed"])
    if shape == "diagonal":
        for r in range(min(g, p)):
            index[r, r] = -2
    if shape in ("groups", "mixed"):
        index //= 3
    if shape == "mixed":
        index[source.random.random(index.shape) < 0.2] = -1
        index[source.random.random(index.shape) < 0.2] = -2
    return source.array(index, np.int64)


def state(source: Source, c: int, g: int, p: int) -> Arguments:
    random, shape = source.random, (c, g, p)
    eta = source.array(np.exp(random.standard_normal((c, g, 1))) * np.ones(shape))
    return {
        "indicators": kinds(source, g, p),
        "theta": source.array(0.5 * random.standard_normal(shape)),
        "tau_sq": source.array(np.exp(source.choose([1.0, 6.0]) * random.standard_normal(shape) - 3)),
        "gamma": source.array(random.integers(0, 2, shape)),
        "eta": eta,
        "rho": source.array(random.choice([0.03, 0.5, 0.9, 1e-12], (c, g))),
    }


def options(source: Source) -> Arguments:
    return {
        "scales": source.choose(["exact", "expanded"]),
        "order": source.choose(["blocked", "printed"]),
        "eta_form": source.choose(["common", "coordinate"]),
        "c0": source.choose([0.01, 0.3]),
        "spike_variance": source.choose([0.0, 0.01]),
        "scale_tau": source.choose([1.0, 0.1]),
        "shape_eta": source.choose([2.0, 0.4]),
        "rho_b": source.choose([1.0, 5.0]),
        "shared_rho": source.choose([False, True]),
        "slab": source.choose([np.inf, 2.0]),
        "chain": source.choose([0, 2**64 - 7]),
    }


def clients(source: Source, *shape: int) -> Arguments:
    deviation = 10.0 ** source.choose([0, -3]) * source.random.standard_normal(shape)
    scales = np.exp(source.choose([1.0, 9.0]) * source.random.standard_normal(shape))
    return {"deviation": source.array(deviation, extremes=(1.0, 0.0, 1e-140)), "lambda_sq": source.array(scales)}


def case(function: Callable[..., Results], arguments: Arguments) -> Case:
    """Returns a case. Rounding errors of theta and of the deviations are relative to the largest theta, those of the other
    results to themselves. A second pass draws scales about deviations that theta has left with fewer digits."""
    loss = 1e4 if arguments.get("n_passes", 1) > 1 else 10
    results = function(**arguments, backend="reference")
    magnitude = [np.abs(result) for result in results]
    for i in (0, 6):
        if magnitude[i].dtype == np.float64:
            magnitude[i] = magnitude[i] + max(np.max(abs(a), initial=0) for a in (results[0], arguments["theta"]))
    return Case(arguments, kind="variate", magnitude=[loss * m for m in magnitude], wanted=results)


def local_sums(source: Source) -> Case:
    c, g = source.choose(SMALL), source.choose(SMALL)
    return Case(clients(source, c, g, source.size()) | {"slab": source.choose([np.inf, 2.0])}, kind="exact")


def global_sweep(source: Source) -> Case:
    c, g, p = source.choose(SMALL), source.choose(SMALL), source.size()
    how = options(source) | {"scale_lambda": source.choose([1.0, 0.2])}
    how["n_passes"] = 1 if how["scales"] == "expanded" else source.choose([1, 3])
    locals_ = clients(source, source.choose([1, 2, 3, 7]), c, g, p)
    return case(shrinkage.global_sweep, locals_ | state(source, c, g, p) | how | SERVER)


def global_sweep_sums(source: Source) -> Case:
    c, g, p, m = source.choose(SMALL), source.choose(SMALL), source.size(), source.choose([1, 2, 5])
    how = options(source)
    each = clients(source, m, c, g, p)
    terms = [shrinkage.local_sums(d, s, slab=how["slab"]) for d, s in zip(each["deviation"], each["lambda_sq"])]
    sums = {"sums": source.array(sum(terms)), "n_clients": m}
    return case(shrinkage.global_sweep_sums, sums | state(source, c, g, p) | how | SERVER)
