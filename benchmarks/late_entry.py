"""Posteriors of federations whose patients come one by one, after their beginning, by long chains of the No-U-Turn sampler.

    python benchmarks/late_entry.py benchmarks/results/late_entry.json
    python benchmarks/late_entry.py benchmarks/results/late_entry.json --against
    python benchmarks/late_entry.py --truth

A patient with an event before his entry is in nobody's file. Given the effect of his ward his row says p(time) / P(no event until
the entry), and the chains have all effects among their unknowns, so that nothing is integrated. Means, standard deviations and
effective sizes go into the file, on standardised columns and in the model's unit of time; what is in it already is left.
`tests/methods/likelihood/test_late_entry.py` holds jobs against them. `--against` says how far jobs are off; `--truth`, over many
federations, how far the posterior is from what made the rows, of wards of 40, 20 and 6 rows, by each of the two likelihoods of
groups whose rows enter late. The first needs numpyro; two minutes of one processor each.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

COLUMNS = ["age", "dose"]
EFFECTS = np.array([0.5, -0.4])
AT, SURVIVAL = 12.0, 0.23  # without event, a patient of a new ward or hospital whose covariates are 0
SHAPE = 1.3
WARDS: dict[str, Any] = {"family": "weibull", "hospitals": 3, "wards": 12, "rows": 40, "group_sd": 0.6}
KINDS: dict[str, dict[str, Any]] = {
    "wards": WARDS,
    "pieces": {**WARDS, "family": "piecewise", "cuts": [6, 12, 24]},
    "hospitals": {"family": "weibull", "hospitals": 6, "wards": 1, "rows": 120, "client_sd": 0.5},
}
SIZES = {"wards of 40": WARDS, "wards of 20": {**WARDS, "wards": 24, "rows": 20}, "wards of 6": {**WARDS, "wards": 60, "rows": 6}}
RANDOM = {"group_sd": {"group": "ward"}, "client_sd": {"client": True}}


def sd_of(kind: str) -> float:
    """Of the effects of groups or clients."""
    return float(KINDS[kind].get("group_sd", KINDS[kind].get("client_sd")))


def survival(level: float, sd: float) -> float:
    """P(no event until `AT`), where the cumulative hazard there is exp(level + sd z)."""
    z, w = np.polynomial.hermite_e.hermegauss(61)
    return float((w / w.sum()) @ np.exp(-np.exp(level + sd * z)))


def level_of(kind: str) -> float:
    """The logarithm of the cumulative hazard at `AT` in the middle: by bisection."""
    low, high = -20.0, 20.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if survival(middle, sd_of(kind)) > SURVIVAL else (low, middle)
    return low


def truth(kind: str, frames: dict[str, pd.DataFrame]) -> float:
    """The curve at `AT`, of a patient with the average covariates of those who are in the files."""
    whole = pd.concat(frames.values())
    x = np.array([(whole.age.mean() - 60) / 10, whole.dose.mean()])
    return survival(level_of(kind) + float(x @ EFFECTS), sd_of(kind))


def federation(kind: str, seed: int = 1) -> dict[str, pd.DataFrame]:
    """Patients of some hospitals, each from his entry on, which is even between 0 and 24 months."""
    about, rng, found = KINDS[kind], np.random.default_rng([seed, sum(kind.encode())]), {}
    level = level_of(kind) - SHAPE * float(np.log(AT))
    for name in ("ada", "bo", "cy", "di", "ed", "fay")[: about["hospitals"]]:
        rows = []
        of_hospital = about.get("client_sd", 0.0) * rng.standard_normal()
        for ward in range(about["wards"]):
            effect = of_hospital + about.get("group_sd", 0.0) * rng.standard_normal()
            wanted = rng.poisson(about["rows"])
            while wanted:
                x, entry = rng.standard_normal(2), round(rng.uniform(0, 24), 2)
                life = (rng.exponential() * np.exp(-(level + x @ EFFECTS + effect))) ** (1 / SHAPE)
                seen = entry + min(rng.exponential(40.0), 36.0)
                months = round(min(life, seen), 2)
                if life <= entry or months <= entry:
                    continue
                row = {"age": 60 + 10 * x[0], "dose": x[1], "since": entry, "months": months, "died": int(life <= seen)}
                rows.append(row | ({"ward": f"w{ward}"} if "group_sd" in about else {}))
                wanted -= 1
        found[name] = pd.DataFrame(rows)
    return found


def pooled(frames: dict[str, pd.DataFrame]) -> dict[str, Any]:
    """All rows, columns standardised, times in how long rows were seen for one event."""
    whole = pd.concat([frame.assign(client=name) for name, frame in frames.items()], ignore_index=True)
    X = whole[COLUMNS].to_numpy()
    unit = (whole.months - whole.since).sum() / whole.died.sum()
    ward = whole.client + whole.get("ward", pd.Series("", whole.index))
    return {
        "X": (X - X.mean(axis=0)) / X.std(axis=0),
        "time": whole.months.to_numpy() / unit,
        "entry": whole.since.to_numpy() / unit,
        "event": whole.died.to_numpy() == 1,
        "group": np.unique(ward, return_inverse=True)[1],
        "unit": unit,
    }


def posterior(kind: str, frames: dict[str, pd.DataFrame], seed: int = 1) -> dict[str, dict[str, float]]:
    """Name -> mean, sd, and effective size."""
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.diagnostics import effective_sample_size
    from numpyro.infer import MCMC, NUTS

    numpyro.enable_x64()
    d, about = pooled(frames), KINDS[kind]
    X, time, entry, event = d["X"], d["time"], d["entry"], d["event"]
    begins = np.append(0.0, np.array(about.get("cuts", ())) / d["unit"])
    ends = np.append(begins[1:], np.inf)
    within = np.clip(np.minimum(time[:, None], ends) - np.maximum(entry[:, None], begins), 0, None)
    piece = np.searchsorted(begins[1:], time)

    def model() -> None:
        eta = X @ numpyro.sample("beta", dist.Normal(0, 2.5).expand([2]).to_event(1))
        level = numpyro.sample("intercept", dist.Normal(0, 5))
        name = "group_sd" if "group_sd" in about else "client_sd"
        sd = numpyro.sample(name, dist.HalfNormal(1))
        u = numpyro.sample("u", dist.Normal(level, sd).expand([int(d["group"].max()) + 1]).to_event(1))
        eta = eta + u[d["group"]]
        if about["family"] == "weibull":
            w = numpyro.deterministic("log_shape", -2 * jnp.log(numpyro.sample("root", dist.HalfCauchy(1))))
            k = jnp.exp(w)
            log_hazard, between = w + (k - 1) * jnp.log(time), time**k - entry**k
        else:
            s = numpyro.sample("walk_sd", dist.HalfNormal(1))
            steps = numpyro.sample("steps", dist.Normal(0, 1).expand([len(begins) - 1]).to_event(1))
            own = numpyro.deterministic("log_hazard", jnp.concatenate([jnp.zeros(1), s * jnp.cumsum(steps)]))
            numpyro.deterministic("log_walk_sd", jnp.log(s))
            log_hazard, between = own[piece], within @ jnp.exp(own)
        numpyro.factor("rows", (jnp.where(event, log_hazard + eta, 0.0) - between * jnp.exp(eta)).sum())

    kernel = NUTS(model, target_accept_prob=0.98 if kind == "pieces" else 0.9)
    mcmc = MCMC(kernel, num_warmup=1000, num_samples=2500, num_chains=4, chain_method="sequential", progress_bar=False)
    mcmc.run(jax.random.PRNGKey(seed))
    found = {}
    for name, values in mcmc.get_samples(group_by_chain=True).items():
        if name in ("u", "steps", "walk_sd", "root"):
            continue
        for j, one in enumerate(np.moveaxis(np.atleast_3d(np.asarray(values)), 2, 0)):
            if one.std() > 0:
                label = f"{name}[{j}]" if np.ndim(values) > 2 else name
                found[label] = {"mean": float(one.mean()), "sd": float(one.std()), "ess": float(effective_sample_size(one))}
    return found


def standard(result: Any, frames: dict[str, pd.DataFrame]) -> dict[str, np.ndarray]:
    """Draws of a job by the names of `posterior`."""
    from fedkern.results.released import Drawing

    group = result.posterior.groups(Drawing(result.seed, result.chains, result.n_draws))["posterior"]
    drawn = {name: np.asarray(values) for name, (_, values) in group.variables.items()}
    flat = {name: values.ravel() for name, values in drawn.items() if values.ndim == 2}
    found = {f"beta[{k}]": drawn["theta_std"].reshape(-1, 2)[:, k] for k in range(2)}
    shape = flat.get("shape", np.ones(1))
    found["intercept"] = flat["intercept_std"] + shape * np.log(pooled(frames)["unit"])
    if "shape" in flat:
        found["log_shape"] = np.log(shape)
    found |= {name: flat[f"{name}[intercept]"] for name in RANDOM if f"{name}[intercept]" in flat}
    hazards = [values for name, values in flat.items() if name.startswith("log_hazard")]
    found |= {f"log_hazard[{k}]": one - flat["intercept"] for k, one in enumerate(hazards, start=1)}
    if "walk_sd" in flat:
        found["log_walk_sd"] = np.log(flat["walk_sd"])
    return found


def job(kind: str, **random: object) -> dict[str, Any]:
    """Of `federation`."""
    about = KINDS[kind]
    (name,) = about.keys() & RANDOM.keys()
    model = {"family": about["family"], "random": {**RANDOM[name], **random}}
    model["priors"] = {f"{name}[intercept]": {"kind": "half-normal", "sd": 1.0}}  # that of NUTS
    return {
        "job": {"method": "likelihood", "seed": 4},
        "data": {"time": "months", "event": "died", "entry": "since"},
        "model": model | ({"cuts": about["cuts"]} if "cuts" in about else {}),
        "output": {"draws": 8000, "chains": 2, "survival_at": [AT]},
    }


def off(found: dict[str, np.ndarray], wanted: dict[str, dict[str, float]]) -> tuple[dict[str, float], dict[str, float]]:
    """Of each number by how many sds means are apart, and by what part sds are."""
    means = {name: (found[name].mean() - row["mean"]) / row["sd"] for name, row in wanted.items()}
    return means, {name: found[name].std() / row["sd"] - 1 for name, row in wanted.items()}


def against(path: Path) -> None:
    """How far jobs are from the file, and curves."""
    import fedkern

    content = json.loads(path.read_text())
    for kind in KINDS:
        frames = federation(kind)
        jobs = {"rows": job(kind)} | ({"together": job(kind, entered_together=True)} if "group_sd" in KINDS[kind] else {})
        for name, one in jobs.items():
            result = fedkern.run(one, data=frames)
            means, sds = off(standard(result, frames), content[kind])
            (curve,) = result.summary["survival"]
            print(
                f"{kind}, {name}: converged {result.converged}, rounds of draws {result.summary['rounds_of_draws']}, means up to "
                f"{max(map(abs, means.values())):.3f} sd off, sds up to {100 * max(map(abs, sds.values())):.1f} %; without "
                f"event at {AT:g} months {curve['mean']:.3f} ({curve['q025']:.3f} to {curve['q975']:.3f}), truth "
                f"{truth(kind, frames):.3f}"
            )


def against_truth(seeds: range = range(1, 25)) -> None:
    """How many posterior sds means are from what made the rows, on average over federations, and their spread."""
    import fedkern

    KINDS.update(SIZES)
    for kind in SIZES:
        for together in (False, True):
            rows = []
            for seed in seeds if not together else seeds[:6]:
                frames, one = federation(kind, seed), job(kind, entered_together=together)
                result = fedkern.run(one | {"output": {"draws": 1000, "survival_at": [AT]}}, data=frames)
                (curve,), p, true = result.summary["survival"], result.parameters, truth(kind, frames)
                z = {} if together else {"curve": (curve["mean"] - true) / curve["sd"]}
                for name, value in (("shape", SHAPE), ("group_sd[intercept]", sd_of(kind)), ("theta[dose]", EFFECTS[1])):
                    z[name] = (p[name]["mean"] - value) / p[name]["sd"]
                rows.append({**z, "at": curve["mean"], "true": true})
            whole = pd.DataFrame(rows)
            said = ", ".join(f"{name} {whole[name].mean():.2f} ({whole[name].std():.2f})" for name in z)
            how = "entered together" if together else "one by one"
            print(
                f"{kind}, {how}, {len(whole)} federations: without event at {AT:g} months {whole['at'].mean():.3f}, truth "
                f"{whole['true'].mean():.3f}; in sds, mean (spread): {said}"
            )


def main(path: Path) -> None:
    """Writes what is found, beside what there was."""
    content = json.loads(path.read_text()) if path.exists() else {}
    for kind in KINDS:
        if kind not in content:
            content[kind] = posterior(kind, federation(kind))
            path.write_text(json.dumps(content, indent=1) + "\n")
            print(kind, json.dumps(content[kind]))


if __name__ == "__main__":
    if "--truth" in sys.argv:
        against_truth()
    elif "--against" in sys.argv:
        against(Path(sys.argv[1]))
    else:
        main(Path(sys.argv[1]))
