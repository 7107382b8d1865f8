"""Makes cases of the network kernels."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from fedkern.kernels import mlp
from fedkern.kernels._reference.mlp import networks as _reference

from .. import Arguments, Case, Floats, Source

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
