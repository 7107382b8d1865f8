"""Clipping, exact noise and the accountant: what one private step and one job pay for privacy."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import cycle
from typing import Any

import numpy as np

from fedkern.kernels import privacy, rng
from fedkern.privacy import accountant
from fedkern.privacy.accountant import Mechanism
from fedkern.privacy.noise import KeyedSource, SecureSource

from . import common, floors, peers

ROWS, DIMENSION, RATE, SIGMA = 3907, 216, 79 / 3907, 5.0  # one client of the Adult experiment
GRID_SIGMA = 5 << 20


def mechanism(source: Any, **changes: Any) -> Mechanism:
    parameters = {"sampling": "poisson", "sampling_rate": RATE, "clip": 2.5, "dimension": DIMENSION, "noise_multiplier": SIGMA}
    return Mechanism(**(parameters | {"secure": source.secure} | changes))


def secure() -> SecureSource:
    return SecureSource()


def keyed() -> KeyedSource:
    return KeyedSource(rng.key(1, "noise"), 0)


# --- clip_sum


def clip_by_numpy(x: np.ndarray, bound: float) -> np.ndarray:
    return np.minimum(1, bound / np.linalg.norm(x, axis=1)) @ x


def clip_by_hand(x: np.ndarray) -> Callable[[], Any]:
    loop, part = peers.clip_sum(), np.empty(x.shape[1], x.dtype)

    def call() -> np.ndarray:
        total = np.zeros(x.shape[1])
        loop(x, 5.0, part, total)
        return total

    return call


CLIPPERS = {
    "fedkern": lambda x: lambda: privacy.clip_sum(x, 5.0),
    "fedkern, 2 threads": lambda x: lambda: privacy.clip_sum(x, 5.0, n_threads=2),
    "numba": clip_by_hand,
    "numpy": lambda x: lambda: clip_by_numpy(x, 5.0),
}
SHAPES = [(256, 108), (32_768, 108), (4096, 2000)]


def rows(shape: tuple[int, int], dtype: str) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


class ClipSum(common.Timed):
    """Seconds for the clipped sum of n rows of p numbers."""

    params = (list(CLIPPERS), SHAPES, ["f4", "f8"])
    param_names = ("peer", "n, p", "dtype")
    one_thread = False

    def make(self, peer: str, shape: tuple[int, int], dtype: str) -> common.Call:
        return CLIPPERS[peer](rows(shape, dtype))

    def time_clip_sum(self, peer: str, shape: tuple[int, int], dtype: str) -> None:
        self.call()


class ClipSumRatios:
    params = (SHAPES, ["f4", "f8"])
    param_names = ("n, p", "dtype")

    def track_over_one_read(self, shape: tuple[int, int], dtype: str) -> float:
        x = rows(shape, dtype)
        return common.ratio(floors.read(x), CLIPPERS["fedkern"](x))

    track_over_one_read.unit = "x floor"

    def track_numpy(self, shape: tuple[int, int], dtype: str) -> float:
        x = rows(shape, dtype)
        return common.ratio(CLIPPERS["fedkern"](x), CLIPPERS["numpy"](x))

    track_numpy.unit = "times as fast"


# --- noise


POOL = 1 << 22  # words: a processor learns the coins of fewer by heart, and is twice as fast as with secret words


def gaussian(n: int, peer: str = "fedkern", sigma: int = GRID_SIGMA) -> Callable[[], Any]:
    """Draws from other words in each call, as long as there are any."""
    needed = 20 * n + 1000
    words = np.random.default_rng(0).integers(0, 2**32, max(POOL, needed), dtype=np.uint32)
    parts = cycle([words[at : at + needed] for at in range(0, len(words) - needed + 1, needed)])
    out = np.empty(n, np.int64)
    if peer == "numba":
        by_hand, parameter = peers.discrete_gaussian(), np.uint64(sigma)
        return lambda: by_hand(next(parts), parameter, out)
    return lambda: privacy.discrete_gaussian(next(parts), sigma, n, out=out)


class DiscreteGaussian(common.Timed):
    """Exact draws from given words."""

    params = (["fedkern", "numba"], [1, 1000, GRID_SIGMA, 2**31 - 1])
    param_names = ("peer", "sigma")

    def make(self, peer: str, sigma: int) -> common.Call:
        return gaussian(100_000, peer, sigma)

    def time_100_000_draws(self, peer: str, sigma: int) -> None:
        self.call()


class DiscreteGaussianRatios:
    def track_words_a_draw(self) -> float:
        return gaussian(100_000)()[1] / 100_000

    track_words_a_draw.unit = "words"

    def track_draws_a_second_with_their_key_stream(self) -> float:
        source, total = SecureSource(), np.zeros(100_000, np.int64)
        return total.size / common.medians(lambda: source.add_noise(total, SIGMA))[0] / 1e6

    track_draws_a_second_with_their_key_stream.unit = "million/s"

    def track_over_inexact_normals_of_numpy(self) -> float:
        generator, out = np.random.default_rng(0), np.empty(100_000)
        return common.ratio(lambda: generator.standard_normal(out=out), gaussian(100_000))

    track_over_inexact_normals_of_numpy.unit = "x floor"


SOURCES = {"secure": secure, "keyed": keyed}


class Step(common.Brief):
    """What one private step pays beside its gradient: the coins of 3,907 rows and the noise of 216 numbers."""

    params = (list(SOURCES),)
    param_names = ("source",)

    def setup(self, source: str) -> None:
        self.source = SOURCES[source]()
        self.mechanism, self.total, self.step = mechanism(self.source), np.arange(DIMENSION), 0
        self.time_coins_and_noise(source)

    def time_coins(self, source: str) -> None:
        self.mechanism.draw(self.source, ROWS, self.step)

    def time_noise(self, source: str) -> None:
        self.mechanism.release(self.source, self.total, self.step)

    def time_coins_and_noise(self, source: str) -> None:
        self.step += 1
        self.mechanism.draw(self.source, ROWS, self.step)
        self.mechanism.release(self.source, self.total, self.step)

    def time_rekey(self, source: str) -> None:
        self.source.rekey()


class AgainstTheOperatingSystem:
    """Times as fast as taking every word from os.urandom."""

    unit = "times as fast"

    def track_coins(self) -> float:
        source, threshold = SecureSource(), mechanism(SecureSource()).threshold

        def by_system() -> np.ndarray:
            return np.flatnonzero(np.frombuffer(os.urandom(4 * ROWS), np.uint32) < threshold)

        return common.ratio(lambda: source.coins(ROWS, threshold), by_system)


# --- the accountant


class Accountant(common.Brief):
    """Seconds of what a client computes once a job. (Nothing is remembered between two calls.)"""

    params = (["pld", "rdp"],)
    param_names = ("accountant",)

    def setup(self, kind: str) -> None:
        self.mechanism = mechanism(SecureSource(), accountant=kind)
        self.mechanism.epsilon(1, 1e-4)

    def forget(self) -> None:
        accountant._composed.cache_clear()
        accountant.max_steps.cache_clear()

    def time_epsilon(self, kind: str) -> None:
        self.forget()
        self.mechanism.epsilon(5863, 1e-4)

    def time_max_steps(self, kind: str) -> None:
        self.forget()
        self.mechanism.max_steps(1.0, 1e-4)

    def time_calibrate(self, kind: str) -> None:
        self.forget()
        accountant.calibrate(self.mechanism, 1.0, 1e-4, 5863)

    def track_steps_within_epsilon_1(self, kind: str) -> int:
        return self.mechanism.max_steps(1.0, 1e-4)

    track_steps_within_epsilon_1.unit = "steps"
