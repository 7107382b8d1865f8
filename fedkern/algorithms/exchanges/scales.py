"""Agrees on one scale for all clients, from their variances, and on the second moments for imputation and splines.

| leg | a client sends | all get |
|---|---|---|
| moments, if the job file has no scales | degrees of freedom and centred sum of squares of each column; no means | scales |
| second moments, for splines | centred cross-products, and their rows | their pooled ratio, Psi |
| completed moments, where values may be missing | covariance of its columns by EM (`models.incomplete`), rows | Psi |

Answers are used in client order. A model without some clients has the scales, and the Psi, of the others. Source: sparse.md,
sections 5, 7, 11.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import Array
from ...errors import JobError
from ...models.incomplete import Completed, NeverTogether, pooled
from ..core import legs, once, tells
from ..core.exchange import Answer, Ask, Conditions, small
from ..core.kept import GIVEN
from ..core.legs import Leg, not_agreed
from ..core.messages import ClientEffects, Event, Message, Protocol, RemoteFault, ServerEffects
from .apart import APART, LEAST, compare_spreads

Columns = Annotated[NDArray[np.float64], "w"]
Square = Annotated[NDArray[np.float64], "w w"]

SMALLEST_EIGENVALUE = 1e-6  # of the correlations of Psi
FARTHEST = 1e10  # of a client's standard deviation over the scale: beyond, its chains lose their digits
NEEDS = not_agreed("the columns' scales are")


@dataclass(frozen=True)
class AskMoments(Message, kind=40):
    """Server to client: which are your columns' moments?"""

    round: int


@dataclass(frozen=True)
class ColumnMoments(Message, kind=41, tells=tells.Sums(computed="by how much rows differ in each column", where=tells.TWO)):
    """Client to server: values less one, and the sum of squares about the client's own mean, of each column."""

    round: int
    degrees: Columns
    squares: Columns


@dataclass(frozen=True)
class Scaling(Message, kind=42):
    """Server to client: the divisor of each column. `more`: whether second moments are wanted too."""

    round: int
    more: int
    scales: Columns


@dataclass(frozen=True)
class SecondMoments(Message, kind=43, tells=tells.Products()):
    """Client to server: cross-products of its centred and scaled columns, and the rows less one that have both."""

    round: int
    products: Square
    degrees: Square


@dataclass(frozen=True)
class Psi(Message, kind=44):
    """Server to client: pooled second moments within sites."""

    round: int
    psi: Square


@dataclass(frozen=True)
class CompletedMoments(Message, kind=49, tells=tells.Products()):
    """Client to server: the covariance of its scaled columns as EM completes it, no means; its rows, how many of them lack a
    value, and how many have both of two columns."""

    round: int
    rows: int
    incomplete: int
    covariance: Square
    together: Square


@dataclass(frozen=True)
class Client:
    """Is a client's state: its columns, and the numbers that it tells of them."""

    values: Array = field(repr=False, metadata=GIVEN)  # (n, w), NaN where a value is missing
    second: bool = field(default=False, metadata=GIVEN)  # whether its job file wants the second leg
    # scales, psi: after the last leg
    scales: Array | None = None
    psi: Array | None = None
    # the columns' moments by EM, which are told if values may be missing
    completed: Completed | None = field(default=None, repr=False, metadata=GIVEN)
    known: Array | None = field(default=None, metadata=GIVEN)  # (w,) scales of its job file; the first leg is left out
    # degrees of freedom of Student's t, whose squared scale is told in the place of the last column's variance
    tails: float | None = field(default=None, metadata=GIVEN)


