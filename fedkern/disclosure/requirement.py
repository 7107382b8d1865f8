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
    """Holds what the fit of a client's rows depends on, beside these."""

    precision: float | None = None  # of the prior of coefficients; None: one of columns in the standard deviations of all sites
    centre: float | None = None  # of the intercept's prior, if it has one
    intercept: bool = True
    r: float | None = None  # of a negative binomial; None where it is learnt
    splines: Mapping[str, Sequence[float]] = field(default_factory=dict)  # column -> its knots
    part: float = 1.0  # of the prior, that rows have which are a part of those that the model fits


@dataclass(frozen=True)
class Requirement:
    """Says what a job asks of its clients' rows. A method's keys make it; a holder's rules are added by `bound_by`.

    Examples
    --------
    >>> from fedkern.disclosure.requirement import ALL, Requirement
    >>> from fedkern.disclosure.rules import LEVELS
    >>> Requirement(LEVELS["standard"], tells="values", whole=ALL).told_up_to(6)
    72
    """

    rules: Rules = LEVELS["none"]  # the numbers that bind
    level: Level = "standard"  # that they are of
    counts: bool = True  # whether clients have rows of people and no noise protects them: else nothing is asked
    # Whether rows are looked at that columns or a response single out: the job must know which these are.
    looks_at_values: bool = True

    # What messages tell.
    tells: Kind = "nothing"  # by coefficients
    each_row: bool = False  # a number for every row, whatever its values are
    whole: range = NONE  # numbers of coefficients of which every client's messages tell X'WX
    rows: bool = False  # its rows, however many, by choices of the job
    cells: bool = False  # counts of cells alone, which join where few rows are in them (`cells`)
    batch: float = 1.0  # the share of its rows from which a message is made, on average

    # Unknowns of a likelihood: blocks * coefficients + more + shapes.
    blocks: int = 1  # of coefficients: one of each level beside the first
    more: int = 0  # thresholds
    shapes: int = 0  # numbers of the family
    of_family: int = 0  # those of the shapes that do not count as columns where these are few
    scaled: bool = False  # whether half of the blocks are of sigma: they add no column
    marginal: int = 0  # rows for each of these but shapes where sums of what changes levels' probabilities are told
    slopes: int = 0  # that differ between groups
    by_products: bool = False  # whether values at draws are functions of sums of products over groups of each size alone
    intercept: bool = True  # whether one coefficient is no column's
    weighs: int | None = None  # coefficients beside columns' where rows count as the fit weighs them; None: they do not
    counted_too: str = ""  # words for unknowns beside coefficients of columns
    fewer_too: str = "random slopes"  # and for what a job may have fewer of

    # Of the model.
    family: str = "gaussian"
    nominal: bool = False  # whether each level has coefficients of its own
    covariance: str = ""  # of sites; "" without sites
    times: bool = False  # whether rows have survival times
    drops: bool = False  # whether rows that lack a cell are left out
    groups: bool = False  # whether it has effects of groups
    names_groups: bool = False  # whether a column could name groups
    fit: Fit = Fit()

    # What becomes of a client that is refused, and of sums.
    small: Literal["refuse", "leave-out"] = "refuse"
    summaries: bool = False  # whether clients that are too small for values may take part by a summary
    secure: bool = False  # whether sums are masked
    additive: bool = False  # whether the sum of what clients tell is the same however their rows are dealt
    summed: bool = (
        False  # whether rules on sums are judged on all clients' rows (`totals`), and here those on a client's own alone
    )

    # Who is protected, and from whom.
    unit: Unit | None = None  # of a private job
    keyed: bool = False  # whether its noise can be drawn again
    factory: str | None = None  # the function of the holders' packages that it runs
    readers: str = "a server"
    own: Rules | None = None  # the job's own rules, where a holder's are beside them

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

    def least_rows(self, coefficients: int, *, intercept: bool) -> str:
        """Returns the rule for the number of rows, by its name."""
        return "rows_of_one_column" if coefficients <= 1 + intercept else "rows"

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
        if self.tells == "products" or (self.by_products and not self.rules.search):
            return int(self.rules.linear * coefficients) if self.told_of(coefficients) else 0
        if self.tells == "sites":
            return told_up_to(coefficients, self.rules, diagonal=not self.told_of(coefficients))
        if self.tells != "values" or not self.rules.of_coefficients:
            return 0
        unknowns = self.unknowns(coefficients)
        counted = unknowns + self.shapes
        shapes = self.of_family + coefficients * self.scaled
        values = told_by_values(counted, self.rules, self.slopes, intercept=self.intercept, shapes=shapes)
        return self.marginal * unknowns + values

    def may_tell_curvature(self, n_rows: int, coefficients: int) -> bool:
        """Tells whether a client with so many rows may tell X'WX, by the rows a coefficient that are asked for."""
        return n_rows > max(self.told_up_to(coefficients), self.rules.linear * coefficients)

    def weighing(self, coefficients: int) -> tuple[int, int]:
        """Returns the effective number of rows, as a nonlinear model weighs them, that a client needs beside those of a value;
        and the coefficients by which they are asked for."""
        if self.weighs is None:
            return 0, coefficients
        counted = coefficients + self.weighs
        return told_by_values(counted, self.rules, each=self.rules.weighed), counted
