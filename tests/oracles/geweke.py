"""Joint tests of samplers (Geweke 2004, "Getting it right").

Two ways of drawing parameters and data together must agree. Marginal-conditional: parameters from the prior, data given them.
Successive-conditional: a chain that starts there and alternates `rounds` full rounds of the sampler given the data with new data
given the parameters. Many chains run at once, along the kernels' own axis of chains; the error of the second mean comes from the
spread between chains, whatever the chains' memory.

With one round for each data set, a fault in the last move that uses the data is invisible where that move keeps the prior: so
every schedule and every planted fault is tested with two rounds. At night schedules are tested with one too, and with two on
longer and more chains.
"""

from __future__ import annotations

import numpy as np
import pytest

ROUNDS = [pytest.param(1, marks=pytest.mark.nightly), 2]
BOUND = 4.5
CHUNK = 50_000


class Mean:
    """Mean and its squared error from independent rows."""

    def __init__(self):
        self.n, self.total, self.square = 0, 0.0, 0.0

    def add(self, values):
        self.n += values.shape[1]
        self.total = self.total + values.sum(axis=1)
        self.square = self.square + (values**2).sum(axis=1)

    def result(self):
        mean = self.total / self.n
        return mean, (self.square / self.n - mean**2) / (self.n - 1)


def table(functions):
    return np.stack([np.asarray(v, float) for v in functions.values()])


def joint_test(model, seed, *, rounds=1, chains=1000, steps=100, draws=200_000):
    """z of every test function.

    `model` has `prior(rng, n)` -> state, `simulate(rng, state)` -> data, `round(state, data, number)` -> state, and
    `functions(state, data)` -> {name: (n,)}, all for n chains; `number` counts rounds, and with it random numbers.
    """
    rng = np.random.default_rng([seed, rounds, 0])
    exact, chained = Mean(), Mean()
    for begin in range(0, draws, CHUNK):
        state = model.prior(rng, min(CHUNK, draws - begin))
        functions = model.functions(state, model.simulate(rng, state))
        exact.add(table(functions))

    rng = np.random.default_rng([seed, rounds, 1])
    state = model.prior(rng, chains)
    data = model.simulate(rng, state)
    sums = 0.0
    for step in range(steps):
        for inner in range(rounds):
            state = model.round(state, data, step * rounds + inner)
        data = model.simulate(rng, state)
        sums = sums + table(model.functions(state, data))
    chained.add(sums / steps)

    (a, error_a), (b, error_b) = exact.result(), chained.result()
    error = np.sqrt(error_a + error_b)
    error[(error == 0) & (a == b)] = 1  # constant in this variant
    return dict(zip(functions, ((b - a) / error).tolist()))


def worst(z):
    """(|z|, name) of the function that disagrees most; a number that is not finite disagrees infinitely."""
    return max((abs(v) if np.isfinite(v) else np.inf, name) for name, v in z.items())
