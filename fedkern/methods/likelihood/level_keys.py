"""Checks the keys of a response that is one of several levels.

Source: docs/spec/likelihood.md, section 10.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from ...data.cells import plain
from ...data.plain_text import canonical
from ...kernels.families import LEVELED, quoted, with_link
from ...labels import label

MOST = 50  # levels: beyond, the response is a number, or says who a row is


def _texts(value: object) -> object:
    """Levels as cells have them; numbers as a person writes them."""
    if value is None:
        return value
    if not isinstance(value, list) or not all(
        isinstance(level, str | int | float) and not isinstance(level, bool) for level in value
    ):
        raise PydanticCustomError("levels", 'a list of texts, such as ["none", "mild", "severe"]')
    return [canonical(level) if isinstance(level, str) else plain(level) for level in value]


Levels = Annotated[list[str] | None, BeforeValidator(_texts)]


def faults(data: Any, model: Any) -> Iterator[str]:
    """Yields every fault of a job file with these sections, each a sentence with its remedy."""
    family = str(model.family)
    if model.link is not None and family not in (having := with_link(model.link)):
        yield f'model.link = "{model.link}": of model.family = {quoted(having)}, and this is "{family}"; remove it'
    if family not in LEVELED:
        if data.levels is not None:
            yield 'data.levels: of a response with several levels; set model.family = "ordinal" or "multinomial", or remove it'
        return
    if data.builtin:
        yield f'model.family = "{family}" is for data.clients; built-in data have no response with several levels'
        return
    yield from _levels(data.levels, family)
    if data.positive is not None:
        yield f'data.positive = "{data.positive}": all levels of the response are in data.levels; remove it'
    if data.response in data.columns:
        yield f"data.columns.{data.response}: the response's levels are data.levels, in order; remove the table"
    if family == "ordinal":
        if model.intercept:
            yield "model.intercept: an ordinal model has thresholds in its place; remove it, or set false"
        return
    if model.random is not None:
        yield (
            'model.random with model.family = "multinomial": an effect of a group would be one for each level but the first, '
            'with their covariance; take "ordinal" where levels have an order, or fit each level against the first with '
            '"bernoulli", on files of the rows of these two'
        )
    if data.offset is not None:
        yield f'data.offset = "{data.offset}": a multinomial model has a predictor for each level but the first; remove it'


def _levels(levels: Sequence[str] | None, family: str) -> Iterator[str]:
    if levels is None:
        order = "in their order, the lowest first" if family == "ordinal" else "the reference first"
        yield f'data.levels is missing: all levels that the response may have, {order}, such as ["none", "mild", "severe"]'
        return
    if len(levels) < 2:
        yield f"data.levels = {levels}: wanted at least two levels"
    yield from faults_of_names("data.levels", levels)


def faults_of_names(key: str, levels: Sequence[str]) -> Iterator[str]:
    """Yields the faults of the names of levels, or of causes of events with the label of rows without."""
    if len(levels) > MOST:
        yield f"{key}: wanted at most {MOST}, got {len(levels)}; join levels that say nearly the same"
    if "" in levels:
        yield f"{key}: a level is empty; give missing responses a name, or leave their rows out"
    known = [label(level, text=True) for level in levels]
    if twice := [level for k, level in enumerate(levels) if known[k] in known[:k]]:
        yield f"{key}: {', '.join(map(repr, dict.fromkeys(twice)))} is there twice; each level needs a name of its own"
