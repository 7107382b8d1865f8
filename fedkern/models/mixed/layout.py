"""Lays out xi, the unknowns that all parties of a mixed regression share: their places, their names, and their prior."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from ...arrays import Vector
from ...kernels.families import FAMILIES as RECORDS
from ...kernels.families import HALF_LOG_TAU, HAZARDS, NOMINAL
from ..encoding import INTERCEPT
from ..own.priors import POSITIVE, Block, Densities, Kind, block_of

# --------------------
# Lists the numbers that a family has beside its coefficients, as coordinates of xi: their names and their priors.
#
# They stand at the end of xi, in the order in which the kernels (`fedkern.kernels.mixed`) take them. A new family is an entry of
# `SHAPES`; the rest of it stands in `fedkern/kernels/families.py`.
#
# Source: docs/spec/likelihood.md, section 3.


LEAST = 1e-12  # of phi^2: beyond it a count is Poisson
START_OF_LEARNT = math.log(0.5)  # of the logarithm of a prior's scale, at which the mode of the rest is looked for


class Density(Protocol):
    """Describes the prior of one coordinate. Its functions take values (S,) of the coordinate."""

    def value(self, x: Vector) -> Vector:
        """Returns log-densities of the number that people read: where the coordinate is its logarithm, without the Jacobian."""

    def log_jacobian(self, x: Vector) -> Vector:
        """Returns the logarithm of the Jacobian, which makes `value` a density of the coordinate."""

    def slope(self, x: Vector) -> Vector:
        """Returns the derivative of both together."""

    def curve(self, x: Vector) -> Vector:
        """Returns minus the second derivative of both together."""


@dataclass(frozen=True)
class Named:
    """Holds a prior as job files have it, of the number that people read; of one above 0 the coordinate is the logarithm."""

    prior: Block

    @classmethod
    def of(cls, kind: Kind, **numbers: float) -> Self:
        """Returns the prior of a kind of `models.own.priors`, with its numbers."""
        return cls(block_of(kind, numbers))

    def value(self, x: Vector) -> Vector:
        with np.errstate(all="ignore"):
            return self.prior.densities(x).bare

    def log_jacobian(self, x: Vector) -> Vector:
        return x if self.prior.kind in POSITIVE else np.zeros_like(x)

    def slope(self, x: Vector) -> Vector:
        return self.prior.densities(x).slope

    def curve(self, x: Vector) -> Vector:
        return self.prior.densities(x).curved


@dataclass(frozen=True)
class Squared(Named):
    """Holds the prior of the coordinate's square, as a density of both signs."""

    def value(self, x: Vector) -> Vector:
        with np.errstate(divide="ignore"):
            return super().value(2 * np.log(np.abs(x)))

    def log_jacobian(self, x: Vector) -> Vector:
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(2 * np.abs(x)))

    def slope(self, x: Vector) -> Vector:
        with np.errstate(all="ignore"):
            return np.asarray((2 * super().slope(2 * np.log(np.abs(x))) - 1) / x)

    def curve(self, x: Vector) -> Vector:
        with np.errstate(all="ignore"):
            of_length = self.prior.densities(2 * np.log(np.abs(x)))
            return np.asarray((4 * of_length.curved + 2 * of_length.slope - 1) / x**2)


@dataclass(frozen=True)
class HalfCauchy:
    """Holds the prior |coordinate| ~ HalfCauchy(1), as a density of both signs."""

    def value(self, x: Vector) -> Vector:
        return np.asarray(math.log(2 / math.pi) - 2 * np.log(np.hypot(1, x)))

    def log_jacobian(self, x: Vector) -> Vector:
        return np.zeros_like(x)

    def slope(self, x: Vector) -> Vector:
        return np.asarray(-2 * x / (1 + x**2))

    def curve(self, x: Vector) -> Vector:
        return np.asarray(2 * (1 - x**2) / (1 + x**2) ** 2)


@dataclass(frozen=True)
class LogHalfCauchyRoot:
    """Holds the prior exp(-coordinate / 2) ~ HalfCauchy(1); people read the coordinate itself.

    Its slope is at most a half: a shape of a million, of responses that hardly vary, is no further from it than one of ten.
    """

    def value(self, x: Vector) -> Vector:
        return np.asarray(-np.logaddexp(0.5 * x, -0.5 * x) - math.log(math.pi))

    def log_jacobian(self, x: Vector) -> Vector:
        return np.zeros_like(x)

    def slope(self, x: Vector) -> Vector:
        return np.asarray(-0.5 * np.tanh(0.5 * x))

    def curve(self, x: Vector) -> Vector:
        return np.asarray(0.25 - 0.25 * np.tanh(0.5 * x) ** 2)


