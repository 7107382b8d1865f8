"""Two priors of the standard deviation of effects, half-Student and half-normal, over true ones from .1 to 5.

    python benchmarks/group_sd_priors.py [--federations 10] [--kept FILE] [--out benchmarks/results/group-sd-priors.txt]

A federation has four clients of 12 wards with 8 rows each (eight clients of 40 rows, where clients have effects), two columns
with the same true coefficients everywhere, and effects that are drawn anew. True standard deviations are .1, .3, 1, 2.5 and 5 in
turn, of a gaussian response times that of its errors. Each is fitted twice: with the default, half-student(3, 2.5), of a gaussian
response half-student(3, 1) of its own standard deviation, and with half-normal(1) by a named prior in the same unit.

A line has the share of jobs that are "converged", the largest k-hat, and of the standard deviation and the slope of `a` the mean
distance of the posterior mean from the truth, in posterior standard deviations, and the share of 90 % intervals that hold the
truth. A job that finds no mode is in the first of these alone. `--kept` gets a line for each job when it is done, and those that
it has are not run again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import fedkern
from fedkern.errors import NumericalError

SDS = (0.1, 0.3, 1.0, 2.5, 5.0)
SLOPES, WARDS, ROWS, SD = (0.4, -0.3), 12, 8, 12.0
MODELS = {
    "bernoulli, wards": {"group": "ward"},
    "bernoulli, slopes": {"group": "ward", "slopes": ["a"]},
    "poisson, clients": {"client": True},
    "gaussian, wards": {"group": "ward"},
}
PRIORS = ("half-student", "half-normal")


def frames(name: str, sd: float, seed: int) -> dict[str, pd.DataFrame]:
    """The clients' rows; a slope's standard deviation is half of the intercept's."""
    rng, found = np.random.default_rng([seed, *name.encode()]), dict[str, pd.DataFrame]()
    clients = name.endswith("clients")
    for k in range(8 if clients else 4):
        ward = np.repeat(np.arange(5 if clients else WARDS), ROWS)
        a, b = rng.normal(size=(2, len(ward)))
        effect = sd * (np.full(len(ward), rng.normal()) if clients else rng.normal(size=WARDS)[ward])
        eta = SLOPES[0] * a + SLOPES[1] * b + effect
        if name.endswith("slopes"):
            eta += 0.5 * sd * rng.normal(size=WARDS)[ward] * a
        if name.startswith("gaussian"):
            y = SD * (eta + rng.normal(size=len(ward)))
        elif name.startswith("poisson"):
            y = rng.poisson(np.exp(np.minimum(eta, 9.0))).astype(float)
        else:
            y = (rng.random(len(ward)) < 1 / (1 + np.exp(-eta))).astype(float)
        found[f"site {k}"] = pd.DataFrame({"a": a, "b": b, "y": y, **({} if clients else {"ward": [f"ward {g}" for g in ward]})})
    return found


def fitted(name: str, prior: str, seed: int) -> dict[str, Any]:
    """What is known of one job."""
    sd, random = SDS[seed % len(SDS)], MODELS[name]
    level = "client" if name.endswith("clients") else "group"
    own = {"kind": "half-normal", "sd": 1.0, "unit": "sd"}
    scales = [f"{level}_sd[intercept]", *([f"{level}_sd[a]"] if name.endswith("slopes") else [])]
    model: dict[str, Any] = {"family": name.split(",")[0], "random": random}
    if prior == "half-normal":
        model["priors"] = dict.fromkeys(scales, own)
    job: dict[str, Any] = {"job": {"method": "likelihood", "seed": seed}, "data": {"response": "y"}, "model": model}
    job["disclosure"] = {"level": "none"}  # where effects are large few rows of a client decide
    out: dict[str, Any] = {"model": name, "prior": prior, "seed": seed, "right": False, "k_hat": None}
    try:
        summary = fedkern.run(job, data=frames(name, sd, seed)).summary
    except NumericalError as ended:
        return out | {"said": str(ended)}
    unit = SD if name.startswith("gaussian") else 1.0
    parameters = {key.partition("[")[0] + key.partition("[")[2]: one for key, one in summary["parameters"].items()}
    truth = {f"{level}_sdintercept]": sd * unit, "thetaa]": SLOPES[0] * unit}
    out |= {"right": summary["converged"] is True, "k_hat": summary["k_hat"]}
    for key, true in zip(("sd", "slope"), truth.items()):
        one = parameters[true[0]]
        out[key] = [(one["mean"] - true[1]) / one["sd"], bool(one["q05"] <= true[1] <= one["q95"])]
    return out


def all_of(federations: int, kept: Path | None) -> Iterator[dict[str, Any]]:
    """What is known of each job, those of a file first."""
    known = [json.loads(line) for line in kept.read_text("utf-8").splitlines()] if kept and kept.exists() else []
    yield from known
    there = {(one["model"], one["prior"], one["seed"]) for one in known}
    for seed in range(federations):
        for name in MODELS:
            for prior in PRIORS:
                if (name, prior, seed) in there:
                    continue
                one = fitted(name, prior, seed)
                if kept:
                    with kept.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(one) + "\n")
                yield one


def lines(found: list[dict[str, Any]]) -> Iterator[str]:
    """The table."""
    yield f"fedkern {fedkern.__version__}, {len({one['seed'] for one in found})} federations a model"
    yield f"{'model':<20}{'true sd':>8}  {'prior':<13}{'judged':>6}{'k-hat':>7}   sd: off, held    slope: off, held"
    for name in MODELS:
        for sd in (*SDS, None):
            for prior in PRIORS:
                own = [one for one in found if (one["model"], one["prior"]) == (name, prior)]
                own = [one for one in own if sd is None or SDS[one["seed"] % len(SDS)] == sd]
                right, own = np.mean([one["right"] for one in own]), [one for one in own if one["k_hat"] is not None]
                shares = "".join(
                    f"{np.mean([one[key][0] for one in own]):>11.2f}{np.mean([one[key][1] for one in own]):>6.2f}"
                    for key in ("sd", "slope")
                )
                k_hat = max(one["k_hat"] for one in own)
                yield f"{name:<20}{'all' if sd is None else f'{sd:g}':>8}  {prior:<13}{right:>6.2f}{k_hat:>7.2f}{shares}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--federations", type=int, default=10)
    parser.add_argument("--kept", type=Path, help="a file of what is known already, which gets a line for each job")
    parser.add_argument("--out", type=Path, help="a file that gets the table too")
    given = parser.parse_args()
    table = list(lines(list(all_of(given.federations, given.kept))))
    print("\n".join(table))
    if given.out:
        given.out.write_text("\n".join(table) + "\n", "utf-8")


if __name__ == "__main__":
    main()
