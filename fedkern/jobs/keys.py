"""Declares the parts that every table of a job file is made of, and the tables and keys that methods share."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, Self, TypeVar, runtime_checkable

from pydantic import BeforeValidator, ConfigDict, Field, PrivateAttr, field_validator, model_validator
from pydantic_core import PydanticCustomError

from ..data.cells import plain as as_in_cells
from ..data.design import LEAST_OF_LEVEL
from ..data.dialect import Dialect
from ..disclosure.requirement import Fit, Requirement
from ..disclosure.rules import LEVELS, OPEN_JOBS, Level, Rules, with_keys
from ..finding import Finding
from ..kernels.families import NOMINAL
from ..labels import OTHER, label
from ..privacy.accountant import LARGEST_EPSILON, Unit
from ..results.plain import plain
from ..sections import Section as Section
from ..sections import key as key
from ..sections import marked_keys

Raw = Mapping[str, Any]  # tables of a file, as they came
Tables = dict[str, dict[str, Any]]  # defaults of some keys

Finite = Annotated[float, Field(allow_inf_nan=False)]
MOST_EPSILON = 10.0  # of a table of counts: more is none
LARGEST = 1e50  # of a scale, a rate or a precision: beyond, products of them are no numbers
Positive = Annotated[float, Field(gt=0, le=LARGEST, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Leverage = Annotated[float, Field(gt=0, le=1)]
Draws = Annotated[int, Field(ge=1, le=1_000_000)]  # of a chain
Chains = Annotated[int, Field(ge=1, le=1_000)]
Device = Literal["cpu", "cuda"]


def _rounds(value: object) -> object:
    if type(value) is int and value >= 1:
        return value
    raise PydanticCustomError("rounds", "a whole number of at least 1")


def _rounds_or_budget(value: object) -> object:
    if value == "budget" or (type(value) is int and value >= 1):
        return value
    raise PydanticCustomError("rounds", 'a whole number of at least 1, or "budget" in a private job')


def _paths(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _label(value: object) -> object:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return as_in_cells(value) if is_number else value


Label = Annotated[str | None, BeforeValidator(_label)]  # a number stands for the text that a person writes
Rounds = Annotated[int, BeforeValidator(_rounds)]
RoundsOrBudget = Annotated[int | str, BeforeValidator(_rounds_or_budget)]
Paths = Annotated[list[str], BeforeValidator(_paths)]


METHODS = (
    "pvi",
    "likelihood",
    "vertical",
    "sigma",
    "sparse",
    "describe",
)  # of this package; a job file that names none has the first


class JobSection(Section):
    method: str = key(help="the federated method")
    seed: int = key(0, ge=0, lt=2**64, help="of all keyed streams; not of secure noise", remedy="a number of 64 bits")
    rounds: RoundsOrBudget = key(100, resumable="open_ended", help="how often the server goes through the clients")
    deadline: Positive = key(600.0, resumable=True, help="seconds after which a silent client counts as lost")
    device: Device = key("cpu", help="where the clients' kernels run: a processor, or a GPU by CuPy")


class CountedJobSection(JobSection):
    """Declares [job] of a method without rounds = "budget"."""

    rounds: Rounds = key(
        100,
        resumable="open_ended",
        help='how often the server goes through the clients; "until" is algorithm.until with as many as it may have',
    )


MOST_ROUNDS = 50_000


class FitUntilSection(Section):
    """Says when a variational fit may stop before its last round: when all unknowns have settled."""

    max_rounds: Count = key(MOST_ROUNDS, help='rounds after which it stops anyway, where job.rounds is "until" or left out')


class ColumnSection(Section):
    """Declares the public facts of one column."""

    kind: Literal["numeric", "categorical"] | None = key(None, help="of the column; default: what clients find; private: none")
    levels: list[str] | None = key(None, min_length=1, help="all levels of a categorical column")
    reference: Label = key(None, help="level that others are compared with; sparse: has no coefficient. Default: the first")
    center: Finite | None = key(None, help="what standardising subtracts")
    scale: Positive | None = key(None, help="what standardising divides by")
    lower: Finite | None = key(None, help="with upper, instead of center and scale: the bounds become -1 and 1")
    upper: Finite | None = key(None, help="with lower")

    @field_validator("reference")
    @classmethod
    def _as_label(cls, reference: str | None) -> str | None:
        return None if reference is None else label(reference, text=True)

    @property
    def encoded(self) -> dict[str, object]:
        """The keys that `Column.declared` reads: without the reference, which is for tables, and without keys of one method."""
        return self.model_dump(exclude_none=True, include=ColumnSection.model_fields.keys() - {"reference"})


def _delimiter(value: object) -> Any:
    if value is None or (isinstance(value, str) and len(value) == 1 and value not in '"\n\r.' and not value.isalnum()):
        return value
    raise PydanticCustomError("delimiter", 'one character, such as ";" or "\\t"')


def _encoding(value: Any) -> Any:
    with suppress(LookupError, ValueError, TypeError):
        if value is None or "".encode(value) is not None:
            return value
    raise PydanticCustomError("encoding", 'an encoding that Python knows, such as "latin-1", "cp1252" or "utf-16"')


class DialectSection(Section):
    """Says how text files are written; a holder's own site.toml goes before it."""

    delimiter: Annotated[str | None, BeforeValidator(_delimiter)] = key(
        None, help="between the cells of a line; by default a comma, in .tsv files a tab"
    )
    decimal: Literal[".", ","] = key(".", help="what stands before a number's decimals")
    encoding: Annotated[str | None, BeforeValidator(_encoding)] = key(None, help="of the letters; by default UTF-8")
    missing: list[str] = key([], help='cells that count as empty, such as "-9" or "unknown", beside empty ones')

    @model_validator(mode="after")
    def _not_both(self) -> Self:
        if self.delimiter == self.decimal:
            raise PydanticCustomError("dialect", "a delimiter that is not the decimal sign, too")
        return self

    @property
    def dialect(self) -> Dialect:
        """The dialect that these keys describe."""
        return Dialect(self.delimiter, self.decimal, self.encoding, tuple(self.missing))


