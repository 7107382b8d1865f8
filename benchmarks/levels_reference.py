"""Posteriors of ordinal and multinomial jobs over three clients, held against NUTS on the pooled rows.

    python benchmarks/levels_reference.py --nuts        # runs NumPyro, minutes a federation; writes results/levels_reference.json
    python benchmarks/levels_reference.py               # runs the jobs; prints results/levels_reference.txt

NumPyro has the same model written in its own words: `OrderedLogistic`, or `Categorical` with the chances, with the priors of
docs/spec/likelihood.md, section 10, of columns that are standardised by the pooled mean and standard deviation.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import fedkern

RESULTS = Path(__file__).parent / "results"
STORED, TABLE = RESULTS / "levels_reference.json", RESULTS / "levels_reference.txt"
FIVE, FOUR = ["none", "slight", "mild", "marked", "severe"], ["home", "ward", "rehab", "care"]
CHAINS, WARMUP, DRAWS = 4, 1000, 4000

KINDS: dict[str, dict[str, Any]] = {
    "ordinal 1": {"family": "ordinal", "seed": 1},
    "ordinal 2": {"family": "ordinal", "seed": 2, "rows": 60},
    "ordinal 3, probit": {"family": "ordinal", "seed": 3, "link": "probit"},
    "ordinal 4, wards": {"family": "ordinal", "seed": 4, "wards": 12},
    "ordinal 5, strong": {"family": "ordinal", "seed": 5, "strength": 3.0, "rows": 250},
    "ordinal 6, probit, wards": {"family": "ordinal", "seed": 6, "link": "probit", "wards": 15},
    "ordinal 7, rare levels": {"family": "ordinal", "seed": 7, "cuts": (1.5, 2.2, 2.7, 3.2), "rows": 250},
    "ordinal 8, three levels": {"family": "ordinal", "seed": 8, "levels": FIVE[:3]},
    "multinomial 1": {"family": "multinomial", "seed": 1, "rows": 160},
    "multinomial 2": {"family": "multinomial", "seed": 2, "rows": 160},
    "multinomial 3, three levels": {"family": "multinomial", "seed": 3, "levels": FOUR[:3]},
    "multinomial 4, two levels": {"family": "multinomial", "seed": 4, "levels": FOUR[:2]},
    "multinomial 5, strong": {"family": "multinomial", "seed": 5, "strength": 2.0, "rows": 300},
    "multinomial 6, rare levels": {"family": "multinomial", "seed": 6, "levels": FOUR[:3], "shift": -2.0, "rows": 200},
    "multinomial 7, many rows": {"family": "multinomial", "seed": 7, "rows": 600},
    "multinomial 8, no effects": {"family": "multinomial", "seed": 8, "strength": 0.0, "rows": 160},
}


def levels_of(kind: str) -> list[str]:
    said = KINDS[kind]
    return list(said.get("levels") or (FIVE if said["family"] == "ordinal" else FOUR))


def federation(kind: str) -> dict[str, pd.DataFrame]:
    """Rows of three hospitals, which have other ages."""
    said, levels = KINDS[kind], levels_of(kind)
    rng, n, strength = np.random.default_rng(100 + said["seed"]), said.get("rows", 120), said.get("strength", 1.0)
    effects, found = rng.standard_normal((len(levels), 3)), {}
    for k, name in enumerate(("ada", "bo", "cy")):
        z = rng.standard_normal((n, 2))
        z[:, 0] += 0.3 * k
        treated = rng.random(n) < 0.4
        frame = pd.DataFrame({"age": np.round(62 + 11 * z[:, 0], 1), "dose": np.round(z[:, 1], 3), "treated": 1 * treated})
        if said["family"] == "ordinal":
            eta = strength * (0.7 * z[:, 0] - 0.5 * z[:, 1] + 0.6 * treated)
            if wards := said.get("wards"):
                ward = rng.integers(0, wards, n)
                eta = eta + 0.8 * rng.standard_normal(wards)[ward]
                frame["ward"] = [f"w{one}" for one in ward]
            latent = eta + (rng.standard_normal(n) if said.get("link") == "probit" else rng.logistic(size=n))
            cuts = np.array(said.get("cuts", np.linspace(-1.0, 1.6, len(levels) - 1)))
            y = (latent[:, np.newaxis] > cuts).sum(axis=1)
        else:
            eta = strength * (0.7 * z @ effects[:, :2].T + 0.5 * treated[:, np.newaxis] * effects[:, 2])
            eta[:, 1:] += said.get("shift", 0.0)
            y = (eta + rng.gumbel(size=eta.shape)).argmax(axis=1)
        found[name] = frame.assign(state=np.array(levels)[y])
    return found


def job(kind: str, folder: Path) -> Path:
    """A job file with its clients' files."""
    said = KINDS[kind]
    (folder / "rows").mkdir(parents=True, exist_ok=True)
    for name, frame in federation(kind).items():
        frame.to_csv(folder / "rows" / f"{name}.csv", index=False)
    link = f'link = "{said["link"]}"\n' if "link" in said else ""
    random = OF_WARDS if "wards" in said else ""
    (folder / "job.toml").write_text(
        f'[job]\nmethod = "likelihood"\nseed = 3\n[data]\nclients = ["rows/*.csv"]\nresponse = "state"\nleast_rows = 1\n'
        f'levels = {json.dumps(levels_of(kind))}\n[model]\nfamily = "{said["family"]}"\n{PRIORS}{link}{random}'
    )
    return folder / "job.toml"


