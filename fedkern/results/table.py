"""Makes a table of a result: a row for each parameter (and site), and for each level of a category against its reference.

Means, deviations and intervals are those of `summary.json`, as far as it has them: 95 % intervals and contrasts that it
has not are computed from the posterior.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from ..errors import JobError
from ..kernels.families import ACCELERATED, FAMILIES, HAZARDS, NOMINAL
from ..models.reference import MOVED
from .plain import Record, real
from .released import Released, difference
from .shown import blocks, own_levels

Row = dict[str, Any]

NUMBERS = ("mean", "sd", "q025", "q05", "q95", "q975")
ENDS = {"q025": 0.025, "q05": 0.05, "q95": 0.95, "q975": 0.975}
MORE = ("rhat", "ess", "pip")  # where they are known
# link -> the name of exp(coefficient)
RATIOS = {
    "logit": "odds_ratio",
    "log": "rate_ratio",
    "hazard": "hazard_ratio",
    "mean": "mean_ratio",
    "cloglog": "hazard_ratio",
    "time": "time_ratio",
}
OWN = "own"  # in the place of a family: a model that a package of the holders computes
INTERCEPT = "intercept"
COEFFICIENTS = ("theta", "average", "average_by_rows")  # on the scale of the linear predictor


@dataclass(frozen=True)
class Asked:
    """Holds the options of a table."""

    exp: bool = False  # ratios instead of coefficients
    family: str = ""  # of the response
    # categorical column -> the level that others are compared with; by default the first in sorted order
    reference: Mapping[str, str] = field(default_factory=dict)
    levels: bool = True  # whether coefficients of all levels, where a result has these, stand beside their contrasts

    @property
    def ratio(self) -> str:
        """The name of exp of a coefficient. Raises JobError: it is no ratio."""
        ratio = ratio_of(self.family)
        if not ratio:
            of = f"a {self.family or 'graph'} response" if self.family != OWN else "an own model"
            raise JobError(f"exp = True: coefficients of {of} are differences, not logarithms of ratios; leave exp out")
        return ratio


def ratio_of(family: str) -> str:
    """Returns the name of exp of a coefficient, "" where it is no ratio."""
    if family in HAZARDS:
        return RATIOS["time" if family in ACCELERATED else "hazard"]
    if family in NOMINAL:  # of a level against the first
        return RATIOS["logit"]
    if family not in FAMILIES:
        return ""
    record = FAMILIES[family]
    return RATIOS["mean"] if record.link == "log" and not record.counted else RATIOS.get(record.link, "")


def rows(summary: Record, posterior: Released, query: Asked) -> list[Row]:
    """Returns the table. Raises JobError: a reference is no level, or there is no ratio.

    Parameters
    ----------
    summary : the content of `summary.json`
    posterior : of the same run
    query : which table

    Returns
    -------
    rows with `parameter`, `site` (of a client's coefficient, else ""), the numbers, and `rhat`, `ess`, `pip` where any has
    one. With `exp`: coefficients and contrasts alone, `odds_ratio`, `rate_ratio`, `mean_ratio`, `hazard_ratio` or
    `time_ratio` (posterior median) instead of `mean` and `sd`
    """
    levels = {str(c["name"]): [str(level) for level in c["levels"]] for c in _columns(summary) if "levels" in c}
    _check(query.reference, levels)
    moved = _Moved.of(summary, levels, query.reference)
    by_name = {(row["parameter"], row["site"]): row for row in _parameters(summary, posterior)}
    against = [*contrasts(summary, posterior, levels, query.reference, by_name)]
    # A level that has its difference from the reference as its coefficient is one row, and not two.
    twice = {(name, row["site"]) for row in against for name in row["of"]}
    if not query.levels:
        column, compared = own_levels(summary), {(row["column"], row["site"]) for row in against}
        twice |= {(name, site) for name, site in by_name if (column.get(name, ""), site) in compared}
    in_place = {(row["of"][0], row["site"]): row for row in against if row["of"]}
    every_row = [
        in_place.get(key) or moved.row(row, posterior) for key, row in by_name.items() if key in in_place or key not in twice
    ]
    every_row += [row for row in against if not (row["of"] and (row["of"][0], row["site"]) in by_name)]
    if query.exp:
        names = [*(f"{name}={level}" for name, those in levels.items() for level in those), INTERCEPT]
        ratio, hot = query.ratio, {f"{before}{name_of_level}" for before in blocks(summary) for name_of_level in names}
        every_row = [_ratio(row, ratio) for row in every_row if row["contrast"] or _slope(row["parameter"], hot)]
    more = [key for key in MORE if any(key in row for row in every_row)]
    columns = (query.ratio, *ENDS) if query.exp else NUMBERS
    head = ("parameter", "site", *columns, *more)
    return [{key: row.get(key, math.nan) for key in head} for row in every_row]


TIDY = {"mean": "estimate", "sd": "std.error", "q025": "conf.low", "q975": "conf.high"}  # as R's broom has them


def tidy(table_rows: Sequence[Row]) -> list[Row]:
    """Renames the columns of a table as in R's broom: term, site, estimate, std.error (of coefficients), conf.low and conf.high.

    The last two are the ends of the 95 % interval.
    """
    names = {"parameter": "term"}
    if any(row["site"] for row in table_rows):
        names["site"] = "site"
    names |= dict.fromkeys(RATIOS.values(), "estimate") | TIDY
    return [{new: row[old] for old, new in names.items() if old in row} for row in table_rows]


def split_name(name: str, clients: Mapping[str, object]) -> tuple[str, str]:
    """Splits a name of `summary.json` into the parameter and the client whose coefficient it is ("" for a common one)."""
    before, found, site = name.rpartition("]@")
    return (before + "]", site) if found and site in clients else (name, "")


def contrasts(
    summary: Record,
    posterior: Released,
    levels: Mapping[str, Sequence[str]],
    reference: Mapping[str, str],
    by_name: Mapping[tuple[str, str], Row],
) -> Iterator[Row]:
    """Yields each level of a categorical column less the reference level, over all sites and of each.

    `by_name` : parameter and site -> its row. Where the reference has no coefficient, that of a level is the contrast.
    """
    sites = dict.fromkeys(split_name(name, summary["clients"])[1] for name in summary["parameters"])
    silent: Mapping[str, Sequence[str]] = summary.get("tells_nothing", {})
    parameters = {name for name, _ in by_name}
    blank = {name for name, row in summary["parameters"].items() if math.isnan(real(row.get("mean")))}
    for (column, those), before in product(levels.items(), blocks(summary)):
        base = reference.get(column, those[0])
        coded = any(f"theta[{before}{column}={level}]" not in parameters for level in those)
        for site in ("", *(site for site in sites if site)):
            for level in those:
                names = [f"theta[{before}{column}={of_level}]" for of_level in (level, base)]
                label = f"{before}{column}[{level} vs {base}]"
                if level == base or blank & set(names) or {f"theta[{name}]" for name in silent.get(site, ())} & set(names):
                    continue
                about = {"parameter": label, "site": site, "contrast": True, "column": f"{before}{column}"}
                about["of"] = names if coded else ()
                if (row := by_name.get((names[0], site))) is not None and names[1] not in parameters:
                    yield {**row, **about}
                    continue
                if (known := None if site else _published(summary, f"{before}{column}", level, base)) is not None:
                    yield {**known, **about}
                    continue
                both = difference(*(posterior.marginal(name, site) for name in names))
                if both is None:
                    continue
                ends = both.quantiles([*ENDS.values(), 0.5])
                yield {"mean": both.mean, "sd": both.sd, **dict(zip([*ENDS, "median"], ends)), **about}


@dataclass(frozen=True)
class _Moved:
    """Holds by what intercepts, thresholds and baseline hazards change at other reference levels than the result's."""

    # the beginning of a block's names -> names of the coefficients of the levels that are asked for
    by: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, summary: Record, levels: Mapping[str, Sequence[str]], reference: Mapping[str, str]) -> _Moved:
        by = dict[str, list[str]]()
        for (column, those), before in product(levels.items(), blocks(summary)):
            names = {level: f"theta[{before}{column}={level}]" for level in those}
            lacking = [level for level, name in names.items() if name not in summary["parameters"]]
            if len(lacking) == 1 and reference.get(column, lacking[0]) != lacking[0]:
                by.setdefault(before, []).append(names[reference[column]])
        return cls(by)

    def row(self, row: Row, posterior: Released) -> Row:
        """Returns a row of a parameter at the asked levels."""
        name = row["parameter"]
        signs = {INTERCEPT: 1.0, **{f"theta[{before}{INTERCEPT}]": 1.0 for before in self.by if before}, **MOVED}
        sign = next((sign for begins, sign in signs.items() if name.startswith(begins)), 0.0)
        before = name.removeprefix("theta[").removesuffix(f"{INTERCEPT}]") if name.startswith("theta[") else ""
        if row["site"] or not sign or not (names := self.by.get(before)):
            return row
        found = posterior.marginal(name)
        for marginal in map(posterior.marginal, names):
            if sign > 0 and marginal is not None:
                marginal = marginal.negated
            found = difference(found, marginal)
        ends = [math.nan] * 5 if found is None else found.quantiles([*ENDS.values(), 0.5])
        numbers = {"mean": math.nan, "sd": math.nan} if found is None else {"mean": found.mean, "sd": found.sd}
        kept = {key: value for key, value in row.items() if key not in MORE}
        return {**kept, **numbers, **dict(zip([*ENDS, "median"], ends))}


