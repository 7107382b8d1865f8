"""Joins rare levels of categorical covariates (`disclosure.rare`), so that a client that has some takes part.

Each client has the levels of which it has too few rows, by its own holder's number too, join `OTHER` in its tables as they are
read: all that looks at its rows, and tells of them, knows no other. Then all clients say which levels they cannot keep
(`rare_levels`), and these join at all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..algorithms.exchanges import rare_levels
from ..data.joined import gone_of
from ..data.table import Table
from ..disclosure.few import join_rare as joined
from ..disclosure.look import of_a_value
from ..disclosure.requirement import Requirement
from ..errors import JobError, owned
from ..labels import OTHER
from ..models.encoding import Column, Encoding, Spec
from . import holders
from .holding.binding import Binding
from .holding.policy import Policy
from .keys import JobConfig
from .parties import Parties
from .stage import Stage, rare_levels_stage

MAY_SEND = rare_levels.RareLevels.may_send


def stages(config: JobConfig) -> list[Stage]:
    """Returns the stage in which levels join, where all rows are in one process that of parties apart; none where none do."""
    return [rare_levels_stage(secure=config.secure)] if _apart(config).joins_levels else []


def describe(config: JobConfig) -> list[str]:
    """Returns the lines that `fedkern check` prints about it."""
    if not config.joins_levels:
        return []
    least = of_a_value(_asked(config), getattr(config.model, "family", "gaussian"))
    text = f'levels in fewer than {least} rows of any client become "{OTHER}" at all'
    return [f"joined   {text}; each client says which of the others' levels it cannot keep"]


def _asked(config: JobConfig, policies: Iterable[Policy] = ()) -> Requirement:
    """Returns what is asked of a client's rows; at level "none", where nothing is, as at "standard"."""
    return holders.bound(_apart(config), policies)


def _apart(config: JobConfig) -> JobConfig:
    """Returns the job as parties apart have it."""
    return config.at_standard() if config.level == "none" else config


def laid(
    config: JobConfig,
    parties: Parties,
    bindings: Mapping[int, Binding],
    between: Callable[[int], AbstractContextManager[Any]] = nullcontext,
) -> Parties:
    """Returns the parties, with tables in which a client's own rare levels have joined, where the job has them join.

    Where an earlier job on nearly these rows had levels of a column join, the same join, if that is still enough: what two jobs
    with other sets tell, subtracted, would be a rare level's rows. `between` is that of `admitted.kept`.
    """
    if not config.joins_levels:
        return parties

    def rows(k: int) -> Table:
        with owned(k):
            table, binding = parties.rows(k), bindings[k]
            spec = parties.spec_of(table.names)
            with between(k):
                earlier = holders.joined_before(config, binding, parties.names[k], table, spec)
            return join_rare(config, table, spec, binding.policies, earlier)

    return replace(parties, rows=rows)


def join_rare(
    config: JobConfig,
    table: Table,
    spec: Spec,
    policies: Iterable[Policy] = (),
    earlier: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> Table:
    """Returns one client's table with `OTHER` in the place of its rare levels; `earlier`: those of an earlier job.

    A column all of whose levels would join has no effect any more: such levels join where the job says so, and not by default.
    """
    if not config.joins_levels:
        return table
    return joined(_asked(config, policies), table, spec, earlier, whole=config.disclosure.rare == "join")


def told(table: Table, columns: Iterable[Column]) -> NDArray[np.float64]:
    """Returns 1 for each level that is asked for and that this client cannot keep, and for `OTHER` where any level has joined."""
    gone = {name: gone_of(table.columns[name]) for name in table.names if name in table.columns}
    asked_for = rare_levels.levels_asked([*columns])
    return np.array([float(bool(gone[name]) if level == OTHER else level in gone[name]) for name, level in asked_for])


def agreed(config: JobConfig, encoding: Encoding, joined: Mapping[str, tuple[str, ...]]) -> Encoding:
    """Returns the encoding with the levels that are left, `OTHER` last of all: alone, where all have joined. Raises JobError: all
    levels of a column have joined, and the job does not say that levels join."""
    columns = []
    for column in encoding.columns:
        kept = [level for level in column.levels or () if level not in joined.get(column.name, ()) and level != OTHER]
        if column.name in joined and not kept and config.disclosure.rare is None:
            raise JobError(
                f"each level of column {column.name!r} is in few rows of some client, or joins such a level there as the next "
                "rarest, so that they are enough together: join levels in all files, put the column "
                'into data.ignore, or set disclosure.rare = "join", by which it has no effect'
            )
        columns.append(replace(column, levels=(*kept, OTHER)) if column.name in joined else column)
    return replace(encoding, columns=tuple(columns), joined=joined)
