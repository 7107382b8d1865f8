"""Columns of formulas: those of formulaic on all rows together, given the same state, and what is refused before it is read."""

from __future__ import annotations

import json
import math
import random
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("formulaic", reason='formulaic is not installed: pip install "fedkern[formula]"')

import formulaic

from fedkern.errors import JobError
from fedkern.jobs.formula import reading
from fedkern.models.formula.expansion import Formula, Known
from fedkern.models.formula.factors import NATURAL
from support.refusal import refusal

KNOWN = {
    "a": Known(center=0.1, scale=1.2),
    "b": Known(center=4.0, scale=3.0),
    "log(b)": Known(center=1.0, scale=0.8),
    "s": Known(("f", "m")),
    "g": Known(("x", "y", "z")),
    "h": Known(("p", "q")),
}
FORMULAS = (
    *("1", "a", "a + s", "a * s", "0 + s", "s - 1 + a", "0 + s + g", "s:g", "s:g - 1", "g:a", "0 + g:a", "a:b:s + h", "g / a"),
    *("a * g * s", "s + g + s:g", "(a + s + g)**2", "(a + s + g)**3 - a:s:g", "g * s * h", "0 + g * h", "C(s)", "h:g + a"),
    *("log(b)", "scale(a) + center(b)", "scale(log(b)) * g", "I(a**2) + a", "I(center(a)**2):s", "I(a / b + 2 * b - 1)"),
    *("exp(a) + log10(b)", "C(g, contr.sum) * a", "C(g, contr.treatment('y')) + s", "C(g, contr.sum):C(s, contr.sum)"),
    *(
        "bs(a, df=5, extrapolation='clip')",
        "bs(a, df=4, degree=2, extrapolation='clip') * s",
        "0 + g + bs(a, df=3, extrapolation='extend')",
    ),
    *("bs(a, knots=[-1, 0, 1], lower_bound=-5, upper_bound=5)", "bs(a, df=6, include_intercept=True, extrapolation='extend')"),
    *(
        "0 + bs(a, df=6, include_intercept=True, extrapolation='extend') + g",
        "cs(b, df=4)",
        "cr(b, knots=[1, 3, 5]) + g * cs(a, df=3)",
    ),
    *("poly(a, 3)", "poly(log(b), 2):s", "cs(log(b), df=3, extrapolation='clip') * g"),
)


@dataclass
class Rows:
    """A data frame as a formula reads it."""

    frame: pd.DataFrame
    faults: list[tuple[str, str, int]] = field(default_factory=list)

    def numbers(self, name: str) -> np.ndarray:
        return self.frame[name].to_numpy(np.float64)

    def codes(self, name: str, levels: tuple[str, ...]) -> np.ndarray:
        return np.array([levels.index(cell) if cell in levels else -1 for cell in self.frame[name]])

    def fault(self, bad: np.ndarray, column: str, reason: str, remedy: str) -> None:
        self.faults.append((column, reason, int(bad.sum())))


