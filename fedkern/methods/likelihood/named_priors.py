"""Finds the numbers to which a job gives priors of their own, by the names that a result has for them, in the model's units.

Such a prior is of the number as it is printed: of a level against its reference, of an intercept where all columns are 0. With
`unit = "sd"` it is of the number of standardised columns, of a gaussian or student response in standard deviations of that.
Source: docs/spec/likelihood.md, section 3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import NamedTuple, Protocol

import numpy as np

from ...arrays import Array
from ...errors import JobError
from ...kernels.families import Family
from ...models import levels
from ...models.encoding import Encoding
from ...models.mixed import Prior
from ...models.mixed.layout import Density, Layout, Level, Squared, is_smooth, title
from ...models.mixed.layout import Named as OfNumber
from ...models.own.priors import POSITIVE, Block, block_of
from ...models.reference import Coding
from ...models.spatial.units import Units
from ...printing import listed, toml_key
from ...results.gaussian import label
from .keys import HELD
from .own_keys import PriorSection

Row = tuple[Array, Block]  # of coefficients, and the prior of their sum

MOST = 12  # names that are told


class Number(NamedTuple):
    """Describes a number that may have a prior of its own.

    Attributes
    ----------
    names : all that it goes by, that of results first
    kind : "coefficient", "length" (of a row of T or T_c), "shape", "scale" (a coefficient of log sigma) or "threshold"
    place : of a coefficient or a shape in the layout, and the level and number of a row
    """

    names: tuple[str, ...]
    kind: str
    place: tuple[Level, int] | int


class Numbered(Protocol):
    """Is a model whose numbers may have priors of their own; each of these is described there."""

    @property
    def encoding(self) -> Encoding: ...
    @property
    def units(self) -> Units: ...
    @property
    def given_to_numbers(self) -> Mapping[str, PriorSection]: ...
    @property
    def plain_layout(self) -> Layout: ...
    @property
    def coding(self) -> Coding: ...
    @property
    def affine(self) -> Array: ...
    @property
    def bases(self) -> dict[str, str]: ...
    @property
    def blocks(self) -> tuple[str, ...]: ...
    @property
    def family(self) -> str: ...
    @property
    def row(self) -> Family: ...
    @property
    def chains(self) -> bool: ...
    @property
    def by_evidence(self) -> bool: ...
    @property
    def looked_at(self) -> bool: ...
    @property
    def zero_of_intercept(self) -> float | None: ...
    def unit_of_scale(self, name: str) -> float | None: ...
    def moves_intercept(self, terms: Sequence[str]) -> bool: ...
    def units_of(self, terms: Sequence[str]) -> list[float]: ...


@dataclass(frozen=True)
class Named:
    """Holds these priors.

    Attributes
    ----------
    rows : place of a coefficient -> a number in its place, with the prior
    lengths : of rows of T and T_c, as `Prior` has them
    shapes : place in `Layout.shapes` -> the prior there
    shift : as `Prior` has it
    keys : name in a result -> key of the job
    """

    rows: dict[int, Row] = field(default_factory=dict)
    lengths: dict[tuple[Level, int], Block] = field(default_factory=dict)
    shapes: dict[int, Density] = field(default_factory=dict)
    shift: Array | None = None
    keys: dict[str, str] = field(default_factory=dict)

    def laid_out(self, layout: Layout) -> Layout:
        """Returns the layout with these priors of the family's numbers."""
        if not self.shapes:
            return layout
        shapes = tuple(replace(s, prior=self.shapes.get(k, s.prior)) for k, s in enumerate(layout.shapes))
        return replace(layout, own=shapes)

    def over(self, prior: Prior, model: Numbered) -> Prior:
        """Returns a prior with these of coefficients and effects in the place of its own."""
        if self.rows:
            numbers, coding = np.eye(prior.layout.p), model.coding
            numbers[[*coding.kept]] = coding.matrix
            for k, (row, _) in self.rows.items():
                numbers[k] = row
            prior = prior.with_named(numbers, {k: block for k, (_, block) in self.rows.items()})
        return replace(prior, lengths=self.lengths, shift=self.shift)


def key_of(name: str) -> str:
    """Returns the key of a prior as a job file has it."""
    return f"model.priors.{toml_key(name)}"


def of_model(model: Numbered) -> Named:
    """Returns the priors that a job gives to numbers of this model; names of no number are left to `check`.

    Raises
    ------
    JobError
        Two are of one number, or a number cannot have such a prior.
    """
    found, given = Named(), dict[Number, str]()
    for name, section in model.given_to_numbers.items():
        number = by_name(model).get(name)
        if number is None:
            continue
        if number in given:
            both = f"{key_of(given[number])} and {key_of(name)}"
            raise JobError(f"{both} are of one number, {number.names[0]!r}; remove one of them")
        given[number] = name
        found.keys.update(dict.fromkeys(number.names, key_of(name)))
        found = _with(found, number, section, model, key_of(name))
    return found


def check(model: Numbered, *, levels_known: bool = True) -> None:
    """Refuses priors of numbers that the model does not have, with a JobError; of levels only where these are known."""
    known = by_name(model)
    for name in model.given_to_numbers:
        of_level = not (levels_known or name.startswith(("group_", "client_"))) and any(mark in _plain(name) for mark in "=[")
        if name not in known and not of_level and not (name == "dispersion" and model.by_evidence):  # which one family has
            raise JobError(f"{key_of(name)}: {_why_not(name, known, model)}")


def _plain(name: str) -> str:
    return name.removeprefix("theta[").removesuffix("]") if name.startswith("theta[") else name


