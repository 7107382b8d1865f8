"""Finds slips in the clients' columns from the numbers that they tell alone: levels, numbers of rows and sums of numeric columns.

Such slips are: levels that differ in capitals or blanks alone; a column that is coded 0 and 1 at one client and 1 and 2 at
another; a scale of ordered levels that begins at another number at a client; a column that is in another unit at a client
(`spreads`, `centres`), or has a cell there that is so wrong that it makes the client's standard deviation; a column that has
one value at a client, far from all that others have (`constants`); and one file at two clients. A sure slip is a
doubt, with which no result can stand; any other is a note.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...models.encoding import Column
from . import centres, constants, spreads

Array = NDArray[np.float64]
Said = tuple[tuple[str, ...], tuple[str, ...]]  # notes, and why the result cannot stand

LARGEST_CODE = 10  # of a column with two neighbouring whole numbers
SHOWN = 4  # clients, or levels, in a note
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
SAME = 1e-12  # of a sum, by which the order of rows moves it
SAME_RESPONSE = 1e-9  # the same of a sum of responses, of which some cancel
STEPS = (1000.0, 100.0, 10.0, 5.0, 1.0, 0.5, 0.1, 0.01, 0.001)  # of which a column's cells may be multiples
OF_TWO = 20  # rows of a client in which a third value would be seen
CODE_ALIKE = "code it alike in the files, for the model takes what is written"
RIGHT = "where it is right so, give center and scale of it in [data.columns.{}], and nothing more is said"
DIGITS = 1e-9  # as often, at most, two clients have the same sums of cells with many digits
BY_CHANCE = 1e-3  # as often at most clients with different files may be taken for one
NOISE = 1e-9  # what rounding leaves of such a column's variance
ROUNDED = 1e-13  # of a sum, that it loses
AWAY = 2.0  # standard deviations of all others together, from which on no one of them makes a mean look odd


# Levels --------------------


def of_levels(columns: Sequence[Column], told: Mapping[str, Sequence[Sequence[str]]], clients: Sequence[str]) -> Said:
    """Returns notes on a column's levels that are spelled in several ways, and on clients none of whose levels another has.

    Levels that are one number are doubts.

    Parameters
    ----------
    columns : with their levels
    told : name of a column -> each client's levels
    """
    notes, doubts = list[str](), list[str]()
    for column in columns:
        # First, levels that differ in spelling alone.
        for same in spellings(column.levels or ()):
            said = (
                f"column {column.name!r}: the levels {', '.join(map(repr, same[:SHOWN]))} {one_but_for(same)}, "
                "and are taken for different ones: write them alike in the files"
            )
            (doubts if isinstance(_read(same[0]), float) else notes).append(said)
        orders = [list(own) for own in told[column.name] if list(own) != sorted(own)]
        if any([level for level in column.levels or () if level in own] != own for own in orders):
            notes.append(
                f"column {column.name!r}: tables give its levels orders that do not agree, or that lack some of them, so that "
                "levels are sorted: name the one that others are compared with (reference)"
            )
        # Then clients that share no level with any other, though others have some.
        sets = [set(levels) for levels in told[column.name]]
        alone = [
            client
            for k, (client, own) in enumerate(zip(clients, sets))
            if own and any(sets[:k] + sets[k + 1 :]) and not own & set().union(*sets[:k], *sets[k + 1 :])
        ]
        if alone:
            notes.append(
                f"column {column.name!r}: no level at {_some(alone)} occurs at another client, so its effects cannot be told "
                "from differences between clients: are the levels written alike?"
            )
    return tuple(notes), tuple(doubts)


def spellings(levels: Iterable[str]) -> list[list[str]]:
    """Returns groups of levels that are one but for capitals and blanks, or for how a number is written."""
    groups: dict[str | float, list[str]] = {}
    for level in levels:
        groups.setdefault(_read(level), []).append(level)
    return [same for same in groups.values() if len(same) > 1]


def one_but_for(same: Sequence[str]) -> str:
    """Says how levels of one spelling differ."""
    return "are one number" if isinstance(_read(same[0]), float) else "differ in capitals or blanks alone"


def _read(level: str) -> str | float:
    """Returns a level as a number if it is one, else without capitals and blanks."""
    text = "".join(level.casefold().split())
    try:
        number = float(text.replace(",", ".", 1) if DECIMAL_COMMA.fullmatch(text) else text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text


ENDS = 8.0  # rows that a client's shares make the others have of a level that they lack, and theirs make it: e^-8 have none
NEARER = 0.5  # times as far, at most, the shares are from the others' where they are moved


def of_ends(column: str, levels: Sequence[str], clients: Sequence[str], numbers: Array) -> str:
    """Returns a doubt about a client whose ordered levels are the others', moved by one or more; "" where none is.

    It lacks levels at one end that all others together have, and has as many at the other end that none of them has, as a scale
    from 1 on beside one from 0 on. Patients who are worse make shares that are nearer to the others' where they are not moved.

    Parameters
    ----------
    numbers : (m, K) of each client's rows of each level
    """
    found = list[str]()
    for k, client in enumerate(clients):
        rest = numbers.sum(axis=0) - numbers[k]
        for low, high in ((numbers[k], rest), (rest, numbers[k])):  # whose levels are the lower ones
            by = _moved(low, high)
            if by:
                found.append(client)
    if not found or len(found) > 2 or (len(found) == 2 and len(clients) > 2):
        return ""
    who = " or ".join(map(repr, sorted(set(found))))
    return (
        f"column {column!r}: at {who} levels are missing at one end that the others have, and at "
        f"the other end it alone has some: does its scale ({levels[0]} to {levels[-1]}) begin at another number? correct the file"
    )


def _moved(low: Array, high: Array) -> int:
    """Returns by how many levels the rows of `high` seem to be moved up beside those of `low`; 0 where they are not."""
    if not (low.any() and high.any()):
        return 0
    by, above = int(np.flatnonzero(high)[0]), len(low) - 1 - int(np.flatnonzero(low)[-1])
    if not by or by != above or by >= len(low) - 1:
        return 0
    missing = low[:by].sum() / low.sum() * high.sum(), high[len(high) - by :].sum() / high.sum() * low.sum()
    if min(missing) < ENDS:
        return 0
    return by if _apart(low, np.roll(high, -by)) < NEARER * _apart(low, high) else 0


def _apart(one: Array, other: Array) -> float:
    """Returns the mean distance of the cumulative logits of two clients' levels."""
    cumulative = (np.cumsum(numbers + 0.5)[:-1] / (numbers + 0.5).sum() for numbers in (one, other))
    first, second = (np.log(share / (1 - share)) for share in cumulative)
    return float(np.abs(first - second).mean())


