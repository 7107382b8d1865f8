"""Expands the terms of a formula into columns of a model: their number, their names, and their values in rows.

Names are those of formulaic. Where R codes a factor of labels by contrasts it has a column for each label but the reference's;
elsewhere it has one for each label, unless columns before it span the constant (where R has NA). The facts that a transformation
takes of the data are a `Known`, which all parties have agreed on: it holds for new rows too.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...arrays import Array
from ...errors import JobError
from ...labels import OTHER, find
from ...plain import Record
from . import factors
from .factors import NATURAL, Ends, Factor, Node, ends, evaluated, quoted, read, refused

MOST_COLUMNS = 1000
Labels = frozenset[tuple[str, bool, int]]  # columns of labels, as `Made.of` has them
Powers = frozenset[tuple[str, int]]  # names of numeric columns, and their powers
Monomial = tuple[Labels, Powers]  # which are multiplied
_Scoped = tuple[str, bool]  # a factor, and whether it has one column fewer than labels


@dataclass(frozen=True)
class Known:
    """Holds the agreed facts of a column, or of an expression: labels, or centre and scale, and the job file's bounds."""

    levels: tuple[str, ...] | None = None
    center: float | None = None
    scale: float | None = None
    ends: Ends | None = None


@dataclass(frozen=True)
class Made:
    """Describes a column of the model."""

    name: str  # as formulaic has it
    # the factors that are multiplied: text, whether it has one column fewer than labels, and the number of its column
    of: tuple[tuple[str, bool, int], ...]
    indicator: bool  # whether it is made of labels alone, and so is not standardised
    spread: float = 1.0  # mean square of an indicator where labels are equally frequent; 1 of others, which are standardised


class Reading(Protocol):
    """Describes the rows of one party, and the place where their faults are told."""

    def numbers(self, name: str) -> Array:
        """Returns (n,) numbers of a column; a bad cell is marked, and not finite."""

    def codes(self, name: str, levels: tuple[str, ...]) -> NDArray[np.int64]:
        """Returns (n,) the number of each cell's level; -1 for a bad cell, which is marked."""

    def fault(self, bad: NDArray[np.bool_], column: str, reason: str, remedy: str) -> None:
        """Marks rows."""