@dataclass(frozen=True)
class Server(Leg[ColumnMoments | SecondMoments | CompletedMoments], answers=(ColumnMoments,), needs=NEEDS):
    """Is the server's state.

    `names` of the columns, as all parties may read them; `second`: whether a second leg follows; `imputes`: whether it is that of
    completed moments. `rows` of each client, known after the first leg: some column has a value in each of them. `sites` are
    these moments, at the end, and `moments` the first ones. `without`: clients that scales and Psi do not count; numbers that
    cannot be known without them (`kept`: columns' names, and "Psi") are those of all.
    """

    names: tuple[str, ...] = field(metadata=GIVEN)
    second: bool = field(metadata=GIVEN)
    scales: Array | None = None
    psi: Array | None = None
    rows: tuple[int, ...] = field(default=(), metadata=GIVEN)
    imputes: bool = field(default=False, metadata=GIVEN)
    sites: tuple[Completed, ...] = field(default=(), metadata=GIVEN)
    moments: tuple[ColumnMoments, ...] = field(default=(), metadata=GIVEN)
    without: frozenset[int] = field(default=frozenset(), metadata=GIVEN)
    kept: tuple[str, ...] = field(default=(), metadata=GIVEN)

    @property
    def expected(self) -> type[Message]:
        """The moments that this leg is of."""
        if self.scales is None:
            return ColumnMoments
        return CompletedMoments if self.imputes else SecondMoments

    @property
    def done(self) -> bool:
        """Whether all that the job needs is agreed."""
        return self.scales is not None and (not self.second or self.psi is not None)

    def checked(self, sender: int, answer: Any) -> Any:
        """Refuses moments that no rows can have."""
        if isinstance(answer, CompletedMoments):
            _check(answer)
            return answer
        squares = answer.squares if isinstance(answer, ColumnMoments) else np.diag(answer.products)
        numbers = [answer.degrees, squares]
        if any(part.min(initial=0) < 0 for part in numbers):
            raise RemoteFault(f"{type(answer).__name__} has a negative count or sum of squares")
        return answer

    def combined(self, answers: list[Any]) -> tuple[Server, ServerEffects]:
        """Sends the scales, or Psi. Raises JobError: a column that is constant at all clients; two columns that no client has
        together; a singular Psi."""
        if self.scales is None:
            # First leg: scales from the variances.
            scales, kept = common_scales(self.names, answers), tuple[str, ...]()
            _refuse_farthest(self, answers, scales)
            if self.without:
                scales, kept = _scales_of(self.names, scales, [m for k, m in enumerate(answers) if k not in self.without])
            rows = tuple(int(m.degrees.max(initial=0)) + 1 for m in answers)
            return self.ask(Scaling(0, int(self.second), scales), scales=scales, rows=rows, moments=tuple(answers), kept=kept)
        state = self
        if self.imputes:
            sites = tuple(map(_site, answers))
            state = replace(state, sites=sites, rows=tuple(site.rows for site in sites))
        here = [k not in self.without for k in range(len(self.clients))]
        try:
            # Psi without the left-out clients, or of all if it cannot be known without them.
            psi = _psi(state, answers, here)
        except JobError:
            if all(here):
                raise
            psi, state = _psi(state, answers, [True] * len(here)), replace(state, kept=(*state.kept, "Psi"))
        return state.ask(Psi(1, psi), psi=psi)


def start(
    names: tuple[str, ...], clients: tuple[str, ...], second: bool, without: frozenset[int] = frozenset()
) -> tuple[Server, ServerEffects]:
    """Returns the first state and the first questions."""
    return Server(clients, names, second, without=without), once.ask(len(clients), AskMoments(0))


def imputing(
    names: tuple[str, ...], clients: tuple[str, ...], scales: Array | None, without: frozenset[int] = frozenset()
) -> tuple[Server, ServerEffects]:
    """Returns the same where values may be missing; with the scales of the job file, if it has them."""
    leg = 0 if scales is None else 1
    state = Server(clients, names, second=True, scales=scales, imputes=True, without=without, leg=leg)
    question = AskMoments(0) if scales is None else Scaling(0, 1, scales)
    return state, once.ask(len(clients), question)


