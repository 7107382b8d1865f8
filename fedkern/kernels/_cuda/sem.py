"""Computes structural equation models: a warp a chain, and a block a warp, so that few chains are spread over the card too."""

from __future__ import annotations

import numpy as np

from .device import Array, Launched, blocks, current, matrix, pointer, strides, structure, vector

THREADS = 32
MOST_CHAINS = 4096  # that run at a time
WORKSPACE = 1 << 30  # bytes of these
UPDATES = ("row_gibbs", "element", "row")  # as SemUpdate has them


def _tensor(dimensions: int) -> np.dtype[np.void]:
    """Returns a Tensor<T, D> of tensor.hpp."""
    return np.dtype([("data", "i8"), ("shape", "i8", (dimensions,)), ("stride", "i8", (dimensions,))], align=True)


_TENSOR_2, _TENSOR_3 = _tensor(2), _tensor(3)
_STATE = np.dtype([("deviation", _TENSOR_3), ("lambda_sq", _TENSOR_3), ("b", _TENSOR_2), ("log_step", _TENSOR_3)], align=True)
_VECTOR = np.dtype([(name, "i8") for name in ("data", "size", "stride")], align=True)
_DATA = np.dtype([("Y", _TENSOR_3), ("theta", _TENSOR_3), ("tau_sq", _TENSOR_3), ("temperature", _VECTOR)], align=True)
_HALF_CAUCHY = np.dtype([("scale", "f8"), ("expanded", "?")], align=True)
_OPTIONS = np.dtype(
    [
        ("seed", "u8"), ("chain", "u8"), ("client", "u4"), ("step", "u4"), ("n_sweeps", "i8"), ("update", "i4"), ("swap", "?"),
        ("stable", "?"), ("adapt", "?"), ("lambda_", _HALF_CAUCHY), ("shape", "f8"), ("rate", "f8"),
    ],
    align=True,
)  # fmt: skip


def _item(array: Array) -> Launched:
    return pointer(array), tuple(array.shape), tuple(strides(array))


def _chains(chains: int, each: int) -> tuple[int, Array]:
    """Returns how many chains run at a time, and memory for that many numbers of each."""
    grid = blocks(chains, 1, min(MOST_CHAINS, max(1, WORKSPACE // (8 * max(each, 1)))))
    return grid, current().xp.empty(grid * each)


def sweeps(
    Y: Array, theta: Array, tau_sq: Array, deviation: Array, lambda_sq: Array, b: Array, log_step: Array, temperature: Array,
    seed: int, chain: int, client: int, step: int, n_sweeps: int, update: int, swap: bool, stable: bool, adapt: bool,
    expanded: bool, scale_lambda: float, shape: float, rate: float, new_deviation: Array, new_lambda_sq: Array, new_b: Array,
    new_log_step: Array, loglik: Array, events: Array, n_threads: int,
) -> None:  # fmt: skip
    chains, p, n = Y.shape
    if not chains:
        return
    data = structure(_DATA, _item(Y), _item(theta), _item(tau_sq), vector(temperature).item())
    states = (deviation, lambda_sq, b, log_step), (new_deviation, new_lambda_sq, new_b, new_log_step)
    before, after = (structure(_STATE, *map(_item, state)) for state in states)
    named = (seed, chain, client, step, n_sweeps)
    options = structure(_OPTIONS, *named, update, swap, stable, adapt, (scale_lambda, expanded), shape, rate)
    grid, workspace = _chains(chains, 12 * p * p + 12 * p + (p + 3) * n)
    arguments = (data, before, after, options, vector(loglik), matrix(events), workspace)
    current().launch("sem", f"sweeps_of_chains<SemUpdate::{UPDATES[update]}>", (grid,), THREADS, arguments)


def log_density(Y: Array, coefficients: Array, b: Array, loglik: Array, n_threads: int) -> None:
    chains, p, _ = Y.shape
    if not chains:
        return
    grid, workspace = _chains(chains, p * (p + 3))
    tensors = (structure(_TENSOR_3, *_item(Y)), structure(_TENSOR_3, *_item(coefficients)), structure(_TENSOR_2, *_item(b)))
    current().launch("sem", "log_densities", (grid,), THREADS, (*tensors, vector(loglik), workspace))
