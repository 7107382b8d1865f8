"""Turns a job's configuration and its prior into the numbers and functions of its parties."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np

from ...algorithms.core import box, until
from ...algorithms.exchanges import level
from ...algorithms.exchanges.answers import pieces_of_draws
from ...algorithms.hmc.moves import Settings as HmcSettings
from ...algorithms.nested.machine import PLACES
from ...algorithms.nested.machine import Settings as NestedSettings
from ...algorithms.sfvi.families import Family, NestedFamily, Shear
from ...algorithms.sfvi.machine import LARGEST_FULL, Settings
from ...data.artifact import ClientFile, Common, OwnFile, WithinFile
from ...errors import JobError
from ...jobs.keys import settings_of
from ...jobs.model import JobModel, Values
from ...kernels.mlp import Architecture
from ...models.encoding import Encoding
from ...models.likelihood import Likelihood
from ...models.overdispersed import Overdispersed, bounded
from ...models.reference import Coding, coding_of
from ...models.spatial.condition import Condition
from ...models.spatial.decoder import Decoder
from ...models.spatial.loadings import LevelRidge, MeanLoadings, values_of
from ...models.spatial.site import Auxiliary, Layout, Rows, SigmaPrior, Site, cut
from ...models.spatial.standard import Standard
from ...models.spatial.units import Units
from ...models.spatial.within_site import WithinSite
from ...models.variational import Block
from ...plain import Record
from .areas import NEAR, Threshold
from .keys import Config, OutputSection

Kind = Literal["within", "auxiliary", "deterministic"]
# Of a nested Laplace approximation: latents, and bytes of curvatures that one question brings the server, which adds them, in the
# clients' order, when all are there.
MOST_LATENTS, MOST_ANSWERED = 400, 2**30


value = Values[Config]()


@dataclass(frozen=True)
class SigmaModel(JobModel[OutputSection]):
    """Holds a job whose prior and columns are known; JobError where its kind is for another prior.

    Attributes
    ----------
    names : of the clients
    """

    config: Config
    encoding: Encoding  # of the covariates, with an intercept first
    common: Common  # the part that all files of the prior share
    # of the response, once the clients have told its level; all else here is on the model's scale
    units: Units = field(default_factory=Units)

    family_of_y = value(lambda config: config.model.family, "The likelihood family of the response.")
    coefficient_sd = value(lambda config: config.model.coefficient_sd, "The standard deviation of the coefficients' prior.")
    until_settled = value(lambda config: config.algorithm.until is not None, "Whether rounds end when all has settled.")
    rounds = value(lambda config: config.job.rounds, "The largest number of rounds.")
    privacy = value(lambda config: config.privacy, "The terms of the noise of counts; None for an open job.")
    response = value(lambda config: config.data.response, "The column of the response.")
    known_variances = value(
        lambda config: config.data.variance is not None, "Whether responses come with the variance of their errors."
    )
    periods = value(lambda config: tuple(config.data.periods), "The periods in their order; empty where rows have none.")

    def __post_init__(self) -> None:
        kind = kind_of(self.config, self.common)
        if self.is_nested and kind != "within":
            raise JobError(
                'algorithm.inference = "nested" integrates areas out with their exact prior, and this prior was trained: take '
                '"sfvi", or make it anew (fedkern sigma build)'
            )
        if self.is_nested and self._too_many:
            raise JobError(f'algorithm.inference = "nested": {self._too_many}; take "sfvi"')
        self.encoding.check_references(self.references)

    @property
    def kind(self) -> Kind:
        """The kind of the model."""
        return kind_of(self.config, self.common)

    @cached_property
    def coding(self) -> Coding:
        """The map to the coefficients that are published, at reference levels."""
        return coding_of(self.encoding, self.references, absorbs=self.layout.intercept)

    @property
    def published(self) -> tuple[str, ...]:
        """The names of the coefficients that are published, an intercept first, if the model has none too."""
        return tuple(self.encoding.names[j] for j in self.coding.kept)

    @property
    def warnings(self) -> list[str]:
        """The warnings about choices that are allowed and not advised."""
        if self.kind == "auxiliary" and self.common.kind == "gp":
            return [
                'kind = "auxiliary" beside a Gaussian process: the white noise that it adds passes for error of the response: '
                'intervals come out too wide; take kind = "deterministic", or a prior of `fedkern sigma build`'
            ]
        return []

    @property
    def inference(self) -> str:
        """The way in which the posterior is found, given by the job, or the best that its prior allows."""
        given = self.config.algorithm.inference
        if given is not None:
            return given
        return "nested" if self.kind == "within" and not self._too_many else "sfvi"

    @property
    def answered(self) -> int:
        """The bytes of curvatures that a question of a nested approximation brings the server: half a square of each client."""
        return 4 * PLACES * len(self.names) * self.layout.size**2

    @property
    def _too_many(self) -> str:
        """The reason why a nested approximation would send too much; "" where it does not.

        Curvatures have the square of the latents.
        """
        latents, clients = self.common.n_global, len(self.names)
        if latents > MOST_LATENTS:
            return f"the prior has {latents} latents, and nested takes at most {MOST_LATENTS}"
        if self.answered > MOST_ANSWERED:
            sent = f"curvatures in {latents} latents at {PLACES} places, of {clients} clients"
            return f"{sent}, are {self.answered / 2**30:.1f} GiB, and nested takes at most 1"
        return ""

    @property
    def by_default(self) -> str:
        """The reason for the way of inference, where the job does not give it; else ""."""
        if self.config.algorithm.inference is not None:
            return ""
        if self.kind != "within":
            return "the default with a trained prior"
        return f"the default: {self._too_many}" if self._too_many else f"the default with at most {MOST_LATENTS} latents"

    @property
    def is_nested(self) -> bool:
        """Whether it is a nested Laplace approximation."""
        return self.inference == "nested"

    @property
    def chains(self) -> bool:
        """Whether the posterior is sampled by Markov chains."""
        return self.inference in ("hmc", "mala")

    @cached_property
    def condition(self) -> Condition:
        """The hyperparameter phi, its range and prior."""
        value = self.config.model.phi
        if value is None:
            return self.common.condition
        if not self.common.condition.free:
            raise JobError("model.phi: this prior has no hyperparameter; remove it")
        try:
            return replace(self.common.condition, fixed=value)
        except ValueError as error:
            raise JobError(f"model.phi: {error}") from None

    @property
    def told(self) -> bytes:
        """What the server has told every client alike before the rounds, beside columns: the response's units."""
        return repr([float(self.units.level), float(self.units.scale)]).encode()

    @cached_property
    def likelihood(self) -> Likelihood:
        """The likelihood of the response; where every row has its variance, without those."""
        scale = 1.0 if self.known_variances else self.config.model.scale
        if self.config.model.overdispersion:
            return Overdispersed(self.family_of_y)
        known = None if scale == "unknown" else self.units.known(float(scale))
        return Likelihood(self.family_of_y, known)

    @property
    def hides(self) -> bool:
        """Whether results leave out areas with a count that is an interval, and the job may have some."""
        return bool(self.config.data.censored) and self.output.suppressed == "hide"

    @cached_property
    def layout(self) -> Layout:
        """The layout of xi."""
        m = self.config.model
        known = 1.0 if m.spatial_scale == "unknown" else self.units.known(float(m.spatial_scale))
        return Layout(
            self.condition.free,
            self.common.n_global,
            mixing=self.common.kind == "bym2" and not self.common.within,
            intercept=self.intercept,
            n_beta=self.encoding.size - 1,
            scaled=m.spatial_scale == "unknown",
            dispersed=self.likelihood.dispersed,
            known_scale=known,
            n_periods=len(self.periods),
        )

    @cached_property
    def box(self) -> box.Box | None:
        """Where clients are asked, with secure sums; None without (docs/spec/sigma.md, section 6.5)."""
        if not self.secure:
            return None
        sd = self.coefficient_sd
        most = min(sd, box.WIDEST) if self.encoding.standardised else sd
        residual = box.LOG_RESIDUAL if self.likelihood.record.link == "identity" else box.LOG_SCALE
        each = {
            "phi": box.LOGIT,
            "z": box.REACH,
            "rho": box.LOGIT,
            "intercept": box.REACH * min(sd, box.WIDEST),
            "beta": box.REACH * most,
            "period": box.REACH,
            "log_scale": box.LOG_SCALE,
            "log_period": box.LOG_SCALE,
            "log_sd": residual,
        }
        reach = np.empty(self.layout.size)
        for name, place in self.layout.parts.items():
            reach[place] = each[name]
        return box.Box(tuple((-reach).tolist()), tuple(reach.tolist()))

    @cached_property
    def prior(self) -> SigmaPrior:
        """The server's term of the log density."""
        return SigmaPrior(self.layout, self.condition, self.coefficient_sd, self.likelihood)

    @property
    def learns_r(self) -> bool:
        """Whether the published dispersion is 1 / r."""
        return self.likelihood.dispersed and self.likelihood.record.dispersion is not None and self.likelihood.record.counted

    @property
    def dispersion(self) -> str:
        """The name of the likelihood's unknown dispersion where it is published."""
        if self.learns_r:
            return "dispersion"
        if self.config.model.overdispersion:
            return "sigma_extra"
        return "sigma"

    @cached_property
    def standard(self) -> Standard:
        """The prior in coordinates in which hyperparameters' priors are standard normal."""
        return Standard(self.prior)

    @cached_property
    def nested(self) -> NestedSettings:
        """The numbers that all parties of a nested Laplace approximation have in common."""
        return NestedSettings(self.seed)

    @property
    def agreed(self) -> Record:
        """What the parties have agreed on before the rounds, beside the job."""
        units = [float(self.units.level), float(self.units.scale)]
        return {"encoding": self.encoding.to_dict(), "units": units, "prior": self.common.id}

    @cached_property
    def sfvi(self) -> Settings:
        """The numbers that all parties have in common where inference is variational."""
        c, a = self.config, self.config.algorithm
        local_steps = a.local_steps if self.inference == "sfvi-avg" else 0
        rounds, most = self.rounds, 0
        if self.until_settled:
            rounds, most = until.lengths(self.rounds)[0], self.rounds
        return settings_of(
            Settings,
            c.job,
            a,
            rounds=rounds,
            most=most,
            coupled=a.structured,
            draws=1,
            local_covariance="auto",
            path=a.estimator == "stl",
            decay=a.cool_down,
            initial_sd=a.start_sd,
            bound=self.output.bound,
            sheared=a.shear and self.inference == "sfvi" and self.intercept,
            local_steps=local_steps,
            box=self.box,
            lead=a.ahead,
        )

    def ridge(self, loadings: MeanLoadings | None) -> LevelRidge | None:
        """Returns the ridge along which xi is sheared; None where it is not.

        A prior's file from before the loadings were kept has none: they count as zeros.
        """
        if not self.sfvi.sheared:
            return None
        phi = values_of(self.common.condition)
        if loadings is None:
            loadings = MeanLoadings(phi, np.zeros((len(phi), self.common.n_global)))
        return LevelRidge(self.layout, self.condition, loadings)

    @property
    def pieces(self) -> int:
        """The largest number of questions to clients about their log-likelihood."""
        return pieces_of_draws(self.layout.size, integrated=self.kind == "within")

    @property
    def n_told(self) -> int:
        """The number of the ridge's values that clients are told."""
        return len(values_of(self.common.condition)) * self.common.n_global if self.sfvi.sheared else 0

    def shear(self, ridge_means: np.ndarray) -> Shear:
        """Returns the map from the unknowns of which q is normal to xi, by the values that clients are told."""
        phi = values_of(self.common.condition)
        ridge = self.ridge(MeanLoadings(phi, ridge_means.reshape(len(phi), -1))) if self.sfvi.sheared else None
        return Shear(ridge)

    @cached_property
    def hmc(self) -> HmcSettings:
        """The numbers that all parties have in common where chains are run."""
        c, a = self.config, self.config.algorithm
        leapfrog = 1 if self.inference == "mala" else a.leapfrog_steps
        return settings_of(
            HmcSettings,
            c.job,
            a,
            draws=self.rounds - a.burn_in,
            warmup=a.burn_in,
            chains=self.output.chains,
            leapfrog=leapfrog,
            step=0.1,
            box=self.box,
        )

    @property
    def level(self) -> level.Settings:
        """The facts about the response that all parties know before they know its units."""
        scale = 1.0 if self.known_variances else self.config.model.scale
        known = None if scale == "unknown" else float(scale)
        data, private = self.config.data, self.config.private
        censored = bool(data.censored)
        parts = "intercept, effects and map are"
        return level.Settings(self.family_of_y, self.response, self.intercept, known, censored, private, self.secure, parts)

    @property
    def compares_rates(self) -> bool:
        """Whether the server compares clients' counts by their exposure: not where it has sums alone, or noisy counts."""
        return self.config.data.exposure is not None and not (self.secure or self.config.private)

    @property
    def threshold(self) -> Threshold:
        """The threshold above which an area's level is high."""
        given, overall = self.output.threshold, float(self.likelihood.mean(np.asarray(self.units.level)))
        if given == "overall" or (given == "auto" and not 1 / NEAR < overall < NEAR):
            return Threshold("overall", overall)
        value = 1.0 if isinstance(given, str) else given
        return Threshold(f"{value:g}", value)

    def site(self, file: OwnFile, rows: Rows) -> Site | WithinSite:
        """Makes a client's computation from its rows, which come in the data's units."""
        scale = self.likelihood.scale
        known = scale if isinstance(scale, float) else None
        rows = self.units.rows(rows, self.family_of_y, known)
        gaussian = self.likelihood.record.link == "identity"
        likelihood = self.likelihood if rows.sd is None else replace(self.likelihood, scale=rows.sd)
        if self.secure:
            likelihood, rows = bounded(likelihood), cut(rows, measured=gaussian)
        if isinstance(file, WithinFile):
            integrated = gaussian or not self.chains
            return WithinSite(file.within, self.condition, self.layout, likelihood, rows, integrated)
        auxiliary = Auxiliary(file.tau2, file.tau_grid) if self.kind == "auxiliary" else None
        integrated = auxiliary is not None and gaussian
        try:
            return Site(decoder_of(file), self.condition, self.layout, likelihood, rows, auxiliary, integrated)
        except ValueError as error:
            raise JobError(f"client {file.name!r}: {error}") from None

    def family(self, site: Site | WithinSite) -> Family | NestedFamily | None:
        """Returns q of a client's unknowns; None stands for the family of the settings."""
        if isinstance(site, WithinSite) or not site.sampled:
            return None
        s, d = self.sfvi, site.decoder.n_local
        return NestedFamily(Family(Block(d, d <= LARGEST_FULL), self.layout.size, s.coupled), site)


