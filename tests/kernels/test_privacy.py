"""The privacy kernels: backends against the reference, the exact distribution of the noise, and what is refused.

(privacy.clip_sum and privacy.add_noise are also in the conformance test of all kernels.)
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from fedkern import kernels
from fedkern.kernels import privacy, rng
from fedkern.kernels._numba import privacy as compiled
from fedkern.kernels._reference import privacy as reference

BACKENDS = ("cpp", "numba", "reference")
ALPHA = 1e-6


def words(n, seed=0):
    return np.random.default_rng(seed).integers(0, 2**32, n, dtype=np.uint32)


# --- the same numbers on every backend


@pytest.mark.parametrize("sigma", [1, 2, 3, 7, 1000, 5 << 20, 2**28, 2**30 + 1, 2**31 - 1])
def test_backends_agree_on_draws_and_words(sigma):
    given = words(1500)
    results = [privacy.discrete_gaussian(given, sigma, 100, backend=b) for b in BACKENDS]
    for draws, used in results[1:]:
        np.testing.assert_array_equal(draws, results[0][0])
        assert used == results[0][1]


# The first digits of coins' probabilities, and their neighbours: a word that equals one leaves the coin to the next word.
NEAR_TIES = [2**32 * a // b + c for a, b in ((1, 3), (2, 3), (1, 4), (1, 5), (4, 5), (1, 6), (1, 15)) for c in (-1, 0, 1)]


@pytest.mark.parametrize("sigma", [1, 3, 5, 2**31 - 1])
@pytest.mark.parametrize("odd", [0, 1, 2**31, 2**32 - 1, *NEAR_TIES])
def test_backends_agree_on_words_that_hardly_ever_come(sigma, odd):
    given = words(3000)
    given[::3] = odd  # ties, the ends of every range, long runs of successes
    results = [privacy.discrete_gaussian(given[::-1], sigma, 60, backend=b) for b in BACKENDS]
    for draws, used in results[1:]:
        np.testing.assert_array_equal(draws, results[0][0])
        assert used == results[0][1]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_words_that_are_left_go_on_where_the_draws_ended(backend):
    given, sigma = words(2500, seed=1), 5 << 20
    whole, used = privacy.discrete_gaussian(given, sigma, 200, backend=backend)
    assert len(whole) == 200
    parts, at, end = [], 0, 40
    while sum(map(len, parts)) < 200:
        draws, n = privacy.discrete_gaussian(given[at:end], sigma, 200 - sum(map(len, parts)), backend=backend)
        parts.append(draws)
        at, end = at + n, end + 40
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert at == used


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_words_no_draws(backend):
    out = np.full(3, 7)
    draws, used = privacy.discrete_gaussian(words(0), 4, 3, out=out, backend=backend)
    assert len(draws) == 0
    assert used == 0
    draws, used = privacy.discrete_gaussian(np.full(10, 2**32 - 1, np.uint32), 4, 0, backend=backend)
    assert len(draws) == used == 0


@pytest.mark.timeout(60)
@pytest.mark.parametrize("backend", ["cpp", "numba"])
@pytest.mark.parametrize("sigma", [1, 2, 3, 9, 5 << 20, 2**31 - 1])
def test_words_may_run_out_anywhere(backend, sigma):
    """At every word of a draw, and in words that never let an attempt succeed: it ends, and what is complete is right."""
    given = words(260, seed=4)
    whole, _ = privacy.discrete_gaussian(given, sigma, 15, backend="reference")
    assert len(whole) == 15
    for n in range(261):
        draws, used = privacy.discrete_gaussian(given[:n], sigma, 15, backend=backend)
        np.testing.assert_array_equal(draws, whole[: len(draws)])
        assert used <= n
    for word in (0, 1, 2**31, 2**32 - 1):
        repeated = np.full(200, word, np.uint32)
        for n in (0, 1, 2, 3, 50, 200):
            draws, used = privacy.discrete_gaussian(repeated[:n], sigma, 50, backend=backend)
            want, words_used = privacy.discrete_gaussian(repeated[:n], sigma, 50, backend="reference")
            np.testing.assert_array_equal(draws, want)
            assert used == words_used


@pytest.mark.parametrize("d", [0, 1, 2, 127, 128, 129, 1001])
def test_add_noise_adds_the_normals_of_its_counters(d):
    total = np.linspace(-1, 1, d)
    want = total + 2.5 * rng.normal(d, key=rng.key(3, "noise"), client=4, step=9)
    for backend in BACKENDS:
        got = privacy.add_noise(total, sigma=2.5, seed=3, client=4, step=9, backend=backend)
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-13)
    np.testing.assert_array_equal(privacy.add_noise(total, sigma=0.0, seed=3), total)


# --- clipping


@pytest.mark.parametrize("backend", BACKENDS)
def test_rounding_carries_no_row_over_the_bound(backend):
    generator = np.random.default_rng(0)
    for p in (1, 3, 108):
        for row in generator.standard_normal((200, 1, p)) * 10 ** generator.uniform(-3, 30, (200, 1, 1)):
            clipped = privacy.clip_sum(row, 1.7, backend=backend)
            assert math.fsum(clipped**2) <= 1.7**2
            assert np.linalg.norm(clipped) >= min(1.7, np.linalg.norm(row)) * (1 - 1.1e-9)


@pytest.mark.parametrize(
    ("row", "want"),
    [
        ([0.0, 0.0], 0.0),
        ([0.3, 0.4], 0.5),
        ([3e100, 4e100], 1.0),
        ([3e200, 4e200], 0.0),
        ([np.nan, 1.0], 0.0),
        ([np.inf, 1.0], 0.0),
    ],
    ids=["norm 0", "within", "large", "squared norm overflows", "nan", "inf"],
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_edges_of_the_clip_rule(backend, row, want):
    found = privacy.clip_sum(np.array([row, [0.0, 0.0]]), 1.0, backend=backend)
    assert np.linalg.norm(found) == pytest.approx(want, rel=2e-9)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_rows_beyond_a_cores_caches_are_summed_like_few(dtype):
    """They have a loop of their own (`cached_bytes` of csrc/include/fedkern/privacy/rows.hpp, at most 8 MiB)."""
    rows = np.random.default_rng(3).standard_normal((9 * 2**20 // (108 * np.dtype(dtype).itemsize), 108)).astype(dtype)
    rows[1234], rows[-3], rows[77, 5] = 0, np.nan, np.inf
    want, size = (privacy.clip_sum(x, 5.0, backend="reference") for x in (rows, np.abs(rows)))
    np.testing.assert_allclose(privacy.clip_sum(rows, 5.0), want, rtol=0, atol=(5e-6 if dtype == "f4" else 1e-12) * size.max())


# --- the exact distribution


def probabilities(sigma, largest):
    """P(-largest), .., P(largest) of the discrete Gaussian."""
    x = np.arange(-largest, largest + 1)
    tail = np.arange(-50 * sigma - 50, 50 * sigma + 51)
    return np.exp(-(x**2) / (2 * sigma**2)) / np.exp(-(tail**2) / (2.0 * sigma**2)).sum()


@pytest.mark.parametrize(
    ("a", "b"), [(1, 3), (2, 3), (7, 2**32), (2**40 + 1, 2**41 - 1), (1, 2**62), (2**63 - 2, 2**63 - 1), (0, 5)]
)
def test_a_coin_has_its_probability_exactly(a, b):
    """Of the 2^32 first words, floor(2^32 a / b) say yes, one at most asks for the next digit."""
    digit, rest = divmod(a << 32, b)

    def after(word):
        """What the coin says to this word and then to the smallest and the largest one."""
        return [
            (bool(compiled.coin(np.array([word, second], np.uint32), at := np.zeros(1, np.int64), a, b)), int(at[0]))
            for second in (0, 2**32 - 1)
        ]

    if digit > 0:
        assert after(digit - 1) == [(True, 1)] * 2
    if digit < 2**32 - 1:
        assert after(digit + 1) == [(False, 1)] * 2
    second = rest * 2**32 // b
    assert after(digit) == ([(second > 0, 2), (False, 2)] if rest else [(False, 1)] * 2)
    assert Fraction(digit, 2**32) + Fraction(rest, b * 2**32) == Fraction(a, b)


class Rejected(Exception):
    """The attempt starts anew, or its weight is too small to go on."""


class Tree:
    """Walks all outcomes of the random choices that a function makes, and adds up the weight of each result."""

    def __init__(self, smallest):
        self.smallest, self.lost = smallest, 0.0
        self.path, self.at, self.weight = [], 0, 1.0

    def choose(self, weights):
        """One outcome: on each walk the next one that has not been tried."""
        if self.at == len(self.path):
            self.path.append([0, weights])
        outcome = self.path[self.at][0]
        self.weight *= self.path[self.at][1][outcome]
        self.at += 1
        if self.weight < self.smallest:
            self.lost += self.weight
            raise Rejected
        return outcome

    def walk(self, function):
        """Result -> weight."""
        found = {}
        while True:
            self.at, self.weight = 0, 1.0
            try:
                result = function()
                found[result] = found.get(result, 0.0) + self.weight
            except Rejected:
                pass
            del self.path[self.at :]
            while self.path and self.path[-1][0] == len(self.path[-1][1]) - 1:
                self.path.pop()
            if not self.path:
                return found
            self.path[-1][0] += 1


@pytest.mark.parametrize(("a", "b"), [(0, 3), (1, 7), (1, 2), (4, 5), (1, 1), (3, 2**62), (2**62 - 5, 2**62)])
def test_an_exponential_coin_has_its_probability(monkeypatch, a, b):
    tree = Tree(1e-18)
    monkeypatch.setattr(reference, "_coin", lambda words, a, b: 0 < a and (a == b or tree.choose([1 - a / b, a / b]) == 1))
    found = tree.walk(lambda: reference._exp_coin(None, a, b))
    assert found[True] == pytest.approx(math.exp(-a / b), rel=1e-14)


@pytest.mark.parametrize("sigma", [1, 2, 3, 10])
def test_enumerated_probabilities(monkeypatch, sigma):
    """No sample: all outcomes of one attempt. The only error is the weight of the branches that are cut, which is known."""
    tree, attempts = Tree(1e-14), 0

    def below(words, n):
        nonlocal attempts
        attempts += 1
        if attempts > 1:
            raise Rejected
        return tree.choose([1 / n] * n)

    def attempt():
        nonlocal attempts
        attempts = 0
        return reference._discrete_gaussian(None, sigma)

    monkeypatch.setattr(reference, "_below", below)
    monkeypatch.setattr(reference, "_exp_coin", lambda words, a, b: tree.choose([-math.expm1(-a / b), math.exp(-a / b)]) == 1)
    found = tree.walk(attempt)
    assert tree.lost < 1e-10
    # An attempt ends at x with probability proportional to exp(-x^2 / (2 sigma^2)).
    accepted = sum(found.values())
    for x, p in found.items():
        assert p / accepted == pytest.approx(probabilities(sigma, abs(x))[0], rel=0, abs=1e-9)
    assert sum(found) == 0


def chi_square(draws, sigma, largest):
    """The p-value of the counts of -largest, .., largest and of the two tails."""
    p = probabilities(sigma, largest)
    tail = (1 - p.sum()) / 2
    p = np.concatenate([[tail], p, [tail]])
    counts = np.bincount(np.clip(draws, -largest - 1, largest + 1) + largest + 1, minlength=len(p))
    return stats.chisquare(counts, p / p.sum() * len(draws)).pvalue


def many(sigma, n, backend="cpp", seed=5):
    """n draws from words that are never thrown away."""
    generator, parts, left, missing = np.random.default_rng(seed), [], words(0), n
    while missing:
        fresh = generator.integers(0, 2**32, 12 * min(missing, 10**6) + 100, dtype=np.uint32)
        given = np.concatenate([left, fresh])
        draws, used = privacy.discrete_gaussian(given, sigma, missing, backend=backend)
        parts.append(draws)
        left, missing = given[used:], missing - len(draws)
    return np.concatenate(parts)


@pytest.mark.parametrize(("sigma", "largest"), [(1, 4), (2, 8), (5, 20)])
@pytest.mark.parametrize("n", [10**6, pytest.param(10**7, marks=pytest.mark.nightly)])
def test_counts_of_small_numbers(sigma, largest, n):
    assert chi_square(many(sigma, n), sigma, largest) > ALPHA


@pytest.mark.parametrize("n", [10**6, pytest.param(10**7, marks=pytest.mark.nightly)])
def test_large_sigma_has_normal_quantiles_and_even_low_bits(n):
    sigma = 5 << 20
    draws = many(sigma, n)
    edges = stats.norm.ppf(np.arange(1, 200) / 200) * sigma
    assert stats.chisquare(np.bincount(np.searchsorted(edges, draws), minlength=200)).pvalue > ALPHA
    assert stats.chisquare(np.bincount(draws & 63, minlength=64)).pvalue > ALPHA


def test_negative_controls_of_the_counts():
    n = 10**6
    generator = np.random.default_rng(1)
    rounded = np.rint(generator.normal(size=n)).astype(np.int64)  # a rounded normal number is no discrete Gaussian
    assert chi_square(rounded, 1, 4) < ALPHA
    assert chi_square(many(5, n), 5.05, 20) < ALPHA  # 1 % too much noise
    draws = many(2, n)
    assert chi_square(draws[(draws != 0) | (generator.random(n) < 0.97)], 2, 8) < ALPHA


def test_negative_control_throwing_words_away_is_a_bias_that_the_counts_see():
    given = words(12 * 2 * 10**5, seed=2).reshape(-1, 12)
    thrown = [privacy.discrete_gaussian(row, 2, 2)[0] for row in given]
    assert chi_square(np.concatenate(thrown), 2, 8) < ALPHA


# --- what is refused


@pytest.mark.parametrize("sigma", [1.99, 3.9, np.float32(2.5), 0.5, 2**31])
def test_a_discrete_gaussian_of_a_fraction_is_refused(sigma):
    """Its integer part would be less noise than was accounted for."""
    with pytest.raises(ValueError, match=r"sigma must be an integer in \[1, 2\^31\)"):
        privacy.discrete_gaussian(np.zeros(100, np.uint32), sigma=sigma, size=3)


def test_the_documented_standard_deviation_of_the_discrete_gaussian():
    x = np.arange(-60, 61.0)
    for sigma in (1.0, 1.5):
        weights = np.exp(-x * x / (2 * sigma**2))
        lost = 1 - math.sqrt((weights * x * x).sum() / weights.sum()) / sigma
        said = 4 * math.pi**2 * sigma**2 * math.exp(-2 * math.pi**2 * sigma**2)
        assert abs(lost - said) < 1e-6 * said + 4e-16
    assert "sigma (1 - 4 pi^2 sigma^2 exp(-2 pi^2 sigma^2))" in privacy.DISCRETE_GAUSSIAN.words["sigma"]


def test_the_documented_numbers_of_words():
    given = words(1_300_000)
    for sigma, text in ((1, "12.3 for sigma = 1"), (2, "11.5 for 2"), (1000, "about 11 a draw")):
        draws, used = privacy.discrete_gaussian(given, sigma, 100_000)
        assert len(draws) == 100_000
        said = float(next(word for word in text.split() if word[:2].isdigit()))
        assert abs(used / len(draws) - said) < (0.06 if said != 11 else 0.5)
        assert text in privacy.DISCRETE_GAUSSIAN.words["words"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_infinite_bound_clips_nothing(backend):
    rows = np.array([[1.0, 2.0], [0.0, 0.0], [1e100, -3.0]])
    np.testing.assert_allclose(privacy.clip_sum(rows, np.inf, backend=backend), rows.sum(axis=0), rtol=1e-15)


def test_elements_that_are_not_aligned_are_refused_by_name():
    packed = np.zeros(4, dtype=[("id", "i1"), ("row", "f8", (2,))])
    with pytest.raises(ValueError, match=r"privacy\.clip_sum: rows is not aligned to its elements; give a copy"):
        privacy.clip_sum(packed["row"], 1.0)
    with pytest.raises(ValueError, match=r"privacy\.clip_sum: out is not aligned to its elements; give an array of its own"):
        privacy.clip_sum(np.ones((3, 2)), 1.0, out=packed["row"][0])
    bound = kernels.bind("privacy.clip_sum", {"rows": np.ones((4, 2))}, ["rows"], clip=1.0)
    with pytest.raises(ValueError, match=r"privacy\.clip_sum: rows is not aligned"):
        bound(packed["row"])
    np.testing.assert_array_equal(privacy.clip_sum(packed["row"].copy(), 1.0), [0, 0])


@pytest.mark.parametrize(
    "out", [np.lib.stride_tricks.as_strided(np.zeros(1), (2,), (0,)), np.lib.stride_tricks.as_strided(np.zeros(3), (2,), (4,))]
)
def test_an_output_whose_elements_overlap_is_refused(out):
    with pytest.raises(ValueError, match=r"privacy\.clip_sum: elements of out overlap each other"):
        privacy.clip_sum(np.ones((3, 2)), 1.0, out=out)


def test_outputs_of_any_other_strides_are_taken():
    want, whole = privacy.clip_sum(np.ones((3, 2)), 1.0), np.zeros((4, 2, 3))
    for out in (whole[0, :, 0], whole[::-2, 0, 1][:2], whole[1, ::-1, 1], np.zeros(2)):
        np.testing.assert_array_equal(privacy.clip_sum(np.ones((3, 2)), 1.0, out=out), want)
