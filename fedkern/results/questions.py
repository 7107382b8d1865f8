"""Answers questions about a result from the draws that are there: hypotheses on its numbers, and means at chosen values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from ..arrays import Array
from ..errors import JobError
from ..models.encoding import Encoding
from ..models.formula import factors
from .prediction import Prediction
from .released import Drawn, Group, difference, of_draws

CONTRAST = re.compile(r"(.*)\[(.*) vs (.*)\]")
# Of the mean of a function of a column, to the column.
BACK: dict[str, Any] = {"log": np.exp, "log2": np.exp2, "log10": lambda x: 10.0**x, "sqrt": np.square, "exp": np.log}
MOST_CELLS = 10_000  # rows of a grid, of which each combination of columns is one
Cells = list[dict[str, Any]]


def drawn(groups: Mapping[str, Group], name: str) -> Array | None:
    """Returns (c, t) draws of a parameter, or of a contrast such as `stage[II vs I]`; None where there are none."""
    if (found := of_draws(groups, name)) is not None:
        return found.draws
    if (match := CONTRAST.fullmatch(name)) is None:
        return None
    both = difference(*(of_draws(groups, f"theta[{match[1]}={level}]") for level in match.groups()[1:]))
    return both.draws if isinstance(both, Drawn) else None


def hypothesis(text: str, groups: Mapping[str, Group], parameters: Sequence[str]) -> dict[str, float]:
    """Returns how probable "left > right" or "left < right" is, and how far left is from right. `text`: of names of `parameters`,
    also without `theta[..]` about them, numbers, + - * / **, and log, exp, sqrt; `groups`: of the posterior's draws."""
    sides = re.split(r"(<=?|>=?|=+)", text)
    if len(sides) != 3 or "=" in sides[1][:1]:
        raise JobError(f'hypothesis {text!r}: wanted one < or >, as in "age > 0": that two numbers are equal has no probability')
    left, sign, right = sides
    names = {name: name for name in parameters}
    names |= {short: name for name in parameters if (short := name.removeprefix("theta[")[:-1]) not in names and "theta[" in name}
    longest = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    side = rf"(?<![\w.`])(?:{longest})(?![\w`])"
    quoted = re.sub(side, lambda match: match[0] if match[0].isidentifier() else f"`{match[0]}`", f"{left} - ({right})")

    def values(name: str) -> Array:
        if name not in names:
            raise JobError(f"hypothesis {text!r}: {name!r} is no parameter; there are {', '.join([*names][:12])}, ..")
        found = drawn(groups, names[name])
        if found is None or np.isnan(found).all():
            raise JobError(f"hypothesis {text!r}: the result has no draws of {name!r}")
        return found

    distance = factors.evaluated(factors.read(quoted).node, values, lambda of: (0.0, 1.0)).ravel()
    probability = float((distance > 0).mean() if ">" in sign else (distance < 0).mean())
    return {"probability": probability, **summarised(distance)}


def summarised(values: Array) -> dict[str, float]:
    """Returns mean, sd and ends of 95 % of draws (m,)."""
    low, high = np.quantile(values, (0.025, 0.975)).tolist()
    return {"mean": float(values.mean()), "sd": float(values.std(ddof=1)), "q025": low, "q975": high}


def grid(encoding: Encoding, at: Mapping[str, object], by: Sequence[str]) -> tuple[Cells, Cells]:
    """Returns the cells that are asked for, and for each of them all rows over which it averages, cell after cell.

    Columns in `at` have these values, columns in `by` all their levels; other numbers (or their logarithm, where the formula has
    that) are at the centre of the job's rows, and over other levels is averaged, each of which counts alike.
    """
    columns: dict[str, Any] = {column.name: column for column in encoding.columns}
    known: dict[str, Any] = columns if encoding.formula is None else dict(encoding.formula.known)
    levels = {name: column.levels for name, column in known.items() if column.levels is not None}
    # A formula knows the centres of what it transforms, and the encoding those of columns that are terms.
    both = [(name, of[name]) for of in (columns, known) for name in known if name in of and name not in levels]
    centres = {name: of.center for name, of in both if of.center is not None and (of.center, of.scale) != (0.0, 1.0)}
    for call, back in BACK.items():  # a column that a formula has through a function alone, where that is at its mean
        made = {name: columns.get(f"{call}({name})") for name in known if name not in {*levels, *centres}}
        centres |= {name: float(back(of.center)) for name, of in made.items() if of is not None and of.center is not None}
    roles = (encoding.response, encoding.trials, encoding.weight, encoding.row_id)
    needed = list(dict.fromkeys([*known, *(_read(name) for name in encoding.needed if name not in roles)]))
    if odd := [name for name in by if name not in levels] + [name for name in at if name not in needed]:
        names = f"by = names columns of levels ({', '.join(levels)}), and values are of {', '.join(needed)}"
        raise JobError(f"effects: {', '.join(map(repr, odd))}: {names}")
    if lacking := [name for name in needed if name not in {*at, *levels, *centres}]:
        raise JobError(f"effects: nothing tells at which value of {', '.join(lacking)}; give one, such as {lacking[0]}=1")
    values = {name: np.atleast_1d(np.asarray(given, object)).tolist() for name, given in at.items()}
    values_of = values | {name: [*levels[name]] for name in by if name not in values}
    others = {name: [*levels[name]] for name in levels if name not in values_of}
    cells = [dict(zip(values_of, row)) for row in product(*values_of.values())]
    over = [dict(zip(others, row)) for row in product(*others.values())]
    if len(cells) * len(over) > MOST_CELLS:
        raise JobError(f"effects: {len(cells)} cells of {len(over)} rows each; give values of columns of levels, too")
    fixed = {name: centre for name, centre in centres.items() if name not in values_of}
    return cells, [{**fixed, **cell, **row} for cell in cells for row in over]


def _read(name: str) -> str:
    """Returns the column of the file that a role reads: of an offset log(days) the days."""
    try:
        variables = factors.read(name).variables
    except JobError:  # a column's name that is no expression
        return name
    return variables[0] if len(variables) == 1 else name


def effects(cells: Cells, prediction: Prediction) -> Cells:
    """Returns the cells with the mean of the response, averaged over each one's rows: mean, sd and ends; of levels a row each."""
    draws = prediction.draws
    means = draws.reshape(len(draws), len(cells), -1, *draws.shape[2:]).mean(axis=2)
    if means.ndim == 2:
        return [{**cell, **summarised(means[:, k])} for k, cell in enumerate(cells)]
    names: Sequence[str] = getattr(prediction, "levels", ())
    return [
        {**cell, "level": level, **summarised(means[:, k, j])} for k, cell in enumerate(cells) for j, level in enumerate(names)
    ]
