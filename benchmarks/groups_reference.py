"""Regressions with groups of several columns beside NUTS on the pooled rows and lme4, as a table.

python groups_reference.py FOLDER [NAME ..]: data sets of lme4, written into FOLDER by Rscript; NUTS (`groups_nuts.py`) has the
same priors. lme4's REML or Laplace estimates stand beside them, and are no bar. Means are compared in posterior sds, those in
per cent. Groups that are nested are dealt to two clients; groups that cross stay at one. In `penicillin-shared` and
`verbagg-shared` plates and persons are dealt to three clients, and samples and items are groups that these have in common.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd

import fedkern

HERE = Path(__file__).resolve().parent
R = """
suppressMessages(library(lme4))
out <- commandArgs(TRUE)[1]
sds <- function(m) { v <- as.data.frame(VarCorr(m)); v[is.na(v$var2), c("grp", "var1", "sdcor")] }
put <- function(name, data, model) {
  write.csv(data, file.path(out, paste0(name, ".csv")), row.names = FALSE)
  fixed <- data.frame(grp = "fixed", var1 = names(fixef(model)), sdcor = unname(fixef(model)))
  write.csv(rbind(fixed, sds(model)), file.path(out, paste0(name, "-lme4.csv")), row.names = FALSE)
}
for (name in c("penicillin", "penicillin-shared"))
  put(name, Penicillin, lmer(diameter ~ 1 + (1 | plate) + (1 | sample), Penicillin))
put("pastes", Pastes, lmer(strength ~ 1 + (1 | batch/cask), Pastes))
put("sleepstudy", sleepstudy, lmer(Reaction ~ Days + (Days || Subject), sleepstudy))
verb <- subset(VerbAgg, id %in% unique(VerbAgg$id)[seq(1, 316, by = 5)])
verb <- data.frame(y = as.integer(verb$r2 == "Y"), Anger = verb$Anger, id = verb$id, item = as.integer(verb$item))
model <- glmer(y ~ Anger + (1 | id) + (1 | item), verb, binomial)
for (name in c("verbagg", "verbagg-shared")) put(name, verb, model)
"""
CASES = {  # formula, family, the column by which rows are dealt, and what groups_nuts.py is asked for
    "penicillin": ("diameter ~ 1 + (1 | plate) + (1 | sample)", "gaussian", None, ("diameter", "-", "plate", "sample")),
    "pastes": ("strength ~ 1 + (1 | batch/cask)", "gaussian", "batch", ("strength", "-", "batch", "batch:cask")),
    "sleepstudy": ("Reaction ~ Days + (Days || Subject)", "gaussian", "Subject", None),
    "verbagg": ("y ~ Anger + (1 | id) + (1 | item)", "bernoulli", None, ("y", "Anger", "id", "item")),
    "penicillin-shared": ("diameter ~ 1", "gaussian", "plate", ("diameter", "-", "plate", "sample")),
    "verbagg-shared": ("y ~ Anger", "bernoulli", "id", ("y", "Anger", "id", "item")),
}
SHARED = {"penicillin-shared": "sample", "verbagg-shared": "item"}  # beside the column by which rows are dealt


def fit(folder: Path, name: str) -> dict[str, dict[str, float]]:
    formula, family, dealt, asked = CASES[name]
    table = pd.read_csv(folder / f"{name}.csv")
    shared = SHARED.get(name)
    codes = pd.factorize(table[dealt])[0] % (3 if shared else 2) if dealt else 0
    texts = [column for column in ("plate", "sample", "batch", "cask", "Subject", "id", "item") if column in table]
    table = table.assign(site=codes).astype(dict.fromkeys(texts, str))
    begun = time.process_time()
    groups = [{"by": dealt}, {"by": shared, "shared": True, "levels": sorted(table[shared].unique())}] if shared else []
    more = {"model": {"random": {"groups": groups}}} if groups else {}
    result = fedkern.fit(formula, table, family, by="site", out=folder / f"{name}-run", disclosure={"level": "none"}, **more)
    print(f"{name}: {result.summary['converged']}, {time.process_time() - begun:.0f} s of processor")
    found = {key: {"mean": one["mean"], "sd": one["sd"]} for key, one in result.parameters.items()}
    if asked is not None and not (nuts := folder / f"{name}-nuts.json").exists():
        command = [sys.executable, HERE / "groups_nuts.py", folder / f"{name}.csv", family, *asked, nuts]
        subprocess.run([str(word) for word in command], check=True)
    return found


def main(folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "verbagg-lme4.csv").exists():
        subprocess.run(["Rscript", "-e", R, str(folder)], check=True)
    for name in names or [*CASES]:
        found, asked = fit(folder, name), CASES[name][3]
        nuts = json.loads((folder / f"{name}-nuts.json").read_text()) if asked is not None else {}
        for key, one in found.items():
            if key.startswith("group_effect"):
                continue
            key = key.replace("group_sd[intercept]", f"group_sd[{asked[2]}:intercept]") if name in SHARED and asked else key
            group = key.removeprefix("group_sd[").removesuffix(":intercept]").replace("/", ":")
            known = {"sigma": "sigma", "theta[Anger]": "theta"}.get(key, f"sd {group}")
            line = f"  {key:35} {one['mean']:9.4f} {one['sd']:8.4f}"
            if known in nuts:
                mean, sd = nuts[known]["mean"], nuts[known]["std"]
                line += (
                    f"   NUTS {mean:9.4f} {sd:8.4f}: {(one['mean'] - mean) / sd:+.3f} sds, {100 * (one['sd'] / sd - 1):+.1f} %"
                )
            print(line)
        print(pd.read_csv(folder / f"{name}-lme4.csv").to_string(index=False))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
