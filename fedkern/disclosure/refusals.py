"""Says what refuses a client's rows in an open job, before anything of them leaves: all at once, so that its holder mends all.

A rule that rows break is data (`Broken`). Its text for the holder, and the little that others read, are of the catalogue of
findings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ..data.faults import Refused
from ..finding import RuleRefusal, Value
from ..kernels.families import is_linear
from .requirement import Requirement
from .rules import LEVELS


class Broken(NamedTuple):
    """Describes a rule that a client's rows break."""

    id: str  # of its entry in the catalogue
    key: str  # of [disclosure], whose number the rule is
    enough: float  # the number that these rows would do for
    values: Mapping[str, Value]  # what stands in the holder's text
    remedies: tuple[str, ...]  # ids of what can be done
    facts: tuple[str, ...] = ()  # and of what is said beside it
    of_values: bool = False  # whether it is about values in the rows, which may be faults
    by_summary: int = 0  # numbers that the client may tell where it takes part by a summary all the same; 0: it cannot
    rows: float = 0.0  # that count, where the rule is of rows a coefficient

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it is about; () where it is about none."""
        columns = self.values.get("columns")
        return tuple(map(str, columns)) if isinstance(columns, Sequence) else ()

    @property
    def about(self) -> object:
        """The rule, and the columns that it is about."""
        return self.id, self.key, self.columns or self.values.get("column")

    def refusal(self, requirement: Requirement, client: str, where: str, more: Sequence[str] = ()) -> RuleRefusal:
        """Returns the error; `where`: the rows, as their holder calls them; `more`: other remedies."""
        rule = "linear" if self.key == "rows_per_coefficient" else self.key
        by_holder = requirement.own is not None and getattr(requirement.own, rule) != getattr(requirement.rules, rule)
        number = "raise-rule" if self.key == "leverage" else "lower-rule"
        # Of fewer rows than their cross-products alone would take one is nearly alone at some point that questions are about.
        alone = self.key == "rows_per_coefficient" and self.enough < LEVELS["standard"].linear
        if alone and requirement.tells == "values" and not is_linear(requirement.family) and requirement.rules.leverage < 1:
            number = "lower-rule-and-leverage"
        ends = () if requirement.secure or requirement.small == "leave-out" else ("leave-out-client",)
        if requirement.additive and not requirement.summed and requirement.level != "none":
            ends = (*ends, "sign-sums")
        return RuleRefusal(
            self.id,
            client,
            f"disclosure.{self.key}",
            where=where,
            asks=f"{self.key} in [disclosure] of its policy" if by_holder else f"disclosure.{self.key}",
            enough=self.enough,
            facts=self.facts,
            remedies=(*self.remedies, *more, number, *ends),
            **self.values,
        )


class Few(Refused):
    """Reports all rules, of the job and of the client's holder, that its rows break."""

    def __init__(self, broken: Sequence[Broken], errors: Sequence[RuleRefusal]) -> None:
        super().__init__(errors)
        self.broken = broken

    @property
    def of_values(self) -> bool:
        """Whether it is about values in the rows alone, which may be faults."""
        return all(rule.of_values for rule in self.broken)

    @property
    def by_summary(self) -> int:
        """How many numbers the client may tell, where it takes part by a summary; 0: it does not."""
        return min(rule.by_summary for rule in self.broken)

    @property
    def numbers(self) -> str:
        """The keys of the rules, with the numbers that the rows would do for."""
        return ", ".join(dict.fromkeys(f"{rule.key} = {rule.enough:g}" for rule in self.broken))


def name_rules(errors: Iterable[Exception]) -> None:
    """Has others read the names of the rules by which rows are refused.

    Where rows are few, which other rules they break depends on how many there are, and others do not read it.
    """
    rules = [error for error in errors if isinstance(error, RuleRefusal)]
    few = next((rule for rule in rules if rule.finding.values["rule"] == "disclosure.rows"), None)
    for rule in rules:
        rule.args = ((few or rule).finding,)
