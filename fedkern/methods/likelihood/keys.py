"""The job file's sections where method = "likelihood". Source: docs/spec/likelihood.md, sections 1 to 4 and 8."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args

from pydantic import Field

from ...data.formula import of_end
from ...disclosure.requirement import ALL, Requirement
from ...errors import JobError
from ...finding import Finding
from ...jobs import incomplete, keys
from ...jobs.formula import laid
from ...jobs.keys import (
    Chains,
    CommonOutputSection,
    Count,
    Draws,
    JobConfig,
    Positive,
    Raw,
    Rounds,
    Section,
    StepsSection,
    Tables,
    faults_of_schedule,
    faults_of_sums,
    key,
)
from ...jobs.load import layered, table
from ...jobs.naming import faults as faults_of_names
from ...kernels import families
from ...kernels.families import FAMILIES, LEVELED
from ...models.formula.expansion import Formula
from ...models.mixed.grouping import MOST_SHARED, Grouping, groupings, nested
from ...models.mixed.layout import INTERCEPT_SD, PRIOR_SD, SHAPES
from ...models.own.priors import POSITIVE
from ...printing import toml_key
from . import level_keys, own_keys, scales
from .level_keys import Levels
from .own_keys import PriorSection

COUNTED = ("gaussian", *families.HAZARDS)  # families of which rows a coefficient were found to be enough
MOST_TERMS = 3  # of a random effect: an intercept and two slopes
MOST_ROUNDS = 8  # times as many draws as algorithm.points
WITH_MARGINAL = 5  # rows more for each number of an ordinal likelihood, where sums of levels' probabilities are told
STEPS = 6000  # of a variational fit
TRAJECTORIES = 1000  # of each chain, where the sampler is Hamiltonian Monte Carlo
MOST_CUTS = 40
ONE_POINT = "the log-likelihoods of all clients' rows are added at each point, for which all must answer"
SURVIVAL_AT = "ask for output.survival_at or output.restricted_mean, which are on the scale of times"
WeightKind = Literal["frequency", "precision", "survey"]
RowKind = Literal["responses", "ordered", "nominal", "cox", "lifetimes", "own"]
AUTO, COUNTS = "auto", ("poisson", "negative-binomial")  # the family by evidence, and of which; the first one is tried first
NO_EVENT = "0"  # the label of rows without event, where events have several
OF_INTERCEPT = {"intercept", "threshold"}  # of which the mean of thresholds is one
HELD = 1e-2  # standard deviation of a prior up to which it holds the posterior, whatever rows say


if TYPE_CHECKING:
    OfJob: TypeAlias = str
else:
    OfJob = Literal[(*get_args(families.OfLikelihood), AUTO)]


class JobSection(keys.JobSection):
    rounds: Rounds = key(
        MOST_ROUNDS,
        help="after the mode is found: so many times algorithm.points at most; hmc: trajectories of each chain, default 1000",
    )
    sums: Literal["secure"] | None = key(
        None, help="secure: the server gets the sum of all clients' log-likelihoods, and no client's own; three clients or more"
    )
    sums_except: Literal["without"] | None = key(
        None,
        help="without: with secure sums each client also sends its own log-likelihoods at the draws, of which output.without is "
        "made: a holder's policy must allow it",
    )
    extends: str | None = key(
        None,
        path=True,
        help="the folder of an earlier run (output.extendable) that gets this job's clients beside its own; fedkern add sets it",
    )
    drops: str | None = key(None, help="a client of job.extends without whom the result is wanted; fedkern drop sets it")


class DataSection(keys.DataSection):
    levels: Levels = key(None, help="ordinal: the response's levels, the lowest first; multinomial: the reference first")
    time: str | None = key(
        None, help="survival: when each row has its event, or was seen for the last time; end - start: between two columns' dates"
    )
    event: str | None = key(
        None,
        help="survival: which of the two it is, 1 or 0 (or data.positive and another label); with time_upper by default whether "
        "that is there",
    )
    events: Levels = key(
        None, help="cox: competing risks: the labels in data.event of the causes of an event, each with coefficients of its own"
    )
    censored: str | None = key(None, help='with data.events: the label of rows without event; default "0"')
    entry: str | None = key(None, help="survival: from when on each row was seen, if not from the beginning (left truncation)")
    time_upper: str | None = key(
        None,
        help="weibull, exponential, piecewise: the end of the interval after data.time in which the event was; the same time "
        "where it was seen, empty where there was none",
    )
    strata: str | None = key(None, help="cox: rows with different labels have their own baseline hazards; labels stay home")
    weight_kind: WeightKind | None = key(
        None, help=f"{keys.WEIGHT_KIND}; survey: rows stand for unequal shares of a population; cox: default case weights"
    )
    psu: str | None = key(
        None, help="survey: the clusters that were drawn first, each of one client; default rows; their labels stay home"
    )
    survey_strata: str | None = key(
        None,
        help="survey: the strata of which clusters were drawn, each of one client; a client that is one has one label",
    )
    trials: str | None = key(None, help="binomial: the response is a number of successes, of so many trials as this column says")


class GroupsSection(Section):
    """Groups of rows that have an effect, one of several."""

    by: str | list[str] = key(
        help="the column of their labels, or several, of which the labels together name a group: wards, each within its region; "
        "an effect of the regions is an entry of its own"
    )
    slopes: list[str] = key([], help="numeric covariates whose coefficients differ between groups, at most two")
    correlated: bool = key(True, help="false: intercepts and slopes are independent, where all columns are 0")
    shared: bool = key(
        False, help="a label is one group, whichever clients have it, such as a rater; default: each client's groups are its own"
    )
    levels: list[str | int] | None = key(None, help="shared: all labels, at most 200; the job file tells them to all parties")


class RandomSection(Section):
    """What differs between groups of rows, or between clients, and is normal there."""

    group: str | None = key(None, help="the column that says to which group a row belongs, such as a ward; its labels stay home")
    slopes: list[str] = key([], help="numeric covariates whose coefficients differ between groups, at most two")
    entered_together: bool = key(
        False,
        help="with data.entry and group: each group is there because all of its rows were without event until their entries, as "
        "families or pairs are; default: rows came one by one, as patients of wards do, each without event until its own entry",
    )
    client: bool = key(False, help="an intercept of each client, which is normal over all clients: the site effect")
    client_slopes: list[str] = key([], help="numeric covariates whose coefficients differ between clients, at most two")
    groups: list[GroupsSection] | None = key(
        None,
        help="[[model.random.groups]], in the place of group and slopes: groups of several columns, in each other or crossed",
    )

    @property
    def every(self) -> tuple[Grouping, ...]:
        """The groups that have effects and are each client's own."""
        return groupings(self.model_dump())

    @property
    def every_shared(self) -> tuple[Grouping, ...]:
        """The groups that clients have in common."""
        return groupings(self.model_dump(), shared=True)

    @property
    def shared(self) -> Grouping | None:
        """The same of a job without faults."""
        return next(iter(self.every_shared), None)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the labels of all groups."""
        return tuple(grouping.column for grouping in (*self.every, *self.every_shared))

    @property
    def all_slopes(self) -> tuple[str, ...]:
        """The slopes of all groups."""
        return tuple(slope for grouping in self.every for slope in grouping.slopes)

    @property
    def n_terms(self) -> int:
        """How many numbers the effects of a row's groups have."""
        return sum(len(grouping.terms) for grouping in self.every)

    @property
    def joint(self) -> bool:
        """Whether all effects of a client are integrated together."""
        return len(self.every) > 1 and (self.client or not nested(self.every))


