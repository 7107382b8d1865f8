"""Compares the facts that clients tell of their columns, and says which slips are seen in them.

Slips are: levels that differ in capitals or blanks alone; a column that is coded 0 and 1 at one client and 1 and 2 at another; a
scale of ordered levels that begins at another number; a column that is in another unit at a client, or has a cell there that is
so wrong that it makes the client's standard deviation; one that has one value at a client, far from all that others have; and
one file at two clients. A sure slip is a doubt, with which no result can stand; any other is a note (`fedkern/findings.toml`).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...arrays import Array
from ...finding import Finding, Value
from ...labels import OTHER, in_order
from ...models.encoding import Column
from ...printing import listed
from . import apart
from .apart import Apart

SHOWN = 10  # rows of a client whose mean and standard deviation stand in the table
LARGEST_CODE = 10  # of a column with two neighbouring whole numbers
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
SAME = 1e-12  # of a sum, by which the order of rows moves it
SAME_RESPONSE = 1e-9  # the same of a sum of responses, of which some cancel
STEPS = (1000.0, 100.0, 10.0, 5.0, 1.0, 0.5, 0.1, 0.01, 0.001)  # of which a column's cells may be multiples
OF_TWO = 20  # rows of a client in which a third value would be seen
DIGITS = 1e-9  # as often, at most, two clients have the same sums of cells with many digits
BY_CHANCE = 1e-3  # as often at most clients with different files may be taken for one
NOISE = 1e-9  # what rounding leaves of such a column's variance
ROUNDED = 1e-13  # of a sum, that it loses
ENDS = 8.0  # rows that a client's shares make the others have of a level that they lack, and theirs make it: e^-8 have none
NEARER = 0.5  # times as far, at most, the shares are from the others' where they are moved
AWAY = 2.0  # standard deviations of all others together, from which on no one of them makes a mean look odd


@dataclass(frozen=True)
class Facts:
    """Holds the facts of m clients' columns, p of them numeric, as the server has them."""

    # clients, columns: (m,), (p,)
    clients: tuple[str, ...]
    columns: tuple[Column, ...] = ()
    sizes: Array = field(default_factory=lambda: np.zeros(0))  # (m,) numbers of rows
    centre: Array = field(default_factory=lambda: np.zeros(0))  # (p,) the pooled means that they were told
    # sums, squares: (m, p) of deviations from these, and of their squares
    sums: Array = field(default_factory=lambda: np.zeros((0, 0)))
    squares: Array = field(default_factory=lambda: np.zeros((0, 0)))
    # columns that a formula makes of several, as products, of which no unit or code is asked
    derived: frozenset[str] = frozenset()
    # of each categorical column that the job file does not declare, and each client's
    levels: tuple[tuple[Column, tuple[tuple[str, ...], ...]], ...] = ()

    @cached_property
    def moments(self) -> tuple[Array, Array]:
        """(m, p) Means and variances; of a client without rows a mean of nan, and 0."""
        n = self.sizes[:, np.newaxis]
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            shift = self.sums / n
            means = self.centre + shift
            return means, variances(means, shift, self.squares / n)


def variances(means: Array, shifts: Array, squares: Array) -> Array:
    """Returns variances from means, their `shifts` from a centre, and mean squares about it; 0 of what rounding leaves."""
    central = squares - shifts**2
    return np.where((central > (1e-14 * means) ** 2) & (central > 1e-10 * squares), central, 0.0)


def by_client(column: str, clients: Sequence[str], n: Array, means: Array, variances: Array) -> list[dict[str, Value]]:
    """Returns a table's rows of a column: of each client the number of rows and, where these are enough, mean and sd."""
    rows = list[dict[str, Value]]()
    for client, number, mean, variance in zip(clients, n.tolist(), means.tolist(), variances.tolist()):
        both = (float(f"{mean:.4g}"), float(f"{math.sqrt(variance):.4g}")) if number >= SHOWN else (None, None)
        rows.append({"column": column, "client": client, "rows": int(number), "mean": both[0], "sd": both[1]})
    return rows


def table_of(facts: Facts) -> list[dict[str, Value]]:
    """Returns the table "columns by client" of numeric columns."""
    shown = [(j, column.name) for j, column in enumerate(facts.columns) if column.name not in facts.derived]
    moments = {j: [part[:, j] for part in facts.moments] for j, _ in shown}
    return [row for j, name in shown for row in by_client(name, facts.clients, facts.sizes, *moments[j])]


