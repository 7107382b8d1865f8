"""Defines a sparse job's model, known to all parties once the columns are agreed, and makes a site of a client's rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...algorithms.exchanges.scales import ColumnMeans, centred, count_values, means_reply, moments, student
from ...algorithms.gibbs.covariates import Covariates, rows_for_law
from ...algorithms.gibbs.settings import Layout, Prior, Settings
from ...algorithms.gibbs.sites import (
    OF_REGRESSION,
    Factor,
    Imputed,
    ImputedField,
    Logistic,
    LogisticImputed,
    MarkovRandomField,
    Regression,
    Site,
    StructuralEquations,
    Student,
)
from ...arrays import Array
from ...data.design import Design
from ...errors import JobError
from ...finding import Finding, Own, Refusal
from ...jobs.devices import Load
from ...jobs.keys import settings_of
from ...jobs.model import JobModel, Values
from ...kernels.families import FAMILIES
from ...kernels.homes import HOST, Home
from ...models import sparse
from ...models.encoding import Column, Encoding
from ...models.incomplete import Completed, completed
from ...printing import listed
from . import moving
from .keys import DEGREES, Config, OutputSection

FEWEST = 64  # chains of a network at a time from which a card pays
WORTH = 3_000  # columns x regressions at a time from which it pays (docs/how-to/gpu.md)
SHARED = 190  # columns up to which a regression's system is in a card's shared memory
WORKSPACE = float(1 << 30)  # bytes that larger ones take at most
# s_tau and c0 of the further runs of `output.sensitivity` (docs/spec/sparse.md, section 12).
MOST_COMPARED = 200  # coefficients by which clients are compared: the server has their products in memory
OTHER_PRIORS = tuple((s_tau, c0) for c0 in (0.01, 0.0025) for s_tau in (1.0, 0.3, 0.1))


def _systems(p: int, regressions: int) -> float:
    """Returns the bytes of the systems of a number of regressions at a time."""
    return 0.0 if p <= SHARED else min(4.0 * p * p * regressions, WORKSPACE)


@dataclass(frozen=True)
class Scales:
    """Holds the divisors of columns, the same at all parties."""

    each: Array  # (w,) one for each scaled column
    psi: Array | None = None  # (w, w) second moments of the scaled columns; None unless clients have sent them
    rows: tuple[int, ...] = ()  # each client's number of rows, at the server, as far as scaling has told it


@dataclass(frozen=True)
class Columns:
    """Holds a client's columns."""

    values: Array  # (n, w) as the scaling has them, NaN where one is missing
    completed: Completed | None = None  # their moments by EM, where values may be missing

    @property
    def means(self) -> Array:
        """The (w,) centres of the columns; NaN where the client has no value."""
        if self.completed is None:
            return np.asarray(self.values.mean(axis=0))
        return self.completed.mean


value = Values[Config]()


