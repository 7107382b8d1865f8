"""Jobs of tests whose clients have fewer rows than an open job asks for by default: they name the key, as any job has to."""

from __future__ import annotations

import re

ANY = {"least_rows": 1}  # of [data]
LINE = "least_rows = 1\n"  # below the line [data] of a job file
SET = ("--set", "data.least_rows=1")  # of a command


def lowered(job: str) -> str:
    """A simulated job file, for any number of rows."""
    named = re.sub(r"least_rows = \d+\n", "", job)
    return named.replace("[data]\n", f"[data]\n{LINE}", 1)
