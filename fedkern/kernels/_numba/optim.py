"""Optimisers for Numba."""

import numpy as np

from ._jit import loop_ieee


@loop_ieee
def adam(state, gradient, learning_rate, beta1, beta2, epsilon, new_state, step, n_threads):
    known, correction1, correction2 = np.nan, 1.0, 1.0  # most elements have the count of the one before
    for j in range(gradient.size):
        g = gradient[j]
        m = beta1 * state[0, j] + (1.0 - beta1) * g
        v = beta2 * state[1, j] + (1.0 - beta2) * g * g
        t = state[2, j] + 1.0
        if t != known:
            known, correction1, correction2 = t, 1.0 - beta1**t, 1.0 - beta2**t
        new_state[0, j], new_state[1, j], new_state[2, j] = m, v, t
        step[j] = learning_rate * (m / correction1) / (np.sqrt(v / correction2) + epsilon)


@loop_ieee
def adagrad(state, gradient, learning_rate, epsilon, new_state, step, n_threads):
    for j in range(gradient.size):
        g = gradient[j]
        G = state[0, j] + g * g
        new_state[0, j] = G
        step[j] = learning_rate * (g / (np.sqrt(G) + epsilon))
