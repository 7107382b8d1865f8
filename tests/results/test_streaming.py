"""Streaming summaries against those of the kept draws."""

from __future__ import annotations

import numpy as np
import pytest

from fedkern.results.diagnostics import MARKED, normal_scores, rhat_ess
from fedkern.results.mixing import BATCHES, FEWEST, KEPT, Stream

RANDOM = np.random.default_rng(6)


@pytest.fixture(autouse=True)
def _begins_anew() -> None:
    """Whichever cases ran before."""
    RANDOM.bit_generator.state = np.random.default_rng(6).bit_generator.state


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
    stream = streamed(x)
    found = stream.rhat
    at = stream.full // 2 * stream.length
    within, between = stream._halves(slice(None))
    moments = np.sqrt((n / 2 - 1) / (n / 2) + between / within)
    if n in (64, 1024):  # here the middle lies between two batches: the textbook's formula
        halves = np.concatenate([x[:at], x[at:]], axis=1)
        within, between = halves.var(axis=0, ddof=1).mean(axis=0), halves.mean(axis=0).var(axis=0, ddof=1)
        assert 2 * at == n
        np.testing.assert_allclose(moments, np.sqrt((at - 1) / at + between / within), rtol=1e-12)
    assert (found >= moments * (1 - 1e-12)).all()  # ranks may say more
    np.testing.assert_allclose(found, moments, atol=0.02)
    np.testing.assert_allclose(found, rhat_ess(np.swapaxes(x, 0, 1))[0], atol=0.05)
    assert found[1] > 1.03 > found[0]
    assert found[2] > 1.03


def test_while_batches_are_single_draws_r_hat_is_that_of_arviz_or_of_the_moments() -> None:
    import arviz

    x = chains(30, p=40, rho=0.5)
    x[:, 0] += np.linspace(0, 2, 40)
    stream = streamed(x)
    assert (stream.length, stream.full) == (1, 30)
    within, between = stream._halves(slice(None))
    halves = np.concatenate([x[:15], x[15:]], axis=1)
    scores = normal_scores(halves.reshape(-1, 40)).reshape(15, 8, 40)
    ranks = [float(arviz.rhat(scores[:, :, j].T, method="identity")) for j in range(40)]
    np.testing.assert_allclose(stream.rhat, np.maximum(np.sqrt(14 / 15 + between / within), ranks), rtol=1e-12)


def test_a_wild_draw_does_not_hide_chains_that_are_apart() -> None:
    x = chains(1000, p=100, rho=0.5)
    x[:, 0] += 1
    within, between = streamed(x)._halves(slice(None))
    assert np.sqrt(1 + between / within).min() > MARKED
    x[37, 2] = 1e6
    within, between = streamed(x)._halves(slice(None))
    assert np.sqrt(1 + between / within).max() < 1.002  # moments see nothing
    found = streamed(x)
    assert found.rhat.min() > 1.008
    assert found.ess.max() < 300  # of 4000, and of 1333 in an autoregression that is where it should be


def test_the_effective_sample_size_is_that_of_the_process() -> None:
    """An autoregression has (1 - rho) / (1 + rho) of its draws; averaged over 200 quantities the error is small."""
    for rho, tolerance in ((0.0, 0.08), (0.5, 0.08), (0.9, 0.1)):
        found = streamed(chains(4000, p=200, rho=rho)).ess
        assert np.median(found) == pytest.approx(16_000 * (1 - rho) / (1 + rho), rel=tolerance)
    apart = chains(1000)
    apart[:, 0] += 3
    assert (streamed(apart).ess < 250).all()  # of 4000


def test_chains_that_never_meet_are_worth_no_more_than_two_draws_each() -> None:
    for c in (2, 4, 8):
        for n in (40, 500, 1000):
            apart = chains(n, c=c, p=20, rho=0.5) + 100.0 * np.arange(c)[:, None]
            assert streamed(apart).ess.max() <= 2 * c
            assert streamed(apart).rhat.min() > 10
            assert rhat_ess(np.swapaxes(apart, 0, 1))[1].max() <= 2 * c  # of kept draws
    constant = np.ones((100, 4, 3)) * np.arange(4)[:, None]
    np.testing.assert_array_equal(streamed(constant).rhat, np.inf)
    np.testing.assert_array_equal(streamed(constant).ess, 1.0)


def test_chains_that_hardly_move_are_seen() -> None:
    found = streamed(chains(480, p=1500, rho=0.999))
    assert found.ess.max() <= 40
    assert found.rhat.min() > MARKED


@pytest.mark.parametrize("n", [500, 1000, 2500])
def test_chains_that_mix_are_not_slandered(n: int) -> None:
    """1,500 quantities, each worth 400 draws: what the least of them shows is chance."""
    slowness = n / 100
    found = streamed(chains(n, p=1500, rho=(slowness - 1) / (slowness + 1))).ess
    assert np.median(found) == pytest.approx(400, rel=0.15)
    assert np.quantile(found, 0.01) >= 160
    assert FEWEST * 4 <= found.min()


def test_streams_and_kept_draws_judge_alike() -> None:
    for n, rho in ((1000, 0.3), (1000, 0.9), (2500, 0.97)):
        x = chains(n, p=60, rho=rho)
        x[:, 0, 40:] += np.linspace(0.5, 3, 20)
        kept, stream = rhat_ess(np.swapaxes(x, 0, 1)), streamed(x)
        good, bad = slice(40), slice(45, 60)
        assert np.median(stream.ess[good]) == pytest.approx(np.median(kept[1][good]), rel=0.15)
        np.testing.assert_allclose(stream.rhat[good], kept[0][good], atol=0.03)
        assert (stream.ess[bad] < 0.2 * np.median(stream.ess[good])).all()
        assert (stream.rhat[bad] > MARKED).all() == (kept[0][bad] > MARKED).all()


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
    rounded = streamed(np.full((100, 4, 3), 0.1))  # a sum of three of them is not .3
    assert np.isnan([rounded.ess, rounded.rhat]).all()
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
