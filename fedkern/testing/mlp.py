"""Makes cases of networks, and of the variational autoencoder."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from fedkern.kernels import mlp
from fedkern.kernels import mlp as public
from fedkern.kernels._reference import mlp as _reference
from fedkern.kernels.mlp import Architecture

from . import Arguments, Case, Floats, Source

# Makes cases of the network kernels --------------------

reference: Any = _reference

HIDDEN = ((), (1,), (5,), (8, 8), (16, 16), (17, 3, 9), (96, 80))
KINK = {"float64": 1e-10, "float32": 1e-4}  # a relu's input nearer to 0, relative to its terms, has two derivatives


def parameters_of(source: Source, sizes: tuple[int, ...], scale: float = 1.0) -> Floats:
    """Returns parameters about as large as those of a network that has been trained."""
    parts = [
        part
        for n_in, n_out in itertools.pairwise(sizes)
        for part in (source.random.standard_normal(n_in * n_out) / np.sqrt(n_in), 0.3 * source.random.standard_normal(n_out))
    ]
    return scale * np.concatenate(parts)


def values(
    X: Floats, most: Floats, parameters: Floats, sizes: tuple[int, ...], activation: str
) -> tuple[list[Floats], list[Floats]]:
    """Returns each layer's values and, to first order, the rounding to be allowed for them. It is the sum of the absolute terms,
    with the effect of the rounding of the layers before, beginning with `most` of X."""
    code, h, magnitudes = mlp.ACTIVATIONS[activation], [X.astype(np.float64)], [most.astype(np.float64)]
    layers = reference.layers(parameters.astype(np.float64), sizes)
    with np.errstate(over="ignore", invalid="ignore"):
        for i, (W, b) in enumerate(layers):
            h.append(h[-1] @ W.T + b)
            magnitudes.append(magnitudes[-1] @ abs(W).T + abs(b))
            if i < len(layers) - 1:
                h[-1] = reference.activate(h[-1], code)
                magnitudes[-1] = reference.slope(h[-1], code) * magnitudes[-1] + abs(h[-1])
    return h, magnitudes


def gradient_magnitudes(
    X: Floats, most: Floats, parameters: Floats, upstream: Floats, sizes: tuple[int, ...], activation: str
) -> tuple[Floats, Floats]:
    """Returns the rounding to be allowed for a gradient, where `upstream` are magnitudes: a slope 1 - h^2 has 2|h| times the
    error of h."""
    code, (h, magnitudes) = mlp.ACTIVATIONS[activation], values(X, most, parameters, sizes, activation)
    delta, parts = abs(upstream.astype(np.float64)), list[Floats]()
    with np.errstate(over="ignore", invalid="ignore"):
        for i, (W, _) in reversed(list(enumerate(reference.layers(abs(parameters.astype(np.float64)), sizes)))):
            parts = [(delta.T @ magnitudes[i]).ravel(), delta.sum(axis=0), *parts]
            delta = delta @ W
            if i:
                delta = delta * (reference.slope(h[i], code) + (2 * abs(h[i]) * magnitudes[i] if activation == "tanh" else 0))
    return np.concatenate(parts), delta


def near_a_kink(X: Floats, parameters: Floats, sizes: tuple[int, ...]) -> bool:
    """Tells whether rounding might decide on which side of 0 an input of a relu is."""
    h, most = (X.astype(np.float64), abs(X.astype(np.float64)))
    with np.errstate(over="ignore", invalid="ignore"):
        for W, b in reference.layers(parameters.astype(np.float64), sizes)[:-1]:
            a, most = h @ W.T + b, most @ abs(W).T + abs(b)
            if (abs(a) <= KINK[str(X.dtype)] * most).any():
                return True
            h = reference.activate(a, reference.RELU)
    return False


def problem(source: Source) -> tuple[Arguments, tuple[int, ...]]:
    dtype = source.choose(["f8", "f4"])
    n, sizes = source.size(), (source.choose([1, 2, 3, 9, 33]), *source.choose(HIDDEN), source.choose([1, 2, 3]))
    extremes = source.choose([(), (), (0.0, 1e-200, -1e4, 1e9, np.nan)])
    X = source.normal(n, sizes[0], dtype=dtype, extremes=extremes)
    parameters = source.array(parameters_of(source, sizes, source.choose([1.0, 1.0, 3.0])), dtype)
    activation = source.choose(sorted(mlp.ACTIVATIONS))
    if activation == "relu" and near_a_kink(X, parameters, sizes):
        activation = "tanh"
    return {"X": X, "parameters": parameters, "sizes": sizes, "activation": activation}, sizes


def forward(source: Source) -> Case:
    arguments, sizes = problem(source)
    X, parameters, activation = arguments["X"], arguments["parameters"], arguments["activation"]
    magnitude = values(X, abs(X), parameters, sizes, activation)[1][-1]
    return Case(arguments, precision=str(arguments["X"].dtype), magnitude=[magnitude])


def backward(source: Source) -> Case:
    arguments, sizes = problem(source)
    X, parameters = arguments["X"], arguments["parameters"]
    upstream = source.normal(len(X), sizes[-1], dtype=X.dtype, extremes=source.choose([(), (), (0.0, 1e-200, 1e6)]))
    magnitude = gradient_magnitudes(X, abs(X), parameters, upstream, sizes, arguments["activation"])
    return Case({**arguments, "upstream": upstream}, precision=str(X.dtype), magnitude=magnitude)


# Makes cases of the kernels of the hierarchical variational autoencoder --------------------


VAE_KINK = {"float64": 1e-9, "float32": 1e-5}  # nearer to a kink, relative to its terms, an input has two derivatives
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


def vae_near_a_kink(arrays: tuple[Floats, ...], a: Architecture, limit: float) -> bool:
    """Tells whether rounding might decide about a relu, or about a log variance at the ends of its range."""
    parameters, theta, t, noise = arrays
    net = reference.networks_of(parameters, np.zeros_like(parameters), a)
    objective = reference.multiplicative if a.variant == "multiplicative" else reference.by_networks
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


def inputs(source: Source, a: Architecture, rows: int, dtype: str) -> tuple[Floats, ...]:
    """Returns parameters, theta, t, noise away from kinks."""
    scale = source.choose([1.0, 1.0, 5.0])  # the last one clamps many a log variance
    for _ in itertools.count():
        draw = source.random.standard_normal
        parameters = scale * a.initial(int(source.random.integers(2**32))) + 0.1 * draw(a.n_parameters)
        exact = (parameters, draw((rows, a.n_values)), draw((rows, a.n_conditions)), draw((rows, a.n_latents)))
        arrays = tuple(array.astype(dtype).astype(np.float64) for array in exact)
        if not vae_near_a_kink(arrays, a, VAE_KINK[dtype]):
            return arrays
    raise AssertionError


def most(
    arrays: tuple[Floats, ...], a: Architecture, gamma: float, weight: float, dtype: str, random: np.random.Generator
) -> list[Floats]:
    """Returns how large the results are, or the change that a relative change of all inputs makes, divided by it."""
    results = reference.elbo(*arrays, a, gamma, weight)
    moved = [array * (1 + STEP * random.choice([-1.0, 1.0], array.shape)) for array in arrays]
    change = [abs(x - y).max() / STEP for x, y in zip(reference.elbo(*moved, a, gamma, weight), results)]
    return [SLACK[dtype] * (abs(x).max() + 10 * c) for x, c in zip(results, change)]


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


def table(source: Source, n: int) -> Arguments:
    """Returns a table of a few priors."""
    T, kind, rank, draw = source.choose([1, 4]), source.choose(["stored", "dense", "sparse"]), 0, source.random.standard_normal
    pattern: Arguments = {}
    if kind == "sparse":
        columns = [np.r_[i, i + 1 + np.flatnonzero(source.random.random(n - i - 1) < 0.3)] for i in range(n)]
        pattern = {
            "indptr": np.cumsum([0, *map(len, columns)]),
            "indices": np.concatenate(columns),
            "order": source.random.permutation(n),
        }
        values = 0.3 * draw((T, pattern["indptr"][-1]))
        values[:, pattern["indptr"][:-1]] = source.random.uniform(1, 2, (T, n))
    else:
        rank = source.choose([1, 4]) if kind == "dense" else 0
        values = draw((T, n * rank if rank else n))
    return {
        "values": source.array(values, extremes=source.choose([(), (), (np.nan, 1e200)])),
        "scale": source.array(source.random.uniform(0.5, 2, n)),
        "kind": kind,
        "rank": rank,
        "group": source.choose([1, 8]),
        **{name: source.array(part, np.int64) for name, part in pattern.items()},
    }


def vae_step(source: Source) -> Case:
    """Makes a case in the middle of a run: the second moments keep a step a smooth function of its gradient. A table may have an
    entry that is not finite, or too large; then the first step that draws it ends the run."""
    a, dtype, n_steps = architecture(source), source.choose(["float64", "float32"]), source.choose([0, 1, 3])
    k, draw = a.n_parameters, source.random.standard_normal
    priors = table(source, a.n_values)
    arguments = {
        "parameters": source.array(a.initial(int(source.random.integers(2**32))) + 0.1 * draw(k), dtype),
        "moments": source.array(np.stack([draw(k), 1 + source.random.exponential(size=k)]), dtype),
        **priors,
        "phi": source.normal(len(priors["values"]), a.n_conditions),
        "rates": source.array(source.random.uniform(0, 1e-3, n_steps)),
        "kl_weights": source.array(source.choose([1.0, source.random.random(n_steps)]) * np.ones(n_steps)),
        "architecture": a,
        "batch": source.choose([1, 9, 32]),
        "gamma": source.choose([0.1, 0.5]),
        "clip": source.choose([0.0, 3.0]),
        "seed": source.choose([0, 2**64 - 1]),
        "chain": source.choose([0, 5]),
        "first": source.choose([0, 70_000]),
    }
    results = public.vae_step(**arguments, backend="reference")
    largest = abs(np.nan_to_num(results[2])).max(axis=0, initial=1.0)
    slack = 1 + 1e-3 * largest[4]  # what rounding and a relu on its other side may change of the gradient
    return Case(arguments, "chain", dtype, [1 + abs(results[0]), slack * (1 + abs(results[1])), largest], wanted=results)
