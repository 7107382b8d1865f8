"""Defines the job file's sections where method = "sigma". Source: docs/spec/sigma.md, sections 4 to 7 and 9."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from ...jobs.keys import (
    LARGEST,
    MOST_ROUNDS,
    Chains,
    ColumnSection,
    CommonOutputSection,
    Count,
    CountedJobSection,
    CountsPrivacySection,
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
    faults_of_sums,
    key,
    lay_until,
    no_cool_down,
)
from ...jobs.load import layered, table
from ...jobs.naming import faults as faults_of_names
from ...kernels import families
from ...kernels.families import FAMILIES, quoted, taken_by
from ...models.spatial.site import COEFFICIENT_SD
from ...privacy.accountant import Unit
from ...privacy.certificate import OF_COUNTS
from ...sections import remedy

LOG = ", ".join(families.taken_by("sigma", where=lambda family: family.link == "log"))
COUNTED = ", ".join(families.taken_by("sigma", where=lambda family: family.counted))
PUBLIC = "areas, exposures or trials, offsets and covariates; that each area has a count"  # beside counts with noise
LEAST_EPSILON = 0.05  # of a case: with less noise has a thousand values
WIDEST = 1000  # counts of an interval: one that is wider tells next to nothing
EXTRA = ", ".join(families.taken_by("sigma", where=lambda family: family.counted and family.dispersion is None))
TRIALS = ", ".join(families.taken_by("sigma", where=lambda family: family.trials))


def _known(value: object) -> Any:
    if value == "unknown" or (isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= LARGEST):
        return value
    raise PydanticCustomError("known", 'a number > 0, or "unknown"')


def _threshold(value: object) -> object:
    """Checks a threshold: a number, "overall" or "auto"."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")
    if number or value in ("overall", "auto"):
        return value
    raise PydanticCustomError("threshold", 'a number, or "overall" for the level of all clients\' responses together')


def _period(value: object) -> Any:
    """Checks the name of a period."""
    if isinstance(value, int | date) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise PydanticCustomError("period", "a whole number, a date or a text, as it stands in the column")


def _interval(value: Any) -> Any:
    """Checks the interval of a count: two whole numbers, not too far apart."""
    whole = isinstance(value, list | tuple) and len(value) == 2 and all(type(end) is int and end >= 0 for end in value)
    if whole and value[0] <= value[1] <= value[0] + WIDEST:
        return tuple(value)
    raise PydanticCustomError(
        "interval", f"the least and the largest count, two whole numbers in this order, at most {WIDEST} apart; a count of which "
        "less is known is missing: leave its cell empty",
    )  # fmt: skip


Interval = Annotated[tuple[int, int], BeforeValidator(_interval)]
Period = Annotated[str, BeforeValidator(_period)]
Known = Annotated[float | str, BeforeValidator(_known)]
Threshold = Annotated[float | str, BeforeValidator(_threshold)]


class JobSection(CountedJobSection):
    sums: Literal["secure"] | None = key(
        None,
        help="secure: the server gets the sum of all clients' gradients, and no client's own; three clients or more, and "
        'algorithm.inference = "sfvi", "hmc" or "mala"',
    )


class DataSection(Section):
    """Describes the data: every row belongs to an area, or to a grid point, of the client's part of a prior."""

    clients: Paths = key([], path=True, help="csv, parquet or npz files; wildcards allowed")
    names: list[str] = key(
        [], path=True, help="of the clients as the prior has them, in the order of the files; default: the files' stems"
    )
    area: str | None = key(None, help="the column with the name of the area")
    rows_per_area: Literal["one", "any"] = key(
        "one", help="area: one row each, whose response may be empty; any: several, each an observation of its own, or none"
    )
    period: str | None = key(
        None, help="area: the column with the row's period: one row for each area and period (with rows_per_area = any: several)"
    )
    periods: list[Period] = key([], help="all that period may be, in their order: effects of periods are a random walk along it")
    polygons: str | None = key(
        None,
        path=True,
        help="area: GeoJSON of the areas, whose property of that name names them: for maps in reports, and areas.geojson "
        "(output.polygons)",
    )
    location: Paths = key([], help="instead: coordinates; a row goes to its grid point")
    response: str = key(help="the column to be explained; rows where it is empty are predicted")
    censored: dict[str, Interval] = key(
        {}, help=f'{COUNTED}: cells that stand for a count of which an interval is known, such as "<5" = [0, 4]'
    )
    positive: Label = key(None, help="the label that counts as 1 in a binary response")
    exposure: str | None = key(None, help=f"{LOG}: expected counts, or person-years; its logarithm is added to the predictor")
    offset: str | None = key(None, help="a column that is added to the linear predictor")
    trials: str | None = key(None, help=f"{TRIALS}: the number of trials")
    variance: str | None = key(
        None, help="gaussian: the known variance of each response, as of an age-standardised rate; there is no model.scale then"
    )
    ignore: list[str] = key([], help="columns of the files that the model does not use")
    standardise: Literal["exchange", "public", "none"] = key("exchange", help="by statistics, by [data.columns], or not")
    columns: dict[str, ColumnSection] = key({}, help="what is publicly known of the columns")
    dialect: DialectSection = key(DialectSection(), help="how the parties' text files are written")


