"""Handles requests to end a run: TERM, INT, USR1 and HUP. Imports nothing heavy: handlers come before everything else."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any


class Stopped(KeyboardInterrupt):
    """Tells that a signal has ended the work, with nothing to keep. Handlers of ordinary errors do not catch it."""


class Signals:
    """Remembers a signal inside `with` instead of dying of it; the next question or answer acts on `pending`.

    Parameters
    ----------
    at_once
        While a program starts, reads and searches: a signal raises `Stopped` wherever it is, except inside `held`.

    Attributes
    ----------
    pending : name of the signal that came
    stopped : the exception that was raised; others may have made another one of it
    advice : the text after the signal's name
    """

    NAMES = ("SIGTERM", "SIGUSR1", "SIGINT", "SIGHUP")
    AGAIN = 0.3  # seconds after which `Stopped` is raised again: some code swallows it

    def __init__(self, *, at_once: bool = False) -> None:
        self.at_once = at_once
        self.pending: str | None = None
        self.stopped: Stopped | None = None
        self.advice = ""
        self._before: dict[int, Any] = {}
        self._unraisable: Callable[[sys.UnraisableHookArgs], object] = sys.unraisablehook

    def __enter__(self) -> Signals:
        numbers = [getattr(signal, name) for name in self.NAMES]
        for number in numbers:
            if signal.getsignal(number) != signal.SIG_IGN:  # by nohup, or by a shell that started us in the background
                self._before[number] = signal.signal(number, self._remember)
        if self.at_once:
            self._before[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._again)
            self._unraisable, sys.unraisablehook = sys.unraisablehook, self._quiet
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)  # a launcher may keep them from itself, and so from us
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.at_once = False
        if signal.SIGALRM in self._before:
            signal.setitimer(signal.ITIMER_REAL, 0)
            sys.unraisablehook = self._unraisable
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Keeps a piece of work from being cut in two.

        Yields whether the code around it may be cut; then a signal acts at the end.
        """
        around, self.at_once = self.at_once, False
        try:
            yield around
        finally:
            self.at_once = around
        if around:
            self.act()

    @contextmanager
    def deadly(self, code: int, words: str = "") -> Iterator[None]:
        """Lets a signal end the process at once during a call that lets no Python run.

        `words`: the last ones, {} the signal's name.
        """
        from .. import _core

        numbers = [number for number in self._before if number != signal.SIGALRM]
        try:
            for number in numbers:
                _core.signals.exit_at(number, code, words.format(signal.Signals(number).name))
            yield
        finally:
            for number in numbers:
                signal.signal(number, self._remember)

    def hold(self) -> None:
        """Only remembers signals from now on, since the run has something to keep."""
        self.at_once = False

    def ignore(self) -> None:
        """Ignores signals from now on."""
        for name in self.NAMES:
            signal.signal(getattr(signal, name), signal.SIG_IGN)

    def act(self) -> None:
        """Raises `Stopped` if a signal has come."""
        if self.pending:
            self.stopped = Stopped(f"stopped by {self.pending}{self.advice}")
            if signal.SIGALRM in self._before:
                signal.setitimer(signal.ITIMER_REAL, self.AGAIN)
            raise self.stopped

    def _remember(self, number: int, frame: FrameType | None) -> None:
        again, self.pending = self.pending, signal.Signals(number).name
        if self.at_once or (again and number == signal.SIGINT):  # pressed twice: now
            self.act()

    def _quiet(self, unraisable: sys.UnraisableHookArgs) -> None:
        if unraisable.exc_type is not Stopped:  # it comes again
            self._unraisable(unraisable)

    def _again(self, number: int, frame: FrameType | None) -> None:
        """Raises `Stopped` again, in case some code has swallowed it."""
        if self.at_once:
            self.act()
