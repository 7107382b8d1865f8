"""Defines networks, and the variational autoencoder made of them, in plain NumPy."""

import itertools

import numpy as np

from fedkern._core.rng import streams
from fedkern.kernels._layers import matrices
from fedkern.kernels.mlp import Architecture

from . import rng, spatial

TANH, RELU, IDENTITY = range(3)


def layers(parameters, sizes):
    """Returns weights (out, in) and bias (out,) of every layer."""
    of_layers, begin = [], 0
    for n_in, n_out in itertools.pairwise(sizes):
        end = begin + n_in * n_out
        of_layers.append((parameters[begin:end].reshape(n_out, n_in), parameters[end : end + n_out]))
        begin = end + n_out
    return of_layers


def activate(a, activation):
    if activation == TANH:
        return np.tanh(a)
    return np.where(a <= 0, 0.0, a) if activation == RELU else a


def slope(h, activation):
    """Returns the activation's derivative, from its value."""
    if activation == TANH:
        return 1 - h**2
    return np.where(h > 0, 1.0, 0.0) if activation == RELU else np.ones_like(h)


def values(X, parameters, sizes, activation):
    """Returns the input of every layer, and the last one's output."""
    h = [X.astype(np.float64)]
    for W, b in layers(parameters.astype(np.float64), sizes):
        if len(h) > 1:
            h[-1] = activate(h[-1], activation)
        h.append(h[-1] @ W.T + b)
    return h


def pull_back(h, parameters, upstream, sizes, activation):
    """Returns gradients of sum(upstream * h[-1]) in the parameters and in h[0]."""
    delta, gradients = upstream.astype(np.float64), []
    for i, (W, _) in reversed(list(enumerate(layers(parameters.astype(np.float64), sizes)))):
        gradients = [(delta.T @ h[i]).ravel(), delta.sum(axis=0), *gradients]
        delta = delta @ W
        if i:
            delta = delta * slope(h[i], activation)
    return np.concatenate(gradients), delta


def forward(X, parameters, sizes, activation, Y, n_threads):
    with np.errstate(over="ignore", invalid="ignore"):
        Y[...] = values(X, parameters, sizes, activation)[-1]


def backward(X, parameters, upstream, sizes, activation, grad_parameters, grad_X, n_threads):
    with np.errstate(over="ignore", invalid="ignore"):
        h = values(X, parameters, sizes, activation)
        grad_parameters[...], grad_X[...] = pull_back(h, parameters, upstream, sizes, activation)


LOWEST, HIGHEST = -12.0, 6.0  # of the logarithm of a variance


class Network:
    """Holds affine layers; relu (or tanh) follows the first of several."""

    def __init__(self, layers, slopes, tanh=False):
        self.layers, self.slopes, self.tanh = layers, slopes, tanh

    def __call__(self, *inputs):
        self.h = [np.hstack(inputs)]
        for i, (W, b) in enumerate(self.layers):
            a = self.h[-1] @ W.T + b
            if i == 0 and len(self.layers) > 1:
                a = np.tanh(a) if self.tanh else np.where(a <= 0, 0.0, a)
            self.h.append(a)
        return self.h[-1]

    def pull(self, delta):
        for i in reversed(range(len(self.layers))):
            if i == 0 and len(self.layers) > 1:
                slopes = 1 - self.h[1] ** 2 if self.tanh else self.h[1] > 0
                delta = delta * slopes
            (W, _), (slope_W, slope_b) = self.layers[i], self.slopes[i]
            slope_W += delta.T @ self.h[i]
            slope_b += delta.sum(axis=0)
            delta = delta @ W
        return delta


class Kronecker:
    """Computes M kron(s, x), where kron(s, x) has s_r x_i at r len(x) + i."""

    def __init__(self, layer, slope):
        (self.M, _), (self.slope, _) = layer, slope

    def __call__(self, s, *inputs):
        self.s, self.x = s, np.hstack(inputs)
        self.products = (s[:, :, None] * self.x[:, None, :]).reshape(len(s), -1)
        return self.products @ self.M.T

    def pull(self, delta):
        self.slope += delta.T @ self.products
        back = (delta @ self.M).reshape(len(delta), self.s.shape[1], self.x.shape[1])
        return np.einsum("bri,bi->br", back, self.x), np.einsum("bri,br->bi", back, self.s)


def clamped(raw):
    """Returns a log variance, and where it follows its network."""
    return np.clip(raw, LOWEST, HIGHEST), (raw >= LOWEST) & (raw <= HIGHEST)


def normal(head):
    """Returns mean, log variance, and where that follows the network, of a network's output."""
    mean, raw = np.hsplit(head, 2)
    return mean, *clamped(raw)


