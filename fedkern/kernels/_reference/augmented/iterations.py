"""Defines iterations: a gradient, a step of Adam, the next draw, one after the other."""

import numpy as np

from .. import optim, rng
from ..mlp import networks
from .gradients import (
    LEAST,
    amortised_draw,
    amortised_gradient,
    coefficients,
    mean_field_draw,
    mean_field_gradient,
    triangle,
)


def coefficients_gradient(parameters, eps, theta, grad_w, prior_mean, prior_sd, path, full):
    """Returns the gradient in [mu, log sd] or [mu, triangle], with the prior of theta, and -log q(theta)."""
    p = len(eps)
    with np.errstate(over="ignore", invalid="ignore"):
        c = grad_w + (prior_mean - theta) / prior_sd**2
        if full:
            L, unit = triangle(parameters[p : of_coefficients(p, full)], p)
            c = c + (np.linalg.solve(L.T, eps) if path and p else 0)
            of_L = unit * np.outer(c * np.diag(L), eps)
            np.fill_diagonal(of_L, c * (L @ eps) + (0 if path else 1))
            return np.concatenate([c, of_L[np.tril_indices(p)]])
        s = np.exp(np.maximum(parameters[p : 2 * p], LEAST))
        c = c + (eps / s if path else 0)
        return np.concatenate([c, c * eps * s + (0 if path else 1)])


def of_coefficients(p, full):
    return p + (p * (p + 1) // 2 if full else p)


def stepped(parameters, moments, gradient, rule, random, full, new_parameters, new_moments, new_eps, new_tau, new_theta):
    """Makes a step of Adam, and draws the normals and the coefficients of the next draw."""
    p, change, normals = len(new_eps), np.empty(len(gradient)), np.empty(len(new_eps) + len(new_tau))
    optim.adam(moments, gradient, *rule, new_moments, change, 1)
    new_parameters[:] = parameters + change
    rng.normal(*random, 0, 0, normals, 1)
    new_eps[:], new_tau[:] = normals[:p], normals[p:]
    scale = new_parameters[p : of_coefficients(p, full)]
    coefficients(new_parameters[:p], scale, new_eps, full, new_theta, 1)


def mean_field_iteration(
    H, parameters, moments, eps, tau, theta, g, z, message, rho, prior_mean, prior_sd, learning_rate, beta1, beta2, epsilon,
    path, full, key, client, step, new_parameters, new_moments, new_eps, new_tau, new_theta, new_g, new_z, n_threads
):  # fmt: skip
    n, p = H.shape
    at = of_coefficients(p, full)
    mean, log_sd = slice(at, at + n), slice(at + n, None)
    grad_w, cotangent, rows = np.empty(p), np.empty(n), np.empty((2, n))
    mean_field_gradient(H, g, z, tau, parameters[log_sd], message, None, rho, path, grad_w, cotangent, *rows, 1)
    head = coefficients_gradient(parameters, eps, theta, grad_w, prior_mean, prior_sd, path, full)
    gradient, rule = np.concatenate([head, *rows]), (learning_rate, beta1, beta2, epsilon)
    random = (key, client, step)
    stepped(parameters, moments, gradient, rule, random, full, new_parameters, new_moments, new_eps, new_tau, new_theta)
    mean_field_draw(H, new_theta, new_tau, new_parameters[mean], new_parameters[log_sd], new_g, new_z, 1)


def amortised_iteration(
    H, parameters, moments, eps, tau, theta, g, z, message, extra, extra_next, rho, hidden, prior_mean, prior_sd, learning_rate,
    beta1, beta2, epsilon, path, full, centre, key, client, step, new_parameters, new_moments, new_eps, new_tau, new_theta,
    new_g, new_z, new_extra, n_threads
):  # fmt: skip
    n, p = H.shape
    psi = slice(of_coefficients(p, full), None)
    grad_w, cotangent, grad_psi = np.empty(p), np.empty(n), np.empty(len(parameters[psi]))
    inputs = (H, g, z, tau, extra, parameters[psi], message, None)
    amortised_gradient(*inputs, rho, hidden, path, grad_w, cotangent, grad_psi, 1)
    head = coefficients_gradient(parameters, eps, theta, grad_w, prior_mean, prior_sd, path, full)
    gradient, rule = np.concatenate([head, grad_psi]), (learning_rate, beta1, beta2, epsilon)
    random = (key, client, step)
    stepped(parameters, moments, gradient, rule, random, full, new_parameters, new_moments, new_eps, new_tau, new_theta)
    new_extra[:] = extra_next
    if centre >= 0:
        new_extra[:, centre] = H @ new_parameters[:p]
    amortised_draw(H, new_theta, new_tau, new_extra, new_parameters[psi], rho, hidden, new_g, new_z, 1)


def network_iteration(
    X, precision, H, parameters, moments, eps, tau, theta, g, z, message, extra, extra_next, rho, hidden, sizes, activation,
    learning_rate, beta1, beta2, epsilon, path, full, centre, key, client, step, new_H, new_parameters, new_moments, new_eps,
    new_tau, new_theta, new_g, new_z, new_extra, n_threads
):  # fmt: skip
    (n, p), f = H.shape, len(precision)
    at = of_coefficients(p, full)
    phi, psi = slice(at, at + f), slice(at + f, None)
    grad_w, cotangent, grad_psi = np.empty(p), np.empty(n), np.empty(len(parameters[psi]))
    inputs = (H, g, z, tau, extra, parameters[psi], message, None)
    amortised_gradient(*inputs, rho, hidden, path, grad_w, cotangent, grad_psi, 1)
    head = coefficients_gradient(parameters, eps, theta, grad_w, 0.0, 1.0, path, full)
    grad_phi, nothing = np.empty(f), np.empty(X.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        networks.backward(X, parameters[phi], np.outer(cotangent, theta), sizes, activation, grad_phi, nothing, 1)
        grad_phi = grad_phi - precision * parameters[phi]
    gradient, rule = np.concatenate([head, grad_phi, grad_psi]), (learning_rate, beta1, beta2, epsilon)
    random = (key, client, step)
    stepped(parameters, moments, gradient, rule, random, full, new_parameters, new_moments, new_eps, new_tau, new_theta)
    networks.forward(X, new_parameters[phi], sizes, activation, new_H, 1)
    new_extra[:] = extra_next
    if centre >= 0:
        new_extra[:, centre] = new_H @ new_parameters[:p]
    amortised_draw(new_H, new_theta, new_tau, new_extra, new_parameters[psi], rho, hidden, new_g, new_z, 1)
