"""Lays a formula over the other keys of a job, and finds the keys that contradict it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ...errors import JobError
from ...kernels.families import WITHOUT_INTERCEPT
from ...models.formula import factors
from ...models.formula.expansion import Formula
from ...printing import toml_key
from ..incomplete import of as missing_of
from ..keys import ColumnSection, JobConfig, Raw
from ..load import table
from . import reading

HELP = (
    'of the response and the terms, as R has it: "died ~ age * sex + cs(bmi, df = 4) + (1 | ward)"; '
    "needs fedkern[formula] at every party"
)


def faults(raw: Raw, *, random: bool) -> Iterator[str]:
    """Yields why a formula cannot be read, and keys that contradict it. `random`: whether the method has effects of groups."""
    model, data = table(raw, "model"), table(raw, "data")
    text = model.get("formula")
    if not isinstance(text, str):
        return
    try:
        read = reading.read(text)
    except JobError as fault:
        yield str(fault)
        return
    for name, value in read.data.items():
        if data.get(name, value) != value:
            yield f'model.formula says that data.{name} is "{value}", and data.{name} = {data[name]!r}; remove one of them'
    if read.random and not random:
        yield 'model.formula has effects of groups, which are for method = "likelihood"; leave them out'
    given = model.get("random")
    for name, value in read.random.items():
        if isinstance(given, Mapping) and given.get(name, value) != value:
            yield f"model.formula says that model.random.{name} is {value!r}, and it is {given[name]!r}; remove one of them"
    none = model.get("family") in WITHOUT_INTERCEPT
    if none and not read.formula.intercept:
        yield f'model.formula: "{model.get("family")}" has no intercept that could be left out; remove 0 or - 1'
    elif "privacy" in raw and not read.formula.intercept:
        yield (
            "model.formula: columns of a private job are centred, and without an intercept that makes another model of them; "
            "remove 0 or - 1"
        )
    elif not none and "intercept" in model and model["intercept"] is not read.formula.intercept:
        has = "has an intercept (0 + .. has none)" if read.formula.intercept else "has no intercept"
        yield f"model.formula {has}, and model.intercept = {str(model['intercept']).lower()}; remove one of them"


def laid(raw: Raw) -> dict[str, Any]:
    """Returns the tables with the keys that their formula sets; unchanged where they have no formula."""
    out: dict[str, Any] = {**raw}
    model = table(raw, "model")
    text = model.get("formula")
    if not isinstance(text, str):
        return out
    read = reading.read(text)
    out["data"] = {**table(raw, "data"), **read.data}
    more: dict[str, Any] = {} if read.formula.intercept else {"intercept": False}
    if read.random:
        given = model.get("random")
        more["random"] = {**(given if isinstance(given, Mapping) else {}), **read.random}
    out["model"] = {**model, **more}
    return out


def of(text: str | None, columns: Mapping[str, ColumnSection]) -> Formula | None:
    """Returns the terms of a job's formula, with the job file's declarations of its columns; None where it has no formula."""
    if text is None:
        return None
    bases = {name: section.reference for name, section in columns.items() if section.reference is not None}
    bounds = {
        n: (section.lower, section.upper)
        for n, section in columns.items()
        if section.lower is not None and section.upper is not None
    }
    return replace(reading.read(text).formula, bases=bases, bounds=bounds)


def expanded(formula: Formula | None) -> dict[str, Any]:
    """Returns the parts that all parties must have read alike: the terms, and by which formulaic; empty without a formula."""
    return {} if formula is None else {"formula": {"terms": formula.text, "formulaic": formula.version}}


def describe_formula(read_alike: Mapping[str, Any]) -> list[str]:
    """Returns the lines of `fedkern check` about a formula."""
    if not read_alike:
        return []
    content = read_alike["formula"]
    return [f"formula  {content['terms']}, by formulaic {content['formulaic']}; other columns are not read"]


def alike(answers: list[bytes]) -> bytes:
    """Checks whether all ranks have read a formula alike. Raises JobError: a rank has read it otherwise: which rank, and how."""
    first = json.loads(answers[0])["formula"]
    for rank, text in enumerate(answers):
        if text != answers[0]:
            others = json.loads(text)["formula"]
            read = [f"{factors.shortened(content['terms'])} by formulaic {content['formulaic']}" for content in (others, first)]
            both = f"rank {rank} reads model.formula as {read[0]}, and rank 0 as {read[1]}"
            raise JobError(f"{both}; install one version of formulaic at all parties")
    return answers[0]


def conflicts(config: JobConfig, formula: Formula | None) -> Iterator[str]:
    """Yields faults of a job with a formula, beside those of its text."""
    if formula is None:
        return
    data: Any = config.data
    if data.builtin:
        yield "model.formula is for data.clients; built-in data have columns of their own"
    if missing_of(config) == "indicator":
        yield 'model.missing = "indicator" makes columns that are in no term of model.formula; take "drop", or fill the cells'
    if getattr(config.algorithm, "posterior", None) is not None:
        yield (
            "algorithm.posterior with model.formula: that posterior is made for columns that are near normal, or binary, as the "
            "job file says of each, and a formula makes others; remove one of them"
        )
    random = getattr(config.model, "random", None)
    # An offset, a weight, an entry, a stratum or a group may have an effect as well; a response has none on itself.
    roles = {name: getattr(data, name, None) for name in ("response", "row_id", "time", "time_upper", "event")}
    for name in formula.variables:
        if role := next((key for key, column in roles.items() if column and name in column.split(" - ")), None):
            yield f'model.formula: "{name}" stands among the terms, and is data.{role} too; name another column, or a copy'
        if name in data.ignore:
            yield f'model.formula: "{name}" stands among the terms, and in data.ignore; take it out of one'
        yield from _kinds(formula, name, data.columns.get(name))
    for key in ("slopes", "client_slopes"):
        for slope in dict.fromkeys(getattr(random, f"all_{key}", ())):
            if not {(slope,), (factors.quoted(slope),)} & {*formula.terms}:
                yield (
                    f'model.random.{key}: "{slope}" is no term of model.formula by itself, and slopes of groups lie about its '
                    f"coefficient; add it: .. + {slope} + .."
                )
    if config.private or data.standardise != "exchange":
        yield from _constants(formula, data.columns, data.standardise)


def _kinds(formula: Formula, name: str, section: ColumnSection | None) -> Iterator[str]:
    numeric, labelled = name in formula.numeric, name in formula.labelled
    if numeric and labelled:
        yield f'model.formula: "{name}" is taken for numbers in one term, and for labels (C) in another'
    if section is None:
        return
    labels = section.kind == "categorical" or section.levels is not None or section.reference is not None
    if numeric and labels:
        key = f"[data.columns.{toml_key(name)}]"
        yield f'model.formula calculates with "{name}", and {key} says that it has labels; remove one of them'
    if labelled and (section.kind == "numeric" or section.center is not None or section.lower is not None):
        yield f'model.formula takes "{name}" for labels (C), and [data.columns.{toml_key(name)}] for numbers; remove one of them'


def _constants(formula: Formula, columns: Mapping[str, ColumnSection], standardise: str) -> Iterator[str]:
    """Yields constants that transformations need and the job file lacks, where nothing is computed from rows."""
    for text, node in formula.arguments.items():
        given = {name for name, section in columns.items() if section.center is not None or section.lower is not None}
        needed = {section.text for section in node.walk() if section.what == "name"}
        if text not in given and (standardise == "none" or not needed <= given):
            yield (
                f"model.formula needs the centre and scale of {text}, and no numbers of rows are exchanged for them: give center "
                f"and scale (or lower and upper) in [data.columns.{toml_key(text)}], or knots, lower_bound and upper_bound of a "
                "spline"
            )