@dataclass(frozen=True)
class Elsewhere:
    """Stands for a prior of several coordinates together, which is computed elsewhere: adds nothing."""

    def value(self, x: Vector) -> Vector:
        return np.zeros_like(x)

    def log_jacobian(self, x: Vector) -> Vector:
        return np.zeros_like(x)

    def slope(self, x: Vector) -> Vector:
        return np.zeros_like(x)

    def curve(self, x: Vector) -> Vector:
        return np.zeros_like(x)


def _logistic(x: Vector) -> Vector:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)))


@dataclass(frozen=True)
class Shape:
    """Describes one number of a family.

    Attributes
    ----------
    name : of the coordinate
    read : name of the number that people read
    natural : (S,) coordinates -> (S,) of that number
    prior : of the coordinate
    start : where the way to the mode begins
    folded : whether the coordinate and its negative are the same model
    of_prior : whether it is a number of other coordinates' prior, on which rows do not depend
    called : its name in a result, where that is not `read`
    loose : whether its posterior may have heavy tails beside other coordinates that have them
    reach : how far from `start` clients are asked, where a server gets sums alone
    """

    name: str
    read: str
    natural: Callable[[Vector], Vector]
    prior: Density
    start: float = 0.0
    folded: bool = False
    of_prior: bool = False
    called: str = ""
    loose: bool = False
    reach: float = 12.0

    @property
    def label(self) -> str:
        """The number's name in a result."""
        return self.called or self.read

    def published(self, x: Vector) -> Vector:
        """Returns (S,) the number as a result has it: the square of phi, with which the variance grows."""
        return x**2 if self.folded else self.natural(x)

    def scale(self, published: Vector) -> Vector:
        """Returns (S,) the number as the family's record takes it, from a result's: r for a negative binomial."""
        return np.asarray(np.maximum(published, LEAST) ** -1) if self.folded else published


SD = Shape("log sd", "sd", np.exp, Named.of("half-normal"), called="sigma", reach=9.0)
PHI = Shape("phi", "1 / sqrt r", np.abs, HalfCauchy(), start=1.0, folded=True, called="dispersion")
NU = Shape("log nu", "nu", np.exp, Named.of("gamma", shape=2.0, rate=0.1), start=math.log(10.0))
SHAPE = Shape("log shape", "shape", np.exp, LogHalfCauchyRoot())
PRECISION = Shape("log precision", "precision", np.exp, LogHalfCauchyRoot(), start=2.0)
ZEROS = Shape(
    "logit zeros", "structural zeros", _logistic, Named.of("normal", sd=1.5), start=-1.0, called="structural_zeros", loose=True
)

ZERO = replace(ZEROS, read="probability of 0", called="zero_probability")
OF_LOGS = Shape("log sd", "sd", np.exp, Named.of("half-student", df=3.0, scale=1.0), called="sigma", reach=9.0)
OF_CHANCES = Shape("log precision", "precision", np.exp, Named.of("normal", mean=2.0, sd=1.5), start=2.0)

SHAPES: dict[str, tuple[Shape, ...]] = {
    "gaussian": (SD,),
    "negative-binomial": (PHI,),
    "student": (SD, NU),
    "gamma": (SHAPE,),
    "beta": (PRECISION,),
    "zero-inflated-poisson": (ZEROS,),
    "zero-inflated-negative-binomial": (PHI, ZEROS),
    "hurdle-poisson": (ZERO,),
    "hurdle-negative-binomial": (PHI, ZERO),
    "poisson-lognormal": (replace(OF_LOGS, read="sd of rows", called="row_sd"),),
    "beta-binomial": (OF_CHANCES,),
    "lognormal": (OF_LOGS,),
    "inverse-gaussian": (SHAPE,),
    "weibull": (SHAPE,),
    "lognormal-aft": (OF_LOGS,),
    "loglogistic-aft": (OF_LOGS,),
}
"""Families with a fixed number of them; the others have none, or those of their job (`Layout.own`)."""


# Lays out xi, the unknowns that all parties of a mixed regression share: their places and their names --------------------

Level = str  # "group" or "client"; "group:LABEL" where rows have groups of several columns

NODES = (1, 15, 9, 5)  # a dimension, by the number of an effect's terms: where a rule begins
MOST_NODES = (1, 60, 30, 15)  # and where it ends
DRAWS, MOST_DRAWS = 200, 3200  # of effects that are integrated together
MOST_TERMS = 3
ORDERED = ("ordinal", "ordinal-probit")  # whose first threshold is minus an intercept
FAMILIES = (*RECORDS, *NOMINAL, *HAZARDS)


