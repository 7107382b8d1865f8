"""How often a job says that something is wrong with honest data.

    python benchmarks/false_alarms.py DATA [--sets NAME ..] [--out benchmarks/results/false-alarms.txt]

Each of the public data sets below is dealt by lot to three or four clients (small ones to two), five times. Rows are dealt; of a
model with groups, these. Then no client differs from the others but by chance, none has another unit, another code, or a file
of another one, and each of the `ALARMS` is false. The last lines have the number of deals in which a word was said, and the
data sets where it was. A deal that a client refuses (too few rows, or a rare level) is none: others take its place, of the
next seeds, ten at most.

DATA is a folder: data sets of R's packages are written into it by Rscript once, those of statsmodels and scikit-learn are read
where they are installed.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import public_sets

import fedkern
from fedkern.errors import FedkernError

DEALS = 5
MOST = 10  # seeds of a data set that are tried

ALARMS = {
    "one file twice": "one file twice",
    "differ by more than chance": "differ by more than chance",
    "other way round": "other way round|the other way|which way",
    "another unit": "in another unit",
    "missing?": "missing(, 0, -9, 999)?\\?|stands? for a missing|stand for one that is missing",
    "far cells": "so far from all others|far from all others",
    "coded apart": "code it alike|two values, and not the same",
    "levels": "written alike|write them alike|begin at another number",
    "multiple": "times those of the others|times that at|the others'",
}
SETS = """
MASS::Boston | gaussian | medv ~ crim + zn + indus + nox + rm + age + dis + rad + tax + ptratio + lstat
MASS::birthwt | bernoulli | low ~ age + lwt
MASS::Pima.te | bernoulli | y ~ npreg + glu + bmi + age | d = d.assign(y=(d['type'] == 'Yes') * 1)
MASS::Cars93 | gaussian | Price ~ Horsepower + Weight + MPG_city + Origin
MASS::epil | poisson | y ~ lbase + lage + (1 | subject)
MASS::bacteria | bernoulli | yes ~ week | d = d.assign(yes=(d['y'] == 'y') * 1)
MASS::cats | gaussian | Hwt ~ Bwt + Sex
MASS::survey | gaussian | Height ~ Sex + Wr_Hnd + Age
MASS::nlschools | gaussian | lang ~ IQ + SES + GS + (1 | class)
MASS::UScereal | gaussian | calories ~ protein + fat + sugars + carbo
MASS::anorexia | gaussian | Postwt ~ Prewt + Treat
MASS::oats | gaussian | Y ~ N + V
MASS::fgl | gaussian | RI ~ Na + Mg + Al + Si + K + Ca + Ba + Fe
MASS::crabs | gaussian | FL ~ CW + BD
survival::cancer | cox | time died ~ age + wt_loss | d = d.assign(died=d['status'] - 1)
survival::colon | cox | time status ~ rx + age + sex + nodes + extent | d = d[d["etype"] == 2]
survival::pbc | cox | time died ~ age + bili | d = d.assign(died=(d['status'] == 2) * 1)
survival::mgus | cox | futime death ~ age + sex + hgb + mspike
survival::mgus2 | cox | futime death ~ age + sex + hgb + creat + mspike
survival::gbsg | cox | rfstime status ~ age + nodes + pgr + er
survival::rotterdam | weibull | dtime death ~ age + meno + nodes + pgr + er
survival::cgd0 | gaussian | weight ~ height + age
survival::nafld1 | cox | futime death ~ age + bmi | d = d.assign(death=d['status'])
survival::flchain | cox | futime death ~ age + sex + kappa + lambda + creatinine
lme4::sleepstudy | gaussian | Reaction ~ Days + (1 | Subject)
lme4::VerbAgg | bernoulli | yes ~ Anger + situ + (1 | id) | d = d.assign(yes=(d['r2'] == 'Y') * 1)
lme4::cake | gaussian | angle ~ recipe + temp
lme4::Arabidopsis | negative-binomial | total_fruits ~ nutrient + amd + rack
AER::Affairs | bernoulli | any ~ gender + age + yearsmarried + religiousness + rating | d = d.assign(any=(d["affairs"] > 0) * 1)
AER::CPS1985 | gaussian | lwage ~ education + experience + gender + union | d = d.assign(lwage=np.log(d["wage"]))
AER::CreditCard | bernoulli | yes ~ age + income + owner | d = d.assign(yes=(d['card'] == 'yes') * 1)
AER::DoctorVisits | poisson | visits ~ gender + age + income + illness + reduced + health
AER::HMDA | bernoulli | yes ~ pirat + hirat + lvrat + afam | d = d.assign(yes=(d['deny'] == 'yes') * 1)
AER::HousePrices | gaussian | price ~ lotsize + bedrooms + bathrooms + stories + garage
AER::PSID1976 | bernoulli | yes ~ age + education + fincome + experience | d = d.assign(yes=(d['participation'] == 'yes') * 1)
AER::RecreationDemand | negative-binomial | trips ~ quality + income + costC + costH
AER::SwissLabor | bernoulli | yes ~ income + age + education + foreign | d = d.assign(yes=(d['participation'] == 'yes') * 1)
AER::TeachingRatings | gaussian | eval ~ minority + age + gender + credits + beauty + native
AER::CASchools | gaussian | math ~ students + teachers + calworks + lunch + expenditure + income + english
AER::PhDPublications | negative-binomial | articles ~ gender + married + kids + prestige + mentor
AER::Fatalities | gaussian | lfatal ~ beertax + unemp + income + drinkage | d = d.assign(lfatal=np.log(d["fatal"]))
AER::GSOEP9402 | gaussian | income ~ kids + meducation + size + gender
pscl::vote92 | bernoulli | bush ~ dem + female | d = d.assign(bush=(d['vote'] == 'Bush') * 1)
datasets::iris | gaussian | Sepal_Length ~ Sepal_Width + Petal_Length + Petal_Width
datasets::ToothGrowth | gaussian | len ~ supp + dose
datasets::airquality | gaussian | Ozone ~ Solar_R + Wind + Temp
datasets::quakes | gaussian | mag ~ depth + stations + lat
datasets::attenu | gaussian | laccel ~ mag + dist | d = d.assign(laccel=np.log(d["accel"]))
datasets::chickwts | gaussian | weight ~ feed
datasets::CO2 | gaussian | uptake ~ conc + Type + Treatment
datasets::faithful | gaussian | eruptions ~ waiting
nlme::Orthodont | gaussian | distance ~ age + Sex + (1 | Subject)
nlme::Ovary | gaussian | follicles ~ Time
nlme::Wheat2 | gaussian | yield ~ latitude + longitude
geepack::ohio | bernoulli | resp ~ age + smoke + (1 | id)
geepack::dietox | gaussian | Weight ~ Time + Evit + (1 | Pig)
glmmTMB::Owls | negative-binomial | SiblingNegotiation ~ FoodTreatment + SexParent + (1 | Nest)
sklearn::diabetes | gaussian | target ~ age + sex + bmi + bp + s1 + s2 + s3 + s4 + s5 + s6
sklearn::breast_cancer | bernoulli | target ~ mean_texture + mean_smoothness + mean_concavity + mean_symmetry
sklearn::wine | gaussian | alcohol ~ malic_acid + ash + magnesium + hue + proline
statsmodels::anes96 | bernoulli | vote ~ age + educ + income + selfLR
statsmodels::ccard | gaussian | AVGEXP ~ AGE + INCOME + INCOMESQ + OWNRENT
statsmodels::statecrime | gaussian | violent ~ poverty + single
statsmodels::cancer | poisson | cancer ~ lpop | d = d.assign(lpop=np.log(d["population"]))
statsmodels::modechoice | bernoulli | choice ~ ttme + invc + invt + hinc
statsmodels::engel | gaussian | foodexp ~ income
"""


class DataSet(NamedTuple):
    """Names a public data set and the model of it: a formula, or of times `time event ~ terms`."""

    package: str
    name: str
    family: str
    formula: str
    change: str = ""

    @property
    def names(self) -> list[str]:
        """The columns that the formula names."""
        words = re.findall(r"[A-Za-z_][A-Za-z0-9_]*", self.formula)
        return list(dict.fromkeys(word for word in words if word not in ("factor", "offset", "cbind")))

    @property
    def group(self) -> str | None:
        """The column of (1 | group)."""
        found = re.search(r"\| (\w+)\)", self.formula)
        return found[1] if found else None

    @property
    def job(self) -> dict[str, dict[str, object]]:
        """The job, with nothing set but the model."""
        response, terms = self.formula.split(" ~ ")
        if " " in response and "(" not in response:
            response = f"Surv({', '.join(response.split())})"
        return {"job": {"method": "likelihood"}, "model": {"family": self.family, "formula": f"{response} ~ {terms}"}}


def sets() -> list[DataSet]:
    """Returns all data sets."""
    lines = (re.split(r" \| (?!\w+\))", line) for line in SETS.strip().splitlines())
    return [DataSet(*line[0].split("::"), *line[1:]) for line in lines]


def read(one: DataSet, folder: Path) -> pd.DataFrame:
    """Returns the complete rows of a data set's columns."""
    d = public_sets.read(one.package, one.name, folder).rename(columns=lambda name: re.sub(r"\W", "_", name))
    if one.change:
        scope = {"d": d, "np": np}
        exec(one.change, scope)
        d = scope["d"]
    return public_sets.drawn(d[one.names].dropna().reset_index(drop=True), one.group)


