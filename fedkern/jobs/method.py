"""What the engine asks of a method: its files, which have the same names in each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ..results.plain import Record
from ..results.report import Report
from .check import Check, OwnFile, Said
from .keys import Keys
from .parties import Parties
from .publish import Fit
from .run import Run
from .stage import Stage


class Rows(Protocol):
    """`rows`: who takes part, and what a client's rows are."""

    def parties(self, config: Any, folder: Path) -> Parties: ...


class Running(Protocol):
    """`run`: the part of one place in a job; what comes of it at the server's place, None elsewhere."""

    def fit(self, run: Run[Any]) -> Fit | None: ...


class Stages(Protocol):
    """`stages`: what leaves a party: before anything but the job file is known, and then by the model; and what `check` says."""

    def opening(self, config: Any) -> Sequence[Stage]: ...

    def stages(self, model: Any) -> Sequence[Stage]: ...

    def checked(self, at: Check[Any]) -> Said | None: ...

    def look_through(self, file: OwnFile[Any]) -> None: ...


class Show(Protocol):
    """`show`: what a finished run prints."""

    def lines(self, content: Record, why: str) -> Iterator[str]: ...


class Method(NamedTuple):
    """One method's doors."""

    keys: Keys[Any]
    rows: Rows
    run: Running
    stages: Stages
    show: Show
    report: Report
