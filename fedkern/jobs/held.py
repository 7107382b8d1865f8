"""Lays tables in memory, which the caller of `fedkern.run` holds, in the place of files.

These are: rows of the clients, test rows, the server's own rows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from ..data import memory
from ..data.dialect import stem
from ..data.table import Table
from ..errors import JobError, owned
from .holding.policy import DataSet
from .keys import Raw
from .load import table
from .parties import Parties, hide, own_of_client

IN_MEMORY = "(in memory)"
OWN = ("test", "server")
NPY = ("X.npy", "y.npy")  # of a folder, after which the data are called


@dataclass(frozen=True)
class Held:
    """Holds tables in memory; see `data.memory`."""

    clients: Mapping[str, object] = field(default_factory=dict)  # name -> rows, sorted by name as files are; empty: the job's own
    own: Mapping[str, object] = field(default_factory=dict)  # `test` and `server`, where they are given

    @classmethod
    def of(cls, data: object, test: object, server: object) -> Held:
        """Makes it from the arguments of `fedkern.run`; JobError where `data` are no clients' tables."""
        if data is not None and (not isinstance(data, Mapping) or not data):
            raise JobError(f"data: wanted a table for each client's name, such as {{'site-a': frame}}, not {_said(data)}")
        for name in data or ():
            if not isinstance(name, str):
                raise JobError(f"data: a client is named by {memory.kind(name)}; name clients by texts")
        server_tables = {name: held for name, held in zip(OWN, (test, server)) if held is not None}
        return cls(dict(sorted((data or {}).items())), server_tables)

    def laid(self) -> dict[str, object]:
        """Returns the keys of [data] that stand for files, with a word in their place."""
        keys: dict[str, object] = dict.fromkeys(self.own, IN_MEMORY)
        if self.clients:
            keys |= {"clients": [f"{IN_MEMORY} {k}" for k in range(len(self.clients))], "names": [*self.clients]}
        return keys

    @property
    def defaults(self) -> dict[str, dict[str, object]]:
        """Returns keys that tables in memory supply where a job leaves them out: the y of (X, y) is the response."""
        pairs = [held for held in self.clients.values() if isinstance(held, tuple) and len(held) == 2 and held[1] is not None]
        return {"data": {"response": "y"}} if pairs else {}

    def tables(self, response: str) -> Iterator[Table]:
        """Yields the clients' rows; `response`: a column that is read as texts."""
        for name, held in self.clients.items():
            used = lambda column: column == response  # noqa: E731
            yield memory.table(held, f"data[{name!r}]", text=frozenset({response}), response=response, used=used)

    def over(self, parties: Parties) -> Parties:
        """Returns the parties, with these tables in the place of files."""
        response = parties.spec.response or "y"
        held, names = [*self.clients.values()], parties.names

        def rows(k: int) -> Table:
            with owned(k), own_of_client(names[k], parties.spec):
                read = memory.table(held[k], source(k), text=parties.texts, response=response, used=parties.spec.may_read)
            with owned(k):
                return hide(read, parties.site(k), parties.spec, names[k])

        def header(k: int) -> tuple[str, tuple[str, ...]]:
            with owned(k), own_of_client(names[k], parties.spec):
                header = memory.header(held[k], source(k), response=response)
                return source(k), tuple(name for name in header if name not in parties.site(k).hidden)

        def source(k: int) -> str:
            return f"data[{names[k]!r}]"

        def own(name: str) -> Table:
            used = parties.spec.may_read if parties.spec.formula is not None else lambda column: True
            return memory.table(self.own[name], name, text=parties.texts, response=response, used=used)

        def data_set(name: str, table: object) -> DataSet:
            """Returns the marks by which a policy knows them under any name: a memory map's file, and a fingerprint."""
            paths = memory.files(table)
            stems = [called for path in paths for called in (stem(path), *([path.parent.name] if path.name in NPY else []))]
            return DataSet(tuple(dict.fromkeys((name, *stems))), paths, mark=cache(partial(memory.mark, table)))

        if self.own:
            others = tuple(data for data in parties.own if IN_MEMORY not in data.names)
            parties = replace(parties, own=(*others, *(data_set(name, table) for name, table in self.own.items())))
        # No file of a client is opened: its rows, header and names come from memory.
        if held:
            called = [*map(data_set, names, held)]
            parties = replace(parties, rows=rows, header=header, holding=lambda k: called[k], fingerprint=lambda k: None)
        test, server = (
            partial(own, name) if name in self.own else kept for name, kept in zip(OWN, (parties.test, parties.server))
        )
        return replace(parties, test=test, server=server)


def written(given: Raw) -> dict[str, Any]:
    """Returns a job's tables as a file has them: with files to be named in the place of these and of tables in memory."""
    tables = {section: {k: v for k, v in table(given, section).items() if v not in (None, IN_MEMORY)} for section in given}
    data = {name: value for name, value in tables.get("data", {}).items() if name != "names"}
    return {**tables, "data": {**data, "clients": ["FILES"]}}


def _said(data: object) -> str:
    return "none" if isinstance(data, Mapping) else memory.kind(data)


def folder_of(prior: object) -> str:
    """Returns the folder of a prior that was built or trained: its path, or the attribute `folder`."""
    path = prior if isinstance(prior, str | os.PathLike) else getattr(prior, "folder", None)
    if not isinstance(path, str | os.PathLike):
        raise JobError(f"prior: {memory.kind(prior)} is no prior; give the folder that `fedkern sigma build` or `train` wrote")
    return str(Path(path).absolute())
