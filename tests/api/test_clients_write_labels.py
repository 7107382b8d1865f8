"""Clients write one response, or one column of labels, in several ways: joined where they are one, and else refused.

Numbers of R are those of `glm` in R 4.2.2; rows are MASS's birthwt, dealt to three clients.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedkern
from fedkern.errors import JobError
from support.found import ids

# Of mothers; the first 130 children were not light, the last 59 were.
LWT = """
182 155 105 108 107 124 118 103 123 113 95 150 95 107 100 100 98 118 120 120 121 100 202 120 120 167 122 150 168 113
113 90 121 155 125 140 138 124 215 109 185 189 130 160 90 90 132 132 115 85 120 128 130 95 115 110 110 153 103 119 119
119 110 140 133 169 115 250 141 158 112 150 115 112 135 229 140 134 121 190 131 170 110 127 123 120 105 130 175 125
133 134 235 95 135 135 154 147 147 137 110 184 110 110 120 241 112 169 120 170 186 120 130 117 170 134 135 130 120 95
158 160 115 129 130 120 170 120 116 123 120 130 187 105 85 150 97 128 132 165 105 91 115 130 92 150 200 155 103 125 89
102 112 117 138 130 120 130 130 80 110 105 109 148 110 121 100 96 102 110 187 122 105 115 120 142 130 120 110 120 154
105 190 101 95 100 94 142 130
"""
IN_R = {"intercept": (0.99831, 0.78529), "theta[lwt]": (-0.014058, 0.0061696)}  # glm(low ~ lwt, binomial)
Frames = dict[str, pd.DataFrame]


def births() -> Frames:
    """Returns the rows of three clients."""
    lwt = np.array(LWT.split(), float)
    table = pd.DataFrame({"lwt": lwt, "low": np.repeat([0, 1], [130, 59])})
    return {name: table.iloc[k::3].reset_index(drop=True) for k, name in enumerate("ABC")}


def graded() -> Frames:
    """Returns the same with a label of three levels, 1.1, 1.10 and 1.2, in thirds of the rows."""
    names = np.array(["1.1", "1.10", "1.2"])
    return {name: frame.assign(r=names[(np.arange(len(frame)) // 7) % 3]) for name, frame in births().items()}


def numbers(result: Any) -> Any:
    """Returns means and standard deviations."""
    return [(name, own["mean"], own["sd"]) for name, own in result.parameters.items()]


@pytest.mark.parametrize("words", [(False, True), ("FALSE", "TRUE"), ("false", "true")])
def test_truth_values_are_0_and_1_beside_numbers(words: tuple[Any, Any]) -> None:
    """They made a multinomial of four levels."""
    data = births()
    plain = fedkern.fit("low ~ lwt", data)
    data["C"] = data["C"].assign(low=np.array(words)[data["C"]["low"]])
    result = fedkern.fit("low ~ lwt", data)
    assert numbers(result) == numbers(plain)
    for name, (mean, sd) in IN_R.items():
        assert result.parameters[name]["mean"] == pytest.approx(mean, abs=0.15 * sd)
        assert result.parameters[name]["sd"] == pytest.approx(sd, rel=0.03)


@pytest.mark.parametrize("family", [None, "multinomial"])
@pytest.mark.parametrize(
    "words",
    [[(0, 1), (0, 1), ("no", "yes")], [("N", "Y"), ("no", "yes"), ("No", "Yes")], [(False, True), ("no", "yes"), ("no", "yes")]],
)
def test_labels_of_which_clients_share_none_are_refused(words: list[tuple[Any, Any]], family: str | None) -> None:
    data = {name: frame.assign(low=np.array(pair)[frame["low"]]) for (name, frame), pair in zip(births().items(), words)}
    with pytest.raises(JobError, match=r"data\['A'\].*data\['[BC]'\].*no, yes.*levels ="):
        fedkern.fit("low ~ lwt", data, family=family)


def test_levels_that_some_clients_lack_are_shared() -> None:
    """Of a, b and c each client has two: they are levels of one response."""
    pairs = (("a", "b"), ("b", "c"), ("a", "c"))
    data = {name: frame.assign(low=np.array(pair)[frame["low"]]) for (name, frame), pair in zip(births().items(), pairs)}
    assert fedkern.fit("low ~ lwt", data).job["data"]["levels"] == ["a", "b", "c"]


@pytest.mark.parametrize("codes", [(1, 2), (-1, 1), (2, 3)])
def test_two_values_at_each_client_that_are_not_two_are_no_count(codes: tuple[int, int]) -> None:
    data = births()
    data["C"] = data["C"].assign(low=np.array(codes)[data["C"]["low"]])
    with pytest.raises(JobError, match=r"two values at each client.*family"):
        fedkern.fit("low ~ lwt", data)


def test_an_order_that_some_clients_have_is_that_of_all() -> None:
    """It was dropped; and with the family given, the levels were said to be missing."""
    order = pd.CategoricalDtype(["some", "none", "all"], ordered=True)
    names = np.array(["some", "none", "all"])
    data = {name: frame.assign(r=names[(np.arange(len(frame)) // 7) % 3]) for name, frame in births().items()}
    whole = {name: frame.astype({"r": order}) for name, frame in data.items()}
    expected = fedkern.fit("r ~ lwt", whole)
    assert expected.job["data"]["levels"] == ["some", "none", "all"]
    for other in (data["C"], data["C"].astype({"r": "category"})):
        for family in (None, "ordinal"):
            assert numbers(fedkern.fit("r ~ lwt", {**whole, "C": other}, family=family)) == numbers(expected)


@pytest.mark.parametrize("kind", ["object", "category"])
def test_texts_keep_their_labels(kind: str) -> None:
    """1.1 and 1.10 were one level, as numbers are."""
    data = {name: frame.astype({"r": kind}) for name, frame in graded().items()}
    words = {"1.1": "a", "1.10": "b", "1.2": "c"}
    named = {name: frame.assign(r=frame["r"].astype(str).map(words)) for name, frame in data.items()}
    found, expected = fedkern.fit("low ~ lwt + r", data), fedkern.fit("low ~ lwt + r", named)
    assert found.converged is True
    assert [row[1:] for row in numbers(found)] == [row[1:] for row in numbers(expected)]
    assert "theta[r[T.1.10]]" in found.parameters
    assert "theta[C(r, Treatment('1.10'))[T.1.1]]" in fedkern.fit("low ~ C(r, Treatment('1.10'))", data).parameters
    assert fedkern.fit("r ~ lwt", data).job["data"]["levels"] == ["1.1", "1.10", "1.2"]


def with_levels(formula: str, data: Frames, levels: list[str]) -> Any:
    """Fits a formula with declared levels of r."""
    model, columns = {"formula": formula, "family": "bernoulli"}, {"r": {"levels": levels}}
    return fedkern.run({"job": {"method": "likelihood"}, "model": model, "data": {"columns": columns}}, data=data)


@pytest.mark.parametrize("levels", [["1.1", "1.10", "1.2"], ["1.2", "1.10", "1.1"]])
def test_declared_levels_are_the_labels_that_texts_have(levels: list[str]) -> None:
    """1.1 and 1.10 were refused: "none twice"."""
    found = fedkern.fit("low ~ lwt + r", graded())
    assert numbers(with_levels("low ~ lwt + r", graded(), levels)) == numbers(found)


@pytest.mark.parametrize("kind", [str, float])
def test_declared_levels_are_numbers_where_data_have_numbers(kind: type) -> None:
    """2.50 of the job is 2.5 of the rows, whose type is of numbers or not."""
    data = {name: frame.assign(r=frame["r"].map({"1.1": 1.0, "1.10": 2.5, "1.2": 3.0})) for name, frame in graded().items()}
    typed = {name: frame.astype({"r": kind}) for name, frame in data.items()}
    found = fedkern.fit("low ~ lwt + C(r)", data)
    declared = with_levels("low ~ lwt + C(r)", typed, ["1.0", "2.50", "3"])
    assert [row[1:] for row in numbers(declared)] == [row[1:] for row in numbers(found)]


def test_texts_beside_a_file_without_types_are_the_same_labels(tmp_path: Path) -> None:
    data = graded()
    for name in "AB":
        data[name].to_parquet(tmp_path / f"{name}.parquet")
    data["C"].to_csv(tmp_path / "C.csv", index=False)
    job = {
        "job": {"method": "likelihood"},
        "data": {"clients": [str(tmp_path / "*")]},
        "model": {"formula": "low ~ lwt + factor(r)", "family": "bernoulli"},
    }
    result = fedkern.run(job)
    assert numbers(result) == numbers(fedkern.fit("low ~ lwt + factor(r)", data))


def test_whole_numbers_are_one_label_however_they_are_written() -> None:
    data = births()
    wanted = {name: frame.assign(r=(np.arange(len(frame)) // 7) % 3) for name, frame in data.items()}
    mixed = {
        "A": wanted["A"].astype({"r": str}),
        "B": wanted["B"].astype({"r": "Int64"}),
        "C": wanted["C"].astype({"r": float}),
    }
    assert numbers(fedkern.fit("low ~ factor(r)", mixed)) == numbers(fedkern.fit("low ~ factor(r)", wanted))
    mixed["A"] = wanted["A"].assign(r=wanted["A"]["r"].map({0: "0.0", 1: "1", 2: "2.00"}))
    assert "levels-of-one-number" in ids(fedkern.fit("low ~ factor(r)", mixed)), "texts stand as they are written"


def test_codes_of_a_type_of_texts_stand_as_they_are_written() -> None:
    """250.0 and 250.00 were one level; R has two (data of MASS, R 4.2.2: lm(bwt ~ lwt + icd))."""
    code = {0: "250.0", 1: "250.00", 2: "401.9"}
    data = {name: frame.assign(r=((np.arange(len(frame)) // 7) % 3)) for name, frame in births().items()}
    coded = {name: frame.assign(r=frame["r"].map(code)) for name, frame in data.items()}
    as_category = {name: frame.astype({"r": "category"}) for name, frame in coded.items()}
    wanted = [row[1:] for row in numbers(fedkern.fit("low ~ C(r)", data))]
    for clients in (coded, as_category):
        assert [row[1:] for row in numbers(fedkern.fit("low ~ r", clients))] == wanted
    declared = {"r": {"levels": [*code.values()]}}
    assert [row[1:] for row in numbers(fedkern.fit("low ~ r", coded, columns=declared))] == wanted


@pytest.mark.parametrize("keys", [{}, {"job": {"sums": "secure"}}, {"method": "pvi", "family": "bernoulli"}])
def test_a_column_of_one_value_has_no_part_in_the_intercept(keys: dict[str, Any]) -> None:
    """Its prior times 2008 was the intercept: -70 (5060)."""
    data = births()
    of_one = {name: frame.assign(k=2008) for name, frame in data.items()}
    with_it, without = (fedkern.fit(f"low ~ {terms}", of_one, **keys) for terms in ("lwt + k", "lwt"))
    for name in without.parameters:
        own, other = with_it.parameters[name], without.parameters[name]
        assert own["mean"] == pytest.approx(other["mean"], abs=0.05 * other["sd"])
        assert own["sd"] == pytest.approx(other["sd"], rel=0.05)
    assert any(finding["id"] == "column-constant" for finding in with_it.summary["findings"])


@pytest.mark.parametrize("by", [True, False])
def test_keys_of_data_are_given_by_their_names(by: bool) -> None:
    """Refusals name them, and fit could not take them."""
    data = {name: frame.assign(low=np.array(["ill", "well"])[frame["low"]]) for name, frame in births().items()}
    rows = pd.concat([frame.assign(site=name) for name, frame in data.items()])
    given = (rows, "site") if by else (data, None)
    result = fedkern.fit("low ~ lwt", given[0], by=given[1], positive="ill", dialect={"missing": ["."]})
    assert result.parameters["theta[lwt]"]["mean"] > 0


def test_the_column_of_clients_is_no_column_of_theirs() -> None:
    rows = pd.concat([frame.assign(site=name) for name, frame in births().items()])
    for formula in ("low ~ lwt + (1 | site)", "low ~ lwt + site"):
        with pytest.raises(JobError, match=r"'site'.*'client': True"):
            fedkern.fit(formula, rows, by="site")


def test_a_table_without_rows_is_named() -> None:
    """It ended in an IndexError; and rows that lack a cell were no rows."""
    data = births()
    with pytest.raises(JobError, match=r"client 'C'.*no rows;"):
        fedkern.fit("low ~ lwt", {**data, "C": data["C"].iloc[:0]})
    left = fedkern.fit("low ~ lwt", {**data, "C": data["C"].assign(lwt=np.nan)})  # as R leaves these rows out
    assert "left-out-incomplete" in ids(left)


@pytest.mark.parametrize("kind", ["text", "date", "list"])
def test_dates_are_days_in_memory_as_in_files(kind: str) -> None:
    data = births()
    days = {name: pd.Series(pd.date_range(f"202{k}-03-01", periods=63)) for k, name in enumerate("ABC")}
    typed = fedkern.fit("low ~ I(day - 18000)", {name: data[name].assign(day=days[name]) for name in data})
    written: dict[str, Any] = {}
    for name, frame in data.items():
        own = days[name].dt.strftime("%Y-%m-%d") if kind == "text" else days[name].dt.date
        whole = frame.assign(day=own)
        written[name] = whole.to_dict("list") if kind == "list" else whole
    assert numbers(fedkern.fit("low ~ I(day - 18000)", written)) == numbers(typed)


def test_rows_without_a_trial_weigh_nothing() -> None:
    """R's glm leaves them out."""
    random = np.random.default_rng(3)
    data: Frames = {}
    for name, frame in births().items():
        n = random.integers(0, 6, len(frame))
        a = random.binomial(n, 0.4)
        data[name] = frame.assign(n=n, a=a, b=n - a)
    left = {name: frame[frame["n"] > 0] for name, frame in data.items()}
    assert numbers(fedkern.fit("cbind(a, b) ~ lwt", data)) == numbers(fedkern.fit("cbind(a, b) ~ lwt", left))
    assert "theta[lwt]" in fedkern.fit("cbind(a, b) ~ lwt", left, method="pvi").parameters


def test_new_rows_are_asked_for_the_column_of_an_offset() -> None:
    data = {name: frame.assign(holders=frame["lwt"] + 1) for name, frame in births().items()}
    result = fedkern.fit("low ~ lwt + offset(log(holders))", data, family="poisson")
    with pytest.raises(JobError, match="column 'holders' is missing"):
        result.prediction(data["A"][["lwt"]])


def test_times_are_asked_of_no_row_in_one_process() -> None:
    data = {name: frame.assign(t=np.arange(1.0, 64.0)) for name, frame in births().items()}
    result = fedkern.fit("Surv(t, low) ~ lwt", data, output={"survival_at": [20.0, 20.5, 40.0]})
    assert result.converged is True
