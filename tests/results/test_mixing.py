"""Kept draws of which a chain is constant are judged too."""

from __future__ import annotations

import numpy as np

from fedkern.results import diagnostics, mixing

RANDOM = np.random.default_rng(8)


def test_a_chain_that_never_moves_is_no_chain_without_an_answer() -> None:
    x = RANDOM.normal(size=(4, 200, 5))
    x[0, :, 1] = 3.0  # one chain does not move, where the others are not
    x[:, :, 2] = np.arange(4)[:, None]  # none does
    x[:, :, 3] = 1.0  # all of them agree: there is no question
    x[1, :, 4] = 0.0  # one does not move, where the others are
    rhat, ess = mixing.published_rhat_ess(x)
    np.testing.assert_array_equal([rhat[0], ess[0]], np.ravel(diagnostics.rhat_ess(x[..., :1])))
    assert rhat[1] > 1.3
    assert ess[1] < 8
    assert (rhat[2], ess[2]) == (np.inf, 1.0)
    assert np.isnan([rhat[3], ess[3]]).all()
    assert rhat[4] < 1.05
    error = mixing.published_mean_error(x)
    assert error[3] == 0
    assert error[1] > 0.3
    assert abs(error[0] - 1 / np.sqrt(800)) < 0.01
    assert error[2] > 0.3


def test_what_is_not_finite_has_no_answer() -> None:
    x = RANDOM.normal(size=(2, 50, 2))
    x[0, 3, 1] = np.nan
    assert np.isnan(mixing.published_rhat_ess(x)[0]).tolist() == [False, True]
    assert np.isnan(mixing.published_mean_error(x)).tolist() == [False, True]