class ModelSection(incomplete.ModelSection):
    kind: Literal["regression", "own"] = key(
        "regression", help="generalised linear (mixed) model; own: what a function of the holders' own packages computes"
    )
    factory: str | None = key(None, help='own: "package.module:function", of a package that is installed at every holder')
    options: dict[str, Any] = key({}, help="own: what the function gets beside the rows")
    priors: dict[str, PriorSection] = key(
        {}, help="of single numbers, by the names that results have for them; own: of the parameters; default: the model's own"
    )
    local: bool | None = key(None, help="own: the model has unknowns of each client, which are sampled with all else (hmc)")
    family: OfJob = key(
        "bernoulli",
        help="of the response, with its canonical link; of times: cox, or a distribution that all share; auto: of counts, "
        "poisson or negative-binomial by evidence",
        meant=families.MEANT,
    )
    by_evidence: bool = key(
        False, help="poisson: what family = auto sets: the other family is run, too, and the evidence decides", expert=True
    )
    formula: str | None = key(None, help=laid.HELP)
    cuts: list[float] | None = key(
        None, help="piecewise: times between which the baseline hazard is constant, rising and above 0"
    )
    link: Literal["logit", "probit", "cloglog"] | None = key(
        None, help="of a probability (bernoulli, binomial), or of cumulative ones (ordinal: logit, probit); default logit"
    )
    intercept: bool = key(True, help="add a column of ones")
    prior_sd: float | None = key(
        None,
        ge=1e-5,
        le=1e5,
        help="standard deviation of each coefficient's normal prior, of a column in its standard deviations and, of a gaussian "
        "or student response, in that of the response, and else, of a formula, of effects at means and of each level; default "
        f"{PRIOR_SD:g}, and wider where that would decide what rows decide",
    )
    intercept_sd: float | None = key(
        None, ge=1e-5, le=1e5, help=f"of the intercept's prior, with the same units; default {INTERCEPT_SD:g}, widened alike"
    )
    intercept_centre: float | None = key(
        None,
        ge=-1e100,
        le=1e100,
        help="of the intercept's prior (ordinal: of the mean of thresholds), in the data's units; default: the pooled level",
    )
    nu: float | None = key(
        None, ge=0.1, le=1e6, help="student: degrees of freedom of the errors; default: learnt, with prior Gamma(2, rate 0.1)"
    )
    sigma: str | None = key(
        None,
        help='gaussian, student: what the logarithm of the errors\' standard deviation depends on, terms of the model: "~ age"',
    )
    random: RandomSection | None = key(None, help="effects of groups of rows, or of clients")

    @property
    def prior_precision(self) -> float:
        """The precision of each coefficient's prior, before rows are seen."""
        return float((self.prior_sd or PRIOR_SD) ** -2.0)

    @property
    def given_priors(self) -> dict[str, float]:
        """The keys of priors of all coefficients and of the intercept that the job gives."""
        names = ("prior_sd", "intercept_sd", "intercept_centre")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    @property
    def default_priors(self) -> tuple[bool, bool]:
        """Whether the prior of coefficients, and that of the intercept, is not the job's."""
        given = self.given_priors
        return "prior_sd" not in given, self.intercept and not given.keys() - {"prior_sd"}


class AlgorithmSection(StepsSection):
    sampler: Literal["importance", "hmc", "sfvi"] = key(
        "importance",
        help="weighted draws; or Markov chains, which take thousands of messages, where weights cannot be trusted; sfvi, of own "
        "models with unknowns of each client: weighted draws about a variational fit",
    )
    points: int = key(4096, ge=256, le=65536, help="importance: times job.rounds, draws at most", expert=True)
    effective: Positive = key(2000.0, help="importance: independent draws as which the weighted ones must be as good")
    burn_in: int | None = key(None, ge=0, help="hmc: rounds in which steps adapt; default half of them")
    leapfrog_steps: Count = key(2, help="hmc: steps of a round, each of them one exchange", expert=True)
    starts: Count | None = key(None, help=f"own: points from which the mode is looked for; default {own_keys.STARTS}")
    approximate: bool | None = key(
        None,
        help="false: the job ends where every client is too small for values at draws, and would take part by a summary; else it "
        'goes on, and says "approximate" unless these summaries prove to be enough',
    )
    client_weights: dict[str, Annotated[float, Field(gt=0, le=1)]] | None = key(
        None, help="client -> the power, above 0 and at most 1, to which its likelihood is raised; of others 1"
    )
    checkpoint_every: Positive = key(60.0, resumable=True, help="seconds between checkpoints")


class OutputSection(CommonOutputSection):
    metrics_every: Count = key(1, help="rounds between two lines of metrics.jsonl", expert=True)
    draws: Draws = key(1000, resumable="drawn_at_the_end", help="importance: per chain, from the posterior into posterior.nc")
    chains: Chains = key(4, resumable="drawn_at_the_end", help="sets of draws, or Markov chains")
    loo: bool = key(False, help="clients with at least 5 rows also send sums of how well rows are foreseen: PSIS-LOO")
    marginal: bool = key(
        False,
        help="average marginal effects (of numbers derivatives, per unit): clients with at least 5 rows also send sums of them",
    )
    sites: bool = key(False, help="each client also sends what its rows say alone: a holder's policy must allow it")
    survival_at: list[float] | None = key(
        None, help="survival: times at which the probability to survive is wanted; cox: clients send cumulative hazards at them"
    )
    restricted_mean: Positive | None = key(
        None, help="survival: the mean of the time until the event or this time; cox: each client's own, in its folder"
    )
    without: bool = key(False, help="the result also without each client, by weights: a holder's policy must allow it")
    extendable: bool | None = key(
        None,
        help="keep the draws, with the sums of log-likelihoods there, so that clients may come or go later (fedkern add, fedkern "
        "drop): a holder's policy must allow it",
    )


