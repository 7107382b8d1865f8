"""Writes labels in the one way in which they are compared, whatever program wrote the table.

A whole number is one label whether it is written as 3 or as 3.0, as programs write a column of numbers in which a cell is empty;
TRUE, true and True are one. 03 is another label than 3, for codes may have zeros in front.
"""

from __future__ import annotations

import re

__all__ = ["label", "whole"]

TRUTHS = {"true": "True", "false": "False"}
_WHOLE = re.compile(r"[+-]?\d+")


def whole(cell: str, decimal: str = ".") -> str:
    """Returns a cell without its decimals, if these are zeros behind a whole number."""
    digits, point, decimals = cell.partition(decimal)
    return digits if point and not decimals.strip("0") and _WHOLE.fullmatch(digits) else cell


def label(cell: str, decimal: str = ".") -> str:
    """Returns the label that a cell, or a text of the job file, stands for."""
    return TRUTHS.get(cell.lower()) or whole(cell, decimal)
