"""Jobs of families that no closed form has: against posteriors of pooled rows, from the job to the report."""

from __future__ import annotations

import json
import runpy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.cli.__main__ import main
from fedkern.errors import JobError
from fedkern.kernels.families import FAMILIES as RECORDS
from fedkern.methods.likelihood import excess
from fedkern.models import glm
from fedkern.models.mixed import Layout, Prior, Rows
from fedkern.results.table import ratio_of
from support.found import ids
from support.mixed_rows import point, rows

SCRIPT = runpy.run_path(str(Path(__file__).parents[3] / "benchmarks" / "responses_reference.py"))
FAMILIES = SCRIPT["FAMILIES"]
STORED = json.loads(SCRIPT["OUT"].read_text())
FAST = {"points": 1024, "effective": 400.0}
EVERY = {"loo": True, "marginal": True, "sites": True, "without": True}


def frames(family: str, number: int) -> dict[str, pd.DataFrame]:
    return {name: pd.DataFrame(one) for name, one in SCRIPT["federation"](family, number).items()}


def job(family: str, number: int, **more: dict[str, Any]) -> dict[str, Any]:
    tables: dict[str, Any] = SCRIPT["job"](family, number)
    for section, keys in more.items():
        tables[section] = {**tables.get(section, {}), **keys}
    return tables


def of(name: str) -> tuple[str, int]:
    family, number = name.split()
    return family, int(number)


# A federation of each family at each push, one with effects of groups
PUSHED = [*(f"{family} 0" for family in FAMILIES[:4]), f"{FAMILIES[4]} 4", "bernoulli-probit 1", "bernoulli-cloglog 3"]
PUSHED += [f"{family} 0" for family in SCRIPT["LATER"]]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in PUSHED else [pytest.mark.nightly]) for name in sorted(STORED)]
)
def test_the_posterior_is_that_of_nuts_on_pooled_rows(name: str) -> None:
    result = fedkern.run(job(*of(name)), data=frames(*of(name)))
    assert result.converged, result.summary["verdict"]
    for label, wanted in STORED[name].items():
        found, errors = result.parameters[label], result.summary["monte_carlo_error"]
        chance = 4 * wanted["ess"] ** -0.5
        assert abs(found["mean"] - wanted["mean"]) < (0.03 + chance + errors["mean"]) * wanted["sd"], label
        assert abs(found["sd"] / wanted["sd"] - 1) < 0.03 + chance + errors["sd"], label  # of long tails sds are known less well


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("level", ["", "group", "client"])
def test_clients_add_up_to_pooled_rows(family: str, level: str) -> None:
    """An effect of a client is one of a group in pooled rows."""
    group, client = (("intercept",) if level == one else () for one in ("group", "client"))
    whole = rows(family, ("intercept",) if level else (), sizes=(4, 1, 3, 5))
    points = np.stack([point(whole.layout, seed) for seed in (1, 2, 3)])
    layout = Layout(whole.layout.coefficients, family, group, client)
    value, gradient, curved = whole.curvature(points, 15)
    ends = whole.starts.tolist() if level == "client" else [0, 5, 13]
    told = []
    for low, high in pairwise(ends):
        starts = (
            np.array([0, high - low]) if level != "group" else whole.starts[(whole.starts >= low) & (whole.starts <= high)] - low
        )
        part = whole.take(np.arange(low, high), starts)
        told.append(Rows(layout, part.X, part.y, part.starts, None, part.offset).curvature(points, 15))
        np.testing.assert_allclose(
            Rows(layout, part.X, part.y, starts, None, part.offset).values(points, 15), told[-1][0], rtol=1e-11
        )
    near = 1e-10 if not (client and layout.concave) else 3e-5  # of a rule around the client's own mode
    for mine, all_rows in zip(zip(*told), (value, gradient, curved)):
        np.testing.assert_allclose(sum(mine), all_rows, rtol=near, atol=near)


def test_rows_of_which_nu_is_given_are_those_with_that_nu() -> None:
    learnt = rows("student", ("intercept",))
    layout = Layout(learnt.layout.coefficients, "student", ("intercept",), given=(np.log(4.0),))
    given = Rows(layout, learnt.X, learnt.y, learnt.starts, None, learnt.offset)
    xi = np.append(point(layout), np.log(4.0))[np.newaxis]
    wanted = learnt.curvature(xi, 15)
    found = given.curvature(xi[:, :-1], 15)
    assert layout.size == learnt.layout.size - 1
    assert layout.scale(xi[:, :-1]) == pytest.approx(learnt.layout.scale(xi))
    assert given.values(xi[:, :-1], 15) == pytest.approx(learnt.values(xi, 15))
    for one, other in zip(found, (wanted[0], wanted[1][:, :-1], wanted[2][:, :-1, :-1])):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    assert Prior.usual(layout).size == layout.size


