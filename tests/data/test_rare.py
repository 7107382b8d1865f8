"""Values that few rows share, against a count of every one; and files of any size, whose rows need not all count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedkern.data import directions, standardised
from fedkern.data import rare as module
from fedkern.data.rare import heavy, rare
from fedkern.data.table import Table, Text
from fedkern.models.encoding import Column


def table(**columns: Any) -> Table:
    first = next(iter(columns.values()))
    return Table("a.csv", tuple(columns), columns, len(first.codes if isinstance(first, Text) else first))


def found(one: Table, least: int = 10, counted: Any = None, *texts: str) -> Any:
    columns = [Column(name, "categorical" if name in texts else "numeric", center=0.0, scale=1.0) for name in one.names]
    every = rare(one, columns, np.ones(one.n_rows) if counted is None else counted * 1.0, least, min(least, 3))
    return every[0][:2] if every else None


@pytest.mark.parametrize("block", [64, 1 << 16])
def test_a_column_against_a_count_of_every_value(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", block)
    random = np.random.default_rng(0)
    for few in (0, 1, 5, 9, 10, 30):
        x = np.full(500, 2.5)
        x[random.choice(500, few, replace=False)] = random.normal(size=few)  # all of them different
        assert found(table(x=x)) == ((("x",), few) if 0 < few < 10 else None)
        every = np.arange(500) % 2 == 0
        here = int((x[every] != 2.5).sum())
        assert found(table(x=x), counted=every) == ((("x",), here) if 0 < here < 10 else None)
    assert found(table(x=random.normal(size=500))) is None
    assert found(table(x=np.where(np.arange(500) < 3, np.nan, 1.0))) is None  # a missing cell is no value


def test_levels() -> None:
    codes = np.repeat([0, 1, 2], [250, 243, 7])
    assert found(table(x=Text(codes, ("a", "b", "c"))), 10, None, "x") == (("x",), 7)
    assert found(table(x=codes), 10, None, "x") == (("x",), 7)


def test_pairs_of_which_three_combinations_occur() -> None:
    ill, worse = np.repeat([1.0, 0.0], [30, 70]), np.repeat([1.0, 0.0], [26, 74])
    assert found(table(ill=ill, worse=worse)) == (("ill", "worse"), 4)
    apart = table(ill=ill, worse=worse[::-1].copy())  # nobody has both: three combinations, each in many rows
    assert found(apart) is None
    all_four = table(ill=ill, worse=np.roll(worse, 29))  # one is ill and worse: their cross-product is its weight
    assert found(all_four) == (("ill", "worse"), 1)
    assert found(table(ill=ill, worse=np.roll(worse, 27))) is None  # three
    assert found(table(ill=ill, same=3 - 2 * ill)) is None
    assert found(table(ill=ill, worse=worse), 4) is None
    assert found(table(ill=ill, worse=worse), 0) is None


def test_a_count_far_from_all_others() -> None:
    days = np.random.default_rng(6).poisson(1.5, 200) * 1.0
    assert not heavy(days, np.ones(200))
    days[3] = 60
    assert heavy(days, np.ones(200))
    assert not heavy(days, np.where(np.arange(200) == 3, 0.0, 1.0))
    assert not heavy(np.zeros(200), np.ones(200))


def test_a_number_that_all_but_one_have_of_those_with_a_value() -> None:
    random = np.random.default_rng(0)
    x, dose = random.normal(size=400), np.where(random.random(400) < 0.3, random.integers(1, 40, 400), 0.0)
    for few in (0, 1, 2, 3):
        ill, own = np.where(np.arange(400) < 15, 1.0, 0.0), dose.copy()
        own[:15] = 0
        own[3 : 3 + few] = np.linspace(10, 20, few)
        singled = (("ill", "dose"), few) if few in (1, 2) else None
        assert found(table(ill=ill, x=x, dose=own)) == singled
        assert found(table(ill=1 - ill, x=x, dose=own + 7)) == singled
        codes = Text(np.where(ill == 1, 2, np.arange(400) % 2), ("a", "b", "c"))
        assert found(table(ill=codes, x=x, dose=own), 10, None, "ill") == singled
        other = np.where(ill == 1, x + 50, 0.0)  # a number as well, which most rows have not
        assert found(table(other=other, dose=own)) == ((("other", "dose"), few) if few in (1, 2) else None)
        assert found(table(ill=ill, dose=own), 4) == singled
    weight = np.where(np.arange(400) == 3, 1.0, 1e-6)  # all others of those that differ weigh next to nothing
    own = np.where((np.arange(400) < 15) & (np.arange(400) > 6), 0.0, dose + (np.arange(400) < 7) * 3.0)
    ill = np.where(np.arange(400) < 15, 1.0, 0.0)
    assert found(table(ill=ill, dose=own), 10, np.where(ill == 1, weight, 1.0))[1] < 3


class TestSumsOfColumns:
    """Of which none names the rows by itself."""

    def frame(self, n: int = 400) -> dict[str, Any]:
        random = np.random.default_rng(3)
        measured = {"x": random.normal(size=n), "z": random.lognormal(size=n)}
        return measured | {name: random.random(n) < 0.3 for name in "ab"}

    def named(self, columns: dict[str, Any], least: int = 10, together: int = 3) -> tuple[str, ...]:
        one = table(**columns)
        numbers = [Column(name, "numeric", center=0.0, scale=1.0) for name in one.names]
        every = rare(one, numbers, np.ones(one.n_rows), least, together)
        return every[0].columns if every else ()

    @pytest.mark.parametrize("few", [1, 2, 5, 9, 40])
    def test_two_measurements_that_differ_in_a_few_rows(self, few: int) -> None:
        columns = {name: np.asarray(x, float) for name, x in self.frame().items()}
        columns["again"] = 100 + 7 * columns["x"]
        columns["again"][5 : 5 + few] += np.linspace(1, 3, few)
        assert found(table(**columns)) == ((("x", "again"), few) if few < 10 else None)

    def test_three_columns_and_levels(self) -> None:
        columns = {name: np.asarray(x, float) for name, x in self.frame().items()}
        either = np.maximum(columns["a"], columns["b"])
        columns |= {"both": columns["a"] + columns["b"] - either, "either": either.copy()}
        assert found(table(**{k: v for k, v in columns.items() if k != "both"})) is None
        columns["either"][7] = 1 - columns["either"][7]
        assert found(table(**columns)) == (("a", "b", "both", "either"), 1)
        codes = np.arange(2000) % 45
        level = Text(codes, tuple(f"w{k}" for k in range(45)))
        b = (codes == 44) * 1.0
        b[3] = 1
        assert found(table(ward=level, b=b), 10, None, "ward")[1] == 1

    @pytest.mark.parametrize(("n", "least"), [(20, 10), (25, 10), (33, 10), (105, 50)])
    def test_a_client_of_few_rows_is_searched_too(self, n: int, least: int) -> None:
        """However many its holder asks for."""
        columns = {name: np.asarray(x, float) for name, x in self.frame(n).items() if name in "xz"}
        columns |= {"sex": np.arange(n) % 2 * 1.0, "given": columns["x"].copy()}
        columns["given"][5] -= 1.5
        assert found(table(**columns), least) == (("x", "given"), 1)
        columns["given"] = np.random.default_rng(4).normal(size=n)
        assert found(table(**{name: x for name, x in columns.items() if name != "sex" or n > 33}), least) is None

    @pytest.mark.parametrize("lost", [20, 90])
    def test_one_change_that_is_far_from_all_others(self, lost: float) -> None:
        """Weight before and after: neither column alone has it."""
        random = np.random.default_rng(8)
        before = random.normal(80, 20, 100)
        after = before - 1 + random.normal(0, 2, 100)
        before[7], after[7] = 80 + lost / 2, 80 - lost / 2
        assert found(table(before=before, after=after)) == ((("before", "after"), 1) if lost == 90 else None)

    @pytest.mark.parametrize("far", [500, 1500])
    def test_one_cell_that_has_nearly_all_of_a_columns_squares(self, far: float) -> None:
        columns = {name: np.asarray(x, float) for name, x in self.frame(100).items()}
        columns["ck"] = np.random.default_rng(5).normal(120, 40, 100)
        columns["ck"][7] = far
        assert found(table(**columns)) == ((("ck",), 1) if far == 1500 else None)

    @pytest.mark.parametrize("n", [300, 1500])
    def test_a_pattern_that_a_sum_of_products_has_to_itself(self, n: int) -> None:
        random = np.random.default_rng(10)
        measured = {"age": random.normal(size=n), "crp": random.lognormal(size=n)}
        strokes = (random.random(n) < 0.4) * 1.0
        strokes[7] = 2  # v (v - 1) is 0 in all other rows
        assert found(table(**measured, strokes=strokes)) == (("strokes",), 1)
        sex = (random.random(n) < 0.5) * 1.0
        assert found(table(**measured, sex=sex, strokes=strokes))[1] == 1
        strokes[8:11] = 2
        assert found(table(**measured, strokes=strokes)) is None
        first, second = random.choice(3, n), random.choice(3, n)
        both = (first == 0) & (second == 0)
        second[np.flatnonzero(both)[1:]] = 1  # one has both references
        dummies = {"r1": first == 1, "r2": first == 2, "s1": second == 1, "s2": second == 2}
        assert found(table(**measured, **{name: x * 1.0 for name, x in dummies.items()}))[1] == 1

    def test_a_column_without_any_value_is_nobodys(self) -> None:
        random = np.random.default_rng(12)
        assert found(table(x=random.normal(size=100), empty=np.full(100, np.nan), z=random.normal(size=100))) is None

    def test_two_numbers_of_which_a_quadratic_is_0_but_in_one_row(self) -> None:
        """A dose is given whole, or three quarters of it; once half."""
        random = np.random.default_rng(11)
        planned = (random.normal(75, 12, 300) * 1.5).round() * 4
        given = np.where(random.random(300) < 0.3, 0.75 * planned, planned)
        assert found(table(planned=planned, given=given)) is None
        given[9] = planned[9] / 2
        assert found(table(planned=planned, given=given)) == (("planned", "given"), 1)

    @pytest.mark.parametrize("unlike", [0, 1, 2, 3])
    def test_doses_that_differ_in_one_of_a_few_rows(self, unlike: int) -> None:
        """Of fewer rows with a value than there are columns, sums of two or three are looked at by themselves."""
        random, n = np.random.default_rng(2), 300
        columns = {name: random.normal(size=n) for name in "pqrstuvwx"}
        moved = random.permutation(n) < 15
        planned = (random.normal(400, 60, n) / 4).round() * 4
        given = np.where(~moved & (random.random(n) < 0.3), (planned * random.uniform(0.4, 0.9, n)).round(), planned)
        given[np.flatnonzero(moved)[:unlike]] -= [95, 40, 60][:unlike]
        columns |= {"moved": moved * 1.0, "planned": planned, "given": given}
        assert set(self.named(columns)) == ({"moved", "planned", "given"} if unlike in (1, 2) else set())
        second = random.normal(100, 20, n).round()  # and three that add up among these rows alone
        columns |= {"second": second, "given": np.where(moved, given - second, random.normal(200, 60, n).round())}
        assert set(self.named(columns)) == ({"moved", "planned", "given", "second"} if unlike in (1, 2) else set())

    def test_four_numbers_that_add_up_but_in_one_row(self) -> None:
        """A total of three that are written as whole numbers."""
        random = np.random.default_rng(0)
        three = random.gamma(4, 9, (200, 3)) + random.uniform(size=(200, 1))
        columns = {name: np.floor(x) for name, x in zip("abc", three.T)} | {"x": random.normal(size=200)}
        columns["total"] = np.floor(columns["a"] + columns["b"] + columns["c"] + random.choice(2, 200, p=[0.6, 0.4]))
        assert self.named(columns) == ()
        columns["total"][7] = columns["a"][7] + columns["b"][7] + columns["c"][7] + 5
        assert set(self.named(columns)) == {"a", "b", "c", "total"}

    @pytest.mark.parametrize(("n", "as_planned"), [(90, 0.8), (300, 0.3)])
    @pytest.mark.parametrize("unlike", [1, 3])
    def test_a_product_of_two_sums(self, n: int, as_planned: float, unlike: int) -> None:
        """Of those in intensive care who are not ventilated one had another dose than planned."""
        random = np.random.default_rng(4)
        columns = {name: random.normal(size=n) for name in "pqrstu"}
        planned = random.integers(60, 140, n) * 4.0
        same = (random.random(n) < as_planned) & (np.arange(n) > 5)
        given = np.where(same, planned, (planned * random.uniform(0.4, 0.9, n)).round())
        icu, vent = np.arange(n) < 32, np.arange(n) < 18
        given[18:32] = planned[18:32] - np.where(np.arange(14) < unlike, 20 + np.arange(14), 0)
        columns |= {"icu": icu * 1.0, "vent": vent * 1.0, "planned": planned, "given": given}
        names = self.named({name: x[random.permutation(n)] if name in "pqrstu" else x for name, x in columns.items()})
        assert set(names) == ({"icu", "vent", "planned", "given"} if unlike == 1 else set())

    @pytest.mark.parametrize("unlike", [1, 3])
    def test_yes_and_no_among_those_with_another_dose(self, unlike: int) -> None:
        """Two columns are the same in them, but in one row."""
        random, n = np.random.default_rng(5), 100
        columns = {name: random.normal(size=n) for name in "pqrst"} | {"planned": random.integers(60, 140, n) * 4.0}
        a, b = random.random((2, n)) < 0.5
        b[:14] = a[:14] ^ (np.arange(14) < unlike)
        given = columns["planned"] - np.where(np.arange(n) < 14, 20 + np.arange(n), 0)
        columns |= {"given": given, "a": a * 1.0, "b": b * 1.0}
        assert set(self.named(columns)) == ({"planned", "given", "a", "b"} if unlike == 1 else set())

    @pytest.mark.parametrize("n", [60, 300])
    def test_three_numbers_that_add_up_but_in_one_row(self, n: int) -> None:
        """Of whole years: age less age at diagnosis less years since is 0 or 1; 2 by a typing error."""
        for seed in range(2):
            random = np.random.default_rng(seed)
            age, years = random.uniform(35, 88, n), random.gamma(2, 4, n)
            columns = {"age": np.floor(age), "bmi": random.normal(27, 4, n).round(1), "sex": (random.random(n) < 0.45) * 1.0}
            columns |= {"years": np.floor(years), "first": np.floor(age - years)}
            assert found(table(**columns)) is None
            columns["first"][7] = columns["age"][7] - columns["years"][7] - 2
            names, rows = found(table(**columns))
            assert (set(names), rows) == ({"age", "years", "first"}, 1)

    @pytest.mark.parametrize("p", [30, 310])
    def test_two_columns_that_differ_in_one_row_of_few_or_among_many(self, p: int) -> None:
        """However many columns there are beside them."""
        random = np.random.default_rng(1)
        columns = {f"m{j}": random.choice(3, 60) * 1.0 for j in range(p)} | {"planned": random.normal(75, 12, 60).round() * 4}
        columns["given"] = columns["planned"].copy()
        assert p > 100 or self.named(columns, 3, 0) == ()
        columns["given"][7] -= 95
        if p > 100:  # more than rows: of a linear job X'X is all of them, up to a rotation, and that is said
            assert self.named(columns, 3, 0) == ()
            assert self.named(columns, 3, 2) == ("planned", "given")
            return
        assert self.named(columns, 3, 0) == ("planned", "given")
        columns["given"] = 2 * columns["m3"] - 1
        columns["given"][7] += 2
        assert self.named(columns, 3, 0) == ("m3", "given")
        columns["given"] = columns["planned"] - columns["m3"]
        columns["given"][7:9] += 2
        assert self.named(columns, 3, 0) == ("m3", "planned", "given")

    @pytest.mark.parametrize("seed", range(6))
    def test_measurements_that_go_together_are_nobodys(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        n = int(random.integers(80, 600))
        pressure = random.normal(125, 15, n).round()
        columns = {"systolic": pressure, "diastolic": (0.6 * pressure + random.normal(5, 6, n)).round()}
        columns |= {"weight": random.normal(75, 12, n).round(1), "height": random.normal(1.7, 0.08, n).round(2)}
        columns |= {"bmi": (columns["weight"] / columns["height"] ** 2).round(1)}
        columns |= {"asa": random.choice(4, n, p=[0.2, 0.4, 0.3, 0.1]), "treated": random.random(n) < 0.3}
        columns |= {"start": random.integers(700, size=n), "days": random.gamma(2, 5, n).round() * columns["treated"]}
        columns |= {"end": columns["start"] + columns["days"], "before": random.normal(80, 15, n).round(1)}
        columns |= {"packs": (random.random(n) < 0.4) * random.integers(1, 41, n) / 2}
        columns |= {"change": random.normal(2, 4, n).round(1)}
        columns |= {"after": columns["before"] + columns["change"], "mean": ((pressure + columns["diastolic"]) / 2).round()}
        assert found(table(**columns)) is None

    def test_patterns_that_many_products_share_are_nobodys(self) -> None:
        """All eight of three columns occur: no sum of products has one to itself."""
        columns = {name: (np.arange(400) // 2**k % 2) * 1.0 for k, name in enumerate("abc")}
        rows = np.r_[0:200, 200:400][(columns["a"] + columns["b"] + columns["c"] < 3) | (np.arange(400) == 7)]
        assert found(table(**{name: x[rows] for name, x in columns.items()}), 2) is None

    def test_a_sum_of_columns_among_the_rows_with_a_value(self) -> None:
        """Insulin has only who has diabetes, and one of these who were transferred has none."""
        random = np.random.default_rng(9)
        columns = {"age": random.normal(size=300), "crp": random.lognormal(size=300), "dm": (np.arange(300) < 80) * 1.0}
        columns |= {"insulin": (np.arange(300) < 50) * 1.0, "moved": (np.arange(300) % 7 == 3) * 1.0}
        assert found(table(**columns)) is None
        alone = (np.arange(300) >= 50) & (np.arange(300) < 80) & (columns["moved"] == 1)
        columns["moved"][np.flatnonzero(alone)[1:]] = 0
        names, rows = found(table(**columns))
        assert (set(names), rows) == ({"moved", "dm", "insulin"}, 1)

    def test_one_far_cell(self) -> None:
        columns = {name: np.asarray(x, float) for name, x in self.frame(1000).items()}
        assert found(table(**columns)) is None
        columns["z"][11] = 999999
        assert found(table(**columns)) == (("z",), 1)

    def test_rows_that_weigh_nothing_hide_nobody(self) -> None:
        flag, weight = np.where(np.arange(400) < 12, 1.0, 0.0), np.where((np.arange(400) > 0) & (np.arange(400) < 12), 1e-6, 1.0)
        assert found(table(flag=flag)) is None
        assert found(table(flag=flag), 10, weight)[1] <= 2

    @pytest.mark.parametrize("seed", range(20))
    def test_ordinary_rows_are_not_singled_out(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        n, d = int(random.integers(60, 300)), int(random.integers(2, 12))
        X = random.standard_t(5, size=(n, d)) @ random.normal(size=(d, d)) + 100
        columns = {f"x{j}": X[:, j] for j in range(d)} | {"u": np.exp(random.normal(size=n)), "age2": X[:, 0] ** 2}
        assert found(table(**columns)) is None

    @pytest.mark.parametrize("size", [2, 3])
    @pytest.mark.parametrize("unlike", [0, 1, 2, 3])
    def test_columns_that_add_up_among_fewer_rows_than_columns(self, size: int, unlike: int) -> None:
        """Of fifteen rows of a ward; sums of all columns are 0 in most of them whatever they are."""
        random, n = np.random.default_rng(size), 300
        columns = {f"m{j}": random.normal(size=n) for j in range(30)}
        ward, planned = np.arange(n) < 15, random.normal(400, 60, n).round()
        second = random.normal(100, 20, n).round() * (size - 2)
        given = np.where(ward, planned - second, random.normal(300, 60, n).round())
        given[:unlike] -= np.array([95, 40, 60])[:unlike]
        columns |= {"ward": ward * 1.0, "planned": planned, "given": given}
        columns |= {"second": second} if size == 3 else {}
        names = {"ward", "planned", "given", "second"} if size == 3 else {"ward", "planned", "given"}
        assert set(self.named(columns)) == (names if unlike in (1, 2) else set())

    def test_a_value_of_so_few_rows_that_some_sum_is_always_alone(self) -> None:
        """Of twelve rows with a value and as many columns some sum is 0 in ten of them: that is nobody's."""
        random, n = np.random.default_rng(6), 400
        columns = {f"m{j}": random.normal(size=n) for j in range(12)} | {"ill": (np.arange(n) < 12) * 1.0}
        assert self.named(columns) == ()
        columns["dose"] = np.where(np.arange(n) < 11, 0.0, random.normal(size=n))
        assert self.named(columns) == ("ill", "dose")

    def test_products_of_more_columns_than_rows_allow(self) -> None:
        """Those of few values are multiplied, and two that go together, and all with a value of one."""
        random, n = np.random.default_rng(7), 300
        columns = {f"m{j}": random.normal(size=n) for j in range(30)}
        planned = (random.normal(75, 12, n) * 1.5).round() * 4
        given, strokes = np.where(random.random(n) < 0.3, 0.75 * planned, planned), (random.random(n) < 0.4) * 1.0
        assert self.named(columns | {"strokes": strokes, "planned": planned, "given": given}) == ()
        given[9], strokes[7] = planned[9] / 2, 2
        assert self.named(columns | {"strokes": strokes}) == ("strokes",)
        assert self.named(columns | {"planned": planned, "given": given}) == ("planned", "given")
        other = np.where(random.random(n) < 0.3, planned - random.integers(5, 90, n), planned)
        a, b = random.random((2, n)) < 0.5
        b = np.where(other != planned, a, b)
        both = columns | {"planned": planned, "given": other, "a": a * 1.0}
        assert self.named(both | {"b": b * 1.0}) == ()
        b[np.flatnonzero(other != planned)[0]] ^= True  # of those with another dose one has not both
        assert self.named(both | {"b": b * 1.0}) == ("planned", "given", "a", "b")
        ill = (np.arange(n) < 60) * 1.0
        dose = np.where((ill == 0) | (np.arange(n) == 5), random.normal(size=n), 0.0)
        assert self.named(columns | {"ill": ill, "dose": dose}) == ("ill", "dose")

    @pytest.mark.parametrize("few", [1, 2, 3])
    def test_rows_of_unequal_weight_count_by_their_effective_number(self, few: int) -> None:
        random, n = np.random.default_rng(13), 400
        columns = {"x": random.normal(size=n), "ill": (np.arange(n) < 30) * 1.0}
        columns["dose"] = np.where((columns["ill"] == 0) | (np.arange(n) < few + 3), random.normal(size=n), 0.0)
        weights = np.where((np.arange(n) >= few) & (np.arange(n) < few + 3), 1e-3, 1.0)
        assert found(table(**columns), 10, weights) == ((("ill", "dose"), few + 1) if few < 3 else None)
        assert found(table(**columns), 10) is None

    @pytest.mark.parametrize("n", [100, 850])
    def test_more_rows_that_weigh_as_few(self, n: int) -> None:
        """Of four rows one has most of the weight."""
        random = np.random.default_rng(14)
        columns = {f"x{j}": random.normal(size=n) for j in range(4)}
        columns |= {"ill": (np.arange(n) < 34) * 1.0, "other": ((np.arange(n) >= 30) & (np.arange(n) < 70)) * 1.0}
        assert found(table(**columns)) is None
        weights = np.where((np.arange(n) > 30) & (np.arange(n) < 34), 0.2, random.uniform(0.9, 1.0, n))
        assert found(table(**columns), 10, weights) == (("ill", "other"), 3)


