"""Reads words of R that have another name here, and gives the remedy where no other name exists.

Source of the list: docs/how-to/formula.md, the table from R's words to these.
"""

from __future__ import annotations

import re

MAKE = "make a column of it in all files, and name that"
LABELS = "write C({0}), whose levels are texts in the files"
NUMBERS = "write {0}: a column of numbers is taken as such"
CURVE = "write cs({0}, df = 4), a natural cubic spline"

# A call of R -> the remedy; {0} is its first argument, or a name that stands for it.
REMEDIES: dict[str, str] = {
    "as.numeric": NUMBERS,
    "as.integer": NUMBERS,
    "as.double": NUMBERS,
    "as.character": LABELS,
    "as.logical": "write C({0})",
    "ordered": LABELS,
    "mo": LABELS,
    "relevel": 'write C({0}, contr.treatment("LEVEL")), or reference = "LEVEL" in [data.columns.{0}]',
    "log1p": "write log(1 + {0})",
    "expm1": "write I(exp({0}) - 1)",
    "interaction": "write a:b, or a * b with the effects of each",
    "s": CURVE,
    "te": CURVE,
    "ti": CURVE,
    "lo": CURVE,
    "rcs": CURVE,
    "pspline": CURVE,
    "frailty": "write (1 | {0}), which weibull, exponential and piecewise take, and in a Cox model strata({0})",
    "cluster": "robust errors are not there: leave it out, and errors are the model's; an effect of each group is (1 | {0})",
    "strata": "it stands by itself, + strata({0}): write a:{0} for coefficients that differ between strata",
    "weights": "give [data] weight = the column's name",
    "tt": "effects that change with time are not there: write strata({0}) of a column of labels",
}
TEXTS = (
    'the levels of labels, and which one others are compared with, are levels = [..] and reference = ".." in [data.columns.{0}]'
)

_PACKAGES = re.compile(r"\b(?:base|stats|splines|survival|lme4)::(?=[A-Za-z])")
_FACTOR = re.compile(r"(?<![\w.])(?:as\.)?factor\s*(?=\()")
_POINTED = re.compile(r"(?<![\w.`])((?:as|is)\.\w+)\s*\(\s*([\w.]*)")


def translated(text: str, outside: str) -> str:
    """Returns a formula with `factor(x)` and `as.factor(x)` as `C(x)`, and without names of R's packages.

    Parameters
    ----------
    text : the formula
    outside : the same, with blanks where something is quoted

    Returns
    -------
    str
        The formula; quoted texts are unchanged.
    """
    edits = [(match.span(), "") for match in _PACKAGES.finditer(outside)]
    edits += [(match.span(), "C") for match in _FACTOR.finditer(outside)]
    for (begin, end), instead in sorted(edits, reverse=True):
        text = text[:begin] + instead + text[end:]
    return text


def pointed_call(outside: str) -> tuple[str, str] | None:
    """Returns the name of a call such as `as.numeric(x)`, which Python's grammar cannot read, and its remedy; None without one.

    `outside` is the formula, with blanks where something is quoted.
    """
    match = _POINTED.search(outside)
    return None if match is None else (match.group(1), remedy(match.group(1), match.group(2)))


def remedy(function: str, argument: str) -> str:
    """Returns the words to write in the place of a call that is not taken.

    Parameters
    ----------
    function : its name in R
    argument : the text of its first argument; "" where it has none
    """
    argument = argument.removeprefix("C(").removesuffix(")") if argument.startswith("C(") else argument
    return REMEDIES.get(function, MAKE).format(argument if re.fullmatch(r"[\w.]+|`[^`]+`", argument) else "NAME")
