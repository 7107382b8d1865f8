"""Computes networks over the rows of a matrix. Values of a piece of rows are kept for the way back; a network of small layers is
bound by writing and reading them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..device import MATRIX, Array, blocks, current, matrix, multiply, named, neighbours, pointer, strides, structure, vector

THREADS = 256
C_TYPES = {"float64": "double", "float32": "float"}
ACTIVATIONS = ("tanh", "relu", "identity")
# Rows over which a gradient is summed in the type of the arrays, before it is summed in float64.
CHUNK = {"float64": 512, "float32": 32}
MOST = 2**26  # numbers of a workspace
MOST_TILES = 65535  # of a grid's second dimension
NOWHERE = structure(MATRIX, 0, 0, 0, 0, 0)


class Layer(NamedTuple):
    """Describes an affine map: where its weights W (n_out, n_in) begin; its bias stands behind them."""

    at: int
    n_in: int
    n_out: int

    @property
    def bias(self) -> int:
        return self.at + self.n_out * self.n_in

    def weights_of(self, flat: Array) -> Array:
        """Returns a view of W; of several vectors of parameters, a view for each."""
        return flat[..., self.at : self.bias].reshape(*flat.shape[:-1], self.n_out, self.n_in)

    def bias_of(self, flat: Array) -> Array:
        return flat[..., self.bias : self.bias + self.n_out]


def layers_of(sizes: Any) -> list[Layer]:
    layers, at = list[Layer](), 0
    for n_in, n_out in itertools.pairwise(map(int, sizes)):
        layers.append(Layer(at, n_in, n_out))
        at += n_out * (n_in + 1)
    return layers


def affine(x: Array, weights: Array, bias: Array, activation: str = "identity", out: Array = None) -> Array:
    """Returns activation(x W' + b)."""
    products = current().xp.empty((len(x), len(weights)), x.dtype)
    multiply(x, weights.T, products)
    out = products if out is None else out
    kernel = f"biased<{C_TYPES[named(x.dtype)]}, Activation::{activation}>"
    current().launch("mlp", kernel, (blocks(products.size, THREADS),), THREADS, (products, bias, matrix(out)))
    return out


def pull(d: Array, activation: str, values: Array, to: Array, bias: Array) -> Array:
    """Goes the way back through an activation, to `to` if it is given. The sums of columns go to `bias` (n_out,), or those of
    each chunk of rows to its rows."""
    chunks = bias if bias.ndim == 2 else bias[None]
    chunk = CHUNK[named(d.dtype)] if bias.ndim == 2 else len(d)
    grid = (len(chunks), min(-(-d.shape[1] // 32), MOST_TILES))
    arguments = (matrix(d), pointer(values), NOWHERE if to is None else matrix(to), chunk, pointer(bias), strides(chunks)[0])
    current().launch("mlp", f"pull<{C_TYPES[named(d.dtype)]}, Activation::{activation}>", grid, THREADS, arguments)
    return to


def add_up(d: Array, x: Array, weights: Array) -> None:
    """Computes weights (chunks, n_out, n_in) = d' x of each chunk of rows."""
    chunk = CHUNK[named(d.dtype)]
    whole, rest = divmod(len(d), chunk)
    if whole:
        of_d, of_x = (a[: whole * chunk].reshape(whole, chunk, -1) for a in (d, x))
        multiply(of_d.transpose(0, 2, 1), of_x, weights[:whole])
    if rest:
        multiply(d[whole * chunk :].T, x[whole * chunk :], weights[whole])


def pieces(n: int, layers: list[Layer], chunk: int) -> Iterator[slice]:
    """Yields slices of as many rows at once as the workspaces may have."""
    units = layers[0].n_in + sum(2 * layer.n_out for layer in layers)
    parameters = layers[-1].bias + layers[-1].n_out
    rows = max(min(MOST // units // chunk, MOST // parameters), 1) * chunk
    return (slice(begin, min(begin + rows, n)) for begin in range(0, n, rows))


def forth(x: Array, flat: Array, layers: list[Layer], activation: str, out: Array) -> list[Array]:
    """Returns the inputs of all layers; the last one's values go to `out`, if it is given."""
    inputs = [x]
    for layer in layers[:-1]:
        inputs.append(affine(inputs[-1], layer.weights_of(flat), layer.bias_of(flat), activation))
    if out is not None:
        affine(inputs[-1], layers[-1].weights_of(flat), layers[-1].bias_of(flat), out=out)
    return inputs


def forward(X: Array, parameters: Array, sizes: object, activation: int, Y: Array, n_threads: int) -> None:
    layers, flat, X = layers_of(sizes), neighbours(parameters), neighbours(X)
    for rows in pieces(len(X), layers, CHUNK[named(X.dtype)]):
        forth(X[rows], flat, layers, ACTIVATIONS[activation], Y[rows])


def backward(
    X: Array,
    parameters: Array,
    upstream: Array,
    sizes: object,
    activation: int,
    grad_parameters: Array,
    grad_X: Array,
    n_threads: int,
) -> None:
    if not len(X):
        grad_parameters[...] = 0
        return
    xp, layers, flat, X = current().xp, layers_of(sizes), neighbours(parameters), neighbours(X)
    n, k, dtype, kind = len(X), len(flat), X.dtype, ACTIVATIONS[activation]
    sums = xp.empty(k)
    chunk = CHUNK[named(dtype)]
    for rows in pieces(n, layers, chunk):
        h, partial = forth(X[rows], flat, layers, kind, None), xp.empty((-(-len(X[rows]) // chunk), k), dtype)
        last = layers[-1]
        d = pull(upstream[rows], "identity", None, xp.empty((len(h[0]), last.n_out), dtype), last.bias_of(partial))
        for i, layer in reversed(list(enumerate(layers))):
            add_up(d, h[i], layer.weights_of(partial))
            back = xp.empty(h[i].shape, dtype)
            multiply(d, layer.weights_of(flat), back)
            d = pull(back, kind, h[i], back, layers[i - 1].bias_of(partial)) if i else back
        grad_X[rows] = d
        before, after = (sums if rows.start else None), (sums if rows.stop < n else None)
        arguments = (partial, len(partial), pointer(before), pointer(after), vector(grad_parameters))
        current().launch("mlp", f"sum_chunks<{C_TYPES[named(dtype)]}>", (blocks(k, THREADS),), THREADS, arguments)
