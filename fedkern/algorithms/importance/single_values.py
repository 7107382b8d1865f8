"""Collects, after the draws of a job with secure sums, each client's own log-likelihoods there, without masks, one by one.

A job has it only where job and policies name it (`sums_except`): the result without each client is made of these. A client
sends what it has masked in the rounds before, rounded, and nothing at points that a server chooses now. Their sum has to be
the one that the server has. Source: docs/concepts/secure-sums.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from ...arrays import Array
from ..core import once, tells
from ..core.masked import ALL
from ..core.messages import Message, RemoteFault
from .settings import LOST, OF_WORDS

FAR = 1e6  # nats, by which a draw has no weight


@dataclass(frozen=True)
class AskSingleValues(Message, kind=258):
    """Server to client: send your values of so many last rounds of draws."""

    rounds: int


@dataclass(frozen=True)
class SingleValues(Message, kind=259, tells=tells.Points(f"{tells.LIKELIHOOD}, without a mask")):
    """Client to server: L_j at each draw of these rounds, as it was masked in them; zeros in the place of other rounds."""

    values: Annotated[Array, "singles"]


def dims(rounds: int, points: int) -> dict[str, int]:
    """Returns the sizes of the messages: of so many rounds at most."""
    return {"singles": rounds * points}


def answer_of(values: Array, most: int) -> Callable[[AskSingleValues], SingleValues]:
    """Returns what answers of a client's values (rounds, points) in its rounds of draws; `most`: rounds that a message has."""

    def answer(query: AskSingleValues) -> SingleValues:
        if not 1 <= query.rounds <= min(len(values), most):
            raise RemoteFault(f"server: AskSingleValues of {query.rounds} rounds, and there were {len(values)}")
        values_of_rounds = np.zeros((most, values.shape[1]))
        values_of_rounds[: query.rounds] = values[len(values) - query.rounds :]
        return SingleValues(values_of_rounds.ravel())

    return answer


def read(answers: list[SingleValues], sums: Array) -> Array:
    """Returns the values (N, J) of all clients at the draws, minus infinity for none. `sums`: (N,) what the server has got of all
    clients together, minus infinity for none. Raises RemoteFault: they do not add up to these sums: a client has told other
    values than it has masked."""
    values = np.stack([answer.values[: len(sums)] for answer in answers], axis=1)
    none = (values <= LOST).any(axis=1)
    highest = sums.max(initial=-np.inf)  # far below it sums are as in `Values`
    off = OF_WORDS * (1 + len(answers)) / 2  # each is rounded, and so is their sum
    same = np.where(none, sums == -np.inf, np.abs(values.sum(axis=1) - sums) <= off) | (sums < highest - FAR)
    if not same.all():
        raise RemoteFault(
            f"client {ALL!r}: SingleValues do not add up to the sums of the rounds, at {int((~same).sum())} of {len(sums)} draws"
        )
    return np.where(values <= LOST, -np.inf, values)


QUESTION = once.Question("single-values", AskSingleValues, SingleValues)
PROTOCOL = QUESTION.protocol
