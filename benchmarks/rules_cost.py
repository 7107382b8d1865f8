"""What the rules for clients' rows cost: a job of ten columns of labels, with them and without.

    python benchmarks/rules_cost.py

Three clients of 5,000 rows, ten columns of 5 to 20 labels each. It prints, for each level of disclosure control, the processor
seconds of the whole job, and those in which rules were looked at.
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


def rows(seed: int, n: int = 5000) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    columns = {f"c{j}": np.char.add("level", random.integers(0, k, n).astype(str)) for j, k in enumerate(LEVELS)}
    return pd.DataFrame({**columns, "y": random.integers(0, 2, n)})


def main() -> None:
    data, spent = {name: rows(seed) for seed, name in enumerate("abc")}, 0.0
    job: dict[str, Any] = {"job": {"method": "likelihood"}, "model": {"family": "bernoulli"}, "data": {"response": "y"}}

    def timed(looks: Callable[..., Any]) -> Callable[..., Any]:
        def looked(*arguments: Any, **more: Any) -> Any:
            nonlocal spent
            begin = time.process_time()
            try:
                return looks(*arguments, **more)
            finally:
                spent += time.process_time() - begin

        return looked

    admitted.find_few = timed(admitted.find_few)
    client.few_rows = timed(client.few_rows)  # at each question for derivatives
    fedkern.run(job, data=data)  # imports
    for level in ("none", "standard"):
        spent, begin = 0.0, time.process_time()
        fedkern.run({**job, "disclosure": {"level": level}}, data=data)
        print(f"{level:<9}{time.process_time() - begin:6.1f} s of CPU, {spent:5.1f} of them for rules")


if __name__ == "__main__":
    main()