class Config(JobConfig):
    """A job of method "likelihood"."""

    job: JobSection
    data: DataSection
    model: ModelSection
    algorithm: AlgorithmSection
    privacy: None = None
    output: OutputSection

    @property
    def random(self) -> RandomSection:
        """The section on effects of groups and clients; an empty one where the job has none."""
        return self.model.random or RandomSection()

    @property
    def formula(self) -> Formula | None:
        """The terms of its formula, if it has one."""
        return laid.of(self.model.formula, self.data.columns)

    @property
    def read_alike(self) -> dict[str, Any]:
        return laid.expanded(self.formula)

    @property
    def own(self) -> bool:
        """Whether log-likelihoods are computed by the holders' own packages."""
        return self.model.kind == "own"

    @property
    def factory(self) -> str | None:
        return self.model.factory

    @property
    def answers_once(self) -> bool:
        return self.own  # whose code may answer otherwise when it is asked again

    @property
    def row_kind(self) -> RowKind:
        """The kind of the job's rows, by which its model (`models`) and its steps (`kinds`) are chosen."""
        if self.own:
            return "own"
        if self.hazards:
            return "lifetimes" if self.lifetimes else "cox"
        if self.leveled:
            return "nominal" if self.nominal else "ordered"
        return "responses"

    @property
    def hazards(self) -> bool:
        """Whether rows have survival times."""
        return self.model.family in families.HAZARDS

    @property
    def repeats(self) -> str | None:
        """The column that says as how many rows each is taken; a Cox model has weights of its own at tied times."""
        return self.data.weight if self.data.weight_kind == "frequency" and self.model.family != "cox" else None

    @property
    def survey(self) -> bool:
        """Whether rows are a sample with unequal weights, and perhaps of clusters, of a population."""
        return self.data.weight_kind == "survey"

    @property
    def without_intercept(self) -> bool:
        """Whether the predictor of a row with covariates of 0 is 0: no intercept, thresholds, baseline, or levels of built-in
        data's columns move it."""
        return not self.model.intercept and self.model.family not in families.WITHOUT_INTERCEPT and self.data.builtin is None

    @property
    def lifetimes(self) -> bool:
        """Whether rows have times of a hazard that all clients share."""
        return self.model.family in families.LIFETIMES

    @property
    def leveled(self) -> bool:
        """Whether the response is one of several levels."""
        return self.model.family in LEVELED

    @property
    def nominal(self) -> bool:
        """Whether each level but the first has coefficients of its own."""
        return self.model.family in families.NOMINAL

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels of the response, in their order; () where it has none. Of causes of events the first is of rows without."""
        return (self.data.censored or NO_EVENT, *self.causes) if self.causes else tuple(self.data.levels or ())

    @property
    def causes(self) -> tuple[str, ...]:
        """The causes of which one ends a row's time; () where there is one kind of event."""
        return tuple(self.data.events or ())

    @property
    def row(self) -> families.Family:
        """The family of a row's response; survival times have that of whether, or by which cause, a row ends with the event."""
        if self.nominal or self.causes:
            return families.ORDINAL
        if self.model.sigma is not None:  # of gaussian rows, too, no sums of products stand for the likelihood
            return families.STUDENT
        return families.BERNOULLI if self.hazards else FAMILIES[self.family]

    @property
    def family(self) -> str:
        """The family of the response with its link, as kernels call it."""
        name = families.linked(self.model.family, self.model.link)
        return name if name in FAMILIES else self.model.family

    @property
    def secure(self) -> bool:
        return self.job.sums is not None

    @property
    def chains(self) -> bool:
        """Whether Markov chains are run."""
        return self.algorithm.sampler == "hmc"

    @property
    def drawn_at_the_end(self) -> bool:
        """Whether the draws are chosen once all is known."""
        return not self.chains

    @property
    def burn_in(self) -> int:
        """Rounds of the chains in which steps adapt."""
        given = self.algorithm.burn_in
        return self.job.rounds // 2 if given is None else given

    @property
    def tells_rows(self) -> tuple[Finding, ...]:
        model = self.model
        if self.own or self.row.linear:
            return ()
        given = model.given_priors.items()
        held = [f"model.{name} = {value:g}" for name, value in given if value <= HELD and name != "intercept_centre"]
        # In the column's own unit nobody knows how narrow a prior is before the columns are agreed (`named_priors`).
        of_any = {name: prior for name, prior in model.priors.items() if prior.kind not in POSITIVE and prior.unit == "sd"}
        in_sds = {name: prior.sd or prior.scale or HELD for name, prior in of_any.items()}
        held += [f"model.priors.{toml_key(name)}" for name, sd in in_sds.items() if sd <= HELD]
        # A wide one is as a default that rows have widened: clients refuse the questions at which few of their rows have weight.
        return (Finding.of("narrow-prior-tells-rows", priors=" and ".join(held), part="the posterior"),) if held else ()

    @property
    def rounds_messages(self) -> bool:
        """Whether clients round what they tell to what the answer needs, where no masks hide it."""
        return True

    @property
    def singly(self) -> bool:
        return self.secure and self.job.sums_except is not None

    @property
    def singles_out(self) -> bool:
        return self.output.without or self.output.sites

    @property
    def without_structure(self) -> str | None:
        given = {
            "[model.random] with groups": bool(self.random.columns) or (self.random.client and not self.row.concave),
            f'model.family = "{self.model.family}"': self.row_kind != "responses",
            "model.sigma": self.model.sigma is not None,
            "data.weight": self.data.weight is not None,
            "algorithm.sampler": self.algorithm.sampler != "importance",
            'model.family = "auto"': self.model.by_evidence,
            "job.sums": self.secure,
        }
        return next((what for what, present in given.items() if present), None)

    @property
    def extendable(self) -> bool:
        return self.output.extendable is True

    @property
    def extends(self) -> bool:
        return self.job.extends is not None

    @property
    def _plain_linear(self) -> bool:
        """Whether clients' messages are functions of cross-products alone."""
        return self.row.linear and not self.random.every

    @property
    def _additive(self) -> bool:
        """Whether what clients tell is, added up, a sum over all their rows, groups or events, each with the same weight.

        A Cox model's events have rows at risk of their client alone, as those of a stratum. It is none of effects of clients. At
        level "strict" sums of columns are searched in each client's own rows.
        """
        data, formula = self.data, self.formula
        weighed = (data.weight is not None and not self.repeats) or (formula is not None and formula.curved)
        return not (self.own or self.random.client or weighed or self.singly or self.rules.search)

    @property
    def can_join_levels(self) -> bool:
        return not (self.own or self.extends)  # what has joined in an earlier run joins

    @property
    def approximate(self) -> bool:
        """Whether the job goes on where every client takes part by a summary."""
        return self.algorithm.approximate is not False

    @property
    def attacked(self) -> bool:
        """Whether more than two questions about such rows were attacked (benchmarks/disclosure_standard.py and
        survival_disclosure.py, by --only summed and --sums)."""
        return self.family in ("bernoulli", "poisson", "gamma", "cox") and self.data.trials is None

    @property
    def without_summaries(self) -> str | None:
        """What the job has for which no client takes part by a summary; None where one may."""
        # Of a number whose sign may be changed the posterior has two modes, between which there is no quadratic.
        two = any(shape.folded for shape in SHAPES.get(self.model.family, ()))
        walks = self.model.family == "piecewise"  # hazards, with a scale
        unlike = {
            f'model.family = "{self.model.family}"': walks or (not self.own and two),
            'model.kind = "own"': self.own,
            "[model.random]": self.model.random is not None,
            'algorithm.sampler = "hmc"': self.chains,
            'job.sums = "secure"': self.secure and not (self._additive and self.attacked),
            'data.weight_kind = "survey"': self.survey,
            'model.family = "auto"': self.model.by_evidence,
            "data.events": bool(self.causes),
            "model.sigma": self.model.sigma is not None,
        }
        return next((what for what, present in unlike.items() if present), None)

    @property
    def requirement(self) -> Requirement:
        terms = self.random.n_terms
        group = terms > 0
        additive = self._additive and not self._alone  # in one process no site signs, and nobody adds
        requirement = replace(super().requirement, groups=group, names_groups=not (group or self.survey), additive=additive)
        if self.own:  # which columns say something, and of what, the factory knows alone
            return replace(requirement, looks_at_values=False)
        if self._plain_linear:
            return replace(requirement, tells="products", whole=ALL)
        if self.model.sigma is not None:
            requirement = replace(requirement, family=self.row.name)
        others, ordered = max(len(self.levels) - 1, 1), self.leveled and not self.nominal
        counted_too = ""
        if self.nominal:
            counted_too = f", each for {others} levels beside the first"
        elif ordered:
            twenty = ", twenty rows each with output.marginal" if self.output.marginal else ""
            counted_too = f", and {others} threshold{'s' if others > 1 else ''}{twenty}"
        elif self.model.sigma is not None:
            counted_too = ", each for the mean and for sigma"
        elif self.shapes:
            whose = 'a negative binomial, which family = "poisson" has not' if self.model.by_evidence else "the family"
            counted_too = f", and {self.shapes} number{'s' if self.shapes > 1 else ''} of {whose}"
        levels = "levels (one that nobody has need not be in data.levels)"
        return replace(
            requirement,
            tells="values",
            whole=ALL,
            blocks=others if self.nominal else 1 + (self.model.sigma is not None),
            scaled=self.model.sigma is not None,
            more=others if ordered else 0,
            shapes=self.shapes,
            of_family=0 if self.hazards or self.row.linear else self.shapes,
            marginal=WITH_MARGINAL if ordered and self.output.marginal else 0,
            slopes=0 if self.row.linear else max(terms - 1, 0),  # of linear rows small groups are looked at
            by_products=self.row.linear and not (terms > 1 or self.random.client or (self.data.weight and not self.repeats)),
            intercept=self.model.family != "cox",
            weighs=None if self.hazards else int(ordered),  # a threshold is an intercept
            summaries=self.without_summaries is None,
            counted_too=counted_too,
            fewer_too=levels if self.nominal else f"random slopes or {levels}" if ordered else "random slopes",
        )

    @property
    def shapes(self) -> int:
        """Numbers of the family that count as coefficients where rows are counted (section 6)."""
        family = COUNTS[-1] if self.model.by_evidence else self.model.family
        # Beside a share of zeros other rows weigh as they are none, and a cloglog's weigh less evenly than a logit's, which tells
        # more: of three columns 1.5 and 3.1 % at 12 a coefficient.
        shares = 2 * (self.model.link == "cloglog") + (family in ("zero-inflated-poisson", "hurdle-poisson"))
        return len(self.model.cuts or ()) if family in COUNTED else len(SHAPES.get(family, ())) + shares


