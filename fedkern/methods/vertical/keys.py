"""Defines the job file's sections where method = "vertical". Source: docs/spec/vertical.md, sections 2, 4, 6 to 11."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from ...disclosure.requirement import Requirement
from ...jobs import incomplete
from ...jobs.constants import undeclared
from ...jobs.keys import (
    MOST_ROUNDS,
    Chains,
    ColumnSection,
    CommonOutputSection,
    Count,
    CountedJobSection,
    DialectSection,
    Draws,
    Finite,
    FitUntilSection,
    JobConfig,
    Label,
    Paths,
    Positive,
    Raw,
    Section,
    StepsSection,
    Tables,
    faults_of_schedule,
    key,
    lay_until,
    no_cool_down,
    unbounded,
)
from ...jobs.load import layered, table
from ...jobs.naming import faults as faults_of_names
from ...kernels import families
from ...kernels.families import FAMILIES, quoted, taken_by
from ...privacy.accountant import LARGEST_EPSILON, LEAST_CLIP
from ...sections import remedy

NETWORKS = ("network", "bayes-network")


def _scale(value: object) -> Any:
    if value == "unknown" or (isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")):
        return value
    raise PydanticCustomError("scale", 'a number > 0, or "unknown"')


def _memory(value: object) -> Any:
    if value == "rising" or (isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1):
        return value
    raise PydanticCustomError("memory", 'a number >= 0 and < 1, or "rising"')


class PriorSection(Section):
    """Holds the prior of one client's coefficients, which the client need not tell anybody."""

    mean: Finite = key(0.0, help="of every coefficient, on the standardised scale")
    sd: Positive = key(1.0, help="of every coefficient, on the standardised scale")


class DataSection(Section):
    """Describes columns that are split over clients: every file has the same rows, named by an id, and other columns."""

    clients: Paths = key([], path=True, help="csv, parquet, npz or npy files; wildcards allowed")
    names: list[str] = key([], path=True, help="of the clients, in the order of their files; by default the files' stems")
    builtin: Literal["heart-failure"] | None = key(None, help="a published set in FEDKERN_DATA, split by column")
    id: str = key(help="the column that names the row at every party")
    most_ids: Count | None = key(
        None,
        help="rows that not all parties have are left out, found without a list of ids: each party's encrypted list is filled up "
        "to so many (docs/methods/vertical.md). Default: parties compare digests of ids, and must have the same",
    )
    response: str = key(help="the column to be explained")
    positive: Label = key(None, help="the label that counts as 1 in a binary response; default by the two that there are")
    server: str | None = key(
        None, path=True, help="the server's file, with id, response and offset; else a client tells the response"
    )
    offset: str | None = key(None, help="a column of the server's file that is added to the linear predictor")
    group: str | None = key(None, help="multilevel: a column of every client, each of whose levels has slopes of its own")
    holdout: float = key(0.0, ge=0, lt=1, help="share of the rows that are kept for testing")
    folds: Count | None = key(None, help="instead of holdout: the rows of one of so many folds are kept for testing", expert=True)
    fold: int = key(0, ge=0, help="which of the folds, from 0", expert=True)
    ignore: list[str] = key([], help="columns of the files that the model does not use")
    standardise: Literal["own", "public", "none"] = key("own", help="by a client's own training rows, by [data.columns], or not")
    columns: dict[str, ColumnSection] = key({}, help="what is known of the columns")
    dialect: DialectSection = key(DialectSection(), help="how the parties' text files are written")


