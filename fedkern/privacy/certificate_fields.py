"""Checks a certificate that came from another party: every field of its type and in its range, and no other field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import get_args

from ..plain import Json
from .accountant import Sampling, Unit

LONGEST = 600  # characters of a text


def _number(value: Json, low: float, high: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high  # NaN is in no range


def _text(value: Json) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST and value.isprintable()


def _amount(value: Json) -> bool:
    return value == "inf" or _number(value, 0, 1e308)


def _share(value: Json) -> bool:
    return _number(value, 0, 1)


def _positive(value: Json) -> bool:
    return _number(value, 1e-308, 1e308)


def _one_of(*known: str) -> tuple[Callable[[Json], bool], str]:
    return lambda value: isinstance(value, str) and value in known, f"one of {', '.join(known)}"


def _count(least: int) -> tuple[Callable[[Json], bool], str]:
    return lambda value: isinstance(value, int) and _number(value, least, 2**53), f"a whole number of at least {least}"


Check = tuple[Callable[[Json], bool], str]  # whether a value can be, and in words what was wanted
TEXT: Check = (_text, f"a text of at most {LONGEST} printable characters")
AMOUNT: Check = (_amount, 'a number of at least 0, or "inf"')
SHARE: Check = (_share, "a number from 0 to 1")
POSITIVE: Check = (_positive, "a finite number above 0")

# What stands in the certificate of one job.
FIELDS: Mapping[str, Check] = {
    "claim": TEXT,
    "epsilon": AMOUNT,
    "delta": SHARE,
    "epsilon_cap": AMOUNT,
    "unit": _one_of(*get_args(Unit)),
    "neighbours": TEXT,
    "trust": TEXT,
    "sampling": _one_of(*get_args(Sampling)),
    "sampling_rate": SHARE,
    "steps": _count(0),
    "noise_multiplier": POSITIVE,
    "clip": POSITIVE,
    "noise_source": _one_of("secure", "keyed"),
    "accountant": TEXT,
    "caps": TEXT,
    "rows_per_person": _count(1),
    "posterior": TEXT,
}
OPTIONAL: Mapping[str, Check] = {
    "mechanisms": _count(1),
    "public": TEXT,
    "rows": _count(1),
    "cases_per_person": _count(1),
    "person_epsilon": AMOUNT,
    "person_delta": SHARE,
    "progress": SHARE,
}


def find_problem(content: Json) -> str | None:
    """Returns the fault of a certificate that came from elsewhere, beginning with the field; None if it has none."""
    if not isinstance(content, dict):
        return " must be a table"
    for name in (name for name in FIELDS if name not in content):
        return f".{name} is missing"
    for name, value in content.items():
        check = FIELDS.get(name) or OPTIONAL.get(name)
        if check is None:
            return f" has a field {name[:40]!r}, which no certificate has"
        good, wanted = check
        if not good(value):
            shown = repr(value)[:40] if isinstance(value, int | float) else f"a {type(value).__name__}"
            return f".{name} is {shown}, expected {wanted}"
    if content["noise_source"] == "keyed" and content["epsilon"] != "inf":
        return '.epsilon is finite with keyed noise, expected "inf"'
    return None
