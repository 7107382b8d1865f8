"""Maps and sets of which every state has its own version."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkern.algorithms.core.kept import PersistentMap, PersistentSet
from fedkern.algorithms.core.messages import ClientLost
from fedkern.algorithms.pvi import global_vi
from fedkern.algorithms.pvi import machine as pvi
from fedkern.algorithms.pvi.messages import Gradient, Parameters, QUpdate, SiteDelta
from fedkern.models.expfam import Gaussian
from support.federations import settings

CHANGES = st.lists(st.tuples(st.integers(0, 4), st.one_of(st.none(), st.integers())), max_size=12)


@given(CHANGES, CHANGES, st.lists(st.integers(0, 24), max_size=30))
def test_every_version_stays_what_it_was(changes: Any, others: Any, looks: list[int]) -> None:
    """Also of two that grew from the same one, in whatever order they are read."""
    begin: tuple[PersistentMap[int, int], dict[int, int]] = PersistentMap({0: 7}), {0: 7}
    versions = [begin]
    for start, path in ((begin, changes), (begin, others)):
        got, want = start
        for key, value in path:
            got = got.minus(key) if value is None else got.plus(key, value)
            want = {k: v for k, v in want.items() if k != key} | ({} if value is None else {key: value})
            versions.append((got, want))
    for i in [*looks, *range(len(versions))]:
        got, want = versions[i % len(versions)]
        assert got == want
        assert (len(got), sorted(got), bool(got)) == (len(want), sorted(want), bool(want))
        assert all((key in got) == (key in want) for key in range(5))


@given(CHANGES)
def test_a_set_is_a_set(changes: Any) -> None:
    got, want = PersistentSet([1, 2]), frozenset([1, 2])
    for key, value in changes:
        other = {key, 3}
        got, want = (got - other, want - other) if value is None else (got | other, want | other)
        assert got == want
        assert sorted(got) == sorted(want)
    assert (PersistentSet([1, 2]) | {2}) == {1, 2}
    assert PersistentSet() == frozenset()


def test_a_change_copies_nothing() -> None:
    many = PersistentMap((k, k) for k in range(1000))
    entries = many._own
    new = many.plus(1000, 0).minus(5)
    assert new._own is entries
    assert (len(many), len(new)) == (1000, 1000)
    assert (5 in many, 5 in new) == (True, False)


def test_missing_keys_are_said() -> None:
    with pytest.raises(KeyError):
        PersistentMap({1: 2}).minus(1)[1]
    assert PersistentMap({1: 2}).minus(3) == {1: 2}


def counted(work: Callable[[], Any]) -> int:
    """Calls of functions, Python's and C's."""
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def answer(question: Any) -> Any:
    """Of a client that has nothing to compute."""
    delta = np.full(2, 0.01)
    if isinstance(question, QUpdate):
        return SiteDelta(question.round, question.version, 0, delta, delta)
    return Gradient(question.round, delta, delta)


@pytest.mark.parametrize("schedule", ["sequential", "synchronous", "asynchronous", "random"])
@pytest.mark.parametrize("going", [False, True], ids=["all stay", "a quarter is lost"])
def test_what_a_message_costs_does_not_grow_with_the_clients(schedule: str, going: bool) -> None:
    assert grows_by(pvi, going, schedule=schedule, rounds=2) < 2.2


def test_nor_do_the_rounds_of_global_inference() -> None:
    assert grows_by(global_vi, False, optimiser="adagrad", rounds=2) < 2.2


def grows_by(machine: Any, going: bool, **keys: Any) -> float:
    """By how many times more calls twice as many clients take, without what is the same for all."""

    def play(n_clients: int) -> None:
        state, effects = machine.start(settings(**keys), Gaussian(np.zeros(2), np.ones(2)), n_clients)
        flying = deque(effects)
        while flying:
            client, question = flying.popleft()
            if isinstance(question, QUpdate | Parameters):
                event = ClientLost(client) if going and client % 4 == 0 else answer(question)
                state, effects = machine.server_receive(state, client, event)
                flying += effects
        assert machine.finished(state)

    first, second, third = (counted(lambda n=n: play(n)) for n in (60, 120, 240))
    return (third - second) / (second - first)
