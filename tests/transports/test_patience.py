"""Waiting: how long it sleeps, what it costs, and that a ring ends it."""

import threading
import time

import pytest

from fedkern.transports import link as module
from fedkern.transports.link import Bell, Patience


@pytest.fixture
def bells():
    pair = Bell("test", 0), Bell("test", 1)
    yield pair
    for bell in pair:
        bell.close()


def test_a_ring_ends_a_sleep(bells):
    threading.Timer(0.05, bells[1].ring, [0]).start()
    before = time.monotonic()
    assert bells[0].wait(30)
    assert time.monotonic() - before < 10


def test_a_ring_before_the_sleep_is_not_lost_and_counts_once(bells):
    for _ in range(3):
        bells[1].ring(0)
    assert bells[0].wait(30)
    assert not bells[0].wait(0.01)


def test_ringing_nobody_or_too_often_does_no_harm(bells):
    bells[0].ring(7)
    for _ in range(10_000):
        bells[0].ring(1)
    assert bells[1].wait(30)


def test_sleeps_grow_with_the_time_waited_up_to_the_longest(monkeypatch):
    now, sleeps = [0.0], []

    class Clock:
        monotonic = staticmethod(lambda: now[0])

        @staticmethod
        def sleep(seconds):
            sleeps.append(seconds)
            now[0] += seconds

    monkeypatch.setattr(module, "time", Clock)
    patience = Patience(0.001)
    patience.longest = 0.5
    for _ in range(96):
        patience.pause()
        now[0] += 1e-5
    assert not sleeps
    while now[0] < 60:
        patience.pause()
        now[0] += 1e-5
    assert sleeps == sorted(sleeps)
    assert sleeps[-1] == 0.5
    assert all(seconds <= sum(sleeps[:i]) / 8 + 0.01 for i, seconds in enumerate(sleeps))


def test_a_ring_makes_it_look_again_and_again(bells):
    patience = Patience(10.0)
    patience.bell, patience.since = bells[0], time.monotonic() - 20
    bells[1].ring(0)
    while not patience.pause():
        pass
    assert patience.waited < 10
