"""Finds the centres and scales of columns where the server gets sums over all clients alone (`core.masked`).

It follows the agreement on columns (`columns`), which then asks no client for a sum. All have the columns in one order by then.
Columns go in blocks of `WIDTH`. Of each block the server asks two legs, as the agreement does in a job without masks:

| leg | all clients together | all get |
|---|---|---|
| 3 b | number of rows, sums of the block's columns | their means |
| 3 b + 1 | sums of the deviations from the means, and of their squares | centre and scale of each column, number of rows |
| 3 b + 2 | at how many clients each column is not as at all others | |

A job without masks adds the clients' sums exactly, and rounds once (`math.fsum`); so do masked words, which hold every digit. So
centres and scales have the same bits in both.

Without masks a server tells by each client's own sums whether a column is in another unit there. Here each client compares its
own with those of all others together, by the same rules (`compare`), and the server learns at how many clients something is odd.
If one is far from the others, these together vary more than each of them, so all may find that all others vary more. A doubt is
only a column that varies more at one client than at all others together, or, where there is none, that is surely odd at one alone
(`is_of_client`). All else (patients who differ, say) is a note. Which clients have one file nobody can tell here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, cast

import numpy as np
from numpy.typing import NDArray

from ...arrays import Array
from ...errors import OwnFault
from ...finding import Finding
from ...models.encoding import Column, Spec
from ...privacy.masks import LARGEST_CELL, ONCE, holds, nearest
from ..core import legs, once, tells
from ..core.legs import Leg, not_agreed
from ..core.masked import ALL, TOO_MUCH, Masked, Sum
from ..core.messages import ClientEffects, Event, Message, Protocol, RemoteFault, ServerEffects
from .columns import Summary, moments, name_openly, standardise
from .compare import Facts, compare, is_of_client
from .odd_response import OTHERS, Odd, is_doubt

Block = Annotated[NDArray[np.float64], "block"]

WIDTH = 64  # columns of a question
DIMS = {"block": WIDTH}


@dataclass(frozen=True)
class AskColumnSums(Message, kind=260):
    """Server to client: which are your sums of this block's columns about `means`? `round` is the leg."""

    round: int
    means: Block


@dataclass(frozen=True)
class MaskedColumnSums(
    Masked,
    Message,
    kind=261,
    tells=tells.Sums(
        computed="each column's values", where=tells.ONE_OR_TWO, together="each column's values, not whose they are"
    ).masked,
):
    """Client to server: a `ColumnSums`, masked."""

    words: Annotated[bytes, "masked_columns"]


@dataclass(frozen=True)
class ColumnScales(Message, kind=262):
    """Server to client: centres and scales of the block's columns, 0 of one value, and the number of all rows; which are odd?"""

    round: int
    rows: float
    centres: Block
    scales: Block


@dataclass(frozen=True)
class MaskedOddColumns(Masked, Message, kind=268, tells=tells.Fact("which columns are not as at all others").masked):
    """Client to server: `Odd`, masked."""

    words: Annotated[bytes, "masked_odd"]


TIMES: dict[type[Message], int] = {AskColumnSums: 2, MaskedColumnSums: 2}  # of a block
LEGS = 3


@dataclass(frozen=True)
class ColumnSums:
    """Holds the sums that clients mask. It is no message: no client's own ever travels."""

    round: int
    rows: float  # their number, or that of the trials
    # sums, squares: (WIDTH,) of the deviations from the means that were asked for
    sums: Array
    squares: Array

    @classmethod
    def count(cls, dims: Mapping[str, int]) -> int:
        """Returns how many numbers are added."""
        return 1 + 2 * dims["block"]

    def numbers(self) -> Array:
        """Returns the numbers that are added: those that hang on a number of the server's are rounded, and never refused."""
        numbers = np.concatenate([[self.rows], self.sums, self.squares])
        return nearest(numbers, ONCE) if self.round % LEGS else numbers

    @classmethod
    def of_sum(cls, round: int, numbers: Array, dims: Mapping[str, int]) -> Message:
        """Returns the sums of all clients together."""
        sums, squares = np.split(numbers[1:], 2)
        return cast(Message, cls(round, float(numbers[0]), sums, squares))


SUMS = (Sum(ColumnSums, MaskedColumnSums, ONCE, "sums of columns", exact=True), Sum(Odd, MaskedOddColumns))


@dataclass(frozen=True)
class Client:
    """Is a client's state."""

    # name, spec: for the texts of errors
    name: str
    spec: Spec
    n_clients: int  # on which it depends how large a sum may be
    columns: tuple[str, ...]  # (p,) names of the columns that are asked for, in the agreed order
    summary: Summary = field(repr=False)  # its rows, in its own order of columns
    # centres, scales: (p,) of the blocks so far
    centres: tuple[float, ...] = ()
    scales: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()  # for its holder alone
    leg: int = 0  # of the next question