@dataclass(frozen=True)
class Formula:
    """Holds the right-hand side of a formula, without effects of groups."""

    terms: tuple[tuple[str, ...], ...]  # the factors of each, terms of fewer factors first; `quoted` names of columns
    intercept: bool = True  # whether the model has one
    version: str = ""  # of formulaic, by which terms were read
    bases: Mapping[str, str] = field(default_factory=dict)  # column -> the label that the job file compares others with
    bounds: Mapping[str, Ends] = field(default_factory=dict)  # column -> the job file's lower and upper
    # column, or expression -> its agreed facts; empty before these are known
    known: Mapping[str, Known] = field(default_factory=dict)

    @cached_property
    def factors(self) -> dict[str, Factor]:
        """All factors, by their texts."""
        return {text: read(*_plain(text)) for term in self.terms for text in term}

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """The columns of a file that it reads, in its order."""
        return tuple(dict.fromkeys(name for factor in self.factors.values() for name in factor.variables))

    @property
    def numeric(self) -> frozenset[str]:
        """Columns that can hold numbers alone."""
        return frozenset(
            n for factor in self.factors.values() if not factor.plain and factor.call != "C" for n in factor.variables
        )

    @property
    def numbers(self) -> tuple[str, ...]:
        """Columns that hold numbers, once that is known."""
        return tuple(name for name in self.variables if self.known[name].levels is None)

    @property
    def labelled(self) -> frozenset[str]:
        """Columns that hold labels, whatever they look like."""
        return frozenset(name for factor in self.factors.values() if factor.call == "C" for name in factor.variables)

    @cached_property
    def arguments(self) -> dict[str, Node]:
        """The expressions that must have an agreed centre and scale, by their texts."""
        return {node.text: node for factor in self.factors.values() for node in factor.arguments}

    @property
    def curved(self) -> bool:
        """Whether it has splines, whose columns depend on agreed constants in more than their unit."""
        return any(factor.call in ("bs", *NATURAL) and factor.arguments for factor in self.factors.values())

    @property
    def derived(self) -> frozenset[str]:
        """Names of its columns that are products, or made of several columns or by a basis: they are no measurement."""
        return frozenset(column.name for column in self.made if len(column.of) > 1 or self._is_derived(column.of[0][0]))

    def _is_derived(self, factor: str) -> bool:
        read = self.factors[factor]
        return bool(read.call) or len(read.variables) > 1

    @property
    def text(self) -> str:
        """The formula's canonical text: all terms, as they are expanded."""
        return " + ".join(["1" if self.intercept else "0", *(":".join(term) for term in self.terms)])

    def knowing(self, known: Mapping[str, Known]) -> Formula:
        """Returns the formula with its agreed facts. Raises JobError: a label that others are compared with is none of its
        column's; too many columns."""
        formula = replace(self, known=dict(known))
        for factor in formula.factors.values():
            if formula.is_labels(factor) and (base := formula._base(factor)) not in formula._levels(factor):
                remedy = factor.text if "base" in factor.option else f"data.columns.{factor.variables[0]}.reference"
                levels = formula._levels(factor)
                joined = (
                    f' after rare ones joined "{OTHER}": name another, or join levels in all files' if OTHER in levels else ""
                )
                raise JobError(f"model.formula: {remedy}: {base!r} is none of the {len(levels)} labels of the column{joined}")
        if len(formula.made) > MOST_COLUMNS:
            raise JobError(f"model.formula: makes {len(formula.made):,} columns; at most {MOST_COLUMNS:,} are fitted: take fewer")
        return formula

    def is_labels(self, factor: Factor) -> bool:
        """Returns whether a factor is of labels."""
        return factor.call == "C" or (factor.plain and self.known[factor.node.text].levels is not None)

    def _levels(self, factor: Factor) -> tuple[str, ...]:
        return self.known[factor.node.text].levels or ()

    def _base(self, factor: Factor) -> str:
        levels = self._levels(factor)
        named = str(factor.option.get("base", "")) or self.bases.get(factor.node.text, "")
        return find(named, levels) or (levels[0] if levels else "")

    def compared(self, name: str) -> frozenset[str]:
        """Returns the labels of a column that others are compared with, as far as the job names them, where it has levels."""
        bases = [
            factor.option["base"] for factor in self.factors.values() if factor.variables == (name,) and "base" in factor.option
        ]
        named = {str(base) for base in bases} | ({self.bases[name]} if name in self.bases else set())
        known = self.known.get(name)
        levels = () if known is None or known.levels is None else known.levels
        return frozenset(find(base, levels) for base in named)

    def constants(self, text: str) -> tuple[float, float]:
        """Returns the agreed centre and scale of a column or expression."""
        known = self.known[text]
        if known.center is None or known.scale is None:
            raise ValueError(f"{text!r} has no agreed centre and scale")
        return known.center, known.scale

    def coding(self, text: str, reduced: bool) -> tuple[tuple[str, ...], Array]:
        """Returns the names of the columns of a factor of labels, and (labels, columns) each label's values in them."""
        factor = self.factors[text]
        levels, matrix = self._levels(factor), np.eye(len(self._levels(factor)))
        if not reduced:
            return tuple(f"{factor.label}[{level}]" for level in levels), matrix
        if factor.option.get("contrasts") == "sum":
            matrix[-1] = -1.0
            return tuple(f"{factor.label}[S.{level}]" for level in levels[:-1]), matrix[:, :-1]
        kept = [j for j, level in enumerate(levels) if level != self._base(factor)]
        return tuple(f"{factor.label}[T.{levels[j]}]" for j in kept), matrix[:, kept]

    def _names(self, text: str, reduced: bool) -> tuple[str, ...]:
        factor, option = self.factors[text], self.factors[text].option
        if self.is_labels(factor):
            return self.coding(text, reduced)[0]
        if not factor.call:
            return (factor.label,)
        if factor.call == "poly":
            return tuple(f"{factor.label}[{k}]" for k in range(1, int(factor.number("degree", 1.0)) + 1))
        if factor.call == "bs":
            whole = bool(option.get("include_intercept"))
            many = len(self._knots(factor)[0]) + _degree(factor) + 1
            return tuple(f"{factor.label}[{k}]" for k in range(0 if whole else 1, many))
        return tuple(f"{factor.label}[{k}]" for k in range(1, len(self._knots(factor)[0]) + 2))

    def _knots(self, factor: Factor) -> tuple[tuple[float, ...], Ends]:
        """Returns the inner knots and bounds of a spline."""
        option, text = factor.option, factor.node.text
        known = self.known.get(text, Known())
        given = known.ends
        both = -math.inf, math.inf
        if not {"lower_bound", "upper_bound"} <= option.keys():
            center, scale = self.constants(text)
            both = given or (center - factors.FAR * scale, center + factors.FAR * scale)
        both = factor.number("lower_bound", both[0]), factor.number("upper_bound", both[1])
        knots = option.get("knots")
        if not isinstance(knots, tuple):
            less = 1 if factor.call in NATURAL else _degree(factor) + bool(option.get("include_intercept"))
            many = 0 if "df" not in option else int(factor.number("df", 0.0)) - less
            if many == 0:
                knots = ()
            elif {"lower_bound", "upper_bound"} <= option.keys():
                knots = factors.quantiles(many, 0.0, 1.0, both)
            else:
                knots = factors.quantiles(many, *self.constants(text), given)
        if any(not a < b for a, b in itertools.pairwise([both[0], *knots, both[1]])):
            raise refused(factor.text, f"its knots are not all between {both[0]:.6g} and {both[1]:.6g}: give knots and bounds")
        return knots, both

    @cached_property
    def made(self) -> tuple[Made, ...]:
        """The columns, in their order, without the intercept."""
        spanned: set[frozenset[_Scoped]] = {frozenset()} if self.intercept else set()
        columns: list[Made] = []
        for term in self.terms:
            scoped = [term_ for term_ in self._span(term) if frozenset(term_) not in spanned]
            spanned |= {frozenset(part) for part in scoped}
            for part in _simplified(scoped):
                columns += self._columns(part)
        names = [part.name for part in columns]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise JobError(
                f"model.formula: two of its columns would be called {twice!r}; rename a column, or a label, in all files"
            )
        return tuple(columns)

    def refuse_without_constant(self) -> None:
        """Refuses curves whose constant is not in the model, where R's columns have another one (JobError).

        Those of `ns` and `bs` are 0 at the lower bound, which is R's where bounds are given; those of others are centred, each
        program in its own way.
        """
        spanned = {frozenset(part) for term in self.terms for part in self._span(term)}
        spanned |= {frozenset()} if self.intercept else set()
        for term, text in ((term_texts, text) for term_texts in self.terms for text in term_texts):
            if self._has_constant(self.factors[text]):
                continue
            if any(frozenset(part) - {(text, False)} not in spanned for part in self._span(term)):
                others = " * ".join(other for other in term if other != text)
                raise refused(
                    ":".join(term),
                    f"the constant of {text} is not in the model, and R has another one: add {others or 'the intercept'}, "
                    "or write ns(..) or bs(..) with lower_bound and upper_bound",
                )

    def _has_constant(self, factor: Factor) -> bool:
        """Returns whether a factor's columns span R's without any constant."""
        option = factor.option
        if factor.call in ("ns", "bs"):
            given = {"lower_bound", "upper_bound"} <= option.keys() or factor.node.text in self.bounds
            return given or bool(option.get("include_intercept"))
        return factor.call not in NATURAL and (factor.call != "poly" or option["raw"] is True)

    def _span(self, term: Sequence[str]) -> list[tuple[_Scoped, ...]]:
        """Returns the parts that a term spans: a factor of labels spans the constant, unless R codes it by contrasts here, and
        differences from the reference."""
        parts: list[tuple[_Scoped | None, ...]] = []
        for text in term:
            factor = self.factors[text]
            if self.is_labels(factor):
                parts.append(((text, True),) if self._is_contrasted(text, term) else ((text, True), None))
            else:
                parts.append(((text, True), None) if factor.option.get("include_intercept") else ((text, False),))
        return [tuple(part for part in product if part is not None) for product in itertools.product(*parts)]

    def _is_contrasted(self, text: str, term: Sequence[str]) -> bool:
        """Returns whether R codes a factor of labels by contrasts in a term.

        It does where a term before this one has all of its other factors, whatever else that one has. In a model without an
        intercept, the first factor of labels has a column for each label.
        """
        others = {*term} - {text}
        first = next((names for names in self.terms if any(self.is_labels(self.factors[name]) for name in names)), ())
        if not self.intercept and term == first:
            return False
        before = self.terms[: self.terms.index(tuple(term))]
        return not others or any(others <= {*names} for names in before)

    def _columns(self, scoped: Sequence[_Scoped]) -> Iterable[Made]:
        """Yields the products of the factors' columns, the first factor's varying fastest."""
        choices = [[(text, reduced, j, name) for j, name in enumerate(self._scoped(text, reduced))] for text, reduced in scoped]
        labels = all(self.is_labels(self.factors[text]) for text, _ in scoped)
        spread = 1.0
        for text, reduced in scoped if labels else ():
            coding = self.coding(text, reduced)[1]
            spread *= float((coding**2).sum(axis=0).mean() / len(coding)) if coding.size else 1.0
        for product in itertools.product(*reversed(choices)):
            ordered = product[::-1]
            yield Made(
                ":".join(name for *_, name in ordered),
                tuple((text, reduced, j) for text, reduced, j, _ in ordered),
                labels,
                spread,
            )

    def _scoped(self, text: str, reduced: bool) -> tuple[str, ...]:
        names = self._names(text, reduced)
        return names[1:] if reduced and self.factors[text].call == "bs" else names

    def monomial(self, made: Made) -> Monomial:
        """Returns the labels and powers whose product a column is."""
        labels, powers = list[tuple[str, bool, int]](), Counter[str]()
        for text, reduced, k in made.of:
            factor = self.factors[text]
            if self.is_labels(factor):
                labels.append((text, reduced, k))
            elif factor.call == "poly" and factor.option["raw"]:
                powers[self._names(text, reduced)[0]] += k + 1
            elif factor.call:
                powers[self._scoped(text, reduced)[k]] += 1
            else:
                powers += factor.node.powers
        return frozenset(labels), frozenset(powers.items())

    def matrix(self, rows: Reading, n: int) -> Array:
        """Returns (n, columns) the columns of `made`; rows with a fault are marked, and their values have no meaning."""
        out, kept = np.empty((n, len(self.made))), dict[tuple[str, bool], Array]()
        with np.errstate(all="ignore"):
            for j, made in enumerate(self.made):
                column = np.ones(n)
                for text, reduced, place in made.of:
                    if (text, reduced) not in kept:
                        kept[text, reduced] = self._values(text, reduced, rows, n)
                    column = column * kept[text, reduced][:, place]
                out[:, j] = column
                large = ~(np.abs(column) <= LARGEST) & ~np.isnan(column)
                if large.any():
                    first = self.factors[made.of[0][0]].variables[0]
                    rows.fault(
                        large, first, f"is too large for {made.name}", "correct the cell, or give the column in another unit"
                    )
        return out

    def _values(self, text: str, reduced: bool, rows: Reading, n: int) -> Array:
        """Returns (n, k) the columns of one factor."""
        factor = self.factors[text]
        if self.is_labels(factor):
            coding = self.coding(text, reduced)[1]
            codes = rows.codes(factor.node.text, self._levels(factor))
            return np.where((codes >= 0)[:, np.newaxis], coding[np.maximum(codes, 0)], np.nan)
        x = self.argument(factor.node, rows, n)
        if not factor.call:
            return x[:, np.newaxis]
        return self._basis(factor, self._inside(factor, x, rows) if factor.call != "poly" else x, reduced)

    def _basis(self, factor: Factor, x: Array, reduced: bool) -> Array:
        """Returns (n, k) the columns of a factor of several columns."""
        option = factor.option
        if factor.call == "poly":
            degree = int(factor.number("degree", 1.0))
            if option["raw"]:
                return np.column_stack([x**k for k in range(1, degree + 1)])
            return factors.polynomial(x, degree, *self.constants(factor.node.text))
        knots, both = self._knots(factor)
        if factor.call in NATURAL:
            return factors.natural(x, knots, both, anchored=factor.call == "ns")
        whole = bool(option.get("include_intercept"))
        basis = factors.b_spline(x, knots, both, _degree(factor), whole=whole)
        return basis[:, 1:] if whole and reduced else basis

    def argument(self, node: Node, rows: Reading, n: int) -> Array:
        """Returns (n,) values of an expression; rows whose cells have numbers and which have no value are marked."""
        columns = {part.text: rows.numbers(part.text) for part in node.walk() if part.what == "name"}
        with np.errstate(all="ignore"):
            x = np.array(np.broadcast_to(evaluated(node, columns.__getitem__, self.constants), (n,)), np.float64)
        known, finite = np.all([np.isfinite(column) for column in columns.values()], axis=0), np.isfinite(x)
        x[~finite] = np.nan
        if (none := known & ~finite).any():
            remedy = "correct the cell, or the formula (a logarithm is of numbers above 0)"
            rows.fault(none, next(iter(columns)), f"has no finite {node.text}", remedy)
        return x

    def extrapolation(self, factor: Factor) -> str:
        """Returns the treatment of rows beyond a spline's bounds: "raise", "clip" or "extend".

        By default they are faults where a B-spline's bounds are given, as in formulaic, and count as at a bound where it comes
        from agreed moments; a natural spline goes on in a line.
        """
        given = {"lower_bound", "upper_bound"} <= factor.option.keys()
        usual = "extend" if factor.call in NATURAL else "raise" if given else "clip"
        return str(factor.option.get("extrapolation", usual))

    def _inside(self, factor: Factor, x: Array, rows: Reading) -> Array:
        how, both = self.extrapolation(factor), self._knots(factor)[1]
        if how == "clip":
            return np.clip(x, *both)
        outside = (x < both[0]) | (x > both[1])
        if how == "raise" and outside.any():
            remedy = f"the bounds are {both[0]:.6g} and {both[1]:.6g}: correct the cell, or the bounds, or give extrapolation"
            rows.fault(
                outside, factor.variables[0], f"is outside of the bounds of {factor.text}", f'{remedy} = "clip" or "extend"'
            )
        return x

    def clipped(self, rows: Reading, n: int) -> dict[str, int]:
        """Returns factor -> number of rows that count as at a bound of its spline, where that is not 0."""
        counts = {}
        for text, factor in self.factors.items():
            if factor.call == "bs" and self.extrapolation(factor) == "clip":
                low, high = self._knots(factor)[1]
                x = self.argument(factor.node, rows, n)
                counts[text] = int(((x < low) | (x > high)).sum())
        return {text: many for text, many in counts.items() if many}

    def ends(self, made: Made) -> Ends | None:
        """Returns the bounds of a column where the file's columns lie between centre +- scale; None where it has none."""
        low, high = 1.0, 1.0
        for text, reduced, place in made.of:
            bounds = self._ends(text, reduced, place)
            if bounds is None:
                return None
            corners = [a * b for a in (low, high) for b in bounds]
            low, high = min(corners), max(corners)
        return low, high

    def _ends(self, text: str, reduced: bool, place: int) -> Ends | None:
        factor = self.factors[text]
        if self.is_labels(factor):
            column = self.coding(text, reduced)[1][:, place]
            return float(column.min()), float(column.max())
        both = ends(factor.node, self.ends_of, self.constants)
        if not factor.call or both is None:
            return both
        x = np.linspace(*both, 201)
        if factor.call != "poly" and self.extrapolation(factor) != "extend":
            x = np.clip(x, *self._knots(factor)[1])
        values = self._basis(factor, x, reduced)[:, place]
        return float(values.min()), float(values.max())

    def ends_of(self, name: str) -> Ends:
        """Returns the bounds of a column: the job file's, else centre +- scale."""
        center, scale = self.constants(name)
        return self.known[name].ends or (center - scale, center + scale)

    def to_dict(self) -> dict[str, Any]:
        """Returns plain lists, texts and numbers, for JSON."""
        known = {
            name: {
                key: list(value) if isinstance(value, tuple) else value
                for key, value in vars(factor).items()
                if value is not None
            }
            for name, factor in self.known.items()
        }
        plain = {"terms": [list(term) for term in self.terms], "intercept": self.intercept, "version": self.version}
        if any(factor.call == "ns" for factor in self.factors.values()):
            plain["anchored"] = True
        return plain | {"bases": dict(self.bases), "bounds": {n: list(b) for n, b in self.bounds.items()}, "known": known}

    @classmethod
    def from_dict(cls, plain: Record) -> Formula:
        """Makes the formula of `to_dict` again; ValueError where something is missing, or is no formula."""
        try:
            known = {str(name): _known(factor) for name, factor in plain["known"].items()}
            bounds = {str(name): (float(low), float(high)) for name, (low, high) in plain["bounds"].items()}
            bases = {str(name): str(level) for name, level in plain["bases"].items()}
            terms = tuple(tuple(map(str, term)) for term in plain["terms"])
            formula = cls(terms, plain["intercept"] is True, str(plain["version"]), bases, bounds, known)
            if any(factor.call == "ns" for factor in formula.factors.values()) and plain.get("anchored") is not True:
                raise TypeError("columns of ns(..) were others when this result was made; run its job again")
            formula.made  # noqa: B018  # reads all factors
            return formula
        except (KeyError, TypeError, AttributeError, JobError) as fault:
            raise ValueError(f"not a formula: {fault}") from fault