BASE: Tables = {"job": {"rounds": MOST_ROUNDS}}
CHAINS: Tables = {"job": {"rounds": TRAJECTORIES}}
FITTED: Tables = {"job": {"rounds": STEPS}}
BUILTIN: Tables = {"data": {"standardise": "public"}}
DROP: Tables = {"model": {"missing": "drop"}}  # as R's na.omit; how many rows are left out is said
ADULT: Tables = {"model": {"intercept": False}}  # its one-hot columns span the constant


def refused(raw: Raw) -> Iterator[str]:
    """Yields the faults of keys that other methods have and this one does not."""
    yield from laid.faults(raw, random=True)
    data, model = table(raw, "data"), table(raw, "model")
    if "privacy" in raw:
        yield (
            '[privacy]: method = "likelihood" has no private form: clients answer with their exact log-likelihood at thousands '
            'of points, and noise that hides a row in these would hide the posterior; take method = "pvi", whose rounds are few '
            "noisy sums, or remove the section"
        )
    if "weight" in data and not data.get("weight_kind") and model.get("family") != "cox":
        yield (
            'data.weight_kind is missing: say what data.weight is, "frequency" (each row stands for so many equal rows), '
            '"precision" (the variance of its error is divided by the weight: R\'s lm), or "survey" (it stands for so many of a '
            "population of which rows are a sample)"
        )
    if data.get("weight_kind") and "weight" not in data:
        yield keys.NO_WEIGHT
    if "scale" in model:
        learnt = "numbers of each family beside its coefficients (sigma, r, a shape, ..) are learnt"
        yield f'model.scale is for method = "pvi": here the {learnt}, with all else; remove it'
    if "covariance" in model:
        yield 'model.covariance is for method = "pvi": here the posterior has the form that it has; remove it'


