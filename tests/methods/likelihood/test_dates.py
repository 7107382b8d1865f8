"""Dates as times: from one to another in days, between two of a Cox model, and never by themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.cli.__main__ import main
from fedkern.errors import JobError
from support.refusal import refusal

# R 4.2.2, survival 3.5-3, x and its standard error, of both clients' rows:
SINCE = (0.61032524, 0.09552778)  # coxph(Surv(as.numeric(end - start), died) ~ x + strata(client))
CALENDAR = (0.59359497, 0.09487440)  # coxph(Surv(as.numeric(start), as.numeric(end), died) ~ x + strata(client))


def frame(k: int) -> pd.DataFrame:
    """Patients of before and after 1970."""
    i = np.arange(150)
    x = np.round(np.cos(i + k), 4)
    days = 1 + np.floor(900 * -np.log((i * 0.618 + 0.1 * k) % 1 * 0.98 + 0.01) * np.exp(-0.6 * x))
    start = pd.Timestamp("1960-02-03") + pd.to_timedelta((i * 37 + 11 * k) % 5000, "D")
    died = (days < 1500).astype(int)
    days = np.minimum(days, 1500)
    return pd.DataFrame({"x": x, "start": start, "end": start + pd.to_timedelta(days, "D"), "days": days, "died": died})


def fit(left: str, data: Any, family: str = "cox") -> Any:
    model = {"family": family, "formula": f"{left} x" if "~" in left else f"{left} ~ x", "prior_sd": 30.0}
    return fedkern.run({"job": {"method": "likelihood", "seed": 3}, "model": model}, data=data)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Any]:
    for name, k in (("p", 0), ("q", 7)):
        frame(k).to_csv(tmp_path / f"{name}.csv", index=False)
    return {"clients": [str(tmp_path / "*.csv")]}


def test_from_one_date_to_another_is_a_time_in_days(files: dict[str, Any], tmp_path: Path) -> None:
    frames = {"p": frame(0), "q": frame(7)}
    found = fit("Surv(end - start, died)", frames)
    mean, sd = SINCE
    assert found.parameters["theta[x]"]["mean"] == pytest.approx(mean, abs=0.15 * sd)
    assert found.parameters["theta[x]"]["sd"] == pytest.approx(sd, rel=0.12)
    assert fit("Surv(days, died)", frames).parameters == found.parameters
    assert fit("Surv(end - start, died)", files).parameters == found.parameters  # of texts
    lived = fit("Surv(end - start, died)", files, "weibull")
    assert lived.parameters == fit("Surv(days, died)", frames, "weibull").parameters
    frames = {name: one.assign(start=100.0, end=100.0 + one["days"]) for name, one in frames.items()}
    assert fit("Surv(end - start, died)", frames).parameters == found.parameters  # of numbers
    (tmp_path / "job.toml").write_text(
        '[job]\nmethod = "likelihood"\n[data]\nclients = ["*.csv"]\ntime = "end - start"\nevent = "died"\n'
        'ignore = ["days"]\n[model]\nfamily = "cox"\n'
    )
    assert [*fedkern.run(tmp_path / "job.toml").parameters] == ["theta[x]", "theta_std[x]"]
    assert main(["check", str(tmp_path / "job.toml"), "--local", str(tmp_path / "p.csv")]) == 0


def test_dates_that_are_written_otherwise_are_said_to_the_holder() -> None:
    frames = {name: frame(k) for name, k in (("p", 0), ("q", 7))}
    for one in frames.values():
        for name in ("start", "end"):
            one[name] = one[name].dt.strftime("%d.%m.%Y")
    with pytest.raises(JobError, match=r"'end - start': '\d\d\.\d\d\.\d{4} - 03\.02\.1960' is not a number; .*as 2024-03-01"):
        fit("Surv(end - start, died)", frames)


def test_between_two_dates_a_cox_model_is_on_the_calendar(files: dict[str, Any]) -> None:
    found = fit("Surv(start, end, died)", {"p": frame(0), "q": frame(7)})
    mean, sd = CALENDAR
    assert found.parameters["theta[x]"]["mean"] == pytest.approx(mean, abs=0.15 * sd)
    assert found.parameters["theta[x]"]["sd"] == pytest.approx(sd, rel=0.12)
    assert fit("Surv(start, end, died)", files).parameters == found.parameters


@pytest.mark.parametrize("family", ["cox", "weibull"])
def test_a_date_by_itself_is_no_time(family: str, files: dict[str, Any]) -> None:
    lefts = ["Surv(end, died)", "Surv(start, end, died)"]
    for left in lefts[: 1 + (family == "weibull")]:
        for data in ({"p": frame(0), "q": frame(7)}, files):
            with refusal(JobError, "end", "Surv"):
                fit(left, data, family)


def test_where_a_time_begins_is_a_covariate_under_another_name() -> None:
    frames = {"p": frame(0), "q": frame(7)}
    with refusal(JobError, "start", "data.time"):
        fit("Surv(end - start, died) ~ start +", frames)
    copied = {name: one.assign(begin=one["start"]) for name, one in frames.items()}
    of_dates, of_days = (fit(f"Surv({left}, died) ~ begin +", copied) for left in ("end - start", "days"))
    assert of_dates.parameters == of_days.parameters


def test_a_covariate_of_dates_is_days_in_every_reader(tmp_path: Path) -> None:
    frames = {"p": frame(0), "q": frame(7)}
    texts = {name: one.assign(start=one["start"].dt.strftime("%Y-%m-%d")) for name, one in frames.items()}
    for name, one in texts.items():
        one.to_csv(tmp_path / f"{name}.csv", index=False)
    job: dict[str, Any] = {"job": {"method": "likelihood", "seed": 3}, "model": {"family": "gaussian", "formula": "x ~ start"}}
    of_type, of_text = (fedkern.run(job, data=data) for data in (frames, texts))
    of_file = fedkern.run({**job, "data": {"clients": [str(tmp_path / "*.csv")]}})
    assert "theta[start]" in of_type.parameters
    assert of_type.digest == of_text.digest == of_file.digest
    assert (of_text.predict(texts["p"][:3]) == of_type.predict(frames["p"][:3])).all(axis=None)
    declared = {**job, "data": {"columns": {"start": {"kind": "categorical"}}}}
    short = {name: one.assign(start=one["start"].str[:7] + "-01") for name, one in texts.items()}
    few = {name: one[one["start"].isin(["1960-02-01", "1961-02-01"])] for name, one in short.items()}
    assert "theta[start[T.1961-02-01]]" in fedkern.run(declared, data=few).parameters
