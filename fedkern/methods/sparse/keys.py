"""Defines the job file's sections where method = "sparse". Source: docs/spec/sparse.md, sections 1, 5-7, 9-11."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

from ...disclosure.requirement import Requirement
from ...finding import Finding
from ...jobs.keys import (
    Chains,
    CommonOutputSection,
    Count,
    CountedJobSection,
    DataSection,
    JobConfig,
    Positive,
    Raw,
    Section,
    Tables,
    faults_of_sums,
    key,
    lay_until,
)
from ...jobs.load import layered, table
from ...jobs.naming import faults as faults_of_names
from ...kernels import families
from ...kernels.families import FAMILIES


class JobSection(CountedJobSection):
    sums: Literal["secure"] | None = key(
        None,
        help="secure: the server gets the sums of all clients' draws, and no client's own; three clients or more, and "
        'algorithm.aggregate = "sums", which is the default then',
    )


class ModelSection(Section):
    kind: Literal["regression", "mrf", "sem"] = key(
        "regression", help="Markov random field, structural equations, or a regression"
    )
    family: families.OfSparse = key("gaussian", help="of a regression's response", meant=families.MEANT)
    intercept: bool = key(True, help="of every client, integrated out (bernoulli: drawn); a graph without: columns as they are")
    centre: Literal["mean", "sample"] = key("mean", help="mrf, sem: of columns, their own means or locations that are drawn")
    scale: Literal["pooled", "given", "none"] = key(
        "pooled", help="columns by the median of the sites' variances, by [data.columns], or not at all"
    )
    always: list[str] = key([], help="regression: columns that are always included (adjusters)")
    c0: float | None = key(None, gt=0, lt=1, help="variance of the spike over that of the slab; default 0.01", expert=True)
    negligible: Positive | None = key(
        None, help="instead of c0: effects below this (standardised) belong to the spike", expert=True
    )
    eta: Literal["common", "coordinate"] = key("common", help="one slab variance, or one for each coefficient", expert=True)
    a_eta: Positive = key(2.0, help="eta ~ IG(a_eta, b_eta)", expert=True)
    b_eta: Positive = key(1.0, help="see a_eta", expert=True)
    a_rho: Positive = key(1.0, help="share of included coefficients, rho ~ Beta(a_rho, b_rho)", expert=True)
    b_rho: Positive = key(1.0, help="see a_rho", expert=True)
    a_sigma: Positive = key(
        2.0, help="error variance of a client, IG(a_sigma, b_sigma); of sem: of its Laplace scales", expert=True
    )
    b_sigma: Positive = key(1.0, help="see a_sigma", expert=True)
    s_lambda: Positive = key(1.0, help="scale of the half-Cauchy prior of a client's own deviations", expert=True)
    s_tau: Positive = key(1.0, help="scale of the half-Cauchy prior of all clients' deviations", expert=True)
    rho: Literal["own", "shared"] = key("own", help="mrf: of each regression, or one for all", expert=True)
    slab: float | None = key(
        None, gt=0, help="regularised horseshoe: largest deviations are about this; default 2.5 for a binary response; inf: none"
    )
    errors: Literal["gaussian", "student"] | None = key(
        None, help="of a gaussian regression: student has heavy tails, so that a few far rows decide nothing; default gaussian"
    )
    degrees: float | None = key(None, ge=1, help="of freedom of Student errors; default 4", expert=True)
    missing: Literal["refuse", "impute"] = key(
        "refuse", help="empty cells of a covariate, or a node (mrf): a fault, or drawn by the model"
    )
    splines: dict[str, list[float]] = key(
        {}, help="regression: column -> at least 3 knots of a natural cubic spline, data scale", expert=True
    )
    stable: bool = key(False, help="sem: only graphs with spectral radius below 1")


class UntilSection(Section):
    """Says when a sampler may stop before its last round."""

    ess: Positive = key(1000.0, help="effective draws of the slowest quantity")
    rhat: float = key(1.01, gt=1, help="largest rank-normalised R-hat")
    max_rounds: Count = key(20000, help="rounds after which it stops anyway")


class AlgorithmSection(Section):
    chains: Chains = key(4, help="independent chains; they share all messages")
    burn_in: int = key(ge=0, help="rounds that are not kept; part of job.rounds; default a fifth of them, at most 500")
    thin: Count = key(1, help="every how many rounds a draw is kept", expert=True)
    until: UntilSection | None = key(None, help="stop when converged")
    local_sweeps: Count = key(1, help="sweeps of a client in a round", expert=True)
    server_sweeps: Count = key(help="of the server in a round; 5, or 1 with sums or expanded scales", expert=True)
    scales: Literal["exact", "expanded"] = key(
        "exact", help="draws of the horseshoe's scales, without or with auxiliaries", expert=True
    )
    draw: Literal["auto", "gram", "data"] = key(
        "auto", help="of a client's coefficients: from the Gram matrix, or from rows", expert=True
    )
    sweep: Literal["blocked", "printed"] = key(
        "blocked", help="indicator and coefficient together, or in the order of the paper", expert=True
    )
    moves: list[Literal["translate", "interweave", "exchange"]] | Literal["auto"] | None = key(
        None, help='at the server, disclosing second moments: some, or "auto"; default none, with pooled statistics "auto"'
    )
    block: Count | list[Count] | None = key(
        None, help="of a move, or of each: coordinates that are drawn at once; default all", expert=True
    )
    second_every: int | None = key(None, ge=2, help="of two moves the second takes every so many rounds; default 2", expert=True)
    starts: Literal["included", "both"] = key(
        "included", help="of chains: all covariates are in, or in every second chain none", expert=True
    )
    participation: float = key(1.0, gt=0, le=1, help="probability that a client takes part in a round", expert=True)
    aggregate: Literal["locals", "sums"] = key("locals", help="what a client sends: its coefficients, or sums to be added")
    statistics: Literal["local", "pooled"] = key("local", help="pooled: clients send their sufficient statistics, once")
    share_local: bool = key(False, help="the server keeps the clients' own coefficients")
    on_loss: Literal["stop", "drop"] = key("stop", help="of a client: stop, or go on as the model without it")
    update: Literal["auto", "row-gibbs", "row", "element"] = key("auto", help="sem: of the coefficients", expert=True)
    tempering: Count = key(1, help="sem: chains of a ladder of temperatures; those at temperature 1 count", expert=True)
    swap: bool = key(True, help="sem: moves between modes that permute equations", expert=True)
    random_source: Literal["secure", "keyed"] | None = key(
        None,
        help="of a client's draws: secure, numbers that nobody else can make; keyed, those of job.seed, the same bits again; "
        "default secure where draws are made of each row, and not of cross-products alone, and with job.sums",
        expert=True,
    )
    checkpoint_every: Positive = key(60.0, resumable=True, help="seconds between checkpoints")


class OutputSection(CommonOutputSection):
    metrics_every: Count = key(50, help="rounds between two lines of metrics.jsonl", expert=True)
    fdr: float = key(0.1, gt=0, lt=1, help="level of the Bayesian false discovery rate")
    delta: Positive = key(0.2, help="what a site differs by, and a large average exceeds, in standardised units")
    largest: Count = key(2000, help="coefficients above which only streaming moments are kept", expert=True)
    sensitivity: bool = key(False, help="the table of PIPs under other priors: six more runs")
    leave_one_out: bool = key(False, help="the effects without each client: as many more runs")
    loo: bool = key(False, help="clients with at least 5 rows also send sums of how well rows are foreseen: PSIS-LOO")
    site_fits: bool = key(False, help="each client also sends least-squares estimates and errors, for a meta-analysis")


class Config(JobConfig):
    """Holds a job of method "sparse"."""

    job: JobSection
    data: DataSection
    model: ModelSection
    algorithm: AlgorithmSection
    privacy: None = None
    output: OutputSection

    @property
    def open_ended(self) -> bool:
        return True

    @property
    def secure(self) -> bool:
        return self.job.sums is not None

    @property
    def draws_rows(self) -> list[str]:
        """The choices by which a client's draws are made of each of its rows, and not of cross-products alone."""
        model = self.model
        keys = ['model.missing = "impute"'] if model.missing == "impute" else []
        if model.kind == "sem":
            keys.append('model.kind = "sem"')
        if model.kind == "regression" and FAMILIES[model.family].binary:
            keys.append(f'model.family = "{model.family}"')
        return [*keys, 'model.errors = "student"'] if model.errors == "student" else keys

    @property
    def secret(self) -> bool:
        """Whether only the client has its random numbers, so that the server cannot make them."""
        source = self.algorithm.random_source
        return bool(self.draws_rows) or self.secure if source is None else source == "secure"

    @property
    def can_join_levels(self) -> bool:
        return True

    @property
    def requirement(self) -> Requirement:
        return replace(super().requirement, tells="products")

    @property
    def tells_rows(self) -> tuple[Finding, ...]:
        found, models = list[Finding](), " and ".join(self.draws_rows)
        if self.algorithm.tempering != 1:
            found.append(Finding.of("tempering-tells-rows"))
        if models and not self.secret:
            found.append(Finding.of("keyed-draws-tell-rows", models=models))
        if models and self.algorithm.moves:
            found.append(Finding.of("moves-tell-rows", models=models))
        if self.model.missing == "impute" and self.output.site_fits:
            found.append(Finding.of("site-fits-tell-rows"))
        if self.model.splines:
            found.append(Finding.of("splines-tell-values", columns=[*map(repr, self.model.splines)]))
        return tuple(found)


