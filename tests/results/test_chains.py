"""Chains that stay apart, from draws whose modes are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedkern.results import chains, diagnostics, selection
from fedkern.results.mixing import Stream

C, T, P = 8, 200, 5


def draws(seed: int = 1) -> Any:
    """(8, 200, 5) in one mode at (.6, .4, 0, 0, 0), sd .1."""
    return np.array([0.6, 0.4, 0.0, 0.0, 0.0]) + 0.1 * np.random.default_rng(seed).normal(size=(C, T, P))


def stream(values: Any) -> Stream:
    made = Stream(len(values), values.shape[2])
    for t in range(values.shape[1]):
        made.add(values[:, t])
    return made


def found(values: Any) -> list[tuple[tuple[int, ...], bool]]:
    both = [[(group.chains, group.moved) for group in chains.groups(told)] for told in (values, stream(values))]
    assert both[0] == both[1]  # draws and their stream say the same
    return both[0]


def test_chains_that_agree_are_one_group() -> None:
    assert found(draws()) == [(tuple(range(C)), False)]
    assert found(draws()[:1]) == [((0,), False)]


def test_a_stuck_chain_is_a_group_of_its_own() -> None:
    stuck = draws()
    stuck[7, :, 0] += 2.0
    stuck[7, :, 2] -= 1.0
    assert found(stuck) == [((0, 1, 2, 3, 4, 5, 6), False), ((7,), False)]
    assert [group.signs for group in chains.groups(stuck)] == [{0: 1, 2: 0}, {0: 1, 2: -1}]
    rhat = diagnostics.rhat_ess(stuck)[0]
    assert rhat[[0, 2]].min() > 1.1  # far above what any job would call converged
    assert rhat[[1, 3, 4]].max() < 1.05


def test_who_moved_between_modes_is_in_neither_of_them() -> None:
    moved = draws()
    moved[[4, 5, 6], :, 1] -= 1.5
    moved[7, 80:, 1] -= 1.5
    assert found(moved) == [((0, 1, 2, 3), False), ((4, 5, 6), False), ((7,), True)]
    every = draws()
    every[:, ::3, 1] -= 1.5  # all of them visit both modes: their common mean is right
    assert found(every) == [(tuple(range(C)), False)]


def test_slow_chains_in_one_mode_are_not_apart_though_r_hat_is_large() -> None:
    """Of 200 such runs with two effective draws of a chain, 12 coefficients each, at most one is taken for several modes."""
    random, rho, c = np.random.default_rng(3), 0.98, 4
    slow = np.empty((T, c, 200 * 12))
    slow[0] = 0.3 * random.normal(size=slow[0].shape)
    for t in range(1, T):
        slow[t] = rho * slow[t - 1] + 0.3 * np.sqrt(1 - rho**2) * random.normal(size=slow[0].shape)
    runs = np.split(np.swapaxes(slow, 0, 1), 200, axis=2)
    assert np.nanmax(diagnostics.rhat_ess(runs[0])[0]) > 1.3
    assert sum(len(chains.groups(run)) > 1 for run in runs) <= 1


def test_what_is_too_close_or_too_short_to_be_a_mode() -> None:
    close = draws() / 100
    close[7, :, 3] += selection.GAP - 0.01
    assert len(found(close)) == 1
    close[7, :, 3] += 0.02
    assert len(found(close)) == 2
    assert len(found(close[:, : chains.LEAST - 1])) == 1
    assert len(found(close[:, : chains.LEAST])) == 2


def test_constant_chains_are_compared_by_their_values() -> None:
    values = np.zeros((3, 30, 2))
    assert len(found(values)) == 1
    values[1] = 1.0
    assert found(values) == [((0, 2), False), ((1,), False)]


@pytest.mark.parametrize(
    ("sizes", "moved", "text"),
    [
        ((7, 1), 0, "2 modes, of 7 and 1 of 8 chains"),
        ((4, 3), 1, "2 modes, of 4 and 3 of 8 chains; 1 moved between modes"),
        ((2, 1, 1), 0, "3 modes, of 2, 1 and 1 of 4 chains"),
        ((3,), 1, "1 mode, of 3 of 4 chains; 1 moved between modes"),
        ((), 4, "all 4 chains have moved between modes"),
    ],
)
def test_how_they_are_counted(sizes: tuple[int, ...], moved: int, text: str) -> None:
    groups = [chains.Group(tuple(range(n)), False, {}) for n in sizes] + [chains.Group((9,), True, {})] * moved
    assert chains.describe_groups(groups) == text


def test_blank_parameters_keep_what_judges_all_chains() -> None:
    row = {"mean": 1.0, "q05": 0.0, "pip": 0.9, "rhat": 1.4, "ess": 12.0}
    without = row | dict.fromkeys(("mean", "q05", "pip"), np.nan)
    assert chains.blank({"theta[a]": row})["theta[a]"] == pytest.approx(without, nan_ok=True)


def test_the_stream_of_some_chains_is_as_if_the_others_had_not_been() -> None:
    values = draws()
    part, alone = stream(values).of([1, 4]), stream(values[[1, 4]])
    for name in ("mean", "sd", "ess", "rhat"):
        np.testing.assert_allclose(getattr(part, name), getattr(alone, name), rtol=1e-12)
    assert part.draws.shape[::2] == (2, P)
