"""Says what a job asks of its clients' rows, by what its messages tell: the one record that disclosure control reads of a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ..privacy.accountant import Unit
from .rules import LEVELS, Level, Rules, told_by_values, told_up_to

# What a client's messages tell by coefficients: cross-products alone, log-likelihoods at draws with exact curvatures, or sites.
Kind = Literal["nothing", "products", "values", "sites"]
NONE, ALL = range(0), range(1 << 31)  # numbers of coefficients


@dataclass(frozen=True)
class Fit:
    """Holds what the fit of a client's rows depends on, beside these.

    Attributes
    ----------
    precision : of the prior of coefficients; None where it is one of columns in the standard deviations of all sites
    centre : of the intercept's prior, if it has one
    intercept : whether there is one
    r : of a negative binomial; None where it is learnt
    splines : column -> its knots
    part : of the prior, that rows have which are a part of those that the model fits
    """

    precision: float | None = None
    centre: float | None = None
    intercept: bool = True
    r: float | None = None
    splines: Mapping[str, Sequence[float]] = field(default_factory=dict)
    part: float = 1.0


@dataclass(frozen=True)
class Requirement:
    """Says what a job asks of its clients' rows.

    Attributes
    ----------
    rules, level : the numbers that bind, and the level that they are of
    counts : whether clients have rows of people and no noise protects them: else nothing is asked
    looks_at_values : whether rows are looked at that columns or a response single out: the job must know which these are
    tells : what messages tell by coefficients
    each_row : whether clients tell a number for every row, whatever its values are
    whole : numbers of coefficients of which every client's messages tell X'WX
    blocks, more, shapes : a likelihood has blocks * coefficients + more + shapes unknowns: coefficients of levels, thresholds,
        numbers of the family
    of_family : those of the shapes that do not count as columns where these are few
    marginal : rows for each of these but shapes where sums of what changes levels' probabilities are told
    slopes, intercept : slopes that differ between groups; whether one coefficient is no column's
    weighs : coefficients beside those of columns where rows are counted as the fit weighs them; None: not counted so
    rows : whether choices have every client's messages tell its rows, however many they are
    summaries, groups : whether clients that are too small for values may take part by a summary; whether the model has effects
        of groups
    batch : the share of its rows from which a message is made, on average
    counted_too, fewer_too : words for unknowns beside coefficients of columns, and for what a job may have fewer of
    family, nominal, covariance, times, drops, names_groups : of the model: the family, whether each of its levels has
        coefficients of its own, the covariance of sites ("" without sites), whether rows have survival times, whether those that
        lack a cell are left out, whether a column could name groups
    fit : what a fit depends on
    small, secure : what becomes of a client whose rows are refused, and whether sums are masked
    additive, summed : whether the sum of what clients tell is the same however their rows are dealt; whether rules on sums are
        judged on all clients' rows together (`totals`), and here only those on a client's own
    unit, keyed, factory, readers : the unit that a private job protects, or None; whether its noise can be drawn again; the
        function of the holders' packages that it runs; who reads what clients send
    own : the job's own rules, where a holder's are beside them

    Examples
    --------
    >>> from fedkern.disclosure.requirement import ALL, Requirement
    >>> from fedkern.disclosure.rules import LEVELS
    >>> Requirement(LEVELS["standard"], tells="values", whole=ALL).told_up_to(6)
    72
    """

    rules: Rules = LEVELS["none"]
    level: Level = "standard"
    counts: bool = True
    looks_at_values: bool = True
    tells: Kind = "nothing"
    each_row: bool = False
    whole: range = NONE
    blocks: int = 1
    more: int = 0
    shapes: int = 0
    of_family: int = 0
    marginal: int = 0
    slopes: int = 0
    intercept: bool = True
    weighs: int | None = None
    rows: bool = False
    summaries: bool = False
    groups: bool = False
    batch: float = 1.0
    counted_too: str = ""
    fewer_too: str = "random slopes"
    family: str = "gaussian"
    nominal: bool = False
    covariance: str = ""
    times: bool = False
    drops: bool = False
    names_groups: bool = False
    fit: Fit = Fit()
    small: Literal["refuse", "leave-out"] = "refuse"
    secure: bool = False
    additive: bool = False
    summed: bool = False
    unit: Unit | None = None
    keyed: bool = False
    factory: str | None = None
    readers: str = "a server"
    own: Rules | None = None

    @property
    def tells_combinations(self) -> bool:
        """Whether messages tell how often each combination of covariates occurs, where few can."""
        return self.tells in ("values", "sites")

    @property
    def small_by_summary(self) -> bool:
        """Whether a client that is too small for values takes part by a summary; where sums are masked all do, or none."""
        return self.summaries and not self.secure

    @property
    def least_of_group(self) -> int:
        """The number of groups that a client must have; 0 where none is asked for."""
        return self.rules.groups if self.groups else 0

    def bound_by(self, rules: Rules) -> Requirement:
        """Returns the same with what a holder asks of its own rows beside it: the stricter one of each rule."""
        return replace(self, rules=self.rules.with_strictest(rules), own=self.rules)

    def told_of(self, coefficients: int) -> bool:
        """Tells whether every client's messages tell X'WX of so many coefficients: clients with few rows then take no part."""
        return coefficients in self.whole

    def unknowns(self, coefficients: int) -> int:
        """Returns the number of unknowns of a likelihood without effects and shapes."""
        return self.blocks * coefficients + self.more

    def told_up_to(self, coefficients: int) -> int:
        """Returns the number of rows up to which a client takes no part, by so many coefficients; 0 where that is not asked.

        With so few rows, the client's messages may tell all of them, exactly or up to a rotation.
        """
        if self.tells == "products":
            return int(self.rules.linear * coefficients) if self.told_of(coefficients) else 0
        if self.tells == "sites":
            return told_up_to(coefficients, self.rules, diagonal=not self.told_of(coefficients))
        if self.tells != "values" or not self.rules.of_coefficients:
            return 0
        unknowns = self.unknowns(coefficients)
        counted = unknowns + self.shapes
        values = told_by_values(counted, self.rules, self.slopes, intercept=self.intercept, shapes=self.of_family)
        return self.marginal * unknowns + values

    def may_tell_curvature(self, n_rows: int, coefficients: int) -> bool:
        """Tells whether a client with so many rows may tell X'WX, by the rows a coefficient that are asked for."""
        return n_rows > max(self.told_up_to(coefficients), self.rules.linear * coefficients)

    def weighing(self, coefficients: int) -> tuple[int, int]:
        """Returns the effective number of rows, as a nonlinear model weighs them, that a client needs beside those of a value;
        and the coefficients by which they are asked for."""
        if self.weighs is None:
            return 0, coefficients
        own = coefficients + self.weighs
        return told_by_values(own, self.rules, each=self.rules.weighed), own
