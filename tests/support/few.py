"""Jobs of tests whose clients have fewer rows than an open job asks for by default: they name the key, as any job has to."""

from __future__ import annotations

ANY = {"least_rows": 1}  # of [data]
LINE = "least_rows = 1\n"  # below the line [data] of a job file
SET = ("--set", "data.least_rows=1")  # of a command
