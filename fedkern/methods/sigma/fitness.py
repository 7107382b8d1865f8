"""Measures how well the fit agrees with a client's areas: for its folder, and as sums for the server where the job asks.

Source: docs/spec/sigma.md, section 9 (checks of a fit).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from ...algorithms.exchanges.sums import FitSums
from ...arrays import Array, Indices
from ...models import psis
from ...models.likelihood import LIMIT, cut_value
from ...models.spatial import checks
from ...models.spatial.site import Site
from ...models.spatial.within_site import WithinSite
from ...results import guard

ENDS = 0.05  # of the PIT's range, where a tenth of the areas should be in both together


@dataclass(frozen=True)
class Drawn:
    """Holds draws of all unknowns at a client."""

    # xi, u, theta: (m, P), (m, size), (m, d) draws of the global unknowns, of the client's and of theta
    xi: Array
    u: Array
    theta: Array
    normals: Array  # (m, d) standard normals beside them


@dataclass(frozen=True)
class Fitness:
    """Holds measures of each area (d,), NaN where it has no rows."""

    # elpd, effective, k_hat: by PSIS-LOO
    elpd: Array
    effective: Array
    k_hat: Array
    pit: Array  # NaN also for areas with more than one row
    pearson: Array  # residuals
    waic: Array  # (d, 2) elpd and effective number by the integrated WAIC
    moran: checks.Moran | None  # Moran's I of Pearson's residuals
    left_out: int = 0  # areas whose measures are left out

    def without(self, areas: NDArray[np.bool_]) -> Fitness:
        """Replaces the measures of these areas (d,) by NaN; Moran's I has no residual of theirs."""
        each = (self.elpd, self.effective, self.k_hat, self.pit, self.pearson, self.waic.T)
        elpd, effective, k_hat, pit, pearson, waic = (np.where(areas, np.nan, values) for values in each)
        return Fitness(elpd, effective, k_hat, pit, pearson, waic.T, self.moran, int(areas.sum()))

    @property
    def columns(self) -> dict[str, Sequence[str]]:
        """The columns of areas.csv."""
        named = {"pearson": self.pearson, "pit": self.pit, "elpd": self.elpd, "k_hat": self.k_hat}
        return {name: ["" if np.isnan(v) else f"{v:.6g}" for v in values] for name, values in named.items()}

    @property
    def content(self) -> dict[str, Any]:
        """The content of fit.json: measures of all of the client's areas together."""
        fitted, pit = np.isfinite(self.pearson), self.pit[np.isfinite(self.pit)]
        totals: dict[str, object] = {
            "elpd": float(np.nansum(self.elpd)), "p_loo": float(np.nansum(self.effective)),
            "areas": int(np.isfinite(self.elpd).sum()), "unreliable": self.unreliable,
            "waic": {"waic": -2 * float(np.nansum(self.waic[:, 0])), "p_waic": float(np.nansum(self.waic[:, 1]))},
            "pearson": {"chi_square": float((self.pearson[fitted] ** 2).sum()), "areas": int(fitted.sum())},
        }  # fmt: skip
        if self.left_out:
            totals["left_out"] = {"areas": self.left_out, "why": "a count that is an interval (output.suppressed)"}
        if len(pit):
            ends = {"below_0.05": float((pit < ENDS).mean()), "above_0.95": float((pit > 1 - ENDS).mean())}
            totals["pit"] = {"areas": len(pit), "mean": float(pit.mean())} | ends
        if self.moran is not None:
            m = self.moran
            totals["moran"] = {"i": m.index, "expected": m.expected, "sd": m.sd, "z": m.z}
        return totals

    @property
    def unreliable(self) -> int:
        """The number of areas whose weights have too heavy a tail."""
        return int((self.k_hat > psis.UNRELIABLE).sum())

    @property
    def sums(self) -> FitSums:
        """The sums for the server, where the job asks."""
        elpd = cut_value(self.elpd[np.isfinite(self.elpd)])
        squares, effective = float((elpd**2).sum()), float(np.nansum(np.clip(self.effective, -LIMIT, LIMIT)))
        waic, p_waic = cut_value(self.waic[np.isfinite(self.waic).all(axis=1)]).sum(axis=0).tolist()
        return FitSums(0, len(elpd), float(elpd.sum()), squares, effective, waic, p_waic, self.unreliable)


def unknown(site: Site | WithinSite, drawn: Drawn, pairs: Indices | None, unit: float) -> Fitness:
    """Returns measures that are not known."""
    d = site.n_areas
    nothing = np.full(d, np.nan)
    return Fitness(nothing, nothing, nothing, nothing, nothing, np.full((d, 2), np.nan), None)


@guard.figure("how well the fit agrees with each area", unknown)
def of(site: Site | WithinSite, drawn: Drawn, pairs: Indices | None, unit: float) -> Fitness:
    """Computes the measures from draws of the posterior; `unit` is that of the response in the model's."""
    xi, theta = drawn.xi, drawn.theta
    mean, v = site.without_rows(xi, drawn.u, theta)
    log_density = checks.log_density(site, xi, mean, v) - site.counts * np.log(unit)
    left_out = psis.left_out(log_density)
    unseen = mean if v is None else mean + np.sqrt(v) * drawn.normals
    residuals = checks.pearson(site, xi, theta)
    empty = site.counts == 0
    elpd, effective, k_hat = (np.where(empty, np.nan, values) for values in (left_out.elpd, left_out.effective, left_out.k_hat))
    moran = None if pairs is None else _moran(residuals, pairs)
    waic = np.where(empty[:, np.newaxis], np.nan, _waic(log_density))
    return Fitness(elpd, effective, k_hat, checks.pit(site, xi, unseen, left_out.weights), residuals, waic, moran)


_moran = guard.figure("Moran's I", None)(checks.moran)


def _waic(log_density: Array) -> Array:
    """Computes (d, 2) elpd and effective numbers from (m, d) densities of areas whose effects are integrated out.

    Source: Li, Qiu, Zhang and Feng, 2016.
    """
    spread = log_density.var(axis=0, ddof=1)
    level = logsumexp(log_density, axis=0) - np.log(len(log_density))
    return np.column_stack([level - spread, spread])
