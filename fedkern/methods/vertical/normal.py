"""Tests whether a party's posterior is normal, as q is: in logistic models, from the slopes that clients are sent.

The mean of a row's slopes y - p over the last half of the rounds tells its label and its probability. The others' part of the
predictor is then the offset under which the party's q has that probability. With it a party knows its likelihood, given the
others, and the width of its posterior along the line of each coefficient (`results.lines`). Few rows or events in a column make
it wider than q. Source: docs/spec/vertical.md, section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ...finding import Finding
from ...models.mixed.quadrature import even
from ...results.lines import AT, Lines, fit_lines
from ...results.verdict import Check
from .model import VerticalModel

Array = NDArray[np.float64]
FARTHEST = 40.0  # of an offset
HALVINGS = 50


def is_asked(model: VerticalModel) -> bool:
    """Returns whether slopes tell labels, and q is as wide as a normal posterior can be.

    That holds in open linear logistic jobs with amortised auxiliary variables whose clients are sent slopes.
    """
    linear = model.kind == "linear" and model.family_of_z == "amortised"
    return model.watched and linear and not model.shared and model.likelihood.record.binary


@dataclass(frozen=True)
class Own:
    """Holds a party's part of the model, and its q, as they are published.

    Attributes
    ----------
    H : (n, d) of the training rows
    mean, root : (d,), (d, e) of q; root root' is its covariance
    prior_mean, prior_sd : of each coefficient
    lines : (m, e) rows of such a root for the published numbers, where these are not the coefficients
    """

    H: Array
    mean: Array
    root: Array
    prior_mean: float
    prior_sd: float
    lines: Array | None = None


def measure_lines(record: Own, names: Sequence[str], slopes: Array) -> Lines | None:
    """Computes how wide the posterior of each coefficient is; None where a row was never seen.

    Parameters
    ----------
    slopes : (n,) means of y - p
    """
    if not len(slopes) or not slopes.all() or not record.mean.size:
        return None
    y = slopes > 0
    along = record.H @ record.root
    middle = record.H @ record.mean
    middle = middle + _offset(y - slopes, middle, np.sqrt(np.einsum("ij,ij->i", along, along)))
    sign = np.where(y, -1.0, 1.0)

    def log_density(theta: Array, eta: Array) -> float:
        prior = ((theta - record.prior_mean) ** 2).sum() / (2 * record.prior_sd**2)
        return float(-np.logaddexp(0.0, sign * eta).sum() - prior)

    densities = [log_density(record.mean, middle)]
    for row in record.root if record.lines is None else record.lines:
        sd = max(float(np.linalg.norm(row)), 1e-300)
        step, moved = record.root @ row / sd, along @ row / sd
        densities += [log_density(record.mean + t * step, middle + t * moved) for t in AT]
    return fit_lines(names, np.array(densities))


def _offset(p: Array, mean: Array, sd: Array) -> Array:
    """Finds (n,) offsets by bisection, with which a normal predictor of this mean and sd has the probability p."""
    nodes, weights = even(float(sd.max(initial=0.0)))
    z, low, high = mean[:, None] + sd[:, None] * nodes, np.full(len(p), -FARTHEST), np.full(len(p), FARTHEST)
    low, high = low - mean, high - mean
    for _ in range(HALVINGS):
        nodes = (low + high) / 2
        less = expit(z + nodes[:, None]) @ weights < p
        low, high = np.where(less, nodes, low), np.where(less, high, nodes)
    return np.asarray((low + high) / 2)


def checks(along: Lines | None, content: dict[str, dict[str, float]]) -> list[Check]:
    """Returns the check of unknowns whose posterior is wider than q; nothing where q is as wide."""
    if along is None or not len(along.off):
        return []
    name, by = along.names[along.worst], float(along.sd[along.worst])
    low, high = content[name]["q05"], content[name]["q95"]
    found = Finding.of("no-normal-posterior", name=name, by=by, low=low, high=high, lines=len(along.off))
    return [Check(found, False, name)]
