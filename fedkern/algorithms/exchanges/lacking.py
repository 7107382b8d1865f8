"""Handles covariates that some clients lack: if the model draws missing values, a whole column may be missing from a file.

The columns are then those that any client has, in the order of the client with most of them. A client that lacks a numeric one
has no value of it (`data.lacking`). A model of Gaussian values can draw no categorical one, so that its absence stays a fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...models.encoding import Encoding
from ...plain import Record

Replies = Mapping[int, Record]


def joined(replies: Replies) -> dict[int, dict[str, Any]]:
    """Returns every client's answer with `names` and `kinds` of the columns that others have."""
    most = sorted(replies, key=lambda k: (-len(replies[k]["names"]), k))
    order = list(dict.fromkeys(name for k in most for name in replies[k]["names"]))
    kinds = {name: kind for k in reversed(most) for name, kind in zip(replies[k]["names"], replies[k]["kinds"])}
    return {k: _filled(reply, order, kinds) for k, reply in replies.items()}


def _filled(reply: Record, order: Sequence[str], kinds: Mapping[str, str]) -> dict[str, object]:
    """Returns one client's answer with the numeric columns that it lacks."""
    own = dict(zip(reply["names"], reply["kinds"]))
    names = [name for name in order if name in own or kinds[name] == "numeric"]
    return {**reply, "names": names, "kinds": [own.get(name, kinds[name]) for name in names]}


def agrees(names: Sequence[str], kinds: Sequence[str], agreed: Encoding) -> bool:
    """Tells whether the agreed columns are a client's columns and others that it may lack."""
    own, kind_of = dict(zip(names, kinds)), {column.name: column.kind for column in agreed.columns}
    return own.items() <= kind_of.items() and all(kind_of[name] == "numeric" for name in kind_of.keys() - own.keys())
