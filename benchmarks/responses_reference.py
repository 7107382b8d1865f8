"""Posteriors of pooled rows of families that no closed form has, which jobs are held against.

    python benchmarks/responses_reference.py [--family student] [--first 0] [--federations 8]
        [--out benchmarks/results/responses_reference.json]

Federation k of a family is drawn by its number: k = 0, 2, 4, .. without effects, 1, 5, .. with an intercept of each of five wards
of three clients, 3, 7, .. with one of each of eight clients. Coefficients of standardised columns and the numbers of the family
are summed over, effects are integrated (`quadrature_reference`), with the job's priors; what is stored are means and standard
deviations of what a result publishes, and the number of independent draws that would know each as well. Federations that the
file has are not run again. Student and zero-inflated Poisson ones are of long chains of NumPyro, the others of SciPy 1.17.1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit, gammaln, log_ndtr, ndtr, ndtri

from fedkern.arrays import Vector

sys.path.insert(0, str(Path(__file__).parent))
import quadrature_reference as exact

Rows = dict[str, dict[str, Any]]

FAMILIES = ("student", "gamma", "beta", "zero-inflated-poisson", "zero-inflated-negative-binomial")
CHANCES = ("bernoulli-probit", "bernoulli-cloglog")
LATER = ("beta-binomial", "lognormal", "inverse-gaussian", "hurdle-poisson", "hurdle-negative-binomial", "poisson-lognormal")
EVERY = (*FAMILIES, *CHANCES, *LATER)
TRIALS = 8.0
POSITIVE = {  # numbers that are logarithms in a point: their names in a result
    "gamma": "shape", "beta": "precision", "inverse-gaussian": "shape", "beta-binomial": "precision", "lognormal": "sigma",
    "poisson-lognormal": "row_sd",
}  # fmt: skip
_nodes, _weights = np.polynomial.hermite_e.hermegauss(40)
NORMAL = _nodes, np.log(_weights / _weights.sum())
OUT = Path(__file__).parent / "results" / "responses_reference.json"


def kind(number: int) -> str:
    """What has an intercept of its own: "", "group" or "client"."""
    return ("", "group", "", "client")[number % 4]


def federation(family: str, number: int) -> Rows:
    """The rows of each client."""
    rng = np.random.default_rng([EVERY.index(family), number])
    of = kind(number)
    clients, n, wards = (8, 30, 1) if of == "client" else (3, 75, 5)
    found: Rows = {}
    for j in range(clients):
        a, b = np.round(rng.normal(40, 8, n), 1), rng.integers(0, 2, n).astype(float)
        ward = np.repeat(np.arange(wards), n // wards)
        eta = 0.04 * (a - 40) - 0.5 * b + (0.6 * rng.normal(size=wards)[ward] if of else 0.0)
        found[f"c{j}"] = {"a": a, "b": b, "ward": [f"w{w}" for w in ward], "y": _response(rng, family, eta)}
        found[f"c{j}"] |= {"trials": np.full(n, TRIALS)} if family == "beta-binomial" else {}
    return found


def _response(rng: np.random.Generator, family: str, eta: Vector) -> Vector:
    n = len(eta)
    if family == "student":
        return np.round(80 + 12 * (eta + 0.6 * rng.standard_t(2.5, n)), 2)
    if family == "gamma":
        return np.maximum(np.round(rng.gamma(1.5, np.exp(2 + eta) / 1.5), 3), 1e-3)
    if family == "beta":
        p = 1 / (1 + np.exp(-eta))
        return np.clip(np.round(rng.beta(5 * p, 5 * (1 - p)), 5), 1e-5, 1 - 1e-5)
    if family == "lognormal":
        return np.maximum(np.round(np.exp(2 + eta + 0.6 * rng.normal(size=n)), 3), 1e-3)
    if family == "inverse-gaussian":
        return np.maximum(np.round(rng.wald(np.exp(2 + eta), 9.0), 3), 1e-3)
    if family == "beta-binomial":
        p = 1 / (1 + np.exp(-eta))
        return rng.binomial(int(TRIALS), rng.beta(5 * p, 5 * (1 - p))).astype(float)
    if family == "poisson-lognormal":
        return rng.poisson(np.exp(1 + eta + 0.6 * rng.normal(size=n))).astype(float)
    if family in CHANCES:
        p = ndtr(eta - 0.3) if family.endswith("probit") else -np.expm1(-np.exp(eta - 0.5))
        return (rng.random(n) < p).astype(float)
    mean = np.exp(1 + eta)
    count = rng.poisson(mean) if family.endswith("poisson") else rng.negative_binomial(3, 3 / (3 + mean))
    above = np.maximum(count, 1) if family.startswith("hurdle") else count
    return np.where(rng.random(n) < 0.3, 0, above).astype(float)


def job(family: str, number: int) -> dict[str, Any]:
    """The tables of the job, without where its rows are."""
    of = kind(number)
    name, *link = family.split("-") if family in CHANCES else [family]
    random: dict[str, Any] = {"group": {"random": {"group": "ward"}}, "client": {"random": {"client": True}}, "": {}}[of]
    if of:
        random["priors"] = {f"{of}_sd[intercept]": {"kind": "half-normal", "sd": 1.0, "unit": "sd"}}
    trials = {"trials": "trials"} if family == "beta-binomial" else {}
    return {
        "job": {"method": "likelihood", "seed": number},
        "data": {"response": "y", "ignore": [] if of == "group" else ["ward"], "least_rows": 1, **trials},  # clients are small
        # Priors are as NUTS has them, whatever rows say.
        "model": {"family": name, "prior_sd": 2.5, "intercept_sd": 5.0, **random, **({"link": link[0]} if link else {})},
    }


def _rows(family: str, y: Vector, trailing: Vector) -> Callable[[Vector, slice], Vector]:
    """Log-densities of rows at predictors (S, K, n), by the family's numbers (S, k), as coordinates."""
    a = trailing[:, :, np.newaxis, np.newaxis]

    def zeros(log_zero: Vector, log_count: Vector, y: Vector, logit: Vector) -> Vector:
        left, right = -np.logaddexp(0, -logit), -np.logaddexp(0, logit)
        return np.where(y == 0, np.logaddexp(left, right + log_zero), right + log_count)

    def density(eta: Vector, of: slice) -> Vector:
        own = y[of]
        if family == "bernoulli-probit":
            return log_ndtr((2 * own - 1) * eta)
        if family == "bernoulli-cloglog":
            return np.where(own > 0, np.log(-np.expm1(-np.exp(eta))), -np.exp(eta))
        if family == "student":
            nu, log_sd = np.exp(a[:, 0]), a[:, 1]
            constant = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * np.log(nu * np.pi) - log_sd
            return constant - (nu + 1) / 2 * np.log1p(((own - eta) * np.exp(-log_sd)) ** 2 / nu)
        if family == "gamma":
            shape = np.exp(a[:, 0])
            return shape * (a[:, 0] - eta - own * np.exp(-eta)) + (shape - 1) * np.log(own) - gammaln(shape)
        if family == "beta":
            precision, mean = np.exp(a[:, 0]), expit(eta)
            p, q = mean * precision, (1 - mean) * precision
            return gammaln(precision) - gammaln(p) - gammaln(q) + (p - 1) * np.log(own) + (q - 1) * np.log1p(-own)
        if family == "lognormal":
            return -np.log(own) - a[:, 0] - 0.5 * np.log(2 * np.pi) - 0.5 * ((np.log(own) - eta) * np.exp(-a[:, 0])) ** 2
        if family == "inverse-gaussian":
            misfit = np.exp(a[:, 0]) * (own * np.exp(-eta) - 1) ** 2 / own
            return 0.5 * (a[:, 0] - np.log(2 * np.pi) - 3 * np.log(own) - misfit)
        if family == "beta-binomial":
            precision, mean, rest = np.exp(a[:, 0]), expit(eta), TRIALS - own
            p, q, ways = mean * precision, (1 - mean) * precision, gammaln(TRIALS + 1) - gammaln(own + 1) - gammaln(rest + 1)
            chance = gammaln(own + p) - gammaln(p) + gammaln(rest + q) - gammaln(q)
            return ways + chance + gammaln(precision) - gammaln(TRIALS + precision)
        if family == "poisson-lognormal":
            total: Any = -np.inf
            for z, log_w in zip(*NORMAL, strict=True):
                moved = eta + np.exp(a[:, 0]) * z
                total = np.logaddexp(total, log_w + own * moved - np.exp(moved))
            return total - gammaln(own + 1)
        if family == "hurdle-poisson":
            mean = np.exp(eta)
            above = own * eta - mean - gammaln(own + 1) - np.log(-np.expm1(-mean)) - np.logaddexp(0, a[:, 0])
            return np.where(own == 0, -np.logaddexp(0, -a[:, 0]), above)
        if family == "zero-inflated-poisson":
            mean = np.exp(eta)
            return zeros(-mean, own * eta - mean - gammaln(own + 1), own, a[:, 0])
        r = a[:, 0] ** -2
        log_both = np.logaddexp(eta, np.log(r))
        log_zero = r * (np.log(r) - log_both)
        count = gammaln(own + r) - gammaln(r) - gammaln(own + 1) + log_zero + own * (eta - log_both)
        if family.startswith("hurdle"):
            above = count - np.log(-np.expm1(log_zero)) - np.logaddexp(0, a[:, 1])
            return np.where(own == 0, -np.logaddexp(0, -a[:, 1]), above)
        return zeros(log_zero, count, own, a[:, 1])

    return density


