"""What the job file may say of columns, and the agreed encoding as JSON."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkern.errors import JobError
from fedkern.models.encoding import Column, Encoding, Spec


def test_declared_columns():
    assert Column.declared("age", {"lower": 20.0, "upper": 80}) == Column("age", center=50.0, scale=30.0)
    assert Column.declared("age", {"center": 40, "scale": 10.0, "levels": None}) == Column("age", center=40.0, scale=10.0)
    assert Column.declared("job", {"levels": ["smith", " clerk "]}) == Column("job", "categorical", ("clerk", "smith"))
    assert Column.declared("zip", {"kind": "categorical"}) == Column("zip", "categorical")
    assert Column.declared("zip", {}) == Column("zip")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"unit": "years"}, "unit: unknown key; there are center, kind, levels, lower, scale, upper"),
        ({"kind": "text"}, 'kind: needs "numeric" or "categorical", got \'text\''),
        ({"center": 1.0}, "needs both center and scale"),
        ({"center": 1.0, "scale": 0.0}, r"scale: needs > 0, got 0\.0"),
        ({"center": float("nan"), "scale": 1.0}, "center: needs a finite number, got nan"),
        ({"center": "1", "scale": 1.0}, "center: needs a finite number, got '1'"),
        ({"lower": 3, "upper": 3}, "needs lower < upper, both, and neither center nor scale beside them"),
        ({"lower": 3}, "needs lower < upper"),
        ({"lower": 3, "upper": 4, "scale": 1}, "needs lower < upper, both, and neither"),
        ({"levels": []}, "levels: needs at least one level, none empty, none twice"),
        ({"levels": ["a", "a "]}, "none twice"),
        ({"levels": "ab"}, "levels: needs a list of texts, got 'ab'"),
        ({"levels": [1.5]}, "levels: needs a list of texts"),
        ({"levels": ["a"], "scale": 1.0}, "scale: a categorical column is not standardised"),
        ({"levels": ["a"], "kind": "numeric"}, "levels: a numeric column has none"),
    ],
)
def test_faults_of_a_declared_column(table, message):
    with pytest.raises(JobError, match=rf"\[data\.columns\.age\].*{message}"):
        Column.declared("age", table)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"offset": "y"}, "must be different columns"),
        ({"family": "poisson", "positive": "yes"}, 'only family = "bernoulli" has a positive label'),
        ({"weight": "w", "columns": {"w": Column("w")}}, r"\[data\.columns\.w\]: this column is not a covariate"),
    ],
)
def test_faults_of_a_spec(change, message):
    with pytest.raises(JobError, match=message):
        Spec("y", **change)


@pytest.mark.parametrize(
    ("columns", "change", "message"),
    [
        (
            (Column("age"),),
            {},
            r"column 'age': not complete; give center and scale, or lower and upper in \[data\.columns\.age\]",
        ),
        ((Column("job", "categorical"),), {}, r"column 'job': not complete; give levels = \[\.\.\.\]"),
        ((Column("intercept", center=0.0, scale=1.0),), {}, "two coefficients would be called 'intercept'; rename the column"),
        (
            (Column("a=b", center=0.0, scale=1.0), Column("a", "categorical", ("b",))),
            {},
            "two coefficients would have one name, of a column and of another one's level; rename a column",
        ),
        ((), {"positive": "ja", "labels": ("no", "yes")}, r"positive = 'ja' is none of the 2 labels of 'y'; name one of them"),
    ],
)
def test_faults_of_an_encoding(columns, change, message):
    with pytest.raises(JobError, match=message):
        Encoding(columns, "y", **change)


TEXTS = st.text(min_size=1, max_size=8).filter(lambda text: text == text.strip() and text)
FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(
    numeric=st.lists(st.tuples(FINITE, FINITE.filter(lambda x: x > 0)), max_size=3),
    categorical=st.lists(st.lists(TEXTS, min_size=1, max_size=4, unique=True), max_size=3),
    positive=st.none() | TEXTS,
    intercept=st.booleans(),
)
def test_json_round_trip_is_exact(numeric, categorical, positive, intercept):
    columns = [Column(f"n{j}", center=center, scale=scale) for j, (center, scale) in enumerate(numeric)]
    columns += [Column(f"c{j}", "categorical", tuple(sorted(levels))) for j, levels in enumerate(categorical)]
    encoding = Encoding(
        tuple(columns), "y", positive=positive, labels=(positive, "\0other") if positive else (), intercept=intercept
    )
    assert Encoding.from_json(encoding.to_json()) == encoding
    assert Encoding.from_json(encoding.to_json()).to_json() == encoding.to_json()
    assert len(encoding.names) == encoding.size == len(encoding.affine())


@pytest.mark.parametrize(
    "text", [b"{}", b'{"columns":[{"name":"x"}]}', b"[]", b"nonsense", b'{"columns":[{"name":"x","levels":[]}]}']
)
def test_what_is_no_encoding(text):
    with pytest.raises(ValueError, match=r"not an encoding|Expecting value|must be|indices"):
        Encoding.from_json(text)


@pytest.mark.parametrize("change", [{"response": 3}, {"intercept": None}, {"columns": [{"name": "x", "center": 0, "scale": -1}]}])
def test_fields_of_another_type(change):
    plain = Encoding((Column("x", center=0.0, scale=1.0),), "y").to_dict()
    assert Encoding.from_dict(plain).names == ("intercept", "x")
    with pytest.raises(ValueError, match="not an encoding"):
        Encoding.from_dict(plain | change)
