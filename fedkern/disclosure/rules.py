"""Keeps the numbers of disclosure control of open jobs, which no noise protects, in one place.

The messages of an open client are functions of its rows; where these are few, messages can tell them. Job files and holders'
policies choose a level of `LEVELS`, or other numbers, in a table [disclosure].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from ..data.design import LEAST_OF_LEVEL

LEAST_ROWS = 20  # of a client; of more than three columns as many were computed from what a job at the defaults sends

Level = Literal["none", "standard", "strict"]


class Rules(NamedTuple):
    """What an open job asks of each client's rows before anything of them leaves. 0 asks for nothing.

    Examples
    --------
    >>> from fedkern.disclosure.rules import LEVELS, Rules
    >>> LEVELS["standard"].rows, LEVELS["strict"].rows
    (10, 20)
    >>> Rules(rows=7).of_coefficients
    False
    """

    rows: int = 0  # of a client
    rows_of_one_column: int = 0  # of a client, where the model has one column
    # Rows a coefficient where log-likelihoods at draws and exact curvatures are sent: of few columns more.
    values: float = 0
    values_of_two_columns: float = 0
    values_of_one_column: float = 0
    weighed: float = 0  # the same of their effective number, as the fit of a client's rows weighs them
    summary: float = 0  # the same, by both numbers, of a client that is too small and takes part by a summary; 0: none
    sites: float = 0  # rows a coefficient where sites are sent
    sites_of_few_columns: float = 0
    linear: float = 0  # rows a coefficient where cross-products alone are sent
    rows_per_value: int = 0  # that have a level, or a value of a column of two, if any has it
    # The same by a summary, and where no covariate is a measurement, so that messages tell numbers of rows alone.
    fewest_per_value: int = 0
    groups: int = 0  # of a client, where the model has effects of groups
    combinations: int = 0  # rows that have each combination of the covariates' values, where few can occur
    leverage: float = 1.0  # of a row at the fit of its client's rows, at most
    slopes: int = 0  # more rows for each variance and covariance of random slopes of a nonlinear model
    sloped_groups: int = 0  # groups of one row, and of two, of a linear model with random slopes
    search: bool = False  # whether sums and products of columns are searched for rows that they single out

    @property
    def of_coefficients(self) -> bool:
        """Whether rows are asked for by the number of coefficients."""
        return self.linear > 0

    def of_counts(self) -> Rules:
        """Returns the rules for rows of which messages tell how many have which values, and no more; a search has no others."""
        if self.search:
            return self
        return self._replace(
            rows_of_one_column=self.rows,
            values_of_two_columns=self.values,
            values_of_one_column=self.values,
            rows_per_value=self.fewest_per_value,
        )

    def with_strictest(self, other: Rules) -> Rules:
        """Returns of each rule the stricter one."""
        both = {name: max(number, getattr(other, name)) for name, number in self._asdict().items()}
        # A level that asks for rows a coefficient and has no summaries takes none.
        summaries = [rules.summary for rules in (self, other) if rules.of_coefficients]
        return Rules(**both | {"leverage": min(self.leverage, other.leverage), "summary": min(summaries, default=0)})


# Rows a coefficient at `strict`: twice the most that were computed, within a minute, from what is sent of a full covariance, or
# of a diagonal one; of exact curvatures on the way to a mode, and log-likelihoods at thousands of points, twice and more what was
# computed within half a minute (of six to nine rows a coefficient all are determined, of fifteen up to 44 %, far from the
# others). Linear jobs tell cross-products alone: as many rows as coefficients, up to a rotation. Likelihoods at steep random
# slopes tell groups apart: of 92 rows of two columns three quarters were determined, of 180 of one column up to a third; of
# linear models each group tells its own squares and products: of up to 30 groups of two rows nearly all rows were determined, of
# 60 few.
_STANDARD = Rules(
    rows=10,
    rows_of_one_column=LEAST_ROWS,
    values=12,
    values_of_two_columns=18,
    values_of_one_column=25,
    weighed=12,
    summary=2,
    sites=8,
    sites_of_few_columns=6,
    linear=2,
    rows_per_value=5,
    fewest_per_value=3,
    groups=5,
    leverage=0.9,
)
_STRICT = _STANDARD._replace(
    rows=LEAST_ROWS,
    values=15,
    weighed=13,
    summary=0,
    rows_per_value=10,
    fewest_per_value=10,
    groups=10,
    combinations=LEAST_OF_LEVEL,
    slopes=50,
    sloped_groups=60,
    search=True,
)
LEVELS: Mapping[Level, Rules] = {"none": Rules(), "standard": _STANDARD, "strict": _STRICT}
QS = 5  # at which a default job tells the curvature: three sites, and twice the gradient at the end
VALUES = 400  # numbers more, as when rows were attacked: log-likelihoods were told, too
OF_THE_NUMBERS = 0.8  # as many cells as this share of the numbers: all were never determined of more
NEAR = 2  # clients by which two jobs differ at most whose difference tells something of these alone
NEAR_ROWS = LEAST_ROWS  # by fewer rows of a client two jobs may not differ: their difference is a sum over these
OPEN_JOBS = 20  # on the same rows of a client, with other columns: sums of several tell what no two of them do

# Where covariates can take few combinations of values, what is sent tells how often each occurs (docs/concepts/disclosure.md).
COARSE = 2_400  # combinations that are few: that was computed of up to 292, and more were not tried for long
COARSE_ROWS = 2_000  # of a client: from so many on, other frequencies explain what is sent as well
EQUATIONS = 10  # combinations a squared coefficient: with fewer, more numbers are sent than there are, however many rows


# One key of [disclosure] for all of them.
PER_COEFFICIENT = tuple(name for name in Rules._fields if name.startswith(("values", "weighed", "sites", "linear")))


def with_keys(rules: Rules, keys: Mapping[str, Any]) -> Rules:
    """Returns rules with the numbers of a table [disclosure] in the place of the level's; its other keys are no rules.

    Examples
    --------
    >>> from fedkern.disclosure.rules import LEVELS, with_keys
    >>> with_keys(LEVELS["standard"], {"rows": 7, "rows_per_coefficient": 0}).of_coefficients
    False
    """
    given = {name: keys[name] for name in Rules._fields if name in keys}
    if "rows" in given:
        given["rows_of_one_column"] = given["rows"]
    if "rows_per_value" in given:
        given["fewest_per_value"] = given["rows_per_value"]
    if "rows_per_coefficient" in keys:
        given |= dict.fromkeys(PER_COEFFICIENT, keys["rows_per_coefficient"])
    made = rules._replace(**given)
    # Where rows a coefficient are not asked for there is nothing that a summary would be in the place of.
    return made if made.of_coefficients else made._replace(summary=0)


OLD_KEYS = ("least_rows", "least_groups", "small", "lower")  # of earlier versions


def of_old_keys(old: Mapping[str, Any], *, holder: bool = False) -> dict[str, Any]:
    """Returns the keys of [disclosure] that ask for what keys of earlier versions asked for, in a job or in a `holder`'s policy.

    `least_rows` opened four rules: where a job's was below 20, rows a coefficient and combinations were not asked for, and half
    of it was the number of rows of each value. A holder's asked for more alone.

    Examples
    --------
    >>> from fedkern.disclosure.rules import of_old_keys
    >>> of_old_keys({"least_rows": 50})
    {'level': 'strict', 'rows': 50, 'rows_per_value': 25}
    """
    new: dict[str, Any] = {}
    if "small" in old:
        new["small"] = old["small"]
    if {"least_rows", "least_groups"} & old.keys() or old.get("lower") is False:
        new["level"] = "strict"
    if "least_groups" in old:
        new["groups"] = old["least_groups"]
    least = old.get("least_rows")
    if not isinstance(least, int):
        return new | ({} if least is None else {"rows": least})  # which is refused for what it is
    if least >= LEAST_ROWS or not holder:
        new |= {"rows": least, "rows_per_value": least // 2}
        if least < LEAST_ROWS:
            new = {"groups": 5} | new | {"rows_per_coefficient": 0, "combinations": 0, "leverage": 1.0}
    return new


def told_up_to(coefficients: int, rules: Rules, *, diagonal: bool) -> int:
    """Returns the number of rows of a client up to which its messages of a nonlinear model may tell them all.

    Of many coefficients so many rows have more cells than numbers are sent.
    """
    d, p = coefficients, max(coefficients - 1, 1)
    whole = d * (d + 1) // 2 + d
    numbers = ((QS - 2) * 2 * d + 2 * whole if diagonal else QS * whole) + min(VALUES, LEAST_ROWS * d - 1)
    # Of few columns a row that is far out is told by itself, however many more cells than numbers there are.
    most = rules.sites_of_few_columns * d if d in (2, 3) else min(rules.sites * d, int(OF_THE_NUMBERS * numbers / p))
    return int(max(rules.linear * d, most))


def told_by_values(
    coefficients: int, rules: Rules, slopes: int = 0, *, intercept: bool = True, shapes: int = 0, each: float | None = None
) -> int:
    """Returns the number of rows where a client sends its log-likelihood at thousands of points, which are more numbers than its
    rows have cells.

    Parameters
    ----------
    coefficients : with the `shapes` numbers of the family among them
    slopes : that differ between groups
    intercept : whether one of the coefficients is no column's; partial likelihoods have none
    each : rows a coefficient where there are more than two columns; None: the rule's

    Examples
    --------
    >>> from fedkern.disclosure.rules import LEVELS, told_by_values
    >>> [told_by_values(d, LEVELS["standard"]) for d in (2, 3, 4)], told_by_values(3, LEVELS["standard"], shapes=1)
    ([50, 54, 48], 75)
    """
    terms = slopes + 1 if slopes else 0
    few = {2: rules.values_of_one_column, 3: rules.values_of_two_columns}
    each = few.get(max(coefficients - shapes + (not intercept), 2), rules.values if each is None else each)
    return int(each * coefficients) + rules.slopes * terms * (terms + 1) // 2
