"""How often honest data get an answer: public data sets as their authors ship them, each with the job of somebody new to fedkern.

    python benchmarks/honest.py DATA [--sets NAME ..] [--arms ARM ..] [--apart JSON] [--out benchmarks/results/honest.txt]
    python benchmarks/honest.py DATA --reference [--sets NAME ..]     # R, JAX: writes results/honest_reference.json

A job has family and formula (or response), and nothing else. Files are whole: texts, numeric codes, empty cells, columns that the
formula does not name. Some are split by a column of theirs (hospital, country, school year), the others dealt by lot to clients.

| arm | what it is |
| --- | --- |
| one process | `fedkern.run(job, data=..)`, where all rows are in this process |
| apart | the same with the keys of parties apart: `--apart`, by default `{"disclosure": {"level": "standard"}}` |
| advice | a job apart that was refused, is approximate or has not converged, once more with the keys that its text names |
| signed | `job.sums = "secure"` apart, of three clients or more that sign, as if each policy said `differencing = "refuse"` |

A number of the result is off where its mean lies more than .1 sd, or its sd more than 10 %, from the pooled posterior
(`honest_reference.py`), beside twice the error of that one. The reference is of the result's own model: rows may widen default
priors (`priors` in summary.json), and rare levels join; `--reference` adds what lines of DATA/honest.jsonl lack. "Approximate"
is said of a posterior that may be off: those that are stand apart from the ones that are said to be right. Lines of
DATA/honest.jsonl are not run again: delete them, or the file, to begin anew.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pandas as pd
import public_sets

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import fedkern
from fedkern import _core
from fedkern.errors import FedkernError
from fedkern.models.encoding import Encoding
from support.signing import Signing

STORED = Path(__file__).parent / "results" / "honest_reference.json"
NAMES = ("east", "north", "south", "west", "centre")
ARMS = ("one process", "apart", "advice", "signed")
LEAST = 3  # clients of a job with secure sums
APART = {"disclosure": {"level": "standard"}}
SEED = 53
OFF, WIDER = 0.1, 0.1  # a mean in sds, an sd as a part of it

# data set | family | clients: a column, or a number by lot, or their rows | formula | levels in order | what is done first
SETS = """
Publish::Diabetes | gaussian | location | glyhb ~ age + gender + BMI + waist
pec::Pbc3 | cox | unit | Surv(days, failed) ~ tment + age + log(bili) + alb | | d = d.assign(failed=(d["status"] > 0) * 1)
geepack::respiratory | bernoulli | center | outcome ~ treat + sex + age + baseline + (1 | id)
AER::CPSSW8 | gaussian | region | earnings ~ age + education + gender
AER::NMES1988 | negative-binomial | region | visits ~ hospital + health + chronic + gender + school + insurance
AER::HealthInsurance | bernoulli | region | insurance ~ health + age + limit + gender + married + selfemp + education
AER::EquationCitations | negative-binomial | journal | othercites ~ pages + equations
AER::ResumeNames | bernoulli | city | call ~ ethnicity + gender + quality + experience
AER::STAR | gaussian | schoolk | readk ~ stark + gender + lunchk + experiencek
AER::CPS1988 | gamma | region | wage ~ education + experience + ethnicity + smsa + parttime
AER::Fatalities | gaussian | year | rate ~ beertax + unemp + drinkage + jail | | d = d.assign(rate=d["fatal"] / d["pop"] * 1e4)
carData::WVS | ordinal | country | poverty ~ gender + religion + degree + age | Too Little, About Right, Too Much
carData::Chile | multinomial | region | vote ~ statusquo + age + sex + education
carData::Womenlf | multinomial | region | partic ~ hincome + children
carData::Greene | bernoulli | location | decision ~ rater + success + language
carData::SLID | gaussian | language | wages ~ education + age + sex
MASS::Aids2 | weibull | state | Surv(days, dead) ~ sex + age + T.categ | | \
d = d.assign(days=d["death"] - d["diag"] + 0.9, dead=(d["status"] == "D") * 1)
MASS::Insurance | poisson | District | Claims ~ Group + Age + offset(log(Holders))
MASS::Cars93 | gaussian | Origin | Price ~ Horsepower + Weight + AirBags + DriveTrain
lme4::grouseticks | poisson | YEAR | TICKS ~ cHEIGHT + (1 | BROOD)
lme4::InstEval | ordinal | dept | y ~ studage + lectage + service
palmerpenguins::penguins | gaussian | island | body_mass_g ~ bill_length_mm + flipper_length_mm + sex
modeldata::stackoverflow | bernoulli | Country | Remote ~ Salary + YearsCodedJob + Hobby + CareerSatisfaction
modeldata::mlc_churn | bernoulli | area_code | churn ~ international_plan + voice_mail_plan + total_day_minutes + \
number_customer_service_calls
mlmRev::Hsb82 | gaussian | sector | mAch ~ ses + minrty + sx + (1 | school)
mlmRev::Contraception | bernoulli | urban | use ~ age + I(age^2) + livch + (1 | district)
ordinal::soup | ordinal | LOCATION | SURENESS ~ PROD + DAY + SOUPTYPE + (1 | RESP)
pammtools::patient | cox | Year | Surv(Survdays, PatientDied) ~ Age + ApacheIIScore + Gender + AdmCatID
survival::cgd | cox | hos.cat | Surv(tstart, tstop, status) ~ treat + sex + age + inherit + steroids
lifelines::dd | weibull | un_continent_name | Surv(duration, observed) ~ regime
kmi::icu.pneu | bernoulli | 49 106 216 | died ~ age + sex + pneu + stop | | \
d = d.groupby("id").tail(1).assign(died=lambda d: ((d["status"] == 1) & (d["event"] == 2)) * 1).head(371)
mlbench::PimaIndiansDiabetes2 | bernoulli | 49 106 216 | diabetes ~ glucose + mass + pedigree + age | | \
d = d.dropna(subset=["glucose", "mass"]).head(371)
uci::adult | bernoulli | 3 | income ~ . | | d = d.drop(columns=["fnlwgt", "education_num"])
modeldata::attrition | bernoulli | 4 | Attrition ~ .
modeldata::credit_data | bernoulli | 4 | Status ~ .
modeldata::Sacramento | gamma | 4 | price ~ beds + baths + sqft + type
MASS::birthwt | bernoulli | 3 | low ~ age + lwt + factor(race) + smoke + ptl + ht + ui + ftv
MASS::quine | negative-binomial | 3 | Days ~ Eth + Sex + Age + Lrn
MASS::Melanoma | cox | 3 | Surv(time, died) ~ sex + age + thickness + ulcer | | d = d.assign(died=(d["status"] == 1) * 1)
MASS::Pima.tr2 | bernoulli | 3 | type ~ npreg + glu + bp + bmi + ped + age
MASS::biopsy | bernoulli | 4 | class ~ V1 + V3 + V6 + V8
MASS::snails | binomial | 3 | cbind(Deaths, N - Deaths) ~ Species + Exposure + Rel.Hum + Temp
MASS::Traffic | poisson | 3 | y ~ limit + day
survival::lung | cox | 3 | Surv(time, status) ~ age + sex + ph.ecog + wt.loss
survival::veteran | weibull | 3 | Surv(time, status) ~ trt + karno + celltype + age + prior
survival::retinopathy | cox | 4 | Surv(futime, status) ~ trt + type + risk
survival::pbc | cox | 4 | Surv(time, died) ~ age + edema + log(bili) + log(protime) + log(albumin) | | \
d = d.assign(died=(d["status"] == 2) * 1)
survival::stanford2 | cox | 3 | Surv(time, status) ~ age + t5
survival::myeloid | cox | 4 | Surv(futime, death) ~ trt + sex
survival::rats | weibull | 4 | Surv(time, status) ~ rx + sex
survival::nwtco | bernoulli | 5 | rel ~ factor(histol) + factor(stage) + age
lme4::cbpp | binomial | 3 | cbind(incidence, size - incidence) ~ period + (1 | herd)
lme4::Penicillin | gaussian | 4 | diameter ~ sample + (1 | plate)
nlme::RatPupWeight | gaussian | 3 | weight ~ sex + Lsize + Treatment + (1 | Litter)
mlmRev::Exam | gaussian | 5 | normexam ~ standLRT + sex + schgend + (1 | school)
mlmRev::guImmun | bernoulli | 4 | immun ~ kid2p + mom25p + ord + ethn + momEd + husEd + (1 | comm)
mlmRev::Chem97 | ordinal | 5 | score ~ gcsecnt + gender + age
mlmRev::Mmmec | negative-binomial | 4 | deaths ~ uvb + offset(log_expected) + (1 | region) | | \
d = d.assign(log_expected=np.log(d["expected"]))
AER::Affairs | poisson | 4 | affairs ~ age + yearsmarried + religiousness + occupation + rating
AER::BankWages | multinomial | 3 | job ~ education + minority
AER::CreditCard | negative-binomial | 4 | reports ~ age + income + owner + selfemp
AER::PSID1982 | gaussian | 4 | wage ~ experience + weeks + occupation + industry + south + smsa + married + gender + union + \
education + ethnicity
AER::SmokeBan | bernoulli | 5 | smoker ~ ban + age + education + afam + hispanic + gender
AER::GSS7402 | poisson | 5 | kids ~ age + education + ethnicity + immigrant
AER::Medicaid1986 | negative-binomial | 3 | visits ~ children + age + income + health1 + access + married + ethnicity
pscl::admit | ordinal | 2 | score ~ gre.quant + gre.verbal + ap + pt + female
pscl::RockTheVote | binomial | 3 | cbind(r, n - r) ~ treated
pscl::politicalInformation | ordinal | 4 | y ~ collegeDegree + female + age + homeOwn | \
Very Low, Fairly Low, Average, Fairly High, Very High
ordinal::wine | ordinal | 2 | rating ~ temp + contact
carData::TitanicSurvival | bernoulli | 4 | survived ~ sex + age + passengerClass
carData::Salaries | gamma | 3 | salary ~ rank + discipline + yrs.since.phd + sex
carData::Prestige | gaussian | 3 | prestige ~ education + income + type
carData::Arrests | bernoulli | 5 | released ~ colour + age + sex + employed + citizen + checks
carData::BEPS | multinomial | 4 | vote ~ age + gender + economic.cond.national + Europe + political.knowledge
carData::Rossi | cox | 3 | Surv(week, arrest) ~ fin + age + race + wexp + mar + paro + prio
carData::Mroz | bernoulli | 4 | lfp ~ k5 + k618 + age + wc + hc + lwg + inc
carData::Cowles | bernoulli | 4 | volunteer ~ sex + neuroticism * extraversion
boot::channing | cox | 3 | Surv(entry, exit, cens) ~ sex
TH.data::mammoexp | multinomial | 3 | ME ~ PB + HIST + BSE + DECT
Epi::births | gaussian | 3 | bweight ~ gestwks + matage + hyp + sex
Epi::lungDK | poisson | 4 | D ~ A5 + P5 + offset(log(Y))
geepack::koch | ordinal | 3 | y ~ trt + day + (1 | id)
mlbench::HouseVotes84 | bernoulli | 3 | Class ~ V2 + V10 + V11 + V16
rpart::kyphosis | bernoulli | 2 | Kyphosis ~ Age + Number + Start
rpart::stagec | cox | 3 | Surv(pgtime, pgstat) ~ age + g2 + gleason + ploidy
timereg::TRACE | weibull | 5 | Surv(time, died) ~ wmi + chf + age + sex + diabetes + vf | | \
d = d.assign(died=(d["status"] == 9) * 1)
robustbase::possumDiv | poisson | 3 | Diversity ~ Shrubs + Stumps + Stags + Bark + Habitat + BAcacia + eucalyptus + aspect
brglm2::endometrial | bernoulli | 2 | HG ~ NV + PI + EH
glmmTMB::Salamanders | negative-binomial | 4 | count ~ mined + cover + DOY + (1 | site)
datasets::warpbreaks | poisson | 2 | breaks ~ wool * tension
datasets::InsectSprays | poisson | 2 | count ~ spray
datasets::esoph | binomial | 3 | cbind(ncases, ncontrols) ~ agegp + alcgp + tobgp
datasets::infert | bernoulli | 3 | case ~ age + parity + education + spontaneous + induced
datasets::ChickWeight | gaussian | 4 | weight ~ Time + Diet + (1 | Chick)
pec::cost | cox | 4 | Surv(time, status) ~ age + sex + hypTen + prevStroke + smoke + strokeScore
riskRegression::Paquid | cox | 4 | Surv(time, dementia) ~ DSST + MMSE | | d = d.assign(dementia=(d["status"] == 1) * 1)
statsmodels::fair | bernoulli | 4 | any ~ rate_marriage + age + yrs_married + religious + educ | | \
d = d.assign(any=(d["affairs"] > 0) * 1)
statsmodels::randhie | negative-binomial | 5 | mdvis ~ lncoins + idp + lpi + fmde + physlm + disea
statsmodels::star98 | binomial | 4 | cbind(NABOVE, NBELOW) ~ LOWINC + PERASIAN + PERBLACK + PERHISP + PCTCHRT
sklearn::iris | multinomial | 3 | target ~ `sepal length (cm)` + `sepal width (cm)`
sklearn::diabetes | gaussian | 4 | target ~ age + sex + bmi + bp + s5
lifelines::larynx | weibull | 2 | Surv(time, death) ~ age + Stage_II + Stage_III + Stage_IV
lifelines::kidney_transplant | cox | 4 | Surv(time, death) ~ age + black_male + white_male + black_female
"""

# The rules that a refusal is about, by its words
RULES = {
    "missing cells": r"'nan' is not|'' is empty|model\.missing",
    "labels of a response": r"is not 0 or 1",
    "levels of a response": r"data\.levels is missing",
    "formula": r"model\.formula:",
    "rare values": r"and all others lack|is a rare level|rows_per_value",
    "combinations": r"combinations of values",
    "rows a coefficient": r"\d+ coefficients? by its columns|rows_per_coefficient",
    "groups": r"least_groups|groups are asked for",
    "few rows": r"are asked for \(data\.least_rows\)|disclosure\.rows\b",
}


class DataSet(NamedTuple):
    """A public data set, how it is split, and the model of it."""

    source: str
    family: str
    clients: str
    formula: str
    levels: str = ""
    change: str = ""

    @property
    def natural(self) -> bool:
        """Whether a column of its own says whose a row is."""
        return not self.clients[0].isdigit()

    @property
    def group(self) -> str | None:
        """The column of (1 | group)."""
        found = re.search(r"\| (\w+)\)", self.formula)
        return found[1] if found else None

    def labels(self, d: pd.DataFrame) -> list[str]:
        """Returns the labels of the response, or of the event, as a job has them."""
        response = re.sub(r"^Surv\((.*)\)$", r"\1", self.formula.split(" ~ ")[0]).split(", ")[-1]
        return [re.sub(r"\.0$", "", str(label)) for label in sorted(d[response.strip("`")].dropna().unique())]

    @property
    def job(self) -> dict[str, dict[str, Any]]:
        """The job as somebody new writes it."""
        response, terms = self.formula.split(" ~ ")
        data: dict[str, Any] = {"levels": self.levels.split(", ")} if self.levels else {}
        model = {"family": self.family}
        if terms == ".":
            data["response"] = response
        else:
            model["formula"] = self.formula
        return {"job": {"method": "likelihood"}, "data": data, "model": model}

    def rows(self, folder: Path) -> pd.DataFrame:
        """Returns the whole file, of a large one some rows, with a column `client`."""
        package, name = self.source.split("::")
        d = public_sets.read(package, name, folder)
        if self.change:
            scope = {"d": d, "np": np}
            exec(self.change, scope)
            d = scope["d"]
        if self.natural:
            d = public_sets.drawn(d[d[self.clients].notna()], self.group)
            sites = d[self.clients].astype(str)
            return (d.drop(columns=self.clients) if self.formula.endswith(" ~ .") else d).assign(client=sites)
        sizes = [int(size) for size in self.clients.split()]
        names = NAMES[: sizes[0]] if len(sizes) == 1 else [n for n, size in zip(NAMES, sizes) for _ in range(size)]
        dealt = public_sets.deal(public_sets.drawn(d, self.group), self.group, names, SEED)
        return pd.concat([own.assign(client=name) for name, own in dealt.items()], ignore_index=True)


def sets() -> list[DataSet]:
    """Returns all data sets."""
    lines = (re.split(r" ?\| (?!\w+\))", line) for line in SETS.strip().splitlines())
    return [DataSet(*(cell.strip() for cell in line)) for line in lines]


def plain(name: str) -> str:
    """Returns a coefficient's name as R has it: `sexm` of `theta[sex[T.m]]` and of the contrast `sex[m vs f]`."""
    name = re.sub(r"^theta\[(.*)\]$|^threshold\[(.*)\]$", r"\1\2", name.replace("`", ""))
    name = re.sub(r"\[T\.([^\]]*)\]|\[(.*) vs [^\]]*\]", r"\1\2", name)
    name = re.sub(r"\bC\(|\bas\.factor\(", "factor(", name).replace("(Intercept)", "intercept")
    name = re.sub(r"\bI\((.*?)\)", r"\1", name.replace("**", "^")).replace(" ^ ", "^")
    return re.sub(r"\W", "_", re.sub(r"(\d)\.0\b", r"\1", name)).lower()


