"""A wrong cell, or a column of one client in another unit: the holder reads which cell, the result which client, and it does not
stand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedkern import run
from fedkern.algorithms.exchanges import apart, compare
from fedkern.algorithms.exchanges.scales import means_of, means_reply
from fedkern.api import check_job
from fedkern.data.isolated import decide, distances
from fedkern.methods import load
from fedkern.transports.inprocess import InProcess
from support import few
from support.found import ids, said

LOGISTIC: dict[str, Any] = {"data": {"response": "died", **few.ANY}}
LINEAR: dict[str, Any] = {"data": {"response": "chol", **few.ANY}, "model": {"family": "gaussian"}}
ROWS = {"a": 100, "b": 300, "c": 120}  # b has more than half of all


def sites(seed: int = 3) -> dict[str, Any]:
    pd = pytest.importorskip("pandas")
    random = np.random.default_rng(seed)
    found = {}
    for name, n in ROWS.items():
        age, bp, sex = random.normal(60, 12, n).round(), random.normal(125, 10, n).round(1), random.choice(["F", "M"], n)
        chol = 100 + 0.5 * (age - 60) + 0.2 * (bp - 125) + 3 * (sex == "M") + random.normal(0, 8, n)
        died = random.random(n) < 1 / (1 + np.exp(0.5 - 0.08 * (age - 60)))
        found[name] = pd.DataFrame({"age": age, "bp": bp, "sex": sex, "chol": chol.round(2), "died": died.astype(int)})
    return found


def ran(job: dict[str, Any], clients: dict[str, Any], **more: Any) -> Any:
    other = "chol" if job["data"]["response"] == "died" else "died"
    job = {**job, "data": {**job["data"], **more.pop("data", {})}}
    return run(job, data={name: one.drop(columns=other) for name, one in clients.items()}, **more)


@pytest.mark.parametrize("rows", [100, 30_000])
def test_a_column_with_one_value_at_one_client_is_in_no_other_unit_there(rows: int) -> None:
    """Rounding of that value's distance from the pooled mean is no standard deviation."""
    random, clients = np.random.default_rng(3), sites()
    clients["a"] = clients["a"].loc[np.arange(rows) % 100].reset_index(drop=True)
    for k, one in clients.items():
        one["ph"] = 7.4 if k == "a" else random.normal(7.3, 0.1, len(one))
        one["chol"] = 200.1 if k == "a" else one["chol"]
    for job in (LOGISTIC, LINEAR):
        assert not ids(ran(job, clients)) & UNITS_OF_COLUMNS


@pytest.mark.parametrize("where", ["a", "b"])
def test_a_wrong_cell_is_told_to_its_holder_and_its_client_is_named(where: str, tmp_path: Path) -> None:
    clients = sites()
    clients[where].loc[7, "age"] = 99_999
    summary = ran(LOGISTIC, clients, out=tmp_path / "out").summary
    assert summary["converged"] is False
    assert named(summary) == [("column 'age'", [where])]
    assert "99999" not in (tmp_path / "out" / "summary.json").read_text()
    own = {n: json.loads((tmp_path / "out" / f"client-{n}" / "rows.json").read_text())["notes"] for n in clients}
    (line,) = own.pop(where)
    assert line.startswith("row 8, column 'age': 99999 is ")
    assert not any(own.values())


@pytest.mark.parametrize(("column", "factor"), [("chol", 1 / 38.67), ("bp", 1 / 7.5), ("age", 12.0)])
def test_a_client_in_another_unit_is_named_before_anything_is_advised(column: str, factor: float) -> None:
    clients = sites()
    clients["b"][column] *= factor
    assert named(ran(LINEAR, clients).summary) == [(f"column '{column}'", ["b"])]
    if column != "chol":  # the way out, where the files are right
        declared = {"columns": {column: {"center": 100.0, "scale": 20.0}}}
        assert named(ran(LINEAR, clients, data=declared).summary) == []


UNITS_OF_COLUMNS = {"column-in-another-unit", "column-in-a-far-unit", "response-or-errors", "column-varies-otherwise"}


