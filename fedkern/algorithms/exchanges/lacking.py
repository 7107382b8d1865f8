"""Covariates that some clients lack: where missing values are drawn by the model, a whole column may be missing from a file.

The columns are then those that any client has, in the order of the client with most of them. A client that lacks a numeric one
has no value of it (`data.lacking`); of a categorical one a model of Gaussian values can draw none, so that it stays a fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...models.encoding import Encoding
from ...plain import Record

Replies = Mapping[int, Record]


def joined(replies: Replies) -> dict[int, dict[str, Any]]:
    """Every client's answer with `names` and `kinds` of the columns that others have."""
    most = sorted(replies, key=lambda k: (-len(replies[k]["names"]), k))
    order = list(dict.fromkeys(name for k in most for name in replies[k]["names"]))
    kinds = {name: kind for k in reversed(most) for name, kind in zip(replies[k]["names"], replies[k]["kinds"])}
    return {k: _filled(reply, order, kinds) for k, reply in replies.items()}


def _filled(reply: Record, order: Sequence[str], kinds: Mapping[str, str]) -> dict[str, object]:
    own = dict(zip(reply["names"], reply["kinds"]))
    names = [name for name in order if name in own or kinds[name] == "numeric"]
    return {**reply, "names": names, "kinds": [own.get(name, kinds[name]) for name in names]}


def agrees(names: Sequence[str], kinds: Sequence[str], agreed: Encoding) -> bool:
    """Whether the agreed columns are a client's own and others that it may lack."""
    own, found = dict(zip(names, kinds)), {column.name: column.kind for column in agreed.columns}
    return own.items() <= found.items() and all(found[name] == "numeric" for name in found.keys() - own.keys())
