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
from ..core import tells
from ..core.exchange import Answer

BYTES = 4096


@dataclass(frozen=True)
class Certificate(
    Answer,
    kind=5,
    tells=tells.Public(private="what it has spent, from public numbers"),
    name="certificates",
    ask=("AskCertificate", 4),
    dims={"certificate": BYTES},
    drops=True,  # budgets are spent: the result stands
):
    """Client to server: JSON with the fields of `privacy.certificate_fields`, every one of its type and in its range."""

    text: Annotated[bytes, "certificate"]

    @classmethod
    def of(cls, certificate: Mapping[str, object]) -> Certificate:
        """Returns the message with a certificate."""
        plain = {k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in certificate.items()}
        return cls(0, json.dumps(plain, allow_nan=False).encode())

    @property
    def content(self) -> Record:
        """The certificate; ValueError if it is no JSON."""
        try:
            certificate: Mapping[str, object] = json.loads(self.text)
        except RecursionError as fault:
            raise ValueError("too deep") from fault
        return certificate

    def wrong(self) -> str:
        """Returns the reason why it cannot be one: no JSON, a missing or unknown field, or a value that cannot be."""
        try:
            wrong = find_problem(self.content)
        except ValueError:
            wrong = ".text is not JSON"
        return f"its Certificate{wrong}" if wrong else ""
