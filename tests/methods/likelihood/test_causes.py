"""Jobs of events of several causes: a Cox model of each in one posterior, with incidences at home and at named times."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.errors import FedkernError, JobError
from fedkern.kernels import rng
from fedkern.methods.likelihood import show
from fedkern.models import survival
from fedkern.models.mixed import Layout
from support.found import said
from support.refusal import refusal

CAUSES, CENSORED, TIMES = ("relapse", "death"), "alive", (6.0, 24.0)
JOB: dict[str, Any] = {
    "job": {"method": "likelihood", "seed": 4},
    "data": {"time": "months", "event": "status", "events": [*CAUSES], "censored": CENSORED},
    "model": {"family": "cox"},
    "algorithm": {"points": 1024, "effective": 300},
    "output": {"draws": 100, "chains": 2},
}
NAMES = [f"theta[{cause}:{column}]" for cause in CAUSES for column in ("age", "dose")]


def federation(rows: int = 300, seed: int = 1) -> dict[str, pd.DataFrame]:
    """Patients of three hospitals, whose hazard of relapse is the hospital's; months are rounded up, so that times are tied."""
    generator, found = np.random.default_rng(seed), {}
    for name, rate in {"ada": 0.02, "bo": 0.04, "cy": 0.03}.items():
        x = generator.standard_normal((rows, 2))
        relapse = generator.exponential(size=rows) / (rate * np.exp(x @ [0.6, -0.5]))
        death = generator.exponential(size=rows) / (0.02 * np.exp(x @ [-0.3, 0.4]))
        seen = generator.exponential(60, rows)
        months = np.minimum(np.minimum(relapse, death), seen)
        status = np.where(months == seen, CENSORED, np.where(months == relapse, *CAUSES))
        frame = {"age": 60 + 10 * x[:, 0], "dose": x[:, 1], "months": np.ceil(months * 2) / 2, "status": status}
        found[name] = pd.DataFrame(frame)
    return found


def job(**keys: dict[str, Any]) -> dict[str, Any]:
    """The job with other keys in its sections; None removes one."""
    made = copy.deepcopy(JOB)
    for section, content in keys.items():
        made[section] = {key: value for key, value in {**made.get(section, {}), **content}.items() if value is not None}
    return made


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("causes") / "out"


@pytest.fixture(scope="module")
def whole(out: Path) -> fedkern.Result:
    return fedkern.run(job(output={"survival_at": [*TIMES], "sites": True, "without": True}), data=federation(), out=out)


def of_client(frame: pd.DataFrame, n: int = 0) -> survival.Causes:
    """A client's likelihood, of columns less their means."""
    X, times, status = frame[["age", "dose"]].to_numpy(), frame.months.to_numpy(), frame.status.to_numpy()
    single = Layout(("age", "dose"), "cox")
    parts = tuple(survival.Rows.of(single, X - X.mean(axis=0), times, status == cause) for cause in CAUSES)
    return survival.Causes(Layout(tuple(NAMES), "cox"), parts)


def test_coefficients_and_events_are_those_of_r(whole: fedkern.Result) -> None:
    """survival 3.5.3: coxph(Surv(months, status) ~ age + dose + strata(site), id = id), "alive" the first level of status."""
    coefficients = [0.05680422, -0.52547640, -0.03499800, 0.45230868]
    found = [whole.parameters[name] for name in NAMES]
    for own, coefficient in zip(found, coefficients):
        assert abs(own["mean"] - coefficient) < 0.15 * own["sd"]  # priors and Monte-Carlo errors
    assert whole.converged
    assert {cause: of["events"] for cause, of in whole.summary["of_causes"].items()} == {"relapse": 412, "death": 285}
    assert whole.summary["proportional_hazards"].keys() == {f"{cause}:{column}" for cause in CAUSES for column in ("age", "dose")}
    lines = "\n".join(show.describe_run({**whole.summary}, "ended"))
    assert "697 events (relapse: 412, death: 285)" in lines
    assert lines.count("death by ") == len(TIMES)


@pytest.mark.digits
def test_the_posterior_is_that_of_each_cause_alone_where_the_other_is_censored(tmp_path: Path) -> None:
    frames = federation()
    usual: dict[str, Any] = {"algorithm": {"points": None, "effective": 8000.0}}
    together = fedkern.run(job(**usual), data=frames)
    for cause in CAUSES:
        alone = {name: frame.assign(status=np.where(frame.status == cause, 1, 0)) for name, frame in frames.items()}
        found = fedkern.run(job(**usual, data={"events": None, "censored": None}), data=alone)
        for column in ("age", "dose"):
            one, other = together.parameters[f"theta[{cause}:{column}]"], found.parameters[f"theta[{column}]"]
            assert abs(one["mean"] - other["mean"]) < 0.05 * other["sd"]
            assert abs(one["sd"] / other["sd"] - 1) < 0.05


