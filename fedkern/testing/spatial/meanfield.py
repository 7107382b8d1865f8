"""Cases of mean-field inference of autoregressive priors."""

from __future__ import annotations

import numpy as np

from fedkern.kernels import spatial

from .. import Arguments, Case, Source
from .car import SMALL, graph


def car_meanfield(source: Source) -> Case:
    n, steps, form = source.choose(SMALL), source.choose([0, 1, 2, 7]), source.choose(["car", "leroux"])
    random, (indptr, indices) = source.random, graph(source, n)
    lo, hi = source.choose([(0.0, 0.99), (0.2, 0.5)])
    series = spatial.logdet_table(spatial.car_eigen(indptr, indices, form=form).values, indptr, form=form, lo=lo, hi=hi)
    first = source.choose([0, 0, 5, 2**32 - 8])
    parameters = np.stack([random.standard_normal(n + 1), random.uniform(-2, 0, n + 1)])
    squares = random.exponential(size=(2, n + 1)) * (first > 0)
    moments = np.stack([random.standard_normal((2, n + 1)) * (first > 0), squares])
    if source.choose([True, False, False]) and n:
        parameters[1, random.integers(n + 1)] = 800.0  # the draw is not finite
    names = {"y": 2 * random.standard_normal(n), "weight": random.uniform(0, 4, n) * (random.random(n) < 0.8)}
    arrays: Arguments = {name: source.array(a) for name, a in names.items()}
    arrays |= {"indptr": source.array(indptr, np.int64), "indices": source.array(indices, np.int64)}
    later = {"logdet": series.coefficients, "parameters": parameters, "moments": moments, "rates": random.uniform(0, 0.02, steps)}
    arrays |= {name: source.array(a) for name, a in later.items()}
    options = {key: value for key, value in series.options.items() if key != "rank"}
    priors = {"prior_mean": source.choose([0.0, 1.0]), "prior_variance": source.choose([2.0, 0.5])}
    counters = {"seed": source.choose([3, 2**64 - 1]), "chain": source.choose([0, 9]), "first": first}
    most = 1e3 * (1 + abs(names["y"]).sum() + n), 1e4 * (1 + n), 1e6 * (1 + n) ** 2
    sizes = [np.full((2, n + 1), most[0]), np.full((2, 2, n + 1), most[2]), np.full(steps, most[1])]
    return Case(arrays | options | priors | counters, magnitude=sizes)
