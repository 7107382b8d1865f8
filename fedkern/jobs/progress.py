"""How far a run is: a bar with a terminal, at most one line in ten seconds without, nothing if quiet."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, TextIO

SECONDS = 10.0


class Progress:
    """Used as a context manager on the server's rank; the other ranks are quiet."""

    def __init__(self, total: int | None, *, quiet: bool = False, stream: TextIO | None = None, unit: str = "round") -> None:
        self.total, self.quiet, self.unit = total, quiet, unit
        self.stream = stream or sys.stderr
        self._bar: Any = None
        self._task: Any = None
        self._last = time.monotonic()

    def __enter__(self) -> Progress:
        if not self.quiet and self.stream.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = [
                TextColumn(f"{self.unit}s"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.description}"),
            ]
            self._bar = Progress(*columns, console=Console(file=self.stream), transient=True)
            self._task = self._bar.add_task("", total=self.total)
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, rounds: int, what: str, since: int = 0) -> None:
        """So many rounds are done; `what` is a few words, such as the last metrics. `since`: the round after which they were
        counted anew, all of them."""
        total = self.total and since + self.total
        if self._bar is not None:
            self._bar.update(self._task, completed=rounds, total=total, description=what)
        elif not self.quiet and time.monotonic() - self._last >= SECONDS:
            self._last = time.monotonic()
            of = f" of {total}" if total else ""
            print(f"fedkern: {self.unit} {rounds}{of}{', ' + what if what else ''}", file=self.stream, flush=True)