def flagged(table: Sequence[Mapping[str, Value]], findings: Iterable[object]) -> list[dict[str, Value]]:
    """Returns a table's rows with `flag`: the ids of findings on a column of a client; "" where there is none."""
    flags: dict[tuple[object, object], list[str]] = {}
    for finding in findings:
        if isinstance(finding, Finding) and isinstance(clients := finding.values.get("clients"), Sequence):
            for client in clients:
                flags.setdefault((finding.values.get("owner", finding.values.get("column")), client), []).append(finding.id)
    return [{**row, "flag": ", ".join(flags.get((row["column"], row["client"]), ()))} for row in table]


def compare(facts: Facts) -> list[Finding]:
    """Returns what the facts of columns say, but for clients with one file (`find_twins`).

    Left out are numeric columns of which the job file gives center and scale: these define ordinary values.
    """
    found = [finding for column, levels in facts.levels for finding in of_levels(column, levels, facts.clients)]
    for j, column in enumerate(facts.columns):
        if column.center is None and column.name not in facts.derived:
            found += _of_numbers(column.name, facts, *(part[:, j] for part in facts.moments))
    return found


def _of_numbers(name: str, facts: Facts, means: Array, variances: Array) -> Iterator[Finding]:
    """Yields what is odd about one numeric column."""
    lower = [_two_neighbours(*both) for both in zip(means.tolist(), variances.tolist())]
    if any(low is not None for low in lower):  # the variance is that of a share
        yield from _of_codes(name, facts, lower, means, variances)
        return
    whole = _are_whole(facts.sizes, means, variances)
    remedies = ["as-category", "declare-column"] if whole else ["declare-column"]
    yield from of_column(f"column {name!r}", facts.clients, facts.sizes, means, variances, remedies, owner=name)
    single = apart.with_one_value(means, variances, np.maximum(facts.sizes - 1, 0))
    if single.any():
        where = [client for client, constant in zip(facts.clients, single) if constant]
        yield Finding.of("column-of-one-value", column=f"column {name!r}", clients=where, owner=name, remedies=["declare-column"])


def of_column(
    column: str, clients: Sequence[str], n: Array, means: Array, variances: Array, remedies: Sequence[str], *, owner: str
) -> Iterator[Finding]:
    """Yields what is odd about a column's standard deviations and means.

    Parameters
    ----------
    column : in words, as `"column 'age'"`
    n, means, variances : (m,) numbers of cells (0 where a client is not compared), and moments
    remedies, owner : what can be done where it is right so, and the column that it is done to
    """
    spread, moved = _moments(n, means, variances)
    yield from _said(spread, clients, "column-varies-otherwise", "column-in-another-unit", column, remedies, owner)
    yield from _said(moved, clients, "column-elsewhere", "column-in-a-far-unit", column, remedies, owner)


def of_response(column: str, clients: Sequence[str], n: Array, means: Array, variances: Array, *, linear: bool) -> list[Finding]:
    """Returns what is odd about a measured response.

    In a heavy-tailed one (not `linear`) one wrong cell makes an odd spread, and the model bears it: that is worth a note, and no
    doubt.
    """
    spread, moved = _moments(n, means, variances, heavy=not linear)
    doubt = "response-varies-otherwise" if not linear else "response-or-errors"
    ways = (column, ["job-of-its-own"], column)
    found = [*_said(spread, clients, "response-varies-otherwise", doubt, *ways)]
    return [*found, *_said(moved, clients, "column-elsewhere", "column-in-a-far-unit", *ways)]


