"""Finds the levels of a response in rows that all lie in this process, in memory or in files, where a job names none.

Where parties are apart the job file names them: labels of a response are the holders' to tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from ..data.cells import Text, number
from ..data.cells import labels as in_cells
from ..data.incomplete import NO_LABEL
from ..data.table import Table
from ..errors import JobError
from ..kernels.families import LEVELED, NOMINAL
from ..labels import in_order
from .formula import laid
from .keys import Raw
from .load import merged, table

MOST = 8  # labels of a client that an error names


def with_levels(raw: Raw, read: Callable[[str], Iterable[Table]]) -> Raw:
    """Returns a job's tables with `data.levels` as its rows have them, where a multinomial or ordinal job names none; and the
    same of groups that clients have in common.

    Numbers stand in their order and categories that have an order in theirs; other labels are sorted, which gives a multinomial
    model its reference, and an ordinal one no order: its levels stay to be named. `raw`: the job's tables; `read`: the name of
    the response -> the tables of all clients.
    """
    raw = _with_groups(raw, read)
    family = table(raw, "model").get("family")
    if family not in LEVELED or "levels" in table(raw, "data"):
        return raw
    try:
        response = str(table(laid.laid(raw), "data").get("response"))
        cells = {
            client_table.source: client_table.columns[response]
            for client_table in read(response)
            if response in client_table.columns
        }
    except JobError:  # a fault that is told where it is looked for
        return raw
    none = NO_LABEL.union(table(table(raw, "data"), "dialect").get("missing", ()))
    texts = {source: in_cells(column) for source, column in cells.items() if isinstance(column, Text)}
    if not cells or len(texts) < len(cells):  # numbers of a type that a response of levels does not have
        return raw
    of_clients = {source: [level for level in text.levels if level and level not in none] for source, text in texts.items()}
    _check_shared(response, of_clients)
    labels = dict.fromkeys(level for labels_of_client in of_clients.values() for level in labels_of_client)
    orders = [labels_of_client for source, labels_of_client in of_clients.items() if texts[source].ordered]
    found = _in_one_order(orders, labels)
    if found is None and (family in NOMINAL or not any(math.isnan(number(label)) for label in labels)):
        found = in_order(labels)
    if found is None:
        return raw
    return merged(raw, {"data": {"levels": found}})


def _with_groups(raw: Raw, read: Callable[[str], Iterable[Table]]) -> Raw:
    """Returns a job's tables with the labels of groups that clients have in common, where it names none."""
    random = table(raw, "model").get("random")
    given = random.get("groups") if isinstance(random, Mapping) else None
    entries = given if isinstance(given, list) else []
    lacking = [
        entry
        for entry in entries
        if isinstance(entry, Mapping) and entry.get("shared") is True and isinstance(entry.get("by"), str)
    ]
    found = dict[str, list[str]]()
    for column in {str(entry["by"]) for entry in lacking if "levels" not in entry}:
        try:
            cells = [client_table.cells(column) for client_table in read(column) if column in client_table.names]
        except JobError:  # a fault that is told where it is looked for
            return raw
        found[column] = in_order({label for labels in cells for label in labels} - {""})
    completed = [
        {"levels": found[entry["by"]], **entry} if entry in lacking and entry["by"] in found else entry for entry in entries
    ]
    return merged(raw, {"model": {"random": {"groups": completed}}}) if found else raw


def _in_one_order(orders: Sequence[list[str]], labels: Collection[str]) -> list[str] | None:
    """Returns all labels in the order of the clients whose tables give them one; None where there is no such order."""
    joined = max(orders, key=len, default=[])
    agree = all([label for label in joined if label in order] == order for order in orders)
    return joined if joined and agree and {*joined} == {*labels} else None


def _check_shared(response: str, of_clients: Mapping[str, Collection[str]]) -> None:
    """Refuses labels that may be two spellings of the same: those of some clients and of others, which have none in common."""
    first, labels = next(((source, {*known}) for source, known in of_clients.items() if known), ("", set[str]()))
    shared = dict(of_clients)
    while joins := [source for source, known in shared.items() if not known or labels.intersection(known)]:
        labels = labels.union(*(shared.pop(source) for source in joins))
    if shared and max(map(len, of_clients.values())) > 1:
        other = next(iter(shared))
        known, others = (", ".join(in_order(of_clients[source])[:MOST]) for source in (first, other))
        raise JobError(
            f"{response!r}: {first} has the labels {known}, {other} has {others}, and no client has labels of both: "
            "write the same labels at all clients, or, where all of these are levels of one response, name them: "
            "levels = [..] in [data]"
        )
