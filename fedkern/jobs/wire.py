"""Lists the wire for `fedkern check`: every message that a party may send, its meaning, its fields, its bytes, and when.

All sizes are functions of the job file and of the columns' names; a test compares them with the ledgers of the runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..algorithms.core.messages import Message, Refused, schema
from ..algorithms.core.until import AskMoving, Moving
from ..algorithms.exchanges import column_sums, rare_levels
from ..algorithms.exchanges.answers import Certificate, LogTerms
from ..algorithms.exchanges.columns import TIMES, SchemaReply
from ..algorithms.exchanges.rows import Ids
from ..algorithms.exchanges.sum_keys import SumSignature, SumSignatures
from ..algorithms.pvi.messages import Readmitted, Stored
from ..disclosure import describe
from ..models.encoding import Spec
from ..printing import listed
from ..transports import tags
from ..transports.codec import Codec
from ..transports.driver import Keep, Kept, Received
from .keys import JobConfig
from .stage import Stage

# Messages that not every run of a job has.
WHEN: dict[type[Message], str] = {
    Refused: "if its budget is spent",
    AskMoving: "where the server's own unknowns have settled",
    Moving: "where the server's own unknowns have settled",
    **dict.fromkeys((LogTerms.ask, *LogTerms.may_send), "where all has settled"),
    column_sums.AskColumnSums: "for each block of columns that are standardised",
    column_sums.MaskedColumnSums: "for each block of columns that are standardised",
    column_sums.MaskedOddColumns: "for each block of columns that are standardised",
    column_sums.ColumnScales: "for each block of columns that are standardised",
    **dict.fromkeys((rare_levels.AskRareLevels, *rare_levels.RareLevels.may_send), "for each block of levels"),
    SumSignature: "where a client signs its key",
    SumSignatures: "where a client signs its key",
    **dict.fromkeys((Readmitted, Stored), "where a run goes on with a client that it had lost"),
    Keep: "at a checkpoint",
    Kept: "at a checkpoint",
}
CONTROL = "each place with clients, a site of an engine or a rank of MPI,"  # begins the list of messages beside the rounds
ALSO: dict[str, tuple[type[Message], ...]] = {"to_server": (Received, Kept), "to_client": (Keep,)}  # in every protocol


def describe_messages(
    config: JobConfig, n_clients: int, stages: Sequence[Stage], spec: Spec, *, device: bool = False
) -> Iterator[str]:
    """Yields both directions, with the facts that a client's messages tell of its rows; then control messages.

    Parameters
    ----------
    config : the job
    n_clients : the number of clients of the job
    stages : all that it has
    spec : the job file's facts of the columns
    device : whether clients compute on one
    """
    listed: list[type[Message]] = []
    for title, way in (("each client may send", "to_server"), ("the server may send", "to_client")):
        yield title
        up = way == "to_server"
        rows = []
        kinds = [(kind, stage.dims) for stage in stages for kind in _sent(stage, way)]
        # Texts have no fixed size: a kind is listed with the longest message that its sizes allow.
        for kind, dims in [*kinds, *((kind, {}) for kind in ALSO[way])]:
            longest = Codec(dims, n_clients).longest((kind,))
            about = [describe.what(kind, config.requirement, spec)] if up else []
            rows.append((kind.__name__, *about, _fields(kind, dims), f"{longest:,}", WHEN.get(kind, "")))
            listed.append(kind)
        yield from laid_out(("message", *["what it is"] * up, "fields", "bytes", ""), [*dict.fromkeys(rows)])
        if up:
            sizes = {kind: stage.dims for stage in stages for kind in stage.protocol.to_server}
            yield f"computed  {describe.computed(config.requirement, sizes, spec, named=True)}"
    yield f"{CONTROL} besides"
    requirement = config.requirement
    told_few = (
        requirement.counts and requirement.level != "none" and (requirement.small == "leave-out" or requirement.small_by_summary)
    )
    control = _control(device, told_few, bool(config.read_alike))
    yield from laid_out(("message", "what", "bytes", ""), control)
    for kind, text in _texts(spec).items():
        if kind in listed:
            yield f"{kind.__name__}.text: {text}"


def totals(n_clients: int, stages: Sequence[Stage], spec: Spec, rounds: int | None = None) -> Iterator[str]:
    """Yields the messages and bytes that the whole job sends. `n_clients`, `stages`, `spec`: as in `describe_messages`; `rounds`:
    at most, where budgets end the job."""
    ways, all_bytes = count(n_clients, stages, spec, rounds)
    most = "on average" if any(stage.by_chance for stage in stages) else "at most"
    yield f"each client in the whole job, {most} (not counted: answers without content, checkpoints, long texts)"
    rows = [(title, f"{messages:,}", f"{size:,}", _short(size)) for title, messages, size in ways]
    yield from laid_out(("", "messages", "bytes", ""), rows)
    yield f"all {n_clients} clients together: {all_bytes:,} bytes{f' ({short})' if (short := _short(all_bytes)) else ''}"


def count(
    n_clients: int, stages: Sequence[Stage], spec: Spec, rounds: int | None = None
) -> tuple[list[tuple[str, int, int]], int]:
    """Counts what each client sends and receives (messages, bytes), and the bytes of all clients together; see `totals`."""
    ways, all_bytes = [], 0
    for title, way in (("sends", "to_server"), ("receives", "to_client")):
        messages = n_bytes = 0
        for stage in stages:
            codec = Codec(stage.dims, n_clients)
            for kind in _sent(stage, way):
                once = spec.private and kind in TIMES  # nothing but the names of columns is asked
                often = 1 if once else stage.often(kind, rounds)
                size = often * codec.longest((kind,))
                messages, n_bytes = messages + often, n_bytes + size
                all_bytes += n_clients * size
        ways.append((title, messages, n_bytes))
    return ways, all_bytes


def _short(n_bytes: int) -> str:
    """Returns bytes in words that tell at a glance; empty where the number does."""
    for size, unit in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB")):
        if n_bytes >= size:
            return f"{n_bytes / size:.3g} {unit}"
    return ""


def unknown(columns: Sequence[str]) -> Iterator[str]:
    """Yields which columns may turn out to hold texts; the lines above take them for numbers."""
    if columns:
        yield f"sizes are those of numeric columns ({listed(columns, 6)}); a column of texts counts by its levels"


def laid_out(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yields a table in columns."""
    rows = [head, *rows]
    widths = [max(len(row[j]) for row in rows) for j in range(len(head))]
    for row in rows:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()