def test_values_and_curvatures_add_up_over_causes() -> None:
    rows, points = of_client(federation()["bo"]), 0.3 * np.random.default_rng(0).standard_normal((3, 4))
    np.testing.assert_allclose(
        rows.values(points, 1), sum(part.values(own, 1) for part, own in zip(rows.parts, np.split(points, 2, axis=1)))
    )
    _, gradient, hessian = rows.curvature(points, 1)
    for j in range(4):
        step = 1e-5 * np.eye(4)[j]
        both = [rows.curvature(points + sign * step, 1) for sign in (1, -1)]
        np.testing.assert_allclose((both[0][0] - both[1][0]) / 2e-5, gradient[:, j], rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose((both[1][1] - both[0][1]) / 2e-5, hessian[:, j], rtol=1e-5, atol=1e-4)
    expected = rows.weighed(points[0])
    np.testing.assert_allclose(expected.sum(axis=1), [part.events for part in rows.parts])  # of the hazards' own rows
    np.testing.assert_allclose(expected[1], rows.parts[1].weighed(points[0, 2:])[0][_places(rows)])


def _places(rows: survival.Causes) -> np.ndarray:
    """Where each row of `X` is in the order of the second cause."""
    return np.argsort(rows.parts[1].sets.order)[rows.parts[0].sets.order]


def test_without_slopes_incidences_are_those_of_aalen_and_johansen() -> None:
    """cmprsk 2.2.11: timepoints(cuminc(months, status), c(6, 24)); survival 3.5.3: survfit(Surv(months, status) ~ 1)."""
    rows, n = of_client(federation()["ada"]), 4000
    uniforms = rows.uniforms(lambda m: rng.uniform(m, key=rng.key(1)), n)
    found = survival.incidences(rows, np.zeros((n, 4)), uniforms)[0]
    chances = found.chances_by(np.array([0.0, *TIMES])).mean(axis=1)
    np.testing.assert_allclose(chances, [[0, 0.1447085, 0.3398657], [0, 0.1193148, 0.2904228]], atol=0.003)
    parts = zip(rows.parts, uniforms)
    total = sum(survival.cumulative(part, np.zeros((n, 2)), uniform, found.times) for part, uniform in parts)
    np.testing.assert_allclose(found.chances.sum(axis=0), 1 - np.exp(-total))


def test_each_client_keeps_the_incidences_at_all_times_of_events_and_tells_those_at_named_ones(
    whole: fedkern.Result, out: Path
) -> None:
    """R: the hazards of two coxph at the means of the client's columns, with the coefficients above, put together."""
    expected = {"relapse": (0.1145559, 0.3045088), "death": (0.1031439, 0.2571958)}
    kept, frame = pd.read_csv(out / "client-ada" / "incidence.csv"), federation()["ada"]
    for cause, numbers in expected.items():
        own = kept[kept.cause == cause]
        assert own.time.tolist() == sorted({*frame.months[frame.status != CENSORED]})
        np.testing.assert_allclose([own[own.time <= t].incidence.iloc[-1] for t in TIMES], numbers, atol=0.01)
    baseline = pd.read_csv(out / "client-ada" / "baseline.csv")
    assert baseline.groupby("cause").events.sum().to_dict() == frame.status.value_counts().drop(CENSORED).to_dict()
    assert "survival" not in baseline
    told = whole.summary["incidence"]
    assert {cause: [row["time"] for row in rows] for cause, rows in told.items()} == {key: [*TIMES] for key in CAUSES}
    for k, row in enumerate(whole.summary["survival"]):
        assert abs(row["mean"] + sum(rows[k]["mean"] for rows in told.values()) - 1) < 0.005  # told to three digits
    assert whole.summary["sites"].keys() == whole.summary["without"].keys() == {"ada", "bo", "cy"}


def test_strata_entries_and_weights_are_those_of_every_cause(tmp_path: Path) -> None:
    """survival 3.5.3: coxph(Surv(since, months, status) ~ age + dose + strata(site, ward), id = id, weights = w)."""
    generator, data = np.random.default_rng(0), {}
    for name, frame in federation().items():
        labels, n = generator.choice(["n", "s"], len(frame)), generator.integers(1, 4, len(frame))
        data[name] = frame.assign(ward=labels, w=n, since=(frame.months * 0.3 - 0.2).clip(0))
    keys = {"strata": "ward", "weight": "w", "weight_kind": "frequency", "entry": "since"}
    result = fedkern.run(job(data=keys), data=data, out=tmp_path / "out")
    for name, coefficient in zip(NAMES, [0.04217995, -0.40220888, -0.03909554, 0.45135738]):
        assert abs(result.parameters[name]["mean"] - coefficient) < 0.15 * result.parameters[name]["sd"], name
    kept = pd.read_csv(tmp_path / "out" / "client-ada" / "incidence.csv")
    assert {*zip(kept.cause, kept.stratum)} == {(cause, ward) for cause in CAUSES for ward in "ns"}
    last = kept.groupby(["stratum", "cause"]).incidence.last().unstack()
    assert (last.sum(axis=1) < 1).all()


def test_labels_may_be_numbers_and_fit_names_them_as_data_has_them() -> None:
    codes = {CENSORED: 0.0, "relapse": 1.0, "death": 2.0}
    frames = {name: frame.assign(status=frame.status.map(codes)) for name, frame in federation().items()}
    small = {"algorithm": JOB["algorithm"], "output": JOB["output"]}
    found = fedkern.fit("Surv(months, status) ~ age", frames, events=[1, 2], **small)
    assert [name for name in found.parameters if "_std" not in name] == ["theta[1:age]", "theta[2:age]"]
    assert found.parameters["theta[2:age]"]["mean"] < 0 < found.parameters["theta[1:age]"]["mean"]


def test_secure_sums_are_those_of_all_clients_and_causes(whole: fedkern.Result) -> None:
    hidden = fedkern.run(job(job={"sums": "secure"}), data=federation())
    for name in NAMES:
        one, other = hidden.parameters[name], whole.parameters[name]
        assert abs(one["mean"] - other["mean"]) < 0.3 * other["sd"]
    assert {cause: of["events"] for cause, of in hidden.summary["of_causes"].items()} == {"relapse": 412, "death": 285}


def test_a_client_without_one_cause_takes_part_and_a_cause_of_nobody_is_not_estimated(tmp_path: Path) -> None:
    frames = federation()
    frames["bo"] = frames["bo"].assign(status=frames["bo"].status.replace("death", CENSORED))
    frames["di"] = federation(seed=2)["cy"].assign(status=CENSORED)
    result = fedkern.run(job(output={"survival_at": [*TIMES]}), data=frames, out=tmp_path / "out")
    assert not len(pd.read_csv(tmp_path / "out" / "client-di" / "incidence.csv"))
    assert result.converged
    none = [(found["clients"], found["of"]) for found in said(result, "next-to-no-events")]
    assert none == [(["di"], " of cause 'relapse'"), (["bo", "di"], " of cause 'death'")]
    assert "di" in str(said(result, "not-in-curve")[0]["clients"])
    assert "bo" not in str(said(result, "not-in-curve")[0]["clients"])
    nobody = {name: frame.assign(status=frame.status.replace("death", CENSORED)) for name, frame in frames.items()}
    result = fedkern.run(job(), data=nobody)
    assert said(result, "not-estimated")[0]["names"] == NAMES[2:]


BAD: dict[str, tuple[dict[str, dict[str, Any]], str]] = {
    "one cause": ({"data": {"events": ["relapse"]}}, "wanted the labels of all causes"),
    "twice": ({"data": {"events": ["relapse", "death", "relapse"]}}, "'relapse' is there twice"),
    "the label of rows without event": ({"data": {"events": ["relapse", CENSORED]}}, f"'{CENSORED}' is there twice"),
    "positive": ({"data": {"positive": "death"}}, "the labels of events are data.events"),
    "censored alone": ({"data": {"events": None}}, "beside data.events"),
    "a hazard that all share": ({"model": {"family": "weibull"}}, 'set model.family = "cox"'),
    "no times": ({"model": {"family": "bernoulli"}, "data": {"response": "status"}}, "for survival times"),
    "restricted mean": ({"output": {"restricted_mean": 12.0}}, "take output.survival_at"),
}


@pytest.mark.parametrize("which", BAD)
def test_keys_that_contradict_causes_are_refused(which: str) -> None:
    keys, words = BAD[which]
    with pytest.raises(JobError, match=words):
        fedkern.run(job(**keys), data=federation(40))


def test_a_label_that_is_no_cause_is_refused_and_so_are_three_labels_without_causes() -> None:
    frames = federation()
    with refusal(FedkernError, "alive"):
        fedkern.run(job(data={"censored": None}), data=frames)  # the label of rows without event is then "0"
    frames["cy"].loc[3, "status"] = "transplant"
    with refusal(FedkernError, "transplant"):
        fedkern.run(job(), data=frames)
    with pytest.raises(FedkernError, match=r"\[data\] events"):
        fedkern.run(job(data={"events": None, "censored": None}), data=federation())


def test_few_events_of_one_cause_are_refused_by_its_label() -> None:
    frames = federation()
    dying = frames["bo"].status == "death"
    frames["bo"] = frames["bo"].assign(status=frames["bo"].status.mask(dying & (dying.cumsum() > 8), CENSORED))
    with refusal(FedkernError, "8", "death"):
        fedkern.run(job(disclosure={"level": "standard"}), data=frames)