class ModelSection(incomplete.ModelSection):
    kind: Literal["linear", "multilevel", "network", "bayes-network"] = key(
        "linear", help="of a client's part: linear, slopes by group, split network, hierarchical Bayes split network"
    )
    augmentation: Literal["augmented", "power"] = key("augmented", help="auxiliary variables alone, or power likelihoods")
    family: families.OfVertical = key("bernoulli", help="of the response, with its canonical link", meant=families.MEANT)
    rho: Positive | None = key(
        None,
        help="standard deviation of the auxiliary variables about the clients' parts; default of open amortised jobs: worked out "
        "from the response, so that 95 % of a row's information is kept; of all others 0.5",
    )
    scale: Annotated[float | str, BeforeValidator(_scale)] = key(
        "unknown", help="standard deviation of a gaussian response" + families.given_scales("vertical")
    )
    intercept: bool = key(help="at the server; default false for networks, else true")
    intercept_sd: float = key(ge=1e-5, le=1e5, help="of the intercept's prior; default 5 in open amortised sfvi jobs, else 1")
    intercept_centre: float | None = key(
        None,
        ge=-1e100,
        le=1e100,
        help="of the intercept's prior; default of open amortised sfvi jobs: the level of the response, by the server; else 0",
    )
    scale_sd: float | None = key(
        None,
        ge=1e-100,
        le=1e100,
        help="sfvi: of the half-normal prior of a gaussian response's unknown scale; default: the response's standard deviation, "
        "by the server, and at least 1",
    )
    prior: PriorSection = key(PriorSection(), help="of every client's coefficients")
    priors: dict[str, PriorSection] = key({}, path=True, help="client -> the prior of its own coefficients")
    centred: bool = key(True, help="multilevel: slopes themselves, or their standardised deviations from the mean", expert=True)
    hidden: list[Count] = key([8, 8], help="networks: units of the hidden layers, ReLU")
    features: Count = key(2, help="networks: outputs of a client's network, the columns of its last layer", expert=True)
    weight_sd: float | None = key(
        None,
        gt=0,
        help="networks: prior sd of weights, times the root of a layer's inputs; default 1; inf: none, as published",
        expert=True,
    )


class AlgorithmSection(StepsSection):
    inference: Literal["sfvi", "soul"] = key("sfvi", help="variational, or Langevin draws given the mode of the auxiliaries")
    auxiliary: Literal["mean-field", "amortised"] = key(help="family of the auxiliary variables; default amortised")
    inputs: Literal["complete", "recommended", "paper"] = key(
        "complete",
        help="amortised: with the part's own mean and the average message; without the former; or as published",
        expert=True,
    )
    network: list[Count] = key([16, 16], help="amortised: units of the hidden layers, tanh", expert=True)
    covariance: Literal["auto", "diagonal", "full"] = key(
        help='of each client\'s coefficients; "auto", the default of open jobs, is full where a client has at most 64'
    )
    estimator: Literal["stl", "entropy"] = key(
        "stl", help="of gradients: sticking the landing, or the closed-form entropy", expert=True
    )
    response: Literal["server", "shared"] = key(help="where the response is used: at the server alone, or at all clients")
    draws: Count = key(1, help="joint draws of a round; messages grow with them", expert=True)
    batch_size: Count | None = key(None, help="rows of a mini-batch; by default all", expert=True)
    local_steps: Count = key(1, help="steps of a client from one exchange (augmented, logistic or known scale)", expert=True)
    optimiser: Literal["adam", "adagrad", "sgd"] = key("adam", help="of all parties")
    learning_rate: Positive = key(0.01, help="of the optimiser")
    cool_down: float = key(
        ge=0, le=1, help="share of the rounds, the last, over which the learning rate falls to zero; default 0.5, private 0"
    )
    average: Literal["none", "half"] = key(
        "half", help="release the last parameters, or the mean over the second half of rounds", expert=True
    )
    memory: Annotated[float | str, BeforeValidator(_memory)] = key(
        "rising",
        help="of the average message that amortised families are told: a number, or over the last twentieth of rounds",
        expert=True,
    )
    start_sd: Positive = key(0.1, help="standard deviation of the coefficients' posterior at the start", expert=True)
    moves: Count = key(20, help="soul: Langevin moves of a client in a round", expert=True)
    until: FitUntilSection | None = key(
        None, help="sfvi, open jobs: stop when all unknowns have settled, job.rounds being the most"
    )
    checkpoint_every: Positive = key(60.0, resumable=True, help="seconds between checkpoints")


