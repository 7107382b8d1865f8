"""Posteriors of survival federations over the pooled rows, without this package: of Weibull rows by sums and integrals
(`quadrature_reference`), of others, and where effects of groups make its weights uneven, by long chains of the No-U-Turn sampler.

    python benchmarks/survival_reference.py benchmarks/results/survival_reference.json [KIND ..]
    python benchmarks/survival_reference.py benchmarks/results/survival_reference.json --against

Of each kind eight federations are made (`federation`); means, standard deviations and effective sizes of each number go into the
file, on standardised columns and in the model's unit of time; what is in it already is left (take it out to have it anew). A job
of each is held against them by `tests/methods/likelihood/test_lifetimes.py`; `--against` says of all how far the farthest number
is off. Chains need numpyro; ten minutes of one processor.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parent))
import quadrature_reference as exact

COLUMNS = ["age", "dose"]
EFFECTS = np.array([0.5, -0.4])
KINDS: dict[str, dict[str, Any]] = {
    "weibull": {"shape": 1.6, "wards": 8, "sd": 0.6, "intervals": True},
    "exponential": {"shape": 1.0, "wards": 10, "sd": 0.5},
    "piecewise": {"shape": 0.7, "cuts": [6.0, 12.0, 24.0, 48.0]},
    "cox": {"shape": 1.2},
    "lognormal-aft": {"sigma": 0.8, "wards": 8, "sd": 0.4, "intervals": True},
    "loglogistic-aft": {"sigma": 0.5, "wards": 8, "sd": 0.3},
}
SEEDS = range(1, 9)


def federation(kind: str, seed: int, clients: int = 3, rows: int = 110) -> dict[str, pd.DataFrame]:
    """Patients of three hospitals: months to death or to the end of the study, of a hazard k t^(k-1) exp(eta)."""
    about, found = KINDS[kind], {}
    rng = np.random.default_rng([seed, sum(kind.encode())])
    for name in ("ada", "bo", "cy", "di")[:clients]:
        x = rng.standard_normal((rows, 2))
        wards = about.get("wards", 0)
        ward = rng.integers(0, max(wards, 1), rows)
        eta = x @ EFFECTS + about.get("sd", 0.0) * rng.standard_normal(max(wards, 1))[ward]
        if "sigma" in about:
            e = rng.standard_normal(rows) if kind == "lognormal-aft" else rng.logistic(size=rows)
            life = 30.0 * np.exp(eta + about["sigma"] * e)
        else:
            eta -= about["shape"] * np.log(30.0)
            life = (rng.exponential(size=rows) * np.exp(-eta)) ** (1 / about["shape"])
        seen = np.minimum(rng.exponential(70.0, rows), 80.0)
        months = np.maximum(np.round(np.minimum(life, seen), 2), 0.01)
        died = (life <= seen).astype(int)
        frame = pd.DataFrame({"age": 60 + 10 * x[:, 0], "dose": x[:, 1], "months": months, "died": died})
        if wards:
            frame["ward"] = [f"w{k}" for k in ward]
        if about.get("intervals"):  # a third of the events are known to be between two visits, six months apart
            between = (rng.random(rows) < 0.33) & (died == 1)
            begin = 6 * np.floor(months / 6)
            frame["until"] = np.where(died == 1, months, np.nan)
            frame.loc[between, "months"], frame.loc[between, "until"] = begin[between], begin[between] + 6
        found[name] = frame
    return found


def pooled(frames: dict[str, pd.DataFrame]) -> dict[str, Any]:
    """All rows, columns standardised, times in how long rows were seen for one event."""
    whole = pd.concat([frame.assign(client=name) for name, frame in frames.items()], ignore_index=True)
    X = whole[COLUMNS].to_numpy()
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    time, event = whole.months.to_numpy(), whole.died.to_numpy()
    upper = whole.until.to_numpy() if "until" in whole else np.where(event == 1, time, np.nan)
    upper = np.where(event == 1, upper, np.inf)
    unit = np.where(event == 1, (time + np.where(event == 1, upper, 0)) / 2, time).sum() / event.sum()
    ward = whole.client + whole.get("ward", pd.Series("", whole.index))
    codes = np.unique(ward, return_inverse=True)[1]
    client = np.unique(whole.client, return_inverse=True)[1]
    return {
        "X": X,
        "time": time / unit,
        "upper": upper / unit,
        "event": event == 1,
        "ward": codes,
        "client": client,
        "unit": unit,
    }


def posterior(kind: str, frames: dict[str, pd.DataFrame], seed: int) -> dict[str, dict[str, float]]:
    """Name -> mean, sd, and effective size."""
    if kind == "weibull":
        d = pooled(frames)
        try:
            return exact.weibull({**d, "group": d["ward"]}, "group_sd")
        except AssertionError as uneven:
            print(kind, seed, uneven)
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.diagnostics import effective_sample_size
    from numpyro.infer import MCMC, NUTS

    numpyro.enable_x64()
    d, about = pooled(frames), KINDS[kind]
    X, time, event = d["X"], d["time"], d["event"]
    seen, between = d["upper"] == time, np.isfinite(d["upper"]) & (d["upper"] != time)
    end = np.where(np.isfinite(d["upper"]), d["upper"], time)

    def hazards(own: Any, t: np.ndarray) -> tuple[Any, Any]:
        if kind == "piecewise":
            cuts = np.array(about["cuts"]) / d["unit"]
            begins = np.append(0.0, cuts)
            spent = np.clip(t[:, None] - begins, 0, np.append(np.diff(begins), np.inf))
            return own[np.searchsorted(cuts, t)], spent @ jnp.exp(own)
        log_t = np.log(np.maximum(t, 1e-300))
        return own + (jnp.exp(own) - 1) * log_t, jnp.exp(jnp.exp(own) * log_t)

    def model() -> None:
        beta = numpyro.sample("beta", dist.Normal(0, 2.5).expand([2]).to_event(1))
        eta = X @ beta
        if kind == "cox":
            numpyro.factor("partial", partial(eta))
            return
        eta = eta + numpyro.sample("intercept", dist.Normal(0, 5))
        own: Any = 0.0
        if kind == "weibull":
            own = numpyro.deterministic("log_shape", -2 * jnp.log(numpyro.sample("root", dist.HalfCauchy(1))))
        if kind == "piecewise":
            s = numpyro.sample("walk_sd", dist.HalfNormal(1))
            steps = numpyro.sample("steps", dist.Normal(0, 1).expand([len(about["cuts"])]).to_event(1))
            own = numpyro.deterministic("log_hazard", jnp.concatenate([jnp.zeros(1), s * jnp.cumsum(steps)]))
            numpyro.deterministic("log_walk_sd", jnp.log(s))
        if "wards" in about:
            tau = numpyro.sample("group_sd", dist.HalfNormal(1))
            u = numpyro.sample("u", dist.Normal(0, 1).expand([int(d["ward"].max()) + 1]).to_event(1))
            eta = eta + tau * u[d["ward"]]
        if "sigma" in about:
            sigma = numpyro.sample("sigma", dist.FoldedDistribution(dist.StudentT(3.0)))
            numpyro.deterministic("log_sigma", jnp.log(sigma))
            z, z_end = ((jnp.log(np.maximum(t, 1e-300)) - eta) / sigma for t in (time, end))
            law = dist.Normal() if kind == "lognormal-aft" else dist.Logistic()
            survival = (lambda z: jax.scipy.special.log_ndtr(-z)) if kind == "lognormal-aft" else (lambda z: -jax.nn.softplus(z))
            beyond, by_end = survival(z), survival(z_end)
            inside = beyond + jnp.log(-jnp.expm1(jnp.where(between, by_end - beyond, -1.0)))
            numpyro.factor("rows", jnp.where(seen, law.log_prob(z) - jnp.log(sigma), jnp.where(between, inside, beyond)).sum())
            return
        log_hazard, begin = hazards(own, time)
        begin = begin * jnp.exp(eta)
        more = hazards(own, end)[1] * jnp.exp(eta) - begin
        of_event = jnp.where(seen, log_hazard + eta, jnp.where(between, jnp.log(-jnp.expm1(-jnp.where(between, more, 1.0))), 0.0))
        numpyro.factor("rows", (of_event - begin).sum())

    died = np.flatnonzero(event)
    risk = [(d["client"] == d["client"][i]) & (time >= time[i]) for i in died]
    ties = [(d["client"] == d["client"][i]) & (time == time[i]) & event for i in died]
    share = np.array([(np.flatnonzero(tied) < i).sum() / tied.sum() for i, tied in zip(died, ties)])
    R, D = np.array(risk, float), np.array(ties, float)

    def partial(eta: Any) -> Any:
        """Efron's, stratified by client, written out row by row."""
        e = jnp.exp(eta)
        return eta[died].sum() - jnp.log(R @ e - share * (D @ e)).sum()

    kernel = NUTS(model, target_accept_prob=0.98 if kind == "piecewise" else 0.9)
    mcmc = MCMC(kernel, num_warmup=1000, num_samples=2500, num_chains=4, chain_method="sequential", progress_bar=False)
    mcmc.run(jax.random.PRNGKey(seed))
    found = {}
    for name, values in mcmc.get_samples(group_by_chain=True).items():
        if name in ("u", "steps", "walk_sd", "root", "sigma"):
            continue
        for k, one in enumerate(np.moveaxis(np.atleast_3d(np.asarray(values)), 2, 0)):
            if one.std() > 0:
                label = f"{name}[{k}]" if np.ndim(values) > 2 else name
                found[label] = {"mean": float(one.mean()), "sd": float(one.std()), "ess": float(effective_sample_size(one))}
    return found


