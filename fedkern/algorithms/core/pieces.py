"""Sends JSON in messages of a fixed size: a long text travels in pieces, and every field that arrives is checked before it is
used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from ...errors import JobError
from .messages import Message, RemoteFault

PIECE = 1 << 14  # bytes of one message's text
MOST = 1 << 12  # pieces of one text
DIMS = {"schema": PIECE}


@dataclass(frozen=True)
class Piece(Message):
    """Is the base of messages that carry piece `part` of `parts`."""

    round: int
    part: int
    parts: int
    text: Annotated[bytes, "schema"]


def cut(content: Mapping[str, object]) -> list[tuple[int, int, bytes]]:
    """Returns (part, parts, text) of each piece, at least one. The same content always gives the same bytes."""
    text = json.dumps(content, separators=(",", ":"), sort_keys=True, allow_nan=False).encode()
    pieces = [text[begin : begin + PIECE] for begin in range(0, len(text), PIECE)]
    if len(pieces) > MOST:
        raise JobError(
            f"the columns take {len(text)} bytes to describe, at most {MOST * PIECE} can be sent; ignore some in [data]"
        )
    return [(part, len(pieces), piece) for part, piece in enumerate(pieces)]


def add(who: str, have: tuple[bytes, ...], piece: Piece) -> tuple[tuple[bytes, ...], dict[str, Any] | None]:
    """Returns the pieces with one more, and the whole content once the last one is here. Raises RemoteFault: pieces out of order,
    too many of them, or together no JSON object."""
    if piece.part != len(have) or not piece.part < piece.parts <= MOST:
        raise RemoteFault(f"{who}.part is {piece.part} of {piece.parts}, expected {len(have)} of at most {MOST}")
    have = (*have, piece.text)
    if len(have) < piece.parts:
        return have, None
    try:
        content = json.loads(b"".join(have))
    except (ValueError, RecursionError) as fault:
        raise RemoteFault(f"{who}.text is not JSON") from fault
    if not isinstance(content, dict):
        raise RemoteFault(f"{who}.text must be a JSON object, got {type(content).__name__}")
    return (), content


def fields(who: str, content: Mapping[str, object], wanted: set[str]) -> None:
    """Refuses a content with a field too few or one that was not asked for."""
    if content.keys() != wanted:
        raise RemoteFault(f"{who} has the fields {', '.join(sorted(content)) or 'none'}; needs {', '.join(sorted(wanted))}")


def texts(who: str, name: str, value: object) -> list[str]:
    """Returns a value that must be a list of different texts."""
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value) or len(set(value)) < len(value):
        raise RemoteFault(f"{who}: {name} must be a list of different texts")
    return value


def floats(who: str, name: str, value: object, length: int) -> list[float]:
    """Returns a value that must be a list of `length` finite numbers."""
    if not isinstance(value, list) or len(value) != length:
        raise RemoteFault(f"{who}: {name} must be a list of {length} numbers")
    if not all(isinstance(x, int | float) and not isinstance(x, bool) and abs(x) < 1e308 for x in value):
        raise RemoteFault(f"{who}: {name} must be finite numbers")
    return [float(x) for x in value]


def count(who: str, name: str, value: object) -> int:
    """Returns a value that must be a whole number > 0 that a float64 can hold."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1 << 53:
        raise RemoteFault(f"{who}: {name} must be a count > 0")
    return value
