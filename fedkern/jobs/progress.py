"""Shows how far a run is, and who is waited for.

With a terminal or in a notebook it is a bar, else at most one line in ten seconds, and nothing if quiet.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from types import TracebackType
from typing import Any, TextIO

SECONDS = 10.0
PATIENCE = 2.0  # seconds after which a bar says who is waited for


def in_notebook() -> bool:
    """Tells whether this process is the kernel of a notebook, without importing anything."""
    shell = sys.modules.get("IPython")
    return shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell"


class Progress:
    """Shows the progress of a run, as a context manager on the server's rank; the other ranks are quiet."""

    def __init__(self, total: int | None, *, quiet: bool = False, stream: TextIO | None = None, unit: str = "round") -> None:
        self.total, self.quiet, self.unit = total, quiet, unit
        self.stream = stream or sys.stderr
        self._bar: Any = None
        self._task: Any = None
        self._last = time.monotonic()
        self._waiting: tuple[str, ...] = ()
        self._since = self._said = self._last

    def __enter__(self) -> Progress:
        # A notebook's bar is drawn by ipywidgets; rich would warn at every step where they are missing.
        notebook = self.stream is sys.stderr and in_notebook() and find_spec("ipywidgets") is not None
        if not self.quiet and (notebook or self.stream.isatty()):
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn
            from rich.text import Text

            class Waiting(ProgressColumn):
                def render(column, task: object) -> Text:
                    return Text(self._slow(PATIENCE))

            columns = [
                TextColumn(f"{self.unit}s"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.description}"),
                Waiting(),
            ]
            self._bar = Progress(*columns, console=Console(file=None if notebook else self.stream), transient=True)
            self._task = self._bar.add_task("", total=self.total)
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def waiting(self, names: Sequence[str]) -> None:
        """Notes that these clients have been silent for a while, or that one of them begins to answer; called often."""
        now = time.monotonic()
        if self._waiting and now - max(self._since, self._said) >= SECONDS:
            self._say(now)
        if tuple(names) != self._waiting:
            self._waiting, self._since = tuple(names), now

    def heard(self) -> None:
        """Notes that an answer has come."""
        now = time.monotonic()
        if self._waiting and now - max(self._since, self._said) >= SECONDS:  # of one process, which could say nothing meanwhile
            self._say(now)
        self._waiting, self._since = (), now

    def _slow(self, seconds: float) -> str:
        """Returns who is waited for, if for so long."""
        waited, names = time.monotonic() - self._since, self._waiting
        return f"waits for {', '.join(names)} ({waited:.0f} s)" if names and waited >= seconds else ""

    def _say(self, now: float) -> None:
        self._said = now
        if self._bar is None and not self.quiet:
            print(f"fedkern: {self._slow(0)}", file=self.stream, flush=True)

    def show(self, rounds: int, what: str, since: int = 0) -> None:
        """Shows that so many rounds are done; `what` is a few words, such as the last metrics.

        `since`: the round after which they were counted anew, all of them.
        """
        total = self.total and since + self.total
        if self._bar is not None:
            self._bar.update(self._task, completed=rounds, total=total, description=what)
        elif not self.quiet and time.monotonic() - self._last >= SECONDS:
            self._last = time.monotonic()
            of = f" of {total}" if total else ""
            print(f"fedkern: {self.unit} {rounds}{of}{', ' + what if what else ''}", file=self.stream, flush=True)
