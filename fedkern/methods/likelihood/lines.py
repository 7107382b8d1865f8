"""Makes the lines of metrics.jsonl and of the terminal on the rounds."""

from __future__ import annotations

import numpy as np

from ...algorithms.hmc import machine as hmc
from ...algorithms.importance import machine as importance
from ...jobs.watch import Line, Lines


def to_mode_and_draws() -> Lines[importance.Server]:
    """Returns the line of a round on the way to the mode, or of draws."""

    def line(server: importance.Server, due: bool) -> Line:
        content = {"rounds_to_mode": server.newton, "rounds_of_draws": len(server.draws)}
        words = f"{len(server.draws)} rounds of draws" if server.draws else f"on the way to the mode, {server.newton}"
        return Line(content, words)

    return line


def of_chains() -> Lines[hmc.Server]:
    """Returns the line of a round of the chains."""

    def line(server: hmc.Server, due: bool) -> Line:
        acceptance = float(server.acceptance.mean())
        return (
            Line({"acceptance": round(acceptance, 4)}, f"acceptance {acceptance:.2f}")
            if np.isfinite(acceptance)
            else Line({}, "burn-in")
        )

    return line