class Fitted(NamedTuple):
    """What a reference is of: a family, priors that are not the default ones, and levels of columns whose rare ones joined."""

    family: str
    priors: Mapping[str, float] = MappingProxyType({})
    joined: Mapping[str, Sequence[str]] = MappingProxyType({})

    @classmethod
    def of(cls, told: dict[str, Any]) -> Fitted:
        """Returns that of a result."""
        return cls(told["job"]["model"]["family"], told["priors"], told["joined"])

    def named(self, source: str) -> str:
        """Returns the name of a data set's reference."""
        priors = [f"{name}={sd:g}" for name, sd in sorted(self.priors.items())]
        return " ".join([source, self.family, *priors, *(f"{name}={'+'.join(own)}" for name, own in self.joined.items())])

    def rows(self, d: pd.DataFrame) -> pd.DataFrame:
        """Returns rows with "other (rare)" in the place of each level that has joined, and the levels in the result's order."""
        every = {name: d[name].where(d[name].isna() | d[name].isin(own), "other (rare)") for name, own in self.joined.items()}
        return d.assign(**{name: pd.Categorical(every[name], own) for name, own in self.joined.items()})


def compared(told: dict[str, Any], one: DataSet, d: pd.DataFrame, stored: dict[str, Any]) -> dict[str, Any]:
    """Returns what of a result is off, with the shift in sds and the ratio of the sds; the furthest; what its table has not.

    Nothing, where there is no result, or no reference of its family.
    """
    if "numbers" not in told or "random" in told["job"]["model"]:
        return {}
    if (reference := stored.get(Fitted.of(told).named(one.source))) is None:
        return {}
    # Where the result counts the first label, and not the second, coefficients have other signs.
    turned = one.family == "bernoulli" and str(told["positive"]) == one.labels(d)[0]
    found, furthest, lacking = {}, (0.0, 0.0), []
    for name, own in reference["posterior"].items():
        if name not in told["numbers"]:
            lacking.append(name)
            continue
        mean, sd = told["numbers"][name]
        sign = -1 if turned and "_sd_" not in name else 1
        shift, ratio = (sign * mean - own["mean"]) / own["sd"], sd / own["sd"]
        furthest = max(furthest[0], abs(shift)), max(furthest[1], abs(ratio - 1))
        error = own["ess"] ** -0.5  # of the reference, of a mean in sds; of an sd it is less
        if not (abs(shift) <= OFF + 2 * error and abs(ratio - 1) <= WIDER + 2 * error):
            found[name] = [round(shift, 3), round(ratio, 3)]
    return {"off": found, "furthest": furthest, "lacking": lacking}


