"""Before the first round: all clients and the server agree on the columns and on what becomes of them.

What leaves a client, as JSON in pieces of a fixed size (`pieces`), and always in its ledger:

* names and kinds of its columns, in order; in a private job nothing else (kinds are then the job file's, not found in the rows);
* in a job that is not private: the levels of its categorical columns and the labels of its response;
* with standardise = "exchange" (never in a private job): its number of rows and the sum of each numeric column; then, when the
  server has told the pooled means, the sums of the deviations from them and of their squares. Two legs, because
  sum(x^2) - n mean^2 loses all digits where the mean is large against the spread; the deviations' own sums also correct the
  rounding of the first leg's means.

The server collects answers and computes from them in client order, so that the order of arrival can't change a bit.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import JobError, LostPeer
from ..models.encoding import Column, Encoding, Spec
from . import pieces
from .messages import SERVER, ClientEffects, ClientLost, Deadline, Message, Protocol, RemoteFault, Saved, ServerEffects

DIMS = {"schema": pieces.PIECE}

COLUMNS, DEVIATIONS, DONE = 0, 1, 2  # the legs


@dataclass(frozen=True)
class AskSchema(Message, kind=1):
    """Server to client. Leg 0: what are your columns? Leg 1: `text` holds the pooled means, what are your deviations?"""

    round: int
    part: int
    parts: int
    text: Annotated[bytes, "schema"]


@dataclass(frozen=True)
class SchemaReply(Message, kind=2):
    """Client to server."""

    round: int
    part: int
    parts: int
    text: Annotated[bytes, "schema"]


@dataclass(frozen=True)
class Agreed(Message, kind=3):
    """Server to client: the encoding."""

    round: int
    part: int
    parts: int
    text: Annotated[bytes, "schema"]


@dataclass(frozen=True)
class Summary:
    """What a client may tell of its table, and `numeric` (n, p): the rows of its numeric columns, which no message can carry."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    numeric: NDArray[Any] | None = None


@dataclass(frozen=True)
class Client:
    """A client's side. After `Agreed`, `encoding` is the answer and the rows are let go."""

    spec: Spec
    summary: Summary
    encoding: Encoding | None = None
    pieces: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class Server:
    """The server's side: `replies[k]` is client k's answer of this leg, `pieces[k]` what there is of an unfinished one."""

    spec: Spec
    clients: tuple[str, ...]
    leg: int = COLUMNS
    replies: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    pieces: Mapping[int, tuple[bytes, ...]] = field(default_factory=dict)
    columns: tuple[Column, ...] = ()
    labels: tuple[str, ...] = ()
    rows: int = 0
    means: tuple[float, ...] = ()
    encoding: Encoding | None = None


def start(spec: Spec, clients: tuple[str, ...]) -> tuple[Server, ServerEffects]:
    """The server's first state, and its questions. `clients`: their names, in order."""
    return _to_all(Server(spec, clients), AskSchema, COLUMNS, {})


def _to_all(state: Server, kind: type[AskSchema | Agreed], leg: int, content: Mapping[str, Any]) -> tuple[Server, ServerEffects]:
    cut = pieces.cut(content)
    return state, [(k, kind(leg, *piece)) for k in range(len(state.clients)) for piece in cut]


def server_receive(state: Server, sender: int, event: SchemaReply | ClientLost | Deadline) -> tuple[Server, ServerEffects]:
    """One answer. When the last one of a leg is here, the next question, or the agreed encoding.

    Raises
    ------
    JobError
        The clients' columns, kinds or labels do not fit together, or something needed is not public.
    LostPeer
        A client was lost: there is nothing yet that could go on without it.
    RemoteFault
        A malformed answer, or one that nobody asked for.
    """
    if isinstance(event, ClientLost | Deadline):
        silent = [k for k in range(len(state.clients)) if k not in state.replies] if sender == SERVER else [sender]
        names = ", ".join(repr(state.clients[k]) for k in silent)
        raise LostPeer(f"no answer from client {names} before the columns were agreed; see why it ended, and start the job again")
    if event.round != state.leg or sender in state.replies:
        raise RemoteFault(f"client {sender}: SchemaReply.round is {event.round}, expected one answer of leg {state.leg}")
    who = f"client {sender}: SchemaReply"
    have, content = pieces.add(who, state.pieces.get(sender, ()), event)
    if content is None:
        return replace(state, pieces={**state.pieces, sender: have}), []
    rest = {k: texts for k, texts in state.pieces.items() if k != sender}
    state = replace(state, replies={**state.replies, sender: _checked(who, content, state)}, pieces=rest)
    if len(state.replies) < len(state.clients):
        return state, []
    return _columns_known(state) if state.leg == COLUMNS else _agree(state, _deviations_known(state))