def centred(values: Array) -> Array:
    """Returns columns about their own means; NaN stays."""
    with np.errstate(invalid="ignore"):
        known = ~np.isnan(values)
        count = np.maximum(known.sum(axis=0), 1)
        mean = np.where(known, values, 0.0).sum(axis=0) / count
        return np.asarray(values - mean)


def column_moments(values: Array) -> tuple[Array, Array]:
    """Returns values less one and centred sums of squares (w,); exactly 0 for a constant column."""
    about = centred(values)
    known = ~np.isnan(values)
    degrees = np.maximum(known.sum(axis=0) - 1.0, 0.0)
    squares = np.where(known, about, 0.0) ** 2
    total: Array = squares.sum(axis=0)
    largest = np.where(known, np.abs(values), 0.0).max(axis=0, initial=0.0)
    total[total <= (1e-14 * largest) ** 2 * known.sum(axis=0)] = 0.0  # what rounding leaves of a constant column
    return degrees, total


def second_moments(values: Array) -> tuple[Array, Array]:
    """Returns cross-products over the rows that have both values, each about its own mean, and those rows less one (w, w)."""
    about = centred(values)
    known = (~np.isnan(values)).astype(np.float64)
    filled = np.where(np.isnan(about), 0.0, about)
    return filled.T @ filled, np.maximum(known.T @ known - 1.0, 0.0)


def completed_moments(site: Completed) -> tuple[Array, Array]:
    """Returns the same (w,) where values are missing: the variances are those of EM."""
    degrees = np.maximum(site.values - 1.0, 0.0)
    return degrees, degrees * np.diag(site.covariance)


def moments(values: Array, done: Completed | None, tails: float | None) -> tuple[Array, Array]:
    """Returns the moments (w,) that a client tells of its columns; `done` are those by EM, where values may be missing.

    See `Client`.
    """
    return with_tails(values, tails) if done is None else completed_moments(done)


def with_tails(values: Array, tails: float | None) -> tuple[Array, Array]:
    """Returns `column_moments`, with the last sum of squares by the scale of Student's t. A few far rows do not decide it."""
    degrees, squares = column_moments(values)
    if tails is not None and squares[-1] > 0:
        y = values[:, -1]
        squares[-1] = degrees[-1] * student(y[~np.isnan(y)], tails)[1] or squares[-1]
    return degrees, squares


def student(y: Array, tails: float) -> tuple[float, float]:
    """Returns location and squared scale of Student's t by maximum likelihood (EM), with `tails` degrees of freedom.

    The squared scale is 0 if most of y is one value.
    """
    location = float(np.median(y))
    square = float(np.median((y - location) ** 2)) or float(((y - location) ** 2).mean())
    for _ in range(500):
        w = (tails + 1) / (tails + (y - location) ** 2 / square)
        location = float(w @ y / w.sum())
        before, square = square, float(w @ (y - location) ** 2 / len(y))
        if not square > 1e-20 * before or square < (1e-14 * np.abs(y).max()) ** 2:
            return location, 0.0
        if abs(square - before) <= 1e-12 * before:
            break
    return location, square


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Answers with moments, then with second moments if this client's own job file says that they are needed. Raises RemoteFault:
    the server asks for more than the job file says, or tells scales or a Psi that cannot be."""
    done = state.completed
    if isinstance(event, AskMoments) and state.scales is None and state.known is None:
        return state, [ColumnMoments(0, *moments(state.values, done, state.tails))]
    if isinstance(event, Scaling) and state.scales is None:
        # Second moments tell more of rows than scales: the client's job file must have asked for them.
        if bool(event.more) != state.second:
            needs = "needs" if state.second else "has no use for"
            raise RemoteFault(f"server: Scaling.more is {event.more}, and this client's job file {needs} second moments")
        if not event.scales.min(initial=np.inf) > 0:
            raise RemoteFault("server: Scaling.scales must be above 0")
        if state.known is not None and not np.array_equal(event.scales, state.known):
            raise RemoteFault("server: Scaling.scales are not those of this client's job file")
        state = replace(state, scales=event.scales.copy())
        if not state.second:
            return state, []
        if done is not None:
            scaled = done.covariance / np.outer(event.scales, event.scales)
            return state, [CompletedMoments(1, done.rows, done.incomplete, scaled, done.together)]
        return state, [SecondMoments(1, *second_moments(state.values / event.scales))]
    if isinstance(event, Psi) and state.second and state.scales is not None and state.psi is None:
        if not (np.allclose(event.psi, event.psi.T, rtol=1e-9, atol=0) and np.diag(event.psi).min(initial=np.inf) > 0):
            raise RemoteFault("server: Psi.psi must be symmetric with a diagonal above 0")
        return replace(state, psi=event.psi.copy()), []
    raise RemoteFault(f"server: {type(event).__name__} was not expected")


def _refuse_farthest(state: Server, moments: Sequence[ColumnMoments], scales: Array) -> None:
    """Raises JobError if a client's column would be so large in the common unit that its chains would be rounding alone."""
    for client, of_client in zip(state.clients, moments):
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            spread = np.sqrt(of_client.squares / of_client.degrees) / scales
        for name in (name for name, value in zip(state.names, spread) if value > FARTHEST):
            raise JobError(
                f"client {client!r}: {name} varies more than {FARTHEST:.0g} times as much there as at the sites' median: correct "
                "the cells (rows.json in its own folder names those that are far away), or put the column into data.ignore"
            )


