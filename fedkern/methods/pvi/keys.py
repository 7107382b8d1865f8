"""Defines the job file's sections where method = "pvi". Source: docs/spec/pvi.md, sections 5 to 8 and 11 to 13."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from ...disclosure.requirement import ALL, NONE, Kind, Requirement
from ...errors import JobError
from ...finding import Finding
from ...jobs import incomplete, keys
from ...jobs.constants import undeclared
from ...jobs.formula import laid
from ...jobs.keys import (
    ONE_ANSWER,
    Chains,
    CommonOutputSection,
    Count,
    Draws,
    JobConfig,
    Positive,
    Raw,
    Section,
    Tables,
    faults_of_sums,
    key,
    lay_until,
    unbounded,
)
from ...jobs.load import layered, table
from ...jobs.naming import faults as faults_of_names
from ...kernels import families
from ...kernels.families import FAMILIES
from ...models.encoding import Column
from ...models.formula.expansion import Formula
from ...privacy.accountant import COIN_VALUES, LARGEST_EPSILON, LEAST_CLIP
from ...privacy.certificate import WITH_NOISE
from ...sections import remedy

SHARDED = ("local-averaging", "virtual-clients")
MOST_ROUNDS = 200  # of rounds = "until"
MOST_FULL = 300  # coefficients up to which "auto" is a full covariance, and X'WX is asked for
VAGUE = 10.0  # a prior's sd above which slopes grow until few rows have weight
HELD = 0.01  # one up to which it holds q, whatever rows say

# sampling -> the keys that it needs; it may have no other
SAMPLING: dict[str, set[str]] = {
    "poisson": {"sampling_rate"},
    "poisson-truncated": {"sampling_rate", "max_batch", "dataset_size"},
    "without-replacement": {"batch_size", "dataset_size"},
    "full": set(),
    "shards": set(),
}
OF_NOISE_AWARE = ("bernoulli", "gaussian")
ALIKE = 0.02  # relative difference between a declared scale and that of a 0/1 column with this mean
# the one accountant that knows a sampling, where there is only one
ACCOUNTANT = {"poisson-truncated": "pld", "without-replacement": "rdp"}


class ColumnSection(keys.ColumnSection):
    shape: Literal["binary", "skewed"] | None = key(
        None,
        help='posterior = "noise-aware": a numeric column of 0 and 1, whose center and scale say the share of ones; or one that '
        "is far from normal, such as counts, costs or hormones",
    )

    @property
    def share(self) -> float | None:
        """The share of ones in a 0/1 column whose center and scale are these; None where they fit no such column."""
        if self.lower is not None or self.center is None or self.scale is None or not 0 < self.center < 1:
            return None
        right = math.sqrt(self.center * (1 - self.center))
        return self.center if abs(self.scale / right - 1) < ALIKE else None


class JobSection(keys.JobSection):
    sums: Literal["secure"] | None = key(
        None,
        help="secure: the server gets the sum of all clients' updates, and no client's own; open jobs of three clients or more, "
        'all of which work at once (schedule = "synchronous", its default then, or variant = "global-vi")',
    )


class DataSection(keys.DataSection):
    weight_kind: Literal["frequency", "precision"] | None = key(None, help=keys.WEIGHT_KIND)
    trials: str | None = key(None, help="bernoulli: the response is a number of successes, of so many trials as this column says")
    columns: dict[str, ColumnSection] = key({}, help="what is publicly known of the columns")  # type: ignore[assignment]


class ModelSection(incomplete.ModelSection):
    kind: Literal["glm"] = key("glm", help="generalised linear model", expert=True)
    family: families.OfPvi = key("bernoulli", help="of the response, with its canonical link", meant=families.MEANT)
    covariance: Literal["auto", "diagonal", "full"] = key(
        help=f'of the Gaussian posterior; "auto": full up to {MOST_FULL} coefficients; default: "auto" if open, else "diagonal"'
    )
    prior_sd: float = key(1.0, ge=1e-5, le=1e5, help="of every coefficient's prior")
    formula: str | None = key(None, help=laid.HELP)
    intercept: bool = key(True, help="add a column of ones")
    intercept_sd: float | None = key(
        None,
        ge=1e-5,
        le=1e5,
        help="of the intercept's prior, of a gaussian response of an open job in its standard deviations; default: 5 if open (1 "
        "with an optimiser that takes steps), else that of all coefficients",
    )
    intercept_centre: float | None = key(
        None,
        ge=-1e100,
        le=1e100,
        help="of the intercept's prior, in the data's units; default: the response's pooled level if open, else 0",
    )
    scale: Positive | Literal["learn"] = key(
        1.0,
        help="standard deviation of a gaussian response's errors, in the data's units (a private job is to give it); "
        '"learn", the default if open and variant = "pvi", finds it; negative-binomial: r (variance = mean + mean^2 / r)',
    )
    preset: Literal["paper"] | None = key(None, help="a published configuration, whose values the file may override", expert=True)


Variant = Literal["pvi", "local-averaging", "virtual-clients", "global-vi", "bcm-split"]


class UntilSection(Section):
    """Says when rounds may end: when q is where the posterior of all rows is."""

    max_rounds: Count = key(MOST_ROUNDS, help='rounds after which it stops anyway, where job.rounds is "until"')


class AlgorithmSection(Section):
    variant: Variant = key(help="of partitioned variational inference")
    schedule: Literal["sequential", "synchronous", "random", "asynchronous"] = key(help="who works when")
    client_weights: dict[str, Positive] = key(
        {}, path=True, help="random schedule: public weights of who is drawn, not of rows; default 1", expert=True
    )
    local_steps: Count = key(help="optimiser steps of one update")
    optimiser: Literal["adagrad", "adam", "sgd", "exact"] = key(help="of a client's local problem")
    learning_rate: Positive = key(help="of the optimiser")
    estimator: Literal["analytic", "weight-mc", "activation-mc", "stl", "total"] = key(help="of the local gradient", expert=True)
    draws: Count = key(1, help="per step, of a Monte-Carlo estimator", expert=True)
    damping: float | None = key(
        None, gt=0, le=1, help="of an update; default 1, or 1 / clients where clients that work at once need it", expert=True
    )
    damping_form: Literal["moment", "natural"] = key(help="what damping interpolates", expert=True)
    average: Literal["none", "half"] = key(help="release the last posterior, or the mean over the second half of all updates")
    posterior: Literal["noise-aware"] | None = key(None, help="release a posterior that contains the privacy noise, not q")
    shards: int | None = key(None, ge=2, help="parts of a client's rows in local-averaging and virtual-clients", expert=True)
    batch: float = key(1.0, gt=0, le=1, help="rate at which rows enter a step of a job that is not private", expert=True)
    random_source: Literal["secure", "keyed"] = key(
        "secure",
        help="of which rows are in such a batch: nobody else can know; keyed: as job.seed says, the same bits again",
        expert=True,
    )
    updates_per_client: Count | None = key(None, help="public cap on the updates of each client", expert=True)
    lead: Count | None = key(
        None,
        help="asynchronous: answers by which a client may be ahead of the slowest before it waits; default: 8 if private, whose "
        "budgets are each client's own, and with exact sites, which stand still by then; else any number",
        expert=True,
    )
    min_updates: int = key(0, ge=0, help="updates, over all clients, that a job must reach for its result to count", expert=True)
    sites: Literal["own", "averaged"] = key("own", help='privacy.unit = "client": who keeps what of the noisy sum', expert=True)
    until: UntilSection | None = key(
        None, help='end when q is where the posterior of all rows is, asked after 3, 6, 12, .. rounds; job.rounds = "until"'
    )
    checkpoint_every: Positive = key(60.0, resumable=True, help="seconds between checkpoints")

    def damping_of(self, n_clients: int, *, whole: bool) -> float:
        """Returns the damping of a job with this number of clients (docs/spec/pvi.md, section 8).

        Clients that work at once share one step; where their sites are exact and `whole` (q has all covariances) each takes its
        own.
        """
        exact = whole and self.optimiser == "exact" and self.variant == "pvi"
        full_step = self.schedule in ("sequential", "random") or exact
        return self.damping or (1.0 if full_step else 1.0 / n_clients)


class Terms(Section):
    """Holds the terms that may differ between clients."""

    epsilon: float | None = key(None, gt=0, help="cap over all rounds", remedy="1 is strong, 10 is weak, inf is no cap")
    delta: float | None = key(None, gt=0, le=0.1, help="probability of exceeding epsilon", remedy="below 1 / rows, such as 1e-5")
    clip: Positive | None = key(None, help="bound on a row's gradient", remedy="0.75 x the median row norm, if that is public")
    noise_multiplier: Positive | None = key(None, help="noise sd over clip")
    sampling_rate: float | None = key(None, gt=0, le=1, help="probability that a row enters a step", remedy="for example 0.02")
    batch_size: Count | None = key(None, help="rows of a step, where their number is fixed", expert=True)
    dataset_size: Count | None = key(None, help="number of rows, where it is public", expert=True)
    max_batch: Count | None = key(None, help="poisson-truncated: the largest batch", expert=True)


class PrivacySection(Terms):
    unit: Literal["example", "client"] = key("example", help="what neighbouring data sets differ by")
    calibrate: bool = key(help="find the noise multiplier from epsilon, delta and the public number of steps")
    sampling: Literal["poisson", "poisson-truncated", "without-replacement", "full", "shards"] = key("poisson", help="of rows")
    client_rate: float = key(1.0, gt=0, le=1, help='unit = "client": probability that a client counts in a round', expert=True)
    noise_source: Literal["secure", "keyed"] = key("secure", help="keyed noise is for experiments: epsilon is infinite")
    accountant: Literal["pld", "rdp"] = key(help="of dp-accounting")
    last_update: Literal["refuse", "shorten"] = key("refuse", help="when a whole update no longer fits the budget", expert=True)
    rows_per_person: Count = key(1, help="rows that one person may have, over all clients")
    clients: dict[str, Terms] = key({}, path=True, help="terms of one client that differ")

    def of(self, client: str) -> Terms:
        """Returns the terms of one client: the section's, overridden by the client's."""
        common = {name: getattr(self, name) for name in Terms.model_fields}
        overrides = self.clients[client].model_dump(exclude_none=True) if client in self.clients else {}
        return Terms(**{**common, **overrides})

    def promised(self, client: str) -> dict[str, Any]:
        """Returns the entries that a certificate of this job must have about its noise, as far as the job file decides them."""
        terms = self.of(client)
        entries: dict[str, object] = {"unit": self.unit, "noise_source": self.noise_source, "clip": terms.clip}
        if self.unit == "example":
            entries["sampling"] = self.sampling
            if terms.sampling_rate is not None:
                entries["sampling_rate"] = math.ceil(terms.sampling_rate * COIN_VALUES) / COIN_VALUES
        return entries if self.calibrate else entries | {"noise_multiplier": terms.noise_multiplier}

    def cap(self, client: str) -> tuple[float, float]:
        """Returns epsilon and delta of one client, or of the federation."""
        terms = self.of(client)
        assert terms.epsilon is not None
        assert terms.delta is not None
        return terms.epsilon, terms.delta


class OutputSection(CommonOutputSection):
    metrics_every: Count = key(1, help="rounds between two measurements on the test rows", expert=True)
    draws: Draws = key(1000, resumable=True, help="per chain, from the posterior into posterior.nc")
    chains: Chains = key(4, resumable=True, help="independent sets of draws")


class Spending(NamedTuple):
    """Holds the terms of a private job, and the steps that it charges to them."""

    privacy: PrivacySection  # the terms
    update: int  # accounted steps that one update is charged
    updates: int | None  # updates that the job plans for each client, as far as that is public; None if only the budget ends it
    with_noise: bool  # whether the released posterior is made of the clients' noisy sums


class Config(JobConfig):
    """Holds a job of method "pvi"."""

    job: JobSection
    data: DataSection
    model: ModelSection
    algorithm: AlgorithmSection
    privacy: PrivacySection | None = None
    output: OutputSection

    @property
    def secure(self) -> bool:
        return self.job.sums is not None

    @property
    def formula(self) -> Formula | None:
        """The terms of its formula, if it has one."""
        return laid.of(self.model.formula, self.data.columns)

    @property
    def read_alike(self) -> dict[str, Any]:
        return laid.expanded(self.formula)

    @property
    def without_intercept(self) -> bool:
        """Whether the predictor of a row with covariates of 0 is 0, by a formula or in an open job. (Levels of built-in data's
        columns make it another; a private job's columns are those that its file declares.)"""
        open_files = self.data.builtin is None and self.privacy is None
        return not self.model.intercept and (open_files or self.model.formula is not None)

    @property
    def unit(self) -> Literal["example", "client"]:
        return "example" if self.privacy is None else self.privacy.unit

    @property
    def least_updates(self) -> int:
        return max(self.algorithm.min_updates, super().least_updates)

    @property
    def secret_batches(self) -> bool:
        """Whether a client alone knows which rows are in the batches of a job that is not private."""
        return self.algorithm.batch < 1 and self.algorithm.random_source == "secure"

    @property
    def tells_rows(self) -> tuple[Finding, ...]:
        return tuple(found for found in (self._of_prior, self._of_batches) if found is not None)

    @property
    def _of_prior(self) -> Finding | None:
        """Why the prior of a nonlinear model may let messages tell rows: q weighs these rows."""
        if self.privacy is not None or FAMILIES[self.model.family].linear:
            return None
        model, variant, optimiser = self.model, self.algorithm.variant, self.algorithm.optimiser
        sd, given, link = model.intercept_sd, f"model.prior_sd = {model.prior_sd:g}", FAMILIES[model.family].link
        held = [given] * (model.prior_sd <= HELD)
        held += [f"model.intercept_sd = {sd:g}"] * (sd is not None and sd <= HELD)
        if held:
            return Finding.of("narrow-prior-tells-rows", priors=" and ".join(held), part="q")
        if link == "logit" and model.prior_sd > VAGUE:
            return Finding.of("vague-prior-tells-rows", prior=given)
        if link == "log" and (variant == "global-vi" or optimiser != "exact"):
            key = f'variant = "{variant}"' if variant == "global-vi" else f'optimiser = "{optimiser}"'
            return Finding.of("single-steps-tell-rows", key=key)
        return None

    @property
    def _of_batches(self) -> Finding | None:
        """Why batches may let messages tell rows."""
        if self.algorithm.batch == 1:
            return None
        if self.secret_batches:
            return Finding.of("batches-tell-rows")
        return Finding.of("keyed-batches-tell-rows")

    @property
    def readers(self) -> str:
        if self.algorithm.variant == "pvi" and self.algorithm.schedule != "synchronous":  # q is what others have told
            return "a server, and the clients that are sent q after a client's turn,"
        return super().readers

    @property
    def can_join_levels(self) -> bool:
        return self.privacy is None

    @property
    def requirement(self) -> Requirement:
        covariance, open_one = self.model.covariance, self.privacy is None
        whole = {"full": ALL, "auto": range(2, MOST_FULL + 1)}.get(covariance, NONE) if open_one else NONE
        # Sums of a linear model tell of no more than two columns at once.
        tells: Kind = "nothing" if not open_one else "products" if self.model.family == "gaussian" else "sites"
        return replace(super().requirement, tells=tells, whole=whole, covariance=covariance, batch=self.algorithm.batch)

    def of_posterior(self, steps: int) -> dict[str, str | float]:
        """Returns how far q's sites have gone, 1 - (1 - damping)^updates; or that the posterior contains the noise."""
        a = self.algorithm
        if a.posterior is not None:
            return {"posterior": WITH_NOISE}
        if self.unit == "client" or a.variant == "global-vi" or a.damping is None:
            return {}
        return {"progress": 1 - (1 - a.damping) ** (steps // (1 if a.variant in SHARDED else a.local_steps))}

    @property
    def open_ended(self) -> bool:
        return self.privacy is None or not self.privacy.calibrate

    @property
    def spending(self) -> Spending:
        """The spending of a private job."""
        privacy, a = self.privacy, self.algorithm
        assert privacy is not None
        once = privacy.unit == "client" or a.variant in (*SHARDED, "global-vi")
        planned = [n for n in (self.job.rounds, a.updates_per_client) if isinstance(n, int)]
        in_turn = privacy.unit == "example"  # whole clients: all are asked in every round
        by_chance = in_turn and a.schedule in ("random", "asynchronous") and a.updates_per_client is None
        updates = None if by_chance else min(planned, default=None)
        return Spending(privacy, 1 if once else a.local_steps, updates, a.posterior is not None)


# Layers of defaults, the later ones stronger, the file itself the strongest.
BASE: Tables = {
    "job": {"method": "pvi"},
    "algorithm": {
        "variant": "pvi",
        "schedule": "sequential",
        "local_steps": 25,
        "estimator": "analytic",
        "average": "none",
    },
}
OPEN: Tables = {
    "model": {"covariance": "auto"},
    "algorithm": {"optimiser": "exact", "damping_form": "natural"},
}
LEARNT: Tables = {"model": {"scale": "learn"}}
# pvi.md, sections 8 and 13: under natural damping noise in log sigma inflates the precision; the second half's mean is free.
PRIVATE: Tables = {
    "job": {"rounds": "budget"},
    "data": {"standardise": "public"},
    "model": {"covariance": "diagonal"},
    "algorithm": {"optimiser": "adagrad", "damping_form": "moment", "damping": 0.1, "average": "half"},
}
SHARDS: Tables = {"algorithm": {"optimiser": "adagrad"}, "privacy": {"sampling": "shards"}}
MEAN_FIELD: Tables = {"model": {"covariance": "diagonal"}}  # what has no other form, and what was published
GLOBAL_VI: Tables = {"algorithm": {"optimiser": "adagrad", "local_steps": 1, "learning_rate": 0.05, "damping": 1.0}}
ONE_ROUND: Tables = {"job": {"rounds": 1}, "algorithm": {"schedule": "synchronous", "damping": 1.0}}
AT_ONCE: Tables = {"algorithm": {"schedule": "synchronous"}}  # where the server gets sums
BUILTIN: Tables = {"data": {"standardise": "public"}}
ADULT: Tables = {"model": {"intercept": False}}  # its one-hot columns span the constant
# The public configuration files of the poster (docs/spec/pvi.md, section 13), with exact expectations.
PAPER: Tables = {
    "algorithm": {"schedule": "random", "optimiser": "adagrad", "damping": 0.1, "damping_form": "moment", "average": "none"}
}
PAPER_OPEN: Tables = {"job": {"rounds": 100}, "algorithm": {"learning_rate": 2.0, "local_steps": 20}}
PAPER_PRIVATE: Tables = {
    "job": {"rounds": 1000},
    "privacy": {"noise_multiplier": 5.0, "clip": 1.5, "accountant": "rdp"},
}
# Standard deviations of the intercept's prior, at which q begins: from a wide one steps of a fixed length go slowly where
# E exp(a) is large.
WIDE, NARROW = 5.0, 1.0
LEARNING_RATE = {"adagrad": 0.5, "adam": 0.05, "sgd": 0.001, "exact": 1.0}


def refused(raw: Raw) -> Iterator[str]:
    """Yields the sentences about keys that contradict a formula; this method has no other key of another method."""
    yield from laid.faults(raw, random=False)


def fill_defaults(raw: Raw) -> dict[str, Any]:
    """Fills in every key that the job file left out.

    Parameters
    ----------
    raw : the file's tables as they came, not yet validated

    Returns
    -------
    the tables, with the defaults of a private or an open job, of the variant, and of the preset
    """
    raw = laid.laid(raw)
    private = "privacy" in raw
    variant = table(raw, "algorithm").get("variant", "pvi")
    layers = [BASE, PRIVATE] if private else [BASE, OPEN]
    builtin = table(raw, "data").get("builtin")
    layers += [AT_ONCE] * ("sums" in table(raw, "job") and variant != "global-vi")
    layers += [BUILTIN] * (builtin is not None) + [ADULT] * (builtin == "adult")
    layers += [LEARNT] * (not private and variant == "pvi" and table(raw, "model").get("family") == "gaussian")
    # Draws of the weights shake a Cholesky factor until it diverges, and two estimators have no other form.
    of_draws = table(raw, "algorithm").get("estimator", "analytic") != "analytic"
    mean_field = of_draws or variant == "global-vi" or table(raw, "model").get("preset") == "paper"
    layers += [MEAN_FIELD] * mean_field + [SHARDS] * (variant in SHARDED)
    layers += [GLOBAL_VI] * (variant == "global-vi") + [ONE_ROUND] * (variant == "bcm-split")
    if table(raw, "model").get("preset") == "paper":
        layers += [PAPER, PAPER_PRIVATE if private else PAPER_OPEN]
    out = layered(raw, layers)
    settings, model = out["algorithm"], out["model"]
    asks = not private and variant == "pvi"
    if isinstance(settings, dict) and asks and "rounds" not in table(out, "job"):
        settings.setdefault("until", {})
    lay_until(raw, out, MOST_ROUNDS)
    if isinstance(settings, dict) and isinstance(settings.get("optimiser"), str):
        settings.setdefault("learning_rate", LEARNING_RATE.get(settings["optimiser"], 0.5))
    if not private and isinstance(model, dict):
        exact = table(out, "algorithm").get("optimiser") == "exact"
        model.setdefault("intercept_sd", WIDE if exact else NARROW)
    terms = out.get("privacy")
    if isinstance(terms, dict):
        if "noise_multiplier" in table(raw, "privacy") or "calibrate" not in terms:
            terms.setdefault("calibrate", False)
        elif terms["calibrate"] is True:
            terms.pop("noise_multiplier", None)  # that of a preset: the file asks for calibrated noise
        terms.setdefault("accountant", "rdp" if terms.get("sampling") == "without-replacement" else "pld")
    return out


def conflicts(config: Config) -> Iterator[str]:
    """Yields every contradiction between keys, each as a sentence with its remedy."""
    yield from laid.conflicts(config, config.formula)
    yield from _secure(config)
    yield from _data(config)
    algorithm, privacy, family = config.algorithm, config.privacy, FAMILIES[config.model.family]
    if "scale" not in config.model.model_fields_set and family.lacks_scale("unknown", "pvi"):
        yield family.scale_is_missing
    yield from _scale(config)
    if not config.model.intercept and config.model.intercept_centre is not None:
        yield "model.intercept_centre is the prior's of an intercept, and model.intercept = false; leave it out"
    sharded = algorithm.variant in SHARDED
    if algorithm.until is not None and not (privacy is None and algorithm.variant == "pvi"):
        yield 'job.rounds = "until" (algorithm.until) is for open jobs with variant = "pvi": give a number of job.rounds'
    if algorithm.lead is not None and algorithm.schedule != "asynchronous":
        yield f'algorithm.lead is for schedule = "asynchronous"; schedule is "{algorithm.schedule}"'
    if shaped := sorted(name for name, column in config.data.columns.items() if column.shape) if not algorithm.posterior else []:
        yield f'data.columns.{shaped[0]}.shape is read with algorithm.posterior = "noise-aware" alone; remove it'
    yield from _binary(config)
    if privacy is None and algorithm.posterior is not None:
        yield f'algorithm.posterior = "{algorithm.posterior}" is for private jobs: leave it out, or give a [privacy] section'
    if sharded and algorithm.shards is None:
        yield f'algorithm.shards is missing: variant = "{algorithm.variant}" needs the public number of shards'
    if sharded and config.data.row_id is None:
        yield f'data.row_id is missing: variant = "{algorithm.variant}" makes shards from a hash of this column'
    if not sharded and algorithm.shards is not None:
        yield f'algorithm.shards is for {" and ".join(SHARDED)}; variant is "{algorithm.variant}"'
    if algorithm.client_weights and algorithm.schedule != "random":
        yield f'algorithm.client_weights are for schedule = "random"; schedule is "{algorithm.schedule}"'
    if (covariance := config.model.covariance) != "diagonal" and algorithm.variant == "global-vi":
        yield f'model.covariance = "{covariance}" does not exist with variant = "global-vi"; take "diagonal"'
    if algorithm.variant == "global-vi" and algorithm.optimiser == "exact":
        yield 'algorithm.optimiser = "exact" does not exist with variant = "global-vi"; take adagrad, adam or sgd'
    if algorithm.variant == "bcm-split" and (algorithm.schedule, algorithm.damping, config.job.rounds) != ("synchronous", 1.0, 1):
        yield 'algorithm.variant = "bcm-split" is one synchronous round without damping; leave those keys out'
    if privacy is not None:
        yield from _private(config, privacy)
        return
    if sharded:
        yield f'algorithm.variant = "{algorithm.variant}" is for private jobs; take "pvi", or give a [privacy] section'
    if config.job.rounds == "budget":
        yield 'job.rounds = "budget" is for private jobs; give a number, or a [privacy] section'
    if algorithm.random_source == "keyed" and algorithm.batch == 1:
        yield 'algorithm.random_source = "keyed" is of batches (algorithm.batch), and there are none; remove it'
    if algorithm.optimiser == "exact" and algorithm.batch < 1:
        yield f'algorithm.batch = {algorithm.batch:g}: optimiser = "exact" uses all rows; leave batch out'


def _secure(config: Config) -> Iterator[str]:
    """Yields faults of a job whose server gets sums alone."""
    if not config.secure:
        return
    yield from faults_of_sums(config)
    key, a = 'job.sums = "secure"', config.algorithm
    if config.privacy is not None:
        yield (
            f"{key}: answers of a private job are stored, and sent again after a crash, under masks that nobody has by then; "
            "remove it, or [privacy]"
        )
    if a.variant != "global-vi" and a.schedule != "synchronous":
        yield ONE_ANSWER.format(a.schedule)
    if a.estimator != "analytic" or (a.batch < 1 and a.random_source == "keyed"):
        what, instead = ("estimator", "analytic") if a.estimator != "analytic" else ("random_source", "secure")
        yield (
            f'{key}: with algorithm.{what} = "{getattr(a, what)}" a server knows each client\'s random numbers (job.seed), and '
            f'could compute by regression how each part of a sum depends on its own; take "{instead}"'
        )


def _binary(config: Config) -> Iterator[str]:
    """Yields faults of columns that are declared as binary with constants of other columns."""
    for name, column in sorted(config.data.columns.items()):
        if column.shape != "binary":
            continue
        if config.data.standardise != "public":
            yield f'data.columns.{name}.shape = "binary" needs data.standardise = "public", by which center and scale are taken'
        if column.share is not None:
            continue
        share = column.center if column.center is not None and 0 < column.center < 1 else 0.1
        yield (
            f'data.columns.{name}.shape = "binary" needs center = the share of ones and scale = sqrt(center x (1 - center)), '
            f"for example center = {share:g} and scale = {math.sqrt(share * (1 - share)):.4g}"
        )


def _scale(config: Config) -> Iterator[str]:
    """Yields the reasons why this job cannot learn its scale, or have the one that is given."""
    if config.model.scale != "learn":
        if config.model.family == "gaussian" and config.model.scale < (least := 1 / keys.LARGEST):
            yield f"model.scale = {config.model.scale:g}: wanted at least {least:g}; give the response in a smaller unit"
        return
    what = 'model.scale = "learn"'
    if config.model.family == "negative-binomial":
        yield f'{what}: give r, which method = "likelihood" learns'
    elif config.model.family != "gaussian":
        yield f'{what} is for family = "gaussian", not "{config.model.family}"; give a number, or leave it out'
    if config.privacy is not None:
        yield f"{what} has no private form: give a number that is public"
    elif config.algorithm.variant != "pvi":
        yield f'{what} needs variant = "pvi", not "{config.algorithm.variant}"; give the standard deviation of the errors'


def _data(config: Config) -> Iterator[str]:
    """Yields faults of [data]."""
    data = config.data
    if bool(data.clients) == bool(data.builtin):
        yield "data: wanted either data.clients (files) or data.builtin; give one of them"
    if data.clients and data.response is None:
        yield "data.response is missing: the column to be explained"
    if data.builtin and data.test is not None:
        yield "data.test is for data.clients; of built-in data the server keeps the share data.split.test"
    yield from faults_of_names(data.names, "data.names")
    yield from _trials(config)
    yield from incomplete.conflicts(config, {data.response, data.offset, data.weight, data.row_id, data.trials, *data.ignore})
    if data.weight_kind == "precision" and config.model.family != "gaussian":
        yield (
            f'data.weight_kind = "precision" is of errors with a variance, and model.family is "{config.model.family}"; take '
            '"frequency" for numbers of equal rows, or remove the key'
        )
    if data.weight_kind and data.weight is None:
        yield keys.NO_WEIGHT


def _trials(config: Config) -> Iterator[str]:
    """Yields the reasons why the response cannot be successes of trials."""
    data, what = config.data, f'data.trials = "{config.data.trials}"'
    if data.trials is None:
        return
    if config.model.family != "bernoulli":
        yield f'{what}: successes of trials are of model.family = "bernoulli", not "{config.model.family}"; remove one of them'
    if data.builtin:
        yield f"{what} is for data.clients; built-in data have 0/1 responses"
    if data.positive is not None:
        yield f"{what} says that the response is a number of successes, and data.positive that it is a label; remove one of them"
    if data.weight is not None:
        yield f"{what} and data.weight both say how often a row counts; give one of them"
    if config.privacy is not None:
        yield (
            f"{what} has no private form: noise that hides a row of a file would have to hide all of its trials; give each trial "
            "its own row, where a person is one trial"
        )


def _centred(config: Config) -> Iterator[str]:
    """Yields the refusal of a private job without an intercept that declares centres and has no column of levels in its place."""
    if config.model.intercept or config.data.builtin is not None or config.formula is not None:
        return
    columns = {name: column.encoded for name, column in config.data.columns.items() if name != config.data.response}
    declared = [Column.declared(name, keys) for name, keys in columns.items()]
    centred = [repr(column.name) for column in declared if column.center]
    if centred and all(column.kind == "numeric" for column in declared):
        yield (
            f"model.intercept = false with a centre of {', '.join(centred)} is a model of centred columns, which is another one: "
            "give center = 0 and a scale in [data.columns], or leave model.intercept out"
        )


def _private(config: Config, privacy: PrivacySection) -> Iterator[str]:
    """Yields faults of a private job."""
    algorithm = config.algorithm
    yield from _centred(config)
    if algorithm.batch != 1:
        yield "algorithm.batch is for jobs that are not private; privacy.sampling_rate says how rows enter a step"
    if algorithm.random_source == "keyed":
        yield "algorithm.random_source is for jobs that are not private; privacy.noise_source says where noise comes from"
    if algorithm.variant == "bcm-split":
        yield 'algorithm.variant = "bcm-split" has no private form; take "pvi", or leave out [privacy]'
    if (covariance := config.model.covariance) != "diagonal":
        yield f'model.covariance = "{covariance}" has no private form; take "diagonal"'
    if privacy.unit == "example":
        if algorithm.estimator in ("stl", "total"):
            yield f'algorithm.estimator = "{algorithm.estimator}" has no clipped form; take analytic'
        if algorithm.optimiser == "exact" and algorithm.variant not in SHARDED:
            yield 'algorithm.optimiser = "exact" cannot be private; take adagrad, adam or sgd'
    elif algorithm.variant != "pvi":
        yield f'privacy.unit = "client" is for variant = "pvi"; variant is "{algorithm.variant}"'
    elif privacy.clients:
        yield 'privacy.clients: with unit = "client" one set of terms holds for all; move them to [privacy]'
    if config.data.standardise == "exchange":
        yield 'data.standardise = "exchange" would publish statistics of rows; take "public" with [data.columns], or "none"'
    if (algorithm.variant in SHARDED) != (privacy.sampling == "shards"):
        yield f'privacy.sampling = "{privacy.sampling}" does not fit variant = "{algorithm.variant}"; leave sampling out'
    only = ACCOUNTANT.get(privacy.sampling, privacy.accountant)
    if privacy.unit == "example" and privacy.accountant != only:
        yield f'privacy.accountant = "{privacy.accountant}" does not know sampling = "{privacy.sampling}"; take "{only}"'
    if privacy.calibrate and config.job.rounds == "budget" and algorithm.updates_per_client is None:
        yield "privacy.calibrate = true needs the number of updates: give algorithm.updates_per_client, or a number of job.rounds"
    yield from _noise_aware(config, privacy)
    lacking = list(_missing(privacy))
    yield from lacking
    if lacking and config.data.clients:
        data = config.data
        roles = {data.response, data.offset, data.weight, data.row_id, *data.ignore}
        yield from undeclared(data.columns, data.standardise, roles)
    yield from _terms(config, privacy, privacy, "privacy")
    for client in sorted(privacy.clients):
        yield from _terms(config, privacy, privacy.of(client), f"privacy.clients.{client}")


def _noise_aware(config: Config, privacy: PrivacySection) -> Iterator[str]:
    """Yields the reasons why no posterior that contains the noise can be made (docs/spec/pvi.md, section 16)."""
    algorithm, what = config.algorithm, 'algorithm.posterior = "noise-aware"'
    if algorithm.posterior is None:
        return
    if privacy.unit == "client" or algorithm.variant != "pvi":
        given = 'privacy.unit = "client"' if privacy.unit == "client" else f'variant = "{algorithm.variant}"'
        yield f'{what} needs noisy sums of rows at the clients, with variant = "pvi"; the job has {given}'
    if config.model.family not in OF_NOISE_AWARE:
        yield f'{what} is for model.family = "bernoulli" and "gaussian", not "{config.model.family}"; leave it out'
    if algorithm.schedule not in ("sequential", "synchronous"):
        yield f'{what} needs a schedule that asks every client equally often; take "sequential", not "{algorithm.schedule}"'
    if algorithm.estimator != "analytic":
        yield f'{what} needs gradients whose only noise is that of the sums; take estimator = "analytic"'
    if privacy.sampling == "poisson-truncated":
        yield f'{what} does not know how many rows sampling = "poisson-truncated" leaves out; take "poisson"'
    if config.data.weight is not None:
        yield f"{what} does not know what data.weight makes of the sampling of rows; leave one of them out"


def _needed(privacy: PrivacySection) -> set[str]:
    """Returns the terms that every client must have."""
    need = {"epsilon", "delta", "clip"} | ({"noise_multiplier"} if not privacy.calibrate else set())
    return need | (SAMPLING[privacy.sampling] if privacy.unit == "example" else set())


def _missing(privacy: PrivacySection) -> Iterator[str]:
    """Yields a fault for each term that neither [privacy] nor every client's section gives.

    Whether these sections name every client is checked once the clients are known (`check_terms`).
    """
    need, sections = _needed(privacy), list(privacy.clients.values())
    for name, field in type(privacy).model_fields.items():
        given = [getattr(privacy, name, None)] + [getattr(terms, name, None) for terms in sections]
        if name not in need or given[0] is not None or (sections and None not in given[1:]):
            continue
        why = f'sampling = "{privacy.sampling}" needs it' if name in SAMPLING[privacy.sampling] else remedy(field)
        why = "or calibrate = true" if name == "noise_multiplier" else why
        yield f"privacy.{name} is missing: {field.description} ({why})"


def check_terms(privacy: PrivacySection | None, clients: Sequence[str]) -> None:
    """Raises JobError, with all missing terms of all clients, where neither [privacy] nor a client's section gives one."""
    if privacy is None:
        return
    need = [name for name in Terms.model_fields if name in _needed(privacy)]
    lacking = [(client, [name for name in need if getattr(privacy.of(client), name) is None]) for client in clients]
    texts = [
        f"privacy.{', '.join(names)} {'is' if len(names) == 1 else 'are'} missing for client {client!r}; "
        f"give {'it' if len(names) == 1 else 'them'} in [privacy] or [privacy.clients.{client}]"
        for client, names in lacking
        if names
    ]
    if texts:
        raise JobError("; also ".join(texts))


def _terms(config: Config, privacy: PrivacySection, terms: Terms, where: str) -> Iterator[str]:
    """Yields faults in the common terms, or in those of one client."""
    if privacy.calibrate and terms.noise_multiplier is not None:
        yield f"{where}.noise_multiplier and privacy.calibrate = true contradict each other; give one of them"
    if terms.epsilon is not None and LARGEST_EPSILON < terms.epsilon < math.inf:
        yield unbounded(f"{where}.epsilon", terms.epsilon)
    if terms.epsilon == math.inf and (privacy.calibrate or config.job.rounds == "budget"):
        yield f'{where}.epsilon = inf: privacy.calibrate = true and job.rounds = "budget" need a finite epsilon'
    if privacy.unit == "example" and terms.clip is not None and terms.clip < LEAST_CLIP:
        yield f"{where}.clip = {terms.clip:g}: on rows wanted at least {LEAST_CLIP:g}; give the columns larger units, or raise it"
    given = {n for n in ("sampling_rate", "batch_size", "dataset_size", "max_batch") if getattr(terms, n) is not None}
    allowed = SAMPLING[privacy.sampling] if privacy.unit == "example" else set()
    for name in sorted(given - allowed):
        scheme = f'sampling = "{privacy.sampling}"' if privacy.unit == "example" else 'unit = "client"'
        yield f"{where}.{name} has no meaning with {scheme}; leave it out"
    if "batch_size" in given and terms.dataset_size is not None and (terms.batch_size or 0) > terms.dataset_size:
        yield f"{where}.batch_size = {terms.batch_size}: wanted at most dataset_size = {terms.dataset_size}"
