"""Jobs of tests whose clients have fewer rows than are asked for where parties are apart: they name the keys."""

from __future__ import annotations

import re

from fedkern.data.simulate.federations import NOBODYS

ANY = {"least_rows": 1}  # of [data]: the key of earlier versions, which is taken
ASKS: dict[str, float] = {"rows": 0, "rows_per_coefficient": 0, "rows_per_value": 0, "combinations": 0, "leverage": 1.0}
SET = tuple(word for name, number in ASKS.items() for word in ("--set", f"disclosure.{name}={number}"))  # of a command
TABLE = "".join(["[disclosure]\n", *(f"{name} = {number}\n" for name, number in ASKS.items())])  # of a job file


def lowered(job: str) -> str:
    """A simulated job file, for any number of rows."""
    return TABLE + re.sub(r"least_rows = \d+\n", "", job.replace(NOBODYS, "").replace(TABLE, ""))
