"""What programs of Python compute of the rows of models.toml: log-likelihoods at three points, and the mode.

`record.py` hands over the rows as a file of JSON. A row's expression gives a `Peer`. fedkern is not imported.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

try:
    import numpy as np
    import pandas as pd
    import patsy
    import statsmodels.api as sm
    from scipy import special, stats
    from statsmodels.discrete import count_model as zeros  # noqa: F401
    from statsmodels.duration.hazard_regression import PHReg
    from statsmodels.miscmodels.ordinal_model import OrderedModel
    from statsmodels.miscmodels.tmodel import TLinearModel
    from statsmodels.othermod.betareg import BetaModel
except ImportError as lacking:
    print(lacking, file=sys.stderr)
    sys.exit(0)

warnings.simplefilter("ignore")
Array = np.ndarray
Numbers = dict[str, float]


@dataclass
class Peer:
    """A program's log-likelihood at numbers that have the names of the row's `at`; its own estimates in their order, where it
    has them; what standard deviations are multiples of in their priors."""

    package: str
    loglik: Callable[[Numbers], float]
    mode: Array | None = None
    unit: float = 1.0


# Numbers beside coefficients: their coordinates, in which the mode is one, and the priors of these --------------------


def log_half_cauchy_root(x: float) -> float:
    return float(stats.cauchy.logpdf(np.exp(-x / 2)) - x / 2)


@dataclass
class Number:
    to: Callable[[float], float]
    back: Callable[[float], float]
    log_prior: Callable[[float, float], float]


NUMBERS = {
    "sigma": Number(np.log, np.exp, lambda x, unit: stats.norm.logpdf(np.exp(x), 0, unit) + x),
    "shape": Number(np.log, np.exp, lambda x, unit: log_half_cauchy_root(x)),
    "precision": Number(np.log, np.exp, lambda x, unit: log_half_cauchy_root(x)),
    "nu": Number(np.log, np.exp, lambda x, unit: stats.gamma.logpdf(np.exp(x), 2, scale=10) + x),
    "dispersion": Number(np.sqrt, np.square, lambda x, unit: stats.cauchy.logpdf(x)),
    "structural_zeros": Number(special.logit, special.expit, lambda x, unit: stats.norm.logpdf(x, 0, 1.5)),
}
PLAIN = Number(float, float, lambda x, unit: 0.0)


def to_coordinates(p: Numbers) -> Array:
    x = np.array([NUMBERS.get(name, PLAIN).to(number) for name, number in p.items()])
    t = [k for k, name in enumerate(p) if name.startswith("threshold[")]
    x[t[1:]] = np.log(np.diff(x[t]))
    return x


def from_coordinates(x: Array, names: list[str]) -> Numbers:
    t = [k for k, name in enumerate(names) if name.startswith("threshold[")]
    p = [NUMBERS.get(name, PLAIN).back(number) for name, number in zip(names, x)]
    for k in t[1:]:
        p[k] = p[k - 1] + float(np.exp(x[k]))
    return dict(zip(names, map(float, p)))


def log_prior(x: Array, names: list[str], unit: float) -> float:
    total = sum(NUMBERS.get(name, PLAIN).log_prior(number, unit) for name, number in zip(names, x))
    t = [k for k, name in enumerate(names) if name.startswith("threshold[")]
    return float(total + stats.norm.logpdf(x[t[1:]], 0, 1.5).sum())


def top(f: Callable[[Array], float], x: Array) -> Array:
    """Returns the maximum, by Newton's steps with differences in units of the curvature."""
    k, unit = len(x), 1e-3 * np.maximum(np.abs(x), 1.0)
    for _ in range(60):
        e = np.diag(unit)
        at = f(x)
        up, down, up2, down2 = (np.array([f(x + s * e[i]) for i in range(k)]) for s in (1, -1, 2, -2))
        g, H = (8 * (up - down) - (up2 - down2)) / 12, np.diag(16 * (up + down) - (up2 + down2) - 30 * at) / 12
        for i in range(k):
            for j in range(i):
                H[i, j] = H[j, i] = (f(x + e[i] + e[j]) - f(x + e[i] - e[j]) - f(x - e[i] + e[j]) + f(x - e[i] - e[j])) / 4
        w, V = np.linalg.eigh(-H)
        move = V @ ((V.T @ g) / np.maximum(np.abs(w), 1e-9 * np.abs(w).max()))
        size = np.sqrt(abs(g @ move))
        move = move * min(1.0, 2.0 / max(size, 1e-300))
        while not f(x + move * unit) >= at - 1e-7 and np.abs(move).max() > 1e-12:
            move = move / 2
        x = x + move * unit
        if w[0] > 0:
            if size < 1e-6:
                return x
            unit = unit * np.clip(0.05 / np.sqrt(-np.diag(H)), 0.01, 100.0)  # about .05 standard deviations
    raise ArithmeticError("no mode")


# Programs --------------------


def columns(d: pd.DataFrame, formula: str) -> tuple[Array, Array]:
    """Returns response and columns, in the formula's order of terms: patsy takes factors first."""
    response, terms = formula.split(" ~ ")
    parts = [np.ones((len(d), 1)), *(np.asarray(patsy.dmatrix(term, d))[:, 1:] for term in terms.split(" + "))]
    return d.eval(response).to_numpy(float), np.hstack(parts)


