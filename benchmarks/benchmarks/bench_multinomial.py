"""Multinomial log-likelihood: 100,000 rows of 10 columns and 4 levels; its curvature, and its values at 256 points.

    python -m benchmarks.bench_multinomial

The bound of value, gradient and minus Hessian is the larger of a read of X and the operations of a weighted Gram matrix for each
of the 6 pairs of levels that have coefficients, at the rate of a large matrix product in the same process; of values the 2 n p
operations of each level and point, at the same rate, and beside them n exponentials of each, as NumPy makes them of an array that
stays in the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedkern import _core
from fedkern.kernels import multinomial

from . import common, floors
from .bench_mixed import PRODUCT, least

ROWS, COLUMNS, LEVELS, POINTS = 100_000, 10, 4, 256
CACHED = 4096  # numbers


@dataclass(frozen=True)
class Case:
    """Rows of a multinomial model."""

    n: int = ROWS
    p: int = COLUMNS
    levels: int = LEVELS

    @cached_property
    def rows(self) -> tuple[Any, Any]:
        """X and the numbers of levels."""
        rng = np.random.default_rng(12)
        return rng.standard_normal((self.n, self.p)), rng.integers(0, self.levels, self.n).astype(float)

    @property
    def size(self) -> int:
        return (self.levels - 1) * self.p

    @property
    def operations(self) -> float:
        """Of the curvature."""
        return self.levels * (self.levels - 1) / 2 * self.n * self.p * (self.p + 1)


def curvature(case: Case, backend: str = "cpp") -> Callable[[], Any]:
    point, (X, y) = np.full((1, case.size), 0.1), case.rows
    return lambda: multinomial.curvature(point, X, y, levels=case.levels, backend=backend)


def values(case: Case, points: int = POINTS, backend: str = "cpp") -> Callable[[], Any]:
    at, (X, y) = 0.1 * np.random.default_rng(1).standard_normal((points, case.size)), case.rows
    return lambda: multinomial.values(at, X, y, levels=case.levels, backend=backend)


def exponentials() -> Callable[[], Any]:
    x = np.linspace(-3.0, 0.0, CACHED)
    out = np.empty_like(x)
    return lambda: np.exp(x, out=out)


class Multinomial(common.Timed):
    params = (["curvature", "values"],)
    param_names = ("what",)

    def make(self, what: str) -> common.Call:
        return (curvature if what == "curvature" else values)(Case())

    def time_multinomial(self, what: str) -> None:
        self.call()


def main() -> None:
    case = Case()
    print(f"{ROWS} rows, {COLUMNS} columns, {LEVELS} levels; least processor times, one thread; instructions: {_core.isa()}")
    print(common.machine())
    with common.alone():
        calls = {
            "curvature": curvature(case),
            "values": values(case),
            "product": floors.multiply(PRODUCT),
            "read": floors.read(case.rows[0]),
            "exponentials": exponentials(),
        }
        seconds = least(calls, rounds=7)
        reference = least({"curvature": curvature(case, "reference"), "values": values(case, 8, "reference")}, rounds=2)
    rate = 2 * PRODUCT**3 / seconds["product"]
    bound = max(seconds["read"], case.operations / rate)
    each = seconds["exponentials"] / CACHED
    of_values = POINTS * case.n * ((case.levels - 1) * 2 * case.p / rate + case.levels * each)
    print(f"curvature {1e3 * seconds['curvature']:.2f} ms: {seconds['curvature'] / bound:.2f} x its bound, ", end="")
    print(f"{reference['curvature'] / seconds['curvature']:.0f} times as fast as the reference")
    print(
        f"a value {1e9 * seconds['values'] / ROWS / POINTS:.2f} ns a row: {seconds['values'] / of_values:.2f} x its bound, ",
        end="",
    )
    print(f"{reference['values'] * POINTS / 8 / seconds['values']:.0f} times as fast as the reference")


if __name__ == "__main__":
    main()