@dataclass(frozen=True)
class SparseModel(JobModel[OutputSection]):
    """Holds a job with its clients and its columns.

    Attributes
    ----------
    names : of the clients, in the order of their numbers
    """

    config: Config  # the job file
    encoding: Encoding  # the agreed columns

    secret = value(lambda config: config.secret, "Whether only the client has its random numbers.")
    kind = value(lambda config: config.model.kind, "The kind of the model.")
    family = value(lambda config: config.model.family, "The likelihood family of a regression's response.")
    negligible = value(
        lambda config: config.model.negligible, "Size of the largest coefficients of the spike; None: `c0` decides."
    )
    stable = value(lambda config: config.model.stable, "Whether only stable graphs of structural equations are allowed.")
    locates = value(lambda config: config.model.centre == "sample", "Whether clients draw the locations of their columns.")
    splined = value(lambda config: bool(config.model.splines), "Whether some columns are splines.")
    scale = value(lambda config: config.model.scale, "The source of the columns' divisors.")
    pooled = value(lambda config: config.algorithm.statistics == "pooled", "Whether clients send sufficient statistics, once.")
    tempering = value(lambda config: config.algorithm.tempering, "The number of chains of a ladder of temperatures.")
    swaps = value(lambda config: config.algorithm.swap, "Whether structural equations make moves that permute them.")
    until = value(lambda config: config.algorithm.until, "The limits that chains must reach where they end the job.")
    rounds = value(lambda config: config.job.rounds, "The number of rounds of the sampler, burn-in among them.")
    is_student = value(lambda config: config.model.errors == "student", "Whether errors are Student's t.")
    degrees = value(lambda config: config.model.degrees or DEGREES, "The degrees of freedom of Student errors.")
    imputes = value(lambda config: config.model.missing == "impute", "Whether values may be missing.")

    def __post_init__(self) -> None:
        if self.is_graph:
            for j, column in enumerate(self.encoding.columns):
                if column.levels is not None:  # perhaps the header is a row: its names are not said
                    which = f"column {column.name!r}" if column.name in self.declared else f"covariate no. {j + 1}"
                    raise JobError(f'{which} is categorical: model.kind = "{self.kind}" needs numbers; put it into data.ignore')
            if len(self.encoding.columns) < 2:
                raise JobError("a graph needs at least two columns; there is one")
        elif not self.coefficients.size:
            raise JobError("no covariate is left beside the response; add columns")
        elif self.output.loo and self.coefficients.size > self.output.largest:
            raise JobError(
                f"output.loo needs kept draws, and of {self.coefficients.size} coefficients none are kept "
                f"(output.largest = {self.output.largest}); raise it, or remove output.loo"
            )

    def public(self, name: str) -> str:
        """Names a coefficient as every party may read it: all know the columns' names by now, but levels are cells of rows."""
        for column in self.encoding.columns:
            for j, level in enumerate(column.levels or ()):
                if name == f"{column.name}={level}":
                    return f"level no. {j + 1} of column {column.name!r}"
        return f"column {name!r}"

    @property
    def moves(self) -> moving.Moves:
        """The moves of the sampler."""
        return moving.of(self.config.algorithm, self.size)

    @property
    def advice(self) -> str | None:
        """Advice on moves that would pay; None where there is none."""
        return moving.recommend(self.config.model, self.config.algorithm, self.size)

    @property
    def is_graph(self) -> bool:
        """Whether every column is explained by the others."""
        return self.kind != "regression"

    @property
    def has_least_squares(self) -> bool:
        """Whether a client can fit its rows alone by least squares."""
        return not self.is_graph and FAMILIES[self.family].linear

    @cached_property
    def coefficients(self) -> sparse.Coefficients:
        """The coefficients of a regression."""
        tables, model = self.declared, self.config.model
        return sparse.Coefficients.of(
            self.encoding,
            references={name: table.reference for name, table in tables.items() if table.reference is not None},
            always=model.always,
            splines=model.splines,
            scales={name: table.scale for name, table in tables.items() if table.scale is not None},
        )

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of a graph; empty for a regression."""
        return tuple(column.name for column in self.encoding.columns) if self.is_graph else ()

    @property
    def scales_response(self) -> bool:
        """Whether the response is scaled too."""
        return not self.is_graph and FAMILIES[self.family].linear

    @property
    def scaled(self) -> tuple[str, ...]:
        """Names of the columns that have a scale: covariates and a Gaussian response, or nodes."""
        if self.is_graph:
            return self.nodes
        response = (str(self.encoding.response),) if self.scales_response else ()
        return self.coefficients.names + response

    @cached_property
    def undeclared(self) -> NDArray[np.bool_]:
        """Whether, (w,), a scaled column is made of one whose center and scale the job file does not give."""
        tables = self.declared.items()
        declared = {name for name, table in tables if Column.declared(name, table.encoded).center is not None}
        return np.array([self.owner(name) not in declared for name in self.scaled])

    def owner(self, name: str) -> str:
        """Returns the file's column from which a scaled one is made; of a level it returns the level's name."""
        return name.rpartition("~")[0] if "~" in name and name not in self._columns else name

    @cached_property
    def measured(self) -> NDArray[np.intp]:
        """The (u,) places, among the scaled columns, of those whose means clients tell: numeric columns of files, undeclared."""
        if self.scale != "pooled":
            return np.zeros(0, np.intp)
        as_in_files = [name in self._columns for name in self.scaled]
        return np.flatnonzero(self.undeclared & np.array(as_in_files))

    @cached_property
    def _columns(self) -> frozenset[str]:
        """The names of the files' numeric columns, the response among them."""
        numeric = {column.name for column in self.encoding.columns if column.levels is None}
        if self.scales_response:
            numeric.add(str(self.encoding.response))
        return frozenset(numeric)

    @property
    def second_moments(self) -> bool:
        """Whether clients also send second moments, to impute or for splines."""
        return self.imputes or self.splined

    @property
    def exchanges_scales(self) -> bool:
        """Whether clients send moments of their columns."""
        return self.imputes or self.scale == "pooled"

    @property
    def effects(self) -> tuple[str, ...]:
        """The names of all coefficients, in the order of the kept draws."""
        return sparse.edges(self.nodes) if self.is_graph else self.coefficients.names

    @cached_property
    def settings(self) -> Settings:
        """The numbers that the machines need."""
        model, a = self.config.model, self.config.algorithm
        kind = model.kind
        indicators = sparse.graph(len(self.nodes), one_group=kind == "sem") if self.is_graph else self.coefficients.indicators
        slab = math.inf if model.slab is None else model.slab
        spike = (model.negligible / 2) ** 2 if model.negligible else 0.0
        prior = Prior(
            c0=model.c0 or 0.01,
            spike_variance=spike,
            eta_form=model.eta,
            shape_eta=model.a_eta,
            rate_eta=model.b_eta,
            rho_a=model.a_rho,
            rho_b=model.b_rho,
            shape_sigma=model.a_sigma,
            rate_sigma=model.b_sigma,
            scale_lambda=model.s_lambda,
            scale_tau=model.s_tau,
            slab=slab,
            shared_rho=model.rho == "shared",
        )
        moves = vars(self.moves)
        more = {"layout": Layout(indicators), "prior": prior, "order": a.sweep, "masked": self.secure} | moves
        return settings_of(Settings, self.config.job, a, **more)

    @property
    def may_be_reversed(self) -> bool:
        """Whether it can be seen that a client's outcome of 0 and 1 is coded the other way round: the server has coefficients."""
        binary = not self.is_graph and FAMILIES[self.family].binary and self.config.model.intercept
        return binary and self.settings.aggregate == "locals" and not self.secure and 1 < len(self.effects) <= MOST_COMPARED

    @property
    def size(self) -> moving.Size:
        """The size by which moves are chosen; structural equations have no moves, and count as a random field."""
        regressions, each = (len(self.nodes), len(self.nodes) - 1) if self.is_graph else (1, self.coefficients.size)
        return moving.Size(len(self.names), regressions, each, self.config.algorithm.chains)

    def columns(self, design: Design, client: str) -> Columns:
        """Returns a client's columns without rows that lack the response. Raises JobError: no row, or a single one beside an
        intercept; without an intercept, a column without a value."""
        X = np.asarray(design.X, dtype=np.float64)
        if self.is_graph:
            values = X
        else:
            known = ~np.isnan(design.y)
            values = np.column_stack([self.coefficients.columns(X[known]), design.y[known]])
        least = 2 if self.intercept else 1
        if len(values) < least:
            raise Refusal(Finding.of("few-usable-rows", client=client, least=least), Own(rows=len(values)))
        if not self.imputes:
            return Columns(values)
        empty = np.flatnonzero(np.isnan(values).all(axis=0))
        if empty.size and not self.intercept:
            which = self.public(self.scaled[empty[0]])
            raise JobError(
                f"client {client!r}: {which} has no value here, and model.intercept = false would need to know its mean; take "
                "model.intercept = true, or put the column into data.ignore"
            )
        # EM completes the response too, since it may tell which covariates are missing.
        whole = completed(values)
        if self.is_graph or self.scales_response:
            return Columns(values, whole)
        return Columns(values, whole.without_last())

    def constants(self, values: Array) -> list[str]:
        """Returns notes for the client on columns that are constant, or the same twice, in its rows."""
        names, notes = self.scaled, []
        X = values[:, : len(names)]
        about = centred(X)
        with np.errstate(invalid="ignore", divide="ignore"):
            norm = np.sqrt(np.nansum(about**2, axis=0))
            constant = ~(norm > 0)
            notes += [f"{name} is constant here: this client tells nothing of it" for name in np.array(names)[constant]]
            unit = np.where(np.isnan(about), 0.0, about) / np.where(constant, 1.0, norm)
        alike = np.abs(unit.T @ unit) > 1 - 1e-12
        pairs = [(i, j) for i, j in zip(*np.nonzero(np.triu(alike, 1))) if not constant[i] and not constant[j]]
        return notes + [f"{names[i]} and {names[j]} are the same here up to a factor: their PIPs are shared" for i, j in pairs]

    def counted(self, columns: Columns) -> Array:
        """Returns (w,) the number of different values of each of a client's scaled columns, 3 for more than two."""
        return count_values(columns.values[:, : len(self.scaled)])

    def located(self, columns: Columns) -> ColumnMeans:
        """Returns the centres of a client's columns; for a Student response its location, as its scale stands for its
        variance."""
        measured, w = self.measured, len(self.scaled)
        degrees = self.degrees if self.is_student else None
        known = moments(columns.values[:, :w], columns.completed, degrees)
        means = columns.means[:w].copy()
        if self.is_student:
            means[-1] = student(columns.values[:, w - 1], self.degrees)[0]
        return means_reply(means[measured], *(facts[measured] for facts in (*known, self.counted(columns))))

    def told_by(self, values: Array) -> NDArray[np.bool_]:
        """Returns (..., P) whether rows tell something of a coefficient. `values`: (..., w) number of different values of each
        scaled column."""
        varies = values > 1
        if not self.is_graph:
            return varies[..., : self.coefficients.size]
        both = varies[..., :, None] & varies[..., None, :]
        return np.asarray(both[..., ~np.eye(len(self.nodes), dtype=bool)])

    def two_valued(self, values: Array) -> list[str]:
        """Returns notes for the server on a response, or nodes, that the model takes for continuous and that have two values."""
        two = [name for name, numbers in zip(self.scaled, values.T) if numbers.max(initial=0) == 2]
        if self.is_graph:
            which = listed(two, 6)
            text = (
                f"{which}: no more than two different values at any client, and every equation takes its variable for continuous"
            )
            return [
                f"{text}: effects on it are differences of probabilities at best; put it into data.ignore, or read it so"
            ] * bool(two)
        response = str(self.encoding.response)
        if not self.scales_response or response not in two[-1:]:
            return []
        return [
            f'{response} has no more than two different values at any client, and family = "gaussian" takes it for continuous: '
            f'a yes/no response is family = "bernoulli", with data.positive where it is a text'
        ]

    def refuse_constants(self, values: Array) -> None:
        """Raises JobError where a client's column of structural equations is constant: the posterior would be improper.

        Nothing bounds the effects of such a column there, and |det B|^n grows faster with them than any tail of the prior falls.
        """
        if self.kind != "sem":
            return
        for client, numbers in zip(self.names, values):
            constant = [self.public(name) for name, n in zip(self.nodes, numbers) if n < 2]
            if constant:
                which = listed(constant, 6)
                raise JobError(
                    f"client {client!r}: {which} has one value there, and structural equations with it have no posterior "
                    "(it cannot be normalised); put the column into data.ignore, or remove the client from data.clients"
                )

    def gaps(self, columns: Columns) -> list[str]:
        """Returns notes for the client on missing values in its rows."""
        if columns.completed is None or not columns.completed.incomplete:
            return []
        part, cells = columns.completed, int(np.isnan(columns.values).sum())
        notes = [f"{part.incomplete} of {part.rows} rows lack a value; {cells} cells are drawn by the model"]
        if not part.settled:
            notes.append("their means and covariances had not settled after all iterations of EM: too much is missing here")
        return notes

    def known_scales(self) -> Array:
        """Returns the (w,) scales of the job file, or ones."""
        if self.scale == "none":
            return np.ones(len(self.scaled))
        tables = self.declared
        names = self.scaled if self.is_graph else tuple(n.partition("=")[0] for n in self.coefficients.names)
        scales = {name: column.scale for name, column in tables.items()}
        for name in names:
            if scales.get(name) is None and not (name in tables and tables[name].levels):
                raise JobError(f'data.columns.{name}.scale is missing: model.scale = "given" needs the scale of every column')
        response = [str(self.encoding.response)] if self.scales_response else []
        return np.array([scales.get(name) or 1.0 for name in (*names, *response)])

    @property
    def load(self) -> Load:
        """The load of a client on a graphics card."""
        model, chains = self.config.model, self.settings.chains
        p = len(self.nodes) if self.is_graph else self.coefficients.size
        state = 8.0 * chains * p * 6  # two of the server's, two of its own, and what becomes of these
        beside = {"shrinkage.local_sums": "of what goes into a message"} if self.settings.aggregate == "sums" else {}
        if self.settings.moves:
            beside["shrinkage.move"] = "the server's"
        if model.kind == "sem":
            few = [f"a warp a chain: {chains} chains a client are few"] if chains < FEWEST else []
            return Load(["sem.sweeps"], beside, state * p, 8.0 * p, few)
        factor = 8.0 * (2 * p * p + p)
        if model.kind == "mrf":
            least = math.ceil(WORTH / max(p * p, 1))
            few = [f"pays from {least:,} chains of {p:,} columns: there are {chains}"] if chains < least else []
            return Load(["shrinkage.local_sweeps_batched"], beside, factor + state * p + _systems(p, chains * p), 0.0, few)
        least = math.ceil(WORTH / max(p, 1))
        few = [f"pays from {least:,} chains of {p:,} columns: there are {chains}"] if chains < least else []
        return Load(["shrinkage.local_sweeps"], beside, factor + state + _systems(p, chains), 0.0, few)

    def site(self, columns: Columns, agreed: Scales, n_threads: int, home: Home = HOST) -> Site:
        """Makes a client's part of the model from its columns."""
        model, a = self.config.model, self.config.algorithm
        values, scales, psi = columns.values, agreed.each, agreed.psi
        if self.is_graph:
            if self.imputes and np.isnan(values).any():
                return self._imputed_field(columns, agreed, n_threads)
            Y = values / scales
            if model.kind == "mrf":
                return MarkovRandomField(Factor.of(Y, intercept=model.intercept), n_threads, home)
            about = centred(Y) if model.intercept else Y
            nodes = np.ascontiguousarray(about.T)
            return StructuralEquations(
                nodes, a.update, a.swap, stable=model.stable, locate=model.centre == "sample", n_threads=n_threads, home=home
            )
        w = self.coefficients.size
        X, y = values[:, :w], values[:, w]
        if self.imputes and psi is not None:
            return self._imputed(columns, agreed, n_threads)
        about = centred(X) if model.intercept else X
        X = about / scales[:w]  # far from zero the quotients would lose digits
        if model.splines and psi is not None:
            X = self.coefficients.orthogonal(X, psi)
        if FAMILIES[model.family].binary:
            # Once more, for far from zero the first mean is rounded, and the chains make the difference grow.
            about = centred(X) if model.intercept else X
            return Logistic(about, y, intercept=model.intercept, n_threads=n_threads)
        if self.is_student:
            X, y = (centred(X), centred(y[:, None])[:, 0]) if model.intercept else (X, y)
            return Student(np.ascontiguousarray(X), y / scales[w], self.degrees, model.intercept, n_threads)
        return Regression(Factor.of(X, y / scales[w], intercept=model.intercept), n_threads, home)

    def _centred(self, columns: Columns, agreed: Scales) -> tuple[Array, Array | None]:
        """Returns a client's scaled columns, and their means by EM.

        With an intercept the columns are centred at these means, and None is returned in their place.
        """
        means = columns.means
        fitted = columns.values[:, : len(means)]
        if self.intercept:
            return (fitted - means) / agreed.each, None
        return fitted / agreed.each, means / agreed.each

    def _covariates(self, X: Array, psi: Array) -> Covariates:
        """Returns covariates with the weight of their common law."""
        X = np.ascontiguousarray(X)
        weight = 1.0 if len(self.names) == 1 else rows_for_law(X)
        return Covariates(X, np.ascontiguousarray(psi), weight)

    def _imputed(self, columns: Columns, agreed: Scales, n_threads: int) -> Imputed | LogisticImputed:
        """Makes the site of a regression whose covariates may be missing."""
        w, intercept = self.coefficients.size, self.intercept
        values, mean = self._centred(columns, agreed)
        assert agreed.psi is not None
        mean = None if mean is None else mean[:w]
        covariates = self._covariates(values[:, :w], agreed.psi[:w, :w])
        if not self.scales_response:
            return LogisticImputed(covariates, np.ascontiguousarray(columns.values[:, w]), mean, intercept, n_threads)
        return Imputed(covariates, np.ascontiguousarray(values[:, w]), mean, intercept, n_threads)

    def _imputed_field(self, columns: Columns, agreed: Scales, n_threads: int) -> ImputedField:
        """Makes the site of a random field: each node's regression on the others, with the law of the others."""
        intercept, each = self.intercept, list[Imputed]()
        values, mean = self._centred(columns, agreed)
        assert agreed.psi is not None
        for j in range(len(self.nodes)):
            others = np.arange(len(self.nodes)) != j
            covariates, centre = self._covariates(values[:, others], agreed.psi[np.ix_(others, others)]), None
            if mean is not None:
                centre = mean[others]
            y, chain = np.ascontiguousarray(values[:, j]), j * OF_REGRESSION
            each.append(Imputed(covariates, y, centre, intercept, n_threads, chain))
        return ImputedField(tuple(each))

    def slopes(self, theta: Array, agreed: Scales) -> Array:
        """Converts a regression's standardised coefficients (..., w) to slopes of the columns as a client has them."""
        if not self.splined or agreed.psi is None:
            return np.asarray(theta * self.factors(agreed.each))
        w, units = self.coefficients.size, agreed.each
        of_response = units[w] if self.scales_response else 1.0
        return np.asarray(self.coefficients.of_scaled(theta, agreed.psi) * of_response / units[:w])

    def factors(self, scales: Array) -> Array:
        """Returns (P,) factors from the standardised scale of a coefficient to the data's."""
        if self.is_graph:
            ratio = scales[:, None] / scales[None, :]
            return np.asarray(ratio[~np.eye(len(scales), dtype=bool)])
        w = self.coefficients.size
        units = scales[:w].copy()
        units[["~" in name for name in self.coefficients.names]] = 1.0  # a spline column has no unit
        of_response = scales[w] if self.scales_response else 1.0
        return np.asarray(of_response / units)