# From the job file to the report --------------------


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("family", "number"),
    [
        ("student", 1),
        ("gamma", 1),
        ("zero-inflated-poisson", 1),
        *((family, 1) for family in ("lognormal", "hurdle-poisson")),
        *(pytest.param(family, 3, marks=pytest.mark.nightly) for family in (*FAMILIES, *SCRIPT["LATER"])),
    ],
)
def test_every_output_of_a_job(family: str, number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    held = frames(family, number)
    level = "group" if number == 1 else "client"
    result = fedkern.run(job(family, number, algorithm=FAST, output=EVERY), data=held, out=tmp_path / "run")
    assert result.converged, result.summary["verdict"]
    content, y = result.summary, np.concatenate([one.y for one in held.values()])
    assert {f"{level}_sd[intercept]", *_own(family)} <= set(content["parameters"])
    assert all(np.isfinite(value) for row in content["parameters"].values() for value in row.values())
    assert content["loo"]["rows"] == len(y)
    assert set(content["marginal"]["effects"]) == {"a", "b"}
    assert content["sites"]
    assert list(content["without"]) == list(held)
    told = content["predictive"]
    assert set(told["p"]) == {"mean", "variance", *(["zeros"] if RECORDS[family].counted else [])}
    assert all(0.01 < p < 0.99 for p in told["p"].values())
    assert sum(one["share"] for one in told["tenths"]) == pytest.approx(1)
    assert max(one["share"] for one in told["tenths"]) < 0.2
    assert told["response"]["mean"] == pytest.approx(y.mean(), rel=1e-6)
    effect = content["marginal"]["effects"]["b"]
    assert effect["mean"] < 0 < effect["sd"]
    assert main(["report", str(tmp_path / "run")]) == 0
    page = (tmp_path / "run" / "report.html").read_text()
    assert all(name in page for name in _own(family))
    capsys.readouterr()
    ratio = ratio_of(family)
    assert main(["report", str(tmp_path / "run"), "--table", "csv", "--exp"]) == (0 if ratio else 2)
    said = capsys.readouterr()
    assert (f"theta[a],,{1:.0f}" in said.out and ratio in said.out) if ratio else "are differences" in said.err
    first = next(iter(held))
    new = held[first].drop(columns="y").head(8)
    new.to_csv(tmp_path / "new.csv", index=False)
    for folder in (tmp_path / "run", tmp_path / "run" / f"client-{first}"):
        capsys.readouterr()
        assert main(["predict", str(folder), str(tmp_path / "new.csv"), "--out", str(tmp_path / "seen.csv")]) == 0
        seen = pd.read_csv(tmp_path / "seen.csv")
        assert RECORDS[family].domain.has(np.round(seen["mean"]) if RECORDS[family].counted else seen["mean"]).all()
        assert (seen.q025 < seen["mean"]).all()
        assert (seen["mean"] < seen.q975).all()


def _own(family: str) -> list[str]:
    layout = Layout(("intercept",), family)
    return list(layout.published(layout.start[np.newaxis]))


def test_predicted_means_are_averages_of_what_is_drawn() -> None:
    """Of zero-inflated counts with the share that is none of these zeros."""
    family = "zero-inflated-poisson"
    held = frames(family, 0)
    result = fedkern.run(job(family, 0, algorithm=FAST), data=held)
    y = np.concatenate([one.y for one in held.values()])
    found = result.predict(pd.concat(held.values()).drop(columns=["y", "ward"]))
    assert found["mean"].mean() == pytest.approx(y.mean(), rel=0.05)
    assert (1 - result.parameters["structural_zeros"]["mean"]) * y[y > 0].mean() > 1.02 * y.mean()  # some zeros are of the counts


def test_densities_of_rows_and_evidence_are_in_the_response_s_own_unit() -> None:
    """A student response in grams, and in kilograms."""
    held = frames("student", 0)
    tables = job("student", 0, algorithm=FAST, output={"loo": True})
    one = fedkern.run(tables, data=held)
    other = fedkern.run(tables, data={name: frame.assign(y=1000 * frame.y) for name, frame in held.items()})
    shift = sum(len(frame) for frame in held.values()) * np.log(1000)
    for name in ("loo", "log_evidence"):
        key = "elpd" if name == "loo" else "value"
        assert one.summary[name][key] - other.summary[name][key] == pytest.approx(shift, abs=0.1)
    assert other.parameters["sigma"]["mean"] == pytest.approx(1000 * one.parameters["sigma"]["mean"], rel=1e-3)
    assert other.parameters["nu"]["mean"] == pytest.approx(one.parameters["nu"]["mean"], rel=1e-3)


# Heavy tails --------------------


def wrong(share: float = 0.0, cell: float | None = None) -> dict[str, pd.DataFrame]:
    """Measurements of which some that go with a high x are far too high."""
    random, found = np.random.default_rng(0), {}
    for name in ("ada", "bo", "cy"):
        x = random.normal(50, 10, 120).round(2)
        y = 100 + 1.5 * x + 10 * random.normal(size=120)
        y = np.where((random.random(120) < share) & (x > 50), y + random.exponential(300, 120), y)
        found[name] = pd.DataFrame({"x": x, "y": y.round(2)})
    if cell is not None:
        found["bo"].loc[3, "y"] = cell
    return found


def measured(family: str, held: dict[str, pd.DataFrame], **tables: Any) -> fedkern.Result:
    job = {"job": {"method": "likelihood"}, "data": {"response": "y"}, "model": {"family": family}, "algorithm": FAST}
    return fedkern.run({**job, **tables}, data=held)


def test_a_twentieth_of_wrong_cells_moves_a_gaussian_slope_and_no_student_one() -> None:
    clean, spoilt = wrong(), wrong(0.1)
    true = measured("gaussian", clean).parameters["theta[x]"]
    moved, robust = (measured(family, spoilt) for family in ("gaussian", "student"))
    assert moved.parameters["theta[x]"]["mean"] > true["mean"] + 10 * true["sd"]
    assert abs(robust.parameters["theta[x]"]["mean"] - true["mean"]) < 2 * true["sd"]
    assert robust.converged


def test_one_cell_of_a_million_is_refused_and_moves_nothing_where_it_may_be_told() -> None:
    """Its square is told with the response's spread. The priors, in units of that spread, are then next to none."""
    with pytest.raises(JobError, match="so far from all others that what is sent tells their row"):
        measured("student", wrong(cell=1e6), disclosure={"level": "strict"})
    result = measured("student", wrong(cell=1e6))
    clean = measured("student", wrong()).parameters
    assert result.converged, result.summary["verdict"]
    assert 'model.family = "student"' in str(measured("gaussian", wrong(cell=1e6)).summary["verdict"])
    for name in ("theta[x]", "intercept"):
        assert abs(result.parameters[name]["mean"] - clean[name]["mean"]) < clean[name]["sd"]


def test_what_does_not_exist_of_heavy_tails_is_said() -> None:
    random, found = np.random.default_rng(2), {}
    for name in ("ada", "bo", "cy"):
        x = random.normal(size=120).round(3)
        found[name] = pd.DataFrame({"x": x, "y": (x + random.standard_t(0.8, 120)).clip(-40, 40).round(3)})
    notes = ids(measured("student", found))
    assert "no-mean-of-errors" in notes
    tables = {"job": {"method": "likelihood"}, "data": {"response": "y"}, "algorithm": FAST}
    given = fedkern.run({**tables, "model": {"family": "student", "nu": 2}}, data=found)
    assert "nu" not in given.parameters
    assert "no-variance-of-errors" in ids(given)
    assert np.isfinite(given.predict(pd.DataFrame({"x": [0.0, 1.0]}))["mean"]).all()


# Zeros --------------------


def counts(kind: str) -> dict[str, pd.DataFrame]:
    random, found = np.random.default_rng(5), {}
    for name in ("ada", "bo", "cy"):
        x = random.normal(size=150).round(3)
        mean = np.exp(1 + 0.4 * x)
        y = random.negative_binomial(2, 2 / (2 + mean)) if "negative-binomial" in kind else random.poisson(mean)
        zero = random.random(150) < (0.3 if kind.startswith("zero-inflated") else 0.0)
        found[name] = pd.DataFrame({"x": x, "y": np.where(zero, 0, y)})
    return found


@pytest.mark.parametrize("kind", ["poisson", "negative-binomial", "zero-inflated-poisson", "zero-inflated-negative-binomial"])
def test_what_is_advised_of_counts_ends_where_they_come_from(kind: str) -> None:
    """From a Poisson job, as often as a family is named; of dispersed counts with structural zeros either may be named first."""
    held, family, seen = counts(kind), "poisson", []
    while family not in seen:
        seen.append(family)
        result = measured(family, held)
        said = " ".join([str(result.summary["verdict"]), *result.summary["notes"]])
        family = next((name for name in RECORDS if f'model.family = "{name}"' in said), family)
    assert result.converged, result.summary["verdict"]
    assert seen[-1] == kind or (kind == "zero-inflated-negative-binomial" and seen[-1] == "negative-binomial")


def test_structural_zeros_are_told_from_a_dispersion_by_their_number() -> None:
    means = np.random.default_rng(1).gamma(3, 1, 4000)
    for a in (0.2, 1.0):
        pi, r = a / (1 + a), 1 / a
        inflated, dispersed = excess.zeros_at(means, a)
        assert inflated == pytest.approx(np.mean(pi + (1 - pi) * np.exp(-means / (1 - pi))))
        assert dispersed == pytest.approx(np.mean((r / (r + means)) ** r))
        assert inflated > dispersed


# Bad input --------------------


@pytest.mark.parametrize(
    ("family", "cell", "said"),
    [
        ("beta", 0.0, "is not a number above 0 and below 1"),
        ("beta", 1.0, "is not a number above 0 and below 1"),
        ("gamma", 0.0, "is not a number above 0"),
        ("gamma", -2.0, "is not a number above 0"),
        ("zero-inflated-poisson", 1.5, "is not a count"),
        ("zero-inflated-negative-binomial", -1.0, "is not a count"),
        ("student", np.inf, "is not a finite number"),
    ],
)
def test_a_cell_that_the_family_has_not_is_named_once(family: str, cell: float, said: str) -> None:
    held = frames(family, 0)
    held["c1"].loc[4, "y"] = cell
    with pytest.raises(JobError) as fault:
        fedkern.run(job(family, 0), data=held)
    assert str(fault.value).count(said) == 1
    assert "row 5" in str(fault.value)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"family": "student", "random": {"group": "ward", "slopes": ["a"]}}, "slopes: .*takes one effect, an intercept"),
        ({"family": "beta", "random": {"client": True, "client_slopes": ["a"]}}, "client_slopes: .*takes one effect"),
        ({"family": "zero-inflated-poisson", "random": {"group": "ward", "client": True}}, "both group and client = true"),
        ({"family": "gamma", "nu": 4}, "model.nu is of model.family"),
        ({"family": "student", "nu": 0}, "model.nu"),
        ({"family": "student", "scale": 1.0}, "learnt"),
    ],
)
def test_what_a_family_does_not_take_is_refused_by_name(model: dict[str, Any], said: str) -> None:
    with pytest.raises(JobError, match=said):
        fedkern.run({"job": {"method": "likelihood"}, "data": {"response": "y"}, "model": model}, data=frames("gamma", 1))


