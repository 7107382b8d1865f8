"""The spatial models in JAX, float64, written from the specification alone: all clients of a federation at once."""

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

jax.config.update("jax_enable_x64", True)


def network(flat, sizes, activations, x):
    """Layers of (out, in) numbers."""
    at = 0
    for (out, into), active in zip(sizes, activations):
        W, b = flat[at : at + out * into].reshape(out, into), flat[at + out * into : at + out * (into + 1)]
        x, at = active(W @ x + b), at + out * (into + 1)
    return x


def relu(x):
    return jnp.maximum(x, 0)


def same(x):
    return x


def thetahat(d, parts, variant, z, u, t, s):
    """Section 1; `d` is the client's scale, `s` the sizes (hidden, local_hidden, width, rank, p_G, p_L)."""
    hidden, local, width, rank, p_G, p_L = s
    if variant == "multiplicative":
        weights = network(parts["decoder_weights"], [(width, 1), (rank, width)], [jnp.tanh, same], t)
        A = parts["decoder"].reshape(len(d), rank, p_G + p_L)
        return d * jnp.einsum("r,drp,p->d", weights, A, jnp.concatenate([z, u]))
    zt = jnp.concatenate([z, t])
    h = network(parts["global_decoder"], [(hidden, p_G + 1), (hidden, hidden)], [relu, same], zt)
    heads = network(parts["prior"], [(local, p_G + 1), (local, local), (2 * p_L, local)], [relu, same, same], zt)
    z_L = heads[:p_L] + jnp.exp(0.5 * jnp.clip(heads[p_L:], -12, 6)) * u
    x = jnp.concatenate([h, z_L, t])
    n = hidden + p_L + 1
    if variant == "printed":
        return d * network(parts["decoder"], [(len(d), n)], [same], x)
    return d * network(parts["decoder"], [(local, n), (len(d), local)], [relu, same], x)


def normal(x, mean, variance):
    return -0.5 * jnp.log(2 * jnp.pi * variance) - 0.5 * (x - mean) ** 2 / variance


def rows(family, y, eta, trials, sd):
    if family == "poisson":
        return y * eta - jnp.exp(eta) - gammaln(y + 1)
    if family == "negative-binomial":
        ways = gammaln(y + sd) - gammaln(sd) - gammaln(y + 1)
        return ways + y * eta + sd * jnp.log(sd) - (y + sd) * jnp.log(sd + jnp.exp(eta))
    if family == "binomial":
        ways = gammaln(trials + 1) - gammaln(y + 1) - gammaln(trials - y + 1)
        return ways + y * eta - trials * jnp.logaddexp(0.0, eta)
    if family == "bernoulli":
        return y * eta - jnp.logaddexp(0.0, eta)
    return normal(y, eta, sd**2)


def log_joint(clients, lo, hi, family, known_sd, n_beta, xi, us):
    """log p(y, u | xi) of all clients; xi = (x_phi, z_G, b, beta, log sigma_theta[, log sigma]), u with the residuals behind.

    clients: (scale, parts, variant, sizes, tau2, area, y, X, offset, trials) each; tau2 None is deterministic.
    """
    p_G = clients[0][3][4]
    phi = lo + (hi - lo) / (1 + jnp.exp(-xi[0]))
    t = jnp.array([2 * (phi - lo) / (hi - lo) - 1])
    z, b, beta = xi[1 : 1 + p_G], xi[1 + p_G], xi[2 + p_G : 2 + p_G + n_beta]
    scale = jnp.exp(xi[2 + p_G + n_beta])
    sd = jnp.exp(xi[-1]) if known_sd is None else known_sd
    total = 0.0
    for (d, parts, variant, s, tau2, area, y, X, offset, trials), u in zip(clients, us):
        theta = thetahat(d, parts, variant, z, u[: s[5]], t, s)
        if tau2 is not None:
            theta = theta + jnp.sqrt(tau2) * u[s[5] :]
        eta = offset + b + X @ beta + scale * theta[area]
        total += rows(family, y, eta, trials, sd).sum() + normal(u, 0.0, 1.0).sum()
    return total