@dataclass(frozen=True)
class Server(Leg[Any], answers=(ColumnSums, ColumnSums, Odd), needs=not_agreed("the columns are")):
    """Is the server's state, which has one client: all together."""

    columns: tuple[str, ...]  # (p,) names
    n_clients: int
    # rows, means: of all clients, after a block's first leg
    rows: float = 0.0
    means: Array = field(default_factory=lambda: np.zeros(WIDTH))
    # centres, scales: (p,) of the blocks so far
    centres: tuple[float, ...] = ()
    scales: tuple[float, ...] = ()
    found: tuple[Finding, ...] = ()  # for the reader of the result

    @property
    def expected(self) -> type[Any]:
        """The kind of answer that this leg has."""
        return self.kinds[self.leg % LEGS]

    @property
    def done(self) -> bool:
        """Whether all columns have their constants, and it is known where they are odd."""
        return len(self.centres) == len(self.columns) and self.leg % LEGS == 0

    def checked(self, sender: int, answer: Any) -> Any:
        """Refuses sums that cannot be."""
        if isinstance(answer, Odd):
            return answer
        if not answer.rows > 0 or (answer.squares < 0).any():
            raise RemoteFault(f"sums of columns over {answer.rows:g} rows, or of squares, cannot be below 0")
        if self.leg % LEGS and answer.rows != self.rows:
            raise RemoteFault(f"sums over {answer.rows:g} rows, and before over {self.rows:g}")
        return answer

    def combined(self, answers: list[Any]) -> tuple[Server, ServerEffects]:
        """Asks the next leg, or tells a block's constants."""
        (answer,), leg = answers, self.leg + 1
        if isinstance(answer, Odd):
            state, question = _compared(self, answer).ask(AskColumnSums(leg, np.zeros(WIDTH)))
            if state.done:
                return state, []
            return state, question
        if leg % LEGS == 1:
            means = answer.sums / answer.rows
            return self.ask(AskColumnSums(leg, means), rows=answer.rows, means=means)
        about = zip(self.means.tolist(), answer.sums.tolist(), answer.squares.tolist())
        centres, scales = (np.array(part) for part in zip(*(standardise(*sums, self.rows) for sums in about)))
        n = min(WIDTH, len(self.columns) - len(self.centres))
        known = {"centres": (*self.centres, *centres[:n].tolist()), "scales": (*self.scales, *scales[:n].tolist())}
        return self.ask(ColumnScales(leg, self.rows, centres, scales), **known)


