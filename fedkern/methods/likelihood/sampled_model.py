"""Defines the model of a job as its rounds need it, whether fedkern or the holders' own packages compute the likelihood."""

from __future__ import annotations

from typing import Any, Protocol

from ...algorithms.core import messages
from ...algorithms.core.messages import ServerEffects
from ...algorithms.hmc import machine as hmc
from ...algorithms.importance import machine as importance
from ...algorithms.importance.settings import Settings
from ...disclosure.rules import Rules
from .keys import OutputSection


class SampledModel(Protocol):
    """Describes a job's model as its rounds need it: sizes, settings, and the machines of server and clients."""

    @property
    def names(self) -> tuple[str, ...]:
        """The clients' names, in the order of their numbers."""

    @property
    def output(self) -> OutputSection:
        """The [output] section: the results that are asked for."""

    @property
    def keeps_points(self) -> bool:
        """Whether clients may come to the result, or go, later."""

    @property
    def size(self) -> int:
        """P, the number of unknowns that all share."""

    @property
    def n_coefficients(self) -> int:
        """The number of coefficients by which `fedkern check` counts rows."""

    @property
    def n_of_a_site(self) -> int:
        """The number of parameters that a client tells of its rows alone."""

    @property
    def has_mode(self) -> bool:
        """Whether the mode is looked for."""

    @property
    def chains(self) -> bool:
        """Whether Markov chains are run."""

    @property
    def tells_draws(self) -> bool:
        """Whether clients are told draws of the chains."""

    @property
    def asks_dispersion(self) -> bool:
        """Whether clients are asked at the mode how counts vary."""

    @property
    def secure(self) -> bool:
        """Whether the server gets sums over clients alone of what the rounds ask."""

    @property
    def settings(self) -> Settings:
        """The numbers that every machine of the job knows."""

    @property
    def walks(self) -> hmc.Settings:
        """The numbers that all parties have in common where chains are run."""

    @property
    def protocol(self) -> messages.Protocol[importance.Server, importance.Client]:
        """The protocol with only the messages that this job can send."""

    def start(self) -> tuple[importance.Server, ServerEffects]:
        """Returns the server's machine with its first messages."""

    def client(self, index: int, likelihood: Any, rules: Rules) -> importance.Client:  # Any: of the kind that the model takes
        """Returns a client's machine, before it has seen anything; `rules`: of the job and of the client's holder."""

    def walk(self, mode: importance.Server | None) -> tuple[hmc.Server, ServerEffects]:
        """Returns the server's machine of the chains, with its first messages."""

    def walker(self, index: int, likelihood: Any, at_mode: importance.Client | None) -> hmc.Client:
        """Returns a client's machine of the chains; `at_mode`: its machine at the end of the way to the mode."""