class Effect(NamedTuple):
    """Describes the effect of groups of one column, or of several together.

    Attributes
    ----------
    terms : "intercept" or the name of a coefficient
    label : of the groups, in names of results; "" where no others have effects
    shifts : None where the terms are correlated. Else they are not, where all columns are 0 in the data's unit: the factor by
        which each slope then moves the intercept of the model's columns, which stands last
    """

    terms: tuple[str, ...] = ()
    label: str = ""
    shifts: tuple[float, ...] | None = None

    @property
    def places(self) -> list[dict[tuple[int, int], float]]:
        """The entries (row, column) of T that each coordinate makes, with their factors."""
        d = len(self.terms)
        if self.shifts is None:
            return [{entry: 1.0} for entry in entries(d)]
        shifts = (*self.shifts, 0.0)[:d]
        return [{(k, k): 1.0} | ({(d - 1, k): shifts[k]} if k < d - 1 and shifts[k] else {}) for k in range(d)]


NO_EFFECT = Effect()


def title(level: Level, what: str, text: str) -> str:
    """Returns the name of a number of an effect in a result, such as group_sd[ward:intercept]."""
    kind, _, label = level.partition(":")
    return f"{kind}_{what}[{label}{':' if label else ''}{text}]"


@dataclass(frozen=True)
class Layout:
    """Says where each number of xi stands, and its name.

    Attributes
    ----------
    coefficients : names of beta, those of the encoding
    family : of the response: one of `FAMILIES`
    group : terms of a group's effect, "intercept" or the name of a coefficient; () where groups have none
    client : terms of a client's effect likewise
    own : the family's numbers where the job says which these are, as of ordered levels; None: those of `SHAPES`
    given : the last ones of `SHAPES`, as coordinates, where the job gives them: they are no unknowns
    inner : what `Effect` has of the groups' effect beside its terms
    outer : effects of other groups of the same rows
    around : the same of the client's
    within : whether `group` lies within the groups of the one in `outer`, so that rules are nested
    shared : names of the effects of groups that clients have in common, which are unknowns; the last of `own` is their log sd
    """

    coefficients: tuple[str, ...]
    family: str
    group: tuple[str, ...] = ()
    client: tuple[str, ...] = ()
    own: tuple[Shape, ...] | None = None
    given: tuple[float, ...] = ()
    inner: Effect = NO_EFFECT
    around: Effect = NO_EFFECT
    outer: tuple[Effect, ...] = ()
    within: bool = False
    shared: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ValueError(f"mixed: family must be one of {', '.join(FAMILIES)}, got {self.family!r}")
        for level, terms in ((level, self.terms(level)) for level in self.levels):
            if not self.concave and terms not in ((), (INTERCEPT,)):
                raise ValueError(f"mixed: effects of a {self.family} response are intercepts, got the {level}'s {terms}")
            if len(terms) > MOST_TERMS or len(set(terms)) < len(terms):
                raise ValueError(f"mixed: {level} needs at most {MOST_TERMS} different terms, got {terms}")
        if not self.concave and self.group and (self.client or self.outer):
            raise ValueError(f"mixed: a {self.family} response has effects of groups or of clients, not of both")
        for name in {term for level in self.levels for term in self.terms(level)} - {*self.coefficients, INTERCEPT}:
            raise ValueError(f"mixed: random term {name!r} is no coefficient; there are {', '.join(self.coefficients)}")
        for name in set(self.client) - {*self.coefficients, *([INTERCEPT] * self.ordered)}:
            raise ValueError(f"mixed: the client's effect has the term {name!r}, so it must be a coefficient too")

    @property
    def ordered(self) -> bool:
        """Whether the response has ordered levels."""
        return self.family in ORDERED

    @property
    def p(self) -> int:
        """The number of coefficients."""
        return len(self.coefficients)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The family's numbers beside the coefficients, with which xi ends."""
        if self.own is not None:
            return self.own
        of_family = SHAPES.get(self.family, ())
        return of_family[: len(of_family) - len(self.given)]

    @property
    def concave(self) -> bool:
        """Whether the log-density of each row is concave in the predictor, so that an effect has one mode."""
        return self.family not in RECORDS or RECORDS[self.family].concave

    @property
    def measured(self) -> bool:
        """Whether the response has a unit of its own, in which the model is fitted."""
        return self.family in RECORDS and RECORDS[self.family].measured

    @property
    def of_rows(self) -> Layout:
        """The layout of the numbers that a client's rows depend on: without those of a prior alone, which stand at the end.

        Effects of shared groups are coefficients of the groups' indicators there.
        """
        if not any(shape.of_prior for shape in self.shapes):
            return self
        own = tuple(shape for shape in self.shapes if not shape.of_prior)
        return replace(self, coefficients=(*self.coefficients, *self.shared), shared=(), own=own)

    @property
    def shared_at(self) -> slice:
        """The place of the effects of shared groups."""
        return slice(self.p, self.p + len(self.shared))

    @property
    def size(self) -> int:
        """P, the length of xi."""
        return int(self.client_at.stop) + len(self.shapes)

    @cached_property
    def effects(self) -> dict[Level, Effect]:
        """All effects, in the order in which T of each stands in xi; without terms where there are no such effects."""
        of_groups = self.inner._replace(terms=self.group)
        outer = {f"group:{effect.label}": effect for effect in self.outer}
        inner = f"group:{self.inner.label}" if self.outer else "group"
        return {inner: of_groups, **outer, "client": self.around._replace(terms=self.client)}

    @property
    def levels(self) -> tuple[Level, ...]:
        """The names of the effects, as results list them."""
        inner, *outer, client = self.effects
        return (*outer, inner, client)

    def effect(self, level: Level) -> Effect:
        """Returns an effect; that of "group" is the one that kernels integrate."""
        return next(iter(self.effects.values())) if level == "group" else self.effects[level]

    @property
    def group_at(self) -> slice:
        """The place of T."""
        return self.at("group")

    @property
    def client_at(self) -> slice:
        """The place of T_c."""
        return self.at("client")

    @property
    def shapes_at(self) -> slice:
        """The place of the family's numbers."""
        return slice(int(self.client_at.stop), self.size)

    @property
    def start(self) -> Vector:
        """(P,) where the way to the mode begins, but for the intercept: coefficients 0, logarithms of effects' scales 0."""
        xi = np.zeros(self.size)
        xi[self.shapes_at] = [shape.start for shape in self.shapes]
        return xi

    def terms(self, level: Level) -> tuple[str, ...]:
        """Returns the terms of an effect."""
        return self.effect(level).terms

    def at(self, level: Level) -> slice:
        """Returns the place of the coordinates of an effect."""
        start, wanted = self.shared_at.stop, self.effect(level)
        for effect in self.effects.values():
            size = len(effect.places)
            if effect is wanted:
                break
            start += size
        return slice(start, start + size)

    @property
    def client_columns(self) -> tuple[int, ...]:
        """The coordinates, of those that groups need, that the client's effect is a shift of: coefficients of its terms, or of
        ordered levels the first threshold."""
        first = self.client_at.start
        return tuple(first if self.ordered and name == INTERCEPT else self.coefficients.index(name) for name in self.client)

    @property
    def client_signs(self) -> Vector:
        """(d,) the signs of these shifts: a higher effect means lower thresholds."""
        return np.array([-1.0 if self.ordered and name == INTERCEPT else 1.0 for name in self.client])

    @property
    def kernel_at(self) -> NDArray[np.int64]:
        """The coordinates that a client's groups need: all but those of T_c."""
        return np.delete(np.arange(self.size), self.client_at)

    @property
    def fold(self) -> tuple[tuple[int, ...], ...]:
        """Sets of coordinates whose signs may be changed together without a change of likelihood and prior."""
        first = self.shapes_at.start
        return tuple((first + k,) for k, shape in enumerate(self.shapes) if shape.folded)

    @property
    def columns(self) -> tuple[tuple[int, ...], ...]:
        """The coordinates of each column of T and T_c: the logarithm of the diagonal entry, and those below it. A column and its
        mirror image are the same model."""
        columns = []
        for level, effect in self.effects.items():
            begin = self.at(level).start
            for k in range(len(effect.terms)):
                columns.append(tuple(begin + e for e, place in enumerate(effect.places) if next(iter(place))[1] == k))
        return tuple(columns)

    @property
    def loose(self) -> tuple[int, ...]:
        """Coordinates whose posterior may have heavy tails, as those of few groups or clients have: T and T_c, the
        coefficients that their effects shift, and phi."""
        terms = {term for effect in self.effects.values() for term in effect.terms}
        shifted = {self.coefficients.index(term) for term in terms if term in self.coefficients}
        shifted |= {self.shapes_at.start} if self.ordered and (self.group or self.client) else set()
        heavy = shifted | set(range(self.group_at.start, self.client_at.stop))
        heavy |= {column for together in self.fold for column in together}
        if heavy:  # else all coordinates may have them
            heavy |= {self.shapes_at.start + k for k, shape in enumerate(self.shapes) if shape.loose}
        return tuple(sorted(heavy))

    @property
    def exponents(self) -> tuple[int, ...]:
        """The coordinates in whose exponentials rows are concave: gaps between thresholds, and the shape of a Weibull hazard."""
        first = self.shapes_at.start + int(self.ordered)
        last = self.size - sum(shape.of_prior for shape in self.shapes)
        return tuple(range(first, last)) if self.ordered or self.family == "weibull" else ()

    @property
    def joint(self) -> bool:
        """Whether effects of groups are integrated together: these cross, or lie deeper in each other, or are of a Cox model."""
        return (bool(self.outer) and not self.within) or bool(self.group and self.family == "cox")

    @property
    def drawn(self) -> bool:
        """Whether their integral is by draws, which tell it up to a constant; of gaussian rows it is exact."""
        return self.joint and self.family != "gaussian"

    @property
    def nodes(self) -> int:
        """The nodes a dimension with which the rule begins: of a group's effect, or of the client's where groups have none. Of
        effects that are integrated together draws; one where these are exact."""
        if self.joint:
            return DRAWS if self.drawn else 1
        return NODES[len(self.group) or len(self.client)]

    @property
    def most_nodes(self) -> int:
        """The nodes a dimension with which the rule ends."""
        if self.joint:
            return MOST_DRAWS if self.drawn else 1
        return MOST_NODES[len(self.group) or len(self.client)]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the coordinates of xi."""
        names = [*self.coefficients, *self.shared]
        for level, effect in self.effects.items():
            for place in effect.places:
                i, k = next(iter(place))
                name = f"log {level} sd {effect.terms[i]}" if i == k else f"{level} T {effect.terms[i]}, {effect.terms[k]}"
                names.append(name)
        return (*names, *(shape.name for shape in self.shapes))

    @cached_property
    def diagonal(self) -> NDArray[np.int64]:
        """The coordinates that are logarithms of a diagonal entry of T or T_c."""
        coordinates = [place for effect in self.effects.values() for place in effect.places]
        begin = int(self.shared_at.stop)
        return np.array([begin + e for e, place in enumerate(coordinates) if len({*next(iter(place))}) == 1], dtype=np.int64)

    @cached_property
    def off_diagonal(self) -> NDArray[np.int64]:
        """The coordinates that are entries of T or T_c below the diagonal."""
        return np.setdiff1d(np.arange(self.shared_at.stop, self.client_at.stop), self.diagonal)

    def factor(self, points: Vector, level: Level) -> Vector:
        """Returns (S, d, d) T, or T_c, of each of the points (S, P)."""
        effect, begin = self.effect(level), self.at(level).start
        T = np.zeros((len(points), len(effect.terms), len(effect.terms)))
        for e, place in enumerate(effect.places, start=begin):
            (i, k), *_ = place
            number = np.exp(points[:, e]) if i == k else points[:, e]
            for (row, column), times in place.items():
                T[:, row, column] = times * number
        return T

    def derivatives(self, level: Level, T: Vector) -> Iterator[tuple[int, int, int, float]]:
        """Yields each coordinate of T (d, d), and the row, the column and the derivative of an entry that it makes."""
        for e, place in enumerate(self.effect(level).places, start=self.at(level).start):
            (i, k), *_ = place
            for row, column in place:
                yield e, row, column, float(T[row, column]) if i == k else 1.0

    def scale(self, points: Vector) -> Vector:
        """Returns (S,) the family's `scale` at the points, as its record takes it; (k, S) where the family has several numbers.

        It is r for a negative binomial, else the number that people read, and 1 where the family has none.
        """
        return self.scale_of(self.published(points), len(points))

    def scale_of(self, published: Mapping[str, Vector], n: int) -> Vector:
        """Returns `scale` of n points, from their published numbers, in the model's units."""
        numbers = [shape.scale(published[shape.label]) for shape in self.shapes]
        known = SHAPES.get(self.family, ())[len(self.shapes) :]
        numbers += [np.full(n, shape.scale(shape.published(np.array(x)))) for shape, x in zip(known, self.given)]
        if not numbers:
            return np.ones(n)
        joined = numbers[0] if len(numbers) == 1 and not self.ordered else np.stack(numbers)
        return np.asarray(joined)

    def published(self, points: Vector) -> dict[str, Vector]:
        """Returns name -> (S,) the family's numbers as they are published, in the model's units."""
        numbers_of_shapes = points[:, points.shape[1] - len(self.shapes) :].T
        return {shape.label: shape.published(x) for shape, x in zip(self.shapes, numbers_of_shapes, strict=True)}

    def folded(self, points: Vector) -> Vector:
        """Returns the points, each as that of its mirror images whose last coordinate in `fold` is positive."""
        points = points.copy()
        for together in self.fold:
            points[:, together] *= np.where(points[:, together[-1:]] < 0, -1, 1)
        return points

    @property
    def natural_names(self) -> tuple[str, ...]:
        """The names of the numbers of `natural`."""
        names = [*self.coefficients, *self.shared]
        for level in self.effects:
            terms = self.terms(level)
            names += [f"{level} sd {name}" for name in terms]
            names += [f"{level} correlation {terms[i]}, {terms[k]}" for i, k in entries(len(terms)) if i != k]
        return (*names, *(shape.read for shape in self.shapes))

    def natural(self, points: Vector) -> Vector:
        """Returns (S, P) the numbers that people read, at points (S, P).

        They are beta, standard deviations and correlations of the effects' terms, and the dispersion (|phi| = 1 / sqrt r for a
        negative binomial).
        """
        numbers = [points[:, : self.shared_at.stop]]
        for level in self.effects:
            T = self.factor(points, level)
            covariance = T @ T.swapaxes(1, 2)
            sd = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
            below = [(i, k) for i, k in entries(sd.shape[1]) if i != k]
            numbers += [sd, *(np.expand_dims(covariance[:, i, k] / (sd[:, i] * sd[:, k]), 1) for i, k in below)]
        numbers_of_shapes = points[:, self.shapes_at].T
        numbers += [shape.natural(x)[:, np.newaxis] for shape, x in zip(self.shapes, numbers_of_shapes, strict=True)]
        return np.hstack(numbers)


