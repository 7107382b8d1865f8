"""Certificates: what comes back is what the client's budget said, and nothing else is taken."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest

from fedkern.algorithms.core.once import ready_client
from fedkern.algorithms.exchanges.answers import Certificate
from fedkern.privacy.accountant import Mechanism
from fedkern.privacy.certificate import certificate

NOISE: dict[str, Any] = {"clip": 1.0, "dimension": 4, "noise_multiplier": 20.0}  # of little noise epsilon takes a second each
MECHANISMS = {
    "poisson": Mechanism(sampling="poisson", sampling_rate=0.1, **NOISE),
    "truncated": Mechanism(sampling="poisson-truncated", sampling_rate=0.1, max_batch=20, dataset_size=100, **NOISE),
    "fixed": Mechanism(sampling="without-replacement", batch_size=10, dataset_size=100, **NOISE),
    "full": Mechanism(sampling="full", **NOISE),
    "shards": Mechanism(sampling="shards", **NOISE),
    "aligned": Mechanism(sampling="aligned", dataset_size=100, **NOISE),
    "client": Mechanism(sampling="full", unit="client", **NOISE),
    "keyed": Mechanism(sampling="full", secure=False, **NOISE),
}


def content(mechanism: Mechanism = MECHANISMS["full"], **changes: Any) -> dict[str, Any]:
    return certificate(mechanism, steps=20, epsilon_cap=math.inf, delta=1e-5, policy=True, **changes)


SPENT = content()


def read(server: Any) -> dict[int, Any]:
    return {k: reply.content for k, reply in server.replies.items()}


def sent(content: dict[str, Any]) -> Certificate:
    return Certificate(0, json.dumps(content).encode())


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("name", MECHANISMS)
def test_every_certificate_that_a_job_can_make_is_taken(name: str, rows: int) -> None:
    made = content(MECHANISMS[name], rows_per_person=rows)
    server, _ = Certificate.question.start(1, Certificate.ask(0))
    _, (answer,) = Certificate.question.client_receive(ready_client(Certificate.of(made)), Certificate.ask(0))
    server, _ = Certificate.question.server_receive(server, 0, answer)  # type: ignore[arg-type]
    assert read(server) == {0: made}


def test_everybody_is_asked_and_answers() -> None:
    server, asked = Certificate.question.start(2, Certificate.ask(0))
    for client, question in reversed(asked):
        assert not Certificate.question.finished(server)
        _, (answer,) = Certificate.question.client_receive(ready_client(Certificate.of({**SPENT, "steps": client})), question)  # type: ignore[arg-type]
        server, effects = Certificate.question.server_receive(server, client, answer)  # type: ignore[arg-type]
        assert effects == []
    assert Certificate.question.finished(server)
    assert read(server) == {0: {**SPENT, "steps": 0}, 1: {**SPENT, "steps": 1}}


def test_an_infinite_epsilon_travels_as_text() -> None:
    assert json.loads(Certificate.of({"epsilon": math.inf}).text) == {"epsilon": "inf"}


WRONG = {
    "epsilon": [math.nan, -1, math.inf, "infinite", True, None, [1], 10**400],
    "delta": [2, -1e-9, "0.1", math.nan],
    "epsilon_cap": [math.nan, "none"],
    "unit": ["row", 1],
    "neighbours": ["", "x" * 601, "a\x1b[2J", "a\u202eb", 3],
    "sampling": ["all", None],
    "sampling_rate": [1.5, -0.1],
    "steps": [-1, 1.5, True, 2**60, "3"],
    "noise_multiplier": [0, -2, math.inf],
    "clip": [0, math.nan],
    "noise_source": ["os", False],
    "rows_per_person": [0, 1.0],
    "claim": [1, ["x"]],
    "person_epsilon": [-1],
    "person_delta": [7],
    "total_epsilon": [0.3],  # what was spent in other jobs is nobody's business
}


def refused(content: dict[str, Any], field: str) -> None:
    """The result stands without it, and says why."""
    server, _ = Certificate.question.start(1, Certificate.ask(0))
    server, _ = Certificate.question.server_receive(server, 0, sent(content))
    assert server.replies == {}
    assert re.match(rf"its Certificate.*{field}", server.dropped[0])
    assert Certificate.question.finished(server)


@pytest.mark.parametrize("field", WRONG)
def test_a_field_that_cannot_be_is_refused_by_its_name(field: str) -> None:
    for value in WRONG[field]:
        refused({**SPENT, field: value}, field)


@pytest.mark.parametrize("field", [name for name in SPENT if name != "mechanisms"])  # of earlier versions in words
def test_a_field_that_is_missing_is_named(field: str) -> None:
    refused({name: value for name, value in SPENT.items() if name != field}, rf"\.{field} is missing")


def test_keyed_noise_cannot_have_a_finite_epsilon() -> None:
    refused({**content(MECHANISMS["keyed"]), "epsilon": 1.0}, "epsilon is finite with keyed noise")