class ModelSection(Section):
    prior: str = key(path=True, help="folder of a prior (fedkern sigma build, or train), or this party's file of it")
    kind: Literal["within", "auxiliary", "deterministic"] | None = key(
        None,
        help="within: the prior is exact inside each client, the default if it was built. If it was trained theta is about the "
        "decoder's output with the variance that it lacks (auxiliary, the default), or equal to it (the default with location)",
    )
    family: families.OfSigma = key("poisson", help="of the response, canonical link", meant=families.MEANT)
    scale: Known = key(
        "unknown",
        help="error sd of a gaussian response; unknown: half-normal, its scale the response's sd; negative-binomial: r (variance "
        "rate + rate^2 / r); unknown: 1 / sqrt r is half-normal" + families.given_scales("sigma"),
    )
    overdispersion: bool = key(
        False, help=f"{EXTRA}: each row has a further effect of its own, normal on the link scale; its sd is half-normal(1)"
    )
    spatial_scale: Known = key(
        "unknown", help="sigma_theta, which multiplies theta; unknown: half-normal, of the same scale", expert=True
    )
    intercept: bool = key(True, help="with a normal prior about the pooled level of the responses on the link scale")
    coefficient_sd: Positive = key(
        COEFFICIENT_SD, help="prior sd of intercept and coefficients; gaussian: in units of the response's sd"
    )
    phi: Finite | None = key(None, help="one value of the prior's hyperparameter, instead of its prior", expert=True)


class AlgorithmSection(StepsSection):
    inference: Literal["nested", "sfvi", "sfvi-avg", "hmc", "mala", "nuts"] | None = key(
        None,
        help="nested Laplace with importance weights, in as many rounds as it needs (20 to 150) and without a learning rate, the "
        "default where the prior was built, has at most 400 latents, and no key of sfvi is given; variational, the default of "
        "all else; with several local steps (not exact); or Markov chains, the accurate route for few unknowns",
    )
    covariance: Literal["full", "diagonal"] = key("full", help="sfvi: of the global unknowns", expert=True)
    structured: bool = key(
        True, help="sfvi: whether a client's latents depend on the global ones; false is mean-field", expert=True
    )
    shear: bool = key(
        True,
        help="sfvi: the server's steps are of the level of the map and not of the intercept, for which that can stand in",
        expert=True,
    )
    estimator: Literal["stl", "entropy"] = key("stl", help="sfvi: sticking the landing, or the closed-form entropy", expert=True)
    optimiser: Literal["adam", "adagrad", "sgd"] = key("adam", help="sfvi: of all parties")
    learning_rate: Positive = key(0.01, help="sfvi: of all parties")
    cool_down: float = key(0.5, ge=0, le=1, help="sfvi: share of the rounds, at the end, over which the rate falls to nothing")
    start_sd: Positive = key(0.1, help="sfvi: standard deviation of the global unknowns at the start", expert=True)
    local_steps: Count = key(10, help="sfvi-avg: steps of each client in a round", expert=True)
    burn_in: int = key(ge=0, help="hmc, mala: rounds in which steps adapt; default half of them")
    leapfrog_steps: Count = key(10, help="hmc: steps of a round, each of them one exchange", expert=True)
    until: FitUntilSection | None = key(
        None, help="sfvi, sfvi-avg: stop when all unknowns have settled, job.rounds being the most"
    )
    checkpoint_every: Positive = key(60.0, resumable=True, help="seconds between checkpoints")


