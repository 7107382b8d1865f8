"""Draws random numbers, a block of words a thread."""

from __future__ import annotations

from . import device
from .device import Array, Launched, blocks, counter, current, vector

THREADS = 256


def words(key: int, client: int, step: int, draw: int, first_item: int, out: Array, n_threads: int) -> None:
    if len(out):
        arguments = (device.matrix(out), device.key(key), counter(client, step, draw, first_item))
        current().launch("rng", "words", (blocks(len(out), THREADS),), THREADS, arguments)


def _pairs(kind: str, key: int, client: int, step: int, draw: int, item: int, out: Array) -> None:
    if len(out):
        arguments = (vector(out), device.key(key), counter(client, step, draw, item))
        current().launch("rng", f"pairs<Kind::{kind}>", (blocks(len(out), 2 * THREADS),), THREADS, arguments)


def uniform(key: int, client: int, step: int, draw: int, first_item: int, out: Array, n_threads: int) -> None:
    _pairs("uniform", key, client, step, draw, first_item, out)


def normal(key: int, client: int, step: int, draw: int, first_item: int, out: Array, n_threads: int) -> None:
    _pairs("normal", key, client, step, draw, first_item, out)


def exponential(key: int, client: int, step: int, draw: int, first_item: int, out: Array, n_threads: int) -> None:
    _pairs("exponential", key, client, step, draw, first_item, out)


def _variates(kernel: str, inputs: Launched, key: int, client: int, step: int, item: int, out: Array) -> None:
    if len(out):
        arguments = (*map(vector, (*inputs, out)), device.key(key), counter(client, step, item=item))
        current().launch("rng", kernel, (blocks(len(out), THREADS),), THREADS, arguments)


def gamma(shape: Array, key: int, client: int, step: int, first_item: int, out: Array, n_threads: int) -> None:
    _variates("gammas", (shape,), key, client, step, first_item, out)


def inverse_gaussian(
    mean: Array, shape: Array, key: int, client: int, step: int, first_item: int, out: Array, n_threads: int
) -> None:
    _variates("inverse_gaussians", (mean, shape), key, client, step, first_item, out)


def polya_gamma(z: Array, key: int, client: int, step: int, first_item: int, out: Array, n_threads: int) -> None:
    _variates("polya_gammas", (z,), key, client, step, first_item, out)