def standard(result: Any, kind: str, frames: dict[str, pd.DataFrame]) -> dict[str, np.ndarray]:
    """Draws of a job by the names of `posterior`."""
    from fedkern.results.released import Drawing

    group = result.posterior.groups(Drawing(result.seed, result.chains, result.n_draws))["posterior"]
    drawn = {name: np.asarray(values) for name, (_, values) in group.variables.items()}
    flat = {name: values.ravel() for name, values in drawn.items() if values.ndim == 2}
    found = {f"beta[{k}]": drawn["theta_std"].reshape(-1, 2)[:, k] for k in range(2)}
    if kind == "cox":
        return found
    shape = -1.0 if "sigma" in flat else flat.get("shape", np.ones(1))  # of times, and not of hazards
    found["intercept"] = flat["intercept_std"] + shape * np.log(pooled(frames)["unit"])
    if "sigma" in flat:
        found["log_sigma"] = np.log(flat["sigma"])
    if kind == "weibull":
        found["log_shape"] = np.log(shape)
    if "group_sd[intercept]" in flat:
        found["group_sd"] = flat["group_sd[intercept]"]
    if kind == "piecewise":
        hazards = [values for name, values in flat.items() if name.startswith("log_hazard")]
        found |= {f"log_hazard[{k}]": one - flat["intercept"] for k, one in enumerate(hazards, start=1)}
        found["log_walk_sd"] = np.log(flat["walk_sd"])
    return found