def entries(d: int) -> list[tuple[int, int]]:
    """Returns the entries (row, column) of a lower triangle, by rows."""
    return [(i, k) for i in range(d) for k in range(i + 1)]


def sd_of_shared(level: Level, scale: float) -> Shape:
    """Returns the standard deviation of effects of groups that clients have in common; `scale`: of its prior."""
    name, prior = title(level, "sd", INTERCEPT), Named.of("half-student", df=EFFECT_DF, scale=scale)
    return Shape(f"log {name}", name, np.exp, prior, start=START_OF_LEARNT, of_prior=True, reach=9.0)


# Computes the prior of xi, the unknowns that all parties of a mixed regression share --------------------


PRIOR_SD, INTERCEPT_SD = 2.5, 5.0  # of coefficients, of columns in their standard deviations, and of an intercept
# Times a default prior that would decide what rows decide, of a response with a unit and of others, whose curvatures vanish
# beyond what clients' digits tell; the last stands for none.
WIDER, LESS_WIDE = (1, 10, 100, 1000, 10_000, 1_000_000), (1, 10, 100, 1000, 1_000_000)


# Degrees of freedom and scale of the prior of effects' standard deviations, and the scale where the response has a unit.
EFFECT_DF, EFFECT_SCALE, EFFECT_SCALE_IN_SDS = 3.0, 2.5, 1.0
NORMAL_DF = 1e6  # at which Student's distribution is as good as normal


