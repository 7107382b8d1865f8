"""Declares what clients tell once of their rows, areas or events: sums over them, or with secure sums over all clients' alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Self, TypeVar

import numpy as np

from ...arrays import Array
from ...models import glm
from ...privacy.masks import ROUND
from ..core import tells
from ..core.exchange import DIGITS, LARGEST, LEAST, MOST_ROWS, Added, Ask, Conditions, digits, enough, small, thousandths

BINS = 4  # of k-hat
TENTHS, SCORES = 10, 5
DIGITS_OF_EFFECTS = 4  # with six they determined rows that the values do not
DIGITS_OF_LEVELS = 3  # of effects on each level's probability, which are as many times more
MOST_OF_A_ROW = 1e15  # masked sums have room for more rows than there are


# Rows that lack a cell: before the rounds, which will say what becomes of who is lost ----------


@dataclass(frozen=True)
class Incomplete(
    Added,
    kind=168,
    tells=tells.Fact("counts of its rows"),
    name="incomplete",
    ask=("AskIncomplete", 167),
    masked=("masked_incomplete", 270),
    least=0,
):
    """Client to server: how many rows its file has, and how many of them lack a cell that the job uses."""

    rows: int
    lacking: int

    def honest(self) -> Conditions:
        yield 0 <= self.lacking <= self.rows <= MOST_ROWS, "has counts that cannot be"


# How well rows, or areas, are foreseen without themselves ----------


@dataclass(frozen=True)
class LooSums(
    Added,
    kind=148,
    tells=tells.Sums(),
    name="loo-sums",
    ask=("AskLoo", 147),
    masked=("masked_loo", 264),
    dims={"bins": BINS},
    rounding={
        "density": thousandths,
        "effective": thousandths,
        "squares": lambda value: float(np.round(min(value, LARGEST**2), DIGITS)),
    },
    drops=True,
):
    """Client to server: number of rows; sums of their leave-one-out log predictive densities, of the squares of those, and of
    their effective numbers of parameters; how many rows have a k-hat of at most 0.5, 0.7, 1, and more."""

    rows: int
    density: float
    squares: float
    effective: float
    bins: Annotated[Array, "bins"]

    def honest(self) -> Conditions:
        yield enough(self.rows), f"are of {self.rows} rows"
        counted = ((self.bins >= 0) & (self.bins <= self.rows)).all() and (self.bins % 1 == 0).all()
        yield counted and self.bins.sum() == self.rows, "count rows that are not there"
        yield _are_moments(self), "are too large to be any"
        # Cauchy-Schwarz, with what rounding has taken
        most = (1 + 1e-9) * math.sqrt(self.rows * (self.squares + 10**-DIGITS)) + 10**-DIGITS
        yield abs(self.density) <= most, "have squares that are too small for their sum"


NO_ROWS = LooSums(0, 0, 0.0, 0.0, 0.0, np.zeros(BINS))


@dataclass(frozen=True)
class FitSums(
    Added,
    kind=146,
    tells=tells.Sums("sums over this client's areas"),
    name="fit-sums",
    ask=("AskFitSums", 145),
    masked=("masked_fit", 265),
    number="areas",
    drops=True,
    needs="its part of the fit's sums had not come; --resume goes on from the last checkpoint",
):
    """Client to server: number of areas; sums of their log predictive densities, of the squares of those, and of their effective
    numbers of parameters; the densities and these numbers by WAIC; how many of the densities are not reliable."""

    areas: int
    density: float
    squares: float
    effective: float
    waic: float
    waic_effective: float
    unreliable: int

    def honest(self) -> Conditions:
        possible = enough(self.areas) and 0 <= self.unreliable <= self.areas
        yield possible, f"are of {self.areas} areas, {self.unreliable} of them unreliable"
        yield _are_moments(self) and small(self.waic, self.waic_effective), "are too large to be any"
        most = (1 + 1e-9) * math.sqrt(self.areas * self.squares)
        yield abs(self.density) <= most, "have squares that are too small for their sum"


def _are_moments(sums: LooSums | FitSums) -> bool:
    return small(sums.density, sums.effective) and 0 <= sums.squares and small(sums.squares, largest=LARGEST**2)


# Whether responses are as the model says ----------


@dataclass(frozen=True)
class AskPearson(Ask, kind=194):
    """Server to client: at these coefficients."""

    mean: Annotated[Array, "d"]


@dataclass(frozen=True)
class PearsonSums(
    Added,
    kind=195,
    tells=tells.Sums(),
    name="pearson-sums",
    ask=AskPearson,
    masked=("masked_pearson", 290),
    means={"weight": 0.0},
    rounding={
        "weight": lambda value: digits(6)(min(value, LARGEST)),
        **dict.fromkeys(("events", "misfit", "noise", "slope"), lambda value: digits(6)(thousandths(value))),
    },
    drops=True,
    judges=True,
):
    """Client to server: number of rows, their mean weight (of six digits), and sums over them: of y where it is a count; with
    weights of mean 1 of (y - mu)^2 / V, of the variance that this has where the model is right, with squared weights, and of
    mu^2 / V where y is a count. Where rows are successes of trials, the first counts the rarer kind, and the last is 0. Source:
    docs/concepts/convergence.md, "Counts that vary more"."""

    rows: int
    weight: float
    events: float
    misfit: float
    noise: float
    slope: float

    @classmethod
    def at(cls, mean: Array, rows: glm.Rows, family: str, scale: float = 1.0, *, masked: bool) -> Self:
        """Returns the answer of a client with these rows at coefficients; of masked sums a row adds at most `MOST_OF_A_ROW`."""
        most = MOST_OF_A_ROW if masked else np.inf
        return cls(0, *glm.pearson_sums(rows, mean, family, scale, most)).leaving()

    def honest(self) -> Conditions:
        numbers = [self.weight, self.events, self.misfit, self.noise, self.slope]
        yield enough(self.rows), f"are of {self.rows} rows"
        yield small(numbers), "are too large to be any"
        yield min(numbers) >= 0, "are of squares, and one is below 0"


@dataclass(frozen=True)
class Replicated(
    Added,
    kind=207,
    tells=tells.ResponseSums(),
    name="replicated",
    ask=("AskReplicated", 206),
    masked=("masked_replicated", 285),
    dims={"four": 4, "three": 3, "ten": TENTHS, "fits": 50, "two": 2},
    rounding={**dict.fromkeys(("observed", "replicated", "tenths"), digits(9)), "misfits": digits(3)},
    drops=True,
    judges=True,
):
    """Client to server: number of rows, sums of the response and its square, zeros; of each draw the same three of responses that
    were drawn anew; of each tenth of the predictions rows, predictions and responses; of some draws Pearson's chi-square of the
    responses, and of those drawn anew about the same means. They are drawn by the client's own random numbers: whoever knew these
    could compute its rows. Source: docs/spec/likelihood.md, section 5."""

    observed: Annotated[Array, "four"]
    replicated: Annotated[Array, "draws three"]
    tenths: Annotated[Array, "ten three"]
    misfits: Annotated[Array, "fits two"]

    @property
    def rows(self) -> float:
        """The number of rows."""
        return float(self.observed[0])

    @classmethod
    def made(cls, observed: Array, replicated: Array, tenths: Array, misfits: Array, *, of_rows: bool) -> Self:
        """Returns a client's answer.

        Parameters
        ----------
        of_rows : whether a tenth is of predicted probabilities, and has enough rows; their mean has three places, as nine would
            tell how often each occurs. Else a tenth counts where responses stand, in multiples of five
        """
        if of_rows:
            number, probabilities, responses = tenths.T
            tenths = np.stack([number, np.round(probabilities / np.maximum(number, 1.0), 3) * number, responses], axis=1)
        else:
            tenths = LEAST * np.round(tenths / LEAST)
        return cls(0, observed, replicated, tenths, misfits)

    def honest(self) -> Conditions:
        each = self.observed, self.replicated, self.tenths, self.misfits
        yield all(np.isfinite(values).all() for values in each), "are no numbers"
        yield small(*each), "are too large to be any"
        yield self.rows >= 0 and self.rows % 1 == 0 and 0 <= self.observed[3] <= self.rows, "count rows that are not there"


# Marginal effects ----------


@dataclass(frozen=True)
class MarginalSums(
    Added,
    kind=209,
    tells=tells.WeightedSums(
        "sums over this client's rows, and which of its columns are 0 or 1",
        "its covariates",
        together="its covariates, not whose they are",
    ),
    name="marginal-sums",
    ask=("AskMarginal", 208),
    masked=("masked_marginal", 286),
    every=("binary",),
    rounding={"sums": digits(DIGITS_OF_EFFECTS)},
    drops=True,
):
    """Client to server: number of rows; of each numeric column whether all its values are 0 or 1; of each draw and each effect
    the sum over the rows. Source: docs/spec/likelihood.md, section 5."""

    rows: int
    binary: Annotated[Array, "numeric"]
    sums: Annotated[Array, "draws effects"]

    def honest(self) -> Conditions:
        yield enough(self.rows), f"are of {self.rows} rows"
        yield np.isin(self.binary, (0.0, 1.0)).all(), "do not say which columns are 0 or 1"
        yield small(self.sums), "are too large to be any"


# Survival: docs/spec/likelihood.md, section 9 ----------


PairSums = TypeVar("PairSums", bound="SurvivalSums | LifetimeSums")


def _shorten_pairs(sums: PairSums) -> PairSums:
    """Returns sums with the number of pairs, and the share of the right ones among them, to three digits."""
    pairs = digits(3)(sums.pairs)
    share = round(sums.right / sums.pairs, 3) if sums.pairs else 0.0
    return replace(sums, pairs=pairs, right=share * pairs)


@dataclass(frozen=True)
class SurvivalSums(
    Added,
    kind=231,
    tells=tells.Sums(),
    name="survival-sums",
    ask=("AskSurvival", 230),
    masked=("masked_survival", 287),
    number="events",
    rounding=dict.fromkeys(("score", "information"), digits(3)),
    drops=True,
    judges=True,
):
    """Client to server: number of events; pairs of a row that has its event and one that is at risk after it, and in how many of
    them the first has the higher risk; of each coefficient the score of a slope in time, and its information."""

    events: int
    pairs: float
    right: float
    score: Annotated[Array, "d"]
    information: Annotated[Array, "d"]

    def leaving(self) -> Self:
        """Returns it as it leaves."""
        return _shorten_pairs(super().leaving())

    def honest(self) -> Conditions:
        yield enough(self.events), f"are of {self.events} events"
        yield 0 <= self.right <= self.pairs <= MOST_ROWS**2, "count pairs that are not there"
        possible = small(self.score, self.information) and (self.information >= 0).all()
        yield possible, "are too large to be any, or an information is below 0"


@dataclass(frozen=True)
class LifetimeSums(
    Added,
    kind=233,
    tells=tells.Sums(),
    name="lifetime-sums",
    ask=SurvivalSums.ask,
    masked=("masked_lifetimes", 288),
    dims={"tenths": TENTHS, "scores": SCORES},
    rounding=dict.fromkeys(("tenths", "scores"), digits(3)),
    drops=True,
    judges=True,
):
    """Client to server: number of rows, of events, and of events whose time is known exactly; pairs of a row that has its event
    and one that is at risk after it, and in how many of them the first has the higher risk; in which tenth of their predictive
    distributions times are; score and information of a level and of a shape in which the hazard is wrong; events in each piece of
    the hazard."""

    rows: int
    events: int
    exact: int
    pairs: float
    right: float
    tenths: Annotated[Array, "tenths"]
    scores: Annotated[Array, "scores"]
    pieces: Annotated[Array, "pieces"]

    def leaving(self) -> Self:
        """Returns it as it leaves."""
        return _shorten_pairs(super().leaving())

    def honest(self) -> Conditions:
        counted = enough(self.rows) and 0 <= self.events <= self.rows
        yield counted, f"are of {self.rows} rows and {self.events} events"
        yield 0 <= self.exact <= self.events, f"have {self.exact} exact times of {self.events} events"
        yield 0 <= self.right <= self.pairs <= MOST_ROWS**2, "count pairs that are not there"
        possible = small(self.scores, self.tenths) and (self.tenths >= 0).all()
        parts = possible and abs(self.tenths.sum() - self.rows) <= 0.1 * self.rows
        yield parts, "are too large to be any, or their tenths are no parts of its rows"
        yield (
            small(self.pieces) and (self.pieces >= 0).all() and self.pieces.sum() == self.events,
            "count other events in pieces than in all",
        )


# Steps of a Gibbs sampler --------------------
# Collects, after the last round of a Gibbs sampler, the counts of every client's sweeps. Source: sparse.md, section 5.


@dataclass(frozen=True)
class Counts(
    Added, kind=48, tells=tells.Fact("counts of its sampler's steps"), name="gibbs-counts", ask=("AskCounts", 47), least=0
):
    """Client to server: over the whole run, scales clipped, Cholesky factors that failed, and draws in data space. The draws are
    made: who is lost lacks in the counts alone."""

    clipped: int
    fallbacks: int
    data_space: int

    @property
    def each(self) -> tuple[int, int, int]:
        """The three counts, in the order of the fields."""
        return self.clipped, self.fallbacks, self.data_space

    def honest(self) -> Conditions:
        yield min(self.each) >= 0, "have one below 0"
        yield max(self.each) <= MOST_ROWS, "are too large to be any"


# Error shape --------------------
# Checks, after the last round of structural equations, whether the errors are Laplace, as the model says.
#
# The law of the errors alone tells which way an effect goes, so a client sends, of each equation, the mean size of its residuals
# over their root mean square: 1/sqrt(2) for Laplace errors, sqrt(2/pi) for normal ones, sqrt(3)/2 for uniform ones. Source:
# sparse.md, section 9.


LAPLACE = float(np.sqrt(0.5))
SPREAD = float(np.sqrt(0.125))  # of the ratio of n Laplace errors, times sqrt(n), by the delta method
SURELY, FROM_LAPLACE = 4.0, 0.03  # standard errors, and the least difference, from which errors are said to have another law


@dataclass(frozen=True)
class ErrorShape(
    Added,
    kind=134,
    tells=tells.Sums("of each equation a ratio of moments of its residuals, and its number of rows"),
    name="error-shape",  # the draws are made: the note lacks who is lost
    ask=("AskShape", 133),
    masked=("masked_error_shape", 269),
    least=0,
    means={"ratio": LAPLACE},
):
    """Client to server: mean size over root mean square of each equation's residuals, at its posterior means."""

    rows: int
    ratio: Annotated[Array, "w"]

    def honest(self) -> Conditions:
        yield self.rows >= 0, "has a number of rows below 0"
        yield self.rows <= MOST_ROWS, f"is of {self.rows} rows"
        possible = ((self.ratio >= 0) & (self.ratio <= 1 + 1e-12)).all()
        yield possible, "has a ratio that is not from 0 to 1, as a mean size over a root mean square is"


