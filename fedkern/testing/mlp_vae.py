"""Cases of the kernels of the hierarchical variational autoencoder."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from fedkern.kernels._reference.mlp import vae as _reference
from fedkern.kernels.mlp import Architecture

from . import Case, Source

reference: Any = _reference

KINK = {"float64": 1e-9, "float32": 1e-5}  # nearer to a kink, relative to its terms, an input has two derivatives
STEP = 1e-8  # relative, of a change of all inputs that shows how far rounding carries
SLACK = {"float64": 1.0, "float32": 30.0}


def architecture(source: Source) -> Architecture:
    groups = source.choose([(1,), (3, 2), (4, 1, 9), (17, 8)])
    return Architecture(
        source.choose(["printed", "amended", "multiplicative"]),
        groups,
        n_conditions=source.choose([1, 2]),
        n_global=source.choose([1, 3, 5]),
        n_local=tuple(source.choose([1, 2, 5]) for _ in groups),
        hidden=source.choose([1, 5, 16, 17]),
        local_hidden=source.choose([2, 16, 9]),
        width=source.choose([3, 32]),
        rank=source.choose([1, 6]),
    )


def near_a_kink(arrays: tuple[Any, ...], a: Architecture, limit: float) -> bool:
    """Whether rounding might decide about a relu, or about a log variance at the ends of its range."""
    parameters, theta, t, noise = arrays
    net = reference.networks_of(parameters, np.zeros_like(parameters), a)
    objective = reference.multiplicative if a.variant == "multiplicative" else reference.networks
    objective(net, theta, t, noise, a, 1.0, 1.0)
    for name, part in net.items():
        for network in part if isinstance(part, tuple) else (part,):
            if not isinstance(network, reference.Network):
                continue
            for i, (W, b) in enumerate(network.layers):
                value, most = network.h[i] @ W.T + b, abs(network.h[i]) @ abs(W).T + abs(b)
                ends: tuple[float, ...] = (0.0,) if i == 0 and not network.tanh else ()
                if i == len(network.layers) - 1 and name.partition("[")[0] in ("global_encoder", "prior", "posterior"):
                    ends = (reference.LOWEST, reference.HIGHEST)
                if any((abs(value - end) <= limit * (most + abs(end))).any() for end in ends):
                    return True
    return False


def inputs(source: Source, a: Architecture, rows: int, dtype: str) -> tuple[Any, ...]:
    """parameters, theta, t, noise away from kinks."""
    scale = source.choose([1.0, 1.0, 5.0])  # the last one clamps many a log variance
    for _ in itertools.count():
        draw = source.random.standard_normal
        parameters = scale * a.initial(int(source.random.integers(2**32))) + 0.1 * draw(a.n_parameters)
        exact = (parameters, draw((rows, a.n_values)), draw((rows, a.n_conditions)), draw((rows, a.n_latents)))
        arrays = tuple(array.astype(dtype).astype(np.float64) for array in exact)
        if not near_a_kink(arrays, a, KINK[dtype]):
            return arrays
    raise AssertionError


def most(arrays: tuple[Any, ...], a: Architecture, gamma: float, weight: float, dtype: str, random: Any) -> list[Any]:
    """How large the results are, or the change that a relative change of all inputs makes, divided by it."""
    found = reference.elbo(*arrays, a, gamma, weight)
    moved = [array * (1 + STEP * random.choice([-1.0, 1.0], array.shape)) for array in arrays]
    change = [abs(x - y).max() / STEP for x, y in zip(reference.elbo(*moved, a, gamma, weight), found)]
    return [SLACK[dtype] * (abs(x).max() + 10 * c) for x, c in zip(found, change)]


def vae_gradient(source: Source) -> Case:
    a, rows, dtype = architecture(source), max(source.size(), 1), source.choose(["float64", "float32"])
    gamma, weight = source.choose([0.03, 0.5, 2.0]), source.choose([1.0, 0.0, 0.3])
    arrays = inputs(source, a, rows, dtype)
    arguments = {
        **dict(zip(("parameters", "theta", "t", "noise"), (source.array(array, dtype) for array in arrays))),
        "architecture": a,
        "gamma": gamma,
        "kl_weight": weight,
    }
    return Case(arguments, precision=dtype, magnitude=most(arrays, a, gamma, weight, dtype, source.random))
