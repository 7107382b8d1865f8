"""Defines the augmented models' kernels in plain NumPy: gradients, and whole iterations."""

import numpy as np

from . import mlp, optim, rng

LOWEST, HIGHEST = -8.0, 4.0  # of log(s / rho)
LEAST = np.log(1e-8)  # of the log standard deviation of a coefficient


def coefficients(mu, scale, eps, full, theta, n_threads):
    with np.errstate(over="ignore", invalid="ignore"):
        if full:
            theta[:] = mu + triangle(scale, len(mu))[0] @ eps
        else:
            theta[:] = mu + np.exp(np.maximum(scale, LEAST)) * eps


def triangle(flat, p):
    """Returns L of a full q(theta), and the unit of its elements off the diagonal."""
    unit = min(1.0, 64 / p) ** 2 if p else 1.0
    L = np.zeros((p, p))
    L[np.tril_indices(p)] = flat
    s = np.exp(np.maximum(np.diag(L), LEAST))
    L = unit * L * s[:, None]
    np.fill_diagonal(L, s)
    return L, unit


def mean_field_draw(H, w, tau, mean, log_sd, g, z, n_threads):
    with np.errstate(over="ignore", invalid="ignore"):
        g[:] = H @ w
        z[:] = mean + np.exp(log_sd) * tau


def mean_field_gradient(
    H, g, z, tau, log_sd, message, own, rho, path, grad_w, cotangent, grad_mean, grad_log_sd, n_threads
):  # fmt: skip
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        s = np.exp(log_sd)
        through_sd = tau / s if path else 0
        a = message - (z - g) / rho**2 + through_sd
        through_g = 0 if own is None else own
        cotangent[:] = through_g + (z - g) / rho**2
        grad_w[:] = H.T @ cotangent
        grad_mean[:] = a
        entropy = 0 if path else 1
        grad_log_sd[:] = a * tau * s + entropy


def network(g, extra, psi, hidden):
    """Returns the network's sizes, the values of its layers, and its two outputs."""
    sizes = np.array([1 + extra.shape[1], *hidden, 2])
    h = mlp.values(np.column_stack([g, extra]), psi, sizes, mlp.TANH)
    return sizes, h, h[-1][:, 0], h[-1][:, 1]


def amortised_draw(H, w, tau, extra, psi, rho, hidden, g, z, n_threads):
    with np.errstate(over="ignore", invalid="ignore"):
        g[:] = H @ w
        _, _, o1, o2 = network(g, extra, psi, hidden)
        z[:] = g + o1 + rho * np.exp(np.clip(o2, LOWEST, HIGHEST)) * tau


def amortised_gradient(
    H, g, z, tau, extra, psi, message, own, rho, hidden, path, grad_w, cotangent, grad_psi, n_threads
):  # fmt: skip
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        sizes, h, _, o2 = network(g, extra, psi, hidden)
        s = rho * np.exp(np.clip(o2, LOWEST, HIGHEST))
        moves = (o2 >= LOWEST) & (o2 <= HIGHEST)  # where log s follows o2

        def pull_back(m, log_s):
            """Derivatives in psi and in g, through the network and through m = g + o1."""
            grad, grad_inputs = mlp.pull_back(h, psi, np.column_stack([m, log_s * moves]), sizes, mlp.TANH)
            return grad, grad_inputs[:, 0] + m

        through_sd = tau / s if path else 0
        a = message - (z - g) / rho**2 + through_sd
        entropy = 0 if path else 1
        grad_psi[:], through_z = pull_back(a, a * tau * s + entropy)
        through_g = 0 if own is None else own
        cotangent[:] = through_g + (z - g) / rho**2 + through_z
        if path:  # of -log q(z | theta) at fixed z
            cotangent += pull_back(-tau / s, 1 - tau**2)[1]
        grad_w[:] = H.T @ cotangent


def coefficients_gradient(parameters, eps, theta, grad_w, prior_mean, prior_sd, path, full):
    """Returns the gradient in [mu, log sd] or [mu, triangle], with the prior of theta, and -log q(theta)."""
    p = len(eps)
    with np.errstate(over="ignore", invalid="ignore"):
        c = grad_w + (prior_mean - theta) / prior_sd**2
        if full:
            L, unit = triangle(parameters[p : of_coefficients(p, full)], p)
            through_scale = np.linalg.solve(L.T, eps) if path and p else 0
            c = c + through_scale
            of_L = unit * np.outer(c * np.diag(L), eps)
            entropy = 0 if path else 1
            np.fill_diagonal(of_L, c * (L @ eps) + entropy)
            return np.concatenate([c, of_L[np.tril_indices(p)]])
        s = np.exp(np.maximum(parameters[p : 2 * p], LEAST))
        through_scale = eps / s if path else 0
        c = c + through_scale
        entropy = 0 if path else 1
        return np.concatenate([c, c * eps * s + entropy])


def of_coefficients(p, full):
    n_of_scale = p * (p + 1) // 2 if full else p
    return p + n_of_scale


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
    place = of_coefficients(p, full)
    mean, log_sd = slice(place, place + n), slice(place + n, None)
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
    place = of_coefficients(p, full)
    phi, psi = slice(place, place + f), slice(place + f, None)
    grad_w, cotangent, grad_psi = np.empty(p), np.empty(n), np.empty(len(parameters[psi]))
    inputs = (H, g, z, tau, extra, parameters[psi], message, None)
    amortised_gradient(*inputs, rho, hidden, path, grad_w, cotangent, grad_psi, 1)
    head = coefficients_gradient(parameters, eps, theta, grad_w, 0.0, 1.0, path, full)
    grad_phi, nothing = np.empty(f), np.empty(X.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        mlp.backward(X, parameters[phi], np.outer(cotangent, theta), sizes, activation, grad_phi, nothing, 1)
        grad_phi = grad_phi - precision * parameters[phi]
    gradient, rule = np.concatenate([head, grad_phi, grad_psi]), (learning_rate, beta1, beta2, epsilon)
    random = (key, client, step)
    stepped(parameters, moments, gradient, rule, random, full, new_parameters, new_moments, new_eps, new_tau, new_theta)
    mlp.forward(X, new_parameters[phi], sizes, activation, new_H, 1)
    new_extra[:] = extra_next
    if centre >= 0:
        new_extra[:, centre] = new_H @ new_parameters[:p]
    amortised_draw(new_H, new_theta, new_tau, new_extra, new_parameters[psi], rho, hidden, new_g, new_z, 1)
