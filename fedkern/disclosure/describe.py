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


def what(kind: type[Message], requirement: Requirement, spec: Spec) -> str:
    """Returns the meaning of a client's message of this kind in this job."""
    tell = tells(kind, spec)
    if requirement.unit == "client" and tell.private == NOISED:
        return f"{tell.what}; the server, which is trusted, adds the noise"
    if requirement.unit == "case":  # all is computed of them
        return tell.private or f"{tell.what}, of noisy counts"
    return tell.what if requirement.unit is None else tell.private or tell.what


def describe_disclosure(requirement: Requirement, kinds: Mapping[type[Message], Sizes], spec: Spec) -> Iterator[str]:
    """Yields one line: the numbers that a server can compute of a client of this job, with the fewest rows that it may have.

    Parameters
    ----------
    kinds : what clients send, with the sizes of these messages
    """
    who = requirement.readers
    tells_of = {kind: tells(kind, spec) for kind in kinds}
    # With whole clients protected, the server sees sums without noise: they are listed.
    if requirement.unit == "client":
        computed = "; ".join(_grouped({kind: tell for kind, tell in tells_of.items() if tell.private == NOISED}))
        others = "all others no more than the plan allows of a whole client"
        yield f"computed  the server, which is trusted, can compute {computed}; {others}"
        return
    if requirement.unit == "case":
        yield f"computed  {who} can compute the noisy counts, and nothing more of the counts than these tell ({PAGE})"
        return
    # A private job is bounded by its plan; only messages without noise are listed beside it.
    if requirement.unit is not None:
        computed = "; ".join(_grouped({kind: tell for kind, tell in tells_of.items() if tell.private in ("", tell.what)}))
        bound = "the plan's epsilon and delta bound what this job tells anybody of one row, to which other jobs on these rows add"
        if requirement.keyed:
            bound = "keyed noise bounds nothing: what can be computed of a row is that of a job without [privacy]"
        yield f"computed  {bound}" + (f"; a server can compute {computed}" if computed else "")
        return
    # Nobody can tell what a function of the holder's packages makes of rows, so the worst is said.
    if requirement.factory is not None:
        yield f'computed  {who} can compute of every client what the answers of "{requirement.factory}" tell of its rows:'
        yield f"          that was not tried, of whatever number of rows, and may be all of them ({PAGE})"
        return
    least = requirement.rules.rows or None
    fewest = "disclosure.rows"
    d = max((dims.get("d", 0) for dims in kinds.values()), default=0)
    if least is not None and d and requirement.told_up_to(d) >= least:
        least, fewest = requirement.told_up_to(d) + 1, f"more than may be told of {d} coefficients"
    # Statements for all clients stand first; the others are tried on a client with the fewest rows.
    of_all = {kind: tell for kind, tell in tells_of.items() if tell.where not in (*MOST, FEWER) or least is None}
    few: dict[type[Message], Tells] = {}
    if least is not None:
        most = requirement.told_up_to(d) if d else 0
        beside = {kind: tell for kind, tell in tells_of.items() if kind not in of_all}
        few = {kind: tell for kind, tell in beside.items() if _still(requirement, kind, tell, kinds[kind], least, most)}
    parts = [FIRST] if requirement.rows else []
    parts += _grouped(of_all)
    parts += [ALONE, COMBINATIONS] if requirement.tells_combinations else [PRODUCTS] if requirement.tells == "products" else []
    if least is not None:
        still = {kind: replace(tell, where=tell.where if tell.where == FEWER else "") for kind, tell in few.items()}
        words = ", ".join(_computed(still)) or NO_MORE
        what = "events" if requirement.times else "rows"
        parts.append(f"of a client with {least} {what}, the fewest that this job takes ({fewest}): {words}")
    yield f"computed  {who} can compute {'; '.join(parts)} ({PAGE})"
    yield "          a server that runs another program, and asks at points of its own choice, can compute any row"


def _still(requirement: Requirement, kind: type[Message], tell: Tells, sizes: Mapping[str, int], least: int, most: int) -> bool:
    """Tells whether a message's statement holds for a client with the fewest rows.

    `most`: the rows that messages can tell by their coefficients.
    """
    if tell.where in (FEW, FEW_OR_FULL, FEW_OR_SUMS) and least <= most:
        return True
    if tell.where == FEWER and "d" in sizes:  # of the coefficients, and not of a packed matrix of theirs
        return requirement.may_tell_curvature(least, sizes["d"]) and least <= 1 + sizes["d"]
    if tell.where == FEWER:
        return least <= 1 + max(sizes[symbol] for field in schema(kind).values() for symbol in field.shape[-1:])
    if tell.where in (FEW_OR_FULL, FEW_OR_SUMS) and sizes["p"] > sizes["d"]:  # more than a diagonal: its eigenvectors are told
        return requirement.may_tell_curvature(least, sizes["d"]) and least <= max(MOST[tell.where], sizes["d"])
    # Round for round another square of X is told.
    return least <= max(MOST[tell.where], sizes["d"] if tell.where == FEW_OR_SUMS else 0)


