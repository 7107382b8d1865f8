"""The prior of effects gives the same predictors as the effects' own columns do, whatever the formula's columns are."""

from __future__ import annotations

import numpy as np
import pytest

from fedkern.errors import JobError
from fedkern.models.encoding import Column, Encoding
from fedkern.models.formula.expansion import Formula, Known
from fedkern.models.formula_effects import coefficients_of_effects, units_of_effects
from fedkern.models.mixed import Layout, Prior

LEVELS = {"g": ("a", "b", "c"), "h": ("u", "v")}


class Rows:
    """Cells of 400 rows."""

    def __init__(self) -> None:
        rng = np.random.default_rng(2)
        self.x, self.z = rng.normal(30, 2, 400), rng.normal(-3, 0.5, 400)
        self.labels = {"g": rng.integers(3, size=400), "h": rng.integers(2, size=400)}

    def numbers(self, name: str) -> np.ndarray:
        return {"x": self.x, "z": self.z}[name]

    def codes(self, name: str, levels: tuple[str, ...]) -> np.ndarray:
        return self.labels[name]

    def fault(self, bad: np.ndarray, column: str, reason: str, remedy: str) -> None:
        raise AssertionError(reason)


ROWS = Rows()
X, Z = (ROWS.x - ROWS.x.mean()) / ROWS.x.std(), (ROWS.z - ROWS.z.mean()) / ROWS.z.std()
G, H = np.eye(3)[ROWS.labels["g"]], np.eye(2)[ROWS.labels["h"]]
GH = (G[:, :, np.newaxis] * H[:, np.newaxis]).reshape(400, -1)


def encoded(*terms: tuple[str, ...]) -> tuple[Encoding, np.ndarray]:
    """The encoding of a formula's terms with the rows' own centres and scales, and its standardised columns."""
    formula = Formula(terms).knowing({"x": Known(), "z": Known(), **{name: Known(levels) for name, levels in LEVELS.items()}})
    matrix = formula.matrix(ROWS, 400)
    columns = [
        Column(one.name, center=0.0, scale=1.0) if one.indicator else Column(one.name, center=own.mean(), scale=own.std())
        for one, own in zip(formula.made, matrix.T)
    ]
    standard = (matrix - [one.center for one in columns]) / [one.scale for one in columns]
    return Encoding(tuple(columns), "y", formula=formula), np.column_stack([np.ones(400), standard])


@pytest.mark.parametrize(
    ("terms", "effects"),
    [
        ([("x",), ("z",), ("x", "z")], [X, Z, X * Z]),
        ([("x",), ("I(x ** 2)",)], [X, X**2]),
        ([("x",), ("z",), ("I(x ** 2)",), ("x", "z"), ("I(x * x)", "z")], [X, Z, X**2, X * Z, X**2 * Z]),
        ([("poly(x, 3, raw=True)",)], [X, X**2, X**3]),
        ([("g",)], [G]),
        ([("C(g, contr.sum)",)], [G]),
        ([("g",), ("h",), ("g", "h")], [G, H, GH]),
        ([("x",), ("g",), ("x", "g")], [X, G, G * X[:, np.newaxis]]),
        ([("x",), ("g",), ("x", "C(g, contr.sum)")], [X, G, G * X[:, np.newaxis]]),
    ],
)
def test_predictors_are_those_of_effects(terms: list[tuple[str, ...]], effects: list[np.ndarray]) -> None:
    encoding, columns = encoded(*terms)
    K = coefficients_of_effects(encoding, of_constant=True)
    assert K is not None
    wanted = np.column_stack([np.ones(400), *effects])
    by_columns = {tuple(np.round(column, 6)) for column in wanted.T}
    assert {tuple(np.round(column, 6)) for column in (columns @ K).T} <= by_columns
    sd = np.array([5.0, *[2.5] * (K.shape[1] - 1)])
    usual = Prior.usual(Layout(encoding.names, "bernoulli"), intercept_centre=0.7)
    prior = usual.of_effects(K)
    assert (prior.mean == usual.mean).all()
    assert (prior.sd == usual.sd).all()  # of which the box of secure sums is made
    _, gradient, precision = prior.curvature(np.zeros(encoding.size))
    assert np.linalg.inv(precision) == pytest.approx((K * sd**2) @ K.T, rel=1e-5, abs=1e-8)
    # At 0 the slope is that of N(m, S), whose mean is the intercept's.
    assert np.linalg.solve(precision, gradient) == pytest.approx([0.7, *[0.0] * (encoding.size - 1)], abs=1e-5)
    step = 1e-6 * np.eye(encoding.size)
    difference = (prior.values(step) - prior.values(-step)) / 2e-6
    assert difference == pytest.approx(gradient, rel=1e-4, abs=1e-6)
    log_density = -0.5 * np.linalg.slogdet(2 * np.pi * (K * sd**2) @ K.T)[1]
    assert prior.values(np.linalg.solve(precision, gradient)[np.newaxis])[0] == pytest.approx(log_density, rel=1e-6)


@pytest.mark.parametrize("terms", [[("x",), ("z",)], [("x", "z")], [("x",), ("log(x)", "x")]])
def test_other_columns_are_their_own_effects(terms: list[tuple[str, ...]]) -> None:
    assert coefficients_of_effects(encoded(*terms)[0], of_constant=True) is None


def test_a_product_with_levels_leaves_its_constant_to_nobody() -> None:
    encoding, _ = encoded(("x",), ("g",), ("x", "g"))
    K = coefficients_of_effects(encoding, of_constant=False)
    assert K is not None
    assert K[-2:, -2:] == pytest.approx(np.eye(2))
    with pytest.raises(JobError, match=r"take these about their mean in each term \(x 29.9\)"):
        coefficients_of_effects(encoding, of_constant=True, most=5.0)  # 30 / 2 is more than that


def test_a_column_in_brackets_is_that_column() -> None:
    """Of `I(x) + I(x^2)` the square follows from x as of `x + I(x^2)`."""
    plain, bracketed = (encoded((x,), ("I(x ** 2)",))[0] for x in ("x", "I(x)"))
    K = coefficients_of_effects(plain, of_constant=True)
    assert K is not None
    assert coefficients_of_effects(bracketed, of_constant=True) == pytest.approx(K)


def test_units_of_effects() -> None:
    encoding, _ = encoded(("x",), ("g",), ("I(x ** 2)",), ("x", "z"))
    scale = encoding.columns[3].scale
    assert units_of_effects(encoding) == pytest.approx([1, 1, 1, 1, ROWS.x.var() / scale, 1])
