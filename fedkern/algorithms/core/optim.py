"""Optimisers as pure functions: `init(size)` makes a state, `update(state, gradient)` gives the next one and the step uphill.

A state is a float64 array (k, size), so it can be kept in a checkpoint. Every state is a function of gradients alone: under
privacy it is post-processing of released sums. Source: docs/methods/pvi.md, section 5.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ...kernels import optim

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Optimiser:
    """`init(size) -> state`; `update(state, gradient) -> (state, step)`, where `step` is added to the parameters (ascent)."""

    init: Callable[[int], Array]
    update: Callable[[Array, Array], tuple[Array, Array]]


def adagrad(learning_rate: float, epsilon: float = 1e-10) -> Optimiser:
    """G <- G + g^2; step = lr g / (sqrt(G) + epsilon)."""
    update = partial(optim.adagrad, learning_rate=learning_rate, epsilon=epsilon)
    return Optimiser(lambda size: np.zeros((1, size)), update)


def adam(
    learning_rate: float, beta1: float = optim.BETA1, beta2: float = optim.BETA2, epsilon: float = optim.EPSILON
) -> Optimiser:
    """Adam with bias correction (Kingma and Ba, 2015, Algorithm 1). State rows: m, v, and the step count in every column."""
    update = partial(optim.adam, learning_rate=learning_rate, beta1=beta1, beta2=beta2, epsilon=epsilon)
    return Optimiser(lambda size: np.zeros((3, size)), update)


def sgd(learning_rate: float) -> Optimiser:
    """step = lr g; no state."""
    return Optimiser(lambda size: np.zeros((0, size)), lambda state, g: (state, learning_rate * g))


OPTIMISERS: dict[str, Callable[[float], Optimiser]] = {"adagrad": adagrad, "adam": adam, "sgd": sgd}
