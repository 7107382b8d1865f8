"""Agrees on the units of the response before a spatial job or a regression without privacy: two sums of each client give them.

| leg | a client sends | all get |
|---|---|---|
| level | two sums of its responses and offsets | level; of a measured response the next question |
| spread (measured responses) | sum and sum of squares about the pooled mean | level and scale |
| again (counts in intervals) | the two sums, with the mean of each such count at the last level | level, until it stands still |

The two sums, `first` and `second`, are (`models.spatial.units.sums`; each term times its case weight):

| response | leg | first | second |
|---|---|---|---|
| counts | level, again | cases, sum y | exposure, sum e^offset |
| successes | level, again | successes, sum y | failures, sum (trials - y) e^offset |
| measured (identity link: Gaussian, Student's t) | level | number of responses | sum (y - offset) |
| measured | spread | sum (y - offset - centre) | sum (y - offset - centre)^2 |

The server notes a client whose standard deviation or mean of a measured response is not that of the others (`compare`):
another unit, or a wrong cell, which a heavy-tailed response may have. The fit uses the agreed units (`Units.rows`),
so it does not depend on the unit of exposures or of a measured response. Answers are added in client order, so the sums have the
same bits on every run. Where they are masked (`core.masked`), the server has the sums over all clients as the answer of one, and
notes no client; each then compares itself with all others together (`odd_response`, `compare_alone`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np

from ...arrays import Array
from ...errors import JobError
from ...finding import Finding
from ...kernels.families import FAMILIES
from ...models.likelihood import Likelihood
from ...models.spatial.site import Rows
from ...models.spatial.units import Units, fill_intervals, pooled_level, spread, sums
from ...privacy.masks import LARGEST_CELL, ONCE, nearest
from ..core import legs, once, tells
from ..core.legs import Leg
from ..core.masked import Masked, Sum
from ..core.messages import ClientEffects, Event, Message, RemoteFault, ServerEffects
from .compare import is_of_client, of_response, variances
from .odd_response import OTHERS, Compared

DIMS: dict[str, int] = {}  # no message has an array
LEVEL, SPREAD, AGAIN = 0, 1, 2  # the legs; from AGAIN on all are alike: a step of an EM each
STILL = 1e-9  # a level that a step moves by less has converged
MOST_AGAIN = 40  # EM steps at most
MOST = 1e150  # of a measured response, which will be squared
MOST_LEVEL = 700.0  # of the level of counts, of which the exponential is a number


@dataclass(frozen=True)
class AskLevel(Message, kind=140):
    """Server to client: which are your two sums?

    `round` is the leg. Leg 1 asks for the sums about the pooled mean, `centre`; legs from 2 on for those with the mean of each
    count of which an interval is known, at the level `centre`.
    """

    round: int
    centre: float


@dataclass(frozen=True)
class LevelSums(Message, kind=141, tells=tells.ResponseSums()):
    """Client to server: two numbers, whatever the number of rows; the module says which."""

    round: int
    first: float
    second: float

    @classmethod
    def count(cls, dims: Mapping[str, int]) -> int:
        """Returns how many numbers are added."""
        return 2

    def numbers(self) -> Array:
        """Returns the numbers that are added: those that hang on a number of the server's are rounded, and never refused."""
        pair = np.array([self.first, self.second])
        return pair if self.round == LEVEL else nearest(pair, ONCE)

    @classmethod
    def of_sum(cls, round: int, numbers: Array, dims: Mapping[str, int]) -> LevelSums:
        """Returns the sums of all clients together."""
        return cls(round, *numbers.tolist())


@dataclass(frozen=True)
class MaskedLevelSums(Masked, Message, kind=263, tells=tells.ResponseSums().masked):
    """Client to server: `LevelSums`, masked."""

    words: Annotated[bytes, "masked_level"]


SUMS = (Sum(LevelSums, MaskedLevelSums, ONCE, "sums of the response, or of exposures,", exact=True),)


@dataclass(frozen=True)
class Level(Message, kind=142):
    """Server to client: the linear predictor in the data's units is level + scale times that of the model."""

    round: int
    level: float
    scale: float


TIMES = {AskLevel: 2, LevelSums: 2}  # the `Settings.times` of a measured response


@dataclass(frozen=True)
class Settings:
    """Holds the facts of the response that all parties know."""

    family: str  # of the response
    response: str = "y"  # its column, for the texts of errors
    intercept: bool = True  # whether the model has one; without, the level is 0, and the scale is the root mean square about 0
    # `model.scale` where the job gives it: the error standard deviation of a measured response, the dispersion of a count
    sd: float | None = None
    intervals: bool = False  # whether there may be counts of which an interval is known
    noisy: bool = False  # whether counts have noise, so that their sums may be below 0
    masked: bool = False  # whether the server gets sums alone
    # of the model, on which the prior decides where the data give no finite level, and their verb
    parts: str = "the intercept is"

    @property
    def times(self) -> dict[type[Message], int]:
        """How often each message comes at most."""
        most = 1 + MOST_AGAIN if self.intervals else 1 + self.measured
        return {AskLevel: most, LevelSums: most}

    @property
    def measured(self) -> bool:
        """Whether the response has a unit: a Gaussian one, or Student's t."""
        return FAMILIES[self.family].link == "identity"


