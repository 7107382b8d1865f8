"""Holds the numbers of importance sampling that every party knows. Source: docs/spec/likelihood.md."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...arrays import Array
from ...privacy.masks import WIDE
from ..core import tells
from ..core.box import Box
from ..core.masked import Masked, Sum
from ..core.messages import Message
from ..core.nets import NETS
from .newton import Metric

# Messages --------------------


Places = Annotated[NDArray[np.float64], "c xi"]
PerPlace = Annotated[NDArray[np.float64], "c"]
Packed = Annotated[NDArray[np.float64], "c tri"]
Centre = Annotated[NDArray[np.float64], "xi"]
Steps = Annotated[bytes, "steps"]
Drops = Annotated[bytes, "drops"]
Told = Annotated[NDArray[np.float64], "t xi"]
Triangle = Annotated[NDArray[np.float64], "tri"]

LOST = -1e300  # the log-likelihood of a point where it is not finite: a message holds finite numbers alone
QUESTIONS = 2  # of a client that takes part by a summary: at a point, and over a normal
ASKED_OF_ALL = 5  # where all take part by summaries, at most: at a point, and over normals
REFUSED = 2 * LOST  # that of a point where the client tells none, for it would be that of few of its rows
OF_FEW = "where few of its rows have weight, or one has nearly all (disclosure.rows, rows_per_coefficient, leverage)"
WITHOUT_FEW = "take the logarithm of a column with a few large cells, or pool these rows with another site's"
CHECKED = 32  # draws at which the quadrature is compared with one of more nodes
SEEN = 6  # points a coordinate
FIRST = 1024  # points of the first round: fewer don't say how wrong their own error is
WIDTH = 4  # bytes of a step and of a drop: thousands of them are most of what travels
OF_WORDS = 2.0**-10  # nats: the unit of values as they travel; a client's own is a multiple
NO_VALUE = 2**32 - 1  # the drop of a point where the log-likelihood is not finite


@dataclass(frozen=True)
class AskCurvature(Message, kind=200):
    """Server to client: the points at which the log-likelihood and its derivatives are wanted, the quadrature nodes a dimension,
    and the number of the prior beside which answers are rounded and rows are counted (`widening`).
    """

    round: int
    nodes: int
    points: Places
    prior: int = 0


@dataclass(frozen=True)
class Curvature(Message, kind=201, tells=tells.WeightedSums()):
    """Client to server: L_j at each point, its gradient, minus its Hessian (lower triangle, row by row), and by how much L_j is
    another with more nodes."""

    round: int
    value: PerPlace
    gradient: Places
    hessian: Packed
    rule: PerPlace


@dataclass(frozen=True)
class AskNormal(Message, kind=271):
    """Server to a client that takes part by a summary: the normal distribution, with its packed covariance, over which the
    log-likelihood and its derivatives are averaged; the answer is a `Curvature` at its mean."""

    round: int
    nodes: int
    mean: Centre
    covariance: Triangle


@dataclass(frozen=True)
class AskValues(Message, kind=214):
    """Server to client: draws of xi at which the log-likelihood is wanted, and by how many quadrature nodes a dimension. A draw
    is the centre and a step of 32-bit numbers, so that everybody has the same draws to the last bit."""

    round: int
    nodes: int
    centre: Centre
    steps: Steps

    @classmethod
    def of(cls, round: int, nodes: int, centre: NDArray[np.float64], steps: NDArray[np.float64]) -> AskValues:
        """Returns the message of `steps` (s, P) as `shortened` makes them."""
        return cls(round, nodes, centre, steps.astype("<f4").tobytes())

    @property
    def points(self) -> NDArray[np.float64]:
        """(s, P) The draws; raises ValueError if the steps are none."""
        steps = np.frombuffer(self.steps, "<f4").reshape(-1, len(self.centre))
        return drawn(self.centre, steps.astype(np.float64))


@dataclass(frozen=True)
class Values(Message, kind=215, tells=tells.Points()):
    """Client to server: L_j at each draw, in units of `OF_WORDS` or coarser: the highest, and how far below it each is; the most
    by which it is another with more nodes, at the first draws."""

    round: int
    highest: float
    drops: Drops
    rule: float

    @classmethod
    def of(cls, round: int, values: NDArray[np.float64], rule: float) -> Values:
        """Returns the message of values (s,), rounded; `LOST` and values that are no number are left without one.

        A value more than four million nats below the highest is taken to be exactly that far below.
        """
        good = np.isfinite(values) & (values > LOST)
        units = np.rint(np.where(good, values, 0.0) / OF_WORDS)
        highest = float(units[good].max(initial=-np.inf)) if good.any() else 0.0
        drops = np.where(good, np.minimum(highest - units, NO_VALUE - 1), NO_VALUE)
        return cls(round, highest, drops.astype("<u4").tobytes(), rule)

    @property
    def values(self) -> NDArray[np.float64]:
        """(s,) The values; `LOST` for a missing one. Raises ValueError if the drops are none."""
        drops = np.frombuffer(self.drops, "<u4")
        return np.where(drops == NO_VALUE, LOST, (self.highest - drops.astype(np.float64)) * OF_WORDS)


def shortened(points: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns a centre (P,) and steps (s, P), which 32-bit numbers hold, of draws next to `points`."""
    centre = points.mean(axis=0)
    return centre, (points - centre).astype(np.float32).astype(np.float64)


