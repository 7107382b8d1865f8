"""Makes steps of optimisers, a parameter a thread."""

from __future__ import annotations

import math

import numpy as np

from .device import Array, blocks, current, matrix, structure, vector

_ADAM = np.dtype([(f, "f8") for f in ("learning_rate", "beta1", "beta2", "epsilon")], align=True)
_ADAGRAD = np.dtype([(f, "f8") for f in ("learning_rate", "epsilon")], align=True)
THREADS = 256


def adam(
    state: Array,
    gradient: Array,
    learning_rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    new_state: Array,
    step: Array,
    n_threads: int,
) -> None:
    if len(gradient):
        rule = structure(_ADAM, learning_rate, beta1, beta2, epsilon)
        logs = (math.log(beta) if beta else -math.inf for beta in (beta1, beta2))
        arguments = (matrix(state), vector(gradient), rule, *logs, matrix(new_state), vector(step))
        current().launch("optim", "adam_columns", (blocks(len(gradient), THREADS),), THREADS, arguments)


def adagrad(
    state: Array, gradient: Array, learning_rate: float, epsilon: float, new_state: Array, step: Array, n_threads: int
) -> None:
    if len(gradient):
        rule = structure(_ADAGRAD, learning_rate, epsilon)
        arguments = (vector(state[0]), vector(gradient), rule, vector(new_state[0]), vector(step))
        current().launch("optim", "adagrad_columns", (blocks(len(gradient), THREADS),), THREADS, arguments)