class PrivacySection(Section):
    """Describes the noise on a client's messages: it protects the values of one row of its columns, not the response."""

    epsilon: float | None = key(
        None, gt=0, help="cap over all rounds, of every client for its own columns", remedy="inf is no cap"
    )
    delta: float | None = key(None, gt=0, le=0.1, help="probability of exceeding epsilon", remedy="below 1 / rows, such as 1e-5")
    clip_z: Positive = key(3.0, help="bound on every |z|, in units of the linear predictor")
    clip_gradient: Positive = key(1.0, help="bound on the norm of a row's part of the gradient of a client's coefficients")
    noise_multiplier: Positive | None = key(None, help="noise sd over clip, of both releases of a round")
    calibrate: bool = key(help="find the noise multiplier from epsilon, delta and the number of rounds")
    noise_source: Literal["secure", "keyed"] = key("secure", help="keyed noise is for experiments: epsilon is infinite")
    accountant: Literal["pld", "rdp"] = key("pld", help="of dp-accounting")
    last_update: Literal["refuse"] = key("refuse", help="when a whole round no longer fits the budget", expert=True)
    rows_per_person: Count = key(1, help="rows that one person may have")

    def promised(self, client: str) -> dict[str, Any]:
        """Returns the entries that a certificate must have about its noise, as far as the job file decides them."""
        entries: dict[str, object] = {"unit": "example", "noise_source": self.noise_source, "sampling": "aligned"}
        return entries if self.calibrate else entries | {"noise_multiplier": self.noise_multiplier}

    def cap(self, client: str) -> tuple[float, float]:
        """Returns epsilon and delta, which every valid job has, alike for all clients."""
        assert self.epsilon is not None
        assert self.delta is not None
        return self.epsilon, self.delta


class OutputSection(CommonOutputSection):
    metrics_every: Count = key(100, help="rounds between two lines of metrics.jsonl", expert=True)
    draws: Draws = key(1000, resumable="drawn_at_the_end", help="per chain, from the posterior into posterior.nc")
    chains: Chains = key(4, resumable="drawn_at_the_end", help="independent sets of draws")
    bound: bool = key(
        help="clients also send their terms of the ELBO, one number in ten rounds, or as often as metrics_every; default true in "
        "open sfvi jobs"
    )
    rule: Literal["posterior", "plug-in", "augmented"] = key(
        "posterior", help="of the predictions on the rows kept for testing", expert=True
    )
    missing_party: bool | Literal["columns"] = key(
        False,
        help="score the test rows without each party too: clients send E z of the training rows; by the others' columns: each "
        "client learns the others' fitted part of every training row",
    )


class Config(JobConfig):
    """Holds a job of method "vertical"."""

    job: CountedJobSection
    data: DataSection
    model: ModelSection
    algorithm: AlgorithmSection
    privacy: PrivacySection | None = None
    output: OutputSection

    @property
    def shared(self) -> bool:
        """Whether clients use the response."""
        return self.algorithm.response == "shared"

    @property
    def without_intercept(self) -> bool:
        return self.model.kind == "linear" and not self.model.intercept

    @property
    def most_ids(self) -> int | None:
        return self.data.most_ids

    @property
    def requirement(self) -> Requirement:
        return replace(super().requirement, each_row=True)

    @property
    def readers(self) -> str:  # slopes, or the sum itself, tell each client the sum of the others' parts of every row
        return "a server, of two clients the other, and of more all others together,"

    @property
    def drawn_at_the_end(self) -> bool:
        """Whether the draws are made once the fit is known."""
        return self.algorithm.inference == "sfvi"


# docs/spec/vertical.md, sections 4 and 9.
BASE: Tables = {"job": {"rounds": 10_000}}
WIDE = 5.0  # sd of the intercept's prior about the response's level
HEART_FAILURE: Tables = {"data": {"id": "id", "response": "HeartDisease"}}


def refused(raw: Raw) -> Iterator[str]:
    """Yields the keys of other methods that this one refuses, with the remedy."""
    if "trials" in table(raw, "data"):
        yield 'data.trials is for method = "pvi" and "sigma": give each trial a row of its own, with a response of 0 or 1'
    if table(raw, "job").get("rounds") == "budget":
        yield 'job.rounds = "budget" does not exist with method = "vertical"; give a number'
    if "privacy" in raw and (table(raw, "job").get("rounds") == "until" or "until" in table(raw, "algorithm")):
        yield (
            '[privacy]: rounds = "until" (algorithm.until): clients would tell, without noise, whether their coefficients still '
            "move, and how many rounds there are decides what is spent; give job.rounds a number, and remove algorithm.until"
        )


