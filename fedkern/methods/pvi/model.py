"""Defines a job's model: everything that all parties know once the columns are agreed, and the machines made of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...algorithms.core import box
from ...algorithms.core.messages import SERVER, Protocol, ServerEffects
from ...algorithms.pvi import client_level, global_vi, noise_aware
from ...algorithms.pvi import machine as pvi
from ...algorithms.pvi.local import Local
from ...algorithms.pvi.messages import BoxOfQ, Settings
from ...jobs.devices import Load
from ...jobs.keys import settings_of
from ...jobs.model import WeighedModel
from ...kernels import families, rng
from ...models.encoding import Encoding
from ...models.expfam import Gaussian
from ...models.glm import prior
from ...models.reference import Coding, coding_of
from ...privacy.noise import KeyedSource, SecureSource, Source
from ...privacy.plan import Plan
from ...results.plain import Record
from . import budget, response
from .keys import MOST_FULL, ColumnSection, Config, OutputSection, PrivacySection
from .response import Given

LEAD = 8  # answers by which an asynchronous client may be ahead of the slowest: exact sites of the others stand still by then
WORTH = 400_000  # nanoseconds of a call on a card, in which a core takes as many rows of d columns by d + 20 (docs/how-to/gpu.md)
Server = pvi.Server | global_vi.Server | client_level.Server
Client = pvi.Client | global_vi.Client


@dataclass(frozen=True)
class Model(WeighedModel[OutputSection]):
    """Holds a job with its clients and its columns.

    Attributes
    ----------
    names : of the clients, in the order of their numbers
    """

    config: Config  # the job file
    encoding: Encoding  # the agreed columns
    response: response.Response = field(default_factory=response.Response)  # its units, once they are known

    def __post_init__(self) -> None:
        self.encoding.check_references(self.references)

    @cached_property
    def coding(self) -> Coding | None:
        """The map to the coefficients that are published, at reference levels; None where these are all."""
        if not (self.encoding.intercept and any(column.levels for column in self.encoding.columns)):
            return None
        return self.published

    @property
    def published(self) -> Coding:
        """The map to the coefficients that are published, whichever these are."""
        return coding_of(self.encoding, self.references, absorbs=self.encoding.intercept)

    @property
    def given(self) -> Given:
        """The job file's statements about the response and the priors."""
        m = self.config.model
        return Given(
            family=m.family,
            column=self.config.data.response or "y",
            open=self.privacy is None,
            intercept=m.intercept,
            centre=m.intercept_centre,
            sd=m.intercept_sd,
            precision=m.prior_sd**-2,
            scale=m.scale if isinstance(m.scale, float) else None,
        )

    @property
    def family(self) -> families.OfPvi:
        """The likelihood family of the response."""
        return self.config.model.family

    @property
    def trials(self) -> str | None:
        """The column with the number of trials of each row."""
        return self.config.data.trials

    @property
    def offset(self) -> str | None:
        """The column that is added to the linear predictor."""
        return self.config.data.offset

    @property
    def declared(self) -> Mapping[str, ColumnSection]:
        """The public constants of the columns."""
        return self.config.data.columns

    @property
    def rounds(self) -> int | str:
        """The rounds of the job file: a number, or "budget"."""
        return self.config.job.rounds

    @property
    def told_up_to(self) -> int:
        """The number of a client's rows up to which its messages may determine them."""
        return self.config.requirement.told_up_to(self.encoding.size)

    def may_tell_curvature(self, n_rows: int) -> bool:
        """Tells whether a client with so many rows may tell X'WX."""
        return self.config.requirement.may_tell_curvature(n_rows, self.encoding.size)

    @property
    def told_by_curvature(self) -> int:
        """The number of a client's rows up to which it does not tell its X'WX."""
        return max(self.told_up_to, int(self.config.rules.linear * self.encoding.size))

    @property
    def covariance(self) -> Literal["diagonal", "full"]:
        """The covariance of q: "auto" is full for 2 to `MOST_FULL` coefficients (for one, both forms are the same numbers)."""
        given = self.config.model.covariance
        if given != "auto":
            return given
        return "full" if 1 < self.encoding.size <= MOST_FULL else "diagonal"

    @property
    def prior(self) -> Gaussian:
        """The prior of all coefficients, in the form of the posterior."""
        return response.prior(self, prior(self.encoding.size, self.given.precision, self.covariance))

    @property
    def unit(self) -> float:
        """The unit of the response in the model's numbers, in the data's."""
        return self.response.units.scale if self.given.measured else 1.0

    @property
    def box(self) -> BoxOfQ | None:
        """Where the server may ask, if it gets sums alone: by the job file and the agreed units."""
        if not self.secure:
            return None
        open_prior = replace(self, response=replace(self.response, ended=False)).prior
        reach = box.reach(open_prior.sd, self._standardised)
        if self.encoding.intercept and self.given.centre is not None:
            reach[0] = box.REACH * open_prior.sd[0] + (
                abs(open_prior.mean[0]) if self.given.measured else 0.0
            )  # the agreed level is 0
        centre, unit = open_prior.mean, 1.0
        if self.given.measured and self.response.ended:
            centre, unit = response.centre_of(self) + self.unit * open_prior.mean, self.unit
        return BoxOfQ.about(centre, unit * reach).of(unit * open_prior.sd)

    @property
    def _standardised(self) -> NDArray[np.bool_]:
        """(d,) whether each coefficient is of a column that all have scaled, of a level, or the intercept."""
        flags = [True] * self.encoding.intercept
        for column in self.encoding.columns:
            flags += [(column.center, column.scale) != (0.0, 1.0)] if column.levels is None else [True] * len(column.levels)
        return np.array(flags)

    @property
    def settings(self) -> Settings:
        """The numbers that every machine of the job knows."""
        config, n = self.config, len(self.names)
        a = config.algorithm
        weights = tuple(a.client_weights.get(name, 1.0) for name in self.names) if a.client_weights else ()
        return settings_of(
            Settings,
            config.job,
            config.model,
            a,
            covariance=self.covariance,
            scale=response.model_scale(self),
            learn_scale=self.given.learnt,
            bounded=self.secure,
            rounds=self.rounds if isinstance(self.rounds, int) else None,
            client_weights=weights,
            batch_rate=a.batch,
            damping=a.damping_of(n, whole=self.covariance == "full" or self.encoding.size == 1),
            shards=a.shards or 1,
            lead=self._lead,
            by_client=config.unit == "client",
            until=a.until is not None and self.encoding.size <= MOST_FULL,
        )

    @property
    def _lead(self) -> int | None:
        """How far an asynchronous client may be ahead of the slowest."""
        a = self.config.algorithm
        if a.schedule != "asynchronous" or a.lead is not None:
            return a.lead
        return LEAD if self.privacy is not None or a.optimiser == "exact" else None

    @property
    def scale(self) -> float:
        """The scale of the response in the data's units; a learnt one once it is told."""
        return response.data_scale(self, self.response.variance)

    @property
    def told(self) -> bytes:
        """What the server has told every client alike, beside columns: the response's units, and the scale once it is told."""
        known = self.response
        numbers = (known.units.level, known.units.scale, known.variance)
        return repr([number and float(number) for number in numbers]).encode()

    @property
    def agreed(self) -> Record:
        """What the parties have agreed on before the rounds, beside the job."""
        units = self.response.units
        return {"encoding": self.encoding.to_dict(), "level": units.level, "scale": units.scale}

    @property
    def gives_scale(self) -> bool:
        """Whether the job file gives the scale."""
        return "scale" in self.config.model.model_fields_set

    @property
    def privacy(self) -> PrivacySection | None:
        """The privacy section; None for an open job."""
        return self.config.privacy

    @property
    def by_client(self) -> bool:
        """Whether whole clients are protected, by noise at the server."""
        return self.privacy is not None and self.privacy.unit == "client"

    @property
    def with_noise(self) -> bool:
        """Whether the released posterior is made of the clients' noisy sums, after the last round."""
        return self.config.algorithm.posterior is not None

    def design_of_sums(self, client: str) -> noise_aware.Design | None:
        """Returns which sums a client keeps of its noisy gradients; None where no posterior is made of them."""
        if not self.with_noise:
            return None
        early = math.ceil(noise_aware.EARLY * self.plan(client).steps)
        family, spread = self.family, self.encoding.spread
        shares = self.declared_binary if family == "bernoulli" else {}
        if not 0 < len(shares) <= noise_aware.MOST:
            return noise_aware.Design(family, spread, early)
        return noise_aware.Design(family, spread, early, noise_aware.TwoPoints.of(spread, shares, self.encoding.intercept))

    @property
    def declared_binary(self) -> dict[int, float]:
        """The share of ones in each column that is declared as binary (private jobs), by its coefficient's number."""
        shares, j = {}, int(self.encoding.intercept)
        for column in self.encoding.columns:
            section = self.declared.get(column.name)
            if column.levels is None and section is not None and section.shape == "binary" and section.share is not None:
                shares[j] = section.share
            j += 1 if column.levels is None else len(column.levels)
        return shares

    def noise(self, client: str) -> noise_aware.Noise:
        """Returns the variance of the noise in one number of a client's noisy gradients, and that of the sampling of rows."""
        mechanism = self.plan(client).mechanism
        rate = mechanism.rate
        return noise_aware.Noise((mechanism.sigma * mechanism.clip / rate) ** 2, (1 - rate) / rate)

    def known(self, client: int, server: Server) -> noise_aware.Known:
        """Returns what the server knows of a client's noisy sums before they come: how many there are, and how large they can
        be."""
        name, settings = self.names[client], self.settings
        design, mechanism = self.design_of_sums(name), self.plan(name).mechanism
        assert design is not None
        # One noisy gradient holds at most what all rows can add, and noise of a thousand standard deviations.
        gradient = mechanism.clip / mechanism.rate * (noise_aware.MOST_ROWS + 1e3 * mechanism.sigma)
        dropped = self.dropped(server).get(name, 0)
        return noise_aware.Known.of(design, int(server.updates[client]), dropped, settings.local_steps, gradient)

    def progress(self, updates: int) -> float | None:
        """Returns how far `updates` updates lead the sites of a private job from the prior, as a share; None where that is not
        known."""
        share = self.config.of_posterior(updates * self.config.spending.update).get("progress")
        return share if isinstance(share, float) else None

    @property
    def averaged(self) -> bool:
        """Whether the mean over the second half of all updates is released."""
        return self.config.algorithm.average == "half"

    @property
    def averaged_sites(self) -> bool:
        """Whether the server keeps one site for all clients, where whole clients are protected."""
        return self.config.algorithm.sites == "averaged"

    @property
    def one_posterior(self) -> bool:
        """Whether all clients send gradients for one posterior, and have no sites of their own."""
        return self.config.algorithm.variant == "global-vi"

    @property
    def protocol(self) -> Protocol[Any, Any]:
        """The protocol of the rounds, with only the messages that this job can send."""
        if self.by_client:
            return client_level.protocol(averaged_sites=self.averaged_sites)
        private = self.privacy is not None
        if self.one_posterior:
            return global_vi.protocol(private=private)
        s = self.settings
        return pvi.protocol(private=private, until=s.until, learns=s.learn_scale, readmits=self.readmits)

    @property
    def readmits(self) -> bool:
        """Whether a lost client takes part again once it is back: none whose updates are paid for, or one of a sum."""
        return self.privacy is None and not self.secure

    def start(self) -> tuple[Server, ServerEffects]:
        """Makes the server's machine with its first messages; where whole clients are protected, its account must be open."""
        settings, prior, n = self.settings, self.prior, len(self.telling)
        if self.one_posterior:
            return global_vi.start(settings, prior, n)
        if not self.by_client:
            private = not self.readmits
            return pvi.start(settings, prior, n, members=len(self.names) // n, private=private)
        mechanism, averaged = self.plan_of_all.mechanism, self.averaged_sites
        return client_level.start(settings, prior, n, mechanism, self.source(SERVER), averaged)

    def updates(self, server: Server) -> NDArray[np.int64]:
        """Returns the (M,) updates of each client; where sums are secure the server knows one of all, in which each took part."""
        return np.broadcast_to(server.updates, len(self.names))

    def dropped(self, server: Server) -> dict[str, int]:
        """Returns client -> its answers that are in no result, being too much for a proper posterior. Which of them are follows
        from changes that were released."""
        if not isinstance(server, pvi.Server):
            return {}
        of_each = server.dropped
        counts = np.broadcast_to([of_each.get(k, 0) for k in range(len(server.updates))], len(self.names))
        return {name: int(n) for name, n in zip(self.names, counts) if n}

    def client(self, index: int, local: Local) -> Client:
        """Makes a client's machine, before it has seen anything."""
        name = self.names[index]
        return global_vi.client(name, local) if self.one_posterior else pvi.client(name, local, self.prior)

    def plan(self, client: str) -> Plan:
        """Returns the plan of one client (with unit = "client" that of the federation, whatever the name)."""
        return budget.plan(self.config.spending, client, budget.Sizes(self.encoding.size, len(self.names)))

    @property
    def plan_of_all(self) -> Plan:
        """The plan of the server's account, where whole clients are protected."""
        return self.plan("the federation")

    @property
    def load(self) -> Load:
        """The load of a client on a graphics card: kernels, and numbers that stay on it."""
        a = self.config.algorithm
        full = self.covariance == "full"
        if a.optimiser == "exact":
            kernels = ["glm.expectations_full" if full else "glm.expectations"]
        elif full:
            kernels = ["glm.elbo_grad_full"]
        else:
            kernels = ["glm.elbo_grad" if a.estimator in ("stl", "total") else "glm.clipped_grad_sum"]
        beside = {}
        if a.optimiser in ("adam", "adagrad"):
            beside[f"optim.{a.optimiser}"] = "of the posterior's numbers, which are few"
        # The smaller a batch, the more of its time is spent on calls: say from how many rows a card pays.
        rate = a.batch
        if self.privacy is not None:
            secure = self.privacy.noise_source == "secure"
            beside["privacy.discrete_gaussian" if secure else "privacy.add_noise"] = "noise that protects people"
            rate = 1.0 if self.by_client else min(self.plan(name).mechanism.rate for name in self.names)
        elif rate < 1:
            beside["rng.uniform"] = "which rows are in a batch"
        columns = self.encoding.size + 1 + (self.offset is not None) + (self.weight is not None or self.trials is not None)
        rows = 1000 * math.ceil(WORTH / (self.encoding.size + 20) / 1000)
        few = [f"pays from batches of about {rows:,} rows: clients that have {rows / rate:,.0f} or more"] if rate < 1 else []
        return Load(kernels, beside, 0.0, 8.0 * columns, few)

    @property
    def secret_batches(self) -> bool:
        """Whether a client alone knows which rows are in its batches."""
        return self.config.secret_batches

    def source(self, party: int) -> Source:
        """Returns the source of a party's noise and coins: the system's, or a keyed one for experiments."""
        if self.privacy is None or self.privacy.noise_source == "secure":
            return SecureSource()
        return KeyedSource(rng.key(self.seed, "noise"), party)
