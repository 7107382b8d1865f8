"""Defines the optimisers in plain NumPy."""

import numpy as np


def adam(state, gradient, learning_rate, beta1, beta2, epsilon, new_state, step, n_threads):
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        m = beta1 * state[0] + (1 - beta1) * gradient
        v = beta2 * state[1] + (1 - beta2) * gradient * gradient
        t = state[2] + 1
        step[:] = learning_rate * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + epsilon)
    new_state[:] = m, v, t


def adagrad(state, gradient, learning_rate, epsilon, new_state, step, n_threads):
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        new_state[0] = state[0] + gradient**2
        step[:] = learning_rate * (gradient / (np.sqrt(new_state[0]) + epsilon))
