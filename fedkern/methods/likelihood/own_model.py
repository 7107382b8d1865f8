"""What all parties know of a job whose log-likelihoods are computed by the holders' own packages, and how it becomes machines.

Source: docs/methods/likelihood.md, section 1; docs/how-to/own-model.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...algorithms.core.messages import SERVER, Protocol, ServerEffects
from ...algorithms.hmc import machine as hmc
from ...algorithms.importance import machine as importance
from ...algorithms.importance.messages import DECIMALS
from ...algorithms.importance.settings import FINE_OF_CHAINS, OF_GRADIENTS, Advice, Settings, rounded
from ...jobs.keys import settings_of
from ...jobs.model import JobModel
from ...kernels import rng
from ...models.own.given import Given
from ...models.own.priors import Priors
from ...models.own.supplied import Own
from . import own_keys
from .keys import Config, OutputSection
from .model import JITTER, LOOKED, STEP, TOLD

Array = NDArray[np.float64]

STARTS = 1 << 20  # of the stream "posterior": draws that starts are, beside those of clients


class Terms(NamedTuple):
    """What such a job says, before anything else is known.

    Attributes
    ----------
    factory, options : of the models; what it gets beside the rows
    priors : of the job; None where the model has a prior of its own
    ignored : columns that it does not get
    """

    factory: str
    options: Mapping[str, object]
    priors: Priors | None
    ignored: tuple[str, ...]

    def who(self, party: str = "") -> str:
        """How a sentence about a model begins, of a party such as "client 'a'"."""
        return f'{party}{": " if party else ""}the model of factory "{self.factory}"'


def terms(config: Config) -> Terms | None:
    """Of a job; None where log-likelihoods are computed by fedkern itself."""
    model = config.model
    if not config.own:
        return None
    found = own_keys.priors(model.priors) if model.priors else None
    return Terms(str(model.factory), model.options, found, tuple(config.data.ignore))


@dataclass(frozen=True)
class OwnModel(JobModel[OutputSection]):
    """A job with its clients and its parameters.

    Attributes
    ----------
    config, names : the job file, the clients' names in the order of their numbers
    parameters : their names, in the order in which they travel
    given : the model's own prior, at the server; None where the job has [model.priors], and at other places
    """

    config: Config
    parameters: tuple[str, ...]
    given: Given | None = None

    @property
    def terms(self) -> Terms:
        """What the job says of the models."""
        found = terms(self.config)
        assert found is not None
        return found

    @property
    def prior(self) -> Priors | Given:
        """Of the job, or of the model."""
        found = self.terms.priors or self.given
        assert found is not None  # at the server, which alone asks
        return found

    @property
    def size(self) -> int:
        """P, the number of parameters."""
        return len(self.parameters)

    @property
    def chains(self) -> bool:
        """Whether Markov chains are run."""
        return self.config.chains

    @property
    def variational(self) -> bool:
        """Whether q(xi), and each client's q(u | xi), are fitted, about which draws are weighted."""
        return self.config.algorithm.sampler == "sfvi"

    @property
    def rounds_of_fit(self) -> int:
        """Rounds of a variational fit."""
        return self.config.job.rounds

    @property
    def local(self) -> bool:
        """Whether each client has unknowns of its own, so that chains begin without a mode."""
        return bool(self.config.model.local)

    @property
    def settings(self) -> Settings:
        """The numbers that every machine of the job knows; nothing is integrated out by a quadrature of ours."""
        config = self.config
        chains: dict[str, int] = {"points": LOOKED, "rounds": 1, "told": 0}
        more = chains if self.chains else {"told": TOLD if self.output.sites else 0}
        starts = config.algorithm.starts or own_keys.STARTS
        computed = {"starts": starts, "nodes": 1, "most_nodes": 1, **more}
        return settings_of(Settings, config.job, config.algorithm, advice=self.advice, **computed)

    @property
    def advice(self) -> Advice:
        """What errors say beside what is wrong."""
        prior = "[model.priors]" if self.terms.priors is not None else "its log_prior"
        return Advice(
            f'values of model.factory = "{self.terms.factory}" are minus infinity there, or no numbers; write them as a function '
            "that has a density at all parameters, and compute logarithms without overflow",
            f"give it a proper prior ({prior})",
            f"Where nothing in the rows says how large a parameter is, it has no end: give it a narrower prior ({prior})",
        )

    @property
    def walks(self) -> hmc.Settings:
        """What all parties have in common where chains are run."""
        c, burn_in = self.config, self.config.burn_in
        return hmc.Settings(
            draws=c.job.rounds - burn_in,
            thin=1,
            warmup=burn_in,
            chains=self.output.chains,
            leapfrog=c.algorithm.leapfrog_steps,
            step=STEP if not self.local else STEP / 2,
            target=None,
            seed=self.seed,
            jitter=JITTER,
            whole=True,
        )

    @property
    def protocol(self) -> Protocol[importance.Server, importance.Client]:
        """With only the messages that this job can send."""
        return importance.protocol(self.settings)

    @property
    def coordinates(self) -> importance.Coordinates:
        """What the numbers of xi are: any of them may have heavy tails."""
        return importance.Coordinates(self.prior.coordinates)

    def starts(self, n: int) -> Array:
        """(n, P) The middle of the prior, and draws of it."""
        u = rng.uniform(n * self.size, key=rng.key(self.seed, "posterior", STARTS)).reshape(n, self.size)
        u[0] = 0.5
        return self.prior.drawn(u)

    def start(self) -> tuple[importance.Server, ServerEffects]:
        """The server's machine with its first messages."""
        settings = self.settings
        return importance.start(settings, self.prior, self.names, self.coordinates, self.starts(settings.starts))

    def client(self, index: int, own: Own) -> importance.Client:
        """A client's machine, before it has seen anything."""
        return importance.client(self.names[index], index, self.settings, own)

    def walk(self, mode: importance.Server | None) -> tuple[hmc.Server, ServerEffects]:
        """The server's machine of the chains, with its first messages: they begin around the mode, or where there is none, near
        the middle of the prior."""
        s, prior = self.walks, self.prior
        if mode is None:
            return hmc.start(s, prior, self.names, self._scattered(s))
        found = importance.found(mode)
        metric = hmc.Metric.of(found.mode, found.precision)
        return hmc.start(s, prior, self.names, metric.sent(s.starts(SERVER, self.size)), metric)

    def _scattered(self, s: hmc.Settings) -> Array:
        """(chains, P) Draws of the prior between its quartiles: far out, a chain may find nothing to climb."""
        u = rng.uniform(s.chains * self.size, key=rng.key(self.seed, "posterior", STARTS)).reshape(s.chains, self.size)
        return self.prior.drawn(0.25 + u / 2)

    def walker(self, index: int, own: Own) -> hmc.Client:
        """A client's machine of the chains."""
        s = self.walks
        if self.local:
            u = 0.1 * s.starts(index, own.local_size)
            return hmc.client(self.names[index], index, s, Joint(own), u)
        coarser = math.sqrt(max(1.0, s.rounds * s.chains * s.leapfrog / FINE_OF_CHAINS))
        return hmc.client(self.names[index], index, s, Whole(own, coarser))

    def natural(self, points: Array) -> dict[str, Array]:
        """Name -> (N,) of each parameter, at points (N, P)."""
        found = np.asarray(self.prior.natural(points), np.float64)
        return {name: found[:, k] for k, name in enumerate(self.parameters)}


