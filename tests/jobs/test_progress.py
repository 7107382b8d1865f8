"""Who is waited for, as the terminal says it."""

from __future__ import annotations

import io

import pytest

from fedkern.jobs import progress
from fedkern.jobs.progress import Progress


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    own = Clock()
    monkeypatch.setattr(progress, "time", own)
    return own


def test_over_mpi_it_is_said_while_nothing_comes(clock: Clock) -> None:
    """Asked every five seconds; an answer begins the wait for the others anew."""
    out = io.StringIO()
    with Progress(None, stream=out) as shown:
        for clock.now in (0.0, 5.0, 10.0, 15.0, 20.0):
            shown.waiting(["'a'", "'b'"])
        clock.now = 22.0
        shown.heard()
        for clock.now in (25.0, 30.0, 35.0):
            shown.waiting(["'b'"])
    assert out.getvalue().splitlines() == [
        "fedkern: waits for 'a', 'b' (10 s)",
        "fedkern: waits for 'a', 'b' (20 s)",
        "fedkern: waits for 'b' (10 s)",
    ]


def test_in_one_process_it_is_said_when_the_slow_answer_is_there(clock: Clock) -> None:
    out = io.StringIO()
    with Progress(None, stream=out) as shown:
        for k in range(3):
            shown.waiting(["'a'"])
            clock.now += 0.1
            shown.waiting(["'b'"])
            clock.now += 12.0 if k == 1 else 0.1
            shown.heard()
    assert out.getvalue() == "fedkern: waits for 'b' (12 s)\n"


def test_nothing_is_said_if_quiet(clock: Clock) -> None:
    out = io.StringIO()
    with Progress(None, quiet=True, stream=out) as shown:
        shown.waiting(["'a'"])
        clock.now = 100.0
        shown.waiting(["'a'"])
        shown.heard()
    assert out.getvalue() == ""


def test_a_bar_says_it_after_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    out = io.StringIO()
    out.isatty = lambda: True  # type: ignore[method-assign]
    with Progress(4, stream=out) as shown:
        shown.waiting(["'a'"])
        shown.show(1, "acceptance 0.8")
        shown._bar.refresh()
    assert "waits for 'a' (0 s)" in out.getvalue()
