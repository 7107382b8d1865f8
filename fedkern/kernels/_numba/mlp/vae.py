"""The hierarchical variational autoencoder for Numba: docs/methods/sigma.md, sections 1 and 2, in float64.

A block is a (sum of sizes, rows) array: the layers of a network below each other, one row of the batch in each column. What goes
from block to block is plain Python: compiled as a whole, it would take Numba half a minute.
"""

import numpy as np

from fedkern._core.rng import streams
from fedkern.kernels.mlp.architecture import Architecture

from .. import rng
from .._jit import loop, scalar
from ..spatial.table import sample_rows
from .networks import RELU, TANH, activate, add_multiple, dot, times_slope, total

__all__ = ["vae_gradient", "vae_step"]

LOWEST, HIGHEST = -12.0, 6.0  # of the logarithm of a variance
PRINTED, AMENDED, MULTIPLICATIVE = range(3)
LATENTS = streams()["latents"]


@loop
def net_forward(block, parameters, at, sizes, activation):
    """Fills all layers of a block after the first; the activation follows the first of several."""
    begin, count = 0, block.shape[1]
    for layer in range(sizes.size - 1):
        n_in, n_out = sizes[layer], sizes[layer + 1]
        bias = at + n_in * n_out
        for i in range(n_out):
            a = block[begin + n_in + i]
            a[:] = parameters[bias + i]
            for j in range(n_in):
                add_multiple(a, parameters[at + i * n_in + j], block[begin + j], count)
            if layer == 0 and sizes.size > 2:
                activate(a, count, activation)
        begin += n_in
        at = bias + n_out


@loop
def net_backward(block, back, parameters, at, sizes, activation, grad):
    """From the derivatives in the last layer, in `back`, to those in all others; adds to those in the parameters."""
    count, begin, ends = block.shape[1], block.shape[0], at
    for layer in range(sizes.size - 1):
        ends += sizes[layer + 1] * (sizes[layer] + 1)
    for layer in range(sizes.size - 2, -1, -1):
        n_in, n_out = sizes[layer], sizes[layer + 1]
        bias = ends - n_out
        ends = bias - n_in * n_out
        begin -= n_out
        back[begin - n_in : begin] = 0.0
        for i in range(n_out):
            delta = back[begin + i]
            if layer == 0 and sizes.size > 2:
                times_slope(delta, block[begin + i], count, activation)
            grad[bias + i] += total(delta, count)
            for j in range(n_in):
                add_multiple(back[begin - n_in + j], parameters[ends + i * n_in + j], delta, count)
                grad[ends + i * n_in + j] += dot(delta, block[begin - n_in + j], count)


@loop
def kronecker_forward(parameters, at, s, x, y):
    """y = M kron(s, x), where kron(s, x) has s_r x_i at r len(x) + i."""
    y[:] = 0.0
    inner = np.empty(y.shape[1])
    for i in range(y.shape[0]):
        for r in range(s.shape[0]):
            inner[:] = 0.0
            for k in range(x.shape[0]):
                add_multiple(inner, parameters[at + k], x[k], inner.size)
            y[i] += s[r] * inner
            at += x.shape[0]


@loop
def kronecker_backward(parameters, at, s, x, delta, back_s, back_x, grad):
    """Adds to the derivatives in s, in x and in M."""
    count = delta.shape[1]
    inner, product = np.empty(count), np.empty(count)
    for i in range(delta.shape[0]):
        for r in range(s.shape[0]):
            inner[:] = 0.0
            product[:] = delta[i] * s[r]
            for k in range(x.shape[0]):
                add_multiple(inner, parameters[at + k], x[k], count)
                add_multiple(back_x[k], parameters[at + k], product, count)
                grad[at + k] += dot(product, x[k], count)
            back_s[r] += delta[i] * inner
            at += x.shape[0]


@scalar
def clamped(raw):
    return LOWEST if raw < LOWEST else (HIGHEST if raw > HIGHEST else raw)


@scalar
def draw(head, noise, z):
    """Latents of a normal distribution; `head` has means, then the logarithms of variances."""
    q = noise.shape[0]
    for i in range(q):
        for b in range(noise.shape[1]):
            z[i, b] = head[i, b] + np.exp(0.5 * clamped(head[q + i, b])) * noise[i, b]


