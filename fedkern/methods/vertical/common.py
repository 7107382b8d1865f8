"""Leaves of each party's rows those that all parties have, where ids may not be compared by digests (`data.most_ids`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from ...algorithms.core.messages import SERVER
from ...algorithms.exchanges import intersection
from ...algorithms.exchanges import rows as alignment
from ...algorithms.exchanges.rows import Places
from ...data.sets import heart_failure
from ...data.table import Table
from ...errors import owned
from ...jobs.holding.policy import Policy
from ...jobs.run import At, Run
from ...jobs.stage import Stage
from .keys import Config
from .rows import least_rows

Party = tuple[Table, tuple[str, ...]]  # rows in the agreed order, and their ids


def intersected(config: Config) -> Stage:
    """Returns the stage that finds the rows which all parties have."""
    data = config.data
    clients = len(data.names or data.clients or heart_failure.CLIENTS)
    parties, of = clients + bool(data.server or data.builtin), intersection
    times = {of.Points: parties - 1, of.Blinded: parties, of.Common: parties, of.Marked: parties - 1}
    return Stage(of.PROTOCOL, of.dims(data.most_ids or 1), times=times, trips=2 * parties)


def compared(config: Config) -> Stage:
    """Returns the stage in which the parties compare their rows: by digests of ids, or of places where all are common already."""
    stage = Stage.of(alignment)
    return stage if config.data.most_ids is None else replace(stage, protocol=replace(stage.protocol, to_server=(Places,)))


def in_common(
    at: At[Config], clients: Mapping[int, Party], server: Party | None, policies: Mapping[int, Sequence[Policy]]
) -> tuple[dict[int, Party], Party | None]:
    """Returns the rows that all parties have, of the parties that live here: all of them where the job compares digests.

    `policies` are of the clients that live here. Raises JobError: fewer rows are left than the job's level, or a policy, asks
    for; it does not say how many.
    """
    config = at.config
    if (most := config.data.most_ids) is None:
        return dict(clients), server

    def member(party: int, ids: tuple[str, ...]) -> intersection.Member:
        with owned(party):
            who = "the server" if party == SERVER else f"client {at.names[party]!r}"
            return intersection.Member(who, ids, config.job.seed, most, least_rows(config, {party: policies.get(party, ())}))

    of_server = None if server is None else member(SERVER, server[1])
    start = partial(intersection.start, at.names, most, least_rows(config, {}), of_server)
    state, members = at.exchange(intersected(config), start, {k: member(k, ids) for k, (_, ids) in clients.items()})
    left = {k: _left(clients[k], member_of) for k, member_of in members.items()}
    if state is not None and server is not None:
        server = _left(server, state.own)
    return left, server


def count_common(run: Run[Config], tables: Mapping[int, Table]) -> None:
    """Counts the rows that are left, of each client that lives here, as those of an open job."""
    if run.config.most_ids is not None:
        for k, table in tables.items():
            run.hooks.count(k, run.parties, table)


def as_compared(config: Config, ids: tuple[str, ...]) -> tuple[str, ...]:
    """Returns what the parties compare their rows by: ids, or the places of rows that are common already."""
    return ids if config.data.most_ids is None else tuple(map(str, range(len(ids))))


def _left(party: Party, member: intersection.Member | None) -> Party:
    """Returns a party's common rows."""
    assert member is not None
    assert member.kept is not None
    table, ids = party
    left = replace(table.select(member.kept), incomplete=table.incomplete)
    return left, tuple(ids[row] for row in member.kept.tolist())