class OutputSection(CommonOutputSection):
    metrics_every: Count = key(100, help="rounds between two lines of metrics.jsonl", expert=True)
    draws: Draws = key(1000, resumable="drawn_at_the_end", help="nested, sfvi: per chain, from the posterior into posterior.nc")
    chains: Chains = key(4, resumable="drawn_at_the_end", help="independent sets of draws, or Markov chains")
    bound: bool = key(help="clients also send their terms of the ELBO, one number a round; default true with sfvi")
    reweigh: bool = key(
        help="if all has settled clients also send their log-likelihood at 1,000 to 10,000 draws of the global unknowns, so that "
        "weights can say that the fit is right, or that it is not: else it is never true; default that of bound"
    )
    suppressed: Literal["hide", "show"] = key(
        "hide", help="whether areas' tables have the posterior where a count is an interval: it can tell what was suppressed"
    )
    polygons: Literal["geojson", "gpkg"] = key(
        "geojson",
        resumable=True,
        help="data.polygons: each client's areas with the columns of their table for map programs: areas.geojson; gpkg: also "
        "areas.gpkg (GeoPackage), for which geopandas is needed",
    )
    fit: bool = key(False, help="clients with at least 5 areas also send sums of how well areas are foreseen: PSIS-LOO")
    threshold: Threshold = key(
        help="areas' tables have the probability that a rate (or probability, or mean) is above it: a number, or overall, the "
        "level of all clients' responses together; by default overall, but 1 of rates whose exposures are expected counts: whose "
        "level is within a factor of 5 of 1"
    )


class Config(JobConfig):
    """Holds a job of method "sigma"."""

    job: JobSection
    data: DataSection
    model: ModelSection
    algorithm: AlgorithmSection
    privacy: CountsPrivacySection | None = None
    output: OutputSection

    @property
    def counts_rows(self) -> bool:
        return False

    @property
    def secure(self) -> bool:
        return self.job.sums is not None

    @property
    def without_intercept(self) -> bool:
        return not self.model.intercept

    @property
    def unit(self) -> Unit:
        return super().unit if self.privacy is None else self.privacy.unit

    def of_posterior(self, steps: int) -> dict[str, str | float]:
        return {} if self.privacy is None else {"posterior": OF_COUNTS, "public": PUBLIC}

    @property
    def open_ended(self) -> bool:
        return self.algorithm.inference in ("hmc", "mala")

    @property
    def drawn_at_the_end(self) -> bool:
        """Whether the draws are made once the fit is known."""
        return not self.open_ended


ONE_POINT = "a step of a chain is accepted or not by the log density of all clients' rows at one point, for which all must answer"

# Keys without a meaning for a nested Laplace approximation. Those of steps say that these are wanted.
OF_STEPS = (
    "covariance", "structured", "shear", "estimator", "optimiser", "learning_rate", "cool_down", "start_sd", "until", "schedule",
    "lead",
)  # fmt: skip
OF_OTHERS = (*OF_STEPS, "local_steps", "burn_in", "leapfrog_steps")
OF_BOUND = ("bound", "reweigh")

# docs/spec/sigma.md, sections 6 and 7.
BASE: Tables = {"job": {"rounds": 5_000}}


def refused(raw: Raw) -> Iterator[str]:
    """Yields the keys of other methods that this one refuses, with the remedy."""
    if table(raw, "job").get("rounds") == "budget":
        yield 'job.rounds = "budget" does not exist with method = "sigma"; give a number'
    if table(raw, "algorithm").get("inference") == "nested":
        given = [f"algorithm.{name}" for name in OF_OTHERS if name in table(raw, "algorithm")]
        given += [f"output.{name}" for name in OF_BOUND if name in table(raw, "output")]
        if table(raw, "job").get("rounds") == "until":
            given.append('job.rounds = "until"')
        if given:
            them = "it" if len(given) == 1 else "them"
            yield (
                f'{", ".join(given)}: inference = "nested" takes no steps of an optimiser and runs no chains; remove '
                f'{them}, or choose inference = "sfvi" or "hmc"'
            )


def _of_steps(raw: Raw) -> bool:
    """Returns whether the file has a key that only steps of an optimiser have."""
    algorithm, output = table(raw, "algorithm"), table(raw, "output")
    until = table(raw, "job").get("rounds") == "until"
    return until or any(name in algorithm for name in OF_STEPS) or any(output.get(name) is True for name in OF_BOUND)


