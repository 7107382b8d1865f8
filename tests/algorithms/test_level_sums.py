"""The exchange of levels: shares of all clients' rows, and answers that cannot be."""

from __future__ import annotations

import numpy as np
import pytest

from fedkern.algorithms.core.messages import RemoteFault
from fedkern.algorithms.exchanges import level_sums
from fedkern.algorithms.exchanges.level_sums import AskLevels, LevelNumbers
from support.refusal import refusal


def numbers(*counts: float) -> LevelNumbers:
    return LevelNumbers(0, np.array(counts)[:, np.newaxis], np.zeros((0, len(counts), 1)))


def test_all_parties_know_the_shares_of_all_rows_and_half_a_row_stands_for_none() -> None:
    state, effects = level_sums.start(("ada", "bo"), 3)
    assert len(effects) == 2
    state, effects = level_sums.PROTOCOL.server_receive(state, 1, numbers(10, 0, 5))
    assert not effects
    assert not state.done
    state, effects = level_sums.PROTOCOL.server_receive(state, 0, numbers(20, 0, 15))
    assert state.done
    np.testing.assert_array_equal(state.numbers, [30, 0, 20])
    client, answer = level_sums.client_receive(level_sums.Client(np.array([20.0, 0.0, 15.0])), AskLevels(0, np.zeros(3)))
    assert answer[0].seen[:, 0].tolist() == [20, 0, 15]
    assert state.shares is not None
    client, answer = level_sums.client_receive(client, AskLevels(1, state.shares))
    assert not answer
    np.testing.assert_allclose(client.shares, np.array([30, 0.5, 20]) / 50.5)


@pytest.mark.parametrize("wrong", [(-1.0, 2.0), (0.5, 2.0), (np.nan, 2.0), (np.inf, 1.0), (1e300, 1.0)])
def test_numbers_that_no_client_has_are_its_fault(wrong: tuple[float, float]) -> None:
    state, _ = level_sums.start(("ada", "bo"), 2)
    with refusal(RemoteFault, "0", "LevelNumbers"):
        level_sums.PROTOCOL.server_receive(state, 0, numbers(*wrong))


def test_sums_of_responses_that_are_drawn_anew_have_as_many_rows_as_there_are() -> None:
    seen, again = np.array([[4.0, 1.23456], [3.0, -20.0]]), np.array([[[5.0, 1.0], [2.0, 3.0]]])
    told = LevelNumbers(0, seen, again).leaving()
    assert told.seen[0].tolist() == [4.0, 1.235]
    assert not told.wrong()
    again[0, 0, 0] = 6.0
    assert "other numbers of rows" in LevelNumbers(0, seen, again).leaving().wrong()
    few = LevelNumbers(0, seen / 4 * [1, 1], again).leaving()  # fewer than five rows
    assert not few.seen.any()
    assert not few.again.any()
