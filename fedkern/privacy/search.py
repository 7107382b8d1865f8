"""Searches a monotone, expensive function by few calls, and ends on its safe side."""

from __future__ import annotations

import math
from collections.abc import Callable

MOST_STEPS = 10_000_000


def largest_count(spent: Callable[[int], float], cap: float, guess: float) -> int:
    """Returns the largest whole t in [0, MOST_STEPS] with spent(t) <= cap, for an increasing `spent` with spent(0) = 0."""
    low, at_low, high, at_high = 0, 0.0, MOST_STEPS + 1, math.inf
    t = int(min(max(guess, 1), MOST_STEPS))
    calls = 0
    while high - low > 1:
        value = spent(t)
        calls += 1
        low, at_low, high, at_high = (t, value, high, at_high) if value <= cap else (low, at_low, t, value)
        if calls > 12:
            t = (low + high) // 2  # whatever the shape of the curve, halving ends
        elif at_high == math.inf or at_low == 0:
            # One side only: epsilon grows about like t^0.55 there. A little further than that, to bracket.
            t = int(t * min(max((cap / value) ** 1.8 if 0 < value < math.inf else 0.25, 0.1), 10.0)) + (value <= cap)
        else:
            t = int(low + (cap - at_low) / (at_high - at_low) * (high - low))
        t = min(max(t, low + 1), high - 1)
    return low


def smallest_number(spent: Callable[[float], float], cap: float, guess: float, *, lowest: float, highest: float) -> float:
    """Returns the smallest x in (lowest, highest), to 1e-6 relative, with spent(x) <= cap, for a decreasing `spent`."""
    low, at_low, high, at_high = lowest, math.nan, highest, math.nan  # nan: not asked yet
    x, calls = guess, 0
    while high > low * (1 + 1e-6):
        value = spent(x)
        calls += 1
        low, at_low, high, at_high = (low, at_low, x, value) if value <= cap else (x, value, high, at_high)
        if calls > 30 or (at_low == math.inf and at_high == at_high):
            x = math.sqrt(low * high)
        elif at_low == at_low and at_high == at_high:
            # A straight line in logarithms, aimed just inside, so that both ends close in.
            slope = math.log(high / low) / math.log(at_low / at_high)
            x = low * (at_low / cap) ** slope * (1 + 4e-7 if at_high < cap * (1 - 1e-6) else 1 - 4e-7)
        else:
            # One side only: epsilon is about proportional to 1 / sigma there. A little further than that, to bracket.
            x *= min(max(value / cap, 0.5), 2.0) * (1.02 if value > cap else 0.98)
        x = min(max(x, low * (1 + 2e-7)), high * (1 - 2e-7))
    if at_high != at_high:
        raise ValueError(f"privacy: nothing up to {highest:g} spends as little as {cap:g}")
    return high