def named(summary: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Columns that let no result stand, with the clients at which they are in another unit."""
    found = [one for id in ("column-in-another-unit", "column-in-a-far-unit", "response-or-errors") for one in said(summary, id)]
    return [(one["column"], list(one["clients"])) for one in found]


FAR = "column '{}' has a cell, or several with one value, far from all others at 'b': see rows.json there"


def slope(result: Any) -> tuple[float, float]:
    """Of age: estimate and standard deviation."""
    found = result.parameters["theta[age]"]
    return found["mean"], found["sd"]


def test_a_lost_decimal_point_is_named_and_each_remedy_ends_it(tmp_path: Path) -> None:
    """An age of 61.5 that was typed as 615 moves no standard deviation of its client by much, and a slope to less than half."""
    clients = sites()
    right = ran(LINEAR, clients)
    assert right.summary["converged"] == "settled"
    clients["b"].loc[7, "age"] = 615.0
    wrong = ran(LINEAR, clients, out=tmp_path / "out")
    assert slope(wrong)[0] < slope(right)[0] - 4 * slope(right)[1]
    summary = wrong.summary
    assert summary["converged"] is False
    assert summary["verdict"].startswith("not converged: " + FAR.format("age"))
    assert "615" not in str((summary["verdict"], summary["notes"]))
    own = {n: json.loads((tmp_path / "out" / f"client-{n}" / "rows.json").read_text())["notes"] for n in clients}
    assert own.pop("b")[0].startswith("row 8, column 'age': 615 is ")
    assert not any(own.values())
    without = ran(LINEAR, {**clients, "b": clients["b"].drop(index=7).reset_index(drop=True)})
    clients["b"]["weighed"] = np.where(clients["b"]["age"] == 615.0, 0.0, 1.0)
    none = ran(LINEAR, {n: one.assign(weighed=one.get("weighed", 1.0)) for n, one in clients.items()}, data={"weight": "weighed"})
    for mended in (without, none):
        assert mended.summary["converged"] == "settled"
        assert abs(slope(mended)[0] - slope(right)[0]) < 0.5 * slope(right)[1]
    del clients["b"]["weighed"]
    declared = {"columns": {"age": {"center": 60.0, "scale": 12.0}}}
    assert ran(LINEAR, clients, data=declared).summary["converged"] == "settled"


def test_a_response_that_is_far_is_named_with_the_model_for_it() -> None:
    clients = sites()
    clients["b"].loc[7, "chol"] = 420.0
    verdict = ran(LINEAR, clients).summary["verdict"]
    assert verdict.startswith("not converged: " + FAR.format("chol"))
    assert "student" in verdict
    sparse = {"job": {"method": "sparse", "rounds": 2}, "data": LINEAR["data"], "algorithm": {"burn_in": 1}}
    for errors, named in (("gaussian", True), ("student", False)):
        assert (FAR.format("chol") in ran({**sparse, "model": {"errors": errors}}, clients).summary["verdict"]) is named


@pytest.mark.parametrize("known", [False, True])
def test_a_client_with_columns_of_its_own_is_named(known: bool) -> None:
    pd, random, n = pytest.importorskip("pandas"), np.random.default_rng(2), 200
    parties = {"a": pd.DataFrame({"id": range(n), "crp": random.lognormal(1, 1, n)})}
    parties["b"] = pd.DataFrame({"id": range(n), "age": random.normal(60, 12, n).round(1)})
    server = pd.DataFrame({"id": range(n), "died": random.integers(0, 2, n)})
    parties["b"].loc[7, "age"] = 615.0
    data = {"id": "id", "response": "died", **({"columns": {"age": {"center": 60.0, "scale": 12.0}}} if known else {})}
    said = run({"job": {"method": "vertical", "rounds": 2}, "data": data}, data=parties, server=server).summary
    assert said["verdict"].startswith("not converged: " + FAR.format("age")) is not known


def test_check_says_it_before_the_run_and_a_private_job_never(tmp_path: Path) -> None:
    clients = sites()
    clients["b"].loc[7, "age"] = 615.0
    for name, one in clients.items():
        one[["age", "bp", "died"]].to_csv(tmp_path / f"{name}.csv", index=False)
    job = '[job]\nmethod = "pvi"\n[data]\nclients = ["*.csv"]\nresponse = "died"\n'
    private = "[privacy]\nepsilon = 2.0\ndelta = 1e-3\nclip = 2.0\nnoise_multiplier = 4.0\nsampling_rate = 0.2\n"
    private += '[data.columns]\nage = {center = 60, scale = 12}\nbp = {kind = "numeric"}\n'
    said = {}
    for name, text in {"open": f"{job}least_rows = 1\n", "private": f'{job}standardise = "none"\n{private}'}.items():
        (tmp_path / f"{name}.toml").write_text(text)
        said[name] = "\n".join(check_job(InProcess(), *load(tmp_path / f"{name}.toml")) or ())
    assert FAR.format("age") in said["open"]
    assert "far from all" not in said["private"]


def test_skewed_columns_have_no_cell_that_stands_alone() -> None:
    """Half of these columns have cells 20 robust standard deviations away, which is no slip."""
    random, beyond, alone = np.random.default_rng(1), 0, 0
    kinds: list[Callable[[int], Any]] = [
        *(lambda n, sd=sd: random.lognormal(1, sd, n).round(2) for sd in (0.5, 1.0, 1.2, 1.5)),
        lambda n: random.exponential(5, n).round(1),
        lambda n: 5 * random.weibull(0.5, n).round(2),
        lambda n: random.poisson(2, n).astype(float),
        lambda n: 1.0 + random.negative_binomial(0.8, 0.8 / 6.8, n),
        lambda n: random.negative_binomial(0.1, 0.1 / 1.1, n).astype(float),
        lambda n: (random.random(n) < 0.3) * random.lognormal(3, 1.5, n).round(1),
        lambda n: random.choice([0.0, 1.0, 2.0], n, p=[0.9, 0.095, 0.005]),
        lambda n: random.standard_t(3, n).round(2),
    ]
    for draw in kinds * 40:
        values = draw(int(random.integers(60, 1500)))
        beyond, alone = beyond + int(distances(values).max() > 20), alone + int(decide(values))
    assert beyond > 120
    assert alone <= 4


def test_a_tail_that_other_rows_begin_is_no_slip() -> None:
    """Potassium of 53 pieces of glass (R's MASS, fgl), and 73 years among students (survey): others are far as well."""
    glass = np.concatenate([0.39 + 0.1 * np.random.default_rng(1).normal(size=50), [0.9, 1.46, 1.76, 6.21]])
    assert distances(glass).max() > 20
    assert not decide(glass)
    assert decide(np.append(glass[:50], 6.21))
    tails = [np.random.default_rng(k).standard_t(2, 300) for k in range(200)]
    assert sum(map(decide, tails)) <= 4


@pytest.mark.parametrize("n", [40, 300, 20_000])
def test_slips_stand_alone(n: int) -> None:
    random = np.random.default_rng(1)
    age, bp, change = random.normal(60, 12, n).round(), random.lognormal(4.9, 0.15, n).round(), random.normal(0, 3, n)
    for values, slip in ((age, 615.0), (bp, 1400.0), (change, 120.0), (change, -120.0)):
        for rows in (1, 3):
            mistyped = values.copy()
            mistyped[:rows] = slip * (1 + 0.2 * np.arange(rows))
            assert decide(mistyped)
    coded = np.where(np.arange(n) % 15 == 0, 999.0, age)
    assert decide(coded)
    assert not decide(np.full(n, 3.0))


def test_a_cell_that_moves_nothing_is_not_said() -> None:
    """Its square is small beside the root of that many rows."""
    values = np.random.default_rng(1).normal(60, 12, 400_000)
    values[0] = 60 + 21 * 12
    assert distances(values).max() > 20
    assert not decide(values)


def test_a_wrong_response_of_a_linear_job_is_named() -> None:
    clients = sites()
    clients["c"].loc[5, "chol"] = 10_000.0
    assert named(ran(LINEAR, clients).summary) == [("column 'chol'", ["c"])]


def test_of_two_clients_nothing_says_which_is_right() -> None:
    clients = sites()
    del clients["a"]
    clients["c"]["age"] *= 12
    said = ran(LINEAR, clients).summary
    assert "column 'age' is in another unit at c or at b" in said["verdict"]


def test_ordinary_files_say_nothing(tmp_path: Path) -> None:
    result = ran(LINEAR, sites(), out=tmp_path / "out")
    assert result.summary["converged"] == "settled"
    assert not any("standard deviation" in text for text in result.summary["notes"])
    for name in ROWS:
        assert json.loads((tmp_path / "out" / f"client-{name}" / "rows.json").read_text())["notes"] == []


def test_the_check_of_ones_own_file_names_the_cell(tmp_path: Path, fedkern: Callable[..., Any]) -> None:
    for name, one in sites().items():
        one.loc[7, "bp"] = 1250.0 if name == "c" else 125.0
        one.drop(columns="chol").to_csv(tmp_path / f"{name}.csv", index=False)
    job = tmp_path / "job.toml"
    job.write_text('[job]\nmethod = "pvi"\n[data]\nclients = ["*.csv"]\nresponse = "died"\nleast_rows = 1\n')
    assert "line 9, column 'bp': 1250 is " in fedkern("check", job, "--local", tmp_path / "c.csv").out
    assert "robust" not in fedkern("check", job, "--local", tmp_path / "a.csv").out


def test_heavy_tails_shares_and_rare_values_make_no_result_fall() -> None:
    """Three clients of 60 to 200 rows: what such columns differ by is in no other unit."""
    random, fallen = np.random.default_rng(1), 0
    tails = [
        lambda n: np.exp(1.5 * random.normal(size=n)),
        lambda n: random.standard_t(3, n),
        lambda n: random.poisson(0.03, n).astype(float),
        lambda n: (random.random(n) < 0.05) * np.exp(random.normal(size=n)),
    ]
    for draw in tails * 150:
        columns = [draw(n) for n in random.integers(60, 200, 3)]
        means, squares = np.array([c.mean() for c in columns]), np.array([c.var() * len(c) for c in columns])
        degrees = np.array([len(c) - 1.0 for c in columns])
        with np.errstate(divide="ignore", invalid="ignore"):
            fallen += bool(apart.compare_spreads(squares, degrees, means).sure.any())
    assert fallen <= 3


def test_spreads_of_few_rows_or_of_a_part_of_the_range_are_no_other_unit() -> None:
    """Magnesium in pots of three kilns (carData's Pottery); and a site whose patients are of one age among those of all ages."""
    kilns = [[4.3, 3.43, 3.88, 5.64, 5.34, 3.47, 4.26, 5.91, 4.52, 7.23, 5.69, 5.51, 4.45, 3.94]]
    kilns += [[0.56, 0.67, 0.53, 0.67, 0.6], [0.67, 0.63, 0.67, 0.68, 0.72]]
    random = np.random.default_rng(4)
    ages = [random.normal(mean, sd, 120) for mean, sd in ((70.0, 2.0), (50.0, 14.0), (52.0, 15.0))]
    of_unit = [ages[1] / 7.5, *ages[1:]]
    for columns, sure in ((kilns, False), (ages, False), (of_unit, True)):
        means, squares = np.array([np.mean(c) for c in columns]), np.array([np.var(c) * len(c) for c in columns])
        found = apart.compare_spreads(squares, np.array([len(c) - 1.0 for c in columns]), means)
        assert found.odd.any()
        assert found.sure.any() == sure


# --- another unit whose standard deviation is not five times the others'

ENOUGH: dict[str, Any] = {"data": {"response": "died"}}  # rows for the job's own default: no note on that comes first
UNITS: dict[str, tuple[float, float, Callable[[Any], Any]]] = {
    "temperature": (37.2, 0.8, lambda celsius: 1.8 * celsius + 32),
    "weight": (80.0, 14.0, lambda kg: 2.2046 * kg),
    "height": (170.0, 9.0, lambda cm: cm / 2.54),
    "haemoglobin": (14.0, 1.5, lambda g: 0.6206 * g),
}


def measured(name: str, where: str, seed: int = 7) -> dict[str, Any]:
    """The sites with one more column that raises the risk, in another unit at one of them."""
    random, (mean, sd, unit) = np.random.default_rng(seed), UNITS[name]
    clients = sites()
    for k, one in clients.items():
        values = random.normal(mean, sd, len(one)).round(1)
        one["died"] = (random.random(len(one)) < 1 / (1 + np.exp(0.5 - (values - mean) / sd))).astype(int)
        one[name] = unit(values).round(2) if k == where else values
    return clients


@pytest.mark.parametrize("where", ["b", "c"])
@pytest.mark.parametrize("name", UNITS)
def test_an_everyday_unit_is_named_before_anything_is_advised(name: str, where: str) -> None:
    summary = ran(ENOUGH, measured(name, where)).summary
    assert summary["converged"] is False
    assert (f"column '{name}'", [where]) in named(summary)


def test_a_column_that_is_right_so_is_declared() -> None:
    declared = {"columns": {"weight": {"center": 100.0, "scale": 40.0}}}
    assert not ids(ran(ENOUGH, measured("weight", "b"), data=declared)) & UNITS_OF_COLUMNS


@pytest.mark.parametrize("method", ["likelihood", "pvi"])
def test_a_code_that_is_taken_for_a_number_has_a_remedy_of_its_own(method: str) -> None:
    """Wards whose numbers begin otherwise at each site: nothing is to be corrected in the files."""
    clients, job = sites(), {**LOGISTIC, "job": {"method": method}}
    for k, one in enumerate(clients.values()):
        one["ward"] = 101 + 1000 * k + np.arange(len(one)) % 6
    how = {"kind": "categorical", "levels": [str(101 + 1000 * k + j) for k in range(3) for j in range(6)]}

    def said(job: dict[str, Any], **more: Any) -> list[str]:
        found = ran(job, clients, **more).findings
        return [one for one in found if one.id.startswith("column-") and "'ward'" in one.values["column"]]

    (note, *_) = said(job)
    for words in (
        "where these are labels, and neither amounts nor dates",
        'kind = "categorical" in [data.columns.ward]',
        "group of [model.random]",
    ):
        assert words in note
    assert not said(job, data={"columns": {"ward": how}})
    if method == "likelihood":
        assert not said(job | {"model": {"random": {"group": "ward"}}})


def test_a_unit_of_other_numbers_is_called_no_code() -> None:
    assert "a code (" not in ran(ENOUGH, measured("weight", "b")).summary["verdict"]


def test_of_two_clients_means_do_not_say_which_is_right_either() -> None:
    clients = measured("weight", "b")
    del clients["c"]
    said = ran(ENOUGH, clients).summary
    assert "column 'weight' is in another unit at b or at a: its mean is 2.22 times" in said["verdict"]


# Rows, means and variances of R's sites: petals of iris by species, years of service of carData's Salaries by rank.
PETALS = ([50.0] * 3, [1.462, 4.26, 5.552], [0.030159, 0.220816, 0.304588])
SERVICE = ([67.0, 64.0, 266.0], [2.373134, 11.953125, 22.815789], [2.237449, 102.013641, 134.339523])


@pytest.mark.parametrize(("n", "means", "variances"), [PETALS, SERVICE])
def test_sites_of_all_sizes_are_in_no_other_unit(n: list[float], means: list[float], variances: list[float]) -> None:
    """Mean and standard deviation are the same multiple of the others', as in another unit; the others differ as much."""

    def found(means: list[float], variances: list[float]) -> tuple[bool, bool]:
        both = compare._moments(np.array(n), np.array(means), np.array(variances))
        return bool(any(one.odd[0] for one in both)), bool(any(one.sure.any() for one in both))

    assert found(means, variances) == (True, False)  # it is noted
    alike = np.array([1 / 6, 1, 1.03])  # the others, and the first in another unit
    assert found([*alike * means[1]], [*alike**2 * variances[1]]) == (True, True)


def test_a_response_in_another_unit_is_named() -> None:
    clients = sites()
    clients["b"]["chol"] /= 2.4
    verdict = ran(LINEAR, clients).summary["verdict"]
    assert "column 'chol' is in another unit at b: its mean is 1/2.39 of" in verdict


def test_other_patients_are_noted_and_no_result_falls() -> None:
    clients, random = sites(), np.random.default_rng(2)
    for k, age in {"a": random.normal(8, 5, 100), "c": random.normal(80, 8, 120)}.items():  # within each the old die sooner
        clients[k]["age"] = np.clip(age, 0, None).round()
        clients[k]["died"] = (random.random(len(age)) < 1 / (1 + np.exp(-0.25 * (age - age.mean())))).astype(int)
    summary = ran(ENOUGH, clients).summary
    assert summary["converged"] is not False
    assert summary["notes"][0].startswith("column 'age': its mean at a is ")


def judged(columns: list[Any], *, exact: bool = True) -> apart.Apart:
    """By means as `pvi` tells them, or as `sparse` does, in steps."""
    means, variances = np.array([c.mean() for c in columns]), np.array([c.var() for c in columns])
    degrees = np.array([len(c) - 1.0 for c in columns])
    variances[variances < (1e-14 * means) ** 2] = 0  # rounding of a constant
    if not exact:
        steps = means_reply(means, degrees, variances * degrees, np.full(len(columns), 3.0)).steps
        means = means_of(steps, variances)
    return apart.compare_means(means, variances, degrees, ~apart.compare_spreads(variances * degrees, degrees).odd)


@pytest.mark.parametrize("exact", [True, False])
def test_ordinary_differences_of_hospitals_make_no_result_fall(exact: bool) -> None:
    """Two to six clients whose means differ as much as their rows; a site two standard deviations away; children and the old."""
    random, fallen, noted = np.random.default_rng(1), 0, 0
    kinds = [
        lambda n, b: random.normal(60 + 12 * b, 12, n),
        lambda n, b: random.normal(37 + 0.5 * b, 0.5, n).round(1),
        lambda n, b: np.exp(1 + 0.5 * b + 0.5 * random.normal(size=n)),
        lambda n, b: np.exp(0.2 * b + 0.2 * random.normal(size=n)),
        lambda n, b: random.poisson(3 * np.exp(0.5 * b), n).astype(float),
        lambda n, b: np.clip(np.round(5 + 2 * b + 2 * random.normal(size=n)), 0, 10),
        lambda n, b: np.full(n, round(b, 1)),
    ]
    for draw in kinds * 100:
        found = judged([draw(n, random.normal()) for n in random.integers(40, 500, random.integers(2, 7))], exact=exact)
        fallen, noted = fallen + int(found.sure.any()), noted + int(found.odd.any())
    assert fallen <= 2
    assert noted < 35  # a site in twenty: that many are three standard deviations away by chance
    for b in (2.0, -2.0):
        assert not judged([kinds[0](200, at) for at in (0.0, b, 0.2, -0.1)], exact=exact).odd.any()
    children, old = random.normal(8, 5, 300), random.normal(80, 8, 200)
    others = [kinds[0](200, at) for at in (0.1, -0.1)]
    for columns in ([children, old], [children, *others], [children, *others, old]):
        assert judged(columns, exact=exact).odd.any()
        assert not judged(columns, exact=exact).sure.any()


# --- sites that are of all sizes

# AER's Grunfeld in R: mean and sd of value of eleven firms in twenty years, from General Motors to American Steel
FIRMS = (
    (4333.8, 904.3),
    (1971.8, 301.1),
    (1941.3, 413.8),
    (693.2, 160.6),
    (231.5, 73.8),
    (419.9, 217.0),
    (149.8, 32.9),
    (670.9, 222.4),
    (333.7, 77.3),
    (70.9, 9.3),
    (57.5, 18.1),
)


@pytest.mark.parametrize("slip", [1.0, 1000.0])
def test_firms_of_all_sizes_are_in_no_other_unit(slip: float) -> None:
    """But one that gives thousands among those that give millions is, though they differ by 75 times."""
    z = np.random.default_rng(2).normal(size=(len(FIRMS), 20))
    z = (z - z.mean(axis=1, keepdims=True)) / z.std(axis=1, keepdims=True)
    columns = np.array([mean + sd * own for (mean, sd), own in zip(FIRMS, z)])
    columns[3] *= slip
    means, variances, n = columns.mean(axis=1), columns.var(axis=1), np.full(len(FIRMS), 20.0)
    names = [f"firm {k}" for k in range(len(FIRMS))]
    found = list(compare.of_column("column 'value'", names, n, means, variances, [], owner="value"))
    if slip == 1:
        assert not found
    else:
        assert [one.values["clients"] for one in found] == [["firm 3"]]