def fill_defaults(raw: Raw) -> dict[str, Any]:
    """Fills in every key that the job file left out.

    Networks have no intercept of their own; a power likelihood needs the response at all clients (vertical.md, section 6).
    """
    builtin = table(raw, "data").get("builtin") == "heart-failure"
    private = "privacy" in raw
    out = layered(raw, [BASE] + [HEART_FAILURE] * builtin)
    if not private:
        lay_until(raw, out, MOST_ROUNDS)
    model, algorithm = out["model"], out["algorithm"]
    if not isinstance(model, dict) or not isinstance(algorithm, dict):
        return out
    network = model.get("kind", "linear") in NETWORKS
    model.setdefault("intercept", not network)
    if network:
        model.setdefault("weight_sd", 1.0)
    power = model.get("augmentation") == "power"
    holder = "shared" if power else "server"
    algorithm.setdefault("response", holder)
    soul = algorithm.get("inference") == "soul"
    kind = "mean-field" if soul or private else "amortised"
    algorithm.setdefault("auxiliary", kind)
    if private or soul or algorithm["auxiliary"] != "amortised" or model.get("kind") == "network":
        model.setdefault("rho", 0.5)
        model.setdefault("intercept_sd", 1.0)
        model.setdefault("intercept_centre", 0.0)
    model.setdefault("intercept_sd", WIDE)
    covariance = "diagonal" if private else "auto"
    algorithm.setdefault("covariance", covariance)
    cool_down = 0.0 if private else 0.5
    algorithm.setdefault("cool_down", cool_down)
    given = "rounds" in table(raw, "job") or "until" in algorithm
    if "rho" not in model and not given and algorithm["cool_down"] not in (0, 1):
        algorithm["until"] = {}  # how many rounds it takes depends on the rho that is worked out
        lay_until(raw, out, MOST_ROUNDS)
    if private and isinstance(out["data"], dict):
        out["data"].setdefault("standardise", "public")
    if isinstance(out["output"], dict):
        out["output"].setdefault("bound", not (soul or private or model.get("kind") == "network"))
    terms = out.get("privacy")
    if isinstance(terms, dict):
        terms.setdefault("calibrate", "noise_multiplier" not in terms)
    return out


def conflicts(config: Config) -> Iterator[str]:
    """Yields every contradiction between keys, each as a sentence with its remedy."""
    if config.job.device == "cuda":
        yield 'job.device = "cuda": none of the kernels of a vertical job runs on a device (a message every iteration); use "cpu"'
    yield from _data(config)
    yield from _model(config)
    yield from _algorithm(config)
    if config.privacy is not None:
        yield from _private(config, config.privacy)


def _private(config: Config, privacy: PrivacySection) -> Iterator[str]:
    """Yields the keys that have no private form; the reasons are in `algorithms.split.private`."""
    model, a, data = config.model, config.algorithm, config.data
    if model.kind != "linear" or model.augmentation != "augmented" or a.auxiliary != "mean-field" or a.inference != "sfvi":
        yield (
            '[privacy]: the private form is for kind = "linear", augmentation = "augmented", inference = "sfvi" and '
            'auxiliary = "mean-field": networks meet all rows in gradients that are not clipped'
        )
    if a.batch_size is not None or a.draws > 1 or a.local_steps > 1:
        yield "[privacy]: batch_size, draws and local_steps have no private form; remove them"
    if data.standardise == "own":
        yield '[privacy]: data.standardise = "own" moves every row by statistics of all rows; take "public", or "none"'
    if data.holdout or data.folds:
        yield "[privacy]: predictions of rows kept for testing would leave a client without noise; remove data.holdout and folds"
    if config.output.bound:
        yield "[privacy]: output.bound would leave a client without noise; remove it"
    if config.output.missing_party:
        yield "[privacy]: output.missing_party would tell fitted parts of the training rows without noise; remove it"
    if data.server is None:
        yield "[privacy]: the server needs a file with the response; give data.server"
    if (privacy.noise_multiplier is None) != privacy.calibrate:
        yield "privacy: wanted either noise_multiplier or calibrate = true"
    for name, clip in (("clip_z", privacy.clip_z), ("clip_gradient", privacy.clip_gradient)):
        if clip < LEAST_CLIP:
            yield f"privacy.{name} = {clip:g}: wanted at least {LEAST_CLIP:g}"
    lacking = [name for name in ("epsilon", "delta") if getattr(privacy, name) is None]
    for name in lacking:
        field = PrivacySection.model_fields[name]
        yield f"privacy.{name} is missing: {field.description} ({remedy(field)})"
    if lacking and data.clients:
        standardise: Literal["public", "none"] = "public" if data.standardise == "public" else "none"
        yield from undeclared(data.columns, standardise, {data.id, data.response, *data.ignore})
    if privacy.epsilon is not None and LARGEST_EPSILON < privacy.epsilon < math.inf:
        yield unbounded("privacy.epsilon", privacy.epsilon)
    if privacy.calibrate and privacy.epsilon == math.inf:
        yield "privacy.calibrate = true needs a finite epsilon"


