"""Means of a sampler's rounds for given data, with their Monte-Carlo errors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np


def posterior(model, data, functions, *, chains, rounds, burn_in, seed):
    """{name: (mean, error)} of functions(state) -> {name: (c, ...)}; chains start in the prior, errors are from their spread.

    Deviations start within [-1, 1]: from the prior's far tails a random walk takes longer to return than a test lasts.
    """
    state = model.prior(np.random.default_rng(seed), chains)
    state = replace(state, deviation=np.clip(state.deviation, -1, 1))
    model.seed, sums = seed, {}
    for number in range(burn_in + rounds):
        state = model.round(state, data, number)
        if number >= burn_in:
            for name, value in functions(state).items():
                sums[name] = sums.get(name, 0.0) + value / rounds
    return {name: (v.mean(axis=0), v.std(axis=0, ddof=1) / np.sqrt(chains)) for name, v in sums.items()}
