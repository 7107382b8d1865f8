"""Each remedy that a message names, done to its end: what it says is gone, and the answer is that of another program.

`FOLLOWED` has for each key of a job that messages advise to change the test in which that is done, here or beside the message. A new
key of advice wants its line. References are of R 4.2.2 with lme4 1.1-31, survival 3.5-3, ordinal 2022.11-16 and MASS 7.3-58.2.
"""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.errors import FedkernError
from fedkern.transports import inprocess

Frames = dict[str, pd.DataFrame]
Numbers = dict[str, tuple[float, float]]

# The data --------------------


def dealt(rows: pd.DataFrame) -> Frames:
    """The rows of each site."""
    return {str(site): own.drop(columns="site").reset_index(drop=True) for site, own in rows.groupby("site")}


def counts() -> pd.DataFrame:
    """Counts, and successes of 20 trials, that vary more by an effect of each row with an sd of .6."""
    rng, n = np.random.default_rng(52), 240
    x, effect = rng.normal(size=n).round(3), rng.normal(0, 0.6, n)
    rows = pd.DataFrame({"site": np.repeat(list("abc"), 80), "row": [f"r{k}" for k in range(n)], "x": x, "n": 20})
    rows["y"] = rng.poisson(np.exp(1 + 0.5 * x + effect))
    rows["s"] = rng.binomial(20, 1 / (1 + np.exp(0.5 - 0.5 * x - effect)))
    return rows


def nested() -> pd.DataFrame:
    """Eight regions at each of three sites, in each three wards of eight rows; x is of the region."""
    rng = np.random.default_rng(7)
    regions, wards = rng.normal(0, 0.8, 24), rng.normal(0, 0.4, 72)
    x = rng.normal(size=24).round(3)
    ward = np.repeat(np.arange(72), 8)
    region = ward // 3
    y = 1 + 0.5 * x[region] + regions[region] + wards[ward] + rng.normal(size=len(ward))
    labels = {"region": [f"g{k}" for k in region], "ward": [f"w{k % 3}" for k in ward]}
    return pd.DataFrame({"site": np.array(list("abc"))[region // 8], **labels, "x": x[region], "y": y.round(4)})


def days() -> pd.DataFrame:
    """Times in whole days, rounded down, of a constant hazard: one event in seven is on day 0."""
    rng, n = np.random.default_rng(11), 360
    x = rng.normal(size=n).round(4)
    t, end = rng.exponential(6 * np.exp(-0.4 * x)), rng.uniform(3, 30, n)
    event = (t < end).astype(int)
    return pd.DataFrame({"site": np.repeat(list("abc"), 120), "days": np.floor(np.minimum(t, end)), "died": event, "x": x})


def grades() -> pd.DataFrame:
    """Three ordered grades; nobody has the one below them."""
    rng, n = np.random.default_rng(5), 360
    x = rng.normal(size=n).round(3)
    grade = np.digitize(x + rng.logistic(size=n), [-0.5, 1.0])
    return pd.DataFrame({"site": np.repeat(list("abc"), 120), "x": x, "grade": np.array(["mild", "bad", "worst"])[grade]})


def half_days(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(days=rows["days"].replace(0.0, 0.5))


def ends_of_days(rows: pd.DataFrame) -> pd.DataFrame:
    """Events on day 0 are between its begin and its end; rows that were last seen on it count as half a day."""
    first = rows["days"] == 0
    until = rows["days"].where(~first, 1.0).where(rows["died"] == 1)
    return rows.assign(days=rows["days"].where(~(first & (rows["died"] == 0)), 0.5), until=until)


# The remedies --------------------


@dataclass(frozen=True)
class Remedy:
    """Is a job of which a message names a remedy, and the job in which that is done.

    Attributes
    ----------
    rows, job : as they come, and the message is said
    says : a pattern of it: of an error, the first line or a note
    mended, then : rows and sections of the job after it
    wanted : parameter -> mean and sd by another program
    off : sds by which a mean may be another, and the part by which an sd may: priors are ours
    """

    rows: Callable[[], pd.DataFrame]
    job: dict[str, Any]
    says: str
    then: dict[str, Any]
    wanted: Numbers
    mended: Callable[[pd.DataFrame], pd.DataFrame] = field(default=lambda rows: rows)
    off: tuple[float, float] = (0.15, 0.1)


def of(family: str, data: dict[str, Any] | None = None, **model: Any) -> dict[str, Any]:
    return {"job": {"method": "likelihood"}, "data": data or {}, "model": {"family": family, **model}}


COUNTS, TIMES = {"response": "y", "ignore": ["row", "n", "s"]}, {"time": "days", "event": "died"}
TRIALS = {"response": "s", "trials": "n", "ignore": ["row", "y"]}
ROW = {"random": {"group": "row"}}
EACH_ROW = r"each row an effect of its own \(\[model.random\] group: a column with another label in every row\)"

REMEDIES = {}
