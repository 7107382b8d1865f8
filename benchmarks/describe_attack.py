"""How well `describe` hides cells with few rows: an attacker bounds each, by integer programming, by every number of two looks
and a job (`tests/support/first_looks.py`); and three leaks of looks that leave out few rows alone.

    PYTHONPATH=tests python benchmarks/describe_attack.py [--level standard] [--sets 0 200] [--only NAME ..]

"rules" is of three clients, who have coarser cells in common: the attacker has also what the one client adds to each masked sum
(of values, squares and products), as if all others were the attacker; "curves" are their hidden cells of curves alone. "one
client" is told no sum; "late entry" bounds how many rows that enter in an interval end in another. "missing cells" is why sums
are rounded: by one in which missing cells count as the mean the server would know how many there are. A data set has a rare
group, binary columns, missing cells, a factor with a rare level, numbers of few and of many values, and survival times. The
second look has other bins and columns, or as few rows more or less as are allowed. "wide": sets of which each hidden cell may
have as many values as the level asks for; a solver that is stopped counts what it found as all that is possible.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

import numpy as np

from fedkern.disclosure import curves, measures
from fedkern.disclosure.measures import measured
from fedkern.disclosure.rules import LEVELS, Rules
from support import first_looks


def rules_hold(rules: Rules, seeds: range, clients: int = 3, only: str = "") -> str:
    """The looks of fedkern; of no clients curves of rows that enter late."""
    found = list[first_looks.Found]()
    for seed in seeds:
        found.append(first_looks.attack(seed, rules, clients, only) if clients else first_looks.attack_late(seed, rules))
        print(f"    set {seed}: {found[-1]}", file=sys.stderr, flush=True)
        for cell in found[-1].narrow:
            print(f"    set {seed}: {cell}", flush=True)
    refused = Counter(look for one in found for look in one.refused)
    wide, cells, told = sum(not one.narrow for one in found), sum(one.hidden for one in found), sum(one.told for one in found)
    which = ", ".join(f"{look} {refused[look]}" for look in (first_looks.FIRST, first_looks.JOB, first_looks.SECOND))
    return f"wide {wide} of {len(found)} sets; {cells:,} hidden cells, {told:,} numbers told; refused: {which}"


def missing_cells(rules: Rules, seeds: range) -> str:
    """How many cells are missing, of which there are few, by a sum of whole numbers in which they count as the mean."""
    known, possible = 0, list[int]()
    for seed in seeds:
        rng = np.random.default_rng([seed, 3])
        n = int(rng.integers(60, 400))
        x = rng.negative_binomial(4, 0.35, n - int(rng.integers(1, rules.rows_per_value)))
        total, off = x.sum() * n / len(x), measures.step(measures.OF_AN_ERROR * x.std() * n**0.5) / 2
        there = n - np.arange(rules.rows_per_value)
        least, most = ((rounded - off) * there / n for rounded, off in ((total, 1e-9), (total, -1e-9)))
        known += (np.ceil(least) <= np.floor(most)).sum() == 1
        rounded = measures.rounded(total, x.std() * n**0.5)
        possible.append(int((np.ceil((rounded - off) * there / n) <= np.floor((rounded + off) * there / n)).sum()))
    return (
        f"known by an exact sum in {known} of {len(seeds)} sets; by a rounded one at least {min(possible)} numbers are possible"
    )


def naive(rules: Rules, seeds: range) -> str:
    """Negative control: cells with few rows are left out, and no other."""
    found = [first_looks.attack_naive(seed, rules) for seed in seeds]
    return (
        f"wide {sum(not one.narrow for one in found)} of {len(found)} sets; {sum(len(one.narrow) for one in found):,} cells found"
    )


def two_means(rules: Rules, seeds: range) -> str:
    """A 2 x 2 table with a hidden cell, of the means and the correlation of two columns of 0 and 1."""
    hidden = back = ours = 0
    for seed in seeds:
        rng = np.random.default_rng([seed, 1])
        n = int(rng.integers(60, 400))
        x, y = rng.random(n) < 0.3, rng.random(n) < rng.uniform(0.01, 0.2)
        counts = np.bincount(2 * x + y, minlength=4)
        if not ((0 < counts) & (counts < rules.rows_per_value)).any():
            continue
        hidden += 1
        means, r = (round(x.mean(), 6), round(y.mean(), 6)), round(np.corrcoef(x, y)[0, 1], 6)
        both = n * (r * np.sqrt(means[0] * (1 - means[0]) * means[1] * (1 - means[1])) + means[0] * means[1])
        back += round(both) == counts[3]
        ours += measured(x, rules) or measured(y, rules)
    return f"of six digits {back} of {hidden} hidden cells come back; fedkern adds {ours} of these columns to sums"


def one_row(rules: Rules, seeds: range) -> str:
    """A row between two calls, of the means."""
    exact = 0
    for seed in seeds:
        rng = np.random.default_rng([seed, 2])
        x = rng.normal(60, 10, int(rng.integers(60, 400))).round()
        n, (all_rows, but_one) = len(x), (round(x.mean(), 4), round(x[:-1].mean(), 4))
        exact += round(n * all_rows - (n - 1) * but_one) == x[-1]
    return f"of four digits {exact} of {len(seeds)} rows come back (fedkern has means of three clients, and refuses such a call)"


def risk_table(rules: Rules, seeds: range) -> str:
    """Differences of a risk table each six months."""
    small = ours = told = 0
    grid, least = np.arange(182.5, 2000, 182.5), rules.rows_per_value
    for seed in seeds:
        rows = first_looks.simulated(seed)
        cells = np.bincount(rows.with_curve(grid)[first_looks.CURVE].codes, minlength=2 * len(grid) + 3)
        events, censored = np.split(cells[:-1], 2)
        gone = (events + censored)[:-1]
        small += bool(((0 < gone) & (gone < least)).any())
        found = curves.parts(cells[None], len(grid) + 1, range(len(grid)), rules)
        if found is not None:
            told += 1
            counts = np.array([cells[list(part)].sum() for part in found])
            ours += bool(((counts > 0) & (counts < least)).any())
    return f"a difference of few rows in {small} of {len(seeds)} sets; in {ours} of fedkern's {told} tables"


CASES: dict[str, Callable[[Rules, range], str]] = {
    "rules": rules_hold,
    "curves": partial(rules_hold, only=first_looks.CURVE),
    "one client": partial(rules_hold, clients=1),
    "missing cells": missing_cells,
    "late entry": partial(rules_hold, clients=0),
    "naive": naive,
    "two means": two_means,
    "one row": one_row,
    "risk table": risk_table,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--level", choices=("standard", "strict"), default="standard")
    parser.add_argument("--sets", type=int, nargs=2, default=(0, 200))
    parser.add_argument("--only", choices=CASES, nargs="*", default=[*CASES])
    given = parser.parse_args()
    rules = LEVELS[given.level]
    for name in given.only:
        begun = time.process_time()
        said = CASES[name](rules, range(*given.sets))
        print(f"{given.level}, {name}: {said} ({time.process_time() - begun:.0f} s of CPU)", flush=True)


if __name__ == "__main__":
    main()
