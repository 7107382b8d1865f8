"""Noise sources that tests plant: silent, scripted, or made of given words. All of them count as secure."""

from __future__ import annotations

from itertools import count

import numpy as np

from fedkern.privacy import noise
from fedkern.privacy.noise import GRID, SecureSource


class Silent(SecureSource):
    """No noise, so that the sums themselves are released; they are kept in `sums`, in units of the grid."""

    def __init__(self):
        super().__init__()
        self.sums = []

    def add_noise(self, total, sigma, step=0):
        self.sums.append(total.copy())
        return total.astype(float)


class Scripted(SecureSource):
    """Its coins are secret, but what is released is the same at every run, whatever the sums are."""

    def __init__(self, seed=0):
        super().__init__()
        self.seed, self.releases = seed, count()

    def add_noise(self, total, sigma, step=0):
        generator = np.random.default_rng([self.seed, next(self.releases)])
        return np.rint(sigma / GRID * generator.standard_normal(len(total)))


class Given:
    """A cipher whose words are given; it begins with the first again whenever it is keyed."""

    def __init__(self, words):
        self.words, self.at = np.asarray(words, np.uint32), 0

    def update_into(self, data, buffer):
        out = np.frombuffer(buffer, np.uint32)
        out[:] = self.words[self.at : self.at + len(out)]
        self.at += len(out)


def plant_words(patch, words):
    """From now on every key stream consists of these words."""
    patch.setattr(noise, "_chacha20", lambda: Given(words))
