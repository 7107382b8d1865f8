"""Holds all that the parties know of a job whose log-likelihoods the holders' own packages compute, and makes machines of it.

Source: docs/spec/likelihood.md, section 1; docs/how-to/own-model.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...algorithms.core.messages import SERVER, Protocol, ServerEffects
from ...algorithms.hmc import machine as hmc
from ...algorithms.importance import machine as importance
from ...algorithms.importance.settings import Advice, Settings, told
from ...arrays import Array
from ...disclosure.rules import Rules
from ...jobs.keys import settings_of
from ...jobs.model import JobModel
from ...kernels import rng
from ...models.own.priors import Priors
from ...models.own.supplied import Given, Own
from . import own_keys
from .keys import Config, OutputSection
from .model import JITTER, LOOKED, STEP, TOLD

STARTS = 1 << 20  # draw of the stream "posterior" by which starts are drawn: far from those of clients


class Terms(NamedTuple):
    """Holds the keys of such a job on its models, before anything else is known."""

    # factory, options: the text of the job file; the table that the factory gets beside the rows
    factory: str
    options: Mapping[str, object]
    priors: Priors | None  # of the job; None where the model has a prior of its own
    ignored: tuple[str, ...]  # columns that the factory does not get

    def who(self, party: str = "") -> str:
        """Returns the beginning of a sentence on the model of a party, such as "client 'a'"."""
        return f'{party}{": " if party else ""}the model of factory "{self.factory}"'


def terms_of(config: Config) -> Terms | None:
    """Returns the keys of a job on its models; None where fedkern itself computes log-likelihoods."""
    model = config.model
    if not config.own:
        return None
    priors = own_keys.priors(model.priors) if model.priors else None
    return Terms(str(model.factory), model.options, priors, tuple(config.data.ignore))


@dataclass(frozen=True)
class OwnModel(JobModel[OutputSection]):
    """Holds a job with its clients and its parameters.

    Attributes
    ----------
    config, names : the job file, the clients' names in the order of their numbers
    """

    config: Config
    parameters: tuple[str, ...]  # their names, in the order in which they travel
    given: Given | None = None  # the model's own prior, at the server; None where the job has [model.priors], and at other places

    @property
    def keeps_points(self) -> bool:
        """Whether clients may come to the result, or go, later: to none of these."""
        return False

    @property
    def terms(self) -> Terms:
        """The job's keys on the models."""
        terms = terms_of(self.config)
        assert terms is not None
        return terms

    @property
    def prior(self) -> Priors | Given:
        """The prior of the job, or that of the model."""
        prior = self.terms.priors or self.given
        assert prior is not None  # at the server, which alone asks
        return prior

    @property
    def size(self) -> int:
        """P, the number of parameters."""
        return len(self.parameters)

    @property
    def n_coefficients(self) -> int:
        """The number of parameters, by which `fedkern check` counts rows."""
        return self.size

    @property
    def n_of_a_site(self) -> int:
        """The number of parameters that a client tells of its rows alone."""
        return self.size

    @property
    def has_mode(self) -> bool:
        """Whether the mode is looked for: it has no meaning for unknowns of clients."""
        return not self.local

    @property
    def chains(self) -> bool:
        """Whether Markov chains are run."""
        return self.config.chains

    @property
    def secure(self) -> bool:
        """Whether the server gets sums over clients alone of what the rounds ask."""
        return False

    @property
    def asks_dispersion(self) -> bool:
        """Whether clients are asked at the mode how counts vary."""
        return False

    @property
    def tells_draws(self) -> bool:
        """Whether clients are told draws of the chains."""
        return False

    @property
    def variational(self) -> bool:
        """Whether q(xi), and each client's q(u | xi), are fitted, about which draws are weighted."""
        return self.config.algorithm.sampler == "sfvi"

    @property
    def lead(self) -> int:
        """Answers by which a client may be ahead of the slowest; 0: all answer in each round."""
        return self.config.algorithm.ahead

    @property
    def schedule_in_words(self) -> str:
        """What `check` says of the schedule."""
        return self.config.algorithm.said

    @property
    def rounds_of_fit(self) -> int:
        """Rounds of a variational fit."""
        return self.config.job.rounds

    @property
    def agreed(self) -> dict[str, object]:
        """What the parties have agreed on before the rounds of a variational fit, beside the job."""
        return {"parameters": list(self.parameters)}

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
        known = {"clients": len(self.names), "rounds_messages": config.rounds_messages}
        computed = {"starts": starts, "nodes": 1, "most_nodes": 1, "without": self.output.without, **known, **more}
        return settings_of(Settings, config.job, config.algorithm, advice=self.advice, **computed)

    @property
    def advice(self) -> Advice:
        """The remedies that errors name."""
        prior = "[model.priors]" if self.terms.priors is not None else "its log_prior"
        return Advice(
            f'values of model.factory = "{self.terms.factory}" are minus infinity there, or no numbers; write them as a function '
            "that has a density at all parameters, and compute logarithms without overflow",
            f"give it a proper prior ({prior})",
            f"Where nothing in the rows says how large a parameter is, it has no end: give it a narrower prior ({prior})",
        )

    @property
    def walks(self) -> hmc.Settings:
        """The numbers that all parties have in common where chains are run."""
        c, burn_in = self.config, self.config.burn_in
        return hmc.Settings(
            draws=c.job.rounds - burn_in,
            warmup=burn_in,
            chains=self.output.chains,
            leapfrog=c.algorithm.leapfrog_steps,
            step=STEP if not self.local else STEP / 2,
            seed=self.seed,
            jitter=JITTER,
            whole=True,
        )

    @property
    def protocol(self) -> Protocol[importance.Server, importance.Client]:
        """The protocol with only the messages that this job can send."""
        return importance.protocol(self.settings)

    @property
    def coordinates(self) -> importance.Coordinates:
        """The meaning of the numbers of xi: any of them may have heavy tails."""
        return importance.Coordinates(self.prior.coordinates)

    def starts(self, n: int) -> Array:
        """Returns (n, P) the middle of the prior, and draws of it."""
        u = rng.uniform(n * self.size, key=rng.key(self.seed, "posterior", STARTS)).reshape(n, self.size)
        u[0] = 0.5
        return self.prior.drawn(u)

    def start(self) -> tuple[importance.Server, ServerEffects]:
        """Returns the server's machine with its first messages."""
        settings = self.settings
        return importance.start(settings, self.prior, self.names, self.coordinates, self.starts(settings.starts))

    def client(self, index: int, likelihood: Own, rules: Rules) -> importance.Client:
        """Returns a client's machine, before it has seen anything; no rule is known for what packages make of rows."""
        return importance.client(self.names[index], index, self.settings, likelihood, self.terms.priors)

    def walk(self, mode: importance.Server | None) -> tuple[hmc.Server, ServerEffects]:
        """Returns the server's machine of the chains, with its first messages.

        Chains begin around the mode; where none is looked for, near the middle of the prior.
        """
        s, prior = self.walks, self.prior
        if mode is None:
            return hmc.start(s, prior, self.names, self._scattered(s))
        at_mode = importance.read_result(mode)
        metric = hmc.Metric.of(at_mode.mode, at_mode.precision)
        return hmc.start(s, prior, self.names, metric.sent(s.starts(SERVER, self.size)), metric)

    def _scattered(self, s: hmc.Settings) -> Array:
        """(chains, P) Draws of the prior between its quartiles: far out, a chain may find nothing to climb."""
        u = rng.uniform(s.chains * self.size, key=rng.key(self.seed, "posterior", STARTS)).reshape(s.chains, self.size)
        return self.prior.drawn(0.25 + u / 2)

    def walker(self, index: int, likelihood: Own, at_mode: importance.Client | None) -> hmc.Client:
        """Returns a client's machine of the chains."""
        s, machine = self.walks, likelihood
        if self.local:
            u = 0.1 * s.starts(index, machine.local_size)
            return hmc.client(self.names[index], index, s, Joint(machine), u)
        units = self.settings.units_of_chains(s.rounds * s.chains * s.leapfrog)
        return hmc.client(self.names[index], index, s, Whole(machine, units))

    @property
    def published(self) -> tuple[str, ...]:
        """The names of the coefficients that are published: it has none."""
        return ()

    def at_references(self, points: Array) -> tuple[Array, None, dict[str, Array]]:
        """Returns no coefficients, and what `natural` returns, at points (N, P)."""
        return np.empty((len(points), 0)), None, self.natural(points)

    def natural(self, points: Array) -> dict[str, Array]:
        """Returns name -> (N,) values of each parameter, at points (N, P)."""
        values = np.asarray(self.prior.natural(points), np.float64)
        return {name: values[:, k] for k, name in enumerate(self.parameters)}


