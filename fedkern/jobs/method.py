"""What the engine asks of a method: its files, which have the same names in each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ..algorithms.core.messages import Message
from ..privacy.plan import Plan
from ..results.plain import Record
from ..results.prediction import Prediction
from ..results.report import Report
from ..results.result import Result
from .check import Check, OwnFile, Said
from .keys import C, JobConfig, Keys
from .parties import Parties
from .publish import Fit
from .run import Run
from .stage import Stage

Given = TypeVar("Given", bound=JobConfig, contravariant=True)


class Rows(Protocol[Given]):
    """`rows`: who takes part, and what a client's rows are."""

    def parties(self, config: Given, folder: Path) -> Parties: ...


class Running(Protocol[C]):
    """`run`: the part of one place in a job; what comes of it at the server's place, None elsewhere."""

    def fit(self, run: Run[C]) -> Fit | None: ...


class Stages(Protocol[C]):
    """`stages`: what leaves a party: before anything but the job file is known, and then by the model; what `check` says; and
    what a job may spend of one client's budget, by its own file (None where it takes nothing of it)."""

    @property
    def MAY_SEND(self) -> Sequence[type[Message]]: ...  # all that a client of such a job may send, beside `wire.ALSO`

    def opening(self, config: C) -> Sequence[Stage]: ...

    def stages(self, model: Any) -> Sequence[Stage]: ...

    def check_job(self, at: Check[C]) -> Said | None: ...

    def look_through(self, file: OwnFile[C]) -> Sequence[str] | None: ...

    def own_plan(self, file: OwnFile[C], client: str, names: Sequence[str]) -> Plan | None: ...


class Show(Protocol):
    """`show`: what a finished run prints."""

    def describe_run(self, content: Record, why: str) -> Iterator[str]: ...


class Predict(Protocol):
    """`predict`: what the released posterior says of new rows; JobError with the reason where it cannot."""

    def predicted(self, result: Result, rows: Any) -> Prediction: ...


class Method(NamedTuple, Generic[C]):
    """One method's doors."""

    keys: Keys[C]
    rows: Rows[C]
    run: Running[C]
    stages: Stages[C]
    show: Show
    report: Report
    predict: Predict