def drawn(centre: NDArray[np.float64], steps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the draws (s, P)."""
    return np.asarray(centre + steps)


@dataclass(frozen=True)
class Posterior(Message, kind=204):
    """Server to client, at the end: draws of the posterior, with which the client knows its own effects, and whether the server's
    checks found nothing (1 or 0)."""

    round: int
    nodes: int
    converged: int
    draws: Told


# Where the server gets sums alone --------------------


@dataclass(frozen=True)
class SummedCurvature:
    """Holds, in the place of a `Curvature`, what the server adds, which is no message.

    Attributes
    ----------
    value, gradient, hessian, rule : as there, but that the rule has its sign
    cut : (c,) how many rows or groups are cut off at each point (`models.saturated`)
    """

    round: int
    value: PerPlace
    gradient: Places
    hessian: Packed
    rule: PerPlace
    cut: PerPlace

    @classmethod
    def count(cls, dims: Mapping[str, int]) -> int:
        """Returns how many numbers are added."""
        return dims["c"] * (3 + dims["xi"] + dims["tri"])

    def numbers(self) -> NDArray[np.float64]:
        """Returns the numbers that are added."""
        return np.concatenate([self.value, self.rule, self.cut, self.gradient.ravel(), self.hessian.ravel()])

    @classmethod
    def of_sum(cls, round: int, numbers: NDArray[np.float64], dims: Mapping[str, int]) -> Message:
        """Returns the answer of all clients together: none at a point where a row or group is cut off."""
        c, P = dims["c"], dims["xi"]
        value, rule, cut, gradient, hessian = np.split(numbers, [c, 2 * c, 3 * c, 3 * c + c * P])
        gradient, hessian = gradient.reshape(c, P), hessian.reshape(c, -1)
        return Curvature(round, np.where(cut > 0, LOST, value), gradient, hessian, np.abs(rule))


@dataclass(frozen=True)
class SummedValues:
    """Holds, in the place of `Values`, what the server adds, which is no message.

    Attributes
    ----------
    values, cut : (s,) as L_j at each draw, and how many rows or groups are cut off
    rule : (k,) with its sign, at the first draws
    """

    round: int
    values: NDArray[np.float64]
    cut: NDArray[np.float64]
    rule: NDArray[np.float64]

    @classmethod
    def count(cls, dims: Mapping[str, int]) -> int:
        """Returns how many numbers are added."""
        return 2 * (dims["drops"] // WIDTH) + CHECKED

    def numbers(self) -> NDArray[np.float64]:
        """Returns the numbers that are added."""
        return np.concatenate([self.values, self.cut, self.rule])

    @classmethod
    def of_sum(cls, round: int, numbers: NDArray[np.float64], dims: Mapping[str, int]) -> Message:
        """Returns the answer of all clients together: none at a draw where a row or group is cut off."""
        values, cut, rule = np.split(numbers, [dims["drops"] // WIDTH, 2 * (dims["drops"] // WIDTH)])
        return Values.of(round, np.where(cut > 0, LOST, values), float(np.abs(rule).max()))


@dataclass(frozen=True)
class MaskedCurvature(Masked, Message, kind=244, tells=tells.WeightedSums().masked):
    """Client to server: a `SummedCurvature`, masked."""

    words: Annotated[bytes, "masked_curvature"]


@dataclass(frozen=True)
class MaskedValues(Masked, Message, kind=245, tells=tells.Points().masked):
    """Client to server: `SummedValues`, masked."""

    words: Annotated[bytes, "masked_values"]


SUMS = (Sum(SummedCurvature, MaskedCurvature, WIDE), Sum(SummedValues, MaskedValues, WIDE))


# Units --------------------
# Says how finely a client tells log-likelihoods and their derivatives: as the answer needs them, and no finer.
#
# A unit is a power of two, so that numbers are sums of few bits and a sum over clients, masked or not, loses none of them. It
# follows from the question, from what all parties know and from the client's own likelihood, so that the same question has the
# same answer; no key sets it, and of what a server sends but the number of one of the job's priors. Source:
# docs/spec/likelihood.md, section 6.


OF_VALUES = 0.05  # nats of all clients' sum, on the way to the mode
OF_DRAWS = 2.0  # times as much at draws: of five rows that have a level an eighth is determined, and sds change by 2 % at most
OF_QUADRATICS = 4.0  # times all units of a client for which a quadratic stands, not exactly: of three rows none is determined
FAR = 5.0  # times as much for a draw far out, whose weight is small
OF_GRADIENTS = 0.005  # posterior sds by which the mode moves with a unit of all clients' gradients
OF_CURVATURES = 0.01  # of a curvature: half of it is by how much the posterior sd changes
OF_CHAINS = 0.1  # of gradients for chains, of which the acceptance rate alone depends on them
FINEST = -60  # of two: below it masked words have no digits


def power(unit: ArrayLike) -> Array:
    """Returns the least powers of two that are not below these units.

    Examples
    --------
    >>> from fedkern.algorithms.importance.settings import power
    >>> power([0.05, 0.25]).tolist()
    [0.0625, 0.25]
    """
    mantissa, exponent = np.frexp(np.asarray(unit, np.float64))
    return np.ldexp(1.0, np.maximum(np.where(mantissa == 0.5, exponent - 1, exponent), FINEST))


def told(numbers: ArrayLike, unit: Array | float) -> Array:
    """Returns the multiples of powers of two that are nearest to the numbers; none is -0.

    Examples
    --------
    >>> from fedkern.algorithms.importance.settings import told
    >>> told([0.7, -0.01], 0.25).tolist()
    [0.75, 0.0]
    """
    return np.asarray(np.rint(np.asarray(numbers, np.float64) / unit) * unit + 0.0)


def excess(unit: Array) -> Array:
    """Returns the log of the mean of e^r over rounding errors r of these units, in words: 2 sinh(u / 2) / u.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.algorithms.importance.settings import excess
    >>> excess(np.array([0.125, 1.0])).round(3).tolist()
    [0.001, 0.041]
    """
    return told(np.log(np.sinh(unit / 2) / (unit / 2)), OF_WORDS)


def of_draws(points: Array, log_density: Array) -> Array:
    """Returns (s,) how many times the unit of each draw's value is that of a typical draw, 1 to `FAR`.

    It is how many nats the draw lies below the median one, in the normal distribution that the draws follow and in the posterior
    that all clients would have if each were as this one, where it is less: a draw far out has next to no weight, and its value is
    nearly that of the few rows that lie as far out. In another mode, or in a heavy tail, it has weight.

    Parameters
    ----------
    points : (s, P) the draws
    log_density : (s,) of that posterior

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.algorithms.importance.settings import of_draws
    >>> points = np.array([[-1.0], [1.0], [0.0], [9.0], [9.0]])
    >>> of_draws(points, np.array([0.0, 0.0, 0.1, -99.0, -3.0])).tolist()
    [1.0, 1.0, 1.0, 5.0, 3.0]
    """
    away = points - np.median(points, axis=0)
    square = ((away @ Metric.of(away.T @ away).factor) ** 2).sum(axis=1)
    typical = max(float(np.median(square)), np.finfo(np.float64).tiny)
    far = points.shape[1] / 2 * (square / typical - 1)
    return np.asarray(np.clip(np.minimum(far, np.median(log_density) - log_density), 1.0, FAR))


def of_derivatives(curvature: Array, prior: Array, clients: int) -> tuple[Array, Array]:
    """Returns the units of a gradient (P,) and of minus a Hessian (P, P), each a power of two.

    They are those of the posterior that all clients would have if each had this one's curvature: added up over clients, squares
    of the gradients' units are those of the posterior's own curvature, whichever client tells most of it.

    Parameters
    ----------
    curvature, prior : (P, P) minus the Hessian of the client's log-likelihood, and of the log prior
    clients : their number

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.algorithms.importance.settings import of_derivatives
    >>> gradient, hessian = of_derivatives(np.diag([100.0, 0.0]), np.eye(2), 4)
    >>> gradient.tolist(), hessian.tolist()
    ([0.0625, 0.00390625], [[4.0, 0.125], [0.125, 0.0078125]])
    """
    B = Metric.of(prior + clients * curvature).factor
    sd = np.sqrt((B**2).sum(axis=1))
    # Errors of numbers that go together add up in a coordinate's way to the mode: in so many of them, in the one with most.
    together = float((((B @ B.T) / np.outer(sd, sd)) ** 2).sum(axis=1).max())
    each = np.sqrt(clients) * sd
    return power(OF_GRADIENTS / (each * np.sqrt(together))), power(OF_CURVATURES / (np.outer(each, sd) * together))


# Settings --------------------


# Up to so many values of a job, or gradients of chains, have the same unit. Of N times as many it is larger by sqrt N: what all
# say of rows together goes by their number over its square. All that the job may ask for counts, for the first has its unit too.
FINE, FINE_OF_CHAINS = 4096, 8000
AT_MODE, AT_DRAWS = 0.01, 0.05  # nats, of all clients together, by which it may differ there
ERROR, DRAWS = 0.03, 2000.0  # posterior sds by which a mean or an sd may be off, where draws are to be worth so many
COUNTED = 1200.0  # of them: draws of equal weight that prior sensitivity needs
NOT_FINITE = 0.01  # the part of the draws of a round at which a client's value may be no number


class Advice(NamedTuple):
    """Gives remedies in words of the model, for values that are no numbers, for a flat posterior, and for a missing mode."""

    lost: str
    flat: str
    moving: str


CENTRED = "take powers and products of numbers far from 0 about their mean, as I(year - 2008)"
OF_REGRESSIONS = Advice(
    "its rows don't fit the family of model, or a covariate is very large",
    f"give it a proper prior (model.prior_sd), leave a column out, or {CENTRED}",
    "Where a level or a covariate separates the responses its coefficient has no end: give it a narrower prior (model.prior_sd). "
    f"Else {CENTRED}",
)

OF_SUMMARIES = OF_REGRESSIONS._replace(  # where every client takes part by one
    moving="Every client has too few rows for values at draws, and their summaries alone lead to no mode of this family: pool "
    "rows with another site's, or, where all holders agree, lower disclosure.rows_per_coefficient until none takes part by a "
    "summary (`fedkern check` names those that do)",
)

OF_SUMS = OF_REGRESSIONS._replace(
    lost=f"{OF_REGRESSIONS.lost}; with secure sums no row may have a log-likelihood below -1e9, as counts of 1e9 and more have",
    moving=f"{OF_REGRESSIONS.moving}. With secure sums coefficients of standardised columns are looked for within 50 of 0, and a "
    "residual scale within a factor of 8,000 of the response's: where they are beyond that run the job without job.sums",
)


def net_of(size: int) -> int:
    """Returns the points of the first question about draws of P unknowns: one net of the first round, where that is so many that
    a client sees which of them are far."""
    net = FIRST // NETS
    return net if net >= SEEN * size else FIRST


@dataclass(frozen=True)
class Settings:
    """Holds settings that every party of a job knows.

    Attributes
    ----------
    points, rounds : whose product is the number of draws, at most; no rounds: only the mode is wanted, for another sampler
        begins there
    effective : draws of equal weights as which the weighted ones, which fill the space, must be as good
    newton : rounds of steps to the mode, at most
    starts : points from which the mode is looked for
    nodes, most_nodes : quadrature nodes a dimension, at first and at most
    told : draws of the posterior that clients are told at the end; 0: none
    seed : of the points
    advice : the remedies in errors
    singly : whether clients keep the values that they have told at draws, to tell them once more without masks
    box : where clients answer, if the server gets sums alone; None: it gets each client's answers
    summaries : the clients that take part by a summary
    questions : that are asked of each of them
    clients : their number
    net : points of the first question about draws, after which a job may end whose log-likelihood is nearly quadratic
    without : whether the result is also wanted without each client, by other weights
    rounds_messages : whether clients round what they tell to what the answer needs
    extendable : whether the draws are kept for clients that come later, or for the result without one of these
    """

    points: int
    effective: float
    rounds: int
    starts: int
    nodes: int
    most_nodes: int
    told: int
    seed: int
    newton: int = 40
    advice: Advice = OF_REGRESSIONS
    singly: bool = False
    box: Box | None = None
    summaries: tuple[int, ...] = ()
    questions: int = QUESTIONS
    clients: int = 1
    net: int = FIRST
    without: bool = False
    rounds_messages: bool = True
    extendable: bool = False

    def __post_init__(self) -> None:
        def refuse(what: str, wanted: str) -> None:
            raise ValueError(f"importance: {what} must be {wanted}, got {getattr(self, what)!r}")

        least = (("points", CHECKED), ("rounds", 0), ("newton", 1), ("starts", 1), ("nodes", 1), ("told", 0), ("clients", 1))
        for name, fewest in least:
            if getattr(self, name) < fewest:
                refuse(name, f"at least {fewest}")
        if not self.effective > 0:
            refuse("effective", "positive")
        if self.summaries and not (self.starts == 1 and self.rounds):
            raise ValueError("importance: summaries need one start, and rounds of draws")
        if self.most_nodes < self.nodes:
            refuse("most_nodes", f"at least nodes, {self.nodes}")

    @property
    def error(self) -> float:
        """The number of posterior standard deviations by which a mean or a standard deviation may be off."""
        return float(ERROR * (DRAWS / self.effective) ** 0.5)

    @property
    def counted(self) -> float:
        """How many draws of equal weight the weighted ones must be worth: more where a client goes or comes, which costs some."""
        return self.effective if self.without or self.extendable else COUNTED / DRAWS * self.effective

    @property
    def of_values(self) -> bool:
        """Whether what is wanted at the end needs the clients' own values at all draws, and no quadratics in their place."""
        return self.singly or self.extendable

    @property
    def per_question(self) -> int:
        """The points of a question about draws: a round has as many questions as it has points for."""
        return min(self.points, self.net)

    @property
    def most_questions(self) -> int:
        """How many questions about draws there are, at most."""
        return self.rounds * (self.points // self.per_question)

    @property
    def first(self) -> int:
        """The points of the first round."""
        return self.per_question * max(1, min(FIRST // self.per_question, self.most_questions))

    @property
    def ahead(self) -> int:
        """How many questions about draws are asked with the step that is expected to end at the mode."""
        return 1 if self.net < FIRST else self.first // self.per_question

    def sizes(self, n_global: int) -> dict[str, int]:
        """Returns the lengths of the messages' arrays."""
        triangle = n_global * (n_global + 1) // 2
        values = {"steps": WIDTH * self.per_question * n_global, "drops": WIDTH * self.per_question}
        return {"c": self.starts, "t": self.told, "xi": n_global, "tri": triangle, **values}

    @property
    def rounded(self) -> bool:
        """Whether a client rounds; of masked sums in units of the question alone, for its own would tell how rows are dealt."""
        return self.rounds_messages and (self.box is None or bool(self.summaries))

    def has_summary(self, client: int) -> bool:
        """Tells whether a client takes part by a summary; where sums are masked all do, or none."""
        return client in self.summaries if self.box is None else bool(self.summaries)

    def needed(self, coarser: float = 1.0) -> float:
        """Returns to how many nats a client's values are needed; `coarser`: by how many times fewer digits, for many of them."""
        return max(OF_WORDS, OF_VALUES / math.sqrt(self.clients) * coarser) if self.rounded else OF_WORDS

    def needed_at_draws(self, before: int = 1) -> float:
        """The same at draws of a question; `before`: how many about draws the client has answered.

        A first net that is asked alone tells half of what all draws may.
        """
        draws = self.most_questions * self.per_question
        if self.net < FIRST:
            draws = 2 * (draws if before else self.per_question)
            return self.needed(OF_DRAWS * math.sqrt(draws / FINE))
        return self.needed(OF_DRAWS * math.sqrt(max(1.0, draws / FINE)))

    def units_of_chains(self, gradients: int) -> tuple[float, float] | None:
        """Returns the units of values and of gradients of chains that ask for so many gradients; None: they are not rounded."""
        if not self.rounded:
            return None
        coarser = math.sqrt(max(1.0, gradients / FINE_OF_CHAINS))
        return float(power(self.needed(coarser))), float(power(OF_CHAINS * coarser))

    def doubled(self, nodes: int) -> int:
        """Returns the next number of nodes, or the same if it is the largest."""
        return min(2 * nodes, self.most_nodes)
