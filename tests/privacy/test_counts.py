"""Noise on counts: its law, where it comes from, and what it spends."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize, stats

from fedkern.privacy.accountant import Mechanism, calibrate, epsilon, max_steps, neighbours_of
from fedkern.privacy.losses import epsilon_bounds
from fedkern.privacy.noise import GRID, KeyedSource, SecureSource

SURE = 1e-7  # probability of a test that fails by chance


def mechanism(epsilon: float = 1.0, cases: int = 1, delta: float = 0.0, size: int = 20) -> Mechanism:
    bare = Mechanism(sampling="counts", clip=float(cases), dimension=size, unit="case")
    return replace(bare, noise_multiplier=calibrate(bare, epsilon, delta, 1))


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_the_noise_has_its_law(epsilon: float) -> None:
    n, m = 20_000, mechanism(epsilon, size=20_000)
    decay = m.decay * GRID
    noise = m.count(SecureSource(), np.full(n, 7)) - 7
    reach = int(3 / decay)
    inside = np.arange(-reach, reach + 1)
    law = math.tanh(decay / 2) * np.exp(-decay * np.abs(inside))
    chance = np.array([(1 - law.sum()) / 2, *law, (1 - law.sum()) / 2])
    found = np.bincount(np.clip(noise, -reach - 1, reach + 1) + reach + 1, minlength=len(chance))
    assert stats.chisquare(found, n * chance).pvalue > SURE
    assert abs(noise.std() / (m.sigma * m.clip) - 1) < 0.08


def test_the_noise_is_another_at_every_draw_and_cannot_be_keyed() -> None:
    m, counts = mechanism(), np.zeros(20, np.int64)
    assert not np.array_equal(m.count(SecureSource(), counts), m.count(SecureSource(), counts))
    with pytest.raises(ValueError, match="keyed source"):
        m.count(KeyedSource(1, 0), counts)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="accounted for"):
        m.count(SecureSource(), counts[1:])


@pytest.mark.parametrize(("spent", "cases"), [(0.5, 1), (1.0, 1), (2.0, 3), (1.0, 5)])
def test_epsilon_is_that_of_an_independent_calculation(spent: float, cases: int) -> None:
    """The loss of a count that is larger by m: the largest is m decay, for sure."""
    m = mechanism(spent, cases)
    assert m.decay * GRID * cases <= m.epsilon(1, 0.0) <= spent
    assert m.decay * GRID * cases > spent - 3e-4  # nothing is wasted, but for the accountant's grid
    k, decay = np.arange(-400, 401), m.decay * GRID
    p, q = (math.tanh(decay / 2) * np.exp(-decay * np.abs(k - shift)) for shift in (0, cases))
    for steps, delta in ((1, 1e-3), (2, 1e-3)):
        of_sum, other = p, q
        if steps == 2:
            of_sum, other = np.outer(p, p).ravel(), np.outer(q, q).ravel()
        low, high = 0.0, 3 * steps * spent
        for _ in range(60):
            middle = (low + high) / 2
            beyond = np.maximum(of_sum - math.exp(middle) * other, 0).sum()
            low, high = (middle, high) if beyond > delta else (low, middle)
        assert m.epsilon(steps, delta) == pytest.approx(high, abs=2e-4 * steps)
        assert m.epsilon(steps, delta) >= high - 1e-9
        least, most = epsilon_bounds(((m, steps),), delta)
        assert least <= high + 1e-6
        assert most >= high - 1e-6
        assert most - least < 1e-6


def test_cases_of_one_person_in_several_areas_spend_no_more_than_in_one() -> None:
    """Two cases in one area, or one each in two: the first is the worst."""
    decay, k = 0.5, np.arange(-80, 81)
    law = [math.tanh(decay / 2) * np.exp(-decay * np.abs(k - shift)) for shift in (0, 1, 2)]
    one, apart = (law[0], law[2]), (np.outer(law[0], law[0]).ravel(), np.outer(law[1], law[1]).ravel())
    for spent in (0.0, 0.3, 0.7, 0.95):
        one_place, two_places = (np.maximum(p - math.exp(spent) * q, 0).sum() for p, q in (one, apart))
        assert two_places <= one_place + 1e-12


@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_a_person_with_three_cases_moves_every_table_by_three(delta: float) -> None:
    """Two tables, for 1 and for 3 cases of a person, epsilon 1 each: together 4 of who has 3 cases, and not 2."""
    few, many = mechanism(cases=1), mechanism(cases=3)
    parts = ((few, 1), (many, 1))
    decays = [m.decay * GRID for m in (few, many)]
    k = np.arange(-150, 151)
    p, q = (
        np.outer(*(math.tanh(decay / 2) * np.exp(-decay * np.abs(k - shift)) for decay in decays)).ravel() for shift in (0, 3)
    )
    exact = optimize.brentq(lambda e: np.maximum(p - math.exp(e) * q, 0).sum() - delta - 1e-14, 0, 10)
    if delta == 0:
        assert exact == pytest.approx(4.0, abs=1e-3)
    assert exact - 1e-6 <= epsilon(parts, delta) < exact + 1e-3
    low, high = epsilon_bounds(parts, delta)
    assert low - 1e-6 <= exact <= high + 1e-6
    assert high < low + 1e-6
    assert epsilon(parts[::-1], delta) == epsilon(parts, delta)
    assert max_steps(many, 3.9, delta, ((few, 1),)) == 0  # it would lift the table that is drawn already
    assert max_steps(many, 4.1, delta, ((few, 1),)) >= 1
    assert max_steps(few, 2.9, delta, ((many, 1),)) == 0


def test_what_counts_are_compared_and_composed_with() -> None:
    m, of_rows = mechanism(), Mechanism(sampling="full", clip=1.0, dimension=3, noise_multiplier=2.0)
    assert m.neighbours == "add or remove one case in one count"
    assert neighbours_of([m, mechanism(cases=4)]) == "add or remove one person with at most 4 cases"
    assert epsilon(((m, 2),), 0.0) == pytest.approx(2.0, abs=1e-3)
    with pytest.raises(ValueError, match="by example and by case in one account"):
        epsilon(((m, 1), (of_rows, 1)), 1e-5)
    for wrong in ({"unit": "example"}, {"clip": 1.5}, {"clip": 0.5}):
        with pytest.raises(ValueError, match="must be"):
            replace(m, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="delta must be in"):
        epsilon(((of_rows, 1),), 0.0)
    assert Mechanism.from_dict(m.as_dict()) == m
