"""What users of R write: it works, or the error says what to write, and that works."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("formulaic", reason='formulaic is not installed: pip install "fedkern[formula]"')

from fedkern.errors import JobError
from fedkern.jobs.formula import reading

# As in R -> the canonical terms.
TAKEN = {
    "y ~ factor(x)": "1 + C(x)",
    "y ~ as.factor(x) + z": "1 + C(x) + z",
    "y ~ factor(x):z": "1 + C(x):z",
    "y ~ factor (x) * z": "1 + C(x) + z + C(x):z",
    "y ~ my.factor + factor2": "1 + `my.factor` + factor2",
    "y ~ `factor(x)`": "1 + `factor(x)`",
    "y ~ C(x, contr.treatment('factor(b)'))": "1 + C(x, contr.treatment('factor(b)'))",
    "y ~ I(x^2) + log(x)": "1 + I(x ** 2) + log(x)",
    "y ~ poly(x, 2)": "1 + poly(x, 2)",
    "y ~ ns(x, 3)": "1 + ns(x, 3)",
    "y ~ splines::ns(x, df = 3) + stats::poly(z, 2)": "1 + ns(x, df=3) + poly(z, 2)",
    "y ~ x1:x2": "1 + x1:x2",
    "y ~ x1*x2": "1 + x1 + x2 + x1:x2",
    "y ~ x - 1": "0 + x",
    "y ~ x + 0": "0 + x",
    "y ~ (1 | ward) + x": "1 + x",
}
# As in R -> (words of the error, what it says to write).
INSTEAD = {
    "y ~ x + offset(scale(t))": (r"calculated from one: offset\(log\(time\)\)", "y ~ x + offset(log(t))"),
    "y ~ as.numeric(x)": ("write x: a column of numbers", "y ~ x"),
    "y ~ as.character(x)": (r"write C\(x\)", "y ~ C(x)"),
    "y ~ ordered(x)": (r"write C\(x\)", "y ~ C(x)"),
    "y ~ relevel(x, ref = 'b')": (r"write C\(x, contr\.treatment\(\"LEVEL\"\)\)", 'y ~ C(x, contr.treatment("LEVEL"))'),
    "y ~ relevel(factor(x), ref = 'b')": (r"write C\(x, contr\.treatment\(\"LEVEL\"\)\)", 'y ~ C(x, contr.treatment("LEVEL"))'),
    "y ~ factor(x, levels = c('a', 'b'))": (
        r"levels = \[\.\.\] and reference = \"\.\.\" in \[data\.columns\.x\]",
        "y ~ factor(x)",
    ),
    "y ~ C(x, contr.helmert)": ("contr.treatment or contr.sum", "y ~ C(x, contr.sum)"),
    "y ~ log1p(x)": (r"write log\(1 \+ x\)", "y ~ log(1 + x)"),
    "y ~ expm1(x)": (r"write I\(exp\(x\) - 1\)", "y ~ I(exp(x) - 1)"),
    "y ~ log(x, base = 10)": (r"log10\(\.\.\)", "y ~ log10(x)"),
    "y ~ interaction(a, b)": ("write a:b", "y ~ a:b"),
    "y ~ a %in% b": ("write a:b", "y ~ a:b"),
    "y ~ s(x)": (r"write cs\(x, df = 4\)", "y ~ cs(x, df = 4)"),
    "y ~ rcs(x, 4)": (r"write cs\(x, df = 4\)", "y ~ cs(x, df = 4)"),
    "y ~ frailty(ward)": (r"write \(1 \| ward\)", "y ~ (1 | ward)"),
    "y ~ x + cluster(ward)": ("leave it out", "y ~ x + (1 | ward)"),
    "y ~ x * strata(ward)": ("write a:ward", "y ~ x + x:ward + strata(ward)"),
    "y ~ x | ward": (r"\(1 \| ward\)", "y ~ x + (1 | ward)"),
    "y ~ cut(x, 3)": ("make a column of it in all files", "y ~ x_cut"),
    "y ~ I(x > 3)": ("of a comparison, or a condition, make a column of it in all files", "y ~ x_above_3"),
    "y ~ ifelse(x > 3, 1, 0)": ("make a column of it in all files", "y ~ x_above_3"),
    "y ~ .": ("name the columns", "y ~ a + b"),
    "y ~ . - a": ("name the columns", "y ~ b"),
    "log(y) ~ x": ("another one, which all files have", "log_y ~ x"),
    "factor(y) ~ x": (r"'factor\(y\)'.*positive = \"\.\.\" in \[data\]", "y ~ x"),
    "Surv(t, d == 1) ~ x": (r"Surv\(time, event\).*positive", "Surv(t, d) ~ x"),
    "y ~ strata(a, b)": ("make one that joins them", "y ~ strata(a_b)"),
}


@pytest.mark.parametrize("text", TAKEN)
def test_as_in_r(text: str) -> None:
    assert reading.read(text).formula.text == TAKEN[text]


@pytest.mark.parametrize("text", INSTEAD)
def test_the_remedy_is_a_formula(text: str) -> None:
    told, instead = INSTEAD[text]
    with pytest.raises(JobError, match=told) as fault:
        reading.read(text)
    assert len(str(fault.value)) < 350
    reading.read(instead)


def test_a_factor_is_the_same_column_whatever_it_is_called() -> None:
    said: list[Any] = [reading.read(f"y ~ {call}(x) + z").formula for call in ("C", "factor", "as.factor")]
    assert said[0] == said[1] == said[2]


def test_labels_of_several_columns_are_a_group() -> None:
    read = reading.read("y ~ x + (1 + `a b` | region:`the ward`)")
    assert read.random == {"group": "region:the ward", "slopes": ["a b"]}
