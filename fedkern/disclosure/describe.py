"""Describes, for `fedkern check`, how much the messages of a job tell of their senders' rows.

The meaning of each message, and the numbers that can be computed from it, stand with the message (a class of
`algorithms.core.tells`). This module applies them to one job, private or open, and to a client with no more rows than
the job asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ..algorithms.core.messages import Message, schema
from ..algorithms.core.tells import FEW, FEW_AREAS, FEW_OR_FULL, FEW_OR_SUMS, FEWER, NOISED, ONE_OR_TWO, TWO, Tells
from ..algorithms.exchanges.columns import NAMES, SchemaReply
from ..kernels.families import is_linear
from ..models.encoding import Spec
from .look import of_a_value
from .requirement import Requirement
from .rules import COARSE, COARSE_ROWS, LEAST_ROWS

Sizes = Mapping[str, int]

NO_MORE = "no more in any way that was tried, which is no guarantee"
FIRST = "of every client: what ROWS, first of all lines, says"
ALONE = "of every client: each row that is alone in a function of columns which the job does not look for, exactly"
PRODUCTS = (
    "of every client: by second moments of its columns, response included, how many rows have a value of each of two, and the "
    "sum of another over the rows with a value; of one such row, its cell"
)
COMBINATIONS = f"of a client with at most {COARSE:,} combinations of covariates: how often each occurs"
PAGE = "docs/concepts/disclosure.md"
# Rows up to which it is so.
MOST = {ONE_OR_TWO: 2, TWO: 2, FEW_AREAS: 2, FEW: LEAST_ROWS - 1, FEW_OR_FULL: LEAST_ROWS - 1, FEW_OR_SUMS: LEAST_ROWS - 1}


def tells(kind: type[Message], spec: Spec) -> Tells:
    """Returns how much a client's message of this kind tells in a job with these columns."""
    assert kind.tells is not None  # no protocol has another message of clients
    return NAMES if kind is SchemaReply and spec.standardise != "exchange" else kind.tells


def what(kind: type[Message], asked: Requirement, spec: Spec) -> str:
    """Returns the meaning of a client's message of this kind in this job."""
    told = tells(kind, spec)
    if asked.unit == "client" and told.private == NOISED:
        return f"{told.what}; the server, which is trusted, adds the noise"
    if asked.unit == "case":  # all is computed of them
        return told.private or f"{told.what}, of noisy counts"
    return told.what if asked.unit is None else told.private or told.what


def describe_disclosure(asked: Requirement, kinds: Mapping[type[Message], Sizes], spec: Spec) -> Iterator[str]:
    """Yields one line: the numbers that a server can compute of a client of this job, with the fewest rows that it may have.

    Parameters
    ----------
    kinds : what clients send, with the sizes of these messages
    """
    who = asked.readers
    told = {kind: tells(kind, spec) for kind in kinds}
    # With whole clients protected, the server sees sums without noise: they are listed.
    if asked.unit == "client":
        computed = "; ".join(_grouped({kind: one for kind, one in told.items() if one.private == NOISED}))
        others = "all others no more than the plan allows of a whole client"
        yield f"computed  the server, which is trusted, can compute {computed}; {others}"
        return
    if asked.unit == "case":
        yield f"computed  {who} can compute the noisy counts, and nothing more of the counts than these tell ({PAGE})"
        return
    # A private job is bounded by its plan; only messages without noise are listed beside it.
    if asked.unit is not None:
        computed = "; ".join(_grouped({kind: one for kind, one in told.items() if one.private in ("", one.what)}))
        bound = "the plan's epsilon and delta bound what this job tells anybody of one row, to which other jobs on these rows add"
        if asked.keyed:
            bound = "keyed noise bounds nothing: what can be computed of a row is that of a job without [privacy]"
        yield f"computed  {bound}" + (f"; a server can compute {computed}" if computed else "")
        return
    # Nobody can tell what a function of the holder's packages makes of rows, so the worst is said.
    if asked.factory is not None:
        yield f'computed  {who} can compute of every client what the answers of "{asked.factory}" tell of its rows: that was not'
        yield f"          tried, of whatever number of rows, and may be all of them ({PAGE})"
        return
    least = asked.rules.rows or None
    fewest = "disclosure.rows"
    d = max((dims.get("d", 0) for dims in kinds.values()), default=0)
    if least is not None and d and asked.told_up_to(d) >= least:
        least, fewest = asked.told_up_to(d) + 1, f"more than may be told of {d} coefficients"
    # Statements for all clients stand first; the others are tried on a client with the fewest rows.
    every = {kind: one for kind, one in told.items() if one.where not in (*MOST, FEWER) or least is None}
    few: dict[type[Message], Tells] = {}
    if least is not None:
        most = asked.told_up_to(d) if d else 0
        beside = {kind: one for kind, one in told.items() if kind not in every}
        few = {kind: one for kind, one in beside.items() if _still(asked, kind, one, kinds[kind], least, most)}
    parts = [FIRST] if asked.rows else []
    parts += _grouped(every)
    parts += [ALONE, COMBINATIONS] if asked.tells_combinations else [PRODUCTS] if asked.tells == "products" else []
    if least is not None:
        still = {kind: replace(one, where=one.where if one.where == FEWER else "") for kind, one in few.items()}
        words = ", ".join(_computed(still)) or NO_MORE
        what = "events" if asked.times else "rows"
        parts.append(f"of a client with {least} {what}, the fewest that this job takes ({fewest}): {words}")
    yield f"computed  {who} can compute {'; '.join(parts)} ({PAGE})"
    yield "          a server that runs another program, and asks at points of its own choice, can compute any row"


