"""Predicts other rows of a client's areas from draws: means, levels and new counts.

A row is a new observation. Where rows have effects of their own it has another one than the fit's rows, and where r was learnt
each draw has its r. A period after the last has the last one's effect and, for each step from there, an independent one of the
random walk, the same for all rows of a prediction.
Source: docs/spec/sigma.md, section 9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...kernels import rng
from ...kernels.families import FAMILIES, MOST
from ...models.likelihood import Likelihood
from ...models.overdispersed import Overdispersed
from ...results.prediction import SDS, WHOLE, Prediction
from . import kept

Array = NDArray[np.float64]
Index = NDArray[np.int64]

ENDS = {"q025": 0.025, "q50": 0.5, "q975": 0.975}
BLOCK = 2**22  # numbers at once
COUNTS, EFFECTS, STEPS = 4, 5, 6  # chains of the stream "posterior": those below drew the areas


@dataclass(frozen=True)
class New:
    """Holds new rows; an attribute is None where the job has none.

    Attributes
    ----------
    X, offset, trials, area : (n, p) columns of the encoding, (n,) each
    period : (n,); T and more come after the last period
    """

    X: Array
    offset: Array
    trials: Array | None
    area: Index
    period: Index | None

    def part(self, rows: slice) -> New:
        """Returns some of them."""
        trials = None if self.trials is None else self.trials[rows]
        period = None if self.period is None else self.period[rows]
        return New(self.X[rows], self.offset[rows], trials, self.area[rows], period)


def of(kept_run: kept.Kept, new: New, ids: Mapping[str, Sequence[str]], seed: int) -> tuple[Prediction, NDArray[np.bool_]]:
    """Predicts the rows, by blocks.

    Returns
    -------
    mean of the response with its ends, mean and sd of the linear predictor, and columns of the level and of new counts
    (n,) whether a draw of a row's rate is cut
    """
    family, m, columns = FAMILIES[kept_run.about.family], len(kept_run.coefficients), dict[str, list[Array]]()
    like = Overdispersed(family.name) if kept_run.about.effects else Likelihood(family.name, kept_run.about.scale)
    periods = None if new.period is None else _on(kept_run, int(new.period.max(initial=0)) + 1, seed)
    counts = family.counted and (not family.trials or new.trials is not None)
    step = max(1, BLOCK // m)
    # Draws times rows may be more than memory holds.
    for a in range(0, len(new.X), step):
        rows = new.part(slice(a, a + step))
        level = kept_run.coefficients @ rows.X.T + kept_run.spatial[:, rows.area]
        if periods is not None:
            level = level + periods[:, rows.period]
        eta = level + rows.offset
        spread = kept_run.log_scale[:, np.newaxis] if kept_run.about.effects else 0.0
        mean = like.mean_of_new(eta, spread)
        block = {"mean": mean.mean(axis=0), "linear_mean": eta.mean(axis=0), "linear_sd": eta.std(axis=0)}
        highest = eta + SDS * np.exp(kept_run.log_scale)[:, np.newaxis] if kept_run.about.effects else eta
        block["cut"] = (np.maximum(highest, level).max(axis=0) > MOST).astype(float)
        block |= _ends("", mean)
        if family.link != "identity":
            block |= {family.level: like.mean(level).mean(axis=0)} | _ends(f"{family.level}_", like.mean(level))
        if counts:
            drawn = _drawn(kept_run, like, eta, rows.trials, seed, a)
            block |= _ends("new_", np.where(np.isnan(mean), np.nan, drawn), WHOLE)
        for name, values in block.items():
            columns.setdefault(name, []).append(values)
    joined = {name: np.concatenate(values) for name, values in columns.items()}
    first = ("mean", *ENDS, "linear_mean", "linear_sd", "cut")
    more = {name: values for name, values in joined.items() if name not in first}
    ends = {name: joined[name] for name in ENDS}
    prediction = Prediction(joined["mean"], ends, joined["linear_mean"], joined["linear_sd"], ids=ids, more=more)
    return prediction, joined["cut"] > 0


def _on(kept_run: kept.Kept, n: int, seed: int) -> Array:
    """Returns (m, n) effects of periods, continued beyond the last kept one by steps of the walk."""
    known = kept_run.periods
    if n <= known.shape[1]:
        return known
    m = len(known)
    steps = rng.normal(m * (n - known.shape[1]), key=rng.key(seed, "posterior", STEPS)).reshape(-1, m).T
    return np.column_stack([known, known[:, -1:] + np.cumsum(kept_run.step[:, np.newaxis] * steps, axis=1)])


def _drawn(kept_run: kept.Kept, like: Likelihood, eta: Array, trials: Array | None, seed: int, block: int) -> Array:
    """Draws (m, n) a new count of each row in each draw."""
    m, n = eta.shape
    scale: float | Array = kept_run.about.scale
    if kept_run.about.effects:
        effects = rng.normal(m * n, key=rng.key(seed, "posterior", EFFECTS), client=block).reshape(m, n)
        eta = eta + np.exp(kept_run.log_scale)[:, np.newaxis] * effects
    elif len(kept_run.log_scale):
        scale = np.repeat(np.exp(kept_run.log_scale), n)
    source = _Source(rng.key(seed, "posterior", COUNTS), block)
    repeated = None if trials is None else np.tile(trials, m)
    return like.record.draw(source, like.mean(eta).ravel(), scale, repeated).reshape(m, n)


def _ends(prefix: str, draws: Array, method: str = "linear") -> dict[str, Array]:
    """Returns the ends of 95 % intervals."""
    ends = np.quantile(draws, [*ENDS.values()], axis=0, method=method)  # type: ignore[call-overload]  # its names are a Literal
    return {f"{prefix}{name}": values for name, values in zip(ENDS, ends)}


class _Source:
    """Draws the random numbers of a prediction: the same whenever it is made."""

    def __init__(self, key: int, block: int) -> None:
        self.key, self.block = key, block

    def uniform(self, n: int) -> Array:
        """Returns n uniform numbers in (0, 1)."""
        return np.asarray(rng.uniform(n, key=self.key, client=self.block))

    def normal(self, n: int) -> Array:
        """Returns n standard normal numbers."""
        return np.asarray(rng.normal(n, key=self.key, client=self.block))
