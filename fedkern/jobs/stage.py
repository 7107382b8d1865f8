"""Stages: the exchanges of a job as values.

A method says which it has, in `stages.py`. `fedkern check` prints that list, and a run exchanges nothing that is not on it, so
that what leaves a client can't drift from what is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from typing import Protocol as Shape

from ..algorithms.core.messages import Message, Protocol


class Question(Shape):
    """A module of `algorithms.exchanges` whose messages have the same sizes in all jobs."""

    @property
    def PROTOCOL(self) -> Protocol[Any, Any]: ...
    @property
    def DIMS(self) -> Mapping[str, int]: ...


@dataclass(frozen=True)
class Stage:
    """One exchange of a job, before it happens.

    Attributes
    ----------
    protocol, dims : all that a transport knows of its algorithm; the sizes of its messages
    rounds : as far as they are known before, for the progress
    resumable : whether checkpoints are made of it, from which an interrupted run goes on
    allgather : whether there is no server: each client sends to all others, and makes the server's draws itself
    alias : its name in ledgers and folders where the same stage comes once more
    """

    protocol: Protocol[Any, Any]
    dims: Mapping[str, int] = field(default_factory=dict)
    rounds: int | None = None
    resumable: bool = False
    allgather: bool = False
    alias: str = ""

    @classmethod
    def of(cls, question: Question) -> Stage:
        """One question to each client."""
        return cls(question.PROTOCOL, question.DIMS)

    def named(self, alias: str) -> Stage:
        """The same stage once more: what it sends is said already."""
        return replace(self, alias=alias)

    @property
    def named_protocol(self) -> Protocol[Any, Any]:
        """The protocol under the name that ledgers and folders have."""
        name = self.alias or self.protocol.name
        return replace(self.protocol, name=f"{name}-allgather" if self.allgather else name)

    @property
    def words(self) -> tuple[str, tuple[type[Message], ...], tuple[type[Message], ...], dict[str, int], bool]:
        """What `fedkern check` says of it, whatever its alias."""
        return self.protocol.name, self.protocol.to_client, self.protocol.to_server, dict(self.dims), self.allgather
