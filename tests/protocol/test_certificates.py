"""Certificates: what comes back is what the client's budget said, and nothing else is taken."""

from __future__ import annotations

import json
import math

import pytest

from fedkern.algorithms import certificates as c
from fedkern.algorithms.messages import ClientLost, RemoteFault

SPENT = {"epsilon": 0.5, "steps": 20, "neighbours": "add or remove one example"}


def test_everybody_is_asked_and_answers() -> None:
    server, asked = c.start(2)
    assert [client for client, _ in asked] == [0, 1]
    for client, question in reversed(asked):
        assert not c.finished(server)
        _, (answer,) = c.client_receive(c.Client({**SPENT, "steps": client}), question)  # type: ignore[arg-type]
        server, effects = c.server_receive(server, client, answer)  # type: ignore[arg-type]
        assert effects == []
    assert c.finished(server)
    assert server.replies == {0: {**SPENT, "steps": 0}, 1: {**SPENT, "steps": 1}}


def test_an_infinite_epsilon_travels_as_text() -> None:
    _, (answer,) = c.client_receive(c.Client({"epsilon": math.inf}), c.AskCertificate(0))
    assert json.loads(answer.text) == {"epsilon": "inf"}  # type: ignore[union-attr]


def test_nobody_waits_for_a_lost_client() -> None:
    server, _ = c.start(2)
    server, _ = c.server_receive(server, 1, ClientLost(1))
    server, _ = c.server_receive(server, 0, c.Certificate(0, b"{}"))
    assert c.finished(server)
    assert server.replies == {0: {}}


BAD = [b"", b"[1]", b'"x"', b"{", b'{"a": [1]}', b'{"a": {"b": 1}}', b'{"a": null}', b"[" * 4000, b"\xff"]


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_flat_table_is_refused(text: bytes) -> None:
    server, _ = c.start(1)
    with pytest.raises(RemoteFault, match=r"client 0: Certificate\.text"):
        c.server_receive(server, 0, c.Certificate(0, text))


def test_a_second_certificate_is_refused() -> None:
    server, _ = c.start(1)
    server, _ = c.server_receive(server, 0, c.Certificate(0, b"{}"))
    with pytest.raises(RemoteFault, match="client 0: Certificate came twice"):
        c.server_receive(server, 0, c.Certificate(0, b"{}"))
