"""Formulas have the column space that R's `lm` has: its terms, its intercept, its contrasts, its constants of curves.

The numbers are ranks and residual sums of squares of lm(y ~ FORMULA) by R 4.2.2 with splines 4.2.2, of the rows of `table`. Some
formulas were written by hand, others by a random generator.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

pytest.importorskip("formulaic", reason='formulaic is not installed: pip install "fedkern[formula]"')

from fedkern.errors import JobError
from fedkern.jobs.formula import reading
from fedkern.labels import in_order
from fedkern.models.formula.expansion import Formula, Known

OF_R: dict[str, tuple[int, float]] = {
    "(x + 0)": (1, 310.0955417),
    "x + (z - 1)": (2, 98.17064612),
    "(0 + x + z)^2": (3, 97.64163795),
    "(x + z - 1)^2": (3, 97.64163795),
    "(g - 1):x": (3, 308.4532487),
    "x:z + g:x": (4, 71.42220973),
    "x*z*g - x": (11, 67.44398948),
    "x*z*h - z": (7, 60.71885839),
    "z + x:z + x:g": (5, 70.47116936),
    "x:z + z:h + g": (5, 68.19965709),
    "h:x + g:h": (7, 65.45408205),
    "x*z*h - (x + h)": (6, 65.41125786),
    "x*z*g - x - 1": (11, 67.44398948),
    "x*z*g*h - x": (23, 55.0940216),
    "x*z*g*h - x:z:g:h - x": (21, 56.36203833),
    "h:x + h:z + g:h": (9, 62.08764208),
    "g:ns(x, knots=c(-0.4,0.5), Boundary.knots=c(-1,1))": (10, 63.29351388),
    "ns(x, knots=c(-0.4,0.5), Boundary.knots=c(-1,1)) - 1": (3, 85.69442702),
    "bs(z, knots=c(2,3), Boundary.knots=c(1,5)) - 1": (5, 98.94932009),
    "ns(x, knots=c(-0.4,0.5), Boundary.knots=c(-1,1)):z": (4, 71.90400893),
    "ns(x, knots=c(-0.4,0.5), Boundary.knots=c(-1,1)):h + bs(z, knots=c(2,3), Boundary.knots=c(1,5)):h": (17, 56.19028494),
    "g*ns(x, knots=c(-0.4,0.5), Boundary.knots=c(-1,1))": (12, 63.1988626),
    "g*poly(x, 2)": (9, 64.11062561),
    "g:bs(z, knots=c(2,3), Boundary.knots=c(1,5)) - 1": (15, 94.96849915),
    "factor(k)": (3, 92.87608468),
    "factor(k)*x": (6, 67.08067173),
    "x + factor(k):z - 1": (4, 97.50497078),
    "g:z - 1": (3, 122.5150687),
    "(g:x):(log(w):log(w))": (4, 88.35978906),
    "log(w)/z + g:z": (5, 91.37774211),
    "(h - (z + bs(z, knots=c(2,3), Boundary.knots=c(1,5))))*((factor(k):h)*g + log(w)) - 1": (20, 74.57563371),
    "z/(z + 0)": (1, 123.5611331),
    "I(w^(1/3))": (2, 93.39737657),
    "I(w^2^0.5) + I(w^-(1/2))": (3, 92.53979911),
    "(g*x + g:(bs(z, knots=c(2,3), Boundary.knots=c(1,5))) + (log(w):factor(k)):factor(k))^2": (90, 17.92321014),
    "bs(z, knots=c(2,3), Boundary.knots=c(1,5))": (6, 91.64704953),
    "(factor(k) + factor(k)*g + (x + h):g:factor(k))^2": (36, 47.66148454),
    "(bs(z, knots=c(2,3), Boundary.knots=c(1,5)) + log(w))*(h - x) + 0": (14, 84.73417646),
    "g*factor(k) + h": (10, 86.42072056),
    "(log(w) + x)*x:log(w) + 0": (3, 309.618486),
    "factor(k):x + g*log(w)": (9, 66.12500494),
    "h*factor(k) + log(w)*z": (9, 89.55861765),
    "log(w)/h": (3, 93.44193205),
    "g/(bs(z, knots=c(2,3), Boundary.knots=c(1,5)) + h:factor(k))": (33, 63.70027772),
    "(factor(k):h)*(z - 1)": (12, 82.41268165),
    "x*(factor(k) + z + (x + 0))": (8, 66.25650314),
    "g*(x - x)": (3, 93.03988552),
    "g:(z - x)": (4, 91.76058984),
    "(ns(x, knots=c(-0.4,0.5), Boundary.knots=c(-1,1)))/g + log(w)*z": (13, 62.01512504),
    "(z:z):(z - z)": (1, 93.72458904),
    "(ns(x, knots=c(-0.4,0.5), Boundary.knots=c(-1,1)) + h):x + g": (7, 65.49465848),
    "(ns(x, knots=c(-0.4,0.5), Boundary.knots=c(-1,1)))*h": (8, 64.16231924),
    "((g*x):((g + h)^2))/((h + g/log(w))^2)": (18, 62.31537352),
    "z:(factor(k) + h)": (5, 87.37360159),
    "((bs(z, knots=c(2,3), Boundary.knots=c(1,5))):log(w) - (x - g))/z:factor(k)": (19, 89.24680991),
    "factor(k) + 0": (3, 92.87608468),
    "(h*g)*(factor(k) + z)": (24, 68.01172777),
    "(z + 0)*(factor(k) + h)": (8, 84.67186114),
    "x:log(w) - (g + z)": (2, 93.70232979),
    "(x - 1):x - factor(k)": (1, 310.0955417),
    "log(w)*log(w) + log(w)*x": (4, 69.59998008),
    "(x - z):h": (3, 68.51157315),
    "(ns(x, knots=c(-0.4,0.5), Boundary.knots=c(-1,1)))*(x + h)": (11, 60.18610322),
    "((log(w) + 0))*(ns(x, knots=c(-0.4,0.5), Boundary.knots=c(-1,1))) + x/((log(w) - 1))": (8, 65.97604766),
    "(factor(k) + ns(x, knots=c(-0.4,0.5), Boundary.knots=c(-1,1)) - 1)": (6, 66.30623327),
    "z + factor(k)*(x + z) - ((x:(ns(x, knots=c(-0.4,0.5), Boundary.knots=c(-1,1))))/(z*h))": (9, 66.08549225),
}


def table() -> dict[str, Any]:
    i = np.arange(120)
    x, z, w = np.sin(1.7 * i) + 0.1 * np.cos(5 * i), 3 + 1.9 * np.cos(2.3 * i + 1), np.exp(np.sin(0.9 * i + 2))
    g, h = np.array([*"abc"])[(i * 7 + i // 5) % 3], np.array([*"uv"])[(i + i // 3) % 2]
    k = np.array(["2", "10", "30"])[(i // 2 + i // 7) % 3]
    mean = 1 + 0.5 * x + 0.3 * (g == "b") * x - 0.4 * (h == "v") + 0.2 * z * (h == "v") + 0.1 * (k == "10") + 0.5 * x**2
    return {"x": x, "z": z, "w": w, "g": g, "h": h, "k": k, "y": mean + np.sin(12.9898 * i * i)}


class Rows:
    """The rows as a formula reads them."""

    def __init__(self) -> None:
        self.table = table()

    def numbers(self, name: str) -> np.ndarray:
        return np.asarray(self.table[name])

    def codes(self, name: str, levels: tuple[str, ...]) -> np.ndarray:
        return np.array([levels.index(cell) for cell in self.table[name]])

    def fault(self, bad: np.ndarray, column: str, reason: str, remedy: str) -> None:
        raise AssertionError((column, reason, remedy))


def of(text: str) -> Formula:
    """Reads a formula as R has it, with what all rows say of its columns."""
    ends = r"lower_bound=\1, upper_bound=\2, extrapolation='extend'"
    text = re.sub(r"Boundary\.knots=c\(([^,]*),([^)]*)\)", ends, text)
    columns = table()
    known = {name: Known(center=columns[name].mean(), scale=columns[name].std()) for name in "xzw"}
    known |= {name: Known(tuple(in_order({*columns[name].tolist()}))) for name in "ghk"}
    formula = reading.read(f"y ~ {text}").formula.knowing(known)
    formula.refuse_without_constant()
    return formula


@pytest.mark.parametrize("text", OF_R)
def test_the_fit_is_that_of_lm(text: str) -> None:
    formula, y = of(text), table()["y"]
    X = np.column_stack([np.ones((len(y), int(formula.intercept))), formula.matrix(Rows(), len(y))])
    rank, rss = OF_R[text]
    X /= np.linalg.norm(X, axis=0)
    left, values, _ = np.linalg.svd(X, full_matrices=False)
    left = left[:, values > 1e-9 * values.max(initial=0.0)]
    assert left.shape[1] == rank
    assert float(((y - left @ (left.T @ y)) ** 2).sum()) == pytest.approx(rss, rel=1e-8)


@pytest.mark.parametrize(
    ("text", "add"),
    [
        ("g:poly(x, 2)", "add g,"),
        ("poly(x, 2) - 1", "add the intercept,"),
        ("cr(x, df=3):h", "add h,"),
        ("g + h + g:h:cs(x, df=3)", r"add g \* h,"),
        ("ns(x, 3) - 1", "add the intercept,"),
        ("z:bs(x, df=4)", "add z,"),
    ],
)
def test_a_curve_without_its_constant_is_refused_where_r_has_another_one(text: str, add: str) -> None:
    with pytest.raises(JobError, match=rf"the constant of .* is not in the model, and R has another one: {add}"):
        of(text)


@pytest.mark.parametrize(
    "text",
    [
        "g * poly(x, 2)",
        "g:poly(x, 2, raw=True)",
        "0 + g + cs(x, df=3)",
        "h + cr(x, df=3):h",
        "bs(x, df=6, include_intercept=True) - 1",
    ],
)
def test_a_curve_with_its_constant_is_taken(text: str) -> None:
    assert of(text).made


@pytest.mark.parametrize("text", ["x - -z", "x + -z", "(x - -z):g", "x - +z"])
def test_two_signs_are_refused(text: str) -> None:
    with pytest.raises(JobError, match="two signs one after another; write one of them"):
        reading.read(f"y ~ {text}")


def test_a_minus_sign_that_r_has_is_taken() -> None:
    terms = {text: reading.read(f"y ~ {text}").formula.text for text in ("x + -1", "-1 + x", "x - 0", "I(x - -z)", "x - (-z)")}
    assert [*terms.values()] == ["0 + x", "0 + x", "1 + x", "1 + I(x - -z)", "1 + x"]


def test_columns_of_ns_are_zero_at_the_lower_bound() -> None:
    """A stored formula says so: of one without the word the columns were others, and so is its result."""
    formula = of("ns(x, knots=c(-0.4,0.5), Boundary.knots=c(-1,1))")
    rows = Rows()
    rows.table["x"] = np.full(120, -1.0)
    np.testing.assert_allclose(formula.matrix(rows, 120), 0, atol=1e-14)
    plain = json.loads(json.dumps(formula.to_dict()))
    assert Formula.from_dict(plain).text == formula.text
    del plain["anchored"]
    with pytest.raises(ValueError, match="run its job again"):
        Formula.from_dict(plain)
