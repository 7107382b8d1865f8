"""Turns a vertical job's configuration into the numbers and functions of its parties."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from ...algorithms import soul
from ...algorithms.core import until
from ...algorithms.split.machine import Settings
from ...arrays import Array, Indices
from ...data.dialect import Dialect
from ...jobs.keys import settings_of
from ...jobs.model import JobModel, Values
from ...models.likelihood import Likelihood
from ...models.spatial import units
from ...models.spatial.site import Rows as Responses
from ...models.split.predictors import Linear, Multilevel, Network, Predictor
from ...models.split.site import Auxiliary, Shared, Site
from ...plain import Record
from . import undivided
from .keys import Config, OutputSection, PriorSection, PrivacySection
from .rows import Columns
from .undivided import Undivided

# docs/spec/vertical.md, section 3: at best q is the best product over clients.
PRODUCT = (
    "the posterior is a product over clients and the server: where columns of different clients are correlated standard "
    "deviations are too small (at a correlation of 0.7 about 0.6 to 0.7 of the right ones), and of labels and counts also where "
    "an effect makes a column go with the intercept or with another client's. Where an open job's server sees this along "
    "clients' parts of the predictor, the first line says so, and published standard deviations are made wider by it; the rest "
    "shows in no message"
)

FULL = 64  # coefficients of a client, at most, whose covariance is full with covariance = "auto"

FAR = 5.0  # root mean square of a Gaussian response over its coefficients' prior sd, beyond which these are worth a warning
BOUND_EVERY = 10  # rounds: a term of the ELBO costs half as much as a whole round


@dataclass(frozen=True)
class Asked:
    """Holds the parts of a run's job that a prediction of new rows needs."""

    config: Config  # for functions that read rows as the run did
    # id, response: columns: the row's name, and the one to be explained
    id: str
    response: str
    # offset, group: columns: the one that the server adds, and the one whose levels have slopes of their own
    offset: str | None
    group: str | None
    # server_texts, dialect: the server's columns that are read as text; how text files are written
    server_texts: frozenset[str]
    dialect: Dialect
    # rule, likelihood: by which rows are predicted; of the response
    rule: str
    likelihood: Likelihood
    langevin: bool  # whether theta was drawn given a mode of z
    network: bool  # whether it is the plain split network
    private: bool  # whether no part of a client is kept from which a prediction could be made
    columns: dict[str, Record]  # what the job declares of columns

    @classmethod
    def of(cls, config: Config) -> Self:
        """Takes them from a job."""
        data, m = config.data, config.model
        scale = None if m.scale == "unknown" else float(m.scale)
        texts = {data.id} if data.positive is None else {data.id, data.response}
        return cls(
            config,
            data.id,
            data.response,
            data.offset,
            data.group,
            frozenset(texts),
            data.dialect.dialect,
            config.output.rule,
            Likelihood(m.family, scale),
            config.algorithm.inference == "soul",
            m.kind == "network",
            config.private,
            {name: section.model_dump() for name, section in data.columns.items()},
        )


value = Values[Config]()