def blocks(columns: tuple[str, ...]) -> int:
    """Returns in how many blocks they are asked for; 1 where there are none."""
    return max(-(-len(columns) // WIDTH), 1)


def start(columns: tuple[str, ...], n_clients: int) -> tuple[Server, ServerEffects]:
    """Returns the server's first state and its question, to all clients as one."""
    question = once.ask(1, AskColumnSums(0, np.zeros(WIDTH))) if columns else []
    return Server((ALL,), columns, n_clients), question


def _compared(state: Server, odd: Odd) -> Server:
    """Returns the state with findings on the columns of a block that are odd somewhere."""
    found = list[Finding]()
    done = (len(state.centres) - 1) // WIDTH * WIDTH
    counts = np.stack([odd.notes, odd.doubts, odd.larger], axis=1).tolist()
    for name, (some, sure, larger) in zip(state.columns[done:], counts):
        of = {"column": f"column {name!r}", "owner": name, "remedies": ["declare-column"]}
        if is_doubt(sure, larger):
            found.append(Finding.of("column-in-another-unit-somewhere", **of))
        elif some:
            found.append(Finding.of("column-odd-somewhere", n=int(some), m=state.n_clients, **of))
    return replace(state, found=(*state.found, *found))


def client_receive(state: Client, event: Event) -> tuple[Client, ClientEffects]:
    """Answers with its sums, or keeps a block's constants. Raises OwnFault: values of a column are too large, or too small, to be
    added without loss of a digit. Raises RemoteFault: the message cannot be."""
    done = len(state.centres)
    block = state.columns[done : done + WIDTH]
    _check(state, event)
    state = replace(state, leg=state.leg + 1)
    if isinstance(event, ColumnScales):
        centres, scales = event.centres[: len(block)], event.scales[: len(block)]
        state, odd = _odd_columns(state, block, event)
        state = replace(state, centres=(*state.centres, *centres.tolist()), scales=(*state.scales, *scales.tolist()))
        return state, [cast(Message, odd)]
    assert isinstance(event, AskColumnSums)
    sums, squares = _moments(state, block, event.means)
    if event.round % LEGS == 0:
        _refuse_cells(state, block, sums)
        squares = np.zeros(len(block))  # about 0 they may be too large, and nobody needs them
    rest = np.zeros(WIDTH - len(block))
    answer = ColumnSums(event.round, float(state.summary.n_rows), *(np.concatenate([part, rest]) for part in (sums, squares)))
    return state, [cast(Message, answer)]


def _check(state: Client, event: Event) -> None:
    """Raises RemoteFault where the server asks, or says, what none can: all clients know so alike."""
    good = isinstance(event, (AskColumnSums, ColumnScales)) and event.round == state.leg
    good, numbers = good and len(state.centres) < len(state.columns), np.zeros(1)
    if isinstance(event, ColumnScales):
        good = good and state.leg % LEGS == 2 and event.rows >= 1
        numbers = np.concatenate([event.centres, event.scales, 1 / np.maximum(_positive(event.scales), 1e-300)])
    elif isinstance(event, AskColumnSums):
        good = good and (state.leg % LEGS == 1 or (state.leg % LEGS == 0 and not event.means.any()))
        numbers = event.means
    good = good and bool((np.abs(numbers) <= LARGEST_CELL).all())
    if not good:
        raise RemoteFault(f"server: {type(event).__name__} was not expected, or has a number that cannot be")


def _positive(scales: Array) -> Array:
    """Returns scales, 1 of a column of one value, which has none."""
    return np.where(scales == 0, 1.0, scales)


def _moments(state: Client, block: tuple[str, ...], centres: Array) -> tuple[Array, Array]:
    """Returns sums of a block's columns about these centres, and of the squares."""
    names = [name for name, kind in zip(state.summary.names, state.summary.kinds) if kind == "numeric"]
    places = [names.index(name) for name in block]
    about = np.zeros(len(names))
    about[places] = centres[: len(block)]
    # All columns at once, as in a job without masks: the bits of a sum may depend on how many columns are added beside it.
    sums, squares = moments(state.summary, about)
    return sums[places], squares[places]


def _odd_columns(state: Client, block: tuple[str, ...], scales: ColumnScales) -> tuple[Client, Odd]:
    """Compares a client's columns with those of all others together; returns its state with notes, and the answer."""
    n, notes, odd = float(state.summary.n_rows), list[str](), np.zeros((3, WIDTH))
    both, sizes = (state.name, OTHERS), np.array([n, max(scales.rows - n, 0.0)])
    sums, squares = _moments(state, block, scales.centres)
    others = np.maximum(scales.rows * _positive(scales.scales)[: len(block)] ** 2 - squares, 0.0)
    for j, name in enumerate(block):
        # All rows together have no deviation from their centre.
        two = np.array([[sums[j]], [-sums[j]]]), np.array([[squares[j]], [others[j]]])
        pair = Facts(both, (Column(name),), sizes, scales.centres[j : j + 1], *two, state.spec.derived)
        findings, (mean, theirs), (variance, their_variance) = compare(pair), *(moment[:, 0].tolist() for moment in pair.moments)
        doubt = any(finding.doubt for finding in findings)
        of_client = doubt and is_of_client(mean, variance, theirs, their_variance)
        odd[:, j] = bool(findings), of_client, doubt and variance > their_variance
        notes += findings
    return replace(state, notes=(*state.notes, *notes)), Odd(scales.round, *odd)


def _refuse_cells(state: Client, block: tuple[str, ...], sums: Array) -> None:
    """Raises OwnFault for a column whose cells are too large, or too small, for sums without loss; no number of others enters."""
    cells = state.summary.numeric
    assert cells is not None
    names = [name for name, kind in zip(state.summary.names, state.summary.kinds) if kind == "numeric"]
    largest = np.abs(np.asarray(cells)[:, [names.index(name) for name in block]]).max(axis=0, initial=0.0)
    for j in np.flatnonzero(~(holds(sums, ONCE, state.n_clients) & (largest <= LARGEST_CELL))):
        column, who = block[int(j)], f"client {state.name!r}"
        openly = name_openly(column, state.summary.names, state.spec)
        raise OwnFault(f"{who}: {openly}: its values {TOO_MUCH}", f"{who}: column {column!r}: its values {TOO_MUCH}")


def with_constants(columns: tuple[Column, ...], ended: Server | Client) -> tuple[Column, ...]:
    """Returns the columns with the constants that were found."""
    constants = zip(ended.columns, ended.centres, ended.scales)
    found = {name: (centre, scale) for name, centre, scale in constants}
    return tuple(column.scaled(*found[column.name]) if column.name in found else column for column in columns)


def protocol() -> Protocol[Server, Client]:
    """Returns the protocol before it is masked, in which bare sums travel: a run has it with masks alone."""
    return legs.protocol("column-sums", Server, (AskColumnSums, ColumnScales), (ColumnSums, Odd), client_receive)
