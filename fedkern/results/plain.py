"""Values that strict JSON can hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..plain import Record as Record


def plain(value: object) -> Any:
    """Mappings, lists, texts and numbers only; a number that is not finite becomes its text: "inf", "-inf", "nan"."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, np.generic | np.ndarray):
        return plain(value.tolist())
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def number(value: object) -> Any:
    """A number as it was before `plain` made it a text; anything else as it is."""
    return float(value) if value in ("inf", "-inf", "nan") else value


def real(value: Any) -> float:
    """A number of what `plain` has made; nan where there is none."""
    return float(value) if value not in ("", None) else math.nan
