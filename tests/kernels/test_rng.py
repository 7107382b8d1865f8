"""Random numbers: the same words everywhere (promise R1), and the right distributions."""

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from fedkern import _core
from fedkern.kernels import rng
from fedkern.kernels._numba import rng as by_numba
from fedkern.kernels._reference import rng as by_reference

BACKENDS = ("cpp", "numba", "reference")
FALSE_ALARM = 1e-5  # of one test; about ten of them make 1e-4 for the file

# Random123's known answers for philox4x32-10: counter, key, block
KNOWN = (
    ((0, 0, 0, 0), 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((2**32 - 1,) * 4, 2**64 - 1, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), 0x299F31D0A4093822, (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("counter", "key", "block"), KNOWN)
def test_known_answers(backend, counter, key, block):
    item, draw, client, step = counter
    got = rng.words(1, key=key, first_item=item, draw=draw, client=client, step=step, backend=backend)
    assert tuple(got[0]) == block


def a_million_counters(backend):
    """2^20 counters that differ in all four words, and in the key."""
    digest = hashlib.blake2b(digest_size=16)
    for i in range(16):
        counter = {"draw": 3**i, "client": 7**i % 2**32, "step": 11**i % 2**32, "first_item": i << 28}
        digest.update(rng.words(2**16, key=rng.key(i, "draws", chain=i % 3), **counter, backend=backend).tobytes())
    return digest.hexdigest()


def test_a_million_counters_give_the_same_words_on_every_backend():
    assert a_million_counters("cpp") == a_million_counters("numba") == a_million_counters("reference")


LEVEL = """
import runpy, sys, numpy as np
from fedkern import _core
from fedkern.kernels import rng
a_million_counters = runpy.run_path(sys.argv[2])["a_million_counters"]
numbers = [f(1001, key=5) for f in (rng.normal, rng.exponential)] + [rng.gamma(a, size=1001, key=5) for a in (0.3, 4.0)]
np.save(sys.argv[1], np.stack([*numbers, rng.inverse_gaussian(2.0, 0.7, size=1001, key=5)]))
print(_core.isa(), a_million_counters("cpp"))
"""


def test_every_instruction_set_level_gives_the_same_words(tmp_path):
    levels = list(_core.levels())
    levels = levels[levels.index(_core.isa()) :]
    expected, numbers = a_million_counters("cpp"), []
    for level in levels:
        file = tmp_path / f"{level}.npy"
        command = [sys.executable, "-P", "-c", LEVEL, str(file), __file__]
        run = subprocess.run(command, env=os.environ | {"FEDKERN_ISA": level}, capture_output=True, text=True, check=True)
        assert run.stdout.split() == [level, expected]
        numbers.append(np.load(file))
    for other in numbers[1:]:
        np.testing.assert_allclose(other, numbers[0], rtol=1e-14, atol=0)


def test_keys():
    assert rng.key(0) == by_reference.mix(by_reference.mix(0x9E3779B97F4A7C15))
    seen = set()
    for seed in (0, 1, 2**64 - 1):
        for stream, number in rng.streams().items():
            for chain in (0, 1, 2**64 - 1):
                key = rng.key(seed, stream, chain)
                assert key == by_reference.stream_key(seed, number, chain)
                assert key == int(by_numba.stream_key(np.uint64(seed), number, np.uint64(chain)))
                seen.add(key)
    assert len(seen) == 3 * 3 * len(rng.streams())


def test_streams_are_different_and_leave_room_for_others():
    ours = {name: number for name, number in rng.streams().items() if number < rng.REGISTERED}
    assert len(set(ours.values())) == len(ours)
    assert max(ours.values()) < 200
    assert ours == _core.rng.streams()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rng.key(1, "nosie"), "rng.key: no stream 'nosie'; there are user, schedule"),
        (lambda: rng.key(-1), r"rng.key: seed must be in \[0, 2\^64\), got -1"),
        (lambda: rng.normal(3, key=2**64), r"rng.normal: key must be in \[0, 2\^64\)"),
        (lambda: rng.normal(-1, key=1), "rng.normal: size must be >= 0, got -1"),
        (
            lambda: rng.normal(3, key=1, first_item=2**32 - 1),
            "rng.normal: the counter is exhausted: .* the 2 items from first_item",
        ),
        (lambda: rng.words(2, key=1, first_item=2**32 - 1), "rng.words: the counter is exhausted"),
        (lambda: rng.gamma(1.0, size=2, key=1, first_item=2**32 - 1), "rng.gamma: the counter is exhausted"),
        (lambda: rng.uniform(1, key=1, step=2**32), "rng.uniform: the counter is exhausted: .* step = 4294967296"),
        (lambda: rng.uniform(1, key=1, client=-1), "rng.uniform: the counter is exhausted: client = -1"),
        (lambda: rng.inverse_gaussian(1.0, 2.0, key=1), "rng.inverse_gaussian: size must be given where no array says it"),
        (lambda: rng.polya_gamma(np.ones(4), size=3, key=1), "polya_gamma: size must be 4, the length of z, or be left out"),
        (lambda: rng.gamma(np.ones(4), size=0, key=1), "gamma: size must be 4, the length of shape, or be left out"),
        (lambda: rng.inverse_gaussian(1.0, np.ones(4), size=5, key=1), "size must be 4, the length of shape, .* got 5"),
        (lambda: rng.inverse_gaussian(np.ones(4), 1.0, size=-1, key=1), "size must be 4, the length of mean, .* got -1"),
    ],
)
def test_errors_name_argument_want_and_got(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


def test_size_may_say_again_what_an_array_says():
    z = np.array([0.5, 1.0, 2.0])
    np.testing.assert_array_equal(rng.polya_gamma(z, size=3, key=1), rng.polya_gamma(z, key=1))


def test_the_last_item_is_not_an_error():
    assert np.isfinite(rng.normal(2, key=1, first_item=2**32 - 1)).all()


CALLS = {
    "uniform": lambda n, **k: rng.uniform(n, **k),
    "normal": lambda n, **k: rng.normal(n, **k),
    "exponential": lambda n, **k: rng.exponential(n, **k),
    "gamma": lambda n, **k: rng.gamma(0.4, size=n, **k),
    "inverse_gaussian": lambda n, **k: rng.inverse_gaussian(1.5, 0.6, size=n, **k),
}


@pytest.mark.parametrize("name", CALLS)
def test_any_piece_can_be_made_alone(name):
    """A number depends on its own counter only: one rejected proposal shifts no other."""
    per_item = 2 if name in ("uniform", "normal", "exponential") else 1
    whole = CALLS[name](1000, key=9)
    for first in (0, 64, 131, 499):
        piece = CALLS[name](77, key=9, first_item=first)
        size = min(77, 1000 - per_item * first)
        np.testing.assert_array_equal(piece[:size], whole[per_item * first :][:size])


N = 200_000
DISTRIBUTIONS = {
    "uniform": (lambda **k: rng.uniform(N, **k), stats.uniform()),
    "normal": (lambda **k: rng.normal(N, **k), stats.norm()),
    "exponential": (lambda **k: rng.exponential(N, **k), stats.expon()),
    "gamma 0.05": (lambda **k: rng.gamma(0.05, size=N, **k), stats.gamma(0.05)),
    "gamma 0.5": (lambda **k: rng.gamma(0.5, size=N, **k), stats.gamma(0.5)),
    "gamma 1": (lambda **k: rng.gamma(1.0, size=N, **k), stats.gamma(1)),
    "gamma 37": (lambda **k: rng.gamma(37.0, size=N, **k), stats.gamma(37)),
    "inverse_gaussian 1 1": (lambda **k: rng.inverse_gaussian(1.0, 1.0, size=N, **k), stats.invgauss(1)),
    "inverse_gaussian 3 0.2": (lambda **k: rng.inverse_gaussian(3.0, 0.2, size=N, **k), stats.invgauss(15, scale=0.2)),
    "inverse_gaussian 0.5 50": (lambda **k: rng.inverse_gaussian(0.5, 50.0, size=N, **k), stats.invgauss(0.01, scale=50)),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distribution(name, seed):
    """Kolmogorov-Smirnov and the first two moments; the negative control is the same numbers 5 % too large."""
    draw, law = DISTRIBUTIONS[name]
    x = draw(key=rng.key(seed, "user", chain=1))
    u = law.cdf(x)
    assert stats.kstest(u, "uniform").pvalue > FALSE_ALARM
    assert stats.kstest(law.cdf(1.05 * x), "uniform").pvalue < FALSE_ALARM or law.std() > 3 * law.mean()
    # Moments of the probabilities, whose own moments are known: a law without higher moments would have none of the right size.
    z = np.sqrt(N) * np.array([(u.mean() - 1 / 2) * np.sqrt(12), (u.var() - 1 / 12) * np.sqrt(180)])
    assert (abs(z) < stats.norm.isf(FALSE_ALARM / 2)).all()


def test_negative_control_of_the_heavy_tailed(seed):
    """Where 5 % are nothing beside the spread, 10 % in the shape must show."""
    x = rng.gamma(0.055, size=N, key=rng.key(seed, "user", chain=1))
    assert stats.kstest(stats.gamma(0.05).cdf(x), "uniform").pvalue < FALSE_ALARM


def test_words_are_uniform_and_independent(seed):
    words = rng.words(2**16, key=rng.key(seed))
    data = words.view(np.uint8).ravel()
    assert stats.chisquare(np.bincount(data, minlength=256)).pvalue > FALSE_ALARM
    assert stats.chisquare(np.bincount(data & 0xF0, minlength=256)[::16] + np.arange(16) * 400).pvalue < FALSE_ALARM  # control
    u = words.astype(float).T / 2**32
    correlations = np.corrcoef(np.vstack([u, np.roll(u, 1, axis=1)]))[np.triu_indices(8, 1)]
    assert abs(correlations).max() * np.sqrt(2**16) < stats.norm.isf(FALSE_ALARM / 2 / correlations.size)


def test_neighbouring_counters_are_independent(seed):
    key = rng.key(seed)
    base = rng.normal(N, key=key)
    for other in ({"draw": 1}, {"client": 1}, {"step": 1}, {"first_item": 1}):
        z = np.corrcoef(base, rng.normal(N, key=key, **other))[0, 1] * np.sqrt(N)
        assert abs(z) < stats.norm.isf(FALSE_ALARM / 8), other
    assert abs(np.corrcoef(base[::2], base[1::2])[0, 1]) * np.sqrt(N / 2) < stats.norm.isf(FALSE_ALARM / 2)


def test_gamma_at_large_shape_has_the_right_spread(seed):
    """The test of the proposal must not drown in rounding: shape 1e14, where d log v alone would lose all digits."""
    x = (rng.gamma(1e14, size=N, key=rng.key(seed)) - 1e14) / 1e7
    assert stats.kstest(x, "norm").pvalue > FALSE_ALARM


def test_metropolis_rule():
    for accept in (by_reference.metropolis_accept, by_numba.metropolis_accept):
        assert accept(0.0, 0.999)
        assert accept(np.log(0.31), 0.3)
        assert not accept(np.log(0.29), 0.3)
        assert not accept(-np.inf, 1e-15)
        assert not accept(np.nan, 0.5)


@pytest.mark.parametrize("backend", ["cpp", "reference"])
def test_counts_are_quantiles_and_their_sum_the_distribution_function(seed, backend):
    random = np.random.default_rng(seed)
    u, mean, r, n, p = random.random(N), np.exp(random.uniform(-4, 3, N)), 1.7, 9.0, random.random(N) / 2
    share = mean / (r + mean)
    for law, first, a, b in (
        (stats.poisson(mean), np.exp(-mean), 0.0, mean),
        (stats.nbinom(r, 1 - share), (1 - share) ** r, share, (r - 1) * share),
        (stats.binom(n, p), (1 - p) ** n, -p / (1 - p), (n + 1) * p / (1 - p)),
    ):
        count, total = rng.counts(u, np.inf, first, a, b, terms=2000, backend=backend)
        assert np.array_equal(count, law.ppf(u))
        np.testing.assert_allclose(total, law.cdf(count), atol=1e-13)
        most, below = rng.counts(2.0, np.minimum(count, 5), first, a, b, terms=2000, backend=backend)
        assert np.array_equal(most, np.minimum(count, 5))
        np.testing.assert_allclose(below, law.cdf(most), atol=1e-13)


@pytest.mark.parametrize("backend", ["cpp", "reference"])
def test_counts_beyond_their_terms_are_told(backend):
    count, total = rng.counts(np.array([0.5, np.nan]), np.inf, np.exp(-30.0), 0.0, 30.0, terms=20, backend=backend)
    assert count.tolist() == [19, 0]
    assert total[0] == pytest.approx(stats.poisson(30).cdf(19))