PRIORS = "prior_sd = 2.5\nintercept_sd = 5.0\n"  # those of NUTS, which no rows widen
OF_WARDS = '[model.random]\ngroup = "ward"\n[model.priors."group_sd[intercept]"]\nkind = "half-normal"\nsd = 1.0\n'


def nuts(kind: str) -> dict[str, dict[str, float]]:
    """Name -> mean, sd and effective draws of the pooled posterior, on the data's scale."""
    import jax
    import jax.numpy as jnp
    import numpyro
    from numpyro import distributions as dist
    from numpyro.diagnostics import effective_sample_size

    jax.config.update("jax_enable_x64", True)
    said, levels, whole = KINDS[kind], levels_of(kind), pd.concat([*federation(kind).values()])
    names = ["age", "dose", "treated"]
    raw, k = whole[names].to_numpy(float), len(levels)
    mean, sd = raw.mean(axis=0), raw.std(axis=0)
    X, y = (raw - mean) / sd, np.array([levels.index(one) for one in whole.state])
    shares = np.bincount(y, minlength=k) / len(y)
    sizes = [len(one) for one in federation(kind).values()]
    ward = None
    if "wards" in said:
        site = np.repeat(np.arange(3), sizes)
        ward = np.unique([f"{a} {b}" for a, b in zip(site, whole.ward)], return_inverse=True)[1]

    def ordinal() -> None:
        from scipy.special import ndtri

        beta = numpyro.sample("beta", dist.Normal(jnp.zeros(3), 2.5))
        at = np.cumsum(shares)[:-1]
        centre = (ndtri(at) if said.get("link") == "probit" else np.log(at / (1 - at))).mean()
        middle = numpyro.sample("middle", dist.Normal(centre, 5.0))
        gaps = numpyro.sample("gaps", dist.Normal(jnp.zeros(k - 2), 1.5))
        steps = jnp.concatenate([jnp.zeros(1), jnp.cumsum(jnp.exp(gaps))])
        cuts = middle + steps - steps.mean()
        numpyro.deterministic("cuts", cuts)
        eta = X @ beta
        if ward is not None:
            tau = numpyro.sample("tau", dist.HalfNormal(1.0))
            eta = eta + tau * numpyro.sample("u", dist.Normal(jnp.zeros(ward.max() + 1), 1.0))[ward]
        if said.get("link") == "probit":
            below = jax.scipy.special.ndtr(cuts - eta[:, np.newaxis])
            edges = [jnp.zeros((len(y), 1)), below, jnp.ones((len(y), 1))]
            numpyro.sample("y", dist.Categorical(probs=jnp.diff(jnp.concatenate(edges, axis=1), axis=1)), obs=y)
        else:
            numpyro.sample("y", dist.OrderedLogistic(eta, cuts), obs=y)

    def multinomial() -> None:
        centres = np.log(shares[1:] / shares[0])
        a = numpyro.sample("a", dist.Normal(centres, 5.0))
        B = numpyro.sample("B", dist.Normal(jnp.zeros((k - 1, 3)), 2.5))
        eta = jnp.concatenate([jnp.zeros((len(y), 1)), a + X @ B.T], axis=1)
        numpyro.sample("y", dist.Categorical(logits=eta), obs=y)

    model = ordinal if said["family"] == "ordinal" else multinomial
    kernel = numpyro.infer.NUTS(model, target_accept_prob=0.9)
    how = {"chain_method": "sequential", "progress_bar": False}
    mcmc = numpyro.infer.MCMC(kernel, num_warmup=WARMUP, num_samples=DRAWS, num_chains=CHAINS, **how)
    mcmc.run(jax.random.PRNGKey(said["seed"]))
    draws = {name: np.asarray(own) for name, own in mcmc.get_samples(group_by_chain=True).items()}
    found: dict[str, np.ndarray] = {}
    if said["family"] == "ordinal":
        slopes = draws["beta"] / sd
        found |= {f"theta[{name}]": slopes[..., j] for j, name in enumerate(names)}
        cuts = draws["cuts"] + (slopes @ mean)[..., np.newaxis]
        found |= {f"threshold[{low}|{high}]": cuts[..., j] for j, (low, high) in enumerate(pairwise(levels))}
        if ward is not None:
            found["group_sd[intercept]"] = draws["tau"]
    else:
        slopes = draws["B"] / sd
        for j, level in enumerate(levels[1:]):
            found[f"theta[{level}:intercept]"] = draws["a"][..., j] - slopes[..., j, :] @ mean
            found |= {f"theta[{level}:{name}]": slopes[..., j, i] for i, name in enumerate(names)}
    return {
        name: {"mean": float(own.mean()), "sd": float(own.std()), "ess": float(effective_sample_size(own))}
        for name, own in found.items()
    }