def divergence(m, log_v, m0=0.0, log_v0=0.0):
    """Returns KL[N(m, v) || N(m0, v0)] of every row, and its derivatives in m, log v and log v0. That in m0 is minus the
    first."""
    distance = (np.exp(log_v) + (m - m0) ** 2) * np.exp(-log_v0)
    kl = 0.5 * (log_v0 - log_v + distance - 1).sum(axis=1)
    return kl, (m - m0) * np.exp(-log_v0), 0.5 * (np.exp(log_v - log_v0) - 1), 0.5 * (1 - distance)


def split(array, *sizes):
    """Yields columns of these numbers, and then those that are left."""
    return np.split(array, np.cumsum(sizes), axis=1)


def by_networks(net, theta, t, noise, a, gamma, weight):
    """Computes `printed` and `amended`. Sums over rows of derivatives of the ELBO with `weight` on the KLs go into the slopes of
    `net`; |theta - mu|^2, KL_G and sum_j KL_j of every row are returned."""
    p, squares, locals_kl, to_h, to_z_G = a.n_global, 0.0, 0.0, 0.0, 0.0
    e_G, *e = split(noise, p, *a.n_local)
    theta_j = split(theta, *a.groups)

    mu_G, log_G, follows_G = normal(net["global_encoder"](theta, t))
    z_G = mu_G + np.exp(log_G / 2) * e_G
    h = net["global_decoder"](z_G, t)
    for j, d_j in enumerate(a.groups):
        prior, posterior, decoder = (net.get(f"{name}[{j}]") for name in ("prior", "posterior", "decoder"))
        m0, log_v0, follows_0 = normal(prior(z_G, t))
        m, log_v, follows = normal(posterior(theta_j[j], z_G, t)) if posterior else (m0, log_v0, follows_0)
        z = m + np.exp(log_v / 2) * e[j]
        residual = theta_j[j] - decoder(h, z, t)
        squares = squares + (residual**2).sum(axis=1)
        kl, kl_m, kl_v, kl_v0 = divergence(m, log_v, m0, log_v0) if posterior else divergence(m, log_v)
        locals_kl = locals_kl + kl

        g_h, g_z, _ = split(decoder.pull(residual / gamma**2), a.hidden, a.n_local[j])
        g_m, g_log_v = g_z - weight * kl_m, 0.5 * g_z * e[j] * np.exp(log_v / 2) - weight * kl_v
        to_h = to_h + g_h
        if posterior:
            to_z_G = to_z_G + posterior.pull(np.hstack([g_m, g_log_v * follows]))[:, d_j : d_j + p]
            g_m, g_log_v = weight * kl_m, -weight * kl_v0  # of m0 and log v0
        to_z_G = to_z_G + prior.pull(np.hstack([g_m, g_log_v * follows_0]))[:, :p]

    to_z_G = to_z_G + net["global_decoder"].pull(to_h)[:, :p]
    global_kl, kl_m, kl_v, _ = divergence(mu_G, log_G)
    g_log_G = 0.5 * to_z_G * e_G * np.exp(log_G / 2) - weight * kl_v
    net["global_encoder"].pull(np.hstack([to_z_G - weight * kl_m, g_log_G * follows_G]))
    return squares, global_kl, locals_kl


def multiplicative(net, theta, t, noise, a, gamma, weight):
    """Computes the same for `multiplicative`. The priors of all latents are standard normal."""
    p, squares, locals_kl, to_z_G, to_s_E, to_s_D = a.n_global, 0.0, 0.0, 0.0, 0.0, 0.0
    e_G, *e = split(noise, p, *a.n_local)
    theta_j = split(theta, *a.groups)

    s_E, s_D = net["encoder_weights"](t), net["decoder_weights"](t)
    encoder_mean, encoder_variance = net["global_encoder"]
    mu_G, (log_G, follows_G) = encoder_mean(s_E, theta), clamped(encoder_variance(s_E))
    z_G = mu_G + np.exp(log_G / 2) * e_G
    for j, d_j in enumerate(a.groups):
        (mean, variance), decoder = net[f"posterior[{j}]"], net[f"decoder[{j}]"]
        m, (log_v, follows) = mean(s_E, theta_j[j], z_G), clamped(variance(s_E))
        z = m + np.exp(log_v / 2) * e[j]
        residual = theta_j[j] - decoder(s_D, z_G, z)
        squares = squares + (residual**2).sum(axis=1)
        kl, kl_m, kl_v, _ = divergence(m, log_v)
        locals_kl = locals_kl + kl

        g_s_D, g_z = decoder.pull(residual / gamma**2)
        to_s_D, to_z_G, g_z = to_s_D + g_s_D, to_z_G + g_z[:, :p], g_z[:, p:]
        g_log_v = (0.5 * g_z * e[j] * np.exp(log_v / 2) - weight * kl_v) * follows
        g_s_E, g_x = mean.pull(g_z - weight * kl_m)
        to_s_E, to_z_G = to_s_E + g_s_E + variance.pull(g_log_v), to_z_G + g_x[:, d_j:]

    global_kl, kl_m, kl_v, _ = divergence(mu_G, log_G)
    g_log_G = (0.5 * to_z_G * e_G * np.exp(log_G / 2) - weight * kl_v) * follows_G
    to_s_E = to_s_E + encoder_mean.pull(to_z_G - weight * kl_m)[0] + encoder_variance.pull(g_log_G)
    net["encoder_weights"].pull(to_s_E)
    net["decoder_weights"].pull(to_s_D)
    return squares, global_kl, locals_kl


