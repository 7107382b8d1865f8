"""Finds rows that a client's columns, or its response, single out, in open jobs: decided where it lives, before anything leaves.

A client sends sums over its rows of functions of them. A column that is 0 in all but a few rows makes sums over these few alone,
however many others the client has: where it is one row, the sum is that row. So rows that columns single out count as a client
of their own.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

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
from ..kernels.families import FAMILIES, is_linear
from ..models.encoding import Column, Spec
from ..models.sparse import Spline
from ..models.weighing import effective, leverages
from .refusals import Broken
from .requirement import Fit, Requirement
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


def find_alike(
    asked: Requirement, table: Table, spec: Spec, weights: Array, *, covariates: bool = True, weighing: tuple[int, int] = (0, 1)
) -> Iterator[Broken]:
    """Yields values that too few of a client's rows have, and rows that weigh too much.

    Parameters
    ----------
    weights : (n,) of the rows, 0 of those that do not count
    covariates : whether they are looked at, or the response alone
    weighing : effective number of rows that are asked for, as the fit weighs them, where that is more; of how many coefficients
    """
    wanted, search = of_a_value(asked, spec.family), asked.rules.search
    splines = asked.fit.splines
    table, columns = with_splines(splines, table, columns_told(table, spec))
    fewest = min(LEAST_OF_LEVEL, wanted)  # of what a server has a sum of, and no more
    filled = [column.name for column in columns if marked(column.name) in table.columns]

    def broken(every: tuple[Rare, ...], by: str = "") -> Broken:
        owned = (each._replace(columns=tuple(dict.fromkeys(_owner(name, splines) for name in each.columns))) for each in every)
        return _singled_out(tuple(owned), table, spec, every[0].wanted or wanted, splines, by)

    every = _of_values(asked, table, spec, columns, weights, wanted, filled, covariates=covariates and not asked.summed)
    if every:
        yield broken(every)
    alone = bool(every)  # then what the fit makes of the rows says the same once more
    levered = (
        _of_leverage(asked, table, spec, columns, _at_no_slopes(table, spec, weights)) if covariates and not search else None
    )
    if levered is not None:
        yield levered
    if spec.response not in table.columns or not (wanted or weighing[0]):
        return
    family = FAMILIES[spec.family]
    if family.leveled:
        codes, least_of = levels_of(table, spec), of_a_level(asked, wanted)
        few = _fewest(np.where(codes == k, weights, 0.0) for k in range(len(spec.levels)))
        if 0 < few < least_of and not asked.summed:
            yield broken((Rare((str(spec.response),), few, wanted=least_of),))
            return
        fits: Iterator[tuple[Array, str]] = ((own, BY_FIT) for own in _level_weights(asked, table, columns, spec, weights))
    elif family.measured:
        return
    else:
        y, trials = events(table, spec)
        exposed = _exposed(table, spec, y, trials, weights, asked.fit)
        if 0 < (few := _fewest(events_and_others(y, trials, spec, weights))) < fewest and not asked.summed:
            yield broken((Rare((str(spec.response),), few, wanted=fewest),))
        elif wanted > 1 and not family.chances and trials is None and heavy(y, weights):
            yield broken((Rare((str(spec.response),), 1, far=True),))
            return
        if exposed is not None and (number := effective(exposed)) < wanted:
            remedies = ("log-of-exposure", "mend-cells", "no-offset")
            yield _by_weight("rows-by-offset", "rows_per_value", int(number), number, wanted, remedies, column=str(spec.offset))
            return
        fits = _weighed(asked, table, columns, spec, y, trials, weights, exposed)
    # Questions, too, ask for rows by their effective number, unless fewer than usual are asked for.
    rows = asked.rules.rows if asked.weighs is not None and asked.rules.rows >= LEVELS["standard"].rows else 0
    for own, why in fits:
        if why == BY_FIT and not asked.summed and (number := effective(own)) < max(wanted, weighing[0], rows):
            yield _of_fit(number, wanted, weighing, rows)
            alone = True
        if search and not alone and (found := rare(table, columns, own, fewest, fewest, filled)):
            yield broken(found, why)
            alone = True
        if not search and covariates and levered is None and why == BY_FIT:
            levered = _of_leverage(asked, table, spec, columns, own)
            if levered is not None:
                yield levered


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


def _of_values(
    asked: Requirement,
    table: Table,
    spec: Spec,
    columns: list[Column],
    weights: Array,
    wanted: int,
    filled: list[str],
    *,
    covariates: bool,
) -> tuple[Rare, ...]:
    """Finds values that too few rows have, or cells that have nearly all of a sum, whatever the fit makes of them."""
    family, search, response = FAMILIES[spec.family], asked.rules.search, str(spec.response)
    fewest = min(LEAST_OF_LEVEL, wanted)
    # Of a linear model two columns' product is a number of rows, which is said, unless each row has a weight of its own.
    together = 0 if family.linear and spec.weight is None else fewest
    every = rare(table, columns, weights, wanted, together, filled, search=search) if covariates else ()
    every = every or (_of_weights(table, spec, wanted) if wanted > 1 else ())
    if every or response not in table.columns:
        return every
    heavy_tailed = family.measured and not family.linear  # whose slopes a far cell does not move, but its sum of squares is told
    if wanted > 1 and heavy_tailed and heavy(np.nan_to_num(without_faults(floats(table.columns[response]))), weights):
        return (Rare((response,), 1, far=True),)
    if wanted > 1 and spec.exposed and set(spec.times) <= set(table.columns) and (seen := _seen(table, spec, weights)):
        return seen
    if covariates and search and not family.linear and _multiplies_events(spec):
        # A number is read as a text where one of its cells is empty.
        labelled = isinstance(table.columns[response], Text) and (family.chances or family.leveled)
        beside = Column(response, "categorical") if labelled else _number(response)
        return rare(table, [*columns, beside], weights, 1, fewest, filled)
    return ()


def _at_no_slopes(table: Table, spec: Spec, weights: Array) -> Array:
    """Returns (n,) the weight of each row in X'WX where all slopes are 0."""
    family = FAMILIES[spec.family]
    if family.measured or family.leveled or spec.response not in table.columns or not weights.any():
        return weights
    y, trials = events(table, spec)
    known = np.isfinite(y)  # others are faults, which are told later
    counted = (weights if trials is None else np.nan_to_num(trials))[known].sum()
    if not counted > 0:
        return weights
    mean = float(weights[known] @ y[known] / counted)
    return weights * (mean if family.link == "log" else max(mean * (1 - mean), 1e-6))