# Sums --------------------


@dataclass(frozen=True)
class Sums:
    """Holds the sums of m clients' p numeric columns.

    Attributes
    ----------
    clients, columns : (m,), (p,)
    sizes : (m,) numbers of rows
    centre : (p,) the pooled means that they were told
    sums, squares : (m, p) of deviations from these, and of their squares
    derived : columns that a formula makes of several, as products, of which no unit or code is asked
    """

    clients: tuple[str, ...]
    columns: tuple[Column, ...]
    sizes: Array
    centre: Array
    sums: Array
    squares: Array
    derived: frozenset[str] = frozenset()

    @cached_property
    def moments(self) -> tuple[Array, Array]:
        """(m, p) Means and variances; of a client without rows a mean of nan, and 0."""
        n = self.sizes[:, np.newaxis]
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            shift = self.sums / n
            means = self.centre + shift
            return means, spreads.variances(means, shift, self.squares / n)


def of_units(told: Sums) -> Said:
    """Returns the notes and doubts of numeric columns, but for those on clients with one file (`find_twins`)."""
    (coded, other_codes), (notes, doubts) = _coded_apart(told), _compared(told)
    return (*coded, *notes), (*other_codes, *doubts)


def is_of_client(mean: float, variance: float, their_mean: float, their_variance: float) -> bool:
    """Tells whether a doubt about a client beside all others together is one of the client, and not of one of the others.

    Sites whose means differ vary more together than each, and one that is far from the others makes them do so for all but
    itself. So where others vary more that is the client's only if its mean and its standard deviation are the same part
    of theirs, as another unit makes them; or if the standard deviations are so far apart that no differences of hospitals make
    them so, and its mean is away from theirs by more of their standard deviations than one of them can bring about (1, if that
    one has half of their rows).
    """
    if spreads.APART * variance > their_variance:
        return True
    if not variance > 0:
        return True  # a doubt about a column with one value (`constants`) is of this client
    wider = math.sqrt(their_variance / variance)
    same = mean * their_mean > 0 and 1 / centres.ALIKE <= their_mean / mean / wider <= centres.ALIKE
    return same or (wider > spreads.CERTAIN and (mean - their_mean) ** 2 > AWAY**2 * their_variance)


