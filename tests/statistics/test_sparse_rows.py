"""Joint tests (Geweke) of sites whose rows are touched in every sweep (docs/spec/sparse.md, section 11).

Logistic responses; missing covariates, of rows with a known law and of rows whose law each site draws; Student errors.
"""

from __future__ import annotations

import numpy as np
import pytest

from oracles.geweke import BOUND, ROUNDS, joint_test, worst
from oracles.sparse_joint import Imputed, Logistic
from oracles.sparse_law import FixedLaw, LogisticResponseIgnored, MeanKnown, OwnLaw, OwnLawLogistic, RowsTwice
from oracles.sparse_student import StudentErrors, WeightsTooSmall

SHORT = {"chains": 300, "steps": 40, "draws": 40_000}  # the faintest of the faults has z = 17, wanted 9
FEW = {"chains": 80, "steps": 22, "draws": 15_000}  # each chain's numbers are made by themselves: a call a chain
FULL = {"chains": 2000, "steps": 100, "draws": 400_000}
SITES = {
    "logistic": (Logistic, {}),
    "logistic, slab": (Logistic, {"slab": 0.7, "n_sweeps": 2}),
    "logistic, centred": (Logistic, {"centred": True}),
    "logistic, expanded": (Logistic, {"scales": "expanded"}),
    "imputed": (Imputed, {}),
    "imputed, no intercept": (Imputed, {"intercept": False}),
    "imputed, two sweeps": (Imputed, {"n_sweeps": 2, "n_passes": 2}),
    "imputed, slab": (Imputed, {"slab": 0.7}),
}


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("name", SITES)
def test_rows_of_logistic_and_imputed_sites(name, rounds, seed):
    model, options = SITES[name]
    z = joint_test(model(**options), seed, rounds=rounds, **SHORT)
    assert worst(z)[0] < BOUND, z


@pytest.mark.nightly
@pytest.mark.parametrize("name", SITES)
def test_rows_of_logistic_and_imputed_sites_closely(name, seed):
    model, options = SITES[name]
    z = joint_test(model(**options), seed, rounds=2, **FULL)
    assert worst(z)[0] < BOUND, z


class ResponseIgnored(Imputed):
    """Missing covariates from their law given the others, without the response."""

    def client(self, k, state, data, number):
        *rest, alpha, _ = super().client(k, state, data, number)
        fresh = self.prior_local(np.random.default_rng([1, k, number]), len(alpha))[2][k]
        return *rest, alpha, fresh


class MeanIgnored(Imputed):
    """Missing covariates about 0, where rows lie about another mean."""

    def client(self, k, state, data, number):
        kept, self.mean = self.mean, np.zeros(2)
        drawn = super().client(k, state, data, number)
        self.mean = kept
        return drawn


class NarrowIntercept(Logistic):
    """Intercepts drawn as if their standard deviation were half of what it is."""

    def client(self, k, state, data, number):
        self.scale_intercept = 5.0
        drawn = super().client(k, state, data, number)
        self.scale_intercept = 10.0
        return drawn


def test_negative_control_another_prior_of_the_intercept_is_seen(seed):
    z = joint_test(NarrowIntercept(), seed, rounds=2, **SHORT)
    assert worst(z)[0] > 2 * BOUND, z


def test_negative_control_imputation_that_ignores_the_mean_is_seen(seed):
    z = joint_test(MeanIgnored(intercept=False), seed, rounds=2, **SHORT)
    assert worst(z)[0] > 2 * BOUND, z


def test_negative_control_imputation_that_ignores_the_response_is_seen(seed):
    z = joint_test(ResponseIgnored(), seed, rounds=2, **SHORT)
    assert worst(z)[0] > 2 * BOUND, z


# ---- Rows whose mean and covariance are drawn at each site.

LAWS = {
    "law drawn": (OwnLaw, {}),
    "no intercept": (OwnLaw, {"intercept": False}),
    "two sweeps, slab": (OwnLaw, {"n_sweeps": 2, "slab": 0.7}),
    "logistic": (OwnLawLogistic, {}),
    "logistic, two sweeps, no intercept": (OwnLawLogistic, {"n_sweeps": 2, "intercept": False}),
}


@pytest.mark.parametrize("model", [OwnLaw, OwnLawLogistic])
def test_rows_whose_law_is_drawn(model, seed):
    z = joint_test(model(), seed, rounds=2, **FEW)
    assert worst(z)[0] < BOUND, z


@pytest.mark.parametrize("fault", [RowsTwice, LogisticResponseIgnored])
def test_negative_control_a_law_that_is_drawn_wrongly_is_seen(fault, seed):
    z = joint_test(fault(), seed, rounds=2, **FEW)
    assert worst(z)[0] > BOUND, z


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("name", LAWS)
def test_rows_whose_law_is_drawn_closely(name, rounds, seed):
    model, options = LAWS[name]
    z = joint_test(model(**options), seed, rounds=rounds, **SHORT)
    assert worst(z)[0] < BOUND, z


@pytest.mark.nightly
@pytest.mark.parametrize("fault", [FixedLaw, MeanKnown])
def test_negative_controls_a_law_that_is_not_drawn_is_seen(fault, seed):
    z = joint_test(fault(), seed, rounds=2, **SHORT)
    assert worst(z)[0] > 2 * BOUND, z


# ---- Student errors.

STUDENT = {"plain": {}, "no intercept, slab": {"intercept": False, "slab": 0.7}, "two sweeps": {"n_sweeps": 2, "degrees": 2.5}}


def test_rows_with_student_errors(seed):
    z = joint_test(StudentErrors(), seed, rounds=2, **FEW)
    assert worst(z)[0] < BOUND, z


def test_negative_control_weights_that_are_too_small_are_seen(seed):
    z = joint_test(WeightsTooSmall(), seed, rounds=2, **FEW)
    assert worst(z)[0] > BOUND, z


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("name", STUDENT)
def test_rows_with_student_errors_closely(name, rounds, seed):
    z = joint_test(StudentErrors(**STUDENT[name]), seed, rounds=rounds, **SHORT)
    assert worst(z)[0] < BOUND, z