def network_of(name, variant, layers, slopes):
    if variant != "multiplicative":
        return Network(layers, slopes)
    if name.endswith("_weights"):
        return Network(layers, slopes, tanh=True)
    mean = Kronecker(layers[0], slopes[0])
    return mean if name.startswith("decoder") else (mean, Network(layers[1:], slopes[1:]))


def networks_of(parameters, gradient, a):
    """Returns the networks by name, which add to views of the gradient."""
    net = {}
    for name, (where, layers) in a.parts.items():
        net[name] = network_of(name, a.variant, matrices(parameters[where], layers), matrices(gradient[where], layers))
    return net


def elbo(parameters, theta, t, noise, a, gamma, weight):
    """Returns the gradient of the batch mean of the ELBO with `weight` on the KLs, and the batch means of its terms."""
    gradient, d = np.zeros(len(parameters)), a.n_values
    with np.errstate(over="ignore", invalid="ignore"):
        objective = multiplicative if a.variant == "multiplicative" else by_networks
        rows = objective(networks_of(parameters, gradient, a), theta, t, noise, a, gamma, weight)
        squares, global_kl, locals_kl = (row.mean() for row in rows)
        value = -squares / (2 * gamma**2) - d * np.log(gamma) - d / 2 * np.log(2 * np.pi) - global_kl - locals_kl
    return gradient / len(theta), np.array([value, squares, global_kl, locals_kl])


def vae_gradient(parameters, theta, t, noise, code, gamma, kl_weight, gradient, terms, n_threads):
    arrays = (array.astype(np.float64) for array in (parameters, theta, t, noise))
    gradient[...], terms[...] = elbo(*arrays, Architecture.of(code), gamma, kl_weight)


def latents(rows, count, seed, chain, step):
    """Returns the noise of a batch."""
    noise, key = np.empty(rows * count), rng.stream_key(int(seed), streams()["latents"], int(chain))
    rng.normal(key, 0, step, 0, 0, noise, 1)
    return noise.reshape(rows, count)


def adam(parameters, moments, gradient, rate, t):
    """Returns parameters and moments after iteration t = 1, 2, .."""
    m, v = 0.9 * moments[0] + 0.1 * gradient, 0.999 * moments[1] + 0.001 * gradient**2
    return parameters + rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8), np.stack([m, v])


@np.errstate(over="ignore", invalid="ignore")
def vae_step(
    parameters, moments, values, phi, scale, indptr, indices, order, rates, kl_weights, code, kind, rank, group, batch, gamma,
    clip, seed, chain, first, new_parameters, new_moments, trace, n_threads
):  # fmt: skip
    a, dtype = Architecture.of(code), parameters.dtype
    new_parameters[...], new_moments[...], trace[...] = parameters, moments, np.nan
    theta, entry = np.empty((batch, a.n_values)), np.empty(batch, np.int64)
    for s, (rate, weight) in enumerate(zip(rates, kl_weights)):
        step = first + s
        spatial.table_sample(values, scale, indptr, indices, order, kind, rank, group, seed, chain, step, theta, entry, 1)
        inputs = (new_parameters, theta, phi[entry], latents(batch, a.n_latents, seed, chain, step))
        gradient, terms = elbo(*(array.astype(dtype).astype(np.float64) for array in inputs), a, gamma, weight)
        norm = np.sqrt((gradient**2).sum())
        if not np.isfinite([terms[0], norm]).all():
            return
        trace[s] = *terms, norm
        if 0 < clip < norm:
            gradient *= clip / norm
        state = (array.astype(np.float64) for array in (new_parameters, new_moments))
        new_parameters[...], new_moments[...] = adam(*state, gradient, rate, step + 1)