def _moments(n: Array, means: Array, variances: Array, *, heavy: bool = False) -> tuple[Apart, Apart]:
    """Compares standard deviations, and the means of clients in which these are alike; where `heavy` of all."""
    degrees = np.maximum(n - 1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = apart.compare_spreads(variances * degrees, degrees, means)
    return spread, apart.compare_means(means, variances, degrees, ~spread.odd | heavy)


def _said(
    found: Apart, clients: Sequence[str], note: str, doubt: str, column: str, remedies: Sequence[str], owner: str
) -> Iterator[Finding]:
    """Yields a finding on the clients that are surely odd, and one on the others that are odd."""
    for id, those in ((doubt, found.sure), (note, found.odd & ~found.sure)):
        if those.any():
            k, where = (
                int(np.argmax(np.where(those, np.abs(found.off), -1.0))),
                [client for client, odd in zip(clients, those) if odd],
            )
            of = {"column": column, "others": found.others(clients), "times": apart.in_words(float(found.times[k]))}
            yield Finding.of(id, **of, clients=where, sds=float(found.off[k]), owner=owner, remedies=remedies)


def is_of_client(mean: float, variance: float, their_mean: float, their_variance: float) -> bool:
    """Tells whether a doubt about a client beside all others together is one of the client, and not of one of the others.

    Sites whose means differ vary more together than each, and one that is far from the others makes them do so for all but
    itself. So where others vary more that is the client's only if its mean and its standard deviation are the same part
    of theirs, as another unit makes them; or if the standard deviations are so far apart that no differences of hospitals make
    them so, and its mean is away from theirs by more of their standard deviations than one of them can bring about (1, if that
    one has half of their rows).
    """
    if apart.APART * variance > their_variance:
        return True
    if not variance > 0:
        return True  # a doubt about a column with one value is of this client
    wider = math.sqrt(their_variance / variance)
    same = mean * their_mean > 0 and 1 / apart.ALIKE <= their_mean / mean / wider <= apart.ALIKE
    return same or (wider > apart.MANIFOLD and (mean - their_mean) ** 2 > AWAY**2 * their_variance)


def _two_neighbours(mean: float, variance: float) -> int | None:
    """Returns the lower of the two neighbouring whole numbers that are all values of a column, or None if it has others.

    Among whole numbers with a mean m between a and a + 1 these two alone have the variance (m - a) (a + 1 - m), and others a
    larger one.
    """
    if not variance > NOISE or abs(mean) > LARGEST_CODE:
        return None
    low = math.floor(mean)
    return low if abs(variance - (mean - low) * (low + 1 - mean)) <= NOISE else None


def _of_codes(name: str, facts: Facts, lower: Sequence[int | None], means: Array, variances: Array) -> Iterator[Finding]:
    """Yields a finding on a column of two neighbouring whole numbers that are not the same two at all clients.

    It is a doubt where these are 0 and 1 at some, 1 and 2 at others, and nobody has a third value: what is counted, or graded,
    has some. Few rows may lack one, and the job file may say what the values are.
    """
    enough = {low for low, n in zip(lower, facts.sizes) if low is not None and n >= OF_TWO}
    others = [low is None for low in lower] & (facts.sizes > 0) & ~((variances <= NOISE) & (means >= 0) & (means <= 2))
    # Few rows of a column with a third value may well have two of them.
    lower = [low if n >= OF_TWO or not others.any() else None for low, n in zip(lower, facts.sizes)]
    pairs = sorted({low for low in lower if low is not None})
    if len(pairs) < 2:
        return
    where = [[who for who, low in zip(facts.clients, lower) if low == pair] for pair in pairs]
    codes = [f"{pair} and {pair + 1} at {listed(clients, apart.SHOWN)}" for pair, clients in zip(pairs, where)]
    sure = pairs == [0, 1] and enough == {0, 1} and not others.any()
    id = "column-coded-otherwise" if sure else "column-of-other-values"
    yield Finding.of(id, column=f"column {name!r}", codes=codes, owner=name, remedies=["declare-column"])


def _are_whole(n: Array, means: Array, variances: Array) -> bool:
    """Tells whether a column's cells are whole numbers, by its clients' moments: their sums are, and those of squares."""
    totals = np.concatenate([n * means, n * (variances + means**2)])[np.tile(n > 0, 2)]
    return bool((np.abs(totals - np.round(totals)) <= NOISE + ROUNDED * np.abs(totals)).all())


# Levels --------------------


def of_levels(column: Column, of_clients: Sequence[Sequence[str]], clients: Sequence[str]) -> Iterator[Finding]:
    """Yields what is odd about a column's levels; `of_clients`: each client's."""
    name, levels = column.name, column.levels or ()
    yield from spelled([column], of_clients)
    orders = [list(order) for order in of_clients if list(order) != in_order(order)]
    if any([level for level in levels if level in order] != order for order in orders):
        yield Finding.of("levels-in-other-orders", column=name)
    # Clients that share no level with any other, though others have some. A column that names the clients has one at each. What
    # has joined (`OTHER`) may be what others have.
    sets = [set(held) for held in of_clients]
    # Numbers are written in one way, but for what `spelled` finds.
    if all(len(held) <= 1 for held in sets) or all(_is_number([level]) for level in levels):
        return
    others = [set().union(*sets[:k], *sets[k + 1 :]) for k in range(len(sets))]
    unlike = (bool(held and rest) and not (held & rest or OTHER in held | rest) for held, rest in zip(sets, others))
    if alone := [client for client, differs in zip(clients, unlike) if differs]:
        yield Finding.of("levels-of-nobody-else", column=name, clients=alone)


def spelled(columns: Iterable[Column], of_clients: Sequence[Sequence[str]] = ()) -> Iterator[Finding]:
    """Yields findings on levels of columns that may be one; a client that has both 1.1 and 1.10 means two (`of_clients`)."""
    for column in columns:
        for same in spellings(column.levels or ()):
            if not _is_number(same):
                yield Finding.of("levels-spelled", column=column.name, levels=same)
            elif not any({*same} <= {*names} for names in of_clients):
                yield Finding.of("levels-of-one-number", column=column.name, levels=same)


def spellings(levels: Iterable[str]) -> list[list[str]]:
    """Returns groups of levels that are one but for capitals and blanks, or for how a number is written."""
    groups: dict[str | float, list[str]] = {}
    for level in levels:
        groups.setdefault(_read(level), []).append(level)
    return [same for same in groups.values() if len(same) > 1]


def one_but_for(same: Sequence[str]) -> str:
    """Says how levels of one spelling differ."""
    return "are one number" if _is_number(same) else "differ in capitals or blanks alone"


def _is_number(same: Sequence[str]) -> bool:
    return isinstance(_read(same[0]), float)


def _read(level: str) -> str | float:
    """Returns a level as a number if it is one, else without capitals and blanks."""
    text = "".join(level.casefold().split())
    try:
        number = float(text.replace(",", ".", 1) if DECIMAL_COMMA.fullmatch(text) else text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text


def of_ends(column: str, levels: Sequence[str], clients: Sequence[str], numbers: Array) -> list[Finding]:
    """Returns a doubt about a client whose ordered levels are the others', moved by one or more.

    It lacks levels at one end that all others together have, and has as many at the other end that none of them has, as a scale
    from 1 on beside one from 0 on. Patients who are worse make shares that are nearer to the others' where they are not moved.
    `numbers`: (m, K) of each client's rows of each level.
    """
    rest = numbers.sum(axis=0) - numbers
    # Whose levels are the lower ones is not known: each is looked at both ways.
    found = [who for who, n, others in zip(clients, numbers, rest) for pair in ((n, others), (others, n)) if _moved(*pair)]
    if not found or len(found) > 2 or (len(found) == 2 and len(clients) > 2):
        return []
    return [Finding.of("scale-begins-elsewhere", column=column, clients=sorted(set(found)), first=levels[0], last=levels[-1])]


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


def _apart(first_numbers: Array, other: Array) -> float:
    """Returns the mean distance of the cumulative logits of two clients' levels."""
    cumulative = (np.cumsum(numbers + 0.5)[:-1] / (numbers + 0.5).sum() for numbers in (first_numbers, other))
    first, second = (np.log(share / (1 - share)) for share in cumulative)
    return float(np.abs(first - second).mean())


# One file twice --------------------


def find_twins(facts: Facts) -> list[tuple[int, ...]]:
    """Finds clients that may have one file: as many rows, and the same sums of every numeric covariate but for rounding.

    Rows in another order give other last digits. Columns of a few whole numbers may have the same sums by chance: so many columns
    are needed that chance makes no two clients alike; products of columns add nothing to these. Clients that repeat one design
    are told apart by their responses, which are not told here (`with_one_response`), or by center and scale in the job file:
    columns that have these are left out.
    """
    open_ones = [j for j, column in enumerate(facts.columns) if column.center is None and ":" not in column.name]
    n, (means, variances) = facts.sizes[:, np.newaxis], (part[:, open_ones] for part in facts.moments)
    sums, squares = facts.sums[:, open_ones], facts.squares[:, open_ones]
    size = np.sqrt(n * squares)  # of the sum of absolute deviations, at most
    groups = dict[int, list[int]]()  # by the first of each
    for k in np.flatnonzero(facts.sizes > 0).tolist():
        first = np.array([*groups], np.int64)
        near = (np.abs(sums[k] - sums[first]) <= SAME * size[k]) & (np.abs(squares[k] - squares[first]) <= SAME * squares[k])
        like = first[(facts.sizes[k] == facts.sizes[first]) & near.all(axis=1)]
        groups.setdefault(int(like[0]) if len(like) else k, []).append(k)
    alike = [group for group in groups.values() if len(group) > 1]
    filled = facts.sizes > 0
    both = (n * means)[filled].T, (n * (variances + means**2))[filled].T
    steps = [_step(*column) for column in zip(*both)] if alike else []
    found = list[tuple[int, ...]]()
    for group in alike:
        k, pairs = group[0], len(facts.sizes) ** 2 / 2
        tells = np.ones(len(steps), dtype=bool) if len(group) == filled.sum() else ~_designed(means[filled], variances[filled])
        distinctive = zip(*(itertools.compress(part, tells) for part in (steps, means[k].tolist(), variances[k].tolist())))
        if pairs * math.prod(_chance(float(facts.sizes[k]), *column) for column in distinctive) <= BY_CHANCE:
            found.append(tuple(group))
    return found


def _designed(means: Array, variances: Array) -> NDArray[np.bool_]:
    """Tells of which columns all clients have the same, as of the age at four visits: these make no two of them alike."""
    size = np.abs(means).max(axis=0) + np.sqrt(variances.max(axis=0))
    return np.asarray((np.ptp(means, axis=0) <= SAME * size) & (np.ptp(variances, axis=0) <= SAME * size**2))


def same_as_published(table: Sequence[Mapping[str, Value]], newcomer: Facts) -> list[str]:
    """Returns the clients of a published table of columns (`table_of`) whose rows a newcomer may have: they have its numbers.

    Chance makes rounded means alike as often as their standard errors say; a column that all clients have alike tells nothing.
    """
    numbers = {(row["column"], row["client"]): (row["rows"], row["mean"], row["sd"]) for row in table}
    clients = list(dict.fromkeys(str(client) for _, client in numbers))
    named = {name for name, _ in numbers}
    rows, (means, variances) = (
        [row for row in table_of(newcomer) if row["column"] in named and row["mean"] is not None],
        newcomer.moments,
    )
    chance = float(len(clients))
    for j, name in enumerate(column.name for column in newcomer.columns):
        differs = len(clients) == 1 or len({numbers.get((name, client)) for client in clients}) > 1
        if name in named and variances[0, j] > 0 and differs:
            whole = _are_whole(newcomer.sizes, means[:, j], variances[:, j])
            step = max(10.0 ** (math.floor(math.log10(abs(means[0, j]) or 1.0)) - 3), whole / newcomer.sizes[0])
            chance *= min(1.0, step / math.sqrt(4 * math.pi * variances[0, j] / newcomer.sizes[0]))
    if not rows or chance > BY_CHANCE:
        return []
    theirs = [(row["column"], (row["rows"], row["mean"], row["sd"])) for row in rows]
    return [client for client in clients if all(numbers.get((name, client)) == known for name, known in theirs)]


def with_one_response(group: Sequence[int], answers: Sequence[tuple[float, float]]) -> Iterator[tuple[int, ...]]:
    """Yields those of clients with the same covariates that have the same sums of the response, too. `answers`: of all clients,
    two sums over the responses each (`level`)."""
    left = list(group)
    while left:
        first = answers[left[0]]
        same = [k for k in left if all(math.isclose(*pair, rel_tol=SAME_RESPONSE) for pair in zip(answers[k], first))]
        if len(same) > 1:
            yield tuple(same)
        left = [k for k in left if k not in same]


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
    chance = min(1.0, 1 / (2 * sd * math.sqrt(math.pi * n)))
    if _two_neighbours(mean / step % 2, variance / step**2) is not None:
        return chance
    return chance * min(1.0, 1 / (2 * sd**2 * math.sqrt(2 * math.pi * n)))
