"""Defines the network kernels: layer by layer, in float64."""

import itertools

import numpy as np

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