def _why_not(name: str, known: Mapping[str, Number], model: Numbered) -> str:
    plain = _plain(name)
    for column, base in model.bases.items():
        if plain in [f"{block}{written}" for block in model.blocks for written in (f"{column}={base}", f"{column}[T.{base}]")]:
            return (
                f"level {base!r} of {column!r} is what the others are compared with, and has no coefficient; give the prior to "
                "one of these, or choose another reference"
            )
    near = [known[alias].names[0] for alias in get_close_matches(name, known, 3)]
    hint = f"did you mean {' or '.join(map(repr, dict.fromkeys(near)))}?" if near else ""
    known_names = listed([repr(name) for name in dict.fromkeys(number.names[0] for number in known.values())], MOST)
    return f"no number of the result that may have a prior of its own has this name; {hint or f'there are {known_names}'}"


def by_name(model: Numbered) -> dict[str, Number]:
    """Returns all names of all numbers that may have a prior of their own."""
    return {name: number for number in _numbers(model) for name in number.names}


def _numbers(model: Numbered) -> Iterator[Number]:
    layout, coding = model.plain_layout, model.coding
    for k, spoken in zip(coding.kept, coding.spoken, strict=True):
        name = layout.coefficients[k]
        yield Number(tuple(dict.fromkeys((label(name), name, spoken, f"theta[{spoken}]"))), "coefficient", k)
    for level in layout.levels:
        for i, term in enumerate(layout.terms(level)):
            yield Number((title(level, "sd", term),), "length", (level, i))
    if layout.ordered:
        yield Number(("threshold",), "threshold", 0)
        return
    for k, shape in enumerate(layout.shapes):
        if shape.label.startswith("sigma["):
            yield Number((shape.label,), "scale", k)
        elif shape.natural is np.exp or shape.folded:
            yield Number((shape.label.replace(" ", "_"),), "shape", k)


def _with(found: Named, number: Number, section: PriorSection, model: Numbered, key: str) -> Named:
    """Returns the priors with one more."""
    of_any = number.kind in ("coefficient", "threshold", "scale")
    if (section.kind in POSITIVE) == of_any or section.kind == "lkj" or section.size is not None:
        wanted = '"normal" or "student"' if of_any else '"half-normal", "half-student" or "gamma"'
        what = "may have any sign" if of_any else "is above 0"
        raise JobError(f"{key}: {number.names[0]!r} {what}, and is one number: wanted kind = {wanted}, without size")
    prior, own_unit, place = block_of(section.kind, section.block), section.unit != "sd", number.place
    if number.kind == "coefficient":
        assert isinstance(place, int)
        found.rows[place] = _of_coefficient(place, prior, model, key, own_unit=own_unit)
    elif number.kind == "length":
        assert isinstance(place, tuple)
        terms = model.plain_layout.terms(place[0])
        correlated = model.plain_layout.effect(place[0]).shifts is None
        if own_unit and correlated and place[1] == 0 and model.moves_intercept(terms):
            raise JobError(
                f"{key}: with slopes an intercept's sd hangs on where the columns are 0; give it where they have their means, by "
                'unit = "sd"'
            )
        d = place[1] + 1 if correlated else 1
        if model.chains and not is_smooth(d, prior):
            raise JobError(
                f'{key}: chains (algorithm.sampler = "hmc") do not come near an sd of 0 with this prior; take kind = "gamma" '
                f"with a shape of {d + 1} or more, or weighted draws"
            )
        found.lengths[place] = prior.over(model.units_of(terms)[place[1]] if own_unit else 1.0)
    elif number.kind == "threshold":
        first = model.coding.bases if not own_unit else model.coding.bases - levels.centres(model.encoding)
        return replace(found, shapes={0: OfNumber(prior)}, shift=-first)
    elif number.kind == "scale":
        assert isinstance(place, int)
        unit = model.unit_of_scale(number.names[0])
        if own_unit and unit is None:
            raise JobError(f'{key}: it hangs on where the columns are 0; give it where they have their means, by unit = "sd"')
        found.shapes[place] = OfNumber(prior.over(unit or 1.0) if own_unit else prior)
    else:
        assert isinstance(place, int)
        shape = model.plain_layout.shapes[place]
        scaled = prior.over(model.units.scale) if own_unit and (shape.label == "sigma" or shape.of_prior) else prior
        found.shapes[place] = Squared(scaled) if shape.folded else OfNumber(scaled)
    return found


def _of_coefficient(k: int, prior: Block, model: Numbered, key: str, *, own_unit: bool) -> Row:
    """Returns the number that stands in the place of a coefficient, in standard deviations of columns, and its prior."""
    coding = model.coding
    row = coding.matrix[coding.kept.index(k)]
    if own_unit:
        zero = model.zero_of_intercept if model.plain_layout.coefficients[k] == "intercept" else 0.0
        if zero is None:
            raise JobError(
                f'{key}: the intercept of "{model.family}" is of a unit of time that hangs on the shape; give it in that of the '
                'model, by unit = "sd"'
            )
        unit = model.affine[k, k] if model.encoding.standardised else 1.0
        row = row @ model.affine / unit if model.encoding.standardised else row
        prior = prior.over(model.units.scale * unit, zero)
    sd = prior.scale if prior.kind == "student" else prior.sd
    if own_unit and sd <= HELD and not model.row.linear and model.looked_at:
        raise JobError(
            f"{key}: this prior is {sd:.2g} wide in standard deviations of its column, and so holds the posterior where the job "
            'has it; give it by unit = "sd", so that holders can judge it before they answer, or take a wider one'
        )
    return row, prior