@dataclass(frozen=True)
class Whole:
    """An own model for chains, where it has no unknowns of its client: values in thousandths of a nat, gradients in tenths."""

    own: Own
    coarser: float
    size: int = 0

    @property
    def n_global(self) -> int:
        """P"""
        return self.own.size

    def log_joint_grad(self, xi: Array, u: Array) -> tuple[float, Array, Array]:
        """log p(rows | xi) at one point (P,), its gradient, and nothing."""
        value, gradient, nothing = self.log_joint_grads(xi[np.newaxis], u[np.newaxis])
        return float(value[0]), gradient[0], nothing[0]

    def log_joint_grads(self, xi: Array, u: Array) -> tuple[Array, Array, Array]:
        """For all chains (c, P) at once."""
        value, gradient = self.own.gradients(xi)
        value, gradient = rounded(value, DECIMALS, self.coarser), rounded(gradient, OF_GRADIENTS, self.coarser)
        return value, gradient, np.zeros((len(xi), 0))


@dataclass(frozen=True)
class Joint:
    """An own model for chains, with unknowns of its client, which stay there."""

    own: Own

    @property
    def n_global(self) -> int:
        """P"""
        return self.own.size

    @property
    def size(self) -> int:
        """The number of the client's unknowns."""
        return self.own.local_size

    def log_joint_grad(self, xi: Array, u: Array) -> tuple[float, Array, Array]:
        """log p(rows, u | xi), and its gradients."""
        return self.own.joint(xi, u)

    def log_joint_grads(self, xi: Array, u: Array) -> tuple[Array, Array, Array]:
        """For all chains at once."""
        return self.own.joints(xi, u)