LARGEST = 1e150  # of a cell of `matrix`, as of a file


def _known(plain: Record) -> Known:
    levels, both = plain.get("levels"), plain.get("ends")
    numbers = {key: float(plain[key]) for key in ("center", "scale") if key in plain}
    if not all(map(math.isfinite, numbers.values())) or not numbers.get("scale", 1.0) > 0:
        raise TypeError(f"centre and scale are {numbers}")
    bounds = None if both is None else (float(both[0]), float(both[1]))
    return Known(None if levels is None else tuple(map(str, levels)), numbers.get("center"), numbers.get("scale"), bounds)


def _degree(factor: Factor) -> int:
    return int(factor.number("degree", 3.0))


def _plain(text: str) -> tuple[str, bool]:
    """Returns a factor's text for `read`, and whether it is the name of a column, as a quoted one is."""
    whole = text[1:-1] if text[:1] == text[-1:] == "`" and "`" not in text[1:-1] else text
    return (whole, True) if whole != text or (quoted(text) == text and text.isidentifier()) else (text, False)


def _simplified(scoped: Iterable[tuple[_Scoped, ...]]) -> list[tuple[_Scoped, ...]]:
    """Returns the fewest terms with the same span.

    A term, and the term times a reduced factor, are the term times the whole factor.
    """
    terms: list[tuple[_Scoped, ...]] = []
    for term in sorted(scoped, key=len):
        for existing in terms:
            more = set(term) - set(existing)
            if len(term) - 1 != len(existing) or len(more) != 1 or not next(iter(more))[1]:
                continue
            new = next(iter(more))
            whole = tuple((text, False) if (text, reduced) == new else (text, reduced) for text, reduced in term)
            terms = _simplified([*(other for other in terms if other != existing), whole])
            break
        else:
            if term not in terms:
                terms.append(term)
    return terms