def _sent(stage: Stage, way: str) -> tuple[type[Message], ...]:
    """Returns the messages that travel this way."""
    return stage.protocol.to_server if way == "to_server" else stage.protocol.to_client


def _fields(kind: type[Message], dims: Mapping[str, int]) -> str:
    def one(name: str, shape: tuple[str, ...]) -> str:
        return f"{name} ({', '.join(str(dims[s]) for s in shape)})" if shape else name

    return ", ".join(one(name, field.shape) for name, field in schema(kind).items())


def _control(device: bool, told_few: bool, read_alike: bool) -> list[Sequence[str]]:
    """Returns the kinds of control messages of a rank, or of an engine's site."""
    rows = [
        ("hello", "version, instruction set, digest of the job; of a rank also its cores and host", f"{tags.HELLO.size}", ""),
        ("run", "whether with --resume; the run's id", "its text", "with --out"),
        ("offers", "numbers of checkpoints", f"{tags.OFFER.size} each", "with --resume"),
        ("stop", "the signal, the rank", "its text", "at a signal"),
        ("fault", "exit code, what others may read of it; that it comes may be due to rows", "its text", "at a fault"),
        ("bye", "that its part has ended", "0", "at the end"),
    ]
    if told_few:
        what = "numbers of its clients that have too few rows, or take part by a summary"
        rows.insert(1, ("run", what, "its text", "at the start"))
    if read_alike:
        rows.insert(1, ("run", "terms of model.formula, and the version of formulaic", "its text", "at the start"))
    if device:
        rows.insert(1, ("run", "digest of host; then the card's kind, and versions", "its text", "at the start"))
    return [*rows]


def _texts(spec: Spec) -> dict[type[Message], str]:
    """Returns the content of the texts that a client sends."""
    columns = "names and kinds of the columns"
    if not spec.private:
        columns += ", levels of those that hold texts, labels of the response"
        if spec.standardise == "exchange":
            columns += "; the number of rows, sums and sums of squares of the numeric columns"
    return {
        SchemaReply: columns,
        Ids: "digests of the row ids; whether it has the response, and a digest of it where all clients use it",
        Certificate: "what it has spent in this job",
    }
