"""The job file: what each key is and what it may be."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from unicodedata import normalize

from pydantic import BeforeValidator, ValidationError
from pydantic_core import PydanticCustomError

from ..data.plain_text import canonical, is_there
from ..errors import JobError
from ..kernels import families
from ..methods.pvi.conflicts import conflicts
from ..methods.sigma.conflicts import conflicts as sigma_conflicts
from ..methods.sigma.keys import SigmaAlgorithmSection, SigmaModelSection, SigmaOutputSection
from ..methods.sparse.conflicts import conflicts as sparse_conflicts
from ..methods.sparse.keys import SparseAlgorithmSection, SparseModelSection, SparseOutputSection
from ..methods.vertical.conflicts import conflicts as vertical_conflicts
from ..methods.vertical.keys import VerticalAlgorithmSection, VerticalModelSection, VerticalOutputSection, VerticalPrivacySection
from ..results.plain import plain
from .defaults import filled, table
from .explain import explain
from .section import CommonOutputSection, Count, Finite, Positive, Section, key

File = TypeVar("File", bound=Section)
Method = Literal["pvi", "vertical", "sigma", "sparse"]
TOML_FAULTS = (ValueError, RecursionError)  # beside TOMLDecodeError: thousands of digits, or of brackets
# Keys of paths, and of clients, whose names come from paths: a disk tells apart what readers don't.
PATHS = {"clients", "names", "client_weights", "priors", "test", "server", "prior", "client_folder", "areas", "adjacency"}


def _rounds(value: Any) -> Any:
    if value == "budget" or (type(value) is int and value >= 1):
        return value
    raise PydanticCustomError("rounds", 'a whole number of at least 1, or "budget" in a private job')


def _paths(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class JobSection(Section):
    method: Method = key("pvi", help="the federated method")
    seed: int = key(0, ge=0, lt=2**64, help="of all keyed streams; not of secure noise", remedy="a number of 64 bits")
    rounds: Annotated[int | str, BeforeValidator(_rounds)] = key(100, help="how often the server goes through the clients")
    deadline: Positive = key(600.0, help="seconds after which a silent client counts as lost")


class ColumnSection(Section):
    """What is publicly known of one column."""

    kind: Literal["numeric", "categorical"] | None = key(None, help="of the column; default: what clients find; private: none")
    levels: list[str] | None = key(None, min_length=1, help="all levels of a categorical column")
    reference: str | None = key(None, help="sparse: the level without a coefficient; by default the first in sorted order")
    center: Finite | None = key(None, help="what standardising subtracts")
    scale: Positive | None = key(None, help="what standardising divides by")
    lower: Finite | None = key(None, help="with upper, instead of center and scale: the bounds become -1 and 1")
    upper: Finite | None = key(None, help="with lower")


class SplitSection(Section):
    """How built-in data are dealt to clients (docs/methods/pvi.md, section 13)."""

    clients: Count = key(10, help="how many clients the rows are dealt to")
    rho: float = key(0.0, ge=0, lt=1, help="half of the clients get (1 - rho) n / clients rows, half (1 + rho) n / clients")
    kappa: float = key(0.0, le=1, help="small clients' share of negatives is c + (1 - c) kappa, c that of all rows")
    test: float = key(0.2, ge=0, lt=1, help="share of the rows that the server keeps for testing")
    seed: int = key(0, ge=0, lt=2**32, help="of the shuffle", remedy="a number of 32 bits")


class DataSection(Section):
    clients: Annotated[list[str], BeforeValidator(_paths)] = key([], help="csv, parquet, npz or npy files; wildcards allowed")
    names: list[str] = key([], help="of the clients, in the order of their files; by default the files' stems")
    builtin: Literal["breast-cancer", "adult", "heart-disease", "rppa", "rppa-217", "sachs"] | None = key(
        None, help="data of a dependency, or a published set in FEDKERN_DATA"
    )
    split: SplitSection = key(SplitSection(), help="how built-in data are dealt to clients")
    preprocess: Literal["public", "paper"] = key("public", help="paper: constants from all rows, as published; not private")
    response: str | None = key(None, help="the column to be explained")
    positive: str | None = key(None, help="the label that counts as 1 in a binary response")
    offset: str | None = key(None, help="a column that is added to the linear predictor")
    weight: str | None = key(None, help="a column of case weights")
    row_id: str | None = key(None, help="a column that names the row; shards are made from its hash")
    ignore: list[str] = key([], help="columns of the files that the model does not use")
    standardise: Literal["public", "exchange", "none"] = key("exchange", help="by [data.columns], by statistics, or not")
    columns: dict[str, ColumnSection] = key({}, help="what is publicly known of the columns")
    test: str | None = key(None, help="a file of test rows, held by the server")


class VerticalDataSection(Section):
    """Columns are split over clients: every file has the same rows, named by an id, and columns of its own."""

    clients: Annotated[list[str], BeforeValidator(_paths)] = key([], help="csv, parquet, npz or npy files; wildcards allowed")
    names: list[str] = key([], help="of the clients, in the order of their files; by default the files' stems")
    builtin: Literal["heart-failure"] | None = key(None, help="a published set in FEDKERN_DATA, split by column")
    id: str = key(help="the column that names the row at every party")
    response: str = key(help="the column to be explained")
    positive: str | None = key(None, help="the label that counts as 1 in a binary response")
    server: str | None = key(None, help="the server's file, with id, response and offset; else a client tells the response")
    offset: str | None = key(None, help="a column of the server's file that is added to the linear predictor")
    group: str | None = key(None, help="multilevel: a column of every client, each of whose levels has slopes of its own")
    holdout: float = key(0.0, ge=0, lt=1, help="share of the rows that are kept for testing")
    folds: Count | None = key(None, help="instead of holdout: the rows of one of so many folds are kept for testing")
    fold: int = key(0, ge=0, help="which of the folds, from 0")
    split_seed: int = key(0, ge=0, lt=2**32, help="of the rows that are kept for testing", remedy="a number of 32 bits")
    ignore: list[str] = key([], help="columns of the files that the model does not use")
    standardise: Literal["own", "public", "none"] = key("own", help="by a client's own training rows, by [data.columns], or not")
    columns: dict[str, ColumnSection] = key({}, help="what is known of the columns")


LOG = ", ".join(families.taken_by("sigma", where=lambda family: family.link == "log"))
TRIALS = ", ".join(families.taken_by("sigma", where=lambda family: family.trials))


class SigmaDataSection(Section):
    """Every row belongs to an area, or to a grid point, of the client's part of a trained prior."""

    clients: Annotated[list[str], BeforeValidator(_paths)] = key([], help="csv, parquet or npz files; wildcards allowed")
    names: list[str] = key([], help="of the clients as the prior has them, in the order of the files; default: the files' stems")
    area: str | None = key(None, help="the column with the name of the area")
    rows_per_area: Literal["one", "any"] = key(
        "one", help="area: one row each, whose response may be empty; any: several, each an observation of its own, or none"
    )
    location: Annotated[list[str], BeforeValidator(_paths)] = key([], help="instead: coordinates; a row goes to its grid point")
    response: str = key(help="the column to be explained; rows where it is empty are predicted")
    interpolation: Literal["nearest", "linear"] = key("nearest", help="location: the nearest grid point, or linear between two")
    positive: str | None = key(None, help="the label that counts as 1 in a binary response")
    exposure: str | None = key(None, help=f"{LOG}: expected counts, or person-years; its logarithm is added to the predictor")
    offset: str | None = key(None, help="a column that is added to the linear predictor")
    trials: str | None = key(None, help=f"{TRIALS}: the number of trials")
    ignore: list[str] = key([], help="columns of the files that the model does not use")
    standardise: Literal["exchange", "public", "none"] = key("exchange", help="by statistics, by [data.columns], or not")
    columns: dict[str, ColumnSection] = key({}, help="what is publicly known of the columns")


