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


@loop_ieee
def triangle_rows(flat, unit, L):
    """L of a full q(theta), row by row."""
    for j in range(len(L)):
        start = j * (j + 1) // 2
        s = coefficient_sd(flat[start + j])
        for i in range(j):
            L[j, i] = unit * flat[start + i] * s
        L[j, j] = s


@loop_ieee
def triangle_gradient(flat, eps, theta, grad_w, prior_mean, prior_sd, path, unit, gradient):
    p = eps.size
    L, of_q = np.empty((p, p)), np.empty(p)
    triangle_rows(flat, unit, L)
    for j in range(p):
        of_q[j] = eps[j] if path else 0.0
    if path:
        for j in range(p - 1, -1, -1):
            of_q[j] /= L[j, j]
            for i in range(j):
                of_q[i] -= L[j, i] * of_q[j]
    for j in range(p):
        total = grad_w[j] + (prior_mean - theta[j]) / (prior_sd * prior_sd) + of_q[j]
        product, start = 0.0, p + j * (j + 1) // 2
        for i in range(j + 1):
            product += L[j, i] * eps[i]
            gradient[start + i] = unit * (total * L[j, j]) * eps[i]
        gradient[j], gradient[start + j] = total, total * product + (0.0 if path else 1.0)


@loop_ieee
def triangle_draw(mu, flat, eps, unit, theta):
    L = np.empty((mu.size, mu.size))
    triangle_rows(flat, unit, L)
    for j in range(mu.size):
        product = 0.0
        for i in range(j + 1):
            product += L[j, i] * eps[i]
        theta[j] = mu[j] + product


def of_coefficients(p, full):
    return p + (p * (p + 1) // 2 if full else p)


def unit_of(p):
    return min(1.0, 64 / p) ** 2 if p else 1.0


@loop
def predictor_rows(H, w, g):
    for i in range(len(g)):
        total = 0.0
        for j in range(len(w)):
            total += H[i, j] * w[j]
        g[i] = total


def centre_of(H, mu):
    g = np.empty(len(H))
    predictor_rows(np.ascontiguousarray(H), np.array(mu), g)
    return g


def head_gradient(parameters, eps, theta, grad_w, prior_mean, prior_sd, path, full, gradient):
    """Of [mu, log sd] or [mu, triangle]."""
    p, scale = len(eps), np.array(parameters[len(eps) : of_coefficients(len(eps), full)])
    head = (scale, np.array(eps), np.array(theta), grad_w, prior_mean, prior_sd, path)
    if full:
        triangle_gradient(*head, unit_of(p), gradient)
    else:
        coefficient_gradient(*head, gradient)


def coefficients(mu, scale, eps, full, theta, n_threads):
    drawn, given = np.empty(len(theta)), (np.array(mu), np.array(scale), np.array(eps))
    if full:
        triangle_draw(*given, unit_of(len(mu)), drawn)
    else:
        coefficient_rows(*given, drawn)
    theta[:] = drawn


def stepped(parameters, moments, gradient, rule, random, full, new_parameters, new_moments, new_eps, new_tau, new_theta):
    """A step of Adam, and the normals and the coefficients of the next draw."""
    p, (k, change) = len(new_eps), (len(gradient), np.empty(len(gradient)))
    moved, normals = np.empty((3, k)), np.empty(p + len(new_tau))
    optim.adam(np.array(moments, order="C"), gradient, *rule, moved, change, 1)
    new_moments[:], new_parameters[:] = moved, parameters + change
    rng.normal(*random, 0, 0, normals, 1)
    new_eps[:], new_tau[:] = normals[:p], normals[p:]
    mu, scale = new_parameters[:p], new_parameters[p : of_coefficients(p, full)]
    coefficients(mu, scale, new_eps, full, new_theta, 1)


def mean_field_iteration(
    H, parameters, moments, eps, tau, theta, g, z, message, rho, prior_mean, prior_sd, learning_rate, beta1, beta2, epsilon,
    path, full, key, client, step, new_parameters, new_moments, new_eps, new_tau, new_theta, new_g, new_z, n_threads
):  # fmt: skip
    n, p = H.shape
    at = of_coefficients(p, full)
    log_sd = slice(at + n, None)
    gradient, grad_w, cotangent = np.empty(len(parameters)), np.empty(p), np.empty(n)
    rows = (gradient[at : at + n], gradient[log_sd])
    mean_field_gradient(H, g, z, tau, parameters[log_sd], message, None, rho, path, grad_w, cotangent, *rows, 1)
    head_gradient(parameters, eps, theta, grad_w, prior_mean, prior_sd, path, full, gradient)
    rule, random = (learning_rate, beta1, beta2, epsilon), (key, client, step)
    stepped(parameters, moments, gradient, rule, random, full, new_parameters, new_moments, new_eps, new_tau, new_theta)
    mean_field_draw(H, new_theta, new_tau, new_parameters[at : at + n], new_parameters[log_sd], new_g, new_z, 1)


def amortised_iteration(
    H, parameters, moments, eps, tau, theta, g, z, message, extra, extra_next, rho, hidden, prior_mean, prior_sd, learning_rate,
    beta1, beta2, epsilon, path, full, centre, key, client, step, new_parameters, new_moments, new_eps, new_tau, new_theta,
    new_g, new_z, new_extra, n_threads
):  # fmt: skip
    n, p = H.shape
    psi = slice(of_coefficients(p, full), None)
    gradient, grad_w, cotangent = np.empty(len(parameters)), np.empty(p), np.empty(n)
    inputs = (H, g, z, tau, extra, parameters[psi], message, None)
    amortised_gradient(*inputs, rho, hidden, path, grad_w, cotangent, gradient[psi], 1)
    head_gradient(parameters, eps, theta, grad_w, prior_mean, prior_sd, path, full, gradient)
    rule, random = (learning_rate, beta1, beta2, epsilon), (key, client, step)
    stepped(parameters, moments, gradient, rule, random, full, new_parameters, new_moments, new_eps, new_tau, new_theta)
    new_extra[:] = extra_next
    if centre >= 0:
        new_extra[:, centre] = centre_of(H, new_parameters[:p])
    amortised_draw(H, new_theta, new_tau, new_extra, new_parameters[psi], rho, hidden, new_g, new_z, 1)