def deal(d: pd.DataFrame, group: str | None, seed: int) -> dict[str, pd.DataFrame]:
    """Deals rows, or groups, by lot to clients: four of even seeds, three of odd ones; of small data two."""
    m = min(3 + (seed % 2 == 0), max(2, len(d) // 40))
    return public_sets.deal(d, group, ("east", "north", "south", "west")[:m], seed)


def words(texts: Sequence[str]) -> set[str]:
    """Returns the alarms that a result's lines have."""
    return {name for name, pattern in ALARMS.items() if any(re.search(pattern, text) for text in texts)}


def deals(one: DataSet, folder: Path) -> Iterator[dict[str, Any]]:
    """Runs a data set's deals; yields each one's seed, lines and alarms, or why it was refused."""
    d, done = read(one, folder), 0
    for seed in range(MOST):
        try:
            result = fedkern.run(one.job, data=deal(d, one.group, seed))
        except FedkernError as error:
            yield {"set": f"{one.package}::{one.name}", "seed": seed, "refused": str(error)}
            continue
        texts = [str(result.summary["verdict"]), *result.notes]
        yield {"set": f"{one.package}::{one.name}", "seed": seed, "lines": texts, "alarms": sorted(words(texts))}
        done += 1
        if done == DEALS:
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="*", default=[])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--lines", type=Path, help="a file of all lines of all results")
    options = parser.parse_args()
    chosen = [one for one in sets() if not options.sets or one.name in options.sets]
    public_sets.write([f"{one.package}::{one.name}" for one in chosen], options.data)
    found = Counter[str]()
    where: dict[str, list[str]] = {name: [] for name in ALARMS}
    run = refused = 0
    for one in chosen:
        for told in deals(one, options.data):
            if options.lines:
                with options.lines.open("a") as file:
                    file.write(json.dumps(told) + "\n")
            if "refused" in told:
                refused += 1
                continue
            run += 1
            for name in told["alarms"]:
                found[name] += 1
                where[name].append(f"{told['set']} {told['seed']}")
            print(one.package, one.name, told["seed"], *told["alarms"], file=sys.stderr, flush=True)
    lines = [
        f"fedkern {fedkern.__version__}, Python {platform.python_version()}: {run} deals of {len(chosen)} data sets; "
        f"{refused} more were refused by a client"
    ]
    lines += [f"{found[name]:4d}  {name}  {', '.join(where[name])}".rstrip() for name in ALARMS]
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
