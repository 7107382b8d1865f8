"""What default priors decide: posteriors of small public data sets beside R's estimates, with three widths of the prior.

    python benchmarks/default_priors.py DATA [--sets NAME ..] [--out benchmarks/results/default-priors.txt]

Rows (of a model with groups, these) are dealt to two clients. R's are those of `glm`, `glm.nb`, `polr`, `multinom`, `survreg`,
`glmer` and `clmm`. A line has the largest distance of a coefficient's mean from R's estimate in R's standard errors, and the
least and the largest sd over R's: of the job's own default prior, of the narrow one (2.5, 5), and of one ten times as wide. c
says where the mean with the narrow prior lies, on the way from its mode to that of a prior ten times as wide, beforehand by the
change of curvature (docs/spec/likelihood.md, section 3), and as it is.
"""

from __future__ import annotations

import argparse
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pandas as pd
import public_sets

import fedkern
from fedkern.algorithms.importance.newton import Metric, Priors

WIDTHS: dict[str, dict[str, float]] = {
    "default": {},
    "narrow": {"prior_sd": 2.5, "intercept_sd": 5.0},
    "ten times": {"prior_sd": 25.0, "intercept_sd": 50.0},
}
# data set | family | formula | levels in order | what is done first
SETS = """
ordinal::wine | ordinal | rating ~ temp + contact | 1 2 3 4 5
ordinal::wine | ordinal | rating ~ temp + contact + judge | 1 2 3 4 5 | d = d.assign(judge="j" + d["judge"].astype(str))
ordinal::wine | ordinal | rating ~ temp + contact + (1 | judge) | 1 2 3 4 5 | d = d.assign(judge="j" + d["judge"].astype(str))
VGAM::pneumo | ordinal | y ~ let | normal mild severe | d = persons(d)
VGAM::pneumo | multinomial | y ~ let | normal mild severe | d = persons(d)
survival::rats | weibull | Surv(time, status) ~ rx + sex
datasets::infert | bernoulli | case ~ age + parity + education + spontaneous + induced
carData::Greene | bernoulli | decision ~ rater + success + language | | d = d.assign(decision=(d["decision"] == "yes") * 1)
datasets::esoph | binomial | cbind(ncases, ncontrols) ~ agegp + alcgp + tobgp
datasets::mtcars | bernoulli | am ~ wt + hp
MASS::birthwt | bernoulli | low ~ age + lwt + smoke + ptl + ht + ui + ftv
carData::Womenlf | multinomial | partic ~ hincome + children | not.work parttime fulltime
rpart::kyphosis | bernoulli | y ~ Age + Number + Start | | d = d.assign(y=(d["Kyphosis"] == "present") * 1)
MASS::gehan | weibull | Surv(time, cens) ~ treat
survival::ovarian | weibull | Surv(futime, fustat) ~ age + rx
boot::nodal | bernoulli | r ~ aged + stage + grade + xray + acid
boot::remission | bernoulli | r ~ LI
boot::urine | bernoulli | r ~ gravity + ph + osmo + cond + urea + calc | | d = d.dropna()
HSAUR3::plasma | bernoulli | y ~ fibrinogen + globulin | | d = d.assign(y=(d["ESR"] == "ESR > 20") * 1)
HSAUR3::polyps | negative-binomial | number ~ treat + age
vcd::Arthritis | ordinal | Improved ~ Treatment + Sex + Age | None Some Marked
vcd::SpaceShuttle | bernoulli | y ~ Temperature | | d = d.dropna(subset=["Fail"]).assign(y=lambda d: (d["Fail"] == "yes") * 1)
robustbase::vaso | bernoulli | Y ~ log(Volume) + log(Rate)
robustbase::foodstamp | bernoulli | participation ~ tenancy + suppl.income + income
robustbase::possumDiv | poisson | Diversity ~ Shrubs + Stumps + Stags + Bark + Habitat + eucalyptus + aspect
MASS::quine | negative-binomial | Days ~ Eth + Sex + Age + Lrn
MASS::menarche | binomial | cbind(Menarche, Total - Menarche) ~ Age
MASS::Pima.tr | bernoulli | y ~ npreg + glu + bp + skin + bmi + ped + age | | d = d.assign(y=(d["type"] == "Yes") * 1)
MASS::bacteria | bernoulli | z ~ trt + week + (1 | ID) | | d = d.assign(z=(d["y"] == "y") * 1)
HSAUR3::toenail | bernoulli | y ~ treatment + time + (1 | patientID) | | d = d.assign(y=(d["outcome"] != "none or mild") * 1)
HSAUR3::respiratory | bernoulli | y ~ treatment + gender + age + centre + (1 | subject) | | \
d = d[d["month"] > 0].assign(y=(d["status"] == "good") * 1, centre="c" + d["centre"].astype(str))
"""
FITS = r"""
suppressMessages({library(MASS); library(survival); library(lme4); library(nnet)})
args <- commandArgs(TRUE)
d <- read.csv(args[1], stringsAsFactors = TRUE); f <- as.formula(args[3]); levels <- strsplit(args[4], " ")[[1]]
y <- all.vars(f)[1]
if (length(levels)) d[[y]] <- factor(as.character(d[[y]]), levels = levels, ordered = args[2] == "ordinal")
random <- grepl("|", args[3], fixed = TRUE)
fit <- switch(args[2], poisson = glm(f, poisson, d), `negative-binomial` = glm.nb(f, d),
  ordinal = if (random) ordinal::clmm(f, data = d, nAGQ = 10) else polr(f, d, Hess = TRUE),
  multinomial = multinom(f, d, trace = FALSE, Hess = TRUE), weibull = survreg(f, d),
  if (random) glmer(f, d, binomial, nAGQ = 15) else glm(f, binomial, d))
if (args[2] == "weibull") {
  k <- length(coef(fit)); b <- coef(fit); s <- fit$scale; J <- cbind(diag(-1 / s, k), b / s)
  found <- cbind(-b / s, sqrt(diag(J %*% vcov(fit) %*% t(J)))); rownames(found) <- names(b)
} else if (args[2] == "multinomial") {
  b <- t(coef(fit)); found <- cbind(c(b), c(t(summary(fit)$standard.errors)))
  rownames(found) <- c(outer(rownames(b), colnames(b), function(x, level) paste(level, x, sep = ":")))
} else found <- coef(summary(fit))[, 1:2, drop = FALSE]
cat(sprintf("%s\t%.10g\t%.10g\n", rownames(found), found[, 1], found[, 2]), sep = "")
"""


