"""What rounding changes of results of `likelihood`: effective draws, means and standard deviations on ten data sets that R has.

    python benchmarks/rounded_draws.py [--out benchmarks/results/rounded_draws.txt]

Rows, or groups where a model has effects of these, are dealt to three clients. Each job runs twice: as it is, and with all digits
of the values at the same draws. Means move in posterior standard deviations. R ("Rscript") and its packages MASS, survival and
lme4 write the data.
"""

from __future__ import annotations

import argparse
import io
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas

import fedkern
from fedkern.algorithms.importance import client as client_of

TOLD = client_of.told_values


class Case(NamedTuple):
    """A data set, R's expression for its frame, the family, what the response is, covariates, and a column of groups."""

    name: str
    frame: str
    family: str
    response: dict[str, Any]
    columns: tuple[str, ...]
    group: str = ""


NUMBERS = "cbind(y = {}, as.data.frame(lapply({}[c({})], as.numeric)))"


def numbers(response: str, frame: str, *columns: str) -> str:
    """R's expression for a data frame of a response and numbers."""
    return NUMBERS.format(response, frame, ", ".join(f"'{name}'" for name in columns))


def case(name: str, family: str, response: str, *columns: str) -> Case:
    """A data set of R whose columns are taken as numbers."""
    return Case(
        name.split("::")[-1].rstrip(")"), numbers(response.format(name), name, *columns), family, {"response": "y"}, columns
    )


def of_times(name: str, family: str, *columns: str) -> Case:
    """A data set of survival times."""
    frame = f"na.omit(survival::{name}[c('time', 'status', {', '.join(map(repr, columns))})])"
    return Case(name, frame, family, {"time": "time", "event": "status"}, columns)


CASES = (
    case("MASS::birthwt", "bernoulli", "{}$low", "age", "lwt", "smoke", "ht", "ui"),
    case("MASS::Pima.tr", "bernoulli", "as.numeric({}$type) - 1", "npreg", "glu", "bmi", "ped", "age"),
    case("na.omit(MASS::biopsy)", "bernoulli", "as.numeric({}$class) - 1", "V1", "V3", "V4", "V6", "V7"),
    case("MASS::quine", "negative-binomial", "{}$Days", "Eth", "Sex", "Lrn"),
    case("warpbreaks", "poisson", "{}$breaks", "wool", "tension"),
    case("MASS::Boston", "student", "{}$medv", "crim", "nox", "rm", "dis", "ptratio", "lstat"),
    of_times("lung", "cox", "age", "sex", "ph.ecog", "wt.loss"),
    of_times("veteran", "weibull", "karno", "diagtime", "age", "prior"),
    Case("sleepstudy", "lme4::sleepstudy", "gaussian", {"response": "Reaction"}, ("Days",), "Subject"),
    case("infert", "bernoulli", "{}$case", "age", "parity", "induced", "spontaneous", "education"),
)


def read(case: Case) -> pandas.DataFrame:
    """The columns of a case."""
    text = subprocess.run(
        ["Rscript", "-e", f"write.csv({case.frame}, row.names = FALSE)"], capture_output=True, check=True, text=True
    ).stdout
    frame = pandas.read_csv(io.StringIO(text))
    if "event" in case.response:
        event = case.response["event"]
        frame[event] = (frame[event] == frame[event].max()).astype(int)
    if case.group:
        frame[case.group] = "g" + frame[case.group].astype(str)
    return frame[[*case.columns, *case.response.values(), *([case.group] if case.group else [])]]


def run(case: Case, frame: pandas.DataFrame, *, rounds_values: bool) -> fedkern.Result:
    """The job's result."""
    units = frame[case.group].unique() if case.group else np.arange(len(frame))
    dealt = np.random.default_rng(0).permutation(len(units)) % 3
    of = dict(zip(units, dealt, strict=True))
    client = frame[case.group].map(of).to_numpy() if case.group else dealt
    model: dict[str, Any] = {"family": case.family, **({"random": {"group": case.group}} if case.group else {})}
    job = {"job": {"method": "likelihood"}, "data": {**case.response, "least_rows": 1}, "model": model}
    client_of.told_values = TOLD if rounds_values else lambda state, points, values: values  # type: ignore[assignment]
    return fedkern.run(job, data={name: frame[client == k] for k, name in enumerate("abc")})


def main() -> None:
    """A line of each data set, and of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    lines = [
        "data, family, rows: effective draws rounded and with all digits, most that a mean moves (sds), most that an sd changes"
    ]
    print(lines[0])
    found = []
    for case in CASES:
        frame = read(case)
        one, other = (run(case, frame, rounds_values=which) for which in (True, False))
        sds = {name: numbers["sd"] for name, numbers in other.parameters.items()}
        moved = max(abs(one.parameters[name]["mean"] - other.parameters[name]["mean"]) / sd for name, sd in sds.items())
        changed = max(abs(one.parameters[name]["sd"] / sd - 1) for name, sd in sds.items())
        draws = [float(result.summary["ess"]) for result in (one, other)]
        found.append((*draws, moved, changed))
        lines.append(
            f"{case.name:12} {case.family:18} {len(frame):4}: {draws[0]:6.0f} {draws[1]:6.0f}  {moved:.4f}  {100 * changed:.2f} %"
        )
        print(lines[-1], flush=True)
    rounded, whole, *_ = np.mean(found, axis=0)
    moved, changed = np.max(found, axis=0)[2:]
    lines.append(f"mean: {rounded:.0f} {whole:.0f}; a mean moves by {moved:.4f} at most, an sd by {100 * changed:.2f} %")
    print(lines[-1])
    if asked.out:
        asked.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