def beside(result: fedkern.Result) -> int:
    """Counts the characters of `print(result)` that are not of its table."""
    names = ("parameter", *(row["parameter"] for row in result.rows()))
    return sum(len(line) + 1 for line in str(result).splitlines() if not line.startswith(names))


ADVICE = re.compile(
    r'(?:\[(?P<table>[\w.]+)\] )?\b(?P<key>[a-z_]+(?:\.[a-z_]+)*) = (?P<value>"[^"]*"|\[[^\]]*\]|true|false|[\d.]*\d)'
    r"|(?:lower|(?P<raised>raise)) (?P<lower>[a-z_.]+\.[a-z_]+)(?: to (?P<least>[\d.]*\d))?"
    r"|(?P<missing>data\.levels) is missing"
)
TABLES = {"family": "model", "missing": "model", "random": "model", "client": "model.random"}  # of keys that are named alone


def advised(job: dict[str, dict[str, Any]], text: str, one: DataSet, d: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Returns the job with the keys that a text advises: of each of its lines, which are a fault each, the first.

    Of a number that several lines have lowered, or raised, it is the one that does for all of them.
    """
    new: dict[str, dict[str, Any]] = json.loads(json.dumps(job))
    for line in text.splitlines():
        found = ADVICE.search(line)
        if found is None:
            continue
        key = found["key"] or found["lower"] or found["missing"]
        value = found["value"] or found["least"] or ("1" if found["lower"] else '"..."')
        if key.endswith("missing"):
            value = '"drop"'  # the first value that is named may be of another method
        *tables, name = key.split(".")
        at = new
        for table in tables or (found["table"] or TABLES.get(name, "data")).split("."):
            at = at.setdefault(table, {})
        given = one.labels(d)[None if name == "levels" else -1 :] if "..." in value else json.loads(value)
        if found["lower"] and name in at:
            given = (max if found["raised"] else min)(given, at[name])
        at[name] = given
        if name == "positive" and isinstance(at[name], list):
            at[name] = at[name][0]
        if also := re.search(r" and raise disclosure\.leverage to ([\d.]*\d)", line):
            new["disclosure"]["leverage"] = float(also[1])
        if 'with disclosure.rare = "join"' in line:
            new["disclosure"]["rare"] = "join"
    return new


def tried(job: dict[str, dict[str, Any]], d: pd.DataFrame, *, signs: bool = False) -> dict[str, Any]:
    """Runs a job, whose clients may sign; says what came of it."""
    data = {name: own.drop(columns="client").reset_index(drop=True) for name, own in d.groupby("client")}
    told: dict[str, Any] = {"job": job}
    begun = time.perf_counter()
    try:
        # Rows in memory have no policy, and sites that are apart may sign, as texts advise.
        near = patch("fedkern.jobs.holders.refuses_near", lambda policies: True)
        apart = patch("fedkern.jobs.keys.JobConfig.in_one_process", lambda config: config)
        with near, apart if "disclosure" in job else nullcontext():
            result = fedkern.run(job, data=data, place=Signing(data)) if signs else fedkern.run(job, data=data)
        seconds = time.perf_counter() - begun
        checked = "" if signs else str(fedkern.check(job, data=data))  # of nobody who signs
    except FedkernError as error:
        text = str(error)
        rules = [name for name, pattern in RULES.items() if re.search(pattern, text)]
        return told | {"outcome": "refused", "rules": rules or ["other"], "text": text}
    except Exception:
        return told | {"outcome": "fault", "text": traceback.format_exc()}
    words = {True: "answered", "settled": "answered", "approximate": "approximate"}
    numbers = {plain(row["parameter"]): [row["mean"], row["sd"]] for row in result.rows() if not row["site"]}
    return told | {
        "seconds": round(seconds, 2),
        "outcome": words.get(result.converged, "not converged"),
        "text": str(result.summary["verdict"]),
        "notes": list(result.notes),
        "beside": beside(result),
        "check": len(checked),
        "positive": result.summary["encoding"].get("positive"),
        "priors": result.summary.get("priors", {}),
        "joined": Encoding.from_dict(result.summary["encoding"]).levels_joined,
        "numbers": numbers,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="*", default=[])
    parser.add_argument("--arms", nargs="*", choices=ARMS, default=list(ARMS))
    parser.add_argument("--apart", type=json.loads, default=APART, help="tables of a job whose parties are apart")
    parser.add_argument("--reference", action="store_true", help="run R, and the posterior in JAX, on the pooled rows")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    chosen = [one for one in sets() if not options.sets or one.source.split("::")[1] in options.sets]
    public_sets.write([one.source for one in chosen], options.data)
    lines = options.data / "honest.jsonl"
    kept = [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []
    done = {(told["set"], told["arm"]): told for told in kept}
    if options.reference:
        from honest_reference import write_references

        write_references(references(chosen, kept), options.data, STORED)
        return
    wanted, stored = [], json.loads(STORED.read_text())["sets"]
    for one in chosen:
        d = one.rows(options.data)
        for arm in options.arms:
            if arm == "signed" and d["client"].nunique() < LEAST:
                continue
            if (told := done.get((one.source, arm))) is None:
                told = tell(one, arm, d, options.apart, done)
                done[one.source, arm] = told
                with lines.open("a") as file:
                    file.write(json.dumps(told) + "\n")
                print(one.source, arm, told["outcome"], *told.get("rules", ()), file=sys.stderr, flush=True)
            wanted.append(told | compared(told, one, d, stored))
    text = table(wanted)
    print(text, end="")
    if options.out:
        options.out.write_text(text)


def references(chosen: Sequence[DataSet], every: Sequence[dict[str, Any]]) -> Iterator[tuple[DataSet, Fitted]]:
    """Yields the references that results want; of counts both families, as a job of the first may advise the second."""
    for one in chosen:
        for family in (one.family, "negative-binomial") if one.family == "poisson" else (one.family,):
            yield one, Fitted(family)
        own = (told for told in every if told["set"] == one.source and "numbers" in told)
        yield from ((one, Fitted.of(told)) for told in own if "random" not in told["job"]["model"])


def tell(
    one: DataSet, arm: str, d: pd.DataFrame, apart: dict[str, Any], done: dict[tuple[str, str], dict[str, Any]]
) -> dict[str, Any]:
    """Runs a data set in an arm; says what came of it, and of what."""
    job = one.job if arm == "one process" else {**one.job, **apart}
    if arm == "signed":
        job["job"] = {**job["job"], "sums": "secure"}
    if arm == "advice" and (one.source, "apart") not in done:
        raise SystemExit("advice is that of arm apart: run it before, or both")
    if arm == "advice":
        first = done[one.source, "apart"]
        if first["outcome"] in ("refused", "not converged", "approximate"):
            job = advised(job, first["text"], one, d)
        told = dict(first) if job == first["job"] else tried(job, d, signs=job["job"].get("sums") == "secure")
    else:
        told = tried(job, d, signs=arm == "signed")
    least = int(d.groupby("client").size().min())
    return told | {"set": one.source, "arm": arm, "family": one.family, "natural": one.natural, "rows": len(d), "least": least}


def table(all_told: Sequence[dict[str, Any]]) -> str:
    """Returns the figures of each arm, and a line of each data set."""
    arms = {arm: {told["set"]: told for told in all_told if told["arm"] == arm} for arm in ARMS}
    arms = {arm: own for arm, own in arms.items() if own}
    lines = [f"fedkern {fedkern.__version__}, {platform.machine()} with {_core.isa()}, Python {platform.python_version()}"]
    for arm, own in arms.items():
        lines += ["", f"{arm}: {len(own)} data sets", *figures(list(own.values()))]
    lines += ["", f"{'data set':<31} {'family':<17} rows least sites  {'  '.join(f'{arm:<30}' for arm in arms)}"]
    for name, one in next(iter(arms.values())).items():
        words = "  ".join(f"{word(own[name]) if name in own else '':<30}" for own in arms.values())
        family, sites = one["family"], "own" if one["natural"] else "lot"
        lines.append(f"{name:<31} {family:<17} {one['rows']:4d} {one['least']:5d} {sites}    {words}".rstrip())
    return "\n".join(lines) + "\n"


def word(told: dict[str, Any]) -> str:
    """Returns what came of a job in a few words: by how much a mean, in sds, and an sd, as a part, are off at most."""
    if told["outcome"] == "refused":
        return ", ".join(told["rules"])
    numbers = f" {told['furthest'][0]:.2f} {told['furthest'][1]:.2f}" if "furthest" in told else ""
    return f"{told['outcome']}{numbers}{' OFF' if told.get('off') else ''}"


def figures(own: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yields the lines of an arm."""
    said = [told for told in own if told["outcome"] in ("answered", "approximate")]
    ended = [told for told in own if "notes" in told]

    def share(name: str, of: Sequence[dict[str, Any]], outcome: str = "answered") -> str:
        count = sum(told["outcome"] == outcome for told in of)
        return f"{count:4d} of {len(of):3d} ({count / max(len(of), 1):4.0%})  {name}"

    yield share("answered", own)
    yield share("answered, sites of their own", [told for told in own if told["natural"]])
    yield share("answered, the smallest client has 100 rows or more", [told for told in own if told["least"] >= 100])
    for outcome in ("approximate", "not converged", "refused", "fault"):
        yield share(outcome, own, outcome)
    rules = Counter(rule for told in own for rule in told.get("rules", ()))
    yield from (f"{count:4d}                {rule}" for rule, count in rules.most_common())
    for outcome in ("answered", "approximate"):
        of = [told for told in said if told["outcome"] == outcome and "off" in told]
        names = [f"{told['set']} {told['off']}" for told in of if told["off"]]
        yield f"{len(names):4d} of {len(of):3d}         said {outcome}, and off: {'; '.join(names)}".rstrip(": ")
    names = [told["set"] for told in said if "off" not in told]
    yield f"{len(names):4d}                without a reference: {', '.join(names)}".rstrip(": ")
    lacking = [told["set"] for told in said if told.get("lacking")]
    yield f"{len(lacking):4d}                without a number that R's table has: {', '.join(lacking)}".rstrip(": ")
    for name, values in {
        "notes of a result": [len(told["notes"]) for told in ended],
        "characters of print(result) beside the table": [told["beside"] for told in ended],
        "characters of check": [told["check"] for told in ended],
    }.items():
        if values:
            yield f"{np.mean(values):7.1f} {max(values):7d}  {name}: mean, most"


if __name__ == "__main__":
    main()
