"""Says which contradictions between clients nobody has looked for, where masks or noise hide them.

A result that is silent would be read as one whose clients agree. Source: docs/concepts/convergence.md, "Sites that differ".
"""

from __future__ import annotations

from ..finding import Finding


def describe(why: str) -> str:
    """Returns the note on contradictions between clients that were not looked for; `why`: what hides them."""
    return Finding.of("nobody-compared-clients", why=why)
