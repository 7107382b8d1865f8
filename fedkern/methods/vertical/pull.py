"""Finds numbers that a prior moves by more than their standard deviation, since it does not fit a gaussian response's unit.

The server knows the slope of each log-prior at the posterior, and how much the rows tell there: their product with the posterior
standard deviation is how many of these the prior moves the number by. Of a client's coefficients it knows the part of the
predictor alone: along this it takes them for one coefficient of the part's size. Source: docs/spec/vertical.md, section 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...algorithms.split import machine as vertical
from ...finding import Finding
from ...results import guard
from ...results.verdict import Check
from .model import VerticalModel
from .widths import SURE

Array = NDArray[np.float64]
LIMIT = 1.0  # posterior standard deviations


@dataclass(frozen=True)
class Pulls:
    """Holds by how many posterior standard deviations priors move numbers to their centres.

    Attributes
    ----------
    moved : what is moved, in words -> the number of standard deviations, and the key with its value
    size : the response's standard deviation
    """

    moved: dict[str, tuple[float, str]]
    size: float

    @property
    def checks(self) -> list[Check]:
        """The numbers that a prior moves by more than `LIMIT`, as one check; nothing where it moves none."""
        moved = {what: by for what, by in sorted(self.moved.items(), key=lambda item: -item[1][0]) if by[0] > LIMIT}
        if not moved:
            return []
        moved_by = ", ".join(f"{what} by {by:.2g} ({key})" for what, (by, key) in moved.items())
        wider = f"{self.size:.2g}"
        remedy = {
            "sigma": f"model.scale_sd = {wider}",
            "the intercept": f"model.intercept_sd = {wider} and no model.intercept_centre",
        }
        of_clients = f"model.prior = {{sd = {wider}}} (or sd of the client's own prior)"
        keys = [remedy.get(what, of_clients) for what in (*moved, *self.moved)]  # with one of them wider the next is narrow
        found = Finding.of("moved-by-the-prior", moved=moved_by, keys=list(dict.fromkeys(keys)))
        return [Check(found, False, next(iter(moved)))]


@guard.check("the pull of the prior", None)
def measure_pulls(server: vertical.Server, model: VerticalModel, parts: Array | None) -> Pulls | None:
    """Computes pulls from the last state of the server; None where the response has no unit.

    Parameters
    ----------
    parts : (J, N) the clients' parts; None where rows were not all seen
    """
    shared, y = server.shared, server.y
    if not model.likelihood.record.measured or y is None:
        return None
    mean, sd = (moments.tolist() for moments in shared.block.moments(server.released))
    _, log_scale = shared.split(np.array(mean))
    moved: dict[str, tuple[float, str]] = {}
    if model.learns_sigma:
        ratio = math.exp(log_scale) / shared.scale_sd
        moved["sigma"] = (sd[-1] * (ratio**2 - 1), f"model.scale_sd = {shared.scale_sd:.3g}")
    if shared.intercept:
        by = sd[0] * abs(mean[0] - shared.prior_mean) / shared.prior_sd**2
        moved["the intercept"] = (by, f"model.intercept_sd = {shared.prior_sd:g} about {shared.prior_mean:.3g}")
    if parts is not None and model.kind == "linear":
        of_row = float(model.likelihood.sd(log_scale)) ** -2
        noise = model.rho**2 / server.seen.counts.min()
        for k, size in enumerate(parts.std(axis=1).tolist()):
            prior = model.prior(k)
            if size**2 > SURE * noise and not prior.mean:
                by = size / prior.sd**2 / math.sqrt(parts.shape[1] * of_row + prior.sd**-2)
                moved[f"client {model.names[k]}'s coefficients"] = (by, f"sd = {prior.sd:g}")
    return Pulls(moved, float(y.std()))