@dataclass(frozen=True)
class Client:
    """Holds a client's responses, with case weights if it has some; after the last leg `units`. `leg`: of the next question."""

    name: str
    settings: Settings
    rows: Rows = field(repr=False)
    units: Units | None = None
    weights: Array | None = field(default=None, repr=False)
    leg: int = LEVEL


@dataclass(frozen=True)
class Server(Leg[LevelSums], answers=(LevelSums,)):
    """Holds the answers and the result."""

    settings: Settings
    centre: float = 0.0  # of the open question
    rows: float = 0.0  # the number of measured responses, or the sum of their weights, of all clients
    units: Units | None = None
    note: str = ""  # for the reader of the result
    found: tuple[Finding, ...] = ()  # what is odd about clients' responses; the fit goes on
    sd: float = 0.0  # the standard deviation of all measured responses
    answers: tuple[tuple[float, float], ...] = ()  # the two sums of each client in the first leg

    @property
    def done(self) -> bool:
        """Whether all have the units."""
        return self.units is not None

    def checked(self, sender: int, answer: LevelSums) -> LevelSums:
        """Refuses sums that cannot be."""
        # Sums of counts and of squares are never negative; those of measured responses, and noisy ones, may be. Only counts have
        # noise, so a sum of squares never has it.
        counted = not (self.settings.measured or self.settings.noisy)
        if (counted and min(answer.first, answer.second) < 0) or (self.leg == SPREAD and answer.second < 0):
            raise RemoteFault(f"LevelSums of {answer.first:g} and {answer.second:g} cannot be")
        return answer

    def combined(self, replies: list[LevelSums]) -> tuple[Server, ServerEffects]:
        """Sends the level, or asks the next leg. Raises JobError: no client has a response, or a measured one has no spread to
        learn its scale from."""
        s, sums_told = self.settings, [(answer.first, answer.second) for answer in replies]
        if self.leg == SPREAD:
            rows = np.array([number for number, _ in self.answers])
            found = _compare(s, rows, self.centre, np.array(sums_told), self.clients)[0]
            state = replace(self, found=tuple(found), sd=spread(sums_told, self.centre, self.rows)[1])
            return state.send(_measured_units(s, sums_told, self.centre, self.rows))
        with np.errstate(over="ignore"):
            level = pooled_level(s.family, sums_told)
        if level is None:
            raise JobError(f"column {s.response!r}: no client has a response; there is nothing to learn from")
        if not np.isfinite(level):
            raise JobError(f"column {s.response!r}: the clients' responses are too large to be summed; give them in another unit")
        state = replace(self, answers=tuple(sums_told)) if self.leg == LEVEL else self
        # Only counts have intervals. Their legs go from LEVEL to AGAIN, for they have no spread.
        if s.intervals and not (self.leg >= AGAIN and _stops_asking(self.centre, level, self.leg)):
            leg = max(self.leg + 1, AGAIN)
            return state.ask(AskLevel(leg, level), leg=leg, centre=level)
        if not s.measured:
            state = replace(state, note=_describe_one_kind(s, sums_told))
            centre = level if s.intercept else 0.0
            return state.send(Units(centre, pooled=level))
        # A measured response needs a second leg: its spread about the level of all clients.
        return state.ask(AskLevel(SPREAD, level), centre=level, rows=sum(number for number, _ in sums_told))

    def send(self, units: Units) -> tuple[Server, ServerEffects]:
        """Ends the exchange: all parties get the units."""
        return self.ask(Level(self.leg, units.level, units.scale), leg=self.leg, units=units)


