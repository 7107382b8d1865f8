"""`check_place` sees a place that forgets who is ahead, or what comes after the result."""

from __future__ import annotations

from typing import Any

import pytest
from threadpoolctl import threadpool_limits

from fedkern.errors import JobError
from fedkern.testing.places import check_place
from fedkern.transports.relay_hub import HubLink
from support.outside import threads


def test_a_hub_that_takes_what_comes_ahead_for_the_answer_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HubLink, "_is_ahead", lambda self, tag: False)
    with threadpool_limits(1, user_api="blas"), pytest.raises(AssertionError, match="exit codes"):
        check_place(threads.over)


def test_a_place_that_cuts_what_is_told_is_seen() -> None:
    def over(main: Any, names: Any) -> Any:
        def cutting(place: Any) -> int:
            settle = place.settle
            place.settle = lambda told, rule: settle(told[:50_000], rule)
            return int(main(place))

        return threads.over(cutting, names)

    with threadpool_limits(1, user_api="blas"), pytest.raises(AssertionError, match="exit codes"):
        check_place(over)


def test_a_wire_that_loses_a_fault_after_the_last_answer_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job is over, so the server hears no more of its sites than that they leave."""

    def over(main: Any, names: Any) -> Any:
        def leaving(place: Any) -> int:
            try:
                return int(main(place))
            except JobError as error:
                if "after the last answer" in str(error):
                    return 0
                raise

        return threads.over(leaving, names)

    with (
        threadpool_limits(1, user_api="blas"),
        pytest.raises(AssertionError, match="a fault of one client after its last answer"),
    ):
        check_place(over)
