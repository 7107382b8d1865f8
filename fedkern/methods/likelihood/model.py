"""What all parties of a job know once the columns are agreed, and how it becomes machines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...algorithms.core.messages import SERVER, Protocol, ServerEffects
from ...algorithms.hmc import machine as hmc
from ...algorithms.importance import machine as importance
from ...algorithms.importance.settings import FINE_OF_CHAINS, Settings
from ...data.design import Design
from ...data.table import Table
from ...jobs.keys import settings_of
from ...jobs.model import JobModel
from ...kernels.families import Family
from ...models import levels as of_levels
from ...models import survival, survival_parametric
from ...models.encoding import INTERCEPT, Encoding
from ...models.mixed import Layout, Prior, Rows
from ...models.mixed.layout import LEVELS
from ...models.spatial.units import Units
from .keys import Config, OutputSection
from .rows import Held, held, times_of
from .times import Columns, Timed, timed

Array = NDArray[np.float64]

TOLD = 200  # draws with which clients know their own effects
LOOKED = 256  # draws at which the quadrature is looked at before chains begin
STEP = 0.5  # of chains, at first, in posterior standard deviations
# Of their lengths, about a quarter of a turn: after half a turn a draw is the last one's mirror image, and sds do not mix.
JITTER = 0.4


@dataclass(frozen=True)
class Model(JobModel[OutputSection]):
    """A job with its clients and its columns.

    Attributes
    ----------
    config, names, encoding : the job file, the clients' names in the order of their numbers, the agreed columns
    units : of the response, once they are known
    shares : of all rows, that have each level of the response, once they are known; () where it has none
    """

    config: Config
    encoding: Encoding
    units: Units = field(default_factory=Units)
    shares: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        self.encoding.check_references(self.references)

    @classmethod
    def of(cls, config: Config, names: tuple[str, ...], agreed: Encoding) -> Model:
        """With the columns that the parties have agreed on, which are not centred where there is no intercept."""
        return cls(config, names, agreed.uncentred if config.without_intercept else agreed)

    @property
    def family(self) -> str:
        """Of the response, as kernels call it."""
        return self.config.row.name if self.leveled and not self.nominal else self.config.model.family

    @property
    def leveled(self) -> bool:
        """Whether the response is one of several levels."""
        return self.config.leveled

    @property
    def nominal(self) -> bool:
        """Whether each level but the first has coefficients of its own."""
        return self.config.nominal

    @property
    def levels(self) -> tuple[str, ...]:
        """Of the response, in their order; () where it has none."""
        return self.config.levels

    @property
    def pooled_shares(self) -> Array:
        """(K,) of the levels; equal ones until they are known."""
        return np.array(self.shares or [1 / len(self.levels)] * len(self.levels))

    @property
    def hazards(self) -> bool:
        """Whether rows have survival times."""
        return self.config.hazards

    @property
    def lifetimes(self) -> bool:
        """Whether rows have times of a hazard that all clients share."""
        return self.config.lifetimes

    @property
    def cuts(self) -> tuple[float, ...]:
        """Between which a piecewise hazard is constant."""
        return tuple(self.config.model.cuts or ())

    @property
    def survival_at(self) -> tuple[float, ...]:
        """Times at which the probability to be without event is asked for."""
        return tuple(self.output.survival_at or ())

    @property
    def log_unit(self) -> float:
        """The logarithm of the model's unit of time, in the data's: how long rows were seen for one event, or what the job file
        gives. With it neither prior nor result depend on days or years."""
        given = self.config.model.intercept_centre
        return -(self.units.level if given is None else given)

    @property
    def row(self) -> Family:
        """What is known of a row's response: of a survival time whether it ends with the event."""
        return self.config.row

    @property
    def times(self) -> Columns | None:
        """The columns of survival times; None where rows have none."""
        return times_of(self.config)

    @property
    def measured(self) -> bool:
        """Whether the response has a unit of its own, in which the model is fitted."""
        return self.row.measured

    @property
    def asks_level(self) -> bool:
        """Whether the clients are asked for the response's level."""
        m = self.config.model
        return self.measured or (m.intercept and m.intercept_centre is None and not self.leveled)

    @property
    def offset(self) -> bool:
        """Whether a column is added to the predictor."""
        return self.config.data.offset is not None

    @property
    def group(self) -> str | None:
        """The column of groups."""
        return self.config.random.group

    @property
    def nu(self) -> float | None:
        """Degrees of freedom of errors, where the job gives them."""
        return self.config.model.nu

    @property
    def slopes(self) -> dict[str, int]:
        """Covariates whose coefficients differ between groups, and their columns of X."""
        return {name: self.encoding.names.index(name) for name in self.config.random.slopes}

    @cached_property
    def layout(self) -> Layout:
        """Where the numbers of xi stand."""
        random = self.config.random
        group = (INTERCEPT, *random.slopes) if random.group is not None else ()
        client = (INTERCEPT, *random.client_slopes) if random.client else ()
        if self.nominal:
            return Layout(of_levels.block_names(self.levels, self.encoding.names), self.family)
        own = None
        if self.lifetimes:
            own = survival_parametric.shapes_of(self.family, self.cuts)
        elif self.leveled:
            centre = (self.centre, self.config.model.intercept_sd)
            own = of_levels.prior_of_thresholds(self.levels, self.pooled_shares, self.link, *centre)
        given = () if self.nu is None else (math.log(self.nu),)
        return Layout(self.encoding.names, self.family, group, client, own, given)

    @property
    def link(self) -> str:
        """Of ordered levels' cumulative probabilities."""
        return self.config.model.link or "logit"

    @property
    def one_intercept(self) -> bool:
        """Whether groups or clients have an intercept and nothing else, or none has an effect: as every family takes it."""
        random = self.config.random
        return not (random.slopes or random.client_slopes or (random.client and random.group is not None))

    @property
    def terms(self) -> dict[str, tuple[str, ...]]:
        """Of each level's effect; () where it has none."""
        return {level: self.layout.terms(level) for level in LEVELS}

    @property
    def centre(self) -> float:
        """Of the intercept's prior, or the first threshold's, in the model's units."""
        given = self.config.model.intercept_centre
        if self.lifetimes:
            return 0.0  # in its own unit of time
        level = of_levels.level_of(self.pooled_shares, self.link) if self.leveled else self.units.level
        at = level if given is None else given
        return (at - self.units.level) / self.units.scale if self.measured else at

    @cached_property
    def prior(self) -> Prior | survival_parametric.Walk:
        """Of xi; a gaussian or student response has its own units in the model, in which its standard deviation is 1."""
        return self.prior_of(self.layout)

    def prior_of(self, layout: Layout) -> Prior | survival_parametric.Walk:
        """Of fewer effects."""
        m = self.config.model
        if self.nominal:
            sds = (m.prior_sd, m.intercept_sd)
            return of_levels.prior_of_blocks(layout, self.encoding.names, self.pooled_shares, m.intercept_centre, *sds)
        usual = Prior.usual(layout, prior_sd=m.prior_sd, intercept_sd=m.intercept_sd, intercept_centre=self.centre)
        return survival_parametric.Walk(usual) if self.family == "piecewise" else usual

    @property
    def takes_client(self) -> bool:
        """Whether the job could have an effect of clients beside what it has."""
        random = self.config.random
        return not (random.entered_together or self.nominal or (random.group is not None and not self.layout.concave))

    def reference(self, column: str, levels: Sequence[str]) -> str:
        """The level that a column's others are compared with."""
        return self.references.get(column) or levels[0]

    @property
    def reference_row(self) -> Array:
        """(p,) of X: numeric columns at 0 on their scale (their means, if standardised), texts at the reference level, whose own
        column is 1."""
        row = np.zeros(self.encoding.size)
        if self.encoding.intercept:
            row[0] = 1.0
        for column in self.encoding.columns:
            if column.levels is not None and self.encoding.formula is None:  # a formula's columns are 0 there
                row[self.encoding.names.index(f"{column.name}={self.reference(column.name, column.levels)}")] = 1.0
        return row

    @property
    def start_at(self) -> Array:
        """(P,) where the way to the mode begins: coefficients 0, the intercept at the level, logarithms of scales 0."""
        xi = self.layout.start
        if self.nominal:
            assert isinstance(self.prior, Prior)
            xi[:] = self.prior.mean
        elif self.encoding.intercept:
            level = self.asks_level and not self.lifetimes
            xi[0] = 0.0 if self.measured else self.units.level if level else self.centre
        return xi

    @property
    def settings(self) -> Settings:
        """The numbers that every machine of the job knows."""
        layout, config = self.layout, self.config
        chains: dict[str, int] = {"points": LOOKED, "rounds": 1, "told": 0}
        return settings_of(
            Settings,
            config.job,
            config.algorithm,
            starts=1,
            nodes=layout.nodes,
            most_nodes=layout.most_nodes,
            **(chains if self.chains else {"told": TOLD}),
        )

    @property
    def chains(self) -> bool:
        """Whether Markov chains are run from the mode."""
        return self.config.chains

    @cached_property
    def walks(self) -> hmc.Settings:
        """What all parties have in common where chains are run."""
        c, burn_in = self.config, self.config.burn_in
        return hmc.Settings(
            draws=c.job.rounds - burn_in,
            thin=1,
            warmup=burn_in,
            chains=self.output.chains,
            leapfrog=c.algorithm.leapfrog_steps,
            step=STEP,
            target=None,
            seed=self.seed,
            jitter=JITTER,
            whole=True,
        )

    @property
    def coordinates(self) -> importance.Coordinates:
        """What the numbers of xi are: standard deviations of effects reach down to 0, with what stands below them in T. Chains
        walk in xi itself."""
        layout = self.layout
        if self.chains:
            return importance.Coordinates(layout.names, layout.fold, (), layout.loose)
        learnt = layout.size - 1 if self.family == "piecewise" else None
        return importance.Coordinates(layout.names, layout.fold, layout.columns, layout.loose, learnt)

    @property
    def protocol(self) -> Protocol[importance.Server, importance.Client]:
        """With only the messages that this job can send."""
        return importance.protocol(self.settings)

    def start(self) -> tuple[importance.Server, ServerEffects]:
        """The server's machine with its first messages."""
        return importance.start(self.settings, self.prior, self.names, self.coordinates, self.start_at[np.newaxis])

    def client(
        self, index: int, rows: Rows | survival.Rows | survival_parametric.Lifetimes | of_levels.Rows
    ) -> importance.Client:
        """A client's machine, before it has seen anything."""
        return importance.client(self.names[index], index, self.settings, rows)

    def walk(self, mode: importance.Server) -> tuple[hmc.Server, ServerEffects]:
        """The server's machine of the chains, with its first messages: they begin around the mode."""
        found, s = importance.found(mode), self.walks
        metric = hmc.Metric.of(found.mode, found.precision)
        starts = metric.sent(s.starts(SERVER, self.layout.size))
        return hmc.start(s, importance.GradientOf(self.prior, self.layout.size), self.names, starts, metric)

    def walker(self, client: importance.Client) -> hmc.Client:
        """A client's machine of the chains, with the quadrature of its last answer."""
        s = self.walks
        coarser = math.sqrt(max(1.0, s.rounds * s.chains * s.leapfrog / FINE_OF_CHAINS))
        return hmc.client(client.name, client.index, s, importance.WithoutLocal(client.model, client.nodes, coarser))

    def likelihood(
        self, design: Design, table: Table, threads: int
    ) -> Rows | survival.Rows | survival_parametric.Lifetimes | of_levels.Rows:
        """Of a client's rows."""
        if self.times is None:
            return self.of_responses(held(design, table, self.group), threads)
        own = timed(self.times, design, table, "")
        return self.lived(held(design, table, self.group), own, threads) if self.lifetimes else self.timed(own, threads)

    def lived(self, held: Held, times: Timed, threads: int) -> survival_parametric.Lifetimes:
        """Of rows with times of a hazard that all share."""
        order = slice(None) if held.order is None else held.order
        entry = None if times.entry is None else times.entry[order]
        return survival_parametric.Lifetimes.of(
            self.layout,
            held.X,
            times.time[order],
            times.upper[order],
            held.starts,
            entry,
            held.offset if self.offset else None,
            np.array(self.cuts),
            threads,
            math.exp(self.log_unit),
            together=self.config.random.entered_together,
        )

    def of_responses(self, held: Held, threads: int) -> Rows | of_levels.Rows:
        """Of rows without times."""
        if self.nominal:
            return of_levels.Rows(self.layout, held.X, held.y, len(self.levels), threads)
        return self.rows(held, threads)

    def timed(self, held: Timed, threads: int) -> survival.Rows:
        """Of rows with survival times."""
        given = (held.entry, held.strata, held.weights, held.offset)
        return survival.Rows.of(self.layout, held.X, held.time, held.event, *given, n_threads=threads)

    def rows(self, held: Held, threads: int) -> Rows:
        """Of rows with a response: of one that has a unit in the model's."""
        y, offset = held.y, held.offset
        if self.measured:
            y, offset = (y - offset - self.units.level) / self.units.scale, np.zeros_like(offset)
        trials = held.trials if self.family == "binomial" else None
        return Rows(self.layout, held.X, y, held.starts, trials, offset, n_threads=threads)

    def coefficients(self, points: Array) -> tuple[Array, Array | None]:
        """(N, p) coefficients on the data's scale, and of standardised columns where these differ, at points (N, P)."""
        standard = points[:, : self.layout.p]
        if self.measured:
            standard = self.units.scale * standard
            standard[:, : int(self.encoding.intercept)] += self.units.level
        if self.lifetimes:
            standard = standard.copy()
            standard[:, 0] -= self.log_unit * (np.exp(points[:, -1]) if self.family == "weibull" else 1.0)
        if not self.encoding.standardised:
            return standard, None
        return standard @ self.affine.T, standard

    @property
    def affine(self) -> Array:
        """(p, p) from coefficients of standardised columns to those on the data's scale."""
        A = self.encoding.affine()
        return of_levels.blockwise(A, len(self.levels)) if self.nominal else A

    def thresholds(self, points: Array) -> dict[str, Array]:
        """Name -> (N,) thresholds on the data's scale, at points whose last numbers are theirs: c - x'b of standardised columns
        is that of the columns themselves where c is by b'(centre / scale) larger."""
        shift = points[:, : self.layout.p] @ of_levels.centres(self.encoding)
        found = of_levels.thresholds(points, len(self.levels)) + shift[:, np.newaxis]
        return dict(zip(of_levels.threshold_names(self.levels), found.T))

    def others(self, points: Array) -> dict[str, Array]:
        """Name -> (N,) standard deviations and correlations of effects and the dispersion, in the data's units."""
        found, layout = dict[str, Array](), self.layout
        for level in LEVELS:
            terms = layout.terms(level)
            if not terms:
                continue
            B = self.units.scale * self._terms_on_data_scale(terms)
            T = B @ layout.factor(points, level)
            covariance = T @ T.swapaxes(1, 2)
            sd = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
            found |= {f"{level}_sd[{name}]": sd[:, i] for i, name in enumerate(terms)}
            for i in range(len(terms)):
                for k in range(i):
                    found[f"{level}_correlation[{terms[k]},{terms[i]}]"] = covariance[:, i, k] / (sd[:, i] * sd[:, k])
        if self.layout.ordered:
            return found | self.thresholds(points)
        if self.lifetimes:
            return found | self._hazards(points)
        own = layout.published(points)
        if "sigma" in own:
            own["sigma"] = self.units.scale * own["sigma"]
        return found | own

    def _hazards(self, points: Array) -> dict[str, Array]:
        """Name -> (N,) the numbers of a hazard beside its coefficients; of "piecewise" logarithms of each later piece's hazard,
        of a row whose covariates are 0, as the intercept is of the first one."""
        own, cuts = points[:, self.layout.shapes_at].T, self.cuts
        if self.family == "weibull":
            return {"shape": np.exp(own[0])}
        first = self.coefficients(points)[0][:, 0]
        ends = [*(f"to {cut:g}" for cut in cuts[1:]), "on"]
        found = {f"log_hazard[{begin:g} {end}]": first + b for begin, end, b in zip(cuts, ends, own)}
        return found | ({"walk_sd": np.exp(own[len(cuts)])} if len(own) > len(cuts) else {})

    def _terms_on_data_scale(self, terms: Sequence[str]) -> Array:
        """(d, d) from an effect on standardised columns to one on the data's: an intercept is where the columns are 0."""
        B, columns = np.eye(len(terms)), {column.name: column for column in self.encoding.columns}
        for j, name in enumerate(terms):
            if name != INTERCEPT:
                center, scale = columns[name].constants
                B[j, j], B[0, j] = 1 / scale, -center / scale
        return B

    def units_of(self, terms: Sequence[str]) -> list[float]:
        """Of each term of an effect: what an effect on standardised columns is multiplied by, for one a unit of its column."""
        columns = {column.name: column for column in self.encoding.columns}
        return [self.units.scale / (1.0 if name == INTERCEPT else columns[name].constants[1]) for name in terms]

    def knowing(self, units: Units, shares: tuple[float, ...] = ()) -> Model:
        """The model once the response's units, or its levels' shares, are known."""
        return replace(self, units=units, shares=shares)