def fill_defaults(raw: Raw) -> dict[str, Any]:
    """Returns the job file with the defaults of everything that it leaves out."""
    raw = laid.laid(raw)
    if (upper := table(raw, "data").get("time_upper")) is not None:
        raw["data"] = {"event": of_end(str(upper)), **raw["data"]}
    if table(raw, "model").get("family") == AUTO:
        raw["model"] = {**raw["model"], "family": COUNTS[0], "by_evidence": True}
    builtin = table(raw, "data").get("builtin")
    family = table(raw, "model").get("family")
    is_own = table(raw, "model").get("kind") == "own"
    base = {"hmc": CHAINS, "sfvi": FITTED}.get(str(table(raw, "algorithm").get("sampler")), BASE)
    return layered(
        raw,
        [
            base,
            *[DROP] * (not is_own),
            *[BUILTIN] * (builtin is not None),
            *[ADULT] * (builtin == "adult" or family in families.WITHOUT_INTERCEPT),
        ],
    )


def conflicts(config: Config) -> Iterator[str]:
    """Yields every fault, each a sentence with its remedy."""
    data, model = config.data, config.model
    yield from _secure(config)
    steps = config.algorithm.sampler == "sfvi"
    yield from faults_of_schedule(config, config.algorithm, None if steps else ONE_POINT)
    if config.job.device == "cuda":
        yield 'job.device = "cuda": jobs of method = "likelihood" run on the host; use "cpu"'
    yield from _powers(config)
    yield from _extension(config)
    if config.own:
        yield from own_keys.conflicts(data, model, config.algorithm, config.output)
        yield from faults_of_names(data.names, "data.names")
        yield from _chains(config)
        yield from _points(config)
        return
    yield from own_keys.not_own(model, config.algorithm)
    if bool(data.clients) == bool(data.builtin) and config.job.drops is None:
        yield "data: wanted either data.clients (files) or data.builtin; give one of them"
    if data.clients and data.response is None and not config.hazards:
        yield "data.response is missing: the column to be explained"
    if data.builtin and data.test is not None:
        yield "data.test is for data.clients; of built-in data the server keeps the share data.split.test"
    ordered = config.leveled and not config.nominal  # whose thresholds are in its place
    if not model.intercept and model.intercept_centre is not None and not ordered:
        yield "model.intercept_centre is the prior's of an intercept, and model.intercept = false; leave it out"
    yield from laid.conflicts(config, config.formula)
    yield from faults_of_names(data.names, "data.names")
    if twice := [f"model.{name}" for name in model.given_priors if name != "prior_sd" and model.priors.keys() & OF_INTERCEPT]:
        yield f"{' and '.join(twice)} and [model.priors] say the prior of one number, the intercept; remove one of them"
    if model.nu is not None and model.family != "student":
        yield f'model.nu is of model.family = "student", whose errors have degrees of freedom, not of "{model.family}"; remove it'
    yield from _sigma(config)
    yield from _trials(config)
    yield from _weights(config)
    yield from _times(config)
    yield from level_keys.faults(data, model)
    yield from _chains(config)
    if model.by_evidence and (model.family != COUNTS[0] or config.chains):
        why = f'is "{model.family}"' if model.family != COUNTS[0] else 'has no evidence with algorithm.sampler = "hmc"'
        yield f'model.by_evidence is of counts, and the family {why}; set model.family = "auto" with weighted draws, or remove it'
    yield from _random(config)
    roles = {data.response, data.offset, data.row_id, data.trials, *config.random.columns, *data.ignore}
    roles |= {data.time, data.event, data.entry, data.strata, data.weight, data.time_upper, data.psu, data.survey_strata}
    yield from incomplete.conflicts(config, roles)
    yield from _points(config)


def _secure(config: Config) -> Iterator[str]:
    """Faults of a job whose server gets sums alone."""
    if config.job.sums_except and not (config.secure and config.output.without):
        lacks = 'job.sums = "secure"' if not config.secure else "output.without = true"
        yield f'job.sums_except = "{config.job.sums_except}" is for jobs with {lacks}; set that, or remove it'
    if not config.secure:
        return
    yield from faults_of_sums(config)
    key, why = 'job.sums = "secure"', "the server has no client's own numbers"
    if config.own:
        yield (
            f"{key}: answers of the holders' own packages are kept, and sent again after a crash, under masks that nobody "
            "has by then; remove it"
        )
    if config.output.sites:
        yield f"{key}: {why}, and output.sites is made of them; remove one of the two"
    if config.output.without and not config.job.sums_except:
        yield (
            f"{key}: {why}, and output.without is made of them; remove one of the two, or set job.sums_except = "
            '"without", with which each client also sends its own log-likelihoods at the draws, one by one (a policy that '
            'binds its data must say sums_except = "without" and values = true)'
        )
    if config.model.family == "cox" and config.output.survival_at:
        yield (
            f"{key}: {why}, and output.survival_at averages the clients' own hazards; remove one of the two, or take a "
            'baseline hazard that all share (model.family = "piecewise" or "weibull")'
        )


def _powers(config: Config) -> Iterator[str]:
    """Faults of a job with powers of clients' likelihoods."""
    key, output = "algorithm.client_weights", config.output
    if not config.algorithm.client_weights:
        return
    for used, what, why in (
        (config.own or config.chains, "own models and chains", "it is of weighted draws"),
        (config.secure, "job.sums", "masked sums are of likelihoods"),
        (config.data.weight is not None, "data.weight", "rows have weights of their own"),
        (config.model.by_evidence, 'model.family = "auto"', "a power of a likelihood has no evidence"),
        (output.loo, "output.loo", "a power of a likelihood foresees no row"),
        (output.sites or output.without, "output.sites and output.without", "they tell of a client's whole likelihood"),
    ):
        if used:
            yield f"{key} is not for {what}: {why}; remove one of the two"


