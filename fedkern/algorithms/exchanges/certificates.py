"""Asks every client, after the last round, how much privacy budget it has spent in this job.

All numbers are functions of public ones.

The server could count too, but only the client's budget knows its charges: a crash may have cost a charge, an update may have
been shortened. The budget that the holder has spent in other jobs is not sent.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from ...plain import Record
from ...privacy.certificate_fields import find_problem
from ..core import once, tells
from ..core.messages import Message

BYTES = 4096
DIMS = {"certificate": BYTES}


@dataclass(frozen=True)
class AskCertificate(Message, kind=4):
    """Server to client: what have you spent?"""

    round: int


@dataclass(frozen=True)
class Certificate(Message, kind=5, tells=tells.Public(private="what it has spent, from public numbers")):
    """Client to server: JSON with the fields of `privacy.certificate_fields`, every one of its type and in its range."""

    round: int
    text: Annotated[bytes, "certificate"]


def make_reply(certificate: Mapping[str, object]) -> Certificate:
    """Returns the message with a certificate."""
    plain = {k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in certificate.items()}
    return Certificate(0, json.dumps(plain, allow_nan=False).encode())


def content(reply: Certificate) -> Record:
    """Returns the certificate of a message; raises ValueError if it is no JSON."""
    try:
        certificate: Mapping[str, object] = json.loads(reply.text)
    except RecursionError as fault:
        raise ValueError("too deep") from fault
    return certificate


def _wrong(reply: Certificate) -> str:
    """Returns the reason why a text cannot be a certificate: no JSON, a missing or unknown field, or a value that cannot be."""
    try:
        wrong = find_problem(content(reply))
    except ValueError:
        wrong = ".text is not JSON"
    return f"its Certificate{wrong}" if wrong else ""


QUESTION = once.Question("certificates", AskCertificate, Certificate, _wrong, drops=True)  # budgets are spent: the result stands
PROTOCOL = QUESTION.protocol