def table(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {"a": rng.normal(size=n), "b": rng.normal(2, 1, n) ** 2 + 0.1, "s": rng.choice(["f", "m"], n)}
    return pd.DataFrame(columns | {"g": rng.choice(["x", "y", "z"], n), "h": rng.choice(["p", "q"], n)})


def of(text: str, known: dict[str, Known] = KNOWN) -> Formula:
    return reading.read(f"response ~ {text}").formula.knowing(known)


def state(formula: Formula) -> dict[str, dict[str, Any]]:
    """What formulaic's transformations remember, from what is agreed."""
    found: dict[str, dict[str, Any]] = {}
    for text, factor in formula.factors.items():
        if factor.call in ("bs", *NATURAL):
            knots, (low, high) = formula._knots(factor)
            found[text] = {"lower_bound": low, "upper_bound": high}
            if factor.call == "bs":
                degree = int(float(str(factor.option.get("degree", 3))))
                found[text]["knots"] = [low] * (degree + 1) + [*knots] + [high] * (degree + 1)
            else:
                found[text] |= {"knots": [low, *knots, high], "constraints": np.ones((1, len(knots) + 2)), "cyclic": False}
        elif factor.call == "poly":
            center, scale = formula.constants(factor.node.text)
            norms = {k: math.factorial(k) * scale ** (2 * k) for k in range(9)}
            found[text] = {"alpha": dict.fromkeys(range(9), center), "norms2": norms}
        for node in factor.node.walk():
            if node.what in ("center", "scale"):
                center, scale = formula.constants(node.of[0].text)
                found[node.text] = {"ddof": 1, "center": center, "scale": scale if node.what == "scale" else None}
    return found


@pytest.mark.parametrize("text", FORMULAS)
@pytest.mark.filterwarnings("ignore")  # what formulaic says of pandas is its own
def test_columns_are_those_of_formulaic(text: str) -> None:
    formula, frame = of(text), table(80, 1)
    rows = Rows(frame)
    X = formula.matrix(rows, len(frame))
    spec = formulaic.ModelSpec(formula=formulaic.Formula(text), transform_state=state(formula))
    wanted = spec.get_model_matrix(frame)
    assert [*["Intercept"] * formula.intercept, *(one.name for one in formula.made)] == [*wanted.columns]
    np.testing.assert_allclose(X, wanted.to_numpy(np.float64)[:, int(formula.intercept) :], rtol=0, atol=1e-12)
    assert not rows.faults
    X = np.column_stack([np.ones(len(X))] * formula.intercept + [X])
    assert np.linalg.matrix_rank(X) == X.shape[1]  # each formula here has full rank


def test_holders_with_other_labels_have_the_columns_of_the_pooled_rows() -> None:
    formula, frame = of("g * s + cs(b, df=3):h"), table(90, 2)
    whole = formula.matrix(Rows(frame), len(frame))
    parts = [frame[(frame.g != "z") & (frame.s == "f")], frame[(frame.g == "z") | (frame.s != "f")]]
    for part in parts:
        np.testing.assert_array_equal(formula.matrix(Rows(part), len(part)), whole[part.index])


@pytest.mark.parametrize("text", FORMULAS)
def test_a_stored_formula_makes_the_same_columns(text: str) -> None:
    formula, frame = of(text), table(30, 3)
    again = Formula.from_dict(json.loads(json.dumps(formula.to_dict())))
    assert [one.name for one in again.made] == [one.name for one in formula.made]
    np.testing.assert_array_equal(again.matrix(Rows(frame), 30), formula.matrix(Rows(frame), 30))
    assert again.text == formula.text


@pytest.mark.parametrize(
    "plain", [{}, {"terms": [["a.__class__"]]}, {"terms": [["open('x')"]]}, {"terms": 3}, {"known": {"a": {"scale": -1}}}]
)
def test_what_is_no_stored_formula(plain: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not a formula"):
        Formula.from_dict({**of("a").to_dict(), **plain} if plain else plain)


def test_bounds_of_a_column_hold_all_its_values() -> None:
    rng = np.random.default_rng(4)
    known = KNOWN | {"b": Known(center=4.0, scale=3.0, ends=(0.5, 7.0))}
    frame = table(4000, 5).assign(a=rng.uniform(-1.1, 1.3, 4000), b=rng.uniform(0.5, 7, 4000))
    for text in FORMULAS:
        formula = of(text, known)
        X = formula.matrix(Rows(frame), len(frame))
        for one, column in zip(formula.made, X.T):
            ends = formula.ends(one)
            if "a / b" in text:
                continue
            assert ends is not None, one.name
            assert ends[0] - 1e-3 <= column.min(), one.name
            assert column.max() <= ends[1] + 1e-3, one.name
            assert ends[1] - ends[0] <= 30 * np.ptp(column) + 1e-12, one.name
    assert of("log(a)").ends(of("log(a)").made[0]) is None
    assert of("I(1 / a)").ends(of("I(1 / a)").made[0]) is None
    assert of("I(a**2)").ends(of("I(a**2)").made[0]) == pytest.approx((0, 1.3**2))


@pytest.mark.parametrize(
    ("text", "cells", "faults"),
    [
        ("log(a)", [1.0, 0.0, -1.0], [("a", "has no finite log(a)", 2)]),
        ("bs(a, df=3, lower_bound=0, upper_bound=2)", [1.0, 2.5, 2.0], [("a", "is outside of the bounds of", 1)]),
        ("bs(a, df=3, lower_bound=0, upper_bound=2, extrapolation='clip')", [1.0, 2.5, 2.0], []),
        ("bs(a, df=3)", [1.0, 2.5, 1e6], []),
        ("cs(a, df=3)", [1.0, 2.5, 1e6], []),
        ("exp(a)", [1.0, 2.5, 1e6], [("a", "has no finite exp(a)", 1)]),
        ("I(a**9)", [1.0, 2.5, 1e30], [("a", "is too large for I(a ** 9)", 1)]),
    ],
)
def test_a_cell_without_a_value_is_marked(text: str, cells: list[float], faults: list[tuple[str, str, int]]) -> None:
    rows = Rows(pd.DataFrame({"a": cells}))
    of(text).matrix(rows, len(cells))
    assert [(column, n) for column, _, n in rows.faults] == [(column, n) for column, _, n in faults]
    assert all(said.startswith(wanted) for (_, said, _), (_, wanted, _) in zip(rows.faults, faults))


def test_rows_beyond_agreed_bounds_count_as_at_a_bound_and_are_counted() -> None:
    rows = Rows(pd.DataFrame({"a": [0.0, 0.1 + 3 * 1.2, 50.0, -50.0]}))
    formula = of("bs(a, df=4)")
    X = formula.matrix(rows, 4)
    np.testing.assert_array_equal(X[1], X[2])
    assert formula.clipped(rows, 4) == {"bs(a, df=4)": 2}


def test_a_natural_spline_goes_on_in_a_line() -> None:
    far = pd.DataFrame({"a": [10.0, 20.0, 30.0]})
    X = of("cs(a, df=4)").matrix(Rows(far), 3)
    np.testing.assert_allclose(X[2] - X[1], X[1] - X[0], rtol=1e-12)


def test_labels_that_others_are_compared_with() -> None:
    formula = reading.read("y ~ g").formula
    assert [one.name for one in Formula(formula.terms, bases={"g": "y"}).knowing(KNOWN).made] == ["g[T.x]", "g[T.z]"]
    with refusal(JobError, "data.columns.g.reference", "w", "3"):
        Formula(formula.terms, bases={"g": "w"}).knowing(KNOWN)
    with pytest.raises(JobError, match=r"C\(g, contr.treatment\('w'\)\): 'w' is none of the 3"):
        of("C(g, contr.treatment('w'))")


def test_columns_may_be_called_by_words_of_python() -> None:
    formula = reading.read("y ~ log(lambda) * class + I(`from` / 2) + C(import, contr.treatment('class'))").formula
    assert ("log(lambda)", "class") in formula.terms
    assert formula.variables == ("lambda", "class", "from", "import")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("y ~ a", {"data": {"response": "y"}}),
        ("cbind(y, n - y) ~ a", {"data": {"response": "y", "trials": "n"}}),
        ("cbind(y, `not y`) ~ a", {"data": {"response": "y", "trials": "y + not y"}}),
        ("Surv(t, e) ~ a + strata(w) + offset(o)", {"data": {"time": "t", "event": "e", "strata": "w", "offset": "o"}}),
        ("y ~ a + offset(log(t))", {"data": {"response": "y", "offset": "log(t)"}}),
        ("y ~ a + offset(2*t^2)", {"data": {"response": "y", "offset": "2 * t ** 2"}}),
        ("Surv(s, t, e) ~ a", {"data": {"entry": "s", "time": "t", "event": "e"}}),
        ("y ~ a + (1 | ward)", {"data": {"response": "y"}, "random": {"group": "ward", "slopes": []}}),
        ("y ~ t + (t | `ward no`)", {"data": {"response": "y"}, "random": {"group": "ward no", "slopes": ["t"]}}),
        ("y ~ (1 + t + u|g) + t + u", {"data": {"response": "y"}, "random": {"group": "g", "slopes": ["t", "u"]}}),
    ],
)
def test_what_a_formula_says_of_other_keys(text: str, said: dict[str, Any]) -> None:
    found = reading.read(text)
    assert {"data": found.data, "random": found.random} == {"random": {}, **said}


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("y ~ a*b - a:b", "1 + a + b"),
        ("y ~ 0 + a", "0 + a"),
        ("y ~ a - 1", "0 + a"),
        ("y ~ I(2*a^2)", "1 + I(2 * a ** 2)"),
        ("y ~ (a + b)^2", "1 + a + b + a:b"),
        ("y ~ `a b` + log(`a b`)", "1 + `a b` + log(`a b`)"),
        ("y ~ bs(a,knots=c(1,2),lower_bound=0,upper_bound=3)", "1 + bs(a, knots=c(1, 2), lower_bound=0, upper_bound=3)"),
    ],
)
def test_the_canonical_text_of_terms(text: str, canonical: str) -> None:
    assert reading.read(text).formula.text == canonical