DEGREES = 4.0  # of freedom of Student errors
SLAB = 2.5  # of a binary response: where a covariate separates its values at a site, only this bounds that site's coefficient

# docs/spec/sparse.md, sections 5 and 6.
BASE: Tables = {"job": {"rounds": 2500}, "data": {"standardise": "none"}}


def refused(raw: Raw) -> Iterator[str]:
    """Yields the keys of other methods that this one refuses, with the remedy."""
    if "trials" in table(raw, "data"):
        yield 'data.trials is for method = "pvi" and "sigma": give each trial a row of its own, with a response of 0 or 1'
    if "privacy" in raw:
        yield '[privacy]: method = "sparse" has no private form, and claims nothing; remove the section'
    if table(raw, "job").get("rounds") == "budget":
        yield 'job.rounds = "budget" is for private jobs; give a number'


def fill_defaults(raw: Raw) -> dict[str, Any]:
    """Fills in a sampler's job: `until.max_rounds` is its number of rounds; several server sweeps where they cost no message."""
    out = layered(raw, [BASE])
    job, algorithm = out["job"], out["algorithm"]
    if not isinstance(job, dict) or not isinstance(algorithm, dict):
        return out
    lay_until(raw, out, 20_000)
    model = out["model"]
    if isinstance(model, dict) and _binary(model) and model.get("slab") is None:
        model["slab"] = SLAB
    rounds = job["rounds"] if isinstance(job["rounds"], int) and job["rounds"] > 0 else 2500
    algorithm.setdefault("burn_in", min(500, rounds // 5))
    if job.get("sums") is not None:
        algorithm.setdefault("aggregate", "sums")
    several = algorithm.get("aggregate", "locals") == "locals" and algorithm.get("scales", "exact") == "exact"
    sweeps = 5 if several else 1
    algorithm.setdefault("server_sweeps", sweeps)
    return out


def _binary(model: Mapping[str, object]) -> bool:
    """Returns whether the job file's response has two values."""
    family = FAMILIES.get(str(model.get("family")))
    return model.get("kind", "regression") == "regression" and family is not None and family.binary


def conflicts(config: Config) -> Iterator[str]:
    """Yields every contradiction between keys, each as a sentence with its remedy."""
    if config.job.device == "cuda" and (why := _not_on_a_device(config)):
        yield f'job.device = "cuda": {why}; use "cpu"'
    yield from _secure(config)
    yield from _data(config)
    yield from _model(config)
    yield from _sampler(config)


def _secure(config: Config) -> Iterator[str]:
    """Yields faults of a job whose server gets sums alone."""
    if not config.secure:
        return
    yield from faults_of_sums(config)
    sums, a, output = 'job.sums = "secure"', config.algorithm, config.output
    if a.aggregate != "sums":
        yield f'{sums}: algorithm.aggregate = "{a.aggregate}" sends each client\'s coefficients; take "sums", or leave it out'
    wrong = {
        'random_source = "keyed": whoever can make each client\'s random numbers takes the sums apart': a.random_source
        == "keyed",
        'statistics = "pooled", which sends each client\'s statistics': a.statistics == "pooled",
        'on_loss = "drop": the sum of all less that of the others would be the lost client\'s': a.on_loss == "drop",
    }
    yield from (f"{sums} and algorithm.{name}; remove one of the two" for name, bad in wrong.items() if bad)
    # Moments of the response beside covariates are a client's own regression, which the masks are there to hide.
    if config.model.missing == "impute":
        yield (
            f'{sums}: model.missing = "impute" has each client send the covariance of its columns, response included, which '
            "tells its own regression; fill or leave out the rows that lack a cell in the files, or remove one of the two"
        )
    if config.model.splines and config.model.scale == "pooled":
        yield (
            f"{sums}: model.splines has each client send cross-products of its columns, response included, which tell its own "
            'regression; take model.scale = "given", which needs none, or leave splines out'
        )
    for name in ("leave_one_out", "site_fits"):
        if getattr(output, name):
            yield f"{sums}: the server has no client's own numbers, and output.{name} is made of them; remove one of the two"


def _not_on_a_device(config: Config) -> str:
    """Says why none of the clients' kernels runs on a device; "" where they do."""
    if config.algorithm.statistics == "pooled":
        return 'with algorithm.statistics = "pooled" clients sample nothing'
    if config.model.missing == "impute":
        return "the sweeps over rows that lack cells are the host's (one chain a site)"
    if config.model.kind == "regression" and FAMILIES[config.model.family].binary:
        return f"the sweeps of a {config.model.family} regression are the host's (one chain a site)"
    if config.model.errors == "student":
        return "the sweeps over rows with Student errors are the host's (each chain weighs rows by itself)"
    return ""


def _data(config: Config) -> Iterator[str]:
    """Yields faults of [data]."""
    data, kind = config.data, config.model.kind
    if bool(data.clients) == bool(data.builtin):
        yield "data: wanted either data.clients (files) or data.builtin; give one of them"
    if kind == "regression" and data.clients and data.response is None:
        yield "data.response is missing: the column to be explained"
    if kind != "regression" and data.response is not None:
        yield f'data.response: model.kind = "{kind}" explains every column by the others; remove the key'
    for name in ("offset", "weight", "test", "row_id"):
        if getattr(data, name) is not None:
            yield f'data.{name} has no meaning with method = "sparse"; remove it'
    if data.standardise != "none":
        yield f'data.standardise = "{data.standardise}": a sparse model is scaled by model.scale; remove the key'
    yield from faults_of_names(data.names, "data.names")
    if config.model.scale == "given":
        if not any(column.scale is not None for column in data.columns.values()):
            yield 'model.scale = "given" needs the scale of every column, and no [data.columns.NAME] has one; give them'
        for name, column in data.columns.items():
            if column.kind != "categorical" and column.levels is None and column.scale is None:
                yield f'data.columns.{name}.scale is missing: model.scale = "given" needs the scale of every column'


def _model(config: Config) -> Iterator[str]:
    """Yields faults of [model]."""
    model, a, linear = config.model, config.algorithm, FAMILIES[config.model.family].linear
    if model.c0 is not None and model.negligible is not None:
        yield "model.c0 and model.negligible contradict each other; give one of them"
    if model.kind != "regression":
        for name in ("always", "splines"):
            if getattr(model, name):
                yield f'model.{name} is for kind = "regression"; remove it'
        if not linear:
            yield f'model.family = "{model.family}" is for kind = "regression"; remove it'
        if model.missing == "impute" and model.kind == "sem":
            yield 'model.missing = "impute" is for kind = "regression" or "mrf"; remove rows with empty cells, or the columns'
    if model.centre == "sample":
        if model.kind == "regression":
            yield 'model.centre = "sample" is for kind = "mrf" or "sem": a regression has an intercept; remove it'
        if not model.intercept:
            yield 'model.centre = "sample" and model.intercept = false contradict each other; give one of them'
        if a.statistics == "pooled":
            yield 'model.centre = "sample" draws at clients, which do not sample with algorithm.statistics = "pooled"; remove one'
    if model.kind != "sem" and (model.stable or a.update != "auto" or not a.swap):
        yield 'model.stable, algorithm.update and algorithm.swap are for kind = "sem"; remove them'
    if model.kind == "sem" and model.slab is not None:
        yield 'model.slab does not exist with kind = "sem"; remove it'
    if model.rho == "shared" and model.kind != "mrf":
        yield 'model.rho = "shared" is for kind = "mrf"; remove it'
    yield from _errors(config)
    if config.output.site_fits and (model.kind != "regression" or not linear):
        yield 'output.site_fits are least-squares fits of kind = "regression" with family = "gaussian"; remove the key'
    if config.output.loo:
        wrong = {'kind = "regression"': model.kind != "regression", 'missing = "refuse"': model.missing != "refuse"}
        wrong |= {'algorithm.statistics = "local"': a.statistics == "pooled"}
        yield from (f"output.loo needs {name}; set it, or remove output.loo" for name, bad in wrong.items() if bad)
    if model.splines and model.missing == "impute":
        yield 'model.splines with model.missing = "impute" do not exist together; leave one out'
    for name, knots in model.splines.items():
        if len(knots) < 3 or sorted(set(knots)) != knots:
            yield f"model.splines.{name} = {knots}: wanted at least 3 knots in increasing order"
    if not linear and a.statistics == "pooled":
        yield 'algorithm.statistics = "pooled" needs family = "gaussian": no factor of the rows suffices'


def _errors(config: Config) -> Iterator[str]:
    """Yields faults about Student errors."""
    if config.model.errors == "student":
        yield from (f'model.errors = "student" {why}' for why in against_student(config))
    elif config.model.degrees is not None:
        yield 'model.degrees is of Student errors; set model.errors = "student", or remove it'


def against_student(config: Config) -> list[str]:
    """Lists why a job cannot have Student errors: rows then have weights, which change every round and stay at their site."""
    model, a = config.model, config.algorithm
    if model.kind != "regression" or not FAMILIES[model.family].linear:
        return ['is for kind = "regression" with family = "gaussian"; remove it']
    without = {
        'model.missing = "impute"': model.missing == "impute",
        'algorithm.statistics = "pooled", whose sums know no weights': a.statistics == "pooled",
        "algorithm.moves, whose terms know no weights": bool(a.moves),
    }
    return [f"does not exist with {name}; leave one of them out" for name, bad in without.items() if bad]


def _sampler(config: Config) -> Iterator[str]:
    """Yields faults of [algorithm]."""
    model, a, rounds = config.model, config.algorithm, config.job.rounds
    if a.burn_in >= rounds:
        yield f"algorithm.burn_in = {a.burn_in} leaves nothing of job.rounds = {rounds}; wanted fewer"
    elif a.burn_in + a.thin > rounds:
        yield f"algorithm.thin = {a.thin} keeps none of the {rounds - a.burn_in} rounds after algorithm.burn_in; wanted fewer"
    if a.server_sweeps > 1 and (a.aggregate == "sums" or a.scales == "expanded"):
        yield 'algorithm.server_sweeps > 1 needs aggregate = "locals" and scales = "exact": the server must know every lambda'
    yield from _moves(a)
    if a.moves and model.kind == "sem":
        yield 'algorithm.moves do not exist with kind = "sem"; remove them'
    if a.moves and a.aggregate == "sums":
        yield 'algorithm.moves need aggregate = "locals"'
    if a.participation < 1:
        wrong = {
            'aggregate = "sums"': a.aggregate == "sums",  # the server could not keep the absent clients' terms
            "moves": bool(a.moves),  # the absent clients' coefficients would move without their likelihood
            'statistics = "pooled"': a.statistics == "pooled",
        }
        yield from (
            f"algorithm.participation < 1 with {name} samples another distribution; take 1" for name, bad in wrong.items() if bad
        )
    if a.random_source == "secure" and a.statistics == "pooled":
        yield 'algorithm.random_source = "secure" is of clients: with statistics = "pooled" the server draws; remove one'
    if a.share_local and a.aggregate == "sums":
        yield 'algorithm.share_local with aggregate = "sums" contradict each other: sums keep no coefficients'
    if a.statistics == "pooled" and (model.kind == "sem" or model.missing == "impute"):
        yield 'algorithm.statistics = "pooled" needs kind = "regression" or "mrf" without missing values'
    if a.tempering > 1 and (model.kind != "sem" or a.chains % a.tempering or a.participation < 1 or a.aggregate == "sums"):
        yield (
            f'algorithm.tempering = {a.tempering} is for kind = "sem" with algorithm.chains a multiple of it, participation 1 '
            'and aggregate = "locals"'
        )


def _moves(a: AlgorithmSection) -> Iterator[str]:
    """Yields faults of the keys about moves that do not depend on the rest of the job."""
    written = a.moves if isinstance(a.moves, list) else []
    in_turn = [move for move in written if move != "exchange"]
    if len(written) > len(set(written)):
        yield f"algorithm.moves = {written}: each at most once; leave one out"
    if "exchange" in written and a.statistics != "pooled":
        yield 'algorithm.moves has "exchange", which draws sites\' coefficients at the server: it needs statistics = "pooled"'
    if a.block is not None and not in_turn:
        yield 'algorithm.block is for moves that are named, such as ["interweave"]; remove it, or name them'
    elif isinstance(a.block, list) and len(a.block) != len(in_turn):
        yield f"algorithm.block has {len(a.block)} numbers for {len(in_turn)} moves; give one for all, or one for each"
    if a.second_every is not None and len(in_turn) < 2:
        yield 'algorithm.second_every is for two moves, such as ["translate", "interweave"]; remove it'
