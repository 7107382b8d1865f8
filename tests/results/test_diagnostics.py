"""R-hat and ESS against ArviZ itself, and where there is nothing to compute."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from fedkern.results import diagnostics
from fedkern.results.diagnostics import rhat_ess
from support.command import python

RANDOM = np.random.default_rng(5)


def chains(c: int = 4, t: int = 200, *shape: int, rho: float = 0.6) -> Any:
    """Autocorrelated draws."""
    x = RANDOM.normal(size=(c, t, *shape))
    for i in range(1, t):
        x[:, i] += rho * x[:, i - 1]
    return x


def test_both_are_those_of_arviz_column_by_column() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import arviz
    x = chains(4, 200, 2, 3)
    x[0, :, 0, 1] += 2  # a chain elsewhere
    x[:, :, 1, 2] = np.exp(3 * x[:, :, 1, 2])  # heavy tails: ranks see none of it
    rhat, ess = rhat_ess(x)
    assert rhat.shape == ess.shape == (2, 3)
    for i in range(2):
        for j in range(3):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                assert rhat[i, j] == pytest.approx(float(arviz.rhat(x[..., i, j], method="rank")), rel=1e-12)
                assert ess[i, j] == pytest.approx(float(arviz.ess(x[..., i, j], method="bulk")), rel=1e-12)
    assert rhat[0, 1] > 1.2 > 1.1 > rhat[0, 0]
    assert ess[0, 1] < 0.2 * ess[0, 0]


def test_what_has_no_answer_is_nan_and_spoils_nothing_else() -> None:
    x = chains(3, 100, 5)
    x[:, :, 1] = 1.0  # constant
    x[1, :, 2] = 0.3  # one chain is
    x[0, 7, 3] = np.nan
    x[2, 1, 4] = np.inf
    rhat, ess = rhat_ess(x)
    assert np.isnan(rhat[1:]).all()
    assert np.isnan(ess[1:]).all()
    np.testing.assert_array_equal([rhat[0], ess[0]], np.ravel(rhat_ess(x[..., :1])))
    assert np.isnan(np.ravel(rhat_ess(chains(4, 3, 2)))).all()  # too short
    assert rhat_ess(np.zeros((0, 10, 2)))[0].shape == (2,)
    assert all(np.ndim(found) == 0 and np.isfinite(found) for found in rhat_ess(chains(2, 50)))


SHAPES = [(1, 4), (1, 9), (2, 5), (2, 6), (2, 7), (3, 8), (4, 11), (4, 16), (5, 31), (4, 100), (2, 333)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("rho", [-0.95, 0.0, 0.6, 0.95, 1.0])
def test_every_length_and_kind_of_chain_is_as_in_arviz_stats(shape: tuple[int, int], rho: float) -> None:
    """Odd lengths, ties, wild tails, chains apart, one that is constant: both agree, also where neither has a number."""
    arviz = pytest.importorskip("arviz_stats").base.array_stats
    c, t = shape
    kinds = np.repeat(chains(c, t, 1, rho=rho), 5, axis=2)
    kinds[..., 1] = np.round(kinds[..., 1])
    kinds[..., 2] = np.exp(3 * kinds[..., 2])
    kinds[0, :, 3] += 5
    kinds[0, :, 4] = kinds[0, 0, 4]
    halves = diagnostics._halves(kinds)
    scores = diagnostics.normal_scores(halves.reshape(-1, 5)).reshape(halves.shape)
    for kind in range(5):
        x = kinds[..., kind]
        axes = {"chain_axis": 0, "draw_axis": 1}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            bulk, mean = arviz.ess(x, method="bulk", **axes), arviz.ess(x, method="mean", **axes)
            rhat = arviz.rhat(x, method="z_scale", **axes) if c > 1 else np.nan
        one = slice(kind, kind + 1)
        np.testing.assert_allclose(diagnostics._ess(scores[..., one])[0], bulk, rtol=1e-10)
        np.testing.assert_allclose(diagnostics._ess(halves[..., one])[0], mean, rtol=1e-10)
        if c > 1:  # of one chain ArviZ gives no R-hat, and ours is that of its halves
            np.testing.assert_allclose(diagnostics._rhat(scores[..., one])[0], rhat, rtol=1e-10)


def test_ranks_are_shared_by_equal_values_and_spoilt_by_nan() -> None:
    values = np.array([[3.0, 1.0], [1.0, np.nan], [3.0, 2.0], [2.0, 0.0]])
    ranks = diagnostics._ranks(values)
    assert ranks[:, 0].tolist() == [3.5, 1.0, 3.5, 2.0]
    assert np.isnan(ranks[:, 1]).all()
    assert diagnostics._ranks(np.empty((0, 2))).shape == (0, 2)


def test_neither_arviz_nor_the_distributions_of_scipy_are_imported() -> None:
    code = """
import sys
import numpy as np
from fedkern.results.diagnostics import mean_error, rhat_ess
x = np.random.default_rng(1).standard_normal((4, 50, 2))
rhat_ess(x), mean_error(x)
assert not {"xarray", "pandas", "arviz_stats", "scipy.stats"} & sys.modules.keys()
"""
    assert python("-c", code).code == 0


def test_draws_need_two_axes() -> None:
    with pytest.raises(ValueError, match=r"draws need shape \(chains, draws, ...\), got \(5,\)"):
        rhat_ess(np.zeros(5))


def test_the_error_of_a_mean_is_that_of_arviz() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import arviz
    x = chains(4, 300, 3)
    x[1, :, 1] += 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = arviz.mcse({"x": x}, method="mean")["x"].values
    np.testing.assert_allclose(diagnostics.mean_error(x), expected, rtol=1e-10)
    assert np.isnan(diagnostics.mean_error(np.ones((4, 100, 1)))).all()