REFUSED = (
    "y ~ `1` + a",
    "y ~ a - `0`",
    *(
        "",
        "y",
        "y ~",
        "~ a",
        "y ~ a ~ b",
        "log(y) ~ a",
        "Surv(a) ~ b",
        "Surv(a, b == 1) ~ c",
        "cbind(a, a) ~ c",
        "cbind(a, b - d) ~ c",
        "cbind(a, b, d) ~ c",
        "y ~ .",
        "y ~ a b",
    ),
    *("y ~ a.__class__", "y ~ log(a.b)", "y ~ a.b()", "y ~ I(a.real)", "y ~ np.log(a)", "y ~ `__class__`", "y ~ I(__import__)"),
    *(
        "y ~ (lambda: 1)",
        "y ~ I(lambda x: x)",
        "y ~ a[0]",
        "y ~ I([x for x in a])",
        "y ~ I((x for x in a))",
        "y ~ f'{a}'",
        "y ~ I(f'{a}')",
    ),
    *(
        "y ~ open('x')",
        "y ~ eval('1')",
        "y ~ __import__('os').system('x')",
        "y ~ getattr(a, 'b')",
        "y ~ exec('a')",
        "y ~ {a}",
        "y ~ Q('a')",
    ),
    *(
        "y ~ a**99999999999999999999999",
        "y ~ (a + b)**50",
        "y ~ I(a**(10**10))",
        "y ~ I(2**10**10)",
        "y ~ I(a**9999999)",
        "y ~ I(9**9**9*a)",
    ),
    *("y ~ a if b else c", "y ~ I(a if b else c)", "y ~ I(a and b)", "y ~ I(a < b)", "y ~ I(a := 3)", "y ~ I(*a)", "y ~ I(a, b)"),
    *(
        "y ~ I(a // 2)",
        "y ~ I(~a)",
        "y ~ I(not a)",
        "y ~ I(a << 2)",
        "y ~ a @ b",
        "y ~ a; b",
        "y ~ a\\b",
        "y ~ \x00",
        "y ~ I(True)",
        "y ~ I(1j)",
    ),
    *(
        "y ~ I('x')",
        "y ~ I(None)",
        "y ~ log(1)",
        "y ~ log()",
        "y ~ log(a, b)",
        "y ~ 2",
        "y ~ 2:a",
        "y ~ 2*a",
        "y ~ 'text'",
        "y ~ lag(a)",
    ),
    *("y ~ bs(a, df=10**9)", "y ~ bs(a, df=1000000)", "y ~ bs(a, df='x')", "y ~ bs(a, df=2)", "y ~ cs(a)", "y ~ cs(a, df=1)"),
    *(
        "y ~ bs(a, knots=[3, 2])",
        "y ~ bs(a, knots=[1, 2], lower_bound=1.5)",
        "y ~ poly(a, 100)",
        "y ~ poly(a, 2, 3, 4)",
        "y ~ poly(a, degree=x)",
    ),
    *(
        "y ~ C(a, contr.poly)",
        "y ~ C(log(a))",
        "y ~ C(a, levels=['x'])",
        "y ~ I(bs(a, df=4))",
        "y ~ bs(bs(a, df=4), df=4)",
        "y ~ te(a, b)",
    ),
    *("y ~ log(a", "y ~ log(a))", "y ~ 'a", "y ~ `a", "y ~ a + +", "y ~ * a", "y ~ a %in% b", "y ~ a | b", "y ~ (a | b | c)"),
    *("y ~ (0 + a | b)", "y ~ (1 | client)", "y ~ - (1 | a)", "y ~ a * (1 | b)"),
    *(
        "y ~ offset(scale(t))",
        "y ~ offset(a * b)",
        "y ~ offset(bs(a, df=4))",
        "y ~ offset(a) + offset(b)",
        "y ~ strata(a, b)",
        "y ~ a - strata(b)",
        "y ~ " + "a + " * 250_000 + "a",
    ),
    *(
        "y ~ " + "(" * 1000 + "a" + ")" * 1000,
        "y ~ I(" + "-" * 300 + "a)",
        "y ~ I(" + "9" * 450 + " * a)",
        "y ~ I(" + "(a+" * 21 + "a" + ")" * 22,
    ),
    *("y ~ " + sign.join("abcdefghijklmnopqrstuvwxyz") for sign in "*:/"),
    "y ~ (a + b + c + d + e + f + g)**6",
)


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:40])
def test_what_is_no_formula_is_refused_by_one_short_sentence(text: str) -> None:
    began = time.process_time()
    with pytest.raises(JobError, match=r"^model\.formula: ") as fault:
        reading.read(text)
    assert len(str(fault.value)) < 350
    assert str(fault.value).isprintable()
    assert time.process_time() - began < 5  # of a millisecond: nothing is expanded before it is counted


def test_random_letters_are_a_formula_or_are_refused() -> None:
    draw = random.Random(6)
    letters = "yab~+-*:/()|[]{}'\"`,.=12^ \n#@!<>_lognCIbsé"
    read = 0
    for _ in range(4000):
        text = "y ~ " + "".join(draw.choice(letters) for _ in range(draw.randint(1, 25)))
        try:
            formula = reading.read(text).formula
        except JobError:
            continue
        assert all(factor.variables for factor in formula.factors.values())
        read += 1
    assert read > 50
