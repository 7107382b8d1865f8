"""Cox models with effects of groups beside NUTS on the same integral, and R's coxph with frailty(), as a table.

python frailty_reference.py FOLDER: `kidney` (38 patients, two times each) and `rats` (the females' 50 litters of three) of R's
survival, written into FOLDER by Rscript. Groups are dealt to two clients, each with baseline hazards of its own: NUTS and coxph
have a stratum for each client. NUTS has the groups' effects as unknowns of the partial likelihood, with the same priors; coxph
(dist = "gauss", REML) is no bar. Means are compared in posterior sds, sds in per cent.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from numpyro.infer import MCMC, NUTS

import fedkern

R = """
suppressMessages(library(survival))
out <- commandArgs(TRUE)[1]
sets <- list(kidney = data.frame(group = kidney$id, x = kidney$sex, time = kidney$time, died = kidney$status))
r <- subset(rats, sex == "f")
sets$rats <- data.frame(group = r$litter, x = r$rx, time = r$time, died = r$status)
for (name in names(sets)) {
  d <- sets[[name]]
  d$site <- match(d$group, unique(d$group)) %% 2
  write.csv(d, file.path(out, paste0(name, ".csv")), row.names = FALSE)
  m <- coxph(Surv(time, died) ~ x + strata(site) + frailty(group, dist = "gauss"), d)
  write(c(coef(m)[["x"]], sqrt(m$var[1, 1]), sqrt(m$history[[1]]$theta)), file.path(out, paste0(name, ".txt")))
}
"""


def terms(table: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Efron's rule as one term for each event: (k, n) who is at risk, (k,) the share that is taken of (k, n) who dies then."""
    time, died, site = (table[name].to_numpy() for name in ("time", "died", "site"))
    risk, share, dying = [], [], []
    for t, s in sorted({(t, s) for t, s, d in zip(time, site, died) if d}):
        then = (time == t) & (site == s) & (died == 1)
        for k in range(int(then.sum())):
            risk.append((time >= t) & (site == s))
            share.append(k / then.sum())
            dying.append(then)
    return np.array(risk, float), np.array(share), np.array(dying, float)


def nuts(table: pd.DataFrame) -> dict[str, tuple[float, float, float]]:
    risk, share, dying = terms(table)
    x, codes = table.x.to_numpy(float), pd.factorize(table.group)[0]
    weights = jnp.array(risk - share[:, np.newaxis] * dying)
    died, z = table.died.to_numpy(float), (x - x.mean()) / x.std()

    def model() -> None:
        beta = numpyro.sample("beta", dist.Normal(0, 2.5))
        sd = numpyro.sample("sd", dist.FoldedDistribution(dist.StudentT(3.0, 0.0, 2.5)))
        u = numpyro.sample("u", dist.Normal(jnp.zeros(codes.max() + 1), 1))
        eta = beta * z + sd * u[codes]
        top = eta.max()
        numpyro.factor("rows", died @ eta - (jnp.log(weights @ jnp.exp(eta - top)) + top).sum())

    numpyro.enable_x64()
    chains = MCMC(
        NUTS(model, target_accept_prob=0.95), num_warmup=1000, num_samples=10000, num_chains=2, chain_method="sequential"
    )
    chains.run(jax.random.PRNGKey(1))
    drawn, found = chains.get_samples(group_by_chain=True), {}
    for name, values in (("theta[x]", np.asarray(drawn["beta"]) / x.std()), ("group_sd[intercept]", np.asarray(drawn["sd"]))):
        summary = numpyro.diagnostics.summary({"a": values}, group_by_chain=True)["a"]
        found[name] = (float(summary["mean"]), float(summary["std"]), float(summary["n_eff"]))
    return found


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "rats.txt").exists():
        subprocess.run(["Rscript", "-e", R, str(folder)], check=True)
    for name in ("kidney", "rats"):
        table = pd.read_csv(folder / f"{name}.csv")
        begun, stored = time.process_time(), folder / f"{name}-nuts.json"
        result = fedkern.fit("Surv(time, died) ~ x + (1 | group)", table.astype({"group": str}), "cox", by="site",
                             out=folder / f"{name}-run", disclosure={"level": "none"})  # fmt: skip
        seconds = time.process_time() - begun
        if not stored.exists():
            stored.write_text(json.dumps(nuts(table)))
        in_r = [float(word) for word in (folder / f"{name}.txt").read_text().split()]
        print(f"{name}: converged {result.summary['converged']}, {seconds:.0f} s of processor")
        for number, (mean, sd, n) in json.loads(stored.read_text()).items():
            told = result.parameters[number]
            off = f"{(told['mean'] - mean) / sd:+.3f} sds, {100 * (told['sd'] / sd - 1):+.1f} %"
            print(f"  {number:20} {told['mean']:8.4f} {told['sd']:7.4f}   NUTS ({n:.0f} draws) {mean:8.4f} {sd:7.4f}: {off}")
        print(f"  coxph: x {in_r[0]:.4f} ({in_r[1]:.4f}), sd of groups {in_r[2]:.4f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
