"""Says which contradictions between clients nobody has looked for, where masks, noise or diagonal sites hide them.

A result that is silent would be read as one whose clients agree. Source: docs/concepts/convergence.md, "Sites that differ".
"""

from __future__ import annotations

from ..finding import Finding


def describe(why: str, *, all_of_it: bool = True) -> str:
    """Returns the note on contradictions between clients that were not looked for.

    Parameters
    ----------
    why : a clause that says what hides them
    all_of_it : whether a response the other way round and one file twice are hidden as well, and not differences alone
    """
    return Finding.of("nobody-compared-clients" if all_of_it else "nobody-compared-coefficients", why=why)
