"""Holds all that the parties of a job know once the columns are agreed, and makes machines of it.

`Model` is that of rows with a response. Rows of other kinds have models in `level_models` and `time_models`, which say only where
they differ; `models` chooses.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ...algorithms.core.box import LOG_SCALE, Box, reach
from ...algorithms.core.messages import SERVER, Protocol, ServerEffects
from ...algorithms.exchanges import level, odd_response
from ...algorithms.exchanges.sums import Replicated
from ...algorithms.hmc import machine as hmc
from ...algorithms.importance import machine as importance
from ...algorithms.importance.settings import (
    ASKED_OF_ALL,
    FIRST,
    OF_REGRESSIONS,
    OF_SUMMARIES,
    OF_SUMS,
    QUESTIONS,
    Settings,
    net_of,
)
from ...algorithms.importance.summaries import told
from ...arrays import Array
from ...data.design import Design
from ...data.table import Table
from ...disclosure import describe as described
from ...disclosure.rules import LEVELS as RULES
from ...disclosure.rules import Rules
from ...finding import Finding
from ...jobs.keys import settings_of
from ...jobs.model import WeighedModel
from ...jobs.stage import Stage, odd_response_stage
from ...kernels import rng
from ...kernels.families import FAMILIES, Family
from ...models.encoding import INTERCEPT, Encoding
from ...models.formula_effects import coefficients_of_effects
from ...models.levels import block_names
from ...models.mixed import Layout, Prior, Rows
from ...models.mixed.grouping import Grouping, nested
from ...models.mixed.joint import OfAll
from ...models.mixed.layout import (
    EFFECT_SCALE,
    EFFECT_SCALE_IN_SDS,
    INTERCEPT_SD,
    LESS_WIDE,
    PRIOR_SD,
    WIDER,
    Effect,
    Shape,
    sd_of_shared,
    title,
)
from ...models.mixed.learnt import BesidePrior, Learnt, OfShared
from ...models.mixed.rows import Density
from ...models.mixed.scaled import Scaled
from ...models.power import Power
from ...models.reference import MOVED, Coding, coding_of
from ...models.saturated import Saturated
from ...models.spatial.units import Units, sums
from ...models.survey import Pseudo
from ...models.weighing import Least, Weighed
from ...privacy.masks import FEWEST
from ...results import rates
from ...results.head import of_number
from ...results.other_way import OF_TWO
from . import named_priors, scales
from .clusters import clusters_of
from .keys import Config, OutputSection
from .named_priors import Named
from .own_keys import PriorSection
from .rows import Held, check_size, check_slopes, sort_by_group
from .scales import Scale

TOLD = 200  # draws with which clients know their own effects
LOOKED = 256  # draws at which the quadrature is looked at before chains begin
FARTHEST = 3e5  # standardised coefficients per effect that a box of secure sums has room for, whose draws are 32-bit steps
STEP = 0.5  # of chains, at first, in posterior standard deviations
# Of their lengths, about a quarter of a turn: after half a turn a draw is the last one's mirror image, and sds do not mix.
JITTER = 0.4


@dataclass(frozen=True)
class Model(WeighedModel[OutputSection]):
    """Holds a job with its clients and its columns.

    Attributes
    ----------
    config, names, encoding : the job file, the clients' names in the order of their numbers, the agreed columns
    units : of the response, once they are known
    coarse : whether the response is a score of few whole numbers, as the server alone knows
    summaries : the clients that take part by a summary, and how many numbers each may tell
    widened : which of `wider` the prior is, once that is known
    following : columns that follow from others at each client (None: it cannot say), or at all of masked sums; at the server
    weight_scale, effective : by which weights of a survey are multiplied; the effective number of all rows, which is their sum
    asked_at : at the server, the mode at which a survey's clients tell their scores
    newcomers : how many clients, which are the first, come to an earlier run; None: the job extends none
    """

    config: Config
    encoding: Encoding
    units: Units = field(default_factory=Units)
    coarse: bool = False
    summaries: Mapping[int, int] = field(default_factory=dict)
    widened: int | None = None
    following: tuple[tuple[str, ...] | None, ...] = ()
    weight_scale: float = 1.0
    effective: float = 0.0
    asked_at: Array | None = None
    newcomers: int | None = None

    def __post_init__(self) -> None:
        self.encoding.check_references(self.references)

    # The response --------------------

    @property
    def family(self) -> str:
        """The family of the response, as kernels call it."""
        return self.config.family

    @property
    def row(self) -> Family:
        """The family of a row's response; survival times have that of whether a row ends with the event."""
        return self.config.row

    @property
    def measured(self) -> bool:
        """Whether the response has a unit of its own, in which the model is fitted."""
        return self.row.measured

    @property
    def asks_level(self) -> bool:
        """Whether the clients are asked for the response's level."""
        m = self.config.model
        return self.measured or (m.intercept and m.intercept_centre is None)

    @property
    def level_family(self) -> str:
        """The family by which the response's level is computed."""
        return self.encoding.family

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels of the response; () where it has none."""
        return ()

    @property
    def cuts(self) -> tuple[float, ...]:
        """The times between which a piecewise hazard is constant; () where there is none."""
        return ()

    def baseline_numbers(self, points: Array) -> Array | None:
        """Returns (N, k) the numbers of a hazard that all clients share, at points (N, P); None of other rows."""
        return None

    @property
    def precise(self) -> bool:
        """Whether weights divide the variances of errors."""
        return self.config.data.weight_kind == "precision"

    @property
    def survey(self) -> bool:
        """Whether weights are of a survey."""
        return self.config.survey

    @property
    def clusters(self) -> tuple[str | None, str | None]:
        """The columns of a survey's clusters and strata."""
        return self.config.data.psu, self.config.data.survey_strata

    @property
    def offset(self) -> bool:
        """Whether a column is added to the predictor."""
        return self.config.data.offset is not None

    @property
    def nu(self) -> float | None:
        """Degrees of freedom of errors, where the job gives them."""
        return self.config.model.nu

    def with_units(self, units: Units) -> Model:
        """Returns the model once the response's units are known."""
        return replace(self, units=units)

    def with_coarse(self, coarse: bool) -> Model:
        """Returns the model once the server knows whether the response is a score of few whole numbers."""
        return replace(self, coarse=coarse)

    @property
    def by_evidence(self) -> bool:
        """Whether another family of counts is tried as well."""
        return self.config.model.by_evidence

    def with_family(self, family: str) -> Model:
        """Returns the model of the same rows with another family, as a job that names it has it."""
        section = self.config.model.model_copy(update={"family": family, "by_evidence": False})
        config = self.config.model_copy(update={"model": section})
        return replace(self, config=config, encoding=replace(self.encoding, family=family))

    @property
    def asks_dispersion(self) -> bool:
        """Whether clients are asked at the mode how counts vary: where nothing but the rate makes them vary."""
        plain = self.layout.size == self.layout.p and not (self.summaries or self.survey)
        return self.family == "poisson" and plain

    @property
    def told(self) -> bytes:
        """What the server has told every client alike before the rounds, beside columns: the response's units."""
        return repr([float(self.units.level), float(self.units.scale)]).encode()

    # A client's rows --------------------

    def read(self, design: Design, table: Table, client: str) -> Any:  # each kind has rows of its own, which only it reads
        """Returns a client's rows as `likelihood` takes them."""
        rows = sort_by_group(design, table, self.config.random)
        rows = replace(rows, key=self.key_of_integral(client))
        if self.survey:
            return replace(rows, clusters=clusters_of(table, *self.clusters))
        return replace(rows, table=table) if self.output.marginal and self.encoding.formula is not None else rows

    def key_of_integral(self, client: str) -> int:
        """Returns the key of the numbers by which a client integrates effects together."""
        return rng.key(self.seed, "posterior", 3 * (1 + self.names.index(client)) if client in self.names else 0)

    def check_rows(self, rows: Any, client: str, source: str) -> None:
        """Refuses rows of which an effect of groups cannot be learnt.

        Raises
        ------
        OwnFault
            A column of `slopes` varies within no group.
        """
        random = self.config.random
        check_slopes(
            rows,
            [{name: self.encoding.names.index(name) for name in grouping.slopes} for grouping in random.every],
            client,
            source,
        )
        check_size(rows, random, client, source)

    def check_columns(self) -> list[str]:
        """Returns notes on what the job gives with the agreed columns; refuses those with which it cannot, with a JobError."""
        named_priors.check(self)
        return []

    def describe_rows(self, rows: Any) -> list[str]:
        """Returns notes on a client's rows, for its own eyes."""
        return []

    def exposure(self, rows: Any) -> Array | None:
        """Returns (n,) how long each row was seen; None where rows have no times."""
        return None

    def likelihood(self, rows: Any, n_threads: int) -> importance.Model:
        """Returns the log-likelihood of a client's rows, for kernels: a response with a unit is in the model's."""
        held: Held = rows
        X, y, offset, root = held.X, held.y, None, None
        if self.measured:
            y = (y - held.offset - self.units.level) / self.units.scale
        elif self.offset:
            offset = held.offset
        trials = held.trials if self.row.trials else None
        if self.precise and self.measured:
            assert held.weights is not None
            root = np.sqrt(held.weights)
            X, y = X * root[:, np.newaxis], y * root
        elif self.precise:
            trials = held.weights
        given = (self.layout.of_rows, X, y, held.starts, trials, offset)
        if self.sigma_terms:
            return Scaled(*given, n_threads=n_threads, scales=tuple(scale.column for scale in self.sigma_terms))
        kind = OfAll if self.layout.joint else Rows
        return kind(*given, n_threads=n_threads, root=root, codes=held.codes, key=held.key)

    def weighted(self, likelihood: Any, weights: Array | None) -> Any:
        """Returns a client's log-likelihood as its machine takes it; `weights`: of the rows in its order."""
        if not self.survey:
            return likelihood
        assert weights is not None
        return Pseudo.of(likelihood, self.weight_scale * weights)

    # Unknowns and their prior --------------------

    @property
    def given_to_numbers(self) -> Mapping[str, PriorSection]:
        """The priors that the job gives to single numbers, by the names in its file."""
        return self.config.model.priors

    @property
    def looked_at(self) -> bool:
        """Whether holders look at what the job asks of their rows."""
        return self.config.level != "none"

    @cached_property
    def named(self) -> Named:
        """The priors that the job gives to single numbers."""
        return named_priors.of_model(self)

    @cached_property
    def layout(self) -> Layout:
        """The places of the numbers of xi."""
        return self.named.laid_out(self.plain_layout)

    @property
    def plain_layout(self) -> Layout:
        """The same before the job gives priors to some."""
        random = self.config.random
        client = (INTERCEPT, *random.client_slopes) if random.client else ()
        given = () if self.nu is None else (math.log(self.nu),)
        effects = [
            Effect(grouping.terms, grouping.label, None if grouping.correlated else self._shifts(grouping.terms))
            for grouping in random.every
        ]
        inner, outer = effects[-1] if effects else Effect(), tuple(effects[:-1])
        within = nested(random.every) and not random.joint
        names = block_names(self.levels, self.encoding.names) if self.blocks[0] else self.encoding.names
        layout = Layout(names, self.family, inner.terms, client, self._shapes, given, inner, outer=outer, within=within)
        if random.shared is None:
            return layout
        sd = sd_of_shared(random.shared.level, EFFECT_SCALE_IN_SDS if self.measured else EFFECT_SCALE)
        return replace(layout, own=(*layout.shapes, sd), shared=random.shared.effects)

    def _shifts(self, terms: Sequence[str]) -> tuple[float, ...]:
        """How far each slope moves an intercept of the model's columns, where it moves none of the data's."""
        return tuple((-self._terms_on_data_scale(terms)[-1, :-1]).tolist())

    @property
    def _shapes(self) -> tuple[Shape, ...] | None:
        """The numbers beside coefficients and effects, where they are not the family's usual ones."""
        if self.config.model.sigma is None:
            return None
        shapes = scales.shapes_of(self.family, self.sigma_terms)
        return shapes if self.nu is None else shapes[:-1]

    @cached_property
    def sigma_terms(self) -> list[Scale]:
        """The coefficients of the logarithm of sigma beside its intercept; none where all rows have one sigma."""
        text = self.config.model.sigma
        return [] if text is None else scales.scales_of(text, self.encoding, self.bases)

    def unit_of_scale(self, name: str) -> float | None:
        """Returns the unit of a coefficient of log sigma in the data's column; None of its intercept, which hangs on others."""
        return next((1 / scale.unit for scale in self.sigma_terms if scale.name == name), None)

    @property
    def groupings(self) -> tuple[Grouping, ...]:
        """The kinds of groups that have effects, in the order of `Layout.effects`: the last one of the job first."""
        groupings = self.config.random.every
        return (*groupings[-1:], *groupings[:-1])

    @property
    def group_columns(self) -> tuple[str, ...]:
        """The columns of their labels, as the job has them."""
        return self.config.random.columns

    @property
    def one_intercept(self) -> bool:
        """Whether groups or clients have an intercept and nothing else, or none has an effect: as every family takes it."""
        random = self.config.random
        several = len(random.every) + random.client > 1
        return not (random.all_slopes or random.client_slopes or several)

    @property
    def terms(self) -> dict[str, tuple[str, ...]]:
        """The terms of each level's effect; () where it has none."""
        return {level: self.layout.terms(level) for level in self.layout.levels} | self.terms_of_shared

    @property
    def shared(self) -> Grouping | None:
        """The groups that clients have in common."""
        return self.config.random.shared

    @property
    def terms_of_shared(self) -> dict[str, tuple[str, ...]]:
        """The terms of the effects of groups that clients have in common."""
        return {} if self.shared is None else {self.shared.level: self.shared.terms}

    @property
    def centre(self) -> float:
        """The centre of the intercept's prior, in the model's units."""
        given = self.config.model.intercept_centre
        centre = self.units.level if given is None else given
        return (centre - self.units.level) / self.units.scale if self.measured else centre

    @cached_property
    def prior(self) -> Prior | Learnt:
        """The prior of xi; a gaussian or student response has units of its own in the model, with a standard deviation of 1."""
        return self.prior_of(self.layout)

    def prior_of(self, layout: Layout) -> Prior | Learnt:
        """Returns the prior of a layout of these coefficients, which may have fewer effects."""
        of_coefficients, of_intercept = self.prior_sds
        usual = Prior.usual(layout, prior_sd=of_coefficients, intercept_sd=of_intercept, intercept_centre=self.centre)
        usual = usual if self.effects is None else usual.of_effects(self.effects, len(self.blocks))
        given = self.named.over(usual, self)
        return OfShared(given) if layout.shared else given

    @cached_property
    def effects(self) -> Array | None:
        """(p, q) from the effects that have the prior to coefficients; None where these have it."""
        most = FARTHEST if self.secure else math.inf
        return coefficients_of_effects(self.encoding, of_constant=self.encoding.intercept or not self.layout.shapes, most=most)

    @property
    def prior_sds(self) -> tuple[float, float]:
        """The standard deviations of the priors of coefficients and of the intercept."""
        m, wider = self.config.model, self.wider[self.widened or 0]
        times = [wider if free else 1 for free in m.default_priors]
        return times[0] * (m.prior_sd or PRIOR_SD), times[1] * (m.intercept_sd or INTERCEPT_SD)

    @property
    def zero_of_intercept(self) -> float | None:
        """What an intercept is where the model's is 0; None where that depends on other numbers."""
        return self.units.level if self.measured else 0.0

    @property
    def given_priors(self) -> list[str]:
        """The keys of the priors that the job gives."""
        return [f"model.{key}" for key in self.config.model.given_priors]

    @property
    def priors_in_summary(self) -> dict[str, object]:
        """The entry of summary.json on default priors that rows have widened; none where they have not."""
        named = zip(("prior_sd", "intercept_sd"), self.prior_sds, self.config.model.default_priors)
        return {"priors": {name: sd for name, sd, free in named if free}} if self.widened else {}

    @property
    def wider(self) -> tuple[int, ...]:
        """How many times as wide default priors may be: of clients by a summary each answers once, about one posterior."""
        if self.summaries or not any(self.config.model.default_priors):
            return WIDER[:1]
        return WIDER if self.measured else LESS_WIDE

    @cached_property
    def priors(self) -> importance.Priors:
        """The prior that all know, and the wider ones of which rows may decide."""
        read = np.zeros((len(self.coding.matrix), self.size))
        read[:, : self.layout.p] = self.coding.matrix @ self.affine if self.encoding.standardised else self.coding.matrix
        return importance.Priors(
            tuple(replace(self, widened=k).prior for k in range(len(self.wider))),
            read,
            bent=not self.measured,
            ties=not (self.given_priors or self.summaries),
            follows=tuple(None if names is None else self.numbers_of(names) for names in self.following),
            intercepts=self.numbers_of(["intercept"] * self.encoding.intercept),
            named=tuple(self.coding.kept.index(k) for k in self.named.rows),
        )

    def prior_of_a_client(self, layout: Layout) -> Density:
        """Returns the prior with which a client looks for the mode of its rows alone."""
        prior = self.prior_of(layout)
        return prior.held if isinstance(prior, Learnt) else prior

    def compare_levels(self, answers: Sequence[tuple[float, float]]) -> Sequence[Finding]:
        """Returns findings on clients whose sums of the response cannot be in the others' unit."""
        if not self.has_multiples or self.secure:
            return ()
        rows = [float(RULES["standard"].rows) if self.offset else n for _, n in answers]
        return rates.of_means(self._column, self.telling, answers, rows)

    def compare_alone(self, client: level.Client, numbers: tuple[float, float, float]) -> odd_response.Compared:
        """Returns a client's response beside all others'; `numbers`: of all rows, as `exchanges.odd_response` has them."""
        if self.measured:
            return level.compare_alone(client, *numbers)
        level_sums, n = sums(self.level_family, client.rows, weights=client.weights), float(len(client.rows.y))
        return rates.of_client(self._column, level_sums, *numbers[:2], n, several=len(self.names) > 2)

    @property
    def found_alone(self) -> tuple[str, str]:
        """The ids of a note and a doubt for the reader of a result whose clients have compared themselves."""
        return "column-odd-somewhere", "column-in-another-unit-somewhere"

    @property
    def has_multiples(self) -> bool:
        """Whether a client's response is a multiple of the others' where it is in another unit: positive ones, and counts."""
        return FAMILIES[self.level_family].link == "log"

    @property
    def _column(self) -> str:
        return repr(self.encoding.response or "y")

    @property
    def keeps_points(self) -> bool:
        """Whether clients may come to the result, or go, later."""
        return self.config.extendable

    @property
    def asked_level(self) -> level.Settings:
        """The facts of the response that all parties know when its level is asked for."""
        return level.Settings(self.level_family, self.encoding.response or "y", self.encoding.intercept)

    @property
    def takes_client(self) -> bool:
        """Whether the job could have an effect of clients beside the effects that it has."""
        group = bool(self.config.random.every)
        return not (self.config.without_intercept or (group and not self.layout.concave))

    @property
    def free_slopes(self) -> tuple[str, ...]:
        """The columns whose slopes the job could let differ between clients, beside an effect of each client."""
        if self.config.without_intercept or not self.layout.concave:
            return ()
        numbers, formula = (column.name for column in self.encoding.columns if column.levels is None), self.encoding.formula
        return tuple(name for name in numbers if formula is None or name in formula.variables)

    @property
    def start_at(self) -> Array:
        """(P,) where the way to the mode begins: coefficients 0, the intercept at the level, logarithms of scales 0."""
        xi = self.layout.start
        if self.encoding.intercept:
            xi[0] = self._start_of_intercept
        return xi

    @property
    def _start_of_intercept(self) -> float:
        return 0.0 if self.measured else self.units.level if self.asks_level else self.centre

    # Columns --------------------

    @property
    def absorbs_constants(self) -> bool:
        """Whether the rows cannot tell a constant column from the rest of the model, such as its intercept."""
        return self.encoding.intercept

    @property
    def blocks(self) -> tuple[str, ...]:
        """The beginnings of coefficients' names: one for each block of coefficients of all columns."""
        return ("",)

    def numbers_of(self, columns: Iterable[str]) -> tuple[int, ...]:
        """Returns the numbers of the published coefficients of these columns."""
        heads = tuple(block + column for column in columns for block in self.blocks)
        levels = tuple(f"{head}=" for head in heads)
        return tuple(j for j, name in enumerate(self.published) if name in heads or name.startswith(levels))

    @property
    def compared(self) -> tuple[tuple[str, ...], list[int], bool]:
        """The coefficients in which clients are compared: their names, their places in xi, whether the first is an intercept."""
        return self.layout.coefficients, list(range(self.layout.p)), self.encoding.intercept

    def reference(self, column: str, levels: Sequence[str]) -> str:
        """Returns the level that a column's others are compared with."""
        return self.references.get(column) or levels[0]

    @property
    def bases(self) -> dict[str, str]:
        """The level that the others are compared with, of each column of labels."""
        formula = self.encoding.formula
        if formula is None:
            labelled = ((column.name, column.levels) for column in self.encoding.columns if column.levels is not None)
            return {name: self.reference(name, levels) for name, levels in labelled}
        labels = ((name, formula.known[name].levels) for name in formula.variables)
        return {name: min(formula.compared(name), default=levels[0]) for name, levels in labels if levels is not None}

    @cached_property
    def coding(self) -> Coding:
        """The map to the coefficients that are published, at reference levels."""
        return coding_of(self.encoding, self.references, absorbs=self.absorbs_constants).blockwise(self.blocks)

    @property
    def published(self) -> tuple[str, ...]:
        """The names of the coefficients that are published."""
        return tuple(self.plain_layout.coefficients[j] for j in self.coding.kept)

    # Machines --------------------

    @property
    def size(self) -> int:
        """P, the number of unknowns that all share."""
        return self.layout.size

    @property
    def n_coefficients(self) -> int:
        """The number of columns that have coefficients, by which `fedkern check` counts rows."""
        return self.encoding.size

    @property
    def n_of_a_site(self) -> int:
        """The number of parameters that a client tells of its rows alone."""
        return len(self.coding.kept)

    @property
    def settings(self) -> Settings:
        """The numbers that every machine of the job knows."""
        layout, config = self.layout, self.config
        chains: dict[str, int] = {"points": LOOKED, "rounds": 1, "told": 0}
        return settings_of(
            Settings,
            config.job,
            config.algorithm,
            advice=OF_SUMS if self.secure else OF_SUMMARIES if self.all_by_summary else OF_REGRESSIONS,
            singly=self.config.singly,
            box=self.box,
            summaries=(0,) if self.summaries and self.secure else tuple(sorted(self.summaries)),
            questions=self.questions,
            clients=len(self.names),
            rounds_messages=config.rounds_messages,
            starts=1,
            nodes=layout.nodes,
            most_nodes=layout.most_nodes,
            without=self.output.without,
            extendable=self.config.extendable or self.config.extends,
            net=net_of(layout.size) if layout.most_nodes == 1 else FIRST,
            **(chains if self.chains else {"told": TOLD}),
        )

    @property
    def questions(self) -> int:
        """How many questions are asked of those that take part by a summary: more than two where nobody else is asked."""
        if self.secure:
            return ASKED_OF_ALL
        if len(self.summaries) < len(self.names) or not self.config.attacked:
            return QUESTIONS
        return min(max(min(self.summaries.values()) // told(self.size, 1), QUESTIONS), ASKED_OF_ALL)

    @property
    def may_sign(self) -> bool:
        """Whether all clients take part by a summary where sums that they sign would be of all their rows together."""
        return self.all_by_summary and len(self.names) >= FEWEST and not self.secure and self.config.requirement.additive

    @property
    def all_by_summary(self) -> bool:
        """Whether every client is too small for values, so that none is in the checks of the model."""
        return len(self.summaries) == len(self.names)

    @property
    def has_mode(self) -> bool:
        """Whether the mode is looked for."""
        return True

    @property
    def chains(self) -> bool:
        """Whether Markov chains are run from the mode."""
        return self.config.chains

    @property
    def tells_draws(self) -> bool:
        """Whether clients are told draws of the chains, to know their own effects by."""
        return True

    @cached_property
    def walks(self) -> hmc.Settings:
        """The numbers that all parties have in common where chains are run."""
        c, burn_in = self.config, self.config.burn_in
        return hmc.Settings(
            draws=c.job.rounds - burn_in,
            warmup=burn_in,
            chains=self.output.chains,
            leapfrog=c.algorithm.leapfrog_steps,
            step=STEP,
            seed=self.seed,
            jitter=JITTER,
            whole=True,
            box=self.box,
        )

    @property
    def box(self) -> Box | None:
        """Where clients answer, if the server gets sums alone: it follows from the job file and what all have agreed on."""
        if not self.secure:
            return None
        known = replace(self, widened=None)  # what all have agreed on
        layout, prior = known.layout, known.prior
        prior = prior.base if isinstance(prior, Learnt) else prior
        centre, far = layout.start, np.full(layout.size, LOG_SCALE)
        centre[: layout.p], far[: layout.p] = prior.mean, reach(prior.sd, self._standardised)
        if self.encoding.intercept and not self.blocks[1:]:
            centre[0] = self._start_of_intercept
        far[layout.off_diagonal] = far[layout.shared_at] = reach(np.array(prior.scale))
        far[layout.shapes_at] = [shape.reach for shape in layout.shapes]
        if prior.effects is None:
            return Box.about(centre, far)
        basis = np.eye(layout.size)
        basis[: layout.p, : layout.p] = prior.sd[:, np.newaxis] * prior.effects
        return Box.about(centre, far, basis)

    @property
    def _standardised(self) -> NDArray[np.bool_]:
        """(p,) whether each coefficient is of a column whose unit is its standard deviation, of a level, or the intercept."""
        scaled_ones = [self.encoding.standardised] * int(self.encoding.intercept)
        for column in self.encoding.columns:
            scaled = (column.center, column.scale) != (0.0, 1.0) and column.name not in self.given_constants
            scaled_ones += [scaled] if column.levels is None else [True] * len(column.levels)
        return np.tile(scaled_ones, len(self.blocks))

    @property
    def coordinates(self) -> importance.Coordinates:
        """The meaning of the numbers of xi: standard deviations of effects reach down to 0, with the numbers below them in T.
        Chains walk in xi itself."""
        layout = self.layout
        if self.chains:
            return importance.Coordinates(layout.names, layout.fold, (), layout.loose, None, layout.exponents, self.box)
        loose, learnt = layout.loose, self._learnt_scale
        return importance.Coordinates(layout.names, layout.fold, layout.columns, loose, learnt, layout.exponents, self.box)

    @property
    def _learnt_scale(self) -> int | None:
        """The place in xi of a prior's scale that is learnt, near 0 of which the posterior has no mode."""
        return self.layout.size - 1 if self.layout.shared else None

    @property
    def protocol(self) -> Protocol[importance.Server, importance.Client]:
        """The protocol with only the messages that this job can send."""
        return importance.protocol(self.settings)

    @property
    def may_be_reversed(self) -> bool:
        """Whether it can be seen that a client's outcome is coded the other way round."""
        # People whom a row stands for came to a client together: their number is no evidence on that client.
        counted = self.config.data.weight_kind == "frequency"
        return (self.of_two or self.family == "beta") and self.encoding.intercept and not (self.offset or self.secure or counted)

    @property
    def of_two(self) -> bool:
        """Whether the response is an outcome of 0 and 1, or successes of trials."""
        return self.config.row_kind == "responses" and self.row.chances

    @property
    def slopes_alone(self) -> bool:
        """Whether slopes alone say it: effects of groups or clients hide how often the outcome is."""
        return not self.of_two or bool(self.layout.group or self.layout.client)

    @property
    def of_slopes(self) -> tuple[list[int], int]:
        """The places in xi of coefficients by whose signs clients are compared; how many of the first are each client's own."""
        return self.compared[1], 1

    @property
    def other_way(self) -> tuple[str, Mapping[str, str]]:
        """The finding on a client whose outcome may be coded the other way round, and values that it has beside the column."""
        return OF_TWO if self.of_two else "slopes-reversed-of-shares", {}

    @property
    def mode_alone(self) -> Settings:
        """The settings of the machine where it ends at the mode, from which draws go on."""
        return replace(self.settings, rounds=0)

    def start(self, settings: Settings | None = None) -> tuple[importance.Server, ServerEffects]:
        """Returns the server's machine with its first messages."""
        point, keeps = self.start_at[np.newaxis], self.may_be_reversed
        return importance.start(
            settings or self.settings, self.priors, self.telling, self.coordinates, point, keeps_first=keeps, widened=self.widened
        )

    def client(self, index: int, likelihood: importance.Model, rules: Rules) -> importance.Client:
        """Returns a client's machine, before it has seen anything; `rules`: of the job and of the client's holder."""
        usual, least = RULES["standard"], None
        # Where a number is lowered to that of a file, points at which fewer rows weigh are not asked for more.
        rows, each = (
            usual_number if given >= usual_number else 0
            for given, usual_number in ((rules.rows, usual.rows), (rules.linear, usual.linear))
        )
        leverage = rules.leverage if rules.leverage <= usual.leverage else 1.0
        if not self.row.linear and (rows or each or leverage < 1):  # rows of linear models weigh the same everywhere
            X = cast(Weighed, likelihood).X
            least = Least.of(X[:, : X.shape[1] - len(self.layout.shared)], rows, each, leverage)  # shared groups do not count
        if (weight := self.client_weights.get(self.names[index], 1.0)) < 1:
            likelihood = Power(likelihood, weight)
        return importance.client(self.names[index], index, self.settings, self._asked(likelihood), self.priors, least)

    @property
    def client_weights(self) -> dict[str, float]:
        """Client -> the power below 1 of its likelihood."""
        given = self.config.algorithm.client_weights or {}
        return {name: weight for name, weight in given.items() if weight < 1}

    def _asked(self, likelihood: importance.Model) -> importance.Model:
        """Returns a client's log-likelihood as the server asks for it."""
        asked = likelihood if likelihood.size == self.size else BesidePrior(likelihood, self.size)
        return Saturated(asked) if self.secure else asked  # type: ignore[arg-type]  # all rows of this method have parts

    def walk(self, mode: importance.Server | None) -> tuple[hmc.Server, ServerEffects]:
        """Returns the server's machine of the chains, with its first messages: they begin around the mode."""
        assert mode is not None
        found, s = importance.read_result(mode), self.walks
        metric = hmc.Metric.of(found.mode, found.precision)
        starts = metric.sent(s.starts(SERVER, self.layout.size))
        starts = starts if s.box is None else s.box.nearest(starts)
        return hmc.start(s, importance.GradientOf(mode.prior, self.layout.size), self.telling, starts, metric)

    def walker(self, index: int, likelihood: importance.Model, at_mode: importance.Client | None) -> hmc.Client:
        """Returns a client's machine of the chains, with the quadrature of its last answer."""
        assert at_mode is not None
        s = self.walks
        units = self.settings.units_of_chains(s.rounds * s.chains * s.leapfrog)
        return hmc.client(self.names[index], index, s, importance.WithoutLocal(self._asked(likelihood), at_mode.nodes, units))

    # The result, on the data's scale --------------------

    def coefficients(self, points: Array) -> tuple[Array, Array | None]:
        """Returns (N, p) coefficients on the data's scale, and of standardised columns where these differ, at points (N, P)."""
        standard = self._of_columns(points)
        if not self.encoding.standardised:
            return standard, None
        return standard @ self.affine.T, standard

    def _of_columns(self, points: Array) -> Array:
        """(N, p) coefficients of the encoding's columns, in the data's unit of the response."""
        standard = points[:, : self.layout.p]
        if self.measured:
            standard = self.units.scale * standard
            standard[:, : int(self.encoding.intercept)] += self.units.level
        return standard

    def covariance_of_coefficients(self, xi: Array, covariance: Array) -> Array:
        """Returns (p, p) the covariance of the coefficients of the encoding's columns, from that of xi (P,)."""
        p = self.layout.p
        return covariance[:p, :p]

    @property
    def affine(self) -> Array:
        """(p, p) from coefficients of standardised columns to those on the data's scale."""
        return np.asarray(np.kron(np.eye(len(self.blocks)), self.encoding.affine()), np.float64)

    def others(self, points: Array) -> dict[str, Array]:
        """Returns name -> (N,) standard deviations and correlations of effects, and the family's numbers, in the data's units."""
        numbers, layout = dict[str, Array](), self.layout
        for name_of_level in layout.levels:
            terms = layout.terms(name_of_level)
            if not terms:
                continue
            B = self.units.scale * self._terms_on_data_scale(terms)
            T = B @ layout.factor(points, name_of_level)
            covariance = T @ T.swapaxes(1, 2)
            sd = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
            order = sorted(range(len(terms)), key=lambda i: terms[i] != INTERCEPT)
            numbers |= {title(name_of_level, "sd", terms[i]): sd[:, i] for i in order}
            for i in range(len(terms) if layout.effect(name_of_level).shifts is None else 0):
                for k in range(i):
                    correlation = covariance[:, i, k] / (sd[:, i] * sd[:, k])
                    numbers[title(name_of_level, "correlation", f"{terms[k]},{terms[i]}")] = correlation
        return numbers | self._family_numbers(points)

    def at_references(self, points: Array) -> tuple[Array, Array | None, dict[str, Array]]:
        """Returns (N, q) the published coefficients, as `coefficients` does, and what `others` returns, at points (N, P)."""
        (theta, standard), coding = self.coefficients(points), self.coding
        moved = theta @ coding.bases
        others = {
            name: values + next((sign * moved for begins, sign in MOVED.items() if name.startswith(begins)), 0.0)
            for name, values in self.others(points).items()
        }
        return theta @ coding.matrix.T, None if standard is None else standard @ coding.matrix.T, others

    def others_at_client(self, draws: Array, inner: Array) -> dict[str, Array]:
        """Returns the same for a client's own rows: `inner` are the `draws` with the client's effect in them."""
        return self.others(draws)

    def _family_numbers(self, points: Array) -> dict[str, Array]:
        """Name -> (N,) the family's numbers beside its coefficients, in the data's units."""
        numbers = self.layout.published(points)
        if self.sigma_terms:
            return scales.on_data_scale(numbers, self.sigma_terms, math.log(self.units.scale))
        numbers |= zip(self.layout.shared, points[:, self.layout.shared_at].T)
        with_unit = {"sigma", *self.layout.shared, *(shape.label for shape in self.layout.shapes if shape.of_prior)}
        return {name: self.units.scale * values if name in with_unit else values for name, values in numbers.items()}

    def _terms_on_data_scale(self, terms: Sequence[str]) -> Array:
        """(d, d) from an effect on standardised columns to one on the data's: an intercept is where the columns are 0."""
        B, columns = np.eye(len(terms)), {column.name: column for column in self.encoding.columns}
        for j, name in enumerate(terms):
            if name != INTERCEPT:
                center, scale = columns[name].constants
                B[j, j], B[terms.index(INTERCEPT), j] = 1 / scale, -center / scale * (not columns[name].flat)
        return B

    def moves_intercept(self, terms: Sequence[str]) -> bool:
        """Tells whether an intercept's effect at columns of 0 is not that at their means."""
        moved = self._terms_on_data_scale(terms) - np.eye(len(terms))
        return bool(moved[terms.index(INTERCEPT)].any())

    def units_of(self, terms: Sequence[str]) -> list[float]:
        """Returns the factor of each term of an effect, from standardised columns to one a unit of its column."""
        columns = {column.name: column for column in self.encoding.columns}
        return [self.units.scale / (1.0 if name == INTERCEPT else columns[name].constants[1]) for name in terms]

    def summarise_draws(self, points: Array) -> dict[str, Any]:
        """Returns entries of summary.json that are computed from draws (N, P) of equal weight."""
        return {}

    @property
    def kind_in_summary(self) -> dict[str, object]:
        """Entries of summary.json by which a reader of the encoding knows the kind of rows."""
        return {}

    def data_in_summary(self, log_likelihood_at_start: float) -> dict[str, float]:
        """Returns entries of summary.json by which the data of two jobs can be told apart."""
        return {}

    def reason(self, why: str) -> str:
        """Returns why draws do not reach the posterior, given what the draws say of it, and what helps."""
        return why

    def doubts(self, log_likelihood_at_start: float) -> list[str]:
        """Returns why no result of these rows can stand."""
        return []

    # The stages of this kind --------------------

    @property
    def response_stages(self) -> list[Stage]:
        """The exchange before the rounds in which the response's units become known, and that in which clients compare theirs."""
        if not self.asks_level:
            return []
        stage = Stage(level.PROTOCOL, level.DIMS, times=level.TIMES if self.measured else {})
        return [stage.with_sums(level.SUMS, secure=self.secure), *([odd_response_stage()] if self.compares_alone else [])]

    @property
    def compares_alone(self) -> bool:
        """Whether each client compares its response with those of all others together, as the server has sums alone."""
        return self.secure and self.asks_level and (self.measured or self.has_multiples)

    @property
    def sums_stage(self) -> Stage:
        """The question after the draws whether the model makes such rows: here sums of responses that clients draw from it."""
        return Stage.asking(Replicated, {"draws": TOLD}, secure=self.secure)

    @property
    def weight_stages(self) -> list[Stage]:
        """The question for the rows' mean weight; these have none."""
        return []

    @property
    def curve_stages(self) -> list[Stage]:
        """The question for curves, which needs the clients."""
        return []

    # The words of `fedkern check` --------------------

    def describe_response(self) -> str:
        """Returns the response, as the line of the columns names it."""
        trials = self.config.data.trials
        return f"{self.encoding.response}{f', successes of {trials} trials' if trials else ''}"

    def describe_kind(self) -> Iterator[str]:
        """Yields the lines on the disclosure of rows of this kind by clients' answers."""
        d, wanted = self.encoding.size, self.config.requirement.told_up_to(self.encoding.size)
        consequence = "the sums tell X'WX of all clients' rows" if self.secure else "what a client sends tells X'WX of its rows"
        needs = f"; each client needs more than {wanted} rows" if wanted else ""
        yield f"curvature {consequence}, and their labels{needs}"
        yield from described.rotation(self.config.requirement, d)

    @property
    def named_in_words(self) -> str:
        """The priors of single numbers, and how a line goes on with them."""
        return "".join(f", {of_number(name, section.model_dump())}" for name, section in self.given_to_numbers.items())

    def describe_priors(self) -> str:
        """Returns the priors of coefficients and intercept, on one line."""
        m = self.config.model
        if not m.intercept:
            return f"{self._prior_of_coefficients}, no intercept{self._prior_of_sigma}"
        centre = "the response's pooled level" if m.intercept_centre is None else f"{m.intercept_centre:g}"
        return f"{self._prior_of_coefficients}, intercept ~ N({centre}, {self.prior_sds[1]:g}^2){self._prior_of_sigma}"

    @property
    def _prior_of_sigma(self) -> str:
        """The prior of coefficients of log sigma, where each row has a sigma of its own."""
        if not self.sigma_terms:
            return ""
        names = ", ".join(scale.name for scale in self.sigma_terms)
        return f"; sigma at means ~ HalfNormal(1){self.unit_in_words}, its logarithm by {names} ~ N(0, {PRIOR_SD:g}^2)"

    @property
    def _prior_of_coefficients(self) -> str:
        sd = f"{self.prior_sds[0]:g}"
        most = self.wider[-2:][0]
        wider = f", up to {most:,} times as wide where that would decide what rows decide" if most > 1 else ""
        return f"coefficients ~ N(0, {sd}^2) in standard deviations of their columns{self.unit_in_words}{wider}"

    @property
    def unit_in_words(self) -> str:
        """The response's standard deviation, as a factor of those of priors, where it has a unit."""
        return " x the response's" if self.measured else ""