def values(p: Numbers) -> Array:
    return np.array([*p.values()])


def of_discrete(model: Any, d: pd.DataFrame, formula: str) -> Peer:
    y, X = columns(d, formula)
    fitted = model(y, X)
    return Peer("statsmodels", lambda p: fitted.loglike(values(p)), fitted.fit(disp=0, method="newton", tol=1e-14).params)


def of_counts(model: Any, d: pd.DataFrame, formula: str, names: list[str]) -> Peer:
    """Of counts; statsmodels has the logit of structural zeros first, and the dispersion (alpha) last."""
    y, X = columns(d, formula)
    fitted, q = model(y, X), X.shape[1]
    fitted._transparams = False  # alpha itself, and not its logarithm

    def loglik(p: Numbers) -> float:
        first = [special.logit(p["structural_zeros"])] if "structural_zeros" in names else []
        last = [p["dispersion"]] if "dispersion" in names else []
        return float(fitted.loglike(np.concatenate([first, values(p)[:q], last])))

    return Peer("statsmodels", loglik)


def of_student(d: pd.DataFrame, formula: str, nu: float | None = None) -> Peer:
    y, X = columns(d, formula)
    fitted, q = TLinearModel(y, X), X.shape[1]

    def loglik(p: Numbers) -> float:
        return float(fitted.loglike(np.concatenate([values(p)[:q], [p.get("nu", nu), p["sigma"]]])))

    return Peer("statsmodels", loglik, unit=float(np.std(y)))


def of_gamma(d: pd.DataFrame, formula: str, offset: str | None = None) -> Peer:
    y, X = columns(d, formula)
    fitted = sm.GLM(y, X, sm.families.Gamma(sm.families.links.Log()), offset=None if offset is None else d[offset])
    return Peer("statsmodels", lambda p: fitted.loglike(values(p)[:-1], scale=1 / p["shape"]))


def of_beta(d: pd.DataFrame, formula: str) -> Peer:
    y, X = columns(d, formula)
    fitted = BetaModel(y, X)
    estimate = fitted.fit(disp=0, method="newton", tol=1e-14).params
    return Peer(
        "statsmodels",
        lambda p: fitted.loglike(np.concatenate([values(p)[:-1], [np.log(p["precision"])]])),
        np.concatenate([estimate[:-1], np.exp(estimate[-1:])]),
    )


def of_ordered(d: pd.DataFrame, response: str, levels: list[Any], formula: str, distribution: str) -> Peer:
    X = np.asarray(patsy.dmatrix(f"1 + {formula.removeprefix('0 + ')}", d))[:, 1:]
    fitted = OrderedModel(pd.Series(pd.Categorical(d[response], levels, ordered=True)), X, distr=distribution)

    def loglik(p: Numbers) -> float:
        numbers, q = values(p), X.shape[1]
        return float(fitted.loglike(np.concatenate([numbers[: q + 1], np.log(np.diff(numbers[q:]))])))

    return Peer("statsmodels", loglik)


def of_levels(d: pd.DataFrame, response: str, levels: list[Any], formula: str) -> Peer:
    y = np.array([levels.index(value) for value in d[response]])
    fitted = sm.MNLogit(y, np.asarray(patsy.dmatrix(formula, d)))
    estimate = np.asarray(fitted.fit(disp=0, method="newton", tol=1e-14).params)
    return Peer("statsmodels", lambda p: fitted.loglike(values(p)), estimate.T.ravel())


def of_hazards(d: pd.DataFrame, names: list[str], time: str, event: str, **options: Any) -> Peer:
    fitted = PHReg(d[time], d[names].to_numpy(float), status=d[event], ties="efron", **options)
    return Peer("statsmodels", lambda p: fitted.loglike(values(p)), fitted.fit(tol=1e-14).params)


def numbers_of(row: dict[str, Any]) -> tuple[Peer, list[float], list[float]]:
    """Returns the program, its log-likelihoods at the row's points, and the mode."""
    d = pd.read_csv(row["file"], keep_default_na=False)
    for name, expression in row["make"].items():
        d[name] = d.eval(expression)
    peer, at = eval(row["Python"], globals(), {"d": d}), row["at"]
    told = [float(peer.loglik({name: factor * number for name, number in at.items()})) for factor in row["factors"]]
    if row["mode"] == "none":
        return peer, told, [np.nan] * len(at)
    names = [*at]
    beside = any(name in NUMBERS or name.startswith("threshold[") for name in names)
    found = peer.mode
    if found is None or (row["mode"] == "prior" and beside):
        of_prior = row["mode"] == "prior"

        def f(x: Array) -> float:
            value = peer.loglik(from_coordinates(x, names)) + (log_prior(x, names, peer.unit) if of_prior else 0.0)
            return float(value) if np.isfinite(value) else -1e300

        found = np.array([*from_coordinates(top(f, to_coordinates(at)), names).values()])
    return peer, told, [float(number) for number in found]


if __name__ == "__main__":
    for name, row in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")).items():
        try:
            peer, told, mode = numbers_of(row)
        except Exception as fault:
            print(f"{name}: {type(fault).__name__}: {fault}", file=sys.stderr)
            continue
        parts = (" ".join(f"{number:.15g}" for number in part) for part in (told, mode))
        print(name, peer.package, version(peer.package), *parts, sep="\t")