def fill_defaults(raw: Raw) -> dict[str, Any]:
    """Lays the file's keys over the defaults."""
    out = layered(raw, [BASE])
    lay_until(raw, out, MOST_ROUNDS)
    job, model, algorithm = out["job"], out["model"], out["algorithm"]
    if isinstance(model, dict) and isinstance(out.setdefault("output", {}), dict):
        family = FAMILIES.get(str(model.get("family", "poisson")))
        rates = family is None or family.link == "log"
        level = model.get("intercept") is not False
        threshold: object = 1.0
        if level:
            threshold = "auto" if rates else "overall"
        out["output"].setdefault("threshold", threshold)
    if isinstance(algorithm, dict) and isinstance(job, dict):
        rounds = job["rounds"] if isinstance(job["rounds"], int) and job["rounds"] > 0 else 5_000
        algorithm.setdefault("burn_in", rounds // 2)
        if "inference" not in algorithm and _of_steps(raw):
            algorithm["inference"] = "sfvi"
        if isinstance(out["output"], dict):
            out["output"].setdefault("bound", algorithm.get("inference") in (None, "sfvi"))
            out["output"].setdefault("reweigh", out["output"]["bound"])
    return out


def conflicts(config: Config) -> Iterator[str]:
    """Yields every contradiction between keys, each as a sentence with its remedy."""
    if config.job.device == "cuda":
        yield (
            'job.device = "cuda": none of the kernels of a sigma job runs on a device (the densities of maps are the host\'s, '
            'and its networks are small); use "cpu". The training of its prior does: fedkern sigma train --device cuda'
        )
    yield from _secure(config)
    yield from _data(config)
    yield from _algorithm(config)
    if config.privacy is not None:
        yield from _private(config, config.privacy)


def _secure(config: Config) -> Iterator[str]:
    """Yields faults of a job whose server gets sums alone."""
    if not config.secure:
        return
    yield from faults_of_sums(config)
    sums, inference = 'job.sums = "secure"', config.algorithm.inference
    if inference not in ("sfvi", "hmc", "mala"):
        given = f'algorithm.inference = "{inference}"' if inference else "algorithm.inference"
        yield f'{sums} wants the name of an inference whose server only adds: {given} must be "sfvi", "hmc" or "mala"'
    if config.privacy is not None:
        yield (
            f"{sums}: answers of a private job are stored, and sent again after a crash, under masks that nobody has by then; "
            "remove it, or [privacy]"
        )


def _data(config: Config) -> Iterator[str]:
    """Yields faults of [data]."""
    data, model = config.data, config.model
    family = FAMILIES[model.family]
    if not data.clients:
        yield "data.clients: wanted the clients' files"
    if (data.area is None) == (not data.location):
        yield "data: wanted either area (the column with the area's name) or location (columns of coordinates); give one"
    if data.location and data.rows_per_area != "one":
        yield f'data.rows_per_area = "{data.rows_per_area}": only areas are counted, locations may have any rows; remove it'
    if data.location and data.polygons is not None:
        yield "data.polygons: only areas have polygons, locations are points; remove it"
    if data.exposure is not None and family.link != "log":
        log = quoted(taken_by("sigma", where=lambda f: f.link == "log"))
        yield f'data.exposure: only family = {log} has one, not "{model.family}"; remove it'
    if (data.trials is not None) != family.trials:
        tried = quoted(taken_by("sigma", where=lambda f: f.trials))
        yield f"data.trials and model.family = {tried} go together; give both, or neither"
    if data.censored and not family.counted:
        counted = quoted(taken_by("sigma", where=lambda f: f.counted))
        yield f'data.censored: only family = {counted} has counts, not "{model.family}"; remove it'
    if data.variance is not None and family.link != "identity":
        yield f'data.variance: only family = "gaussian" has known variances, not "{model.family}"; remove it'
    if data.variance is not None and model.scale != "unknown":
        yield "data.variance and model.scale both say how large the errors are; give one of them"
    if data.positive is not None and not family.binary:
        binary = quoted(taken_by("sigma", where=lambda f: f.binary))
        yield f'data.positive: only family = {binary} has a positive label, not "{model.family}"; remove it'
    if family.lacks_scale(model.scale, "sigma"):
        yield family.scale_is_missing
    if model.overdispersion and model.family not in EXTRA.split(", "):
        if family.binary:
            why = "y of 0 or 1 cannot show it"
        elif family.dispersion:
            why = f"it has {family.dispersion.words}"
        else:
            why = ""
        yield f'model.overdispersion: only family = {EXTRA} have it, not "{model.family}": {why}; remove it'
    yield from _periods(data)
    roles = [data.area, data.period, *data.location, data.response, data.exposure, data.offset, data.trials]
    roles.append(data.variance)
    given = [name for name in roles if name is not None]
    if len(set(given)) < len(given):
        roles_of = "area, period, location, response, exposure, offset, trials and variance"
        yield f"data: {roles_of} must be different columns, got {', '.join(given)}"
    yield from faults_of_names(data.names, "data.names")
    if data.standardise == "public":
        for name, column in data.columns.items():
            if column.kind != "categorical" and column.levels is None and column.scale is None and column.lower is None:
                yield f'data.columns.{name}: standardise = "public" needs its center and scale, or lower and upper'


def _private(config: Config, privacy: CountsPrivacySection) -> Iterator[str]:
    """Yields faults of a private job."""
    data, family = config.data, FAMILIES[config.model.family]
    if not family.counted:
        counted = quoted(taken_by("sigma", where=lambda f: f.counted))
        yield f'[privacy]: noise is added to counts, which family = {counted} has, not "{config.model.family}"'
    if data.location or data.rows_per_area != "one":
        yield '[privacy]: a noisy table has one count for each area; give data.area, with data.rows_per_area = "one"'
    if data.censored:
        yield "[privacy]: a suppressed count has no noise that is accounted for; give the counts, and remove data.censored"
    if privacy.epsilon is None:
        field = CountsPrivacySection.model_fields["epsilon"]
        yield f"privacy.epsilon is missing: {field.description} ({remedy(field)})"
    elif privacy.epsilon / privacy.cases_per_person < LEAST_EPSILON:
        yield (
            f"privacy.epsilon = {privacy.epsilon:g} of {privacy.cases_per_person} cases: wanted at least {LEAST_EPSILON:g} for "
            "each case; with less a map has nothing but noise"
        )
    if config.model.overdispersion:
        yield "[privacy]: counts with noise have no further effect of each row; remove model.overdispersion"
    if data.period is not None:
        yield "[privacy]: a noisy table has one count for each area, and none by period; remove data.period"


def _periods(data: DataSection) -> Iterator[str]:
    """Yields faults of the keys about periods."""
    if (data.period is None) != (not data.periods):
        yield "data.period (the column) and data.periods (all that it may be, in their order) go together; give both, or neither"
    if data.period is not None and data.location:
        yield "data.period: only areas have periods, locations have none; remove it"
    if len(data.periods) == 1:
        remedy = "give two or more, or remove data.period and ignore its column"
        yield f"data.periods: one period ({data.periods[0]!r}) has no effect of its own; {remedy}"
    if twice := sorted({period for period in data.periods if data.periods.count(period) > 1}):
        yield f"data.periods: {', '.join(map(repr, twice))} stands there twice; give each period once"


def _algorithm(config: Config) -> Iterator[str]:
    """Yields faults of [algorithm]."""
    a, rounds = config.algorithm, config.job.rounds
    if a.until is not None and config.open_ended:
        yield (
            f'rounds = "until" (algorithm.until) is for inference = "sfvi" or "sfvi-avg", not "{a.inference}": remove it, and '
            "give job.rounds a number; a run of chains that is too short goes on with --resume and more rounds"
        )
    elif a.until is not None and not 0 < a.cool_down < 1:
        yield no_cool_down(a.cool_down)
    yield from faults_of_schedule(config, a, ONE_POINT if config.open_ended else None)
    if a.inference == "nuts":
        yield (
            'algorithm.inference = "nuts": the stopping rule of a trajectory asks all parties, 2^depth exchanges for one draw: '
            'for pooled data only; take "hmc", whose number of steps is fixed'
        )
    if a.inference in ("hmc", "mala") and a.burn_in >= rounds:
        yield f"algorithm.burn_in = {a.burn_in} of {rounds} rounds leaves no draw; lower it, or raise job.rounds"
    if config.output.threshold == "overall" and not config.model.intercept:
        yield 'output.threshold = "overall": a model without intercept does not ask for the pooled level; give a number'
    if a.inference == "nested" and config.model.kind not in (None, "within"):
        yield (
            f'algorithm.inference = "nested" integrates areas out with their exact prior, and model.kind is '
            f'"{config.model.kind}": take "sfvi", or a prior of `fedkern sigma build`'
        )
    if config.output.bound and a.inference not in (None, "sfvi"):
        yield f'output.bound is for algorithm.inference = "sfvi", not "{a.inference}"; remove it'
    if config.output.polygons == "gpkg" and config.data.polygons is None:
        yield 'output.polygons = "gpkg": a GeoPackage needs borders, and data.polygons is not given; give it, or remove the key'
    if config.output.reweigh and not config.output.bound:
        yield "output.reweigh tells clients' shares of the bound, and output.bound is false: remove the one or the other"