@scalar
def head_backward(head, prior, noise, upstream, weight, back, back_prior):
    """Derivatives of the ELBO in the head of a distribution and, unless that is empty, in the one of its prior, from those in the
    draw; returns the sum of the KLs."""
    q, kl = noise.shape[0], 0.0
    for i in range(q):
        for b in range(noise.shape[1]):
            log_v, log_v0, m0 = clamped(head[q + i, b]), 0.0, 0.0
            if prior.size > 0:
                m0, log_v0 = prior[i, b], clamped(prior[q + i, b])
            away, precision, v = head[i, b] - m0, np.exp(-log_v0), np.exp(log_v)
            distance = (v + away * away) * precision
            kl += 0.5 * (log_v0 - log_v + distance - 1.0)
            g = upstream[i, b]
            back[i, b] = g - weight * away * precision
            follows = 1.0 if LOWEST <= head[q + i, b] <= HIGHEST else 0.0
            back[q + i, b] = follows * (0.5 * g * noise[i, b] * np.sqrt(v) - weight * 0.5 * (v * precision - 1.0))
            if prior.size > 0:
                back_prior[i, b] = weight * away * precision
                follows = 1.0 if LOWEST <= prior[q + i, b] <= HIGHEST else 0.0
                back_prior[q + i, b] = -follows * weight * 0.5 * (1.0 - distance)
    return kl


@scalar
def residuals(theta, mu, gamma, back):
    """Derivatives of the ELBO in the decoder's values; returns the sum of squared residuals."""
    squares = 0.0
    for i in range(theta.shape[0]):
        for b in range(theta.shape[1]):
            r = theta[i, b] - mu[i, b]
            squares += r * r
            back[i, b] = r / (gamma * gamma)
    return squares


def networks(parameters, starts, theta, t, noise, code, gamma, weight, grad):
    """`printed` and `amended`: adds to the gradient; returns sums of |theta - mu|^2, KL_G and sum_j KL_j."""
    J, c, p, H, K = code[1:6]
    d, B = theta.shape
    nothing, squares, local_kl = np.empty((0, B)), 0.0, 0.0
    encoder_sizes, decoder_sizes = np.array([d + c, H, H, 2 * p]), np.array([p + c, H, H])
    encoder = np.empty((d + c + 2 * H + 2 * p, B))
    encoder[:d], encoder[d : d + c] = theta, t
    net_forward(encoder, parameters, starts[0], encoder_sizes, RELU)
    head_G = encoder[d + c + 2 * H :]
    shared = np.empty((p + c + 2 * H, B))
    draw(head_G, noise[:p], shared[:p])
    z_G = shared[:p]
    shared[p : p + c] = t
    net_forward(shared, parameters, starts[1], decoder_sizes, RELU)
    back_shared, to_z_G = np.zeros_like(shared), np.zeros((p, B))
    row, latent, part = 0, p, 2
    for j in range(J):
        d_j, q = code[8 + j], code[8 + J + j]
        theta_j, noise_j = theta[row : row + d_j], noise[latent : latent + q]
        prior_sizes, posterior_sizes = np.array([p + c, K, K, 2 * q]), np.array([d_j + p + c, K, K, 2 * q])
        prior = np.empty((p + c + 2 * K + 2 * q, B))
        prior[:p], prior[p : p + c] = z_G, t
        at_prior, at_posterior = starts[part], starts[part + 1]
        net_forward(prior, parameters, at_prior, prior_sizes, RELU)
        head_prior = prior[p + c + 2 * K :]
        posterior, head, part = prior, head_prior, part + 1
        if code[0] == AMENDED:
            posterior = np.empty((d_j + p + c + 2 * K + 2 * q, B))
            posterior[:d_j], posterior[d_j : d_j + p], posterior[d_j + p : d_j + p + c] = theta_j, z_G, t
            net_forward(posterior, parameters, at_posterior, posterior_sizes, RELU)
            head, part = posterior[d_j + p + c + 2 * K :], part + 1
        local_sizes = np.array([H + q + c, K, d_j]) if code[0] == AMENDED else np.array([H + q + c, d_j])
        local = np.empty((local_sizes.sum(), B))
        local[:H], local[H + q : H + q + c] = shared[p + c + H :], t
        draw(head, noise_j, local[H : H + q])
        net_forward(local, parameters, starts[part], local_sizes, RELU)

        back = np.empty_like(local)
        squares += residuals(theta_j, local[local.shape[0] - d_j :], gamma, back[local.shape[0] - d_j :])
        net_backward(local, back, parameters, starts[part], local_sizes, RELU, grad)
        back_shared[p + c + H :] += back[:H]
        back_prior = np.empty_like(prior)
        if code[0] == AMENDED:
            back_posterior = np.empty_like(posterior)
            local_kl += head_backward(
                head, head_prior, noise_j, back[H : H + q], weight, back_posterior[d_j + p + c + 2 * K :],
                back_prior[p + c + 2 * K :],
            )  # fmt: skip
            net_backward(posterior, back_posterior, parameters, at_posterior, posterior_sizes, RELU, grad)
            to_z_G += back_posterior[d_j : d_j + p]
        else:
            local_kl += head_backward(head, nothing, noise_j, back[H : H + q], weight, back_prior[p + c + 2 * K :], nothing)
        net_backward(prior, back_prior, parameters, at_prior, prior_sizes, RELU, grad)
        to_z_G += back_prior[:p]
        row, latent, part = row + d_j, latent + q, part + 1

    net_backward(shared, back_shared, parameters, starts[1], decoder_sizes, RELU, grad)
    to_z_G += back_shared[:p]
    back = np.empty_like(encoder)
    global_kl = head_backward(head_G, nothing, noise[:p], to_z_G, weight, back[d + c + 2 * H :], nothing)
    net_backward(encoder, back, parameters, starts[0], encoder_sizes, RELU, grad)
    return squares, global_kl, local_kl


