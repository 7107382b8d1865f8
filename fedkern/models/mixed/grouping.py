"""Reads which groups of rows have effects, from [model.random] of a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ...labels import label
from ..encoding import INTERCEPT
from .layout import Level

MOST_NESTED = 2  # numbers an effect, of two tiers whose rules are nested
MOST_SHARED = 200  # groups that clients have in common, each an unknown of all


class Grouping(NamedTuple):
    """Describes groups of rows, and what their effect is of.

    Attributes
    ----------
    by : columns whose labels together name a group
    slopes : numeric covariates whose coefficients differ between groups
    correlated : whether these and the intercepts are
    levels : the labels of groups that clients have in common; () where each client has its own
    """

    by: tuple[str, ...]
    slopes: tuple[str, ...] = ()
    correlated: bool = True
    levels: tuple[str, ...] = ()

    @property
    def column(self) -> str:
        """The column of the groups' labels, which is made where it is of several."""
        return ":".join(self.by)

    @property
    def label(self) -> str:
        """The groups' name in results."""
        return "/".join(self.by)

    @property
    def level(self) -> Level:
        """The name of the effect, where rows have several (`Layout`)."""
        return f"group:{self.label}"

    @property
    def terms(self) -> tuple[str, ...]:
        """The terms of the effect; those that are not correlated have the intercept last (`Layout`)."""
        return (INTERCEPT, *self.slopes) if self.correlated else (*self.slopes, INTERCEPT)

    @property
    def effects(self) -> tuple[str, ...]:
        """The names of the effects of groups that clients have in common."""
        return tuple(f"group_effect[{self.label}={level}]" for level in self.levels)

    @property
    def text(self) -> str:
        """The effect as a formula has it."""
        bar = "|" if self.correlated else "||"
        return f"({' + '.join(['1', *self.slopes])} {bar} {self.column})"


def groupings(random: Mapping[str, Any], *, shared: bool = False) -> tuple[Grouping, ...]:
    """Returns the groups of a job's [model.random], those of fewer columns first: groups lie in the ones before them.

    Parameters
    ----------
    shared : whether those that clients have in common are wanted, or each client's own
    """
    entries = random.get("groups") or ()
    if random.get("group") is not None:
        entries = ({"by": random["group"], "slopes": random.get("slopes") or ()},)
    found = []
    for entry in entries:
        if bool(entry.get("shared")) != shared:
            continue
        by = entry["by"]
        columns = (by,) if isinstance(by, str) else tuple(by)
        levels = tuple(label(str(level).strip(), text=True) for level in entry.get("levels") or ())
        found.append(Grouping(columns, tuple(entry.get("slopes") or ()), bool(entry.get("correlated", True)), levels))
    return tuple(sorted(found, key=lambda grouping: len(grouping.by)))


def nested(all_groups: tuple[Grouping, ...]) -> bool:
    """Whether the second of two kinds of groups lies within the first, so that their integrals are nested rules."""
    if len(all_groups) != 2:
        return False
    outer, inner = all_groups
    small = max(len(outer.terms), len(inner.terms)) <= MOST_NESTED
    return small and len(inner.by) > len(outer.by) == len([1 for a, b in zip(outer.by, inner.by) if a == b])


def terms_of(random: Mapping[str, Any]) -> dict[Level, tuple[str, ...]]:
    """Returns the terms of each effect of a job's [model.random], by the names that `Layout` has for them."""
    listed = groupings(random)
    terms = {grouping.level if listed[1:] else "group": grouping.terms for grouping in listed}
    terms |= {grouping.level: grouping.terms for grouping in groupings(random, shared=True)}
    return terms | ({"client": (INTERCEPT, *random.get("client_slopes", ()))} if random.get("client") else {})