def log_half_student(log_sd: Vector) -> Vector:
    """The density of a logarithm whose exponential is half-Student with 3 degrees of freedom."""
    return np.log(4 / (np.sqrt(3) * np.pi)) - 2 * np.log1p(np.exp(2 * log_sd) / 3) + log_sd


def integrated(family: str, number: int) -> dict[str, dict[str, float]]:
    """Name, as in `parameters` of a result -> mean, sd, and the number of independent draws that know them as well."""
    rows, of = federation(family, number), kind(number)
    y = np.concatenate([one["y"] for one in rows.values()])
    columns = {name: np.concatenate([one[name] for one in rows.values()]) for name in ("a", "b")}
    X = np.column_stack([(x - x.mean()) / x.std() for x in columns.values()])
    labels = [(name, ward if of == "group" else "") for name, one in rows.items() for ward in one["ward"]]
    order, groups = exact.groups_of(np.unique([str(label) for label in labels], return_inverse=True)[1])
    measured = family == "student"
    level, unit = (
        (y.mean(), y.std()) if measured else (np.log(y.mean()) - (np.log1p(-y.mean()) if family == "beta" else 0.0), 1.0)
    )
    if family == "beta-binomial":
        level = np.log(y.mean()) - np.log(TRIALS - y.mean())
    if family in CHANCES:
        level = ndtri(y.mean()) if family.endswith("probit") else np.log(-np.log1p(-y.mean()))
    X, target, centre = X[order], ((y - level) / unit if measured else y)[order], 0.0 if measured else level
    q = 4 if of else 3  # intercept, slopes, and the logarithm of the effects' sd

    def log_posterior(points: Vector) -> Vector:
        eta = points[:, :1] + points[:, 1:3] @ X.T
        density = _rows(family, target, points[:, q:])
        if of:
            value = exact.over_effects(density, eta, np.exp(points[:, 3]), groups) + exact.log_half_normal(points[:, 3])
        else:
            value = density(eta[:, np.newaxis], slice(None)).sum(axis=(1, 2))
        value = value + exact.log_normal(points[:, 0], centre, 5.0) + exact.log_normal(points[:, 1:3], 0.0, 2.5).sum(axis=1)
        if family in CHANCES:
            return np.asarray(value)
        if family == "student":
            nu = np.exp(points[:, q])  # ~ Gamma(2, rate 0.1)
            return np.asarray(value + 2 * points[:, q] - 0.1 * nu + exact.log_half_normal(points[:, q + 1]))
        if family in ("lognormal", "poisson-lognormal"):
            return np.asarray(value + log_half_student(points[:, q]))
        if family == "beta-binomial":
            return np.asarray(value + exact.log_normal(points[:, q], 2.0, 1.5))
        if family in ("gamma", "beta", "inverse-gaussian"):
            return np.asarray(value + exact.log_half_cauchy_root(points[:, q]))
        value = value + exact.log_normal(points[:, -1], 0.0, 1.5)
        if family.endswith("poisson"):
            return np.asarray(value)
        phi = points[:, q]  # of which one half is summed: its mirror image is the same model
        return np.where(phi > 0, value - np.log1p(phi**2), -np.inf)

    def read(points: Vector) -> dict[str, Vector]:
        slopes = {name: unit * points[:, 1 + k] / x.std() for k, (name, x) in enumerate(columns.items())}
        found = {f"theta[{name}]": values for name, values in slopes.items()}
        level_of_all = (level if measured else 0.0) + unit * points[:, 0]
        found["intercept"] = level_of_all - sum(slopes[name] * columns[name].mean() for name in slopes)
        if of:
            found[f"{of}_sd[intercept]"] = unit * np.exp(points[:, 3])
        if family == "student":
            found |= {"nu": np.exp(points[:, q]), "sigma": unit * np.exp(points[:, q + 1])}
        if family in POSITIVE:
            found[POSITIVE[family]] = np.exp(points[:, q])
        if family.endswith("negative-binomial"):
            found["dispersion"] = points[:, q] ** 2
        if family.startswith(("zero", "hurdle")):
            found["structural_zeros" if family.startswith("zero") else "zero_probability"] = expit(points[:, -1])
        return found

    known: dict[str, list[float]] = {"student": [2.0, 0.0], "gamma": [0.0], "beta": [1.0], "zero-inflated-poisson": [-1.0]}
    known |= {"hurdle-poisson": [-1.0], "lognormal": [-0.5], "poisson-lognormal": [-0.5], "inverse-gaussian": [2.0]}
    known |= {"beta-binomial": [1.5]}
    numbers = known.get(family, [] if family in CHANCES else [0.6, -1.0])
    start = np.array([centre, 0, 0, *([-0.5] if of else []), *numbers])
    # The dispersion of a negative binomial has a long tail.
    return exact.moments(exact.in_parts(log_posterior), start, read, 11 if family == "hurdle-negative-binomial" else 8)


def main() -> None:
    """Writes the file after each federation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", choices=EVERY, action="append")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--federations", type=int, default=8)
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    kept: dict[str, Any] = json.loads(asked.out.read_text()) if asked.out.exists() else {}
    for number in range(asked.first, asked.first + asked.federations):
        for family in asked.family or EVERY:
            if (name := f"{family} {number}") not in kept:
                kept[name] = integrated(family, number)
                asked.out.write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n")
                print(name, {key: round(row["ess"]) for key, row in kept[name].items()}, flush=True)


if __name__ == "__main__":
    main()