def _still(asked: Requirement, kind: type[Message], told: Tells, sizes: Mapping[str, int], least: int, most: int) -> bool:
    """Tells whether a message's statement holds for a client with the fewest rows.

    `most`: the rows that messages can tell by their coefficients.
    """
    if told.where in (FEW, FEW_OR_FULL, FEW_OR_SUMS) and least <= most:
        return True
    if told.where == FEWER and "d" in sizes:  # of the coefficients, and not of a packed matrix of theirs
        return asked.may_tell_curvature(least, sizes["d"]) and least <= 1 + sizes["d"]
    if told.where == FEWER:
        return least <= 1 + max(sizes[symbol] for field in schema(kind).values() for symbol in field.shape[-1:])
    if told.where in (FEW_OR_FULL, FEW_OR_SUMS) and sizes["p"] > sizes["d"]:  # more than a diagonal: its eigenvectors are told
        return asked.may_tell_curvature(least, sizes["d"]) and least <= max(MOST[told.where], sizes["d"])
    # Round for round another square of X is told.
    return least <= max(MOST[told.where], sizes["d"] if told.where == FEW_OR_SUMS else 0)


def _grouped(told: Mapping[type[Message], Tells]) -> Iterator[str]:
    """Yields the statements by the clients for which they hold; those for all clients come first."""
    for where in sorted({one.where for one in told.values() if one.computed}):
        words = _computed({kind: replace(one, where="") for kind, one in told.items() if one.where == where})
        yield f"of {f'a client {where}' if where else 'every client'}: {', '.join(words)}"


def _computed(told: Mapping[type[Message], Tells]) -> Iterator[str]:
    """Yields the numbers that can be computed, each with the messages that they take."""
    for words, where in dict.fromkeys((one.computed, one.where) for one in told.values() if one.computed):
        names = ", ".join(kind.__name__ for kind, one in told.items() if (one.computed, one.where) == (words, where))
        yield f"{words}{f' {where}' if where else ''} ({names})"


def describe_few(asked: Requirement) -> list[str]:
    """Returns the lines that `fedkern check` prints about the rules for clients' rows."""
    if not asked.counts:
        return []
    if asked.level == "none":
        return ["level    none: all rows are in this process, and nothing is asked of them; fedkern check --apart asks"]
    rules = asked.rules
    ends = "is left out, by its name" if asked.small == "leave-out" else "ends the job, before anything of its rows leaves"
    # How many columns there are is known only there.
    more = ", more where another line says so" if asked.told_up_to(2) else ""
    said = [f"level    {asked.level}: {rules.rows} rows of each client{more}; one that has fewer {ends}"]
    if asked.cells:
        return [*said, f"values   cells with fewer than {rules.rows_per_value} rows of a client join others, at all clients alike"]
    if not asked.looks_at_values:
        return [*said, "values   nothing else of its rows is looked at: no rare level, and no cell that is far from all others"]
    if least := of_a_value(asked, asked.family):
        what = "differ from its others in a column" if rules.search else "have a level, or one of two values, that occurs there"
        said.append(f"values   a client also counts as small if fewer than {least} of its rows {what}")
    if rules.leverage < 1:
        said.append(f"         and if the fit of its rows has a row of leverage above {rules.leverage:g}")
    if asked.tells_combinations:
        said.append(f"         a client whose covariates have at most {COARSE:,} combinations tells how often each occurs")
        if rules.combinations:
            said.append(f"         it counts as small unless each has {rules.combinations} rows, or the client {COARSE_ROWS:,}")
    return said


def curvature(asked: Requirement, p: int) -> list[str]:
    """Returns the lines of `fedkern check` on a job with so many coefficients whose messages tell X'WX of each client."""
    wanted = asked.told_up_to(p)
    none = f"each client needs more than {wanted:,} rows"
    if not asked.told_of(p):
        return [
            *([f"sites    a client's sites can tell its rows where these are few; {none}"] if wanted else []),
            *rotation(asked, p),
        ]
    said = "curvature a client's full site is X'WX of its rows, and its labels"
    if not wanted:
        return [f"{said}: with a few rows a coefficient, all rows", *rotation(asked, p)]
    return [f"{said}; {none}"]


def rotation(asked: Requirement, p: int, n_rows: int | None = None) -> list[str]:
    """Returns a warning where rows may be no more than coefficients and one, of a job or of one's own file.

    X'X tells these rows up to a rotation, and sites with a full covariance, at two values of q, the rotation too.

    Parameters
    ----------
    p : coefficients
    n_rows : the rows of one's own file; None for a client whose rows nobody else may know
    """
    least = asked.rules.rows
    if not asked.looks_at_values or asked.level == "none":
        return []
    lines_of_it = is_linear(asked.family)
    if n_rows is not None and not lines_of_it and p + 1 < n_rows <= asked.told_up_to(p):
        return [f"  note: {n_rows} rows and {p} coefficients: what is sent can tell all these rows"]
    if (least if n_rows is None else n_rows) > p + 1:
        return []
    whole = asked.covariance == "full"
    if n_rows is not None:
        what = "full covariances tell these rows" if whole else "X'X is these rows up to a rotation, and what is sent tells X'X"
        return [f"  note: {n_rows} rows and {p} coefficients: {what}"]
    begin = f"rotation a client with at most {p + 1:,} rows, one more than there are coefficients"
    if whole:
        return [f'{begin}: with model.covariance = "full"', "         what it sends tells its rows, all of them"]
    return [f"{begin}: X'X is its rows up to a rotation,", "         and what it sends tells X'X"]
