"""Before the first round: all clients and the server agree on the columns and on what becomes of them.

What leaves a client, always as bounded JSON, and always in its ledger:

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
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import JobError, LostPeer
from ..models.encoding import Column, Encoding, Spec
from .messages import ClientEffects, ClientLost, Message, Protocol, RemoteFault, Saved, ServerEffects

SCHEMA_BYTES = 1 << 20
DIMS = {"schema": SCHEMA_BYTES}

COLUMNS, DEVIATIONS, DONE = 0, 1, 2  # the legs


@dataclass(frozen=True)
class AskSchema(Message, kind=1):
    """Server to client. Leg 0: what are your columns? Leg 1: `text` holds the pooled means, what are your deviations?"""

    round: int
    text: Annotated[bytes, "schema"]


@dataclass(frozen=True)
class SchemaReply(Message, kind=2):
    """Client to server."""

    round: int
    text: Annotated[bytes, "schema"]


@dataclass(frozen=True)
class Agreed(Message, kind=3):
    """Server to client: the encoding."""

    round: int
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


@dataclass(frozen=True)
class Server:
    """The server's side: `replies[k]` is client k's answer of this leg."""

    spec: Spec
    clients: tuple[str, ...]
    leg: int = COLUMNS
    replies: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    columns: tuple[Column, ...] = ()
    labels: tuple[str, ...] = ()
    rows: int = 0
    means: tuple[float, ...] = ()
    encoding: Encoding | None = None


def start(spec: Spec, clients: tuple[str, ...]) -> tuple[Server, ServerEffects]:
    """The server's first state, and its questions. `clients`: their names, in order."""
    return Server(spec, clients), [(k, AskSchema(COLUMNS, b"")) for k in range(len(clients))]


def server_receive(state: Server, sender: int, event: SchemaReply | ClientLost) -> tuple[Server, ServerEffects]:
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
    if isinstance(event, ClientLost):
        raise LostPeer(f"client {state.clients[sender]!r} was lost before the columns were agreed; start the job again")
    if event.round != state.leg or sender in state.replies:
        raise RemoteFault(f"client {sender}: SchemaReply.round is {event.round}, expected one answer of leg {state.leg}")
    reply = _parsed(sender, event.text, state)
    state = replace(state, replies={**state.replies, sender: reply})
    if len(state.replies) < len(state.clients):
        return state, []
    return _columns_known(state) if state.leg == COLUMNS else _agree(state, _deviations_known(state))


def client_receive(state: Client, event: AskSchema | Agreed) -> tuple[Client, ClientEffects]:
    """Answers a question about columns, or keeps what was agreed."""
    if isinstance(event, Agreed):
        try:
            encoding = Encoding.from_json(event.text)
        except ValueError as fault:
            raise RemoteFault(f"server: Agreed.text: {fault}") from fault
        return replace(state, encoding=encoding, summary=replace(state.summary, numeric=None)), []
    if event.round == COLUMNS:
        return state, [SchemaReply(COLUMNS, _text(_description(state)))]
    if state.summary.numeric is None:
        raise RemoteFault(f"server: AskSchema.round is {event.round}, but this job's standardise is {state.spec.standardise!r}")
    return state, [SchemaReply(event.round, _text(_deviations(state.summary.numeric, event.text)))]


def _description(state: Client) -> dict[str, Any]:
    """Leg 0 of a client."""
    summary = state.summary
    out: dict[str, Any] = {"names": list(summary.names), "kinds": list(summary.kinds)}
    if state.spec.private:
        return out
    out |= {"levels": {name: list(levels) for name, levels in summary.levels.items()}, "labels": list(summary.labels)}
    if summary.numeric is not None:
        sums, _ = _moments(summary.numeric, np.zeros(summary.numeric.shape[1]))
        out |= {"rows": len(summary.numeric), "sums": sums.tolist()}
    return out


def _deviations(numeric: NDArray[Any], text: bytes) -> dict[str, Any]:
    """Leg 1 of a client."""
    means = _floats("server", "means", _load("server", text).get("means"), numeric.shape[1])
    sums, squares = _moments(numeric, np.array(means))
    return {"sums": sums.tolist(), "squares": squares.tolist()}


