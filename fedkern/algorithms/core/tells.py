"""Says what a message tells of its sender's rows: a class of messages each, whose words `fedkern check` and the pages print.

A client's message names its class, and only where it differs other words. What a sum of all clients' messages tells is `masked`.
"""

from __future__ import annotations

from dataclasses import dataclass

# What more than one message is.
LIKELIHOOD = "a function of its likelihood"
DRAW = "a draw"
PREDICTED = "a number for every row that is predicted"
NOTHING = "nothing of its rows"
NOISED = "noised sums, charged to its budget"
HIDES = "it hides whose number it was, not what the sum says"
# What can be computed from more than one, and of which clients.
LABELLED = "its rows and labels"
PART = "its part of every row's predictor"
SPAN = "its columns up to a linear map"
COLUMNS = "what its columns say of the others' parts"
AREAS = "the response of every area, and all of an area, or row, that a column singles out"
ONE_OR_TWO = "with one or two rows"
TWO = "with two rows"
FEW = "with few rows, or few a coefficient"
FEW_OR_FULL = "with few rows, or few a coefficient; of a full covariance with no more rows than coefficients"
FEW_AREAS = "with one or two areas or rows"
FEW_OR_SUMS = "with few rows, or few a coefficient; with no more rows than coefficients"
FEWER = "with no more rows than coefficients + 1"


@dataclass(frozen=True)
class Tells:
    """Is the base of the classes of messages."""

    what: str = ""  # the content in an open job; empty if no open job sends it
    computed: str = ""  # what can be computed from it and from public knowledge; empty if nothing is known to be
    where: str = ""  # the clients for which that is true, "with few rows"; empty if for all
    private: str = ""  # the content in a job that protects rows; empty if no such job sends it
    together: str = ""  # what can be computed of the sum of all clients' messages, where it is not in the words of `computed`

    @property
    def masked(self) -> Tells:
        """What masked messages tell, of which the server gets the sum."""
        return Tells(f"{self.what}, masked: {HIDES}", self.together or self.computed, self.where)


@dataclass(frozen=True)
class Nothing(Tells):
    """Is of messages that are made of no row."""

    what: str = NOTHING


@dataclass(frozen=True)
class Public(Tells):
    """Is of messages of private jobs alone, made of numbers that are public, or were charged before."""


@dataclass(frozen=True)
class Fact(Tells):
    """Is of facts, in words of their own."""


@dataclass(frozen=True)
class Bit(Tells):
    """Is of one bit."""

    what: str = "a bit of its fit"


@dataclass(frozen=True)
class Figure(Tells):
    """Is of a few figures of a fit."""

    what: str = LIKELIHOOD


@dataclass(frozen=True)
class Sums(Tells):
    """Is of sums over rows of which nothing more is known to be computed."""

    what: str = "a sum over this client's rows"


@dataclass(frozen=True)
class Products(Sums):
    """Is of sums of squares and products of columns."""

    computed: str = "its rows up to a rotation (of two rows their difference)"
    where: str = FEWER
    together: str = "rows up to a rotation, not whose they are"


@dataclass(frozen=True)
class ClusterProducts(Sums):
    """Is of sums over a survey's clusters of products of their scores, each a sum of weighted slopes over its rows."""

    what: str = "sums over its clusters of squares and products of their scores"
    computed: str = "its clusters' scores up to a rotation, which are its rows' where a cluster is one"
    where: str = "with no more clusters than twice the unknowns and two"


@dataclass(frozen=True)
class ResponseSums(Sums):
    """Is of sums of functions of the response."""

    computed: str = "its response"
    where: str = FEW_AREAS
    together: str = "its response, not whose it is"


@dataclass(frozen=True)
class WeightedSums(Sums):
    """Is of sums over rows with weights that move with the parameters: gradients, curvatures."""

    what: str = LIKELIHOOD
    computed: str = LABELLED
    where: str = FEW
    together: str = "rows and labels, not whose they are"


@dataclass(frozen=True)
class Sites(WeightedSums):
    """Is of Gaussian sites, which tell weighted sums of many rounds."""

    where: str = FEW_OR_FULL


@dataclass(frozen=True)
class Points(WeightedSums):
    """Is of log-likelihoods at points."""


@dataclass(frozen=True)
class AreaSums(WeightedSums):
    """Is of functions of the likelihood of areas on a map that is known."""

    computed: str = AREAS
    where: str = 'whose map and offsets are known (kind = "within")'
    together: str = AREAS


@dataclass(frozen=True)
class PerRow(Tells):
    """Is of a number for every row."""

    what: str = "a number for every row"
    computed: str = PART


@dataclass(frozen=True)
class Draw(Tells):
    """Is of a draw from a conditional distribution, given sums over rows."""

    what: str = DRAW
    computed: str = "second moments of its rows (these up to a rotation where they are no more than coefficients + 1)"
    together: str = "second moments of all clients' rows together, not whose they are"
