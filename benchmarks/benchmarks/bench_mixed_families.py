"""Families of rows of mixed models: 200 points, 800 rows, with a random intercept of 100 groups by 15 nodes and without groups.

    python -m benchmarks.bench_mixed_families

The bound is of arithmetic, as in `bench_mixed`: `ROW` vector instructions a row and node at the rate of a matrix product. What
may have several modes has 15 nodes on each of a few panels, and its bound leaves out how these are found: that of one panel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedkern import _core
from fedkern.kernels import mixed
from fedkern.testing.mixed import response

from . import common, floors
from .bench_mixed import PRODUCT, least

POINTS, GROUPS, ROWS, NODES = 200, 100, 8, 15
CUTS = np.array([0.4, 1.5])
# An element each, where a division is six: an exponential is 14, a logarithm 20, a row's predictor 4.
ROW = {
    "student": 4 + 20 + 12 + 12, "gamma": 4 + 14 + 4, "beta": 4 + 14 + 20 + 2 * (12 + 4 * 20 + 60),
    "zero-inflated-poisson": 4 + 3 * 14, "zero-inflated-negative-binomial": 4 + 2 * 20 + 3 * 14, "ordinal": 4 + 2 * 14 + 2 * 20,
    "ordinal-probit": 4 + 2 * (60 + 20) + 14 + 20, "weibull": 4 + 14, "exponential": 4 + 14, "piecewise": 4 + 14,
    "bernoulli-probit": 4 + 60 + 20, "bernoulli-cloglog": 4 + 3 * 14 + 20, "lognormal": 4 + 14, "inverse-gaussian": 4 + 2 * 14,
    "hurdle-poisson": 4 + 3 * 14 + 20, "hurdle-negative-binomial": 4 + 3 * 14 + 3 * 20,
    "poisson-lognormal": 4 + 40 * (2 * 14 + 8), "beta-binomial": 4 + 5 * 14 + 5 * 20,
    "lognormal-aft": 4 + 60 + 20, "loglogistic-aft": 4 + 2 * 14 + 20,
}  # fmt: skip
OWN = {
    "student": [-0.6, 1.1], "gamma": [0.7], "beta": [1.6], "zero-inflated-poisson": [-0.8], "weibull": [0.35],
    "zero-inflated-negative-binomial": [0.6, -0.5], "ordinal": [-0.8, 0.2, -0.3], "ordinal-probit": [-0.8, 0.2, -0.3],
    "piecewise": [-0.3, 0.4, 0.1], "lognormal": [-0.4], "inverse-gaussian": [1.1], "hurdle-poisson": [-0.8],
    "hurdle-negative-binomial": [0.6, -0.5], "poisson-lognormal": [-0.5], "beta-binomial": [1.4],
    "lognormal-aft": [-0.2], "loglogistic-aft": [-0.7],
}  # fmt: skip


@dataclass(frozen=True)
class Source:
    """What `response` of the kernels' cases draws from."""

    random: np.random.Generator


@dataclass(frozen=True)
class Case:
    """Points around those that made the rows. Every third time is censored on the right."""

    family: str
    grouped: bool
    points: int = POINTS

    @cached_property
    def arrays(self) -> tuple[Any, ...]:
        rng = np.random.default_rng(7)
        n, own = GROUPS * ROWS, OWN.get(self.family, [])
        X, beta = np.column_stack([np.ones(n), rng.standard_normal((n, 3))]), [0.2, 0.3, -0.2, 0.1]
        eta = X @ beta + 0.8 * np.repeat(rng.standard_normal(GROUPS), ROWS)
        y = response(Source(rng), self.family, eta, None, len(own))  # type: ignore[arg-type]  # it only draws
        upper = np.where(np.arange(n) % 3 == 0, np.inf, y) if self.family in mixed.TIMES else None
        centre = np.array([*beta, *([np.log(0.8)] if self.grouped else []), *own])
        points = centre + 0.05 * rng.standard_normal((self.points, len(centre)))
        starts = np.arange(0, n + 1, ROWS)
        cuts = CUTS if self.family == "piecewise" else None
        return points, X, np.ones((n, int(self.grouped))), y, None, None, starts, upper, cuts

    def bound(self, rate: float) -> float:
        """Seconds at so many operations a second, a multiplication and an addition being two."""
        return 2 * ROW[self.family] * self.points * GROUPS * ROWS * (NODES if self.grouped else 1) / rate


def values(case: Case, backend: str = "cpp") -> Callable[[], Any]:
    return lambda: mixed.values(*case.arrays, family=case.family, nodes=NODES, backend=backend)


class Values(common.Timed):
    params = (list(ROW), [True, False])
    param_names = ("family", "grouped")

    def make(self, family: str, grouped: bool) -> common.Call:
        return values(Case(family, grouped))

    def time_values(self, family: str, grouped: bool) -> None:
        self.call()


def main() -> None:
    print(f"values of {POINTS} points, {GROUPS * ROWS} rows, {NODES} nodes; instructions: {_core.isa()}")
    print(common.machine())
    print("least processor times, on one thread; NumPy's of 10 points, times 20")
    with common.alone():
        for family in ROW:
            for grouped in (False, True):
                case, few = Case(family, grouped), Case(family, grouped, POINTS // 20)
                np.testing.assert_allclose(values(few)(), values(few, "reference")(), rtol=1e-9)
                ours = least({"fedkern": values(case), "product": floors.multiply(PRODUCT)}, rounds=5)
                rate = 2 * PRODUCT**3 / ours["product"]
                numpy = 20 * least({"numpy": values(few, "reference")}, rounds=2)["numpy"]
                bound, of_rows = case.bound(rate), "100 groups" if grouped else "no groups"
                print(
                    f"{family:<32}{of_rows:<12} ms: bound {1e3 * bound:8.2f}  fedkern {1e3 * ours['fedkern']:8.2f}"
                    f" ({ours['fedkern'] / bound:5.1f} x)  NumPy / fedkern {numpy / ours['fedkern']:5.1f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