def _data(config: Config) -> Iterator[str]:
    """Yields faults of [data]."""
    data, model = config.data, config.model
    if bool(data.clients) == bool(data.builtin):
        yield "data: wanted either data.clients (files) or data.builtin; give one of them"
    if data.builtin and (data.server or data.group):
        yield f'data.builtin = "{data.builtin}" has its own response and no groups; remove data.server and data.group'
    if data.folds is not None and (data.folds < 2 or data.fold >= data.folds):
        yield f"data.fold = {data.fold} of data.folds = {data.folds}: wanted at least 2 folds, and fold from 0 to folds - 1"
    if data.folds is not None and data.holdout:
        yield "data.folds and data.holdout both keep rows for testing; give one of them"
    if data.folds is None and data.fold:
        yield "data.fold without data.folds; give both"
    if data.positive is not None and not FAMILIES[model.family].binary:
        binary = quoted(taken_by("vertical", where=lambda f: f.binary))
        yield f'data.positive: only family = {binary} has a positive label, not "{model.family}"; remove it'
    if config.disclosure.small == "leave-out":
        yield 'disclosure.small = "leave-out" is not for method = "vertical", whose clients all have the same rows; remove it'
    if data.offset is not None and data.server is None:
        yield "data.offset is a column of the server's file; give data.server too"
    if (data.group is not None) != (model.kind == "multilevel"):
        yield 'data.group and model.kind = "multilevel" go together; give both, or neither'
    roles = [name for name in (data.id, data.response, data.offset, data.group) if name is not None]
    if len(set(roles)) < len(roles):
        yield f"data: id, response, offset and group must be different columns, got {', '.join(roles)}"
    yield from faults_of_names(data.names, "data.names")
    if model.missing == "drop" and config.privacy is not None:
        yield (
            'model.missing = "drop" is not for a private job with method = "vertical": all would leave out the same rows, and '
            'every party learn which rows may lack a cell; take "indicator", or remove these rows at all parties'
        )
    if data.most_ids is not None:
        named = data.names or (data.clients if not any(mark in path for path in data.clients for mark in "*?[") else [])
        if not data.builtin and len(named) + (data.server is not None) < 2:
            yield "data.most_ids: name every client (data.clients without a pattern, or data.names), two parties at least"
        if config.privacy is not None:
            yield (
                "data.most_ids is not for a private job: which rows all parties have would be told without noise; leave it out, "
                "and give all parties the same rows"
            )
    if model.missing == "drop" and config.algorithm.response == "shared":
        yield (
            'model.missing = "drop" is not for algorithm.response = "shared", where parties compare the response before they '
            'know which rows all have; take "indicator", or remove these rows at all parties'
        )
    yield from incomplete.conflicts(config, {*roles, *data.ignore})