def _moments(x: NDArray[Any], center: NDArray[np.float64], block: int = 4096) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sums of x - center and of their squares, (p,) each, in one pass by blocks of rows."""
    sums, squares = np.zeros_like(center), np.zeros_like(center)
    for begin in range(0, len(x), block):
        part = x[begin : begin + block] - center
        sums += part.sum(axis=0)
        squares += np.einsum("ij,ij->j", part, part)
    return sums, squares


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
    question = AskSchema(DEVIATIONS, _text({"means": means}))
    return replace(state, leg=DEVIATIONS, rows=rows, means=means, replies={}), [(k, question) for k in range(len(state.clients))]


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
    declared = spec.columns.get(spec.response)
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
    message = Agreed(state.leg, _text(encoding.to_dict()))
    state = replace(state, leg=DONE, columns=columns, replies={}, encoding=encoding)
    return state, [(k, message) for k in range(len(state.clients))]


def _text(content: Mapping[str, Any]) -> bytes:
    text = json.dumps(content, separators=(",", ":"), sort_keys=True, allow_nan=False).encode()
    if len(text) > SCHEMA_BYTES:
        raise JobError(
            f"the columns take {len(text)} bytes to describe, at most {SCHEMA_BYTES} can be sent; ignore some in [data]"
        )
    return text


# Answers come from outside: every field is checked before it is used.


def _load(who: str, text: bytes) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise RemoteFault(f"{who}: text is not JSON") from fault
    if not isinstance(content, dict):
        raise RemoteFault(f"{who}: text must be a JSON object, got {type(content).__name__}")
    return content


def _texts(who: str, name: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value) or len(set(value)) < len(value):
        raise RemoteFault(f"{who}: {name} must be a list of different texts")
    return value


def _floats(who: str, name: str, value: Any, length: int) -> list[float]:
    if not isinstance(value, list) or len(value) != length:
        raise RemoteFault(f"{who}: {name} must be a list of {length} numbers")
    if not all(isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x) for x in value):
        raise RemoteFault(f"{who}: {name} must be finite numbers")
    return [float(x) for x in value]


def _parsed(sender: int, text: bytes, state: Server) -> dict[str, Any]:
    """A client's answer with every field checked; a field that was not asked for is a fault too."""
    who = f"client {sender}: SchemaReply"
    content, out = _load(who, text), dict[str, Any]()
    exchange = state.spec.standardise == "exchange"
    fields = {"sums", "squares"}
    if state.leg == COLUMNS:
        fields = {"names", "kinds"}
        fields |= set() if state.spec.private else {"levels", "labels"}
        fields |= {"rows", "sums"} if exchange else set()
    if content.keys() != fields:
        raise RemoteFault(f"{who} has the fields {', '.join(sorted(content))}; needs {', '.join(sorted(fields))}")
    if state.leg == DEVIATIONS:
        out = {name: _floats(who, name, content[name], len(state.means)) for name in fields}
        if min(out["squares"], default=0.0) < 0:
            raise RemoteFault(f"{who}: squares must be >= 0")
        return out
    out["names"], out["kinds"] = _texts(who, "names", content["names"]), content["kinds"]
    kinds = out["kinds"]
    if not isinstance(kinds, list) or len(kinds) != len(out["names"]) or not all(k in ("numeric", "categorical") for k in kinds):
        raise RemoteFault(f"{who}: kinds must be numeric or categorical, one for each name")
    if not state.spec.private:
        levels = content["levels"]
        if not isinstance(levels, dict) or not levels.keys() <= set(out["names"]):
            raise RemoteFault(f"{who}: levels must belong to the named columns")
        out["levels"] = {name: _texts(who, f"levels of {name}", values) for name, values in levels.items()}
        out["labels"] = _texts(who, "labels", content["labels"])
    if exchange:
        rows = content["rows"]
        if not isinstance(rows, int) or isinstance(rows, bool) or not 0 < rows < 1 << 53:
            raise RemoteFault(f"{who}: rows must be a count > 0")
        out |= {"rows": rows, "sums": _floats(who, "sums", content["sums"], kinds.count("numeric"))}
    return out


def finished(state: Server) -> bool:
    """Whether the encoding is agreed."""
    return state.encoding is not None


def save(state: Server | Client) -> Saved:
    """A state without its rows. The agreement is kept as a whole: an unfinished one is begun again."""
    return {"encoding": b"" if state.encoding is None else state.encoding.to_json()}


def load(fresh: Any, saved: Mapping[str, Any]) -> Any:
    """`fresh` (a first state) with what was agreed."""
    if not saved["encoding"]:
        return fresh
    encoding = Encoding.from_json(saved["encoding"])
    return replace(fresh, encoding=encoding, **({"leg": DONE} if isinstance(fresh, Server) else {}))


PROTOCOL = Protocol("agreement", (AskSchema, Agreed), (SchemaReply,), server_receive, client_receive, finished, save, load)