@pytest.mark.nightly
def test_a_gamma_response_has_effects_of_three_terms() -> None:
    held = frames("gamma", 1)
    tables = job("gamma", 1, algorithm=FAST)
    tables["model"]["random"] = {"group": "ward", "slopes": ["a", "b"]}
    found = fedkern.run(tables, data=held).parameters
    assert {"group_sd[a]", "group_sd[b]", "group_correlation[a,b]", "shape"} <= set(found)


@pytest.mark.parametrize(("family", "cell"), [("gamma", 1e-300), ("beta", 1e-12)])
def test_cells_are_far_on_the_scale_of_the_link(family: str, cell: float, tmp_path: Path) -> None:
    """A cell near 0 decides a positive response's shape; large ones of a skewed response are right."""
    held = frames(family, 0)
    tables = job(family, 0, algorithm=FAST)
    response, first = tables["data"]["response"], next(iter(held))
    held[first].loc[5, response] = cell
    fedkern.run(tables, data=held, out=tmp_path / "out")
    notes = "\n".join(json.loads((tmp_path / "out" / f"client-{first}" / "rows.json").read_text())["notes"])
    assert f"column {response!r}: {cell:g} is" in notes
    assert notes.count("robust standard deviations") == 1


@pytest.mark.parametrize("family", FAMILIES)
def test_a_response_that_one_row_lacks_is_dropped_with_it(family: str, tmp_path: Path) -> None:
    """Beside a column of text: the cell makes the file's column one of texts, of which each would be a rare level."""
    held, rng = frames(family, 0), np.random.default_rng(4)
    tables = job(family, 0, model={"missing": "drop"}, algorithm=FAST)
    response = tables["data"]["response"]
    held = {name: frame.assign(arm=rng.choice(["u", "v"], len(frame))) for name, frame in held.items()}
    first = next(iter(held))
    held[first] = held[first].assign(**{response: held[first][response].where(held[first].index != 7)})
    for name, frame in held.items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    tables["data"]["clients"] = [str(tmp_path / "*.csv")]
    result = fedkern.run(tables)
    assert result.converged, result.summary["verdict"]
    assert list(result.summary["contrasts"]) == ["arm[v vs u]"]


