"""What the engine asks of a method: its files, which have the same names in each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ..data.table import Table
from ..models.encoding import Encoding, Spec
from ..results.result import Result
from .check import Check
from .keys import Keys
from .parties import Parties
from .run import Run


class Rows(Protocol):
    """`rows`: who takes part, and what a client's rows are."""

    def parties(self, config: Any, folder: Path) -> Parties: ...


class Running(Protocol):
    """`run`: the part of one place in a job."""

    def perform(self, run: Run[Any]) -> Result | None: ...


class Stages(Protocol):
    """`stages`: what leaves a party, for `fedkern check`."""

    def checked(self, at: Check[Any]) -> list[str] | None: ...

    def spec_of_file(self, config: Any, spec: Spec, names: tuple[str, ...]) -> Spec: ...

    def look_through(self, config: Any, folder: Path, path: Path, own: Table, spec: Spec, encoding: Encoding) -> None: ...


class Show(Protocol):
    """`show`: what a finished run prints."""

    def lines(self, content: Mapping[str, Any], why: str) -> Iterator[str]: ...


class Method(NamedTuple):
    """One method's doors."""

    keys: Keys[Any]
    rows: Rows
    run: Running
    stages: Stages
    show: Show