def _of_leverage(asked: Requirement, table: Table, spec: Spec, columns: Sequence[Column], weights: Array) -> Broken | None:
    """Finds a row whose leverage in the posterior's curvature is above the rule's: it is nearly alone in some sum of the columns
    of numbers. Of levels rows are counted; where fewer than usual are asked for they are looked at, as in questions, whose points
    are others than the fit: a number that does for this row would not do there."""
    linear, usual = FAMILIES[spec.family].linear, LEVELS["standard"]
    lowered = not linear and (asked.rules.rows_per_value < usual.rows_per_value or asked.rules.linear < usual.linear)
    numbers = [column for column in columns if column.kind == "numeric" or lowered]
    if asked.rules.leverage >= 1 or not numbers:
        return None
    with np.errstate(all="ignore"):  # numbers whose squares are none are faults, or end the job later
        design, there = standardised(table, numbers, weights, MOST_LEVERED), np.flatnonzero(weights > 0)
    if design is None or not len(there) or not np.isfinite(design.X).all():
        return None
    X, precision = design.X * np.sqrt(weights[there])[:, None], np.zeros(1 + len(design.names))
    if not linear:
        precision = np.concatenate([[OF_INTERCEPT], _precision(asked, columns, design)])
    leverage = leverages(X, np.diag(precision))
    row = int(leverage.argmax())
    if leverage[row] <= asked.rules.leverage:
        return None
    name = design.names[int(np.abs(design.X[row, 1:]).argmax())]
    cells = table.columns[name]
    value = cells.levels[cells.codes[there[row]]] if isinstance(cells, Text) else float(floats(cells)[there[row]])
    values: dict[str, Value] = {
        "row": table.place(int(there[row])),
        "leverage": float(leverage[row]),
        "most": asked.rules.leverage,
    }
    values |= {"column": name, "value": value}
    remedies = ("mend-cell", "cap", "fewer-columns", "pool")
    return Broken("row-of-leverage", "leverage", 1.0 if lowered else math.ceil(100 * leverage[row]) / 100, values, remedies)


