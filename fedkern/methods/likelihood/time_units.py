"""Says at which clients times are in another unit than at the others, from numbers that clients exchange anyway.

Where all clients share a hazard, each tells its events and how long it saw its rows (`exchanges.level`); where the server gets
sums alone, each client compares its own with all others' (`exchanges.odd_response`). In a Cox model with
`output.survival_at` each tells its cumulative hazard (`exchanges.answers`). Days among months make both some 30 times as
large or as small. A Cox model alone compares rows of one client only, so that its ratios do not depend on units of time.

Source: docs/spec/likelihood.md, section 9, "Unit of time".
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...algorithms.exchanges.answers import CumulativeHazards
from ...algorithms.exchanges.apart import describe_levels, in_words, is_another_level
from ...algorithms.exchanges.odd_response import Compared
from ...finding import Finding

EVENTS = 10.0  # that a client has at least before a time of `output.survival_at`
UNITS = (
    (4.35, ("weeks", "months")),
    (7.0, ("days", "weeks")),
    (12.0, ("months", "years")),
    (24.0, ("hours", "days")),
    (30.4, ("days", "months")),
    (52.2, ("weeks", "years")),
    (365.25, ("days", "years")),
)
WHOLE = 1e-11  # of a sum, that it loses
HALF, MATTERS = 0.5, 0.02  # of a unit that a time rounded up is too long by, and the part of the time per event where it is said
CLOSE = 1.5  # as which two factors count
DIFFERS, HIDDEN = "hazard-differs", "hidden-by-effects"  # remedies


def of_rates(
    names: Sequence[str], answers: Sequence[tuple[float, float]], *, client: bool = False, exact: bool = True
) -> list[Finding]:
    """Returns findings on the clients' times.

    Parameters
    ----------
    names : of the clients
    answers : of each its events, and how long it saw its rows
    client : whether the model has an effect of each client
    exact : whether each event is taken to be at its time, and in no interval
    """
    rates = [(name, time / events, events) for name, (events, time) in zip(names, answers, strict=True) if events > 0 < time]
    found = _compared("time per event", rates, HIDDEN if client else DIFFERS)
    return [*found, *_rounded(rates)] if exact else found


def _rounded(rates: Sequence[tuple[str, float, float]]) -> list[Finding]:
    """Returns notes on clients whose times are whole numbers while the others' have fractions: rounded up, each is too long.

    It is seen by the sum of times, which is whole. Fractions of hundredths have one such sum in a hundred, and those of
    thousandths fewer: so all others' sums have to have finer ones. `rates`: as `_compared` takes it.
    """
    sums = np.array([each * events for _, each, events in rates])
    whole, fine = (np.abs(part - np.round(part)) < WHOLE * (1 + part) for part in (sums, 100 * sums))
    matters = [name for (name, each, _), is_whole in zip(rates, whole.tolist()) if is_whole and HALF / each > MATTERS]
    if not matters or (fine & ~whole).any() or whole.sum() * 2 >= len(rates):
        return []
    return [Finding.of("times-rounded-up", client=name) for name in matters]


def of_client(
    totals: tuple[float, float], events: float, time: float, *, client: bool = False, several: bool = False
) -> Compared:
    """Compares a client's times with those of all others together, where the server gets sums alone.

    Parameters
    ----------
    totals : its events, and how long it saw its rows
    events, time : the same of all clients
    client : as `of_rates` has it
    several : whether the others are more than one client
    """
    others = events - totals[0], time - totals[1]
    if not min(*totals, *others) > 0:
        return Compared()
    off = math.log(totals[1] / totals[0] * others[0] / others[1])
    noted, doubt = is_another_level(off, math.sqrt(1 / totals[0] + 1 / others[0]), several=several)
    if not noted:
        return Compared()
    of = {"times": in_words(math.exp(off)), "nearest": _nearest(off)}
    note = Finding.of("times-apart-here", **of, remedies=[HIDDEN if client else DIFFERS])
    return Compared((note,), doubt, doubt and off > 0)


def of_curves(names: Sequence[str], replies: Sequence[CumulativeHazards], times: Sequence[float]) -> list[Finding]:
    """Returns the same from cumulative hazards at the first of `times`, before which each client has ten events."""
    means = [float(reply.hazards[:, 0].mean()) for reply in replies]
    first = [(name, value, EVENTS) for name, value in zip(names, means, strict=True) if value > 0]
    return _compared(f"cumulative hazard at {times[0]:g}", first, of_time=-1.0)


def _compared(what: str, rates: Sequence[tuple[str, float, float]], remedy: str = "", of_time: float = 1.0) -> list[Finding]:
    """Returns findings on numbers that depend on the unit of time.

    `rates` has of each client its name, the number, and events; `remedy`: an id; `of_time` is the power of time that the number
    goes by.
    """
    events = sum(rate[2] for rate in rates)
    errors = [math.sqrt(1 / rate[2] + 1 / events) for rate in rates]
    note, of = ("times-apart", {"remedies": [remedy]}) if remedy else ("curves-apart", {})
    return describe_levels(
        [rate[0] for rate in rates],
        [math.log(rate[1]) for rate in rates],
        errors,
        note,
        "times-in-another-unit",
        more=lambda off: {"nearest": _nearest(of_time * off), **of},
        what=what,
    )


def _nearest(log: float) -> str:
    """In words, where the factor is near that of two units: at most two such pairs, the nearest first."""
    apart = sorted((abs(math.log(unit) - abs(log)), unit, words) for unit, words in UNITS)
    near = [(unit, words) for off, unit, words in apart[:2] if off <= math.log(CLOSE)]
    if not near:
        return ""
    sentences = [f"{words[int(log < 0)]} for {words[int(log > 0)]} would be {unit:g}" for unit, words in near]
    return f" ({' and '.join(sentences)})"
