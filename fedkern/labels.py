"""Writes labels in the one way in which they are compared, whatever program wrote the table.

A whole number is one label whether it is written as 3 or as 3.0, as programs write a column of numbers in which a cell is empty;
TRUE, true and True are one. 03 is another label than 3, for codes may have zeros in front.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

__all__ = ["event_of", "in_order", "label", "whole"]

TRUTHS = {"true": "True", "false": "False"}
EVENTS = {"yes", "y", "true", "case", "cases", "dead", "died", "death", "deceased", "event", "positive", "pos", "present"}
OTHERS = {"no", "n", "false", "control", "controls", "alive", "censored", "none", "negative", "neg", "absent"}
_WHOLE = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def whole(cell: str, decimal: str = ".") -> str:
    """Returns a cell without its decimals, if these are zeros behind a whole number."""
    digits, point, decimals = cell.partition(decimal)
    return digits if point and not decimals.strip("0") and _WHOLE.fullmatch(digits) else cell


def label(cell: str, decimal: str = ".") -> str:
    """Returns the label that a cell, or a text of the job file, stands for."""
    return TRUTHS.get(cell.lower()) or whole(cell, decimal)


def in_order(labels: Iterable[str]) -> list[str]:
    """Returns labels sorted: as numbers where all are numbers, as R's `factor`, and else as texts.

    Examples
    --------
    >>> from fedkern.labels import in_order
    >>> in_order(["30", "2", "10"]), in_order(["3+", "2", "10"])
    (['2', '10', '30'], ['10', '2', '3+'])
    """
    texts = sorted(labels)
    return sorted(texts, key=float) if all(map(_NUMBER.fullmatch, texts)) else texts


def event_of(labels: Collection[str]) -> str:
    """Returns the label of a binary response that counts as 1: by a short list (yes, true, case, dead ..), else the last one.

    Numbers stand in their order, as in R's Surv, texts as they are sorted.

    Examples
    --------
    >>> from fedkern.labels import event_of
    >>> event_of(["control", "case"]), event_of(["alive", "dead"]), event_of(["2", "1"]), event_of(["bad", "good"])
    ('case', 'dead', '2', 'good')
    """
    named = [one for one in labels if one.lower() in EVENTS]
    if len(named) == 1:
        return named[0]
    left = [one for one in labels if one.lower() not in OTHERS] or [*labels]
    return max(left, key=lambda one: (float(one), one) if _WHOLE.fullmatch(one) else (0.0, one))
