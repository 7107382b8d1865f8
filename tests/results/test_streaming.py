"""Streaming summaries against those of the kept draws."""

from __future__ import annotations

import numpy as np
import pytest

from fedkern.results.diagnostics import rhat_ess
from fedkern.results.streaming import BATCHES, KEPT, Stream

RANDOM = np.random.default_rng(6)


def chains(n: int, c: int = 4, p: int = 3, rho: float = 0.0) -> np.ndarray:
    """(n, c, p) stationary autoregressions of variance 1."""
    x = RANDOM.normal(size=(n, c, p))
    for i in range(1, n):
        x[i] = rho * x[i - 1] + np.sqrt(1 - rho**2) * x[i]
    return x


def streamed(x: np.ndarray) -> Stream:
    stream = Stream(*x.shape[1:])
    for draw in x:
        stream.add(draw)
    return stream


@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 500, 1024])
def test_moments_are_those_of_all_draws(n: int) -> None:
    x = 1e6 + chains(n)
    found = streamed(x)
    np.testing.assert_allclose(found.mean, x.mean(axis=(0, 1)), rtol=1e-14)
    np.testing.assert_allclose(found.sd, x.reshape(-1, 3).std(axis=0, ddof=1), rtol=1e-7)


@pytest.mark.parametrize("n", [64, 100, 999, 1024])
def test_r_hat_is_the_split_one(n: int) -> None:
    x = chains(n)
    x[:, 0, 1] += 0.7
    x[n // 2 :, 1, 2] += 1.5
    found = streamed(x).rhat
    at = streamed(x).full // 2 * streamed(x).length
    if n in (64, 1024):  # here the middle lies between two batches: the textbook's formula
        halves = np.concatenate([x[:at], x[at:]], axis=1)
        within, between = halves.var(axis=0, ddof=1).mean(axis=0), halves.mean(axis=0).var(axis=0, ddof=1)
        assert 2 * at == n
        np.testing.assert_allclose(found, np.sqrt((at - 1) / at + between / within), rtol=1e-12)
    np.testing.assert_allclose(found, rhat_ess(np.swapaxes(x, 0, 1))[0], atol=0.05)
    assert found[1] > 1.03 > found[0]
    assert found[2] > 1.03


def test_the_effective_sample_size_is_that_of_the_process() -> None:
    """An autoregression has (1 - rho) / (1 + rho) of its draws; averaged over 200 quantities the error is small."""
    for rho, tolerance in ((0.0, 0.05), (0.5, 0.06), (0.9, 0.1)):
        found = streamed(chains(4000, p=200, rho=rho)).ess
        assert np.median(found) == pytest.approx(16_000 * (1 - rho) / (1 + rho), rel=tolerance)
    apart = chains(1000)
    apart[:, 0] += 3
    assert (streamed(apart).ess < 250).all()  # of 4000


def test_at_most_200_draws_are_kept_evenly_apart() -> None:
    x = chains(1000)
    found = streamed(x)
    t = found.draws.shape[1]
    assert KEPT // 8 < t <= KEPT // 4
    np.testing.assert_array_equal(found.draws, np.swapaxes(x[:: found.every], 0, 1))
    assert found.means.shape[0] == BATCHES
    none = Stream(2, 3, keep=False)
    none.add(np.ones((2, 3)))
    assert none.draws.shape == (2, 0, 3)


def test_what_has_no_answer_is_nan() -> None:
    short = streamed(chains(3))
    assert np.isnan([short.ess, short.rhat]).all()
    constant = streamed(np.ones((100, 4, 3)))
    assert np.isnan([constant.ess, constant.rhat]).all()
    np.testing.assert_array_equal(constant.sd, 0)
    with pytest.raises(ValueError, match=r"a draw needs shape \(4, 3\), got \(3,\)"):
        constant.add(np.ones(3))


@pytest.mark.parametrize("at", [0, 10, 77, 640])
def test_a_saved_stream_goes_on_bit_for_bit(at: int) -> None:
    x = chains(700)
    first = streamed(x[:at]) if at else Stream(4, 3)
    second = Stream(4, 3).load(first.save())
    for draw in x[at:]:
        second.add(draw)
    whole = streamed(x)
    for name in ("mean", "sd", "ess", "rhat", "draws"):
        np.testing.assert_array_equal(getattr(second, name), getattr(whole, name))