class SplitSection(Section):
    """Says how built-in data are dealt to clients (docs/spec/pvi.md, section 13)."""

    clients: Count = key(10, help="how many clients the rows are dealt to", expert=True)
    rho: float = key(
        0.0, ge=0, lt=1, help="half of the clients get (1 - rho) n / clients rows, half (1 + rho) n / clients", expert=True
    )
    kappa: float = key(
        0.0,
        le=1,
        allow_inf_nan=False,
        help="small clients' share of negatives is c + (1 - c) kappa, c that of all rows",
        expert=True,
    )
    test: float = key(0.2, ge=0, lt=1, help="share of the rows that the server keeps for testing", expert=True)
    seed: int = key(0, ge=0, lt=2**32, help="of the shuffle", remedy="a number of 32 bits", expert=True)


# Of data.weight_kind, of the methods that have it: the meaning, and what is wrong with it alone.
WEIGHT_KIND = "frequency: each weight is a number of equal rows, whole; precision: the error's variance is divided by it"
NO_WEIGHT = "data.weight_kind says what data.weight is, and there is none: name the column, or remove the key"
OLD_KEYS_OF_DATA = {"weight_counts": ("weight_kind", {True: "frequency"})}  # of earlier versions: the new one, and its values
OLD_KEYS_END = "0.3"