def _published(summary: Record, column: str, level: str, base: str) -> Row | None:
    """Returns the numbers of a contrast that `summary.json` has, there as it is or the other way round; None where it has not.

    They are of all weighted draws: draws of equal weight would give one result two numbers.
    """
    published: Mapping[str, Record] = summary.get("contrasts", {})
    turned = {"q025": "q975", "q05": "q95", "q50": "q50", "q95": "q05", "q975": "q025"}
    if (contrast := published.get(f"{column}[{level} vs {base}]")) is not None:
        row = {key: real(contrast[key]) for key in ("mean", "sd", *turned)}
    elif (contrast := published.get(f"{column}[{base} vs {level}]")) is not None:
        row = {key: -real(contrast[other]) for key, other in {"mean": "mean", **turned}.items()} | {"sd": real(contrast["sd"])}
    else:
        return None
    return {**row, "median": row["q50"]}


def _columns(summary: Record) -> Sequence[Record]:
    columns: Sequence[Record] = summary["encoding"].get("columns", ())
    return columns


def _check(reference: Mapping[str, str], levels: Mapping[str, Sequence[str]]) -> None:
    """Refuses a reference that is no level of its column."""
    for column, level in reference.items():
        if level not in levels.get(column, ()):
            known = ", ".join(levels.get(column, ())) if column in levels else ""
            remedy = f"its levels are {known}" if known else f"categorical columns are {', '.join(levels)}"
            if not levels:  # as of a formula, whose terms have contrasts of their own
                remedy = (
                    f'none has levels in its table; of a formula the job says it ([data.columns.{column}] reference = "{level}")'
                )
            raise JobError(f"reference {column}={level}: no such level of this result; {remedy}")