def two_heads(parameters, at, s, x, q, variance, head):
    """Means M kron(s, x), then log variances, the last layer of `variance`, of s. Returns where its parameters begin."""
    kronecker_forward(parameters, at, s, x, head[:q])
    at += q * s.shape[0] * x.shape[0]
    variance[: s.shape[0]] = s
    net_forward(variance, parameters, at, np.array([s.shape[0], q]), TANH)
    head[q:] = variance[s.shape[0] :]
    return at


def two_heads_backward(parameters, at, at_variance, s, x, q, variance, back_head, back_s, back_x, grad):
    R = s.shape[0]
    kronecker_backward(parameters, at, s, x, back_head[:q], back_s, back_x, grad)
    back = np.empty_like(variance)
    back[R:] = back_head[q:]
    net_backward(variance, back, parameters, at_variance, np.array([R, q]), TANH, grad)
    back_s += back[:R]


def multiplicative(parameters, starts, theta, t, noise, code, gamma, weight, grad):
    """The same for `multiplicative`."""
    J, c, p, width, R = (code[i] for i in (1, 2, 3, 6, 7))
    B, squares, local_kl = theta.shape[1], 0.0, 0.0
    nothing = np.empty((0, B))
    weights_sizes = np.array([c, width, R])
    encoder_weights, decoder_weights = np.empty((c + width + R, B)), np.empty((c + width + R, B))
    encoder_weights[:c], decoder_weights[:c] = t, t
    net_forward(encoder_weights, parameters, starts[1], weights_sizes, TANH)
    net_forward(decoder_weights, parameters, starts[2], weights_sizes, TANH)
    s_E, s_D = encoder_weights[c + width :], decoder_weights[c + width :]
    back_E, back_D, to_z_G = np.zeros_like(encoder_weights), np.zeros_like(encoder_weights), np.zeros((p, B))
    to_s_E, to_s_D = back_E[c + width :], back_D[c + width :]
    head_G, variance_G, z_G = np.empty((2 * p, B)), np.empty((R + p, B)), np.empty((p, B))
    at_variance_G = two_heads(parameters, starts[0], s_E, theta, p, variance_G, head_G)
    draw(head_G, noise[:p], z_G)
    row, latent = 0, p
    for j in range(J):
        d_j, q = code[8 + j], code[8 + J + j]
        theta_j, noise_j = theta[row : row + d_j], noise[latent : latent + q]
        at, at_decoder = starts[3 + 2 * j], starts[4 + 2 * j]
        x, z, mu = np.empty((d_j + p, B)), np.empty((p + q, B)), np.empty((d_j, B))
        head, variance = np.empty((2 * q, B)), np.empty((R + q, B))
        x[:d_j], x[d_j:], z[:p] = theta_j, z_G, z_G
        at_variance = two_heads(parameters, at, s_E, x, q, variance, head)
        draw(head, noise_j, z[p:])
        kronecker_forward(parameters, at_decoder, s_D, z, mu)

        back_mu, back_z, back_x, back_head = np.empty_like(mu), np.zeros_like(z), np.zeros_like(x), np.empty_like(head)
        squares += residuals(theta_j, mu, gamma, back_mu)
        kronecker_backward(parameters, at_decoder, s_D, z, back_mu, to_s_D, back_z, grad)
        local_kl += head_backward(head, nothing, noise_j, back_z[p:], weight, back_head, nothing)
        two_heads_backward(parameters, at, at_variance, s_E, x, q, variance, back_head, to_s_E, back_x, grad)
        to_z_G += back_z[:p] + back_x[d_j:]
        row, latent = row + d_j, latent + q

    back_head, unused = np.empty_like(head_G), np.zeros_like(theta)
    global_kl = head_backward(head_G, nothing, noise[:p], to_z_G, weight, back_head, nothing)
    two_heads_backward(
        parameters, starts[0], at_variance_G, s_E, theta, p, variance_G, back_head, to_s_E, unused, grad
    )  # fmt: skip
    net_backward(encoder_weights, back_E, parameters, starts[1], weights_sizes, TANH, grad)
    net_backward(decoder_weights, back_D, parameters, starts[2], weights_sizes, TANH, grad)
    return squares, global_kl, local_kl


