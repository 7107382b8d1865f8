"""Says that counts, or successes of trials, vary otherwise about their means than the model makes them, and what mends it.

Another family takes up whatever makes counts vary: a client's exposures in months, a code for a missing value. So before it is
named it is asked whose counts vary, and whether clients' levels do.

Source: docs/concepts/convergence.md, "Responses whose model is another".
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import add
from typing import NamedTuple

import numpy as np

from ...algorithms.exchanges.sums import PearsonSums, Replicated
from ...kernels.families import FAMILIES
from ...models.mixed.predictive import Sums
from ...results.dispersion import MENDED
from . import excess
from .model import Model

OFF, SURE = 0.15, 4.0  # how responses vary about their means is off by so much, and by so many sds of what the model makes
WILD = 30.0  # times: beyond, no factor of intervals says anything
ZEROS = {  # with zeros of another kind, and beside these
    "poisson": "zero-inflated-poisson",
    "zero-inflated-poisson": "zero-inflated-negative-binomial",
    "hurdle-poisson": "hurdle-negative-binomial",
}
WITHOUT_DISPERSION = (*ZEROS, "binomial")  # families whose intervals are too narrow where responses vary more
STANDS_APART = 5.0  # times the others' excess, by their means, at one client: it is looked at first
OF_LEVELS = 0.5  # of the excess, that levels of clients explain: their effects come before another family
FIRST = "look at its counts and exposures first (a code such as 99, another unit)"
EACH_ROW = "each row an effect of its own ([model.random] group: a column with another label in every row)"
CLIENTS_FIRST = (
    "most of it is that clients' levels differ (see that counts and exposures are in one unit at all clients): set "
    "[model.random] client = true, and where it is still so "
)
OFFSET = (
    "data.offset is added to the predictor as it is: see that it is the logarithm of the exposure (log 3, not 3), and that "
    "exposures are in one unit at all clients (years, not days at one)"
)


class _Own(NamedTuple):
    """Holds means over draws: a client's events, how many the model makes, the misfit, that which the model makes, and its sd
    (relative to it); and its rows."""

    events: float
    made: float
    misfit: float
    usual: float
    sd: float
    rows: float

    @property
    def ratio(self) -> float:
        return self.misfit / self.usual


def pool(replies: Mapping[int, Replicated]) -> Sums:
    """Returns the sums of all clients, in their order."""
    return reduce(
        add, (Sums(reply.observed, reply.replicated, reply.tenths, reply.misfits) for _, reply in sorted(replies.items()))
    )


def describe(replies: Mapping[int, Replicated], model: Model, *, mend_first: bool = False) -> str:
    """Returns the doubt where counts of a family without dispersion vary more or less than the model makes them; else "".
    `mend_first`: whether another doubt is there, of a file that is to be mended before any family is taken."""
    whole, family = pool(replies), FAMILIES[model.family]
    ratio, sds = whole.dispersion
    if abs(sds) < SURE or abs(ratio - 1) <= OFF:
        return ""
    words = f"responses vary {ratio:.3g} times as much about their means as a {model.family} model makes them"
    if mend_first:
        return f"{words}: {MENDED}"
    each = {} if model.secure else {k: _own(reply) for k, reply in sorted(replies.items()) if reply.misfits.sum()}
    of_levels = family.link == "log" and ratio > 1 and _levels_differ(each)
    apart = _stands_apart(each) if ratio > 1 and not of_levels else None
    if apart is not None:
        others = _others(each, apart)
        ratios = f"{each[apart].ratio:.3g} times, {others.ratio:.3g} at the others"
        words = f"{words}, most at {model.telling[apart]!r} ({ratios}): {FIRST}"
    if not 1 / WILD < ratio < WILD:
        offset = f"; {OFFSET}" if model.offset else ""
        words_before = f"{words}: " if apart is None else f"{words}; "
        return f"{words_before}it is no model of them, and its intervals cannot be used{offset}"
    by = ratio**0.5
    if by < 1:
        scores = ' of counts varies less: of scores, or what is measured in whole numbers, take model.family = "gaussian"'
        less = scores if family.link == "log" else " here varies less"
        return f"{words}: intervals are about {1 / by:.2g} times too wide; no family{less}"
    narrow = f"intervals are about {by:.2g} times too narrow"
    narrow = f"{words}: {narrow}; " if apart is None else f"{words}; {narrow}; where its counts are right "
    if family.link == "log":
        structural = family.share is not None or (model.one_intercept and excess.structural(whole, ratio))
        other = ZEROS[model.family] if structural else "negative-binomial"
        if of_levels and model.takes_client and not model.layout.client:
            return f'{narrow}{CLIENTS_FIRST}model.family = "{other}"'
        return f'{narrow}set model.family = "{other}"{"" if model.layout.group or structural else f", or {EACH_ROW}"}'
    each_row = "" if model.layout.group else f", or give {EACH_ROW}"
    return f'{narrow}trials of a row are alike: set model.family = "beta-binomial"{each_row}'


def _own(reply: Replicated) -> _Own:
    seen, made = reply.misfits.T
    rows, events = reply.observed[:2].tolist()
    sd = float(made.std() / max(float(made.mean()), 1e-12))
    return _Own(events, float(reply.replicated[:, 0].mean()), float(seen.mean()), float(made.mean()), sd, rows)


def levels_differ_at_mode(replies: Mapping[int, PearsonSums]) -> bool:
    """Tells the same as `_levels_differ` by sums at the mode: a Poisson model makes as many events as `slope` says."""
    sums = {
        k: _Own(sums_of.events, sums_of.slope, sums_of.misfit, float(sums_of.rows), 0.0, float(sums_of.rows))
        for k, sums_of in replies.items()
    }
    return _levels_differ({k: sums_of for k, sums_of in sums.items() if sums_of.rows})


def _others(each: Mapping[int, _Own], k: int) -> _Own:
    """Returns the sums of all clients but one."""
    rest = np.array([sums for j, sums in each.items() if j != k])
    events, made, misfit, usual, _, rows = rest.sum(axis=0).tolist()
    return _Own(events, made, misfit, usual, float(np.hypot.reduce(rest[:, 4] * rest[:, 3])) / usual, rows)


def _stands_apart(each: Mapping[int, _Own]) -> int | None:
    """Returns the client whose counts vary far more than those of all others together; None where none does.

    Counts that vary as a negative binomial's have an excess that grows with their mean: it is compared by it.
    """
    if len(each) < 2:
        return None
    k = max(each, key=lambda j: each[j].ratio)
    suspect, others = each[k], _others(each, k)
    sure = suspect.ratio - max(others.ratio, 1.0) > SURE * np.hypot(suspect.sd * suspect.ratio, others.sd * others.ratio)
    by_mean = (
        (suspect.ratio - 1) * suspect.rows / max(suspect.events, 1.0),
        (others.ratio - 1) * others.rows / max(others.events, 1.0),
    )
    return k if sure and min(by_mean[0], suspect.ratio - 1) > STANDS_APART * max(by_mean[1], others.ratio - 1, OFF) else None


def _levels_differ(each: Mapping[int, _Own]) -> bool:
    """Tells whether most of the excess is that clients have more events than the model makes, or fewer.

    Of n rows with f times the events that the model makes, m, Pearson's chi-square is n f + m (f - 1)^2 on average.
    """
    excess_of_all = sum(sums.misfit - sums.usual for sums in each.values())
    parts = ((sums.events / max(sums.made, 1.0) - 1, sums) for sums in each.values())
    return 0 < OF_LEVELS * excess_of_all < sum(sums.rows * off + sums.made * off**2 for off, sums in parts)
