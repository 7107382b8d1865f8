"""How often a client of an honest job would be asked, on the way to the mode, about few of its rows.

    python benchmarks/refused_questions.py DATA [--simulated 60] [--sets NAME ..]

At each question for gradient and curvature a client reckons of how few rows these are (`models.weighing`): the effective number
of its rows as they weigh there, in all and a coefficient, and the largest leverage of one. Jobs are simulated ones (three clients
of unlike sizes; numbers, some of them lognormal, a factor, and offsets) and those of `honest.py` in DATA, at "standard". It
prints, of each job that is not refused before, the least and the largest of these, at the first question and at later ones; and
how many jobs have a question below the rule, which ends a job where it is the second one.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import honest
import numpy as np
import pandas as pd

import fedkern
from fedkern.algorithms.importance import client as importance
from fedkern.errors import FedkernError
from fedkern.models import weighing

FAMILIES = (
    "bernoulli",
    "poisson",
    "negative-binomial",
    "gamma",
    "weibull",
    "cox",
    "ordinal",
    "multinomial",
    "student",
    "gaussian",
)


def simulated(seed: int) -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
    """A job, and its clients' rows."""
    random = np.random.default_rng(seed)
    family, p = FAMILIES[seed % len(FAMILIES)], int(random.integers(2, 7))
    slopes, centre, data = random.normal(0, 0.4, p), random.normal(0, 0.5, p), dict[str, pd.DataFrame]()
    for name, n in zip("abc", random.permutation([60, 110, 400]) * (p + 4) // 5):
        X = random.normal(0, 0.3, p) + random.standard_normal((n, p)) + centre
        X[:, 0] = np.exp(0.6 * X[:, 0])
        place = random.choice(["town", "village", "farm"], n, p=[0.6, 0.3, 0.1])
        eta = (X - centre) @ slopes + 0.4 * (place == "farm") + random.uniform(-1.5, 0.5)
        d = pd.DataFrame({**{f"x{j}": X[:, j] for j in range(p)}, "place": place})
        noise, mean = random.logistic(size=n), np.exp(np.minimum(eta, 5))
        if family == "bernoulli":
            d["y"] = (eta + noise > 0) * 1
        elif family in ("poisson", "negative-binomial"):
            d["years"] = np.exp(0.7 * random.standard_normal(n))
            d["log_years"], rate = np.log(d["years"]), mean * d["years"]
            d["y"] = random.poisson(rate * (random.gamma(2.0, 0.5, n) if family != "poisson" else 1.0))
            d = d.drop(columns="years")
        elif family == "gamma":
            d["y"] = mean * random.gamma(3.0, 1 / 3, n) + 1e-6
        elif family in ("weibull", "cox"):
            t, end = random.weibull(1.3, n) / mean, random.exponential(4.0, n)
            d["t"], d["y"] = np.minimum(t, end) + 1e-6, (t <= end) * 1
        elif family == "ordinal":
            d["y"] = np.array(["low", "middle", "high"])[np.digitize(eta + noise, [-1.0, 0.8])]
        elif family == "multinomial":
            d["y"] = np.array(["a", "b", "c"])[(np.stack([0 * eta, eta, 0.3 - eta]) + random.gumbel(size=(3, n))).argmax(axis=0)]
        else:
            d["y"] = eta + (random.standard_t(5, n) if family == "student" else random.standard_normal(n))
        data[name] = d
    job: dict[str, Any] = {"job": {"method": "likelihood"}, "model": {"family": family}, "data": {"response": "y"}}
    if family in ("weibull", "cox"):
        job["data"] = {"time": "t", "event": "y"}
    if family == "ordinal":
        job["data"]["levels"] = ["low", "middle", "high"]
    if "log_years" in data["a"]:
        job["data"]["offset"] = "log_years"
    return job, data


class Questions:
    """What clients find at questions, in the place of refusing one."""

    def __init__(self) -> None:
        self.found: list[tuple[str, int, float, float, float]] = []
        self.seconds = 0.0
        self._few = importance.few_rows
        importance.few_rows = self._looked  # type: ignore[assignment]

    def _looked(self, state: importance.Client, point: np.ndarray) -> bool:
        rows = state.model if hasattr(state.model, "weighed") else None
        begin = time.process_time()
        self._few(state, point)
        self.seconds += time.process_time() - begin
        if rows is not None:
            p = rows.X.shape[1]
            prior = None if state.prior is None else state.prior.curvature(point)[2]
            known = weighing.Least.of(rows.X, 0, 1, 1).rows
            for k, w in enumerate(rows.weighed(point)):
                if w.any():
                    own = np.zeros((p, p)) if prior is None else prior[k * p : (k + 1) * p, k * p : (k + 1) * p]
                    number = weighing.effective(w)
                    highest = weighing.levered(rows.X, w, own, 0.0)
                    self.found.append((state.name, state.round, number, number / known, 0.0 if highest is None else highest[1]))
        return False


def told(name: str, job: dict[str, Any], data: dict[str, pd.DataFrame], questions: Questions) -> tuple[str, bool, int]:
    """A line on a job, whether it was refused before, and how many clients have questions below the rule: the most of one."""
    questions.found, questions.seconds, begin = [], 0.0, time.process_time()
    try:
        result = fedkern.run({**job, "disclosure": {"level": "standard"}}, data=data)
    except FedkernError as error:
        if not questions.found:
            return f"{name:<34}refused before: {str(error)[:70]!r}", True, 0
        ended = f"ended: {str(error)[:60]!r}"
    except Exception as error:  # a data set that this version of a package has otherwise
        return f"{name:<34}fault: {error!r}"[:140], True, 0
    else:
        ended = f"{result.converged}"
    seconds = time.process_time() - begin
    line, below = "", dict[str, int]()
    rows_of = {who: len(d) for who, d in data.items()}
    for first in (True, False):
        some = [one for one in questions.found if (one[1] == 0) is first]
        if some:
            of = np.array([one[2:] for one in some])
            line += f"{of[:, 0].min():9.1f}{of[:, 1].min():7.1f}{of[:, 2].max():6.2f}"
            for who, round, number, each, highest in some:
                if number < 10 or each < 2 or highest > 0.9:
                    below[who] = below.get(who, 0) + 1
                    line += f" [{who} {round}/{rows_of[who]}: {number:.1f} {each:.1f} {highest:.2f}]"
    return f"{name:<34}{line}  {100 * questions.seconds / seconds:.1f} % of CPU, {ended}", False, max(below.values(), default=0)


def jobs(options: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any], dict[str, pd.DataFrame]]]:
    """Name, job and rows of each."""
    for seed in range(options.simulated):
        job, data = simulated(seed)
        yield f"simulated {seed}, {job['model']['family']}", job, data
    for one in honest.sets():
        if options.data and (not options.sets or one.source in options.sets):
            try:
                honest.public_sets.write([one.source], options.data)
                d = one.rows(options.data)
            except Exception as error:  # a package that is not here
                print(f"{one.source:<34}not read: {type(error).__name__}", flush=True)
                continue
            yield one.source, one.job, {k: own.drop(columns="client").reset_index(drop=True) for k, own in d.groupby("client")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--simulated", type=int, default=60)
    parser.add_argument("--sets", nargs="*", default=[])
    options = parser.parse_args()
    questions, counts = Questions(), {"jobs": 0, "refused before": 0, "one question below": 0, "two or more below": 0}
    print(f"{'':<34}{'first question':>22}{'later ones':>22}\n{'':<34}" + "   effective, each, leverage" * 2)
    for name, job, data in jobs(options):
        line, refused, below = told(name, job, data, questions)
        counts["jobs"] += 1
        counts["refused before"] += refused
        counts["one question below"] += below == 1
        counts["two or more below"] += below > 1
        print(line, flush=True)
    print(", ".join(f"{what}: {n}" for what, n in counts.items()))


if __name__ == "__main__":
    main()