class ModelSection(Section):
    kind: Literal["glm"] = key("glm", help="generalised linear model")
    family: families.OfPvi = key("bernoulli", help="of the response, with its canonical link")
    covariance: Literal["diagonal", "full"] = key("diagonal", help="of the Gaussian posterior")
    prior_precision: float = key(1.0, ge=1e-10, le=1e10, help="of every coefficient", remedy="1 / sd^2 of its prior")
    intercept: bool = key(True, help="add a column of ones")
    scale: Positive = key(1.0, help="standard deviation of a gaussian response" + families.given_scales("pvi"))
    preset: Literal["paper"] | None = key(None, help="a published configuration, whose values the file may override")


Variant = Literal["pvi", "local-averaging", "virtual-clients", "global-vi", "bcm-same", "bcm-split"]


class AlgorithmSection(Section):
    variant: Variant = key(help="of partitioned variational inference")
    schedule: Literal["sequential", "synchronous", "random", "asynchronous"] = key(help="who works when")
    client_weights: dict[str, Positive] = key({}, help="random schedule: public weights; clients not named have 1")
    local_steps: Count = key(help="optimiser steps of one update")
    optimiser: Literal["adagrad", "adam", "sgd", "exact"] = key(help="of a client's local problem")
    optimiser_state: Literal["keep", "reset"] = key(help="between the updates of a client")
    learning_rate: Positive = key(help="of the optimiser")
    estimator: Literal["analytic", "weight-mc", "activation-mc", "stl", "total"] = key(help="of the local gradient")
    draws: Count = key(1, help="per step, of a Monte-Carlo estimator")
    damping: float | None = key(None, gt=0, le=1, help="of an update; default 1, or 1 / clients if all work at once")
    damping_form: Literal["moment", "natural"] = key(help="what damping interpolates")
    average: Literal["none", "half"] = key(help="release the last posterior, or the mean over the second half of all updates")
    shards: int | None = key(None, ge=2, help="parts of a client's rows in local-averaging and virtual-clients")
    batch: float = key(1.0, gt=0, le=1, help="rate at which rows enter a step of a job that is not private")
    updates_per_client: Count | None = key(None, help="public cap on the updates of each client")
    min_updates: int = key(0, ge=0, help="updates, over all clients, that a job must reach for its result to count")
    sites: Literal["own", "averaged"] = key("own", help='privacy.unit = "client": who keeps what of the noisy sum')
    max_staleness: Count | None = key(None, help="asynchronous: updates after which an answer is too old; default 4 x clients")
    checkpoint_every: Positive = key(60.0, help="seconds between checkpoints")

    def damping_of(self, n_clients: int) -> float:
        """The damping of a job with so many clients: those that work at once share one step (docs/methods/pvi.md, section 8)."""
        at_once = self.schedule in ("synchronous", "asynchronous")
        return self.damping or (1.0 / n_clients if at_once else 1.0)


