"""What importance weights say of a q whose distance from the posterior is known."""

from __future__ import annotations

import numpy as np
import pytest

from fedkern.models import psis
from fedkern.results.reweighed import MEAN, SD, reweigh
from fedkern.results.verdict import Verdict, with_weights

NAMES = ("a", "b", "c")


def found(shift=0.0, sd=1.0, size=2000, seed=0):
    """q = N(0, I) of three unknowns; of the posterior the second has this mean and sd."""
    x = np.random.default_rng(seed).standard_normal((size, 3))
    z = (x[:, 1] - shift) / sd
    return reweigh(NAMES, x, 7.0 - 0.5 * z**2 + 0.5 * x[:, 1] ** 2)


def test_the_same_distribution_agrees():
    """Ratios of pure rounding have a k-hat too."""
    one = found()
    np.testing.assert_allclose([one.mean, one.sd], 0, atol=1e-12)
    x = np.random.default_rng(1).standard_normal((400, 3))
    one = reweigh(NAMES, x, 1e-9 * x[:, 0] ** 2)
    assert one.agrees
    assert with_weights(Verdict.of("settled", "nothing moves"), one).converged is True


@pytest.mark.parametrize(("shift", "sd"), [(0.3, 1.0), (-0.3, 1.0), (0.0, 0.8), (0.0, 1.2), (0.0, 1 / 0.7), (0.0, 1 / 0.735)])
def test_what_is_off_is_seen_and_by_how_much(shift, sd):
    """1 / 0.7: a q that is 30 % too narrow; k-hat alone lets it pass."""
    one = found(shift, sd, size=400)
    assert not one.agrees
    assert with_weights(Verdict.of("settled", "nothing moves"), one).converged == "settled"
    if one.reliable:
        assert NAMES[one.worst] == "b"
        assert abs(one.mean[1] - shift) < 4 * one.mean_error[1] + 0.05
        assert abs(one.sd[1] - (sd - 1)) < 4 * one.sd_error[1] + 0.05


@pytest.mark.parametrize("seed", range(4))
def test_standard_errors_are_those_of_the_differences(seed):
    several = [found(0.2, 0.9, seed=100 * seed + k) for k in range(60)]
    for of in ("mean", "sd"):
        spread = np.std([getattr(one, of)[1] for one in several])
        assert 0.7 < np.median([getattr(one, f"{of}_error")[1] for one in several]) / spread < 1.4


def test_a_heavy_tail_and_what_is_not_finite_say_nothing():
    one = found(0.0, 6.0)  # q is a sixth as wide
    assert one.k_hat > 0.7
    assert "k-hat" in one.words
    assert not one.agrees
    x = np.random.default_rng(0).standard_normal((100, 3))
    ratios = np.zeros(100)
    ratios[3] = np.nan
    assert not reweigh(NAMES, x, ratios).agrees


def test_noise_is_no_agreement():
    """Weights that vary so much that nothing can be seen: of what agrees on average."""
    random = np.random.default_rng(2)
    x = random.standard_normal((400, 3))
    one = reweigh(NAMES, x, 1.5 * random.standard_normal(400))
    assert not one.agrees
    assert max(one.mean_error.max() / MEAN, one.sd_error.max() / SD) > 0.5


def test_what_moves_is_not_judged_by_weights():
    moving = Verdict.of(False, "it moves", "a")
    assert with_weights(moving, found()) is moving
    assert with_weights(Verdict.of("settled", "x"), None).converged == "settled"


@pytest.mark.parametrize(("differ", "rounding", "exact"), [(0.0, 0, True), (1e-7, 0, True), (1e-5, 0, False), (2e-3, 3e-3, True)])
def test_where_all_ratios_are_one_q_is_the_posterior(differ: float, rounding: float, exact: bool) -> None:
    """A tail of equal weights has no shape: k-hat was infinite where q is exact."""
    random = np.random.default_rng(0)
    draws = random.normal(size=(200, 2))
    found = reweigh(("a", "b"), draws, 7.0 + differ * random.uniform(size=200), rounding)
    assert found.exact == exact
    assert found.agrees
    assert ("exact" in found.content) == exact
    if exact:
        assert found.content["k_hat"] == 0
        assert found.content["moves"]["a"] == {"mean": 0, "mean_error": 0, "sd": 0, "sd_error": 0}


def test_rounding_never_hides_what_is_off() -> None:
    """Of a thousand clients, whose rounding could add up to a nat, ratios that differ by a tenth are weighed."""
    random = np.random.default_rng(0)
    draws = random.normal(size=(200, 2))
    assert not reweigh(("a", "b"), draws, 0.1 * draws[:, 0], rounding=1.0).exact


def test_weights_that_hardly_differ_are_those_of_a_near_q() -> None:
    """Of fifty draws k-hat is made of ten: that of a right q is above 0.7 now and then."""
    random, large = np.random.default_rng(0), 0
    for _ in range(200):
        draws = random.standard_normal((50, 8))
        one = reweigh([f"x{k}" for k in range(8)], draws, 0.02 * (draws**3 / 6).sum(axis=1))  # as skew as a thousand rows
        large += one.k_hat > psis.limit(50)
        assert one.even
        assert one.reliable
    assert large > 20


@pytest.mark.parametrize("size", [50, 400])
def test_weights_of_a_q_that_is_off_are_not_even(size: int) -> None:
    """A mean-field q of correlated columns: 50 draws gave a quarter of them a small k-hat."""
    random = np.random.default_rng(1)
    precision = np.linalg.inv(np.full((8, 8), 0.6) + 0.4 * np.eye(8))
    for _ in range(100):
        z = random.standard_normal((size, 8))
        x = z / np.sqrt(np.diag(precision))
        far = reweigh("abcdefgh", x, 0.5 * (z**2).sum(axis=1) - 0.5 * np.einsum("ij,jk,ik->i", x, precision, x))
        assert not far.even
        for ratios in (0.2 * z[:, 0], (1 - 1 / 1.2**2) * z[:, 0] ** 2 / 2):  # a mean, and an sd
            assert size == 50 or not reweigh("abcdefgh", z, ratios).even