def job(kind: str) -> dict[str, Any]:
    """Of `federation`."""
    about = KINDS[kind]
    data = {"time": "months", "event": "died", "least_rows": 10}
    priors = {"prior_sd": 2.5, "intercept_sd": 5.0}  # as NUTS has them, whatever rows say
    model: dict[str, Any] = {"family": kind, **priors} | ({"cuts": about["cuts"]} if "cuts" in about else {})
    if about.get("intervals"):
        data["time_upper"] = "until"
    if "wards" in about:
        model["random"] = {"group": "ward"}
    method = {"job": {"method": "likelihood", "seed": 4}, "output": {"draws": 8000, "chains": 2}}
    return {**method, "data": data, "model": model}


def against(path: Path) -> None:
    """How far jobs are from the file: means in posterior sds, and sds, the farthest of each kind."""
    import fedkern

    content = json.loads(path.read_text())
    for kind in KINDS:
        of_means, of_sds, rounds, count = [], [], [], 0
        for name in [name for name in content if name.startswith(kind)]:
            frames = federation(kind, int(name.split()[1]))
            result = fedkern.run(job(kind), data=frames)
            found = standard(result, kind, frames)
            rounds.append(result.summary["rounds_of_draws"])
            of_means += [abs(found[key].mean() - row["mean"]) / row["sd"] for key, row in content[name].items()]
            of_sds += [abs(found[key].std() / row["sd"] - 1) for key, row in content[name].items()]
            count += result.converged is True
        print(
            f"{kind}: {len(rounds)} federations, {count} converged, rounds of draws {min(rounds)} to {max(rounds)}; means up to "
            f"{max(of_means):.3f} sd off (median {np.median(of_means):.3f}), sds up to {100 * max(of_sds):.1f} % "
            f"(median {100 * np.median(of_sds):.1f})"
        )


def main(path: Path, kinds: list[str]) -> None:
    """Writes what is found, beside what there was."""
    content = json.loads(path.read_text()) if path.exists() else {}
    for kind in kinds or KINDS:
        for seed in SEEDS:
            if f"{kind} {seed}" in content:
                continue
            content[f"{kind} {seed}"] = posterior(kind, federation(kind, seed), seed)
            path.write_text(json.dumps(content, indent=1) + "\n")
            print(kind, seed, json.dumps(content[f"{kind} {seed}"]))


if __name__ == "__main__":
    if "--against" in sys.argv:
        against(Path(sys.argv[1]))
    else:
        main(Path(sys.argv[1]), sys.argv[2:])
