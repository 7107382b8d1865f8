"""Finds rows that a client's columns, or its response, single out, in open jobs: decided where it lives, before anything leaves.

A client sends sums over its rows of functions of them. A column that is 0 in all but a few rows makes sums over these few alone,
however many others the client has: where it is one row, the sum is that row. So rows that columns single out count as a client
of their own.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ..data import fitted
from ..data.cells import MOST_OFF, Cells, Text, floats, labels, number
from ..data.design import LEAST_OF_LEVEL, column_of, level_numbers
from ..data.incomplete import MARK, marked
from ..data.rare import Rare, Standardised, heavy, rare, standardised, without_faults
from ..data.table import Table
from ..finding import Value
from ..kernels.families import FAMILIES, Family, is_linear
from ..models.encoding import Column, Spec
from ..models.sparse import Spline
from ..models.weighing import effective, leverages
from .refusals import Broken
from .requirement import Requirement
from .rules import LEVELS

Array = NDArray[np.float64]

MOST_FITTED = 5e7  # multiplications for the cross-products of rows that are fitted to see what they weigh
MOST_LEVERED = 5e9  # and of rows whose leverage is looked at
LEAST_PRECISION = 1e-8  # of a prior there
OF_INTERCEPT = 1e-4  # the precision of its prior there: next to none, for the middle of columns is not that of the job
SMALL_R = 0.1  # of a negative binomial whose r is learnt: about as small as r is found to be
BY_FIT = "by-the-fit"


def of_a_value(asked: Requirement, family: str) -> int:
    """Returns how many rows must share a value of a covariate; 0 where that is not asked."""
    if asked.each_row:
        return 0
    # Linear sums have the same weights in every round: of two rows or more they are never more than their sums.
    wanted = math.ceil(asked.rules.rows_per_value / asked.batch)
    return min(LEAST_OF_LEVEL, wanted) if is_linear(family) else wanted


def of_a_level(asked: Requirement, wanted: int) -> int:
    """Returns how many rows must have a level of the response, if any has it, where covariates ask for `wanted`.

    A likelihood of ordered levels has a function of the rows of each alone, which thresholds single out: three were determined.
    """
    return min(LEAST_OF_LEVEL, wanted) if asked.nominal else wanted


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
        """The family of the response."""
        return FAMILIES[self.spec.family]

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
        asked, table, spec, response = self.asked, self.table, self.spec, str(self.spec.response)
        search, leverage = asked.rules.search, covariates and not asked.rules.search
        every = self._of_values(covariates=covariates and not asked.summed)
        if every:
            yield self.singled_out(every)
        alone = bool(every)  # then what the fit makes of the rows says the same once more
        levered = self._of_leverage(self._at_no_slopes) if leverage else None
        if levered is not None:
            yield levered
        if response not in table.columns or self.family.measured or not (self.wanted or weighing[0]):
            return
        parts = self.of_response()
        few, least = _fewest(own for _, own in parts[1]), parts[0]
        if 0 < few < least and not asked.summed:
            yield self.singled_out((Rare((response,), few, wanted=least),))
            if self.family.leveled:
                return
        elif (
            self.wanted > 1 and not (self.family.leveled or self.family.chances or spec.trials) and self._is_heavy(self.events[0])
        ):
            yield self.singled_out((Rare((response,), 1, far=True),))
            return
        if self._exposed is not None and (number := effective(self._exposed)) < self.wanted:
            remedies = ("log-of-exposure", "mend-cells", "no-offset")
            values = {"column": str(spec.offset)}
            yield _by_weight("rows-by-offset", "rows_per_value", int(number), number, self.wanted, remedies, **values)
            return
        # Questions, too, ask for rows by their effective number, unless fewer than usual are asked for.
        rows = asked.rules.rows if asked.weighs is not None and asked.rules.rows >= LEVELS["standard"].rows else 0
        for own, why in self._weighed():
            if why == BY_FIT and not asked.summed and (number := effective(own)) < max(self.wanted, weighing[0], rows):
                yield _of_fit(number, self.wanted, weighing, rows)
                alone = True
            if search and not alone and (found := rare(table, self.columns, own, self.fewest, self.fewest, self.filled)):
                yield self.singled_out(found, why)
                alone = True
            if leverage and levered is None and why == BY_FIT:
                levered = self._of_leverage(own)
                if levered is not None:
                    yield levered

    def of_response(self) -> tuple[int, list[tuple[str, Array]]]:
        """Returns how many rows must have a level of the response, or be events, or none; and (n,) the weights of those that do.

        A likelihood of ordered levels has a function of the rows of each alone, which thresholds single out: three were
        determined. With the mean of the others' predictors, which curvatures tell, X'y is the sum of x over few.
        """
        spec, weights = self.spec, self.weights
        if self.family.leveled:
            codes = codes_of(self.table.columns[str(spec.response)], spec.levels)
            parts = [(f"with {level!r}", np.where(codes == k, weights, 0.0)) for k, level in enumerate(spec.levels)]
            return of_a_level(self.asked, self.wanted), parts
        y, trials = self.events
        if trials is not None:
            both = [y, np.maximum(trials - y, 0)]
        else:
            others = self.family.link == "logit" and (not spec.times or spec.exposed)  # of "cox" a row without has no term
            both = [weights * y, *([weights * np.maximum(1 - y, 0)] if others else [])]
        rows = [np.where(weights > 0, own, 0.0) for own in both]
        return self.fewest, [*zip(("with an event", "without one"), rows)]

    def by_fit(self) -> list[Array]:
        """Returns (n,) the weights of the rows in X'WX where the model fits them, for each of its curvatures.

        There are none where these are the same everywhere, and 0 where the rows are too many to be fitted.
        """
        if self.family.measured:
            return []
        blocks = len(self.spec.levels) - 1 if self.family.leveled and self.asked.nominal else 1
        return [own for own, why in self._weighed() if why == BY_FIT] or [np.zeros(len(self.weights))] * blocks

    def _is_heavy(self, values: Array) -> bool:
        return heavy(np.nan_to_num(without_faults(values)), self.weights)

    def _of_values(self, *, covariates: bool) -> tuple[Rare, ...]:
        """Finds values that too few rows have, or cells that have nearly all of a sum, whatever the fit makes of them."""
        family, table, spec, wanted, response = self.family, self.table, self.spec, self.wanted, str(self.spec.response)
        # Of a linear model two columns' product is a number of rows, which is said, unless each row has a weight of its own.
        together, search = 0 if family.linear and spec.weight is None else self.fewest, self.asked.rules.search
        every = rare(table, self.columns, self.weights, wanted, together, self.filled, search=search) if covariates else ()
        # Sums with weights, or trials, less those without, are those of rows that differ in these. All rows count, for some sums
        # are of those that weigh nothing too.
        for name in (spec.weight, spec.trials):
            if not every and wanted > 1 and name in table.columns:
                every = rare(table, [_number(str(name))], np.ones(table.n_rows), wanted, 0)
        if every or response not in table.columns:
            return every
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

    @property
    def _at_no_slopes(self) -> Array:
        """(n,) The weight of each row in X'WX where all slopes are 0."""
        family, weights = self.family, self.weights
        if family.measured or family.leveled or self.spec.response not in self.table.columns or not weights.any():
            return weights
        y, trials = self.events
        counted = (weights if trials is None else np.nan_to_num(trials)).sum()
        if not counted > 0:
            return weights
        mean = float(weights @ y / counted)
        return weights * (mean if family.link == "log" else max(mean * (1 - mean), 1e-6))

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
            design, there = self._standardised(numbers, MOST_LEVERED), np.flatnonzero(self.weights > 0)
        if design is None or not weights.any() or not np.isfinite(design.X).all():
            return None
        X, precision = design.X * np.sqrt(weights[there])[:, None], np.zeros(1 + len(design.names))
        if not self.family.linear:
            precision = self._precision(design)
        leverage = leverages(X, np.diag(precision))
        row = int(leverage.argmax())
        if leverage[row] <= rules.leverage:
            return None
        name = design.names[int(np.abs(design.X[row, 1:]).argmax())]
        cells = table.columns[name]
        value = cells.levels[cells.codes[there[row]]] if isinstance(cells, Text) else float(floats(cells)[there[row]])
        values: dict[str, Value] = {"row": table.place(int(there[row])), "leverage": float(leverage[row]), "most": rules.leverage}
        values |= {"column": name, "value": value}
        remedies = ("mend-cell", "cap", "fewer-columns", "pool")
        return Broken("row-of-leverage", "leverage", 1.0 if lowered else math.ceil(100 * leverage[row]) / 100, values, remedies)

    def _weighed(self) -> Iterator[tuple[Array, str]]:
        """Yields (n,) the weights of the rows in X'WX, and the fact that says why.

        For example, one row of intensive care may have been there for years, or may have had most visits. Nominal levels have a
        model of each level against the others, with weights of its own. Ordered levels have a model of all up to a level against
        those above: they are weighed together, since all have the same slopes.
        """
        if self.family.leveled:
            codes, nominal = codes_of(self.table.columns[str(self.spec.response)], self.spec.levels), self.asked.nominal
            splits = [(codes == k) if nominal else (codes >= k) for k in range(1, len(self.spec.levels))]
            fits = (self._at_fit(split.astype(np.float64), None) for split in splits)
            every = [own for own in fits if own is not None]
            yield from ((own, BY_FIT) for own in (every if nominal or not every else [np.sum(every, axis=0)]))
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
        intercept where the model has none. With a log link the weight is the exposure: with years in place of their logarithms,
        the longest few rows hold nearly all of it.
        """
        offset, weights, fit = self._offset, self.weights, self.asked.fit
        if offset is None or self.family.leveled:
            return None
        y, trials = self.events
        if self.spec.family == "gamma":
            return np.asarray(weights * y * np.exp(-offset))
        if self.family.link == "log":
            return np.asarray(weights * np.exp(offset))
        share = float(y @ np.ones(len(y)) / trials.sum()) if trials is not None else float(weights @ y / weights.sum())
        low, high = -2 * MOST_OFF, 2 * MOST_OFF
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if weights @ expit(offset + middle) < share * weights.sum() else (low, middle)
        intercepts = (low, low if fit.centre is None else fit.centre) if fit.intercept else (0.0,)
        chances = (expit(offset + intercept) for intercept in intercepts)
        return min((weights * chance * (1 - chance) for chance in chances), key=effective)

    def _at_fit(self, y: Array, trials: Array | None) -> Array | None:
        """Returns (n,) the weight of each row in X'WX where the model fits the client's rows; None where they are too many."""
        weights, counted = self.weights, self.weights > 0
        covariates = [column for column in self.columns if column.name != self.spec.offset]
        design = self._standardised(covariates, MOST_FITTED)
        if design is None:
            return None
        weighed, every = np.zeros(len(weights)), np.ones(len(y)) if trials is None else trials
        offset, link = weighed if self._offset is None else self._offset, "log" if self.family.link == "log" else "logit"
        y, every, offset, weight = (own[counted] for own in (y, every, offset, weights))
        found = fitted.weights(design.X, y, every, offset, weight, self._precision(design), link)
        if self.spec.family == "gamma":  # by its part of the mean; of a log link means are those of a Poisson fit
            found = weight**2 * y / np.maximum(found, 1e-300)
        weighed[counted] = found
        return weighed

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
        scale = np.array([float(given[name] or own) for name, own in zip(design.names, design.scale)])
        precision = fit.part * float(fit.precision) * (scale / design.scale) ** 2
        return np.array([OF_INTERCEPT, *np.clip(precision, LEAST_PRECISION, 1 / LEAST_PRECISION)])

    def singled_out(self, every: Sequence[Rare], by: str = "") -> Broken:
        """Returns the columns with the fewest rows, and others with few rows, so that all is mended at once.

        `by`: the fact that says why they are few.
        """
        wanted, spec, family = every[0].wanted or self.wanted, self.spec, self.family
        splines = self.asked.fit.splines
        every = [each._replace(columns=tuple(dict.fromkeys(_owner(name, splines) for name in each.columns))) for each in every]
        fewest = {frozenset(each.columns): each for each in reversed(every)}  # the first of each
        one, *others = sorted(fewest.values(), key=lambda each: (len(each.columns), each.n_rows))
        remedies, farthest = self._remedies(one), _farthest(one, self.table)
        values: dict[str, Value] = {"columns": one.columns, "wanted": wanted, "rows": one.n_rows, "offset": spec.offset}
        facts = [by] if by else []
        if farthest is not None and (one.far or (one.n_rows <= 2 and not by)):
            values |= dict(zip(("row", "value"), farthest))
            facts.append("farthest")
        if one.far:
            return Broken("far-cells", "rows_per_value", 1, values, remedies, tuple(facts))
        if others:
            values["others"] = [(" and ".join(other.columns), other.n_rows) for other in others]
            facts.append("the-same-of")
        whole = one.columns == (spec.response,) and not (family.counted or family.binary or spec.levels)
        # Rows that the fit weighs are counted up: as many as are wanted are fewer.
        enough = min(one.n_rows, wanted - 1, *(other.n_rows for other in others))
        return Broken("uneven-response" if whole else "rare-values", "rows_per_value", enough, values, remedies, tuple(facts))

    def _remedies(self, one: Rare) -> tuple[str, ...]:
        """Returns the remedies for columns that single out rows."""
        columns, spec = set(one.columns), self.spec
        if columns & set(self.asked.fit.splines):
            return ("wider-knots", "mend-cells", "pool")
        if any(name.endswith(MARK) for name in columns):
            return ("drop", "fill-cells", "ignore-column")
        # Of two levels the other would be all that is left; a response keeps its levels.
        if len(columns) == 1 and columns != {spec.response} and len(column_of(spec, self.table, one.columns[0]).levels or ()) > 2:
            cells = self.table.columns[one.columns[0]]  # that are numbers here may be of categories elsewhere
            known = isinstance(cells, Text) and cells.kind() == "categorical"
            return ("join-rare" if known else "join-rare-numbers", "mend-cells", "pool", "no-column")
        wrong = ("mend-cell", "cap") if one.far else ("mend-cells",)
        if columns & {spec.weight, spec.trials, spec.offset} or columns <= {spec.response, *spec.times, spec.upper}:
            return (*wrong, "leave-row-out" if one.far else "pool")
        which = "ignore-column" if len(columns) == 1 else "ignore-one-column"
        without = which if spec.coefficients is None else "leave-out-a-term"
        return (*wrong, without) if one.far else (*wrong, "join-values", "pool", without)


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


def _number(name: str) -> Column:
    return Column(name, "numeric", center=0.0, scale=1.0)


def with_splines(splines: Mapping[str, Sequence[float]], table: Table, columns: list[Column]) -> tuple[Table, list[Column]]:
    """Adds the columns that a job makes of some columns: sums over rows are told of these too."""
    made = {
        f"{name}~{k}": values
        for name, knots in splines.items()
        if name in table.columns
        for k, values in enumerate(Spline.at(knots).columns(without_faults(floats(table.columns[name]))).T, 1)
    }
    more = [_number(name) for name in made]
    return replace(table, columns={**table.columns, **made}), [*columns, *more]


def _owner(name: str, splines: Collection[str]) -> str:
    """Returns the column from which a spline column is made."""
    before = name.rpartition("~")[0]
    return before if before in splines else name


def events(table: Table, spec: Spec) -> tuple[Array, Array | None]:
    """Returns (n,) the events of each row, and (n,) its trials, where rows have them."""
    cells = table.columns[str(spec.response)]
    if spec.positive is not None:
        cells = labels(cells)
        y = np.array([level == spec.positive for level in cells.levels], dtype=np.float64)[cells.codes]
    else:
        y = floats(cells)
    y = np.nan_to_num(np.abs(without_faults(y)))
    return y, None if spec.trials is None else floats(table.columns[spec.trials])


def codes_of(cells: Cells, levels: Sequence[str]) -> NDArray[np.int64]:
    """Returns (n,) which of the levels each cell is, -1 for a cell that is none."""
    if isinstance(cells, Text):
        return level_numbers(cells, levels)
    values = floats(cells)
    numbers = [number(level) for level in levels]
    return np.array([numbers.index(value) if value in numbers else -1 for value in values.tolist()], np.int64)


def _fewest(several: Iterable[Array]) -> int:
    """Returns the least effective number of rows with some of these weights, rounded up; 0 where no row has any."""
    return int(np.ceil(min((n for n in map(effective, several) if n > 0), default=0) - 1e-9))


def _farthest(one: Rare, table: Table) -> tuple[str, float] | None:
    """Returns the row whose cell of a column of numbers is farthest from the others, and the cell; None where there is none."""
    cells = table.columns.get(one.columns[0])
    # A column of numbers is read as one of texts where cells are empty.
    if len(one.columns) > 1 or cells is None or (isinstance(cells, Text) and not one.far):
        return None
    values = without_faults(floats(cells))
    at = int(np.nanargmax(np.abs(values - np.nanmedian(values))))
    return table.place(at), float(values[at])


def _of_fit(few: float, wanted: int, weighing: tuple[int, int], rows: int) -> Broken:
    """Returns that the fit leaves few rows their weight."""
    remedies = ("leave-out-decider", "natural-scale", "pool")
    if weighing[0] > max(wanted, few):
        return _by_weight("rows-by-fit", "rows_per_coefficient", int(10 * few / weighing[1]) / 10, few, weighing[0], remedies)
    key, least = ("rows_per_value", wanted) if wanted > few else ("rows", rows)
    return _by_weight("rows-by-fit", key, int(few), few, least, remedies)


def _by_weight(id: str, key: str, enough: float, few: float, wanted: int, remedies: tuple[str, ...], **values: Value) -> Broken:
    """Returns that few rows have any weight, by their effective number."""
    return Broken(id, key, enough, {"rows": few, "wanted": wanted, **values}, remedies)
