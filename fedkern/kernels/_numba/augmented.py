"""The client's side of the augmented models for Numba: plain loops over rows, and over blocks of rows for the network."""

import numpy as np
from numba import boolean, float64, int64, types

from . import optim, rng
from ._jit import loop, loop_ieee, scalar
from .glm import Lean
from .mlp import LANES, TANH, backward_block, forward_block

LOWEST, HIGHEST = -8.0, 4.0  # of log(s / rho)
LEAST = np.log(1e-8)  # of the log standard deviation of a coefficient


@scalar
def row_times(x, w):
    found = 0.0
    for j in range(w.size):
        found += x[j] * w[j]
    return found


@loop
def mean_field_draw_rows(H, w, tau, mean, log_sd, g, z):
    for i in range(g.size):
        g[i] = row_times(H[i], w)
        z[i] = mean[i] + np.exp(log_sd[i]) * tau[i]


@loop_ieee
def mean_field_gradient_rows(H, g, z, tau, log_sd, message, own, rho, path, grad_w, cotangent, grad_mean, grad_log_sd):
    for i in range(g.size):
        s, pull = np.exp(log_sd[i]), (z[i] - g[i]) / (rho * rho)
        a = message[i] - pull + (tau[i] / s if path else 0.0)
        c = own[i] + pull
        grad_mean[i], grad_log_sd[i], cotangent[i] = a, a * tau[i] * s + (0.0 if path else 1.0), c
        for j in range(grad_w.size):
            grad_w[j] += H[i, j] * c


@scalar
def fill(block, count, g, extra, first):
    """The network's inputs, as columns."""
    for b in range(count):
        block[0, b] = g[first + b]
        for j in range(extra.shape[1]):
            block[1 + j, b] = extra[first + b, j]


@scalar
def spread(o2, rho):
    return rho * np.exp(min(max(o2, LOWEST), HIGHEST) if o2 == o2 else o2)


@loop
def amortised_draw_rows(H, w, tau, extra, psi, rho, sizes, g, z):
    n, width = g.size, sizes.sum()
    values = np.empty((width, LANES))
    for i in range(n):
        g[i] = row_times(H[i], w)
    for first in range(0, n, LANES):
        count = min(LANES, n - first)
        fill(values, count, g, extra, first)
        forward_block(values, count, psi, sizes, TANH)
        for b in range(count):
            z[first + b] = g[first + b] + values[width - 2, b] + spread(values[width - 1, b], rho) * tau[first + b]


@loop_ieee
def amortised_gradient_rows(H, g, z, tau, extra, psi, message, own, rho, sizes, path, grad_w, cotangent, grad_psi):
    n, width = g.size, sizes.sum()
    values, cotangents = np.empty((width, LANES)), np.empty((width, LANES))
    o1, o2, nothing = width - 2, width - 1, np.empty(0)
    for first in range(0, n, LANES):
        count = min(LANES, n - first)
        fill(values, count, g, extra, first)
        forward_block(values, count, psi, sizes, TANH)
        for b in range(count):
            i, s = first + b, spread(values[o2, b], rho)
            moves = 1.0 if LOWEST <= values[o2, b] <= HIGHEST else 0.0
            pull = (z[i] - g[i]) / (rho * rho)
            a = message[i] - pull + (tau[i] / s if path else 0.0)
            cotangents[o1, b], cotangents[o2, b] = a, (a * tau[i] * s + (0.0 if path else 1.0)) * moves
            cotangent[i] = own[i] + pull + a
        backward_block(values, cotangents, count, psi, sizes, TANH, grad_psi)
        for b in range(count):
            cotangent[first + b] += cotangents[0, b]
        if path:  # of -log q(z | theta) at fixed z
            for b in range(count):
                i, s = first + b, spread(values[o2, b], rho)
                moves = 1.0 if LOWEST <= values[o2, b] <= HIGHEST else 0.0
                cotangents[o1, b], cotangents[o2, b] = -tau[i] / s, (1.0 - tau[i] * tau[i]) * moves
                cotangent[i] -= tau[i] / s
            backward_block(values, cotangents, count, psi, sizes, TANH, nothing)
            for b in range(count):
                cotangent[first + b] += cotangents[0, b]
    for i in range(n):
        for j in range(grad_w.size):
            grad_w[j] += H[i, j] * cotangent[i]


_in, _out, _plain = types.Array(float64, 1, "A", readonly=True), types.Array(float64, 1, "A"), float64[::1]
_rows = types.Array(float64, 2, "A", readonly=True)
_mean_field_draw = Lean(mean_field_draw_rows, _plain, _in, _in, _in, _out, _out)
_mean_field_gradient = Lean(
    mean_field_gradient_rows, _in, _in, _in, _in, _in, _in, float64, boolean, _out, _out, _out, _out
)  # fmt: skip
_amortised_draw = Lean(amortised_draw_rows, _plain, _in, _rows, _plain, float64, int64[::1], _out, _out)
_amortised_gradient = Lean(
    amortised_gradient_rows, _in, _in, _in, _rows, _plain, _in, _in, float64, int64[::1], boolean, _out, _out, _plain
)  # fmt: skip


def zeros(n):
    """A column of zeros that takes no memory."""
    return np.ndarray((n,), np.float64, np.zeros(1), 0, (0,))


def network(extra, hidden):
    return np.array([1 + extra.shape[1], *hidden, 2], np.int64)


