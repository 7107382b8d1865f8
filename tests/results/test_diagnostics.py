"""R-hat and ESS against ArviZ itself, and where there is nothing to compute."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
import pytest

from fedkern.errors import JobError
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


def test_without_arviz(monkeypatch: pytest.MonkeyPatch) -> None:
    diagnostics._stats.cache_clear()
    for name in ("arviz_stats", "arviz_stats.base.array"):  # which another test may have imported
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(JobError, match=r"need arviz-stats .*: pip install 'fedkern\[results\]'"):
        rhat_ess(chains())
    monkeypatch.setattr(diagnostics, "find_spec", lambda name: None)
    diagnostics.available.cache_clear()
    assert not diagnostics.available()
    diagnostics.available.cache_clear()


def test_nothing_is_hidden_from_other_threads() -> None:
    code = """
import sys, threading
import numpy as np
from fedkern.results.diagnostics import rhat_ess
done = threading.Event()
other = threading.Thread(target=done.wait)
other.start()
rhat_ess(np.random.default_rng(1).standard_normal((4, 50, 2)))
done.set()
assert "arviz_stats" in sys.modules and sys.modules.get("xarray", 0) is not None
"""
    assert python("-c", code).code == 0


def test_who_imports_arviz_stats_later_gets_all_of_it() -> None:
    """xarray is hidden while ours is imported, and is there afterwards; what it came with is forgotten."""
    code = """
import sys
import numpy as np
from fedkern.results.diagnostics import rhat_ess
from support.command import python
found = rhat_ess(np.random.default_rng(1).standard_normal((4, 50, 2)))
assert not {"xarray", "pandas", "arviz_stats", "arviz_stats.base"} & sys.modules.keys()
import arviz_stats.base.array, xarray
assert xarray.Dataset
assert arviz_stats.base.array_stats is sys.modules["arviz_stats.base.array"].array_stats
np.testing.assert_array_equal(rhat_ess(np.random.default_rng(1).standard_normal((4, 50, 2))), found)
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
