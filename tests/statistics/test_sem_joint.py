"""Joint tests (Geweke) of the cyclic structural equation model, and planted faults that must be seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from oracles.geweke import BOUND, ROUNDS, joint_test, worst
from oracles.sem_joint import Equations, PlainEquations, radius, take
from oracles.sparse_joint import Hierarchy, inverse_gamma

VARIANTS = {
    f"{update}{', swaps' if swap else ''}, p = {p}": {"update": update, "swap": swap, "p": p}
    for update in ("element", "row", "row-gibbs")
    for swap, p in ((False, 3), (True, 2), (True, 3))
} | {
    "two sweeps": {"update": "row-gibbs", "n_sweeps": 2, "n_passes": 2},
    "expanded scales": {"update": "element", "scales": "expanded"},
    "other scales": {"update": "element", "scale_tau": 0.3, "scale_lambda": 1.0},
} | {f"stable, {update}": {"update": update, "stable": True} for update in ("element", "row", "row-gibbs")}  # fmt: skip

SHORT = {"chains": 250, "steps": 30, "draws": 20_000}  # the fainter of the faults below has z = 26
FULL = {"chains": 2000, "steps": 100, "draws": 400_000}


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("name", VARIANTS)
def test_prior_and_chain_agree(name, rounds, seed):
    size = SHORT | ({"draws": 8_000} if "stable" in name else {})  # such priors are drawn by rejection
    z = joint_test(Equations(**VARIANTS[name]), seed, rounds=rounds, **size)
    assert worst(z)[0] < BOUND, z


@pytest.mark.nightly
@pytest.mark.parametrize("name", VARIANTS)
def test_prior_and_chain_agree_closely(name, seed):
    z = joint_test(Equations(**VARIANTS[name]), seed, rounds=2, **FULL)
    assert worst(z)[0] < BOUND, z


# ---- Planted faults. Those inside a move are planted in a plain sampler, which without a fault must agree.


def test_the_plain_sampler_agrees(seed):
    z = joint_test(PlainEquations(), seed, rounds=2, **SHORT)
    assert worst(z)[0] < BOUND, z


@pytest.mark.parametrize(
    ("fault", "p"),
    [
        ("no determinant", 3),
        ("swap without Jacobian", 2),
        *(
            pytest.param(fault, 3, marks=pytest.mark.nightly)
            for fault in ("determinant to the power 1", "W transposed", "step without ratio")
        ),
    ],
)
def test_negative_control_a_fault_inside_a_move_is_seen(fault, p, seed):
    z = joint_test(PlainEquations(fault=fault, p=p), seed, rounds=2, chains=800, steps=60, draws=40_000)
    assert worst(z)[0] > BOUND, z


class WrongShape(Equations):
    """b ~ IG(a + n/2, ...), as for a variance."""

    def client(self, k, state, data, number):
        d, lam, _ = super().client(k, state, data, number)
        return d, lam, self.draw_b(k, state, d, data, number, self.shape + self.n / 2)

    def draw_b(self, k, state, d, data, number, shape):
        theta = (state.theta + d).reshape(-1, self.p, self.p)
        total = np.abs((np.eye(self.p) - theta) @ data[k]).sum(axis=-1)
        return inverse_gamma(np.random.default_rng([1, k, number]), shape, self.rate + total, total.shape)


class WrongRate(WrongShape):
    """s exponential with mean b^2 in place of 2 b^2: errors of scale b / sqrt(2) where the rows are drawn."""

    def client(self, k, state, data, number):
        d, lam, _ = Equations.client(self, k, replace(state, local=(state.local[0] / np.sqrt(2),)), data, number)
        return d, lam, self.draw_b(k, state, d, data, number, self.shape + self.n)


class TruncatedGivenParents(Equations):
    """Another model: each site's coefficients truncated given theta, lambda and tau, with the plain conditionals.

    Parents under which hardly any draw is stable are left out of both: they would not end.
    """

    def prior(self, rng, n):
        state = Hierarchy.prior(self, rng, 3 * n)
        deviation, scale = state.deviation.copy(), np.sqrt(state.lambda_sq * state.tau_sq) * (self.indicators > -2)
        for _ in range(40):
            unstable = radius((state.theta + deviation).reshape(self.m, -1, self.p, self.p)) >= 1
            deviation[unstable] = scale[unstable] * rng.standard_normal((int(unstable.sum()), self.q))
        keep = np.flatnonzero(~unstable.any(axis=0))[:n]
        return take([replace(state, deviation=deviation)], [keep])


FAULTS = {
    "b of shape a + n/2": (WrongShape, {}),
    "exponential rate 1/b^2": (WrongRate, {"update": "row-gibbs", "swap": False}),
    "truncated given its parents": (TruncatedGivenParents, {"stable": True, "p": 2}),
}


LONG = "truncated given its parents"
CONTROLS = [pytest.param(name, marks=pytest.mark.nightly) if name == LONG else name for name in FAULTS]


@pytest.mark.parametrize("name", CONTROLS)
def test_negative_control_a_planted_fault_is_seen(name, seed):
    model, options = FAULTS[name]
    z = joint_test(model(**options), seed, rounds=2, **SHORT)
    assert worst(z)[0] > BOUND, z
