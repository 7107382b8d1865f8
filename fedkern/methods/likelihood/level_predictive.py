"""Predicts the levels of rows that a posterior has not seen.

The chance of each level is an average over draws of the posterior, and over the effects of a new group and of a new client.

Source: docs/spec/likelihood.md, sections 7 and 10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, ndtr

from ...arrays import Array
from ...data.design import Design
from ...kernels import rng
from ...kernels.families import FAMILIES, NOMINAL, linked, one_trial
from ...models import levels
from ...models.encoding import Encoding
from ...models.mixed.layout import ORDERED
from ...models.mixed.predictive import Keyed
from ...models.reference import with_references
from ...results.released import Group
from .predictive import BLOCK, EFFECT, Foreseen, Predictive, blocks, levels_of


@dataclass(frozen=True)
class Ordered(Predictive):
    """Predicts ordered levels. `scale` is (K - 1, m), the thresholds on the scale of the encoding's columns; means are (K, n)."""

    @classmethod
    def scale_of(cls, family: str, flat: Mapping[str, Array], theta: Array, encoding: Encoding, nu: float | None) -> Array:
        published = np.stack([flat[name] for name in levels.threshold_names(encoding.labels)])
        return np.asarray(published - theta @ levels.centres(encoding))

    @property
    def width(self) -> int:
        return len(self.encoding.labels)

    @property
    def natural(self) -> Array:
        return np.diff(self.scale, axis=0, prepend=0.0)[..., np.newaxis]

    def means(self, shifted: Array, weights: Array) -> Array:
        """Returns (K, m, n) chances of the levels."""
        F = ndtr if FAMILIES[self.family].link == "probit" else expit
        below = [np.tensordot(weights, np.asarray(F(cut[:, np.newaxis] - shifted)), 1) for cut in self.scale]
        none = np.zeros_like(below[0])
        return np.diff(np.stack([none, *below, none + weights.sum()]), axis=0)

    def scores(self, design: Design, predicted: Foreseen | None = None) -> tuple[dict[str, float], dict[str, Any]]:
        return _scores(self, design, predicted)


@dataclass(frozen=True)
class Nominal(Predictive):
    """Predicts levels without an order, which have no effects. `theta` is (m, (K - 1) p); means are (K, n)."""

    @property
    def width(self) -> int:
        return len(self.encoding.labels)

    @classmethod
    def of(
        cls, posterior: Group, encoding: Encoding, family: str, terms: Mapping[str, Sequence[str]], nu: float | None = None
    ) -> Nominal:
        flat = cls.thinned(posterior)
        slopes_of = flat["theta_std" if "theta_std" in flat else "theta"]
        slopes, theta = [str(name) for name in posterior.coordinates["slope"]], list[Array]()
        for level in encoding.labels[1:]:
            begins = f"{level}:"
            by_name = {name.removeprefix(begins): slopes_of[:, j] for j, name in enumerate(slopes) if name.startswith(begins)}
            theta += with_references(encoding, by_name, len(slopes_of))
        return cls(encoding, family, np.column_stack(theta), (), np.ones(len(slopes_of)))

    def of_rows(self, X: Array, offset: Array | None, y: Array | None, at: Mapping[str, float]) -> Foreseen:
        n, k = len(X), len(self.encoding.labels)
        parts = []
        for a, b in blocks(n, max(1, BLOCK // (len(self.theta) * k))):
            chances = np.exp(levels.log_chances(self.theta, X[a:b], k))
            mean = chances.mean(axis=0)
            density = np.zeros(0) if y is None else np.log(mean[y[a:b].astype(np.int64), np.arange(b - a)])
            parts.append((mean, np.quantile(chances, tuple(at.values()), axis=0), density))
        mean, spread, density = (np.concatenate(column, axis=-1) for column in zip(*parts))
        none = np.zeros(n)
        return Foreseen(mean, dict(zip(at, spread)), none, none, None if y is None else density)

    def sampled(self, X: Array, offset: Array | None, seed: int) -> tuple[Array, Array]:
        chances = np.moveaxis(np.exp(levels.log_chances(self.theta, X, len(self.encoding.labels))), 1, -1)
        return chances, levels_of(chances, Keyed(rng.key(seed, "posterior", EFFECT), 0))

    def scores(self, design: Design, predicted: Foreseen | None = None) -> tuple[dict[str, float], dict[str, Any]]:
        return _scores(self, design, predicted)


def _scores(predictive: Predictive, design: Design, predicted: Foreseen | None) -> tuple[dict[str, float], dict[str, Any]]:
    """Accuracy and mean logarithmic score of the rows' levels, and the score of a guess by the rows' own shares.

    A row counts as right where its level is the most probable one; its score is the logarithm of the chance of its level.
    """
    if predicted is None:
        predicted = predictive.of_rows(np.asarray(design.X, np.float64), design.offset, design.y, {})
    assert predicted.log_density is not None
    y = design.y.astype(np.int64)
    numbers = np.bincount(y, minlength=len(predictive.encoding.labels))
    shares = numbers[numbers > 0] / len(y)
    accuracy = float((predicted.mean.argmax(axis=0) == y).mean())
    metrics = {"accuracy": accuracy, "log_likelihood": float(predicted.log_density.mean())}
    return metrics, {"rows": len(y), "guess": float(shares @ np.log(shares))}


def predictive_of(family: str) -> type[Predictive]:
    """Returns the class that predicts rows of this family."""
    return Ordered if family in ORDERED else Nominal if family in NOMINAL else Predictive


def family_of(model: Mapping[str, Any]) -> str:
    """Returns the family of one row, by the [model] section of a finished job."""
    return linked(one_trial(str(model["family"])), model.get("link"))
