"""Iterations for Numba: a gradient, a step of Adam, the next draw, one after the other."""

import numpy as np

from .. import optim, rng
from .._jit import loop, loop_ieee
from ..mlp import networks
from .gradients import (
    amortised_draw,
    amortised_gradient,
    coefficient_sd,
    coefficients,
    mean_field_draw,
    mean_field_gradient,
    of_coefficients,
    triangle_rows,
    unit_of,
)


@loop_ieee
def coefficient_gradient(log_sd, eps, theta, grad_w, prior_mean, prior_sd, path, gradient):
    p = eps.size
    for j in range(p):
        s = coefficient_sd(log_sd[j])
        c = grad_w[j] + (prior_mean - theta[j]) / (prior_sd * prior_sd) + (eps[j] / s if path else 0.0)
        gradient[j], gradient[p + j] = c, c * eps[j] * s + (0.0 if path else 1.0)


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


def network_iteration(
    X, precision, H, parameters, moments, eps, tau, theta, g, z, message, extra, extra_next, rho, hidden, sizes, activation,
    learning_rate, beta1, beta2, epsilon, path, full, centre, key, client, step, new_H, new_parameters, new_moments, new_eps,
    new_tau, new_theta, new_g, new_z, new_extra, n_threads
):  # fmt: skip
    (n, p), f = H.shape, len(precision)
    at = of_coefficients(p, full)
    phi, psi = slice(at, at + f), slice(at + f, None)
    gradient, grad_w, cotangent = np.empty(len(parameters)), np.empty(p), np.empty(n)
    inputs = (H, g, z, tau, extra, parameters[psi], message, None)
    amortised_gradient(*inputs, rho, hidden, path, grad_w, cotangent, gradient[psi], 1)
    head_gradient(parameters, eps, theta, grad_w, 0.0, 1.0, path, full, gradient)
    upstream, of_X = np.outer(cotangent, theta), np.empty(X.shape)
    networks.backward(X, parameters[phi], upstream, sizes, activation, gradient[phi], of_X, 1)
    gradient[phi] -= precision * parameters[phi]
    rule, random = (learning_rate, beta1, beta2, epsilon), (key, client, step)
    stepped(parameters, moments, gradient, rule, random, full, new_parameters, new_moments, new_eps, new_tau, new_theta)
    design = np.empty((n, p))
    networks.forward(X, new_parameters[phi], sizes, activation, design, 1)
    new_H[:], new_extra[:] = design, extra_next
    if centre >= 0:
        new_extra[:, centre] = centre_of(design, new_parameters[:p])
    amortised_draw(design, new_theta, new_tau, new_extra, new_parameters[psi], rho, hidden, new_g, new_z, 1)
