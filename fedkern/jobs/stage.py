"""Describes stages: the exchanges of a job as values.

A method says which it has, in `stages.py`. `fedkern check` prints that list, and a run exchanges nothing that is not on it, so
that the messages which leave a client can't drift from those that were announced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from typing import Protocol as Shape

from ..algorithms.core.exchange import Exchange
from ..algorithms.core.masked import Sum, Sums
from ..algorithms.core.messages import Message, Protocol, Refused
from ..algorithms.exchanges import column_sums, counted, odd_response, rare_levels
from ..results.plain import Record


class Sized(Shape):
    """Describes a module of `algorithms.exchanges` whose messages have the same sizes in all jobs."""

    @property
    def PROTOCOL(self) -> Protocol[Any, Any]: ...
    @property
    def DIMS(self) -> Mapping[str, int]: ...


@dataclass(frozen=True)
class Stage:
    """Describes one exchange of a job, before it happens."""

    # protocol, dims: all that a transport knows of its algorithm; the sizes of its messages
    protocol: Protocol[Any, Any]
    dims: Mapping[str, int] = field(default_factory=dict)
    rounds: int | None = None  # their number, if it is known before, for the progress
    resumable: bool = False  # whether checkpoints are made of it, from which an interrupted run goes on
    # how often a message comes at most in the job, where that is not once a round (or once, without rounds)
    times: Mapping[type[Message], int] = field(default_factory=dict)
    by_chance: bool = False  # whether chance or speed decides whom a round asks: such numbers are means over the clients
    runs: int = 1  # how often the stage comes for one client, with all its messages
    in_turn: bool = False  # whether its questions go to one client after another, each when the one before has answered
    alias: str = ""  # its name in ledgers and folders where the same stage comes once more
    sums: Sums | None = None  # how clients mask their answers, of which the server gets only the sum; None: as they are
    # how many questions, or groups of them that are asked at once, wait for one another: as many as the job's plan fixes, or as
    # such jobs usually take; None: not known before
    trips: int | None = None
    usually: bool = False  # whether `trips` is what is usual
    # what the parties have agreed on before, where the result hangs on the order of answers, which the server then keeps
    agreed: Record | None = None

    @classmethod
    def of(cls, module: Sized) -> Stage:
        """Returns the exchange of this module."""
        return cls(module.PROTOCOL, module.DIMS, times=getattr(module, "TIMES", {}))

    @classmethod
    def asking(cls, answer: type[Exchange], dims: Mapping[str, int] | None = None, *, secure: bool = False) -> Stage:
        """Returns the stage of a declared exchange; `dims`: the sizes that hang on the job, `secure`: of masked answers."""
        return cls(answer.protocol, {**answer.dims, **(dims or {})}).with_sums(answer.hidden, secure=secure)

    def often(self, kind: type[Message], rounds: int | None) -> int:
        """Returns the largest number of messages of a kind between the server and a client.

        `rounds`: at most, where only budgets end the job.
        """
        if kind is Refused:
            return 1
        return self.runs * self.times.get(kind, self.rounds or (rounds + 1 if rounds and self.resumable else 1))

    def with_alias(self, alias: str) -> Stage:
        """Returns the same stage once more, under another name: its messages are listed already."""
        return replace(self, alias=alias)

    def with_sums(self, sums: tuple[Sum, ...], *, secure: bool = True, of_rows: bool = True) -> Stage:
        """Returns the same stage with masked answers in the place of its own, where sums are secure."""
        if not secure:
            return self
        most = {kind: self.often(kind, None) for kind in self.protocol.to_client}
        made = Sums(self.protocol, sums, self.dims, most, of_rows)
        masks: dict[type[Message], type[Message]] = {added.kind: added.masked for added in sums}
        times = {masks.get(kind, kind): n for kind, n in self.times.items()}
        return replace(self, protocol=made.masked, dims=made.masked_dims, times=times, sums=made)

    @property
    def named_protocol(self) -> Protocol[Any, Any]:
        """The protocol under the name that ledgers and folders have."""
        return replace(self.protocol, name=self.alias or self.protocol.name)

    @property
    def words(self) -> tuple[str, tuple[type[Message], ...], tuple[type[Message], ...], dict[str, int]]:
        """The parts of the stage that `fedkern check` prints, whatever its alias."""
        return self.protocol.name, self.protocol.to_client, self.protocol.to_server, dict(self.dims)


def column_sums_stage(runs: int = 1) -> Stage:
    """Returns the stage in which centres and scales of columns are found from sums over all clients alone."""
    stage = Stage(column_sums.protocol(), column_sums.DIMS, times=column_sums.TIMES, runs=runs)
    return stage.with_sums(column_sums.SUMS)


def counts_stage() -> Stage:
    """Returns the stage in which each client adds up itself what all have counted."""
    return replace(Stage.of(counted), runs=counted.ROUNDS)


def rare_levels_stage(*, secure: bool, runs: int = 1) -> Stage:
    """Returns the stage in which clients say which levels they cannot keep; it is left out where no column has levels."""
    stage = replace(Stage.of(rare_levels), runs=runs, usually=True)
    # Rules on sums are judged on the levels that are left.
    return stage.with_sums(rare_levels.RareLevels.hidden, secure=secure, of_rows=False)


def odd_response_stage() -> Stage:
    """Returns the stage in which each client compares its response with those of all others together."""
    return Stage(odd_response.protocol(), odd_response.DIMS).with_sums(odd_response.SUMS)