def _psi(state: Server, answers: Sequence[Any], here: Sequence[bool]) -> Array:
    """Returns Psi of some clients."""
    if state.imputes:
        return completed_psi(state.names, list(itertools.compress(state.sites, here)))
    return pooled_psi(state.names, list(itertools.compress(answers, here)))


def _check(moments: CompletedMoments) -> None:
    """Raises RemoteFault if no rows can have these numbers."""
    counts, covariance = moments.together, moments.covariance
    if not (0 <= moments.incomplete <= moments.rows and 0 <= counts.min(initial=0) and counts.max(initial=0) <= moments.rows):
        raise RemoteFault("CompletedMoments has a negative count, or one that is more than its rows")
    if not np.allclose(covariance, covariance.T, rtol=1e-9, atol=0) or np.diag(covariance).min(initial=0) < 0:
        raise RemoteFault("CompletedMoments.covariance must be symmetric, without a negative variance")


def _site(moments: CompletedMoments) -> Completed:
    """Returns the moments of one client; its means, and whether EM has converged, stay with it."""
    unknown = np.full(len(moments.together), np.nan)
    return Completed(unknown, moments.covariance, moments.together, moments.rows, moments.incomplete, settled=True)


def common_scales(names: tuple[str, ...], replies: Sequence[ColumnMoments]) -> Array:
    """Returns standard deviations (w,) within sites, such that no single site decides: `common_variance` of each column. Raises
    JobError: a column that has fewer than two values, or one value, at each client."""
    squares, degrees = (np.array([getattr(r, name) for r in replies]) for name in ("squares", "degrees"))
    for name, square, degree in zip(names, squares.T, degrees.T):
        if not (degree > 0).any():
            raise JobError(f"{name} has fewer than two values at every client: nothing can be learnt; put it into data.ignore")
        if not (square > 0).any():
            raise JobError(f"{name} is constant at every client: nothing can be learnt from it; put it into data.ignore")
    return np.sqrt([common_variance(square, degree) for square, degree in zip(squares.T, degrees.T)])