def _seen(table: Table, spec: Spec, weights: Array) -> tuple[Rare, ...]:
    """Finds a row whose time, or time after its entry, is nearly the sum of all rows' times, which is told."""
    time, *entry = (np.nan_to_num(without_faults(floats(table.columns[name]))) for name in spec.times)
    if heavy(time, weights):
        return (Rare(spec.times[:1], 1, far=True),)
    end, names = time, spec.times
    if spec.upper is not None and spec.upper in table.columns:  # an event in an interval counts at its middle
        upper = without_faults(floats(table.columns[spec.upper]))
        end, names = np.where(upper > time, (time + upper) / 2, time), (*names, spec.upper)
        if heavy(end, weights):
            return (Rare((spec.upper,), 1, far=True),)
    # An entry that is not before its time is a fault of a cell, which is told later.
    late = bool(entry) and heavy(np.maximum(end - np.maximum(entry[0], 0.0), 0.0), weights)
    return (Rare(names, 1, far=True),) if late else ()


def _number(name: str) -> Column:
    return Column(name, "numeric", center=0.0, scale=1.0)


def _weighed(
    asked: Requirement,
    table: Table,
    columns: Sequence[Column],
    spec: Spec,
    y: Array,
    trials: Array | None,
    weights: Array,
    exposed: Array | None,
) -> Iterator[tuple[Array, str]]:
    """Yields (n,) the weights of the rows in X'WX, and the fact that says why.

    For example, one row of intensive care may have been there for years, or may have had most visits.
    """
    if exposed is not None:
        yield exposed, "by-the-offset"
    if spec.family.endswith("negative-binomial"):
        # Rows weigh (r + y) r mu / (r + mu)^2: where r is small, by their counts alone.
        yield weights * ((SMALL_R if asked.fit.r is None else asked.fit.r) + y), "by-the-counts"
    at_fit = _at_fit(asked, table, columns, spec, y, trials, weights)
    if at_fit is not None:
        yield at_fit, BY_FIT


def _multiplies_events(spec: Spec) -> bool:
    """Tells whether sums are told of products of a response, a covariate and another column.

    They are where a column weighs the rows, or the curvature depends on the response.
    """
    return spec.weight is not None or spec.trials is not None or spec.family not in ("bernoulli", "poisson")


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


def _of_weights(table: Table, spec: Spec, wanted: int) -> tuple[Rare, ...]:
    """Finds rows whose weight, or number of trials, differs from the others'.

    Sums with weights, less those without, are theirs.
    """
    for name in (spec.weight, spec.trials):
        if name in table.columns and (rare_values := rare(table, [_number(str(name))], np.ones(table.n_rows), wanted, 0)):
            return rare_values  # all rows count, for some sums are of those that weigh nothing too
    return ()


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


def _fewest(several: Iterable[Array]) -> int:
    """Returns the least effective number of rows with some of these weights, rounded up; 0 where no row has any."""
    return int(np.ceil(min((n for n in map(effective, several) if n > 0), default=0) - 1e-9))


def events_and_others(y: Array, trials: Array | None, spec: Spec, weights: Array) -> list[Array]:
    """Returns (n,) the weight of each row in the sum of events, and in that of non-events where rows have terms of these.

    With the mean of the others' predictors, which curvatures tell, X'y is the sum of x over few.
    """
    if trials is not None:
        groups = [y, np.maximum(trials - y, 0)]
    else:
        both = FAMILIES[spec.family].link == "logit" and (not spec.times or spec.exposed)  # of "cox" a row without has no term
        groups = [weights * y] + ([weights * np.maximum(1 - y, 0)] if both else [])
    return [np.where(weights > 0, own, 0.0) for own in groups]