def space(X: np.ndarray) -> directions.Space:
    parts = [standardised.Part(f"x{j}", x, None) for j, x in enumerate(X.T)]
    every = np.arange(1 + X.shape[1])
    design = standardised.design(parts, np.ones(len(X)))
    return directions.Space.of_products(design, np.arange(len(X)), every, np.array([0, *(len(np.unique(x)) for x in X.T)]))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("few", [0, 1, 2, 3])
def test_groups_of_rows_find_what_all_rows_do(seed: int, few: int) -> None:
    """Of many rows, sums that are 0 in a group of them are looked at alone."""
    random = np.random.default_rng(seed)
    X = np.round(random.standard_normal((600, 5)), 1)
    X[:, 4] = X[:, 0] * np.where(random.random(600) < 0.5, 1.0, 0.75)  # and a quadratic is 0, but in a few rows
    X[random.choice(600, few, replace=False), 4] += 1.0 + np.arange(few)
    products = space(X)
    assert len(X) > directions.OF_EACH * 3 * len(products.left)
    grouped, whole = products.fewest(3), products._within(None, 3, 0)
    assert (grouped is None, whole is None) == (few in (0, 3),) * 2
    if grouped is not None and whole is not None:
        assert grouped.n_rows == whole.n_rows <= few


def test_searches_side_by_side_end_where_each_would_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(3)
    columns = np.round(random.standard_normal((200, 8)) ** 3, 1)
    columns[:, 0], columns[[1, 72, 150], 0] = 0.0, [1.0, 2.0, 3.0]
    rows = np.linalg.qr(columns)[0]
    together = directions.alone(rows, (rows**2).sum(axis=1), 5, 1.0)
    monkeypatch.setattr(directions, "HELD_AT_ONCE", 1)
    alone = directions.alone(rows, (rows**2).sum(axis=1), 5, 1.0)
    assert set(together[0].tolist()) == set(alone[0].tolist()) == {3}
    np.testing.assert_allclose(np.abs(together[1] @ alone[1].T), 1.0)


@pytest.mark.parametrize("k", [1, 2])
def test_two_rows_that_are_alone_in_a_sum_are_found_for_certain(k: int) -> None:
    """Of hardly more rows than columns, against every pair of rows."""
    random = np.random.default_rng(k)
    for _ in range(20):
        X = random.standard_normal((24, 18))
        X[:, 17] = X[:, :17] @ random.integers(-2, 3, 17)
        X[random.choice(24, k, replace=False), 17] += 1.0 + np.arange(k)
        Q = np.linalg.qr(X)[0]
        pairs = [np.linalg.norm(Q[[i, j]], 2) for i in range(24) for j in range(i)]
        assert max(pairs) == pytest.approx(1.0, abs=1e-9)
        _, u = directions.alone(Q, (Q**2).sum(axis=1), 2, 1.0)
        assert (np.sort((Q @ u[0]) ** 2)[:-k] < 1e-12).all()
