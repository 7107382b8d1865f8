"""Writes labels in the one way in which they are compared, whatever program wrote the table.

A number is one label however it is written: 3 and 3.0, 119000 and 1.19e+05, 0.3 and 0.30000000000000004, which has 15
significant digits, as in R's `factor`. TRUE, true and True are one. 03 is another label than 3, for codes may have zeros in
front, and so is 3e2, a code, than 300: a power of ten has its sign, or a point before it. Whole numbers keep all of their digits.
Texts stand as they are written, as in R: where a column's type says that its cells are texts, beside a word
(`data.cells.labels`), and in the job file. They are found as they are written, and else as numbers (`find`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Sequence

__all__ = ["by_number", "event_of", "find", "in_order", "label", "whole"]

OTHER = "other (rare)"  # the level that rare ones join
TRUTHS = {"true": "True", "false": "False"}
EVENTS = {"yes", "y", "true", "case", "cases", "dead", "died", "death", "deceased", "event", "positive", "pos", "present"}
OTHERS = {"no", "n", "false", "control", "controls", "alive", "censored", "none", "negative", "neg", "absent"}
_WHOLE = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_NUMBER = re.compile(r"[+-]?((0|[1-9]\d*)?\.\d+([eE][+-]?\d+)?|(0|[1-9]\d*)\.?[eE][+-]\d+)|\+(0|[1-9]\d*)|-0")
DIGITS = 15  # significant ones of a number, as in R's `factor`


def whole(cell: str, decimal: str = ".") -> str:
    """Returns a cell without its decimals, if these are zeros behind a whole number."""
    digits, point, decimals = cell.partition(decimal)
    return digits if point and not decimals.strip("0") and _WHOLE.fullmatch(digits) else cell


def label(cell: str, decimal: str = ".", *, text: bool = False) -> str:
    """Returns the label that a cell, or a text of the job file, stands for. `text`: of a column whose type is of texts.

    Examples
    --------
    >>> from fedkern.labels import label
    >>> [label(cell) for cell in ("3.0", "1.19e+05", "0.30000000000000004", "2.50", "03", "TRUE", "none")]
    ['3', '119000', '0.3', '2.5', '03', 'True', 'none']
    >>> [label(cell, text=True) for cell in ("3.0", "2.50", "TRUE")]
    ['3.0', '2.50', 'True']
    """
    if cell.lower() in TRUTHS:
        return TRUTHS[cell.lower()]
    if text:
        return cell
    cell = whole(cell, decimal)
    if decimal != "." and "." in cell:  # a code, or thousands
        return cell
    pointed = cell.replace(decimal, ".", 1)
    if not _NUMBER.fullmatch(pointed) or not math.isfinite(value := float(pointed)):
        return cell
    return written(value).replace(".", decimal)


def written(value: float) -> str:
    """Returns a finite number as a label."""
    value = value if value.is_integer() else float(f"{value:.{DIGITS}g}")
    return str(int(value)) if value.is_integer() else f"{value:.{DIGITS}g}"


def by_number(labels: Collection[str]) -> dict[str, str]:
    """Returns labels by what each is compared as (`label`), where no other is the same.

    Examples
    --------
    >>> from fedkern.labels import by_number
    >>> by_number(["2.0", "250.0", "250.00"])
    {'2': '2.0'}
    """
    compared = [label(known) for known in labels]
    return {name: known for name, known in zip(compared, labels) if compared.count(name) == 1}


def find(text: str, labels: Collection[str]) -> str:
    """Returns that of the labels which a text names: the one that is written so, else the only one that is the same number.

    Examples
    --------
    >>> from fedkern.labels import find
    >>> find("1.10", ("1.1", "1.10")), find("1.10", ("1.1", "1.2")), find("TRUE", ("False", "True"))
    ('1.10', '1.1', 'True')
    """
    if text in labels:
        return text
    wanted = label(text)
    return by_number(labels).get(wanted, wanted)


def in_order(labels: Iterable[str]) -> list[str]:
    """Returns labels sorted: as numbers where all are numbers, as R's `factor`, and else as texts.

    Examples
    --------
    >>> from fedkern.labels import in_order
    >>> in_order(["30", "2", "10"]), in_order(["3+", "2", "10"])
    (['2', '10', '30'], ['10', '2', '3+'])
    """
    texts = sorted(labels)
    return sorted(texts, key=lambda text: (float(text), text)) if all(map(_DECIMAL.fullmatch, texts)) else texts


def event_of(labels: Sequence[str]) -> str:
    """Returns the label of a binary response that counts as 1: by a short list (yes, true, case, dead ..), else the last one.

    Labels stand in the order that their tables give them, or in that of `in_order`.

    Examples
    --------
    >>> from fedkern.labels import event_of
    >>> event_of(["control", "case"]), event_of(["alive", "dead"]), event_of(["1", "2"]), event_of(["normal", "low"])
    ('case', 'dead', '2', 'low')
    """
    named = [label for label in labels if label.lower() in EVENTS]
    if len(named) == 1:
        return named[0]
    left = [label for label in labels if label.lower() not in OTHERS] or [*labels]
    return left[-1]