class Case(NamedTuple):
    """Names a data set, and the job of it."""

    data: str
    family: str
    formula: str
    levels: str = ""
    make: str = ""


def persons(d: pd.DataFrame) -> pd.DataFrame:
    """A row for each miner of `pneumo`."""
    long = d.assign(let=np.log(d["exposure.time"])).melt(["let"], ["normal", "mild", "severe"], "y", "n")
    return long.loc[long.index.repeat(long["n"])].drop(columns="n").reset_index(drop=True)


def in_r(case: Case, d: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """R's estimates and standard errors, by R's names."""
    d.to_csv(folder / "rows.csv", index=False)
    call = ["Rscript", "-e", FITS, str(folder / "rows.csv"), case.family, case.formula, case.levels]
    text = subprocess.run(call, check=True, capture_output=True, text=True, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"}).stdout
    rows = [line.split("\t") for line in text.splitlines()]
    return pd.DataFrame({"mean": [float(b) for _, b, _ in rows], "sd": [float(s) for *_, s in rows]}, [name for name, *_ in rows])


def name_in_r(name: str) -> str:
    name = re.sub(r"^(theta|threshold)\[(.*)\]$", r"\2", re.sub(r"\[T\.([^\]]*)\]", r"\1", name))
    return re.sub(r"(^|:)intercept$", r"\1(Intercept)", name)


def run(case: Case, d: pd.DataFrame, width: dict[str, float]) -> fedkern.Result:
    group = re.search(r"\| (\w+)\)", case.formula)
    who = d.groupby(group[1]).ngroup() % 2 if group else np.random.default_rng(1).integers(0, 2, len(d))
    job: dict[str, Any] = {"job": {"method": "likelihood"}, "model": {"family": case.family, "formula": case.formula, **width}}
    job["data"] = {"levels": case.levels.split()} if case.levels else {}
    return fedkern.run(job, data={"a": d[who == 0], "b": d[who == 1]})


def beside(result: fedkern.Result, known: pd.DataFrame) -> str:
    """How far coefficients are from R's."""
    found = {name_in_r(name): numbers for name, numbers in result.parameters.items()}
    lacking = set(known.index) - set(found)
    assert not lacking, lacking
    far = max(abs(found[name]["mean"] - mean) / sd for name, mean, sd in known.itertuples())
    wide = [found[name]["sd"] / sd for name, _, sd in known.itertuples()]
    return f"{far:5.2f} {min(wide):4.2f}-{max(wide):4.2f}"


def look(case: Case, folder: Path) -> str:
    """One line of the table."""
    package, name = case.data.split("::")
    d = public_sets.read(package, name, folder)
    names: dict[str, Any] = {"d": d, "np": np, "persons": persons}
    exec(case.make, names)  # lines of SETS
    d, seen, kept = names["d"], list[tuple[Any, ...]](), Priors.kept

    def watched(self: Priors, way: Any, xi: Any, hessian: Any, before: Any) -> bool:
        seen.append((self, way, xi, hessian, before))
        return kept(self, way, xi, hessian, before)

    with patch.object(Priors, "kept", watched):
        results = {"default": run(case, d, {})}
    results |= {width: run(case, d, keys) for width, keys in WIDTHS.items() if keys}
    known = in_r(case, d, folder)
    taken = results["default"].summary.get("priors", {}).get("prior_sd", 2.5)
    where = ""
    if seen:
        priors, way, xi, hessian, before = seen[-1]
        of_priors = priors.each[1].curvature(xi)[2] - priors.each[0].curvature(xi)[2]
        B, length = Metric.of(before).factor, float(way @ before @ way)
        foreseen = -float(np.trace(B.T @ (hessian - before - of_priors) @ B)) / (2 * length)
        where = f"{foreseen:5.2f}"
        narrow = [numbers["mean"] for name, numbers in results["narrow"].parameters.items() if name_in_r(name) in known.index]
        read, mode = priors.read, priors.read @ (xi - way)
        if case.family not in ("weibull", "ordinal") and len(narrow) == len(read):
            V = np.linalg.inv(read @ np.linalg.inv(before) @ read.T)
            where += f" {(narrow - mode) @ V @ (read @ way) / (read @ way @ V @ read @ way):5.2f}"
    spread = "  ".join(beside(result, known) for result in results.values())
    return f"{case.data + ' ' + case.family:38} {len(known):2d}  {spread}  {taken:6g}  {where}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="*", default=[])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    lines = SETS.replace("\\\n", "").strip().splitlines()
    cases = [Case(*(part.strip() for part in re.split(r" \|(?! \w+\))", line))) for line in lines]
    cases = [case for case in cases if not options.sets or case.data in options.sets]
    public_sets.write(sorted({case.data for case in cases}), options.data)
    text = [f"fedkern {fedkern.__version__}, Python {platform.python_version()}: distance from R, sds over R's; prior_sd; c"]
    text += [f"{'':38}  p  {'  '.join(f'{width:15}' for width in WIDTHS)}   taken  foreseen, is"]
    for case in cases:
        text.append(look(case, options.data))
        print(text[-1], file=sys.stderr, flush=True)
    print("\n".join(text))
    if options.out:
        options.out.write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