class DataSection(Section):
    """Declares [data] where every client has rows of its own, with the same columns."""

    clients: Paths = key([], path=True, help="csv, parquet, npz or npy files; wildcards allowed")
    names: list[str] = key([], path=True, help="of the clients, in the order of their files; by default the files' stems")
    builtin: Literal["breast-cancer", "adult", "heart-disease", "rppa", "rppa-217", "sachs"] | None = key(
        None, help="data of a dependency, or a published set in FEDKERN_DATA"
    )
    split: SplitSection = key(SplitSection(), help="how built-in data are dealt to clients")
    preprocess: Literal["public", "paper"] = key(
        "public", help="paper: constants from all rows, as published; not private", expert=True
    )
    response: str | None = key(None, help="the column to be explained")
    positive: Label = key(None, help="the label that counts as 1 in a binary response; open jobs: default by all files' labels")
    offset: str | None = key(None, help="a column that is added to the linear predictor")
    weight: str | None = key(None, help='a column of case weights, for method = "pvi" and "likelihood"')
    row_id: str | None = key(None, help="a column that names the row; shards are made from its hash", expert=True)
    ignore: list[str] = key([], help="columns of the files that the model does not use")
    standardise: Literal["public", "exchange", "none"] = key("exchange", help="by [data.columns], by statistics, or not")
    columns: dict[str, ColumnSection] = key({}, help="what is publicly known of the columns")
    test: str | None = key(None, path=True, help="a file of test rows, held by the server")
    dialect: DialectSection = key(DialectSection(), help="how the parties' text files are written")


class CountsPrivacySection(Section):
    """Describes noise on every count, drawn once: all messages, of this job and of later ones, use the noisy table."""

    unit: Literal["case"] = key("case", help="what neighbouring data sets differ by: a case of an area")
    epsilon: float | None = key(
        None, gt=0, le=MOST_EPSILON, help="spent when the noise is drawn, and never again", remedy="1 is strong, 4 is weak"
    )
    delta: float = key(0.0, ge=0, le=0.1, help="probability of exceeding epsilon: the noise needs none")
    cases_per_person: Count = key(1, help="cases that one person may be, in all areas: neighbours differ by so many")
    table: str = key(
        "counts", min_length=1, help="name of the noisy table, which later jobs on the same data use again; another is paid for"
    )

    @property
    def calibrate(self) -> bool:
        """Always true: the noise follows from epsilon."""
        return True

    @property
    def noise_source(self) -> Literal["secure", "keyed"]:
        """The source of the noise."""
        return "secure"

    @property
    def last_update(self) -> Literal["refuse", "shorten"]:
        """Always "refuse": the budget has one charge."""
        return "refuse"

    @property
    def rows_per_person(self) -> int:
        """Always 1: epsilon is that of a person already."""
        return 1

    def cap(self, client: str) -> tuple[float, float]:
        """Returns epsilon and delta, alike for all clients."""
        assert self.epsilon is not None
        return self.epsilon, self.delta

    def promised(self, client: str) -> dict[str, Any]:
        """Returns the entries that a certificate must have about its noise, as far as the job file decides them."""
        clip = float(self.cases_per_person)
        return {"unit": self.unit, "noise_source": self.noise_source, "sampling": "counts", "clip": clip}


class CommonOutputSection(Section):
    """Declares the keys that every method's [output] has."""

    client_folder: str | None = key(
        None, path=True, help="where a client's own folder lies, on its machine; by default in the run's", min_length=1
    )

    def own_folders(self, folder: Path) -> Path | None:
        """Returns the folder of the clients' own folders, if that is not the run's; relative to `folder`."""
        return None if self.client_folder is None else folder / os.path.expanduser(self.client_folder)


@runtime_checkable
class Data(Protocol):
    """Names the keys of [data] that the engine reads; every method's section has them, among its own."""

    @property
    def clients(self) -> list[str]: ...
    @property
    def names(self) -> list[str]: ...
    @property
    def ignore(self) -> list[str]: ...
    @property
    def dialect(self) -> DialectSection: ...


@runtime_checkable
class Output(Protocol):
    """Names the keys of [output] that the engine reads."""

    @property
    def metrics_every(self) -> int: ...
    @property
    def client_folder(self) -> str | None: ...
    def own_folders(self, folder: Path) -> Path | None: ...


@runtime_checkable
class Algorithm(Protocol):
    """Names the keys of [algorithm] that the engine reads."""

    @property
    def checkpoint_every(self) -> float: ...


