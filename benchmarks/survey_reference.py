"""Survey weights, clusters and strata beside R's survey::svyglm: coefficients and standard errors with flat priors.

python benchmarks/survey_reference.py > benchmarks/results/survey_reference.txt; it wants `Rscript` with the package survey, whose
data sets api and nhanes are dealt to three clients each, whole clusters (and strata, where there are some) at one client.
"""

from __future__ import annotations

import csv
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import fedkern

R = """
suppressMessages(library(survey)); data(api); data(nhanes)
nhanes <- nhanes[!is.na(nhanes$HI_CHOL), ]
nhanes$unit <- paste0("u", nhanes$SDMVSTRA, ".", nhanes$SDMVPSU); nhanes$stratum <- paste0("s", nhanes$SDMVSTRA)
nhanes$male <- as.integer(nhanes$RIAGENDR == 1); nhanes$age <- as.character(nhanes$agecat)
nhanes$race <- paste0("r", nhanes$race)
for (d in c("apistrat", "apiclus1", "apiclus2")) {
  frame <- get(d); frame$award <- as.integer(frame$awards == "Yes"); frame$district <- paste0("d", frame$dnum); assign(d, frame)
}
CALLS
"""


class Case(NamedTuple):
    """A data set with its design and model; `family` and `of_r`: as both programs call it."""

    name: str
    data: str
    response: str
    columns: tuple[str, ...]
    family: str
    of_r: str
    weight: str = "pw"
    psu: str | None = None
    strata: str | None = None


LINEAR = ("ell", "meals")
NHANES = ("race", "age", "male")
CASES = [
    Case("apistrat, strata", "apistrat", "api00", LINEAR, "gaussian", "gaussian()", strata="stype"),
    Case("apistrat, no strata", "apistrat", "api00", LINEAR, "gaussian", "gaussian()"),
    Case("apistrat, strata", "apistrat", "award", LINEAR, "bernoulli", "quasibinomial()", strata="stype"),
    Case("apistrat, strata", "apistrat", "enroll", LINEAR, "poisson", "quasipoisson()", strata="stype"),
    Case("apiclus1, clusters", "apiclus1", "api00", LINEAR, "gaussian", "gaussian()", psu="district"),
    Case("apiclus1, clusters", "apiclus1", "award", LINEAR, "bernoulli", "quasibinomial()", psu="district"),
    Case("apiclus2, clusters", "apiclus2", "api00", LINEAR, "gaussian", "gaussian()", psu="district"),
    Case(
        "nhanes, clusters in strata", "nhanes", "HI_CHOL", NHANES, "bernoulli", "quasibinomial()", "WTMEC2YR", "unit", "stratum"
    ),
]


def by_r(folder: Path) -> list[pd.DataFrame]:
    """Writes the data sets, and returns what svyglm says of each case."""
    calls = [f'write.csv({name}, "{folder}/{name}.csv", row.names = FALSE)' for name in {case.data for case in CASES}]
    for k, case in enumerate(CASES):
        strata = f"strata = ~{case.strata}, " if case.strata else ""
        design = f"svydesign(id = ~{case.psu or 1}, {strata}weights = ~{case.weight}, data = {case.data})"
        fit = f"svyglm({case.response} ~ {' + '.join(case.columns)}, {design}, family = {case.of_r})"
        calls.append(f'write.csv(coef(summary({fit}))[, 1:2], "{folder}/fit{k}.csv")')
    script = folder / "all.R"
    script.write_text(R.replace("CALLS", "\n".join(calls)))
    subprocess.run(["Rscript", str(script)], check=True, stderr=subprocess.DEVNULL)
    return [pd.read_csv(folder / f"fit{k}.csv", index_col=0) for k in range(len(CASES))]


def by_fedkern(case: Case, frame: pd.DataFrame) -> dict[str, tuple[float, float]]:
    """Returns mean and standard deviation of each coefficient, in R's order."""
    kept = [case.response, *case.columns, case.weight, *filter(None, (case.psu, case.strata))]
    of = frame[case.strata or case.psu] if case.strata or case.psu else pd.Series(np.arange(len(frame)))
    client = of.rank(method="dense").astype(int).to_numpy() % 3
    data: dict[str, Any] = {"response": case.response, "weight": case.weight, "weight_kind": "survey"}
    data |= {name: column for name, column in (("psu", case.psu), ("survey_strata", case.strata)) if column}
    model = {"family": case.family, "prior_sd": 100.0, "intercept_sd": 1e4}
    job = {"job": {"method": "likelihood", "seed": 1}, "data": data, "model": model, "disclosure": {"level": "none"}}
    result = fedkern.run(job, data={f"c{k}": frame.loc[client == k, kept] for k in range(3)})
    assert result.converged is True, result.summary["verdict"]
    rows = {
        row["parameter"]: (row["mean"], row["sd"]) for row in result.table().to_dict("records") if row["parameter"] != "sigma"
    }
    return {name: row for name, row in rows.items() if "_std" not in name}


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fits = by_r(folder)
        most = [0.0, 0.0]
        for case, fit in zip(CASES, fits):
            found = by_fedkern(case, pd.read_csv(folder / f"{case.data}.csv", quoting=csv.QUOTE_MINIMAL))
            print(f"{case.name}: {case.response} ~ {' + '.join(case.columns)}, {case.family}")
            for (label, row), (mean, sd) in zip(fit.iterrows(), found.values(), strict=True):
                shift, ratio = (mean - row.iloc[0]) / row.iloc[1], sd / row.iloc[1]
                most = [max(most[0], abs(shift)), max(most[1], abs(ratio - 1))]
                both = f"{row.iloc[0]:10.4f} {row.iloc[1]:8.4f}   {mean:10.4f} {sd:8.4f}"
                print(f"  {label!s:14} {both}   {shift:6.2f} sd {ratio:7.4f}")
        print(f"means within {most[0]:.2f} standard errors (a posterior's mean is no mode),")
        print(f"standard errors within {100 * most[1]:.2g} %")


if __name__ == "__main__":
    main()