def mean_field_draw(H, w, tau, mean, log_sd, g, z, n_threads):
    _mean_field_draw(H, np.array(w), tau, mean, log_sd, g, z)


def mean_field_gradient(
    H, g, z, tau, log_sd, message, own, rho, path, grad_w, cotangent, grad_mean, grad_log_sd, n_threads
):  # fmt: skip
    own = zeros(len(g)) if own is None else own
    grad_w[:] = 0
    _mean_field_gradient(H, g, z, tau, log_sd, message, own, rho, path, grad_w, cotangent, grad_mean, grad_log_sd)


def amortised_draw(H, w, tau, extra, psi, rho, hidden, g, z, n_threads):
    _amortised_draw(H, np.array(w), tau, extra, np.array(psi), rho, network(extra, hidden), g, z)


def amortised_gradient(
    H, g, z, tau, extra, psi, message, own, rho, hidden, path, grad_w, cotangent, grad_psi, n_threads
):  # fmt: skip
    own = zeros(len(g)) if own is None else own
    grad, grad_w[:] = np.zeros(len(psi)), 0
    _amortised_gradient(
        H, g, z, tau, extra, np.array(psi), message, own, rho, network(extra, hidden), path, grad_w, cotangent, grad
    )  # fmt: skip
    grad_psi[:] = grad


@scalar
def coefficient_sd(log_sd):
    return np.exp(log_sd if log_sd != log_sd else max(log_sd, LEAST))


@loop
def coefficient_rows(mu, log_sd, eps, theta):
    for j in range(theta.size):
        theta[j] = mu[j] + coefficient_sd(log_sd[j]) * eps[j]


@loop_ieee
def coefficient_gradient(log_sd, eps, theta, grad_w, prior_mean, prior_sd, path, gradient):
    p = eps.size
    for j in range(p):
        s = coefficient_sd(log_sd[j])
        c = grad_w[j] + (prior_mean - theta[j]) / (prior_sd * prior_sd) + (eps[j] / s if path else 0.0)
        gradient[j], gradient[p + j] = c, c * eps[j] * s + (0.0 if path else 1.0)


def coefficients(mu, log_sd, eps, theta, n_threads):
    drawn = np.empty(len(theta))
    coefficient_rows(np.array(mu), np.array(log_sd), np.array(eps), drawn)
    theta[:] = drawn


def stepped(parameters, moments, gradient, rule, random, new_parameters, new_moments, new_eps, new_tau, new_theta):
    """A step of Adam, and the normals and the coefficients of the next draw."""
    p, (k, change) = len(new_eps), (len(gradient), np.empty(len(gradient)))
    moved, normals = np.empty((3, k)), np.empty(p + len(new_tau))
    optim.adam(np.array(moments, order="C"), gradient, *rule, moved, change, 1)
    new_moments[:], new_parameters[:] = moved, parameters + change
    rng.normal(*random, 0, 0, normals, 1)
    new_eps[:], new_tau[:] = normals[:p], normals[p:]
    coefficients(new_parameters[:p], new_parameters[p : 2 * p], new_eps, new_theta, 1)


def mean_field_iteration(
    H, parameters, moments, eps, tau, theta, g, z, message, rho, prior_mean, prior_sd, learning_rate, beta1, beta2, epsilon,
    path, key, client, step, new_parameters, new_moments, new_eps, new_tau, new_theta, new_g, new_z, n_threads
):  # fmt: skip
    n, p = H.shape
    at, log_sd = 2 * p, slice(2 * p + n, None)
    gradient, grad_w, cotangent = np.empty(len(parameters)), np.empty(p), np.empty(n)
    rows = (gradient[at : at + n], gradient[at + n :])
    mean_field_gradient(H, g, z, tau, parameters[log_sd], message, None, rho, path, grad_w, cotangent, *rows, 1)
    head = (np.array(parameters[p:at]), np.array(eps), np.array(theta), grad_w)
    coefficient_gradient(*head, prior_mean, prior_sd, path, gradient)
    rule, random = (learning_rate, beta1, beta2, epsilon), (key, client, step)
    stepped(parameters, moments, gradient, rule, random, new_parameters, new_moments, new_eps, new_tau, new_theta)
    mean_field_draw(H, new_theta, new_tau, new_parameters[at : at + n], new_parameters[log_sd], new_g, new_z, 1)


def amortised_iteration(
    H, parameters, moments, eps, tau, theta, g, z, message, extra, extra_next, rho, hidden, prior_mean, prior_sd, learning_rate,
    beta1, beta2, epsilon, path, key, client, step, new_parameters, new_moments, new_eps, new_tau, new_theta, new_g, new_z,
    n_threads
):  # fmt: skip
    n, p = H.shape
    psi = slice(2 * p, None)
    gradient, grad_w, cotangent = np.empty(len(parameters)), np.empty(p), np.empty(n)
    inputs = (H, g, z, tau, extra, parameters[psi], message, None)
    amortised_gradient(*inputs, rho, hidden, path, grad_w, cotangent, gradient[psi], 1)
    head = (np.array(parameters[p : 2 * p]), np.array(eps), np.array(theta), grad_w)
    coefficient_gradient(*head, prior_mean, prior_sd, path, gradient)
    rule, random = (learning_rate, beta1, beta2, epsilon), (key, client, step)
    stepped(parameters, moments, gradient, rule, random, new_parameters, new_moments, new_eps, new_tau, new_theta)
    amortised_draw(H, new_theta, new_tau, extra_next, new_parameters[psi], rho, hidden, new_g, new_z, 1)