@runtime_checkable
class Privacy(Protocol):
    """Names the keys of [privacy] that the engine reads, of a method that has this section."""

    @property
    def noise_source(self) -> Literal["secure", "keyed"]: ...
    @property
    def last_update(self) -> Literal["refuse", "shorten"]: ...
    @property
    def rows_per_person(self) -> int: ...
    def cap(self, client: str) -> tuple[float, float]:
        """Returns epsilon and delta of one client."""

    def promised(self, client: str) -> dict[str, Any]:
        """Returns the statements of this job's certificate on its noise, as far as the job file determines them."""


class DisclosureSection(Section):
    """Declares the keys of [disclosure], in open jobs: what is asked of each client's rows before anything of them leaves."""

    level: Level | None = key(
        None,
        help="none: nothing is asked; standard, strict: see docs/concepts/disclosure.md. Default: standard; none where all rows "
        "are in one process, and no policy binds them",
    )
    rows: Whole | None = key(None, help="rows that a client must have, after model.missing")
    rows_per_coefficient: Share | None = key(
        None, help="rows a coefficient that a client must have, whatever the method; 0: none"
    )
    rows_per_value: Whole | None = key(None, help="rows of a client that have a level, or a value of a column of two, if any has")
    groups: Whole | None = key(None, help="groups that a client must have, where model.random has a group")
    combinations: Whole | None = key(None, help="rows that have each combination of covariates' values, where few can occur")
    leverage: Leverage | None = key(None, help="of a row at the fit of its client's rows, at most; 1: not asked")
    rare: Literal["refuse", "join"] | None = key(
        None,
        help="levels of a covariate that fewer than rows_per_value rows of a client have: refused, or they become "
        f'"{OTHER}" at all clients, at level "none" by the number of "standard". Default: they join at "standard" '
        "without secure sums, where a level is left beside them",
    )
    small: Literal["refuse", "leave-out"] | None = key(
        None, help="a client whose rows are refused ends the job (the default), or the job goes on without it"
    )
    jobs: Count | None = key(
        None,
        help="the most open jobs on the same rows with other columns, at holders who refuse differences; their own number, by "
        f"default {OPEN_JOBS}, if that is smaller",
    )

    def rules(self, level: Level) -> Rules:
        """Returns the rules of this table, at a level where it names none."""
        return with_keys(LEVELS[self.level or level], self.model_dump(exclude_none=True))


# Files that each party has on its own machine.
OWN_PATHS = ("data.clients", "data.test", "data.server", "data.polygons", "model.prior", "output.client_folder", "job.extends")


