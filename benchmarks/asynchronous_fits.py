"""How near asynchronous fits by steps come to the synchronous optimum: `python benchmarks/asynchronous_fits.py KIND`.

One process, simulated clocks: an answer takes a client an exponential or a Pareto time, whose means differ up to three times.
`sfvi` goes on until all has settled, and its optimum is known exactly (linear Gaussian models with unknowns of each client);
`sfvi-avg` and `vertical` take 10,000 rounds, and are compared with a synchronous fit of 20,000 and 60,000, whose own noise is
small, and with one of as many. Beside it stands how much longer the synchronous rounds take on the same clocks. Writes
`results/asynchronous-KIND.txt`, anew after each federation.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support import asynchronous_fits as fits  # noqa: E402


def described(name: str, away: list[fits.Away]) -> Iterator[str]:
    """The largest and the median distance, and what the clocks say."""
    mean, sd = (np.array([getattr(one, which) for one in away]) for which in ("mean", "sd"))
    slower = np.array([one.slower for one in away])
    settled = f", nothing moved any more in {sum(one.settled for one in away)}" if name == "sfvi" else ""
    yield f"{name}: {len(away)} federations{settled}"
    yield f"  means at most {mean.max():.2g} sd away (median {np.median(mean):.2g}), sds {sd.max():.2%} ({np.median(sd):.2%})"
    mean, sd = (np.array([getattr(one, f"other_{which}") for one in away]) for which in ("mean", "sd"))
    if np.isfinite(mean).all():
        yield f"  a synchronous fit: {mean.max():.2g} sd (median {np.median(mean):.2g}), sds {sd.max():.2%} ({np.median(sd):.2%})"
    yield f"  synchronous rounds take {np.median(slower):.2f} x as long ({slower.min():.2f} to {slower.max():.2f})"


def main() -> None:
    kinds: dict[str, Callable[[int], fits.Away]] = {
        "sfvi": partial(fits.sfvi, beside=False),
        "sfvi-avg": fits.averaged,
        "vertical": fits.vertical,
    }
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("kind", choices=kinds)
    options.add_argument("--federations", type=int, default=50)
    given = options.parse_args()
    away = []
    for seed in range(given.federations):
        away.append(kinds[given.kind](seed))
        print(seed, away[-1], flush=True)
        text = "\n".join(described(given.kind, away)) + "\n"
        (ROOT / "benchmarks" / "results" / f"asynchronous-{given.kind}.txt").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
