"""Cox's partial log-likelihood: 100,000 rows of 10 or 50 columns with half of the times censored, and its values at 256 points.

    python -m benchmarks.bench_survival

The bound of value, gradient and minus Hessian is the larger of two reads of X and the 2 n p (p + 1) operations of two weighted
Gram matrices, at the rate of a product X'X of this shape by BLAS (`dsyrk`), and beside it at that of a large matrix product, in
the same process. Where rows enter late it is the same, though whoever leaves is read once more, from anywhere. Peers fit
the whole model (lifelines, scikit-survival and statsmodels, where they are installed), of times without ties: beside them stands
a fit by Newton's steps with our kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fedkern import _core
from fedkern.kernels import survival

from . import common, floors
from .bench_mixed import PRODUCT, least

ROWS, COLUMNS, WIDTH, POINTS = 100_000, 10, 50, 256
STEPS = 6  # of Newton's method from 0: the last is below 1e-9


@dataclass(frozen=True)
class Case:
    """Rows of a proportional hazards model. `entry`: rows are seen from some time on; `ties`: times are whole months."""

    n: int = ROWS
    p: int = COLUMNS
    entry: bool = False
    ties: bool = False

    @cached_property
    def table(self) -> tuple[Any, ...]:
        """X, time, event and entry."""
        rng = np.random.default_rng(11)
        X = rng.standard_normal((self.n, self.p))
        life = rng.exponential(size=self.n) * np.exp(-X @ np.linspace(-0.5, 0.5, self.p))
        seen = rng.exponential(size=self.n)
        time = np.minimum(life, seen)
        if self.ties:
            time = 1.0 + np.floor(60 * time)
        return X, time, life <= seen, time * rng.random(self.n) * 0.9 if self.entry else None

    @cached_property
    def rows(self) -> tuple[Any, ...]:
        X, time, event, entry = self.table
        order, first, ends, deaths, until = survival.arranged(time, event, entry)
        return np.ascontiguousarray(X[order]), None, None, first, ends, deaths, until

    @property
    def operations(self) -> float:
        return 2.0 * self.n * self.p * (self.p + 1)


def curvature(case: Case, backend: str = "cpp") -> Callable[[], Any]:
    point, rows = np.full((1, case.p), 0.1), case.rows
    return lambda: survival.cox_curvature(point, *rows, backend=backend)


def values(case: Case) -> Callable[[], Any]:
    points, rows = 0.1 * np.random.default_rng(1).standard_normal((POINTS, case.p)), case.rows
    return lambda: survival.cox_values(points, *rows)


def product(case: Case) -> Callable[[], Any]:
    """X'X, which has n p (p + 1) operations."""
    from scipy.linalg.blas import dsyrk

    X = np.asfortranarray(case.rows[0])
    return lambda: dsyrk(1.0, X, trans=1)


def fedkern(case: Case) -> Callable[[], Any]:
    """Sorts and fits."""

    def fit() -> Any:
        X, time, event, entry = case.table
        order, first, ends, deaths, until = survival.arranged(time, event, entry)
        X, beta = np.ascontiguousarray(X[order]), np.zeros((1, case.p))
        at = np.tril_indices(case.p)
        for _ in range(STEPS):
            _, gradient, lower = survival.cox_curvature(beta, X, None, None, first, ends, deaths, until)
            H = np.zeros((case.p, case.p))
            H[at] = lower[0]
            beta = beta + np.linalg.solve(H + np.tril(H, -1).T, gradient[0])
        return beta[0]

    return fit


def lifelines(case: Case) -> Callable[[], Any]:
    fitter, pandas = common.need("lifelines").CoxPHFitter, common.need("pandas")
    X, time, event, _ = case.table
    frame = pandas.DataFrame(X).assign(time=time, event=event)
    return lambda: fitter().fit(frame, "time", "event").params_.to_numpy()


def sksurv(case: Case) -> Callable[[], Any]:
    linear, util = common.need("sksurv.linear_model"), common.need("sksurv.util")
    X, time, event, _ = case.table
    y = util.Surv.from_arrays(event, time)
    return lambda: linear.CoxPHSurvivalAnalysis(ties="efron").fit(X, y).coef_


def statsmodels(case: Case) -> Callable[[], Any]:
    api = common.need("statsmodels.duration.hazard_regression")
    X, time, event, _ = case.table
    return lambda: api.PHReg(time, X, status=event, ties="efron").fit(disp=0).params


PEERS = {"fedkern": fedkern, "lifelines": lifelines, "sksurv": sksurv, "statsmodels": statsmodels}
KINDS = {"plain": Case(), "ties": Case(ties=True), "entry": Case(entry=True)}
WIDE = {f"{name}, {WIDTH} columns": replace(case, p=WIDTH) for name, case in KINDS.items()}


class Cox(common.Timed):
    params = (list(KINDS), ["curvature", "values"])
    param_names = ("rows", "what")

    def make(self, rows: str, what: str) -> common.Call:
        return (curvature if what == "curvature" else values)(KINDS[rows])

    def time_cox(self, rows: str, what: str) -> None:
        self.call()


def main() -> None:
    print(f"{ROWS} rows of {COLUMNS} columns; least processor times, on one thread; instructions: {_core.isa()}")
    print(common.machine())
    with common.alone():
        for name, case in (KINDS | WIDE).items():
            calls = {
                "curvature": curvature(case),
                "syrk": product(case),
                "product": floors.multiply(PRODUCT),
                "read": floors.read(case.rows[0]),
            }
            if case.p == COLUMNS:
                calls["values"] = values(case)
            seconds = least(calls, rounds=15)
            rate = 2 * PRODUCT**3 / seconds.pop("product")
            bound = max(2 * seconds["syrk"], 2 * seconds["read"])
            print(f"{name}, ms: {common.cells(seconds, '.2f', 1e3)}")
            print(
                f"    curvature / bound {seconds['curvature'] / bound:.2f} by dsyrk of this shape, "
                f"{seconds['curvature'] / (case.operations / rate):.2f} at {rate / 1e9:.1f} Gflop/s of a large product"
            )
            if "values" in seconds:
                print(f"    a value {1e9 * seconds['values'] / ROWS / POINTS:.2f} ns a row and point")
        case = Case()
        calls = common.available(PEERS, case)
        found = {peer: call() for peer, call in calls.items()}
        for peer, beta in found.items():
            np.testing.assert_allclose(beta, found["fedkern"], rtol=1e-5, atol=1e-6, err_msg=peer)
        print(f"a whole fit, s: {common.cells(least(calls, rounds=3), '.3f', 1)}", flush=True)


if __name__ == "__main__":
    main()