def of_a_level(asked: Requirement, wanted: int) -> int:
    """Returns how many rows must have a level of the response, if any has it, where covariates ask for `wanted`.

    A likelihood of ordered levels has a function of the rows of each alone, which thresholds single out: three were determined.
    """
    return min(LEAST_OF_LEVEL, wanted) if asked.nominal else wanted


def levels_of(table: Table, spec: Spec) -> NDArray[np.int64]:
    """Returns (n,) the number of each row's level, -1 for a cell that is none."""
    return codes_of(table.columns[str(spec.response)], spec.levels)


def codes_of(cells: Cells, levels: Sequence[str]) -> NDArray[np.int64]:
    """Returns (n,) which of the levels each cell is, -1 for a cell that is none."""
    if isinstance(cells, Text):
        return level_numbers(cells, levels)
    values = floats(cells)
    numbers = [number(level) for level in levels]
    return np.array([numbers.index(value) if value in numbers else -1 for value in values.tolist()], np.int64)


def _level_weights(asked: Requirement, table: Table, columns: Sequence[Column], spec: Spec, weights: Array) -> Iterator[Array]:
    """Yields (n,) the weights of the rows in X'WX where logistic models fit the levels.

    Nominal levels have a model of each level against the others, with weights of its own. Ordered levels have a model of all up
    to a level against those above: they are weighed together, since all have the same slopes.
    """
    codes, k = levels_of(table, spec), len(spec.levels)
    nominal = asked.nominal
    splits = [(codes == j) if nominal else (codes >= j) for j in range(1, k)]
    together = np.zeros(len(weights))
    for split in splits:
        own = _at_fit(asked, table, columns, spec, split.astype(np.float64), None, weights)
        if own is None:
            return
        if nominal:
            yield own
        together += own
    if not nominal:
        yield together


def _offset(table: Table, spec: Spec) -> Array | None:
    """Returns (n,) the offset; None where the job has none; a missing cell is 0."""
    if spec.offset is None or spec.offset not in table.columns:
        return None
    return np.clip(np.nan_to_num(floats(table.columns[spec.offset])), -MOST_OFF, MOST_OFF)


def _exposed(table: Table, spec: Spec, y: Array, trials: Array | None, weights: Array, fit: Fit) -> Array | None:
    """Returns (n,) the weight of each row in X'WX by its offset; None without an offset.

    The offset stands beside the best intercept, or beside its prior's centre where that leaves fewer rows, or without an
    intercept where the model has none. With a log link the weight is the exposure: with years in place of their logarithms, the
    longest few rows hold nearly all of it.
    """
    offset = _offset(table, spec)
    if offset is None:
        return None
    if spec.family == "gamma":
        return np.asarray(weights * y * np.exp(-offset))
    if FAMILIES[spec.family].link == "log":
        return np.asarray(weights * np.exp(offset))
    share = float(y @ np.ones(len(y)) / trials.sum()) if trials is not None else float(weights @ y / weights.sum())
    low, high = -2 * MOST_OFF, 2 * MOST_OFF
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if weights @ expit(offset + middle) < share * weights.sum() else (low, middle)
    intercepts = (low, low if fit.centre is None else fit.centre) if fit.intercept else (0.0,)
    chances = (expit(offset + intercept) for intercept in intercepts)
    return min((weights * chance * (1 - chance) for chance in chances), key=effective)


def by_fit(asked: Requirement, table: Table, columns: Sequence[Column], spec: Spec, weights: Array) -> list[Array]:
    """Returns (n,) the weights of the rows in X'WX where the model fits them, for each of its curvatures; none where these are
    the same everywhere, and 0 where the rows are too many to be fitted."""
    family = FAMILIES[spec.family]
    if family.leveled:
        found: list[Array] = [*_level_weights(asked, table, columns, spec, weights)]
        return found or [np.zeros(len(weights))] * (len(spec.levels) - 1 if asked.nominal else 1)
    if family.measured:
        return []
    own = _at_fit(asked, table, columns, spec, *events(table, spec), weights)
    return [np.zeros(len(weights)) if own is None else own]