def _extension(config: Config) -> Iterator[str]:
    """Faults of a job that later clients may extend, or that extends another."""
    job, output = config.job, config.output
    if job.drops is not None and (job.extends is None or config.data.clients):
        yield "job.drops names a client of job.extends, and nobody is asked anything: give that, and no data.clients"
    key = "output.extendable" if output.extendable else "job.extends" if job.extends else None
    if key is None:
        return
    for used, what, why in (
        (config.own or config.algorithm.sampler != "importance", "own models, chains and sfvi", "it is of weighted points"),
        (config.survey, "surveys", "their posterior is not that of the weighted points"),
        (config.model.by_evidence, 'model.family = "auto"', "a newcomer's rows may change the choice; name the family"),
        (config.algorithm.client_weights, "algorithm.client_weights", "powers are of the clients that were there"),
        (config.data.builtin, "data.builtin", "its rows are dealt to the clients of one job"),
    ):
        if used:
            yield f"{key} is not for {what}: {why}; remove one of the two"
    for name in ("loo", "marginal", "sites", "without", "survival_at", "restricted_mean"):
        if job.extends and getattr(output, name):
            yield f"output.{name} with job.extends is of all clients' rows, and the earlier clients are not asked; remove it"


def _points(config: Config) -> Iterator[str]:
    """Whether Sobol's points spread evenly."""
    points = config.algorithm.points
    if points & (points - 1):
        below = 2 ** int(math.log2(points))
        yield f"algorithm.points = {points}: wanted a power of two, such as {below} or {2 * below}, for points that spread evenly"


def _chains(config: Config) -> Iterator[str]:
    """Faults of a job that runs Markov chains."""
    rounds, burn_in = config.job.rounds, config.burn_in
    if not config.chains:
        return
    if burn_in >= rounds:
        yield f"algorithm.burn_in = {burn_in} of {rounds} rounds leaves no draw; lower it, or raise job.rounds"
    if config.output.without:
        yield (
            'output.without is by weights of the draws, and algorithm.sampler = "hmc" has none: clients send gradients, and not '
            'their log-likelihood at each draw; remove it, take "importance", or run the job without that client'
        )


def _sigma(config: Config) -> Iterator[str]:
    """Faults of errors whose standard deviation depends on columns."""
    model, weight_kind = config.model, config.data.weight_kind
    if model.sigma is None:
        return
    if model.family not in scales.FAMILIES:
        yield f'model.sigma is of model.family = {families.quoted(scales.FAMILIES)}, not of "{model.family}"; remove it'
        return
    if model.random is not None:
        yield "model.sigma with [model.random]: effects are integrated with one sigma of all rows here; remove one of the two"
    if weight_kind is not None and config.repeats is None:
        yield f'model.sigma with data.weight_kind = "{weight_kind}": both say how far errors reach; remove one of the two'
    try:
        scales.terms_of(model.sigma)
    except JobError as fault:
        yield str(fault)


def _trials(config: Config) -> Iterator[str]:
    data, model = config.data, config.model
    of_trials = families.taken_by("likelihood", where=lambda family: family.trials)
    if model.family in of_trials and data.trials is None:
        remedy = 'give the column of their number, or take "bernoulli" for a response of 0 or 1'
        yield f'data.trials is missing: family = "{model.family}" is of successes of trials; {remedy}'
    if data.trials is None:
        return
    if model.family not in of_trials:
        wanted = families.quoted(of_trials)
        yield f'data.trials = "{data.trials}": successes of trials are of model.family = {wanted}, not "{model.family}"'
    if data.builtin:
        yield f'data.trials = "{data.trials}" is for data.clients; built-in data have 0/1 responses'
    if data.positive is not None:
        what = "says that the response is a number of successes, and data.positive that it is a label"
        yield f'data.trials = "{data.trials}" {what}; remove one of them'


PRECISIONS = ("gaussian", "student", "gamma")  # families whose errors have a variance of their own


def _weights(config: Config) -> Iterator[str]:
    """Faults of case weights."""
    data, model, output, kind = config.data, config.model, config.output, config.data.weight_kind
    for name in ("psu", "survey_strata"):
        if getattr(data, name) is not None and not config.survey:
            yield f'data.{name} is of a survey\'s design; set data.weight_kind = "survey", or remove it'
    if kind is None:
        return
    if data.builtin:
        yield "data.weight is for data.clients; built-in data have no weights"
    if data.trials is not None:
        yield (
            f'data.trials and data.weight_kind = "{kind}" both say how much a row counts; write each trial as a row of 0 or 1, '
            "or remove the weights"
        )
    if kind == "precision" and model.family not in PRECISIONS:
        yield (
            f'data.weight_kind = "precision" is of errors with a variance ({", ".join(PRECISIONS)}), and model.family is '
            f'"{model.family}"; take "frequency" for numbers of equal rows, or "survey"'
        )
    if not config.survey:
        return
    what = 'data.weight_kind = "survey"'
    if model.family in ("cox", "piecewise"):
        yield f'{what} is not built for model.family = "{model.family}"; take "weibull", or R\'s survey::svycoxph'
    if model.by_evidence:
        yield f'{what} has no evidence, by which model.family = "auto" chooses; name the family: intervals are of the design'
    if model.random is not None:
        yield (
            f"[model.random] with {what}: weights of rows say nothing of how groups were drawn; remove the section (intervals "
            "are right for rows of clusters that data.psu names)"
        )
    if config.chains:
        yield f'{what} moves weighted draws; set algorithm.sampler = "importance"'
    if config.secure:
        yield f'{what} needs each client\'s clusters, and job.sums = "secure" hides them; remove one of the two'
    for name, why in NO_SURVEY:
        if getattr(output, name):
            yield f"output.{name} with {what}: {why}; remove it"


NO_SURVEY = (  # what a pseudo-posterior has not, of [output], and why
    ("loo", "a weighted row has no density to be foreseen by"),
    ("without", "weights of draws are of a likelihood, and this one's width is not that of the posterior"),
    ("sites", "a client's own standard deviations would not be of the design"),
    ("marginal", "averages over rows are not averages over the population"),
)


TIMES = ("time", "event", "events", "censored", "entry", "strata", "time_upper")
NO_TIMES = (  # what rows with times have not, of [output], and why
    ("loo", "a row has no density of its own, for who else is at risk is part of it", "it is not built for times"),
    ("marginal", "the mean of a time is not known without its baseline hazard, which stays with the client", SURVIVAL_AT),
)