def _model(config: Config) -> Iterator[str]:
    """Yields faults of [model]."""
    model, a = config.model, config.algorithm
    if FAMILIES[model.family].lacks_scale(model.scale, "vertical"):
        yield FAMILIES[model.family].scale_is_missing
    if model.rho is not None and not 1e-6 < model.rho < 1e6:
        yield f"model.rho = {model.rho:g}: wanted above 1e-6 and below 1e6; it is a standard deviation on the link scale"
    if model.kind == "network" and model.augmentation == "power":
        yield 'model.kind = "network" has no auxiliary variables, so no augmentation = "power"; leave it out'
    if not model.intercept and model.intercept_centre:
        yield "model.intercept_centre is the prior's of an intercept, and model.intercept = false; leave it out"
    if a.inference == "soul" and (model.intercept_sd, model.intercept_centre) != (1.0, 0.0):
        yield 'algorithm.inference = "soul" has an intercept ~ N(0, 1): leave out model.intercept_sd and model.intercept_centre'
    if model.scale_sd is not None and (a.inference == "soul" or model.family != "gaussian" or model.scale != "unknown"):
        yield (
            "model.scale_sd is the prior's of the unknown scale of a gaussian response in jobs with algorithm.inference = "
            '"sfvi"; leave it out'
        )
    if model.kind == "network" and a.inference == "soul":
        yield 'algorithm.inference = "soul" draws coefficients given auxiliary variables; kind = "network" has none'
    if model.kind in NETWORKS and model.priors:
        yield f'model.priors: the last layers of kind = "{model.kind}" have standard normal priors, or none; remove the table'
    if model.weight_sd is not None and model.kind not in NETWORKS:
        yield f'model.weight_sd is a prior of networks; kind = "{model.kind}" has none, remove it'
    if model.augmentation == "power" and a.response != "shared":
        yield 'algorithm.response = "server": augmentation = "power" needs the response at every client; set it to "shared"'


def _needs_all(config: Config) -> str | None:
    """Returns why each step needs the answers of all clients; None where it does not."""
    if config.algorithm.inference == "soul":
        return "the mode of the auxiliary variables moves by what all clients say in one round"
    if config.model.augmentation == "power":
        return "with power likelihoods a step has the others' slopes at a client's own newest draw, which only they can compute"
    return None


def _algorithm(config: Config) -> Iterator[str]:
    """Yields faults of [algorithm]."""
    model, a, data = config.model, config.algorithm, config.data
    if a.until is not None and (a.inference == "soul" or model.kind == "network"):
        what = 'algorithm.inference = "soul"' if a.inference == "soul" else 'model.kind = "network"'
        yield f'rounds = "until" (algorithm.until): nothing says when {what} has settled; give job.rounds a number'
    elif a.until is not None and not 0 < a.cool_down < 1:
        yield no_cool_down(a.cool_down)
    yield from faults_of_schedule(config, a, _needs_all(config))
    family = FAMILIES[model.family]
    known = family.bounded and (family.dispersion is None or model.scale != "unknown")
    if a.local_steps > 1 and (model.augmentation == "power" or model.kind == "network" or not known):
        yield (
            f"algorithm.local_steps = {a.local_steps}: several steps from one exchange need augmented variables and a bounded "
            "curvature, that is bernoulli, or gaussian with a known scale; set it to 1"
        )
    if a.inference == "soul":
        if model.kind != "linear":
            yield f'algorithm.inference = "soul" is for kind = "linear", not "{model.kind}"'
        if a.batch_size is not None or a.draws > 1 or a.local_steps > 1:
            yield 'algorithm.inference = "soul" has neither batches, draws nor local_steps; remove them'
        if a.auxiliary == "amortised":
            yield 'algorithm.inference = "soul" maximises the auxiliary variables; remove algorithm.auxiliary'
        if not family.bounded and model.augmentation == "power":
            yield f'algorithm.inference = "soul" with power likelihoods needs a bounded curvature, and "{family.name}" has none'
        if config.output.bound or config.output.missing_party:
            yield 'output.bound and output.missing_party do not exist with algorithm.inference = "soul"; remove them'
    if data.standardise == "public":
        for name, column in data.columns.items():
            if column.kind != "categorical" and column.levels is None and column.scale is None and column.lower is None:
                yield f'data.columns.{name}: standardise = "public" needs its center and scale, or lower and upper'
