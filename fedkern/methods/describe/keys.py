"""Defines the job file's sections where method = "describe"."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from ...disclosure.requirement import Requirement
from ...jobs.keys import (
    ColumnSection,
    CommonOutputSection,
    Count,
    CountedJobSection,
    CountsPrivacySection,
    DialectSection,
    JobConfig,
    Label,
    Paths,
    Positive,
    Raw,
    Section,
    Tables,
    faults_of_sums,
    key,
)
from ...jobs.load import layered, table
from ...privacy.accountant import Unit
from ...privacy.certificate import OF_COUNTS

Pair = Annotated[list[str], Field(min_length=2, max_length=2)]


class JobSection(CountedJobSection):
    sums: Literal["secure", "none"] | None = key(
        None,
        help="secure: the server gets numbers of all clients together, and no client's own; three clients or more. none: it gets "
        "counts alone. By default sums of numbers are masked where there are three clients, and counts are each client's own",
    )


class DataSection(Section):
    clients: Paths = key([], path=True, help="csv, parquet or npz files; wildcards allowed")
    names: list[str] = key([], path=True, help="of the clients, in the order of their files; by default the files' stems")
    ignore: list[str] = key([], help="columns of the files that are not described")
    columns: dict[str, ColumnSection] = key({}, help="what is publicly known of the columns: lower and upper are ends of bins")
    dialect: DialectSection = key(DialectSection(), help="how the parties' text files are written")


class ModelSection(Section):
    group: str | None = key(None, help="a column of few levels: all is described in the rows of each, too (a Table 1)")
    cross: list[Pair] = key([], help="pairs of columns of levels that are counted together")
    correlations: bool = key(True, help="whether columns of numbers are correlated")
    time: str | None = key(None, help="when each row has its event, or was seen for the last time: Kaplan-Meier curves")
    event: str | None = key(None, help="which of the two it is")
    positive: Label = key(None, help="the label of an event; by default 1, or the one of two labels that says yes")


class AlgorithmSection(Section):
    checkpoint_every: Positive = key(60.0, resumable=True, help="seconds between checkpoints; there are none", expert=True)


class PrivacySection(CountsPrivacySection):
    """Describes noise on counts, drawn once; neighbours differ by a row, which is in one cell of each table of counts."""

    cases_per_person: Count = key(1, help="rows that one person may have")
    table: str = key("described", min_length=1, help="name of the noisy counts, which the same job has again for nothing")

    def promised(self, client: str) -> dict[str, Any]:
        """Returns what sigma's does but for the clip: rows of a person times tables of counts, whose number is not known here."""
        return {name: value for name, value in super().promised(client).items() if name != "clip"}


class OutputSection(CommonOutputSection):
    metrics_every: Count = key(100, help="rounds between two lines of metrics.jsonl; there are no rounds", expert=True)


class Config(JobConfig):
    """Holds a job of method "describe"."""

    job: JobSection
    data: DataSection
    model: ModelSection
    algorithm: AlgorithmSection
    privacy: PrivacySection | None = None
    output: OutputSection

    @property
    def secure(self) -> bool:
        return self.job.sums == "secure"

    @property
    def sums_masked(self) -> bool:
        """Where parties are apart; of starts with a client and without it sums would tell its numbers."""
        apart = self.level != "none" and not self.private
        return apart and self.job.sums is None and self.disclosure.small != "leave-out"

    @property
    def unit(self) -> Unit:
        return super().unit if self.privacy is None else self.privacy.unit

    def of_posterior(self, steps: int) -> dict[str, str | float]:
        return {} if self.privacy is None else {"posterior": OF_COUNTS, "public": PUBLIC}

    @property
    def can_join_levels(self) -> bool:
        return True

    @property
    def joins_levels(self) -> bool:
        return self.level != "none"

    @property
    def requirement(self) -> Requirement:
        return replace(super().requirement, cells=True)


PUBLIC = "the columns, their levels and the ends of bins"  # beside counts with noise
BASE: Tables = {"job": {"rounds": 1}}
OPEN: Tables = {"disclosure": {"rare": "join"}}


def refused(raw: Raw) -> Iterator[str]:
    """Yields the keys of other methods that this one refuses, with the remedy."""
    for name in ("response", "standardise", "test", "weight", "offset"):
        if name in table(raw, "data"):
            yield f'data.{name} is of models: method = "describe" has none; remove it'
    for name in ("family", "formula"):
        if name in table(raw, "model"):
            yield f'model.{name} is of models: method = "describe" has none; model.group names the column of a Table 1'


def fill_defaults(raw: Raw) -> dict[str, Any]:
    """Lays the file over the defaults: rare levels join."""
    return layered(raw, [BASE] if "privacy" in raw else [BASE, OPEN])


def conflicts(config: Config) -> Iterator[str]:
    """Yields every contradiction between keys, each as a sentence with its remedy."""
    data, model = config.data, config.model
    yield from faults_of_sums(config)
    if config.job.device != "cpu":
        yield 'job.device = "cuda": counting runs on the processor; remove it'
    if (model.time is None) != (model.event is None):
        yield "model.time and model.event belong together: give both, or none"
    if model.time is not None and model.time == model.event:
        yield "model.time and model.event must be different columns"
    named = [name for pair in model.cross for name in pair] + [name for name in (model.group, model.time, model.event) if name]
    for name in dict.fromkeys(named):
        if name in data.ignore:
            yield f"model names {name!r}, which data.ignore leaves out: remove it from one of the two"
    for first, second in model.cross:
        if first == second or model.group in (first, second):
            yield f"model.cross has {first!r} and {second!r}: give two columns other than model.group, with which all are crossed"
    for name in dict.fromkeys([*([model.group] if model.group else []), *(name for pair in model.cross for name in pair)]):
        if name in data.columns and data.columns[name].kind == "numeric":
            yield f'data.columns.{name}.kind = "numeric", and model counts its levels: set kind = "categorical"'
    if config.privacy is None:
        return
    if config.secure:
        yield 'job.sums = "secure" and [privacy]: noise protects each client\'s own counts already; remove one of the two'
    if config.privacy.epsilon is None:
        yield "privacy.epsilon is missing: give it, such as 1.0; it is spent once, when the noise is drawn"
    for name, column in data.columns.items():
        if column.levels is None and column.lower is None and name not in data.ignore:
            yield f"data.columns.{name}: a private job asks no row, so give lower and upper of a column of numbers, or levels"