def _times(config: Config) -> Iterator[str]:
    """Faults of survival times."""
    data, model, output = config.data, config.model, config.output
    given = [f"data.{name}" for name in TIMES if getattr(data, name) is not None]
    given += [f"output.{name}" for name in ("survival_at", "restricted_mean") if getattr(output, name)]
    given += ["model.random.entered_together"] * (config.random.entered_together and not config.lifetimes)
    if given and not config.hazards:
        those = "it" if len(given) == 1 else "them"
        yield f'{", ".join(given)}: for survival times; set model.family = "cox" (or "weibull", ..), or remove {those}'
    if model.family != "piecewise" and model.cuts:
        yield f'model.cuts are for model.family = "piecewise", and it is "{model.family}"; remove them'
    if not config.hazards:
        return
    if data.builtin:
        yield f'model.family = "{model.family}" is for data.clients; built-in data have no survival times'
        return
    for name, what in (
        ("time", "when each row has its event or was seen for the last time"),
        ("event", "which of the two it is"),
    ):
        if getattr(data, name) is None:
            yield f'data.{name} is missing: the column that says {what}, for model.family = "{model.family}"'
    if data.response is not None:
        yield f'data.response = "{data.response}": of survival times the response is data.time and data.event; remove it'
    columns_of = ("time", "event", "entry", "strata", "time_upper", "offset", "weight", "row_id")
    roles = {name: column for name in columns_of if (column := getattr(data, name)) is not None}
    for column in dict.fromkeys(column for column in roles.values() if [*roles.values()].count(column) > 1):
        both = " and ".join(f"data.{name}" for name, role in roles.items() if role == column)
        yield f'{both} are both "{column}"; name different columns'
    terms = config.formula.variables if config.formula else ()
    for column in (data.time, data.entry, data.strata, data.time_upper):
        if column is not None and column in data.columns and column not in terms:
            yield f"data.columns.{column}: this column is no covariate; remove the table"
    if not _rising(output.survival_at or []):
        yield f"output.survival_at = {output.survival_at}: wanted times above 0, each later than the one before"
    if data.test is not None:
        why = "a Cox model foresees no time without a baseline hazard, which stays with each client"
        yield f"data.test: {'test rows of survival times have no scores here' if config.lifetimes else why}; remove it"
    for name, why, of_all in NO_TIMES:
        if getattr(output, name):
            yield f'output.{name} with model.family = "{model.family}": {of_all if config.lifetimes else why}; remove it'
    yield from _causes(config)
    yield from _shared(config) if config.lifetimes else _partial(config)


def _causes(config: Config) -> Iterator[str]:
    """Faults of events of several causes."""
    data, causes = config.data, config.data.events
    if causes is None:
        if data.censored is not None:
            yield f'data.censored = "{data.censored}" is of rows without event, beside data.events; give these, or remove it'
        return
    if config.lifetimes:
        yield f'data.events: causes have a baseline hazard of each client; set model.family = "cox", not "{config.model.family}"'
    yield from level_keys.faults_of_names("data.events", [*causes, config.levels[0]] if causes else [])
    if len(causes) < 2:
        yield f"data.events = {causes}: wanted the labels of all causes, two or more; of one it is data.positive"
    if data.positive is not None:
        yield f'data.positive = "{data.positive}": the labels of events are data.events; remove it'
    if config.output.restricted_mean is not None:
        yield "output.restricted_mean with data.events: it is of one kind of event; take output.survival_at, or remove it"


def _partial(config: Config) -> Iterator[str]:
    """Faults of a Cox model."""
    if config.model.intercept:
        yield "model.intercept: a Cox model has none, for the baseline hazard is in its place; remove it, or set false"
    yield from _frailty(config)
    if (upper := config.data.time_upper) is not None:
        yield f'data.time_upper = "{upper}": of events in intervals a Cox model knows no order; take "weibull" or "piecewise"'


def _frailty(config: Config) -> Iterator[str]:
    """Faults of effects of groups in a Cox model."""
    random, output = config.random, config.output
    if random.client:
        yield (
            "model.random.client = true: in a Cox model each client has a baseline hazard of its own, which takes up all that an "
            'effect of the client would be; remove it, or take model.family = "weibull" or "piecewise", whose hazard all share'
        )
    groupings = (*random.every, *random.every_shared)
    if len(groupings) > 1 or random.all_slopes or random.every_shared:
        yield (
            "model.random: a Cox model takes one effect, an intercept of each client's own groups (a frailty); leave one entry, "
            'without slopes and shared, or take model.family = "weibull"'
        )
    if config.data.strata in random.columns:
        yield (
            f'model.random and data.strata are both of "{config.data.strata}": a stratum\'s own hazard takes up its effect; '
            "remove one of them"
        )
    for used, what, why in (
        (config.chains, 'algorithm.sampler = "hmc"', "the integral over effects has no gradient here"),
        (bool(output.survival_at), "output.survival_at", "curves of a new group are not built"),
        (bool(config.causes), "data.events", "effects of groups are of one kind of event here"),
    ):
        if used and groupings:
            yield f"{what} with [model.random] of a Cox model: {why}; remove one of the two"


def _shared(config: Config) -> Iterator[str]:
    """Faults of a model whose baseline hazard all share."""
    data, model, family = config.data, config.model, config.model.family
    if not model.intercept:
        yield f'model.intercept = false (or "- 1" in a formula): of "{family}" it is the logarithm of a hazard or time; remove it'
    if data.strata is not None:
        yield (
            f'data.strata = "{data.strata}": all rows of "{family}" have one baseline hazard; take the column as a covariate, as '
            '[model.random] group, or model.family = "cox"'
        )
    if config.random.entered_together and (data.entry is None or len(config.random.every) != 1):
        yield "model.random.entered_together is of groups of one column, whose rows have data.entry; remove it"
    elif config.random.entered_together and config.random.client:
        yield (
            "model.random.entered_together with client = true: groups that are there because all of their rows were without "
            'event have no effect of the client around them here; give each client a level of a column ("site") in its place, '
            "or remove entered_together if rows came one by one"
        )
    if family in families.ACCELERATED and data.entry is not None and config.model.random is not None:
        yield (
            f'data.entry with [model.random]: of "{family}" rows that are seen late may have several modes in an effect; take '
            '"weibull", or remove one of the two'
        )
    if family == "piecewise" and not model.cuts:
        yield 'model.cuts is missing: family = "piecewise" has a hazard for each piece of time; give them, such as [1, 2, 5]'
    if not _rising(model.cuts or []):
        yield f"model.cuts = {model.cuts}: wanted times above 0, each later than the one before"
    if len(model.cuts or []) > MOST_CUTS:
        yield f"model.cuts has {len(model.cuts or [])} times: at most {MOST_CUTS} are taken; leave some out"
    if family == "piecewise" and config.chains:
        yield (
            'algorithm.sampler = "hmc" with model.family = "piecewise": chains do not enter where the hazards are nearly equal; '
            'take "importance"'
        )


