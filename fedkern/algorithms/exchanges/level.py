"""Before a spatial job or an open regression: what are the units of the response? Two sums of each client; then all know the
level and the scale.

| leg | a client sends | all get |
|---|---|---|
| level | two sums of its responses and offsets (`models.spatial.units.sums`) | level; of a Gaussian response the next question |
| spread (Gaussian) | sum and sum of squares about the pooled mean | level and scale |
| again (counts in intervals) | the two sums, with the mean of each such count at the last level | level, until it stands still |

Of a response that has a unit the server notes a client whose standard deviation or mean is not that of the others (`spreads`,
`centres`): another unit, or a wrong cell, which a heavy-tailed response may have. What comes is added in client order. With this
the result does not depend on the unit of exposures, or of a Gaussian response.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from ...errors import JobError
from ...kernels.families import FAMILIES
from ...models.likelihood import Likelihood
from ...models.spatial.site import Rows
from ...models.spatial.units import Array, Units, filled, pooled_level, spread, sums
from ..core import once
from ..core.messages import FEW_AREAS, SUM, ClientEffects, Event, Message, RemoteFault, ServerEffects, Tells
from ..core.persistent import PersistentMap
from ..core.rounds import in_order, needed
from . import centres, spreads

DIMS: dict[str, int] = {}
LEVEL, SPREAD, AGAIN = 0, 1, 2  # the legs; from AGAIN on all are alike
STILL, MOST_AGAIN = 1e-9, 40  # of a level, and the legs that look for it: steps of an EM
LARGER = ", or its errors are that much larger there"
MOST = 1e150  # of a Gaussian response, which will be squared


@dataclass(frozen=True)
class AskLevel(Message, kind=140):
    """Server to client. Leg 0: what are your two sums? Leg 1: what are they about the pooled mean?"""

    round: int
    centre: float


@dataclass(frozen=True)
class LevelSums(Message, kind=141, tells=Tells(SUM, "its response", FEW_AREAS)):
    """Client to server: two numbers, whatever the number of rows."""

    round: int
    first: float
    second: float


@dataclass(frozen=True)
class Level(Message, kind=142):
    """Server to client: eta = level + scale eta_model."""

    round: int
    level: float
    scale: float


TIMES = {AskLevel: 2, LevelSums: 2}  # of a Gaussian job, which also asks for the spread


@dataclass(frozen=True)
class Settings:
    """What all parties know of the response.

    Attributes
    ----------
    family : of the response
    response : its column, for the texts of errors
    intercept : whether the model has one; without, the level is 0, and the scale is about 0
    sd : the error standard deviation of a Gaussian response where the job gives it; of a count its dispersion
    intervals : whether there may be counts of which an interval is known
    noisy : whether counts have noise, so that their sums may be below 0
    """

    family: str
    response: str = "y"
    intercept: bool = True
    sd: float | None = None
    intervals: bool = False
    noisy: bool = False

    @property
    def times(self) -> dict[type[Message], int]:
        """How often a message comes at most."""
        most = 1 + MOST_AGAIN if self.intervals else 1 + self.measured
        return {AskLevel: most, LevelSums: most}

    @property
    def measured(self) -> bool:
        """Whether the response has a unit, as a Gaussian one."""
        return FAMILIES[self.family].link == "identity"


@dataclass(frozen=True)
class Client:
    """A client's responses, with case weights where there are some; after the last leg `units`."""

    name: str
    settings: Settings
    rows: Rows = field(repr=False)
    units: Units | None = None
    weights: Array | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Server:
    """`told[k]` is client k's answer of this leg; `rows` the number of responses, where the first leg has told it, and `each`
    that of each client (the sum of its weights); `answers` those of the first leg, in the clients' order; `note` for the reader
    of the result, and `doubt` why it cannot stand."""

    settings: Settings
    clients: tuple[str, ...]
    leg: int = LEVEL
    told: PersistentMap[int, tuple[float, float]] = field(default_factory=PersistentMap)
    centre: float = 0.0
    rows: float = 0.0
    units: Units | None = None
    note: str = ""
    doubt: str = ""
    each: tuple[float, ...] = ()
    answers: tuple[tuple[float, float], ...] = ()

    @property
    def round(self) -> int:
        return self.leg


def start(settings: Settings, clients: tuple[str, ...]) -> tuple[Server, ServerEffects]:
    """The first state, and the first questions."""
    return Server(settings, clients), once.ask(len(clients), AskLevel(LEVEL, 0.0))