class JobConfig(Section):
    """Holds the configuration of a job of any method, with all defaults filled in; each method's `Config` is one."""

    model_config = ConfigDict(arbitrary_types_allowed=True)  # a method's sections stand for the protocols

    job: JobSection
    data: Data
    model: Section
    algorithm: Algorithm
    privacy: Privacy | None = None
    output: Output
    disclosure: DisclosureSection = key(DisclosureSection(), help="of open jobs: what is asked of each client's rows")
    _alone: bool = PrivateAttr(False)
    _old_keys: tuple[str, ...] = PrivateAttr(())
    _given: dict[str, Any] = PrivateAttr(default_factory=dict)

    def in_one_process(self) -> Self:
        """Returns the same job where all rows are in this process, and no policy binds them: nothing leaves it."""
        copy = self.model_copy()
        copy._alone = True
        return copy

    def at_standard(self) -> Self:
        """Returns the same job at level "standard", as parties apart have it, with its own numbers."""
        return self.model_copy(update={"disclosure": self.disclosure.model_copy(update={"level": "standard"})})

    @property
    def old_keys(self) -> tuple[str, ...]:
        """The keys of [data] in the job file that [disclosure] has now."""
        return self._old_keys

    @property
    def given(self) -> dict[str, Any]:
        """The tables of the job as they were given, without defaults."""
        return self._given

    @property
    def level(self) -> Level:
        """The level of disclosure control; a job with noise has none, for there nothing is counted."""
        if self.privacy is not None or not self.counts_rows:
            return "none"
        return self.disclosure.level or ("none" if self._alone else "standard")

    @property
    def rules(self) -> Rules:
        """The rules for the rows of a client, by this job; a holder's are beside them (`Requirement.bound_by`)."""
        if self.privacy is not None or not self.counts_rows:
            return Rules()
        return self.disclosure.rules(self.level)

    @property
    def least_of_level(self) -> int | None:
        """The rows that a level must have which others read, at a column that is not declared; None: whatever it has."""
        return None if self.level == "none" else min(self.rules.rows_per_value, LEAST_OF_LEVEL)

    @property
    def requirement(self) -> Requirement:
        """What the job asks of its clients' rows; a method says what its messages tell."""
        model, noise = self.model, self.privacy
        sd = getattr(model, "prior_sd", None)
        r = getattr(model, "scale", None)
        fit = Fit(
            getattr(model, "prior_precision", None if sd is None else sd**-2),
            getattr(model, "intercept_centre", None),
            getattr(model, "intercept", True),
            float(r) if isinstance(r, (int, float)) else None,
            getattr(model, "splines", {}),
        )
        return Requirement(
            self.rules,
            self.level,
            counts=self.counts_rows and noise is None,
            rows=bool(self.tells_rows),
            family=getattr(model, "family", "gaussian"),
            nominal=getattr(model, "family", "") in NOMINAL,
            times=getattr(self.data, "event", None) is not None,
            drops=getattr(model, "missing", None) == "drop",
            fit=fit,
            small=self.disclosure.small or "refuse",
            secure=self.secure,
            unit=None if noise is None else self.unit,
            keyed=noise is not None and noise.noise_source != "secure",
            factory=self.factory,
            readers=self.readers,
        )

    @property
    def counts_rows(self) -> bool:
        """Whether clients have rows of people, which an open job counts."""
        return True

    @property
    def most_ids(self) -> int | None:
        """The ids that each party may put in where parties find the rows that all have, which alone count; None elsewhere."""
        return None

    @property
    def private(self) -> bool:
        """Whether the messages that leave a client have noise in them."""
        return self.privacy is not None

    @property
    def unit(self) -> Unit:
        """The unit that a private job protects."""
        return "example"

    @property
    def least_updates(self) -> int:
        """The updates that the job must reach for its result to count; without any, a private job would return the prior."""
        return 1 if self.private else 0

    @property
    def factory(self) -> str | None:
        """The function of the holders' own packages that a job has them run, which their policies must allow."""
        return None

    @property
    def without_intercept(self) -> bool:
        """Whether the predictor of a row with covariates of 0 is 0."""
        return False

    @property
    def secure(self) -> bool:
        """Whether the server gets sums over clients alone of what the rounds ask."""
        return False

    @property
    def sums_masked(self) -> bool:
        """Whether there are sums that clients tell masked alone, whatever job.sums says: of too few clients nobody tells them."""
        return False

    @property
    def singly(self) -> bool:
        """Whether clients of a job with secure sums also send values one by one, which their policies must allow."""
        return False

    @property
    def answers_once(self) -> bool:
        """Whether a client's answers are kept before they leave, and sent again in a resumed run.

        Computed anew, they could be other answers.
        """
        return self.private

    @property
    def open_ended(self) -> bool:
        """Whether the number of rounds decides only the end, so that a resumed run may have another."""
        return False

    @property
    def resumable(self) -> frozenset[str]:
        """The keys that a resumed run may change."""
        marks = marked_keys(type(self), "resumable")
        return frozenset(name for name, mark in marks.items() if mark is True or getattr(self, str(mark)))

    @property
    def readers(self) -> str:
        """The parties who can compute the content of a client's messages, where the stages do not send them to every client."""
        return "a server"

    @property
    def can_join_levels(self) -> bool:
        """Whether rare levels of covariates may become `OTHER` in such a job."""
        return False

    @property
    def joins_levels(self) -> bool:
        """Whether rare levels of covariates become `OTHER`: where the job says so, and by default at level "standard".

        With secure sums a level that is rare at one client may be in enough rows of all together.
        """
        by_default = self.disclosure.rare is None and self.level == "standard" and not self.secure
        return self.can_join_levels and (by_default or self.disclosure.rare == "join")

    @property
    def tells_rows(self) -> tuple[Finding, ...]:
        """The first warnings about a job whose choices have every client's messages tell its rows, however many they are."""
        return ()

    @property
    def singles_out(self) -> bool:
        """Whether the result tells of each client's rows alone, which its holder's policy must allow."""
        return False

    @property
    def without_structure(self) -> str | None:
        """The part of the job for which no client has a structure of its own (site.toml); None where one may."""
        return f'job.method = "{self.job.method}"'

    @property
    def extendable(self) -> bool:
        """Whether points are kept at which later clients may answer, which the holders' policies must allow."""
        return False

    @property
    def extends(self) -> bool:
        """Whether the job's clients come to an earlier run, whose result less this one's is theirs."""
        return False

    def of_posterior(self, steps: int) -> dict[str, str | float]:
        """Returns the statements of a certificate on the posterior, in this job's own words, after so many accounted steps."""
        return {}

    @property
    def read_alike(self) -> dict[str, Any]:
        """The parts that all parties must have made alike of the job file, beside its keys."""
        return {}

    @property
    def canonical(self) -> str:
        """The one JSON text for one meaning: sorted keys, infinite numbers as "inf"."""
        return json.dumps(plain({**self.model_dump(), **self.read_alike}), sort_keys=True, separators=(",", ":"), allow_nan=False)

    @property
    def digest(self) -> str:
        """The digest that the ranks of a job compare: BLAKE2b-256 of the canonical text."""
        return blake2b(self.canonical.encode(), digest_size=32).hexdigest()

    @property
    def keys_alone(self) -> str:
        """The digest without the paths of files, and without `read_alike`, in which ranks may differ for another reason than
        their job files."""
        text = json.dumps(self.without_paths, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return blake2b(text.encode(), digest_size=32).hexdigest()

    @property
    def without_paths(self) -> dict[str, Any]:
        """The tables of the job with, in the place of each path that a party may have its own of, whether it is given.

        The names of the clients are left out, too: parties compare the names themselves, wherever each has them from.
        """
        tables: dict[str, Any] = plain(self.model_dump())
        for name in OWN_PATHS:
            section, _, last = name.partition(".")
            if not isinstance(tables[section].get(last, {}), dict):  # a method may have a table of this name, which is no path
                tables[section][last] = tables[section][last] not in (None, [])
        tables["data"].pop("names", None)
        return tables


S = TypeVar("S")
C = TypeVar("C", bound=JobConfig)


class Keys(Protocol[C]):
    """Describes `keys` of a method: which keys a job file has, what they may be, and which contradict each other."""

    @property
    def Config(self) -> type[C]: ...

    def refused(self, raw: Raw) -> Iterator[str]:
        """Yields a sentence with its remedy for each key of other methods that this one lacks, before the tables are checked."""

    def fill_defaults(self, raw: Raw) -> dict[str, Any]:
        """Returns the tables as they came, with everything that they leave out."""

    def conflicts(self, config: C) -> Iterator[str]:
        """Yields every fault between keys that are valid alone, a sentence with its remedy."""


def lay_until(raw: Raw, out: Raw, most: int) -> None:
    """Sets the rounds of a job with `algorithm.until`: its `max_rounds`, or `most` by default.

    `rounds = "until"` means `algorithm.until`, and so does a job that has this table and no `rounds`.
    """
    job, algorithm, given = out["job"], out["algorithm"], raw.get("job", {})
    if not isinstance(job, dict) or not isinstance(algorithm, dict):
        return
    if job.get("rounds") == "until":
        algorithm.setdefault("until", {})
    until = algorithm.get("until")
    if isinstance(until, Mapping) and (job.get("rounds") == "until" or not (isinstance(given, Mapping) and "rounds" in given)):
        job["rounds"] = until.get("max_rounds", most)


def counts_nobody(config: JobConfig) -> Iterator[str]:
    """Yields the faults of a private job, or one whose clients have no rows of people, that would count rows."""
    why = (
        "whether a client of a private job has one row more or less must not show"
        if config.private
        else "this method counts none"
    )
    for name in config.disclosure.model_dump(exclude_none=True):
        if config.private or not (config.counts_rows or name == "jobs"):
            yield f"disclosure.{name} is of jobs without noise whose clients have rows of people, and {why}; remove it"
    if config.disclosure.rare == "join" and not (config.can_join_levels or config.private):
        yield (
            'disclosure.rare = "join" is of jobs of likelihood without model.factory, of pvi and of sparse: remove it, and '
            "join rare levels in all files"
        )


def unbounded(where: str, epsilon: float) -> str:
    """Returns the fault of a finite epsilon that is no protection; its account would be large tables of nothing."""
    return f"{where} = {epsilon:g}: wanted at most {LARGEST_EPSILON:g}, for beyond it nothing is protected; inf is no cap"


def no_cool_down(given: float) -> str:
    """Returns the fault of a fit that is to go on until all has settled, and whose rate never falls, or always."""
    return (
        f'rounds = "until" (algorithm.until) with algorithm.cool_down = {given:g}: unknowns settle while the learning rate is '
        "full, and when they have it falls; take one above 0 and below 1, such as 0.5"
    )


def settings_of(kind: Callable[..., S], *sections: Section, **computed: object) -> S:
    """Makes a machine's settings: the computed ones, and keys of the sections that have the same name; the rest by the class."""
    names = set(signature(kind).parameters) - computed.keys()
    keys = {name: getattr(section, name) for section in sections for name in type(section).model_fields if name in names}
    return kind(**keys, **computed)


LEAD = 8  # answers by which a client that waits for nobody may be ahead of the slowest, where the job does not say it
ONE_ANSWER = (
    'job.sums = "secure" adds what all clients answer to one question, and algorithm.schedule = "{}" takes one client\'s '
    'answer at a time; take "synchronous", or leave it out'
)


class StepsSection(Section):
    """Describes who works when in a fit by steps of an optimiser."""

    schedule: Literal["synchronous", "asynchronous"] = key(
        "synchronous", help="sfvi: all clients answer in each round; or each is asked again as soon as it has answered"
    )
    lead: Count | None = key(
        None,
        help=f"asynchronous: answers by which a client may be ahead of the slowest before it waits; default {LEAD}",
        expert=True,
    )

    @property
    def ahead(self) -> int:
        """The lead of a machine's settings; 0 where all answer in each round."""
        return 0 if self.schedule == "synchronous" else self.lead or LEAD

    @property
    def said(self) -> str:
        """What `check` says of an asynchronous fit."""
        return f", asynchronous: who is {self.ahead} answers ahead of the slowest waits" if self.ahead else ""


def faults_of_schedule(config: JobConfig, algorithm: StepsSection, why: str | None) -> Iterator[str]:
    """Yields the faults of a schedule; `why`: the reason why this job needs all its clients at each step, if it does."""
    if algorithm.lead is not None and not algorithm.ahead:
        yield f'algorithm.lead is for schedule = "asynchronous"; schedule is "{algorithm.schedule}"'
    if algorithm.ahead and config.secure:
        yield ONE_ANSWER.format(algorithm.schedule)
    if algorithm.ahead and why is not None:
        yield f'algorithm.schedule = "asynchronous": {why}; take "synchronous", or leave it out'


def faults_of_sums(config: JobConfig) -> Iterator[str]:
    """Yields the fault of a job with secure sums that may go on without small clients, of whatever method.

    Places hear from the server which clients these are. One that was changed could start a job with a client and again without
    it: the sum of all less that of the others is its number.
    """
    if config.secure and config.disclosure.small == "leave-out":
        yield (
            'job.sums = "secure": with disclosure.small = "leave-out" the server tells who takes part, and sums of two starts, '
            "with a client and without it, would tell its numbers; remove that, and take small clients out of data.clients"
        )
