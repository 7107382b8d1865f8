"""What secure sums add to a round of a job: CPU time of all parties in one process, with masks and without.

    python benchmarks/masked_round.py JOB.toml [--rounds 200] [--repeats 3]

Each job is run with 1 x and 2 x the rounds, so that reading, keys and the end of a run drop out of the difference. Runs take
turns; medians are printed.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import fedkern


def seconds(job: Path, rounds: int, *, secure: bool) -> float:
    """Returns the CPU time of a run."""
    keys: dict[str, object] = {"rounds": rounds} | ({"sums": "secure"} if secure else {})
    began = time.process_time()
    fedkern.run(job, progress=False, job=keys)
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", type=Path)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    a_round: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(options.repeats):
        for secure, taken in a_round.items():
            once, twice = (seconds(options.job, k * options.rounds, secure=secure) for k in (1, 2))
            taken.append(1e3 * (twice - once) / options.rounds)
    plain, masked = (statistics.median(taken) for taken in a_round.values())
    more = 100 * (masked / plain - 1)
    print(f"ms of CPU a round, all parties together: {plain:.2f}, with masks {masked:.2f}: {more:.0f} % more")


if __name__ == "__main__":
    main()
