"""What an error is about, by its type and the things that its text names: tests compare these, and no sentence.

A thing is what stands in quotes, a key of a job (`data.clients`), an option (`--resume`), the name of a class (`AskValues`) or a
number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

THING = re.compile(
    r"""'(?P<single>[^'\s]+)'|"(?P<double>[^"\s]+)"|(?<![\w.])(?P<key>[a-z][\w-]*(?:\.[a-z][\w-]*)+)(?![\w(])"""
    r"""|(?<![\w.])(?P<number>\d[\d.e+-]*\d|\d)(?![\w.]\w)|(?<!\w)(?P<option>--[a-z-]+)|(?<![\w'.])(?P<kind>[A-Z][a-z]+\w*)"""
)


def named(text: object) -> set[str]:
    """Returns the things that a text names."""
    return {next(filter(None, match.groups())) for match in THING.finditer(str(text))}


@contextmanager
def refusal(
    kind: type[BaseException] | tuple[type[BaseException], ...], *things: str
) -> Iterator[pytest.ExceptionInfo[BaseException]]:
    """Asserts that the block raises an error of this kind that names all these things."""
    with pytest.raises(kind) as caught:
        yield caught
    assert set(things) <= named(caught.value), f"not named: {set(things) - named(caught.value)} in {caught.value}"