OfLength = Callable[[Vector], Densities]  # the density of a row of T, by the logarithm of its length


@dataclass(frozen=True)
class Prior:
    """Holds the prior of xi.

    beta_k ~ N(mean_k, sd_k^2); the rows of T and T_c, whose lengths are the standard deviations of effects, ~ a multivariate
    Student distribution, which is half-Student for a first row; the family's numbers as `shapes` say. The prior of a first
    threshold is of the mean of all: so it is the same whichever end the levels are counted from.

    Densities are of xi's coordinates, Jacobians of logarithms included once; that of phi is the half-normal one, of |phi|.

    Attributes
    ----------
    layout : of xi
    mean, sd : (p,) of the coefficients
    scale : of effects
    effects : (p, p) C, where the first prior is of effects: C (beta - mean) ~ N(0, 1)
    df : number of such an effect -> degrees of freedom, where it is Student's
    lengths : level and number of a row of T or T_c -> the prior of its length, whose direction is then uniform
    shift : (p,) of ordered levels: the mean of thresholds has its prior where these times beta are added to it
    """

    layout: Layout
    mean: Vector
    sd: Vector
    scale: float = EFFECT_SCALE
    effects: Vector | None = None
    df: Mapping[int, float] = field(default_factory=dict)
    lengths: Mapping[tuple[Level, int], Block] = field(default_factory=dict)
    shift: Vector | None = None

    @classmethod
    def usual(
        cls, layout: Layout, *, prior_sd: float = PRIOR_SD, intercept_sd: float = INTERCEPT_SD, intercept_centre: float = 0.0
    ) -> Prior:
        """Makes a prior with one standard deviation for all coefficients but the intercept."""
        is_intercept = np.array([name == INTERCEPT for name in layout.coefficients])
        sd = np.where(is_intercept, intercept_sd, prior_sd)
        scale = EFFECT_SCALE_IN_SDS if layout.measured else EFFECT_SCALE
        return cls(layout, np.where(is_intercept, intercept_centre, 0.0), sd, scale)

    def of_effects(self, K: Vector, blocks: int = 1) -> Prior:
        """Returns the prior where other effects u (q,) have it, of which the coefficients of each of some blocks are K u.

        The first effect is the intercept where the first coefficient is; all others have the standard deviation of the last.
        """
        sd = np.full(K.shape[1], self.sd[-1])
        sd[0] = self.sd[0]
        R = np.linalg.qr((K * sd).T, mode="r")  # coefficients have the covariance R'R
        effects = np.kron(np.eye(blocks), solve_triangular(R, np.eye(len(R)), trans="T"))
        return replace(self, effects=np.asarray(effects, np.float64))

    def with_named(self, numbers: Vector, own: Mapping[int, Block]) -> Prior:
        """Returns the prior where some of p numbers (p, p) @ beta have priors of their own, and the others that which they had.

        Each of these is independent of all else.
        """
        factor = np.diag(self.sd) if self.effects is None else np.linalg.inv(self.effects)
        others, centre, C, sd = np.setdiff1d(np.arange(len(numbers)), [*own]), numbers @ self.mean, numbers.copy(), self.sd.copy()
        R = np.linalg.qr((numbers[others] @ factor).T, mode="r")
        C[others] = solve_triangular(R, numbers[others], trans="T")
        for k, prior in own.items():
            centre[k], sd[k] = prior.mean, prior.scale if prior.kind == "student" else prior.sd
            C[k] /= sd[k]
        df = {k: prior.df for k, prior in own.items() if prior.kind == "student"}
        return replace(self, mean=np.asarray(np.linalg.solve(numbers, centre), np.float64), sd=sd, effects=C, df=df)

    @property
    def size(self) -> int:
        """P, the number of unknowns."""
        return self.layout.size

    @property
    def middle(self) -> Vector:
        """(P,) a place where a prior of coefficients that is not normal has its mode; 0 where all are."""
        values = np.zeros(self.size)
        if self.df:
            values[: self.layout.p] = self.mean
        return values

    @cached_property
    def _rows(self) -> list[tuple[slice, OfLength, OfLength]]:
        """Rows of T and T_c: coordinates, the last of them a logarithm, and densities by the logarithm of the length.

        The second is for the way to a mode: the same, or one like it that has no peak without a curvature at a length of 0.
        """
        rows = list[tuple[slice, OfLength, OfLength]]()
        for level, effect in self.layout.effects.items():
            start = self.layout.at(level).start
            for i in range(len(effect.terms)):
                d = i + 1 if effect.shifts is None else 1
                at, own = slice(start, start + d), self.lengths.get((level, i))
                start = at.stop
                usual = partial(_of_row, d, EFFECT_DF, self.scale)
                rows.append((at, usual, usual) if own is None else (at, partial(_of_length, d, own), smooth(d, own)))
        return rows

    @cached_property
    def _shapes(self) -> list[tuple[int, Density]]:
        """The family's numbers: coordinates and their priors."""
        return [(k, shape.prior) for k, shape in enumerate(self.layout.shapes, start=self.layout.shapes_at.start)]

    def _read(self, points: Vector) -> tuple[Vector, Vector]:
        """Returns (S, P) the numbers whose priors `_shapes` are, and (S, P) the derivatives of the first of these.

        With m gaps the mean of the thresholds is the first, and (m + 1 - j) / (m + 1) of the j-th gap.
        """
        moved = np.zeros_like(points)
        if not self.layout.ordered:
            return points, moved
        gaps, first = list(self.layout.exponents), self.layout.shapes_at.start
        moved[:, gaps] = np.exp(points[:, gaps]) * np.arange(len(gaps), 0, -1) / (len(gaps) + 1)
        read = points.copy()
        read[:, first] += moved[:, gaps].sum(axis=1)
        moved[:, first] = 1.0
        if self.shift is not None:
            read[:, first] += points[:, : self.layout.p] @ self.shift
            moved[:, : self.layout.p] = self.shift
        return read, moved

    def _of_coefficients(self, beta: Vector) -> tuple[Vector, Vector, Vector]:
        """Returns log-densities (.., p) of independent numbers that make beta (.., p), slopes, and minus second derivatives."""
        z = (beta - self.mean) / self.sd if self.effects is None else (beta - self.mean) @ self.effects.T
        value, slope, curved = -0.5 * z**2 - HALF_LOG_TAU, -z, np.ones_like(z)
        for k, df in self.df.items():
            own = block_of("student", {"df": df}).densities(z[..., k])
            value[..., k], slope[..., k], curved[..., k] = own.value, own.slope, own.curved
        return value, slope, curved

    @cached_property
    def _log_volume(self) -> float:
        """The logarithm of these numbers' volume over that of beta."""
        return float(-np.log(self.sd).sum() if self.effects is None else np.linalg.slogdet(self.effects)[1])

    def values(self, points: Vector) -> Vector:
        """Returns (S,) log-densities of the points (S, P)."""
        total = self.without_jacobian(points) + points[:, self.layout.diagonal].sum(axis=1)
        for k, prior in self._shapes:
            total = total + prior.log_jacobian(points[:, k])
        return np.asarray(total)

    def without_jacobian(self, points: Vector) -> Vector:
        """Returns (S,) log-densities of the numbers themselves, where coordinates are their logarithms.

        The sensitivity to the prior raises these to a power.
        """
        value = self._of_coefficients(points[:, : self.layout.p])[0].sum(axis=1) + self._log_volume
        with np.errstate(all="ignore"):
            for at, density, _ in self._rows:
                value += density(_log_length(points[:, at])).value
            read, _ = self._read(points)
        for k, prior in self._shapes:
            value += prior.value(read[:, k])
        return np.asarray(value)

    def curvature(self, xi: Vector) -> tuple[float, Vector, Vector]:
        """Returns the log-density at xi (P,), its gradient (P,), and minus its Hessian (P, P), of rows as `_rows` says."""
        p, value = self.layout.p, float(self.values(xi[np.newaxis])[0])
        gradient, hessian = np.zeros(self.size), np.zeros((self.size, self.size))
        _, slope, curved = self._of_coefficients(xi[:p])
        C = np.diag(1 / self.sd) if self.effects is None else self.effects
        gradient[:p], hessian[:p, :p] = C.T @ slope, (C.T * curved) @ C
        for at, density, climbed in self._rows:
            y = _log_length(xi[np.newaxis, at])
            own = climbed(y)
            value += 0.0 if climbed is density else float(own.value[0] - density(y).value[0])
            last = np.exp(2 * (xi[at][-1] - y))  # the share that the diagonal entry has of the square
            turned = np.append(xi[at][:-1] * np.exp(-2 * y), last)
            gradient[at] = own.slope * turned
            gradient[at.stop - 1] += 1.0
            bent = np.append(np.full(len(turned) - 1, np.exp(-2 * y[0])), 2 * last)
            hessian[at, at] = (own.curved + 2 * own.slope) * np.outer(turned, turned) - own.slope * np.diag(bent)
        read, moved = self._read(xi[np.newaxis])
        for k, prior in self._shapes:
            gradient[k], hessian[k, k] = prior.slope(read[0, k : k + 1])[0], prior.curve(read[0, k : k + 1])[0]
        if self.layout.ordered:
            first, gaps = self.layout.shapes_at.start, list(self.layout.exponents)
            slope_of_first, curve = gradient[first], hessian[first, first]
            gradient[first] = hessian[first, first] = 0.0
            gradient += slope_of_first * moved[0]
            hessian += curve * np.outer(moved[0], moved[0])
            hessian[gaps, gaps] -= slope_of_first * moved[0, gaps]
        return value, gradient, hessian


