"""Measures how long a holder's machine computes for one round of draws, on a few of its points.

A client that is silent for longer than `job.deadline` counts as lost.
"""

from __future__ import annotations

import time

import numpy as np

from ...data.design import encode
from ...errors import JobError
from ...jobs import machine
from ...jobs.check import OwnFile
from .keys import Config
from .models import model_of

ENOUGH_SECONDS = 0.5  # of a trial
FEW = 32  # points, at first
SAID = 0.1  # the part of the deadline from which on it is said
REMEDY = 3  # times as long a deadline as a round takes: the quadrature may need twice the nodes


def describe_duration(file: OwnFile[Config], deadline: float) -> list[str]:
    """Returns the line of `fedkern check --local` on the time of a round; nothing where that is short."""
    try:
        seconds = seconds_of_a_round(file)
    except JobError:  # a level that only others' files have is the reference
        return []
    if seconds < SAID * deadline:
        return []
    longer = f"; let job.deadline be at least {REMEDY * seconds:.3g}" if REMEDY * seconds > deadline else ""
    return [
        f"  note: a round of draws takes about {seconds:.2g} s on this machine, twice as long where the quadrature needs more "
        f"nodes, and a client that is silent for {deadline:g} s (job.deadline) counts as lost{longer}"
    ]


def seconds_of_a_round(file: OwnFile[Config]) -> float:
    """Returns the seconds that one round of draws takes with a holder's own file."""
    model = model_of(file.config, ("",), file.encoding)
    rows = model.likelihood(model.read(encode(file.table, model.encoding), file.table, ""), machine.cores())
    most_points, n = model.settings.points, FEW
    while True:
        points = np.tile(model.start_at, (min(n, most_points), 1))
        began = time.perf_counter()
        rows.values(points, model.layout.nodes)
        seconds = time.perf_counter() - began
        if n >= most_points or seconds > ENOUGH_SECONDS:
            return seconds * most_points / len(points)
        n *= 4