def client_receive(state: Client, event: AskSchema | Agreed) -> tuple[Client, ClientEffects]:
    """Answers a question about columns, or keeps what was agreed."""
    have, content = pieces.add(f"server: {type(event).__name__}", state.pieces, event)
    state = replace(state, pieces=have)
    if content is None:
        return state, []
    if isinstance(event, Agreed):
        try:
            encoding = Encoding.from_dict(content)
        except ValueError as fault:
            raise RemoteFault(f"server: Agreed.text: {fault}") from fault
        return replace(state, encoding=encoding, summary=replace(state.summary, numeric=None)), []
    if event.round == COLUMNS:
        answer = _description(state)
    elif event.round == DEVIATIONS and state.summary.numeric is not None:
        answer = _deviations(state.summary, content)
    else:
        raise RemoteFault(f"server: AskSchema.round is {event.round}, but this job's standardise is {state.spec.standardise!r}")
    return state, [SchemaReply(event.round, *piece) for piece in pieces.cut(answer)]


def _description(state: Client) -> dict[str, Any]:
    """Leg 0 of a client."""
    summary = state.summary
    out: dict[str, Any] = {"names": list(summary.names), "kinds": list(summary.kinds)}
    if state.spec.private:
        return out
    out |= {"levels": {name: list(levels) for name, levels in summary.levels.items()}, "labels": list(summary.labels)}
    if summary.numeric is not None:
        sums, _ = _moments(summary, np.zeros(summary.numeric.shape[1]))
        out |= {"rows": len(summary.numeric), "sums": _finite(summary, sums)}
    return out


def _deviations(summary: Summary, content: Mapping[str, Any]) -> dict[str, Any]:
    """Leg 1 of a client."""
    means = pieces.floats("server: AskSchema", "means", content.get("means"), summary.kinds.count("numeric"))
    sums, squares = _moments(summary, np.array(means))
    return {"sums": _finite(summary, sums), "squares": _finite(summary, squares)}