@pytest.mark.parametrize("model", [{}, {"nu": 5}])
def test_numbers_of_a_family_count_as_coefficients(model: dict[str, Any]) -> None:
    """As many rows more are asked for each, learnt or not, as of a coefficient (likelihood.md, section 6)."""
    tables = job("student", 0, model=model, disclosure={"level": "strict"}, algorithm=FAST)
    tables["data"].pop("least_rows", None)  # of other tests
    random = np.random.default_rng(3)
    few = {name: pd.concat([frame, frame.head(90 - len(frame))]) for name, frame in frames("student", 0).items()}
    held = {name: frame.assign(a=frame.a + random.normal(0, 1e-3, len(frame))) for name, frame in few.items()}
    with pytest.raises(JobError, match="and 2 numbers of the family; more than 90 rows are asked for"):
        fedkern.run(tables, data=held)  # 90, for three coefficients and two numbers
    more = {name: pd.concat([frame, frame.head(1)], ignore_index=True) for name, frame in held.items()}
    assert fedkern.run(tables, data=more).converged


def test_a_cell_that_is_the_sum_of_all_is_told_in_words_that_are_true() -> None:
    """Its effective number is just above 1: no two rows have a value of their own."""
    random, held = np.random.default_rng(4), {}
    for name in "abc":
        x = random.normal(size=200)
        held[name] = pd.DataFrame({"x": x, "y": random.gamma(2.0, np.exp(0.3 * x) / 2)})
    held["a"].loc[7, "y"] = 1e9
    told = r"has nearly all of its sum in few rows, by their effective number at most 2; 3 are asked for \(row 8: 1e\+09\)"
    tables = {
        "job": {"method": "likelihood"},
        "data": {"response": "y"},
        "model": {"family": "gamma"},
        "disclosure": {"level": "strict"},
    }
    with pytest.raises(JobError, match=told):
        fedkern.run(tables, data=held)


