"""A value that stands for a missing one: its holder reads which, the result that it cannot stand, and the remedy ends it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.algorithms.exchanges.apart import with_one_value
from fedkern.data.isolated import coded, decide, repeated
from support import few
from support.found import ids, said

SLOPE = 0.01  # of chol
PART = "column 'chol' has a cell, or several with one value, far from all others at 'b': see rows.json there"


def sites(seed: int = 5) -> dict[str, Any]:
    """Without codes: a hospital of mild cases (a), and one of severe ones (c)."""
    pd = pytest.importorskip("pandas")
    random, found = np.random.default_rng(seed), {}
    for name, n, level in (("a", 300, -1.0), ("b", 200, 0.0), ("c", 120, 2.0)):
        age, chol = random.normal(60, 12, n).round(), random.normal(240, 50, n).round().clip(100)
        chance = 1 / (1 + np.exp(-(level + SLOPE * (chol - 240) + 0.03 * (age - 60))))
        found[name] = pd.DataFrame({"age": age, "chol": chol, "died": (random.random(n) < chance).astype(int)})
    return found


def as_zeros(clients: dict[str, Any], value: float = 0.0) -> dict[str, Any]:
    """A quarter of b, and all of c, were never measured."""
    part = clients["b"].assign(chol=clients["b"]["chol"].where(np.arange(200) % 4 > 0, value))
    return {**clients, "b": part, "c": clients["c"].assign(chol=value)}


def ran(method: str, clients: dict[str, Any], **more: Any) -> Any:
    columns = {
        "data": {"response": "died", **few.ANY, **more.pop("data", {})},
        "model": {"family": "bernoulli", **more.pop("model", {})},
    }
    return fedkern.run({"job": {"method": method, **more.pop("job", {})}, **columns}, data=clients, **more)


@pytest.mark.parametrize("method", ["likelihood", "pvi"])
def test_zeros_that_stand_for_missing_values_let_no_result_stand_and_the_remedy_ends_it(method: str, tmp_path: Path) -> None:
    clients, out = as_zeros(sites()), tmp_path / "out"
    wrong = ran(method, clients, out=out)
    assert wrong.parameters["theta[chol]"]["mean"] < 0, "the sign is wrong"
    assert wrong.summary["converged"] is False
    assert [list(one["clients"]) for one in said(wrong, "column-of-one-value")] == [["c"]]
    assert [(one["column"], list(one["clients"])) for one in said(wrong, "column-with-far-cells")] == [("chol", ["b"])]
    own = {n: json.loads((out / f"client-{n}" / "rows.json").read_text())["notes"] for n in clients}
    assert any("column 'chol': 0 stands in 50 rows, far from all other cells" in line for line in own["b"])
    assert any("column 'chol' has one value here" in line and "model.missing" in line for line in own["c"])
    assert not own["a"]
    # Cells are made empty: rows that lack one are left out, and the client that has no other.
    mended = {n: one.assign(chol=one["chol"].where(one["chol"] > 0)) for n, one in clients.items() if n != "c"}
    right = ran(method, mended, model={"missing": "drop"})
    assert right.summary["converged"] in (True, "settled")
    slope = right.parameters["theta[chol]"]
    assert abs(slope["mean"] - SLOPE) < 3 * slope["sd"]


def test_an_indicator_keeps_the_client_that_has_measured_nothing() -> None:
    clients = as_zeros(sites())
    mended = {n: one.assign(chol=one["chol"].where(one["chol"] > 0)) for n, one in clients.items()}
    data = {"columns": {"chol": {"kind": "numeric", "center": 240.0, "scale": 50.0}}}
    right = ran("pvi", mended, data=data, model={"missing": "indicator"})
    assert right.summary["converged"] == "settled"
    slope = right.parameters["theta[chol]"]
    assert abs(slope["mean"] - SLOPE) < 3 * slope["sd"]


def test_files_without_codes_and_a_value_that_is_right_by_your_word_say_nothing() -> None:
    assert ran("pvi", sites()).summary["converged"] == "settled"
    columns = {"columns": {"chol": {"kind": "numeric", "center": 240.0, "scale": 50.0}}}
    assert not ids(ran("pvi", as_zeros(sites()), data=columns)) & {"column-of-one-value", "column-with-far-cells"}


def test_where_sums_are_masked_the_client_says_it_of_itself(tmp_path: Path) -> None:
    clients = sites()
    clients["c"]["chol"] = 0.0
    summary = ran("pvi", clients, job={"sums": "secure"}, out=tmp_path / "out").summary
    assert summary["converged"] is False
    assert [one["column"] for one in said(summary, "column-in-another-unit-somewhere")] == ["column 'chol'"]
    own = json.loads((tmp_path / "out" / "client-c" / "rows.json").read_text())["notes"]
    assert any("column 'chol' has one value at c" in line for line in own)


@pytest.mark.parametrize("code", [-9.0, 99.0, 999.0, 0.0, 7777.0])
def test_a_value_that_repeats_beside_the_others_is_a_code_and_one_cell_is_none(code: float) -> None:
    values = np.random.default_rng(1).normal(50, 10, 300).clip(20, 80).round(1)
    clean, alone = values.copy(), values.copy()
    values[::17], alone[0] = code, code if abs(code) < 100 else 85.0
    assert repeated(values) == coded(values) == [code]
    assert decide(values)
    assert not repeated(clean)
    assert not repeated(alone)


@pytest.mark.parametrize("code", [-9.0, 99.0])
def test_a_usual_code_may_be_nearer(code: float) -> None:
    """Its gap is less than three standard deviations, and 99 is near among logarithms; 98 might be right."""
    values = np.random.default_rng(1).normal(50, 10, 300).clip(18, 83).round(1)
    values[:2], values[::17] = (18.0, 83.0), code
    assert repeated(values) == [code]
    assert decide(values)
    assert not repeated(np.where(values == code, 98.0, values))


def test_a_usual_code_below_zero_needs_a_gap_alone() -> None:
    """-9 among ages from 20 to 60, all as frequent: that is 3.3 of their robust standard deviations from the median."""
    values = np.random.default_rng(1).integers(20, 60, 200).astype(float)
    values[::50] = -9.0
    assert coded(values) == [-9.0]
    values[::50] = -8.0  # which is no usual one
    assert not coded(values)


@pytest.mark.parametrize(
    ("value", "code"), [(666.0, False), (500.0, False), (777.0, True), (99.9, True), (0.0, True), (-1.0, True)]
)
def test_a_number_that_many_rows_share_is_a_code_only_if_people_write_it_for_one(value: float, code: bool) -> None:
    """As 666, the tax rate of a quarter of the Boston houses (R's MASS)."""
    values = np.random.default_rng(1).normal(300, 40, 300).round()
    values = np.where(np.arange(300) % 4 == 0, value, values if value != 99.9 else values / 10)
    assert repeated(values) == ([value] if code else [])


def test_two_codes_at_one_end_are_both_named() -> None:
    values = np.random.default_rng(1).normal(50, 10, 300).round(1)
    values[::10], values[5::10] = -9.0, -8.0
    assert repeated(values) == [-9.0, -8.0]


def test_ordinary_columns_have_no_value_that_stands_apart() -> None:
    random, named, fallen, drawn = np.random.default_rng(1), 0, 0, 0
    kinds: list[Callable[[int], Any]] = [
        lambda n: random.normal(60, 12, n).round(),
        lambda n: np.minimum(random.normal(60, 12, n).round(), 90),  # older ones count as 90
        lambda n: 10 * (random.normal(130, 18, n) / 10).round(),
        lambda n: np.maximum(random.lognormal(1, 1, n), 2.7).round(1),  # a limit of detection
        lambda n: (random.random(n) < 0.7) * random.lognormal(3, 0.5, n).round(1),
        lambda n: (random.random(n) < 0.05) * (1880 + 260 * random.normal(size=n)).round(),  # a loss that few have
        lambda n: random.poisson(2, n).astype(float),
        lambda n: 1.0 + random.negative_binomial(0.8, 0.8 / 6.8, n),
        lambda n: np.clip(15 - random.negative_binomial(0.5, 0.2, n), 3, 15).astype(float),
        lambda n: random.standard_t(2, n).round(),
        lambda n: random.lognormal(3, 1.5, n).round(),
    ]
    for draw in kinds * 40:
        values = draw(int(random.choice([60, 200, 1000])))
        drawn, named = drawn + 1, named + bool(repeated(values))
        fallen += bool(repeated(values)) and decide(values)
    assert named <= drawn / 100
    assert fallen <= 2


@pytest.mark.parametrize("response", [-9.0, 999.0])
def test_a_code_in_a_measured_response_is_named(response: float, tmp_path: Path, fedkern: Callable[..., Any]) -> None:
    clients = sites()
    for k, one in clients.items():
        one["bmi"] = np.random.default_rng(len(one)).normal(27, 4, len(one)).round(1)
        one.loc[one.index % 20 == 3, "bmi"] = response if k == "b" else 27.0
        one.to_csv(tmp_path / f"{k}.csv", index=False)
    job = tmp_path / "job.toml"
    job.write_text('[data]\nclients = ["*.csv"]\nresponse = "bmi"\nleast_rows = 1\n[model]\nfamily = "gaussian"\n')
    text = f"column 'bmi': {response:g} stands in 10 rows, far from all other cells"
    assert text in fedkern("check", job, "--local", tmp_path / "b.csv").out
    assert "far from all other" not in fedkern("check", job, "--local", tmp_path / "a.csv").out


def constants(means: list[float], sds: list[float], n: float = 100.0) -> list[bool]:
    odd = with_one_value(np.array(means), np.array(sds) ** 2, np.full(len(means), n))
    return [bool(one) for one in odd]


def test_one_value_at_a_client_is_odd_only_where_it_is_far_from_what_varies() -> None:
    assert constants([0.0, 247.0, 247.0, 178.0], [0.0, 52.0, 67.0, 112.0]) == [True, False, False, False]
    assert not any(constants([200.0, 247.0, 247.0], [0.0, 52.0, 67.0])), "an ordinary value"
    assert not any(constants([0.0, 2.0, 3.0], [0.0, 5.0, 6.0])), "a column with many zeros"
    assert not any(constants([0.0, 247.0], [0.0, 52.0], n=3.0)), "few rows"
    assert not any(constants([100.0, 900.0, 500.0], [0.0, 0.0, 30.0])), "an altitude"
    assert not any(constants([100.0, 900.0], [0.0, 0.0])), "varies nowhere"
    doses = [50.0 * share for share in (0.02, 0.04)]
    spread = [50 * (share * (1 - share)) ** 0.5 for share in (0.02, 0.04)]
    assert not any(constants([50.0, *doses], [0.0, *spread])), "one of two doses"
    assert not any(constants([30.0, 40.0, 60.0, 80.0, 100.0], [0.0, 5.0, 5.0, 5.0, 5.0])), "clients whose means differ as much"


@pytest.mark.parametrize("value", [-9.0, 999.0])
def test_a_code_in_most_cells_of_a_client_is_told_and_the_remedy_ends_it(value: float) -> None:
    clients = sites()
    coded_ones = np.arange(200) % 4 > 0
    clients["b"] = clients["b"].assign(chol=clients["b"]["chol"].where(~coded_ones, value))
    wrong = ran("likelihood", clients)
    assert wrong.converged is False
    assert PART in wrong.summary["verdict"]
    clients["b"] = clients["b"].assign(chol=clients["b"]["chol"].where(~coded_ones))
    right = ran("likelihood", clients, model={"missing": "drop"})
    assert right.converged is True
    slope = right.parameters["theta[chol]"]
    assert abs(slope["mean"] - SLOPE) < 3 * slope["sd"]


@pytest.mark.parametrize("n", [60, 300])
def test_ordinary_values_in_most_cells_are_no_code(n: int) -> None:
    rng, found = np.random.default_rng(n), 0
    for _ in range(200):
        loss = np.where(rng.random(n) < 0.7, 0.0, rng.lognormal(3, 1, n)).round(1)
        capped = np.minimum(rng.lognormal(5, 1, n), 99).round()
        change = np.where(rng.random(n) < 0.6, -9.0, rng.normal(-4, 3, n).round(1))
        found += sum(bool(repeated(column)) for column in (loss, capped, change))
    assert found == 0
