"""Offers optimisers as pure functions: `init(size)` makes a state, `update(state, gradient)` gives the next one and the step
uphill.

A state is a float64 array (k, size), so it can be kept in a checkpoint. Every state is a function of gradients alone: under
privacy it is post-processing of released sums. Source: docs/spec/pvi.md, section 5.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, TypeAlias

import numpy as np

from ...arrays import Array
from ...kernels import optim
from ...kernels._record import Kernel

Update: TypeAlias = Callable[[Array, Array], tuple[Any, ...]]


@dataclass(frozen=True)
class Optimiser:
    """Holds the functions of an optimiser.

    `init(size) -> state`; `update(state, gradient) -> (state, step)`, where `step` is added to the parameters (ascent).
    `updates(size)` is `update` for many gradients of that size; its arguments are checked once.
    """

    init: Callable[[int], Array]
    update: Update
    updates: Callable[[int], Update]


def adagrad(learning_rate: float, epsilon: float = 1e-10) -> Optimiser:
    """Returns Adagrad: G <- G + g^2; step = lr g / (sqrt(G) + epsilon)."""
    options: dict[str, Any] = {"learning_rate": learning_rate, "epsilon": epsilon}
    updates = partial(_bound, optim.ADAGRAD, 1, **options)
    return Optimiser(lambda size: np.zeros((1, size)), partial(optim.adagrad, **options), updates)


def adam(
    learning_rate: float, beta1: float = optim.BETA1, beta2: float = optim.BETA2, epsilon: float = optim.EPSILON
) -> Optimiser:
    """Returns Adam with bias correction (Kingma and Ba, 2015, Algorithm 1).

    State rows: m, v, and the step count in every column.
    """
    options: dict[str, Any] = {"learning_rate": learning_rate, "beta1": beta1, "beta2": beta2, "epsilon": epsilon}
    updates = partial(_bound, optim.ADAM, 3, **options)
    return Optimiser(lambda size: np.zeros((3, size)), partial(optim.adam, **options), updates)


def sgd(learning_rate: float) -> Optimiser:
    """Returns plain gradient ascent: step = lr g; no state."""

    def update(state: Array, g: Array) -> tuple[Array, Array]:
        return state, learning_rate * g

    return Optimiser(lambda size: np.zeros((0, size)), update, lambda size: update)


@lru_cache(maxsize=16)
def _bound(kernel: Kernel, n_rows: int, size: int, **options: Any) -> Update:
    """Returns a bound call of a kernel, one for all clients of a process."""
    return kernel.bind((np.zeros((n_rows, size)), np.zeros(size)), ("state", "gradient"), **options)


OPTIMISERS: dict[str, Callable[[float], Optimiser]] = {"adagrad": adagrad, "adam": adam, "sgd": sgd}