def common_variance(squares: Array, degrees: Array) -> float:
    """Returns one variance for sites with these sums of squares and degrees of freedom (m,), from those where the column varies.

    It is the median of their variances, weighted by degrees of freedom: with one cell a hundred times too large a pooled variance
    is that cell's, and all effects of all sites are then small in its units. For two sites it is the pooled variance, or the
    smaller one if they are more than 25-fold apart. Sites that are not as the others (`apart`) are left out, however many rows
    they have.
    """
    varies = (squares > 0) & (degrees > 0)
    if varies.sum() > 2 and (spread := compare_spreads(squares, degrees)).odd.any():
        return common_variance(squares[spread.agree], degrees[spread.agree])
    variances, weight = squares[varies] / degrees[varies], degrees[varies]
    if len(variances) <= 2:
        if variances.max() > APART * variances.min():
            return float(variances.min())
        return float((variances * weight).sum() / weight.sum())
    order = np.argsort(variances, kind="stable")
    variances, up_to = variances[order], np.cumsum(weight[order])
    first, last = (int(np.searchsorted(up_to, up_to[-1] / 2, side=side)) for side in ("left", "right"))
    return float((variances[first] + variances[last]) / 2)


def _scales_of(names: tuple[str, ...], scales_of_all: Array, replies: Sequence[ColumnMoments]) -> tuple[Array, tuple[str, ...]]:
    """Returns the scales of some clients, and the names of columns that vary at none of them, whose scales are those of all."""
    known = np.array([any(r.squares[j] > 0 for r in replies) for j in range(len(names))], dtype=bool)
    here = [j for j, varies in enumerate(known) if varies]
    part = [ColumnMoments(0, r.degrees[here], r.squares[here]) for r in replies]
    scales = scales_of_all.copy()
    scales[here] = common_scales(tuple(names[j] for j in here), part)
    return scales, tuple(name for name, varies in zip(names, known) if not varies)


def pooled_psi(names: tuple[str, ...], replies: list[SecondMoments]) -> Array:
    """Returns second moments (w, w) within sites, from the rows that have both columns."""
    products = np.sum([r.products for r in replies], axis=0)
    degrees = np.sum([r.degrees for r in replies], axis=0)
    for i, j in zip(*np.nonzero(~(degrees > 0))):
        raise JobError(_apart(names[i], names[j]))
    return _regular(names, np.asarray(products / degrees))


def completed_psi(names: tuple[str, ...], sites: Sequence[Completed]) -> Array:
    """Returns the covariance (w, w) that all sites have in common; an entry that one site lacks comes from those that have it."""
    try:
        return _regular(names, pooled(sites))
    except NeverTogether as pair:
        i, j = pair.args
        raise JobError(_apart(names[i], names[j])) from None


def _apart(name: str, other: str) -> str:
    return (
        f"{name} and {other} were never measured together at any client, so that one cannot be imputed from the other; put one "
        "of them into data.ignore"
    )


def _regular(names: tuple[str, ...], psi: Array) -> Array:
    """Returns psi itself; raises JobError if it is singular, whatever units its columns have."""
    unit = np.sqrt(np.diag(psi))
    unit[unit == 0] = 1.0
    values, vectors = np.linalg.eigh(psi / np.outer(unit, unit))
    if values[0] < SMALLEST_EIGENVALUE:
        involved = [names[j] for j in np.argsort(-np.abs(vectors[:, 0])) if abs(vectors[j, 0]) > 0.3]
        raise JobError(
            f"the pooled second moments of {', '.join(involved)} are singular (one follows from the others, or too "
            "few rows have them together); put one of them into data.ignore"
        )
    return psi


PROTOCOL = legs.protocol(
    "scaling", Server, (AskMoments, Scaling, Psi), (ColumnMoments, SecondMoments), client_receive, keeps=True
)


def protocol(*, second: bool) -> Protocol[Server, Client]:
    """Returns the protocol with only the messages that a job can send."""
    return PROTOCOL if second else replace(PROTOCOL, to_client=(AskMoments, Scaling), to_server=(ColumnMoments,))


def imputing_protocol(*, known: bool) -> Protocol[Server, Client]:
    """Returns the same where values may be missing; `known`: the job file has the scales."""
    if known:
        return replace(PROTOCOL, to_client=(Scaling, Psi), to_server=(CompletedMoments,))
    return replace(PROTOCOL, to_server=(ColumnMoments, CompletedMoments))