def _two_neighbours(mean: float, variance: float) -> int | None:
    """Returns the lower of the two neighbouring whole numbers that are all values of a column, or None if it has others.

    Among whole numbers with a mean m between a and a + 1 these two alone have the variance (m - a) (a + 1 - m), and others a
    larger one.
    """
    if not variance > NOISE or abs(mean) > LARGEST_CODE:
        return None
    low = math.floor(mean)
    return low if abs(variance - (mean - low) * (low + 1 - mean)) <= NOISE else None


def _coded_apart(told: Sums) -> Said:
    """Returns notes on columns of two neighbouring whole numbers that are not the same two at all clients.

    It is a doubt where these are 0 and 1 at some, 1 and 2 at others, and nobody has a third value: what is counted, or graded,
    has some. Few rows may lack one, and the job file may say what the values are.
    """
    means, variances = told.moments
    notes, doubts = list[str](), list[str]()
    for column, mean, variance in zip(told.columns, means.T, variances.T):
        clients_of: dict[int, list[str]] = {}
        larger, others = set[int](), False
        for client, n, *both in zip(told.clients, told.sizes.tolist(), mean.tolist(), variance.tolist()):
            low = _two_neighbours(*both)
            if low is not None:
                clients_of.setdefault(low, []).append(client)
                larger |= {low} if n >= OF_TWO else set()
            elif n and not (both[1] <= NOISE and 0 <= both[0] <= 2):  # one value may be one of the two
                others = True
        if len(clients_of) < 2 or column.center is not None or column.name in told.derived:
            continue
        said = [f"{low} and {low + 1} at {_some(clients)}" for low, clients in sorted(clients_of.items())]
        words = f"column {column.name!r} has two values, and not the same two at all clients: {'; '.join(said)}; "
        sure = set(clients_of) == larger == {0, 1} and not others
        (doubts if sure else notes).append(f"{words}{CODE_ALIKE}; {RIGHT.format(column.name)}")
    return tuple(notes), tuple(doubts)


def find_twins(told: Sums) -> list[tuple[int, ...]]:
    """Finds clients that may have one file: as many rows, and the same sums of every numeric covariate but for rounding.

    Rows in another order give other last digits. Columns of a few whole numbers may have the same sums by chance: so many columns
    are needed that chance makes no two clients alike. Clients that repeat one design are told apart by their responses, which are
    not told here (`with_one_response`), or by center and scale in the job file: columns that have these are left out.
    """
    open_ones = [at for at, column in enumerate(told.columns) if column.center is None]
    n, (means, variances) = told.sizes[:, np.newaxis], (part[:, open_ones] for part in told.moments)
    sums, squares = told.sums[:, open_ones], told.squares[:, open_ones]
    size = np.sqrt(n * squares)  # of the sum of absolute deviations, at most
    groups = list[list[int]]()
    for k in np.flatnonzero(told.sizes > 0).tolist():
        for group in groups:
            first = group[0]
            near = (np.abs(sums[k] - sums[first]) <= SAME * size[k]) & (np.abs(squares[k] - squares[first]) <= SAME * squares[k])
            if told.sizes[k] == told.sizes[first] and near.all():
                group.append(k)
                break
        else:
            groups.append([k])
    alike = [group for group in groups if len(group) > 1]
    there = told.sizes > 0
    both = (n * means)[there].T, (n * (variances + means**2))[there].T
    steps = [_step(*column) for column in zip(*both)] if alike else []
    found = list[tuple[int, ...]]()
    for group in alike:
        k, pairs = group[0], len(told.sizes) ** 2 / 2
        one = zip(steps, means[k].tolist(), variances[k].tolist())
        if pairs * math.prod(_chance(float(told.sizes[k]), *column) for column in one) <= BY_CHANCE:
            found.append(tuple(group))
    return found


def with_one_response(group: Sequence[int], answers: Sequence[tuple[float, float]]) -> Iterator[tuple[int, ...]]:
    """Yields those of clients with the same covariates that have the same sums of the response, too.

    Parameters
    ----------
    answers : of all clients, two sums over the responses each (`level`)
    """
    left = list(group)
    while left:
        first = answers[left[0]]
        same = [k for k in left if all(math.isclose(*pair, rel_tol=SAME_RESPONSE) for pair in zip(answers[k], first))]
        if len(same) > 1:
            yield tuple(same)
        left = [k for k in left if k not in same]


