"""Epsilon: published tables, closed forms, bounds from both sides; sampler and accountant are one object; where the trap is."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import fields, replace

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting import pld, rdp
from scipy import optimize, special, stats

from fedkern.errors import JobError
from fedkern.kernels import rng
from fedkern.privacy import accountant
from fedkern.privacy.accountant import GRID, Mechanism, calibrate, epsilon, max_steps
from fedkern.privacy.moments import moments_epsilon, moments_max_steps, rdp_epsilon
from fedkern.privacy.noise import KeyedSource, SecureSource

REPLACE = dp.NeighboringRelation.REPLACE_ONE
CAPS = (0.5, 0.75, 1.0)
# docs/spec/pvi.md, section 6: N, b, delta; steps for the three caps by four accountants.
ADULT = [
    (3907, 79, 1e-4, (750, 1724, 3042), (1374, 2869, 4820), (1702, 3514, 5863), (73, 156, 266)),
    (390, 20, 1e-3, (153, 346, 612), (326, 661, 1089), (430, 855, 1391), (17, 35, 58)),
    (7424, 149, 1e-4, (762, 1750, 3088), (1395, 2912, 4893), (1728, 3567, 5951), (74, 159, 271)),
    (1172, 24, 1e-4, (731, 1680, 2965), (1339, 2797, 4699), (1659, 3426, 5715), (71, 152, 260)),
    (6642, 133, 1e-4, (765, 1758, 3102), (1401, 2926, 4915), (1736, 3583, 5978), (74, 159, 272)),
]


def poisson(rate=0.02, sigma=5.0, **changes):
    return Mechanism(
        **({"sampling": "poisson", "sampling_rate": rate, "noise_multiplier": sigma, "clip": 1.5, "dimension": 216} | changes)
    )


def without_replacement(n=1000, b=20, sigma=5.0, **changes):
    parameters = {"batch_size": b, "dataset_size": n, "noise_multiplier": sigma, "clip": 1.5, "dimension": 216}
    return Mechanism(sampling="without-replacement", **(parameters | changes))


def unsampled(sampling="full", sigma=5.0, **changes):
    return Mechanism(**({"sampling": sampling, "noise_multiplier": sigma, "clip": 1.5, "dimension": 216} | changes))


def truncated(**changes):
    parameters = {"sampling_rate": 0.02, "max_batch": 30, "dataset_size": 1000, "noise_multiplier": 4.0}
    return Mechanism(sampling="poisson-truncated", clip=1.5, dimension=216, **(parameters | changes))


# --- numbers that others have computed


@pytest.mark.parametrize(
    ("n", "b", "delta", "ma", "renyi", "tight", "wor"),
    [ADULT[0], *(pytest.param(*row, marks=pytest.mark.nightly) for row in ADULT[1:])],
)
def test_steps_of_the_adult_clients(n, b, delta, ma, renyi, tight, wor):
    assert tuple(moments_max_steps(b / n, 5.0, cap, delta) for cap in CAPS) == ma
    assert tuple(poisson(b / n, accountant="rdp").max_steps(cap, delta) for cap in CAPS) == renyi
    assert tuple(poisson(b / n).max_steps(cap, delta) for cap in CAPS) == tight
    assert without_replacement(n, b).epsilon(wor[0], delta) <= 0.5


@pytest.mark.nightly
@pytest.mark.parametrize(("n", "b", "delta", "ma", "renyi", "tight", "wor"), ADULT)
def test_steps_without_replacement(n, b, delta, ma, renyi, tight, wor):
    assert tuple(without_replacement(n, b).max_steps(cap, delta) for cap in CAPS) == wor


def test_the_papers_overshoot():
    """The public code tests the budget after the update: 31 updates of 25 steps give 0.5068 for a limit of 0.5."""
    assert moments_epsilon(79 / 3907, 5.0, 775, 1e-4) == pytest.approx(0.5068, abs=5e-5)
    assert moments_max_steps(79 / 3907, 5.0, 0.5, 1e-4) < 775


@pytest.mark.parametrize(
    ("q", "sigma", "steps", "delta", "want"),
    [(0.02, 5, 1000, 1e-5, 0.4955873261), (0.1, 2, 200, 1e-5, 3.6797458456), (0.2, 10, 2000, 1e-5, 4.1891220408)],
)
def test_own_renyi_divergences_equal_the_library(q, sigma, steps, delta, want):
    library = rdp.RdpAccountant(orders=range(2, 257)).compose(dp.PoissonSampledDpEvent(q, dp.GaussianDpEvent(sigma)), steps)
    assert rdp_epsilon(q, sigma, steps, delta) == pytest.approx(want, abs=1e-10)
    assert rdp_epsilon(q, sigma, steps, delta) == pytest.approx(library.get_epsilon(delta), abs=1e-10)


def gaussian_epsilon(mu, delta):
    """The exact epsilon of a Gaussian mechanism (Balle and Wang 2018): delta(eps) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 -
    eps/mu)."""

    def gap(e):
        return special.ndtr(mu / 2 - e / mu) - math.exp(e + special.log_ndtr(-mu / 2 - e / mu)) - delta

    return optimize.brentq(gap, 0, 300, xtol=1e-14)


@pytest.mark.parametrize(("sigma", "steps", "delta"), [(1, 1, 1e-5), (10, 300, 1e-6)])
@pytest.mark.parametrize("sampling", ["full", "shards"])
def test_without_sampling_epsilon_is_the_closed_form(sampling, sigma, steps, delta):
    mu = math.sqrt(steps) / sigma * (2 if sampling == "shards" else 1)
    found = unsampled(sampling, sigma, dimension=0).epsilon(steps, delta)
    assert gaussian_epsilon(mu, delta) - 1e-12 <= found <= gaussian_epsilon(mu, delta) + 1e-6


def test_the_trap_renyi_does_not_double_the_sensitivity_under_replacement():
    """pvi.md, section 6: what the library does, and that each mechanism is handed over so that it comes out right."""
    ten = dp.SelfComposedDpEvent(dp.GaussianDpEvent(2.0), 10)
    by_relation = {
        relation: [
            a.compose(ten).get_epsilon(1e-5)
            for a in (rdp.RdpAccountant(neighboring_relation=relation), pld.PLDAccountant(relation))
        ]
        for relation in (dp.NeighboringRelation.ADD_OR_REMOVE_ONE, REPLACE)
    }
    np.testing.assert_allclose(by_relation[dp.NeighboringRelation.ADD_OR_REMOVE_ONE], [8.079, 7.511], atol=5e-4)
    np.testing.assert_allclose(by_relation[REPLACE], [8.079, 17.857], atol=5e-4)
    # Replacing one moves the sum by 2 clip: as if sigma were halved, whatever the accountant.
    for kind in ("pld", "rdp"):
        shards, full = (unsampled(s, sigma, accountant=kind, dimension=0) for s, sigma in (("shards", 8.0), ("full", 4.0)))
        assert shards.epsilon(10, 1e-5) == pytest.approx(full.epsilon(10, 1e-5), rel=1e-6)
    assert without_replacement(dimension=0).epsilon(1000, 1e-5) == pytest.approx(2.352, abs=5e-4)


def test_shards_of_the_follow_up():
    """docs/spec/pvi.md, section 12: epsilon at delta 1e-5 after 5, 10, 20 updates."""
    for sigma, want in ((8.0, (2.26, 3.34, 4.98)), (16.0, (1.05, 1.53, 2.26)), (32.0, (0.49, 0.72, 1.05))):
        assert tuple(round(unsampled("shards", sigma).epsilon(t, 1e-5), 2) for t in (5, 10, 20)) == want


def test_clients_as_units():
    by_client = poisson(0.1, 1.0, unit="client")
    assert by_client.epsilon(100, 1e-5) == pytest.approx(7.0, abs=0.1)
    assert replace(by_client, sampling_rate=0.01).epsilon(1000, 1e-5) == pytest.approx(1.83, abs=0.005)
    assert by_client.neighbours == "add or remove one client with all its rows"


# --- bounds from both sides


# --- the price of noise on integers


def test_the_discrete_gaussian_costs_a_little_epsilon():
    m, steps, delta = poisson(79 / 3907), 5863, 1e-4
    assert GRID == 2.0**-20
    exact, plain = m.epsilon(steps, delta), replace(m, dimension=0).epsilon(steps, delta)
    assert exact - plain == pytest.approx(401 * 216 * steps / (24 * (5 * 2**20) ** 2), rel=0.01)
    assert 0 < exact - plain < 1e-6
    # Never more than by the total variation (docs/spec/pvi.md, section 4).
    variation = 216 * steps * 0.0202 / (5 * 2**20) ** 2
    assert exact < replace(m, dimension=0).epsilon(steps, delta - variation * (1 + math.exp(exact)))


@pytest.mark.parametrize("s", [2, 8, 60])
def test_the_two_bounds_on_the_ratio_of_probabilities(s):
    k = np.arange(0, 20 * s + 1)
    grid, weight = np.polynomial.legendre.leggauss(40)
    u = grid / 2  # uniform on (-1/2, 1/2)
    log_ratio = np.log((np.exp(-(2 * k[:, None] * u + u**2) / (2 * s**2)) * weight).sum(axis=1) / 2)
    assert (log_ratio >= -1 / (24 * s**2) - 1e-15).all()
    assert (log_ratio <= k**2 / (24 * s**4) + 1e-15).all()
    # The formula is about r / p: rounded over discrete.
    rounded = -np.diff(special.ndtr(-(np.append(k, k[-1] + 1) - 0.5) / s))
    discrete = np.exp(-(k**2) / (2 * s**2)) / (s * math.sqrt(2 * math.pi))
    near = k < 6 * s
    np.testing.assert_allclose(np.log(rounded[near] / discrete[near]), log_ratio[near], atol=1e-6)


@pytest.mark.parametrize(("s", "sensitivity"), [(60, 30), (200, 100), (60, 120)])
def test_the_price_against_the_discrete_mechanism_itself(monkeypatch, s, sensitivity):
    """One number, one step, coarse grid: epsilon of the discrete Gaussian by adding up its probabilities."""
    x = np.arange(-40 * s, 40 * s + 1)
    p = np.exp(-(x**2) / (2 * s**2))
    p /= p.sum()
    loss = (2 * x * sensitivity + sensitivity**2) / (2 * s**2)  # log p(x) / p(x + sensitivity)
    delta = 1e-5

    def delta_of(e):
        return float((p * np.maximum(0, -np.expm1(e - loss))).sum())

    true = optimize.brentq(lambda e: delta_of(e) - delta, 0, 50, xtol=1e-13)
    monkeypatch.setattr(accountant, "GRID", 1 / sensitivity)
    m = unsampled("full", s / sensitivity, dimension=1)
    reported = accountant._composed.__wrapped__(((m, 1),), delta)
    assert true <= reported <= true + 410 / (24 * s**2) + 1e-4


def test_a_delta_that_is_eaten_gives_no_epsilon():
    assert poisson(0.5, 1.0, dimension=10**9).epsilon(10**6, 1e-30) == math.inf


# --- the largest number of steps


@pytest.mark.parametrize(
    ("mechanism", "cap", "delta"),
    [
        (poisson(0.05, 2.0), 2.0, 1e-5),
        (poisson(0.001, 1.5), 0.2, 1e-6),
        (poisson(1.0, 30.0), 0.3, 1e-5),
        (poisson(0.05, 2.0, accountant="rdp"), 3.0, 1e-5),
        (poisson(0.02, unit="client"), 0.2, 1e-3),
        (unsampled("full", 20.0), 1.0, 1e-5),
        (unsampled("shards", 20.0), 1.0, 1e-5),
        (without_replacement(), 1.0, 1e-5),
        (truncated(max_batch=40), 0.8, 1e-5),
    ],
)
def test_max_steps_is_the_last_step_that_fits(mechanism, cap, delta):
    steps = mechanism.max_steps(cap, delta)
    assert steps > 0
    assert mechanism.epsilon(steps, delta) <= cap < mechanism.epsilon(steps + 1, delta)


def test_max_steps_asks_the_accountant_a_few_times_only(monkeypatch):
    calls = []
    real = accountant._accountant
    monkeypatch.setattr(accountant, "_accountant", lambda *a: calls.append(a) or real(*a))
    poisson(0.0123, 3.21).max_steps(0.9, 3e-5)
    assert len(calls) <= 7
    poisson(0.0123, 3.21).max_steps(0.9, 3e-5)
    assert len(calls) <= 7  # remembered


def test_a_cap_below_one_step_allows_none():
    assert poisson(1.0, 0.5).max_steps(0.1, 1e-5) == 0


def test_an_infinite_cap_is_no_cap():
    assert poisson().max_steps(math.inf, 1e-5) == accountant.UNLIMITED


def test_what_is_enough_is_not_looked_beyond():
    m = poisson()
    most = m.max_steps(1.0, 1e-5)
    assert [m.max_steps(1.0, 1e-5, enough=n) for n in (1, most - 1, most, most + 1)] == [1, most - 1, most, most]
    assert max_steps(m, 1.0, 1e-5, ((m, 100),), enough=most) == most - 100


def test_earlier_jobs_count():
    m, other = poisson(0.02), poisson(0.05, 4.0)
    alone = m.max_steps(1.0, 1e-5)
    assert max_steps(m, 1.0, 1e-5, ((m, 1000),)) == alone - 1000
    left = max_steps(m, 1.0, 1e-5, ((other, 200),))
    assert 0 < left < alone
    assert epsilon(((other, 200), (m, left)), 1e-5) <= 1.0 < epsilon(((other, 200), (m, left + 1)), 1e-5)
    assert max_steps(m, 0.1, 1e-5, ((other, 2000),)) == 0


def test_composition_over_relations():
    m, swaps, wor = poisson(0.02), unsampled("shards", 16.0), without_replacement()
    both = epsilon(((m, 500), (swaps, 5)), 1e-5)
    assert both > max(epsilon(((m, 500),), 1e-5), epsilon(((swaps, 5),), 1e-5))
    # Add-or-remove beside replace is composed under replace; an independent computation of the same.
    by_hand = pld.PLDAccountant(REPLACE)
    by_hand.compose(dp.PoissonSampledDpEvent(m.rate, dp.GaussianDpEvent(5.0)), 500).compose(dp.GaussianDpEvent(16.0), 5)
    assert both == pytest.approx(by_hand.get_epsilon(1e-5), rel=1e-5)
    # No accountant knows both: delta is shared, epsilons are added.
    split = epsilon(((m, 500), (wor, 50)), 1e-5)
    alone = pld.PLDAccountant(REPLACE).compose(dp.PoissonSampledDpEvent(m.rate, dp.GaussianDpEvent(5.0)), 500).get_epsilon(5e-6)
    assert split == pytest.approx(alone + wor.epsilon(50, 5e-6), rel=1e-4)
    with pytest.raises(ValueError, match="by example and by client"):
        epsilon(((m, 1), (poisson(unit="client"), 1)), 1e-5)


def test_a_public_number_of_rows_means_that_one_is_replaced():
    """A row less would end the job with an error: under add-or-remove it could not be private at all."""
    for m in (truncated(), without_replacement()):
        assert m.relation == "REPLACE_ONE"
        assert m.neighbours == "replace one example by any other"
        with pytest.raises(ValueError, match="is accounted for, but there are 999 rows"):
            m.draw(SecureSource(), 999, 0)
    m = truncated()
    event = dp.TruncatedSubsampledGaussianDpEvent(1000, m.rate, 30, 4.0)
    by_hand = pld.PLDAccountant(REPLACE).compose(event, 200).get_epsilon(1e-5)
    assert m.epsilon(200, 1e-5) == pytest.approx(by_hand, rel=1e-6)
    assert by_hand > 1.5 * pld.PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE).compose(event, 200).get_epsilon(1e-5)


ADD = "add or remove one example"
SHARDED = ADD + ", or replace its values under the same id"
ANY = "replace one example by any other"
VALUES = "replace the values of one example under the same id"
OWN = "replace the values of one example in the client's own columns, under the same id"


def aligned():
    return Mechanism(sampling="aligned", clip=1.0, dimension=10, noise_multiplier=9.0, dataset_size=10)


@pytest.mark.parametrize(
    ("mechanisms", "words"),
    [
        ([poisson()], ADD),
        ([poisson(), unsampled("full")], ADD),
        ([unsampled("shards")], SHARDED),
        ([aligned()], OWN),
        ([poisson(), unsampled("shards")], SHARDED),
        ([poisson(), truncated()], ANY),
        ([without_replacement(), truncated(), unsampled("full")], ANY),
        ([without_replacement(), unsampled("shards")], VALUES),
        ([unsampled("shards"), aligned()], OWN),
        ([poisson(unit="client")], "add or remove one client with all its rows"),
    ],
)
def test_together_mechanisms_know_only_the_neighbours_of_each(mechanisms, words):
    assert accountant.neighbours_of(mechanisms) == words


# --- calibration


@pytest.mark.parametrize(
    ("mechanism", "cap", "delta", "steps"),
    [
        (poisson(79 / 3907, None), 1.0, 1e-4, 5863),
        (poisson(0.02, None), 0.2, 1e-5, 200),
        (unsampled("shards", None), 1.0, 1e-5, 20),
        (unsampled("full", None, accountant="rdp"), 0.1, 1e-6, 10),
    ],
)
def test_calibrated_noise_just_suffices(mechanism, cap, delta, steps):
    sigma = calibrate(mechanism, cap, delta, steps)
    assert replace(mechanism, noise_multiplier=sigma).epsilon(steps, delta) <= cap
    assert replace(mechanism, noise_multiplier=sigma * (1 - 2e-6)).epsilon(steps, delta) > cap


def test_calibration_inverts_the_table():
    assert calibrate(poisson(79 / 3907, None), 1.0, 1e-4, 5863) == pytest.approx(5.0, abs=1e-3)


def test_calibration_says_when_nothing_suffices():
    with pytest.raises(ValueError, match=r"nothing up to 2047 spends as little as 0\.001"):
        calibrate(unsampled("full", None), 0.001, 1e-9, 10_000)


# --- one object samples and accounts


class Coins:
    """A source whose words are given."""

    secure = True

    def __init__(self, words):
        self.words = np.asarray(words, np.uint32)

    def coins(self, n_rows, threshold, step=0):
        return np.flatnonzero(self.words[:n_rows] < threshold)


def test_the_rate_is_rounded_up_in_the_draw_and_in_the_account():
    m = poisson(0.1)
    assert 0.1 < m.rate < 0.1 + 2**-32
    assert m.to_dp_event(7).event.sampling_probability == m.rate == m.threshold / 2**32
    assert m.inverse_rate == 1 / m.rate
    edge = [m.threshold - 1, m.threshold, 0, 2**32 - 1]
    assert m.draw(Coins(edge), 4, 0).tolist() == [0, 2]
    assert poisson(1.0).draw(Coins(edge), 4, 0).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "m",
    [
        poisson(),
        poisson(accountant="rdp"),
        truncated(),
        without_replacement(),
        *(unsampled(scheme, 30.0, accountant=kind) for scheme in ("full", "shards") for kind in ("pld", "rdp")),
        unsampled("aligned", 30.0, dataset_size=500),
        poisson(unit="client"),
    ],
    ids=lambda m: f"{m.sampling}-{m.accountant}-{m.unit}",
)
@pytest.mark.parametrize("steps", [pytest.param(1, marks=pytest.mark.nightly), 30])
def test_dp_accounting_itself_gives_the_same_epsilon_of_the_event(m, steps):
    kinds = {"pld": pld.PLDAccountant, "rdp": rdp.RdpAccountant}
    relation = dp.NeighboringRelation[m.relation]
    more, kept = accountant.price_of_integers(((m, steps),), 1e-5)
    own = m.nominal_epsilon(steps, 1e-5)
    for event, times in ((m.to_dp_event(steps), 1), (m.to_dp_event(), steps)):
        theirs = kinds[m.accountant](neighboring_relation=relation).compose(event, times).get_epsilon(kept)
        assert own == pytest.approx(theirs + more, rel=1e-9)
    assert 0 < own - kinds[m.accountant](neighboring_relation=relation).compose(m.to_dp_event(), steps).get_epsilon(1e-5) < 1e-5


@pytest.mark.parametrize("source", [SecureSource(), KeyedSource(rng.key(1, "noise"), 2)], ids=["secure", "keyed"])
def test_poisson_draws_each_row_by_its_own_coin(source):
    m, n, steps = poisson(0.1, secure=source.secure), 40, 4000
    taken = np.zeros((steps, n), bool)
    for step in range(steps):
        rows = m.draw(source, n, step)
        assert (np.diff(rows) > 0).all()
        taken[step, rows] = True
    sd = math.sqrt(0.1 * 0.9 / steps)
    assert np.abs(taken.mean(axis=0) - 0.1).max() < 5 * sd
    sizes = taken.sum(axis=1)  # binomial: neither fixed nor shuffled
    assert sizes.var() == pytest.approx(n * 0.1 * 0.9, rel=0.15)
    assert np.abs(np.corrcoef(taken.T) - np.eye(n)).max() < 6 / math.sqrt(steps)
    assert abs(np.corrcoef(taken[:-1].ravel(), taken[1:].ravel())[0, 1]) < 5 / math.sqrt(steps * n)


@pytest.mark.parametrize("source", [SecureSource(), KeyedSource(rng.key(1, "noise"), 2)], ids=["secure", "keyed"])
def test_subsets_are_uniform(source):
    m, counts = without_replacement(6, 3, secure=source.secure), {}
    for step in range(4000):
        rows = tuple(m.draw(source, 6, step).tolist())
        counts[rows] = counts.get(rows, 0) + 1
    assert len(counts) == math.comb(6, 3)
    assert all(rows == tuple(sorted(set(rows))) for rows in counts)
    assert stats.chisquare(list(counts.values())).pvalue > 1e-6
    assert without_replacement(6, 6, secure=source.secure).draw(source, 6, 0).tolist() == list(range(6))


def test_a_cut_batch_keeps_a_random_part():
    parameters = {"sampling_rate": 0.5, "max_batch": 10, "dataset_size": 40, "clip": 1.0, "dimension": 1, "noise_multiplier": 1.0}
    m, source = Mechanism(sampling="poisson-truncated", **parameters), SecureSource()
    draws = [m.draw(source, 40, t) for t in range(2000)]
    assert max(map(len, draws)) == 10
    share = np.bincount(np.concatenate(draws), minlength=40) / 2000
    assert np.abs(share - share.mean()).max() < 0.06
    assert m.sensitivity_factor == 2.0
    assert all((np.diff(d) > 0).all() for d in draws)


@pytest.mark.parametrize("sampling", ["full", "shards"])
def test_without_sampling_every_row_is_taken(sampling):
    assert unsampled(sampling).draw(SecureSource(), 4, 0).tolist() == [0, 1, 2, 3]
    assert unsampled(sampling).inverse_rate == 1.0


def test_a_declared_number_of_rows_must_be_the_true_one():
    with pytest.raises(ValueError, match="dataset_size = 1000 is accounted for, but there are 999 rows"):
        without_replacement().draw(SecureSource(), 999, 0)


def test_poisson_sampling_knows_no_number_of_rows():
    """N is private under add-or-remove: no field holds it, and no scale depends on it."""
    with pytest.raises(ValueError, match="dataset_size must be absent with sampling = 'poisson'"):
        poisson(dataset_size=1000)
    m, seen = poisson(0.5), []
    for n in (0, 1, 99, 100, 101):
        m.draw(SecureSource(), n, 0)
        seen.append((m.inverse_rate, m.rate, m.grid, m.sigma, m.to_dp_event(3), m.max_steps(5.0, 1e-5)))
    assert len(set(seen)) == 1
    assert not {f.name for f in fields(Mechanism)} & {"n", "N", "n_rows", "rows"}


def test_keyed_noise_has_infinite_epsilon_and_the_same_number_of_steps():
    secure, keyed = poisson(), poisson(secure=False)
    assert keyed.epsilon(1, 0.1) == math.inf
    assert epsilon(((secure, 10), (keyed, 1)), 1e-5) == math.inf
    assert keyed.nominal_epsilon(100, 1e-5) == secure.epsilon(100, 1e-5)
    assert keyed.max_steps(1.0, 1e-5) == secure.max_steps(1.0, 1e-5)
    source = KeyedSource(rng.key(1, "noise"), 0)
    for use in (lambda: secure.draw(source, 3, 0), lambda: secure.release(source, np.zeros(216, np.int64), 0)):
        with pytest.raises(ValueError, match="a secure mechanism got a keyed source"):
            use()


def test_a_release_is_in_the_units_of_the_clip():
    m, total = poisson(sigma=1e-3, clip=4.0, dimension=3), np.array([2**20, 0, -(2**30)])
    np.testing.assert_allclose(m.release(SecureSource(), total, 0), [4.0, 0.0, -4096.0], atol=0.05)
    with pytest.raises(ValueError, match=r"shape \(3,\), which is accounted for, got \(4,\)"):
        m.release(SecureSource(), np.zeros(4, np.int64), 0)


def test_parameters_survive_a_ledger():
    for m in (poisson(), without_replacement(), unsampled("shards"), poisson(unit="client", secure=False)):
        assert Mechanism.from_dict(m.as_dict()) == m


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sampling": "shuffle"}, "sampling must be one of poisson, .*, got 'shuffle'"),
        ({"sampling_rate": 0.0}, r"sampling_rate must be in \(0, 1\], got 0.0"),
        ({"sampling_rate": 1.01}, "got 1.01"),
        ({"sampling_rate": math.nan}, "got nan"),
        ({"sampling_rate": None}, "sampling_rate must be given"),
        ({"batch_size": 10}, "batch_size must be absent with sampling = 'poisson', got 10"),
        ({"noise_multiplier": 0.0}, "noise_multiplier must be in"),
        ({"noise_multiplier": math.inf}, "noise_multiplier must be in"),
        ({"clip": math.inf}, "clip must be positive and finite, got inf"),
        ({"clip": -1.0}, "clip must be positive and finite, got -1.0"),
        ({"dimension": 2.5}, "dimension must be a non-negative integer, got 2.5"),
        ({"unit": "row"}, "unit must be 'example', 'client' or 'case', got 'row'"),
        ({"accountant": "zcdp"}, "accountant must be pld or rdp with sampling = 'poisson', got 'zcdp'"),
    ],
)
def test_mechanisms_that_cannot_be(change, message):
    with pytest.raises(ValueError, match="privacy: .*" + message):
        poisson(**change)


def test_accountants_that_do_not_know_a_sampler_are_refused():
    with pytest.raises(ValueError, match="accountant must be rdp with sampling = 'without-replacement', got 'pld'"):
        without_replacement(accountant="pld")
    with pytest.raises(ValueError, match="batch_size must be at most dataset_size = 10, got 20"):
        without_replacement(10, 20)
    with pytest.raises(ValueError, match="noise_multiplier is not known yet"):
        poisson(sigma=None).epsilon(1, 1e-5)
    for delta in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="delta must be in"):
            poisson().epsilon(1, delta)
    with pytest.raises(ValueError, match="epsilon must be > 0"):
        poisson().max_steps(0.0, 1e-5)


def test_without_dp_accounting_there_is_no_epsilon(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(JobError, match=r"epsilon needs dp-accounting .* pip install 'fedkern\[dp\]'"):
        poisson(0.0345).epsilon(17, 1e-5)


def test_the_optional_packages_are_loaded_when_they_are_needed():
    code = (
        "import sys, fedkern.jobs.holding.budget, fedkern.privacy.noise\n"
        "print({'dp_accounting', 'cryptography', 'scipy.stats'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True, env=os.environ)
    assert done.stdout.strip() == "set()"


def test_hopeless_epsilons_cost_no_memory():
    """Tables of privacy losses grow with epsilon: beyond 100 the answer is infinite, and it comes at once."""
    assert poisson(0.5, 0.01).epsilon(1000, 1e-5) == math.inf


def test_nothing_that_dp_accounting_logs_is_on_the_terminal():
    code = """
import logging, sys
from fedkern.privacy.accountant import Mechanism, epsilon
m = Mechanism(sampling="poisson", clip=1.0, dimension=0, noise_multiplier=0.5, sampling_rate=0.1, accountant="rdp")
told = []
log = logging.getLogger("fedkern")
log.addHandler(type("Kept", (logging.Handler,), {"emit": lambda self, record: told.append(record.getMessage())})())
log.setLevel("DEBUG")
log.propagate = False
assert epsilon(((m, 1),), 1e-5) < float("inf")
assert any("failed to converge" in text for text in told), told
print("END OF OURS", file=sys.stderr, flush=True)
import dp_accounting as dp  # whoever calls it for himself is told, before and after
from dp_accounting import rdp
rdp.RdpAccountant().compose(m.to_dp_event(1)).get_epsilon(1e-5)
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=100, check=True)
    ours, end, others = done.stderr.partition("END OF OURS")
    assert ours == ""
    assert end
    assert "failed to converge" in others
