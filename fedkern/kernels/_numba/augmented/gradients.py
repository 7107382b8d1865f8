"""Draws and gradients for Numba: plain loops over rows, and over blocks of rows for the network."""

import numpy as np
from numba import boolean, float64, int64, types

from .._jit import loop, loop_ieee, scalar
from ..glm import Lean
from ..mlp import LANES, TANH, backward_block, forward_block

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
def triangle_rows(flat, unit, L):
    """L of a full q(theta), row by row."""
    for j in range(len(L)):
        start = j * (j + 1) // 2
        s = coefficient_sd(flat[start + j])
        for i in range(j):
            L[j, i] = unit * flat[start + i] * s
        L[j, j] = s


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


def coefficients(mu, scale, eps, full, theta, n_threads):
    drawn, given = np.empty(len(theta)), (np.array(mu), np.array(scale), np.array(eps))
    if full:
        triangle_draw(*given, unit_of(len(mu)), drawn)
    else:
        coefficient_rows(*given, drawn)
    theta[:] = drawn