def _at_fit(
    asked: Requirement, table: Table, columns: Sequence[Column], spec: Spec, y: Array, trials: Array | None, weights: Array
) -> Array | None:
    """Returns (n,) the weight of each row in X'WX where the model fits the client's rows; None where they are too many."""
    covariates = [column for column in columns if column.name != spec.offset]
    design, counted = standardised(table, covariates, weights, MOST_FITTED), weights > 0
    if design is None:
        return None
    none, offset = np.zeros(len(weights)), _offset(table, spec)
    offset = none if offset is None else offset
    precision = np.concatenate([[OF_INTERCEPT], _precision(asked, columns, design)])
    every = np.ones(len(y)) if trials is None else trials
    link, weighed = FAMILIES[spec.family].link, none.copy()
    weighed[counted] = fitted.weights(
        design.X, y[counted], every[counted], offset[counted], weights[counted], precision, "log" if link == "log" else "logit"
    )
    if spec.family == "gamma":  # by its part of the mean; of a log link means are those of a Poisson fit
        weighed[counted] = weights[counted] ** 2 * y[counted] / np.maximum(weighed[counted], 1e-300)
    return weighed


def _precision(asked: Requirement, columns: Sequence[Column], design: Standardised) -> Array:
    """Returns (d,) the prior's precision of each coefficient, of columns in their own standard deviations.

    A scale that the job file gives may be far from these.
    """
    common = asked.fit.precision
    if common is None:  # of columns in the standard deviations of all sites
        return np.full(len(design.scale), asked.fit.part)
    given = {column.name: column.scale if column.kind == "numeric" else 1.0 for column in columns}
    scale = np.array([float(given[name] or own) for name, own in zip(design.names, design.scale)])
    precision = asked.fit.part * float(common) * (scale / design.scale) ** 2
    return np.clip(precision, LEAST_PRECISION, 1 / LEAST_PRECISION)


def _singled_out(
    every: tuple[Rare, ...], table: Table, spec: Spec, wanted: int, splines: Collection[str], by: str = ""
) -> Broken:
    """Returns the columns with the fewest rows, and others with few rows, so that all is mended at once.

    `by`: the fact that says why they are few.
    """
    fewest = {frozenset(each.columns): each for each in reversed(every)}  # the first of each
    one, *others = sorted(fewest.values(), key=lambda each: (len(each.columns), each.n_rows))
    remedies, farthest = _remedies(one, table, spec, splines), _farthest(one, table)
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
    whole = one.columns == (spec.response,) and not (FAMILIES[spec.family].counted or FAMILIES[spec.family].binary or spec.levels)
    # Rows that the fit weighs are counted up: as many as are wanted are fewer.
    enough = min(one.n_rows, wanted - 1, *(other.n_rows for other in others))
    return Broken("uneven-response" if whole else "rare-values", "rows_per_value", enough, values, remedies, tuple(facts))


def _remedies(one: Rare, table: Table, spec: Spec, splines: Collection[str]) -> tuple[str, ...]:
    """Returns the remedies for columns that single out rows."""
    columns = set(one.columns)
    if columns & set(splines):
        return ("wider-knots", "mend-cells", "pool")
    if any(name.endswith(MARK) for name in columns):
        return ("drop", "fill-cells", "ignore-column")
    # Of two levels the other would be all that is left; a response keeps its levels.
    if len(columns) == 1 and columns != {spec.response} and len(column_of(spec, table, one.columns[0]).levels or ()) > 2:
        cells = table.columns[one.columns[0]]  # that are numbers here may be of categories elsewhere
        known = isinstance(cells, Text) and cells.kind() == "categorical"
        return ("join-rare" if known else "join-rare-numbers", "mend-cells", "pool", "no-column")
    wrong = ("mend-cell", "cap") if one.far else ("mend-cells",)
    if columns & {spec.weight, spec.trials, spec.offset} or columns <= {spec.response, *spec.times, spec.upper}:
        return (*wrong, "leave-row-out" if one.far else "pool")
    which = "ignore-column" if len(columns) == 1 else "ignore-one-column"
    without = which if spec.coefficients is None else "leave-out-a-term"
    return (*wrong, without) if one.far else (*wrong, "join-values", "pool", without)


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
