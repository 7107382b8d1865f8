"""The objective of the hierarchical autoencoder as sigma.md, sections 1 and 2, say it, draw by draw, for JAX to differentiate.

`slip` makes one of the mistakes that tests must notice: "gamma is a variance", "theta for z_L", "no KL through z_G".
"""

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)


class Reader:
    """Takes matrices and vectors from the front of a flat vector."""

    def __init__(self, flat):
        self.flat, self.at = flat, 0

    def __call__(self, *shape):
        begin, self.at = self.at, self.at + int(np.prod(shape))
        return self.flat[begin : self.at].reshape(shape)

    def lin(self, n_in, n_out):
        W, b = self(n_out, n_in), self(n_out)
        return lambda x: W @ x + b

    def matrix(self, n_in, n_out):
        M = self(n_out, n_in)
        return lambda s, x: M @ jnp.kron(s, x)


def heads(lin1, lin2, head):
    def net(x):
        mean, log_v = jnp.split(head(lin2(jax.nn.relu(lin1(x)))), 2)
        return mean, jnp.clip(log_v, -12, 6)

    return net


def kl(m, log_v, m0=0.0, log_v0=0.0):
    return 0.5 * jnp.sum(log_v0 - log_v + (jnp.exp(log_v) + (m - m0) ** 2) / jnp.exp(log_v0) - 1)


def gaussian(a, flat, theta, t, noise, slip):
    """|theta - mu|^2, KL_G, sum_j KL_j of `printed` and `amended`."""
    take, p, c, h, k = Reader(flat), a.n_global, a.n_conditions, a.hidden, a.local_hidden
    cat = lambda *x: jnp.concatenate(x)  # noqa: E731
    global_encoder = heads(take.lin(sum(a.groups) + c, h), take.lin(h, h), take.lin(h, 2 * p))
    first, second = take.lin(p + c, h), take.lin(h, h)
    mu_G, log_G = global_encoder(cat(theta, t))
    z_G = mu_G + jnp.exp(log_G / 2) * noise[:p]
    shared = second(jax.nn.relu(first(cat(z_G, t))))
    squares, local_kl, begin, latent = 0.0, 0.0, 0, p
    for d_j, q in zip(a.groups, a.n_local):
        theta_j, e_j = theta[begin : begin + d_j], noise[latent : latent + q]
        prior = heads(take.lin(p + c, k), take.lin(k, k), take.lin(k, 2 * q))
        into = jax.lax.stop_gradient(z_G) if slip == "no KL through z_G" else z_G
        if a.variant == "printed":
            m, log_v = prior(cat(z_G, t))
            local_kl += kl(m, log_v)
            decoder = take.lin(h + q + c, d_j)
        else:
            posterior = heads(take.lin(d_j + p + c, k), take.lin(k, k), take.lin(k, 2 * q))
            m, log_v = posterior(cat(theta_j, z_G, t))
            local_kl += kl(*posterior(cat(theta_j, into, t)), *prior(cat(into, t)))
            inner, outer = take.lin(h + q + c, k), take.lin(k, d_j)
            decoder = lambda x, inner=inner, outer=outer: outer(jax.nn.relu(inner(x)))  # noqa: E731
        z = m + jnp.exp(log_v / 2) * e_j
        if slip == "theta for z_L":
            z = jnp.resize(theta_j, q)
        squares += jnp.sum((theta_j - decoder(cat(shared, z, t))) ** 2)
        begin, latent = begin + d_j, latent + q
    assert take.at == flat.size
    return squares, kl(mu_G, log_G), local_kl


def multiplicative(a, flat, theta, t, noise, slip):
    take, p, R, d = Reader(flat), a.n_global, a.rank, sum(a.groups)
    cat = lambda *x: jnp.concatenate(x)  # noqa: E731
    mean_G, variance_G = take.matrix(R * d, p), take.lin(R, p)
    weights = []
    for _ in range(2):
        inner, outer = take.lin(a.n_conditions, a.width), take.lin(a.width, R)
        weights.append(outer(jnp.tanh(inner(t))))
    s_E, s_D = weights
    mu_G, log_G = mean_G(s_E, theta), jnp.clip(variance_G(s_E), -12, 6)
    z_G = mu_G + jnp.exp(log_G / 2) * noise[:p]
    squares, local_kl, begin, latent = 0.0, 0.0, 0, p
    for d_j, q in zip(a.groups, a.n_local):
        theta_j, e_j = theta[begin : begin + d_j], noise[latent : latent + q]
        mean, variance, decoder = take.matrix(R * (d_j + p), q), take.lin(R, q), take.matrix(R * (p + q), d_j)
        into = jax.lax.stop_gradient(z_G) if slip == "no KL through z_G" else z_G
        log_v = jnp.clip(variance(s_E), -12, 6)
        z = mean(s_E, cat(theta_j, z_G)) + jnp.exp(log_v / 2) * e_j
        if slip == "theta for z_L":
            z = jnp.resize(theta_j, q)
        local_kl += kl(mean(s_E, cat(theta_j, into)), log_v)
        squares += jnp.sum((theta_j - decoder(s_D, cat(z_G, z))) ** 2)
        begin, latent = begin + d_j, latent + q
    assert take.at == flat.size
    return squares, kl(mu_G, log_G), local_kl


@lru_cache(maxsize=32)
def compiled(a, slip):
    draw = multiplicative if a.variant == "multiplicative" else gaussian
    d = sum(a.groups)

    def objective(flat, theta, t, noise, gamma, weight):
        variance = gamma if slip == "gamma is a variance" else gamma**2
        squares, global_kl, local_kl = jax.vmap(lambda *row: jnp.stack(draw(a, flat, *row, slip)))(theta, t, noise).mean(axis=0)
        likelihood = -squares / (2 * variance) - d / 2 * jnp.log(2 * jnp.pi * variance)
        terms = jnp.stack([likelihood - global_kl - local_kl, squares, global_kl, local_kl])
        return likelihood - weight * (global_kl + local_kl), terms

    quickly = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}  # to compile
    return jax.jit(jax.grad(objective, has_aux=True), compiler_options=quickly)


def gradient(a, parameters, theta, t, noise, gamma, weight=1.0, slip=None):
    """The gradient and the four terms of `mlp.vae_gradient`."""
    return [np.asarray(x) for x in compiled(a, slip)(parameters, theta, t, noise, gamma, weight)]
