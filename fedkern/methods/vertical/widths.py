"""Computes how far standard deviations are too small because q is a product over parties, whether counts vary too much, and
which numbers a prior moves that does not fit the response's unit.

The server knows the response and, of each row, every client's part of the predictor, hence the rows' weights w = E(-l''). With
D = (1, g_1 / sd, .., g_J / sd) the precision of the intercept and of moves along the parts is P = D'WD + prior; a product has
1 / P_kk for the variance of each, the joint posterior (P^-1)_kk. Nothing else of a client's columns is known: an
intercept is too narrow by at least this, a client's coefficients along its part by about this.

The slope of each log-prior at the posterior times the posterior standard deviation is how many of these the prior moves the
number by. Of a client's coefficients the server takes the part of the predictor for one coefficient of the part's size.
Source: docs/spec/vertical.md, sections 2 and 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...algorithms.exchanges.sums import PearsonSums
from ...algorithms.split import machine as vertical
from ...arrays import Array
from ...finding import Finding
from ...models.glm import Rows, pearson_sums
from ...results import dispersion, guard
from ...results.dispersion import Dispersion
from ...results.verdict import Check
from .model import VerticalModel
from .undivided import Undivided

ENOUGH = 0.9  # of the right standard deviation
SURE = 10.0  # times the noise of a part's mean that it has to vary to be a direction
LIMIT = 1.0  # posterior standard deviations


@dataclass(frozen=True)
class Widths:
    """Holds the ratios that the server computes from the rows."""

    intercept: float  # ratio of its standard deviation to that of the joint posterior; 1 without an intercept
    clients: dict[str, float]  # the same for each client, along its part
    counts: Dispersion | None = None  # how counts vary; None for other responses

    @property
    def _narrow(self) -> dict[str, float]:
        named = {"the intercept": self.intercept} | {f"client {name}": ratio for name, ratio in self.clients.items()}
        return {name: ratio for name, ratio in sorted(named.items(), key=lambda item: item[1]) if ratio < ENOUGH}

    @property
    def checks(self) -> list[Check]:
        """Whether widths are wide enough, and counts vary as the model says."""
        narrow = self._narrow
        if narrow:
            first = next(iter(narrow))
            found = Finding.of("narrow-product", factors=[(name, 1 / ratio) for name, ratio in narrow.items()])
            parameter = "intercept" if first == "the intercept" else first
            return [Check(found, False, parameter), *self._of_counts]
        found = Finding.of("wide-as-parts-tell", least=min([self.intercept, *self.clients.values()]))
        return [*self._of_counts, Check(found, "settled")]

    @property
    def _of_counts(self) -> list[Check]:
        # Below 1 a ratio may only say how many coefficients the clients have.
        if self.counts is None or (self.counts.off and self.counts.ratio < 1):
            return []
        return self.counts.checks

    @property
    def notes(self) -> list[str]:
        """What a reader has to know beside the verdict."""
        return [] if self.counts is None else list(dispersion.notes(self.counts))


def own_words(ratio: float | None, *, widened: bool) -> str:
    """Returns the text for a client about its ratio; "" where q's standard deviations are wide enough."""
    if ratio is None or ratio >= ENOUGH:
        return ""
    text = (
        f"q's standard deviations along this client's part of the predictor are about {1 / ratio:.2f} times too small, as the "
        "server finds from the parts of all: under the rows' weights it goes with other parties' unknowns"
    )
    if widened:
        return f"{text}; these are wider by it (sd_of_q has q's own), and means may be up to a quarter of one off"
    return f"{text}; these are q's own, multiply them by this"


def parts_of(server: vertical.Server, model: VerticalModel) -> Array | None:
    """Returns (J, N) clients' parts as the augmented model has them; None where rows were not all seen."""
    J = len(model.names)
    share = (J - 1) / J if model.power else 1.0
    return server.seen.parts(model.rho**2 * share)


@guard.check("the widths", None)
def measure_widths(server: vertical.Server, model: VerticalModel, to: Undivided, b: float, log_scale: float) -> Widths | None:
    """Computes widths from the last half of the rounds; None where rows were not all seen. `b`, `log_scale`: as they are
    published."""
    assert server.y is not None
    J, y = len(model.names), server.y
    seen = parts_of(server, model)
    if seen is None:
        return None
    parts = to.factor * seen
    offset = 0.0 if server.offset is None else server.offset
    eta = b + parts.sum(axis=0) + offset
    likelihood = model.likelihood
    scale = float(likelihood.sd(log_scale))
    noise = to.factor**2 * model.rho**2 / server.seen.counts.min()
    intercept, ratios = _ratios(model, parts, _weights(model, eta, scale), noise)
    counts = None
    if likelihood.record.counted and likelihood.record.noise is not None:
        n, _, events, misfit, noisy, slope = pearson_sums(Rows(eta[:, None], y), np.ones(1), likelihood.family, scale)
        sums = PearsonSums(0, n, 1.0, events, misfit, noisy, slope)
        counts = dispersion.pool(likelihood.family, scale, [sums], J + server.shared.intercept)
    return Widths(intercept, dict(zip(model.names, ratios)), counts)


def _weights(model: VerticalModel, eta: Array, scale: float) -> Array:
    """Returns (N,) E(-l'') of each row."""
    record = model.likelihood.record
    mean = record.mean(eta)
    if record.binary:
        return record.spread(mean, scale, None)
    slope = np.maximum(mean, 1e-30) if record.link == "log" else np.ones(len(eta))
    argument = slope if record.link == "log" else mean
    return np.asarray(slope**2 / record.spread(argument, scale, None))


def _ratios(model: VerticalModel, parts: Array, w: Array, noise: float) -> tuple[float, list[float]]:
    """Returns the ratio of the intercept, and of each client. A part that is no more than noise is no direction: 1."""
    sds = parts.std(axis=1)
    directions = np.flatnonzero(sds**2 > SURE * noise)
    D, prior = [parts[k] / sds[k] for k in directions], [model.prior(int(k)).sd ** -2 for k in directions]
    if model.intercept:
        D, prior = [np.ones(parts.shape[1]), *D], [model.server.prior_sd**-2, *prior]
    if not D:
        return 1.0, [1.0] * len(parts)
    X = np.array(D)
    P = (X * w) @ X.T + np.diag(prior)
    by_unknown = np.minimum(1 / np.sqrt(np.diag(P) * np.diag(np.linalg.inv(P))), 1.0).tolist()
    first = by_unknown.pop(0) if model.intercept else 1.0
    named = dict(zip(directions.tolist(), by_unknown))
    return first, [named.get(k, 1.0) for k in range(len(parts))]


@dataclass(frozen=True)
class Pulls:
    """Holds by how many posterior standard deviations priors move numbers to their centres."""

    # what is moved, in words -> the number of standard deviations, and the key with its value
    moved: dict[str, tuple[float, str]]
    size: float  # the response's standard deviation

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
    """Computes pulls from the last state of the server; None where the response has no unit. `parts`: (J, N) the clients' parts;
    None where rows were not all seen."""
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