def _moments(summary: Summary, center: NDArray[np.float64], block: int = 4096) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sums of x - center and of their squares, (p,) each, in one pass by blocks of rows."""
    x = summary.numeric
    if x is None:
        raise ValueError("agreement: a client that exchanges statistics needs its numeric columns")
    sums, squares = np.zeros_like(center), np.zeros_like(center)
    with np.errstate(over="ignore", invalid="ignore"):
        for begin in range(0, len(x), block):
            part = x[begin : begin + block] - center
            sums += part.sum(axis=0)
            squares += np.einsum("ij,ij->j", part, part)
    return sums, squares


def _finite(summary: Summary, sums: NDArray[np.float64]) -> list[float]:
    for j in np.flatnonzero(~np.isfinite(sums)):
        name = [name for name, kind in zip(summary.names, summary.kinds) if kind == "numeric"][j]
        raise JobError(f"column {name!r}: its values are too large to be summed; give them in another unit")
    values: list[float] = sums.tolist()
    return values


def _columns_known(state: Server) -> tuple[Server, ServerEffects]:
    """All descriptions are here: compares them, joins the levels, and asks for deviations if constants are to be exchanged."""
    _check_columns(state)
    replies = [state.replies[k] for k in range(len(state.clients))]
    columns = tuple(_joined(state, name, kind, replies) for name, kind in zip(replies[0]["names"], replies[0]["kinds"]))
    state = replace(state, columns=columns, labels=_labels(state, replies))
    if not any(column.center is None for column in columns if column.kind == "numeric"):
        return _agree(state, columns)
    rows = sum(reply["rows"] for reply in replies)
    means = tuple(math.fsum(sums) / rows for sums in zip(*(reply["sums"] for reply in replies)))
    state = replace(state, leg=DEVIATIONS, rows=rows, means=means, replies={})
    return _to_all(state, AskSchema, DEVIATIONS, {"means": means})


def _check_columns(state: Server) -> None:
    """All clients must have the columns that most of them have."""
    shapes = [(tuple(state.replies[k]["names"]), tuple(state.replies[k]["kinds"])) for k in range(len(state.clients))]
    counts = Counter(shapes)
    names, kinds = max(counts, key=lambda shape: (counts[shape], -shapes.index(shape)))
    example = state.clients[shapes.index((names, kinds))]
    for client, (others, other_kinds) in zip(state.clients, shapes):
        for name in names:
            if name not in others:
                raise JobError(
                    f"client {client!r}: column {name!r} is missing, client {example!r} has it; add it, or ignore it in [data]"
                )
        for name in others:
            if name not in names:
                raise JobError(
                    f"client {client!r}: column {name!r} is not at client {example!r}; remove it, or ignore it in [data]"
                )
        if others != names:
            at = next(j for j, pair in enumerate(zip(others, names)) if pair[0] != pair[1])
            raise JobError(
                f"client {client!r}: columns in another order than at client {example!r}, first {others[at]!r} in the place of "
                f"{names[at]!r}; write the file in the order {', '.join(names)}"
            )
        for name, kind, wanted in zip(others, other_kinds, kinds):
            if kind != wanted:
                raise JobError(
                    f"client {client!r}: column {name!r} is {kind}, at client {example!r} it is {wanted}; correct the cells, "
                    f'or say which: kind = "{wanted}" in [data.columns.{name}]'
                )


def _joined(state: Server, name: str, kind: str, replies: list[Mapping[str, Any]]) -> Column:
    """A column with all that is known after leg 0."""
    spec, declared = state.spec, state.spec.columns.get(name, Column(name))
    if kind == "categorical":
        if declared.levels is not None:
            return declared
        if spec.private:
            raise JobError(
                f"column {name!r}: a private job can't ask rows for levels; give levels = [...] in [data.columns.{name}]"
            )
        return Column(name, "categorical", tuple(sorted(set().union(*(reply["levels"].get(name, ()) for reply in replies)))))
    if spec.standardise == "none":
        return Column(name, "numeric", None, 0.0, 1.0)
    if spec.standardise == "public" and declared.center is None:
        raise JobError(
            f'column {name!r}: standardise = "public" needs its constants; give center and scale (or lower and upper) in '
            f'[data.columns.{name}], levels = [...] if it is categorical, or set [data] standardise = "none"'
        )
    return Column(name, "numeric", None, declared.center, declared.scale)


def _labels(state: Server, replies: list[Mapping[str, Any]]) -> tuple[str, ...]:
    """The two labels of a response with a positive one."""
    spec = state.spec
    declared = spec.columns.get(spec.response or "")
    if spec.private or spec.positive is None or (declared is not None and declared.levels is not None):
        return ()
    counts = Counter(label for reply in replies for label in reply["labels"])
    if len(counts) > 2 or (len(counts) == 2 and spec.positive not in counts):
        rarest = min(counts.keys() - {spec.positive}, key=lambda label: (counts[label], label))
        client = next(name for name, reply in zip(state.clients, replies) if rarest in reply["labels"])
        others = ", ".join(sorted(counts.keys() - {rarest}))
        raise JobError(
            f"client {client!r}: {rarest!r} is a label of {spec.response!r} beside {others}, and positive = {spec.positive!r}; "
            "a response has two labels, one of them positive: correct the cells, or [data] positive"
        )
    return tuple(sorted(counts)) if spec.positive in counts else ()


def _deviations_known(state: Server) -> tuple[Column, ...]:
    """The standardising constants: mean and standard deviation (divisor n) of all rows together; 1 for a constant column."""
    replies = [state.replies[k] for k in range(len(state.clients))]
    constants: list[tuple[float, float]] = []
    for mean, sums, squares in zip(state.means, zip(*(r["sums"] for r in replies)), zip(*(r["squares"] for r in replies))):
        shift = math.fsum(sums) / state.rows
        variance = max(math.fsum(squares) / state.rows - shift * shift, 0.0)
        tiny = (1e-14 * abs(mean)) ** 2  # what rounding leaves of a constant column
        constants.append((mean + shift, math.sqrt(variance) if variance > tiny else 1.0))
    rest = iter(constants)
    return tuple(_with(column, *next(rest)) if column.kind == "numeric" else column for column in state.columns)


def _with(column: Column, center: float, scale: float) -> Column:
    """Constants of the job file win over exchanged ones."""
    return column if column.center is not None else replace(column, center=center, scale=scale)


def _agree(state: Server, columns: tuple[Column, ...]) -> tuple[Server, ServerEffects]:
    encoding = state.spec.encoding(columns)
    if state.labels:
        encoding = replace(encoding, labels=state.labels)
    state = replace(state, leg=DONE, columns=columns, replies={}, encoding=encoding)
    return _to_all(state, Agreed, DONE, encoding.to_dict())


def _checked(who: str, content: dict[str, Any], state: Server) -> dict[str, Any]:
    """A client's answer, every field as it must be."""
    exchange = state.spec.standardise == "exchange"
    if state.leg == DEVIATIONS:
        pieces.fields(who, content, {"sums", "squares"})
        out = {name: pieces.floats(who, name, content[name], len(state.means)) for name in ("sums", "squares")}
        if min(out["squares"], default=0.0) < 0:
            raise RemoteFault(f"{who}: squares must be >= 0")
        return out
    wanted = {"names", "kinds"} | (set() if state.spec.private else {"levels", "labels"})
    pieces.fields(who, content, wanted | ({"rows", "sums"} if exchange else set()))
    names, kinds = pieces.texts(who, "names", content["names"]), content["kinds"]
    if not isinstance(kinds, list) or len(kinds) != len(names) or not all(k in ("numeric", "categorical") for k in kinds):
        raise RemoteFault(f"{who}: kinds must be numeric or categorical, one for each name")
    if not state.spec.private:
        levels = content["levels"]
        if not isinstance(levels, dict) or levels.keys() != {name for name, kind in zip(names, kinds) if kind == "categorical"}:
            raise RemoteFault(f"{who}: levels must be those of the categorical columns")
        for name, values in levels.items():
            pieces.texts(who, f"levels of {name}", values)
        pieces.texts(who, "labels", content["labels"])
    if exchange:
        pieces.count(who, "rows", content["rows"])
        pieces.floats(who, "sums", content["sums"], kinds.count("numeric"))
    return content