def start(settings: Settings, clients: tuple[str, ...]) -> tuple[Server, ServerEffects]:
    """Returns the first state and the first questions."""
    return Server(clients, settings), once.ask(len(clients), AskLevel(LEVEL, 0.0))


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Answers with two sums; raises JobError if they are too large to be numbers."""
    if isinstance(event, (Level, AskLevel)) and state.settings.masked:
        _check(state, event)
    if isinstance(event, Level):
        return replace(state, units=Units(event.level, event.scale)), []
    if not isinstance(event, AskLevel):
        raise RemoteFault(f"server: {type(event).__name__} was not expected")
    rows = state.rows
    if event.round >= AGAIN:
        rows = fill_intervals(rows, Likelihood(state.settings.family, state.settings.sd or 1.0), event.centre)
    centre = event.centre if event.round == SPREAD else None
    pair = sums(state.settings.family, rows, centre, state.weights)
    # Only a measured response has a largest value, and it has no intervals that were filled.
    most = np.inf
    if state.settings.measured:
        most = LARGEST_CELL if state.settings.masked else MOST
    if not np.isfinite(pair).all() or np.abs(state.rows.y - state.rows.offset).max(initial=0.0) > most:
        raise JobError(
            f"client {state.name!r}: column {state.settings.response!r}: responses, exposures or offsets are too large to be "
            "summed; correct them, or give them in another unit"
        )
    leg = AGAIN if state.settings.intervals and event.round == LEVEL else event.round + 1
    return replace(state, leg=leg), [LevelSums(event.round, *pair)]


def _check(state: Client, event: Level | AskLevel) -> None:
    """Raises RemoteFault where the server of masked sums says what none can: all clients know so alike."""
    if isinstance(event, Level):
        good = abs(event.level) <= LARGEST_CELL and 1 / LARGEST_CELL <= event.scale <= LARGEST_CELL
    else:
        last, largest = LEVEL, MOST_LEVEL
        if state.settings.measured:
            last, largest = SPREAD, LARGEST_CELL
        elif state.settings.intervals:
            last = AGAIN + MOST_AGAIN - 1
        if event.round == LEVEL:  # about nothing yet
            largest = 0.0
        good = event.round == state.leg <= last and abs(event.centre) <= largest
    if not good:
        raise RemoteFault(f"server: {type(event).__name__} was not expected, or has a number that cannot be")


def _stops_asking(before: float, level: float, leg: int) -> bool:
    """Tells whether the level has converged, or all legs are used up.

    A level that has not converged gets no note, for any number that all parties share would do: results are in the data's units
    again, and the level only says where the fit starts and where the intercept's prior has its centre.
    """
    return abs(level - before) < STILL or leg == AGAIN + MOST_AGAIN - 1


def _compare(s: Settings, n: Array, centre: float, about: Array, clients: Sequence[str]) -> tuple[list[Finding], Array, Array]:
    """Compares clients by their numbers of responses (m,), and (m, 2) sums about the centre; returns means and variances, too."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        shift = about[:, 0] / n
        means = centre + shift
        spreads = variances(means, shift, about[:, 1] / n)
    return of_response(f"column {s.response!r}", clients, n, means, spreads, linear=FAMILIES[s.family].linear), means, spreads


def compare_alone(client: Client, rows: float, mean: float, sd: float) -> Compared:
    """Compares a client's measured response with that of all others together: `odd_response.Compare`, where sums are masked."""
    s, rows_here = client.settings, client.rows
    n = float(len(rows_here.y)) if client.weights is None else float(client.weights.sum())
    first, second = sums(s.family, rows_here, mean, client.weights)
    # All together have no deviation from their mean.
    about = np.array([[first, second], [-first, max(rows * sd**2 - second, 0.0)]])
    found, means, spread = _compare(s, np.array([n, max(rows - n, 0.0)]), mean, about, (client.name, OTHERS))
    (own_variance, theirs), doubt = spread.tolist(), any(finding.doubt for finding in found)
    of_client = doubt and is_of_client(float(means[0]), own_variance, float(means[1]), theirs)
    return Compared(tuple(found), of_client, doubt and own_variance > theirs)


def _describe_one_kind(s: Settings, answers: list[tuple[float, float]]) -> str:
    """Returns a note if every response is of one kind, so that the data give no finite level; "" otherwise."""
    first, second = (sum(column) for column in zip(*answers))
    if s.noisy:
        return _describe_lost_cases(s, first)
    if first and second:
        return ""
    what = "a success" if first else "0"
    return (
        f"column {s.response!r}: every response of every client is {what}: the pooled level is computed as if there were "
        f"half a response of the other kind, and the prior decides how far from it {s.parts}"
    )


def _describe_lost_cases(s: Settings, cases: float) -> str:
    """Returns a note if noise has made the number of cases 0 or less; "" otherwise."""
    if cases > 0:
        return ""
    return (
        f"column {s.response!r}: with their noise the clients' counts add up to {cases:g}: the pooled level is computed as if "
        f"there were half a case, and the prior decides how far from it {s.parts}"
    )


def _measured_units(s: Settings, answers: list[tuple[float, float]], centre: float, n: float) -> Units:
    """Returns the units of a measured response.

    A model without an intercept has its zero at 0, not at the mean, so its scale is the root mean square about 0.
    """
    mean, sd = spread(answers, centre, n)
    scale = sd if s.intercept else float(np.hypot(mean, sd))
    if not np.isfinite(scale):
        raise JobError(f"column {s.response!r}: the clients' responses are too large to be squared; give them in another unit")
    if not sd and s.sd is None:
        raise JobError(
            f"column {s.response!r}: all clients' responses have one value, or differ by less than their digits hold (mean "
            f"{mean:.6g}): nothing says how large the error is; correct them, subtract a constant, or give model.scale"
        )
    level = mean if s.intercept else 0.0
    return Units(level, scale or s.sd or 1.0, mean)


PROTOCOL = legs.protocol("level", Server, (AskLevel, Level), (LevelSums,), client_receive)
