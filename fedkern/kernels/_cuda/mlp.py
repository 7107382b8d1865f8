"""Runs networks, and the variational autoencoder made of them, on a device."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fedkern._core import rng

from .._layers import Sizes, parts_of
from .device import (
    MATRIX,
    Array,
    blocks,
    current,
    key,
    matrix,
    multiply,
    named,
    neighbours,
    pointer,
    recorded,
    strides,
    structure,
    vector,
)
from .spatial import DENSE, DRAWN, SPARSE, STORED, drawn, normals

# --------------------
# Computes networks over the rows of a matrix. Values of a piece of rows are kept for the way back; a network of small layers is
# bound by writing and reading them.

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
    layers, begin = list[Layer](), 0
    for n_in, n_out in itertools.pairwise(map(int, sizes)):
        layers.append(Layer(begin, n_in, n_out))
        begin += n_out * (n_in + 1)
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
    target = NOWHERE if to is None else matrix(to)
    arguments = (matrix(d), pointer(values), target, chunk, pointer(bias), strides(chunks)[0])
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


# --------------------
# Computes the hierarchical autoencoder: client after client, forth and back, for the whole batch. The equations are in the
# reference.


class Part(NamedTuple):
    """Holds affine layers with an activation behind the first of several."""

    layers: tuple[Layer, ...]
    activation: str = "relu"


@lru_cache(maxsize=16)
def plan_of(code: bytes) -> tuple[Sizes, dict[str, Part]]:
    """Returns the sizes, and parts by name: where each layer's parameters stand."""
    a, parts = Sizes.of(np.frombuffer(code, np.int64)), dict[str, Part]()
    for name, part in parts_of(a).items():
        layers, begin = [], part.where.start
        for layer in part.layers:
            layers.append(Layer(begin, layer.n_in, layer.n_out))
            begin += layer.n_parameters
        activation = "tanh" if name.endswith("_weights") else "relu"
        parts[name] = Part(tuple(layers), activation)
    return a, parts


class Batch(NamedTuple):
    """Holds rows, one behind the other, and the numbers of the maximised function. The KL weight in use is the one at the number
    of steps that the device has made."""

    theta_t: Array  # [theta; t]
    noise: Array
    gamma: float
    kl_weights: Array
    made: Array