def test_results_on_one_response_are_compared() -> None:
    held = wrong()
    normal, student = (measured(family, held) for family in ("gaussian", "student"))
    assert np.isfinite(normal.compare(student)["log_bayes_factor"])
    other = measured("student", {name: frame.assign(y=frame.y + 1) for name, frame in held.items()})
    with pytest.raises(JobError, match="has a mean of"):
        normal.compare(other)
    data = {**student.job["data"], "offset": "years"}
    with pytest.raises(JobError, match="same_rows=True"):
        normal.compare(replace(student, job={**student.job, "data": data}))


@pytest.mark.parametrize("family", ["hurdle-poisson", "hurdle-negative-binomial", "poisson-lognormal"])
def test_a_family_whose_mean_says_no_density_has_a_guess_by_one_predictor(family: str) -> None:
    """Which no other one beats."""
    random = np.random.default_rng(4)
    y, offset = random.poisson(2.0, 60).astype(float), random.normal(0, 0.3, 60)
    scale = np.array([1.5, 0.2])[{"hurdle-poisson": 1, "poisson-lognormal": 0}.get(family, slice(None))]
    found = glm.on_average(glm.Rows(np.ones((60, 1)), y, offset), family, scale)
    others = [RECORDS[family].value(y, eta + offset, scale, None).mean() for eta in np.linspace(-3, 3, 601)]
    assert max(others) - 1e-9 <= found < max(others) + 1e-4
