"""Chains the lines of a log: each line ends with a hash of itself and of all lines before it.

A line that was edited, or is missing in between, shows to whoever reads the log. A tail that was cut, a file that was deleted and
an older copy that was put back show to whoever kept a `Mark` of the log elsewhere. The hash has no key: whoever may write the log
could write another whole one, which only a mark finds.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import NamedTuple

from ...plain import Json

SIZE = 16  # bytes of a hash
START = bytes(SIZE)
FIELD = b', "chain": "'
_END = re.compile(rb'[0-9a-f]{%d}"}' % (2 * SIZE))


class Mark(NamedTuple):
    """Holds the length of a log (in lines, or in bytes), and the hash of all its content."""

    length: int = 0
    head: bytes = START


def following(head: bytes, text: bytes) -> bytes:
    """Returns the hash after one more line."""
    return hashlib.blake2b(head + text, digest_size=SIZE).digest()


def seal(entry: Mapping[str, Json], head: bytes) -> tuple[bytes, bytes]:
    """Returns an entry as a line of JSON that ends with its hash; and that hash, which the next line takes up."""
    text = json.dumps(entry).encode()
    head = following(head, text)
    return text[:-1] + FIELD + head.hex().encode() + b'"}\n', head


def unseal(line: bytes) -> tuple[bytes, str | None]:
    """Returns the text that was sealed, as JSON, and the hash (hexadecimal) at the line's end; None for a line without one."""
    text, field, end = line.strip().rpartition(FIELD)
    if field and _END.fullmatch(end):
        return text + b"}", end[:-2].decode()
    return line.strip(), None