class Pass:
    """Goes one way forth and back.

    Attributes
    ----------
    sums : (3, rows) float64 array
        |theta - mu|^2, KL_G and sum_j KL_j.
    """

    def __init__(self, code: Any, flat: Array, batch: Batch, gradient: Array) -> None:
        self.a, self.parts = plan_of(code.tobytes())
        self.flat, self.gradient, self.batch = flat, gradient, batch
        self.dtype, self.rows = flat.dtype, len(batch.noise)
        self.theta, self.t = batch.theta_t[:, : sum(self.a.groups)], batch.theta_t[:, sum(self.a.groups) :]
        self.sums = current().xp.empty((3, self.rows))

    def run_pass(self) -> Array:
        """Writes the gradient."""
        mixed = self.a.variant == "multiplicative"
        width = 2 * self.a.rank if mixed else self.a.hidden
        self.cleared = self.empty(self.a.n_latents + width).ravel()
        self.launch("cleared", self.cleared.size, self.cleared, self.cleared.size, self.sums, self.sums.size)
        pass_of_kind = self._mixtures if mixed else self._networks
        pass_of_kind()
        return self.sums

    # ---- Launches.

    def empty(self, columns: int) -> Array:
        return current().xp.empty((self.rows, columns), self.dtype)

    def zeros(self, columns: int) -> Array:
        block, self.cleared = self.cleared[: self.rows * columns], self.cleared[self.rows * columns :]
        return block.reshape(self.rows, columns)

    def launch(self, kernel: str, elements: int, *arguments: object) -> None:
        """Starts a kernel with as many blocks as elements need, one a thread."""
        kernel = f"{kernel}<{C_TYPES[named(self.dtype)]}>"
        current().launch("mlp", kernel, (blocks(elements, THREADS),), THREADS, arguments)

    def joined(self, *parts: Array) -> Array:
        """Returns [a; b; c] of each row."""
        out = self.empty(sum(part.shape[1] for part in parts))
        self.launch("joined", out.size, *map(matrix, parts), *(NOWHERE,) * (3 - len(parts)), out)
        return out

    def latent(self, mean: Array, raw: Array, e: Array) -> Array:
        z = self.empty(mean.shape[1])
        self.launch("latent", z.size, matrix(mean), matrix(raw), matrix(e), matrix(z))
        return z

    def residuals(self, theta: Array, bias: Array, products: Array) -> Array:
        """Returns the cotangent of the decoder's values."""
        self.launch("residuals", 32 * self.rows, matrix(theta), bias, self.batch.gamma**-2, products, self.sums[0])
        return products

    def standard_heads(self, mean: Array, raw: Array, e: Array, to_z: Array, sums: Array) -> tuple[Array, Array, Array]:
        """Returns the cotangents of [mean, raw], and views of both."""
        q = mean.shape[1]
        to = self.empty(2 * q)
        to_mean, to_raw = to[:, :q], to[:, q:]
        inputs = (*map(matrix, (mean, raw, e, to_z)), self.batch.kl_weights, self.batch.made)
        self.launch("standard_heads", 32 * self.rows, *inputs, matrix(to_mean), matrix(to_raw), sums)
        return to, to_mean, to_raw

    # ---- Layers.

    def forth(self, name: str, x: Array, last: bool = True) -> list[Array]:
        """Returns the values of each layer; without `last`, the last one's are products that still lack the bias."""
        values, (layers, activation) = list[Array](), self.parts[name]
        for i, layer in enumerate(layers):
            x = values[-1] if values else x
            W = layer.weights_of(self.flat)
            if i == len(layers) - 1 and not last:
                values.append(self.empty(layer.n_out))
                multiply(x, W.T, values[-1])
            else:
                hidden = activation if i == 0 and len(layers) > 1 else "identity"
                values.append(affine(x, W, layer.bias_of(self.flat), hidden))
        return values

    def back(self, name: str, x: Array, values: list[Array], d: Array) -> Array:
        """Computes from the cotangent of the last layer's values the gradients, and the cotangent of the first layer's units in
        front of their activation."""
        layers, activation = self.parts[name]
        for i, layer in reversed(list(enumerate(layers))):
            if i == 0 and len(layers) > 1:
                pull(d, activation, values[0], d, layer.bias_of(self.gradient))
            else:
                pull(d, "identity", None, None, layer.bias_of(self.gradient))
            inputs = values[i - 1] if i else x
            multiply(d.T, inputs, layer.weights_of(self.gradient))
            if i:
                back = self.empty(layer.n_in)
                multiply(d, layer.weights_of(self.flat), back)
                d = back
        return d

    def to_inputs(self, layer: Layer, d: Array, first: int, to: Array) -> None:
        """Adds the cotangent of the inputs from `first` on."""
        multiply(d, layer.weights_of(self.flat)[:, first : first + to.shape[1]], to, add=True)

    # ---- "printed" and "amended".

    def _networks(self) -> None:
        p, hidden, x = self.a.n_global, self.a.hidden, self.batch.theta_t
        encoder, e = self.forth("global_encoder", x), self.batch.noise[:, :p]
        mean, raw = encoder[-1][:, :p], encoder[-1][:, p:]
        z_t = self.joined(self.latent(mean, raw, e), self.t)
        decoder = self.forth("global_decoder", z_t)
        to_z, to_h = self.zeros(p), self.zeros(hidden)
        value, local = 0, p
        for j, (d_j, q) in enumerate(zip(self.a.groups, self.a.n_local)):
            given = self.theta[:, value : value + d_j], self.batch.noise[:, local : local + q]
            self._client_networks(j, *given, z_t, decoder[-1], to_z, to_h)
            value, local = value + d_j, local + q
        d = self.back("global_decoder", z_t, decoder, to_h)
        self.to_inputs(self.parts["global_decoder"].layers[0], d, 0, to_z)
        to_head, _, _ = self.standard_heads(mean, raw, e, to_z, self.sums[1])
        self.back("global_encoder", x, encoder, to_head)

    def _client_networks(self, j: int, theta: Array, e: Array, z_t: Array, h: Array, to_z_G: Array, to_h: Array) -> None:
        q, d_j = e.shape[1], theta.shape[1]
        prior, posterior, decoder = (f"{name}[{j}]" for name in ("prior", "posterior", "decoder"))
        amended = posterior in self.parts
        of_prior = self.forth(prior, z_t)
        x = self.joined(theta, z_t) if amended else z_t
        of_posterior = self.forth(posterior, x) if amended else of_prior
        head = of_posterior[-1]
        inputs = self.joined(h, self.latent(head[:, :q], head[:, q:], e), self.t)
        values, last = self.forth(decoder, inputs, last=False), self.parts[decoder].layers[-1]
        d = self.back(decoder, inputs, values, self.residuals(theta, last.bias_of(self.flat), values[-1]))
        first, to_z = self.parts[decoder].layers[0], self.zeros(q)
        self.to_inputs(first, d, 0, to_h)
        self.to_inputs(first, d, self.a.hidden, to_z)
        if amended:
            to_prior, to_head = self.empty(2 * q), self.empty(2 * q)
            arrays = of_prior[-1], head, matrix(e), to_z, self.batch.kl_weights, self.batch.made, to_prior, to_head, self.sums[2]
            self.launch("both_heads", 32 * self.rows, *arrays)
            d = self.back(posterior, x, of_posterior, to_head)
            self.to_inputs(self.parts[posterior].layers[0], d, d_j, to_z_G)
        else:
            to_prior, _, _ = self.standard_heads(head[:, :q], head[:, q:], e, to_z, self.sums[2])
        d = self.back(prior, z_t, of_prior, to_prior)
        self.to_inputs(self.parts[prior].layers[0], d, 0, to_z_G)

    # ---- "multiplicative".

    def _products(self, part: str) -> Layer:
        """Returns M of a mixture out_o = sum_k s_k (M_ok . x), as a layer of out * rank units."""
        layer, rank = self.parts[part].layers[0], self.a.rank
        return Layer(layer.at, layer.n_in // rank, layer.n_out * rank)

    def _mixed(self, part: str, s: Array, x: Array) -> tuple[Array, Array]:
        """Returns the products M_ok . x, and their mixtures."""
        layer = self._products(part)
        y, out = self.empty(layer.n_out), self.empty(layer.n_out // self.a.rank)
        multiply(x, layer.weights_of(self.flat).T, y)
        self.launch("mixed", out.size, y, s, self.a.rank, matrix(out))
        return y, out

    def _mixed_back(self, part: str, s: Array, x: Array, y: Array, d: Array, to_s: Array) -> None:
        """Computes the gradient of M; y become cotangents."""
        self.launch("mixed_back", 32 * to_s.size, matrix(d), s, self.a.rank, y, to_s)
        multiply(y.T, x, self._products(part).weights_of(self.gradient))

    def _variances_back(self, part: str, s: Array, d: Array, to_s: Array) -> None:
        """Goes back through the layer of log variances, which stands behind M."""
        layer = self.parts[part].layers[1]
        pull(d, "identity", None, None, layer.bias_of(self.gradient))
        multiply(d.T, s, layer.weights_of(self.gradient))
        self.to_inputs(layer, d, 0, to_s)

    def _variances(self, part: str, s: Array) -> Array:
        layer = self.parts[part].layers[1]
        return affine(s, layer.weights_of(self.flat), layer.bias_of(self.flat))

    def _mixtures(self) -> None:
        p, R, t = self.a.n_global, self.a.rank, self.joined(self.t)
        of_E, of_D = self.forth("encoder_weights", t), self.forth("decoder_weights", t)
        s_E, s_D = of_E[-1], of_D[-1]
        to_s_E, to_s_D, to_z, e = self.zeros(R), self.zeros(R), self.zeros(p), self.batch.noise[:, :p]
        y, mean = self._mixed("global_encoder", s_E, self.theta)
        raw = self._variances("global_encoder", s_E)
        z = self.latent(mean, raw, e)
        value, local = 0, p
        for j, (d_j, q) in enumerate(zip(self.a.groups, self.a.n_local)):
            given = self.theta[:, value : value + d_j], self.batch.noise[:, local : local + q]
            self._client_mixtures(j, *given, z, s_E, s_D, to_s_E, to_s_D, to_z)
            value, local = value + d_j, local + q
        _, to_mean, to_raw = self.standard_heads(mean, raw, e, to_z, self.sums[1])
        self._mixed_back("global_encoder", s_E, self.theta, y, to_mean, to_s_E)
        self._variances_back("global_encoder", s_E, to_raw, to_s_E)
        self.back("encoder_weights", t, of_E, to_s_E)
        self.back("decoder_weights", t, of_D, to_s_D)

    def _client_mixtures(
        self, j: int, theta: Array, e: Array, z: Array, s_E: Array, s_D: Array, to_s_E: Array, to_s_D: Array, to_z_G: Array
    ) -> None:
        p, q, d_j = self.a.n_global, e.shape[1], theta.shape[1]
        posterior, decoder = f"posterior[{j}]", f"decoder[{j}]"
        x = self.joined(theta, z)
        y, mean = self._mixed(posterior, s_E, x)
        raw = self._variances(posterior, s_E)
        inputs, to_z = self.joined(z, self.latent(mean, raw, e)), self.zeros(q)
        of_decoder, mu = self._mixed(decoder, s_D, inputs)
        d = self.residuals(theta, None, mu)
        self._mixed_back(decoder, s_D, inputs, of_decoder, d, to_s_D)
        self.to_inputs(self._products(decoder), of_decoder, 0, to_z_G)
        self.to_inputs(self._products(decoder), of_decoder, p, to_z)
        _, to_mean, to_raw = self.standard_heads(mean, raw, e, to_z, self.sums[2])
        self._mixed_back(posterior, s_E, x, y, to_mean, to_s_E)
        self.to_inputs(self._products(posterior), y, d_j, to_z_G)
        self._variances_back(posterior, s_E, to_raw, to_s_E)


def vae_gradient(
    parameters: Array, theta: Array, t: Array, noise: Array, code: object, gamma: float, kl_weight: float, gradient: Array,
    terms: Array, n_threads: int,
) -> None:  # fmt: skip
    xp, flat = current().xp, neighbours(parameters)
    contiguous = xp.empty(len(flat), flat.dtype)
    batch = Batch(_side_by_side(theta, t), neighbours(noise), gamma, xp.full(1, kl_weight), xp.zeros(1, np.int64))
    sums = Pass(code, flat, batch, contiguous).run_pass()
    gradient[...] = contiguous
    arguments = (sums, len(theta), theta.shape[1], gamma, vector(terms))
    current().launch("mlp", "elbo_terms", (1,), THREADS, arguments)


def _side_by_side(theta: Array, t: Array) -> Array:
    """Returns [theta; t] of each row."""
    out = current().xp.empty((len(theta), theta.shape[1] + t.shape[1]), theta.dtype)
    kernel = f"joined<{C_TYPES[named(theta.dtype)]}>"
    current().launch("mlp", kernel, (blocks(out.size, THREADS),), THREADS, (matrix(theta), matrix(t), NOWHERE, out))
    return out


class Draws:
    """Holds a table of priors, and draws the batch of each step (docs/spec/sigma.md, section 3)."""

    def __init__(
        self,
        arrays: tuple[Array, ...],
        kind: int,
        rank: int,
        group: int,
        seed: Any,
        chain: Any,
        dtype: Any,
        first: int,
        made: Array,
    ) -> None:
        self.values, self.phi, self.scale, *self.pattern = arrays
        self.kind, self.rank, self.group, self.dtype = int(kind), int(rank), int(group), dtype
        self.first, self.made = np.uint32(first), made
        number, n, names = rng.streams(), len(self.scale), ("prior_entries", "prior_draws", "latents")
        self.keys = {name: key(rng.key(int(seed), number[name], int(chain))) for name in names}
        columns = {STORED: n, DENSE: n * self.rank}.get(self.kind, len(self.pattern[1]))
        if self.values.shape[1] != columns or not len(self.values):
            raise ValueError(f"mlp.vae_step: values must have a row, and {columns} columns, got {self.values.shape}")
        if self.kind == SPARSE and (len(self.pattern[0]), len(self.pattern[2])) != (n + 1, n):
            came = f"{len(self.pattern[0])} and {len(self.pattern[2])}"
            raise ValueError(f"mlp.vae_step: indptr and order must have {n + 1} and {n} numbers, got {came}")

    def normals(self, stream: str, rows: int, columns: int, dtype: object) -> Array:
        out = current().xp.empty((rows, columns), dtype)
        normals("mlp", self.keys[stream], self.first, self.made, out)
        return out

    def theta_t(self, rows: int) -> Array:
        """Returns [theta; t] of each row."""
        device, n, c_type = current(), len(self.scale), C_TYPES[named(self.dtype)]
        out = device.xp.empty((rows, n + self.phi.shape[1]), self.dtype)
        theta, t = out[:, :n], out[:, n:]
        names = self.group, self.keys["prior_entries"], pointer(self.made), self.first
        table = structure(DRAWN, matrix(self.values), vector(self.scale), *names)
        device.launch("mlp", f"conditions<{c_type}>", (blocks(t.size, THREADS),), THREADS, (table, matrix(self.phi), matrix(t)))
        columns = {DENSE: self.rank, SPARSE: n}.get(self.kind, 0)
        e = self.normals("prior_draws", rows, columns, "f8") if columns else None
        drawn("mlp", table, self.kind, self.rank, self.pattern, e, theta)
        return out


def vae_step(
    parameters: Array, moments: Array, values: Array, phi: Array, scale: Array, indptr: Array, indices: Array, order: Array,
    rates: Array, kl_weights: Array, code: object, kind: int, rank: int, group: int, batch: int, gamma: float, clip: float,
    seed: object, chain: object, first: int, new_parameters: Array, new_moments: Array, trace: Array, n_threads: int,
) -> None:  # fmt: skip
    xp, k, dtype = current().xp, len(parameters), parameters.dtype
    flat, m, v = (xp.array(array, order="C") for array in (parameters, *moments))
    gradient, going, made, c_type = xp.empty(k, dtype), xp.ones(4), xp.zeros(1, np.int64), C_TYPES[named(dtype)]
    parts = blocks(k, 16 * THREADS)
    partial = xp.empty(parts)
    draws = Draws((values, phi, scale, indptr, indices, order), kind, rank, group, seed, chain, dtype, first, made)
    rates, kl_weights = (xp.ascontiguousarray(array) for array in (rates, kl_weights))

    def step() -> None:
        noise = draws.normals("latents", batch, Sizes.of(code).n_latents, dtype)
        sums = Pass(code, flat, Batch(draws.theta_t(batch), noise, gamma, kl_weights, made), gradient).run_pass()
        device = current()
        device.launch("mlp", f"squares_of<{c_type}>", (parts,), THREADS, (gradient, k, partial))
        of_batch, of_gradient = (sums, batch, len(scale), gamma), (partial, parts, clip)
        of_adam = (rates, draws.first, made, going, matrix(trace))
        device.launch("mlp", "judged", (1,), THREADS, (*of_batch, *of_gradient, *of_adam))
        device.launch("mlp", f"climb<{c_type}>", (blocks(k, THREADS),), THREADS, (gradient, k, going, flat, m, v))

    if len(rates):
        with recorded() as tape:
            step()
        for _ in range(1, len(rates)):
            tape.again()
    new_parameters[...] = flat
    new_moments[0], new_moments[1] = m, v