# Numbers of different values --------------------
# Asks, before a sparse job's scales, how many different values each column has at each client. Source: sparse.md, section 7.
#
# A client says, of each column, whether it has no value, one, two, or more; it sends no value and no count beyond two.


MORE = 3  # what stands for more than two


@dataclass(frozen=True)
class ColumnValues(
    Answer,
    kind=131,
    tells=tells.Fact("whether each column has no value, one, two or more different ones"),
    name="values",
    ask=("AskValues", 130),
    needs="the columns' values are not counted yet; start again when it is back",
):
    """Client to server: 0, 1, 2, or 3 for more, of each column."""

    values: Annotated[NDArray[np.float64], "w"]

    def honest(self) -> Conditions:
        yield np.isin(self.values, np.arange(MORE + 1.0)).all(), "have a number that is not 0, 1, 2 or 3"


def count_values(values: Array) -> Array:
    """Returns 0, 1, 2 or `MORE` different values (w,) for each column of (n, w).

    NaN is no value, and rounding of a constant column is one.
    """
    out = np.zeros(values.shape[1])
    _, squares = column_moments(values)
    for j, column in enumerate(values.T):
        present = column[~np.isnan(column)]
        if not squares[j] > 0:
            out[j] = min(len(present), 1)
        else:  # most columns show it in their first rows, and need not be sorted
            out[j] = MORE if len(np.unique(present[:100])) >= MORE else min(len(np.unique(present)), MORE)
    return out


# Column means --------------------
# Asks the clients of a sparse job, once it has its scales, for the means of their columns.
#
# Means show a unit that a standard deviation does not.
#
# A mean is sent as a whole number of quarters of the client's standard deviation, which its moments have told before: enough to
# compare it, and for so many rows (`LEAST` + 1 at least) a sum that is known to some standard deviations only. So it adds no row
# to the moments, also where two sums are over rows of which one has a row more (EM beside complete rows, two jobs). Source:
# sparse.md, section 7.


STEP = 0.25  # standard deviations


@dataclass(frozen=True)
class AskMeans(Ask, kind=135):
    """Server to client: where are your columns?"""


@dataclass(frozen=True)
class ColumnMeans(
    Answer,
    kind=136,
    tells=tells.Sums("means of columns, to a quarter of a standard deviation"),
    name="column-means",
    ask=AskMeans,
    needs="the columns' means are not compared yet; see why it ended, and start the job again",
):
    """Client to server: means in steps of a quarter of its standard deviation, rounded; 0 for a column that is not compared."""

    steps: Annotated[NDArray[np.float64], "u"]

    def honest(self) -> Conditions:
        yield (self.steps == np.rint(self.steps)).all(), "have steps that are no whole numbers"
        yield small(self.steps), "have steps that are too large to be any"


def is_compared(values: Array, degrees: Array) -> NDArray[np.bool_]:
    """Returns which columns are compared: those with three different values or more, and with enough rows."""
    return np.asarray((values >= MORE) & (degrees >= LEAST))


def means_reply(means_of: Array, degrees: Array, squares: Array, values: Array) -> ColumnMeans:
    """Returns one client's answer from the means (u,) of its columns, its moments and its numbers of different values."""
    compared = is_compared(values, degrees) & (squares > 0)
    step = STEP * np.sqrt(np.where(compared, squares, 1.0) / np.where(compared, degrees, 1.0))
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.rint(np.where(compared, means_of, 0.0) / step)
    return ColumnMeans(0, np.where(np.isfinite(steps), steps, 0.0) + 0.0)  # and no -0


def means_of(steps: Array, variances: Array) -> Array:
    """Returns the means that were sent, from the variances that were."""
    return np.asarray(steps * STEP * np.sqrt(variances))