def laplace_ratio(residuals: Array) -> Array:
    """Returns the ratio (...) of residuals (..., n); that of Laplace errors where all residuals are zero."""
    square = np.mean(residuals**2, axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(square > 0, np.mean(np.abs(residuals), axis=-1) / np.sqrt(square), LAPLACE)


def departures(replies: Sequence[ErrorShape]) -> list[tuple[int, float]]:
    """Returns the equations whose errors, over all clients, are surely not Laplace, each with its ratio."""
    rows = np.array([reply.rows for reply in replies], float)
    if not rows.sum() > 0:
        return []
    mean = np.average([reply.ratio for reply in replies], axis=0, weights=rows)
    away = np.abs(mean - LAPLACE)
    which = np.flatnonzero((away > FROM_LAPLACE) & (away * np.sqrt(rows.sum()) > SURELY * SPREAD))
    return [(int(j), float(mean[j])) for j in which]


# The end of sums --------------------
# Ends the sums of a job: each client adds a zero, or words by chance if one of its numbers was none.
#
# What a client's rows bring about must not end an exchange: which question did it would tell of the rows, and who has ended it,
# whose they are. So a client that has no number to give gives another, and shows at the next barrier, the beginning of an
# exchange, that the job must end: from there on all its words are random, masks do not cancel, and one sentence says so for all
# clients. Here is the last barrier, before anything is published.


@dataclass(frozen=True)
class SumEnd(
    Added,
    kind=292,
    tells=tells.Bit(),
    name="sum-end",
    ask=("AskSumEnd", 291),
    masked=("masked_sum_end", 293),
    form=ROUND,
    least=0,
):
    """Client to server: nothing but a zero, which is masked."""

    zero: float