@dataclass(frozen=True)
class Whole:
    """Rounds an own model without unknowns of its client for chains: values and gradients to these units, if there are any."""

    own: Own
    units: tuple[float, float] | None
    size: int = 0

    @property
    def n_global(self) -> int:
        """P, the number of parameters."""
        return self.own.size

    def log_joint_grad(self, xi: Array, u: Array) -> tuple[float, Array, Array]:
        """Returns log p(rows | xi) at one point (P,), its gradient, and an empty one."""
        value, gradient, nothing = self.log_joint_grads(xi[np.newaxis], u[np.newaxis])
        return float(value[0]), gradient[0], nothing[0]

    def log_joint_grads(self, xi: Array, u: Array) -> tuple[Array, Array, Array]:
        """Returns the same for all chains (c, P) at once."""
        value, gradient = self.own.gradients(xi)
        if self.units is not None:
            value, gradient = told(value, self.units[0]), told(gradient, self.units[1])
        return value, gradient, np.zeros((len(xi), 0))


@dataclass(frozen=True)
class Joint:
    """Gives chains an own model with unknowns of its client, which stay there."""

    own: Own

    @property
    def n_global(self) -> int:
        """P, the number of parameters."""
        return self.own.size

    @property
    def size(self) -> int:
        """The number of the client's unknowns."""
        return self.own.local_size

    def log_joint_grad(self, xi: Array, u: Array) -> tuple[float, Array, Array]:
        """Returns log p(rows, u | xi), and its gradients."""
        return self.own.joint(xi, u)

    def log_joint_grads(self, xi: Array, u: Array) -> tuple[Array, Array, Array]:
        """Returns the same for all chains at once."""
        return self.own.joints(xi, u)
