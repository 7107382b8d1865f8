"""Joint tests (Geweke) of moves where the likelihood is Gaussian only given what a site has drawn, and of a random field's terms.

docs/spec/sparse.md, section 6. Calibration is in `test_sparse_calibration`.
"""

from __future__ import annotations

import numpy as np
import pytest

from fedkern.algorithms.gibbs.settings import Layout
from fedkern.algorithms.gibbs.sites import Factor, MarkovRandomField, Moving, Regression
from fedkern.models.sparse import graph
from oracles.geweke import BOUND, joint_test, worst
from oracles.sparse_moves import FixedWeights, HolesAsZeros, ImputedWithoutData, LogisticWithoutData, MovedImputed, MovedLogistic

SHORT = {"chains": 300, "steps": 40, "draws": 50_000}
FAINT = {"chains": 1000, "steps": 60, "draws": 200_000}
FULL = {"chains": 2000, "steps": 100, "draws": 400_000}
SITES = {
    "logistic, interweave": (MovedLogistic, {"moves": "interweave"}),
    "imputed, interweave": (MovedImputed, {"moves": "interweave"}),
}
MORE = {
    "logistic, translate": (MovedLogistic, {"moves": "translate", "n_passes": 2}),
    "logistic, interweave three of four, slab": (MovedLogistic, {"moves": "interweave", "block": 3, "slab": 0.7}),
    "imputed, translate one of two": (MovedImputed, {"moves": "translate", "block": 1}),
    "imputed, interweave, slab": (MovedImputed, {"moves": "interweave", "slab": 0.7, "n_sweeps": 2}),
}
FAULTS = {
    "logistic, without data": (LogisticWithoutData, {"moves": "interweave", "scale_intercept": 1.0}),
    "imputed, holes as zeros": (HolesAsZeros, {"moves": "translate"}),
}
MORE_FAULTS = {
    "logistic, fixed weights": (FixedWeights, {"moves": "translate", "scale_intercept": 1.0}),
    "imputed, without data": (ImputedWithoutData, {"moves": "interweave"}),
}


@pytest.mark.parametrize("name", SITES)
def test_moves_keep_the_target(name, seed):
    model, options = SITES[name]
    z = joint_test(model(**options), seed, rounds=2, **SHORT)
    assert worst(z)[0] < BOUND, z


@pytest.mark.nightly
@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("name", SITES | MORE)
def test_moves_keep_the_target_closely(name, rounds, seed):
    model, options = (SITES | MORE)[name]
    z = joint_test(model(**options), seed, rounds=rounds, **FULL)
    assert worst(z)[0] < BOUND, z


@pytest.mark.parametrize("name", FAULTS)
def test_negative_control_a_planted_fault_is_seen(name, seed):
    model, options = FAULTS[name]
    z = joint_test(model(**options), seed, rounds=2, **SHORT)
    assert worst(z)[0] > BOUND, z


@pytest.mark.nightly
@pytest.mark.parametrize("name", FAULTS | MORE_FAULTS)
def test_negative_control_a_planted_fault_is_seen_clearly(name, seed):
    model, options = (FAULTS | MORE_FAULTS)[name]
    z = joint_test(model(**options), seed, rounds=2, **FAINT)
    assert worst(z)[0] > 1.5 * BOUND, z


@pytest.mark.parametrize("slab", [np.inf, 0.7])
def test_a_random_fields_terms_are_those_of_its_regressions(slab):
    """Of each column on the others, without the place that it has none in."""
    random, p, c = np.random.default_rng(3), 4, 3
    Y = random.standard_normal((20, p)) @ random.standard_normal((p, p))
    layout = Layout(graph(p, one_group=False))
    theta, d = random.standard_normal((2, c, p, p)) * ~np.eye(p, dtype=bool)
    tau_sq, sigma_sq = random.gamma(1.0, size=(c, p, p)), random.gamma(1.0, size=(c, p))
    coordinates = np.array([0, 2, 3, 5])
    counter = {"seed": 1, "client": 0, "step": 0}
    field = MarkovRandomField(Factor.of(Y))
    for j in range(p):
        others = np.flatnonzero(np.arange(p) != j)
        state = {"deviation": d, "sigma_sq": sigma_sq}
        at = Moving(theta[:, j], tau_sq[:, j], j, layout.places(coordinates, j), slab)
        one = Regression(Factor.of(Y[:, others], Y[:, j]))
        alone = {"deviation": d[:, j][:, None, others], "sigma_sq": sigma_sq[:, j][:, None]}
        own = Moving(theta[:, j, others], tau_sq[:, j, others], 0, coordinates, slab)
        for found, wanted in zip(field.move_terms(at, state, **counter), one.move_terms(own, alone, **counter)):
            np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-10)