def describe_twins(clients: Sequence[str], group: Sequence[int]) -> str:
    """Returns the doubt about clients that may have one file."""
    names = [clients[k] for k in group]
    who = " and ".join(map(repr, names[:SHOWN])) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
    return (
        f"clients {who} have as many rows, and the same sums of every numeric covariate: where that is "
        "one file twice, its rows count twice; leave one out. Where they repeat one design with responses of their own, "
        "give center and scale of its columns in [data.columns], and nothing more is said"
    )


def _step(sums: Array, squares: Array) -> float | None:
    """Returns the largest step of which all clients' sums are multiples, and those of the squares multiples of its square.

    None: of none of them, as those of cells with many digits.
    """
    for step in STEPS:
        both = np.concatenate([sums / step, squares / step**2])
        if (np.abs(both - np.round(both)) <= NOISE + ROUNDED * np.abs(both)).all():
            return step
    return None


def _chance(n: float, step: float | None, mean: float, variance: float) -> float:
    """Returns about how often two clients' sums of a column, and of its squares, are the same by chance.

    Sums of n cells that are multiples of a step are such multiples with a normal distribution. The squares of two neighbouring
    ones tell nothing else.
    """
    if not variance > 0:
        return 1.0
    if step is None:
        return DIGITS
    sd = math.sqrt(variance) / step
    one = min(1.0, 1 / (2 * sd * math.sqrt(math.pi * n)))
    if _two_neighbours(mean / step % 2, variance / step**2) is not None:
        return one
    return one * min(1.0, 1 / (2 * sd**2 * math.sqrt(2 * math.pi * n)))


def _compared(told: Sums) -> Said:
    """Returns notes and doubts on columns whose standard deviation or mean at some client is not that at the others.

    Left out are columns of two values, for their variance is that of a share, and those whose center and scale the job file
    gives: these define ordinary values.
    """
    (means, variances), degrees = told.moments, np.maximum(told.sizes - 1, 0)
    lines, doubts = list[str](), list[str]()
    for column, mean, own in zip(told.columns, means.T, variances.T):
        two = any(_two_neighbours(*both) is not None for both in zip(mean.tolist(), own.tolist()))
        if column.center is not None or two or column.name in told.derived:
            continue
        what = f"column {column.name!r}"
        right = RIGHT.format(column.name)
        remedy = f"; {_as_code(column.name)}{right}" if _are_whole(told.sizes, mean, own) else f"; {right}"
        spread = spreads.compare_spreads(own * degrees, degrees)
        lines += spreads.notes(spread, what, told.clients, remedy)
        with np.errstate(divide="ignore", invalid="ignore"):
            sure = spreads.certain(spread, mean / np.sqrt(own))
        moved = centres.compare_centres(mean, own, degrees, ~spread.odd)
        lines += centres.notes(moved, what, told.clients, remedy)
        single = constants.find_constants(mean, own, degrees)
        lines += constants.notes(single, what, told.clients, right)
        found = (
            spreads.doubt(spread, sure, what, told.clients),
            centres.doubt(moved, what, told.clients),
            constants.doubt(single, what, told.clients),
        )
        doubts += filter(None, found)
    return tuple(lines), tuple(doubts)


def _are_whole(n: Array, means: Array, variances: Array) -> bool:
    """Tells whether a column's cells are whole numbers, by its clients' means and variances: their sums are, and those of
    squares.
    """
    told = np.concatenate([n * means, n * (variances + means**2)])[np.tile(n > 0, 2)]
    return bool((np.abs(told - np.round(told)) <= NOISE + ROUNDED * np.abs(told)).all())


def _as_code(name: str) -> str:
    return (
        "its cells are whole numbers: where they are a code (of a ward, say), no unit of theirs is meant, and no slope: give it "
        f'kind = "categorical" in [data.columns.{name}], or, of method = "likelihood", make it the group of [model.random]; '
    )


def _some(clients: Sequence[str]) -> str:
    return ", ".join(clients[:SHOWN]) + (f" and {len(clients) - SHOWN} more" if len(clients) > SHOWN else "")
