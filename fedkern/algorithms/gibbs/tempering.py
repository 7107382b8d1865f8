"""Tempers chains in parallel: likelihood^beta, and chains that exchange temperatures. Source: sparse.md, section 10.

The chains are ladders of K: chain i belongs to ladder i // K. In each round neighbours on a ladder (even pairs and odd pairs in
turn) may exchange; the sum of the clients' log-likelihoods decides. The ladder adapts in burn-in only. Only draws at temperature
1 count.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...kernels import rng
from ..core.messages import evolve

Array = NDArray[np.float64]

ACCEPTANCE = 0.3  # wanted of an exchange


@dataclass(frozen=True)
class Ladder:
    """Holds temperatures 1 = beta_0 > beta_1 > ..., and the place of each chain.

    Attributes
    ----------
    log_gap : (K - 1,) log of log beta_i - log beta_{i + 1}
    place : (c,) which temperature each chain has
    tried, exchanged : (K - 1,) counts since the burn-in
    """

    log_gap: Array
    place: NDArray[np.int64]
    tried: NDArray[np.int64]
    exchanged: NDArray[np.int64]

    @property
    def beta(self) -> Array:
        """(K,) The inverse temperatures."""
        below = np.cumsum(np.exp(self.log_gap))
        return np.asarray(np.exp(-np.concatenate([[0.0], below])))

    @property
    def temperature(self) -> Array:
        """(c,) The power of each chain's likelihood."""
        return np.asarray(self.beta[self.place])

    @property
    def cold(self) -> NDArray[np.int64]:
        """(c / K,) The chain of each ladder whose draws count."""
        return np.flatnonzero(self.place == 0)


def ladder(chains: int, size: int) -> Ladder:
    """Returns ladders of `size` chains; neighbours' log-temperatures start 0.3 apart."""
    counts = np.zeros(size - 1, np.int64)
    return Ladder(np.full(size - 1, np.log(0.3)), np.tile(np.arange(size), chains // size), counts, counts)


def exchange_temperatures(state: Ladder, loglik: Array, *, seed: int, round: int, adapt: bool) -> Ladder:
    """Runs one round of exchanges.

    Parameters
    ----------
    loglik : (c,) untempered log-likelihood of each chain, over all clients
    round : counts; also says whether even or odd pairs are tried
    adapt : whether the ladder moves towards its wanted acceptance
    """
    beta, size = state.beta, len(state.log_gap) + 1
    place, gap = state.place.copy(), state.log_gap.copy()
    tried, done = state.tried.copy(), state.exchanged.copy()
    # Even pairs and odd pairs take turns, so that no chain is in two pairs of one round.
    u = rng.uniform(len(place), key=rng.key(seed, "tempering"), step=round)
    for pair in range(round % 2, size - 1, 2):
        chance = []
        for first in range(0, len(place), size):
            here = first + np.flatnonzero(place[first : first + size] == pair)[0]
            there = first + np.flatnonzero(place[first : first + size] == pair + 1)[0]
            log_ratio = (beta[pair] - beta[pair + 1]) * (loglik[there] - loglik[here])
            # The chance, not the outcome, moves the ladder: it has less noise.
            chance.append(float(np.exp(min(0.0, log_ratio))))
            if np.log(u[first + pair]) < log_ratio:
                place[here], place[there] = pair + 1, pair
                done[pair] += not adapt
            tried[pair] += not adapt
        if adapt:
            gap[pair] += (np.mean(chance) - ACCEPTANCE) * (round + 2) ** -0.6
    return evolve(state, log_gap=gap, place=place, tried=tried, exchanged=done)
