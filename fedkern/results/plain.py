"""Converts values to those that strict JSON can hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..plain import Record as Record


def plain(value: object) -> Any:
    """Returns mappings, lists, texts and numbers only; a number that is not finite becomes its text: "inf", "-inf", "nan"."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, np.generic | np.ndarray):
        return plain(value.tolist())
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def number(value: object) -> Any:
    """Returns a number as it was before `plain` made it a text; anything else unchanged."""
    return float(value) if value in ("inf", "-inf", "nan") else value


def real(value: Any) -> float:
    """Returns a value of `plain` as a float; nan where it is empty."""
    return float(value) if value not in ("", None) else math.nan
