"""Reads `model.sigma`: the columns that the logarithm of the errors' standard deviation depends on, their names and their units.

Each term is one of the model, so that its columns are agreed on. Of labels all but the reference have a coefficient.
Source: docs/spec/likelihood.md, section 3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from ...arrays import Array
from ...errors import JobError
from ...jobs.formula import reading
from ...models.encoding import INTERCEPT, Encoding
from ...models.mixed.layout import PRIOR_SD, SD, SHAPES, Named, Shape
from ...printing import listed

MOST = 8  # terms that are named
FAMILIES = ("gaussian", "student")


class Scale(NamedTuple):
    """Describes one coefficient of log sigma: its name in results, its column of X, and the column's centre and unit there."""

    name: str
    column: int
    center: float
    unit: float


def name_of(column: str) -> str:
    """Returns the name of a coefficient in results."""
    return f"sigma[{column}]"


def terms_of(text: str) -> tuple[tuple[str, ...], ...]:
    """Returns the terms of `model.sigma`, each by its factors; JobError where it is none."""
    if not text.lstrip().startswith("~"):
        raise JobError(f'model.sigma = "{text}": wanted a right side alone, such as "~ age + sex"')
    parsed = reading.read(f"sigma {text}")
    if parsed.random or len(parsed.data) > 1 or not parsed.formula.intercept or not parsed.formula.terms:
        raise JobError(f'model.sigma = "{text}": wanted terms of columns, with an intercept, and nothing else')
    return parsed.formula.terms


def scales_of(text: str, encoding: Encoding, references: Mapping[str, str]) -> list[Scale]:
    """Returns the coefficients of log sigma beside its intercept.

    Parameters
    ----------
    references : column of labels -> the level that its others are compared with

    Raises
    ------
    JobError
        A term is none of the model's.
    """
    found, known = list[Scale](), dict[tuple[str, ...], list[Scale]]()
    for term, scale in _of_columns(encoding, references):
        known.setdefault(term, []).append(scale)
    for term in terms_of(text):
        if tuple(sorted(term)) not in known:
            terms = listed([":".join(of) for of in known], MOST)
            raise JobError(
                f"model.sigma: {':'.join(term)!r} is no term of the model, whose columns it may have ({terms}); add it there, or "
                "leave it out here"
            )
        found += known[tuple(sorted(term))]
    return found


def _of_columns(encoding: Encoding, references: Mapping[str, str]) -> Iterator[tuple[tuple[str, ...], Scale]]:
    """Yields of each column of X but the intercept and references its term and what `Scale` holds."""
    made = None if encoding.formula is None else encoding.formula.made
    place = int(encoding.intercept)
    for j, column in enumerate(encoding.columns):
        term = (column.name,) if made is None else tuple(sorted({text for text, _, _ in made[j].of}))
        if column.levels is None:
            center, unit = column.constants
            yield term, Scale(name_of(column.name), place, 0.0 if column.flat else center, unit)
            place += 1
            continue
        for level in column.levels:
            if level != references[column.name]:
                yield term, Scale(name_of(f"{column.name}={level}"), place, 0.0, 1.0)
            place += 1


def shapes_of(family: str, scales: list[Scale]) -> tuple[Shape, ...]:
    """Returns the numbers of the family, the first of which is log sigma where all columns have their means."""
    others = SHAPES[family][1:]
    prior = Named.of("normal", sd=PRIOR_SD)
    first = Shape("log sd", name_of(INTERCEPT), np.asarray, SD.prior, reach=SD.reach)
    return (first, *(Shape(f"log {scale.name}", scale.name, np.asarray, prior) for scale in scales), *others)


def on_data_scale(numbers: Mapping[str, Array], scales: list[Scale], log_unit: float) -> dict[str, Array]:
    """Returns the numbers of standardised columns as those of the data's columns, and of a response in its own unit."""
    moved = dict(numbers)
    moved[name_of(INTERCEPT)] = moved[name_of(INTERCEPT)] + log_unit
    for name, _, center, unit in scales:
        moved[name] = moved[name] / unit
        moved[name_of(INTERCEPT)] = moved[name_of(INTERCEPT)] - moved[name] * center
    return moved