def finished(state: Server) -> bool:
    return state.units is not None


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Two sums; JobError where they are too large to be numbers."""
    if isinstance(event, Level):
        return replace(state, units=Units(event.level, event.scale)), []
    if not isinstance(event, AskLevel):
        raise RemoteFault(f"server: {type(event).__name__} was not expected")
    rows = state.rows
    if event.round >= AGAIN:
        rows = filled(rows, Likelihood(state.settings.family, state.settings.sd or 1.0), event.centre)
    pair = sums(state.settings.family, rows, event.centre if event.round == SPREAD else None, state.weights)
    most = MOST if state.settings.measured else np.inf
    if not np.isfinite(pair).all() or np.abs(state.rows.y - state.rows.offset).max(initial=0.0) > most:
        raise JobError(
            f"client {state.name!r}: column {state.settings.response!r}: responses, exposures or offsets are too large to be "
            "summed; correct them, or give them in another unit"
        )
    return state, [LevelSums(event.round, *pair)]


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """One client's sums; with the last the level, or the next leg.

    Raises
    ------
    JobError
        No client has a response, or a Gaussian one has no spread to learn its scale from.
    """
    needed(event, "client {client} is gone before the first round; start again when it is back", state.clients)
    if not isinstance(event, LevelSums) or event.round != state.leg or sender in state.told:
        raise RemoteFault(f"client {sender}: {type(event).__name__} was not expected")
    counted = not (state.settings.measured or state.settings.noisy)
    if (counted and min(event.first, event.second) < 0) or (state.leg == SPREAD and event.second < 0):
        raise RemoteFault(f"client {sender}: LevelSums of {event.first:g} and {event.second:g} cannot be")
    state = replace(state, told=state.told.plus(sender, (event.first, event.second)))
    if len(state.told) < len(state.clients):
        return state, []
    answers, s = in_order(state.told), state.settings
    state = replace(state, told=PersistentMap())
    if state.leg == SPREAD:
        state = _apart(state, np.array(answers))
        return _known(state, _gaussian(s, answers, state.centre, state.rows))
    if state.leg == LEVEL:
        state = replace(state, answers=tuple(answers))
    with np.errstate(over="ignore"):
        level = pooled_level(s.family, answers)
    if level is None:
        raise JobError(f"column {s.response!r}: no client has a response; there is nothing to learn from")
    if not np.isfinite(level):
        raise JobError(f"column {s.response!r}: the clients' responses are too large to be summed; give them in another unit")
    if s.intervals and not (state.leg >= AGAIN and _stands(state.centre, level, state.leg)):
        leg = max(state.leg + 1, AGAIN)
        return replace(state, leg=leg, centre=level), once.ask(len(state.clients), AskLevel(leg, level))
    if not s.measured:
        state = replace(state, note=_one_sided(s, answers))
        return _known(state, Units(level if s.intercept else 0.0, pooled=level))
    state = replace(state, leg=SPREAD, centre=level, rows=sum(first for first, _ in answers))
    state = replace(state, each=tuple(first for first, _ in answers))
    return state, once.ask(len(state.clients), AskLevel(SPREAD, level))


def _stands(before: float, level: float, leg: int) -> bool:
    return abs(level - before) < STILL or leg == AGAIN + MOST_AGAIN - 1


def _known(state: Server, units: Units) -> tuple[Server, ServerEffects]:
    return replace(state, units=units), once.ask(len(state.clients), Level(state.leg, units.level, units.scale))


def _apart(state: Server, about: Array) -> Server:
    """With what is to be said of clients whose response varies otherwise, or about another mean; `about` (m, 2): their sums about
    the centre."""
    n, what = np.array(state.each), f"column {state.settings.response!r}"
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        shift = about[:, 0] / n
        mean = state.centre + shift
        own = spreads.variances(mean, shift, about[:, 1] / n)
        degrees = np.maximum(n - 1, 0)
        found = spreads.compared(own * degrees, degrees)
        sure = spreads.certain(found, mean / np.sqrt(own))
    heavy = not FAMILIES[state.settings.family].linear  # tails, or a wrong cell, in which nothing else is wrong
    sure &= not heavy
    moved = centres.compared(mean, own, degrees, ~found.odd | heavy)
    notes = (*spreads.notes(found, what, state.clients), *centres.notes(moved, what, state.clients))
    doubts = (spreads.doubt(found, sure, what, state.clients, LARGER), centres.doubt(moved, what, state.clients))
    return replace(state, note="; ".join(filter(None, (state.note, *notes))), doubt="; ".join(filter(None, doubts)))


def _one_sided(s: Settings, answers: list[tuple[float, float]]) -> str:
    """What must be said where nothing has happened, or nothing else has: the level is then a convention."""
    first, second = (sum(column) for column in zip(*answers))
    if s.noisy:
        return _lost_in_noise(s, first)
    what = "0" if not first else "a success" if not second else ""
    if not what:
        return ""
    return (
        f"column {s.response!r}: every response of every client is {what}: half a response of the other kind stands for the "
        "pooled level, and the prior decides how far from it intercept, effects and map are"
    )


def _lost_in_noise(s: Settings, first: float) -> str:
    """What must be said where noise has eaten all cases."""
    if first > 0:
        return ""
    return (
        f"column {s.response!r}: with their noise the clients' counts add up to {first:g}: half a case stands for the pooled "
        "level, and the prior decides how far from it intercept, effects and map are"
    )


def _gaussian(s: Settings, answers: list[tuple[float, float]], centre: float, n: float) -> Units:
    """Without an intercept the model is about 0, and so is the scale."""
    mean, sd = spread(answers, centre, n)
    scale = sd if s.intercept else float(np.hypot(mean, sd))
    if not np.isfinite(scale):
        raise JobError(f"column {s.response!r}: the clients' responses are too large to be squared; give them in another unit")
    if not sd and s.sd is None:
        raise JobError(
            f"column {s.response!r}: all clients' responses have one value, or differ by less than their digits hold (mean "
            f"{mean:.6g}): nothing says how large the error is; correct them, subtract a constant, or give model.scale"
        )
    return Units(mean if s.intercept else 0.0, scale or s.sd or 1.0, mean)


PROTOCOL = once.protocol("level", (AskLevel, Level), (LevelSums,), server_receive, client_receive, finished)