def _rising(times: list[float]) -> bool:
    """Whether these are finite, above 0, and each later than the one before."""
    return all(0 <= a < b < math.inf for a, b in itertools.pairwise([0.0, *times]))


def _random(config: Config) -> Iterator[str]:
    """Faults of effects of groups and clients, as far as the job file tells them."""
    random, data = config.random, config.data
    if config.model.random is None:
        return
    if random.groups is not None and (random.group is not None or random.slopes):
        yield "model.random has group or slopes, and [[model.random.groups]] too: write all as entries of these"
        return
    groupings = random.every
    if not random.columns and not random.client:
        yield 'model.random has neither a group nor client = true: give group = "COLUMN", or client = true, or remove the section'
    yield from _one_intercept(config)
    if not groupings and random.slopes:
        yield 'model.random.slopes are slopes of groups: give model.random.group = "COLUMN", or take client_slopes'
    if not random.client and random.client_slopes:
        yield "model.random.client_slopes need model.random.client = true"
    if random.client and not config.model.intercept and not config.leveled and config.model.family != "cox":
        yield "model.random.client = true is a deviation from an intercept, and model.intercept = false; remove one of them"
    if groupings and data.builtin:
        yield f'model.random.group = "{groupings[0].column}" is for data.clients; built-in data have no groups'
    roles = {data.response: "response", data.offset: "offset", data.row_id: "row_id", data.trials: "trials"}
    yield from _several_groups(config)
    yield from _shared_groups(config)
    for name in {column for grouping in (*groupings, *random.every_shared) for column in (*grouping.by, grouping.column)}:
        if role := roles.get(name):
            yield f'model.random.group = "{name}" is also data.{role}; name another column'
        if name in data.columns and name not in (config.formula.variables if config.formula else ()):
            yield f'data.columns.{name}: model.random.group = "{name}" is no covariate; remove the table'
    for name, slopes in [
        *(("slopes", grouping.slopes) for grouping in groupings),
        ("client_slopes", tuple(random.client_slopes)),
    ]:
        if len(slopes) >= MOST_TERMS or len(set(slopes)) < len(slopes):
            wanted = f"at most {MOST_TERMS - 1} different columns"
            yield f"model.random.{name} = {[*slopes]}: wanted {wanted}"
        for slope in slopes:
            declared = data.columns.get(slope)
            if slope in data.ignore or slope in roles or slope in random.columns:
                yield f'model.random.{name}: "{slope}" is no covariate of this job; name one, or take it out of the other key'
            elif declared is not None and (declared.levels is not None or declared.kind == "categorical"):
                yield (
                    f'model.random.{name}: "{slope}" is categorical, and slopes are of numeric covariates; give it as 0 and 1, '
                    "or leave it out"
                )


def _several_groups(config: Config) -> Iterator[str]:
    """Faults of groups of several columns."""
    random = config.random
    for grouping in random.every:
        if not grouping.by or len(set(grouping.by)) < len(grouping.by):
            yield f"model.random.groups: by = {[*grouping.by]}: wanted a column, or several different ones"
        if not grouping.correlated and not grouping.slopes:
            yield f'model.random.groups: "{grouping.label}" has an intercept alone, correlated with nothing; remove correlated'
    for column in dict.fromkeys(name for name in random.columns if random.columns.count(name) > 1):
        yield f'model.random.groups: two entries are of "{column}"; write all slopes into one of them'
    if any(entry.levels is not None and not entry.shared for entry in random.groups or ()):
        yield "model.random.groups: levels are of groups that clients have in common; add shared = true, or remove them"
    if len(random.every) < 2:
        return
    if not config.model.intercept and not config.leveled and not random.joint:
        yield "model.random.groups: groups in groups deviate from an intercept, and model.intercept = false; remove one of them"
    if config.output.loo:
        yield (
            "output.loo with groups of several columns: a row without itself leaves more than one group's effect less known, "
            "which is not built; remove it"
        )
    if config.model.by_evidence and random.joint:
        yield 'model.family = "auto" with groups that cross, or lie deeper in each other: there is no evidence; name the family'
    if config.chains and random.joint:
        yield (
            'algorithm.sampler = "hmc" with groups that cross, or lie deeper in each other: their integral has no gradient '
            'here but by hundreds of values; take "importance"'
        )


def _shared_groups(config: Config) -> Iterator[str]:
    """Faults of groups that clients have in common."""
    shared, what = config.random.every_shared, "model.random.groups: shared = true"
    if not shared:
        return
    if shared[1:]:
        yield f"{what} is of one entry, as one scale is learnt with all unknowns; of {len(shared)} entries choose one"
    for grouping in shared:
        if grouping.slopes:
            yield f"{what} of {grouping.label!r} is of intercepts; remove slopes = {[*grouping.slopes]}"
        n = len(grouping.levels)
        if not 2 <= n <= MOST_SHARED or len({*grouping.levels}) < n or "" in grouping.levels:
            yield (
                f"{what} of {grouping.label!r} needs levels = [..], the labels of all clients, 2 to {MOST_SHARED}, each once and "
                f"none empty: there are {n}; name them, or join some"
            )
    for used, with_key, why in (
        (config.row_kind not in ("responses", "lifetimes"), f'model.family = "{config.model.family}"', "it is not built"),
        (
            config.model.family == "piecewise",
            'model.family = "piecewise"',
            'its hazards have a learnt scale, too; take "weibull"',
        ),
        (config.chains, 'algorithm.sampler = "hmc"', 'chains do not enter where effects are nearly equal; take "importance"'),
        (config.output.marginal, "output.marginal", "it is not built"),
        (bool(config.data.builtin), "data.builtin", "built-in data have no groups"),
    ):
        if used:
            yield f"{what} with {with_key}: {why}; remove one of the two"


def _one_intercept(config: Config) -> Iterator[str]:
    """Faults of effects of rows whose likelihood is not concave in the predictor: integrals are of one number, wherever its
    density has modes."""
    random, family = config.random, config.model.family
    if config.hazards or config.row.concave:
        return
    why = f'model.family = "{family}" takes one effect, an intercept of groups or of clients, for it may have several modes'
    for name, slopes in (("slopes", random.all_slopes), ("client_slopes", random.client_slopes)):
        if slopes:
            yield f"model.random.{name}: {why}; remove them"
    if len(random.every) > 1:
        yield f"model.random.groups: {why}; leave one entry"
    if random.every and random.client:
        other = ', or give each client a level of a column ("site"), which is a covariate'
        yield f"model.random has both group and client = true: {why}; remove one of them{other}"
