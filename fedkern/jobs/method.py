"""Describes what every method gives the engine: its files, which have the same names in each."""

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
from .opened import Opened
from .parties import Parties
from .publish import Fit
from .run import Run
from .stage import Stage

Given = TypeVar("Given", bound=JobConfig, contravariant=True)


class Rows(Protocol[Given]):
    """Describes `rows`: who takes part, and which rows each client has."""

    def parties(self, config: Given, folder: Path) -> Parties: ...


class Running(Protocol[C]):
    """Describes `run`: the part of one place in a job; its result at the server's place, None elsewhere."""

    def fit(self, run: Run[C]) -> Fit | None: ...


class Stages(Protocol[C]):
    """Describes `stages`: the exchanges of a job, the lines of `check`, and the plan of a client's budget.

    The exchanges are told before anything but the job file is known, and then by the model. The plan says how much a job may
    spend of one client's budget, by its own file (None where it takes nothing of it).
    """

    @property
    def MAY_SEND(self) -> Sequence[type[Message]]: ...  # all that a client of such a job may send, beside `wire.ALSO`

    def opening(self, config: C) -> Sequence[Stage]: ...

    def stages(self, model: Any) -> Sequence[Stage]: ...

    def check_job(self, check: Check[C]) -> Said | None: ...

    def look_through(self, file: OwnFile[C]) -> Sequence[str] | None: ...

    def own_plan(self, file: OwnFile[C], client: str, names: Sequence[str]) -> Plan | None: ...


class Show(Protocol):
    """Describes `show`: the lines that a finished run prints."""

    def describe_run(self, content: Record, why: str) -> Iterator[str]: ...


class Predict(Protocol):
    """Describes `predict`: the released posterior's prediction of new rows; JobError with the reason where it has none."""

    def predicted(self, result: Result, rows: Any) -> Prediction: ...


class Replay(Protocol):
    """Describes `replay`: what follows from the answers of an asynchronous run, and the run's own, as digests.

    `refuse_rows` raises JobError where these answers may not be computed again from rows.
    """

    def replay(self, run: Opened) -> tuple[str, str]: ...

    def refuse_rows(self, run: Opened) -> None: ...


class Method(NamedTuple, Generic[C]):
    """Holds one method's modules, as the engine calls them."""

    keys: Keys[C]
    rows: Rows[C]
    run: Running[C]
    stages: Stages[C]
    show: Show
    report: Report
    predict: Predict
    replay: Replay | None = None