class Terms(Section):
    """What may differ between clients."""

    epsilon: float | None = key(None, gt=0, help="cap over all rounds", remedy="1 is strong, 10 is weak, inf is no cap")
    delta: float | None = key(None, gt=0, le=0.1, help="probability of exceeding epsilon", remedy="below 1 / rows, such as 1e-5")
    clip: Positive | None = key(None, help="bound on a row's gradient", remedy="0.75 x the median row norm, if that is public")
    noise_multiplier: Positive | None = key(None, help="noise sd over clip")
    sampling_rate: float | None = key(None, gt=0, le=1, help="probability that a row enters a step", remedy="for example 0.02")
    batch_size: Count | None = key(None, help="rows of a step, where their number is fixed")
    dataset_size: Count | None = key(None, help="number of rows, where it is public")
    max_batch: Count | None = key(None, help="poisson-truncated: the largest batch")


class PrivacySection(Terms):
    unit: Literal["example", "client"] = key("example", help="what neighbouring data sets differ by")
    calibrate: bool = key(help="find the noise multiplier from epsilon, delta and the public number of steps")
    sampling: Literal["poisson", "poisson-truncated", "without-replacement", "full", "shards"] = key("poisson", help="of rows")
    client_rate: float = key(1.0, gt=0, le=1, help='unit = "client": probability that a client counts in a round')
    noise_source: Literal["secure", "keyed"] = key("secure", help="keyed noise is for experiments: epsilon is infinite")
    accountant: Literal["pld", "rdp"] = key(help="of dp-accounting")
    last_update: Literal["refuse", "shorten"] = key("refuse", help="when a whole update no longer fits the budget")
    rows_per_person: Count = key(1, help="rows that one person may have, over all clients")
    clients: dict[str, Terms] = key({}, help="terms of one client that differ")

    def of(self, client: str) -> Terms:
        """The terms of one client: the section's, overridden by its own."""
        common = {name: getattr(self, name) for name in Terms.model_fields}
        own = self.clients[client].model_dump(exclude_none=True) if client in self.clients else {}
        return Terms(**{**common, **own})


