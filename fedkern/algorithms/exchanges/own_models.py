"""Checks, before a job whose log-likelihoods are computed by the holders' own packages, that everybody has the same package.

The server sends the names of the parameters, in the order in which they travel; each client sends the distribution of its
factory, and its version. Source: docs/how-to/own-model.md.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

from ..core import tells
from ..core.exchange import Answer, Ask
from ..core.messages import RemoteFault


@dataclass(frozen=True)
class AskOwnModel(Ask, kind=228):
    """Server to client: the names of the parameters, in their order, as JSON."""

    names: Annotated[bytes, "names"]

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names.

        Raises
        ------
        RemoteFault
            They are none.
        """
        said = _read(self.names)
        if not isinstance(said, list) or not all(isinstance(name, str) for name in said):
            raise RemoteFault("server: AskOwnModel.names are no list of texts")
        return tuple(said)


@dataclass(frozen=True)
class OwnModel(
    Answer,
    kind=229,
    tells=tells.Nothing(),
    name="own-models",
    ask=AskOwnModel,
    dims={"names": 1 << 15, "package": 512},  # bytes of the texts
    needs="nothing is computed yet; start again when it is back",
):
    """Client to server: the distribution of its factory, and its version, as JSON; whether it is installed from a folder that may
    change (1 or 0)."""

    package: Annotated[bytes, "package"]
    editable: int

    @property
    def said(self) -> tuple[str, str]:
        """The distribution and its version."""
        said = _read(self.package)
        assert isinstance(said, list)  # `wrong` has looked
        return str(said[0]), str(said[1])

    @classmethod
    def of(cls, distribution: str, version: str, *, editable: bool) -> OwnModel:
        """Returns the answer."""
        return cls(0, json.dumps([distribution, version]).encode(), int(editable))

    def wrong(self) -> str:
        """Returns the reason why this is no client's package, or "" if it can be."""
        said = _read(self.package)
        if not (isinstance(said, list) and len(said) == 2 and all(isinstance(part, str) for part in said)):
            return "its OwnModel.package is no distribution and version"
        return "" if self.editable in (0, 1) else "its OwnModel.editable is neither 0 nor 1"


def make_question(names: tuple[str, ...]) -> AskOwnModel:
    """Returns the question."""
    return AskOwnModel(0, json.dumps(names, ensure_ascii=False).encode())


def _read(text: bytes) -> object:
    """Returns the value of a JSON text, or None."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