def compared(kind: str, stored: dict[str, dict[str, float]], folder: Path) -> tuple[fedkern.Result, float, float, float]:
    """The job's result; the largest difference of a mean in sds, of an sd as a part, and NUTS's own error of a mean in sds."""
    result = fedkern.run(job(kind, folder))
    shifts = [abs(result.parameters[name]["mean"] - one["mean"]) / one["sd"] for name, one in stored.items()]
    ratios = [abs(result.parameters[name]["sd"] / one["sd"] - 1) for name, one in stored.items()]
    return result, max(shifts), max(ratios), max(one["ess"] ** -0.5 for one in stored.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nuts", action="store_true", help="run NumPyro")
    parser.add_argument("--only", nargs="*", default=list(KINDS), help="federations")
    asked = parser.parse_args()
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    if asked.nuts:
        for kind in asked.only:
            stored[kind] = nuts(kind)
            STORED.write_text(json.dumps(stored, indent=1) + "\n")
            print(kind, flush=True)
        return
    lines = ["largest difference to NUTS on the pooled rows: of a mean in sds, of an sd as a part; NUTS's error of a mean in sds"]
    lines.append(f"{'':<30}  mean    sd  error  converged")
    for kind in asked.only:
        if kind in stored:
            with tempfile.TemporaryDirectory() as folder:
                result, mean, sd, error = compared(kind, stored[kind], Path(folder))
            lines.append(f"{kind:<30} {mean:.3f} {sd:.3f}  {error:.3f}  {result.summary['converged']}")
            print(lines[-1], flush=True)
    TABLE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
