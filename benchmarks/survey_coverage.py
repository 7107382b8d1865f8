"""How often intervals of a survey's weights hold the truth of the population, beside those of weights taken as case weights.

A population of 400 clusters at four clients; of each sample 15 clusters a client are drawn, then rows of them with chances that
hang on the response's own part of the predictor, so that weights are informative. Truth: the logistic regression of the whole
population.

python benchmarks/survey_coverage.py [SAMPLES] > benchmarks/results/survey_coverage.txt
"""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
from scipy.special import expit

import fedkern

CLIENTS, CLUSTERS, DRAWN, SIZE = 4, 100, 15, 60
Frames = dict[str, pd.DataFrame]


def population(rng: np.random.Generator) -> pd.DataFrame:
    """Draws all rows, with each one's chance to be taken where its cluster is."""
    n = CLIENTS * CLUSTERS * SIZE
    cluster = np.repeat(np.arange(CLIENTS * CLUSTERS), SIZE)
    x = rng.normal(size=n) + rng.normal(0, 0.7, CLIENTS * CLUSTERS)[cluster]
    y = rng.random(n) < expit(-0.4 + 0.5 * x + rng.normal(0, 0.6, CLIENTS * CLUSTERS)[cluster])
    taken = expit(-1.2 + 0.8 * y + 0.5 * x)
    return pd.DataFrame({"x": x, "y": y.astype(int), "psu": cluster, "client": cluster // CLUSTERS, "taken": taken})


def fitted_by_hand(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Returns the logistic regression of all rows."""
    b = np.zeros(X.shape[1])
    for _ in range(30):
        p = expit(X @ b)
        b = b + np.linalg.solve(X.T @ ((p * (1 - p))[:, np.newaxis] * X), X.T @ (y - p))
    return b


def sample(rng: np.random.Generator, whole: pd.DataFrame) -> Frames:
    """Draws clusters, then rows; a row's weight is one over its chance."""
    frames = {}
    for k, rows in whole.groupby("client"):
        drawn = rng.choice(rows.psu.unique(), DRAWN, replace=False)
        some = rows[rows.psu.isin(drawn) & (rng.random(len(rows)) < rows.taken)]
        weights = CLUSTERS / DRAWN / some.taken
        frames[f"c{k}"] = pd.DataFrame({"x": some.x, "y": some.y, "psu": some.psu.map(str), "w": weights.round()})
    return frames


def interval(frames: Frames, *, survey: bool) -> dict[str, tuple[float, float]]:
    """Returns the 95 % interval of each coefficient; without `survey` of rows that count as they are."""
    data = {"response": "y", "weight": "w", "weight_kind": "survey", "psu": "psu"} if survey else {"response": "y"}
    kept = ["x", "y", *(["psu", "w"] if survey else [])]
    job = {"job": {"method": "likelihood", "seed": 1}, "data": data, "model": {"family": "bernoulli"}}
    result = fedkern.run(job, data={name: frame[kept] for name, frame in frames.items()})
    return {name: (row["q025"], row["q975"]) for name, row in result.parameters.items() if "_std" not in name}


def main(samples: int) -> None:
    whole = population(np.random.default_rng(1))
    truth = fitted_by_hand(np.column_stack([np.ones(len(whole)), whole.x]), whole.y.to_numpy())
    held = {"of the design": np.zeros(2), "of rows without weights": np.zeros(2)}
    for k in range(samples):
        frames = sample(np.random.default_rng([2, k]), whole)
        for name, survey in (("of the design", True), ("of rows without weights", False)):
            found = [*interval(frames, survey=survey).values()]
            held[name] += [low <= b <= high for (low, high), b in zip(found, truth, strict=True)]
    print(f"{samples} samples of {CLIENTS * DRAWN} of {CLIENTS * CLUSTERS} clusters; intervals of 95 % that hold the truth")
    for name, counts in held.items():
        print(f"{name:24} intercept {counts[0] / samples:.3f}, slope {counts[1] / samples:.3f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
