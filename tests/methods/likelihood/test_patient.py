"""Curves are of one patient, who is named: what is foreseen of that patient is the curve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.cli.__main__ import main
from fedkern.errors import JobError
from fedkern.methods.likelihood import show
from support.refusal import refusal


def study(seed: int = 2) -> dict[str, pd.DataFrame]:
    """Age matters in men alone: the patient of average columns of a formula with an interaction is nobody."""
    rng, frames = np.random.default_rng(seed), {}
    for name, n in (("ada", 150), ("bo", 130), ("cy", 140)):
        age, sex = rng.normal(60, 10, n).round(3), rng.choice(["F", "M"], n)
        rate = 0.05 * np.exp((sex == "M") * (0.5 + 0.05 * (age - 60)))
        time, end = (rng.exponential(1, n) / rate) ** (1 / 1.3), rng.uniform(5, 30, n)
        months = np.maximum(np.minimum(time, end).round(3), 0.001)
        frames[name] = pd.DataFrame({"months": months, "died": (time <= end).astype(int), "age": age, "sex": sex})
    return frames


def job(family: str, formula: str = "", **data: Any) -> dict[str, Any]:
    said = {"formula": f"Surv(months, died) ~ {formula}"} if formula else {}
    data = data if formula else {"time": "months", "event": "died", **data}
    output: dict[str, Any] = {"survival_at": [6, 12], "draws": 4000, "chains": 2}
    output |= {"restricted_mean": 20} if family != "cox" else {}
    return {"job": {"method": "likelihood"}, "data": data, "model": {"family": family, **said}, "output": output}


MEAN = float(pd.concat(study().values()).age.mean())
DECLARED = {"columns": {"age": {"center": 50, "scale": 10}}}
MIDDLE = {"columns": {"age": {"lower": 20, "upper": 90}, "sex": {"reference": "M"}}}
PATIENTS = {
    "plain": (job("weibull"), {"age": MEAN, "sex": "F"}),
    "interaction": (job("weibull", "age * sex"), {"age": MEAN, "sex": "F"}),
    "interaction against men": (job("weibull", "age * C(sex, contr.treatment('M'))"), {"age": MEAN, "sex": "M"}),
    "sum contrasts": (job("exponential", "age + C(sex, contr.sum)"), {"age": MEAN, "sex": "F"}),
    "square": (job("weibull", "age + I(age ** 2) + sex"), {"age": MEAN, "sex": "F"}),
    "spline": (job("weibull", "cs(age, df = 3) + sex"), {"age": MEAN, "sex": "F"}),
    "not standardised": (job("weibull", standardise="none"), {"age": 0.0, "sex": "F"}),
    "not standardised, and declared": (job("weibull", standardise="none", **DECLARED), {"age": 50.0, "sex": "F"}),
    "declared": (job("weibull", **DECLARED), {"age": 50.0, "sex": "F"}),
    "bounds": (job("weibull", **MIDDLE), {"age": 55.0, "sex": "M"}),
    "declared in a formula": (job("weibull", "sex + sex:age", **DECLARED), {"age": 50.0, "sex": "F"}),
    "a formula, not standardised": (job("weibull", "age * sex", standardise="none"), {"age": 0.0, "sex": "F"}),
}


@pytest.mark.filterwarnings("ignore:column .* more than 10 times")
@pytest.mark.parametrize("what", list(PATIENTS))
def test_what_is_foreseen_of_the_named_patient_is_the_curve(what: str) -> None:
    asked, patient = PATIENTS[what]
    result = fedkern.run(asked, data=study())
    named = result.summary["patient"]
    assert named["sex"] == patient["sex"]
    assert named["age"] == pytest.approx(patient["age"], rel=1e-12)
    new = result.predict(pd.DataFrame([named]))
    for row in result.summary["survival"]:
        assert row["mean"] == pytest.approx(float(new[f"survival[{row['time']:g}]"][0]), abs=0.006)
    assert result.summary["restricted_mean"]["mean"] == pytest.approx(float(new["mean"][0]), rel=0.01)
    zero = [note for note in result.summary["notes"] if "curves are of a patient at age 0" in note]
    assert len(zero) == (patient["age"] == 0)
    (said,) = [line for line in show.describe_run(result.summary, "") if line.startswith("curves of a patient with ")]
    assert f"age {patient['age']:.4g}" in said
    assert f"sex {patient['sex']}" in said


COX = {
    "plain": (job("cox"), {"age": MEAN, "sex": "F"}),
    "interaction": (job("cox", "age * sex"), {"age": MEAN, "sex": "F"}),
    "declared": (job("cox", "age * sex", **DECLARED), {"age": 50.0, "sex": "F"}),
    "not standardised": (job("cox", standardise="none", **DECLARED), {"age": 50.0, "sex": "F"}),
}


@pytest.mark.parametrize("what", list(COX))
def test_a_common_curve_of_a_cox_model_is_of_the_named_patient(what: str) -> None:
    """By Breslow's hazards of each hospital's rows, at the posterior's mean."""
    asked, patient = COX[what]
    frames = study()
    result = fedkern.run(asked, data=frames)
    assert result.summary["patient"] == pytest.approx(patient)
    theta = {name: row["mean"] for name, row in result.parameters.items() if "_std" not in name}

    def eta(rows: pd.DataFrame) -> np.ndarray:
        men, age = (rows.sex == "M").to_numpy(), rows.age.to_numpy(float)
        of_men = theta.get("theta[sex[T.M]]", theta.get("theta[sex=M]", 0.0)) - theta.get("theta[sex=F]", 0.0)
        return theta["theta[age]"] * age + men * (of_men + theta.get("theta[age:sex[T.M]]", 0.0) * age)

    own = eta(pd.DataFrame([patient]))[0]
    for row in result.summary["survival"]:
        curves, sizes = [], []
        for frame in frames.values():
            risk, time = np.exp(eta(frame) - own), frame.months.to_numpy()
            died = np.flatnonzero((frame.died == 1) & (time <= row["time"]))
            curves.append(np.exp(-sum(1 / risk[time >= time[i]].sum() for i in died)))
            sizes.append(len(frame))
        assert row["mean"] == pytest.approx(np.average(curves, weights=sizes), abs=0.015)


def test_a_patient_whom_nobody_knows_is_asked_for(tmp_path: Path) -> None:
    """The mean of a column is not exchanged where it stands in products alone: then the job says a value."""
    with pytest.raises(JobError, match=r"no party knows that of 'age': say a value by center and scale"):
        fedkern.run(job("weibull", "sex + sex:age"), data=study())
    with refusal(JobError, "0", "age"):
        fedkern.run(job("weibull", "log(age) + sex", standardise="none"), data=study())


@pytest.mark.usefixtures("undrawn")
def test_the_report_names_the_patient(tmp_path: Path) -> None:
    fedkern.run(job("weibull"), data=study(), out=tmp_path / "out")
    assert main(["report", str(tmp_path / "out")]) == 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert f"of a patient with age {MEAN:.4g}, sex F" in page