class OutputSection(CommonOutputSection):
    metrics_every: Count = key(1, help="rounds between two measurements on the test rows")
    draws: Count = key(1000, help="per chain, from the posterior into posterior.nc")
    chains: Count = key(4, help="independent sets of draws")


class Job(Section):
    """What a job of any method has, with all defaults filled in."""

    job: JobSection
    data: Section
    model: Section
    algorithm: Section
    privacy: Section | None = None
    output: CommonOutputSection

    @property
    def canonical(self) -> str:
        """One JSON text for one meaning: sorted keys, infinite numbers as "inf"."""
        return json.dumps(plain(self.model_dump()), sort_keys=True, separators=(",", ":"), allow_nan=False)

    @property
    def digest(self) -> str:
        """What the ranks of a job compare: BLAKE2b-256 of the canonical text."""
        return blake2b(self.canonical.encode(), digest_size=32).hexdigest()


class Config(Job):
    """A job of method "pvi"."""

    data: DataSection
    model: ModelSection
    algorithm: AlgorithmSection
    privacy: PrivacySection | None = None
    output: OutputSection


class SparseConfig(Job):
    """A job of method "sparse"."""

    data: DataSection
    model: SparseModelSection
    algorithm: SparseAlgorithmSection
    privacy: PrivacySection | None = None
    output: SparseOutputSection


class VerticalConfig(Job):
    """A job of method "vertical"."""

    data: VerticalDataSection
    model: VerticalModelSection
    algorithm: VerticalAlgorithmSection
    privacy: VerticalPrivacySection | None = None
    output: VerticalOutputSection


class SigmaConfig(Job):
    """A job of method "sigma"."""

    data: SigmaDataSection
    model: SigmaModelSection
    algorithm: SigmaAlgorithmSection
    privacy: PrivacySection | None = None
    output: SigmaOutputSection


AnyConfig = Config | SparseConfig | VerticalConfig | SigmaConfig
KINDS: dict[str, tuple[type[AnyConfig], Callable[[Any], Iterator[str]]]] = {
    "pvi": (Config, conflicts),
    "sparse": (SparseConfig, sparse_conflicts),
    "vertical": (VerticalConfig, vertical_conflicts),
    "sigma": (SigmaConfig, sigma_conflicts),
}


