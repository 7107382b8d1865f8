"""Says a line to the person at whose place a process of a job between organisations runs."""

from __future__ import annotations

import sys

from ..printing import printable_lines


def say(text: str) -> None:
    """Prints a line to the standard error."""
    print(f"fedkern: {printable_lines(text)}", file=sys.stderr, flush=True)