def plain(array):
    return np.array(array, np.float64, order="C")


class Objective:
    """The ELBO of one architecture."""

    def __init__(self, code, gamma):
        self.architecture, self.code, self.gamma = Architecture.of(code), code.tolist(), gamma
        self.starts = [part.where.start for part in self.architecture.parts.values()]
        self.sums = multiplicative if code[0] == MULTIPLICATIVE else networks

    def __call__(self, parameters, theta, t, noise, weight):
        """Gradient of the batch mean with `weight` on the KLs, and the batch means of the terms."""
        columns, grad, gamma = (plain(theta.T), plain(t.T), plain(noise.T)), np.zeros(parameters.size), self.gamma
        sums = self.sums(plain(parameters), self.starts, *columns, self.code, gamma, weight, grad)
        squares, global_kl, local_kl = np.array(sums) / len(theta)
        constant = theta.shape[1] * (np.log(gamma) + 0.5 * np.log(2 * np.pi))
        value = -squares / (2 * gamma**2) - constant - global_kl - local_kl
        return grad / len(theta), np.array([value, squares, global_kl, local_kl])


def vae_gradient(parameters, theta, t, noise, code, gamma, kl_weight, gradient, terms, n_threads):
    gradient[...], terms[...] = Objective(code, gamma)(parameters, theta, t, noise, kl_weight)


@loop
def adam(parameters, m, v, gradient, shrink, rate, t):
    """Iteration t = 1, 2, .., in place."""
    correction1, correction2 = 1.0 - 0.9**t, 1.0 - 0.999**t
    for i in range(gradient.size):
        g = shrink * gradient[i]
        m[i] = m_i = 0.9 * m[i] + 0.1 * g
        v[i] = v_i = 0.999 * v[i] + 0.001 * g * g
        parameters[i] += rate * (m_i / correction1) / (np.sqrt(v_i / correction2) + 1e-8)


@np.errstate(over="ignore", invalid="ignore")
def vae_step(
    parameters, moments, values, phi, scale, indptr, indices, order, rates, kl_weights, code, kind, rank, group, batch, gamma,
    clip, seed, chain, first, new_parameters, new_moments, trace, n_threads
):  # fmt: skip
    objective, dtype = Objective(code, gamma), parameters.dtype
    n_latents = objective.architecture.n_latents
    found, m, v = np.array(parameters), np.array(moments[0]), np.array(moments[1])
    table = [np.array(array, order="C") for array in (values, scale, indptr, indices, order)]
    theta, entry = np.empty((batch, scale.size)), np.empty(batch, np.int64)
    noise, key = np.empty(batch * n_latents), np.uint64(rng.stream_key(seed, LATENTS, chain))
    trace[...] = np.nan
    for s in range(len(rates)):
        step = first + s
        sample_rows(*table, kind, rank, group, seed, chain, step, theta, entry)
        rng.normal(key, 0, step, 0, 0, noise, 1)
        inputs = (theta.astype(dtype), phi[entry].astype(dtype), noise.reshape(batch, -1).astype(dtype))
        gradient, terms = objective(found, *inputs, kl_weights[s])
        norm = np.sqrt((gradient * gradient).sum())
        if not (np.isfinite(terms[0]) and np.isfinite(norm)):
            break
        trace[s, :4], trace[s, 4] = terms, norm
        adam(found, m, v, gradient, clip / norm if 0 < clip < norm else 1.0, rates[s], step + 1)
    new_parameters[...], new_moments[0], new_moments[1] = found, m, v