def load(
    job: str | Path | Mapping[str, Any], sets: Sequence[str] = (), sections: Mapping[str, Mapping[str, Any]] | None = None
) -> tuple[AnyConfig, Path]:
    """Reads and checks a job.

    Parameters
    ----------
    job : path of a TOML file, or its tables
    sets : "section.key=value" overrides, values in TOML notation (a bare word is a text)
    sections : tables whose keys override the job's

    Returns
    -------
    the job, and the folder that its paths are relative to

    Raises
    ------
    JobError
        Names every faulty key, its value, what was wanted, and the remedy.
    """
    if isinstance(job, Mapping):
        return parse(written_once(merged(job, sections or {})), sets=sets), Path.cwd()
    path = Path(job)
    return parse(merged(tables_of(path, "job"), sections or {}), name=str(path), sets=sets), path.resolve().parent


def tables_of(path: Path, what: str) -> dict[str, Any]:
    """The tables of a TOML file; JobError where it is none, `what` it should have been."""
    if not is_there(path):
        raise JobError(f"{path}: cannot be read (No such file or directory); give the path of a {what} file")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise JobError(f"{path}: cannot be read ({error.strerror}); give the path of a {what} file") from None
    except UnicodeDecodeError:
        raise JobError(f"{path}: is no UTF-8 text; give the path of a TOML {what} file, saved as UTF-8") from None
    try:
        return written_once(tomllib.loads(text))
    except TOML_FAULTS as error:
        raise JobError(f"{path}: is no TOML: {error}") from None


def written_once(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The tables with each letter of their texts written in the one way that cells have (NFC); paths stay as they are."""
    once = {canonical(key): value if key in PATHS else _written_once(value) for key, value in tables.items()}
    if len(once) < len(tables):
        raise ValueError(f"two of the keys {', '.join(map(repr, tables))} are one but for blanks or the way letters are written")
    return once


def _written_once(value: Any) -> Any:
    if isinstance(value, Mapping):
        return written_once(value)
    if isinstance(value, list):
        return [_written_once(one) for one in value]
    return value if not isinstance(value, str) or value.isascii() else normalize("NFC", value)


def merged(raw: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Tables with those of `over` laid over them, key by key."""
    both = {k: merged(raw[k], v) for k, v in over.items() if isinstance(v, Mapping) and isinstance(raw.get(k), Mapping)}
    return {**raw, **over, **both}


def parse(raw: Mapping[str, Any], *, name: str = "job", sets: Sequence[str] = ()) -> AnyConfig:
    """Checks the tables of a job and fills in the defaults; `name` begins the error text."""
    for text in sets:
        raw = override(raw, text)
    method = table(raw, "job").get("method")
    kind, refused = KINDS.get(method, KINDS["pvi"]) if isinstance(method, str) else KINDS["pvi"]
    return validated(kind, filled(raw), refused, name)


def validated(kind: type[File], tables: Mapping[str, Any], refused: Callable[[Any], Iterator[str]], name: str) -> File:
    """The tables as a configuration of this kind; JobError with all faults, or all contradictions that `refused` names."""
    try:
        config = kind.model_validate(tables)
    except ValidationError as error:
        raise JobError(f"{name}: {explain(error.errors(include_url=False), kind)}") from None
    faults = list(refused(config))
    if faults:
        raise JobError(f"{name}: " + "; also ".join(faults))
    return config


def override(raw: Mapping[str, Any], text: str) -> dict[str, Any]:
    """The tables with one "section.key=value" applied."""
    if "\n" in text or "\r" in text:  # what comes after it would be another key, and be lost
        raise JobError(f"--set {text!r}: has a line break; give one --set for each key")
    path, equals, value = text.partition("=")
    *sections, last = path.strip().split(".")
    if not equals or not sections or not all([*sections, last]):
        raise JobError(f"--set {text}: wanted section.key=value, such as job.rounds=10")
    inside = out = dict(raw)
    for section in sections:
        inner = inside.get(section, {})
        if not isinstance(inner, Mapping):
            raise JobError(f"--set {text}: {section} is no section of the job file")
        inside[section] = inside = dict(inner)
    try:
        inside[last] = _written_once(tomllib.loads(f"value = {value.strip()}")["value"])
    except TOML_FAULTS:
        inside[last] = _written_once(value.strip())
    return out