def _grouped(tells_of: Mapping[type[Message], Tells]) -> Iterator[str]:
    """Yields the statements by the clients for which they hold; those for all clients come first."""
    for where in sorted({tell.where for tell in tells_of.values() if tell.computed}):
        words = _computed({kind: replace(tell, where="") for kind, tell in tells_of.items() if tell.where == where})
        yield f"of {f'a client {where}' if where else 'every client'}: {', '.join(words)}"


def _computed(tells_of: Mapping[type[Message], Tells]) -> Iterator[str]:
    """Yields the numbers that can be computed, each with the messages that they take."""
    for words, where in dict.fromkeys((tell.computed, tell.where) for tell in tells_of.values() if tell.computed):
        names = ", ".join(kind.__name__ for kind, tell in tells_of.items() if (tell.computed, tell.where) == (words, where))
        yield f"{words}{f' {where}' if where else ''} ({names})"


def describe_few(requirement: Requirement) -> list[str]:
    """Returns the lines that `fedkern check` prints about the rules for clients' rows."""
    if not requirement.counts:
        return []
    if requirement.level == "none":
        return ["level    none: all rows are in this process, and nothing is asked of them; fedkern check --apart asks"]
    rules = requirement.rules
    ends = "is left out, by its name" if requirement.small == "leave-out" else "ends the job, before anything of its rows leaves"
    # How many columns there are is known only there.
    more = ", more where another line says so" if requirement.told_up_to(2) else ""
    lines = [f"level    {requirement.level}: {rules.rows} rows of each client{more}; one that has fewer {ends}"]
    if requirement.cells:
        return [*lines, f"values   cells with fewer than {rules.rows_per_value} rows of a client join others, at all clients"]
    if not requirement.looks_at_values:
        return [*lines, "values   nothing else of its rows is looked at: no rare level, and no cell that is far from all others"]
    if least := of_a_value(requirement, requirement.family):
        what = "differ from its others in a column" if rules.search else "have a level, or one of two values, that occurs there"
        lines.append(f"values   a client also counts as small if fewer than {least} of its rows {what}")
    if rules.leverage < 1:
        lines.append(f"         and if the fit of its rows has a row of leverage above {rules.leverage:g}")
    if requirement.tells_combinations:
        lines.append(f"         a client whose covariates have at most {COARSE:,} combinations tells how often each occurs")
        if rules.combinations:
            lines.append(f"         it counts as small unless each has {rules.combinations} rows, or the client {COARSE_ROWS:,}")
    return lines


def curvature(requirement: Requirement, p: int) -> list[str]:
    """Returns the lines of `fedkern check` on a job with so many coefficients whose messages tell X'WX of each client."""
    wanted = requirement.told_up_to(p)
    none = f"each client needs more than {wanted:,} rows"
    if not requirement.told_of(p):
        return [
            *([f"sites    a client's sites can tell its rows where these are few; {none}"] if wanted else []),
            *rotation(requirement, p),
        ]
    begin = "curvature a client's full site is X'WX of its rows, and its labels"
    if not wanted:
        return [f"{begin}: with a few rows a coefficient, all rows", *rotation(requirement, p)]
    return [f"{begin}; {none}"]


def rotation(requirement: Requirement, p: int, n_rows: int | None = None) -> list[str]:
    """Returns a warning where rows may be no more than coefficients and one, of a job or of one's own file.

    X'X tells these rows up to a rotation, and sites with a full covariance, at two values of q, the rotation too.

    Parameters
    ----------
    p : coefficients
    n_rows : the rows of one's own file; None for a client whose rows nobody else may know
    """
    least = requirement.rules.rows
    if not requirement.looks_at_values or requirement.level == "none":
        return []
    lines_of_it = is_linear(requirement.family)
    if n_rows is not None and not lines_of_it and p + 1 < n_rows <= requirement.told_up_to(p):
        return [f"  note: {n_rows} rows and {p} coefficients: what is sent can tell all these rows"]
    if (least if n_rows is None else n_rows) > p + 1:
        return []
    whole = requirement.covariance == "full"
    if n_rows is not None:
        what = "full covariances tell these rows" if whole else "X'X is these rows up to a rotation, and what is sent tells X'X"
        return [f"  note: {n_rows} rows and {p} coefficients: {what}"]
    begin = f"rotation a client with at most {p + 1:,} rows, one more than there are coefficients"
    if whole:
        return [f'{begin}: with model.covariance = "full"', "         what it sends tells its rows, all of them"]
    return [f"{begin}: X'X is its rows up to a rotation,", "         and what it sends tells X'X"]
