"""Says which contradictions between clients nobody has looked for, where masks, noise or diagonal sites hide them.

A result that is silent would be read as one whose clients agree. Source: docs/concepts/convergence.md, "Sites that differ".
"""

from __future__ import annotations

DIFFER = "coefficients or intercepts that differ by more than chance"
TURNED = "an outcome that one client has coded the other way round"
TWICE = "one file that two clients give"
REMEDY = "before the job, let the holders compare their numbers of rows, the response's mean or events, and the columns' means"


def describe(why: str, *, all_of_it: bool = True) -> str:
    """Returns the note on contradictions between clients that were not looked for.

    Parameters
    ----------
    why : a clause that says what hides them
    all_of_it : whether a response the other way round and one file twice are hidden as well, and not differences alone
    """
    what = f"{DIFFER}, {TURNED}, {TWICE}" if all_of_it else DIFFER
    return f"nobody has looked whether clients contradict each other, for {why}: {what}; {REMEDY}"
