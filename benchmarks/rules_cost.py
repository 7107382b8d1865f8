"""What the rules for clients' rows cost: a job of ten columns of labels, and one of twenty of numbers, with them and without.

    python benchmarks/rules_cost.py

Three clients of 5,000 rows with ten columns of 5 to 20 labels each; three of 100,000 with twenty columns of numbers. It prints,
for each level of disclosure control, the processor seconds of the whole job, those in which rules were looked at, and those
in which tables were read and checked.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

import fedkern
from fedkern.algorithms.importance import client
from fedkern.jobs import admitted

LEVELS = (5, 6, 8, 10, 12, 14, 16, 18, 19, 20)


def numbers(seed: int, n: int = 100_000) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, 20))
    y = (random.random(n) < 1 / (1 + np.exp(-X[:, 0]))).astype(int)
    return pd.DataFrame({**{f"x{j}": X[:, j] for j in range(20)}, "y": y})


def rows(seed: int, n: int = 5000) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    columns = {f"c{j}": np.char.add("level", random.integers(0, k, n).astype(str)) for j, k in enumerate(LEVELS)}
    return pd.DataFrame({**columns, "y": random.integers(0, 2, n)})


def main() -> None:
    spent = {"rules": 0.0, "checks": 0.0}
    job: dict[str, Any] = {"job": {"method": "likelihood"}, "model": {"family": "bernoulli"}, "data": {"response": "y"}}

    def timed(looks: Callable[..., Any], what: str) -> Callable[..., Any]:
        def looked(*arguments: Any, **more: Any) -> Any:
            begin = time.process_time()
            try:
                return looks(*arguments, **more)
            finally:
                spent[what] += time.process_time() - begin

        return looked

    admitted.find_few = timed(admitted.find_few, "rules")
    client.few_rows = timed(client.few_rows, "rules")  # at each question for derivatives
    admitted.faults_of = timed(admitted.faults_of, "checks")
    admitted._read = timed(admitted._read, "checks")
    fedkern.run(job, data={name: rows(seed, 500) for seed, name in enumerate("abc")})  # imports
    for what, make in (("labels, 3 x 5,000", rows), ("numbers, 3 x 100,000", numbers)):
        data = {name: make(seed) for seed, name in enumerate("abc")}
        for level in ("none", "standard"):
            spent.update(rules=0.0, checks=0.0)
            begin = time.process_time()
            fedkern.run({**job, "disclosure": {"level": level}}, data=data)
            used = time.process_time() - begin
            parts = f"{spent['rules']:5.2f} of them for rules, {spent['checks']:5.2f} for reading and checks"
            print(f"{what:<21} {level:<9}{used:6.2f} s of CPU, {parts}", flush=True)


if __name__ == "__main__":
    main()
