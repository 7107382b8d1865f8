"""Posteriors of student, gamma, beta and zero-inflated responses by NUTS on pooled rows, which jobs are held against.

    python benchmarks/responses_reference.py [--family student] [--first 0] [--federations 8]
        [--out benchmarks/results/responses_reference.json]

Federation k of a family is drawn by its number: k = 0, 2, 4, .. without effects, 1, 5, .. with an intercept of each of five wards
of three clients, 3, 7, .. with one of each of eight clients. NumPyro (not a dependency) samples coefficients of standardised
columns, the numbers of the family and effects that are not centred, with the job's priors; what is stored are means and standard
deviations of what a result publishes, and the effective number of draws behind each. Federations that the file has are not run
again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Rows = dict[str, dict[str, Any]]

FAMILIES = ("student", "gamma", "beta", "zero-inflated-poisson", "zero-inflated-negative-binomial")
OUT = Path(__file__).parent / "results" / "responses_reference.json"
CHAINS, WARMUP, DRAWS = 8, 800, 2500


def kind(number: int) -> str:
    """What has an intercept of its own: "", "group" or "client"."""
    return ("", "group", "", "client")[number % 4]


def federation(family: str, number: int) -> Rows:
    """The rows of each client."""
    rng = np.random.default_rng([FAMILIES.index(family), number])
    of = kind(number)
    clients, n, wards = (8, 30, 1) if of == "client" else (3, 75, 5)
    found: Rows = {}
    for j in range(clients):
        a, b = np.round(rng.normal(40, 8, n), 1), rng.integers(0, 2, n).astype(float)
        ward = np.repeat(np.arange(wards), n // wards)
        eta = 0.04 * (a - 40) - 0.5 * b + (0.6 * rng.normal(size=wards)[ward] if of else 0.0)
        found[f"c{j}"] = {"a": a, "b": b, "ward": [f"w{w}" for w in ward], "y": _response(rng, family, eta)}
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
    mean = np.exp(1 + eta)
    count = rng.poisson(mean) if family.endswith("poisson") else rng.negative_binomial(3, 3 / (3 + mean))
    return np.where(rng.random(n) < 0.3, 0, count).astype(float)


def job(family: str, number: int) -> dict[str, Any]:
    """The tables of the job, without where its rows are."""
    of = kind(number)
    random = {"group": {"random": {"group": "ward"}}, "client": {"random": {"client": True}}, "": {}}[of]
    return {
        "job": {"method": "likelihood", "seed": number},
        "data": {"response": "y", "ignore": [] if of == "group" else ["ward"], "least_rows": 1},  # clients are small
        "model": {"family": family, "prior_sd": 2.5, "intercept_sd": 5.0, **random},  # as NUTS has them, whatever rows say
    }


def sampled(family: str, number: int) -> dict[str, dict[str, float]]:
    """Name, as in `parameters` of a result -> mean, sd and effective number of draws, by NUTS."""
    import jax
    from numpyro.diagnostics import effective_sample_size
    from numpyro.infer import MCMC, NUTS

    jax.config.update("jax_enable_x64", True)
    rows, of = federation(family, number), kind(number)
    y = np.concatenate([one["y"] for one in rows.values()])
    columns = {name: np.concatenate([one[name] for one in rows.values()]) for name in ("a", "b")}
    X = np.column_stack([(x - x.mean()) / x.std() for x in columns.values()])
    labels = [(name, ward if of == "group" else "") for name, one in rows.items() for ward in one["ward"]]
    group = np.unique([str(label) for label in labels], return_inverse=True)[1]
    measured = family == "student"
    level, unit = (
        (y.mean(), y.std()) if measured else (np.log(y.mean()) - (np.log1p(-y.mean()) if family == "beta" else 0.0), 1.0)
    )
    target = (y - level) / unit if measured else y
    model = _model(family, X, target, 0.0 if measured else level, group if of else None)
    mcmc = MCMC(
        NUTS(model, target_accept_prob=0.9),
        num_warmup=WARMUP,
        num_samples=DRAWS,
        num_chains=CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.PRNGKey(number))
    draws = {name: np.asarray(values) for name, values in mcmc.get_samples(group_by_chain=True).items()}
    slopes = {name: unit * draws["beta"][..., k] / x.std() for k, (name, x) in enumerate(columns.items())}
    found = {f"theta[{name}]": values for name, values in slopes.items()}
    found["intercept"] = (
        (level if measured else 0.0) + unit * draws["intercept"] - sum(slopes[k] * columns[k].mean() for k in slopes)
    )
    if of:
        found[f"{of}_sd[intercept]"] = unit * draws["tau"]
    for name in ("sigma", "nu", "shape", "precision", "structural_zeros"):
        if name in draws:
            found[name] = (unit if name == "sigma" else 1.0) * draws[name]
    if "phi" in draws:
        found["dispersion"] = draws["phi"] ** 2
    return {
        name: {"mean": float(v.mean()), "sd": float(v.std()), "ess": float(effective_sample_size(v))} for name, v in found.items()
    }


def _model(family: str, X: Vector, y: Vector, level: float, group: NDArray[np.int64] | None) -> Callable[[], None]:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def zeros(count: Any) -> Any:
        pi = numpyro.deterministic("structural_zeros", 1 / (1 + jnp.exp(-numpyro.sample("logit", dist.Normal(0, 1.5)))))
        return dist.ZeroInflatedDistribution(count, gate=pi)

    def model() -> None:
        eta = numpyro.sample("intercept", dist.Normal(level, 5)) + X @ numpyro.sample("beta", dist.Normal(jnp.zeros(2), 2.5))
        if group is not None:
            tau = numpyro.sample("tau", dist.HalfNormal(1))
            eta = eta + tau * numpyro.sample("u", dist.Normal(jnp.zeros(group.max() + 1), 1))[group]
        if family == "student":
            nu, sigma = numpyro.sample("nu", dist.Gamma(2, 0.1)), numpyro.sample("sigma", dist.HalfNormal(1))
            row = dist.StudentT(nu, eta, sigma)
        elif family == "gamma":
            shape = numpyro.deterministic("shape", numpyro.sample("root", dist.HalfCauchy(1)) ** -2)
            row = dist.Gamma(shape, shape / jnp.exp(eta))
        elif family == "beta":
            precision = numpyro.deterministic("precision", numpyro.sample("root", dist.HalfCauchy(1)) ** -2)
            mean = 1 / (1 + jnp.exp(-eta))
            row = dist.Beta(mean * precision, (1 - mean) * precision)
        elif family == "zero-inflated-poisson":
            row = zeros(dist.Poisson(jnp.exp(eta)))
        else:
            phi = numpyro.sample("phi", dist.HalfCauchy(1))
            row = zeros(dist.NegativeBinomial2(jnp.exp(eta), phi**-2))
        numpyro.sample("y", row, obs=y)

    return model


def main() -> None:
    """Writes the file after each federation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", choices=FAMILIES, action="append")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--federations", type=int, default=8)
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    kept: dict[str, Any] = json.loads(asked.out.read_text()) if asked.out.exists() else {}
    for number in range(asked.first, asked.first + asked.federations):
        for family in asked.family or FAMILIES:
            if (name := f"{family} {number}") not in kept:
                kept[name] = sampled(family, number)
                asked.out.write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n")
                print(name, {key: round(row["ess"]) for key, row in kept[name].items()}, flush=True)


if __name__ == "__main__":
    main()
