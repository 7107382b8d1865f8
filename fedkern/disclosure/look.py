"""Looks at a client's rows in an open job, where it lives, before anything leaves: which count, how much each weighs, and which
its columns, its response or the fit single out.

A client sends sums over its rows of functions of them. A column that is 0 in all but a few rows makes sums over these few alone,
however many others the client has: where it is one row, the sum is that row. So rows that are singled out count as a client of
their own, by their effective number, (sum w)^2 / sum w^2. No file is opened here, and no message moved.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array
from ..data import fitted
from ..data.cells import MISSING, MOST_OFF, Cells, Text, floats, labels, number
from ..data.design import LEAST_OF_LEVEL, column_of, level_numbers
from ..data.incomplete import MARK, marked
from ..data.rare import Rare, Standardised, heavy, rare, standardised, without_faults
from ..data.rounded import join_rounded
from ..data.table import Table
from ..finding import Value
from ..kernels.families import BERNOULLI, FAMILIES, POSITIVE, Family, is_linear
from ..kernels.survival import arranged
from ..models.encoding import Column, Spec
from ..models.sparse import Spline
from ..models.weighing import effective, levered
from .refusals import Broken
from .requirement import Requirement
from .rules import LEVELS

NEARLY = 1e-9  # what sums of weights lose
LEAST_AT_RISK = 5  # rows at the time of an event that counts as one: of two, the term is a function of one difference of rows
MOST_LOOKED = 1000  # rows that are at risk, first
MOST_FITTED = 5e7  # multiplications for the cross-products of rows that are fitted to see what they weigh
MOST_LEVERED = 5e9  # and of rows whose leverage is looked at
LEAST_PRECISION = 1e-8  # of a prior there
OF_INTERCEPT = 1e-4  # the precision of its prior there: next to none, for the middle of columns is not that of the job
SMALL_R = 0.1  # of a negative binomial whose r is learnt: about as small as r is found to be
BY_FIT = "by-the-fit"


# Which rows count --------------------


def weights(table: Table, spec: Spec) -> Array:
    """Returns (n,) the weight of each row: 1 without weights, and 0 where a job learns nothing of it, for it has no response.

    (A cell that cannot be read is a fault, and counts.)
    """
    present = np.ones(table.n_rows, dtype=bool)
    cells, weight = (table.columns.get(name) if name else None for name in (spec.response, spec.weight or spec.trials))
    if isinstance(cells, Text):
        words = {""} if spec.labelled else MISSING
        present &= np.array([level.lower() not in words for level in cells.levels], dtype=bool)[cells.codes]
    elif cells is not None:
        present &= ~np.isnan(np.asarray(cells, np.float64))
    present[[*table.broken]] = True
    if weight is None:
        return present.astype(np.float64)
    values = floats(weight)
    return np.where(present & (values != 0), np.nan_to_num(np.abs(values), posinf=0.0), 0.0)


def whole(rows: float) -> int:
    """Returns an effective number of rows, rounded down."""
    return int(rows + NEARLY)


def groups_of(table: Table, column: str, rows: Array) -> set[str]:
    """Returns the groups of the rows that count, by a column of their labels; an empty one is none."""
    return {label for label, row in zip(table.cells(column), rows.tolist()) if row and label}


def events(table: Table, spec: Spec) -> tuple[Array, Array | None]:
    """Returns (n,) the events of each row, and (n,) its trials, where rows have them."""
    if spec.times and spec.levels:
        return np.sum([event for _, event in causes(table, spec)], axis=0, dtype=np.float64), None
    cells = table.columns[str(spec.response)]
    if spec.positive is not None:
        cells = labels(cells)
        y = np.array([level == spec.positive for level in cells.levels], dtype=np.float64)[cells.codes]
    else:
        y = floats(cells)
    y = np.nan_to_num(np.abs(without_faults(y)))
    return y, None if spec.trials is None else floats(table.columns[spec.trials])


def causes(table: Table, spec: Spec) -> list[tuple[str | None, Array]]:
    """Returns the label of each cause of events of survival times, and (n,) 1 where a row ends with it; of one kind of event that
    alone."""
    if not spec.levels:
        return [(spec.positive, events(table, spec)[0])]
    codes = codes_of(table.columns[str(spec.response)], spec.levels)
    return [(level, (codes == k).astype(np.float64)) for k, level in enumerate(spec.levels[1:], start=1)]


def codes_of(cells: Cells, levels: Sequence[str]) -> NDArray[np.int64]:
    """Returns (n,) which of the levels each cell is, -1 for a cell that is none."""
    if isinstance(cells, Text):
        return level_numbers(cells, levels)
    numbers = [number(level) for level in levels]
    return np.array([numbers.index(value) if value in numbers else -1 for value in floats(cells).tolist()], np.int64)


class Events(NamedTuple):
    """Counts survival times by their weights: effective numbers of rows with their event, in all and where enough are at risk."""

    events: int
    covered: int


def covered_events(table: Table, spec: Spec, rows: Array, event: Array) -> Events | None:
    """Counts the events of survival times; None where times cannot be read, which is a fault of its own.

    Parameters
    ----------
    rows : (n,) `weights`
    event : (n,) 1 where a row ends with its event
    """
    time, *entry = join_rounded((), *(floats(table.columns[name]) for name in spec.times))
    if spec.upper is not None and spec.upper in table.columns:  # of an event in an interval its end
        upper = floats(table.columns[spec.upper])
        time = np.where(np.isfinite(upper), np.maximum(time, upper), time)
    # Of a hazard that all share a group is a frailty, and no stratum.
    first = spec.groups[0] if spec.groups else None
    stratified = not spec.exposed and first in table.columns and first not in spec.with_effects
    strata = np.array(table.cells(str(first))) if stratified else None
    counting, dying = rows > 0, (rows > 0) & (event == 1)
    try:
        sets = arranged(
            time[counting], dying[counting], entry[0][counting] if entry else None, None if strata is None else strata[counting]
        )
    except ValueError:
        return None
    weight, covered = rows[counting][sets.order], np.zeros(int(counting.sum()))
    until = np.full(len(covered), len(sets.ends)) if sets.until is None else sets.until
    most = float(weight.max(initial=0.0))
    for k, (first, end, deaths) in enumerate(zip(sets.first.tolist(), sets.ends.tolist(), sets.deaths.tolist())):
        own, at_risk = weight[first:end], until[first:end] > k
        # No effective number is below the sum of weights over the largest, by which the first rows decide most sets.
        some = float(own[:MOST_LOOKED][at_risk[:MOST_LOOKED]].sum())
        if some >= LEAST_AT_RISK * most or effective(own[at_risk]) >= LEAST_AT_RISK * (1 - NEARLY):
            covered[end - deaths : end] = weight[end - deaths : end]
    return Events(whole(effective(rows * dying)), whole(effective(covered)))


# Of which columns --------------------


def columns_told(table: Table, spec: Spec) -> list[Column]:
    """Returns the columns of which sums of products are told."""
    columns = [column_of(spec, table, name) for name in spec.covariates(table.names)]
    # Of a column that the job does not declare the scale is agreed on later: about its own standard deviation.
    columns = [column if column.name in spec.columns or column.levels else Column(column.name, column.kind) for column in columns]
    if spec.offset in table.columns:
        columns.append(_number(str(spec.offset)))
    if FAMILIES[spec.family].linear and spec.response in table.columns:  # its cross-products are told as columns' are
        columns.append(_number(str(spec.response)))
    return columns


def with_splines(splines: Mapping[str, Sequence[float]], table: Table, columns: list[Column]) -> tuple[Table, list[Column]]:
    """Adds the columns that a job makes of some columns: sums over rows are told of these too."""
    made = {
        f"{name}~{k}": values
        for name, knots in splines.items()
        if name in table.columns
        for k, values in enumerate(Spline.at(knots).columns(without_faults(floats(table.columns[name]))).T, 1)
    }
    return replace(table, columns={**table.columns, **made}), [*columns, *map(_number, made)]


def _number(name: str) -> Column:
    return Column(name, "numeric", center=0.0, scale=1.0)


# What singles rows out --------------------


def of_a_value(requirement: Requirement, family: str) -> int:
    """Returns how many rows must share a value of a covariate; 0 where that is not asked."""
    if requirement.each_row:
        return 0
    # Linear sums have the same weights in every round: of two rows or more they are never more than their sums.
    wanted = math.ceil(requirement.rules.rows_per_value / requirement.batch)
    return min(LEAST_OF_LEVEL, wanted) if is_linear(family) and not requirement.cells else wanted


def of_a_level(requirement: Requirement, wanted: int) -> int:
    """Returns how many rows must have a level of the response, if any has it, where covariates ask for `wanted`.

    A likelihood of ordered levels has a function of the rows of each alone, which thresholds single out: three were determined.
    """
    return min(LEAST_OF_LEVEL, wanted) if requirement.nominal else wanted


@dataclass(frozen=True)
class Look:
    """Looks at a client's rows for values that too few of them have, and for rows that weigh too much.

    Attributes
    ----------
    asked, table, spec : what is asked, and of which rows
    columns : of which sums of products are told
    weights : (n,) of the rows, 0 of those that do not count
    """

    asked: Requirement
    table: Table
    columns: Sequence[Column]
    spec: Spec
    weights: Array

    @classmethod
    def at(cls, asked: Requirement, table: Table, spec: Spec, weights: Array) -> Look:
        """Returns the look at rows with the columns that the job makes of them."""
        return cls(asked, *with_splines(asked.fit.splines, table, columns_told(table, spec)), spec, weights)

    @cached_property
    def family(self) -> Family:
        """The family of the response; of survival times that of whether a row ends with an event, whatever its cause."""
        return BERNOULLI if self.spec.times else FAMILIES[self.spec.family]

    @cached_property
    def wanted(self) -> int:
        """How many rows must share a value of a covariate."""
        return of_a_value(self.asked, self.spec.family)

    @cached_property
    def fewest(self) -> int:
        """How many rows must share what a server has a sum of, and no more."""
        return min(LEAST_OF_LEVEL, self.wanted)

    @cached_property
    def filled(self) -> list[str]:
        """The columns whose missing cells have been filled."""
        return [column.name for column in self.columns if marked(column.name) in self.table.columns]

    @cached_property
    def events(self) -> tuple[Array, Array | None]:
        """The events of each row (n,), and its trials (n,), where rows have them."""
        return events(self.table, self.spec)

    def few(self, *, covariates: bool = True, weighing: tuple[int, int] = (0, 1)) -> Iterator[Broken]:
        """Yields values that too few rows have, and rows that weigh too much.

        Parameters
        ----------
        covariates : whether they are looked at, or the response alone
        weighing : effective number of rows that are asked for, as the fit weighs them; of how many coefficients
        """
        requirement, spec, family, response = self.asked, self.spec, self.family, str(self.spec.response)
        found = self._of_values(covariates=covariates and not requirement.summed)
        if found:
            yield self.singled_out(found)
        # The search for sparse sums finds a row that has one to itself, so that its leverage would be said once more.
        looks_at_leverage = covariates and not requirement.rules.search
        levered = self._of_leverage(self._at_no_slopes) if looks_at_leverage else None
        if levered is not None:
            yield levered
        if response not in self.table.columns or family.measured or not (self.wanted or weighing[0]):
            return
        least, parts = self.of_response()
        few = math.ceil(min((rows for rows in (effective(of_part) for _, of_part in parts) if rows > 0), default=0) - NEARLY)
        if 0 < few < least and not requirement.summed:
            yield self.singled_out((Rare((response,), few, wanted=least),))
            if family.leveled:
                return
        elif self.wanted > 1 and not (family.leveled or family.chances or spec.trials) and self._is_heavy(self.events[0]):
            yield self.singled_out((Rare((response,), 1, far=True),))
            return
        if self._exposed is not None and (rows := effective(self._exposed)) < self.wanted:
            values: dict[str, Value] = {"rows": rows, "wanted": self.wanted, "column": str(spec.offset)}
            remedies = ("log-of-exposure", "mend-cells", "no-offset")
            yield Broken("rows-by-offset", "rows_per_value", int(rows), values, remedies)
            return
        alone = bool(found)  # then what the fit makes of the rows says the same once more
        for weights, why in self._weighed():
            light = self._of_fit(effective(weights), *weighing) if why == BY_FIT else None
            if light is not None:
                yield light
                alone = True
            if requirement.rules.search and not alone:
                found = rare(self.table, self.columns, weights, self.fewest, self.fewest, self.filled)
                if found:
                    yield self.singled_out(found, why)
                    alone = True
            if looks_at_leverage and levered is None and why == BY_FIT:
                levered = self._of_leverage(weights)
                if levered is not None:
                    yield levered

    # Values

    def of_response(self) -> tuple[int, list[tuple[str, Array]]]:
        """Returns how many rows must have a level of the response, or be events, or none; and (n,) the weights of those that do.

        With the mean of the others' predictors, which curvatures tell, X'y is the sum of x over few.
        """
        spec, weights = self.spec, self.weights
        if self.family.leveled:
            codes = codes_of(self.table.columns[str(spec.response)], spec.levels)
            parts = [(f"with {level!r}", np.where(codes == k, weights, 0.0)) for k, level in enumerate(spec.levels)]
            return of_a_level(self.asked, self.wanted), parts
        y, trials = self.events
        if spec.times and spec.levels:
            parts = [(f"with {cause!r}", weights * event) for cause, event in causes(self.table, spec)]
        elif trials is not None:
            parts = [("with an event", y), ("without one", np.maximum(trials - y, 0))]
        else:
            parts = [("with an event", weights * y)]
            if self.family.link != "log" and (not spec.times or spec.exposed):  # of "cox" a row without has no term
                parts.append(("without one", weights * np.maximum(1 - y, 0)))
        return self.fewest, [(of, np.where(weights > 0, at_fit, 0.0)) for of, at_fit in parts]

    def _is_heavy(self, values: Array) -> bool:
        return heavy(np.nan_to_num(without_faults(values)), self.weights)

    def _of_values(self, *, covariates: bool) -> tuple[Rare, ...]:
        """Finds values that too few rows have, or cells that have nearly all of a sum, whatever the fit makes of them."""
        family, table, spec, wanted, response = self.family, self.table, self.spec, self.wanted, str(self.spec.response)
        # Of a linear model two columns' product is a number of rows, which is said, unless each row has a weight of its own.
        together, search = 0 if family.linear and spec.weight is None else self.fewest, self.asked.rules.search
        found = rare(table, self.columns, self.weights, wanted, together, self.filled, search=search) if covariates else ()
        # Sums with weights, or trials, less those without, are those of rows that differ in these. All rows count, for some sums
        # are of those that weigh nothing too.
        for name in (spec.weight, spec.trials):
            if not found and wanted > 1 and name in table.columns:
                found = rare(table, [_number(str(name))], np.ones(table.n_rows), wanted, 0)
        if found or response not in table.columns:
            return found
        # Of heavy tails a far cell does not move the slopes, but its sum of squares is told.
        heavy_tailed = family.measured and not family.linear
        if wanted > 1 and heavy_tailed and self._is_heavy(floats(table.columns[response])):
            return (Rare((response,), 1, far=True),)
        if wanted > 1 and spec.exposed and set(spec.times) <= set(table.columns) and (seen := self._seen()):
            return (Rare(seen, 1, far=True),)
        # Sums are told of products of a response, a covariate and another column where a column weighs the rows, or the curvature
        # depends on the response.
        multiplied = spec.weight is not None or spec.trials is not None or spec.family not in ("bernoulli", "poisson")
        if covariates and search and multiplied and not family.linear:
            # A number is read as a text where one of its cells is empty.
            labelled = isinstance(table.columns[response], Text) and (family.chances or family.leveled)
            beside = Column(response, "categorical") if labelled else _number(response)
            return rare(table, [*self.columns, beside], self.weights, 1, self.fewest, self.filled)
        return ()

    def _seen(self) -> tuple[str, ...]:
        """Returns the columns of a time, or time after an entry, that is nearly the sum of all rows' times, which is told."""
        table, spec, names = self.table, self.spec, self.spec.times
        time, *entry = (np.nan_to_num(without_faults(floats(table.columns[name]))) for name in names)
        if heavy(time, self.weights):
            return names[:1]
        end = time
        if spec.upper is not None and spec.upper in table.columns:  # an event in an interval counts at its middle
            upper = without_faults(floats(table.columns[spec.upper]))
            end, names = np.where(upper > time, (time + upper) / 2, time), (*names, spec.upper)
            if heavy(end, self.weights):
                return (spec.upper,)
        # An entry that is not before its time is a fault of a cell, which is told later.
        late = bool(entry) and heavy(np.maximum(end - np.maximum(entry[0], 0.0), 0.0), self.weights)
        return names if late else ()

    # Weights of the fit

    def by_fit(self) -> list[Array]:
        """Returns (n,) the weights of the rows in X'WX where the model fits them, for each of its curvatures.

        There are none where these are the same everywhere, and 0 where the rows are too many to be fitted.
        """
        if self.family.measured:
            return []
        blocks = len(self.spec.levels) - 1 if self.family.leveled and self.asked.nominal else 1
        return [fit for fit, why in self._weighed() if why == BY_FIT] or [np.zeros(len(self.weights))] * blocks

    def _weighed(self) -> Iterator[tuple[Array, str]]:
        """Yields (n,) the weights of the rows in X'WX, and the fact that says why.

        For example, one row of intensive care may have been there for years, or may have had most visits. Nominal levels have a
        model of each level against the others, with weights of its own. Ordered levels have a model of all up to a level against
        those above: they are weighed together, since all have the same slopes.
        """
        if self.family.leveled:
            codes, nominal = codes_of(self.table.columns[str(self.spec.response)], self.spec.levels), self.asked.nominal
            splits = ((codes == k) if nominal else (codes >= k) for k in range(1, len(self.spec.levels)))
            fits = [fit for fit in (self._at_fit(split.astype(np.float64), None) for split in splits) if fit is not None]
            yield from ((fit, BY_FIT) for fit in (fits if nominal or not fits else [np.sum(fits, axis=0)]))
            return
        y, trials = self.events
        if self._exposed is not None:
            yield self._exposed, "by-the-offset"
        if self.spec.family.endswith("negative-binomial"):
            # Rows weigh (r + y) r mu / (r + mu)^2: where r is small, by their counts alone.
            yield self.weights * ((SMALL_R if self.asked.fit.r is None else self.asked.fit.r) + y), "by-the-counts"
        at_fit = self._at_fit(y, trials)
        if at_fit is not None:
            yield at_fit, BY_FIT

    def _of_fit(self, rows: float, least: int, coefficients: int) -> Broken | None:
        """Returns that the fit leaves few rows their weight, by their effective number."""
        requirement, usual = self.asked, LEVELS["standard"].rows
        # Questions, too, ask for rows by their effective number, unless fewer than usual are asked for.
        in_all = requirement.rules.rows if requirement.weighs is not None and requirement.rules.rows >= usual else 0
        asks = {"rows_per_coefficient": least, "rows_per_value": self.wanted, "rows": in_all}
        key = max(asks, key=lambda rule: asks[rule])
        if requirement.summed or rows >= asks[key]:
            return None
        enough = int(10 * rows / coefficients) / 10 if key == "rows_per_coefficient" else int(rows)
        remedies = ("leave-out-decider", "natural-scale", "pool")
        return Broken("rows-by-fit", key, enough, {"rows": rows, "wanted": asks[key]}, remedies, rows=rows)

    @cached_property
    def _offset(self) -> Array | None:
        """(n,) The offset; None where the job has none; a missing cell is 0."""
        if self.spec.offset is None or self.spec.offset not in self.table.columns:
            return None
        return np.clip(np.nan_to_num(floats(self.table.columns[self.spec.offset])), -MOST_OFF, MOST_OFF)

    @cached_property
    def _exposed(self) -> Array | None:
        """(n,) The weight of each row in X'WX by its offset; None without an offset.

        The offset stands beside the best intercept, or beside its prior's centre where that leaves fewer rows, or without an
        intercept where the model has none. With a log link the weight is the exposure, whatever the intercept: with years in
        place of their logarithms, the longest few rows hold nearly all of it.
        """
        fit = self.asked.fit
        if self._offset is None or self.family.leveled:
            return None
        at_best, known = self._at_no_slopes, fit.centre if fit.intercept else 0.0
        if self.family.link == "log" or known is None:
            return at_best
        chance = self.family if self.family.chances else BERNOULLI
        none = np.zeros_like(self._offset)  # what is expected of a row hangs on no response
        at_known = np.asarray(self.weights * chance.information(none, self._offset + known, 1.0, None))
        return at_known if not fit.intercept else min(at_best, at_known, key=effective)

    @cached_property
    def _at_no_slopes(self) -> Array:
        """(n,) The weight of each row in X'WX where all slopes are 0."""
        family, weights = self.family, self.weights
        if family.measured or family.leveled or self.spec.response not in self.table.columns or not weights.any():
            return weights
        y, trials = self.events
        return self._fitted(y, trials, np.ones((np.count_nonzero(weights), 1)), np.array([OF_INTERCEPT]))

    def _at_fit(self, y: Array, trials: Array | None) -> Array | None:
        """Returns (n,) the weight of each row in X'WX where the model fits the client's rows; None where they are too many."""
        design = self._standardised([column for column in self.columns if column.name != self.spec.offset], MOST_FITTED)
        return None if design is None else self._fitted(y, trials, design.X, self._precision(design))

    def _fitted(self, y: Array, trials: Array | None, X: Array, precision: Array) -> Array:
        """Returns the same of columns X (rows that count, d) and the prior's precision (d,)."""
        # Trials are counted apart: they are a row's weight where it has no other.
        weights = self.weights if self.spec.weight or not self.spec.trials else np.sign(self.weights)
        counted = self.weights > 0
        trials_of, offset = (
            np.ones(len(y)) if trials is None else trials,
            np.zeros(len(y)) if self._offset is None else self._offset,
        )
        y, trials_of, offset, weight = (column[counted] for column in (y, trials_of, offset, weights))
        found = fitted.weights(X, y, trials_of, offset, weight, precision, self.family)
        if self.family.domain is POSITIVE:  # of a log link means are those of a Poisson fit
            curve = self.family.observed if self.family.concave else self.family.information
            found = weight * curve(y, np.log(np.maximum(found / weight, 1e-300)), 1.0, None)
        weighed = np.zeros(len(weights))
        weighed[counted] = found
        return weighed

    def _of_leverage(self, weights: Array) -> Broken | None:
        """Finds a row whose leverage in the posterior's curvature is above the rule's: it is nearly alone in some sum.

        The columns of numbers are looked at. Of levels rows are counted; where fewer than usual are asked for they are looked at,
        too, as in questions, whose points are others than the fit: a number that does for this row would not do there.
        """
        rules, usual, table = self.asked.rules, LEVELS["standard"], self.table
        lowered = not self.family.linear and (rules.rows_per_value < usual.rows_per_value or rules.linear < usual.linear)
        numbers = [column for column in self.columns if column.kind == "numeric" or lowered]
        if rules.leverage >= 1 or not numbers:
            return None
        with np.errstate(all="ignore"):  # numbers whose squares are none are faults, or end the job later
            design, counting = self._standardised(numbers, MOST_LEVERED), np.flatnonzero(self.weights > 0)
        if design is None or not weights.any() or not np.isfinite(design.X.sum()):
            return None
        precision = np.zeros(design.X.shape[1]) if self.family.linear else self._precision(design)
        found = levered(design.X, weights[counting], np.diag(precision), rules.leverage)
        if found is None:
            return None
        row, leverage = found
        name = design.names[int(np.abs(design.X[row, 1:]).argmax())]
        cells = table.columns[name]
        value = cells.levels[cells.codes[counting[row]]] if isinstance(cells, Text) else float(floats(cells)[counting[row]])
        values: dict[str, Value] = {"row": table.place(int(counting[row])), "leverage": leverage, "most": rules.leverage}
        values |= {"column": name, "value": value}
        enough = 1.0 if lowered else min(math.ceil(100 * leverage) / 100, 1.0)  # a row alone may have the last digit more
        return Broken("row-of-leverage", "leverage", enough, values, ("mend-cell", "cap", "fewer-columns", "pool"))

    def _standardised(self, columns: Sequence[Column], most: float) -> Standardised | None:
        """Returns `data.rare.standardised` of some columns, which is made once."""
        names = tuple(column.name for column in columns)
        if names not in self._designs:
            found = standardised(self.table, columns, self.weights, most)
            self._designs.update({} if found is None else {names: found})
            return found
        found = self._designs[names]
        return found if found.X.size * found.X.shape[1] <= most else None

    @cached_property
    def _designs(self) -> dict[tuple[str, ...], Standardised]:
        """The standardised columns that were asked for, by the columns' names."""
        return {}

    def _precision(self, design: Standardised) -> Array:
        """Returns (1 + d,) the prior's precision of each coefficient, of columns in their own standard deviations; an intercept's
        first.

        A scale that the job file gives may be far from these.
        """
        fit = self.asked.fit
        if fit.precision is None:  # of columns in the standard deviations of all sites
            return np.array([OF_INTERCEPT, *np.full(len(design.scale), fit.part)])
        given = {column.name: column.scale if column.kind == "numeric" else 1.0 for column in self.columns}
        scale = np.array([float(given[name] or sd) for name, sd in zip(design.names, design.scale)])
        precision = fit.part * float(fit.precision) * (scale / design.scale) ** 2
        return np.array([OF_INTERCEPT, *np.clip(precision, LEAST_PRECISION, 1 / LEAST_PRECISION)])

    # What is said

    def singled_out(self, found: Sequence[Rare], by: str = "") -> Broken:
        """Returns the columns with the fewest rows, and others with few rows, so that all is mended at once.

        `by`: the fact that says why they are few.
        """
        wanted, spec, family = found[0].wanted or self.wanted, self.spec, self.family
        fewest = dict[frozenset[str], Rare]()
        for each in reversed(found):  # the first of each; a spline's columns are those of the one it is made of
            before = ((name, name.rpartition("~")[0]) for name in each.columns)
            names = tuple(dict.fromkeys(made if made in self.asked.fit.splines else name for name, made in before))
            fewest[frozenset(names)] = each._replace(columns=names)
        direction, *others = sorted(fewest.values(), key=lambda each: (len(each.columns), each.n_rows))
        remedies, farthest = self._remedies(direction), self._farthest(direction)
        # Effective numbers are counted up: as many as are wanted are fewer.
        rows = min(direction.n_rows, wanted - 1)
        values: dict[str, Value] = {"columns": direction.columns, "wanted": wanted, "rows": rows, "offset": spec.offset}
        facts = [by] if by else []
        if farthest is not None and (direction.far or (direction.n_rows <= 2 and not by)):
            values |= dict(zip(("row", "value"), farthest))
            facts.append("farthest")
        if direction.far:
            return Broken("far-cells", "rows_per_value", 1, values, remedies, tuple(facts))
        if others:
            values["others"] = [(" and ".join(other.columns), other.n_rows) for other in others]
            facts.append("the-same-of")
        measured = direction.columns == (spec.response,) and not (family.counted or family.binary or spec.levels)
        enough = min([rows, *(other.n_rows for other in others)])
        return Broken("uneven-response" if measured else "rare-values", "rows_per_value", enough, values, remedies, tuple(facts))

    def _farthest(self, directions: Rare) -> tuple[str, float] | None:
        """Returns the row whose cell of a column of numbers is farthest from the others, and the cell; None if there is none."""
        cells = self.table.columns.get(directions.columns[0])
        # A column of numbers is read as one of texts where cells are empty.
        if len(directions.columns) > 1 or cells is None or (isinstance(cells, Text) and not directions.far):
            return None
        values = without_faults(floats(cells))
        row = int(np.nanargmax(np.abs(values - np.nanmedian(values))))
        return self.table.place(row), float(values[row])

    def _remedies(self, direction: Rare) -> tuple[str, ...]:
        """Returns the remedies for columns that single out rows."""
        columns, spec = set(direction.columns), self.spec
        if columns & set(self.asked.fit.splines):
            return ("wider-knots", "mend-cells", "pool")
        if any(name.endswith(MARK) for name in columns):
            return ("drop", "fill-cells", "ignore-column")
        # Of two levels the other would be all that is left; a response keeps its levels.
        if (
            len(columns) == 1
            and columns != {spec.response}
            and len(column_of(spec, self.table, direction.columns[0]).levels or ()) > 2
        ):
            cells = self.table.columns[direction.columns[0]]  # that are numbers here may be of categories elsewhere
            known = isinstance(cells, Text) and cells.kind() == "categorical"
            return ("join-rare" if known else "join-rare-numbers", "mend-cells", "pool", "no-column")
        wrong = ("mend-cell", "cap") if direction.far else ("mend-cells",)
        if columns & {spec.weight, spec.trials, spec.offset} or columns <= {spec.response, *spec.times, spec.upper}:
            return (*wrong, "leave-row-out" if direction.far else "pool")
        which = "ignore-column" if len(columns) == 1 else "ignore-one-column"
        without = which if spec.coefficients is None else "leave-out-a-term"
        return (*wrong, without) if direction.far else (*wrong, "join-values", "pool", without)