def _log_length(rows: Vector) -> Vector:
    """Returns (S,) the logarithms of lengths of rows (S, d) of T, whose last entries are logarithms."""
    with np.errstate(divide="ignore"):
        squares = np.column_stack([2 * np.log(np.abs(rows[:, :-1])), 2 * rows[:, -1]])
    return np.asarray(0.5 * np.logaddexp.reduce(squares, axis=1))


def _of_row(d: int, df: float, scale: float, y: Vector) -> Densities:
    """Returns the density of a row of d entries by the logarithm of its length: Student's, of both signs of the last together."""
    power = 0.5 * (df + d)
    constant = math.log(2) + math.lgamma(power) - math.lgamma(0.5 * df) - 0.5 * d * math.log(df * math.pi)
    t = 2 * (y - math.log(scale)) - math.log(df)
    value = constant - d * math.log(scale) - power * np.logaddexp(0, t)
    return Densities(value, value, -2 * power * _logistic(t), power * (1 - np.tanh(0.5 * t) ** 2))


def _of_length(d: int, prior: Block, y: Vector) -> Densities:
    """Returns the same of a row whose length has this prior, and whose direction is uniform on half of a sphere."""
    of_own = prior.densities(y)
    value = of_own.value - d * y - 0.5 * d * math.log(math.pi) + math.lgamma(0.5 * d)
    return Densities(value, value, of_own.slope - d, of_own.curved)


def smooth(d: int, prior: Block) -> OfLength:
    """Returns the density of a row whose length has about this prior, and which is smooth where the length is 0, or 0 there."""
    if prior.kind == "gamma":
        shape = max(prior.shape, d + 1.0)
        prior = replace(prior, shape=shape, rate=prior.rate * shape / prior.shape)
    elif d > 1:
        df, scale = (prior.df, prior.scale) if prior.kind == "half-student" else (NORMAL_DF, prior.sd)
        return partial(_of_row, d, df, scale)
    return partial(_of_length, d, prior)


def is_smooth(d: int, prior: Block) -> bool:
    """Tells whether that is the density itself."""
    return prior.shape >= d + 1 if prior.kind == "gamma" else d == 1