def kind_of(config: Config, common: Common) -> Kind:
    """Returns the kind that the job gives, or the one that its prior is for.

    Beside a smooth curve the auxiliary model's white noise would pass for error (docs/spec/sigma.md, section 8). Raises JobError:
    a kind for another prior.
    """
    kind = config.model.kind
    if kind is None:
        if common.within:
            return "within"
        if config.data.location:
            return "deterministic"
        return "auxiliary"
    if (kind == "within") != common.within:
        made, other, remedy, command = "trained", "built", "auxiliary", "build"
        if common.within:
            made, other, remedy, command = "built", "trained", "within", "train"
        raise JobError(
            f'model.kind = "{kind}" is for a prior that was {other}, and {config.model.prior} was {made}; take "{remedy}", or '
            f"make the prior anew (fedkern sigma {command})"
        )
    return kind


def decoder_of(file: ClientFile) -> Decoder:
    """Makes the networks of a client's file."""
    c = file.common
    try:
        if c.variant == "within":
            raise ValueError("it has none")
        architecture = Architecture(
            c.variant, (len(file.scale),), 1, c.n_global, (file.n_local,), c.hidden, c.local_hidden, c.width, c.rank
        )
        return Decoder(architecture, file.parts, file.scale)
    except (ValueError, KeyError) as error:
        raise JobError(
            f"client {file.name!r}: its file of the prior does not fit its networks ({error}); copy it again"
        ) from None