@dataclass(frozen=True)
class VerticalModel(JobModel[OutputSection]):
    """Holds a vertical job whose rows are known.

    Attributes
    ----------
    names : of the clients
    """

    config: Config
    n_rows: int  # N, training rows
    n_test: int = 0  # rows that are kept for testing
    worked_out: float | None = None  # rho, once the server has told it, where the job file does not give it
    factor: float = 1.0  # by which clients' parts are multiplied where they are published; the server tells it beside that rho

    kind = value(lambda config: config.model.kind, "The kind of a client's part of the predictor.")
    family = value(lambda config: config.model.family, "The likelihood family of the response.")
    augmentation = value(lambda config: config.model.augmentation, "The model of the auxiliary variables.")
    features = value(lambda config: config.model.features, "The number of outputs of a client's network.")
    free_weights = value(lambda config: config.model.weight_sd == math.inf, "Whether networks' weights have no prior.")
    open = value(lambda config: not config.private, "Whether the job is not private.")
    inference = value(lambda config: config.algorithm.inference, "The way in which the posterior is found.")
    family_of_z = value(lambda config: config.algorithm.auxiliary, "The family of the auxiliary variables.")
    start_sd = value(lambda config: config.algorithm.start_sd, "The sd of the coefficients' posterior at the start.")
    learning_rate = value(lambda config: config.algorithm.learning_rate, "The learning rate of all parties.")
    until_settled = value(lambda config: config.algorithm.until is not None, "Whether rounds end when all has settled.")
    rounds = value(lambda config: config.job.rounds, "The largest number of rounds.")
    id = value(lambda config: config.data.id, "The column that names the row at every party.")
    response = value(lambda config: config.data.response, "The column to be explained.")
    told_by_client = value(
        lambda config: config.data.server is None and not config.data.builtin, "Whether a client tells the server the response."
    )
    drops = value(
        lambda config: config.model.missing == "drop", "Whether a row that lacks a cell at one party is left out at all."
    )
    works_out = value(lambda config: config.model.rho is None, "Whether the server works out rho.")
    shared = value(lambda config: config.shared, "Whether clients use the response.")

    @property
    def power(self) -> bool:
        """Whether the power likelihood is the model."""
        return self.augmentation == "power"

    @property
    def network(self) -> bool:
        """Whether it is the plain split network, without auxiliary variables."""
        return self.kind == "network"

    @property
    def networks(self) -> bool:
        """Whether clients' parts are networks, with a prior or without."""
        return self.kind in ("network", "bayes-network")

    def prior(self, client: int) -> PriorSection:
        """Returns the prior of a client's coefficients."""
        m = self.config.model
        return m.priors.get(self.names[client], m.prior)

    @property
    def ties(self) -> bool:
        """Whether a client may have coefficients that go with the intercept, and says so with its bit (`levels`)."""
        m = self.config.model
        return self.watched and self.intercept and self.kind == "linear" and any(p.mean for p in (m.prior, *m.priors.values()))

    @property
    def privacy(self) -> PrivacySection:
        """The terms of a private job."""
        terms = self.config.privacy
        assert terms is not None
        return terms

    @property
    def rho(self) -> float:
        """The standard deviation of the auxiliary variables."""
        rho = self.config.model.rho if self.worked_out is None else self.worked_out
        if rho is None:
            raise RuntimeError("rho is not known before the server has worked it out")
        return rho

    @property
    def added(self) -> float:
        """The variance that the auxiliary variables add to a row's predictor, to first order (sections 3 and 11)."""
        if self.likelihood.record.link == "identity":
            return self.lost
        J = len(self.names)
        times = J - 1 if self.power else J
        return self.rho**2 * times

    @property
    def lost(self) -> float:
        """The variance that they add to a Gaussian row beside the predictor's own."""
        J = len(self.names)
        times = (J - 1) ** 2 / J if self.power else J
        return self.rho**2 * times

    @property
    def corrected(self) -> bool:
        """Whether the published numbers are nearly those of the undivided model: not with noise, and not for a mode of z."""
        return self.watched

    @property
    def rescaled(self) -> bool:
        """Whether logistic slopes are published in another size. (With an offset, which has no factor, this is no scale.)"""
        return self.works_out and self.likelihood.record.link == "logit" and self.config.data.offset is None

    def knowing(self, y: Array) -> VerticalModel:
        """Returns the model with the rho that follows from the training rows' responses, and its factor."""
        known = replace(self, worked_out=undivided.work_out_rho(self.link(y), len(self.names)))
        return replace(known, factor=1 / undivided.enlarged(known.added, float(np.mean(y)))) if self.rescaled else known

    def undivided(self, y: Array, eta: Array | None = None) -> Undivided:
        """Returns the conversion from this posterior to that of the undivided model. `y`: responses of the training rows; `eta`:
        their predictors, where they are known."""
        if not self.corrected:
            return Undivided()
        if eta is not None and self.family == "negative-binomial":
            return Undivided(low=undivided.lowered_at(self.likelihood, y, eta, self.added))
        if self.likelihood.record.link == "log":
            return Undivided(low=undivided.lowered(self.added, 1 / self.link(y)))
        if self.rescaled:
            return Undivided(spread=self.added, factor=self.factor)
        extra = self.added if self.works_out and self.likelihood.dispersed else 0.0
        return Undivided(extra=extra)

    def about_rho(self) -> str:
        """Says how this rho changes the means."""
        v, link, begin = self.added, self.likelihood.record.link, f"rho = {self.rho:.3g}"
        if link == "log":
            low = f"an intercept too low by up to {v / 2:.2g} (less where counts are large, or r is below 1)"
            taken = ", which is added again as far as it is there" if self.corrected else ""
            random = ". They are off by about 0.2 standard deviations at random" if self.works_out else ""
            return f"{begin}: auxiliary variables bring {low}{taken}; slopes are those of counts that vary more by it{random}"
        if link == "logit":
            most = f"up to {undivided.enlarged(v, 0.5) - 1:.1%} (less where events are rare)"
            share = most if self.factor == 1 else f"about {1 / self.factor - 1:.1%}"
            large = f"slopes {share} larger than in the undivided model"
            shift = f"and the intercept up to {v / 2:.2g} farther from 0"
            taken = "; both are taken back" if self.factor != 1 else ""
            return f"{begin}: auxiliary variables make {large}, {shift}{taken}"
        where = " where model.scale is given; where it is not, sigma has this variance in it" if self.works_out else ""
        return f"{begin}: means are those of a regression whose error variance is larger by {v:.3g}{where}"

    @property
    def bound_every(self) -> int:
        """Rounds from one term of the ELBO to the next: no fewer lines of metrics have it than the job asks for."""
        return min(BOUND_EVERY, self.output.metrics_every)

    @property
    def unpredicted(self) -> str | None:
        """Says why a result has nothing on a missing party although the job asks for it; None where it has."""
        if not self.output.missing_party or self.n_test:
            return None
        return "output.missing_party: no row is predicted, so it says nothing; give data.holdout, or rows without a response"

    @property
    def watched(self) -> bool:
        """Whether clients say if their unknowns have settled: in open variational jobs."""
        return self.open and not self.network and self.inference == "sfvi"

    @cached_property
    def likelihood(self) -> Likelihood:
        """The likelihood of the response."""
        scale = self.config.model.scale
        known = float(scale) if scale != "unknown" else None
        return Likelihood(self.family, known)

    @cached_property
    def settings(self) -> Settings:
        """The numbers that all parties have in common."""
        c, a = self.config, self.config.algorithm
        auxiliary = "none" if self.network else self.augmentation
        rounds, most = self.rounds, 0
        if self.until_settled:
            rounds, most = until.lengths(self.rounds)[0], self.rounds
        return settings_of(
            Settings,
            c.job,
            a,
            rounds=rounds,
            most=most,
            n_rows=self.n_rows,
            n_clients=len(self.names),
            model=auxiliary,
            batch=a.batch_size,
            curvature=self.likelihood.curvature_bound,
            bound=self.output.bound,
            bound_every=self.bound_every,
            dispersed=self.likelihood.dispersed,
            private=c.private,
            lead=a.ahead,
        )

    @cached_property
    def soul(self) -> soul.Settings:
        """The numbers that all parties have in common where theta is drawn by Langevin moves."""
        c, a = self.config, self.config.algorithm
        return settings_of(
            soul.Settings,
            c.job,
            a,
            n_rows=self.n_rows,
            n_clients=len(self.names),
            rho=self.rho,
            model=self.augmentation,
            langevin_steps=a.moves,
            keep=self.output.draws,
            dispersed=self.likelihood.dispersed,
        )

    @cached_property
    def auxiliary(self) -> Auxiliary:
        """The family of the auxiliary variables."""
        a = self.config.algorithm
        inputs: tuple[str, ...] = ()
        if self.family_of_z == "amortised":
            inputs_of: dict[str, tuple[str, ...]] = {
                "paper": (),
                "recommended": ("residual",),
                "complete": ("centre", "residual"),
            }
            inputs = inputs_of[a.inputs]
            if self.power:
                inputs = ("response", *inputs)
        kind = "none" if self.network else self.family_of_z
        return Auxiliary(kind, self.rho, tuple(a.network), inputs)

    def predictor(self, client: int, columns: Columns, rows: Indices) -> Predictor:
        """Returns a client's part of the linear predictor at some of its rows."""
        m, X = self.config.model, np.ascontiguousarray(columns.X[rows])
        if self.networks:
            return Network(X, tuple(m.hidden), m.features, weight_sd=m.weight_sd)
        if self.kind == "multilevel":
            assert columns.group is not None
            return Multilevel(X, columns.group[rows], len(columns.levels), m.centred)
        prior = self.prior(client)
        return Linear(X, prior.mean, prior.sd)

    def site(self, client: int, columns: Columns, train: Indices) -> Site:
        """Makes the client's part of the computation."""
        a = self.config.algorithm
        predictor = self.predictor(client, columns, train)
        full = a.covariance == "full" or (a.covariance == "auto" and predictor.n_theta <= FULL)
        return Site(predictor, self.auxiliary, full, a.estimator == "stl")

    @cached_property
    def server(self) -> Shared:
        """The server's part of the computation."""
        m = self.config.model
        power_rho = self.rho if self.power and self.likelihood.dispersed else None
        n, J, path = self.n_rows, len(self.names), self.config.algorithm.estimator == "stl"
        centre = m.intercept_centre or 0.0
        return Shared(self.likelihood, n, J, m.intercept, m.intercept_sd, path, power_rho, centre, m.scale_sd or 1.0)

    @property
    def about_level(self) -> bool:
        """Whether the intercept's prior is centred at the response's level, since the job gives no centre."""
        return self.intercept and self.config.model.intercept_centre is None

    @property
    def scaled(self) -> bool:
        """Whether the prior of a gaussian response's sigma has the response's standard deviation, since the job gives none."""
        return self.inference == "sfvi" and self.learns_sigma and self.config.model.scale_sd is None

    @property
    def learns_sigma(self) -> bool:
        """Whether the response is gaussian, with an unknown standard deviation."""
        return self.likelihood.record.measured and self.likelihood.dispersed

    def centred(self, y: Array, offset: Array | None) -> Shared:
        """Returns `server` with the priors that follow from the training rows' responses where the job does not give them.

        The intercept's is centred at their level, and sigma's has their standard deviation.
        """
        shared = self.server
        if self.scaled:
            shared = replace(shared, scale_sd=max(1.0, float(y.std())))
        if not self.about_level:
            return shared
        n = len(y)
        offsets = np.zeros(n) if offset is None else offset
        rows = Responses(y, np.zeros(n, np.int64), np.zeros((n, 0)), offsets, None)
        level = units.pooled_level(self.family, [units.sums(self.family, rows)])
        return replace(shared, prior_mean=level or 0.0)

    def link(self, y: Array) -> float:
        """Returns a row's variance on the link scale; for an unknown scale whose rho is worked out, a part of the response's."""
        if self.works_out and self.likelihood.dispersed:
            return undivided.RESIDUAL * float(np.var(y))
        return self.likelihood.link_variance(y)

    def kept(self, y: Array) -> float:
        """Returns the share of a row's information about the predictor that auxiliary variables leave (vertical.md, section
        11)."""
        link = self.link(y)
        return 1.0 if self.network else link / (link + self.lost)

    def warnings(self, y: Array) -> list[str]:
        """Returns warnings for a user of this rho (sections 3 and 11)."""
        out: list[str] = []
        if self.network:
            return out
        centred = self.about_level
        size = float(y.std()) if centred else float(np.sqrt(np.mean(y**2)))
        of_intercept = [self.config.model.intercept_sd] if self.config.model.intercept else []
        narrowest = min(*of_intercept, *(self.prior(k).sd for k in range(len(self.names))), math.inf)
        if self.likelihood.record.link == "identity" and size > FAR * narrowest:
            what, first = ("standard deviation", "") if centred else ("root mean square", "subtract their mean, and ")
            out.append(
                f"the responses have a {what} of {size:.3g}, and a prior of intercept or standardised coefficients has sd "
                f"{narrowest:g} in the response's unit, which makes intervals too narrow, pulls coefficients to zero, and "
                f"predictions with them: {first}take a larger unit, or set model.prior.sd and model.intercept_sd to {size:.2g}"
            )
        if (share := self.kept(y)) < 0.5:
            least = ", the least that is worked out," if self.works_out else ""
            out.append(
                f"rho = {self.rho:.3g}{least} keeps {share:.1%} of the information of a row: standard deviations may come out up "
                f"to {share**-0.5:.2g} times too large; a lower model.rho keeps more of it, and takes more rounds"
            )
        link = float(np.sqrt(self.likelihood.link_variance(y)))
        if self.family_of_z == "mean-field" and self.inference == "sfvi" and self.rho < link / 3:
            J = len(self.names)
            shared = 1 / (J * link**2) if self.power else 0.0
            exact, seen = link**2 + self.lost, 1 / (self.rho**-2 + shared)
            out.append(
                f"mean-field auxiliary variables with rho = {self.rho:g}: where rows decide, posterior standard deviations come "
                f'out at about {np.sqrt(seen / exact):.2f} of what they should be; take auxiliary = "amortised", or a larger rho'
            )
        return out