def finished(state: Server) -> bool:
    """Whether the encoding is agreed."""
    return state.encoding is not None


def save(state: Server | Client) -> Saved:
    """A state at a moment when no question is open; rows and half-collected answers are not in it."""
    kept: dict[str, Any] = {"encoding": None if state.encoding is None else state.encoding.to_dict()}
    if isinstance(state, Server):
        columns = [asdict(column) for column in state.columns]
        kept |= {"leg": state.leg, "columns": columns, "labels": state.labels, "rows": state.rows, "means": state.means}
    return {"agreement": json.dumps(kept, sort_keys=True).encode()}


def load(fresh: Any, saved: Mapping[str, Any]) -> Any:
    """`fresh` (a first state) with what was saved."""
    kept = json.loads(saved["agreement"])
    kept["encoding"] = None if kept["encoding"] is None else Encoding.from_dict(kept["encoding"])
    if isinstance(fresh, Server):
        columns = (Column(**{**c, "levels": None if c["levels"] is None else tuple(c["levels"])}) for c in kept["columns"])
        kept |= {"columns": tuple(columns), "labels": tuple(kept["labels"]), "means": tuple(kept["means"])}
    return replace(fresh, **kept)


PROTOCOL = Protocol("agreement", (AskSchema, Agreed), (SchemaReply,), server_receive, client_receive, finished, save, load)
