"""Makes texts safe for a terminal, a page or a figure: names come from files, and may hold any character."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from math import isfinite
from unicodedata import category

# Control characters, marks that turn or hide what stands beside them, line ends, and halves of characters.
UNSEEN = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs"})
JOINERS = "\u200c\u200d"  # without which some scripts cannot be written


def printable(text: str, keep: str = "") -> str:
    """Returns the text with each character that cannot be seen as an escape such as `\\x1b` or `\\u202e`. Characters in `keep`
    stay: line ends of a text of several lines, for example."""
    if text.isprintable():
        return text
    stays = JOINERS + keep
    return "".join(
        character.encode("unicode_escape").decode() if character not in stays and category(character) in UNSEEN else character
        for character in text
    )


_PATH = re.compile(r"(?<![\w.~/-])/(?:[^/\s'\",;:()\[\]]+/)+([^/\s'\",;:()\[\]]+)")


def without_folders(text: str) -> str:
    """Returns the text with absolute paths cut to the names of their files: other parties need not know where a holder keeps
    them."""
    return _PATH.sub(r"\1", text)


def printable_lines(text: str) -> str:
    """Returns a text of several lines with each character that cannot be seen as an escape."""
    return printable(text, keep="\n")


def listed(names: Sequence[str], most: int) -> str:
    """Joins the first names, and says how many others there are."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def toml_text(text: str) -> str:
    """Quotes a text for TOML: as JSON does, but for characters beyond 16 bits and DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_key(name: str) -> str:
    """Returns a name as a key of a TOML table has it, in quotes where it needs them.

    Examples
    --------
    >>> from fedkern.printing import toml_key
    >>> print(toml_key("age"), toml_key("log(bmi)"))
    age "log(bmi)"
    """
    return name if _BARE.fullmatch(name) else toml_text(name)


_BARE = re.compile(r"[A-Za-z0-9_-]+")


class Lines(list[str]):
    """Holds lines for people: `print` and a prompt show them one below the other, and so does a notebook.

    Examples
    --------
    >>> from fedkern.printing import Lines
    >>> Lines(["clients  2: north, south", "rounds   3"])
    clients  2: north, south
    rounds   3
    """

    def __str__(self) -> str:
        return printable_lines("\n".join(self))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Returns the lines for notebooks, whose columns stay below each other."""
        return f'<pre style="white-space: pre; overflow-x: auto">{escape(str(self))}</pre>'


def align_numbers(*values: float, width: int = 8) -> list[str]:
    """Returns the numbers of one row, right-aligned; the last two are the ends of an interval.

    They have three decimals, and more where a quarter of the interval would have less than two digits (an odds ratio of 1.00003
    a dollar). They have powers of ten where three decimals would show nothing (a coefficient of 10^-6 a unit, a ratio of 10^70).
    """
    # One format for the row, chosen by its largest number, so that digits stand below each other.
    largest = max((abs(value) for value in values if isfinite(value)), default=0.0)
    needed = _decimals(*values[-2:]) if len(values) > 2 else None
    if largest == 0 or not 0.02 <= largest < 1e5:
        digits = 1 if largest == 0 or needed is None else min(max(1, math.floor(math.log10(largest)) + needed), 12)
        return [f"{value:>{width}.{digits}e}" if largest else f"{value:>{width}.3f}" for value in values]
    decimals = 3 if needed is None else min(max(3, needed), 12)
    return [f"{value:>{width}.{decimals}f}" for value in values]


def digits_of(row: Mapping[str, object]) -> int:
    """Returns how many digits the numbers of a row need to show two of a quarter of its interval: 4, or more.

    Examples
    --------
    >>> from fedkern.printing import digits_of
    >>> digits_of({"mean": 1.00003, "q025": 1.000026, "q975": 1.000034}), digits_of({"mean": 2.0, "q025": 1.8, "q975": 2.2})
    (8, 4)
    """
    low, high = (next((row[key] for key in keys if key in row), None) for keys in (("q025", "q05"), ("q975", "q95")))
    if not isinstance(low, (int, float)) or not isinstance(high, (int, float)) or (needed := _decimals(low, high)) is None:
        return 4
    return min(max(4, math.floor(math.log10(max(abs(low), abs(high)))) + 1 + needed), 12)


def _decimals(low: float, high: float) -> int | None:
    """Returns how many decimals show two digits of a quarter of an interval; None where it is none."""
    quarter = (high - low) / 4
    return 1 - math.floor(math.log10(quarter)) if isfinite(quarter) and quarter > 0 else None


def align_columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yields rows of equal length as lines in columns; names in them may hold any character."""
    shown = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown)]
    for row in shown:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