def _parameters(summary: Record, posterior: Released) -> Iterator[Row]:
    """Yields parameters on the data's scale, and those that have one scale only."""
    parameters: Mapping[str, Record] = summary["parameters"]
    for name, numbers in parameters.items():
        parameter, site = split_name(name, summary["clients"])
        stem, bracket, label = parameter.partition("[")
        if stem.endswith("_std"):
            continue
        at_site = f"@{site}" if site else ""
        standard = parameters.get(f"{stem}_std{bracket}{label}" + at_site, {})
        values = {"pip": standard["pip"]} if "pip" in standard else {}
        known = {key: real(value) for key, value in {**values, **numbers}.items() if key in (*NUMBERS, *MORE)}
        row: Row = {"parameter": parameter, "site": site, "contrast": False, **known}
        marginal = None if math.isnan(row["mean"]) else posterior.marginal(parameter, site)
        if "q025" in known and "q50" in numbers:  # by weights of draws, of which the marginal has some
            row["median"] = real(numbers["q50"])
        elif marginal is not None:
            row["q025"], row["median"], row["q975"] = marginal.quantiles([0.025, 0.5, 0.975])
        yield row


def _slope(parameter: str, hot: set[str]) -> bool:
    """Returns whether exp of it is a ratio by itself: a level's is one against another level only."""
    stem, bracket, label = parameter.partition("[")
    return stem in COEFFICIENTS and bool(bracket) and label.removesuffix("]") not in hot


def _ratio(row: Row, name: str) -> Row:
    """Returns the row of exp(parameter)."""

    def exp(key: str) -> float:
        with_it = real(row.get(key))
        if with_it < 700:
            return math.exp(with_it)
        if with_it >= 700:
            return math.inf
        return math.nan

    return {**row, name: exp("median"), **{key: exp(key) for key in ENDS}}
